"""Sequence to sequence: write a target text for a source text, as in translation."""

from __future__ import annotations

import math
import sys
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
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.inference.score import Floats, Line, perplexity_of
from segue.inference.text_metrics import METRICS, distinct, signature
from segue.tasks.base import Task

SHOWN = 20
_ROWS = 64
_CELLS = 1 << 25
"""Most logits that scoring makes at once."""


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
    verbs = ("predict", "score")
    tokens = "bpe"
    figure = "bleu"
    beside = ("bleu", "chrf", "perplexity")
    metrics = tuple(METRICS)
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
        return self._forced(columns, limit, limit)

    def _forced(self, columns: Columns, limit: int, target_limit: int) -> Batch:
        source, text = columns["source"].rows(limit), columns["text"].rows()
        stop = np.zeros(1, np.int64)
        inputs = [np.concatenate([stop, row.astype(np.int64)])[: target_limit + 1] for row in text]
        targets = [np.concatenate([row.astype(np.int64), stop])[: target_limit + 1] for row in text]
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

    def target_logprobs(self, opened: Opened, rows: Iterable[Example]) -> Iterator[Floats]:
        """Yield for each row log p(y_t | x, y_1 … y_t-1) of every token of its target and of the STOP after it, by
        teacher forcing. A source is cut as `predict` cuts it, a target is read whole."""
        opened.model.eval()
        source = iter(rows)
        while group := list(islice(source, _ROWS)):
            lengths = self.encode(group, opened.codec)["text"].lengths() + 1
            at_once = max(1, _CELLS // (opened.codec.sizes.vocab_size * int(lengths.max())))
            for first in range(0, len(group), at_once):
                columns = self.encode(group[first : first + at_once], opened.codec)
                batch = self._forced(columns, opened.limit, sys.maxsize - 1)
                logp_BT, _ = opened.model.logprobs(batch.to(opened.device))
                for logp_T, length in zip(logp_BT.double().cpu().numpy(), lengths[first:], strict=False):
                    yield logp_T[:length]

    def scored(self, opened: Opened, text: str) -> Line:
        """Score the target of a line "source<TAB>target" given its source."""
        source, tab, target = text.partition("\t")
        if not tab or "\t" in target:
            raise InputError(
                f"'{text[:60]}' has {text.count(chr(9))} tabs. Expected a source, a tab and its translation in a line."
            )
        _, surfaces = opened.codec.tokenizer.pieces(target)
        (logp_T,) = self.target_logprobs(opened, [Example(text=source, target=target)])
        bits_T = -logp_T / math.log(2)
        totals = math.fsum(logp_T), math.fsum(bits_T), len(target.encode()) + 1
        return Line(text, [*surfaces, ""], logp_T.tolist(), bits_T.tolist(), *totals)

    def figures(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Any]) -> Evaluation:
        """Compute every metric of the outputs, first the one that data.metric names, which ranks."""
        written, references = [p.text for p in predictions], [row.target for row in rows]
        main = opened.codec.data.metric
        ranks = METRICS[main]
        lengths_N = np.array([len(row.text.split()) for row in rows])
        head = {"task": self.name, "figure": main, main: 0.0}
        table = ranks.table(written, references)
        evaluation = Evaluation(head, table, of_sums=ranks.of_sums, share=ranks.share, lengths_N=lengths_N).refigured()
        others = {name: metric.score(written, references) for name, metric in METRICS.items() if name != main}
        evaluation.result.update(
            others,
            distinct1=distinct(written, 1),
            distinct2=distinct(written, 2),
            perplexity=self._perplexity(opened, rows),
            sentences=len(rows),
            signature=signature(references),
        )
        evaluation.examples.extend(
            {"source": row.text, "reference": row.target, "output": w}
            for row, w in list(zip(rows, written, strict=True))[:SHOWN]
        )
        return evaluation

    def shown(self, figure: str) -> tuple[str, ...]:
        """Return the figures of the same use: of translations, of summaries, or of answers."""
        uses = (("rouge1", "rouge2", "rougeL"), ("exact", "f1"))
        beside = next((use for use in uses if figure in use), self.beside)
        return tuple(dict.fromkeys((figure, *beside, "repeats", "perplexity")))

    def _perplexity(self, opened: Opened, rows: Sequence[Example]) -> float:
        """Compute the perplexity of the references given their sources, per token; the end of each is one."""
        logp = np.concatenate(list(self.target_logprobs(opened, rows)))
        return perplexity_of(float(-logp.mean()))


TASK = Seq2seq()
