"""The command `python -m lib.train`. This module is given: no exercise."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

import torch
from torch import distributed

from lib import runs
from lib.config import Config
from lib.data import corpus
from lib.device import describe, pick_device
from lib.model import LanguageModel
from lib.pieces import MissingPiece
from lib.train import Settings, Stopped, train


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; what a person can mend is one line on stderr, and exit code 1."""
    rank = int(os.environ.get("RANK", "0"))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr] # a terminal without UTF-8
    try:
        _run(_parsed(arguments), rank)
    except Stopped as stopped:
        _end(rank, f"{stopped}; the same command with --resume goes on from there", 130)
    except (ValueError, ArithmeticError, OSError, MissingPiece) as error:
        _end(rank, str(error), 1)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="python -m lib.train", description="Train a LanguageModel of your pieces.")
    parser.add_argument("--out", type=Path, default=Path("runs/small"), help="folder of checkpoints and the log")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    parser.add_argument("--source", help="text file, folder or address; the text in Python itself if left out")
    for name, kind in {"steps": int, "batch": int, "length": int, "lr": float, "seed": int, "every": int}.items():
        parser.add_argument(f"--{name}", type=kind, help=f"default: {getattr(Settings, name):g}")
    parser.add_argument("--precision", help="auto, float32 or bfloat16")
    parser.add_argument("--compile", action="store_const", const=True, help="compile the model (always on cuda)")
    parser.add_argument("--config", nargs="+", default=[], metavar="FIELD=VALUE", help="the model, as n_layers=6")
    parser.add_argument("--device", help="cpu, cuda or mps; the best one here if left out")
    return parser.parse_args(arguments)


def _run(asked: argparse.Namespace, rank: int) -> None:
    device = pick_device(asked.device)
    grouped = "WORLD_SIZE" in os.environ
    if grouped and device.type == "cuda":
        device = pick_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    config, settings = Config(), Settings()
    if asked.resume:
        checkpoint = runs.newest(asked.out)
        config, settings = runs.config_of(checkpoint), Settings(**checkpoint.state["settings"])
    else:
        runs.check_free(asked.out)
    config = replace(config, **dict(map(_field, asked.config)))
    given = {f.name: getattr(asked, f.name, None) for f in fields(Settings)}
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    text = corpus(asked.source)
    torch.manual_seed(settings.seed)
    model = LanguageModel(config).to(device)
    if rank == 0:
        print(f"{model.count_parameters().total:,} parameters on {describe(device)}")
    if grouped:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        train(model, text, settings, asked.out, asked.resume, show=rank == 0)
    finally:
        if grouped:
            distributed.destroy_process_group()


def _field(text: str) -> tuple[str, Any]:
    """A field of the plan and its value, of `n_layers=6`."""
    name, equals, value = text.partition("=")
    hints = get_type_hints(Config)
    if not equals or name not in hints:
        close = difflib.get_close_matches(name, hints, 1)
        raise ValueError(
            f"--config: {text!r} is not FIELD=VALUE of a field of Config" + (f"; {close[0]}?" if close else "")
        )
    choices = get_args(hints[name])
    if choices and isinstance(choices[0], str):
        return name, value
    if value.lower() in ("true", "false", "none"):
        return name, {"true": True, "false": False, "none": None}[value.lower()]
    if "tuple" in str(hints[name]):
        return name, tuple(value.split(","))
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _end(rank: int, message: str, code: int) -> NoReturn:
    if rank:
        time.sleep(5)  # all processes fail alike; the first to end is the one that is heard
    else:
        print(f"lib.train: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
