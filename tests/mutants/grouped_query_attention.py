"""Wrong grouped-query attention, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# repeat_kv


@mutant("repeat in place of repeat_interleave", caught_by="copies of one head stand side by side")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    return x.repeat(1, n_rep, 1, 1)


@mutant("concatenated n_rep times", caught_by="copies of one head stand side by side")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    return torch.cat([x] * n_rep, dim=1)


@mutant("positions repeated", caught_by="positions, widths and texts stay in their places")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    return x.repeat_interleave(n_rep, dim=2)


@mutant("expanded behind the positions, then reshaped", caught_by="positions, widths and texts stay in their places")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    B, K, S, d = x.shape
    return x[:, :, :, None].expand(B, K, S, n_rep, d).reshape(B, K * n_rep, S, d)


@mutant("always four copies", caught_by="one copy of each head is the input, and one head can be copied for all")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    return x.repeat_interleave(4, dim=1)


@mutant("view, which needs numbers in reading order", caught_by="heads that are not contiguous work, in every dtype")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    B, K, S, d = x.shape
    return x.view(B, K, 1, S * d).expand(B, K, n_rep, S * d).reshape(B, K * n_rep, S, d)


@mutant("always float32", caught_by="heads that are not contiguous work, in every dtype")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    return x.float().repeat_interleave(n_rep, dim=1)


@mutant("cut off from the gradient", caught_by="every copy's gradient flows back to its head")
def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    return x.detach().repeat_interleave(n_rep, dim=1)


# GroupedQueryAttention

edit(
    "GroupedQueryAttention",
    "groups by modulo",
    old="attention(q, repeat_kv(k, n_rep), repeat_kv(v, n_rep), mask)",
    new="attention(q, k.repeat(1, n_rep, 1, 1), v.repeat(1, n_rep, 1, 1), mask)",
    caught_by="query head h uses the keys and values of group h // (H / K)",
)
edit(
    "GroupedQueryAttention",
    "values by modulo, keys in groups",
    old="repeat_kv(v, n_rep)",
    new="v.repeat(1, n_rep, 1, 1)",
    caught_by="query head h uses the keys and values of group h // (H / K)",
)
edit(
    "GroupedQueryAttention",
    "the first group's keys for all",
    old="repeat_kv(k, n_rep)",
    new="repeat_kv(k[:, :1], n_rep * self.n_kv_heads)",
    caught_by="query head h uses the keys and values of group h // (H / K)",
)
edit(
    "GroupedQueryAttention",
    "keys and values exchanged",
    old="repeat_kv(k, n_rep), repeat_kv(v, n_rep)",
    new="repeat_kv(v, n_rep), repeat_kv(k, n_rep)",
    caught_by="query head h uses the keys and values of group h // (H / K)",
)
edit(
    "GroupedQueryAttention",
    "keys and values of all H heads kept",
    old="nn.Linear(d_model, n_kv_heads * d, bias=bias)",
    new="nn.Linear(d_model, n_heads * d, bias=bias)",
    caught_by="k_proj and v_proj are K heads wide, with biases only if asked for",
)
edit(
    "GroupedQueryAttention",
    "biases never",
    old="bias=bias",
    new="bias=False",
    caught_by="k_proj and v_proj are K heads wide, with biases only if asked for",
)
edit(
    "GroupedQueryAttention",
    "head_dim ignored",
    old="d = d_model // n_heads if head_dim is None else head_dim",
    new="d = max(d_model // n_heads, 1)",
    caught_by="a head's width can be another than D / H",
)
edit(
    "GroupedQueryAttention",
    "o_proj from the model's width",
    old="nn.Linear(n_heads * d, d_model, bias=bias)",
    new="nn.Linear(d_model, d_model, bias=bias)",
    caught_by="a head's width can be another than D / H",
)
edit(
    "GroupedQueryAttention",
    "the mask forgotten",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, None)",
    caught_by="the mask hides what it hides, from all heads or from one",
)
edit(
    "GroupedQueryAttention",
    "always causal",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() if mask is None else mask)",
    caught_by="the mask hides what it hides, from all heads or from one",
)
edit(
    "GroupedQueryAttention",
    "repeated before attend, so that a cache would keep H heads",
    old="self._attend_in_groups if attend is None else attend",
    new="self._attend_in_groups if attend is None else (\n"
    "            lambda q, k, v, m: attend(q, *(repeat_kv(y, self.n_heads // self.n_kv_heads) for y in (k, v)), m)\n"
    "        )",
    caught_by="a function handed in as attend gets keys and values that are not repeated",
)
edit(
    "GroupedQueryAttention",
    "attend ignored",
    old="self._attend_in_groups if attend is None else attend",
    new="self._attend_in_groups",
    caught_by="a function handed in as attend gets keys and values that are not repeated",
)
edit(
    "GroupedQueryAttention",
    "groups not checked",
    old="if n_kv_heads < 1 or n_heads % n_kv_heads:",
    new="if n_kv_heads < 1:",
    caught_by="heads that cannot be grouped, or cannot share the width, are a ValueError that names both numbers",
)
edit(
    "GroupedQueryAttention",
    "the width checked though head_dim is given",
    old="if head_dim is None and d_model % n_heads:",
    new="if d_model % n_heads:",
    caught_by="heads that cannot be grouped, or cannot share the width, are a ValueError that names both numbers",
)
edit(
    "GroupedQueryAttention",
    "the keys cut off from the gradient",
    old="split_heads(self.k_proj(x), self.n_kv_heads)",
    new="split_heads(self.k_proj(x), self.n_kv_heads).detach()",
    caught_by="gradients reach the tokens and all parameters",
)
edit(
    "GroupedQueryAttention",
    "scores divided by the square root of D",
    old="q = split_heads(self.q_proj(x), self.n_heads)",
    new="q = split_heads(self.q_proj(x), self.n_heads) / self.n_heads**0.5",
    caught_by="with K = H it is multi-head attention",
)

# pool_kv_heads

edit(
    "pool_kv_heads",
    "the sum, not the mean",
    old="heads.mean(dim=1)",
    new="heads.sum(dim=1)",
    caught_by="each new head is the mean of its group's old heads",
)
edit(
    "pool_kv_heads",
    "groups by modulo",
    old="weight.reshape(n_kv_heads, n_heads // n_kv_heads, rows // n_heads, D)",
    new="weight.reshape(n_heads // n_kv_heads, n_kv_heads, rows // n_heads, D).transpose(0, 1)",
    caught_by="each new head is the mean of its group's old heads",
)
edit(
    "pool_kv_heads",
    "the first head of each group",
    old="heads.mean(dim=1)",
    new="heads[:, 0]",
    caught_by="each new head is the mean of its group's old heads",
)
edit(
    "pool_kv_heads",
    "neighbouring rows averaged",
    old="weight.reshape(n_kv_heads, n_heads // n_kv_heads, rows // n_heads, D)",
    new="weight.reshape(n_kv_heads, rows // n_heads, n_heads // n_kv_heads, D).transpose(1, 2)",
    caught_by="rows of a head are not mixed with one another",
)
edit(
    "pool_kv_heads",
    "divided by the number of groups",
    old="heads.mean(dim=1)",
    new="(heads.sum(dim=1) / n_kv_heads)",
    caught_by="heads that equal one another stay as they are",
)
edit(
    "pool_kv_heads",
    "divided by the root of the group's size",
    old="heads.mean(dim=1)",
    new="(heads.sum(dim=1) / (n_heads // n_kv_heads) ** 0.5)",
    caught_by="heads that equal one another stay as they are",
)
edit(
    "pool_kv_heads",
    "groups not checked",
    old="if n_kv_heads < 1 or n_heads % n_kv_heads:",
    new="if False:",
    caught_by="what does not divide is a ValueError that names both numbers",
)
edit(
    "pool_kv_heads",
    "rows not checked",
    old="if rows % n_heads:",
    new="if False:",
    caught_by="what does not divide is a ValueError that names both numbers",
)
edit(
    "pool_kv_heads",
    "scaled in place first",
    old="heads.mean(dim=1)",
    new="weight.div_(n_heads // n_kv_heads).reshape(heads.shape).sum(dim=1)",
    caught_by="the weight is left as it was, and the dtype kept",
)
