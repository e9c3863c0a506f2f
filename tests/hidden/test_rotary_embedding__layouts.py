"""Hidden tests of chapter 14: interleaved_to_half and half_to_interleaved."""

from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

EXERCISE = "interleaved_to_half"


def order(d: int, n_heads: int) -> list[int]:
    """Which rows of an interleaved weight stand, one after the other, in the half layout."""
    return [h * d + row for h in range(n_heads) for row in [*range(0, d, 2), *range(1, d, 2)]]


def back(d: int, n_heads: int) -> list[int]:
    """The inverse of that order: by where each row went."""
    places = order(d, n_heads)
    return [places.index(row) for row in range(n_heads * d)]


def turned(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """A turn of `(H, T, d)` in float64: as complex numbers, or by halves."""
    if layout == "interleaved":
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2)
    a, b = x.tensor_split(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


@hidden_test(
    EXERCISE,
    "known rows: 0, 2, 4 and then 1, 3, 5 for a head six wide",
    hint="interleaved_to_half puts the first of every pair into the first half of the head, the second into the second "
    "half.",
    weight=2,
)
def test_rows(student: Student, check: Check) -> None:
    weight = torch.arange(6.0)[:, None] * torch.tensor([1.0, 10, 100])  # row r is r, 10 r, 100 r
    want = torch.tensor([0.0, 2, 4, 1, 3, 5])[:, None] * torch.tensor([1.0, 10, 100])
    check.equal(student.interleaved_to_half(weight, 1), want, "one head of 6 rows")
    weight = check.randn(10, 3)
    check.equal(student.interleaved_to_half(weight, n_heads=1), weight[order(10, 1)], "one head of 10 rows")


@hidden_test(
    EXERCISE,
    "known rows of the way back: 0, 3, 1, 4, 2, 5",
    hint="half_to_interleaved takes rows in turn from the first half and the second. It is not the same reordering "
    "again: only for d = 2 and 4 are the two alike.",
    weight=2,
)
def test_rows_back(student: Student, check: Check) -> None:
    weight = torch.arange(6.0)[:, None] * torch.tensor([1.0, 10, 100])
    want = torch.tensor([0.0, 3, 1, 4, 2, 5])[:, None] * torch.tensor([1.0, 10, 100])
    check.equal(student.half_to_interleaved(weight, 1), want, "one head of 6 rows")
    weight = check.randn(10, 3)
    check.equal(student.half_to_interleaved(weight, n_heads=1), weight[back(10, 1)], "one head of 10 rows")


@hidden_test(
    EXERCISE,
    "each head is reordered by itself",
    hint="Rows of different heads must not mix: reshape to (n_heads, d, ...) first, and work on the dimension of d.",
    weight=2,
)
def test_each_head(student: Student, check: Check) -> None:
    for n_heads, d, D in ((3, 6, 5), (2, 10, 7), (5, 8, 3)):
        weight, what = check.randn(n_heads * d, D), f"{n_heads} heads of {d} rows"
        check.equal(student.interleaved_to_half(weight, n_heads), weight[order(d, n_heads)], what)
        check.equal(student.half_to_interleaved(weight, n_heads), weight[back(d, n_heads)], f"{what}, back")


@hidden_test(
    EXERCISE,
    "the half layout with the new rows scores as the interleaved one with the old",
    hint="That is what the reordering is for: the rows that were pair (2i, 2i + 1) must become the pair (i, i + d/2). "
    "Otherwise at most three fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_scores(student: Student, check: Check) -> None:
    H, d, D, T = 3, 10, 7, 5
    angle = torch.arange(T).double()[:, None] * torch.tensor([1, 0.6, 0.3, 0.1, 0.02], dtype=torch.float64)
    x = check.randn(T, D, dtype=torch.float64)
    q_proj, k_proj = (check.randn(H * d, D, dtype=torch.float64) for _ in range(2))

    def scores(q_rows: Tensor, k_rows: Tensor, layout: str) -> Tensor:
        q, k = ((x @ rows.T).unflatten(-1, (H, d)).transpose(0, 1) for rows in (q_rows, k_rows))
        q, k = (turned(y, angle.cos(), angle.sin(), layout) for y in (q, k))
        return q @ k.mT

    want = scores(q_proj, k_proj, "interleaved")
    half = [
        check.tensor(student.interleaved_to_half(w, H), (H * d, D), "a weight", torch.float64) for w in (q_proj, k_proj)
    ]
    check.close(scores(half[0], half[1], "half"), want, "scores in the half layout against the interleaved one")
    want = scores(q_proj, k_proj, "half")
    turns = [
        check.tensor(student.half_to_interleaved(w, H), (H * d, D), "a weight", torch.float64) for w in (q_proj, k_proj)
    ]
    check.close(
        scores(turns[0], turns[1], "interleaved"), want, "scores in the interleaved layout against the half one"
    )


@hidden_test(
    EXERCISE,
    "there and back gives the weight again",
    hint="The second reordering undoes the first: in numpy's words, its order is the argsort of the other.",
)
def test_round_trip(student: Student, check: Check) -> None:
    for n_heads, d, D in ((3, 8, 5), (2, 14, 3)):
        weight, what = check.randn(n_heads * d, D), f"{n_heads} heads of {d} rows"
        half = student.interleaved_to_half(weight, n_heads)
        check.equal(half, weight[order(d, n_heads)], what)
        check.equal(student.half_to_interleaved(half, n_heads), weight, f"{what}, there and back")
        turns = student.half_to_interleaved(weight, n_heads)
        check.equal(student.interleaved_to_half(turns, n_heads), weight, f"{what}, back and there")


@hidden_test(
    EXERCISE,
    "a bias is reordered like the rows of its weight",
    hint="A bias has one dimension, (n_heads * d,): let the other dimensions be weight.shape[1:], whatever they are.",
)
def test_bias(student: Student, check: Check) -> None:
    for n_heads, d in ((1, 6), (3, 10)):
        bias = check.randn(n_heads * d)
        check.equal(student.interleaved_to_half(bias, n_heads), bias[order(d, n_heads)], f"{n_heads} heads of {d}")
        check.equal(student.half_to_interleaved(bias, n_heads), bias[back(d, n_heads)], f"{n_heads} heads of {d}, back")


@hidden_test(
    EXERCISE,
    "the rows are moved, never changed, in the dtype that they have",
    hint="Reordering is exact: no conversion to float32, and nothing written into the caller's weight.",
)
def test_exact(student: Student, check: Check) -> None:
    for dtype in (torch.bfloat16, torch.float64):
        weight = check.randn(7, 12, dtype=dtype).T  # as a weight stored the other way lies in memory
        check.equal(student.interleaved_to_half(weight, 2), weight[order(6, 2)], f"{dtype}")
        check.equal(student.half_to_interleaved(weight, 2), weight[back(6, 2)], f"{dtype}, back")
    weight = check.randn(12, 7)
    for name, function in (("there", student.interleaved_to_half), ("back", student.half_to_interleaved)):
        check.true(student.fixtures.unchanged(function, weight, 2), f"{name}: the weight was changed in place")


@hidden_test(
    EXERCISE,
    "rows that do not make heads of even width are a ValueError that names rows and n_heads",
    hint="Each of the n_heads must get the same, even number of rows.",
)
def test_error(student: Student, check: Check) -> None:
    for name, function, places in (
        ("interleaved_to_half", student.interleaved_to_half, order(6, 2)),
        ("half_to_interleaved", student.half_to_interleaved, back(6, 2)),
    ):
        for rows, n_heads in ((14, 3), (15, 5), (18, 6), (12, 0)):
            call = partial(function, torch.ones(rows, 4), n_heads)
            check.raises(ValueError, call, f"{name}: {rows} rows, {n_heads} heads", mentions=(rows, n_heads))
        weight = check.randn(12, 4)
        check.equal(function(weight, 2), weight[places], f"{name}: 12 rows, 2 heads, which fit")
