"""The key-value cache: past keys and values are kept, not computed again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attention import attention, causal_mask
from .decoder import sample_next


def cache_bytes(
    n_layers: int, n_kv_heads: int, head_dim: int, length: int, batch: int = 1, bytes_per_value: int = 2
) -> int:
    """How much memory the keys and values of a text take.

    Args:
        n_layers: layers, `L`; each keeps keys and values of its own.
        n_kv_heads: heads that have keys and values, `K`.
        head_dim: numbers in one key, and in one value, `d`.
        length: positions kept.
        batch: texts at once, `B`.
        bytes_per_value: 2 for float16 and bfloat16, 4 for float32.

    Returns:
        The number of bytes.

    Source: "Efficiently Scaling Transformer Inference", section 2.1 (Pope et al., 2023).
    """
    return 2 * n_layers * n_kv_heads * head_dim * length * batch * bytes_per_value  # 2: a key and a value


class KVCache:
    """Every layer's keys and values of the positions read so far.

    Args:
        n_layers: layers of the model, `L`.

    Source: "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4 (Shazeer, 2019).
    """

    def __init__(self, n_layers: int) -> None:
        self.keys: list[Tensor | None] = [None] * n_layers
        self.values: list[Tensor | None] = [None] * n_layers

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new positions to one layer's.

        Args:
            layer: which layer, counted from 0.
            k: keys of the new positions, `(B, K, T, d)`.
            v: their values, `(B, K, T, d)`.

        Returns:
            The pair of all keys and all values of that layer, `(B, K, S, d)` each, the oldest
            position first; `S` counts the old positions and the new.
        """
        old_k, old_v = self.keys[layer], self.values[layer]
        self.keys[layer] = k = k if old_k is None else torch.cat([old_k, k], dim=-2)
        self.values[layer] = v = v if old_v is None else torch.cat([old_v, v], dim=-2)
        return k, v

    @property
    def length(self) -> int:
        """Positions that every layer holds; 0 at the start."""
        return min((0 if k is None else k.shape[-2] for k in self.keys), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values held."""
        held = [x for x in self.keys + self.values if x is not None]
        return sum(x.numel() * x.element_size() for x in held)


def attend_with_cache(
    q: Tensor, k: Tensor, v: Tensor, cache: KVCache, layer: int, attend: Callable[..., Any] = attention
) -> Tensor:
    """Let new tokens look at themselves and at everything that the cache holds of this layer.

    The new keys and values join the cache. Then the `T` new queries, which stand at the end of
    the `S` positions, attend causally: query `t` sees the position that it stands at and all before.

    Args:
        q: queries of the new tokens, `(B, H, T, d)`.
        k: their keys, `(B, K, T, d)`.
        v: their values, `(B, K, T, d)`.
        cache: what is kept; it is updated.
        layer: whose keys and values these are.
        attend: blends the values, called once as `attend(q, k, v, mask)` with all keys and values,
            `(B, K, S, d)`, and a boolean mask `(T, S)`.

    Returns:
        What `attend` gives, `(B, H, T, d)`.
    """
    k, v = cache.update(layer, k, v)
    mask = causal_mask(q.shape[-2], k.shape[-2], device=q.device)  # aligned to the end of the keys
    return attend(q, k, v, mask)


@torch.no_grad()
def generate_cached(model: Any, ids: Tensor, max_new_tokens: int, **sampling: Any) -> Tensor:
    """Write as `generate` does, token for token, but read every token once.

    Args:
        model: called as `model(ids, cache=cache)`, from ids `(B, T)` to logits `(B, T, V)`: first
            with what there is to continue, then with one new token at a time. It puts their keys
            and values into the cache, and has `model.config.n_layers` layers.
        ids: what to continue, `(B, T)`, with `T` at least 1; it is left as it was.
        max_new_tokens: how many tokens to write, `n`.
        sampling: handed to `sample_next`: `temperature`, `top_k`, `top_p`, `generator`.

    Returns:
        What there was and what is new, `(B, T + n)`, without a gradient.
    """
    cache, unread = KVCache(model.config.n_layers), ids
    for _ in range(max_new_tokens):
        logits = model(unread, cache=cache)[:, -1]  # (B, V)
        unread = sample_next(logits, **sampling)[:, None]  # (B, 1)
        ids = torch.cat([ids, unread], dim=1)
    return ids
