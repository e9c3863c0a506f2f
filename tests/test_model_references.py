"""The same numbers, with the same weights, as torch's own layers and the `transformers` library's GPT-2.

Outputs are compared, and gradients parameter by parameter, at weights where every part matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from lib.config import Config
from lib.model import LanguageModel
from lib.multi_head_attention import MultiHeadAttention
from lib.positional_encoding import sinusoidal_encoding
from lib.transformer import Transformer, TransformerBlock
from tests import weights

LARGEST = 1e-4
"""The largest difference allowed in any number, forward or backward, in float32."""

SIZES = [
    {"vocab_size": 11, "d_model": 12, "n_layers": 1, "n_heads": 3, "d_ff": 20, "max_len": 9},
    {"vocab_size": 37, "d_model": 32, "n_layers": 3, "n_heads": 4, "d_ff": None, "max_len": 16},
    {"vocab_size": 101, "d_model": 70, "n_layers": 2, "n_heads": 7, "d_ff": 45, "max_len": 33},
]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}

sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"D={size['d_model']}")
models = pytest.mark.parametrize("kind", [Transformer, LanguageModel], ids=lambda kind: kind.__name__)

Named = Mapping[str, Tensor]


# Comparing


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """The gradient of every parameter; one that has none is a failure."""
    found = {}
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, f"no gradient reached {name}"
        found[name] = parameter.grad
    return found


def assert_close(ours: Named, theirs: Named, what: str) -> None:
    """The same names, and no number further apart than `LARGEST`."""
    assert ours.keys() == theirs.keys(), what
    for name in ours:
        assert ours[name].shape == theirs[name].shape, f"{what} of {name}"
        assert theirs[name].abs().max() > 50 * LARGEST, f"{what} of {name} is too small to tell anything"
        difference = (ours[name] - theirs[name]).abs().max().item()
        assert difference <= LARGEST, f"{what} of {name}: the largest difference is {difference:.2e}"


def compare(
    ours: nn.Module,
    theirs: nn.Module,
    convert: Callable[[Named], dict[str, Tensor]],
    run_ours: Callable[[], Tensor],
    run_theirs: Callable[[], Tensor],
) -> None:
    """Copy our weights over, then compare outputs and all gradients under one random pull on the output.

    `convert` renames and reorders; being linear, it turns our gradients into theirs as well.
    """
    weights.draw(ours)
    theirs.load_state_dict({**theirs.state_dict(), **convert(ours.state_dict())})
    assert convert(dict(ours.named_parameters())).keys() == dict(theirs.named_parameters()).keys()
    got, want = run_ours(), run_theirs()
    assert_close({"output": got}, {"output": want}, "value")
    pull = torch.randn(got.shape) / 20
    (got * pull).sum().backward()
    (want * pull).sum().backward()
    assert_close(convert(gradients(ours)), gradients(theirs), "gradient")


# Our names to torch's


def attention_to_torch(ours: Named, prefix: str = "") -> dict[str, Tensor]:
    found = {}
    for kind in ("weight", "bias"):
        if f"{prefix}q_proj.{kind}" in ours:
            found[f"in_proj_{kind}"] = torch.cat([ours[f"{prefix}{part}_proj.{kind}"] for part in "qkv"])
            found[f"out_proj.{kind}"] = ours[f"{prefix}o_proj.{kind}"]
    return found


def block_to_torch(ours: Named, prefix: str = "") -> dict[str, Tensor]:
    theirs = {"self_attn." + name: x for name, x in attention_to_torch(ours, f"{prefix}attention.sublayer.").items()}
    renamed = {
        "norm1": "attention.norm",
        "norm2": "feed_forward.norm",
        "linear1": "feed_forward.sublayer.up_proj",
        "linear1.gate": "feed_forward.sublayer.gate_proj",
        "linear2": "feed_forward.sublayer.down_proj",
    }
    for their_name, our_name in renamed.items():
        for kind in ("weight", "bias"):
            if f"{prefix}{our_name}.{kind}" in ours:
                theirs[f"{their_name}.{kind}"] = ours[f"{prefix}{our_name}.{kind}"]
    if "linear1.gate.weight" in theirs:
        theirs["linear1.up.weight"] = theirs.pop("linear1.weight")
    return theirs


def model_to_torch(ours: Named, n_layers: int) -> dict[str, Tensor]:
    theirs = {name: x for name, x in ours.items() if name.partition(".")[0] in ("embedding", "positions", "lm_head")}
    theirs |= {f"encoder.{name}": x for name, x in ours.items() if name.startswith("norm.")}
    for layer in range(n_layers):
        block = block_to_torch(ours, f"blocks.{layer}.")
        theirs |= {f"encoder.layers.{layer}.{name}": x for name, x in block.items()}
    return theirs


def torch_norm(config: Config) -> nn.Module:
    kind = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}[config.norm]
    return kind(config.d_model, eps=config.norm_eps)


def torch_layer(config: Config) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(
        config.d_model,
        config.n_heads,
        config.ff_width,
        dropout=0.0,
        activation=ACTIVATIONS[config.activation],
        batch_first=True,
        norm_first=config.placement == "pre",
        bias=config.bias,
    )
    for name in ("norm1", "norm2"):  # its own norms would lose their biases with the rest
        setattr(layer, name, torch_norm(config))
    if config.feed_forward == "swiglu":
        layer.activation = nn.Identity()
        layer.linear1 = Gate(config.d_model, config.ff_width)  # type: ignore[assignment] # no nn.Linear
        layer.linear2 = nn.Linear(config.ff_width, config.d_model, bias=False)
    return layer


class Gate(nn.Module):
    """SwiGLU up to its last projection, in the place of a layer's first linear map and activation."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.gate(x)) * self.up(x)


class TorchModel(nn.Module):
    """A language model of torch's own layers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        if config.positions == "learned":
            self.positions = nn.Embedding(config.max_len, config.d_model)
        last = torch_norm(config) if config.placement == "pre" else None
        self.encoder = nn.TransformerEncoder(torch_layer(config), config.n_layers, last, enable_nested_tensor=False)
        if not config.tied_embeddings:
            self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        T = ids.shape[1]
        x = self.embedding(ids)
        if self.config.positions == "learned":
            x = x + self.positions.weight[:T]
        elif self.config.positions == "sinusoidal":
            x = x + sinusoids(T, self.config.d_model)
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1) if self.config.causal else None  # True = may not attend
        x = self.encoder(x, mask=hidden)
        return F.linear(x, self.embedding.weight if self.config.tied_embeddings else self.lm_head.weight)


def sinusoids(T: int, width: int) -> Tensor:
    """By complex powers: the sine and cosine of one angle are one number's parts."""
    angles = torch.arange(T).double()[:, None] * 10000.0 ** (-torch.arange(0, width, 2).double() / width)
    turns = torch.polar(torch.ones_like(angles), angles)
    return torch.stack([turns.imag, turns.real], dim=-1).flatten(1).float()


# torch's layers


@sizes
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("S", [None, 13], ids=["self", "cross"])
def test_multi_head_attention_equals_torchs(size: dict[str, int], bias: bool, masked: bool, S: int | None) -> None:
    d_model, T = size["d_model"], 7
    ours = MultiHeadAttention(d_model, size["n_heads"], bias=bias)
    theirs = nn.MultiheadAttention(d_model, size["n_heads"], bias=bias, batch_first=True)
    x = torch.randn(3, T, d_model)
    context = None if S is None else torch.randn(3, S, d_model)
    mask = torch.rand(T, S or T) < 0.6 if masked else None
    if mask is not None:
        mask[:, 0] = True  # torch gives NaN to a query that may attend to nothing
    keys = x if context is None else context
    compare(
        ours,
        theirs,
        attention_to_torch,
        lambda: ours(x, mask=mask, context=context),
        lambda: theirs(x, keys, keys, attn_mask=None if mask is None else ~mask, need_weights=False)[0],
    )


@sizes
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_block_equals_torchs_encoder_layer(size: dict[str, int], placement: str, norm: str, masked: bool) -> None:
    config = Config(**size, placement=placement, norm=norm)  # type: ignore[arg-type] # fields by name
    ours, theirs = TransformerBlock(config), torch_layer(config)
    x = torch.randn(2, 9, config.d_model)
    mask = torch.ones(9, 9, dtype=torch.bool).tril() if masked else None
    compare(
        ours,
        theirs,
        block_to_torch,
        lambda: ours(x, mask=mask),
        lambda: theirs(x, src_mask=None if mask is None else ~mask),
    )


@models
@sizes
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"placement": "post", "causal": False, "activation": "relu"},
        {"positions": "sinusoidal", "tied_embeddings": False, "activation": "silu"},
        {"positions": "none", "norm": "rmsnorm", "bias": False, "norm_eps": 1e-3},
        {"placement": "post", "norm": "rmsnorm", "activation": "gelu_tanh", "tied_embeddings": False},
        {"feed_forward": "swiglu", "norm": "rmsnorm", "bias": False, "positions": "none", "tied_embeddings": False},
        {"feed_forward": "swiglu", "causal": False},
    ],
    ids=["GPT", "original encoder", "sinusoidal", "no biases", "post-norm", "gated", "gated encoder"],
)
def test_a_model_equals_one_of_torchs_layers(
    kind: type[nn.Module], size: dict[str, int], fields: dict[str, object]
) -> None:
    config = Config(**size, **fields)  # type: ignore[arg-type] # fields by name
    ours, theirs = kind(config), TorchModel(config)
    ids = torch.randint(config.vocab_size, (3, config.max_len))
    compare(ours, theirs, partial(model_to_torch, n_layers=config.n_layers), lambda: ours(ids), lambda: theirs(ids))


def test_sinusoids_by_complex_powers_are_the_chapters() -> None:
    torch.testing.assert_close(sinusoids(50, 14), sinusoidal_encoding(50, 14), rtol=0, atol=1e-6)


# GPT-2


def model_to_gpt2(ours: Named, n_layers: int) -> dict[str, Tensor]:
    """To the names of `transformers`, whose linear layers hold their weights as (in, out)."""
    theirs = {"transformer.wte.weight": ours["embedding.weight"], "transformer.wpe.weight": ours["positions.weight"]}
    theirs |= {f"transformer.ln_f.{kind}": ours[f"norm.{kind}"] for kind in ("weight", "bias")}
    for layer in range(n_layers):
        for name, x in block_to_torch(ours, f"blocks.{layer}.").items():
            for of_torch, of_gpt2 in {
                "self_attn.in_proj_": "attn.c_attn.",
                "self_attn.out_proj": "attn.c_proj",
                "norm1": "ln_1",
                "norm2": "ln_2",
                "linear1": "mlp.c_fc",
                "linear2": "mlp.c_proj",
            }.items():
                name = name.replace(of_torch, of_gpt2)
            theirs[f"transformer.h.{layer}.{name}"] = x.T if x.dim() == 2 else x
    return theirs


@models
@sizes
def test_a_model_equals_gpt2_of_transformers(kind: type[nn.Module], size: dict[str, int]) -> None:
    config = Config(**size, activation="gelu_tanh")  # type: ignore[arg-type] # fields by name
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.max_len,
            n_embd=config.d_model,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            n_inner=size["d_ff"],
            activation_function="gelu_new",
            layer_norm_epsilon=config.norm_eps,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="eager",  # type: ignore[call-arg] # of its base class
        )
    )
    ours = kind(config)
    ids = torch.randint(config.vocab_size, (3, config.max_len))
    compare(
        ours,
        theirs,
        partial(model_to_gpt2, n_layers=config.n_layers),
        lambda: ours(ids),
        lambda: theirs(ids).logits,
    )
