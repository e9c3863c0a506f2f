"""Grouped-query attention: query heads in groups, each group with one head of keys and values."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .attention import attention
from .multi_head_attention import merge_heads, split_heads


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    """Give every query head of a group a copy of the group's keys (or values).

    Head `k` of the input becomes heads `k * n_rep` to `(k + 1) * n_rep - 1` of the result: copies
    of one head stand side by side.

    Args:
        x: keys or values, `(B, K, S, d)`.
        n_rep: query heads in a group, `H / K`.

    Returns:
        The copies, `(B, K * n_rep, S, d)`.

    Source: "GQA: Training Generalized Multi-Query Transformer Models" (Ainslie et al., 2023).
    """
    return x.repeat_interleave(n_rep, dim=1)


class GroupedQueryAttention(nn.Module):
    """`H` query heads in `K` groups; each group shares one head of keys and values.

    Query head `h` belongs to group `h // (H / K)`. With `K = H` this is multi-head attention, with
    `K = 1` multi-query attention. Four linear maps: `q_proj` from `d_model` to `H * d`, `k_proj` and
    `v_proj` from `d_model` to `K * d`, `o_proj` from `H * d` to `d_model`.

    Args:
        d_model: width of the tokens, `D`.
        n_heads: number of query heads, `H`.
        n_kv_heads: number of key/value heads, `K`.
        bias: whether the four maps have a bias.
        head_dim: width of one head, `d`; `None` means `D / H`.

    Raises:
        ValueError: `n_heads` is not a multiple of `n_kv_heads`, or, without a `head_dim`, `d_model`
            is not a multiple of `n_heads`; the message names both numbers.

    Source: "GQA: Training Generalized Multi-Query Transformer Models" (Ainslie et al., 2023).
    """

    def __init__(
        self, d_model: int, n_heads: int, n_kv_heads: int, bias: bool = False, head_dim: int | None = None
    ) -> None:
        super().__init__()
        if n_kv_heads < 1 or n_heads % n_kv_heads:
            raise ValueError(f"n_heads must be a multiple of n_kv_heads: {n_heads} and {n_kv_heads}")
        if head_dim is None and d_model % n_heads:
            raise ValueError(f"d_model must be a multiple of n_heads: d_model is {d_model}, n_heads is {n_heads}")
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        d = d_model // n_heads if head_dim is None else head_dim
        self.q_proj = nn.Linear(d_model, n_heads * d, bias=bias)
        self.k_proj = nn.Linear(d_model, n_kv_heads * d, bias=bias)
        self.v_proj = nn.Linear(d_model, n_kv_heads * d, bias=bias)
        self.o_proj = nn.Linear(n_heads * d, d_model, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, attend: Callable[..., Tensor] | None = None) -> Tensor:
        """Let the tokens attend to one another, each query head by its group's keys and values.

        Args:
            x: tokens, `(B, T, D)`.
            mask: boolean, broadcast with `(B, H, T, T)`; `True` = may attend.
            attend: the function that blends values, called as `attend(q, k, v, mask)` with queries
                `(B, H, T, d)` and the `K` heads of keys and of values, `(B, K, T, d)` each, not
                repeated: so that a cache keeps `K` heads. `None` means `repeat_kv`, then your
                `attention`.

        Returns:
            One vector for each token, `(B, T, D)`.
        """
        q = split_heads(self.q_proj(x), self.n_heads)  # (B, H, T, d)
        k = split_heads(self.k_proj(x), self.n_kv_heads)  # (B, K, T, d)
        v = split_heads(self.v_proj(x), self.n_kv_heads)  # (B, K, T, d)
        blend: Callable[..., Any] = self._attend_in_groups if attend is None else attend
        return self.o_proj(merge_heads(blend(q, k, v, mask)))

    def _attend_in_groups(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Any:
        n_rep = self.n_heads // self.n_kv_heads
        return attention(q, repeat_kv(k, n_rep), repeat_kv(v, n_rep), mask)


def pool_kv_heads(weight: Tensor, n_heads: int, n_kv_heads: int) -> Tensor:
    """Turn the key (or value) projection of multi-head attention into one of grouped-query attention.

    Each group's new head is the mean of its old heads: of heads `g * H / K` to `(g + 1) * H / K - 1`
    for group `g`.

    Args:
        weight: of `k_proj` or `v_proj`, `(H * d, D)`.
        n_heads: heads that there are, `H`.
        n_kv_heads: heads to be left, `K`.

    Returns:
        The weight of the smaller projection, `(K * d, D)`.

    Raises:
        ValueError: `n_heads` is not a multiple of `n_kv_heads`, or the weight's rows not one of
            `n_heads`; the message names both numbers.

    Source: "GQA: Training Generalized Multi-Query Transformer Models", section 2.1 (Ainslie et al., 2023).
    """
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(f"n_heads must be a multiple of n_kv_heads: {n_heads} and {n_kv_heads}")
    rows, D = weight.shape
    if rows % n_heads:
        raise ValueError(f"the weight's rows must be a multiple of n_heads: {rows} and {n_heads}")
    heads = weight.reshape(n_kv_heads, n_heads // n_kv_heads, rows // n_heads, D)  # (K, H / K, d, D)
    return heads.mean(dim=1).reshape(-1, D)  # (K * d, D)
