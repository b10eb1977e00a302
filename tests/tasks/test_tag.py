"""Tag: words, tags and letters on disk, and side by side in batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from segue.batches.batch import IGNORE
from segue.batches.codec import Codec, Sizes
from segue.batches.encode import encode
from segue.batches.store import columns_of
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.errors import InputError
from segue.tasks.tag import TASK
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer


def codec_of(text: str, *tags: str) -> Codec:
    tokenizer = Tokenizer.train(Tokens(kind="space", min_count=1), [text])
    return Codec(tokenizer, tags, Data(), Sizes(tokenizer.vocab_size, len(tags)))


def test_tags_are_ignored_where_there_is_no_word() -> None:
    columns = columns_of(text=[np.array([5, 6]), np.array([7])], tags=[np.array([1, 0]), np.array([2])])
    batch = TASK.collate(columns, 9999)
    assert batch.targets.tolist() == [[1, 0], [2, IGNORE]]
    assert batch.mask_BT.tolist() == [[True, True], [True, False]]
    assert batch.count == 3


def test_without_tags_nothing_is_predicted() -> None:
    """As where a model is asked: the same tokens, every target IGNORE."""
    text = [np.array([5, 6]), np.array([7])]
    asked, told = TASK.collate(columns_of(text=text), 9), TASK.collate(columns_of(text=text, tags=[[1, 0], [2]]), 9)
    assert asked.tokens_BT.tolist() == told.tokens_BT.tolist() and asked.mask_BT.tolist() == told.mask_BT.tolist()
    assert asked.targets.shape == told.targets.shape and (asked.targets == IGNORE).all() and asked.count == 0


def test_tags_on_disk(tmp_path: Path) -> None:
    rows = [Example(words=("the", "cow"), tags=("D", "N")), Example(words=("eats", "", "zebra"), tags=("V", "D", "N"))]
    codec = codec_of("the cow eats", "D", "N", "V")
    encoded = encode(rows, lambda group: TASK.encode(group, codec), codec.tokenizer, tmp_path, limit=2)
    columns = encoded.store.columns
    assert [columns["tags"].row(i).tolist() for i in range(2)] == [[0, 1], [2, 0, 1]]
    assert [len(columns["text"].row(i)) for i in range(2)] == [2, 3]
    assert columns["text"].row(1).tolist()[2] == codec.tokenizer.unk
    assert encoded.cut == 1
    assert encoded.tokens == 5
    assert encoded.unknown == int((columns["text"].flat == codec.tokenizer.unk).sum())


def test_rows_are_the_same_ids_with_and_without_tags() -> None:
    rows = [Example(words=("the", "Cow"), tags=("D", "N")), Example(words=("eats",), tags=("V",))]
    codec = codec_of("the cow eats", "D", "N", "V")
    told, asked = TASK.encode(rows, codec), TASK.encode(rows, codec, labelled=False)
    assert set(told) - set(asked) == {"tags"}
    for name, column in asked.items():
        assert column.flat.tolist() == told[name].flat.tolist() and column.ends.tolist() == told[name].ends.tolist()


def test_an_unknown_tag_is_refused_with_its_place() -> None:
    row = Example(words=("a", "b"), tags=("good", "bda"), path="tags.conll", line=9)
    with pytest.raises(InputError) as caught:
        TASK.encode([row], codec_of("a b", "bad", "good"))
    message = str(caught.value)
    assert message.startswith("tags.conll:9: ") and "'bda'" in message and "Did you mean '" in message


def test_tags_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "tags.conll").write_text("a\tN\nb\tD\n\na\tV\nb\tD\n")
    corpus = Corpus(Data(path=str(tmp_path / "tags.conll"), validation=0.0), TASK.shape)
    assert TASK.labels(corpus, corpus.config) == ("D", "N", "V")
