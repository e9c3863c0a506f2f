"""A checkpoint that cannot be loaded is refused by one line that names it, and says why and what to do."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lib import pieces
from lib.checkpoints import CheckpointError, load_pretrained, load_tokenizer
from tests.tiny_checkpoints import (
    bert,
    edit,
    gguf_tensors,
    gpt2,
    llama,
    mistral,
    mixtral,
    qwen3,
    saved,
    write_gguf,
    write_json,
)

Tensors = dict[str, Tensor]


def refused(path: Path, *parts: str, load: Callable[[Path], Any] = load_pretrained) -> None:
    """Loading fails by one line that names the path, or a file in it, and holds every part."""
    with pytest.raises(CheckpointError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    for part in parts:
        assert part in message


# Not a checkpoint


def test_no_such_path(tmp_path: Path) -> None:
    refused(tmp_path / "HuggingFaceTB" / "SmolLM2", "no file or folder", "nothing is downloaded")


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    refused(tmp_path, "no config.json", "hand over the folder of a checkpoint")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    refused(tmp_path, f"hand over {tmp_path / 'model.gguf'}")


def test_a_file_of_something_else(tmp_path: Path) -> None:
    for name, content in (("notes.txt", b"a few words"), ("empty.gguf", b"")):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, "is not a checkpoint", "Hugging Face folder or a GGUF file")
    (tmp_path / "model.safetensors").write_bytes(b"")
    refused(tmp_path / "model.safetensors", "hand over its folder", str(tmp_path))


class Trap:
    """Says that it was unpickled, by making a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.PTH", "last.ckpt", "model.pkl"])
def test_pickles_are_never_opened(name: str, tmp_path: Path) -> None:
    file, sprung = tmp_path / name, tmp_path / "sprung"
    file.write_bytes(pickle.dumps(Trap(sprung)))
    write_json(tmp_path / "config.json", model_type="llama")
    refused(file, "is a pickle", "never loaded", "safetensors files instead")
    refused(tmp_path, name, "is a pickle", "never loaded", "safetensors files instead")
    assert not sprung.exists()


def test_no_weights(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", model_type="llama")
    refused(tmp_path, "has no weights", "model.safetensors")


# Settings


@pytest.mark.parametrize("text", ["{", "[]", "\ufeff", ""])
def test_settings_that_are_no_json(text: str, tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    refused(tmp_path, "config.json", "download it again")


@pytest.mark.parametrize("kind", ["gemma", None, 3])
def test_another_architecture(kind: object, tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    edit(tmp_path, lambda x: x, model_type=kind)
    refused(tmp_path, f"architecture {kind!r} is not supported", "gpt2, llama, mistral, mixtral, qwen3, bert")


UNSUPPORTED: list[tuple[Callable[[], Any], dict[str, Any], str]] = [
    (llama, {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16}}, "beta_fast is 16, only 32"),
    (llama, {"rope_parameters": {"rope_type": "yarn", "attention_factor": 2.0}}, "attention_factor is 2.0"),
    (
        llama,
        {"rope_parameters": {"rope_type": "linear", "factor": 0.5}},
        "rope_factor stretches: it must be",
    ),
    (llama, {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "RoPE scaling 'llama3'"),
    (llama, {"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "RoPE scaling 'dynamic'"),
    (llama, {"rope_parameters": {"full": {"rope_type": "default"}}}, "rope_parameters is not one set of numbers"),
    (llama, {"partial_rotary_factor": 0.5}, "RoPE turns a share of 0.5"),
    (llama, {"mlp_bias": True}, "mlp_bias is True, only False is supported"),
    (llama, {"hidden_act": "gelu"}, "hidden_act is 'gelu', only 'silu' or 'swish' is supported"),
    (llama, {"quantization_config": {"bits": 4}}, "quantised (quantization_config)"),
    (llama, {"num_attention_heads": None}, "does not say num_attention_heads"),
    (llama, {"hidden_size": "24"}, "hidden_size must be a whole number, not '24'"),
    (llama, {"rms_norm_eps": "small"}, "rms_norm_eps must be a number, not 'small'"),
    (llama, {"num_key_value_heads": 4}, "describes an impossible model: mixer='gqa' needs n_kv_heads"),
    (llama, {"num_attention_heads": 0}, "describes an impossible model: n_heads must be a whole number"),
    (mistral, {"sliding_window": 0}, "describes an impossible model: window must be a whole number of at least 1"),
    (qwen3, {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["chunked_attention"] * 3}, "layer_types"),
    (qwen3, {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["full_attention"]}, "layer_types"),
    (mixtral, {"num_experts_per_tok": 9}, "n_experts is 5, top_k 9"),
    (gpt2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    (gpt2, {"activation_function": "tanh"}, "activation_function is 'tanh', only these are supported: gelu"),
    (bert, {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    (bert, {"is_decoder": True}, "is_decoder is True"),
]


@pytest.mark.parametrize(("make", "settings", "why"), UNSUPPORTED, ids=[case[2][:40] for case in UNSUPPORTED])
def test_settings_that_no_piece_follows(
    make: Callable[[], Any], settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    saved(make(), tmp_path)
    load_pretrained(tmp_path)
    edit(tmp_path, lambda x: x, **settings)
    refused(tmp_path, "config.json", why)


# Tensors


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda x: {name: value for name, value in x.items() if name not in names}


def test_missing_tensors(tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    edit(tmp_path, without("model.layers.1.mlp.up_proj.weight"))
    refused(tmp_path, "lacks layers.1.mlp.up_proj.weight: take a complete checkpoint")
    edit(tmp_path, lambda x: {name: value for name, value in x.items() if "layers.2" not in name})
    refused(tmp_path, "and 7 more")


def test_a_missing_head_that_is_not_tied(tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    edit(tmp_path, without("lm_head.weight"), tie_word_embeddings=False)
    refused(tmp_path, "lacks lm_head.weight")


def test_surplus_tensors(tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    edit(tmp_path, lambda x: x, num_hidden_layers=2)
    refused(tmp_path, "holds what the model has no place for: layers.2.", "and 6 more", "of the same model")


def test_biases_that_the_settings_do_not_speak_of(tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    edit(tmp_path, lambda x: x | {"model.layers.0.self_attn.q_proj.bias": torch.zeros(24)})
    refused(tmp_path, "no place for: layers.0.self_attn.q_proj.bias")
    edit(tmp_path, lambda x: x, attention_bias=True)
    refused(tmp_path, "lacks layers.0.self_attn.k_proj.bias")


@pytest.mark.parametrize(
    ("make", "name", "wanted"),
    [
        (llama, "model.layers.0.self_attn.k_proj.weight", "(8, 24)"),
        (llama, "model.embed_tokens.weight", "(53, 24)"),
        (gpt2, "transformer.h.1.attn.c_attn.weight", "(24, 72)"),
        (gpt2, "transformer.h.1.attn.c_attn.bias", "(72,)"),
        (gpt2, "transformer.h.1.mlp.c_fc.weight", "(24, 96)"),
        (qwen3, "model.layers.2.self_attn.q_norm.weight", "(10,)"),
        (bert, "embeddings.position_embeddings.weight", "(48, 24)"),
    ],
)
def test_a_wrong_shape(make: Callable[[], Any], name: str, wanted: str, tmp_path: Path) -> None:
    saved(make(), tmp_path)
    shape = tuple(load_file(tmp_path / "model.safetensors")[name].shape)
    wrong = (shape[0] - 1, *shape[1:])
    edit(tmp_path, lambda x: x | {name: x[name][:-1].clone()})
    plain = name.removeprefix("model.").removeprefix("transformer.")
    refused(tmp_path, f"{plain} is of shape {wrong}, but the settings ask for {wanted}")


def test_a_segment_of_another_width(tmp_path: Path) -> None:
    saved(bert(), tmp_path)
    edit(tmp_path, lambda x: x | {"embeddings.token_type_embeddings.weight": torch.zeros(2, 23)})
    refused(tmp_path, "token_type_embeddings.weight is of shape (2, 23)", "24")


def test_numbers_of_another_type(tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    edit(tmp_path, lambda x: x | {"lm_head.weight": x["lm_head.weight"].to(torch.int8)})
    refused(tmp_path, "lm_head.weight is of type int8; take weights of float32, bfloat16 or float16")


# Damaged files


@pytest.mark.parametrize("keep", [0.0, 0.0005, 0.3, 0.999])
def test_a_safetensors_file_that_was_cut_short(keep: float, tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    cut(tmp_path / "model.safetensors", keep)
    refused(tmp_path, "model.safetensors is damaged or cut short: download it again")


def cut(path: Path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


def test_a_part_of_several_is_missing_or_wrong(tmp_path: Path) -> None:
    saved(llama(), tmp_path, max_shard_size="10KB")
    index = tmp_path / "model.safetensors.index.json"
    parts = sorted(tmp_path.glob("*.safetensors"))
    first = parts[0].read_bytes()
    parts[0].write_bytes(parts[1].read_bytes())
    refused(tmp_path, parts[0].name, "which the index says it holds")
    parts[0].unlink()
    refused(tmp_path, f"{parts[0]} is missing", "download them all")
    parts[0].write_bytes(first)
    load_pretrained(tmp_path)
    cut(parts[1], 0.8)
    refused(tmp_path, f"{parts[1]} is damaged or cut short")
    index.write_text(json.dumps({"weight_map": {"norm.weight": "../model.safetensors"}}), encoding="utf-8")
    refused(tmp_path, "no safetensors file of its own folder")
    index.write_text(json.dumps({"weight_map": []}), encoding="utf-8")
    refused(tmp_path, "has no weight_map")


# GGUF


@pytest.mark.parametrize("keep", [0.00005, 0.001, 0.005, 0.3, 0.999])
def test_a_gguf_file_that_was_cut_short(keep: float, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, gguf_tensors())
    load_pretrained(path)
    cut(path, keep)
    refused(path, "is damaged or cut short and cannot be read: download it again")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"architecture": "gemma"}, "architecture 'gemma'; of GGUF files only 'llama' is supported"),
        ({"llama__rope__scaling__type": "yarn"}, "RoPE scaling 'yarn' is not supported"),
        ({"llama__rope__dimension_count": 8}, "RoPE turns 8 of the 16 columns of a head"),
        ({"llama__attention__sliding_window": 16}, "looks back 16 tokens"),
        ({"llama__expert_count": 8}, "mixture of experts"),
        ({"split__count": 3}, "one of several parts: join them"),
    ],
)
def test_gguf_settings_that_no_piece_follows(settings: dict[str, Any], why: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", gguf_tensors(), **settings)
    refused(tmp_path / "model.gguf", why)


def test_gguf_tensors_that_are_missing_surplus_or_wrong(tmp_path: Path) -> None:
    path, tensors = tmp_path / "model.gguf", gguf_tensors()
    write_gguf(path, without("blk.1.attn_q.weight")(tensors))
    refused(path, "lacks blk.1.attn_q.weight")
    write_gguf(path, without("token_embd.weight")(tensors))
    refused(path, "lacks the tensor token_embd.weight")
    write_gguf(path, tensors | {"blk.2.attn_q.weight": torch.zeros(64, 64)})
    refused(path, "no place for: blk.2.attn_q.weight")
    write_gguf(path, tensors | {"rope_freqs.weight": torch.ones(8)})
    refused(path, "RoPE scaling 'llama3' is not supported")
    write_gguf(path, tensors | {"blk.0.ffn_up.weight": torch.zeros(95, 64)})
    refused(path, "blk.0.ffn_up.weight is of shape (95, 64), but the settings ask for (96, 64)")


def test_gguf_settings_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, gguf_tensors())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"llama.block_count", b"llama.block_comes"))
    refused(path, "does not say llama.block_count")


# Tokenizers


def test_tokenizers_that_cannot_be_loaded(tmp_path: Path) -> None:
    refused(tmp_path, "has no tokenizer.json", load=load_tokenizer)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    refused(tmp_path, "tokenizer.json is damaged: download it again", load=load_tokenizer)
    refused(tmp_path / "absent", "no file or folder", load=load_tokenizer)
    path = tmp_path / "model.gguf"
    write_gguf(path, gguf_tensors())
    refused(path, "has a tokenizer of kind None", load=load_tokenizer)
    write_gguf(path, gguf_tensors(), tokenizer__ggml__model="llama", tokenizer__ggml__pre="default")
    refused(path, "kind 'llama' that splits text as 'default'", "load the tokenizer.json", load=load_tokenizer)


# The reader's own pieces


def test_a_piece_that_is_not_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(llama(), tmp_path)
    monkeypatch.setattr("lib.rotary_embedding.half_to_interleaved", None)
    with pytest.raises(pieces.MissingPiece, match="half_to_interleaved"):
        load_pretrained(tmp_path)


def test_a_model_with_other_parameters_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(nn.Module):
        def __init__(self, d: int, eps: float = 1e-5) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(d))

    saved(llama(), tmp_path)
    monkeypatch.setattr("lib.layer_normalization.RMSNorm", Bare)
    monkeypatch.setattr("lib.transformer.RMSNorm", Bare)
    refused(tmp_path, "not the ones the chapters ask for: blocks.0.attention.norm.scale")


def test_the_error_is_a_value_error() -> None:
    assert issubclass(CheckpointError, ValueError)
