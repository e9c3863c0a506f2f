"""Wrong ways to make a model with a longer window, each with the property that must catch it."""

import copy
from dataclasses import replace
from typing import Any

from course.grading.specimens import edit, mutant

edit(
    "extend_context",
    "the new length in place of the original one",
    old="rope_original_length=config.max_len,",
    new="rope_original_length=int(factor * config.max_len),",
    caught_by="the copy's plan says method, factor, the length it had and the length it has",
)
edit(
    "extend_context",
    "max_len left as it was",
    old="max_len=int(factor * config.max_len),",
    new="max_len=config.max_len,",
    caught_by="the copy's plan says method, factor, the length it had and the length it has",
)
edit(
    "extend_context",
    "the original length not written down",
    old="rope_original_length=config.max_len,",
    new="",
    caught_by="the copy's plan says method, factor, the length it had and the length it has",
)
edit(
    "extend_context",
    "the factor made whole",
    old="rope_factor=factor,",
    new="rope_factor=float(int(factor)),",
    caught_by="the copy's plan says method, factor, the length it had and the length it has",
)
edit(
    "extend_context",
    "linear, whatever the method",
    old="rope_scaling=method,",
    new='rope_scaling="linear",',
    caught_by="the copy's plan says method, factor, the length it had and the length it has",
)
edit(
    "extend_context",
    "rounded up",
    old="int(factor * config.max_len)",
    new="-int(-factor * config.max_len // 1)",
    caught_by="max_len is a whole number, rounded down",
)
edit(
    "extend_context",
    "yarn without a method",
    old='method: str = "linear"',
    new='method: str = "yarn"',
    caught_by="without a method it is linear",
)
edit(
    "extend_context",
    "base and positions both scaled",
    old="rope_scaling=method,",
    new="rope_scaling=method, rope_base=config.rope_base * factor,",
    caught_by="every other field of the plan is as it was",
)
edit(
    "extend_context",
    "the weights drawn anew",
    old="extended = copy.deepcopy(model)",
    new="extended = copy.deepcopy(model)\n    extended.initialise()",
    caught_by="the copy has the same weights, number for number",
)
edit(
    "extend_context",
    "queries and keys made larger for the longer text",
    old="extended = copy.deepcopy(model)",
    new="extended = copy.deepcopy(model)\n    for block in extended.blocks:\n"
    "        block.attention.sublayer.q_proj.weight.data *= 1.1",
    caught_by="the copy has the same weights, number for number",
)
edit(
    "extend_context",
    "in float32 whatever the model's type",
    old="extended = copy.deepcopy(model)",
    new="extended = copy.deepcopy(model).float()",
    caught_by="the copy has the same weights, number for number",
)
edit(
    "extend_context",
    "copied outside only: both hold the same parameters",
    old="copy.deepcopy(model)",
    new="copy.copy(model)",
    caught_by="the copy shares nothing with the model: training one leaves the other alone",
)
edit(
    "extend_context",
    "the copy frozen, so that it cannot be tuned",
    old="copy.deepcopy(model)",
    new="copy.deepcopy(model).requires_grad_(False)",
    caught_by="the copy shares nothing with the model: training one leaves the other alone",
)
edit(
    "extend_context",
    "not copied: the model itself",
    old="copy.deepcopy(model)",
    new="model",
    caught_by="the model that was handed over stays as it was",
)
edit(
    "extend_context",
    "the plan given to both",
    old="    return extended",
    new="    model.config = extended.config\n    return extended",
    caught_by="the model that was handed over stays as it was",
)
edit(
    "extend_context",
    "the plan kept beside the one that is read",
    old="extended.config = replace(",
    new="extended.longer = replace(",
    caught_by="it reads a longer text as a model does that was planned so from the start",
)
edit(
    "extend_context",
    "a factor of 1 refused",
    old="if not factor >= 1:",
    new="if not factor > 1:",
    caught_by="a factor of 1 is allowed, and leaves the scores as they were",
)
edit(
    "extend_context",
    "at least twice as long",
    old="    extended = copy",
    new="    factor = max(factor, 2)\n    extended = copy",
    caught_by="a factor of 1 is allowed, and leaves the scores as they were",
)
edit(
    "extend_context",
    "only a table refused, other positions made rotary",
    old='if config.positions != "rope":',
    new='if config.positions != "learned":\n        config = replace(config, positions="rope")\n    else:',
    caught_by="a model that cannot be stretched, or an unknown method, is a ValueError that says what it was",
)
edit(
    "extend_context",
    "an unknown method taken for linear",
    old='    if method not in ("linear", "yarn"):\n        raise ValueError(f"method must be \'linear\' or \'yarn\', '
    'not {method!r}")\n',
    new='    method = "yarn" if method == "yarn" else "linear"\n',
    caught_by="a model that cannot be stretched, or an unknown method, is a ValueError that says what it was",
)
edit(
    "extend_context",
    "stretched twice",
    old='if config.rope_scaling != "none":',
    new="if False:",
    caught_by="a model that cannot be stretched, or an unknown method, is a ValueError that says what it was",
)
edit(
    "extend_context",
    "stretched twice by the same method only refused",
    old='if config.rope_scaling != "none":',
    new="if config.rope_scaling == method:",
    caught_by="a model that cannot be stretched, or an unknown method, is a ValueError that says what it was",
)


@mutant("a new model of the plan, its weights forgotten", caught_by="the copy has the same weights, number for number")
def extend_context(model: Any, factor: float, method: str = "linear") -> Any:
    from lib.model import LanguageModel

    config, length = model.config, model.config.max_len
    if config.positions != "rope" or config.rope_scaling != "none":
        raise ValueError(f"cannot stretch positions {config.positions!r} with scaling {config.rope_scaling!r}")
    if method not in ("linear", "yarn") or factor < 1:
        raise ValueError(f"method {method!r} with factor {factor}")
    change = {"rope_scaling": method, "rope_factor": factor, "rope_original_length": length}
    return LanguageModel(replace(config, **change, max_len=int(factor * length)))


@mutant("the base enlarged instead", caught_by="every other field of the plan is as it was")
def extend_context(model: Any, factor: float, method: str = "linear") -> Any:
    extended = copy.deepcopy(model)
    d = model.config.d_head
    longer = int(factor * model.config.max_len)
    extended.config = replace(model.config, rope_base=model.config.rope_base * factor ** (d / (d - 2)), max_len=longer)
    return extended
