"""What a student reads under a graded cell: every property with a tick or a cross, and the hint.

Whatever comes from a submission (messages, values, names) is text here: escaped, shortened, on few
lines. The marks stand in the last output, because that is where nbgrader looks for them.
"""

from __future__ import annotations

import html
import math
import re
from typing import TYPE_CHECKING

import nbformat
from nbformat import NotebookNode

from course.chapters import Chapter, Exercise

if TYPE_CHECKING:
    from course.grading.verdict import ExerciseVerdict, PropertyVerdict, Verdict

LONGEST = 1_000  # characters of a message
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def outputs(verdict: Verdict, chapter: Chapter) -> dict[str, list[NotebookNode]]:
    """The outputs of the chapter's graded cells, by grade_id; those without a verdict are left out."""
    judged = {found.id: found for found in verdict.exercises}
    return {
        exercise.check_id: _exercise(judged[exercise.id], exercise)
        for exercise in chapter.exercises
        if exercise.id in judged
    }


def nothing(reason: str) -> list[NotebookNode]:
    """The outputs of a cell that earned nothing, for this reason."""
    return _pair(f"<div><strong>✗ {_html(reason)}</strong></div>", f"✗ {clean(reason)}", 0.0)


def marks(earned: float) -> str:
    """A mark as people write it: 4, 3.5, 2.67."""
    return f"{earned:.2f}".rstrip("0").rstrip(".")


def clean(text: str) -> str:
    """Text from outside made fit to print: no control characters, not endless."""
    text = CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.strip())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def one_line(text: str) -> str:
    """The same, for a line on the terminal: a file's name can hold escape codes, or bytes that are no text."""
    return clean(text).replace("\n", " ")


def _html(text: str) -> str:
    escaped = html.escape(clean(text)).replace("\n", " ")
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)


def _exercise(found: ExerciseVerdict, exercise: Exercise) -> list[NotebookNode]:
    earned = found.earned
    if not (math.isfinite(earned) and 0 <= earned <= exercise.points + 1e-9) or found.points != exercise.points:
        return nothing("The grader's result makes no sense for this exercise; tell your instructor.")
    earned = min(round(earned, 6), exercise.points)
    head = f"{exercise.id}: {marks(earned)} of {marks(exercise.points)} points"
    rows = [f'<div class="verdict"><strong>{_html(head)}</strong>']
    lines = [head]
    if found.problem:
        rows.append(f"<div>✗ {_html(found.problem)}</div>")
        lines.append(f"✗ {clean(found.problem)}")
    if found.properties:
        rows.append("<ul>")
        for entry in found.properties:
            rows.append(_property_html(entry))
            lines += _property_text(entry)
        rows.append("</ul>")
    rows.append("</div>")
    return _pair("\n".join(rows), "\n".join(lines), earned)


def _property_html(entry: PropertyVerdict) -> str:
    if entry.passed:
        return f'<li class="passed">✓ {_html(entry.says)}</li>'
    seen = f"<div>Seen: <code>{_html(entry.message)}</code></div>" if entry.message else ""
    hint = f"<div>Hint: {_html(entry.hint)}</div>" if entry.hint else ""
    return f'<li class="failed">✗ <strong>{_html(entry.says)}</strong>{seen}{hint}</li>'


def _property_text(entry: PropertyVerdict) -> list[str]:
    if entry.passed:
        return [f"✓ {clean(entry.says)}"]
    lines = [f"✗ {clean(entry.says)}"]
    if entry.message:
        lines.append(f"    seen: {clean(entry.message)}")
    if entry.hint:
        lines.append(f"    hint: {clean(entry.hint)}")
    return lines


def _pair(page: str, text: str, earned: float) -> list[NotebookNode]:
    shown = nbformat.v4.new_output("display_data", data={"text/html": page, "text/plain": text})
    # nbgrader takes the first execute_result's text/plain, as a number, for the partial credit.
    credit = nbformat.v4.new_output("execute_result", data={"text/plain": repr(float(earned))}, execution_count=None)
    return [shown, credit]
