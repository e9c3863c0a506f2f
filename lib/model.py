"""A language model, assembled from the pieces that you write. This module is given: no exercise.

model = LanguageModel(Config(d_model=384, n_layers=6, n_heads=6))
print(model)  # a summary: sizes, parameters, device, whose pieces it is made of
logits = model(ids)  # (B, T) -> (B, T, V)
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from lib import pieces
from lib.config import Config

__all__ = ["Config", "LanguageModel", "ParameterCount"]

INIT_STD = 0.02
INTO_THE_STREAM = ("o_proj.weight", "down_proj.weight")
"""The projections whose outputs are added to the residual stream, two in a layer."""


class ParameterCount(NamedTuple):
    """How many numbers a model learns."""

    total: int
    without_embeddings: int
    """Those of the layers and the last norm: without the tables of tokens and positions and `lm_head`."""


class LanguageModel(nn.Module):
    """Your `Transformer` of chapter 08, with the start that training needs and a summary.

    How it computes is what you wrote: `Transformer` is its base class, looked up when a model is made,
    and gives it `forward(ids (B, T)) -> logits (B, T, V)` and the names of its parameters. Any layer's
    parts can be replaced: `model.blocks[2] = TransformerBlock(config, attention=..., feed_forward=...)`.

    The parameters are drawn anew, as GPT-2's are: see `initialise`.

    Args:
        config: the plan. The model has it as `model.config`.

    Raises:
        MissingPiece: a piece that the plan needs is not written; the message names it and its chapter.

    Source: Radford et al., 2019, "Language models are unsupervised multitask learners".
    """

    config: Config
    blocks: nn.ModuleList

    def __new__(cls, config: Config) -> Self:
        # No chapter is imported before a model is made. Only then is there a class to inherit from,
        # so the model's own class is put together here.
        transformer = _take_all(config)["Transformer"]
        joined = type(cls.__name__, (cls, transformer), {"__module__": cls.__module__, "__doc__": cls.__doc__})
        return super().__new__(joined)

    def __init__(self, config: Config) -> None:
        with pieces.naming_the_chapter("LanguageModel"):
            super().__init__(config)
        self.config = config
        self.initialise()

    def __reduce__(self) -> tuple[Any, ...]:
        # For copy.deepcopy and pickle: made anew from the class as it is written, then filled.
        return _empty, (type(self).__mro__[1], self.config), self.__dict__

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of the next token at every position, `(B, T) -> (B, T, V)`, by your `Transformer`."""
        with pieces.naming_the_chapter("LanguageModel"):
            return super().forward(ids)

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw every matrix from a normal distribution of spread 0.02, and set the projections' biases to zero.

        Each of the `2 * L` additions to the residual stream makes it wider, so the projections that
        write to it are drawn narrower, by `1 / sqrt(2 * L)`. The parameters of norms stay as they are.
        The same `torch.manual_seed` gives the same numbers.
        """
        narrower = INIT_STD / math.sqrt(2 * self.config.n_layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=narrower if name.endswith(INTO_THE_STREAM) else INIT_STD)
            elif name.endswith("_proj.bias"):
                nn.init.zeros_(parameter)

    @property
    def device(self) -> torch.device:
        """Where the parameters are; `model.to(lib.device.pick_device())` moves them."""
        return next(self.parameters()).device

    def count_parameters(self) -> ParameterCount:
        """The number of parameters in all, and without the embeddings at both ends."""
        sizes = {name: parameter.numel() for name, parameter in self.named_parameters()}
        inner = sum(size for name, size in sizes.items() if name.startswith(("blocks.", "norm.")))
        return ParameterCount(sum(sizes.values()), inner)

    def summary(self) -> str:
        """The model on a few lines: widths, kinds of parts, parameters, device, whose attention runs."""
        lines = [f"LanguageModel of {self.config.n_layers} layers, on {self.device}"]
        lines += [f"  {label:<13} {text}" for label, text in self._described()]
        return "\n".join(lines)

    __str__ = summary

    def _described(self) -> Iterator[tuple[str, str]]:
        config, count = self.config, self.count_parameters()
        positions = {"none": "none", "sinusoidal": "sinusoidal", "learned": f"learned, up to {config.max_len:,}"}
        output = "the table of embeddings" if config.tied_embeddings else "a layer of its own, lm_head"
        inner = config.activation if config.feed_forward == "mlp" else "gated"
        yield "parameters", f"{count.total:,} ({count.without_embeddings:,} without embeddings)"
        yield "tokens", f"{config.vocab_size:,} ids to vectors of {config.d_model:,}; scored by {output}"
        yield "positions", positions[config.positions]
        yield "norm", f"{config.norm}, {config.placement}-norm"
        yield "attention", f"{config.n_heads} heads of {config.d_head}, {'causal' if config.causal else 'both ways'}"
        yield "", self._parts("attention")
        yield "", _origin(pieces.take("attention", "attention", "LanguageModel"))
        yield "feed-forward", f"{config.d_model:,} to {config.ff_width:,} and back, {inner}"
        yield "", self._parts("feed_forward")

    def _parts(self, place: str) -> str:
        """What stands at one place of the layers, and where its code is."""
        kinds = Counter(_origin(type(getattr(block, place).sublayer)) for block in self.blocks)
        return "; ".join(kind if len(kinds) == 1 else f"{number} x {kind}" for kind, number in kinds.items())


def _empty(kind: type[LanguageModel], config: Config) -> LanguageModel:
    return kind.__new__(kind, config)


def _take_all(config: Config) -> dict[str, Any]:
    """Every piece that the plan needs, in the order of the chapters.

    Raises:
        MissingPiece: names the first that is not written.
    """
    return {name: pieces.take(module, name, because) for module, name, because in _needed(config)}


def _needed(config: Config) -> Iterator[tuple[str, str, str]]:
    """Module, name, and what of the plan asks for it."""

    def field(name: str) -> str:
        return f"Config({name}={getattr(config, name)!r})"

    model = "LanguageModel"
    yield "tokens", "TokenEmbedding", model
    yield "softmax", "softmax", model
    yield "attention", "attention", model
    if config.causal:
        yield "attention", "causal_mask", field("causal")
    yield "multi_head_attention", "MultiHeadAttention", model
    if config.positions == "sinusoidal":
        yield "positional_encoding", "sinusoidal_encoding", field("positions")
    if config.positions == "learned":
        yield "positional_encoding", "LearnedPositionalEncoding", field("positions")
    yield "layer_normalization", {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[config.norm], field("norm")
    yield "residual_connection", "Residual", model
    if config.feed_forward == "mlp":
        if config.activation == "gelu":
            yield "feed_forward", "gelu", field("activation")
        yield "feed_forward", "FeedForward", field("feed_forward")
    else:
        yield "feed_forward", "SwiGLU", field("feed_forward")
    yield "transformer", "TransformerBlock", model
    yield "transformer", "Transformer", model


def _origin(piece: Any) -> str:
    """A piece's name and the file that holds its code, such as `attention (lib/attention.py)`."""
    try:
        path = Path(inspect.getfile(piece)).resolve()
    except (OSError, TypeError):  # written in a notebook's cell or at a prompt
        return f"{piece.__name__} ({piece.__module__})"
    shown = path.relative_to(pieces.ROOT).as_posix() if path.is_relative_to(pieces.ROOT) else str(path)
    return f"{piece.__name__} ({shown})"
