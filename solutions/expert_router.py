"""The expert router: which few experts a token visits, and how the load is kept even."""

import torch
from torch import Tensor, nn

from .feed_forward import SwiGLU
from .mixture_of_experts import dispatch
from .softmax import softmax


def route(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Choose each row's `top_k` experts, and share a weight of one among them.

    Softmax over all experts; the `top_k` largest probabilities; each divided by their sum. The choice
    and the weights are computed in float32 or better, so that rounding makes no ties. True ties may
    go either way, but no expert is chosen twice in a row.

    Args:
        logits: the router's scores, `(M, E)`: a row for each token, a column for each expert.
        top_k: how many experts a token visits, `k`, from 1 to `E`.

    Returns:
        The pair `(weights, indices)`, `(M, k)` each, the largest weight first. The weights have the
        dtype of `logits` and sum to one in each row; gradients flow through them. The indices are int64.

    Raises:
        ValueError: `top_k` is below 1 or above `E`; the message names both numbers.

    Source: "Mixtral of Experts", section 2.1 (Jiang et al., 2024).
    """
    n_experts = logits.shape[-1]
    if not 1 <= top_k <= n_experts:
        raise ValueError(f"top_k must be from 1 to the number of experts, {n_experts}: it is {top_k}")
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    chosen, indices = softmax(scores, dim=-1).topk(top_k, dim=-1)  # (M, k) each
    weights = chosen / chosen.sum(dim=-1, keepdim=True)
    return weights.to(logits.dtype), indices


def load_balancing_loss(router_probs: Tensor, indices: Tensor, n_experts: int) -> Tensor:
    """How unevenly the experts are used: 1 if all are used alike, more where favourites are.

    `E * sum_e f_e * P_e`. Here `f_e` is the share of all `M * k` choices that fell on expert `e`, and
    `P_e` the mean of its probability over the rows. `f_e` is a count, through which no gradient can
    flow; it flows through `P_e`. Computed in float32 or better.

    Args:
        router_probs: the softmax over all experts, `(M, E)`.
        indices: the chosen experts, `(M, k)`, integers from 0 to `E - 1`.
        n_experts: `E`, counting experts that nobody chose.

    Returns:
        A scalar of the dtype of `router_probs`.

    Raises:
        ValueError: `router_probs` has not `n_experts` columns, or an index is outside; the message
            names the number and what it must be.

    Source: "Switch Transformers", section 2.2 (Fedus et al., 2022), for `k = 1`.
    """
    if router_probs.shape[-1] != n_experts:
        raise ValueError(f"router_probs must have n_experts = {n_experts} columns: it has {router_probs.shape[-1]}")
    if indices.min() < 0 or indices.max() >= n_experts:
        outside = int(indices.min() if indices.min() < 0 else indices.max())
        raise ValueError(f"indices must be from 0 to n_experts - 1 = {n_experts - 1}: one is {outside}")
    probs = router_probs.to(torch.promote_types(router_probs.dtype, torch.float32))
    counts = torch.bincount(indices.flatten(), minlength=n_experts)  # (E,)
    share = counts.to(probs.dtype) / indices.numel()  # f, sums to one
    loss = n_experts * (share * probs.mean(dim=0)).sum()
    return loss.to(router_probs.dtype)


class MixtureOfExperts(nn.Module):
    """A feed-forward layer of `E` experts, of which a router picks `k` for each token.

    `router` is a linear map without bias from `D` to `E`; `experts` is an `nn.ModuleList` of `E` of your
    `SwiGLU`. The output is the sum of the chosen experts' outputs, times their weights from `route`.

    After a pass the layer keeps what `load_balancing_loss` needs:

    - `router_probs`: the softmax over all experts, `(M, E)`, with its way back to the router;
    - `indices`: the experts chosen, `(M, k)`.

    Before the first pass both are `None`. `M` is the number of tokens, all leading dimensions together.

    Args:
        d_model: width of the tokens, `D`.
        d_ff: width inside an expert, `F`.
        n_experts: number of experts, `E`.
        top_k: how many of them a token visits, `k`, from 1 to `E`.

    Raises:
        ValueError: `top_k` is below 1 or above `n_experts`; the message names both numbers.

    Source: "Mixtral of Experts", section 2.1 (Jiang et al., 2024).
    """

    def __init__(self, d_model: int, d_ff: int, n_experts: int, top_k: int) -> None:
        super().__init__()
        if not 1 <= top_k <= n_experts:
            raise ValueError(f"top_k must be from 1 to n_experts: top_k is {top_k}, n_experts is {n_experts}")
        self.top_k = top_k
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, d_ff) for _ in range(n_experts))
        self.router_probs: Tensor | None = None
        self.indices: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, `(..., D)`, to tokens, `(..., D)`. An expert that no token chose is not run."""
        rows = x.reshape(-1, x.shape[-1])  # (M, D)
        logits = self.router(rows)  # (M, E)
        self.router_probs = softmax(logits, dim=-1)
        weights, self.indices = route(logits, self.top_k)  # (M, k) each
        return dispatch(rows, weights, self.indices, self.experts).reshape(x.shape)
