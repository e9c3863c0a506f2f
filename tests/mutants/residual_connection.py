"""Wrong residual connections and gradient norms, each with the property that must catch it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from course.grading.specimens import edit, mutant

# Residual

edit(
    "Residual",
    "no addition in pre-norm",
    old="return x + self.sublayer(self.norm(x), **kwargs)",
    new="return self.sublayer(self.norm(x), **kwargs)",
    caught_by="pre: where the sublayer gives zero, x passes untouched",
)
edit(
    "Residual",
    "the normed input added in place of x",
    old="return x + self.sublayer(self.norm(x), **kwargs)",
    new="y = self.norm(x)\n            return y + self.sublayer(y, **kwargs)",
    caught_by="pre: where the sublayer gives zero, x passes untouched",
)
edit(
    "Residual",
    "the norm over the sublayer's output in pre-norm",
    old="self.sublayer(self.norm(x), **kwargs)",
    new="self.norm(self.sublayer(x, **kwargs))",
    caught_by="pre: the output is x + sublayer(norm(x))",
)
edit(
    "Residual",
    "norm after the addition though pre was asked",
    old='if self.placement == "pre":',
    new='if self.placement == "never":',
    caught_by="pre: the output is x + sublayer(norm(x))",
)
edit(
    "Residual",
    "norm before the sublayer though post was asked",
    old='if self.placement == "pre":',
    new='if self.placement != "never":',
    caught_by="post: the output is norm(x + sublayer(x))",
)
edit(
    "Residual",
    "no addition in post-norm",
    old="self.norm(x + self.sublayer(x, **kwargs))",
    new="self.norm(self.sublayer(x, **kwargs))",
    caught_by="post: the output is norm(x + sublayer(x))",
)
edit(
    "Residual",
    "x outside the norm in post-norm",
    old="self.norm(x + self.sublayer(x, **kwargs))",
    new="x + self.norm(self.sublayer(x, **kwargs))",
    caught_by="post: the output is norm(x + sublayer(x))",
)
edit(
    "Residual",
    "the default is post",
    old='placement: str = "pre"',
    new='placement: str = "post"',
    caught_by="the placement is pre unless another is asked for",
)
edit(
    "Residual",
    "keyword arguments dropped in pre-norm",
    old="self.sublayer(self.norm(x), **kwargs)",
    new="self.sublayer(self.norm(x))",
    caught_by="keyword arguments reach the sublayer, in both placements",
)
edit(
    "Residual",
    "keyword arguments handed to the norm too",
    old="self.norm(x + self.sublayer(x, **kwargs))",
    new="self.norm(x + self.sublayer(x, **kwargs), **kwargs)",
    caught_by="keyword arguments reach the sublayer, in both placements",
)
edit(
    "Residual",
    "the sublayer run twice",
    old="return x + self.sublayer(self.norm(x), **kwargs)",
    new="self.sublayer(self.norm(x), **kwargs)\n            return x + self.sublayer(self.norm(x), **kwargs)",
    caught_by="the sublayer and the norm run once each",
)
edit(
    "Residual",
    "any placement accepted",
    old="if placement not in PLACEMENTS:",
    new="if False:",
    caught_by="another placement is a ValueError that names it",
)
edit(
    "Residual",
    "the norm under another name",
    old="self.norm",
    new="self.ln",
    caught_by="its parts are called sublayer and norm, and are the modules it was given",
)
edit(
    "Residual",
    "the straight road cut off from the gradient",
    old="return x + self",
    new="return x.detach() + self",
    caught_by="gradients reach x by both roads, and all parameters",
)
edit(
    "Residual",
    "added in place",
    old="return x + self.sublayer(self.norm(x), **kwargs)",
    new="x += self.sublayer(self.norm(x), **kwargs)\n            return x",
    caught_by="the stream passed in is left as it was",
)

# gradient_norms

edit(
    "gradient_norms",
    "from the last layer to the first",
    old="for gradient in gradients]",
    new="for gradient in reversed(gradients)]",
    caught_by="one norm for each layer, the first layer's first",
)
edit(
    "gradient_norms",
    "gradients of the outputs, not the inputs",
    old="inputs.append(stream)\n        stream = layer(stream)",
    new="stream = layer(stream)\n        inputs.append(stream)",
    caught_by="layers that double each double the gradient on its way back",
)
edit(
    "gradient_norms",
    "the sum of the whole output",
    old="stream[..., 0].sum()",
    new="stream.sum()",
    caught_by="the gradient is that of the sum of the output's first column",
)
edit(
    "gradient_norms",
    "the mean of the first column",
    old="stream[..., 0].sum()",
    new="stream[..., 0].mean()",
    caught_by="the gradient is that of the sum of the output's first column",
)
edit(
    "gradient_norms",
    "the first row in place of the first column",
    old="stream[..., 0].sum()",
    new="stream[0].sum()",
    caught_by="the gradient is that of the sum of the output's first column",
)
edit(
    "gradient_norms",
    "squared norms",
    old="gradient.norm().item()",
    new="gradient.square().sum().item()",
    caught_by="a norm is the root of the sum of squares, over all numbers",
)
edit(
    "gradient_norms",
    "the mean of each row's norm",
    old="gradient.norm().item()",
    new="gradient.norm(dim=-1).mean().item()",
    caught_by="a norm is the root of the sum of squares, over all numbers",
)
edit(
    "gradient_norms",
    "every layer fed with the first input",
    old="stream = layer(stream)",
    new="stream = layer(inputs[0]) if layer is None else layer(stream.detach().requires_grad_()) + 0 * stream.sum()",
    caught_by="each layer gets the output of the layer before",
)


@mutant("backward() fills the parameters' gradients", caught_by="the parameters' gradients are left as they were")
def gradient_norms(stack: Iterable[nn.Module], x: Tensor) -> list[float]:
    stream = [x.detach().requires_grad_()]
    for layer in stack:
        stream.append(layer(stream[-1]))
        stream[-1].retain_grad()
    stream[-1][..., 0].sum().backward()
    return [float(y.grad.norm()) for y in stream[:-1]]


@mutant("the norms of the activations", caught_by="layers that double each double the gradient on its way back")
def gradient_norms(stack: Iterable[nn.Module], x: Tensor) -> list[float]:
    norms = []
    for layer in stack:
        norms.append(x.norm().item())
        x = layer(x)
    return norms


@mutant("a list of tensors", caught_by="one norm for each layer, the first layer's first")
def gradient_norms(stack: Iterable[nn.Module], x: Tensor) -> list[float]:
    stream = [x.detach().requires_grad_()]
    for layer in stack:
        stream.append(layer(stream[-1]))
    return [g.norm() for g in torch.autograd.grad(stream[-1][..., 0].sum(), stream[:-1])]


edit(
    "Residual",
    "a LayerNorm of its own",
    old="self.norm = norm",
    new="self.norm = nn.LayerNorm(norm.weight.shape[0]) if hasattr(norm, 'weight') else norm",
    caught_by="the norm is the module that was handed in, whatever it is",
)

edit(
    "gradient_norms",
    "the caller's input asks for a gradient afterwards",
    old="x.detach().requires_grad_()",
    new="x.requires_grad_()",
    caught_by="the input may or may not ask for gradients itself, and is left as it was",
)


@mutant(
    "the input added in place to what the sublayer returned",
    caught_by="what the sublayer returned is left as it was too",
)
class Residual(nn.Module):
    def __init__(self, sublayer: nn.Module, norm: nn.Module, placement: str = "pre") -> None:
        super().__init__()
        if placement not in ("pre", "post"):
            raise ValueError(f"placement must be 'pre' or 'post', got {placement!r}")
        self.sublayer, self.norm, self.placement = sublayer, norm, placement

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        y = self.sublayer(self.norm(x) if self.placement == "pre" else x, **kwargs)
        y += x
        return y if self.placement == "pre" else self.norm(y)


@mutant(
    "gradients that parameters hold thrown away",
    caught_by="gradients that parameters hold already stay, and they go on learning",
)
def gradient_norms(stack: Iterable[nn.Module], x: Tensor) -> list[float]:
    stream, inputs = x.detach().requires_grad_(), []
    for layer in stack:
        inputs.append(stream)
        stream.retain_grad()
        stream = layer(stream)
    stream[..., 0].sum().backward()
    for layer in stack:
        layer.zero_grad()
    return [y.grad.norm().item() for y in inputs]


@mutant("layers by index", caught_by="any iterable of layers will do, gone through once")
def gradient_norms(stack: Any, x: Tensor) -> list[float]:
    stream, inputs = x.detach().requires_grad_(), []
    for i in range(len(stack)):
        inputs.append(stream)
        stream = stack[i](stream)
    return [g.norm().item() for g in torch.autograd.grad(stream[..., 0].sum(), inputs)]
