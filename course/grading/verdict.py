"""Judge one submission of one chapter: run its cells behind the wall and put the hidden tests to them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import py_compile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from course import chapters, paths
from course.chapters import Chapter, Exercise
from course.grading import hidden, sandbox, worker
from course.grading.hidden import Check, HiddenTest, PropertyFailed
from course.grading.student import (
    LocalConnection,
    Patience,
    Session,
    SocketConnection,
    Student,
    StudentError,
    WorkerLost,
)

log = logging.getLogger(__name__)

NOT_STARTED = "not started"
LOSSES_ALLOWED = 2  # processes that one exercise may hang or crash before its remaining tests are given up


@dataclass(frozen=True)
class PropertyVerdict:
    """One hidden test's outcome: the property, and what was seen when it failed."""

    says: str
    passed: bool
    weight: float
    message: str = ""
    hint: str = ""
    at_most: float = 1.0  # the share of the exercise's points to be had while it fails


@dataclass(frozen=True)
class ExerciseVerdict:
    """One exercise's marks and why."""

    id: str
    points: float
    earned: float
    properties: tuple[PropertyVerdict, ...]
    problem: str | None = None  # why nothing could be tested

    @property
    def failed(self) -> list[str]:
        """The properties that do not hold."""
        return [verdict.says for verdict in self.properties if not verdict.passed]


@dataclass(frozen=True)
class Verdict:
    """A submission's marks for one chapter."""

    chapter: str
    exercises: tuple[ExerciseVerdict, ...]
    problem: str | None = None  # set when the submission as a whole could not be judged

    @property
    def earned(self) -> float:
        """Marks in all."""
        return round(sum(exercise.earned for exercise in self.exercises), 2)

    @property
    def points(self) -> float:
        """Marks to be had."""
        return sum(exercise.points for exercise in self.exercises)

    def to_json(self) -> str:
        """As text, for a file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """From `to_json`'s text."""
        data = json.loads(text)
        exercises = (
            ExerciseVerdict(**{**item, "properties": tuple(PropertyVerdict(**p) for p in item["properties"])})
            for item in data["exercises"]
        )
        return cls(data["chapter"], tuple(exercises), data["problem"])


def refused(chapter_id: str, reason: str) -> Verdict:
    """The verdict on a submission that could not be judged: no marks, and why."""
    exercises = tuple(ExerciseVerdict(e.id, e.points, 0.0, (), reason) for e in chapters.find(chapter_id).exercises)
    return Verdict(chapter_id, exercises, reason)


def judge_cells(
    chapter_id: str,
    cells: dict[str, str],
    extra: list[str],
    seed: int,
    *,
    only: str | None = None,
    wall: bool = True,
    unsafe: bool = False,
) -> Verdict:
    """Judge a submission's cells.

    Args:
        chapter_id: such as `01_softmax`.
        cells: the source of each exercise's cell, without its `%%lib` line; a missing one earns nothing.
        extra: other `%%lib` cells of the submission, such as helpers.
        seed: of the hidden tests' inputs; the same seed gives the same verdict.
        only: judge this exercise alone; all cells are loaded all the same.
        wall: False runs the cells in this process; only for code that is trusted.
        unsafe: run them in a process without a sandbox; only for one's own code.

    Raises:
        CourseError: the sandbox does not work here.
    """
    torch.set_num_threads(1)  # submissions run side by side; each stays on its own core
    chapter = chapters.find(chapter_id)
    exercises = [exercise for exercise in chapter.exercises if only in (None, exercise.id)]
    return _Judgement(chapter, cells, extra, seed, wall, unsafe).verdict(exercises)


class _LostAtImport(Exception):
    """The process was lost while a cell was imported."""

    def __init__(self, cell: str, lost: WorkerLost) -> None:
        super().__init__(str(lost))
        self.cell = cell


class _Judgement:
    """The state of judging one submission: its current process, and how often one was lost."""

    def __init__(
        self, chapter: Chapter, cells: dict[str, str], extra: list[str], seed: int, wall: bool, unsafe: bool
    ) -> None:
        self.chapter, self.seed, self.wall, self.unsafe = chapter, seed, wall, unsafe
        # Helpers first: where a graded cell is still the stub, a finished definition elsewhere counts.
        self.cells = {f"extra cell {number}": source for number, source in enumerate(extra)}
        self.cells |= {e.id: cells[e.id] for e in chapter.exercises if e.id in cells}
        self.tests = hidden.load(chapter.name)
        self.files = given_files(chapter)
        self.student: Student | None = None
        self.problems: dict[str, str] = {}  # why a cell is not part of the module
        self.lost: dict[str, str] = {}  # cells that hang or end the process when they are imported
        self.patience = Patience()
        self.open = contextlib.ExitStack()

    def verdict(self, exercises: list[Exercise]) -> Verdict:
        with self.open:
            return Verdict(self.chapter.id, tuple(map(self._exercise, exercises)))

    def _exercise(self, exercise: Exercise) -> ExerciseVerdict:
        tests = [test for test in self.tests if test.exercise == exercise.id]
        if not tests:
            raise ValueError(f"chapter {self.chapter.id}: exercise {exercise.id!r} has no hidden tests")
        if exercise.id not in self.cells:
            return ExerciseVerdict(exercise.id, exercise.points, 0.0, (), "the exercise's cell is missing")
        outcomes: list[PropertyVerdict] = []
        losses = 0
        for test in tests:
            if losses >= LOSSES_ALLOWED:
                outcomes.append(_failed(test, "not tried, for earlier tests hung or ended the process"))
                continue
            try:
                outcomes.append(self._property(test))
            except WorkerLost as lost:
                losses += 1
                self._drop()
                outcomes.append(_failed(test, f"your code could not be tested: {lost}"))
            if self.problems.get(exercise.id):
                return ExerciseVerdict(exercise.id, exercise.points, 0.0, (), self.problems[exercise.id])
        if all(outcome.message == NOT_STARTED for outcome in outcomes):
            return ExerciseVerdict(exercise.id, exercise.points, 0.0, (), NOT_STARTED)
        return ExerciseVerdict(exercise.id, exercise.points, _marks(exercise.points, outcomes), tuple(outcomes))

    def _property(self, test: HiddenTest) -> PropertyVerdict:
        student = self._connected()
        if self.problems.get(test.exercise):
            return _failed(test, self.problems[test.exercise])
        check = Check(_property_seed(self.seed, test.says))
        try:
            test.run(student, check)
        except PropertyFailed as failure:
            return _failed(test, str(failure))
        except StudentError as error:
            return _failed(test, NOT_STARTED if error.not_started else str(error))
        except WorkerLost:
            raise
        except Exception as error:  # a result that the test could not use, whatever the student made it
            log.warning("hidden test %r of %s: %r", test.says, self.chapter.id, error)
            return _failed(test, _unusable(error))
        if check.comparisons == 0:
            raise ValueError(f"chapter {self.chapter.id}: the hidden test {test.says!r} compared nothing")
        return PropertyVerdict(test.says, True, test.weight)

    def _connected(self) -> Student:
        while self.student is None:
            session = self.open.enter_context(
                behind_wall(self.patience, self.unsafe) if self.wall else in_this_process()
            )
            try:
                self.problems = self._load(session)
                self.student = Student(session)
            except _LostAtImport as at:
                self._drop()
                self.lost[at.cell] = f"the cell could not be imported: {at}"
        return self.student

    def _load(self, session: Session) -> dict[str, str]:
        """Add the cells one by one, so that a bad one costs its own marks only; returns the problems."""
        session.begin(self.files, self.chapter.name, self.seed)
        problems = dict(self.lost)
        waiting = [key for key in self.cells if key not in self.lost]
        for _attempt in range(2):  # a cell may need a later one at import time
            for key in waiting:
                try:
                    problem = session.add(self.cells[key])
                except WorkerLost as lost:
                    raise _LostAtImport(key, lost) from lost
                problems.pop(key, None)
                if problem is not None:
                    problems[key] = problem
            waiting = [key for key in waiting if key in problems]
        return problems

    def _drop(self) -> None:
        self.student = None
        self.open.close()


@contextlib.contextmanager
def behind_wall(patience: Patience, unsafe: bool = False) -> Iterator[Session]:
    """A session with a fresh process in the sandbox, which ends with it."""
    cage = sandbox.cage(unsafe)
    with cage.connect() as connection:
        try:
            yield Session(SocketConnection(connection, patience))
        finally:
            cage.finish()


@contextlib.contextmanager
def in_this_process() -> Iterator[Session]:
    """A session without a wall; only for code that is trusted."""
    with worker.in_this_process() as local:
        yield Session(LocalConnection(local.handle))


def given_files(chapter: Chapter) -> dict[str, bytes]:
    """The `lib` that a submission of this chapter is built on, by file name.

    The given modules, and the reference in place of the student's earlier chapters, so that one
    mistake costs its own marks once. Later chapters' modules are not there. References go as
    bytecode without docstrings: a submission must be able to run them, not to read them.
    """
    modules = chapters.names()
    given = [path for path in sorted(paths.LIB.glob("*.py")) if path.stem not in modules]
    files = {path.name: path.read_bytes() for path in given}
    for name, chapter_id in modules.items():
        if chapter_id < chapter.id:
            source = paths.SOLUTIONS / f"{name}.py"
            files[f"{name}.pyc"] = _bytecode(source, source.stat().st_mtime_ns)
    return files


@functools.cache
def _bytecode(source: Path, changed: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder, "module.pyc")
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), str(compiled), f"lib/{source.name}", True, optimize=2, invalidation_mode=mode)
        return compiled.read_bytes()


def _failed(test: HiddenTest, message: str) -> PropertyVerdict:
    hint = "" if message == NOT_STARTED else test.hint
    return PropertyVerdict(test.says, False, test.weight, message, hint, test.at_most)


def _unusable(error: Exception) -> str:
    """Why a test could not go on with what the student's code returned."""
    if isinstance(error, RuntimeError) and "does not require grad" in str(error):
        return "no gradient flows from your result back to what it was computed from"
    return f"what your code returned cannot be used here ({type(error).__name__})"


def _marks(points: float, outcomes: list[PropertyVerdict]) -> float:
    if all(outcome.passed for outcome in outcomes):
        return points
    passed = sum(outcome.weight for outcome in outcomes if outcome.passed)
    ceiling = min(outcome.at_most for outcome in outcomes if not outcome.passed)
    return round(points * min(passed / sum(outcome.weight for outcome in outcomes), ceiling), 2)


def _property_seed(seed: int, says: str) -> int:
    digest = hashlib.sha256(f"{seed}:{says}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
