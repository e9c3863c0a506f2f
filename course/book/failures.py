"""Failed builds: the exception for warnings, and one line that names page, cell and error."""

from __future__ import annotations

import re
from pathlib import Path

from myst_nb.core.execute import ExecutionError
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util import logging

from course import chapters

LOGGER = logging.getLogger(__name__)


class Warned(SphinxError):
    """The pages were built, but with warnings; they count as failures."""

    category = "Book error"

    def __init__(self, count: int) -> None:
        noun = "warning" if count == 1 else "warnings"
        super().__init__(f"{count} {noun}, listed above; a book with warnings counts as failed: mend them")


class Unreleasable(SphinxError):
    """A chapter holds something that its notebook cannot show."""

    category = "Book error"


def explain(app: Sphinx, exception: Exception) -> None:
    """Log one line about a cell that failed: which page, which cell and line, what was raised."""
    if not isinstance(exception, ExecutionError):
        return
    page = Path(str(exception))
    cause = exception.__cause__
    if isinstance(cause, CellExecutionError):
        source = _cell_source(cause)
        what = f"{cause.ename}: {cause.evalue}"
    elif isinstance(cause, CellTimeoutError):
        source, what = _cell_source(cause), "it ran longer than the time limit in _config.yml"
    else:
        source, what = "", f"{type(cause).__name__}: {cause}"
    number, line = locate(page, source)
    what = " ".join(what.split())
    place = f"code cell {number} failed" if number else "execution failed"
    docname = page.relative_to(app.srcdir).with_suffix("").as_posix()
    LOGGER.error("%s: %s", place, what, location=(docname, line))


def _cell_source(error: CellExecutionError | CellTimeoutError) -> str:
    """The failing cell's source, or its beginning, which nbclient prints between two rules."""
    match = re.search(r"cell(?: contents)?:\n-+\n(.*?)\n-+\n", getattr(error, "traceback", str(error)), re.S)
    return match.group(1).strip().split("\n...\n")[0] if match else ""


def locate(page: Path, source: str) -> tuple[int | None, int | None]:
    """The number of the code cell that starts with this source, and its first line in the page's file."""
    if not source:
        return None, None
    cells = [cell.source.strip() for cell in chapters.read_notebook(page).cells if cell.cell_type == "code"]
    number = next((i for i, text in enumerate(cells, 1) if text.startswith(source)), None)
    text = page.read_text(encoding="utf-8")
    position = text.find(source)
    return number, text.count("\n", 0, position) + 1 if position >= 0 else None
