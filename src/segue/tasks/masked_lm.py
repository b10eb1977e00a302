"""Masked language models: the probability of a hidden token, given the words on both sides of it.

This is no probability of a text: the figure, masked bits per byte, never stands in one table with bits per byte. It is
computed in seven passes over the text, in which every token is masked exactly once (inference/masked.py). Validation in
training makes one of the seven, over the same tokens each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from segue.batches.batch import Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.encode import HeldOutText, encode_split
from segue.batches.masking import MaskedRows
from segue.batches.store import Column, Columns, Store
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.inference.evaluation import Evaluation
from segue.inference.masked import (
    FEW_PAIRS,
    MOST_PAIRS,
    MaskedScored,
    next_sentence_accuracy,
    score_in_turn,
    score_masked,
    window_of,
)
from segue.inference.opened import Opened
from segue.inference.score import PseudoLine
from segue.inference.statistics import FEWEST
from segue.models.base import Model
from segue.tasks.base import Done, HeldOut, Values, nothing
from segue.tasks.lm import RunningText, by_corpus, document_blocks


class MaskedLm(RunningText):
    """The probability of hidden tokens."""

    name = "masked_lm"
    verbs = ("fill", "score", "embed", "look")
    tokens = "bpe"
    figure = "masked_bits_per_byte"
    beside = ("masked_bits_per_byte", "masked_perplexity", "masked_accuracy", "next_sentence_accuracy")
    curve = ("masked_bits_per_byte", "")
    masked = True
    pieces = "blocks of 2,048 bytes"
    ladder = ("bert",)
    rows = 32
    length = 128

    @property
    def reads(self) -> str:
        return ""  # running text is for language models unless the user names another task

    def defaults(self, values: Values, model: type[Model]) -> None:
        super().defaults(values, model)
        values["batches"].setdefault("noise", "mask")

    def settle_batches(self, config: BatchConfig) -> None:
        super().settle_batches(config)
        if config.vary or config.noise != "mask":
            raise ValueError("masked language models read rows of one length with noise=mask, and nothing else")

    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        """Frame texts as the model reads them."""
        return {"text": Column.of([codec.frame(codec.tokenizer.encode(example.text))[0] for example in group])}

    def collate(self, columns: Columns, limit: int) -> Batch:
        rows = columns["text"].rows(limit)
        lengths_B = np.array([len(row) for row in rows])
        mask_BT = np.arange(lengths_B.max()) < lengths_B[:, None]
        tokens_BT = np.zeros(mask_BT.shape, np.int64)
        tokens_BT[mask_BT] = np.concatenate(rows)
        return Batch(tokens_BT, None, mask_BT, unpadded=bool(mask_BT.all()))

    def held_out(self, corpus: Corpus, split: str, codec: Codec, folder: Path, limit: int) -> HeldOut:
        held_out = encode_split(corpus, split, codec.tokenizer, None, folder, limit)
        unknown = int((held_out.store.tokens == codec.tokenizer.unk).sum())
        return HeldOut(held_out, unknown / max(1, len(held_out.store.tokens)))

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        assert codec is not None
        joins = codec.tokenizer.joins if config.whole_words else None
        return MaskedRows(store, config, seed, codec.sizes, "follows_B" in codec.inputs, joins)

    def validate(
        self, opened: Opened, held_out: HeldOut, config: BatchConfig, limit: int, done: Done = nothing
    ) -> dict[str, float]:
        scored = score_masked(opened, held_out.data, passes=1, done=done)
        values = {"loss": scored.loss, "masked_accuracy": scored.accuracy}
        if opened.codec.tokenizer.lossless:
            values["masked_bits_per_byte"] = scored.bits_per_byte
        return values | _next_sentence(opened, held_out.data, FEW_PAIRS)

    def evaluate(
        self, opened: Opened, corpus: Corpus, split: str, done: Done = nothing, limit: int = 0, **how: Any
    ) -> Evaluation:
        """Mask every token of a split once."""
        lossless = opened.codec.tokenizer.lossless
        with tempfile.TemporaryDirectory(prefix="segue-") as folder:
            held_out = encode_split(corpus, split, opened.codec.tokenizer, None, Path(folder), limit)
            scored = score_masked(opened, held_out, done=done)
            first = document_blocks(held_out) if corpus.config.unit == "document" else np.zeros(0, np.int64)
            told = _next_sentence(opened, held_out, MOST_PAIRS)
        enough = len(first) >= FEWEST
        pieces = np.add.reduceat(scored.pieces_NK, first, axis=0) if enough else scored.pieces_NK
        evaluation = Evaluation({"task": self.name, "figure": self.figure}, pieces, ordered=not enough)
        result = evaluation.result
        if lossless:
            result["masked_bits_per_byte"] = scored.bits_per_byte
            result["masked_bits_per_byte_ci"] = list(evaluation.interval())
        result |= {"masked_perplexity": scored.perplexity, "masked_accuracy": scored.accuracy, **told}
        result |= {"tokens": scored.tokens, "bytes": scored.bytes, "unknown_tokens": scored.unknown}
        result["way"] = _way(opened, scored, held_out, limit)
        if scored.parts:
            names = [part.name for part in corpus.parts_of(split)]
            result["by_corpus"] = by_corpus(scored.parts, names, self.figure if lossless else "")
        return evaluation

    def scored(self, opened: Opened, rows: Iterable[Example]) -> Iterator[PseudoLine]:
        """Score texts by masking each token in turn."""
        return score_in_turn(opened, (row.text for row in rows))

    def amount(self, evaluation: Evaluation) -> str:
        return f"{evaluation.result['bytes']:,} bytes"


def _next_sentence(opened: Opened, held_out: HeldOutText, pairs: int) -> dict[str, float]:
    """Return the accuracy of the next sentence, where the model has learnt it."""
    accuracy = next_sentence_accuracy(opened, held_out, pairs) if "follows_B" in opened.codec.inputs else None
    return {} if accuracy is None else {"next_sentence_accuracy": accuracy}


def _way(opened: Opened, scored: MaskedScored, held_out: HeldOutText, limit: int) -> str:
    way = f"each token masked once, given the words around it, in windows of {window_of(opened):,} tokens"
    if scored.unknown:
        way += f"; {scored.unknown:,} unknown tokens are given, and not scored"
    if held_out.cut:
        each = ", of each corpus its share" if scored.parts else ""
        way += f"; the first {limit:,} tokens of the split{each} (train.validate_tokens)"
    return way


TASK = MaskedLm()
