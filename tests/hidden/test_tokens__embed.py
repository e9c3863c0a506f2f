"""Hidden tests of chapter 00, the second exercise: embed."""

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


def one_hot(ids: Tensor, size: int) -> Tensor:
    """A 1 at each id's place, in float64."""
    return (ids.unsqueeze(-1) == torch.arange(size)).double()


@hidden_test(
    "embed",
    "each id gets its own row of the table",
    hint="Index the table's rows by the ids: row 0 belongs to id 0. Multiplying a one-hot vector by the table gives "
    "the same.",
    weight=2,
)
def test_rows(student: Student, check: Check) -> None:
    table = torch.arange(7)[:, None] * 10.0 + torch.arange(3)
    want = torch.tensor([[[60.0, 61.0, 62.0], [0.0, 1.0, 2.0], [60.0, 61.0, 62.0], [20.0, 21.0, 22.0]]])
    check.equal(student.embed(torch.tensor([[6, 0, 6, 2]]), table), want, "the rows 6, 0, 6, 2")
    weight, ids = check.randn(11, 5, dtype=torch.float64), check.randint(0, 11, (3, 8))
    check.close(student.embed(ids, weight), one_hot(ids, 11) @ weight, "random ids and table")
    square = check.randn(6, 6)
    every = torch.tensor(check.shuffled(range(6)))
    check.equal(student.embed(every, square), square.index_select(0, every), "a square table, all its rows")


@hidden_test(
    "embed",
    "ids of any shape (...) give vectors (..., D)",
    hint="The ids' shape stays and one dimension of D is added at the end. Do not flatten, squeeze or take the first.",
)
def test_shapes(student: Student, check: Check) -> None:
    weight = check.randn(13, 4)
    for shape in ((), (1,), (6,), (1, 1), (3, 5), (2, 3, 5), (0,)):
        ids = check.randint(0, 13, shape)
        want = weight.index_select(0, ids.flatten()).reshape(*shape, 4)
        check.equal(student.embed(ids, weight), want, f"ids of shape {list(shape)}")
    transposed, wide = check.randint(0, 13, (5, 3)).T, check.randn(4, 13).T
    want = wide.index_select(0, transposed.flatten()).reshape(3, 5, 4)
    check.equal(student.embed(transposed, wide), want, "transposed ids and table")


@hidden_test(
    "embed",
    "a row comes as it stands: no scale, no normalisation",
    hint="Some models multiply embeddings by sqrt(D). Here the docstring says unscaled: return the row itself.",
)
def test_unscaled(student: Student, check: Check) -> None:
    for size, width in ((5, 7), (8, 23)):
        weight = check.randn(size, width, scale=3.0) + 1.0
        ids = check.randint(0, size, (2, 6))
        got = check.tensor(student.embed(ids, weight), (2, 6, width), f"D = {width}")
        want = weight.index_select(0, ids.flatten()).reshape(2, 6, width)
        check.close(got.norm(dim=-1) / want.norm(dim=-1), torch.ones(2, 6), f"length of the vectors, D = {width}")
        check.equal(got, want, f"the rows themselves, D = {width}")


@hidden_test(
    "embed",
    "the vectors have the table's dtype, bit for bit",
    hint="A lookup copies; it does not round. A detour through float32 loses digits of a float64 table and changes "
    "the dtype of a half-precision one.",
)
def test_dtypes(student: Student, check: Check) -> None:
    ids = check.randint(0, 9, (2, 5))
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        weight = check.randn(9, 3, dtype=dtype)
        want = weight.index_select(0, ids.flatten()).reshape(2, 5, 3)
        check.equal(student.embed(ids, weight), want, f"a table of dtype {str(dtype).removeprefix('torch.')}")


@hidden_test(
    "embed",
    "a negative id is a ValueError that names it",
    hint="`weight[-1]` is the last row: Python counts from the end, and the mistake passes in silence. Check first.",
)
def test_negative(student: Student, check: Check) -> None:
    weight = check.randn(10, 3)
    check.equal(
        student.embed(torch.tensor([0, 9]), weight), weight.index_select(0, torch.tensor([0, 9])), "ids 0 and 9"
    )
    for wrong in (-1, -10, -100, check.integer(-90, -20)):
        ids = torch.tensor([[1, 2, 3], [4, wrong, 9]])
        check.raises(ValueError, lambda ids=ids: student.embed(ids, weight), f"id {wrong}, V = 10", mentions=[wrong])


@hidden_test(
    "embed",
    "an id of V or more is a ValueError that names it and V",
    hint="The last row is V - 1, so id V is already outside. Raise; do not clamp and do not wrap around.",
)
def test_too_large(student: Student, check: Check) -> None:
    size = check.integer(10, 20)
    weight = check.randn(size, 3)
    for wrong in (size, size + 1, check.integer(300, 900)):
        ids = torch.tensor([[1, wrong], [2, 3]])
        what = f"id {wrong}, V = {size}"
        check.raises(ValueError, lambda ids=ids: student.embed(ids, weight), what, mentions=[wrong, size])
    last = torch.tensor([size - 1, 0])
    check.equal(student.embed(last, weight), weight.index_select(0, last), f"ids {size - 1} and 0, both allowed")


@hidden_test(
    "embed",
    "the gradient of a row is the sum over the places where its id stands",
    hint="Look the rows up in the table you were given, not in a copy: no .detach(), .data or no_grad. PyTorch adds up "
    "the gradients of a row that was used several times. While they are wrong, at most three fifths of the points are "
    "to be had.",
    weight=2,
    at_most=0.6,
)
def test_embed_gradient(student: Student, check: Check) -> None:
    # In float32, so that one mistake costs its own marks: the dtype has a property of its own.
    weight, ids = check.randn(6, 4), torch.tensor([[5, 0, 5], [5, 2, 0]])
    leaf = weight.clone().requires_grad_()
    upstream = check.randn(2, 3, 4)
    check.tensor(student.embed(ids, leaf), (2, 3, 4), "embed").backward(upstream)
    want = one_hot(ids, 6).flatten(0, 1).T @ upstream.double().flatten(0, 1)
    check.close(leaf.grad, want, "the table's gradient, ids 5, 0, 5, 5, 2, 0")


@hidden_test(
    "embed",
    "rows are looked up, with no one-hot vectors of length V",
    hint="A one-hot matrix for B x T ids holds B x T x V numbers, nearly all zeros. Indexing needs B x T x D.",
)
def test_lookup_cost(student: Student, check: Check) -> None:
    weight, ids = check.randn(5003, 5), check.randint(0, 5003, (7, 9))
    largest = student.fixtures.largest_tensor(student.embed, ids, weight)
    check.true(largest <= weight.numel(), f"largest tensor for 63 ids: {largest} numbers; one-hot vectors have 315,189")
    want = weight.index_select(0, ids.flatten()).reshape(7, 9, 5)
    check.equal(student.embed(ids, weight), want, "the rows of a large table")


@hidden_test(
    "embed",
    "the ids and the table stay as they were",
    hint="An operation whose name ends in an underscore changes the caller's tensor.",
)
def test_embed_in_place(student: Student, check: Check) -> None:
    weight, ids = check.randn(8, 3, scale=2.0), check.randint(0, 8, (2, 5))
    check.true(student.fixtures.unchanged(student.embed, ids, weight), "embed changed a tensor that it was given")
    want = weight.index_select(0, ids.flatten()).reshape(2, 5, 3)
    check.equal(student.embed(ids, weight), want, "the rows")
