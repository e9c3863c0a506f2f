"""The tooling of *Architecture Ideas That Won*: cells, figures, quizzes, book, release, grading."""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext course` gives a notebook the `%%lib` cell magic."""
    from course.cells import register

    register(shell)
