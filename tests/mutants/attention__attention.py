"""Wrong attentions, each with the property that must catch it."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.specimens import edit, mutant

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
    old="torch.where(mask,",
    new="torch.where(~mask,",
    caught_by="True in the mask means may attend",
)
edit(
    "attention",
    "mask ignored",
    old="if mask is not None:\n        scores = torch.where(mask, scores, -math.inf)",
    new="",
    caught_by="hidden keys have no part in the weights",
)
edit(
    "attention",
    "scores multiplied by the mask",
    old="torch.where(mask, scores, -math.inf)",
    new="scores * mask",
    caught_by="hidden keys have no part in the weights",
)
edit(
    "attention",
    "hidden scores set to zero",
    old="torch.where(mask, scores, -math.inf)",
    new="scores.masked_fill(~mask, 0.0)",
    caught_by="hidden keys have no part in the weights",
)
edit(
    "attention",
    "mask after the softmax, without sharing out again",
    old="scores = torch.where(mask, scores, -math.inf)\n    weights = softmax(scores, dim=-1)",
    new="weights = softmax(scores, dim=-1) * mask\n    else:\n        weights = softmax(scores, dim=-1)",
    caught_by="each query's weights sum to one over its keys",
)
edit(
    "attention",
    "mask after the softmax: the future counts in the sum",
    old="scores = torch.where(mask, scores, -math.inf)\n    weights = softmax(scores, dim=-1)",
    new="weights = softmax(scores, dim=-1).masked_fill(~mask, 0.0)\n"
    "    else:\n        weights = softmax(scores, dim=-1)",
    caught_by="no output depends on a later token",
)
edit(
    "attention",
    "-1e9 written into the scores",
    old="torch.where(mask, scores, -math.inf)",
    new="scores.masked_fill(~mask, -1e9)",
    caught_by="float16 and bfloat16 work, with a mask too",
)
edit(
    "attention",
    "-1e9 added to the scores",
    old="torch.where(mask, scores, -math.inf)",
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
    old="torch.where(mask, scores, -math.inf)",
    new="scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)",
    caught_by="the last queries alone get what they get among all",
)
edit(
    "attention",
    "the mask must have every dimension",
    old="scores = torch.where(mask, scores, -math.inf)",
    new="scores = scores.clone()\n        scores[~mask] = -math.inf",
    caught_by="a mask may have fewer dimensions than the scores, or size 1 where it says the same for all",
)
edit(
    "attention",
    "the mask turned round in place",
    old="scores = torch.where(mask, scores, -math.inf)",
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
edit(
    "attention",
    "any square mask taken for the causal one",
    old="torch.where(mask,",
    new="torch.where((causal_mask(*mask.shape) if mask.ndim == 2 and len({*mask.shape}) == 1 else mask),",
    caught_by="hidden keys have no part in the weights",
)
edit(
    "attention",
    "a mask of one column laid along the keys",
    old="torch.where(mask,",
    new="torch.where((mask.mT if mask.shape[-1] == 1 else mask),",
    caught_by="a mask may have fewer dimensions than the scores, or size 1 where it says the same for all",
)
edit(
    "attention",
    "NaN for an empty row in half precision",
    old="weights = softmax(scores, dim=-1)",
    new="weights = softmax(scores, dim=-1) if q.itemsize > 2 else torch.softmax(scores, dim=-1)",
    caught_by="a query that may attend to nothing gets zeros",
)
edit(
    "attention",
    "the queries of a batch leave the graph",
    old="attention_scores(q, k)",
    new="attention_scores(q.detach() if q.ndim > 2 else q, k)",
    caught_by="gradients reach queries, keys and values",
)


@mutant(
    "torch's own attention for the output",
    caught_by="it is built from scores and a softmax, not from torch's own attention",
)
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, return_weights: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be torch.bool, not {mask.dtype}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"{k.shape[-2]} keys but {v.shape[-2]} values")
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand(scores.shape)
    empty = ~allowed.any(dim=-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(~(allowed | empty), -math.inf), dim=-1).masked_fill(empty, 0.0)
    if return_weights:
        return weights @ v, weights
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed | empty).masked_fill(empty, 0.0)
