"""The command line: help, exit codes, and what people see when they make a mistake."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course import cli, paths

STUDENT = ["check", "doctor", "lab", "status"]
INSTRUCTOR = ["book", "collect", "export", "feedback", "grade", "new-chapter", "release", "serve"]


@pytest.mark.parametrize("command", [*STUDENT, *INSTRUCTOR, "bench grade"])
def test_help_has_an_example_and_explains_every_option(command: str) -> None:
    result = CliRunner().invoke(cli.app, [*command.split(), "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    example = result.output.partition("Example")[2]
    assert f"course {command}" in example
    options = [line for line in result.output.splitlines() if line.lstrip("│ ").startswith(("--", "*"))]
    assert options, "at least --help is listed"
    for line in options:
        assert len(line.strip("│ ").split("  ", 1)[-1].strip()) > 10, f"an option without a word of help: {line}"


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "120", "NO_COLOR": "1"})
    assert result.exit_code == 0
    for command in [*STUDENT, *INSTRUCTOR, "bench"]:
        assert f" {command} " in result.output


def test_help_is_quick_because_it_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['course', '--help']\n"
        "from course.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'matplotlib', 'nbgrader', 'nbformat', 'jupyter_book', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_workspace_has_the_students_commands_only(tmp_path: Path) -> None:
    (tmp_path / "course").mkdir()
    for file in (paths.ROOT / "course").glob("*.py"):
        shutil.copy(file, tmp_path / "course")
    done = subprocess.run(
        [sys.executable, "-m", "course", "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    shown = [line.strip("│ ").split(" ")[0] for line in done.stdout.splitlines() if line.startswith("│")]
    assert set(STUDENT) <= set(shown)
    assert not {*INSTRUCTOR, "bench"} & set(shown)


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["course", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code if isinstance(end.value.code, int) else 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["check", "--no-such-option"],
        ["collect"],
        ["serve", "--port", "70000"],
        ["bench", "grade", "-n", "x"],
    ],
)
def test_usage_errors_exit_with_2(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, *arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "", "a.txt"), "the disk is full (writing a.txt)"),
        (OSError(errno.EACCES, "", "a.txt"), "no permission for a.txt"),
        (OSError(errno.EROFS, "", "a.txt"), "read-only"),
        (OSError(errno.ENOTDIR, "", "a.txt"), "in the way"),
        (OSError(errno.ENOENT, "", "a.txt"), "a.txt is not there"),
    ],
)
def test_errors_of_the_disk_are_one_line(
    error: OSError, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from course import status

    def fail() -> int:
        raise error

    monkeypatch.setattr(status, "main", fail)
    assert main(monkeypatch, "status") == 1
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from course import status

    def fail() -> int:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(status, "main", fail)
    monkeypatch.setattr(sys, "argv", ["course", "status"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_exit_code_of_a_check_that_fails_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from course import check

    asked: list[list[str]] = []

    def answer(code: int) -> Callable[[list[str]], int]:
        def run(keys: list[str]) -> int:
            asked.append(keys)
            return code

        return run

    monkeypatch.setattr(check, "main", answer(1))
    assert main(monkeypatch, "check", "01", "softmax") == 1
    monkeypatch.setattr(check, "main", answer(0))
    assert main(monkeypatch, "check") == 0
    assert asked == [["01", "softmax"], []]


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_stops_the_server_cleanly(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>pages</p>", encoding="utf-8")
    code = (
        "import sys, pathlib; from course.book import serve; from course import cli\n"
        f"serve.PAGES = pathlib.Path({str(tmp_path)!r}); sys.argv = ['course', 'serve', '--port', '0']; cli.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=paths.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores Ctrl-C
    )
    assert process.stdout is not None
    assert "http://127.0.0.1:" in process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said


def test_lab_opens_the_workspace_and_releases_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import course.release

    workspace = tmp_path / "workspace"
    commands: list[list[str]] = []

    def release(_: object) -> Path:
        workspace.mkdir()
        (workspace / "01_softmax.ipynb").write_text("{}", encoding="utf-8")
        return workspace

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(paths, "CLASSROOM", tmp_path)
    monkeypatch.setattr(course.release, "release", release)
    monkeypatch.setattr(subprocess, "run", run)
    assert main(monkeypatch, "lab", "--no-browser") == 0
    monkeypatch.setattr(course.release, "release", None)  # not called again: the workspace is there
    assert main(monkeypatch, "lab") == 0
    assert all(f"--ServerApp.root_dir={workspace}" in command for command in commands)
    assert "--no-browser" in commands[0] and "--no-browser" not in commands[1]
