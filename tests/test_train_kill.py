"""kill -9 at any moment of training: going on ends with the same weights as a run that was left alone."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path

import torch

from lib.train import Settings, load_run, train
from tests.test_train import TEXT, model

HOW = Settings(steps=60, batch=2, length=8, every=1)


def work(folder: Path) -> None:
    torch.set_num_threads(1)
    train(model(), TEXT, HOW, folder, resume=any(folder.glob("step-????????")))


def test_killed_again_and_again_the_weights_are_the_same(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_train_kill"])
    chance, folder, kills = random.Random(4), tmp_path / "killed", 0
    for _ in range(6):
        before = {path.name for path in folder.glob("step-????????")}
        process = context.Process(target=work, args=(folder,))
        process.start()
        while process.is_alive() and {path.name for path in folder.glob("step-????????")} == before:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.join()
        kills += process.exitcode == -9
    assert kills >= 3
    work(folder)
    whole = model()
    train(whole, TEXT, HOW)
    for one, other in zip(load_run(folder).parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, other)
