"""Intake: hostile files are refused in one line, and hostile metadata neither stops nor earns anything."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbgrader.nbgraderformat import MetadataValidator

from course import chapters
from course.grading import intake, specimens
from course.grading.intake import Refused
from tests.classrooms import CHAPTER, blank, changed, graded_cell, perfect

SOFTMAX = chapters.find(CHAPTER)
ANSWERS = specimens.reference_cells("softmax")
NAME = f"{CHAPTER}.ipynb"


def take(data: bytes) -> intake.Submission:
    """Take in bytes; whatever comes out must satisfy nbgrader and come out the same the second time."""
    found = intake.parse(data, SOFTMAX)
    nbformat.validate(found.notebook)
    MetadataValidator().validate_nb(found.notebook)
    assert set(found.cells) == {exercise.id for exercise in SOFTMAX.exercises}
    points = [c.metadata.nbgrader.points for c in found.notebook.cells if c.metadata.get("nbgrader", {}).get("grade")]
    assert points == [exercise.points for exercise in SOFTMAX.exercises]
    again = intake.from_notebook(found.notebook, SOFTMAX)
    assert (again.cells, again.extra) == (found.cells, found.extra)
    return found


def test_an_honest_notebook_comes_through_whole() -> None:
    found = take(perfect())
    assert {key: source.strip() for key, source in found.cells.items()} == {k: v.strip() for k, v in ANSWERS.items()}
    assert found.notes == []
    assert found.extra == []
    assert all(not cell.outputs for cell in found.notebook.cells if cell.cell_type == "code")


def test_a_blank_notebook_holds_the_stubs() -> None:
    found = take(blank())
    assert found.cells == {exercise.id: exercise.source for exercise in SOFTMAX.exercises}


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "empty"),
    "white space": (b" \n\t", "empty"),
    "binary junk": (bytes(range(256)) * 20, "not UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(100), "not UTF-8"),
    "text": (b"import torch\n", "not valid JSON"),
    "half a notebook": (perfect()[:-300], "not valid JSON"),
    "an endless number": (b'{"cells": [], "nbformat": ' + b"9" * 5000 + b"}", "not valid JSON"),
    "too deep": (b'{"nbformat": 4, "cells": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "deep, never closed": (b'{"a":' * 100_000, "nested too deeply"),
    "a list": (b"[1, 2]", "not a notebook"),
    "another object": (b'{"a": 1}', "not a notebook"),
    "an old format": (b'{"nbformat": 3, "worksheets": []}', "format 4 is needed"),
    "a future format": (b'{"nbformat": 5, "cells": []}', "format 4 is needed"),
    "a format that is a word": (b'{"nbformat": "four", "cells": []}', "format 4 is needed"),
    "a format that is true": (b'{"nbformat": true, "cells": []}', "format 4 is needed"),
    "cells that are no list": (b'{"nbformat": 4, "cells": {"0": {}}}', "no list of cells"),
    "a million cells": (b'{"nbformat": 4, "cells": [' + b"{}," * 999_999 + b"{}]}", "the limit is"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_what_is_no_notebook_is_refused_in_one_line(kind: str) -> None:
    data, reason = BAD_FILES[kind]
    with pytest.raises(Refused, match=reason) as refused:
        take(data)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300
    assert NAME in str(refused.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "submitted" / "eve" / CHAPTER
    place.mkdir(parents=True)
    (tmp_path / "outside.ipynb").write_bytes(perfect())
    return place


def read(folder: Path, name: str = NAME) -> intake.Submission:
    return intake.read(folder / name, SOFTMAX, folder.parents[2])


def test_a_file_is_read(folder: Path) -> None:
    (folder / NAME).write_bytes(perfect())
    assert read(folder) == take(perfect())


def test_a_missing_file_is_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="is missing"):
        read(folder)


def test_a_link_is_refused_wherever_it_stands_in_the_path(folder: Path) -> None:
    (folder / NAME).symlink_to(folder.parents[2] / "outside.ipynb")
    with pytest.raises(Refused, match=f"{NAME} is a symbolic link"):
        read(folder)
    (folder / NAME).unlink()
    folder.rmdir()
    elsewhere = folder.parents[2] / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / NAME).write_bytes(perfect())
    folder.symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(Refused, match=f"{CHAPTER} is a symbolic link"):
        read(folder)


def test_what_is_no_regular_file_is_refused_without_waiting(folder: Path) -> None:
    (folder / NAME).mkdir()
    with pytest.raises(Refused, match="not a regular file"):
        read(folder)
    (folder / NAME).rmdir()
    os.mkfifo(folder / NAME)  # reading it would wait for ever
    with pytest.raises(Refused, match="not a regular file"):
        read(folder)


def test_an_enormous_file_is_refused_unread(folder: Path) -> None:
    with open(folder / NAME, "wb") as stream:
        stream.truncate(2**40)  # sparse: reading it would fill the memory
    with pytest.raises(Refused, match="too big"):
        read(folder)


def test_another_name_is_refused_with_the_right_one(folder: Path) -> None:
    (folder / "softmax (1).ipynb").write_bytes(perfect())
    with pytest.raises(Refused, match=rf"softmax \(1\).ipynb.*hand in {NAME}"):
        read(folder, "softmax (1).ipynb")


def test_code_that_would_fill_the_memory_when_it_is_parsed_is_refused_unparsed() -> None:
    def add(notebook: Any) -> None:
        notebook.cells.append(nbformat.v4.new_code_cell("%%lib softmax\nx = [" + "1," * 10**6 + "]", id="bomb"))

    start = time.monotonic()
    with pytest.raises(Refused, match="characters of code in its exercises; the limit is 300,000"):
        take(changed(add, ANSWERS))
    assert time.monotonic() - start < 5  # parsing takes 15 seconds and a gigabyte
    take(changed(lambda notebook: notebook.cells.append(nbformat.v4.new_code_cell("1," * 10**6, id="own")), ANSWERS))


# Which cell is the answer


def test_of_copies_the_last_answer_counts() -> None:
    def copy(notebook: Any) -> None:
        cell = graded_cell(notebook, "softmax")
        for number, source in enumerate(
            ["%%lib softmax\ndef softmax(x): return 1\n", "%%lib softmax\n" + ANSWERS["softmax"]]
        ):
            notebook.cells.append(nbformat.from_dict({**cell, "id": f"copy-{number}", "source": source}))
        notebook.cells.append(nbformat.from_dict({**cell, "id": "stub-again"}))

    found = take(changed(copy))
    assert found.cells["softmax"].strip() == ANSWERS["softmax"].strip()
    assert any("4 times" in note for note in found.notes)


def test_a_broken_copy_does_not_hide_an_answer() -> None:
    def copy(notebook: Any) -> None:
        cell = graded_cell(notebook, "softmax")
        notebook.cells.append(nbformat.from_dict({**cell, "id": "copy", "source": "%%lib softmax\ndef softmax(x:\n"}))

    assert take(changed(copy, ANSWERS)).cells["softmax"].strip() == ANSWERS["softmax"].strip()


def test_an_answer_without_its_metadata_is_found_by_name() -> None:
    def strip(notebook: Any) -> None:
        for cell in notebook.cells:
            cell.metadata.clear()

    found = take(changed(strip, ANSWERS))
    assert {k: v.strip() for k, v in found.cells.items()} == {k: v.strip() for k, v in ANSWERS.items()}


def test_an_answer_in_a_new_cell_counts_where_the_stub_is_untouched() -> None:
    def add(notebook: Any) -> None:
        notebook.cells.append(nbformat.v4.new_code_cell("%%lib softmax\n" + ANSWERS["softmax"], id="new"))

    assert take(changed(add)).cells["softmax"].strip() == ANSWERS["softmax"].strip()


def test_an_answer_without_the_magic_line_counts() -> None:
    def cut(notebook: Any) -> None:
        cell = graded_cell(notebook, "softmax")
        cell.source = cell.source.split("\n", 1)[1]

    assert take(changed(cut, ANSWERS)).cells["softmax"].strip() == ANSWERS["softmax"].strip()


def test_helpers_come_along_in_order_and_other_modules_do_not() -> None:
    def add(notebook: Any) -> None:
        for number, source in enumerate(
            ["%%lib softmax\na = 1", "%%lib attention\nb = 2", "print(3)", "%%lib  softmax \nc = 3"]
        ):
            notebook.cells.append(nbformat.v4.new_code_cell(source, id=f"new-{number}"))

    assert take(changed(add, ANSWERS)).extra == ["a = 1", "c = 3"]


def test_missing_cells_are_put_back_and_count_as_not_started() -> None:
    def empty(notebook: Any) -> None:
        notebook.cells = []

    found = take(changed(empty))
    assert found.cells == {exercise.id: exercise.source for exercise in SOFTMAX.exercises}
    assert len(found.notes) == 2 * len(SOFTMAX.exercises)


def test_a_deleted_check_stands_after_its_exercise_again() -> None:
    def delete(notebook: Any) -> None:
        notebook.cells.remove(graded_cell(notebook, "softmax_check"))

    found = take(changed(delete, ANSWERS))
    order = [c.metadata.nbgrader.grade_id for c in found.notebook.cells if "nbgrader" in c.metadata]
    assert order[:2] == ["softmax", "softmax_check"]


def test_an_edited_check_is_put_right() -> None:
    def edit(notebook: Any) -> None:
        graded_cell(notebook, "softmax_check").source = "assert True"

    found = take(changed(edit))
    assert graded_cell(found.notebook, "softmax_check").source == SOFTMAX.exercises[0].check


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)
KEYS = st.sampled_from(
    ["grade", "grade_id", "locked", "points", "schema_version", "solution", "task", "checksum", "cell_type", "x"]
)


@settings(max_examples=50, deadline=None)
@given(
    metadata=st.one_of(ODD, st.dictionaries(KEYS, ODD, max_size=6)),
    whole=st.one_of(ODD, st.just({"nbgrader": None})),
    replace_whole=st.booleans(),
    grade_id=st.sampled_from(["softmax", "softmax_check", "cross_entropy", "cross_entropy_check"]),
)
def test_no_metadata_stops_a_notebook_or_changes_its_points(
    metadata: Any, whole: Any, replace_whole: bool, grade_id: str
) -> None:
    document = json.loads(perfect())
    for cell in document["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == grade_id:
            if replace_whole:
                cell["metadata"] = whole
            else:
                cell["metadata"]["nbgrader"] = metadata
    found = take(json.dumps(document).encode())
    for exercise, answer in ANSWERS.items():
        assert found.cells[exercise].strip() == answer.strip()


@settings(max_examples=30, deadline=None)
@given(
    cells=st.lists(
        st.one_of(
            ODD,
            st.fixed_dictionaries(
                {},
                optional={
                    "cell_type": st.one_of(st.sampled_from(["code", "markdown", "raw", "heading"]), ODD),
                    "source": ODD,
                    "metadata": ODD,
                    "outputs": ODD,
                    "id": ODD,
                    "attachments": ODD,
                },
            ),
        ),
        max_size=5,
    ),
    metadata=ODD,
)
def test_no_shape_of_cells_stops_a_notebook(cells: list[Any], metadata: Any) -> None:
    data = json.dumps({"nbformat": 4, "cells": cells, "metadata": metadata}).encode()
    assert take(data).cells == {exercise.id: exercise.source for exercise in SOFTMAX.exercises}


def test_nothing_of_the_notebooks_own_metadata_survives() -> None:
    document = json.loads(perfect())
    document["metadata"] = {
        "widgets": {"state": "</script><script>alert(1)</script>"},
        "course_refused": "x",
        "title": "t",
    }
    document["cells"].append({"cell_type": "raw", "metadata": {"raw_mimetype": "text/html"}, "source": "<script>"})
    found = take(json.dumps(document).encode())
    assert set(found.notebook.metadata) == {"kernelspec", "language_info"}
    assert not [cell for cell in found.notebook.cells if cell.cell_type == "raw"]


def test_text_that_cannot_be_written_is_made_fit() -> None:
    document = json.loads(blank())
    document["cells"].append({"cell_type": "code", "metadata": {}, "source": "%%lib softmax\nx = '\ud800\x00'"})
    found = take(json.dumps(document).encode())
    found.extra[0].encode()
    assert "\0" not in found.extra[0]
