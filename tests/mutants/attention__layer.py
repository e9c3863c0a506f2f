"""Wrong layers of self-attention, each with the property that must catch it."""

import math

import torch
from torch import Tensor, nn

from course.grading.specimens import edit, mutant

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


@mutant(
    "one layer for all three",
    caught_by="its parameters are q_proj, k_proj and v_proj, without bias, from d_model to d_head",
)
class SelfAttention(nn.Module):
    def __init__(self, d_model: int, d_head: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, d_head, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.proj(x)
        scores = (y @ y.mT / math.sqrt(y.shape[-1])).masked_fill(
            ~mask if mask is not None else torch.tensor(False), -math.inf
        )
        return torch.softmax(scores, dim=-1) @ y


edit(
    "SelfAttention",
    "the last mask remembered for calls without one",
    old="        # The weights were not asked for",
    new='        mask = self.last = getattr(self, "last", None) if mask is None else mask\n        # They were not',
    caught_by="without a mask every token sees every token",
)
