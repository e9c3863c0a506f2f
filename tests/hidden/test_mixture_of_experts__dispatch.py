"""Hidden tests of chapter 17: dispatch."""

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

SIZES = ((7, 3, 4, 2), (1, 5, 3, 1), (11, 2, 5, 3), (6, 4, 3, 3), (9, 3, 1, 1))
"""Rows M, width D, experts E, choices k."""


class Case:
    """Rows, choices and experts drawn at random, and the truth about them in float64."""

    def __init__(
        self, student: Student, check: Check, M: int, D: int, E: int, k: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.student, self.E = student, E
        self.x = check.randn(M, D, dtype=dtype)
        self.weights = check.randn(M, k, dtype=dtype).abs() + 0.2  # do not sum to one
        self.indices = check.randn(M, E).argsort(-1)[:, :k]  # k different experts
        self.matrices, self.biases = check.randn(E, D, D, dtype=dtype), check.randn(E, D, dtype=dtype)
        self.fresh()

    def fresh(self) -> None:
        """Experts that were never called."""
        self.experts: Any = self.student.fixtures.CountingExperts(self.matrices, self.biases)

    def run(self) -> Tensor:
        """What the student's function makes of it."""
        result: Tensor = self.student.dispatch(self.x, self.weights, self.indices, self.experts)
        return result

    def truth(self) -> Tensor:
        """Every expert on every row, then the chosen ones picked out."""
        return blend(self.x.double(), self.weights.double(), self.indices, self.matrices, self.biases)

    def visits(self) -> list[int]:
        """For each expert the number of entries of `indices` that name it."""
        return self.indices.flatten().bincount(minlength=self.E).tolist()

    def __str__(self) -> str:
        return f"M={len(self.x)}, D={self.x.shape[1]}, E={self.E}, k={self.indices.shape[1]}"


def blend(x: Tensor, weights: Tensor, indices: Tensor, matrices: Tensor, biases: Tensor) -> Tensor:
    answers = torch.tanh(torch.einsum("eoi,mi->meo", matrices.double(), x) + biases.double())  # (M, E, D)
    chosen = answers.gather(1, indices[:, :, None].expand(-1, -1, x.shape[1]))  # (M, k, D)
    return (weights[:, :, None] * chosen).sum(1)


@hidden_test(
    "dispatch",
    "each row gets the weighted sum of what its experts return",
    hint="For each expert: its rows by rows_of, the expert on them, times the weights of those choices, added to "
    "those rows of a tensor of zeros.",
    weight=3,
)
def test_sum(student: Student, check: Check) -> None:
    for sizes in SIZES:
        case = Case(student, check, *sizes)
        check.close(case.run(), case.truth(), str(case))


@hidden_test(
    "dispatch",
    "each expert is given exactly the rows that chose it",
    hint="Take the rows out first, expert(x[rows]). Running every expert on all rows and masking gives the same "
    "numbers and does E / k times the work.",
    weight=3,
    at_most=0.5,
)
def test_rows(student: Student, check: Check) -> None:
    for sizes in SIZES:
        case = Case(student, check, *sizes)
        check.close(case.run(), case.truth(), str(case))
        given = case.experts.rows()
        check.equal([len(rows) for rows in given], case.visits(), f"rows that each expert was given, {case}")
        for expert, rows in enumerate(given):
            chose = (case.indices == expert).any(-1)
            same = Counter(map(tuple, rows)) == Counter(map(tuple, case.x[chose].tolist()))
            check.true(same, f"expert {expert}: was given other rows than those that chose it, {case}")


@hidden_test(
    "dispatch",
    "each expert is called at most once",
    hint="Loop over the experts, not over the rows or over the k choices: all rows of an expert go in one call.",
    weight=2,
    at_most=0.7,
)
def test_calls(student: Student, check: Check) -> None:
    for sizes in ((13, 3, 4, 3), (10, 2, 2, 2), (8, 3, 6, 1)):
        case = Case(student, check, *sizes)
        check.close(case.run(), case.truth(), str(case))
        want = [min(n, 1) for n in case.visits()]
        check.equal(case.experts.calls(), want, f"calls of each expert, {case}")


@hidden_test(
    "dispatch",
    "an expert that nobody chose is passed over",
    hint="Without rows, do not call it, and go on with the next: continue, not break.",
    weight=2,
)
def test_nobody(student: Student, check: Check) -> None:
    case = Case(student, check, 5, 3, 6, 2)
    case.indices = torch.tensor([2, 3, 5])[check.randn(5, 3).argsort(-1)[:, :2]]
    check.close(case.run(), case.truth(), "experts 0, 1 and 4 chosen by nobody")
    check.equal(case.experts.calls(), [min(n, 1) for n in case.visits()], "calls of each expert")
    for only in check.shuffled([0, 4, 5]):
        case.fresh()
        case.indices, case.weights = torch.full((5, 1), only), check.randn(5, 1)
        check.close(case.run(), case.truth(), f"all rows to expert {only}")
        check.equal(case.experts.calls(), [int(e == only) for e in range(6)], f"calls, all rows to expert {only}")
    case.fresh()
    case.x, case.weights, case.indices = case.x[:0], case.weights[:0], case.indices[:0]
    check.tensor(case.run(), (0, 3), "no rows at all")
    check.equal(case.experts.calls(), [0] * 6, "calls without any row")


@hidden_test(
    "dispatch",
    "every one of the k choices counts",
    hint="Add: output[rows] = ... keeps only what the last of a row's experts wrote. And look in all k columns.",
    weight=2,
)
def test_choices(student: Student, check: Check) -> None:
    case = Case(student, check, 8, 3, 5, 4)
    parts = []
    weights = case.weights
    for j in range(4):
        case.weights = torch.zeros(8, 4)
        case.weights[:, j] = weights[:, j]
        check.close(case.run(), case.truth(), f"only choice {j} of 4 has a weight")
        parts.append(case.truth())
    case.weights = weights
    check.close(case.run(), sum(parts, torch.zeros(8, 3)), "all four choices have a weight")


@hidden_test(
    "dispatch",
    "the weights are used as they are",
    hint="No softmax and no division by their sum in here: whoever made the weights has seen to that, or had reasons.",
    weight=2,
)
def test_weights(student: Student, check: Check) -> None:
    case = Case(student, check, 6, 3, 4, 2)
    whole = case.truth()
    for factor in (1.0, 3.0, -0.5, 0.0):
        given, case.weights = case.weights, factor * case.weights
        check.close(case.run(), factor * whole, f"all weights times {factor}")
        case.weights = given
    case.weights = check.randn(6, 2)
    check.close(case.run(), case.truth(), "weights of both signs")


@hidden_test(
    "dispatch",
    "each result goes back to the row that it came from",
    hint="The result of expert(x[rows]) is numbered from 0 again; add its row i to row rows[i] of the output, weighted "
    "by weights[rows[i], slots[i]].",
    weight=2,
)
def test_places(student: Student, check: Check) -> None:
    case = Case(student, check, 10, 3, 4, 2)
    whole, x, weights, indices = case.truth(), case.x, case.weights, case.indices
    check.close(case.run(), whole, str(case))
    for order in (torch.arange(9, -1, -1), torch.randperm(10, generator=check.generator)):
        case.x, case.weights, case.indices = x[order], weights[order], indices[order]
        check.close(case.run(), whole[order], f"the rows in the order {order.tolist()}")
    for m in check.shuffled(list(range(10)))[:3]:
        case.x, case.weights, case.indices = (t[m : m + 1] for t in (x, weights, indices))
        check.close(case.run(), whole[m : m + 1], f"row {m} alone")


@hidden_test(
    "dispatch",
    "an expert chosen twice by a row counts with both weights",
    hint="output[rows] += ... writes once where a row occurs twice in rows; index_add_ adds both.",
)
def test_twice(student: Student, check: Check) -> None:
    case = Case(student, check, 7, 3, 4, 3)
    case.indices[:] = check.randint(0, 4, (7, 3))
    case.indices[2], case.indices[5] = 3, torch.tensor([1, 0, 1])
    check.close(case.run(), case.truth(), "rows 2 and 5 choose an expert more than once")


@hidden_test(
    "dispatch",
    "the result has the dtype of x, and weights may have another",
    hint="Routers compute in float32 even where x is bfloat16: turn the weighted rows into x's dtype before you add.",
)
def test_dtypes(student: Student, check: Check) -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        for weights in (dtype, torch.float32, torch.float64):
            case = Case(student, check, 5, 3, 4, 2, dtype)
            case.weights = case.weights.to(weights)
            got = check.tensor(case.run(), (5, 3), f"x {dtype}, weights {weights}", dtype)
            check.close(got, case.truth(), f"x {dtype}, weights {weights}")


@hidden_test(
    "dispatch",
    "tensors that are not contiguous work and stay as they are",
    hint="Write to a tensor of your own, such as zeros_like(x), and let every argument as it came.",
)
def test_arguments(student: Student, check: Check) -> None:
    case = Case(student, check, 6, 4, 5, 3)
    for name in ("x", "weights", "indices"):
        setattr(case, name, getattr(case, name).T.contiguous().T)
    check.close(case.run(), case.truth(), "x, weights and indices transposed in memory")
    arguments = (case.x, case.weights, case.indices, case.experts)
    check.true(student.fixtures.unchanged(student.dispatch, *arguments), "an argument was changed in place")
    case.x = check.randn(6, 4).requires_grad_()
    check.close(case.run(), case.truth(), "x asks for gradients")


@hidden_test(
    "dispatch",
    "gradients reach the rows, the weights and the experts",
    hint="A .detach(), .data, .item() or no_grad cuts the way back. A router learns through the weights.",
    weight=2,
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    case = Case(student, check, 6, 3, 5, 2)
    case.indices = case.indices.clamp(max=3)  # some row may choose expert 3 twice; nobody chooses expert 4
    probe, leaves = check.randn(6, 3), [t.clone().requires_grad_() for t in (case.x, case.weights)]
    output = student.dispatch(*leaves, case.indices, case.experts)
    check.close(output, case.truth(), "the output itself")
    check.true(output.requires_grad, "no gradient flows from the output back")
    (output * probe).sum().backward()
    true = [t.detach().double().requires_grad_() for t in (*leaves, case.matrices, case.biases)]
    loss = (blend(true[0], true[1], case.indices, true[2], true[3]) * probe).sum()
    want = torch.autograd.grad(loss, true)
    for leaf, gradient, name in zip(leaves, want[:2], ("x", "weights"), strict=True):
        check.close(leaf.grad, gradient, f"the gradient of {name}", rtol=1e-3, atol=1e-4)
    got = case.experts.grads()
    for e in range(4):
        if int((case.indices == e).sum()):
            check.close(got.get(f"{e}.weight"), want[2][e], f"the gradient of expert {e}", rtol=1e-3, atol=1e-4)


@hidden_test(
    "dispatch",
    "choices that fit no row or no expert are a ValueError",
    hint="Before anything runs: x of two dimensions, weights and indices of one shape (M, k), indices from 0 to E - 1.",
)
def test_errors(student: Student, check: Check) -> None:
    case = Case(student, check, 5, 3, 4, 2)
    for wrong in (4, -1, 97):
        indices = case.indices.clone()
        indices[check.integer(0, 5), check.integer(0, 2)] = wrong
        call = partial(student.dispatch, case.x, case.weights, indices, case.experts)
        check.raises(ValueError, call, f"an index of {wrong} with 4 experts", mentions=("indices", wrong))
    bad = {
        "x of three dimensions": (case.x[None], case.weights, case.indices),
        "weights for one row less": (case.x, case.weights[1:], case.indices),
        "weights for one choice less": (case.x, case.weights[:, :1], case.indices),
        "choices for one row less": (case.x, case.weights[1:], case.indices[1:]),
        "choices of one dimension": (case.x, case.weights[:, 0], case.indices[:, 0]),
    }
    for what, arguments in bad.items():
        call = partial(student.dispatch, *arguments, case.experts)
        check.raises(ValueError, call, what, mentions=("x" if "three" in what else "weights",))
    check.equal(case.experts.calls(), [0] * 4, "calls of the experts before the error")
    check.close(case.run(), case.truth(), "the same case with good arguments")
