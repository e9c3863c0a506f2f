"""Hidden tests of chapter 16: sliding_window_mask, receptive_field and sliding_window_attention."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def allowed(T: int, window: int, n_global: int = 0, S: int | None = None) -> Tensor:
    """The truth, pair by pair."""
    S = T if S is None else S
    rows = [[_may(t + S - T, s, window, n_global) for s in range(S)] for t in range(T)]
    return torch.tensor(rows, dtype=torch.bool).reshape(T, S)


def _may(position: int, key: int, window: int, n_global: int) -> bool:
    return key <= position and (position - key < window or key < n_global)


def windowed(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """The truth in float64, by torch's own operator under the mask."""
    mask = allowed(q.shape[-2], window)
    return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask)


# sliding_window_mask


@hidden_test(
    "sliding_window_mask",
    "a token sees itself and the window - 1 tokens before it",
    hint="The distance from the key to the query must be below the window: with a window of 1 a token sees itself.",
    weight=3,
)
def test_span(student: Student, check: Check) -> None:
    for T, window in ((7, 3), (5, 1), (6, 2), (1, 4), (9, 5)):
        check.equal(student.sliding_window_mask(T, window), allowed(T, window), f"T={T}, window={window}")


@hidden_test(
    "sliding_window_mask",
    "no token sees a later one",
    hint="The window reaches back only. Global tokens are seen by those that come after them.",
    weight=2,
)
def test_causal(student: Student, check: Check) -> None:
    for T, window, n_global in ((6, 3, 0), (7, 2, 4), (5, 9, 5)):
        got = student.sliding_window_mask(T, window, n_global)
        got = check.tensor(got, (T, T), f"T={T}", torch.bool)
        check.equal(got.triu(1), torch.zeros(T, T, dtype=torch.bool), f"above the diagonal, T={T}, n_global={n_global}")
        check.equal(got, allowed(T, window, n_global), f"T={T}, window={window}, n_global={n_global}")


@hidden_test(
    "sliding_window_mask",
    "the first n_global positions are seen from any distance",
    hint="A key may be attended to if it is near or if its position is below n_global.",
    weight=2,
)
def test_global(student: Student, check: Check) -> None:
    for T, window, n_global in ((8, 2, 1), (9, 3, 2), (6, 1, 3), (4, 2, 7)):
        got = student.sliding_window_mask(T, window, n_global=n_global)
        check.equal(got, allowed(T, window, n_global), f"T={T}, window={window}, n_global={n_global}")


@hidden_test(
    "sliding_window_mask",
    "with more keys than queries, the queries stand at the end of the keys",
    hint="Query t sits at position t + S - T. The window and the global tokens go by positions among the keys.",
    weight=2,
)
def test_aligned(student: Student, check: Check) -> None:
    for T, S, window, n_global in ((3, 8, 4, 0), (1, 6, 2, 0), (2, 9, 3, 2), (5, 7, 1, 1), (4, 2, 2, 0)):
        got = student.sliding_window_mask(T, window, n_global, S=S)
        check.equal(got, allowed(T, window, n_global, S), f"T={T}, S={S}, window={window}, n_global={n_global}")


@hidden_test(
    "sliding_window_mask",
    "a window as long as the text is a causal mask",
    hint="Nothing is special about a window above T: all earlier tokens are near.",
)
def test_wide(student: Student, check: Check) -> None:
    for T, window in ((5, 5), (4, 100), (1, 1)):
        check.equal(
            student.sliding_window_mask(T, window),
            torch.ones(T, T, dtype=torch.bool).tril(),
            f"T={T}, window={window}",
        )


@hidden_test(
    "sliding_window_mask",
    "a window below 1 or a negative n_global is a ValueError that names the number",
    hint="Check both arguments before anything else, and put the number into the message.",
)
def test_mask_arguments(student: Student, check: Check) -> None:
    for window in (0, -3):
        check.raises(
            ValueError, partial(student.sliding_window_mask, 4, window), f"window={window}", ("window", window)
        )
    check.raises(ValueError, partial(student.sliding_window_mask, 4, 2, -1), "n_global=-1", ("n_global", -1))
    check.equal(student.sliding_window_mask(4, 2, 0), allowed(4, 2), "T=4, window=2, n_global=0")


# receptive_field


@hidden_test(
    "receptive_field",
    "it is what a pile of windows reaches, counted one by one",
    hint="A layer adds window - 1 positions: the token itself is in reach already.",
    weight=3,
)
def test_reach(student: Student, check: Check) -> None:
    for n_layers, window in ((1, 5), (3, 4), (2, 7), (5, 2), (4, 1)):
        T = n_layers * window + 3
        steps = torch.linalg.matrix_power(allowed(T, window).double(), n_layers)
        want = int((steps[-1] > 0).sum())
        check.equal(student.receptive_field(n_layers, window), want, f"{n_layers} layers, window {window}")


@hidden_test(
    "receptive_field",
    "one layer reaches its window, and no layer reaches the token itself",
    hint="With no layer the answer is 1: a token depends on itself.",
)
def test_reach_ends(student: Student, check: Check) -> None:
    for window in (1, 6, 4096):
        check.equal(student.receptive_field(1, window), window, f"1 layer, window {window}")
        check.equal(student.receptive_field(0, window), 1, f"no layer, window {window}")


@hidden_test(
    "receptive_field",
    "each further layer adds the same",
    hint="The reach is linear in the depth: it neither doubles nor is it a power of the window.",
)
def test_reach_linear(student: Student, check: Check) -> None:
    window = check.integer(2, 50)
    reaches = [student.receptive_field(n_layers, window) for n_layers in (1, 2, 7, 32)]
    want = [window, 2 * window - 1, 7 * window - 6, 32 * window - 31]
    check.equal(reaches, want, f"1, 2, 7 and 32 layers, window {window}")


@hidden_test(
    "receptive_field",
    "a window below 1 or a negative depth is a ValueError that names the argument",
    hint="Check both arguments, and say which it is.",
)
def test_reach_arguments(student: Student, check: Check) -> None:
    check.raises(ValueError, partial(student.receptive_field, 3, 0), "window=0", ("window", 0))
    check.raises(ValueError, partial(student.receptive_field, -2, 4), "n_layers=-2", ("n_layers", -2))
    check.equal(student.receptive_field(2, 4), 7, "2 layers, window 4")


# sliding_window_attention


def heads(check: Check, *lead: int, T: int, d: int, d_v: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    q, k = (check.randn(*lead, T, d, dtype=dtype, scale=2.0) for _ in range(2))
    return [q, k, check.randn(*lead, T, d_v, dtype=dtype)]


@hidden_test(
    "sliding_window_attention",
    "it equals attention under the window's mask",
    hint="Compare with your attention(q, k, v, sliding_window_mask(T, window)) at small sizes; look at the first "
    "queries of each block.",
    weight=3,
)
def test_equal(student: Student, check: Check) -> None:
    for T, window in ((150, 40), (64, 16), (7, 3), (301, 5)):
        q, k, v = heads(check, 2, 3, T=T, d=5, d_v=5)
        got = student.sliding_window_attention(q, k, v, window)
        check.close(got, windowed(q, k, v, window), f"T={T}, window={window}")


@hidden_test(
    "sliding_window_attention",
    "lengths that are no multiple of the window, and windows of 1 or above T, work",
    hint="Cut the last block where the text ends, or pad and cut off. A window of 1 returns the values.",
    weight=2,
)
def test_odd_lengths(student: Student, check: Check) -> None:
    for T, window in ((67, 32), (131, 64), (50, 1), (9, 100), (1, 1), (1, 8), (130, 129), (65, 64)):
        q, k, v = heads(check, 1, 2, T=T, d=3, d_v=4)
        got = student.sliding_window_attention(q, k, v, window)
        check.close(got, windowed(q, k, v, window), f"T={T}, window={window}")


@hidden_test(
    "sliding_window_attention",
    "no tensor on the way grows with the square of the length",
    hint="Neither scores nor mask of T x T: each block of queries needs only the keys in its reach.",
    weight=3,
    at_most=0.5,
)
def test_memory(student: Student, check: Check) -> None:
    window, lengths, largest = 16, (512, 1024, 2048), []
    for T in lengths:
        q, k, v = heads(check, T=T, d=4, d_v=4)
        check.close(student.sliding_window_attention(q, k, v, window)[-1], windowed(q, k, v, window)[-1], f"T={T}")
        largest.append(student.fixtures.largest_tensor(student.sliding_window_attention, q, k, v, window))
    check.true(
        largest[-1] < 2048 * 2048 // 4 and largest[-1] <= 5 * largest[0],
        f"T={lengths}, window {window}: the largest tensor had {largest} elements; expected at most in proportion to T",
    )


@hidden_test(
    "sliding_window_attention",
    "four times the length is four times the work, not sixteen",
    hint="A block that looks at all earlier keys and masks them does quadratic work, however small its tensors are.",
    weight=2,
    at_most=0.6,
)
def test_work(student: Student, check: Check) -> None:
    lengths, made = (512, 2048), []
    for T in lengths:
        q, k, v = heads(check, T=T, d=4, d_v=4)
        check.close(student.sliding_window_attention(q, k, v, 8)[-1], windowed(q, k, v, 8)[-1], f"T={T}")
        made.append(student.fixtures.made(student.sliding_window_attention, q, k, v, 8))
    check.true(
        made[1] <= 5 * made[0],
        f"the tensors made for T={lengths[0]} have {made[0]:,} elements in all, for T={lengths[1]} {made[1]:,}; "
        "expected about four times as many",
    )


@hidden_test(
    "sliding_window_attention",
    "any leading dimensions and values of another width work",
    hint="Count dimensions from the end: positions are -2. Take the width of the result from v.",
)
def test_leading(student: Student, check: Check) -> None:
    for lead in ((), (3,), (2, 1, 3), (1, 4)):
        q, k, v = heads(check, *lead, T=70, d=5, d_v=3)
        got = student.sliding_window_attention(q, k, v, 9)
        check.close(got, windowed(q, k, v, 9), f"leading dimensions {lead}, d=5, values 3 wide")


@hidden_test(
    "sliding_window_attention",
    "tensors that are not contiguous work in every dtype, and inputs are left as they were",
    hint="reshape, not view. The result has the dtype of q.",
)
def test_dtypes(student: Student, check: Check) -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        q, k, v = (
            x.transpose(1, 2).contiguous().transpose(1, 2) for x in heads(check, 2, 3, T=40, d=4, d_v=5, dtype=dtype)
        )
        q = q / 4  # small scores: a large one, rounded to bfloat16, moves its weight by percents
        got = check.tensor(student.sliding_window_attention(q, k, v, 6), (2, 3, 40, 5), f"{dtype}", dtype)
        check.close(got, windowed(q, k, v, 6), f"{dtype}, not contiguous")
        same = student.fixtures.unchanged(student.sliding_window_attention, q, k, v, 6)
        check.true(same, f"{dtype}: the inputs were changed in place")


@hidden_test(
    "sliding_window_attention",
    "a window below 1 or another number of keys than queries is a ValueError that names the numbers",
    hint="Compare q.shape[-2] with k.shape[-2], and check the window, before the first block.",
)
def test_arguments(student: Student, check: Check) -> None:
    q, k, v = heads(check, 2, T=11, d=3, d_v=3)
    check.raises(ValueError, partial(student.sliding_window_attention, q, k, v, 0), "window=0", ("window", 0))
    few = partial(student.sliding_window_attention, q, k[:, :7], v[:, :7], 2)
    check.raises(ValueError, few, "11 queries, 7 keys", (11, 7))
    check.close(student.sliding_window_attention(q, k, v, 4), windowed(q, k, v, 4), "T=11, window=4")


@hidden_test(
    "sliding_window_attention",
    "gradients flow to the queries, keys and values of every block",
    hint="A .detach(), .data or no_grad cuts the way back; so does writing into a tensor made from numbers.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    q, k, v = heads(check, 2, T=9, d=3, d_v=2)
    check.close(student.sliding_window_attention(q, k, v, 4), windowed(q, k, v, 4), "the output itself")
    check.gradients(lambda *x: student.sliding_window_attention(*x, 4), q, k, v, what="sliding_window_attention")
