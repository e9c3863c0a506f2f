"""`python -m lib.train`: the command line, Ctrl-C, and two processes that learn what one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course import paths
from lib.train import load_run

TINY = (
    "--steps 6 --every 3 --batch 4 --length 16 --device cpu --config d_model=16 n_layers=1 n_heads=2 max_len=16".split()
)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(paths.ROOT), "OMP_NUM_THREADS": "1"}
TOLERANCE = 1e-5
"""Of a loss in bits: gradients of two halves are added in another order than those of the whole."""


def run(*arguments: str, launcher: tuple[str, ...] = ("-m",)) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *launcher, "lib.train", *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, encoding="utf-8", timeout=120)


def losses(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "losses.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run by one process."""
    folder = tmp_path_factory.mktemp("train") / "run"
    done = run("--out", str(folder), *TINY)
    assert done.returncode == 0, done.stderr
    assert "parameters on cpu" in done.stdout and "held out" in done.stdout
    return folder


def test_the_command_leaves_a_model_and_a_log(whole: Path) -> None:
    assert len(losses(whole)) == 6
    config = load_run(whole).config
    assert (config.d_model, config.n_layers, config.max_len) == (16, 1, 16)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--config", "layers=3"], "'layers=3' is not FIELD=VALUE of a field of Config; n_layers?"),
        (["--config", "n_layers=0"], "n_layers must be a whole number of at least 1, not 0"),
        (["--steps", "many"], "invalid int value: 'many'"),
        (["--lr", "-1"], "lr must be a number above 0, not -1"),
        (["--length", "64", *TINY[8:]], "length must be at most the model's max_len, 16, not 64"),
        (["--device", "tpu"], "device must be cuda, mps or cpu"),
        (["--source", "no/such/text"], "no such file or folder"),
        (["--resume"], "no such folder"),
    ],
)
def test_what_a_person_can_mend_is_one_line(arguments: list[str], why: str, tmp_path: Path) -> None:
    done = run("--out", str(tmp_path / "run"), *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("lib.train: ") and done.stderr.count("\n") == 1
    assert why in done.stderr.replace("no" + os.sep + "such" + os.sep, "no/such/")
    assert not (tmp_path / "run").exists(), "nothing half-made is left"


def test_a_run_is_never_overwritten(whole: Path) -> None:
    before = losses(whole)
    done = run("--out", str(whole), *TINY)
    assert done.returncode == 1 and "--resume" in done.stderr and done.stderr.count("\n") == 1
    assert losses(whole) == before


def test_two_processes_learn_what_one_does(whole: Path, tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    done = run("--out", str(tmp_path / "two"), *TINY, launcher=launcher)
    assert done.returncode == 0, done.stderr
    one, two = losses(whole), losses(tmp_path / "two")
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        assert all(a[name] == pytest.approx(b[name], abs=TOLERANCE) for name in a)


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_keeps_the_run_and_it_goes_on(tmp_path: Path) -> None:
    long = ["--steps", "4000", "--every", "4000", *TINY[4:]]
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "lib.train", "--out", str(folder), *long]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (folder / "losses.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "stopped after step" in said and "--resume" in said and "Traceback" not in said
    steps = [path.name for path in folder.glob("step-*")]
    assert len(steps) == 1 and 0 < int(steps[0].removeprefix("step-")) < 4000
