"""Hidden tests of chapter 13: repeat_kv and pool_kv_heads."""

from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def repeated(x: Tensor, n_rep: int) -> Tensor:
    """The truth: copies of one head side by side."""
    return torch.stack([x[:, h // n_rep] for h in range(x.shape[1] * n_rep)], dim=1)


@hidden_test(
    "repeat_kv",
    "copies of one head stand side by side",
    hint="With two heads a, b and n_rep = 3 the result is a, a, a, b, b, b, and not a, b, a, b, a, b.",
    weight=3,
)
def test_order(student: Student, check: Check) -> None:
    for B, K, S, d, n_rep in ((2, 3, 4, 5, 2), (1, 2, 6, 3, 4), (3, 4, 1, 2, 3)):
        x = check.randn(B, K, S, d)
        check.close(student.repeat_kv(x, n_rep), repeated(x, n_rep), f"B={B}, K={K}, S={S}, d={d}, n_rep={n_rep}")


@hidden_test(
    "repeat_kv",
    "one copy of each head is the input, and one head can be copied for all",
    hint="n_rep = 1 and K = 1 are the two ends of the dial; neither needs a case of its own.",
)
def test_ends(student: Student, check: Check) -> None:
    x = check.randn(2, 5, 3, 4)
    check.close(student.repeat_kv(x, 1), x, "n_rep=1")
    one = x[:, :1]
    check.close(student.repeat_kv(one, 6), repeated(one, 6), "K=1, n_rep=6")


@hidden_test(
    "repeat_kv",
    "positions, widths and texts stay in their places",
    hint="Only the heads' dimension grows. A reshape in place of an expand mixes positions into heads.",
    weight=2,
)
def test_places(student: Student, check: Check) -> None:
    x = torch.arange(2 * 2 * 3 * 4).reshape(2, 2, 3, 4).float()
    for n_rep in check.shuffled([2, 3, 5]):
        check.equal(student.repeat_kv(x, n_rep), repeated(x, n_rep), f"numbers 0 to 47, n_rep={n_rep}")


@hidden_test(
    "repeat_kv",
    "heads that are not contiguous work, in every dtype",
    hint="reshape, not view; and no conversion.",
)
def test_dtypes(student: Student, check: Check) -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        x = check.randn(2, 5, 3, 4, dtype=dtype).transpose(1, 2)
        got = check.tensor(student.repeat_kv(x, 2), (2, 6, 5, 4), f"{dtype}", dtype)
        check.close(got, repeated(x, 2), f"{dtype}, heads that are not contiguous", rtol=0, atol=0)


@hidden_test(
    "repeat_kv",
    "every copy's gradient flows back to its head",
    hint="A head that n_rep queries use gets the sum of n_rep gradients: no .detach(), no .data.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    x, probe = check.randn(2, 3, 2, 4).requires_grad_(), check.randn(2, 6, 2, 4)
    got = student.repeat_kv(x, 2)
    check.close(got, repeated(x.detach(), 2), "the copies themselves")
    check.true(got.requires_grad, "no gradient flows from the copies back")
    (got * probe).sum().backward()
    check.close(x.grad, probe.unflatten(1, (3, 2)).sum(dim=2), "the gradient of the heads")


# pool_kv_heads


def pooled(weight: Tensor, H: int, K: int) -> Tensor:
    """The truth, head by head."""
    heads = weight.double().chunk(H)
    size = H // K
    return torch.cat([sum(heads[g * size : (g + 1) * size]) / size for g in range(K)])


@hidden_test(
    "pool_kv_heads",
    "each new head is the mean of its group's old heads",
    hint="Heads of one group stand side by side in the weight's rows. The mean, not the sum.",
    weight=3,
)
def test_pool(student: Student, check: Check) -> None:
    for H, K, d, D in ((6, 2, 3, 5), (8, 4, 2, 7), (9, 3, 4, 2)):
        weight = check.randn(H * d, D)
        check.close(student.pool_kv_heads(weight, H, K), pooled(weight, H, K), f"H={H}, K={K}, d={d}, D={D}")


@hidden_test(
    "pool_kv_heads",
    "rows of a head are not mixed with one another",
    hint="Take the mean over the heads of a group, row by row: row i of the new head from row i of each old one.",
    weight=2,
)
def test_rows(student: Student, check: Check) -> None:
    weight = torch.arange(6 * 2).float()[:, None] * torch.tensor([[1.0, 100.0, 10000.0]])
    check.close(student.pool_kv_heads(weight, 6, 3), pooled(weight, 6, 3), "rows numbered 0 to 11, 6 heads, 3 groups")
    weight = check.randn(12, 5)
    check.close(student.pool_kv_heads(weight, 4, 2), pooled(weight, 4, 2), "4 heads of 3 rows, 2 groups")


@hidden_test(
    "pool_kv_heads",
    "as many groups as heads change nothing, and one group is the mean of all heads",
    hint="The two ends of the dial need no case of their own.",
)
def test_pool_ends(student: Student, check: Check) -> None:
    weight = check.randn(10, 4)
    check.close(student.pool_kv_heads(weight, 5, 5), weight, "5 heads, 5 groups")
    check.close(student.pool_kv_heads(weight, 5, 1), pooled(weight, 5, 1), "5 heads, 1 group")


@hidden_test(
    "pool_kv_heads",
    "heads that equal one another stay as they are",
    hint="Pooling must lose nothing where there is nothing to lose; a sum makes the heads larger.",
)
def test_equal(student: Student, check: Check) -> None:
    few = check.randn(2 * 3, 5)
    many = few.reshape(2, 1, 3, 5).expand(2, 4, 3, 5).reshape(24, 5)
    check.close(student.pool_kv_heads(many, 8, 2), few, "8 heads, alike in each of 2 groups")


@hidden_test(
    "pool_kv_heads",
    "what does not divide is a ValueError that names both numbers",
    hint="n_heads must be a multiple of n_kv_heads, and the rows a multiple of n_heads.",
)
def test_pool_errors(student: Student, check: Check) -> None:
    weight = check.randn(12, 5)
    check.raises(ValueError, partial(student.pool_kv_heads, weight, 6, 4), "6 heads, 4 groups", mentions=(6, 4))
    check.raises(ValueError, partial(student.pool_kv_heads, weight, 5, 1), "12 rows, 5 heads", mentions=(12, 5))
    check.close(student.pool_kv_heads(weight, 6, 3), pooled(weight, 6, 3), "6 heads, 3 groups")


@hidden_test(
    "pool_kv_heads",
    "the weight is left as it was, and the dtype kept",
    hint="Make a new tensor; no += into the weight that came.",
)
def test_pool_dtype(student: Student, check: Check) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        weight = check.randn(12, 5, dtype=dtype)
        got = check.tensor(student.pool_kv_heads(weight, 4, 2), (6, 5), f"{dtype}", dtype)
        check.close(got, pooled(weight, 4, 2), f"{dtype}")
        check.true(student.fixtures.unchanged(student.pool_kv_heads, weight, 4, 2), "the weight was changed in place")
