"""The recipe's [data]: which text to read, how to cut it into units or rows, and what to hold out."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Literal

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""The words for common delimiters (data.delimiter)."""
Label = Literal["class", "classes", "number", "iob1", "bio", "bioes"]
LabelMetric = Literal["accuracy", "matthews", "positive_f1", "mean_squared_error", "pearson", "spearman"]
TextMetric = Literal["bleu", "bleu_lower", "chrf", "rouge1", "rouge2", "rougeL", "exact", "f1", "wer", "cer", "repeats"]
Metric = Literal["auto", LabelMetric, TextMetric]
Source = Literal["auto", "text", "sound", "picture"]
Format = Literal["auto", "text", "tsv", "csv", "json", "jsonl", "fasttext", "conll", "parallel"]


@dataclass(frozen=True)
class Config:
    """Where the text comes from and how to split it."""

    path: str = "pydoc"
    """A corpus's name, a file, a folder, a glob, SOURCE,TARGET, or corpora to mix by weight: wiki.txt:3+news.txt:1."""
    format: Format = "auto"
    """How files are written; auto decides by extension (the one before .gz or .xz), first lines and what is read."""
    delimiter: str = "auto"
    """Between the columns of a csv: comma, semicolon, tab, pipe or any one character; auto sees it from the file."""
    columns: str = ""
    """Columns by name, or number from 1: label,text(,text2); word,tag; source,target; question,context,answer; text."""
    label: Label = "class"
    """class: one label. classes: any number (A,B in a row, A|B on a word). number: a float. iob1, bio, bioes: spans."""
    unit: Literal["line", "paragraph", "document"] = "document"
    """What counts as one text of running text: a language model predicts its end, and carry says what comes next."""
    carry: bool = False
    """Carry the context of a language model over the end of a unit to the next; false: start afresh with each."""
    blank_lines: Literal["skip", "keep"] = "skip"
    """With unit=line: skip blank lines (and count them), or keep them as empty texts."""
    canonical: bool = False
    """Reduce whitespace to one blank between words and none at the ends, for text that is already tokenised."""
    source: Source = "auto"
    """What sources of pairs are: text, or names of files of sound (wav) or pictures (png, jpeg, gif)."""
    rate: int = 16000
    """Samples a second to which sound is resampled."""
    pixels: int = 64
    """Pictures are scaled to fit a square of so many pixels a side."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    on_error: Literal["stop", "skip"] = "stop"
    """For rows with a missing column or label: stop and name them, or skip them and count them."""
    validation: str | float = 0.1
    """Held-out text to validate on during training: a path, a share of the text, or 0."""
    test: str | float = 0.0
    """Held-out text for the final figures: a path, a share of the text, 0, or a fold (3/10: the third of ten parts)."""
    metric: Metric = "auto"
    """The figure that ranks models; auto: accuracy (classes), squared error (numbers), BLEU (pairs), F1 (answers)."""
    seed: int = 0
    """Seeds the choice of the rows to hold out, and the sentences of the built-in grammar."""

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("data.path is empty; expected a built-in corpus, a file, a folder or a glob")
        if not 4000 <= self.rate <= 192_000:
            raise ValueError(f"data.rate is {self.rate}; expected 4000 to 192000 samples a second")
        if not 8 <= self.pixels <= 1024:
            raise ValueError(f"data.pixels is {self.pixels}; expected 8 to 1024 pixels a side")
        if self.seed < 0:
            raise ValueError(f"data.seed is {self.seed}; expected 0 or more")
        _check_encoding(self.encoding)
        if self.delimiter not in ("auto", *DELIMITERS) and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ValueError(
                f"data.delimiter is {self.delimiter!r}; expected auto, {', '.join(DELIMITERS)} or one character"
            )
        for name in ("validation", "test"):
            object.__setattr__(self, name, _share_or_path(name, getattr(self, name)))
        held_out = sum(share for share in (self.validation, self.test) if isinstance(share, float))
        if held_out >= 1:
            raise ValueError(f"data.validation and data.test hold out {held_out:g} of the text; leave some to train on")
        if _FOLD.fullmatch(str(self.test)) and not self.fold():
            raise ValueError(f"data.test is '{self.test}'; expected which/of, from 1/10 to 10/10 for ten folds")

    @property
    def separator(self) -> str:
        """The character that data.delimiter names; "" if it is to be seen from the file."""
        return "" if self.delimiter == "auto" else DELIMITERS.get(self.delimiter, self.delimiter)

    @property
    def pairs(self) -> bool:
        """Whether a labelled row has two texts."""
        return self.columns.count(",") == 2

    def fold(self) -> tuple[int, int] | None:
        """(3, 10) for test = "3/10"; None if `test` is no fold. Validation is then a share of the other folds."""
        match = _FOLD.fullmatch(str(self.test))
        which, of = (int(match[1]), int(match[2])) if match else (0, 0)
        return (which, of) if of > 1 and 1 <= which <= of else None

    def held_out_files(self) -> dict[str, str]:
        """The paths of the splits that have files of their own."""
        splits = {"validation": self.validation, "test": 0.0 if self.fold() else self.test}
        return {split: path for split, path in splits.items() if isinstance(path, str)}


_FOLD = re.compile(r"(\d+)/(\d+)")


def _check_encoding(encoding: str) -> None:
    try:
        " ".encode(encoding)
        known = codecs.lookup(encoding).name not in _NO_FILES
    except (LookupError, UnicodeError):
        known = False
    if not known:
        raise ValueError(
            f"data.encoding is '{encoding}', which Python does not know as an encoding of files; expected a name such "
            "as utf-8 or latin-1"
        )


_NO_FILES = ("idna", "punycode", "raw-unicode-escape", "unicode-escape")
"""What Python also calls encodings: of names of machines, and of string literals."""


def _share_or_path(name: str, value: str | float) -> str | float:
    """Convert a number to a float, even if the command line gave it as a string; leave a path as it is."""
    try:
        share = float(value)
    except ValueError:
        if value:
            return value
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"data.{name} is {value!r}; expected a path, or a share of at least 0 and below 1")
    return share
