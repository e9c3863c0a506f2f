"""Collecting: every layout, every hostile archive, and nothing that anybody handed in is ever lost."""

from __future__ import annotations

import datetime
import io
import os
import pwd
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from course import paths
from course.errors import CourseError
from course.grading import archives, collect, guard, intake, roster
from course.grading.collect import Collected
from tests.classrooms import CHAPTER, Classroom, blank, perfect

NAME = f"{CHAPTER}.ipynb"
ROSTER = """id,first_name,last_name,email,moodle_id,canvas_id
ada,Ada,Lovelace,ada@example.org,11,501
chloe,Chloé,Núñez,chloe@example.org,12,502
gao,伟,高,gao@example.org,13,503
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    return Classroom.fresh(tmp_path / "classroom", monkeypatch)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "handed-in"
    folder.mkdir()
    return folder


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def archive(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in entries.items():
            made.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), content)
    return path


def stored(room: Classroom) -> dict[str, bytes]:
    """Student to what is to be graded."""
    return {path.parent.parent.name: path.read_bytes() for path in room.root.glob(f"submitted/*/{CHAPTER}/{NAME}")}


# Layouts


def test_a_folder_for_each_student(room: Classroom, source: Path) -> None:
    put(source / "ada" / NAME, perfect())
    put(source / "ben" / CHAPTER / NAME, blank())
    put(source / "ben" / CHAPTER / "timestamp.txt", b"2026-01-02 03:04:05 UTC")
    put(source / "ben" / ".ipynb_checkpoints" / NAME, perfect())
    put(source / "ben" / "notes.pdf", b"%PDF")
    result = collect.collect(source)
    assert stored(room) == {"ada": perfect(), "ben": blank()}
    assert sorted(result.stored) == [("ada", CHAPTER), ("ben", CHAPTER)] and not result.refused
    folder = room.root / "submitted" / "ben" / CHAPTER
    assert guard.read_timestamp(folder, room.root) == datetime.datetime(2026, 1, 2, 3, 4, 5)


def test_a_file_for_each_student(room: Classroom, source: Path) -> None:
    put(source / "ada.ipynb", perfect())
    put(source / "ben.ipynb", blank())
    collect.collect(source, "softmax")
    assert stored(room) == {"ada": perfect(), "ben": blank()}


MOODLE = {
    f"Ada Lovelace_7001_assignsubmission_file_/{NAME}": perfect(),
    f"Chloé Núñez_7002_assignsubmission_file_/{NAME}": blank(),
    f"伟 高_7003_assignsubmission_file_{NAME}": perfect(),
    "Ada Lovelace_7001_assignsubmission_onlinetext_/onlinetext.html": b"<p>hello</p>",
}
CANVAS = {
    f"lovelaceada_501_9001_{NAME}": perfect(),
    f"núñezchloé_LATE_502_9002_{CHAPTER}-1.ipynb": blank(),
    f"高伟_503_9003_{CHAPTER} (2).ipynb": perfect(),
}


@pytest.mark.parametrize(("layout", "entries"), [("moodle", MOODLE), ("canvas", CANVAS)])
@pytest.mark.parametrize("how", ["named", "guessed", "unpacked"])
def test_an_lms_download(layout: str, entries: dict[str, bytes], how: str, room: Classroom, tmp_path: Path) -> None:
    put(room.root / "roster.csv", ROSTER.encode())
    download = archive(tmp_path / "submissions.zip", entries)
    if how == "unpacked":
        with zipfile.ZipFile(download) as opened:
            opened.extractall(tmp_path / "unpacked")
        download = tmp_path / "unpacked"
    result = collect.collect(download, layout=layout if how == "named" else "auto")
    assert stored(room) == {"ada": perfect(), "chloe": blank(), "gao": perfect()}, result
    if how != "unpacked":
        assert guard.read_timestamp(room.root / "submitted" / "ada" / CHAPTER, room.root) == datetime.datetime(
            2026, 1, 2, 3, 4, 6
        )


def test_without_a_roster_the_lms_number_is_the_student(room: Classroom, tmp_path: Path) -> None:
    collect.collect(archive(tmp_path / "a.zip", MOODLE))
    assert set(stored(room)) == {"7001", "7002", "7003"}


def test_who_is_not_in_the_roster_is_named(room: Classroom, source: Path) -> None:
    put(room.root / "roster.csv", ROSTER.encode())
    put(source / "ada" / NAME, perfect())
    put(source / "eve" / NAME, perfect())
    result = collect.collect(source)
    assert set(stored(room)) == {"ada"}
    assert result.refused == [f"eve/{NAME}: 'eve' fits nobody in the roster; add id eve to a line of it"]


def exchange(root: Path) -> Path:
    return root / "architecture-ideas-that-won" / "inbound"


def test_the_exchange(room: Classroom, tmp_path: Path) -> None:
    inbound = exchange(tmp_path / "exchange")
    early, late = "2026-01-01 00:00:00 UTC", "2026-01-02 00:00:00.000000 UTC"
    put(inbound / f"ada+{CHAPTER}+{early}+abc" / NAME, blank())
    put(inbound / f"ada+{CHAPTER}+{late}+def" / NAME, perfect())
    put(inbound / f"ada+{CHAPTER}+{late}+def" / "submission_secret.txt", b"s3cret")
    put(inbound / f"bob+{CHAPTER}+not a date+x" / NAME, perfect())
    put(inbound / f"..+{CHAPTER}+{late}+x" / NAME, perfect())
    put(inbound / f"eve+{CHAPTER}+{late}+x" / "other.ipynb", perfect())
    (inbound / f"eve+{CHAPTER}+{late}+x" / NAME).symlink_to(inbound / f"ada+{CHAPTER}+{late}+def" / NAME)
    put(inbound / f"gus+00_other+{late}+x" / NAME, perfect())
    result = collect.collect(tmp_path / "exchange", layout="exchange")
    assert stored(room) == {"ada": perfect()}
    assert (room.root / "submitted" / "ada" / CHAPTER / "submission_secret.txt").read_bytes() == b"s3cret"
    refused = "\n".join(result.refused)
    assert len(result.refused) == 3
    assert "the name holds no date" in refused and "symbolic link" in refused and "not a student id" in refused


def test_nobody_hands_in_for_another(room: Classroom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where students have accounts, a folder that names one must be theirs; where they have none, nobody can tell."""
    accounts = {"ada": os.getuid(), "ben": os.getuid() + 1}

    def account(name: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", accounts[name], 0, "", "/", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwnam", account)
    for student in ("ada", "ben", "cleo"):
        put(exchange(tmp_path) / f"{student}+{CHAPTER}+2026-01-01 00:00:00 UTC+x" / NAME, perfect())
    result = collect.collect(tmp_path, layout="exchange")
    assert set(stored(room)) == {"ada", "cleo"}
    assert len(result.refused) == 1 and "it says it is by ben, but" in result.refused[0]


def test_a_name_that_is_no_text_stops_nobody(
    room: Classroom, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inbound = exchange(tmp_path)
    late = "2026-01-02 00:00:00 UTC"
    put(inbound / f"ada+{CHAPTER}+{late}+x" / NAME, perfect())
    for name in (b"\xff\xfe", b"\x1b]0;owned\x07"):
        os.mkdir(os.path.join(os.fsencode(inbound), name + f"+{CHAPTER}+{late}+x".encode()))
    result = collect.collect(tmp_path, layout="exchange")
    assert set(stored(room)) == {"ada"}
    assert len(result.refused) == 2
    printed = capsys.readouterr().out
    printed.encode()
    assert "\x1b]" not in printed and printed.count("refused:") == 2


def test_a_file_name_cannot_make_it_somebody_elses(room: Classroom, tmp_path: Path) -> None:
    evil = f"Eve Black_7009_assignsubmission_file_x_7001_assignsubmission_file_{NAME}"
    collect.collect(archive(tmp_path / "a.zip", {**MOODLE, evil: blank()}), CHAPTER)
    assert set(stored(room)) == {"7001", "7002", "7003"}
    assert stored(room)["7001"] == perfect()


def test_one_file_name_does_not_change_the_layout(room: Classroom, source: Path) -> None:
    for student in ("ada", "ben"):
        put(source / student / NAME, perfect())
    put(source / "eve" / f"x_1_assignsubmission_file_{NAME}", perfect())
    assert len(collect.collect(source).refused) == 1
    assert set(stored(room)) == {"ada", "ben"}


def test_nbgraders_own_collect_uses_it(room: Classroom, tmp_path: Path) -> None:
    inbound = exchange(tmp_path / "exchange")
    late = "2026-01-02 00:00:00.000000 UTC"
    put(inbound / f"ada+{CHAPTER}+{late}+def" / NAME, perfect())
    put(inbound / f"eve+{CHAPTER}+{late}+x" / "x", b"")
    (inbound / f"eve+{CHAPTER}+{late}+x" / NAME).symlink_to(inbound / f"ada+{CHAPTER}+{late}+def" / NAME)
    (inbound.parent / "outbound").mkdir()
    inbound.parents[1].chmod(0o777)
    done = room.run("nbgrader", "collect", CHAPTER, env={"COURSE_EXCHANGE": str(tmp_path / "exchange")})
    assert done.returncode == 0, done.stderr
    assert stored(room) == {"ada": perfect()}
    assert "symbolic link" in done.stderr


# Hostile archives: each entry refused alone, with one line


def link(name: str, target: str) -> Callable[[zipfile.ZipFile], None]:
    def add(made: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, 0o120777 << 16
        made.writestr(info, target)

    return add


def plain(name: str, content: bytes = b"{}") -> Callable[[zipfile.ZipFile], None]:
    return lambda made: made.writestr(zipfile.ZipInfo(name), content)


def bomb(made: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo(f"eve/{NAME}")
    info.compress_type = zipfile.ZIP_DEFLATED
    made.writestr(info, bytes(intake.MAX_BYTES + 1))


HOSTILE: dict[str, tuple[Callable[[zipfile.ZipFile], None], str]] = {
    "a path upwards": (plain(f"../../eve/{NAME}"), "leaves its folder"),
    "a path upwards inside": (plain(f"eve/../../../{NAME}"), "leaves its folder"),
    "an absolute path": (plain(f"/tmp/eve/{NAME}"), "leaves its folder"),
    "a Windows path": (plain(f"eve\\..\\{NAME}"), "leaves its folder|symbolic|not a"),
    "a drive": (plain(f"C:eve/{NAME}"), "leaves its folder"),
    "a link": (link(f"eve/{NAME}", "/etc/passwd"), "symbolic link"),
    "a link in place of a folder": (link("eve", "/etc"), "symbolic link"),
    "a bomb": (bomb, "too big"),
    "a name that is a pattern": (plain(f"*/{NAME}"), "not a student id"),
    "a hidden name": (plain(f".eve/{NAME}"), "not a student id"),
    "a name with markup": (plain(f"<b>eve/{NAME}"), "not a student id"),
    "another file name": (plain("eve/homework.ipynb"), "is no chapter's"),
    "a chapter that does not exist": (plain("eve/77_magic.ipynb"), "is no chapter's"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_entry_is_refused_and_the_others_are_taken(kind: str, room: Classroom, tmp_path: Path) -> None:
    add, reason = HOSTILE[kind]
    download = tmp_path / "a.zip"
    with zipfile.ZipFile(download, "w") as made:
        made.writestr(f"ada/{NAME}", perfect())
        add(made)
    before = {path for path in tmp_path.rglob("*") if room.root not in path.parents}
    result = collect.collect(download)
    assert stored(room) == {"ada": perfect()}
    assert len(result.refused) == 1 and "\n" not in result.refused[0]
    import re

    assert re.search(reason, result.refused[0]), result.refused
    assert {path for path in tmp_path.rglob("*") if room.root not in path.parents} == before


def test_a_bomb_that_lies_about_its_size_is_stopped(room: Classroom, tmp_path: Path) -> None:
    """The directory of the zip says 10 bytes; the entry unpacks to more than a notebook may have."""
    download = tmp_path / "a.zip"
    with zipfile.ZipFile(download, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(f"eve/{NAME}", bytes(intake.MAX_BYTES * 4))
        made.writestr(f"ada/{NAME}", perfect())
    data = bytearray(download.read_bytes())
    real = struct.pack("<I", intake.MAX_BYTES * 4)
    while real in data:
        at = data.index(real)
        data[at : at + 4] = struct.pack("<I", 10)
    download.write_bytes(data)
    result = collect.collect(download)
    assert "ada" in stored(room)
    assert "eve" not in stored(room)
    assert len(result.refused) == 1


def test_a_damaged_entry_is_refused_alone(room: Classroom, tmp_path: Path) -> None:
    download = archive(tmp_path / "a.zip", {f"eve/{NAME}": os.urandom(4000), f"ada/{NAME}": perfect()})
    data = bytearray(download.read_bytes())
    data[200:300] = bytes(100)
    download.write_bytes(data)
    result = collect.collect(download)
    assert stored(room) == {"ada": perfect()}
    assert len(result.refused) == 1 and "damaged" in result.refused[0]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", bytes(1000)])
def test_a_file_that_is_no_zip_is_named(content: bytes, room: Classroom, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="not a zip that can be read"):
        collect.collect(put(tmp_path / "a.zip", content))


def test_links_in_a_folder_are_refused(room: Classroom, source: Path, tmp_path: Path) -> None:
    put(source / "ada" / NAME, perfect())
    (source / "ben").mkdir()
    (source / "ben" / NAME).symlink_to(source / "ada" / NAME)
    (source / "eve").symlink_to(source / "ada", target_is_directory=True)
    result = collect.collect(source)
    assert stored(room) == {"ada": perfect()}
    assert len(result.refused) == 2 and all("symbolic link" in line for line in result.refused)


def test_nothing_there_is_said(room: Classroom, source: Path) -> None:
    with pytest.raises(CourseError, match="no submission was found"):
        collect.collect(source)
    with pytest.raises(CourseError, match="there is nothing to collect at"):
        collect.collect(source / "absent")
    with pytest.raises(CourseError, match="there is no layout 'blackboard'; the layouts are: auto, folders"):
        collect.collect(source, layout="blackboard")


# Nothing is lost


def test_a_later_hand_in_keeps_the_earlier_one(room: Classroom, source: Path) -> None:
    first = put(source / "ada" / NAME, blank())
    os.utime(first, (1_700_000_000, 1_700_000_000))
    collect.collect(source)
    assert collect.collect(source).unchanged == [("ada", CHAPTER)]
    put(source / "ada" / NAME, perfect())
    assert collect.collect(source).stored == [("ada", CHAPTER)]
    assert stored(room) == {"ada": perfect()}
    kept = [path.read_bytes() for path in (room.root / "history").rglob("*.ipynb")]
    assert kept == [blank()]


def test_of_two_files_for_one_chapter_the_newer_counts(room: Classroom, source: Path) -> None:
    os.utime(put(source / "ada" / "old" / NAME, blank()), (1_700_000_000, 1_700_000_000))
    os.utime(put(source / "ada" / "new" / NAME, perfect()), (1_700_000_900, 1_700_000_900))
    result = collect.collect(source)
    assert stored(room) == {"ada": perfect()}
    assert "is older than" in result.notes[0]


def test_a_kill_between_notebook_and_timestamp_is_made_good(
    room: Classroom, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(source / "ada" / NAME, perfect())
    write = collect.files.write

    def killed(path: Path, content: bytes | str, mode: int = 0o644) -> None:
        if path.name == "timestamp.txt":
            raise KeyboardInterrupt
        write(path, content, mode)

    monkeypatch.setattr(collect.files, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        collect.collect(source)
    monkeypatch.undo()
    monkeypatch.setattr(paths, "CLASSROOM", room.root)
    assert collect.collect(source).stored == [("ada", CHAPTER)]
    assert guard.read_timestamp(room.root / "submitted" / "ada" / CHAPTER, room.root) is not None


def test_a_broken_notebook_is_kept_and_its_author_told(room: Classroom, source: Path) -> None:
    put(source / "hugo" / NAME, b"{ half")
    result = collect.collect(source)
    assert stored(room) == {"hugo": b"{ half"}
    assert "kept, but it cannot be graded" in result.notes[0] and "not valid JSON" in result.notes[0]


def test_a_link_in_the_classroom_is_not_written_through(room: Classroom, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (room.root / "submitted" / "ada").mkdir(parents=True)
    (room.root / "submitted" / "ada" / CHAPTER).symlink_to(outside, target_is_directory=True)
    result = Collected()
    collect.take("ada", CHAPTER, perfect(), datetime.datetime(2026, 1, 1), result)
    assert not list(outside.iterdir())
    assert "symbolic link" in result.refused[0]


# The roster

BAD_ROSTERS = {
    "": "is empty",
    "\n\n": "names no column `id`",
    "id,first_name\n": "names no student",
    "first_name,last_name\nAda,Lovelace\n": "names no column `id`",
    "id,id\nada,bob\n": "two columns are named 'id'",
    "id\nada\nada\n": "line 3: id 'ada' is already that of line 2",
    "id,email\nada,a@b.c\nbob,A@b.c\n": "line 3: email 'a@b.c' is already that of line 2",
    "id,moodle_id\nada,7\nbob,7\n": "line 3: moodle_id '7' is already that of line 2",
    "id\n../x\n": "line 2: '../x' is not a student id",
    "id\n.hidden\n": "'.hidden' is not a student id",
    "id\n-f\n": "'-f' is not a student id",
    "id\na b\n": "'a b' is not a student id",
    "id\n*\n": "is not a student id",
    "id,first_name\n,Ada\n": "line 2: '' is not a student id",
    "id,first_name\nada,<script>\n": "line 2: the first_name has a character",
    "id,last_name\nada,Lovelace,Countess\n": "line 2: 3 values for 2 columns",
    'id,last_name\nada,"Love': "is not a CSV file",
}


@pytest.mark.parametrize("text", BAD_ROSTERS)
def test_a_bad_roster_is_one_clear_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"roster\.csv") as error:
        roster.load(put(tmp_path / "roster.csv", text.encode()))
    assert BAD_ROSTERS[text] in str(error.value)
    assert "\n" not in str(error.value)


def test_a_roster_in_another_encoding_or_absent_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="is not UTF-8"):
        roster.load(put(tmp_path / "roster.csv", "id,last_name\nada,Núñez\n".encode("latin-1")))
    with pytest.raises(CourseError, match="cannot read the roster"):
        roster.load(tmp_path / "absent.csv")


@pytest.mark.parametrize("form", ["{}", "\ufeff{}", "excel"])
def test_a_good_roster_is_read_as_spreadsheets_write_it(form: str, tmp_path: Path) -> None:
    text = ROSTER.replace(",", ";").replace("\n", "\r\n") if form == "excel" else form.format(ROSTER)
    found = roster.load(put(tmp_path / "roster.csv", text.encode()))
    assert list(found) == ["ada", "chloe", "gao"]
    assert found["chloe"].full_name == "Chloé Núñez" and found["gao"].canvas_id == "503"


def test_the_roster_tells_nbgrader_the_names(room: Classroom, source: Path) -> None:
    from course.grading import classroom

    put(room.root / "roster.csv", ROSTER.encode())
    put(source / "ada" / NAME, perfect())
    collect.collect(source)
    with classroom.gradebook() as gradebook:
        assert {s.id: s.last_name for s in gradebook.students} == {"ada": "Lovelace", "chloe": "Núñez", "gao": "高"}


def test_an_archive_is_read_only_when_asked(tmp_path: Path) -> None:
    """A thousand entries of the greatest size would be 8 GB; none is read before its turn."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for number in range(20):
            made.writestr(f"s{number}/{NAME}", bytes(intake.MAX_BYTES))
    found = list(archives.arrivals(put(tmp_path / "a.zip", buffer.getvalue()), "folders"))
    assert len(found) == 20 and all(isinstance(one, archives.Arrival) for one in found)
