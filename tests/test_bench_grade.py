"""`course bench grade`: the same notebooks for both sides, and a comparison only of what was graded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from rich.console import Console

from course import bench_grade
from course.bench_grade import Run, make_submissions
from course.errors import CourseError


def test_submissions_begin_with_a_perfect_one_and_go_on_with_mutants() -> None:
    made = make_submissions(["01"], 4)
    assert [item.student for item in made] == ["student000", "student001", "student002", "student003"]
    assert {item.chapter for item in made} == {"01_softmax"}
    assert len({item.notebook for item in made}) == 4, "four different notebooks"
    for item in made:
        notebook = nbformat.reads(item.notebook.decode("utf-8"), as_version=4)
        answers = [cell for cell in notebook.cells if cell.source.startswith("%%lib softmax")]
        assert answers and not any("NotImplementedError" in cell.source for cell in answers)


def test_submissions_take_the_chapters_in_turn() -> None:
    made = make_submissions(["00", "01"], 4)
    assert [item.chapter[:2] for item in made] == ["00", "01", "00", "01"]


def test_report_gives_ratio_medians_and_memory() -> None:
    ours = [
        Run(6.0, 700 * 2**20, 8),
        Run(8.0, 800 * 2**20, 8),
        Run(6.0, 600 * 2**20, 8),
    ]
    stock = [
        Run(48.0, 300 * 2**20, 8),
        Run(40.0, 300 * 2**20, 8),
        Run(60.0, 310 * 2**20, 8),
    ]
    console = Console(record=True, width=200, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open as long as the console)
    bench_grade.report(console, {bench_grade.OURS: ours, bench_grade.STOCK: stock}, make_submissions(["01"], 1))
    said = console.export_text()
    assert "80.0" in said and "10.0" in said  # the medians of 80, 60, 80 and of 10, 12, 8
    assert "ratio: 8.0 (median of 8.0, 5.0, 10.0)" in said
    assert "800 MiB" in said and "310 MiB" in said


def test_too_few_submissions_for_the_rounds() -> None:
    with pytest.raises(CourseError, match="cannot fill 3 rounds"):
        bench_grade.grade(["01"], submissions=2, rounds=3, jobs=1)


class _Lazy(bench_grade._Side):
    """A side that leaves the submissions ungraded."""

    def commands(self, chapter_ids: list[str]) -> list[list[str]]:
        return [[sys.executable, "-c", "pass"]]


def test_a_side_that_grades_less_gives_no_number(tmp_path: Path) -> None:
    side = _Lazy(tmp_path / "lazy")
    side.template.mkdir()
    with pytest.raises(CourseError, match="graded 0 of 1"):
        side.run(make_submissions(["01"], 1))


def test_memory_counts_children() -> None:
    child = "x = bytearray(80 * 2**20); import time; time.sleep(2)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with bench_grade.PeakMemory() as memory:
        process = subprocess.Popen([sys.executable, "-c", code])
        memory.watch(process.pid)
        process.wait()
        time.sleep(0.1)
    assert 80 * 2**20 < memory.peak < 400 * 2**20
