"""Tiny checkpoints of every family, as the tests of loading need them: saved by the libraries they come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import quantize
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests import weights

SIZES: dict[str, Any] = {
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 40,
    "max_position_embeddings": 48,
}
ENDS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
ROPE = {"rope_type": "default", "rope_theta": 500.0}


def llama(**fields: Any) -> Any:
    fields = {"num_key_value_heads": 2, "rope_parameters": ROPE, **SIZES, **ENDS, **fields}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields))


def mistral(**fields: Any) -> Any:
    fields = {"num_key_value_heads": 3, "rope_parameters": ROPE, "sliding_window": None, **SIZES, **ENDS, **fields}
    return transformers.MistralForCausalLM(transformers.MistralConfig(**fields))


def qwen3(**fields: Any) -> Any:
    fields = {"num_key_value_heads": 2, "head_dim": 10, "rope_parameters": ROPE, **SIZES, **ENDS, **fields}
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**fields))


def mixtral(**fields: Any) -> Any:
    experts = {"num_local_experts": 5, "num_experts_per_tok": 2}
    fields = {"num_key_value_heads": 3, "rope_parameters": ROPE, **experts, **SIZES, **ENDS, **fields}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**fields))


def gpt2(**fields: Any) -> Any:
    sizes = {"vocab_size": 53, "n_positions": 48, "n_embd": 24, "n_layer": 3, "n_head": 6}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**sizes, **ENDS, **fields}))


def bert(**fields: Any) -> Any:
    return transformers.BertModel(transformers.BertConfig(**{**SIZES, **fields}))


def saved(model: Any, folder: Path, **how: Any) -> Any:
    """The model with weights at which every part matters, saved as its library does."""
    model = weights.draw(model).eval()
    model.save_pretrained(folder, **how)
    return model


def edit(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], **settings: Any) -> None:
    """Change the tensors of a saved model, and some of its settings; a setting of `None` is removed."""
    path = folder / "model.safetensors"
    save_file({name: x.clone() for name, x in change(load_file(path)).items()}, path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | settings
    config = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def write_json(path: Path, **content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


# GGUF

GGUF_SIZES = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "inner": 96, "vocabulary": 40}
TYPES = gguf.GGMLQuantizationType


def gguf_tensors(biases: bool = False, tied: bool = True) -> dict[str, Tensor]:
    """Random numbers under the names and in the shapes of a llama GGUF file."""
    width, inner, vocabulary = (GGUF_SIZES[name] for name in ("width", "inner", "vocabulary"))
    narrow = width * GGUF_SIZES["kv_heads"] // GGUF_SIZES["heads"]
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, width), "output_norm.weight": (width,)}
    if not tied:
        shapes["output.weight"] = (vocabulary, width)
    for i in range(GGUF_SIZES["layers"]):
        rows = {"attn_q": width, "attn_k": narrow, "attn_v": narrow, "attn_output": width}
        shapes |= {f"blk.{i}.{name}.weight": (n, width) for name, n in rows.items()}
        if biases:
            shapes |= {f"blk.{i}.{name}.bias": (n,) for name, n in rows.items()}
        shapes |= {f"blk.{i}.{name}.weight": (inner, width) for name in ("ffn_gate", "ffn_up")}
        shapes[f"blk.{i}.ffn_down.weight"] = (width, inner)
        shapes |= {f"blk.{i}.{name}.weight": (width,) for name in ("attn_norm", "ffn_norm")}
    return {name: torch.randn(shape) * shape[-1] ** -0.5 for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    tensors: dict[str, Tensor],
    kind: gguf.GGMLQuantizationType = TYPES.F32,
    architecture: str = "llama",
    **settings: Any,
) -> None:
    """Write a GGUF file; matrices are quantised as `kind`. More settings by name, `__` for a dot."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(GGUF_SIZES["layers"])
    writer.add_context_length(32)
    writer.add_embedding_length(GGUF_SIZES["width"])
    writer.add_feed_forward_length(GGUF_SIZES["inner"])
    writer.add_head_count(GGUF_SIZES["heads"])
    writer.add_head_count_kv(GGUF_SIZES["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500.0)
    for name, value in settings.items():
        add: dict[type, Any] = {
            str: writer.add_string,
            int: writer.add_uint32,
            float: writer.add_float32,
            bool: writer.add_bool,
        }
        if isinstance(value, list):
            writer.add_array(name.replace("__", "."), value)
        else:
            add[type(value)](name.replace("__", "."), value)
    for name, x in tensors.items():
        if x.dim() == 2 and kind != TYPES.F32:
            writer.add_tensor(name, quantize(x.numpy(), kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ascontiguousarray(x.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


LLAMA_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def named_by_transformers(name: str) -> str:
    """What `transformers` calls the tensor of a llama GGUF file."""
    if name.startswith("blk."):
        _, layer, part, kind = name.split(".")
        return f"model.layers.{layer}.{LLAMA_PARTS[part]}.{kind}"
    ends = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    return ends[name.removesuffix(".weight")] + ".weight"
