"""What nbgrader 0.9.6 leaves open and configuration cannot close: loaded by `nbgrader_config.py`.

- nbgrader copies every file beside a submission into `autograded/` and `feedback/`, following
  links: a link named `notes.txt` could carry off the gradebook, and an HTML file would be served
  from the instructor's own address. Only `timestamp.txt` goes along now.
- A damaged `timestamp.txt` stops whole listings, a link in its place can hang them.
- Collecting from the exchange follows links too, and deletes the submission that it replaces.
"""

from __future__ import annotations

import datetime
import os
import stat
import sys
from pathlib import Path
from typing import Any

import nbgrader.converters.base
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import find_all_files, parse_utc

from course.grading import files

TIMESTAMP = "timestamp.txt"
LIMIT = 200  # bytes of a timestamp


def install() -> None:
    """Put the replacements in place; doing it again changes nothing."""
    nbgrader.converters.base.find_all_files = _files_to_copy
    CourseDirectory.get_existing_timestamp = _timestamp
    _find_alembic()


def _find_alembic() -> None:
    """nbgrader sets up a new gradebook with the `alembic` command, and expects it on the path."""
    programs = str(Path(sys.executable).parent)
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if programs not in places:
        os.environ["PATH"] = os.pathsep.join([programs, *places])


def _files_to_copy(path: str, exclude: list[str] | None = None) -> list[str]:
    """Only the timestamp, where it is a regular file; the rest of a hand-in stays where it is."""
    found = find_all_files(path, exclude)
    source = f"{os.sep}.{os.sep}" in path  # nbgrader's student "." is the instructor, whose files go along
    return [name for name in found if source or (os.path.basename(name) == TIMESTAMP and _is_small_file(name))]


def _is_small_file(name: str) -> bool:
    about = os.lstat(name)
    return stat.S_ISREG(about.st_mode) and about.st_size <= LIMIT


def _timestamp(self: CourseDirectory, dest_path: str) -> datetime.datetime | None:
    return read_timestamp(Path(dest_path), Path(self.root))


def read_timestamp(folder: Path, root: Path) -> datetime.datetime | None:
    """When the submission in `folder` was handed in; None if nothing says so."""
    try:
        text = files.read_beneath(root, (folder / TIMESTAMP).relative_to(root), LIMIT).decode("utf-8")
        return parse_utc(text.strip()) if text.strip() else None
    except (files.UnsafeFile, ValueError, OverflowError, OSError):
        return None


def configure(config: Any) -> None:
    """The settings that close the rest: nbgrader's own switches."""
    config.ExchangeFactory.collect = "course.grading.exchange.Collect"
    config.OverwriteCells.add_missing_cells = True
