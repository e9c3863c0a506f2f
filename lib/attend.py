"""How a layer's queries, keys and values meet in a `LanguageModel`. This module is given: no exercise.

Every attention layer asks a function `attend(q, k, v, mask)` to blend its values. A model hands its layers
an `Attend`, made anew for each pass: it norms and turns queries and keys where the plan says so, keeps keys
and values where there is a cache, and leaves the rest to your `attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lib import pieces
from lib.config import Config


class Attend:
    """`attend` for all layers of one pass through a model; each layer calls it once, in order.

    Args:
        config: the model's plan.
        blocks: the model's layers; with `qk_norm`, their attention holds `q_norm` and `k_norm`.
        start: position of the first of the new tokens: how many are in the cache.
        T: how many new tokens there are.
        cache: keeps keys and values, as a `KVCache` does; `None` keeps nothing.
    """

    def __init__(self, config: Config, blocks: nn.ModuleList, start: int, T: int, cache: Any, device: torch.device):
        self.config, self.blocks, self.cache = config, blocks, cache
        self.layer = 0
        self.window: int | None = None
        self.attention = pieces.take("attention", "attention", "LanguageModel")
        if config.mixer == "mqa":
            self.attend_shared = pieces.take("multi_query_attention", "attend_shared", "Config(mixer='mqa')")
        elif config.kv_heads < config.n_heads:
            self.repeat_kv = pieces.take("grouped_query_attention", "repeat_kv", "Config(mixer='gqa')")
        if config.positions == "rope":
            self.turn = _rope(config, torch.arange(start, start + T, device=device))
        if config.window is not None:
            self.windowed, self.window_mask = (
                pieces.take("sliding_window_attention", name, "Config(window=...)")
                for name in ("sliding_window_attention", "sliding_window_mask")
            )
        if cache is not None:
            self.attend_with_cache = pieces.take("kv_cache", "attend_with_cache", "a cache")

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Blend one layer's values: queries `(B, H, T, d)`, keys and values `(B, K, T, d)`."""
        layer, self.layer = self.layer, self.layer + 1
        self.window = self.config.window_of(layer)
        if self.config.qk_norm:
            attention: Any = self.blocks[layer].get_submodule("attention.sublayer")
            q, k = attention.q_norm(q), attention.k_norm(k)
        if self.config.positions == "rope":
            q, k = self.turn(torch.cat([q, k], dim=1)).split([q.shape[1], k.shape[1]], dim=1)  # in one go
        if self.cache is None:
            return self.blend(q, k, v, mask)
        return self.attend_with_cache(q, k, v, self.cache, layer, self.blend)

    def blend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Blend the values that lie within the layer's window, or all where it has none."""
        T, S, window = q.shape[2], k.shape[2], self.window
        if window is None or window >= S:
            return self._blend_all(q, k, v, mask)
        if T == 1:
            return self._blend_all(q, k[:, :, -window:], v[:, :, -window:], None)
        if T == S:
            output: Tensor = self.windowed(q, self._for_each_head(k), self._for_each_head(v), window)
            return output
        return self._blend_all(q, k, v, self.window_mask(T, window, S=S).to(q.device))

    def _blend_all(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Your `attention`, once every query head has keys and values."""
        n_rep = q.shape[1] // k.shape[1]
        output: Tensor
        if self.config.mixer == "mqa" and n_rep > 1:
            output = self.attend_shared(q, k, v, mask)
        elif n_rep > 1 and q.shape[2] == 1:
            # One new token sees every key, whatever the mask, so the queries of a group can stand in
            # one head as if they were positions: nothing of the cache is copied.
            grouped = q.reshape(q.shape[0], k.shape[1], n_rep, q.shape[3])  # (B, K, H / K, d)
            output = self.attention(grouped, k, v).reshape(q.shape)
        else:
            output = self.attention(q, self._for_each_head(k), self._for_each_head(v), mask)
        return output

    def _for_each_head(self, x: Tensor) -> Tensor:
        """Keys or values `(B, K, S, d)` of all query heads: `(B, H, S, d)`."""
        n_rep = self.config.n_heads // x.shape[1]
        if n_rep == 1:
            return x
        repeated: Tensor = x.expand(-1, n_rep, -1, -1) if self.config.mixer == "mqa" else self.repeat_kv(x, n_rep)
        return repeated


def _rope(config: Config, positions: Tensor) -> Callable[[Tensor], Tensor]:
    """Turns `(B, H, T, d)` by the angles of these positions, in the layout that checkpoints are loaded in."""
    cos_sin, apply = (_take("rotary_embedding", name) for name in ("rope_cos_sin", "apply_rope"))
    scaling, d, base, factor = config.rope_scaling, config.d_head, config.rope_base, config.rope_factor
    if scaling == "yarn":
        frequencies = _take("position_interpolation", "yarn_frequencies")(d, base, factor, config.original_length)
        scale = _take("position_interpolation", "yarn_attention_factor")(factor)
    else:
        frequencies, scale = _take("rotary_embedding", "rope_frequencies")(d, base), 1.0
    if scaling == "linear":
        positions = _take("position_interpolation", "interpolate_positions")(positions, factor)
    cos, sin = (scale * x for x in cos_sin(positions, frequencies))
    return lambda x: apply(x, cos, sin)


def _take(module: str, name: str) -> Any:
    chapter_15 = module == "position_interpolation"
    return pieces.take(module, name, "Config(rope_scaling=...)" if chapter_15 else "Config(positions='rope')")
