"""Feedback pages: nbgrader's HTML with the student's own work, every property, and the hints.

A page carries everything it needs and asks no other machine for anything. Whatever a student wrote
is text on it: markup of their own is shown, never obeyed.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import bleach  # type: ignore[import-untyped] # it has no annotations
import nbformat
from jinja2 import DictLoader
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from course import paths
from course.errors import CourseError
from course.grading import classroom, files

# Longer Markdown is shown as it is: rendering some of it takes time that grows with the square. Chapters' cells
# have 3,000 characters at most.
MOST_MARKDOWN = 10_000
# On formgrader's page MathJax would make a link of any address, and markup of any kind, from these.
MATH_MARKUP = re.compile(r"\\(?=(href|style|class|cssId)(?![a-zA-Z]))")
HEADING = re.compile(r"^#{1,6} .+$", re.MULTILINE)
TAGS = frozenset(
    "p h1 h2 h3 h4 h5 h6 ul ol li strong em del code pre blockquote hr br a table thead tbody tr th td div span".split()
)
ATTRIBUTES = {"a": ["href", "title"], "div": ["class"], "span": ["class"], "ol": ["start"]}
# nbgrader's page calls this in its head, where it would load MathJax from elsewhere.
HEAD = """{% macro mathjax() %}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
{% endmacro %}"""
STYLE = """
.verdict ul { list-style: none; padding-left: 0.5em; }
.verdict li { margin: 0.3em 0; }
.verdict li div { margin-left: 1.4em; }
.verdict li.passed { color: #1b6e3c; }
.verdict li.failed { color: #9b1c1c; }
.verdict li.failed div { color: #222; }
"""


def markdown_to_html(source: str) -> str:
    """Markdown as HTML; markup inside it is shown as text, and only harmless links are links."""
    source = MATH_MARKUP.sub("\\\\\N{ZERO WIDTH SPACE}", source)
    if len(source) > MOST_MARKDOWN:
        return _as_it_is(source)
    try:
        rendered = MarkdownWithMath(renderer=IPythonRenderer(escape=True, exclude_anchor_links=True)).render(source)
    except RecursionError:
        return _as_it_is(source)
    return bleach.clean(rendered, tags=TAGS, attributes=ATTRIBUTES, protocols={"http", "https", "mailto"}, strip=True)


def _as_it_is(source: str) -> str:
    return f"<pre>{html.escape(source)}</pre>"


class FeedbackExporter(HTMLExporter):
    """nbgrader's feedback page with nothing from another machine, and with no script."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, extra_loaders=[DictLoader({"mathjax.html.j2": HEAD})])
        self.sanitize_html = True
        self.embed_images = False  # embedding would read any file that a student's Markdown names


class OwnWork(NbGraderPreprocessor):
    """Leaves the student's answers, the checks and what the student added; of the chapter's text, the headings."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Take the chapter's own cells out of the notebook."""
        given = _released(resources["nbgrader"]["assignment"])
        kept = []
        for cell in nb.cells:
            graded = "nbgrader" in cell.metadata
            if cell.cell_type == "code":  # the bare number stands in the cell's heading already
                cell.outputs = [output for output in cell.outputs if output.output_type == "display_data"]
            if not graded and cell.source.strip() in given:
                cell.source = "\n\n".join(HEADING.findall(cell.source)) if cell.cell_type == "markdown" else ""
            if graded or cell.source.strip():
                kept.append(cell)
        nb.cells = kept
        return nb, resources


class Style(NbGraderPreprocessor):
    """Adds this page's style after nbconvert's own."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Append the style."""
        resources["inlining"]["css"].append(STYLE)
        return nb, resources


def _released(chapter_id: str) -> set[str]:
    path = paths.CLASSROOM / "release" / chapter_id / f"{chapter_id}.ipynb"
    if not path.is_file():
        return set()
    return {cell.source.strip() for cell in nbformat.read(path, as_version=4).cells}


def feedback(chapter_ids: list[str] | None = None, students: list[str] | None = None) -> list[Path]:
    """Write the feedback pages of graded submissions into `classroom/feedback`.

    Raises:
        CourseError: nothing is graded yet, or a page could not be written.
    """
    from rich.console import Console
    from rich.progress import track

    chosen = classroom.resolve(chapter_ids, "autograded")
    work = [
        (chapter.id, student) for chapter in chosen for student, _ in classroom.choose(chapter, students, "autograded")
    ]
    everyone = {student for chapter in chosen for student, _ in classroom.submissions(chapter, "autograded")}
    classroom.check_students(students, everyone, "autograded")
    if not work:
        raise CourseError(f"nothing is graded yet in {paths.CLASSROOM / 'autograded'}; run `course grade` first")
    files.check_writable(paths.CLASSROOM / "feedback")
    console = Console()
    api = classroom.api()
    written, failed = [], []
    for chapter_id, student in track(work, description="Feedback", console=console):
        result = api.generate_feedback(chapter_id, student, force=True)
        page = paths.CLASSROOM / "feedback" / student / chapter_id / f"{chapter_id}.html"
        if result["success"] and page.is_file():
            written.append(page)
        else:
            failed.append(f"{student}, {chapter_id}: {classroom.why(result)}")
    for line in failed:
        console.print(line, style="red", markup=False, highlight=False)
    count = f"{len(written)} feedback page{'' if len(written) == 1 else 's'}"
    console.print(f"{count} in {paths.CLASSROOM / 'feedback'}", markup=False, highlight=False)
    if failed:
        raise CourseError(f"{len(failed)} of {len(work)} feedback pages could not be written; the reasons are above")
    return written
