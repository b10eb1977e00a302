"""Embed: learn word vectors, judged by a cloze test: which of ten words stood there?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.store import Store
from segue.data.corpus import Corpus
from segue.errors import InputError
from segue.inference import words
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.models.base import Model
from segue.tasks.base import Done, HeldOut, Values, nothing
from segue.tasks.lm import RunningText


class Embed(RunningText):
    """Vectors of words."""

    name = "embed"
    verbs = ("nearest", "analogy")
    tokens = "word"  # a punctuation mark is a token of its own, not the end of a word
    figure = "cloze"
    beside = ("cloze",)
    curve = ("cloze", "")
    decides = True
    pieces = "texts"
    whole_epochs = True
    ladder = ("word2vec/next", "word2vec/cbow", "word2vec")

    @property
    def reads(self) -> str:
        return ""  # running text is for language models unless the user names another task

    def defaults(self, values: Values, model: type[Model]) -> None:
        super().defaults(values, model)
        values["data"].setdefault("unit", "line")  # a window does not reach over the end of a line
        values["data"].setdefault("canonical", True)
        values["tokens"].setdefault("min_count", 5)  # a word seen once or twice gets no useful vector

    def settle_batches(self, config: BatchConfig) -> None:
        super().settle_batches(config)
        if config.vary or config.noise != "none":
            raise ValueError("vary and noise are for language models; word2vec makes its own batches")

    def held_out(self, corpus: Corpus, split: str, codec: Codec, folder: Path, limit: int) -> HeldOut:
        encoded = self.store(corpus, split, codec, folder)
        return HeldOut(encoded.store, encoded.unknown / max(1, encoded.tokens))

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        raise TypeError("word2vec makes its own batches")

    def validate(
        self, opened: Opened, held_out: HeldOut, config: BatchConfig, limit: int, done: Done = nothing
    ) -> dict[str, float]:
        return {"cloze": words.cloze(opened.model, held_out.data.tokens).accuracy}

    def amount(self, evaluation: Evaluation) -> str:
        return f"{evaluation.result['places']:,} places of text"

    def questions(self, opened: Opened, data: Any) -> Evaluation | None:
        """Word pairs with scores, or analogies."""
        asked = words.questions_in(Path(data)) if isinstance(data, str | Path) else None
        if asked:
            return words.of_questions(words.words_of(opened), asked)
        if opened.model.outputs is None:
            raise InputError(
                "These vectors were imported, and predict no words of a text. Name a file of pairs with scores, or of "
                "analogies, to evaluate them on."
            )
        return None

    def evaluate(
        self, opened: Opened, corpus: Corpus, split: str, done: Done = nothing, limit: int = 0, **how: Any
    ) -> Evaluation:
        texts = [example.text for example in corpus.examples(split)]
        tokens, _ = opened.codec.tokenizer.encode_many(texts, stop=True)
        return words.of_text(opened.model, tokens, done)


TASK = Embed()
