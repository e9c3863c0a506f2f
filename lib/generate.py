"""Text as it is written, one piece at a time. This module is given: no exercise.

Your `sample_next` (chapter 09) draws the tokens; your `KVCache` (chapter 11), or your `RollingKVCache`
(chapter 16) where layers look back a window only, keeps what was read.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lib import pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def stream(
    model: Any,
    ids: Tensor,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    cache: Any = None,
    **sampling: Any,
) -> Iterator[int]:
    """Write token by token, and hand each over as soon as it is drawn.

    Args:
        model: called as `model(ids, cache=cache)`.
        ids: what to continue and is not yet in the cache, `(1, T)`, with `T` at least 1.
        max_new_tokens: how many tokens to write at most.
        stop_ids: after one of these, which is not handed over, the text ends.
        cache: such as `new_cache` makes; `None` means a new one. The last token handed over is not in it yet.
        sampling: handed to your `sample_next`: `temperature`, `top_k`, `top_p`, `generator`.

    Raises:
        ValueError: there is nothing to continue.
    """
    if ids.numel() == 0:
        raise ValueError("there is nothing to continue: the prompt has no token")
    sample_next = pieces.take("decoder", "sample_next", "writing")
    if cache is None:
        cache = new_cache(model.config)
    for _ in range(max_new_tokens):
        with torch.inference_mode():  # not around the yield, where it would hold for the caller's code too
            ids = sample_next(model(ids, cache=cache)[:, -1], **sampling)[:, None]
        token = int(ids)
        if token in stop_ids:
            return
        yield token


def new_cache(config: Any) -> Any:
    """An empty cache for a model of this plan, in which no layer keeps more than it looks at.

    It has the face of your `KVCache`: `update(layer, k, v)`, `length` and `nbytes`.
    """
    windowed = [config.window_of(layer) is not None for layer in range(config.n_layers)]
    full = pieces.take("kv_cache", "KVCache", "writing")(windowed.count(False))
    if not any(windowed):
        return full
    rolling = pieces.take("sliding_window_attention", "RollingKVCache", "writing in a window")(config.window)
    return rolling if all(windowed) else _MixedCache(full, rolling, windowed)


class _MixedCache:
    """Two caches, each for some of the layers."""

    def __init__(self, full: Any, rolling: Any, windowed: list[bool]) -> None:
        self.caches = full, rolling
        # The full one numbers its own layers.
        self.places = [(rolling, i) if windowed[i] else (full, windowed[:i].count(False)) for i in range(len(windowed))]

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        cache, own = self.places[layer]
        updated: tuple[Tensor, Tensor] = cache.update(own, k, v)
        return updated

    @property
    def length(self) -> int:
        return min(cache.length for cache in self.caches)

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self.caches)


def pieces_of_text(tokens: Iterable[int], tokenizer: Tokenizer | None) -> Iterator[str]:
    """Turn tokens into text as they come; a character made of several tokens comes when it is whole.

    Args:
        tokens: ids, such as `stream` hands over.
        tokenizer: whose ids they are; `None` means bytes.
    """
    if tokenizer is None:
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        yield from filter(None, (decode(bytes([token])) for token in tokens))
        return
    from tokenizers.decoders import DecodeStream

    step: Callable[..., str | None] = DecodeStream(skip_special_tokens=True).step
    yield from filter(None, (step(tokenizer, token) for token in tokens))
