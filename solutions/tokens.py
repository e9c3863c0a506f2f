"""Chapter 00 · Tokens and embeddings: text to integers, integers to vectors, vectors to scores."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ByteTokenizer:
    """Turns text into token ids and back: one id for each byte of its UTF-8 form (RFC 3629).

    Attributes:
        vocab_size: the number of different ids, 256; an id is a byte's value, 0 to 255.
    """

    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        """The ids of a text, in order; any Unicode text works, and the empty text gives [].

        Raises:
            ValueError: `text` holds half of a surrogate pair, which is not a character
                (Python's own `UnicodeEncodeError` is a `ValueError`: let it pass).
        """
        return list(text.encode("utf-8"))

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        """The text that the ids spell; they come as a list or a one-dimensional tensor.

        A model may write bytes that are not UTF-8, or stop within a character. Each broken
        piece becomes the replacement character U+FFFD, where
        `bytes.decode(errors="replace")` puts one.

        Raises:
            ValueError: an id is not in 0 to 255; the message names the id.
        """
        values = ids.tolist() if isinstance(ids, Tensor) else list(ids)
        for value in values:
            if not 0 <= value < self.vocab_size:
                raise ValueError(f"every id must be in 0 to {self.vocab_size - 1}, got {value}")
        # All bytes at once: a character may need four of them, and each alone means nothing.
        return bytes(values).decode("utf-8", errors="replace")


def embed(ids: Tensor, weight: Tensor) -> Tensor:
    """Look up the row of the table that belongs to each id.

    Args:
        ids: token ids, integers of any shape (...).
        weight: the table, (V, D): one row for each of V ids.

    Returns:
        The rows as they stand in the table, unscaled, in its dtype: (..., D).

    Raises:
        ValueError: an id is negative, or V or more; the message names the id and V.
    """
    vocab_size = weight.shape[0]
    ids = ids.long()  # as an index, uint8 would be read as a mask
    # Without this check, Python's rule for negative indices would turn -1 into the last row.
    wrong = ids[(ids < 0) | (ids >= vocab_size)]
    if wrong.numel() > 0:
        raise ValueError(f"every id must be in 0 to {vocab_size - 1} (V = {vocab_size}), got {wrong[0].item()}")
    return weight[ids]


def unembed(x: Tensor, weight: Tensor) -> Tensor:
    """Score every id of the vocabulary against each vector, by the dot product with its row.

    Args:
        x: vectors, (..., D).
        weight: the same table that `embed` reads, (V, D).

    Returns:
        The scores (logits) of all V ids: (..., V).

    Raises:
        ValueError: the vectors are not as wide as the rows; the message names both widths.
    """
    if x.shape[-1] != weight.shape[1]:
        raise ValueError(f"x must be as wide as the table: x has {x.shape[-1]}, weight has {weight.shape[1]}")
    return x @ weight.T  # (..., D) @ (D, V)


class TokenEmbedding(nn.Module):
    """A language model's first and last layer, sharing one table (Press and Wolf, 2017).

    Its only parameter is `weight`, (V, D), drawn from a normal distribution with mean 0
    and standard deviation 0.02 (Radford et al., 2018).

    Args:
        vocab_size: the number of different ids, V.
        d_model: the width of a vector, D.

    Raises:
        ValueError: a size is less than 1; the message names the argument and the size.
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        for name, size in (("vocab_size", vocab_size), ("d_model", d_model)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.weight, mean=0.0, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (B, T) to their rows (B, T, D), unscaled; errors as in `embed`."""
        return embed(ids, self.weight)

    def unembed(self, x: Tensor) -> Tensor:
        """Vectors (B, T, D) to scores of all ids (B, T, V), by the same table."""
        return unembed(x, self.weight)
