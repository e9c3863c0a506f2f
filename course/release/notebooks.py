"""A chapter of the book as the notebook that a student opens.

The same source always gives the same bytes: cell ids come from `grade_id` or from the position,
never from chance, so a notebook that is made again differs only where its chapter does.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course.chapters import Chapter
from course.errors import CourseError
from course.release import myst

IMAGE = re.compile(r"!\[([^\]]*)\]\(([^()\s]+)\)")
NBFORMAT_MINOR = 5


def student_notebook(chapter: Chapter) -> NotebookNode:
    """The notebook of a chapter: plain Markdown, no outputs, nbgrader's metadata as in the source.

    Raises:
        CourseError: the chapter holds something that a notebook cannot show; the message names it.
    """
    source = chapter.notebook()
    notebook = nbformat.v4.new_notebook(metadata=_metadata(source.metadata))
    notebook.nbformat_minor = NBFORMAT_MINOR
    taken: set[str] = set()
    for position, cell in enumerate(source.cells):
        new = _code(cell) if cell.cell_type == "code" else _text(cell, chapter)
        if cell.cell_type == "markdown" and not new.source:
            continue  # nothing but labels or comments
        new["id"] = _cell_id(new, position, taken)
        notebook.cells.append(new)
    nbformat.validate(notebook)
    return notebook


def to_bytes(notebook: NotebookNode) -> bytes:
    """The file's content: UTF-8, LF, one newline at the end."""
    return (nbformat.writes(notebook).rstrip("\n") + "\n").encode("utf-8")


def _metadata(source: NotebookNode) -> dict[str, object]:
    kernel = source.get("kernelspec", {"display_name": "Python 3", "language": "python", "name": "python3"})
    return {"kernelspec": dict(kernel), "language_info": {"name": "python"}}


def _code(cell: NotebookNode) -> NotebookNode:
    metadata = nbformat.from_dict({key: value for key, value in cell.metadata.items() if key != "jupyter"})
    jupyter = dict(cell.metadata.get("jupyter", {}))
    tags = cell.metadata.get("tags", [])
    # What the page folds or leaves out is folded in JupyterLab: the code is there to be opened.
    if {"hide-input", "remove-input", "hide-cell", "remove-cell"} & set(tags):
        jupyter["source_hidden"] = True
    if {"hide-output", "hide-cell", "remove-cell"} & set(tags):
        jupyter["outputs_hidden"] = True
    if jupyter:
        metadata["jupyter"] = jupyter
    return nbformat.v4.new_code_cell(cell.source, metadata=metadata)


def _text(cell: NotebookNode, chapter: Chapter) -> NotebookNode:
    if cell.cell_type == "raw":
        raise CourseError(f"{chapter.path.name}: a raw cell has no place in a chapter; make it Markdown or code")
    new = nbformat.v4.new_markdown_cell(myst.to_markdown(cell.source, chapter.id), metadata=cell.metadata)
    attachments: dict[str, dict[str, str]] = {}

    def attach(match: re.Match[str]) -> str:
        alt, address = match.groups()
        if re.match(r"[a-z]+:", address):
            return match.group()
        image = (chapter.path.parent / address).resolve()
        if not image.is_file():
            raise CourseError(f"{chapter.path.name}: the image {address!r} is not there; correct the path")
        attachments[image.name] = _attachment(image)
        return f"![{alt}](attachment:{image.name})"

    new.source = IMAGE.sub(attach, new.source)
    if attachments:
        new["attachments"] = nbformat.from_dict(attachments)
    return new


def _attachment(image: Path) -> dict[str, str]:
    kind = mimetypes.guess_type(image.name)[0] or "application/octet-stream"
    return {kind: base64.b64encode(image.read_bytes()).decode("ascii")}


def _cell_id(cell: NotebookNode, position: int, taken: set[str]) -> str:
    """An id in nbformat's alphabet (letters, digits, - and _; 64 at most), unique in the notebook."""
    grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
    kind = "text" if cell.cell_type == "markdown" else "code"
    wanted = grade_id or ("setup" if "setup" in cell.metadata.get("tags", []) else f"{kind}-{position:03d}")
    wanted = re.sub(r"[^A-Za-z0-9_-]", "-", wanted)[:64]
    if wanted in taken:
        wanted = f"{wanted[:56]}-{position:03d}"
    taken.add(wanted)
    return wanted
