"""The chapters as they were handed out: setup cells, stubs, visible checks and points.

A student may edit any cell of a notebook. What a check says and what it is worth is read from
`course/shipped/`, which the release writes into the workspace, or, in the repository, from the
chapter's own source.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course import chapters, paths
from course.chapters import Chapter, Exercise

FOLDER = Path(__file__).resolve().parent / "shipped"


@dataclass(frozen=True)
class Shipped:
    """One chapter as handed out."""

    id: str
    title: str
    setup: str  # the source of the cells tagged `setup`
    exercises: tuple[Exercise, ...]

    @property
    def number(self) -> int:
        """The chapter's number in the book."""
        return int(self.id[:2])

    @property
    def name(self) -> str:
        """The chapter's module in `lib`."""
        return self.id[3:]

    @property
    def points(self) -> float:
        """What the visible checks carry in all."""
        return sum(exercise.points for exercise in self.exercises)


def from_chapter(chapter: Chapter) -> Shipped:
    """A chapter's source as it is handed out."""
    cells = [cell for cell in chapter.notebook().cells if cell.cell_type == "code"]
    setup = "\n\n".join(cell.source for cell in cells if "setup" in cell.metadata.get("tags", []))
    return Shipped(chapter.id, chapter.title, setup, chapter.exercises)


def to_json(shipped: Shipped) -> str:
    """The text of a chapter's file in `course/shipped/`."""
    return json.dumps(asdict(shipped), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def from_json(text: str) -> Shipped:
    """What `to_json` wrote."""
    data: dict[str, Any] = json.loads(text)
    exercises = tuple(Exercise(**exercise) for exercise in data.pop("exercises"))
    return Shipped(**data, exercises=exercises)


def ids() -> list[str]:
    """The chapters that are here, in reading order."""
    if paths.is_workspace():
        return sorted(file.stem for file in FOLDER.glob("*.json"))
    return [file.stem for file in chapters.files()]


def load(chapter_id: str) -> Shipped:
    """One chapter as handed out."""
    if paths.is_workspace():
        return from_json((FOLDER / f"{chapter_id}.json").read_text(encoding="utf-8"))
    return from_chapter(chapters.load(paths.CHAPTERS / f"{chapter_id}.md"))


def find(key: str) -> Shipped:
    """The chapter with this number (`1`, `01`), name (`softmax`) or id (`01_softmax`).

    Raises:
        UnknownChapter: there is none; the message lists those that exist.
    """
    wanted = key.strip().removesuffix(".md").removesuffix(".ipynb")
    for known in ids():
        if wanted in (known, known[3:], known[:2]) or (wanted.isdecimal() and int(wanted) == int(known[:2])):
            return load(known)
    raise chapters.UnknownChapter(f"there is no chapter {key!r}; the chapters are: {', '.join(ids()) or 'none yet'}")
