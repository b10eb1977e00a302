from __future__ import annotations

import json
from pathlib import Path

from segue.data import builtin
from segue.data.ledger import Ledger


def test_pydoc_is_one_document_with_each_paragraph_once() -> None:
    from pydoc_data.topics import topics  # type: ignore[import-untyped,unused-ignore]

    [(title, text)] = builtin.documents("pydoc", Ledger())
    assert title == "pydoc"
    assert len(text) > 300_000
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    assert len(paragraphs) == len(set(paragraphs))
    assert {part.strip() for part in paragraphs} == {
        part.strip() for topic in topics.values() for part in topic.split("\n\n") if part.strip()
    }


def test_stdlib_is_the_source_without_tests() -> None:
    found = dict(builtin.documents("stdlib", Ledger()))
    assert found["stdlib:json/__init__.py"] == Path(json.__file__).read_text(encoding="utf-8")
    assert list(found) == sorted(found, key=lambda title: Path(title.removeprefix("stdlib:")))
    assert not any("site-packages" in title or "/test/" in title or ":test/" in title for title in found)
    assert sum(map(len, found.values())) > 3_000_000


def test_the_checksum_is_of_the_text() -> None:
    entry = builtin.describe_file("pydoc")
    assert entry["bytes"] == sum(len(text.encode()) for _, text in builtin.documents("pydoc", Ledger()))
    assert entry == builtin.describe_file("pydoc")
    names = ["pydoc", "stdlib", "grammar", "clauses", "docstrings", "tones", "shapes", "copy"]
    assert [row.name for row in builtin.describe()] == names
