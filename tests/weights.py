"""Weights at which every part of a model matters, shared by the tests of models."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def draw(model: Model, seed: int = 1) -> Model:
    """Give every parameter a new value far from its start; returns the model.

    Matrices are so wide that a layer's output stays about as wide as its input. With a model's own
    start, near zero, attention is almost even and a wrong scale would hide.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            x = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1.5 * x * parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 1 + 0.3 * x)
    return model
