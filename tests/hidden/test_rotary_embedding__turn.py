"""Hidden tests of chapter 14: apply_rope."""

import math
from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

LAYOUTS = ("interleaved", "half")


def columns(i: int, d: int, layout: str) -> tuple[int, int]:
    """Which two columns are pair `i`."""
    return (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + d // 2)


def turned(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    """The truth: pair after pair, in float64."""
    x, cos, sin = x.double(), cos.double(), sin.double()
    result = torch.zeros_like(x)
    for i in range(cos.shape[-1]):
        first, second = columns(i, x.shape[-1], layout)
        for t in range(x.shape[-2]):
            a, b = x[..., t, first], x[..., t, second]
            result[..., t, first] = a * cos[t, i] - b * sin[t, i]
            result[..., t, second] = a * sin[t, i] + b * cos[t, i]
    return result


def angles(check: Check, T: int, pairs: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of angles that are all different and follow no rule."""
    angle = check.randn(T, pairs, dtype=torch.float64, scale=2.0)
    return angle.cos().float(), angle.sin().float()


def growing(positions: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine as positions give them, in float64: what the identity of distance needs."""
    freqs = torch.tensor([30.0 ** (-i / pairs) for i in range(pairs)], dtype=torch.float64)
    angle = positions.double()[:, None] * freqs
    return angle.cos(), angle.sin()


@hidden_test(
    "apply_rope",
    "known values in the interleaved layout: columns 0 and 1 are a pair",
    hint="A quarter turn takes (1, 2) to (-2, 1). Pairs are columns (0, 1), (2, 3), ...: x[..., 0::2] and x[..., 1::2],"
    " put back in turn.",
    weight=3,
)
def test_interleaved(student: Student, check: Check) -> None:
    x = torch.tensor([[[[1.0, 2, 3, 4, 5, 6]]]])
    cos, sin = torch.tensor([[0.0, 1, -1]]), torch.tensor([[1.0, 0, 0]])  # quarter turn, none, half turn
    want = torch.tensor([[[[-2.0, 1, 3, 4, -5, -6]]]])
    check.close(student.apply_rope(x, cos, sin), want, "1, 2, 3, 4, 5, 6 by a quarter, no and half a turn")
    check.close(student.apply_rope(x, cos, sin, layout="interleaved"), want, "the same, the layout by name")
    x, (cos, sin) = check.randn(2, 3, 5, 8), angles(check, 5, 4)
    check.close(student.apply_rope(x, cos, sin), turned(x, cos, sin), "B=2, H=3, T=5, d=8")


@hidden_test(
    "apply_rope",
    "known values in the half layout: columns i and i + d/2 are a pair",
    hint="For d=6 the pairs are (0, 3), (1, 4), (2, 5): the halves of x, not every second column, and the results go "
    "back to the halves.",
    weight=3,
)
def test_half(student: Student, check: Check) -> None:
    x = torch.tensor([[[[1.0, 2, 3, 4, 5, 6]]]])
    cos, sin = torch.tensor([[0.0, 1, -1]]), torch.tensor([[1.0, 0, 0]])
    want = torch.tensor([[[[-4.0, 2, -3, 1, 5, -6]]]])
    check.close(student.apply_rope(x, cos, sin, layout="half"), want, "1, 2, 3, 4, 5, 6 by a quarter, no, half a turn")
    x, (cos, sin) = check.randn(2, 3, 5, 8), angles(check, 5, 4)
    check.close(student.apply_rope(x, cos, sin, "half"), turned(x, cos, sin, "half"), "B=2, H=3, T=5, d=8")


@hidden_test(
    "apply_rope",
    "a positive angle turns the first axis towards the second",
    hint="(1, 0) by 90 degrees is (0, 1): first a * cos - b * sin, then a * sin + b * cos. With the minus in the other "
    "place everything turns backwards.",
    weight=2,
)
def test_sign(student: Student, check: Check) -> None:
    for layout in LAYOUTS:
        angle = math.radians(check.integer(10, 80))
        cos, sin = torch.tensor([[math.cos(angle)]]), torch.tensor([[math.sin(angle)]])
        for x, want in (
            ((1.0, 0.0), (math.cos(angle), math.sin(angle))),
            ((0.0, 1.0), (-math.sin(angle), math.cos(angle))),
        ):
            got = student.apply_rope(torch.tensor(x).view(1, 1, 1, 2), cos, sin, layout=layout)
            check.close(got, torch.tensor(want).view(1, 1, 1, 2), f"{x} by {math.degrees(angle):.0f} degrees, {layout}")


@hidden_test(
    "apply_rope",
    "every pair has its own angle, at every position",
    hint="Column i of cos and sin belongs to pair i, row t to position t. Repeated as a whole, (0, 1, 0, 1), they fit "
    "the half layout; each twice in a row, (0, 0, 1, 1), the interleaved one.",
    weight=2,
)
def test_pairs(student: Student, check: Check) -> None:
    for layout in LAYOUTS:
        for i in range(3):  # pair i turns, the others stand still
            cos, sin = torch.ones(4, 3), torch.zeros(4, 3)
            cos[:, i], sin[:, i] = (part[:, 0] for part in angles(check, 4, 1))
            x = check.randn(1, 2, 4, 6)
            got = student.apply_rope(x, cos, sin, layout=layout)
            check.close(got, turned(x, cos, sin, layout), f"{layout}, pair {i} of 3 alone turns")


@hidden_test(
    "apply_rope",
    "the angle goes by position, the same for every head and text",
    hint="x is (B, H, T, d): positions stand in the dimension before the last, and (T, d / 2) broadcasts as it is.",
    weight=2,
)
def test_heads(student: Student, check: Check) -> None:
    for B, H, T in (
        (3, 4, 4),
        (4, 4, 1),
        (1, 5, 3),
        (3, 1, 3),
    ):  # heads or texts as many as positions: a mix-up is silent
        x, (cos, sin) = check.randn(B, H, T, 6), angles(check, T, 3)
        for layout in LAYOUTS:
            got = student.apply_rope(x, cos, sin, layout=layout)
            check.close(got, turned(x, cos, sin, layout), f"B={B}, H={H}, T={T}, {layout}")


@hidden_test(
    "apply_rope",
    "a score depends only on the gap: 2 and 5 score as 200 and 203",
    hint="Turned by their positions' angles, q and k keep the angle between them when both move on by the same number "
    "of positions. Both entries of a pair must turn, by one angle.",
    weight=2,
)
def test_gap(student: Student, check: Check) -> None:
    q, k = check.randn(1, 2, 1, 10, dtype=torch.float64), check.randn(1, 2, 1, 10, dtype=torch.float64)
    for layout in LAYOUTS:
        scores = []
        for s, t in ((2, 5), (200, 203)):
            (cos_s, sin_s), (cos_t, sin_t) = growing(torch.tensor([s]), 5), growing(torch.tensor([t]), 5)
            mine = student.apply_rope(k, cos_s, sin_s, layout=layout)
            scores.append((student.apply_rope(q, cos_t, sin_t, layout=layout) * mine).sum(-1))
            want = (turned(q, cos_t, sin_t, layout) * turned(k, cos_s, sin_s, layout)).sum(-1)
            check.close(scores[-1], want, f"{layout}, key at {s}, query at {t}")
        check.close(scores[1], scores[0], f"{layout}, 200 and 203 against 2 and 5")


@hidden_test(
    "apply_rope",
    "the result has the dtype of x",
    hint="float32 cosines times bfloat16 queries are float32: the last step is .to(x.dtype).",
)
def test_dtype(student: Student, check: Check) -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.float32):
        x, (cos, sin) = check.randn(2, 1, 3, 4, dtype=dtype), angles(check, 3, 2)
        for layout in LAYOUTS:
            got = check.tensor(
                student.apply_rope(x, cos, sin, layout=layout), (2, 1, 3, 4), f"{layout}, x in {dtype}", dtype
            )
            check.close(got, turned(x, cos, sin, layout), f"{layout}, x in {dtype}")
    x, cos, sin = check.randn(2, 1, 3, 4), cos.double(), sin.double()
    got = check.tensor(student.apply_rope(x, cos, sin), (2, 1, 3, 4), "x in float32, cosines in float64", torch.float32)
    check.close(got, turned(x, cos, sin), "x in float32, cosines in float64")


@hidden_test(
    "apply_rope",
    "the turn is computed in the wider of the two dtypes",
    hint="Leave cos and sin as they are: PyTorch multiplies bfloat16 by float32 in float32. Convert the result, once.",
)
def test_wider(student: Student, check: Check) -> None:
    # One rounding of the result to bfloat16 is off by at most 1/256 of it; roundings on the way are
    # off by as much of the numbers that were subtracted, which may be far larger.
    x, (cos, sin) = check.randn(2, 3, 7, 12, dtype=torch.bfloat16), angles(check, 7, 6)
    for layout in LAYOUTS:
        got = student.apply_rope(x, cos, sin, layout=layout)
        check.close(got, turned(x, cos, sin, layout), f"{layout}, x in bfloat16", rtol=1 / 250, atol=1e-6)
    x, (cos, sin) = check.randn(2, 3, 5, 6, dtype=torch.float64), angles(check, 5, 3)
    check.close(student.apply_rope(x, cos, sin), turned(x, cos, sin), "x in float64", rtol=1e-12, atol=1e-12)


@hidden_test(
    "apply_rope",
    "another layout is a ValueError that names it and the two that there are",
    hint="Check `layout` itself: an else that takes everything would run 'Half' as the wrong one.",
)
def test_layout_error(student: Student, check: Check) -> None:
    x, (cos, sin) = check.randn(1, 2, 3, 6), angles(check, 3, 3)
    for layout in ("Half", "neox"):
        call = partial(student.apply_rope, x, cos, sin, layout=layout)
        check.raises(ValueError, call, f"layout={layout!r}", mentions=(layout, *LAYOUTS))
    for layout in LAYOUTS:
        got = student.apply_rope(x, cos, sin, layout=layout)
        check.close(got, turned(x, cos, sin, layout), f"layout={layout!r}")


@hidden_test(
    "apply_rope",
    "queries, cosines and sines stay as they were, in any memory order",
    hint="Make a new tensor: writing into x[..., 0::2] changes the caller's. And .view() fails where heads were "
    "transposed: use reshape, unflatten or slices.",
)
def test_rope_unchanged(student: Student, check: Check) -> None:
    x, (cos, sin) = check.randn(2, 5, 3, 8).transpose(1, 2), angles(check, 5, 4)  # as split_heads leaves it
    across = check.randn(8, 5, 3, 2).permute(3, 2, 1, 0)
    for layout in LAYOUTS:
        for what, y in (("heads transposed", x), ("columns first in memory", across)):
            got = student.apply_rope(y, cos, sin, layout=layout)
            check.close(got, turned(y, cos, sin, layout), f"{layout}, {what}")
        unchanged = student.fixtures.unchanged(student.apply_rope, x, cos, sin, layout=layout)
        check.true(unchanged, f"{layout}: an argument was changed in place")


@hidden_test(
    "apply_rope",
    "gradients flow back through the turn",
    hint="No .detach(), .data or torch.no_grad(): queries and keys learn through their turns. Otherwise at most three "
    "fifths of the points are to be had.",
    at_most=0.6,
)
def test_rope_gradients(student: Student, check: Check) -> None:
    x = check.randn(1, 2, 3, 6, dtype=torch.float64)
    cos, sin = growing(torch.tensor([1, 4, 6]), 3)
    for layout in LAYOUTS:
        got = check.tensor(student.apply_rope(x, cos, sin, layout=layout), (1, 2, 3, 6), layout, torch.float64)
        check.close(got, turned(x, cos, sin, layout), f"{layout}, the values")
        check.gradients(partial(call_rope, student, cos, sin, layout), x, what=f"{layout}, with respect to x")


def call_rope(student: Student, cos: Tensor, sin: Tensor, layout: str, x: Tensor) -> Tensor:
    """`apply_rope` with x last, for `partial`."""
    return student.apply_rope(x, cos, sin, layout=layout)
