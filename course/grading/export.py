"""Export: the gradebook as CSV, safe to open in a spreadsheet and right for any name.

A value that a spreadsheet would take for a formula gets an apostrophe in front. Quotes, commas and
line breaks are the csv module's business; the file is UTF-8 with a mark at its start, so that
spreadsheets read accents rightly.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nbgrader.plugins import ExportPlugin

from course import paths
from course.errors import CourseError
from course.grading import classroom, files, report, roster

if TYPE_CHECKING:
    from nbgrader.api import Gradebook

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
Row = Sequence[object]


@dataclass(frozen=True)
class Line:
    """One student's result in one chapter."""

    chapter: str
    student: roster.Student
    submitted: str
    raw: float | None  # None: nothing handed in
    penalty: float
    points: float

    @property
    def score(self) -> float | None:
        """Marks after the penalty for lateness."""
        return None if self.raw is None else max(0.0, self.raw - self.penalty)


def export(target: Path, layout: str = "plain") -> Path:
    """Write the marks of the whole class.

    Args:
        target: the CSV file.
        layout: plain (all columns; also "generic"), canvas or moodle.

    Raises:
        CourseError: there is no such layout, there are no marks, or the file cannot be written.
    """
    if layout not in LAYOUTS:
        raise CourseError(f"there is no layout {layout!r}; the layouts are: {', '.join(LAYOUTS)}")
    with classroom.gradebook() as gradebook:
        found = lines(gradebook, roster.find())
    if not found:
        raise CourseError(f"there are no marks in {paths.CLASSROOM}; run `course grade` first")
    files.write(target, to_csv(LAYOUTS[layout](found)))
    return target


def lines(gradebook: Gradebook, students: dict[str, roster.Student] | None = None) -> list[Line]:
    """Every student's result in every chapter that has been released, in order."""
    from nbgrader.api import MissingEntry

    people = dict(students or {})
    for person in gradebook.students:
        known = roster.Student(person.id, person.first_name or "", person.last_name or "", person.email or "")
        people.setdefault(person.id, known)
    found = []
    for assignment in sorted(gradebook.assignments, key=lambda one: one.name):
        for person_id in sorted(people):
            try:
                hand_in = gradebook.find_submission(assignment.name, person_id)
            except MissingEntry:
                found.append(Line(assignment.name, people[person_id], "", None, 0.0, float(assignment.max_score)))
                continue
            stamp = f"{hand_in.timestamp:%Y-%m-%d %H:%M:%S}" if hand_in.timestamp else ""
            penalty = float(hand_in.late_submission_penalty or 0.0)
            found.append(
                Line(
                    assignment.name,
                    people[person_id],
                    stamp,
                    float(hand_in.score),
                    penalty,
                    float(assignment.max_score),
                )
            )
    return found


def to_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV text; every string made harmless."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerows([_value(value) for value in row] for row in rows)
    return "\N{ZERO WIDTH NO-BREAK SPACE}" + buffer.getvalue()


def _value(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return report.marks(value) if math.isfinite(value) else ""
    text = str(value)
    # White space in front does not keep a spreadsheet from seeing a formula.
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA) or text.startswith(FORMULA) else text


def _plain(found: list[Line]) -> list[Row]:
    head = ["student_id", "last_name", "first_name", "email", "chapter", "submitted_utc"]
    rows: list[Row] = [[*head, "raw_score", "late_penalty", "score", "max_score"]]
    for line in found:
        who = line.student
        person = [who.id, who.last_name, who.first_name, who.email, line.chapter, line.submitted]
        rows.append([*person, line.raw, line.penalty, line.score or 0.0, line.points])
    return rows


def _canvas(found: list[Line]) -> list[Row]:
    """Canvas's gradebook import: a column per assignment, and the points possible under the header."""
    chapters, people = _table(found)
    rows: list[Row] = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *chapters]]
    rows.append(["    Points Possible", "", "", "", "", *chapters.values()])
    for who, scores in people:
        name = f"{who.last_name}, {who.first_name}".strip(", ") or who.id
        rows.append([name, who.canvas_id, who.id, who.email or who.id, "", *(scores.get(name) for name in chapters)])
    return rows


def _moodle(found: list[Line]) -> list[Row]:
    """Moodle's grade import: the person by ID number or e-mail address, a column per assignment."""
    chapters, people = _table(found)
    rows: list[Row] = [["ID number", "First name", "Last name", "Email address", *chapters]]
    for who, scores in people:
        person = [who.moodle_id or who.id, who.first_name, who.last_name, who.email]
        rows.append([*person, *(scores.get(name) for name in chapters)])
    return rows


def _table(found: list[Line]) -> tuple[dict[str, float], list[tuple[roster.Student, dict[str, float | None]]]]:
    chapters = {line.chapter: line.points for line in found}
    people: dict[str, tuple[roster.Student, dict[str, float | None]]] = {}
    for line in found:
        people.setdefault(line.student.id, (line.student, {}))[1][line.chapter] = line.score
    return chapters, list(people.values())


LAYOUTS: dict[str, Callable[[list[Line]], list[Row]]] = {
    "plain": _plain,
    "canvas": _canvas,
    "moodle": _moodle,
    "generic": _plain,
}


class SafeCsv(ExportPlugin):
    """`nbgrader export` with the same care."""

    def export(self, gradebook: Gradebook) -> None:
        """Write the plain layout."""
        wanted, only = {str(name) for name in self.assignment}, {str(name) for name in self.student}
        found = [
            line
            for line in lines(gradebook)
            if (not wanted or line.chapter in wanted) and (not only or line.student.id in only)
        ]
        target = Path(self.to or "grades.csv")
        files.write(target, to_csv(_plain(found)))
        self.log.info("Exported %d marks to %s", len(found), target)
