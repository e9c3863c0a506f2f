"""The book: a Sphinx extension (`course.book` in `_config.yml`), its build and its server."""

from __future__ import annotations

from typing import Any


def setup(app: Any) -> dict[str, Any]:
    """Sphinx calls this for the extension `course.book`."""
    from course.book import extension

    return extension.setup(app)
