"""Right answers to the exercises of chapter 03 that differ from the reference."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import variant

from .attention import attention

# split_heads


@variant("view and permute, after contiguous")
def split_heads(x: Tensor, n_heads: int) -> Tensor:
    batch, tokens, width = x.size()
    if width % n_heads != 0:
        raise ValueError(f"{n_heads} heads cannot share a width of {width}")
    return x.contiguous().view(batch, tokens, n_heads, width // n_heads).permute(0, 2, 1, 3).contiguous()


@variant("chunks of columns, stacked")
def split_heads(x: Tensor, n_heads: int) -> Tensor:
    if x.shape[-1] % n_heads:
        raise ValueError(f"width {x.shape[-1]} with {n_heads} heads")
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


@variant("unflatten")
def split_heads(x: Tensor, n_heads: int) -> Tensor:
    if x.shape[2] % n_heads:
        raise ValueError(f"D = {x.shape[2]} is not a multiple of H = {n_heads}")
    return x.unflatten(-1, (n_heads, -1)).movedim(2, 1)


# merge_heads


@variant("heads concatenated one by one")
def merge_heads(x: Tensor) -> Tensor:
    return torch.cat(x.unbind(dim=1), dim=-1)


@variant("permute, contiguous, view")
def merge_heads(x: Tensor) -> Tensor:
    B, _, T, _ = x.shape
    return x.permute(0, 2, 1, 3).contiguous().view(B, T, -1)


@variant("flatten after movedim")
def merge_heads(x: Tensor) -> Tensor:
    return x.movedim(1, 2).flatten(2)


# MultiHeadAttention


@variant("queries, keys and values from one product, PyTorch's operator")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"{d_model} is not a multiple of {n_heads}")
        self.heads = n_heads
        self.o_proj, self.v_proj, self.k_proj, self.q_proj = (nn.Linear(d_model, d_model, bias) for _ in range(4))

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        attend: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        source = x if context is None else context
        q = self.q_proj(x)
        stacked = torch.cat([self.k_proj.weight, self.v_proj.weight])
        bias = None if self.k_proj.bias is None else torch.cat([self.k_proj.bias, self.v_proj.bias])
        k, v = F.linear(source, stacked, bias).chunk(2, dim=-1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        attend = attend or F.scaled_dot_product_attention
        out = attend(q, k, v, mask)
        return self.o_proj(out.transpose(1, 2).flatten(2))


@variant("einsum for the projections, one head at a time")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        if n_heads <= 0 or d_model % n_heads > 0:
            raise ValueError(f"d_model={d_model} and n_heads={n_heads} do not fit")
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        for name in ("q", "k", "v", "o"):
            self.add_module(f"{name}_proj", nn.Linear(d_model, d_model, bias=bias))

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        attend: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        source = context if context is not None else x
        q, k, v = (
            split_heads(layer(y), self.n_heads)
            for layer, y in ((self.q_proj, x), (self.k_proj, source), (self.v_proj, source))
        )
        if attend is not None:
            return self.o_proj(merge_heads(attend(q, k, v, mask)))
        heads = []
        for h in range(self.n_heads):
            own = mask
            if mask is not None and mask.ndim == 4:
                own = mask[:, h if mask.shape[1] > 1 else 0]
            heads.append(attention(q[:, h], k[:, h], v[:, h], own))
        return self.o_proj(torch.cat(heads, dim=-1))
