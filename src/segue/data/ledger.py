"""The ledger: what was read, what was left out and why. Nothing is skipped, cut or changed without an entry here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from segue.data.example import Example

LISTED_ROWS = 20
LISTED_PATHS = 5
SHOWN_TEXT = 100
"""The ledger shows this many characters of a text."""
SHOWN_NAME = 200
"""Characters of the name of a sound or picture: a data URI is long."""


@dataclass
class Repeats:
    """Duplicate rows, in any split: label noise, or a leak between splits."""

    rows: int
    """Number of rows with the text of an earlier row."""
    contradictory: int
    """Number of texts with different labels."""
    first: dict[int, dict[str, Any]] = field(default_factory=dict)
    """A few examples, by the hash of their text; contradictory ones if there are any."""

    def add(self, key: int, row: Example) -> None:
        """Keep where a row stands and how it is labelled."""
        shown = self.first.setdefault(key, {"text": row.text[:SHOWN_TEXT], "labels": {}})
        places = shown["labels"].setdefault((row.label or " ".join(row.tags))[:SHOWN_TEXT], [])
        if len(places) < LISTED_PATHS:
            places.append(f"{row.path}:{row.line}")

    def summary(self) -> list[str]:
        said = []
        if self.rows:
            said.append(f"{_have(self.rows, 'row')} the same text as an earlier one.")
        if self.contradictory:
            [some, *_] = self.first.values()
            where = ", ".join(f"{places[0]} ({label})" for label, places in some["labels"].items())
            said.append(f"{_have(self.contradictory, 'text')} several labels: {where}.")
        return said

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "contradictory_texts": self.contradictory, "first": self.shown()}

    def shown(self) -> list[dict[str, Any]]:
        """Return the examples: their text, and each label with its places."""
        return [
            {"text": some["text"], "labels": [f"{name}: {_some(places)}" for name, places in some["labels"].items()]}
            for some in self.first.values()
        ]


@dataclass
class Ledger:
    """One corpus's account; `to_dict` is what ledger.json holds."""

    files: list[dict[str, Any]] = field(default_factory=list)
    """path, bytes and sha256 of every file, as it is on disk."""
    units: dict[str, int] = field(default_factory=dict)
    """Units of running text, or rows, in each split."""
    characters: int = 0
    blank_lines: int = 0
    bad_reasons: Counter[str] = field(default_factory=Counter)
    bad_first: list[dict[str, Any]] = field(default_factory=list)
    noted: dict[str, list[str]] = field(default_factory=dict)
    """A remark, and the files that it is about."""
    unsaid: list[str] = field(default_factory=list)
    """Sentences about how files are read, for the progress line; whoever says them takes them out."""
    tokens_cut: int = 0
    unknown_rate: float | None = None
    overlap: dict[str, float] | None = None
    repeats: Repeats | None = None
    """Duplicates among labelled rows."""
    corpora: list[dict[str, Any]] = field(default_factory=list)
    """The rows of `elapsed`, if a run reads several corpora."""

    @property
    def bad_rows(self) -> int:
        return self.bad_reasons.total()

    def bad_row(self, path: str, line: int, reason: str, source: str = "") -> None:
        """Count a row that cannot be used; `reason` reads on from "reviews.tsv:17 …", or from the name of the sound or
        picture that is wrong."""
        self.bad_reasons[reason] += 1
        if len(self.bad_first) < LISTED_ROWS:
            named = {"source": source[:SHOWN_NAME]} if source else {}
            self.bad_first.append({"file": path, "line": line, **named, "reason": reason})

    def note(self, remark: str, path: str) -> None:
        """Keep a remark about a file, once a file."""
        paths = self.noted.setdefault(remark, [])
        if path not in paths[-1:]:
            paths.append(path)

    def choose(self, remark: str, path: str) -> None:
        """Keep a remark about how a file is read, and have it said at once."""
        if path not in self.noted.get(remark, []):
            self.unsaid.append(f"{path}: {remark}.")
        self.note(remark, path)

    def notes(self) -> list[str]:
        return [f"{remark}: {_some(paths)}" for remark, paths in self.noted.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for ledger.json."""
        return {
            "files": self.files,
            "units": self.units,
            "characters": self.characters,
            "blank_lines_skipped": self.blank_lines,
            "bad_rows_skipped": {
                "count": self.bad_rows,
                "reasons": dict(self.bad_reasons.most_common()),
                "first": self.bad_first,
            },
            "notes": self.notes(),
            "tokens_cut": self.tokens_cut,
            "unknown_rate": self.unknown_rate,
            "overlap": self.overlap,
            **({"repeated_texts": self.repeats.to_dict()} if self.repeats else {}),
            **({"corpora": self.corpora} if self.corpora else {}),
        }

    def summary(self) -> list[str]:
        """Summarise, in sentences for the end of a run, what its owner may not expect."""
        said = []
        if self.bad_rows:
            said.append(f"{_were(self.bad_rows, 'row')} skipped: {self.first_bad(3)}.")
        if self.blank_lines:
            said.append(f"{_were(self.blank_lines, 'blank line')} skipped.")
        if self.tokens_cut:
            said.append(f"{_were(self.tokens_cut, 'token')} cut off from texts that were too long.")
        if self.unknown_rate:
            said.append(f"{100 * self.unknown_rate:.2f} % of the held-out tokens are unknown.")
        for split, share in (self.overlap or {}).items():
            if share:
                said.append(f"{100 * share:.1f} % of the {split} text also occurs in the training text.")
        said += self.repeats.summary() if self.repeats else []
        return said + [f"{note}." for note in self.notes()]

    def skipped(self) -> dict[str, Any]:
        """{"skipped": …} with the number of bad rows and the first of them, for a figure of the others; or nothing."""
        return {"skipped": {"rows": self.bad_rows, "first": self.first_bad(3)}} if self.bad_rows else {}

    def first_bad(self, count: int) -> str:
        """Describe the first few bad rows: `reviews.tsv:17 has 1 column, …`."""
        rows = [f"{row['file']}:{row['line']} {_named(row)}{row['reason']}" for row in self.bad_first[:count]]
        between = "; " if any("source" in row for row in self.bad_first[:count]) else ", "  # their reasons are long
        return between.join([*rows, *(["…"] if self.bad_rows > count else [])])


def elapsed(
    names: Sequence[str], tokens: Sequence[float], weights: Sequence[float], drawn: Sequence[float]
) -> list[dict[str, Any]]:
    """Tabulate corpora that are mixed: tokens, the weight in the mix, and the epochs elapsed, that is tokens read over
    tokens in the corpus (the columns of GPT-3's table 2.2)."""
    total = sum(weights)
    return [
        {"corpus": name, "tokens": size, "weight": weight / total, "epochs": read / size}
        for name, size, weight, read in zip(names, tokens, weights, drawn, strict=True)
    ]


def _named(row: dict[str, Any]) -> str:
    """The name of the sound or picture that a bad row is about, before the reason."""
    return f"{row['source']} " if "source" in row else ""


def _were(count: int, noun: str) -> str:
    return f"1 {noun} was" if count == 1 else f"{count:,} {noun}s were"


def _have(count: int, noun: str) -> str:
    return f"1 {noun} has" if count == 1 else f"{count:,} {noun}s have"


def _some(paths: list[str]) -> str:
    shown = ", ".join(paths[:LISTED_PATHS])
    rest = len(paths) - LISTED_PATHS
    return f"{shown} and {rest:,} more" if rest > 0 else shown
