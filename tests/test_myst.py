"""MyST Markdown becomes plain Markdown that any notebook front end renders."""

from __future__ import annotations

from pathlib import Path

import pytest

from course import paths
from course.errors import CourseError
from course.release import myst

CHAPTER_ONE = """(one)=
# The first chapter

(one-part)=
## A part of {term}`it`
"""
BIBLIOGRAPHY = """
@article{alpha, author = {van der Berg, Anna}, title = {A}, year = {1999}, doi = {10.1/x}}
@article{beta, author = {Stone, Bo and Hill, Cy}, title = {B}, year = {2001}}
@article{gamma, author = {Lake, Di and Wood, Ed and Moor, Flo}, title = {C}, year = {2010}, url = {https://c.example}}
"""


@pytest.fixture(autouse=True)
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A book of two chapters with a bibliography, a glossary and a page that is not shipped."""
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters/01_one.md").write_text(CHAPTER_ONE, encoding="utf-8")
    (tmp_path / "chapters/02_two.md").write_text("# The second\n", encoding="utf-8")
    (tmp_path / "glossary.md").write_text("# Glossary\n", encoding="utf-8")
    (tmp_path / "instructors.md").write_text("# For instructors\n", encoding="utf-8")
    (tmp_path / "references.bib").write_text(BIBLIOGRAPHY, encoding="utf-8")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "CHAPTERS", tmp_path / "chapters")


def convert(text: str) -> str:
    return myst.to_markdown(text, "02_two")


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("{term}`softmax` and {term}`the keys <key>`", "softmax and the keys"),
        ("as shown {cite:p}`alpha`.", "as shown ([van der Berg, 1999](https://doi.org/10.1/x))."),
        ("{cite:p}`beta,gamma`", "(Stone and Hill, 2001; [Lake et al., 2010](https://c.example))"),
        ("{cite:t}`gamma` found", "Lake et al. ([2010](https://c.example)) found"),
        ("{cite:t}`alpha,beta`", "van der Berg ([1999](https://doi.org/10.1/x)) and Stone and Hill (2001)"),
        ("see {doc}`01_one`", "see [The first chapter](01_one.ipynb)"),
        ("see {doc}`this <01_one>`", "see [this](01_one.ipynb)"),
        ("see {ref}`one-part`", "see [A part of it](01_one.ipynb)"),
        ("see {ref}`there <one-part>`", "see [there](01_one.ipynb)"),
        ("[that](01_one.md)", "[that](01_one.ipynb)"),
        ("[that](01_one.md#part)", "[that](01_one.ipynb)"),
        ("[](01_one.md)", "[The first chapter](01_one.ipynb)"),
        ("[words](../glossary.md)", "[words](glossary.md)"),
        ("[them](../instructors.md)", "them"),
        ("[out](https://a.example/b.md)", "[out](https://a.example/b.md)"),
        ("[this page](02_two.md)", "this page"),
        ("a {math}`x^2` b", "a $x^2$ b"),
        ("`{term}` and ``{term}`x` `` stay", "`{term}` and ``{term}`x` `` stay"),
        ("$a_{i}$ `code` $b$", "$a_{i}$ `code` $b$"),
        ("(here)=\n## Title", "## Title"),
        ("% a comment\ntext", "text"),
        ("$$\nx = 1\n$$ (eq-x)", "$$\nx = 1\n$$"),
        ("| a | b |\n|---|---|\n| {term}`x` | y |", "| a | b |\n|---|---|\n| x | y |"),
        ("```python\n{term}`x`\n:::{tip}\n```", "```python\n{term}`x`\n:::{tip}\n```"),
        (":::{note}\nText.\n:::", "> **Note**\n>\n> Text."),
        (":::{admonition} Mind {term}`this`\n:class: warning\nText.\n:::", "> **Mind this**\n>\n> Text."),
        (
            ":::{dropdown} Hint 1 · a `nudge` <3\n:open:\n\nText with {term}`x`.\n:::",
            "<details>\n<summary>Hint 1 · a <code>nudge</code> &lt;3</summary>\n\nText with x.\n\n</details>",
        ),
        (
            "::::{dropdown} Outer\n:::{tip}\n$$\na\n= b\n$$\n:::\n::::",
            "<details>\n<summary>Outer</summary>\n\n> **Tip**\n>\n> $$a = b$$\n\n</details>",
        ),
        (":::{tip}\nText.\n:::\nMore.", "> **Tip**\n>\n> Text.\n\nMore."),
        (":::{dropdown} A\nx\n:::\n\nMore.", "<details>\n<summary>A</summary>\n\nx\n\n</details>\n\nMore."),
        ("- one\n\n  :::{tip}\n  two\n  :::", "- one\n\n  > **Tip**\n  >\n  > two"),
        (
            "```{glossary}\n:sorted:\n\nkey\nname\n  Meaning of {term}`x`,\n  and more.\n\nother\n  Second.\n```",
            "**key**, **name**: Meaning of x, and more.\n\n**other**: Second.",
        ),
    ],
)
def test_conversion(written: str, becomes: str) -> None:
    assert convert(written) == becomes
    assert convert(becomes) == becomes  # plain Markdown stays as it is


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (":::{carousel}\nx\n:::", r"02_two: a \{carousel\} block"),
        ("{keyboard}`x`", r"02_two: the role \{keyboard\}`x`"),
        (":::{tip}\nnever closed", "02_two: the block '{tip}' is not closed"),
        ("{cite:p}`delta`", "cites delta, which references.bib does not have"),
        ("{ref}`nowhere`", "refers to 'nowhere'"),
        ("[x](09_nine.md)", "refers to '09_nine'"),
        ("[x](files/data.csv)", "leads to no page"),
    ],
)
def test_what_has_no_plain_form_is_named(written: str, message: str) -> None:
    with pytest.raises(CourseError, match=message):
        convert(written)
