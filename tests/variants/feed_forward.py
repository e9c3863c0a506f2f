"""Right feed-forward networks that differ from the reference: each must get full marks."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import variant

# gelu


@variant("by the complementary error function")
def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))


@variant("by the distribution function of the normal distribution")
def gelu(x: Tensor) -> Tensor:
    return x * torch.special.ndtr(x)


# FeedForward


@variant("modules in a Sequential beside their names")
class FeedForward(nn.Module):
    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: Callable[[Tensor], Tensor] = gelu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        width = d_ff or 4 * d_model
        self.down_proj = nn.Linear(width, d_model, bias)
        self.up_proj = nn.Linear(d_model, width, bias)
        self.act = activation

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.linear(x, self.up_proj.weight, self.up_proj.bias)
        hidden = self.act(hidden)
        return F.linear(hidden, self.down_proj.weight, self.down_proj.bias)


@variant("matrix products, biases added by hand")
class FeedForward(nn.Module):
    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: Callable[[Tensor], Tensor] = gelu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if d_ff is None:
            d_ff = d_model * 4
        self.up_proj, self.down_proj = nn.Linear(d_model, d_ff, bias=bias), nn.Linear(d_ff, d_model, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate((self.up_proj, self.down_proj)):
            x = x @ layer.weight.T
            if layer.bias is not None:
                x = x + layer.bias
            if number == 0:
                x = self.activation(x)
        return x


# SwiGLU


@variant("torch's own SiLU, gate and up from one product")
class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight])).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


@variant("SiLU as a quotient")
class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        z = self.gate_proj(x)
        return self.down_proj(self.up_proj(x) * z / (1 + torch.exp(-z)))
