"""Labels, tags and translations for texts, in batches, streaming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from segue.batches import collate
from segue.batches.batch import Batch
from segue.batches.encode import encode_texts
from segue.batches.spelled_words import spelt
from segue.batches.store import Column, columns_of
from segue.data.corpus import Example
from segue.data.example import joined
from segue.inference.decode_settings import Config as Decode
from segue.models.base import Sizes
from segue.models.counted_classifier import CountedClassifier
from segue.tokens.tokenizer import Tokenizer

_ROWS = 64
_ROWS_COUNTED = 512
"""The same for models whose rows take little room."""


@dataclass(frozen=True)
class Prediction:
    """What a model says of one example."""

    label: str = ""
    """The class; where there may be several, those with commas between; or the number, written out."""
    probabilities: tuple[float, ...] = ()
    """Of every label, in the order of the run's labels; of a tagger, of each word's tag."""
    number: float = 0.0
    """Where the label is a number."""
    several: bool = False
    """Whether there may be any number of classes."""
    tags: tuple[str, ...] = ()
    """Of each word; or the classes, where there may be several."""
    text: str = ""
    """The translation."""
    logprob: float = 0.0
    """Natural log probability of the translation."""

    def judged(self, labels: Sequence[str]) -> dict[str, Any]:
        """Of a classifier, as JSON has it: its label, or its labels, with probabilities; or its number."""
        if not self.probabilities:
            return {"number": self.number}
        probabilities = dict(zip(labels, self.probabilities, strict=True))
        chosen = {"labels": list(self.tags)} if self.several else {"label": self.label}
        return {**chosen, "probabilities": probabilities}


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
        at_once = _ROWS_COUNTED if isinstance(self.model, CountedClassifier) else _ROWS
        while group := list(islice(source, at_once)):
            yield from one(group)

    def cut(self, example: Example) -> int:
        """How many tokens of an example are beyond what the model reads."""
        if self.task == "tag":
            return max(0, len(example.words) - self.limit)
        # No token is shorter than a byte, but for the blank before a text and the STOP between two.
        if len(example.text.encode()) + len(example.target.encode()) + 3 <= self.limit:
            return 0
        return max(0, len(self._ids(example)) - self.limit)

    def _ids(self, example: Example) -> Any:
        if self.task == "tag":
            return self.tokenizer.encode_words(example.words)
        if self.task == "classify":
            return encode_texts([example], self.tokenizer)[0]
        return self.tokenizer.encode(example.text)

    def _answers(self, flat: Any, lengths: Any) -> Any:
        """(rows, classes): of rows of ids end to end; those who count need no padding."""
        if isinstance(self.model, CountedClassifier):
            from segue.linear.features import rows_of_lengths

            return np.exp(self.model.rows_logprobs(rows_of_lengths(flat, lengths, self.limit)))
        return self._forward(collate.classify({"text": Column(flat, np.cumsum(lengths))}, self.limit))

    def _forward(self, batch: Batch) -> Any:
        import torch

        self.model.eval()
        with torch.inference_mode():
            logits, _ = self.model(batch.to(self.device))
            return self.model.probabilities(logits).cpu().numpy()

    def _classify(self, group: list[Example]) -> Iterator[Prediction]:
        p_BC = self._answers(*encode_texts(group, self.tokenizer))
        if self.sizes.label == "class":
            for best, row in zip(p_BC.argmax(1).tolist(), p_BC.tolist(), strict=True):
                yield Prediction(self.labels[best], tuple(row))
            return
        for row in p_BC.tolist():
            if self.sizes.label == "number":
                yield Prediction(f"{row[0]:.6g}", number=row[0])
            else:
                chosen = tuple(name for name, p in zip(self.labels, row, strict=True) if p > 0.5)
                yield Prediction(",".join(chosen), tuple(row), tags=chosen, several=True)

    def _tag(self, group: list[Example]) -> Iterator[Prediction]:
        rows = [self._ids(example)[: self.limit] for example in group]
        letters = [spelt(example.words) for example in group]
        folded = [self.tokenizer.fold_words(example.words) for example in group]
        batch = collate.tag(columns_of(text=rows, letters=letters, folded=folded), self.limit)
        best, sure = self._best(batch)
        for row, tags, p_T in zip(rows, best, sure, strict=True):
            yield Prediction(tags=tuple(map(self._named, tags[: len(row)])), probabilities=tuple(p_T[: len(row)]))

    def _named(self, tag: Any) -> str:
        """The name of a word's tag; of a yes or no for each of several, the names of all that are yes."""
        return joined(self.labels[i] for i in np.flatnonzero(tag).tolist()) if tag.ndim else self.labels[int(tag)]

    def _best(self, batch: Batch) -> tuple[Any, list[list[float]]]:
        """(B, T) the tag of each word, or (B, T, C) yes and no, and the probability of each tag, of several none."""
        self.model.eval()
        best, p_BT = self.model.decide(batch.to(self.device))
        return best.cpu().numpy(), [[] for _ in best] if p_BT is None else p_BT.cpu().tolist()

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
