"""Hidden tests of chapter 05, the first exercise: LayerNorm."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

READY = ("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm")


def loaded(
    student: Student, check: Check, d: int, eps: float = 1e-5, dtype: torch.dtype = torch.float32
) -> tuple[Any, Tensor, Tensor]:
    """A layer with a known scale and shift, no entry of which is near zero or one."""
    layer = student.LayerNorm(d, eps)
    weight, bias = 2 + 0.3 * check.randn(d, dtype=torch.float64), check.randn(d, dtype=torch.float64) - 2
    layer.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    layer.to(dtype)
    return layer, weight.float().to(dtype), bias.float().to(dtype)


def truth(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """The layer by torch's own operator in float64."""
    return F.layer_norm(x.double(), (x.shape[-1],), weight.double(), bias.double(), eps)


@hidden_test(
    "LayerNorm",
    "LayerNorm starts with a weight of ones and a bias of zeros, both of width d",
    hint="Two nn.Parameter, weight and bias, of shape (d,). A weight of zeros would wipe out whatever comes in.",
    weight=2,
)
def test_parameters(student: Student, check: Check) -> None:
    for d in (5, 12):
        layer = student.LayerNorm(d)
        state = layer.state_dict()
        check.equal(sorted(state), ["bias", "weight"], f"names in the state dict of LayerNorm({d})")
        check.close(state["weight"], torch.ones(d), f"weight of LayerNorm({d}) at the start")
        check.close(state["bias"], torch.zeros(d), f"bias of LayerNorm({d}) at the start")
        x = check.randn(3, d)
        check.close(layer(x), truth(x, torch.ones(d), torch.zeros(d)), f"the output of a new LayerNorm({d})")
        check.equal(sorted(layer.grads()), ["bias", "weight"], "the parameters that an optimizer would train")


@hidden_test(
    "LayerNorm",
    "LayerNorm gives what torch.nn.LayerNorm gives with the same scale and shift",
    hint="Subtract the mean, divide by the root of variance plus eps, multiply by weight, add bias, in this order.",
    weight=3,
)
def test_formula(student: Student, check: Check) -> None:
    layer = student.LayerNorm(3)
    third = 1.5**0.5
    check.close(layer(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([-third, 0.0, third]), "(1, 2, 3), by hand")
    for d in (4, 7, 33):
        layer, weight, bias = loaded(student, check, d)
        x = 3 * check.randn(2, 5, d) + 1.5
        check.close(layer(x), truth(x, weight, bias), f"d={d}")


@hidden_test(
    "LayerNorm",
    "LayerNorm's variance divides by d, not by d - 1",
    hint="Tensor.var divides by d - 1 unless told otherwise (correction=0); the mean of squared distances does not.",
)
def test_biased(student: Student, check: Check) -> None:
    for d in (2, 3):
        layer, weight, bias = loaded(student, check, d)
        x = torch.linspace(-2, 1, d) * check.randn(4, 1).abs().add(0.5)
        check.close(layer(x), truth(x, weight, bias), f"d={d}, where d - 1 makes the most difference")


@hidden_test(
    "LayerNorm",
    "LayerNorm's eps stands inside the root",
    hint="sqrt(variance + eps), not sqrt(variance) + eps: for numbers near 0.001 these differ.",
)
def test_inside(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 9)
    x = check.randn(4, 9, scale=2e-3)
    check.close(layer(x), truth(x, weight, bias), "numbers near 0.002, eps=1e-5")
    layer, weight, bias = loaded(student, check, 6, 0.25)
    x = check.randn(4, 6)
    check.close(layer(x), truth(x, weight, bias, 0.25), "eps=0.25")


@hidden_test(
    "LayerNorm",
    "LayerNorm uses the eps that it is given",
    hint="Keep eps on self, and add it in forward. A token whose entries are all equal has variance 0: with eps the "
    "result is the bias, without it 0 / 0.",
)
def test_eps(student: Student, check: Check) -> None:
    for eps in (1e-12, 1e-3, 2.0):
        layer, weight, bias = loaded(student, check, 7, eps)
        x = check.randn(3, 7, scale=0.05)
        check.close(layer(x), truth(x, weight, bias, eps), f"eps={eps}")
    layer, _, bias = loaded(student, check, 8)
    check.close(layer(torch.full((2, 8), 4.0)), bias.expand(2, 8), "tokens whose entries are all 4: expected the bias")
    layer = student.LayerNorm(d=4, eps=0.5)
    x = check.randn(4)
    check.close(layer(x), truth(x, torch.ones(4), torch.zeros(4), 0.5), "eps passed by name")


@hidden_test(
    "LayerNorm",
    "LayerNorm's weight scales each column after the division",
    hint="Multiply the normalised vectors by self.weight, entry by entry. Before the division a scale would cancel.",
    weight=2,
)
def test_weight(student: Student, check: Check) -> None:
    layer, x = student.LayerNorm(6), check.randn(2, 3, 6)
    weight = torch.tensor([0.0, 1.0, -2.0, 0.5, 3.0, 10.0])
    layer.load_state_dict({"weight": weight, "bias": torch.zeros(6)})
    check.close(layer(x), truth(x, weight, torch.zeros(6)), "weight (0, 1, -2, 0.5, 3, 10), bias zero")


@hidden_test(
    "LayerNorm",
    "LayerNorm's bias shifts each column, last of all",
    hint="Add self.bias after the scale; it is not normalised and not scaled.",
    weight=2,
)
def test_bias(student: Student, check: Check) -> None:
    layer, x = student.LayerNorm(5), check.randn(2, 3, 5)
    weight, bias = torch.full((5,), 3.0), torch.tensor([0.0, 1.0, -2.0, 7.0, 0.5])
    layer.load_state_dict({"weight": weight, "bias": bias})
    check.close(layer(x), truth(x, weight, bias), "weight 3, bias (0, 1, -2, 7, 0.5)")


@hidden_test(
    "LayerNorm",
    "LayerNorm treats each token on its own, whatever else is in the batch",
    hint="Mean and variance run over the last dimension only, with keepdim=True: not over positions, not over batches.",
    weight=2,
)
def test_per_token(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 7)
    x = check.randn(3, 4, 7)
    token = truth(x[1, 2], weight, bias)
    for what, change in (("sequence", (1, 3)), ("sequences", (2, slice(None))), ("first sequence", (0, slice(None)))):
        changed = x.clone()
        changed[change] = 50 * check.randn(*changed[change].shape) + 20
        check.close(layer(changed)[1, 2], token, f"one token, after others changed ({what})")
    same = check.randn(4, 4)  # as many tokens as the width
    layer, weight, bias = loaded(student, check, 4)
    check.close(layer(same), truth(same, weight, bias), "4 tokens of width 4")


@hidden_test(
    "LayerNorm",
    "LayerNorm works with any number of leading dimensions, even none",
    hint="dim=-1 counts from the end and works for every shape; do not unpack x.shape into three names.",
)
def test_leading(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 6)
    for shape in ((6,), (1, 6), (5, 6), (2, 3, 6), (2, 3, 4, 6), (2, 1, 2, 3, 6)):
        x = check.randn(*shape)
        check.close(layer(x), truth(x, weight, bias), f"x of shape {shape}")


@hidden_test(
    "LayerNorm",
    "LayerNorm takes mean and variance of half-precision input in float32",
    hint="Convert x to float32 first. Above 255 a square overflows float16; bfloat16 keeps three digits of a mean.",
    weight=2,
)
def test_half(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 11)
    # The scale and shift may run in half precision: a few roundings of numbers up to 8.
    x = check.randn(3, 11, dtype=torch.float16, scale=600)
    check.close(layer(x), truth(x, weight, bias), "float16 numbers near 600", rtol=1e-2, atol=1e-2)
    layer, weight, bias = loaded(student, check, 99)
    x = (check.randn(8, 99) + 50).to(torch.bfloat16)
    check.close(layer(x), truth(x, weight, bias), "bfloat16 numbers near 50", rtol=3e-2, atol=5e-2)


@hidden_test(
    "LayerNorm",
    "LayerNorm's output has the dtype of its input",
    hint="Convert the result back at the end, to x.dtype. A float32 weight turns a float16 product into float32.",
)
def test_dtype(student: Student, check: Check) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for parameters in (torch.float32, dtype):
            layer, weight, bias = loaded(student, check, 7, dtype=parameters)
            x = check.randn(2, 3, 7, dtype=dtype)
            got = check.tensor(layer(x), (2, 3, 7), f"{dtype} input, {parameters} parameters", dtype)
            want, off = truth(x, weight, bias), 8 * torch.finfo(dtype).eps
            check.close(got, want, f"{dtype} input, {parameters} parameters", rtol=off, atol=off)


@hidden_test(
    "LayerNorm",
    "LayerNorm keeps float64 in float64",
    hint="Convert to float32 only what is not float64; .float() rounds away nine of its sixteen digits.",
)
def test_double(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 9, dtype=torch.float64)
    x = check.randn(4, 9, dtype=torch.float64)
    got = check.tensor(layer(x), (4, 9), "float64 input", torch.float64)
    check.close(got, truth(x, weight, bias), "float64 input")


@hidden_test(
    "LayerNorm",
    "LayerNorm stays exact when all entries share a large offset",
    hint="Square the distances from the mean. The mean of squares less the square of the mean is the difference of two "
    "huge numbers, of which few digits are left.",
)
def test_offset(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 37)
    x = check.randn(3, 37) + 2000
    check.close(layer(x), truth(x, weight, bias), "entries near 2,000 with a spread of 1", rtol=2e-3, atol=2e-3)


@hidden_test(
    "LayerNorm",
    "LayerNorm is built by hand",
    hint="The exercise is to build it from means, products and roots; F.layer_norm and its kin do not count. Otherwise "
    "at most half of the points are to be had.",
    weight=3,
    at_most=0.5,
)
def test_by_hand(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 6)
    x = check.randn(3, 6)
    check.close(layer(x), truth(x, weight, bias), "d=6")
    called = student.fixtures.operators(layer, x)
    check.true(bool(called), "expected torch operators to run, none did")
    ready = [name for name in (*called, *student.fixtures.functions(layer, x)) if any(part in name for part in READY)]
    check.equal(ready, [], "torch's own normalisations that LayerNorm calls")


@hidden_test(
    "LayerNorm",
    "LayerNorm's gradients equal torch's, for input, scale and shift",
    hint="Mean and variance depend on x too: no .detach() or torch.no_grad() on the way. Otherwise at most three "
    "fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 5)
    x, probe = check.randn(2, 3, 5).requires_grad_(), check.randn(2, 3, 5)
    (layer(x) * probe).sum().backward()
    leaves = [leaf.detach().clone().requires_grad_() for leaf in (x, weight, bias)]
    want = torch.autograd.grad((truth(leaves[0], leaves[1], leaves[2]) * probe).sum(), leaves)
    check.close(x.grad, want[0], "the gradient of x")
    got = layer.grads()
    check.close(got.get("weight"), want[1], "the gradient of weight")
    check.close(got.get("bias"), want[2], "the gradient of bias")


@hidden_test(
    "LayerNorm",
    "LayerNorm leaves its input as it was",
    hint="No operator that ends in an underscore, and no -= or /=, on x. Converting float32 to float32 copies nothing.",
)
def test_input(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 6)
    x = check.randn(2, 5, 6)
    check.true(student.fixtures.unchanged(layer, x), "the layer changed x in the caller's hands")
    check.true(student.fixtures.unchanged(layer, x.double()), "the layer changed a float64 x in the caller's hands")
    x = check.randn(6, 5, 2).permute(2, 1, 0)
    check.close(layer(x), truth(x, weight, bias), "tokens that are not contiguous")


@hidden_test(
    "LayerNorm",
    "a wrong width is a ValueError of LayerNorm that names both widths",
    hint="Compare x.shape[-1] with d. Without that, a width of 1 would be broadcast to d and nobody would notice.",
)
def test_width(student: Student, check: Check) -> None:
    layer, weight, bias = loaded(student, check, 13)
    x = check.randn(2, 13)
    check.close(layer(x), truth(x, weight, bias), "the right width, 13")
    check.raises(ValueError, lambda: layer(check.randn(2, 1)), "width 1 for LayerNorm(13)", mentions=[13, 1])
    check.raises(ValueError, lambda: layer(check.randn(13, 7)), "width 7 for LayerNorm(13)", mentions=[13, 7])
