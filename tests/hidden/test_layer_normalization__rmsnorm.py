"""Hidden tests of chapter 05, the second exercise: RMSNorm."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

READY = ("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm")


def loaded(
    student: Student, check: Check, d: int, eps: float = 1e-5, dtype: torch.dtype = torch.float32
) -> tuple[Any, Tensor]:
    """A layer with a known scale, no entry of which is near zero or one."""
    layer = student.RMSNorm(d, eps)
    weight = 2 + 0.3 * check.randn(d)
    layer.load_state_dict({"weight": weight})
    layer.to(dtype)
    return layer, weight.to(dtype)


def truth(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """The layer by torch's own operator in float64."""
    return F.rms_norm(x.double(), (x.shape[-1],), weight.double(), eps)


@hidden_test(
    "RMSNorm",
    "RMSNorm starts with a weight of ones of width d, and has no bias",
    hint="One nn.Parameter, weight, of shape (d,). A weight of zeros would wipe out whatever comes in.",
    weight=2,
)
def test_parameters(student: Student, check: Check) -> None:
    for d in (5, 12):
        layer = student.RMSNorm(d)
        state = layer.state_dict()
        check.equal(sorted(state), ["weight"], f"names in the state dict of RMSNorm({d})")
        check.close(state["weight"], torch.ones(d), f"weight of RMSNorm({d}) at the start")
        x = check.randn(3, d)
        check.close(layer(x), truth(x, torch.ones(d)), f"the output of a new RMSNorm({d})")
        check.equal(sorted(layer.grads()), ["weight"], "the parameters that an optimizer would train")


@hidden_test(
    "RMSNorm",
    "RMSNorm gives what torch.nn.RMSNorm gives with the same scale",
    hint="Divide by the root of the mean of squares plus eps, then multiply by weight.",
    weight=3,
)
def test_formula(student: Student, check: Check) -> None:
    layer = student.RMSNorm(2)
    root = 12.5**0.5
    check.close(layer(torch.tensor([3.0, 4.0])), torch.tensor([3 / root, 4 / root]), "(3, 4), by hand")
    for d in (4, 7, 33):
        layer, weight = loaded(student, check, d)
        x = 3 * check.randn(2, 5, d) + 1.5
        check.close(layer(x), truth(x, weight), f"d={d}")


@hidden_test(
    "RMSNorm",
    "RMSNorm does not subtract the mean",
    hint="The entries keep their signs and their proportions: a token whose entries are equal stays so, at about 1.",
    weight=2,
)
def test_no_mean(student: Student, check: Check) -> None:
    layer = student.RMSNorm(7)
    check.close(layer(torch.full((2, 7), -5.0)), -torch.ones(2, 7), "tokens whose entries are all -5: expected -1")
    layer, weight = loaded(student, check, 9)
    x = check.randn(3, 9) + 4
    check.close(layer(x), truth(x, weight), "entries near 4 with a spread of 1")


@hidden_test(
    "RMSNorm",
    "RMSNorm takes the mean of the squares, not their sum",
    hint="Written twice side by side, a token has twice the sum of squares and the same mean. It must come out the "
    "same, twice.",
)
def test_mean(student: Student, check: Check) -> None:
    x = check.randn(4, 6)
    once = student.RMSNorm(6)(x)
    check.close(once, truth(x, torch.ones(6)), "d=6")
    twice = student.RMSNorm(12)(torch.cat([x, x], dim=-1))
    check.close(twice, torch.cat([once, once], dim=-1).double(), "the same tokens, written twice side by side")


@hidden_test(
    "RMSNorm",
    "RMSNorm's eps stands inside the root",
    hint="sqrt(mean of squares + eps), not sqrt(mean of squares) + eps: for numbers near 0.001 these differ.",
)
def test_inside(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 9)
    x = check.randn(4, 9, scale=2e-3)
    check.close(layer(x), truth(x, weight), "numbers near 0.002, eps=1e-5")
    layer, weight = loaded(student, check, 6, 0.25)
    x = check.randn(4, 6)
    check.close(layer(x), truth(x, weight, 0.25), "eps=0.25")


@hidden_test(
    "RMSNorm",
    "RMSNorm uses the eps that it is given",
    hint="Keep eps on self, and add it in forward. A token of zeros must come out as zeros: without eps it is 0 / 0.",
)
def test_eps(student: Student, check: Check) -> None:
    for eps in (1e-12, 1e-3, 2.0):
        layer, weight = loaded(student, check, 7, eps)
        x = check.randn(3, 7, scale=0.05)
        check.close(layer(x), truth(x, weight, eps), f"eps={eps}")
    layer, _ = loaded(student, check, 8)
    check.close(layer(torch.zeros(2, 8)), torch.zeros(2, 8), "tokens of zeros: expected zeros")
    layer = student.RMSNorm(d=4, eps=0.5)
    x = check.randn(4)
    check.close(layer(x), truth(x, torch.ones(4), 0.5), "eps passed by name")


@hidden_test(
    "RMSNorm",
    "RMSNorm's weight scales each column after the division",
    hint="Multiply the normalised vectors by self.weight, entry by entry. Before the division a scale would cancel.",
    weight=2,
)
def test_weight(student: Student, check: Check) -> None:
    layer, x = student.RMSNorm(6), check.randn(2, 3, 6)
    weight = torch.tensor([0.0, 1.0, -2.0, 0.5, 3.0, 10.0])
    layer.load_state_dict({"weight": weight})
    check.close(layer(x), truth(x, weight), "weight (0, 1, -2, 0.5, 3, 10)")


@hidden_test(
    "RMSNorm",
    "RMSNorm treats each token on its own, whatever else is in the batch",
    hint="The mean runs over the last dimension only, with keepdim=True: not over positions, nor over the batch.",
    weight=2,
)
def test_per_token(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 7)
    x = check.randn(3, 4, 7)
    token = truth(x[1, 2], weight)
    for what, change in (("sequence", (1, 3)), ("sequences", (2, slice(None))), ("first sequence", (0, slice(None)))):
        changed = x.clone()
        changed[change] = 50 * check.randn(*changed[change].shape) + 20
        check.close(layer(changed)[1, 2], token, f"one token, after others changed ({what})")
    same = check.randn(4, 4)  # as many tokens as the width
    layer, weight = loaded(student, check, 4)
    check.close(layer(same), truth(same, weight), "4 tokens of width 4")


@hidden_test(
    "RMSNorm",
    "RMSNorm works with any number of leading dimensions, even none",
    hint="dim=-1 counts from the end and works for every shape; do not unpack x.shape into three names.",
)
def test_leading(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 6)
    for shape in ((6,), (1, 6), (5, 6), (2, 3, 6), (2, 3, 4, 6), (2, 1, 2, 3, 6)):
        x = check.randn(*shape)
        check.close(layer(x), truth(x, weight), f"x of shape {shape}")


@hidden_test(
    "RMSNorm",
    "RMSNorm takes the mean of squares of half-precision input in float32",
    hint="Convert x to float32 first. Above 255 a square overflows float16, and below 0.0002 it vanishes.",
    weight=2,
)
def test_half(student: Student, check: Check) -> None:
    # The scale may run in half precision: a few roundings of numbers up to 8.
    layer, weight = loaded(student, check, 11)
    x = check.randn(3, 11, dtype=torch.float16, scale=600)
    check.close(layer(x), truth(x, weight), "float16 numbers near 600", rtol=1e-2, atol=1e-2)
    layer, weight = loaded(student, check, 11, 1e-12)
    x = check.randn(5, 11, dtype=torch.float16, scale=1e-4)
    check.close(layer(x), truth(x, weight, 1e-12), "float16 numbers near 0.0001, eps=1e-12", rtol=1e-2, atol=1e-2)
    layer, weight = loaded(student, check, 99)
    x = check.randn(8, 99, dtype=torch.bfloat16)
    check.close(layer(x), truth(x, weight), "bfloat16 numbers near 1", rtol=2e-2, atol=1e-2)


@hidden_test(
    "RMSNorm",
    "RMSNorm's output has the dtype of its input",
    hint="Convert the result back at the end, to x.dtype. A float32 weight turns a float16 product into float32.",
)
def test_dtype(student: Student, check: Check) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for parameters in (torch.float32, dtype):
            layer, weight = loaded(student, check, 7, dtype=parameters)
            x = check.randn(2, 3, 7, dtype=dtype)
            got = check.tensor(layer(x), (2, 3, 7), f"{dtype} input, {parameters} parameters", dtype)
            want, off = truth(x, weight), 8 * torch.finfo(dtype).eps
            check.close(got, want, f"{dtype} input, {parameters} parameters", rtol=off, atol=off)


@hidden_test(
    "RMSNorm",
    "RMSNorm keeps float64 in float64",
    hint="Convert to float32 only what is not float64; .float() rounds away nine of its sixteen digits.",
)
def test_double(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 9, dtype=torch.float64)
    x = check.randn(4, 9, dtype=torch.float64)
    got = check.tensor(layer(x), (4, 9), "float64 input", torch.float64)
    check.close(got, truth(x, weight), "float64 input")


@hidden_test(
    "RMSNorm",
    "RMSNorm is built by hand",
    hint="The exercise is to build it from a mean, products and a root; F.rms_norm and its kin do not count. Otherwise "
    "at most half of the points are to be had.",
    weight=3,
    at_most=0.5,
)
def test_by_hand(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 6)
    x = check.randn(3, 6)
    check.close(layer(x), truth(x, weight), "d=6")
    called = student.fixtures.operators(layer, x)
    check.true(bool(called), "expected torch operators to run, none did")
    ready = [name for name in (*called, *student.fixtures.functions(layer, x)) if any(part in name for part in READY)]
    check.equal(ready, [], "torch's own normalisations that RMSNorm calls")


@hidden_test(
    "RMSNorm",
    "RMSNorm's gradients equal torch's, for input and scale",
    hint="The mean of squares depends on x too: no .detach() or torch.no_grad() on the way. Otherwise at most three "
    "fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 5)
    x, probe = check.randn(2, 3, 5).requires_grad_(), check.randn(2, 3, 5)
    (layer(x) * probe).sum().backward()
    leaves = [leaf.detach().clone().requires_grad_() for leaf in (x, weight)]
    want = torch.autograd.grad((truth(leaves[0], leaves[1]) * probe).sum(), leaves)
    check.close(x.grad, want[0], "the gradient of x")
    check.close(layer.grads().get("weight"), want[1], "the gradient of weight")


@hidden_test(
    "RMSNorm",
    "RMSNorm leaves its input as it was",
    hint="No operator that ends in an underscore, and no *= or /=, on x. Converting float32 to float32 copies nothing.",
)
def test_input(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 6)
    x = check.randn(2, 5, 6)
    check.true(student.fixtures.unchanged(layer, x), "the layer changed x in the caller's hands")
    check.true(student.fixtures.unchanged(layer, x.double()), "the layer changed a float64 x in the caller's hands")
    x = check.randn(6, 5, 2).permute(2, 1, 0)
    check.close(layer(x), truth(x, weight), "tokens that are not contiguous")


@hidden_test(
    "RMSNorm",
    "a wrong width is a ValueError of RMSNorm that names both widths",
    hint="Compare x.shape[-1] with d. Without that, a width of 1 would be broadcast to d and nobody would notice.",
)
def test_width(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 13)
    x = check.randn(2, 13)
    check.close(layer(x), truth(x, weight), "the right width, 13")
    check.raises(ValueError, lambda: layer(check.randn(2, 1)), "width 1 for RMSNorm(13)", mentions=[13, 1])
    check.raises(ValueError, lambda: layer(check.randn(13, 7)), "width 7 for RMSNorm(13)", mentions=[13, 7])
