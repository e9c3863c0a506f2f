"""The text to train on: what is held out is not in it, and what cannot be had is said in one line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from lib.data import DataError, bits_per_byte, corpus, random_batch


def test_the_same_text_at_each_call_and_about_a_tenth_held_out() -> None:
    one, other = corpus(), corpus()
    assert torch.equal(one.train, other.train) and torch.equal(one.held_out, other.held_out)
    assert 0.05 < len(one.held_out) / (len(one.train) + len(one.held_out)) < 0.11
    assert one.train.dtype == torch.int64 and int(one.train.max()) < 256


def test_no_long_piece_of_the_held_out_text_is_trained_on() -> None:
    train, held_out = (bytes(ids.tolist()) for ids in corpus())
    pieces = [held_out[start : start + 200] for start in range(0, len(held_out) - 200, 100)]
    assert len(pieces) > 300
    assert not [piece for piece in pieces if piece in train]


def test_a_file_and_a_folder(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000)).encode()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.bin").write_bytes(b"\0" * 100)
    for source in (tmp_path / "a.txt", tmp_path):
        found = corpus(source)
        joined = len(found.train) + len(found.held_out)
        assert len(text) <= joined <= len(text) + 100  # a line break between documents
        assert int(found.train.min()) > 0, "only .txt and .md files of a folder are read"


@pytest.mark.parametrize("name", ["missing.txt", "small.txt", "empty"])
def test_what_cannot_be_had_is_one_line_that_names_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "small.txt").write_text("too little", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as refused:
        corpus(tmp_path / name)
    assert name in str(refused.value) and "\n" not in str(refused.value)


def test_an_address_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=r"127\.0\.0\.1:9.*name a file"):
        corpus("http://127.0.0.1:9/text")
    assert not list(tmp_path.iterdir()), "nothing half-written stays"


def test_batches_are_pieces_of_the_text_and_follow_the_generator() -> None:
    ids = torch.arange(50)
    one, same = (random_batch(ids, 40, 7, torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(one, same) and one.shape == (40, 7)
    assert bool((one[:, 1:] == one[:, :-1] + 1).all())
    assert torch.equal(random_batch(ids, 3, 50), ids.expand(3, 50)), "the whole text is one piece"
    with pytest.raises(ValueError, match=r"50.*51"):
        random_batch(ids, 1, 51)


def test_nats_become_bits() -> None:
    assert bits_per_byte(math.log(256)) == pytest.approx(8.0)
