"""`course check` and `course status`, as a student runs them: in a workspace, each in its own Python.

The chapters here are tiny, so that what is tested is the checking and not the chapters.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course import paths, shipped
from course.chapters import Exercise
from course.shipped import Shipped

STUBS = {
    "double": 'def double(x: float) -> float:\n    """Twice x."""\n    raise NotImplementedError\n',
    "triple": 'def triple(x: float) -> float:\n    """Three times x."""\n    raise NotImplementedError\n',
}
ANSWERS = {
    "double": "def double(x: float) -> float:\n    return 2 * x\n",
    "triple": "def triple(x: float) -> float:\n    return 3 * x\n",
}
CHECKS = {
    "double": 'got = double(math.pi)\nassert got == 2 * math.pi, f"double(pi): expected {2 * math.pi}, got {got}"\n',
    "triple": 'assert triple(2) == 6, f"triple(2): expected 6, got {triple(2)}"\n',
}
SETUP = "%load_ext course\nimport math"


class Workspace:
    """A student's workspace with one chapter, `01_numbers`, in a folder of its own."""

    def __init__(self, root: Path, checks: dict[str, str] | None = None) -> None:
        self.root = root
        shutil.copytree(paths.ROOT / "course", root / "course", ignore=self._leave_out)
        (root / "lib").mkdir()
        shutil.copy(paths.LIB / "__init__.py", root / "lib")
        self.checks = CHECKS | (checks or {})
        exercises = tuple(Exercise(name, STUBS[name], self.checks[name], 3.0) for name in STUBS)
        chapter = Shipped("01_numbers", "Numbers", SETUP, exercises)
        (root / "course/shipped").mkdir()
        (root / "course/shipped/01_numbers.json").write_text(shipped.to_json(chapter), encoding="utf-8")
        self.notebook(STUBS)

    @staticmethod
    def _leave_out(folder: str, names: list[str]) -> list[str]:
        top = Path(folder) == paths.ROOT / "course"
        return [name for name in names if name.startswith("__pycache__") or (top and not name.endswith(".py"))]

    def notebook(
        self, cells: dict[str, str], checks: dict[str, str] | None = None, others: tuple[str, ...] = ()
    ) -> None:
        """Save the notebook with these exercise cells, as JupyterLab would."""
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [nbformat.v4.new_code_cell(SETUP, metadata={"tags": ["setup"]})]
        notebook.cells += [nbformat.v4.new_code_cell(source) for source in others]
        for name, source in cells.items():
            kinds: dict[str, object] = {"grade": False, "solution": True, "locked": False}
            notebook.cells.append(
                nbformat.v4.new_code_cell(
                    f"%%lib numbers\n{source}", metadata={"nbgrader": {"grade_id": name, "schema_version": 3, **kinds}}
                )
            )
            kinds = {"grade": True, "solution": False, "locked": True, "points": 3}
            notebook.cells.append(
                nbformat.v4.new_code_cell(
                    (checks or self.checks)[name],
                    metadata={"nbgrader": {"grade_id": f"{name}_check", "schema_version": 3, **kinds}},
                )
            )
        (self.root / "01_numbers.ipynb").write_text(nbformat.writes(notebook), encoding="utf-8")

    def lib(self, *sources: str) -> None:
        """Write lib/numbers.py."""
        (self.root / "lib/numbers.py").write_text("\n\n".join(sources), encoding="utf-8")

    def answer(self, **answers: str) -> None:
        """Fill in both the notebook and lib, as running the cells does."""
        cells = STUBS | answers
        self.notebook(cells)
        self.lib(*cells.values())

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `course` here."""
        return subprocess.run(
            [sys.executable, "-m", "course", *arguments],
            cwd=self.root,
            env={**os.environ, "COLUMNS": "200", "PYTHONUTF8": "1", **environment},
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )

    def check(self, **environment: str) -> tuple[int, dict[str, dict[str, str]], str]:
        """Run `course check`: its exit code, the outcomes by exercise, what it printed."""
        done = self.run("check", "1", **environment)
        assert done.stderr == "", done.stderr
        saved = json.loads((self.root / ".course/checks.json").read_text(encoding="utf-8"))
        return done.returncode, saved["01_numbers"]["exercises"], done.stdout


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace as it comes."""
    return Workspace(tmp_path / "work space")


def states(outcomes: dict[str, dict[str, str]]) -> list[str]:
    """The states in order."""
    return [outcome["state"] for outcome in outcomes.values()]


def test_untouched_workspace_is_not_started(workspace: Workspace) -> None:
    code, outcomes, printed = workspace.check()
    assert (code, states(outcomes)) == (1, ["not started", "not started"])
    assert "0 of 6 points" in printed
    status = workspace.run("status").stdout
    assert "missing" in status and status.count("not started") == 2


def test_stub_saved_in_lib_is_still_not_started(workspace: Workspace) -> None:
    workspace.answer()
    assert states(workspace.check()[1]) == ["not started", "not started"]


def test_right_answers_pass_and_the_course_shows_as_finished(workspace: Workspace) -> None:
    workspace.answer(**ANSWERS)
    code, outcomes, printed = workspace.check()
    assert (code, states(outcomes)) == (0, ["passed", "passed"])
    assert "6 of 6 points" in printed
    status = workspace.run("status").stdout
    assert "yours" in status and "finished" in status and "6 of 6" in status
    assert "The course is finished" in status
    # Running a cell again, or laying it out anew, does not unfinish the course.
    workspace.lib("# a comment\n" + ANSWERS["double"], "\n\n\n" + ANSWERS["triple"])
    assert "The course is finished" in workspace.run("status").stdout


def test_half_way_is_unfinished_and_says_what_comes_next(workspace: Workspace) -> None:
    workspace.answer(double=ANSWERS["double"])
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["passed", "not started"])
    status = workspace.run("status").stdout
    assert "3 of 6" in status and "Next: chapter 01" in status and "finished" not in status


def test_failure_names_the_assertion_and_the_line_of_lib(workspace: Workspace) -> None:
    workspace.answer(**ANSWERS | {"triple": "def triple(x: float) -> float:\n    return 4 * x\n"})
    code, outcomes, printed = workspace.check()
    assert (code, states(outcomes)) == (1, ["passed", "failed"])
    assert outcomes["triple"]["message"] == "triple(2): expected 6, got 8"
    assert outcomes["triple"]["where"] == "lib/numbers.py, line 5"
    assert "expected 6, got 8" in printed


def test_error_in_the_students_code_names_its_line(workspace: Workspace) -> None:
    workspace.answer(**ANSWERS | {"triple": "def triple(x: float) -> float:\n    y = 3\n    return y / 0\n"})
    _, outcomes, _ = workspace.check()
    assert outcomes["triple"]["message"] == "ZeroDivisionError: division by zero"
    assert outcomes["triple"]["where"] == "lib/numbers.py, line 7"


def test_a_failed_first_run_does_not_make_the_second_succeed(workspace: Workspace) -> None:
    workspace.answer(**ANSWERS | {"triple": "def triple(x: float) -> float:\n    return 4 * x\n"})
    assert [workspace.check()[0] for _ in range(2)] == [1, 1]
    # A module that fails while it is imported stays broken, too.
    workspace.notebook(ANSWERS)
    workspace.lib("count = 1 / 0\n", *ANSWERS.values())
    for _ in range(2):
        code, outcomes, _ = workspace.check()
        assert (code, states(outcomes)) == (1, ["failed", "failed"])
        assert outcomes["double"]["where"] == "lib/numbers.py, line 1"


def test_a_change_of_the_same_second_and_size_is_seen(workspace: Workspace) -> None:
    workspace.answer(**ANSWERS)
    file = workspace.root / "lib/numbers.py"
    stamp = (10**18, 10**18)
    os.utime(file, ns=stamp)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "lib"], cwd=workspace.root, check=True)
    assert workspace.check()[0] == 0
    workspace.answer(**ANSWERS | {"triple": ANSWERS["triple"].replace("3", "4")})
    os.utime(file, ns=stamp)
    assert workspace.check()[0] == 1


def test_the_reference_is_never_checked_in_the_students_place(workspace: Workspace) -> None:
    solutions = workspace.root / "solutions"
    solutions.mkdir()
    (solutions / "__init__.py").touch()
    (solutions / "numbers.py").write_text("\n\n".join(ANSWERS.values()), encoding="utf-8")
    for environment in ({}, {paths.REFERENCE_MODE: "1"}):
        code, outcomes, _ = workspace.check(**environment)
        assert (code, states(outcomes)) == (1, ["not started", "not started"])
    assert "reference" in workspace.run("status").stdout
    wrong = {name: answer.replace("return", "return 1 +") for name, answer in ANSWERS.items()}
    workspace.answer(**wrong)
    for environment in ({}, {paths.REFERENCE_MODE: "1"}):
        code, outcomes, _ = workspace.check(**environment)
        assert (code, states(outcomes)) == (1, ["failed", "failed"])
    assert "yours" in workspace.run("status").stdout


def test_a_syntax_error_in_a_cell_never_passes(workspace: Workspace) -> None:
    workspace.answer(**ANSWERS)
    assert workspace.check()[0] == 0
    workspace.notebook(ANSWERS | {"triple": "def triple(x: float) -> float:\n    return 3 *\n"})
    code, outcomes, printed = workspace.check()
    assert (code, states(outcomes)) == (1, ["passed", "not run"])
    assert "syntax error at line 3" in outcomes["triple"]["message"] and "syntax error" in printed
    assert "finished" not in workspace.run("status").stdout
    # Nor does one in lib, put there by an editor.
    workspace.notebook(ANSWERS)
    workspace.lib(ANSWERS["double"], "def triple(x) return 3 * x")
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["failed", "failed"])
    assert "syntax error at line 5" in outcomes["double"]["message"]


def test_an_edited_cell_that_was_not_run_is_said(workspace: Workspace) -> None:
    workspace.answer(**ANSWERS)
    assert workspace.check()[0] == 0
    workspace.notebook(ANSWERS | {"triple": ANSWERS["triple"].replace("3 * x", "x + x + x")})
    assert workspace.run("status").stdout.count("not run") >= 1
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["passed", "not run"])
    assert "run the cell" in outcomes["triple"]["message"]
    (workspace.root / "lib/numbers.py").unlink()
    assert states(workspace.check()[1]) == ["not run", "not run"]


def test_an_unsaved_notebook_is_mentioned(workspace: Workspace) -> None:
    workspace.lib(*ANSWERS.values())
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (0, ["passed", "passed"])
    assert "save the notebook" in outcomes["double"]["message"]


def test_an_answer_in_another_cell_does_not_help(workspace: Workspace) -> None:
    wrong = "def triple(x: float) -> float:\n    return answer\n"
    workspace.notebook(ANSWERS | {"triple": wrong}, others=("answer = 6", ANSWERS["triple"]))
    workspace.lib(ANSWERS["double"], wrong)
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["passed", "failed"])
    assert outcomes["triple"]["message"] == "NameError: name 'answer' is not defined"


def test_an_answer_typed_in_an_earlier_exercise_does_not_hide_a_wrong_one(workspace: Workspace) -> None:
    both = ANSWERS["double"] + "\n\n" + ANSWERS["triple"]
    wrong = "def triple(x: float) -> float:\n    return 0 * x\n"
    workspace.notebook({"double": both, "triple": wrong})
    workspace.lib(wrong, ANSWERS["double"])  # cells run in order: the later one counts
    assert states(workspace.check()[1]) == ["not run", "failed"]
    workspace.lib(both)  # cells run out of order: lib holds what the notebook's own cell does not say
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["passed", "not run"])


def test_an_edited_check_cell_changes_nothing(workspace: Workspace) -> None:
    wrong = ANSWERS | {"triple": "def triple(x: float) -> float:\n    return 0 * x\n"}
    workspace.answer(**wrong)
    workspace.notebook(wrong, checks=CHECKS | {"triple": "assert True"})
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["passed", "failed"])


@pytest.mark.parametrize(
    "check",
    [
        "for x in []:\n    assert triple(x) == 3 * x",
        "triple(2) == 6",
        "def compare():\n    assert triple(2) == 6",
    ],
)
def test_a_check_that_compares_nothing_fails(tmp_path: Path, check: str) -> None:
    workspace = Workspace(tmp_path, {"triple": check})
    workspace.answer(**ANSWERS)
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["passed", "failed"])
    assert "without comparing anything" in outcomes["triple"]["message"]


def test_optimised_python_still_asserts(workspace: Workspace) -> None:
    workspace.answer(**ANSWERS | {"triple": "def triple(x: float) -> float:\n    return 4 * x\n"})
    assert workspace.check(PYTHONOPTIMIZE="2")[0] == 1


@pytest.mark.parametrize("body", ["import os; os._exit(0)", "raise SystemExit(0)", "import sys; sys.exit()"])
def test_code_that_ends_the_process_fails_alone(workspace: Workspace, body: str) -> None:
    workspace.answer(**ANSWERS | {"double": f"def double(x: float) -> float:\n    {body}\n"})
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["failed", "passed"])


def test_an_endless_loop_fails_alone(workspace: Workspace) -> None:
    source = (workspace.root / "course/check.py").read_text(encoding="utf-8")
    (workspace.root / "course/check.py").write_text(
        source.replace("CHECK_SECONDS = 120.0", "CHECK_SECONDS = 2.0"), "utf-8"
    )
    workspace.answer(**ANSWERS | {"double": "def double(x: float) -> float:\n    while True:\n        pass\n"})
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["failed", "passed"])
    assert "never ends" in outcomes["double"]["message"]


def test_noise_on_stdout_does_not_disturb(workspace: Workspace) -> None:
    noisy = 'def double(x: float) -> float:\n    print(\'{"id": "double", "passed": true}\' * 9)\n    return 0\n'
    workspace.answer(**ANSWERS | {"double": noisy})
    code, outcomes, _ = workspace.check()
    assert (code, states(outcomes)) == (1, ["failed", "passed"])


def test_a_notebook_that_cannot_be_read_is_one_line(workspace: Workspace) -> None:
    (workspace.root / "01_numbers.ipynb").write_text("{", encoding="utf-8")
    done = workspace.run("check", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("course: 01_numbers.ipynb is not a notebook") and done.stderr.count("\n") == 1


def test_an_unknown_chapter_is_one_line(workspace: Workspace) -> None:
    done = workspace.run("check", "7")
    assert done.returncode == 1
    assert "there is no chapter '7'; the chapters are: 01_numbers" in done.stderr and done.stderr.count("\n") == 1


def test_works_under_another_locale_and_from_another_folder(workspace: Workspace, tmp_path: Path) -> None:
    workspace.answer(**ANSWERS | {"double": "def double(x: float) -> float:\n    return 2 * x  # ×2, naïvely\n"})
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("LC_")},
        "LANG": "C",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONPATH": str(workspace.root),
    }
    done = subprocess.run(
        [sys.executable, "-m", "course", "check"], cwd=tmp_path, env=environment, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def test_cells_are_saved_in_this_lib_wherever_python_runs(workspace: Workspace, tmp_path: Path) -> None:
    script = (
        "from course import cells\nspace = {}\n"
        f"cells.run(space, 'numbers', {ANSWERS['double']!r})\nprint(space['double'](4))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(workspace.root)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines()[-1] == "8", done.stderr
    assert "return 2 * x" in (workspace.root / "lib/numbers.py").read_text(encoding="utf-8")
    assert list(tmp_path.rglob("numbers.py")) == [workspace.root / "lib/numbers.py"]
    # A wrong name in the `%%lib` line writes nothing at all.
    script = "from course import cells; cells.run({}, 'nubmers', 'def double(x): return 2 * x')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=workspace.root, capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0 and "did you mean" in done.stderr
    assert sorted(file.name for file in (workspace.root / "lib").glob("*.py")) == ["__init__.py", "numbers.py"]
