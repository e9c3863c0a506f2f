"""Files that must survive anything: written whole or not at all, read without following links."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from course.errors import CourseError

REASONS = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EROFS: "the disk is read-only; choose a place that can be written",
    errno.EACCES: "permission denied; check who owns the folder",
    errno.EPERM: "permission denied; check who owns the folder",
    errno.EEXIST: "a file stands where a folder should be; remove it or choose another place",
    errno.ENOTDIR: "a file stands where a folder should be; remove it or choose another place",
    errno.EISDIR: "a folder stands where the file should be; choose another name",
}


EVERYWHERE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}  # no other file can be written there either


class Unwritable(CourseError):
    """A file could not be written."""

    everywhere = False  # True: writing other files there is as hopeless


class UnsafeFile(Exception):
    """A file that is not what it must be: the message says what it is instead."""


def unwritable(path: Path, error: OSError) -> Unwritable:
    """The one line to show when `path` could not be written."""
    reason = REASONS.get(error.errno or 0, error.strerror or str(error))
    found = Unwritable(f"cannot write {path}: {reason}")
    found.everywhere = error.errno in EVERYWHERE
    return found


def write(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """Write a file whole or not at all, and for good (it is on the disk when this returns).

    Raises:
        CourseError: the disk is full or the folder cannot be written.
    """
    _write(path, content, mode, os.replace)


def create(path: Path, content: bytes | str, mode: int = 0o644) -> bool:
    """The same, but a file that is already there stays; whether this call made it.

    Raises:
        CourseError: the disk is full or the folder cannot be written.
    """
    try:
        _write(path, content, mode, os.link)
    except FileExistsError:
        return False
    return True


def check_writable(folder: Path) -> None:
    """Make sure that the folder exists and takes a new file, before work begins that would be lost.

    Raises:
        CourseError: it does not.
    """
    probe = folder / f".probe-{os.getpid()}"
    write(probe, b"")
    probe.unlink(missing_ok=True)


def _write(path: Path, content: bytes | str, mode: int, place: Callable[[str, Path], None]) -> None:
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        place(temporary, path)
    except FileExistsError:
        raise  # `create` found the file there
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):  # gone when it was moved into its place
                os.unlink(temporary)


def read_beneath(root: Path, relative: Path, limit: int) -> bytes:
    """The bytes of `root/relative`, where no part of `relative` may be a link.

    Each folder is opened from its parent, so nothing can be exchanged for a link in between.

    Raises:
        UnsafeFile: a link, not a regular file, missing, or more than `limit` bytes.
    """
    with contextlib.ExitStack() as stack:
        where = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, where)
        for part in relative.parts[:-1]:
            where = _open(part, os.O_DIRECTORY, where)
            stack.callback(os.close, where)
        handle = _open(relative.name, os.O_NONBLOCK, where)  # a pipe must not make us wait
        stack.callback(os.close, handle)
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise UnsafeFile(f"{relative.name} is not a regular file")
        if about.st_size > limit:
            raise UnsafeFile(f"{relative.name} is too big: {about.st_size:,} bytes, the limit is {limit:,}")
        with os.fdopen(os.dup(handle), "rb") as stream:
            data = stream.read(limit + 1)
    if len(data) > limit:
        raise UnsafeFile(f"{relative.name} is too big: the limit is {limit:,} bytes")
    return data


def _open(part: str, flags: int, folder: int) -> int:
    if part in ("..", "."):
        raise UnsafeFile("the path leaves its folder")
    try:
        return os.open(part, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
    except FileNotFoundError:
        raise UnsafeFile(f"{part} is missing") from None
    except OSError as error:
        # A link: ELOOP, or ENOTDIR where a folder was wanted.
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise UnsafeFile(f"{part} is a symbolic link; hand in the file itself") from None
        raise UnsafeFile(f"{part} cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def lock(path: Path, doing: str) -> Iterator[None]:
    """Hold a lock file; it is let go when the process ends, however it ends.

    Raises:
        CourseError: another process holds it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = filelock.FileLock(path, timeout=0, thread_local=False).acquire()
    except filelock.Timeout:
        raise CourseError(
            f"{doing} is already under way ({path} is held); wait for it to end, then run this again"
        ) from None
    except OSError as error:
        raise unwritable(path, error) from None
    with held:
        yield
