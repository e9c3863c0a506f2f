"""Hidden tests of chapter 09, continued: sample_next.

How random numbers are used is the student's business: frequencies are compared, never single draws.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

DRAWS = 4000


def frequencies(student: Student, check: Check, logits: Tensor, **settings: Any) -> Tensor:
    """How often each id is drawn from one row of scores, `(V,) -> (V,)`."""
    rows = logits.expand(DRAWS, -1)
    got = student.sample_next(rows, generator=student.generator(check.integer(0, 2**31)), **settings)
    drawn = check.tensor(got, (DRAWS,), "the ids drawn", torch.int64)
    within = int(drawn.min()) >= 0 and int(drawn.max()) < len(logits)
    check.true(within, f"an id was drawn that is not among the {len(logits)} that have a score")
    return drawn.bincount(minlength=len(logits)).double() / DRAWS


def agree(check: Check, got: Tensor, want: Tensor, what: str) -> None:
    """Frequencies within seven standard deviations of the probabilities, and none where there is none."""
    want = want.double()
    for i, (share, p) in enumerate(zip(got.tolist(), want.tolist(), strict=True)):
        if p == 0:
            check.equal(share, 0.0, f"{what}: share of id {i}, which must never be drawn")
        else:
            slack = 7 * math.sqrt(p * (1 - p) / DRAWS) + 2 / DRAWS
            check.close(share, p, f"{what}: share of id {i} among {DRAWS} draws", rtol=0, atol=slack)


def probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """The truth, in float64."""
    p = (logits.double() / temperature).softmax(-1)
    order = p.argsort(descending=True)
    if top_k is not None:
        p[order[top_k:]] = 0
        p = p / p.sum()
    if top_p is not None:
        before = p[order].cumsum(0) - p[order]
        p[order[before >= top_p]] = 0
    return p / p.sum()


SCORES = torch.tensor([1.0, 2.2, -0.5, 0.3, 1.7, -3.0])


@hidden_test(
    "sample_next",
    "ids are drawn in proportion to their probabilities",
    hint="softmax, then torch.multinomial: not argmax, and not every id alike.",
    weight=3,
)
def test_proportions(student: Student, check: Check) -> None:
    scores = SCORES[torch.tensor(check.shuffled(list(range(6))))]
    agree(check, frequencies(student, check, scores), probabilities(scores), "no settings")
    agree(check, frequencies(student, check, 3 * scores), probabilities(3 * scores), "scores three times as large")


@hidden_test(
    "sample_next",
    "each row is drawn from its own scores",
    hint="One id a row: the result is (B,), and row b depends on logits[b] alone.",
    weight=2,
)
def test_rows(student: Student, check: Check) -> None:
    best = check.randint(0, 30, (20,))
    logits = torch.zeros(20, 30).scatter(1, best[:, None], 60.0)
    for settings in ({}, {"top_k": 2}, {"top_p": 0.7}, {"temperature": 0}):
        check.equal(student.sample_next(logits, **settings), best, f"one certain id a row, {settings or 'no settings'}")
    check.equal(student.sample_next(logits[:1]), best[:1], "a single row")


@hidden_test(
    "sample_next",
    "a temperature below one sharpens, above one flattens, and zero takes the likeliest",
    hint="Divide the scores by the temperature; at 0 return the argmax.",
    weight=2,
)
def test_temperature(student: Student, check: Check) -> None:
    for temperature in check.shuffled([0.5, 2.5]):
        got = frequencies(student, check, SCORES, temperature=temperature)
        agree(check, got, probabilities(SCORES, temperature), f"temperature {temperature}")
    logits = check.randn(40, 6, scale=0.2)
    check.equal(student.sample_next(logits, temperature=0), logits.argmax(dim=-1), "temperature 0")
    check.equal(
        student.sample_next(logits, 0.0, top_k=3, top_p=0.5), logits.argmax(dim=-1), "temperature 0, with filters"
    )
    first = check.integer(0, 4)
    equal = torch.where(torch.arange(9) < first, -1.0, 2.0).expand(3, 9)
    check.equal(student.sample_next(equal, 0), torch.full((3,), first), "temperature 0, the lowest of equals")


@hidden_test(
    "sample_next",
    "top_k keeps the k likeliest ids, and no more where scores are equal",
    hint="Keep the places that topk gives. A comparison with the k-th largest score keeps all that equal it.",
    weight=2,
)
def test_top_k(student: Student, check: Check) -> None:
    for top_k in check.shuffled([1, 2, 4]):
        got = frequencies(student, check, SCORES, top_k=top_k)
        agree(check, got, probabilities(SCORES, top_k=top_k), f"top_k={top_k}")
    agree(check, frequencies(student, check, SCORES, top_k=50), probabilities(SCORES), "top_k=50 of 6 ids")
    equal = frequencies(student, check, torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0]), top_k=2)
    check.equal(int((equal > 0).sum()), 2, "ids drawn with top_k=2, four scores being equal")


@hidden_test(
    "sample_next",
    "top_p keeps the fewest likeliest ids that reach p, with the one that crosses it",
    hint="Sort; an id stays if the sum of all that are likelier is still below p.",
    weight=3,
)
def test_top_p(student: Student, check: Check) -> None:
    p = torch.tensor([0.08, 0.4, 0.12, 0.25, 0.15])
    for top_p in check.shuffled([0.3, 0.5, 0.7, 0.95]):
        got = frequencies(student, check, p.log(), top_p=top_p)
        agree(check, got, probabilities(p.log(), top_p=top_p), f"probabilities {p.tolist()}, top_p={top_p}")
    agree(check, frequencies(student, check, p.log(), top_p=1.0), p, "top_p=1 keeps all")


@hidden_test(
    "sample_next",
    "the temperature comes before top_p, and top_k before it",
    hint="Temperature, top_k, scale to one, top_p: each works on what the one before has left.",
    weight=2,
)
def test_order(student: Student, check: Check) -> None:
    p = torch.tensor([0.4, 0.25, 0.15, 0.12, 0.08])
    cases: list[dict[str, Any]] = [
        {"temperature": 3.0, "top_p": 0.5},
        {"temperature": 0.4, "top_p": 0.8},
        {"top_k": 2, "top_p": 0.6},
    ]
    for settings in cases:
        got = frequencies(student, check, p.log(), **settings)
        agree(check, got, probabilities(p.log(), **settings), f"{settings}")


@hidden_test(
    "sample_next",
    "the same generator draws the same ids, another seed others",
    hint="Hand the generator to torch.multinomial.",
    weight=2,
)
def test_generator(student: Student, check: Check) -> None:
    logits, seed = check.randn(60, 6), check.integer(0, 2**30)
    one, same, other = (
        check.tensor(student.sample_next(logits, generator=student.generator(s)), (60,), "the ids drawn")
        for s in (seed, seed, seed + 1)
    )
    check.equal(one, same, "60 rows, twice with one seed")
    check.true(not torch.equal(one, other), "60 rows with two seeds: the same ids were drawn")
    agree(check, frequencies(student, check, SCORES), probabilities(SCORES), "4,000 rows")


@hidden_test(
    "sample_next",
    "settings that cannot be are a ValueError that names them",
    hint="top_k below 1, top_p not above 0 or above 1, a negative temperature: each with its value in the message.",
)
def test_errors(student: Student, check: Check) -> None:
    logits = check.randn(2, 6)
    for settings in ({"top_k": 0}, {"top_k": -3}, {"top_p": 0.0}, {"top_p": 1.5}, {"temperature": -0.5}):
        value = next(iter(settings.values()))
        check.raises(ValueError, partial(student.sample_next, logits, **settings), f"{settings}", mentions=(value,))
    agree(check, frequencies(student, check, SCORES, top_k=6, top_p=1.0), probabilities(SCORES), "the largest filters")


@hidden_test(
    "sample_next",
    "the scores are left as they were",
    hint="logits[...] = -inf writes into the caller's tensor; masked_fill makes a new one.",
)
def test_in_place(student: Student, check: Check) -> None:
    logits = check.randn(5, 6)
    check.equal(student.sample_next(logits, top_k=1), logits.argmax(dim=-1), "top_k=1")
    for settings in ({"top_k": 2}, {"top_p": 0.5}, {"temperature": 0.5}):
        same = student.fixtures.unchanged(student.sample_next, logits, **settings)
        check.true(same, f"{settings}: the scores were changed in place")
