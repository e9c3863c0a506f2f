"""Text as it is written, one piece at a time. This module is given: no exercise.

Your `sample_next` (chapter 09) draws the tokens and your `KVCache` (chapter 11) keeps what was read.
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
        cache: your `KVCache`; `None` means a new one. The last token handed over is not in it yet.
        sampling: handed to your `sample_next`: `temperature`, `top_k`, `top_p`, `generator`.

    Raises:
        ValueError: there is nothing to continue.
    """
    if ids.numel() == 0:
        raise ValueError("there is nothing to continue: the prompt has no token")
    sample_next = pieces.take("decoder", "sample_next", "writing")
    if cache is None:
        cache = pieces.take("kv_cache", "KVCache", "writing")(model.config.n_layers)
    for _ in range(max_new_tokens):
        with torch.inference_mode():  # not around the yield, where it would hold for the caller's code too
            ids = sample_next(model(ids, cache=cache)[:, -1], **sampling)[:, None]
        token = int(ids)
        if token in stop_ids:
            return
        yield token


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
