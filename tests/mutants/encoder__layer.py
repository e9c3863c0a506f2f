"""Wrong encoders, each with the property that must catch it."""

from course.grading.specimens import edit

from .attention import causal_mask  # noqa: F401 # for the edits below

edit(
    "Encoder",
    "an lm_head that nobody asked for",
    old="self.norm = norm(config.d_model, eps=config.norm_eps)",
    new="self.norm = norm(config.d_model, eps=config.norm_eps)\n"
    "        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)",
    caught_by="its parts have the names of the contract, and no more than the plan needs",
)
edit(
    "Encoder",
    "the fixed table in the state dict",
    old="persistent=False",
    new="persistent=True",
    caught_by="its parts have the names of the contract, and no more than the plan needs",
)
edit(
    "Encoder",
    "scores in place of vectors",
    old='return self.norm(x) if config.placement == "pre" else x',
    new='return self.embedding.unembed(self.norm(x) if config.placement == "pre" else x)',
    caught_by="the vectors are those of embedding, positions and blocks, one for each token",
)
edit(
    "Encoder",
    "the first token's vector alone",
    old='return self.norm(x) if config.placement == "pre" else x',
    new='return (self.norm(x) if config.placement == "pre" else x)[:, :1]',
    caught_by="the vectors are those of embedding, positions and blocks, one for each token",
)
edit(
    "Encoder",
    "embeddings scaled by the root of the width",
    old="x = self.embedding(ids)",
    new="x = self.embedding(ids) * config.d_model**0.5",
    caught_by="the vectors are those of embedding, positions and blocks, one for each token",
)
edit(
    "Encoder",
    "the last block left out",
    old="for block in self.blocks:",
    new="for block in self.blocks[:-1]:",
    caught_by="the vectors are those of embedding, positions and blocks, one for each token",
)
edit(
    "Encoder",
    "no norm of the embeddings for post",
    old='if config.placement == "post":',
    new="if False:",
    caught_by="the norm stands on the embeddings for post, and on the last block's output for pre",
)
edit(
    "Encoder",
    "a norm at the end for post as well",
    old='return self.norm(x) if config.placement == "pre" else x',
    new="return self.norm(x)",
    caught_by="the norm stands on the embeddings for post, and on the last block's output for pre",
)
edit(
    "Encoder",
    "no last norm for pre",
    old='return self.norm(x) if config.placement == "pre" else x',
    new="return x",
    caught_by="the norm stands on the embeddings for post, and on the last block's output for pre",
)
edit(
    "Encoder",
    "pre and post exchanged",
    old='if config.placement == "post":\n            x = self.norm(x)',
    new='if config.placement == "pre":\n            x = self.norm(x)',
    caught_by="the norm stands on the embeddings for post, and on the last block's output for pre",
)
edit(
    "Encoder",
    "the norm's own eps",
    old="norm(config.d_model, eps=config.norm_eps)",
    new="norm(config.d_model)",
    caught_by="the norm stands on the embeddings for post, and on the last block's output for pre",
)
edit(
    "Encoder",
    "LayerNorm whatever the plan says",
    old="norm(config.d_model, eps=config.norm_eps)",
    new="LayerNorm(config.d_model, eps=config.norm_eps)",
    caught_by="its parts have the names of the contract, and no more than the plan needs",
)
edit(
    "Encoder",
    "the causal mask left on",
    old="mask = None\n",
    new="mask = causal_mask(T)\n",
    caught_by="every token sees both sides",
)
edit(
    "Encoder",
    "a causal mask together with the padding's",
    old="mask = attention_mask.bool()[:, None, None, :]",
    new="mask = attention_mask.bool()[:, None, None, :] & causal_mask(T)",
    caught_by="no token attends to padding, wherever it stands",
)
edit(
    "Encoder",
    "the attention mask ignored",
    old="x = block(x, mask=mask)",
    new="x = block(x)",
    caught_by="no token attends to padding, wherever it stands",
)
edit(
    "Encoder",
    "the attention mask's sign turned",
    old="attention_mask.bool()[:, None, None, :]",
    new="~attention_mask.bool()[:, None, None, :]",
    caught_by="no token attends to padding, wherever it stands",
)
edit(
    "Encoder",
    "queries hidden in place of keys",
    old="attention_mask.bool()[:, None, None, :]",
    new="attention_mask.bool()[:, None, :, None]",
    caught_by="no token attends to padding, wherever it stands",
)
edit(
    "Encoder",
    "padding zeroed, not hidden",
    old="        for block in self.blocks:\n            x = block(x, mask=mask)",
    new="        for block in self.blocks:\n"
    "            x = block(x) if mask is None else block(x * mask[:, 0, 0, :, None])",
    caught_by="no token attends to padding, wherever it stands",
)
edit(
    "Encoder",
    "padding hidden in the first block only",
    old="x = block(x, mask=mask)",
    new="x, mask = block(x, mask=mask), None",
    caught_by="no token attends to padding, wherever it stands",
)
edit(
    "Encoder",
    "every text hidden by the first one's mask",
    old="attention_mask.bool()[:, None, None, :]",
    new="attention_mask.bool()[:1, None, None, :]",
    caught_by="a text gets the same vectors alone and padded among longer ones",
)
edit(
    "Encoder",
    "positions counted from the end",
    old="x = self.positions(x)",
    new="x = self.positions(x, offset=config.max_len - T)",
    caught_by="a text gets the same vectors alone and padded among longer ones",
)
edit(
    "Encoder",
    "boolean masks only",
    old="attention_mask.bool()[:, None, None, :]",
    new="attention_mask[:, None, None, :]",
    caught_by="the attention mask may be boolean or numbers; None hides nothing",
)
edit(
    "Encoder",
    "padding guessed from id 0",
    old="mask = None\n",
    new="mask = (ids != 0)[:, None, None, :]\n",
    caught_by="the attention mask may be boolean or numbers; None hides nothing",
)
edit(
    "Encoder",
    "a text without a token divides by zero",
    old='return self.norm(x) if config.placement == "pre" else x',
    new='x = self.norm(x) if config.placement == "pre" else x\n'
    "        return x if mask is None else x * mask[:, 0, 0, :, None] / mask.any(dim=-1)[:, 0, :, None]",
    caught_by="a text that is all padding gives no NaN and leaves the others alone",
)
edit(
    "Encoder",
    "no positions",
    old="x = self.positions(x)",
    new="pass",
    caught_by="positions are added once, of the kind that the plan names",
)
edit(
    "Encoder",
    "no fixed positions",
    old="x = x + self.table[:T]",
    new="pass",
    caught_by="positions are added once, of the kind that the plan names",
)
edit(
    "Encoder",
    "positions added after the norm",
    old='        if config.positions == "learned":\n            x = self.positions(x)\n'
    '        elif config.positions == "sinusoidal":\n            x = x + self.table[:T]\n'
    '        if config.placement == "post":\n            x = self.norm(x)\n',
    new='        if config.placement == "post":\n            x = self.norm(x)\n'
    '        if config.positions == "learned":\n            x = self.positions(x)\n'
    '        elif config.positions == "sinusoidal":\n            x = x + self.table[:T]\n',
    caught_by="positions are added once, of the kind that the plan names",
)
edit(
    "Encoder",
    "positions added before every block",
    old="x = block(x, mask=mask)",
    new='x = block(x, mask=mask)\n            x = self.positions(x) if config.positions == "learned" else x',
    caught_by="positions are added once, of the kind that the plan names",
)
edit(
    "Encoder",
    "one block many times",
    old="nn.ModuleList(TransformerBlock(config) for _ in range(config.n_layers))",
    new="nn.ModuleList([TransformerBlock(config)] * config.n_layers)",
    caught_by="every block has weights of its own",
)
edit(
    "Encoder",
    "causal plans taken",
    old="if config.causal:",
    new="if False:",
    caught_by="a causal plan is a ValueError that names the field",
)
edit(
    "Encoder",
    "no check of the length",
    old='if config.positions in ("learned", "sinusoidal") and config.max_len < T:',
    new="if False:",
    caught_by="a text longer than the positions is a ValueError that names both lengths",
)
edit(
    "Encoder",
    "the length checked without positions too",
    old='if config.positions in ("learned", "sinusoidal") and config.max_len < T:',
    new="if config.max_len < T:",
    caught_by="a text longer than the positions is a ValueError that names both lengths",
)
edit(
    "Encoder",
    "always float32",
    old='return self.norm(x) if config.placement == "pre" else x',
    new='return (self.norm(x) if config.placement == "pre" else x).float()',
    caught_by="it works in float64 where its parameters are float64",
)
edit(
    "Encoder",
    "the embeddings cut off from the gradient",
    old="x = self.embedding(ids)",
    new="x = self.embedding(ids).detach()",
    caught_by="gradients reach every parameter",
)
