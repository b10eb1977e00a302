"""The contracts: what every model gives to the rest of the house, and what it gets.

A model is one file here, with one public class that has `task`, a nested frozen `Config`, and the
methods below. Its file's name is its `kind`. Models that learn by gradient derive from
`segue.models.network.Network`; models that count have `fit` and need no torch.

    Model(config, sizes)
    forward(batch, state=None)      -> (logits, state)          logits_BTV, or logits_BC for classes
    loss(batch, state=None)         -> Loss                     default: cross-entropy of forward
    counts(batch)                   -> {term name: count}       the denominators, before any forward
    logprobs(batch, state=None)     -> (logp, state)            log p (natural) of each target; 0 at IGNORE
    start(rows, capacity, source=None, source_mask=None) -> State   once a text, if it generates
    step(tokens_BT, mask_BT, state) -> (logits_BV, State)       T >= 1; STOP begins every text
    fit(store, train, held, done)   -> Iterator[Record]         only models that train themselves; `held` are the
                                                                ids of validation text or None, `done` takes a share
    save(folder), load(folder)                                  only models that train themselves
    adapted()                       -> Model                    begins as this one and learns from what it reads
    normalised                      -> bool                     False: scores that do not sum to one (default True)
    rows_logprobs(rows)             -> logp_BC                  classifiers that count, in the place of logprobs
    window                          -> int                      tokens seen at once, if nothing before them matters
    steady(state)                   -> Steady                   a step of one token in fixed memory, where it has one
    device, on_cpu_alone(config)                                models that train themselves, on a GPU if they can
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

from segue.data.config import Label
from segue.data.config import Task as Reads
from segue.errors import InputError

Task = Literal["lm", "classify", "tag", "seq2seq", "embed"]


def reads(task: Task) -> Reads:
    """What the data of a task is read as: vectors of words are learnt from running text, as language models are."""
    return "lm" if task == "embed" else task


@dataclass(frozen=True)
class Sizes:
    """What the data decides about a model's shape."""

    vocab_size: int
    """Ids 0 … vocab_size - 1: 0 is STOP, 1 is UNK, then the text's own."""
    classes: int = 0
    """Labels or tags that can be predicted; 0 where there are none."""
    start: int = 0
    """The id that every text begins with (the same as `stop`)."""
    stop: int = 0
    """The id that ends a text."""
    label: Label = "class"
    """What a row is labelled with: one class, several, or a number (which counts as one class)."""


class Term(NamedTuple):
    """One part of a loss: its sum over the batch and how many predictions the sum is over."""

    name: str
    total: Any
    count: Any
    weight: float = 1.0


class Loss(NamedTuple):
    """Terms, as sums with their counts, and the state to carry into the next batch."""

    terms: tuple[Term, ...]
    state: Any = None


@dataclass(frozen=True)
class Record:
    """One thing that happened in training, one line of metrics.jsonl."""

    step: int
    kind: str
    """train, validation or note."""
    values: dict[str, Any] = field(default_factory=dict)


class Imported:
    """A model that no training makes: `segue import` does, from a file of another toolkit."""

    imports: ClassVar[str]
    """What `segue import` reads, as its command has it: FILE.arpa."""

    @classmethod
    def refuse_training(cls) -> NoReturn:
        """Name the command that makes one."""
        kind = cls.__module__.rpartition(".")[2]
        raise InputError(f"{kind} is not trained but imported: segue import {cls.imports} --out RUN")

    def fit(self, *_: Any, **__: Any) -> NoReturn:
        self.refuse_training()
