"""Hidden tests of chapter 08: TransformerBlock, Transformer and DecoderBlock."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

PLAN: dict[str, Any] = {"vocab_size": 11, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 10, "max_len": 9}
MAPS = ("q_proj", "k_proj", "v_proj", "o_proj")
Weights = dict[str, Tensor]


class Model:
    """The truth, in float64: what a plan and its weights make of a stream."""

    def __init__(self, weights: Weights, **plan: Any) -> None:
        self.weights = {name: weight.double() for name, weight in weights.items()}
        self.plan = {**PLAN, **plan}

    def get(self, key: str, default: Any) -> Any:
        return self.plan.get(key, default)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight, eps = self.weights[name + ".weight"], self.get("norm_eps", 1e-5)
        if self.get("norm", "layernorm") == "rmsnorm":
            return F.rms_norm(x, x.shape[-1:], weight, eps)
        return F.layer_norm(x, x.shape[-1:], weight, self.weights[name + ".bias"], eps)

    def attention(self, x: Tensor, name: str, mask: Tensor | None, context: Tensor | None = None) -> Tensor:
        source, H = x if context is None else context, self.plan["n_heads"]
        q, k, v = (
            self.linear(y, f"{name}.{part}").unflatten(-1, (H, -1)).transpose(1, 2)
            for part, y in (("q_proj", x), ("k_proj", source), ("v_proj", source))
        )
        return self.linear(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2), name + ".o_proj")

    def network(self, x: Tensor, name: str) -> Tensor:
        up = self.linear(x, name + ".up_proj")
        if self.get("feed_forward", "mlp") == "swiglu":
            return self.linear(F.silu(self.linear(x, name + ".gate_proj")) * up, name + ".down_proj")
        switch: Any = {"gelu": F.gelu, "relu": F.relu}[self.get("activation", "gelu")]
        return self.linear(switch(up), name + ".down_proj")

    def residual(self, x: Tensor, name: str, sublayer: Any) -> Tensor:
        if self.get("placement", "pre") == "pre":
            return x + sublayer(self.norm(x, name + ".norm"))
        return self.norm(x + sublayer(x), name + ".norm")

    def block(self, x: Tensor, mask: Tensor | None = None, at: str = "") -> Tensor:
        name = at + "attention"
        x = self.residual(x, name, lambda y: self.attention(y, name + ".sublayer", mask))
        other = at + "feed_forward"
        return self.residual(x, other, lambda y: self.network(y, other + ".sublayer"))

    def logits(self, ids: Tensor) -> Tensor:
        T, D, w = ids.shape[1], self.plan["d_model"], self.weights
        x = w["embedding.weight"][ids]
        if self.get("positions", "learned") == "learned":
            x = x + w["positions.weight"][:T]
        elif self.plan["positions"] == "sinusoidal":
            angles = torch.arange(T).double()[:, None] * 10000.0 ** (-torch.arange(0, D, 2).double() / D)
            x = x + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        mask = torch.ones(T, T, dtype=torch.bool).tril() if self.get("causal", True) else None
        for layer in range(self.plan["n_layers"]):
            x = self.block(x, mask, f"blocks.{layer}.")
        if self.get("placement", "pre") == "pre":
            x = self.norm(x, "norm")
        return F.linear(x, w["lm_head.weight"] if "lm_head.weight" in w else w["embedding.weight"])


def residual_names(at: str, inner: list[str], rms: bool = False) -> list[str]:
    return [f"{at}.sublayer.{name}" for name in inner] + [f"{at}.norm.weight"] + ([] if rms else [f"{at}.norm.bias"])


def names(kind: str, **plan: Any) -> list[str]:
    """The names in the state dict of a part, by the plan."""
    bias, rms, gated = plan.get("bias", True), plan.get("norm") == "rmsnorm", plan.get("feed_forward") == "swiglu"
    ends = ("weight", "bias") if bias else ("weight",)
    maps = [f"{name}.{end}" for name in MAPS for end in ends]
    inner = [f"{name}.{end}" for name in ("up_proj", "down_proj") for end in ends]
    if gated:
        inner = ["gate_proj.weight", "up_proj.weight", "down_proj.weight"]
    block = residual_names("attention", maps, rms) + residual_names("feed_forward", inner, rms)
    if kind == "DecoderBlock":
        block += residual_names("cross_attention", maps, rms)
    if kind != "Transformer":
        return sorted(block)
    whole = [f"blocks.{i}.{name}" for i in range(plan.get("n_layers", PLAN["n_layers"])) for name in block]
    whole += ["embedding.weight"]
    if plan.get("positions", "learned") == "learned":
        whole += ["positions.weight"]
    if plan.get("placement", "pre") == "pre":
        whole += ["norm.weight"] if rms else ["norm.weight", "norm.bias"]
    return sorted(whole + ([] if plan.get("tied_embeddings", True) else ["lm_head.weight"]))


def loaded(student: Student, check: Check, kind: str, **plan: Any) -> tuple[Any, Model]:
    """A part made by this plan, with known weights large enough that each of them matters; and the truth."""
    part = getattr(student, kind)(student.fixtures.config(**{**PLAN, **plan}))
    state = part.state_dict()
    check.equal(sorted(state), names(kind, **plan), f"names in the state dict of {kind}, {plan or 'the standard plan'}")
    weights = {}
    for name, value in state.items():
        if name.endswith("norm.weight"):
            weights[name] = 1 + check.randn(*value.shape, scale=0.3)
        else:
            weights[name] = check.randn(*value.shape, scale=0.7 if value.ndim == 1 else 1.0 / value.shape[1] ** 0.5)
    part.load_state_dict(weights)
    return part, Model(weights, **plan)


def stream(check: Check, T: int = 5) -> Tensor:
    return check.randn(2, T, PLAN["d_model"])


# TransformerBlock


@hidden_test(
    "TransformerBlock",
    "its parts are attention and feed_forward, each a Residual with a norm of its own",
    hint="self.attention = Residual(MultiHeadAttention(...), norm, placement), and the same for self.feed_forward "
    "with another norm.",
    weight=2,
)
def test_block_names(student: Student, check: Check) -> None:
    for plan in ({}, {"bias": False}, {"norm": "rmsnorm", "feed_forward": "swiglu"}):
        block, model = loaded(student, check, "TransformerBlock", **plan)
        x = stream(check)
        check.close(block(x), model.block(x.double()), f"the output, {plan or 'the standard plan'}")


@hidden_test(
    "TransformerBlock",
    "pre and post equal torch.nn.TransformerEncoderLayer on the same weights",
    hint="Attention, then the network, each inside Residual with config.placement.",
    weight=3,
)
def test_block_torch(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        block, model = loaded(student, check, "TransformerBlock", placement=placement, activation="relu")
        w, D = model.weights, PLAN["d_model"]
        theirs = nn.TransformerEncoderLayer(
            D, PLAN["n_heads"], PLAN["d_ff"], 0.0, batch_first=True, norm_first=placement == "pre", dtype=torch.float64
        )
        mine = {"self_attn.out_proj": "attention.sublayer.o_proj", "linear1": "feed_forward.sublayer.up_proj"}
        mine |= {"linear2": "feed_forward.sublayer.down_proj", "norm1": "attention.norm", "norm2": "feed_forward.norm"}
        state = {f"{a}.{end}": w[f"{b}.{end}"] for a, b in mine.items() for end in ("weight", "bias")}
        for end in ("weight", "bias"):
            state[f"self_attn.in_proj_{end}"] = torch.cat([w[f"attention.sublayer.{m}.{end}"] for m in MAPS[:3]])
        theirs.load_state_dict(state)
        x = stream(check)
        check.close(block(x), theirs(x.double()), f"placement={placement!r}")


@hidden_test(
    "TransformerBlock",
    "the feed-forward network works on what attention has added",
    hint="x = self.attention(x, ...), then self.feed_forward(x): one after the other, attention first.",
    weight=2,
)
def test_block_order(student: Student, check: Check) -> None:
    plan = student.fixtures.config(**PLAN)
    block = student.TransformerBlock(plan, student.fixtures.Times(2.0), student.fixtures.Times(-3.0))
    x = stream(check)
    y = x.double()
    y = y + 2 * F.layer_norm(y, y.shape[-1:])
    want = y - 3 * F.layer_norm(y, y.shape[-1:])
    check.close(block(x), want, "attention doubles and the network takes -3 times, each of a normed stream")
    block, model = loaded(student, check, "TransformerBlock")
    check.close(block(x), model.block(x.double()), "parts of its own")


@hidden_test(
    "TransformerBlock",
    "modules handed in take the places of attention and feed-forward network",
    hint="Build the standard part only where None came.",
)
def test_block_parts(student: Student, check: Check) -> None:
    plan, x = student.fixtures.config(**{**PLAN, "placement": "post"}), stream(check)
    block = student.TransformerBlock(
        plan, feed_forward=student.fixtures.Times(0.5), attention=student.fixtures.Times(4.0)
    )
    shape = x.shape[-1:]
    check.close(block(x), F.layer_norm(1.5 * F.layer_norm(5 * x.double(), shape), shape), "both handed in, post-norm")
    check.equal(
        sorted(block.state_dict()),
        sorted(f"{p}.norm.{e}" for p in ("attention", "feed_forward") for e in ("weight", "bias")),
        "names then",
    )


@hidden_test(
    "TransformerBlock",
    "the mask reaches attention",
    hint="self.attention(x, mask=mask, **cache). Otherwise at most three fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_block_mask(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "TransformerBlock")
    x, mask = stream(check), torch.ones(5, 5, dtype=torch.bool).tril()
    check.close(block(x, mask=mask), model.block(x.double(), mask), "a causal mask")
    check.close(block(x), model.block(x.double()), "no mask")


@hidden_test(
    "TransformerBlock",
    "further keywords reach attention, and attention alone",
    hint="**cache goes to the attention part; the feed-forward network takes one tensor.",
)
def test_block_kwargs(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "TransformerBlock")
    x = stream(check)
    doubled = Model(
        {**model.weights, "attention.sublayer.o_proj.weight": 2 * model.weights["attention.sublayer.o_proj.weight"]}
    )
    check.close(block(x, attend=student.fixtures.Attend(2.0)), doubled.block(x.double()), "an attend that doubles")
    attention, network = student.fixtures.Times(1.0), student.fixtures.Times(1.0)
    student.TransformerBlock(student.fixtures.config(**PLAN), attention, network)(x, cache=None)
    check.equal(
        (attention.seen, network.seen), ([["cache", "mask"]], [[]]), "keywords seen by attention and by the network"
    )


@hidden_test(
    "TransformerBlock",
    "the plan's norm, its eps and the heads are used",
    hint="Both norms by config.norm with eps=config.norm_eps; attention with config.n_heads.",
    weight=2,
)
def test_block_plan(student: Student, check: Check) -> None:
    for plan in ({"norm": "rmsnorm"}, {"norm_eps": 0.4}, {"n_heads": 4}, {"norm": "rmsnorm", "norm_eps": 0.4}):
        block, model = loaded(student, check, "TransformerBlock", **plan)
        x = stream(check)
        check.close(block(x), model.block(x.double()), f"{plan}")


@hidden_test(
    "TransformerBlock",
    "the plan's network is used: kind, width, activation and bias",
    hint="config.feed_forward says which; config.ff_width and config.activation_function are ready to use.",
    weight=2,
)
def test_block_network(student: Student, check: Check) -> None:
    for plan in ({"feed_forward": "swiglu"}, {"activation": "relu"}, {"d_ff": 3}, {"bias": False}, {"d_ff": None}):
        block, model = loaded(student, check, "TransformerBlock", **plan)
        x = stream(check)
        check.close(block(x), model.block(x.double()), f"{plan}")


# Transformer


@hidden_test(
    "Transformer",
    "its parts have the names of the contract, and no more than the plan needs",
    hint="embedding, positions (only where learned), blocks, norm (with parameters only for pre), lm_head (only where "
    "the embeddings are not tied).",
    weight=2,
)
def test_names(student: Student, check: Check) -> None:
    for plan in ({}, {"tied_embeddings": False, "placement": "post"}, {"positions": "sinusoidal"}, {"n_layers": 1}):
        whole, model = loaded(student, check, "Transformer", **plan)
        ids = check.randint(0, 11, (2, 4))
        check.close(whole(ids), model.logits(ids), f"the logits, {plan or 'the standard plan'}")


@hidden_test(
    "Transformer",
    "the logits are those of embedding, positions, blocks, norm and unembedding, in this order",
    hint="One step after the other, and the same table at both ends where the embeddings are tied.",
    weight=3,
)
def test_logits(student: Student, check: Check) -> None:
    for B, T in ((2, 7), (1, 1), (3, 9)):
        whole, model = loaded(student, check, "Transformer")
        ids = check.randint(0, 11, (B, T))
        check.close(whole(ids), model.logits(ids), f"{B} sequences of {T} ids")


@hidden_test(
    "Transformer",
    "every block has weights of its own",
    hint="Make n_layers blocks in a loop: [block] * n_layers is the same block many times.",
    weight=2,
)
def test_blocks(student: Student, check: Check) -> None:
    whole, model = loaded(student, check, "Transformer", n_layers=3)
    ids = check.randint(0, 11, (2, 5))
    check.close(whole(ids), model.logits(ids), "three blocks with different weights")


@hidden_test(
    "Transformer",
    "causal: no position's logits depend on later ids; otherwise they do",
    hint="Hand causal_mask(T) to every block where config.causal, and no mask where not.",
    weight=3,
    at_most=0.6,
)
def test_causal(student: Student, check: Check) -> None:
    ids = check.randint(0, 11, (2, 6))
    later = ids.clone()
    later[:, 4:] = (ids[:, 4:] + 1 + check.randint(0, 9, (2, 2))) % 11
    for causal in (True, False):
        whole, model = loaded(student, check, "Transformer", causal=causal)
        check.close(whole(ids), model.logits(ids), f"causal={causal}")
        check.close(whole(later), model.logits(later), f"causal={causal}, the last two ids changed")
        if causal:
            check.close(whole(later)[:, :4], whole(ids)[:, :4], "the last two ids changed: logits before them")


@hidden_test(
    "Transformer",
    "positions are added once, of the kind that the plan names",
    hint="learned: LearnedPositionalEncoding; sinusoidal: the fixed table; none: nothing. Before the first block only.",
    weight=2,
)
def test_positions(student: Student, check: Check) -> None:
    for positions in check.shuffled(["none", "sinusoidal", "learned"]):
        whole, model = loaded(student, check, "Transformer", positions=positions)
        ids = check.randint(0, 11, (2, 6))
        check.close(whole(ids), model.logits(ids), f"positions={positions!r}")


@hidden_test(
    "Transformer",
    "a last norm for pre, none for post",
    hint="A pre-norm stream has never been normed as a whole; a post-norm block ends in a norm.",
)
def test_last_norm(student: Student, check: Check) -> None:
    for plan in ({"placement": "pre"}, {"placement": "post"}, {"norm": "rmsnorm", "norm_eps": 0.3}):
        whole, model = loaded(student, check, "Transformer", **plan)
        ids = check.randint(0, 11, (2, 5))
        check.close(whole(ids), model.logits(ids), f"{plan}")


@hidden_test(
    "Transformer",
    "tied embeddings share one table; otherwise lm_head scores",
    hint="self.embedding.unembed(x) where tied, self.lm_head(x) where not.",
)
def test_tied(student: Student, check: Check) -> None:
    for tied in (True, False):
        whole, model = loaded(student, check, "Transformer", tied_embeddings=tied)
        ids = check.randint(0, 11, (2, 5))
        check.close(whole(ids), model.logits(ids), f"tied_embeddings={tied}")


@hidden_test(
    "Transformer",
    "a sequence longer than the positions is a ValueError that names both lengths",
    hint="For the fixed table too: a slice past its end is shorter, without an error. Without positions any"
    " length goes.",
)
def test_too_long(student: Student, check: Check) -> None:
    ids = check.randint(0, 11, (1, 10))
    for positions in ("sinusoidal", "learned"):
        whole, _ = loaded(student, check, "Transformer", positions=positions)
        check.raises(ValueError, partial(whole, ids), f"10 ids, max_len 9, {positions}", mentions=(10, 9))
    whole, model = loaded(student, check, "Transformer", positions="none")
    check.close(whole(ids), model.logits(ids), "10 ids, no positions")


@hidden_test(
    "Transformer",
    "gradients reach every parameter",
    hint="A .detach(), .data or a list in place of nn.ModuleList leaves parts that never learn.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    whole, model = loaded(student, check, "Transformer")
    ids, probe = check.randint(0, 11, (2, 5)), check.randn(2, 5, 11)
    (whole(ids) * probe).sum().backward()
    leaves = {name: weight.clone().requires_grad_() for name, weight in model.weights.items()}
    model.weights = leaves
    want = torch.autograd.grad((model.logits(ids) * probe).sum(), list(leaves.values()))
    got = whole.grads()
    for name, gradient in zip(leaves, want, strict=True):
        check.close(got.get(name), gradient, f"the gradient of {name}", rtol=1e-3, atol=1e-4)


# DecoderBlock


def decoded(
    model: Model, x: Tensor, source: Tensor, mask: Tensor | None = None, across: Tensor | None = None
) -> Tensor:
    """The decoder's block in float64."""
    source = source.double()
    x = model.residual(x.double(), "attention", lambda y: model.attention(y, "attention.sublayer", mask))
    name = "cross_attention"
    x = model.residual(x, name, lambda y: model.attention(y, name + ".sublayer", across, source))
    return model.residual(x, "feed_forward", lambda y: model.network(y, "feed_forward.sublayer"))


@hidden_test(
    "DecoderBlock",
    "its parts are attention, cross_attention and feed_forward, each a Residual",
    hint="Three times Residual(sublayer, norm, config.placement), with a norm of its own each.",
    weight=2,
)
def test_decoder_names(student: Student, check: Check) -> None:
    for plan in ({}, {"bias": False, "norm": "rmsnorm"}, {"feed_forward": "swiglu", "n_heads": 4}):
        block, model = loaded(student, check, "DecoderBlock", **plan)
        x, source = stream(check, 4), stream(check, 7)
        check.close(block(x, source), decoded(model, x, source), f"the output, {plan or 'the standard plan'}")


@hidden_test(
    "DecoderBlock",
    "the output is that of self-attention, cross-attention and network, in this order",
    hint="x = self.attention(...), x = self.cross_attention(x, context=source, ...), then self.feed_forward(x).",
    weight=3,
)
def test_decoder(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        block, model = loaded(student, check, "DecoderBlock", placement=placement)
        x, source = stream(check, 5), stream(check, 3)
        check.close(block(x, source), decoded(model, x, source), f"placement={placement!r}")


@hidden_test(
    "DecoderBlock",
    "queries come from what is written, keys and values from the source",
    hint="The source is the context of cross_attention, as it came: not normed, and never asked.",
    weight=2,
)
def test_decoder_source(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x = stream(check, 4)
    for S in (1, 4, 6):
        source = 3 * stream(check, S) + 1
        check.close(block(x, source), decoded(model, x, source), f"4 tokens written, {S} in the source")


@hidden_test(
    "DecoderBlock",
    "the mask is for self-attention, not for cross-attention",
    hint="What is written may see all of the source, and only its own past.",
    weight=2,
    at_most=0.6,
)
def test_decoder_mask(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x, source, mask = stream(check, 5), stream(check, 5), torch.ones(5, 5, dtype=torch.bool).tril()
    check.close(block(x, source, mask), decoded(model, x, source, mask), "a causal mask, 5 tokens and 5 in the source")
    source = stream(check, 7)
    check.close(block(x, source, mask=mask), decoded(model, x, source, mask), "a causal mask, 7 in the source")


@hidden_test(
    "DecoderBlock",
    "the source's mask is for cross-attention",
    hint="source_mask hides padding of the source; self-attention does not see the source at all.",
)
def test_decoder_source_mask(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x, source = stream(check, 4), stream(check, 6)
    across = torch.tensor([True, True, False, True, False, True])[None, None, None]
    check.close(block(x, source, source_mask=across), decoded(model, x, source, None, across), "two of six hidden")


@hidden_test(
    "DecoderBlock",
    "gradients reach the stream and the source",
    hint="The encoder learns through the source: do not detach it. Otherwise at most three fifths of the points.",
    at_most=0.6,
)
def test_decoder_gradients(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x, source, probe = stream(check, 4).requires_grad_(), stream(check, 6).requires_grad_(), stream(check, 4)
    (block(x, source) * probe).sum().backward()
    y, z = x.detach().clone().requires_grad_(), source.detach().clone().requires_grad_()
    want = torch.autograd.grad((decoded(model, y, z) * probe).sum(), [y, z])
    check.close(x.grad, want[0], "the gradient of the stream", rtol=1e-3)
    check.close(source.grad, want[1], "the gradient of the source", rtol=1e-3)
