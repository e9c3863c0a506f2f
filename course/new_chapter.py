"""`course new-chapter`: a new chapter's files, from templates that pass the tests of every chapter.

The templates teach a small working exercise, a weighted mean. Replace it piece by piece: at every
step the chapter can be built, released and graded.
"""

from __future__ import annotations

import json
import keyword
import os
import re
from pathlib import Path

from course import chapters, paths
from course.errors import CourseError

TEMPLATES = Path(__file__).parent / "templates"
TOC = "_toc.yml"


def create(number: int, name: str, title: str) -> list[Path]:
    """Write the chapter's files and its entry in the table of contents; return what was written.

    Raises:
        CourseError: the name cannot be a module's, or the number, the name or a file is taken.
    """
    _require_free(number, name)
    if not title.strip() or "\n" in title:
        raise CourseError("the title must be one line of text: course new-chapter 03 some_name 'Some title'")
    texts = {path: _fill(template, number, name, title.strip()) for path, template in _targets(number, name).items()}
    taken = [path.relative_to(paths.ROOT).as_posix() for path in texts if path.exists()]
    if taken:
        raise CourseError(
            f"nothing was written: {', '.join(taken)} is there already; choose another name or move it away"
        )
    written: list[Path] = []
    try:
        for path, text in texts.items():
            written.append(path)
            _write_new(path, text)
        written.append(_add_to_contents(number, name, title.strip()))
    except OSError:
        for path in written:
            if path in texts:
                path.unlink(missing_ok=True)  # all the files or none
        raise
    return written


def _require_free(number: int, name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise CourseError(
            f"{name!r} cannot be a module's name: use lower-case letters, digits and underscores, such as moe_router"
        )
    for path in chapters.files():
        if path.stem[3:] == name or int(path.stem[:2]) == number:
            raise CourseError(
                f"nothing was written: chapter {path.stem} is there already; choose another number and name"
            )


def _targets(number: int, name: str) -> dict[Path, str]:
    return {
        paths.CHAPTERS / f"{number:02d}_{name}.md": "chapter.md.txt",
        paths.SOLUTIONS / f"{name}.py": "solution.py.txt",
        paths.TESTS / "hidden" / f"test_{name}.py": "hidden.py.txt",
        paths.TESTS / "mutants" / f"{name}.py": "mutants.py.txt",
        paths.TESTS / "variants" / f"{name}.py": "variants.py.txt",
    }


def _fill(template: str, number: int, name: str, title: str) -> str:
    stub = (TEMPLATES / "stub.txt").read_text(encoding="utf-8").rstrip()
    values = {
        "STUB": stub,
        "SIGNATURE": stub.splitlines()[0],
        "NAME": name,
        "NUMBER": f"{number:02d}",
        "TITLE": title,
    }
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _write_new(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)


def _add_to_contents(number: int, name: str, title: str) -> Path:
    """Put the chapter into the table of contents, after the last one with a smaller number."""
    path = paths.ROOT / TOC
    lines = path.read_text(encoding="utf-8").splitlines()
    entry = re.compile(r"(\s*)- file: chapters/(\d\d)_")
    found = [(index, match) for index, line in enumerate(lines) if (match := entry.match(line))]
    if not found:
        raise CourseError(f"{TOC} lists no chapter yet: add `- file: chapters/{number:02d}_{name}` to it by hand")
    before = [(index, match) for index, match in found if int(match.group(2)) < number]
    index, match = before[-1] if before else (found[0][0] - 1, found[0][1])
    if before and lines[index + 1 : index + 2] and lines[index + 1].lstrip().startswith("title:"):
        index += 1
    numbered = json.dumps(f"{number:02d} · {title}", ensure_ascii=False)
    lines[index + 1 : index + 1] = [
        f"{match.group(1)}- file: chapters/{number:02d}_{name}",
        f"{match.group(1)}  title: {numbered}",
    ]
    temporary = path.with_name(f".{TOC}.{os.getpid()}")
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    temporary.replace(path)
    return path
