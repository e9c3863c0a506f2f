"""Wrong losses, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

edit(
    "cross_entropy",
    "the sign turned round",
    old="(log_total - of_target).mean()",
    new="(of_target - log_total).mean()",
    caught_by="scores 2.0, 1.0, 0.1 and the first as target cost -log 0.659",
)
edit(
    "cross_entropy",
    "logarithm to base 2",
    old="(log_total - of_target).mean()",
    new="((log_total - of_target) / torch.log(torch.tensor(2.0))).mean()",
    caught_by="scores 2.0, 1.0, 0.1 and the first as target cost -log 0.659",
)
edit(
    "cross_entropy",
    "softmax before, though the scores are wanted",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)))",
    caught_by="scores 2.0, 1.0, 0.1 and the first as target cost -log 0.659",
)
edit(
    "cross_entropy",
    "the sum over rows",
    old="(log_total - of_target).mean()",
    new="(log_total - of_target).sum()",
    caught_by="the loss is the mean over the rows",
)
edit(
    "cross_entropy",
    "the mean taken over classes",
    old="(log_total - of_target).mean()",
    new="((log_total - of_target).sum() / classes)",
    caught_by="the loss is the mean over the rows",
)
edit(
    "cross_entropy",
    "no shift by the maximum",
    old="torch.exp(scores - largest).sum(dim=1).log() + largest.squeeze(1)",
    new="torch.exp(scores).sum(dim=1).log()",
    caught_by="scores near 1,000 give a finite, exact loss",
)
edit(
    "cross_entropy",
    "one maximum for the whole batch",
    old="largest = scores.detach().amax(dim=1, keepdim=True)",
    new="largest = scores.detach().amax().expand(rows, 1)",
    caught_by="each row is shifted by its own maximum in the loss",
)


edit(
    "cross_entropy",
    "the log of the sum taken for a constant",
    old="(log_total - of_target).mean()",
    new="(log_total.detach() - of_target).mean()",
    caught_by="the gradient is (softmax - one-hot) / M",
)
edit(
    "cross_entropy",
    "the target picked by a product with a one-hot: 0 times -inf",
    old="scores.gather(1, targets.long().unsqueeze(1)).squeeze(1)",
    new="(scores * torch.nn.functional.one_hot(targets, classes)).sum(1)",
    caught_by="a class whose score is -inf takes no part",
)
edit(
    "cross_entropy",
    "half precision not converted up",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="logits",
    caught_by="float16 and bfloat16 losses are computed in float32, and float64 in float64",
)
edit(
    "cross_entropy",
    "everything in float32, float64 too",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="logits.float()",
    caught_by="float16 and bfloat16 losses are computed in float32, and float64 in float64",
)
edit(
    "cross_entropy",
    "negative targets count from the end",
    old="outside = (targets < 0) | (targets >= classes)",
    new="outside = targets >= classes\n    targets = targets % classes",
    caught_by="a target outside [0, V) is a ValueError that names it",
)
edit(
    "cross_entropy",
    "targets used as an index as they come",
    old="targets.long().unsqueeze(1)",
    new="targets.unsqueeze(1)",
    caught_by="targets of every integer dtype are counted alike",
)
edit(
    "cross_entropy",
    "uint8 targets read as a mask",
    old="scores.gather(1, targets.long().unsqueeze(1)).squeeze(1)",
    new="scores[torch.arange(rows), targets.bool().long() if targets.dtype == torch.uint8 else targets.long()]",
    caught_by="targets of every integer dtype are counted alike",
)
edit(
    "cross_entropy",
    "a plain number, out of the graph",
    old=".mean().to(logits.dtype)",
    new=".mean().to(logits.dtype).detach()",
    caught_by="the gradient is (softmax - one-hot) / M",
)
edit(
    "cross_entropy",
    "-100 passed over in silence",
    old="outside = (targets < 0) | (targets >= classes)",
    new=(
        "logits, targets = logits[targets != -100], targets[targets != -100]\n"
        "    outside = (targets < 0) | (targets >= classes)"
    ),
    caught_by="a target outside [0, V) is a ValueError that names it",
)
edit(
    "cross_entropy",
    "a column of targets let through, and broadcast",
    old="if targets.shape != (rows,):",
    new="targets = targets.squeeze(-1) if targets.ndim == 2 else targets\n    if targets.shape != (rows,):",
    caught_by="wrong shapes and fractional targets are a ValueError that names the argument",
)


@mutant(
    "no argument checked",
    caught_by="wrong shapes and fractional targets are a ValueError that names the argument",
)
def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return (torch.logsumexp(logits, dim=-1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)).mean()


edit(
    "cross_entropy",
    "subtracts in place, from the caller's scores",
    old="torch.exp(scores - largest).sum(dim=1).log() + largest.squeeze(1)",
    new="torch.exp(scores.sub_(largest)).sum(dim=1).log()",
    caught_by="any layout works, and the arguments stay as they were",
)
edit(
    "cross_entropy",
    "torch's own loss behind the checks",
    old="(log_total - of_target).mean().to(logits.dtype)",
    new="torch.nn.functional.cross_entropy(scores, targets).to(logits.dtype)",
    caught_by="it is built from exponentials and logarithms, not from torch's own loss",
)
