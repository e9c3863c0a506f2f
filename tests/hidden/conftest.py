"""Lets pytest run the hidden tests on the reference, in one process and through the wall.

`pytest tests/hidden/test_softmax.py` shows what each property does; marks are given elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from course import chapters
from course.grading import sandbox, specimens, worker
from course.grading.hidden import Check
from course.grading.student import LocalConnection, Patience, Session, SocketConnection, Student
from course.grading.verdict import given_files

SEED = 20260401


@contextlib.contextmanager
def _in_one_process() -> Iterator[Session]:
    with worker.in_this_process() as local:
        yield Session(LocalConnection(local.handle))


@contextlib.contextmanager
def _through_the_wall() -> Iterator[Session]:
    cage = sandbox.cage()
    with cage.connect() as connection:
        try:
            yield Session(SocketConnection(connection, Patience()))
        finally:
            cage.finish()


@pytest.fixture(params=[_in_one_process, _through_the_wall], ids=["one-process", "wall"])
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
