"""Hidden tests of chapter 03, the first two exercises: split_heads and merge_heads."""

from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

# split_heads


def pieces(x: Tensor, n_heads: int) -> Tensor:
    """The heads cut out one by one, by slices of columns."""
    d = x.shape[-1] // n_heads
    return torch.stack([x[:, :, h * d : (h + 1) * d] for h in range(n_heads)], dim=1)


@hidden_test(
    "split_heads",
    "the result is (B, H, T, d): heads before positions",
    hint="After the cut the order is batch, position, head, column; the heads must come before the positions.",
)
def test_split_shape(student: Student, check: Check) -> None:
    for B, T, n_heads, d in ((2, 5, 3, 4), (1, 7, 2, 6), (3, 1, 5, 2)):
        x = check.randn(B, T, n_heads * d)
        got = student.split_heads(x, n_heads)
        what = f"split_heads of {B} sequences of {T} tokens, {n_heads} heads"
        check.tensor(got, (B, n_heads, T, d), what, torch.float32)
        check.close(got, pieces(x, n_heads), what)


@hidden_test(
    "split_heads",
    "head h holds columns h*d to (h+1)*d - 1 of every token",
    hint="Cut each vector into H runs of neighbouring columns. Column 0, H, 2H, ... for one head is the other order.",
    weight=2,
)
def test_split_columns(student: Student, check: Check) -> None:
    x = torch.arange(12.0).reshape(1, 1, 12)
    by_hand = torch.tensor([[[[0.0, 1, 2, 3]], [[4.0, 5, 6, 7]], [[8.0, 9, 10, 11]]]])
    check.close(student.split_heads(x, 3), by_hand, "columns 0 to 11 in 3 heads")
    x = check.randn(2, 1, 15)
    check.close(student.split_heads(x, 5), pieces(x, 5), "one token, 5 heads of width 3")


@hidden_test(
    "split_heads",
    "no head mixes the numbers of different tokens",
    hint="A view straight to (B, H, T, d) deals the numbers out in reading order, across tokens. Cut the last "
    "dimension first, then exchange heads and positions.",
    weight=3,
)
def test_split_tokens(student: Student, check: Check) -> None:
    T, n_heads, d = 6, 3, 4
    x = torch.arange(float(T)).reshape(1, T, 1).expand(2, T, n_heads * d)  # every column names its token
    want = torch.arange(float(T)).reshape(1, 1, T, 1).expand(2, n_heads, T, d)
    check.close(student.split_heads(x, n_heads), want, "each token's vector filled with its position")
    x = check.randn(2, T, n_heads * d)
    changed = x.clone()
    t = check.integer(0, T)
    changed[:, t] = check.randn(2, n_heads * d)
    got = student.split_heads(changed, n_heads)
    check.close(got, pieces(changed, n_heads), f"the heads after token {t} was changed")


@hidden_test(
    "split_heads",
    "sequences of a batch stay apart",
    hint="The batch is the first dimension before and after.",
)
def test_split_batch(student: Student, check: Check) -> None:
    x = check.randn(4, 3, 10)
    got = student.split_heads(x, 2)
    for b in range(4):
        check.close(got[b : b + 1], pieces(x[b : b + 1], 2), f"sequence {b} of 4")


@hidden_test(
    "split_heads",
    "a width that the heads cannot share is a ValueError that names both numbers",
    hint="Check D % n_heads before anything else, and put both numbers into the message.",
)
def test_split_refuses(student: Student, check: Check) -> None:
    for D, n_heads in ((10, 4), (7, 2), (5, 10)):
        call = partial(student.split_heads, check.randn(2, 3, D), n_heads)
        check.raises(ValueError, call, f"width {D}, {n_heads} heads", mentions=(D, n_heads))
    x = check.randn(2, 3, 12)
    check.close(student.split_heads(x, 4), pieces(x, 4), "width 12, 4 heads")


@hidden_test(
    "split_heads",
    "one head, and heads of width one, work",
    hint="Nothing is special about H = 1 or H = D: the same two steps serve.",
)
def test_split_ends(student: Student, check: Check) -> None:
    x = check.randn(2, 5, 6)
    for n_heads in (1, 6):
        check.close(student.split_heads(x, n_heads), pieces(x, n_heads), f"width 6, {n_heads} heads")


@hidden_test(
    "split_heads",
    "vectors that are not contiguous work, and keep their dtype",
    hint="`view` refuses tensors whose numbers are not in reading order; `reshape` does not.",
)
def test_split_strides(student: Student, check: Check) -> None:
    x = check.randn(9, 4, 2).permute(2, 1, 0)  # (2, 4, 9)
    check.close(student.split_heads(x, 3), pieces(x, 3), "a permuted tensor")
    for dtype in (torch.float64, torch.float16):
        y = check.randn(2, 3, 8, dtype=dtype)
        got = student.split_heads(y, 2)
        check.tensor(got, (2, 2, 3, 4), f"heads of {dtype}", dtype)
        check.close(got, pieces(y, 2), f"heads of {dtype}")


# merge_heads


def joined(x: Tensor) -> Tensor:
    """The heads' columns side by side, one head after the other."""
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


@hidden_test(
    "merge_heads",
    "the heads' columns stand side by side, head 0 first",
    hint="For each token: all columns of head 0, then all of head 1. Columns of different heads do not alternate.",
    weight=2,
)
def test_merge_columns(student: Student, check: Check) -> None:
    x = torch.tensor([[[[0.0, 1.0]], [[10.0, 11.0]], [[20.0, 21.0]]]])  # one token, 3 heads of width 2
    check.close(student.merge_heads(x), torch.tensor([[[0.0, 1, 10, 11, 20, 21]]]), "one token, three heads")
    x = check.randn(2, 5, 1, 3)
    check.close(student.merge_heads(x), joined(x), "one token, 5 heads of width 3")


@hidden_test(
    "merge_heads",
    "no vector mixes the numbers of different tokens",
    hint="Exchange heads and positions before the reshape, or rows run together in reading order.",
    weight=3,
)
def test_merge_tokens(student: Student, check: Check) -> None:
    T, n_heads, d = 5, 3, 4
    x = torch.arange(float(T)).reshape(1, 1, T, 1).expand(2, n_heads, T, d)
    want = torch.arange(float(T)).reshape(1, T, 1).expand(2, T, n_heads * d)
    check.close(student.merge_heads(x), want, "every number is its token's position")
    x = check.randn(2, 3, 7, 4)
    check.close(student.merge_heads(x), joined(x), "3 heads, 7 tokens")


@hidden_test(
    "merge_heads",
    "it undoes split_heads",
    hint="The two steps of split_heads, backwards and in the other order.",
    weight=2,
)
def test_merge_inverse(student: Student, check: Check) -> None:
    for B, T, n_heads, d in ((2, 6, 3, 5), (3, 4, 2, 7)):
        x = check.randn(B, T, n_heads * d)
        check.close(student.merge_heads(pieces(x, n_heads)), x, f"{n_heads} heads of width {d}, merged again")


@hidden_test(
    "merge_heads",
    "the result is (B, T, D), one token and one head included",
    hint="D is H times d, read from the input; squeezing would lose a dimension of size one.",
)
def test_merge_shape(student: Student, check: Check) -> None:
    for shape in ((2, 3, 5, 4), (1, 3, 1, 2), (2, 1, 4, 6), (1, 1, 1, 3)):
        B, H, T, d = shape
        x = check.randn(*shape)
        got = student.merge_heads(x)
        check.tensor(got, (B, T, H * d), f"merge_heads of shape {shape}", torch.float32)
        check.close(got, joined(x), f"merge_heads of shape {shape}")


@hidden_test(
    "merge_heads",
    "sequences of a batch stay apart while merging",
    hint="The batch is the first dimension before and after; nothing moves between sequences.",
)
def test_merge_batch(student: Student, check: Check) -> None:
    x = check.randn(4, 2, 3, 5)
    got = student.merge_heads(x)
    for b in range(4):
        check.close(got[b : b + 1], joined(x[b : b + 1]), f"sequence {b} of 4")


@hidden_test(
    "merge_heads",
    "heads that are not contiguous work, and keep their dtype",
    hint="After a transpose the numbers are not in reading order, and `view` refuses; `reshape` copies if it must.",
)
def test_merge_strides(student: Student, check: Check) -> None:
    x = check.randn(4, 3, 5, 2).permute(3, 1, 2, 0)  # (2, 3, 5, 4)
    check.close(student.merge_heads(x), joined(x), "a permuted tensor")
    for dtype in (torch.float64, torch.float16):
        y = check.randn(2, 3, 4, 2, dtype=dtype)
        got = student.merge_heads(y)
        check.tensor(got, (2, 4, 6), f"heads of {dtype}", dtype)
        check.close(got, joined(y), f"heads of {dtype}")


@hidden_test(
    "merge_heads",
    "gradients flow back to every head",
    hint="Do not build the result with torch.tensor(...) or .data, and do not detach: that cuts the way back.",
    at_most=0.6,
)
def test_merge_gradients(student: Student, check: Check) -> None:
    x, probe = check.randn(2, 3, 4, 5).requires_grad_(), check.randn(2, 4, 15)
    (student.merge_heads(x) * probe).sum().backward()
    check.close(x.grad, pieces(probe, 3), "the gradient of each number: its probe")
