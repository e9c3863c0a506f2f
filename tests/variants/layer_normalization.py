"""Right norms that differ from the reference: each must get full marks."""

import torch
from torch import Tensor, nn

from course.grading.specimens import variant

# LayerNorm


@variant("torch.var_mean, divided by a root")
class LayerNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.d, self.eps = d, eps
        self.bias = nn.Parameter(torch.zeros(d))
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        if x.size(-1) != self.d:
            raise ValueError(f"x: expected a width of {self.d}, got {x.size(-1)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        variance, mean = torch.var_mean(y, dim=-1, keepdim=True, correction=0)
        y = (y - mean) / torch.sqrt(variance + self.eps)
        return torch.addcmul(self.bias, y, self.weight).to(dtype=x.dtype)


@variant("sums divided by d, rows flattened and unflattened")
class LayerNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.full((d,), 1.0))
        self.bias = nn.Parameter(torch.full((d,), 0.0))

    def forward(self, x: Tensor) -> Tensor:
        d = self.weight.numel()
        if x.shape[-1] != d:
            raise ValueError(f"width {x.shape[-1]} where {d} was expected")
        rows = x.reshape(-1, d)
        rows = rows.double() if x.dtype == torch.float64 else rows.to(torch.float32)
        rows = rows - rows.sum(dim=1, keepdim=True) / d
        variance = torch.einsum("md,md->m", rows, rows) / d
        rows = rows * (variance + self.eps).pow(-0.5).unsqueeze(1)
        return (self.weight * rows + self.bias).to(x.dtype).reshape(x.shape)


@variant("scale and shift in the input's dtype")
class LayerNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.register_parameter("weight", nn.Parameter(torch.ones(d)))
        self.register_parameter("bias", nn.Parameter(torch.zeros(d)))
        self.epsilon = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.weight.numel():
            raise ValueError(f"x has shape {tuple(x.shape)}, the norm has width {self.weight.numel()}")
        y = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        mean = y.mean(-1).unsqueeze(-1)
        deviation = (y.var(-1, unbiased=False) + self.epsilon).sqrt().unsqueeze(-1)
        return ((y - mean) / deviation).to(x.dtype) * self.weight.to(x.dtype) + self.bias.to(x.dtype)


# RMSNorm


@variant("the norm of the vector, divided by the root of d")
class RMSNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.d, self.eps = d, eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        if x.size(-1) != self.d:
            raise ValueError(f"x: expected a width of {self.d}, got {x.size(-1)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        mean_square = torch.linalg.vector_norm(y, dim=-1, keepdim=True).square() / self.d
        return (self.weight * (y / torch.sqrt(mean_square + self.eps))).to(x.dtype)


@variant("cast back before the scale, as Llama's code does")
class RMSNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.variance_epsilon = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.weight.numel():
            raise ValueError(f"width {x.shape[-1]} where {self.weight.numel()} was expected")
        y = x.float() if x.dtype != torch.float64 else x
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return y.to(x.dtype) * self.weight.to(x.dtype)


@variant("a product of each token with itself, by einsum")
class RMSNorm(nn.Module):
    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        d = len(self.weight)
        if x.shape[-1] != d:
            raise ValueError(f"x is {x.shape[-1]} wide, the norm {d}")
        y = x if x.dtype == torch.float64 else x.to(torch.float32)
        squares = torch.einsum("...d,...d->...", y, y).div(d).add(self.eps)
        return (y * self.weight / squares.sqrt().unsqueeze(-1)).to(x.dtype)
