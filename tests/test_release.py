"""The release: notebooks, nbgrader's assignments, the student workspace as folder and zip."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement

from course import chapters, definitions, paths, shipped
from course.chapters import Chapter
from course.errors import CourseError
from course.release import notebooks, release, requirements, workspace
from tests import released

EVERY_CHAPTER = pytest.mark.parametrize("chapter", chapters.all_chapters(), ids=lambda chapter: chapter.id)
WINDOWS = {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt", "platform_machine": "AMD64"}
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}


# Notebooks


@EVERY_CHAPTER
def test_a_notebook_is_the_same_every_time(chapter: Chapter) -> None:
    first, second = (notebooks.student_notebook(chapter) for _ in range(2))
    assert notebooks.to_bytes(first) == notebooks.to_bytes(second)
    nbformat.validate(first)
    assert first.nbformat == 4 and first.nbformat_minor == 5
    ids = [cell.id for cell in first.cells]
    assert len(ids) == len(set(ids))
    for cell in first.cells:
        if "nbgrader" in cell.metadata:
            assert cell.id == cell.metadata.nbgrader.grade_id
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None


@EVERY_CHAPTER
def test_a_notebook_holds_the_chapters_code_to_the_letter(chapter: Chapter) -> None:
    source = [cell for cell in chapter.notebook().cells if cell.cell_type == "code"]
    made = [cell for cell in notebooks.student_notebook(chapter).cells if cell.cell_type == "code"]
    assert [cell.source for cell in made] == [cell.source for cell in source]
    assert [cell.metadata.get("nbgrader") for cell in made] == [cell.metadata.get("nbgrader") for cell in source]
    assert "setup" in made[0].metadata.tags


@EVERY_CHAPTER
def test_no_myst_remains_in_the_text(chapter: Chapter) -> None:
    for cell in notebooks.student_notebook(chapter).cells:
        if cell.cell_type != "markdown":
            continue
        fenced = False
        for line in cell.source.splitlines():
            fenced ^= line.lstrip("> ").startswith("```")
            if not fenced:
                assert not line.lstrip("> ").startswith((":::", "```{", "% ")), line
                assert not line.endswith(")="), line
                assert "}`" not in line.replace("$", "") or "{" not in line.split("}`")[0], line


def test_folded_code_is_folded_in_the_notebook() -> None:
    for chapter in chapters.all_chapters():
        for cell in notebooks.student_notebook(chapter).cells:
            folded = {"hide-input", "remove-input", "hide-cell", "remove-cell"} & set(cell.metadata.get("tags", []))
            assert bool(folded) == bool(cell.metadata.get("jupyter", {}).get("source_hidden")), cell.id


# What a release holds


def test_nbgrader_knows_every_chapter_and_its_points() -> None:
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{released.classroom() / 'gradebook.db'}") as book:
        found = {
            assignment.name: {
                cell.name: cell.max_score for notebook in assignment.notebooks for cell in notebook.grade_cells
            }
            for assignment in book.assignments
        }
    wanted = {
        chapter.id: {exercise.check_id: exercise.points for exercise in chapter.exercises}
        for chapter in chapters.all_chapters()
    }
    assert found == wanted and wanted


def test_released_cells_carry_nbgraders_checksums_and_locks() -> None:
    for chapter in chapters.all_chapters():
        notebook = nbformat.read(released.classroom() / "release" / chapter.id / f"{chapter.id}.ipynb", as_version=4)
        graded = [cell for cell in notebook.cells if "nbgrader" in cell.metadata]
        assert len(graded) == 2 * len(chapter.exercises)
        for cell in graded:
            assert cell.metadata.nbgrader.checksum
            assert cell.metadata.deletable is False
            assert cell.metadata.get("editable", True) is not cell.metadata.nbgrader.locked


def test_folder_and_zip_hold_the_same(tmp_path: Path) -> None:
    unpacked = _contents(released.unpack(tmp_path))
    folder = _contents(released.classroom() / "workspace")
    assert folder.pop(workspace.MANIFEST)
    assert unpacked == folder
    for chapter in chapters.all_chapters():
        assert f"{chapter.id}.ipynb" in unpacked
    for name in ("README.md", "LICENSE", "LICENSE-text", "requirements.txt", "pyproject.toml", "lib/__init__.py"):
        assert name in unpacked
    assert not [name for name in unpacked if name.startswith(("solutions", "tests", "chapters", "course/grading"))]
    assert not [name for name in unpacked if Path(name).name in workspace.INSTRUCTOR_ONLY]


def test_the_zip_depends_on_nothing_but_its_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(released.classroom() / "workspace.zip") as archive:
        files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        assert {entry.date_time for entry in archive.infolist()} == {workspace.FIXED_TIME}
        assert archive.namelist() == sorted(archive.namelist())
    workspace.write_zip(dict(reversed(files.items())), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (released.classroom() / "workspace.zip").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.zip"]


def test_no_workspace_is_already_solved(tmp_path: Path) -> None:
    files = _contents(released.unpack(tmp_path))
    modules = set(chapters.names())
    assert modules and not [name for name in files if name.startswith("lib/") and Path(name).stem in modules]
    for chapter in chapters.all_chapters():
        notebook = nbformat.reads(files[f"{chapter.id}.ipynb"].decode("utf-8"), as_version=4)
        stubs = [cell.source for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
        assert len(stubs) == len(chapter.exercises)
        for source in stubs:
            module, code = chapters.split_magic(source)
            assert module == chapter.name
            defined = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
            assert defined and all(definitions.is_stub(node) for node in defined)
    done = _python(tmp_path, "-m", "course", "status")
    assert done.returncode == 0 and "passed" not in done.stdout and "yours" not in done.stdout


@pytest.mark.parametrize("name", ["lib/{module}.py", "lib/{module}/__init__.py", "solutions/x.py", "lib/.history/x.py"])
def test_a_solved_workspace_is_refused(name: str) -> None:
    module = next(iter(chapters.names()))
    with pytest.raises(CourseError, match="take it out"):
        workspace.require_unsolved({name.format(module=module): b""})


def test_what_is_shipped_for_checking_is_the_chapter(tmp_path: Path) -> None:
    released.unpack(tmp_path)
    for chapter in chapters.all_chapters():
        text = (tmp_path / f"course/shipped/{chapter.id}.json").read_text(encoding="utf-8")
        assert shipped.from_json(text) == shipped.from_chapter(chapter)
        assert "import" in shipped.from_json(text).setup


# The student's part works alone


def test_the_students_part_needs_nothing_of_the_instructors(tmp_path: Path) -> None:
    released.unpack(tmp_path)
    modules = sorted(f"course.{file.stem}" for file in (tmp_path / "course").glob("[a-z]*.py"))
    assert {"course.check", "course.cli", "course.figures", "course.quizzes", "course.status"} <= set(modules)
    script = (
        f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
        "print(*sorted(n for n in sys.modules if n.startswith(('course', 'nbgrader', 'sphinx', 'jupytext'))))"
    )
    done = _python(tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"course", *modules}


def test_the_command_line_offers_the_students_commands_only(tmp_path: Path) -> None:
    released.unpack(tmp_path)
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom course.cli import app\n"
        "print(CliRunner().invoke(app, ['--help']).output)\nprint('torch' in sys.modules)"
    )
    done = _python(tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
    for command in ("lab", "check", "status", "doctor"):
        assert f" {command} " in done.stdout
    for command in ("release", "grade", "feedback", "collect"):
        assert f" {command} " not in done.stdout
    assert done.stdout.rstrip().endswith("False")  # help must not wait for torch


def test_the_workspaces_own_package_installs_the_command(tmp_path: Path) -> None:
    import tomllib

    released.unpack(tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"] == {"course": "course.cli:main"}
    assert project["tool"]["setuptools"]["packages"] == ["course", "lib"]
    assert (tmp_path / "requirements.txt").read_text(encoding="utf-8").splitlines()[-1] == "-e ."


# Requirements


def test_requirements_are_pinned_and_complete() -> None:
    lines = [Requirement(line) for line in requirements.student()]
    assert all(str(line.specifier).startswith("==") for line in lines)
    names = {requirements.canonical(line.name) for line in lines}
    assert set(requirements.direct()) <= names
    # Every pin's own dependencies are pinned as well, as the installed packages state them.
    import importlib.metadata

    for line in lines:
        if line.marker and not line.marker.evaluate():
            continue
        for text in importlib.metadata.requires(line.name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert requirements.canonical(needed.name) in names, f"{line.name} needs {needed}"
    assert not names & {"nbgrader", "jupyter-book", "jupytext", "sphinx", "pytest", "hypothesis", "mypy", "dask"}


def test_requirements_fit_each_system() -> None:
    def wanted(environment: dict[str, str]) -> set[str]:
        lines = [Requirement(line) for line in requirements.student()]
        return {line.name for line in lines if line.marker is None or line.marker.evaluate(environment)}

    assert {"torch", "jupyterlab", "triton", "pexpect"} <= wanted(LINUX)
    assert {"torch", "jupyterlab", "colorama", "pywinpty"} <= wanted(WINDOWS)
    assert not wanted(WINDOWS) & {"triton", "pexpect", "appnope"}


# Releasing again


def test_releasing_again_changes_nothing_and_keeps_the_students_work(tmp_path: Path) -> None:
    files = {"01_x.ipynb": b"one", "README.md": b"read", "course/cli.py": b"tool", "old.md": b"old"}
    assert workspace.update_folder(files, tmp_path) == []
    before = _contents(tmp_path)
    assert workspace.update_folder(files, tmp_path) == [] and _contents(tmp_path) == before

    (tmp_path / "01_x.ipynb").write_bytes(b"one, with my answers")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/x.py").write_bytes(b"mine")
    (tmp_path / "course/cli.py").write_bytes(b"tampered with")
    assert workspace.update_folder(files, tmp_path) == ["01_x.ipynb"]
    assert not (tmp_path / "01_x.new.ipynb").exists()

    newer = {"01_x.ipynb": b"two", "README.md": b"read again", "course/cli.py": b"tool 2"}
    assert workspace.update_folder(newer, tmp_path) == ["01_x.ipynb"]
    found = _contents(tmp_path)
    assert found["01_x.ipynb"] == b"one, with my answers" and found["01_x.new.ipynb"] == b"two"
    assert found["lib/x.py"] == b"mine"
    assert found["README.md"] == b"read again" and found["course/cli.py"] == b"tool 2"
    assert "old.md" not in found

    (tmp_path / "01_x.ipynb").write_bytes(b"two")  # the student takes the new one over
    assert workspace.update_folder(newer, tmp_path) == []
    assert not (tmp_path / "01_x.new.ipynb").exists()


def test_a_broken_off_update_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.update_folder({"a.md": b"1", "b.md": b"1"}, tmp_path)
    write_file = workspace.write_file

    def stops(path: Path, content: bytes) -> None:
        if path.name == "b.md":
            raise KeyboardInterrupt
        write_file(path, content)

    monkeypatch.setattr(workspace, "write_file", stops)
    with pytest.raises(KeyboardInterrupt):
        workspace.update_folder({"a.md": b"2", "b.md": b"2"}, tmp_path)
    monkeypatch.undo()
    assert workspace.update_folder({"a.md": b"3", "b.md": b"3"}, tmp_path) == []
    found = _contents(tmp_path)
    assert (found["a.md"], found["b.md"]) == (b"3", b"3")


def test_a_chapter_that_cannot_be_released_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "chapters"
    shutil.copytree(paths.CHAPTERS, sources)
    original = chapters.files()[0]
    text = original.read_text(encoding="utf-8")
    (sources / original.name).write_text(text + "\n:::{carousel}\nno such thing\n:::\n", encoding="utf-8")
    monkeypatch.setattr(paths, "CHAPTERS", sources)
    monkeypatch.setattr(paths, "CLASSROOM", tmp_path / "classroom")
    with pytest.raises(CourseError, match=rf"{original.stem}: a \{{carousel\}} block"):
        release()
    assert not (tmp_path / "classroom").exists()


def test_no_chapters_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CHAPTERS", tmp_path)
    with pytest.raises(CourseError, match="there is no chapter"):
        release()


def test_release_twice_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = chapters.all_chapters()[0].id
    monkeypatch.setattr(paths, "CLASSROOM", tmp_path)
    digests = set()
    for _ in range(2):
        assert release([first]) == tmp_path / "workspace"
        digests.add(hashlib.sha256((tmp_path / "workspace.zip").read_bytes()).hexdigest())
    assert len(digests) == 1
    assert [path.name for path in (tmp_path / "workspace").glob("*.ipynb")] == [f"{first}.ipynb"]
    assert json.loads((tmp_path / "workspace" / workspace.MANIFEST).read_text(encoding="utf-8"))
    # A run killed inside nbgrader leaves a source without its release; releasing another chapter mends it.
    shutil.rmtree(tmp_path / "release" / first)
    second = chapters.all_chapters()[1].id
    release([second])
    assert {path.stem for path in (tmp_path / "workspace").glob("*.ipynb")} == {first, second}


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "PYTHONUTF8": "1", "PYTHONPATH": str(folder)},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
