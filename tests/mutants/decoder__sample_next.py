"""Wrong draws of the next token, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

edit(
    "sample_next",
    "always the likeliest",
    old="torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)",
    new="probabilities.argmax(dim=-1)",
    caught_by="ids are drawn in proportion to their probabilities",
)
edit(
    "sample_next",
    "drawn in proportion to the scores",
    old="probabilities = softmax_with_temperature(logits, temperature)",
    new="probabilities = (logits / temperature).clamp(min=0) + 1e-6",
    caught_by="ids are drawn in proportion to their probabilities",
)
edit(
    "sample_next",
    "softmax over the rows",
    old="softmax_with_temperature(logits, temperature)",
    new="softmax_with_temperature(logits, temperature, dim=0)",
    caught_by="each row is drawn from its own scores",
)
edit(
    "sample_next",
    "the first row's draw for all",
    old="torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)",
    new="torch.multinomial(probabilities[0], len(logits), replacement=True, generator=generator)",
    caught_by="each row is drawn from its own scores",
)
edit(
    "sample_next",
    "a single row's id without its dimension",
    old="generator=generator).squeeze(-1)",
    new="generator=generator).squeeze()",
    caught_by="each row is drawn from its own scores",
)
edit(
    "sample_next",
    "multiplied by the temperature",
    old="softmax_with_temperature(logits, temperature)",
    new="softmax_with_temperature(logits, 1 / temperature)",
    caught_by="a temperature below one sharpens, above one flattens, and zero takes the likeliest",
)
edit(
    "sample_next",
    "the temperature ignored",
    old="softmax_with_temperature(logits, temperature)",
    new="softmax_with_temperature(logits, 1.0)",
    caught_by="a temperature below one sharpens, above one flattens, and zero takes the likeliest",
)
edit(
    "sample_next",
    "no case for temperature zero",
    old="if temperature == 0:\n        return logits.argmax(dim=-1)",
    new="temperature = max(temperature, 1e-1) if temperature >= 0 else temperature",
    caught_by="a temperature below one sharpens, above one flattens, and zero takes the likeliest",
)
edit(
    "sample_next",
    "the last of equals at temperature zero",
    old="return logits.argmax(dim=-1)",
    new="return logits.shape[-1] - 1 - logits.flip(-1).argmax(dim=-1)",
    caught_by="a temperature below one sharpens, above one flattens, and zero takes the likeliest",
)
edit(
    "sample_next",
    "all ids that equal the k-th kept",
    old="chosen = logits.topk(top_k, dim=-1).indices  # exactly k, even if scores are equal\n"
    "        dropped = torch.ones_like(logits, dtype=torch.bool).scatter(-1, chosen, False)",
    new="dropped = logits < logits.topk(top_k, dim=-1).values[:, -1:]",
    caught_by="top_k keeps the k likeliest ids, and no more where scores are equal",
)
edit(
    "sample_next",
    "one id too many with top_k",
    old="logits.topk(top_k, dim=-1)",
    new="logits.topk(top_k + 1, dim=-1)",
    caught_by="top_k keeps the k likeliest ids, and no more where scores are equal",
)
edit(
    "sample_next",
    "top_k ignored",
    old="if top_k is not None and top_k < logits.shape[-1]:",
    new="if False:",
    caught_by="top_k keeps the k likeliest ids, and no more where scores are equal",
)
edit(
    "sample_next",
    "dropped scores set to zero",
    old="logits = logits.masked_fill(dropped, -math.inf)",
    new="logits = logits.masked_fill(dropped, 0.0)",
    caught_by="top_k keeps the k likeliest ids, and no more where scores are equal",
)
edit(
    "sample_next",
    "the id that crosses p dropped",
    old="before = ordered.cumsum(dim=-1) - ordered",
    new="before = ordered.cumsum(dim=-1)",
    caught_by="top_p keeps the fewest likeliest ids that reach p, with the one that crosses it",
)
edit(
    "sample_next",
    "every id with a probability of at least p",
    old="ordered.masked_fill(before >= top_p, 0)",
    new="ordered.masked_fill((ordered < top_p) & (before > 0), 0)",
    caught_by="top_p keeps the fewest likeliest ids that reach p, with the one that crosses it",
)
edit(
    "sample_next",
    "sorted the wrong way",
    old="descending=True",
    new="descending=False",
    caught_by="top_p keeps the fewest likeliest ids that reach p, with the one that crosses it",
)
edit(
    "sample_next",
    "left in sorted order",
    old="torch.zeros_like(ordered).scatter(-1, order, ordered.masked_fill(before >= top_p, 0))",
    new="ordered.masked_fill(before >= top_p, 0)",
    caught_by="top_p keeps the fewest likeliest ids that reach p, with the one that crosses it",
)
edit(
    "sample_next",
    "top_p before the temperature",
    old="ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)\n"
    "        before = ordered.cumsum(dim=-1) - ordered",
    new="plain, order = softmax_with_temperature(logits, 1.0).sort(dim=-1, descending=True, stable=True)\n"
    "        ordered = probabilities.gather(-1, order)\n"
    "        before = plain.cumsum(dim=-1) - plain",
    caught_by="the temperature comes before top_p, and top_k before it",
)


@mutant(
    "top_p before top_k",
    caught_by="the temperature comes before top_p, and top_k before it",
)
def sample_next(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise ValueError(f"temperature {temperature}, top_k {top_k}, top_p {top_p}")
    if temperature == 0:
        return logits.argmax(dim=-1)
    ordered, order = (logits / temperature).softmax(dim=-1).sort(dim=-1, descending=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if top_p is not None:
        keep &= ordered.cumsum(dim=-1) - ordered < top_p
    if top_k is not None:
        keep &= torch.arange(ordered.shape[-1]) < top_k
    place = torch.multinomial(ordered * keep, 1, generator=generator)
    return order.gather(-1, place).squeeze(-1)


edit(
    "sample_next",
    "the generator ignored",
    old="generator=generator)",
    new="generator=None)",
    caught_by="the same generator draws the same ids, another seed others",
)
edit(
    "sample_next",
    "one seed for ever",
    old="generator=generator)",
    new="generator=torch.Generator().manual_seed(0))",
    caught_by="the same generator draws the same ids, another seed others",
)
edit(
    "sample_next",
    "top_k not checked",
    old="if top_k is not None and top_k < 1:",
    new="if False:",
    caught_by="settings that cannot be are a ValueError that names them",
)
edit(
    "sample_next",
    "top_p not checked",
    old="if top_p is not None and not 0 < top_p <= 1:",
    new="if False:",
    caught_by="settings that cannot be are a ValueError that names them",
)
edit(
    "sample_next",
    "the scores filtered in place",
    old="logits = logits.masked_fill(dropped, -math.inf)",
    new="logits = logits.masked_fill_(dropped, -math.inf)",
    caught_by="the scores are left as they were",
)
