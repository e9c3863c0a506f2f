"""Hidden tests of chapter 18: MixtureOfExperts."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def loaded(student: Student, check: Check, D: int, Ff: int, E: int, k: int) -> tuple[Any, dict[str, Tensor]]:
    """A layer with known weights, large enough that each of them matters."""
    layer = student.MixtureOfExperts(D, Ff, E, k)
    weights = {"router.weight": check.randn(E, D, scale=2 / D**0.5)}
    for e in range(E):
        for name, out, into in (("gate_proj", Ff, D), ("up_proj", Ff, D), ("down_proj", D, Ff)):
            weights[f"experts.{e}.{name}.weight"] = check.randn(out, into, scale=1.5 / into**0.5)
    state = {name: list(value.shape) for name, value in layer.state_dict().items()}
    want = {name: list(value.shape) for name, value in weights.items()}
    check.equal(dict(sorted(state.items())), dict(sorted(want.items())), f"names and shapes, D={D}, F={Ff}, E={E}")
    layer.load_state_dict(weights)
    return layer, weights


def truth(x: Tensor, weights: dict[str, Tensor], k: int, indices: Tensor | None = None) -> Tensor:
    """The layer in float64, with every expert run on every token."""
    w = {name: value.double() for name, value in weights.items()}
    E, D = w["router.weight"].shape
    rows = x.double().reshape(-1, D)
    probs = F.linear(rows, w["router.weight"]).softmax(dim=-1)
    indices = probs.topk(k, dim=-1).indices if indices is None else indices
    kept = probs.gather(1, indices)
    share = torch.zeros_like(probs).scatter(1, indices, kept / kept.sum(dim=-1, keepdim=True))  # (M, E)
    output = torch.zeros_like(rows)
    for e in range(E):
        gate, up, down = (w[f"experts.{e}.{name}_proj.weight"] for name in ("gate", "up", "down"))
        output = output + share[:, e : e + 1] * F.linear(F.silu(F.linear(rows, gate)) * F.linear(rows, up), down)
    return output.reshape(x.shape)


def probabilities(x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    router = weights["router.weight"].double()
    return F.linear(x.double().reshape(-1, router.shape[1]), router).softmax(dim=-1)


@hidden_test(
    "MixtureOfExperts",
    "it holds a router without bias and E SwiGLU experts, under the names of the conventions",
    hint="self.router = nn.Linear(..., bias=False) and self.experts = nn.ModuleList([...]).",
    weight=2,
)
def test_parameters(student: Student, check: Check) -> None:
    for D, Ff, E, k in ((6, 10, 3, 2), (5, 4, 7, 1)):
        layer, weights = loaded(student, check, D, Ff, E, k)
        x = check.randn(4, D)
        check.close(layer(x), truth(x, weights, k), f"the output, D={D}, F={Ff}, E={E}, k={k}")


@hidden_test(
    "MixtureOfExperts",
    "the output is the chosen experts' outputs, times their weights, summed",
    hint="Scores by the router, your route, then dispatch of chapter 17.",
    weight=3,
)
def test_output(student: Student, check: Check) -> None:
    for D, Ff, E, k, M in ((6, 9, 5, 2, 17), (4, 3, 6, 1, 13), (7, 5, 3, 3, 8), (3, 8, 4, 3, 1), (5, 2, 1, 1, 4)):
        layer, weights = loaded(student, check, D, Ff, E, k)
        x = check.randn(M, D)
        check.close(layer(x), truth(x, weights, k), f"D={D}, F={Ff}, E={E}, k={k}, {M} tokens")


@hidden_test(
    "MixtureOfExperts",
    "any leading dimensions work, and come back",
    hint="Flatten to (M, D) for the router and dispatch, and reshape to x.shape at the end.",
    weight=2,
)
def test_leading(student: Student, check: Check) -> None:
    D, E, k = 6, 5, 2
    layer, weights = loaded(student, check, D, 7, E, k)
    for shape in ((4, D), (2, 3, D), (1, 1, D), (2, 3, 4, D)):
        x = check.randn(*shape)
        check.close(layer(x), truth(x, weights, k), f"tokens of shape {shape}")
        check.tensor(layer.indices, (x.numel() // D, k), f"indices after tokens of shape {shape}", torch.int64)
    x = check.randn(3, 2, D).transpose(0, 1)
    check.close(layer(x), truth(x, weights, k), "tokens that are not contiguous")


@hidden_test(
    "MixtureOfExperts",
    "an expert without tokens is not run",
    hint="dispatch of chapter 17 calls only experts with rows. A weight of zero is not enough: 0 times NaN is NaN.",
    weight=2,
    at_most=0.6,
)
def test_idle(student: Student, check: Check) -> None:
    D, E, k, M = 6, 5, 2, 9
    layer, weights = loaded(student, check, D, 8, E, k)
    idle = check.shuffled(range(E))[: E - k]
    direction = check.randn(D)
    weights["router.weight"] = direction.expand(E, D).clone()
    for rank, e in enumerate(idle):  # always behind the others
        weights["router.weight"][e] *= -1 - rank
    busy = [e for e in range(E) if e not in idle]
    weights["router.weight"][busy[0]] *= 2
    broken = dict(weights)
    for e in idle:
        broken[f"experts.{e}.up_proj.weight"] = torch.full_like(weights[f"experts.{e}.up_proj.weight"], torch.nan)
    x = direction + 0.1 * check.randn(M, D)
    layer.load_state_dict(weights)
    check.close(layer(x), truth(x, weights, k), "the output")
    layer.load_state_dict(broken)
    check.close(layer(x), truth(x, weights, k), f"experts {sorted(idle)} have no tokens and weights of NaN: the output")
    counting = student.fixtures.CountingExperts(check.randn(E, D, D), check.randn(E, D))
    layer.register_module("experts", counting)
    layer(x)
    check.equal(counting.calls(), [0 if e in idle else 1 for e in range(E)], "how often each expert was called")


@hidden_test(
    "MixtureOfExperts",
    "each expert is given its own tokens and no others",
    hint="Not every expert for every token with most weights zero: that costs E times the work.",
    weight=2,
    at_most=0.6,
)
def test_own_tokens(student: Student, check: Check) -> None:
    D, E, M = 4, 6, 15
    for k in (1, 2):
        layer, weights = loaded(student, check, D, 3, E, k)
        x = check.randn(M, D)
        indices = probabilities(x, weights).topk(k, dim=-1).indices
        check.close(layer(x), truth(x, weights, k), f"the output, k={k}")
        counting = student.fixtures.CountingExperts(check.randn(E, D, D), check.randn(E, D))
        layer.register_module("experts", counting)
        layer(x)
        got = [len(rows) for rows in counting.rows()]
        want = torch.bincount(indices.flatten(), minlength=E).tolist()
        check.equal(got, want, f"tokens given to each expert, k={k}")


@hidden_test(
    "MixtureOfExperts",
    "it keeps the probabilities of all experts and the choices of its last pass",
    hint="self.router_probs is the softmax over all E experts, before topk; self.indices is what route chose.",
    weight=2,
)
def test_kept(student: Student, check: Check) -> None:
    D, E, k = 5, 7, 3
    layer, weights = loaded(student, check, D, 4, E, k)
    check.true(layer.router_probs is None, "before the first pass router_probs must be None")
    check.true(layer.indices is None, "before the first pass indices must be None")
    for shape in ((4, D), (2, 3, D), (1, D)):
        x = check.randn(*shape)
        layer(x)
        probs = probabilities(x, weights)
        check.close(layer.router_probs, probs, f"router_probs after tokens of shape {shape}")
        check.equal(layer.indices, probs.topk(k, dim=-1).indices, f"indices after tokens of shape {shape}")


@hidden_test(
    "MixtureOfExperts",
    "the balancing loss of what it keeps trains the router",
    hint="Keep router_probs with its graph: no .detach(), .data or no_grad.",
    weight=2,
    at_most=0.6,
)
def test_loss(student: Student, check: Check) -> None:
    D, E, k, M = 5, 4, 2, 9
    layer, weights = loaded(student, check, D, 6, E, k)
    x = check.randn(M, D)
    check.close(layer(x), truth(x, weights, k), "the output itself")
    probs, indices = layer.router_probs, layer.indices
    check.close(probs, probabilities(x, weights), "router_probs")
    check.true(probs.requires_grad, "no gradient flows from router_probs back to the router")
    share = F.one_hot(indices, E).float().mean(dim=(0, 1))
    (E * (share * probs.mean(dim=0)).sum()).backward()
    leaf = weights["router.weight"].double().requires_grad_()
    loss = E * (share * probabilities(x, {"router.weight": leaf}).mean(dim=0)).sum()
    (gradient,) = torch.autograd.grad(loss, leaf)
    check.close(layer.grads().get("router.weight"), gradient, "the gradient of router.weight", rtol=1e-3)


@hidden_test(
    "MixtureOfExperts",
    "gradients reach the tokens, the router and the experts that were chosen",
    hint="Both factors of weight times output carry gradients; without .detach() or .data.",
    at_most=0.6,
)
def test_gradients(student: Student, check: Check) -> None:
    D, E, k = 6, 4, 2
    layer, weights = loaded(student, check, D, 5, E, k)
    x, probe = check.randn(3, 5, D).requires_grad_(), check.randn(3, 5, D)
    output = layer(x)
    check.close(output, truth(x.detach(), weights, k), "the output itself")
    check.true(output.requires_grad, "no gradient flows from the output back")
    (output * probe).sum().backward()
    leaf = x.detach().double().requires_grad_()
    leaves = {name: value.double().requires_grad_() for name, value in weights.items()}
    want = torch.autograd.grad((truth(leaf, leaves, k) * probe).sum(), [leaf, *leaves.values()])
    check.close(x.grad, want[0], "the gradient of the tokens", rtol=1e-3, atol=1e-4)
    got = layer.grads()
    for name, gradient in zip(leaves, want[1:], strict=True):
        came = torch.zeros_like(gradient) if got.get(name) is None else got[name]
        check.close(came, gradient, f"the gradient of {name}", rtol=1e-3, atol=1e-4)


@hidden_test(
    "MixtureOfExperts",
    "the output has the tokens' dtype, and the tokens stay as they were",
    hint="No .float() that is not undone, and no operation in place on x.",
)
def test_dtypes(student: Student, check: Check) -> None:
    D, E, k = 6, 5, 2
    layer, weights = loaded(student, check, D, 7, E, k)
    x = check.randn(2, 4, D)
    check.true(student.fixtures.unchanged(layer, x), "the layer changed its tokens")
    for dtype in (torch.float64, torch.bfloat16):
        layer.to(dtype)
        got = check.tensor(layer(x.to(dtype)), (2, 4, D), f"the output, {dtype}", dtype)
        rounded = {name: value.to(dtype) for name, value in weights.items()}
        expected = truth(x.to(dtype), rounded, k, layer.indices)
        # bfloat16 rounds the scores, the hidden numbers and the output: three roundings of 1/256
        wide = {"rtol": 0.1, "atol": 0.1} if dtype == torch.bfloat16 else {}
        check.close(got, expected, f"the output, {dtype}", **wide)
        layer.load_state_dict(weights)


@hidden_test(
    "MixtureOfExperts",
    "a top_k that the layer's experts cannot give is a ValueError that names both numbers",
    hint="Check in __init__, and raise; an assert is no ValueError.",
)
def test_bad_top_k(student: Student, check: Check) -> None:
    for E, k in ((4, 7), (3, 0)):
        call = partial(student.MixtureOfExperts, 6, 8, E, k)
        check.raises(ValueError, call, f"E={E}, k={k}", mentions=(k, E))
    layer, weights = loaded(student, check, 6, 8, 4, 4)
    x = check.randn(2, 6)
    check.close(layer(x), truth(x, weights, 4), "E=4, k=4")
