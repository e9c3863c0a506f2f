"""Residual connections: each layer adds to the stream and leaves what was there."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

PLACEMENTS = ("pre", "post")


class Residual(nn.Module):
    """A sublayer beside a straight road: its output is added to its input.

    With `placement="pre"` the norm stands before the sublayer, off the road:
    `x + sublayer(norm(x))`. With `placement="post"` it stands after the addition, on the road:
    `norm(x + sublayer(x))`.

    Its parts are `sublayer` and `norm`, so that its state dict has names such as `norm.weight`.

    Args:
        sublayer: the module to wrap, from `(..., D)` to `(..., D)`.
        norm: the module that normalises.
        placement: where the norm stands, `"pre"` or `"post"`.

    Raises:
        ValueError: another placement; the message names it and the two that there are.

    Source: "Deep Residual Learning for Image Recognition" (He et al., 2016); for the placement,
    "On Layer Normalization in the Transformer Architecture" (Xiong et al., 2020).
    """

    def __init__(self, sublayer: nn.Module, norm: nn.Module, placement: str = "pre") -> None:
        super().__init__()
        if placement not in PLACEMENTS:
            raise ValueError(f"placement must be 'pre' or 'post', not {placement!r}")
        self.sublayer = sublayer
        self.norm = norm
        self.placement = placement

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        """Run the sublayer and add its output to its input.

        Args:
            x: the stream, `(..., D)`; it is left as it was.
            kwargs: handed on to the sublayer, such as `mask=` to an attention layer.

        Returns:
            The stream after this layer, `(..., D)`.
        """
        if self.placement == "pre":
            return x + self.sublayer(self.norm(x), **kwargs)
        return self.norm(x + self.sublayer(x, **kwargs))


def gradient_norms(stack: Iterable[nn.Module], x: Tensor) -> list[float]:
    """How strong the gradient is where it enters each layer of a stack, from the first to the last.

    Runs the layers one after the other and takes one number, `output[..., 0].sum()`: the first
    column of the last output, summed. Entry `l` of the result is the norm of its gradient with
    respect to the input of layer `l`: the square root of the sum of squares. The input and the
    gradients that the parameters hold are left as they were.

    Args:
        stack: the layers, such as an `nn.Sequential`; each takes and returns one tensor.
        x: the input of the first layer, `(..., D)`.

    Returns:
        One norm for each layer, the first layer's first.
    """
    inputs = []
    stream = x.detach().requires_grad_()
    for layer in stack:
        inputs.append(stream)
        stream = layer(stream)
    gradients = torch.autograd.grad(stream[..., 0].sum(), inputs)  # .backward() would fill the parameters'
    return [gradient.norm().item() for gradient in gradients]
