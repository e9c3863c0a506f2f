"""Hidden tests of chapter 10, continued: Encoder."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden import transformer_truth
from tests.hidden.transformer_truth import PLAN, Model

D = PLAN["d_model"]


class Reader(Model):
    """The truth in float64: what an encoder's plan and its weights make of ids."""

    def vectors(self, ids: Tensor, tokens: Tensor | None = None) -> Tensor:
        T, w = ids.shape[1], self.weights
        x = w["embedding.weight"][ids]
        if self.get("positions", "learned") == "learned":
            x = x + w["positions.weight"][:T]
        elif self.plan["positions"] == "sinusoidal":
            angles = torch.arange(T).double()[:, None] * 10000.0 ** (-torch.arange(0, D, 2).double() / D)
            x = x + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        post = self.get("placement", "pre") == "post"
        x = self.norm(x, "norm") if post else x
        mask = None if tokens is None else tokens.bool()[:, None, None]
        for layer in range(self.plan["n_layers"]):
            x = self.block(x, mask, f"blocks.{layer}.")
        return x if post else self.norm(x, "norm")


def loaded(student: Student, check: Check, **plan: Any) -> tuple[Any, Reader]:
    """An encoder made by this plan, with known weights large enough that each of them matters; and the truth."""
    plan = {"causal": False, **plan}
    encoder = student.Encoder(student.fixtures.config(**{**PLAN, **plan}))
    state = encoder.state_dict()
    ends = ["norm.weight"] if plan.get("norm") == "rmsnorm" else ["norm.weight", "norm.bias"]
    tied = {**plan, "tied_embeddings": True}
    names = sorted({*transformer_truth.names("Transformer", **tied), *ends})
    what = f"the state dict, {plan}"
    check.equal([name for name in names if name not in state], [], f"names that are not in {what}")
    check.equal([name for name in sorted(state) if name not in names], [], f"names too many in {what}")
    weights = {}
    for name in names:
        value = check.tensor(state[name], transformer_truth.shape(name, **plan), f"{name} in {what}")
        if name.endswith("norm.weight"):
            weights[name] = 1 + check.randn(*value.shape, scale=0.3)
        else:
            weights[name] = check.randn(*value.shape, scale=0.7 if value.ndim == 1 else 1.0 / value.shape[1] ** 0.5)
    encoder.load_state_dict(weights)
    return encoder, Reader(weights, **plan)


def texts(check: Check, B: int = 3, T: int = 7) -> tuple[Tensor, Tensor]:
    """Ids, and a mask that says of each whether it is a token: texts of different lengths."""
    tokens = torch.zeros(B, T, dtype=torch.bool)
    for row, length in enumerate(check.shuffled(range(1, T + 1))[:B]):
        tokens[row, :length] = True
    ids = check.randint(0, 11, (B, T))
    ids[:, 0] = 0  # a token like any other: padding is what the mask says
    return ids, tokens


@hidden_test(
    "Encoder",
    "its parts have the names of the contract, and no more than the plan needs",
    hint="embedding, positions (only where learned), blocks and norm; no lm_head, and no parameter for a fixed table.",
    weight=2,
)
def test_names(student: Student, check: Check) -> None:
    for plan in ({}, {"positions": "sinusoidal", "placement": "post"}, {"tied_embeddings": False}, {"norm": "rmsnorm"}):
        encoder, truth = loaded(student, check, **plan)
        ids = check.randint(0, 11, (2, 4))
        check.close(encoder(ids), truth.vectors(ids), f"the vectors, {plan or 'the standard plan'}")


@hidden_test(
    "Encoder",
    "the vectors are those of embedding, positions and blocks, one for each token",
    hint="One step after the other; the result is (B, T, D), no scores.",
    weight=3,
)
def test_vectors(student: Student, check: Check) -> None:
    for B, T in ((2, 7), (1, 1), (3, 9)):
        encoder, truth = loaded(student, check)
        ids = check.randint(0, 11, (B, T))
        check.close(encoder(ids), truth.vectors(ids), f"{B} texts of {T} ids")
    for plan in ({"vocab_size": 13, "max_len": 5}, {"n_heads": 4, "d_ff": 6, "bias": False}, {"activation": "relu"}):
        encoder, truth = loaded(student, check, **plan)
        ids = check.randint(0, 11, (2, 5))
        check.close(encoder(ids), truth.vectors(ids), f"{plan}")


@hidden_test(
    "Encoder",
    "the norm stands on the embeddings for post, and on the last block's output for pre",
    hint="A post-norm block ends in a norm, so the start has none; a pre-norm stream is never normed as a whole. "
    "Kind and eps are the plan's.",
    weight=3,
)
def test_norm(student: Student, check: Check) -> None:
    pairs = [
        {"placement": place, **more}
        for place in ("pre", "post")
        for more in ({}, {"norm": "rmsnorm"}, {"norm_eps": 0.4})
    ]
    for plan in check.shuffled(pairs):
        encoder, truth = loaded(student, check, **plan)
        ids = check.randint(0, 11, (2, 5))
        check.close(encoder(ids), truth.vectors(ids), f"{plan}")


@hidden_test(
    "Encoder",
    "every token sees both sides",
    hint="No causal mask: without padding, blocks get no mask at all.",
    weight=3,
    at_most=0.6,
)
def test_both_sides(student: Student, check: Check) -> None:
    encoder, truth = loaded(student, check)
    ids = check.randint(0, 11, (2, 6))
    for place in (0, 5):
        other = ids.clone()
        other[:, place] = (ids[:, place] + 1 + check.randint(0, 9, (2,))) % 11
        got, before = encoder(other), encoder(ids)
        check.close(got, truth.vectors(other), f"id {place} changed")
        still = [t for t in range(6) if torch.equal(got[:, t], before[:, t])]
        check.equal(still, [], f"id {place} of 6 changed: positions whose vectors did not move")


@hidden_test(
    "Encoder",
    "no token attends to padding, wherever it stands",
    hint="The mask hides keys, the same ones from all queries and heads: (B, 1, 1, T), handed to every block.",
    weight=3,
    at_most=0.6,
)
def test_padding(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        encoder, truth = loaded(student, check, placement=placement)
        ids, tokens = texts(check)
        anywhere = check.randint(0, 2, (3, 7)).bool()
        anywhere[:, 3] = True
        for name, mask in (("at the end", tokens), ("anywhere", anywhere)):
            what = f"placement={placement!r}, padding {name}"
            got = check.tensor(encoder(ids, mask), (3, 7, D), what)
            check.close(got[mask], truth.vectors(ids, mask)[mask], f"{what}: the tokens' vectors")
            other = torch.where(mask, ids, (ids + 1 + check.randint(0, 9, (3, 7))) % 11)
            again = check.tensor(encoder(other, attention_mask=mask), (3, 7, D), what)
            check.close(again[mask], truth.vectors(ids, mask)[mask], f"{what}, filled with other ids")


@hidden_test(
    "Encoder",
    "a text gets the same vectors alone and padded among longer ones",
    hint="Its positions count from 0 and its padding is hidden, so its company changes nothing.",
    weight=2,
)
def test_company(student: Student, check: Check) -> None:
    encoder, truth = loaded(student, check, placement="post")
    ids, tokens = texts(check, 4, 9)
    got = check.tensor(encoder(ids, tokens), (4, 9, D), "four texts")
    for row, length in enumerate(tokens.sum(1).tolist()):
        alone = ids[row : row + 1, :length]
        check.close(encoder(alone), truth.vectors(alone), f"a text of {length} tokens, alone")
        check.close(got[row : row + 1, :length], truth.vectors(alone), f"a text of {length} tokens, padded to 9")


@hidden_test(
    "Encoder",
    "the attention mask may be boolean or numbers; None hides nothing",
    hint=".bool() turns 1 and 0 into True and False; your attention takes nothing else.",
)
def test_kinds(student: Student, check: Check) -> None:
    encoder, truth = loaded(student, check)
    ids, tokens = texts(check)
    for dtype in (torch.bool, torch.int64, torch.float32):
        got = check.tensor(encoder(ids, attention_mask=tokens.to(dtype)), (3, 7, D), f"a mask of {dtype}")
        check.close(got[tokens], truth.vectors(ids, tokens)[tokens], f"a mask of {dtype}: the tokens' vectors")
    check.close(encoder(ids, None), truth.vectors(ids), "None")
    check.close(encoder(ids, torch.ones(3, 7, dtype=torch.int64)), truth.vectors(ids), "all ones")


@hidden_test(
    "Encoder",
    "a text that is all padding gives no NaN and leaves the others alone",
    hint="Your attention of chapter 02 gives zeros to a query that may attend to nothing. Keep the mask boolean.",
)
def test_all_padding(student: Student, check: Check) -> None:
    encoder, truth = loaded(student, check)
    ids, tokens = texts(check, 3, 5)
    tokens[1] = False
    got = check.tensor(encoder(ids, tokens), (3, 5, D), "three texts, the second all padding")
    check.true(bool(got.isfinite().all()), "the second of three texts is all padding: its vectors are not finite")
    check.close(got[tokens], truth.vectors(ids, tokens)[tokens], "the other texts")


@hidden_test(
    "Encoder",
    "positions are added once, of the kind that the plan names",
    hint="learned: LearnedPositionalEncoding; sinusoidal: the fixed table; none: nothing. Before norm and blocks.",
    weight=2,
)
def test_positions(student: Student, check: Check) -> None:
    for positions in check.shuffled(["none", "sinusoidal", "learned"]):
        for placement in ("pre", "post"):
            encoder, truth = loaded(student, check, positions=positions, placement=placement)
            ids = check.randint(0, 11, (2, 6))
            check.close(encoder(ids), truth.vectors(ids), f"positions={positions!r}, placement={placement!r}")


@hidden_test(
    "Encoder",
    "every block has weights of its own",
    hint="Make n_layers blocks in a loop: [block] * n_layers is the same block many times.",
)
def test_blocks(student: Student, check: Check) -> None:
    for n_layers in (1, 3):
        encoder, truth = loaded(student, check, n_layers=n_layers)
        ids, tokens = texts(check)
        got = check.tensor(encoder(ids, tokens), (3, 7, D), f"{n_layers} blocks")
        check.close(got[tokens], truth.vectors(ids, tokens)[tokens], f"{n_layers} blocks with different weights")


@hidden_test(
    "Encoder",
    "a causal plan is a ValueError that names the field",
    hint="Raise in __init__ where config.causal is true, and say 'causal' in the message.",
)
def test_causal_plan(student: Student, check: Check) -> None:
    plan = student.fixtures.config(**{**PLAN, "causal": True})
    check.raises(ValueError, partial(student.Encoder, plan), "Config(causal=True)", mentions=("causal",))
    encoder, truth = loaded(student, check)
    ids = check.randint(0, 11, (1, 3))
    check.close(encoder(ids), truth.vectors(ids), "causal=False")


@hidden_test(
    "Encoder",
    "a text longer than the positions is a ValueError that names both lengths",
    hint="For the fixed table too: a slice past its end is shorter. Without positions any length goes.",
)
def test_too_long(student: Student, check: Check) -> None:
    ids = check.randint(0, 11, (1, 10))
    for positions in ("sinusoidal", "learned"):
        encoder, _ = loaded(student, check, positions=positions)
        check.raises(ValueError, partial(encoder, ids), f"10 ids, max_len 9, {positions}", mentions=(10, 9))
    encoder, _ = loaded(student, check, positions="sinusoidal", max_len=1)
    check.raises(ValueError, partial(encoder, ids), "10 ids, max_len 1, sinusoidal", mentions=(10, 1))
    encoder, truth = loaded(student, check, positions="none")
    check.close(encoder(ids), truth.vectors(ids), "10 ids, no positions")


@hidden_test(
    "Encoder",
    "it works in float64 where its parameters are float64",
    hint="Name no dtype in the methods: it follows from the parameters. A fixed table in a buffer goes along.",
)
def test_dtype(student: Student, check: Check) -> None:
    for positions in ("learned", "sinusoidal"):
        encoder, truth = loaded(student, check, positions=positions)
        encoder.to(torch.float64)
        ids, tokens = texts(check)
        got = check.tensor(encoder(ids, tokens), (3, 7, D), f"float64, {positions}", torch.float64)
        # A fixed table was rounded to float32 before it was brought to float64.
        check.close(got[tokens], truth.vectors(ids, tokens)[tokens], f"float64, {positions}", rtol=1e-5, atol=1e-6)


@hidden_test(
    "Encoder",
    "gradients reach every parameter",
    hint="A .detach(), .data or a list in place of nn.ModuleList leaves parts that never learn.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        encoder, truth = loaded(student, check, placement=placement)
        ids, tokens = texts(check)
        probe = check.randn(3, 7, D) * tokens[..., None]
        output = check.tensor(encoder(ids, tokens), (3, 7, D), placement)
        check.true(output.requires_grad, "no gradient flows from the output back")
        (output * probe).sum().backward()
        leaves = {name: weight.clone().requires_grad_() for name, weight in truth.weights.items()}
        truth.weights = leaves
        want = torch.autograd.grad((truth.vectors(ids, tokens) * probe).sum(), list(leaves.values()))
        got = encoder.grads()
        for name, gradient in zip(leaves, want, strict=True):
            check.close(got.get(name), gradient, f"{placement}: the gradient of {name}", rtol=1e-3, atol=1e-4)
