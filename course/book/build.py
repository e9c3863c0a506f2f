"""`course book`: Jupyter Book's own build, with a progress bar and errors of one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from course import paths
from course.book.extension import WITH_SOLUTIONS
from course.errors import CourseError

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
STEP = re.compile(r"(reading sources|writing output)\.\.\. \[ *(\d+)%\] (.*)")
RUNNING = re.compile(r"^(.*): Executing notebook using")
PROBLEM = re.compile(r"(?:^|: )(WARNING|ERROR|CRITICAL): (.*)")
STAGE = re.compile(r"^[a-z][a-z ]+\.\.\. (?:done|none found)?\s*")
# Sphinx prints the kind of an error, and what it says on the same line or the next.
CATEGORY = re.compile(r"^(?:Book|Notebook|Sphinx|Theme|Configuration) error[^:]*:\s*(.*)")

JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"


def build(with_solutions: bool = False, root: Path | None = None) -> Path:
    """Build the book and return the folder of its pages.

    Args:
        with_solutions: fold each reference solution under its exercise; such pages go to a
            folder of their own.
        root: the folder of `_config.yml`; this repository by default.

    Raises:
        CourseError: a cell failed, a page has a warning, or the book is malformed; the message
            names the page, the cell and the error.
    """
    root = root or paths.ROOT
    if not (root / "_config.yml").is_file():
        raise CourseError(f"there is no book to build in {root}: _config.yml is missing (run this in the repository)")
    output = root / "_build" / "with-solutions" if with_solutions else root
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", str(root), "--path-output", str(output)]
    environment = {**os.environ, WITH_SOLUTIONS: "1" if with_solutions else "0", "PYTHONUTF8": "1"}
    process = subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    try:
        lines = list(_shown(process, root))
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.wait() != 0:
        raise CourseError(explanation(lines, root))
    return output / "_build" / "html"


def _shown(process: subprocess.Popen[str], root: Path) -> Iterator[str]:
    """The build's lines of output, shown as progress while they come."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    assert process.stdout is not None
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Reading the book", total=200)
        for line in process.stdout:
            text = ESCAPES.sub("", line).rstrip()
            if step := STEP.search(text):
                reading = step.group(1).startswith("reading")
                done = int(step.group(2)) + (0 if reading else 100)
                progress.update(task, completed=done, description=f"{'Read' if reading else 'Wrote'} {step.group(3)}")
            elif running := RUNNING.search(text):
                progress.update(task, description=f"Running {_relative(running.group(1), root)}")
            yield text


def explanation(lines: list[str], root: Path) -> str:
    """One line out of a failed build's output: the first problem, and how many more there are."""
    problems, reasons = [], []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if found := PROBLEM.search(line):
            # A failed cell is reported twice: the line that names cell and error is the better one.
            if "Executing notebook failed" not in line:
                problems.append((found.group(1), _relative(STAGE.sub("", line), root)))
        elif reason := CATEGORY.search(line):
            reasons.append(reason.group(1) or following)
    problems.sort(key=lambda problem: problem[0] == "WARNING")  # errors first
    if not problems:
        last = next((text for text in [*reasons, *reversed(lines)] if text.strip(" =-")), "no output")
        return f"the book could not be built: {last} (run `jupyter-book build .` to see all)"
    more = f" (and {len(problems) - 1} more: run `jupyter-book build .` to see all)" if len(problems) > 1 else ""
    return f"the book could not be built: {problems[0][1]}{more}"


def _relative(text: str, root: Path) -> str:
    return text.replace(f"{root}{os.sep}", "")
