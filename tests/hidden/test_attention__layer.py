"""Hidden tests of chapter 02, the fourth exercise: SelfAttention."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

NAMES = ("q_proj.weight", "k_proj.weight", "v_proj.weight")


def loaded(
    student: Student, check: Check, d_model: int, d_head: int, dtype: torch.dtype = torch.float32
) -> tuple[Any, dict[str, Tensor]]:
    """A layer with known matrices, large enough that every one of them matters."""
    layer = student.SelfAttention(d_model, d_head)
    layer.to(dtype)
    weights = {name: check.randn(d_head, d_model, dtype=dtype, scale=1.2 / d_model**0.5) for name in NAMES}
    layer.load_state_dict(weights)
    return layer, weights


def truth(x: Tensor, weights: dict[str, Tensor], mask: Tensor | None = None) -> Tensor:
    """The layer by torch's own operators in float64."""
    q, k, v = (x.double() @ weights[name].double().mT for name in NAMES)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=None if mask is None else torch.atleast_2d(mask))


@hidden_test(
    "SelfAttention",
    "its parameters are q_proj, k_proj and v_proj, without bias, from d_model to d_head",
    hint="Three nn.Linear(d_model, d_head, bias=False), under these names; a weight is stored as (out, in).",
    weight=2,
)
def test_parameters(student: Student, check: Check) -> None:
    for d_model, d_head in ((6, 4), (3, 11)):
        layer = student.SelfAttention(d_model, d_head)
        check.equal(sorted(layer.state_dict()), sorted(NAMES), f"names in the state dict, sizes {d_model}, {d_head}")
        for name, weight in layer.state_dict().items():
            check.tensor(weight, (d_head, d_model), f"{name} of SelfAttention({d_model}, {d_head})", torch.float32)
    layer = student.SelfAttention(d_model=5, d_head=2)
    check.tensor(layer.q_proj.weight, (2, 5), "q_proj.weight, sizes passed by name")


@hidden_test(
    "SelfAttention",
    "the output is attention over the projected tokens",
    hint="Queries, keys and values are the three projections of the same x; the output is what `attention` makes of "
    "them, with nothing added.",
    weight=3,
)
def test_formula(student: Student, check: Check) -> None:
    for d_model, d_head in ((12, 5), (4, 9), (7, 7)):
        layer, weights = loaded(student, check, d_model, d_head)
        x = check.randn(2, 6, d_model)
        check.close(layer(x), truth(x, weights), f"d_model={d_model}, d_head={d_head}")
    layer, weights = loaded(student, check, 5, 3, torch.float64)
    x = check.randn(4, 5, dtype=torch.float64)
    check.close(layer(x), truth(x, weights), "the same in float64")


def without(student: Student, check: Check, name: str) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Output and input of a layer whose matrix `name` is zero, and its matrices."""
    layer, weights = loaded(student, check, 8, 5)
    weights[name] = torch.zeros(5, 8)
    layer.load_state_dict(weights)
    x = check.randn(6, 8)
    return layer(x), x, weights


@hidden_test(
    "SelfAttention",
    "the queries come from q_proj",
    hint="With q_proj at zero all scores are zero, and each output is the plain mean of the values.",
)
def test_queries(student: Student, check: Check) -> None:
    got, x, weights = without(student, check, "q_proj.weight")
    values = x.double() @ weights["v_proj.weight"].double().mT
    check.close(got, values.mean(0).expand(6, 5), "q_proj zero: expected the mean of the values")
    layer, weights = loaded(student, check, 8, 5)
    check.close(layer(x), truth(x, weights), "q_proj not zero")


@hidden_test(
    "SelfAttention",
    "the keys come from k_proj",
    hint="With k_proj at zero all scores are zero, and each output is the plain mean of the values.",
)
def test_keys(student: Student, check: Check) -> None:
    got, x, weights = without(student, check, "k_proj.weight")
    values = x.double() @ weights["v_proj.weight"].double().mT
    check.close(got, values.mean(0).expand(6, 5), "k_proj zero: expected the mean of the values")
    layer, weights = loaded(student, check, 8, 5)
    check.close(layer(x), truth(x, weights), "k_proj not zero")


@hidden_test(
    "SelfAttention",
    "the values come from v_proj",
    hint="With v_proj at zero there is nothing to deliver: the output is zero.",
)
def test_values(student: Student, check: Check) -> None:
    got, x, _ = without(student, check, "v_proj.weight")
    check.close(got, torch.zeros(6, 5), "v_proj zero: expected zeros")
    layer, weights = loaded(student, check, 8, 5)
    before = layer(x)
    layer.load_state_dict({**weights, "v_proj.weight": 3 * weights["v_proj.weight"]})
    check.close(layer(x), 3 * before.double(), "v_proj three times as large: expected three times the output")
    check.true(bool(before.abs().max() > 1e-3), "the output of random tokens is zero")


@hidden_test(
    "SelfAttention",
    "the three matrices are three, and start at random",
    hint="Make three layers: under two names, one layer would be one matrix. Leave them as nn.Linear starts them.",
)
def test_separate(student: Student, check: Check) -> None:
    layer = student.SelfAttention(7, 4)
    first = {name: weight.clone() for name, weight in layer.state_dict().items()}
    check.equal(sorted(first), sorted(NAMES), "the names in the state dict")
    for one, other in ((0, 1), (0, 2), (1, 2)):
        differ = not torch.equal(first[NAMES[one]], first[NAMES[other]])
        check.true(differ, f"{NAMES[one]} and {NAMES[other]} start with the same numbers")
    layer, weights = loaded(student, check, 7, 4)
    for name in NAMES:
        check.close(layer.state_dict()[name], weights[name], f"{name}, after three different matrices were loaded")


@hidden_test(
    "SelfAttention",
    "the mask is used: no output depends on a later token",
    hint="Pass the mask on to `attention`. Otherwise at most three fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_mask(student: Student, check: Check) -> None:
    T = 6
    layer, weights = loaded(student, check, 9, 4)
    x = check.randn(2, T, 9)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    check.close(layer(x, mask=mask), truth(x, weights, mask), "the output under a causal mask")
    s = check.integer(2, T)
    changed = x.clone()
    changed[:, s:] = check.randn(2, T - s, 9)
    check.close(layer(changed, mask)[:, :s], layer(x, mask)[:, :s], f"tokens {s} and later changed: outputs before {s}")
    padding = torch.tensor([True, True, False, True, False, True])
    check.close(layer(x, padding), truth(x, weights, padding), "tokens 2 and 4 hidden from all")


@hidden_test(
    "SelfAttention",
    "without a mask every token sees every token",
    hint="The layer is not causal by itself: without a mask nothing is hidden, and shuffled tokens give the same "
    "outputs, shuffled alike.",
)
def test_no_mask(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 8, 3)
    x = check.randn(2, 7, 8)
    plain = layer(x)
    check.close(plain, truth(x, weights), "the output without a mask")
    order = check.shuffled(range(7))
    check.close(layer(x[:, order]), plain[:, order], "tokens shuffled: expected the outputs shuffled alike")
    layer(x, torch.ones(7, 7, dtype=torch.bool).tril())
    check.close(layer(x), plain, "no mask again, after a call with one")


@hidden_test(
    "SelfAttention",
    "any number of leading dimensions works, a single token too",
    hint="Neither unpack x.shape into three names nor reshape: nn.Linear and `attention` work on the last dimensions.",
)
def test_leading_dimensions(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 6, 5)
    for shape in ((4, 6), (1, 6), (1, 3, 6), (2, 3, 6), (2, 3, 4, 6)):
        x = check.randn(*shape)
        check.close(layer(x), truth(x, weights), f"x of shape {shape}")


@hidden_test(
    "SelfAttention",
    "scores are divided by the square root of d_head, not of d_model",
    hint="The dot product has d_head terms, whatever the width of the tokens.",
    weight=2,
)
def test_scale(student: Student, check: Check) -> None:
    for d_model, d_head in ((31, 2), (3, 40)):
        layer, weights = loaded(student, check, d_model, d_head)
        x = 2 * check.randn(5, d_model)
        check.close(layer(x), truth(x, weights), f"d_model={d_model}, d_head={d_head}")


@hidden_test(
    "SelfAttention",
    "gradients reach the input and all three matrices",
    hint="A .detach() or torch.no_grad() on the way leaves a matrix that never learns. Otherwise at most three "
    "fifths of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 6, 4)
    x, probe = check.randn(2, 5, 6).requires_grad_(), check.randn(2, 5, 4)
    (layer(x) * probe).sum().backward()
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    y = x.detach().clone().requires_grad_()
    want = torch.autograd.grad((truth(y, leaves) * probe).sum(), [y, *leaves.values()])
    check.close(x.grad, want[0], "the gradient of x")
    got = layer.grads()
    for name, gradient in zip(NAMES, want[1:], strict=True):
        check.close(got.get(name), gradient, f"the gradient of {name}")


@hidden_test(
    "SelfAttention",
    "the tokens passed in are left as they were",
    hint="No operator that ends in an underscore on x.",
)
def test_input(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 6, 4)
    x = check.randn(2, 5, 6)
    check.true(student.fixtures.unchanged(layer, x), "the layer changed x in the caller's hands")
    x = check.randn(6, 5, 2).permute(2, 1, 0)
    check.close(layer(x), truth(x, weights), "tokens that are not contiguous")
