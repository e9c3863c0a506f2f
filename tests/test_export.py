"""Export: right for any name, harmless in a spreadsheet, in the layouts that LMSs import."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.errors import CourseError
from course.grading import classroom, export
from tests.classrooms import CHAPTER, Classroom

PEOPLE = {
    "ada": ("Ada", "Lovelace", "ada@example.org"),
    "ben": ('Ben "B"', "O'Brien, Jr.", "ben@example.org"),
    "gao": ("伟", "高", "gao@example.org"),
    "mallory": ("=HYPERLINK(1)", "@SUM(A1)", "+1@example.org"),
    "nils": ("Nils\nOlof", "-2+3", "nils@example.org"),
}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    """A class with marks: ada 5.5 of 16, ben graded with 0, mallory 16 less 2 for lateness, the others nothing."""
    made = Classroom.fresh(tmp_path / "classroom", monkeypatch)
    with classroom.gradebook() as gradebook:
        for student, (first, last, email) in PEOPLE.items():
            gradebook.update_or_create_student(student, first_name=first, last_name=last, email=email)
        for student, marks in {"ada": [3.5, 2.0, 0.0], "ben": [0.0, 0.0, 0.0], "mallory": [6.0, 4.0, 6.0]}.items():
            gradebook.update_or_create_submission(CHAPTER, student, timestamp="2026-01-02 03:04:05 UTC")
            (notebook,) = gradebook.find_submission(CHAPTER, student).notebooks
            for grade, mark in zip(sorted(notebook.grades, key=lambda one: one.max_score), sorted(marks), strict=True):
                grade.auto_score = mark
            if student == "mallory":
                notebook.late_submission_penalty = 2.0
        gradebook.db.commit()
    return made


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


def test_plain(room: Classroom, tmp_path: Path) -> None:
    target = export.export(tmp_path / "out" / "marks.csv")
    assert target.read_bytes().startswith(b"\xef\xbb\xbf")
    found = {row["student_id"]: row for row in rows(target)}
    assert set(found) == set(PEOPLE)
    assert found["ada"]["score"] == "5.5" and found["ada"]["max_score"] == "16"
    assert found["ada"]["submitted_utc"] == "2026-01-02 03:04:05"
    assert found["ben"]["last_name"] == "O'Brien, Jr." and found["ben"]["first_name"] == 'Ben "B"'
    assert found["ben"]["raw_score"] == "0" and found["gao"]["raw_score"] == "" and found["gao"]["score"] == "0"
    assert found["gao"]["last_name"] == "高" and found["nils"]["first_name"] == "Nils\nOlof"
    mallory = found["mallory"]
    assert (mallory["raw_score"], mallory["late_penalty"], mallory["score"]) == ("16", "2", "14")


@pytest.mark.parametrize("layout", ["plain", "canvas", "moodle", "generic"])
def test_no_cell_is_a_formula(layout: str, room: Classroom, tmp_path: Path) -> None:
    text = export.export(tmp_path / "marks.csv", layout).read_text(encoding="utf-8-sig")
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert "'@SUM(A1)" in text
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


def test_canvas(room: Classroom, tmp_path: Path) -> None:
    (room.root / "roster.csv").write_text("id,canvas_id,first_name,last_name\nada,501,Ada,Lovelace\n", encoding="utf-8")
    found = rows(export.export(tmp_path / "marks.csv", "canvas"))
    assert list(found[0]) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", CHAPTER]
    assert found[0]["Student"].strip() == "Points Possible" and found[0][CHAPTER] == "16"
    (ada,) = [row for row in found if row["ID"] == "501"]
    assert ada["Student"] == "Lovelace, Ada" and ada[CHAPTER] == "5.5"
    assert {row["SIS User ID"]: row[CHAPTER] for row in found[1:]}["gao"] == ""


def test_moodle(room: Classroom, tmp_path: Path) -> None:
    found = {row["Email address"]: row for row in rows(export.export(tmp_path / "marks.csv", "moodle"))}
    assert found["ada@example.org"][CHAPTER] == "5.5"
    assert found["ben@example.org"] == {
        "ID number": "ben",
        "First name": 'Ben "B"',
        "Last name": "O'Brien, Jr.",
        "Email address": "ben@example.org",
        CHAPTER: "0",
    }


@given(st.lists(st.lists(st.text(), min_size=1, max_size=4), max_size=4))
def test_any_text_comes_back_the_same_but_for_the_apostrophe(table: list[list[str]]) -> None:
    text = export.to_csv(table).removeprefix("\ufeff")
    back = list(csv.reader(io.StringIO(text, newline="")))
    assert len(back) == len(table)
    for row, original in zip(back, table, strict=True):
        for cell, wanted in zip(row, original, strict=True):
            assert cell in (wanted, f"'{wanted}")
            assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))


def test_bad_requests_are_one_clear_line(room: Classroom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CourseError, match="there is no layout 'excel'; the layouts are: plain"):
        export.export(tmp_path / "marks.csv", "excel")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(CourseError, match="cannot write"):
        export.export(tmp_path / "file" / "marks.csv")
    monkeypatch.setattr("course.paths.CLASSROOM", tmp_path / "nowhere")
    with pytest.raises(CourseError, match="run `course release` first"):
        export.export(tmp_path / "marks.csv")


def test_nbgraders_own_export_is_as_careful(room: Classroom, tmp_path: Path) -> None:
    target = tmp_path / "grades.csv"
    done = room.run("nbgrader", "export", "--to", str(target))
    assert done.returncode == 0, done.stderr
    assert {row["student_id"]: row["first_name"] for row in rows(target)}["mallory"] == "'=HYPERLINK(1)"
