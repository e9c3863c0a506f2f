"""Whatever a student writes is text on the feedback page: shown in a real browser, it does nothing."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser

from course.grading import classroom, feedback
from course.grading.feedback import markdown_to_html
from tests.classrooms import CHAPTER, Classroom, changed

HIT = "document.title='hit'"
IMAGE = f'<img src=x onerror="{HIT}">'
MARKDOWN = [
    IMAGE,
    f"<script>{HIT}</script>",
    f"<svg/onload={HIT}>",
    f"<details open ontoggle={HIT}>",
    f"$ {IMAGE} $ and $${IMAGE}$$ and \\begin{{a}}{IMAGE}\\end{{a}} and \\({IMAGE}\\)",
    f"```{IMAGE}\n{IMAGE}\n```",
    f'[a](https://example.org "{IMAGE}") [b](java&#115;cript:{HIT}) <javascript:{HIT}> [c]\n\n[c]: javascript:{HIT}',
    f"| {IMAGE} | b |\n|---|---|\n| `{IMAGE}` | {IMAGE} |",
    f"# {IMAGE}\n\n> - {IMAGE}\n\n~~{IMAGE}~~ **{IMAGE}**",
    f"</div></pre></style></title></textarea>{IMAGE}<style>@import 'https://example.org/x.css'</style>",
    f"<!-- --!>{IMAGE}<![CDATA[>{IMAGE}]]><math><mtext><table><mglyph><style>{IMAGE}",
    ">" * 3_000 + IMAGE,
    "a" + " " * 2_000_000 + IMAGE,
]
CODE = [
    "'''</pre></code></script>" + IMAGE + "'''",
    f"%%html\n<script>{HIT}</script>",
    f"# {IMAGE} \N{RIGHT-TO-LEFT OVERRIDE}",
]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    return Classroom.fresh(tmp_path / "classroom", monkeypatch)


def test_nothing_that_a_student_writes_acts_in_a_browser(room: Classroom, tmp_path: Path, browser: Browser) -> None:
    def add(notebook: Any) -> None:
        for number, text in enumerate(MARKDOWN):
            notebook.cells.append(nbformat.v4.new_markdown_cell(text, id=f"text-{number}"))
        for number, code in enumerate(CODE):
            notebook.cells.append(nbformat.v4.new_code_cell(code, id=f"code-{number}"))

    raises = f"def softmax(x, dim=-1):\n    raise ValueError({IMAGE!r} + '</code></div><script>{HIT}</script>')\n"
    room.hand_in("eve", changed(add, {"softmax": raises}))
    assert classroom.api().autograde(CHAPTER, "eve", force=True)["success"]
    (written,) = feedback.feedback([CHAPTER], ["eve"])
    text = written.read_text(encoding="utf-8")
    # The page's own policy would hide a hole.
    without, count = re.subn("<meta[^>]*Content-Security-Policy[^>]*>", "", text)
    assert count == 1
    bare = tmp_path / "bare.html"
    bare.write_text(without, encoding="utf-8")
    asked: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(bare.as_uri())
    for element in page.query_selector_all("a[href], summary"):
        assert not (element.get_attribute("href") or "").lower().startswith(("javascript", "data"))
    assert page.title() != "hit"
    assert page.get_by_text(f"<script>{HIT}</script>").count() > 0, "it is shown as text"
    assert page.locator("img, script, svg, iframe, math, object").count() == 0
    page.close()
    assert asked == [bare.as_uri()]


def test_markdown_that_is_slow_to_render_is_shown_as_it_is() -> None:
    start = time.monotonic()
    for source in ("a" + " " * 2_000_000 + "b", "|a" * 10**6 + "\n" + "|-" * 10**6, "~~a" * 10**6):
        assert markdown_to_html(source) == f"<pre>{source}</pre>"
    assert time.monotonic() - start < 5


def test_mathjax_gets_no_link_to_make() -> None:
    for command in ("href", "style", "class", "cssId"):
        assert f"\\{command}" not in markdown_to_html(f"$\\{command}{{javascript:alert(1)}}{{x}}$")
    assert "\\classical" in markdown_to_html(r"$\classical$")
