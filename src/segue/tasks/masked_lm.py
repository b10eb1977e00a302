"""Masked language models: the probability of a hidden token, given the words on both sides of it.

This is no probability of a text: `way` says "given the words around it", and the figure, masked bits per byte, never
stands in one table with bits per byte. It is computed in seven passes over the text, in which every token is masked
exactly once (inference/masked.py).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.encode import encode_split
from segue.batches.masking import MaskedRows
from segue.batches.store import Store
from segue.data.corpus import Corpus
from segue.inference.evaluation import Evaluation
from segue.inference.masked import score_masked
from segue.inference.opened import Opened
from segue.models.base import Model
from segue.tasks.base import Done, HeldOut, Values, nothing
from segue.tasks.lm import RunningText


class MaskedLm(RunningText):
    """The probability of hidden tokens."""

    name = "masked_lm"
    verbs = ("fill", "score", "embed")
    tokens = "bpe"
    figure = "masked_bits_per_byte"
    beside = ("masked_bits_per_byte", "masked_perplexity", "masked_accuracy")
    curve = ("masked_bits_per_byte", "")
    pieces = "blocks of 2,048 bytes"
    ladder = ("bert",)
    rows = 32
    length = 128

    @property
    def reads(self) -> str:
        return ""  # running text is for language models unless the user names another task

    def defaults(self, values: Values, model: type[Model]) -> None:
        super().defaults(values, model)
        values["batches"].setdefault("noise", "mask")

    def settle_batches(self, config: BatchConfig) -> None:
        super().settle_batches(config)
        if config.vary or config.noise != "mask":
            raise ValueError("masked language models read rows of one length with noise=mask, and nothing else")

    def held_out(self, corpus: Corpus, split: str, codec: Codec, folder: Path, limit: int) -> HeldOut:
        held_out = encode_split(corpus, split, codec.tokenizer, None, folder, limit)
        unknown = int((held_out.store.tokens == codec.tokenizer.unk).sum())
        return HeldOut(held_out, unknown / max(1, len(held_out.store.tokens)))

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        assert codec is not None
        joins = codec.tokenizer.joins if config.whole_words else None
        return MaskedRows(store, config, seed, codec.sizes, "follows_B" in codec.inputs, joins)

    def validate(
        self, opened: Opened, held_out: HeldOut, config: BatchConfig, limit: int, done: Done = nothing
    ) -> dict[str, float]:
        scored = score_masked(opened, held_out.data, config.share, done)
        values = {"loss": scored.nats / max(1, scored.tokens), "masked_accuracy": scored.right / max(1, scored.tokens)}
        lossless = opened.codec.tokenizer.lossless
        return values | ({"masked_bits_per_byte": scored.bits_per_byte} if lossless else {})

    def evaluate(
        self, opened: Opened, corpus: Corpus, split: str, done: Done = nothing, limit: int = 0, **how: Any
    ) -> Evaluation:
        """Mask every token of a split once."""
        with tempfile.TemporaryDirectory(prefix="segue-") as folder:
            held_out = encode_split(corpus, split, opened.codec.tokenizer, None, Path(folder), limit)
            scored = score_masked(opened, held_out, done=done)
        result: dict[str, Any] = {"task": self.name, "figure": self.figure}
        evaluation = Evaluation(result, scored.pieces_NK, ordered=True)
        if opened.codec.tokenizer.lossless:
            result["masked_bits_per_byte"] = scored.bits_per_byte
            result["masked_bits_per_byte_ci"] = list(evaluation.interval())
        result |= {
            "masked_perplexity": scored.perplexity,
            "masked_accuracy": scored.right / max(1, scored.tokens),
            "tokens": scored.tokens,
            "bytes": scored.bytes,
            "way": opened.model.way,
        }
        return evaluation

    def amount(self, evaluation: Evaluation) -> str:
        return f"{evaluation.result['bytes']:,} bytes"


TASK = MaskedLm()
