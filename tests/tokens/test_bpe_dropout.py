"""BPE-dropout: the tokenizer's own ids at 0, single bytes at 1, between them the distribution of the paper."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from segue.tokens import file_format, learn
from segue.tokens.bpe_dropout import NO_LIMIT, BpeDropout
from segue.tokens.tokenizer import Config, Tokenizer, _of

TEXTS = [
    "the lowest of the low",
    "  newer and wider,\n\twidest — naïve Müller's 42nd  ",
    "",
    "lower lowest newest 東京",
]


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Tokenizer.train(Config(kind="bpe", vocab_size=300, min_count=1), TEXTS)


def drawn(tokenizer: Tokenizer, texts: list[str], share: float, key: int = 0, room: int = NO_LIMIT) -> list[list[int]]:
    ids, lengths = tokenizer.encode_many(texts)
    keys = (np.arange(len(texts)) + key).astype(np.uint64)
    rooms = np.full(len(texts), room)
    flat, ends = BpeDropout(tokenizer, share).draw(
        ids, tokenizer.word_begins(texts), np.cumsum(lengths), keys * np.uint64(0xDEADBEEFCAFE), rooms
    )
    return [row.tolist() for row in np.split(flat, ends[:-1])]


def test_without_dropout_they_are_the_tokenizers_own_ids(bpe: Tokenizer) -> None:
    assert drawn(bpe, TEXTS, 0.0) == [bpe.encode(text).tolist() for text in TEXTS]


def test_with_every_merge_dropped_they_are_single_bytes(bpe: Tokenizer) -> None:
    for ids, text in zip(drawn(bpe, TEXTS, 1.0), TEXTS, strict=True):
        assert [bpe.bytes_of(i) for i in ids] == [bytes([byte]) for byte in text.encode()]


def test_every_draw_is_the_same_text_and_within_its_words(bpe: Tokenizer) -> None:
    begins = [set(np.cumsum([len(piece.encode()) for piece in bpe._pieces(text)])) for text in TEXTS]
    seen = set()
    for key in range(0, 200, len(TEXTS)):
        for ids, text, ends in zip(drawn(bpe, TEXTS, 0.4, key), TEXTS, begins, strict=True):
            assert bpe.decode(ids) == text
            assert ends <= {0, *np.cumsum([len(bpe.bytes_of(i)) for i in ids])}  # no token goes over the end of a word
            seen.add(tuple(ids))
    assert len(seen) > 50


def test_a_row_that_would_not_fit_gets_a_shorter_draw_or_its_own_ids(bpe: Tokenizer) -> None:
    own = bpe.encode(TEXTS[0]).tolist()
    rows = [drawn(bpe, TEXTS[:1], 0.3, key, room=len(own) + 4)[0] for key in range(50)]
    free = [drawn(bpe, TEXTS[:1], 0.3, key)[0] for key in range(50)]
    assert max(map(len, rows)) <= len(own) + 4 < max(map(len, free))
    assert all(row == other for row, other in zip(rows, free, strict=True) if len(other) <= len(own) + 4)
    assert drawn(bpe, TEXTS[:1], 0.9, room=len(own)) == [own]


def algorithm(word: tuple[str, ...], ranks: dict[tuple[str, str], int], share: float) -> dict[tuple[str, ...], float]:
    """Enumerate algorithm 1 of the paper: the probability of every segmentation of a word."""

    @cache
    def of(pieces: tuple[str, ...]) -> dict[tuple[str, ...], float]:
        merges = sorted((ranks[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in ranks)
        found = Counter({pieces: share ** len(merges)})
        for dropped, (_, i) in enumerate(merges):
            merged = (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
            for split, p in of(merged).items():
                found[split] += share**dropped * (1 - share) * p
        return found

    return dict(of(word))


def test_segmentations_are_as_likely_as_the_algorithm_makes_them() -> None:
    merges = [["l", "o"], ["e", "r"], ["lo", "w"], ["w", "er"], ["low", "er"], ["lo", "l"]]
    names = [*learn.byte_names(), *("".join(pair) for pair in merges)]
    tokenizer = _of(file_format.write("bpe", names, learn.unicode_pattern(), merges=merges))
    word, share, draws = "lolower", 0.3, 20_000
    expected = algorithm(tuple(word), {(a, b): i for i, (a, b) in enumerate(merges)}, share)
    assert abs(sum(expected.values()) - 1) < 1e-12
    seen = Counter(tuple(map(tokenizer.name, row)) for row in drawn(tokenizer, [word] * draws, share))
    assert seen.keys() <= expected.keys() and len(expected) > 20
    often = [split for split, p in expected.items() if p * draws >= 5]
    rest = draws - sum(seen[split] for split in often), 1 - sum(expected[split] for split in often)
    counts, shares = [seen[split] for split in often], [expected[split] for split in often]
    if rest[1] * draws >= 5:
        counts.append(rest[0])
        shares.append(rest[1])
    shares = [p * sum(counts) / sum(shares) for p in shares]
    assert chisquare(counts, shares).pvalue > 0.01
