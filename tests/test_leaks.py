"""The leak check finds what was planted, wherever and however, and lets public lines pass."""

from __future__ import annotations

import base64
import json
import marshal
import re
from pathlib import Path

import nbformat
import pytest

from course import chapters, paths
from course.errors import CourseError
from course.release import leaks, notebooks
from tests import released


@pytest.fixture(scope="module")
def needles() -> leaks.Needles:
    return leaks.Needles(leaks.secrets())


def secret_of(kind: str) -> str:
    """A line, as it stands in its file, that only this kind of secret file holds."""
    secret = {secret.compact for secret in leaks.secrets() if secret.origin.startswith(kind)}
    assert len(secret) >= 5, f"hardly any secret line in {kind}"
    for file in sorted((paths.ROOT / kind).glob("*.py")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if "".join(line.split()) in secret and line.startswith("    "):
                return line
    raise AssertionError(kind)


@pytest.fixture(params=["solutions", "tests/hidden", "tests/mutants", "tests/variants"])
def secret(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def notebook(**cell: object) -> bytes:
    """A small notebook: one text cell, and one code cell with these fields."""
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# A title"), nbformat.v4.new_code_cell(**cell)]
    )
    return notebooks.to_bytes(made)


def output(text: str, kind: str = "text/plain") -> bytes:
    return notebook(outputs=[nbformat.v4.new_output("display_data", data={kind: text})])


def planted(line: str) -> dict[str, tuple[str, bytes]]:
    """The line hidden in many ways: file name and content by what was done."""
    wrapped = line.strip().replace(" ", " \n        ", 1)
    hidden = base64.b64encode(("a picture? " + line + " no").encode()).decode()
    markdown = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(f"Remember:\n\n> {line.strip()}\n")])
    return {
        "verbatim": ("lib/model.py", f"def f():\n{line}\n".encode()),
        "indented anew": ("lib/model.py", f"def f():\n\t\t\t{line.strip()}   \n".encode()),
        "wrapped": ("notes.md", wrapped.encode()),
        "as a comment": ("course/cli.py", f"#   {line.strip()}".encode()),
        "in code": ("01_x.ipynb", notebook(source=f"1\n{line}")),
        "in a text cell": ("01_x.ipynb", notebooks.to_bytes(markdown)),
        "in metadata": ("01_x.ipynb", notebook(metadata={"answer": {"deep": [line.strip()]}})),
        "as a metadata key": ("01_x.ipynb", notebook(metadata={line.strip(): 1})),
        "in an output": ("01_x.ipynb", output(line)),
        "in an output's base64": ("01_x.ipynb", output(hidden, "image/png")),
        "in JSON": ("course/shipped/01_x.json", json.dumps({"check": line}).encode()),
        "with Windows line ends": ("lib/model.py", f"x = 1\r\n{line}\r\n".encode()),
    }


@pytest.mark.parametrize("how", list(planted("x y")))
def test_a_planted_line_is_found(secret: str, how: str, needles: leaks.Needles) -> None:
    name, content = planted(secret_of(secret))[how]
    with pytest.raises(CourseError, match=re.escape(name)) as found:
        leaks.check_bytes(name, content, needles)
    assert f"{secret}/" in str(found.value) and re.search(r"line \d+", str(found.value))
    assert "\n" not in str(found.value)


def test_the_line_is_named() -> None:
    line = secret_of("solutions")
    with pytest.raises(CourseError, match=r"^lib/model\.py, line 3 would give"):
        leaks.check_bytes("lib/model.py", f"import torch\n\n{line}\n".encode())
    with pytest.raises(CourseError, match=r"^01_x\.ipynb, cell 2 source, line 2 would give"):
        leaks.check_bytes("01_x.ipynb", notebook(source=f"x = 1\n{line}"))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    source = next(iter(paths.SOLUTIONS.glob("[a-z]*.py"))).read_text(encoding="utf-8")
    compiled = marshal.dumps(compile(source, "x", "exec"))
    for name, content in {
        "lib/__pycache__/x.cpython-311.pyc": compiled,
        "extra.zip": b"PK",
        "x.py": compiled,
        "x.md": "ü".encode("latin-1"),
        "x.ipynb": b"{",
    }.items():
        with pytest.raises(CourseError, match=re.escape(name)):
            leaks.check_bytes(name, content)
    (tmp_path / "notes.md").symlink_to(paths.SOLUTIONS / "__init__.py")
    with pytest.raises(CourseError, match=r"notes\.md is a link"):
        leaks.check_folder(tmp_path)


def test_a_planted_file_in_a_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    leaks.check_folder(tmp_path)
    (tmp_path / "deep/er/notes.txt").write_text(secret_of("tests/hidden"), encoding="utf-8")
    with pytest.raises(CourseError, match=r"deep/er/notes\.txt, line 1 would give students tests/hidden"):
        leaks.check_folder(tmp_path)


def test_the_real_release_is_clean() -> None:
    assert sum(1 for _ in released.classroom().glob("release/*/*.ipynb")) == len(chapters.files())
    leaks.check_folder(released.classroom() / "release")
    leaks.check_folder(released.classroom() / "workspace")


def test_lines_of_the_public_sources_are_no_secret(needles: leaks.Needles) -> None:
    for file in leaks.public_files():
        leaks.check_bytes(file.name, file.read_bytes(), needles)


def test_most_lines_of_the_reference_are_secret() -> None:
    """The public sources must not excuse so much that the check means nothing."""
    secret = {secret.compact for secret in leaks.secrets()}
    for name in chapters.names():
        bodies = leaks._bodies(paths.SOLUTIONS / f"{name}.py")
        assert bodies
        lines = [line for body in bodies.values() for line in body]
        assert sum(line in secret for line in lines) >= 0.7 * len(lines), name


def test_a_solved_exercise_in_a_chapter_is_refused(tmp_path: Path) -> None:
    chapter = chapters.all_chapters()[0]
    text = chapter.path.read_text(encoding="utf-8")
    solved = text.replace("    raise NotImplementedError", "    return 1")
    path = tmp_path / chapter.path.name
    path.write_text(solved, encoding="utf-8")
    with pytest.raises(CourseError, match="already solved"):
        leaks.check_chapter(chapters.load(path))


def test_a_solution_spelt_out_in_a_chapter_is_refused(tmp_path: Path) -> None:
    chapter, name = next(
        (chapter, name)
        for chapter in chapters.all_chapters()
        for name, body in leaks._bodies(paths.SOLUTIONS / f"{chapter.name}.py").items()
        if len(body) >= leaks.WHOLE_BODY
    )
    text = chapter.path.read_text(encoding="utf-8")
    solution = (paths.SOLUTIONS / f"{chapter.name}.py").read_text(encoding="utf-8")
    quoted = "\n".join(f"> {line}" for line in solution.splitlines())
    path = tmp_path / chapter.path.name
    path.write_text(f"{text}\n\n{quoted}\n", encoding="utf-8")
    with pytest.raises(CourseError, match=rf"{path.name}, line \d+: the chapter spells out the whole solution"):
        leaks.check_chapter(chapters.load(path))
    assert name
