"""Softmax, its temperature, and the cross-entropy loss: scores become weights that sum to one."""

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Turn scores into weights along one dimension: each at least 0, together 1.

    Build it from exponentials, sums and maxima; do not call torch's own softmax.

    Args:
        x: scores, any shape. A score of `-inf` means "not a candidate".
        dim: the dimension that the weights share out, counted from the end when negative.

    Returns:
        Weights of x's shape and dtype. Finite scores give finite weights, however large.
        A score of `-inf` gets exactly 0. A row of nothing but `-inf` gets zeros, and its
        gradient is zero. float16 and bfloat16 are computed in float32. So are integers,
        which give float32.

    Source: Bridle, 1990, "Probabilistic interpretation of feedforward classification
        network outputs".
    """
    scores = x.to(torch.promote_types(x.dtype, torch.float32))
    lowest = torch.finfo(scores.dtype).min
    # Any shift gives the same weights, so no gradient need flow through it. It must be finite,
    # because -inf minus -inf is NaN.
    largest = scores.detach().amax(dim, keepdim=True).clamp(min=lowest)  # (..., 1, ...)
    powers = torch.exp(scores - largest)  # the largest score of each row becomes exp(0) = 1
    total = powers.sum(dim, keepdim=True)  # at least 1, or 0 where no score is a candidate
    weights = powers * total.masked_fill(total == 0, 1.0).reciprocal()  # one division a row, not one a score
    return weights.to(x.dtype) if x.is_floating_point() else weights


def softmax_with_temperature(logits: Tensor, temperature: float, dim: int = -1) -> Tensor:
    """Softmax of `logits / temperature`: below 1 sharpens the weights, above 1 flattens them.

    Args:
        logits: scores, any shape; `-inf` entries get exactly 0, as in `softmax`.
        temperature: 0 or more, infinity included. 0 is the limit from above: the largest
            score takes everything, and scores tied for the largest share equally. However
            small or large it is, nothing overflows and nothing becomes NaN.
        dim: the dimension that the weights share out.

    Returns:
        Weights of the logits' shape and dtype (dtypes as in `softmax`).

    Raises:
        ValueError: the temperature is negative or NaN; the message names it and its value.

    Source: Ackley, Hinton and Sejnowski, 1985, "A learning algorithm for Boltzmann machines".
    """
    if not temperature >= 0:  # true of NaN as well
        raise ValueError(f"temperature must be 0 or more, got {temperature}")
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    info = torch.finfo(scores.dtype)
    largest = scores.detach().amax(dim, keepdim=True).clamp(min=info.min)
    if temperature == 0:
        weights = softmax(scores.masked_fill(scores < largest, -torch.inf), dim)
    else:
        # Shift first: the largest score is then 0 and stays 0, where large / tiny would overflow.
        # Keep the divisor a normal number of this dtype, or 0 / 0 and inf / inf come back.
        divisor = min(max(temperature, info.tiny), 1 / info.tiny)
        weights = softmax((scores - largest) / divisor, dim)
    return weights.to(logits.dtype) if logits.is_floating_point() else weights


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of `-log(probability of the target)`, in nats, straight from the scores.

    Build it from exponentials, logarithms, sums and maxima (`torch.logsumexp` is allowed);
    do not call torch's own cross-entropy or log-softmax. Take the logarithm of the sum of
    exponentials, never that of a softmax, which is `-inf` where a weight rounds to 0.

    Args:
        logits: scores, (M, V): a row for each of M predictions, a column for each of V
            classes, M and V at least 1. float16 and bfloat16 are computed in float32.
        targets: the right class of each row, integers in [0, V), shape (M,).

    Returns:
        A scalar of the logits' dtype. Its gradient is the weights, less 1 at each target,
        over M.

    Raises:
        ValueError: logits or targets have another shape, targets are not integers, or one
            lies outside [0, V); the message names the argument, what it was and what it
            must be.

    Source: Good, 1952, "Rational decisions" (the logarithmic score).
    """
    if logits.ndim != 2 or logits.numel() == 0:
        raise ValueError(f"logits must have shape (M, V), with M and V at least 1, got {tuple(logits.shape)}")
    rows, classes = logits.shape
    if targets.shape != (rows,):
        raise ValueError(f"targets must have shape ({rows},), one for each row of logits, got {tuple(targets.shape)}")
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise ValueError(f"targets must be integers, got {targets.dtype}")
    outside = (targets < 0) | (targets >= classes)
    if outside.any():
        raise ValueError(f"targets must be at least 0 and below V = {classes}, got {int(targets[outside][0])}")

    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    largest = scores.detach().amax(dim=1, keepdim=True)  # (M, 1)
    log_total = torch.exp(scores - largest).sum(dim=1).log() + largest.squeeze(1)  # (M,)
    of_target = scores.gather(1, targets.long().unsqueeze(1)).squeeze(1)  # (M,)
    return (log_total - of_target).mean().to(logits.dtype)
