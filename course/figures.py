"""One style for every figure of the book: vector, readable in light and dark, safe for colour blindness.

Figures become inline SVG. Whatever is drawn in `INK` (text, axes, ticks, grid) takes the colour of
the text around it, so one figure serves the light page, the dark page and JupyterLab. Sliders are
drawn frame by frame when the cell runs and need no kernel afterwards.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from IPython.display import HTML, display
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure

# Each colour keeps a contrast of 3 or more against a white and a near-black page, and stays apart
# from the others under simulated protanopia and deuteranopia (tests/test_figures.py measures both).
PALETTE = {
    "query": "#086ab2",
    "key": "#f76612",
    "value": "#20a662",
    "output": "#b401ed",
    "masked": "#5e6481",
    "attended": "#3a9dc7",
    "accent": "#ce0826",
    "neutral": "#8a9399",
}
"""Role to colour, the same in every figure of the book."""

INK = "#0a0b0c"
"""Stands for the colour of the surrounding text; the SVG says `currentColor` in its place."""

STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": False,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.prop_cycle": cycler(
        color=[PALETTE[role] for role in ("query", "key", "value", "output", "accent", "attended", "neutral")]
    ),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlepad": 10,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "grid.alpha": 0.2,
    "grid.color": INK,
    "hatch.color": INK,
    "legend.edgecolor": "none",
    "legend.facecolor": "none",
    "legend.framealpha": 0.0,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "patch.edgecolor": INK,
    "svg.fonttype": "path",  # the same shapes everywhere; the words are in the aria-label
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
"""matplotlib settings, applied when this module is imported."""

matplotlib.rcParams.update(STYLE)


def subplots(rows: int = 1, columns: int = 1, *, size: tuple[float, float] | None = None, **options: Any) -> Any:
    """A figure and its axes, like `matplotlib.pyplot.subplots`, in the book's style.

    Args:
        rows: rows of axes.
        columns: columns of axes.
        size: width and height in inches; by default 5.6 by 3.2 for each row.
        options: passed on to `Figure.subplots` (`sharex`, `width_ratios`, `squeeze`, ...).
    """
    size = size or options.pop("figsize", None) or (5.6, 3.2 * rows)
    figure = Figure(figsize=size)
    return figure, figure.subplots(rows, columns, **options)


def svg(figure: Figure, alt: str, salt: str = "") -> str:
    """The figure as an inline `<svg>` element with a text alternative.

    Args:
        figure: any matplotlib figure.
        alt: what a person who cannot see the figure needs to know; must not be empty.
        salt: tells identical figures on one page apart (the frames of a slider).
    """
    if not alt.strip():
        raise ValueError("alt is empty: say in words what the figure shows")
    # Without a fixed salt matplotlib invents new ids on each run, and the page would differ.
    with matplotlib.rc_context({"svg.hashsalt": "course", "svg.fonttype": "path"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg") :].strip()
    drawing = re.sub(r"\s*<metadata>.*?</metadata>", "", drawing, flags=re.S)
    drawing = re.sub(r"<!--.*?-->\s*", "", drawing, flags=re.S)
    # matplotlib's style sheet says `*`: inline it would reach the whole page, so the tag carries it.
    drawing = re.sub(r"\s*<style.*?</style>", "", drawing, flags=re.S)
    drawing = drawing.replace(INK, "currentColor")
    drawing = _own_ids(drawing, hashlib.sha256((salt + alt + drawing).encode()).hexdigest()[:8])
    return _opening_tag(drawing, alt)


def _own_ids(drawing: str, prefix: str) -> str:
    """Prefix the ids that are referred to and drop the others: one page holds many figures."""
    used = set(re.findall(r'(?:xlink:)?href="#([^"]+)"', drawing)) | set(re.findall(r"url\(#([^)]+)\)", drawing))

    def definition(match: re.Match[str]) -> str:
        return f' id="f{prefix}-{match.group(1)}"' if match.group(1) in used else ""

    drawing = re.sub(r'\sid="([^"]+)"', definition, drawing)
    drawing = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#f{prefix}-\1"', drawing)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#f{prefix}-\1)", drawing)


def _opening_tag(drawing: str, alt: str) -> str:
    """Replace the fixed size by one that shrinks with the page, and add the text alternative."""
    box = re.search(r'viewBox="([^"]+)"', drawing)
    assert box is not None
    width = float(box.group(1).split()[2]) * 4 / 3  # points to CSS pixels
    label = html.escape(alt, quote=True)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box.group(1)}" role="img" aria-label="{label}" '
        f'style="width:{width:.0f}px;max-width:100%;height:auto;stroke-linejoin:round;stroke-linecap:butt">'
    )
    return re.sub(r"\A<svg[^>]*>", lambda _: opening, drawing)


def show(figure: Figure, alt: str) -> None:
    """Display a figure inline. `alt` tells a person who cannot see it what it shows."""
    display(HTML(_frame(svg(figure, alt))))


def _frame(drawing: str) -> str:
    return f'<figure class="course-figure" style="margin:0;text-align:center">{drawing}</figure>'


def slider(
    draw: Callable[[Any], Figure],
    values: Sequence[Any],
    label: str = "value",
    alt: Callable[[Any], str] | str | None = None,
    start: int = 0,
) -> None:
    """Display one figure for each value, chosen by a slider; works on a page without a kernel.

    Args:
        draw: draws the figure of one value. Fix the axes' limits in it, or they jump.
        values: the slider's stops, in order; each is drawn now, so keep to about 20.
        label: the name shown beside the slider.
        alt: the text alternative of a frame: a function of its value, or one text for all.
        start: index of the value shown first.
    """
    import ipywidgets as widgets

    frames = []
    for index, value in enumerate(values):
        said = alt(value) if callable(alt) else f"{alt or label}; {label} = {_written(value)}"
        frames.append(widgets.HTML(_frame(svg(draw(value), said, salt=f"{label} {index}"))))
    stack = widgets.Stack(children=frames, selected_index=start)
    control = widgets.SelectionSlider(
        options=[(_written(value), index) for index, value in enumerate(values)],
        index=start,
        description=label,
        tooltip=label,
        continuous_update=True,
        style={"description_width": "initial"},
        layout={"width": "min(100%, 420px)", "margin": "0 auto"},
    )
    # jslink runs in the browser: the page needs no kernel.
    widgets.jslink((control, "index"), (stack, "selected_index"))
    box = widgets.VBox([control, stack])
    box.add_class("course-slider")
    display(box)


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def ramp(color: str = PALETTE["attended"]) -> LinearSegmentedColormap:
    """A colour map from clear (0) to `color` (1): right on a light page and on a dark one."""
    red, green, blue, _ = to_rgba(color)
    return LinearSegmentedColormap.from_list("ramp", [(red, green, blue, 0.0), (red, green, blue, 1.0)])


def diverging(negative: str = PALETTE["key"], positive: str = PALETTE["query"]) -> LinearSegmentedColormap:
    """A colour map for signed values: one colour below zero, clear at zero, another above."""
    low, high = to_rgba(negative), to_rgba(positive)
    stops = [(*low[:3], 1.0), (*low[:3], 0.0), (*high[:3], 0.0), (*high[:3], 1.0)]
    return LinearSegmentedColormap.from_list("diverging", list(zip([0.0, 0.5, 0.5, 1.0], stops, strict=True)))


def heatmap(
    ax: Axes,
    matrix: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    mask: Any = None,
    title: str = "",
    *,
    values: bool | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: LinearSegmentedColormap | None = None,
) -> QuadMesh:
    """Draw a matrix as a heat map, first row at the top, cells as vectors.

    Args:
        ax: where to draw.
        matrix: a 2-d tensor or array.
        rows: names of the rows (queries), or None for none.
        columns: names of the columns (keys), or None for none.
        mask: as in the book, True = may attend; the cells where it is False are hatched.
        title: the finding, in words.
        values: write each number into its cell; by default when there are at most 64 cells.
        vmin: the value drawn clear; by default 0 for non-negative matrices.
        vmax: the value drawn in full colour; by default the largest.
        cmap: by default `ramp()`, or `diverging()` around zero when there are negative values.
    """
    data = _array(matrix)
    allowed = np.ones(data.shape, dtype=bool) if mask is None else _array(mask).astype(bool)
    shown = np.where(allowed & np.isfinite(data), data, np.nan)
    signed = bool((shown[np.isfinite(shown)] < 0).any())
    largest = float(np.nanmax(np.abs(shown))) if np.isfinite(shown).any() else 1.0
    vmax = (largest or 1.0) if vmax is None else vmax
    vmin = (-vmax if signed else 0.0) if vmin is None else vmin
    mesh = ax.pcolormesh(shown, cmap=cmap or (diverging() if signed else ramp()), vmin=vmin, vmax=vmax)
    ax.invert_yaxis()
    ax.set_aspect("equal")
    _name_cells(ax, rows, columns)
    _hatch(ax, ~allowed)
    if values if values is not None else data.size <= 64:
        for (i, j), value in np.ndenumerate(shown):
            if np.isfinite(value):
                ax.text(j + 0.5, i + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=9)
    if title:
        ax.set_title(title)
    return mesh


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):  # a torch tensor, without importing torch here
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    return np.asarray(values)


def _name_cells(ax: Axes, rows: Sequence[str] | None, columns: Sequence[str] | None) -> None:
    ax.set_xticks(np.arange(len(columns or ())) + 0.5, list(columns or ()))
    ax.set_yticks(np.arange(len(rows or ())) + 0.5, list(rows or ()))
    if columns and max(map(len, columns)) > 3:
        ax.tick_params(axis="x", labelrotation=55)
        for tick in ax.get_xticklabels():
            tick.set(ha="right", rotation_mode="anchor")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _hatch(ax: Axes, masked: np.ndarray) -> None:
    """One diagonal stroke in each masked cell: seen without telling colours apart."""
    for i, j in np.argwhere(masked):
        ax.plot([j + 0.15, j + 0.85], [i + 0.85, i + 0.15], color=PALETTE["masked"], linewidth=1.2)
