"""Quick checks: multiple-choice questions by jupyterquiz, on the built page and in JupyterLab.

The questions need no kernel and ask nothing of the network: jupyterquiz would fetch MathJax from
a content delivery network, so formulas are turned into MathML here instead.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from typing import Any

from IPython.display import HTML, display
from jupyterquiz.dynamic.loader import load_questions_script
from jupyterquiz.dynamic.renderer import build_script, build_styles, render_div

INLINE = re.compile(r"`([^`]+)`|\$([^$]+)\$|\*\*([^*]+)\*\*|\*([^*]+)\*")

COLORS = {
    "--jq-text-color": "#ffffff",
    "--jq-correct-color": "#17703f",
    "--jq-incorrect-color": "#b3261e",
    "--jq-mc-button-bg": "transparent",
    "--jq-mc-button-border": "#808890",
    "--jq-mc-button-inset-shadow": "transparent",
    "--jq-multiple-choice-bg": "transparent",
    "--jq-many-choice-bg": "transparent",
    "--jq-link-color": "inherit",
}

# After jupyterquiz's own rules: the page's colours and sizes, a visible keyboard focus, and marks
# beside the colours so that right and wrong are told apart without seeing them.
STYLE = """<style>
.course-quiz .Quiz { max-width: 44rem; margin: 1.2rem 0; font-size: 1rem; line-height: 1.45; }
.course-quiz .MultipleChoiceQn, .course-quiz .ManyChoiceQn {
  color: inherit; border-left: 4px solid #086ab2; border-radius: 0; padding: 0.2rem 0.9rem; font-weight: 600; }
.course-quiz .Answer { grid-template-columns: 1fr; border-radius: 6px; grid-gap: 0.5rem; }
.course-quiz .MCButton { color: inherit; font-size: 1rem; text-align: left; justify-content: flex-start; gap: 0.5rem;
  margin: 0; border-radius: 6px; }
.course-quiz .MCButton:hover { border-color: currentColor; }
.course-quiz .MCButton:focus-within { outline: 2px solid #3a9dc7; outline-offset: 2px; }
.course-quiz .MCButton.correctButton, .course-quiz .MCButton.incorrectButton { color: #ffffff; }
.course-quiz .MCButton.correctButton::before { content: "\\2713"; }
.course-quiz .MCButton.incorrectButton::before { content: "\\2717"; }
.course-quiz .Feedback { font-size: 1rem; text-align: left; color: inherit; min-height: 1.5em; }
.course-quiz .Quiz code { background: transparent; color: inherit; font-size: 0.95em; }
.course-quiz .sr-only { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap; }
</style>"""


def show(questions: list[dict[str, Any]]) -> None:
    """Display questions with buttons; a click says right or wrong, and why.

    Args:
        questions: dicts `{"question": str, "answers": [{"answer": str, "correct": bool,
            "feedback": str}, ...]}`. Texts may hold `code`, $formulas$, *emphasis* and **strong**.

    Raises:
        ValueError: a question lacks a right or a wrong answer, or an answer lacks its feedback.
    """
    display(HTML(render(questions)))


def render(questions: list[dict[str, Any]]) -> str:
    """The questions as one piece of HTML with its own style and script."""
    prepared = [_prepared(number, question) for number, question in enumerate(questions, 1)]
    # jupyterquiz draws a random id; one made from the questions keeps the page the same each time.
    name = "quiz" + hashlib.sha256(json.dumps(prepared).encode()).hexdigest()[:10]
    prefix, static, url = load_questions_script(prepared, name)
    script = build_script(prefix, static, url, name, load_js=True)
    # Shadowed names switch off what jupyterquiz does with MathJax and its chatter; the address goes too.
    script = re.sub(r"https?://[\w.-]*cdn[^'\"]*", "", script)
    announce = f"document.querySelectorAll('#{name} .Feedback').forEach(f => f.setAttribute('aria-live', 'polite'));"
    box = render_div(name, False, True, False, 1_000_000, 704, 6, "left")
    return (
        f'<div class="course-quiz">{box}</div>{build_styles(name, COLORS)}{STYLE}</div>'
        f"<script>(function () {{ const MathJax = undefined, console = {{log() {{}}, error() {{}}}};\n{_safe(script)}\n"
        f"setTimeout(() => {{ {announce} }}, 300); }})();</script>"
    )


def _safe(script: str) -> str:
    """Keep a `</script>` inside a question's text from ending the script."""
    return script.replace("</", "<\\/")


def _prepared(number: int, question: dict[str, Any]) -> dict[str, Any]:
    answers = question["answers"]
    right = [answer for answer in answers if answer["correct"]]
    if not right or len(right) == len(answers):
        raise ValueError(f"question {number} needs at least one right and one wrong answer")
    for answer in answers:
        if not answer.get("feedback", "").strip():
            raise ValueError(f"question {number}: the answer {answer['answer']!r} has no feedback: say why")
    return {
        "question": rich_text(question["question"]),
        "type": "many_choice" if len(right) > 1 else "multiple_choice",
        "answers": [
            {
                "answer": rich_text(answer["answer"]),
                "correct": bool(answer["correct"]),
                "feedback": rich_text(answer["feedback"]),
            }
            for answer in answers
        ],
    }


def rich_text(text: str) -> str:
    """HTML of a text with `code`, $formula$, *emphasis* and **strong**; all else is literal."""
    pieces, position = [], 0
    for match in INLINE.finditer(text):
        pieces.append(_literal(text[position : match.start()]))
        code, formula, strong, emphasis = match.groups()
        if code is not None:
            pieces.append(f"<code>{_literal(code)}</code>")
        elif formula is not None:
            pieces.append(_mathml(formula))
        elif strong is not None:
            pieces.append(f"<strong>{_literal(strong)}</strong>")
        else:
            pieces.append(f"<em>{_literal(emphasis or '')}</em>")
        position = match.end()
    return "".join([*pieces, _literal(text[position:])])


def _literal(text: str) -> str:
    # jupyterquiz itself gives a meaning to dollars and brackets: hide them from it.
    return html.escape(text).replace("$", "&#36;").replace("[", "&#91;").replace("<http", "&lt;http")


def _mathml(formula: str) -> str:
    from latex2mathml.converter import convert

    return re.sub(r"\[", "&#91;", convert(formula))
