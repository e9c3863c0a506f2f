"""Hidden tests of chapter 06, continued: the edges of Residual and gradient_norms."""

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden.test_residual_connection import compare, norms, stack


@hidden_test(
    "Residual",
    "the norm is the module that was handed in, whatever it is",
    hint="self.norm = norm, and call it: no copy, and no LayerNorm of your own.",
    weight=2,
)
def test_norm_handed_in(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        norm = student.torch.nn.LayerNorm(4, eps=0.5)
        layer = student.Residual(student.fixtures.Times(3.0), norm, placement)
        weight, bias = check.randn(4), check.randn(4)
        layer.load_state_dict({"norm.weight": weight, "norm.bias": bias})
        check.close(norm.state_dict()["weight"], weight, "the weight of the norm handed in")
        x = check.randn(3, 4)
        y = x.double()
        inner = y if placement == "pre" else 4 * y
        normed: Tensor = F.layer_norm(inner, (4,), weight.double(), bias.double(), 0.5)
        want = y + 3 * normed if placement == "pre" else normed
        check.close(layer(x), want, f"placement={placement!r}, a LayerNorm with eps=0.5")
        layer = student.Residual(student.fixtures.Times(3.0), student.fixtures.Times(2.0), placement)
        check.close(layer(x), 7 * y if placement == "pre" else 8 * y, f"placement={placement!r}, a norm that doubles")


@hidden_test(
    "Residual",
    "what the sublayer returned is left as it was too",
    hint="y += x writes into the output of the sublayer: that may be x itself, or what autograd has kept.",
)
def test_output_kept(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        identity = student.torch.nn.Identity()
        layer = student.Residual(identity, identity, placement)
        x = check.randn(3, 4)
        check.true(
            student.fixtures.unchanged(layer, x), f"{placement}, a sublayer that returns its input: x was changed"
        )
        check.close(layer(x), 2 * x, f"{placement}, a sublayer that returns its input")
        layer = student.Residual(student.torch.nn.Tanh(), identity, placement)
        x = check.randn(3, 4).requires_grad_()
        check.tensor(layer(x), (3, 4), "a tanh").sum().backward()
        check.close(
            x.grad, 2 - torch.tanh(x.detach()).square(), f"placement={placement!r}: the gradient of x + tanh(x)"
        )


@hidden_test(
    "gradient_norms",
    "gradients that parameters hold already stay, and they go on learning",
    hint="torch.autograd.grad touches no .grad; .backward() and then zero_grad() throws away what was there.",
    weight=2,
)
def test_gradients_stay(student: Student, check: Check) -> None:
    whole, weights = stack(student, check, (3, 4, 2))
    x, probe = check.randn(5, 3), check.randn(5, 2)
    (whole(x) * probe).sum().backward()
    before = {name: gradient.clone() for name, gradient in whole.grads().items()}
    compare(check, student.gradient_norms(whole, x), norms(weights, x), "parameters that hold gradients")
    after = whole.grads()
    for name, gradient in before.items():
        check.close(after.get(name), gradient, f"the gradient that {name} held before the call")
    (whole(x) * probe).sum().backward()
    after = whole.grads()
    for name, gradient in before.items():
        check.close(after.get(name), 2 * gradient, f"the gradient of {name} after one more backward()")


@hidden_test(
    "gradient_norms",
    "any iterable of layers will do, gone through once",
    hint="for layer in stack: no len(), no index, and no stack(x).",
)
def test_iterable(student: Student, check: Check) -> None:
    whole, weights = stack(student, check, (3, 4, 2))
    x = check.randn(5, 3)
    compare(check, student.gradient_norms(whole.children(), x), norms(weights, x), "layers that come one by one")
    compare(
        check,
        student.gradient_norms(student.torch.nn.ModuleList(whole.children()), x),
        norms(weights, x),
        "an nn.ModuleList",
    )
