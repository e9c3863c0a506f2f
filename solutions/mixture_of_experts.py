"""Mixture of experts: many feed-forward networks, of which each token visits a few."""

import torch
from torch import Tensor, nn


def parameter_counts(d_model: int, d_ff: int, n_experts: int, top_k: int) -> tuple[int, int]:
    """Count the weights of one layer of experts: those that it has, and those that a token meets.

    Each expert is a SwiGLU, three matrices of `D * F` numbers without biases. A router of `D * E`
    numbers, one row an expert, chooses; every token meets all of it.

    Args:
        d_model: width of the tokens, `D`.
        d_ff: width inside an expert, `F`.
        n_experts: experts, `E`.
        top_k: experts that a token visits, `k`.

    Returns:
        The pair `(total, active)`: all weights of the layer, and those that work for one token.

    Raises:
        ValueError: an argument is below 1, or `top_k` is above `n_experts`; the message names the
            arguments and their values.

    Source: "Mixtral of Experts", section 2.1 (Jiang et al., 2024).
    """
    for name, value in {"d_model": d_model, "d_ff": d_ff, "n_experts": n_experts, "top_k": top_k}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1: it is {value}")
    if top_k > n_experts:
        raise ValueError(f"top_k must be at most n_experts: top_k is {top_k}, n_experts is {n_experts}")
    expert, router = 3 * d_model * d_ff, d_model * n_experts
    return n_experts * expert + router, top_k * expert + router


def rows_of(indices: Tensor, expert: int) -> tuple[Tensor, Tensor]:
    """Find the rows that chose an expert, and by which of their `k` choices.

    Args:
        indices: int64, `(M, k)`: the experts that each row chose.
        expert: the expert asked about, counted from 0.

    Returns:
        The pair `(rows, slots)`, int64, `(n,)` each, for the `n` entries of `indices` that equal
        `expert`: `indices[rows[i], slots[i]] == expert`. Rows rise; a row that chose the expert
        twice stands there twice. Both are empty if nobody chose it.
    """
    rows, slots = torch.where(indices == expert)
    return rows, slots


def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    """Send each row to the experts that it chose, and blend what they return by its weights.

    Row `m` of the result is the sum over `j` of `weights[m, j] * experts[indices[m, j]](x[m])`. Each
    expert is called at most once, with the rows that chose it and no others; an expert that no row
    chose is not called. The weights are used as they are: they need not sum to one. Where a row
    chose an expert twice, both weights count.

    Args:
        x: tokens, `(M, D)`.
        weights: how much each choice counts, `(M, k)`; may have another floating dtype than `x`.
        indices: int64, `(M, k)`: the experts that each row chose, `0 ... E - 1`.
        experts: `E` modules (a list of functions will do), each from `(n, D)` to `(n, D)`.

    Returns:
        One vector a row, `(M, D)`, in the order and the dtype of `x`.

    Raises:
        ValueError: `x` has not two dimensions, `weights` and `indices` are not both `(M, k)`, or an
            index is not that of an expert; the message names the argument and what it was.

    Source: "Outrageously Large Neural Networks", section 2 (Shazeer et al., 2017).
    """
    if x.ndim != 2:
        raise ValueError(f"x must have the shape (M, D): it is {tuple(x.shape)}")
    if indices.ndim != 2 or weights.shape != indices.shape or len(indices) != len(x):
        raise ValueError(
            f"weights and indices must both have the shape (M, k), with M = {len(x)} rows as x has: "
            f"they are {tuple(weights.shape)} and {tuple(indices.shape)}"
        )
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < len(experts):
        raise ValueError(
            f"indices must lie between 0 and {len(experts) - 1}, for {len(experts)} experts: "
            f"they reach from {int(indices.min())} to {int(indices.max())}"
        )
    output = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows, slots = rows_of(indices, number)  # (n,) each
        if len(rows):
            blended = weights[rows, slots, None] * expert(x[rows])  # (n, D)
            output.index_add_(0, rows, blended.to(x.dtype))
    return output
