"""`%%lib`: a cell becomes part of the student's lib, and nothing else does."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell

from course import cells, chapters, definitions, modules, paths
from course.modules import CellError

STUB = "def softmax(x):\n    raise NotImplementedError\n"
FINISHED = "def softmax(x):\n    return x + 1\n"


@pytest.fixture
def lib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty workspace whose `lib` is imported instead of the project's."""
    shutil.copytree(paths.ROOT / "lib", tmp_path / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "lib"}
    finders = list(sys.meta_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(paths, "LIB", tmp_path / "lib")
    monkeypatch.setattr(chapters, "names", lambda: {"softmax": "01_softmax", "attention": "02_attention"})
    monkeypatch.delenv(paths.REFERENCE_MODE, raising=False)
    yield tmp_path / "lib"
    for name in [name for name in sys.modules if name.split(".")[0] == "lib"]:
        del sys.modules[name]
    sys.modules.update(aside)
    sys.meta_path[:] = finders


def test_a_cell_lands_in_the_file_and_in_the_notebook(lib: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook: dict[str, object] = {}
    cells.run(
        notebook, "softmax", "import math\n# why it is so\nLIMIT = math.pi\n\n\ndef softmax(x):\n    return LIMIT\n"
    )
    text = (lib / "softmax.py").read_text(encoding="utf-8")
    assert text.endswith("import math\n\n\n# why it is so\nLIMIT = math.pi\n\n\ndef softmax(x):\n    return LIMIT\n")
    function = notebook["softmax"]
    assert function.__module__ == "lib.softmax"
    assert notebook["math"].__name__ == "math"  # type: ignore[attr-defined] # an `object` to mypy
    assert capsys.readouterr().out == "lib/softmax.py: LIMIT, softmax saved\n"


def test_other_statements_run_in_the_notebook_only(lib: Path) -> None:
    notebook: dict[str, object] = {"seen": []}
    cells.run(notebook, "softmax", f"{FINISHED}\nfor i in range(3):\n    seen.append(softmax(i))\n")
    assert notebook["seen"] == [1, 2, 3]
    assert "seen" not in (lib / "softmax.py").read_text(encoding="utf-8")


def test_the_same_name_is_replaced_in_place_and_the_rest_is_kept(lib: Path) -> None:
    cells.run({}, "softmax", "def first(): return 1\n\ndef second(): return 2\n")
    cells.run({}, "softmax", "def helper(): return 3\n\ndef first(): return helper()\n")
    tree = ast.parse((lib / "softmax.py").read_text(encoding="utf-8"))
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == ["helper", "first", "second"]


def test_a_stub_is_called_a_stub(lib: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run({}, "softmax", f"LIMIT = 3\n\n{STUB}")
    assert capsys.readouterr().out == (
        "lib/softmax.py: LIMIT saved\nlib/softmax.py: softmax still a stub; replace `raise NotImplementedError`\n"
    )


def test_a_stub_never_replaces_finished_work(lib: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run({}, "softmax", FINISHED)
    notebook: dict[str, object] = {}
    cells.run(notebook, "softmax", STUB)
    assert notebook["softmax"](1) == 2  # type: ignore[operator]
    assert "your finished softmax was kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def softmax(x:\n    return 2\n", "syntax error at line 1: def softmax(x:"),
        ("def softmax(x=UNKNOWN):\n    return 2\n", "NameError: name 'UNKNOWN' is not defined"),
        ("import nowhere_to_be_found\n\ndef softmax(x):\n    return 2\n", "No module named 'nowhere_to_be_found'"),
        ("print(1)\n", "the cell defines no function"),
        ("", "the cell defines no function"),
    ],
)
@pytest.mark.parametrize("before", [None, FINISHED])
def test_a_cell_with_an_error_fails_loudly_and_writes_nothing(
    lib: Path, source: str, reason: str, before: str | None
) -> None:
    if before:
        cells.run({}, "softmax", before)
    files = {path: path.read_bytes() for path in lib.rglob("*.py")}
    notebook: dict[str, object] = {}
    with pytest.raises(CellError, match=r"softmax\.py was left as it was") as raised:
        cells.run(notebook, "softmax", source)
    assert reason in str(raised.value)
    assert {path: path.read_bytes() for path in lib.rglob("*.py")} == files
    assert "softmax" not in notebook
    if before:
        assert sys.modules["lib.softmax"].softmax(1) == 2


def test_an_error_in_a_notebook_fails_the_cell_with_one_line(lib: Path) -> None:
    shell = InteractiveShell()
    cells.register(shell)
    result = shell.run_cell("%%lib softmax\ndef softmax(x:\n")
    assert isinstance(result.error_in_exec, CellError)
    assert result.error_in_exec._render_traceback_() == [str(result.error_in_exec)]
    assert "line 2" in str(result.error_in_exec)
    assert not shell.run_cell("%%lib softmax\ndef softmax(x):\n    return 1\n1 / 0\n").success


def test_what_a_cell_no_longer_defines_is_gone(lib: Path) -> None:
    """An answer typed earlier must not make a later wrong one pass."""
    cells.run({}, "softmax", "def _helper(x): return 1\n\ndef softmax(x): return _helper(x)\n")
    path = lib / "softmax.py"
    path.write_text(path.read_text(encoding="utf-8").replace("def _helper", "def _other"), encoding="utf-8")
    notebook: dict[str, object] = {}
    cells.run(notebook, "softmax", "def softmax(x): return _helper(x)\n")
    with pytest.raises(NameError):
        notebook["softmax"](1)  # type: ignore[operator]


def test_the_previous_version_is_kept(lib: Path) -> None:
    for number in range(5):
        cells.run({}, "softmax", f"def softmax(x): return {number}\n")
    kept = sorted((lib / ".history" / "softmax").glob("*.py"))
    versions = [path.read_text(encoding="utf-8").split("return ")[1] for path in kept]
    assert versions == ["0\n", "1\n", "2\n", "3\n"]


def test_quick_edits_of_equal_length_are_seen(lib: Path) -> None:
    """Python's cache of compiled files tells versions apart by second and size only."""
    notebook: dict[str, object] = {}
    for number in range(5):
        cells.run(notebook, "softmax", f"def softmax(x): return {number}\n")
        assert notebook["softmax"](0) == number  # type: ignore[operator]


def test_chapters_that_build_on_it_see_the_new_version(lib: Path) -> None:
    notebook: dict[str, object] = {}
    cells.run(notebook, "softmax", "class Softmax: version = 1\n")
    cells.run(notebook, "attention", "from .softmax import Softmax\n\ndef attend(): return Softmax.version\n")
    cells.run(notebook, "softmax", "class Softmax: version = 2\n")
    assert notebook["attend"]() == 2  # type: ignore[operator]
    assert sys.modules["lib.attention"].Softmax is sys.modules["lib.softmax"].Softmax is notebook["Softmax"]


@pytest.mark.parametrize(("name", "advice"), [("sofmax", "did you mean `%%lib softmax`?"), ("", "needs the chapter's")])
def test_a_wrong_module_name_writes_nothing(lib: Path, name: str, advice: str) -> None:
    files = sorted(lib.iterdir())
    with pytest.raises(CellError, match="nothing was written") as raised:
        cells.run({}, name, FINISHED)
    assert advice in str(raised.value)
    assert sorted(lib.iterdir()) == files


def test_a_full_disk_loses_nothing(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells.run({}, "softmax", FINISHED)
    before = (lib / "softmax.py").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CellError, match="No space left on device"):
        cells.run({}, "softmax", "def softmax(x): return 5\n")
    assert (lib / "softmax.py").read_bytes() == before
    assert [path.name for path in lib.glob(".softmax*")] == []


def test_an_unwritten_chapter_says_which_to_finish(lib: Path) -> None:
    (lib.parent / "01_softmax.ipynb").write_text("{}", encoding="utf-8")
    with pytest.raises(CellError, match=r"finish chapter 01 \(01_softmax.ipynb\) first"):
        cells.run({}, "attention", "from .softmax import softmax\n\ndef attend(): return softmax(1)\n")


def test_reference_mode_takes_the_reference_and_writes_nothing(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lib.parent / "solutions").mkdir()
    (lib.parent / "solutions" / "softmax.py").write_text("def softmax(x): return 'reference'\n", encoding="utf-8")
    (lib / "softmax.py").write_text("def softmax(x): return 'own'\n", encoding="utf-8")
    files = sorted(lib.iterdir())
    monkeypatch.setenv(paths.REFERENCE_MODE, "1")
    notebook: dict[str, object] = {}
    cells.run(notebook, "softmax", STUB)
    assert notebook["softmax"](1) == "reference"  # type: ignore[operator]
    assert sorted(path for path in lib.iterdir() if path.name != "__pycache__") == files


NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])
DEFINITION = st.builds(lambda name, value: (name, f"def {name}():\n    return {value}"), NAMES, st.integers(0, 99))


@given(st.lists(st.lists(DEFINITION, min_size=1, max_size=4, unique_by=lambda pair: pair[0]), min_size=1, max_size=6))
def test_merging_equals_running_the_cells_in_order(cells_in_order: list[list[tuple[str, str]]]) -> None:
    text = ""
    expected: dict[str, str] = {}
    for cell in cells_in_order:
        text = definitions.merge(text, "\n\n".join(source for _, source in cell), "A module.").text
        expected |= dict(cell)
    made = [ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert sorted(made) == sorted(expected.values())


def test_imports_are_gathered_and_the_newest_wins() -> None:
    first = definitions.merge("", "import torch\nfrom math import exp, log\n\ndef a(): ...\n", "A module.")
    second = definitions.merge(first.text, "from torch import exp\nfrom torch import nn\n\ndef b(): ...\n", "A module.")
    assert second.text.startswith(
        '"""A module."""\n\nimport torch\nfrom math import log\nfrom torch import exp, nn\n\n\n'
    )
    assert modules.PACKAGE == "lib"
