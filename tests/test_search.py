"""`course search`: the book as passages, and the ones nearest in meaning first."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from course import chapters, paths, search
from course.errors import CourseError
from lib import pretrained
from lib.pieces import MissingPiece
from tests import released

PAGE = """\
# Softmax

**The question.** How do [scores](01_softmax.ipynb) become *weights*?

## Build it

Two pieces.

```python
x = 1  # code says nothing to a reader of prose
```

### Exercise 1

Divide by the sum.

<details><summary>Hint</summary>

Look at `dim`.

</details>
"""


def test_a_page_is_split_at_its_headings_without_code_and_hints() -> None:
    assert list(search.split("01_softmax.ipynb", PAGE)) == [
        search.Passage("01_softmax.ipynb", "Softmax", "The question. How do scores become weights?", is_opening=True),
        search.Passage("01_softmax.ipynb", "Softmax: Build it", "Two pieces."),
        search.Passage("01_softmax.ipynb", "Softmax: Exercise 1", "Divide by the sum."),
    ]


def test_the_glossary_is_split_at_its_entries() -> None:
    text = "# Glossary\n\nTerms.\n\n**key**: What a token *advertises*.\n\n**head**, **attention head**: One pattern.\n"
    assert list(search.split("glossary.md", text)) == [
        search.Passage("glossary.md", "key", "What a token advertises."),
        search.Passage("glossary.md", "head, attention head", "One pattern."),
    ]


def test_the_whole_book_is_read() -> None:
    passages = search.passages()
    openings = {passage.page for passage in passages if passage.is_opening}
    assert openings >= {f"chapters/{chapter.path.name}" for chapter in chapters.all_chapters()}
    terms = [passage for passage in passages if passage.page == "glossary.md"]
    source = (paths.ROOT / "glossary.md").read_text(encoding="utf-8")
    assert len(terms) == len(re.findall(r"^\S.*\n  \S", source.split("```{glossary}")[1], flags=re.MULTILINE))
    assert all(passage.text and "```" not in passage.text and "{term}" not in passage.text for passage in passages)


def test_a_workspace_holds_the_same_passages(tmp_path: Path) -> None:
    texts = []
    for folder in (paths.ROOT, released.unpack(tmp_path)):
        script = (
            "from pathlib import Path; from course import search\n"
            "print([(Path(p.page).stem, p.title, p.text) for p in search.passages()])"
        )
        done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1]


def by_words(texts: Sequence[str]) -> Tensor:
    """Vectors that count words, so that texts with the same words are alike."""
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    counts = [[text.lower().split().count(word) for word in words] for text in texts]
    return F.normalize(torch.tensor(counts, dtype=torch.float32) + 1e-6, dim=-1)


def test_the_nearest_passage_is_first_and_a_page_counts_for_what_it_is_about() -> None:
    passages = [
        search.Passage("a", "A", "cats and dogs", is_opening=True),
        search.Passage("a", "A: x", "word order matters"),
        search.Passage("b", "B", "order of words matters", is_opening=True),
        search.Passage("b", "B: x", "word order matters here"),
        search.Passage("glossary.md", "order", "word order"),
    ]
    found = search.rank("word order matters", passages, by_words)
    assert found[0].passage.title == "A: x"
    assert [one.likeness for one in found] == sorted((one.likeness for one in found), reverse=True)
    assert [one.passage.page for one in search.rank_pages(found)] == ["b", "a"]


def test_an_empty_question_is_refused() -> None:
    with pytest.raises(CourseError, match="nothing to search for"):
        search.main("  ", 3)


def test_without_the_weights_one_line_says_how_to_get_them() -> None:
    script = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        f"hidden = {pretrained.PACKAGE!r}\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == hidden else find(name, *rest)\n"
        "sys.argv = ['course', 'search', 'word order']\n"
        "from course.cli import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=paths.ROOT, capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [pretrained.HOW_TO_GET_MINILM] and done.stderr == ""


def test_an_unwritten_encoder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, name: str, needed_by: str) -> None:
        raise MissingPiece(f"{needed_by} needs {name} of chapter 10")

    monkeypatch.setattr(pretrained, "find_minilm_folder", lambda: paths.ROOT)
    monkeypatch.setattr("lib.pieces.take", missing)
    with pytest.raises(CourseError, match="`course search` needs mean_pool of chapter 10"):
        search.main("word order", 3)


@pytest.mark.skipif(
    importlib.util.find_spec(pretrained.PACKAGE) is None, reason="the weights of all-MiniLM-L6-v2 are not installed"
)
def test_word_order_is_found_by_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    search.main("how do models know word order", 1)
    pages, terms = capsys.readouterr().out.split("Glossary")
    assert "chapters/04_positional_encoding.md" in pages
    assert "positional encoding" in terms
