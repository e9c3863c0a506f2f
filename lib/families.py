"""Which families of public checkpoints fit into your pieces, and where each of their tensors goes.

This module is given: no exercise. A family is two functions: one turns its settings (`config.json`) into a
`Config`, the other says which stored tensor each of your parameters is taken from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from lib.config import Config

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class CheckpointError(ValueError):
    """A checkpoint cannot be loaded; the message is one line that names the file and says what to do."""


class Take(NamedTuple):
    """Where one of your parameters is taken from, and what is done to it on the way."""

    theirs: str
    transposed: bool = False
    """Stored as (in, out), as GPT-2's linear layers are; yours are (out, in)."""
    part: int | None = None
    """Which third of the stored rows: queries, keys and values may stand in one matrix."""
    heads: int = 0
    """Above 0, its rows are turned by RoPE in the `half` layout: so many heads go over to `interleaved`."""
    plus_row_0_of: str = ""
    """A table whose first row is added to every row."""


Takes = Iterator[tuple[str, Take]]


class Family(NamedTuple):
    """How checkpoints of one architecture are read."""

    prefix: str
    """Stands before the names of most tensors, and may be missing."""
    read_config: Callable[[Settings], dict[str, Any]]
    """From the settings to the fields of a `Config`, `tied_embeddings` left out."""
    takes: Callable[[Config], Takes]
    tied: bool = False
    """Whether embeddings are tied where the settings do not say."""
    left_out: str = r"(?!)"
    """Names of tensors which your model has no place for and can do without: a regular expression."""


class Settings:
    """The settings of a checkpoint: a mapping that says what is missing or not supported, and where.

    Args:
        values: the content of `config.json`.
        source: names the file in messages.
    """

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values, self.source = values, source

    def get(self, name: str, default: Any) -> Any:
        """The setting; the default where it is missing or null."""
        value = self.values.get(name)
        return default if value is None else value

    def size(self, name: str, default: int | None = None) -> int:
        """A setting that must be a whole number."""
        value = self.get(name, default)
        if value is None:
            raise CheckpointError(f"{self.source} does not say {name}: take the file that came with the weights")
        if isinstance(value, bool) or not isinstance(value, int):
            raise CheckpointError(f"{self.source}: {name} must be a whole number, not {value!r}")
        return value

    def number(self, name: str, default: float) -> float:
        """A setting that must be a number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"{self.source}: {name} must be a number, not {value!r}")
        return float(value)

    def must_be(self, name: str, *allowed: Any) -> None:
        """Refuse a setting that your pieces cannot follow; missing is as good as the first allowed value."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            raise self.unsupported(f"{name} is {value!r}, only {' or '.join(map(repr, allowed))} is supported")

    def activation(self, name: str, default: str) -> str:
        """The name that `Config` has for an activation."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise self.unsupported(f"{name} is {value!r}, only these are supported: {known}")
        return ACTIVATIONS[value]

    def unsupported(self, what: str) -> CheckpointError:
        """An error to raise: the model is of a kind that `lib` does not compute."""
        return CheckpointError(f"{self.source}: {what}; take another checkpoint")


# GPT-2


def _gpt2_config(settings: Settings) -> dict[str, Any]:
    settings.must_be("scale_attn_weights", True)
    settings.must_be("scale_attn_by_inverse_layer_idx", False)
    settings.must_be("add_cross_attention", False)
    width = settings.size("n_embd")
    return {
        "vocab_size": settings.size("vocab_size"),
        "d_model": width,
        "n_layers": settings.size("n_layer"),
        "n_heads": settings.size("n_head"),
        "d_ff": settings.size("n_inner", 4 * width),
        "activation": settings.activation("activation_function", "gelu_new"),
        "max_len": settings.size("n_positions"),
        "norm_eps": settings.number("layer_norm_epsilon", 1e-5),
    }


def _gpt2_takes(config: Config) -> Takes:
    yield "embedding.weight", Take("wte.weight")
    yield "positions.weight", Take("wpe.weight")
    for kind in ("weight", "bias"):
        matrix = kind == "weight"
        yield f"norm.{kind}", Take(f"ln_f.{kind}")
        for i in range(config.n_layers):
            ours, theirs = f"blocks.{i}.", f"h.{i}."
            for part, name in enumerate(("q_proj", "k_proj", "v_proj")):
                yield f"{ours}attention.sublayer.{name}.{kind}", Take(f"{theirs}attn.c_attn.{kind}", matrix, part)
            yield f"{ours}attention.sublayer.o_proj.{kind}", Take(f"{theirs}attn.c_proj.{kind}", matrix)
            yield f"{ours}attention.norm.{kind}", Take(f"{theirs}ln_1.{kind}")
            yield f"{ours}feed_forward.sublayer.up_proj.{kind}", Take(f"{theirs}mlp.c_fc.{kind}", matrix)
            yield f"{ours}feed_forward.sublayer.down_proj.{kind}", Take(f"{theirs}mlp.c_proj.{kind}", matrix)
            yield f"{ours}feed_forward.norm.{kind}", Take(f"{theirs}ln_2.{kind}")


# Llama, Mistral, Qwen3, Mixtral


def _llama_config(settings: Settings) -> dict[str, Any]:
    settings.must_be("hidden_act", "silu", "swish")
    settings.must_be("mlp_bias", False)
    settings.must_be("is_decoder", True, False)
    context = settings.size("max_position_embeddings", 2048)
    heads = settings.size("num_attention_heads")
    return {
        "vocab_size": settings.size("vocab_size"),
        "d_model": settings.size("hidden_size"),
        "n_layers": settings.size("num_hidden_layers"),
        "d_ff": settings.size("intermediate_size"),
        "max_len": context,
        "norm_eps": settings.number("rms_norm_eps", 1e-6),
        **_rope_fields(settings, context),
        "bias": bool(settings.get("attention_bias", False)),
        **attention_fields(
            settings.size("hidden_size"),
            heads,
            settings.size("num_key_value_heads", heads),
            settings.get("head_dim", None),
        ),
        **LLAMA,
    }


LLAMA = {"feed_forward": "swiglu", "positions": "rope", "norm": "rmsnorm"}
"""What all of Llama's relatives have in common."""


def attention_fields(width: int, heads: int, kv_heads: int, head_dim: int | None) -> dict[str, Any]:
    """Plain multi-head attention where that is enough, so that it needs the fewest chapters; else grouped-query."""
    if kv_heads == heads and head_dim in (None, width // heads if heads else None):
        return {"n_heads": heads, "mixer": "mha"}
    return {"n_heads": heads, "mixer": "gqa", "n_kv_heads": kv_heads, "head_dim": head_dim}


def _window_fields(settings: Settings, layer_types: Any = None) -> dict[str, Any]:
    """The window of attention, where it is shorter than the context, and the layers that have it: all, or as said."""
    if settings.get("sliding_window", None) is None:
        return {}
    window, context = settings.size("sliding_window"), settings.size("max_position_embeddings", 2048)
    kinds = {"sliding_attention": "window", "full_attention": "full"}
    pattern = ["window"] if layer_types is None else [kinds.get(kind) for kind in layer_types]
    if None in pattern or (layer_types is not None and len(pattern) != settings.size("num_hidden_layers")):
        raise settings.unsupported("layer_types is not one of sliding_attention and full_attention for each layer")
    if window >= context or "window" not in pattern:
        return {}
    return {"window": window} | ({"layer_pattern": tuple(pattern)} if "full" in pattern else {})


def _rope_fields(settings: Settings, context: int) -> dict[str, Any]:
    """The base of RoPE and its scaling; old files say `rope_theta` and `rope_scaling`, newer ones `rope_parameters`."""
    rope: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        given = settings.get(name, {})
        if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
            raise settings.unsupported(f"{name} is not one set of numbers for all layers")
        rope |= given
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear", "yarn"):
        raise settings.unsupported(f"RoPE scaling {kind!r} is not supported, only 'linear' and 'yarn' are")
    for share in (rope.get("partial_rotary_factor"), settings.get("partial_rotary_factor", 1.0)):
        if share not in (None, 1):
            raise settings.unsupported(f"RoPE turns a share of {share} of each head, only all of it is supported")
    said = Settings(rope, settings.source)
    base = said.number("rope_theta", settings.number("rope_theta", 10000.0))
    if kind == "default":
        return {"rope_base": base}
    original = said.size("original_max_position_embeddings", context)
    factor = said.number("factor", context / original)
    if kind == "yarn":
        for name, usual in (("beta_fast", 32), ("beta_slow", 1), ("truncate", True)):
            said.must_be(name, usual)
        usual_scale, given_scale = 0.1 * math.log(max(factor, 1)) + 1, said.get("attention_factor", None)
        if given_scale is not None and not math.isclose(said.number("attention_factor", 1), usual_scale, rel_tol=1e-6):
            raise settings.unsupported(f"attention_factor is {given_scale}, only YaRN's own is supported")
        if rope.get("mscale") != rope.get("mscale_all_dim"):
            raise settings.unsupported("mscale and mscale_all_dim of YaRN differ, which is not supported")
    return {"rope_base": base, "rope_scaling": kind, "rope_factor": factor, "rope_original_length": original}


def _llama_takes(config: Config) -> Takes:
    yield "embedding.weight", Take("embed_tokens.weight")
    yield "norm.weight", Take("norm.weight")
    for i in range(config.n_layers):
        ours, theirs = f"blocks.{i}.", f"layers.{i}."
        heads = {"q_proj": config.n_heads, "k_proj": config.kv_heads}
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            for kind in ("weight", "bias") if config.bias else ("weight",):
                take = Take(f"{theirs}self_attn.{part}.{kind}", heads=heads.get(part, 0))
                yield f"{ours}attention.sublayer.{part}.{kind}", take
        if config.qk_norm:
            for part in ("q_norm", "k_norm"):  # one norm for all heads, so it is reordered as one head
                yield f"{ours}attention.sublayer.{part}.weight", Take(f"{theirs}self_attn.{part}.weight", heads=1)
        yield from _mixture_takes(config, ours, theirs) if config.n_experts else _swiglu_takes(ours, theirs)
        yield f"{ours}attention.norm.weight", Take(f"{theirs}input_layernorm.weight")
        yield f"{ours}feed_forward.norm.weight", Take(f"{theirs}post_attention_layernorm.weight")


def _swiglu_takes(ours: str, theirs: str) -> Takes:
    for part in ("gate_proj", "up_proj", "down_proj"):
        yield f"{ours}feed_forward.sublayer.{part}.weight", Take(f"{theirs}mlp.{part}.weight")


def _mixture_takes(config: Config, ours: str, theirs: str) -> Takes:
    yield f"{ours}feed_forward.sublayer.router.weight", Take(f"{theirs}block_sparse_moe.gate.weight")
    for expert in range(config.n_experts or 0):
        for part, name in (("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3")):
            take = Take(f"{theirs}block_sparse_moe.experts.{expert}.{name}.weight")
            yield f"{ours}feed_forward.sublayer.experts.{expert}.{part}.weight", take


def _mistral_config(settings: Settings) -> dict[str, Any]:
    # Mistral has no setting for biases.
    return {**_llama_config(settings), "bias": False, **_window_fields(settings)}


def _mixtral_config(settings: Settings) -> dict[str, Any]:
    experts = {"n_experts": settings.size("num_local_experts", 8), "top_k": settings.size("num_experts_per_tok", 2)}
    return {**_mistral_config(settings), "feed_forward": "moe", **experts}


def _qwen3_config(settings: Settings) -> dict[str, Any]:
    values = {"head_dim": 128, **settings.values}
    found = {**_llama_config(Settings(values, settings.source)), "qk_norm": True}
    # `sliding_window` counts only where `use_sliding_window` says so; left out, that means no.
    if settings.get("use_sliding_window", False):
        first, layers = settings.size("max_window_layers", 28), settings.size("num_hidden_layers")
        usual = ["full_attention" if i < first else "sliding_attention" for i in range(layers)]
        found |= _window_fields(settings, settings.get("layer_types", usual))
    return found


# BERT


def _bert_config(settings: Settings) -> dict[str, Any]:
    settings.must_be("position_embedding_type", "absolute")
    settings.must_be("is_decoder", False)
    settings.must_be("add_cross_attention", False)
    return {
        "vocab_size": settings.size("vocab_size"),
        "d_model": settings.size("hidden_size"),
        "n_layers": settings.size("num_hidden_layers"),
        "n_heads": settings.size("num_attention_heads"),
        "d_ff": settings.size("intermediate_size"),
        "activation": settings.activation("hidden_act", "gelu"),
        "max_len": settings.size("max_position_embeddings"),
        "norm_eps": settings.number("layer_norm_eps", 1e-12),
        "placement": "post",
        "causal": False,
    }


def _bert_takes(config: Config) -> Takes:
    yield "embedding.weight", Take("embeddings.word_embeddings.weight")
    # A single text is all of segment 0, so that segment's vector is added to the positions once and for all.
    segments = "embeddings.token_type_embeddings.weight"
    yield "positions.weight", Take("embeddings.position_embeddings.weight", plus_row_0_of=segments)
    layer = {
        "attention.sublayer.q_proj": "attention.self.query",
        "attention.sublayer.k_proj": "attention.self.key",
        "attention.sublayer.v_proj": "attention.self.value",
        "attention.sublayer.o_proj": "attention.output.dense",
        "attention.norm": "attention.output.LayerNorm",
        "feed_forward.sublayer.up_proj": "intermediate.dense",
        "feed_forward.sublayer.down_proj": "output.dense",
        "feed_forward.norm": "output.LayerNorm",
    }
    for kind in ("weight", "bias"):
        yield f"norm.{kind}", Take(f"embeddings.LayerNorm.{kind}")
        for i in range(config.n_layers):
            for ours, theirs in layer.items():
                yield f"blocks.{i}.{ours}.{kind}", Take(f"encoder.layer.{i}.{theirs}.{kind}")


FAMILIES = {
    "gpt2": Family("transformer.", _gpt2_config, _gpt2_takes, tied=True),
    "llama": Family("model.", _llama_config, _llama_takes),
    "mistral": Family("model.", _mistral_config, _llama_takes),
    "mixtral": Family("model.", _mixtral_config, _llama_takes),
    "qwen3": Family("model.", _qwen3_config, _llama_takes),
    "bert": Family("bert.", _bert_config, _bert_takes, tied=True, left_out=r"(pooler|cls)\."),
}
"""By `model_type` of `config.json`."""

NOT_PARAMETERS = re.compile(
    r"(.*\.)?rotary_emb\.inv_freq|h\.\d+\.attn\.(bias|masked_bias)|embeddings\.(position_ids|token_type_ids)"
)
"""Constants that some files hold beside the parameters."""
