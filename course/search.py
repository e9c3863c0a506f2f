"""`course search`: the passages of this book nearest in meaning to a question.

The meaning is what all-MiniLM-L6-v2 makes of a text, run by your `Encoder` and your `mean_pool` (chapter 10).
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from course import paths
from course.errors import CourseError

GLOSSARY = "glossary"
PAGES = ("conventions", GLOSSARY)
"""The pages beside the chapters."""
LONGEST = 600
"""Characters of a passage that are read: what it is about stands at its start."""
SHOWN = 160
BATCH = 32

FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
HEADING = re.compile(r"^(#{1,4})[ \t]+(.+?)[ \t]*$", re.MULTILINE)
LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
TERM = re.compile(r"^(\*\*[^\n]+?\*\*): (.+)$", re.MULTILINE)
MARKS = re.compile(r"</?[a-z][^>]*>|[*`>|$]|^-{3,}$", re.MULTILINE)


@dataclass(frozen=True)
class Passage:
    """A section of a page, or an entry of the glossary."""

    page: str
    """The file that it stands in."""
    title: str
    """Its heading under the page's title, or the term."""
    text: str
    """What it says, as plain text."""
    is_opening: bool = False
    """Whether it stands at the top of its page, before the first section."""


class Found(NamedTuple):
    """A passage and how near it is."""

    likeness: float
    """Cosine with the question, at most 1."""
    passage: Passage


def main(question: str, count: int) -> None:
    """Print the nearest pages and glossary entries.

    Raises:
        CourseError: the question is empty, or the encoder's pieces are not written.
    """
    if not question.strip():
        raise CourseError('there is nothing to search for: course search "how do models know word order"')
    embed = _embedder()
    if embed is None:
        raise typer.Exit(1)  # a line above says how to get the weights
    console = Console(highlight=False)
    with console.status("Reading the book"):
        found = rank(question, passages(), embed)
    terms = [one for one in found if Path(one.passage.page).stem == GLOSSARY]
    for heading, near in (("Pages", rank_pages(found)), ("Glossary", terms)):
        console.print(f"[bold]{heading}[/bold]")
        for likeness, passage in near[:count]:
            console.print(f"  {likeness:.2f}  [bold]{escape(passage.title)}[/bold]  {passage.page}", soft_wrap=True)
            console.print(Padding(f"[dim]{escape(_shortened(passage.text))}[/dim]", (0, 0, 0, 8)))


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN].rsplit(" ", 1)[0] + " …"


def rank(question: str, among: Sequence[Passage], embed: Any) -> list[Found]:
    """The passages, the nearest to the question first.

    Args:
        embed: from `n` texts to `n` vectors of length 1, `(n, D)`.
    """
    vectors = embed([question, *(f"{passage.title}. {passage.text}"[:LONGEST] for passage in among)])
    likeness = (vectors[1:] @ vectors[0]).tolist()
    found = [Found(value, passage) for passage, value in zip(among, likeness, strict=True)]
    return sorted(found, key=lambda one: -one.likeness)


def rank_pages(found: Sequence[Found]) -> list[Found]:
    """The nearest passage of each page but the glossary, the nearest page first.

    A page is as near as its nearest passage and its opening, which says what the page is about, on average.
    """
    nearest: dict[str, Found] = {}
    openings: dict[str, float] = {}
    for one in found:  # the nearest first
        if Path(one.passage.page).stem != GLOSSARY:
            nearest.setdefault(one.passage.page, one)
            if one.passage.is_opening:
                openings[one.passage.page] = one.likeness
    pages = [Found((one.likeness + openings.get(page, 0)) / 2, one.passage) for page, one in nearest.items()]
    return sorted(pages, key=lambda one: -one.likeness)


# The book as passages


def passages() -> list[Passage]:
    """Every section of every chapter and page, and every entry of the glossary."""
    return [passage for page, text in _pages() for passage in split(page, text)]


def split(page: str, text: str) -> Iterator[Passage]:
    """The passages of one page of plain Markdown; code and folded hints are left out."""
    text = DETAILS.sub("", FENCED.sub("", text))
    if Path(page).stem == GLOSSARY:
        for terms, meaning in TERM.findall(text):
            yield Passage(page, _plain(terms), _plain(meaning))
        return
    title, headings = "", list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=True):
        section = _plain(heading[2])
        title = section if len(heading[1]) == 1 else title
        if body := _plain(text[heading.end() : end]):
            opening = len(heading[1]) == 1
            yield Passage(page, section if opening else f"{title}: {section}", body, opening)


def _plain(text: str) -> str:
    return " ".join(MARKS.sub("", LINK.sub(r"\1", text)).split())


def _pages() -> Iterator[tuple[str, str]]:
    """Each page's file and its text: the same plain Markdown in the repository and in a workspace."""
    import nbformat

    if paths.is_workspace():
        notebooks = {file.name: nbformat.read(file, as_version=4) for file in sorted(paths.ROOT.glob("[0-9]*.ipynb"))}
        files = [file for page in PAGES if (file := paths.ROOT / f"{page}.md").is_file()]
        texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    else:
        from course import chapters
        from course.release import myst
        from course.release import notebooks as release

        loaded = chapters.all_chapters()
        notebooks = {f"chapters/{chapter.path.name}": release.student_notebook(chapter) for chapter in loaded}
        files = [paths.ROOT / f"{page}.md" for page in PAGES]
        texts = {file.name: myst.to_markdown(file.read_text(encoding="utf-8"), file.stem) for file in files}
    for name, notebook in notebooks.items():
        yield name, "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    yield from texts.items()


# The encoder


def _embedder() -> Any:
    """A function from texts to vectors of length 1, `(n, D)`; None without the weights."""
    paths.make_importable()
    from lib import checkpoints, pieces, pretrained

    folder = pretrained.find_minilm_folder()
    if folder is None:
        return None
    try:
        mean_pool = pieces.take("encoder", "mean_pool", "`course search`")
        with contextlib.redirect_stdout(io.StringIO()):  # which says that the pooler is left out
            encoder = checkpoints.load_pretrained(folder)
        tokenizer = checkpoints.load_tokenizer(folder).tokenizer
    except (checkpoints.CheckpointError, pieces.MissingPiece, ModuleNotFoundError) as error:
        raise CourseError(str(error)) from error
    tokenizer.enable_truncation(256)  # the length that the weights were tuned at
    return lambda texts: _embed(texts, encoder, tokenizer, mean_pool)


def _embed(texts: Sequence[str], encoder: Any, tokenizer: Any, mean_pool: Any) -> Any:
    import torch
    from torch.nn import functional as F

    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # so that batches hold little padding
    vectors: list[Any] = [None] * len(texts)
    tokenizer.enable_padding()
    with torch.no_grad():
        for start in range(0, len(texts), BATCH):
            batch = by_length[start : start + BATCH]
            encoded = tokenizer.encode_batch([texts[i] for i in batch])
            ids, mask = (torch.tensor([getattr(one, part) for one in encoded]) for part in ("ids", "attention_mask"))
            pooled = F.normalize(mean_pool(encoder(ids, attention_mask=mask), mask), dim=-1)
            for i, vector in zip(batch, pooled, strict=True):
                vectors[i] = vector
    return torch.stack(vectors)
