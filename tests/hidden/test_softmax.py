"""Hidden tests of chapter 01, the first exercise: softmax."""

import math

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

INF = math.inf


def truth(x: Tensor, dim: int = -1) -> Tensor:
    """Torch's own softmax in float64."""
    return torch.softmax(x.double(), dim)


@hidden_test(
    "softmax",
    "scores 2.0, 1.0, 0.1 give 0.66, 0.24, 0.10",
    hint="Raise e to each score, then divide each power by the sum of the powers. By hand: 7.39, 2.72, 1.11 of 11.21.",
)
def test_by_hand(student: Student, check: Check) -> None:
    powers = [math.exp(2.0), math.exp(1.0), math.exp(0.1)]
    want = torch.tensor([power / sum(powers) for power in powers])
    check.close(student.softmax(torch.tensor([2.0, 1.0, 0.1])), want, "softmax of 2.0, 1.0, 0.1")


@hidden_test(
    "softmax",
    "the weights are shared out along `dim`, whichever it is",
    hint="Both the maximum and the sum run along `dim`, with keepdim=True. The default is the last dimension.",
    weight=2,
)
def test_every_dim(student: Student, check: Check) -> None:
    x = check.randn(3, 5, 7, scale=2.0)
    for dim in check.shuffled([0, 1, 2, -1, -2, -3]):
        got = student.softmax(x, dim=dim)
        check.close(got, truth(x, dim), f"softmax with dim={dim}")
        check.close(got.sum(dim), torch.ones(x.sum(dim).shape), f"the sums of the weights along dim={dim}")
    deep = check.randn(2, 3, 5, 4, scale=2.0)
    for dim in check.shuffled([0, 1, 2, 3, -1, -2, -3, -4]):
        check.close(student.softmax(deep, dim), truth(deep, dim), f"four dimensions, with dim={dim}")
    check.close(student.softmax(x, 1), truth(x, 1), "softmax with dim=1 passed by position")
    check.close(student.softmax(x), truth(x, -1), "softmax with no dim given")


@hidden_test(
    "softmax",
    "scores near 1,000 do not overflow",
    hint="exp(1000) is infinite and exp(-1000) is zero. Subtract each row's largest score first: the weights "
    "depend on the gaps between scores alone.",
    weight=2,
)
def test_large_scores(student: Student, check: Check) -> None:
    x = check.randn(4, 9)
    for centre in (1000.0, -1000.0):
        shifted = x + centre
        check.close(student.softmax(shifted, dim=1), truth(shifted, 1), f"scores near {centre:.0f}")
    largest = torch.finfo(torch.float32).max
    extreme = torch.tensor([0.0, largest, -largest])
    check.close(student.softmax(extreme), torch.tensor([0.0, 1.0, 0.0]), "the largest float32, its negative, and 0")
    wide = check.randn(3, 6, dtype=torch.float64, scale=800.0)
    check.close(student.softmax(wide), truth(wide), "float64 scores of hundreds")


@hidden_test(
    "softmax",
    "each row is shifted by its own maximum",
    hint="With one maximum for the whole tensor, a row that lies 200 below it rounds to zeros. Take the maximum "
    "along `dim`, with keepdim=True.",
    weight=2,
)
def test_rows_far_apart(student: Student, check: Check) -> None:
    x = check.randn(3, 8) + torch.tensor([[200.0], [0.0], [-200.0]])
    check.close(student.softmax(x, dim=1), truth(x, 1), "three rows, 200 apart")
    columns = x.T.contiguous()
    check.close(student.softmax(columns, dim=0), truth(columns, 0), "three columns, 200 apart, with dim=0")
    apart = torch.tensor([-400.0, -200.0, 0.0, 200.0, 400.0, 600.0])[torch.tensor(check.shuffled(range(6)))]
    for dim, shape in ((0, (1, 2, 3)), (1, (2, 1, 3)), (2, (2, 3, 1))):
        cube = check.randn(*(7 if size == 1 else size for size in shape)) + apart.reshape(shape)
        check.close(student.softmax(cube, dim=dim), truth(cube, dim), f"three dimensions, 200 apart, with dim={dim}")


@hidden_test(
    "softmax",
    "a score of -inf gets exactly 0",
    hint="exp(-inf) is 0, with no help, as long as the shift is finite and nothing is added to the powers.",
)
def test_masked_scores(student: Student, check: Check) -> None:
    x = check.randn(4, 7)
    hidden = torch.zeros(4, 7, dtype=torch.bool)
    hidden[torch.arange(4), check.randint(0, 3, (4,))] = True
    hidden[:, check.integer(3, 7)] = True
    x = x.masked_fill(hidden, -INF)
    got = check.tensor(student.softmax(x), (4, 7), "softmax with scores of -inf")
    check.close(got, truth(x), "softmax with scores of -inf")
    check.equal(got[hidden], torch.zeros(int(hidden.sum())), "the weights where the score is -inf")


@hidden_test(
    "softmax",
    "a row of nothing but -inf gets zeros",
    hint="Here the maximum is -inf, and -inf minus -inf is NaN; the sum of the powers is 0, and 0 / 0 is NaN as "
    "well. Make both harmless, and leave the other rows as they are.",
    weight=2,
)
def test_no_candidates(student: Student, check: Check) -> None:
    x = check.randn(5, 6)
    empty = check.integer(0, 5)
    x[empty] = -INF
    want = truth(x).nan_to_num(0.0)
    got = check.tensor(student.softmax(x, dim=-1), (5, 6), "softmax with a row of -inf")
    check.equal(got[empty], torch.zeros(6), "the row of nothing but -inf")
    check.close(got, want, "the rows beside it")
    check.close(student.softmax(x.T, dim=0), want.T, "the same as columns, with dim=0")
    check.equal(student.softmax(torch.full((4,), -INF)), torch.zeros(4), "nothing but -inf at all")
    for dtype in (torch.float16, torch.bfloat16):
        half = check.tensor(student.softmax(x.to(dtype)), (5, 6), f"a row of -inf in {dtype}", dtype)
        check.close(half, truth(x.to(dtype)).nan_to_num(0.0), f"a row of -inf in {dtype}")


@hidden_test(
    "softmax",
    "the gradients are right",
    hint="Every step must be a torch operation on the scores: no .item(), .data, numpy or no_grad on the way to "
    "the weights. (The shift alone may be detached.) Nothing learns without gradients: "
    "while they are wrong, at most three fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    # In float32, so that one mistake costs its own marks: float64 has a property of its own.
    x, pull = check.randn(3, 5), check.randn(3, 5)
    x[1, check.integer(0, 5)] = -INF
    for dim in (1, 0):
        leaf, true_leaf = x.clone().requires_grad_(), x.double().requires_grad_()
        (student.softmax(leaf, dim=dim) * pull).sum().backward()
        (want,) = torch.autograd.grad((truth(true_leaf, dim) * pull).sum(), true_leaf)
        check.close(leaf.grad, want, f"the gradient of softmax along dim={dim}")


@hidden_test(
    "softmax",
    "a row of nothing but -inf has zero gradient, not NaN",
    hint="Replacing NaN in the result leaves NaN in the gradient: 0 times NaN is NaN. Keep NaN from arising at all: "
    "a finite shift, and a sum of 0 replaced by 1 before the division.",
)
def test_gradient_without_candidates(student: Student, check: Check) -> None:
    x = check.randn(3, 4, dtype=torch.float64)
    x[1] = -INF
    x.requires_grad_()
    pull = check.randn(3, 4, dtype=torch.float64)
    (student.softmax(x, dim=1) * pull).sum().backward()
    grad = check.tensor(x.grad, (3, 4), "the gradient with a row of -inf")
    check.equal(grad[1] + 0.0, torch.zeros(4, dtype=torch.float64), "the gradient of the row of -inf")
    weights = truth(x.detach())[[0, 2]]
    want = weights * (pull[[0, 2]] - (weights * pull[[0, 2]]).sum(1, keepdim=True))
    check.close(grad[[0, 2]], want, "the gradient of the rows beside it")


@hidden_test(
    "softmax",
    "float16 and bfloat16 are computed in float32",
    hint="In float16 a sum of 70,000 ones is infinite, and gaps between scores are rounded to three digits. Convert "
    "to float32 first and the weights back to the scores' dtype last.",
)
def test_half_precision(student: Student, check: Check) -> None:
    # One rounding of the result is at most 2^-11 in float16 and 2^-8 in bfloat16 (2^-9 to nearest).
    for dtype, rtol in ((torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
        name = str(dtype).removeprefix("torch.")
        x = check.randn(5, 33, scale=4.0, dtype=dtype)
        got = check.tensor(student.softmax(x, dim=1), (5, 33), f"softmax of {name} scores", dtype)
        check.close(got, truth(x, 1), f"softmax of {name} scores", rtol=rtol, atol=1e-6)
    size = 70_000 + check.integer(0, 1000)
    got = student.softmax(torch.zeros(size, dtype=torch.float16))
    check.close(got[:3], torch.full((3,), 1 / size), f"{size} equal scores in float16", rtol=1e-2, atol=1e-7)


@hidden_test(
    "softmax",
    "float64 stays float64, and integers give float32",
    hint="Convert to float32 only what is less precise (torch.promote_types tells which of two dtypes holds both), "
    "and add no small number to the sum.",
)
def test_dtypes(student: Student, check: Check) -> None:
    x = check.randn(4, 6, dtype=torch.float64, scale=3.0)
    got = check.tensor(student.softmax(x, dim=0), (4, 6), "softmax of float64 scores", torch.float64)
    check.close(got, truth(x, 0), "softmax of float64 scores", rtol=1e-12, atol=1e-14)
    check.gradients(lambda x: student.softmax(x, dim=0), x, what="softmax of float64 scores")
    single = x.float()
    check.tensor(student.softmax(single), (4, 6), "softmax of float32 scores", torch.float32)
    whole = check.randint(-3, 4, (3, 5))
    got = check.tensor(student.softmax(whole, dim=1), (3, 5), "softmax of integers", torch.float32)
    check.close(got, truth(whole, 1), "softmax of integers")
    small = torch.tensor([[-100, 100, 98], [99, -128, 99]], dtype=torch.int8)
    got = check.tensor(student.softmax(small), (2, 3), "softmax of int8 scores", torch.float32)
    check.close(got, truth(small), "softmax of int8 scores, where 100 - (-100) does not fit into int8")


@hidden_test(
    "softmax",
    "any layout of any shape works, and the scores passed in stay as they were",
    hint="Work along `dim` with keepdim=True instead of reshaping, and write nothing into x: no x -= ..., no exp_().",
)
def test_layouts(student: Student, check: Check) -> None:
    x = check.randn(4, 6, 3).permute(2, 0, 1)
    for dim in check.shuffled([0, 1, 2]):
        check.close(student.softmax(x, dim=dim), truth(x, dim), f"a permuted tensor, not contiguous, with dim={dim}")
    repeated = check.randn(1, 5).expand(3, 5)
    check.close(student.softmax(repeated, dim=-1), truth(repeated), "an expanded tensor")
    check.close(student.softmax(check.randn(2, 1, 3), dim=1), torch.ones(2, 1, 3), "rows of one score")
    check.close(student.softmax(torch.zeros(0, 4), dim=1), torch.zeros(0, 4), "a batch of no rows")
    check.close(student.softmax(torch.tensor([-3.0])), torch.ones(1), "one score alone")
    x = check.randn(4, 7)
    x[2] = -INF
    check.true(student.fixtures.unchanged(student.softmax, x, dim=0), "softmax changed the scores that it was given")
    check.true(student.fixtures.unchanged(student.softmax, x, dim=1), "softmax changed the scores that it was given")


@hidden_test(
    "softmax",
    "it is built from exponentials, not from torch's softmax",
    hint="The exercise is to build it: torch.exp, a sum and a maximum are all it takes. Otherwise at most half of the "
    "points are to be had.",
    weight=3,
    at_most=0.5,
)
def test_built_by_hand(student: Student, check: Check) -> None:
    x = check.randn(3, 5)
    check.close(student.softmax(x), truth(x), "softmax of five scores a row")
    for shape, dim in (((3, 5), 1), ((7,), -1), ((2, 4, 3), 0), ((3, 2, 1, 4), 1)):
        x = check.randn(*shape)
        called = student.fixtures.operators(student.softmax, x, dim=dim)
        ready = sorted({name for name in called if "softmax" in name})
        check.true(bool(called), "softmax: expected torch operators to run, none did")
        check.true(not ready, f"softmax: expected exponentials, sums and maxima, but {', '.join(ready)} was called")
