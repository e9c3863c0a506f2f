"""Right answers to the exercises of chapter 16 that differ from the reference."""

from collections import deque

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.specimens import variant

from .attention import attention


@variant("two triangles")
def sliding_window_mask(T: int, window: int, n_global: int = 0, S: int | None = None) -> Tensor:
    if window <= 0 or n_global < 0:
        raise ValueError(f"window is {window} and n_global {n_global}: at least 1 and 0")
    S = S or T
    causal = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    mask = causal.triu(S - T - window + 1)
    mask[:, :n_global] = causal[:, :n_global]
    return mask


@variant("the last rows of the mask of the whole text, row by row")
def sliding_window_mask(T: int, window: int, n_global: int = 0, S: int | None = None) -> Tensor:
    if window < 1:
        raise ValueError(f"the window is {window}")
    if n_global < 0:
        raise ValueError(f"n_global is {n_global}")
    mask = torch.zeros(T, T if S is None else S, dtype=torch.bool)
    for t in range(T):
        position = t + mask.shape[1] - T
        mask[t, : max(0, position + 1)] = True
        mask[t, n_global : max(n_global, position - window + 1)] = False
    return mask


@variant("layer by layer")
def receptive_field(n_layers: int, window: int) -> int:
    if n_layers < 0 or window < 1:
        raise ValueError(f"n_layers is {n_layers} and window {window}: at least 0 and 1")
    reach = 1
    for _ in range(n_layers):
        reach += window - 1
    return reach


@variant("the windows less what they share")
def receptive_field(n_layers: int, window: int) -> int:
    if min(n_layers, window - 1) < 0:
        raise ValueError(f"n_layers={n_layers}, window={window}")
    return n_layers * window - n_layers + 1


@variant("a loop over blocks, with views of the keys that each needs")
def sliding_window_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    T, outputs = q.shape[-2], []
    if k.shape[-2] != T:
        raise ValueError(f"{T} queries and {k.shape[-2]} keys")
    for start in range(0, T, 48):
        stop = min(start + 48, T)
        first = max(0, start - window + 1)
        mask = sliding_window_mask(stop - start, window, S=stop - first)
        outputs.append(attention(q[..., start:stop, :], k[..., first:stop, :], v[..., first:stop, :], mask))
    return torch.cat(outputs, dim=-2)


@variant("blocks as long as the window, each with the block before it")
def sliding_window_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    T = q.shape[-2]
    if window < 1 or k.shape[-2] != T:
        raise ValueError(f"window {window}, {T} queries, {k.shape[-2]} keys")
    W = min(window, T)
    pad = -T % W
    q, k, v = (F.pad(x, (0, 0, 0, pad)).unflatten(-2, (-1, W)) for x in (q, k, v))  # (..., n, W, d)
    k, v = (torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[..., :-1, :, :], x], dim=-2) for x in (k, v))
    mask = sliding_window_mask(W, W, S=2 * W).repeat(q.shape[-3], 1, 1)
    mask[0, :, :W] = False
    return attention(q, k, v, mask).flatten(-3, -2)[..., :T, :]


@variant("every query gathers its own keys")
def sliding_window_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    T = q.size(-2)
    if window < 1 or k.size(-2) != T:
        raise ValueError(f"window={window}; {T} queries; {k.size(-2)} keys")
    W = min(window, T)
    at = torch.arange(T)[:, None] - torch.arange(W)  # (T, W)
    k, v = (x[..., at.clamp(min=0), :] for x in (k, v))  # (..., T, W, d)
    return attention(q.unsqueeze(-2), k, v, (at >= 0)[:, None]).squeeze(-2)


@variant("a ring: position p in slot p modulo window")
class RollingKVCache:
    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"window is {window}")
        self.window = window
        self.rings: dict[int, list[Tensor]] = {}
        self.counts: dict[int, int] = {}

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        T, start = k.shape[2], self.counts.get(layer, 0)
        if not start:
            self.rings[layer] = [x.new_empty(*x.shape[:2], self.window, x.shape[3]) for x in (k, v)]
        past = torch.arange(max(0, start - self.window + 1), start) % self.window
        joined = [torch.cat([ring[:, :, past], x], dim=2) for ring, x in zip(self.rings[layer], (k, v), strict=True)]
        slots = torch.arange(max(start, start + T - self.window), start + T) % self.window
        for ring, x in zip(self.rings[layer], (k, v), strict=True):
            ring[:, :, slots] = x[:, :, -len(slots) :]
        self.counts[layer] = start + T
        return joined[0], joined[1]

    @property
    def length(self) -> int:
        return min(self.counts.values()) if self.counts else 0

    @property
    def nbytes(self) -> int:
        pairs = [(x, min(self.counts[layer], self.window)) for layer, ring in self.rings.items() for x in ring]
        return sum(x[:, :, :n].numel() * x.itemsize for x, n in pairs)


@variant("a queue of single positions")
class RollingKVCache:
    def __init__(self, window: int) -> None:
        if not window >= 1:
            raise ValueError(f"a window of {window} holds nothing")
        self.window = window
        self.queues: dict[int, deque[tuple[Tensor, Tensor]]] = {}
        self.seen: dict[int, int] = {}

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        queue = self.queues.setdefault(layer, deque(maxlen=self.window))
        old = list(queue)[max(0, len(queue) - self.window + 1) :]
        new = [(k[:, :, t : t + 1].clone(), v[:, :, t : t + 1].clone()) for t in range(k.shape[2])]
        queue.extend(new)
        self.seen[layer] = self.seen.get(layer, 0) + len(new)
        keys, values = zip(*old, *new, strict=True)
        return torch.cat(keys, dim=2), torch.cat(values, dim=2)

    @property
    def length(self) -> int:
        return min(self.seen.values(), default=0)

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for queue in self.queues.values() for pair in queue for x in pair)
