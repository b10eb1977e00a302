"""Novelty of generated text: compare it with all that the model was trained on.

    copied     a run of tokens that stands in the training text too, with LEAST characters or more, blanks not counted
    longest    the run with the most tokens, of any length
    new        the share of the n-grams that stand nowhere in the training text, by n

A run may begin in the prompt, and so may an n-gram, but only what was written counts: an n-gram is counted if its last
token was written, a run is as long as its written tokens, and of a copied run the written part alone is marked. The end
of a unit is a token of the training text and never one of a sample, so that no run goes over it. What a model has no
token for (UNK) is new. Written text is cut into tokens anew, as the training text was.

Held-out text is measured in the same way, in pieces as long as what was written: it shows how new truly new text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.encode import grouped
from segue.data.corpus import Corpus
from segue.errors import InputError
from segue.look.explain.suffixes import Suffixes, compile_once, whole_runs
from segue.runs import folder as files
from segue.runs.run import Run
from segue.tokens.tokenizer import Tokenizer
from segue.training.log import Progress, silent

LEAST = 25
"""Characters of a run that counts as copied, blanks not counted. Of new English and new C, a tenth or so stands in such
runs (of runs of 15 characters it would be up to a half)."""
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
"""The n of the n-grams."""
HELD = 50_000
"""Measure at most this many tokens of the held-out text."""


@dataclass(frozen=True)
class Match:
    """A run of a written text that stands in the training text."""

    text: str
    """The text of the run, with its part in the prompt."""
    tokens: int
    """Number of written tokens in it."""
    prompt_tokens: int
    """Number of its tokens in the prompt."""
    times: int
    """How often it occurs in the training text."""
    path: str
    line: int
    """Line of its first occurrence; 0: unknown, since the recipe has joined the file's lines (data.canonical)."""


@dataclass(frozen=True)
class Figures:
    """How new one text is, or several together."""

    tokens: int
    copied: float
    """The share of the characters that stand in copied runs."""
    longest: float
    """Tokens of the longest run; the mean over several texts."""
    new: dict[int, float]
    """By n, the share of n-grams that do not occur in the training text; without n longer than every text."""


@dataclass(frozen=True)
class Novelty:
    """How new one text is, and what of it is copied."""

    copied: tuple[tuple[int, int], ...]
    """Where copied runs begin and end in the text, in characters; runs that touch are one."""
    longest: Match | None
    """None if no token of the text occurs in the training text."""
    figures: Figures


@dataclass(frozen=True)
class Report:
    """The novelty of texts, together and one by one, and of held-out text for comparison."""

    least: int
    """Characters of a run that counts as copied, blanks not counted."""
    texts: tuple[Novelty, ...]
    written: Figures
    held_out: Figures | None
    """None if nothing is held out."""


def novelty(run: Run, texts: list[str], prompt: str = "", progress: Progress = silent) -> Report:
    """Measure how new the texts are that a language model wrote after a prompt (`run.generate`)."""
    if "generate" not in run.task.verbs:
        raise InputError(
            f"{run.recipe.name} is made for {run.task.name}. Expected a language model, which writes text."
        )
    if source := run.imported:
        raise InputError(
            f"The model in {run.path} was imported from {source}, which does not say what it was trained on. Leave "
            "--novelty out, or train a model on the text itself."
        )
    training = _Training(run, progress)
    written = [_Measured(_sample(run.tokenizer, text, prompt), training.suffixes) for text in texts]
    size = max((one.tokens for one in written), default=0)
    pieces = [_Measured(piece, training.suffixes) for piece in training.held_out(size)]
    matches = zip(written, training.matches(written), strict=True)
    found = tuple(Novelty(one.copied, match, _figures([one])) for one, match in matches)
    return Report(LEAST, found, _figures(written), _figures(pieces) if pieces else None)


@dataclass(frozen=True)
class _Sample:
    """A text as ids, with where each token begins and ends in it; what stands before `written` is the prompt."""

    text: str
    ids: NDArray[Any]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    blanks: NDArray[np.int64]
    """Where the text has blanks."""
    written: int

    def piece(self, begin: int, end: int) -> _Sample:
        """Return some of the tokens, all counted as written."""
        tokens = slice(begin, end)
        return _Sample(self.text, self.ids[tokens], self.begins[tokens], self.ends[tokens], self.blanks, 0)

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Return where some of the tokens begin and end in the text."""
        return int(self.begins[begin]), int(self.ends[end - 1])

    def is_long(self, begin: int, end: int) -> bool:
        """Whether a part of the text has LEAST characters that are no blanks."""
        before, after = np.searchsorted(self.blanks, [begin, end])
        return bool(end - begin - (after - before) >= LEAST)


def _sample(tokenizer: Tokenizer, text: str, prompt: str = "") -> _Sample:
    before = tokenizer.decode(tokenizer.encode(prompt).tolist())
    whole = before + text
    ids, surfaces = tokenizer.pieces(whole)
    lengths = np.fromiter(map(len, surfaces), np.int64, len(ids))
    ends = np.cumsum(lengths)
    if "".join(surfaces) != whole:  # some kinds of tokens leave blanks out
        end = 0
        for i, surface in enumerate(surfaces):
            ends[i] = end = whole.index(surface, end) + len(surface)
    blanks = np.array([blank.start() for blank in re.finditer(r"\s", whole)], np.int64)
    return _Sample(whole, np.where(ids == tokenizer.unk, -1, ids), ends - lengths, ends, blanks, len(before))


class _Measured:
    """A sample compared with the training text."""

    def __init__(self, sample: _Sample, suffixes: Suffixes) -> None:
        lengths, count = suffixes.longest(sample.ids), len(sample.ids)
        first = int(np.searchsorted(sample.ends, sample.written, "right"))  # the first token that was written
        runs = [run for run in whole_runs(lengths) if run[1] > first]
        self.sample, self.tokens = sample, count - first
        self.characters = int(sample.ends[-1]) - max(sample.written, int(sample.begins[0])) if self.tokens else 0
        self.longest = max(runs, key=lambda run: run[1] - max(run[0], first), default=(first, first))
        self.prompt_tokens = max(0, first - self.longest[0])
        self.longest_tokens = self.longest[1] - self.longest[0] - self.prompt_tokens
        spans = [sample.span(*run) for run in runs]
        self.copied = _joined([span for span in spans if sample.is_long(*span)], sample.written)
        self.new, self.ngrams = {}, {}
        for n in SIZES:
            starts = lengths[max(0, first - n + 1) : max(0, count - n + 1)]
            self.new[n], self.ngrams[n] = int((starts < n).sum()), len(starts)


def _joined(spans: list[tuple[int, int]], first: int) -> tuple[tuple[int, int], ...]:
    """Merge spans that touch; count places from `first` on, and drop what is before it."""
    joined: list[tuple[int, int]] = []
    for begin, end in spans:
        if joined and begin - first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], end - first)
        else:
            joined.append((max(0, begin - first), end - first))
    return tuple(joined)


def _figures(measured: list[_Measured]) -> Figures:
    characters = sum(one.characters for one in measured)
    ngrams = {n: sum(one.ngrams[n] for one in measured) for n in SIZES}
    return Figures(
        sum(one.tokens for one in measured),
        sum(end - begin for one in measured for begin, end in one.copied) / max(1, characters),
        sum(one.longest_tokens for one in measured) / max(1, len(measured)),
        {n: sum(one.new[n] for one in measured) / count for n, count in ngrams.items() if count},
    )


class _Training:
    """The training text of a run, read again: its ids, the order of their suffixes, and where each example begins."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self.run = run
        self.corpus = Corpus(run.recipe.data, run.recipe.shape, progress)
        if changed := files.changed_file(self.corpus.ledger.files, run.path):
            raise InputError(
                f"{changed} has changed since the run in {run.path} was made, so that what it was trained on is not "
                "known any more. Restore the file, or leave --novelty out."
            )
        if init := run.recipe.train.init:
            progress(f"This model began as that of {init}; the text which that one learnt from is not looked at.", 1.0)
        loading = "loading code that is compiled once"
        progress(loading, 0.0)
        compile_once()
        progress(loading, 1.0)
        ids = self._encoded(progress)
        self.suffixes = Suffixes(ids, lambda share: progress("sorting the suffixes of the training text", share))

    def _encoded(self, progress: Progress) -> NDArray[Any]:
        """Encode the training text, as for the model."""
        what, read, parts, lengths = "encoding the training text", 0, [], []
        for group in grouped(self.corpus.examples("train")):
            flat, each = self.run.tokenizer.encode_many([example.text for example in group], stop=group[0].ends)
            parts.append(flat)
            lengths.append(each)
            read += sum(len(example.text) for example in group)
            progress(what, min(0.99, read / self.corpus.ledger.characters))
        progress(what, 1.0)
        self.ends = np.cumsum(np.concatenate(lengths))
        return np.concatenate(parts)

    def matches(self, measured: list[_Measured]) -> list[Match | None]:
        """Find the longest run of each sample, and where it occurs."""
        runs = [one.sample.ids[slice(*one.longest)] for one in measured]
        places = [self.suffixes.find(run).tolist() if len(run) else [] for run in runs]
        where = self._where({found[0] for found in places if found})
        matches: list[Match | None] = []
        for one, found in zip(measured, places, strict=True):
            begin, end = one.sample.span(*one.longest) if found else (0, 0)
            counts = one.longest_tokens, one.prompt_tokens, len(found)
            matches.append(Match(one.sample.text[begin:end], *counts, *where[found[0]]) if found else None)
        return matches

    def _where(self, places: set[int]) -> dict[int, tuple[str, int]]:
        """Find the file and line of places in the ids, by reading the training text once more."""
        lines_joined = self.corpus.config.canonical and self.corpus.config.unit != "line"
        where, reached, examples = {}, -1, self.corpus.examples("train")
        for place in sorted(places):
            index = int(np.searchsorted(self.ends, place, "right"))
            if index > reached:
                example = next(islice(examples, index - reached - 1, None))
                sample, reached = _sample(self.run.tokenizer, example.text), index
            token = place - int(self.ends[index - 1] if index else 0)
            line = example.line + example.text.count("\n", 0, int(sample.begins[token]))
            where[place] = (example.path, 0 if lines_joined else line)
        return where

    def held_out(self, size: int) -> Iterator[_Sample]:
        """Yield held-out text in pieces of `size` tokens, shorter at the end of a unit; nothing if size is 0."""
        left = HELD if size else 0
        for example in self.corpus.examples("test" if self.corpus.counts["test"] else "validation") if left else ():
            sample = _sample(self.run.tokenizer, example.text)
            for begin in range(0, min(len(sample.ids), left), size):
                yield sample.piece(begin, begin + size)
            left -= len(sample.ids)
            if left <= 0:
                return
