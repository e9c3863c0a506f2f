"""Wrong scores, masks, attentions and layers, each with the property that must catch it."""

import math

import torch
from torch import Tensor, nn

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


@mutant("only the token itself and the one before it", caught_by="each token may attend to itself and to everything before it")
def causal_mask(T: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    S = T if S is None else S
    everything = torch.ones(T, S, dtype=torch.bool, device=device)
    return everything.tril(diagonal=S - T) & everything.triu(diagonal=S - T - 1)


# attention

edit(
    "attention",
    "softmax over the queries",
    old="softmax(scores, dim=-1)",
    new="softmax(scores, dim=-2)",
    caught_by="each query's weights sum to one over its keys",
)
edit(
    "attention",
    "softmax over dimension 1, counted from the front",
    old="softmax(scores, dim=-1)",
    new="softmax(scores, dim=1)",
    caught_by="any number of leading dimensions works",
)
edit(
    "attention",
    "mask inverted",
    old="~mask, -math.inf",
    new="mask, -math.inf",
    caught_by="True in the mask means may attend",
)
edit(
    "attention",
    "mask ignored",
    old="if mask is not None:\n        scores = scores.masked_fill(~mask, -math.inf)",
    new="",
    caught_by="hidden keys have no part in the weights",
)
edit(
    "attention",
    "scores multiplied by the mask",
    old="scores.masked_fill(~mask, -math.inf)",
    new="scores * mask",
    caught_by="hidden keys have no part in the weights",
)
edit(
    "attention",
    "hidden scores set to zero",
    old="scores.masked_fill(~mask, -math.inf)",
    new="scores.masked_fill(~mask, 0.0)",
    caught_by="hidden keys have no part in the weights",
)
edit(
    "attention",
    "mask after the softmax, without sharing out again",
    old="scores = scores.masked_fill(~mask, -math.inf)\n    weights = softmax(scores, dim=-1)",
    new="weights = softmax(scores, dim=-1) * mask\n    else:\n        weights = softmax(scores, dim=-1)",
    caught_by="each query's weights sum to one over its keys",
)
edit(
    "attention",
    "mask after the softmax: the future counts in the sum",
    old="scores = scores.masked_fill(~mask, -math.inf)\n    weights = softmax(scores, dim=-1)",
    new="weights = softmax(scores, dim=-1).masked_fill(~mask, 0.0)\n    else:\n        weights = softmax(scores, dim=-1)",
    caught_by="no output depends on a later token",
)
edit(
    "attention",
    "-1e9 written into the scores",
    old="-math.inf)",
    new="-1e9)",
    caught_by="float16 and bfloat16 work, with a mask too",
)
edit(
    "attention",
    "-1e9 added to the scores",
    old="scores.masked_fill(~mask, -math.inf)",
    new="scores + (~mask).to(scores.dtype) * -1e9",
    caught_by="a query that may attend to nothing gets zeros",
)
edit(
    "attention",
    "the dtype's lowest number in place of minus infinity",
    old="-math.inf)",
    new="torch.finfo(scores.dtype).min)",
    caught_by="a query that may attend to nothing gets zeros",
)
edit(
    "attention",
    "torch's softmax, which gives NaN to a row of minus infinities",
    old="softmax(scores, dim=-1)",
    new="torch.softmax(scores, dim=-1)",
    caught_by="a query that may attend to nothing gets zeros",
)
edit(
    "attention",
    "NaN replaced in the output, not in the weights",
    old="softmax(scores, dim=-1)  # over the keys\n    output = weights @ v",
    new="torch.softmax(scores, dim=-1)\n    output = (weights @ v).nan_to_num(0.0)",
    caught_by="a query that may attend to nothing sends back finite gradients",
)
edit(
    "attention",
    "exponentials without the shift by the maximum",
    old="weights = softmax(scores, dim=-1)",
    new="weights = scores.exp() / scores.exp().sum(-1, keepdim=True).clamp(min=1e-30)",
    caught_by="scores near 1,000 do not overflow",
)
edit(
    "attention",
    "shift by the maximum of the first 128 keys only",
    old="weights = softmax(scores, dim=-1)",
    new="shifted = (scores - scores[..., :128].amax(-1, keepdim=True).clamp(min=-1e30)).exp()\n"
    "    weights = shifted / shifted.sum(-1, keepdim=True).clamp(min=1e-30)",
    caught_by="a last key with a large score takes the weight",
)
edit(
    "attention",
    "the values divided by the square root of d too",
    old="weights @ v",
    new="weights @ (v / math.sqrt(q.shape[-1]))",
    caught_by="the output equals PyTorch's attention operator",
)
edit(
    "attention",
    "the scores divided twice",
    old="softmax(scores, dim=-1)",
    new="softmax(scores / math.sqrt(q.shape[-1]), dim=-1)",
    caught_by="the scale follows the width of the queries",
)
edit(
    "attention",
    "the scores not divided",
    old="attention_scores(q, k)",
    new="q @ k.mT",
    caught_by="the scale follows the width of the queries",
)
edit(
    "attention",
    "divided by the square root of the values' width",
    old="attention_scores(q, k)",
    new="q @ k.mT / math.sqrt(v.shape[-1])",
    caught_by="the scale follows the width of the queries",
)
edit(
    "attention",
    "plain mean of the values",
    old="softmax(scores, dim=-1)",
    new="softmax(torch.where(scores.isinf(), scores, 0.0), dim=-1)",
    caught_by="the output equals PyTorch's attention operator",
)
edit(
    "attention",
    "causal whatever the mask says",
    old="weights = softmax",
    new="scores = scores.masked_fill(~causal_mask(*scores.shape[-2:]), -math.inf)\n    weights = softmax",
    caught_by="the order of the keys does not matter, and the order of the queries is kept",
)
edit(
    "attention",
    "a square mask, rows counted from the first key, in place of the mask that was passed",
    old="masked_fill(~mask,",
    new="masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1),",
    caught_by="the last queries alone get what they get among all",
)
edit(
    "attention",
    "the mask must have every dimension",
    old="scores = scores.masked_fill(~mask, -math.inf)",
    new="scores = scores.clone()\n        scores[~mask] = -math.inf",
    caught_by="a mask may have fewer dimensions than the scores, or size 1 where it says the same for all",
)
edit(
    "attention",
    "the mask turned round in place",
    old="scores = scores.masked_fill(~mask, -math.inf)",
    new="scores = scores.masked_fill(mask.logical_not_(), -math.inf)",
    caught_by="nothing passed in is changed, whatever its memory layout",
)
edit(
    "attention",
    "weights cut off from the gradient",
    old="output = weights @ v",
    new="output = weights.detach() @ v",
    caught_by="gradients reach queries, keys and values",
)
edit(
    "attention",
    "weights computed and returned in float32",
    old="weights = softmax(scores, dim=-1)",
    new="weights = softmax(scores.float(), dim=-1)\n    v = v.float()",
    caught_by="the output keeps the dtype of its inputs",
)
edit(
    "attention",
    "the weights always returned",
    old="return (output, weights) if return_weights else output",
    new="return output, weights",
    caught_by="return_weights=True gives the pair (output, weights), otherwise the output alone",
)
edit(
    "attention",
    "weights first, output second",
    old="(output, weights) if",
    new="(weights, output) if",
    caught_by="return_weights=True gives the pair (output, weights), otherwise the output alone",
)
edit(
    "attention",
    "the scores returned in place of the weights",
    old="(output, weights) if",
    new="(output, scores) if",
    caught_by="return_weights=True gives the pair (output, weights), otherwise the output alone",
)
edit(
    "attention",
    "an integer mask accepted, whose ~ is not its negation",
    old="if mask is not None and mask.dtype != torch.bool:",
    new="if mask is not None and mask.dtype == torch.uint8:",
    caught_by="a mask that is not boolean is a ValueError, and so is a missing value",
)
edit(
    "attention",
    "weights from queries and queries",
    old="attention_scores(q, k)",
    new="attention_scores(q, q)",
    caught_by="the output equals PyTorch's attention operator",
)

# SelfAttention

edit(
    "SelfAttention",
    "queries from k_proj",
    old="self.q_proj(x)",
    new="self.k_proj(x)",
    caught_by="the queries come from q_proj",
)
edit(
    "SelfAttention",
    "keys from q_proj",
    old="self.k_proj(x)",
    new="self.q_proj(x)",
    caught_by="the keys come from k_proj",
)
edit(
    "SelfAttention",
    "values from k_proj",
    old="self.v_proj(x)",
    new="self.k_proj(x)",
    caught_by="the values come from v_proj",
)
edit(
    "SelfAttention",
    "one matrix under two names",
    old="self.k_proj = nn.Linear(d_model, d_head, bias=False)",
    new="self.k_proj = self.q_proj",
    caught_by="the three matrices are three, and start at random",
)
edit(
    "SelfAttention",
    "projections with bias",
    old="bias=False",
    new="bias=True",
    caught_by="its parameters are q_proj, k_proj and v_proj, without bias, from d_model to d_head",
)
edit(
    "SelfAttention",
    "projections from d_model to d_model",
    old="nn.Linear(d_model, d_head, bias=False)",
    new="nn.Linear(d_model, d_model, bias=False)",
    caught_by="its parameters are q_proj, k_proj and v_proj, without bias, from d_model to d_head",
)
edit(
    "SelfAttention",
    "the mask forgotten",
    old=", mask)",
    new=")",
    caught_by="the mask is used: no output depends on a later token",
)
edit(
    "SelfAttention",
    "scores divided by the square root of d_model",
    old="self.q_proj(x),",
    new="self.q_proj(x) * (self.q_proj.out_features / self.q_proj.in_features) ** 0.5,",
    caught_by="scores are divided by the square root of d_head, not of d_model",
)
edit(
    "SelfAttention",
    "causal even without a mask",
    old="return attention(",
    new="mask = causal_mask(x.shape[-2]) if mask is None else mask\n        return attention(",
    caught_by="without a mask every token sees every token",
)
edit(
    "SelfAttention",
    "x added to the output where the widths allow it",
    old="return attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)",
    new="out = attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)\n"
    "        return out + x if out.shape == x.shape else out",
    caught_by="the output is attention over the projected tokens",
)
edit(
    "SelfAttention",
    "exactly three dimensions expected",
    old="return attention(",
    new="B, T, D = x.shape\n        return attention(",
    caught_by="any number of leading dimensions works, a single token too",
)
edit(
    "SelfAttention",
    "queries and keys cut off from the gradient",
    old="self.q_proj(x), self.k_proj(x),",
    new="self.q_proj(x).detach(), self.k_proj(x).detach(),",
    caught_by="gradients reach the input and all three matrices",
)
edit(
    "SelfAttention",
    "the tokens normalised in place",
    old="return attention(",
    new="x.sub_(x.mean(dim=-1, keepdim=True))\n        return attention(",
    caught_by="the tokens passed in are left as they were",
)


@mutant("one layer for all three", caught_by="its parameters are q_proj, k_proj and v_proj, without bias, from d_model to d_head")
class SelfAttention(nn.Module):
    def __init__(self, d_model: int, d_head: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, d_head, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.proj(x)
        scores = (y @ y.mT / math.sqrt(y.shape[-1])).masked_fill(~mask if mask is not None else torch.tensor(False), -math.inf)
        return torch.softmax(scores, dim=-1) @ y
