"""The decoder-only model: one loss, and text written one token at a time."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .softmax import cross_entropy, softmax_with_temperature


def next_token_loss(model: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    """How badly the model predicts each next token of the sequences: the mean cross-entropy, in nats.

    The model reads every token but the last of each sequence, and is asked for every token but
    the first: `T - 1` predictions a sequence, all of equal weight.

    Args:
        model: from ids `(B, T - 1)` to logits `(B, T - 1, V)`; called once.
        ids: the sequences, `(B, T)`.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: `ids` is not of two dimensions, or `T` is below 2; the message names its shape.

    Source: "Improving Language Understanding by Generative Pre-Training", equation 1 (Radford et al., 2018).
    """
    if ids.dim() != 2 or ids.shape[1] < 2:
        raise ValueError(f"ids must have shape (B, T), with T at least 2, got {tuple(ids.shape)}")
    logits = model(ids[:, :-1])  # (B, T - 1, V)
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def sample_next(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw one id for each row of scores.

    First the temperature: the scores are divided by it. Then the filters: `top_k` keeps the `k`
    likeliest ids, and `top_p` the fewest likeliest whose probabilities reach `p` together, the one
    that crosses `p` included; if both are given, `top_k` comes first and the probabilities that
    it leaves are scaled to one. An id is then drawn in proportion to the probabilities left.

    Args:
        logits: scores, `(B, V)`.
        temperature: 0 takes the likeliest id, the lowest of equals, whatever the filters.
        top_k: how many ids may be drawn; more than `V` means all. `None` filters nothing.
        top_p: above 0 and at most 1. `None` filters nothing.
        generator: the source of the random numbers.

    Returns:
        One id a row, `(B,)`, int64.

    Raises:
        ValueError: the temperature is negative, `top_k` is below 1, or `top_p` is not above 0 and
            at most 1; the message names the argument and its value.

    Source: "Hierarchical Neural Story Generation" (Fan et al., 2018) for top-k; "The Curious Case
    of Neural Text Degeneration" (Holtzman et al., 2020) for top-p.
    """
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")
    if temperature == 0:
        return logits.argmax(dim=-1)
    if top_k is not None and top_k < logits.shape[-1]:
        chosen = logits.topk(top_k, dim=-1).indices  # exactly k, even if scores are equal
        dropped = torch.ones_like(logits, dtype=torch.bool).scatter(-1, chosen, False)
        logits = logits.masked_fill(dropped, -math.inf)
    probabilities = softmax_with_temperature(logits, temperature)  # (B, V)
    if top_p is not None:
        ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(dim=-1) - ordered  # the sum of all that are likelier
        probabilities = torch.zeros_like(ordered).scatter(-1, order, ordered.masked_fill(before >= top_p, 0))
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


@torch.no_grad()
def generate(model: Callable[[Tensor], Tensor], ids: Tensor, max_new_tokens: int, **sampling: Any) -> Tensor:
    """Write: score, draw, append, and again, each time reading everything written so far.

    Args:
        model: from ids `(B, T)` to logits `(B, T, V)`; called once for each new token.
        ids: what to continue, `(B, T)`, with `T` at least 1; it is left as it was.
        max_new_tokens: how many tokens to write, `n`; with 0, nothing.
        sampling: handed to `sample_next`: `temperature`, `top_k`, `top_p`, `generator`.

    Returns:
        What there was and what is new, `(B, T + n)`, without a gradient.
    """
    for _ in range(max_new_tokens):
        logits = model(ids)[:, -1]  # (B, V): only the last position speaks of what comes next
        ids = torch.cat([ids, sample_next(logits, **sampling)[:, None]], dim=1)
    return ids
