"""Hidden tests of chapter 18: route and load_balancing_loss; those of the layer go on in `__layer`."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

SIZES = ((7, 5, 2), (1, 4, 3), (3, 2, 1), (11, 9, 4), (2, 1, 1), (5, 6, 6))
"""Rows, experts, and experts for each row."""


def routed(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The truth in float64."""
    chosen, indices = torch.softmax(logits.double(), dim=-1).topk(k, dim=-1)
    return chosen / chosen.sum(dim=-1, keepdim=True), indices


@hidden_test(
    "route",
    "the weights are the probabilities of the chosen experts, divided by their sum",
    hint="Softmax over all experts, topk along the last dimension, then divide by the sum of what was kept.",
    weight=3,
)
def test_weights(student: Student, check: Check) -> None:
    for M, E, k in SIZES:
        logits = check.randn(M, E, scale=2.0)
        weights, _ = student.route(logits, k)
        check.close(weights, routed(logits, k)[0], f"weights of {M} rows, {E} experts, top_k={k}")
    weights, _ = student.route(torch.tensor([[0.0, 3.0, 1.0]]).log(), 2)
    check.close(weights, torch.tensor([[0.75, 0.25]]), "the weights of scores ln 0, ln 3, ln 1 with top_k=2")


@hidden_test(
    "route",
    "each row's experts are those with the highest scores, the best first",
    hint="topk gives values and indices, sorted by value: return both, in its order.",
    weight=2,
)
def test_indices(student: Student, check: Check) -> None:
    for M, E, k in SIZES:
        logits = check.randn(M, E, scale=2.0)
        _, indices = student.route(logits, k)
        check.equal(indices, routed(logits, k)[1], f"indices of {M} rows, {E} experts, top_k={k}")
    logits = check.randn(6, 4, scale=2.0).T  # not contiguous
    _, indices = student.route(logits, 3)
    check.equal(indices, routed(logits, 3)[1], "indices of logits that are not contiguous")


@hidden_test(
    "route",
    "the weights of each row sum to one, whatever k is",
    hint="Divide the kept probabilities by their own sum, with keepdim=True.",
    weight=2,
)
def test_sum(student: Student, check: Check) -> None:
    M, E = 5, 7
    for k in check.shuffled(range(1, E + 1)):
        weights, _ = student.route(check.randn(M, E), k)
        check.tensor(weights, (M, k), f"weights, top_k={k}")
        check.close(weights.sum(dim=-1), torch.ones(M), f"the sums of the weights, top_k={k}")


@hidden_test(
    "route",
    "one expert of k = 1 gets a weight of one, and k = E keeps every expert",
    hint="Nothing special happens at the two ends: the shapes stay (M, k).",
)
def test_ends(student: Student, check: Check) -> None:
    logits = check.randn(4, 6)
    weights, indices = student.route(logits, 1)
    check.close(weights, torch.ones(4, 1), "the weights, top_k=1")
    check.equal(indices, logits.argmax(dim=-1, keepdim=True), "the indices, top_k=1")
    weights, indices = student.route(logits, 6)
    check.close(weights, logits.double().softmax(dim=-1).sort(dim=-1, descending=True).values, "the weights, top_k=E")
    check.equal(indices.sort(dim=-1).values, torch.arange(6).expand(4, 6), "the indices in order, top_k=E")


@hidden_test(
    "route",
    "a tie still gives k different experts, with equal weights",
    hint="Choose k places with topk. A threshold keeps too many where scores are equal, and argmax finds one twice.",
)
def test_ties(student: Student, check: Check) -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 2.0, 0.0, 2.0], [3.0, 1.0, 1.0, 1.0, 3.0]])
    best = ([0, 1, 2, 3, 4], [1, 2, 4], [0, 4])
    weights, indices = student.route(logits, 2)
    check.close(weights, torch.full((3, 2), 0.5), "two weights of the best among equals")
    check.tensor(indices, (3, 2), "the indices", torch.int64)
    for row, allowed, among in zip(indices.tolist(), best, logits.tolist(), strict=True):
        right = len(set(row)) == 2 and all(expert in allowed for expert in row)
        check.true(right, f"scores {among}: expected two different experts of {allowed}, got {row}")


@hidden_test(
    "route",
    "scores near 10,000 neither overflow nor lose their order",
    hint="Your softmax of chapter 01 shifts by the largest score; exp of the raw score overflows.",
)
def test_large(student: Student, check: Check) -> None:
    for shift in (1e4, -1e4):
        logits = check.randn(5, 6, dtype=torch.float64, scale=2.0) + shift
        weights, indices = student.route(logits, 3)
        expected = routed(logits, 3)
        check.close(weights, expected[0], f"weights of scores near {shift:g}")
        check.equal(indices, expected[1], f"indices of scores near {shift:g}")
    weights, indices = student.route(torch.tensor([[-1e4, 1e4, 0.0]]), 2)
    check.close(weights, torch.tensor([[1.0, 0.0]]), "weights of the scores -10,000, 10,000 and 0")
    check.equal(indices[:, :1], torch.tensor([[1]]), "the best of the scores -10,000, 10,000 and 0")


@hidden_test(
    "route",
    "in float16 and bfloat16 rounding decides nothing, and the weights keep the dtype",
    hint="Compute in float32 and go back to the logits' dtype at the end: rounded probabilities tie.",
)
def test_dtypes(student: Student, check: Check) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        # 40 scores in steps that the dtype holds between 1/4 and 1/2, but whose probabilities it cannot tell apart
        step = 2.0**-9 if dtype == torch.float64 else torch.finfo(dtype).eps / 4
        order = torch.stack([torch.tensor(check.shuffled(range(40))) for _ in range(3)])
        logits = (0.25 + order * step).to(dtype)
        weights, indices = student.route(logits, 5)
        expected = routed(logits, 5)
        check.tensor(weights, (3, 5), f"weights of {dtype}", dtype)
        check.equal(indices, expected[1], f"indices of {dtype}")
        check.close(weights, expected[0], f"weights of {dtype}")


@hidden_test(
    "route",
    "gradients reach the scores through the weights",
    hint="A .detach(), .data or no_grad cuts the way back, and so does building the weights from numbers.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    for M, E, k in ((3, 5, 2), (2, 4, 4)):
        leaf = check.randn(M, E, dtype=torch.float64).requires_grad_()
        weights, _ = student.route(leaf, k)
        check.tensor(weights, (M, k), f"the weights, top_k={k}", torch.float64)
        check.close(weights, routed(leaf, k)[0], f"the weights themselves, top_k={k}")
        check.true(weights.requires_grad, "no gradient flows from the weights back to the scores")
        probe = check.randn(M, k, dtype=torch.float64)
        (got,) = torch.autograd.grad((weights * probe).sum(), leaf)
        (want,) = torch.autograd.grad((routed(leaf, k)[0] * probe).sum(), leaf)
        check.close(got, want, f"the gradient of the scores, {M} rows, {E} experts, top_k={k}")


@hidden_test(
    "route",
    "the scores stay as they were, and the same scores always go the same way",
    hint="No operation in place on logits, and no noise.",
)
def test_repeatable(student: Student, check: Check) -> None:
    logits = check.randn(4, 5)
    check.true(student.fixtures.unchanged(student.route, logits, 2), "route changed its logits")
    for time in ("the first time", "the second time"):
        weights, indices = student.route(logits, 2)
        check.close(weights, routed(logits, 2)[0], f"weights, {time}")
        check.equal(indices, routed(logits, 2)[1], f"indices, {time}")


@hidden_test(
    "route",
    "a top_k outside 1 to E is a ValueError that names both numbers",
    hint="Compare top_k with logits.shape[-1] before anything else.",
)
def test_bad_top_k(student: Student, check: Check) -> None:
    for E, k in ((4, 7), (6, 0), (5, -2)):
        call = partial(student.route, check.randn(3, E), k)
        check.raises(ValueError, call, f"top_k={k} of {E} experts", mentions=(k, E))
    weights, _ = student.route(torch.zeros(3, 4), 4)
    check.close(weights, torch.full((3, 4), 0.25), "top_k=4 of 4 experts is allowed: the weights")


# load_balancing_loss


def balance(probs: Tensor, indices: Tensor, E: int) -> Tensor:
    """The truth in float64."""
    share = F.one_hot(indices, E).double().mean(dim=(0, 1))
    return E * (share * probs.double().mean(dim=0)).sum()


def choices(check: Check, M: int, E: int, k: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Probabilities, and the choices that follow from them."""
    probs = (check.randn(M, E, dtype=torch.float64, scale=2.0) + torch.linspace(0, 3, E)).softmax(dim=-1).to(dtype)
    return probs, probs.double().topk(k, dim=-1).indices


@hidden_test(
    "load_balancing_loss",
    "it is E times the sum over experts of share of choices times mean probability",
    hint="f: bincount of all choices over their number. P: the mean of the probabilities over the rows.",
    weight=3,
)
def test_formula(student: Student, check: Check) -> None:
    for M, E, k in ((7, 5, 2), (1, 4, 3), (12, 3, 1), (9, 6, 4)):
        probs, indices = choices(check, M, E, k)
        got = student.load_balancing_loss(probs, indices, E)
        check.close(got, balance(probs, indices, E), f"{M} rows, {E} experts, k={k}")
        indices = check.randint(0, E, (M, k))  # the loss asks nobody why they were chosen
        got = student.load_balancing_loss(probs, indices, E)
        check.close(got, balance(probs, indices, E), f"{M} rows, {E} experts, k={k}, other choices")


@hidden_test(
    "load_balancing_loss",
    "it is 1 where every expert is used alike, for any k and E",
    hint="Shares of 1/E and probabilities of 1/E: E times the sum over E experts of 1/E squared.",
    weight=2,
)
def test_even(student: Student, check: Check) -> None:
    for E, k in ((4, 1), (5, 2), (6, 3), (3, 3)):
        rows = torch.arange(E)[:, None]
        indices = (rows + torch.arange(k)) % E  # each expert k times among E rows
        sure = F.one_hot(indices[:, 0], E).float()
        for name, probs in (("even", torch.full((E, E), 1 / E)), ("sure", sure)):
            got = student.load_balancing_loss(probs, indices, E)
            check.close(got, 1.0, f"{name} probabilities, {E} experts, k={k}, each chosen alike")


@hidden_test(
    "load_balancing_loss",
    "it is E where one expert gets all rows and all probability",
    hint="The factor E is missing, or something is divided twice.",
)
def test_collapsed(student: Student, check: Check) -> None:
    for M, E in ((6, 4), (1, 7)):
        favourite = check.integer(0, E)
        indices = torch.full((M, 1), favourite)
        probs = F.one_hot(indices[:, 0], E).float()
        check.close(student.load_balancing_loss(probs, indices, E), float(E), f"all {M} rows on one of {E} experts")


@hidden_test(
    "load_balancing_loss",
    "each of a row's k choices counts, and all choices together are one",
    hint="Count all entries of indices, and divide by how many there are: M * k, not M.",
    weight=2,
)
def test_all_choices(student: Student, check: Check) -> None:
    first = torch.zeros(4, 1, dtype=torch.int64)
    indices = torch.cat([first, torch.tensor([[1], [2], [3], [1]])], dim=1)  # expert 0 is first for all
    probs = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).expand(4, 4)
    # shares 1/2, 1/4, 1/8, 1/8: 4 * (0.2 + 0.075 + 0.025 + 0.0125)
    check.close(student.load_balancing_loss(probs, indices, 4), 1.25, "the case done by hand, k=2")
    # the second choices alone: shares 0, 1/2, 1/4, 1/4
    check.close(student.load_balancing_loss(probs, indices[:, 1:], 4), 0.9, "its second choices alone, k=1")


@hidden_test(
    "load_balancing_loss",
    "experts that nobody chose count among the E",
    hint="bincount needs minlength=n_experts; the factor is n_experts, not the number of experts seen.",
)
def test_unseen(student: Student, check: Check) -> None:
    M, E = 5, 8
    probs, _ = choices(check, M, E, 1)
    for highest in (1, 3, 6):
        indices = check.randint(0, highest, (M, 2))
        got = student.load_balancing_loss(probs, indices, E)
        check.close(got, balance(probs, indices, E), f"{E} experts, none above {highest - 1} chosen")


@hidden_test(
    "load_balancing_loss",
    "the gradient flows through the mean probabilities, and the shares are constants",
    hint="The gradient of each row is E * f / M. Neither detach the probabilities nor make f of them.",
    weight=2,
    at_most=0.6,
)
def test_gradient(student: Student, check: Check) -> None:
    M, E, k = 7, 4, 2
    probs, indices = choices(check, M, E, k, torch.float64)
    leaf = probs.clone().requires_grad_()
    loss = student.load_balancing_loss(leaf, indices, E)
    check.close(loss, balance(probs, indices, E), "the loss itself")
    check.true(loss.requires_grad, "no gradient flows from the loss back to router_probs")
    (got,) = torch.autograd.grad(loss, leaf)
    share = F.one_hot(indices, E).double().mean(dim=(0, 1))
    check.close(got, (E * share / M).expand(M, E), "the gradient of router_probs")


@hidden_test(
    "load_balancing_loss",
    "it keeps the dtype, loses no digits in float64, and counts many rows in float16",
    hint="Count in whole numbers and divide in float32 or better; go to the dtype of router_probs at the end.",
)
def test_loss_dtypes(student: Student, check: Check) -> None:
    for dtype, M in ((torch.float64, 9), (torch.float32, 6), (torch.bfloat16, 700), (torch.float16, 100_000)):
        probs, indices = choices(check, M, 3, 2, dtype)
        got = check.tensor(student.load_balancing_loss(probs, indices, 3), (), f"the loss, {dtype}", dtype)
        check.close(got, balance(probs, indices, 3), f"the loss of {M:,} rows, {dtype}")


@hidden_test(
    "load_balancing_loss",
    "probabilities and choices stay as they were",
    hint="No operation in place on router_probs or indices.",
)
def test_loss_unchanged(student: Student, check: Check) -> None:
    probs, indices = choices(check, 6, 5, 2)
    probs, indices = (x.T.contiguous().T for x in (probs, indices))
    check.true(
        student.fixtures.unchanged(student.load_balancing_loss, probs, indices, 5),
        "load_balancing_loss changed its inputs",
    )
    got = student.load_balancing_loss(probs, indices, n_experts=5)
    check.close(got, balance(probs, indices, 5), "the loss of inputs that are not contiguous")


@hidden_test(
    "load_balancing_loss",
    "a wrong number of experts is a ValueError that names it",
    hint="Compare router_probs.shape[-1] and the indices with n_experts before you count.",
)
def test_bad_experts(student: Student, check: Check) -> None:
    probs, indices = choices(check, 6, 5, 2)
    bad: list[tuple[str, Callable[[], object], int]] = [
        ("7 experts, 5 columns", partial(student.load_balancing_loss, probs, indices, 7), 5),
        ("3 experts, 5 columns", partial(student.load_balancing_loss, probs, indices.clamp(max=2), 3), 5),
        ("an index of 11 of 5", partial(student.load_balancing_loss, probs, indices.clamp(min=11), 5), 11),
        ("an index of -1", partial(student.load_balancing_loss, probs, indices.clamp(max=-1), 5), -1),
    ]
    for what, call, number in bad:
        check.raises(ValueError, call, what, mentions=(number,))
    check.close(student.load_balancing_loss(probs, indices, 5), balance(probs, indices, 5), "5 experts, 5 columns")
