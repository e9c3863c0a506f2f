"""Hidden tests of chapter 04: sinusoidal_encoding and LearnedPositionalEncoding."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

# sinusoidal_encoding


def encoding(n_positions: int, D: int, base: float = 10000.0) -> Tensor:
    """The formula, number by number, in float64."""
    table = torch.zeros(n_positions, D, dtype=torch.float64)
    for position in range(n_positions):
        for i in range(D // 2):
            angle = position / base ** (2 * i / D)
            table[position, 2 * i], table[position, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


@hidden_test(
    "sinusoidal_encoding",
    "even columns are sines and odd columns cosines, in turn",
    hint="Column 0 is a sine, column 1 the cosine of the same angle, column 2 the next sine. All sines first and then "
    "all cosines is another layout.",
    weight=2,
)
def test_columns(student: Student, check: Check) -> None:
    got = student.sinusoidal_encoding(3, 4)
    rows = [[math.sin(t), math.cos(t), math.sin(t / 100), math.cos(t / 100)] for t in range(3)]
    check.close(got, torch.tensor(rows, dtype=torch.float64), "three positions, D=4, worked out by hand")
    check.close(student.sinusoidal_encoding(5, 10), encoding(5, 10), "five positions, D=10")


@hidden_test(
    "sinusoidal_encoding",
    "pair i turns by base ** (-2i / D) a position",
    hint="Both columns of pair i share one frequency. The exponent runs from 0 towards -1: 2i over D, where i counts "
    "pairs, not columns.",
    weight=2,
)
def test_frequencies(student: Student, check: Check) -> None:
    for D in check.shuffled([2, 6, 14, 32]):
        n = check.integer(3, 9)
        check.close(student.sinusoidal_encoding(n, D), encoding(n, D), f"{n} positions, D={D}")


@hidden_test(
    "sinusoidal_encoding",
    "the base is used, whatever it is",
    hint="base is an argument, not the constant 10000.",
    weight=2,
)
def test_base(student: Student, check: Check) -> None:
    for base in check.shuffled([2.0, 37.0, 500000.0]):
        got = student.sinusoidal_encoding(6, 8, base=base)
        check.close(got, encoding(6, 8, base), f"base {base:g}")
    check.close(student.sinusoidal_encoding(6, 8), encoding(6, 8), "the default, 10000")


@hidden_test(
    "sinusoidal_encoding",
    "positions count from 0, one row each",
    hint="Row 0 is 0, 1, 0, 1, ...: sines and cosines of the angle 0.",
)
def test_from_zero(student: Student, check: Check) -> None:
    got = student.sinusoidal_encoding(1, 6)
    check.close(got, torch.tensor([[0.0, 1, 0, 1, 0, 1]]), "a single position")
    got = student.sinusoidal_encoding(7, 6)
    check.close(got, encoding(7, 6), "seven positions")


@hidden_test(
    "sinusoidal_encoding",
    "the result is float32, (n_positions, D)",
    hint="Compute in float64 and convert at the end with .float().",
)
def test_shape(student: Student, check: Check) -> None:
    for n, D in ((1, 2), (9, 4), (4, 12)):
        got = student.sinusoidal_encoding(n, D)
        check.tensor(got, (n, D), f"{n} positions, D={D}", torch.float32)
        check.close(got, encoding(n, D), f"{n} positions, D={D}")
    got = student.sinusoidal_encoding(n_positions=5, d_model=6, base=50.0)
    check.close(got, encoding(5, 6, 50.0), "arguments by name")


@hidden_test(
    "sinusoidal_encoding",
    "rows far from the start are exact",
    hint="In float32 an angle of 30,000 is off by up to a thousandth. Make positions and frequencies float64.",
)
def test_far(student: Student, check: Check) -> None:
    n = 40_001
    got = student.sinusoidal_encoding(n, 6)
    check.tensor(got, (n, 6), f"{n} positions")
    for position in (40_000, check.integer(30_000, 40_000)):
        angles = [position / 10000.0 ** (2 * i / 6) for i in range(3)]
        want = torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64)
        check.close(got[position], want, f"row {position}")


@hidden_test(
    "sinusoidal_encoding",
    "how alike two rows are depends only on the gap between them",
    hint="sin a sin b + cos a cos b = cos(a - b): with sine and cosine of every angle, the dot product of two rows "
    "is a sum of cosines of the gap.",
)
def test_gap(student: Student, check: Check) -> None:
    got = student.sinusoidal_encoding(40, 12).double()
    check.tensor(got, (40, 12), "40 positions, D=12")
    for gap in (1, 5):
        starts = [check.integer(0, 34) for _ in range(4)]
        want = sum(math.cos(gap / 10000.0 ** (2 * i / 12)) for i in range(6))
        for start in starts:
            product = float((got[start] * got[start + gap]).sum())
            check.close(product, want, f"dot product of rows {start} and {start + gap}", rtol=1e-4)


@hidden_test(
    "sinusoidal_encoding",
    "an odd width is a ValueError that names it",
    hint="Sines and cosines come in pairs: check d_model % 2 first.",
)
def test_odd(student: Student, check: Check) -> None:
    for D in (7, 13):
        call = partial(student.sinusoidal_encoding, 4, D)
        check.raises(ValueError, call, f"d_model={D}", mentions=(D,))
    check.close(student.sinusoidal_encoding(4, 8), encoding(4, 8), "d_model=8")


# LearnedPositionalEncoding


def loaded(
    student: Student, check: Check, max_len: int, D: int, dtype: torch.dtype = torch.float32
) -> tuple[Any, Tensor]:
    """A table with known rows."""
    layer = student.LearnedPositionalEncoding(max_len, D)
    layer.to(dtype)
    weight = check.randn(max_len, D, dtype=dtype)
    layer.load_state_dict({"weight": weight})
    return layer, weight


@hidden_test(
    "LearnedPositionalEncoding",
    "its only parameter is weight, (max_len, D), small random numbers at the start",
    hint="One nn.Parameter called weight, filled by nn.init.normal_ with std=0.02. A buffer would never learn.",
    weight=2,
)
def test_parameter(student: Student, check: Check) -> None:
    layer = student.LearnedPositionalEncoding(max_len=400, d_model=30)
    check.equal(sorted(layer.state_dict()), ["weight"], "names in the state dict")
    check.equal(sorted(layer.grads()), ["weight"], "names of the parameters that learn")
    weight = check.tensor(layer.weight, (400, 30), "weight", torch.float32).detach()
    check.close(float(weight.std()), 0.02, "the standard deviation of 12,000 starting numbers", rtol=0.05)
    check.close(float(weight.mean()), 0.0, "their mean", atol=0.002)


@hidden_test(
    "LearnedPositionalEncoding",
    "token t gets row t added",
    hint="Take the first T rows of the table and add them to x: the width stays D.",
    weight=3,
)
def test_add(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 9, 4)
    for T in (1, 5, 9):
        x = check.randn(2, T, 4)
        check.close(layer(x), x.double() + weight[:T].double(), f"{T} tokens, 9 rows")


@hidden_test(
    "LearnedPositionalEncoding",
    "with an offset the first token gets that row",
    hint="Rows offset to offset + T - 1: a model that writes hands in one token at a time.",
    weight=2,
)
def test_offset(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 11, 5)
    for offset, T in ((3, 4), (10, 1), (6, 5)):
        x = check.randn(2, T, 5)
        check.close(
            layer(x, offset=offset), x.double() + weight[offset : offset + T].double(), f"offset {offset}, T={T}"
        )
    x = check.randn(2, 6, 5)
    whole = layer(x)
    pieces = torch.cat([layer(x[:, t : t + 1], t) for t in range(6)], dim=1)
    check.close(pieces, whole, "six tokens one at a time, with offsets 0 to 5")


@hidden_test(
    "LearnedPositionalEncoding",
    "every sequence of a batch gets the same rows, whatever stands in front",
    hint="T is the dimension before the last, x.shape[-2]; the rows broadcast over all dimensions before it.",
)
def test_batch(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 8, 6)
    for shape in ((3, 3, 6), (5, 2, 6), (7, 6), (2, 3, 4, 6)):
        x = check.randn(*shape)
        check.close(layer(x), x.double() + weight[: shape[-2]].double(), f"x of shape {shape}")


@hidden_test(
    "LearnedPositionalEncoding",
    "a position past the table is a ValueError that names offset, T and max_len",
    hint="The last position is offset + T - 1; it needs a row. A slice past the end is shorter, without an error.",
    weight=2,
)
def test_past_the_end(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 23, 4)
    for offset, T in ((0, 24), (17, 7), (23, 1), (22, 2)):
        call = partial(layer, check.randn(2, T, 4), offset=offset)
        check.raises(ValueError, call, f"offset {offset}, {T} tokens, 23 rows", mentions=(offset, T, 23))
    x = check.randn(2, 6, 4)
    check.close(layer(x, offset=17), x.double() + weight[17:].double(), "the last six of 23 rows: they are there")


@hidden_test(
    "LearnedPositionalEncoding",
    "a negative offset is a ValueError",
    hint="Python reads a negative index from the end: offset -1 would take the last row.",
)
def test_negative(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 10, 4)
    for offset in (-1, -6):
        check.raises(ValueError, partial(layer, check.randn(1, 1, 4), offset=offset), f"offset {offset}", (offset,))
    x = check.randn(1, 1, 4)
    check.close(layer(x, offset=0), x.double() + weight[:1].double(), "offset 0")


@hidden_test(
    "LearnedPositionalEncoding",
    "gradients reach the tokens and the rows that were used",
    hint="Use the parameter itself, not .data or .detach(). Otherwise at most three fifths of the points"
    " are to be had.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    layer, _ = loaded(student, check, 7, 3)
    x, probe = check.randn(2, 4, 3).requires_grad_(), check.randn(2, 4, 3)
    output = check.tensor(layer(x, offset=2), (2, 4, 3), "four tokens of width 3 from position 2")
    check.true(output.requires_grad, "no gradient flows from the output back")
    (output * probe).sum().backward()
    check.close(x.grad, probe, "the gradient of x")
    want = torch.zeros(7, 3)
    want[2:6] = probe.sum(0)
    check.close(layer.grads().get("weight"), want, "the gradient of weight: rows 2 to 5")


@hidden_test(
    "LearnedPositionalEncoding",
    "the tokens passed in are left as they were, and keep their dtype",
    hint="x += ... changes the caller's tensor; x + ... makes a new one.",
)
def test_input(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 9, 6, torch.float64)
    x = check.randn(6, 5, 2, dtype=torch.float64).permute(2, 1, 0)
    check.true(student.fixtures.unchanged(layer, x), "the layer changed x in the caller's hands")
    got = layer(x)
    check.tensor(got, (2, 5, 6), "the result for float64", torch.float64)
    check.close(got, x + weight[:5], "tokens that are not contiguous")
