"""Multi-head attention: several heads look at once, each through projections of its own."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .attention import attention


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Cut each vector into `H` pieces of width `d = D / H`, heads before positions.

    Head `h` gets columns `h * d` to `(h + 1) * d - 1` of every token.

    Args:
        x: vectors, `(B, T, D)`.
        n_heads: the number of heads, `H`.

    Returns:
        The pieces, `(B, H, T, d)`, in the dtype of `x`.

    Raises:
        ValueError: `D` is not a multiple of `H`; the message names both numbers.

    Source: "Attention Is All You Need", section 3.2.2 (Vaswani et al., 2017).
    """
    B, T, D = x.shape
    if n_heads < 1 or D % n_heads:
        raise ValueError(f"the width must be a multiple of the number of heads: the width is {D}, n_heads is {n_heads}")
    # Columns are cut where they lie; only then do heads and positions change places.
    return x.reshape(B, T, n_heads, D // n_heads).transpose(1, 2)  # (B, T, H, d) -> (B, H, T, d)


def merge_heads(x: Tensor) -> Tensor:
    """Put the heads' pieces side by side again: the inverse of `split_heads`.

    Args:
        x: one piece for each head and position, `(B, H, T, d)`.

    Returns:
        The vectors, `(B, T, H * d)`: head 0's columns first, then head 1's, and so on.
    """
    B, H, T, d = x.shape
    return x.transpose(1, 2).reshape(B, T, H * d)  # (B, T, H, d) -> (B, T, D)


class MultiHeadAttention(nn.Module):
    """`H` heads of attention share one width: each has projections of its own, one matrix mixes them.

    Four linear maps from `d_model` to `d_model`: `q_proj`, `k_proj` and `v_proj`, whose rows
    `h * d` to `(h + 1) * d - 1` belong to head `h`, and `o_proj`, which mixes the merged heads.

    Args:
        d_model: width of the tokens, `D`.
        n_heads: number of heads, `H`; each is `d = D / H` wide.
        bias: whether the four maps have a bias.

    Raises:
        ValueError: `d_model` is not a multiple of `n_heads`; the message names both numbers.

    Source: "Attention Is All You Need", section 3.2.2 (Vaswani et al., 2017).
    """

    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"d_model must be a multiple of n_heads: d_model is {d_model}, n_heads is {n_heads}")
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, d_model, bias=bias)
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        attend: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        """Let the tokens attend to one another, or to those of another sequence.

        Args:
            x: the tokens that ask, `(B, T, D)`.
            mask: boolean, broadcast with `(B, H, T, S)`; `True` = may attend.
            context: the tokens that are looked at, `(B, S, D)`: keys and values come from them
                (cross-attention). `None` means `x` itself (self-attention, `S = T`).
            attend: the function that blends values, called as `attend(q, k, v, mask)` with all
                heads at once, `(B, H, T, d)` and `(B, H, S, d)`. `None` means your `attention`.

        Returns:
            One vector for each token that asks, `(B, T, D)`.
        """
        context = x if context is None else context
        blend: Callable[..., Any] = attention if attend is None else attend
        q = split_heads(self.q_proj(x), self.n_heads)  # (B, H, T, d)
        k = split_heads(self.k_proj(context), self.n_heads)  # (B, H, S, d)
        v = split_heads(self.v_proj(context), self.n_heads)  # (B, H, S, d)
        return self.o_proj(merge_heads(blend(q, k, v, mask)))
