"""Wrong routers and balancing losses, each with the property that must catch it."""

from torch import Tensor

from course.grading.specimens import edit, mutant

from .softmax import softmax

# route

edit(
    "route",
    "not renormalised after the choice",
    old="weights = chosen / chosen.sum(dim=-1, keepdim=True)",
    new="weights = chosen",
    caught_by="the weights of each row sum to one, whatever k is",
)
edit(
    "route",
    "renormalised by a second softmax, of the probabilities",
    old="weights = chosen / chosen.sum(dim=-1, keepdim=True)",
    new="weights = softmax(chosen, dim=-1)",
    caught_by="the weights are the probabilities of the chosen experts, divided by their sum",
)
edit(
    "route",
    "softmax over the rows instead of the experts",
    old="softmax(scores, dim=-1)",
    new="softmax(scores, dim=0)",
    caught_by="the weights are the probabilities of the chosen experts, divided by their sum",
)
edit(
    "route",
    "a temperature of sqrt(E), as attention has one",
    old="softmax(scores, dim=-1)",
    new="softmax(scores / n_experts**0.5, dim=-1)",
    caught_by="the weights are the probabilities of the chosen experts, divided by their sum",
)
edit(
    "route",
    "every chosen expert counts alike",
    old="weights = chosen / chosen.sum(dim=-1, keepdim=True)",
    new="weights = chosen * 0 + 1 / top_k",
    caught_by="the weights are the probabilities of the chosen experts, divided by their sum",
)
edit(
    "route",
    "the lowest scores instead of the highest",
    old=".topk(top_k, dim=-1)",
    new=".topk(top_k, dim=-1, largest=False)",
    caught_by="each row's experts are those with the highest scores, the best first",
)
edit(
    "route",
    "indices sorted by number, weights by size",
    old="return weights.to(logits.dtype), indices",
    new="return weights.to(logits.dtype), indices.sort(dim=-1).values",
    caught_by="each row's experts are those with the highest scores, the best first",
)
edit(
    "route",
    "always two experts",
    old=".topk(top_k, dim=-1)",
    new=".topk(min(2, n_experts), dim=-1)",
    caught_by="one expert of k = 1 gets a weight of one, and k = E keeps every expert",
)
edit(
    "route",
    "a single choice loses its dimension",
    old="return weights.to(logits.dtype), indices",
    new="return (weights.to(logits.dtype), indices) if top_k > 1 else (weights[:, 0], indices[:, 0])",
    caught_by="one expert of k = 1 gets a weight of one, and k = E keeps every expert",
)


@mutant(
    "a threshold at the k-th score, which keeps all equals",
    caught_by="a tie still gives k different experts, with equal weights",
)
def route(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    if not 1 <= top_k <= logits.shape[-1]:
        raise ValueError(f"top_k is {top_k} of {logits.shape[-1]}")
    probs = softmax(logits, dim=-1)
    smallest = probs.topk(top_k, dim=-1).values[:, -1:]
    kept = probs * (probs >= smallest)
    weights, indices = kept.sort(dim=-1, descending=True)
    k = int((kept > 0).sum(dim=-1).max())
    return (weights / weights.sum(dim=-1, keepdim=True))[:, :k], indices[:, :k]


@mutant(
    "the k-th largest value looked up, which finds equals twice",
    caught_by="a tie still gives k different experts, with equal weights",
)
def route(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    if not 1 <= top_k <= logits.shape[-1]:
        raise ValueError(f"top_k is {top_k} of {logits.shape[-1]}")
    probs = softmax(logits, dim=-1)
    values = probs.sort(dim=-1, descending=True).values[:, :top_k]
    indices = (probs[:, None, :] == values[:, :, None]).int().argmax(dim=-1)
    return values / values.sum(dim=-1, keepdim=True), indices


edit(
    "route",
    "exponentials without the shift",
    old="softmax(scores, dim=-1)",
    new="(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))",
    caught_by="scores near 10,000 neither overflow nor lose their order",
)
edit(
    "route",
    "softmax in half precision, where probabilities tie",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="logits",
    caught_by="in float16 and bfloat16 rounding decides nothing, and the weights keep the dtype",
)
edit(
    "route",
    "weights always in float32",
    old="return weights.to(logits.dtype), indices",
    new="return weights.float(), indices",
    caught_by="in float16 and bfloat16 rounding decides nothing, and the weights keep the dtype",
)
edit(
    "route",
    "no gradient through the weights",
    old="chosen / chosen.sum(dim=-1, keepdim=True)",
    new="(chosen / chosen.sum(dim=-1, keepdim=True)).detach()",
    caught_by="gradients reach the scores through the weights",
)
edit(
    "route",
    "the sum treated as a constant",
    old="chosen.sum(dim=-1, keepdim=True)",
    new="chosen.detach().sum(dim=-1, keepdim=True)",
    caught_by="gradients reach the scores through the weights",
)
edit(
    "route",
    "noise on the scores",
    old="softmax(scores, dim=-1)",
    new="softmax(scores + torch.randn_like(scores), dim=-1)",
    caught_by="the scores stay as they were, and the same scores always go the same way",
)
edit(
    "route",
    "the scores shifted in place",
    old="chosen, indices =",
    new="logits.data -= logits.data.amax(dim=-1, keepdim=True)\n    chosen, indices =",
    caught_by="the scores stay as they were, and the same scores always go the same way",
)
edit(
    "route",
    "top_k above E quietly made E",
    old='raise ValueError(f"top_k must be from 1 to the number of experts, {n_experts}: it is {top_k}")',
    new="top_k = min(max(top_k, 1), n_experts)",
    caught_by="a top_k outside 1 to E is a ValueError that names both numbers",
)

# load_balancing_loss

edit(
    "load_balancing_loss",
    "without the factor E",
    old="loss = n_experts * (share * probs.mean(dim=0)).sum()",
    new="loss = (share * probs.mean(dim=0)).sum()",
    caught_by="it is 1 where every expert is used alike, for any k and E",
)
edit(
    "load_balancing_loss",
    "the mean over experts instead of E times the sum",
    old="loss = n_experts * (share * probs.mean(dim=0)).sum()",
    new="loss = (share * probs.mean(dim=0)).mean()",
    caught_by="it is E where one expert gets all rows and all probability",
)
edit(
    "load_balancing_loss",
    "shares squared, as if the probabilities were the choices",
    old="(share * probs.mean(dim=0)).sum()",
    new="(share * share).sum() + 0 * probs.sum()",
    caught_by="it is E times the sum over experts of share of choices times mean probability",
)
edit(
    "load_balancing_loss",
    "row by row, then the mean: probabilities of what was chosen",
    old="loss = n_experts * (share * probs.mean(dim=0)).sum()",
    new="loss = n_experts * probs.gather(1, indices).mean()",
    caught_by="it is E times the sum over experts of share of choices times mean probability",
)
edit(
    "load_balancing_loss",
    "the spread of the shares instead of the product",
    old="loss = n_experts * (share * probs.mean(dim=0)).sum()",
    new="loss = 1 + n_experts * (probs.mean(dim=0) - 1 / n_experts).square().sum()",
    caught_by="it is E times the sum over experts of share of choices times mean probability",
)
edit(
    "load_balancing_loss",
    "divided by the rows, so that k choices count k times",
    old="/ indices.numel()",
    new="/ len(indices)",
    caught_by="each of a row's k choices counts, and all choices together are one",
)
edit(
    "load_balancing_loss",
    "the first choice only",
    old="indices.flatten(), minlength=n_experts)",
    new="indices[:, 0], minlength=n_experts) * indices.shape[1]",
    caught_by="each of a row's k choices counts, and all choices together are one",
)
edit(
    "load_balancing_loss",
    "experts at the end that nobody chose left out",
    old="counts = torch.bincount(indices.flatten(), minlength=n_experts)",
    new="counts = torch.bincount(indices.flatten())\n    probs, n_experts = probs[:, : len(counts)], len(counts)",
    caught_by="experts that nobody chose count among the E",
)
edit(
    "load_balancing_loss",
    "a factor of the experts seen",
    old="loss = n_experts *",
    new="loss = indices.unique().numel() *",
    caught_by="experts that nobody chose count among the E",
)
edit(
    "load_balancing_loss",
    "the probabilities cut off from the gradient",
    old="router_probs.to(torch.promote_types(router_probs.dtype, torch.float32))",
    new="router_probs.detach().to(torch.promote_types(router_probs.dtype, torch.float32))",
    caught_by="the gradient flows through the mean probabilities, and the shares are constants",
)
edit(
    "load_balancing_loss",
    "a gradient through the shares as well",
    old="share = counts.to(probs.dtype) / indices.numel()",
    new="mean = probs.mean(dim=0)\n    share = counts.to(probs.dtype) / indices.numel() + mean - mean.detach()",
    caught_by="the gradient flows through the mean probabilities, and the shares are constants",
)
edit(
    "load_balancing_loss",
    "counted in float16, which ends at 65,504",
    old="counts.to(probs.dtype) / indices.numel()",
    new="(counts.to(router_probs.dtype) / indices.numel()).to(probs.dtype)",
    caught_by="it keeps the dtype, loses no digits in float64, and counts many rows in float16",
)
edit(
    "load_balancing_loss",
    "shares of seven digits whatever the dtype",
    old="counts.to(probs.dtype) / indices.numel()",
    new="counts / indices.numel()",
    caught_by="it keeps the dtype, loses no digits in float64, and counts many rows in float16",
)
edit(
    "load_balancing_loss",
    "the probabilities normalised again in place",
    old="probs = router_probs",
    new="router_probs.data /= router_probs.data.sum(dim=0)\n    probs = router_probs",
    caught_by="probabilities and choices stay as they were",
)
edit(
    "load_balancing_loss",
    "any number of columns taken",
    old="if router_probs.shape[-1] != n_experts:",
    new="n_experts = router_probs.shape[-1]\n    if False:",
    caught_by="a wrong number of experts is a ValueError that names it",
)
