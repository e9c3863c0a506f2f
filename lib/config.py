"""What a model is made of, said in one place. This module is given: no exercise.

The defaults describe a small decoder in the style of GPT-2. `dataclasses.replace(config, n_layers=6)`
makes a changed copy; `dataclasses.asdict(config)` is ready for a JSON file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

import torch
from torch import Tensor
from torch.nn import functional as F

RANGES = {"norm_eps": (0.0, 1.0), "rope_base": (1.0, math.inf), "rope_factor": (0.0, math.inf)}
"""Between which bounds the plan's real numbers lie."""

LAYERS = ("full", "window")
"""What `layer_pattern` is made of."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A model's plan: `Config(d_model=384, n_layers=6, n_heads=6)`.

    Every field is checked when the plan is made, so that a model is never built from an impossible one.

    Raises:
        ValueError: a field has a value that it cannot have, or two fields contradict each other;
            the message names the fields, what they are and what they must be.
    """

    # Sizes

    vocab_size: int = 256
    """`V`: how many different ids there are. 256 for bytes."""

    d_model: int = 128
    """`D`: the width of a token's vector all the way through the model."""

    n_layers: int = 4
    """`L`: how many blocks are stacked."""

    n_heads: int = 4
    """`H`: query heads of each attention layer; `D` is split among them."""

    n_kv_heads: int | None = None
    """`K`: key/value heads of each attention layer. `None` means `H`, or 1 where `mixer` is `mqa`."""

    head_dim: int | None = None
    """`d`: the width of one head. `None` means `D / H`; only `gqa` can have another (Qwen3)."""

    d_ff: int | None = None
    """`F`: the width inside the feed-forward network, or inside each expert. `None` means `4 * D`."""

    # Kinds of parts

    mixer: Literal["mha", "mqa", "gqa"] = "mha"
    """What lets tokens exchange: multi-head, multi-query or grouped-query attention."""

    qk_norm: bool = False
    """Whether each head's queries and keys are normed, by `norm`, before they are compared (Qwen3)."""

    window: int | None = None
    """`W`: a token sees itself and the `W - 1` before it, in the layers that `layer_pattern` says. `None`: all."""

    layer_pattern: tuple[str, ...] | None = None
    """Of `"window"` and `"full"`, one a layer, begun again where it ends. `None` means that all are alike."""

    feed_forward: Literal["mlp", "swiglu", "moe"] = "mlp"
    """`mlp` is up, activation, down (GPT-2, BERT); `swiglu` is gated (Llama); `moe` chooses among such (Mixtral)."""

    n_experts: int | None = None
    """`E`: experts of each layer, where `feed_forward` is `moe`; each is a `swiglu`."""

    top_k: int = 2
    """`k`: how many of the experts a token visits."""

    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    """Of the `mlp`: `gelu` is exact (BERT), `gelu_tanh` its approximation (GPT-2). `swiglu` has its own."""

    positions: Literal["none", "sinusoidal", "learned", "rope"] = "learned"
    """Added to the embeddings: the fixed sines and cosines, or a learned table; `rope` turns queries and keys."""

    rope_base: float = 10000.0
    """Of `rope`: the first pair of columns turns by 1 radian a position, the last by about `1 / rope_base`."""

    rope_scaling: Literal["none", "linear", "yarn"] = "none"
    """How `rope` reaches past the length it was trained at: positions squeezed, or YaRN's frequencies."""

    rope_factor: float = 1.0
    """How many times the trained length it reaches; above 1 where there is a `rope_scaling`."""

    rope_original_length: int | None = None
    """The length it was trained at. `None` means `max_len / rope_factor`."""

    max_len: int = 256
    """The longest sequence: rows of the table of positions. `none` and `rope` have no such limit."""

    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """The norm of each sublayer, and of the last layer's output where `placement` is `pre`."""

    norm_eps: float = 1e-5
    """Stands inside the norm's square root. GPT-2 and Llama use 1e-5, BERT 1e-12."""

    placement: Literal["pre", "post"] = "pre"
    """The norm before each sublayer (GPT-2, Llama) or after each addition (the original, BERT)."""

    bias: bool = True
    """Whether attention's projections and the `mlp` have biases. `swiglu` has none."""

    # The two ends, and who may look at whom

    tied_embeddings: bool = True
    """Whether the table of embeddings also scores the vocabulary at the end; else a layer `lm_head` does."""

    causal: bool = True
    """Whether a token sees only itself and those before it (decoder), or all (encoder)."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        pattern: object = self.layer_pattern
        if isinstance(pattern, list):  # as JSON has it
            object.__setattr__(self, "layer_pattern", tuple(pattern))
        for field in fields(self):
            _check(field.name, getattr(self, field.name), hints[field.name])
        self._check_heads()
        self._check_window()
        self._check_experts()
        self._check_scaling()
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"positions='sinusoidal' needs an even d_model, for its pairs of sine and cosine: it is {self.d_model}"
            )
        if self.positions == "rope" and self.d_head % 2:
            raise ValueError(f"positions='rope' needs heads of even width, for its pairs of columns: {self.d_head}")
        if self.feed_forward != "mlp" and self.activation != "gelu":
            raise ValueError(
                f"feed_forward={self.feed_forward!r} has an activation of its own, SiLU: "
                f"leave activation as it is, not {self.activation!r}"
            )

    def _check_heads(self) -> None:
        if self.head_dim is None and self.d_model % self.n_heads:
            raise ValueError(
                "d_model must be a multiple of n_heads, so that all heads are of one width: "
                f"{self.d_model} and {self.n_heads}"
            )
        if self.head_dim is not None and self.mixer != "gqa":
            raise ValueError(f"mixer={self.mixer!r} splits d_model among its heads: leave head_dim to mixer='gqa'")
        if self.mixer == "gqa":
            if self.n_kv_heads is None or self.n_heads % self.n_kv_heads:
                raise ValueError(
                    "mixer='gqa' needs n_kv_heads, of which n_heads is a multiple: "
                    f"{self.n_kv_heads} and {self.n_heads}"
                )
        elif self.n_kv_heads not in (None, self.kv_heads):
            raise ValueError(
                f"mixer={self.mixer!r} has {self.kv_heads} key/value heads: leave n_kv_heads, not {self.n_kv_heads}"
            )

    def _check_window(self) -> None:
        if self.window is not None and not self.causal:
            raise ValueError(f"window={self.window} looks back, so it needs causal=True")
        if self.layer_pattern is not None and (self.window is None) == ("window" in self.layer_pattern):
            raise ValueError(
                "window and layer_pattern must both speak of windows, or neither: "
                f"they are {self.window} and {self.layer_pattern}"
            )

    def _check_experts(self) -> None:
        if self.feed_forward == "moe":
            if self.n_experts is None or self.n_experts < self.top_k:
                raise ValueError(
                    "feed_forward='moe' needs n_experts of at least top_k: "
                    f"n_experts is {self.n_experts}, top_k {self.top_k}"
                )
        elif self.n_experts is not None:
            raise ValueError(
                f"feed_forward={self.feed_forward!r} is one network: leave n_experts, which is {self.n_experts}"
            )

    def _check_scaling(self) -> None:
        if self.rope_scaling == "none":
            if self.rope_factor != 1 or self.rope_original_length is not None:
                raise ValueError("rope_factor and rope_original_length need a rope_scaling: it is 'none'")
        elif self.positions != "rope":
            raise ValueError(f"rope_scaling={self.rope_scaling!r} needs positions='rope', not {self.positions!r}")
        elif self.rope_factor < 1:
            raise ValueError(f"rope_factor stretches: it must be at least 1, not {self.rope_factor}")

    def window_of(self, layer: int) -> int | None:
        """How far the tokens of a layer, counted from 0, look back; `None` where they see all."""
        if self.layer_pattern is None:
            return self.window
        return self.window if self.layer_pattern[layer % len(self.layer_pattern)] == "window" else None

    @property
    def original_length(self) -> int:
        """The length that `rope` was trained at, `rope_original_length` with its default worked out."""
        if self.rope_original_length is not None:
            return self.rope_original_length
        return round(self.max_len / self.rope_factor)

    @property
    def d_head(self) -> int:
        """`d`: the width of one head, `head_dim` with its default worked out."""
        return self.d_model // self.n_heads if self.head_dim is None else self.head_dim

    @property
    def kv_heads(self) -> int:
        """`K`: the number of key/value heads, `n_kv_heads` with its default worked out."""
        if self.mixer == "gqa" and self.n_kv_heads is not None:
            return self.n_kv_heads
        return 1 if self.mixer == "mqa" else self.n_heads

    @property
    def ff_width(self) -> int:
        """`F` with its default worked out: `d_ff`, or `4 * D`."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def activation_function(self) -> Callable[[Tensor], Tensor]:
        """The function that `activation` names; `gelu` is the one you write in chapter 07."""
        if self.activation == "gelu":
            from lib.feed_forward import gelu

            return gelu
        return {"gelu_tanh": _gelu_tanh, "relu": torch.relu, "silu": F.silu}[self.activation]


def _between(low: float, high: float) -> str:
    return f"above {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _check(name: str, value: object, hint: object) -> None:
    """Refuse a value which the field's annotation does not allow, and sizes below one."""
    choices = get_args(hint)
    if name == "layer_pattern":
        if value is not None and (
            not isinstance(value, tuple) or not value or not all(part in LAYERS for part in value)
        ):
            raise ValueError(f"{name} must be a tuple of {' and '.join(map(repr, LAYERS))}, not {value!r}")
    elif choices and isinstance(choices[0], str):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    elif hint is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")
    elif hint is float:
        low, high = RANGES[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value < high:
            raise ValueError(f"{name} must be a number {_between(low, high)}, not {value!r}")
    elif not (value is None and type(None) in choices) and (
        isinstance(value, bool) or not isinstance(value, int) or value < 1
    ):
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
