"""Wrong tokenizers, lookups, scores and layers, each with the property that must catch it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# ByteTokenizer

edit(
    "ByteTokenizer",
    "decoding byte by byte",
    old='bytes(values).decode("utf-8", errors="replace")',
    new='"".join(bytes([v]).decode("utf-8", errors="replace") for v in values)',
    caught_by="any Unicode text survives the round trip, character for character",
)
edit(
    "ByteTokenizer",
    "each byte taken for a character",
    old='bytes(values).decode("utf-8", errors="replace")',
    new='"".join(map(chr, values))',
    caught_by="any Unicode text survives the round trip, character for character",
)
edit(
    "ByteTokenizer",
    "accents normalised before encoding",
    old="text.encode(",
    new='__import__("unicodedata").normalize("NFC", text).encode(',
    caught_by="any Unicode text survives the round trip, character for character",
)
edit(
    "ByteTokenizer",
    "the number of the character instead of its bytes",
    old='list(text.encode("utf-8"))',
    new="[ord(character) for character in text]",
    caught_by="a character outside ASCII is the two to four bytes of its UTF-8 form",
)
edit(
    "ByteTokenizer",
    "the bytes of utf-16",
    old='list(text.encode("utf-8"))',
    new='list(text.encode("utf-16-le"))',
    caught_by="a letter of ASCII is one id, its byte's value, of 256",
)
edit(
    "ByteTokenizer",
    "encode returns a tensor",
    old='list(text.encode("utf-8"))',
    new='__import__("torch").tensor(list(text.encode("utf-8")))',
    caught_by="encode gives a list of Python integers",
)
edit(
    "ByteTokenizer",
    "a byte order mark swallowed",
    old='.decode("utf-8", errors="replace")',
    new='.decode("utf-8-sig", errors="replace")',
    caught_by="any Unicode text survives the round trip, character for character",
)
edit(
    "ByteTokenizer",
    'errors="strict"',
    old='.decode("utf-8", errors="replace")',
    new='.decode("utf-8")',
    caught_by="bytes that are not UTF-8 become U+FFFD and never an exception",
)
edit(
    "ByteTokenizer",
    'errors="ignore": what is broken vanishes',
    old='.decode("utf-8", errors="replace")',
    new='.decode("utf-8", errors="ignore")',
    caught_by="a text cut within a character ends in U+FFFD",
)
edit(
    "ByteTokenizer",
    "an unfinished last character dropped",
    old="bytes(values).decode(",
    new="bytes(values[: max((i + 1 for i, v in enumerate(values) if v < 128), default=len(values))]).decode(",
    caught_by="a text cut within a character ends in U+FFFD",
)
edit(
    "ByteTokenizer",
    "decode of a list only",
    old="ids.tolist() if isinstance(ids, Tensor) else list(ids)",
    new="list(ids)",
    caught_by="decode takes a tensor as well as a list",
)
edit(
    "ByteTokenizer",
    "ids wrapped around modulo 256",
    old='raise ValueError(f"every id must be in 0 to {self.vocab_size - 1}, got {value}")',
    new="values = [v % 256 for v in values]",
    caught_by="an id that is not a byte is a ValueError that names it",
)
edit(
    "ByteTokenizer",
    "the error does not name the id",
    old=", got {value}",
    new="",
    caught_by="an id that is not a byte is a ValueError that names it",
)
edit(
    "ByteTokenizer",
    "lone surrogates replaced by question marks",
    old='text.encode("utf-8")',
    new='text.encode("utf-8", errors="replace")',
    caught_by="half of a surrogate pair is a ValueError, not a silent change",
)
edit(
    "ByteTokenizer",
    "the empty text taken for a mistake",
    old="values = ids.tolist()",
    new='if len(ids) == 0:\n            raise ValueError("nothing to decode")\n        values = ids.tolist()',
    caught_by="the empty text is the empty list, both ways",
)


@mutant(
    "a tensor turned to bytes first: a negative id wraps",
    caught_by="an id that is not a byte is a ValueError that names it",
)
class ByteTokenizer:
    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        if isinstance(ids, Tensor):
            if ids.numel() and ids.max() > 255:
                raise ValueError(f"every id must be in 0 to 255, got {ids.max()}")
            ids = ids.to(torch.uint8).tolist()
        for value in ids:
            if not 0 <= value < 256:
                raise ValueError(f"every id must be in 0 to 255, got {value}")
        return bytes(ids).decode("utf-8", errors="replace")


# embed

edit(
    "embed",
    "columns looked up instead of rows",
    old="weight[ids]",
    new="weight.T[ids % weight.shape[1]]",
    caught_by="each id gets its own row of the table",
)
edit(
    "embed",
    "row 0 kept for padding, so that every id is one row late",
    old="weight[ids]",
    new="weight[(ids - 1).clamp(min=0)]",
    caught_by="each id gets its own row of the table",
)
edit(
    "embed",
    "flattened: the batch is lost",
    old="weight[ids]",
    new="weight[ids.flatten()]",
    caught_by="ids of any shape (...) give vectors (..., D)",
)
edit(
    "embed",
    "scaled by sqrt(D)",
    old="weight[ids]",
    new="weight[ids] * weight.shape[1] ** 0.5",
    caught_by="a row comes as it stands: no scale, no normalisation",
)
edit(
    "embed",
    "computed in float32 whatever the table's dtype",
    old="weight[ids]",
    new="weight.float()[ids]",
    caught_by="the vectors have the table's dtype, bit for bit",
)
edit(
    "embed",
    "-1 gives the last row",
    old="(ids < 0) | (ids >= vocab_size)",
    new="ids >= vocab_size",
    caught_by="a negative id is a ValueError that names it",
)
edit(
    "embed",
    "too large an id clamped to the last row",
    old="wrong = ids[(ids < 0) | (ids >= vocab_size)]",
    new="ids = ids.clamp(max=vocab_size - 1)\n    wrong = ids[ids < 0]",
    caught_by="an id of V or more is a ValueError that names it and V",
)
edit(
    "embed",
    "the check off by one: id V allowed",
    old="(ids >= vocab_size)",
    new="(ids > vocab_size)",
    caught_by="an id of V or more is a ValueError that names it and V",
)
edit(
    "embed",
    "the lookup cut off from the gradient",
    old="weight[ids]",
    new="weight.detach()[ids]",
    caught_by="the gradient of a row is the sum over the places where its id stands",
)
edit(
    "embed",
    "one-hot vectors times the table",
    old="weight[ids]",
    new="torch.nn.functional.one_hot(ids, vocab_size).to(weight.dtype) @ weight",
    caught_by="rows are looked up, with no one-hot vectors of length V",
)
edit(
    "embed",
    "long rows shortened in the caller's table",
    old="weight[ids]",
    new="torch.nn.functional.embedding(ids, weight.detach(), max_norm=1.0) * 0 + weight[ids]",
    caught_by="the ids and the table stay as they were",
)

# unembed

edit(
    "unembed",
    "transposed only where the shapes demand it",
    old="x @ weight.T",
    new="x @ (weight if weight.shape[0] == weight.shape[1] else weight.T)",
    caught_by="the table is transposed even when it is square",
)
edit(
    "unembed",
    "flattened: the batch is lost",
    old="x @ weight.T",
    new="x.reshape(-1, x.shape[-1]) @ weight.T",
    caught_by="vectors of any shape (..., D) give scores (..., V)",
)
edit(
    "unembed",
    "divided by sqrt(D)",
    old="x @ weight.T",
    new="x @ weight.T / x.shape[-1] ** 0.5",
    caught_by="the scores are raw: no scale, no normalisation, no softmax",
)
edit(
    "unembed",
    "cosines: vectors and rows brought to length 1",
    old="x @ weight.T",
    new="torch.nn.functional.normalize(x, dim=-1) @ torch.nn.functional.normalize(weight, dim=-1).T",
    caught_by="the scores are raw: no scale, no normalisation, no softmax",
)
edit(
    "unembed",
    "a softmax over the vocabulary",
    old="x @ weight.T",
    new="torch.softmax(x @ weight.T, dim=-1)",
    caught_by="the scores are raw: no scale, no normalisation, no softmax",
)
edit(
    "unembed",
    "scores returned in float32",
    old="x @ weight.T",
    new="(x @ weight.T).float()",
    caught_by="the scores have the vectors' dtype and its precision",
)
edit(
    "unembed",
    "the table cut off from the gradient",
    old="x @ weight.T",
    new="x @ weight.T.detach()",
    caught_by="gradients reach the vectors and the table",
)
edit(
    "unembed",
    "the vectors cut off from the gradient",
    old="x @ weight.T",
    new="x.detach() @ weight.T",
    caught_by="gradients reach the vectors and the table",
)
edit(
    "unembed",
    "torch's own RuntimeError for a wrong width",
    old="x.shape[-1] != weight.shape[1]",
    new="False",
    caught_by="vectors of another width than the rows are a ValueError that names both widths",
)
edit(
    "unembed",
    "the width compared with V",
    old="x.shape[-1] != weight.shape[1]",
    new="x.shape[-1] not in weight.shape",
    caught_by="vectors of another width than the rows are a ValueError that names both widths",
)
edit(
    "unembed",
    "the caller's vectors scaled in place, and the scores scaled back",
    old="x @ weight.T",
    new="x.detach().mul_(2.0) @ weight.T / 2.0",
    caught_by="the vectors and the table are not changed",
)
