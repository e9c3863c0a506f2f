"""Positional encoding: a vector for each place in the sequence, added to the token that stands there."""

import torch
from torch import Tensor, nn


def sinusoidal_encoding(n_positions: int, d_model: int, base: float = 10000.0) -> Tensor:
    """One row for each position: sines and cosines of frequencies from fast to slow.

    Pair `i` of columns turns by `base ** (-2 * i / D)` radians a position: column `2 * i` is the
    sine of position times frequency, column `2 * i + 1` the cosine. Positions count from 0. The
    angles are computed in float64, so that rows far from the start are as exact as the first.

    Args:
        n_positions: how many positions; the rows.
        d_model: width of the tokens, `D`; the columns.
        base: sets the slowest frequency.

    Returns:
        The encoding, float32, `(n_positions, D)`.

    Raises:
        ValueError: `d_model` is odd; the message names it.

    Source: "Attention Is All You Need", section 3.5 (Vaswani et al., 2017).
    """
    if d_model % 2:
        raise ValueError(f"d_model must be even, for pairs of sine and cosine: it is {d_model}")
    positions = torch.arange(n_positions, dtype=torch.float64)
    frequencies = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (D/2,)
    angles = positions[:, None] * frequencies  # (n_positions, D/2)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (n_positions, D/2, 2)
    return pairs.flatten(1).float()  # sine, cosine, sine, cosine, ...


class LearnedPositionalEncoding(nn.Module):
    """A table of vectors, one for each position up to `max_len`, learned like any other weight.

    Its only parameter is `weight`, `(max_len, D)`, drawn from a normal distribution with mean 0
    and standard deviation 0.02.

    Args:
        max_len: rows of the table: the longest sequence.
        d_model: width of the tokens, `D`.

    Source: "Convolutional Sequence to Sequence Learning" (Gehring et al., 2017); BERT and GPT-2.
    """

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.weight, mean=0.0, std=0.02)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Add to each token the row of its position.

        Args:
            x: tokens, `(..., T, D)`.
            offset: position of the first token; with a cache, the number of tokens before it.

        Returns:
            The tokens with rows `offset` to `offset + T - 1` added, `(..., T, D)`.

        Raises:
            ValueError: a position is negative, or `max_len` or more: there is no row for it. The
                message names `offset`, `T` and `max_len`.
        """
        T, max_len = x.shape[-2], self.weight.shape[0]
        if offset < 0 or offset + T > max_len:
            raise ValueError(f"no row for every position: offset {offset}, {T} tokens, max_len {max_len}")
        return x + self.weight[offset : offset + T]
