"""nbgrader as a library: its API and gradebook, set up by `nbgrader_config.py`."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from sqlalchemy.exc import SAWarning, SQLAlchemyError
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from course import chapters, paths
from course.chapters import Chapter
from course.errors import CourseError

DISK = {
    "No space left on device": "the disk is full; free some space and run the same command again",
    "database or disk is full": "the disk is full; free some space and run the same command again",
    "Disk quota exceeded": "the disk quota is used up; free some space and run the same command again",
    "Read-only file system": "the disk is read-only; choose a place that can be written",
    "attempt to write a readonly database": "permission denied; check who owns gradebook.db",
}
ERROR_LINE = re.compile(r"[A-Za-z_.]*(Error|Exception|MissingEntry|Refused)\b.*: ")


def config() -> Config:
    """The project's nbgrader configuration."""
    return PyFileConfigLoader("nbgrader_config.py", str(paths.ROOT)).load_config()


def api(settings: Config | None = None) -> NbGraderAPI:
    """nbgrader's Python interface for this classroom, silent below errors."""
    merged = config()
    if settings is not None:
        merged.merge(settings)
    found = NbGraderAPI(config=merged)
    found.log.propagate = False
    found.log.setLevel(logging.WARNING)
    found.log.handlers[:] = [logging.NullHandler()]
    return found


@contextlib.contextmanager
def gradebook() -> Iterator[Gradebook]:
    """The open gradebook.

    Raises:
        CourseError: it cannot be opened.
    """
    settings = config()
    url = settings.CourseDirectory.get("db_url") or f"sqlite:///{paths.CLASSROOM / 'gradebook.db'}"
    if url.startswith("sqlite") and not paths.CLASSROOM.is_dir():
        raise CourseError(f"there is no classroom at {paths.CLASSROOM}; run `course release` first")
    try:
        book = Gradebook(url, settings.CourseDirectory.course_id)
    except SQLAlchemyError as error:
        raise CourseError(f"cannot open the gradebook {_without_password(url)}: {_first_line(error)}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # on how nbgrader builds its objects
            yield book
    except SQLAlchemyError as error:
        raise CourseError(f"cannot use the gradebook {_without_password(url)}: {_first_line(error)}") from None
    finally:
        book.close()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _without_password(url: str) -> str:
    from sqlalchemy.engine import make_url

    return make_url(url).render_as_string(hide_password=True)


def resolve(keys: list[str] | None, folder: str) -> list[Chapter]:
    """The chapters asked for; all that have something in this folder of the classroom if none is named."""
    if keys:
        try:
            return [chapters.find(key) for key in keys]
        except chapters.UnknownChapter as error:
            raise CourseError(str(error)) from None
    return [chapter for chapter in chapters.all_chapters() if list(submissions(chapter, folder))]


def submissions(chapter: Chapter, folder: str = "submitted") -> Iterator[tuple[str, Path]]:
    """Each student with something in `classroom/<folder>/<student>/<chapter>`, and that folder."""
    root = paths.CLASSROOM / folder
    if not root.is_dir():
        return
    for student in sorted(entry.name for entry in root.iterdir() if not entry.name.startswith(".")):
        place = root / student / chapter.id
        if place.is_symlink() or place.exists():
            yield student, place


def choose(chapter: Chapter, students: list[str] | None, folder: str) -> list[tuple[str, Path]]:
    """Those of the submissions that are by these students (by anyone if None)."""
    found = list(submissions(chapter, folder))
    return found if students is None else [(student, place) for student, place in found if student in students]


def check_students(students: list[str] | None, found: set[str], folder: str) -> None:
    """Refuse names of students who have nothing there."""
    unknown = sorted(set(students or []) - found)
    if unknown:
        known = ", ".join(sorted(found)[:8]) or "nobody yet"
        raise CourseError(f"nothing in {paths.CLASSROOM / folder} is by {', '.join(unknown)}; there is: {known}")


def why(result: dict[str, Any]) -> str:
    """The reason in one line why a call of nbgrader's API failed.

    Raises:
        CourseError: the disk is full or cannot be written, which would fail everything that follows.
    """
    said = f"{result.get('log', '')}\n{result.get('error', '')}"
    for sign, reason in DISK.items():
        if sign in said:
            raise CourseError(f"cannot write in {paths.CLASSROOM}: {reason}")
    lines = [line.strip() for line in said.strip().splitlines()]
    for line in reversed(lines):
        if ERROR_LINE.match(line) and "NbGraderException" not in line:
            return line.removeprefix("course.errors.CourseError: ")
    return "nbgrader failed: " + (lines or ["it gave no reason"])[-1]
