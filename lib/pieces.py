"""Takes the pieces that you write in the chapters, and says which chapter to finish where one is missing.

This module is given: no exercise. Pieces are looked up when they are needed, never when a module is
imported, so that a model is always made of what `lib` holds now.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PACKAGE = "lib"
ROOT = Path(__file__).resolve().parent.parent


class MissingPiece(NotImplementedError):
    """A piece of a chapter is not written yet; the message names the piece and the chapter."""


def take(module: str, name: str, needed_by: str) -> Any:
    """The function or class `name` of `lib.<module>`.

    Raises:
        MissingPiece: it is not there, or still a stub; the message begins with `needed_by`.
    """
    with naming_the_chapter(needed_by):
        piece = getattr(_written(module), name, None)
    if piece is None or _is_stub(piece):
        raise MissingPiece(f"{needed_by} needs {name} {_of_chapter(module)}")
    return piece


@contextlib.contextmanager
def naming_the_chapter(needed_by: str) -> Iterator[None]:
    """Within the block, a stub that is reached or an import that fails in `lib` is a `MissingPiece`."""
    try:
        yield
    except ImportError as error:
        package, _, module = (error.name or "").partition(".")
        if package != PACKAGE:
            raise
        # "cannot import name 'x' from 'lib.y'"; a module as a whole is missing where no name is said.
        name = re.search(r"import name '(\w+)'", error.msg)
        raise MissingPiece(f"{needed_by} needs {name[1] if name else module} {_of_chapter(module)}") from error
    except NotImplementedError as error:
        code = _where_raised(error)
        module = Path(code.co_filename).stem
        if isinstance(error, MissingPiece) or not _is_stub_code(code) or not _is_of_lib(code):
            raise  # torch raises NotImplementedError for reasons of its own
        piece = code.co_qualname.partition(".")[0]
        raise MissingPiece(f"{needed_by} needs {piece} {_of_chapter(module)}") from error


def _written(module: str) -> Any:
    """The module, or an object with nothing in it where there is no such module."""
    try:
        return importlib.import_module(f"{PACKAGE}.{module}")
    except ModuleNotFoundError as error:
        if error.name != f"{PACKAGE}.{module}":
            raise
        return object()


def _is_stub(piece: Any) -> bool:
    """Whether the function, or any method of the class, still consists of `raise NotImplementedError`."""
    parts = vars(piece).values() if isinstance(piece, type) else [piece]
    return any(isinstance(part, FunctionType) and _is_stub_code(part.__code__) for part in parts)


def _is_stub_code(code: CodeType) -> bool:
    return code.co_names == ("NotImplementedError",)  # the only name that its body speaks of


def _where_raised(error: BaseException) -> CodeType:
    """The function that raised the error."""
    step = error.__traceback__
    assert step is not None
    while step.tb_next is not None:
        step = step.tb_next
    return step.tb_frame.f_code


def _is_of_lib(code: CodeType) -> bool:
    folder = Path(code.co_filename).resolve().parent
    return folder in [Path(place).resolve() for place in importlib.import_module(PACKAGE).__path__]


def _of_chapter(module: str) -> str:
    for path in [*ROOT.glob(f"[0-9][0-9]_{module}.ipynb"), *ROOT.glob(f"chapters/[0-9][0-9]_{module}.md")]:
        return f"of chapter {path.name[:2]}: finish {path.name} first"
    return f"of {PACKAGE}/{module}.py: write it first"
