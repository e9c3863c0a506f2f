"""`LanguageModel` with a `KVCache`: what is read piece by piece is what is read at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from lib.attend import Attend
from lib.decoder import generate
from lib.generate import new_cache
from lib.kv_cache import KVCache, cache_bytes, generate_cached
from lib.model import Config, LanguageModel
from tests import weights

GPT = Config(vocab_size=13, d_model=24, n_layers=3, n_heads=4, max_len=40)
LLAMA = replace(GPT, mixer="gqa", n_kv_heads=2, positions="rope", norm="rmsnorm", feed_forward="swiglu", bias=False)
PLANS = {
    "GPT": GPT,
    "sinusoidal, post-norm": replace(GPT, positions="sinusoidal", placement="post"),
    "no positions, multi-query": replace(GPT, positions="none", mixer="mqa"),
    "Llama": LLAMA,
    "Qwen": replace(LLAMA, head_dim=10, qk_norm=True),
    "Mistral": replace(LLAMA, window=4),
    "multi-query, every other layer": replace(GPT, mixer="mqa", window=3, layer_pattern=("window", "full")),
    "Mixtral, stretched": replace(LLAMA, feed_forward="moe", n_experts=5, rope_scaling="yarn", rope_factor=4.0),
}
plans = pytest.mark.parametrize("config", PLANS.values(), ids=PLANS)


@plans
@pytest.mark.parametrize("pieces", [[12], [1] * 12, [5, 1, 1, 5], [7, 4, 1]], ids=str)
def test_read_in_pieces_is_read_at_once(config: Config, pieces: list[int]) -> None:
    model = weights.draw(LanguageModel(config)).double()
    ids = torch.randint(config.vocab_size, (2, sum(pieces)))
    cache = KVCache(config.n_layers)
    parts = [model(piece, cache=cache) for piece in ids.split(pieces, dim=1)]
    # Rotary angles are float32, whatever the model's dtype.
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=1e-5, atol=1e-5)
    assert cache.length == 12
    assert cache.nbytes == cache_bytes(3, config.kv_heads, config.d_head, 12, batch=2, bytes_per_value=8)


@plans
def test_generation_with_a_cache_is_generation_without(config: Config) -> None:
    model = weights.draw(LanguageModel(config)).double()
    ids = torch.randint(config.vocab_size, (3, 4))
    greedy = [write(model, ids, 30, temperature=0) for write in (generate, generate_cached)]
    assert torch.equal(*greedy)
    drawn = [
        write(model, ids, 30, temperature=0.8, top_k=9, generator=torch.Generator().manual_seed(5))
        for write in (generate, generate_cached)
    ]
    assert torch.equal(*drawn)
    assert not torch.equal(greedy[0], drawn[0])


@plans
@pytest.mark.parametrize("pieces", [[12], [1] * 12, [5, 1, 1, 5], [7, 4, 1]], ids=str)
def test_a_cache_made_for_the_plan_keeps_what_is_looked_at(config: Config, pieces: list[int]) -> None:
    model = weights.draw(LanguageModel(config)).double()
    ids, cache = torch.randint(config.vocab_size, (2, sum(pieces))), new_cache(config)
    parts = [model(piece, cache=cache) for piece in ids.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=1e-5, atol=1e-5)
    assert cache.length == 12
    held = [min(12, config.window_of(layer) or 12) for layer in range(3)]
    assert cache.nbytes == sum(cache_bytes(1, config.kv_heads, config.d_head, n, 2, 8) for n in held)


def test_a_table_of_positions_ends_with_the_cache_too() -> None:
    model, cache = LanguageModel(replace(GPT, max_len=8)), KVCache(3)
    model(torch.zeros(1, 6, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match="8"):
        model(torch.zeros(1, 3, dtype=torch.long), cache=cache)


def test_a_model_that_sees_both_ways_takes_no_cache() -> None:
    model = LanguageModel(replace(GPT, causal=False))
    with pytest.raises(ValueError, match="causal"):
        model(torch.zeros(1, 3, dtype=torch.long), cache=KVCache(3))


def test_where_a_text_starts_does_not_matter_to_rotary_positions() -> None:
    model, ids = weights.draw(LanguageModel(LLAMA)), torch.randint(13, (2, 9))
    base: Any = super(LanguageModel, model)
    here, there = (
        base.forward(ids, attend=Attend(LLAMA, model.blocks, start, 9, None, ids.device)) for start in (0, 100)
    )
    torch.testing.assert_close(here, model(ids), rtol=0, atol=0)
    torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-3)
    assert not torch.equal(there, here), "the angles differ, so the rounding does"
