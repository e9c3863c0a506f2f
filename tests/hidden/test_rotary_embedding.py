"""Hidden tests of chapter 14: rope_frequencies and rope_cos_sin. Those of the other exercises stand beside it."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

# rope_frequencies


def frequencies(d: int, base: float = 10000.0) -> Tensor:
    """The formula, number by number, in float64."""
    return torch.tensor([base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)


def check_frequencies(check: Check, got: Tensor, d: int, base: float, what: str) -> None:
    """Each to a hundred-thousandth of itself: float32 is exact to a tenth of that, float16 is fifty times coarser."""
    check.close(got, frequencies(d, base), what, rtol=1e-5, atol=0.0)


@hidden_test(
    "rope_frequencies",
    "known values: d=8 gives 1, 0.1, 0.01 and 0.001",
    hint="base ** (-2 * i / d) for i = 0, 1, 2, 3, where d is 8 and the base 10000: exponents 0, -1/4, -1/2, -3/4.",
    weight=2,
)
def test_golden(student: Student, check: Check) -> None:
    got = student.rope_frequencies(8)
    check.close(got, torch.tensor([1, 0.1, 0.01, 0.001], dtype=torch.float64), "d=8", rtol=1e-5, atol=0.0)
    got = student.rope_frequencies(4, base=400.0)
    check.close(got, torch.tensor([1, 0.05], dtype=torch.float64), "d=4, base 400", rtol=1e-5, atol=0.0)


@hidden_test(
    "rope_frequencies",
    "pair i turns by base ** (-2i / d), whatever the width",
    hint="i counts pairs, of which there are d / 2, and the 2 in the exponent belongs to them: from 0 towards -1, "
    "never reaching it. It is d below the line, not d / 2, and not d - 2.",
    weight=2,
)
def test_widths(student: Student, check: Check) -> None:
    for d in check.shuffled([2, 6, 10, 64, 130]):
        check_frequencies(check, student.rope_frequencies(d), d, 10000.0, f"d={d}")


@hidden_test(
    "rope_frequencies",
    "the base is used, whatever it is",
    hint="base is an argument, not the constant 10000: SmolLM2 has 100,000.",
    weight=2,
)
def test_base(student: Student, check: Check) -> None:
    for base in check.shuffled([2.0, 37.5, 500000.0]):
        check_frequencies(check, student.rope_frequencies(12, base=base), 12, base, f"d=12, base {base:g}")
    check_frequencies(check, student.rope_frequencies(12, 1000000), 12, 1e6, "d=12, a whole number as base, by place")
    check_frequencies(check, student.rope_frequencies(12), 12, 10000.0, "d=12, the default, 10000")


@hidden_test(
    "rope_frequencies",
    "one frequency for each pair, the fastest first",
    hint="d / 2 of them, not d: a pair shares one. The first is 1, the last the smallest.",
)
def test_order(student: Student, check: Check) -> None:
    for d in (2, 6, 14):
        got = check.tensor(student.rope_frequencies(d), (d // 2,), f"d={d}")
        check.close(got[0], 1.0, f"d={d}, the first frequency")
        check_frequencies(check, got, d, 10000.0, f"d={d}")


@hidden_test(
    "rope_frequencies",
    "the frequencies are float32, and as exact as that",
    hint="Compute in float32 or better and return float32. An error of one part in a thousand, as in float16, is a "
    "whole turn at position 6,000.",
    weight=2,
)
def test_precision(student: Student, check: Check) -> None:
    got = check.tensor(student.rope_frequencies(66), (33,), "d=66", torch.float32)
    check_frequencies(check, got, 66, 10000.0, "d=66")
    got = check.tensor(student.rope_frequencies(22, 1e6), (11,), "d=22, base 1,000,000", torch.float32)
    check_frequencies(check, got, 22, 1e6, "d=22, base 1,000,000")


@hidden_test(
    "rope_frequencies",
    "an odd width, or none, is a ValueError that names it",
    hint="Raise it before computing, with d in the message: an odd width leaves a column without a partner.",
)
def test_odd(student: Student, check: Check) -> None:
    for d in (7, 1, 0, -4):
        check.raises(ValueError, partial(student.rope_frequencies, d), f"d={d}", mentions=(d,))
    check_frequencies(check, student.rope_frequencies(6), 6, 10000.0, "d=6, which is a width")


# rope_cos_sin


def cos_sin(positions: Sequence[float], freqs: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Every angle by itself, in float64."""
    angles = [[t * f for f in freqs] for t in positions]
    cos, sin = ([[function(a) for a in row] for row in angles] for function in (math.cos, math.sin))
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)


def check_pair(
    student: Student, check: Check, positions: Tensor, freqs: Tensor, what: str, atol: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Both results against the truth; they are returned."""
    got = student.rope_cos_sin(positions, freqs)
    check.true(isinstance(got, tuple | list) and len(got) == 2, f"{what}: expected a pair (cos, sin)")
    for name, mine, want in zip(("cos", "sin"), got, cos_sin(positions.tolist(), freqs.tolist()), strict=True):
        check.close(mine, want, f"{name}, {what}", rtol=0.0, atol=atol)
    return got[0], got[1]


def some_frequencies(check: Check, n: int) -> Tensor:
    """`n` frequencies in (0.05, 1), in no order, so that each angle comes from one pair alone."""
    return check.randint(50, 1000, (n,)).float() / 1000


@hidden_test(
    "rope_cos_sin",
    "known values: 60 degrees a position",
    hint="Position 1 at pi / 3 radians a position: cosine 1/2, sine 0.866. The pair is (cos, sin), in this order, and "
    "the frequencies are in radians.",
    weight=2,
)
def test_known_angles(student: Student, check: Check) -> None:
    got = student.rope_cos_sin(torch.tensor([0, 1, 3]), torch.tensor([math.pi / 3, math.pi / 6]))
    check.true(isinstance(got, tuple | list) and len(got) == 2, "expected a pair (cos, sin)")
    half = math.sqrt(3) / 2
    check.close(got[0], torch.tensor([[1, 1], [0.5, half], [-1, 0]]), "cos, positions 0, 1, 3", atol=1e-6)
    check.close(got[1], torch.tensor([[0, 0], [half, 0.5], [0, 1]]), "sin, positions 0, 1, 3", atol=1e-6)


@hidden_test(
    "rope_cos_sin",
    "row t, column i: the angle of position t for pair i",
    hint="An outer product: positions as a column, (T, 1), times the frequencies, (d / 2,).",
    weight=2,
)
def test_outer(student: Student, check: Check) -> None:
    for T, pairs in ((5, 3), (1, 4), (7, 1), (4, 4)):
        positions = check.randint(0, 40, (T,))
        check_pair(student, check, positions, some_frequencies(check, pairs), f"{T} positions, {pairs} pairs")


@hidden_test(
    "rope_cos_sin",
    "the positions that come are used: they need not start at zero, nor be in order",
    hint="With a cache the new token stands at, say, position 37, alone. Use the values in `positions`, not a count "
    "of them.",
    weight=2,
)
def test_positions(student: Student, check: Check) -> None:
    freqs = some_frequencies(check, 3)
    check_pair(student, check, torch.arange(37, 42), freqs, "positions 37 to 41")
    check_pair(student, check, torch.tensor([check.integer(10, 200)]), freqs, "one position, not the first")
    check_pair(student, check, check.randint(0, 300, (6,)), freqs, "six positions in no order", atol=5e-5)


@hidden_test(
    "rope_cos_sin",
    "positions between whole numbers keep their fractions",
    hint="No .long() and no integer division: chapter 15 puts tokens at half positions.",
)
def test_fractions(student: Student, check: Check) -> None:
    freqs = some_frequencies(check, 4)
    check_pair(student, check, torch.tensor([0.5, 1.0, 1.5, 7.25, 12.75]), freqs, "positions 0.5, 1, 1.5, 7.25, 12.75")
    check_pair(student, check, torch.tensor([0, 1, 2]), freqs, "positions 0, 1, 2")


@hidden_test(
    "rope_cos_sin",
    "the frequencies that come are used",
    hint="The frequencies are an argument, for chapter 15 changes them. Do not compute your own.",
)
def test_given_frequencies(student: Student, check: Check) -> None:
    for freqs in ([0.7, 0.7, 0.1], [0.25], [0.02, 0.9]):
        check_pair(student, check, torch.arange(6), torch.tensor(freqs), f"frequencies {freqs}")


@hidden_test(
    "rope_cos_sin",
    "angles far from the start are computed in float32",
    hint="Position 5,003 is 5,000 in float16 and 4,992 in bfloat16. Turn both arguments into float32 before the "
    "product, whatever their types, and leave the results there.",
    weight=2,
)
def test_far(student: Student, check: Check) -> None:
    # In float32 an angle of 8,000 is off by up to 0.0005, half a step of that size: 0.002 leaves room.
    positions = torch.tensor([4097, 5003, 7999, check.integer(4000, 8000)])
    freqs = torch.tensor([1.0, 0.3, 0.07])
    cos, sin = check_pair(student, check, positions, freqs, "positions from 4,000 to 8,000", atol=2e-3)
    for name, got in (("cos", cos), ("sin", sin)):
        check.tensor(got, (4, 3), f"{name}, whole positions", torch.float32)
    for dtype in (torch.bfloat16, torch.float64):
        cos, sin = check_pair(student, check, positions, freqs.to(dtype), f"frequencies in {dtype}", atol=2e-3)
        for name, got in (("cos", cos), ("sin", sin)):
            check.tensor(got, (4, 3), f"{name}, frequencies in {dtype}", torch.float32)


@hidden_test(
    "rope_cos_sin",
    "positions and frequencies stay as they were",
    hint="Make new tensors: *= and the like change the caller's.",
)
def test_cos_sin_unchanged(student: Student, check: Check) -> None:
    positions, freqs = torch.arange(3.0, 8.0), some_frequencies(check, 4)
    check_pair(student, check, positions, freqs, "positions 3 to 7")
    check.true(student.fixtures.unchanged(student.rope_cos_sin, positions, freqs), "an argument was changed in place")
