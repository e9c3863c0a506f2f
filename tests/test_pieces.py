"""A piece that a student has not written is named with its chapter, wherever the model comes upon it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from course import chapters, definitions, paths
from course.grading import specimens
from course.release import workspace
from lib import pieces

# Run in each workspace in turn, by one Python that knows nothing of the repository.
SCRIPT = """\
import json, sys
import torch

def attempt(fields):
    from lib.model import Config, LanguageModel
    try:
        model = LanguageModel(Config(**{"d_model": 12, "n_heads": 3, "n_layers": 1, **fields}))
        return str(model(torch.ones(1, 2).long()))
    except Exception as error:
        return [type(error).__name__, str(error)]

for folder, plan in json.loads(sys.argv[1]):
    sys.path[0] = folder
    for name in [name for name in sys.modules if name.split(".")[0] == "lib"]:
        del sys.modules[name]
    print(json.dumps(attempt(plan)))
"""


@dataclass(frozen=True)
class Case:
    """What a student has not written, what they ask for, and the first words of the answer ("" for a model)."""

    answer: str
    plan: dict[str, Any] = field(default_factory=dict)
    missing_files: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()  # cells that were never run


CASES = {
    "all written": Case(""),
    "nothing written": Case("LanguageModel needs TokenEmbedding of chapter 00", missing_files=tuple(chapters.names())),
    "a file": Case("LanguageModel needs softmax of chapter 01", missing_files=("softmax",)),
    "the last file": Case("LanguageModel needs TransformerBlock of chapter 08", missing_files=("transformer",)),
    "a class that is a stub": Case(
        "Config(norm='rmsnorm') needs RMSNorm of chapter 05", {"norm": "rmsnorm"}, stubs=("RMSNorm",)
    ),
    "a class that was never run": Case(
        "Config(norm='rmsnorm') needs RMSNorm of chapter 05", {"norm": "rmsnorm"}, absent=("RMSNorm",)
    ),
    "a stub that this plan does without": Case("", stubs=("RMSNorm", "SwiGLU", "sinusoidal_encoding")),
    "a class that only another chapter asks for": Case(
        "LanguageModel needs RMSNorm of chapter 05", {"norm": "layernorm"}, absent=("RMSNorm",)
    ),
    "a mask": Case("Config(causal=True) needs causal_mask of chapter 02", stubs=("causal_mask",)),
    "an encoder's mask": Case("", {"causal": False}, stubs=("causal_mask",)),
    "a table of positions": Case(
        "Config(positions='learned') needs LearnedPositionalEncoding of chapter 04",
        stubs=("LearnedPositionalEncoding",),
    ),
    "sines": Case(
        "Config(positions='sinusoidal') needs sinusoidal_encoding of chapter 04",
        {"positions": "sinusoidal"},
        stubs=("sinusoidal_encoding",),
    ),
    "an activation": Case("Config(activation='gelu') needs gelu of chapter 07", stubs=("gelu",)),
    "another activation": Case("", {"activation": "relu"}, stubs=("gelu",)),
    "a gate": Case(
        "Config(feed_forward='swiglu') needs SwiGLU of chapter 07", {"feed_forward": "swiglu"}, stubs=("SwiGLU",)
    ),
    "the whole but not its blocks": Case("LanguageModel needs Transformer of chapter 08", stubs=("Transformer",)),
    "a helper within a piece": Case("LanguageModel needs split_heads of chapter 03", stubs=("split_heads",)),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a student in each case gets: the logits' text, or the kind and the words of the error."""
    files = workspace.files(dict.fromkeys(chapters.names().values(), b"{}"))
    asked = []
    for number, case in enumerate(CASES.values()):
        folder = tmp_path_factory.mktemp(f"student{number}")
        for name, content in files.items():
            if name.startswith("lib/") or name.endswith(".ipynb"):
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)
        for name in chapters.names().keys() - set(case.missing_files):
            text = module(name, case.stubs, case.absent)
            (folder / "lib" / f"{name}.py").write_text(text, encoding="utf-8")
        asked.append((str(folder), case.plan))
    environment = {key: value for key, value in os.environ.items() if key not in (paths.REFERENCE_MODE, "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(asked)],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines()), strict=True))


def module(name: str, stubs: Collection[str], absent: Collection[str]) -> str:
    """A student's module of a chapter: some cells answered, some run as they came, some never run."""
    text, answered = "", specimens.reference_cells(name)
    for exercise in chapters.find(name).exercises:
        if not set(exercise.names) & set(absent):
            cell = exercise.source if set(exercise.names) & set(stubs) else answered[exercise.id]
            text = definitions.merge(text, cell, "A student's.").text
    return text


@pytest.mark.parametrize("name", CASES)
def test_what_is_missing_is_named_with_its_chapter(name: str, answers: dict[str, Any]) -> None:
    case, answer = CASES[name], answers[name]
    if not case.answer:
        assert isinstance(answer, str) and answer.startswith("tensor("), answer
        return
    number = case.answer[-2:]
    notebook = next(f"{chapter_id}.ipynb" for chapter_id in chapters.names().values() if chapter_id[:2] == number)
    assert answer == ["MissingPiece", f"{case.answer}: finish {notebook} first"]


def test_an_error_of_torchs_own_passes_unchanged() -> None:
    with pytest.raises(NotImplementedError) as caught, pieces.naming_the_chapter("this test"):
        raise NotImplementedError("Could not run 'aten::sort' with arguments from the 'MPS' backend")
    assert not isinstance(caught.value, pieces.MissingPiece)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"), pieces.naming_the_chapter("this test"):
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401 (its absence is the test)


def test_in_the_repository_the_chapters_source_is_named() -> None:
    page = next(path.name for path in chapters.files() if path.stem == "01_softmax")
    with pytest.raises(pieces.MissingPiece) as caught:
        pieces.take("softmax", "no_such_function", "This test")
    assert str(caught.value) == f"This test needs no_such_function of chapter 01: finish {page} first"
    with pytest.raises(pieces.MissingPiece) as caught:
        pieces.take("no_such_chapter", "anything", "This test")
    assert str(caught.value) == "This test needs anything of lib/no_such_chapter.py: write it first"
    assert Path(pieces.ROOT) == paths.ROOT
