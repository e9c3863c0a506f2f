"""kill -9 at any moment of training: going on ends with the same weights as a run that was left alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import torch

from course import paths
from lib.train import Settings, load_run, train
from tests.test_train import TEXT, model

HOW = Settings(steps=60, batch=2, length=8, every=1)
KILLS = 4


def work(folder: Path) -> None:
    torch.set_num_threads(1)
    train(model(), TEXT, HOW, folder, resume=any(folder.glob("step-????????")))


def checkpoints(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("step-????????")}


def test_killed_again_and_again_the_weights_are_the_same(tmp_path: Path) -> None:
    chance, folder, kills = random.Random(4), tmp_path / "killed", 0
    script = f"from pathlib import Path; from tests.test_train_kill import work; work(Path({str(folder)!r}))"
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT), "OMP_NUM_THREADS": "1"}
    for _ in range(KILLS):
        before = checkpoints(folder)
        process = subprocess.Popen([sys.executable, "-c", script], env=environment)
        while process.poll() is None and checkpoints(folder) == before:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        kills += process.wait() != 0 and checkpoints(folder) != before
    assert kills == KILLS, "a process ended before it was killed: make the run longer"
    work(folder)
    whole = model()
    train(whole, TEXT, HOW)
    for one, other in zip(load_run(folder).parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, other)
