"""Right positional encodings that differ from the reference: each must get full marks."""

import math

import torch
from torch import Tensor, nn

from course.grading.specimens import variant

# sinusoidal_encoding


@variant("columns filled by slices, the frequency by exp and log")
def sinusoidal_encoding(n_positions: int, d_model: int, base: float = 10000.0) -> Tensor:
    if d_model % 2 != 0:
        raise ValueError(f"an odd width: {d_model}")
    position = torch.arange(n_positions).double().unsqueeze(1)
    factor = torch.exp(torch.arange(0, d_model, 2).double() * (-math.log(base) / d_model))
    table = torch.zeros(n_positions, d_model)
    table[:, 0::2] = torch.sin(position * factor).float()
    table[:, 1::2] = torch.cos(position * factor).float()
    return table


@variant("a cosine as a sine a quarter turn later")
def sinusoidal_encoding(n_positions: int, d_model: int, base: float = 10000.0) -> Tensor:
    if d_model & 1:
        raise ValueError(f"d_model = {d_model} is odd")
    column = torch.arange(d_model)
    divisor = torch.pow(torch.tensor(base, dtype=torch.float64), (column - column % 2).double() / d_model)
    angle = torch.outer(torch.arange(n_positions).double(), 1 / divisor) + (column % 2) * math.pi / 2
    return torch.sin(angle).to(torch.float32)


@variant("real and imaginary parts of turning numbers")
def sinusoidal_encoding(n_positions: int, d_model: int, base: float = 10000.0) -> Tensor:
    if d_model % 2:
        raise ValueError(f"d_model must be even, not {d_model}")
    i = torch.arange(d_model // 2, dtype=torch.float64)
    angle = torch.arange(n_positions, dtype=torch.float64)[:, None] / base ** (2 * i / d_model)
    turning = torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turning).flip(-1).reshape(n_positions, d_model).float()


# LearnedPositionalEncoding


@variant("rows by index")
class LearnedPositionalEncoding(nn.Module):
    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.weight = nn.Parameter(0.02 * torch.randn(max_len, d_model))

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        T = x.shape[-2]
        if not 0 <= offset <= self.max_len - T:
            raise ValueError(f"max_len is {self.max_len}: no place for {T} tokens from {offset}")
        return x + self.weight[torch.arange(offset, offset + T, device=x.device)]


@variant("an nn.Embedding by inheritance")
class LearnedPositionalEncoding(nn.Embedding):
    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__(max_len, d_model)
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        last = offset + x.shape[-2] - 1
        if offset < 0 or last >= self.num_embeddings:
            raise ValueError(f"offset {offset} and {x.shape[-2]} tokens: only {self.num_embeddings} rows")
        return x.add(super().forward(torch.arange(offset, last + 1)))
