"""Hidden tests of chapter 05, continued: the edges of LayerNorm and RMSNorm."""

from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden import test_layer_normalization as layernorm
from tests.hidden import test_layer_normalization__rmsnorm as rmsnorm

READY = (*layernorm.READY, *rmsnorm.READY, "normalize")
TRUTH: dict[str, Any] = {"LayerNorm": layernorm, "RMSNorm": rmsnorm}


def fresh(kind: str) -> tuple[Tensor, ...]:
    """The parameters of a new layer of width 9."""
    return (torch.ones(9), torch.zeros(9)) if kind == "LayerNorm" else (torch.ones(9),)


def eps(kind: str, student: Student, check: Check) -> None:
    layer, x = getattr(student, kind)(9), check.randn(4, 9, scale=2e-3)
    check.close(layer(x), TRUTH[kind].truth(x, *fresh(kind)), "numbers near 0.002, no eps named")


def precision(kind: str, student: Student, check: Check) -> None:
    layer, *rest = TRUTH[kind].loaded(student, check, 11, dtype=torch.float16)
    x = check.randn(3, 11, dtype=torch.float16, scale=600)
    want = TRUTH[kind].truth(x, *rest)
    check.close(layer(x), want, "float16 numbers near 600, float16 parameters", rtol=1e-2, atol=2e-2)
    layer, *rest = TRUTH[kind].loaded(student, check, 9)
    x = check.randn(4, 9, dtype=torch.float64)
    got = check.tensor(layer(x), (4, 9), "float64 input, float32 parameters", torch.float64)
    check.close(got, TRUTH[kind].truth(x, *rest), "float64 input, float32 parameters")


def width_one(kind: str, student: Student, check: Check) -> None:
    layer, *rest = TRUTH[kind].loaded(student, check, 1)
    x = check.randn(2, 3, 1)
    check.close(layer(x), TRUTH[kind].truth(x, *rest), "d=1")


def by_hand(kind: str, student: Student, check: Check) -> None:
    layer, *rest = TRUTH[kind].loaded(student, check, 6)
    f32, f16, f64 = torch.float32, torch.float16, torch.float64
    for shape, dtype in (((6,), f32), ((2, 3, 6), f32), ((3, 6), f16), ((2, 3, 6), f64)):
        x = check.randn(*shape, dtype=dtype)
        called = (*student.fixtures.operators(layer, x), *student.fixtures.functions(layer, x))
        ready = [name for name in called if any(part in name for part in READY)]
        check.equal(ready, [], f"torch's own normalisations, {dtype} of shape {shape}")
        check.close(layer(x), TRUTH[kind].truth(x, *rest), f"{dtype} of shape {shape}", rtol=1e-2, atol=1e-2)


@hidden_test(
    "LayerNorm",
    "the eps of LayerNorm is 1e-5 unless another is given",
    hint="eps: float = 1e-5, as the stub has it.",
)
def test_eps_layernorm(student: Student, check: Check) -> None:
    eps("LayerNorm", student, check)


@hidden_test(
    "LayerNorm",
    "the precision of LayerNorm goes by its input, not by its parameters",
    hint="x.float() unless x is float64; the dtype of self.weight says nothing about x.",
)
def test_precision_layernorm(student: Student, check: Check) -> None:
    precision("LayerNorm", student, check)


@hidden_test(
    "LayerNorm",
    "LayerNorm of width one works",
    hint="Divide by d: d - 1 is zero here.",
)
def test_width_one_layernorm(student: Student, check: Check) -> None:
    width_one("LayerNorm", student, check)


@hidden_test(
    "LayerNorm",
    "LayerNorm is built by hand for every shape and dtype",
    hint="No torch.nn.functional.layer_norm, rms_norm or normalize on any way through the code.",
    at_most=0.5,
)
def test_by_hand_layernorm(student: Student, check: Check) -> None:
    by_hand("LayerNorm", student, check)


@hidden_test(
    "RMSNorm",
    "the eps of RMSNorm is 1e-5 unless another is given",
    hint="eps: float = 1e-5, as the stub has it.",
)
def test_eps_rmsnorm(student: Student, check: Check) -> None:
    eps("RMSNorm", student, check)


@hidden_test(
    "RMSNorm",
    "the precision of RMSNorm goes by its input, not by its parameters",
    hint="x.float() unless x is float64; the dtype of self.weight says nothing about x.",
)
def test_precision_rmsnorm(student: Student, check: Check) -> None:
    precision("RMSNorm", student, check)


@hidden_test(
    "RMSNorm",
    "RMSNorm of width one works",
    hint="Divide by d: d - 1 is zero here.",
)
def test_width_one_rmsnorm(student: Student, check: Check) -> None:
    width_one("RMSNorm", student, check)


@hidden_test(
    "RMSNorm",
    "RMSNorm is built by hand for every shape and dtype",
    hint="No torch.nn.functional.layer_norm, rms_norm or normalize on any way through the code.",
    at_most=0.5,
)
def test_by_hand_rmsnorm(student: Student, check: Check) -> None:
    by_hand("RMSNorm", student, check)
