"""nbgrader's exchange, the shared folder of a JupyterHub: collected without following a link.

A student writes into `<exchange>/<course>/inbound/` whatever they like, so a folder's name, owner,
timestamp and files are checked here one hand-in at a time. The owner can tell only where students
have accounts of their own on this machine; nbgrader itself would warn and take the hand-in.
"""

from __future__ import annotations

import datetime
import os
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbgrader.exchange.default import ExchangeCollect
from nbgrader.utils import parse_utc

from course import chapters
from course.errors import CourseError
from course.grading import classroom, files, intake, roster
from course.grading import collect as _collect
from course.grading.collect import Collected
from course.grading.roster import Student

RECORD = re.compile(r"(?P<student>.+?)\+(?P<chapter>[^+]+)\+(?P<when>[^+]+)(?:\+[^+]*)?")


@dataclass(frozen=True)
class _Record:
    folder: Path
    student: str
    chapter: str
    when: datetime.datetime


class Collect(ExchangeCollect):
    """Stands in for nbgrader's own collecting, for `nbgrader collect` and the formgrader page."""

    def init_src(self) -> None:
        """Find the inbound folder."""
        if not self.coursedir.course_id:
            self.fail("No course id specified. Re-run with --course flag.")
        self.inbound_path = os.path.join(self.root, self.coursedir.course_id, "inbound")
        if not os.path.isdir(self.inbound_path):
            self.fail(f"Course not found: {self.inbound_path}")

    def copy_files(self) -> None:
        """Take in the newest hand-in of each student."""
        result = Collected()
        student = self.coursedir.student_id
        wanted = None if student in ("", "*") else student
        _take_all(Path(self.inbound_path), self.coursedir.assignment_id, roster.find(), result, wanted)
        for line in result.refused:
            self.log.warning("refused: %s", line)
        self.log.info("%d new, %d as before", len(result.stored), len(result.unchanged))


def collect(root: Path, chapter: str | None, students: dict[str, Student] | None) -> Collected:
    """Take in what lies in the exchange under `root`, for one chapter or all."""
    inbound = root / classroom.config().CourseDirectory.course_id / "inbound"
    if not inbound.is_dir():
        raise CourseError(f"the exchange has no {inbound}; check the folder, and COURSE_ID")
    result = Collected()
    for chapter_id in [chapters.find(chapter).id] if chapter else chapters.names().values():
        _take_all(inbound, chapter_id, students, result)
    return result


def _take_all(
    inbound: Path, chapter_id: str, students: dict[str, Student] | None, result: Collected, wanted: str | None = None
) -> None:
    newest: dict[str, _Record] = {}
    for record in _records(inbound, chapter_id, result):
        if wanted is None or record.student == wanted:
            other = newest.get(record.student)
            newest[record.student] = record if other is None or record.when >= other.when else other
    for record in newest.values():
        label = record.folder.name
        if students is not None and record.student not in students:
            result.refused.append(f"{label}: {record.student!r} is not in the roster")
            continue
        try:
            data = files.read_beneath(inbound, Path(label, f"{chapter_id}.ipynb"), intake.MAX_BYTES)
        except files.UnsafeFile as error:
            result.refused.append(f"{label}: {error}")
            continue
        secret = _collect.read_small(record.folder, _collect.SECRET)
        _collect.take(record.student, chapter_id, data, record.when, result, secret)


def _records(inbound: Path, chapter_id: str, result: Collected) -> Iterator[_Record]:
    for name in sorted(os.listdir(inbound)):
        match = RECORD.fullmatch(name)
        if match is None or match["chapter"] != chapter_id:
            continue
        folder = inbound / name
        if folder.is_symlink() or not folder.is_dir():
            result.refused.append(f"{name}: it is not a folder")
        elif not roster.is_student_id(match["student"]):
            result.refused.append(f"{name}: {match['student']!r} is not a student id")
        elif (owner := _stranger(folder, match["student"])) is not None:
            result.refused.append(f"{name}: it says it is by {match['student']}, but {owner} put it there")
        else:
            try:
                yield _Record(folder, match["student"], chapter_id, parse_utc(match["when"]))
            except (ValueError, OverflowError):
                result.refused.append(f"{name}: the name holds no date")


def _stranger(folder: Path, student: str) -> str | None:
    """Who owns the folder, if the student has an account on this machine and it is not theirs."""
    try:
        account = pwd.getpwnam(student)
    except KeyError:
        return None
    owner = folder.stat().st_uid
    if owner == account.pw_uid:
        return None
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return f"user {owner}"
