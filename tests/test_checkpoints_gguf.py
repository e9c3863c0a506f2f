"""GGUF files of every kind of numbers are read as the `gguf` package reads them, and mean what Llama means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
import transformers
from gguf.quants import dequantize, quantize
from torch import Tensor

from lib.checkpoints import load_pretrained, load_tokenizer
from lib.gguf_file import GGUFFile
from lib.rotary_embedding import interleaved_to_half
from tests.tiny_checkpoints import GGUF_SIZES, TYPES, gguf_tensors, named_by_transformers, write_gguf

QUANTISED = [TYPES.F32, TYPES.F16, TYPES.BF16, TYPES.Q8_0, TYPES.Q4_0, TYPES.Q4_1, TYPES.Q5_0, TYPES.Q5_1]


def reference(tensors: dict[str, Tensor]) -> Any:
    """The library's Llama with these numbers, in its own layout of queries and keys."""
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=GGUF_SIZES["vocabulary"],
            hidden_size=GGUF_SIZES["width"],
            intermediate_size=GGUF_SIZES["inner"],
            num_hidden_layers=GGUF_SIZES["layers"],
            num_attention_heads=GGUF_SIZES["heads"],
            num_key_value_heads=GGUF_SIZES["kv_heads"],
            max_position_embeddings=32,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            attention_bias="blk.0.attn_q.bias" in tensors,
            tie_word_embeddings="output.weight" not in tensors,
        )
    )
    state = {}
    for name, x in tensors.items():
        for part, heads in (("attn_q", GGUF_SIZES["heads"]), ("attn_k", GGUF_SIZES["kv_heads"])):
            if part in name:
                x = interleaved_to_half(x, heads)
        state[named_by_transformers(name)] = x
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"])
    model.load_state_dict(state)
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("biases", "tied"), [(False, True), (True, False)], ids=["tied", "biases"])
def test_it_computes_what_the_library_does(kind: Any, biases: bool, tied: bool, tmp_path: Path) -> None:
    tensors = {name: 3 * x for name, x in gguf_tensors(biases, tied).items()}
    write_gguf(tmp_path / "model.gguf", tensors, kind)
    matrices = {name: x.numpy() for name, x in tensors.items() if x.dim() == 2}
    quantised = {name: torch.tensor(dequantize(quantize(x, kind), kind)) for name, x in matrices.items()}
    ids = torch.randint(GGUF_SIZES["vocabulary"], (2, 32))
    ours, expected = load_pretrained(tmp_path / "model.gguf")(ids), reference(tensors | quantised)(ids).logits
    assert expected.std() > 0.1
    assert (ours - expected).abs().max() < 1e-4


@pytest.mark.parametrize("kind", [TYPES.Q2_K, TYPES.Q3_K, TYPES.Q4_K, TYPES.Q5_K, TYPES.Q6_K, TYPES.IQ4_XS])
def test_kinds_that_python_can_only_read(kind: Any, tmp_path: Path) -> None:
    sizes, path = gguf.GGML_QUANT_SIZES[kind], tmp_path / "model.gguf"
    raw = torch.randint(1, 50, (40, 256 // sizes[0] * sizes[1]), dtype=torch.uint8).numpy()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("x.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(path)
    assert file.shapes == {"x.weight": (40, 256)}
    assert torch.equal(file.read("x.weight"), torch.tensor(dequantize(raw, kind)))


def test_a_vocabulary_that_begins_texts_with_a_token(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    settings = {"model": "gpt2", "pre": "smollm", "bos_token_id": 0, "eos_token_id": 1, "add_bos_token": True}
    arrays = {
        "tokens": ["<s>", "</s>", "<tool>", "a", "b", "ab", "1", "Ġ"],
        "token_type": [3, 3, 4, 1, 1, 1, 1, 1],
        "merges": ["a b"],
    }
    named: dict[str, Any] = {f"tokenizer__ggml__{name}": value for name, value in {**settings, **arrays}.items()}
    write_gguf(path, gguf_tensors(), **named, tokenizer__chat_template="{{ 'é' }}")
    tokenizer, template, bos_id, stop_ids = load_tokenizer(path)
    assert tokenizer.encode("ab 11<tool>ba</s>").ids == [0, 5, 7, 6, 6, 2, 4, 3, 1]
    assert tokenizer.decode([0, 5, 7, 6, 2]) == "ab 1<tool>"
    assert (template, bos_id, stop_ids) == ("{{ 'é' }}", 0, {1})
