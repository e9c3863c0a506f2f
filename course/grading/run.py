"""`course grade`: judge every submission, then let nbgrader record the marks.

First all submissions are judged, many at once; each verdict is a file, written whole. Then nbgrader's
own autograde runs for one student after another and finds the verdicts ready. A run that is killed
loses nothing: the next one keeps the verdicts and does the rest. Nothing that one student hands in
can stop another's grading.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from traitlets.config import Config

from course import paths
from course.chapters import Chapter
from course.errors import CourseError
from course.grading import classroom, files, guard, intake, pool, roster, sandbox
from course.grading.intake import Refused, Submission

if TYPE_CHECKING:
    from nbgrader.api import Gradebook
    from nbgrader.apps import NbGraderAPI

DONE = "graded.json"
"""Beside an autograded notebook, written last: what it was made from."""


@dataclass
class Work:
    """One student's hand-in for one chapter on its way through a run."""

    student: str
    chapter: Chapter
    folder: Path
    submission: Submission | None = None
    refused: str | None = None
    judged_by: str = ""  # digest of the hidden tests and the grader
    key: str = ""  # of its verdict
    digest: str = ""  # of all that the autograded notebook and the marks come from
    failed: str | None = None  # the grader's own failure; no mark is touched

    @property
    def done_file(self) -> Path:
        return paths.CLASSROOM / "autograded" / self.student / self.chapter.id / DONE


@dataclass(frozen=True)
class Mark:
    """One line of the table of marks."""

    student: str
    chapter: str
    earned: float
    points: float
    note: str = ""


@dataclass
class Report:
    """What came of a run."""

    marks: list[Mark] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def grade(
    chapter_ids: list[str] | None = None,
    students: list[str] | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    unsafe: bool = False,
) -> Report:
    """Grade what is in `classroom/submitted`.

    Args:
        chapter_ids: chapters to grade; None for all that somebody handed in.
        students: only these; None for everyone.
        jobs: submissions to judge at once; None for one per core.
        scheduler: address of a Dask scheduler to judge on.
        unsafe: judge without the sandbox; for one's own work.

    Raises:
        CourseError: grading cannot start or go on, or a submission could not be graded for a reason
            that is not its own.
    """
    console = Console()
    chosen = classroom.resolve(chapter_ids, "submitted")
    if not unsafe and scheduler is None:
        sandbox.bubblewrap()  # quick; whether it works here shows when the first judge starts, before any mark
    with files.lock(paths.CLASSROOM / "grading.lock", "grading"):
        chosen = _check_gradebook(chosen, asked=chapter_ids is not None, console=console)
        files.check_writable(paths.CLASSROOM / "verdicts")
        files.check_writable(paths.CLASSROOM / "autograded")
        work = _take_in(chosen, students, unsafe)
        with _progress(console) as progress:
            _judge(work, jobs, scheduler, unsafe, progress)
            _record(work, unsafe, progress)
        report = _report(work)
    _print(report, console)
    if report.failed:
        raise CourseError(
            f"{len(report.failed)} of {len(work)} submissions could not be graded; the reasons are above, "
            f"and their marks are as they were"
        )
    return report


def _check_gradebook(chosen: list[Chapter], asked: bool, console: Console) -> list[Chapter]:
    """The chapters that can be graded: nbgrader must know them, in their present form.

    A chapter that nobody asked for and that was never released is left out: somebody handed in a
    file of that name, and that must not stop the others.
    """
    ready = []
    with classroom.gradebook() as gradebook:
        for chapter in chosen:
            known = _graded_cells(gradebook, chapter)
            if known == {exercise.check_id: exercise.points for exercise in chapter.exercises}:
                ready.append(chapter)
                continue
            what = "has another version of" if known else "does not know"
            line = f"the gradebook {what} chapter {chapter.id}; run `course release {chapter.id[:2]}` first"
            if asked or known:
                raise CourseError(line)
            console.print(f"left out: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    return ready


def _graded_cells(gradebook: Gradebook, chapter: Chapter) -> dict[str, float]:
    from nbgrader.api import MissingEntry

    try:
        notebook = gradebook.find_notebook(chapter.id, chapter.id)
    except MissingEntry:
        return {}
    return {cell.name: float(cell.max_score) for cell in notebook.grade_cells}


# Phase 0: intake


def _take_in(chosen: list[Chapter], students: list[str] | None, unsafe: bool) -> list[Work]:
    from course.grading import judge

    work = []
    for chapter in chosen:
        judged_by = judge.rules(chapter)
        for student, folder in classroom.choose(chapter, students, "submitted"):
            one = Work(student, chapter, folder, judged_by=judged_by)
            content = ""
            try:
                if not roster.is_student_id(student):
                    raise Refused("the folder's name is not a student id (letters, digits, and . _ - @ +)")
                one.submission = intake.read(_file(folder, chapter), chapter, paths.CLASSROOM)
                one.key = judge.verdict_key(one.submission, judged_by, unsafe)
                content = nbformat.writes(one.submission.notebook)
            except Refused as refused:
                one.refused = str(refused)
            stamp = guard.read_timestamp(folder, paths.CLASSROOM)
            parts = (one.key, judged_by, one.refused, content, stamp)
            one.digest = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
            work.append(one)
    everyone = {student for chapter in chosen for student, _ in classroom.submissions(chapter)}
    classroom.check_students(students, everyone, "submitted")
    if not work:
        asked = ", ".join(chapter.id for chapter in chosen) or "any chapter"
        raise CourseError(
            f"nobody handed in {asked}: {paths.CLASSROOM / 'submitted'} has none; run `course collect` first"
        )
    return work


def _file(folder: Path, chapter: Chapter) -> Path:
    """The notebook in a hand-in's folder; if there is one with another name, that one, to be refused by name."""
    expected = folder / f"{chapter.id}.ipynb"
    if expected.exists() or expected.is_symlink() or not folder.is_dir():
        return expected
    others = sorted(folder.glob("*.ipynb"))
    return others[0] if others else expected


# Phase 1: verdicts


def _judge(work: list[Work], jobs: int | None, scheduler: str | None, unsafe: bool, progress: Progress) -> None:
    from course.grading import judge
    from course.grading.verdict import refused

    tasks = {}
    for one in work:
        if one.submission is not None and judge.stored_verdict(one.key) is None:
            s = one.submission
            seed = judge.seed(s)
            tasks[one.key] = pool.Task(one.key, s.chapter, s.cells, s.extra, seed, one.judged_by, unsafe)
    bar = progress.add_task("Judging", total=len(work), completed=len(work) - len(tasks))
    for task, outcome in pool.judge_all(list(tasks.values()), jobs, scheduler):
        if isinstance(outcome, CourseError):
            raise outcome
        if isinstance(outcome, str):
            files.write(judge.verdict_path(task.key), outcome)
        elif type(outcome).__name__ in ("BrokenProcessPool", "KilledWorker"):
            files.write(judge.verdict_path(task.key), refused(task.chapter, pool.CRASHED).to_json())
        else:
            for one in work:
                if one.key == task.key:
                    one.failed = f"the grader failed: {type(outcome).__name__}: {outcome}"
        progress.advance(bar)


# Phase 2: nbgrader


def _record(work: list[Work], unsafe: bool, progress: Progress) -> None:
    settings = Config()
    settings.Judge.unsafe = unsafe
    api = classroom.api(settings)
    recorded = _recorded(work)
    bar = progress.add_task("Recording", total=len(work))
    for one in work:
        if one.failed is None and not (_is_done(one) and (one.student, one.chapter.id) in recorded):
            try:
                _record_one(one, api)
            except files.Unwritable as error:
                if error.everywhere:
                    raise
                one.failed = str(error)
            except OSError as error:
                one.failed = str(files.unwritable(one.done_file, error))
        progress.advance(bar)


def _record_one(one: Work, api: NbGraderAPI) -> None:
    one.done_file.unlink(missing_ok=True)
    if one.refused is not None:
        _record_refusal(one)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SQLAlchemy on nbgrader's sessions
            result = api.autograde(one.chapter.id, one.student, force=True, create=True)
        if not result["success"]:
            one.failed = classroom.why(result)
            return
    files.write(one.done_file, json.dumps({"digest": one.digest}))


def _is_done(one: Work) -> bool:
    try:
        return bool(json.loads(one.done_file.read_text(encoding="utf-8"))["digest"] == one.digest)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _recorded(work: list[Work]) -> set[tuple[str, str]]:
    """Students and chapters whose every graded cell has its mark in the gradebook."""
    found = set()
    with classroom.gradebook() as gradebook:
        for chapter_id in {one.chapter.id for one in work}:
            for submission in gradebook.assignment_submissions(chapter_id):
                grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
                if grades and all(grade.auto_score is not None for grade in grades):
                    found.add((submission.student.id, chapter_id))
    return found


def _record_refusal(one: Work) -> None:
    """No mark, and a notebook that says why, for a hand-in that nbgrader could not even open."""
    from course.grading import judge

    notebook = intake.blank(one.chapter).notebook
    judge.write_outputs(notebook, {}, f"Not graded: {one.refused}")
    if not roster.is_student_id(one.student):
        return  # nobody to give it to
    place = paths.CLASSROOM / "autograded" / one.student / one.chapter.id
    files.write(place / f"{one.chapter.id}.ipynb", nbformat.writes(notebook))
    with classroom.gradebook() as gradebook:
        gradebook.update_or_create_student(one.student)
        stamp = guard.read_timestamp(one.folder, paths.CLASSROOM)
        gradebook.update_or_create_submission(one.chapter.id, one.student, timestamp=stamp)
        for part in gradebook.find_submission(one.chapter.id, one.student).notebooks:
            for entry in part.grades:
                entry.auto_score, entry.needs_manual_grade = 0.0, False
        gradebook.db.commit()


# Afterwards


def _report(work: list[Work]) -> Report:
    report = Report()
    marks = {}
    with classroom.gradebook() as gradebook:
        for chapter_id in {one.chapter.id for one in work}:
            for submission in gradebook.assignment_submissions(chapter_id):
                marks[submission.student.id, chapter_id] = submission.score, submission.max_score
    for one in sorted(work, key=lambda one: (one.student, one.chapter.id)):
        name = f"{one.student}, {one.chapter.id}"
        if one.failed is not None:
            report.failed.append(f"{name}: {one.failed}")
        elif one.refused is not None:
            report.refused.append(f"{name}: refused: {one.refused}")
        if (one.student, one.chapter.id) in marks:
            earned, points = marks[one.student, one.chapter.id]
            note = "not graded now" if one.failed else "refused" if one.refused else ""
            report.marks.append(Mark(one.student, one.chapter.id, float(earned), float(points), note))
    return report


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)


def _print(report: Report, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from course.grading.report import one_line

    for line in report.refused:
        console.print(one_line(line), style="yellow", markup=False, highlight=False, soft_wrap=True)
    for line in report.failed:
        console.print(one_line(line), style="red", markup=False, highlight=False, soft_wrap=True)
    chapter_ids = sorted({mark.chapter for mark in report.marks})
    table = Table("student")
    for chapter_id in chapter_ids:
        table.add_column(Text(chapter_id), justify="right")
    for student in sorted({mark.student for mark in report.marks}):
        of = {mark.chapter: mark for mark in report.marks if mark.student == student}
        cells = [Text(_cell(of[chapter_id]) if chapter_id in of else "") for chapter_id in chapter_ids]
        table.add_row(Text(student), *cells)
    console.print(table)


def _cell(mark: Mark) -> str:
    from course.grading.report import marks

    note = f" {mark.note}" if mark.note else ""
    return f"{marks(mark.earned)}/{marks(mark.points)}{note}"
