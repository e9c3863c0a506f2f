"""Hidden tests of chapter 15, continued: yarn_frequencies."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def turns_to_pair(turns: float, d: int, base: float, length: int) -> float:
    """Which pair, with fractions, makes so many turns in the length."""
    return d * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))


def ends(d: int, base: float, length: int, fast: float, slow: float) -> tuple[int, int]:
    """The pairs between which the ramp rises."""
    low, high = (turns_to_pair(turns, d, base, length) for turns in (fast, slow))
    return max(math.floor(low), 0), min(math.ceil(high), d - 1)


def truth(d: int, base: float, factor: float, length: int, fast: float = 32.0, slow: float = 1.0) -> list[float]:
    """The formula, number by number."""
    low, high = ends(d, base, length, fast, slow)
    result = []
    for i in range(d // 2):
        own = base ** (-2 * i / d)
        share = float(i > low) if high <= low else min(max((i - low) / (high - low), 0.0), 1.0)
        result.append(own * (1 - share) + own / factor * share)
    return result


def check_yarn(student: Student, check: Check, *args: Any, what: str = "", **betas: float) -> Tensor:
    """Each frequency to a hundred-thousandth of itself; float32 is exact to a tenth of that."""
    d, base, factor, length = args[:4]
    fast = betas.get("beta_fast", args[4] if len(args) > 4 else 32.0)
    slow = betas.get("beta_slow", args[5] if len(args) > 5 else 1.0)
    said = what or f"d={d}, base {base:g}, factor {factor:g}, length {length:,}, beta {fast:g} and {slow:g}"
    want = torch.tensor(truth(d, base, factor, length, fast, slow), dtype=torch.float64)
    got = check.tensor(student.yarn_frequencies(*args, **betas), (d // 2,), said)
    check.close(got, want, said, rtol=1e-5, atol=0.0)
    return got


@hidden_test(
    "yarn_frequencies",
    "known values: d=16, base 10,000, stretched 4 times from 64",
    hint="low is 0 and high is 3: pair 0 keeps 1; pair 1, with a share of a third, goes from 0.3162 to 0.2372; pair 2 "
    "from 0.1 to 0.05; from pair 3 on all are divided by 4.",
    weight=3,
)
def test_golden(student: Student, check: Check) -> None:
    want = [1, 0.2371708, 0.05, 0.00790569, 0.0025, 0.000790569, 0.00025, 0.0000790569]
    got = student.yarn_frequencies(16, 10000.0, 4.0, 64)
    check.close(got, torch.tensor(want, dtype=torch.float64), "d=16, base 10,000, 4 times 64", rtol=1e-5, atol=0.0)


@hidden_test(
    "yarn_frequencies",
    "pairs that turn often in the original length keep their frequency",
    hint="Pair 0 is the fastest. Up to pair `low` the divided share is 0: the ramp rises with the pair's number.",
    weight=2,
)
def test_fast(student: Student, check: Check) -> None:
    for d, base, length in ((32, 10000.0, 4096), (20, 500.0, 1000), (64, 500000.0, 8192)):
        got, (low, _) = check_yarn(student, check, d, base, 8.0, length), ends(d, base, length, 32, 1)
        own = torch.tensor([base ** (-2 * i / d) for i in range(low + 1)], dtype=torch.float64)
        check.close(got[: low + 1], own, f"pairs 0 to {low} of d={d}, length {length:,}", rtol=1e-5, atol=0.0)


@hidden_test(
    "yarn_frequencies",
    "pairs that turn less than once in the original length are divided by the factor",
    hint="From pair `high` on the divided share is 1: own / factor, as if all positions were divided.",
    weight=2,
)
def test_slow(student: Student, check: Check) -> None:
    for d, base, length, factor in ((32, 10000.0, 256, 3.0), (20, 5000.0, 60, 7.5), (64, 10000.0, 2048, 16)):
        got, (_, high) = check_yarn(student, check, d, base, factor, length), ends(d, base, length, 32, 1)
        own = torch.tensor([base ** (-2 * i / d) for i in range(high, d // 2)], dtype=torch.float64)
        check.close(got[high:], own / factor, f"pairs from {high} on, d={d}, by {factor:g}", rtol=1e-5, atol=0.0)


@hidden_test(
    "yarn_frequencies",
    "between them the divided share rises evenly from pair to pair",
    hint="(i - low) / (high - low): by the pair's number, not by its frequency or wavelength. It blends frequencies, "
    "own and own / factor.",
    weight=3,
)
def test_ramp(student: Student, check: Check) -> None:
    for d, base, length, factor in ((64, 10000.0, 4096, 4.0), (48, 300.0, 2000, 2.5)):
        got, (low, high) = check_yarn(student, check, d, base, factor, length), ends(d, base, length, 32, 1)
        high = min(high, d // 2 - 1)
        own = torch.tensor([base ** (-2 * i / d) for i in range(low, high + 1)], dtype=torch.float64)
        kept = got[low : high + 1].double() / own
        step = (1 / factor - 1) / (ends(d, base, length, 32, 1)[1] - low)
        want = torch.full((high - low,), step, dtype=torch.float64)
        check.close(kept.diff(), want, f"steps of what is kept, pairs {low} to {high} of d={d}", rtol=0.0, atol=1e-5)


@hidden_test(
    "yarn_frequencies",
    "the ramp's ends are whole pairs: the lower rounded down, the upper up",
    hint="math.floor for low, math.ceil for high: the ramp is widened, never narrowed. Divide only then.",
    weight=2,
)
def test_rounding(student: Student, check: Check) -> None:
    for d, length in ((40, 1500), (24, 700), (96, 5000)):
        fractions = [turns_to_pair(turns, d, 10000.0, length) % 1 for turns in (32, 1)]
        check.true(all(0.05 < x < 0.95 for x in fractions), "this test is badly made: the ends are whole")
        check_yarn(student, check, d, 10000.0, 4.0, length)


@hidden_test(
    "yarn_frequencies",
    "the ramp's ends stay within the pairs: low at least 0, high at most d - 1",
    hint="max(low, 0) where even pair 0 turns less than beta_fast times; min(high, d - 1), with d and not d / 2.",
    weight=2,
)
def test_ends(student: Student, check: Check) -> None:
    for d, base, length in ((16, 10000.0, 30), (24, 10000.0, 12), (8, 10.0, 1000), (12, 8.0, 900)):
        check_yarn(student, check, d, base, 4.0, length)


@hidden_test(
    "yarn_frequencies",
    "a ramp of no width is a step, without a division by zero",
    hint="Where high is not above low, give the width a tiny value such as 0.001: pairs up to low keep theirs, those "
    "after it are divided.",
)
def test_step(student: Student, check: Check) -> None:
    check_yarn(student, check, 6, 10000.0, 5.0, 4, what="d=6, original length 4: low and high are 0")
    check_yarn(student, check, 10, 10000.0, 3.0, 6, what="d=10, original length 6: low and high are 0")


@hidden_test(
    "yarn_frequencies",
    "a factor of 1 gives RoPE's own frequencies",
    hint="base ** (-2 * i / d), your rope_frequencies: blended with themselves they stay.",
)
def test_factor_one(student: Student, check: Check) -> None:
    for d, base, length in ((14, 10000.0, 128), (2, 10000.0, 64), (30, 700.0, 4096)):
        got = check_yarn(student, check, d, base, 1.0, length)
        own = torch.tensor([base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
        check.close(got, own, f"d={d}, base {base:g}, factor 1", rtol=1e-5, atol=0.0)


@hidden_test(
    "yarn_frequencies",
    "base, factor and original length are used, whatever they are",
    hint="All of them are arguments: no 10000, no 4, no 4096 in your code. A longer original length or a smaller base "
    "moves the ramp to later pairs.",
    weight=2,
)
def test_arguments(student: Student, check: Check) -> None:
    for base in check.shuffled([50.0, 10000, 1e6]):
        check_yarn(student, check, 28, base, 4.0, 2048)
    for factor in check.shuffled([1.5, 2, 40.0]):
        check_yarn(student, check, 28, 10000.0, factor, 2048)
    for length in check.shuffled([100, 1024, 32768]):
        check_yarn(student, check, 28, 10000.0, 4.0, length)


@hidden_test(
    "yarn_frequencies",
    "beta_fast and beta_slow move the ramp's two ends, and are 32 and 1 if left out",
    hint="low comes from beta_fast, high from beta_slow. They count whole turns of 2 * pi in the original length.",
    weight=2,
)
def test_betas(student: Student, check: Check) -> None:
    check_yarn(student, check, 64, 10000.0, 4.0, 4096)
    for fast in check.shuffled([8.0, 64, 200.0]):
        check_yarn(student, check, 64, 10000.0, 4.0, 4096, beta_fast=fast)
    for slow in check.shuffled([0.1, 4, 12.5]):
        check_yarn(student, check, 64, 10000.0, 4.0, 4096, beta_slow=slow)
    check_yarn(student, check, 64, 10000.0, 4.0, 4096, 16.0, 2.0)


@hidden_test(
    "yarn_frequencies",
    "the new frequencies are float32, and as exact as that",
    hint="Compute in float32 or better, as in rope_frequencies, and return float32.",
)
def test_precision(student: Student, check: Check) -> None:
    for d, base, length in ((66, 10000.0, 4096), (22, 1e6, 32768)):
        got = check_yarn(student, check, d, base, 8.0, length)
        check.tensor(got, (d // 2,), f"d={d}", torch.float32)


@hidden_test(
    "yarn_frequencies",
    "an argument out of its range is a ValueError that names it and what it was",
    hint="Before computing: d even and at least 2, base above 1, factor and original_length at least 1, "
    "0 < beta_slow <= beta_fast.",
)
def test_bad(student: Student, check: Check) -> None:
    good = {"d": 16, "base": 10000.0, "factor": 4.0, "original_length": 64}
    bad: list[tuple[str, float]] = [("d", 7), ("d", 0), ("base", 1.0), ("base", 0.5), ("factor", 0.25)]
    bad += [("original_length", 0), ("original_length", -3), ("beta_slow", 0.0), ("beta_slow", 40.5)]
    for name, value in bad:
        call = partial(student.yarn_frequencies, **{**good, name: value})
        check.raises(ValueError, call, f"{name}={value}", mentions=(name, value))
    check_yarn(student, check, 16, 10000.0, 4.0, 64)
