"""The device that models run on: the best one here, or the one that was asked for, never silently another."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from course import doctor, paths
from lib import device
from lib.device import describe, pick_device


@pytest.fixture(autouse=True)
def _nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(device.VARIABLE, raising=False)


def machine(monkeypatch: pytest.MonkeyPatch, gpus: int = 0, mps: bool = False) -> None:
    """Pretend that PyTorch finds these devices."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("gpus", "mps", "best"), [(0, False, "cpu"), (0, True, "mps"), (1, False, "cuda"), (2, True, "cuda")]
)
def test_the_best_device_is_picked(gpus: int, mps: bool, best: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, gpus, mps)
    assert pick_device() == torch.device(best)
    monkeypatch.setenv(device.VARIABLE, "")
    assert pick_device() == torch.device(best), "a variable that is empty asks for nothing"


def test_the_environment_overrides_and_the_argument_overrides_both(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, gpus=2, mps=True)
    monkeypatch.setenv(device.VARIABLE, "mps")
    assert pick_device() == torch.device("mps")
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:one", "cuda:²", " cpu", "cpu\n", "meta"])
def test_a_name_of_no_device_is_one_clear_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device.VARIABLE, name)
    with pytest.raises(ValueError) as caught:
        pick_device()
    wanted = f"COURSE_DEVICE must be cuda, mps or cpu, or one of several such as cuda:1, not {name!r}"
    assert str(caught.value) == wanted
    with pytest.raises(ValueError, match=r"^device must be cuda, mps or cpu"):
        pick_device(name)
    with pytest.raises(ValueError, match=r"^device must be cuda, mps or cpu.* not ''$"):
        pick_device("")


@pytest.mark.parametrize(("gpus", "name"), [(0, "cuda"), (0, "cuda:0"), (2, "cuda:2"), (1, "mps"), (0, "cpu:1")])
def test_a_device_that_is_not_here_is_refused(gpus: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, gpus)
    found = "cuda, cpu" if gpus else "cpu"
    with pytest.raises(ValueError) as caught:
        pick_device(name)
    assert str(caught.value) == f"device is {name!r}, which PyTorch does not find here; it finds {found}"


def test_descriptions_name_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe(torch.device("cpu")).startswith(f"cpu: {torch.get_num_threads()} threads on ")
    assert describe(torch.device("mps")).startswith("mps: Apple's GPU")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda chosen: f"Number {chosen.index}")
    properties = SimpleNamespace(total_memory=141 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda chosen: properties)
    assert describe(torch.device("cuda", 1)) == "cuda:1: Number 1, 141 GiB"


def test_doctor_says_which_device_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device.VARIABLE, "cpu")
    finding = doctor.device()
    assert finding.fine and finding.detail == describe(torch.device("cpu"))


def test_doctor_tells_how_to_mend_a_wrong_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device.VARIABLE, "gpu")
    finding = doctor.device()
    assert not finding.fine and finding.needed
    assert "'gpu'" in finding.detail and "COURSE_DEVICE" in finding.mend


def test_doctor_reports_a_device_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no kernel image\nfor this GPU")

    monkeypatch.setattr(torch, "eye", broken)
    finding = doctor.device()
    assert not finding.fine and finding.detail == f"{pick_device()} does not work: no kernel image"
    assert "COURSE_DEVICE=cpu" in finding.mend


def test_help_does_not_import_torch() -> None:
    script = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from course.cli import app\n"
        "app(standalone_mode=False)\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=paths.ROOT, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
