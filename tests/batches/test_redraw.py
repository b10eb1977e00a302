"""BPE-dropout in batches: new in every epoch, the same whenever a step is asked for, in training alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from segue.batches.batch import Batch
from segue.batches.batches import Config
from segue.batches.codec import Codec, Sizes
from segue.batches.rows import Rows
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.tasks.seq2seq import TASK
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

WORDS = ["lowest", "newest", "widest", "lower", "newer", "wider", "quickest"]
PAIRS = [
    Example(" ".join(WORDS[i % 7] for i in range(n, n + 2 + n % 5)), target=" ".join(WORDS[n % 7 :])) for n in range(60)
]
CORPUS: Any = SimpleNamespace(examples=lambda split: iter(PAIRS))


@pytest.fixture(scope="module")
def codec() -> Codec:
    sides = [[pair.text for pair in PAIRS], [pair.target for pair in PAIRS]]
    source, target = (
        Tokenizer.train(Tokens(kind="bpe", vocab_size=size), texts)
        for size, texts in zip((280, 300), sides, strict=True)
    )
    sizes = Sizes(target.vocab_size, source_vocab_size=source.vocab_size)
    return Codec(target, (), Data(), sizes, own_source=source, dropout=0.2)


def batches(codec: Codec, folder: Path, config: Config, seed: int = 1) -> Rows:
    found = TASK.batches(TASK.store(CORPUS, "train", codec, folder).store, config, seed, codec=codec)
    assert isinstance(found, Rows)
    return found


def read(parts: list[Batch], codec: Codec) -> dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]]:
    """The ids of each row, by its texts."""
    found = {}
    for part in parts:
        for i in range(len(part.tokens_BT)):
            source, target = part.source[i][part.source_mask[i]], part.tokens_BT[i][part.mask_BT[i]][1:]
            texts = codec.source_tokenizer.decode(source), codec.tokenizer.decode(target)
            found[texts] = (tuple(source.tolist()), tuple(target.tolist()))
    return found


@pytest.mark.parametrize("tokens", [0, 256])
def test_rows_are_drawn_anew_in_every_epoch_whatever_the_parts(codec: Codec, tokens: int, tmp_path: Path) -> None:
    one, other = (batches(codec, tmp_path, Config(8, 100, parts, tokens=tokens)) for parts in (1, 3))
    epochs = []
    for epoch in range(3):
        steps = range(epoch * one.per_epoch, (epoch + 1) * one.per_epoch)
        rows = [{k: v for step in steps for k, v in read(some.at(step), codec).items()} for some in (one, other)]
        assert rows[0] == rows[1]
        assert rows[0].keys() == {(pair.text, pair.target) for pair in PAIRS}
        epochs.append(rows[0])
    assert len({tuple(sorted(epoch.values())) for epoch in epochs}) == 3
    again = batches(codec, tmp_path, Config(8, 100, tokens=tokens))  # as after a restart
    assert read(again.at(one.per_epoch + 1), codec) == read(one.at(one.per_epoch + 1), codec)
    reseeded = batches(codec, tmp_path, Config(8, 100, tokens=tokens), seed=2)
    assert read(reseeded.at(0), codec).items() != read(one.at(0), codec).items()


def test_token_batches_reserve_room_for_longer_rows(codec: Codec, tmp_path: Path) -> None:
    found = batches(codec, tmp_path, Config(8, 100, tokens=256))
    own = {name: column.lengths().sum() for name, column in found.store.columns.items()}
    drawn = {"source": 0, "text": 0}
    shapes = set()
    for step in range(3 * found.per_epoch):
        (part,) = found.at(step)
        assert part.tokens_BT.size + part.source.size <= 256
        shapes.add((part.tokens_BT.shape, part.source.shape))
        drawn["source"] += int(part.source_mask.sum())
        drawn["text"] += int(part.mask_BT.sum()) - len(part.tokens_BT)
    assert len(shapes) == found.shapes  # the shapes do not depend on what is drawn
    assert all(drawn[name] > 3.3 * own[name] for name in drawn)


def test_only_the_training_text_is_prepared_for_it(codec: Codec, tmp_path: Path) -> None:
    train, held_out = (TASK.store(CORPUS, split, codec, tmp_path / split).store for split in ("train", "validation"))
    assert set(train.columns) == {"source", "text", "source_begins", "text_begins"}
    assert set(held_out.columns) == {"source", "text"}
    for name, tokenizer in (("source", codec.source_tokenizer), ("text", codec.tokenizer)):
        assert np.array_equal(held_out.columns[name].flat, train.columns[name].flat)
        assert (
            held_out.columns[name].row(7).tolist()
            == tokenizer.encode(PAIRS[7].text if name == "source" else PAIRS[7].target).tolist()
        )
