"""Every chapter keeps the conventions, and its hidden tests judge rightly."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from course import chapters, paths
from course.chapters import Chapter, Exercise
from course.grading import hidden, specimens, trial
from course.grading.verdict import judge_cells

ALL = chapters.all_chapters()
EXERCISES = [pytest.param(c, e, id=f"{c.id}-{e.id}") for c in ALL for e in c.exercises]

per_chapter = pytest.mark.parametrize("chapter", ALL, ids=lambda chapter: chapter.id)
per_exercise = pytest.mark.parametrize(("chapter", "exercise"), EXERCISES)


def test_the_chapters_are_numbered_without_a_gap() -> None:
    numbers = [chapter.number for chapter in ALL]
    assert numbers == list(range(len(ALL)))
    assert len({chapter.name for chapter in ALL}) == len(ALL)


@per_chapter
def test_a_chapter_has_its_four_views(chapter: Chapter) -> None:
    for folder in ("solutions", "tests/mutants", "tests/variants"):
        assert (paths.ROOT / folder / f"{chapter.name}.py").is_file()
    assert (paths.TESTS / "hidden" / f"test_{chapter.name}.py").is_file()
    assert chapter.exercises


@per_chapter
def test_every_cell_with_a_grade_id_is_an_exercise_or_its_check(chapter: Chapter) -> None:
    ids = [cell.metadata.nbgrader["grade_id"] for cell in chapter.notebook().cells if "nbgrader" in cell.metadata]
    assert Counter(ids) == Counter([i for e in chapter.exercises for i in (e.id, e.check_id)])


@per_exercise
def test_stub_and_reference_agree_in_name_signature_and_docstring(chapter: Chapter, exercise: Exercise) -> None:
    reference = specimens.reference_definitions(chapter.name)
    for node in ast.parse(exercise.source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert node.name in reference, f"solutions/{chapter.name}.py lacks {node.name}"
            answer = ast.parse(reference[node.name]).body[0]
            assert public_face(node) == public_face(answer)


def public_face(node: ast.AST) -> list[tuple[str, str, str | None]]:
    """Name, signature and docstring of a definition and of its public methods."""
    found = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.ClassDef):
            found.append((inner.name, ", ".join(map(ast.unparse, inner.bases)), ast.get_docstring(inner)))
        elif isinstance(inner, ast.FunctionDef) and (inner is node or not inner.name.startswith("_") or _dunder(inner)):
            returns = ast.unparse(inner.returns) if inner.returns else ""
            found.append((inner.name, f"{ast.unparse(inner.args)} -> {returns}", ast.get_docstring(inner)))
    return found


def _dunder(node: ast.FunctionDef) -> bool:
    return node.name.startswith("__") and node.name.endswith("__")


@per_exercise
def test_an_exercise_has_enough_mutants_and_variants(chapter: Chapter, exercise: Exercise) -> None:
    mutants = [one for one in specimens.mutants(chapter.name) if one.exercise == exercise.id]
    variants = [one for one in specimens.variants(chapter.name) if one.exercise == exercise.id]
    assert len(mutants) >= 6
    assert len(variants) >= 2
    for found in (mutants, variants):
        assert len({one.label for one in found}) == len(found)
        assert len({ast.dump(ast.parse(one.source)) for one in found}) == len(found)
    says = {test.says for test in hidden.load(chapter.name) if test.exercise == exercise.id}
    assert {one.caught_by for one in mutants} <= says


@per_chapter
def test_every_hidden_test_belongs_to_an_exercise_and_gives_a_hint(chapter: Chapter) -> None:
    for test in hidden.load(chapter.name):
        assert test.exercise in {exercise.id for exercise in chapter.exercises}
        assert len(test.hint) >= 20
        assert test.weight > 0


@per_exercise
@pytest.mark.parametrize(
    "body",
    [
        "return None",
        "return 0",
        "return 'text'",
        "return {first}",
        "return torch.zeros(3, 5)",
        "return torch.rand_like({first})",
        "raise ValueError(str(locals()))",
    ],
)
def test_an_answer_that_does_no_work_earns_nothing(chapter: Chapter, exercise: Exercise, body: str) -> None:
    answers = {**specimens.reference_cells(chapter.name), exercise.id: idle(exercise.source, body)}
    (judged,) = judge_cells(chapter.id, answers, [], seed=3, only=exercise.id, wall=False).exercises
    assert judged.earned == 0, [one.says for one in judged.properties if one.passed]


def idle(stub: str, body: str) -> str:
    """The stub with this body in every function; `{first}` stands for the first argument."""
    tree = ast.parse("import torch\n" + stub)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            text = body.format(first=names[0] if names else "self")
            node.body = ast.parse("super().__init__()" if node.name == "__init__" else text).body
    return ast.unparse(tree)


@per_chapter
@pytest.mark.parametrize("wall", [False, True], ids=["in process", "behind the wall"])
def test_the_hidden_tests_stand_their_trial(chapter: Chapter, wall: bool) -> None:
    """The reference and every variant earn all, the stub nothing, and every mutant is caught by name."""
    assert trial.run(chapter, seeds=1, wall=wall) == []
