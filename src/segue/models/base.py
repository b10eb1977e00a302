"""The contract: all that the rest of the house asks of a model. To add one, derive and fill in what is abstract.

A model is one file in this folder with one public class; the file's name is its `kind`.

    Model            everything below has these
    Counted          trains itself, without torch: n-grams, naive Bayes, NBSVM, word2vec, an ensemble
    Network          learns by gradient (models/network.py)
    LanguageModel    predicts the next token; beam search, sampling, scoring and serving need only `start` and `step`
    Body             has hidden states: embeddings, the neural cache, pictures and later heads read them
    NgramCounts      counted n-grams, and shows the counts behind a probability
    WordVectors      has a vector for each word, to be asked for the nearest

A class is asked what it is by `isinstance`, never by `hasattr`. This file imports no torch: counting needs none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NoReturn

from segue.batches.codec import Sizes as Sizes
from segue.batches.scorer import Scorer
from segue.batches.state import OneToken
from segue.data.config import Label
from segue.errors import InputError

if TYPE_CHECKING:
    from segue.batches.batch import Batch
    from segue.batches.store import Store

TaskName = Literal["lm", "classify", "tag", "seq2seq", "embed"]
Array = Any
"""A numpy array in a model that counts, a torch tensor in a network."""


class ModelConfig:
    """What a kind's nested `Config` derives from: a frozen dataclass, 12 fields at most, a line of doc under each.

    The names below are no fields, and so no keys of a recipe, until a Config makes them its own."""

    embeddings = ""
    """A word2vec run or file whose vectors the model begins with."""
    runs: tuple[str, ...] = ()
    """The runs that the model is made of."""


class TrainConfig:
    """What every [train] derives from; the same rule holds: a name below is a key only where a subclass says so."""

    seed = 0
    steps = 0
    epochs = 0.0
    seconds = 0.0
    threads = 0
    validate_tokens = 100_000
    init = ""
    """A run whose weights and tokenizer this one begins with."""

    @classmethod
    def has(cls, key: str) -> bool:
        """Whether this [train] has such a key."""
        return key in {one.name for one in fields(cls)}  # type: ignore[arg-type]


class Model(ABC):
    """A model, whatever it is made of."""

    task: ClassVar[TaskName]
    Config: ClassVar[type]
    inputs: ClassVar[tuple[str, ...]] = ()
    """Optional fields of Batch that it reads, such as fresh_B or source; no others are made."""
    labels: ClassVar[tuple[Label, ...]] = ("class",)
    """Values of data.label that it learns."""
    tokens: ClassVar[tuple[str, ...]] = ()
    """Kinds of tokens (tokens.kind) that it reads, the first by default; empty: any."""

    def __init__(self, config: Any, sizes: Sizes) -> None:
        self.config, self.sizes = config, sizes

    @classmethod
    def marks(cls, config: Any) -> tuple[str, ...]:
        """Names of the ids beyond the vocabulary that it needs."""
        return ()

    @classmethod
    def window_of(cls, config: Any) -> int:
        """The context window: how many tokens are seen at once; 0: all that came before counts."""
        return 0

    @property
    def window(self) -> int:
        """The context window of this model."""
        return self.window_of(self.config)

    @property
    def normalised(self) -> bool:
        """Whether its scores are probabilities that sum to one; stupid backoff's are not."""
        return True

    @property
    @abstractmethod
    def parameters_count(self) -> int:
        """Numbers that were learnt."""

    def begin(self, labels: Array | None) -> None:  # noqa: B027
        """Look at the labels of the training rows before the first step, as for class weights."""


class Counted(Model):
    """A model that trains itself."""

    Train: ClassVar[type]
    """The recipe's [train], in place of the trainer's."""
    device: str | None = None
    """Where it trains; None: on the CPU, without torch."""
    epochs = 1.0
    """How often it has read the training text."""

    @abstractmethod
    def fit(
        self, store: Store, train: Any, held_out: Any = None, done: Callable[[float], None] = lambda share: None
    ) -> Iterator[Record]:
        """Learn from a store. `held_out`: ids of validation text, or a store of rows, or None; `done` takes a share."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write model.safetensors."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read it back."""

    @classmethod
    def cpu_only(cls, config: Any) -> str:
        """What of this config has no way on a GPU, in words for a message; empty: nothing."""
        return "all of it"


class Imported(Counted):
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


class LanguageModel(Model, Scorer):
    """Predicts the next token, given a source or not: the decoder of a translator is a language model too."""

    @abstractmethod
    def start(self, rows: int, capacity: int, source: Array = None, source_mask: Array = None) -> Any:
        """The state before a text, with room for `capacity` tokens; called once a text."""

    @abstractmethod
    def step(self, tokens_BT: Array, mask_BT: Array, state: Any) -> tuple[Array, Any]:
        """Read tokens, T >= 1 (a prompt is one step): logits_BV after each row's last real token. STOP begins every
        text."""

    adapts: ClassVar[bool] = False
    """Whether `adapted` gives a model that goes on counting while it reads."""

    records: ClassVar[bool] = False
    """Whether it has a `one_token`, so that a GPU can record its steps."""

    def one_token(self, state: Any, places: int = 0) -> OneToken | None:
        """`step` for T = 1 in fixed memory; None: it has none. `places`: the memory is its own, with room for so many
        tokens in the window; 0: the state's memory serves, and grows."""
        return None

    def adapted(self) -> LanguageModel:
        """A model that begins as this one and goes on counting what it reads, where it `adapts`."""
        raise InputError("This model cannot go on counting while it reads. Models that count can.")


class NgramCounts(ABC):
    """A model that counted n-grams, and shows the counts behind its probabilities; its Config has a `smoothing`."""

    orders: list[Any]
    """One for each order, the first is that of single tokens."""

    @abstractmethod
    def distribution(self, context_ids: Sequence[int]) -> Array:
        """(V,) probabilities of what comes after these tokens."""

    @abstractmethod
    def evidence(self, context_ids: Sequence[int]) -> list[Any]:
        """What each order knows of what comes after these tokens, the lowest first."""


class WordVectors(ABC):
    """A model that is asked for the vectors of words."""

    vectors: Array
    """(V, D), a row for each id."""
    counts: Array
    """(V,) how often each was seen."""


class Body(ABC):
    """A model with hidden states."""

    causal: ClassVar[bool] = True
    """A place has seen only what stands before it."""

    @property
    @abstractmethod
    def width(self) -> int:
        """D of `encode`."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """L of `encode`: the layers, and the vectors of the tokens as layer 0."""

    @abstractmethod
    def encode(self, batch: Batch, state: Any = None) -> Array:
        """hidden_LBTD: the tokens' vectors, then what each layer puts out, the last after the final norm; 0 where the
        mask is False."""

    def unembed(self, hidden: Array, last: bool = True) -> Array | None:
        """Logits of the last layer's states; not `last`: of another layer's, as if it were the last, so that the final
        norm is applied first (the logit lens). None: it has no such head."""
        return None


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
    """train, validation, checkpoint or note."""
    values: dict[str, Any] = field(default_factory=dict)
