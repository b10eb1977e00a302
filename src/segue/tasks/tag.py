"""Tag: predict a tag for each word of a sentence, or several; or spans, in a scheme such as BIO (data.label)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.collate import mask_of, pad
from segue.batches.encode import Encoded
from segue.batches.spelled_words import pad_letters, spelt
from segue.batches.store import Column, Columns, Store, id_dtype
from segue.batches.word_pieces import collate_pieces, encode_pieces
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.example import Example, joined, names_of
from segue.data.iob import in_brackets, kind_of, mark_spans, spans
from segue.data.shapes import TAGGED, Shape
from segue.errors import InputError
from segue.inference import metrics
from segue.inference.by_length import by_tokens, windows
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.models.base import Model
from segue.tasks.base import Done, HeldOut, Task, Values, causal_body, nothing
from segue.tasks.labels import (
    calibrated,
    check_known,
    check_some,
    check_test,
    check_two,
    index_of,
    sorted_labels,
    tags_of,
    yes_and_no,
)
from segue.tokens.split import sentence_words
from segue.tokens.tokenizer import Tokenizer

SHOWN = 20
_ROWS = 64
_CPU, _GPU = (1 << 12, 64), (1 << 16, 1024)
"""Tokens, and rows, that are read at once."""
_OTHER_KINDS = ("char", "byte", "word", "bpe", "wordpiece", "unigram", "sentencepiece")
"""Kinds of tokens that cannot be tagged, since they are not the words of the data."""


@dataclass(frozen=True)
class Entity:
    """A span of a sentence: a name, a phrase."""

    text: str
    type: str
    start: int
    """The place of its first character in the text."""
    end: int
    """The place after its last character."""
    probability: float
    """The product of the probabilities of its tags."""


@dataclass(frozen=True)
class Tags:
    """What a tagger predicts for one sentence."""

    words: Sequence[str]
    tags: tuple[str, ...]
    """The tag of each word that is read."""
    probabilities: tuple[float, ...] = ()
    """The probability of each word's tag; empty if a word may have several tags."""
    of_each: tuple[dict[str, float], ...] = ()
    """If a word may have several tags: of each word, the probability of every tag."""
    text: str = ""
    """The text that was given, in which the words stand; empty: the words with blanks between them."""
    of_spans: bool = False
    """Whether the tags mark spans."""

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The spans in their order, with their places in the text; empty if the tags mark none."""
        if not self.of_spans:
            return ()
        text, places = _places(self.words, self.text)
        found = sorted(spans(self.tags), key=lambda span: span[1])
        return tuple(
            Entity(
                text[(start := places[first]) : (end := places[after - 1] + len(self.words[after - 1]))],
                kind,
                start,
                end,
                math.prod(self.probabilities[first:after]),
            )
            for kind, first, after in found
        )

    def __repr__(self) -> str:
        return f"Tags({self.line()!r})"

    def line(self) -> str:
        """Return the words with their tags (the/DET cow/NOUN), or with their spans in brackets ([ORG EU] rejects)."""
        if self.of_spans:
            unread = len(self.words) - len(self.tags)
            return in_brackets(self.words, [*self.tags, *["O"] * unread])
        both = [f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=False)]
        return " ".join([*both, *self.words[len(both) :]])

    def json(self) -> dict[str, Any]:
        sure = list[Any](self.probabilities or self.of_each)
        entities = {"entities": [asdict(entity) for entity in self.entities]} if self.of_spans else {}
        return {"words": list(self.words), "tags": list(self.tags), **entities} | (
            {"probabilities": sure} if sure else {}
        )


def _places(words: Sequence[str], text: str) -> tuple[str, list[int]]:
    """Return a text and the place of each of its words; if they do not stand in it, the words with blanks between."""
    places, end = [], 0
    for word in words:
        place = text.find(word, end)
        if place < 0:
            return _places(words, " ".join(words))
        places.append(place)
        end = place + len(word)
    return text, places


class Tag(Task):
    """Tags of words."""

    name = "tag"
    verbs = ("predict",)
    tokens = "space"
    figure = "accuracy"
    beside = ("span_f1", "precision", "recall", "accuracy", "micro_f1", "macro_f1", "calibration_error")
    curve = ("span_f1", "")
    decides = True
    judged_one_by_one = "words"
    head = "finetuned_tagger"
    ladder = (
        *("window_tagger/one", "window_tagger", "cnn_tagger/words", "rnn_tagger/words", "cnn_tagger", "rnn_tagger"),
    )

    @property
    def shape(self) -> Shape:
        return TAGGED

    def defaults(self, values: Values, model: type[Model]) -> None:
        if model.framed:  # the tokens are the body's
            return
        if values["tokens"]["kind"] in _OTHER_KINDS:
            raise InputError(
                f"tokens.kind={values['tokens']['kind']} cannot be tagged: a tag needs a word. Leave it out."
            )
        # Words seen once are read as UNK, so that the tagger learns what to do with unknown words.
        values["tokens"].setdefault("min_count", 2)

    def texts(self, example: Example, kind: str) -> Iterable[str]:
        yield " ".join(example.words)

    def labels(self, corpus: Corpus, data: Data) -> tuple[str, ...]:
        def of(example: Example) -> Iterable[str]:
            return tags_of(example, data.label)

        labels = sorted_labels(chain.from_iterable(map(of, corpus.examples("all"))))
        if data.label == "classes":
            check_some(labels, data.path)
        elif data.label == "class":
            check_two(labels, data.path)
        check_test(corpus, labels, of)
        return labels

    def check_tokens(self, tokenizer: Tokenizer, init: str, data: Data) -> None:
        if tokenizer.kind != "space":
            raise InputError(f"train.init={init} has {tokenizer.kind} tokens; a tagger needs words (space tokens).")

    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        if by_pieces(codec):
            return _encode_pieces(group, codec, labelled)
        tokenizer, dtype = codec.tokenizer, id_dtype(codec.tokenizer.vocab_size)
        text = Column.of([tokenizer.encode_words(example.words)[0] for example in group])
        folded = Column.of([tokenizer.fold_words(example.words) for example in group])
        letters = Column.of([spelt(example.words) for example in group])
        columns = {"text": Column(text.flat.astype(dtype), text.ends)}
        if labelled:
            tags = _tags(group, codec)
            columns["tags"] = Column(tags.ravel(), text.ends * (tags.size // max(1, len(tags))))
        columns["letters"] = Column(letters.flat.astype(np.uint32), letters.ends)
        columns["folded"] = Column(folded.flat.astype(dtype), folded.ends)
        return columns

    def collate(self, columns: Columns, limit: int) -> Batch:
        """Make a batch. Targets: one tag a word, or 0 or 1 for every tag, (B, T, C)."""
        if "firsts" in columns:
            tags = _rows_of_tags(columns["tags"], columns["firsts"]) if "tags" in columns else None
            return collate_pieces(columns, limit, tags)
        text = columns["text"].rows(limit)
        tokens_BT = pad(text)
        targets = np.full_like(tokens_BT, IGNORE)
        if "tags" in columns:
            targets = pad([row[:limit] for row in _rows_of_tags(columns["tags"], columns["text"])], IGNORE)
        chars_BTC = pad_letters(columns["letters"].rows(), tokens_BT.shape[1]) if "letters" in columns else None
        folded_BT = pad(columns["folded"].rows(limit)) if "folded" in columns else None
        return Batch(tokens_BT, targets, mask_of(text), folded_BT=folded_BT, chars_BTC=chars_BTC)

    def store(
        self,
        corpus: Corpus,
        split: str,
        codec: Codec,
        folder: Path,
        limit: int = 0,
        done: Callable[[int], None] = lambda rows: None,
    ) -> Encoded:
        return super().store(corpus, split, codec, folder, _limit(codec, limit), done)

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        if codec is not None:
            config = replace(config, length=_limit(codec, config.length))
        return super().batches(store, config, seed, carry, codec)

    def validate(
        self, opened: Opened, held_out: HeldOut, config: BatchConfig, limit: int, done: Done = nothing
    ) -> dict[str, float]:
        """As every task, or of spans: span F1 as well, and the accuracy of the tags that are decided for (Viterbi)."""
        config = replace(config, length=_limit(opened.codec, config.length))
        if not are_spans(opened.codec):
            return super().validate(opened, held_out, config, limit, done)
        sums, counts = np.zeros(3), np.zeros(3)
        store: Store = held_out.data
        for first in range(0, len(store), config.size):
            batch = self.collate(store.take(np.arange(first, min(first + config.size, len(store)))), config.length)
            judged, best_BT = opened.model.judge_and_decide(batch.to(opened.device))
            sums += float(judged.total), float(judged.right), judged.number
            counts += _span_counts(opened.codec.labels, batch.targets, best_BT.cpu().numpy())
            done(min(1.0, (first + config.size) / len(store)))
            if sums[2] >= limit:
                break
        span_f1 = metrics.span_score(*map(int, counts)).f1
        return {"loss": sums[0] / sums[2], "accuracy": sums[1] / sums[2], "span_f1": span_f1}

    def worth(self, values: dict[str, Any]) -> tuple[float, ...]:
        """Rank a validation by span F1, if tags are spans; then as every task."""
        return (0.0 if np.isnan(values["loss"]) else values.get("span_f1", 0.0), *super().worth(values))

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Tags]:
        labels, limit = opened.codec.labels, _limit(opened.codec, opened.limit)
        opened.model.eval()
        for _, group in windows(examples, _ROWS):
            decided = chain.from_iterable(self._decided(opened, group, limit))
            for example in group:
                count = len(example.words)
                read = list(islice(decided, count if by_pieces(opened.codec) else min(count, limit)))
                names = tuple(_named(labels, tag) for tag, _ in read)
                if opened.codec.sizes.label != "classes":
                    sure = tuple(p for _, p in read)
                    yield Tags(example.words, names, sure, (), example.text, are_spans(opened.codec))
                else:
                    each = (dict(zip(labels, p_C, strict=True)) for _, p_C in read)
                    yield Tags(example.words, names, of_each=tuple(each))

    def _decided(self, opened: Opened, group: Sequence[Example], limit: int) -> list[list[tuple[Any, Any]]]:
        """Choose the tags of the words that each row decides on, with their probabilities. Rows of pieces are read by
        their length, so that little is padded."""
        columns = self.encode(group, opened.codec, labelled=False)
        found: list[list[tuple[Any, Any]]] = [[]] * len(columns["text"])
        every = list(range(len(found)))
        parts: Iterable[list[int]] = (every[first : first + _ROWS] for first in every[::_ROWS])
        if by_pieces(opened.codec):
            parts = by_tokens(columns["text"].lengths().tolist(), *(_CPU if opened.device == "cpu" else _GPU))
        for part in parts:
            some = {name: column.take(np.array(part)) for name, column in columns.items()}
            best, sure = opened.model.decide(self.collate(some, limit).to(opened.device))
            for i, own, tags, p in zip(part, _own(some, limit), best.cpu().numpy(), sure.cpu().tolist(), strict=True):
                found[i] = [(tags[place], p[place]) for place in own]
        return found

    def asked(self, text: str, data: Data, name: str = "This run") -> Example:
        return Example(text=text, words=tuple(sentence_words(text)))

    def cut(self, opened: Opened, example: Example) -> int:
        if not by_pieces(opened.codec):
            return max(0, len(example.words) - opened.limit)
        lengths = _encode_pieces([example], opened.codec, labelled=False)["text"].lengths()
        return int(np.maximum(lengths - opened.codec.sizes.window, 0).sum())

    def figures(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Any]) -> Evaluation:
        labels, label = opened.codec.labels, opened.codec.sizes.label
        truth = [row.tags for row in rows]
        check_known(rows, [tuple(tags_of(row, label)) for row in rows], labels)
        # Words beyond the limit count as wrong, so that the figure covers every word.
        guesses = [p.tags + ("",) * (len(tags) - len(p.tags)) for tags, p in zip(truth, predictions, strict=True)]
        evaluation = _accuracy(truth, guesses)
        if are_spans(opened.codec) and any(map(mark_spans, truth)):
            evaluation = _span_f1(truth, [[tag or "O" for tag in guess] for guess in guesses], labels, evaluation)
        evaluation.result.update(sentences=len(rows), words=sum(map(len, truth)))
        if label == "classes":
            evaluation.result.update(_several_tags(labels, truth, guesses))
        else:
            evaluation.result.update(_by_tag(labels, rows, guesses, predictions, are_spans(opened.codec)))
        evaluation.examples.extend(_errors(rows, guesses, predictions, are_spans(opened.codec))[:SHOWN])
        return evaluation


def are_spans(codec: Codec) -> bool:
    """Whether the tags of a run mark spans, so that it is judged by them."""
    return codec.sizes.label != "classes" and mark_spans(codec.labels)


def by_pieces(codec: Codec) -> bool:
    """Whether the model reads words by their pieces."""
    return "firsts_BW" in codec.inputs


def _limit(codec: Codec, limit: int) -> int:
    """The length at which rows are cut. Rows of pieces are windows already; only a word that is longer is cut."""
    return codec.sizes.window if by_pieces(codec) else limit


def _accuracy(truth: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]]) -> Evaluation:
    """Compute the share of words with the right tag."""
    right = [sum(map(str.__eq__, tags, guess)) for tags, guess in zip(truth, guesses, strict=True)]
    pieces = np.array([right, list(map(len, truth))], np.float64).T
    evaluation = Evaluation({"task": "tag", "figure": "accuracy"}, pieces, share=True, ordered=True)
    evaluation.result.update(accuracy=evaluation.value, accuracy_ci=list(evaluation.interval()))
    return evaluation


def _span_f1(
    truth: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]], labels: Sequence[str], words: Evaluation
) -> Evaluation:
    """Compute span F1 = 2 · right / (predicted + true), which is a share of sums over sentences, with precision, recall
    and the figures of each type; the accuracy of words stands second."""
    counts = [metrics.span_counts(tags, guess) for tags, guess in zip(truth, guesses, strict=True)]
    pieces = np.array([[2 * right, predicted + true] for right, predicted, true in counts], np.float64)
    evaluation = Evaluation({"task": "tag", "figure": "span_f1"}, pieces, share=True, ordered=True)
    types = sorted({kind_of(tag) for tag in labels} - {"O"})
    by_type = metrics.span_counts_by_type(truth, guesses, types)
    evaluation.result.update(span_f1=evaluation.value, span_f1_ci=list(evaluation.interval()))
    evaluation.result.update(metrics.by_type(types, by_type), types=types, span_counts=by_type)
    evaluation.result.update({name: words.result[name] for name in ("accuracy", "accuracy_ci")})
    return evaluation


def _span_counts(labels: Sequence[str], targets: Any, best: Any) -> NDArray[np.int64]:
    """Count the right, predicted and true spans of a batch of ids of tags."""
    counts = np.zeros(3, np.int64)
    for true, guess in zip(np.asarray(targets), best, strict=True):
        real = true != IGNORE
        counts += metrics.span_counts(*([labels[i] for i in ids[real].tolist()] for ids in (true, guess)))
    return counts


def _tags(group: Sequence[Example], codec: Codec) -> NDArray[Any]:
    """Encode the tags of all words, end to end; if a word may have several, (words, tags) of 0 and 1."""
    index = {name: i for i, name in enumerate(codec.labels)}
    words = [(example, tag) for example in group for tag in example.tags]
    if codec.sizes.label == "classes":
        return yes_and_no(index, [(example, names_of(tag)) for example, tag in words])
    return np.array([index_of(index, tag, example) for example, tag in words], np.int32)


def _encode_pieces(group: Sequence[Example], codec: Codec, labelled: bool) -> Columns:
    """Encode words by their pieces, as the body of the model reads them."""
    sentences = [example.words for example in group]
    columns, words = encode_pieces(sentences, codec, codec.sizes.window, last=causal_body(codec))
    if labelled:
        tags = _tags(group, codec)
        columns["tags"] = Column(tags[words].ravel(), columns["firsts"].ends * (tags.size // max(1, len(tags))))
    return columns


def _own(columns: Columns, limit: int) -> list[NDArray[np.int64]]:
    """The places in each row of the words that are decided there."""
    if "own" in columns:
        return [np.flatnonzero(row) for row in columns["own"].rows()]
    return [np.arange(len(row)) for row in columns["text"].rows(limit)]


def _rows_of_tags(tags: Column, words: Column) -> list[NDArray[Any]]:
    """Split the tags by row: (words,), or (words, C) of 0 and 1."""
    if tags.flat.dtype != np.uint8:
        return tags.rows()
    classes = len(tags.flat) // max(1, len(words.flat))
    return [row.reshape(-1, classes) for row in tags.rows()]


def _named(labels: Sequence[str], tag: Any) -> str:
    """Return the name of a word's tag; if a word may have several, the names of all that are 1."""
    return joined(labels[i] for i in np.flatnonzero(tag).tolist()) if tag.ndim else labels[int(tag)]


def _by_tag(
    labels: Sequence[str],
    rows: Sequence[Example],
    guesses: Sequence[Sequence[str]],
    predictions: Sequence[Tags],
    of_spans: bool,
) -> dict[str, Any]:
    """Compute confusion matrix and calibration over the words that were read, one tag each. Of spans there is no
    matrix: their tags (B-LOC, E-LOC) are parts of what is judged."""
    index = {label: i for i, label in enumerate(labels)}
    pairs = [
        (index[true], index[guess], p)
        for row, tags, prediction in zip(rows, guesses, predictions, strict=True)
        for true, guess, p in zip(row.tags, tags, prediction.probabilities, strict=False)
        if true in index and guess in index
    ]
    if not pairs:
        return {}
    truth, guess, sure = (np.array(column) for column in zip(*pairs, strict=True))
    calibration = calibrated(metrics.reliability(sure, truth == guess))
    return calibration if of_spans else {**metrics.confused(labels, truth, guess), **calibration}


def _several_tags(
    labels: Sequence[str], truth: Iterable[Sequence[str]], guesses: Iterable[Sequence[str]]
) -> dict[str, float]:
    """Compute F1 over words that may have any number of tags."""
    true, guess = (
        np.array([[name in names_of(tag) for name in labels] for tags in of for tag in tags]) for of in (truth, guesses)
    )
    figures = metrics.several(true, guess)
    return {name: figures[name] for name in ("micro_f1", "macro_f1")}


def _errors(
    rows: Sequence[Example], guesses: Sequence[Sequence[str]], predictions: Sequence[Tags], of_spans: bool
) -> list[dict[str, str]]:
    """List the sentences with errors, the most confident errors first. Spans are shown as [TYPE words]."""

    def shown(words: Sequence[str], tags: Sequence[str], guess: Sequence[str]) -> dict[str, str]:
        if of_spans:
            return {"true spans": in_brackets(words, tags), "predicted spans": in_brackets(words, guess)}
        return {"text": " ".join(words), "tags": " ".join(tags), "predicted": " ".join(guess)}

    errors = []
    for row, guess, p in zip(rows, guesses, predictions, strict=True):
        read = [tag or "O" for tag in guess] if of_spans else guess
        if spans(row.tags) != spans(read) if of_spans else tuple(row.tags) != tuple(guess):
            errors.append(shown(row.words, row.tags, read) | _surest_word(row, guess, p))
    return sorted(errors, key=lambda error: error.get("probability", ""), reverse=True)


def _surest_word(row: Example, guess: Sequence[str], p: Tags) -> dict[str, str]:
    """Find the wrong word of a sentence with the highest confidence."""
    wrong = [
        (sure, word, true, tag)
        for sure, word, true, tag in zip(p.probabilities, row.words, row.tags, guess, strict=False)
        if true != tag
    ]
    if not wrong:
        return {}
    sure, word, true, tag = max(wrong)
    return {"surest error": f"{word}: {tag} for {true}", "probability": f"{sure:.2f}"}


TASK = Tag()
