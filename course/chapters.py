"""The chapters and their exercises, read from the sources: nothing about them is written twice.

A chapter is `chapters/NN_name.md` in the repository and `NN_name.ipynb` in a workspace. An
exercise is a cell with nbgrader's `solution: true`; the locked cell `<exercise>_check` that
follows it carries the visible checks and the points.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from course import paths

if TYPE_CHECKING:  # importing it takes seconds, which a notebook that only saves a cell need not wait
    import nbformat

FILE_NAME = re.compile(r"(\d\d)_([a-z][a-z0-9_]*)\.(?:md|ipynb)")
MAGIC = re.compile(r"\A\s*%%lib[ \t]*([^\n]*)(?:\n|\Z)")
CHECK_SUFFIX = "_check"


class UnknownChapter(LookupError):
    """No chapter has that number or name; the message lists those that exist."""


@dataclass(frozen=True)
class Exercise:
    """One graded exercise of a chapter."""

    id: str  # nbgrader's grade_id of the cell that the student fills in
    source: str  # the stub, without the `%%lib` line
    check: str  # the source of the visible checks
    points: float

    @property
    def check_id(self) -> str:
        """The grade_id of the locked cell that carries the marks."""
        return self.id + CHECK_SUFFIX

    @property
    def names(self) -> list[str]:
        """The functions and classes that the cell defines, in order."""
        kinds = (ast.FunctionDef, ast.ClassDef)
        return [node.name for node in ast.parse(self.source).body if isinstance(node, kinds)]


@dataclass(frozen=True)
class Chapter:
    """One chapter: a page of the book, a notebook, an nbgrader assignment, a module of `lib`."""

    number: int
    name: str  # also the module: lib.<name>
    title: str
    path: Path
    exercises: tuple[Exercise, ...]

    @property
    def id(self) -> str:
        """The file's stem and nbgrader's assignment and notebook name, such as `01_softmax`."""
        return self.path.stem

    @property
    def points(self) -> float:
        """The chapter's points in all."""
        return sum(exercise.points for exercise in self.exercises)

    def notebook(self) -> nbformat.NotebookNode:
        """The chapter as a notebook, freshly read."""
        return read_notebook(self.path)


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Read a chapter from MyST Markdown or from a notebook file."""
    if path.suffix == ".md":
        import jupytext

        return jupytext.read(path)
    import nbformat

    return nbformat.read(path, as_version=4)


def split_magic(source: str) -> tuple[str | None, str]:
    """Split a cell into the module named by its `%%lib` line (None without one) and the rest."""
    match = MAGIC.match(source)
    if match is None:
        return None, source
    return match.group(1).strip(), source[match.end() :]


def _exercises(notebook: nbformat.NotebookNode) -> tuple[Exercise, ...]:
    graded = {
        cell.metadata.nbgrader["grade_id"]: cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "nbgrader" in cell.metadata
    }
    found = []
    for grade_id, cell in graded.items():
        if not cell.metadata.nbgrader.get("solution"):
            continue
        check = graded.get(grade_id + CHECK_SUFFIX)
        if check is None:
            raise ValueError(f"exercise {grade_id!r} has no cell {grade_id + CHECK_SUFFIX!r} after it")
        found.append(
            Exercise(grade_id, split_magic(cell.source)[1], check.source, float(check.metadata.nbgrader["points"]))
        )
    return tuple(found)


@functools.lru_cache(maxsize=256)
def _load(path: Path, changed: int) -> Chapter:
    match = FILE_NAME.fullmatch(path.name)
    assert match is not None
    notebook = read_notebook(path)
    heading = re.search(r"^#\s+(.+)$", "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown"), re.M)
    title = heading.group(1).strip() if heading else match.group(2)
    return Chapter(int(match.group(1)), match.group(2), title, path, _exercises(notebook))


def load(path: Path) -> Chapter:
    """Read one chapter file; read again only when it has changed."""
    return _load(path, path.stat().st_mtime_ns)


def files() -> list[Path]:
    """The chapter files in reading order, unread."""
    folder = paths.ROOT if paths.is_workspace() else paths.CHAPTERS
    return sorted(path for path in folder.iterdir() if FILE_NAME.fullmatch(path.name))


def names() -> dict[str, str]:
    """Module name to chapter id, in reading order, from the file names alone (fast)."""
    return {path.stem[3:]: path.stem for path in files()}


def all_chapters() -> list[Chapter]:
    """Every chapter in reading order."""
    return [load(path) for path in files()]


def find(key: str) -> Chapter:
    """The chapter with this number (`1`, `01`), name (`softmax`) or id (`01_softmax`)."""
    wanted = key.strip().removesuffix(".md").removesuffix(".ipynb")
    for path in files():
        number, name = path.stem[:2], path.stem[3:]
        if wanted in (path.stem, name, number) or (wanted.isdigit() and int(wanted) == int(number)):
            return load(path)
    known = ", ".join(path.stem for path in files()) or "none yet"
    raise UnknownChapter(f"there is no chapter {key!r}; the chapters are: {known}")
