"""Reads a GGUF file, the one-file format of llama.cpp: settings, weights, tokenizer. This module is given: no exercise.

Weights may be quantised; they are turned back into float32 one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lib.config import Config
from lib.families import LLAMA, CheckpointError, Settings, Take, Takes, attention_fields

MAGIC = b"GGUF"

BROKEN = (ValueError, LookupError, OSError, TypeError, RuntimeError, ArithmeticError, MemoryError)
"""What the reader raises for a damaged file."""

ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "</s>")
"""Control tokens that end a text or a turn; the file itself names only one of them."""

CONTROL, USER_DEFINED = 3, 4  # kinds of tokens


class GGUFFile:
    """An open GGUF file: `settings`, and tensors by name.

    Raises:
        CheckpointError: it is not one, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            reader = _open(path)
            self._fields = reader.fields
            self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        except BROKEN as error:
            raise CheckpointError(
                f"{path} is damaged or cut short and cannot be read: download it again ({_one_line(error)})"
            ) from error
        self.settings: Mapping[str, Any] = _Settings(self._fields, path)
        self.shapes = {name: tuple(map(int, reversed(x.shape))) for name, x in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        """One tensor, in float32."""
        from gguf.quants import dequantize

        tensor = self._tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            kind = tensor.tensor_type.name
            raise CheckpointError(
                f"{self.path}: {name} is quantised as {kind}, which the gguf package cannot undo; "
                "take a file of another quantisation, such as Q8_0"
            ) from error
        return torch.tensor(values, dtype=torch.float32).reshape(self.shapes[name])  # a copy: the file is read-only


def _open(path: Path) -> Any:
    import numpy as np
    from gguf import GGUFReader

    class Reader(GGUFReader):
        """Cuts its many small slices from a plain array: from a `memmap` each takes three times as long."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value.view(np.ndarray) if isinstance(value, np.memmap) else value)

    return Reader(path)


class _Settings(Mapping[str, Any]):
    """The file's metadata; a value is decoded when it is asked for."""

    def __init__(self, fields: Mapping[str, Any], path: Path) -> None:
        self._fields, self._path = fields, path

    def __getitem__(self, name: str) -> Any:
        try:
            return self._fields[name].contents()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self._path} is damaged, {name} cannot be read: download it again") from error

    def __iter__(self) -> Any:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def read_config(file: GGUFFile) -> Config:
    """The plan that the file's settings describe.

    Raises:
        CheckpointError: your pieces cannot follow it.
    """
    settings = Settings(file.settings, str(file.path))
    architecture = settings.get("general.architecture", None)
    if architecture != "llama":
        raise CheckpointError(
            f"{file.path} holds a model of architecture {architecture!r}; of GGUF files only 'llama' is supported"
        )
    _check_supported(settings, file)
    if "token_embd.weight" not in file.shapes:
        raise CheckpointError(f"{file.path} lacks the tensor token_embd.weight: take a complete file")
    heads, width = settings.size("llama.attention.head_count"), settings.size("llama.embedding_length")
    kv_heads = settings.size("llama.attention.head_count_kv", heads)
    fields = attention_fields(width, heads, kv_heads, settings.get("llama.attention.key_length", None))
    return Config(
        vocab_size=file.shapes["token_embd.weight"][0],
        d_model=width,
        n_layers=settings.size("llama.block_count"),
        d_ff=settings.size("llama.feed_forward_length"),
        max_len=settings.size("llama.context_length"),
        norm_eps=settings.number("llama.attention.layer_norm_rms_epsilon", 1e-5),
        rope_base=settings.number("llama.rope.freq_base", 10000.0),
        bias="blk.0.attn_q.bias" in file.shapes,
        tied_embeddings="output.weight" not in file.shapes,
        **fields,
        **LLAMA,  # type: ignore[arg-type] # fields by name
    )


def _check_supported(settings: Settings, file: GGUFFile) -> None:
    if settings.get("split.count", 1) > 1:
        raise CheckpointError(f"{file.path} is one of several parts: join them with llama-gguf-split --merge")
    if settings.get("llama.expert_count", 0):
        raise settings.unsupported("it is a mixture of experts, which is not supported")
    scaling = settings.get("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file.shapes or "llama.rope.scale_linear" in file.settings:
        kind = scaling if scaling != "none" else "llama3" if "rope_freqs.weight" in file.shapes else "linear"
        raise settings.unsupported(f"RoPE scaling {kind!r} is not supported, only plain RoPE is")
    window = settings.get("llama.attention.sliding_window", None)
    if window and window < settings.size("llama.context_length"):
        raise settings.unsupported(f"its attention looks back {window} tokens: sliding windows are not supported")
    heads = settings.size("llama.attention.head_count")
    d = settings.get("llama.attention.key_length", settings.size("llama.embedding_length") // max(heads, 1))
    turned = settings.size("llama.rope.dimension_count", d)
    if turned != d:
        raise settings.unsupported(f"RoPE turns {turned} of the {d} columns of a head, only all are supported")


def takes(config: Config) -> Takes:
    """Where each parameter is taken from. Rows of queries and keys are in the `interleaved` layout already."""
    yield "embedding.weight", Take("token_embd.weight")
    yield "norm.weight", Take("output_norm.weight")
    if not config.tied_embeddings:
        yield "lm_head.weight", Take("output.weight")
    attention = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
    feed_forward = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    for i in range(config.n_layers):
        ours, theirs = f"blocks.{i}.", f"blk.{i}."
        for part, name in attention.items():
            for kind in ("weight", "bias") if config.bias else ("weight",):
                yield f"{ours}attention.sublayer.{part}.{kind}", Take(f"{theirs}{name}.{kind}")
        for part, name in feed_forward.items():
            yield f"{ours}feed_forward.sublayer.{part}.weight", Take(f"{theirs}{name}.weight")
        yield f"{ours}attention.norm.weight", Take(f"{theirs}attn_norm.weight")
        yield f"{ours}feed_forward.norm.weight", Take(f"{theirs}ffn_norm.weight")


def build_tokenizer(file: GGUFFile) -> Any:
    """A `tokenizers.Tokenizer` from the file's vocabulary.

    Raises:
        CheckpointError: it is of a kind other than SmolLM2's.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    settings = file.settings
    kind, splitting = (settings.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if (kind, splitting) != ("gpt2", "smollm"):
        raise CheckpointError(
            f"{file.path} has a tokenizer of kind {kind!r} that splits text as {splitting!r}; only 'gpt2' with "
            "'smollm' is supported: load the tokenizer.json of the same model"
        )
    tokens, kinds, merges = (settings[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "merges"))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    # Both settings with their defaults would split numbers otherwise and put a space before the text.
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    pairs = list(zip(tokens, kinds, strict=True))
    tokenizer.add_special_tokens([AddedToken(x, normalized=False, special=True) for x, k in pairs if k == CONTROL])
    tokenizer.add_tokens([AddedToken(x, normalized=False) for x, k in pairs if k == USER_DEFINED])
    if settings.get("tokenizer.ggml.add_bos_token", False):
        bos = tokens[settings["tokenizer.ggml.bos_token_id"]]
        template = processors.TemplateProcessing(single=[bos, "$A"], special_tokens=[(bos, vocabulary[bos])])
        tokenizer.post_processor = template
    return tokenizer


def stop_ids(file: GGUFFile) -> set[int]:
    """The tokens that end a text or a turn."""
    settings = file.settings
    ids = {
        settings[f"tokenizer.ggml.{name}_token_id"]
        for name in ("eos", "eot")
        if f"tokenizer.ggml.{name}_token_id" in settings
    }
    pairs = zip(settings["tokenizer.ggml.tokens"], settings["tokenizer.ggml.token_type"], strict=True)
    return ids | {i for i, (token, kind) in enumerate(pairs) if kind == CONTROL and token in ENDS}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
