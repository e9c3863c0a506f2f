"""Hidden tests of chapter 13, continued: GroupedQueryAttention."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

MAPS = ("q_proj", "k_proj", "v_proj", "o_proj")


def loaded(
    student: Student, check: Check, D: int, H: int, K: int, bias: bool = False, d: int | None = None
) -> tuple[Any, dict[str, Tensor]]:
    """A layer with known weights, large enough that each of them matters."""
    layer = student.GroupedQueryAttention(D, H, K, bias=bias, head_dim=d)
    width = D // H if d is None else d
    shapes = {"q_proj": (H * width, D), "k_proj": (K * width, D), "v_proj": (K * width, D), "o_proj": (D, H * width)}
    weights = {f"{name}.weight": check.randn(*shapes[name], scale=1.5 / D**0.5) for name in MAPS}
    if bias:
        weights |= {f"{name}.bias": check.randn(shapes[name][0]) for name in MAPS}
    state = {name: list(value.shape) for name, value in sorted(layer.state_dict().items())}
    want = {name: list(value.shape) for name, value in sorted(weights.items())}
    check.equal(state, want, f"names and shapes, D={D}, H={H}, K={K}, bias={bias}, head_dim={d}")
    layer.load_state_dict(weights)
    return layer, weights


def truth(
    x: Tensor, weights: dict[str, Tensor], H: int, K: int, mask: Tensor | None = None, factor: float = 1.0
) -> Tensor:
    """The layer in float64, query head by query head."""
    w = {name: value.double() for name, value in weights.items()}

    def project(name: str, y: Tensor) -> Tensor:
        return F.linear(y, w[f"{name}.weight"], w.get(f"{name}.bias"))

    q, k, v = project("q_proj", x.double()), project("k_proj", x.double()), project("v_proj", x.double())
    d = q.shape[-1] // H
    heads = []
    for h in range(H):
        mine, group = slice(h * d, (h + 1) * d), slice(h // (H // K) * d, (h // (H // K) + 1) * d)
        own = mask if mask is None or mask.ndim < 4 else mask[:, h % mask.shape[1]]
        heads.append(F.scaled_dot_product_attention(q[..., mine], k[..., group], v[..., group], attn_mask=own))
    return project("o_proj", factor * torch.cat(heads, dim=-1))


@hidden_test(
    "GroupedQueryAttention",
    "k_proj and v_proj are K heads wide, with biases only if asked for",
    hint="q_proj from D to H * d, k_proj and v_proj from D to K * d, o_proj from H * d to D; bias=bias for each.",
    weight=2,
)
def test_parameters(student: Student, check: Check) -> None:
    for D, H, K, bias in ((12, 6, 2, False), (20, 4, 2, True)):
        layer, weights = loaded(student, check, D, H, K, bias)
        x = check.randn(2, 3, D)
        check.close(layer(x), truth(x, weights, H, K), f"the output, D={D}, H={H}, K={K}, bias={bias}")


@hidden_test(
    "GroupedQueryAttention",
    "query head h uses the keys and values of group h // (H / K)",
    hint="Neighbouring query heads share. A group that is chosen by modulo deals the heads out like cards.",
    weight=3,
)
def test_groups(student: Student, check: Check) -> None:
    for D, H, K, B, T in ((12, 6, 2, 2, 5), (16, 8, 4, 1, 3), (18, 6, 3, 3, 4)):
        layer, weights = loaded(student, check, D, H, K)
        x = check.randn(B, T, D)
        check.close(layer(x), truth(x, weights, H, K), f"D={D}, H={H}, K={K}, {B} texts of {T} tokens")


@hidden_test(
    "GroupedQueryAttention",
    "with K = H it is multi-head attention",
    hint="Then every group has one query head. The comparison is with torch.nn.MultiheadAttention.",
    weight=2,
)
def test_multi_head(student: Student, check: Check) -> None:
    D, H = 15, 5
    layer, weights = loaded(student, check, D, H, H, bias=True)
    theirs = nn.MultiheadAttention(D, H, bias=True, batch_first=True, dtype=torch.float64)
    state = {f"in_proj_{end}": torch.cat([weights[f"{m}.{end}"] for m in MAPS[:3]]) for end in ("weight", "bias")}
    state |= {f"out_proj.{end}": weights[f"o_proj.{end}"] for end in ("weight", "bias")}
    theirs.load_state_dict(state)
    x = check.randn(2, 4, D)
    y = x.double()
    check.close(layer(x), theirs(y, y, y, need_weights=False)[0], f"D={D}, H=K={H}")


@hidden_test(
    "GroupedQueryAttention",
    "with K = 1 it is multi-query attention",
    hint="One group of all heads.",
)
def test_multi_query(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 12, 4, 1)
    x = check.randn(2, 5, 12)
    check.close(layer(x), truth(x, weights, 4, 1), "D=12, H=4, K=1")


@hidden_test(
    "GroupedQueryAttention",
    "a head's width can be another than D / H",
    hint="head_dim is the width d where it is given: then q_proj is H * d wide, and o_proj maps back to D.",
    weight=2,
)
def test_head_dim(student: Student, check: Check) -> None:
    for D, H, K, d in ((10, 4, 2, 6), (7, 4, 2, 3), (12, 6, 3, 1)):
        layer, weights = loaded(student, check, D, H, K, d=d)
        x = check.randn(2, 5, D)
        check.close(layer(x), truth(x, weights, H, K), f"D={D}, H={H}, K={K}, head_dim={d}")


@hidden_test(
    "GroupedQueryAttention",
    "the mask hides what it hides, from all heads or from one",
    hint="Hand the mask on to attend.",
    weight=2,
)
def test_mask(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 12, 4, 2)
    x = check.randn(3, 5, 12)
    causal, padding = torch.ones(5, 5, dtype=torch.bool).tril(), torch.ones(3, 1, 1, 5, dtype=torch.bool)
    padding[1, ..., 2:] = False
    by_head = check.randint(0, 2, (1, 4, 5, 5)).bool() | torch.eye(5, dtype=torch.bool)
    for name, mask in (("causal", causal), ("padding", padding), ("one for each head", by_head), ("none", None)):
        check.close(layer(x, mask=mask), truth(x, weights, 4, 2, mask), f"mask: {name}")


@hidden_test(
    "GroupedQueryAttention",
    "a function handed in as attend gets keys and values that are not repeated",
    hint="Repeat inside your default only: what attend gets is what a cache keeps, K heads.",
    weight=2,
)
def test_attend(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 12, 4, 2)
    x, mask = check.randn(2, 5, 12), torch.ones(5, 5, dtype=torch.bool).tril()
    attend = student.fixtures.Attend(2.0)
    check.close(layer(x, mask=mask, attend=attend), truth(x, weights, 4, 2, mask, 2.0), "an attend that doubles")
    check.equal(attend.shapes, [[[2, 4, 5, 3], [2, 2, 5, 3], [2, 2, 5, 3]]], "shapes of q, k and v in its one call")


@hidden_test(
    "GroupedQueryAttention",
    "heads that cannot be grouped, or cannot share the width, are a ValueError that names both numbers",
    hint="n_heads % n_kv_heads, and, without a head_dim, d_model % n_heads.",
)
def test_errors(student: Student, check: Check) -> None:
    make = student.GroupedQueryAttention
    check.raises(ValueError, partial(make, 12, 6, 4), "6 query heads, 4 of keys and values", mentions=(6, 4))
    check.raises(ValueError, partial(make, 12, 2, 4), "2 query heads, 4 of keys and values", mentions=(2, 4))
    check.raises(ValueError, partial(make, 13, 6, 3), "D=13, H=6", mentions=(13, 6))
    layer, weights = loaded(student, check, 13, 6, 3, d=2)  # here D and H need not agree
    x = check.randn(1, 2, 13)
    check.close(layer(x), truth(x, weights, 6, 3), "D=13, H=6, K=3, head_dim=2")


@hidden_test(
    "GroupedQueryAttention",
    "gradients reach the tokens and all parameters",
    hint="Every projection must take part, without .detach() or .data.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 8, 4, 2)
    x, probe = check.randn(2, 4, 8).requires_grad_(), check.randn(2, 4, 8)
    output = layer(x)
    check.close(output, truth(x.detach(), weights, 4, 2), "the output itself")
    check.true(output.requires_grad, "no gradient flows from the output back")
    (output * probe).sum().backward()
    leaf = x.detach().double().requires_grad_()
    leaves = {name: value.double().requires_grad_() for name, value in weights.items()}
    want = torch.autograd.grad((truth(leaf, leaves, 4, 2) * probe).sum(), [leaf, *leaves.values()])
    check.close(x.grad, want[0], "the gradient of the tokens", rtol=1e-3, atol=1e-4)
    got = layer.grads()
    for name, gradient in zip(leaves, want[1:], strict=True):
        check.close(got.get(name), gradient, f"the gradient of {name}", rtol=1e-3, atol=1e-4)
