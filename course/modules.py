"""Write a module of `lib` from the source of a cell, and import it.

Used by the `%%lib` magic in a notebook and by the grader, so that both understand a cell alike.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from course import definitions
from course.definitions import Merged

PACKAGE = "lib"


class CellError(Exception):
    """A cell that cannot become part of `lib`; the message says why, and that nothing was written."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows this in place of a stack of framework frames."""
        return [str(self)]


@dataclass(frozen=True)
class Saved:
    """What became of a cell."""

    path: Path
    module: ModuleType
    merged: Merged
    reloaded: tuple[ModuleType, ...]  # the module and those that build on it


def save(folder: Path, name: str, source: str) -> Saved:
    """Merge the cell `source` into `folder/name.py` and import it as `lib.<name>`.

    The previous text goes to `folder/.history/`. On any error the file is as it was before.

    Raises:
        CellError: the cell does not parse, or its module cannot be imported.
    """
    path = folder / f"{name}.py"
    before = path.read_text(encoding="utf-8") if path.exists() else None
    merged = _merge(path, before or "", source)
    changed = merged.text != before
    if changed:
        _write(path, merged.text)
    try:
        module = fresh_import(name, path)
        reloaded = (module, *_reload_dependents(module))
    except BaseException as error:
        if changed:
            _restore(path, before)
            with contextlib.suppress(Exception):
                fresh_import(name, path)
        if not isinstance(error, Exception):
            raise
        raise CellError(f"{_where(path)} was left as it was: {_explain(error, path, merged.text)}") from error
    if changed and before is not None:
        _keep_history(path, before)
    return Saved(path, module, merged, reloaded)


def fresh_import(name: str, path: Path) -> ModuleType:
    """Import `lib.<name>` anew: no definition of an earlier version survives in it."""
    full_name = f"{PACKAGE}.{name}"
    with contextlib.suppress(OSError, ValueError):
        # Python would take a cached file of the same second and size for the new text.
        Path(importlib.util.cache_from_source(str(path))).unlink()
    importlib.invalidate_caches()
    module = sys.modules.get(full_name)
    if module is None:
        return importlib.import_module(full_name)
    for key in [key for key in vars(module) if not (key.startswith("__") and key.endswith("__"))]:
        delattr(module, key)
    return importlib.reload(module)


def _merge(path: Path, before: str, source: str) -> Merged:
    try:
        merged = definitions.merge(before, source, docstring=f"{PACKAGE}.{path.stem}, written from the notebook.")
        compile(merged.text, str(path), "exec")
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line}" if line else ""
        raise CellError(
            f"{_where(path)} was left as it was: "
            f"the cell has a syntax error at line {error.lineno}{shown} ({error.msg})"
        ) from error
    except ValueError as error:
        raise CellError(
            f"{_where(path)} does not parse ({error}): mend it or move it away, then run the cell again"
        ) from error
    except (RecursionError, MemoryError) as error:
        raise CellError(f"{_where(path)} was left as it was: the cell is nested too deeply to be read") from error
    if not merged.names:
        raise CellError(f"{_where(path)} was left as it was: the cell defines no function, class or name")
    return merged


def _reload_dependents(changed: ModuleType) -> list[ModuleType]:
    """Reload the modules of `lib` that hold objects of the changed one, so that one version is in use."""
    stale, reloaded = {changed.__name__}, []
    for full_name, module in list(sys.modules.items()):  # in order of import: what is used comes first
        if not full_name.startswith(PACKAGE + ".") or full_name == changed.__name__:
            continue
        if any(getattr(value, "__module__", None) in stale for value in vars(module).values()):
            importlib.reload(module)
            stale.add(full_name)
            reloaded.append(module)
    return reloaded


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CellError(f"{_where(path)} could not be written: {error.strerror}") from error


def _restore(path: Path, before: str | None) -> None:
    if before is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, before)


def _keep_history(path: Path, text: str) -> None:
    folder = path.parent / ".history" / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    stamp = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{time.time_ns() % 10**9 // 10**6:03d}"
    number = 0
    while (kept := folder / (f"{stamp}.py" if number == 0 else f"{stamp}-{number}.py")).exists():
        number += 1
    kept.write_text(text, encoding="utf-8", newline="\n")


def _explain(error: Exception, path: Path, text: str) -> str:
    """The error in one line, with the line of the new text that raised it."""
    message = f"{type(error).__name__}: {error}"
    numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if numbers and numbers[-1]:
        message += f", at `{text.splitlines()[numbers[-1] - 1].strip()}`"
    return message


def _where(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
