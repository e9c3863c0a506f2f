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
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from lib import pieces
from lib.attend import Attend
from lib.config import Config

__all__ = ["Config", "LanguageModel", "ParameterCount"]

NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}

INIT_STD = 0.02
INTO_THE_STREAM = ("o_proj.weight", "down_proj.weight")
"""The projections whose outputs are added to the residual stream, two in a layer."""


class ParameterCount(NamedTuple):
    """How many numbers a model learns."""

    total: int
    without_embeddings: int
    """Those of the layers and the last norm: without the tables of tokens and positions and `lm_head`."""
    active: int
    """Those that one token meets: all but the experts that it does not visit."""


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
            own_blocks = config.mixer == "mha" and config.feed_forward != "moe"
            super().__init__(config if own_blocks else _around(config))
            self.config = config
            if not own_blocks:
                self.blocks = nn.ModuleList(_block(config) for _ in range(config.n_layers))
            if config.qk_norm:
                self._add_norms()
        self.initialise()

    @property
    def _is_plain(self) -> bool:
        config = self.config
        return config.positions != "rope" and not config.qk_norm and config.window is None

    def _add_norms(self) -> None:
        name = NORMS[self.config.norm]
        norm = pieces.take("layer_normalization", name, "Config(qk_norm=True)")
        block: Any
        for block in self.blocks:
            for part in ("q_norm", "k_norm"):
                block.attention.sublayer.add_module(part, norm(self.config.d_head, eps=self.config.norm_eps))

    def __reduce__(self) -> tuple[Any, ...]:
        # For copy.deepcopy and pickle: made anew from the class as it is written, then filled.
        return _empty, (type(self).__mro__[1], self.config), self.__dict__

    def forward(self, ids: Tensor, cache: Any = None) -> Tensor:
        """Scores of the next token at every position, `(B, T) -> (B, T, V)`, by your `Transformer`.

        Args:
            ids: token ids, `(B, T)`; with a cache, the tokens that follow those it holds.
            cache: your `KVCache` of chapter 11: what it holds is not read again, and the new tokens'
                keys and values join it.

        Raises:
            ValueError: a cache was handed to a model that is not causal.
        """
        if cache is not None and not self.config.causal:
            raise ValueError("a cache needs a causal model: here every token sees later ones too")
        with pieces.naming_the_chapter("LanguageModel"):
            if cache is None and self._is_plain:
                return super().forward(ids)  # as chapter 08 left it
            start = 0 if cache is None else cache.length
            attend = Attend(self.config, self.blocks, start, ids.shape[1], cache, ids.device)
            return super().forward(ids, offset=start, attend=attend)

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
        """The number of parameters in all, without the embeddings at both ends, and those that a token meets."""
        sizes = {name: parameter.numel() for name, parameter in self.named_parameters()}
        inner = sum(size for name, size in sizes.items() if name.startswith(("blocks.", "norm.")))
        experts = sum(size for name, size in sizes.items() if ".sublayer.experts." in name)
        config, total = self.config, sum(sizes.values())
        idle = experts - experts * config.top_k // config.n_experts if config.n_experts else 0
        return ParameterCount(total, inner, total - idle)

    def summary(self) -> str:
        """The model on a few lines: widths, kinds of parts, parameters, device, whose attention runs."""
        lines = [f"LanguageModel of {self.config.n_layers} layers, on {self.device}"]
        lines += [f"  {label:<13} {text}" for label, text in self._described()]
        return "\n".join(lines)

    __str__ = summary

    def _described(self) -> Iterator[tuple[str, str]]:
        config, count = self.config, self.count_parameters()
        positions = {
            "none": "none",
            "sinusoidal": f"sinusoidal, up to {config.max_len:,}",
            "learned": f"learned, up to {config.max_len:,}",
            "rope": f"rotary, base {config.rope_base:,.0f}",
        }
        if config.rope_scaling != "none":
            reach = f"{config.rope_factor:g} times {config.original_length:,}"
            positions["rope"] += f", stretched to {reach} by {config.rope_scaling}"
        output = "the table of embeddings" if config.tied_embeddings else "a layer of its own, lm_head"
        inner: str = config.activation if config.feed_forward == "mlp" else "gated"
        if config.n_experts:
            inner += f", {config.top_k} of {config.n_experts} experts a token"
        met = f", {count.active:,} a token" if config.n_experts else ""
        yield "parameters", f"{count.total:,} ({count.without_embeddings:,} without embeddings{met})"
        yield "tokens", f"{config.vocab_size:,} ids to vectors of {config.d_model:,}; scored by {output}"
        yield "positions", positions[config.positions]
        yield "norm", f"{config.norm}, {config.placement}-norm"
        shared = "" if config.kv_heads == config.n_heads else f" over {config.kv_heads} of keys and values"
        sees = self._sees()
        yield "attention", f"{config.n_heads} heads of {config.d_head}{shared}, {sees}"
        yield "", self._parts("attention")
        yield "", _origin(pieces.take("attention", "attention", "LanguageModel"))
        yield "feed-forward", f"{config.d_model:,} to {config.ff_width:,} and back, {inner}"
        yield "", self._parts("feed_forward")

    def _sees(self) -> str:
        if self.config.window is None:
            return "causal" if self.config.causal else "both ways"
        short = sum(self.config.window_of(layer) is not None for layer in range(self.config.n_layers))
        where = "" if short == self.config.n_layers else f" in {short} of {self.config.n_layers} layers"
        return f"causal, the last {self.config.window:,} tokens{where}"

    def _parts(self, place: str) -> str:
        """What stands at one place of the layers, and where its code is."""
        kinds = Counter(_origin(type(getattr(block, place).sublayer)) for block in self.blocks)
        return "; ".join(kind if len(kinds) == 1 else f"{number} x {kind}" for kind, number in kinds.items())


def _around(config: Config) -> Config:
    """The plan for a `Transformer` whose layers the model makes itself: everything around them, one plain layer."""
    plain: dict[str, Any] = {"n_layers": 1, "mixer": "mha", "n_heads": 1, "n_kv_heads": None, "head_dim": None}
    plain |= {"qk_norm": False, "feed_forward": "mlp", "n_experts": None}
    if config.positions == "rope":
        plain |= {"positions": "none", "rope_scaling": "none", "rope_factor": 1.0, "rope_original_length": None}
    return replace(config, **plain)


def _block(config: Config) -> nn.Module:
    """One layer of your `TransformerBlock`, around the attention and the experts that the plan asks for."""
    D, H, bias = config.d_model, config.n_heads, config.bias
    parts: dict[str, nn.Module] = {}
    if config.mixer == "mqa":
        kind = pieces.take("multi_query_attention", "MultiQueryAttention", "Config(mixer='mqa')")
        parts["attention"] = kind(D, H, bias=bias)
    elif config.mixer == "gqa":
        kind = pieces.take("grouped_query_attention", "GroupedQueryAttention", "Config(mixer='gqa')")
        parts["attention"] = kind(D, H, config.kv_heads, bias=bias, head_dim=config.head_dim)
    if config.feed_forward == "moe":
        kind = pieces.take("expert_router", "MixtureOfExperts", "Config(feed_forward='moe')")
        parts["feed_forward"] = kind(D, config.ff_width, config.n_experts, config.top_k)
    block: nn.Module = pieces.take("transformer", "TransformerBlock", "LanguageModel")(config, **parts)
    return block


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
    if config.mixer == "mqa":
        yield "multi_query_attention", "attend_shared", field("mixer")
        yield "multi_query_attention", "MultiQueryAttention", field("mixer")
    if config.mixer == "gqa":
        yield "grouped_query_attention", "repeat_kv", field("mixer")
        yield "grouped_query_attention", "GroupedQueryAttention", field("mixer")
    if config.positions == "sinusoidal":
        yield "positional_encoding", "sinusoidal_encoding", field("positions")
    if config.positions == "learned":
        yield "positional_encoding", "LearnedPositionalEncoding", field("positions")
    if config.positions == "rope":
        for name in ("rope_frequencies", "rope_cos_sin", "apply_rope"):
            yield "rotary_embedding", name, field("positions")
    if config.rope_scaling == "linear":
        yield "position_interpolation", "interpolate_positions", field("rope_scaling")
    if config.rope_scaling == "yarn":
        yield "position_interpolation", "yarn_frequencies", field("rope_scaling")
        yield "position_interpolation", "yarn_attention_factor", field("rope_scaling")
    if config.window is not None:
        yield "sliding_window_attention", "sliding_window_mask", field("window")
        yield "sliding_window_attention", "sliding_window_attention", field("window")
    yield "layer_normalization", NORMS[config.norm], field("norm")
    yield "residual_connection", "Residual", model
    if config.feed_forward == "mlp":
        if config.activation == "gelu":
            yield "feed_forward", "gelu", field("activation")
        yield "feed_forward", "FeedForward", field("feed_forward")
    else:
        yield "feed_forward", "SwiGLU", field("feed_forward")
    if config.feed_forward == "moe":
        yield "mixture_of_experts", "dispatch", field("feed_forward")
        yield "expert_router", "route", field("feed_forward")
        yield "expert_router", "MixtureOfExperts", field("feed_forward")
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
