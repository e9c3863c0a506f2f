"""Right residual connections and gradient norms that differ from the reference: each must get full marks."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from course.grading.specimens import variant

# Residual


@variant("one expression for each placement, by match")
class Residual(nn.Module):
    def __init__(self, sublayer: nn.Module, norm: nn.Module, placement: str = "pre") -> None:
        super().__init__()
        self.sublayer, self.norm, self.placement = sublayer, norm, placement
        if placement != "pre" and placement != "post":
            raise ValueError(f"{placement} is no placement: use pre or post")

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        match self.placement:
            case "pre":
                y = self.norm(x)
                return torch.add(self.sublayer(y, **kwargs), x)
            case _:
                return self.norm(self.sublayer(x, **kwargs) + x)


@variant("a flag, and the norms applied or not")
class Residual(nn.Module):
    def __init__(self, sublayer: nn.Module, norm: nn.Module, placement: str = "pre") -> None:
        super().__init__()
        if placement not in {"pre", "post"}:
            raise ValueError(f"placement is {placement!r}; it must be one of pre, post")
        self.norm = norm
        self.sublayer = sublayer
        self.first = placement == "pre"

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        inside = self.norm(x) if self.first else x
        total = x + self.sublayer(inside, **kwargs)
        return total if self.first else self.norm(total)


# gradient_norms


@variant("gradients kept on the way, parameters put back")
def gradient_norms(stack: Iterable[nn.Module], x: Tensor) -> list[float]:
    inputs, y = [], x.clone().detach().requires_grad_(True)
    for layer in list(stack):
        inputs.append(y)
        y = layer(y)
    found = torch.autograd.grad([y[..., 0].sum()], inputs)
    return [float(torch.sqrt((gradient**2).sum())) for gradient in found]


@variant("one layer at a time, from the back")
def gradient_norms(stack: Iterable[nn.Module], x: Tensor) -> list[float]:
    layers = list(stack)
    stream = [x.detach()]
    for layer in layers:
        stream.append(layer(stream[-1]).detach())
    upstream = torch.zeros_like(stream[-1])
    upstream[..., 0] = 1.0
    norms: list[float] = []
    for layer, y in zip(reversed(layers), reversed(stream[:-1]), strict=True):
        leaf = y.clone().requires_grad_()
        (upstream,) = torch.autograd.grad(layer(leaf), leaf, upstream)
        norms.insert(0, upstream.norm().item())
    return norms
