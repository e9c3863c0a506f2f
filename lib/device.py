"""Where a model runs: on an NVIDIA GPU (`cuda`), on Apple's (`mps`) or on the processor (`cpu`).

This module is given: no exercise. `model.to(pick_device())` moves a model to the best device that is here.
"""

from __future__ import annotations

import os
import platform
import re

import torch

VARIABLE = "COURSE_DEVICE"
"""Environment variable: the device to use in place of the best one, such as `cpu` or `cuda:1`."""


def pick_device(name: str | None = None) -> torch.device:
    """The device to run on: the one that is named, else the best one here: cuda, then mps, then cpu.

    Args:
        name: `cuda`, `mps`, `cpu`, or one of several GPUs such as `cuda:1`. `None` leaves the choice
            to the environment variable `COURSE_DEVICE`, and, where that is not set, to this machine.

    Raises:
        ValueError: no device is called that, or it is not here; the message says where the name came from.
    """
    asked_by = "device"
    if name is None:
        name, asked_by = os.environ.get(VARIABLE, ""), VARIABLE
        if not name:
            return torch.device(_present()[0])
    found = re.fullmatch(r"(cuda|mps|cpu)(:[0-9]+)?", name)
    if found is None:
        raise ValueError(f"{asked_by} must be cuda, mps or cpu, or one of several such as cuda:1, not {name!r}")
    kind, number = found[1], int((found[2] or ":0")[1:])
    if kind not in _present() or number >= (torch.cuda.device_count() if kind == "cuda" else 1):
        raise ValueError(f"{asked_by} is {name!r}, which PyTorch does not find here; it finds {', '.join(_present())}")
    return torch.device(name)


def describe(device: torch.device) -> str:
    """The device in words, such as `cuda: NVIDIA H200, 140 GiB` or `cpu: 8 threads on 8 cores`."""
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory / 2**30
        return f"{device}: {torch.cuda.get_device_name(device)}, {memory:.0f} GiB"
    if device.type == "mps":
        return f"{device}: Apple's GPU, {platform.machine()}"
    return f"{device}: {torch.get_num_threads()} threads on {os.cpu_count()} cores"


def _present() -> list[str]:
    """The kinds of device that are here, best first."""
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [kind for kind, is_here in here.items() if is_here]
