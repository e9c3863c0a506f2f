"""`course status`: how far a student is, exercise by exercise; for an instructor, the class."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course import check, paths, shipped
from course.check import FAILED, NOT_RUN, NOT_STARTED, PASSED
from course.shipped import Shipped

YOURS, REFERENCE, MISSING = "yours", "reference", "missing"
UNCHECKED, CHANGED = "not checked", "changed since the check"
COLOURS = {**check.COLOURS, UNCHECKED: "yellow", CHANGED: "yellow", YOURS: "green", REFERENCE: "cyan", MISSING: "dim"}


@dataclass(frozen=True)
class ExerciseStatus:
    """One exercise: what is known of it, and the points that its visible check carries."""

    id: str
    state: str
    points: float
    message: str = ""


@dataclass(frozen=True)
class ChapterStatus:
    """One chapter: whose its module of `lib` is, and its exercises."""

    chapter: Shipped
    whose: str
    exercises: tuple[ExerciseStatus, ...]

    @property
    def earned(self) -> float:
        """Points of the visible checks that passed."""
        return sum(exercise.points for exercise in self.exercises if exercise.state == PASSED)

    @property
    def finished(self) -> bool:
        """Every exercise passed its visible check, and the module is still the one that was checked."""
        return all(exercise.state == PASSED for exercise in self.exercises)


def whose(name: str) -> str:
    """Whose module `import lib.<name>` gives: the student's own, the reference, or none."""
    paths.make_importable()
    try:
        spec = importlib.util.find_spec(f"lib.{name}")
    except ImportError:
        return MISSING
    if spec is None or spec.origin is None:
        return MISSING
    return YOURS if Path(spec.origin).resolve().parent == paths.LIB.resolve() else REFERENCE


def of_chapter(chapter: Shipped, saved: dict[str, Any]) -> ChapterStatus:
    """What the files and the last check say of a chapter; nothing of the student's is run."""
    last = saved.get(chapter.id, {})
    same = last.get("module") == check.fingerprint(chapter)
    found = []
    for exercise in chapter.exercises:
        now = check.look(chapter, exercise)
        then = last.get("exercises", {}).get(exercise.id)
        if now is not None:
            state, message = now.state, now.message
        elif then is None or then["state"] == NOT_STARTED:
            state, message = UNCHECKED, f"run `course check {chapter.id[:2]}`"
        elif not same:
            state, message = CHANGED, f"was: {then['state']}; run `course check {chapter.id[:2]}`"
        else:
            outcome = check.compare_with_notebook(chapter, exercise, check.Outcome(**then))
            state, message = outcome.state, outcome.message
        found.append(ExerciseStatus(exercise.id, state, exercise.points, message))
    return ChapterStatus(chapter, whose(chapter.name), tuple(found))


def of_course() -> list[ChapterStatus]:
    """Every chapter's status, in reading order."""
    saved = check.saved()
    return [of_chapter(shipped.load(chapter_id), saved) for chapter_id in shipped.ids()]


def main() -> int:
    """Print the student's table in a workspace; in the repository the class, and the reader's own work if any."""
    from rich.console import Console

    console = Console(highlight=False)
    if not paths.is_workspace():
        from course.grading import class_status

        class_status.show(console)
        if not any((paths.LIB / f"{chapter_id[3:]}.py").is_file() for chapter_id in shipped.ids()):
            return 0
    show(console, of_course())
    return 0


def show(console: Any, course: list[ChapterStatus]) -> None:
    """Print the student's table and what to do next."""
    from rich.markup import escape
    from rich.table import Table

    def coloured(state: str) -> str:
        return f"[{COLOURS[state]}]{state}[/]"

    table = Table(title="Your course", title_justify="left")
    table.add_column("Chapter")
    table.add_column("Module", no_wrap=True)
    table.add_column("Exercise", no_wrap=True)
    table.add_column("State")
    table.add_column("Points", justify="right", no_wrap=True)
    for status in course:
        chapter = status.chapter
        total = sum(exercise.points for exercise in status.exercises)
        summary = "[green]finished[/]" if status.finished else ""
        heading = f"[bold]{chapter.id[:2]} · {escape(chapter.title)}[/]"
        table.add_row(heading, coloured(status.whose), "", summary, f"[bold]{status.earned:g} of {total:g}[/]")
        for exercise in status.exercises:
            got = exercise.points if exercise.state == PASSED else 0
            table.add_row("", "", exercise.id, coloured(exercise.state), f"{got:g} of {exercise.points:g}")
        table.add_section()
    console.print(table)
    for status in course:
        for exercise in status.exercises:
            if exercise.state in (FAILED, NOT_RUN) and exercise.message:
                console.print(f"{exercise.id} (chapter {status.chapter.id[:2]}): {escape(exercise.message)}")
    console.print("Module: whose `lib` module is used. Points: those that the visible checks carry.", style="dim")
    unfinished = [status for status in course if not status.finished]
    if not course:
        console.print("There is no chapter here: unpack the workspace again.")
    elif not unfinished:
        console.print("[green]The course is finished: every exercise passes its visible checks.[/]")
    else:
        chapter = unfinished[0].chapter
        console.print(f"Next: chapter {chapter.id[:2]}, {escape(chapter.title)} ({chapter.id}).")
