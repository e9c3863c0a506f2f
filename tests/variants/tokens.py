"""Right tokenizers, lookups, scores and layers that differ from the reference: each earns full marks."""

import codecs
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.grading.specimens import variant

# ByteTokenizer


@variant("a bytearray, filled byte by byte, and vocab_size set in __init__")
class ByteTokenizer:
    def __init__(self) -> None:
        self.vocab_size = 2**8

    def encode(self, text: str) -> list[int]:
        return [*bytearray(text, "utf8")]

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        found = bytearray()
        for number in ids:
            value = int(number)
            if value not in range(self.vocab_size):
                raise ValueError(f"id {value} is not a byte: it must be at least 0 and at most 255")
            found.append(value)
        return str(found, "utf8", "replace")


@variant("an incremental decoder, and vocab_size as a property")
class ByteTokenizer:
    @property
    def vocab_size(self) -> int:
        return 256

    def encode(self, text: str) -> list[int]:
        return [byte for character in text for byte in character.encode()]

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return "".join(map(decoder.decode, self._bytes(ids))) + decoder.decode(b"", final=True)

    def _bytes(self, ids: Sequence[int] | Tensor) -> Iterator[bytes]:
        for value in torch.as_tensor(ids, dtype=torch.int64).tolist():
            if value < 0 or value > 255:
                raise ValueError(f"id {value} is outside 0..255")
            yield bytes((value,))


@variant("the whole range checked at once, through a tensor")
class ByteTokenizer:
    vocab_size: int = 256

    def encode(self, text: str) -> list[int]:
        return torch.tensor(list(text.encode("utf-8")), dtype=torch.uint8).tolist()

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        values = torch.as_tensor(ids, dtype=torch.int64)
        outside = values[values.ne(values.clamp(0, 255))].tolist()
        if outside:
            raise ValueError(f"these ids are not bytes: {outside}")
        return bytes(values.tolist()).decode(errors="replace")


# embed


@variant("torch's own embedding, after a check by min and max")
def embed(ids: Tensor, weight: Tensor) -> Tensor:
    if ids.numel() and (ids.min() < 0 or ids.max() >= len(weight)):
        raise ValueError(f"ids run from {ids.min()} to {ids.max()}, but the table has {len(weight)} rows")
    return F.embedding(ids, weight)


@variant("index_select on the flattened ids")
def embed(ids: Tensor, weight: Tensor) -> Tensor:
    for value in ids.flatten().tolist():
        if not 0 <= value < weight.size(0):
            raise ValueError(f"id {value} is not in range({weight.size(0)})")
    return torch.index_select(weight, 0, ids.reshape(-1)).view(*ids.shape, weight.size(1))


@variant("gather along the rows")
def embed(ids: Tensor, weight: Tensor) -> Tensor:
    size, width = weight.shape
    outside = torch.logical_or(ids.lt(0), ids.ge(size))
    if outside.any():
        raise ValueError(f"V = {size}: no row for the ids {ids[outside].tolist()}")
    places = ids.reshape(-1, 1).expand(-1, width)
    return weight.gather(0, places).reshape((*ids.shape, width))


# unembed


@variant("a linear layer without bias")
def unembed(x: Tensor, weight: Tensor) -> Tensor:
    width = weight.shape[-1]
    if x.shape[-1] != width:
        raise ValueError(f"expected vectors of width {width}, got {x.shape[-1]}")
    return F.linear(x, weight)


@variant("einsum")
def unembed(x: Tensor, weight: Tensor) -> Tensor:
    if x.size(-1) != weight.size(1):
        raise ValueError(f"widths differ: x {tuple(x.shape)}, weight {tuple(weight.shape)}")
    return torch.einsum("...d,vd->...v", x, weight)


@variant("each vector multiplied with every row, then summed")
def unembed(x: Tensor, weight: Tensor) -> Tensor:
    if x.shape[-1] != weight.shape[1]:
        raise ValueError(f"x has width {x.shape[-1]} and the table {weight.shape[1]}")
    return (x[..., None, :] * weight).sum(dim=-1)


# TokenEmbedding


@variant("an nn.Embedding with a method more")
class TokenEmbedding(nn.Embedding):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        if min(vocab_size, d_model) < 1:
            raise ValueError(f"vocab_size and d_model must be positive, got {vocab_size} and {d_model}")
        super().__init__(vocab_size, d_model)
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        wrong = [value for value in ids.flatten().tolist() if not 0 <= value < self.num_embeddings]
        if wrong:
            raise ValueError(f"no row for id {wrong[0]}")
        return super().forward(ids)

    def unembed(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


@variant("a table drawn by randn, normal but cut far out, and sizes kept")
class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        if vocab_size <= 0:
            raise ValueError(f"vocab_size = {vocab_size}: at least one id is needed")
        if d_model <= 0:
            raise ValueError(f"d_model = {d_model}: at least one number is needed")
        self.vocab_size, self.d_model = vocab_size, d_model
        self.weight = nn.Parameter((torch.randn(vocab_size, d_model) * 0.02).clamp(-0.1, 0.1))

    def forward(self, ids: Tensor) -> Tensor:
        return embed(ids, self.weight)

    def unembed(self, x: Tensor) -> Tensor:
        return x.matmul(self.weight.t())


@variant("the table registered by name and filled under no_grad")
class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        for name, value in {"vocab_size": vocab_size, "d_model": d_model}.items():
            if not value >= 1:
                raise ValueError(f"{name}={value}: must be 1 or more")
        self.register_parameter("weight", nn.Parameter(torch.zeros(vocab_size, d_model)))
        with torch.no_grad():
            self.weight.copy_(torch.normal(0.0, 0.02, size=(vocab_size, d_model)))

    def forward(self, ids: Tensor) -> Tensor:
        return torch.stack([embed(row, self.weight) for row in ids])

    def unembed(self, x: Tensor) -> Tensor:
        return unembed(x, self.weight)
