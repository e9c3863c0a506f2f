"""Your model, one module a chapter: `lib.softmax` is what you wrote in chapter 01.

Where the repository's `solutions/` lies beside this folder, a module that is not written here
comes from there; in a student's workspace it is an error that names the chapter to finish.
"""

import os as _os
import sys as _sys
from importlib.abc import MetaPathFinder as _MetaPathFinder
from pathlib import Path as _Path

_here = _Path(__file__).resolve().parent
_solutions = _here.parent / "solutions"

if _solutions.is_dir():
    if _os.environ.get("COURSE_REFERENCE") == "1":
        __path__.insert(0, str(_solutions))  # reference mode: the book shows the reference's results
    else:
        __path__.append(str(_solutions))


class _NotWritten(_MetaPathFinder):
    """The last finder: turns the import of an unwritten module into advice."""

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def] # as importlib names it
        package, _, name = fullname.partition(".")
        if package != __name__ or "." in name:
            return None
        for notebook in sorted(_here.parent.glob("[0-9][0-9]_*.ipynb")):
            if notebook.stem[3:] == name:
                raise ModuleNotFoundError(
                    f"lib.{name} is not written yet: finish chapter {notebook.stem[:2]} ({notebook.name}) first",
                    name=fullname,
                )
        return None


_sys.meta_path[:] = [finder for finder in _sys.meta_path if type(finder).__name__ != "_NotWritten"]
_sys.meta_path.append(_NotWritten())
