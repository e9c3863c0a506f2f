"""The book's build: a cache that notices changes, failures that fail and go on failing, one kind of pages.

Most of it runs on a small throw-away book, made of the same configuration and extension.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from course import paths
from course.book import build as builder
from course.book import logo, refresh_vendor, serve
from course.book.digest import digest
from course.book.extension import CACHE_PREFIX, UNFINISHED
from course.errors import CourseError

FRONT = """---
kernelspec: {display_name: Python 3, language: python, name: python3}
jupytext: {text_representation: {extension: .md, format_name: myst}}
---
"""

INTRO = f"""{FRONT}
# A small book

```{{code-cell}} ipython3
import os, time
from lib import given
from solutions import tiny

while time.process_time() < WORK:  # work, not sleep: a busy machine slows both builds alike
    pass
print("solution", tiny.twice(21), "given", given.VALUE, "reference mode", os.environ["COURSE_REFERENCE"])
```
"""

CHAPTER = f"""{FRONT}
# Tiny

See {{term}}`softmax` and $x^2$.

## Build it

### Exercise 1 · `twice`  ●○○ · 7 minutes

```{{code-cell}} ipython3
---
nbgrader:
  grade: false
  grade_id: twice
  locked: false
  schema_version: 3
  solution: true
  task: false
---
def twice(x):
    raise NotImplementedError
```

```{{code-cell}} ipython3
---
nbgrader:
  grade: true
  grade_id: twice_check
  locked: true
  points: 3
  schema_version: 3
  solution: false
  task: false
---
from solutions.tiny import twice

assert twice(2) == 4
```
"""

SOLUTION = "def twice(x):\n    return x + x  # the secret\n"


def make_book(root: Path, work: float = 0.0) -> Path:
    """A book of an introduction, one chapter and a glossary, with this repository's configuration."""
    config = yaml.safe_load((paths.ROOT / "_config.yml").read_text(encoding="utf-8"))
    config.pop("logo")
    config["html"].pop("favicon")
    config.pop("bibtex_bibfiles")
    config["sphinx"]["config"].pop("bibtex_reference_style")
    toc = {"format": "jb-book", "root": "intro", "chapters": [{"file": "chapters/00_tiny"}, {"file": "glossary"}]}
    files = {
        "_config.yml": yaml.safe_dump(config),
        "_toc.yml": yaml.safe_dump(toc),
        "intro.md": INTRO.replace("WORK", str(work)),
        "chapters/00_tiny.md": CHAPTER,
        "glossary.md": "# Glossary\n\n```{glossary}\nsoftmax\n  Weights.\n```\n",
        "solutions/tiny.py": SOLUTION,
        "solutions/__init__.py": "",
        "lib/__init__.py": "",
        "lib/given.py": "VALUE = 5\n",
        "requirements.lock": "numpy==1\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def plain_build(root: Path) -> subprocess.CompletedProcess[str]:
    """`jupyter-book build .`, with nothing in the environment to help it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COURSE_") and k != "PYTHONPATH"}
    command = [sys.executable, "-c", builder.JUPYTER_BOOK, "build", "."]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    return done


def page(root: Path, name: str) -> str:
    return (root / "_build" / "html" / f"{name}.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A small book, built."""
    root = make_book(tmp_path_factory.mktemp("book"))
    builder.build(root=root)
    return root


@pytest.fixture
def copy(built, tmp_path) -> Path:
    """A copy of the built book, to change."""
    return Path(shutil.copytree(built, tmp_path / "book"))


# The digest


@pytest.mark.parametrize("name", ["solutions/tiny.py", "lib/given.py", "requirements.lock"])
def test_digest_notices_what_outputs_depend_on(tmp_path, name):
    root = make_book(tmp_path)
    before = digest(root)
    assert digest(root) == before
    with (root / name).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert digest(root) != before


def test_digest_notices_the_tooling_and_new_files(tmp_path, monkeypatch):
    root = make_book(tmp_path)
    before = digest(root)
    (root / "solutions" / "more.py").write_text("", encoding="utf-8")
    after = digest(root)
    assert after != before
    tooling = Path(
        shutil.copytree(paths.ROOT / "course", tmp_path / "tooling", ignore=shutil.ignore_patterns("vendor"))
    )
    monkeypatch.setattr("course.book.digest.TOOLING", tooling)
    assert digest(root) == after
    with (tooling / "figures.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert digest(root) != after


def test_digest_ignores_histories_and_bytecode(tmp_path):
    root = make_book(tmp_path)
    before = digest(root)
    for name in ("lib/.history/given.py", "solutions/__pycache__/tiny.py"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("old", encoding="utf-8")
    assert digest(root) == before


# What a build gives


def test_pages_hold_real_outputs_points_and_the_notebook(built):
    assert "solution 42 given 5 reference mode 1" in page(built, "intro")
    chapter = page(built, "chapters/00_tiny")
    assert "1 exercise · 3 points · about 7 minutes of building" in chapter
    assert 'href="../_sources/chapters/00_tiny.ipynb"' in chapter
    notebook = (built / "_build/html/_sources/chapters/00_tiny.ipynb").read_text(encoding="utf-8")
    assert "NotImplementedError" in notebook and '"outputs": []' in notebook
    assert "the secret" not in notebook + chapter
    assert not (built / "_build" / UNFINISHED).exists()


def test_pages_name_no_script_of_another_server(built):
    for path in (built / "_build" / "html").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        sources = re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(https?:[^\"]+)", text)
        assert not sources, f"{path.name} loads {sources}"
        assert "unpkg.com" not in text and "cdn.jsdelivr" not in text


def test_plain_jupyter_book_gives_the_same_pages(copy):
    shutil.rmtree(copy / "_build" / "html")
    shutil.rmtree(copy / "_build" / ".doctrees")
    ours = Path(shutil.copytree(builder.build(root=copy), copy.parent / "ours"))
    shutil.rmtree(copy / "_build" / "html")
    shutil.rmtree(copy / "_build" / ".doctrees")
    done = plain_build(copy)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = copy / "_build" / "html"
    names = {path.relative_to(ours) for path in ours.rglob("*") if path.is_file()}
    assert names == {path.relative_to(theirs) for path in theirs.rglob("*") if path.is_file()}
    _, different, errors = filecmp.cmpfiles(ours, theirs, [str(name) for name in names], shallow=False)
    assert not different and not errors


def test_with_solutions_folds_them_under_their_exercise_in_another_folder(copy):
    folder = builder.build(with_solutions=True, root=copy)
    assert folder != copy / "_build" / "html"
    text = (folder / "chapters" / "00_tiny.html").read_text(encoding="utf-8")
    assert (
        text.index("NotImplementedError") < text.index('<details class="course-solution">') < text.index("the secret")
    )
    assert "the secret" not in page(copy, "chapters/00_tiny")


def test_a_change_of_solution_given_module_or_lock_file_runs_the_cells_again(copy):
    changes = [
        ("solutions/tiny.py", "x + x", "2 * x  # changed", "solution 42 given 5"),
        ("lib/given.py", "5", "6", "solution 42 given 6"),
        ("requirements.lock", "numpy==1", "numpy==2", "solution 42 given 6"),
    ]
    for name, old, new, shown in changes:
        before = {path.name for path in (copy / "_build").glob(CACHE_PREFIX + "*")}
        text = (copy / name).read_text(encoding="utf-8")
        (copy / name).write_text(text.replace(old, new), encoding="utf-8")
        done = plain_build(copy)
        assert done.returncode == 0, done.stderr[-2000:]
        assert (done.stderr + done.stdout).count("Executed notebook") == 2, f"{name} changed, yet no cell ran"
        assert shown in page(copy, "intro")
        after = {path.name for path in (copy / "_build").glob(CACHE_PREFIX + "*")}
        assert len(before) == len(after) == 1 and before != after  # the old cache is gone


# What fails


def test_a_failing_cell_fails_the_build_and_is_named(copy):
    chapter = copy / "chapters" / "00_tiny.md"
    chapter.write_text(CHAPTER.replace("== 4", "== 5, 'two and two'"), encoding="utf-8")
    line = chapter.read_text(encoding="utf-8").splitlines().index("from solutions.tiny import twice") + 1
    with pytest.raises(CourseError) as raised:
        builder.build(root=copy)
    message = str(raised.value)
    assert f"chapters/00_tiny.md:{line}: ERROR: code cell 2 failed: AssertionError: two and two" in message
    assert "\n" not in message
    assert plain_build(copy).returncode != 0  # and again
    assert (copy / "_build" / UNFINISHED).exists()


def test_a_warning_fails_the_build_and_fails_it_again(copy):
    intro = copy / "intro.md"
    text = intro.read_text(encoding="utf-8")
    intro.write_text(text + "\nSee {term}`no such term`.\n", encoding="utf-8")
    for _ in range(2):
        done = plain_build(copy)
        assert done.returncode != 0
        assert "no such term" in done.stderr and "WARNING" in done.stderr
    with pytest.raises(CourseError, match=r"intro\.md.*WARNING.*no such term"):
        builder.build(root=copy)
    intro.write_text(text, encoding="utf-8")
    assert plain_build(copy).returncode == 0


def test_a_killed_build_is_read_again(copy):
    (copy / "_build" / UNFINISHED).touch()  # what a kill leaves behind
    done = plain_build(copy)
    assert done.returncode == 0
    assert "3 added" in done.stdout


def test_a_chapter_that_the_contents_lack_is_a_failure(copy):
    (copy / "chapters" / "01_forgotten.md").write_text("# Forgotten\n", encoding="utf-8")
    with pytest.raises(CourseError, match=r"01_forgotten\.md is not in _toc\.yml"):
        builder.build(root=copy)


def test_output_on_stderr_is_a_failure(copy):
    intro = copy / "intro.md"
    text = intro.read_text(encoding="utf-8")
    intro.write_text(text.replace('print("solution"', 'print("oh", file=__import__("sys").stderr); print("solution"'))
    with pytest.raises(CourseError, match="stderr"):
        builder.build(root=copy)


def test_two_builds_at_once_are_one_too_many(copy):
    import filelock

    with filelock.FileLock(copy / "_build" / ".building"), pytest.raises(CourseError, match="another build"):
        builder.build(root=copy)


def test_no_book_is_one_clear_line(tmp_path):
    with pytest.raises(CourseError, match=r"_config\.yml is missing"):
        builder.build(root=tmp_path)


# Speed


def test_an_unchanged_book_builds_five_times_faster(tmp_path):
    root = make_book(tmp_path / "book", work=25.0)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        builder.build(root=root)
        seconds.append(time.perf_counter() - start)
    cold, warm = seconds
    assert cold >= 5 * warm, f"cold {cold:.1f} s, unchanged {warm:.1f} s"


# Files that are made by code


def test_logo_is_the_one_that_the_code_draws():
    assert logo.LOGO.read_text(encoding="utf-8") == logo.draw()


def test_vendored_files_are_those_that_the_readme_names():
    import hashlib

    readme = (refresh_vendor.VENDOR / "README.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$", readme, re.M))
    there = {
        path.relative_to(refresh_vendor.VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in refresh_vendor.VENDOR.rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert named == there
    assert "embed-amd.js" in there and "mathjax/tex-mml-chtml.js" in there and "require.js" in there


# The server


def test_server_serves_pages_and_names_a_busy_port(built):
    import threading
    import urllib.request

    with serve.server(0, built / "_build" / "html") as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{running.server_port}/intro.html"
            with urllib.request.urlopen(address, timeout=10) as answer:
                assert b"A small book" in answer.read()
            with pytest.raises(CourseError, match=f"port {running.server_port} is taken"):
                serve.server(running.server_port, built / "_build" / "html")
        finally:
            running.shutdown()


def test_server_without_a_book_says_how_to_build_it(tmp_path):
    with pytest.raises(CourseError, match="course book"):
        serve.server(0, tmp_path)
