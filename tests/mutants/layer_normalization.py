"""Wrong LayerNorms, each with the property that must catch it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import edit, mutant

edit(
    "LayerNorm",
    "normalised over the positions",
    old="dim=-1",
    new="dim=-2 if x.ndim > 1 else -1",
    caught_by="LayerNorm treats each token on its own, whatever else is in the batch",
)
edit(
    "LayerNorm",
    "normalised over the batch, as batch normalization does",
    old="dim=-1",
    new="dim=tuple(range(x.ndim - 1)) or -1",
    caught_by="LayerNorm treats each token on its own, whatever else is in the batch",
)
edit(
    "LayerNorm",
    "one mean and variance for a whole sequence",
    old="dim=-1",
    new="dim=(-2, -1)[-x.ndim :]",
    caught_by="LayerNorm treats each token on its own, whatever else is in the batch",
)
edit(
    "LayerNorm",
    "unbiased variance",
    old="centred.square().mean(dim=-1, keepdim=True)",
    new="wide.var(dim=-1, keepdim=True)",
    caught_by="LayerNorm's variance divides by d, not by d - 1",
)
edit(
    "LayerNorm",
    "eps outside the root",
    old="centred * torch.rsqrt(variance + self.eps)",
    new="centred / (variance.sqrt() + self.eps)",
    caught_by="LayerNorm's eps stands inside the root",
)
edit(
    "LayerNorm",
    "divided by the variance, not by its root",
    old="torch.rsqrt(variance + self.eps)",
    new="torch.reciprocal(variance + self.eps)",
    caught_by="LayerNorm gives what torch.nn.LayerNorm gives with the same scale and shift",
)
edit(
    "LayerNorm",
    "the mean not subtracted",
    old="normed = centred",
    new="normed = wide",
    caught_by="LayerNorm gives what torch.nn.LayerNorm gives with the same scale and shift",
)
edit(
    "LayerNorm",
    "the mean absolute distance in place of the deviation",
    old="torch.rsqrt(variance + self.eps)",
    new="torch.rsqrt(centred.abs().mean(dim=-1, keepdim=True).square() + self.eps)",
    caught_by="LayerNorm gives what torch.nn.LayerNorm gives with the same scale and shift",
)
edit(
    "LayerNorm",
    "eps given is ignored",
    old="self.eps = eps",
    new="self.eps = 1e-5",
    caught_by="LayerNorm uses the eps that it is given",
)
edit(
    "LayerNorm",
    "no eps at all",
    old="variance + self.eps",
    new="variance",
    caught_by="LayerNorm uses the eps that it is given",
)
edit(
    "LayerNorm",
    "scale forgotten",
    old="normed * self.weight + self.bias",
    new="normed + self.bias",
    caught_by="LayerNorm's weight scales each column after the division",
)
edit(
    "LayerNorm",
    "scale before dividing",
    old="wide = x if x.dtype == torch.float64 else x.float()",
    new="wide = (x if x.dtype == torch.float64 else x.float()) * self.weight",
    caught_by="LayerNorm's weight scales each column after the division",
)
edit(
    "LayerNorm",
    "shift forgotten",
    old="normed * self.weight + self.bias",
    new="normed * self.weight",
    caught_by="LayerNorm's bias shifts each column, last of all",
)
edit(
    "LayerNorm",
    "shift before the scale",
    old="normed * self.weight + self.bias",
    new="(normed + self.bias) * self.weight",
    caught_by="LayerNorm's bias shifts each column, last of all",
)
edit(
    "LayerNorm",
    "weight starts at zero",
    old="torch.ones(d)",
    new="torch.zeros(d)",
    caught_by="LayerNorm starts with a weight of ones and a bias of zeros, both of width d",
)
edit(
    "LayerNorm",
    "the shift is not a parameter",
    old="self.bias = nn.Parameter(torch.zeros(d))",
    new='self.register_buffer("bias", torch.zeros(d))',
    caught_by="LayerNorm starts with a weight of ones and a bias of zeros, both of width d",
)
edit(
    "LayerNorm",
    "statistics in half precision",
    old="wide = x if x.dtype == torch.float64 else x.float()",
    new="wide = x",
    caught_by="LayerNorm takes mean and variance of half-precision input in float32",
)
edit(
    "LayerNorm",
    "bfloat16 left as it is",
    old="x.dtype == torch.float64",
    new="x.dtype in (torch.float64, torch.bfloat16)",
    caught_by="LayerNorm takes mean and variance of half-precision input in float32",
)
edit(
    "LayerNorm",
    "output in float32",
    old=".to(x.dtype)",
    new="",
    caught_by="LayerNorm's output has the dtype of its input",
)
edit(
    "LayerNorm",
    "back to the input's dtype before a float32 scale",
    old="(normed * self.weight + self.bias).to(x.dtype)",
    new="normed.to(x.dtype) * self.weight + self.bias",
    caught_by="LayerNorm's output has the dtype of its input",
)
edit(
    "LayerNorm",
    "float64 rounded to float32",
    old="x if x.dtype == torch.float64 else x.float()",
    new="x.float()",
    caught_by="LayerNorm keeps float64 in float64",
)
edit(
    "LayerNorm",
    "the mean of squares less the square of the mean",
    old="variance = centred.square().mean(dim=-1, keepdim=True)",
    new="variance = (wide.square().mean(dim=-1, keepdim=True) - wide.mean(dim=-1, keepdim=True).square()).clamp(min=0)",
    caught_by="LayerNorm stays exact when all entries share a large offset",
)
edit(
    "LayerNorm",
    "exactly three dimensions expected",
    old="wide = x if",
    new="B, T, D = x.shape\n        wide = x if",
    caught_by="LayerNorm works with any number of leading dimensions, even none",
)
edit(
    "LayerNorm",
    "dimension 2 in place of the last",
    old="dim=-1",
    new="dim=min(2, x.ndim - 1)",
    caught_by="LayerNorm works with any number of leading dimensions, even none",
)
edit(
    "LayerNorm",
    "mean and variance cut off from the gradient",
    old="torch.rsqrt(variance + self.eps)",
    new="torch.rsqrt(variance + self.eps).detach()",
    caught_by="LayerNorm's gradients equal torch's, for input, scale and shift",
)
edit(
    "LayerNorm",
    "the mean subtracted in place",
    old="centred = wide - wide.mean(dim=-1, keepdim=True)",
    new="wide.data.sub_(wide.detach().mean(dim=-1, keepdim=True))\n"
    "        centred = wide - wide.mean(dim=-1, keepdim=True)",
    caught_by="LayerNorm leaves its input as it was",
)
edit(
    "LayerNorm",
    "the width not looked at",
    old="x.shape[-1] != len(self.weight)",
    new="False",
    caught_by="a wrong width is a ValueError of LayerNorm that names both widths",
)


@mutant("torch's own function", caught_by="LayerNorm is built by hand")
class LayerNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != len(self.weight):
            raise ValueError(f"x has width {x.shape[-1]}, not {len(self.weight)}")
        wide = x if x.dtype == torch.float64 else x.float()
        weight, bias = self.weight.to(wide.dtype), self.bias.to(wide.dtype)
        return F.layer_norm(wide, self.weight.shape, weight, bias, self.eps).to(x.dtype)


@mutant("torch's own layer under another name", caught_by="LayerNorm is built by hand")
class LayerNorm(nn.LayerNorm):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__(d, eps)


@mutant("group normalization with one group", caught_by="LayerNorm is built by hand")
class LayerNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        return F.group_norm(rows, 1, self.weight, self.bias, self.eps).reshape(x.shape)


edit(
    "LayerNorm",
    "another eps by default",
    old="eps: float = 1e-5",
    new="eps: float = 1e-8",
    caught_by="the eps of LayerNorm is 1e-5 unless another is given",
)

edit(
    "LayerNorm",
    "computed in the dtype of the parameters",
    old="wide = x if x.dtype == torch.float64 else x.float()",
    new="wide = x.to(self.weight.dtype)",
    caught_by="the precision of LayerNorm goes by its input, not by its parameters",
)
