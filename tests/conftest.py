"""What every test starts from: few threads, fixed seeds, and the `course` command on data of its own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # tests and the processes that they start share few cores
os.environ.setdefault("TRITON_INTERPRET", "1")  # must be there before triton is imported anywhere


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
