"""Right softmaxes, temperatures and losses that differ from the reference: each earns full marks."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.specimens import variant

# softmax


@variant("empty rows found first and set aside by where")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x.double() if x.dtype == torch.float64 else x.float()
    empty = torch.isneginf(scores).all(dim, keepdim=True)
    safe = torch.where(empty, torch.zeros_like(scores), scores)
    powers = torch.exp(safe - safe.max(dim, keepdim=True).values)
    weights = torch.where(empty, torch.zeros_like(powers), powers / powers.sum(dim, keepdim=True))
    return weights.type_as(x) if x.is_floating_point() else weights


@variant("exp of the score minus the log of the sum, by torch.logsumexp")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x.to(torch.promote_types(x.dtype, torch.float32))
    empty = (scores == -torch.inf).all(dim, keepdim=True)
    safe = scores.masked_fill(empty, 0.0)
    gaps = safe - safe.amax(dim, keepdim=True)
    weights = torch.exp(gaps - torch.logsumexp(gaps, dim, keepdim=True)).masked_fill(empty, 0.0)
    return weights.to(x.dtype) if x.is_floating_point() else weights


@variant("powers of two, with the scores times log2(e), and the sum kept above zero")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    scores = x.to(torch.promote_types(x.dtype, torch.float32))
    info = torch.finfo(scores.dtype)
    largest = scores.detach().amax(dim, keepdim=True).clamp(min=info.min)
    powers = torch.exp2((scores - largest) * math.log2(math.e))
    weights = powers / powers.sum(dim, keepdim=True).clamp(min=info.tiny)
    return weights.to(x.dtype) if x.is_floating_point() else weights


@variant("the dimension moved to the end, flattened to rows, moved back")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    moved = x.movedim(dim, -1)
    scores = moved if x.dtype == torch.float64 else moved.float()
    rows = scores.reshape(-1, scores.shape[-1])
    largest, _ = rows.max(dim=1, keepdim=True)
    largest = torch.nan_to_num(largest, neginf=0.0)
    powers = (rows - largest).exp()
    total = powers.sum(dim=1, keepdim=True)
    weights = powers / torch.where(total > 0, total, torch.ones_like(total))
    weights = weights.reshape(moved.shape).movedim(-1, dim)
    return weights.to(x.dtype) if x.is_floating_point() else weights


@variant("row by row in a loop, empty rows left out")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    kept = x.dtype if x.is_floating_point() else torch.float32
    moved = x.transpose(dim, -1)
    rows = moved.reshape(-1, moved.shape[-1]).to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    weights = torch.zeros_like(rows)
    for i, row in enumerate(rows):
        largest = row.max()
        if largest > -math.inf:
            powers = torch.exp(row - largest)
            weights[i] = powers / powers.sum()
    return weights.reshape(moved.shape).transpose(dim, -1).to(kept)


@variant("computed in float64, in place on its own tensors, with an argument more")
def softmax(x: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:
    dtype = dtype or (x.dtype if x.is_floating_point() else torch.float32)
    scores = x.double()
    largest = scores.max(dim=dim, keepdim=True)[0]
    powers = scores.sub(largest.masked_fill(largest == float("-inf"), 0.0)).exp_()
    total = powers.sum(dim=dim, keepdim=True)
    total[total == 0] = 1
    return (powers / total).to(dtype)


# softmax_with_temperature


@variant("computed in float64, where no float32 temperature overflows; ties counted by hand")
def softmax_with_temperature(logits: Tensor, temperature: float, dim: int = -1) -> Tensor:
    if math.isnan(temperature) or temperature < 0:
        raise ValueError(f"the temperature must not be negative or NaN: temperature={temperature}")
    scores = logits.double()
    largest = scores.amax(dim, keepdim=True)
    if temperature == 0:
        winners = ((scores == largest) & (largest > -torch.inf)).double()
        weights = winners / winners.sum(dim, keepdim=True).clamp(min=1.0)
    else:
        gaps = scores - largest.masked_fill(largest == -torch.inf, 0.0)
        weights = softmax(gaps / min(temperature, 1e300), dim)
    return weights.to(logits.dtype if logits.is_floating_point() else torch.float32)


@variant("no call of softmax: exponentials once more, written out")
def softmax_with_temperature(logits: Tensor, temperature: float, dim: int = -1) -> Tensor:
    if not temperature >= 0:
        raise ValueError(f"temperature={temperature}: expected a number from 0 to infinity")
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    candidates = scores > -torch.inf
    if temperature == 0:
        candidates = candidates & (scores == scores.amax(dim, keepdim=True))
    temperature = min(max(temperature, 1e-37), 1e37)
    finite = scores.masked_fill(~candidates, torch.finfo(scores.dtype).min)
    gaps = (finite - finite.amax(dim, keepdim=True)) / temperature
    powers = gaps.masked_fill(~candidates, -torch.inf).exp()
    weights = powers / powers.sum(dim, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    return weights.to(logits.dtype) if logits.is_floating_point() else weights


@variant("temperature 0 as the smallest temperature there is")
def softmax_with_temperature(logits: Tensor, temperature: float, dim: int = -1) -> Tensor:
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, got {temperature!r}")
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    largest = torch.nan_to_num(scores.detach().amax(dim, keepdim=True), neginf=0.0)
    tiny = torch.finfo(scores.dtype).tiny
    weights = softmax((scores - largest) / min(max(temperature, tiny), 1e30), dim)
    return weights.to(logits.dtype) if logits.is_floating_point() else weights


# cross_entropy


@variant("torch.logsumexp, and the target picked by indexing")
def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    if logits.dim() != 2 or 0 in logits.shape:
        raise ValueError(f"logits: expected (M, V), got {list(logits.shape)}")
    if targets.dim() != 1 or len(targets) != len(logits):
        raise ValueError(f"targets: expected ({len(logits)},), got {list(targets.shape)}")
    if targets.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise ValueError(f"targets: expected integers, got {targets.dtype}")
    for target in targets.tolist():
        if not 0 <= target < logits.shape[1]:
            raise ValueError(f"targets: expected 0 to {logits.shape[1] - 1}, got {target}")
    scores = logits if logits.dtype == torch.float64 else logits.float()
    losses = torch.logsumexp(scores, dim=1) - scores[torch.arange(len(targets)), targets.long()]
    return losses.mean().to(logits.dtype)


@variant("the gaps to the target's score, so that its own is 0")
def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    if logits.ndim != 2 or logits.numel() == 0:
        raise ValueError(f"logits must be (M, V), got {tuple(logits.shape)}")
    if targets.shape != logits.shape[:1] or targets.is_floating_point():
        raise ValueError(f"targets must be {logits.shape[0]} integers, got {targets.dtype} {tuple(targets.shape)}")
    if int(targets.min()) < 0 or int(targets.max()) >= logits.shape[1]:
        raise ValueError(f"targets must be in [0, {logits.shape[1]}), got {targets.tolist()}")
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    gaps = scores - scores.gather(1, targets.long()[:, None])
    largest = gaps.amax(1)
    return (largest + torch.log(torch.exp(gaps - largest[:, None]).sum(1))).mean().to(logits.dtype)


@variant("a log-softmax by hand, and a one-hot used as a mask, summed and divided")
def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    if logits.ndim != 2 or min(logits.shape) < 1:
        raise ValueError(f"logits must have two dimensions, got {tuple(logits.shape)}")
    if targets.ndim != 1 or targets.numel() != logits.shape[0] or targets.is_floating_point():
        raise ValueError(f"targets must match the rows of logits, got {tuple(targets.shape)} of {targets.dtype}")
    wrong = targets[(targets < 0) | (targets >= logits.shape[1])]
    if wrong.numel():
        raise ValueError(f"targets: {wrong.tolist()} not in [0, {logits.shape[1]})")
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    shifted = scores - scores.amax(1, keepdim=True)
    log_weights = shifted - shifted.exp().sum(1, keepdim=True).log()
    wanted = F.one_hot(targets.long(), logits.shape[1]).bool()
    return (-log_weights[wanted].sum() / logits.shape[0]).to(logits.dtype)
