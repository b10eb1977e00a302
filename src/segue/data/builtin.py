"""Corpora that every machine with Python has: the language reference's English, and the standard library's source."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from segue.data.ledger import Ledger
from segue.data.shapes import ANSWERS, LABELLED, PARALLEL, TAGGED, TEXT, Shape
from segue.errors import InputError

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__", "pydoc_data"}
MADE = ("grammar", "clauses", "copy", "tones", "shapes")
"""Corpora that are made, not read, a sentence a line: their best possible score is known."""


class Row(NamedTuple):
    """One line of the table of corpora."""

    name: str
    shapes: tuple[Shape, ...]
    about: str


def describe() -> list[Row]:
    """What `segue data` shows."""
    return [
        Row(
            "pydoc",
            (TEXT,),
            "the English of Python's language reference (module pydoc_data), each paragraph once; one document",
        ),
        Row("stdlib", (TEXT,), "the source of Python's standard library; a module a document"),
        Row(
            "grammar",
            (TEXT, LABELLED, TAGGED, PARALLEL, ANSWERS),
            "sentences from a grammar whose best possible score is known",
        ),
        Row("clauses", (PARALLEL,), "one to four sentences of the grammar in one, to translate: long sources"),
        Row(
            "docstrings",
            (PARALLEL,),
            "functions of the standard library, each with the first line of its docstring; whole modules are held out",
        ),
        Row("tones", (PARALLEL,), "sounds, and the words that they spell; the best possible score is known"),
        Row("shapes", (PARALLEL,), "drawn scenes, and sentences about them; the best possible score is known"),
        Row("copy", (TEXT,), "a letter, a clock, the same letter again; the best possible score is known"),
    ]


def documents(name: str, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Names and texts of a built-in corpus's documents, in a fixed order."""
    return _topics() if name == "pydoc" else _modules(ledger)


def describe_file(name: str) -> dict[str, Any]:
    """The ledger's entry: the corpus as if it were one file."""
    digest, size = hashlib.sha256(), 0
    for title, text in documents(name, Ledger()):
        data = text.encode()
        digest.update(title.encode() + b"\0" + data + b"\0")
        size += len(data)
    return {"path": name, "bytes": size, "sha256": digest.hexdigest()}


def _topics() -> Iterator[tuple[str, str]]:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        raise InputError(
            "this Python has no module pydoc_data, so the corpus 'pydoc' is missing. Expected a whole Python; "
            "give a text of your own, or data.path=stdlib."
        ) from None
    # Topics quote each other; a paragraph that has come before would leak from training into the test.
    paragraphs = (part.strip("\n") for title in sorted(topics) for part in topics[title].split("\n\n"))
    yield "pydoc", "\n\n".join(dict.fromkeys(part for part in paragraphs if part.strip())) + "\n"


def _modules(ledger: Ledger) -> Iterator[tuple[str, str]]:
    root = Path(os.__file__).parent
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if LEFT_OUT & set(inside.parts):
            continue
        title = f"stdlib:{inside.as_posix()}"
        try:
            text = path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            ledger.note("not readable as UTF-8, left out", title)
            continue
        if text:
            yield title, text.replace("\r\n", "\n")
