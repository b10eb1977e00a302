"""Words by their pieces: where each word stands, windows over long sentences, and batches of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.batches.batch import IGNORE
from segue.batches.codec import Codec, Sizes
from segue.batches.word_pieces import collate_pieces, encode_pieces, word_windows
from segue.data.config import Config as Data
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer


def codec_of(kind: str = "byte", text: str = "the cow eats") -> Codec:
    tokenizer = Tokenizer.train(Tokens(kind=kind, min_count=1), [text])  # type: ignore[arg-type]
    return Codec(tokenizer, (), Data(), Sizes(tokenizer.vocab_size, marks=("start", "mask")))


LENGTHS = st.lists(st.sampled_from([1, 1, 1, 2, 3, 9]), max_size=30)


@given(LENGTHS, st.integers(1, 12))
def test_every_word_belongs_to_one_window_with_most_context(lengths: list[int], room: int) -> None:
    windows = word_windows(np.array(lengths, np.int64), room)
    owned = [word for one in windows for word in range(one.own_first, one.own_after)]
    assert owned == list(range(len(lengths)))
    ends = np.cumsum([0, *lengths])

    def context(one: tuple[int, ...], word: int) -> int:
        """Pieces between a word and the nearer edge; the edges of the sentence hide nothing."""
        before = ends[word] - ends[one[0]] if one[0] else 10**6
        after = ends[one[1]] - ends[word + 1] if one[1] < len(lengths) else 10**6
        return int(min(before, after))

    for one in windows:
        assert sum(lengths[one.first : one.after]) <= room or one.after == one.first + 1
        for word in range(one.own_first, one.own_after):
            others = [context(other, word) for other in windows if other.first <= word < other.after]
            assert context(one, word) == max(others)


def test_a_sentence_that_fits_is_one_window() -> None:
    assert word_windows(np.array([3, 2, 3]), 8) == [(0, 3, 0, 3)]
    assert word_windows(np.array([], np.int64), 8) == [(0, 0, 0, 0)]


def test_windows_overlap_by_a_quarter() -> None:
    assert word_windows(np.ones(20, np.int64), 8) == [(0, 8, 0, 7), (6, 14, 7, 13), (12, 20, 13, 20)]


def test_a_word_stands_at_its_first_piece_or_its_last() -> None:
    codec = codec_of()
    start, stop = codec.sizes.start, codec.sizes.stop
    for last, places in ((False, [1, 5]), (True, [4, 8])):
        columns, words = encode_pieces([("the", "cow"), ("a",)], codec, 99, last)
        assert columns["text"].row(0).tolist() == [start, *codec.tokenizer.encode(" the cow"), stop]
        assert columns["firsts"].row(0).tolist() == places
        assert columns["firsts"].row(1).tolist() == [2 if last else 1]
        assert words.tolist() == [0, 1, 2] and columns["own"].flat.tolist() == [1, 1, 1]


def test_words_of_one_piece_stand_one_after_the_other() -> None:
    """With space tokens it makes no difference which piece stands for a word."""
    codec = codec_of("space")
    words = ("the", "cow", "unseen", "the cow")
    for last in (False, True):
        columns, _ = encode_pieces([words], codec, 99, last)
        assert columns["text"].row(0)[1:-1].tolist() == codec.tokenizer.encode_words(words)[0].tolist()
        assert columns["firsts"].row(0).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("last", [False, True])
def test_windows_are_rows_whose_own_words_are_the_sentences(last: bool) -> None:
    """No row is longer than the window, every word is decided once, and none is lost, empty sentences included."""
    codec = codec_of()
    sentences = [("one", "two", "three", "four"), (), ("five", "x" * 40, "six")]
    columns, words = encode_pieces(sentences, codec, 16, last)
    firsts, own = columns["firsts"], columns["own"].flat.astype(bool)
    assert words[own].tolist() == list(range(7)) and own.sum() < len(own)
    assert len(columns["text"]) == len(firsts) > 3 and max(map(len, columns["text"].rows(16))) == 16
    batch = collate_pieces(columns, 16, None)
    assert batch.tokens_BT.shape[1] == 16 and (batch.targets == IGNORE).all() and batch.count == 0
    said = [" " + word for sentence in sentences for word in sentence]
    places = np.repeat(columns["text"].ends - columns["text"].lengths(), firsts.lengths()) + firsts.flat
    for place, word in zip(places, words, strict=True):
        pieces = codec.tokenizer.encode(said[word])[:14]  # of x…x, what a window has room for
        assert columns["text"].flat[place] == pieces[-1 if last else 0]


def test_only_a_word_beyond_the_window_is_cut() -> None:
    columns, _ = encode_pieces([("a", "x" * 40, "b")], codec_of(), 16, False)
    assert np.maximum(columns["text"].lengths() - 16, 0).tolist() == [0, 1 + 41 + 1 - 16, 0]


def test_context_has_no_target() -> None:
    """A word that belongs to another window is read, and neither learnt nor counted here; of several tags too."""
    columns, words = encode_pieces([("one", "two", "three", "four", "five")], codec_of(), 16, False)
    rows = np.split(words, columns["firsts"].ends[:-1])
    batch = collate_pieces(columns, 16, rows)
    assert sorted(batch.targets[batch.targets != IGNORE].tolist()) == [0, 1, 2, 3, 4] and batch.count == 5
    assert (batch.firsts_BW >= 0).sum() == len(words) > 5
    several = collate_pieces(columns, 16, [np.stack([row % 2, row % 2 == 0], 1).astype(np.uint8) for row in rows])
    assert several.targets.shape == (*batch.targets.shape, 2) and several.count == 10
    assert ((several.targets[..., 0] == IGNORE) == (batch.targets == IGNORE)).all()


def test_a_batch_of_pieces_is_padded_together() -> None:
    """Tokens, places and targets to the same width, so that the shapes of token batches stay few."""
    columns, words = encode_pieces([("one", "two"), ("a",)], codec_of(), 99, False)
    batch = collate_pieces(columns, 99, np.split(words, columns["firsts"].ends[:-1])).padded(24)
    assert batch.tokens_BT.shape == batch.mask_BT.shape == batch.firsts_BW.shape == batch.targets.shape == (2, 24)
    assert ((batch.firsts_BW >= 0) == (batch.targets != IGNORE)).all() and batch.count == 3
