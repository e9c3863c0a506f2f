"""Wrong decoders, each with the property that must catch it."""

from course.grading.specimens import edit

# next_token_loss

edit(
    "next_token_loss",
    "no shift",
    old="ids[:, 1:].flatten()",
    new="ids[:, :-1].flatten()",
    caught_by="each position is asked for the id that follows it",
)
edit(
    "next_token_loss",
    "shifted twice",
    old="cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
    new="cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 2:].flatten()) if ids.shape[1] > 2 else logits.sum()",
    caught_by="each position is asked for the id that follows it",
)
edit(
    "next_token_loss",
    "asked for the id before",
    old="logits = model(ids[:, :-1])",
    new="logits = model(ids[:, 1:])",
    caught_by="each position is asked for the id that follows it",
)
edit(
    "next_token_loss",
    "targets in the order of another dimension",
    old="ids[:, 1:].flatten()",
    new="ids[:, 1:].T.flatten()",
    caught_by="each position is asked for the id that follows it",
)
edit(
    "next_token_loss",
    "the sum over a sequence",
    old="return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
    new="return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) * (ids.shape[1] - 1)",
    caught_by="every prediction of every sequence has the same weight",
)
edit(
    "next_token_loss",
    "divided by T",
    old="return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
    new="return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) * (ids.shape[1] - 1) / ids.shape[1]",
    caught_by="every prediction of every sequence has the same weight",
)
edit(
    "next_token_loss",
    "in bits",
    old="return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
    new="return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / math.log(2)",
    caught_by="every prediction of every sequence has the same weight",
)
edit(
    "next_token_loss",
    "only the last prediction",
    old="cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
    new="cross_entropy(logits[:, -1], ids[:, -1])",
    caught_by="every prediction of every sequence has the same weight",
)
edit(
    "next_token_loss",
    "cut off from the gradient",
    old="logits = model(ids[:, :-1])",
    new="logits = model(ids[:, :-1]).detach()",
    caught_by="the loss is a scalar whose gradient reaches the model",
)
edit(
    "next_token_loss",
    "a call of the model for each position",
    old="logits = model(ids[:, :-1])",
    new="logits = torch.stack([model(ids[:, :t])[:, -1] for t in range(1, ids.shape[1])], dim=1)",
    caught_by="the model is called once, for all positions together",
)
edit(
    "next_token_loss",
    "no check of the shape",
    old="if ids.dim() != 2 or ids.shape[1] < 2:",
    new="if False:",
    caught_by="ids of another shape are a ValueError that names it",
)

# generate

edit(
    "generate",
    "the first position's scores",
    old="model(ids)[:, -1]",
    new="model(ids)[:, 0]",
    caught_by="each new id is drawn from the scores of the last position",
)
edit(
    "generate",
    "only what is new returned",
    old="    return ids",
    new="    return ids[:, -max_new_tokens:]",
    caught_by="what is written continues what was there",
)
edit(
    "generate",
    "new ids put in front",
    old="torch.cat([ids, sample_next(logits, **sampling)[:, None]], dim=1)",
    new="torch.cat([sample_next(logits, **sampling)[:, None], ids], dim=1)",
    caught_by="what is written continues what was there",
)
edit(
    "generate",
    "only the last id read",
    old="model(ids)",
    new="model(ids[:, -1:])",
    caught_by="the model reads everything written so far, and once for each new id",
)
edit(
    "generate",
    "the prompt read again and again, without what is new",
    old="    for _ in range(max_new_tokens):\n        logits = model(ids)[:, -1]",
    new="    prompt = ids\n    for _ in range(max_new_tokens):\n        logits = model(prompt)[:, -1]",
    caught_by="the model reads everything written so far, and once for each new id",
)
edit(
    "generate",
    "the model called twice for each id",
    old="logits = model(ids)[:, -1]",
    new="logits = (model(ids) + model(ids))[:, -1]",
    caught_by="the model reads everything written so far, and once for each new id",
)
edit(
    "generate",
    "the settings dropped",
    old="sample_next(logits, **sampling)",
    new="sample_next(logits)",
    caught_by="the settings reach sample_next",
)
edit(
    "generate",
    "always the likeliest",
    old="sample_next(logits, **sampling)",
    new="logits.argmax(dim=-1)",
    caught_by="the settings reach sample_next",
)
edit(
    "generate",
    "one id too many",
    old="range(max_new_tokens)",
    new="range(max_new_tokens + 1)",
    caught_by="nothing new leaves the ids as they are, and the input is never changed",
)
edit(
    "generate",
    "written into what came in",
    old="    for _ in range(max_new_tokens):",
    new="    ids += 0 if max_new_tokens == 0 else torch.zeros_like(ids).index_fill_(1, torch.tensor([0]), 1)\n"
    "    for _ in range(max_new_tokens):",
    caught_by="nothing new leaves the ids as they are, and the input is never changed",
)
edit(
    "generate",
    "gradients recorded",
    old="@torch.no_grad()\n",
    new="",
    caught_by="no gradient is kept while writing",
)
