"""`course release`: the sources become notebooks, nbgrader's assignments, and a student workspace.

Everything is checked before anything is handed out. A run that is broken off leaves the earlier
release usable, and the next run carries on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import track

from course import chapters, paths
from course.chapters import Chapter
from course.errors import CourseError
from course.grading import classroom
from course.release import leaks, notebooks, workspace


def release(chapter_ids: list[str] | None = None) -> Path:
    """Release these chapters (all of them if none is given) and rebuild the student workspace.

    The workspace holds every chapter released so far. Returns its folder; the zip lies beside it.

    Raises:
        CourseError: something would leak, a chapter is not fit for release, or nbgrader refused it.
    """
    wanted = [chapters.find(key) for key in chapter_ids] if chapter_ids else chapters.all_chapters()
    if not wanted:
        raise CourseError(f"there is no chapter in {paths.CHAPTERS}: add one, for example with `course new-chapter`")
    # A run that was killed may have left a chapter between source and release: it goes along.
    wanted += [chapter for chapter in chapters.all_chapters() if chapter not in wanted and _is_half_released(chapter)]
    needles = leaks.Needles(leaks.secrets())
    for chapter in _progress(wanted, "Making the notebooks"):
        content = notebooks.to_bytes(notebooks.student_notebook(chapter))
        leaks.check_chapter(chapter)
        leaks.check_bytes(f"{chapter.id}.ipynb", content, needles)
        workspace.write_file(paths.CLASSROOM / "source" / chapter.id / f"{chapter.id}.ipynb", content)
    _generate_assignments(wanted)
    released = _released()
    files = workspace.files(released)
    workspace.require_unsolved(files)
    for name, content in files.items():
        leaks.check_bytes(name, content, needles)
    folder = paths.CLASSROOM / "workspace"
    kept = workspace.update_folder(files, folder)
    workspace.write_zip(files, paths.CLASSROOM / "workspace.zip")
    if kept:
        print(
            f"Kept as they are, since someone changed them: {', '.join(kept)}. A newer version, if there is one, "
            f"is beside each as NAME.new",
            file=sys.stderr,
        )
    return folder


def _is_half_released(chapter: Chapter) -> bool:
    source, made = (paths.CLASSROOM / step / chapter.id / f"{chapter.id}.ipynb" for step in ("source", "release"))
    return source.is_file() and not made.is_file()


def _progress(items: list[Chapter], what: str) -> Iterator[Chapter]:
    console = Console(stderr=True)
    yield from track(items, description=what, console=console, transient=True, disable=not console.is_terminal)


def _generate_assignments(wanted: list[Chapter]) -> None:
    """nbgrader's own `generate_assignment`: checksums, locks, and the gradebook's entries."""
    api = classroom.api()
    for chapter in _progress(wanted, "Releasing"):
        result = api.generate_assignment(chapter.id, force=True, create=True)
        if not result["success"]:
            raise CourseError(f"nbgrader did not release {chapter.id}: {classroom.why(result)}")
        notebook = paths.CLASSROOM / "release" / chapter.id / f"{chapter.id}.ipynb"
        if not notebook.is_file():
            raise CourseError(f"nbgrader wrote no {notebook}: look at GenerateAssignment in nbgrader_config.py")
        # nbgrader's writer leaves the system's line ends and no last newline; one form everywhere.
        workspace.write_file(notebook, notebooks.to_bytes(chapters.read_notebook(notebook)))
        leaks.check_folder(notebook.parent)


def _released() -> dict[str, bytes]:
    """The released notebook of every chapter that has one."""
    found = {}
    for chapter in chapters.all_chapters():
        notebook = paths.CLASSROOM / "release" / chapter.id / f"{chapter.id}.ipynb"
        if notebook.is_file():
            found[chapter.id] = notebook.read_bytes()
    return found
