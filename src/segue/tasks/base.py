"""A task: what is asked of a model. Its rows, ids and batches; how it is validated, judged and shown.

A task has no state. Whatever stands left of this folder gets plain objects from it (a Shape, Columns, Batches, an
Evaluation) and knows no task; whatever stands right of it asks `recipe.task`. To add one, write a file with a `TASK`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.encode import Encoded, encode
from segue.batches.noise import OF_SOURCES
from segue.batches.rows import Rows
from segue.batches.store import Columns, Store
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.shapes import Shape
from segue.errors import InputError
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.inference.score import Line, PseudoLine
from segue.models import model_class
from segue.models.base import Body, Model, TaskName
from segue.tokens.file_format import Kind
from segue.tokens.tokenizer import Config as TokenConfig
from segue.tokens.tokenizer import Tokenizer

Values = dict[str, dict[str, Any]]
"""The sections of a recipe with their keys and unchecked values."""
Done = Callable[[float], None]
"""A callback for progress: the share that is done."""


def causal_body(codec: Codec) -> bool:
    """Whether a run's model has a body that sees only what comes before a place."""
    body = codec.sizes.body
    cls = None if body is None else model_class(body.kind)
    return cls is not None and issubclass(cls, Body) and cls.causal


def nothing(share: float) -> None:
    """Ignore the progress."""


class Prediction(Protocol):
    """What a model predicts for one example."""

    def line(self) -> str:
        """Return one line for `segue predict`."""

    def json(self) -> dict[str, Any]:
        """Return the same as a JSON object."""


class Task(ABC):
    """What is asked of a model."""

    name: ClassVar[TaskName]
    verbs: ClassVar[tuple[str, ...]]
    """Commands that a run of this task supports, besides evaluate."""
    tokens: ClassVar[Kind]
    """The default of tokens.kind."""
    figure: ClassVar[str]
    """The figure that ranks models."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Further figures in tables and pages."""
    curve: ClassVar[tuple[str, str]] = ("accuracy", "")
    """The validation figure that is drawn over training, and what the picture calls it ("": its own name)."""
    metrics: ClassVar[tuple[str, ...]] = ()
    """Figures of which data.metric names the one that ranks models; empty: there is no choice."""
    decides: ClassVar[bool] = False
    """Whether models are judged by decisions: the best weights have the best accuracy, and `compare` gives advice."""
    judged_one_by_one: ClassVar[str] = "rows"
    """What a confusion matrix counts."""
    pieces: ClassVar[str] = "rows"
    """The pieces of test data that intervals and paired tests count, as sentences name them."""
    whole_epochs: ClassVar[bool] = False
    """Whether training is counted in epochs alone: there are no steps."""
    decodes: ClassVar[tuple[str, ...]] = ()
    """Keys of [decode] by which predictions are written; empty: they are not written token by token."""
    masked: ClassVar[bool] = False
    """Whether tokens of the text are masked and predicted (batches.noise=mask)."""
    spells: ClassVar[bool] = False
    """Whether unknown words cost the bits of spelling them."""
    ladder: ClassVar[tuple[str, ...]]
    """The recipes that `segue compare` runs, simplest first."""
    head: ClassVar[str] = ""
    """The kind that reads such data by the hidden states of another run (model.body); empty: there is none."""
    ladders: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Those that it runs where sources are sounds or pictures."""
    rows: ClassVar[int] = 64
    """The default of batches.size."""
    length: ClassVar[int] = 1024
    """The default of batches.length."""
    by: ClassVar[str] = "text"
    """The column by whose length rows are sorted."""
    added: ClassVar[int] = 0
    """Places that `collate` adds to a text."""

    # Reading

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The shape of its data: how a row looks."""

    @property
    def reads(self) -> str:
        """The name of the shape that makes this the task of some data, where nothing else says so."""
        return self.shape.name

    def with_noise(self, noise: str) -> Task:
        """Return the task under this noise (batches.noise), which may make rows of running text."""
        return self

    def goes_on_with(self, model: type[Model]) -> tuple[Shape, ...]:
        """Return the shapes of data with which a model of this kind can be trained further (train.init)."""
        return (self.shape,)

    def defaults(self, values: Values, model: type[Model]) -> None:  # noqa: B027
        """Fill in defaults that depend on the task, and refuse settings that it does not support."""

    def settle_batches(self, config: BatchConfig) -> None:
        """Refuse settings of [batches] that only running text has."""
        self.check_masks(config)
        if config.vary:
            raise ValueError(f"vary=true draws the lengths of running text, and {self.name} reads rows")
        if config.noise != "none":
            what = f"{OF_SOURCES[config.noise]}s" if config.noise in OF_SOURCES else "running text"
            raise ValueError(f"noise={config.noise} is for {what}, and {self.name} reads rows of text")

    def check_masks(self, config: BatchConfig) -> None:
        """Refuse settings of [batches] that only masked language models have."""
        if not self.masked and (config.noise == "mask" or config.masks or config.whole_words):
            keys = "noise=mask, masks and whole_words"
            raise ValueError(f"{keys} are for masked language models (bert), and this is {self.name}: leave them out")

    def settle_tokens(self, config: TokenConfig) -> None:
        """Refuse settings of [tokens] that only pairs of a source and a target have."""
        if config.sides != "both" or config.dropout:
            key = f"sides={config.sides}" if config.sides != "both" else f"dropout={config.dropout}"
            raise InputError(
                f"tokens.{key} is for pairs of a source and a target, and {self.name} has none. Leave it out."
            )

    def texts(self, example: Example, kind: str) -> Iterable[str]:
        """Return the texts of an example from which a tokenizer of this kind learns."""
        yield example.text
        if example.target:
            yield example.target

    def remark(self, corpus: Corpus, kind: str) -> str:
        """Return what the owner of the data should know before training with tokens of this kind, or ''."""
        return ""

    def labels(self, corpus: Corpus, data: Data) -> tuple[str, ...]:
        """List every label or tag that can be predicted; refuse labels that nothing can be learnt from."""
        return ()

    def check_tokens(self, tokenizer: Tokenizer, init: str, data: Data) -> None:  # noqa: B027
        """Refuse the tokenizer of train.init if the task cannot use it."""

    # Ids

    @abstractmethod
    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        """Encode examples as columns of ids, for the store and for prediction alike (without labels)."""

    @abstractmethod
    def collate(self, columns: Columns, limit: int) -> Batch:
        """Make a batch of rows, each cut at `limit`."""

    def store(
        self,
        corpus: Corpus,
        split: str,
        codec: Codec,
        folder: Path,
        limit: int = 0,
        done: Callable[[int], None] = lambda rows: None,
    ) -> Encoded:
        """Write the ids of a split to disk. Tokens of a row beyond `limit` are counted as cut; `collate` drops them."""
        return encode(corpus.examples(split), partial(self.encode, codec=codec), codec.tokenizer, folder, limit, done)

    def check_store(self, store: Store, data: Data) -> None:  # noqa: B027
        """Refuse rows from which nothing can be learnt."""

    def held_out(self, corpus: Corpus, split: str, codec: Codec, folder: Path, limit: int) -> HeldOut:
        """Encode the validation data."""
        encoded = self.store(corpus, split, codec, folder)
        return HeldOut(encoded.store, encoded.unknown / max(1, encoded.tokens))

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        """Return the training batches, by their step. `carry`: as data.carry, for running text. `codec`: the run's, for
        BPE-dropout."""
        return Rows(store, config, seed, lambda columns: self.collate(columns, config.length), self.by, self.added)

    # Judging

    def validate(
        self, opened: Opened, held_out: HeldOut, config: BatchConfig, limit: int, done: Done = nothing
    ) -> dict[str, float]:
        """Compute loss in nats a prediction and the accuracy, over the first rows of about `limit` predictions."""
        nats = right = count = 0.0
        decided = True
        store: Store = held_out.data
        order = self.to_validate(store, config, limit)
        for first in range(0, len(order), config.size):
            columns = store.take(order[first : first + config.size], config.length)
            judged = opened.model.judge(self.collate(columns, config.length).to(opened.device))
            nats, count, decided = nats + float(judged.total), count + judged.number, judged.right is not None
            right += float(judged.right) if judged.right is not None else 0.0
            done(min(1.0, (first + config.size) / len(order)))
            if count >= limit:
                break
        return {"loss": nats / count} | ({"accuracy": right / count} if decided else {})

    def to_validate(self, store: Store, config: BatchConfig, limit: int) -> NDArray[np.int64]:
        """Return the rows to validate on, in the order in which they are read, till there are enough."""
        return np.arange(len(store))

    def worth(self, values: dict[str, Any]) -> tuple[float, ...]:
        """Rank a validation, to keep the best weights (early stopping). Labels and tags are ranked by accuracy: their
        loss may rise from overconfidence while the accuracy improves."""
        decides = self.decides and not np.isnan(values["loss"])
        return (values.get("accuracy", 0.0) if decides else 0.0, -values["loss"])

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Prediction]:
        """Predict examples in batches; yield one prediction an example, in order."""
        raise InputError(f"A model made for {self.name} predicts no labels, tags or translations.")

    def cells(self, prediction: Any) -> dict[str, str]:
        """Return the columns that a table of predictions has for one row, by their names."""
        return {"prediction": prediction.line()}

    def decoding(self, opened: Opened) -> dict[str, Any]:
        """Return the values of [decode] that `predict` uses, by key."""
        return {key: vars(opened.decode)[key] for key in self.decodes}

    def evaluate(
        self, opened: Opened, corpus: Corpus, split: str, done: Done = nothing, limit: int = 0, **how: Any
    ) -> Evaluation:
        """Evaluate on one split of a corpus; `limit`: tokens that are enough (0: all)."""
        return self.judged(opened, list(corpus.examples(split)), done)

    def judged(self, opened: Opened, rows: Sequence[Example], done: Done = nothing) -> Evaluation:
        """Evaluate on some rows; tokens that the model does not read are counted."""
        if not rows:
            raise InputError("There are no rows to evaluate on.")
        predictions = with_progress(self.predict(opened, rows), len(rows), done)
        evaluation = self.figures(opened, rows, predictions)
        if cut := sum(self.cut(opened, row) for row in rows):
            evaluation.result["tokens_cut"] = cut
        if self.decodes:
            evaluation.result["decode"] = self.decoding(opened)
        return evaluation

    def figures(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Any]) -> Evaluation:
        """Compute the figures of predictions, row by row."""
        raise TypeError(f"{self.name} has no rows")

    def metrics_of(self, label: str) -> tuple[str, ...]:
        """Return the figures that data.metric may name for labels of this kind (data.label)."""
        return self.metrics

    def ranked_by(self, data: Data) -> str:
        """Return the figure that ranks models of such data."""
        return self.figure if data.metric == "auto" else data.metric

    def shown(self, figure: str) -> tuple[str, ...]:
        """Return the figures that tables and pages show where this one ranks, that one first."""
        return (figure, *(name for name in self.beside if name != figure))

    def questions(self, opened: Opened, data: Any) -> Evaluation | None:
        """Compute the figures on a file of questions; None if `data` is not one."""
        return None

    def scored(self, opened: Opened, rows: Iterable[Example]) -> Iterator[Line | PseudoLine]:
        """Score what a model would predict for each row, token by token, given what it reads."""
        raise TypeError(f"{self.name} has nothing to score in a row")

    def asked(self, text: str, data: Data, name: str = "This run") -> Example:
        """Parse one typed line as an example; `name` is that of the model, for messages."""
        return Example(text=text, words=tuple(text.split()))

    def cut(self, opened: Opened, example: Example) -> int:
        """Count the tokens of an example beyond the limit, which the model does not read."""
        # A token has at least one byte, except for the space before a text and the STOP between two.
        if len(example.text.encode()) + len(example.target.encode()) + 3 <= opened.limit:
            return 0
        columns = self.encode([example], opened.codec, labelled=False)
        return max(0, int(columns[self.by].lengths()[0]) - opened.limit)

    def chance(self, examples: Iterable[Example]) -> float | None:
        """Return the figure of a model that knows only how frequent each character or label of some examples is; None
        if that is not known."""
        return None

    def amount(self, evaluation: Evaluation) -> str:
        """Say how much data was scored, for the page."""
        return f"{len(evaluation.pieces_NK):,} rows"


class HeldOut(NamedTuple):
    """Validation data as ids."""

    data: Any
    """A Store of rows, or held-out running text."""
    unknown_rate: float

    @property
    def for_fit(self) -> Any:
        """What `Counted.fit` takes: a Store of rows, or the ids of running text."""
        return self.data if isinstance(self.data, Store) else self.data.store.tokens


def with_progress(predictions: Iterable[Any], rows: int, done: Done) -> list[Any]:
    """Collect all predictions, and report progress to `done`."""
    found = []
    for prediction in predictions:
        found.append(prediction)
        done(len(found) / rows)
    return found
