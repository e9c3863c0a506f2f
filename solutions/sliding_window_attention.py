"""Sliding-window attention: each token looks at itself and a fixed span of tokens before it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .attention import attention


def sliding_window_mask(T: int, window: int, n_global: int = 0, S: int | None = None) -> Tensor:
    """Say which keys each query may attend to: its window, and the global tokens. `True` = may attend.

    A token sees itself and the `window - 1` tokens before it, never one that comes later. The first
    `n_global` positions are global: every token that comes after them sees them, however far away.

    The `T` queries stand for the last `T` of the `S` positions, as in `causal_mask`: query `t` sits
    at position `t + S - T`.

    Args:
        T: number of queries.
        window: how many tokens a token sees, itself included, `W`.
        n_global: how many positions at the start of the keys every later token sees as well.
        S: number of keys; `None` means `T`.

    Returns:
        A boolean tensor, `(T, S)`.

    Raises:
        ValueError: `window` is below 1, or `n_global` below 0; the message names it and the number.

    Source: "Longformer: The Long-Document Transformer", section 3.1 (Beltagy et al., 2020).
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, the token itself: it is {window}")
    if n_global < 0:
        raise ValueError(f"n_global must be at least 0: it is {n_global}")
    S = T if S is None else S
    position = torch.arange(S - T, S)[:, None]  # (T, 1): where each query stands
    key = torch.arange(S)  # (S,)
    near = key > position - window  # (T, S)
    return (key <= position) & (near | (key < n_global))


def receptive_field(n_layers: int, window: int) -> int:
    """How many positions a token's vector can depend on, its own included, after some windowed layers.

    Each layer reaches `window - 1` tokens further back, so the reach grows with the depth: close to
    `n_layers * window`, the number that papers give, and exactly that many less `n_layers - 1`.

    Args:
        n_layers: layers, each with the same window, `L`; after 0 layers a token knows only itself.
        window: how many tokens a token sees in one layer, itself included, `W`.

    Returns:
        The number of positions.

    Raises:
        ValueError: `n_layers` is below 0, or `window` below 1; the message names it and the number.

    Source: "Mistral 7B", section 2 (Jiang et al., 2023).
    """
    if n_layers < 0:
        raise ValueError(f"n_layers must be at least 0: it is {n_layers}")
    if window < 1:
        raise ValueError(f"window must be at least 1, the token itself: it is {window}")
    return n_layers * (window - 1) + 1


def sliding_window_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Causal attention within a window, with work and memory that grow linearly with the length.

    Equal to `attention(q, k, v, sliding_window_mask(T, window))`, but no tensor on the way has
    `T * T` elements. The queries are taken block by block. A block needs the keys at its own
    positions and the `window - 1` before them, and no others.

    Args:
        q: queries, `(..., T, d)`.
        k: keys, `(..., T, d)`.
        v: values, `(..., T, d_v)`.
        window: how many tokens a token sees, itself included, `W`; it may be above `T`.

    Returns:
        What each query found, `(..., T, d_v)`, in the dtype of `q`.

    Raises:
        ValueError: `window` is below 1, or there are not as many keys as queries; the message names
            the numbers.

    Source: "Longformer: The Long-Document Transformer", section 3.2 (Beltagy et al., 2020).
    """
    T, block = q.shape[-2], 64
    if k.shape[-2] != T:
        raise ValueError(f"there must be one key for each query: {T} queries, {k.shape[-2]} keys")
    window = min(window, max(T, 1))
    n, span = -(-T // block), block + window - 1  # blocks of queries, and keys that a block needs
    mask = sliding_window_mask(block, window, S=span).to(q.device)  # the same for every block
    q = F.pad(q, (0, 0, 0, n * block - T)).unflatten(-2, (n, block))  # (..., n, block, d)
    keys, values = (
        F.pad(x, (0, 0, window - 1, n * block - T)).unfold(-2, span, block).mT  # (..., n, span, d), not copied
        for x in (k, v)
    )
    position = torch.arange(1 - window, block, device=q.device) + block * torch.arange(n, device=q.device)[:, None]
    outputs: list[Any] = []
    group = max(1, 16 // q[..., 0, 0, 0].numel())  # some blocks at once, few enough to stay near the processor
    for some in torch.arange(n).split(group):
        i = slice(int(some[0]), int(some[-1]) + 1)
        real = position[i, None] >= 0  # (group, 1, span): the first block's keys begin with padding
        outputs.append(attention(q[..., i, :, :], keys[..., i, :, :], values[..., i, :, :], mask & real))
    return torch.cat(outputs, dim=-3).flatten(-3, -2)[..., :T, :]


class RollingKVCache:
    """Every layer's keys and values of the last `window` positions: it stops growing there.

    It is used as the `KVCache` of chapter 11 is. Layers need not be announced; each begins with its
    first update.

    Args:
        window: how many positions a layer keeps, `W`.

    Raises:
        ValueError: `window` is below 1; the message names it and the number.

    Source: "Mistral 7B", section 2, "Rolling Buffer Cache" (Jiang et al., 2023).
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1, the token itself: it is {window}")
        self.window = window
        self.held: dict[int, tuple[Tensor, Tensor]] = {}
        self.read: dict[int, int] = {}

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new positions to one layer's, and forget what is too old.

        Args:
            layer: which layer.
            k: keys of the new positions, `(B, K, T, d)`.
            v: their values, `(B, K, T, d_v)`.

        Returns:
            The keys and the values that the new positions may look at, the oldest first:
            `(B, K, S, d)` and `(B, K, S, d_v)`. `S` counts the new positions and at most `window - 1`
            old ones. Of these the cache itself keeps the last `window`, in memory of their own.
        """
        self.read[layer] = self.read.get(layer, 0) + k.shape[-2]
        if layer in self.held:
            old_k, old_v = self.held[layer]
            gone = max(0, old_k.shape[-2] - self.window + 1)  # no new position sees these
            k = torch.cat([old_k[..., gone:, :], k], dim=-2)
            v = torch.cat([old_v[..., gone:, :], v], dim=-2)
        # clone: a view would keep all of a long prompt alive.
        self.held[layer] = k[..., -self.window :, :].clone(), v[..., -self.window :, :].clone()
        return k, v

    @property
    def length(self) -> int:
        """Positions that every layer has read, kept or not; 0 at the start."""
        return min(self.read.values(), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values held."""
        return sum(x.numel() * x.element_size() for pair in self.held.values() for x in pair)
