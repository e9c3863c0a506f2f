"""`course bench lib`: `lib` beside the reference library, on the same weights, in one run.

Each measurement is made in a fresh process with two threads, by both sides in turn. Loading the
model, the first tokens and the first training steps are not counted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from course import paths
from course.errors import CourseError

OURS, REFERENCE = "lib", "transformers"
THREADS = 2
NEW_TOKENS = 96
PROMPT = "The most important thing about the transformer is that every token can look at every other one, and so"
TRAINING = {"d_model": 384, "n_layers": 6, "n_heads": 6, "d_ff": 1024, "max_len": 256}
BATCH, STEPS = 8, 6


@dataclass(frozen=True)
class Result:
    """What one process measured."""

    per_second: float
    peak_bytes: int
    check: list[float]
    """Numbers that must be the same on both sides: tokens written, or losses."""


@dataclass(frozen=True)
class Task:
    """A thing that both sides do."""

    title: str
    unit: str
    run: Callable[[str], Result]
    tolerance: float
    """How far the check's numbers may lie apart."""


def main(rounds: int, only: str | None) -> None:
    """Measure and print the comparisons.

    Raises:
        CourseError: a package or the weights are missing, or the two sides did not compute the same.
    """
    if only is not None and only not in TASKS:
        raise CourseError(f"there is no measurement {only!r}, only {', '.join(TASKS)}")
    _require()
    console = Console(highlight=False)
    for name, task in TASKS.items():
        if only in (None, name):
            results: dict[str, list[Result]] = {OURS: [], REFERENCE: []}
            for number in range(rounds):
                for side in (OURS, REFERENCE) if number % 2 == 0 else (REFERENCE, OURS):
                    with console.status(f"{task.title}, round {number + 1} of {rounds}: {side}"):
                        results[side].append(_in_a_process(name, side))
            report(console, task, results)
    console.print(
        f"{THREADS} threads of {os.cpu_count()} cores, float32, a fresh process for each number, the sides in turn. "
        f"{REFERENCE} {_version(REFERENCE)}, torch {_version('torch')}. Memory is the greatest while measuring.",
        soft_wrap=True,
    )


def report(console: Console, task: Task, results: dict[str, list[Result]]) -> None:
    """Print one comparison.

    Raises:
        CourseError: the two sides did not compute the same.
    """
    checks = [result.check for side in results.values() for result in side]
    apart = max(abs(a - b) for other in checks for a, b in zip(checks[0], other, strict=True))
    if apart > task.tolerance:
        raise CourseError(f"{task.title}: the two sides computed different numbers, up to {apart:g} apart")
    table = Table(task.title, task.unit, *(f"round {i + 1}" for i in range(len(results[OURS]))), "peak memory")
    for side, measured in results.items():
        speeds = [result.per_second for result in measured]
        peak = max(result.peak_bytes for result in measured) / 2**20
        table.add_row(
            side, f"{statistics.median(speeds):.1f}", *(f"{speed:.1f}" for speed in speeds), f"{peak:,.0f} MiB"
        )
    console.print(table)
    ratios = [a.per_second / b.per_second for a, b in zip(results[OURS], results[REFERENCE], strict=True)]
    console.print(f"ratio: {statistics.median(ratios):.2f} (median of {', '.join(f'{ratio:.2f}' for ratio in ratios)})")


def _require() -> None:
    from importlib.util import find_spec

    paths.make_importable()
    if find_spec(REFERENCE) is None:
        raise CourseError("the reference library is not installed: pip install transformers")
    from lib.checkpoints import HOW_TO_GET_SMOLLM2, SMOLLM2

    if find_spec(SMOLLM2) is None:
        raise CourseError(HOW_TO_GET_SMOLLM2)


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def _in_a_process(task: str, side: str) -> Result:
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "PYTHONPATH": str(paths.ROOT), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "course.bench_lib", task, side]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise CourseError(f"{task} by {side} failed: {said[-1] if said else f'code {done.returncode}'}")
    return Result(**json.loads(done.stdout.splitlines()[-1]))


# What a process does


def _decode(side: str) -> Result:
    """Write greedily with a cache, SmolLM2-135M, one text."""
    import torch

    from lib.checkpoints import find_smollm2, load_pretrained, load_tokenizer
    from lib.generate import stream

    found = find_smollm2()
    assert found is not None
    model = load_pretrained(found)
    ids = torch.tensor([load_tokenizer(found).tokenizer.encode(PROMPT).ids])
    write: Callable[[int], list[int]]
    if side == OURS:
        write = lambda n: list(stream(model, ids, n, temperature=0))  # noqa: E731
    else:
        theirs = as_reference(model)
        del model
        how = {"attention_mask": torch.ones_like(ids), "do_sample": False, "eos_token_id": [], "pad_token_id": 0}
        write = lambda n: theirs.generate(ids, max_new_tokens=n, **how)[0, ids.shape[1] :].tolist()  # noqa: E731
    write(8)
    return _measured(lambda: write(NEW_TOKENS), NEW_TOKENS)


def _train(side: str) -> Result:
    """Steps of AdamW on random bytes, a decoder of 6 layers in Llama's style."""
    import torch

    from lib.decoder import next_token_loss
    from lib.model import Config, LanguageModel

    torch.manual_seed(0)
    parts = {"positions": "rope", "norm": "rmsnorm", "feed_forward": "swiglu", "bias": False}
    model: Any = LanguageModel(Config(**TRAINING, **parts))  # type: ignore[arg-type] # fields by name
    batches = torch.randint(256, (STEPS + 2, BATCH, TRAINING["max_len"]))
    loss_of: Callable[[Any], Any]
    if side == OURS:
        loss_of = lambda ids: next_token_loss(model, ids)  # noqa: E731
    else:
        model = as_reference(model).train()
        loss_of = lambda ids: model(ids, labels=ids).loss  # noqa: E731
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def steps(chosen: Any) -> list[float]:
        losses = []
        for ids in chosen:
            loss = loss_of(ids)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    steps(batches[:2])
    return _measured(lambda: steps(batches[2:]), STEPS * BATCH * TRAINING["max_len"])


def _measured(do: Callable[[], Sequence[float]], amount: int) -> Result:
    """Do it once, and say how much of it was done in a second."""
    from course.bench_grade import PeakMemory

    with PeakMemory() as memory:
        memory.watch(os.getpid())
        start = time.perf_counter()
        check = do()
        seconds = time.perf_counter() - start
    return Result(amount / seconds, memory.peak, [float(x) for x in check])


def as_reference(model: Any) -> Any:
    """The reference library's Llama with the weights of a `LanguageModel` of that style."""
    import transformers

    from lib.families import FAMILIES
    from lib.rotary_embedding import interleaved_to_half

    config = model.config
    plan = transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.d_model,
        intermediate_size=config.ff_width,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.max_len,
        rms_norm_eps=config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
        tie_word_embeddings=config.tied_embeddings,
    )
    parameters, state = dict(model.named_parameters()), {}
    for ours, take in FAMILIES["llama"].takes(config):
        x = parameters[ours].detach()
        state[f"model.{take.theirs}"] = interleaved_to_half(x, take.heads) if take.heads else x
    table = "embedding.weight" if config.tied_embeddings else "lm_head.weight"
    state["lm_head.weight"] = parameters[table].detach()
    theirs = transformers.LlamaForCausalLM(plan)
    theirs.load_state_dict(state)
    return theirs.eval()


TASKS = {
    "decode": Task(f"Writing {NEW_TOKENS} tokens, SmolLM2-135M, one text", "tokens a second (median)", _decode, 0),
    "train": Task(
        f"Training, 6 layers of width 384, {BATCH} texts of 256 bytes", "bytes a second (median)", _train, 1e-3
    ),
}

if __name__ == "__main__":
    import torch

    torch.set_num_threads(THREADS)
    print(json.dumps(vars(TASKS[sys.argv[1]].run(sys.argv[2]))))
