"""Wrong layers of multi-head attention, each with the property that must catch it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import edit, mutant

edit(
    "MultiHeadAttention",
    "o_proj forgotten",
    old="self.o_proj(merge_heads(blend(q, k, v, mask)))",
    new="merge_heads(blend(q, k, v, mask))",
    caught_by="o_proj mixes the merged heads",
)
edit(
    "MultiHeadAttention",
    "one head over the whole width",
    old="self.o_proj(merge_heads(blend(q, k, v, mask)))",
    new="self.o_proj(merge_heads(blend(*(merge_heads(y)[:, None] for y in (q, k, v)), mask)))",
    caught_by="each head has weights of its own",
)
edit(
    "MultiHeadAttention",
    "scores divided by the square root of D",
    old="q = split_heads(self.q_proj(x), self.n_heads)",
    new="q = split_heads(self.q_proj(x), self.n_heads) / self.n_heads**0.5",
    caught_by="scores are divided by the square root of the head's width d, not of D",
)
edit(
    "MultiHeadAttention",
    "the context ignored",
    old="context = x if context is None else context",
    new="context = x",
    caught_by="with a context, keys and values come from it and queries from x",
)
edit(
    "MultiHeadAttention",
    "values from x, keys from the context",
    old="v = split_heads(self.v_proj(context), self.n_heads)",
    new="v = split_heads(self.v_proj(x), self.n_heads)",
    caught_by="with a context, keys and values come from it and queries from x",
)
edit(
    "MultiHeadAttention",
    "queries from the context",
    old="q = split_heads(self.q_proj(x), self.n_heads)",
    new="q = split_heads(self.q_proj(context), self.n_heads)",
    caught_by="with a context, keys and values come from it and queries from x",
)
edit(
    "MultiHeadAttention",
    "the mask forgotten",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, None)",
    caught_by="the mask is used, in self-attention and with a context",
)
edit(
    "MultiHeadAttention",
    "the mask the wrong way round, as torch.nn.MultiheadAttention takes it",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, None if mask is None else ~mask)",
    caught_by="the mask is used, in self-attention and with a context",
)
edit(
    "MultiHeadAttention",
    "all heads under the first head's mask",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, mask[:, :1] if mask is not None and mask.ndim == 4 else mask)",
    caught_by="a mask may differ from head to head",
)
edit(
    "MultiHeadAttention",
    "causal even without a mask",
    old="blend: Callable[..., Any] = attention if",
    new="if mask is None and context is x:\n"
    "            mask = x.new_ones(x.shape[1], x.shape[1]).bool().tril()\n"
    "        blend: Callable[..., Any] = attention if",
    caught_by="without a mask every token sees every token",
)
edit(
    "MultiHeadAttention",
    "attend ignored",
    old="blend: Callable[..., Any] = attention if attend is None else attend",
    new="blend: Callable[..., Any] = attention",
    caught_by="a function handed in as attend is called once, with all heads at once",
)
edit(
    "MultiHeadAttention",
    "attend called head by head",
    old="self.o_proj(merge_heads(blend(q, k, v, mask)))",
    new="self.o_proj(merge_heads(torch.cat(\n"
    "            [blend(q[:, h : h + 1], k[:, h : h + 1], v[:, h : h + 1],\n"
    "                    mask if mask is None or mask.ndim < 4 or mask.shape[1] == 1 else mask[:, h : h + 1])\n"
    "             for h in range(self.n_heads)], dim=1)))",
    caught_by="a function handed in as attend is called once, with all heads at once",
)
edit(
    "MultiHeadAttention",
    "bias asked for and not given",
    old="self.o_proj = nn.Linear(d_model, d_model, bias=bias)",
    new="self.o_proj = nn.Linear(d_model, d_model, bias=False)",
    caught_by="its parameters are q_proj, k_proj, v_proj and o_proj, each D by D, with biases only if asked for",
)
edit(
    "MultiHeadAttention",
    "biases always",
    old="bias=bias",
    new="bias=True",
    caught_by="its parameters are q_proj, k_proj, v_proj and o_proj, each D by D, with biases only if asked for",
)
edit(
    "MultiHeadAttention",
    "one matrix for queries and keys",
    old="self.k_proj = nn.Linear(d_model, d_model, bias=bias)",
    new="self.k_proj = self.q_proj",
    caught_by="its parameters are q_proj, k_proj, v_proj and o_proj, each D by D, with biases only if asked for",
)
edit(
    "MultiHeadAttention",
    "no check of the width",
    old="n_heads < 1 or d_model % n_heads",
    new="False",
    caught_by="a d_model that the heads cannot share is a ValueError that names both numbers",
)
edit(
    "MultiHeadAttention",
    "heads merged in the wrong order",
    old="merge_heads(blend(q, k, v, mask))",
    new="blend(q, k, v, mask).reshape(x.shape)",
    caught_by="the output equals torch.nn.MultiheadAttention on the same weights",
)
edit(
    "MultiHeadAttention",
    "keys cut off from the gradient",
    old="split_heads(self.k_proj(context), self.n_heads)",
    new="split_heads(self.k_proj(context), self.n_heads).detach()",
    caught_by="gradients reach the tokens, the context and all parameters",
)
edit(
    "MultiHeadAttention",
    "the tokens centred in place",
    old="context = x if",
    new="x.sub_(x.mean(dim=-1, keepdim=True))\n        context = x if",
    caught_by="the tokens passed in are left as they were",
)


@mutant(
    "the heads' outputs summed, each through the whole width",
    caught_by="its parameters are q_proj, k_proj, v_proj and o_proj, each D by D, with biases only if asked for",
)
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"{d_model} {n_heads}")
        self.heads = nn.ModuleList(nn.Linear(d_model, 3 * d_model, bias=bias) for _ in range(n_heads))

    def forward(self, x: Tensor, mask: Tensor | None = None, context: Tensor | None = None, attend=None) -> Tensor:
        total = torch.zeros_like(x)
        for head in self.heads:
            q, k, v = head(x).chunk(3, dim=-1)
            total = total + F.scaled_dot_product_attention(q, k, v, mask)
        return total


edit(
    "MultiHeadAttention",
    "without a context the tokens are cut off as keys and values",
    old="context = x if context is None",
    new="context = x.detach() if context is None",
    caught_by="in self-attention gradients flow through queries, keys and values",
)

edit(
    "MultiHeadAttention",
    "attend called by keyword",
    old="blend(q, k, v, mask)",
    new="blend(q=q, k=k, v=v, mask=mask)",
    caught_by="attend is called as attend(q, k, v, mask), in self-attention too",
)

edit(
    "MultiHeadAttention",
    "no mask for an attend in self-attention",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, mask if attend is None or context is not x else None)",
    caught_by="attend is called as attend(q, k, v, mask), in self-attention too",
)

edit(
    "MultiHeadAttention",
    "the mask turned round in place",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, mask if mask is None else mask.logical_not_().logical_not())",
    caught_by="the mask and the context are left as they were",
)

edit(
    "MultiHeadAttention",
    "no mask for a single token",
    old="context = x if context is None else context",
    new="context = x if context is None else context\n        mask = mask if x.shape[1] > 1 else None",
    caught_by="one token alone works, with any mask that broadcasts with (B, H, T, S)",
)


@mutant("hidden scores of -1e9", caught_by="a token that may attend to nothing gets what o_proj makes of zeros")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"d_model is {d_model}, n_heads is {n_heads}")
        self.n_heads = n_heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(d_model, d_model, bias=bias))

    def forward(
        self, x: Tensor, mask: Tensor | None = None, context: Tensor | None = None, attend: Any = None
    ) -> Tensor:
        z = x if context is None else context
        q, k, v = (
            part(y).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for part, y in ((self.q_proj, x), (self.k_proj, z), (self.v_proj, z))
        )
        if attend is not None:
            return self.o_proj(attend(q, k, v, mask).transpose(1, 2).flatten(2))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        return self.o_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))
