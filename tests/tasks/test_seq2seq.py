"""Sequence to sequence: sources and targets on disk, and shifted by one in batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from segue.batches.batch import IGNORE
from segue.batches.codec import Codec, Sizes
from segue.batches.encode import encode
from segue.batches.store import columns_of
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.tasks.seq2seq import TASK
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

STOP = 0


def test_targets_are_shifted_by_one_and_end_with_stop() -> None:
    columns = columns_of(source=[np.array([5, 6]), np.array([7])], text=[np.array([2]), np.array([3, 4])])
    batch = TASK.collate(columns, 9999)
    assert batch.tokens_BT.tolist() == [[STOP, 2, 0], [STOP, 3, 4]]
    assert batch.targets.tolist() == [[2, STOP, IGNORE], [3, 4, STOP]]
    assert batch.source.tolist() == [[5, 6], [7, 0]]
    assert batch.source_mask.tolist() == [[True, True], [True, False]]
    assert batch.mask_BT.tolist() == [[True, True, False], [True, True, True]]
    assert batch.count == 5


def test_a_batch_becomes_tensors_with_the_same_values() -> None:
    batch = TASK.collate(columns_of(source=[np.array([5, 6])], text=[np.array([2])]), 9999)
    moved = batch.to("cpu")
    for name in ("tokens_BT", "targets", "mask_BT", "source", "source_mask"):
        assert getattr(moved, name).tolist() == getattr(batch, name).tolist()
    assert moved.fresh_B is None
    assert moved.count == batch.count


def test_a_translation_that_is_cut_does_not_end_there() -> None:
    columns = columns_of(source=[[6, 7], [8, 9, 10, 11], [12]], text=[[6, 7, 8], [9], [10, 11, 12, 13]])
    batch = TASK.collate(columns, 2)
    assert batch.source[batch.source_mask].tolist() == [6, 7, 8, 9, 12]
    assert batch.tokens_BT.tolist() == [[STOP, 6, 7], [STOP, 9, 0], [STOP, 10, 11]]
    assert batch.targets.tolist() == [[6, 7, 8], [9, STOP, IGNORE], [10, 11, 12]]


def test_translations_on_disk(tmp_path: Path) -> None:
    rows = [Example("the cow", target="die Kuh"), Example("grass", target="Gras")]
    tokenizer = Tokenizer.train(Tokens(kind="char"), [row.text + row.target for row in rows])
    codec = Codec(tokenizer, (), Data(), Sizes(tokenizer.vocab_size))
    encoded = encode(rows, lambda group: TASK.encode(group, codec), tokenizer, tmp_path, limit=5)
    for name, texts in {"source": [r.text for r in rows], "text": [r.target for r in rows]}.items():
        column = encoded.store.columns[name]
        assert [column.row(i).tolist() for i in range(2)] == [tokenizer.encode(text).tolist() for text in texts]
    assert encoded.tokens == sum(len(row.text) + len(row.target) for row in rows)
    # Beyond 5: two of each side of the first row; the store keeps them, batches leave them out.
    assert encoded.cut == 4
    asked = TASK.encode(rows, codec, labelled=False)
    assert set(asked) == {"source"} and asked["source"].flat.tolist() == encoded.store.columns["source"].flat.tolist()
