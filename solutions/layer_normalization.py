"""Layer normalization: LayerNorm and RMSNorm, which set the scale of each token's vector."""

import torch
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """Give each token's vector mean 0 and variance 1, then a learned scale and shift.

    For each vector `x` of width `d` on its own:
    `(x - mean) / sqrt(variance + eps) * weight + bias`. The variance is the mean squared
    distance from the mean: it divides by `d`, not `d - 1`. Mean and variance are taken in
    float32, or in float64 if the input is float64.

    Build it from tensor operations; do not call torch's own normalisation.

    Parameters: `weight`, `(d,)`, starts at one, and `bias`, `(d,)`, at zero.

    Args:
        d: width of the vectors.
        eps: added to the variance, inside the root.

    Source: "Layer Normalization", section 3 (Ba, Kiros and Hinton, 2016).
    """

    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last dimension, and over no other.

        Args:
            x: vectors, `(..., d)`.

        Returns:
            The normalised vectors, `(..., d)`, in the dtype of `x`.

        Raises:
            ValueError: the last dimension is not `d`; the message names both widths.
        """
        if x.shape[-1] != len(self.weight):
            raise ValueError(f"x must have width {len(self.weight)}, its last dimension is {x.shape[-1]}")
        wide = x if x.dtype == torch.float64 else x.float()  # squares overflow float16 from 256 on
        centred = wide - wide.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)  # (..., 1)
        normed = centred * torch.rsqrt(variance + self.eps)
        return (normed * self.weight + self.bias).to(x.dtype)


class RMSNorm(nn.Module):
    """Give each token's vector root mean square 1, then a learned scale.

    For each vector `x` of width `d` on its own: `x / sqrt(mean(x**2) + eps) * weight`. No
    mean is subtracted and nothing is added. The mean of squares is taken in float32, or in
    float64 if the input is float64.

    Build it from tensor operations; do not call torch's own normalisation.

    Parameters: `weight`, `(d,)`, starts at one.

    Args:
        d: width of the vectors.
        eps: added to the mean of squares, inside the root.

    Source: "Root Mean Square Layer Normalization", equation 4 (Zhang and Sennrich, 2019).
    """

    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last dimension, and over no other.

        Args:
            x: vectors, `(..., d)`.

        Returns:
            The normalised vectors, `(..., d)`, in the dtype of `x`.

        Raises:
            ValueError: the last dimension is not `d`; the message names both widths.
        """
        if x.shape[-1] != len(self.weight):
            raise ValueError(f"x must have width {len(self.weight)}, its last dimension is {x.shape[-1]}")
        wide = x if x.dtype == torch.float64 else x.float()  # squares overflow float16 from 256 on
        mean_square = wide.square().mean(dim=-1, keepdim=True)  # (..., 1)
        return (wide * torch.rsqrt(mean_square + self.eps) * self.weight).to(x.dtype)
