"""`course check`: the visible checks of a chapter against the student's own `lib`.

Each exercise's check, as it was handed out, runs in a fresh Python process with the names of the
setup cell and of the student's module. Nothing is remembered from one run to the next but the result
that `course status` shows.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course import definitions, paths, shipped
from course.chapters import Exercise, split_magic
from course.errors import CourseError
from course.shipped import Shipped

PASSED, FAILED, NOT_STARTED, NOT_RUN = "passed", "failed", "not started", "not run"
START_SECONDS = 300.0  # for importing torch and the student's module on a slow, busy machine
CHECK_SECONDS = 120.0


@dataclass(frozen=True)
class Outcome:
    """What became of one exercise's check."""

    exercise: str
    points: float
    state: str
    message: str = ""
    where: str = ""  # file and line in `lib`


def check(chapter: Shipped) -> list[Outcome]:
    """Run the checks of one chapter."""
    found: dict[str, Outcome] = {}
    to_run: list[Exercise] = []
    for exercise in chapter.exercises:
        outcome = look(chapter, exercise)
        if outcome is not None:
            found[exercise.id] = outcome
        else:
            to_run.append(exercise)
    found.update({outcome.exercise: outcome for outcome in _run(chapter, to_run)})
    for exercise in to_run:
        found[exercise.id] = compare_with_notebook(chapter, exercise, found[exercise.id])
    return [found[exercise.id] for exercise in chapter.exercises]


# What the files say, before anything runs


def module_file(chapter: Shipped) -> Path:
    """The student's own module of this chapter, whether it is there or not."""
    return paths.LIB / f"{chapter.name}.py"


def fingerprint(chapter: Shipped) -> str:
    """Tells one version of the student's module from another; layout and comments do not count."""
    try:
        tree = ast.parse(module_file(chapter).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ""
    return hashlib.sha256(ast.dump(tree).encode("utf-8")).hexdigest()


def look(chapter: Shipped, exercise: Exercise) -> Outcome | None:
    """The outcome of an exercise that is not started (or cannot be), None where its check must run."""
    file = module_file(chapter)
    where = f"lib/{file.name}"

    def outcome(state: str, message: str) -> Outcome:
        return Outcome(exercise.id, exercise.points, state, message, where if state == FAILED else "")

    cell = _notebook_cell(chapter, exercise)
    answered = cell is not None and not _same_definitions(cell, exercise.source)
    if not file.is_file():
        text = ""
    else:
        try:
            text = file.read_text(encoding="utf-8")
            ast.parse(text)
        except SyntaxError as error:
            return outcome(FAILED, f"syntax error at line {error.lineno}: {error.msg}; mend it, or run the cells again")
        except ValueError as error:
            return outcome(FAILED, f"the file cannot be read ({error}); delete it and run the cells again")
    written, stub = _definitions(text), _definitions(exercise.source)
    if any(name in written and written[name] != stub[name] for name in exercise.names):
        return None
    if answered:
        assert cell is not None
        return outcome(NOT_RUN, _why_not_run(cell, where))
    return outcome(NOT_STARTED, "")


def _why_not_run(cell: str, where: str) -> str:
    try:
        ast.parse(cell)
    except SyntaxError as error:
        line = (error.lineno or 0) + 1  # the `%%lib` line counts
        return f"the notebook's cell has a syntax error at line {line} ({error.msg}), so nothing was saved"
    return f"the notebook's cell differs from {where}: run the cell, then check again"


def compare_with_notebook(chapter: Shipped, exercise: Exercise, outcome: Outcome) -> Outcome:
    """A check of `lib` says nothing about a cell that was edited and not run since."""
    cell = _notebook_cell(chapter, exercise)
    if cell is None:
        return outcome
    written = _definitions(module_file(chapter).read_text(encoding="utf-8"))
    try:
        typed = _definitions(cell)
    except SyntaxError:
        typed = {"": ""}
    if _same_definitions(cell, exercise.source):
        note = "save the notebook before you hand it in: its file still holds the stub"
        return Outcome(**{**asdict(outcome), "message": outcome.message or note})
    if any(written.get(name) != definition for name, definition in typed.items()):
        return Outcome(exercise.id, exercise.points, NOT_RUN, _why_not_run(cell, f"lib/{chapter.name}.py"))
    return outcome


def _definitions(source: str) -> dict[str, str]:
    """Each name that a module or cell defines at its top, with its code in a form without layout."""
    pieces = definitions.take_apart(source)[0].pieces
    return {name: ast.dump(ast.parse(piece.text)) for piece in pieces for name in piece.names}


def _same_definitions(cell: str, stub: str) -> bool:
    try:
        return _definitions(cell) == _definitions(stub)
    except SyntaxError:
        return False


def _notebook_cell(chapter: Shipped, exercise: Exercise) -> str | None:
    """The exercise's cell in the student's notebook, without the `%%lib` line; None where there is none."""
    path = paths.ROOT / f"{chapter.id}.ipynb"
    if not paths.is_workspace() or not path.is_file():
        return None
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise CourseError(f"{path.name} is not a notebook that can be read ({error}): unpack it again") from None
    for cell in cells:
        if cell.get("metadata", {}).get("nbgrader", {}).get("grade_id") == exercise.id:
            return split_magic("".join(cell["source"]))[1]
    return None


# Running


def _run(chapter: Shipped, exercises: list[Exercise]) -> Iterator[Outcome]:
    """Run checks in a process, and in another one after each that hung or ended it."""
    left = list(exercises)
    while left:
        with _Process(chapter, left) as process:
            begun: Exercise | None = None
            while left:
                line = process.next_line(CHECK_SECONDS if begun else START_SECONDS)
                if "begin" in line:
                    begun = next(exercise for exercise in left if exercise.id == line["begin"])
                elif "id" in line:
                    assert begun is not None
                    left.remove(begun)
                    yield _outcome(begun, line)
                    begun = None
                elif "ready" not in line:
                    # Without a module none of the checks can run.
                    for exercise in [begun] if begun else list(left):
                        left.remove(exercise)
                        yield _outcome(exercise, line.get("broken", line))
                    break


def _outcome(exercise: Exercise, line: dict[str, Any]) -> Outcome:
    state = PASSED if line.get("passed") else FAILED
    return Outcome(exercise.id, exercise.points, state, line.get("message", ""), line.get("where", ""))


class _Process:
    """A fresh Python that runs `course.check_process`."""

    def __init__(self, chapter: Shipped, exercises: list[Exercise]) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue()
        dropped = {paths.REFERENCE_MODE, "PYTHONOPTIMIZE", "PYTHONSTARTUP"}
        environment = {key: value for key, value in os.environ.items() if key not in dropped}
        search = [str(paths.ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        environment |= {"MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join(search), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-m", "course.check_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=paths.ROOT,
        )
        job = {
            "root": str(paths.ROOT),
            "module": chapter.name,
            "setup": chapter.setup,
            "exercises": [{"id": item.id, "check": item.check, "names": item.names} for item in exercises],
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job).encode("utf-8"))
        self.process.stdin.close()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.decode("utf-8"))
        self.lines.put(None)

    def next_line(self, seconds: float) -> dict[str, Any]:
        """What the process says next; a failure where it stays silent too long or ends."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            return {"message": f"it had not ended after {seconds:.0f} seconds: look for a loop that never ends"}
        if line is None:
            code = self.process.wait()
            return {"message": f"it ended the Python process (exit code {code}): look for exit() or a crash"}
        return json.loads(line)


# Results


def results_file() -> Path:
    """Where the last result of each chapter is kept."""
    return paths.ROOT / ".course" / "checks.json"


def saved() -> dict[str, Any]:
    """The last results: chapter id to the module's fingerprint and the outcomes; empty if unreadable."""
    try:
        found = json.loads(results_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(chapter: Shipped, version: str, outcomes: list[Outcome]) -> None:
    """Keep a chapter's result for `course status`."""
    path = results_file()
    path.parent.mkdir(exist_ok=True)
    found = saved() | {chapter.id: {"module": version, "exercises": {o.exercise: asdict(o) for o in outcomes}}}
    temporary = path.with_name(f".checks.{os.getpid()}")
    temporary.write_text(json.dumps(found, indent=1), encoding="utf-8")
    os.replace(temporary, path)


def main(keys: list[str]) -> int:
    """Check these chapters (all if none is given), print the outcomes; 0 only if all passed."""
    from rich.console import Console

    wanted = [shipped.find(key) for key in keys] if keys else [shipped.load(chapter_id) for chapter_id in shipped.ids()]
    if not wanted:
        raise CourseError(f"there is no chapter in {paths.ROOT}: unpack the workspace again")
    console = Console(highlight=False)
    everything: list[Outcome] = []
    for chapter in wanted:
        version = fingerprint(chapter)
        with console.status(f"Checking {chapter.id} ..."):
            outcomes = check(chapter)
        save(chapter, version, outcomes)
        report(console, chapter, outcomes)
        everything += outcomes
    passed = [outcome for outcome in everything if outcome.state == PASSED]
    got, total = (sum(outcome.points for outcome in group) for group in (passed, everything))
    console.print(
        f"{len(passed)} of {len(everything)} exercises pass their visible checks; "
        f"they carry {got:g} of {total:g} points. Marks come from the hidden tests.",
        soft_wrap=True,
    )
    return 0 if everything and len(passed) == len(everything) else 1


COLOURS = {PASSED: "green", FAILED: "red", NOT_STARTED: "dim", NOT_RUN: "yellow"}


def report(console: Any, chapter: Shipped, outcomes: list[Outcome]) -> None:
    """Print one chapter's outcomes."""
    from rich.markup import escape
    from rich.table import Table

    console.print(f"[bold]{chapter.id[:2]} · {escape(chapter.title)}[/]  ({module_file(chapter).name} in lib)")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for outcome in outcomes:
        about = escape(outcome.message) + (f" [dim]({escape(outcome.where)})[/]" if outcome.where else "")
        colour = COLOURS[outcome.state]
        table.add_row(f"[{colour}]{outcome.state}[/]", outcome.exercise, f"{outcome.points:g} points", about)
    console.print(table)
