"""Right answers to the exercises of chapter 11 that differ from the reference."""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.specimens import variant

from .attention import attention, causal_mask
from .decoder import sample_next


@variant("math.prod")
def cache_bytes(
    n_layers: int, n_kv_heads: int, head_dim: int, length: int, batch: int = 1, bytes_per_value: int = 2
) -> int:
    return math.prod((n_layers, n_kv_heads, head_dim, length, batch, bytes_per_value)) << 1


@variant("step by step, from one vector up")
def cache_bytes(
    n_layers: int, n_kv_heads: int, head_dim: int, length: int, batch: int = 1, bytes_per_value: int = 2
) -> int:
    vector = head_dim * bytes_per_value
    position = n_layers * n_kv_heads * (vector + vector)
    return batch * length * position


@variant("buffers that grow by doubling")
class KVCache:
    def __init__(self, n_layers: int) -> None:
        self.buffers: list[list[Tensor | None]] = [[None, None] for _ in range(n_layers)]
        self.filled = [0] * n_layers

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        start = self.filled[layer]
        stop = start + k.shape[2]
        for i, x in enumerate((k, v)):
            buffer = self.buffers[layer][i]
            if buffer is None or buffer.shape[2] < stop:
                grown = x.new_empty(*x.shape[:2], 2 * stop, x.shape[3])
                if buffer is not None:
                    grown[:, :, :start] = buffer[:, :, :start]
                self.buffers[layer][i] = buffer = grown
            buffer[:, :, start:stop] = x
        self.filled[layer] = stop
        keys, values = (x[:, :, :stop] for x in self.buffers[layer] if x is not None)
        return keys, values

    @property
    def length(self) -> int:
        return min(self.filled)

    @property
    def nbytes(self) -> int:
        pairs = zip(self.buffers, self.filled, strict=True)
        return sum(x[:, :, :n].numel() * x.itemsize for pair, n in pairs for x in pair if x is not None)


@variant("chunks, joined on demand")
class KVCache:
    def __init__(self, n_layers: int) -> None:
        self.chunks: list[deque[tuple[Tensor, Tensor]]] = [deque() for _ in range(n_layers)]

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.chunks[layer].append((k.clone(), v.clone()))
        keys, values = zip(*self.chunks[layer], strict=True)
        return torch.cat(keys, 2), torch.cat(values, 2)

    @property
    def length(self) -> int:
        return min(sum(k.size(2) for k, _ in chunks) for chunks in self.chunks)

    @property
    def nbytes(self) -> int:
        return sum(k.nbytes + v.nbytes for chunks in self.chunks for k, v in chunks)


@variant("keys and values in one tensor, in a dict of layers")
class KVCache:
    def __init__(self, n_layers: int) -> None:
        self.n_layers = n_layers
        self.held: dict[int, Tensor] = {}

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.stack([k, v])
        self.held[layer] = torch.cat([self.held[layer], new], dim=3) if layer in self.held else new
        return self.held[layer][0], self.held[layer][1]

    @property
    def length(self) -> int:
        return min(self.held[i].shape[3] if i in self.held else 0 for i in range(self.n_layers))

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in self.held.values())


@variant("the mask from positions")
def attend_with_cache(
    q: Tensor, k: Tensor, v: Tensor, cache: Any, layer: int, attend: Callable[..., Any] = attention
) -> Tensor:
    keys, values = cache.update(layer, k, v)
    S = keys.shape[2]
    at = torch.arange(S, device=q.device)
    return attend(q, keys, values, at[None, :] <= at[S - q.shape[2] :, None])


@variant("the mask as a block of ones beside a triangle")
def attend_with_cache(
    q: Tensor, k: Tensor, v: Tensor, cache: Any, layer: int, attend: Callable[..., Any] = attention
) -> Tensor:
    T = q.size(-2)
    keys, values = cache.update(layer, k, v)
    past = torch.ones(T, keys.size(-2) - T, dtype=torch.bool, device=q.device)
    triangle = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    return attend(q, keys, values, torch.cat([past, triangle], dim=1))


@variant("the rows at the end of the whole text's mask")
def attend_with_cache(
    q: Tensor, k: Tensor, v: Tensor, cache: Any, layer: int, attend: Callable[..., Any] = attention
) -> Tensor:
    k, v = cache.update(layer, k, v)
    return attend(q, k, v, causal_mask(k.shape[-2])[-q.shape[-2] :])


@variant("the prompt first, then a loop")
@torch.no_grad()
def generate_cached(model: Any, ids: Tensor, max_new_tokens: int, **sampling: Any) -> Tensor:
    if not max_new_tokens:
        return ids
    cache = KVCache(model.config.n_layers)
    logits = model(ids, cache=cache)
    written = [sample_next(logits[:, -1], **sampling)]
    while len(written) < max_new_tokens:
        logits = model(written[-1].unsqueeze(1), cache=cache)
        written.append(sample_next(logits[:, -1], **sampling))
    return torch.cat([ids, torch.stack(written, dim=1)], dim=1)


@variant("what is unread is found by the cache's length, in one tensor of the final size")
def generate_cached(model: Any, ids: Tensor, max_new_tokens: int, **sampling: Any) -> Tensor:
    cache, T = KVCache(model.config.n_layers), ids.shape[1]
    text = F.pad(ids, (0, max_new_tokens))
    with torch.no_grad():
        for end in range(T, T + max_new_tokens):
            scores = model(text[:, cache.length : end], cache=cache)
            text[:, end] = sample_next(scores.select(1, -1), **sampling)
    return text
