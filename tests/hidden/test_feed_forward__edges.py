"""Hidden tests of chapter 07, continued: the edges of gelu, FeedForward and SwiGLU."""

from functools import partial

import torch

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden.test_feed_forward import MAPS, gate, gated, narrow, plain


@hidden_test(
    "gelu",
    "gelu is built by hand in every dtype",
    hint="x / 2 * (1 + torch.erf(x / sqrt(2))), and no gelu of torch on any way through the code.",
    at_most=0.5,
)
def test_gelu_by_hand(student: Student, check: Check) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16):
        x = check.randn(2, 5, dtype=dtype)
        names = student.fixtures.operators(student.gelu, x)
        check.close(student.gelu(x), torch.nn.functional.gelu(x.double()), f"{dtype}", rtol=1e-2, atol=1e-2)
        check.equal([n for n in names if "gelu" in n], [], f"torch's own gelu, {dtype}")


@hidden_test(
    "FeedForward",
    "the activation is the very function that was handed in",
    hint="Keep what came and call it, be it a module or a function; the arguments stand in the order of the stub.",
)
def test_activation_kept(student: Student, check: Check) -> None:
    for factor in (2.0, -0.5):
        layer = student.FeedForward(5, 7, student.fixtures.Times(factor), False)
        weights = {"up_proj.weight": check.randn(7, 5), "down_proj.weight": check.randn(5, 7)}
        layer.load_state_dict(weights)
        x = check.randn(3, 5)
        check.close(
            layer(x),
            narrow(x, weights, partial(torch.mul, torch.tensor(factor))),
            f"an activation that multiplies by {factor}",
        )
    relu = student.fixtures.config(activation="relu").activation_function
    layer, weights = plain(student, check, 5, 9, activation=relu)
    x = check.randn(3, 5)
    check.close(layer(x), narrow(x, weights, torch.relu), "torch.relu, a function")


@hidden_test(
    "SwiGLU",
    "large gates do not overflow",
    hint="torch.sigmoid is safe everywhere; exp(z) / (1 + exp(z)) is inf / inf from 89 on.",
)
def test_large_gates(student: Student, check: Check) -> None:
    layer = student.SwiGLU(1, 1)
    layer.load_state_dict({name: torch.ones(1, 1) for name in MAPS})
    x = torch.tensor([[-300.0], [-100.0], [100.0], [300.0]])
    check.close(layer(x), torch.tensor([[0.0], [0.0], [1e4], [9e4]]), "gates of -300, -100, 100 and 300")


@hidden_test(
    "SwiGLU",
    "any leading dimensions of SwiGLU work",
    hint="nn.Linear takes any; so need you ask for none.",
)
def test_gated_shapes(student: Student, check: Check) -> None:
    layer, weights = gated(student, check, 4, 6)
    for shape in ((4,), (3, 4), (2, 3, 5, 4)):
        x = check.randn(*shape)
        check.close(layer(x), gate(x, weights), f"x of shape {shape}")
