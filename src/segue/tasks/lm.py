"""Language models: the probability of the next token, and with it of a text, in bits per byte."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.encode import Encoded, HeldOutText, encode_mixed, encode_split, encode_text
from segue.batches.noise import OF_SOURCES
from segue.batches.store import Columns, Store
from segue.batches.streams import Streams
from segue.batches.unit_rows import UnitRows, are_short
from segue.data.builtin import MADE
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.shapes import TEXT, Shape
from segue.errors import InputError
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.inference.score import BLOCK, LONG_ROW, SHORT_ROW, PartScored, Scored, score_held_out
from segue.inference.statistics import FEWEST
from segue.models.base import Model
from segue.tasks.base import Done, HeldOut, Task, Values, nothing
from segue.tokens.split import looks_tokenised
from segue.tokens.tokenizer import Tokenizer

AS_PUBLISHED = "data.unit=line data.canonical=true tokens.kind=space"
"""How the literature reads text that is tokenised already, such as PTB and WikiText."""
_LOOKED_AT = 1000
"""Look at this many texts from the beginning to find out whether they are tokenised already."""

LOSES_BLANKS = (
    "data.canonical=false does not go with {kind}: these tokens lose doubled blanks and those at the ends of lines, so "
    "that the bytes of the text could not be scored. Set data.canonical=true, or choose tokens.kind=word, which loses "
    "nothing."
)


class RunningText(Task):
    """Tasks that learn from running text: language models, and word vectors."""

    @property
    def shape(self) -> Shape:
        return TEXT

    def defaults(self, values: Values, model: type[Model]) -> None:
        if values["tokens"]["kind"] == "space":
            # Tokenised text has one sentence a line, with single spaces.
            values["data"].setdefault("unit", "line")
            values["data"].setdefault("canonical", True)
        if str(values["data"].get("path")) in MADE:
            values["data"]["unit"] = (
                "line"  # the grammar makes sentences one by one, and its true model sees one sentence
            )

    def settle_batches(self, config: BatchConfig) -> None:
        self.check_masks(config)
        if config.tokens:
            raise ValueError(f"tokens={config.tokens} is for rows, and {self.name} reads running text")
        if config.noise in OF_SOURCES:
            raise ValueError(f"noise={config.noise} is for {OF_SOURCES[config.noise]}s, and {self.name} reads text")

    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        raise TypeError("running text has no rows")

    def collate(self, columns: Columns, limit: int) -> Batch:
        raise TypeError("running text has no rows")

    def store(
        self,
        corpus: Corpus,
        split: str,
        codec: Codec,
        folder: Path,
        limit: int = 0,
        done: Callable[[int], None] = lambda rows: None,
    ) -> Encoded:
        if len(corpus.parts) == 1:
            return encode_text(corpus.examples(split), codec.tokenizer, folder, done, codec.letters)
        return encode_mixed(corpus.texts(split), corpus.weights, codec.tokenizer, folder, done, codec.letters)


class Lm(RunningText):
    """The probability of a text."""

    name = "lm"
    verbs = ("generate", "score", "look")
    tokens = "char"
    figure = "bits_per_byte"
    beside = ("bits_per_byte", "spelling_bits_per_byte", "perplexity")
    curve = ("bits_per_byte", "")
    pieces = "blocks of 2,048 bytes"
    ladder = (
        *("ngram/unigram", "ngram/bigram", "ngram/trigram", "ngram/kn7", "neural_lm"),
        *("rnn_lm/elman", "rnn_lm/gru", "rnn_lm/lstm", "gpt/rotary"),
    )
    rows = 32
    length = 128
    spells = True

    def chance(self, examples: Iterable[Example]) -> float | None:
        """Return the entropy of single bytes, in bits per byte."""
        counts = np.zeros(256)
        for example in examples:
            counts += np.bincount(np.frombuffer(example.text.encode(), np.uint8), minlength=256)
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * np.log2(shares)).sum()) if len(shares) else None

    def defaults(self, values: Values, model: type[Model]) -> None:
        super().defaults(values, model)
        if values["tokens"]["kind"] == "space" and str(values["data"]["canonical"]).lower() == "false":
            raise InputError(LOSES_BLANKS.format(kind="tokens.kind=space"))

    def check_tokens(self, tokenizer: Tokenizer, init: str, data: Data) -> None:
        if tokenizer.kind == "space" and not data.canonical:
            raise InputError(LOSES_BLANKS.format(kind=f"the space tokens of train.init={init}"))

    def remark(self, corpus: Corpus, kind: str) -> str:
        """Tell that text is tokenised already: tokens that cut it anew give perplexities that nobody else has."""
        if kind not in ("word", "bpe", "unigram", "wordpiece", "sentencepiece"):
            return ""
        beginning = "\n".join(example.text for example in islice(corpus.examples("train"), _LOOKED_AT))
        if not looks_tokenised(beginning):
            return ""
        return (
            f"This text looks tokenised already (<unk>, @-@, or blanks around punctuation), and {kind} tokens cut it "
            f"anew: published perplexities are of {AS_PUBLISHED}"
        )

    def held_out(self, corpus: Corpus, split: str, codec: Codec, folder: Path, limit: int) -> HeldOut:
        held_out = encode_split(corpus, split, codec.tokenizer, codec.speller, folder, limit, codec.letters)
        return HeldOut(held_out, len(held_out.spelled) / max(1, len(held_out.store.tokens)))

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        """Without carry, units that are short are rows. Long ones are read as streams, which go on over their ends:
        these are rare. So are units of several corpora, which share the rows of each step."""
        if carry or "weight" in store.columns or not are_short(store.tokens, config.length):
            return Streams(store, config, seed)
        return UnitRows(store, config, seed)

    def validate(
        self, opened: Opened, held_out: HeldOut, config: BatchConfig, limit: int, done: Done = nothing
    ) -> dict[str, float]:
        size, tokenizer = opened.codec.sizes.vocab_size, opened.codec.tokenizer
        scored = score_held_out(opened.model, held_out.data, size, opened.device, SHORT_ROW, done)
        values = {"loss": scored.nats / scored.tokens}
        return values | ({"bits_per_byte": scored.bits_per_byte} if tokenizer.lossless else {})

    def evaluate(
        self,
        opened: Opened,
        corpus: Corpus,
        split: str,
        done: Done = nothing,
        limit: int = 0,
        normalised: bool | None = None,
        **how: Any,
    ) -> Evaluation:
        """Score every token of a split once."""
        codec = opened.codec
        lossless = codec.tokenizer.lossless
        normalised = opened.model.normalised if normalised is None else normalised
        with tempfile.TemporaryDirectory(prefix="segue-") as folder:
            given = codec.tokenizer, codec.speller, Path(folder), limit, codec.letters
            held_out = encode_split(corpus, split, *given)
            scored = score_held_out(opened.model, held_out, codec.sizes.vocab_size, opened.device, LONG_ROW, done)
            first = document_blocks(held_out) if corpus.config.unit == "document" else None
        evaluation = of_scored(scored, lossless, normalised, first)
        if scored.parts and normalised:
            names = [part.name for part in corpus.parts_of(split)]
            evaluation.result["by_corpus"] = by_corpus(scored.parts, names, self.figure if lossless else "")
        if scored.zeros:
            evaluation.result["why_infinite"] = _why_infinite(scored, codec)
        if not opened.decode.start:
            evaluation.result["way"] += "; after the start mark, which its own tokenizer does not add to a prompt"
        if held_out.cut or (limit and scored.tokens >= limit):
            each = ", of each corpus its share" if scored.parts else ""
            evaluation.result["way"] += f"; the first {limit:,} tokens of the split{each} (train.validate_tokens)"
        return evaluation

    def amount(self, evaluation: Evaluation) -> str:
        return f"{evaluation.result['bytes']:,} bytes"


def _why_infinite(scored: Scored, codec: Codec) -> str:
    """Say which tokens a model without smoothing holds for impossible: one is enough for a perplexity of ∞."""
    named = {codec.tokenizer.unk: "an unknown word", codec.sizes.stop: "the end of a text"}
    names = [named.get(i) or repr(codec.tokenizer.decode([i])) for i in scored.impossible]
    shown = f"{'such as ' if scored.zeros > len(names) else ''}{', '.join(names)}"
    return (
        f"{scored.zeros:,} of {scored.tokens:,} tokens ({shown}) never stood in training after what stands before them "
        "here, and without smoothing have probability 0; one is enough"
    )


def document_blocks(held_out: HeldOutText) -> NDArray[np.int64]:
    """Return the first block of each document; a document that begins in the block of another counts as part of it."""
    sizes, tokens = held_out.store.columns["bytes"].flat, np.asarray(held_out.store.tokens)
    begins = np.concatenate([[0], np.flatnonzero(tokens == 0)[:-1] + 1])  # each document ends with STOP
    lengths = np.add.reduceat(sizes, begins, dtype=np.int64)
    return np.unique((np.cumsum(lengths) - lengths) // BLOCK)


def of_scored(
    scored: Scored, lossless: bool = True, normalised: bool = True, documents: NDArray[np.int64] | None = None
) -> Evaluation:
    """Compute the figures of a language model. A tokenizer that loses text has a perplexity but no bits per byte;
    scores that do not sum to one have neither. If there are documents enough, given by the first block of each, they
    are the pieces: they are independent of each other, as blocks are not."""
    pieces = np.stack([scored.bits, scored.block_bytes], 1)
    blocks = documents is None or len(documents) < FEWEST
    if documents is not None and not blocks:
        pieces = np.add.reduceat(pieces, documents, axis=0)
    result: dict[str, Any] = {"task": "lm", "figure": "bits_per_byte"}
    evaluation = Evaluation(result, pieces, ordered=blocks)
    counts = {
        "tokens": scored.tokens,
        "bytes": int(scored.block_bytes.sum()),
        "unknown_tokens": scored.unknown,
    }
    if not normalised:
        way = f"{scored.way}; scores, not probabilities: they have neither perplexity nor bits"
        result |= {"mean_negative_log_score": scored.nats / scored.tokens, **counts}
        result |= {"zero_probability_tokens": scored.zeros, "way": way}
        return evaluation
    if lossless:
        result["bits_per_byte"] = scored.bits_per_byte
        result["bits_per_byte_ci"] = list(evaluation.interval())
    result |= {
        "perplexity": scored.perplexity,
        **counts,
        "spelling_bits_per_byte": scored.spelling_bits / float(scored.block_bytes.sum()),
        "zero_probability_tokens": scored.zeros,
        "way": scored.way,
    }
    return evaluation


def by_corpus(parts: Sequence[PartScored], names: Sequence[str], bits: str = "bits_per_byte") -> list[dict[str, Any]]:
    """Compute the figures of each of several corpora; a corpus without scored tokens has none. `bits`: the name of the
    bits per byte; "": tokens lose text, and there are none."""
    rows = []
    for name, part in zip(names, parts, strict=True):
        if part.tokens:
            row: dict[str, Any] = {"corpus": name, "tokens": part.tokens, "loss": part.nats / part.tokens}
            rows.append(row | ({bits: part.bits / max(1, part.bytes)} if bits else {}))
    return rows


TASK = Lm()
