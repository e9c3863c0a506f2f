"""Right answers to the exercises of chapter 13 that differ from the reference."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import variant

from .attention import attention

# repeat_kv


@variant("expand, then reshape")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    B, K, S, d = x.shape
    return x[:, :, None].expand(B, K, n_rep, S, d).reshape(B, K * n_rep, S, d)


@variant("by index")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    return x[:, torch.arange(x.size(1) * n_rep) // n_rep]


@variant("stacked, then flattened")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    return torch.stack([x] * n_rep, dim=2).flatten(1, 2)


# GroupedQueryAttention


@variant("queries folded into their groups, nothing repeated")
class GroupedQueryAttention(nn.Module):
    def __init__(
        self, d_model: int, n_heads: int, n_kv_heads: int, bias: bool = False, head_dim: int | None = None
    ) -> None:
        super().__init__()
        if n_heads % n_kv_heads != 0:
            raise ValueError(f"{n_heads} query heads cannot be split into {n_kv_heads} groups")
        if head_dim is None:
            head_dim, rest = divmod(d_model, n_heads)
            if rest:
                raise ValueError(f"{n_heads} heads cannot share a width of {d_model}")
        self.H, self.K, self.d = n_heads, n_kv_heads, head_dim
        self.o_proj = nn.Linear(self.H * self.d, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, self.K * self.d, bias=bias)
        self.k_proj = nn.Linear(d_model, self.K * self.d, bias=bias)
        self.q_proj = nn.Linear(d_model, self.H * self.d, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, attend: Callable[..., Any] | None = None) -> Tensor:
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.H, self.d).transpose(1, 2)
        k, v = (proj(x).view(B, T, self.K, self.d).transpose(1, 2) for proj in (self.k_proj, self.v_proj))
        if attend is not None:
            out = attend(q, k, v, mask)
        else:
            n_rep = self.H // self.K
            rows = q.reshape(B, self.K, n_rep * T, self.d)
            if mask is not None:
                mask = mask.expand(B, self.H, T, T).reshape(B, self.K, n_rep * T, T)
            out = attention(rows, k, v, mask).reshape(B, self.H, T, self.d)
        return self.o_proj(out.transpose(1, 2).reshape(B, T, self.H * self.d))


@variant("PyTorch's own operator, in groups")
class GroupedQueryAttention(nn.Module):
    def __init__(
        self, d_model: int, n_heads: int, n_kv_heads: int, bias: bool = False, head_dim: int | None = None
    ) -> None:
        super().__init__()
        if n_kv_heads > n_heads or n_heads % n_kv_heads:
            raise ValueError(f"n_heads={n_heads} is not a multiple of n_kv_heads={n_kv_heads}")
        if not head_dim and d_model % n_heads:
            raise ValueError(f"d_model={d_model} is not a multiple of n_heads={n_heads}")
        self.heads = (n_heads, n_kv_heads, n_kv_heads)
        d = head_dim or d_model // n_heads
        for name, heads in zip("qkv", self.heads, strict=True):
            self.add_module(f"{name}_proj", nn.Linear(d_model, heads * d, bias=bias))
        self.add_module("o_proj", nn.Linear(n_heads * d, d_model, bias=bias))

    def forward(self, x: Tensor, mask: Tensor | None = None, attend: Callable[..., Any] | None = None) -> Tensor:
        maps = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (m(x).unflatten(-1, (h, -1)).movedim(2, 1) for m, h in zip(maps, self.heads, strict=True))
        blend: Any = attend or (lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True))
        return self.o_proj(blend(q, k, v, mask).movedim(1, 2).flatten(2))


# pool_kv_heads


@variant("a loop over the groups")
def pool_kv_heads(weight: Tensor, n_heads: int, n_kv_heads: int) -> Tensor:
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} heads, {n_kv_heads} groups")
    if weight.size(0) % n_heads:
        raise ValueError(f"{weight.size(0)} rows for {n_heads} heads")
    heads = torch.stack(weight.chunk(n_heads))
    return torch.cat([group.mean(dim=0) for group in heads.chunk(n_kv_heads)])


@variant("einsum with a matrix of shares")
def pool_kv_heads(weight: Tensor, n_heads: int, n_kv_heads: int) -> Tensor:
    rows = weight.shape[0]
    if rows % n_heads != 0:
        raise ValueError(f"rows {rows}, n_heads {n_heads}")
    if n_kv_heads <= 0 or n_heads % n_kv_heads != 0:
        raise ValueError(f"n_heads {n_heads}, n_kv_heads {n_kv_heads}")
    size = n_heads // n_kv_heads
    shares = torch.eye(n_kv_heads).repeat_interleave(size, dim=1).to(weight) / size
    return torch.einsum("gh,hrd->grd", shares, weight.unflatten(0, (n_heads, -1))).flatten(0, 1)
