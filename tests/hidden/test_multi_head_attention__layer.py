"""Hidden tests of chapter 03, the third exercise: MultiHeadAttention."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

MAPS = ("q_proj", "k_proj", "v_proj", "o_proj")


def loaded(
    student: Student, check: Check, D: int, H: int, bias: bool = False, dtype: torch.dtype = torch.float32
) -> tuple[Any, dict[str, Tensor]]:
    """A layer with known matrices, large enough that every one of them matters."""
    layer = student.MultiHeadAttention(D, H, bias=bias)
    layer.to(dtype)
    weights = {f"{name}.weight": check.randn(D, D, dtype=dtype, scale=1.3 / D**0.5) for name in MAPS}
    if bias:
        weights |= {f"{name}.bias": check.randn(D, dtype=dtype) for name in MAPS}
    layer.load_state_dict(weights)
    return layer, weights


def truth(
    x: Tensor, weights: dict[str, Tensor], H: int, mask: Tensor | None = None, context: Tensor | None = None
) -> Tensor:
    """The layer in float64, by torch's own operator on each head's columns."""
    z = x if context is None else context

    def project(name: str, y: Tensor) -> Tensor:
        bias = weights.get(f"{name}.bias")
        return F.linear(y.double(), weights[f"{name}.weight"].double(), None if bias is None else bias.double())

    q, k, v = project("q_proj", x), project("k_proj", z), project("v_proj", z)
    d = x.shape[-1] // H
    heads = []
    for h in range(H):
        columns = slice(h * d, (h + 1) * d)
        own = mask if mask is None or mask.ndim < 4 else mask[:, h % mask.shape[1]]
        heads.append(F.scaled_dot_product_attention(q[..., columns], k[..., columns], v[..., columns], attn_mask=own))
    return project("o_proj", torch.cat(heads, dim=-1))


@hidden_test(
    "MultiHeadAttention",
    "its parameters are q_proj, k_proj, v_proj and o_proj, each D by D, with biases only if asked for",
    hint="Four nn.Linear(d_model, d_model, bias=bias) under these names. The heads share D; they do not multiply it.",
    weight=2,
)
def test_parameters(student: Student, check: Check) -> None:
    for D, H in ((6, 2), (15, 5)):
        state = student.MultiHeadAttention(D, H).state_dict()
        check.equal(sorted(state), sorted(f"{name}.weight" for name in MAPS), f"names, D={D}, H={H}, no bias")
        for name, weight in state.items():
            check.tensor(weight, (D, D), f"{name} of MultiHeadAttention({D}, {H})", torch.float32)
    state = student.MultiHeadAttention(d_model=6, n_heads=3, bias=True).state_dict()
    check.equal(sorted(state), sorted(f"{n}.{p}" for n in MAPS for p in ("weight", "bias")), "names with bias=True")
    check.true(len({tuple(state[f"{name}.weight"].flatten().tolist()) for name in MAPS}) == 4, "two maps start equal")


@hidden_test(
    "MultiHeadAttention",
    "the output equals torch.nn.MultiheadAttention on the same weights",
    hint="Project, split into heads, attend in each head, merge, mix by o_proj: in this order.",
    weight=3,
)
def test_torch(student: Student, check: Check) -> None:
    for D, H, bias in ((12, 3, False), (10, 5, True), (14, 2, True)):
        layer, weights = loaded(student, check, D, H, bias)
        theirs = nn.MultiheadAttention(D, H, bias=bias, batch_first=True, dtype=torch.float64)
        state = {"in_proj_weight": torch.cat([weights[f"{name}.weight"] for name in MAPS[:3]])}
        if bias:
            state["in_proj_bias"] = torch.cat([weights[f"{name}.bias"] for name in MAPS[:3]])
        state |= {key.replace("o_proj", "out_proj"): value for key, value in weights.items() if "o_proj" in key}
        theirs.load_state_dict(state)
        x = check.randn(2, 7, D)
        want = theirs(x.double(), x.double(), x.double(), need_weights=False)[0]
        check.close(layer(x), want, f"D={D}, H={H}, bias={bias}")
    layer, weights = loaded(student, check, 9, 3, dtype=torch.float64)
    x = check.randn(2, 5, 9, dtype=torch.float64)
    check.close(layer(x), truth(x, weights, 3), "the same in float64")


@hidden_test(
    "MultiHeadAttention",
    "each head has weights of its own",
    hint="The softmax must run in each head by itself: attend on (B, H, T, d), not on (B, T, D).",
    weight=2,
)
def test_heads_differ(student: Student, check: Check) -> None:
    D, H, T = 6, 3, 4
    layer, weights = loaded(student, check, D, H)
    eye = torch.eye(D)
    layer.load_state_dict({f"{name}.weight": eye for name in MAPS})
    x = torch.zeros(1, T, D)
    for h in range(H):  # head h's columns point at token h, strongly
        x[0, h, 2 * h] = 9.0
    x[0, T - 1] = torch.tensor([9.0, 0, 9, 0, 9, 0])  # the last token asks all three heads
    got = layer(x)
    check.close(got, truth(x, {f"{n}.weight": eye for n in MAPS}, H), "each head finds a token of its own")
    layer.load_state_dict(weights)
    y = check.randn(2, 5, D)
    check.close(layer(y), truth(y, weights, H), "random weights, three heads")


@hidden_test(
    "MultiHeadAttention",
    "scores are divided by the square root of the head's width d, not of D",
    hint="Each head's dot product has d = D / H terms. Attend after the split: then the width seen is d.",
    weight=2,
)
def test_scale(student: Student, check: Check) -> None:
    for D, H in ((24, 12), (20, 4), (7, 1)):
        layer, weights = loaded(student, check, D, H)
        x = 2 * check.randn(1, 5, D)
        check.close(layer(x), truth(x, weights, H), f"D={D}, H={H}: width {D // H}")


@hidden_test(
    "MultiHeadAttention",
    "o_proj mixes the merged heads",
    hint="The last step is o_proj, on the merged heads. With o_proj at zero the output is zero.",
    weight=2,
)
def test_output_map(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 8, 2)
    x = check.randn(2, 5, 8)
    check.close(layer(x), truth(x, weights, 2), "random matrices")
    layer.load_state_dict({**weights, "o_proj.weight": torch.zeros(8, 8)})
    check.close(layer(x), torch.zeros(2, 5, 8), "o_proj at zero")


@hidden_test(
    "MultiHeadAttention",
    "with a context, keys and values come from it and queries from x",
    hint="q_proj reads x; k_proj and v_proj both read the context. The output has one row for each token of x.",
    weight=2,
)
def test_context(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 12, 3)
    for T, S in ((4, 7), (6, 1), (5, 5)):
        x, z = check.randn(2, T, 12), check.randn(2, S, 12)
        check.close(layer(x, context=z), truth(x, weights, 3, context=z), f"{T} tokens ask, {S} are looked at")
    x = check.randn(2, 5, 12)
    check.close(layer(x), truth(x, weights, 3), "no context: the tokens look at one another")


@hidden_test(
    "MultiHeadAttention",
    "the mask is used, in self-attention and with a context",
    hint="Hand the mask on: attend(q, k, v, mask). It broadcasts with (B, H, T, S). Otherwise at most three fifths "
    "of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_mask(student: Student, check: Check) -> None:
    T = 6
    layer, weights = loaded(student, check, 12, 4)
    x = check.randn(2, T, 12)
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    check.close(layer(x, causal), truth(x, weights, 4, causal), "a causal mask (T, T)")
    changed = x.clone()
    changed[:, 3:] = check.randn(2, T - 3, 12)
    check.close(layer(changed, mask=causal)[:, :3], layer(x, mask=causal)[:, :3], "tokens 3 and later changed")
    z = check.randn(2, 5, 12)
    padding = torch.tensor([[True, True, False, True, False], [True, False, True, True, True]])[:, None, None]
    want = truth(x, weights, 4, padding.expand(2, 4, T, 5), z)
    check.close(layer(x, mask=padding, context=z), want, "padding (B, 1, 1, S) over a context")


@hidden_test(
    "MultiHeadAttention",
    "a mask may differ from head to head",
    hint="A mask (1, H, T, S) must reach the heads as it is: no indexing, no extra dimension on the way.",
)
def test_mask_by_head(student: Student, check: Check) -> None:
    T, H = 5, 3
    layer, weights = loaded(student, check, 9, H)
    x = check.randn(2, T, 9)
    mask = torch.stack([torch.ones(T, T, dtype=torch.bool).tril(diagonal=h) for h in range(H)])[None]
    check.close(layer(x, mask), truth(x, weights, H, mask), "head h sees h tokens ahead")


@hidden_test(
    "MultiHeadAttention",
    "without a mask every token sees every token",
    hint="The layer is not causal by itself, and keeps nothing from one call to the next.",
)
def test_no_mask(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 8, 4)
    x = check.randn(2, 7, 8)
    plain = layer(x)
    check.close(plain, truth(x, weights, 4), "no mask")
    order = check.shuffled(range(7))
    check.close(layer(x[:, order]), plain[:, order], "tokens shuffled: expected the outputs shuffled alike")
    layer(x, torch.ones(7, 7, dtype=torch.bool).tril())
    check.close(layer(x), plain, "no mask again, after a call with one")


@hidden_test(
    "MultiHeadAttention",
    "a function handed in as attend is called once, with all heads at once",
    hint="attend(q, k, v, mask) takes the place of your attention. It gets (B, H, T, d) and (B, H, S, d).",
    weight=2,
)
def test_attend(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 12, 3, bias=True)
    attend = student.fixtures.Attend(2.0)
    x, z = check.randn(2, 4, 12), check.randn(2, 6, 12)
    mask = torch.ones(4, 6, dtype=torch.bool).tril(2)
    doubled = {**weights, "o_proj.weight": 2 * weights["o_proj.weight"]}  # o_proj is linear: twice its input
    check.close(layer(x, mask, z, attend), truth(x, doubled, 3, mask, z), "an attend that doubles")
    check.equal(attend.shapes, [[[2, 3, 4, 4], [2, 3, 6, 4], [2, 3, 6, 4]]], "the shapes of q, k and v in its calls")


@hidden_test(
    "MultiHeadAttention",
    "a d_model that the heads cannot share is a ValueError that names both numbers",
    hint="Check in __init__, before any matrix is made, and put d_model and n_heads into the message.",
)
def test_refuses(student: Student, check: Check) -> None:
    for D, H in ((10, 4), (9, 2), (5, 10)):
        call = partial(student.MultiHeadAttention, D, H)
        check.raises(ValueError, call, f"d_model={D}, n_heads={H}", mentions=(D, H))
    layer, weights = loaded(student, check, 10, 5)
    x = check.randn(1, 3, 10)
    check.close(layer(x), truth(x, weights, 5), "d_model=10, n_heads=5")


@hidden_test(
    "MultiHeadAttention",
    "gradients reach the tokens, the context and all parameters",
    hint="A .detach(), .data or torch.no_grad() on the way leaves a matrix that never learns. Otherwise at most "
    "three fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 6, 2, bias=True)
    x, z, probe = check.randn(2, 4, 6).requires_grad_(), check.randn(2, 5, 6).requires_grad_(), check.randn(2, 4, 6)
    (check.tensor(layer(x, context=z), (2, 4, 6), "four tokens and a context of five") * probe).sum().backward()
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    y, c = x.detach().clone().requires_grad_(), z.detach().clone().requires_grad_()
    loss = (truth(y, leaves, 2, context=c) * probe).sum()
    want = torch.autograd.grad(loss, [y, c, *leaves.values()])
    check.close(x.grad, want[0], "the gradient of x")
    check.close(z.grad, want[1], "the gradient of the context")
    got = layer.grads()
    for name, gradient in zip(leaves, want[2:], strict=True):
        check.close(got.get(name), gradient, f"the gradient of {name}")


@hidden_test(
    "MultiHeadAttention",
    "the tokens passed in are left as they were",
    hint="No operator that ends in an underscore on x or the context.",
)
def test_input(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 6, 3)
    x = check.randn(6, 5, 2).permute(2, 1, 0)  # (2, 5, 6), not contiguous
    check.true(student.fixtures.unchanged(layer, x), "the layer changed x in the caller's hands")
    check.close(layer(x), truth(x, weights, 3), "tokens that are not contiguous")
