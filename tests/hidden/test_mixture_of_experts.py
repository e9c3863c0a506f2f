"""Hidden tests of chapter 17: parameter_counts and rows_of."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def counted(D: int, F: int, E: int) -> int:
    """The weights of a layer of experts, counted in torch's own modules."""
    with torch.device("meta"):
        maps = [nn.Linear(D, E, bias=False)]
        for _ in range(E):
            maps += [nn.Linear(D, F, bias=False), nn.Linear(D, F, bias=False), nn.Linear(F, D, bias=False)]
    return sum(p.numel() for m in maps for p in m.parameters())


@hidden_test(
    "parameter_counts",
    "the total counts three matrices for each expert, and the router",
    hint="gate_proj, up_proj and down_proj have D * F numbers each; the router has D * E.",
    weight=2,
)
def test_total(student: Student, check: Check) -> None:
    for D, F, E, k in ((5, 7, 3, 2), (1, 1, 1, 1), (6, 11, 8, 1), (check.integer(9, 40), check.integer(9, 40), 5, 4)):
        total, _ = pair(check, student.parameter_counts(D, F, E, k), f"D={D}, F={F}, E={E}, k={k}")
        check.equal(total, counted(D, F, E), f"the total of D={D}, F={F}, E={E}, k={k}")


@hidden_test(
    "parameter_counts",
    "a token meets top_k experts, and all of the router",
    hint="The router scores every expert for every token, so it counts in full; of the experts only top_k do.",
    weight=2,
)
def test_active(student: Student, check: Check) -> None:
    for D, F, E in ((5, 7, 6), (3, 10, 4), (check.integer(9, 40), check.integer(9, 40), 5)):
        for k in range(1, E + 1):
            _, active = pair(check, student.parameter_counts(D, F, E, k), f"D={D}, F={F}, E={E}, k={k}")
            want = counted(D, F, E) - (counted(D, F, 1) - D) * (E - k)
            check.equal(active, want, f"the weights that a token meets, D={D}, F={F}, E={E}, k={k}")


@hidden_test(
    "parameter_counts",
    "Mixtral's layer has 1,409,318,912 weights, of which a token meets 352,354,304",
    hint="D = 4096, F = 14336, 8 experts, 2 a token. Compute with Python's integers; they are exact at any size.",
)
def test_mixtral(student: Student, check: Check) -> None:
    total, active = pair(check, student.parameter_counts(4096, 14336, 8, 2), "Mixtral's layer")
    check.equal([total, active], [1_409_318_912, 352_354_304], "(total, active) of Mixtral's layer")
    total, active = pair(check, student.parameter_counts(2**29 + 1, 2**30 + 1, 3, 1), "a layer beyond 2 ** 53")
    expert = 3 * (2**29 + 1) * (2**30 + 1)
    check.equal([total, active], [3 * expert + 3 * (2**29 + 1), expert + 3 * (2**29 + 1)], "beyond 2 ** 53")


@hidden_test(
    "parameter_counts",
    "more experts add nothing to a token's work but their rows of the router",
    hint="With top_k as it is, E may grow the total; of the active weights only D * E depends on E.",
)
def test_growth(student: Student, check: Check) -> None:
    D, F, k = 7, 13, 2
    for E in (2, 4, 16, 64):
        total, active = pair(check, student.parameter_counts(D, F, E, k), f"E={E}")
        check.equal(active - D * E, k * 3 * D * F, f"active weights without the router, E={E}")
        check.equal(total - D * E, E * 3 * D * F, f"all weights without the router, E={E}")


@hidden_test(
    "parameter_counts",
    "impossible sizes are a ValueError that names the argument",
    hint="Each of the four must be at least 1, and top_k at most n_experts; raise ValueError, with name and value.",
)
def test_sizes(student: Student, check: Check) -> None:
    good = {"d_model": 5, "d_ff": 7, "n_experts": 3, "top_k": 2}
    for name in good:
        for value in (0, -4):
            call = partial(student.parameter_counts, **{**good, name: value})
            check.raises(ValueError, call, f"{name}={value}", mentions=(name, value))
    call = partial(student.parameter_counts, 5, 7, 9, 11)
    check.raises(ValueError, call, "top_k=11 of n_experts=9", mentions=("top_k", 11, 9))
    check.equal(list(student.parameter_counts(**good)), [3 * 105 + 15, 2 * 105 + 15], "sizes that are possible")


def pair(check: Check, got: Any, what: str) -> tuple[int, int]:
    """Two whole numbers, or a failure."""
    fine = isinstance(got, tuple | list) and len(got) == 2 and all(type(n) is int for n in got)
    check.true(fine, f"{what}: expected a pair of whole numbers (total, active), got {got!r}")
    return got[0], got[1]


# rows_of


def places(indices: Tensor, expert: int) -> list[list[int]]:
    """The pairs (row, slot) where the expert's number stands, in reading order."""
    table = indices.tolist()
    return [[m, j] for m, row in enumerate(table) for j, e in enumerate(row) if e == expert]


def found(student: Student, check: Check, indices: Tensor, expert: int, what: str) -> list[list[int]]:
    """What `rows_of` finds, as pairs sorted by row and slot."""
    got = student.rows_of(indices, expert)
    check.true(isinstance(got, tuple | list) and len(got) == 2, f"{what}: expected a pair (rows, slots)")
    n = len(places(indices, expert))
    for name, part in zip(("rows", "slots"), got, strict=True):
        check.tensor(part, (n,), f"{name}, {what}", torch.int64)
    return sorted(list(place) for place in zip(got[0].tolist(), got[1].tolist(), strict=True))


@hidden_test(
    "rows_of",
    "rows and slots say where the expert's number stands",
    hint="Where is indices equal to expert? torch.where or nonzero gives the row and the column of each place.",
    weight=3,
)
def test_places(student: Student, check: Check) -> None:
    for M, k, E in ((7, 2, 4), (1, 1, 1), (11, 3, 5), (6, 1, 3)):
        indices = check.randn(M, E).argsort(-1)[:, :k]
        for expert in range(E):
            what = f"expert {expert} of {E}, M={M}, k={k}"
            check.equal(found(student, check, indices, expert, what), places(indices, expert), what)


@hidden_test(
    "rows_of",
    "over all experts every choice occurs once",
    hint="Look in all k columns: together the experts must find all M * k entries.",
    weight=2,
)
def test_all_choices(student: Student, check: Check) -> None:
    M, k, E = 9, 4, 6
    indices = check.randn(M, E).argsort(-1)[:, :k]
    every = [place for e in range(E) for place in found(student, check, indices, e, f"expert {e}")]
    check.equal(sorted(every), [[m, j] for m in range(M) for j in range(k)], "the places found for all experts")


@hidden_test(
    "rows_of",
    "the rows rise",
    hint="Read the table row by row. A comparison of the transposed table finds the places column by column.",
)
def test_order(student: Student, check: Check) -> None:
    for M, k, E in ((12, 3, 4), (20, 2, 3)):
        indices = check.randn(M, E).argsort(-1)[:, :k]
        for expert in range(E):
            rows = [m for m, _ in places(indices, expert)]
            got = check.tensor(student.rows_of(indices, expert)[0], (len(rows),), f"rows of expert {expert}")
            check.equal(got.tolist(), rows, f"rows of expert {expert}, M={M}, k={k}")


@hidden_test(
    "rows_of",
    "an expert that nobody chose has no rows",
    hint="Return two empty tensors of one dimension, int64. Nothing needs a case of its own if you compare and look.",
)
def test_nobody(student: Student, check: Check) -> None:
    indices = check.randint(0, 3, (8, 2)) * 2  # experts 0, 2 and 4
    for expert in (1, 3, 5):
        check.equal(found(student, check, indices, expert, f"expert {expert}"), [], f"expert {expert}")
    indices = torch.tensor([[1, 0]])
    check.equal(found(student, check, indices, 0, "one row"), [[0, 1]], "one row")
    check.equal(found(student, check, torch.zeros(0, 2, dtype=torch.int64), 0, "no row"), [], "no row at all")


@hidden_test(
    "rows_of",
    "a row that chose the expert twice stands there twice",
    hint="One pair for each entry of the table, not for each row.",
)
def test_twice(student: Student, check: Check) -> None:
    indices = check.randint(0, 3, (10, 4))
    indices[3], indices[6] = 2, torch.tensor([2, 0, 2, 1])
    for expert in range(3):
        check.equal(found(student, check, indices, expert, f"expert {expert}"), places(indices, expert), f"{expert}")


@hidden_test(
    "rows_of",
    "a table that is not contiguous works and stays as it is",
    hint="Compare the table as it is; reshape, not view, if you need it flat, and write to nothing that came in.",
)
def test_table(student: Student, check: Check) -> None:
    indices = check.randn(7, 5).argsort(-1).T[:3].T
    check.equal(found(student, check, indices, 2, "columns of another table"), places(indices, 2), "expert 2")
    check.true(student.fixtures.unchanged(student.rows_of, indices, 2), "indices were changed in place")
