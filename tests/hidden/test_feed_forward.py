"""Hidden tests of chapter 07: gelu, FeedForward and SwiGLU."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

# gelu


@hidden_test(
    "gelu",
    "it is the exact function, by erf",
    hint="x * (1 + erf(x / sqrt(2))) / 2. The forms with tanh or with sigmoid(1.702 x) are approximations.",
    weight=3,
)
def test_gelu(student: Student, check: Check) -> None:
    points = [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]
    by_hand = [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in points]
    check.close(student.gelu(torch.tensor(points)), torch.tensor(by_hand, dtype=torch.float64), "seven points")
    x = 2 * check.randn(3, 7, dtype=torch.float64)
    check.close(student.gelu(x), F.gelu(x), "float64: 1e-9 tells the exact form from an approximation")


@hidden_test(
    "gelu",
    "far from zero it is 0 on the left and x on the right",
    hint="erf runs from -1 to 1: the factor runs from 0 to 1. Check the sign, the half and the 1.",
)
def test_gelu_ends(student: Student, check: Check) -> None:
    x = torch.tensor([-60.0, -9.0, 9.0, 60.0])
    check.close(student.gelu(x), torch.tensor([0.0, 0.0, 9.0, 60.0]), "the ends")
    x = check.randn(11)
    check.close(student.gelu(x) - student.gelu(-x), x, "gelu(x) - gelu(-x) is x, for any x")


@hidden_test(
    "gelu",
    "it is built by hand",
    hint="Use torch.erf; torch's own gelu hides what this exercise is about. Otherwise at most half of the points.",
    weight=3,
    at_most=0.5,
)
def test_gelu_by_hand(student: Student, check: Check) -> None:
    x = check.randn(2, 5)
    names = student.fixtures.operators(student.gelu, x)
    check.true("gelu" not in names, "torch's own gelu was called")
    check.close(student.gelu(x), F.gelu(x.double()), "the values")


@hidden_test(
    "gelu",
    "shape and dtype stay, in half precision too",
    hint="Divide by a Python number: a new float32 tensor would turn float16 into float32.",
)
def test_gelu_dtype(student: Student, check: Check) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = check.randn(2, 3, 5, dtype=dtype)
        got = student.gelu(x)
        check.tensor(got, (2, 3, 5), f"gelu of {dtype}", dtype)
        check.close(got, F.gelu(x.double()), f"gelu of {dtype}")
    x = check.randn(4, 3).mT
    check.close(student.gelu(x), F.gelu(x.double()), "a tensor that is not contiguous")


@hidden_test(
    "gelu",
    "gradients are those of the exact function",
    hint="Tensor operations only, without .detach(). Otherwise at most three fifths of the points are to be had.",
    at_most=0.6,
)
def test_gelu_gradients(student: Student, check: Check) -> None:
    x = check.randn(9).requires_grad_()
    student.gelu(x).sum().backward()
    y = x.detach().double().requires_grad_()
    check.close(x.grad, torch.autograd.grad(F.gelu(y).sum(), y)[0], "the gradient of x")


@hidden_test(
    "gelu",
    "the tensor passed in is left as it was",
    hint="No operator that ends in an underscore on x, and no *=.",
)
def test_gelu_input(student: Student, check: Check) -> None:
    x = check.randn(3, 4)
    check.true(student.fixtures.unchanged(student.gelu, x), "gelu changed x in the caller's hands")
    check.close(student.gelu(x), F.gelu(x.double()), "the values")


# FeedForward


def plain(
    student: Student, check: Check, D: int, width: int | None, *, dtype: torch.dtype = torch.float32, **options: Any
) -> tuple[Any, dict[str, Tensor]]:
    """A FeedForward with known weights."""
    layer = student.FeedForward(D, width, **options)
    layer.to(dtype)
    inner = 4 * D if width is None else width
    weights = {
        "up_proj.weight": check.randn(inner, D, dtype=dtype),
        "down_proj.weight": check.randn(D, inner, dtype=dtype),
    }
    if options.get("bias", True):
        weights |= {"up_proj.bias": check.randn(inner, dtype=dtype), "down_proj.bias": check.randn(D, dtype=dtype)}
    layer.load_state_dict(weights)
    return layer, weights


def narrow(x: Tensor, weights: dict[str, Tensor], activation: Any = F.gelu) -> Tensor:
    """The network in float64."""
    w = {name: weight.double() for name, weight in weights.items()}
    inside = activation(F.linear(x.double(), w["up_proj.weight"], w.get("up_proj.bias")))
    return F.linear(inside, w["down_proj.weight"], w.get("down_proj.bias"))


@hidden_test(
    "FeedForward",
    "the output is down_proj(activation(up_proj(x)))",
    hint="Up, activation, down: in this order, with nothing added. The activation stands between the two maps only.",
    weight=3,
)
def test_plain(student: Student, check: Check) -> None:
    for D, width in ((6, 10), (5, 3)):
        layer, weights = plain(student, check, D, width)
        x = check.randn(2, 4, D)
        check.close(layer(x), narrow(x, weights), f"D={D}, F={width}")


@hidden_test(
    "FeedForward",
    "its parameters are up_proj and down_proj, with biases unless told otherwise",
    hint="nn.Linear(d_model, d_ff, bias=bias) and nn.Linear(d_ff, d_model, bias=bias), under these names.",
    weight=2,
)
def test_plain_parameters(student: Student, check: Check) -> None:
    state = student.FeedForward(d_model=6, d_ff=11).state_dict()
    shapes = {name: list(weight.shape) for name, weight in state.items()}
    want = {"up_proj.weight": [11, 6], "up_proj.bias": [11], "down_proj.weight": [6, 11], "down_proj.bias": [6]}
    check.equal(dict(sorted(shapes.items())), dict(sorted(want.items())), "names and shapes")
    names = sorted(student.FeedForward(6, 11, bias=False).state_dict())
    check.equal(names, ["down_proj.weight", "up_proj.weight"], "names with bias=False")
    layer, weights = plain(student, check, 5, 7, bias=False)
    x = check.randn(3, 5)
    check.close(layer(x), narrow(x, weights), "the output with bias=False")


@hidden_test(
    "FeedForward",
    "the inner width is four times D unless told otherwise",
    hint="d_ff=None means 4 * d_model.",
)
def test_plain_default(student: Student, check: Check) -> None:
    for D in (3, 7):
        layer, weights = plain(student, check, D, None)
        x = check.randn(2, D)
        check.close(layer(x), narrow(x, weights), f"D={D}, no d_ff: F={4 * D}")


@hidden_test(
    "FeedForward",
    "the activation that is handed in is the one that is used",
    hint="Keep the argument, and call it; the default is your own gelu.",
    weight=2,
)
def test_plain_activation(student: Student, check: Check) -> None:
    for name, truth in (("tanh", torch.tanh), ("relu", torch.relu)):
        module = student.torch.nn.Tanh() if name == "tanh" else student.torch.nn.ReLU()
        layer, weights = plain(student, check, 5, 9, activation=module)
        x = check.randn(3, 5)
        check.close(layer(x), narrow(x, weights, truth), f"activation {name}")
    layer, weights = plain(student, check, 5, 9)
    x = check.randn(3, 5)
    check.close(layer(x), narrow(x, weights), "no activation named: the exact gelu")


@hidden_test(
    "FeedForward",
    "each position is treated alone, and alike",
    hint="Only the last dimension is touched: no mean, norm or product over positions or over the batch.",
    weight=2,
)
def test_plain_alone(student: Student, check: Check) -> None:
    layer, weights = plain(student, check, 6, 8)
    x = check.randn(2, 5, 6)
    whole = layer(x)
    check.close(whole, narrow(x, weights), "five positions")
    check.close(torch.stack([layer(x[:, t]) for t in range(5)], dim=1), whole, "the positions one at a time")
    changed = x.clone()
    changed[:, 3] = check.randn(2, 6)
    others = [0, 1, 2, 4]
    check.close(layer(changed)[:, others], whole[:, others], "position 3 changed: the outputs of the others")


@hidden_test(
    "FeedForward",
    "any leading dimensions and dtypes work, and x is left as it was",
    hint="nn.Linear works on the last dimension; no unpacking of x.shape, nothing in place.",
)
def test_plain_shapes(student: Student, check: Check) -> None:
    layer, weights = plain(student, check, 4, 6, dtype=torch.float64)
    for shape in ((4,), (3, 4), (2, 3, 5, 4)):
        x = check.randn(*shape, dtype=torch.float64)
        check.close(layer(x), narrow(x, weights), f"x of shape {shape}, float64")
    x = check.randn(4, 3, dtype=torch.float64).mT
    check.true(student.fixtures.unchanged(layer, x), "the layer changed x in the caller's hands")


@hidden_test(
    "FeedForward",
    "gradients reach x and both maps",
    hint="No .detach() or torch.no_grad() on the way. Otherwise at most three fifths of the points are to be had.",
    at_most=0.6,
)
def test_plain_gradients(student: Student, check: Check) -> None:
    layer, weights = plain(student, check, 4, 6)
    x, probe = check.randn(3, 4).requires_grad_(), check.randn(3, 4)
    (layer(x) * probe).sum().backward()
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    y = x.detach().clone().requires_grad_()
    want = torch.autograd.grad((narrow(y, leaves) * probe).sum(), [y, *leaves.values()])
    check.close(x.grad, want[0], "the gradient of x")
    got = layer.grads()
    for name, gradient in zip(leaves, want[1:], strict=True):
        check.close(got.get(name), gradient, f"the gradient of {name}")


# SwiGLU

MAPS = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")


def gated(
    student: Student, check: Check, D: int, width: int, dtype: torch.dtype = torch.float32
) -> tuple[Any, dict[str, Tensor]]:
    """A SwiGLU with known weights."""
    layer = student.SwiGLU(D, width)
    layer.to(dtype)
    shapes = ((width, D), (width, D), (D, width))
    weights = {name: check.randn(*shape, dtype=dtype) for name, shape in zip(MAPS, shapes, strict=True)}
    layer.load_state_dict(weights)
    return layer, weights


def gate(x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The gated network in float64."""
    g, u, d = (weights[name].double() for name in MAPS)
    y = x.double()
    return F.linear(F.silu(F.linear(y, g)) * F.linear(y, u), d)


@hidden_test(
    "SwiGLU",
    "the output is down_proj(silu(gate_proj(x)) * up_proj(x))",
    hint="Two maps side by side, multiplied number by number, then one map down. SiLU is z * sigmoid(z).",
    weight=3,
)
def test_gated(student: Student, check: Check) -> None:
    for D, width in ((6, 10), (5, 3)):
        layer, weights = gated(student, check, D, width)
        x = check.randn(2, 4, D)
        check.close(layer(x), gate(x, weights), f"D={D}, F={width}")


@hidden_test(
    "SwiGLU",
    "the activation stands on the gate alone",
    hint="silu(gate) * up: doubling up_proj doubles the output, doubling gate_proj does not.",
    weight=2,
)
def test_gate_side(student: Student, check: Check) -> None:
    layer, weights = gated(student, check, 5, 7)
    x = check.randn(3, 5)
    plain_output = gate(x, weights)
    check.close(layer(x), plain_output, "the output")
    layer.load_state_dict({**weights, "up_proj.weight": -2 * weights["up_proj.weight"]})
    check.close(layer(x), -2 * plain_output, "up_proj times -2: expected the output times -2")
    layer.load_state_dict({**weights, "gate_proj.weight": torch.zeros(7, 5)})
    check.close(layer(x), torch.zeros(3, 5), "gate_proj at zero: expected zeros, for silu(0) is 0")


@hidden_test(
    "SwiGLU",
    "the gate is SiLU, z times sigmoid(z), not sigmoid alone",
    hint="GLU gates by sigmoid(z); SwiGLU by z * sigmoid(z), which is not bounded above.",
)
def test_silu(student: Student, check: Check) -> None:
    layer = student.SwiGLU(1, 1)
    layer.load_state_dict({name: torch.ones(1, 1) for name in MAPS})
    x = torch.tensor([[-4.0], [-1.0], [0.5], [3.0]])
    want = [[z * z / (1 + math.exp(-z))] for z in (-4.0, -1.0, 0.5, 3.0)]
    check.close(layer(x), torch.tensor(want, dtype=torch.float64), "one number, all weights 1: z * z * sigmoid(z)")


@hidden_test(
    "SwiGLU",
    "its parameters are gate_proj, up_proj and down_proj, without bias",
    hint="Three nn.Linear(..., bias=False) under these names: two from D to F, one from F to D.",
    weight=2,
)
def test_gated_parameters(student: Student, check: Check) -> None:
    state = student.SwiGLU(d_model=6, d_ff=11).state_dict()
    shapes = {name: list(weight.shape) for name, weight in sorted(state.items())}
    want = {"down_proj.weight": [6, 11], "gate_proj.weight": [11, 6], "up_proj.weight": [11, 6]}
    check.equal(shapes, want, "names and shapes")
    layer, weights = gated(student, check, 6, 11)
    x = check.randn(2, 6)
    check.close(layer(x), gate(x, weights), "the output")


@hidden_test(
    "SwiGLU",
    "each position is treated alone, and x is left as it was",
    hint="Only the last dimension is touched, and nothing in place.",
)
def test_gated_alone(student: Student, check: Check) -> None:
    layer, weights = gated(student, check, 6, 8, torch.float64)
    x = check.randn(6, 5, 2, dtype=torch.float64).permute(2, 1, 0)
    whole = layer(x)
    check.close(whole, gate(x, weights), "five positions, float64, not contiguous")
    check.close(torch.stack([layer(x[:, t]) for t in range(5)], dim=1), whole, "the positions one at a time")
    check.true(student.fixtures.unchanged(layer, x), "the layer changed x in the caller's hands")


@hidden_test(
    "SwiGLU",
    "gradients reach x and all three maps",
    hint="No .detach() on the way: the gate learns too. Otherwise at most three fifths of the points are to be had.",
    at_most=0.6,
)
def test_gated_gradients(student: Student, check: Check) -> None:
    layer, weights = gated(student, check, 4, 6)
    x, probe = check.randn(3, 4).requires_grad_(), check.randn(3, 4)
    (layer(x) * probe).sum().backward()
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    y = x.detach().clone().requires_grad_()
    want = torch.autograd.grad((gate(y, leaves) * probe).sum(), [y, *leaves.values()])
    check.close(x.grad, want[0], "the gradient of x")
    got = layer.grads()
    for name, gradient in zip(leaves, want[1:], strict=True):
        check.close(got.get(name), gradient, f"the gradient of {name}")
