"""Right answers to the exercises of chapter 12 that differ from the reference."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import variant

from .attention import attention
from .softmax import softmax


@variant("einsum over the one head")
def attend_shared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.einsum("bhtd,bsd->bhts", q / math.sqrt(q.shape[-1]), k[:, 0])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.einsum("bhts,bsd->bhtd", softmax(scores, dim=-1), v[:, 0])


@variant("queries outside, heads inside")
def attend_shared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    B, H, T, d = q.shape
    S = k.size(2)
    rows = q.permute(0, 2, 1, 3).reshape(B, T * H, d)
    if mask is not None:
        mask = torch.broadcast_to(mask, (B, H, T, S)).permute(0, 2, 1, 3).reshape(B, T * H, S)
    found = attention(rows, k.squeeze(1), v.squeeze(1), mask)
    return found.reshape(B, T, H, d).permute(0, 2, 1, 3)


@variant("head by head")
def attend_shared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    B, H, T, _ = q.shape
    outputs = []
    for h in range(H):
        own = None if mask is None else mask.expand(B, H, T, k.shape[2])[:, h : h + 1]
        outputs.append(attention(q[:, h : h + 1], k, v, own))
    return torch.cat(outputs, dim=1)


@variant("one product for queries, keys and values")
class MultiQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        d, rest = divmod(d_model, max(n_heads, 1))
        if rest or not d:
            raise ValueError(f"{n_heads} heads cannot share a width of {d_model}")
        self.widths = [d_model, d, d]
        for name, width in zip(("q_proj", "k_proj", "v_proj"), self.widths, strict=True):
            setattr(self, name, nn.Linear(d_model, width, bias=bias))
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, attend: Callable[..., Any] | None = None) -> Tensor:
        maps: list[Any] = [self.q_proj, self.k_proj, self.v_proj]
        bias = None if maps[0].bias is None else torch.cat([m.bias for m in maps])
        q, k, v = F.linear(x, torch.cat([m.weight for m in maps]), bias).split(self.widths, dim=-1)
        B, T, d = k.shape
        heads = q.view(B, T, -1, d).transpose(1, 2)
        out = (attend or attend_shared)(heads, k[:, None], v[:, None], mask)
        return self.o_proj(out.transpose(1, 2).flatten(2))


@variant("PyTorch's own operator on copies in the layer")
class MultiQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"d_model = {d_model} is no multiple of n_heads = {n_heads}")
        self.H, self.d = n_heads, d_model // n_heads
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, self.d, bias=bias)
        self.k_proj = nn.Linear(d_model, self.d, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, attend: Callable[..., Any] | None = None) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (self.H, self.d)).movedim(2, 1)
        k, v = (proj(x).unsqueeze(1) for proj in (self.k_proj, self.v_proj))
        if attend is None:
            k, v = (y.expand(-1, self.H, -1, -1) for y in (k, v))
            return self.o_proj(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).movedim(1, 2).flatten(2))
        return self.o_proj(attend(q, k, v, mask).movedim(1, 2).flatten(2))
