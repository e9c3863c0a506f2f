"""`course chat`: a conversation with a real model that runs through your pieces."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from course import paths
from course.errors import CourseError


def main(model: Path | None, system: str | None, max_new_tokens: int, seed: int | None, **sampling: Any) -> None:
    """Load the model and talk until the person leaves.

    Raises:
        CourseError: there is no model, it cannot be loaded, or it was not made for conversations.
    """
    chat = _load(model, system, max_new_tokens, seed, sampling)
    console = Console(highlight=False)
    console.print(f"[dim]{_whose(chat)}[/dim]")
    console.print("[dim]Type a message. An empty line or Ctrl-D leaves; Ctrl-C breaks an answer off.[/dim]")
    while True:
        try:
            text = console.input("\n[bold]you[/bold]  ").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if not text:
            return
        _answer(chat, text, console)


def _answer(chat: Any, text: str, console: Console) -> None:
    """Print one answer as it comes, and how fast it came; Ctrl-C ends it, not the conversation."""
    console.print("[bold]lib[/bold]  ", end="")
    first, pieces = None, chat.say(text)
    try:
        for piece in pieces:
            first = first or time.perf_counter()
            console.out(piece, end="")
    except KeyboardInterrupt:
        pieces.close()
        console.print(" [dim](broken off)[/dim]", end="")
    except ValueError as error:
        raise CourseError(str(error)) from error
    console.print()
    if first is not None and chat.tokens_written > 1:  # the prompt was read before the first token
        rate = (chat.tokens_written - 1) / (time.perf_counter() - first)
        console.print(f"[dim]{chat.tokens_written} tokens, {rate:.1f} a second[/dim]")


def _load(
    path: Path | None, system: str | None, max_new_tokens: int, seed: int | None, sampling: dict[str, Any]
) -> Any:
    paths.make_importable()
    import torch

    from lib import checkpoints, pieces
    from lib.chat import Chat
    from lib.device import pick_device

    found = path or checkpoints.find_smollm2()
    if found is None:
        raise typer.Exit(1)  # the line above says how to get the weights
    try:
        vocabulary = checkpoints.load_tokenizer(found)
        if vocabulary.chat_template is None:
            raise CourseError(f"{found}: this model has no chat template; it was not made for conversations")
        model = checkpoints.load_pretrained(found).to(pick_device())
    except (checkpoints.CheckpointError, pieces.MissingPiece, ValueError) as error:
        raise CourseError(str(error)) from error
    if seed is not None:
        torch.manual_seed(seed)
    return Chat(
        model, vocabulary.tokenizer, vocabulary.chat_template, vocabulary.stop_ids, system, max_new_tokens, **sampling
    )


def _whose(chat: Any) -> str:
    lines = chat.model.summary().splitlines()
    return "\n".join([lines[0], *(line for line in lines[1:] if "(" in line or "parameters" in line)])
