"""Wrong masking and pooling, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# mask_tokens

edit(
    "mask_tokens",
    "every chosen token becomes the mask",
    old="chosen & (fate < 0.8)",
    new="chosen & (fate < 2)",
    caught_by="of the chosen, 80% become the mask's id, 10% a random id, and 10% stay",
)
edit(
    "mask_tokens",
    "10% of what is left get a random id",
    old="chosen & (fate >= 0.8) & (fate < 0.9)",
    new="chosen & (fate >= 0.8) & (draw() < 0.1)",
    caught_by="of the chosen, 80% become the mask's id, 10% a random id, and 10% stay",
)
edit(
    "mask_tokens",
    "none stays",
    old="(fate >= 0.8) & (fate < 0.9)",
    new="(fate >= 0.8)",
    caught_by="of the chosen, 80% become the mask's id, 10% a random id, and 10% stay",
)
edit(
    "mask_tokens",
    "one fate for a whole text",
    old="fate = draw()",
    new="fate = draw()[:, :1].expand(ids.shape)",
    caught_by="of the chosen, 80% become the mask's id, 10% a random id, and 10% stay",
)
edit(
    "mask_tokens",
    "the fate read off the number that chose, so that all are hidden",
    old="fate = draw()",
    new="fate = torch.where(chosen, torch.zeros(ids.shape), torch.ones(ids.shape))",
    caught_by="of the chosen, 80% become the mask's id, 10% a random id, and 10% stay",
)
edit(
    "mask_tokens",
    "another id for the mask, BERT's 103",
    old="chosen & (fate < 0.8), mask_id",
    new="chosen & (fate < 0.8), 103",
    caught_by="of the chosen, 80% become the mask's id, 10% a random id, and 10% stay",
)
edit(
    "mask_tokens",
    "labels everywhere",
    old="labels = ids.masked_fill(~chosen, -100)",
    new="labels = ids.clone()",
    caught_by="labels hold the true id where a token was chosen, and -100 elsewhere",
)
edit(
    "mask_tokens",
    "labels where a token was not chosen",
    old="ids.masked_fill(~chosen, -100)",
    new="ids.masked_fill(chosen, -100)",
    caught_by="labels hold the true id where a token was chosen, and -100 elsewhere",
)
edit(
    "mask_tokens",
    "labels 0 in place of -100",
    old="ids.masked_fill(~chosen, -100)",
    new="ids.masked_fill(~chosen, 0)",
    caught_by="labels hold the true id where a token was chosen, and -100 elsewhere",
)
edit(
    "mask_tokens",
    "labels only for those that were hidden",
    old="return torch.where(",
    new="labels = labels.masked_fill(inputs == ids, -100)\n    return torch.where(",
    caught_by="labels hold the true id where a token was chosen, and -100 elsewhere",
)


@mutant(
    "labels read after the hiding", caught_by="labels hold the true id where a token was chosen, and -100 elsewhere"
)
def mask_tokens(
    ids: Tensor,
    mask_id: int,
    vocab_size: int,
    p: float = 0.15,
    generator: torch.Generator | None = None,
    special_ids: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    chosen = torch.rand(ids.shape, generator=generator) < p
    for special in special_ids:
        chosen &= ids != special
    fate = torch.rand(ids.shape, generator=generator)
    inputs = ids.masked_fill(chosen & (fate < 0.8), mask_id)
    labels = inputs.masked_fill(~chosen, -100)
    random_ids = torch.randint(vocab_size, ids.shape, generator=generator)
    return torch.where(chosen & (fate >= 0.9), random_ids, inputs), labels


edit(
    "mask_tokens",
    "p ignored",
    old="chosen = draw() < p",
    new="chosen = draw() < 0.15",
    caught_by="each token is chosen with probability p, on its own",
)
edit(
    "mask_tokens",
    "chosen where the number is above p",
    old="chosen = draw() < p",
    new="chosen = draw() > p",
    caught_by="each token is chosen with probability p, on its own",
)
edit(
    "mask_tokens",
    "the same places in every text",
    old="chosen = draw() < p",
    new="chosen = (draw()[:1] < p).expand(ids.shape).clone()",
    caught_by="each token is chosen with probability p, on its own",
)
edit(
    "mask_tokens",
    "whole texts chosen",
    old="chosen = draw() < p",
    new="chosen = (draw()[:, :1] < p).expand(ids.shape).clone()",
    caught_by="each token is chosen with probability p, on its own",
)
edit(
    "mask_tokens",
    "the same number chosen in every text",
    old="chosen = draw() < p",
    new="chosen = draw().argsort(dim=1) < round(p * ids.shape[1])",
    caught_by="each token is chosen with probability p, on its own",
)
edit(
    "mask_tokens",
    "p is of the hidden, not of the chosen",
    old="chosen = draw() < p",
    new="chosen = draw() < p / 0.8",
    caught_by="each token is chosen with probability p, on its own",
)
edit(
    "mask_tokens",
    "random ids but for the first",
    old="torch.randint(vocab_size, ids.shape",
    new="torch.randint(1, vocab_size, ids.shape",
    caught_by="a random id may be any of the vocabulary, each as often as another",
)
edit(
    "mask_tokens",
    "random ids of a fixed vocabulary",
    old="torch.randint(vocab_size, ids.shape",
    new="torch.randint(1000, ids.shape",
    caught_by="a random id may be any of the vocabulary, each as often as another",
)
edit(
    "mask_tokens",
    "one random id for all",
    old="torch.randint(vocab_size, ids.shape,",
    new="torch.randint(vocab_size, (1, 1),",
    caught_by="a random id may be any of the vocabulary, each as often as another",
)
edit(
    "mask_tokens",
    "one random id a text",
    old="torch.randint(vocab_size, ids.shape,",
    new="torch.randint(vocab_size, (ids.shape[0], 1),",
    caught_by="a random id may be any of the vocabulary, each as often as another",
)
edit(
    "mask_tokens",
    "random ids that may be vocab_size too",
    old="torch.randint(vocab_size, ids.shape",
    new="torch.randint(vocab_size + 1, ids.shape",
    caught_by="a random id may be any of the vocabulary, each as often as another",
)
edit(
    "mask_tokens",
    "tokens that were not chosen become random too",
    old="torch.where(chosen & (fate >= 0.8)",
    new="torch.where((fate >= 0.8)",
    caught_by="labels hold the true id where a token was chosen, and -100 elsewhere",
)
edit(
    "mask_tokens",
    "special ids ignored",
    old="chosen &= ids != special",
    new="pass",
    caught_by="special ids are never chosen, whatever p is",
)
edit(
    "mask_tokens",
    "only the first special id spared",
    old="for special in special_ids:",
    new="for special in special_ids[:1]:",
    caught_by="special ids are never chosen, whatever p is",
)
edit(
    "mask_tokens",
    "id 0 always spared",
    old="for special in special_ids:",
    new="for special in (0, *special_ids):",
    caught_by="special ids are never chosen, whatever p is",
)
edit(
    "mask_tokens",
    "special ids spared after the labels are made",
    old="    for special in special_ids:\n        chosen &= ids != special\n"
    "    labels = ids.masked_fill(~chosen, -100)\n",
    new="    labels = ids.masked_fill(~chosen, -100)\n"
    "    for special in special_ids:\n        chosen &= ids != special\n",
    caught_by="special ids are never chosen, whatever p is",
)
edit(
    "mask_tokens",
    "the generator ignored",
    old="partial(torch.rand, ids.shape, generator=generator, device=ids.device)",
    new="partial(torch.rand, ids.shape, device=ids.device)",
    caught_by="the same generator's seed gives the same result, another seed another",
)
edit(
    "mask_tokens",
    "random ids without the generator",
    old="torch.randint(vocab_size, ids.shape, generator=generator, device=ids.device, dtype=ids.dtype)",
    new="torch.randint(vocab_size, ids.shape, device=ids.device, dtype=ids.dtype)",
    caught_by="the same generator's seed gives the same result, another seed another",
)
edit(
    "mask_tokens",
    "always the same seed",
    old="    if not 0 <= p <= 1:",
    new="    generator = torch.Generator().manual_seed(0)\n    if not 0 <= p <= 1:",
    caught_by="the same generator's seed gives the same result, another seed another",
)
edit(
    "mask_tokens",
    "any p goes",
    old="if not 0 <= p <= 1:",
    new="if False:",
    caught_by="p may be anything from 0 to 1; else a ValueError that names it",
)
edit(
    "mask_tokens",
    "the ends refused",
    old="if not 0 <= p <= 1:",
    new="if not 0 < p < 1:",
    caught_by="p may be anything from 0 to 1; else a ValueError that names it",
)
edit(
    "mask_tokens",
    "hidden in place",
    old="inputs = ids.masked_fill(",
    new="inputs = ids.masked_fill_(",
    caught_by="the ids that were passed in stay as they were",
)

# mean_pool

edit(
    "mean_pool",
    "divided by T",
    old="tokens.sum(dim=1).clamp(min=1)",
    new="hidden.shape[1]",
    caught_by="the sum is divided by the number of tokens, not by T",
)
edit(
    "mean_pool",
    "divided by the longest text's length",
    old="tokens.sum(dim=1).clamp(min=1)",
    new="tokens.sum(dim=1).max().clamp(min=1)",
    caught_by="the sum is divided by the number of tokens, not by T",
)
edit(
    "mean_pool",
    "padding counted in the sum",
    old="hidden.masked_fill(~tokens, 0)",
    new="hidden",
    caught_by="what stands at padding changes nothing",
)
edit(
    "mean_pool",
    "padding in place of tokens",
    old="attention_mask.bool()",
    new="~attention_mask.bool()",
    caught_by="what stands at padding changes nothing",
)
edit(
    "mean_pool",
    "the first positions, as many as there are tokens",
    old="attention_mask.bool().unsqueeze(-1)",
    new="(torch.arange(hidden.shape[1]) < attention_mask.bool().sum(1, keepdim=True)).unsqueeze(-1)",
    caught_by="what stands at padding changes nothing",
)
edit(
    "mean_pool",
    "the plain mean",
    old="total / tokens.sum(dim=1).clamp(min=1)",
    new="hidden.mean(dim=1)",
    caught_by="what stands at padding changes nothing",
)
edit(
    "mean_pool",
    "the first token's vector",
    old="total / tokens.sum(dim=1).clamp(min=1)",
    new="hidden[:, 0]",
    caught_by="without padding it is the mean over the positions",
)
edit(
    "mean_pool",
    "the sum",
    old="total / tokens.sum(dim=1).clamp(min=1)",
    new="total",
    caught_by="without padding it is the mean over the positions",
)
edit(
    "mean_pool",
    "the mean over the batch",
    old="total / tokens.sum(dim=1).clamp(min=1)",
    new="hidden.mean(dim=0)",
    caught_by="without padding it is the mean over the positions",
)
edit(
    "mean_pool",
    "made to length 1",
    old="total / tokens.sum(dim=1).clamp(min=1)",
    new="torch.nn.functional.normalize(total, dim=-1)",
    caught_by="without padding it is the mean over the positions",
)
edit(
    "mean_pool",
    "zero divided by zero",
    old=".clamp(min=1)",
    new="",
    caught_by="a text without a token gives zeros, and spoils no gradient",
)
edit(
    "mean_pool",
    "one added to the count",
    old="tokens.sum(dim=1).clamp(min=1)",
    new="(tokens.sum(dim=1) + 1)",
    caught_by="the sum is divided by the number of tokens, not by T",
)


@mutant(
    "NaN repaired in the result, not in the gradient",
    caught_by="a text without a token gives zeros, and spoils no gradient",
)
def mean_pool(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    weights = attention_mask.to(hidden.dtype).unsqueeze(-1)
    return torch.nan_to_num((hidden * weights).sum(dim=1) / weights.sum(dim=1))


edit(
    "mean_pool",
    "boolean masks only",
    old="attention_mask.bool().unsqueeze(-1)",
    new="(~(~attention_mask)).unsqueeze(-1)",
    caught_by="the mask may be boolean or numbers, the vectors of any dtype",
)
edit(
    "mean_pool",
    "always float32",
    old="total / tokens.sum(dim=1).clamp(min=1)",
    new="(total / tokens.sum(dim=1).clamp(min=1)).float()",
    caught_by="the mask may be boolean or numbers, the vectors of any dtype",
)
edit(
    "mean_pool",
    "padding filled in place",
    old="hidden.masked_fill(",
    new="hidden.data.masked_fill_(",
    caught_by="gradients flow to the tokens, and nothing passed in is changed",
)
edit(
    "mean_pool",
    "cut off from the gradient",
    old="hidden.masked_fill(",
    new="hidden.detach().masked_fill(",
    caught_by="gradients flow to the tokens, and nothing passed in is changed",
)
