"""The same numbers as a Mixtral block of the `transformers` library, and as its balancing loss."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func

from lib.expert_router import MixtureOfExperts, load_balancing_loss, route
from tests import weights

SIZES = [(6, 10, 3, 1), (12, 7, 8, 2), (5, 9, 4, 4), (16, 24, 6, 3)]
"""Width, width inside an expert, experts, and how many of them a token visits."""

sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: "D={} F={} E={} k={}".format(*size))


def stacked(ours: dict[str, Tensor], n_experts: int) -> dict[str, Tensor]:
    """Our names and shapes to Mixtral's, which holds all experts in two tensors."""

    def of(name: str) -> list[Tensor]:
        return [ours[f"experts.{e}.{name}.weight"] for e in range(n_experts)]

    pairs = zip(of("gate_proj"), of("up_proj"), strict=True)
    return {
        "gate.weight": ours["router.weight"],
        "experts.gate_up_proj": torch.stack([torch.cat(pair) for pair in pairs]),
        "experts.down_proj": torch.stack(of("down_proj")),
    }


@sizes
def test_equals_a_mixtral_block_in_outputs_and_gradients(size: tuple[int, int, int, int]) -> None:
    D, F, E, k = size
    config = MixtralConfig(hidden_size=D, intermediate_size=F, num_local_experts=E, num_experts_per_tok=k)
    config._experts_implementation = "eager"
    ours, theirs = weights.draw(MixtureOfExperts(D, F, E, k)), MixtralSparseMoeBlock(config)
    theirs.load_state_dict(stacked(ours.state_dict(), E))
    torch.manual_seed(3)
    x, pull = torch.randn(3, 7, D), torch.randn(3, 7, D)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    got, want = ours(mine), theirs(other)
    assert want.abs().max() > 0.1
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    (got * pull).sum().backward()
    (want * pull).sum().backward()
    torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in ours.named_parameters()
    }
    for name, gradient in stacked(gradients, E).items():
        torch.testing.assert_close(gradient, theirs.get_parameter(name).grad, rtol=1e-4, atol=1e-5, msg=name)


@sizes
def test_the_balancing_loss_of_one_layer_is_a_kth_of_theirs(size: tuple[int, int, int, int]) -> None:
    """They divide the counts by the tokens, we by the choices: `k` times as many."""
    _, _, E, k = size
    torch.manual_seed(4)
    mine = (2 * torch.randn(40, E) + torch.linspace(0, 2, E)).requires_grad_()
    other = mine.detach().clone().requires_grad_()
    ours = k * load_balancing_loss(mine.softmax(dim=-1), route(mine, k)[1], E)
    theirs = load_balancing_loss_func((other,), E, k)
    assert isinstance(theirs, Tensor)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, x)[0] for loss, x in ((ours, mine), (theirs, other))))


def test_of_several_layers_they_count_all_tokens_together() -> None:
    E, k = 5, 2
    torch.manual_seed(5)
    layers = tuple(torch.randn(30, E) + shift * torch.linspace(0, 3, E) for shift in (1.0, -1.0))
    together = torch.cat(layers)
    pooled = load_balancing_loss(together.softmax(dim=-1), route(together, k)[1], E)
    each = [load_balancing_loss(one.softmax(dim=-1), route(one, k)[1], E) for one in layers]
    theirs = load_balancing_loss_func(layers, E, k)  # type: ignore[arg-type] # its annotation allows one layer
    assert isinstance(theirs, Tensor)
    torch.testing.assert_close(k * pooled, theirs)
    assert sum(each) / 2 > pooled + 0.05  # opposite favourites even out when they are pooled


def test_perfect_balance_is_one_here_and_k_there() -> None:
    E, k = 6, 2
    logits = 9.0 * torch.eye(E) + 8.0 * torch.eye(E).roll(1, dims=1)
    assert load_balancing_loss(logits.softmax(dim=-1), route(logits, k)[1], E).item() == pytest.approx(1)
    theirs = load_balancing_loss_func((logits,), E, k)
    assert isinstance(theirs, Tensor)
    assert theirs.item() == pytest.approx(k)
