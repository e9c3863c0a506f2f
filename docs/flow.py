"""How a submission flows through grading, as one diagram: `python docs/flow.py` writes docs/flow.svg.

A test compares the file with what this draws, so that the picture cannot fall behind.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

TARGET = Path(__file__).with_name("flow.svg")
INK, PAPER, TRUSTED, CAGED = "#1b1f24", "#ffffff", "#e3eefb", "#fdeee0"
WIDTH, HEIGHT = 2.5, 1.05


@dataclass(frozen=True)
class Box:
    """One step: what it is called, what it does, where it stands."""

    name: str
    does: str
    x: float
    y: float
    fill: str = PAPER


STEPS = (
    Box("course collect", "folder, LMS zip\nor exchange", 0.0, 4.4),
    Box("intake", "JSON, names, size;\nthe cells' text only", 3.2, 4.4),
    Box("nbgrader autograde", "a clean notebook,\nchecks put back", 6.4, 4.4),
    Box("gradebook.db", "partial credit\nfor each exercise", 9.6, 4.4),
    Box("judge", "hidden tests,\nfresh random inputs", 6.4, 2.5),
    Box("feedback, export", "ticks, crosses, hints;\nCSV for the LMS", 9.6, 2.5),
    Box("worker", "the student's lib over\nearlier chapters' reference", 6.4, 0.0),
)
# From, to, what goes along the arrow, and where the words stand relative to its middle.
ARROWS = (
    ("course collect", "intake", "", 0.0),
    ("intake", "nbgrader autograde", "", 0.0),
    ("nbgrader autograde", "judge", "exercise cells", 0.1),
    ("judge", "gradebook.db", "marks", 0.0),
    ("gradebook.db", "feedback, export", "", 0.0),
    ("judge", "worker", "calls", 0.1),
    ("worker", "judge", "values, tensors", 0.1),
)


def draw() -> str:
    """The diagram as SVG, the same bytes every time."""
    settings = {"svg.hashsalt": "flow", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 9}
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **settings}):
        figure = Figure(figsize=(9.6, 5.0), facecolor=PAPER)
        ax = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        ax.set(xlim=(-0.45, 12.6), ylim=(-0.7, 6.3))
        ax.axis("off")
        _zone(ax, (-0.3, 2.05), (12.75, 4.15), TRUSTED, "trusted: the grader's own process")
        _zone(ax, (-0.3, -0.6), (12.75, 2.0), CAGED, "sandbox: bubblewrap, fresh for each submission")
        places = {box.name: box for box in STEPS}
        for box in STEPS:
            _box(ax, box)
        for start, end, words, gap in ARROWS:
            _arrow(ax, places[start], places[end], words, gap)
        ax.text(
            0.0, 0.35, "no network, no files but Python's,\nlimits on memory, time, processes", va="center", color=INK
        )
        ax.text(
            0.0,
            2.95,
            "The tests never cross the wall between the two;\nonly JSON and safetensors do.",
            va="center",
            color=INK,
        )
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, facecolor=PAPER)
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "\n".join(lines) + "\n"


def _zone(ax: Axes, corner: tuple[float, float], size: tuple[float, float], colour: str, title: str) -> None:
    ax.add_patch(
        FancyBboxPatch(corner, *size, boxstyle="round,pad=0,rounding_size=0.15", facecolor=colour, edgecolor="none")
    )
    ax.text(corner[0] + 0.2, corner[1] + size[1] - 0.28, title, weight="bold", color=INK, va="center")


def _box(ax: Axes, box: Box) -> None:
    style = "round,pad=0,rounding_size=0.12"
    ax.add_patch(
        FancyBboxPatch((box.x, box.y), WIDTH, HEIGHT, boxstyle=style, facecolor=box.fill, edgecolor=INK, lw=1.2)
    )
    ax.text(box.x + WIDTH / 2, box.y + 0.8, box.name, ha="center", va="center", weight="bold", color=INK)
    ax.text(box.x + WIDTH / 2, box.y + 0.35, box.does, ha="center", va="center", fontsize=7.5, color=INK)


def _arrow(ax: Axes, start: Box, end: Box, words: str, gap: float) -> None:
    if start.x == end.x:
        # The two directions of the wall's protocol run side by side.
        x = start.x + WIDTH * (
            0.3 if start.name == "judge" else 0.6 if end.name == "judge" and start.y < end.y else 0.5
        )
        tail, head = (
            (x, start.y if start.y > end.y else start.y + HEIGHT),
            (x, end.y + HEIGHT if start.y > end.y else end.y),
        )
        place, side = (x + gap, (tail[1] + head[1]) / 2), "left"
        if words != "values, tensors":
            place, side = (x - gap, place[1]), "right"
    else:
        tail = (start.x + WIDTH, start.y + HEIGHT * (0.75 if end.y > start.y else 0.5))
        head = (end.x, end.y + HEIGHT * (0.25 if end.y > start.y else 0.5))
        place, side = ((tail[0] + head[0]) / 2 - 0.12, (tail[1] + head[1]) / 2 + 0.05), "right"
    ax.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0})
    ax.text(*place, words, ha=side, va="center", fontsize=7.5, color=INK)


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8", newline="\n")
