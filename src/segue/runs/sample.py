"""List the corpora; show how the first lines or rows of a file are read and split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from segue import tasks
from segue.data import builtin, downloads
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.media import MEDIA, described
from segue.data.shapes import Shape
from segue.data.sources import guess_shape
from segue.errors import InputError
from segue.recipe import data_section, make
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

READING = tuple(
    f"data.{key}"
    for key in (
        *("format", "delimiter", "columns", "label", "unit", "blank_lines", "canonical", "encoding", "on_error"),
        *("source", "rate", "pixels"),
    )
)
"""Settings that may be given for a file that is shown."""


def corpora() -> list[tuple[str, str, str]]:
    """The corpora that every machine has, and those that can be downloaded: name, tasks, what it is."""
    own = [(row.name, ", ".join(map(_task, row.shapes)), row.about) for row in builtin.describe()]
    named = downloads.NAMED.items()
    return own + [(name, "lm", f"{corpus.about} (segue data get {name})") for name, corpus in named]


def _task(shape: Shape) -> str:
    return tasks.of_shape(shape.name)


def sample(path: str | None, kind: str, settings: Sequence[str]) -> Iterator[str]:
    """Lines on a file: its size, how many units and tokens it has, what was skipped, and its first units, split."""
    tokens = make(Tokens, {"kind": kind}, "tokens")
    wrong = [word for word in settings if word.partition("=")[0] not in READING]
    if wrong or path is None:
        raise InputError(
            f"{(wrong or settings)[0]} cannot be set here. Expected a file, and how it is read: {', '.join(READING)}."
        )
    unit = "line" if kind == "space" else "document"
    config = data_section(settings, path=path, unit=unit, validation=0.0, canonical=kind == "space")
    shape = guess_shape(path, config.format, config.encoding)
    corpus = Corpus(config, shape)
    read = corpus.parts[0].config
    texts = (
        example.target if read.source in MEDIA else f"{example.text} {example.target}"
        for example in corpus.examples("all")
    )
    tokenizer = Tokenizer.train(tokens, texts)
    yield from (f"{file['path']}: {file['bytes']:,} bytes" for file in corpus.ledger.to_dict()["files"][:5])
    count, noun = corpus.counts["train"], config.unit if shape.running else "row"
    units = f"{count:,} {noun}{'s' if count != 1 else ''}"
    yield f"{units}; {tokenizer.vocab_size:,} different {kind} tokens, STOP and UNK counted."
    yield from corpus.ledger.summary()
    if remark := tasks.task(tasks.of_shape(shape.name)).remark(corpus, kind):
        yield remark

    def split(text: str) -> str:
        return " ".join(f"[{piece}]" for piece in tokenizer.pieces(text[:200])[1])

    for example in islice(corpus.examples("all"), 5):
        for row in _first_lines(example, 5 if config.unit == "document" else 1) if shape.running else [example]:
            if read.source in MEDIA:
                yield f"{row.text[:200]} ({described(row.text, read)}) -> {split(row.target)}"
            else:
                yield shape.shown(row, split)


def _first_lines(example: Example, most: int) -> list[Example]:
    """The first lines of running text that are not blank, each as an example."""
    lines = [line for line in example.text.split("\n") if line.strip()]
    return [example._replace(text=line) for line in lines[:most]]
