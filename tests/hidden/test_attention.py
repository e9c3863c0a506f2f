"""Hidden tests of chapter 02, the first two exercises: attention_scores and causal_mask."""

import math
from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

# attention_scores


def scores(q: Tensor, k: Tensor) -> Tensor:
    """Scaled dot products in float64."""
    return torch.einsum("...td,...sd->...ts", q.double(), k.double()) / math.sqrt(q.shape[-1])


@hidden_test(
    "attention_scores",
    "each score is a query times a key, over the square root of d",
    hint="Multiply each query with each key, number by number, add up, and divide by the square root of d.",
    weight=2,
)
def test_scores(student: Student, check: Check) -> None:
    q, k = torch.tensor([[2.0, 1.0], [0.0, -3.0]]), torch.tensor([[1.0, 1.0], [0.0, 1.0], [4.0, 0.0]])
    by_hand = torch.tensor([[3.0, 1.0, 8.0], [-3.0, -3.0, 0.0]]) / math.sqrt(2)
    check.close(student.attention_scores(q, k), by_hand, "scores worked out by hand")
    q, k = check.randn(5, 11), check.randn(8, 11)
    check.close(student.attention_scores(q, k), scores(q, k), "5 queries, 8 keys, d=11")


@hidden_test(
    "attention_scores",
    "the divisor is the square root of the width, at every width",
    hint="d is the last dimension of q: read it from the input. It is neither the number of tokens nor a constant, "
    "and the divisor is its square root.",
    weight=2,
)
def test_scale(student: Student, check: Check) -> None:
    for d in check.shuffled([1, 2, 3, 10, 48, 130]):
        T, S = check.integer(2, 9), check.integer(9, 14)
        got = student.attention_scores(torch.ones(T, d), torch.ones(S, d))
        check.close(got, torch.full((T, S), math.sqrt(d)), f"all ones, d={d}, {T} queries, {S} keys")


@hidden_test(
    "attention_scores",
    "rows are queries and columns are keys",
    hint="q @ k transposed, not k @ q transposed: the score of query t with key s stands in row t, column s.",
    weight=2,
)
def test_orientation(student: Student, check: Check) -> None:
    q, k = check.randn(6, 4), check.randn(6, 4)
    got = student.attention_scores(q, k)
    check.close(got, scores(q, k), "as many queries as keys (a transposed result has the right shape here)")
    check.close(student.attention_scores(q[:1], k), scores(q[:1], k), "one query")
    check.close(student.attention_scores(q, k[:1]), scores(q, k[:1]), "one key")


@hidden_test(
    "attention_scores",
    "any number of leading dimensions works, and they broadcast",
    hint="Swap the last two dimensions of k alone: .mT or .transpose(-2, -1). .T turns all dimensions round.",
    weight=2,
)
def test_leading_dimensions(student: Student, check: Check) -> None:
    for lead in ((), (3,), (1,), (2, 3), (2, 1, 3)):
        q, k = check.randn(*lead, 4, 7), check.randn(*lead, 5, 7)
        check.close(student.attention_scores(q, k), scores(q, k), f"leading dimensions {lead}")
    q, k = check.randn(2, 6, 4, 7), check.randn(2, 1, 5, 7)
    check.close(student.attention_scores(q, k), scores(q, k), "six heads of queries, one of keys")
    q, k = check.randn(4, 7), check.randn(3, 5, 7)
    check.close(student.attention_scores(q, k), scores(q, k), "queries without a batch, keys with one")


@hidden_test(
    "attention_scores",
    "the scores are raw: negative, larger than one, and not normalised",
    hint="Softmax comes later, in `attention`; and queries and keys keep the lengths that they have.",
)
def test_raw(student: Student, check: Check) -> None:
    q, k = check.randn(3, 9, scale=4.0), check.randn(5, 9, scale=4.0)
    check.close(student.attention_scores(q, k), scores(q, k), "large queries and keys")
    check.close(student.attention_scores(3 * q, k), 3 * scores(q, k), "queries three times as long")
    check.close(student.attention_scores(q, -2 * k), -2 * scores(q, k), "keys twice as long and turned round")


@hidden_test(
    "attention_scores",
    "the scores keep the dtype of the queries",
    hint="Do not convert: float64 in, float64 out; float16 in, float16 out.",
)
def test_scores_dtype(student: Student, check: Check) -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        q, k = check.randn(3, 6, dtype=dtype), check.randn(4, 6, dtype=dtype)
        got = check.tensor(student.attention_scores(q, k), (3, 4), f"scores of {dtype}", dtype)
        check.close(got, scores(q, k), f"scores of {dtype}")


@hidden_test(
    "attention_scores",
    "queries and keys are left as they were, whatever their memory layout",
    hint="No operator that ends in an underscore and no `/=`: they change the caller's tensors. "
    "And .view fails on a tensor that is not contiguous.",
)
def test_scores_inputs(student: Student, check: Check) -> None:
    q, k = check.randn(2, 4, 7), check.randn(2, 5, 7)
    check.true(
        student.fixtures.unchanged(student.attention_scores, q, k),
        "attention_scores changed q or k in the caller's hands",
    )
    q, k = check.randn(7, 4, 2).permute(2, 1, 0), check.randn(5, 2, 14).transpose(0, 1)[..., ::2]
    check.close(student.attention_scores(q, k), scores(q, k), "queries and keys that are not contiguous")


@hidden_test(
    "attention_scores",
    "widths that differ are a ValueError that names both",
    hint="Compare q.shape[-1] with k.shape[-1] before the product, and put both numbers into the message.",
)
def test_widths(student: Student, check: Check) -> None:
    q, k = check.randn(4, 6), check.randn(5, 6)
    want = q.double() @ k.double().mT / math.sqrt(6)
    check.close(student.attention_scores(q, k), want, "the scores of widths that agree")
    for dq, dk in ((7, 6), (3, 12), (1, 5)):
        q, k = check.randn(4, dq), check.randn(5, dk)
        check.raises(ValueError, partial(student.attention_scores, q, k), f"widths {dq} and {dk}", [dq, dk])


@hidden_test(
    "attention_scores",
    "gradients reach queries and keys",
    hint="Stay with tensors from start to end: .detach(), .item(), .data or numpy cut the gradient. Otherwise at most "
    "three fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_scores_gradients(student: Student, check: Check) -> None:
    # In float32, so that one mistake costs its own marks: the dtype has a property of its own.
    q, k, pull = check.randn(2, 3, 4), check.randn(2, 5, 4), check.randn(2, 3, 5)
    mine, true = ((q.clone().requires_grad_(), k.clone().requires_grad_()) for _ in range(2))
    got = torch.autograd.grad((student.attention_scores(*mine) * pull).sum(), mine)
    want = torch.autograd.grad((scores(*true) * pull).sum(), true)
    check.close(got[0], want[0], "the gradient of q")
    check.close(got[1], want[1], "the gradient of k")


# causal_mask


def allowed(T: int, S: int) -> Tensor:
    """The mask, cell by cell: the query stands at position t + S - T."""
    return torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)], dtype=torch.bool)


@hidden_test(
    "causal_mask",
    "each token may attend to itself and to everything before it",
    hint="For T = 3 the rows are: only the first; the first two; all three.",
    weight=2,
)
def test_square(student: Student, check: Check) -> None:
    for T in check.shuffled([1, 2, 3, 7, 12]):
        check.equal(student.causal_mask(T), allowed(T, T), f"T={T}")


@hidden_test(
    "causal_mask",
    "True means may attend",
    hint="The lower left corner (the last token looking at the first) must be True, the upper right corner False.",
)
def test_polarity(student: Student, check: Check) -> None:
    mask = check.tensor(student.causal_mask(5), (5, 5), "causal_mask(5)").bool()
    check.true(bool(mask[4, 0]), "the last token may attend to the first: expected True, got False")
    check.true(not bool(mask[0, 4]), "the first token may not attend to the last: expected False, got True")


@hidden_test(
    "causal_mask",
    "a token may attend to itself",
    hint="The diagonal belongs to what is allowed; without it the first token has nothing to attend to.",
)
def test_diagonal(student: Student, check: Check) -> None:
    mask = check.tensor(student.causal_mask(6), (6, 6), "causal_mask(6)").bool()
    check.equal(mask.diagonal(), torch.ones(6, dtype=torch.bool), "the diagonal of causal_mask(6)")


@hidden_test(
    "causal_mask",
    "no token may attend to a later one",
    hint="Everything above the diagonal is False, the cells next to it included.",
)
def test_future(student: Student, check: Check) -> None:
    mask = check.tensor(student.causal_mask(6), (6, 6), "causal_mask(6)").bool()
    check.true(not bool(mask.diagonal(1).any()), "a token may attend to the next one: expected False, got True")
    check.true(not bool(mask.triu(1).any()), "a token may attend to a later one: expected False, got True")


@hidden_test(
    "causal_mask",
    "with more keys than queries, the mask is aligned to the end of the keys",
    hint="The T queries are the last T of the S tokens: query t stands at position t + S - T. One query alone, "
    "the newest token, sees every key.",
    weight=3,
)
def test_aligned(student: Student, check: Check) -> None:
    for T, S in check.shuffled([(2, 5), (3, 4), (4, 11), (1, 8), (6, 7)]):
        check.equal(student.causal_mask(T, S), allowed(T, S), f"T={T}, S={S}")
    check.equal(student.causal_mask(1, S=9), torch.ones(1, 9, dtype=torch.bool), "one query and nine keys")


@hidden_test(
    "causal_mask",
    "with fewer keys than queries, the first queries may attend to nothing",
    hint="The same rule, t + S - T, gives negative positions to the first T - S queries. S may be 0, which `or` takes "
    "for None.",
)
def test_fewer_keys(student: Student, check: Check) -> None:
    for T, S in ((5, 3), (4, 1), (3, 0)):
        check.equal(student.causal_mask(T, S), allowed(T, S), f"T={T}, S={S}")


@hidden_test(
    "causal_mask",
    "the mask is boolean, T rows by S columns",
    hint="dtype torch.bool, not ones and zeros or minus infinities; one row a query, one column a key.",
)
def test_mask_form(student: Student, check: Check) -> None:
    for T, S in ((3, 7), (2, 3)):
        check.tensor(student.causal_mask(T, S), (T, S), f"causal_mask({T}, {S})", torch.bool)
    check.tensor(student.causal_mask(4, None), (4, 4), "causal_mask(4, None)", torch.bool)


@hidden_test(
    "causal_mask",
    "the mask is made on the device asked for",
    hint="Pass `device` on to whatever makes the tensor.",
)
def test_device(student: Student, check: Check) -> None:
    # "meta" is a device that every machine has: shapes without numbers.
    got = student.fixtures.device(student.causal_mask, 3, 5, device="meta")
    check.equal(got, "meta", "the device of causal_mask(3, 5, device='meta')")
    check.equal(student.fixtures.device(student.causal_mask, 3, 5), "cpu", "the device of causal_mask(3, 5)")
