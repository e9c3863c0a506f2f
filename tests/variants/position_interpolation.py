"""Right answers to the exercises of chapter 15 that differ from the reference."""

import copy
import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from course.grading.specimens import variant


@variant("times one over the factor, in float64 on the way")
def interpolate_positions(positions: Tensor, factor: float) -> Tensor:
    if factor < 1:
        raise ValueError(f"the factor is {factor}, but a text cannot be squeezed by less than 1")
    return (positions.to(torch.float64) * (1 / factor)).to(torch.float32)


@variant("torch.true_divide of a float32 copy")
def interpolate_positions(positions: Tensor, factor: float) -> Tensor:
    if not factor >= 1.0:
        raise ValueError(f"factor: {factor}; it must be 1 or more")
    squeezed = positions.clone().to(dtype=torch.float32)
    squeezed /= factor
    return squeezed


@variant("number by number, in Python's floats")
def yarn_frequencies(
    d: int, base: float, factor: float, original_length: int, beta_fast: float = 32.0, beta_slow: float = 1.0
) -> Tensor:
    bounds = {"d": (d, 2), "factor": (factor, 1), "original_length": (original_length, 1)}
    for name, (value, least) in bounds.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}: {value}")
    if d % 2 == 1:
        raise ValueError(f"d must be even: {d}")
    if base <= 1:
        raise ValueError(f"base must be above 1: {base}")
    if beta_slow <= 0 or beta_slow > beta_fast:
        raise ValueError(f"beta_slow = {beta_slow} must lie above 0 and not above beta_fast = {beta_fast}")
    ends = []
    for beta in (beta_fast, beta_slow):
        ends.append(d / 2 * (math.log(original_length) - math.log(2 * math.pi * beta)) / math.log(base))
    low, high = max(0, math.floor(ends[0])), min(d - 1, math.ceil(ends[1]))
    result = []
    for i in range(d // 2):
        own = math.pow(base, -2 * i / d)
        if i <= low:
            kept = 1.0
        elif i >= high:
            kept = 0.0
        else:
            kept = (high - i) / (high - low)
        result.append(own * (kept + (1 - kept) / factor))
    return torch.tensor(result, dtype=torch.float32)


@variant("a lerp between the two sets of frequencies")
def yarn_frequencies(
    d: int, base: float, factor: float, original_length: int, beta_fast: float = 32.0, beta_slow: float = 1.0
) -> Tensor:
    wrong = {
        "d": (d, d % 2 == 1 or d <= 0),
        "base": (base, base <= 1),
        "factor": (factor, factor < 1),
        "original_length": (original_length, original_length < 1),
        "beta_slow": (beta_slow, not 0 < beta_slow <= beta_fast),
    }
    for name, (value, bad) in wrong.items():
        if bad:
            raise ValueError(f"{name} cannot be {value}")
    pairs = torch.arange(d // 2, dtype=torch.float64)
    own = torch.pow(torch.tensor(base, dtype=torch.float64), -2 * pairs / d)
    edges = torch.tensor([beta_fast, beta_slow], dtype=torch.float64).mul(2 * math.pi).reciprocal()
    edges = d * (edges * original_length).log() / (2 * math.log(base))
    low = max(int(edges[0].floor()), 0)
    high = max(min(int(edges[1].ceil()), d - 1), low + 1e-3)
    weight = torch.clamp((pairs - low) / (high - low), min=0, max=1)
    return torch.lerp(own, own / factor, weight).float()


@variant("a logarithm never below zero")
def yarn_attention_factor(factor: float) -> float:
    return 1.0 + math.log(max(factor, 1.0)) / 10


@variant("an early return")
def yarn_attention_factor(factor: float) -> float:
    if factor <= 1:
        return 1.0
    return 1.0 + 0.1 * math.log2(factor) * math.log(2)


@variant("a new model of the new plan, filled with the weights")
def extend_context(model: Any, factor: float, method: str = "linear") -> Any:
    from lib.model import LanguageModel

    plan = dataclasses.asdict(model.config)
    if plan["positions"] != "rope":
        raise ValueError(f"only rope can be stretched, not {plan['positions']}")
    if plan["rope_scaling"] != "none":
        raise ValueError(f"stretched already, by {plan['rope_scaling']}")
    if method not in {"linear", "yarn"}:
        raise ValueError(f"unknown method {method!r}: linear or yarn")
    if factor < 1:
        raise ValueError(f"factor is {factor}, must be at least 1")
    length = plan["max_len"]
    plan |= {"rope_scaling": method, "rope_factor": factor, "rope_original_length": length}
    plan["max_len"] = math.floor(factor * length)
    weights = model.state_dict()
    longer = LanguageModel(type(model.config)(**plan))
    longer.to(next(iter(weights.values())))
    longer.load_state_dict(weights)
    return longer.train(model.training)


@variant("the plan first, then the copy")
def extend_context(model: Any, factor: float, method: str = "linear") -> Any:
    old = model.config
    problems = [
        (old.positions != "rope", f"positions are {old.positions!r}, not 'rope'"),
        (old.rope_scaling != "none", f"rope_scaling is {old.rope_scaling!r} already"),
        (method != "linear" and method != "yarn", f"method {method!r} is neither 'linear' nor 'yarn'"),
        (not factor >= 1, f"factor {factor} is below 1"),
    ]
    for is_so, message in problems:
        if is_so:
            raise ValueError(message)
    changed: dict[str, Any] = {"max_len": int(old.max_len * factor), "rope_original_length": old.max_len}
    plan = dataclasses.replace(old, rope_scaling=method, rope_factor=float(factor), **changed)
    twin = copy.deepcopy(model)
    twin.config = plan
    return twin
