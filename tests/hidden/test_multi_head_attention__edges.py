"""Hidden tests of chapter 03, continued: the edges of split_heads and MultiHeadAttention."""

import torch

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden.test_multi_head_attention import joined
from tests.hidden.test_multi_head_attention__layer import loaded, truth


@hidden_test(
    "split_heads",
    "gradients flow back to every column",
    hint="No .detach(), no .data, and no torch.tensor(...) around the numbers.",
    at_most=0.6,
)
def test_split_gradients(student: Student, check: Check) -> None:
    x, probe = check.randn(2, 4, 15).requires_grad_(), check.randn(2, 3, 4, 5)
    got = check.tensor(student.split_heads(x, 3), (2, 3, 4, 5), "15 columns in 3 heads")
    (got * probe).sum().backward()
    check.close(x.grad, joined(probe), "the gradient of each number: its probe")


@hidden_test(
    "MultiHeadAttention",
    "in self-attention gradients flow through queries, keys and values",
    hint="Without a context x is asked and looked at: no .detach() on either way.",
    at_most=0.6,
)
def test_self_gradients(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 6, 2, bias=True)
    x, probe = check.randn(2, 4, 6).requires_grad_(), check.randn(2, 4, 6)
    (check.tensor(layer(x), (2, 4, 6), "four tokens") * probe).sum().backward()
    y = x.detach().clone().requires_grad_()
    (want,) = torch.autograd.grad((truth(y, weights, 2) * probe).sum(), [y])
    check.close(x.grad, want, "the gradient of x, self-attention")


@hidden_test(
    "MultiHeadAttention",
    "a token that may attend to nothing gets what o_proj makes of zeros",
    hint="Your attention gives zeros there. A softmax over -inf alone is NaN, over -1e9 alone an even blend.",
)
def test_nothing_to_see(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 12, 3, bias=True)
    x = check.randn(2, 5, 12)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[2] = False
    got = check.tensor(layer(x, mask), (2, 5, 12), "token 2 may attend to nothing")
    check.close(got[:, 2], weights["o_proj.bias"].expand(2, 12), "token 2, which may attend to nothing")
    seeing = [0, 1, 3, 4]
    want = truth(x[:, seeing], weights, 3, mask[seeing], x)
    check.close(got[:, seeing], want, "the other tokens")


@hidden_test(
    "MultiHeadAttention",
    "the mask and the context are left as they were",
    hint="~mask makes a new mask; mask.logical_not_() turns the one that the next layer uses too.",
)
def test_mask_kept(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 6, 3)
    x, z, mask = check.randn(2, 5, 6), check.randn(2, 4, 6), torch.ones(5, 4, dtype=torch.bool).tril()
    check.true(student.fixtures.unchanged(layer, x, mask, z), "x, the mask or the context was changed")
    check.close(layer(x, mask, z), truth(x, weights, 3, mask, z), "a mask (T, S) over a context")


@hidden_test(
    "MultiHeadAttention",
    "one token alone works, with any mask that broadcasts with (B, H, T, S)",
    hint="Nothing is special about T = 1, and nothing about a mask of four dimensions.",
)
def test_one_token(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 9, 3)
    x, z = check.randn(2, 1, 9), check.randn(2, 5, 9)
    check.close(layer(x), truth(x, weights, 3), "one token")
    mask = torch.tensor([True, False, True, True, False])
    for shape in ((1, 5), (1, 1, 1, 5), (2, 3, 1, 5)):
        one = mask.expand(shape)
        check.close(layer(x, one, z), truth(x, weights, 3, mask.expand(2, 3, 1, 5), z), f"one token, a mask {shape}")
    x = check.randn(2, 4, 9)
    full = torch.rand(2, 3, 4, 5, generator=check.generator) < 0.5
    full[..., 0] = True
    check.close(layer(x, full, z), truth(x, weights, 3, full, z), "a mask (B, H, T, S)")
    state = student.MultiHeadAttention(6, 3, True).state_dict()
    check.equal(len(state), 8, "matrices and biases of MultiHeadAttention(6, 3, True)")


@hidden_test(
    "MultiHeadAttention",
    "attend is called as attend(q, k, v, mask), in self-attention too",
    hint="By place, in this order, with the mask as it came.",
)
def test_attend_by_place(student: Student, check: Check) -> None:
    layer, weights = loaded(student, check, 12, 3)
    x, mask = check.randn(2, 4, 12), torch.ones(4, 4, dtype=torch.bool).tril()
    check.close(
        layer(x, mask, attend=student.fixtures.Attend(1.0)),
        truth(x, weights, 3, mask),
        "self-attention by an attend, causal",
    )
