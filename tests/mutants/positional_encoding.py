"""Wrong positional encodings, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# sinusoidal_encoding

edit(
    "sinusoidal_encoding",
    "all sines first, then all cosines",
    old="torch.stack([angles.sin(), angles.cos()], dim=-1)",
    new="torch.stack([angles.sin(), angles.cos()], dim=1)",
    caught_by="even columns are sines and odd columns cosines, in turn",
)
edit(
    "sinusoidal_encoding",
    "cosines before sines",
    old="[angles.sin(), angles.cos()]",
    new="[angles.cos(), angles.sin()]",
    caught_by="even columns are sines and odd columns cosines, in turn",
)
edit(
    "sinusoidal_encoding",
    "sines only",
    old="[angles.sin(), angles.cos()]",
    new="[angles.sin(), angles.sin()]",
    caught_by="how alike two rows are depends only on the gap between them",
)
edit(
    "sinusoidal_encoding",
    "exponent without the factor 2",
    old="/ d_model)  # (D/2,)",
    new="/ 2 / d_model)",
    caught_by="pair i turns by base ** (-2i / D) a position",
)
edit(
    "sinusoidal_encoding",
    "the factor 2 twice",
    old="/ d_model)  # (D/2,)",
    new="* 2 / d_model)",
    caught_by="pair i turns by base ** (-2i / D) a position",
)
edit(
    "sinusoidal_encoding",
    "the slowest pair at exactly 1 / base",
    old="/ d_model)  # (D/2,)",
    new="/ max(d_model - 2, 1))",
    caught_by="pair i turns by base ** (-2i / D) a position",
)
edit(
    "sinusoidal_encoding",
    "multiplied by the power where it should divide",
    old="base ** (-torch",
    new="base ** (torch",
    caught_by="pair i turns by base ** (-2i / D) a position",
)
edit(
    "sinusoidal_encoding",
    "the base a constant",
    old="base ** (",
    new="10000.0 ** (",
    caught_by="the base is used, whatever it is",
)
edit(
    "sinusoidal_encoding",
    "positions from 1",
    old="torch.arange(n_positions, dtype=torch.float64)",
    new="torch.arange(1, n_positions + 1, dtype=torch.float64)",
    caught_by="positions count from 0, one row each",
)
edit(
    "sinusoidal_encoding",
    "angles in float32",
    old="torch.float64",
    new="torch.float32",
    caught_by="rows far from the start are exact",
)
edit(
    "sinusoidal_encoding",
    "a float64 result",
    old=".flatten(1).float()",
    new=".flatten(1)",
    caught_by="the result is float32, (n_positions, D)",
)
edit(
    "sinusoidal_encoding",
    "an odd width rounded down in silence",
    old='raise ValueError(f"d_model must be even, for pairs of sine and cosine: it is {d_model}")',
    new="d_model -= 1",
    caught_by="an odd width is a ValueError that names it",
)


@mutant("each column with a frequency of its own", caught_by="pair i turns by base ** (-2i / D) a position")
def sinusoidal_encoding(n_positions: int, d_model: int, base: float = 10000.0) -> Tensor:
    if d_model % 2:
        raise ValueError(f"{d_model}")
    frequencies = base ** (-torch.arange(d_model, dtype=torch.float64) / d_model)
    angles = torch.arange(n_positions, dtype=torch.float64)[:, None] * frequencies
    angles[:, 0::2], angles[:, 1::2] = angles[:, 0::2].sin(), angles[:, 1::2].cos()
    return angles.float()


# LearnedPositionalEncoding

edit(
    "LearnedPositionalEncoding",
    "the offset ignored",
    old="self.weight[offset : offset + T]",
    new="self.weight[:T]",
    caught_by="with an offset the first token gets that row",
)
edit(
    "LearnedPositionalEncoding",
    "the offset moves the end but not the start",
    old="self.weight[offset : offset + T]",
    new="self.weight[: offset + T][-T:] if offset == 0 else self.weight[offset - 1 : offset + T - 1]",
    caught_by="with an offset the first token gets that row",
)
edit(
    "LearnedPositionalEncoding",
    "no check of the length",
    old="offset + T > max_len",
    new="offset > max_len",
    caught_by="a position past the table is a ValueError that names offset, T and max_len",
)
edit(
    "LearnedPositionalEncoding",
    "the check one row too strict",
    old="offset + T > max_len",
    new="offset + T >= max_len",
    caught_by="token t gets row t added",
)
edit(
    "LearnedPositionalEncoding",
    "only the length checked, not the offset",
    old="offset + T > max_len",
    new="T > max_len",
    caught_by="a position past the table is a ValueError that names offset, T and max_len",
)
edit(
    "LearnedPositionalEncoding",
    "positions past the end wrapped round",
    old='            raise ValueError(f"no row for every position: offset {offset}, {T} tokens, max_len {max_len}")',
    new="            return x + self.weight[torch.arange(offset, offset + T) % max_len]",
    caught_by="a position past the table is a ValueError that names offset, T and max_len",
)
edit(
    "LearnedPositionalEncoding",
    "a negative offset counts from the end",
    old="offset < 0 or offset + T > max_len",
    new="offset + T > max_len",
    caught_by="a negative offset is a ValueError",
)
edit(
    "LearnedPositionalEncoding",
    "concatenated, not added",
    old="x + self.weight[offset : offset + T]",
    new="torch.cat([x, self.weight[offset : offset + T].expand(*x.shape)], dim=-1)",
    caught_by="token t gets row t added",
)
edit(
    "LearnedPositionalEncoding",
    "a row for each sequence of the batch, not for each token",
    old="T, max_len = x.shape[-2], self.weight.shape[0]",
    new="T, max_len = x.shape[0], self.weight.shape[0]",
    caught_by="token t gets row t added",
)
edit(
    "LearnedPositionalEncoding",
    "exactly three dimensions expected",
    old="T, max_len = x.shape[-2], self.weight.shape[0]",
    new="B, T, D = x.shape\n        max_len = self.weight.shape[0]",
    caught_by="every sequence of a batch gets the same rows, whatever stands in front",
)
edit(
    "LearnedPositionalEncoding",
    "a table that starts at zero",
    old="nn.init.normal_(self.weight, mean=0.0, std=0.02)",
    new="nn.init.zeros_(self.weight)",
    caught_by="its only parameter is weight, (max_len, D), small random numbers at the start",
)
edit(
    "LearnedPositionalEncoding",
    "a table as large as nn.Embedding's",
    old="std=0.02",
    new="std=1.0",
    caught_by="its only parameter is weight, (max_len, D), small random numbers at the start",
)
edit(
    "LearnedPositionalEncoding",
    "a buffer, which never learns",
    old="self.weight = nn.Parameter(torch.empty(max_len, d_model))",
    new='self.register_buffer("weight", torch.empty(max_len, d_model))',
    caught_by="its only parameter is weight, (max_len, D), small random numbers at the start",
)
edit(
    "LearnedPositionalEncoding",
    "cut off from the gradient",
    old="self.weight[offset",
    new="self.weight.data[offset",
    caught_by="gradients reach the tokens and the rows that were used",
)
edit(
    "LearnedPositionalEncoding",
    "added in place",
    old="return x + self.weight[offset : offset + T]",
    new="x += self.weight[offset : offset + T]\n        return x",
    caught_by="the tokens passed in are left as they were, and keep their dtype",
)

edit(
    "LearnedPositionalEncoding",
    "only the last position checked",
    old="if offset < 0 or offset + T > max_len",
    new="if not 0 <= offset + T - 1 < max_len",
    caught_by="a negative offset is refused, however many tokens follow",
)

edit(
    "LearnedPositionalEncoding",
    "a uniform start",
    old="nn.init.normal_(self.weight, mean=0.0, std=0.02)",
    new="nn.init.uniform_(self.weight, -0.0346, 0.0346)",
    caught_by="the table starts as normal random numbers, another table as others",
)
