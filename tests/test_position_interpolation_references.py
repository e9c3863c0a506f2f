"""Chapter 15 against the `transformers` library: linear scaling, YaRN's frequencies, its attention factor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lib.config import Config
from lib.model import LanguageModel
from lib.position_interpolation import (
    extend_context,
    interpolate_positions,
    yarn_attention_factor,
    yarn_frequencies,
)
from lib.rotary_embedding import half_to_interleaved, rope_frequencies
from tests import weights

# Head width, base, factor, original length, beta_fast, beta_slow.
YARN: list[tuple[int, float, float, int, float, float]] = [
    (16, 10000.0, 4.0, 64, 32.0, 1.0),
    (128, 10000.0, 32.0, 4096, 32.0, 1.0),  # Llama 2 at 128 times 1,024
    (128, 1000000.0, 4.0, 32768, 32.0, 1.0),  # Qwen2.5
    (64, 10000.0, 40.0, 4096, 32.0, 1.0),  # DeepSeek-V2
    (64, 500000.0, 8.0, 8192, 16.0, 2.0),
    (32, 100.0, 2.5, 48, 8.0, 0.5),
    (30, 700.0, 3.0, 500, 20.0, 1.5),
    (8, 10.0, 4.0, 1000, 32.0, 1.0),  # high is d - 1
    (10, 10000.0, 8.0, 32, 32.0, 1.0),
    (2, 10000.0, 6.0, 256, 32.0, 1.0),
    (6, 10000.0, 5.0, 4, 32.0, 1.0),  # low and high are 0
    (24, 10000.0, 1.0, 128, 32.0, 1.0),  # nothing is stretched
]


def theirs(kind: str, d: int, base: float, factor: float, length: int, **betas: float) -> tuple[Tensor, float]:
    """Frequencies and attention factor of the library."""
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": base, "factor": factor, **betas}
    rope |= {"original_max_position_embeddings": length} if kind == "yarn" else {}
    config = LlamaConfig(
        hidden_size=2 * d,
        num_attention_heads=2,
        head_dim=d,
        max_position_embeddings=max(int(factor * length), length),
        rope_parameters=rope,
    )
    frequencies, attention = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return frequencies, attention


@pytest.mark.parametrize(("d", "base", "factor", "length", "fast", "slow"), YARN)
def test_yarn_is_the_librarys(d: int, base: float, factor: float, length: int, fast: float, slow: float) -> None:
    frequencies, attention = theirs("yarn", d, base, factor, length, beta_fast=fast, beta_slow=slow)
    ours = yarn_frequencies(d, base, factor, length, beta_fast=fast, beta_slow=slow)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, frequencies, rtol=1e-6, atol=0.0)
    assert yarn_attention_factor(factor) == pytest.approx(attention, rel=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1.5, 4.0, 10.0])
@pytest.mark.parametrize(("d", "base"), [(8, 10000.0), (30, 700.0), (128, 500000.0)])
def test_divided_positions_are_the_librarys_divided_frequencies(d: int, base: float, factor: float) -> None:
    frequencies, attention = theirs("linear", d, base, factor, 64)
    positions = torch.tensor([0, 1, 2, 7, 63, 64, 255])
    ours = interpolate_positions(positions, factor)[:, None] * rope_frequencies(d, base)
    torch.testing.assert_close(ours, positions[:, None] * frequencies, rtol=1e-6, atol=0.0)
    assert attention == 1


@pytest.mark.parametrize("method", ["linear", "yarn"])
@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_a_stretched_model_is_the_librarys_llama(method: str, factor: float) -> None:
    D, H, K, F, V, L, length = 24, 3, 1, 20, 31, 2, 12
    plan = Config(
        vocab_size=V, d_model=D, n_layers=L, n_heads=H, mixer="gqa", n_kv_heads=K, feed_forward="swiglu", d_ff=F,
        positions="rope", rope_base=300.0, max_len=length, norm="rmsnorm", bias=False, tied_embeddings=False,
    )  # fmt: skip
    model = LanguageModel(plan)
    weights.draw(model)
    extended = extend_context(model, factor, method)

    rope: dict[str, Any] = {"rope_type": method, "rope_theta": 300.0, "factor": factor}
    rope |= {"original_max_position_embeddings": length} if method == "yarn" else {}
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=V, hidden_size=D, intermediate_size=F, num_hidden_layers=L, num_attention_heads=H,
            num_key_value_heads=K, max_position_embeddings=extended.config.max_len, rms_norm_eps=plan.norm_eps,
            rope_parameters=rope, tie_word_embeddings=False, attention_bias=False, mlp_bias=False,
        )
    )  # fmt: skip
    llama.load_state_dict(as_llama(model, H, K))
    ids = torch.randint(V, (2, int(factor * length)), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        want, got, plain = llama(ids).logits, extended(ids), model(ids)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert (plain - want).abs().max() > 0.05, "the weights are too small to tell anything"


def as_llama(model: LanguageModel, H: int, K: int) -> dict[str, Tensor]:
    """Our weights under the library's names; its rotary layout is `half`."""
    from lib.rotary_embedding import interleaved_to_half

    renamed = {
        "attention.sublayer": "self_attn",
        "attention.norm": "input_layernorm",
        "feed_forward.sublayer": "mlp",
        "feed_forward.norm": "post_attention_layernorm",
    }
    state: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if ".q_proj" in name or ".k_proj" in name:
            heads = H if ".q_proj" in name else K
            value = interleaved_to_half(value, heads)
            assert torch.equal(half_to_interleaved(value, heads), model.state_dict()[name])
        for ours, other in renamed.items():
            name = name.replace(ours, other)
        name = name.replace("blocks.", "model.layers.")
        if name.startswith("norm."):
            name = f"model.{name}"
        if name.startswith("embedding."):
            name = "model.embed_tokens.weight"
        state[name] = value
    return state
