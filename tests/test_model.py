"""`LanguageModel`: every field of the plan counts, nothing impossible is built, and a summary tells what was."""

from __future__ import annotations

import copy
import importlib
import itertools
import math
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lib.config
import lib.transformer
from course import paths
from lib.model import Config, LanguageModel, ParameterCount
from lib.multi_head_attention import MultiHeadAttention
from lib.transformer import Transformer, TransformerBlock
from tests import weights

SMALL = Config(vocab_size=13, d_model=24, n_layers=2, n_heads=4, max_len=10)
PLANS = [
    SMALL,
    replace(SMALL, placement="post", norm="rmsnorm", positions="sinusoidal", causal=False),
    replace(SMALL, feed_forward="swiglu", bias=False, tied_embeddings=False, positions="none"),
]
QWEN = replace(PLANS[2], mixer="gqa", n_kv_heads=2, head_dim=10, qk_norm=True, positions="rope", norm="rmsnorm")
MIXTRAL = replace(
    QWEN, qk_norm=False, feed_forward="moe", n_experts=5, window=3, rope_scaling="yarn", rope_factor=4.0, max_len=40
)
HINTS = get_type_hints(Config)
CHOICES = {name: list(get_args(hint)) for name, hint in HINTS.items() if isinstance((*get_args(hint), 0)[0], str)}
plans = pytest.mark.parametrize("config", PLANS, ids=["GPT", "post-norm", "gated"])


def ids_for(config: Config, T: int = 7) -> Tensor:
    return torch.randint(config.vocab_size, (3, T))


# The same model as chapter 08's Transformer


@plans
def test_names_and_numbers_are_the_transformers(config: Config) -> None:
    model, transformer = LanguageModel(config), Transformer(config)
    shapes = [{name: x.shape for name, x in m.state_dict().items()} for m in (model, transformer)]
    assert shapes[0] == shapes[1]
    transformer.load_state_dict(model.state_dict())
    ids = ids_for(config)
    torch.testing.assert_close(model(ids), transformer(ids), rtol=0, atol=0)
    assert isinstance(model, LanguageModel) and isinstance(model, Transformer)


def test_config_is_the_one_of_lib_config() -> None:
    assert Config is lib.config.Config
    assert LanguageModel(SMALL).config is SMALL


def test_importing_the_module_imports_no_chapter() -> None:
    script = (
        "import sys\n"
        "import lib.model, lib.device\n"
        "from lib.model import Config, LanguageModel\n"
        "Config()\n"
        "print(sorted(name for name in sys.modules if name.startswith('lib.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=paths.ROOT, capture_output=True, encoding="utf-8")
    assert done.stderr == ""
    assert done.stdout.strip() == "['lib.attend', 'lib.config', 'lib.device', 'lib.model', 'lib.pieces']"


def test_a_new_model_is_of_the_transformer_as_it_is_now() -> None:
    before = LanguageModel(SMALL)
    try:
        importlib.reload(lib.transformer)
        after = LanguageModel(SMALL)
        assert isinstance(after, lib.transformer.Transformer)
        assert not isinstance(before, lib.transformer.Transformer)
        assert isinstance(before, LanguageModel)
    finally:
        lib.transformer.__dict__.update(Transformer=Transformer, TransformerBlock=TransformerBlock)


@pytest.mark.parametrize(
    "make", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_a_copy_is_a_whole_model_of_its_own(make: Any) -> None:
    model, ids = LanguageModel(SMALL), ids_for(SMALL)
    state = torch.get_rng_state()
    copied = make(model)
    assert torch.equal(torch.get_rng_state(), state), "copying draws no random numbers"
    assert isinstance(copied, LanguageModel) and copied.config == SMALL
    assert torch.equal(copied(ids), model(ids))
    weights.draw(copied)
    assert not torch.allclose(copied(ids), model(ids))


@pytest.mark.parametrize("part", ["attention", "feed_forward"])
def test_one_layers_part_can_be_replaced(part: str) -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor, **options: object) -> Tensor:
            return torch.zeros_like(x)

    model, ids = weights.draw(LanguageModel(SMALL)), ids_for(SMALL)
    before = model(ids)
    model.blocks[1] = TransformerBlock(SMALL, **{part: Nothing()})
    assert not torch.allclose(model(ids), before)
    shown = str(model)
    assert "1 x Nothing" in shown
    assert ("1 x MultiHeadAttention" in shown) == (part == "attention")
    assert ("1 x FeedForward" in shown) == (part == "feed_forward")


@plans
def test_each_layers_attention_can_be_computed_by_another_function(config: Config) -> None:
    calls = []

    def by_torch(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        calls.append(q.shape)
        return nn.functional.scaled_dot_product_attention(q, k, v, mask)

    model, ids = weights.draw(LanguageModel(config)), ids_for(config)
    before = model(ids)
    for block in model.blocks:
        block.register_forward_pre_hook(
            lambda block, args, kwargs: (args, {**kwargs, "attend": by_torch}), with_kwargs=True
        )
    torch.testing.assert_close(model(ids), before, rtol=1e-4, atol=1e-4)
    assert calls == [(3, 4, 7, 6)] * config.n_layers


# Every field counts


ONLY_OF = {
    "activation": ("feed_forward", "mlp"),
    "max_len": ("positions", "learned"),
    "n_kv_heads": ("mixer", "gqa"),
    "head_dim": ("mixer", "gqa"),
    "rope_base": ("positions", "rope"),
    "rope_scaling": ("positions", "rope"),
    "rope_factor": ("rope_scaling", "yarn"),
    "rope_original_length": ("rope_scaling", "yarn"),
    "window": ("causal", True),
    "layer_pattern": ("causal", True),
    "n_experts": ("feed_forward", "moe"),
    "top_k": ("feed_forward", "moe"),
}
"""Fields that belong to one value of another field: elsewhere they are refused, or nothing hangs on them."""


def alternatives(name: str, config: Config) -> list[dict[str, Any]]:
    """The field's value in a plan and others that it may have, with what must go with them."""
    now, hint = getattr(config, name), HINTS[name]
    if name == "mixer":
        return [{"mixer": kind, "n_kv_heads": 2 if kind == "gqa" else None, "head_dim": None} for kind in CHOICES[name]]
    if name == "feed_forward":
        return [{name: kind, "n_experts": 5 if kind == "moe" else None, "activation": "gelu"} for kind in CHOICES[name]]
    if name == "positions":
        return [{name: kind, "rope_scaling": "none", "rope_factor": 1.0} for kind in CHOICES[name]]
    if name == "rope_scaling":
        return [{name: kind, "rope_factor": 1.0 if kind == "none" else 4.0} for kind in CHOICES[name]]
    if name == "layer_pattern":
        patterns = None, ("window", "full"), ("full", "window")
        return [{name: pattern, "window": 3} for pattern in patterns]
    if name == "window":
        return [{name: window, "layer_pattern": None} for window in (None, 2, 3)]
    if hint is bool:
        return [{name: True}, {name: False, **({"window": None} if name == "causal" else {})}]
    if name in CHOICES:
        return [{name: choice} for choice in CHOICES[name]]
    other = {"norm_eps": 1e-2, "rope_base": 50.0, "rope_original_length": 4000}.get(
        name, 36 if now is None else 2 * now
    )
    return [{name: now}, {name: other}]


fields_of_plans = [
    pytest.param(field.name, config, id=f"{field.name}-{label}")
    for label, config in zip(["GPT", "post-norm", "gated", "Qwen", "Mixtral"], [*PLANS, QWEN, MIXTRAL], strict=True)
    for field in fields(Config)
    if field.name not in ONLY_OF or getattr(config, ONLY_OF[field.name][0]) == ONLY_OF[field.name][1]
]


@pytest.mark.parametrize(("name", "config"), fields_of_plans)
def test_every_value_of_every_field_makes_another_model(name: str, config: Config) -> None:
    values = alternatives(name, config)
    assert len(values) > 1
    for one, other in itertools.combinations(values, 2):
        models = [weights.draw(LanguageModel(replace(config, **changes))).double() for changes in (one, other)]
        shapes = [{key: x.shape for key, x in model.state_dict().items()} for model in models]
        if shapes[0] == shapes[1]:
            ids = ids_for(SMALL)
            difference = (models[0](ids) - models[1](ids)).abs().max().item()
            assert difference > 1e-5, f"{name} is ignored: {one!r} and {other!r} give the same model"


@pytest.mark.parametrize("positions", CHOICES["positions"])
def test_max_len_is_the_longest_sequence_that_has_positions(positions: Any) -> None:
    model = LanguageModel(replace(SMALL, positions=positions))
    assert model(ids_for(SMALL, T=10)).shape == (3, 10, 13)
    if positions in ("none", "rope"):
        assert model(ids_for(SMALL, T=11)).shape == (3, 11, 13)
    else:
        with pytest.raises(ValueError, match="11"):
            model(ids_for(SMALL, T=11))


any_plan = st.fixed_dictionaries(
    {
        "vocab_size": st.integers(1, 13),
        "d_model": st.integers(1, 13),
        "n_layers": st.integers(1, 3),
        "n_heads": st.integers(1, 4),
        "d_ff": st.none() | st.integers(1, 9),
        "max_len": st.integers(1, 9),
        "n_kv_heads": st.none() | st.integers(1, 4),
        "head_dim": st.none() | st.integers(1, 5),
        "norm_eps": st.sampled_from([1e-12, 1e-5, 0.1]),
        "rope_base": st.sampled_from([2.0, 1e4, 1e6]),
        "rope_factor": st.sampled_from([0.5, 1.0, 4.0]),
        "rope_original_length": st.none() | st.integers(1, 9),
        "window": st.none() | st.integers(1, 9),
        "layer_pattern": st.none() | st.lists(st.sampled_from(["full", "window"]), min_size=1, max_size=3).map(tuple),
        "n_experts": st.none() | st.integers(1, 4),
        "top_k": st.integers(1, 4),
        **{name: st.sampled_from(choices) for name, choices in CHOICES.items()},
        **{name: st.booleans() for name, hint in HINTS.items() if hint is bool},
    }
)


def contradictions(plan: dict[str, Any]) -> list[tuple[str, ...]]:
    """The fields that contradict each other."""
    found: list[tuple[str, ...]] = []
    heads, groups, width = plan["n_heads"], plan["n_kv_heads"], plan["head_dim"]
    if width is None and plan["d_model"] % heads:
        found.append(("d_model", "n_heads"))
    if width is not None and plan["mixer"] != "gqa":
        found.append(("mixer", "head_dim"))
    if plan["mixer"] == "gqa" and (groups is None or heads % groups):
        found.append(("n_kv_heads", "n_heads"))
    if plan["mixer"] != "gqa" and groups not in (None, 1 if plan["mixer"] == "mqa" else heads):
        found.append(("mixer", "n_kv_heads"))
    if plan["positions"] == "rope" and (plan["d_model"] // heads if width is None else width) % 2:
        found.append(("positions", "width"))
    if plan["positions"] == "sinusoidal" and plan["d_model"] % 2:
        found.append(("positions", "d_model"))
    if plan["feed_forward"] != "mlp" and plan["activation"] != "gelu":
        found.append(("feed_forward", "activation"))
    return found + contradictions_of_long_and_sparse(plan)


def contradictions_of_long_and_sparse(plan: dict[str, Any]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    window, pattern, experts = plan["window"], plan["layer_pattern"], plan["n_experts"]
    if window is not None and not plan["causal"]:
        found.append(("window", "causal"))
    if pattern is not None and ("window" in pattern) != (window is not None):
        found.append(("window", "layer_pattern"))
    if (experts is None) == (plan["feed_forward"] == "moe"):
        found.append(("feed_forward", "n_experts"))
    if experts is not None and experts < plan["top_k"]:
        found.append(("n_experts", "top_k"))
    if plan["rope_scaling"] == "none" and (plan["rope_factor"] != 1 or plan["rope_original_length"] is not None):
        found.append(("rope_scaling",))
    if plan["rope_scaling"] != "none" and plan["positions"] != "rope":
        found.append(("rope_scaling", "positions"))
    if plan["rope_scaling"] != "none" and plan["rope_factor"] < 1:
        found.append(("rope_factor",))
    return found


@given(plan=any_plan)
@settings(max_examples=150, deadline=None)
def test_a_plan_is_refused_by_name_or_gives_a_model_that_works(plan: dict[str, Any]) -> None:
    wrong = contradictions(plan)
    if wrong:
        with pytest.raises(ValueError) as caught:
            Config(**plan)
        assert any(all(name in str(caught.value) for name in names) for names in wrong), str(caught.value)
        return
    config = Config(**plan)
    model = weights.draw(LanguageModel(config))
    T = config.max_len
    ids = torch.randint(config.vocab_size, (2, T))
    logits = model(ids)
    assert logits.shape == (2, T, config.vocab_size) and logits.isfinite().all()
    if config.causal:
        torch.testing.assert_close(model(ids[:, : (T + 1) // 2]), logits[:, : (T + 1) // 2], rtol=1e-4, atol=1e-4)


not_a_size = st.integers(max_value=0) | st.booleans() | st.floats() | st.text(max_size=3)
not_a_choice = st.integers() | st.booleans() | st.none() | st.text(max_size=3)


@given(data=st.data())
def test_a_value_that_a_field_cannot_have_is_refused_by_name(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([field.name for field in fields(Config)]))
    hint = HINTS[name]
    value: Any
    if name in CHOICES:
        value = data.draw(not_a_choice)
    elif hint is bool:
        value = data.draw(st.integers() | st.none() | st.text(max_size=3))
    elif hint is float:
        value = data.draw(st.sampled_from([0, 1, -0.5, math.nan, math.inf, True, "x", None]))
        assume((name, value) != ("rope_factor", 1))  # the one of these that a field may have
    else:
        value = data.draw(not_a_size if getattr(SMALL, name) is None else not_a_size | st.none())
    with pytest.raises(ValueError, match=rf"^{name} must be ") as caught:
        Config(**{name: value})
    assert repr(value) in str(caught.value)


# The start


def test_the_start_is_gpt2s() -> None:
    config = Config(vocab_size=300, d_model=96, n_layers=8, n_heads=4, max_len=200, tied_embeddings=False)
    for name, parameter in LanguageModel(config).named_parameters():
        if parameter.dim() == 2:
            narrow = name.endswith(("o_proj.weight", "down_proj.weight"))
            spread = 0.02 / 4 if narrow else 0.02  # sqrt(2 * 8) is 4
            assert parameter.std().item() == pytest.approx(spread, rel=0.05), name
            assert abs(parameter.mean().item()) < 0.05 * spread, name
        else:
            wanted = 1.0 if name.endswith("norm.weight") else 0.0
            assert (parameter == wanted).all(), name


@plans
def test_the_start_follows_the_seed(config: Config) -> None:
    def start(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return LanguageModel(config).state_dict()

    one, same, other = start(5), start(5), start(6)
    for name in one:
        assert torch.equal(one[name], same[name]), name
        if one[name].dim() == 2 and "table" not in name:
            assert not torch.equal(one[name], other[name]), name
    layers = [one[f"blocks.{layer}.attention.sublayer.q_proj.weight"] for layer in range(config.n_layers)]
    assert not torch.equal(*layers), "each layer has a start of its own"


def test_an_untrained_model_finds_every_token_about_as_likely() -> None:
    model = LanguageModel(Config(n_layers=12))
    ids = torch.randint(256, (4, 64))
    loss = nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(256), rel=0.02)


# What it says of itself


def test_parameters_are_counted_as_for_gpt2_small() -> None:
    with torch.device("meta"):  # sizes without memory
        model = LanguageModel(Config(vocab_size=50257, d_model=768, n_layers=12, n_heads=12, max_len=1024))
    assert model.count_parameters() == ParameterCount(124_439_808, 124_439_808 - (50_257 + 1_024) * 768, 124_439_808)
    assert model.device == torch.device("meta")
    assert "on meta" in str(model)
    assert "124,439,808 (85,056,000 without embeddings)" in str(model)


@plans
def test_counts_add_up(config: Config) -> None:
    model = LanguageModel(config)
    total, without, active = model.count_parameters()
    tables = config.vocab_size * config.d_model * (1 if config.tied_embeddings else 2)
    tables += config.max_len * config.d_model if config.positions == "learned" else 0
    assert total == sum(parameter.numel() for parameter in model.parameters())
    assert total - without == tables
    assert active == total


@plans
def test_the_summary_fits_on_a_screen_and_names_what_it_is(config: Config) -> None:
    model = LanguageModel(config)
    lines = model.summary().splitlines()
    assert str(model) == model.summary()
    assert len(lines) <= 20 and max(map(len, lines)) <= 88
    for word in (config.norm, config.placement, config.positions, "24", "cpu", "4 heads of 6", "2 layers"):
        assert word in model.summary()
    assert ("causal" in model.summary()) == config.causal
    kind = {"mlp": "FeedForward", "swiglu": "SwiGLU"}[config.feed_forward]
    for name, module in (
        ("MultiHeadAttention", "multi_head_attention"),
        ("attention", "attention"),
        (kind, "feed_forward"),
    ):
        whose = "lib" if (paths.LIB / f"{module}.py").exists() else "solutions"
        assert f"{name} ({whose}/{module}.py)" in model.summary()


def test_parts_written_in_a_notebook_have_no_file() -> None:
    made = type("Mixer", (MultiHeadAttention,), {"__module__": "a_cell"})
    model = LanguageModel(SMALL)
    model.blocks[0] = TransformerBlock(SMALL, attention=made(24, 4))
    assert "1 x Mixer (a_cell)" in model.summary()
