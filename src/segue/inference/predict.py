"""Labels, tags and translations for texts, in batches, streaming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from segue.batches import collate
from segue.batches.batch import Batch
from segue.data.corpus import Example
from segue.inference.settings import Config as Decode
from segue.models.base import Sizes
from segue.tokens.tokenizer import Tokenizer

_ROWS = 64


@dataclass(frozen=True)
class Prediction:
    """What a model says of one example."""

    label: str = ""
    probabilities: tuple[float, ...] = ()
    """Of every label, in the order of the run's labels."""
    tags: tuple[str, ...] = ()
    text: str = ""
    """The translation."""
    logprob: float = 0.0
    """Natural log probability of the translation."""


@dataclass(frozen=True)
class Predictor:
    """A trained model with what it takes to read and to answer in text."""

    model: Any
    task: str
    tokenizer: Tokenizer
    labels: Sequence[str]
    sizes: Sizes
    decode: Decode
    limit: int
    """Tokens of a row that are read; what is longer is cut."""
    device: str = "cpu"

    def predict(self, examples: Iterable[Example]) -> Iterator[Prediction]:
        """One prediction an example, in order."""
        one = {"classify": self._classify, "tag": self._tag, "seq2seq": self._translate}[self.task]
        source = iter(examples)
        while group := list(islice(source, _ROWS)):
            yield from one(group)

    def cut(self, example: Example) -> int:
        """How many tokens of an example are beyond what the model reads."""
        if self.task == "tag":
            return max(0, len(example.words) - self.limit)
        return max(0, len(self._ids(example)) - self.limit)

    def _ids(self, example: Example) -> Any:
        if self.task == "tag":
            return self.tokenizer.encode_words(example.words)
        return self.tokenizer.encode(" " + example.text if self.task == "classify" else example.text)

    def _forward(self, batch: Batch) -> Any:
        import torch

        self.model.eval()
        with torch.inference_mode():
            logits, _ = self.model(batch.to(self.device))
            return logits.float().softmax(-1).cpu().numpy()

    def _classify(self, group: list[Example]) -> Iterator[Prediction]:
        rows = [self._ids(example)[: self.limit] for example in group]
        for row in self._forward(collate.classify(rows, np.zeros(len(rows)))):
            yield Prediction(self.labels[int(row.argmax())], tuple(float(p) for p in row))

    def _tag(self, group: list[Example]) -> Iterator[Prediction]:
        rows = [self._ids(example)[: self.limit] for example in group]
        best = self._forward(collate.tag(rows, rows)).argmax(-1)
        for row, tags in zip(rows, best, strict=True):
            yield Prediction(tags=tuple(self.labels[int(tag)] for tag in tags[: len(row)]))

    def _translate(self, group: list[Example]) -> Iterator[Prediction]:
        from segue.inference.decode import generate

        rows = [self._ids(example)[: self.limit] for example in group]
        written = generate(
            self.model,
            [[] for _ in rows],
            self.sizes,
            self.decode,
            collate.pad(rows),
            collate.mask_of(rows),
            self.device,
            forbid=[self.tokenizer.unk],
        )
        for text in written:
            yield Prediction(text=self.tokenizer.decode(text.ids), logprob=text.logprob)
