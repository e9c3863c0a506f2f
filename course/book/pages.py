"""What the extension adds to chapter pages: the notebook, the points, and, if asked, the solutions."""

from __future__ import annotations

import ast
import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from course import chapters
from course.book import failures
from course.errors import CourseError

EXERCISE_HEADING = re.compile(r"^#+\s*Exercise\b.*?(\d+)\s*minutes", re.M)


def chapter_path(app: Sphinx, docname: str) -> Path | None:
    """The chapter's file if this page is a chapter, else None."""
    path = Path(app.srcdir) / f"{docname}.md"
    folder, _, name = docname.rpartition("/")
    return path if folder == "chapters" and chapters.FILE_NAME.fullmatch(f"{name}.md") else None


def add_chapter_line(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Under the title: number, exercises, points, minutes, and the notebook to download."""
    path = chapter_path(app, docname)
    section = next(iter(doctree.findall(nodes.section)), None)
    if path is None or section is None or app.builder.format != "html":
        return
    chapter = chapters.load(path)
    write_notebook(app, docname, chapter)
    minutes = sum(int(found) for found in EXERCISE_HEADING.findall(path.read_text(encoding="utf-8")))
    count = len(chapter.exercises)
    facts = [f"{count} exercise{'s' if count != 1 else ''}", f"{chapter.points:g} points"] if count else []
    if minutes:
        facts.append(f"about {minutes} minutes of building")
    link = f'<a href="{_to_root(docname)}_sources/{docname}.ipynb" download>{escape(chapter.id)}.ipynb</a>'
    line = " · ".join([f"Chapter {chapter.number:02d}", *facts, f"notebook: {link}"])
    section.insert(1, nodes.raw("", f'<p class="course-chapter-line">{line}</p>', format="html"))


def write_notebook(app: Sphinx, docname: str, chapter: chapters.Chapter) -> None:
    """Write the student's notebook beside the page's source, where the download button looks."""
    from course.release.notebooks import student_notebook, to_bytes

    target = Path(app.outdir) / "_sources" / f"{docname}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.write_bytes(to_bytes(student_notebook(chapter)))
    except CourseError as error:
        raise failures.Unreleasable(str(error)) from None


def _to_root(docname: str) -> str:
    return "../" * docname.count("/")


def offer_notebook(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let the theme's download button offer the student's notebook."""
    if chapter_path(app, pagename):
        context["ipynb_source"] = f"{pagename}.ipynb"


def add_solutions(app: Sphinx, doctree: nodes.document) -> None:
    """With solutions: fold each reference solution under its exercise's checks."""
    path = chapter_path(app, app.env.docname)
    if path is None or not app.config.course_with_solutions:
        return
    chapter = chapters.load(path)
    definitions = _definitions(Path(app.srcdir) / "solutions" / f"{chapter.name}.py")
    exercises = {exercise.check_id: exercise for exercise in chapter.exercises}
    for cell in list(doctree.findall(nodes.container)):
        grade_id = (cell.get("cell_metadata") or {}).get("nbgrader", {}).get("grade_id")
        if cell.get("nb_element") != "cell_code" or grade_id not in exercises:
            continue
        source = "\n\n\n".join(definitions[name] for name in exercises[grade_id].names)
        _insert_after(cell, _folded(source))


def _definitions(path: Path) -> dict[str, str]:
    """Source of each top-level function and class of a reference module."""
    text = path.read_text(encoding="utf-8")
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return found


def _folded(source: str) -> list[nodes.Node]:
    opening = '<details class="course-solution"><summary>Reference solution</summary>'
    return [
        nodes.raw("", opening, format="html"),
        nodes.literal_block(source, source, language="python"),
        nodes.raw("", "</details>", format="html"),
    ]


def _insert_after(node: nodes.Element, added: list[nodes.Node]) -> None:
    parent = node.parent
    position = parent.index(node) + 1
    parent.insert(position, added)
