"""The book's logo: a causal attention pattern. `python -m course.book.logo` writes it."""

from __future__ import annotations

from pathlib import Path

from course.figures import PALETTE

LOGO = Path(__file__).resolve().parent / "static" / "logo.svg"

SIZE = 4  # tokens
CELL = 22
GAP = 4
# How much each token (row) attends to each token up to itself (column): it always includes itself.
OPACITY = ((1.0,), (0.45, 1.0), (0.3, 0.75, 1.0), (0.6, 0.3, 0.45, 1.0))


def draw() -> str:
    """The logo as SVG: a lower triangle of squares, the diagonal in its own colour."""
    side = SIZE * (CELL + GAP) - GAP
    squares = []
    for i in range(SIZE):
        for j in range(SIZE):
            place = f'x="{j * (CELL + GAP)}" y="{i * (CELL + GAP)}" width="{CELL}" height="{CELL}" rx="4"'
            if j > i:
                squares.append(f'  <rect {place} fill="{PALETTE["neutral"]}" fill-opacity="0.25"/>')
            else:
                color = PALETTE["key"] if i == j else PALETTE["query"]
                squares.append(f'  <rect {place} fill="{color}" fill-opacity="{OPACITY[i][j]}"/>')
    body = "\n".join(squares)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-4 -4 {side + 8} {side + 8}">\n{body}\n</svg>\n'


if __name__ == "__main__":
    LOGO.parent.mkdir(exist_ok=True)
    LOGO.write_text(draw(), encoding="utf-8")
