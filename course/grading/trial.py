"""Put a chapter's hidden tests on trial: `python -m course.grading.trial 01 [--wall] [--seeds 20]`.

The reference and every variant must earn full marks, the stub none, and every mutant must fail the
property that names its mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import typer
from rich.console import Console

from course import chapters
from course.chapters import Chapter
from course.grading import specimens
from course.grading.specimens import Specimen
from course.grading.verdict import Verdict, judge_cells


@dataclass(frozen=True)
class Case:
    """One set of answers, and what must come of it."""

    kind: str  # reference, stub, mutant, variant
    label: str
    cells: dict[str, str]
    specimen: Specimen | None = None

    @property
    def only(self) -> str | None:
        """The exercise to judge: of a mutant its own, since later ones may call it and earlier ones cannot."""
        return self.specimen.exercise if self.specimen and self.specimen.caught_by else None


def cases(chapter: Chapter) -> Iterator[Case]:
    """Every case of a chapter's trial."""
    yield Case("reference", "the reference", specimens.reference_cells(chapter.name))
    yield Case("stub", "the untouched stubs", {exercise.id: exercise.source for exercise in chapter.exercises})
    for kind, found in (("mutant", specimens.mutants(chapter.name)), ("variant", specimens.variants(chapter.name))):
        for one in found:
            yield Case(kind, f"{one.name}: {one.label}", specimens.submission_cells(one), one)


def fault(case: Case, verdict: Verdict) -> str | None:
    """What is wrong with the hidden tests, if they give this verdict on this case."""
    if case.kind == "stub":
        return None if verdict.earned == 0 else f"the stub earns {verdict.earned}"
    spoilt = [exercise for exercise in verdict.exercises if exercise.earned < exercise.points]
    if case.specimen is None or case.specimen.caught_by is None:
        reasons = [e.problem for e in spoilt if e.problem]
        reasons += [f"{p.says}: {p.message}" for e in spoilt for p in e.properties if not p.passed]
        return f"loses marks: {reasons}" if spoilt else None
    (target,) = verdict.exercises
    if target.problem:
        return f"could not be tested: {target.problem}"
    if case.specimen.caught_by not in target.failed:
        return f"not caught by {case.specimen.caught_by!r}, but by {target.failed or 'nothing'}"
    return None


def run(chapter: Chapter, seeds: int = 1, wall: bool = False, console: Console | None = None) -> list[str]:
    """Try every case with this many seeds; returns the faults."""
    faults: list[str] = []
    for case in cases(chapter):
        for seed in range(seeds):
            verdict = judge_cells(chapter.id, case.cells, [], seed, only=case.only, wall=wall)
            found = fault(case, verdict)
            if found:
                faults.append(f"{case.kind} · {case.label} (seed {seed}): {found}")
        if console:
            failed = [says for exercise in verdict.exercises for says in exercise.failed]
            mark = "[red]✗[/]" if any(case.label in f for f in faults) else "[green]✓[/]"
            console.print(f"{mark} {case.kind:9} {verdict.earned:5g}/{verdict.points:g}  {case.label}", highlight=False)
            if case.kind == "mutant":
                console.print(f"      fails: {failed}", style="dim", highlight=False)
    return faults


def command(chapter: str, wall: bool = False, seeds: int = 1) -> None:
    """Put the hidden tests of CHAPTER on trial."""
    console = Console()
    faults = run(chapters.find(chapter), seeds, wall, console)
    for one in faults:
        console.print(one, style="red", highlight=False)
    if faults:
        raise typer.Exit(1)


def main() -> None:
    """The command line."""
    typer.run(command)


if __name__ == "__main__":
    main()
