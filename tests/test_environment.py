"""The commands work from any folder and under a locale that is not UTF-8, as on many students' machines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.released import unpack

# What Python does on a system whose locale is not UTF-8 and that has no UTF-8 mode switched on.
OLD_LOCALE = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("työ space"))


def course(workspace: Path, elsewhere: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The workspace's `course` command, run in another folder."""
    removed = ("PYTHONPATH", "COURSE_CLASSROOM", "PYTHONIOENCODING")
    environment = {key: value for key, value in os.environ.items() if key not in removed} | OLD_LOCALE
    environment["PYTHONPATH"] = str(workspace)
    del environment["PYTHONIOENCODING"]
    return subprocess.run(
        [sys.executable, "-m", "course", *arguments],
        cwd=elsewhere,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )


def test_the_locale_is_one_that_hurts() -> None:
    code = "import locale; print(locale.getpreferredencoding(False))"
    environment = {**os.environ, **OLD_LOCALE}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert "utf" not in done.stdout.lower()


@pytest.mark.parametrize("arguments", ["--help", "status", "check softmax"])
def test_students_commands_in_an_old_locale_from_elsewhere(arguments: str, workspace: Path, tmp_path: Path) -> None:
    done = course(workspace, tmp_path, *arguments.split())
    said = (done.stdout + done.stderr).decode("ascii", "replace")
    assert "Traceback" not in said and "Error" not in said, said
    assert done.returncode == (1 if arguments.startswith("check") else 0), said
    assert "softmax" in said or arguments == "--help"


def test_lib_in_an_old_locale_from_elsewhere(workspace: Path, tmp_path: Path) -> None:
    """`%%lib` keeps letters outside ASCII, whatever the locale."""
    code = """
import ast, pathlib
from course import cells, paths
cells.run({}, "softmax", '\\ndef softmax(x, dim=-1):\\n    \"\"\"caf\\u00e9 \\u2260 \\u03c3.\"\"\"\\n    return x\\n')
text = (paths.LIB / "softmax.py").read_bytes().decode("utf-8")
assert "caf\\u00e9 \\u2260 \\u03c3" in text, text
assert b"\\r" not in text.encode()
"""
    environment = {**os.environ, **OLD_LOCALE, "PYTHONPATH": str(workspace)}
    del environment["PYTHONIOENCODING"]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    assert (workspace / "lib" / "softmax.py").is_file()


def test_instructors_commands_in_an_old_locale_from_elsewhere(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, **OLD_LOCALE, "PYTHONPATH": str(root), "COURSE_CLASSROOM": str(tmp_path / "klässe")}
    del environment["PYTHONIOENCODING"]

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "course", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=300)

    released = run("release", "01")
    assert released.returncode == 0, released.stderr.decode("utf-8", "replace")
    status = run("status")
    assert status.returncode == 0, status.stderr.decode("utf-8", "replace")
    assert b"01_softmax" in status.stdout
