"""kill -9 at any moment of grading: the next run ends with the same marks, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course import chapters, paths
from course.grading import run, sample_class, specimens
from tests.classrooms import CHAPTER, Classroom, blank, perfect

SOFTMAX = chapters.find(CHAPTER)
KILLS = 5


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    return Classroom.fresh(tmp_path / "classroom", monkeypatch)


def hand_in_a_class(room: Classroom) -> dict[str, bytes]:
    answers = specimens.reference_cells("softmax")
    handed = {"ada": perfect(), "ben": blank(), "hugo": b"{ half"}
    for number, exercise in enumerate(SOFTMAX.exercises):
        handed[f"s{number}"] = sample_class.filled(SOFTMAX, {exercise.id: answers[exercise.id]})
    for student, content in handed.items():
        room.hand_in(student, content)
    return handed


def start(room: Classroom) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "course", "grade", "--jobs", "1"],
        cwd=paths.ROOT,
        env={**os.environ, "COURSE_CLASSROOM": str(room.root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found += [int(entry.name), *descendants(int(entry.name))]
    return found


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def progress(room: Classroom) -> tuple[int, int]:
    """Verdicts made and hand-ins recorded: how far a run has come."""
    verdicts = len(list((room.root / "verdicts").glob("[!.]*.json")))
    return verdicts, len(list((room.root / "autograded").glob(f"*/*/{run.DONE}")))


def test_killed_again_and_again_the_marks_are_the_same(
    room: Classroom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = hand_in_a_class(room)
    run.grade(jobs=1)
    wanted = room.marks()
    assert set(wanted) == set(handed)

    other = Classroom.fresh(tmp_path / "killed", monkeypatch)
    hand_in_a_class(other)
    (other.root / "secret.key").write_bytes((room.root / "secret.key").read_bytes())
    chance = random.Random(20260102)
    reached = [progress(other)]
    for _ in range(KILLS):
        process = start(other)
        # Wait for a step of progress, so that kills come in every phase; then a random moment.
        deadline = time.monotonic() + 120
        while process.poll() is None and progress(other) == reached[-1] and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.4))
        children = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        reached.append(progress(other))
        deadline = time.monotonic() + 20
        while any(alive(pid) for pid in children) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not [pid for pid in children if alive(pid)], "a judge outlived its run"
    assert reached == sorted(reached), "a verdict or a mark was lost"
    assert reached[-1] > reached[0]

    run.grade(jobs=1)
    assert other.marks() == wanted
    for student, content in handed.items():
        assert (other.root / "submitted" / student / CHAPTER / f"{CHAPTER}.ipynb").read_bytes() == content
    assert {student: other.shown(student) for student in handed} == {student: room.shown(student) for student in handed}
