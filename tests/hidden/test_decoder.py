"""Hidden tests of chapter 09: next_token_loss and generate."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

V = 7


def table(student: Student, check: Check, scale: float = 2.0) -> tuple[Any, Tensor]:
    """A model that scores the next id by the last one alone, and its scores `(V, V)`."""
    weight = check.randn(V, V, scale=scale)
    model = student.torch.nn.Embedding(V, V)
    model.load_state_dict({"weight": weight})
    return model, weight


@hidden_test(
    "next_token_loss",
    "each position is asked for the id that follows it",
    hint="The model reads ids[:, :-1]; what it is asked for is ids[:, 1:]. Shift once: not never, and not twice.",
    weight=3,
)
def test_shift(student: Student, check: Check) -> None:
    for B, T in ((3, 6), (1, 2), (2, 9)):
        model, weight = table(student, check)
        ids = check.randint(0, V, (B, T))
        want = F.cross_entropy(weight.double()[ids[:, :-1]].flatten(0, 1), ids[:, 1:].flatten())
        check.close(student.next_token_loss(model, ids), want, f"{B} sequences of {T} ids")


@hidden_test(
    "next_token_loss",
    "a model that knows what follows has a loss near zero",
    hint="Test it by hand: ids 0, 1, 2 and a model that always expects one more than it has read.",
)
def test_knows(student: Student, check: Check) -> None:
    model = student.torch.nn.Embedding(V, V)
    model.load_state_dict({"weight": 30.0 * torch.eye(V).roll(1, dims=1)})
    start = check.integer(0, V)
    ids = (start + torch.arange(6)[None]) % V
    check.close(student.next_token_loss(model, ids), 0.0, "each id one more than the last", atol=1e-4)
    back = ids.flip(1)
    check.close(student.next_token_loss(model, back), 30.0, "the same ids backwards", rtol=1e-3)


@hidden_test(
    "next_token_loss",
    "every prediction of every sequence has the same weight",
    hint="One mean over all B * (T - 1) predictions: no sum, and no mean over ids of the vocabulary.",
    weight=2,
)
def test_mean(student: Student, check: Check) -> None:
    model = student.torch.nn.Embedding(V, V)
    model.load_state_dict({"weight": torch.zeros(V, V)})
    for B, T in ((2, 5), (4, 3)):
        got = student.next_token_loss(model, check.randint(0, V, (B, T)))
        check.close(
            got, torch.tensor(float(V)).double().log(), f"all ids equally likely, {B} sequences of {T}: log {V}"
        )
    model, weight = table(student, check)
    ids = check.randint(0, V, (3, 5))
    want = F.cross_entropy(weight.double()[ids[:, :-1]].flatten(0, 1), ids[:, 1:].flatten())
    check.close(student.next_token_loss(model, ids), want, "random scores")


@hidden_test(
    "next_token_loss",
    "the loss is a scalar whose gradient reaches the model",
    hint="No .item(), no .detach(): the model learns from this number.",
    weight=2,
    at_most=0.6,
)
def test_gradient(student: Student, check: Check) -> None:
    model, weight = table(student, check)
    ids = check.randint(0, V, (2, 6))
    loss = check.tensor(student.next_token_loss(model, ids), (), "the loss")
    check.true(loss.requires_grad, "no gradient flows from the loss back to the model")
    loss.backward()
    leaf = weight.double().requires_grad_()
    want = F.cross_entropy(leaf[ids[:, :-1]].flatten(0, 1), ids[:, 1:].flatten())
    check.close(loss, want, "the loss itself")
    check.close(model.grads()["weight"], torch.autograd.grad(want, leaf)[0], "the gradient", rtol=1e-3, atol=1e-5)


@hidden_test(
    "next_token_loss",
    "the model is called once, for all positions together",
    hint="Under a causal mask one call scores every position; a loop over the positions does the same work T times.",
)
def test_called_once(student: Student, check: Check) -> None:
    model = student.fixtures.SumModel(V)
    ids = check.randint(0, V, (2, 6))
    scores = 30.0 * F.one_hot(ids[:, :-1].cumsum(dim=1) % V, V).double()
    want = F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
    check.close(student.next_token_loss(model, ids), want, "a model that expects the sum of all ids read", atol=1e-4)
    check.equal(len(model.lengths), 1, "calls of the model")


@hidden_test(
    "next_token_loss",
    "ids of another shape are a ValueError that names it",
    hint="Two dimensions, and at least two ids a sequence: of one alone nothing can be predicted.",
)
def test_loss_errors(student: Student, check: Check) -> None:
    model, weight = table(student, check)
    for shape in ((3, 1), (5,)):
        ids = check.randint(0, V, shape)
        call = partial(student.next_token_loss, model, ids)
        check.raises(ValueError, call, f"ids of shape {shape}", mentions=shape)
    ids = check.randint(0, V, (1, 2))
    want = F.cross_entropy(weight.double()[ids[:, 0]], ids[:, 1])
    check.close(student.next_token_loss(model, ids), want, "one sequence of two ids")


# generate


@hidden_test(
    "generate",
    "what is written continues what was there",
    hint="Append each new id at the end of its own sequence; return the old ids and the new.",
    weight=2,
)
def test_continues(student: Student, check: Check) -> None:
    model = student.torch.nn.Embedding(V, V)
    model.load_state_dict({"weight": 30.0 * torch.eye(V).roll(1, dims=1)})  # always one more
    for B, T, n in ((3, 4, 5), (1, 1, 9)):
        ids = check.randint(0, V, (B, T))
        want = torch.cat([ids, (ids[:, -1:] + 1 + torch.arange(n)) % V], dim=1)
        check.equal(
            student.generate(model, ids, n, temperature=0), want, f"{B} sequences of {T}, {n} new, one more each"
        )


@hidden_test(
    "generate",
    "each new id is drawn from the scores of the last position",
    hint="model(ids)[:, -1], with the id that was drawn last already in ids.",
    weight=2,
)
def test_last(student: Student, check: Check) -> None:
    model, weight = table(student, check)
    for B, T in ((4, 3), (2, 1)):
        ids = check.randint(0, V, (B, T))
        want = ids
        for _ in range(6):
            want = torch.cat([want, weight[want[:, -1]].argmax(dim=-1, keepdim=True)], dim=1)
        check.equal(student.generate(model, ids, max_new_tokens=6, temperature=0), want, "the likeliest id each time")


@hidden_test(
    "generate",
    "the model reads everything written so far, and once for each new id",
    hint="Hand the whole sequence to the model each time: chapter 11 will make that cheaper, and not different.",
    weight=2,
)
def test_reads(student: Student, check: Check) -> None:
    model = student.fixtures.SumModel(V)
    ids = check.randint(0, V, (2, 3))
    want = ids
    for _ in range(5):
        want = torch.cat([want, want.sum(dim=1, keepdim=True) % V], dim=1)
    check.equal(student.generate(model, ids, 5, temperature=0), want, "each id the sum of all before it, modulo 7")
    check.equal(model.lengths, [3, 4, 5, 6, 7], "lengths of what the model read")


@hidden_test(
    "generate",
    "the settings reach sample_next",
    hint="sample_next(logits, **sampling).",
    weight=2,
)
def test_settings(student: Student, check: Check) -> None:
    model, weight = table(student, check, scale=0.5)
    ids = check.randint(0, V, (400, 1))
    two = weight.topk(2, dim=-1).indices  # of each id's successors the likeliest two
    got = student.generate(model, ids, 3, top_k=2, generator=student.generator(check.integer(0, 2**31)))
    got = check.tensor(got, (400, 4), "400 ids with three more each", torch.int64)
    check.true(int(got.min()) >= 0 and int(got.max()) < V, f"an id that is not among the {V} of the vocabulary")
    for step in range(3):
        allowed = (two[got[:, step]] == got[:, step + 1 : step + 2]).any(dim=1)
        check.true(bool(allowed.all()), f"top_k=2: id {step + 1} of a sequence was not among the two likeliest")
    check.true(len({tuple(row) for row in got.tolist()}) > V, "400 sequences with top_k=2 should not be alike")
    seed = check.integer(0, 2**31)
    pair = [student.generate(model, ids, 3, generator=student.generator(seed)) for _ in range(2)]
    check.equal(pair[0], pair[1], "twice with the same generator's seed")


@hidden_test(
    "generate",
    "nothing new leaves the ids as they are, and the input is never changed",
    hint="Make a longer tensor with torch.cat; the one that came in belongs to the caller.",
)
def test_unchanged(student: Student, check: Check) -> None:
    model, _ = table(student, check)
    ids = check.randint(0, V, (2, 4))
    check.equal(student.generate(model, ids, 0), ids, "no new ids")
    longer = check.tensor(student.generate(model, ids, 3, temperature=0), (2, 7), "four ids with three more")
    check.equal(longer[:, :4], ids, "the first four of seven ids")
    check.true(student.fixtures.unchanged(student.generate, model, ids, 3), "the ids were changed in place")


@hidden_test(
    "generate",
    "no gradient is kept while writing",
    hint="@torch.no_grad(), or with torch.no_grad(): around the loop. Otherwise memory grows with every id.",
    weight=2,
)
def test_no_gradient(student: Student, check: Check) -> None:
    model = student.fixtures.SumModel(V)
    ids = check.randint(0, V, (1, 2))
    longer = check.tensor(student.generate(model, ids, 3, temperature=0), (1, 5), "two ids with three more")
    check.equal(longer[:, :2], ids, "the first two of five ids")
    check.equal(model.with_gradient, [False] * 3, "whether gradients were recorded, in each call of the model")
