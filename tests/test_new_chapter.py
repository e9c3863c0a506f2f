"""`course new-chapter`: what it writes already builds, releases and grades."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from course import chapters, new_chapter, paths
from course.grading import trial
from course.release import notebooks

NAME = "a_piece_made_by_a_test"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A new chapter 98 in a copy of the repository's sources."""
    for name in ("chapters", "solutions", "tests", "lib"):
        shutil.copytree(paths.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    shutil.copytree(paths.TESTS / "hidden", tmp_path / "tests" / "hidden", dirs_exist_ok=True)
    shutil.copy(paths.ROOT / "_toc.yml", tmp_path)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    for name in ("chapters", "solutions", "tests", "lib"):
        monkeypatch.setattr(paths, name.upper(), tmp_path / name)
    monkeypatch.setattr("course.grading.hidden.TEST_FOLDER", tmp_path / "tests" / "hidden")
    return new_chapter.create(98, NAME, "A piece made by a test")


def test_the_hidden_tests_tell_right_from_wrong(made: list[Path]) -> None:
    chapter = chapters.find("98")
    cases = [case.kind for case in trial.cases(chapter)]
    assert cases.count("mutant") >= 6 and cases.count("variant") >= 2
    assert trial.run(chapter, seeds=3) == []


def test_it_becomes_a_notebook(made: list[Path]) -> None:
    chapter = chapters.find(NAME)
    assert chapter.title == "A piece made by a test" and chapter.points == 4
    notebook = notebooks.student_notebook(chapter)
    assert any(cell.source.startswith(f"%%lib {NAME}\n") for cell in notebook.cells)


def test_nothing_of_the_templates_is_left(made: list[Path]) -> None:
    for path in made:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"@[A-Z]+@", text), path


def test_stub_and_reference_agree(made: list[Path]) -> None:
    (exercise,) = chapters.find("98").exercises
    stub = exercise.source.partition("def ")[2].rpartition("    raise")[0]
    assert stub and stub in (paths.SOLUTIONS / f"{NAME}.py").read_text(encoding="utf-8")


def test_contents_name_it_in_order(made: list[Path]) -> None:
    listed = re.findall(r"- file: chapters/(\d\d)_", (paths.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert listed == sorted(listed) and listed[-1] == "98"


def test_contents_show_each_chapters_number_and_title(made: list[Path]) -> None:
    contents = yaml.safe_load((paths.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    entries = [entry for part in contents["parts"] for entry in part["chapters"]]
    shown = {entry["file"]: entry["title"] for entry in entries if entry["file"].startswith("chapters/")}
    assert shown == {f"chapters/{c.id}": f"{c.number:02d} · {c.title}" for c in chapters.all_chapters()}


def test_style_is_the_projects(made: list[Path]) -> None:
    shutil.copy(Path(new_chapter.__file__).parents[1] / "pyproject.toml", paths.ROOT)
    python = [str(path) for path in made if path.suffix == ".py"]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *python], cwd=paths.ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
