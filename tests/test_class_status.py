"""The instructor's table: marks from nbgrader's gradebook, submissions, and who has not handed in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from rich.console import Console

from course import chapters, paths
from course.grading import class_status
from tests import released


@pytest.fixture
def classroom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A classroom with everything released and nobody in it."""
    folder = tmp_path / "classroom"
    shutil.copytree(released.classroom(), folder)
    monkeypatch.setattr(paths, "CLASSROOM", folder)
    return folder


def shown() -> str:
    console = Console(width=160, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        class_status.show(console)
    return captured.get()


def hand_in(classroom: Path, student: str, chapter_id: str) -> None:
    place = classroom / "submitted" / student / chapter_id
    place.mkdir(parents=True)
    (place / f"{chapter_id}.ipynb").write_text("{}", encoding="utf-8")


def test_the_class_as_the_gradebook_has_it(classroom: Path) -> None:
    first, second = chapters.all_chapters()[:2]
    with Gradebook(f"sqlite:///{classroom / 'gradebook.db'}") as book:
        book.add_student("ada")
        book.add_student("zoe [x]")
        submission = book.add_submission(first.id, "ada")
        for number, grade in enumerate(submission.notebooks[0].grades):
            grade.auto_score = number + 0.5
        book.db.commit()
        marks = sum(number + 0.5 for number in range(len(first.exercises)))
    hand_in(classroom, "ada", first.id)
    hand_in(classroom, "bob", first.id)

    status = class_status.read()
    assert status.maxima == {chapter.id: chapter.points for chapter in chapters.all_chapters()}
    assert list(status.cells) == ["ada", "bob", "zoe [x]"]
    assert status.cells["ada"][first.id] == marks
    assert status.cells["bob"][first.id] == class_status.HANDED_IN
    assert status.missing(first.id) == ["zoe [x]"]
    assert status.missing(second.id) == ["ada", "bob", "zoe [x]"]
    printed = shown()
    assert f"{marks:g}" in printed and "not graded" in printed
    assert f"Nothing handed in for {first.id}: zoe [x]" in printed


def test_nobody_yet(classroom: Path) -> None:
    assert "Nobody has handed in" in shown()
    shutil.rmtree(classroom / "release")
    assert "course release" in shown()
