"""Hidden tests of chapter 08: TransformerBlock and Transformer."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden.transformer_truth import MAPS, PLAN, Model, loaded, stream

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
    x = stream(check)
    block, model = loaded(student, check, "TransformerBlock")
    check.close(block(x), model.block(x.double()), "parts of its own")
    plan = student.fixtures.config(**PLAN)
    block = student.TransformerBlock(plan, student.fixtures.Times(2.0), student.fixtures.Times(-3.0))
    y = x.double()
    y = y + 2 * F.layer_norm(y, y.shape[-1:])
    want = y - 3 * F.layer_norm(y, y.shape[-1:])
    check.close(block(x), want, "attention doubles and the network takes -3 times, each of a normed stream")


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
    wide = {"feed_forward": "swiglu", "d_ff": None}
    for plan in (
        {"feed_forward": "swiglu"},
        {"activation": "relu"},
        {"d_ff": 3},
        {"bias": False},
        {"d_ff": None},
        wide,
    ):
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
    sizes = {"tied_embeddings": False, "vocab_size": 13, "max_len": 7}
    fixed = {"positions": "sinusoidal", "rope_base": 500.0}
    for plan in ({}, {"tied_embeddings": False, "placement": "post"}, fixed, {"n_layers": 1}, sizes):
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


@hidden_test(
    "Transformer",
    "with an offset, positions start there",
    hint="The first of the T tokens stands at position offset: rows offset to offset + T - 1, of the learned table and "
    "of the fixed one. The check of the length counts from there too.",
)
def test_offset(student: Student, check: Check) -> None:
    for positions in check.shuffled(["none", "sinusoidal", "learned"]):
        whole, model = loaded(student, check, "Transformer", positions=positions)
        for T, offset in ((4, 3), (1, 8)):
            ids = check.randint(0, 11, (2, T))
            got = whole(ids, offset=offset)
            check.close(got, model.logits(ids, offset), f"positions={positions!r}, {T} ids from position {offset}")
        if positions != "none":
            ids = check.randint(0, 11, (2, 4))
            check.raises(ValueError, partial(whole, ids, offset=6), "4 ids from position 6, max_len 9", mentions=(9,))


@hidden_test(
    "Transformer",
    "further keywords reach every block, and positions of another kind add nothing",
    hint="block(x, mask=mask, **cache). Ask for 'learned' and for 'sinusoidal' by name: any other kind is added "
    "elsewhere.",
)
def test_keywords(student: Student, check: Check) -> None:
    whole, model = loaded(student, check, "Transformer", positions="none")
    ids, attend = check.randint(0, 11, (2, 5)), student.fixtures.Attend(1.0)
    check.close(whole(ids, attend=attend), model.logits(ids), "an attend that is torch's own")
    check.equal(len(attend.shapes), PLAN["n_layers"], "calls of attend, one for each block")
    whole, model = loaded(student, check, "Transformer", positions="rope")
    check.close(whole(ids), model.logits(ids), "positions='rope', which later chapters add")
