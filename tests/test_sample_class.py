"""The sample class gets the marks that it must get, and each of its hand-ins is what it says it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course import chapters
from course.grading import collect, files, intake, roster, run, sample_class, student
from course.grading.sample_class import Expected
from tests.classrooms import CHAPTER, Classroom

SOFTMAX = chapters.find(CHAPTER)


@pytest.fixture(scope="module")
def hand_ins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[sample_class.Key, Expected]]:
    folder = tmp_path_factory.mktemp("sample")
    return folder, sample_class.make(folder, [CHAPTER])


def test_the_class_gets_its_marks(
    hand_ins: tuple[Path, dict[sample_class.Key, Expected]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, expected = hand_ins
    room = Classroom.fresh(tmp_path / "classroom", monkeypatch)
    files.write(roster.path(), (folder / "roster.csv").read_bytes())
    collected = collect.collect(folder)
    assert [line.split("/")[0] for line in collected.refused] == ["mona"]
    report = run.grade()
    assert sample_class.faults(expected) == []
    totals = room.totals()
    assert totals["ada"] == SOFTMAX.points and totals["ben"] == 0
    assert 0 < totals["chloe"] < SOFTMAX.points
    assert [line.split(",")[0] for line in report.refused] == ["hugo"]
    # A wrong mark would be noticed.
    swapped = {**expected, ("ada", CHAPTER): expected["ben", CHAPTER], ("ben", CHAPTER): expected["ada", CHAPTER]}
    assert len(sample_class.faults(swapped)) == 2 * len(SOFTMAX.exercises)


def test_something_is_known_of_everybody(
    hand_ins: tuple[Path, dict[sample_class.Key, Expected]],
) -> None:
    folder, expected = hand_ins
    assert set(roster.load(folder / "roster.csv")) >= {name for name, _ in expected}
    for (name, _), outcome in expected.items():
        if outcome.taken:
            mistaken = [exercise.id for exercise in SOFTMAX.exercises if exercise.id in outcome.caught]
            order = [exercise.id for exercise in SOFTMAX.exercises]
            said = order[: order.index(mistaken[0]) + 1] if mistaken else order
            assert outcome.exercises() == set(said), name
            assert (folder / name / f"{CHAPTER}.ipynb").is_file()
        else:
            assert (folder / name / f"{CHAPTER}.ipynb").is_symlink()
    mistakes = [outcome for outcome in expected.values() if outcome.caught]
    assert len(mistakes) >= 4 and len({outcome.like for outcome in mistakes}) == len(mistakes)
    assert {key for outcome in mistakes for key in outcome.caught} == {exercise.id for exercise in SOFTMAX.exercises}


def test_the_forger_really_forges(hand_ins: tuple[Path, dict[sample_class.Key, Expected]]) -> None:
    folder, _ = hand_ins
    document = json.loads((folder / "mallory" / f"{CHAPTER}.ipynb").read_text(encoding="utf-8"))
    graded = [cell["metadata"]["nbgrader"] for cell in document["cells"] if "nbgrader" in cell["metadata"]]
    ids = [own["grade_id"] for own in graded]
    assert len(ids) > len(set(ids))
    assert {own.get("points") for own in graded} >= {1e9}
    assert {99, -1, "3", None} & {own["schema_version"] for own in graded}
    assert intake.parse((folder / "mallory" / f"{CHAPTER}.ipynb").read_bytes(), SOFTMAX).notes


def test_the_looper_is_stopped_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    from course.grading.verdict import judge_cells

    monkeypatch.setattr(student, "CALL_SECONDS", 3.0)
    answers = {e.id: e.source for e in SOFTMAX.exercises}
    answers["cross_entropy"] = "def cross_entropy(*args, **kwargs):\n    while True:\n        pass\n"
    found = {e.id: e for e in judge_cells(CHAPTER, answers, [], 1).exercises}["cross_entropy"]
    assert found.earned == 0 and any("did not finish" in p.message for p in found.properties)
