"""A student's walk: from the released zip in an empty folder to full marks, chapter after chapter.

Each chapter's cells run in a real kernel, first as they come (the checks fail), then with answers.
Nothing but the workspace, Python's own library and what its requirements name may be imported.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from course import chapters, paths
from course.chapters import Chapter
from course.grading import hidden, intake, specimens, verdict
from course.release import requirements
from tests import released

CHAPTERS = chapters.all_chapters()
# Put into every Python that a student starts: what the zip does not ask for is not there.
NOTHING_ELSE = """\
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec


def find_spec_of_what_is_there(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in ABSENT else find_spec(name, path, target)


PathFinder.find_spec = classmethod(find_spec_of_what_is_there)
"""
LIST_MODULES = """\
import json as _json, sys as _sys
print("MODULES", _json.dumps([str(getattr(m, "__file__", None) or "") for m in list(_sys.modules.values())]))
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip, unpacked; the chapters are walked through in it one after the other."""
    folder = released.unpack(tmp_path_factory.mktemp("a student"))
    asked_for = required(folder)
    absent = {
        top
        for top, names in importlib.metadata.packages_distributions().items()
        if not asked_for & {requirements.canonical(name) for name in names} and top != "course"
    }
    assert {"nbgrader", "jupytext", "sphinx", "pytest"} <= absent
    hook = folder.parent / "nothing else"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(f"ABSENT = {sorted(absent)!r}\n{NOTHING_ELSE}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.id)
def test_walk(chapter: Chapter, workspace: Path) -> None:
    path = workspace / f"{chapter.id}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    lib = workspace / "lib" / f"{chapter.name}.py"
    later = [other.name for other in CHAPTERS if other.number >= chapter.number]
    assert not [name for name in later if (workspace / f"lib/{name}.py").exists()], "walk through them in order"
    answers = specimens.reference_cells(chapter.name)

    with kernel(notebook, workspace) as run:
        as_it_comes(run, notebook, chapter, lib)
        code, printed = course(workspace, "check", chapter.id)
        assert code == 1 and printed.count("not started") == len(chapter.exercises)

        no_error_passes_in_silence(run, notebook, chapter, answers, lib)
        for cell in notebook.cells:
            if is_exercise(cell):
                cell.source = f"%%lib {chapter.name}\n{answers[cell.metadata.nbgrader.grade_id]}"
        for index, cell in enumerate(notebook.cells):
            assert run(index) is None, cell.source
            if is_exercise(cell):
                grown = lib.read_text(encoding="utf-8")
                for name in named(chapter, cell.metadata.nbgrader.grade_id).names:
                    assert re.search(rf"^(def|class) {name}\b", grown, re.M)
        assert_all_is_required(imported(run, notebook), workspace)
    nbformat.write(notebook, path)

    code, printed = course(workspace, "check", chapter.id)
    assert code == 0, printed
    assert f"{chapter.points:g} of {chapter.points:g} points" in printed
    submission = intake.parse(path.read_bytes(), chapter)
    judged = verdict.judge_cells(chapter.id, submission.cells, submission.extra, seed=7)
    assert [(e.id, e.earned) for e in judged.exercises] == [(e.id, e.points) for e in chapter.exercises]


def test_a_finished_course_shows_as_finished(workspace: Path) -> None:
    code, printed = course(workspace, "check")
    assert code == 0, printed
    code, printed = course(workspace, "status")
    assert code == 0 and "The course is finished" in printed
    assert printed.count("yours") == printed.count("finished") - 1 == len(CHAPTERS)
    for word in ("not started", "not checked", "failed", "missing", "reference"):
        assert word not in printed


def test_the_commands_import_only_what_is_required(workspace: Path) -> None:
    script = f"from course import check, doctor, status\nstatus.main()\nlist(doctor.packages())\n{LIST_MODULES}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=workspace,
        capture_output=True,
        encoding="utf-8",
        env=environment(workspace),
        check=True,
    )
    assert_all_is_required(listed(done.stdout), workspace)


# The marks agree with what the visible checks promise


def test_an_answer_in_an_earlier_cell_earns_nothing_for_a_later_wrong_one() -> None:
    chapter = next(chapter for chapter in CHAPTERS if len(chapter.exercises) > 1)
    answers = specimens.reference_cells(chapter.name)
    first, second = chapter.exercises[:2]
    name = second.names[0]
    wrong = f"def {name}(*args, **kwargs):\n    return None\n"
    cells = {**answers, first.id: answers[first.id] + "\n\n" + answers[second.id], second.id: wrong}
    judged = {e.id: e for e in verdict.judge_cells(chapter.id, cells, [], seed=3, wall=False).exercises}
    assert judged[second.id].earned == 0
    assert judged[first.id].earned == first.points


def test_a_hidden_test_that_compares_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    chapter = CHAPTERS[0]

    def loops_over_nothing(student: object, check: hidden.Check) -> None:
        for number in range(0):
            check.equal(number, number, "never reached")

    tests = [hidden.HiddenTest(e.id, f"nothing of {e.id}", "", 1.0, loops_over_nothing) for e in chapter.exercises]
    monkeypatch.setattr(hidden, "load", lambda name: tests)
    with pytest.raises(ValueError, match="compared nothing"):
        verdict.judge_cells(chapter.id, specimens.reference_cells(chapter.name), [], seed=3, wall=False)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.id)
def test_hidden_tests_have_no_later_chapter_to_lean_on(chapter: Chapter) -> None:
    given = verdict.given_files(chapter)
    modules = {Path(name).stem for name in given} & set(chapters.names())
    assert modules == {other.name for other in CHAPTERS if other.number < chapter.number}


# Steps of the walk


def as_it_comes(run: Run, notebook: NotebookNode, chapter: Chapter, lib: Path) -> None:
    """Run the setup cell, the stubs and the checks, untouched: every check says `not started`."""
    for index, cell in enumerate(notebook.cells):
        if "setup" in cell.metadata.get("tags", []) or is_exercise(cell):
            assert run(index) is None, cell.source
        elif is_check(cell):
            error = run(index)
            assert error is not None and error.ename == "NotImplementedError", cell.source
    assert "raise NotImplementedError" in lib.read_text(encoding="utf-8")


def no_error_passes_in_silence(
    run: Run, notebook: NotebookNode, chapter: Chapter, answers: dict[str, str], lib: Path
) -> None:
    """A cell with a syntax error, or one that would go to the wrong module, fails and writes nothing."""
    index = next(index for index, cell in enumerate(notebook.cells) if is_exercise(cell))
    answer = answers[notebook.cells[index].metadata.nbgrader.grade_id]
    stub = notebook.cells[index].source
    before = {file.name: file.read_bytes() for file in lib.parent.glob("*.py")}
    for source in (f"%%lib {chapter.name}\n{answer}\nx = (", f"%%lib {chapter.name}s\n{answer}", f"%%lib\n{answer}"):
        for _ in range(2):  # and the second time as well
            notebook.cells[index].source = source
            assert run(index) is not None
    notebook.cells[index].source = stub
    assert {file.name: file.read_bytes() for file in lib.parent.glob("*.py")} == before


def is_exercise(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def is_check(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def named(chapter: Chapter, exercise: str) -> chapters.Exercise:
    return next(item for item in chapter.exercises if item.id == exercise)


# The kernel and the commands


class Run:
    """Runs cells of a notebook, by index, in its one kernel; returns the error if there was one."""

    def __init__(self, client: NotebookClient) -> None:
        self.client = client

    def __call__(self, index: int) -> CellExecutionError | None:
        cell = self.client.nb.cells[index]
        if cell.cell_type != "code":
            return None
        try:
            self.client.execute_cell(cell, index)
        except CellExecutionError as error:
            return error
        return None


@contextlib.contextmanager
def kernel(notebook: NotebookNode, workspace: Path) -> Iterator[Run]:
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(workspace)}}
    )
    with client.setup_kernel(env=environment(workspace)):
        yield Run(client)


def environment(workspace: Path) -> dict[str, str]:
    """A student's environment: nothing of the repository or of the tests in it."""
    return {
        **{key: value for key, value in os.environ.items() if key != paths.REFERENCE_MODE},
        "PYTHONPATH": str(workspace.parent / "nothing else"),
        "COLUMNS": "200",
        "PYTHONUTF8": "1",
    }


def course(workspace: Path, *arguments: str) -> tuple[int, str]:
    """Run a command in the workspace: its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "course", *arguments],
        cwd=workspace,
        env=environment(workspace),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


# What was imported


def imported(run: Run, notebook: NotebookNode) -> list[str]:
    """The files of every module that the kernel has imported."""
    cell = nbformat.v4.new_code_cell(LIST_MODULES)
    notebook.cells.append(cell)
    assert run(len(notebook.cells) - 1) is None
    notebook.cells.pop()
    return listed("".join(output.get("text", "") for output in cell.outputs))


def listed(printed: str) -> list[str]:
    line = next(line for line in printed.splitlines() if line.startswith("MODULES "))
    found: list[str] = json.loads(line.removeprefix("MODULES "))
    return [file for file in found if Path(file).is_absolute()]  # torch.ops, for one, has a made-up file


def required(workspace: Path) -> set[str]:
    """The distributions that the workspace's requirements name."""
    lines = [
        line
        for name in ("requirements.txt", "requirements-weights.txt")
        for line in (workspace / name).read_text(encoding="utf-8").splitlines()
    ]
    found = {requirements.canonical(match.group(1)) for line in lines if (match := requirements.PINNED.match(line))}
    assert {"torch", "jupyterlab"} <= found
    return found


def assert_all_is_required(files: list[str], workspace: Path) -> None:
    """Every module is the workspace's, Python's own, or of a distribution that the zip asks for."""
    allowed = required(workspace)
    providers = importlib.metadata.packages_distributions()
    site = Path(sysconfig.get_path("purelib")).resolve()
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    seen = set()
    for file in files:
        path = Path(file).resolve()
        if path.is_relative_to(site):
            top = path.relative_to(site).parts[0].partition(".")[0]
            if top.startswith("__editable__"):
                continue  # this environment's link to the repository; what came through it would be seen below
            names = {requirements.canonical(name) for name in providers.get(top, [])}
            assert names & allowed, f"{file} belongs to {names or 'no package'}, which the workspace does not ask for"
            seen |= names & allowed
        elif path.name != "sitecustomize.py":
            own = path.is_relative_to(workspace.resolve()) or path.is_relative_to(standard)
            assert own, f"{file} is neither the workspace's nor Python's"
    assert seen
