"""The recipe's `[data]`: which text is read, how it is cut into units or rows, and what is held out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Label = Literal["class", "classes", "number", "iob1", "bio", "bioes"]
Format = Literal["auto", "text", "tsv", "csv", "jsonl", "conll", "parallel"]


@dataclass(frozen=True)
class Config:
    """Where the text comes from and how it is divided."""

    path: str = "pydoc"
    """A corpus by name, a file, a folder, a glob, SOURCE,TARGET, or several to mix by weight: wiki.txt:3+news.txt:1."""
    format: Format = "auto"
    """How rows are written; auto goes by the file's extension (before .gz or .xz) and the task."""
    columns: str = ""
    """Names or numbers from 1: label,text or, for pairs, label,text,text2; word,tag; source,target; text for an lm."""
    label: Label = "class"
    """One class a row or word, several (A,B of a row, A|B of a word; or none), a number; spans, turned to a scheme."""
    unit: Literal["line", "paragraph", "document"] = "document"
    """What one text is for a language model: it begins anew there, and its end is predicted."""
    blank: Literal["skip", "keep"] = "skip"
    """With unit=line: blank lines are left out (and counted), or kept as empty texts."""
    canonical: bool = False
    """For text that is already tokenised: one blank between tokens, none at the ends."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    on_error: Literal["stop", "skip"] = "stop"
    """Rows with a missing column or label: stop and say which, or leave them out and count them."""
    validation: str | float = 0.1
    """Held out to watch training: a path, a share of the text, or 0."""
    test: str | float = 0.0
    """Held out for the last figures: a path, a share of the text, 0, or a fold (3/10: the third of ten parts)."""
    seed: int = 0
    """Decides which rows are held out, and the sentences of the built-in grammar."""

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("data.path is empty; expected a built-in corpus, a file, a folder or a glob")
        if self.seed < 0:
            raise ValueError(f"data.seed is {self.seed}; expected 0 or more")
        _check_encoding(self.encoding)
        for name in ("validation", "test"):
            object.__setattr__(self, name, _share_or_path(name, getattr(self, name)))
        held_out = sum(share for share in (self.validation, self.test) if isinstance(share, float))
        if held_out >= 1:
            raise ValueError(f"data.validation and data.test hold out {held_out:g} of the text; leave some to train on")
        if _FOLD.fullmatch(str(self.test)) and not self.part():
            raise ValueError(f"data.test is '{self.test}'; expected which/of, from 1/10 to 10/10 for ten folds")

    @property
    def pairs(self) -> bool:
        """Whether a row to classify has two texts."""
        return self.columns.count(",") == 2

    def part(self) -> tuple[int, int] | None:
        """`(3, 10)` for test = "3/10", whose validation is then a share of the rest; None where there is no fold."""
        fold = _FOLD.fullmatch(str(self.test))
        which, of = (int(fold[1]), int(fold[2])) if fold else (0, 0)
        return (which, of) if of > 1 and 1 <= which <= of else None

    def given(self) -> dict[str, str]:
        """The splits that have files of their own, by their paths."""
        splits = {"validation": self.validation, "test": 0.0 if self.part() else self.test}
        return {split: path for split, path in splits.items() if isinstance(path, str)}


_FOLD = re.compile(r"(\d+)/(\d+)")


def _check_encoding(encoding: str) -> None:
    try:
        " ".encode(encoding)
    except (LookupError, UnicodeError):
        raise ValueError(
            f"data.encoding is '{encoding}', which Python does not know; expected a name such as utf-8 or latin-1"
        ) from None


def _share_or_path(name: str, value: str | float) -> str | float:
    """A number as a float, also where the command line gave it as a string; a path as it is."""
    try:
        share = float(value)
    except ValueError:
        if value:
            return value
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"data.{name} is {value!r}; expected a path, or a share of at least 0 and below 1")
    return share
