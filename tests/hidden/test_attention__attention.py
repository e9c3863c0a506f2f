"""Hidden tests of chapter 02, the third exercise: attention."""

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def truth(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Torch's own operator in float64; every query must have a key that it may attend to."""
    mask = None if mask is None else torch.atleast_2d(mask)
    return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask)


def weights_of(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Torch's attention weights: what comes out when the values are one-hot."""
    S = k.shape[-2]
    return truth(q, k, torch.eye(S, dtype=torch.float64).expand(*k.shape[:-2], S, S), mask)


def inputs(
    check: Check, *lead: int, T: int, S: int, d: int, d_v: int, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Float32 queries, keys and values; `scale` sharpens the weights."""
    return check.randn(*lead, T, d, scale=scale), check.randn(*lead, S, d), check.randn(*lead, S, d_v)


def random_mask(check: Check, *shape: int) -> Tensor:
    """True for about half of the pairs, and for at least one key of each query."""
    mask = check.randn(*shape) > 0
    mask[..., 0] |= ~mask.any(dim=-1)
    return mask


@hidden_test(
    "attention",
    "the output equals PyTorch's attention operator",
    hint="Scores, softmax over the keys, then a matrix product with the values; nothing else is scaled.",
    weight=3,
)
def test_equals_operator(student: Student, check: Check) -> None:
    for T, S, d, d_v in ((5, 7, 6, 3), (1, 4, 2, 9), (8, 1, 10, 5), (3, 130, 24, 11)):
        q, k, v = inputs(check, T=T, S=S, d=d, d_v=d_v, scale=1.5)
        check.close(student.attention(q, k, v), truth(q, k, v), f"T={T}, S={S}, d={d}, values of width {d_v}")
    q, k, v = (x.double() for x in inputs(check, 3, T=4, S=6, d=5, d_v=7))
    check.close(student.attention(q, k, v), truth(q, k, v), "the same in float64")


@hidden_test(
    "attention",
    "each query's weights sum to one over its keys",
    hint="Softmax runs over the last dimension of the scores, the keys; over the queries, columns would sum to one.",
    weight=2,
)
def test_rows_sum_to_one(student: Student, check: Check) -> None:
    q, k, v = inputs(check, 2, T=5, S=8, d=6, d_v=4)
    for mask in (None, random_mask(check, 5, 8)):
        _, weights = student.attention(q, k, v, mask=mask, return_weights=True)
        said = "without a mask" if mask is None else "under a mask"
        check.close(weights.sum(-1), torch.ones(2, 5), f"the sums over the keys, {said}")
    same = check.randn(4)
    check.close(student.attention(q, k, same.expand(2, 8, 4)), same.expand(2, 5, 4), "equal values, blended")


@hidden_test(
    "attention",
    "True in the mask means may attend",
    hint="masked_fill takes the places to fill, and those are the hidden ones: turn the mask round with ~.",
    weight=2,
)
def test_polarity(student: Student, check: Check) -> None:
    q, k, v = inputs(check, T=4, S=6, d=5, d_v=3)
    chosen = check.randint(0, 6, (4,))
    mask = chosen[:, None] == torch.arange(6)
    check.close(student.attention(q, k, v, mask), v[chosen], "one allowed key for each query: expected its value")


@hidden_test(
    "attention",
    "hidden keys have no part in the weights",
    hint="Give a hidden pair the score minus infinity before the softmax. Multiplying scores by 0 leaves exp(0) = 1; "
    "zeros after the softmax leave weights that no longer sum to one.",
    weight=2,
)
def test_masked(student: Student, check: Check) -> None:
    q, k, v = inputs(check, 2, T=5, S=7, d=6, d_v=3, scale=2.0)
    mask = random_mask(check, 2, 5, 7)
    output, weights = student.attention(q, k, v, mask, return_weights=True)
    check.close(weights, weights_of(q, k, mask), "the weights under a mask")
    check.true(bool((weights[~mask] == 0).all()), "a hidden key has a weight that is not exactly zero")
    check.close(output, truth(q, k, v, mask), "the output under a mask")
    square = random_mask(check, 7, 7)
    square[:2, -1] = True  # not a causal mask
    check.close(student.attention(k, k, v, square), truth(k, k, v, square), "as many queries as keys, any mask")


@hidden_test(
    "attention",
    "a mask may have fewer dimensions than the scores, or size 1 where it says the same for all",
    hint="Let broadcasting do it: masked_fill and torch.where broadcast, indexing as in scores[~mask] does not.",
)
def test_mask_broadcasts(student: Student, check: Check) -> None:
    q, k, v = inputs(check, 2, 3, T=4, S=6, d=5, d_v=7)
    for shape in ((6,), (1, 6), (4, 6), (3, 1, 6), (2, 1, 1, 6), (2, 1, 4, 6), (2, 3, 4, 6)):
        mask = random_mask(check, *shape)
        check.close(student.attention(q, k, v, mask), truth(q, k, v, mask), f"a mask of shape {shape}")
    asks = torch.tensor([True, True, False, True])[torch.tensor(check.shuffled(range(4)))].unsqueeze(1)
    check.close(
        student.attention(q, k, v, asks), truth(q, k, v) * asks, "a mask of shape (4, 1): one query sees nothing"
    )


@hidden_test(
    "attention",
    "no output depends on a later token",
    hint="Under a causal mask, changing token s may change outputs s and later only. Mask before the softmax: its sum "
    "must not count the future either.",
    weight=2,
)
def test_no_future(student: Student, check: Check) -> None:
    T = 7
    q, k, v = (x.double() for x in inputs(check, 2, T=T, S=T, d=4, d_v=3))
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    before = student.attention(q, k, v, mask=mask)
    check.close(before, truth(q, k, v, mask), "the outputs under a causal mask")
    s = check.integer(2, T)
    k2, v2 = k.clone(), v.clone()
    k2[:, s:], v2[:, s:] = 2 * check.randn(2, T - s, 4), check.randn(2, T - s, 3)
    after = student.attention(q, k2, v2, mask=mask)
    check.close(after[:, :s], before[:, :s], f"tokens {s} and later changed: outputs before {s}")
    check.close(after[:, s:], truth(q, k2, v2, mask)[:, s:], f"tokens {s} and later changed: outputs from {s}")


@hidden_test(
    "attention",
    "the last queries alone get what they get among all",
    hint="With S > T the mask that is passed already says which keys each query sees: use it as it is, and add no "
    "square mask of your own.",
)
def test_last_queries(student: Student, check: Check) -> None:
    S = 9
    q, k, v = inputs(check, 2, T=S, S=S, d=4, d_v=5)
    mask = torch.ones(S, S, dtype=torch.bool).tril()
    want = truth(q, k, v, mask)
    for T in (1, 3, 6):
        got = student.attention(q[:, -T:], k, v, mask[-T:])
        check.close(got, want[:, -T:], f"the last {T} of {S} queries")


@hidden_test(
    "attention",
    "a query that may attend to nothing gets zeros",
    hint="A row of nothing but minus infinity must give weights of zero: chapter 01's softmax does so. A large finite "
    "number in place of minus infinity gives equal weights to keys that are hidden.",
    weight=2,
)
def test_empty_row(student: Student, check: Check) -> None:
    q, k, v = inputs(check, 2, T=4, S=5, d=6, d_v=3)
    mask = random_mask(check, 4, 5)
    empty = check.integer(0, 4)
    mask[empty] = False
    rest = [t for t in range(4) if t != empty]
    output, weights = student.attention(q, k, v, mask, return_weights=True)
    check.close(weights[:, empty], torch.zeros(2, 5), "the weights of a query that may attend to nothing")
    check.close(output[:, empty], torch.zeros(2, 3), "the output of a query that may attend to nothing")
    check.close(output[:, rest], truth(q[:, rest], k, v, mask[rest]), "the other queries' outputs")
    nothing = torch.zeros(4, 5, dtype=torch.bool)
    check.close(student.attention(q, k, v, nothing), torch.zeros(2, 4, 3), "no query may attend to anything")
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        got = student.attention(q.to(dtype), k.to(dtype), v.to(dtype), mask)
        check.close(got[:, empty], torch.zeros(2, 3), f"the output of that query in {dtype}")


@hidden_test(
    "attention",
    "a query that may attend to nothing sends back finite gradients",
    hint="Replacing NaN in the output does not help: the gradient of the values still meets it. The row's weights "
    "themselves must be zero, as chapter 01's softmax makes them.",
)
def test_empty_row_gradients(student: Student, check: Check) -> None:
    q, k, v = (x.requires_grad_() for x in inputs(check, T=4, S=5, d=6, d_v=3))
    mask = random_mask(check, 4, 5)
    empty = check.integer(0, 4)
    mask[empty] = False
    rest = [t for t in range(4) if t != empty]
    probe = check.randn(4, 3)
    got = torch.autograd.grad((student.attention(q, k, v, mask) * probe).sum(), (q, k, v))
    want = torch.autograd.grad((truth(q[rest], k, v, mask[rest]) * probe[rest]).sum(), (q, k, v))
    for name, mine, true in zip("qkv", got, want, strict=True):
        check.close(mine, true, f"the gradient of {name}, one query hidden from all keys")


@hidden_test(
    "attention",
    "scores near 1,000 do not overflow",
    hint="exp(1000) is infinite. Your softmax from chapter 01 subtracts the maximum; use it.",
)
def test_large_scores(student: Student, check: Check) -> None:
    q, k, v = inputs(check, T=4, S=6, d=9, d_v=3)
    k = k.abs() + 0.5
    for size in (300.0, -300.0):
        queries = torch.full((4, 9), size) + q
        check.close(student.attention(queries, k, v), truth(queries, k, v), f"queries of size {size:.0f}", rtol=2e-3)
    apart = q * torch.tensor([[300.0], [1.0], [0.0], [-300.0]])
    check.close(student.attention(apart, k, v), truth(apart, k, v), "rows far apart", rtol=2e-3)


@hidden_test(
    "attention",
    "a last key with a large score takes the weight",
    hint="The softmax needs the maximum over all keys, the last one included.",
)
def test_late_large_key(student: Student, check: Check) -> None:
    q, k, v = inputs(check, T=3, S=150, d=8, d_v=4)
    k[-1] = 60 * q[1] / q[1].norm()
    check.close(student.attention(q, k, v), truth(q, k, v), "150 keys, the last one large")
    strong = 40 * q[1:2] / q[1:2].norm()
    check.close(student.attention(strong, k, v), v[-1:], "a query that faces the last key: expected its value")


@hidden_test(
    "attention",
    "float16 and bfloat16 work, with a mask too",
    hint="-1e9 does not fit into float16, which ends at 65,504. Fill with minus infinity, and keep the dtype.",
)
def test_half(student: Student, check: Check) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (x.to(dtype) for x in inputs(check, 2, T=5, S=7, d=6, d_v=3))
        for mask in (None, random_mask(check, 5, 7)):
            got = check.tensor(student.attention(q, k, v, mask), (2, 5, 3), f"the output in {dtype}", dtype)
            check.close(got, truth(q, k, v, mask), f"{dtype}, {'no mask' if mask is None else 'a mask'}")


@hidden_test(
    "attention",
    "the output keeps the dtype of its inputs",
    hint="No .float() and no .double(): float64 in gives float64 out, to full precision.",
)
def test_dtype(student: Student, check: Check) -> None:
    q, k, v = (x.double() for x in inputs(check, 2, T=4, S=6, d=5, d_v=3))
    output, weights = student.attention(q, k, v, return_weights=True)
    check.tensor(output, (2, 4, 3), "the output of float64 inputs", torch.float64)
    check.close(output, truth(q, k, v), "the output of float64 inputs")
    check.tensor(weights, (2, 4, 6), "the weights of float64 inputs", torch.float64)


@hidden_test(
    "attention",
    "the order of the keys does not matter, and the order of the queries is kept",
    hint="Attention knows no positions. Keys and values shuffled alike give the same output; shuffled queries give "
    "shuffled outputs.",
)
def test_permutation(student: Student, check: Check) -> None:
    q, k, v = (x.double() for x in inputs(check, 2, T=5, S=7, d=4, d_v=3))
    plain = student.attention(q, k, v)
    check.close(plain, truth(q, k, v), "the output")
    keys, queries = check.shuffled(range(7)), check.shuffled(range(5))
    check.close(student.attention(q, k[:, keys], v[:, keys]), plain, "keys and values shuffled alike")
    check.close(student.attention(q[:, queries], k, v), plain[:, queries], "queries shuffled")


@hidden_test(
    "attention",
    "any number of leading dimensions works",
    hint="Count dimensions from the end: -1 for the keys, -2 for the queries.",
)
def test_leading_dimensions(student: Student, check: Check) -> None:
    for lead in ((), (1,), (3,), (2, 3), (2, 1, 3)):
        q, k, v = inputs(check, *lead, T=4, S=6, d=5, d_v=7)
        check.close(student.attention(q, k, v), truth(q, k, v), f"leading dimensions {lead}")


@hidden_test(
    "attention",
    "return_weights=True gives the pair (output, weights), otherwise the output alone",
    hint="Return the output alone by default, and (output, weights), in this order, when asked.",
    weight=2,
)
def test_return_weights(student: Student, check: Check) -> None:
    q, k, v = inputs(check, 3, T=4, S=6, d=5, d_v=7)
    check.tensor(student.attention(q, k, v), (3, 4, 7), "the output alone")
    check.tensor(student.attention(q, k, v, return_weights=False), (3, 4, 7), "the output with return_weights=False")
    pair = student.attention(q, k, v, return_weights=True)
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2
    check.true(is_pair, "return_weights=True: expected a pair (output, weights)")
    check.close(pair[0], truth(q, k, v), "the first of the pair, the output")
    check.close(pair[1], weights_of(q, k), "the second of the pair, the weights")
    check.close(pair[1].double() @ v.double(), truth(q, k, v), "weights times values", rtol=1e-4, atol=1e-5)


@hidden_test(
    "attention",
    "gradients reach queries, keys and values",
    hint="Stay with tensors from start to end; .detach() on the weights cuts the gradient to queries and keys. "
    "Otherwise at most three fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    # In float32, so that one mistake costs its own marks: the dtype has a property of its own.
    for lead in ((), (2,), (2, 3)):
        leaves = [x.requires_grad_() for x in inputs(check, *lead, T=3, S=5, d=4, d_v=2)]
        probe = check.randn(*lead, 3, 2)
        for mask in (None, random_mask(check, 3, 5)):
            got = torch.autograd.grad((student.attention(*leaves, mask) * probe).sum(), leaves)
            want = torch.autograd.grad((truth(leaves[0], leaves[1], leaves[2], mask) * probe).sum(), leaves)
            for name, mine, true in zip("qkv", got, want, strict=True):
                said = "" if mask is None else ", under a mask"
                check.close(mine, true, f"the gradient of {name}, leading dimensions {lead}{said}")


@hidden_test(
    "attention",
    "it is built from scores and a softmax, not from torch's own attention",
    hint="The exercise is to build it: scores, mask, softmax and one matrix product. Otherwise at most half of the "
    "points are to be had.",
    weight=3,
    at_most=0.5,
)
def test_built_by_hand(student: Student, check: Check) -> None:
    q, k, v = inputs(check, 2, T=4, S=6, d=5, d_v=3)
    for mask in (None, random_mask(check, 4, 6)):
        check.close(student.attention(q, k, v, mask), truth(q, k, v, mask), "the output")
        called = student.fixtures.operators(student.attention, q, k, v, mask)
        ready = sorted({name for name in called if "scaled_dot_product" in name or name == "_safe_softmax"})
        check.true(not ready, f"attention: expected matrix products and a softmax, but {', '.join(ready)} was called")


@hidden_test(
    "attention",
    "nothing passed in is changed, whatever its memory layout",
    hint="Operators that end in an underscore, and ~ assigned back into the mask, change the caller's tensors.",
)
def test_inputs(student: Student, check: Check) -> None:
    q, k, v = inputs(check, 2, T=4, S=6, d=5, d_v=3)
    mask = random_mask(check, 4, 6)
    check.true(student.fixtures.unchanged(student.attention, q, k, v, mask), "attention changed one of its arguments")
    q = check.randn(5, 4, 2).permute(2, 1, 0)
    k = check.randn(6, 2, 10).transpose(0, 1)[..., ::2]
    v = check.randn(2, 1, 3).expand(2, 6, 3)
    columns = random_mask(check, 6, 4).mT
    columns[:, 0] = True
    want = truth(q, k, v, columns)
    check.close(student.attention(q, k, v, columns), want, "arguments that are not contiguous")
    check.close(student.attention(q, k, k), truth(q, k, k), "one tensor as keys and values")


@hidden_test(
    "attention",
    "a mask that is not boolean is a ValueError, and so is a missing value",
    hint="Check mask.dtype: ~ of an integer mask is something else altogether. Compare v.shape[-2] with k.shape[-2]; "
    "the docstring says what the messages must name.",
)
def test_errors(student: Student, check: Check) -> None:
    q, k, v = inputs(check, T=4, S=6, d=5, d_v=3)
    for mask in (torch.ones(4, 6), torch.ones(4, 6, dtype=torch.int64)):
        check.raises(ValueError, partial(student.attention, q, k, v, mask), f"a mask of {mask.dtype}", ["mask"])
    check.raises(ValueError, lambda: student.attention(q, k, v[:-2]), "6 keys and 4 values", [6, 4])


@hidden_test(
    "attention",
    "the scale follows the width of the queries",
    hint="The square root of d, once: attention_scores has already divided.",
    weight=2,
)
def test_scale(student: Student, check: Check) -> None:
    v = torch.eye(2)
    for d in check.shuffled([1, 3, 16, 50]):
        q, k = torch.ones(1, d), torch.stack([torch.ones(d), torch.zeros(d)])
        first = 1 / (1 + math.exp(-math.sqrt(d)))
        check.close(student.attention(q, k, v), torch.tensor([[first, 1 - first]]), f"scores sqrt(d) and 0, d={d}")
