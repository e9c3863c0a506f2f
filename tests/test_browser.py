"""The built book in headless Chromium: quiet, self-contained, usable by keyboard, in light and dark, on a phone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Response, Route

from course import paths
from course.book import build, serve

pytestmark = pytest.mark.timeout(1800)  # the first of them waits until all the book's pages have run

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


def listed(entry: object) -> Iterator[str]:
    """The pages that `_toc.yml` names."""
    if isinstance(entry, dict):
        for key, value in entry.items():
            if key in ("file", "root"):
                yield value
            else:
                yield from listed(value)
    elif isinstance(entry, list):
        for part in entry:
            yield from listed(part)


PAGES = [*listed(yaml.safe_load((paths.ROOT / "_toc.yml").read_text(encoding="utf-8"))), "search", "genindex"]


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The book's address on this machine; it is built first where that is needed."""
    folder = build.build()
    with serve.server(0, folder) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


class Visit:
    """A page in a context of its own, with all that went wrong on it."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.problems: list[str] = []
        self.page: Page = context.new_page()
        context.route("**/*", self._route)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status}: {response.url}")

    def _route(self, route: Route) -> None:
        if route.request.url.startswith((self.address + "/", "data:", "blob:")):
            route.continue_()
        else:
            self.problems.append(f"outside request: {route.request.url}")
            route.abort()

    def open(self, name: str) -> Page:
        """Load a page and wait until its scripts have settled."""
        self.page.goto(f"{self.address}/{name}")
        self.page.wait_for_load_state("networkidle")
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        if self.page.locator('script[type="application/vnd.jupyter.widget-view+json"]').count():
            self.page.wait_for_selector(".jupyter-widgets")
        if self.page.locator(".course-quiz").count():
            self.page.wait_for_selector(".course-quiz .MCButton")
        return self.page


@pytest.fixture
def visit(browser, address, request) -> Iterator[Visit]:
    """A visit; parametrize indirectly with (viewport, scheme) for another than a light desktop."""
    viewport, scheme = getattr(request, "param", (DESKTOP, "light"))
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    yield Visit(context, address)
    context.close()


everywhere = pytest.mark.parametrize(
    "visit",
    [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")],
    indirect=True,
    ids=["desktop-light", "desktop-dark", "phone-light", "phone-dark"],
)


@everywhere
@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_quiet_self_contained_and_fits(visit, name):
    page = visit.open(f"{name}.html")
    assert visit.problems == []
    assert page.locator("h1").count() >= 1 or name == "search"
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"], f"the page scrolls sideways: {width} pixels wide"
    mute = page.evaluate(
        """() => [...document.querySelectorAll("article img, article svg[role=img]")]
            .filter(e => !(e.getAttribute("alt") || e.getAttribute("aria-label"))).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert mute == [], "figures without a text alternative"


LUMINANCE = """(element, property) => {
  const parse = color => (color.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  let node = element, color = parse(getComputedStyle(node)[property]);
  while (property === "backgroundColor" && color.length > 3 && color[3] === 0 && node.parentElement) {
    node = node.parentElement; color = parse(getComputedStyle(node)[property]);
  }
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = color.slice(0, 3).map(v => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}"""


def contrast(element) -> float:
    """Contrast of an element's text colour against what lies behind it."""
    ink, ground = (element.evaluate(LUMINANCE, name) for name in ("color", "backgroundColor"))
    low, high = sorted((ink, ground))
    return (high + 0.05) / (low + 0.05)


@everywhere
def test_figures_and_quizzes_are_readable_in_light_and_dark(visit):
    page = visit.open("intro.html")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground = page.locator("body").evaluate(LUMINANCE, "backgroundColor")
    assert ground < 0.05 if dark else ground > 0.9
    figure = page.locator(".course-figure svg:visible").first
    assert figure.evaluate(LUMINANCE, "backgroundColor") == pytest.approx(ground, abs=0.02)
    assert contrast(figure) >= 7
    page = visit.open(f"{chapter_with('.course-quiz', visit)}.html")
    assert contrast(page.locator(".course-quiz .MCButton").first) >= 4.5


def chapter_with(selector: str, visit: Visit) -> str:
    """The first chapter whose page has such an element."""
    for name in (name for name in PAGES if name.startswith("chapters/")):
        if visit.open(f"{name}.html").locator(selector).count():
            return name
    pytest.fail(f"no chapter has {selector}")


def shown_figure(page: Page) -> str | None:
    return page.locator(".course-slider .course-figure svg:visible").first.get_attribute("aria-label")


@everywhere
def test_a_slider_moves_a_figure_by_keyboard_and_back(visit):
    page = visit.open("intro.html")
    first = shown_figure(page)
    handle = page.locator(".course-slider .noUi-handle").first
    handle.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "old => [...document.querySelectorAll('.course-slider .course-figure svg')]"
        ".filter(e => e.checkVisibility())[0]?.getAttribute('aria-label') !== old",
        arg=first,
    )
    second = shown_figure(page)
    assert first and second and "part II" in second and "part II" not in first
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(300)
    assert shown_figure(page) == first
    assert visit.problems == []


def test_every_chapter_has_a_slider_and_a_quiz_that_work(visit):
    for name in (name for name in PAGES if name.startswith("chapters/")):
        page = visit.open(f"{name}.html")
        assert page.locator(".course-slider .noUi-handle").count() >= 1, f"{name} has no slider"
        before = shown_figure(page)
        page.locator(".course-slider .noUi-handle").first.focus()
        page.keyboard.press("Home")
        page.wait_for_timeout(200)
        start = shown_figure(page)
        page.keyboard.press("End")
        page.wait_for_timeout(200)
        assert len({before, start, shown_figure(page)}) >= 2, f"{name}: the slider moves nothing"
        assert page.locator(".course-quiz .Quiz").count() >= 3, f"{name} has fewer than three questions"
        assert visit.problems == []


@everywhere
def test_a_quiz_answers(visit):
    page = visit.open(f"{chapter_with('.course-quiz', visit)}.html")
    question = page.locator(".course-quiz .Quiz").first
    wrong = question.locator('.MCButton[data-correct="false"]').first
    right = question.locator('.MCButton[data-correct="true"]').first
    wrong.click()
    assert re.search(r"\bincorrectButton\b", wrong.get_attribute("class") or "")
    first = question.locator(".Feedback").inner_text()
    assert first.strip()
    right.click()
    assert re.search(r"\bcorrectButton\b", right.get_attribute("class") or "")
    assert question.locator(".Feedback").inner_text() not in ("", first)
    assert visit.problems == []


@pytest.mark.parametrize("alias", ["KV cache", "nucleus sampling", "log-sum-exp"])
def test_search_finds_a_glossary_term_by_any_of_its_names(visit, alias):
    page = visit.open(f"search.html?q={alias.replace(' ', '+')}")
    page.wait_for_selector("ul.search li a", timeout=20_000)
    targets = [link.get_attribute("href") for link in page.locator("ul.search li a").all()]
    assert any("glossary.html" in target for target in targets), targets
    assert visit.problems == []


def test_each_chapter_offers_its_notebook(visit):
    for name in (name for name in PAGES if name.startswith("chapters/")):
        page = visit.open(f"{name}.html")
        line = page.locator(".course-chapter-line")
        assert "points" in line.inner_text() and "exercise" in line.inner_text()
        with page.expect_download() as download:
            line.locator("a").click()
        file = Path(download.value.path())
        assert download.value.suggested_filename == f"{Path(name).name}.ipynb"
        notebook = json.loads(file.read_text(encoding="utf-8"))
        assert any("nbgrader" in cell["metadata"] for cell in notebook["cells"])
        assert all(not cell.get("outputs") for cell in notebook["cells"])


def test_keyboard_reaches_the_text_and_the_search(visit):
    page = visit.open("intro.html")
    page.keyboard.press("Tab")
    skip = page.evaluate("document.activeElement.innerText")
    assert "Skip to main content" in skip
    page.keyboard.press("Control+k")
    page.wait_for_timeout(200)
    assert page.evaluate("document.activeElement.getAttribute('type')") == "search"
