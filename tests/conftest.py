"""What every test starts from: few threads, fixed seeds, and the `course` command on data of its own."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # tests and the processes that they start share few cores
os.environ.setdefault("TRITON_INTERPRET", "1")  # must be there before triton is imported anywhere


# Files whose tests share nothing that takes long to make; those of any other file go to one worker.
SPREAD = ("test_chapters.py", "test_wall.py")


class Schedule(LoadScopeScheduling):
    """What goes to a worker as one: a file, or a single test of the files above."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file.endswith(SPREAD) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Schedule:
    """The schedule of `pytest -n`."""
    return Schedule(config, log)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)


Course = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """Run `python -m course ...` on a classroom of its own; returns what it printed and its exit code."""

    def run(
        *arguments: object, root: Path = ROOT, env: dict[str, str] | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COURSE_CLASSROOM": str(tmp_path / "classroom"), "PYTHONPATH": str(root)}
        return subprocess.run(
            [sys.executable, "-m", "course", *map(str, arguments)],
            cwd=root,
            env={**environment, "NO_COLOR": "1", "COLUMNS": "120", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium of the system's."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail("no Chromium here; install it with: sudo apt-get install -y chromium", pytrace=False)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path)
        yield running
        running.close()
