"""Wrong multi-query attention, each with the property that must catch it."""

from torch import Tensor

from course.grading.specimens import edit, mutant

from .attention import attention  # type: ignore[attr-defined] # chapter 02's, beside the specimen

# attend_shared


@mutant("keys and values repeated for each head", caught_by="keys and values are not copied for each head")
def attend_shared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    H = q.shape[1]
    return attention(q, k.repeat(1, H, 1, 1), v.repeat(1, H, 1, 1), mask)


@mutant("left to broadcasting, which copies", caught_by="keys and values are not copied for each head")
def attend_shared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return attention(q, k, v, mask)


@mutant("expanded, which a matrix product copies", caught_by="keys and values are not copied for each head")
def attend_shared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    shape = (-1, q.shape[1], -1, -1)
    return attention(q, k.expand(shape), v.expand(shape), mask)


edit(
    "attend_shared",
    "the mask dropped",
    old="k, v, mask)",
    new="k, v, None)",
    caught_by="a mask reaches the head and the query that it is for",
)
edit(
    "attend_shared",
    "the mask's rows folded in another order than the queries",
    old=".reshape(B, 1, H * T, -1)",
    new=".transpose(1, 2).reshape(B, 1, H * T, -1)",
    caught_by="a mask reaches the head and the query that it is for",
)
edit(
    "attend_shared",
    "a mask of two dimensions only",
    old="mask = mask.expand(B, H, T, k.shape[-2]).reshape(B, 1, H * T, -1)",
    new="mask = mask.repeat(H, 1) if mask.ndim == 2 else mask.reshape(-1, k.shape[-2])[: H * T]",
    caught_by="a mask reaches the head and the query that it is for",
)
edit(
    "attend_shared",
    "heads and queries exchanged on the way back",
    old="rows.reshape(B, H, T, d)",
    new="rows.reshape(B, T, H, d).transpose(1, 2)",
    caught_by="heads and queries come back in their places",
)
edit(
    "attend_shared",
    "the first head's answer for every head",
    old="rows.reshape(B, H, T, d)",
    new="rows.reshape(B, H, T, d)[:, :1].expand(-1, H, -1, -1)",
    caught_by="heads and queries come back in their places",
)
edit(
    "attend_shared",
    "the heads' queries averaged",
    old="q.reshape(B, 1, H * T, d)",
    new="q.mean(dim=1, keepdim=True).expand(B, H, T, d).reshape(B, 1, H * T, d)",
    caught_by="every head's queries attend to the one head of keys and values",
)
edit(
    "attend_shared",
    "keys and values exchanged",
    old="d), k, v, mask)",
    new="d), v, k, mask)",
    caught_by="every head's queries attend to the one head of keys and values",
)
edit(
    "attend_shared",
    "view, which needs numbers in reading order",
    old="q.reshape(B, 1, H * T, d)",
    new="q.view(B, 1, H * T, d)",
    caught_by="heads that are not contiguous work, in every dtype",
)
edit(
    "attend_shared",
    "the keys cut off from the gradient",
    old="d), k, v, mask)",
    new="d), k.detach(), v, mask)",
    caught_by="gradients flow to queries, keys and values",
)

# MultiQueryAttention

edit(
    "MultiQueryAttention",
    "keys and values as wide as the model",
    old="nn.Linear(d_model, d_model // n_heads, bias=bias)",
    new="nn.Linear(d_model, d_model, bias=bias)",
    caught_by="k_proj and v_proj are as wide as one head, q_proj and o_proj as wide as the model",
)
edit(
    "MultiQueryAttention",
    "biases never",
    old="bias=bias",
    new="bias=False",
    caught_by="k_proj and v_proj are as wide as one head, q_proj and o_proj as wide as the model",
)
edit(
    "MultiQueryAttention",
    "one projection for keys and values",
    old="self.v_proj(x).unsqueeze(1)",
    new="self.k_proj(x).unsqueeze(1)",
    caught_by="the output equals multi-head attention whose heads have equal keys and values",
)
edit(
    "MultiQueryAttention",
    "o_proj forgotten",
    old="return self.o_proj(merge_heads(blend(q, k, v, mask)))",
    new="return merge_heads(blend(q, k, v, mask))",
    caught_by="the output equals multi-head attention whose heads have equal keys and values",
)
edit(
    "MultiQueryAttention",
    "one query for all heads",
    old="q = split_heads(self.q_proj(x), self.n_heads)",
    new="q = split_heads(self.q_proj(x), self.n_heads)[:, :1].expand(-1, self.n_heads, -1, -1)",
    caught_by="each head asks with queries of its own",
)
edit(
    "MultiQueryAttention",
    "every H-th column to a head",
    old="q = split_heads(self.q_proj(x), self.n_heads)",
    new="q = self.q_proj(x).unflatten(-1, (-1, self.n_heads)).permute(0, 3, 1, 2)",
    caught_by="each head asks with queries of its own",
)
edit(
    "MultiQueryAttention",
    "the mask forgotten",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, None)",
    caught_by="the mask hides what it hides from every head",
)
edit(
    "MultiQueryAttention",
    "always causal",
    old="blend(q, k, v, mask)",
    new="blend(q, k, v, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() if mask is None else mask)",
    caught_by="the mask hides what it hides from every head",
)
edit(
    "MultiQueryAttention",
    "keys and values repeated before attend, so that a cache would keep H heads",
    old="blend(q, k, v, mask)",
    new="blend(q, k.repeat(1, self.n_heads, 1, 1), v.repeat(1, self.n_heads, 1, 1), mask)",
    caught_by="a function handed in as attend gets H heads of queries and one of keys and values",
)
edit(
    "MultiQueryAttention",
    "attend ignored",
    old="attend_shared if attend is None else attend",
    new="attend_shared",
    caught_by="a function handed in as attend gets H heads of queries and one of keys and values",
)
edit(
    "MultiQueryAttention",
    "no check of the width",
    old="if n_heads < 1 or d_model % n_heads:",
    new="if False:",
    caught_by="a width that the heads cannot share is a ValueError that names both numbers",
)
edit(
    "MultiQueryAttention",
    "the values cut off from the gradient",
    old="self.v_proj(x).unsqueeze(1)",
    new="self.v_proj(x).detach().unsqueeze(1)",
    caught_by="gradients reach the tokens and all parameters",
)
