"""Hidden tests of chapter 01, the third exercise: cross-entropy."""

import math
from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

INF = math.inf


def true_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Torch's own cross-entropy in float64."""
    return torch.nn.functional.cross_entropy(logits.double(), targets)


def true_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """The gradient of the mean loss: the weights, less 1 at the target, over the number of rows."""
    rows, classes = logits.shape
    wanted = torch.nn.functional.one_hot(targets, classes)
    return (torch.softmax(logits.double(), dim=1) - wanted) / rows


@hidden_test(
    "cross_entropy",
    "scores 2.0, 1.0, 0.1 and the first as target cost -log 0.659",
    hint="The loss is minus the natural logarithm of the target's weight: 0.417.",
)
def test_loss_by_hand(student: Student, check: Check) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.1]])
    total = math.exp(2.0) + math.exp(1.0) + math.exp(0.1)
    for target, score in enumerate([2.0, 1.0, 0.1]):
        got = student.cross_entropy(logits, torch.tensor([target]))
        check.close(got, math.log(total) - score, f"the loss for target {target}")
    got = student.cross_entropy(torch.zeros(3, 8), torch.tensor([7, 0, 3]))
    check.close(got, math.log(8), "eight equal scores")


@hidden_test(
    "cross_entropy",
    "the loss is the mean over the rows",
    hint="One loss a row, (M,); then their mean: divide by M, not by V and not by M times V. The result is a scalar.",
    weight=2,
)
def test_mean_over_rows(student: Student, check: Check) -> None:
    for rows, classes in ((5, 11), (13, 3), (1, 6), (4, 1)):
        logits, targets = check.randn(rows, classes, scale=2.0), check.randint(0, classes, (rows,))
        got = student.cross_entropy(logits, targets)
        check.close(got, true_loss(logits, targets), f"{rows} rows of {classes} classes")


@hidden_test(
    "cross_entropy",
    "scores near 1,000 give a finite, exact loss",
    hint="log of the sum of exponentials overflows unless the maximum comes out first: m + log(sum(exp(x - m))).",
    weight=2,
)
def test_loss_large_scores(student: Student, check: Check) -> None:
    logits, targets = check.randn(6, 7), check.randint(0, 7, (6,))
    for centre in (1000.0, -1000.0):
        shifted = logits + centre
        # The scores themselves are rounded to 6e-5 at 1,000: so is any loss computed from them.
        got = student.cross_entropy(shifted, targets)
        check.close(got, true_loss(shifted, targets), f"scores near {centre:.0f}", atol=2e-4)


@hidden_test(
    "cross_entropy",
    "each row is shifted by its own maximum in the loss",
    hint="Take the maximum along the classes, one for each row, not one for the whole batch.",
)
def test_loss_rows_far_apart(student: Student, check: Check) -> None:
    logits = check.randn(3, 8) + torch.tensor([[200.0], [0.0], [-200.0]])
    targets = check.randint(0, 8, (3,))
    check.close(student.cross_entropy(logits, targets), true_loss(logits, targets), "rows 200 apart", atol=2e-4)


@hidden_test(
    "cross_entropy",
    "a target whose weight rounds to 0 still has its exact loss",
    hint="Beyond a gap of about 104, float32 rounds the weight to 0 and its log to -inf. Never take the log of a "
    "softmax: subtract the target's score from the log of the sum.",
    weight=3,
)
def test_improbable_target(student: Student, check: Check) -> None:
    logits = check.randn(4, 6)
    targets = check.randint(0, 6, (4,))
    for gap in (95.0, 150.0, 900.0):
        far = logits.scatter_add(1, targets.unsqueeze(1), torch.full((4, 1), -gap)).requires_grad_()
        got = student.cross_entropy(far, targets)
        check.close(got, true_loss(far, targets), f"targets {gap:.0f} below the other scores", rtol=1e-6)
        (grad,) = torch.autograd.grad(got, far)
        check.close(grad, true_gradient(far, targets), f"the gradient for targets {gap:.0f} below")


@hidden_test(
    "cross_entropy",
    "the gradient is (softmax - one-hot) / M",
    hint="Let autograd do it: every step a torch operation on the logits, with the sum over classes inside the log. "
    "A loss with a wrong gradient trains nothing: at most three fifths of the points are to be had with it.",
    weight=2,
    at_most=0.6,
)
def test_loss_gradient(student: Student, check: Check) -> None:
    # In float32, so that one mistake costs its own marks: float64 has a property of its own.
    logits, targets = check.randn(4, 7), check.randint(0, 7, (4,))
    leaf = logits.clone().requires_grad_()
    student.cross_entropy(leaf, targets).backward()
    check.close(check.tensor(leaf.grad, (4, 7), "the gradient"), true_gradient(logits, targets), "the gradient")


@hidden_test(
    "cross_entropy",
    "a class whose score is -inf takes no part",
    hint="Pick the target's score by indexing (gather). Multiplying by a one-hot gives 0 times -inf, which is NaN.",
)
def test_loss_masked_class(student: Student, check: Check) -> None:
    logits, targets = check.randn(5, 6), check.randint(0, 4, (5,))
    logits[:, 4] = -INF
    logits[2, 5] = -INF
    leaf = logits.clone().requires_grad_()
    got = student.cross_entropy(leaf, targets)
    check.close(got, true_loss(logits, targets), "the loss with scores of -inf")
    (grad,) = torch.autograd.grad(got, leaf)
    check.close(grad, true_gradient(logits, targets), "the gradient with scores of -inf")


@hidden_test(
    "cross_entropy",
    "float16 and bfloat16 losses are computed in float32, and float64 in float64",
    hint="A vocabulary of 70,000 overflows a float16 sum of exponentials. Convert up first, and the loss back last.",
)
def test_loss_dtypes(student: Student, check: Check) -> None:
    targets = check.randint(0, 9, (6,))
    # One rounding of the result: 2^-11 in float16, 2^-8 in bfloat16.
    for dtype, rtol in ((torch.float16, 1e-3), (torch.bfloat16, 8e-3), (torch.float64, 1e-12)):
        name = str(dtype).removeprefix("torch.")
        logits = check.randn(6, 9, scale=4.0, dtype=dtype)
        got = check.tensor(student.cross_entropy(logits, targets), (), f"the loss in {name}", dtype)
        check.close(got, true_loss(logits, targets), f"the loss in {name}", rtol=rtol, atol=1e-12)
    check.gradients(lambda x: student.cross_entropy(x, targets), check.randn(6, 9), what="the loss in float64")
    size = 70_000 + check.integer(0, 1000)
    got = student.cross_entropy(torch.zeros(1, size, dtype=torch.float16), torch.tensor([check.integer(0, size)]))
    check.close(got, math.log(size), f"{size} equal scores in float16", rtol=1e-3)


@hidden_test(
    "cross_entropy",
    "a target outside [0, V) is a ValueError that names it",
    hint="Compare the targets with 0 and with V before using them as an index: a negative index would silently count "
    "from the end. Name `targets` and the offender in the message.",
)
def test_target_range(student: Student, check: Check) -> None:
    logits, targets = check.randn(4, 7), check.randint(0, 7, (4,))
    check.close(student.cross_entropy(logits, targets), true_loss(logits, targets), "the loss with targets in range")
    for bad in (7, 7 + check.integer(1, 50), -1, -100):
        targets = check.randint(0, 7, (4,))
        targets[check.integer(0, 4)] = bad
        check.raises(
            ValueError,
            partial(student.cross_entropy, logits, targets),
            f"a target of {bad} for 7 classes",
            mentions=("targets", bad),
        )


@hidden_test(
    "cross_entropy",
    "wrong shapes and fractional targets are a ValueError that names the argument",
    hint="Check before computing: logits (M, V), targets (M,) of integers. A target column (M, 1) would broadcast to "
    "(M, M) and give a plausible wrong number.",
)
def test_loss_arguments(student: Student, check: Check) -> None:
    logits, targets = check.randn(4, 7), check.randint(0, 4, (4,))
    check.close(student.cross_entropy(logits, targets), true_loss(logits, targets), "the loss of proper arguments")
    wrong = [
        ("logits", logits[0], targets[:1], "logits of one dimension"),
        ("logits", logits.reshape(2, 2, 7), targets, "logits of three dimensions"),
        ("logits", torch.zeros(0, 7), targets[:0], "no rows at all"),
        ("targets", logits, targets[:3], "three targets for four rows"),
        ("targets", logits, targets.unsqueeze(1), "a column of targets"),
        ("targets", logits, targets[0], "a single number as targets"),
        ("targets", logits, targets.float(), "targets that are not integers"),
    ]
    for name, bad_logits, bad_targets, what in wrong:
        check.raises(
            ValueError,
            partial(student.cross_entropy, bad_logits, bad_targets),
            what,
            mentions=(name,),
        )


@hidden_test(
    "cross_entropy",
    "targets of every integer dtype are counted alike",
    hint="gather and indexing ask for int64, and a uint8 index would be read as a mask: once the targets are checked, "
    "convert them.",
)
def test_target_dtypes(student: Student, check: Check) -> None:
    logits, targets = check.randn(5, 7), check.randint(0, 7, (5,))
    for dtype in check.shuffled([torch.int64, torch.int32, torch.int16, torch.uint8]):
        got = student.cross_entropy(logits, targets.to(dtype))
        check.close(got, true_loss(logits, targets), f"targets of dtype {str(dtype).removeprefix('torch.')}")


@hidden_test(
    "cross_entropy",
    "any layout works, and the arguments stay as they were",
    hint="Do not rely on contiguous memory (view), and write into neither argument.",
)
def test_loss_layouts(student: Student, check: Check) -> None:
    logits, targets = check.randn(9, 5).T, check.randint(0, 9, (10,))[::2]
    check.close(student.cross_entropy(logits, targets), true_loss(logits, targets), "transposed logits")
    one_row = check.randn(1, 9).expand(5, 9)
    check.close(student.cross_entropy(one_row, targets), true_loss(one_row, targets), "expanded logits")
    check.true(
        student.fixtures.unchanged(student.cross_entropy, check.randn(5, 9), targets),
        "cross_entropy changed an argument",
    )


@hidden_test(
    "cross_entropy",
    "it is built from exponentials and logarithms, not from torch's own loss",
    hint="The exercise is to build it: exp, sum, log and max (or torch.logsumexp), and an index. Otherwise at most "
    "half of the points are to be had.",
    weight=3,
    at_most=0.5,
)
def test_loss_built_by_hand(student: Student, check: Check) -> None:
    logits, targets = check.randn(4, 7), check.randint(0, 7, (4,))
    check.close(student.cross_entropy(logits, targets), true_loss(logits, targets), "the loss")
    called = student.fixtures.operators(student.cross_entropy, logits, targets)
    ready = sorted({name for name in called if "softmax" in name or "loss" in name or "entropy" in name})
    check.true(bool(called), "cross_entropy: expected torch operators to run, none did")
    check.true(not ready, f"cross_entropy: expected exp, sum, log and max, but {', '.join(ready)} was called")
