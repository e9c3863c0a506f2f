"""Where hand-ins come from: a folder or a zip, in the layouts that people and LMSs use.

Everything here yields `Arrival`s, whose bytes are read only when asked for and never more than a
notebook may have, or a `Rejected` line for one entry that cannot be taken. Nothing is unpacked.
"""

from __future__ import annotations

import datetime
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from course.errors import CourseError
from course.grading import files
from course.grading.intake import MAX_BYTES

MAX_ENTRIES = 200_000
LAYOUTS = ("auto", "folders", "moodle", "canvas", "exchange")
# "Ada Lovelace_1234567_assignsubmission_file_/01_softmax.ipynb", or with no folder
# (the first such name: what follows is the student's own file name, which can hold another)
MOODLE = re.compile(r"(?P<name>[^/]+?)_(?P<number>\d+)_assignsubmission_file_?/?(?P<file>[^/].*)", re.DOTALL)
# "lovelaceada_LATE_12345_67890_01_softmax-1.ipynb"
CANVAS = re.compile(r"(?P<name>[^_/]+)_(?:LATE_)?(?P<number>\d+)_\d+_(?P<file>[^/]+)", re.DOTALL)
JUNK = {"__MACOSX", ".ipynb_checkpoints", "__pycache__"}


@dataclass(frozen=True)
class Arrival:
    """One notebook file, and who it says it is from."""

    label: str  # how to name it in a message
    key: str  # id, moodle_id or canvas_id: the roster column that `who` stands in
    who: str
    name: str  # the person's name as the LMS writes it, or ""
    file_name: str
    when: datetime.datetime  # UTC, naive, as nbgrader keeps it
    read: Callable[[], bytes]  # raises UnsafeFile


@dataclass(frozen=True)
class Rejected:
    """One entry that cannot be taken, and why."""

    label: str
    reason: str


@dataclass(frozen=True)
class _Entry:
    path: PurePosixPath
    when: datetime.datetime
    read: Callable[[], bytes]


def arrivals(source: Path, layout: str) -> Iterator[Arrival | Rejected]:
    """Everything that a folder or a zip holds.

    Raises:
        CourseError: there is no such folder or zip, or it cannot be read at all.
    """
    if source.is_dir():
        entries = list(_folder(source))
    elif source.is_file():
        entries = list(_zip(source))
    else:
        raise CourseError(f"there is nothing to collect at {source}: name a folder, or the zip from your LMS")
    chosen = _guess(entries) if layout == "auto" else layout
    for entry in entries:
        if isinstance(entry, Rejected):
            yield entry
        else:
            yield from _arrival(entry, chosen)


def _guess(entries: list[_Entry | Rejected]) -> str:
    names = [str(entry.path) for entry in entries if isinstance(entry, _Entry)]
    for layout, pattern in (("moodle", MOODLE), ("canvas", CANVAS)):
        if 2 * sum(pattern.fullmatch(name) is not None for name in names) > len(names):  # one odd name decides nothing
            return layout
    return "folders"


def _arrival(entry: _Entry, layout: str) -> Iterator[Arrival | Rejected]:
    text = str(entry.path)
    if layout in ("moodle", "canvas"):
        match = (MOODLE if layout == "moodle" else CANVAS).fullmatch(text)
        if match is None:
            yield Rejected(text, f"the name is not one of {layout.capitalize()}'s; is --layout right?")
            return
        file_name = PurePosixPath(match["file"]).name
        yield Arrival(text, f"{layout}_id", match["number"], match["name"], file_name, entry.when, entry.read)
        return
    who = entry.path.parts[0] if len(entry.path.parts) > 1 else entry.path.stem
    yield Arrival(text, "id", who, "", entry.path.name, entry.when, entry.read)


def _is_wanted(path: PurePosixPath) -> bool:
    return path.suffix == ".ipynb" and not JUNK & set(path.parts) and not path.name.startswith("._")


# Folders


def _folder(root: Path) -> Iterator[_Entry | Rejected]:
    count = 0
    for place, folders, names in os.walk(root, onerror=_unreadable):
        here = Path(place)
        for name in sorted(folders):
            if (here / name).is_symlink():
                yield Rejected(str((here / name).relative_to(root)), "it is a symbolic link; hand in the folder itself")
        folders[:] = sorted(name for name in folders if name not in JUNK and not (here / name).is_symlink())
        for name in sorted(names):
            count += 1
            if count > MAX_ENTRIES:
                raise CourseError(f"{root} holds more than {MAX_ENTRIES:,} files; name the folder of the hand-ins")
            relative = (here / name).relative_to(root)
            if _is_wanted(PurePosixPath(relative)):
                yield _Entry(PurePosixPath(relative), _modified(root, relative), _reader(root, relative))


def _unreadable(error: OSError) -> None:
    raise CourseError(f"cannot read {error.filename}: {error.strerror}")


def _reader(root: Path, relative: Path) -> Callable[[], bytes]:
    return lambda: files.read_beneath(root, relative, MAX_BYTES)


def _modified(root: Path, relative: Path) -> datetime.datetime:
    stamp = (root / relative).parent / "timestamp.txt"
    if stamp.is_file() and not stamp.is_symlink():  # a folder laid out by nbgrader says it exactly
        from course.grading.guard import read_timestamp

        found = read_timestamp(stamp.parent, root)
        if found is not None:
            return found
    seconds = os.lstat(root / relative).st_mtime
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).replace(tzinfo=None, microsecond=0)


# Zips


def _zip(source: Path) -> Iterator[_Entry | Rejected]:
    try:
        archive = zipfile.ZipFile(source)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CourseError(f"{source} is not a zip that can be read ({error}); download it again") from None
    infos = archive.infolist()
    if len(infos) > MAX_ENTRIES:
        raise CourseError(f"{source} has {len(infos):,} entries; the limit is {MAX_ENTRIES:,}")
    for info in infos:
        name = info.filename
        path = PurePosixPath(name)
        reason = _unsafe(info)
        if reason is not None:
            yield Rejected(ascii(name)[1:-1], reason)
        elif not info.is_dir() and _is_wanted(path):
            try:
                when = datetime.datetime(*info.date_time)
            except ValueError:
                when = datetime.datetime.now(datetime.UTC).replace(tzinfo=None, microsecond=0)
            yield _Entry(path, when, _unzipper(archive, info))


def _unsafe(info: zipfile.ZipInfo) -> str | None:
    path = PurePosixPath(info.filename)
    if path.is_absolute() or ".." in path.parts or "\\" in info.filename or re.match(r"[A-Za-z]:", info.filename):
        return "the entry's path leaves its folder"
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "the entry is a symbolic link; hand in the file itself"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "the entry is not a regular file"
    if not _is_wanted(path):
        return None
    if info.flag_bits & 1:
        return "the entry is encrypted"
    if info.file_size > MAX_BYTES:
        return f"it is too big: {info.file_size:,} bytes, the limit is {MAX_BYTES:,}"
    return None


def _unzipper(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with archive.open(info) as stream:
                data = stream.read(MAX_BYTES + 1)
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise files.UnsafeFile(f"the entry is damaged: {error}") from None
        if len(data) > MAX_BYTES:
            raise files.UnsafeFile(f"it unpacks to more than {MAX_BYTES:,} bytes")
        return data

    return read
