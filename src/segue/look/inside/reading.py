"""Reading one text with a network while its layers are recorded (layers/probe.py)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from segue.batches import collate
from segue.batches.batch import Batch
from segue.batches.encode import encode_texts
from segue.batches.spelled_words import spelt
from segue.batches.store import Column, columns_of
from segue.data.example import Example
from segue.errors import InputError
from segue.inference.opened import Opened
from segue.models.base import Counted, LanguageModel

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

    tokens, batch = _batch(opened, text)
    opened.model.eval()
    with torch.inference_mode(), record() as seen:
        opened.model(batch.to(opened.device))
    length = batch.tokens_BT.shape[1]
    note = f"The first {length:,} of {len(tokens):,} tokens are shown." if length < len(tokens) else ""
    return Read(tuple(tokens[:length]), seen, note)


def _batch(opened: Opened, text: str) -> tuple[list[str], Batch]:
    """The tokens of a text, and the batch of one row that the model reads, cut to what it sees at once."""
    from segue.models.neural_tagger import NeuralTagger

    model, tokenizer = opened.model, opened.codec.tokenizer
    if isinstance(model, LanguageModel):
        ids, surfaces = tokenizer.pieces(text)
        limit = min(MOST_TOKENS, model.window or MOST_TOKENS)
        row = np.concatenate([[opened.codec.sizes.start], ids]).astype(np.int64)[None, :limit]
        return ["<s>", *surfaces], Batch(row, np.zeros_like(row), np.ones_like(row, dtype=bool), np.ones(1, dtype=bool))
    if not text.strip():
        raise InputError('There is no text to look at. Write it after the run: segue look RUN "a fine film"')
    limit = min(MOST_TOKENS, opened.limit)
    if isinstance(model, NeuralTagger):
        words = text.split()
        rows, folded = tokenizer.encode_words(words), tokenizer.fold_words(words)
        columns = columns_of(text=[rows[:limit]], letters=[spelt(words)], folded=[folded])
        return words, collate.tag(columns, limit)
    flat, lengths = encode_texts([example_of(opened, text)], tokenizer)
    return _names(flat, tokenizer), collate.classify({"text": Column(flat, np.cumsum(lengths))}, limit)


def example_of(opened: Opened, text: str) -> Example:
    """A row for a classifier as it is typed: of a pair, a tab stands between the two texts."""
    if not opened.codec.data.pairs:
        return Example(text=text)
    first, tab, second = text.partition("\t")
    if not tab:
        raise InputError(f"This model judges pairs, and '{text[:60]}' has no tab. Expected a tab between two texts.")
    return Example(text=first, target=second)


def _names(ids: Any, tokenizer: Any) -> list[str]:
    names = {tokenizer.stop: "</s>", tokenizer.unk: "<unk>"}
    return [names.get(i) or str(tokenizer.decode([i])).strip() for i in ids.tolist()]
