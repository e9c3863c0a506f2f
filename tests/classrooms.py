"""Small classrooms for the tests of grading: chapter 01 released, and hand-ins put into it."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import nbformat
import pytest
from nbformat import NotebookNode

from course import chapters, paths
from course.grading import classroom, files, sample_class, specimens
from course.release import release

CHAPTER = "01_softmax"
STAMP = "2026-01-02 03:04:05 UTC\n"


@functools.cache
def _released() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="classroom-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with mock.patch.object(paths, "CLASSROOM", folder):
        release([CHAPTER])
    for name in ("workspace", "workspace.zip"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


@dataclass
class Classroom:
    """A classroom of one's own."""

    root: Path

    @classmethod
    def fresh(cls, root: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
        """A copy of the released one, which the code under test takes for the real one."""
        shutil.copytree(_released(), root)
        monkeypatch.setattr(paths, "CLASSROOM", root)
        monkeypatch.setenv("COURSE_CLASSROOM", str(root))
        monkeypatch.delenv("COURSE_DB_URL", raising=False)
        monkeypatch.setenv("COLUMNS", "200")
        return cls(root)

    def hand_in(self, student: str, content: bytes, name: str = f"{CHAPTER}.ipynb") -> Path:
        """Put a file into the student's folder, as collecting does."""
        folder = self.root / "submitted" / student / CHAPTER
        files.write(folder / name, content)
        files.write(folder / "timestamp.txt", STAMP)
        return folder / name

    def marks(self) -> dict[str, dict[str, float | None]]:
        """Student to exercise to automatic mark, from the gradebook."""
        with classroom.gradebook() as gradebook:
            return {
                one.student.id: {
                    grade.name.removesuffix("_check"): grade.auto_score
                    for notebook in one.notebooks
                    for grade in notebook.grades
                }
                for one in gradebook.assignment_submissions(CHAPTER)
            }

    def totals(self) -> dict[str, float]:
        """Student to marks in all."""
        return {student: sum(mark or 0.0 for mark in of.values()) for student, of in self.marks().items()}

    def autograded(self, student: str) -> NotebookNode:
        """The autograded notebook."""
        return nbformat.read(self.root / "autograded" / student / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)

    def shown(self, student: str) -> str:
        """All that the graded cells of the autograded notebook say."""
        graded = [cell for cell in self.autograded(student).cells if cell.metadata.get("nbgrader", {}).get("grade")]
        return "\n".join(cell.outputs[0]["data"]["text/plain"] for cell in graded)

    def run(self, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A command in the repository root, on this classroom."""
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=paths.ROOT,
            env={**os.environ, "COURSE_CLASSROOM": str(self.root), "NO_COLOR": "1", "COLUMNS": "160", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=300,
        )


def perfect() -> bytes:
    """The notebook of a student whose every answer is right."""
    return sample_class.filled(chapters.find(CHAPTER), specimens.reference_cells("softmax"))


def blank() -> bytes:
    """The released notebook, untouched."""
    return sample_class.filled(chapters.find(CHAPTER), {})


def changed(change: Callable[[NotebookNode], None], answers: dict[str, str] | None = None) -> bytes:
    """The released notebook with these answers, and then changed."""
    return sample_class.filled(chapters.find(CHAPTER), answers or {}, change)


def graded_cell(notebook: NotebookNode, grade_id: str) -> NotebookNode:
    """The cell with this grade_id."""
    return next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == grade_id)
