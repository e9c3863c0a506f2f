"""The leak check: what students get holds no line of a solution, hidden test, mutant or variant.

Lines are compared with all white space taken out, so that a line that was indented anew, wrapped or
put into a notebook's JSON is still found. A line that stands in the public sources as well (a stub's
signature, a docstring, an example of the chapter) is no secret.
"""

from __future__ import annotations

import ast
import base64
import binascii
import bisect
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course import chapters, definitions, paths
from course.chapters import Chapter
from course.errors import CourseError

SHORTEST = 16  # characters without white space; anything shorter could stand anywhere
WHOLE_BODY = 3  # so many telling lines of one definition, all in one chapter, give it away
TEXT_SUFFIXES = {".py", ".md", ".txt", ".toml", ".typed", ""}
JSON_SUFFIXES = {".ipynb", ".json"}
BASE64 = re.compile(r"[A-Za-z0-9+/\s]{40,}={0,2}\s*")


@dataclass(frozen=True)
class Unit:
    """A piece of text that students get, and where it stands in its file."""

    file: str
    place: str  # "" for the file itself, else the cell and the part of it
    text: str


@dataclass(frozen=True)
class Secret:
    """A line that students must not get, without white space, and where it comes from."""

    compact: str
    origin: str


class Needles:
    """Many strings looked for in one pass over a text."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self.by_start: dict[str, list[Secret]] = {}
        for secret in secrets:
            self.by_start.setdefault(secret.compact[:SHORTEST], []).append(secret)

    def find(self, compact: str) -> Iterator[tuple[int, Secret]]:
        """Every secret in a text without white space, with its position."""
        for position in range(len(compact) - SHORTEST + 1):
            for secret in self.by_start.get(compact[position : position + SHORTEST], ()):
                if compact.startswith(secret.compact, position):
                    yield position, secret


def secret_files() -> list[Path]:
    """The files of which no line may reach a student."""
    folders = [paths.SOLUTIONS, *(paths.TESTS / kind for kind in ("hidden", "mutants", "variants"))]
    return [file for folder in folders for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]


def public_files() -> list[Path]:
    """The sources that everybody may read and that a workspace is made of."""
    modules = set(chapters.names())
    given = [file for file in sorted(paths.LIB.rglob("*.py")) if file.stem not in modules]
    tooling = sorted((paths.ROOT / "course").glob("*.py"))
    return [*sorted(paths.CHAPTERS.glob("*.md")), *sorted(paths.ROOT.glob("*.md")), *tooling, *given]


def secrets() -> list[Secret]:
    """The telling lines of the secret files that stand in no public file."""
    found: dict[str, Secret] = {}
    for file in secret_files():
        text = file.read_text(encoding="utf-8")
        for number, (line, code) in enumerate(zip(text.splitlines(), _without_comments(text), strict=True), 1):
            origin = f"{file.relative_to(paths.ROOT).as_posix()}, line {number}"
            for compact in {_compact(line), _compact(code)}:
                if len(compact) >= SHORTEST and not re.match(r"\s*(from|import)\s", line):
                    found.setdefault(compact, Secret(compact, origin))
    needles = Needles(found.values())
    for file in public_files():
        for _, secret in needles.find(_compact(file.read_text(encoding="utf-8"))):
            found.pop(secret.compact, None)
    return list(found.values())


def check_folder(folder: Path) -> None:
    """Prove that no file under the folder holds a secret line, or a file that cannot be read.

    Raises:
        CourseError: names the file, the cell and the line of the first leak.
    """
    needles = Needles(secrets())
    for file in sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()):
        name = file.relative_to(folder).as_posix()
        if file.is_symlink():
            raise CourseError(f"{name} is a link out of the release: remove it from {folder}")
        check_bytes(name, file.read_bytes(), needles)


def check_bytes(name: str, content: bytes, needles: Needles | None = None) -> None:
    """The same for one file that students are about to get."""
    needles = Needles(secrets()) if needles is None else needles
    for unit in units(name, content):
        for position, secret in needles.find(_compact(unit.text)):
            place = f"{unit.file}{', ' if unit.place else ''}{unit.place}, line {_line(unit.text, position)}"
            raise CourseError(
                f"{place} would give students {secret.origin}: take it out of the source it comes from, "
                "then release again; nothing was handed out"
            )


def check_chapter(chapter: Chapter) -> None:
    """Prove that a chapter's exercises are unsolved, and that its text spells out no whole solution."""
    for exercise in chapter.exercises:
        for node in ast.parse(exercise.source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not definitions.is_stub(node):
                raise CourseError(
                    f"{chapter.path.name}: the exercise {exercise.id!r} ships {node.name} already solved; "
                    "leave `raise NotImplementedError` in it"
                )
    text = chapter.path.read_text(encoding="utf-8")
    compact = _compact(text)
    for name, lines in _bodies(paths.SOLUTIONS / f"{chapter.name}.py").items():
        if len(lines) >= WHOLE_BODY and all(line in compact for line in lines):
            where = _line(text, compact.index(lines[-1]))
            raise CourseError(
                f"{chapter.path.name}, line {where}: the chapter spells out the whole solution of {name}; "
                "leave some of it out"
            )


def _bodies(path: Path) -> dict[str, list[str]]:
    """The telling lines of each definition of a reference module, without docstrings and signatures."""
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            kinds = (ast.FunctionDef, ast.ClassDef)
            public = {n for inner in ast.walk(node) if isinstance(inner, kinds) for n in _public_lines(inner)}
            body = [
                _compact(line)
                for number, line in enumerate(_without_comments(text), 1)
                if node.lineno <= number <= (node.end_lineno or 0) and number not in public
            ]
            found[node.name] = [line for line in body if len(line) >= SHORTEST]
    return found


def _without_comments(text: str) -> list[str]:
    """The lines of a Python source without their comments."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return lines


def _public_lines(node: ast.FunctionDef | ast.ClassDef) -> set[int]:
    """The lines of a definition's signature and docstring, which the stub shows as well."""
    first = node.body[0]
    lines = set(range(node.lineno, first.lineno))
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def units(name: str, content: bytes) -> Iterator[Unit]:
    """The texts in a file.

    Raises:
        CourseError: the file is no text of a kind that a release holds.
    """
    suffix = Path(name).suffix
    if suffix not in TEXT_SUFFIXES | JSON_SUFFIXES:
        raise CourseError(f"{name} has no place in a release (what it holds cannot be read): remove it")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise CourseError(f"{name} has no place in a release: it is not UTF-8 text; remove it") from None
    if suffix not in JSON_SUFFIXES:
        yield Unit(name, "", text)
        return
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise CourseError(f"{name} is not valid JSON (line {error.lineno}): make it again") from None
    for place, value in _strings(data, ""):
        yield Unit(name, place, value)


def _strings(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every text in a JSON value, with its place; lists of lines are one text; base64 is opened."""
    if isinstance(value, str):
        yield place, value
        if BASE64.fullmatch(value):
            try:
                yield f"{place} (base64)", base64.b64decode(value).decode("utf-8", errors="replace")
            except (binascii.Error, ValueError):
                return
    elif isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            yield place, "".join(value if value[0].endswith("\n") else [item + "\n" for item in value])
            return
        for number, item in enumerate(value):
            yield from _strings(item, f"cell {number + 1}" if place == "cells" else f"{place} {number + 1}".strip())
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{place} {key}".strip(), key
            yield from _strings(item, f"{place} {key}".strip())


def _compact(text: str) -> str:
    return "".join(text.split())


def _line(text: str, position: int) -> int:
    """The line of a text on which this character stands, counted without white space."""
    ends: list[int] = []
    for line in text.splitlines():
        ends.append((ends[-1] if ends else 0) + len(_compact(line)))
    return bisect.bisect_right(ends, position) + 1
