"""Sequence to sequence: write a target text for a source text, as in translation."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.collate import mask_of, pad
from segue.batches.encode import Encoded, encode
from segue.batches.frames import frame_count, frames_column, sample_count
from segue.batches.noise import OF_SOURCES
from segue.batches.rows import Rows
from segue.batches.store import BEGINS, Column, Columns, Store, id_dtype
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.pictures import MOST_FRAMES
from segue.data.shapes import LABELLED, PARALLEL, TEXT, Shape
from segue.errors import InputError
from segue.inference.by_length import by_tokens, windows
from segue.inference.decode_settings import Config as Decode
from segue.inference.edit_distance import edit_distance
from segue.inference.evaluation import ERROR_RATES, Evaluation
from segue.inference.opened import Opened
from segue.inference.score import Floats, Line, perplexity_of
from segue.inference.text_metrics import METRICS, confusions, distinct, signature, spoken_words
from segue.look.source_picture import shown_sources
from segue.models.base import Model, SpanModel
from segue.tasks.base import Task, Values
from segue.tasks.media_sources import frame_noise, most_in_memory, places_of_source, settle_source, tokens_of_frame
from segue.tokens.file_format import STOP
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from segue.batches.picture_noise import PictureNoise
    from segue.batches.redraw import Redraw
    from segue.batches.specaugment import SpecAugment
    from segue.inference.beam import Generated

SHOWN = 20
BEAM = 5
"""The default of decode.beam."""
_SAID = ("beam", "length_penalty", "max_tokens", "length_ratio")
"""Settings that a result always names."""
_ROWS, _GPU_ROWS = 64, 1024
"""Rows that are scored together, or sorted by length at first."""
_TOKENS, _GPU_TOKENS = 1 << 13, 1 << 17
"""Tokens or places of sources, times the beam, that are decoded together."""
_DECODED = 8
"""Sounds or pictures that are decoded together, before they are cut: half an hour of sound takes 120 MB."""
_PLACES = 1 << 16
"""Most places of sounds or pictures that are scored together."""
_CELLS, _GPU_CELLS = 1 << 25, 1 << 28
"""Most logits that are made at once."""


@dataclass(frozen=True)
class Candidate:
    """One of the n best targets for a source."""

    text: str
    logprob: float
    score: float
    """By which they are ranked: the log probability, normalised by length, with the coverage penalty."""

    def json(self) -> dict[str, Any]:
        return {"translation": self.text, "logprob": self.logprob, "score": self.score}


@dataclass(frozen=True)
class Translation:
    """The target text that a model writes for one source."""

    text: str
    logprob: float
    """Natural log probability of what the model has written, after a decode.prefix if there is one."""
    best: tuple[Candidate, ...] = ()
    """The n best, this one first, if several were asked for."""

    def line(self) -> str:
        """Return the text in one line or, of n best, n lines: rank, score and text, with tabs between."""
        if not self.best:
            return _one_line(self.text)
        ranked = enumerate(self.best, 1)
        return "\n".join(f"{rank}\t{one.score:.4f}\t{_one_line(one.text)}" for rank, one in ranked)

    def json(self) -> dict[str, Any]:
        best = {"best": [one.json() for one in self.best]} if self.best else {}
        return {"translation": self.text, "logprob": self.logprob, **best}


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


class Seq2seq(Task):
    """A text for a source."""

    name = "seq2seq"
    verbs = ("predict", "score")
    tokens = "bpe"
    figure = "bleu"
    beside: ClassVar[tuple[str, ...]] = ("bleu", "chrf", "perplexity")
    metrics = tuple(METRICS)
    curve = ("accuracy", "token accuracy")
    ladder = (
        *(f"rnn_seq2seq/{name}" for name in ("elman", "start", "fixed", "dot", "bilinear", "additive", "coverage")),
        "transformer",
    )
    ladders: ClassVar[Mapping[str, tuple[str, ...]]] = {
        source: (
            *(f"rnn_seq2seq/{name}" for name in ("elman", "start", "dot", "additive", recipe)),
            f"transformer/{recipe}",
        )
        for source, recipe in (("sound", "speech"), ("picture", "captions"))
    }
    by = "source"
    added = 1
    decodes = (
        *("beam", "length_penalty", "coverage_penalty", "n_best", "no_repeat", "max_tokens", "length_ratio", "prefix"),
        *("empty", "temperature", "top_k", "top_p", "seed"),
    )

    @property
    def shape(self) -> Shape:
        return PARALLEL

    def with_noise(self, noise: str) -> Task:
        if noise != "spans":
            return self
        from segue.tasks.denoising import DENOISING  # it derives from this task

        return DENOISING

    def goes_on_with(self, model: type[Model]) -> tuple[Shape, ...]:
        return (PARALLEL, TEXT, LABELLED) if issubclass(model, SpanModel) else (PARALLEL,)

    def settle_tokens(self, config: Tokens) -> None:
        """All of [tokens] is for pairs."""

    def settle_batches(self, config: BatchConfig) -> None:
        """Allow noise on the frames of sources; media_sources.py has checked what they are."""
        super().settle_batches(replace(config, noise="none") if config.noise in OF_SOURCES else config)

    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        if codec.sizes.frame:
            columns = {"source": frames_column(group, codec.data)}
        else:
            columns = {"source": _source_column([example.text for example in group], codec)}
        if labelled:
            columns["text"] = _column([example.target for example in group], codec.tokenizer)
        return columns

    def store(
        self,
        corpus: Corpus,
        split: str,
        codec: Codec,
        folder: Path,
        limit: int = 0,
        done: Callable[[int], None] = lambda rows: None,
    ) -> Encoded:
        if codec.sizes.frame:
            columns = partial(self.encode, codec=codec)
            return encode(corpus.examples(split), columns, codec.tokenizer, folder, limit, done, _DECODED)
        if split != "train" or not codec.dropout:
            return super().store(corpus, split, codec, folder, limit, done)
        examples, columns = corpus.examples(split), partial(self._with_begins, codec=codec)
        return encode(examples, columns, codec.tokenizer, folder, limit, done)

    def _with_begins(self, group: Sequence[Example], codec: Codec) -> Columns:
        """Encode examples, and where words begin, for BPE-dropout."""
        columns = self.encode(group, codec)
        for side, tokenizer in _sides(codec).items():
            if tokenizer.kind != "bpe":
                raise InputError(
                    f"tokens.dropout={codec.dropout} skips merges of bpe, and the tokens of train.init are of kind "
                    f"{tokenizer.kind}. Leave it out."
                )
            texts = [example.text if side == "source" else example.target for example in group]
            columns[side + BEGINS] = Column(tokenizer.word_begins(texts), columns[side].ends)
        return columns

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        redraw: Redraw | SpecAugment | PictureNoise | None = None
        if config.noise in OF_SOURCES:
            redraw = frame_noise(config.noise)(store, seed, config.share, config.length)
        elif codec and codec.dropout:
            from segue.batches.redraw import Redraw  # numba takes long to import

            redraw = Redraw(store, _sides(codec), codec.dropout, seed, config.length)
        collate = partial(self.collate, limit=config.length)
        return Rows(store, config, seed, collate, self.by, self.added, redraw, tokens_of_frame(codec))

    def collate(self, columns: Columns, limit: int) -> Batch:
        """Batch for teacher forcing: STOP y1 … yn predicts y1 … yn STOP. A row cut at `limit` has no last STOP."""
        return self._forced(_sources(columns["source"], limit), columns["text"].rows(), limit)

    def _forced(self, source: list[NDArray[Any]], text: list[NDArray[Any]], target_limit: int) -> Batch:
        stop = np.zeros(1, np.int64)
        inputs = [np.concatenate([stop, row.astype(np.int64)])[: target_limit + 1] for row in text]
        targets = [np.concatenate([row.astype(np.int64), stop])[: target_limit + 1] for row in text]
        real, whole = mask_of(source), len({len(row) for row in source}) == 1
        given = pad(inputs), pad(targets, IGNORE), mask_of(inputs), None, _padded(source), real
        return Batch(*given, source_unpadded=whole)

    def defaults(self, values: Values, model: type[Model]) -> None:
        """Write no empty target, and with a beam, unless the recipe draws; rank summaries by ROUGE-L."""
        values["decode"].setdefault("empty", False)
        from segue.tasks.denoising import settle_spans  # it derives from this task

        if settle_spans(values, model):
            return
        settle_source(values)
        if str(values["data"].get("path")) == "docstrings":
            values["data"].setdefault("metric", "rougeL")
        if not {"temperature", "top_k", "top_p"} & values["decode"].keys():
            values["decode"].setdefault("beam", BEAM)

    def to_validate(self, store: Store, config: BatchConfig, limit: int) -> NDArray[np.int64]:
        """Return the first rows with about `limit` predictions, sorted by length, so that little is padded."""
        predictions = np.cumsum(np.minimum(store.columns["text"].lengths(), config.length) + 1)
        rows = int(np.searchsorted(predictions, limit)) + 1
        return np.argsort(store.columns["source"].lengths()[:rows], kind="stable")

    def decoding(self, opened: Opened) -> dict[str, Any]:
        """Return the settings that matter to every text, and others that are not as usual."""
        usual, values = vars(Decode()), super().decoding(opened)
        return {key: value for key, value in values.items() if key in _SAID or value != usual[key]}

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Translation]:
        """Yield a translation for each source, in order; a blank source has a blank one. Sources of about the same
        length are decoded together."""
        from segue.inference.decode import best

        codec, decode, gpu = opened.codec, Decode(**self.decoding(opened)), opened.device != "cpu"
        decode = replace(decode, empty=decode.empty or bool(decode.prefix))  # a prefix may be all of a target
        prefix, forbid = _prefix(decode.prefix, codec.tokenizer), opened.model.unwritten
        width = max(1, decode.beam, decode.n_best)
        tokens, cells = (_GPU_TOKENS, _GPU_CELLS) if gpu else (_TOKENS, _CELLS)
        together = tokens // width, max(1, cells // (width * codec.sizes.vocab_size))
        most = {"most": most_in_memory(opened)} if codec.sizes.frame else {}
        for number, window in windows(examples, _GPU_ROWS if gpu else _ROWS, **most):
            found = [Translation("", 0.0)] * len(window)
            asked = [place for place, example in enumerate(window) if example.text.strip()]
            rows = self._cut_sources(opened, [window[place] for place in asked])
            for places in by_tokens([places_of_source(opened, len(row)) for row in rows], *together):
                some, numbers = [rows[i] for i in places], [number + asked[i] for i in places]
                starts, given = [prefix] * len(some), (_padded(some), mask_of(some))
                texts = best(opened.model, starts, codec.sizes, decode, *given, opened.device, forbid, numbers)
                for i, ranked in zip(places, texts, strict=True):
                    found[asked[i]] = _translation(ranked, prefix, decode, codec.tokenizer)
            yield from found

    def _cut_sources(self, opened: Opened, group: Sequence[Example]) -> list[NDArray[Any]]:
        """Encode sources, each cut at the limit. Few sounds or pictures are decoded at a time: a whole one is large."""
        codec, found = opened.codec, []
        together = _DECODED if codec.sizes.frame else max(1, len(group))
        for first in range(0, len(group), together):
            column = self.encode(group[first : first + together], codec, labelled=False)["source"]
            found += [row.copy() for row in _sources(column, opened.limit)]
        return found

    def cut(self, opened: Opened, example: Example) -> int:
        """Count the tokens, or the frames of a sound or a picture, beyond the limit."""
        if not opened.codec.sizes.frame or not example.text:
            return super().cut(opened, example)
        if opened.codec.sizes.source == "picture" and opened.limit >= MOST_FRAMES:
            return 0  # without decoding it
        return max(0, frame_count(example.text, opened.codec.data) - opened.limit)

    def cells(self, prediction: Translation) -> dict[str, str]:
        """Return the best translation alone: a table has a row for each source."""
        return {"prediction": prediction.text}

    def target_logprobs(self, opened: Opened, rows: Iterable[Example]) -> Iterator[Floats]:
        """Yield for each row log p(y_t | x, y_1 … y_t-1) of every token of its target and of the STOP after it, by
        teacher forcing. A source is cut as `predict` cuts it, a target is read whole."""
        codec, source = opened.codec, iter(rows)
        opened.model.eval()
        while group := list(islice(source, _ROWS)):
            sources = self._cut_sources(opened, group)
            targets = _column([row.target for row in group], codec.tokenizer).rows()
            longest = max(map(len, targets)) + 1
            at_once = max(1, _CELLS // (codec.sizes.vocab_size * longest))
            if codec.sizes.frame:
                at_once = max(1, min(at_once, _PLACES // places_of_source(opened, max(map(len, sources)))))
            for first in range(0, len(group), at_once):
                some = slice(first, first + at_once)
                batch = self._forced(sources[some], targets[some], sys.maxsize - 1)
                logp_BT, _ = opened.model.logprobs(batch.to(opened.device))
                for logp_T, target in zip(logp_BT.double().cpu().numpy(), targets[some], strict=True):
                    yield logp_T[: len(target) + 1]

    def scored(self, opened: Opened, rows: Iterable[Example]) -> Iterator[Line]:
        """Score the target of each row given its source."""
        rows, again = tee(rows)
        for row, logp_T in zip(again, self.target_logprobs(opened, rows), strict=True):
            _, surfaces = opened.codec.tokenizer.pieces(row.target)
            bits_T = -logp_T / math.log(2)
            totals = math.fsum(logp_T), math.fsum(bits_T), len(row.target.encode()) + 1
            yield Line(f"{row.text}\t{row.target}", [*surfaces, ""], logp_T.tolist(), bits_T.tolist(), *totals)

    def figures(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Any]) -> Evaluation:
        """Compute every metric of the outputs, first the one that data.metric names, which ranks."""
        written = [p.text for p in predictions]
        references = list(map(_nearest, rows, written))
        main = self.ranked_by(opened.codec.data)
        ranks = METRICS[main]
        head = {"task": self.name, "figure": main, main: 0.0}
        table = ranks.table(written, references)
        evaluation = Evaluation(head, table, of_sums=ranks.of_sums, share=ranks.share, **_lengths(rows, opened.codec))
        evaluation = evaluation.refigured()
        others = {name: metric.score(written, references) for name, metric in METRICS.items() if name != main}
        evaluation.result.update(
            others,
            distinct1=distinct(written, 1),
            distinct2=distinct(written, 2),
            **self._surprise(opened, rows),
            sentences=len(rows),
            signature=signature(references),
        )
        if main in ERROR_RATES:
            evaluation.result["confusions"] = confusions(written, references)
        evaluation.examples.extend(_shown_examples(rows, written, references, opened.codec))
        return evaluation

    def shown(self, figure: str) -> tuple[str, ...]:
        """Return the figures of the same use: of translations, of summaries, of answers, or of what was heard."""
        if figure in ERROR_RATES:
            return tuple(dict.fromkeys((figure, "wer", "cer", "exact", "bits_per_byte")))
        uses = (("rouge1", "rouge2", "rougeL"), ("exact", "f1"))
        beside = next((use for use in uses if figure in use), self.beside)
        return tuple(dict.fromkeys((figure, *beside, "repeats", "perplexity")))

    def _surprise(self, opened: Opened, rows: Sequence[Example]) -> dict[str, float]:
        """Compute the perplexity of the targets given their sources, per token, and their bits per byte; the end of a
        target is a token and a byte. Tokens that lose text, or do not know some of it, have no bits per byte."""
        logp = np.concatenate(list(self.target_logprobs(opened, rows)))
        found = {"perplexity": perplexity_of(float(-logp.mean()))}
        tokenizer, targets = opened.codec.tokenizer, [row.target for row in rows]
        if tokenizer.lossless and not (tokenizer.closed and (_column(targets, tokenizer).flat == tokenizer.unk).any()):
            size = sum(len(target.encode()) + 1 for target in targets)
            found["bits_per_byte"] = -math.fsum(logp) / math.log(2) / size
        return found


def _sides(codec: Codec) -> dict[str, Tokenizer]:
    """Return the tokenizer of each column."""
    return {"source": codec.source_tokenizer, "text": codec.tokenizer}


def _source_column(texts: Sequence[str], codec: Codec) -> Column:
    """The ids of sources; those of a model that reads them so end with STOP."""
    if not codec.sizes.stopped:
        return _column(texts, codec.source_tokenizer)
    column = _column(texts, codec.tokenizer)
    flat = np.insert(column.flat, column.ends, STOP)
    return Column(flat, column.ends + np.arange(1, len(texts) + 1))


def _column(texts: Sequence[str], tokenizer: Tokenizer) -> Column:
    flat, lengths = tokenizer.encode_many(texts)
    return Column(flat.astype(id_dtype(tokenizer.vocab_size), copy=False), np.cumsum(lengths, dtype=np.int64))


def _lengths(rows: Sequence[Example], codec: Codec) -> dict[str, Any]:
    """Return the lengths of the sources by which the figure is also computed: in words, or of sound in hundredths of a
    second; pictures have none."""
    if codec.sizes.source == "sound":
        samples = (sample_count(row.text, codec.data) for row in rows)
        return {"lengths_N": np.array([round(100 * n / codec.data.rate) for n in samples]), "length_unit": "seconds"}
    return {} if codec.sizes.frame else {"lengths_N": np.array([len(row.text.split()) for row in rows])}


def _nearest(row: Example, output: str) -> str:
    """Return the target that an output is compared with: of several right ones that with the fewest other words."""
    if not row.also or output == row.target:
        return row.target
    words = spoken_words(output)
    return min((row.target, *row.also), key=lambda target: edit_distance(spoken_words(target), words))


def _shown_examples(
    rows: Sequence[Example], written: Sequence[str], references: Sequence[str], codec: Codec
) -> list[dict[str, str]]:
    """Return some sources with what was written of them: the first ones, or of sounds and pictures the first wrong
    ones, each with what it takes to show it."""
    compared = list(zip(rows, written, references, strict=True))
    if codec.sizes.frame:
        compared.sort(key=lambda one: one[1] == one[2])
    examples = []
    for row, said, nearest in compared[:SHOWN]:
        other = {"nearest": nearest} if nearest != row.target else {}
        examples.append({"source": row.text, "reference": row.target, "output": said, **other})
    if codec.sizes.frame:
        for example, shown in zip(examples, shown_sources([one["source"] for one in examples], codec), strict=True):
            example |= shown
    return examples


def _sources(column: Column, limit: int) -> list[NDArray[Any]]:
    """List the sources, each cut at `limit`; one that ends with STOP, as SentencePiece's do, still ends with it."""
    if column.width > 1:
        return column.rows(limit)
    return [
        np.append(row[: limit - 1], row[-1:]) if len(row) > limit and row[-1] == STOP else row[:limit]
        for row in column.rows()
    ]


def _padded(sources: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Pad sources: ids, or frames as they are."""
    return pad(sources, dtype=sources[0].dtype if sources and sources[0].ndim > 1 else np.int64)


def _prefix(text: str, tokenizer: Tokenizer) -> list[int]:
    """The ids that a target begins with."""
    ids = tokenizer.encode(text)
    if unknown := tokenizer.unknown(text, ids) if tokenizer.closed else []:
        raise InputError(
            f"decode.prefix holds {unknown[0]!r}, which is not in the vocabulary of targets, so that no target can "
            "begin with it. Write it with other words."
        )
    found: list[int] = ids.tolist()
    return found


def _translation(ranked: Sequence[Generated], prefix: list[int], decode: Decode, tokenizer: Tokenizer) -> Translation:
    texts = [tokenizer.decode(prefix + text.ids) for text in ranked]
    best = tuple(Candidate(text, one.logprob, one.score) for text, one in zip(texts, ranked, strict=True))
    return Translation(texts[0], ranked[0].logprob, best if decode.n_best > 1 else ())


TASK = Seq2seq()
