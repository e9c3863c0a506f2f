"""Hidden tests of chapter 00, the fourth exercise: TokenEmbedding."""

import math
from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def one_hot(ids: Tensor, size: int) -> Tensor:
    """A 1 at each id's place, in float64."""
    return (ids.unsqueeze(-1) == torch.arange(size)).double()


def loaded(
    student: Student, check: Check, size: int, width: int, dtype: torch.dtype = torch.float32
) -> tuple[Any, Tensor]:
    """A layer with a known table, of ordinary size so that a wrong scale shows."""
    layer = student.TokenEmbedding(size, width)
    layer.to(dtype)
    weight = check.randn(size, width, dtype=dtype)
    layer.load_state_dict({"weight": weight})
    return layer, weight


@hidden_test(
    "TokenEmbedding",
    "its only parameter is `weight`, V rows of D numbers",
    hint="One nn.Parameter named `weight`, of shape (vocab_size, d_model): no second table for the way out, no bias.",
    weight=2,
)
def test_parameters(student: Student, check: Check) -> None:
    for size, width in ((13, 5), (4, 9)):
        layer = student.TokenEmbedding(size, width)
        check.equal(sorted(layer.grads()), ["weight"], "the names of its parameters")
        check.equal(sorted(layer.state_dict()), ["weight"], "the names in its state dict")
        check.tensor(layer.weight, (size, width), "weight", torch.float32)
    named = student.TokenEmbedding(vocab_size=6, d_model=11)
    check.tensor(named.weight, (6, 11), "weight of TokenEmbedding(vocab_size=6, d_model=11)")


@hidden_test(
    "TokenEmbedding",
    "forward gives each id's row of `weight`, unscaled",
    hint="Ids (B, T) become vectors (B, T, D) by `embed` and nothing else: no scale by sqrt(D), no dropout.",
    weight=2,
)
def test_forward(student: Student, check: Check) -> None:
    for batch, length, size, width in ((2, 5, 13, 7), (3, 1, 4, 11), (1, 6, 9, 2)):
        layer, weight = loaded(student, check, size, width)
        ids = check.randint(0, size, (batch, length))
        want = weight.index_select(0, ids.flatten()).reshape(batch, length, width)
        check.equal(layer(ids), want, f"B, T, V, D = {batch}, {length}, {size}, {width}")
        check.equal(layer.forward(ids), want, "the same by layer.forward")


@hidden_test(
    "TokenEmbedding",
    "unembed scores by the rows of `weight`, unscaled",
    hint="Vectors (B, T, D) become scores (B, T, V) by the transposed table and nothing else.",
    weight=2,
)
def test_unembed(student: Student, check: Check) -> None:
    for batch, length, size, width in ((2, 5, 13, 7), (3, 1, 4, 11), (1, 6, 9, 2)):
        layer, weight = loaded(student, check, size, width)
        x = check.randn(batch, length, width)
        want = torch.einsum("btd,vd->btv", x.double(), weight.double())
        check.close(layer.unembed(x), want, f"B, T, V, D = {batch}, {length}, {size}, {width}")


@hidden_test(
    "TokenEmbedding",
    "one table serves both ways: change it and both change",
    hint="Read `self.weight` anew in both methods. A copy made in __init__ stays behind when the table learns.",
    weight=2,
)
def test_tied(student: Student, check: Check) -> None:
    layer, _ = loaded(student, check, 12, 5)
    ids, x = check.randint(0, 12, (2, 3)), check.randn(2, 3, 5)
    layer(ids), layer.unembed(x)
    changed = check.randn(12, 5)
    layer.load_state_dict({"weight": changed})
    want = changed.index_select(0, ids.flatten()).reshape(2, 3, 5)
    check.equal(layer(ids), want, "forward after the table has changed")
    check.close(layer.unembed(x), torch.einsum("btd,vd->btv", x, changed), "unembed after the table has changed")


@hidden_test(
    "TokenEmbedding",
    "the table learns from both ways at once",
    hint="A gradient must come to `weight` through forward and through unembed, and the two add up: no .detach() on "
    "either side. Otherwise at most three fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_both_gradients(student: Student, check: Check) -> None:
    # In float32, so that one mistake costs its own marks: float64 has a property of its own.
    layer, weight = loaded(student, check, 9, 4)
    ids, x = check.randint(0, 9, (2, 5)), check.randn(2, 5, 4)
    rows, scores = check.randn(2, 5, 4), check.randn(2, 5, 9)
    truth_in = one_hot(ids, 9).flatten(0, 1).T @ rows.double().flatten(0, 1)
    truth_out = torch.einsum("btv,btd->vd", scores, x)
    vectors = check.tensor(layer(ids), (2, 5, 4), "forward")
    out = check.tensor(layer.unembed(x), (2, 5, 9), "unembed")
    check.true(vectors.requires_grad, "forward: no gradient can flow from the vectors back to `weight`")
    check.true(out.requires_grad, "unembed: no gradient can flow from the scores back to `weight`")
    vectors.backward(rows)
    check.close(layer.grads()["weight"], truth_in, "weight's gradient through forward")
    layer.zero_grad()
    out.backward(scores)
    check.close(layer.grads()["weight"], truth_out, "weight's gradient through unembed")
    layer.zero_grad()
    check.tensor(layer.unembed(layer(ids)), (2, 5, 9), "unembed of forward").backward(scores)
    leaf = weight.clone().requires_grad_()
    (leaf[ids] @ leaf.T).backward(scores)
    check.close(layer.grads()["weight"], leaf.grad, "weight's gradient through both")  # type: ignore[arg-type]


@hidden_test(
    "TokenEmbedding",
    "a new table is normal, with mean 0 and standard deviation 0.02",
    hint="torch.randn gives 1, and torch.empty gives whatever lay in memory. See torch.nn.init.normal_ and its `std`.",
)
def test_initialisation(student: Student, check: Check) -> None:
    for size, width in ((797, 23), (211, 101)):
        weight = student.TokenEmbedding(size, width).weight.double()
        check.close(weight.std(), 0.02, f"standard deviation, V = {size}, D = {width}", rtol=0.1)
        # The mean of n values strays by 0.02 / sqrt(n): six times that is out of reach by chance.
        check.close(weight.mean(), 0.0, f"mean, V = {size}, D = {width}", atol=6 * 0.02 / math.sqrt(size * width))
        within = (weight.abs() < 0.02).double().mean()
        check.close(within, 0.6827, "share of values within one standard deviation", rtol=0.0, atol=0.03)
        check.close(weight.std(0).mean(), 0.02, "standard deviation down the columns: rows must differ", rtol=0.1)
        check.close(weight.std(1).mean(), 0.02, "standard deviation along the rows", rtol=0.1)


@hidden_test(
    "TokenEmbedding",
    "each new table is drawn afresh",
    hint="Do not set a seed in the layer: whoever makes the model decides on it. With one seed, all layers are alike.",
)
def test_afresh(student: Student, check: Check) -> None:
    first, second = student.TokenEmbedding(31, 7).weight, student.TokenEmbedding(31, 7).weight
    same = int((check.tensor(first, (31, 7), "weight") == check.tensor(second, (31, 7), "weight")).sum())
    check.true(same < 22, f"two new layers have {same} of 217 numbers in common")


@hidden_test(
    "TokenEmbedding",
    "an id outside the table is a ValueError that names it",
    hint="`embed` checks this already: call it, or repeat its check.",
)
def test_layer_ids(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 10, 3)
    for wrong in (-1, 10, check.integer(300, 900)):
        ids = torch.tensor([[1, 2, 3], [0, wrong, 9]])
        check.raises(ValueError, lambda ids=ids: layer(ids), f"id {wrong}, V = 10", mentions=[wrong])
    check.equal(layer(torch.tensor([[9, 0]])), weight.index_select(0, torch.tensor([9, 0]))[None], "ids 9 and 0")


@hidden_test(
    "TokenEmbedding",
    "a size below 1 is a ValueError that names the argument",
    hint="Check vocab_size and d_model before you make the table: torch would make an empty one without a word.",
)
def test_sizes(student: Student, check: Check) -> None:
    call = student.TokenEmbedding
    for wrong in (0, check.integer(-9, 0)):
        check.raises(ValueError, lambda w=wrong: call(w, 5), f"vocab_size={wrong}", mentions=["vocab_size", wrong])
        check.raises(ValueError, lambda w=wrong: call(5, w), f"d_model={wrong}", mentions=["d_model", wrong])
    check.tensor(call(1, 1).weight, (1, 1), "weight of TokenEmbedding(1, 1)")


@hidden_test(
    "TokenEmbedding",
    "moved to float64 it computes in float64",
    hint="`layer.to(torch.float64)` moves every parameter. Name no dtype in the methods: it follows from `weight`.",
)
def test_float64(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 8, 5, torch.float64)
    ids, x = check.randint(0, 8, (3, 4)), check.randn(3, 4, 5, dtype=torch.float64)
    check.equal(layer(ids), weight.index_select(0, ids.flatten()).reshape(3, 4, 5), "forward in float64")
    scores = check.tensor(layer.unembed(x), (3, 4, 8), "unembed in float64", torch.float64)
    check.close(scores, torch.einsum("btd,vd->btv", x, weight), "unembed in float64")
