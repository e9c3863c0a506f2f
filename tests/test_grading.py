"""Grading through nbgrader: every way in gives the same marks, and no way gives a mark by accident."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

from course import chapters, paths
from course.errors import CourseError
from course.grading import classroom, files, intake, judge, pool, report, run, sample_class, specimens, verdict
from course.grading.verdict import ExerciseVerdict, PropertyVerdict, Verdict
from tests.classrooms import CHAPTER, Classroom, blank, changed, graded_cell, perfect

SOFTMAX = chapters.find(CHAPTER)
FULL = {exercise.id: exercise.points for exercise in SOFTMAX.exercises}
NONE = dict.fromkeys(FULL, 0.0)
TOTAL = sum(FULL.values())


EVERYWHERE = pool.judge_all


def here(tasks: list[pool.Task], *_: Any) -> Iterator[tuple[pool.Task, pool.Outcome]]:
    """In this process, whose sandbox is warm: what a pool does, without starting one for each test."""
    for task in tasks:
        try:
            outcome: pool.Outcome = pool.judge(task)
        except Exception as error:
            outcome = error
        yield task, outcome


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    made = Classroom.fresh(tmp_path / "classroom", monkeypatch)
    monkeypatch.setattr(pool, "judge_all", here)
    return made


def wrong() -> bytes:
    """Right but for one mistake in the last exercise, which no other exercise rests on."""
    mutant = next(one for one in specimens.mutants("softmax") if one.exercise == SOFTMAX.exercises[-1].id)
    return sample_class.filled(SOFTMAX, specimens.submission_cells(mutant))


def autograde(student: str, settings: Any = None) -> dict[str, Any]:
    result: dict[str, Any] = classroom.api(settings).autograde(CHAPTER, student, force=True)
    return result


# The three ways in


def test_plain_nbgrader_grades_a_class_and_no_submission_stops_it(room: Classroom) -> None:
    room.hand_in("ada", perfect())
    room.hand_in("ben", blank())
    room.hand_in("hugo", b"{ not a notebook")
    room.hand_in("mallory", sample_class.forged(SOFTMAX))
    room.hand_in("mona", b"").unlink()
    (room.root / "submitted" / "mona" / CHAPTER / f"{CHAPTER}.ipynb").symlink_to(
        Path("..", "..", "ada", CHAPTER, f"{CHAPTER}.ipynb")
    )
    os.symlink(room.root / "gradebook.db", room.root / "submitted" / "ben" / CHAPTER / "notes.txt")
    done = room.run("nbgrader", "autograde", CHAPTER)
    assert done.returncode == 0, done.stderr
    assert room.marks() == {"ada": FULL, "ben": NONE, "hugo": NONE, "mallory": NONE, "mona": NONE}
    assert "hugo, 01_softmax: refused" in done.stderr
    assert "not valid JSON" in room.shown("hugo")
    assert "symbolic link" in room.shown("mona")
    assert not (room.root / "autograded" / "ben" / CHAPTER / "notes.txt").exists()


def test_course_grade_gives_the_same_marks_twice_and_judges_once(
    room: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "judge_all", EVERYWHERE)
    room.hand_in("ada", perfect())
    room.hand_in("eva", wrong())
    room.hand_in("ben", blank())
    room.hand_in("hugo", b"\x00\x01")
    room.hand_in("zoe", perfect(), name="softmax.ipynb")
    first = run.grade(jobs=2)
    marks = room.marks()
    assert marks["ada"] == FULL and marks["ben"] == marks["hugo"] == marks["zoe"] == NONE
    last = SOFTMAX.exercises[-1].id
    assert 0 <= (marks["eva"][last] or 0) < FULL[last]
    assert {key: mark for key, mark in marks["eva"].items() if key != last} == {
        k: v for k, v in FULL.items() if k != last
    }
    assert [line.split(":")[0] for line in first.refused] == [f"hugo, {CHAPTER}", f"zoe, {CHAPTER}"]
    assert f"hand in {CHAPTER}.ipynb" in first.refused[1]
    verdicts = {path: path.stat().st_mtime_ns for path in (room.root / "verdicts").iterdir()}
    notebooks = {path: path.stat().st_mtime_ns for path in (room.root / "autograded").glob("*/*/*.ipynb")}
    assert len(verdicts) == 3 and len(notebooks) == 5
    second = run.grade([CHAPTER])
    assert (second.marks, second.refused) == (first.marks, first.refused)
    assert room.marks() == marks
    assert {path: path.stat().st_mtime_ns for path in (room.root / "verdicts").iterdir()} == verdicts
    assert {path: path.stat().st_mtime_ns for path in (room.root / "autograded").glob("*/*/*.ipynb")} == notebooks
    # Another way in: the same verdicts, the same marks.
    assert autograde("eva")["success"]
    assert room.marks() == marks


def test_a_new_hand_in_replaces_the_old_mark_even_if_it_is_worthless(room: Classroom) -> None:
    room.hand_in("ada", perfect())
    run.grade(jobs=1)
    assert room.totals() == {"ada": TOTAL}

    def delete(notebook: Any) -> None:
        notebook.cells = [cell for cell in notebook.cells if "nbgrader" not in cell.metadata]

    room.hand_in("ada", changed(delete))
    run.grade(jobs=1)
    assert room.totals() == {"ada": 0.0}
    room.hand_in("ada", b"junk")
    run.grade(jobs=1)
    assert room.totals() == {"ada": 0.0}
    assert "not valid JSON" in room.shown("ada")
    room.hand_in("ada", perfect())
    run.grade(jobs=1)
    assert room.totals() == {"ada": TOTAL}


def test_an_instructors_own_mark_stays(room: Classroom) -> None:
    room.hand_in("ben", blank())
    assert autograde("ben")["success"]
    with classroom.gradebook() as gradebook:
        grade = gradebook.find_grade("softmax_check", CHAPTER, CHAPTER, "ben")
        grade.manual_score = 2.5
        gradebook.db.commit()
    report_ = run.grade(jobs=1)
    assert [mark.earned for mark in report_.marks] == [2.5]


# Nothing but a verdict gives marks


def outputs_of(notebook: Any) -> Iterator[tuple[str, float]]:
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            assert [output.output_type for output in cell.outputs] == ["display_data", "execute_result"]
            yield cell.outputs[0].data["text/plain"], float(cell.outputs[1].data["text/plain"])


def judged(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Verdict], room: Classroom) -> list[tuple[str, float]]:
    """What the graded cells of a perfect hand-in show when the judging gives this answer."""
    monkeypatch.setattr(verdict, "judge_cells", answer)
    room.hand_in("ada", perfect())
    result = autograde("ada")
    assert result["success"], result
    return list(outputs_of(room.autograded("ada")))


def test_a_failing_grader_gives_no_marks_and_says_so(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Verdict:
        raise ZeroDivisionError("a bug of ours")

    shown = judged(monkeypatch, fail, room)
    assert room.totals() == {"ada": 0.0}
    assert all(earned == 0 and "grader failed" in text and "ZeroDivisionError" in text for text, earned in shown)
    assert not (room.root / "verdicts").exists(), "a failure must not be kept as a verdict"


@pytest.mark.parametrize("earned", [math.nan, math.inf, -1.0, 1e6])
def test_a_verdict_that_makes_no_sense_gives_no_marks(
    earned: float, room: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(*_: Any, **__: Any) -> Verdict:
        passed = (PropertyVerdict("it works", True, 1.0),)
        return Verdict(CHAPTER, tuple(ExerciseVerdict(e.id, e.points, earned, passed) for e in SOFTMAX.exercises))

    shown = judged(monkeypatch, odd, room)
    assert room.totals() == {"ada": 0.0}
    assert all("makes no sense" in text for text, _ in shown)


def test_an_exercise_without_a_verdict_gets_no_marks(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = judged(monkeypatch, lambda *_, **__: Verdict(CHAPTER, ()), room)
    assert room.totals() == {"ada": 0.0}
    assert all("no result" in text for text, _ in shown)


def test_points_changed_after_the_release_change_no_mark(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    room.hand_in("ada", perfect())
    assert autograde("ada")["success"]
    half = tuple(replace(exercise, points=exercise.points / 2) for exercise in SOFTMAX.exercises)
    monkeypatch.setattr(judge.chapters, "find", lambda key: replace(SOFTMAX, exercises=half))
    assert "another version of chapter 01_softmax; run `course release 01` first" in classroom.why(autograde("ada"))
    assert room.marks() == {"ada": FULL}


def test_without_a_sandbox_nothing_is_graded_and_old_marks_stay(
    room: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.hand_in("ada", perfect())
    run.grade(jobs=1)

    def refuse(*_: Any, **__: Any) -> Verdict:
        raise CourseError("the sandbox does not start here")

    monkeypatch.setattr(verdict, "judge_cells", refuse)
    room.hand_in("ada", wrong())
    assert "the sandbox does not start here" in classroom.why(autograde("ada"))
    assert room.totals() == {"ada": TOTAL}
    with pytest.raises(CourseError, match="sandbox does not start"):
        run.grade()
    assert room.totals() == {"ada": TOTAL}


def test_unsafe_grading_needs_no_sandbox_and_its_verdicts_are_kept_apart(
    room: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise AssertionError("must not be asked for")

    monkeypatch.setattr(run.sandbox, "bubblewrap", refuse)
    room.hand_in("ada", perfect())
    run.grade(jobs=1, unsafe=True)
    assert room.totals() == {"ada": TOTAL}
    kept = list((room.root / "verdicts").iterdir())
    assert len(kept) == 1
    taken = intake.parse(perfect(), SOFTMAX)
    assert judge.verdict_key(taken, judge.rules(SOFTMAX), unsafe=True) == kept[0].stem
    assert judge.stored_verdict(judge.verdict_key(taken, judge.rules(SOFTMAX), unsafe=False)) is None


def test_a_damaged_verdict_is_made_again(room: Classroom) -> None:
    room.hand_in("ada", perfect())
    run.grade(jobs=1)
    (kept,) = (room.root / "verdicts").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    assert judge.stored_verdict(kept.stem) is None
    assert autograde("ada")["success"]
    assert kept.read_bytes() == whole
    assert room.totals() == {"ada": TOTAL}


def test_the_seed_is_secret_and_stays_the_same(room: Classroom) -> None:
    one, other = intake.parse(perfect(), SOFTMAX), intake.parse(wrong(), SOFTMAX)
    assert judge.seed(one) == judge.seed(one) != judge.seed(other)
    key = room.root / "secret.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(key.read_bytes()) == 32
    before = judge.seed(one)
    key.unlink()
    assert judge.seed(one) != before


def test_what_judges_is_part_of_a_verdicts_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = judge.rules(SOFTMAX)
    assert judge.rules(SOFTMAX) == before
    (tmp_path / "tokens.py").write_text("another reference of an earlier chapter", encoding="utf-8")
    monkeypatch.setattr(paths, "SOLUTIONS", tmp_path)
    assert judge.rules(SOFTMAX) != before
    monkeypatch.undo()
    (tmp_path / "hidden").mkdir()
    for path in (paths.TESTS / "hidden").glob("test_softmax*.py"):
        (tmp_path / "hidden" / path.name).write_bytes(path.read_bytes() + b"\n")
    monkeypatch.setattr(paths, "TESTS", tmp_path)
    assert judge.rules(SOFTMAX) != before


def test_what_a_student_wrote_is_text_in_the_report() -> None:
    evil = "<script>alert(1)</script>\x1b[31m\u202e" + "x" * 5000
    failed = PropertyVerdict(f"says {evil}", False, 1.0, evil, evil)
    exercise = SOFTMAX.exercises[0]
    found = Verdict(CHAPTER, (ExerciseVerdict(exercise.id, exercise.points, 0.0, (failed,), evil),))
    shown, credit = report.outputs(found, SOFTMAX)[exercise.check_id]
    assert "<script" not in shown.data["text/html"]
    for text in shown.data.values():
        assert "\x1b" not in text and "\u202e" not in text and len(text) < 8000
    assert credit.data["text/plain"] == "0.0"


# Many at once


def tasks(count: int) -> list[pool.Task]:
    taken = intake.parse(perfect(), SOFTMAX)
    by = judge.rules(SOFTMAX)
    return [pool.Task(f"{n}", CHAPTER, taken.cells, taken.extra, n, by, False) for n in range(count)]


class Deadly:
    """Ends the process that unpickles it: a grader that crashes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def test_a_crash_of_the_grader_costs_one_submission_only() -> None:
    work = tasks(3)
    work[1] = pool.Task(**{**vars(work[1]), "extra": [Deadly()]})
    outcomes = {task.key: outcome for task, outcome in pool.judge_all(work, jobs=2, scheduler=None)}
    assert set(outcomes) == {"0", "1", "2"}
    assert type(outcomes["1"]).__name__ == "BrokenProcessPool"
    for key in ("0", "2"):
        outcome = outcomes[key]
        assert isinstance(outcome, str)
        assert Verdict.from_json(outcome).earned == TOTAL


def test_a_crash_is_recorded_as_no_marks_with_a_reason(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures.process import BrokenProcessPool

    def crash(work: list[pool.Task], *_: Any) -> Iterator[tuple[pool.Task, Exception]]:
        yield from ((task, BrokenProcessPool("gone")) for task in work)

    monkeypatch.setattr(pool, "judge_all", crash)
    room.hand_in("ada", perfect())
    run.grade()
    assert room.totals() == {"ada": 0.0}
    assert "the grader crashed" in room.shown("ada")


def test_another_version_of_the_course_on_a_machine_is_refused() -> None:
    (task,) = tasks(1)
    with pytest.raises(CourseError, match="another version of the course"):
        pool.judge(pool.Task(**{**vars(task), "judged_by": "something else"}))


def test_a_dask_cluster_gives_the_same_verdicts(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    room.hand_in("ada", perfect())
    room.hand_in("eva", wrong())
    run.grade(jobs=1)
    here = room.marks()
    for path in (room.root / "verdicts").iterdir():
        path.unlink()
    monkeypatch.setattr(pool, "judge_all", EVERYWHERE)
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster:
        run.grade(scheduler=cluster.scheduler_address)
    assert len(list((room.root / "verdicts").iterdir())) == 2
    assert room.marks() == here


def test_an_unreachable_scheduler_is_named(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "judge_all", EVERYWHERE)
    room.hand_in("ada", perfect())
    with pytest.raises(CourseError, match="cannot reach a Dask scheduler at nonsense://x"):
        run.grade(scheduler="nonsense://x")


# What can go wrong around it


def test_a_second_run_at_the_same_time_is_told_so(room: Classroom) -> None:
    room.hand_in("ada", perfect())
    with files.lock(room.root / "grading.lock", "grading"):
        done = room.run("course", "grade", "--unsafe")
    assert done.returncode == 1
    assert "grading is already under way" in done.stderr + done.stdout
    assert room.totals() == {}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["99"], "there is no chapter '99'"),
        (["01"], "nobody handed in 01_softmax"),
        (None, "nobody handed in any chapter"),
    ],
)
def test_nothing_to_grade_is_said_in_one_line(keys: list[str] | None, line: str, room: Classroom) -> None:
    with pytest.raises(CourseError, match=line):
        run.grade(keys, unsafe=True)


def test_an_unknown_student_is_named(room: Classroom) -> None:
    room.hand_in("ada", perfect())
    with pytest.raises(CourseError, match="is by bob; there is: ada"):
        run.grade(students=["bob"], unsafe=True)


def test_a_chapter_that_was_never_released_is_named(room: Classroom) -> None:
    room.hand_in("ada", perfect())
    (room.root / "gradebook.db").unlink()
    with pytest.raises(CourseError, match="run `course release 01` first"):
        run.grade([CHAPTER], unsafe=True)


@pytest.mark.parametrize("student", ["*", "[ab]*", "-x", "a b", "x\n"])
def test_a_folder_that_is_no_students_is_left_alone(student: str, room: Classroom) -> None:
    room.hand_in("ada", perfect())
    room.hand_in(student, blank())
    found = run.grade(unsafe=True, jobs=1)
    assert room.totals() == {"ada": TOTAL}
    assert len(found.refused) == 1 and "not a student id" in found.refused[0]


def test_one_students_failure_in_nbgrader_stops_nobody(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    room.hand_in("ada", perfect())
    room.hand_in("ben", blank())
    (room.root / "autograded").mkdir()
    (room.root / "autograded" / "ada").write_text("in the way", encoding="utf-8")
    with pytest.raises(CourseError, match="1 of 2 submissions could not be graded"):
        run.grade(unsafe=True, jobs=1)
    assert room.marks()["ben"] == NONE
    (room.root / "autograded" / "ada").unlink()
    run.grade(unsafe=True, jobs=1)
    assert room.totals() == {"ada": TOTAL, "ben": 0.0}


def _in_a_mount(room: Classroom, mount: list[str], script: str) -> str:
    """Run a script where the classroom lies in a file system of its own; what it printed."""
    import subprocess

    command = ["bwrap", "--dev-bind", "/", "/", *mount, "bash", "-c", script]
    environment = {**os.environ, "COURSE_CLASSROOM": str(room.root)}
    done = subprocess.run(
        command, cwd=paths.ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=300, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_full_disk_is_one_clear_line(room: Classroom, tmp_path: Path) -> None:
    import sys

    room.hand_in("ada", perfect())
    copy = tmp_path / "copy"
    room.root.rename(copy)
    room.root.mkdir()
    size = sum(path.stat().st_size for path in copy.rglob("*")) + 2**20
    script = (
        f"cp -r {copy}/. {room.root} && (cat /dev/zero > {room.root}/fill; {sys.executable} -m course grade --unsafe)"
    )
    said = _in_a_mount(room, ["--size", str(size), "--tmpfs", str(room.root)], script)
    assert "the disk is full" in said and "Traceback" not in said


def test_a_classroom_that_cannot_be_written_is_one_clear_line(room: Classroom) -> None:
    import sys

    room.hand_in("ada", perfect())
    script = f"{sys.executable} -m course grade --unsafe"
    said = _in_a_mount(room, ["--ro-bind", str(room.root), str(room.root)], script)
    assert "read-only" in said and "Traceback" not in said


# Feedback


def test_feedback_names_the_mistake_and_asks_nobody_for_anything(room: Classroom) -> None:
    from course.grading import feedback

    evil = (
        "<script>alert(1)</script> <img src=x onerror=alert(2)> [link](javascript:alert(3)) "
        "<iframe src='https://example.org'></iframe> ![pixel](https://example.org/pixel.png)"
    )

    def add(notebook: Any) -> None:
        notebook.cells.append(nbformat.v4.new_markdown_cell(evil, id="evil"))
        notebook.cells.append(nbformat.v4.new_code_cell("'</pre><script>alert(4)</script>'", id="evil-2"))
        graded_cell(notebook, "softmax_check").source = evil

    mutant = next(one for one in specimens.mutants("softmax") if one.exercise == SOFTMAX.exercises[-1].id)
    room.hand_in("eva", changed(add, specimens.submission_cells(mutant)))
    assert autograde("eva")["success"]
    (page,) = feedback.feedback([CHAPTER], ["eva"])
    assert page == room.root / "feedback" / "eva" / CHAPTER / f"{CHAPTER}.html"
    check_page(page.read_text(encoding="utf-8"), mutant.caught_by or "")


def check_page(text: str, caught_by: str) -> None:
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(text, "html.parser")
    assert not soup.select("script, iframe, object, embed, form, base, link, img")
    for tag in soup.find_all(True):
        assert not [name for name in tag.attrs if name.startswith("on")], tag
        assert not tag.get("src")
        assert not str(tag.get("href", "")).startswith("javascript"), tag
    assert "@import" not in text and "url(http" not in text
    policy = soup.select_one("meta[http-equiv=Content-Security-Policy]")
    assert policy is not None and "default-src 'none'" in str(policy["content"])
    failed = [item.get_text() for item in soup.select("li.failed strong")]
    assert caught_by.replace("`", "") in failed
    assert "Hint:" in soup.get_text()
    assert len(soup.select("li.passed")) > 5


def test_feedback_before_grading_is_refused(room: Classroom) -> None:
    from course.grading import feedback

    with pytest.raises(CourseError, match="run `course grade` first"):
        feedback.feedback()


def test_a_mark_in_the_notebook_is_not_a_mark(room: Classroom) -> None:
    """A student's own outputs, with a number that nbgrader would take for partial credit, are gone."""

    def claim(notebook: Any) -> None:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                result = {"text/plain": "6.0"}
                cell.outputs = [nbformat.v4.new_output("execute_result", data=result, execution_count=1)]

    room.hand_in("mallory", changed(claim))
    assert autograde("mallory")["success"]
    assert room.totals() == {"mallory": 0.0}
    assert json.dumps(room.autograded("mallory")).count('"6.0"') == 0
