"""Hidden tests of chapter 12: attend_shared and MultiQueryAttention."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

MAPS = ("q_proj", "k_proj", "v_proj", "o_proj")


def shared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """The truth in float64: every head gets its copy."""
    H = q.shape[1]
    k, v = (x.double().expand(-1, H, -1, -1) for x in (k, v))
    return F.scaled_dot_product_attention(q.double(), k, v, attn_mask=mask)


def heads(
    check: Check, B: int, H: int, T: int, S: int, d: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    q = check.randn(B, H, T, d, dtype=dtype, scale=2.0)
    return q, check.randn(B, 1, S, d, dtype=dtype), check.randn(B, 1, S, d, dtype=dtype)


@hidden_test(
    "attend_shared",
    "every head's queries attend to the one head of keys and values",
    hint="All heads' queries as rows of one head, then your attention, then back to (B, H, T, d).",
    weight=3,
)
def test_shared(student: Student, check: Check) -> None:
    for B, H, T, S, d in ((2, 3, 4, 7, 5), (1, 1, 1, 1, 3), (3, 5, 1, 6, 2), (2, 4, 6, 3, 8)):
        q, k, v = heads(check, B, H, T, S, d)
        check.close(student.attend_shared(q, k, v), shared(q, k, v), f"B={B}, H={H}, T={T}, S={S}, d={d}")


@hidden_test(
    "attend_shared",
    "keys and values are not copied for each head",
    hint="Neither repeat nor expand: a matrix product copies what was expanded as soon as B is above 1. Fold heads "
    "and queries into one dimension with reshape.",
    weight=3,
    at_most=0.5,
)
def test_no_copy(student: Student, check: Check) -> None:
    B, H, S, d = 2, 6, 90, 7
    q, k, v = heads(check, B, H, 1, S, d)
    check.close(student.attend_shared(q, k, v), shared(q, k, v), f"one query a head, {S} keys")
    largest = student.fixtures.largest_tensor(student.attend_shared, q, k, v)
    check.true(
        largest <= 2 * B * S * d,
        f"the keys have {B * S * d} numbers; expected no tensor above twice that on the way, found one of {largest}",
    )


@hidden_test(
    "attend_shared",
    "a mask reaches the head and the query that it is for",
    hint="Expand the mask to (B, H, T, S) first, then fold it exactly as you fold the queries.",
    weight=2,
)
def test_mask(student: Student, check: Check) -> None:
    B, H, T, S = 2, 3, 4, 6
    q, k, v = heads(check, B, H, T, S, 5)
    full = check.randint(0, 2, (B, H, T, S)).bool()
    full[..., 0] = True
    masks = {"(T, S)": full[0, 0], "(H, T, S)": full[0], "(B, 1, 1, S)": full[:, :1, :1], "(B, H, T, S)": full}
    for shape, mask in masks.items():
        got = student.attend_shared(q, k, v, mask)
        check.close(got, shared(q, k, v, mask), f"a mask of shape {shape}")
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    q, k, v = heads(check, B, H, T, T, 5)
    check.close(student.attend_shared(q, k, v, mask=causal), shared(q, k, v, causal), "a causal mask")


@hidden_test(
    "attend_shared",
    "heads and queries come back in their places",
    hint="Reshape back in the order in which you folded: heads outside, queries inside.",
    weight=2,
)
def test_places(student: Student, check: Check) -> None:
    q, k, v = heads(check, 2, 3, 4, 6, 5)
    got = student.attend_shared(q, k, v)
    for h in check.shuffled([0, 1, 2]):
        alone = student.attend_shared(q[:, h : h + 1], k, v)
        check.close(alone, shared(q[:, h : h + 1], k, v), f"head {h} alone")
        check.close(got[:, h], shared(q[:, h : h + 1], k, v)[:, 0], f"head {h} among three")


@hidden_test(
    "attend_shared",
    "heads that are not contiguous work, in every dtype",
    hint="reshape, not view; and the result has the dtype of the queries.",
)
def test_dtypes(student: Student, check: Check) -> None:
    for dtype in (torch.float64, torch.float16, torch.float32):
        q, k, v = heads(check, 2, 4, 3, 5, 6, dtype)
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
        got = check.tensor(student.attend_shared(q, k, v), (2, 4, 3, 6), f"{dtype}", dtype)
        check.close(got, shared(q, k, v), f"{dtype}, heads that are not contiguous")


@hidden_test(
    "attend_shared",
    "gradients flow to queries, keys and values",
    hint="A .detach(), .data or no_grad cuts the way back.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    q, k, v = heads(check, 2, 3, 2, 4, 3)
    check.close(student.attend_shared(q, k, v), shared(q, k, v), "the output itself")
    check.gradients(student.attend_shared, q, k, v, what="attend_shared")


# MultiQueryAttention


def loaded(student: Student, check: Check, D: int, H: int, bias: bool = False) -> tuple[Any, dict[str, Tensor]]:
    """A layer with known weights, large enough that each of them matters."""
    layer = student.MultiQueryAttention(D, H, bias=bias)
    rows = {"q_proj": D, "k_proj": D // H, "v_proj": D // H, "o_proj": D}
    weights = {f"{name}.weight": check.randn(rows[name], D, scale=1.5 / D**0.5) for name in MAPS}
    if bias:
        weights |= {f"{name}.bias": check.randn(rows[name]) for name in MAPS}
    state = {name: list(value.shape) for name, value in layer.state_dict().items()}
    want = {name: list(value.shape) for name, value in weights.items()}
    check.equal(dict(sorted(state.items())), dict(sorted(want.items())), f"names and shapes, D={D}, H={H}, bias={bias}")
    layer.load_state_dict(weights)
    return layer, weights


def truth(x: Tensor, weights: dict[str, Tensor], H: int, mask: Tensor | None = None, factor: float = 1.0) -> Tensor:
    """The layer in float64."""
    w = {name: value.double() for name, value in weights.items()}

    def project(name: str, y: Tensor) -> Tensor:
        return F.linear(y, w[f"{name}.weight"], w.get(f"{name}.bias"))

    q = project("q_proj", x.double()).unflatten(-1, (H, -1)).transpose(1, 2)
    k, v = (project(name, x.double())[:, None] for name in ("k_proj", "v_proj"))
    return project("o_proj", factor * shared(q, k, v, mask).transpose(1, 2).flatten(2))


@hidden_test(
    "MultiQueryAttention",
    "k_proj and v_proj are as wide as one head, q_proj and o_proj as wide as the model",
    hint="nn.Linear(d_model, d_model // n_heads, bias=bias) for keys and for values.",
    weight=2,
)
def test_parameters(student: Student, check: Check) -> None:
    for D, H, bias in ((12, 4, False), (10, 5, True)):
        layer, weights = loaded(student, check, D, H, bias)
        x = check.randn(2, 3, D)
        check.close(layer(x), truth(x, weights, H), f"the output, D={D}, H={H}, bias={bias}")


@hidden_test(
    "MultiQueryAttention",
    "the output equals multi-head attention whose heads have equal keys and values",
    hint="Queries by head, keys and values once, attention, merged heads, o_proj.",
    weight=3,
)
def test_output(student: Student, check: Check) -> None:
    for D, H, B, T in ((12, 4, 2, 5), (15, 3, 1, 1), (6, 6, 3, 4), (7, 1, 2, 3)):
        layer, weights = loaded(student, check, D, H)
        x = check.randn(B, T, D)
        check.close(layer(x), truth(x, weights, H), f"D={D}, H={H}, {B} texts of {T} tokens")


@hidden_test(
    "MultiQueryAttention",
    "each head asks with queries of its own",
    hint="split_heads for the queries only.",
    weight=2,
)
def test_queries(student: Student, check: Check) -> None:
    D, H = 6, 3
    layer, weights = loaded(student, check, D, H)
    x = 2 * check.randn(2, 4, D)
    for h in range(H):
        only = {**weights, "q_proj.weight": torch.zeros(D, D)}
        only["q_proj.weight"][2 * h : 2 * h + 2] = weights["q_proj.weight"][2 * h : 2 * h + 2]
        layer.load_state_dict(only)
        check.close(layer(x), truth(x, only, H), f"only head {h} asks")


@hidden_test(
    "MultiQueryAttention",
    "the mask hides what it hides from every head",
    hint="Hand the mask on to attend.",
    weight=2,
)
def test_layer_mask(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 8, 2)
    x = check.randn(3, 5, 8)
    causal, padding = torch.ones(5, 5, dtype=torch.bool).tril(), torch.ones(3, 1, 1, 5, dtype=torch.bool)
    padding[0, ..., 3:] = False
    for name, mask in (("causal", causal), ("padding", padding), ("none", None)):
        check.close(layer(x, mask=mask), truth(x, weights, 2, mask), f"mask: {name}")


@hidden_test(
    "MultiQueryAttention",
    "a function handed in as attend gets H heads of queries and one of keys and values",
    hint="attend(q, k, v, mask) with k and v of shape (B, 1, T, d): so that a cache keeps one head.",
    weight=2,
)
def test_attend(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 12, 3)
    x, mask = check.randn(2, 5, 12), torch.ones(5, 5, dtype=torch.bool).tril()
    attend = student.fixtures.Attend(2.0)
    check.close(layer(x, mask=mask, attend=attend), truth(x, weights, 3, mask, 2.0), "an attend that doubles")
    check.equal(attend.shapes, [[[2, 3, 5, 4], [2, 1, 5, 4], [2, 1, 5, 4]]], "shapes of q, k and v in its one call")


@hidden_test(
    "MultiQueryAttention",
    "a width that the heads cannot share is a ValueError that names both numbers",
    hint="Check d_model % n_heads in __init__, and raise; an assert is no ValueError.",
)
def test_width(student: Student, check: Check) -> None:
    for D, H in ((10, 3), (4, 8)):
        check.raises(ValueError, partial(student.MultiQueryAttention, D, H), f"D={D}, H={H}", mentions=(D, H))
    layer, weights = loaded(student, check, 9, 3)
    x = check.randn(1, 2, 9)
    check.close(layer(x), truth(x, weights, 3), "D=9, H=3")


@hidden_test(
    "MultiQueryAttention",
    "gradients reach the tokens and all parameters",
    hint="Every projection must take part, without .detach() or .data.",
    at_most=0.6,
)
def test_layer_gradients(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 6, 2, bias=True)
    x, probe = check.randn(2, 4, 6).requires_grad_(), check.randn(2, 4, 6)
    output = layer(x)
    check.close(output, truth(x.detach(), weights, 2), "the output itself")
    check.true(output.requires_grad, "no gradient flows from the output back")
    (output * probe).sum().backward()
    leaf = x.detach().double().requires_grad_()
    leaves = {name: value.double().requires_grad_() for name, value in weights.items()}
    want = torch.autograd.grad((truth(leaf, leaves, 2) * probe).sum(), [leaf, *leaves.values()])
    check.close(x.grad, want[0], "the gradient of the tokens", rtol=1e-3, atol=1e-4)
    got = layer.grads()
    for name, gradient in zip(leaves, want[1:], strict=True):
        # A bias of the keys moves all scores of a query alike: its gradient is zero but for rounding.
        check.close(got.get(name), gradient, f"the gradient of {name}", rtol=1e-3, atol=1e-4)
