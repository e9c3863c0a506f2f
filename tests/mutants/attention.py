"""Wrong scores and causal masks, each with the property that must catch it."""

import math

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# attention_scores

edit(
    "attention_scores",
    "not divided at all",
    old="(q / math.sqrt(d)) @ k.mT",
    new="q @ k.mT",
    caught_by="the divisor is the square root of the width, at every width",
)
edit(
    "attention_scores",
    "divided by d",
    old="math.sqrt(d)",
    new="d",
    caught_by="the divisor is the square root of the width, at every width",
)
edit(
    "attention_scores",
    "divided by 8, the square root of the usual width 64",
    old="math.sqrt(d)",
    new="8.0",
    caught_by="the divisor is the square root of the width, at every width",
)
edit(
    "attention_scores",
    "divided by the square root of the number of queries",
    old="math.sqrt(d)",
    new="math.sqrt(q.shape[-2])",
    caught_by="the divisor is the square root of the width, at every width",
)
edit(
    "attention_scores",
    "divided by the square root of the number of keys",
    old="math.sqrt(d)",
    new="math.sqrt(k.shape[-2])",
    caught_by="the divisor is the square root of the width, at every width",
)
edit(
    "attention_scores",
    "multiplied by the square root of d",
    old="q / math.sqrt(d)",
    new="q * math.sqrt(d)",
    caught_by="each score is a query times a key, over the square root of d",
)
edit(
    "attention_scores",
    "square root rounded down to a whole number",
    old="math.sqrt(d)",
    new="math.isqrt(d)",
    caught_by="the divisor is the square root of the width, at every width",
)
edit(
    "attention_scores",
    "queries and keys divided, so that the product is divided twice",
    old="@ k.mT",
    new="@ (k / math.sqrt(d)).mT",
    caught_by="the divisor is the square root of the width, at every width",
)
edit(
    "attention_scores",
    "keys in the rows",
    old="(q / math.sqrt(d)) @ k.mT",
    new="(k / math.sqrt(d)) @ q.mT",
    caught_by="rows are queries and columns are keys",
)
edit(
    "attention_scores",
    "all dimensions of k turned round",
    old="k.mT",
    new="k.permute(*range(k.ndim - 1, -1, -1))",
    caught_by="any number of leading dimensions works, and they broadcast",
)
edit(
    "attention_scores",
    "k reshaped where it should be transposed",
    old="k.mT",
    new="k.reshape(*k.shape[:-2], d, k.shape[-2])",
    caught_by="each score is a query times a key, over the square root of d",
)
edit(
    "attention_scores",
    "keys flattened by view, which needs contiguous memory",
    old="k.mT",
    new="k.view(*k.shape).mT if k.is_contiguous() else k.view(-1).mT",
    caught_by="queries and keys are left as they were, whatever their memory layout",
)
edit(
    "attention_scores",
    "queries divided in place",
    old="(q / math.sqrt(d)) @ k.mT",
    new="q.div_(math.sqrt(d)) @ k.mT",
    caught_by="queries and keys are left as they were, whatever their memory layout",
)
edit(
    "attention_scores",
    "softmax applied already",
    old="(q / math.sqrt(d)) @ k.mT",
    new="softmax((q / math.sqrt(d)) @ k.mT)",
    caught_by="the scores are raw: negative, larger than one, and not normalised",
)
edit(
    "attention_scores",
    "cosine similarity: queries and keys brought to length one",
    old="(q / math.sqrt(d)) @ k.mT",
    new="(q / q.norm(dim=-1, keepdim=True)) @ (k / k.norm(dim=-1, keepdim=True)).mT",
    caught_by="the scores are raw: negative, larger than one, and not normalised",
)
edit(
    "attention_scores",
    "everything computed and returned in float32",
    old="(q / math.sqrt(d)) @ k.mT",
    new="(q.float() / math.sqrt(d)) @ k.float().mT",
    caught_by="the scores keep the dtype of the queries",
)
edit(
    "attention_scores",
    "keys cut off from the gradient",
    old="k.mT",
    new="k.detach().mT",
    caught_by="gradients reach queries and keys",
)
edit(
    "attention_scores",
    "the wider of the two cut to fit",
    old='raise ValueError(f"q and k must have the same width d: q has {d}, k has {k.shape[-1]}")',
    new="k = k[..., :d]",
    caught_by="widths that differ are a ValueError that names both",
)

# causal_mask

edit(
    "causal_mask",
    "inverted: True = hidden",
    old="return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)",
    new="return ~torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)",
    caught_by="True means may attend",
)
edit(
    "causal_mask",
    "a token may not attend to itself",
    old="S - T)",
    new="S - T - 1)",
    caught_by="a token may attend to itself",
)
edit(
    "causal_mask",
    "one token of the future may be seen",
    old="S - T)",
    new="S - T + 1)",
    caught_by="no token may attend to a later one",
)
edit(
    "causal_mask",
    "aligned to the start of the keys",
    old="diagonal=S - T",
    new="diagonal=0",
    caught_by="with more keys than queries, the mask is aligned to the end of the keys",
)
edit(
    "causal_mask",
    "shifted to the wrong side",
    old="diagonal=S - T",
    new="diagonal=T - S",
    caught_by="with more keys than queries, the mask is aligned to the end of the keys",
)
edit(
    "causal_mask",
    "S ignored",
    old="torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)",
    new="torch.ones(T, T, dtype=torch.bool, device=device).tril()",
    caught_by="with more keys than queries, the mask is aligned to the end of the keys",
)
edit(
    "causal_mask",
    "the upper triangle: only the future may be seen",
    old=".tril(",
    new=".triu(",
    caught_by="no token may attend to a later one",
)
edit(
    "causal_mask",
    "keys in the rows",
    old="torch.ones(T, S, dtype=torch.bool, device=device)",
    new="torch.ones(S, T, dtype=torch.bool, device=device)",
    caught_by="the mask is boolean, T rows by S columns",
)
edit(
    "causal_mask",
    "ones and zeros in place of True and False",
    old="torch.ones(T, S, dtype=torch.bool, device=device)",
    new="torch.ones(T, S, device=device)",
    caught_by="the mask is boolean, T rows by S columns",
)
edit(
    "causal_mask",
    "the device ignored",
    old=", device=device)",
    new=")",
    caught_by="the mask is made on the device asked for",
)
edit(
    "causal_mask",
    "shift never below zero, so that fewer keys are aligned to the start",
    old="diagonal=S - T",
    new="diagonal=max(S - T, 0)",
    caught_by="with fewer keys than queries, the first queries may attend to nothing",
)


@mutant("minus infinities to be added to the scores", caught_by="the mask is boolean, T rows by S columns")
def causal_mask(T: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    S = T if S is None else S
    return torch.full((T, S), -math.inf, device=device).triu(diagonal=S - T + 1)


@mutant(
    "only the token itself and the one before it",
    caught_by="each token may attend to itself and to everything before it",
)
def causal_mask(T: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    S = T if S is None else S
    everything = torch.ones(T, S, dtype=torch.bool, device=device)
    return everything.tril(diagonal=S - T) & everything.triu(diagonal=S - T - 1)


edit(
    "causal_mask",
    "S = 0 taken for None",
    old="S = T if S is None else S",
    new="S = S or T",
    caught_by="with fewer keys than queries, the first queries may attend to nothing",
)
