"""The fresh Python process in which `course check` runs one chapter's visible checks.

It reads a job as JSON from stdin and writes one JSON line before and after each exercise. Each check
sees the names of the setup cell and of the student's own module, and nothing that another cell made.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import json
import linecache
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

LONGEST_MESSAGE = 400


class NothingCompared(Exception):
    """A check ran to its end without one comparison."""


def main() -> None:
    """Run the job that stdin describes."""
    job = json.load(sys.stdin)
    results = _take_stdout()
    root, name = Path(job["root"]), job["module"]
    sys.path.insert(0, str(root))
    try:
        module = own_module(root / "lib", name)
    except BaseException as error:  # a student's module may raise anything
        _write(results, {"broken": explain(error, root, None)})
        return
    _write(results, {"ready": True})
    for exercise in job["exercises"]:
        _write(results, {"begin": exercise["id"]})
        try:
            run_check(job["setup"], module, exercise["id"], exercise["check"])
        except BaseException as error:
            where = _definition(root / "lib" / f"{name}.py", exercise["names"])
            _write(results, {"id": exercise["id"], "passed": False, **explain(error, root, where)})
        else:
            _write(results, {"id": exercise["id"], "passed": True})


def _take_stdout() -> TextIO:
    """Keep the real stdout for the results; what the student's code prints goes nowhere."""
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return results


def _write(results: TextIO, line: dict[str, Any]) -> None:
    results.write(json.dumps(line) + "\n")
    results.flush()


def own_module(folder: Path, name: str) -> ModuleType:
    """Import `lib.<name>` from this folder, from its present text and from nowhere else.

    Raises:
        ImportError: Python found the module elsewhere.
    """
    for file in folder.glob("*.py"):
        # Python would take a cached file of the same second and size for the new text.
        with contextlib.suppress(OSError, ValueError):
            Path(importlib.util.cache_from_source(str(file))).unlink()
    module = importlib.import_module(f"lib.{name}")
    found = Path(module.__file__ or "").resolve()
    if found != (folder / f"{name}.py").resolve():
        raise ImportError(f"lib.{name} came from {found}, which is not your lib")
    return module


def run_check(setup: str, module: ModuleType, exercise: str, check: str) -> None:
    """Run one check with the setup cell's names and the module's.

    Raises:
        NothingCompared: the check made no comparison.
        Exception: whatever the check or the student's code raises.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(without_magics(setup), "<the setup cell>", "exec"), namespace)
    namespace.update({key: value for key, value in vars(module).items() if not key.startswith("__")})
    made = 0

    def compared() -> None:
        nonlocal made
        made += 1

    namespace["__compared__"] = compared
    file = f"<the check of {exercise}>"
    linecache.cache[file] = (len(check), None, check.splitlines(keepends=True), file)
    tree = ast.fix_missing_locations(_Counting().visit(ast.parse(without_magics(check), file)))
    exec(compile(tree, file, "exec", optimize=0), namespace)
    if made == 0:
        raise NothingCompared("the check ended without comparing anything, so it shows nothing")


class _Counting(ast.NodeTransformer):
    """Lets every assertion of a check announce itself when it is reached."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        return [self._announce(node), node]

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt] | ast.Expr:
        function = node.value.func if isinstance(node.value, ast.Call) else None
        called = getattr(function, "attr", getattr(function, "id", ""))
        return [self._announce(node), node] if called.startswith("assert") else node

    def _announce(self, node: ast.stmt) -> ast.stmt:
        call = ast.Call(ast.Name("__compared__", ast.Load()), [], [])
        return ast.copy_location(ast.Expr(call), node)


def without_magics(source: str) -> str:
    """A cell without its IPython lines (`%magic`, `!command`); line numbers stay."""
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.split("\n"))


def explain(error: BaseException, root: Path, fallback: str | None) -> dict[str, str]:
    """What went wrong in one line, and the line of `lib` that it points to."""
    frames = traceback.extract_tb(error.__traceback__)
    message = " ".join(str(error).split())
    if isinstance(error, AssertionError):
        message = message or f"this does not hold: {frames[-1].line}"
    elif isinstance(error, SyntaxError):
        message = f"syntax error: {error.msg}: {(error.text or '').strip()}"
    elif not isinstance(error, NothingCompared):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + "..."
    where = fallback or ""
    if isinstance(error, SyntaxError) and error.filename:
        where = _in_lib(error.filename, error.lineno, root) or where
    for frame in frames:
        where = _in_lib(frame.filename, frame.lineno, root) or where
    return {"message": message, "where": where}


def _in_lib(file: str, line: int | None, root: Path) -> str | None:
    try:
        relative = Path(file).resolve().relative_to(root.resolve())
    except (OSError, ValueError):
        return None
    return (
        f"{relative.as_posix()}, line {line}" if relative.parts[0] == "lib" and relative.name != "__init__.py" else None
    )


def _definition(file: Path, names: list[str]) -> str | None:
    """Where the exercise's first definition stands in the student's module."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            return f"lib/{file.name}, line {node.lineno}"
    return None


if __name__ == "__main__":
    main()
