"""Hidden tests: named properties of an exercise, each with a hint for whoever fails it.

A hidden test lives in `tests/hidden/test_<chapter>.py`:

    @hidden_test("softmax", "the weights along `dim` sum to one", hint="Divide by the sum over `dim`.")
    def test_rows_sum_to_one(student: Student, check: Check) -> None:
        x = check.randn(3, 5, 7)
        check.close(student.softmax(x, dim=1).sum(1), torch.ones(3, 7), "the sum over dim=1")

It runs in the trusted process. `student` reaches the submitted code, through the sandbox's wall or
without it, and `check` supplies random inputs and compares results. Nothing else may assert.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from course import paths
from course.grading.student import Remote, Student, StudentError

TEST_FOLDER = paths.TESTS / "hidden"

# Relative and absolute tolerance by the dtype of the student's result: a few roundings in that
# dtype over sums of a few hundred terms. bfloat16 keeps 8 bits of mantissa, float16 11, float32 24.
TOLERANCES = {
    torch.float64: (1e-9, 1e-10),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (1e-2, 2e-3),
    torch.bfloat16: (4e-2, 1e-2),
}


class PropertyFailed(Exception):
    """The student's result is wrong; the message says what was expected and what came."""


@dataclass(frozen=True)
class HiddenTest:
    """One property: what it says of the exercise, what to do about a failure, what it is worth."""

    exercise: str
    says: str
    hint: str
    weight: float
    run: Callable[[Student, Check], None]
    at_most: float = 1.0  # the share of the exercise's points to be had while it fails


def hidden_test(
    exercise: str, says: str, *, hint: str, weight: float = 1.0, at_most: float = 1.0
) -> Callable[[Callable[[Student, Check], None]], Callable[[Student, Check], None]]:
    """Mark a function as the hidden test of one property.

    Args:
        exercise: the exercise's id (its grade_id).
        says: the property, in words that a student understands; unique in its chapter.
        hint: what to look at, for a student whose code fails it; never the code itself.
        weight: its share of the exercise's points, relative to the other properties'.
        at_most: the share of the points that can still be had while it fails: below 1 for the
            property that is the exercise's purpose, such as building what torch has ready.
    """

    def mark(function: Callable[[Student, Check], None]) -> Callable[[Student, Check], None]:
        function.hidden_test = HiddenTest(exercise, says, hint, weight, function, at_most)  # type: ignore[attr-defined] # `load` looks for it
        return function

    return mark


def load(chapter: str) -> list[HiddenTest]:
    """The hidden tests of the chapter with this name, in the order of its file.

    A chapter with many goes on in `test_<chapter>__<exercise>.py`, read after the first.

    Raises:
        FileNotFoundError: the chapter has no hidden tests.
    """
    path = TEST_FOLDER / f"test_{chapter}.py"
    if not path.is_file():
        raise FileNotFoundError(f"chapter {chapter!r} has no hidden tests: {path} is not there")
    paths.make_importable()  # a chapter's tests may share a truth: `from tests.hidden.transformer_truth import ...`
    modules = [_execute(file) for file in (path, *sorted(TEST_FOLDER.glob(f"test_{chapter}__*.py")))]
    values = [value for module in modules for value in vars(module).values()]
    marks = [getattr(value, "hidden_test", None) for value in values]
    found = [mark for mark in marks if isinstance(mark, HiddenTest)]
    said = [test.says for test in found]
    repeated = {says for says in said if said.count(says) > 1}
    if repeated:
        raise ValueError(f"{path}: two hidden tests have the same name: {sorted(repeated)}")
    return found


def _execute(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"hidden_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Check:
    """Random inputs from the grader's seed, and comparisons that say what came and what should have.

    Every comparison counts; a test that made none fails.
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.comparisons = 0

    # Inputs

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
        """A standard normal tensor, times `scale`."""
        return (torch.randn(*shape, generator=self.generator, dtype=torch.float64) * scale).to(dtype)

    def randint(self, low: int, high: int, shape: Sequence[int]) -> Tensor:
        """Integers in [low, high), int64."""
        return torch.randint(low, high, tuple(shape), generator=self.generator)

    def integer(self, low: int, high: int) -> int:
        """One integer in [low, high)."""
        return int(self.randint(low, high, (1,)))

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        """The items in random order."""
        return [items[i] for i in torch.randperm(len(items), generator=self.generator).tolist()]

    # Comparisons

    def true(self, condition: bool, message: str) -> None:
        """Fail with `message` unless the condition holds."""
        self.comparisons += 1
        if not condition:
            raise PropertyFailed(message)

    def tensor(self, got: Any, shape: Sequence[int], what: str, dtype: torch.dtype | None = None) -> Tensor:
        """`got` as a tensor of this shape (and dtype), or a failure that names both."""
        self.true(isinstance(got, Tensor), f"{what}: expected a tensor, got {describe(got)}")
        expected, came = list(shape), list(got.shape)
        self.true(came == expected, f"{what}: expected shape {expected}, got {came}")
        if dtype is not None:
            self.true(got.dtype == dtype, f"{what}: expected dtype {_dtype(dtype)}, got {_dtype(got.dtype)}")
        return got

    def close(
        self, got: Any, want: Tensor | float, what: str, *, rtol: float | None = None, atol: float | None = None
    ) -> None:
        """Compare with the truth: same shape, no NaN, and close in float64 by the dtype's tolerance."""
        target = torch.as_tensor(want).detach()
        if isinstance(got, int | float) and not isinstance(got, bool) and target.ndim == 0:
            got = torch.tensor(got, dtype=torch.float64)
        result = self.tensor(got, target.shape, what).detach()
        imaginary = result.is_complex() and not target.is_complex()
        self.true(not imaginary, f"{what}: expected real numbers, got {_dtype(result.dtype)}")
        default_rtol, default_atol = TOLERANCES.get(result.dtype, (0.0, 0.0))
        rtol = default_rtol if rtol is None else rtol
        atol = default_atol if atol is None else atol
        result, target = result.cpu().to(torch.float64), target.cpu().to(torch.float64)
        wrong = ~torch.isclose(result, target, rtol=rtol, atol=atol)
        if not bool(wrong.any()):
            return
        error = torch.where(wrong, (result - target).abs().nan_to_num(math.inf, math.inf), -1.0)
        index = [] if error.ndim == 0 else [int(i) for i in torch.unravel_index(error.argmax(), error.shape)]
        where = f" at index {index}" if index else ""
        count = f" ({int(wrong.sum())} of {wrong.numel()} values are off)" if wrong.numel() > 1 else ""
        expected, came = float(target[tuple(index)]), float(result[tuple(index)])
        digits = 6 if abs(expected - came) > 1e-4 * abs(expected) else 12  # enough to tell them apart
        raise PropertyFailed(f"{what}: expected {expected:.{digits}g}, got {came:.{digits}g}{where}{count}")

    def equal(self, got: Any, want: Any, what: str) -> None:
        """Exact equality, for integers, booleans, strings and lists of them, and tensors bit for bit."""
        if isinstance(want, Tensor):
            result = self.tensor(got, want.shape, what, want.dtype)
            if not torch.equal(result, want):
                self.close(result.double(), want.double(), what, rtol=0.0, atol=0.0)
            return
        same = type(got) is type(want) and got == want
        self.true(same, f"{what}: expected {describe(want)}, got {describe(got)}")

    def raises(
        self, error: type[Exception], call: Callable[[], Any], what: str, mentions: Sequence[object] = ()
    ) -> None:
        """The call must raise this error, with a message that mentions each of the given things."""
        try:
            call()
        except StudentError as raised:
            if raised.not_started:
                raise
            self.true(
                error.__name__ in raised.kinds,
                f"{what}: expected a {error.__name__}, got a {raised.kinds[0]} ({raised.message})",
            )
            for thing in mentions:
                self.true(
                    str(thing) in raised.message,
                    f"{what}: the {error.__name__}'s message must name {thing!r}; it was: {raised.message}",
                )
            return
        self.true(False, f"{what}: expected a {error.__name__}, but nothing was raised")

    def gradients(self, function: Callable[..., Any], *inputs: Tensor, what: str) -> None:
        """Compare the gradients by backward with finite differences, in float64 (`gradcheck`)."""
        leaves = tuple(x.detach().double().requires_grad_() if x.is_floating_point() else x for x in inputs)
        output = function(*leaves)
        self.true(isinstance(output, Tensor), f"{what}: expected a tensor, got {describe(output)}")
        self.true(output.requires_grad, f"{what}: no gradient flows from the result back to the inputs")
        try:
            torch.autograd.gradcheck(function, leaves, check_undefined_grad=False, fast_mode=True)
        except GradcheckError:
            raise PropertyFailed(f"{what}: the gradients differ from finite differences") from None


def describe(value: Any) -> str:
    """A short description of what a student's code returned, safe to print."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)} and dtype {_dtype(value.dtype)}"
    if isinstance(value, Remote):
        return f"an object of type {value.type_name}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
