"""Wrong ways to stretch the window, each with the property that must catch it."""

import math

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# interpolate_positions

edit(
    "interpolate_positions",
    "multiplied: the text is stretched, not squeezed",
    old="return positions.float() / factor",
    new="return positions.float() * factor",
    caught_by="known values: halved, position 7 stands at 3.5",
)
edit(
    "interpolate_positions",
    "halved, whatever the factor",
    old="return positions.float() / factor",
    new="return positions.float() / (2 if factor > 1 else 1)",
    caught_by="the factor divides, whatever it is",
)
edit(
    "interpolate_positions",
    "the factor made whole",
    old="return positions.float() / factor",
    new="return positions.float() / int(factor)",
    caught_by="the factor divides, whatever it is",
)
edit(
    "interpolate_positions",
    "whole positions after the division",
    old="return positions.float() / factor",
    new="return (positions // factor).float()",
    caught_by="positions between whole numbers keep their fractions",
)
edit(
    "interpolate_positions",
    "rounded to the nearest position",
    old="return positions.float() / factor",
    new="return (positions.float() / factor).round()",
    caught_by="positions between whole numbers keep their fractions",
)
edit(
    "interpolate_positions",
    "positions made whole before the division",
    old="return positions.float() / factor",
    new="return positions.long().float() / factor",
    caught_by="positions between whole numbers keep their fractions",
)
edit(
    "interpolate_positions",
    "a count of the positions instead of the positions",
    old="return positions.float() / factor",
    new="return torch.arange(len(positions), dtype=torch.float32) / factor",
    caught_by="the positions that come are used: any start, any order, any shape",
)
edit(
    "interpolate_positions",
    "wrapped round at a multiple of the factor",
    old="return positions.float() / factor",
    new="return positions.float() / factor % 100",
    caught_by="the positions that come are used: any start, any order, any shape",
)
edit(
    "interpolate_positions",
    "flattened on the way",
    old="return positions.float() / factor",
    new="return positions.float().flatten() / factor",
    caught_by="the positions that come are used: any start, any order, any shape",
)
edit(
    "interpolate_positions",
    "divided by one more than the factor",
    old="return positions.float() / factor",
    new="return positions.float() / (factor + 1)",
    caught_by="a factor of 1 changes nothing",
)
edit(
    "interpolate_positions",
    "divided in half precision",
    old="return positions.float() / factor",
    new="return (positions.half() / factor).float()",
    caught_by="the result is float32, and divided in float32",
)
edit(
    "interpolate_positions",
    "the type of the positions kept",
    old="return positions.float() / factor",
    new="return positions / factor",
    caught_by="the result is float32, and divided in float32",
)
edit(
    "interpolate_positions",
    "divided in place",
    old="return positions.float() / factor",
    new="return positions.float().div_(factor)",
    caught_by="the positions stay as they were",
)
edit(
    "interpolate_positions",
    "any factor accepted",
    old="if not factor >= 1:",
    new="if factor == 0:",
    caught_by="a factor below 1 is a ValueError that names it",
)
edit(
    "interpolate_positions",
    "the message without the factor",
    old="got {factor}",
    new="got less",
    caught_by="a factor below 1 is a ValueError that names it",
)
edit(
    "interpolate_positions",
    "factors below 2 refused",
    old="if not factor >= 1:",
    new="if factor < 2:",
    caught_by="a factor of 1 changes nothing",
)

# yarn_attention_factor

edit(
    "yarn_attention_factor",
    "squared already",
    old="return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0",
    new="return (0.1 * math.log(factor) + 1) ** 2 if factor > 1 else 1.0",
    caught_by="known values: 4 gives 1.138629 and 32 gives 1.346574",
)
edit(
    "yarn_attention_factor",
    "a temperature: one over it",
    old="return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0",
    new="return 1 / (0.1 * math.log(factor) + 1) if factor > 1 else 1.0",
    caught_by="known values: 4 gives 1.138629 and 32 gives 1.346574",
)
edit(
    "yarn_attention_factor",
    "not at all: always 1",
    old="return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0",
    new="return 1.0",
    caught_by="known values: 4 gives 1.138629 and 32 gives 1.346574",
)
edit(
    "yarn_attention_factor",
    "the logarithm to base 10",
    old="math.log(",
    new="math.log10(",
    caught_by="it grows by 0.1 where the factor grows e times",
)
edit(
    "yarn_attention_factor",
    "the logarithm to base 2",
    old="math.log(",
    new="math.log2(",
    caught_by="it grows by 0.1 where the factor grows e times",
)
edit(
    "yarn_attention_factor",
    "the logarithm of one more than the factor",
    old="math.log(factor)",
    new="math.log(factor + 1)",
    caught_by="it grows by 0.1 where the factor grows e times",
)
edit(
    "yarn_attention_factor",
    "a root instead of a logarithm",
    old="0.1 * math.log(factor) + 1",
    new="math.sqrt(1 + math.log(factor) / math.log(100))",
    caught_by="it grows by 0.1 where the factor grows e times",
)
edit(
    "yarn_attention_factor",
    "below 1 for factors below 1",
    old=" if factor > 1 else 1.0",
    new="",
    caught_by="it is 1 where nothing is stretched: at a factor of 1 or below",
)
edit(
    "yarn_attention_factor",
    "grows on both sides of 1",
    old="return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0",
    new="return 0.1 * abs(math.log(factor)) + 1",
    caught_by="it is 1 where nothing is stretched: at a factor of 1 or below",
)
edit(
    "yarn_attention_factor",
    "1 up to a factor of 2",
    old="if factor > 1 else",
    new="if factor > 2 else",
    caught_by="it is a number of Python, for whole and fractional factors",
)
edit(
    "yarn_attention_factor",
    "only whole factors",
    old="math.log(factor)",
    new="math.log(int(factor))",
    caught_by="it is a number of Python, for whole and fractional factors",
)


@mutant("a tensor", caught_by="it is a number of Python, for whole and fractional factors")
def yarn_attention_factor(factor: float) -> Tensor:
    return 0.1 * torch.tensor(max(float(factor), 1.0)).log() + 1


@mutant("added to 1 without the tenth", caught_by="it grows by 0.1 where the factor grows e times")
def yarn_attention_factor(factor: float) -> float:
    return math.log(max(factor, 1)) + 1
