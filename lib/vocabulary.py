"""How a checkpoint reads and writes text, from the files of its folder. This module is given: no exercise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from lib.families import CheckpointError


class Vocabulary(NamedTuple):
    """A checkpoint's tokenizer, and the tokens that mean something to the program around it."""

    tokenizer: Any
    """A `tokenizers.Tokenizer`: `encode(text).ids`, `decode(ids)`."""
    chat_template: str | None
    """Says how the turns of a conversation are marked (Jinja); `None` where the model does not chat."""
    bos_id: int | None
    """The token that begins a text, where there is one."""
    stop_ids: set[int]
    """The tokens that end a text or a turn."""


def from_folder(folder: Path) -> Vocabulary:
    """The vocabulary of a folder in Hugging Face's layout.

    Raises:
        CheckpointError: there is no `tokenizer.json`, or a file is damaged.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} has no tokenizer.json: take a checkpoint that holds it")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"{path} is damaged: download it again ({error})") from error
    tokenizer.no_padding()  # some files ask for a fixed length whatever the text
    tokenizer.no_truncation()
    settings = read_json(folder / "tokenizer_config.json", {})
    ends = [
        read_json(folder / "generation_config.json", {}).get("eos_token_id"),
        read_json(folder / "config.json", {}).get("eos_token_id"),
        _id_of(tokenizer, settings.get("eos_token")),
    ]
    ids = {end for given in ends for end in (given if isinstance(given, list) else [given])}
    bos = _id_of(tokenizer, settings.get("bos_token"))
    return Vocabulary(tokenizer, _template(folder, settings), bos, {end for end in ids if isinstance(end, int)})


def _id_of(tokenizer: Any, token: Any) -> int | None:
    """The id of a special token, which stands in the settings as text or with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return tokenizer.token_to_id(text) if isinstance(text, str) else None


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The chat template: a file of its own, or among the settings, perhaps one of several."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def read_json(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object that a JSON file holds; `missing` where there is no such file.

    Raises:
        CheckpointError: it cannot be read, or holds something else.
    """
    if missing is not None and not path.is_file():
        return missing
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: download it again ({error})") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold an object in braces: download it again")
    return content
