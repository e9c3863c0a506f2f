"""Right answers to the exercises of chapter 18 that differ from the reference."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import variant

from .feed_forward import SwiGLU


@variant("the choice first, on the scores; then a softmax of the chosen ones alone")
def route(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    E = logits.size(-1)
    if top_k < 1 or top_k > E:
        raise ValueError(f"cannot choose {top_k} of {E} experts")
    chosen, indices = torch.topk(logits, top_k, dim=-1)
    return F.softmax(chosen.float() if chosen.dtype.itemsize < 4 else chosen, dim=-1).to(logits.dtype), indices


@variant("a stable sort, so that ties go to the first")
def route(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    if not 0 < top_k <= logits.shape[1]:
        raise ValueError(f"top_k = {top_k} must be between 1 and E = {logits.shape[1]}")
    ordered, order = logits.double().sort(dim=1, descending=True, stable=True)
    logs = ordered - torch.logsumexp(ordered[:, :top_k], dim=1, keepdim=True)
    return logs[:, :top_k].exp().to(logits.dtype), order[:, :top_k]


@variant("the best one taken out, k times")
def route(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    if top_k not in range(1, logits.shape[-1] + 1):
        raise ValueError(f"top_k {top_k}, experts {logits.shape[-1]}")
    left, found = logits.detach().clone(), []
    for _ in range(top_k):
        best = left.argmax(dim=-1, keepdim=True)
        left = left.scatter(-1, best, float("-inf"))
        found.append(best)
    indices = torch.cat(found, dim=-1)
    wide = logits.double().softmax(dim=-1).gather(-1, indices)
    wide = wide.clamp(min=1e-300)
    return (wide / wide.sum(-1, keepdim=True)).to(logits.dtype), indices


@variant("one-hot vectors and their mean")
def load_balancing_loss(router_probs: Tensor, indices: Tensor, n_experts: int) -> Tensor:
    if router_probs.shape[1] != n_experts or indices.min() < 0 or indices.max() >= n_experts:
        raise ValueError(f"{n_experts} experts, {router_probs.shape[1]} columns, {indices.unique().tolist()} chosen")
    share = F.one_hot(indices, n_experts).double().mean(dim=(0, 1))
    return n_experts * torch.dot(share, router_probs.double().mean(dim=0)).to(router_probs.dtype)


@variant("row by row: the share of the expert that a row's probability falls on")
def load_balancing_loss(router_probs: Tensor, indices: Tensor, n_experts: int) -> Tensor:
    if router_probs.shape[1] != n_experts:
        raise ValueError(f"{router_probs.shape[1]} columns for {n_experts} experts")
    low, high = indices.aminmax()
    if low < 0 or high > n_experts - 1:
        raise ValueError(f"experts from {low} to {high}, of {n_experts}")
    share = torch.stack([(indices == e).double().mean() for e in range(n_experts)])
    return ((router_probs.double() @ share).mean() * n_experts).to(router_probs.dtype)


@variant("the route found in the layer, the experts in order of their tokens")
class MixtureOfExperts(nn.Module):
    def __init__(self, d_model: int, d_ff: int, n_experts: int, top_k: int) -> None:
        super().__init__()
        if top_k < 1 or n_experts < top_k:
            raise ValueError(f"{top_k} of {n_experts} experts")
        self.k = top_k
        self.experts = nn.ModuleList([SwiGLU(d_model, d_ff) for _ in range(n_experts)])
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.router_probs = self.indices = None

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        probs = self.router(flat).softmax(dim=-1)
        chosen, indices = probs.topk(self.k)
        self.router_probs, self.indices = probs, indices
        weights = (chosen / chosen.sum(-1, keepdim=True)).flatten()
        order = indices.flatten().argsort(stable=True)
        tokens = order // self.k
        parts = flat[tokens].split(torch.bincount(indices.flatten(), minlength=len(self.experts)).tolist())
        outputs = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True) if len(part)])
        return torch.zeros_like(flat).index_add(0, tokens, weights[order, None] * outputs).view_as(x)


@variant("a loop over the experts that were chosen")
class MixtureOfExperts(nn.Module):
    def __init__(self, d_model: int, d_ff: int, n_experts: int, top_k: int) -> None:
        super().__init__()
        if not 1 <= top_k <= n_experts:
            raise ValueError(f"top_k {top_k} must be between 1 and {n_experts}")
        self.top_k, self.n_experts = top_k, n_experts
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList()
        for _ in range(n_experts):
            self.experts.append(SwiGLU(d_model, d_ff))
        self.router_probs: Tensor | None = None
        self.indices: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        *leading, D = x.shape
        x = x.reshape(-1, D)
        logits = self.router(x)
        self.router_probs = torch.softmax(logits, dim=-1)
        weights, self.indices = route(logits, self.top_k)
        share = torch.zeros_like(logits).scatter(1, self.indices, weights)  # (M, E)
        chosen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, self.indices, True)
        output = torch.zeros_like(x)
        for e in self.indices.unique().tolist():
            rows = chosen[:, e]
            output[rows] = output[rows] + share[rows, e, None] * self.experts[e](x[rows])
        return output.reshape(*leading, D)
