"""The feed-forward network: each position, alone, through a wider layer and back."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def gelu(x: Tensor) -> Tensor:
    """The Gaussian error linear unit: `x` times the probability that a standard normal number is below `x`.

    The exact function, by the error function: `x * (1 + erf(x / sqrt(2))) / 2`. Build it from
    `torch.erf`; do not call torch's own gelu.

    Args:
        x: any shape, floating point.

    Returns:
        The same shape and dtype.

    Source: "Gaussian Error Linear Units" (Hendrycks and Gimpel, 2016).
    """
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class FeedForward(nn.Module):
    """Widen, switch, narrow: `down_proj(activation(up_proj(x)))`, at each position alone.

    Two linear maps: `up_proj` from `D` to `F` and `down_proj` from `F` to `D`.

    Args:
        d_model: width of the tokens, `D`.
        d_ff: width inside, `F`; `None` means `4 * D`.
        activation: a function of one tensor, applied between the two maps.
        bias: whether the two maps have a bias.

    Source: "Attention Is All You Need", section 3.3 (Vaswani et al., 2017).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: Callable[[Tensor], Tensor] = gelu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.activation = activation
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, `(..., D)`, to tokens, `(..., D)`."""
        return self.down_proj(self.activation(self.up_proj(x)))


class SwiGLU(nn.Module):
    """The gated feed-forward network: `down_proj(silu(gate_proj(x)) * up_proj(x))`.

    Three linear maps without bias: `gate_proj` and `up_proj` from `D` to `F`, and `down_proj` from
    `F` to `D`. SiLU is `z * sigmoid(z)`; it stands on the gate alone.

    Args:
        d_model: width of the tokens, `D`.
        d_ff: width inside, `F`.

    Source: "GLU Variants Improve Transformer" (Shazeer, 2020).
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, `(..., D)`, to tokens, `(..., D)`."""
        gate = self.gate_proj(x)
        return self.down_proj(F.silu(gate) * self.up_proj(x))
