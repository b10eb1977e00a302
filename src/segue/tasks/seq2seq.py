"""Sequence to sequence: write a target text for a source text, as in translation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from segue.batches.batch import IGNORE, Batch
from segue.batches.codec import Codec
from segue.batches.collate import mask_of, pad
from segue.batches.store import Column, Columns, id_dtype
from segue.data.example import Example
from segue.data.shapes import PARALLEL, Shape
from segue.inference import metrics
from segue.inference.decode_settings import Config as Decode
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.tasks.base import Task

SHOWN = 20
_ROWS = 64


@dataclass(frozen=True)
class Translation:
    """The target text that a model writes for one source."""

    text: str
    logprob: float
    """Natural log probability."""

    def line(self) -> str:
        return self.text

    def json(self) -> dict[str, Any]:
        return {"translation": self.text, "logprob": self.logprob}


class Seq2seq(Task):
    """A text for a source."""

    name = "seq2seq"
    verbs = ("predict",)
    tokens = "bpe"
    figure = "bleu"
    beside = ("bleu", "chrf")
    curve = ("accuracy", "token accuracy")
    ladder = ("rnn_seq2seq/elman", "rnn_seq2seq", "rnn_seq2seq/every")
    by = "source"
    added = 1
    decodes = ("beam", "length_penalty", "max_tokens")

    @property
    def shape(self) -> Shape:
        return PARALLEL

    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        dtype = id_dtype(codec.tokenizer.vocab_size)

        def column(texts: list[str]) -> Column:
            flat, lengths = codec.tokenizer.encode_many(texts)
            return Column(flat.astype(dtype, copy=False), np.cumsum(lengths, dtype=np.int64))

        columns = {"source": column([example.text for example in group])}
        return columns | ({"text": column([example.target for example in group])} if labelled else {})

    def collate(self, columns: Columns, limit: int) -> Batch:
        """Batch for teacher forcing: STOP y1 … yn predicts y1 … yn STOP. A row cut at `limit` has no last STOP."""
        source, text = columns["source"].rows(limit), columns["text"].rows()
        stop = np.zeros(1, np.int64)
        inputs = [np.concatenate([stop, row.astype(np.int64)])[: limit + 1] for row in text]
        targets = [np.concatenate([row.astype(np.int64), stop])[: limit + 1] for row in text]
        return Batch(pad(inputs), pad(targets, IGNORE), mask_of(inputs), None, pad(source), mask_of(source))

    def decoding(self, opened: Opened) -> dict[str, Any]:
        """Return beam, length penalty and the most tokens. A translation is searched for, never drawn: without a beam
        it is greedy, which is a beam of 1."""
        values = super().decoding(opened)
        return values | {"beam": max(1, opened.decode.beam)}

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Translation]:
        from segue.inference.decode import generate

        codec, decode, source = opened.codec, Decode(**self.decoding(opened)), iter(examples)
        while group := list(islice(source, _ROWS)):
            rows = self.encode(group, codec, labelled=False)["source"].rows(opened.limit)
            starts: list[list[int]] = [[] for _ in rows]
            given = pad(rows), mask_of(rows)
            forbid = [codec.tokenizer.unk]
            for text in generate(opened.model, starts, codec.sizes, decode, *given, opened.device, forbid=forbid):
                yield Translation(codec.tokenizer.decode(text.ids), text.logprob)

    def figures(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Any]) -> Evaluation:
        written, references = [p.text for p in predictions], [row.target for row in rows]
        scores = metrics.bleu_chrf(written, references)
        table = metrics.bleu_statistics(written, references)
        evaluation = Evaluation({"task": "seq2seq", "figure": "bleu"}, table, of_sums=metrics.bleu_of_sums)
        evaluation.result.update(
            bleu=scores["bleu"],
            bleu_ci=list(evaluation.interval()),
            chrf=scores["chrf"],
            exact=float(np.mean([w == r for w, r in zip(written, references, strict=True)])),
            sentences=len(rows),
            signature=scores["signature"],
        )
        evaluation.examples.extend(
            {"source": row.text, "reference": row.target, "output": w}
            for row, w in list(zip(rows, written, strict=True))[:SHOWN]
        )
        return evaluation


TASK = Seq2seq()
