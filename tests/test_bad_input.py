"""Bad input to every command: one clear line, a non-zero exit code, nothing lost and nothing half-written."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from course import cli, paths
from tests.classrooms import CHAPTER, Classroom, blank, perfect

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="grading needs Linux")


@pytest.fixture
def classroom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    return Classroom.fresh(tmp_path / "classroom", monkeypatch)


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `course ...` in this process, which is quicker than a new one for each command."""

    def here(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["course", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capfd.readouterr()
        return subprocess.CompletedProcess(["course", *arguments], int(end.value.code or 0), said.out, said.err)

    return here


def tree(folder: Path, without: tuple[str, ...] = (".lock",)) -> dict[str, str]:
    """Every file below a folder, with a digest of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(without)
    }


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """The command failed with one line on stderr that has these words."""
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("course: ")
    for word in words:
        assert word in lines[0], lines[0]


# A missing chapter


@pytest.mark.parametrize("command", ["release 55", "grade 55", "feedback nothing", "check 55", "bench grade 55"])
def test_missing_chapter(command: str, classroom: Classroom, run: Run) -> None:
    before = tree(classroom.root)
    assert_one_line(run(*command.split()), "chapter", "01_softmax")
    assert tree(classroom.root) == before


def test_missing_chapter_in_collect(classroom: Classroom, run: Run, tmp_path: Path) -> None:
    handed = tmp_path / "handed" / "ada"
    handed.mkdir(parents=True)
    (handed / f"{CHAPTER}.ipynb").write_bytes(blank())
    before = tree(classroom.root)
    done = run("collect", str(tmp_path / "handed"), "--chapter", "55")
    assert_one_line(done)
    assert "55" in done.stdout + done.stderr
    assert tree(classroom.root) == before


# Malformed files


MALFORMED = [b"", b"{", b"[]", b'{"cells": 3, "nbformat": 4}', b"\xff\xfe\x00", b"null"]


def test_malformed_notebooks_cost_their_own_marks_only(classroom: Classroom, run: Run) -> None:
    classroom.hand_in("ada", perfect())
    broken = {f"bob{number}": content for number, content in enumerate(MALFORMED)}
    files = {student: classroom.hand_in(student, content) for student, content in broken.items()}
    done = run("grade", "--jobs", "1")
    assert done.returncode == 0, "a refused hand-in is a result, and no failure of grading"
    assert "Traceback" not in done.stdout + done.stderr
    for student, content in broken.items():
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(f"{student}, ")]
        assert len(lines) == 1 and "refused" in lines[0], done.stdout
        assert files[student].read_bytes() == content, "the hand-in is kept as it came"
    assert classroom.totals() == {"ada": 16.0, **dict.fromkeys(broken, 0.0)}


def test_malformed_zip(classroom: Classroom, run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "submissions.zip"
    bad.write_bytes(b"PK\x03\x04 not really")
    assert_one_line(run("collect", str(bad)), "submissions.zip")


def test_nothing_to_collect(classroom: Classroom, run: Run, tmp_path: Path) -> None:
    assert_one_line(run("collect", str(tmp_path / "nowhere")), "nowhere")
    (tmp_path / "empty").mkdir()
    assert_one_line(run("collect", str(tmp_path / "empty")), "empty")


@pytest.mark.parametrize("content", ["", "\n", "name,age\nAda,36\n", "id,first_name\n"])
def test_empty_or_foreign_roster(content: str, classroom: Classroom, run: Run, tmp_path: Path) -> None:
    handed = tmp_path / "handed" / "ada"
    handed.mkdir(parents=True)
    (handed / f"{CHAPTER}.ipynb").write_bytes(blank())
    roster = tmp_path / "class.csv"
    roster.write_text(content, encoding="utf-8")
    before = tree(classroom.root)
    assert_one_line(run("collect", str(handed.parent), "--roster", str(roster)), "class.csv")
    assert tree(classroom.root) == before


# Nobody there yet


@pytest.mark.parametrize(
    ("command", "words"), [("grade", "course collect"), ("feedback", "course grade"), ("grade --student zoe", "zoe")]
)
def test_empty_class(command: str, words: str, classroom: Classroom, run: Run) -> None:
    if "zoe" in command:
        classroom.hand_in("ada", blank())
    assert_one_line(run(*command.split()), words)


# Folders that cannot be written. Root may write everywhere, so a file stands in the folder's place.


@pytest.mark.parametrize("command", ["release 01", "collect HANDED", "grade", "feedback", "export OUT"])
def test_file_in_the_place_of_the_classroom(
    command: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = tmp_path / "handed" / "ada"
    handed.mkdir(parents=True)
    (handed / f"{CHAPTER}.ipynb").write_bytes(blank())
    in_the_way = tmp_path / "classroom"
    in_the_way.write_text("mine", encoding="utf-8")
    words = [w.replace("HANDED", str(handed.parent)).replace("OUT", str(tmp_path / "o.csv")) for w in command.split()]
    monkeypatch.setattr(paths, "CLASSROOM", in_the_way)
    assert_one_line(run(*words), "classroom")
    assert in_the_way.read_text(encoding="utf-8") == "mine"


def test_export_to_a_place_that_cannot_be_written(classroom: Classroom, run: Run, tmp_path: Path) -> None:
    classroom.hand_in("ada", perfect())
    assert run("grade", "--jobs", "1").returncode == 0
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert_one_line(run("export", str(tmp_path / "file" / "marks.csv")), "marks.csv")
    assert_one_line(run("export", str(tmp_path / "m.csv"), "--layout", "odd"), "moodle")
    assert not (tmp_path / "m.csv").exists()


# A second run at the same time


@pytest.mark.parametrize("command", ["release 01", "collect HANDED", "grade", "feedback"])
def test_second_run_at_the_same_time(command: str, classroom: Classroom, run: Run, tmp_path: Path) -> None:
    (tmp_path / "handed").mkdir()
    classroom.hand_in("ada", blank())
    before = tree(classroom.root)
    words = [word.replace("HANDED", str(tmp_path / "handed")) for word in command.split()]
    with (classroom.root / "course.lock").open("w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert_one_line(run(*words), "already under way", "run this again")
    assert tree(classroom.root) == before


# A full disk


@contextlib.contextmanager
def small_disk(place: Path, kilobytes: int) -> Iterator[None]:
    """A file system of this size at `place`."""
    place.mkdir(parents=True)
    options = f"size={kilobytes}k"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount: {made.stderr.decode(errors='replace').strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(folder: Path) -> Path:
    """Fill the disk to the last block; returns the file to delete again."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


def test_grading_on_a_full_disk_loses_nothing(
    tmp_path: Path, classroom: Classroom, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    classroom.hand_in("ada", perfect())
    assert run("grade", "--jobs", "1").returncode == 0
    place = tmp_path / "disk"
    with small_disk(place, 16_000):
        shutil.copytree(classroom.root, place / "classroom")
        small = Classroom(place / "classroom")
        monkeypatch.setattr(paths, "CLASSROOM", small.root)
        (small.root / "submitted" / "bob" / CHAPTER).mkdir(parents=True)
        (small.root / "submitted" / "bob" / CHAPTER / f"{CHAPTER}.ipynb").write_bytes(blank())
        handed = tree(small.root / "submitted")
        verdicts = tree(small.root / "verdicts")
        filler = fill(place)
        for command in (
            ["grade", "--jobs", "1"],
            ["feedback"],
            ["release", "01"],
            ["export", str(place / "marks.csv")],
        ):
            assert_one_line(run(*command), "disk is full")
        assert tree(small.root / "submitted") == handed
        assert verdicts.items() <= tree(small.root / "verdicts").items()
        assert not (place / "marks.csv").exists()
        filler.unlink()
        assert run("grade", "--jobs", "1").returncode == 0
        assert run("export", str(place / "marks.csv")).returncode == 0
        marks = (place / "marks.csv").read_text(encoding="utf-8")
    assert "ada" in marks and "bob" in marks and "16" in marks


def test_collecting_on_a_full_disk_keeps_what_was_there(
    tmp_path: Path, classroom: Classroom, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, handed = tmp_path / "disk", tmp_path / "handed" / "ada"
    handed.mkdir(parents=True)
    (handed / f"{CHAPTER}.ipynb").write_bytes(perfect())
    with small_disk(place, 16_000):
        shutil.copytree(classroom.root, place / "classroom")
        small = Classroom(place / "classroom")
        monkeypatch.setattr(paths, "CLASSROOM", small.root)
        (small.root / "submitted" / "ada" / CHAPTER).mkdir(parents=True)
        (small.root / "submitted" / "ada" / CHAPTER / f"{CHAPTER}.ipynb").write_bytes(blank())
        before = tree(small.root)
        filler = fill(place)
        assert_one_line(run("collect", str(handed.parent)), "disk is full")
        filler.unlink()
        assert before.items() <= tree(small.root).items(), "the earlier hand-in is as it was"
        assert run("collect", str(handed.parent)).returncode == 0
        assert (small.root / "submitted" / "ada" / CHAPTER / f"{CHAPTER}.ipynb").read_bytes() == perfect()


# Commands that write outside the classroom


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository's sources, to be written to."""
    for name in ("course", "chapters", "lib", "solutions", "tests", "_toc.yml", "_config.yml", "pyproject.toml"):
        source, target = paths.ROOT / name, tmp_path / "copy" / name
        ignore = shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignore)
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)
    return tmp_path / "copy"


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m course ...` of the copy in this folder."""
    environment = {key: value for key, value in os.environ.items() if key != "COURSE_CLASSROOM"}
    return subprocess.run(
        [sys.executable, "-m", "course", *arguments],
        cwd=folder,
        env={**environment, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )


def test_new_chapter_overwrites_nothing(copy: Path) -> None:
    before = tree(copy)
    assert_one_line(run_in(copy, "new-chapter", "01", "other_name", "Title"), "01_softmax")
    assert_one_line(run_in(copy, "new-chapter", "95", "softmax", "Title"), "softmax")
    assert_one_line(run_in(copy, "new-chapter", "95", "Not-a-Name", "Title"), "Not-a-Name")
    (copy / "solutions" / "novel.py").write_text("mine = 1\n", encoding="utf-8")
    assert_one_line(run_in(copy, "new-chapter", "95", "novel", "Title"), "solutions/novel.py")
    (copy / "solutions" / "novel.py").unlink()
    after = {name: digest for name, digest in tree(copy).items() if "__pycache__" not in name}
    assert after == before


def test_new_chapter_is_all_or_nothing(copy: Path) -> None:
    before = tree(copy)
    shutil.rmtree(copy / "tests" / "variants")
    (copy / "tests" / "variants").write_text("in the way", encoding="utf-8")
    assert_one_line(run_in(copy, "new-chapter", "95", "novel", "Title"), "variants")
    after = set(tree(copy))
    assert not [name for name in after if "novel" in name]
    assert (copy / "_toc.yml").read_bytes() == (paths.ROOT / "_toc.yml").read_bytes()
    assert {name for name in before if "variants/" not in name} <= after


def test_book_where_a_file_is_in_the_way(copy: Path) -> None:
    (copy / "_build").write_text("in the way", encoding="utf-8")
    assert_one_line(run_in(copy, "book"), "_build")
    assert (copy / "_build").read_text(encoding="utf-8") == "in the way"


def test_serve_without_a_book(copy: Path) -> None:
    assert_one_line(run_in(copy, "serve", "--port", "0"), "course book")
