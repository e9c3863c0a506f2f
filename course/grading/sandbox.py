"""The sandbox as the grader sees it: a connection to a fresh, locked-in process for each submission.

bubblewrap makes the sandbox: no network, no files but the system's and Python's (read-only), no
other processes, nothing of the grader, its tests or other students. `cage.py` runs inside.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from course import paths
from course.errors import CourseError

START_SECONDS = 120  # a cold disk can take long to load torch
STOP_SECONDS = 10
INSIDE = Path("/grader")
# The only files of the project that the sandbox sees.
MODULES = (
    "course/__init__.py",
    "course/definitions.py",
    "course/modules.py",
    "course/grading/__init__.py",
    "course/grading/cage.py",
    "course/grading/fixtures.py",
    "course/grading/protocol.py",
    "course/grading/worker.py",
)


class Cage:
    """A running sandbox, and at most one submission in it."""

    def __init__(self, unsafe: bool = False) -> None:
        """Start it.

        Args:
            unsafe: no sandbox at all, only a process of its own; for one's own work.

        Raises:
            CourseError: it does not start; the message says why and what to do.
        """
        self._channel, theirs = socket.socketpair()
        self._scratch = tempfile.TemporaryDirectory(prefix="course-unsafe-") if unsafe else None
        command, environment = self._command(theirs.fileno(), unsafe)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the sandbox)
        self._process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        theirs.close()
        self._channel.settimeout(START_SECONDS)
        try:
            ready = self._channel.recv(1)
        except OSError:
            ready = b""
        if not ready:
            self.close()
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines() or ["it gave no reason"]
            raise CourseError(f"the sandbox does not start here: {lines[-1]}; `course doctor` tells how to mend it")
        self.reusable = ready == b"N" and not unsafe
        self.used = False

    def _command(self, descriptor: int, unsafe: bool) -> tuple[list[str], dict[str, str]]:
        settings = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        module = ["-m", "course.grading.cage", str(descriptor)]
        if self._scratch is not None:
            inherited = {**os.environ, **settings, "COURSE_UNSAFE_FOLDER": self._scratch.name}
            inherited["PYTHONPATH"] = str(paths.ROOT)
            return [sys.executable, *module, "unsafe"], inherited
        return [*bubblewrap(), sys.executable, *module, "isolated"], settings

    @property
    def alive(self) -> bool:
        """False once its process has ended."""
        return self._process.poll() is None

    def connect(self) -> socket.socket:
        """A connection to a fresh process in the sandbox."""
        self.used = True
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._channel, [b"S"], [theirs.fileno()])
        return ours

    def finish(self) -> None:
        """Kill the submission's process and all that is left of it."""
        try:
            self._channel.settimeout(STOP_SECONDS)
            self._channel.sendall(b"K")
            if self._channel.recv(1) == b"D" and self.reusable:
                return
        except OSError:
            pass
        self.close()

    def close(self) -> None:
        """End the sandbox; every process in it dies with it."""
        self._channel.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        if self._scratch is not None:
            self._scratch.cleanup()


@functools.cache
def bubblewrap() -> list[str]:
    """The start of the command that runs something in the sandbox.

    Raises:
        CourseError: this system has no bubblewrap.
    """
    program = shutil.which("bwrap")
    if sys.platform != "linux" or program is None:
        lacking = "bubblewrap is not installed: `apt-get install bubblewrap`"
        why = "it needs Linux" if sys.platform != "linux" else lacking
        raise CourseError(f"grading runs submissions only in a sandbox, and {why} (`--unsafe` for your own work)")
    command = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    # Not root inside: a namespace within this one could not map root.
    command += ["--uid", "1000", "--gid", "1000"]
    shown = [Path(prefix) for prefix in (sys.base_prefix, sys.prefix) if not Path(prefix).is_relative_to("/usr")]
    for name in ("usr", "lib", "lib32", "lib64", "bin", "sbin"):
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            shown.append(path)
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--size", str(2**20), "--tmpfs", "/tmp"]
    # A place that is shown may hold the course or the class (an environment around the repository, a class
    # under /usr): an empty folder covers those. What lies within goes on top of what lies around it.
    covered = [path for path in (paths.ROOT, paths.CLASSROOM) if any(path.is_relative_to(place) for place in shown)]
    for path in sorted(dict.fromkeys([*shown, *covered]), key=lambda path: len(path.parts)):
        command += ["--tmpfs", str(path)] if path in covered else ["--ro-bind", str(path), str(path)]
    for path in covered:
        command += ["--remount-ro", str(path)]
    for name in MODULES:
        command += ["--ro-bind", str(paths.ROOT / name), str(INSIDE / name)]
    environment = {
        "PATH": "/usr/bin:/usr/sbin",
        "HOME": "/tmp",
        "PYTHONPATH": str(INSIDE),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
    }
    for key, value in environment.items():
        command += ["--setenv", key, value]
    return [*command, "--remount-ro", "/", "--chdir", "/tmp", "--"]


_cages: dict[bool, Cage] = {}


def cage(unsafe: bool = False) -> Cage:
    """This process's sandbox, started when needed and replaced when it may not be used again."""
    current = _cages.get(unsafe)
    if current is None or not current.alive or (current.used and not current.reusable):
        if current is not None:
            current.close()
        _cages[unsafe] = current = Cage(unsafe)
    return current


def require() -> None:
    """Start the sandbox once.

    Raises:
        CourseError: it does not work here; the message says why and what to do.
    """
    cage()


@atexit.register
def _close_all() -> None:
    for one in _cages.values():
        one.close()
