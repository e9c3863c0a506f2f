"""Wrong dispatch, each with the property that must catch it."""

import torch
from torch import Tensor, nn

from course.grading.specimens import edit, mutant


@mutant("every expert on every row, then masked", caught_by="each expert is given exactly the rows that chose it")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    output = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        share = (weights * (indices == number)).sum(-1, keepdim=True)  # (M, 1)
        output = output + (share * expert(x)).to(x.dtype)
    return output


@mutant("all experts stacked, the chosen gathered", caught_by="each expert is given exactly the rows that chose it")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    answers = torch.stack([expert(x) for expert in experts], dim=1)  # (M, E, D)
    chosen = answers.gather(1, indices[..., None].expand(-1, -1, x.shape[1]))
    return (weights[..., None] * chosen).sum(1).to(x.dtype)


@mutant("zeros in place of the other rows", caught_by="each expert is given exactly the rows that chose it")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    output = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        share = (weights * (indices == number)).sum(-1, keepdim=True)
        chosen = (indices == number).any(-1, keepdim=True)
        if chosen.any():
            output = output + (share * expert(x * chosen)).to(x.dtype)
    return output


@mutant("token by token", caught_by="each expert is called at most once")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    output = torch.zeros_like(x)
    for m in range(len(x)):
        for j in range(indices.shape[1]):
            expert = experts[int(indices[m, j])]
            output[m] += (weights[m, j] * expert(x[m : m + 1])[0]).to(x.dtype)
    return output


@mutant("one call for each of the k choices", caught_by="each expert is called at most once")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    output = torch.zeros_like(x)
    for j in range(indices.shape[1]):
        for number, expert in enumerate(experts):
            rows = (indices[:, j] == number).nonzero()[:, 0]
            if len(rows):
                output[rows] += (weights[rows, j, None] * expert(x[rows])).to(x.dtype)
    return output


@mutant("rows sorted by expert and never put back", caught_by="each result goes back to the row that it came from")
def dispatch(x: Tensor, weights: Tensor, indices: Tensor, experts: nn.ModuleList) -> Tensor:
    k = indices.shape[1]
    order = indices.flatten().argsort(stable=True)
    sizes = indices.flatten().bincount(minlength=len(experts)).tolist()
    parts = (x[order // k] * 1).split(sizes)
    done = torch.cat([expert(part) for expert, part in zip(experts, parts, strict=True) if len(part)])
    return (weights.flatten()[order, None] * done).unflatten(0, (-1, k)).sum(1).to(x.dtype)


edit(
    "dispatch",
    "the input handed back",
    old="return output",
    new="return x",
    caught_by="each row gets the weighted sum of what its experts return",
)
edit(
    "dispatch",
    "added to the input, as a residual",
    old="return output",
    new="return x + output",
    caught_by="each row gets the weighted sum of what its experts return",
)
edit(
    "dispatch",
    "the weights forgotten",
    old="weights[rows, slots, None] * expert(x[rows])",
    new="expert(x[rows])",
    caught_by="the weights are used as they are",
)
edit(
    "dispatch",
    "weights divided by their sum",
    old="weights[rows, slots, None] *",
    new="(weights / weights.sum(-1, keepdim=True))[rows, slots, None] *",
    caught_by="the weights are used as they are",
)
edit(
    "dispatch",
    "a softmax over the weights",
    old="weights[rows, slots, None] *",
    new="weights.softmax(-1)[rows, slots, None] *",
    caught_by="the weights are used as they are",
)
edit(
    "dispatch",
    "the weight before the expert",
    old="weights[rows, slots, None] * expert(x[rows])",
    new="expert(weights[rows, slots, None] * x[rows])",
    caught_by="the weights are used as they are",
)
edit(
    "dispatch",
    "only first choices",
    old="rows_of(indices, number)",
    new="rows_of(indices[:, :1], number)",
    caught_by="every one of the k choices counts",
)
edit(
    "dispatch",
    "overwritten, not added",
    old="output.index_add_(0, rows, blended.to(x.dtype))",
    new="output[rows] = blended.to(x.dtype)",
    caught_by="every one of the k choices counts",
)
edit(
    "dispatch",
    "the mean of the choices in place of their sum",
    old="return output",
    new="return output / indices.shape[1]",
    caught_by="every one of the k choices counts",
)
edit(
    "dispatch",
    "the first choice's weight for all",
    old="weights[rows, slots, None]",
    new="weights[rows, :1]",
    caught_by="every one of the k choices counts",
)
edit(
    "dispatch",
    "+= at an index, which writes once",
    old="output.index_add_(0, rows, blended.to(x.dtype))",
    new="output[rows] += blended.to(x.dtype)",
    caught_by="an expert chosen twice by a row counts with both weights",
)
edit(
    "dispatch",
    "added at the first rows",
    old="output.index_add_(0, rows,",
    new="output.index_add_(0, torch.arange(len(rows)) % max(len(x), 1),",
    caught_by="each result goes back to the row that it came from",
)
edit(
    "dispatch",
    "weights of the first rows",
    old="weights[rows, slots, None]",
    new="weights[torch.arange(len(rows)) % len(x), slots, None]",
    caught_by="each result goes back to the row that it came from",
)
edit(
    "dispatch",
    "added at the slot's number",
    old="output.index_add_(0, rows,",
    new="output.index_add_(0, slots % len(x),",
    caught_by="each result goes back to the row that it came from",
)
edit(
    "dispatch",
    "an expert without rows called all the same",
    old="if len(rows):",
    new="if True:",
    caught_by="an expert that nobody chose is passed over",
)
edit(
    "dispatch",
    "stopped at the first expert without rows",
    old="        if len(rows):\n",
    new="        if not len(rows):\n            break\n        if True:\n",
    caught_by="an expert that nobody chose is passed over",
)
edit(
    "dispatch",
    "the last expert left out",
    old="enumerate(experts)",
    new="enumerate(list(experts)[: max(1, len(experts) - 1)])",
    caught_by="each row gets the weighted sum of what its experts return",
)
edit(
    "dispatch",
    "a capacity, beyond which rows are dropped",
    old="  # (n,) each",
    new="\n        rows, slots = rows[:3], slots[:3]",
    caught_by="each expert is given exactly the rows that chose it",
)
edit(
    "dispatch",
    "the dtype of the weights",
    old="output = torch.zeros_like(x)",
    new="output = torch.zeros_like(x, dtype=weights.dtype)\n    x = x.clone()",
    caught_by="the result has the dtype of x, and weights may have another",
)
edit(
    "dispatch",
    "no turning to the dtype of x",
    old="blended.to(x.dtype)",
    new="blended",
    caught_by="the result has the dtype of x, and weights may have another",
)
edit(
    "dispatch",
    "written over the input",
    old="output = torch.zeros_like(x)",
    new="given, output = x.clone(), x.detach().zero_()\n    x = given",
    caught_by="tensors that are not contiguous work and stay as they are",
)
edit(
    "dispatch",
    "the weights cut off from the gradient",
    old="weights[rows, slots, None] *",
    new="weights.detach()[rows, slots, None] *",
    caught_by="gradients reach the rows, the weights and the experts",
)
edit(
    "dispatch",
    "the rows cut off from the gradient",
    old="expert(x[rows])",
    new="expert(x.detach()[rows])",
    caught_by="gradients reach the rows, the weights and the experts",
)
edit(
    "dispatch",
    "an index past the last expert dropped in silence",
    old="0 <= int(indices.min()) <= int(indices.max()) < len(experts)",
    new="0 <= int(indices.min())",
    caught_by="choices that fit no row or no expert are a ValueError",
)
edit(
    "dispatch",
    "a negative index dropped in silence",
    old="not 0 <= int(indices.min()) <= int(indices.max()) < len(experts)",
    new="int(indices.max()) >= len(experts)",
    caught_by="choices that fit no row or no expert are a ValueError",
)
edit(
    "dispatch",
    "shapes not compared",
    old="indices.ndim != 2 or weights.shape != indices.shape or len(indices) != len(x)",
    new="False",
    caught_by="choices that fit no row or no expert are a ValueError",
)
