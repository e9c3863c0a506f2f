"""The class list: a CSV file with each student's id, name and numbers in the LMS.

    id,first_name,last_name,email,moodle_id,canvas_id
    ada,Ada,Lovelace,ada@example.org,1234567,8901

Only `id` is needed. The file is `classroom/roster.csv`.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from course import paths
from course.errors import CourseError

STUDENT_ID = re.compile(r"\w[\w.@+-]{0,99}")
COLUMNS = ("id", "first_name", "last_name", "email", "moodle_id", "canvas_id")
ALIASES = {"student_id": "id", "student": "id", "firstname": "first_name", "lastname": "last_name", "mail": "email"}
UNFIT = re.compile(r"[\x00-\x1f\x7f<>]")  # in a name; nbgrader's pages print names as they are
MOST_BYTES = 20_000_000


@dataclass(frozen=True)
class Student:
    """One line of the roster."""

    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    moodle_id: str = ""
    canvas_id: str = ""

    @property
    def full_name(self) -> str:
        """As Moodle writes it: first name, last name."""
        return f"{self.first_name} {self.last_name}".strip()


def is_student_id(text: str) -> bool:
    """Whether this can name a student's folder: no path, no pattern, nothing hidden."""
    return bool(STUDENT_ID.fullmatch(text)) and unicodedata.normalize("NFC", text) == text


def path() -> Path:
    """Where this classroom's roster is."""
    return paths.CLASSROOM / "roster.csv"


def find(place: Path | None = None) -> dict[str, Student] | None:
    """The roster by student id; None if the classroom has none and none was named."""
    if place is None and not path().exists():
        return None
    return load(place or path())


def load(place: Path) -> dict[str, Student]:
    """Read a roster.

    Raises:
        CourseError: it cannot be read, it is empty, or a line of it is wrong.
    """
    rows = _rows(place)
    if not rows:
        raise CourseError(f"{place}: the roster is empty; it needs a first line of column names and a line a student")
    header = [ALIASES.get(name, name) for name in (cell.strip().lower().replace(" ", "_") for cell in rows[0])]
    if "id" not in header:
        raise CourseError(f"{place}: the first line names no column `id`; it has: {', '.join(header) or 'nothing'}")
    if repeated := {name for name in header if name and header.count(name) > 1}:
        raise CourseError(f"{place}: two columns are named {sorted(repeated)[0]!r}")
    students: dict[str, Student] = {}
    taken: dict[tuple[str, str], int] = {}
    for number, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(header):
            raise CourseError(
                f"{place}, line {number}: {len(row)} values for {len(header)} columns; quote values with commas"
            )
        values = {name: cell.strip() for name, cell in zip(header, row, strict=False) if name in COLUMNS}
        student = _student(values, f"{place}, line {number}")
        for column in ("id", "email", "moodle_id", "canvas_id"):
            value = getattr(student, column).casefold()
            if value and (column, value) in taken:
                raise CourseError(
                    f"{place}, line {number}: {column} {value!r} is already that of line {taken[column, value]}"
                )
            taken[column, value] = number
        students[student.id] = student
    if not students:
        raise CourseError(f"{place}: the roster names no student; add a line for each")
    return students


def _rows(place: Path) -> list[list[str]]:
    try:
        if place.stat().st_size > MOST_BYTES:
            raise CourseError(f"{place} is too big for a roster ({MOST_BYTES:,} bytes at most)")
        text = place.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise CourseError(f"{place} is not UTF-8; save it as “CSV UTF-8”") from None
    except OSError as error:
        raise CourseError(f"cannot read the roster {place}: {error.strerror}") from None
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise CourseError(f"{place} is not a CSV file: {error}") from None


def _student(values: dict[str, str], where: str) -> Student:
    student_id = unicodedata.normalize("NFC", values.get("id", ""))
    if not is_student_id(student_id):
        raise CourseError(
            f"{where}: {student_id!r} is not a student id: use letters, digits, and . _ - @ + (not first)"
        )
    for column, value in values.items():
        if UNFIT.search(value):
            raise CourseError(f"{where}: the {column} has a character that cannot stand there: {value!r}")
    return Student(**{**values, "id": student_id})
