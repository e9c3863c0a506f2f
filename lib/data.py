"""Text to train on, as bytes. This module is given: no exercise.

With nothing else at hand it is the English text that every Python carries: the articles of `help()`, some
466,000 bytes. A file, a folder of text files or a web address gives a larger corpus.
"""

from __future__ import annotations

import hashlib
import http.client
import math
import os
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

CACHE_VARIABLE = "COURSE_CACHE"
"""Environment variable: the folder that keeps what was downloaded; by default `~/.cache/architecture-ideas`."""

HELD_OUT = 10
"""One byte in this many is held out, by whole documents."""

PART = 1 << 13
"""Bytes of a part: a long text is cut into such parts, so that it too has documents to hold out."""


class DataError(ValueError):
    """A corpus cannot be had; the message says which, why, and what to do."""


class Corpus(NamedTuple):
    """Ids of bytes, 0 to 255, each a tensor of one dimension, int64."""

    train: Tensor
    held_out: Tensor


def corpus(source: str | Path | None = None) -> Corpus:
    """The text to train on, and a tenth of it held out, by whole documents; the same at each call.

    A document that shares a paragraph with another one is never held out.

    Args:
        source: a text file, a folder (its `.txt` and `.md` files, by name), or an address that begins with
            `http://` or `https://`, which is downloaded once and kept. `None` means the text in Python itself.

    Raises:
        DataError: there is nothing to read, or too little of it; the message names the source.
    """
    train: list[bytes] = []
    held_out: list[bytes] = []
    seen = kept = 0
    documents = _documents(source)
    copies = Counter(passage for document in documents for passage in _passages(document))
    for document in documents:
        seen += len(document)
        # A passage that stands in another document too would be trained on, and then be no test.
        its_own = all(copies[passage] == 1 for passage in _passages(document))
        if its_own and HELD_OUT * (kept + len(document)) <= seen:
            held_out.append(document)
            kept += len(document)
        else:
            train.append(document)
    if not held_out:
        raise DataError(f"{source}: too little text to hold a tenth of it out: {seen:,} bytes")
    return Corpus(_ids(train), _ids(held_out))


def random_batch(ids: Tensor, batch: int, T: int, generator: torch.Generator | None = None) -> Tensor:
    """`batch` pieces of `T` ids, from random places of a text: `(N,) -> (B, T)`.

    Raises:
        ValueError: the text is shorter than `T`.
    """
    if len(ids) < T:
        raise ValueError(f"the text has {len(ids)} ids: too few for pieces of {T}")
    starts = torch.randint(len(ids) - T + 1, (batch, 1), generator=generator)
    return ids[starts + torch.arange(T)]


def bits_per_byte(nats: float) -> float:
    """A loss per byte in nats, as cross-entropy gives it, in bits: divided by the natural logarithm of 2."""
    return nats / math.log(2)


def _passages(document: bytes) -> set[bytes]:
    """The paragraphs of a document, but for short ones, which recur by chance."""
    return {passage for passage in document.split(b"\n\n") if len(passage) > 80}


def _ids(documents: list[bytes]) -> Tensor:
    return torch.frombuffer(bytearray(b"\n".join(documents)), dtype=torch.uint8).long()


def _documents(source: str | Path | None) -> list[bytes]:
    if source is None:
        from pydoc_data.topics import topics

        return [topics[name].encode("utf-8") for name in sorted(topics)]
    if str(source).startswith(("http://", "https://")):
        return _parts(_downloaded(str(source)).read_bytes())
    path = Path(source).expanduser()
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.suffix in (".txt", ".md") and file.is_file()]
        if not files:
            raise DataError(f"{path}: no .txt or .md file in this folder")
        return [part for file in files for part in _parts(file.read_bytes())]
    if not path.is_file():
        raise DataError(f"{path}: no such file or folder")
    return _parts(path.read_bytes())


def _parts(text: bytes) -> list[bytes]:
    return [text[start : start + PART] for start in range(0, len(text), PART)]


def _downloaded(url: str) -> Path:
    """The file that holds what is at this address; downloaded where it is not kept yet."""
    folder = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "architecture-ideas")
    path = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.txt"
    if path.is_file():
        return path
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        raise DataError(f"{url}: the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(f"{url}: cannot be downloaded ({reason}); without a network, name a file") from error
    folder.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)  # there whole, or not at all
    return path
