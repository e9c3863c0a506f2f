"""A digest of everything outside a chapter that its outputs depend on.

jupyter-cache looks only at a notebook's own cells: without this an edited solution, given module
or package version would leave stale outputs on the page.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

TOOLING = Path(__file__).resolve().parent.parent
"""The `course` package that is running."""


def inputs(root: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of each file that outputs depend on, in a fixed order."""
    for folder in ("solutions", "lib"):
        for path in sorted((root / folder).rglob("*.py")):
            if not any(part.startswith((".", "__pycache__")) for part in path.relative_to(root).parts):
                yield path.relative_to(root).as_posix(), path
    for path in sorted([*TOOLING.glob("*.py"), TOOLING / "book" / "diagrams.py"]):
        yield "course/" + path.relative_to(TOOLING).as_posix(), path
    for path in sorted(root.glob("requirements*.lock")):
        yield path.name, path


def digest(root: Path) -> str:
    """Twelve hexadecimal digits that change when any of the inputs does."""
    state = hashlib.sha256(f"python {sys.version_info[:2]}\n".encode())
    for name, path in inputs(root):
        state.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return state.hexdigest()[:12]
