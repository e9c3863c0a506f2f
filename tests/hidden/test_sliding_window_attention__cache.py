"""Hidden tests of chapter 16: RollingKVCache."""

from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def text(check: Check, T: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return check.randn(2, 3, T, 4, dtype=dtype), check.randn(2, 3, T, 5, dtype=dtype)


@hidden_test(
    "RollingKVCache",
    "update returns the new positions and at most window - 1 old ones, the oldest first",
    hint="A new token sees itself and window - 1 before it. With a window of 1 nothing old is left: beware of x[-0:].",
    weight=3,
)
def test_update(student: Student, check: Check) -> None:
    for window, pieces in ((4, [1] * 11), (5, [3, 1, 1, 1, 1, 1, 1]), (3, [10, 1, 1, 1]), (1, [2, 1, 1]), (6, [2, 2])):
        k, v = text(check, sum(pieces))
        cache, start = student.RollingKVCache(window), 0
        for T in pieces:
            stop, first = start + T, max(0, start - window + 1)
            keys, values = cache.update(0, k[:, :, start:stop], v[:, :, start:stop])
            check.close(keys, k[:, :, first:stop], f"window {window}: keys when {start} were read and {T} come")
            check.close(values, v[:, :, first:stop], f"window {window}: values when {start} were read and {T} come")
            start = stop


@hidden_test(
    "RollingKVCache",
    "several new positions each find their whole window",
    hint="Join old and new first and return them; forget what is too old only in what is kept for later.",
    weight=2,
)
def test_several(student: Student, check: Check) -> None:
    for window, pieces in ((4, [6, 3, 5]), (5, [2, 9, 2, 7]), (2, [3, 3])):
        k, v = text(check, sum(pieces))
        cache, start = student.RollingKVCache(window), 0
        for T in pieces:
            stop, first = start + T, max(0, start - window + 1)
            keys, values = cache.update(0, k[:, :, start:stop], v[:, :, start:stop])
            check.close(keys, k[:, :, first:stop], f"window {window}, pieces {pieces}: keys up to position {stop}")
            check.close(values, v[:, :, first:stop], f"window {window}, pieces {pieces}: values up to position {stop}")
            start = stop


@hidden_test(
    "RollingKVCache",
    "it stops growing at window positions",
    hint="nbytes counts what is held, numel() * element_size(): at most `window` positions a layer.",
    weight=2,
)
def test_nbytes(student: Student, check: Check) -> None:
    for window, dtype in ((4, torch.float32), (3, torch.float64), (1, torch.float16)):
        cache, read = student.RollingKVCache(window), 0
        check.equal(cache.nbytes, 0, "at the start")
        for T in (2, 1, 1, 1, 7, 1):
            for layer in range(3):
                cache.update(layer, *text(check, T, dtype))
            read += T
            want = 3 * min(read, window) * 2 * 3 * (4 + 5) * dtype.itemsize
            check.equal(cache.nbytes, want, f"window {window}, {dtype}, 3 layers, {read} positions read")


@hidden_test(
    "RollingKVCache",
    "nothing older is kept alive behind the scenes",
    hint="A slice is a view: it keeps the whole tensor in memory. Copy what you keep, with clone().",
    weight=2,
)
def test_memory(student: Student, check: Check) -> None:
    cache = student.RollingKVCache(4)
    position = 2 * 3 * (4 + 5) * 4
    for T in (200, 1, 1, 50, 1):
        k, v = text(check, T)
        keys, _ = cache.update(0, k, v)
        check.close(keys[:, :, -T:], k, f"the keys of {T} new positions")
        kept = student.fixtures.kept_bytes(cache)
        check.true(
            0 < kept <= 2 * 4 * position,
            f"window 4, after {T} new positions: expected about {4 * position} bytes to be kept, found {kept}",
        )


@hidden_test(
    "RollingKVCache",
    "length counts the positions read by every layer, forgotten ones included",
    hint="Count them: a position that has left the window still counts. The smallest number over the layers.",
    weight=2,
)
def test_length(student: Student, check: Check) -> None:
    cache, read = student.RollingKVCache(3), 0
    check.equal(cache.length, 0, "at the start")
    for layer in range(3):
        cache.update(layer, *text(check, 5))
    read = 5
    check.equal(cache.length, read, "after 5 positions, window 3")
    for T in (1, 1, 6):
        for layer in range(3):
            check.equal(cache.length, read, f"before layer {layer} of 3 has its {T} new positions")
            cache.update(layer, *text(check, T))
        read += T
        check.equal(cache.length, read, f"when all layers have read {read} positions, window 3")


@hidden_test(
    "RollingKVCache",
    "layers and caches keep apart",
    hint="A store for each layer, made in __init__ and filled under the layer's number; layers may come in any order.",
)
def test_apart(student: Student, check: Check) -> None:
    other = student.RollingKVCache(2)
    other.update(1, *text(check, 2))
    cache, pairs = student.RollingKVCache(2), {layer: text(check, 4) for layer in (3, 1)}
    for start in range(4):
        for layer, (k, v) in pairs.items():
            keys, values = cache.update(layer, k[:, :, start : start + 1], v[:, :, start : start + 1])
            first = max(0, start - 1)
            check.close(keys, k[:, :, first : start + 1], f"keys of layer {layer}, position {start}")
            check.close(values, v[:, :, first : start + 1], f"values of layer {layer}, position {start}")
    check.equal([cache.length, other.length], [4, 2], "the lengths of two caches")


@hidden_test(
    "RollingKVCache",
    "what update was given or returned does not change later, and its dtype is kept",
    hint="Others may hold those tensors: return copies where you write into a buffer, and make it in their dtype.",
)
def test_earlier(student: Student, check: Check) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        k, v = text(check, 6, dtype)
        cache = student.RollingKVCache(2)
        came = student.fixtures.results(cache.update, [[0, k[:, :, t : t + 1], v[:, :, t : t + 1]] for t in range(6)])
        for t, (keys, values) in enumerate(came):
            first = max(0, t - 1)
            check.equal(keys, k[:, :, first : t + 1], f"{dtype}: keys returned at position {t}, looked at the end")
            check.equal(values, v[:, :, first : t + 1], f"{dtype}: values returned at position {t}, looked at the end")


@hidden_test(
    "RollingKVCache",
    "a cache for a window below 1 is a ValueError that names the number",
    hint="Check it in __init__.",
)
def test_window(student: Student, check: Check) -> None:
    for window in (0, -4):
        check.raises(ValueError, partial(student.RollingKVCache, window), f"window={window}", ("window", window))
    check.equal(student.RollingKVCache(1).length, 0, "the length of an empty cache")
