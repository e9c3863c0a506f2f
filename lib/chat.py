"""A conversation with a pretrained model, run by your pieces. This module is given: no exercise."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import torch

from lib import generate

Message = dict[str, str]


class Chat:
    """Keeps a conversation: what was said, and the keys and values of what the model has read.

    Args:
        model: a `LanguageModel`.
        tokenizer: a `tokenizers.Tokenizer`.
        template: the model's chat template (Jinja), which says how turns are marked.
        stop_ids: the tokens that end an answer.
        system: what the model is told before the conversation; `None` leaves it to the template.
        max_new_tokens: the longest answer.
        sampling: handed to your `sample_next`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        template: str,
        stop_ids: set[int],
        system: str | None = None,
        max_new_tokens: int = 512,
        **sampling: Any,
    ) -> None:
        self.model, self.tokenizer, self.template, self.stop_ids = model, tokenizer, template, stop_ids
        self.max_new_tokens, self.sampling = max_new_tokens, sampling
        self.messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self.tokens_written = 0
        self.read: list[int] = []
        self.cache = self._new_cache()

    def say(self, text: str) -> Iterator[str]:
        """The model's answer, piece by piece; the conversation then holds both sides.

        An answer that is broken off (by closing the iterator, or by an exception where it is read)
        stands in the conversation as far as it came.
        """
        self.messages.append({"role": "user", "content": text})
        ids = self.tokenizer.encode(render(self.template, self.messages), add_special_tokens=False).ids
        if ids[: len(self.read)] != self.read:
            self.read, self.cache = [], self._new_cache()  # turns may be tokenised otherwise than they were written
        unread = torch.tensor([ids[len(self.read) :]], device=next(self.model.parameters()).device)
        self.read, self.tokens_written, answer = list(ids), 0, ""
        tokens = generate.stream(self.model, unread, self.max_new_tokens, self.stop_ids, self.cache, **self.sampling)
        try:
            for piece in generate.pieces_of_text(self._noting(tokens), self.tokenizer):
                answer += piece
                yield piece
        finally:
            self.messages.append({"role": "assistant", "content": answer})
            self.read = self.read[: self.cache.length]  # the last token was drawn, not read

    def _noting(self, tokens: Iterator[int]) -> Iterator[int]:
        for token in tokens:
            self.read.append(token)
            self.tokens_written += 1
            yield token

    def _new_cache(self) -> Any:
        return generate.new_cache(self.model.config)


def render(template: str, messages: list[Message]) -> str:
    """The conversation as the model was trained to see it, up to where its next answer begins.

    The template comes with the checkpoint and is run in Jinja's sandbox.

    Raises:
        ValueError: the template does not work for these messages.
    """
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(raise_exception=refuse, strftime_now=lambda form: datetime.now().strftime(form))
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, bos_token="", eos_token=""
        )
    except jinja2.exceptions.TemplateError as error:
        raise ValueError(f"the model's chat template refuses this conversation: {error}") from error
