"""Hidden tests of chapter 15: interpolate_positions and yarn_attention_factor. The others stand beside it."""

import math
from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

# interpolate_positions


def divided(positions: Tensor, factor: float) -> Tensor:
    """The truth in float64."""
    return positions.double() / factor


def check_positions(student: Student, check: Check, positions: Tensor, factor: float, what: str) -> None:
    """Each position to a millionth of itself, which is what float32 holds."""
    check.close(student.interpolate_positions(positions, factor), divided(positions, factor), what, rtol=1e-6, atol=0.0)


@hidden_test(
    "interpolate_positions",
    "known values: halved, position 7 stands at 3.5",
    hint="positions / factor: the text is squeezed, so its last position falls within the trained length.",
    weight=2,
)
def test_halved(student: Student, check: Check) -> None:
    want = torch.tensor([0, 0.5, 1, 3.5, 1023.5], dtype=torch.float64)
    got = student.interpolate_positions(torch.tensor([0, 1, 2, 7, 2047]), 2)
    check.close(got, want, "0, 1, 2, 7, 2047 by 2", rtol=1e-6, atol=0.0)


@hidden_test(
    "interpolate_positions",
    "the factor divides, whatever it is",
    hint="Divide by the argument `factor`; multiplying would stretch the positions further out, and 2 is no constant.",
    weight=2,
)
def test_factors(student: Student, check: Check) -> None:
    for factor in check.shuffled([1.25, 3, 8.0, 13.7]):
        positions = check.randint(1, 3000, (check.integer(5, 12),))
        check_positions(student, check, positions, factor, f"{len(positions)} positions by {factor}")


@hidden_test(
    "interpolate_positions",
    "positions between whole numbers keep their fractions",
    hint="No //, no rounding, no .long(): three of four tokens stand between whole positions at a factor of 4.",
    weight=2,
)
def test_fractions(student: Student, check: Check) -> None:
    check_positions(student, check, torch.arange(1, 7), 4, "1 to 6 by 4")
    check_positions(student, check, torch.tensor([0.5, 2.75, 10.125]), 2.0, "0.5, 2.75, 10.125 by 2")


@hidden_test(
    "interpolate_positions",
    "the positions that come are used: any start, any order, any shape",
    hint="Divide the values in `positions`; with a cache the new token stands at, say, 37, alone.",
)
def test_positions(student: Student, check: Check) -> None:
    check_positions(student, check, torch.tensor([check.integer(30, 99)]), 4, "one position, not the first")
    check_positions(student, check, check.randint(1, 900, (9,)).flip(0), 3, "nine in no order, by 3")
    check_positions(student, check, check.randint(1, 900, (2, 5)), 2.5, "positions of two texts, (2, 5)")
    check_positions(student, check, torch.arange(1, 13)[::3], 2, "every third position")


@hidden_test(
    "interpolate_positions",
    "a factor of 1 changes nothing",
    hint="Dividing by the factor does this by itself: neither factor + 1 nor factor - 1.",
)
def test_one(student: Student, check: Check) -> None:
    check_positions(student, check, torch.arange(6), 1, "0 to 5 by 1")
    check_positions(student, check, check.randint(1, 5000, (7,)), 1.0, "seven positions by 1.0")
    check_positions(student, check, torch.arange(6), 1.25, "0 to 5 by 1.25, which changes something")


@hidden_test(
    "interpolate_positions",
    "the result is float32, and divided in float32",
    hint="Turn positions into float32 before the division, whatever their type: 5,003 is 5,000 in float16.",
)
def test_type(student: Student, check: Check) -> None:
    positions = torch.tensor([4097, 5003, 100001, check.integer(10**5, 10**6)])
    for dtype in (torch.int64, torch.int32, torch.float64):
        got = student.interpolate_positions(positions.to(dtype), 8)
        check.tensor(got, (4,), f"positions in {dtype}", torch.float32)
        check.close(got, divided(positions, 8), f"far positions in {dtype}, by 8", rtol=1e-6, atol=0.0)
    narrow = torch.tensor([255.0, 129.0, 77.0], dtype=torch.bfloat16)
    got = check.tensor(student.interpolate_positions(narrow, 3), (3,), "positions in bfloat16", torch.float32)
    check.close(got, divided(narrow, 3), "255, 129, 77 in bfloat16, by 3", rtol=1e-6, atol=0.0)


@hidden_test(
    "interpolate_positions",
    "the positions stay as they were",
    hint="/ makes a new tensor; /= and div_ change the caller's.",
)
def test_unchanged(student: Student, check: Check) -> None:
    positions = torch.arange(3.0, 9.0)
    check_positions(student, check, positions, 2, "3 to 8 by 2")
    check.true(student.fixtures.unchanged(student.interpolate_positions, positions, 2), "positions changed in place")


@hidden_test(
    "interpolate_positions",
    "a factor below 1 is a ValueError that names it",
    hint="Raise it before dividing, with the factor in the message. 1 itself is allowed.",
)
def test_below_one(student: Student, check: Check) -> None:
    for factor in (0.5, 0, -4, 0.99):
        call = partial(student.interpolate_positions, torch.arange(4), factor)
        check.raises(ValueError, call, f"factor {factor}", mentions=(factor,))
    check_positions(student, check, torch.arange(4), 1.5, "0 to 3 by 1.5, which is allowed")


# yarn_attention_factor


def check_factor(student: Student, check: Check, factor: float, want: float) -> None:
    check.close(student.yarn_attention_factor(factor), want, f"factor {factor:g}", rtol=1e-6, atol=0.0)


@hidden_test(
    "yarn_attention_factor",
    "known values: 4 gives 1.138629 and 32 gives 1.346574",
    hint="A tenth of the natural logarithm of the factor, plus 1. It is not squared here, nor is a root taken.",
    weight=2,
)
def test_known_factors(student: Student, check: Check) -> None:
    check_factor(student, check, 4, 1.1386294)
    check_factor(student, check, 32.0, 1.3465736)


@hidden_test(
    "yarn_attention_factor",
    "it grows by 0.1 where the factor grows e times",
    hint="ln, not log2 or log10; times 0.1, and 1 is added after it.",
    weight=2,
)
def test_grows(student: Student, check: Check) -> None:
    start = 1 + check.integer(1, 1000) / 500
    first = student.yarn_attention_factor(start)
    for n in (1, 2, 3):
        later = student.yarn_attention_factor(start * math.e**n)
        check.close(later, 0.1 * (math.log(start) + n) + 1, f"factor {start:g} times e ** {n}", rtol=1e-6, atol=0.0)
        check.close(later - first, 0.1 * n, f"the growth from {start:g} to {start * math.e**n:g}", rtol=1e-5, atol=0.0)


@hidden_test(
    "yarn_attention_factor",
    "it is 1 where nothing is stretched: at a factor of 1 or below",
    hint="ln 1 is 0, and below 1 it is negative: there the answer is 1 all the same.",
)
def test_nothing_stretched(student: Student, check: Check) -> None:
    check_factor(student, check, 8, 0.1 * math.log(8) + 1)
    for factor in (1, 1.0, 0.5, 0.01):
        check_factor(student, check, factor, 1.0)


@hidden_test(
    "yarn_attention_factor",
    "it is a number of Python, for whole and fractional factors",
    hint="A float, by math.log: cos and sin are multiplied by it, and a tensor's device would have to match theirs.",
)
def test_python_number(student: Student, check: Check) -> None:
    for factor in (2, 2.5, 1.01, 128):
        got = student.yarn_attention_factor(factor)
        check.true(isinstance(got, float), f"factor {factor}: expected a float, got {type(got).__name__}")
        check_factor(student, check, factor, 0.1 * math.log(factor) + 1)
