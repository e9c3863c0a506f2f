"""Trains a `LanguageModel`, on a processor, a GPU or several. This module is given: no exercise.

    python -m lib.train --out runs/small --steps 2000 --config n_layers=6 mixer=mqa
    python -m lib.train --out runs/small --resume
    torchrun --nproc-per-node 2 -m lib.train --out runs/small

The task is your `next_token_loss` (chapter 09). The same from Python:

    points = train(LanguageModel(Config()), corpus(), Settings(steps=100), "runs/small")
    model = load_run("runs/small")
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import torch
from torch import Tensor, distributed, nn

from lib import pieces, runs
from lib.data import Corpus, bits_per_byte, random_batch
from lib.model import LanguageModel
from lib.runs import Point, RunError, load_run

__all__ = ["Point", "RunError", "Settings", "Stopped", "load_run", "train"]

EVALUATED = 1 << 15
"""Predictions of an evaluation at most, on pieces spread evenly over the held-out text; the same ones each time."""

BALANCE = 0.01
"""Weight of the loss that spreads tokens over a mixture's experts (Fedus et al., 2022)."""

PROMPT = b"The "
WRITTEN = 160
"""Bytes of a sample."""

RANGES = {
    "lr": (0.0, math.inf),
    "warmup": (0.0, 1.0),
    "weight_decay": (0.0, math.inf),
    "beta1": (0.0, 1.0),
    "beta2": (0.0, 1.0),
    "clip": (0.0, math.inf),
}
"""From and below which bounds the settings' real numbers lie; `lr` and `clip` are above zero."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C came; the run stands in a checkpoint. The message says after which step."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train: `Settings(steps=500, lr=1e-3)`. What is trained is the model's `Config`.

    Raises:
        ValueError: a field has a value that it cannot have; the message names it.
    """

    steps: int = 2000
    """Updates of the parameters."""

    batch: int = 16
    """`B`: sequences of a step, of all processes together."""

    length: int = 128
    """`T`: predictions of a sequence, which is a piece of `T + 1` bytes from a random place."""

    lr: float = 3e-3
    """The largest learning rate. It rises to this from zero, then falls to a tenth of it along a cosine."""

    warmup: float = 0.05
    """Share of the steps in which the learning rate rises."""

    weight_decay: float = 0.1
    """Of AdamW, on matrices only: norms and biases are not drawn towards zero."""

    beta1: float = 0.9
    """Of AdamW: how much of the mean gradient stays from step to step."""

    beta2: float = 0.95
    """Of AdamW: how much of the mean squared gradient stays from step to step."""

    clip: float = 1.0
    """Gradients whose norm, over all parameters, is above this are scaled down to it."""

    every: int = 200
    """Steps between two evaluations, each with a checkpoint. The last step always has one."""

    seed: int = 0
    """Which batches come. The command draws the model's start from it too."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the matrix products. `auto` is bfloat16 on an NVIDIA GPU that has it, else float32."""

    compile: bool | None = None
    """Whether `torch.compile` makes one program of the model. `None` means on NVIDIA GPUs only."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            _check(field.name, getattr(self, field.name), hints[field.name])


def _check(name: str, value: object, hint: object) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int and (isinstance(value, bool) or not isinstance(value, int) or value < (name != "seed")):
        raise ValueError(f"{name} must be a whole number of at least {int(name != 'seed')}, not {value!r}")
    if hint is float:
        low, high = RANGES[name]
        if not real or not low <= value < high or (value == 0 and name in ("lr", "clip")):  # type: ignore[operator]
            limits = f"at least {low:g}" if math.isinf(high) else f"at least {low:g} and below {high:g}"
            limits = "above 0" if name in ("lr", "clip") else limits
            raise ValueError(f"{name} must be a number {limits}, not {value!r}")
    if hint == bool | None and not (value is None or isinstance(value, bool)):
        raise ValueError(f"{name} must be True, False or None, not {value!r}")
    if name == "precision" and value not in get_args(hint):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(hint)))}, not {value!r}")


def train(
    model: LanguageModel,
    corpus: Corpus,
    settings: Settings | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    *,
    show: bool = False,
) -> list[Point]:
    """Train a model, where it is, to predict each next byte.

    In each process of a `torch.distributed` group it takes a share of each batch; what comes out is what one
    process would reach, up to rounding. (With a mixture of experts, each process balances its own share.)

    Args:
        model: with a causal plan; its parameters are changed.
        corpus: of ids below the model's `V`.
        settings: `None` means the defaults.
        folder: where checkpoints and the log go; made if needed. `None` keeps nothing.
        resume: go on from the folder's newest checkpoint. On a processor, the losses are then bit for bit
            those of a run that was never stopped.
        show: whether to print a progress bar, the losses and samples.

    Returns:
        The evaluations, those before a resumption included: step, and bits per byte in training and held out.

    Raises:
        ValueError: model, text and settings do not go together; the message says which.
        RunError: the folder holds a run already, cannot be resumed with this plan, text or these settings,
            or cannot be written; what it holds is left as it is.
        ArithmeticError: the loss is no longer finite.
        MissingPiece: `next_token_loss` is not written yet.
        Stopped: Ctrl-C was pressed. The step under way is finished, and a checkpoint made, before.
    """
    run = _Run(model, corpus, settings or Settings())
    folder = None if folder is None else Path(folder)
    if resume:
        if folder is None:
            raise ValueError("resume needs the folder of a run")
        run.restore(runs.newest(folder))
    elif folder is not None:
        runs.check_free(folder)
    with runs.patient(run.world) as asked_to_stop, contextlib.closing(run.open(folder)) as log:
        run.loop(log, folder, asked_to_stop, run.display(show))
    return log.points


class _Run:
    """A model, its optimizer, the state of the random numbers, and the step that they have reached."""

    def __init__(self, model: LanguageModel, corpus: Corpus, settings: Settings) -> None:
        grouped = distributed.is_available() and distributed.is_initialized()
        self.rank = distributed.get_rank() if grouped else 0
        self.world = distributed.get_world_size() if grouped else 1
        self.model, self.corpus, self.settings, self.step = model, corpus, settings, 0
        _check_fit(model, corpus, settings, self.world)
        self.next_token_loss = pieces.take("decoder", "next_token_loss", "training")
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.optimizer = _optimizer(model, settings)
        self.balanced = model.config.feed_forward == "moe"
        if self.balanced:
            needed_by = "training a mixture of experts"
            self.load_balancing_loss = pieces.take("expert_router", "load_balancing_loss", needed_by)

    # To a checkpoint and back

    def state(self) -> dict[str, Any]:
        """What `state.json` holds beside the step."""
        random = {"batches": self.generator.get_state(), "torch": torch.get_rng_state()}
        return {
            "config": asdict(self.model.config),
            "settings": asdict(self.settings),
            "corpus": runs.fingerprint(self.corpus),
            "random": {name: b64encode(bytes(state.tolist())).decode("ascii") for name, state in random.items()},
        }

    def restore(self, checkpoint: runs.Checkpoint) -> None:
        """Go on from a checkpoint of the same plan, text and settings."""
        here, there = self.state(), checkpoint.state | {"config": asdict(runs.config_of(checkpoint))}
        for kind in ("config", "settings"):
            for name, value in here[kind].items():
                if there[kind].get(name, value) != value:
                    raise RunError(
                        f"{checkpoint.path.parent} was begun with {name}={there[kind][name]!r}, not {value!r}: "
                        "use the same, or begin another folder"
                    )
        if here["corpus"] != there["corpus"]:
            raise RunError(f"{checkpoint.path.parent} was begun on another text: name the same source")
        runs.fill(self.model, checkpoint)
        runs.fill_optimizer(self.optimizer, self.model, checkpoint)
        batches, of_torch = (
            torch.frombuffer(bytearray(b64decode(there["random"][name])), dtype=torch.uint8)
            for name in ("batches", "torch")
        )
        self.generator.set_state(batches)
        torch.set_rng_state(of_torch)
        self.step = checkpoint.step

    def open(self, folder: Path | None) -> runs.Log:
        """The run's log; of several processes, one makes the folder ready and writes to it."""
        if folder is None:
            return runs.Log(None)
        if self.world > 1:
            distributed.barrier()  # all have read what is about to be tidied
        if self.rank == 0:
            runs.tidy(folder, self.step)
        return runs.Log(folder / runs.LOG, self.step, write=self.rank == 0)

    def save(self, folder: Path | None, log: runs.Log) -> None:
        if folder is not None and self.rank == 0:
            log.to_disk()  # no checkpoint without the lines before it
            runs.save(folder, self.step, self.state(), self.model, self.optimizer)

    def display(self, show: bool) -> runs.Display:
        tokens = self.settings.batch * self.settings.length
        return runs.Display(self.settings.steps, tokens, show and self.rank == 0, self.step)

    # Steps

    def loop(self, log: runs.Log, folder: Path | None, asked: Callable[[], bool], display: runs.Display) -> None:
        """All steps that are left."""
        running, mode = _wrapped(self.model, self.settings, self.world), self.model.training
        self.model.train()
        with display.progress:
            while self.step < self.settings.steps:
                bits, stop = self.advance(running, asked())
                due = self.step % self.settings.every == 0 or self.step == self.settings.steps
                display.stepped(self.step, bits)
                held_out = self.evaluate() if due else None
                log.add(self.step, bits, held_out)
                if due and display.show:
                    display.evaluated(log.points[-1], _sample(self.model, self.settings.seed))
                if due or stop:
                    self.save(folder, log)
                if stop and self.step < self.settings.steps:
                    raise Stopped(f"stopped after step {self.step:,} of {self.settings.steps:,}")
        self.model.train(mode)

    def advance(self, running: nn.Module, stop: bool) -> tuple[float, bool]:
        """Do one step; returns its loss in bits, and whether any process was asked to stop."""
        settings, device = self.settings, self.model.device
        batch = random_batch(self.corpus.train, settings.batch, settings.length + 1, self.generator)
        ids = batch.chunk(self.world)[self.rank].to(device)  # each process draws the batch and takes its share
        with self.autocast():
            loss = self.next_token_loss(running, ids)
            objective = loss + BALANCE * self.imbalance() if self.balanced else loss
        self.optimizer.zero_grad()
        objective.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        mean, stopping = self.mean([loss.item(), float(stop)])
        if not math.isfinite(mean) or not norm.isfinite():
            raise ArithmeticError(
                f"the loss is not finite at step {self.step + 1:,} ({mean:g}, gradient {norm.item():g}): "
                f"try a lower lr than {settings.lr:g}"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = _rate(self.step, settings)
        self.optimizer.step()
        self.step += 1
        return bits_per_byte(mean), stopping > 0

    def imbalance(self) -> Tensor:
        """How unevenly the layers' tokens were spread over the experts, as your `load_balancing_loss` has it."""
        block: Any
        losses = []
        for block in self.model.blocks:
            layer = block.feed_forward.sublayer
            losses.append(self.load_balancing_loss(layer.router_probs, layer.indices, len(layer.experts)))
        return torch.stack(losses).mean()

    @torch.no_grad()
    def evaluate(self) -> float:
        """The held-out loss in bits per byte, the same pieces of text each time; processes share them."""
        text, T = self.corpus.held_out, self.settings.length
        count = max(1, min((len(text) - 1) // T, EVALUATED // T))
        starts = torch.linspace(0, len(text) - T - 1, count, dtype=torch.float64).long()
        batch = text[starts[:, None] + torch.arange(T + 1)][self.rank :: self.world]  # (count, T + 1)
        nats = 0.0
        self.model.eval()
        for ids in batch.split(self.settings.batch) if len(batch) else ():
            with self.autocast():
                nats += self.next_token_loss(self.model, ids.to(self.model.device)).item() * len(ids)
        self.model.train()
        total, pieces_read = self.mean([nats, float(len(batch))])
        return bits_per_byte(total / pieces_read)

    def mean(self, values: list[float]) -> list[float]:
        """Of each of the numbers, its mean over the processes."""
        if self.world == 1:
            return values
        sums = torch.tensor(values, dtype=torch.float64, device=self.model.device)
        distributed.all_reduce(sums)
        return (sums / self.world).tolist()

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Where matrix products are of bfloat16, if the settings and the device say so."""
        kind, asked = self.model.device.type, self.settings.precision
        on = asked == "bfloat16" or (asked == "auto" and kind == "cuda" and torch.cuda.is_bf16_supported())
        return torch.autocast(kind, torch.bfloat16) if on else contextlib.nullcontext()


def _check_fit(model: LanguageModel, corpus: Corpus, settings: Settings, world: int) -> None:
    config = model.config
    if not config.causal:
        raise ValueError("causal must be True: a model that sees the next byte has nothing to predict")
    if config.positions in ("learned", "sinusoidal") and settings.length > config.max_len:
        raise ValueError(f"length must be at most the model's max_len, {config.max_len}, not {settings.length}")
    for name, ids in corpus._asdict().items():
        if len(ids) <= settings.length:
            raise ValueError(f"corpus.{name} has {len(ids):,} bytes: too few for length {settings.length}")
        if int(ids.max()) >= config.vocab_size:
            raise ValueError(f"vocab_size must be above every id of the corpus: {config.vocab_size}, {int(ids.max())}")
    if settings.batch % world:
        raise ValueError(f"batch must be a multiple of the number of processes, {world}, not {settings.batch}")


def _optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    matrices = [x for x in model.parameters() if x.dim() >= 2]
    others = [x for x in model.parameters() if x.dim() < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], settings.lr, (settings.beta1, settings.beta2))


def _rate(step: int, settings: Settings) -> float:
    """The learning rate of the step that follows `step` others."""
    rising = math.ceil(settings.warmup * settings.steps)
    if step < rising:
        return settings.lr * (step + 1) / rising
    done = (step - rising) / max(1, settings.steps - rising)
    return settings.lr * (0.55 + 0.45 * math.cos(math.pi * done))


def _wrapped(model: LanguageModel, settings: Settings, world: int) -> nn.Module:
    """The model as steps call it: shared among processes, and compiled where that is wanted."""
    running: Any = model
    if world > 1:
        # An expert may get no token of a batch, and then no gradient.
        unused = model.config.feed_forward == "moe"
        running = nn.parallel.DistributedDataParallel(model, find_unused_parameters=unused)
    wanted = settings.compile
    if wanted is None:
        wanted = model.device.type == "cuda" and importlib.util.find_spec("triton") is not None
    made: nn.Module = torch.compile(running) if wanted else running  # type: ignore[assignment]
    return made


def _sample(model: LanguageModel, seed: int) -> str:
    """What the model writes now; nothing where ids are not bytes, or chapter 09's `generate` is not written."""
    if model.config.vocab_size != 256:
        return ""
    try:
        generate = pieces.take("decoder", "generate", "a sample")
    except pieces.MissingPiece:
        return ""
    generator = torch.Generator(model.device).manual_seed(seed)
    ids = torch.tensor([list(PROMPT)], device=model.device)
    model.eval()
    written = generate(
        lambda ids: model(ids[:, -model.config.max_len :]), ids, WRITTEN, temperature=0.8, generator=generator
    )
    model.train()
    text = bytes(written[0].tolist()).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else " " for c in text)


if __name__ == "__main__":
    from lib.train_cli import main

    main()
