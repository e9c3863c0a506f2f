"""Wrong uses of the cache, each with the property that must catch it."""

from course.grading.specimens import edit

# attend_with_cache

edit(
    "attend_with_cache",
    "the cache updated, but the new keys and values alone looked at",
    old="k, v = cache.update(layer, k, v)",
    new="cache.update(layer, k, v)",
    caught_by="read token by token it equals causal attention over the whole text",
)
edit(
    "attend_with_cache",
    "the cache not updated",
    old="k, v = cache.update(layer, k, v)",
    new="pass",
    caught_by="read token by token it equals causal attention over the whole text",
)
edit(
    "attend_with_cache",
    "keys and values exchanged",
    old="k, v = cache.update(layer, k, v)",
    new="v, k = cache.update(layer, k, v)",
    caught_by="read token by token it equals causal attention over the whole text",
)
edit(
    "attend_with_cache",
    "the mask aligned to the start",
    old="causal_mask(q.shape[-2], k.shape[-2], device=q.device)",
    new="torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()",
    caught_by="read token by token it equals causal attention over the whole text",
)
edit(
    "attend_with_cache",
    "a mask for T x T when S > T",
    old="causal_mask(q.shape[-2], k.shape[-2], device=q.device)",
    new="causal_mask(q.shape[-2], device=q.device)",
    caught_by="several new tokens at once see the past, themselves and nothing later",
)
edit(
    "attend_with_cache",
    "no mask when the cache holds something",
    old="causal_mask(q.shape[-2], k.shape[-2], device=q.device)",
    new="causal_mask(q.shape[-2]) if q.shape[-2] == k.shape[-2] else None",
    caught_by="several new tokens at once see the past, themselves and nothing later",
)
edit(
    "attend_with_cache",
    "everyone sees everything",
    old="causal_mask(q.shape[-2], k.shape[-2], device=q.device)",
    new="torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)",
    caught_by="a text read at once into an empty cache is masked causally",
)
edit(
    "attend_with_cache",
    "the mask inverted",
    old="causal_mask(q.shape[-2], k.shape[-2], device=q.device)",
    new="~causal_mask(q.shape[-2], k.shape[-2], device=q.device)",
    caught_by="a text read at once into an empty cache is masked causally",
)
edit(
    "attend_with_cache",
    "a token does not see itself",
    old="causal_mask(q.shape[-2], k.shape[-2], device=q.device)",
    new="causal_mask(q.shape[-2], k.shape[-2], device=q.device).roll(-1, dims=-1)",
    caught_by="a text read at once into an empty cache is masked causally",
)
edit(
    "attend_with_cache",
    "always the first layer",
    old="cache.update(layer, k, v)",
    new="cache.update(0, k, v)",
    caught_by="the new keys and values join their own layer of the cache, once",
)
edit(
    "attend_with_cache",
    "keys and values stored the other way round",
    old="k, v = cache.update(layer, k, v)",
    new="v, k = cache.update(layer, v, k)",
    caught_by="the new keys and values join their own layer of the cache, once",
)
edit(
    "attend_with_cache",
    "looked at by way of the cache, then stored once more",
    old="return attend(q, k, v, mask)",
    new="T = q.shape[-2]\n    cache.update(layer, k[..., -T:, :], v[..., -T:, :])\n    return attend(q, k, v, mask)",
    caught_by="the new keys and values join their own layer of the cache, once",
)
edit(
    "attend_with_cache",
    "attend ignored",
    old="return attend(q, k, v, mask)",
    new="return attention(q, k, v, mask)",
    caught_by="a function handed in as attend is called once, with all keys and values, not repeated",
)
edit(
    "attend_with_cache",
    "keys and values repeated for the query heads",
    old="return attend(q, k, v, mask)",
    new="n = q.shape[1] // k.shape[1]\n"
    "    return attend(q, k.repeat_interleave(n, 1), v.repeat_interleave(n, 1), mask)",
    caught_by="a function handed in as attend is called once, with all keys and values, not repeated",
)
edit(
    "attend_with_cache",
    "attend called for one query at a time",
    old="return attend(q, k, v, mask)",
    new="rows = range(q.shape[-2])\n"
    "    return torch.cat([attend(q[..., t : t + 1, :], k, v, mask[t : t + 1]) for t in rows], dim=-2)",
    caught_by="a function handed in as attend is called once, with all keys and values, not repeated",
)
edit(
    "attend_with_cache",
    "queries scaled in place",
    old="return attend(q, k, v, mask)",
    new="return attend(q.mul_(2), k / 2, v, mask)",
    caught_by="queries, keys and values are left as they were",
)

# generate_cached

edit(
    "generate_cached",
    "the whole text fed again at each step, with the cache",
    old="ids = torch.cat([ids, unread], dim=1)",
    new="unread = ids = torch.cat([ids, unread], dim=1)",
    caught_by="it writes what generation without a cache writes",
)
edit(
    "generate_cached",
    "the cache not passed after the prompt",
    old="model(unread, cache=cache)",
    new="model(unread, cache=cache if unread is ids else None)",
    caught_by="it writes what generation without a cache writes",
)
edit(
    "generate_cached",
    "a new cache at each step",
    old="logits = model(unread, cache=cache)",
    new="logits = model(unread, cache=KVCache(model.config.n_layers))",
    caught_by="it writes what generation without a cache writes",
)
edit(
    "generate_cached",
    "the first position's scores",
    old="[:, -1]  #",
    new="[:, 0]  #",
    caught_by="it writes what generation without a cache writes",
)
edit(
    "generate_cached",
    "a cache of one layer",
    old="KVCache(model.config.n_layers)",
    new="KVCache(1)",
    caught_by="it writes what generation without a cache writes",
)
edit(
    "generate_cached",
    "only the new tokens returned",
    old="cache, unread = KVCache(model.config.n_layers), ids",
    new="cache, unread = KVCache(model.config.n_layers), ids\n    ids = ids[:, :0]",
    caught_by="it writes what generation without a cache writes",
)
edit(
    "generate_cached",
    "the last token of the prompt read twice",
    old="cache, unread = KVCache(model.config.n_layers), ids",
    new="cache, unread = KVCache(model.config.n_layers), ids[:, -1:]\n    model(ids, cache=cache)",
    caught_by="it writes what generation without a cache writes",
)
edit(
    "generate_cached",
    "the first text's next token for all",
    old="sample_next(logits, **sampling)[:, None]",
    new="sample_next(logits[:1], **sampling)[:, None].expand(len(ids), 1)",
    caught_by="several texts are continued side by side, each in its own way",
)
edit(
    "generate_cached",
    "no cache at all",
    old="model(unread, cache=cache)",
    new="model(ids)",
    caught_by="every token is read once: the prompt in one call, then one new token a call",
)
edit(
    "generate_cached",
    "everything read again into a new cache",
    old="model(unread, cache=cache)",
    new="model(ids, cache=KVCache(model.config.n_layers))",
    caught_by="every token is read once: the prompt in one call, then one new token a call",
)
edit(
    "generate_cached",
    "the prompt read token by token",
    old="cache, unread = KVCache(model.config.n_layers), ids",
    new="cache, unread = KVCache(model.config.n_layers), ids[:, -1:]\n"
    "    for t in range(ids.shape[1] - 1):\n"
    "        model(ids[:, t : t + 1], cache=cache)",
    caught_by="every token is read once: the prompt in one call, then one new token a call",
)
edit(
    "generate_cached",
    "the last token read too",
    old="    return ids",
    new="    model(unread, cache=cache)\n    return ids",
    caught_by="every token is read once: the prompt in one call, then one new token a call",
)
edit(
    "generate_cached",
    "the sampling keywords dropped",
    old="sample_next(logits, **sampling)",
    new="sample_next(logits, generator=sampling.get('generator'))",
    caught_by="the sampling keywords reach sample_next",
)
edit(
    "generate_cached",
    "always the likeliest token",
    old="sample_next(logits, **sampling)",
    new="logits.argmax(dim=-1)",
    caught_by="the sampling keywords reach sample_next",
)
edit(
    "generate_cached",
    "top_p dropped",
    old="sample_next(logits, **sampling)",
    new="sample_next(logits, **(sampling | {'top_p': None}))",
    caught_by="the sampling keywords reach sample_next",
)
edit(
    "generate_cached",
    "the generator dropped",
    old="sample_next(logits, **sampling)",
    new="sample_next(logits, **(sampling | {'generator': None}))",
    caught_by="one generator draws the same text again from the same seed, and another from another",
)
edit(
    "generate_cached",
    "a generator of its own, always from the same seed",
    old="sample_next(logits, **sampling)",
    new="sample_next(logits, **(sampling | {'generator': torch.Generator().manual_seed(0)}))",
    caught_by="one generator draws the same text again from the same seed, and another from another",
)
edit(
    "generate_cached",
    "one token written even when none is asked for",
    old="for _ in range(max_new_tokens)",
    new="for _ in range(max(max_new_tokens, 1))",
    caught_by="no new tokens are no change, and the prompt is left as it was",
)
edit(
    "generate_cached",
    "the prompt used as scratch space",
    old="ids = torch.cat([ids, unread], dim=1)",
    new="before, ids = ids, torch.cat([ids, unread], dim=1)\n        before.zero_()",
    caught_by="no new tokens are no change, and the prompt is left as it was",
)
edit(
    "generate_cached",
    "everything recorded for gradients",
    old="@torch.no_grad()\n",
    new="",
    caught_by="nothing is recorded for gradients while it writes",
)
