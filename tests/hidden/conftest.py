"""Lets pytest run the hidden tests on the reference, in one process and through the wall.

`pytest tests/hidden/test_softmax.py` shows what each property does; marks are given elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from course import chapters
from course.grading import specimens
from course.grading.hidden import Check
from course.grading.student import Patience, Student
from course.grading.verdict import behind_wall, given_files, in_this_process

SEED = 20260401


@pytest.fixture(params=[in_this_process, lambda: behind_wall(Patience())], ids=["one-process", "wall"])
def student(request: pytest.FixtureRequest) -> Iterator[Student]:
    """The chapter's reference, reached as a submission is."""
    chapter = chapters.find(request.path.stem.removeprefix("test_").partition("__")[0])
    with request.param() as session:
        session.begin(given_files(chapter), chapter.name, SEED)
        for exercise, source in specimens.reference_cells(chapter.name).items():
            problem = session.add(source)
            assert problem is None, f"the reference of {exercise} cannot be imported: {problem}"
        yield Student(session)


@pytest.fixture
def check() -> Iterator[Check]:
    """Seeded inputs and comparisons; a test that compared nothing fails."""
    one = Check(SEED)
    yield one
    assert one.comparisons > 0, "the hidden test compared nothing"
