"""Query, key and value: scaled dot-product attention, its causal mask and one head of self-attention."""

import math

import torch
from torch import Tensor, nn

from .softmax import softmax


def attention_scores(q: Tensor, k: Tensor) -> Tensor:
    """Score every query against every key: their dot product, divided by the square root of `d`.

    Args:
        q: queries, `(..., T, d)`.
        k: keys, `(..., S, d)`; the leading dimensions broadcast with those of `q`.

    Returns:
        The scores, `(..., T, S)`, in the dtype of `q`: row `t` holds query `t` against each key.

    Raises:
        ValueError: queries and keys differ in width; the message names both widths.

    Source: "Attention Is All You Need", section 3.2.1 (Vaswani et al., 2017).
    """
    d = q.shape[-1]
    if k.shape[-1] != d:
        raise ValueError(f"q and k must have the same width d: q has {d}, k has {k.shape[-1]}")
    # Scaling the queries first keeps the products small, which matters in float16.
    return (q / math.sqrt(d)) @ k.mT  # (..., T, d) @ (..., d, S) -> (..., T, S)


def causal_mask(T: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    """Say which keys each query may attend to when no token may look ahead: `True` = may attend.

    The `T` queries stand for the last `T` of the `S` positions, so the mask is aligned to the
    end of the keys: query `t` sits at position `t + S - T` and may attend to that position and
    to all earlier ones. If `S < T`, the first `T - S` queries may attend to nothing.

    Args:
        T: number of queries.
        S: number of keys; `None` means `T`.
        device: where to make the mask; `None` means torch's default device.

    Returns:
        A boolean tensor, `(T, S)`.
    """
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, return_weights: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Blend the values by how well each query's question fits each key (scaled dot-product attention).

    Build it from `attention_scores` and your own `softmax`; do not call torch's own attention.

    Args:
        q: queries, `(..., T, d)`.
        k: keys, `(..., S, d)`.
        v: values, `(..., S, d_v)`; one for each key.
        mask: boolean, broadcast with `(..., T, S)`; `True` = may attend. `None` hides nothing.
        return_weights: return the weights as well.

    Returns:
        The output, `(..., T, d_v)`; with `return_weights` the pair `(output, weights)`, the
        weights being `(..., T, S)`. Each query's weights sum to one over the keys that it may
        attend to, and a hidden key's weight is exactly zero. A query that may attend to no key
        has weights and output zero, and finite gradients.

    Raises:
        ValueError: the mask is not boolean, or there is not one value for each key.

    Source: "Attention Is All You Need", equation 1 (Vaswani et al., 2017).
    """
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean, True = may attend; its dtype is {mask.dtype}")
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"there must be one value for each key: {k.shape[-2]} keys, {v.shape[-2]} values")
    scores = attention_scores(q, k)  # (..., T, S)
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    weights = softmax(scores, dim=-1)  # over the keys
    output = weights @ v  # (..., T, S) @ (..., S, d_v) -> (..., T, d_v)
    return (output, weights) if return_weights else output


class SelfAttention(nn.Module):
    """One head of self-attention: every token asks, advertises and delivers.

    The three projections are linear maps without bias, `q_proj`, `k_proj` and `v_proj`, each
    from `d_model` to `d_head`.

    Args:
        d_model: width of the tokens, `D`.
        d_head: width of queries, keys and values, `d`.
    """

    def __init__(self, d_model: int, d_head: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_head, bias=False)
        self.k_proj = nn.Linear(d_model, d_head, bias=False)
        self.v_proj = nn.Linear(d_model, d_head, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Let the tokens of each sequence attend to one another.

        Args:
            x: tokens, `(..., T, D)`.
            mask: boolean, broadcast with `(..., T, T)`; `True` = may attend.

        Returns:
            One vector a token, `(..., T, d)`.
        """
        # The weights were not asked for, so this is a tensor.
        return attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)  # type: ignore[return-value]
