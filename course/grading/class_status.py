"""The instructor's half of `course status`: who handed in what, and the marks in the gradebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbgrader.api import MissingEntry
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course import chapters, paths
from course.grading import classroom

NOTHING, HANDED_IN = "-", "not graded"
SHORT = {NOTHING: "-", HANDED_IN: "?"}
"""How the table shows them."""


@dataclass(frozen=True)
class ClassStatus:
    """The class at a glance: for each student and released chapter a mark, `not graded` or `-`."""

    maxima: dict[str, float]  # chapter id to its points, in reading order
    cells: dict[str, dict[str, float | str]]  # student to chapter id to mark or word

    def missing(self, chapter_id: str) -> list[str]:
        """The students who handed in nothing for this chapter."""
        return [student for student, row in self.cells.items() if row[chapter_id] == NOTHING]


def read() -> ClassStatus:
    """The class as the gradebook and the folder of submissions have it.

    Raises:
        CourseError: the gradebook cannot be read.
    """
    handed_in = {
        chapter.id: {student for student, _ in classroom.submissions(chapter)} for chapter in chapters.all_chapters()
    }
    with classroom.gradebook() as book:
        known = {assignment.name: float(assignment.max_score) for assignment in book.assignments}
        maxima = {chapter_id: known[chapter_id] for chapter_id in handed_in if chapter_id in known}
        students = {student.id for student in book.students} | {s for group in handed_in.values() for s in group}
        cells = {
            student: {chapter_id: _cell(book, chapter_id, student, handed_in[chapter_id]) for chapter_id in maxima}
            for student in sorted(students)
        }
    return ClassStatus(maxima, cells)


def _cell(book: Any, chapter_id: str, student: str, handed_in: set[str]) -> float | str:
    try:
        return float(book.find_submission(chapter_id, student).score)
    except MissingEntry:
        return HANDED_IN if student in handed_in else NOTHING


def show(console: Console) -> None:
    """Print the class's table of marks, and who has not handed in."""
    if not (paths.CLASSROOM / "release").is_dir():
        console.print(f"Nothing is released yet ({paths.CLASSROOM}): run `course release`.", soft_wrap=True)
        return
    status = read()
    if not status.cells:
        console.print(
            "Released: " + ", ".join(status.maxima) + ". Nobody has handed in; `course collect` takes work in."
        )
        return
    # Narrow columns and no lines between them, so that a whole course fits on a screen.
    table = Table(title="The class", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("Student")
    for chapter_id, points in status.maxima.items():
        table.add_column(f"{chapter_id[:2]}\n/{points:g}", justify="right", no_wrap=True)
    table.add_column(f"total\n/{sum(status.maxima.values()):g}", justify="right", no_wrap=True)
    for student, row in status.cells.items():
        marks = [f"{cell:g}" if isinstance(cell, float) else f"[dim]{SHORT[cell]}[/]" for cell in row.values()]
        total = sum(cell for cell in row.values() if isinstance(cell, float))
        table.add_row(escape(student), *marks, f"{total:g}")
    console.print(table)
    if any(HANDED_IN in row.values() for row in status.cells.values()):
        console.print(f"{SHORT[HANDED_IN]}: handed in, {HANDED_IN}", soft_wrap=True)
    for chapter_id in status.maxima:
        names = status.missing(chapter_id)
        if names:
            console.print(f"Nothing handed in for {chapter_id}: {escape(', '.join(names))}", soft_wrap=True)
