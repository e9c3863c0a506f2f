"""Right scores, masks, attentions and layers that differ from the reference: each must get full marks."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import variant

from .softmax import softmax

# attention_scores


@variant("einsum, divided afterwards")
def attention_scores(q: Tensor, k: Tensor) -> Tensor:
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q is {q.shape[-1]} wide and k is {k.shape[-1]} wide")
    return torch.einsum("...td,...sd->...ts", q, k) / q.shape[-1] ** 0.5


@variant("both divided by the fourth root of d")
def attention_scores(q: Tensor, k: Tensor) -> Tensor:
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q is {q.shape[-1]} wide and k is {k.shape[-1]} wide")
    root = q.shape[-1] ** 0.25
    return torch.matmul(q / root, (k / root).transpose(-2, -1))


@variant("an elementwise product, summed")
def attention_scores(q: Tensor, k: Tensor) -> Tensor:
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q is {q.shape[-1]} wide and k is {k.shape[-1]} wide")
    return (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(dim=-1) * q.shape[-1] ** -0.5


# causal_mask


@variant("positions compared")
def causal_mask(T: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    S = T if S is None else S
    queries = torch.arange(S - T, S, device=device)
    keys = torch.arange(S, device=device)
    return keys[None, :] <= queries[:, None]


@variant("the upper triangle, turned round")
def causal_mask(T: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    if S is None:
        S = T
    return torch.triu(torch.ones((T, S), device=device), diagonal=S - T + 1) == 0


@variant("cell by cell, from a list")
def causal_mask(T: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    S = T if S is None else S
    rows = [[s - (S - T) <= t for s in range(S)] for t in range(T)]
    return torch.tensor(rows, dtype=torch.bool, device=device)


# attention


@variant("the mask added as 0 and minus infinity")
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, return_weights: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError(f"mask must be torch.bool, not {mask.dtype}")
    if k.size(-2) != v.size(-2):
        raise ValueError(f"{k.size(-2)} keys but {v.size(-2)} values")
    scores = attention_scores(q, k)
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(mask.logical_not(), float("-inf"))
        scores = scores + bias
    weights = softmax(scores)
    out = torch.einsum("...ts,...sd->...td", weights, v)
    if return_weights:
        return out, weights
    return out


@variant("masked after the softmax, then shared out again")
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, return_weights: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be torch.bool, not {mask.dtype}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"{k.shape[-2]} keys but {v.shape[-2]} values")
    weights = softmax(attention_scores(q, k))
    if mask is not None:
        weights = weights * mask
        total = weights.sum(dim=-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1.0, total).to(weights.dtype)
    output = weights @ v
    return (output, weights) if return_weights else output


@variant("torch's softmax, the weights of empty rows replaced")
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, return_weights: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be torch.bool, not {mask.dtype}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"{k.shape[-2]} keys but {v.shape[-2]} values")
    scores = attention_scores(q, k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -math.inf)
    weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
    return (weights @ v, weights) if return_weights else weights @ v


@variant("torch.where, the sum over keys written out")
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, return_weights: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be torch.bool, not {mask.dtype}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"{k.shape[-2]} keys but {v.shape[-2]} values")
    scores = attention_scores(q, k)
    if mask is not None:
        scores = torch.where(mask, scores, torch.full_like(scores, -math.inf))
    weights = softmax(scores, dim=scores.ndim - 1)
    output = (weights.unsqueeze(-1) * v.unsqueeze(-3)).sum(dim=-2)
    return (output, weights) if return_weights else output


# SelfAttention


@variant("projections made in another order, attention called by keyword")
class SelfAttention(nn.Module):
    def __init__(self, d_model: int, d_head: int) -> None:
        super().__init__()
        self.v_proj = nn.Linear(d_model, d_head, bias=False)
        self.k_proj = nn.Linear(in_features=d_model, out_features=d_head, bias=False)
        self.q_proj = nn.Linear(d_model, d_head, False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        output, _ = attention(q=q, k=k, v=v, mask=mask, return_weights=True)
        return output


@variant("weights applied by matrix products")
class SelfAttention(nn.Module):
    def __init__(self, d_model: int, d_head: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, d_head, bias=False) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return attention(x @ self.q_proj.weight.T, x @ self.k_proj.weight.T, x @ self.v_proj.weight.T, mask)


@variant("PyTorch's operator, queries, keys and values from one product")
class SelfAttention(nn.Module):
    def __init__(self, d_model: int, d_head: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_head, bias=False)
        self.k_proj = nn.Linear(d_model, d_head, bias=False)
        self.v_proj = nn.Linear(d_model, d_head, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        stacked = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        q, k, v = F.linear(x, stacked).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
