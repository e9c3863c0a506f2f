"""Position interpolation and YaRN: a rotary model reads texts longer than those of its training."""

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .rotary_embedding import rope_frequencies


def interpolate_positions(positions: Tensor, factor: float) -> Tensor:
    """Squeeze positions into the range of the training: divide them by `factor`, and keep the fractions.

    Args:
        positions: whole numbers or not, of any shape, on any device.
        factor: how many times the trained length the text may have; at least 1.

    Returns:
        `positions / factor`, in the shape of `positions`, float32, divided in that type.

    Raises:
        ValueError: `factor` is below 1; the message names it.

    Source: "Extending Context Window of Large Language Models via Positional Interpolation",
    equation 4 (Chen et al., 2023).
    """
    if not factor >= 1:
        raise ValueError(f"factor must be at least 1, got {factor}")
    return positions.float() / factor


def yarn_frequencies(
    d: int, base: float, factor: float, original_length: int, beta_fast: float = 32.0, beta_slow: float = 1.0
) -> Tensor:
    """YaRN's frequencies: fast pairs keep theirs, slow pairs have it divided by `factor`, a ramp leads across.

    Pair `i` makes `original_length * base ** (-2 * i / d) / (2 * pi)` turns in the original length. Solved
    for `i`, that is the pair that makes `beta` turns: `d * ln(original_length / (2 * pi * beta)) / (2 * ln(base))`.
    With `beta_fast` it gives `low`, rounded down and at least 0; with `beta_slow` it gives `high`, rounded
    up and at most `d - 1`. The divided share of pair `i` is `(i - low) / (high - low)`, kept within 0 and 1;
    where `high` is not above `low`, it is 0 up to pair `low` and 1 after it.

    Args:
        d: width of a head; even.
        base: of the rotary embedding; above 1.
        factor: how many times the original length the text may have; at least 1.
        original_length: the length that the model was trained at; at least 1.
        beta_fast: pairs that make at least so many turns keep their frequency.
        beta_slow: pairs that make at most so many turns are divided; above 0 and at most `beta_fast`.

    Returns:
        The frequencies, `(d / 2,)`, float32, in radians a position: for each pair its own times
        `1 - share`, plus its own divided by `factor`, times `share`.

    Raises:
        ValueError: an argument is not in its range; the message names the argument and what it was.

    Source: "YaRN: Efficient Context Window Extension of Large Language Models", section 3.2 (Peng et al.,
    2024); the range is rounded as in the authors' code.
    """
    _check(d, base, factor, original_length, beta_fast, beta_slow)

    def _pair_of(turns: float) -> float:
        """The number of the pair, with fractions, that turns so many times in the original length."""
        return d * math.log(original_length / (2 * math.pi * turns)) / (2 * math.log(base))

    low = max(math.floor(_pair_of(beta_fast)), 0)
    high = min(math.ceil(_pair_of(beta_slow)), d - 1)
    width = max(high - low, 0.001)  # a range of no width is a step
    share = ((torch.arange(d // 2) - low) / width).clamp(0, 1)  # of the divided frequency, (d / 2,)
    own = rope_frequencies(d, base)
    return own * (1 - share) + own / factor * share


def _check(d: int, base: float, factor: float, original_length: int, beta_fast: float, beta_slow: float) -> None:
    if d < 2 or d % 2:
        raise ValueError(f"d must be even and at least 2, got {d}")
    if not base > 1:
        raise ValueError(f"base must be above 1, got {base}")
    if not factor >= 1:
        raise ValueError(f"factor must be at least 1, got {factor}")
    if not original_length >= 1:
        raise ValueError(f"original_length must be at least 1, got {original_length}")
    if not 0 < beta_slow <= beta_fast:
        raise ValueError(f"beta_slow must be above 0 and at most beta_fast: got {beta_slow} and {beta_fast}")


def yarn_attention_factor(factor: float) -> float:
    """By how much YaRN stretches the turned queries and the turned keys: `0.1 * ln(factor) + 1`.

    Both are stretched, so every score is multiplied by its square.

    Args:
        factor: how many times the original length the text may have.

    Returns:
        The factor; 1 where `factor` is at most 1, since nothing is stretched then.

    Source: "YaRN", section 3.4 (Peng et al., 2024).
    """
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def extend_context(model: Any, factor: float, method: str = "linear") -> Any:
    """A copy of a rotary model that reads texts `factor` times as long, with the same weights.

    Of the copy's `config`, four fields change: `rope_scaling` is the method, `rope_factor` the factor,
    `rope_original_length` the `max_len` that the model had, and `max_len` is `int(factor * max_len)`.

    Args:
        model: a `LanguageModel` whose `config` has `positions="rope"`; it stays as it is.
        factor: how many times the trained length, `model.config.max_len`, the texts may have; at least 1.
        method: `"linear"`, which divides positions, or `"yarn"`, which changes the frequencies.

    Returns:
        The copy, which shares nothing with `model`.

    Raises:
        ValueError: the model's positions are not `"rope"`, it is stretched already, `factor` is below 1,
            or there is no such method; the message names what it was.

    Source: "Extending Context Window of Large Language Models via Positional Interpolation" (Chen et al., 2023).
    """
    config = model.config
    if config.positions != "rope":
        raise ValueError(f"the model's positions must be 'rope', not {config.positions!r}")
    if config.rope_scaling != "none":
        raise ValueError(f"the model must not be stretched yet: its rope_scaling is {config.rope_scaling!r}")
    if method not in ("linear", "yarn"):
        raise ValueError(f"method must be 'linear' or 'yarn', not {method!r}")
    if not factor >= 1:
        raise ValueError(f"factor must be at least 1, got {factor}")
    extended = copy.deepcopy(model)
    extended.config = replace(
        config,
        rope_scaling=method,
        rope_factor=factor,
        rope_original_length=config.max_len,
        max_len=int(factor * config.max_len),
    )
    return extended
