"""Hidden tests of chapter 06: Residual and gradient_norms."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

# Residual


class Wrapped:
    """A Residual of the student around a linear sublayer and a LayerNorm, and the truth in float64."""

    def __init__(
        self, student: Student, check: Check, D: int, placement: str | None, dtype: torch.dtype = torch.float32
    ):
        linear, norm = student.torch.nn.Linear(D, D), student.torch.nn.LayerNorm(D)
        self.layer = student.Residual(linear, norm) if placement is None else student.Residual(linear, norm, placement)
        self.layer.to(dtype)
        self.placement = placement or "pre"
        self.weights = {
            "sublayer.weight": check.randn(D, D, dtype=dtype),
            "sublayer.bias": check.randn(D, dtype=dtype),
            "norm.weight": check.randn(D, dtype=dtype),
            "norm.bias": check.randn(D, dtype=dtype),
        }
        self.layer.load_state_dict(self.weights)

    def truth(self, x: Tensor, weights: dict[str, Tensor] | None = None) -> Tensor:
        """Both placements, written out."""
        w = {name: value.double() for name, value in (weights or self.weights).items()}
        y = x.double()

        def norm(z: Tensor) -> Tensor:
            return F.layer_norm(z, z.shape[-1:], w["norm.weight"], w["norm.bias"])

        def sublayer(z: Tensor) -> Tensor:
            return F.linear(z, w["sublayer.weight"], w["sublayer.bias"])

        return y + sublayer(norm(y)) if self.placement == "pre" else norm(y + sublayer(y))


@hidden_test(
    "Residual",
    "pre: the output is x + sublayer(norm(x))",
    hint="Norm first, then the sublayer, then add the x that came in, not the normed one.",
    weight=3,
)
def test_pre(student: Student, check: Check) -> None:
    for D in (5, 8):
        one = Wrapped(student, check, D, "pre")
        x = 3 * check.randn(2, 4, D) + 1
        check.close(one.layer(x), one.truth(x), f"placement='pre', D={D}")


@hidden_test(
    "Residual",
    "post: the output is norm(x + sublayer(x))",
    hint="The sublayer sees x as it came; the norm comes last, over the sum.",
    weight=3,
)
def test_post(student: Student, check: Check) -> None:
    for D in (5, 8):
        one = Wrapped(student, check, D, "post")
        x = 3 * check.randn(2, 4, D) + 1
        check.close(one.layer(x), one.truth(x), f"placement='post', D={D}")


@hidden_test(
    "Residual",
    "the placement is pre unless another is asked for",
    hint="The default of the argument is 'pre'.",
)
def test_default(student: Student, check: Check) -> None:
    one = Wrapped(student, check, 6, None)
    x = check.randn(3, 6)
    check.close(one.layer(x), one.truth(x), "no placement named")


@hidden_test(
    "Residual",
    "pre: where the sublayer gives zero, x passes untouched",
    hint="Nothing stands on the straight road in pre-norm: no norm, no scale, no sublayer.",
    weight=2,
)
def test_road(student: Student, check: Check) -> None:
    one = Wrapped(student, check, 7, "pre")
    x = 50 * check.randn(2, 3, 7)
    check.close(one.layer(x), one.truth(x), "a sublayer that works")
    zero = {"sublayer.weight": torch.zeros(7, 7), "sublayer.bias": torch.zeros(7)}
    one.layer.load_state_dict({**one.weights, **zero})
    check.close(one.layer(x), x, "a sublayer of zeros: expected x itself")


@hidden_test(
    "Residual",
    "keyword arguments reach the sublayer, in both placements",
    hint="def forward(self, x, **kwargs), and self.sublayer(..., **kwargs). The norm takes none.",
    weight=2,
)
def test_kwargs(student: Student, check: Check) -> None:
    D = 4
    for placement in ("pre", "post"):
        layer = student.Residual(student.torch.nn.Bilinear(D, D, D), student.torch.nn.LayerNorm(D), placement)
        weight, bias = check.randn(D, D, D), check.randn(D)
        ones, zeros = torch.ones(D), torch.zeros(D)
        layer.load_state_dict(
            {"sublayer.weight": weight, "sublayer.bias": bias, "norm.weight": ones, "norm.bias": zeros}
        )
        x, z = check.randn(3, D), check.randn(3, D)
        y, w = x.double(), weight.double()
        inside = F.layer_norm(y, (D,)) if placement == "pre" else y
        total = y + torch.einsum("ni,oij,nj->no", inside, w, z.double()) + bias.double()
        want = total if placement == "pre" else F.layer_norm(total, (D,))
        check.close(layer(x, input2=z), want, f"placement={placement!r}, a sublayer that takes input2=")


@hidden_test(
    "Residual",
    "the sublayer and the norm run once each",
    hint="Keep the sublayer's output in a variable where it is needed twice; do not normalise both roads.",
)
def test_once(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        one = Wrapped(student, check, 6, placement)
        x = check.randn(3, 6)
        names = student.fixtures.operators(one.layer, x)
        check.equal(names.count("addmm"), 1, f"placement={placement!r}: runs of a linear sublayer")
        check.equal(names.count("native_layer_norm"), 1, f"placement={placement!r}: runs of a LayerNorm")
        check.close(one.layer(x), one.truth(x), f"placement={placement!r}")


@hidden_test(
    "Residual",
    "its parts are called sublayer and norm, and are the modules it was given",
    hint="self.sublayer = sublayer and self.norm = norm: no copy, no layer of its own.",
)
def test_names(student: Student, check: Check) -> None:
    linear, norm = student.torch.nn.Linear(3, 3), student.torch.nn.LayerNorm(3)
    layer = student.Residual(sublayer=linear, norm=norm, placement="post")
    names = ["norm.bias", "norm.weight", "sublayer.bias", "sublayer.weight"]
    check.equal(sorted(layer.state_dict()), names, "names in the state dict")
    weight = check.randn(3, 3)
    layer.load_state_dict({"sublayer.weight": weight}, strict=False)
    check.close(
        linear.state_dict()["weight"], weight, "the module handed in, after its weight was loaded through the layer"
    )
    x = check.randn(2, 3)
    want = F.layer_norm(x + F.linear(x, weight, linear.state_dict()["bias"]), (3,))
    check.close(layer(x), want, "the output")


@hidden_test(
    "Residual",
    "another placement is a ValueError that names it",
    hint="Check in __init__: only 'pre' and 'post' are placements. Put the one that came into the message.",
)
def test_refuses(student: Student, check: Check) -> None:
    for wrong in ("before", "Pre", ""):
        call = partial(student.Residual, student.torch.nn.Linear(3, 3), student.torch.nn.LayerNorm(3), wrong)
        check.raises(ValueError, call, f"placement={wrong!r}", mentions=(wrong, "pre", "post"))
    one = Wrapped(student, check, 5, "post")
    x = check.randn(2, 5)
    check.close(one.layer(x), one.truth(x), "placement='post'")


@hidden_test(
    "Residual",
    "gradients reach x by both roads, and all parameters",
    hint="A .detach() or torch.no_grad() on either road cuts it. Otherwise at most three fifths of the points are to "
    "be had.",
    weight=2,
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        one = Wrapped(student, check, 5, placement)
        x, probe = check.randn(3, 5).requires_grad_(), check.randn(3, 5)
        (one.layer(x) * probe).sum().backward()
        leaves = {name: weight.clone().requires_grad_() for name, weight in one.weights.items()}
        y = x.detach().clone().requires_grad_()
        want = torch.autograd.grad((one.truth(y, leaves) * probe).sum(), [y, *leaves.values()])
        check.close(x.grad, want[0], f"placement={placement!r}: the gradient of x")
        got = one.layer.grads()
        for name, gradient in zip(leaves, want[1:], strict=True):
            check.close(got.get(name), gradient, f"placement={placement!r}: the gradient of {name}")


@hidden_test(
    "Residual",
    "the stream passed in is left as it was",
    hint="x += ... overwrites the caller's stream, and what autograd had kept of it. x + ... makes a new tensor.",
)
def test_input(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        one = Wrapped(student, check, 6, placement, torch.float64)
        x = check.randn(6, 4, 2, dtype=torch.float64).permute(2, 1, 0)
        check.true(student.fixtures.unchanged(one.layer, x), f"placement={placement!r}: the layer changed x")
        check.close(one.layer(x), one.truth(x), f"placement={placement!r}, not contiguous, float64")


# gradient_norms


def stack(student: Student, check: Check, sizes: Sequence[int], tanh: bool = True) -> tuple[Any, list[Tensor]]:
    """Linear layers of these sizes without bias, a tanh after each if asked for; and their weights."""
    modules: list[Any] = []
    for inner, outer in pairwise(sizes):
        modules.append(student.torch.nn.Linear(inner, outer, bias=False))
        if tanh:
            modules.append(student.torch.nn.Tanh())
    whole = student.torch.nn.Sequential(*modules)
    step = 2 if tanh else 1
    weights = [check.randn(outer, inner) for inner, outer in pairwise(sizes)]
    whole.load_state_dict({f"{step * i}.weight": weight for i, weight in enumerate(weights)})
    return whole, weights


def norms(weights: list[Tensor], x: Tensor, tanh: bool = True) -> list[float]:
    """The definition, in float64."""
    functions: list[Callable[[Tensor], Tensor]] = []
    for weight in weights:
        functions.append(partial(F.linear, weight=weight.double()))
        if tanh:
            functions.append(torch.tanh)
    stream = [x.double().requires_grad_()]
    for function in functions:
        stream.append(function(stream[-1]))
    gradients = torch.autograd.grad(stream[-1][..., 0].sum(), stream[:-1])
    return [float(gradient.square().sum().sqrt()) for gradient in gradients]


def compare(check: Check, got: Any, want: list[float], what: str) -> None:
    check.true(isinstance(got, list | tuple), f"{what}: expected a list of numbers")
    check.equal(len(got), len(want), f"{what}: how many norms")
    for layer, (came, expected) in enumerate(zip(got, want, strict=True)):
        check.true(isinstance(came, float), f"{what}: entry {layer} is not a Python float; use .item()")
        check.close(came, expected, f"{what}: the gradient at the input of layer {layer}", rtol=1e-4)


@hidden_test(
    "gradient_norms",
    "layers that double each double the gradient on its way back",
    hint="Three layers, each doubling: the last one's input sees a gradient of 2, the one before of 4, the first of 8, "
    "each times the root of how many outputs are summed.",
    weight=2,
)
def test_by_hand(student: Student, check: Check) -> None:
    whole = student.torch.nn.Sequential(*(student.torch.nn.Linear(2, 2, bias=False) for _ in range(3)))
    whole.load_state_dict({f"{i}.weight": 2 * torch.eye(2) for i in range(3)})
    got = student.gradient_norms(whole, check.randn(9, 2))  # 9 rows: sqrt(9) = 3
    compare(check, got, [24.0, 12.0, 6.0], "three doubling layers, 9 rows")


@hidden_test(
    "gradient_norms",
    "one norm for each layer, the first layer's first",
    hint="Entry l belongs to the input of layer l. Gradients arrive from the back: mind the order.",
    weight=2,
)
def test_order(student: Student, check: Check) -> None:
    for sizes in ((3, 5, 2, 4), (4, 2)):
        whole, weights = stack(student, check, sizes, tanh=False)
        x = check.randn(5, sizes[0])
        what = f"linear layers of sizes {sizes}"
        compare(check, student.gradient_norms(whole, x), norms(weights, x, tanh=False), what)


@hidden_test(
    "gradient_norms",
    "the gradient is that of the sum of the output's first column",
    hint="output[..., 0].sum(): not the whole output, not its mean, not its squares.",
    weight=2,
)
def test_scalar(student: Student, check: Check) -> None:
    whole, weights = stack(student, check, (4, 6, 3))
    for shape in ((7, 4), (2, 3, 4)):
        x = check.randn(*shape)
        compare(check, student.gradient_norms(whole, x), norms(weights, x), f"tanh layers, x of shape {shape}")


@hidden_test(
    "gradient_norms",
    "a norm is the root of the sum of squares, over all numbers",
    hint="gradient.norm(): over batch and width together, with the root.",
)
def test_norm(student: Student, check: Check) -> None:
    whole = student.torch.nn.Sequential(student.torch.nn.Linear(3, 3, bias=False))
    weight = torch.tensor([[3.0, 4.0, 0.0], [1.0, 1.0, 1.0], [2.0, 0.0, 5.0]])
    whole.load_state_dict({"0.weight": weight})
    compare(check, student.gradient_norms(whole, check.randn(4, 3)), [10.0], "row (3, 4, 0), 4 rows: 5 times 2")
    compare(check, student.gradient_norms(whole, check.randn(1, 3)), [5.0], "the same, one row")


@hidden_test(
    "gradient_norms",
    "each layer gets the output of the layer before",
    hint="Run them one after the other. A detach between two layers would stop the gradient there.",
)
def test_chain(student: Student, check: Check) -> None:
    whole, weights = stack(student, check, (3, 4, 4, 2))
    x = check.randn(6, 3)
    compare(check, student.gradient_norms(whole, x), norms(weights, x), "three linear layers with tanh between")


@hidden_test(
    "gradient_norms",
    "the parameters' gradients are left as they were",
    hint="torch.autograd.grad(loss, inputs) returns gradients and keeps none; .backward() adds to every parameter's.",
    weight=2,
)
def test_no_trace(student: Student, check: Check) -> None:
    whole, weights = stack(student, check, (3, 4, 2))
    x = check.randn(5, 3)
    compare(check, student.gradient_norms(whole, x), norms(weights, x), "the first call")
    kept = [name for name, gradient in whole.grads().items() if gradient is not None]
    check.equal(kept, [], "parameters that have a gradient after the call")
    compare(check, student.gradient_norms(whole, x), norms(weights, x), "a second call")


@hidden_test(
    "gradient_norms",
    "the input may or may not ask for gradients itself, and is left as it was",
    hint="x.detach().requires_grad_() is a stream of your own to start from.",
)
def test_start(student: Student, check: Check) -> None:
    whole, weights = stack(student, check, (3, 4, 2))
    x = check.randn(5, 3)
    want = norms(weights, x)
    compare(check, student.gradient_norms(whole, x), want, "a plain input")
    compare(check, student.gradient_norms(whole, x.clone().requires_grad_()), want, "an input that requires gradients")
    check.true(student.fixtures.unchanged(student.gradient_norms, whole, x), "the input was changed")
