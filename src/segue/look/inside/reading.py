"""Reading one text with a network while its layers are recorded (layers/probe.py)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from segue.batches.batch import Batch
from segue.errors import InputError
from segue.inference.fill import framed
from segue.inference.opened import Opened
from segue.inference.score import with_letters
from segue.models.base import Counted, LanguageModel, MaskedModel

MOST_TOKENS = 128
"""Tokens of a text that are drawn: a matrix of more cannot be read."""


class Read(NamedTuple):
    """What was recorded, and the tokens that it belongs to."""

    tokens: tuple[str, ...]
    seen: dict[str, list[Any]]
    note: str
    """What was not read, in a sentence; empty: nothing."""


def has_layer(model: Any, layer: Any) -> bool:
    """Whether a network that reads one text (no source and target) holds a layer of this class."""
    if isinstance(model, Counted) or "source" in model.inputs:
        return False
    return any(isinstance(module, layer) for module in model.modules())


def read(opened: Opened, text: str) -> Read:
    """Read a text once, and keep what the layers show."""
    import torch

    from segue.layers.probe import record

    batch, count = _batch(opened, text)
    opened.model.eval()
    with torch.inference_mode(), record() as seen:
        opened.model(batch.to(opened.device))
    names = names_of(opened, batch.tokens_BT[0].tolist())
    note = f"The first {len(names):,} of {count:,} tokens are shown." if len(names) < count else ""
    return Read(tuple(names), seen, note)


def _batch(opened: Opened, text: str) -> tuple[Batch, int]:
    """The batch of one row that the model reads, cut to what it sees at once, and how many tokens the text has."""
    codec, window = opened.codec, opened.model.window or MOST_TOKENS
    if isinstance(opened.model, LanguageModel):
        ids = np.array(opened.fed(text))
        row = ids[None, : min(MOST_TOKENS, window)]
        batch = Batch(row, np.zeros_like(row), np.ones_like(row, dtype=bool), np.ones(1, dtype=bool))
        own = codec.tokenizer.encode(text)
        places = np.arange(row.shape[1])[None] - (len(ids) - len(own))  # behind the start mark
        return with_letters(batch, codec.unknown_words(text, own), places), len(ids)
    check_some(text)
    if isinstance(opened.model, MaskedModel):
        ids, segments = framed(text, codec)
        some, seen = slice(min(MOST_TOKENS, window)), np.ones_like(ids, dtype=bool)
        return Batch(ids[None, some], None, seen[None, some], segments_BT=segments[None, some], unpadded=True), len(ids)
    columns = opened.task.encode([opened.task.asked(text, codec.data)], codec, labelled=False)
    batch = opened.task.collate(columns, min(MOST_TOKENS, window, opened.limit))
    return batch, int(columns["text"].lengths().sum())


def split_pair(text: str, target: str) -> tuple[str, str]:
    """A source and its target: given apart, or in one text with a tab between; "": no target is given."""
    if target or "\t" not in text:
        check_some(text)
        return text, target
    source, _, after = text.partition("\t")
    check_some(source)
    return source, after


def source_name(text: str) -> str:
    """A source as a title names it: its beginning; of a data URI, what it is of."""
    return text.partition(";base64,")[0][:60]


def pair(opened: Opened, text: str, target: str) -> tuple[str, str]:
    """A source and its target; the model's own translation where none is given."""
    text, target = split_pair(text, target)
    if not target:
        (answer,) = opened.task.predict(opened, [opened.task.asked(text, opened.codec.data)])
        target = answer.text
    return text, target


def check_some(text: str) -> None:
    """Refuse a text of blanks, in which a classifier or a tagger reads nothing."""
    if not text.strip():
        raise InputError('There is no text to look at. Write it after the run: segue look RUN "a fine film"')


def names_of(opened: Opened, ids: list[int]) -> list[str]:
    """Tokens as they stand in a text; a language model's start mark is where it begins."""
    tokenizer, sizes = opened.codec.tokenizer, opened.codec.sizes
    written = isinstance(opened.model, LanguageModel)
    names = {tokenizer.stop: "</s>", tokenizer.unk: "<unk>"} | {sizes.mark(name): f"<{name}>" for name in sizes.marks}
    found = [names.get(i) or str(tokenizer.name(i)) for i in ids]
    if not written:
        return [name.strip() or name for name in found]
    return ["<s>", *found[1:]] if ids[0] == sizes.start else found
