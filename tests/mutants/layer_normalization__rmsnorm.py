"""Wrong RMSNorms, each with the property that must catch it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import edit, mutant

edit(
    "RMSNorm",
    "the mean subtracted first",
    old="mean_square =",
    new="wide = wide - wide.mean(dim=-1, keepdim=True)\n        mean_square =",
    caught_by="RMSNorm does not subtract the mean",
)
edit(
    "RMSNorm",
    "divided by the standard deviation",
    old="wide.square().mean(dim=-1, keepdim=True)",
    new="wide.var(dim=-1, keepdim=True, correction=0)",
    caught_by="RMSNorm does not subtract the mean",
)
edit(
    "RMSNorm",
    "the sum of squares in place of the mean",
    old="wide.square().mean(",
    new="wide.square().sum(",
    caught_by="RMSNorm takes the mean of the squares, not their sum",
)
edit(
    "RMSNorm",
    "the mean divides by d - 1",
    old="wide.square().mean(dim=-1, keepdim=True)",
    new="wide.square().sum(dim=-1, keepdim=True) / (x.shape[-1] - 1)",
    caught_by="RMSNorm gives what torch.nn.RMSNorm gives with the same scale",
)
edit(
    "RMSNorm",
    "divided by the mean square, not by its root",
    old="torch.rsqrt(mean_square + self.eps)",
    new="torch.reciprocal(mean_square + self.eps)",
    caught_by="RMSNorm gives what torch.nn.RMSNorm gives with the same scale",
)
edit(
    "RMSNorm",
    "the mean of absolute values",
    old="wide.square().mean(dim=-1, keepdim=True)",
    new="wide.abs().mean(dim=-1, keepdim=True).square()",
    caught_by="RMSNorm gives what torch.nn.RMSNorm gives with the same scale",
)
edit(
    "RMSNorm",
    "over the batch",
    old="dim=-1",
    new="dim=0",
    caught_by="RMSNorm treats each token on its own, whatever else is in the batch",
)
edit(
    "RMSNorm",
    "over the positions",
    old="dim=-1",
    new="dim=-2 if x.ndim > 1 else -1",
    caught_by="RMSNorm treats each token on its own, whatever else is in the batch",
)
edit(
    "RMSNorm",
    "over the whole tensor",
    old=".mean(dim=-1, keepdim=True)",
    new=".mean()",
    caught_by="RMSNorm treats each token on its own, whatever else is in the batch",
)
edit(
    "RMSNorm",
    "eps outside the root",
    old="wide * torch.rsqrt(mean_square + self.eps)",
    new="wide / (mean_square.sqrt() + self.eps)",
    caught_by="RMSNorm's eps stands inside the root",
)
edit(
    "RMSNorm",
    "eps given is ignored",
    old="self.eps = eps",
    new="self.eps = 1e-5",
    caught_by="RMSNorm uses the eps that it is given",
)
edit(
    "RMSNorm",
    "no eps at all",
    old="mean_square + self.eps",
    new="mean_square",
    caught_by="RMSNorm uses the eps that it is given",
)
edit(
    "RMSNorm",
    "scale forgotten",
    old=" * self.weight)",
    new=")",
    caught_by="RMSNorm's weight scales each column after the division",
)
edit(
    "RMSNorm",
    "scale before dividing",
    old="mean_square =",
    new="wide = wide * self.weight\n        mean_square =",
    caught_by="RMSNorm's weight scales each column after the division",
)
edit(
    "RMSNorm",
    "one plus the weight, as Gemma stores it",
    old="* self.weight)",
    new="* (1 + self.weight))",
    caught_by="RMSNorm's weight scales each column after the division",
)
edit(
    "RMSNorm",
    "weight starts at zero",
    old="torch.ones(d)",
    new="torch.zeros(d)",
    caught_by="RMSNorm starts with a weight of ones of width d, and has no bias",
)
edit(
    "RMSNorm",
    "a bias, as in LayerNorm",
    old="self.weight = nn.Parameter(torch.ones(d))",
    new="self.weight = nn.Parameter(torch.ones(d))\n        self.bias = nn.Parameter(torch.zeros(d))",
    caught_by="RMSNorm starts with a weight of ones of width d, and has no bias",
)
edit(
    "RMSNorm",
    "squares in half precision",
    old="wide = x if x.dtype == torch.float64 else x.float()",
    new="wide = x",
    caught_by="RMSNorm takes the mean of squares of half-precision input in float32",
)
edit(
    "RMSNorm",
    "squared first, widened later",
    old="wide.square().mean(",
    new="x.square().to(wide.dtype).mean(",
    caught_by="RMSNorm takes the mean of squares of half-precision input in float32",
)
edit(
    "RMSNorm",
    "output in float32",
    old=".to(x.dtype)",
    new="",
    caught_by="RMSNorm's output has the dtype of its input",
)
edit(
    "RMSNorm",
    "back to the input's dtype before a float32 scale",
    old="(wide * torch.rsqrt(mean_square + self.eps) * self.weight).to(x.dtype)",
    new="(wide * torch.rsqrt(mean_square + self.eps)).to(x.dtype) * self.weight",
    caught_by="RMSNorm's output has the dtype of its input",
)
edit(
    "RMSNorm",
    "float64 rounded to float32",
    old="x if x.dtype == torch.float64 else x.float()",
    new="x.float()",
    caught_by="RMSNorm keeps float64 in float64",
)
edit(
    "RMSNorm",
    "exactly three dimensions expected",
    old="wide = x if",
    new="B, T, D = x.shape\n        wide = x if",
    caught_by="RMSNorm works with any number of leading dimensions, even none",
)
edit(
    "RMSNorm",
    "dimension 2 in place of the last",
    old="dim=-1",
    new="dim=min(2, x.ndim - 1)",
    caught_by="RMSNorm works with any number of leading dimensions, even none",
)
edit(
    "RMSNorm",
    "the mean of squares cut off from the gradient",
    old="torch.rsqrt(mean_square + self.eps)",
    new="torch.rsqrt(mean_square.detach() + self.eps)",
    caught_by="RMSNorm's gradients equal torch's, for input and scale",
)
edit(
    "RMSNorm",
    "divided in place",
    old="return (wide * torch.rsqrt(mean_square + self.eps) * self.weight)",
    new="scale = torch.rsqrt(mean_square + self.eps)\n"
    "        result = wide * scale * self.weight\n"
    "        wide.data.mul_(scale.data)\n"
    "        return result",
    caught_by="RMSNorm leaves its input as it was",
)
edit(
    "RMSNorm",
    "the width not looked at",
    old="x.shape[-1] != len(self.weight)",
    new="False",
    caught_by="a wrong width is a ValueError of RMSNorm that names both widths",
)


@mutant("torch's own function", caught_by="RMSNorm is built by hand")
class RMSNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != len(self.weight):
            raise ValueError(f"x has width {x.shape[-1]}, not {len(self.weight)}")
        wide = x if x.dtype == torch.float64 else x.float()
        return F.rms_norm(wide, self.weight.shape, self.weight.to(wide.dtype), self.eps).to(x.dtype)


@mutant("torch's own layer under another name", caught_by="RMSNorm is built by hand")
class RMSNorm(nn.RMSNorm):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__(d, eps)


edit(
    "RMSNorm",
    "another eps by default",
    old="eps: float = 1e-5",
    new="eps: float = 1e-8",
    caught_by="the eps of RMSNorm is 1e-5 unless another is given",
)

edit(
    "RMSNorm",
    "computed in the dtype of the parameters",
    old="wide = x if x.dtype == torch.float64 else x.float()",
    new="wide = x.to(self.weight.dtype)",
    caught_by="the precision of RMSNorm goes by its input, not by its parameters",
)
