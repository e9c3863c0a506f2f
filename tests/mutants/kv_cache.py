"""Wrong caches, each with the property that must catch it."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# cache_bytes

edit(
    "cache_bytes",
    "keys only",
    old="2 * n_layers",
    new="n_layers",
    caught_by="it is the size of real keys and real values",
)
edit(
    "cache_bytes",
    "numbers, not bytes",
    old="* bytes_per_value  #",
    new=" #",
    caught_by="it is the size of real keys and real values",
)
edit(
    "cache_bytes",
    "bits, not bytes",
    old="* bytes_per_value  #",
    new="* bytes_per_value * 8  #",
    caught_by="Llama 2 7B at 4,096 positions takes 2 GiB",
)
edit(
    "cache_bytes",
    "a square of length, as the scores have",
    old="* length *",
    new="* length * length *",
    caught_by="Llama 2 7B at 4,096 positions takes 2 GiB",
)
edit(
    "cache_bytes",
    "the batch ignored",
    old="* batch *",
    new="*",
    caught_by="twice the layers, heads, width, length, texts or bytes a value are twice the bytes",
)
edit(
    "cache_bytes",
    "always two bytes a value",
    old="* bytes_per_value  #",
    new="* 2  #",
    caught_by="twice the layers, heads, width, length, texts or bytes a value are twice the bytes",
)
edit(
    "cache_bytes",
    "one layer only",
    old="2 * n_layers *",
    new="2 *",
    caught_by="twice the layers, heads, width, length, texts or bytes a value are twice the bytes",
)
edit(
    "cache_bytes",
    "four bytes a value unless said otherwise",
    old="bytes_per_value: int = 2",
    new="bytes_per_value: int = 4",
    caught_by="unless said otherwise there is one text, and a value has two bytes",
)
edit(
    "cache_bytes",
    "batch and bytes_per_value exchanged",
    old="batch: int = 1, bytes_per_value: int = 2",
    new="bytes_per_value: int = 2, batch: int = 1",
    caught_by="unless said otherwise there is one text, and a value has two bytes",
)
edit(
    "cache_bytes",
    "by way of a float",
    old="return 2 * n_layers * n_kv_heads * head_dim * length * batch * bytes_per_value",
    new="return int(2.0 * n_layers * n_kv_heads * head_dim * length * batch * bytes_per_value)",
    caught_by="the result is a whole number, exact however large, and 0 for an empty cache",
)
edit(
    "cache_bytes",
    "an empty cache counted as one position",
    old="* length *",
    new="* max(length, 1) *",
    caught_by="the result is a whole number, exact however large, and 0 for an empty cache",
)

# KVCache

edit(
    "KVCache",
    "joined along the heads",
    old="dim=-2)\n        self.values",
    new="dim=1)\n        self.values",
    caught_by="update returns all positions read so far, the oldest first",
)
edit(
    "KVCache",
    "joined along the texts",
    old="dim=-2",
    new="dim=0",
    caught_by="update returns all positions read so far, the oldest first",
)
edit(
    "KVCache",
    "joined along the width",
    old="dim=-2",
    new="dim=-1",
    caught_by="update returns all positions read so far, the oldest first",
)
edit(
    "KVCache",
    "the new before the old",
    old="torch.cat([old_k, k], dim=-2)",
    new="torch.cat([k, old_k], dim=-2)",
    caught_by="update returns all positions read so far, the oldest first",
)
edit(
    "KVCache",
    "only the new ones returned",
    old="self.keys[layer] = k = k if",
    new="self.keys[layer] = k if",
    caught_by="update returns all positions read so far, the oldest first",
)
edit(
    "KVCache",
    "only the last update kept",
    old="k if old_k is None else torch.cat([old_k, k], dim=-2)",
    new="k if old_k is None else torch.cat([old_k[:, :, :0], k], dim=-2)",
    caught_by="update returns all positions read so far, the oldest first",
)
edit(
    "KVCache",
    "values joined to the old keys",
    old="torch.cat([old_v, v], dim=-2)",
    new="torch.cat([old_k, v], dim=-2)",
    caught_by="keys stay keys and values stay values",
)
edit(
    "KVCache",
    "returned as values, keys",
    old="return k, v",
    new="return v, k",
    caught_by="keys stay keys and values stay values",
)
edit(
    "KVCache",
    "the first layer's store for all",
    old="old_k, old_v = self.keys[layer], self.values[layer]",
    new="layer = 0\n        old_k, old_v = self.keys[layer], self.values[layer]",
    caught_by="every layer has keys and values of its own",
)


@mutant("the same list shared by layers", caught_by="every layer has keys and values of its own")
class KVCache:
    def __init__(self, n_layers: int) -> None:
        self.stores: list[list[tuple[Tensor, Tensor]]] = [[]] * n_layers

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.stores[layer].append((k, v))
        keys, values = zip(*self.stores[layer], strict=True)
        return torch.cat(keys, dim=-2), torch.cat(values, dim=-2)

    @property
    def length(self) -> int:
        return sum(k.shape[-2] for k, _ in self.stores[0])

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for store in self.stores for pair in store for x in pair)


@mutant("stores in the class's body, the same for all caches", caught_by="two caches share nothing")
class KVCache:
    keys: ClassVar[dict[int, Tensor]] = {}
    values: ClassVar[dict[int, Tensor]] = {}

    def __init__(self, n_layers: int) -> None:
        self.n_layers = n_layers

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        for store, x in ((self.keys, k), (self.values, v)):
            same = layer in store and store[layer].shape[1] == x.shape[1] and store[layer].dtype == x.dtype
            store[layer] = torch.cat([store[layer], x], dim=-2) if same else x
        return self.keys[layer], self.values[layer]

    @property
    def length(self) -> int:
        return min((self.keys[i].shape[-2] if i in self.keys else 0 for i in range(self.n_layers)), default=0)

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for store in (self.keys, self.values) for x in store.values())


edit(
    "KVCache",
    "length of the first layer, taken in the middle of a pass",
    old="min((0 if k is None else k.shape[-2] for k in self.keys), default=0)",
    new="0 if self.keys[0] is None else self.keys[0].shape[-2]",
    caught_by="length counts the positions that every layer holds",
)
edit(
    "KVCache",
    "length counts layers",
    old="min((0 if k is None else k.shape[-2] for k in self.keys), default=0)",
    new="sum(k is not None for k in self.keys)",
    caught_by="length counts the positions that every layer holds",
)
edit(
    "KVCache",
    "length summed over the layers",
    old="min((0 if k is None else k.shape[-2] for k in self.keys), default=0)",
    new="sum(0 if k is None else k.shape[-2] for k in self.keys)",
    caught_by="length counts the positions that every layer holds",
)
edit(
    "KVCache",
    "length from the heads' dimension",
    old="k.shape[-2]",
    new="k.shape[1]",
    caught_by="length counts the positions that every layer holds",
)
edit(
    "KVCache",
    "nbytes of keys only",
    old="self.keys + self.values",
    new="self.keys",
    caught_by="nbytes is the size of all keys and values held, whatever their dtype",
)
edit(
    "KVCache",
    "nbytes counts numbers",
    old="x.numel() * x.element_size()",
    new="x.numel()",
    caught_by="nbytes is the size of all keys and values held, whatever their dtype",
)
edit(
    "KVCache",
    "nbytes as if all were float32",
    old="x.element_size()",
    new="4",
    caught_by="nbytes is the size of all keys and values held, whatever their dtype",
)
edit(
    "KVCache",
    "nbytes of one text",
    old="x.numel()",
    new="x[0].numel()",
    caught_by="nbytes is the size of all keys and values held, whatever their dtype",
)
edit(
    "KVCache",
    "always float32",
    old="old_k, old_v =",
    new="k, v = k.float(), v.float()\n        old_k, old_v =",
    caught_by="the dtype is kept",
)
edit(
    "KVCache",
    "the tensor that the caller holds is made longer in place",
    old="self.keys[layer] = k = k if old_k is None else torch.cat([old_k, k], dim=-2)",
    new="self.keys[layer] = k = k if old_k is None else old_k.set_(torch.cat([old_k, k], dim=-2))",
    caught_by="what an earlier update was given or returned does not change later",
)


@mutant(
    "one buffer whose end is always the newest",
    caught_by="what an earlier update was given or returned does not change later",
)
class KVCache:
    def __init__(self, n_layers: int) -> None:
        self.n_layers = n_layers
        self.buffers: dict[Any, Tensor] = {}
        self.filled: dict[Any, int] = {}

    def _append(self, key: Any, x: Tensor) -> Tensor:
        if key not in self.buffers:
            self.buffers[key] = x.new_zeros(*x.shape[:2], 64, x.shape[-1])
            self.filled[key] = 0
        buffer, T = self.buffers[key], x.shape[-2]
        self.filled[key] += T
        buffer.copy_(buffer.roll(-T, dims=2))
        buffer[:, :, -T:] = x
        return buffer[:, :, -self.filled[key] :]

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self._append((0, layer), k), self._append((1, layer), v)

    @property
    def length(self) -> int:
        return min((self.filled.get((1, layer), 0) for layer in range(self.n_layers)), default=0)

    @property
    def nbytes(self) -> int:
        return sum(x[:, :, : self.filled[key]].nbytes for key, x in self.buffers.items())
