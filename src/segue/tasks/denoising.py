"""Denoising: an encoder-decoder learns from running text, whose spans are hidden (batches.noise=spans, T5).

This is no task of its own but sequence to sequence on pairs that are made of text (batches/spans.py): fine-tuning on
real pairs goes on with the same model. Its figure is the perplexity of the hidden spans: of the targets' tokens, the
sentinels and the end among them, given the text around them and the right tokens before (teacher forcing). That is no
probability of a text. The spans that are hidden in held-out text are always the same ones.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from segue.batches.batch import Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as BatchConfig
from segue.batches.codec import Codec
from segue.batches.encode import encode_split
from segue.batches.spans import SpanRows
from segue.batches.store import Store
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.shapes import LABELLED, TEXT, Shape
from segue.data.sources import guess_shape, text_and_label
from segue.errors import InputError
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.inference.score import Floats, perplexity_of
from segue.models.base import Model, SpanModel
from segue.tasks.base import Done, HeldOut, Task, Values, nothing
from segue.tasks.lm import RunningText
from segue.tasks.seq2seq import Seq2seq

_SEED = 0
"""Of the spans that are hidden in held-out text."""
_HELD_OUT = BatchConfig(size=16, noise="spans")
"""How they are hidden, whatever share is hidden in training."""
_MOST = 0.5
"""The greatest share of a text that may be hidden."""


def settle_spans(values: Values, model: type[Model]) -> bool:
    """Read running text by hiding spans of it, if the model learns so, and texts with labels as pairs: the label is
    what is written for the text. Return whether spans are hidden."""
    noise = str(values.get("batches", {}).get("noise", ""))
    if not issubclass(model, SpanModel):
        if noise == "spans":
            raise InputError("batches.noise=spans is for t5, which learns from hidden spans. Leave it out.")
        return False
    data = values["data"]
    for key in ("sides", "dropout"):
        if (value := str(values["tokens"].get(key, "both"))) not in ("both", "0", "0.0"):
            raise InputError(f"tokens.{key}={value} is not for t5, whose sides share their tokens. Leave it out.")
    if noise != "spans" and "path" in data:
        keys = ("path", "format", "delimiter", "encoding")
        with suppress(ValueError):  # a wrong value is refused where the section is made
            told = Data(**{key: str(data[key]) for key in keys if key in data})  # type: ignore[arg-type]
            shape = guess_shape(told.path, told.format, told.encoding)
            if shape is TEXT and not noise:
                noise = "spans"
            elif shape is LABELLED and not data.get("columns"):
                data["columns"] = text_and_label(told)
                data.setdefault("metric", "exact")
    if noise == "spans":
        values["batches"]["noise"] = noise
        DENOISING.defaults(values, model)
    return noise == "spans"


class Denoising(RunningText, Seq2seq):
    """Hidden spans of running text. A pair that is looked at is read as any pair is."""

    name = "seq2seq"
    encode = Seq2seq.encode
    collate = Seq2seq.collate
    metrics = ()
    verbs = ("fill", "look")
    tokens = "bpe"
    figure = "span_perplexity"
    beside = ("span_perplexity", "span_accuracy")
    curve = ("span_accuracy", "accuracy in hidden spans")
    pieces = "rows of text"
    ladder = ("t5",)
    rows = 32
    length = 128

    @property
    def reads(self) -> str:
        return ""  # running text is for language models unless the user names another kind

    def with_noise(self, noise: str) -> Task:
        return self

    def goes_on_with(self, model: type[Model]) -> tuple[Shape, ...]:
        return (TEXT,)

    def shown(self, figure: str) -> tuple[str, ...]:
        return self.beside

    def settle_batches(self, config: BatchConfig) -> None:
        super().settle_batches(config)
        if config.vary:
            raise ValueError("vary=true draws the lengths of rows, and with noise=spans all are of one length")
        if not 0 < config.share <= _MOST:
            raise ValueError(f"share={config.share} of a text cannot be hidden: expected more than 0, up to {_MOST}")
        if 0 < config.length < 8:
            raise ValueError(f"length={config.length} is too short to hide a span: expected 8 or more")

    def held_out(self, corpus: Corpus, split: str, codec: Codec, folder: Path, limit: int) -> HeldOut:
        held_out = encode_split(corpus, split, codec.tokenizer, None, folder, limit)
        unknown = int((held_out.store.tokens == codec.tokenizer.unk).sum())
        return HeldOut(held_out, unknown / max(1, len(held_out.store.tokens)))

    def batches(
        self, store: Store, config: BatchConfig, seed: int, carry: bool = True, codec: Codec | None = None
    ) -> Batches:
        assert codec is not None
        return SpanRows(store, config, seed, codec.sizes)

    def validate(
        self, opened: Opened, held_out: HeldOut, config: BatchConfig, limit: int, done: Done = nothing
    ) -> dict[str, float]:
        nats = right = count = 0.0
        for batch, share in _hidden(held_out.data.store, opened):
            judged = opened.model.judge(batch.to(opened.device))
            assert judged.right is not None
            nats, right, count = nats + float(judged.total), right + float(judged.right), count + judged.number
            done(share)
        return {"loss": nats / count, "span_accuracy": right / count}

    def evaluate(
        self, opened: Opened, corpus: Corpus, split: str, done: Done = nothing, limit: int = 0, **how: Any
    ) -> Evaluation:
        """Hide spans of all of a split, once."""
        import torch

        rows: list[Floats] = []
        opened.model.eval()
        with tempfile.TemporaryDirectory(prefix="segue-") as folder, torch.inference_mode():
            held_out = encode_split(corpus, split, opened.codec.tokenizer, None, Path(folder), limit)
            for batch, share in _hidden(held_out.store, opened):
                targets_BT = torch.from_numpy(batch.targets)
                logits_BTV = opened.model(batch.to(opened.device))[0].float().cpu()
                logp_BT = logits_BTV.log_softmax(-1).gather(2, targets_BT[..., None])[..., 0]
                right_B = (logits_BTV.argmax(-1) == targets_BT).double().sum(1)
                count_B = torch.full_like(right_B, targets_BT.shape[1])
                rows.append(torch.stack([-logp_BT.double().sum(1), count_B, right_B], 1).numpy())
                done(share)
        pieces_NK = np.concatenate(rows)
        nats, tokens, right = pieces_NK.sum(0).tolist()
        head = {"task": self.name, "figure": self.figure, self.figure: perplexity_of(nats / tokens)}
        evaluation = Evaluation(head, pieces_NK, of_sums=_perplexity, ordered=True).refigured()
        result = evaluation.result
        result |= {"span_accuracy": right / tokens, "tokens": int(tokens), "bytes": held_out.bytes}
        way = f"{_HELD_OUT.share:.0%} of the text hidden in spans, always the same ones, in rows of {opened.limit:,}"
        if held_out.cut:
            way += f"; the first {limit:,} tokens of the split (train.validate_tokens)"
        result["way"] = way
        return evaluation

    def amount(self, evaluation: Evaluation) -> str:
        return f"{evaluation.result['bytes']:,} bytes"


def _perplexity(sums_RK: Floats) -> Floats:
    return np.asarray(np.exp(sums_RK[:, 0] / sums_RK[:, 1]))


def _hidden(store: Store, opened: Opened) -> Iterator[tuple[Batch, float]]:
    """Yield held-out text with hidden spans, all of it once, and the share that is done."""
    config = dataclasses.replace(_HELD_OUT, length=opened.limit)
    rows = SpanRows(store, config, _SEED, opened.codec.sizes)
    for step in range(rows.per_epoch):
        yield rows.at(step)[0], (step + 1) / rows.per_epoch


DENOISING = Denoising()
