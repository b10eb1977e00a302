"""Classify: predict the label of a text or of a pair of texts; or several labels, or a number (data.label)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.collate import mask_of, pad
from segue.batches.encode import Encoded, encode_texts
from segue.batches.spelled_words import place_letters
from segue.batches.store import Column, Columns, Store
from segue.batches.windows import encode_framed
from segue.data.config import Config as Data
from segue.data.config import Label as LabelKind
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.shapes import LABELLED, Shape, is_number
from segue.data.sources import optional_columns
from segue.errors import InputError
from segue.inference import metrics
from segue.inference.by_length import batches_by_length, windows
from segue.inference.evaluation import Evaluation
from segue.inference.label_metrics import (
    CLASS_METRICS,
    LABEL_METRICS,
    NUMBER_METRICS,
    class_pieces,
    number_pieces,
)
from segue.inference.opened import Opened
from segue.linear.features import rows_of_lengths
from segue.look.explain.leave_one_out import mattered, most_moving, words_read
from segue.models.base import Counted, Model
from segue.models.counted_classifier import CountedClassifier
from segue.tasks.base import Done, HeldOut, Task, Values, nothing
from segue.tasks.labels import (
    calibrated,
    check_known,
    check_some,
    check_test,
    check_two,
    index_of,
    sorted_labels,
    yes_and_no,
)
from segue.tokens.file_format import UNK
from segue.tokens.tokenizer import with_blank

WHOLE = 1 << 24
"""The default of batches.length for counted classifiers: a long row costs them no memory."""
MANY_LABELS = 20
"""With up to this many rows, every row may have a label of its own."""
SHOWN = 20
MOST_COLUMNS = 20
"""A table of predictions has a column for each class of up to so many."""
MOST_READ = 100_000
"""Words read at most to explain errors, so that an evaluation on long documents does not spend its time on this."""
_ROWS, _ROWS_COUNTED = 64, 512
"""Rows predicted in one batch; more if rows are not padded."""
_TOKENS, _TOKENS_GPU = 1 << 10, 1 << 15
"""Tokens of framed rows that are predicted in one batch."""
_SHOWN = 5
"""Classes whose probabilities a printed label has."""
_STORED: dict[LabelKind, str] = {"class": "int32", "classes": "uint8", "number": "float32"}


@dataclass(frozen=True)
class Label:
    """What a classifier predicts for one text."""

    label: str
    """The class; several classes are separated by commas; a number is written out."""
    labels: Sequence[str]
    """Every class there is."""
    probabilities: tuple[float, ...] = ()
    """The probability of every class; empty if the label is a number."""
    number: float = 0.0
    chosen: tuple[str, ...] | None = None
    """The predicted classes, if a text may have several."""

    @property
    def several(self) -> bool:
        """Whether there may be any number of classes."""
        return self.chosen is not None

    def __repr__(self) -> str:
        """Write the label with the likeliest classes: Label('good', good 0.857, bad 0.143)."""
        likeliest = sorted(zip(self.labels, self.probabilities, strict=False), key=lambda pair: -pair[1])
        shares = [f"{label} {share:.3f}" for label, share in likeliest[:_SHOWN]]
        more = ["…"] if len(likeliest) > _SHOWN else []
        return f"Label({', '.join([repr(self.label), *shares, *more])})"

    def line(self) -> str:
        return self.label

    def json(self) -> dict[str, Any]:
        if not self.probabilities:
            return {"number": self.number}
        probabilities = dict(zip(self.labels, self.probabilities, strict=True))
        named = {"label": self.label} if self.chosen is None else {"labels": list(self.chosen)}
        return {**named, "probabilities": probabilities}


class Classify(Task):
    """Labels of texts."""

    name = "classify"
    verbs = ("predict", "predict --explain", "challenge")
    tokens = "word"
    figure = "accuracy"
    beside = (
        *("accuracy", "micro_f1", "macro_f1", "calibration_error"),
        *("mean_squared_error", "mean_absolute_error", "pearson", "spearman"),
    )
    metrics = tuple(LABEL_METRICS)
    decides = True
    head = "finetuned_classifier"
    ladder = (
        *("naive_bayes", "nbsvm", "ngram_bag", "bow", "cbow", "deep_cbow", "dan"),
        *("cnn_classifier", "rnn_classifier"),
    )

    @property
    def shape(self) -> Shape:
        return LABELLED

    def defaults(self, values: Values, model: type[Model]) -> None:
        """Read pairs where the file names its columns label, text and text2."""
        data = values["data"]
        if "path" in data and "columns" not in data:
            how = {ours: str(data[key]) for ours, key in (("form", "format"), ("encoding", "encoding")) if key in data}
            if columns := optional_columns(str(data["path"]), LABELLED, **how):  # type: ignore[arg-type]
                data["columns"] = columns
        if issubclass(model, Counted) and not values["batches"].get("length"):
            values["batches"]["length"] = WHOLE

    def metrics_of(self, label: str) -> tuple[str, ...]:
        return {"class": tuple(CLASS_METRICS), "number": tuple(NUMBER_METRICS)}.get(label, ("accuracy",))

    def ranked_by(self, data: Data) -> str:
        return "mean_squared_error" if data.label == "number" and data.metric == "auto" else super().ranked_by(data)

    def chance(self, examples: Iterable[Example]) -> float | None:
        counts = Counter(example.label for example in examples)
        return max(counts.values()) / counts.total() if counts else None

    def texts(self, example: Example, kind: str) -> Iterable[str]:
        return (with_blank(text, kind) for text in super().texts(example, kind))

    def labels(self, corpus: Corpus, data: Data) -> tuple[str, ...]:
        if data.label == "number":
            return ()
        of = _of_row(data.label)
        labels = sorted_labels(chain.from_iterable(map(of, corpus.examples("all"))))
        if data.label == "classes":
            check_some(labels, data.path)
        else:
            check_two(labels, data.path)
        if len(labels) > max(MANY_LABELS, sum(corpus.counts.values()) / 2):
            raise InputError(_too_many(labels, data))
        check_test(corpus, labels, of)
        _check_positive(labels, data)
        return labels

    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        if codec.sizes.body is not None:
            columns = encode_framed(group, codec.tokenizer, codec.sizes, codec.data.pairs, codec.letters)
        else:
            columns = {"text": encode_texts(group, codec.tokenizer)}
        if labelled:
            targets = _targets(group, codec)
            columns["label"] = Column(targets.ravel(), np.cumsum(np.full(len(group), targets[0].size)))
        return columns

    def collate(self, columns: Columns, limit: int) -> Batch:
        """Make a batch. Targets: one class a row; 0 or 1 for every class, (B, C); or one float a row."""
        text = columns["text"].rows(limit)
        read: dict[str, Any] = {}  # of framed rows
        if "segments" in columns:
            read["segments_BT"] = pad(columns["segments"].rows(limit))
        if "hidden" in columns:
            read["hidden_BND"] = pad(columns["hidden"].rows(), dtype=np.float32)
        elif "letters" in columns:
            read["chars_BTC"] = place_letters(pad(text) == UNK, columns["letters"].rows())
        if "label" not in columns:
            return Batch(pad(text), np.full(len(text), IGNORE), mask_of(text), **read)
        label = columns["label"].flat
        if label.dtype == np.uint8:  # 0 or 1 for every class
            label = label.reshape(len(text), -1).astype(np.float32)
        targets = label.astype(np.int64 if label.dtype.kind in "iu" else np.float32)
        # All numbers are targets; one may happen to equal IGNORE, so count them here.
        count = targets.size if targets.dtype.kind == "f" else -1
        return Batch(pad(text), targets, mask_of(text), **read, count=count)

    def store(
        self,
        corpus: Corpus,
        split: str,
        codec: Codec,
        folder: Path,
        limit: int = 0,
        done: Callable[[int], None] = lambda rows: None,
    ) -> Encoded:
        return super().store(corpus, split, codec, folder, 0 if codec.sizes.body else limit, done)

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        return super().batches(store, self._uncut(config, codec), seed, carry, codec)

    def _uncut(self, config: BatchConfig, codec: Codec | None) -> BatchConfig:
        """Framed rows are never cut: batches.length is the length of a window."""
        return replace(config, length=WHOLE) if codec is not None and codec.sizes.body else config

    def to_validate(self, store: Store, config: BatchConfig, limit: int) -> NDArray[np.int64]:
        """Read framed rows by their lengths, so that little is padded."""
        if config.length < WHOLE:
            return super().to_validate(store, config, limit)
        rows = -(-limit // max(1, int(store.columns["label"].lengths()[0])))  # several labels are as many predictions
        return np.argsort(store.columns["text"].lengths()[:rows], kind="stable")

    def cut(self, opened: Opened, example: Example) -> int:
        return 0 if opened.codec.sizes.body else super().cut(opened, example)

    def check_store(self, store: Store, data: Data) -> None:
        numbers = store.columns["label"].flat
        if data.label == "number" and len(set(numbers.tolist())) == 1:
            raise InputError(
                f"Every row of {data.path} has the number {numbers[0]:g}: there is nothing to learn. Expected two "
                "numbers or more; check the file and data.columns."
            )

    def validate(
        self, opened: Opened, held_out: HeldOut, config: BatchConfig, limit: int, done: Done = nothing
    ) -> dict[str, float]:
        if not isinstance(opened.model, CountedClassifier):
            config = self._uncut(config, opened.codec)
            values = super().validate(opened, held_out, config, limit, done)
            return values | self._chosen_by(opened, held_out.data, config, limit)
        nats = right = 0.0
        store: Store = held_out.data
        for first in range(0, len(store), config.size):
            columns = store.take(np.arange(first, min(first + config.size, len(store))))
            batch = self.collate(columns, config.length)
            logp_BC = opened.model.class_logprobs(batch)
            nats -= float(logp_BC[np.arange(len(logp_BC)), batch.targets].sum())
            right += float((logp_BC.argmax(1) == batch.targets).sum())
        return {"loss": nats / len(store), "accuracy": right / len(store)}

    def _chosen_by(self, opened: Opened, store: Store, config: BatchConfig, limit: int) -> dict[str, float]:
        """Compute the figure by which the best weights are chosen, where it is neither accuracy nor loss."""
        import torch

        main = self.ranked_by(opened.codec.data)
        if main in ("accuracy", "mean_squared_error"):
            return {}
        order = self.to_validate(store, config, limit)[:limit]
        truth, guess = [], []
        with torch.inference_mode():
            for first in range(0, len(order), config.size):
                batch = self.collate(store.take(order[first : first + config.size], config.length), config.length)
                scores = opened.model.probabilities(opened.model(batch.to(opened.device))[0]).float().cpu().numpy()
                truth.append(batch.targets)
                guess.append(scores.argmax(1) if main in CLASS_METRICS else scores[:, 0])
        found = np.concatenate(truth), np.concatenate(guess)
        pieces = class_pieces(*found, len(opened.codec.labels)) if main in CLASS_METRICS else number_pieces(*found)
        return {main: float(LABEL_METRICS[main].of_sums(pieces.sum(0)[None])[0])}

    def worth(self, values: dict[str, Any]) -> tuple[float, ...]:
        """Rank a validation by the figure that data.metric names, where it was computed."""
        named = [values[name] for name in ("matthews", "positive_f1", "pearson", "spearman") if name in values]
        return (named[0], -values["loss"]) if named and not np.isnan(values["loss"]) else super().worth(values)

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Label]:
        if opened.codec.sizes.body is not None:
            for _, group in windows(examples, _ROWS):
                yield from map(partial(_label, opened.codec), self._by_length(opened, group))
            return
        source = iter(examples)
        at_once = _ROWS_COUNTED if isinstance(opened.model, CountedClassifier) else _ROWS
        while group := list(islice(source, at_once)):
            yield from map(partial(_label, opened.codec), self._answers(opened, group).tolist())

    def _answers(self, opened: Opened, group: Sequence[Example]) -> Any:
        """Run the model on rows; return (rows, classes) of probabilities, or (rows, 1) of numbers."""
        columns = self.encode(group, opened.codec, labelled=False)
        if isinstance(opened.model, CountedClassifier):
            text = columns["text"]
            return np.exp(opened.model.rows_logprobs(rows_of_lengths(text.flat, text.lengths(), opened.limit)))
        return self._scored(opened, self.collate(columns, opened.limit))

    def _scored(self, opened: Opened, batch: Batch) -> Any:
        """Run a network on rows of ids."""
        import torch

        opened.model.eval()
        with torch.inference_mode():
            logits, _ = opened.model(batch.to(opened.device))
            return opened.model.probabilities(logits).cpu().numpy()

    def _by_length(self, opened: Opened, group: Sequence[Example]) -> list[Any]:
        """Run a model with a body on rows, those of about the same length together."""
        columns = self.encode(group, opened.codec, labelled=False)
        tokens = _TOKENS if opened.device == "cpu" else _TOKENS_GPU
        found: list[Any] = [None] * len(group)
        for places in batches_by_length(columns["text"].lengths().tolist(), tokens):
            batch = self.collate({name: column.take(np.array(places)) for name, column in columns.items()}, WHOLE)
            batch = replace(batch, unpadded=bool(batch.mask_BT.all()))
            for place, scores in zip(places, self._scored(opened, batch).tolist(), strict=True):
                found[place] = scores
        return found

    def asked(self, text: str, data: Data, name: str = "This run") -> Example:
        if not data.pairs:
            return super().asked(text, data, name)
        texts = text.split("\t")
        if len(texts) != 2:
            found = f"{len(texts)} columns" if texts[1:] else "no tab"
            raise InputError(f"{name} judges pairs: '{text[:60]}' has {found}. Expected a tab between two.")
        return Example(text=texts[0], target=texts[1])

    def cells(self, prediction: Label) -> dict[str, str]:
        """Return the label; how probable it is; and of few classes the probability of each."""
        found = {"prediction": prediction.label}
        if not prediction.probabilities:
            return found
        if not prediction.several:
            found["probability"] = f"{max(prediction.probabilities):.6g}"
        by_label = zip(prediction.labels, prediction.probabilities, strict=True)
        few = len(prediction.labels) <= MOST_COLUMNS
        return found | ({f"p({label})": f"{p:.6g}" for label, p in by_label} if few else {})

    def figures(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Any]) -> Evaluation:
        kinds = {"class": self._classes, "classes": _several, "number": _numbers}
        return kinds[opened.codec.sizes.label](opened, rows, predictions)

    def _classes(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Label]) -> Evaluation:
        labels = opened.codec.labels
        index = {label: i for i, label in enumerate(labels)}
        check_known(rows, [(row.label,) for row in rows], index)
        _check_positive(labels, opened.codec.data)
        main = self.ranked_by(opened.codec.data)
        truth = np.array([index[row.label] for row in rows])
        guess = np.array([index[p.label] for p in predictions])
        right = (truth == guess).astype(np.float64)
        two, named = len(labels) == 2, opened.codec.data.metric != "auto"
        # The other metrics take a column a class; of many classes that nobody asked about it would be a waste.
        pieces = class_pieces(truth, guess, len(labels)) if two or named else _counted(right)
        others = ("accuracy", *(("matthews",) if named else ()), *(("positive_f1",) if two and named else ()))
        result = {
            **_figures_of(pieces, main, *others),
            "macro_f1": metrics.macro_f1(truth, guess),
            "rows": len(rows),
            **metrics.confused(labels, truth, guess),
            **calibrated(metrics.reliability([max(p.probabilities) for p in predictions], right)),
        }
        missed = [(row, p) for row, p in zip(rows, predictions, strict=True) if p.label != row.label]
        missed.sort(key=lambda pair: max(pair[1].probabilities), reverse=True)
        examples = self._surest(opened, missed[:SHOWN])
        return _evaluation(result, pieces, examples)

    def _surest(self, opened: Opened, missed: Sequence[tuple[Example, Label]]) -> list[dict[str, str]]:
        """List the most confident errors, with the words that mattered, as long as finding those is quick."""
        read = accumulate(words_read(row) for row, _ in missed)
        few = [row for (row, _), words in zip(missed, read, strict=False) if words <= MOST_READ]
        moved = [most_moving(words) for words in mattered(partial(self.predict, opened), few)]
        return [
            {
                "text": _row_text(row),
                "label": row.label,
                "predicted": p.label,
                "probability": f"{max(p.probabilities):.2f}",
                "words for it": words,
            }
            for (row, p), words in zip(missed, chain(moved, repeat("")), strict=False)
        ]


def _targets(group: Sequence[Example], codec: Codec) -> NDArray[Any]:
    """Encode the labels of rows: the class of each, (rows, classes) of 0 and 1, or a number."""
    index, label = {name: i for i, name in enumerate(codec.labels)}, codec.sizes.label
    if label == "classes":
        return yes_and_no(index, [(example, example.tags) for example in group])
    if label == "number":
        return np.array([float(example.label) for example in group], _STORED[label])
    return np.array([index_of(index, example.label, example) for example in group], _STORED[label])


def _too_many(labels: Sequence[str], data: Data) -> str:
    """Say that there is almost a label for every row, and what may be meant: numbers, or the text of each row."""
    found = f"{data.path} has {len(labels):,} different labels, one for every row or two, such as '{labels[0][:60]}'. "
    if all(map(is_number, labels)):
        return f"{found}Expected each label many times. Are they numbers to be learnt? data.label=number says so."
    return (
        f"{found}Expected each label many times: is the text where the label should be? "
        f"data.columns={_swapped(data.columns)} reads them the other way round."
    )


def _swapped(columns: str) -> str:
    """The setting data.columns that reads label and text the other way round."""
    first, second, *rest = (columns or "1,2").split(",")
    return ",".join([second.strip(), first.strip(), *rest])


def _of_row(label: LabelKind) -> Any:
    """Return the function that gives the labels of a row."""
    return (lambda row: row.tags) if label == "classes" else (lambda row: (row.label,))


def _label(codec: Codec, row: Sequence[float]) -> Label:
    """Turn the model's output for one row into a Label."""
    if codec.sizes.label == "number":
        return Label(f"{row[0]:.6g}", codec.labels, number=row[0])
    if codec.sizes.label == "class":
        return Label(codec.labels[int(np.argmax(row))], codec.labels, tuple(row))
    chosen = tuple(name for name, p in zip(codec.labels, row, strict=True) if p > 0.5)
    return Label(",".join(chosen), codec.labels, tuple(row), chosen=chosen)


def _check_positive(labels: Sequence[str], data: Data) -> None:
    """Refuse F1 of the positive class where there are not two classes."""
    if data.metric == "positive_f1" and len(labels) != 2:
        raise InputError(
            f"data.metric=positive_f1 is F1 of the second of two classes, and {data.path} has {len(labels)}. Name "
            "another: accuracy, matthews."
        )


def _counted(right: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([right, np.ones(len(right))], 1)


def _figures_of(pieces: NDArray[np.float64], main: str, *others: str) -> dict[str, Any]:
    """Compute the figure that ranks, with a place for its interval, and others."""
    values = {name: float(LABEL_METRICS[name].of_sums(pieces.sum(0)[None])[0]) for name in (main, *others)}
    return {"task": "classify", "figure": main, main: values.pop(main), f"{main}_ci": [], **values}


def _evaluation(result: dict[str, Any], pieces: NDArray[np.float64], examples: list[dict[str, str]]) -> Evaluation:
    """Make the evaluation, with the interval of the figure that ranks."""
    metric = LABEL_METRICS[result["figure"]]
    found = Evaluation(result, pieces, examples, metric.of_sums, metric.share)
    result[f"{found.figure}_ci"] = list(found.interval())
    return found


def _several(opened: Opened, rows: Sequence[Example], predictions: Sequence[Label]) -> Evaluation:
    """Evaluate any number of labels a row: a row is right if all of its labels are."""
    names = opened.codec.labels
    check_known(rows, [row.tags for row in rows], names)
    truth = np.array([[name in row.tags for name in names] for row in rows])
    guess = np.array([[name in (p.chosen or ()) for name in names] for p in predictions])
    right = (truth == guess).all(1).astype(np.float64)
    pieces, figures = _counted(right), metrics.several(truth, guess)
    errors = [
        {"text": _row_text(row), "labels": ", ".join(row.tags), "predicted": ", ".join(p.chosen or ())}
        for row, p in zip(rows, predictions, strict=True)
        if set(row.tags) != set(p.chosen or ())
    ]
    return _evaluation(_figures_of(pieces, "accuracy") | figures | {"rows": len(rows)}, pieces, errors[:SHOWN])


def _numbers(opened: Opened, rows: Sequence[Example], predictions: Sequence[Label]) -> Evaluation:
    """Evaluate one number a row; the examples are those with the largest errors."""
    truth, guess = np.array([float(row.label) for row in rows]), np.array([p.number for p in predictions])
    pieces = number_pieces(truth, guess)
    squares = pieces[:, 0]
    result = {
        **_figures_of(pieces, TASK.ranked_by(opened.codec.data)),
        "mean_squared_error": float(squares.mean()),
        "mean_absolute_error": float(np.abs(truth - guess).mean()),
        "pearson": metrics.pearson(truth, guess),
        "spearman": metrics.spearman(truth, guess),
        "rows": len(rows),
    }
    worst = np.argsort(-squares, kind="stable")[:SHOWN].tolist()
    missed = [(rows[i], predictions[i]) for i in worst if squares[i]]
    errors = [{"text": _row_text(row), "number": row.label, "predicted": p.label} for row, p in missed]
    return _evaluation(result, pieces, errors)


def _row_text(row: Example) -> str:
    """Return the text of a row, or both texts of a pair."""
    return f"{row.text} | {row.target}" if row.target else row.text


TASK = Classify()
