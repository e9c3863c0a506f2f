"""Intake: a file that somebody handed in becomes exercise cells, or is refused in one line.

The file is hostile until proven otherwise. Nothing of it is run, and nothing of its metadata
survives: the notebook that goes on to nbgrader is built anew from the cells' text and from the
chapter. So a copied cell, an edited or deleted check, altered points or an odd schema version
neither stops a batch nor gains a mark.

Which cell is the answer to an exercise: the last finished cell with its `grade_id`; else the last
finished `%%lib` cell that defines one of its names; else whatever was begun; else the stub. That is
what running the notebook from top to bottom leaves in the student's `lib`.
"""

from __future__ import annotations

import ast
import functools
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course import chapters
from course.chapters import Chapter, Exercise
from course.definitions import is_stub
from course.errors import CourseError
from course.grading import files

# A released chapter is 30 to 90 kB; with its outputs run, up to about 1 MB (figures are inline).
MAX_BYTES = 8_000_000
MAX_CELLS = 2_000
# Code of the exercises, in characters: some 10,000 in a chapter. Parsed, each can take a kilobyte for a while.
MAX_CODE = 300_000
SCHEMA_VERSION = 3

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"file_extension": ".py", "mimetype": "text/x-python", "name": "python", "pygments_lexer": "ipython3"}


class Refused(CourseError):
    """The submission cannot be graded; the message says why and what to hand in instead."""


@dataclass(frozen=True)
class Submission:
    """What is judged (`cells`, `extra`), and the clean notebook that nbgrader carries on with."""

    chapter: str
    cells: dict[str, str]  # exercise id to source, without the `%%lib` line; the stub if none came
    extra: list[str]  # the student's other `%%lib` cells of this chapter, in order
    notes: list[str] = field(compare=False)  # what was put right
    notebook: NotebookNode = field(compare=False)


@dataclass
class _Cell:
    kind: str
    source: str
    grade_id: str | None
    module: str | None = None
    body: str = ""
    graded: str | None = None  # the grade_id that it gets in the clean notebook

    def __post_init__(self) -> None:
        if self.kind == "code":
            self.module, self.body = chapters.split_magic(self.source)

    @functools.cached_property
    def outline(self) -> tuple[set[str], bool] | None:
        """Names of the functions and classes at its top, and whether a stub is left; None if it does not parse."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a student's bad escape sequence is not ours to report
                tree = ast.parse(self.body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names = {node.name for node in tree.body if isinstance(node, kinds)}
        return names, any(is_stub(node) for node in tree.body)

    @property
    def names(self) -> set[str]:
        return self.outline[0] if self.outline else set()


def read(path: Path, chapter: Chapter, root: Path) -> Submission:
    """Take in a submission: `path`, which lies under the trusted folder `root`.

    Raises:
        Refused: it is not a notebook of this chapter that can be graded.
    """
    if path.name != f"{chapter.id}.ipynb":
        raise Refused(f"the file is named {path.name!r}; hand in {chapter.id}.ipynb")
    try:
        data = files.read_beneath(root, path.relative_to(root), MAX_BYTES)
    except files.UnsafeFile as error:
        raise Refused(f"{error}") from None
    return parse(data, chapter)


def parse(data: bytes, chapter: Chapter) -> Submission:
    """Take in a submission's bytes.

    Raises:
        Refused: they are not a notebook.
    """
    return normalise(_cells(_document(data, f"{chapter.id}.ipynb")), chapter)


def _document(data: bytes, name: str) -> dict[str, Any]:
    again = "open it in JupyterLab, save it and hand it in again"
    if not data.strip():
        raise Refused(f"{name} is empty; {again}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(f"{name} is not a notebook: it is not UTF-8 text; {again}") from None
    try:
        document = json.loads(text)
    except RecursionError:
        raise Refused(f"{name} is not a notebook: its JSON is nested too deeply; {again}") from None
    except ValueError as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise Refused(f"{name} is not a notebook: it is not valid JSON{where}; {again}") from None
    if not isinstance(document, dict) or not {"cells", "nbformat"} & set(document):
        raise Refused(f"{name} is JSON but not a notebook; {again}")
    version = document.get("nbformat")
    if version != 4 or isinstance(version, bool):
        raise Refused(f"{name} has notebook format {str(version)[:20]!r}; format 4 is needed: {again}")
    if not isinstance(document.get("cells"), list):
        raise Refused(f"{name} is not a notebook: it has no list of cells; {again}")
    if len(document["cells"]) > MAX_CELLS:
        raise Refused(f"{name} has {len(document['cells']):,} cells; the limit is {MAX_CELLS:,}")
    return document


def _cells(document: dict[str, Any]) -> Iterator[_Cell]:
    for raw in document["cells"]:
        if not isinstance(raw, dict):
            continue
        kind = raw.get("cell_type")
        if kind in ("code", "markdown"):
            yield _Cell(kind, _text(raw.get("source")), _grade_id(raw.get("metadata")))


def _text(source: object) -> str:
    """A cell's source: a string or a list of strings; lone surrogates cannot be written, so go."""
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if not isinstance(source, str):
        return ""
    return source.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _grade_id(metadata: object) -> str | None:
    own = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = own.get("grade_id") if isinstance(own, dict) else None
    return grade_id if isinstance(grade_id, str) else None


def from_notebook(notebook: NotebookNode, chapter: Chapter) -> Submission:
    """Take in a notebook already read (one that `normalise` built gives the same cells again)."""
    return normalise(_cells({"cells": notebook.cells}), chapter)


def normalise(cells: Iterator[_Cell], chapter: Chapter) -> Submission:
    """Find the answers among the cells and build the clean notebook around them."""
    kept = list(cells)
    ids = {exercise.id for exercise in chapter.exercises}
    code = sum(len(cell.source) for cell in kept if cell.module == chapter.name or cell.grade_id in ids)
    if code > MAX_CODE:
        raise Refused(f"{chapter.id}.ipynb has {code:,} characters of code in its exercises; the limit is {MAX_CODE:,}")
    notes: list[str] = []
    answers: dict[str, str] = {}
    for exercise in chapter.exercises:
        chosen = _answer(kept, exercise, chapter.name)
        if chosen is None:
            notes.append(f"the cell of exercise {exercise.id} is missing; it counts as not started")
            chosen = _Cell("code", f"%%lib {chapter.name}\n{exercise.source}", exercise.id)
            kept.insert(_place(kept, chapter, exercise.id), chosen)
        copies = [cell for cell in kept if cell.grade_id == exercise.id and cell is not chosen]
        if copies:
            notes.append(f"the cell of exercise {exercise.id} is there {len(copies) + 1} times; the last answer counts")
        chosen.graded = exercise.id
        answers[exercise.id] = chosen.body
        _restore_check(kept, chapter, exercise, notes)
    extra = [
        cell.body
        for cell in kept
        if cell.module == chapter.name and cell.graded is None and not _is_stub_copy(cell, chapter)
    ]
    return Submission(chapter.id, answers, extra, notes, _notebook(kept, chapter))


def _answer(cells: list[_Cell], exercise: Exercise, module: str) -> _Cell | None:
    free = [cell for cell in cells if cell.kind == "code" and cell.graded is None]
    own = [cell for cell in free if cell.grade_id == exercise.id]
    names = set(exercise.names)
    elsewhere = [c for c in free if c.grade_id != exercise.id and c.module == module and names & c.names]
    for place, wanted in ((own, 2), (elsewhere, 2), (own, 1), (elsewhere, 1), (own, 0)):
        found = [cell for cell in place if _progress(cell, exercise) == wanted]
        if found:
            return found[-1]
    return None


def _progress(cell: _Cell, exercise: Exercise) -> int:
    """0: the untouched stub; 1: changed, but it does not parse or is still a stub; 2: an answer."""
    if _same(cell.body, exercise.source):
        return 0
    return 1 if cell.outline is None or cell.outline[1] else 2


def _same(one: str, other: str) -> bool:
    return one.strip() == other.strip()


def _is_stub_copy(cell: _Cell, chapter: Chapter) -> bool:
    return any(_same(cell.body, exercise.source) for exercise in chapter.exercises)


def _place(cells: list[_Cell], chapter: Chapter, grade_id: str) -> int:
    """Where a missing graded cell belongs: after the nearest graded cell that precedes it."""
    order = [name for exercise in chapter.exercises for name in (exercise.id, exercise.check_id)]
    before = set(order[: order.index(grade_id)])
    places = [i for i, cell in enumerate(cells) if cell.graded in before]
    return places[-1] + 1 if places else len(cells)


def _restore_check(cells: list[_Cell], chapter: Chapter, exercise: Exercise, notes: list[str]) -> None:
    own = [cell for cell in cells if cell.grade_id == exercise.check_id]
    if not own:
        notes.append(f"the check cell {exercise.check_id} is missing; it was put back")
        own = [_Cell("code", exercise.check, exercise.check_id)]
        cells.insert(_place(cells, chapter, exercise.check_id), own[0])
    check = own[0]
    if check.kind != "code" or not _same(check.source, exercise.check):
        notes.append(f"the check cell {exercise.check_id} was changed; the original was put back")
    check.kind, check.source, check.module, check.graded = "code", exercise.check, None, exercise.check_id
    for copy in own[1:]:
        cells.remove(copy)


def _notebook(cells: list[_Cell], chapter: Chapter) -> NotebookNode:
    points = {exercise.check_id: exercise.points for exercise in chapter.exercises}
    built = []
    for number, cell in enumerate(cells):
        make = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
        node = make(cell.source, id=f"cell-{number}")
        if cell.graded is not None:
            node.metadata["nbgrader"] = _metadata(cell.graded, points.get(cell.graded))
        built.append(node)
    metadata = {"kernelspec": dict(KERNEL), "language_info": dict(LANGUAGE)}
    return nbformat.v4.new_notebook(cells=built, metadata=metadata)


def _metadata(grade_id: str, points: float | None) -> dict[str, Any]:
    graded = points is not None
    found: dict[str, Any] = {
        "grade": graded,
        "grade_id": grade_id,
        "locked": graded,
        "schema_version": SCHEMA_VERSION,
        "solution": not graded,
        "task": False,
        "cell_type": "code",
    }
    if graded:
        found["points"] = points
    return found


def blank(chapter: Chapter) -> Submission:
    """The submission of someone who answered nothing: what stands in for a refused one."""
    return normalise(iter(()), chapter)
