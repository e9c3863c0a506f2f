"""`course bench grade`: the same submissions graded here and by stock nbgrader, and the speeds compared.

Both sides get the same notebooks, each in a course folder of its own, and each side runs the
command that an instructor would type. Stock nbgrader runs every notebook whole, one after another,
with its default preprocessors; here the exercise cells run in a sandbox, fresh for each
submission, against the hidden tests.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from course import chapters, paths
from course.chapters import Chapter
from course.errors import CourseError

SAMPLE_SECONDS = 0.25
OURS, STOCK = "course grade", "nbgrader autograde"


@dataclass(frozen=True)
class Submission:
    """One notebook handed in by one made-up student."""

    student: str
    chapter: str
    notebook: bytes


@dataclass(frozen=True)
class Run:
    """One side's grading of one round."""

    seconds: float
    peak_bytes: int
    graded: int

    @property
    def per_minute(self) -> float:
        """Submissions graded in a minute."""
        return 60 * self.graded / self.seconds


def grade(chapter_ids: list[str] | None, submissions: int, rounds: int, jobs: int | None) -> None:
    """Measure both sides on these chapters (all if None) and print the comparison.

    Raises:
        CourseError: there is nothing to grade, or a side did not grade every submission.
    """
    if submissions < rounds:
        raise CourseError(f"{submissions} submissions cannot fill {rounds} rounds: give --submissions {rounds} or more")
    console = Console()
    work = make_submissions(chapter_ids, submissions)
    parts = [work[start::rounds] for start in range(rounds)]
    runs: dict[str, list[Run]] = {OURS: [], STOCK: []}
    with tempfile.TemporaryDirectory(prefix="course-bench-") as name:
        with console.status("Preparing both course folders"):
            sides = {OURS: _Ours(Path(name) / "here", jobs), STOCK: _Stock(Path(name) / "stock")}
            for side in sides.values():
                side.prepare(sorted({item.chapter for item in work}))
                side.run(work[:1])  # both start with a warm disk
        for number, part in enumerate(parts):
            order = [OURS, STOCK] if number % 2 == 0 else [STOCK, OURS]
            for label in order:
                with console.status(f"Round {number + 1} of {rounds}: {label} on {len(part)} submissions"):
                    runs[label].append(sides[label].run(part))
    report(console, runs, work)


def report(console: Console, runs: dict[str, list[Run]], work: list[Submission]) -> None:
    """Print what was measured, and how."""
    table = Table(
        "", "submissions a minute (median)", *(f"round {i + 1}" for i in range(len(runs[OURS]))), "peak memory"
    )
    for label, done in runs.items():
        speeds = [run.per_minute for run in done]
        peak = max(run.peak_bytes for run in done) / 2**20
        table.add_row(
            label, f"{statistics.median(speeds):.1f}", *(f"{speed:.1f}" for speed in speeds), f"{peak:,.0f} MiB"
        )
    console.print(table)
    ratios = [ours.per_minute / stock.per_minute for ours, stock in zip(runs[OURS], runs[STOCK], strict=True)]
    console.print(f"ratio: {statistics.median(ratios):.1f} (median of {', '.join(f'{ratio:.1f}' for ratio in ratios)})")
    chapter_ids = sorted({item.chapter for item in work})
    console.print(
        f"{len(work)} submissions of {', '.join(chapter_ids)} (perfect ones and mutants), the same notebooks on both "
        f"sides, on {os.cpu_count()} cores. A round's submissions are graded by both sides in turn, the first side "
        f"alternating, after a warm-up of both. `{OURS}` puts each into a fresh sandbox; `{STOCK}` is nbgrader "
        f"{_version('nbgrader')} as it comes, which runs each notebook whole. Both times include the command's start. "
        f"Memory is the greatest proportional set size of the command and its children.",
        soft_wrap=True,
        highlight=False,
    )


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def make_submissions(chapter_ids: list[str] | None, count: int) -> list[Submission]:
    """Submissions for each of the chapters (all if None) in turn: a perfect one first, then the chapter's mutants.

    Raises:
        CourseError: no chapter has exercises.
    """
    from course.grading import sample_class, specimens

    asked = [chapters.find(key) for key in chapter_ids] if chapter_ids else chapters.all_chapters()
    graded = [chapter for chapter in asked if chapter.exercises]
    if not graded:
        raise CourseError(f"there is no chapter with an exercise in {paths.CHAPTERS}: nothing to grade")
    answers = {
        chapter.id: itertools.cycle(
            [
                specimens.reference_cells(chapter.name),
                *(specimens.submission_cells(mutant) for mutant in specimens.mutants(chapter.name)),
            ]
        )
        for chapter in graded
    }
    made = []
    for number, chapter in zip(range(count), itertools.cycle(graded), strict=False):
        made.append(
            Submission(f"student{number:03d}", chapter.id, sample_class.filled(chapter, next(answers[chapter.id])))
        )
    return made


class _Side:
    """One way to grade, in a course folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template = folder.with_name(folder.name + "-prepared")

    def prepare(self, chapter_ids: list[str]) -> None:
        """Make the course folder that every run starts from, with these chapters released."""
        raise NotImplementedError

    def commands(self, chapter_ids: list[str]) -> list[list[str]]:
        """The commands that grade what was handed in."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The environment of the commands."""
        return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}

    def run(self, submissions: list[Submission]) -> Run:
        """Grade these submissions in a fresh copy of the prepared folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)
        for item in submissions:
            place = self.folder / "submitted" / item.student / item.chapter
            place.mkdir(parents=True)
            (place / f"{item.chapter}.ipynb").write_bytes(item.notebook)
        started = time.perf_counter()
        with PeakMemory() as memory:
            for command in self.commands(sorted({item.chapter for item in submissions})):
                self.call(command, memory)
        seconds = time.perf_counter() - started
        graded = len(list(self.folder.glob("autograded/*/*/*.ipynb")))
        if graded != len(submissions):
            raise CourseError(
                f"{type(self).__name__[1:].lower()} graded {graded} of {len(submissions)}: no comparison made"
            )
        return Run(seconds, memory.peak, graded)

    def call(self, command: list[str], memory: PeakMemory | None = None) -> None:
        """Run one command in the course folder.

        Raises:
            CourseError: it failed; the message has the end of what it said.
        """
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            if memory is not None:
                memory.watch(process.pid)
            code = process.wait()
            said.seek(0)
            if code != 0:
                tail = " / ".join(said.read().strip().splitlines()[-3:])
                raise CourseError(f"`{' '.join(command[-4:])}` ended with code {code}: {tail}")


class _Ours(_Side):
    """This project: `course grade`."""

    def __init__(self, folder: Path, jobs: int | None) -> None:
        super().__init__(folder)
        self.jobs = jobs

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "COURSE_CLASSROOM": str(self.folder), "PYTHONPATH": str(paths.ROOT)}

    def prepare(self, chapter_ids: list[str]) -> None:
        self.folder.mkdir(parents=True)
        self.call([sys.executable, "-m", "course", "release", *chapter_ids])
        self.folder.rename(self.template)

    def commands(self, chapter_ids: list[str]) -> list[list[str]]:
        jobs = [] if self.jobs is None else ["--jobs", str(self.jobs)]
        return [[sys.executable, "-m", "course", "grade", *chapter_ids, *jobs]]


class _Stock(_Side):
    """nbgrader as it comes: no configuration, so its own preprocessors and defaults."""

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in super().environment().items() if not key.startswith("COURSE_")}
        return {**kept, "JUPYTER_CONFIG_DIR": str(self.folder / ".jupyter")}

    def prepare(self, chapter_ids: list[str]) -> None:
        from course.release import notebooks

        self.folder.mkdir(parents=True)
        for chapter_id in chapter_ids:
            chapter = chapters.find(chapter_id)
            source = self.folder / "source" / chapter_id
            source.mkdir(parents=True)
            (source / f"{chapter_id}.ipynb").write_bytes(notebooks.to_bytes(notebooks.student_notebook(chapter)))
            # nbgrader lays these beside every submission, so that `import lib` and `%load_ext course` work.
            for name, content in _beside(chapter).items():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                (source / name).write_bytes(content)
            self.call([sys.executable, "-m", "nbgrader", "generate_assignment", chapter_id, "--create", "--force"])
        self.folder.rename(self.template)

    def commands(self, chapter_ids: list[str]) -> list[list[str]]:
        start = [sys.executable, "-m", "nbgrader", "autograde"]
        return [[*start, chapter_id, "--create"] for chapter_id in chapter_ids]


def _beside(chapter: Chapter) -> dict[str, bytes]:
    """The student's tooling, and `lib` as it is when this chapter begins."""
    from course.grading.verdict import given_files
    from course.release import workspace

    found = {
        name: content for name, content in workspace.files({chapter.id: b""}).items() if name.startswith("course/")
    }
    return found | {f"lib/{name}": content for name, content in given_files(chapter).items()}


class PeakMemory:
    """The greatest memory of a process and all its descendants while this is open."""

    def __init__(self) -> None:
        self.peak = 0
        self._root: psutil.Process | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def watch(self, pid: int) -> None:
        """Look at this process and its descendants from now on."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._root = psutil.Process(pid)

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            if self._root is not None:
                self.peak = max(self.peak, sum(_proportional_bytes(self._root)))


def _proportional_bytes(root: psutil.Process) -> Iterator[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, FileNotFoundError, ProcessLookupError):
                full = process.memory_full_info()
                yield getattr(full, "pss", full.rss)  # only Linux tells how much of shared pages is whose
