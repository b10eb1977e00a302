"""The ledger: what was read, what was left out and why. Nothing is skipped, cut or changed without an entry here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

LISTED_ROWS = 20
LISTED_PATHS = 5


@dataclass
class Ledger:
    """One corpus's account; `to_dict` is what ledger.json holds."""

    files: list[dict[str, Any]] = field(default_factory=list)
    """path, bytes and sha256 of every file, as it lies on the disk."""
    units: dict[str, int] = field(default_factory=dict)
    """Units of running text, or rows, in each split."""
    characters: int = 0
    blank_lines: int = 0
    bad_reasons: Counter[str] = field(default_factory=Counter)
    bad_first: list[dict[str, Any]] = field(default_factory=list)
    noted: dict[str, list[str]] = field(default_factory=dict)
    """A remark, and the files that it is about."""
    tokens_cut: int = 0
    unknown_rate: float | None = None
    overlap: dict[str, float] | None = None

    @property
    def bad_rows(self) -> int:
        return self.bad_reasons.total()

    def bad_row(self, path: str, line: int, reason: str) -> None:
        """Count a row that cannot be used; `reason` reads on from "reviews.tsv:17 …"."""
        self.bad_reasons[reason] += 1
        if len(self.bad_first) < LISTED_ROWS:
            self.bad_first.append({"file": path, "line": line, "reason": reason})

    def note(self, remark: str, path: str) -> None:
        """Keep a remark about a file, once a file."""
        paths = self.noted.setdefault(remark, [])
        if path not in paths[-1:]:
            paths.append(path)

    def notes(self) -> list[str]:
        return [f"{remark}: {_some(paths)}" for remark, paths in self.noted.items()]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ledger.json."""
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
        }

    def summary(self) -> list[str]:
        """Sentences for the end of a run: only what its owner may not expect."""
        said = []
        if self.bad_rows:
            said.append(f"{_were(self.bad_rows, 'row')} skipped: {self.first_bad(3)}.")
        if self.blank_lines:
            said.append(f"{_were(self.blank_lines, 'blank line')} skipped.")
        if self.tokens_cut:
            said.append(f"{_were(self.tokens_cut, 'token')} cut off from texts that were too long.")
        if self.unknown_rate:
            said.append(f"{self.unknown_rate:.2%} of the held-out tokens are unknown.")
        for split, share in (self.overlap or {}).items():
            if share:
                said.append(f"{share:.1%} of the {split} text also occurs in the training text.")
        return said + [f"{note}." for note in self.notes()]

    def first_bad(self, count: int) -> str:
        """`reviews.tsv:17 has 1 column, …`: the first few bad rows."""
        rows = [f"{row['file']}:{row['line']} {row['reason']}" for row in self.bad_first[:count]]
        return ", ".join(rows) + (", …" if self.bad_rows > count else "")


def _were(count: int, noun: str) -> str:
    return f"1 {noun} was" if count == 1 else f"{count:,} {noun}s were"


def _some(paths: list[str]) -> str:
    shown = ", ".join(paths[:LISTED_PATHS])
    rest = len(paths) - LISTED_PATHS
    return f"{shown} and {rest:,} more" if rest > 0 else shown
