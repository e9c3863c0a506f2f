"""Collecting: what people handed in goes to `classroom/submitted/<student>/<chapter>/`.

What a new hand-in replaces goes to `classroom/history`, so nothing is ever lost. A file that is no
proper notebook is kept all the same: grading says so to its author. What cannot even be kept (a
link, a bomb, a name that fits no chapter or nobody in the roster) is refused in one line.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from course import chapters, paths
from course.errors import CourseError
from course.grading import archives, files, intake, report, roster
from course.grading.archives import Arrival, Rejected
from course.grading.guard import LIMIT, TIMESTAMP, read_timestamp
from course.grading.roster import Student

SECRET = "submission_secret.txt"  # nbgrader's exchange gives the feedback to whoever knows it
# What a browser or an LMS makes of a second file of the same name: "01_softmax (1)", "01_softmax-2"
COPY = re.compile(r"(?P<stem>.+?)(?: ?\(\d+\)|-\d+)?")


@dataclass
class Collected:
    """What came of a collection."""

    stored: list[tuple[str, str]] = field(default_factory=list)  # student, chapter
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def collect(
    source: Path, chapter: str | None = None, layout: str = "auto", roster_file: Path | None = None
) -> Collected:
    """Take in what a folder, an LMS's zip or nbgrader's exchange holds.

    Args:
        source: the folder, the zip, or the exchange's root.
        chapter: the chapter that was handed in; None reads it from the files' names.
        layout: how `source` is laid out: auto, folders, moodle, canvas or exchange.
        roster_file: the class list; None for `classroom/roster.csv`, if there is one.

    Raises:
        CourseError: nothing could be collected.
    """
    from rich.console import Console

    if layout not in archives.LAYOUTS:
        raise CourseError(f"there is no layout {layout!r}; the layouts are: {', '.join(archives.LAYOUTS)}")
    students = roster.find(roster_file)
    files.check_writable(paths.CLASSROOM / "submitted")
    if layout == "exchange":
        from course.grading import exchange

        result = exchange.collect(source, chapter, students)
    else:
        result = _collect(source, chapter, layout, students)
    if students is not None:
        _enrol(students)
    console = Console()
    for line in result.refused:
        console.print(
            f"refused: {report.one_line(line)}", style="yellow", markup=False, highlight=False, soft_wrap=True
        )
    for line in result.notes:
        console.print(report.one_line(line), markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{len(result.stored)} new, {len(result.unchanged)} as before, {len(result.refused)} refused",
        markup=False,
        highlight=False,
    )
    if not (result.stored or result.unchanged):
        raise CourseError(
            f"no submission was found in {source}" + ("; the reasons are above" if result.refused else "")
        )
    return result


def _collect(source: Path, chapter: str | None, layout: str, students: dict[str, Student] | None) -> Collected:
    result = Collected()
    newest: dict[tuple[str, str], Arrival] = {}
    for found in archives.arrivals(source, layout):
        if isinstance(found, Rejected):
            result.refused.append(f"{found.label}: {found.reason}")
            continue
        try:
            place = _student(found, students), _chapter(found, chapter)
        except CourseError as error:
            result.refused.append(f"{found.label}: {error}")
            continue
        other = newest.get(place)
        if other is not None:
            first, last = sorted((other, found), key=lambda arrival: arrival.when)
            result.notes.append(f"{place[0]}, {place[1]}: {first.label} is older than {last.label}, which counts")
            found = last
        newest[place] = found
    for (student, chapter_id), found in newest.items():
        try:
            take(student, chapter_id, found.read(), found.when, result)
        except files.UnsafeFile as error:
            result.refused.append(f"{found.label}: {error}")
    return result


def _student(found: Arrival, students: dict[str, Student] | None) -> str:
    if students is None:
        if not roster.is_student_id(found.who):
            raise CourseError(f"{found.who!r} is not a student id (letters, digits, and . _ - @ +)")
        return found.who
    matching = [student for student in students.values() if getattr(student, found.key) == found.who]
    if not matching and found.key != "id":
        # Moodle numbers each person anew in each assignment, so the name decides.
        wanted = _folded(found.name)
        matching = [
            s for s in students.values() if wanted in (_folded(s.full_name), _folded(s.last_name + s.first_name))
        ]
    if len(matching) != 1:
        how = "fits nobody" if not matching else f"fits {len(matching)} people"
        raise CourseError(
            f"{found.name or found.who!r} {how} in the roster; add {found.key} {found.who} to a line of it"
        )
    return matching[0].id


def _folded(name: str) -> str:
    return "".join(name.casefold().split())


def _chapter(found: Arrival, chapter: str | None) -> str:
    suffixless = found.file_name.removesuffix(".ipynb")
    match = COPY.fullmatch(suffixless)
    stem = match["stem"] if match else suffixless
    known = set(chapters.names().values())
    loose = found.key == "id" and "/" not in found.label  # <student>.ipynb: the name says who, not what
    if chapter is None:
        if stem in known:
            return stem
        raise CourseError(
            f"the name {found.file_name!r} is no chapter's; it must be one of {', '.join(sorted(known))} (.ipynb)"
        )
    chapter_id = chapters.find(chapter).id
    if not loose and stem != chapter_id:
        raise CourseError(f"the file is named {found.file_name!r}; {chapter_id}.ipynb was expected")
    return chapter_id


def take(
    student: str,
    chapter_id: str,
    data: bytes,
    when: datetime.datetime,
    result: Collected,
    secret: bytes | None = None,
) -> None:
    """Store one hand-in; what was there before goes to the history."""
    place = paths.CLASSROOM / "submitted" / student / chapter_id
    if place.is_symlink() or place.parent.is_symlink():
        result.refused.append(f"{student}, {chapter_id}: {place} is a symbolic link; remove it")
        return
    name = f"{chapter_id}.ipynb"
    stamp = f"{when:%Y-%m-%d %H:%M:%S} UTC\n"
    try:
        before: bytes | None = files.read_beneath(paths.CLASSROOM, _relative(place / name), intake.MAX_BYTES)
    except (files.UnsafeFile, FileNotFoundError):
        before = None
    if before == data and read_timestamp(place, paths.CLASSROOM) is not None:
        result.unchanged.append((student, chapter_id))
        return
    if before is not None and before != data:
        _keep(place, student, chapter_id, before)
    files.write(place / name, data)
    files.write(place / TIMESTAMP, stamp)
    if secret is not None:
        files.write(place / SECRET, secret)
    result.stored.append((student, chapter_id))
    try:
        intake.parse(data, chapters.find(chapter_id))
    except intake.Refused as error:
        result.notes.append(f"{student}, {chapter_id}: kept, but it cannot be graded: {error}")


def _keep(place: Path, student: str, chapter_id: str, before: bytes) -> None:
    when = read_timestamp(place, paths.CLASSROOM) or datetime.datetime.fromtimestamp(0)
    folder = f"{when:%Y%m%dT%H%M%S}-{hashlib.sha256(before).hexdigest()[:8]}"
    files.write(paths.CLASSROOM / "history" / student / chapter_id / folder / f"{chapter_id}.ipynb", before)


def _relative(path: Path) -> Path:
    return path.relative_to(paths.CLASSROOM)


def read_small(folder: Path, name: str) -> bytes | None:
    """A small regular file of a hand-in's folder, or None."""
    try:
        return files.read_beneath(folder, Path(name), LIMIT)
    except (files.UnsafeFile, OSError):
        return None


def _enrol(students: dict[str, Student]) -> None:
    """Tell nbgrader the names, for its pages and the export."""
    from course.grading import classroom

    with classroom.gradebook() as gradebook:
        for student in students.values():
            gradebook.update_or_create_student(
                student.id,
                first_name=student.first_name or None,
                last_name=student.last_name or None,
                email=student.email or None,
                lms_user_id=student.canvas_id or student.moodle_id or None,
            )
