"""The `%%lib` cell magic: a notebook cell becomes part of the student's own `lib`.

`%%lib softmax` writes the cell's definitions into `lib/softmax.py`, reloads the module and puts its
objects into the notebook. In reference mode (the book) it takes them from the reference instead.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from course import chapters, definitions, modules, paths
from course.modules import CellError


def register(shell: Any) -> None:
    """Give an IPython shell the `%%lib` magic, and make `import lib` mean this folder's."""
    paths.make_importable()

    def lib(line: str, cell: str) -> None:
        run(shell.user_ns, line.strip(), "\n" + cell)  # so that line numbers are those of the whole cell

    lib.__doc__ = __doc__
    shell.register_magic_function(lib, magic_kind="cell", magic_name="lib")


def run(namespace: dict[str, Any], name: str, source: str) -> None:
    """What `%%lib name` does with a cell, in the notebook whose variables are `namespace`."""
    _require_chapter(name)
    if paths.in_reference_mode():
        merged = definitions.merge("", source, "")
        _put(namespace, importlib.import_module(f"lib.{name}"), merged.names + merged.imported)
    else:
        saved = modules.save(paths.LIB, name, source)
        merged = saved.merged
        for module in saved.reloaded:
            _refresh(namespace, module)
        _put(namespace, saved.module, merged.names + merged.imported)
        _report(saved.path, merged)
    _execute(namespace, merged.rest)


def _require_chapter(name: str) -> None:
    known = chapters.names()
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean `%%lib {close[0]}`?" if close else f"the chapters are: {', '.join(known)}"
    given = f"no chapter is called {name!r}" if name else "`%%lib` needs the chapter's name after it"
    raise CellError(f"nothing was written: {given}; {advice}")


def _put(namespace: dict[str, Any], module: ModuleType, names: tuple[str, ...]) -> None:
    for name in names:
        if name in vars(module):
            namespace[name] = vars(module)[name]


def _refresh(namespace: dict[str, Any], module: ModuleType) -> None:
    """Replace what the notebook holds of an earlier version of the module."""
    for name, value in list(namespace.items()):
        if getattr(value, "__module__", None) == module.__name__ and name in vars(module):
            namespace[name] = vars(module)[name]


def _report(path: Path, merged: definitions.Merged) -> None:
    where = f"lib/{path.name}"
    written = [name for name in merged.names if name not in merged.stubs]
    if written:
        print(f"{where}: {', '.join(written)} saved")
    unfinished = [name for name in merged.stubs if name not in merged.kept]
    if unfinished:
        print(f"{where}: {', '.join(unfinished)} still a stub; replace `raise NotImplementedError`")
    if merged.kept:
        names = ", ".join(merged.kept)
        print(f"{where}: your finished {names} was kept, for this cell still holds the stub")


def _execute(namespace: dict[str, Any], rest: ast.Module) -> None:
    """Run the cell's other statements as a notebook would, showing the value of the last."""
    if not rest.body:
        return
    *body, last = rest.body
    if not isinstance(last, ast.Expr):
        body, last_value = rest.body, None
    else:
        last_value = ast.Expression(last.value)
    exec(compile(ast.Module(body, type_ignores=[]), "<cell>", "exec"), namespace)
    if last_value is not None:
        sys.displayhook(eval(compile(last_value, "<cell>", "eval"), namespace))
