"""`course bench lib`: both sides compute the same, or there is no comparison."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from course import bench_lib
from course.bench_lib import OURS, REFERENCE, Result, Task
from course.errors import CourseError
from lib.model import Config, LanguageModel
from tests import weights

TASK = Task("Writing", "tokens a second (median)", lambda side: Result(1.0, 1, [1.0]), 1e-3)
LLAMA = Config(
    vocab_size=53, d_model=24, n_layers=2, n_heads=4, mixer="gqa", n_kv_heads=2, d_ff=40, max_len=30,
    positions="rope", norm="rmsnorm", feed_forward="swiglu", bias=False, tied_embeddings=False,
)  # fmt: skip


@torch.no_grad()
def test_the_reference_has_the_same_weights() -> None:
    ours = weights.draw(LanguageModel(LLAMA))
    ids = torch.randint(53, (2, 30))
    torch.testing.assert_close(bench_lib.as_reference(ours)(ids).logits, ours(ids), rtol=0, atol=1e-4)


def test_the_report_has_speeds_ratios_and_memory() -> None:
    ours = [Result(speed, memory * 2**20, [3.0, 4.0]) for speed, memory in ((10, 700), (20, 800), (30, 600))]
    theirs = [Result(speed, 1000 * 2**20, [3.0, 4.0005]) for speed in (10, 10, 10)]
    console = Console(file=io.StringIO(), width=160, record=True)
    bench_lib.report(console, TASK, {OURS: ours, REFERENCE: theirs})
    said = console.export_text()
    assert "ratio: 2.00 (median of 1.00, 2.00, 3.00)" in said
    assert "20.0" in said and "800 MiB" in said and "1,000 MiB" in said


def test_different_numbers_are_no_comparison() -> None:
    results = {OURS: [Result(1.0, 1, [3.0, 4.0])], REFERENCE: [Result(1.0, 1, [3.0, 4.1])]}
    with pytest.raises(CourseError, match=r"different numbers, up to 0\.1 apart"):
        bench_lib.report(Console(file=io.StringIO()), TASK, results)


def test_an_unknown_measurement_is_refused() -> None:
    with pytest.raises(CourseError, match="no measurement 'write', only decode, train"):
        bench_lib.main(1, "write")
