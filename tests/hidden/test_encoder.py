"""Hidden tests of chapter 10, the first two exercises: mask_tokens and mean_pool.

How random numbers are used is the student's business: shares are compared, never single draws.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

SIGMAS = 7

# mask_tokens


def masked(
    student: Student,
    check: Check,
    ids: Tensor,
    mask_id: int,
    vocab_size: int,
    p: float | None = None,
    special_ids: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Inputs and labels of the ids, with a generator that the grader's seed sets."""
    settings = {"p": p, "special_ids": special_ids}
    given = {name: value for name, value in settings.items() if value is not None}
    generator = student.generator(check.integer(0, 2**31))
    pair = student.mask_tokens(ids, mask_id, vocab_size, generator=generator, **given)
    check.true(isinstance(pair, tuple | list) and len(pair) == 2, "expected a pair, (inputs, labels)")
    inputs, labels = (
        check.tensor(x, ids.shape, what, torch.int64) for x, what in zip(pair, ("inputs", "labels"), strict=True)
    )
    return inputs, labels


def agrees(check: Check, hits: Tensor, p: float, what: str) -> None:
    """As many hits as a chance of `p` gives, on their own: in all, row by row and column by column."""
    share, slack = hits.double().mean().item(), SIGMAS * math.sqrt(p * (1 - p) / hits.numel())
    check.close(share, p, what, rtol=0, atol=slack)
    for dim, name in ((1, "text"), (0, "position")):
        counts, n = hits.double().sum(dim), hits.shape[dim]
        variance = n * p * (1 - p)
        spread = SIGMAS * variance * math.sqrt(2 / (len(counts) - 1))
        check.close(
            counts.var().item(),
            variance,
            f"{what}: the variance of its number from {name} to {name}",
            rtol=0,
            atol=spread,
        )


@hidden_test(
    "mask_tokens",
    "each token is chosen with probability p, on its own",
    hint="One random number for each token, compared with p.",
    weight=2,
)
def test_share(student: Student, check: Check) -> None:
    ids = check.randint(0, 50, (180, 150))
    for p in (None, 0.4):
        _, labels = masked(student, check, ids, 60, 50, p)
        share = 0.15 if p is None else p
        agrees(
            check, labels != -100, share, f"the share of tokens with a label, {'no p given' if p is None else f'{p=}'}"
        )
    for B, T in ((1, 9000), (9000, 1)):
        _, labels = masked(student, check, check.randint(0, 50, (B, T)), 60, 50, 0.3)
        slack = SIGMAS * math.sqrt(0.21 / 9000)
        share = (labels != -100).double().mean().item()
        check.close(share, 0.3, f"the share of tokens with a label, {B} by {T}, p=0.3", rtol=0, atol=slack)


@hidden_test(
    "mask_tokens",
    "labels hold the true id where a token was chosen, and -100 elsewhere",
    hint="The label is the id before it was hidden. -100 is the number that a loss leaves out by custom; keep it for "
    "all tokens that were not chosen.",
    weight=3,
)
def test_labels(student: Student, check: Check) -> None:
    ids = check.randint(0, 1000, (7, 90))
    inputs, labels = masked(student, check, ids, 1003, 1000, 1.0)
    check.equal(labels, ids, "labels with p=1, where every token is chosen")
    check.true(bool((inputs == 1003).any()), "p=1: expected most inputs to be the mask's id, found none")
    inputs, labels = masked(student, check, ids, 1003, 1000, 0.0)
    check.equal(labels, torch.full_like(ids, -100), "labels with p=0, where none is chosen")
    check.equal(inputs, ids, "inputs with p=0")
    inputs, labels = masked(student, check, ids, 1003, 1000, 0.5)
    chosen = labels != -100
    check.equal(labels[chosen], ids[chosen], "labels of the tokens chosen, p=0.5")
    check.true(bool(chosen.any()) and not bool(chosen.all()), "p=0.5: expected some tokens chosen, and not all")
    check.equal(inputs[~chosen], ids[~chosen], "inputs where the label is -100")


@hidden_test(
    "mask_tokens",
    "of the chosen, 80% become the mask's id, 10% a random id, and 10% stay",
    hint="A second random number for each token, on its own again: below 0.8 hide, from 0.8 to 0.9 a random id, above "
    "it nothing. Mind that 10% of what is left after the 80% are 2%.",
    weight=3,
)
def test_fates(student: Student, check: Check) -> None:
    V = 997
    ids = check.randint(0, V, (150, 160))
    for mask_id in (V, V + 5):
        inputs, labels = masked(student, check, ids, mask_id, V, 1.0)
        check.equal(labels, ids, "labels with p=1")
        agrees(check, inputs == mask_id, 0.8, f"the share of chosen tokens that became the mask's id, {mask_id}")
        agrees(check, inputs == ids, 0.1 + 0.1 / V, "the share of chosen tokens that stay")
    ids = check.randint(0, V, (300, 200))
    inputs, labels = masked(student, check, ids, V, V, 0.25)
    chosen = labels != -100
    for hits, share, what in (
        (inputs == V, 0.8, "become the mask's id"),
        (inputs == ids, 0.1 + 0.1 / V, "stay"),
        ((inputs != V) & (inputs != ids), 0.1 - 0.1 / V, "become another id"),
    ):
        slack = SIGMAS * math.sqrt(share * (1 - share) / max(int(chosen.sum()), 1))
        got = hits[chosen].double().mean().item()
        check.close(got, share, f"p=0.25: the share of chosen tokens that {what}", rtol=0, atol=slack)


@hidden_test(
    "mask_tokens",
    "a random id may be any of the vocabulary, each as often as another",
    hint="torch.randint(vocab_size, ...): from 0 to V - 1, drawn anew for each token.",
    weight=2,
)
def test_random_ids(student: Student, check: Check) -> None:
    for V in (11, 6):
        ids = torch.full((200, 300), V + 3)  # so that a random id is never the true one
        inputs, labels = masked(student, check, ids, V + 1, V, 1.0)
        check.equal(labels, ids, "labels with p=1")
        drawn = inputs[(inputs != V + 1) & (inputs != V + 3)]
        outside = sorted({i for i in drawn.tolist() if not 0 <= i < V})
        check.equal(outside, [], f"random ids that are not from 0 to {V - 1}")
        check.true(len(drawn) > 4000, f"expected about 6,000 random ids, got {len(drawn)}")
        for i, count in enumerate(drawn.bincount(minlength=V).tolist()):
            slack = SIGMAS * math.sqrt((V - 1) / len(drawn)) / V
            check.close(
                count / len(drawn), 1 / V, f"V={V}: the share of id {i} among the random ones", rtol=0, atol=slack
            )
        together = (inputs[:, 1:] == inputs[:, :-1]) & (inputs[:, 1:] < V) & (inputs[:, :-1] < V)
        both = int(((inputs[:, 1:] < V) & (inputs[:, :-1] < V)).sum())
        slack = SIGMAS * math.sqrt((V - 1) / max(both, 1)) / V
        got = int(together.sum()) / max(both, 1)
        check.close(got, 1 / V, f"V={V}: how often two random neighbours are alike", rtol=0, atol=slack)


@hidden_test(
    "mask_tokens",
    "special ids are never chosen, whatever p is",
    hint="Take the places of every one of special_ids out of the choice. Do it before the labels are made.",
    weight=2,
)
def test_special(student: Student, check: Check) -> None:
    ids = check.randint(0, 9, (60, 40))
    for special in check.shuffled([(0,), (3, 7), [8, 0, 4]]):
        inputs, labels = masked(student, check, ids, 9, 9, 1.0, special)
        spared = torch.isin(ids, torch.tensor(special))
        check.equal(labels, ids.masked_fill(spared, -100), f"labels with p=1, special_ids={special}")
        check.equal(inputs[spared], ids[spared], f"inputs at special ids, special_ids={special}")
        share, slack = (inputs[~spared] == 9).double().mean().item(), SIGMAS * math.sqrt(0.16 / int((~spared).sum()))
        check.close(
            share, 0.8, f"the share of the other tokens that became the mask's id, {special=}", rtol=0, atol=slack
        )
    for mask_id in (9, 4):  # an id that stands in the text is no exception
        inputs, labels = masked(student, check, ids, mask_id, 9, 1.0)
        check.equal(labels, ids, f"labels with p=1, mask_id={mask_id} and no special ids")


@hidden_test(
    "mask_tokens",
    "the same generator's seed gives the same result, another seed another",
    hint="Hand the generator to every one of your draws.",
)
def test_generator(student: Student, check: Check) -> None:
    ids, seed = check.randint(0, 500, (20, 60)), check.integer(0, 2**30)
    results = []
    for s in (seed, seed, seed + 1):
        pair = student.mask_tokens(ids, 500, 500, 0.6, student.generator(s))
        results.append([check.tensor(x, ids.shape, "each of the pair", torch.int64) for x in pair])
        inputs, labels = results[-1]
        check.equal(labels[labels != -100], ids[labels != -100], "labels of the tokens chosen")
        check.equal(inputs[labels == -100], ids[labels == -100], "inputs where none was chosen")
    check.equal(results[0][1], results[1][1], "labels, twice with one seed")
    check.equal(results[0][0], results[1][0], "inputs, twice with one seed")
    check.true(not torch.equal(results[0][1], results[2][1]), "labels with two seeds: they are the same")
    plain = [student.mask_tokens(ids, 500, 500, 0.6)[1] for _ in range(2)]
    check.true(not torch.equal(plain[0], plain[1]), "labels, twice without a generator: they are the same")


@hidden_test(
    "mask_tokens",
    "p may be anything from 0 to 1; else a ValueError that names it",
    hint="Both ends are allowed. Check before you draw.",
)
def test_p(student: Student, check: Check) -> None:
    ids = check.randint(0, 30, (3, 8))
    for p in (-0.25, 1.5, 15.0):
        check.raises(ValueError, partial(student.mask_tokens, ids, 30, 30, p), f"p={p}", mentions=(p,))
    for p, want in ((0.0, torch.full_like(ids, -100)), (1.0, ids)):
        check.equal(masked(student, check, ids, 30, 30, p)[1], want, f"labels with p={p}")


@hidden_test(
    "mask_tokens",
    "the ids that were passed in stay as they were",
    hint="Make new tensors: masked_fill and torch.where, or a clone.",
)
def test_in_place(student: Student, check: Check) -> None:
    ids = check.randint(0, 30, (12, 5)).T  # not contiguous
    inputs, labels = masked(student, check, ids, 31, 30, 1.0)
    check.equal(labels, ids.contiguous(), "labels with p=1")
    check.true(not torch.equal(inputs, ids), "p=1: the inputs are the ids")
    same = student.fixtures.unchanged(student.mask_tokens, ids, 31, 30, 1.0)
    check.equal(same, True, "whether the ids are the same after the call")


# mean_pool


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """The truth: text by text, the mean of the vectors that are kept, in float64."""
    rows = [
        x[kept].mean(0) if kept.any() else torch.zeros(x.shape[-1]).double()
        for x, kept in zip(hidden.double(), mask, strict=True)
    ]
    return torch.stack(rows)


@hidden_test(
    "mean_pool",
    "without padding it is the mean over the positions",
    hint="One vector a text: the mean over dim=1, of shape (B, D).",
)
def test_mean(student: Student, check: Check) -> None:
    for B, T, D in ((2, 5, 3), (1, 1, 4), (4, 3, 7), (3, 1, 2)):
        hidden, mask = check.randn(B, T, D), torch.ones(B, T, dtype=torch.int64)
        check.close(student.mean_pool(hidden, mask), mean(hidden, mask.bool()), f"{B} texts of {T} tokens, D={D}")


@hidden_test(
    "mean_pool",
    "the sum is divided by the number of tokens, not by T",
    hint="Each text is divided by the sum of its own row of the mask.",
    weight=2,
)
def test_count(student: Student, check: Check) -> None:
    hidden = torch.tensor(
        [[[1.0, 2.0], [3.0, 6.0], [0.0, 0.0], [0.0, 0.0]], [[4.0, 4.0], [5.0, 1.0], [0.0, 4.0], [0.0, 0.0]]]
    )
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    check.close(student.mean_pool(hidden, mask), torch.tensor([[2.0, 4.0], [3.0, 3.0]]), "worked out by hand")
    hidden, lengths = check.randn(4, 9, 5) + 2, check.shuffled([1, 3, 6, 9])
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    check.close(student.mean_pool(hidden, mask), mean(hidden, mask), f"texts of {lengths} tokens, padded to 9")


@hidden_test(
    "mean_pool",
    "what stands at padding changes nothing",
    hint="Multiply by the mask, or fill with zeros, before you sum.",
    weight=3,
    at_most=0.6,
)
def test_padding(student: Student, check: Check) -> None:
    hidden, mask = check.randn(5, 8, 3), check.randint(0, 2, (5, 8)).bool()
    mask[:, check.integer(0, 8)] = True
    for name, filler in (("zeros", 0.0), ("-700", -700.0), ("900", 900.0)):
        filled = hidden.masked_fill(~mask[..., None], filler)
        got = student.mean_pool(filled, mask)
        check.close(got, mean(hidden, mask), f"padding anywhere, filled with {name}", rtol=1e-4, atol=1e-5)


@hidden_test(
    "mean_pool",
    "a text without a token gives zeros, and spoils no gradient",
    hint="Its sum is zero already; only the division by zero must be kept out, with .clamp(min=1) on the count.",
)
def test_empty(student: Student, check: Check) -> None:
    hidden, mask = check.randn(3, 4, 6), torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    leaf = hidden.clone().requires_grad_()
    got = student.mean_pool(leaf, mask)
    check.close(got, mean(hidden, mask.bool()), "the second of three texts has no token")
    check.true(got.requires_grad, "no gradient flows from the result back to the tokens")
    probe = check.randn(3, 6)
    (got * probe).sum().backward()
    want = (mask / mask.sum(1, keepdim=True).clamp(min=1))[..., None] * probe[:, None]
    check.close(leaf.grad, want, "the gradient of the tokens")


@hidden_test(
    "mean_pool",
    "the mask may be boolean or numbers, the vectors of any dtype",
    hint="Bring the mask to the dtype that you need with .to(...), and return the dtype of hidden.",
    weight=2,
)
def test_dtypes(student: Student, check: Check) -> None:
    mask = check.randint(0, 2, (3, 7)).bool()
    mask[:, 0] = True
    for of_mask in (torch.bool, torch.int64, torch.float32, torch.float64):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            hidden = check.randn(7, 3, 5, dtype=dtype).transpose(0, 1)  # not contiguous
            what = f"vectors of {dtype}, a mask of {of_mask}"
            got = check.tensor(student.mean_pool(hidden, mask.to(of_mask)), (3, 5), what, dtype)
            check.close(got, mean(hidden, mask), what)


@hidden_test(
    "mean_pool",
    "gradients flow to the tokens, and nothing passed in is changed",
    hint="A .detach(), .data or an operation ending in an underscore does damage here.",
    at_most=0.6,
)
def test_pool_gradients(student: Student, check: Check) -> None:
    hidden, mask = check.randn(2, 4, 3), torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    check.close(student.mean_pool(hidden, mask), mean(hidden, mask.bool()), "the output itself")
    check.gradients(lambda x: student.mean_pool(x, mask), hidden, what="mean_pool")
    check.equal(
        student.fixtures.unchanged(student.mean_pool, hidden, mask), True, "whether the arguments are the same after"
    )
