"""Wrong layers of experts, each with the property that must catch it."""

from course.grading.specimens import edit

edit(
    "MixtureOfExperts",
    "a router with a bias",
    old="nn.Linear(d_model, n_experts, bias=False)",
    new="nn.Linear(d_model, n_experts)",
    caught_by="it holds a router without bias and E SwiGLU experts, under the names of the conventions",
)
edit(
    "MixtureOfExperts",
    "one expert in E places",
    old="nn.ModuleList(SwiGLU(d_model, d_ff) for _ in range(n_experts))",
    new="nn.ModuleList([SwiGLU(d_model, d_ff)] * n_experts)",
    caught_by="it holds a router without bias and E SwiGLU experts, under the names of the conventions",
)
edit(
    "MixtureOfExperts",
    "the router called gate",
    old="self.router = nn.Linear(d_model, n_experts, bias=False)",
    new="self.gate = nn.Linear(d_model, n_experts, bias=False)\n        self.__dict__['router'] = self.gate",
    caught_by="it holds a router without bias and E SwiGLU experts, under the names of the conventions",
)
edit(
    "MixtureOfExperts",
    "the weights not multiplied in",
    old="dispatch(rows, weights,",
    new="dispatch(rows, torch.ones_like(weights),",
    caught_by="the output is the chosen experts' outputs, times their weights, summed",
)
edit(
    "MixtureOfExperts",
    "the probabilities, not renormalised, as weights",
    old="dispatch(rows, weights,",
    new="dispatch(rows, self.router_probs.gather(1, self.indices),",
    caught_by="the output is the chosen experts' outputs, times their weights, summed",
)
edit(
    "MixtureOfExperts",
    "top_k ignored",
    old="self.top_k = top_k",
    new="self.top_k = min(2, n_experts)",
    caught_by="the output is the chosen experts' outputs, times their weights, summed",
)
edit(
    "MixtureOfExperts",
    "a residual connection inside",
    old=".reshape(x.shape)",
    new=".reshape(x.shape) + x",
    caught_by="the output is the chosen experts' outputs, times their weights, summed",
)
edit(
    "MixtureOfExperts",
    "only (B, T, D) taken",
    old="rows = x.reshape(-1, x.shape[-1])",
    new="batch, length, width = x.shape\n        rows = x.reshape(-1, width)",
    caught_by="any leading dimensions work, and come back",
)
edit(
    "MixtureOfExperts",
    "positions and texts exchanged on the way back",
    old=".reshape(x.shape)",
    new=".reshape(*x.shape[:-1][::-1], x.shape[-1]).transpose(0, x.ndim - 2).reshape(x.shape)",
    caught_by="any leading dimensions work, and come back",
)
edit(
    "MixtureOfExperts",
    "one route for a whole text",
    old="logits = self.router(rows)",
    new="logits = self.router(rows.mean(dim=0, keepdim=True)).expand(len(rows), -1)",
    caught_by="the output is the chosen experts' outputs, times their weights, summed",
)
edit(
    "MixtureOfExperts",
    "every expert run on every token, most weights zero",
    old="return dispatch(rows, weights, self.indices, self.experts).reshape(x.shape)",
    new="share = torch.zeros_like(logits).scatter(1, self.indices, weights)\n"
    "        outputs = torch.stack([expert(rows) for expert in self.experts], dim=1)\n"
    "        return (share[..., None] * outputs).sum(dim=1).reshape(x.shape)",
    caught_by="each expert is given its own tokens and no others",
)
edit(
    "MixtureOfExperts",
    "idle experts run on a token whose result is dropped",
    old="return dispatch(",
    new="for expert in self.experts:\n            expert(rows[:1])\n        return dispatch(",
    caught_by="an expert without tokens is not run",
)
edit(
    "MixtureOfExperts",
    "idle experts added with a weight of zero",
    old="return dispatch(rows, weights, self.indices, self.experts)",
    new="idle = [e for i, e in enumerate(self.experts) if not (self.indices == i).any()]\n"
    "        return (dispatch(rows, weights, self.indices, self.experts) + 0 * sum(e(rows) for e in idle))",
    caught_by="an expert without tokens is not run",
)
edit(
    "MixtureOfExperts",
    "each token sent twice to its experts, half a weight each",
    old="dispatch(rows, weights, self.indices, self.experts)",
    new="dispatch(rows, torch.cat([weights, weights], dim=1) / 2, self.indices.repeat(1, 2), self.experts)",
    caught_by="each expert is given its own tokens and no others",
)
edit(
    "MixtureOfExperts",
    "the weights of the chosen kept instead of all probabilities",
    old="return dispatch(",
    new="self.router_probs = torch.zeros_like(logits).scatter(1, self.indices, weights)\n        return dispatch(",
    caught_by="it keeps the probabilities of all experts and the choices of its last pass",
)
edit(
    "MixtureOfExperts",
    "the scores kept instead of the probabilities",
    old="self.router_probs = softmax(logits, dim=-1)",
    new="self.router_probs = logits",
    caught_by="it keeps the probabilities of all experts and the choices of its last pass",
)
edit(
    "MixtureOfExperts",
    "only the first pass kept",
    old="self.router_probs = softmax(logits, dim=-1)",
    new="self.router_probs = softmax(logits, dim=-1) if self.router_probs is None else self.router_probs",
    caught_by="it keeps the probabilities of all experts and the choices of its last pass",
)
edit(
    "MixtureOfExperts",
    "the kept probabilities cut off from the router",
    old="self.router_probs = softmax(logits, dim=-1)",
    new="self.router_probs = softmax(logits, dim=-1).detach()",
    caught_by="the balancing loss of what it keeps trains the router",
)
edit(
    "MixtureOfExperts",
    "the router never learns from the output",
    old="dispatch(rows, weights,",
    new="dispatch(rows, weights.detach(),",
    caught_by="gradients reach the tokens, the router and the experts that were chosen",
)
edit(
    "MixtureOfExperts",
    "always float32",
    old=".reshape(x.shape)",
    new=".reshape(x.shape).float()",
    caught_by="the output has the tokens' dtype, and the tokens stay as they were",
)
edit(
    "MixtureOfExperts",
    "top_k never checked",
    old="if not 1 <= top_k <= n_experts:",
    new="if False:",
    caught_by="a top_k that the layer's experts cannot give is a ValueError that names both numbers",
)
