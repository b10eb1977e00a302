"""An ensemble of classifiers: a logarithmic opinion pool, Genest and Zidek 1986; weights by likelihood, Hinton 1999.

    log p(class | text)  =  sum over parts i of w_i · log p_i(class | text)  -  log of what makes them sum to one

The parts are finished runs with the same labels, of any kind and any tokens, and the class is predicted from what each
of them says of the text. The weights w_i >= 0 make validation rows, which no part has learnt from, likeliest; they need
not sum to one, so that parts that are too sure of themselves are toned down. There it departs from both papers, whose
weights sum to one.

The text comes as bytes, which each part cuts into its own tokens. The parts' files are kept in the ensemble's own, so
that it stands alone.
"""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.collate import mask_of, pad
from segue.batches.encode import encode_texts
from segue.batches.spelled_words import place_letters
from segue.batches.store import Columns
from segue.batches.windows import encode_framed
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.errors import InputError
from segue.linear.features import Rows, rows_of_lengths
from segue.linear.solve import best_scale, log_softmax
from segue.models import model_class
from segue.models.base import ModelConfig, Record, Sizes, TrainConfig, config_of
from segue.models.counted_classifier import CountedClassifier, Floats, labelled
from segue.ngrams.model_file import Arrays, write_arrays
from segue.tokens.tokenizer import Tokenizer

FILES = ("config.json", "recipe.toml", "tokenizer.json", "model.safetensors")
LEAST = -30.0
"""Floor of the log p of a part, in nats: no part can rule out a class."""
HOLD = 30.0
"""Strength of the prior towards equal weights, in rows."""
_ROWS = 64


class Ensemble(CountedClassifier):
    """Several classifiers as one."""

    tokens = ("byte",)

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        runs: tuple[str, ...] = ()
        """The run folders of its parts, trained on the same data with the same rows held out: runs/a,runs/b."""

    @dataclass(frozen=True)
    class Train(TrainConfig):
        """The recipe's [train]: the weights have no settings."""

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.parts: list[_Part] = []
        self.weights: Floats = np.zeros(0)

    @property
    def parameters_count(self) -> int:
        return len(self.weights) + sum(part.parameters_count for part in self.parts)

    def fit(
        self, store: Any, train: Train, held_out: Any = None, done: Callable[[float], None] = lambda share: None
    ) -> Iterator[Record]:
        """Open the runs, and find their weights on the rows of `held_out`; they were trained on those of `store`."""
        if held_out is None:
            raise InputError("An ensemble is weighed on validation rows: give data.validation, as its runs had it.")
        self.parts = [_Part({name: _read(Path(run) / name) for name in FILES}, run) for run in self.config.runs]
        _check_labels(self.parts, self.sizes.classes)
        rows, _, labels = labelled(self.sizes, held_out, None)
        texts = _texts(rows)
        said = []
        for i, part in enumerate(self.parts):
            done(i / len(self.parts))
            said.append(part.class_logprobs(texts))
        self.weights = best_weights(np.stack(said), labels)
        for step, (part, logp, weight) in enumerate(zip(self.parts, said, self.weights, strict=True), 1):
            accuracy = float((logp.argmax(1) == labels).mean())
            yield Record(step, "train", {"part": part.name, "weight": float(weight), "accuracy": accuracy})

    def rows_logprobs(self, rows: Rows) -> Floats:
        texts = _texts(rows)
        return pooled(np.stack([part.class_logprobs(texts) for part in self.parts]), self.weights)

    def save(self, folder: Path) -> None:
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights}
        for i, part in enumerate(self.parts):
            files = {**part.files, "name": part.name.encode()}
            arrays |= {f"{i}/{name}": np.frombuffer(content, np.uint8) for name, content in files.items()}
        write_arrays(Path(folder) / "model.safetensors", arrays)

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        self.weights = np.array(arrays.numbers("weights", (None,), 0.0))
        inner = [arrays.part(f"{i}/") for i in range(len(self.weights))]
        self.parts = [_Part({name: part.text(name) for name in FILES}, part.text("name").decode()) for part in inner]
        _check_labels(self.parts, self.sizes.classes)


class _Part:
    """A run, opened from its files."""

    def __init__(self, files: dict[str, bytes], name: str) -> None:
        self.files, self.name = files, name
        config = json.loads(files["config.json"])
        kind = config["kind"]
        if kind.endswith(".py"):
            raise InputError(f"{name} is a model file of its own, {kind}; an ensemble takes those of the package.")
        cls = model_class(kind)
        sizes = Sizes.of(config["sizes"])
        if cls.task != "classify" or sizes.label != "class":
            raise InputError(f"{name} does not give each row one class; an ensemble is of classifiers that do.")
        self.labels = config["labels"]
        recipe = tomllib.loads(files["recipe.toml"].decode())
        self.limit, self.pairs = int(recipe["batches"]["length"]), Data(columns=recipe["data"]["columns"]).pairs
        make: Callable[[], Any] = partial(cls, config_of(cls.Config, config["config"]), sizes)
        with tempfile.TemporaryDirectory(prefix="segue-") as folder:
            tokenizer, weights = Path(folder) / "tokenizer.json", Path(folder) / "model.safetensors"
            tokenizer.write_bytes(files["tokenizer.json"])
            self.tokenizer = Tokenizer.load(tokenizer)
            if (sizes.vocab_size, sizes.classes) != (self.tokenizer.vocab_size, len(self.labels)) or self.limit < 1:
                raise ValueError(f"the sizes of {name} are not those of its tokens and labels")
            if issubclass(cls, CountedClassifier):
                weights.write_bytes(files["model.safetensors"])
                self.model: Any = make()
                self.model.load(Path(folder))  # a memory-mapped file stays readable after it is deleted
                return
        from safetensors.torch import load

        from segue.models.network import load_network

        self.model = load_network(make, load(files["model.safetensors"]))

    @property
    def parameters_count(self) -> int:
        return int(self.model.parameters_count)

    def class_logprobs(self, texts: list[Example]) -> Floats:
        """Compute (texts, C) log p of each class."""
        column = encode_texts(texts, self.tokenizer)
        if isinstance(self.model, CountedClassifier):
            said: Floats = self.model.rows_logprobs(rows_of_lengths(column.flat, column.lengths(), self.limit))
            return np.maximum(said, LEAST)
        columns: Columns = {"text": column}
        if self.model.framed:
            letters = "chars_BTC" in type(self.model.body).inputs
            columns = encode_framed(texts, self.tokenizer, self.model.sizes, self.pairs, letters)
        parts = [np.arange(i, min(i + _ROWS, len(texts))) for i in range(0, len(texts), _ROWS)]
        logp_BC: Floats = np.concatenate([self._forward(taken(columns, part)) for part in parts])
        return np.maximum(logp_BC, LEAST)

    def _forward(self, columns: Columns) -> Floats:
        import torch

        with torch.inference_mode():
            rows = columns["text"].rows(None if self.model.framed else self.limit)
            tokens_BT, read = pad(rows), dict[str, Any]()
            if "segments" in columns:
                read["segments_BT"] = pad(columns["segments"].rows())
            if "letters" in columns:
                read["chars_BTC"] = place_letters(tokens_BT == self.tokenizer.unk, columns["letters"].rows())
            batch = Batch(tokens_BT, np.zeros(len(rows), np.int64), mask_of(rows), **read)
            logits, _ = self.model(batch.to("cpu"))
            return logits.double().log_softmax(-1).numpy()  # type: ignore[no-any-return]


def taken(columns: Columns, rows: NDArray[np.int64]) -> Columns:
    """Some rows of every column."""
    return {name: column.take(rows) for name, column in columns.items()}


def pooled(logp_PBC: Floats, weights: Floats) -> Floats:
    """Combine the parts' log probabilities by their weights, normalised: (B, C)."""
    return log_softmax(np.tensordot(weights, logp_PBC, 1))


def best_weights(logp_PBC: Floats, labels: NDArray[Any]) -> Floats:
    """Find the weights >= 0 that maximise the likelihood of the labels.

    Each part is first calibrated alone (best_scale); then the weights are fitted together, with a prior of strength
    `HOLD` towards equal weights.
    """
    scales = np.array([best_scale(logp_BC, labels) for logp_BC in logp_PBC])
    scaled_PBC = scales[:, None, None] * logp_PBC
    weights = np.full(len(scales), 1.0 / len(scales))
    for _ in range(100):
        moved = _newton(scaled_PBC, labels, weights)
        if np.abs(moved - weights).max() < 1e-10:
            break
        weights = moved
    return np.asarray(scales * weights)


def _newton(logp_PBC: Floats, labels: NDArray[Any], weights: Floats) -> Floats:
    """Make one Newton step towards the best weights; the likelihood is concave, and a weight is never below 0."""
    parts, rows = logp_PBC.shape[:2]

    def value(weights: Floats) -> float:
        own = pooled(logp_PBC, weights)[np.arange(rows), labels].sum()
        return float(own - HOLD / 2 * ((weights - 1.0 / parts) ** 2).sum())

    p_BC = np.exp(pooled(logp_PBC, weights))
    mean_PB = (logp_PBC * p_BC).sum(2)
    gradient = (logp_PBC[:, np.arange(rows), labels] - mean_PB).sum(1) - HOLD * (weights - 1.0 / parts)
    centred = (logp_PBC - mean_PB[:, :, None]) * np.sqrt(p_BC)
    curvature = np.einsum("pbc,qbc->pq", centred, centred) + HOLD * np.eye(parts)
    free = (weights > 0) | (gradient > 0)
    step = np.zeros(parts)
    step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
    size = 1.0
    while size > 1e-9 and value(np.maximum(weights + size * step, 0)) < value(weights):
        size /= 2
    return np.maximum(weights + size * step, 0)


def _check_labels(parts: list[_Part], classes: int) -> None:
    first = parts[0]
    for part in parts:
        if part.labels != first.labels or len(part.labels) != classes:
            raise InputError(
                f"{part.name} has the labels {', '.join(part.labels)[:200]}; expected those of the data and of "
                f"{first.name}: {', '.join(first.labels)[:200]}. Train its runs on the same data."
            )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise InputError(
            f"{path.parent} is not a finished run: {path.name} is missing. `segue runs` lists them."
        ) from None


def _texts(rows: Rows) -> list[Example]:
    """Decode rows of bytes; STOP separates the two texts of a pair, and a space stands before each."""
    texts = []
    for begin, end in pairwise(rows.starts.tolist()):
        ids = rows.flat[begin:end].astype(np.int64)
        parts = [
            (part[part > 0] - 2).astype(np.uint8).tobytes() for part in np.split(ids, np.flatnonzero(ids == 0)[:1])
        ]
        first, *second = (part.decode(errors="replace").removeprefix(" ") for part in parts)
        texts.append(Example(text=first, target="".join(second)))
    return texts
