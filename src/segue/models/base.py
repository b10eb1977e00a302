"""The base classes: the interface of every model. To add a model, derive from them and define what is abstract.

A model is one file in this folder with one public class; the file's name is its `kind`.

    Model            everything below has these
    Counted          trains itself, without torch: n-grams, naive Bayes, NBSVM, word2vec, an ensemble
    Network          learns by gradient (models/network.py)
    LanguageModel    predicts the next token; beam search, sampling, scoring and serving need only `start` and `step`
    EncoderDecoder   a LanguageModel that writes a target for a source
    SpanModel        an EncoderDecoder that learns from running text too, by hiding spans of it
    Body             has hidden states: embeddings, the neural cache, pictures and later heads read them
    MaskedModel      a Body that predicts hidden tokens from the words on both sides
    NgramCounts      counted n-grams, and shows the counts behind a probability
    NgramWeights     a classifier with a weight for each n-gram and class
    WordVectors      has a vector for each word, to be asked for the nearest

Callers check for a base class by `isinstance`, never by `hasattr`. This file imports no torch: counting needs none.
"""

from __future__ import annotations

import os
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NoReturn

from segue.batches.codec import Sizes as Sizes
from segue.batches.scorer import Scorer
from segue.batches.state import OneToken
from segue.data.config import Config as Data
from segue.data.config import Label
from segue.errors import InputError

if TYPE_CHECKING:
    from segue.batches.batch import Batch
    from segue.batches.store import Store

TaskName = Literal["lm", "masked_lm", "classify", "tag", "answer", "seq2seq", "embed"]
Array = Any
"""A numpy array in a counted model, a torch tensor in a network."""


class ModelConfig:
    """What a kind's nested `Config` derives from: a frozen dataclass, 17 fields at most, a line of doc under each.

    The names below are no fields, and so no keys of a recipe, until a Config makes them its own."""

    MOST: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("width", "embedding", "filters", "letters", "affixes", "classes"), 1 << 20),
        **dict.fromkeys(("order", "words", "pairs", "characters"), 255),
        **dict.fromkeys(("class_context", "word_context", "inside_context"), 255),
        **{"layers": 1000, "heads": 1 << 16, "channels": 1000, "window": 10_000, "widths": 10_000, "negatives": 10_000},
        "*": (1 << 31) - 1,
    }
    """The greatest value of a key by its name, which means the same in every model; `*`: of all others. What several
    keys make together is compared with the machine's memory (training/setup.py)."""
    embeddings = ""
    """A word2vec run or file with pretrained vectors to start from."""
    runs: tuple[str, ...] = ()
    """The runs that the model is made of."""
    body = ""
    """The run whose model reads the text, under a new head."""


def config_of(cls: Any, values: dict[str, Any]) -> Any:
    """Rebuild a Config from config.json: lists become tuples, groups become their classes."""
    hints = typing.get_type_hints(cls)

    def back(name: str, value: Any) -> Any:
        if is_dataclass(hints[name]):
            return config_of(hints[name], value)
        return tuple(value) if isinstance(value, list) else value

    return cls(**{name: back(name, value) for name, value in values.items()})


class TrainConfig:
    """The base class of every [train]; as above, a name below is a key only if a subclass declares it as a field."""

    seed = 0
    steps = 0
    epochs = 0.0
    seconds = 0.0
    threads = 0
    validate_tokens = 100_000
    init = ""
    """Fine-tuning: begin with the weights and the tokenizer of this run."""

    @classmethod
    def has(cls, key: str) -> bool:
        """Whether this [train] has such a key."""
        return key in {one.name for one in fields(cls)}  # type: ignore[arg-type]


class Model(ABC):
    """A model, counted or neural."""

    task: ClassVar[TaskName]
    Config: ClassVar[type]
    family: ClassVar[str] = "other"
    """What models of this kind are called together, for the colours of a page: n-gram, RNN, Transformer."""
    inputs: ClassVar[tuple[str, ...]] = ()
    """Optional fields of Batch that it reads, such as fresh_B or source; no others are made."""
    labels: ClassVar[tuple[Label, ...]] = ("class",)
    """Values of data.label that it learns."""
    tokens: ClassVar[tuple[str, ...]] = ()
    """Kinds of tokens (tokens.kind) that it reads, the first by default; empty: any."""
    framed: ClassVar[bool] = False
    """Whether it has a body (model.body), so that texts reach it framed: start text STOP [text STOP]."""
    stopped: ClassVar[bool] = False
    """Whether it reads sources, and as a body framed texts, as text STOP, without a start."""

    def __init__(self, config: Any, sizes: Sizes) -> None:
        self.config, self.sizes = config, sizes

    @classmethod
    def marks(cls, config: Any) -> tuple[str, ...]:
        """Names of the special ids beyond the vocabulary that it needs."""
        return ()

    @classmethod
    def inputs_of(cls, config: Any) -> tuple[str, ...]:
        """The optional fields of Batch that a model with this config reads."""
        return cls.inputs

    @classmethod  # noqa: B027
    def check_data(cls, config: Any, data: Data) -> None:
        """Raise a ValueError if a model with this config cannot read such data, as pictures that its patches do not
        divide."""

    @classmethod
    def window_of(cls, config: Any) -> int:
        """The context window: how many tokens the model sees at once; 0: unlimited."""
        return 0

    @property
    def window(self) -> int:
        """The context window of this model."""
        return self.window_of(self.config)

    @property
    def normalised(self) -> bool:
        """Whether its scores are probabilities that sum to one; those of stupid backoff are not."""
        return True

    @property
    @abstractmethod
    def parameters_count(self) -> int:
        """Number of learnt parameters."""

    def begin(self, labels: Array | None) -> None:  # noqa: B027
        """Read the labels of the training rows before the first step, for example for class weights."""

    def spell(self, words: Sequence[str]) -> None:  # noqa: B027
        """Take the tokens of the vocabulary as they are written, in the order of their ids, before the first step: for
        models that read letters."""


class Counted(Model):
    """A model that trains itself, without the trainer: mostly by counting."""

    Train: ClassVar[type]
    """The recipe's [train], instead of the trainer's."""
    device: str | None = None
    """Where it trains; None: on the CPU, without torch."""
    epochs = 1.0
    """How often it has read the training text."""

    @abstractmethod
    def fit(
        self, store: Store, train: Any, held_out: Any = None, done: Callable[[float], None] = lambda share: None
    ) -> Iterator[Record]:
        """Train on a store. `held_out`: ids of validation text, or a store of rows, or None; `done`: progress."""

    @property
    def held_out_chooses(self) -> bool:
        """Whether `fit` chooses anything (a weight, a cost) on the held-out data that it is given."""
        return True

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write model.safetensors."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read model.safetensors."""

    @classmethod
    def cpu_only(cls, config: Any) -> str:
        """The part of this config that a GPU cannot train, in words for a message; empty: none."""
        return "all of it"


class Imported(Counted):
    """A model that is not trained here: `segue import` makes it from a file of another toolkit."""

    imports: ClassVar[str]
    """The argument of `segue import` that makes it: FILE.arpa."""

    @classmethod
    def refuse_training(cls) -> NoReturn:
        """Raise an InputError that names the command to import one."""
        kind = cls.__module__.rpartition(".")[2]
        raise InputError(f"{kind} is not trained but imported: segue import {cls.imports} --out RUN")

    def fit(self, *_: Any, **__: Any) -> NoReturn:
        self.refuse_training()


class LanguageModel(Model, Scorer):
    """Predicts the next token, with or without a source: the decoder of an encoder-decoder is one too."""

    @abstractmethod
    def start(self, rows: int, capacity: int, source: Array = None, source_mask: Array = None) -> Any:
        """Return the state before a text, with room for `capacity` tokens; called once a text."""

    @abstractmethod
    def step(self, tokens_BT: Array, mask_BT: Array, state: Any) -> tuple[Array, Any]:
        """Read tokens, T >= 1 (a prompt is one step); return logits_BV after each row's last real token, and the state.
        STOP begins every text."""

    adapts: ClassVar[bool] = False
    """Whether `adapted` returns a model that counts on while it reads."""

    records: ClassVar[bool] = False
    """Whether it has a `one_token`, so that a GPU can record its steps."""

    def one_token(self, state: Any, places: int = 0) -> OneToken | None:
        """Return `step` for T = 1 in fixed memory; None: there is none. `places`: use memory of its own, with room for
        this many tokens in the window; 0: use the state's memory, which grows."""
        return None

    def adapted(self) -> LanguageModel:
        """Return a model that begins as this one and also counts what it reads, if it `adapts`."""
        raise InputError("This model cannot go on counting while it reads. Models that count can.")


class EncoderDecoder(LanguageModel):
    """Writes a target for a source: translation, summaries, answers."""

    task = "seq2seq"
    inputs = ("source",)

    @property
    def unwritten(self) -> list[int]:
        """The ids that it gives logits to and that no target has: UNK, and marks where it predicts them."""
        return [self.sizes.unk]

    def alignment(self, batch: Batch) -> Array | None:
        """Compute alpha_BTS: how much of its attention each place of the target pays to each place of the source, by
        teacher forcing; rows sum to 1, padding of the source gets 0. None: the model has no attention."""
        return None

    def source_mask(self, mask_BS: Array) -> Array:
        """Return the mask of the places that attention sees, from that of the source: of text they are its tokens; of
        sound and pictures a model makes other places of their frames."""
        return mask_BS

    def sentence_vectors(self, source_BS: Array, source_mask_BS: Array) -> Array | None:
        """Compute x_BD, one vector for each source: what the decoder starts from, or else the mean of what it attends
        to. None: the model has none."""
        return None


class SpanModel(EncoderDecoder):
    """An encoder-decoder that learns from running text too: spans of it are hidden behind marks, the sentinels, and the
    target says what each of them hides (batches.noise=spans). So it can fill holes of any length."""

    @classmethod
    @abstractmethod
    def sentinels(cls, config: Any) -> tuple[str, ...]:
        """The names of these marks, in the order in which they stand in a text."""


class NgramCounts(ABC):
    """A model that counted n-grams, and shows the counts behind its probabilities; its Config has a `smoothing`."""

    orders: list[Any]
    """One for each order, the first is that of single tokens."""

    @property
    @abstractmethod
    def can_follow(self) -> int:
        """V: the number of tokens that can follow."""

    @property
    @abstractmethod
    def unknown_follows(self) -> bool:
        """Whether UNK is one of them."""

    @abstractmethod
    def distribution(self, context_ids: Sequence[int]) -> Array:
        """(V,) probabilities of what comes after these tokens."""

    @abstractmethod
    def evidence(self, context_ids: Sequence[int]) -> list[Any]:
        """What each order knows of what comes after these tokens, the lowest first."""


class NgramWeights(ABC):
    """A classifier with a weight for each n-gram and class."""

    @property
    @abstractmethod
    def parameters_count(self) -> int:
        """How many weights there are."""

    @abstractmethod
    def feature_weights(self) -> tuple[list[tuple[int, ...]], Array]:
        """Return the n-grams that it knows, as ids, and (F, C): how much each, seen once, speaks for each class, less
        the mean over the classes."""


class WordVectors(ABC):
    """A model that is asked for the vectors of words."""

    vectors: Array
    """(V, D), a row for each id."""
    counts: Array
    """(V,) how often each was seen."""

    @abstractmethod
    def predicted(self, x_D: Array) -> Array:
        """(V,) p of the words that a vector predicts; 0 for STOP and UNK."""

    @abstractmethod
    def between(self, ids: Sequence[int]) -> Array:
        """(V,) p of the word that stands among these neighbours; 0 for STOP and UNK."""


class Body(ABC):
    """A model with hidden states."""

    causal: ClassVar[bool] = True
    """Whether a position has seen only the positions before it."""
    beside_states: ClassVar[tuple[str, ...]] = ()
    """First parts of the names of parameters, besides the head's, that the hidden states do not need: a decoder's."""

    @property
    def pools(self) -> bool:
        """Whether it has learnt to make one vector of a text (`pooled`)."""
        return False

    @property
    @abstractmethod
    def width(self) -> int:
        """D of `encode`."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """L of `encode`: the layers, and the token embeddings as layer 0."""

    @abstractmethod
    def encode(self, batch: Batch, state: Any = None) -> Array:
        """Return hidden_LBTD: the token embeddings, then each layer's output, the last after the final norm; 0 where
        the mask is False."""

    def last_layer(self, batch: Batch) -> Array:
        """Compute the last layer of `encode` alone, hidden_BTD; padding may hold anything."""
        return self.encode(batch)[-1]

    def pooled(self, last_BTD: Array) -> Array | None:
        """x_BD: one vector for a text, as the body itself learnt to make it of its first place; None: it did not."""
        return None

    def states_at(self, batch: Batch, places_BK: Array) -> Array:
        """Return x_BKD: the last layer's states at some places; a model may leave out what only others need."""
        last_BTD = self.last_layer(batch)
        return last_BTD.gather(1, places_BK[:, :, None].expand(-1, -1, last_BTD.shape[-1]))

    def unembed(self, hidden: Array, last: bool = True) -> Array | None:
        """Compute the logits of the last layer's states; not `last`: of another layer's, as if it were the last, with
        the final norm applied first (the logit lens). None: it has no such head."""
        return None


class MaskedModel(Body):
    """A model that predicts hidden tokens from the words on both sides of them: `forward` at batch.places_BK."""

    causal = False


class Term(NamedTuple):
    """One term of a loss: its sum over the batch, and the number of predictions in the sum."""

    name: str
    total: Any
    count: Any
    weight: float = 1.0


class Loss(NamedTuple):
    """Terms, as sums with their counts, and the state to carry into the next batch."""

    terms: tuple[Term, ...]
    state: Any = None


def check_memory(needed: int, what: str, key: str) -> None:
    """Refuse, before it is made, what this machine's memory cannot hold; `key`: what to set lower."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise InputError(f"{what} {needed / 2**30:,.1f} GiB; this machine has {there / 2**30:,.0f}. Set {key} lower.")


@dataclass(frozen=True)
class Record:
    """One event of training, one line of metrics.jsonl."""

    step: int
    kind: str
    """train, validation, checkpoint or note."""
    values: dict[str, Any] = field(default_factory=dict)
