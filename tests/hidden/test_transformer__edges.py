"""Hidden tests of chapter 08, continued: the edges of TransformerBlock, Transformer and DecoderBlock."""

from functools import partial
from typing import Any

import torch

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden.test_transformer__decoder_block import decoded
from tests.hidden.transformer_truth import ACTIVATIONS, PLAN, loaded, stream


@hidden_test(
    "TransformerBlock",
    "every activation that a plan can name is used",
    hint="config.activation_function is the function itself; there are more than two.",
)
def test_activations(student: Student, check: Check) -> None:
    for name in ACTIVATIONS:
        block, model = loaded(student, check, "TransformerBlock", activation=name)
        x = stream(check)
        check.close(block(x), model.block(x.double()), f"activation={name!r}")


@hidden_test(
    "TransformerBlock",
    "gradients reach the stream and every parameter of the block",
    hint="No .detach() and no torch.no_grad(). Otherwise at most three fifths of the points are to be had.",
    at_most=0.6,
)
def test_block_gradients(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        block, model = loaded(student, check, "TransformerBlock", placement=placement)
        x, probe = stream(check).requires_grad_(), stream(check)
        (check.tensor(block(x), probe.shape, "the output") * probe).sum().backward()
        y = x.detach().double().requires_grad_()
        leaves = {n: w.clone().requires_grad_() for n, w in model.weights.items()}
        model.weights = leaves
        want = torch.autograd.grad((model.block(y) * probe).sum(), [y, *leaves.values()])
        check.close(x.grad, want[0], "the gradient of the stream", rtol=1e-3, atol=1e-4)
        got = block.grads()
        for n, g in zip(leaves, want[1:], strict=True):
            check.close(got.get(n), g, f"the gradient of {n}", rtol=1e-3, atol=1e-4)


@hidden_test(
    "TransformerBlock",
    "the mask can be given by place",
    hint="forward(x, mask=None, **cache): the mask comes second.",
)
def test_mask_by_place(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "TransformerBlock")
    x, mask = stream(check), torch.ones(5, 5, dtype=torch.bool).tril()
    check.close(block(x, mask), model.block(x.double(), mask), "a causal mask, by place")


@hidden_test(
    "Transformer",
    "the plan is kept as config",
    hint="self.config = config: later chapters read it.",
)
def test_config_kept(student: Student, check: Check) -> None:
    plan = student.fixtures.config(**PLAN)
    whole = student.Transformer(plan)
    check.equal(
        [whole.config.d_model, whole.config.n_layers, whole.config.max_len],
        [8, 2, 9],
        "d_model, n_layers and max_len of model.config",
    )


@hidden_test(
    "Transformer",
    "positions that are not added have no longest sequence",
    hint="Only learned and sinusoidal have max_len rows; none and rope go on.",
)
def test_no_longest(student: Student, check: Check) -> None:
    whole, model = loaded(student, check, "Transformer", positions="rope")
    ids = check.randint(0, 11, (1, 10))
    check.close(whole(ids), model.logits(ids), "10 ids, positions='rope', max_len 9")
    check.close(whole(ids, offset=5), model.logits(ids), "10 ids from position 5")


@hidden_test(
    "Transformer",
    "the message names T and max_len with an offset too",
    hint="T is how many ids came, not how many positions they reach.",
)
def test_message(student: Student, check: Check) -> None:
    for positions in ("sinusoidal", "learned"):
        whole, _ = loaded(student, check, "Transformer", positions=positions)
        ids = check.randint(0, 11, (2, 4))
        check.raises(ValueError, partial(whole, ids, offset=8), f"4 ids from position 8, {positions}", mentions=(4, 9))


@hidden_test(
    "Transformer",
    "the last norm is of the kind and eps that the plan names",
    hint="make it as the norms of the blocks are made.",
)
def test_last_eps(student: Student, check: Check) -> None:
    whole, model = loaded(student, check, "Transformer", norm_eps=0.3)
    ids = check.randint(0, 11, (2, 5))
    check.close(whole(ids), model.logits(ids), "norm_eps=0.3")


@hidden_test(
    "Transformer",
    "gradients reach every parameter of every kind of plan",
    hint="Untied, post-norm, fixed positions: no .detach() on any of these ways.",
    at_most=0.6,
)
def test_plan_gradients(student: Student, check: Check) -> None:
    for plan in ({"tied_embeddings": False, "positions": "sinusoidal"}, {"placement": "post"}):
        whole, model = loaded(student, check, "Transformer", **plan)
        ids, probe = check.randint(0, 11, (2, 5)), check.randn(2, 5, 11)
        (check.tensor(whole(ids), (2, 5, 11), f"the logits, {plan}") * probe).sum().backward()
        leaves = {n: w.clone().requires_grad_() for n, w in model.weights.items()}
        model.weights = leaves
        want = torch.autograd.grad((model.logits(ids) * probe).sum(), list(leaves.values()))
        got = whole.grads()
        for n, g in zip(leaves, want, strict=True):
            check.close(got.get(n), g, f"{plan}: the gradient of {n}", rtol=1e-3, atol=1e-4)


@hidden_test(
    "DecoderBlock",
    "the plan's norm, eps, network and heads are used in the decoder too",
    hint="Each of the three parts is made as in TransformerBlock.",
)
def test_decoder_plan(student: Student, check: Check) -> None:
    plans: list[dict[str, Any]] = [{"norm_eps": 0.4}, {"activation": "relu"}, {"n_heads": 4}, {"d_ff": 3}]
    for plan in [*plans, {"norm": "rmsnorm", "norm_eps": 0.4}]:
        block, model = loaded(student, check, "DecoderBlock", **plan)
        x, source = stream(check, 4), stream(check, 6)
        check.close(block(x, source), decoded(model, x, source), f"{plan}")


@hidden_test(
    "DecoderBlock",
    "both masks work at once, each in its place",
    hint="mask for what is written, source_mask for the source; the gradient of the source flows all the same.",
    weight=2,
)
def test_both_masks(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x, source, mask = stream(check, 5), stream(check, 6).requires_grad_(), torch.ones(5, 5, dtype=torch.bool).tril()
    across = torch.tensor([True, True, False, True, False, True])[None, None, None]
    got = block(x, source, mask, across)
    check.close(got, decoded(model, x, source, mask, across), "a causal mask, and two of six hidden")
    probe = stream(check, 5)
    (got * probe).sum().backward()
    z = source.detach().clone().requires_grad_()
    (want,) = torch.autograd.grad((decoded(model, x, z, mask, across) * probe).sum(), [z])
    check.close(source.grad, want, "the gradient of the source", rtol=1e-3, atol=1e-4)
