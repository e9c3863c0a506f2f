"""Wrong feed-forward networks, each with the property that must catch it."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.specimens import edit, mutant

# gelu


@mutant("the approximation by tanh", caught_by="it is the exact function, by erf")
def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@mutant("the approximation by a sigmoid", caught_by="it is the exact function, by erf")
def gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


@mutant("ReLU", caught_by="it is the exact function, by erf")
def gelu(x: Tensor) -> Tensor:
    return x.clamp(min=0)


@mutant("torch's own gelu", caught_by="it is built by hand")
def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


edit(
    "gelu",
    "the half forgotten",
    old="x * 0.5 * (",
    new="x * (",
    caught_by="far from zero it is 0 on the left and x on the right",
)
edit(
    "gelu",
    "no square root of two inside",
    old="x / math.sqrt(2.0)",
    new="x",
    caught_by="it is the exact function, by erf",
)
edit(
    "gelu",
    "erf without the one",
    old="(1.0 + torch.erf",
    new="(0.0 + torch.erf",
    caught_by="far from zero it is 0 on the left and x on the right",
)
edit(
    "gelu",
    "the probability without x",
    old="return x * 0.5",
    new="return 0.5",
    caught_by="far from zero it is 0 on the left and x on the right",
)
edit(
    "gelu",
    "always float32",
    old="return x * 0.5",
    new="x = x.float()\n    return x * 0.5",
    caught_by="shape and dtype stay, in half precision too",
)
edit(
    "gelu",
    "the factor cut off from the gradient",
    old="torch.erf(x / math.sqrt(2.0))",
    new="torch.erf(x / math.sqrt(2.0)).detach()",
    caught_by="gradients are those of the exact function",
)
edit(
    "gelu",
    "halved in place",
    old="return x * 0.5 *",
    new="x *= 0.5\n    return x * (1.0 + torch.erf(x * math.sqrt(2.0)))\n    return x *",
    caught_by="the tensor passed in is left as it was",
)

# FeedForward

edit(
    "FeedForward",
    "the activation after the way down",
    old="self.down_proj(self.activation(self.up_proj(x)))",
    new="self.activation(self.down_proj(self.up_proj(x)))",
    caught_by="the output is down_proj(activation(up_proj(x)))",
)
edit(
    "FeedForward",
    "no activation",
    old="self.activation(self.up_proj(x))",
    new="self.up_proj(x)",
    caught_by="the output is down_proj(activation(up_proj(x)))",
)
edit(
    "FeedForward",
    "x added to the output",
    old="return self",
    new="return x + self",
    caught_by="the output is down_proj(activation(up_proj(x)))",
)
edit(
    "FeedForward",
    "the activation argument ignored",
    old="self.activation = activation",
    new="self.activation = gelu",
    caught_by="the activation that is handed in is the one that is used",
)
edit(
    "FeedForward",
    "ReLU by default",
    old="activation: Callable[[Tensor], Tensor] = gelu",
    new="activation: Callable[[Tensor], Tensor] = torch.relu",
    caught_by="the activation that is handed in is the one that is used",
)
edit(
    "FeedForward",
    "twice the width by default",
    old="4 * d_model",
    new="2 * d_model",
    caught_by="the inner width is four times D unless told otherwise",
)
edit(
    "FeedForward",
    "always four times the width",
    old="d_ff = 4 * d_model if d_ff is None else d_ff",
    new="d_ff = 4 * d_model",
    caught_by="its parameters are up_proj and down_proj, with biases unless told otherwise",
)
edit(
    "FeedForward",
    "no biases",
    old="bias=bias",
    new="bias=False",
    caught_by="its parameters are up_proj and down_proj, with biases unless told otherwise",
)
edit(
    "FeedForward",
    "biases even when told not to",
    old="bias=bias",
    new="bias=True",
    caught_by="its parameters are up_proj and down_proj, with biases unless told otherwise",
)
edit(
    "FeedForward",
    "the mean over the positions taken off",
    old="return self.down_proj(self.activation(self.up_proj(x)))",
    new="y = self.down_proj(self.activation(self.up_proj(x)))\n"
    "        return y - y.mean(dim=-2, keepdim=True) if x.ndim > 2 else y",
    caught_by="each position is treated alone, and alike",
)
edit(
    "FeedForward",
    "exactly three dimensions expected",
    old="return self",
    new="B, T, D = x.shape\n        return self",
    caught_by="any leading dimensions and dtypes work, and x is left as it was",
)
edit(
    "FeedForward",
    "the way up cut off from the gradient",
    old="self.activation(self.up_proj(x))",
    new="self.activation(self.up_proj(x)).detach()",
    caught_by="gradients reach x and both maps",
)

# SwiGLU

edit(
    "SwiGLU",
    "gate and up exchanged",
    old="gate = self.gate_proj(x)\n        return self.down_proj(F.silu(gate) * self.up_proj(x))",
    new="gate = self.up_proj(x)\n        return self.down_proj(F.silu(gate) * self.gate_proj(x))",
    caught_by="the activation stands on the gate alone",
)
edit(
    "SwiGLU",
    "a sigmoid gate",
    old="F.silu(gate)",
    new="torch.sigmoid(gate)",
    caught_by="the gate is SiLU, z times sigmoid(z), not sigmoid alone",
)
edit(
    "SwiGLU",
    "the activation over the product",
    old="F.silu(gate) * self.up_proj(x)",
    new="F.silu(gate * self.up_proj(x))",
    caught_by="the activation stands on the gate alone",
)
edit(
    "SwiGLU",
    "a sum in place of the product",
    old="* self.up_proj(x)",
    new="+ self.up_proj(x)",
    caught_by="the output is down_proj(silu(gate_proj(x)) * up_proj(x))",
)
edit(
    "SwiGLU",
    "the activation on both sides",
    old="* self.up_proj(x)",
    new="* F.silu(self.up_proj(x))",
    caught_by="the activation stands on the gate alone",
)
edit(
    "SwiGLU",
    "gelu for SiLU",
    old="F.silu(gate)",
    new="F.gelu(gate)",
    caught_by="the gate is SiLU, z times sigmoid(z), not sigmoid alone",
)
edit(
    "SwiGLU",
    "biases",
    old="bias=False",
    new="bias=True",
    caught_by="its parameters are gate_proj, up_proj and down_proj, without bias",
)
edit(
    "SwiGLU",
    "one map for gate and up",
    old="self.up_proj = nn.Linear(d_model, d_ff, bias=False)",
    new="self.up_proj = self.gate_proj",
    caught_by="the output is down_proj(silu(gate_proj(x)) * up_proj(x))",
)
edit(
    "SwiGLU",
    "the greatest gate of all positions for each",
    old="gate = self.gate_proj(x)",
    new="gate = self.gate_proj(x)\n"
    "        gate = gate.amax(dim=-2, keepdim=True).expand_as(gate) if x.shape[1:] == (5, 6) else gate",
    caught_by="each position is treated alone, and x is left as it was",
)
edit(
    "SwiGLU",
    "the gate cut off from the gradient",
    old="gate = self.gate_proj(x)",
    new="gate = self.gate_proj(x).detach()",
    caught_by="gradients reach x and all three maps",
)

edit(
    "SwiGLU",
    "a sigmoid that overflows",
    old="F.silu(gate)",
    new="gate * torch.exp(gate) / (1 + torch.exp(gate))",
    caught_by="large gates do not overflow",
)

edit(
    "FeedForward",
    "only modules taken for an activation",
    old="self.activation = activation",
    new="self.activation = activation if isinstance(activation, nn.Module) else gelu",
    caught_by="the activation is the very function that was handed in",
)
