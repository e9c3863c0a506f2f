"""The folder of a training run: checkpoints that no kill can spoil, and a log of the losses.

This module is given: no exercise. `lib.train` writes such a folder, `load_run` reads a model from it:

    runs/small/losses.jsonl          one line a step
    runs/small/step-00000200/        a checkpoint: there whole, or not at all
        model.safetensors            the parameters, by name
        optimizer.safetensors        what AdamW remembers of each of them
        state.json                   the plan, the settings, the step, the states of the random numbers

Nothing in it is a pickle, so that opening a run of somebody else's runs no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from lib.config import Config
from lib.data import Corpus
from lib.model import LanguageModel

LOG = "losses.jsonl"
PARTIAL = ".partial"
"""Ends the name of a folder that is being written or removed; whoever finds one may delete it."""

KEPT = 2
"""How many checkpoints stay: the second protects against a disk that spoils the newest."""


class RunError(ValueError):
    """A run's folder cannot be used; the message is one line that says why, and what to do."""


class Point(NamedTuple):
    """One evaluation of a run."""

    step: int
    train_bits: float
    """Bits per byte on the batches since the last evaluation, on average."""
    held_out_bits: float


class Checkpoint(NamedTuple):
    """All that a run needs to go on."""

    path: Path
    step: int
    state: dict[str, Any]
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]


def load_run(folder: str | Path) -> LanguageModel:
    """The model of a run's newest checkpoint, on the CPU and in evaluation mode.

    Raises:
        RunError: the folder holds no checkpoint that can be read.
        MissingPiece: a piece that the model needs is not written; the message names its chapter.
    """
    checkpoint = newest(Path(folder))
    model = LanguageModel(config_of(checkpoint))
    fill(model, checkpoint)
    model.eval()
    return model


def newest(folder: Path) -> Checkpoint:
    """The newest checkpoint that can be read.

    Raises:
        RunError: there is none; the message says what is wrong with the last one.
    """
    problem = "it has no complete checkpoint, so start it again, without --resume"
    for path in reversed(_complete(folder)):
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            problem = f"{path.name} is damaged ({type(error).__name__}: {' '.join(str(error).split())})"
    raise RunError(f"{folder}: there is no run to go on with: {problem if folder.exists() else 'no such folder'}")


def config_of(checkpoint: Checkpoint) -> Config:
    """The plan of the checkpoint's model.

    Raises:
        RunError: it is no plan that `Config` takes.
    """
    stored = checkpoint.state["config"]
    values: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in stored.items()}
    try:
        return Config(**values)
    except (TypeError, ValueError) as error:
        raise RunError(f"{checkpoint.path}: state.json holds a plan that Config does not take: {error}") from error


def check_free(folder: Path) -> None:
    """Refuse a folder in which something could be lost.

    Raises:
        RunError: it holds a run, or files of some other kind.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: name another folder")
    if _complete(folder):
        raise RunError(f"{folder} holds a run already: go on with --resume, or name another folder")
    if folder.exists() and any(path.name != LOG and not path.name.endswith(PARTIAL) for path in folder.iterdir()):
        raise RunError(f"{folder} is not empty, and not a run: name another folder")


def tidy(folder: Path, last: int) -> None:
    """Make the folder ready to be written to: without half-written checkpoints, and without any after step `last`.

    A checkpoint after the one that is gone on with could not be read; it is put aside, not deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"*{PARTIAL}"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in _complete(folder):
        if _step_of(path) > last:
            path.replace(path.with_name(f"{path.name}.damaged"))


# Checkpoints


def fingerprint(corpus: Corpus) -> str:
    """Of a text: another text has another."""
    digest = hashlib.sha256()
    for ids in corpus:
        digest.update(ids.cpu().numpy().tobytes())
        digest.update(b"|")
    return digest.hexdigest()


def save(folder: Path, step: int, state: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    """Write a checkpoint, and remove those before the last two.

    It is written under another name, brought to the disk, and renamed in one go: whoever is killed or loses
    power in between leaves the older checkpoints as they were.

    Raises:
        RunError: it cannot be written, as on a full disk.
    """
    path = folder / f"step-{step:08d}"
    beside = path.with_name(path.name + PARTIAL)
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        safetensors.save_file(tensors_of(model), beside / "model.safetensors")
        safetensors.save_file(_memory_of(model, optimizer), beside / "optimizer.safetensors")
        (beside / "state.json").write_text(json.dumps({"step": step, **state}, indent=1), encoding="utf-8")
        for file in beside.iterdir():
            _to_disk(file)
        _to_disk(beside)
        beside.replace(path)
        _to_disk(folder)
        for old in _complete(folder)[:-KEPT]:
            _remove(old)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be written, the checkpoints before it are as they were: {error}") from error
    return path


def fill(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint's parameters into a model of the same plan.

    Raises:
        RunError: the model's parameters are others, as after a piece was written anew with other names.
    """
    ours, theirs = tensors_of(model), checkpoint.model
    if wrong := sorted(name for name in ours.keys() | theirs.keys() if _shape(ours, name) != _shape(theirs, name)):
        raise RunError(f"{checkpoint.path}: other parameters than your pieces have: {', '.join(wrong[:3])}")
    with torch.no_grad():
        for name, x in ours.items():
            x.copy_(theirs[name])


def fill_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, checkpoint: Checkpoint) -> None:
    """Give an optimizer what it remembered of each of the model's parameters."""
    parameters = dict(model.named_parameters())
    for name, x in checkpoint.optimizer.items():
        parameter, _, key = name.rpartition(".")
        owner = parameters[parameter]
        # AdamW counts its steps on the CPU, wherever the parameters are.
        optimizer.state[owner][key] = x.clone() if key == "step" else x.to(owner.device, copy=True)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and lasting buffers by name, each once even where two names share it."""
    lasting = model.state_dict().keys()
    found = {name: x.detach() for name, x in [*model.named_parameters(), *model.named_buffers()] if name in lasting}
    return {name: x.contiguous() for name, x in found.items()}


def _memory_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers: `<parameter>.exp_avg` and its like."""
    return {
        f"{name}.{key}": x.contiguous()
        for name, parameter in model.named_parameters()
        for key, x in optimizer.state.get(parameter, {}).items()
    }


def _read(path: Path) -> Checkpoint:
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    for name in ("config", "settings", "corpus", "random"):
        state[name]  # a KeyError here is a damaged checkpoint
    # From bytes, as a file that is mapped into memory could not be removed on Windows.
    model, optimizer = (
        safetensors.load((path / f"{name}.safetensors").read_bytes()) for name in ("model", "optimizer")
    )
    return Checkpoint(path, int(state["step"]), state, model, optimizer)


def _shape(tensors: dict[str, Tensor], name: str) -> object:
    return tensors[name].shape if name in tensors else None


def _complete(folder: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8,}", path.name) and path.is_dir()]
    return sorted(found, key=_step_of)


def _step_of(path: Path) -> int:
    return int(path.name.partition("-")[2])


def _remove(path: Path) -> None:
    # Renamed first: a checkpoint that is half removed must not look like one.
    going = path.with_name(path.name + PARTIAL)
    path.replace(going)
    shutil.rmtree(going)


def _to_disk(path: Path) -> None:
    """Wait until a file or a folder's list of names is on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows does not open folders, and keeps their lists by itself
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# The log


class Log:
    """The losses of a run, in bits per byte: one line a step, `{"step": 7, "train_bits": 5.1}`.

    A line of a step with an evaluation also has `held_out_bits`. Lines after step `last` are dropped:
    the run that wrote them was killed before its next checkpoint, and their steps are done again.

    Args:
        path: the file; `None` keeps the log in memory.
        last: the step of the checkpoint that the run goes on from, 0 for a new run.
        write: whether to write to the file. Of several processes, one does.
    """

    def __init__(self, path: Path | None, last: int = 0, write: bool = True) -> None:
        self.points: list[Point] = []
        self._since: list[float] = []
        lines = [line for line in _lines(path) if line["step"] <= last] if path is not None else []
        for line in lines:
            self._note(line)
        self._file = None
        if path is not None and write:
            beside = path.with_name(path.name + PARTIAL)
            beside.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
            beside.replace(path)
            self._file = path.open("a", encoding="utf-8")

    def add(self, step: int, train_bits: float, held_out_bits: float | None) -> None:
        """Note the loss of a step, and of an evaluation where there was one."""
        line = {"step": step, "train_bits": train_bits}
        if held_out_bits is not None:
            line["held_out_bits"] = held_out_bits
        self._note(line)
        if self._file is not None:
            self._file.write(f"{json.dumps(line)}\n")
            self._file.flush()

    def to_disk(self) -> None:
        """Wait until all lines are on the disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()

    def _note(self, line: dict[str, Any]) -> None:
        self._since.append(line["train_bits"])
        if "held_out_bits" in line:
            self.points.append(Point(line["step"], math.fsum(self._since) / len(self._since), line["held_out_bits"]))
            self._since = []


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log, up to one that was broken off."""
    if not path.is_file():
        return
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
            yield {"step": int(line["step"]), "train_bits": float(line["train_bits"])} | (
                {"held_out_bits": float(line["held_out_bits"])} if "held_out_bits" in line else {}
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return


# What a person sees and presses


@contextlib.contextmanager
def patient(world: int) -> Iterator[Callable[[], bool]]:
    """Within it Ctrl-C only leaves a note, as a step broken off half-way spoils the weights; a second one stops."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def note(*_: object) -> None:
        asked.set()
        if world == 1:  # torchrun passes a terminal's Ctrl-C on, so that each process gets it twice
            signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


class Display:
    """The progress bar and what is printed at evaluations; silent unless `show`."""

    def __init__(self, steps: int, tokens: int, show: bool, step: int) -> None:
        self.show, self.tokens, self.first, self.start = show, tokens, step, time.perf_counter()
        self.console = Console(quiet=not show, highlight=False, markup=False)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=self.console)
        self.task = self.progress.add_task("", total=steps, completed=step)

    def stepped(self, step: int, bits: float) -> None:
        """Move the bar."""
        self.speed: float = (step - self.first) * self.tokens
        self.speed /= max(1e-9, time.perf_counter() - self.start)
        text = f"{bits:.2f} bits per byte, {self.speed:,.0f} tokens/s"
        self.progress.update(self.task, completed=step, description=text)

    def evaluated(self, point: Point, sample: str) -> None:
        """Print an evaluation and a sample."""
        self.console.print(
            f"step {point.step:,}: {point.train_bits:.3f} bits per byte, held out {point.held_out_bits:.3f}, "
            f"{self.speed:,.0f} tokens/s\n  {sample}"
        )
