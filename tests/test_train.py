"""Training: a run that was stopped ends as one that was not, and what cannot be done is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lib.data import Corpus
from lib.model import Config, LanguageModel
from lib.train import RunError, Settings, Stopped, _Run, load_run, train

PLAN = Config(d_model=16, n_layers=1, n_heads=2, max_len=16)
HOW = Settings(steps=8, batch=4, length=16, every=2)
TEXT = Corpus(torch.arange(3000) ** 2 % 251, torch.arange(500) ** 2 % 241)


def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(PLAN)


def test_a_stopped_run_ends_bit_for_bit_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model()
    points = train(whole, TEXT, HOW, tmp_path / "whole")
    advance = _Run.advance
    with monkeypatch.context() as patch:
        patch.setattr(_Run, "advance", lambda self, *x: (advance(self, *x)[0], self.step == 5))
        with pytest.raises(Stopped, match="step 5"):
            train(model(), TEXT, HOW, tmp_path / "stopped")
    resumed = model()
    assert train(resumed, TEXT, HOW, tmp_path / "stopped", resume=True) == points
    logs = [(tmp_path / name / "losses.jsonl").read_bytes() for name in ("whole", "stopped")]
    assert logs[0] == logs[1]
    loaded = load_run(tmp_path / "stopped")
    assert not loaded.training
    for one, other, third in zip(whole.parameters(), resumed.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other) and torch.equal(one, third)
    assert len(list((tmp_path / "whole").glob("step-*"))) == 2


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    points = train(model(), TEXT, HOW, tmp_path)
    newest = tmp_path / "step-00000008" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-5])
    assert train(model(), TEXT, HOW, tmp_path, resume=True) == points


def test_what_could_lose_or_mix_up_a_run_is_refused(tmp_path: Path) -> None:
    train(model(), TEXT, HOW, tmp_path)
    with pytest.raises(RunError, match="--resume"):
        train(model(), TEXT, HOW, tmp_path)
    with pytest.raises(RunError, match=r"lr=0\.003"):
        train(model(), TEXT, Settings(steps=8, batch=4, length=16, every=2, lr=0.1), tmp_path, resume=True)
    with pytest.raises(RunError, match="another text"):
        train(model(), Corpus(TEXT.train[1:], TEXT.held_out), HOW, tmp_path, resume=True)


@pytest.mark.parametrize("name", ["steps", "lr", "warmup", "precision", "compile"])
def test_settings_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be "):
        Settings(**{name: -1})  # type: ignore[arg-type]
