"""The project's own papers: lock file, licences, README, CONTRIBUTING and its diagram."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins() -> dict[str, list[Requirement]]:
    """The lock file's entries by name; one package may have a pin for each range of Pythons."""
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if line and not line.lstrip().startswith("#"):
            pin = Requirement(line)
            found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


def test_every_entry_of_the_lock_is_an_exact_pin_from_an_index() -> None:
    for name, entries in pins().items():
        for pin in entries:
            (specifier,) = pin.specifier
            assert specifier.operator == "==" and pin.url is None, name
            assert "+" not in specifier.version, f"{name}: a local build cannot be had from PyPI"


def test_lock_answers_everything_that_is_asked_for() -> None:
    groups = PROJECT["optional-dependencies"]
    asked = [
        Requirement(line) for line in [*PROJECT["dependencies"], *(item for group in groups.values() for item in group)]
    ]
    locked = pins()
    for requirement in asked:
        entries = locked.get(canonicalize_name(requirement.name))
        assert entries, f"{requirement.name} is not in requirements.lock: run `make lock`"
        assert all(requirement.specifier.contains(next(iter(pin.specifier)).version) for pin in entries), requirement


def test_lock_leaves_cuda_to_torch() -> None:
    assert not [name for name in pins() if name.startswith(("nvidia-", "cuda-"))]


def test_flow_diagram_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("flow", ROOT / "docs" / "flow.py")
    assert spec is not None and spec.loader is not None
    flow = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "flow", flow)
    spec.loader.exec_module(flow)
    assert flow.TARGET.read_text(encoding="utf-8") == flow.draw(), "run `python docs/flow.py` and commit docs/flow.svg"


def test_modules_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("How a submission flows")[2].partition("## House rules")[0]
    named = set(re.findall(r"`(?:course/grading/)?(\w+\.py)`", section))
    assert len(named) >= 8
    for name in named:
        assert (ROOT / "course" / "grading" / name).is_file(), name


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_paths_and_make_targets_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    for target in re.findall(r"\bmake ([a-z]+)\b(?=`|\s+#|$)", text, flags=re.M):
        assert target in targets, f"make {target}"
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        assert (ROOT / target).exists(), target
    made = ("classroom", "_build", "lib", ".venv")
    for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text):
        if name.split("/")[0] not in made and not Path(name).stem.endswith(
            "name"
        ):  # `solutions/name.py` stands for any
            assert (ROOT / name).exists(), name


def test_readmes_two_commands_come_first() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first_screen = "\n".join(text.splitlines()[:25])
    for command in ("make course", "make test", "make lab", "make serve"):
        assert command in first_screen


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text and "make test" in text
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0


def test_no_file_of_code_is_too_long() -> None:
    sources = [path for folder in ("course", "lib", "solutions", "docs") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 30
    long = {
        str(path.relative_to(ROOT)): n
        for path in sources
        if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long
