"""Hidden tests of chapter 11, continued: attend_with_cache and generate_cached."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def qkv(check: Check, B: int, H: int, K: int, S: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of a whole text, in float64."""
    shapes = ((B, H, S, d), (B, K, S, d), (B, K, S, d))
    q, k, v = (check.randn(*shape, dtype=torch.float64) for shape in shapes)
    return q, k, v


def at_once(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The truth: causal attention of the whole text without a cache."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def in_pieces(
    student: Student, q: Tensor, k: Tensor, v: Tensor, pieces: list[int], cache: Any, layer: int = 0, **more: Any
) -> Tensor:
    """The same text handed over in pieces, with a cache."""
    parts = zip(*(x.split(pieces, dim=2) for x in (q, k, v)), strict=True)
    return torch.cat([student.attend_with_cache(*part, cache, layer, **more) for part in parts], dim=2)


@hidden_test(
    "attend_with_cache",
    "read token by token it equals causal attention over the whole text",
    hint="Update the cache first, then let the query look at all the keys and values that come back.",
    weight=3,
)
def test_token_by_token(student: Student, check: Check) -> None:
    for B, H, S, d in ((2, 3, 6, 5), (1, 1, 4, 3), (3, 4, 5, 2)):
        q, k, v = qkv(check, B, H, H, S, d)
        got = in_pieces(student, q, k, v, [1] * S, student.KVCache(1))
        check.close(got, at_once(q, k, v), f"one token at a time, B={B}, H={H}, S={S}, d={d}")


@hidden_test(
    "attend_with_cache",
    "several new tokens at once see the past, themselves and nothing later",
    hint="T queries, S keys: the mask is (T, S), aligned to the end of the keys, as causal_mask(T, S) makes it.",
    weight=3,
)
def test_pieces(student: Student, check: Check) -> None:
    for B, H, d, pieces in ((2, 3, 5, [4, 3, 1, 2]), (1, 2, 4, [2, 5]), (3, 1, 2, [1, 4])):
        q, k, v = qkv(check, B, H, H, sum(pieces), d)
        got = in_pieces(student, q, k, v, pieces, student.KVCache(1))
        check.close(got, at_once(q, k, v), f"pieces of {pieces} tokens, B={B}, H={H}, d={d}")


@hidden_test(
    "attend_with_cache",
    "a text read at once into an empty cache is masked causally",
    hint="A prompt has many tokens and none of them may see a later one, cache or not.",
    weight=2,
)
def test_prompt(student: Student, check: Check) -> None:
    for B, H, S, d in ((2, 3, 7, 5), (1, 2, 4, 3)):
        q, k, v = qkv(check, B, H, H, S, d)
        cache = student.KVCache(1)
        got = student.attend_with_cache(q, k, v, cache, 0)
        check.close(got, at_once(q, k, v), f"a prompt of {S} tokens, B={B}, H={H}, d={d}")
        check.equal(cache.length, S, f"the cache's length after a prompt of {S} tokens")


@hidden_test(
    "attend_with_cache",
    "the new keys and values join their own layer of the cache, once",
    hint="One cache.update(layer, k, v) a call, with the layer that came.",
    weight=2,
)
def test_layer(student: Student, check: Check) -> None:
    cache, texts = student.KVCache(3), [qkv(check, 2, 3, 3, 5, 4) for _ in range(3)]
    for layer, (q, k, v) in enumerate(texts):
        check.close(
            in_pieces(student, q, k, v, [3, 1, 1], cache, layer), at_once(q, k, v), f"the output of layer {layer} of 3"
        )
    check.equal(cache.length, 5, "the cache's length after 5 tokens in each of 3 layers")
    for layer, (_, k, v) in enumerate(texts):
        end = torch.zeros(2, 3, 1, 4, dtype=torch.float64)
        keys, values = cache.update(layer, end, end)
        check.close(keys[:, :, :-1], k, f"the keys in layer {layer} of the cache")
        check.close(values[:, :, :-1], v, f"the values in layer {layer} of the cache")


@hidden_test(
    "attend_with_cache",
    "a function handed in as attend is called once, with all keys and values, not repeated",
    hint="attend(q, k, v, mask), and its result is yours. Only `attend` knows how many heads share a key.",
    weight=2,
)
def test_attend(student: Student, check: Check) -> None:
    q, k, v = qkv(check, 2, 6, 2, 5, 3)
    attend = student.fixtures.Attend(2.0)
    got = in_pieces(student, q, k, v, [3, 2], student.KVCache(1), attend=attend)
    check.close(got, 2 * at_once(q, k, v), "an attend that doubles, 6 heads of queries over 2 of keys")
    want = [[[2, 6, T, 3], [2, 2, S, 3], [2, 2, S, 3]] for T, S in ((3, 3), (2, 5))]
    check.equal(attend.shapes, want, "shapes of q, k and v in its two calls")


@hidden_test(
    "attend_with_cache",
    "queries, keys and values are left as they were",
    hint="Neither += nor a slice assignment into what came.",
)
def test_unchanged(student: Student, check: Check) -> None:
    q, k, v = qkv(check, 2, 3, 3, 4, 5)
    cache = student.KVCache(1)
    for _ in range(2):
        unchanged = student.fixtures.unchanged(student.attend_with_cache, q, k, v, cache, 0)
        check.true(unchanged, "a tensor handed in was changed in place")
    last = student.attend_with_cache(q[:, :, -1:], k[:, :, -1:], v[:, :, -1:], cache, 0)
    keys, values = (torch.cat([x, x, x[:, :, -1:]], dim=2) for x in (k, v))
    check.close(last, F.scaled_dot_product_attention(q[:, :, -1:], keys, values), "the next token's output")


# generate_cached


def continued(ids: Tensor, n: int, n_layers: int, V: int) -> Tensor:
    """The truth for `fixtures.Reader`: always the likeliest id, each time from the whole text."""
    for _ in range(n):
        at = torch.arange(1.0, ids.shape[1] + 1, dtype=torch.float64) ** 2
        sums = [((ids + layer + 1) * at).sum(dim=1, keepdim=True) % 997 for layer in range(n_layers)]
        scores = sum(torch.sin(0.7 * s * torch.arange(1, V + 1)) for s in sums)
        assert isinstance(scores, Tensor)
        ids = torch.cat([ids, scores.argmax(dim=1, keepdim=True)], dim=1)
    return ids


@hidden_test(
    "generate_cached",
    "it writes what generation without a cache writes",
    hint="The model reads what is unread: first the whole prompt, then the one token that was drawn last.",
    weight=3,
)
def test_greedy(student: Student, check: Check) -> None:
    for L, V, B, T, n in ((2, 11, 1, 4, 7), (3, 23, 1, 1, 5), (1, 7, 1, 6, 1)):
        model, ids = student.fixtures.Reader(L, V), check.randint(0, V, (B, T))
        got = student.generate_cached(model, ids, n, temperature=0)
        check.equal(got, continued(ids, n, L, V), f"{n} tokens after {T}, L={L}, V={V}, temperature 0")


@hidden_test(
    "generate_cached",
    "several texts are continued side by side, each in its own way",
    hint="(B, T) to (B, T + n): every row has scores, and a next token, of its own.",
    weight=2,
)
def test_batch(student: Student, check: Check) -> None:
    for B, T, n in ((3, 4, 6), (2, 1, 5)):
        model, ids = student.fixtures.Reader(2, 13), check.randint(0, 13, (B, T))
        ids[:, 0] = torch.arange(B)
        got = student.generate_cached(model, ids, n, temperature=0)
        check.equal(got, continued(ids, n, 2, 13), f"{B} texts of {T} tokens, {n} more")


@hidden_test(
    "generate_cached",
    "every token is read once: the prompt in one call, then one new token a call",
    hint="What is in the cache is never handed over again. The last token drawn needs no reading.",
    weight=3,
    at_most=0.4,
)
def test_reads(student: Student, check: Check) -> None:
    for B, T, n in ((2, 5, 4), (1, 1, 3)):
        model, ids = student.fixtures.Reader(2, 11), check.randint(0, 11, (B, T))
        got = student.generate_cached(model, ids, n, temperature=0)
        check.equal(got, continued(ids, n, 2, 11), f"{n} tokens after {T}")
        check.equal(model.read, [T] + [1] * (n - 1), f"tokens handed to the model in each call, {n} after {T}")
        held = [0] + [T + i for i in range(n - 1)]
        check.equal(model.held, held, "the cache's length at each call (-1: no cache)")


@hidden_test(
    "generate_cached",
    "the sampling keywords reach sample_next",
    hint="sample_next(logits, **sampling): temperature, top_k, top_p and generator.",
    weight=2,
)
def test_sampling(student: Student, check: Check) -> None:
    model, ids, seed = student.fixtures.Reader(2, 17), check.randint(0, 17, (2, 3)), check.integer(0, 10**6)
    for more in ({}, {"temperature": 2.5}, {"top_k": 3}, {"top_p": 0.6}, {"temperature": 3.0, "top_k": 5}):
        sampling = {"temperature": 1.5} | more
        got = student.generate_cached(model, ids, 9, **sampling, generator=student.generator(seed))
        want = student.fixtures.generate(model, ids, 9, **sampling, generator=student.generator(seed))
        check.equal(got, want, f"generate and generate_cached with {sampling} and one seed")
        check.equal(list(got.shape), [2, 12], "their shape")
    greedy = student.generate_cached(model, ids, 9, top_k=1)
    check.equal(greedy, continued(ids, 9, 2, 17), "top_k=1 is the likeliest, at any temperature")


@hidden_test(
    "generate_cached",
    "one generator draws the same text again from the same seed, and another from another",
    hint="The generator that came, and no other, is asked for every token.",
)
def test_generator(student: Student, check: Check) -> None:
    model, ids = student.fixtures.Reader(1, 29), check.randint(0, 29, (1, 2))

    def write(how: Any, seed: int) -> Tensor:
        text = how(model, ids, 24, temperature=4.0, generator=student.generator(seed))
        return check.tensor(text, (1, 26), "24 tokens after 2", torch.int64)

    first = write(student.generate_cached, 5)
    check.equal(write(student.generate_cached, 5), first, "the same seed")
    check.true(not torch.equal(write(student.generate_cached, 6), first), "two seeds drew the same 24 tokens")
    check.equal(first, write(student.fixtures.generate, 5), "what generate draws from that seed")


@hidden_test(
    "generate_cached",
    "no new tokens are no change, and the prompt is left as it was",
    hint="With max_new_tokens=0 nothing is drawn; new tokens are joined by torch.cat, not written into ids.",
)
def test_ids(student: Student, check: Check) -> None:
    model, ids = student.fixtures.Reader(2, 11), check.randint(0, 11, (2, 5))
    check.equal(student.generate_cached(model, ids, 0, temperature=0), ids, "max_new_tokens=0")
    for n in (1, 4):
        check.true(
            student.fixtures.unchanged(student.generate_cached, model, ids, n, temperature=0),
            "the ids handed in were changed in place",
        )
        got = student.generate_cached(model, ids, n, temperature=0)
        check.equal(got, continued(ids, n, 2, 11), f"{n} more")


@hidden_test(
    "generate_cached",
    "nothing is recorded for gradients while it writes",
    hint="@torch.no_grad() above the function: what autograd records for each token would stay in the cache.",
    at_most=0.6,
)
def test_no_gradient(student: Student, check: Check) -> None:
    model, ids = student.fixtures.Reader(2, 11), check.randint(0, 11, (1, 3))
    got = student.generate_cached(model, ids, 3, temperature=0)
    check.equal(got, continued(ids, 3, 2, 11), "3 tokens after 3")
    check.equal(any(model.recorded), False, "whether torch recorded for gradients in a call of the model")
