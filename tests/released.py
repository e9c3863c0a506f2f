"""One release of the whole course, shared by the tests that look at it; made when first asked for."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import zipfile
from pathlib import Path
from unittest import mock

from course import paths
from course.release import release


@functools.cache
def classroom() -> Path:
    """A classroom with every chapter released. Look, do not change."""
    folder = Path(tempfile.mkdtemp(prefix="classroom-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with mock.patch.object(paths, "CLASSROOM", folder):
        release()
    return folder


def unpack(folder: Path) -> Path:
    """The released zip, unpacked into this folder as a student does."""
    with zipfile.ZipFile(classroom() / "workspace.zip") as archive:
        archive.extractall(folder)
    return folder
