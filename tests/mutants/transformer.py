"""Wrong transformers, each with the property that must catch it."""

from course.grading.specimens import edit

# TransformerBlock

edit(
    "TransformerBlock",
    "one norm for both parts",
    old="self.feed_forward = Residual(feed_forward, make_norm(config), config.placement)",
    new="self.feed_forward = Residual(feed_forward, self.attention.norm, config.placement)",
    caught_by="pre and post equal torch.nn.TransformerEncoderLayer on the same weights",
)
edit(
    "TransformerBlock",
    "the network before attention",
    old="x = self.attention(x, mask=mask, **cache)\n        return self.feed_forward(x)",
    new="x = self.feed_forward(x)\n        return self.attention(x, mask=mask, **cache)",
    caught_by="the feed-forward network works on what attention has added",
)
edit(
    "TransformerBlock",
    "both parts side by side",
    old="x = self.attention(x, mask=mask, **cache)\n        return self.feed_forward(x)",
    new="return self.attention(x, mask=mask, **cache) + self.feed_forward(x) - x",
    caught_by="the feed-forward network works on what attention has added",
)
edit(
    "TransformerBlock",
    "the mask forgotten",
    old="self.attention(x, mask=mask, **cache)",
    new="self.attention(x, mask=None, **cache)",
    caught_by="the mask reaches attention",
)
edit(
    "TransformerBlock",
    "further keywords dropped",
    old="mask=mask, **cache)\n",
    new="mask=mask)\n",
    caught_by="further keywords reach attention, and attention alone",
)
edit(
    "TransformerBlock",
    "always pre-norm",
    old="config.placement",
    new='"pre"',
    caught_by="pre and post equal torch.nn.TransformerEncoderLayer on the same weights",
)
edit(
    "TransformerBlock",
    "eps left at its default",
    old="make_norm(config)",
    new="type(make_norm(config))(config.d_model)",
    caught_by="the plan's norm, its eps and the heads are used",
)
edit(
    "TransformerBlock",
    "always LayerNorm",
    old="make_norm(config)",
    new="LayerNorm(config.d_model, eps=config.norm_eps)",
    caught_by="its parts are attention and feed_forward, each a Residual with a norm of its own",
)
edit(
    "TransformerBlock",
    "one head whatever the plan says",
    old="config.n_heads",
    new="1",
    caught_by="the plan's norm, its eps and the heads are used",
)
edit(
    "TransformerBlock",
    "attention never with biases",
    old="bias=config.bias",
    new="bias=False",
    caught_by="its parts are attention and feed_forward, each a Residual with a norm of its own",
)
edit(
    "TransformerBlock",
    "four times the width, GELU and bias whatever the plan says",
    old="make_feed_forward(config)",
    new="FeedForward(config.d_model)",
    caught_by="the plan's network is used: kind, width, activation and bias",
)
edit(
    "TransformerBlock",
    "the activation of the plan ignored",
    old="make_feed_forward(config)",
    new='make_feed_forward(__import__("dataclasses").replace(config, activation="gelu"))',
    caught_by="the plan's network is used: kind, width, activation and bias",
)
edit(
    "TransformerBlock",
    "the modules handed in ignored",
    old="if feed_forward is None:",
    new="if True:",
    caught_by="modules handed in take the places of attention and feed-forward network",
)

# Transformer

edit(
    "Transformer",
    "one block many times",
    old="nn.ModuleList(TransformerBlock(config) for _ in range(config.n_layers))",
    new="nn.ModuleList([TransformerBlock(config)] * config.n_layers)",
    caught_by="every block has weights of its own",
)
edit(
    "Transformer",
    "always two blocks",
    old="range(config.n_layers)",
    new="range(2)",
    caught_by="every block has weights of its own",
)
edit(
    "Transformer",
    "always causal",
    old="causal_mask(T, device=ids.device) if config.causal else None",
    new="causal_mask(T, device=ids.device)",
    caught_by="causal: no position's logits depend on later ids; otherwise they do",
)
edit(
    "Transformer",
    "no mask",
    old="causal_mask(T, device=ids.device) if config.causal else None",
    new="None",
    caught_by="causal: no position's logits depend on later ids; otherwise they do",
)
edit(
    "Transformer",
    "the mask for the first block only",
    old="x = block(x, mask=mask, **cache)",
    new="x, mask = block(x, mask=mask, **cache), None",
    caught_by="causal: no position's logits depend on later ids; otherwise they do",
)
edit(
    "Transformer",
    "no positions",
    old="x = self.positions(x, offset=offset)",
    new="pass",
    caught_by="positions are added once, of the kind that the plan names",
)
edit(
    "Transformer",
    "positions added before every block",
    old="        for block in self.blocks:\n",
    new="        for block in self.blocks:\n"
    '            if config.positions == "learned" and block is not self.blocks[0]:\n'
    "                x = self.positions(x)\n",
    caught_by="positions are added once, of the kind that the plan names",
)
edit(
    "Transformer",
    "the fixed table left out",
    old="x = x + self.table[offset : offset + T]",
    new="pass",
    caught_by="positions are added once, of the kind that the plan names",
)
edit(
    "Transformer",
    "no last norm",
    old="x = self.norm(x)\n",
    new="x = x\n",
    caught_by="a last norm for pre, none for post",
)
edit(
    "Transformer",
    "a last norm for post too",
    old='make_norm(config) if config.placement == "pre" else nn.Identity()',
    new="make_norm(config)",
    caught_by="its parts have the names of the contract, and no more than the plan needs",
)
edit(
    "Transformer",
    "lm_head made and not used",
    old="return self.embedding.unembed(x) if config.tied_embeddings else self.lm_head(x)",
    new="return self.embedding.unembed(x)",
    caught_by="tied embeddings share one table; otherwise lm_head scores",
)
edit(
    "Transformer",
    "a table of its own for the output though tied",
    old="if not config.tied_embeddings:",
    new="if True:",
    caught_by="its parts have the names of the contract, and no more than the plan needs",
)
edit(
    "Transformer",
    "probabilities in place of scores",
    old="return self.embedding.unembed(x) if config.tied_embeddings else self.lm_head(x)",
    new="x = self.embedding.unembed(x) if config.tied_embeddings else self.lm_head(x)\n"
    "        return x.softmax(dim=-1)",
    caught_by="the logits are those of embedding, positions, blocks, norm and unembedding, in this order",
)
edit(
    "Transformer",
    "embeddings scaled by the root of D",
    old="x = self.embedding(ids)",
    new="x = self.embedding(ids) * config.d_model**0.5",
    caught_by="the logits are those of embedding, positions, blocks, norm and unembedding, in this order",
)
edit(
    "Transformer",
    "no check of the length",
    old='config.positions in ("learned", "sinusoidal") and',
    new="False and",
    caught_by="a sequence longer than the positions is a ValueError that names both lengths",
)
edit(
    "Transformer",
    "the length checked without positions too",
    old='config.positions in ("learned", "sinusoidal") and',
    new="True and",
    caught_by="a sequence longer than the positions is a ValueError that names both lengths",
)
edit(
    "Transformer",
    "the embedding cut off from the gradient",
    old="x = self.embedding(ids)",
    new="x = self.embedding(ids).detach()",
    caught_by="gradients reach every parameter",
)

edit(
    "Transformer",
    "positions restart at zero, learned",
    old="self.positions(x, offset=offset)",
    new="self.positions(x)",
    caught_by="with an offset, positions start there",
)
edit(
    "Transformer",
    "positions restart at zero, sinusoidal",
    old="self.table[offset : offset + T]",
    new="self.table[:T]",
    caught_by="with an offset, positions start there",
)
edit(
    "Transformer",
    "the length checked without the offset",
    old="offset + T > config.max_len",
    new="config.max_len < T",
    caught_by="with an offset, positions start there",
)
edit(
    "Transformer",
    "keywords dropped",
    old="mask=mask, **cache)",
    new="mask=mask)",
    caught_by="further keywords reach every block, and positions of another kind add nothing",
)
edit(
    "Transformer",
    "keywords for the first block only",
    old="x = block(x, mask=mask, **cache)",
    new="x, cache = block(x, mask=mask, **cache), {}",
    caught_by="further keywords reach every block, and positions of another kind add nothing",
)
edit(
    "Transformer",
    "any other kind of positions is taken for sinusoidal",
    old='elif config.positions == "sinusoidal":',
    new='elif config.positions != "none":',
    caught_by="further keywords reach every block, and positions of another kind add nothing",
)

# DecoderBlock

edit(
    "DecoderBlock",
    "queries from the source",
    old="x = self.cross_attention(x, context=source, mask=source_mask)",
    new="x = x + self.cross_attention(source, context=x).mean(dim=1, keepdim=True)",
    caught_by="queries come from what is written, keys and values from the source",
)
edit(
    "DecoderBlock",
    "the source ignored",
    old="self.cross_attention(x, context=source, mask=source_mask)",
    new="self.cross_attention(x, mask=None)",
    caught_by="queries come from what is written, keys and values from the source",
)
edit(
    "DecoderBlock",
    "the causal mask on cross-attention too",
    old="mask=source_mask)",
    new="mask=mask if source_mask is None and x.shape[1] == source.shape[1] else source_mask)",
    caught_by="the mask is for self-attention, not for cross-attention",
)
edit(
    "DecoderBlock",
    "no causal mask in self-attention",
    old="self.attention(x, mask=mask)",
    new="self.attention(x, mask=None)",
    caught_by="the mask is for self-attention, not for cross-attention",
)
edit(
    "DecoderBlock",
    "the source's mask forgotten",
    old="mask=source_mask)",
    new="mask=None)",
    caught_by="the source's mask is for cross-attention",
)
edit(
    "DecoderBlock",
    "the source before what is written",
    old="x = self.attention(x, mask=mask)\n        x = self.cross_attention(x, context=source, mask=source_mask)",
    new="x = self.cross_attention(x, context=source, mask=source_mask)\n        x = self.attention(x, mask=mask)",
    caught_by="the output is that of self-attention, cross-attention and network, in this order",
)
edit(
    "DecoderBlock",
    "no network",
    old="return self.feed_forward(x)",
    new="return x",
    caught_by="the output is that of self-attention, cross-attention and network, in this order",
)
edit(
    "DecoderBlock",
    "always pre-norm",
    old="config.placement",
    new='"pre"',
    caught_by="the output is that of self-attention, cross-attention and network, in this order",
)
edit(
    "DecoderBlock",
    "one attention for both jobs",
    old="Residual(looks_across,",
    new="Residual(looks_back,",
    caught_by="the output is that of self-attention, cross-attention and network, in this order",
)
edit(
    "DecoderBlock",
    "cross-attention without a norm",
    old="x = self.cross_attention(x, context=source, mask=source_mask)",
    new="x = x + self.cross_attention.sublayer(x, context=source, mask=source_mask)",
    caught_by="the output is that of self-attention, cross-attention and network, in this order",
)
edit(
    "DecoderBlock",
    "the source cut off from the gradient",
    old="context=source",
    new="context=source.detach()",
    caught_by="gradients reach the stream and the source",
)
edit(
    "DecoderBlock",
    "the cross-attention under another name",
    old="self.cross_attention",
    new="self.cross",
    caught_by="its parts are attention, cross_attention and feed_forward, each a Residual",
)

edit(
    "TransformerBlock",
    "the stream cut off from the gradient",
    old="x = self.attention(x, mask=mask, **cache)",
    new="x = self.attention(x.detach(), mask=mask, **cache)",
    caught_by="gradients reach the stream and every parameter of the block",
)

edit(
    "Transformer",
    "the plan kept under another name",
    old="self.config",
    new="self.plan",
    caught_by="the plan is kept as config",
)

edit(
    "Transformer",
    "the message names offset + T",
    old="offset {offset}, T {T}, max_len",
    new="{offset + T} are needed, max_len",
    caught_by="the message names T and max_len with an offset too",
)

edit(
    "Transformer",
    "the last norm with an eps of its own",
    old='make_norm(config) if config.placement == "pre"',
    new="make_norm(Config(d_model=config.d_model, n_heads=config.n_heads, norm=config.norm)) "
    'if config.placement == "pre"',
    caught_by="the last norm is of the kind and eps that the plan names",
)

edit(
    "Transformer",
    "rope limited by max_len",
    old='config.positions in ("learned", "sinusoidal") and',
    new='config.positions != "none" and',
    caught_by="positions that are not added have no longest sequence",
)

edit(
    "Transformer",
    "lm_head cut off from the gradient",
    old="self.lm_head(x)",
    new="x @ self.lm_head.weight.detach().T",
    caught_by="gradients reach every parameter of every kind of plan",
)

edit(
    "DecoderBlock",
    "no causal mask where the source is masked",
    old="self.attention(x, mask=mask)",
    new="self.attention(x, mask=mask if source_mask is None else None)",
    caught_by="both masks work at once, each in its place",
)

edit(
    "DecoderBlock",
    "the eps of the plan ignored",
    old="make_norm(config)",
    new="make_norm(Config(d_model=config.d_model, n_heads=config.n_heads, norm=config.norm))",
    caught_by="the plan's norm, eps, network and heads are used in the decoder too",
)
