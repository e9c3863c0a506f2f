"""Hidden tests of chapter 11: cache_bytes and KVCache."""

from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


@hidden_test(
    "cache_bytes",
    "it is the size of real keys and real values",
    hint="Each layer keeps two tensors, keys and values, each of B x K x S x d numbers.",
    weight=3,
)
def test_real_tensors(student: Student, check: Check) -> None:
    for dtype in (torch.float16, torch.float32, torch.float64):
        L, K, d, S, B = check.shuffled([2, 3, 5, 7, 4])
        tensors = [torch.empty(B, K, S, d, dtype=dtype) for _ in range(2 * L)]
        got = student.cache_bytes(L, K, d, S, batch=B, bytes_per_value=dtype.itemsize)
        check.equal(got, sum(x.nbytes for x in tensors), f"L={L}, K={K}, d={d}, S={S}, B={B}, {dtype}")


@hidden_test(
    "cache_bytes",
    "twice the layers, heads, width, length, texts or bytes a value are twice the bytes",
    hint="It is a product: every argument appears in it once.",
    weight=2,
)
def test_proportional(student: Student, check: Check) -> None:
    names = ("n_layers", "n_kv_heads", "head_dim", "length", "batch", "bytes_per_value")
    sizes = dict(zip(names, check.shuffled([2, 3, 5, 7, 11, 13]), strict=True))
    once = student.cache_bytes(**sizes)
    check.equal(once, 2 * 2 * 3 * 5 * 7 * 11 * 13, f"{sizes}")
    for name in names:
        check.equal(student.cache_bytes(**(sizes | {name: 2 * sizes[name]})), 2 * once, f"{name} doubled")


@hidden_test(
    "cache_bytes",
    "unless said otherwise there is one text, and a value has two bytes",
    hint="The defaults are batch=1 and bytes_per_value=2.",
)
def test_defaults(student: Student, check: Check) -> None:
    check.equal(student.cache_bytes(3, 5, 7, 11), 2 * 3 * 5 * 7 * 11 * 2, "L=3, K=5, d=7, S=11")
    check.equal(student.cache_bytes(3, 5, 7, 11, 13), 2 * 3 * 5 * 7 * 11 * 13 * 2, "and 13 texts")
    check.equal(student.cache_bytes(3, 5, 7, 11, bytes_per_value=4), 2 * 3 * 5 * 7 * 11 * 4, "and 4 bytes a value")


@hidden_test(
    "cache_bytes",
    "Llama 2 7B at 4,096 positions takes 2 GiB",
    hint="32 layers, 32 heads of width 128: half a mebibyte for each position. A byte is not eight.",
)
def test_llama(student: Student, check: Check) -> None:
    check.equal(student.cache_bytes(32, 32, 128, 4096), 2 * 2**30, "Llama 2 7B, 4,096 positions, in bytes")
    check.equal(student.cache_bytes(32, 8, 128, 8192), 2**30, "Llama 3 8B, 8,192 positions, in bytes")


@hidden_test(
    "cache_bytes",
    "the result is a whole number, exact however large, and 0 for an empty cache",
    hint="Multiply whole numbers; a division or a float loses the last digits.",
)
def test_exact(student: Student, check: Check) -> None:
    sizes = (127, 9, 129, 10**15 + 1)
    check.equal(student.cache_bytes(*sizes), 4 * 127 * 9 * 129 * (10**15 + 1), f"{sizes}")
    check.equal(student.cache_bytes(4, 3, 5, 0), 0, "no positions")


# KVCache


def filled(
    student: Student, check: Check, shape: tuple[int, int, int], n_layers: int, pieces: list[int], dtype: Any = None
) -> tuple[Any, list[list[Tensor]], list[list[Tensor]]]:
    """A cache that has read pieces of these lengths, layer after layer; what came back last, and the truth."""
    (B, K, d), cache = shape, student.KVCache(n_layers)
    parts: list[list[list[Tensor]]] = [[[], []] for _ in range(n_layers)]
    came: list[Any] = [None] * n_layers
    for T in pieces:
        for layer in range(n_layers):
            new = [check.randn(B, K, T, d, dtype=dtype or torch.float32) for _ in range(2)]
            came[layer] = cache.update(layer, *new)
            for part, x in zip(parts[layer], new, strict=True):
                part.append(x)
    truth = [[torch.cat(part, dim=2) for part in layer] for layer in parts]
    return cache, [list(pair) for pair in came], truth


@hidden_test(
    "KVCache",
    "update returns all positions read so far, the oldest first",
    hint="Join old and new along the positions, the last dimension but one, with the old in front.",
    weight=3,
)
def test_update(student: Student, check: Check) -> None:
    for (B, K, d), pieces in (((2, 3, 5), [4, 1, 2]), ((1, 1, 4), [1, 1, 1]), ((3, 2, 1), [6]), ((3, 5, 3), [3, 3])):
        _, came, truth = filled(student, check, (B, K, d), 1, pieces)
        for got, want, name in zip(came[0], truth[0], ("keys", "values"), strict=True):
            check.close(got, want, f"{name} after pieces of {pieces} positions, B={B}, K={K}, d={d}")


@hidden_test(
    "KVCache",
    "keys stay keys and values stay values",
    hint="Two stores for each layer, and the pair comes back as (keys, values).",
)
def test_pair(student: Student, check: Check) -> None:
    cache, k, v = student.KVCache(1), torch.full((1, 2, 3, 2), 5.0), torch.full((1, 2, 3, 2), -7.0)
    for T in (3, 6):
        keys, values = cache.update(0, k, v)
        check.close(keys, torch.full((1, 2, T, 2), 5.0), f"the keys, all 5.0, {T} positions")
        check.close(values, torch.full((1, 2, T, 2), -7.0), f"the values, all -7.0, {T} positions")


@hidden_test(
    "KVCache",
    "every layer has keys and values of its own",
    hint="[[]] * n_layers is n_layers times the same list. And `layer` says whose they are.",
    weight=2,
)
def test_layers(student: Student, check: Check) -> None:
    _, came, truth = filled(student, check, (2, 3, 4), 3, [2, 1])
    for layer in range(3):
        for got, want, name in zip(came[layer], truth[layer], ("keys", "values"), strict=True):
            check.close(got, want, f"{name} of layer {layer} of 3, after 2 positions and 1 more")


@hidden_test(
    "KVCache",
    "two caches share nothing",
    hint="Make the lists in __init__, for this cache alone: a list in the class's body belongs to all caches.",
)
def test_two_caches(student: Student, check: Check) -> None:
    filled(student, check, (1, 2, 3), 2, [4])
    cache, came, truth = filled(student, check, (1, 2, 3), 2, [3, 1])
    check.equal(cache.length, 4, "the length of a second cache")
    check.close(came[1][0], truth[1][0], "the keys of a second cache")


@hidden_test(
    "KVCache",
    "length counts the positions that every layer holds",
    hint="The new tokens count when the last layer has them: in the middle of a pass the length is still the old one.",
    weight=2,
)
def test_length(student: Student, check: Check) -> None:
    cache, total = student.KVCache(3), 0
    check.equal(cache.length, 0, "at the start")
    for T in (5, 1, 2):
        for layer in range(3):
            check.equal(cache.length, total, f"the length before layer {layer} of 3 has its {T} new positions")
            cache.update(layer, check.randn(2, 4, T, 6), check.randn(2, 4, T, 6))
        total += T
        check.equal(cache.length, total, f"the length when all layers have {T} more positions")


@hidden_test(
    "KVCache",
    "nbytes is the size of all keys and values held, whatever their dtype",
    hint="numel() * element_size(), over keys and values of all layers. What is not filled does not count.",
    weight=2,
)
def test_nbytes(student: Student, check: Check) -> None:
    check.equal(student.KVCache(2).nbytes, 0, "at the start")
    for dtype in (torch.float16, torch.float32, torch.float64):
        cache, _, _ = filled(student, check, (2, 3, 5), 4, [7, 1], dtype)
        check.equal(cache.nbytes, 2 * 4 * 2 * 3 * 8 * 5 * dtype.itemsize, f"{dtype}, 4 layers, B=2, K=3, S=8, d=5")
    cache.update(0, check.randn(2, 3, 1, 5, dtype=dtype), check.randn(2, 3, 1, 5, dtype=dtype))
    check.equal(cache.nbytes, 2 * (4 * 8 + 1) * 2 * 3 * 5 * 8, f"{dtype}, and one position more in layer 0")


@hidden_test(
    "KVCache",
    "the dtype is kept",
    hint="Make room in the dtype of what comes; torch.zeros alone is float32.",
)
def test_dtype(student: Student, check: Check) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        _, came, truth = filled(student, check, (2, 3, 5), 1, [2, 2], dtype)
        for got, want in zip(came[0], truth[0], strict=True):
            check.equal(got, want, f"{dtype}")


@hidden_test(
    "KVCache",
    "what an earlier update was given or returned does not change later",
    hint="Others may still hold those tensors: make new ones, or write behind what is in use.",
)
def test_earlier(student: Student, check: Check) -> None:
    k, v = check.randn(2, 3, 6, 4), check.randn(2, 3, 6, 4)
    pieces = ((0, 3), (3, 4), (4, 6))
    cache = student.KVCache(1)
    came = student.fixtures.results(cache.update, [[0, k[:, :, a:b], v[:, :, a:b]] for a, b in pieces])
    for (keys, values), (_, S) in zip(came, pieces, strict=True):
        check.close(keys, k[:, :, :S], f"the keys returned at {S} positions, looked at when there were 6")
        check.close(values, v[:, :, :S], f"the values returned at {S} positions, looked at when there were 6")
