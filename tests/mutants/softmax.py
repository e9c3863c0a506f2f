"""Wrong softmaxes, each with the property that must catch it, and those temperatures and losses that call one."""

import numpy as np
import torch
from torch import Tensor

from course.grading.specimens import edit, mutant


@mutant("scores divided by their sum, no exponential", caught_by="scores 2.0, 1.0, 0.1 give 0.66, 0.24, 0.10")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    total = x.sum(dim, keepdim=True)
    return x / total


@mutant("dim ignored: always the last", caught_by="the weights are shared out along `dim`, whichever it is")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


edit(
    "softmax",
    "no shift by the maximum",
    old="torch.exp(scores - largest)",
    new="torch.exp(scores)",
    caught_by="scores near 1,000 do not overflow",
)
edit(
    "softmax",
    "scores clipped to 80 so that exp cannot overflow",
    old="torch.exp(scores - largest)",
    new="torch.exp(scores.clamp(max=80.0))",
    caught_by="scores near 1,000 do not overflow",
)
edit(
    "softmax",
    "shift by the maximum of the whole tensor",
    old="scores.detach().amax(dim, keepdim=True)",
    new="scores.detach().amax()",
    caught_by="each row is shifted by its own maximum",
)
edit(
    "softmax",
    "a small number added to every power",
    old="powers = torch.exp(scores - largest)",
    new="powers = torch.exp(scores - largest) + 1e-8",
    caught_by="a score of -inf gets exactly 0",
)
edit(
    "softmax",
    "a small number added to the sum, against division by zero",
    old="total.masked_fill(total == 0, 1.0)",
    new="(total + 1e-9)",
    caught_by="float64 stays float64, and integers give float32",
)
edit(
    "softmax",
    "-inf replaced by the lowest finite number: an empty row becomes uniform",
    old="powers = torch.exp(scores - largest)",
    new="powers = torch.exp(scores.clamp(min=lowest) - largest)",
    caught_by="a row of nothing but -inf gets zeros",
)


@mutant("NaN where a row is nothing but -inf", caught_by="a row of nothing but -inf gets zeros")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x.to(torch.promote_types(x.dtype, torch.float32))
    powers = torch.exp(scores - scores.amax(dim, keepdim=True))
    weights = powers / powers.sum(dim, keepdim=True)
    return weights.to(x.dtype) if x.is_floating_point() else weights


@mutant(
    "NaN replaced in the result, left in the gradient",
    caught_by="a row of nothing but -inf has zero gradient, not NaN",
)
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x.to(torch.promote_types(x.dtype, torch.float32))
    powers = torch.exp(scores - scores.amax(dim, keepdim=True))
    weights = (powers / powers.sum(dim, keepdim=True)).nan_to_num(0.0)
    return weights.to(x.dtype) if x.is_floating_point() else weights


edit(
    "softmax",
    "the sum taken out of the graph, as the shift is",
    old="total = powers.sum(dim, keepdim=True)",
    new="total = powers.detach().sum(dim, keepdim=True)",
    caught_by="the gradients are right",
)
edit(
    "softmax",
    "half precision not converted up",
    old="x.to(torch.promote_types(x.dtype, torch.float32))",
    new="x if x.is_floating_point() else x.float()",
    caught_by="float16 and bfloat16 are computed in float32",
)
edit(
    "softmax",
    "everything computed in float32, float64 too",
    old="x.to(torch.promote_types(x.dtype, torch.float32))",
    new="x.float()",
    caught_by="float64 stays float64, and integers give float32",
)
edit(
    "softmax",
    "subtracts in place, from the caller's scores",
    old="torch.exp(scores - largest)",
    new="torch.exp(scores.sub_(largest))",
    caught_by="any layout of any shape works, and the scores passed in stay as they were",
)


@mutant(
    "view, which contiguous tensors alone allow",
    caught_by="any layout of any shape works, and the scores passed in stay as they were",
)
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x.to(torch.promote_types(x.dtype, torch.float32))
    if dim not in (-1, x.ndim - 1):
        return softmax(x.transpose(dim, -1).contiguous(), -1).transpose(dim, -1)
    rows = scores.view(-1, x.shape[-1])
    largest = rows.detach().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).min)
    powers = torch.exp(rows - largest)
    total = powers.sum(1, keepdim=True)
    weights = (powers / total.masked_fill(total == 0, 1.0)).view(x.shape)
    return weights.to(x.dtype) if x.is_floating_point() else weights


@mutant("torch.softmax with empty rows set aside", caught_by="it is built from exponentials, not from torch's softmax")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x if x.is_floating_point() else x.float()
    empty = (scores == -torch.inf).all(dim, keepdim=True)
    return torch.softmax(scores.masked_fill(empty, 0.0), dim).masked_fill(empty, 0.0)


edit(
    "softmax",
    "in three dimensions the shift is the maximum over two of them",
    old="scores.detach().amax(dim, keepdim=True)",
    new="scores.detach().amax((dim, 0) if scores.ndim == 3 and dim % 3 else dim, keepdim=True)",
    caught_by="each row is shifted by its own maximum",
)
edit(
    "softmax",
    "four dimensions taken for a picture: always the channels",
    old="largest = scores",
    new="dim = 1 if scores.ndim == 4 else dim\n    largest = scores",
    caught_by="the weights are shared out along `dim`, whichever it is",
)
edit(
    "softmax",
    "an empty row is zeros in float32 alone",
    old="total.masked_fill(total == 0, 1.0).reciprocal()",
    new="(total.masked_fill(total == 0, 1.0) if x.dtype == torch.float32 else total).reciprocal()",
    caught_by="a row of nothing but -inf gets zeros",
)
edit(
    "softmax",
    "integers are shifted as integers, and wrap around",
    old="x.to(torch.promote_types(x.dtype, torch.float32))",
    new="(x if x.is_floating_point() else x - x.amax(dim, True)).to(torch.promote_types(x.dtype, torch.float32))",
    caught_by="float64 stays float64, and integers give float32",
)
edit(
    "softmax",
    "the gaps between half-precision scores are rounded before they are converted up",
    old="torch.exp(scores - largest)",
    new="torch.exp((scores.to(x.dtype) - largest.to(x.dtype)).to(scores.dtype))",
    caught_by="float16 and bfloat16 are computed in float32",
)


@mutant("computed in numpy, outside the graph", caught_by="the gradients are right")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x.detach().to(torch.promote_types(x.dtype, torch.float32)).numpy()
    largest = scores.max(dim, keepdims=True, initial=torch.finfo(torch.float32).min)
    with np.errstate(over="ignore"):
        powers = np.exp(scores - largest)
    total = powers.sum(dim, keepdims=True)
    weights = torch.from_numpy(powers / np.where(total == 0, 1, total))
    return weights.to(x.dtype) if x.is_floating_point() else weights


@mutant(
    "built for matrices, torch.softmax for everything else",
    caught_by="it is built from exponentials, not from torch's softmax",
)
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x.to(torch.promote_types(x.dtype, torch.float32))
    empty = (scores == -torch.inf).all(dim, keepdim=True)
    scores = scores.masked_fill(empty, 0.0)
    if x.ndim == 2:
        powers = torch.exp(scores - scores.amax(dim, keepdim=True))
        weights = powers / powers.sum(dim, keepdim=True)
    else:
        weights = torch.softmax(scores, dim)
    weights = weights.masked_fill(empty, 0.0)
    return weights.to(x.dtype) if x.is_floating_point() else weights


# those that call softmax


@mutant("the weights divided, then made to sum to one again", caught_by="the scores are divided by the temperature")
def softmax_with_temperature(logits: Tensor, temperature: float, dim: int = -1) -> Tensor:
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, got {temperature}")
    weights = softmax(logits, dim) / max(temperature, 1e-6)
    return weights / weights.sum(dim, keepdim=True)


@mutant("the weights raised to a power, after some rounded to 0", caught_by="the scores are divided by the temperature")
def softmax_with_temperature(logits: Tensor, temperature: float, dim: int = -1) -> Tensor:
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, got {temperature}")
    powers = softmax(logits, dim) ** (1 / max(temperature, 1e-6))
    return powers / powers.sum(dim, keepdim=True)


@mutant("0 not treated apart: 0 / 0", caught_by="temperature 0 gives everything to the largest score")
def softmax_with_temperature(logits: Tensor, temperature: float, dim: int = -1) -> Tensor:
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, got {temperature}")
    return softmax(logits / temperature, dim)


@mutant("the log of a softmax", caught_by="a target whose weight rounds to 0 still has its exact loss")
def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    weights = softmax(logits, dim=1)
    return -torch.log(weights.gather(1, targets.unsqueeze(1))).mean()
