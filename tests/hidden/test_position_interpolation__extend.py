"""Hidden tests of chapter 15, continued: extend_context."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

PLAN = {"vocab_size": 11, "d_model": 12, "n_layers": 1, "n_heads": 2, "d_ff": 10, "positions": "rope", "max_len": 9}
SCALED = ("rope_scaling", "rope_factor", "rope_original_length", "max_len")


def made(student: Student, check: Check, **fields: Any) -> tuple[Any, dict[str, Tensor]]:
    """A model with known weights, large enough that a wrong angle shows."""
    model = student.fixtures.language_model(**{**PLAN, **fields})
    weights = {
        name: check.randn(*value.shape, scale=1.5 / value.shape[-1] ** 0.5) if value.ndim == 2 else 1 + 0.3 * value
        for name, value in model.state_dict().items()
    }
    model.load_state_dict(weights)
    return model, weights


def check_plan(check: Check, model: Any, what: str, **want: Any) -> None:
    for name, value in want.items():
        got = getattr(model.config, name)
        number = isinstance(value, int | float) and isinstance(got, int | float) and not isinstance(got, bool)
        same = got == value if number else type(got) is type(value) and got == value
        check.true(same, f"{what}, {name}: expected {value!r}, got {got!r}")


def check_weights(check: Check, model: Any, want: dict[str, Tensor], what: str) -> None:
    state = model.state_dict()
    check.equal(sorted(state), sorted(want), f"{what}: the parameters' names")
    for name, value in want.items():
        check.equal(state[name], value, f"{what}, {name}")


@hidden_test(
    "extend_context",
    "the copy's plan says method, factor, the length it had and the length it has",
    hint="dataclasses.replace(config, ...) with rope_scaling, rope_factor, rope_original_length and max_len.",
    weight=3,
)
def test_plan(student: Student, check: Check) -> None:
    for method, factor, length in (("linear", 4, 9), ("yarn", 2.5, 10), ("linear", 3.0, 7), ("yarn", 8, 12)):
        model, _ = made(student, check, max_len=length)
        got, what = student.extend_context(model, factor, method), f"{factor:g} times {length} by {method}"
        want = {"rope_scaling": method, "rope_factor": factor, "rope_original_length": length}
        check_plan(check, got, what, **want, max_len=int(factor * length))


@hidden_test(
    "extend_context",
    "max_len is a whole number, rounded down",
    hint="int(factor * config.max_len): a table of positions has whole rows, and no more than were asked for.",
)
def test_whole(student: Student, check: Check) -> None:
    for factor, length, want in ((2.5, 7, 17), (1.25, 9, 11), (1.5, 5, 7)):
        got = student.extend_context(made(student, check, max_len=length)[0], factor, "yarn")
        reached = got.config.max_len
        check.true(
            type(reached) is int and reached == want, f"{factor} times {length}: expected {want}, got {reached!r}"
        )


@hidden_test(
    "extend_context",
    "without a method it is linear",
    hint='The signature says method="linear".',
)
def test_default(student: Student, check: Check) -> None:
    model, _ = made(student, check)
    check_plan(check, student.extend_context(model, 2), "no method", rope_scaling="linear", max_len=18)
    check_plan(check, student.extend_context(model, factor=2, method="yarn"), "by keyword", rope_scaling="yarn")


@hidden_test(
    "extend_context",
    "every other field of the plan is as it was",
    hint="Replace four fields of the plan; do not write a new one. The base of the frequencies stays, too.",
    weight=2,
)
def test_rest(student: Student, check: Check) -> None:
    fields = {
        "vocab_size": 13, "d_model": 16, "n_layers": 2, "n_heads": 4, "mixer": "gqa", "n_kv_heads": 2, "d_ff": 14,
        "feed_forward": "swiglu", "norm": "rmsnorm", "bias": False, "tied_embeddings": False, "rope_base": 700.0,
        "norm_eps": 1e-3, "max_len": 8, "placement": "pre", "causal": True, "positions": "rope",
    }  # fmt: skip
    for method in ("linear", "yarn"):
        model, weights = made(student, check, **fields)
        got = student.extend_context(model, 2, method)
        check_plan(check, got, method, rope_scaling=method, **{k: v for k, v in fields.items() if k not in SCALED})
        check_weights(check, got, weights, method)


@hidden_test(
    "extend_context",
    "the copy has the same weights, number for number",
    hint="copy.deepcopy(model), which copies the parameters with it. A model that is made anew draws new ones.",
    weight=3,
    at_most=0.6,
)
def test_weights(student: Student, check: Check) -> None:
    for method in ("linear", "yarn"):
        model, weights = made(student, check, n_layers=2)
        got = student.extend_context(model, 4, method)
        check_weights(check, got, weights, method)
        check.true(got.config.rope_scaling == method, f"{method}: the copy's plan does not say so")
    model, _ = made(student, check)
    model.double()
    exact = {
        name: value.double() + check.randn(*value.shape).double() / 3 for name, value in model.state_dict().items()
    }
    model.load_state_dict(exact)
    check_weights(check, student.extend_context(model, 4), exact, "a model in float64")


@hidden_test(
    "extend_context",
    "the copy shares nothing with the model: training one leaves the other alone",
    hint="A deep copy. copy.copy copies the model's outside, and both would hold the same parameters.",
    weight=2,
)
def test_own(student: Student, check: Check) -> None:
    model, weights = made(student, check)
    got = student.extend_context(model, 4, "yarn")
    check_weights(check, got, weights, "the copy")
    got(check.randint(0, 11, (2, 7))).square().sum().backward()
    check.true(type(None) not in map(type, got.grads().values()), "training the copy: a parameter got no gradient")
    untouched = set(map(type, model.grads().values())) == {type(None)}
    check.true(untouched, "training the copy: the model's own parameters got gradients")
    zeros = {name: torch.zeros_like(value) for name, value in weights.items()}
    got.load_state_dict(zeros)
    check_weights(check, model, weights, "the model, after the copy's weights were set to zero")
    check_weights(check, got, zeros, "the copy, set to zero")


@hidden_test(
    "extend_context",
    "the model that was handed over stays as it was",
    hint="Set the copy's config, not the model's.",
    weight=2,
)
def test_original(student: Student, check: Check) -> None:
    model, weights = made(student, check)
    ids = check.randint(0, 11, (2, 9))
    before = model(ids)
    for method in ("linear", "yarn"):
        got = student.extend_context(model, 4, method)
        check_plan(check, got, f"the copy by {method}", rope_scaling=method)
        check_plan(check, model, f"the model after {method}", rope_scaling="none", rope_factor=1.0, max_len=9)
        check_plan(check, model, f"the model after {method}", rope_original_length=None)
    check_weights(check, model, weights, "the model")
    check.close(model(ids), before, "the model's scores, before and after", rtol=1e-6, atol=1e-6)


@hidden_test(
    "extend_context",
    "it reads a longer text as a model does that was planned so from the start",
    hint="The plan is what the model reads its angles by: set extended.config, and nothing else needs to change.",
    weight=3,
)
def test_scores(student: Student, check: Check) -> None:
    for method, factor, length in (("linear", 3, 6), ("yarn", 4.0, 5)):
        model, weights = made(student, check, max_len=length, n_layers=2)
        got = student.extend_context(model, factor, method)
        stretched = {"rope_scaling": method, "rope_factor": float(factor), "rope_original_length": length}
        want = student.fixtures.language_model(**{**PLAN, **stretched, "n_layers": 2, "max_len": int(factor * length)})
        want.load_state_dict(weights)
        ids = check.randint(0, 11, (2, int(factor * length)))
        scores = got(ids)
        check.close(scores, want(ids), f"scores of {ids.shape[1]} tokens, {method}", rtol=1e-4, atol=1e-4)
        apart = float((scores - model(ids)).detach().abs().max())
        check.true(apart > 0.01, f"{method}: the copy's scores are those of the model that was not stretched")


@hidden_test(
    "extend_context",
    "a factor of 1 is allowed, and leaves the scores as they were",
    hint="Nothing is stretched then. Refuse factors below 1 only, and hand the factor on as it came.",
)
def test_one(student: Student, check: Check) -> None:
    model, _ = made(student, check, max_len=6)
    ids = check.randint(0, 11, (3, 6))
    plain = model(ids)
    for method in ("linear", "yarn"):
        got = student.extend_context(model, 1, method)
        check_plan(check, got, f"a factor of 1 by {method}", rope_scaling=method, rope_factor=1, max_len=6)
        check.close(got(ids), plain, f"scores, factor 1 by {method}", rtol=1e-5, atol=1e-5)


@hidden_test(
    "extend_context",
    "a model that cannot be stretched, or an unknown method, is a ValueError that says what it was",
    hint="Look at config.positions and config.rope_scaling before copying; the only methods are linear and yarn.",
    weight=2,
)
def test_bad(student: Student, check: Check) -> None:
    for positions in ("learned", "none", "sinusoidal"):
        model, _ = made(student, check, positions=positions)
        call = partial(student.extend_context, model, 4)
        check.raises(ValueError, call, f"positions={positions!r}", mentions=(positions,))
    model, _ = made(student, check)
    for method in ("ntk", "none", "Linear", ""):
        call = partial(student.extend_context, model, 4, method)
        check.raises(ValueError, call, f"method={method!r}", mentions=(method,))
    check.raises(ValueError, partial(student.extend_context, model, 0.5), "factor 0.5", mentions=(0.5,))
    for method in ("linear", "yarn"):
        fields = {"rope_scaling": method, "rope_factor": 2.0}
        stretched, _ = made(student, check, **fields, max_len=18)
        for again in ("linear", "yarn"):
            call = partial(student.extend_context, stretched, 2, again)
            check.raises(ValueError, call, f"stretched by {method} before", mentions=(method,))
    check_plan(check, student.extend_context(model, 2), "a model that can be stretched", rope_scaling="linear")
