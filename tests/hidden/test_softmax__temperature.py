"""Hidden tests of chapter 01, the second exercise: softmax with temperature."""

import math
from functools import partial

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

INF = math.inf


def truth(x: Tensor, dim: int = -1) -> Tensor:
    """Torch's own softmax in float64."""
    return torch.softmax(x.double(), dim)


@hidden_test(
    "softmax_with_temperature",
    "the scores are divided by the temperature",
    hint="Below 1 sharpens, above 1 flattens: divide the scores, before the softmax. Raising the weights to a power "
    "afterwards is too late: some have already rounded to 0. Put no floor under the temperature and add no small "
    "number to it: scores and temperature made smaller alike leave the weights as they were.",
    weight=2,
)
def test_temperature_divides(student: Student, check: Check) -> None:
    logits = check.randn(4, 9, scale=2.0)
    for base in check.shuffled([0.3, 0.7, 1.0, 1.7, 4.0]):
        temperature = base * (1 + check.integer(0, 20) / 100)
        got = student.softmax_with_temperature(logits, temperature)
        check.close(got, truth(logits.double() / temperature), f"temperature {temperature:.3g}")
    for exponent in check.shuffled([-60, -20, -10, 20, 60]):
        factor = 2.0**exponent  # a power of two, so that nothing is rounded
        got = student.softmax_with_temperature(logits * factor, 0.75 * factor)
        check.close(got, truth(logits.double() / 0.75), f"scores and temperature 0.75 both times 2^{exponent}")
    far = torch.tensor([[0.0, -250.0, -400.0]])
    got = student.softmax_with_temperature(far, 200.0)
    check.close(got, truth(far.double() / 200), "scores 250 and 400 below the largest at temperature 200")
    got = student.softmax_with_temperature(logits=logits, temperature=2)
    check.close(got, truth(logits.double() / 2), "temperature 2, a whole number, by keyword")


@hidden_test(
    "softmax_with_temperature",
    "the weights are shared out along `dim`",
    hint="Pass `dim` on to your softmax: the weights are not always shared out along the last one.",
)
def test_temperature_dim(student: Student, check: Check) -> None:
    logits = check.randn(3, 5, 7, 2)
    for dim in check.shuffled([0, 1, 2, 3, -1, -2, -3, -4]):
        got = student.softmax_with_temperature(logits, 0.6, dim=dim)
        check.close(got, truth(logits.double() / 0.6, dim), f"temperature 0.6 with dim={dim}")


@hidden_test(
    "softmax_with_temperature",
    "temperature 0 gives everything to the largest score",
    hint="Nothing can be divided by 0. Treat 0 apart: it is what the weights tend to as the temperature falls to 0. "
    "`dim`, -inf and the dtype count there too: a row without candidates has no winner.",
    weight=2,
)
def test_zero_temperature(student: Student, check: Check) -> None:
    logits = check.randn(6, 11)
    want = torch.nn.functional.one_hot(logits.argmax(-1), 11).float()
    check.close(student.softmax_with_temperature(logits, 0.0), want, "temperature 0.0")
    check.close(student.softmax_with_temperature(logits, 0), want, "temperature 0, a whole number")
    check.close(student.softmax_with_temperature(logits - 300, 0.0), want, "temperature 0 with scores near -300")
    logits = check.randn(3, 5, 7, 2)
    for dim in check.shuffled([0, 1, 2, 3, -1, -2, -3, -4]):
        want = torch.zeros_like(logits).scatter(dim, logits.argmax(dim, keepdim=True), 1.0)
        check.close(student.softmax_with_temperature(logits, 0.0, dim=dim), want, f"temperature 0 with dim={dim}")
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        got = student.softmax_with_temperature(logits.to(dtype), 0.0, dim=2)
        check.tensor(got, (3, 5, 7, 2), "temperature 0", dtype)
    masked = torch.tensor([[1.0, -INF, 0.5], [-INF, -INF, -INF]])
    want = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    check.equal(student.softmax_with_temperature(masked, 0.0), want, "temperature 0 with scores of -inf")


@hidden_test(
    "softmax_with_temperature",
    "at temperature 0, scores tied for the largest share equally",
    hint="argmax picks one winner, but the limit of the weights keeps all that are tied. Compare with the maximum, "
    "exactly: nearly as large is not tied.",
)
def test_ties(student: Student, check: Check) -> None:
    logits = torch.tensor([[3.0, 1.0, 3.0, -2.0, 3.0], [0.0, -1.0, -5.0, 0.0, -1.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    winners = torch.tensor([[1.0, 0, 1, 0, 1], [1, 0, 0, 1, 0], [1, 1, 1, 1, 1]])
    order = torch.tensor(check.shuffled(range(5)))
    want = winners / winners.sum(1, keepdim=True)
    logits, want = logits[:, order], want[:, order]
    check.close(student.softmax_with_temperature(logits, 0.0), want, "temperature 0 with ties")
    check.close(student.softmax_with_temperature(logits.T, 0.0, dim=0), want.T, "the same as columns, with dim=0")
    for dtype in (torch.float32, torch.float64):
        close = torch.full((5,), 3.0, dtype=dtype)
        close[order[0]] = torch.nextafter(close[0], torch.tensor(4.0, dtype=dtype))
        want = torch.nn.functional.one_hot(order[0], 5)
        name = str(dtype).removeprefix("torch.")
        check.close(student.softmax_with_temperature(close, 0), want, f"temperature 0, one {name} a little larger")


@hidden_test(
    "softmax_with_temperature",
    "a tiny temperature neither overflows nor gives NaN",
    hint="1000 / 1e-38 is infinite in float32. Subtract the row's maximum before dividing: 0 divided by anything "
    "is 0. And a temperature below the dtype's smallest normal number must not become 0.",
    weight=2,
)
def test_tiny_temperature(student: Student, check: Check) -> None:
    order = torch.tensor(check.shuffled(range(4)))
    for centre in (1000.0, -1000.0, 0.0):
        logits = (torch.tensor([0.0, -1.0, -2.5, -4.0]) + centre)[order]
        want = torch.tensor([1.0, 0.0, 0.0, 0.0])[order]
        for temperature in (1e-3, 1e-20, 1e-38, 1e-42, 1e-300, 5e-324):
            got = student.softmax_with_temperature(logits, temperature)
            check.close(got, want, f"scores near {centre:.0f} at temperature {temperature:g}")


@hidden_test(
    "softmax_with_temperature",
    "a huge temperature shares equally among all scores but -inf",
    hint="The hotter, the flatter, but -inf stays out: -inf / inf is NaN, so keep the divisor finite.",
)
def test_huge_temperature(student: Student, check: Check) -> None:
    logits = check.randn(3, 6, scale=5.0)
    logits[1, 2:4] = -INF
    want = torch.full((3, 6), 1 / 6)
    want[1] = torch.tensor([0.25, 0.25, 0.0, 0.0, 0.25, 0.25])
    for temperature in (1e30, 1e38, 1e300, INF):
        got = student.softmax_with_temperature(logits, temperature)
        check.close(got, want, f"temperature {temperature:g}", atol=1e-6)


@hidden_test(
    "softmax_with_temperature",
    "a score of -inf gets exactly 0, and a row of nothing but -inf gets zeros, at other temperatures too",
    hint="-inf minus -inf is NaN: the shift must be finite.",
)
def test_temperature_masked(student: Student, check: Check) -> None:
    logits = check.randn(4, 5)
    logits[0, check.integer(0, 5)] = -INF
    empty = check.integer(1, 4)
    logits[empty] = -INF
    for temperature in (0.4, 1.0, 3.0):
        got = student.softmax_with_temperature(logits, temperature)
        got = check.tensor(got, (4, 5), f"temperature {temperature}")
        check.equal(got[empty], torch.zeros(5), f"the row of -inf at temperature {temperature}")
        hidden = logits == -INF
        check.equal(got[hidden], torch.zeros(int(hidden.sum())), f"the weights of -inf at temperature {temperature}")
        check.close(got, truth(logits.double() / temperature).nan_to_num(0.0), f"temperature {temperature}")


@hidden_test(
    "softmax_with_temperature",
    "a negative temperature or NaN is a ValueError that names it and its value",
    hint="`temperature < 0` is False for NaN; `not temperature >= 0` catches both. Put the value into the message.",
)
def test_bad_temperature(student: Student, check: Check) -> None:
    logits = check.randn(2, 3)
    check.close(student.softmax_with_temperature(logits, 1.5), truth(logits / 1.5), "temperature 1.5")
    for bad in (-1.5, -1e-9, -2, -INF, math.nan):
        check.raises(
            ValueError,
            partial(student.softmax_with_temperature, logits, bad),
            f"temperature {bad}",
            mentions=("temperature", bad),
        )


@hidden_test(
    "softmax_with_temperature",
    "gradients flow through the temperature, and the dtype is kept",
    hint="Divide tensors, not numbers taken out of them. Work in float32 or better, and give back the logits' dtype.",
)
def test_temperature_gradients(student: Student, check: Check) -> None:
    logits = check.randn(3, 4)
    for temperature in (0.5, 2.5):
        check.gradients(
            partial(student.softmax_with_temperature, temperature=temperature, dim=0),
            logits,
            what=f"temperature {temperature}",
        )
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = logits.to(dtype)
        got = student.softmax_with_temperature(x, 0.5, dim=1)
        got = check.tensor(got, (3, 4), "temperature 0.5", dtype)
        check.close(got, truth(x.double() / 0.5, 1), f"temperature 0.5 in {str(dtype).removeprefix('torch.')}")
    # Divided and exponentiated in float32, a result is rounded once: by 2^-11 in float16 at most.
    sharp = check.randn(4, 33, scale=4.0, dtype=torch.float16)
    got = student.softmax_with_temperature(sharp, 0.7)
    check.close(got, truth(sharp.double() / 0.7), "float16 scores, computed in float32", rtol=1e-3, atol=1e-6)
    whole = check.randint(-3, 4, (3, 5))
    got = check.tensor(student.softmax_with_temperature(whole, 0.5), (3, 5), "integers", torch.float32)
    check.close(got, truth(whole / 0.5), "integers at temperature 0.5")


@hidden_test(
    "softmax_with_temperature",
    "it rests on your own softmax, and leaves the logits as they were",
    hint="Call the softmax from Exercise 1 on the scaled scores; write nothing into the logits.",
)
def test_temperature_built_by_hand(student: Student, check: Check) -> None:
    x = check.randn(3, 5)
    for temperature in (0.0, 0.8):
        what, call = f"temperature {temperature}", student.softmax_with_temperature
        if temperature:
            check.close(call(x, temperature), truth(x / temperature), what)
        called = student.fixtures.operators(call, x, temperature)
        ready = sorted({name for name in called if "softmax" in name})
        check.true(bool(called), f"{what}: expected torch operators to run, none did")
        check.true(not ready, f"{what}: expected your own softmax, but {', '.join(ready)} was called")
        check.true(student.fixtures.unchanged(call, x, temperature), f"{what}: the logits passed in were changed")
