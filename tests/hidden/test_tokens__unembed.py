"""Hidden tests of chapter 00, the third exercise: unembed."""

import torch

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student


@hidden_test(
    "unembed",
    "the score of an id is the dot product of the vector with its row",
    hint="(..., D) times (D, V): multiply by the transposed table. By hand: (2, 3) against the row (1, 1) gives 5.",
    weight=2,
)
def test_dot_products(student: Student, check: Check) -> None:
    table = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    check.close(student.unembed(torch.tensor([[[2.0, 3.0]]]), table), torch.tensor([[[2.0, 3.0, 5.0]]]), "by hand")
    x, weight = check.randn(3, 4, 6, dtype=torch.float64), check.randn(9, 6, dtype=torch.float64)
    want = (x.unsqueeze(-2) * weight).sum(-1)
    check.close(student.unembed(x, weight), want, "random vectors, D = 6, V = 9")
    narrow = check.randn(2, 6, dtype=torch.float64)
    check.close(student.unembed(x, narrow), (x.unsqueeze(-2) * narrow).sum(-1), "D = 6, V = 2")


@hidden_test(
    "unembed",
    "the table is transposed even when it is square",
    hint="With V = D both `x @ weight` and `x @ weight.T` have the right shape, and only the second scores rows.",
)
def test_square(student: Student, check: Check) -> None:
    x, weight = check.randn(2, 3, 5, dtype=torch.float64), check.randn(5, 5, dtype=torch.float64)
    check.close(student.unembed(x, weight), (x.unsqueeze(-2) * weight).sum(-1), "V = D = 5")


@hidden_test(
    "unembed",
    "vectors of any shape (..., D) give scores (..., V)",
    hint="The last dimension D becomes V and the others stay in their order. `@` does this for any number of them.",
)
def test_leading(student: Student, check: Check) -> None:
    weight = check.randn(11, 4)
    for shape in ((), (1,), (3,), (2, 3), (2, 3, 5)):
        x = check.randn(*shape, 4)
        check.close(student.unembed(x, weight), torch.einsum("...d,vd->...v", x, weight), f"x of shape {[*shape, 4]}")
    x, wide = check.randn(4, 3, 2).permute(2, 1, 0), check.randn(4, 11).T
    check.close(student.unembed(x, wide), torch.einsum("...d,vd->...v", x, wide), "transposed vectors and table")


@hidden_test(
    "unembed",
    "the scores are raw: no scale, no normalisation, no softmax",
    hint="Chapter 01 turns scores into probabilities. Here a vector twice as long has scores twice as large.",
    weight=2,
)
def test_raw(student: Student, check: Check) -> None:
    for width in (3, 17):
        x, weight = check.randn(5, width, dtype=torch.float64), check.randn(7, width, dtype=torch.float64) + 0.5
        once, twice = student.unembed(x, weight), student.unembed(2 * x, weight)
        check.close(twice, 2 * once, f"x doubled, D = {width}")
        check.close(student.unembed(x, 3 * weight), 3 * once, f"the table tripled, D = {width}")
        check.close(once, torch.einsum("nd,vd->nv", x, weight), f"the scores, D = {width}")


@hidden_test(
    "unembed",
    "the scores have the vectors' dtype and its precision",
    hint="Multiply in the dtype that came. A detour through float32 costs a float64 model half of its digits.",
)
def test_unembed_dtypes(student: Student, check: Check) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x, weight = check.randn(3, 6, dtype=dtype), check.randn(5, 6, dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        got = check.tensor(student.unembed(x, weight), (3, 5), f"scores in {name}", dtype)
        check.close(got, torch.einsum("nd,vd->nv", x.double(), weight.double()), f"scores in {name}")


@hidden_test(
    "unembed",
    "gradients reach the vectors and the table",
    hint="Both factors of the product learn: no .detach(), .data or no_grad on either. Otherwise at most three fifths "
    "of the points are to be had.",
    weight=2,
    at_most=0.6,
)
def test_unembed_gradient(student: Student, check: Check) -> None:
    # In float32, so that one mistake costs its own marks: the dtype has a property of its own.
    x, weight, pull = check.randn(2, 3, 4), check.randn(5, 4), check.randn(2, 3, 5)
    leaves = (x.clone().requires_grad_(), weight.clone().requires_grad_())
    out = check.tensor(student.unembed(*leaves), (2, 3, 5), "unembed")
    check.true(out.requires_grad, "no gradient can flow back from the scores")
    of_x, of_weight = torch.autograd.grad((out * pull).sum(), leaves, allow_unused=True)
    check.close(of_x, torch.einsum("btv,vd->btd", pull, weight), "the vectors' gradient")
    check.close(of_weight, torch.einsum("btv,btd->vd", pull, x), "the table's gradient")


@hidden_test(
    "unembed",
    "vectors of another width than the rows are a ValueError that names both widths",
    hint="Compare x's last dimension with the table's second before multiplying, and put both into the message.",
)
def test_widths(student: Student, check: Check) -> None:
    for width, other in ((6, 13), (13, 6), (6, 1)):
        x, weight = check.randn(2, 3, width), check.randn(9, other)
        right = check.randn(9, width)
        want = torch.einsum("btd,vd->btv", x, right)
        check.close(student.unembed(x, right), want, f"x and table of width {width}")
        what = f"x of width {width}, table of width {other}"
        check.raises(ValueError, lambda x=x, w=weight: student.unembed(x, w), what, mentions=[width, other])
    check.raises(ValueError, lambda: student.unembed(check.randn(2, 9), check.randn(9, 6)), "x as wide as V, not as D")


@hidden_test(
    "unembed",
    "the vectors and the table are not changed",
    hint="An operation whose name ends in an underscore changes the caller's tensor.",
)
def test_unembed_in_place(student: Student, check: Check) -> None:
    x, weight = check.randn(3, 5, scale=2.0), check.randn(7, 5)
    check.true(student.fixtures.unchanged(student.unembed, x, weight), "unembed changed a tensor that it was given")
    check.close(student.unembed(x, weight), torch.einsum("nd,vd->nv", x, weight), "the scores")
