"""The codec between examples and ids, and the sizes of a model that follow from the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from segue.data.config import Config as Data
from segue.data.config import Label, Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from segue.batches.spelled_words import UnknownWords
    from segue.tokens.spelling import Speller
    from segue.tokens.tokenizer import Tokenizer

    Ids = NDArray[np.integer[Any]]
    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BodySpec:
    """The body under a head: another run's model, which reads the text. With the weights under `body.`, this is all
    that it takes to build the model again, without the body's run."""

    kind: str
    config: dict[str, Any]
    """Its [model], as plain values."""
    sizes: Sizes


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model that follow from the data."""

    vocab_size: int
    """Ids 0 … vocab_size - 1: 0 is STOP, 1 is UNK, then the text's own."""
    classes: int = 0
    """Labels or tags that can be predicted; 0 where there are none."""
    label: Label = "class"
    """What a row is labelled with: one class, several, or a number (which counts as one class)."""
    marks: tuple[str, ...] = ()
    """Names of the special ids from vocab_size on, which no text contains and no model predicts: a mask, a start."""
    unknown: Literal["here", "elsewhere", "never"] = "here"
    """Where tokens can be unknown (UNK). never: the tokens can write any text. elsewhere: every token of the run's text
    is in the vocabulary, and nothing was held out, so that only another text can have unknown ones. here: otherwise."""
    carry: bool = False
    """Whether a language model carries its context over the end of a unit (data.carry)."""
    source_vocab_size: int = 0
    """Ids of the source's own vocabulary, if each side of a pair has one; 0: both sides share one."""

    separators: int = 1
    """STOPs between the two texts of a framed pair; RoBERTa has two."""
    source: Source = "text"
    """What a source is."""
    frame: int = 0
    """Numbers in a frame of the source: log-mels of sound, pixels of a picture; 0: the source is text."""
    body: BodySpec | None = None
    """The body under the model's head, if it has one."""
    stopped: bool = False
    """Whether a source, and a framed text, is read as text STOP, without a start (T5)."""
    window: int = 0
    """Tokens of a window: longer framed texts are read in several windows, which overlap; 0: texts are not framed."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Sizes:
        """Read the sizes that config.json has."""
        body = values.get("body")
        spec = None if body is None else BodySpec(body["kind"], body["config"], cls.of(body["sizes"]))
        return cls(**{**values, "marks": tuple(values.get("marks", ())), "body": spec})

    @property
    def source_ids(self) -> int:
        """Number of rows in a table of the source's vectors."""
        return self.source_vocab_size or self.ids

    @property
    def ids(self) -> int:
        """Number of rows in a table of token vectors: the vocabulary and the marks."""
        return self.vocab_size + len(self.marks)

    @property
    def stop(self) -> int:
        """The id that ends a text."""
        return 0

    @property
    def unk(self) -> int:
        """The id of what is not in the vocabulary."""
        return 1

    @property
    def start(self) -> int:
        """The id that every text begins with: the mark of that name, or the STOP of the text before."""
        return self.mark("start") if "start" in self.marks else self.stop

    def mark(self, name: str) -> int:
        """The id of a mark."""
        return self.vocab_size + self.marks.index(name)

    @property
    def before(self) -> int:
        """Places of a frame before its first text: one, the start, or none."""
        return int(not self.stopped)

    def frame_places(self, texts: int) -> int:
        """Places that the frame of a text, or of two, adds."""
        return self.before + 1 + self.separators * (texts - 1)

    def framed(self, first: Ids, second: Ids | None = None) -> tuple[Ints, Ints]:
        """Frame a text, or a pair, as a body reads it: start first STOP [second STOP]; return ids and segments."""
        import numpy as np  # not above: help is shown without it

        start = [self.start] * self.before
        begin = np.concatenate([np.array(start, np.int64), first, [self.stop]]).astype(np.int64, copy=False)
        if second is None:
            return begin, np.zeros_like(begin)
        begin = np.concatenate([begin, np.full(self.separators - 1, self.stop)])
        ids = np.concatenate([begin, second, [self.stop]])
        return ids, (np.arange(len(ids)) >= len(begin)).astype(ids.dtype)


class Codec(NamedTuple):
    """The tokenizer, the labels and the [data] of a run, saved as tokenizer.json, config.json and recipe.toml."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    """Every class or tag, in the order of its number."""
    data: Data
    sizes: Sizes
    speller: Speller | None = None
    """Gives the bits of spelling an unknown word, if the vocabulary is closed and texts are scored in bits."""
    own_source: Tokenizer | None = None
    """The tokenizer of sources, source_tokenizer.json, if each side of a pair has its own; None: one serves both."""

    dropout: float = 0.0
    """BPE-dropout of training text (tokens.dropout): the probability with which a merge is skipped."""
    inputs: tuple[str, ...] = ()
    """Optional fields of Batch that the model reads (Model.inputs_of)."""

    @property
    def letters(self) -> bool:
        """Whether the model reads unknown words by their letters."""
        return "chars_BTC" in self.inputs

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of sources: their own, or that of both sides."""
        return (self.own_source or self.tokenizer).source_side

    def unknown_words(self, text: str, ids: Ids) -> UnknownWords | None:
        """Return the unknown words of a text, `ids = tokenizer.encode(text)`, if the model reads their letters."""
        if not self.letters:
            return None
        from segue.batches.spelled_words import UnknownWords

        return UnknownWords.of_text(self.tokenizer, text, ids)

    def frame(self, first: Ids, second: Ids | None = None) -> tuple[Ints, Ints]:
        """Frame a text, or a pair, as a body reads it: start first STOP [second STOP]; return ids and segments."""
        return self.sizes.framed(first, second)
