"""Figures: colours that everyone can tell apart, SVG that is safe inline, frames without a kernel."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from course import figures, quizzes

LIGHT, DARK = "#ffffff", "#14181e"  # the page backgrounds of the theme; JupyterLab's dark one is #111111

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
RGB_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(color: str) -> np.ndarray:
    channel = np.array(to_rgb(color))
    return np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(RGB_TO_XYZ[1] @ linear(color)) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(color: str, sight: str) -> np.ndarray:
    seen = np.clip(SIGHT[sight] @ linear(color), 0, 1)
    x, y, z = (RGB_TO_XYZ @ seen) / np.array([0.95047, 1.0, 1.08883])
    fx, fy, fz = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def test_the_measures_themselves():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    # The classic confusion: this red and this green differ for full sight and not for deuteranopia.
    red, green = "#a33c1e", "#5f5f14"
    near = np.linalg.norm(lab(red, "deuteranopia") - lab(green, "deuteranopia"))
    assert near < 0.5 * np.linalg.norm(lab(red, "full") - lab(green, "full"))


@pytest.mark.parametrize("background", [LIGHT, DARK, "#111111"])
@pytest.mark.parametrize("role", figures.PALETTE)
def test_every_colour_stands_out_on_light_and_dark(role, background):
    assert contrast(figures.PALETTE[role], background) >= 3.0  # WCAG 2.2, 1.4.11, for graphics


@pytest.mark.parametrize("sight", SIGHT)
def test_roles_are_told_apart_with_any_sight(sight):
    for one, other in itertools.combinations(figures.PALETTE, 2):
        distance = np.linalg.norm(lab(figures.PALETTE[one], sight) - lab(figures.PALETTE[other], sight))
        assert distance >= 20, f"{one} and {other} look alike with {sight}: {distance:.1f}"


def line_figure():
    figure, ax = figures.subplots()
    ax.plot([0, 1, 2], [0, 1, 4], label="square")
    ax.set_title("Squares grow")
    ax.grid(True)
    ax.legend()
    return figure


def test_svg_follows_the_page_and_says_what_it_shows():
    drawing = figures.svg(line_figure(), alt='a curve called "square" & more')
    root = ET.fromstring(drawing)
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'a curve called "square" & more'
    assert "currentColor" in drawing
    assert figures.INK not in drawing
    assert "<style" not in drawing  # inline, its rules would reach the whole page
    colors = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawing))
    assert colors == {figures.PALETTE["query"]}  # nothing but the curve has a colour of its own


def test_svg_is_the_same_each_time():
    assert figures.svg(line_figure(), alt="x") == figures.svg(line_figure(), alt="x")
    assert not re.search(r"20\d\d-\d\d", figures.svg(line_figure(), alt="x"))


def test_ids_of_figures_on_one_page_do_not_clash():
    def ids(drawing):
        return set(re.findall(r' id="([^"]+)"', drawing))

    one, other = figures.svg(line_figure(), alt="one"), figures.svg(line_figure(), alt="other")
    assert ids(one) and ids(other) and not ids(one) & ids(other)
    same = [figures.svg(line_figure(), alt="one", salt=str(frame)) for frame in range(2)]
    assert not ids(same[0]) & ids(same[1])
    for drawing in (one, other, *same):
        used = set(re.findall(r'href="#([^"]+)"', drawing)) | set(re.findall(r"url\(#([^)]+)\)", drawing))
        assert used == ids(drawing)


def test_a_figure_without_words_is_refused():
    with pytest.raises(ValueError, match="alt"):
        figures.svg(line_figure(), alt="  ")


def test_slider_draws_its_frames_and_links_without_a_kernel(monkeypatch):
    import ipywidgets

    shown: list[Any] = []
    links: list[Any] = []
    monkeypatch.setattr(figures, "display", shown.append)
    monkeypatch.setattr(ipywidgets, "jslink", lambda source, target: links.append((source, target)))

    def draw(value):
        figure, ax = figures.subplots()
        ax.bar([0], [value])
        ax.set_ylim(0, 3)
        return figure

    figures.slider(draw, [0.5, 1.0, 2.0], label="height", alt=lambda v: f"a bar {v} high", start=1)
    (box,) = shown
    control, stack = box.children
    assert stack.selected_index == control.index == 1
    assert [name for name, _ in control.options] == ["0.5", "1", "2"]
    labels = [re.findall(r'aria-label="([^"]+)"', frame.value)[0] for frame in stack.children]
    assert labels == ["a bar 0.5 high", "a bar 1.0 high", "a bar 2.0 high"]
    assert len({frame.value for frame in stack.children}) == 3
    assert links == [((control, "index"), (stack, "selected_index"))]


def test_heatmap_is_vector_and_hatches_what_is_masked():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]])
    allowed = torch.ones(2, 3).tril().bool()
    figure, ax = figures.subplots()
    mesh = figures.heatmap(ax, weights, ["a", "b"], ["a", "b", "c"], mask=allowed, title="t")
    assert [text.get_text() for text in ax.texts] == ["1.00", "0.25", "0.75"]
    assert len(ax.lines) == int((~allowed).sum()) == 3
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b", "c"]
    assert ax.yaxis_inverted()  # the first row at the top
    assert int(np.ma.getmaskarray(np.ma.masked_invalid(np.ma.asarray(mesh.get_array()))).sum()) == 3
    assert "<image" not in figures.svg(figure, alt="weights")


QUESTION: dict[str, Any] = {
    "question": "What is $x^2$ in `x[0] < 1`?",
    "answers": [
        {"answer": "*right*", "correct": True, "feedback": "because </script> $\\frac{1}{2}$"},
        {"answer": "**wrong**", "correct": False, "feedback": "no"},
    ],
}


def test_quiz_needs_no_other_server_and_is_the_same_each_time():
    page = quizzes.render([QUESTION])
    assert page == quizzes.render([QUESTION])
    outside = set(re.findall(r"https?://[\w.-]+", page)) - {"http://www.w3.org"}
    assert not outside
    assert page.count("</script>") == 1


def test_quiz_texts_hold_code_formulas_and_emphasis():
    html = quizzes.rich_text(QUESTION["question"])
    assert "<msup>" in html and "<code>x&#91;0] &lt; 1</code>" in html and "$" not in html
    assert quizzes.rich_text("*a* **b** 2 < 3") == "<em>a</em> <strong>b</strong> 2 &lt; 3"


@pytest.mark.parametrize("spoil", ["no right answer", "no wrong answer", "no feedback"])
def test_quiz_refuses_a_question_that_teaches_nothing(spoil):
    question = json.loads(json.dumps(QUESTION))
    if spoil == "no feedback":
        question["answers"][1]["feedback"] = " "
    else:
        for answer in question["answers"]:
            answer["correct"] = spoil == "no wrong answer"
    with pytest.raises(ValueError, match="question 1"):
        quizzes.render([question])
