"""Diagrams of the book's own pages, drawn by code."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course import figures

PARTS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII")

PART_TITLES = {
    "I": "The attention layer",
    "II": "The block",
    "III": "Models that work",
    "IV": "Going long",
    "V": "Sparse experts",
    "VI": "Without attention",
    "VII": "Another way to write",
    "VIII": "Down to the metal",
}


@dataclass(frozen=True)
class Piece:
    """One box of the map: an idea, and the part of the book that builds it."""

    label: str
    part: str


# What a model does with a token, from the bottom up, and the pieces that do it.
JOBS: tuple[tuple[str, tuple[Piece, ...]], ...] = (
    ("read", (Piece("tokens and\nembeddings", "I"),)),
    ("place", (Piece("added\npositions", "I"), Piece("rotary\npositions", "III"), Piece("stretched\npositions", "IV"))),
    (
        "mix",
        (
            Piece("attention\nheads", "I"),
            Piece("shared keys,\ncache", "III"),
            Piece("sliding\nwindow", "IV"),
            Piece("state space,\nMamba", "VI"),
            Piece("Flash-\nAttention", "VIII"),
        ),
    ),
    ("join", (Piece("norm and\nresidual", "II"), Piece("stack of\nblocks", "II"))),
    ("think", (Piece("feed-\nforward", "II"), Piece("experts and\nrouter", "V"))),
    (
        "write",
        (Piece("next\ntoken", "III"), Piece("fill in\nblanks", "III"), Piece("a whole\ndraft", "VII")),
    ),
)


def course_map(part: str) -> Figure:
    """The pieces of the model: those built by the end of a part, and those of the part itself."""
    now = PARTS.index(part)
    figure, ax = figures.subplots(size=(5.0, 4.3))
    ax.set(xlim=(-0.75, 5.75), ylim=(-0.1, 6.1))
    ax.axis("off")
    ax.set_title(f"Part {part} · {PART_TITLES[part]}")
    ax.annotate(
        "", xy=(-0.68, 6.0), xytext=(-0.68, 0.1), arrowprops={"arrowstyle": "->", "color": figures.INK, "lw": 1.2}
    )
    for row, (job, pieces) in enumerate(JOBS):
        ax.text(0.0, row + 0.45, job, ha="center", va="center", style="italic")
        for column, piece in enumerate(pieces):
            _box(ax, 0.42 + column * 1.06, row + 0.05, piece.label, PARTS.index(piece.part) - now)
    return figure


def _box(ax: Axes, x: float, y: float, label: str, distance: int) -> None:
    """One piece: dashed while it lies ahead, bright in its own part, filled afterwards."""
    color = figures.PALETTE["neutral" if distance > 0 else "key" if distance == 0 else "attended"]
    patch = FancyBboxPatch(
        (x, y),
        1.0,
        0.8,
        boxstyle="round,pad=0,rounding_size=0.1",
        facecolor=(color, 0.0 if distance > 0 else 0.3),
        edgecolor=color,
        linestyle="--" if distance > 0 else "-",
        linewidth=2.4 if distance == 0 else 1.2,
    )
    ax.add_patch(patch)
    ax.text(x + 0.5, y + 0.4, label, ha="center", va="center", fontsize=7.8, alpha=0.65 if distance > 0 else 1.0)


def course_map_in_words(part: str) -> str:
    """The text alternative of `course_map`."""
    now = PARTS.index(part)

    def listed(wanted: range) -> str:
        pieces = [piece for _, row in JOBS for piece in row if PARTS.index(piece.part) in wanted]
        return ", ".join(p.label.replace("-\n", "-").replace("\n", " ") for p in pieces) or "nothing"

    return (
        f"Map of the model after part {part}, {PART_TITLES[part]}. Built in this part: {listed(range(now, now + 1))}. "
        f"Built before: {listed(range(now))}. Still ahead: {listed(range(now + 1, len(PARTS)))}."
    )
