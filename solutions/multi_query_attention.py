"""Multi-query attention: every head keeps its queries, all share one head of keys and values."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .attention import attention
from .multi_head_attention import merge_heads, split_heads


def attend_shared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of several query heads over one head of keys and values, which is not copied.

    A key does not know which head asks. So the queries of all heads stand in one head as further
    rows, `(B, 1, H * T, d)`, and each meets the keys as they lie.

    Args:
        q: queries, `(B, H, T, d)`.
        k: the one head of keys, `(B, 1, S, d)`.
        v: their values, `(B, 1, S, d)`.
        mask: boolean, broadcast with `(B, H, T, S)`; `True` = may attend. `None` hides nothing.

    Returns:
        What each query found, `(B, H, T, d)`.

    Source: "Fast Transformer Decoding: One Write-Head is All You Need", section 3 (Shazeer, 2019).
    """
    B, H, T, d = q.shape
    if mask is not None:
        mask = mask.expand(B, H, T, k.shape[-2]).reshape(B, 1, H * T, -1)
    rows: Any = attention(q.reshape(B, 1, H * T, d), k, v, mask)  # (B, 1, H * T, d)
    output: Tensor = rows.reshape(B, H, T, d)
    return output


class MultiQueryAttention(nn.Module):
    """`H` heads of queries look at one head of keys and values.

    Four linear maps: `q_proj` and `o_proj` from `d_model` to `d_model`, as in multi-head attention;
    `k_proj` and `v_proj` from `d_model` to `d = d_model / n_heads`, the width of one head.

    Args:
        d_model: width of the tokens, `D`.
        n_heads: number of query heads, `H`; each is `d = D / H` wide.
        bias: whether the four maps have a bias.

    Raises:
        ValueError: `d_model` is not a multiple of `n_heads`; the message names both numbers.

    Source: "Fast Transformer Decoding: One Write-Head is All You Need" (Shazeer, 2019).
    """

    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"d_model must be a multiple of n_heads: d_model is {d_model}, n_heads is {n_heads}")
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, d_model // n_heads, bias=bias)
        self.v_proj = nn.Linear(d_model, d_model // n_heads, bias=bias)
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, attend: Callable[..., Tensor] | None = None) -> Tensor:
        """Let the tokens attend to one another, all heads by the same keys and values.

        Args:
            x: tokens, `(B, T, D)`.
            mask: boolean, broadcast with `(B, H, T, T)`; `True` = may attend.
            attend: the function that blends values, called as `attend(q, k, v, mask)` with
                queries `(B, H, T, d)` and the one head of keys and of values, `(B, 1, T, d)` each.
                `None` means your `attend_shared`.

        Returns:
            One vector for each token, `(B, T, D)`.
        """
        blend = attend_shared if attend is None else attend
        q = split_heads(self.q_proj(x), self.n_heads)  # (B, H, T, d)
        k, v = self.k_proj(x).unsqueeze(1), self.v_proj(x).unsqueeze(1)  # (B, 1, T, d) each
        return self.o_proj(merge_heads(blend(q, k, v, mask)))
