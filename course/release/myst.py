"""MyST Markdown to the plain Markdown that every notebook front end renders.

The book reads MyST: directives, roles, labels. JupyterLab, VS Code and Colab do not. Block
constructs are found by markdown-it, so that code blocks and mathematics stay as they are; roles
and links are then rewritten in the lines that remain.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin

from course import paths
from course.errors import CourseError

DIRECTIVE = re.compile(r"\{([\w:.-]+)\}[ \t]*(.*)")
OPTION = re.compile(r":([\w-]+):[ \t]*(.*)")
ROLE = re.compile(r"\{([\w:.-]+)\}$")
SHOWN_AND_TARGET = re.compile(r"(.*?)\s*<([^<>]+)>", re.DOTALL)
LINK = re.compile(r"(?<!!)\[((?:`[^`]*`|[^\[\]`])*)\]\(([^()\s]+)\)")
LABELLED_HEADING = re.compile(r"^\(([^()\s]+)\)=[ \t]*\n+#+[ \t]+(.+?)[ \t]*$", re.MULTILINE)
SHIPPED_PAGES = ("glossary", "conventions")


@dataclass(frozen=True)
class Place:
    """What a label or a page name stands for: its title and the page (a file's stem) it is on."""

    page: str
    title: str


def is_chapter(page: str) -> bool:
    """True for a chapter's file stem, which has a notebook in the workspace."""
    return (paths.CHAPTERS / f"{page}.md").is_file()


def places() -> dict[str, Place]:
    """Every label that stands before a heading, and every page, of the whole book."""
    sources = [*sorted(paths.CHAPTERS.glob("*.md")), *sorted(paths.ROOT.glob("*.md"))]
    return dict(_places(tuple((path, path.stat().st_mtime_ns) for path in sources)))


@functools.lru_cache(maxsize=4)
def _places(sources: tuple[tuple[Path, int], ...]) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for path, _ in sources:
        text = path.read_text(encoding="utf-8")
        for label, title in LABELLED_HEADING.findall(text):
            found[label] = Place(path.stem, title)
        heading = re.search(r"^#[ \t]+(.+?)[ \t]*$", text, re.MULTILINE)
        found.setdefault(path.stem, Place(path.stem, heading.group(1) if heading else path.stem))
    return found


@dataclass(frozen=True)
class Work:
    """One entry of references.bib, as a text names it."""

    authors: str
    year: str
    title: str
    url: str | None


def works() -> dict[str, Work]:
    """The bibliography by key; empty where the repository has none."""
    path = paths.ROOT / "references.bib"
    return _works(path, path.stat().st_mtime_ns) if path.is_file() else {}


@functools.lru_cache(maxsize=4)
def _works(path: Path, changed: int) -> dict[str, Work]:
    from pybtex.database import parse_file

    found = {}
    for key, entry in parse_file(str(path), bib_format="bibtex").entries.items():
        names = [" ".join([*person.prelast_names, *person.last_names]) for person in entry.persons.get("author", [])]
        names = [re.sub(r"[{}]", "", name) for name in names]
        fields = {name: re.sub(r"[{}]", "", value) for name, value in entry.fields.items()}
        authors = {0: fields.get("organization", key), 1: "".join(names[:1]), 2: " and ".join(names[:2])}
        doi = fields.get("doi")
        url = fields.get("url") or (f"https://doi.org/{doi}" if doi else None)
        found[key] = Work(
            authors.get(len(names), f"{names[0]} et al." if names else key),
            fields.get("year", "no date"),
            fields.get("title", key),
            url,
        )
    return found


def to_markdown(text: str, page: str) -> str:
    """Convert one piece of MyST text that stands on this page (a file's stem).

    Raises:
        CourseError: the text holds a construct that has no plain form; the message names it.
    """
    return _Converter(page).blocks(text).strip("\n")


class _Converter:
    def __init__(self, page: str) -> None:
        self.page = page
        self.parser = (
            MarkdownIt("commonmark")
            .enable("table")
            .use(colon_fence_plugin)
            .use(myst_block_plugin)
            .use(dollarmath_plugin)
        )

    def error(self, problem: str) -> CourseError:
        return CourseError(f"{self.page}: {problem}, which has no form in a notebook; use another construct")

    # Blocks

    def blocks(self, text: str) -> str:
        lines = text.split("\n")
        replacements: list[tuple[int, int, list[str]]] = []
        for token in self.parser.parse(text):
            if token.map is None:
                continue
            new = self._block(token, lines)
            if new is not None:
                replacements.append((token.map[0], token.map[1], new))
        result: list[str] = []
        prose: list[str] = []

        def finish_prose() -> None:
            if prose:
                result.append(self.inline("\n".join(prose)))
                prose.clear()

        position = 0
        for start, end, new in sorted(replacements, key=lambda item: item[:2]):
            if start < position:
                continue  # inside a block that was replaced as a whole
            prose += lines[position:start]
            finish_prose()
            for block in new:
                indent = re.match(r"[ \t]*", lines[start]).group()  # type: ignore[union-attr] # matches even nothing
                result.append("\n".join(indent + line if line else line for line in block.split("\n")))
                if block and lines[end : end + 1] and lines[end].strip():
                    result.append("")  # a new block needs a line between
            position = end
        prose += lines[position:]
        finish_prose()
        return "\n".join(result)

    def _block(self, token: Token, lines: list[str]) -> list[str] | None:
        """What replaces this block (nothing, where it is dropped); None to leave its lines as prose."""
        assert token.map is not None
        if token.type in ("myst_target", "myst_line_comment", "myst_block_break"):
            return []
        if token.type == "math_block_label":
            return [f"$$\n{token.content.strip()}\n$$"]
        if token.type in ("colon_fence", "fence"):
            directive = DIRECTIVE.match(token.info.strip())
            if directive:
                if not lines[token.map[1] - 1].strip().endswith(token.markup):
                    raise CourseError(
                        f"{self.page}: the block {token.info.strip()!r} is not closed; end it with {token.markup}"
                    )
                new = self._directive(directive.group(1), directive.group(2).strip(), token.content)
                return [new] if new else []
            if token.type == "colon_fence":
                raise self.error(f"a ::: block with the words {token.info.strip()!r}")
        if token.type in ("fence", "code_block", "math_block"):
            # Kept to the letter, without the indentation that a list gave it (added again later).
            start, end = token.map
            indent = re.match(r"[ \t]*", lines[start]).group()  # type: ignore[union-attr] # matches even nothing
            if token.type == "code_block":
                end = max(n for n in range(start, end) if lines[n].strip()) + 1
                token.map = [start, end]
            return ["\n".join(line.removeprefix(indent) for line in lines[start:end])]
        return None

    def _directive(self, name: str, title: str, content: str) -> str | None:
        lines = content.split("\n")
        options: dict[str, str] = {}
        while lines and (match := OPTION.fullmatch(lines[0].strip())):
            options[match.group(1)] = match.group(2)
            lines.pop(0)
        body = "\n".join(lines).strip("\n")
        if name == "dropdown":
            return f"<details>\n<summary>{self._summary(title)}</summary>\n\n{self.blocks(body).strip()}\n\n</details>"
        if name in ("note", "tip", "warning", "important", "seealso"):
            if title:
                body = f"{title}\n{body}"
            return self._quote(name.capitalize().replace("Seealso", "See also"), body)
        if name == "admonition":
            return self._quote(self.inline(title), body)
        if name == "math":
            return f"$$\n{body}\n$$"
        if name == "glossary":
            return self._glossary(body)
        if name == "bibliography":
            return None
        raise self.error(f"a {{{name}}} block")

    def _summary(self, title: str) -> str:
        # Markdown is not read inside <summary>; the little that titles use becomes HTML.
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(self.inline(title), quote=False))

    def _quote(self, title: str, body: str) -> str:
        text = self.blocks(body).strip("\n")
        # A "> " in the middle of a formula would be read as part of it, so a formula takes one line.
        text = re.sub(r"\$\$(.+?)\$\$", lambda m: f"$${' '.join(m.group(1).split())}$$", text, flags=re.DOTALL)
        quoted = [f"> {line}".rstrip() for line in text.split("\n")]
        return "\n".join([f"> **{title}**", ">", *quoted])

    def _glossary(self, body: str) -> str:
        entries: list[str] = []
        terms: list[str] = []
        meaning: list[str] = []

        def finish() -> None:
            if terms:
                names = ", ".join(f"**{term}**" for term in terms)
                entries.append(f"{names}: {self.inline(' '.join(meaning))}")
            terms.clear()
            meaning.clear()

        for line in body.split("\n"):
            if line.strip() and not line[0].isspace():
                if meaning:
                    finish()
                terms.append(line.strip())
            elif line.strip():
                meaning.append(line.strip())
        finish()
        return "\n\n".join(entries)

    # Inline

    def inline(self, text: str) -> str:
        """Rewrite roles and links; code spans stay as they are."""
        pieces: list[str] = []
        position = 0
        for opening in re.finditer(r"`+", text):
            if opening.start() < position:
                continue  # the closing ticks of a span
            closing = re.compile(rf"(?<!`){opening.group()}(?!`)").search(text, opening.end())
            if closing is None:
                continue
            before = text[position : opening.start()]
            role = ROLE.search(before)
            if role:
                content = text[opening.end() : closing.start()]
                pieces += [before[: role.start()], self._role(role.group(1), content)]
            else:
                pieces += [before, text[opening.start() : closing.end()]]
            position = closing.end()
        pieces.append(text[position:])
        return LINK.sub(self._link, "".join(pieces))

    def _role(self, name: str, content: str) -> str:
        roles: dict[str, Callable[[str], str]] = {
            "term": self._term,
            "cite": self._cite_in_parentheses,
            "cite:p": self._cite_in_parentheses,
            "cite:t": self._cite_in_text,
            "ref": self._reference,
            "doc": self._reference,
            "math": lambda formula: f"${formula}$",
        }
        if name not in roles:
            raise self.error(f"the role {{{name}}}`{content}`")
        return roles[name](content)

    def _term(self, content: str) -> str:
        match = SHOWN_AND_TARGET.fullmatch(content)
        return match.group(1) if match else content

    def _works(self, content: str) -> list[Work]:
        known = works()
        keys = [key.strip() for key in content.split(",")]
        missing = [key for key in keys if key not in known]
        if missing:
            raise CourseError(
                f"{self.page}: cites {', '.join(missing)}, which references.bib does not have; add it there"
            )
        return [known[key] for key in keys]

    def _cite_in_parentheses(self, content: str) -> str:
        cited = [_linked(f"{work.authors}, {work.year}", work.url) for work in self._works(content)]
        return f"({'; '.join(cited)})"

    def _cite_in_text(self, content: str) -> str:
        cited = [f"{work.authors} ({_linked(work.year, work.url)})" for work in self._works(content)]
        return cited[0] if len(cited) == 1 else f"{', '.join(cited[:-1])} and {cited[-1]}"

    def _reference(self, content: str) -> str:
        match = SHOWN_AND_TARGET.fullmatch(content)
        shown, target = match.groups() if match else ("", content)
        return self._to_place(shown, target.strip())

    def _link(self, match: re.Match[str]) -> str:
        shown, address = match.groups()
        if re.match(r"[a-z][a-z0-9+.-]*:", address) or address.startswith("attachment:"):
            return match.group()
        file, _, fragment = address.partition("#")
        if file.endswith(".md"):
            return self._to_place(shown, Path(file).stem)
        if not file and fragment:
            return self._to_place(shown, fragment)
        if not file.endswith(".ipynb"):
            raise CourseError(f"{self.page}: the link {address!r} leads to no page of the book; correct it")
        return match.group()

    def _to_place(self, shown: str, target: str) -> str:
        """Text for a reference: a link where the page is in the workspace, plain words elsewhere."""
        place = places().get(target.removeprefix("/").split("/")[-1])
        if place is None:
            raise CourseError(f"{self.page}: refers to {target!r}, which no page or labelled heading has; correct it")
        shown = shown or self._plain(place.title)
        if place.page == self.page:
            return shown
        if is_chapter(place.page):
            return f"[{shown}]({place.page}.ipynb)"
        return f"[{shown}]({place.page}.md)" if place.page in SHIPPED_PAGES else shown

    def _plain(self, title: str) -> str:
        return re.sub(r"\{[\w:]+\}`([^`<]*?)(?:\s*<[^>]*>)?`", r"\1", title)


def _linked(text: str, url: str | None) -> str:
    return f"[{text}]({url})" if url else text
