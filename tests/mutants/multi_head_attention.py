"""Wrong answers to the first two exercises of chapter 03, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# split_heads


@mutant("a view straight to (B, H, T, d)", caught_by="no head mixes the numbers of different tokens")
def split_heads(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    if D % n_heads:
        raise ValueError(f"{D} {n_heads}")
    return x.reshape(B, n_heads, T, D // n_heads)


edit(
    "split_heads",
    "heads and positions not exchanged",
    old=".transpose(1, 2)",
    new="",
    caught_by="the result is (B, H, T, d): heads before positions",
)
edit(
    "split_heads",
    "every H-th column to a head",
    old="x.reshape(B, T, n_heads, D // n_heads).transpose(1, 2)",
    new="x.reshape(B, T, D // n_heads, n_heads).permute(0, 3, 1, 2)",
    caught_by="head h holds columns h*d to (h+1)*d - 1 of every token",
)
edit(
    "split_heads",
    "a remainder of columns dropped in silence",
    old="B, T, D = x.shape",
    new="x = x[..., : x.shape[-1] // n_heads * n_heads]\n    B, T, D = x.shape",
    caught_by="a width that the heads cannot share is a ValueError that names both numbers",
)
edit(
    "split_heads",
    "an assert in place of the ValueError",
    old="if n_heads < 1 or D % n_heads:",
    new="assert D % n_heads == 0, (D, n_heads)\n    if n_heads < 1:",
    caught_by="a width that the heads cannot share is a ValueError that names both numbers",
)
edit(
    "split_heads",
    "the batch folded into the heads",
    old="x.reshape(B, T, n_heads, D // n_heads).transpose(1, 2)",
    new="x.reshape(T, B, n_heads, D // n_heads).permute(1, 2, 0, 3)",
    caught_by="sequences of a batch stay apart",
)
edit(
    "split_heads",
    "the dimension of a single head squeezed away",
    old=".transpose(1, 2)",
    new=".transpose(1, 2).squeeze(1)",
    caught_by="one head, and heads of width one, work",
)
edit(
    "split_heads",
    "always float32",
    old="return x.reshape(",
    new="return x.float().reshape(",
    caught_by="vectors that are not contiguous work, and keep their dtype",
)

# merge_heads

edit(
    "merge_heads",
    "reshaped without exchanging heads and positions",
    old=".transpose(1, 2)",
    new="",
    caught_by="no vector mixes the numbers of different tokens",
)
edit(
    "merge_heads",
    "columns of the heads alternate",
    old="x.transpose(1, 2).reshape(B, T, H * d)",
    new="x.permute(0, 2, 3, 1).reshape(B, T, H * d)",
    caught_by="the heads' columns stand side by side, head 0 first",
)
edit(
    "merge_heads",
    "heads in reverse order",
    old="x.transpose(1, 2)",
    new="x.flip(1).transpose(1, 2)",
    caught_by="it undoes split_heads",
)
edit(
    "merge_heads",
    "heads summed, not joined",
    old="x.transpose(1, 2).reshape(B, T, H * d)",
    new="x.sum(dim=1).repeat(1, 1, H)",
    caught_by="the heads' columns stand side by side, head 0 first",
)
edit(
    "merge_heads",
    "view, which needs numbers in reading order",
    old=".reshape(",
    new=".view(",
    caught_by="heads that are not contiguous work, and keep their dtype",
)
edit(
    "merge_heads",
    "dimensions of size one squeezed away",
    old=".reshape(B, T, H * d)",
    new=".reshape(B, T, H * d).squeeze(1)",
    caught_by="the result is (B, T, D), one token and one head included",
)
edit(
    "merge_heads",
    "the batch and the heads exchanged",
    old="x.transpose(1, 2).reshape(B, T, H * d)",
    new="x.reshape(H, B, T, d).permute(1, 2, 0, 3).reshape(B, T, H * d)",
    caught_by="sequences of a batch stay apart while merging",
)
edit(
    "merge_heads",
    "cut off from the gradient",
    old="return x.",
    new="return x.detach().",
    caught_by="gradients flow back to every head",
)


@mutant("every position gets the first position's heads", caught_by="no vector mixes the numbers of different tokens")
def merge_heads(x: Tensor) -> Tensor:
    B, H, T, d = x.shape
    return torch.cat([x[:, h, :1] for h in range(H)], dim=-1).expand(B, T, H * d)


edit(
    "split_heads",
    "cut off from the gradient",
    old="return x.",
    new="return x.detach().",
    caught_by="gradients flow back to every column",
)
