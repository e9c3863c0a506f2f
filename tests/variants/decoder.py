"""Right answers to the exercises of chapter 09 that differ from the reference."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.specimens import variant

from .softmax import softmax

# next_token_loss


@variant("log-probabilities gathered")
def next_token_loss(model: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    if ids.ndim != 2 or ids.size(1) <= 1:
        raise ValueError(f"expected (B, T) with T > 1, not {tuple(ids.shape)}")
    log_p = torch.log_softmax(model(ids[:, :-1]), dim=-1)
    return -log_p.gather(-1, ids[:, 1:, None]).mean()


@variant("the whole sequence read, the last scores left out")
def next_token_loss(model: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    if len(ids.shape) != 2 or ids.shape[-1] == 1:
        raise ValueError(f"ids of shape {list(ids.shape)}")
    logits = model(ids)[:, :-1]
    return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:])


# sample_next


@variant("by Gumbel noise, in sorted order")
def sample_next(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    if temperature < 0:
        raise ValueError(f"temperature {temperature} is negative")
    if top_k is not None and top_k <= 0:
        raise ValueError(f"top_k = {top_k}")
    if top_p is not None and (top_p <= 0 or top_p > 1):
        raise ValueError(f"top_p = {top_p}")
    if temperature == 0:
        return logits.argmax(-1)
    scores, order = (logits / temperature).sort(dim=-1, descending=True)
    if top_k is not None:
        scores = scores.clone()
        scores[:, top_k:] = -math.inf
    if top_p is not None:
        p = softmax(scores, dim=-1)
        scores = scores.masked_fill(p.cumsum(-1) - p >= top_p, -math.inf)
    uniform = torch.rand(scores.shape, generator=generator).clamp(1e-20, 1 - 1e-7)
    place = (scores - (-uniform.log()).log()).argmax(-1, keepdim=True)
    return order.gather(-1, place).squeeze(-1)


@variant("by the cumulative sum and one uniform number a row")
def sample_next(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be positive, not {top_k}")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p must lie in (0, 1], not {top_p}")
    if temperature < 0:
        raise ValueError(f"temperature must not be negative: {temperature}")
    if temperature == 0:
        return torch.max(logits, dim=-1).indices
    p, order = softmax(logits / temperature, dim=-1).sort(dim=-1, descending=True)
    if top_k is not None:
        p = torch.where(torch.arange(p.shape[-1]) < top_k, p, 0.0)
        p = p / p.sum(-1, keepdim=True)
    if top_p is not None:
        p = torch.where(p.cumsum(-1) - p < top_p, p, 0.0)
        p = p / p.sum(-1, keepdim=True)
    draw = torch.rand(len(p), 1, generator=generator) * p.sum(-1, keepdim=True)
    place = (p.cumsum(-1) <= draw).sum(-1, keepdim=True).clamp(max=p.shape[-1] - 1)
    return order.gather(-1, place)[:, 0]


# generate


@variant("a buffer of the full length")
def generate(model: Callable[[Tensor], Tensor], ids: Tensor, max_new_tokens: int, **sampling: Any) -> Tensor:
    B, T = ids.shape
    whole = torch.zeros(B, T + max_new_tokens, dtype=ids.dtype)
    whole[:, :T] = ids
    with torch.no_grad():
        for end in range(T, T + max_new_tokens):
            whole[:, end] = sample_next(model(whole[:, :end])[:, -1, :], **sampling)
    return whole


@variant("by recursion")
def generate(model: Callable[[Tensor], Tensor], ids: Tensor, max_new_tokens: int, **sampling: Any) -> Tensor:
    if max_new_tokens == 0:
        return ids.clone()
    with torch.inference_mode():
        new = sample_next(model(ids)[:, -1], **sampling)
    return generate(model, torch.cat((ids, new.clone().unsqueeze(1)), dim=1), max_new_tokens - 1, **sampling)
