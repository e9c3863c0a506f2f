"""Rotary position embedding: queries and keys are turned by an angle that grows with position."""

import torch
from torch import Tensor


def rope_frequencies(d: int, base: float = 10000.0) -> Tensor:
    """How fast each pair of columns turns: radians a position, `base ** (-2 * i / d)` for pair `i`.

    Args:
        d: width of a head; even.
        base: the first pair turns by 1 radian a position, the last by little more than `1 / base`.

    Returns:
        The frequencies, `(d / 2,)`, float32, the fastest first.

    Raises:
        ValueError: `d` is odd or below 2; the message names it.

    Source: "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2 (Su et al., 2021).
    """
    if d < 2 or d % 2:
        raise ValueError(f"d must be even and at least 2, got {d}")
    return 1.0 / base ** (torch.arange(0, d, 2, dtype=torch.float32) / d)


def rope_cos_sin(positions: Tensor, freqs: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angle for every pair: `position * frequency`.

    Args:
        positions: `(T,)`, whole or not, on any device; with a cache they do not start at zero.
        freqs: radians a position, `(d / 2,)`.

    Returns:
        The pair `(cos, sin)`, each `(T, d / 2)`, float32: position 1,000,000 has no exact angle
        in a narrower type.
    """
    angles = positions.float()[:, None] * freqs.float().to(positions.device)  # (T, 1) * (d / 2,) -> (T, d / 2)
    return angles.cos(), angles.sin()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    """Turn each pair of columns `(a, b)` into `(a * cos - b * sin, a * sin + b * cos)`.

    Args:
        x: queries or keys, `(B, H, T, d)`.
        cos: cosine of each position's angles, `(T, d / 2)`.
        sin: their sine, `(T, d / 2)`.
        layout: which columns are a pair: `"interleaved"`, columns `2 * i` and `2 * i + 1`, or
            `"half"`, columns `i` and `i + d / 2`.

    Returns:
        The turned vectors, `(B, H, T, d)`, in the dtype of `x`; the turn itself is computed in
        the wider of the dtypes of `x` and `cos`.

    Raises:
        ValueError: another layout; the message names it and the two that there are.

    Source: "RoFormer", equation 34 (Su et al., 2021).
    """
    if layout == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]  # (B, H, T, d / 2) each
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    elif layout == "half":
        a, b = x.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    else:
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    return turned.to(x.dtype)


def interleaved_to_half(weight: Tensor, n_heads: int) -> Tensor:
    """Reorder the rows of a query or key projection for the other layout.

    With the result, a model that turns in the `half` layout gives the same scores as one that
    turns in the `interleaved` layout with `weight`: in each head, rows 0, 2, 4, ... come first,
    then rows 1, 3, 5, ...

    Args:
        weight: `(n_heads * d, D)`, or a bias `(n_heads * d,)`.
        n_heads: the heads whose rows stand in it: `H` for queries, `K` for keys.

    Returns:
        The same rows in the other order, in the shape of `weight`.

    Raises:
        ValueError: there is not an even number of rows for each head; the message names the rows and `n_heads`.
    """
    heads = _rows_of_heads(weight, n_heads)  # (n_heads, d, ...)
    return torch.cat([heads[:, 0::2], heads[:, 1::2]], dim=1).reshape(weight.shape)


def half_to_interleaved(weight: Tensor, n_heads: int) -> Tensor:
    """Undo `interleaved_to_half`: in each head, the first half's rows and the second's take turns.

    Args:
        weight: `(n_heads * d, D)`, or a bias `(n_heads * d,)`.
        n_heads: the heads whose rows stand in it.

    Returns:
        The same rows in the other order, in the shape of `weight`.

    Raises:
        ValueError: there is not an even number of rows for each head; the message names the rows and `n_heads`.
    """
    first, second = _rows_of_heads(weight, n_heads).chunk(2, dim=1)  # (n_heads, d / 2, ...) each
    return torch.stack([first, second], dim=2).reshape(weight.shape)


def _rows_of_heads(weight: Tensor, n_heads: int) -> Tensor:
    rows = weight.shape[0]
    if n_heads < 1 or rows % (2 * n_heads):
        raise ValueError(f"each head must have an even number of rows: {rows} rows, n_heads {n_heads}")
    return weight.reshape(n_heads, rows // n_heads, *weight.shape[1:])
