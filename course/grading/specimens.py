"""Mutants and variants: wrong and right implementations that judge the hidden tests.

`tests/mutants/<chapter>.py` and `tests/variants/<chapter>.py` are read, never run here:

    @mutant("no shift by the maximum", caught_by="scores near 1,000 do not overflow")
    def softmax(x: Tensor, dim: int = -1) -> Tensor:
        ...

    edit("SelfAttention", "k_proj used for the values", old="self.v_proj(x)", new="self.k_proj(x)",
         caught_by="the values come from v_proj")

A decorated definition stands in for the reference's definition of that name; an `edit` replaces
text in it. The imports at the top of the file go with every specimen of that file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from course import chapters, definitions, paths

T = TypeVar("T")


def mutant(mistake: str, *, caught_by: str) -> Callable[[T], T]:
    """Mark a wrong implementation: the mistake in words, and the property that must catch it."""
    return lambda definition: definition


def variant(why: str) -> Callable[[T], T]:
    """Mark a right implementation that differs from the reference, and how."""
    return lambda definition: definition


def edit(name: str, mistake: str, *, old: str, new: str, caught_by: str) -> None:
    """A mutant made from the reference's definition of `name` by replacing `old` with `new`."""


@dataclass(frozen=True)
class Specimen:
    """One mutant or variant: the source of a definition that replaces the reference's."""

    chapter: str
    exercise: str
    name: str  # the function or class that it defines
    label: str  # the mistake, or how the variant differs
    source: str
    caught_by: str | None = None  # None for a variant


def mutants(chapter: str) -> list[Specimen]:
    """The mutants of the chapter with this name."""
    return _read_all(chapter, paths.TESTS / "mutants")


def variants(chapter: str) -> list[Specimen]:
    """The variants of the chapter with this name."""
    return _read_all(chapter, paths.TESTS / "variants")


def reference_definitions(chapter: str) -> dict[str, str]:
    """Source of each top-level function and class of the reference, by name."""
    text = (paths.SOLUTIONS / f"{chapter}.py").read_text(encoding="utf-8")
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: _segment(text, node) for node in ast.parse(text).body if isinstance(node, kinds)}


def reference_cells(chapter: str) -> dict[str, str]:
    """The reference's answer to each exercise, as a student would type it into the cell.

    What belongs to no exercise, such as a constant or a helper, goes with the first one.
    """
    text = (paths.SOLUTIONS / f"{chapter}.py").read_text(encoding="utf-8")
    source, _ = definitions.take_apart(text, keep_rest=True)
    exercises = chapters.find(chapter).exercises
    owner = {name: exercise.id for exercise in exercises for name in exercise.names}
    missing = set(owner) - {name for piece in source.pieces for name in piece.names}
    if missing:
        raise ValueError(f"solutions/{chapter}.py does not define {', '.join(sorted(missing))}")
    answers = {exercise.id: "\n".join(definitions.import_lines(source.imports)) for exercise in exercises}
    for piece in source.pieces:
        target = next((owner[name] for name in piece.names if name in owner), exercises[0].id)
        answers[target] += f"\n\n\n{piece.text}"
    return {key: answer + "\n" for key, answer in answers.items()}


def submission_cells(specimen: Specimen) -> dict[str, str]:
    """The answers of a student whose every exercise is right but for this specimen."""
    answers = reference_cells(specimen.chapter)
    original = reference_definitions(specimen.chapter)[specimen.name]
    body = answers[specimen.exercise]
    assert original in body
    answers[specimen.exercise] = body.replace(original, "").rstrip() + "\n\n\n" + specimen.source + "\n"
    return answers


def _segment(text: str, node: ast.FunctionDef | ast.ClassDef, skip_first_decorator: bool = False) -> str:
    decorators = node.decorator_list[1:] if skip_first_decorator else node.decorator_list
    start = decorators[0].lineno if decorators else node.lineno
    return "\n".join(text.splitlines()[start - 1 : node.end_lineno])


def _read_all(chapter: str, folder: Path) -> list[Specimen]:
    """Those of `<chapter>.py`; a chapter with many goes on in `<chapter>__<exercise>.py`."""
    more = sorted(folder.glob(f"{chapter}__*.py"))
    return [specimen for path in (folder / f"{chapter}.py", *more) for specimen in _read(chapter, path)]


def _read(chapter: str, path: Path) -> list[Specimen]:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    owner = {name: exercise.id for exercise in chapters.find(chapter).exercises for name in exercise.names}
    imports = "\n".join(
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and not (getattr(node, "module", None) or "").startswith(("course", "__future__"))
    )
    found: list[Specimen] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
            marker = node.decorator_list[0]
            assert isinstance(marker, ast.Call), f"{path}:{node.lineno}: mark it with @mutant(...) or @variant(...)"
            keywords = _keywords(marker)
            source = f"{imports}\n\n\n{_segment(text, node, skip_first_decorator=True)}\n"
            label = ast.literal_eval(marker.args[0])
            found.append(Specimen(chapter, owner[node.name], node.name, label, source, keywords.get("caught_by")))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            name, label = (ast.literal_eval(argument) for argument in call.args)
            keywords = _keywords(call)
            original = reference_definitions(chapter)[name]
            old = keywords["old"]
            assert old in original, f"{path}:{node.lineno}: the reference's {name} lacks {old!r}"
            source = f"{imports}\n\n\n{original.replace(keywords['old'], keywords['new'])}\n"
            found.append(Specimen(chapter, owner[name], name, label, source, keywords["caught_by"]))
    return found


def _keywords(call: ast.Call) -> dict[str, str]:
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
