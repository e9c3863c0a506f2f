"""Public checkpoints compute in `lib` what they compute in the `transformers` library.

The checkpoints are small random models which that library saves. SmolLM2 is the one with real weights.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from lib.checkpoints import load_pretrained, load_tokenizer
from lib.kv_cache import generate_cached
from tests.tiny_checkpoints import ROPE, SIZES, bert, edit, gpt2, llama, mistral, mixtral, qwen3, saved, write_json

LARGEST = 1e-4
"""The largest difference allowed in a number of a small model, in float32."""

YARN = {**ROPE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12}
DECODERS: dict[str, Callable[[], Any]] = {
    "gpt2": gpt2,
    "gpt2, narrow inside": lambda: gpt2(n_inner=30, activation_function="relu", layer_norm_epsilon=1e-3),
    "gpt2, untied": lambda: gpt2(tie_word_embeddings=False),
    "llama, grouped": llama,
    "llama, tied": lambda: llama(tie_word_embeddings=True),
    "llama, every head its own": lambda: llama(num_key_value_heads=6, rms_norm_eps=1e-3),
    "llama, one head of keys": lambda: llama(num_key_value_heads=1),
    "llama, wide heads": lambda: llama(num_key_value_heads=6, head_dim=8),
    "llama, with biases": lambda: llama(attention_bias=True),
    "mistral": mistral,
    "mistral, window as long as the context": lambda: mistral(sliding_window=48),
    "mistral, window shorter than the prompt": lambda: mistral(sliding_window=5),
    "llama, linear": lambda: llama(rope_parameters={**ROPE, "rope_type": "linear", "factor": 4.0}),
    "llama, yarn": lambda: llama(rope_parameters=YARN),
    "qwen3, yarn, windows in the last layers": lambda: qwen3(
        rope_parameters=YARN, use_sliding_window=True, sliding_window=6, max_window_layers=1
    ),
    "mixtral": mixtral,
    "mixtral, one of three, in a window": lambda: mixtral(
        num_local_experts=3, num_experts_per_tok=1, sliding_window=4, num_key_value_heads=2
    ),
    "qwen3": qwen3,
    "qwen3, tied, with biases": lambda: qwen3(tie_word_embeddings=True, attention_bias=True, num_key_value_heads=6),
}


@pytest.fixture(params=DECODERS, ids=lambda name: name.replace(",", "").replace(" ", "-"))
def decoder(request: pytest.FixtureRequest) -> Any:
    return DECODERS[request.param]()


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    assert theirs.std() > 0.1, "numbers so close to each other hide a mistake"
    return (ours - theirs).abs().max().item()


@torch.no_grad()
def test_a_decoder_gives_the_same_logits(decoder: Any, tmp_path: Path) -> None:
    theirs = saved(decoder, tmp_path)
    ours = load_pretrained(tmp_path)
    ids = torch.randint(53, (2, 48))
    assert largest_difference(ours(ids), theirs(ids).logits) < LARGEST
    assert not ours.training
    assert all(parameter.dtype == torch.float32 and parameter.requires_grad for parameter in ours.parameters())


@torch.no_grad()
def test_a_decoder_writes_the_same_tokens_with_a_cache(decoder: Any, tmp_path: Path) -> None:
    theirs = saved(decoder, tmp_path)
    ids = torch.randint(53, (1, 7))
    expected = theirs.generate(ids, max_new_tokens=30, do_sample=False, pad_token_id=0)
    assert generate_cached(load_pretrained(tmp_path), ids, 30, temperature=0).tolist() == expected.tolist()


@torch.no_grad()
def test_an_encoder_gives_the_same_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = saved(bert(), tmp_path)
    ours = load_pretrained(str(tmp_path))
    assert type(ours).__name__ == "Encoder"
    assert "pooler.dense.bias, pooler.dense.weight" in capsys.readouterr().out
    ids, mask = torch.randint(53, (3, 48)), torch.ones(3, 48, dtype=torch.long)
    mask[1, 20:] = 0
    expected = theirs(ids, attention_mask=mask).last_hidden_state
    assert largest_difference(ours(ids, mask)[mask == 1], expected[mask == 1]) < LARGEST


@torch.no_grad()
def test_an_encoder_is_found_within_a_model_with_a_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = saved(transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, hidden_act="gelu_new")), tmp_path)
    ids = torch.randint(53, (2, 19))
    assert largest_difference(load_pretrained(tmp_path)(ids), theirs.bert(ids).last_hidden_state) < LARGEST
    assert "cls.predictions" in capsys.readouterr().out


@torch.no_grad()
@pytest.mark.parametrize("make", [gpt2, llama, bert])
def test_a_model_in_several_files(make: Callable[[], Any], tmp_path: Path) -> None:
    theirs = saved(make(), tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    ids = torch.randint(53, (2, 30))
    assert largest_difference(load_pretrained(tmp_path)(ids), theirs(ids)[0]) < LARGEST


@torch.no_grad()
@pytest.mark.parametrize(("make", "prefix"), [(gpt2, "transformer."), (llama, "model."), (bert, "bert.")])
def test_the_prefix_may_be_there_or_not(make: Callable[[], Any], prefix: str, tmp_path: Path) -> None:
    theirs, ids = saved(make(), tmp_path), torch.randint(53, (2, 11))
    edit(tmp_path, lambda x: {name.removeprefix(prefix): value for name, value in x.items()})
    assert largest_difference(load_pretrained(tmp_path)(ids), theirs(ids)[0]) < LARGEST
    edit(tmp_path, lambda x: {name if name == "lm_head.weight" else prefix + name: x[name] for name in x})
    assert largest_difference(load_pretrained(tmp_path)(ids), theirs(ids)[0]) < LARGEST


@torch.no_grad()
@pytest.mark.parametrize(
    ("make", "constants"),
    [
        (gpt2, ["transformer.h.0.attn.bias", "h.2.attn.masked_bias"]),
        (llama, ["model.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.inv_freq"]),
        (bert, ["embeddings.position_ids", "bert.embeddings.token_type_ids"]),
    ],
)
def test_constants_in_the_file_are_passed_over(make: Callable[[], Any], constants: list[str], tmp_path: Path) -> None:
    theirs, ids = saved(make(), tmp_path), torch.randint(53, (2, 11))
    edit(tmp_path, lambda x: x | {name: torch.ones(3) for name in constants})
    assert largest_difference(load_pretrained(tmp_path)(ids), theirs(ids)[0]) < LARGEST


@torch.no_grad()
def test_embeddings_are_tied_where_the_file_has_no_other_head(tmp_path: Path) -> None:
    theirs, ids = saved(llama(tie_word_embeddings=True), tmp_path), torch.randint(53, (2, 11))
    edit(tmp_path, lambda x: x, tie_word_embeddings=None)
    ours = load_pretrained(tmp_path)
    assert ours.config.tied_embeddings
    assert largest_difference(ours(ids), theirs(ids).logits) < LARGEST
    # The same table once more, as some files have it.
    edit(tmp_path, lambda x: x | {"lm_head.weight": x["model.embed_tokens.weight"]}, tie_word_embeddings=True)
    ours = load_pretrained(tmp_path)
    assert ours.config.tied_embeddings
    assert largest_difference(ours(ids), theirs(ids).logits) < LARGEST


@torch.no_grad()
def test_a_head_that_differs_from_the_embeddings_is_one_of_its_own(tmp_path: Path) -> None:
    theirs, ids = saved(llama(tie_word_embeddings=False), tmp_path), torch.randint(53, (2, 11))
    edit(tmp_path, lambda x: x, tie_word_embeddings=True)
    ours = load_pretrained(tmp_path)
    assert not ours.config.tied_embeddings
    assert largest_difference(ours(ids), theirs(ids).logits) < LARGEST


@torch.no_grad()
@pytest.mark.parametrize("said", [False, None])
def test_a_window_that_is_switched_off_is_passed_over(said: bool | None, tmp_path: Path) -> None:
    theirs, ids = saved(qwen3(), tmp_path), torch.randint(53, (2, 40))
    edit(tmp_path, lambda x: x, use_sliding_window=said, sliding_window=8)
    assert largest_difference(load_pretrained(tmp_path)(ids), theirs(ids).logits) < LARGEST


@torch.no_grad()
def test_older_settings_of_scaling(tmp_path: Path) -> None:
    theirs, ids = saved(llama(rope_parameters=YARN), tmp_path), torch.randint(53, (2, 40))
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12, "attention_factor": None}
    edit(tmp_path, lambda x: x, rope_parameters=None, rope_theta=500.0, rope_scaling=scaling)
    assert largest_difference(load_pretrained(tmp_path)(ids), theirs(ids).logits) < LARGEST


@torch.no_grad()
def test_older_settings_of_rope(tmp_path: Path) -> None:
    theirs, ids = saved(llama(), tmp_path), torch.randint(53, (2, 40))
    edit(tmp_path, lambda x: x, rope_parameters=None, rope_theta=500.0, rope_scaling=None)
    assert largest_difference(load_pretrained(tmp_path)(ids), theirs(ids).logits) < LARGEST


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_are_float32_unless_asked_otherwise(stored: torch.dtype, tmp_path: Path) -> None:
    saved(gpt2().to(stored), tmp_path)
    exact = load_file(tmp_path / "model.safetensors")["transformer.wte.weight"]
    ours = load_pretrained(tmp_path)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert torch.equal(ours.embedding.weight, exact.float())
    narrow = load_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in narrow.parameters()} == {torch.bfloat16}


def test_loading_draws_no_random_number_and_the_file_may_go(tmp_path: Path) -> None:
    saved(llama(), tmp_path)
    before = torch.get_rng_state()
    ours = load_pretrained(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    expected = {name: x.clone() for name, x in ours.state_dict().items()}
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert all(torch.equal(x, expected[name]) for name, x in ours.state_dict().items())


# Tokenizers of folders


def write_tokenizer(folder: Path) -> None:
    vocabulary = {"[UNK]": 0, "<s>": 1, "</s>": 2, "one": 3, "two": 4, "<end>": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(length=12)
    tokenizer.enable_truncation(3)
    tokenizer.save(str(folder / "tokenizer.json"))


def test_the_tokenizer_of_a_folder(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    vocabulary = load_tokenizer(tmp_path)
    assert vocabulary.tokenizer.encode("one two two one").ids == [3, 4, 4, 3], "neither padded nor cut"
    assert vocabulary[1:] == (None, None, set())
    template = [{"name": "tools", "template": "B"}, {"name": "default", "template": "A"}]
    write_json(
        tmp_path / "tokenizer_config.json", bos_token="<s>", eos_token={"content": "</s>"}, chat_template=template
    )
    assert load_tokenizer(tmp_path)[1:] == ("A", 1, {2})
    write_json(tmp_path / "config.json", eos_token_id=2)
    write_json(tmp_path / "generation_config.json", eos_token_id=[2, 5])
    (tmp_path / "chat_template.jinja").write_text("{{ 'é' }}", encoding="utf-8")
    assert load_tokenizer(tmp_path)[1:] == ("{{ 'é' }}", 1, {2, 5})
