"""Right answers to the exercises of chapter 17 that differ from the reference."""

import torch
from torch import Tensor, nn

from course.grading.specimens import variant


@variant("adding up matrix by matrix")
def parameter_counts(d_model: int, d_ff: int, n_experts: int, top_k: int) -> tuple[int, int]:
    if min(d_model, d_ff, n_experts, top_k) < 1 or top_k > n_experts:
        raise ValueError(f"{d_model=}, {d_ff=}, {n_experts=}, {top_k=}: each at least 1, top_k at most n_experts")
    gate = up = down = d_model * d_ff
    total = d_model * n_experts + sum(gate + up + down for _ in range(n_experts))
    idle = n_experts - top_k
    return total, total - idle * (gate + up + down)


@variant("one formula, called twice")
def parameter_counts(d_model: int, d_ff: int, n_experts: int, top_k: int) -> tuple[int, int]:
    def weights(experts: int) -> int:
        return d_model * (3 * d_ff * experts + n_experts)

    if d_model < 1:
        raise ValueError(f"d_model is {d_model}, must be positive")
    if d_ff < 1:
        raise ValueError(f"d_ff is {d_ff}, must be positive")
    if n_experts < 1:
        raise ValueError(f"n_experts is {n_experts}, must be positive")
    if not 1 <= top_k <= n_experts:
        raise ValueError(f"top_k is {top_k}, must be between 1 and n_experts = {n_experts}")
    return weights(n_experts), weights(top_k)


@variant("nonzero, split into its columns")
def rows_of(indices: Tensor, expert: int) -> tuple[Tensor, Tensor]:
    places = (indices == expert).nonzero()  # (n, 2)
    return places[:, 0], places[:, 1]


@variant("the flat table, divided by k")
def rows_of(indices: Tensor, expert: int) -> tuple[Tensor, Tensor]:
    flat = torch.where(indices.reshape(-1) == expert)[0]
    return flat // indices.shape[1], flat % indices.shape[1]


@variant("row by row, in Python")
def rows_of(indices: Tensor, expert: int) -> tuple[Tensor, Tensor]:
    table = indices.tolist()
    found = [(m, j) for m, row in enumerate(table) for j, e in enumerate(row) if e == expert]
    rows, slots = torch.tensor([m for m, _ in found]), torch.tensor([j for _, j in found])
    return rows.long(), slots.long()


@variant("sorted by expert, cut into groups, put back at the end")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    if x.ndim != 2 or indices.ndim != 2 or weights.shape != indices.shape or len(indices) != len(x):
        raise ValueError(f"x {tuple(x.shape)}, weights {tuple(weights.shape)}, indices {tuple(indices.shape)}")
    E, (M, k) = len(experts), indices.shape
    outside = indices[(indices < 0) | (indices >= E)].tolist()
    if outside:
        raise ValueError(f"indices must be below {E} and not negative: {outside}")
    flat = indices.reshape(-1)
    order = flat.argsort(stable=True)
    groups = x[order // k].split(flat.bincount(minlength=E).tolist())
    done = [experts[e](rows) for e, rows in enumerate(groups) if len(rows)]
    if not done:
        return torch.zeros_like(x)
    sorted_rows = torch.cat(done)  # (M * k, D)
    back = sorted_rows[order.argsort()].view(M, k, -1)
    return (weights[..., None] * back).sum(1).to(x.dtype)


@variant("each row once, with the sum of its weights for the expert")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    if x.ndim != 2:
        raise ValueError(f"x has {x.ndim} dimensions, must have 2")
    if weights.shape != indices.shape or weights.shape[:1] != x.shape[:1] or weights.ndim != 2:
        raise ValueError(f"weights and indices must be (M, k): {list(weights.shape)}, {list(indices.shape)}")
    for number in set(indices.flatten().tolist()):
        if number not in range(len(experts)):
            raise ValueError(f"indices name the expert {number}; there are {len(experts)}")
    output = torch.zeros_like(x)
    for number in sorted(set(indices.flatten().tolist())):
        mine = indices == number
        rows = mine.any(dim=-1)
        share = (weights * mine)[rows].sum(dim=-1, keepdim=True)
        output[rows] += (share * experts[number](x[rows])).to(x.dtype)
    return output


@variant("a tensor of all choices' results, summed over the choices")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    if x.ndim != 2:
        raise ValueError(f"x must have two dimensions, not {x.ndim}")
    if indices.ndim != 2 or indices.shape != weights.shape or indices.size(0) != x.size(0):
        raise ValueError(f"weights {weights.shape} and indices {indices.shape} must be (M, k), M = {x.size(0)}")
    if (indices < 0).any() or (indices >= len(experts)).any():
        raise ValueError(f"indices from {indices.min().item()} to {indices.max().item()}: 0 to {len(experts) - 1}")
    results = x.new_zeros(*indices.shape, x.size(1))  # (M, k, D)
    for number, expert in enumerate(experts):
        places = rows_of(indices, number)
        if places[0].numel():
            results[places] = expert(x[places[0]])
    return torch.einsum("mk,mkd->md", weights.to(x.dtype), results)
