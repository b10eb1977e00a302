"""Tag: predict a tag for each word of a sentence, or several; or spans, in a scheme such as BIO (data.label)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.codec import Codec
from segue.batches.collate import mask_of, pad
from segue.batches.spelled_words import pad_letters, spelt
from segue.batches.store import Column, Columns, id_dtype
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.example import Example, joined, names_of
from segue.data.shapes import TAGGED, Shape
from segue.errors import InputError
from segue.inference import metrics
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.models.base import Model
from segue.tasks.base import Task, Values
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
from segue.tokens.tokenizer import Tokenizer

SHOWN = 20
_ROWS = 64
_OTHER_KINDS = ("char", "byte", "word", "bpe", "wordpiece", "unigram")
"""Kinds of tokens that cannot be tagged, since they are not the words of the data."""


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

    def line(self) -> str:
        return " ".join(self.tags)

    def json(self) -> dict[str, Any]:
        sure = list[Any](self.probabilities or self.of_each)
        return {"words": list(self.words), "tags": list(self.tags), **({"probabilities": sure} if sure else {})}


class Tag(Task):
    """Tags of words."""

    name = "tag"
    verbs = ("predict",)
    tokens = "space"
    figure = "accuracy"
    beside = ("accuracy", "micro_f1", "macro_f1", "span_f1", "calibration_error")
    decides = True
    judged_one_by_one = "words"
    ladder = (
        *("window_tagger/one", "window_tagger", "cnn_tagger/words", "rnn_tagger/words", "cnn_tagger", "rnn_tagger"),
    )

    @property
    def shape(self) -> Shape:
        return TAGGED

    def defaults(self, values: Values, model: type[Model]) -> None:
        if values["tokens"]["kind"] in _OTHER_KINDS:
            raise InputError(
                f"tokens.kind={values['tokens']['kind']} cannot be tagged: a tag needs a word. Leave it out."
            )
        # Words seen once are read as UNK, so that the tagger learns what to do with unknown words.
        values["tokens"].setdefault("min_count", 2)

    def texts(self, example: Example) -> Iterable[str]:
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
        tokenizer, dtype = codec.tokenizer, id_dtype(codec.tokenizer.vocab_size)
        text = Column.of([tokenizer.encode_words(example.words) for example in group])
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
        text = columns["text"].rows(limit)
        tokens_BT = pad(text)
        targets = np.full_like(tokens_BT, IGNORE)
        if "tags" in columns:
            targets = pad([row[:limit] for row in _rows_of_tags(columns["tags"], columns["text"])], IGNORE)
        chars_BTC = pad_letters(columns["letters"].rows(), tokens_BT.shape[1]) if "letters" in columns else None
        folded_BT = pad(columns["folded"].rows(limit)) if "folded" in columns else None
        return Batch(tokens_BT, targets, mask_of(text), folded_BT=folded_BT, chars_BTC=chars_BTC)

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Tags]:
        source = iter(examples)
        while group := list(islice(source, _ROWS)):
            batch = self.collate(self.encode(group, opened.codec, labelled=False), opened.limit)
            opened.model.eval()
            best, sure = opened.model.decide(batch.to(opened.device))
            for example, tags, p_T in zip(group, best.cpu().numpy(), sure.cpu().tolist(), strict=True):
                count = min(len(example.words), opened.limit)
                names = tuple(_named(opened.codec.labels, tag) for tag in tags[:count])
                if tags.ndim == 1:
                    yield Tags(example.words, names, tuple(p_T[:count]))
                else:
                    each = (dict(zip(opened.codec.labels, p_C, strict=True)) for p_C in p_T[:count])
                    yield Tags(example.words, names, of_each=tuple(each))

    def cut(self, opened: Opened, example: Example) -> int:
        return max(0, len(example.words) - opened.limit)

    def figures(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Any]) -> Evaluation:
        labels, label = opened.codec.labels, opened.codec.sizes.label
        check_known(rows, [tuple(tags_of(row, label)) for row in rows], labels)
        # Words beyond the limit count as wrong, so that the figure covers every word.
        guesses = [p.tags + ("",) * (len(row.tags) - len(p.tags)) for row, p in zip(rows, predictions, strict=True)]
        right = [sum(map(str.__eq__, row.tags, guess)) for row, guess in zip(rows, guesses, strict=True)]
        pieces = np.array([right, [len(row.tags) for row in rows]], np.float64).T
        spans = metrics.span_f1([row.tags for row in rows], [[tag or "O" for tag in guess] for guess in guesses])
        evaluation = Evaluation({"task": "tag", "figure": "accuracy"}, pieces, share=True, ordered=True)
        evaluation.result.update(
            accuracy=float(pieces[:, 0].sum() / pieces[:, 1].sum()),
            accuracy_ci=list(evaluation.interval()),
            span_f1=spans.f1 if spans else None,
            sentences=len(rows),
            words=int(pieces[:, 1].sum()),
        )
        if label == "classes":
            evaluation.result.update(_several_tags(labels, [row.tags for row in rows], guesses))
        else:
            evaluation.result.update(_by_tag(labels, rows, guesses, predictions))
        evaluation.examples.extend(_errors(rows, guesses, predictions)[:SHOWN])
        return evaluation


def _tags(group: Sequence[Example], codec: Codec) -> NDArray[Any]:
    """Encode the tags of all words, end to end; if a word may have several, (words, tags) of 0 and 1."""
    index = {name: i for i, name in enumerate(codec.labels)}
    words = [(example, tag) for example in group for tag in example.tags]
    if codec.sizes.label == "classes":
        return yes_and_no(index, [(example, names_of(tag)) for example, tag in words])
    return np.array([index_of(index, tag, example) for example, tag in words], np.int32)


def _rows_of_tags(tags: Column, text: Column) -> list[NDArray[Any]]:
    """Split the tags by row: (words,), or (words, C) of 0 and 1."""
    if tags.flat.dtype != np.uint8:
        return tags.rows()
    classes = len(tags.flat) // max(1, len(text.flat))
    return [row.reshape(-1, classes) for row in tags.rows()]


def _named(labels: Sequence[str], tag: Any) -> str:
    """Return the name of a word's tag; if a word may have several, the names of all that are 1."""
    return joined(labels[i] for i in np.flatnonzero(tag).tolist()) if tag.ndim else labels[int(tag)]


def _by_tag(
    labels: Sequence[str], rows: Sequence[Example], guesses: Sequence[Sequence[str]], predictions: Sequence[Tags]
) -> dict[str, Any]:
    """Compute confusion matrix and calibration over the words that were read, one tag each."""
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
    return {
        **metrics.confused(labels, truth, guess),
        **calibrated(metrics.reliability(sure, truth == guess)),
    }


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
    rows: Sequence[Example], guesses: Sequence[Sequence[str]], predictions: Sequence[Tags]
) -> list[dict[str, str]]:
    """List the sentences with errors, the most confident errors first."""
    errors = [
        {"text": " ".join(row.words), "tags": " ".join(row.tags), "predicted": " ".join(guess)}
        | _surest_word(row, guess, p)
        for row, guess, p in zip(rows, guesses, predictions, strict=True)
        if tuple(row.tags) != tuple(guess)
    ]
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
