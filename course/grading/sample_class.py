"""A sample class: students of every kind, made from the chapters, the reference and the mutants.

`python -m course.grading.sample_class` makes it, collects, grades and writes its feedback as an
instructor would, and checks every mark against what it must be.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course import chapters, paths
from course.chapters import Chapter
from course.errors import CourseError
from course.grading import classroom, files, specimens
from course.grading.specimens import Specimen
from course.release.notebooks import student_notebook, to_bytes

Key = tuple[str, str]  # student, chapter id

NAMES = {
    "ada": ("Ada", "Lovelace"),
    "ben": ("Ben", "O'Brien"),
    "chloe": ("Chloé", "Núñez"),
    "dmitri": ("Дмитрий", "Иванов"),
    "eva": ("Eva", "Müller, Jr."),
    "fatima": ("Fatima", "Al-Zahra"),
    "gao": ("伟", "高"),
    "hugo": ("Hugo", "Petit"),
    "mallory": ("Mallory", "=1+1"),
    "marvin": ("Marvin", "Gray"),
    "mia": ("Mia", "Black"),
    "moritz": ("Moritz", "White"),
    "mona": ("Mona", "Green"),
}


@dataclass(frozen=True)
class Expected:
    """What must come of one hand-in, known before it is graded."""

    like: str  # what kind of student this is
    full: frozenset[str] = frozenset()  # exercises with full marks
    nothing: frozenset[str] = frozenset()  # exercises with none
    caught: dict[str, str] = field(default_factory=dict)  # exercise to the property that it must fail
    reason: str = ""  # words that a graded cell must show
    taken: bool = True  # False: collecting refuses it

    def exercises(self) -> set[str]:
        """Every exercise that something is said of."""
        return set(self.full) | set(self.nothing) | set(self.caught)


Handed = tuple[bytes, Expected]


def make(folder: Path, chapter_ids: list[str] | None = None) -> dict[Key, Expected]:
    """Write the class's hand-ins into `folder/<student>/<chapter>.ipynb`, and `folder/roster.csv`.

    Returns what must come of each.
    """
    expected = {}
    chosen = [chapters.find(key) for key in chapter_ids] if chapter_ids else chapters.all_chapters()
    for number, chapter in enumerate(chosen):
        for student, (content, outcome) in _hand_ins(chapter, first=number == 0):
            files.write(folder / student / f"{chapter.id}.ipynb", content)
            expected[student, chapter.id] = outcome
        link = folder / "mona" / f"{chapter.id}.ipynb"
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path("..") / "ada" / f"{chapter.id}.ipynb")
        expected["mona", chapter.id] = Expected("hands in a link to Ada's notebook", taken=False)
    files.write(folder / "roster.csv", _roster())
    return expected


def _roster() -> str:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["id", "first_name", "last_name", "email", "moodle_id", "canvas_id"])
    for number, (student, (first, last)) in enumerate(NAMES.items(), start=1):
        writer.writerow([student, first, last, f"{student}@example.org", 1000 + number, 2000 + number])
    return buffer.getvalue()


def _hand_ins(chapter: Chapter, first: bool) -> Iterator[tuple[str, Handed]]:
    everything = frozenset(exercise.id for exercise in chapter.exercises)
    answers = specimens.reference_cells(chapter.name)
    yield "ada", (filled(chapter, answers), Expected("perfect", full=everything))
    yield "ben", (filled(chapter, {}), Expected("blank", nothing=everything, reason="not started"))
    done = [exercise.id for exercise in chapter.exercises][: max(1, len(everything) // 2)]
    half = Expected("stopped half-way", full=frozenset(done), nothing=everything - set(done))
    yield "chloe", (filled(chapter, {key: answers[key] for key in done}), half)
    for student, mutant in zip(("dmitri", "eva", "fatima", "gao"), _mistakes(chapter), strict=False):
        assert mutant.caught_by is not None
        # A later exercise may rest on this one, and lose marks with it; an earlier one cannot.
        order = [exercise.id for exercise in chapter.exercises]
        earlier = frozenset(order[: order.index(mutant.exercise)])
        caught = Expected(mutant.label, earlier, caught={mutant.exercise: mutant.caught_by})
        yield student, (filled(chapter, specimens.submission_cells(mutant)), caught)
    broken = filled(chapter, answers)[:-200]
    yield "hugo", (broken, Expected("file cut off", nothing=everything, reason="not valid JSON"))
    yield "mallory", (forged(chapter), Expected("forges metadata and outputs", nothing=everything))
    yield "marvin", (patched(chapter), Expected("patches the checks", nothing=everything))
    yield "mia", _attack(chapter, answers, "import os\nos._exit(0)", "ends the process")
    if first:  # it takes as long as the grader's patience
        yield "moritz", _attack(chapter, answers, "while True:\n    pass", "loops for ever")


def _mistakes(chapter: Chapter) -> list[Specimen]:
    """Mutants in an order that visits every exercise before it comes back to one."""
    of = {
        exercise.id: [m for m in specimens.mutants(chapter.name) if m.exercise == exercise.id]
        for exercise in chapter.exercises
    }
    longest = max(map(len, of.values()))
    return [found[turn] for turn in range(longest) for found in of.values() if turn < len(found)]


def filled(chapter: Chapter, answers: dict[str, str], change: Callable[[NotebookNode], None] | None = None) -> bytes:
    """The released notebook with these answers typed into its cells."""
    notebook = student_notebook(chapter)
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if grade_id in answers:
            cell.source = f"%%lib {chapter.name}\n{answers[grade_id]}"
    if change is not None:
        change(notebook)
    return to_bytes(notebook)


def _attack(chapter: Chapter, answers: dict[str, str], code: str, like: str) -> Handed:
    """One exercise does this when it is called; the others are right."""
    target = chapter.exercises[-1]
    names = [f"def {name}(*args, **kwargs):\n{_indented(code)}\n" for name in target.names]
    spoilt = {**answers, target.id: "\n\n".join(names)}
    others = frozenset(exercise.id for exercise in chapter.exercises if exercise is not target)
    return filled(chapter, spoilt), Expected(like, full=others, nothing=frozenset({target.id}))


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.splitlines())


def forged(chapter: Chapter) -> bytes:
    """Blank answers under forged metadata: points raised, checks deleted or emptied, cells copied, outputs made up."""

    def change(notebook: NotebookNode) -> None:
        copies = []
        for number, cell in enumerate(list(notebook.cells)):
            own = cell.metadata.get("nbgrader")
            if own is None:
                continue
            copy = nbformat.from_dict({**cell, "id": f"copy-{number}"})
            copies.append(copy)
            own["schema_version"] = (99, -1, "3", None)[number % 4]
            if own.get("grade"):
                own["points"] = 1e9
                own["solution"] = True
                cell.source = ""
                result = {"text/plain": "1000000.0"}
                cell.outputs = [nbformat.v4.new_output("execute_result", data=result, execution_count=1)]
        notebook.cells += copies
        del notebook.cells[[i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"][-1]]

    return filled(chapter, {}, change)


def patched(chapter: Chapter) -> bytes:
    """Blank answers, and cells that would turn every assert and comparison true if anyone ran them."""
    trick = f"""%%lib {chapter.name}
import ast, builtins, sys
import torch
torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True
torch.testing.assert_close = lambda *a, **k: None
class Drop(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.Pass()
print("1000000.0", file=sys.stderr)
builtins.AssertionError = type("AssertionError", (Exception,), {{}})
"""

    def change(notebook: NotebookNode) -> None:
        cell = nbformat.v4.new_code_cell(trick, id="trick")
        notebook.cells.insert(0, cell)

    return filled(chapter, {}, change)


def faults(expected: dict[Key, Expected]) -> list[str]:
    """Where the classroom's marks differ from what they must be."""
    found = []
    with classroom.gradebook() as gradebook:
        marks = {
            (hand_in.student.id, hand_in.assignment.name, grade.name): (grade.auto_score, grade.max_score)
            for chapter_id in {chapter_id for _, chapter_id in expected}
            for hand_in in gradebook.assignment_submissions(chapter_id)
            for notebook in hand_in.notebooks
            for grade in notebook.grades
        }
    for (student, chapter_id), outcome in expected.items():
        if not outcome.taken:
            if any(key[:2] == (student, chapter_id) for key in marks):
                found.append(
                    f"{student}, {chapter_id} ({outcome.like}): has a mark, but should not have been collected"
                )
            continue
        shown = _shown(student, chapter_id)
        for exercise in sorted(outcome.exercises()):
            mark = marks.get((student, chapter_id, exercise + chapters.CHECK_SUFFIX))
            wrong = _wrong(outcome, exercise, mark, shown.get(exercise + chapters.CHECK_SUFFIX, ""))
            if wrong:
                found.append(f"{student}, {chapter_id}, {exercise} ({outcome.like}): {wrong}")
    return found


def _wrong(outcome: Expected, exercise: str, mark: tuple[float | None, float] | None, text: str) -> str | None:
    earned, points = mark or (None, 0.0)
    if earned is None:
        return "no mark"
    if exercise in outcome.full and earned != points:
        return f"{earned} of {points}, must be full; {text}"
    if exercise in outcome.nothing and earned != 0:
        return f"{earned} of {points}, must be 0; {text}"
    if exercise in outcome.caught:
        if not 0 <= earned < points:
            return f"{earned} of {points}, must be less than full"
        if f"✗ {outcome.caught[exercise]}" not in text.splitlines():
            return f"must fail {outcome.caught[exercise]!r}; {text}"
    if outcome.reason and outcome.reason not in text:
        return f"must say {outcome.reason!r}; {text}"
    return None


def _shown(student: str, chapter_id: str) -> dict[str, str]:
    """What the graded cells of an autograded notebook show, by grade_id."""
    path = paths.CLASSROOM / "autograded" / student / chapter_id / f"{chapter_id}.ipynb"
    if not path.is_file():
        return {}
    return {
        cell.metadata.nbgrader.grade_id: cell.outputs[0]["data"]["text/plain"]
        for cell in nbformat.read(path, as_version=4).cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    }


def main() -> None:
    """Make, collect and grade the sample class, in a classroom that has no class of its own."""
    from course.grading import collect, feedback, roster, run

    own = roster.find() or {}
    others = {entry.name for entry in (paths.CLASSROOM / "submitted").glob("*")} - set(NAMES)
    if set(own) - set(NAMES) or others:
        print(f"{paths.CLASSROOM} has a class of its own; the sample class is left out.")
        return
    folder = paths.CLASSROOM / "sample"
    released = [name for name in chapters.names().values() if (paths.CLASSROOM / "release" / name).is_dir()]
    if not released:
        raise CourseError(f"no chapter is released in {paths.CLASSROOM}; run `course release` first")
    expected = make(folder, released)
    files.write(roster.path(), (folder / "roster.csv").read_bytes())
    collect.collect(folder)
    run.grade()
    feedback.feedback()
    wrong = faults(expected)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"The sample class's hand-ins: {folder}")
    print(f"Its graded notebooks:        {paths.CLASSROOM / 'autograded'}")
    print(f"Its feedback pages:          {paths.CLASSROOM / 'feedback'}")
    if wrong:
        raise CourseError(f"{len(wrong)} marks of the sample class are not what they must be")
    print(f"All {len(expected)} hand-ins have the marks that they must have.")


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        raise SystemExit(f"Error: {error}") from None
