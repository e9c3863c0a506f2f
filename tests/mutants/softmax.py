"""Wrong softmaxes, temperatures and losses, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# softmax


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


# softmax_with_temperature


edit(
    "softmax_with_temperature",
    "multiplied by the temperature",
    old="(scores - largest) / divisor",
    new="(scores - largest) * divisor",
    caught_by="the scores are divided by the temperature",
)


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


edit(
    "softmax_with_temperature",
    "dim not passed on",
    old="softmax((scores - largest) / divisor, dim)",
    new="softmax((scores - largest) / divisor)",
    caught_by="at every temperature the weights are shared out along `dim`",
)


@mutant("0 not treated apart: 0 / 0", caught_by="temperature 0 gives everything to the largest score")
def softmax_with_temperature(logits: Tensor, temperature: float, dim: int = -1) -> Tensor:
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, got {temperature}")
    return softmax(logits / temperature, dim)


edit(
    "softmax_with_temperature",
    "0 refused as if it were negative",
    old="if not temperature >= 0:",
    new="if not temperature > 0:",
    caught_by="temperature 0 gives everything to the largest score",
)
edit(
    "softmax_with_temperature",
    "argmax picks one of the tied",
    old="weights = softmax(scores.masked_fill(scores < largest, -torch.inf), dim)",
    new="weights = torch.zeros_like(scores).scatter(dim, scores.argmax(dim, keepdim=True), 1.0)",
    caught_by="at temperature 0, scores tied for the largest share equally",
)
edit(
    "softmax_with_temperature",
    "divided before the shift: large / tiny overflows",
    old="(scores - largest) / divisor",
    new="scores / divisor",
    caught_by="a tiny temperature neither overflows nor gives NaN",
)
edit(
    "softmax_with_temperature",
    "a temperature too small for float32 becomes 0",
    old="min(max(temperature, info.tiny), 1 / info.tiny)",
    new="min(temperature, 1 / info.tiny)",
    caught_by="a tiny temperature neither overflows nor gives NaN",
)
edit(
    "softmax_with_temperature",
    "-inf divided by an infinite temperature",
    old="min(max(temperature, info.tiny), 1 / info.tiny)",
    new="max(temperature, info.tiny)",
    caught_by="a huge temperature shares equally among all scores but -inf",
)
edit(
    "softmax_with_temperature",
    "at temperature 0 an empty row shares equally",
    old="weights = softmax(scores.masked_fill(scores < largest, -torch.inf), dim)",
    new="weights = softmax(torch.where(scores == scores.amax(dim, keepdim=True), 0.0, -torch.inf), dim)",
    caught_by="at every temperature -inf gets exactly 0, and a row of nothing but -inf gets zeros",
)
edit(
    "softmax_with_temperature",
    "NaN passes the test for negative numbers",
    old="if not temperature >= 0:",
    new="if temperature < 0:",
    caught_by="a negative temperature or NaN is a ValueError that names it and its value",
)
edit(
    "softmax_with_temperature",
    "the message does not say what came",
    old='f"temperature must be 0 or more, got {temperature}"',
    new='"temperature must be 0 or more"',
    caught_by="a negative temperature or NaN is a ValueError that names it and its value",
)
edit(
    "softmax_with_temperature",
    "the scores leave the graph",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="logits.detach().to(torch.promote_types(logits.dtype, torch.float32))",
    caught_by="gradients flow through the temperature, and the dtype is kept",
)
edit(
    "softmax_with_temperature",
    "the caller's logits are divided in place",
    old="(scores - largest) / divisor",
    new="scores.sub_(largest).div_(divisor)",
    caught_by="it rests on your own softmax, and leaves the logits as they were",
)
edit(
    "softmax_with_temperature",
    "torch.softmax with empty rows replaced",
    old="weights = softmax((scores - largest) / divisor, dim)",
    new="weights = torch.softmax((scores - largest) / divisor, dim).nan_to_num(0.0)",
    caught_by="it rests on your own softmax, and leaves the logits as they were",
)

# cross_entropy


edit(
    "cross_entropy",
    "the sign turned round",
    old="(log_total - of_target).mean()",
    new="(of_target - log_total).mean()",
    caught_by="scores 2.0, 1.0, 0.1 and the first as target cost -log 0.659",
)
edit(
    "cross_entropy",
    "logarithm to base 2",
    old="(log_total - of_target).mean()",
    new="((log_total - of_target) / torch.log(torch.tensor(2.0))).mean()",
    caught_by="scores 2.0, 1.0, 0.1 and the first as target cost -log 0.659",
)
edit(
    "cross_entropy",
    "softmax before, though the scores are wanted",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)))",
    caught_by="scores 2.0, 1.0, 0.1 and the first as target cost -log 0.659",
)
edit(
    "cross_entropy",
    "the sum over rows",
    old="(log_total - of_target).mean()",
    new="(log_total - of_target).sum()",
    caught_by="the loss is the mean over the rows",
)
edit(
    "cross_entropy",
    "the mean taken over classes",
    old="(log_total - of_target).mean()",
    new="((log_total - of_target).sum() / classes)",
    caught_by="the loss is the mean over the rows",
)
edit(
    "cross_entropy",
    "no shift by the maximum",
    old="torch.exp(scores - largest).sum(dim=1).log() + largest.squeeze(1)",
    new="torch.exp(scores).sum(dim=1).log()",
    caught_by="scores near 1,000 give a finite, exact loss",
)
edit(
    "cross_entropy",
    "one maximum for the whole batch",
    old="largest = scores.detach().amax(dim=1, keepdim=True)",
    new="largest = scores.detach().amax().expand(rows, 1)",
    caught_by="each row is shifted by its own maximum in the loss",
)


@mutant("the log of a softmax", caught_by="a target whose weight rounds to 0 still has its exact loss")
def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    weights = softmax(logits, dim=1)
    return -torch.log(weights.gather(1, targets.unsqueeze(1))).mean()


edit(
    "cross_entropy",
    "the log of the sum taken for a constant",
    old="(log_total - of_target).mean()",
    new="(log_total.detach() - of_target).mean()",
    caught_by="the gradient is (softmax - one-hot) / M",
)
edit(
    "cross_entropy",
    "the target picked by a product with a one-hot: 0 times -inf",
    old="scores.gather(1, targets.long().unsqueeze(1)).squeeze(1)",
    new="(scores * torch.nn.functional.one_hot(targets, classes)).sum(1)",
    caught_by="a class whose score is -inf takes no part",
)
edit(
    "cross_entropy",
    "half precision not converted up",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="logits",
    caught_by="float16 and bfloat16 losses are computed in float32, and float64 in float64",
)
edit(
    "cross_entropy",
    "everything in float32, float64 too",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="logits.float()",
    caught_by="float16 and bfloat16 losses are computed in float32, and float64 in float64",
)
edit(
    "cross_entropy",
    "negative targets count from the end",
    old="outside = (targets < 0) | (targets >= classes)",
    new="outside = targets >= classes\n    targets = targets % classes",
    caught_by="a target outside [0, V) is a ValueError that names it",
)
edit(
    "cross_entropy",
    "-100 passed over in silence",
    old="outside = (targets < 0) | (targets >= classes)",
    new=(
        "logits, targets = logits[targets != -100], targets[targets != -100]\n"
        "    outside = (targets < 0) | (targets >= classes)"
    ),
    caught_by="a target outside [0, V) is a ValueError that names it",
)
edit(
    "cross_entropy",
    "a column of targets let through, and broadcast",
    old="if targets.shape != (rows,):",
    new="targets = targets.squeeze(-1) if targets.ndim == 2 else targets\n    if targets.shape != (rows,):",
    caught_by="wrong shapes and fractional targets are a ValueError that names the argument",
)


@mutant(
    "no argument checked",
    caught_by="wrong shapes and fractional targets are a ValueError that names the argument",
)
def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return (torch.logsumexp(logits, dim=-1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)).mean()


edit(
    "cross_entropy",
    "subtracts in place, from the caller's scores",
    old="torch.exp(scores - largest).sum(dim=1).log() + largest.squeeze(1)",
    new="torch.exp(scores.sub_(largest)).sum(dim=1).log()",
    caught_by="any layout works, and the arguments stay as they were",
)
edit(
    "cross_entropy",
    "torch's own loss behind the checks",
    old="(log_total - of_target).mean().to(logits.dtype)",
    new="torch.nn.functional.cross_entropy(scores, targets).to(logits.dtype)",
    caught_by="it is built from exponentials and logarithms, not from torch's own loss",
)
