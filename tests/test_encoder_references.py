"""The encoder gives the numbers of the `transformers` library's BERT, and real weights give its sentence vectors.

Outputs are compared, and gradients parameter by parameter, on texts of different lengths.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel
from transformers.utils import logging

from lib import pretrained
from lib.attention import attention
from lib.checkpoints import load_pretrained, load_tokenizer
from lib.config import Config
from lib.encoder import Encoder, mean_pool
from lib.transformer import Transformer
from tests import weights

LARGEST = 1e-4
"""The largest difference allowed in any number of a small model, forward or backward, in float32."""

REAL = 1e-5
"""The same for the real weights, whose vectors have numbers near 1."""

SIZES = [
    {"vocab_size": 11, "d_model": 12, "n_layers": 1, "n_heads": 3, "d_ff": 20, "max_len": 9},
    {"vocab_size": 37, "d_model": 32, "n_layers": 3, "n_heads": 4, "d_ff": None, "max_len": 16},
    {"vocab_size": 101, "d_model": 70, "n_layers": 2, "n_heads": 7, "d_ff": 45, "max_len": 33},
]
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "gelu_tanh": "gelu_new"}
"""Our name to theirs."""

LAYER = {
    "attention.sublayer.q_proj": "attention.self.query",
    "attention.sublayer.k_proj": "attention.self.key",
    "attention.sublayer.v_proj": "attention.self.value",
    "attention.sublayer.o_proj": "attention.output.dense",
    "attention.norm": "attention.output.LayerNorm",
    "feed_forward.sublayer.up_proj": "intermediate.dense",
    "feed_forward.sublayer.down_proj": "output.dense",
    "feed_forward.norm": "output.LayerNorm",
}

sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"D={size['d_model']}")

Named = dict[str, Tensor]


def plan(size: dict[str, Any], **fields: Any) -> Config:
    return Config(**{**size, "causal": False, "placement": "post", "norm_eps": 1e-12, **fields})


def library_bert(config: Config) -> nn.Module:
    """A BERT of the same sizes, without dropout, pooler and difference between segments."""
    theirs = BertModel(
        BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            intermediate_size=config.ff_width,
            hidden_act=ACTIVATIONS[config.activation],
            max_position_embeddings=config.max_len,
            layer_norm_eps=config.norm_eps,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=None,  # else the row of that id would learn nothing
            attn_implementation="eager",  # type: ignore[call-arg] # of its base class
        ),
        add_pooling_layer=False,
    )
    nn.init.zeros_(theirs.embeddings.token_type_embeddings.weight)
    return theirs


def to_bert(ours: Named, n_layers: int) -> Named:
    """Renamed as the library has it; a segment's vector is left out, for `library_bert` made it zero."""
    theirs = {
        "embeddings.word_embeddings.weight": ours["embedding.weight"],
        "embeddings.position_embeddings.weight": ours["positions.weight"],
    }
    for kind in ("weight", "bias"):
        theirs[f"embeddings.LayerNorm.{kind}"] = ours[f"norm.{kind}"]
        for i in range(n_layers):
            theirs |= {f"encoder.layer.{i}.{b}.{kind}": ours[f"blocks.{i}.{a}.{kind}"] for a, b in LAYER.items()}
    assert len(theirs) == len(ours), "a parameter of ours has no name in the library"
    return theirs


def padded(size: dict[str, Any], T: int, batch: int = 4) -> tuple[Tensor, Tensor]:
    """Ids, and a mask of texts of different lengths: the first is full, the last has one token."""
    lengths = torch.linspace(T, 1, batch).long()
    return torch.randint(size["vocab_size"], (batch, T)), (torch.arange(T) < lengths[:, None]).long()


@sizes
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("masked", [False, True], ids=["no padding", "padding"])
def test_an_encoder_equals_bert_of_transformers(size: dict[str, Any], activation: str, masked: bool) -> None:
    config = plan(size, activation=activation)
    ours, theirs = weights.draw(Encoder(config)), library_bert(config)
    missing, unexpected = theirs.load_state_dict(to_bert(ours.state_dict(), config.n_layers), strict=False)
    assert missing == ["embeddings.token_type_embeddings.weight"] and not unexpected
    ids, mask = padded(size, size["max_len"])
    given = mask if masked else None
    kept = mask.bool() if masked else torch.ones_like(mask).bool()
    got, want = ours(ids, given)[kept], theirs(ids, attention_mask=given).last_hidden_state[kept]
    assert want.std() > 0.1
    torch.testing.assert_close(got, want, rtol=0, atol=LARGEST)
    pull = torch.randn(got.shape) / 20
    (got * pull).sum().backward()
    (want * pull).sum().backward()
    named = dict(theirs.named_parameters())
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    for name, gradient in to_bert(gradients, config.n_layers).items():
        torch.testing.assert_close(gradient, named[name].grad, rtol=0, atol=LARGEST, msg=f"the gradient of {name}")


@sizes
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_an_encoder_with_padding_equals_torchs_layers(
    size: dict[str, Any], placement: str, norm: str, positions: str
) -> None:
    config = plan(size, placement=placement, norm=norm, positions=positions, norm_eps=1e-3)
    ours = weights.draw(Encoder(config))
    ids, mask = padded(size, size["max_len"] - 2)
    x = ours.embedding.weight[ids]
    if positions == "learned":
        x = x + ours.positions.weight[: ids.shape[1]]
    elif positions == "sinusoidal":
        x = x + ours.table[: ids.shape[1]]
    x = ours.norm(x) if placement == "post" else x
    for block in ours.blocks:
        x = torch_layer(block, config)(x, src_key_padding_mask=mask == 0)
    want = x if placement == "post" else ours.norm(x)
    torch.testing.assert_close(ours(ids, mask)[mask == 1], want[mask == 1], rtol=0, atol=LARGEST)


def torch_layer(block: Any, config: Config) -> nn.Module:
    """Torch's own encoder layer, with the weights of a block."""
    layer: Any = nn.TransformerEncoderLayer(
        config.d_model,
        config.n_heads,
        config.ff_width,
        0.0,
        F.gelu,
        config.norm_eps,
        batch_first=True,
        norm_first=config.placement == "pre",
    )
    if config.norm == "rmsnorm":
        layer.norm1, layer.norm2 = (nn.RMSNorm(config.d_model, eps=config.norm_eps) for _ in range(2))
    ours: dict[str, Tensor] = block.state_dict()
    state: dict[str, Tensor] = {}
    renamed = {
        "self_attn.out_proj": "attention.sublayer.o_proj",
        "norm1": "attention.norm",
        "norm2": "feed_forward.norm",
    }
    renamed |= {"linear1": "feed_forward.sublayer.up_proj", "linear2": "feed_forward.sublayer.down_proj"}
    for kind in ("weight", "bias"):
        state |= {f"{a}.{kind}": ours[f"{b}.{kind}"] for a, b in renamed.items() if f"{b}.{kind}" in ours}
        state[f"self_attn.in_proj_{kind}"] = torch.cat([ours[f"attention.sublayer.{p}_proj.{kind}"] for p in "qkv"])
    layer.load_state_dict(state)
    return layer


@sizes
def test_without_padding_it_is_the_transformer_before_its_scores(size: dict[str, Any]) -> None:
    config = plan(size, placement="pre")
    ours = weights.draw(Encoder(config))
    whole = Transformer(config)
    whole.load_state_dict(ours.state_dict())
    ids = torch.randint(size["vocab_size"], (3, size["max_len"]))
    torch.testing.assert_close(ours.embedding.unembed(ours(ids)), whole(ids))


# The real weights

TEXTS = [
    "The trophy didn't fit in the suitcase because it was too big.",
    "Yes.",
    "how do models know word order",
    "A text of many words, " * 20,
    "",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    found = pretrained.find_minilm_folder()
    if found is None:
        pytest.skip(pretrained.HOW_TO_GET_MINILM)
    return found


@pytest.fixture(scope="module")
def batch(folder: Path) -> tuple[Tensor, Tensor]:
    """Ids and attention mask of the texts, padded to the longest."""
    tokenizer = load_tokenizer(folder).tokenizer
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(TEXTS)
    return torch.tensor([one.ids for one in encoded]), torch.tensor([one.attention_mask for one in encoded])


@torch.no_grad()
def test_sentence_vectors_of_minilm_equal_the_librarys(folder: Path, batch: tuple[Tensor, Tensor]) -> None:
    ids, mask = batch
    ours = load_pretrained(folder)
    logging.set_verbosity_error()
    theirs = BertModel.from_pretrained(folder, local_files_only=True).eval()
    hidden = theirs(ids, attention_mask=mask).last_hidden_state
    # As the model's own card says: the mean over the tokens, made to length 1.
    spread = mask.unsqueeze(-1).expand(hidden.shape).float()
    want = F.normalize((hidden * spread).sum(1) / spread.sum(1).clamp(min=1e-9), dim=1)
    got = ours(ids, attention_mask=mask)
    torch.testing.assert_close(got[mask == 1], hidden[mask == 1], rtol=0, atol=REAL)
    torch.testing.assert_close(F.normalize(mean_pool(got, mask), dim=1), want, rtol=0, atol=REAL)


@torch.no_grad()
def test_minilm_in_a_padded_batch_equals_the_given_encoder_text_by_text(
    folder: Path, batch: tuple[Tensor, Tensor]
) -> None:
    ids, mask = batch
    hidden = load_pretrained(folder)(ids, attention_mask=mask)
    given = pretrained.PretrainedEncoder(folder)
    for row, text in enumerate(TEXTS):
        want = given(text, attention).hidden
        torch.testing.assert_close(hidden[row, : len(want)], want, rtol=0, atol=REAL)
        torch.testing.assert_close(mean_pool(hidden, mask)[row], want.mean(dim=0), rtol=0, atol=REAL)
