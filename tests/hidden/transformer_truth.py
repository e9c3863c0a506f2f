"""The truth of chapter 08 in float64, and parts with known weights; its hidden tests import it."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check
from course.grading.student import Student

PLAN: dict[str, Any] = {"vocab_size": 11, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 10, "max_len": 9}
MAPS = ("q_proj", "k_proj", "v_proj", "o_proj")
ACTIVATIONS: dict[str, Any] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
Weights = dict[str, Tensor]


class Model:
    """The truth, in float64: what a plan and its weights make of a stream."""

    def __init__(self, weights: Weights, **plan: Any) -> None:
        self.weights = {name: weight.double() for name, weight in weights.items()}
        self.plan = {**PLAN, **plan}

    def get(self, key: str, default: Any) -> Any:
        return self.plan.get(key, default)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight, eps = self.weights[name + ".weight"], self.get("norm_eps", 1e-5)
        if self.get("norm", "layernorm") == "rmsnorm":
            return F.rms_norm(x, x.shape[-1:], weight, eps)
        return F.layer_norm(x, x.shape[-1:], weight, self.weights[name + ".bias"], eps)

    def attention(self, x: Tensor, name: str, mask: Tensor | None, context: Tensor | None = None) -> Tensor:
        source, H = x if context is None else context, self.plan["n_heads"]
        q, k, v = (
            self.linear(y, f"{name}.{part}").unflatten(-1, (H, -1)).transpose(1, 2)
            for part, y in (("q_proj", x), ("k_proj", source), ("v_proj", source))
        )
        return self.linear(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2), name + ".o_proj")

    def network(self, x: Tensor, name: str) -> Tensor:
        up = self.linear(x, name + ".up_proj")
        if self.get("feed_forward", "mlp") == "swiglu":
            return self.linear(F.silu(self.linear(x, name + ".gate_proj")) * up, name + ".down_proj")
        switch = ACTIVATIONS[self.get("activation", "gelu")]
        return self.linear(switch(up), name + ".down_proj")

    def residual(self, x: Tensor, name: str, sublayer: Any) -> Tensor:
        if self.get("placement", "pre") == "pre":
            return x + sublayer(self.norm(x, name + ".norm"))
        return self.norm(x + sublayer(x), name + ".norm")

    def block(self, x: Tensor, mask: Tensor | None = None, at: str = "") -> Tensor:
        name = at + "attention"
        x = self.residual(x, name, lambda y: self.attention(y, name + ".sublayer", mask))
        other = at + "feed_forward"
        return self.residual(x, other, lambda y: self.network(y, other + ".sublayer"))

    def logits(self, ids: Tensor, offset: int = 0) -> Tensor:
        T, D, w = ids.shape[1], self.plan["d_model"], self.weights
        x = w["embedding.weight"][ids]
        if self.get("positions", "learned") == "learned":
            x = x + w["positions.weight"][offset : offset + T]
        elif self.plan["positions"] == "sinusoidal":
            places = torch.arange(offset, offset + T).double()[:, None]
            angles = places * 10000.0 ** (-torch.arange(0, D, 2).double() / D)
            x = x + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        mask = torch.ones(T, T, dtype=torch.bool).tril() if self.get("causal", True) else None
        for layer in range(self.plan["n_layers"]):
            x = self.block(x, mask, f"blocks.{layer}.")
        if self.get("placement", "pre") == "pre":
            x = self.norm(x, "norm")
        return F.linear(x, w["lm_head.weight"] if "lm_head.weight" in w else w["embedding.weight"])


def residual_names(at: str, inner: list[str], rms: bool = False) -> list[str]:
    return [f"{at}.sublayer.{name}" for name in inner] + [f"{at}.norm.weight"] + ([] if rms else [f"{at}.norm.bias"])


def names(kind: str, **plan: Any) -> list[str]:
    """The names in the state dict of a part, by the plan."""
    bias, rms, gated = plan.get("bias", True), plan.get("norm") == "rmsnorm", plan.get("feed_forward") == "swiglu"
    ends = ("weight", "bias") if bias else ("weight",)
    maps = [f"{name}.{end}" for name in MAPS for end in ends]
    inner = [f"{name}.{end}" for name in ("up_proj", "down_proj") for end in ends]
    if gated:
        inner = ["gate_proj.weight", "up_proj.weight", "down_proj.weight"]
    block = residual_names("attention", maps, rms) + residual_names("feed_forward", inner, rms)
    if kind == "DecoderBlock":
        block += residual_names("cross_attention", maps, rms)
    if kind != "Transformer":
        return sorted(block)
    whole = [f"blocks.{i}.{name}" for i in range(plan.get("n_layers", PLAN["n_layers"])) for name in block]
    whole += ["embedding.weight"]
    if plan.get("positions", "learned") == "learned":
        whole += ["positions.weight"]
    if plan.get("placement", "pre") == "pre":
        whole += ["norm.weight"] if rms else ["norm.weight", "norm.bias"]
    return sorted(whole + ([] if plan.get("tied_embeddings", True) else ["lm_head.weight"]))


def shape(name: str, **plan: Any) -> list[int]:
    """The shape of a parameter, by the plan."""
    whole = {**PLAN, **plan}
    D, inner = whole["d_model"], whole["d_ff"] or 4 * whole["d_model"]
    for end, size in (
        (("up_proj.weight", "gate_proj.weight"), [inner, D]),
        (("down_proj.weight",), [D, inner]),
        (("up_proj.bias",), [inner]),
        (("_proj.weight",), [D, D]),
    ):
        if name.endswith(end):
            return size
    rows = {"embedding": "vocab_size", "lm_head": "vocab_size", "positions": "max_len"}.get(name.partition(".")[0])
    return [D] if rows is None else [whole[rows], D]


def loaded(student: Student, check: Check, kind: str, **plan: Any) -> tuple[Any, Model]:
    """A part made by this plan, with known weights large enough that each of them matters; and the truth."""
    part = getattr(student, kind)(student.fixtures.config(**{**PLAN, **plan}))
    state = part.state_dict()
    wanted, what = names(kind, **plan), f"the state dict of {kind}, {plan or 'the standard plan'}"
    check.equal([name for name in wanted if name not in state], [], f"names that are not in {what}")
    check.equal([name for name in sorted(state) if name not in wanted], [], f"names too many in {what}")
    for name, value in state.items():
        check.tensor(value, shape(name, **plan), f"{name} in {what}")
    weights = {}
    for name, value in state.items():
        if name.endswith("norm.weight"):
            weights[name] = 1 + check.randn(*value.shape, scale=0.3)
        else:
            weights[name] = check.randn(*value.shape, scale=0.7 if value.ndim == 1 else 1.0 / value.shape[1] ** 0.5)
    part.load_state_dict(weights)
    return part, Model(weights, **plan)


def stream(check: Check, T: int = 5) -> Tensor:
    return check.randn(2, T, PLAN["d_model"])
