"""Span corruption (Raffel et al. 2020): running text as pairs, from which an encoder-decoder learns without labels.

    text      Thank you for inviting me to your party last week
    source    Thank you <span0> me to your party <span1> week STOP
    target    <span0> for inviting <span1> last STOP

Spans are hidden, each behind a mark of its own, its sentinel; the target lists the sentinels with what they hide. Of n
tokens round(share · n) are hidden, in a third as many spans: the mean length is 3. How long the spans are, and what
stands between them, is drawn; how many there are is not, so that all rows have one shape and none is padded. As many
tokens are read as make a source of exactly `length` places: 568 for 512, whose target always has 114.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.batches import Config
from segue.batches.codec import Sizes
from segue.batches.rings import Ints, RingRows, Rings
from segue.batches.store import Store
from segue.errors import InputError

MEAN = 3
"""The mean length of a span."""


def hidden_of(tokens: int, share: float) -> tuple[int, int]:
    """Count the tokens that are hidden of so many, and the spans that they are in."""
    hidden = min(max(round(tokens * share), 1), max(1, tokens - 1))
    return hidden, max(1, min(round(hidden / MEAN), tokens - hidden))


def source_length(tokens: int, share: float) -> int:
    """Count the places of the source that is made of so many tokens, with its STOP."""
    hidden, spans = hidden_of(tokens, share)
    return tokens - hidden + spans + 1


def target_length(tokens: int, share: float) -> int:
    """Count the places of the target that is made of so many tokens, with its STOP."""
    return sum(hidden_of(tokens, share)) + 1


def tokens_read(length: int, share: float) -> int:
    """Count the tokens of text that make a source of `length` places."""
    tokens = 1
    while source_length(tokens + 1, share) <= length:
        tokens += 1
    return tokens


class SpanRows(RingRows):
    """Every batch of running text with hidden spans, by its step."""

    salt = 13

    def __init__(self, store: Store, config: Config, seed: int, sizes: Sizes) -> None:
        super().__init__(store, config, seed, tokens_read(config.length, config.share))
        self.sizes = sizes
        self.sentinels = np.array([sizes.mark(name) for name in sizes.marks if name.startswith("span")], np.int64)
        _, spans = hidden_of(self.room, config.share)
        if spans > len(self.sentinels):
            raise InputError(
                f"Rows of batches.length={config.length} have {spans} hidden spans, and this model has "
                f"{len(self.sentinels)} sentinels (model.spans). Set batches.length or batches.share lower."
            )

    def batch(self, rings: Rings, draw: np.random.Generator) -> Batch:
        tokens_BT = self.taken(rings, np.arange(self.room)[None])
        source_BS, target_BT = corrupted(tokens_BT, self.config.share, self.sentinels, self.sizes.stop, draw)
        begins_B1 = np.full((len(target_BT), 1), self.sizes.stop)
        inputs_BT = np.concatenate([begins_B1, target_BT[:, :-1]], 1)
        mask_BT, mask_BS = np.ones(inputs_BT.shape, bool), np.ones(source_BS.shape, bool)
        return Batch(inputs_BT, target_BT, mask_BT, None, source_BS, mask_BS, unpadded=True, source_unpadded=True)


def corrupted(
    tokens_BT: Ints, share: float, sentinels: Ints, stop: int, draw: np.random.Generator
) -> tuple[Ints, Ints]:
    """Hide spans of each row; return the sources and the targets, each with its STOP."""
    rows, tokens = tokens_BT.shape
    hidden, spans = hidden_of(tokens, share)
    of_hidden_BN = _lengths(rows, hidden, spans, draw)
    of_shown_BN = _lengths(rows, tokens - hidden, spans, draw)
    # What is shown and what is hidden take turns, and a text begins with what is shown.
    turns = np.stack([of_shown_BN, of_hidden_BN], 2).reshape(-1)
    hides_BT = np.repeat(np.tile([False, True], rows * spans), turns).reshape(rows, tokens)
    return (
        _listed(tokens_BT, ~hides_BT, of_shown_BN, sentinels, stop, after=True),
        _listed(tokens_BT, hides_BT, of_hidden_BN, sentinels, stop, after=False),
    )


def _lengths(rows: int, tokens: int, parts: int, draw: np.random.Generator) -> Ints:
    """Draw the lengths of `parts` parts of some tokens, each 1 or more, for each row: every way to cut them is equally
    likely. No tokens have parts of length 0."""
    if tokens < parts:
        return np.zeros((rows, parts), np.int64)
    keys_BN = draw.random((rows, tokens - 1), np.float32) if tokens > 1 else np.zeros((rows, 0), np.float32)
    cuts_BN = np.sort(np.argsort(keys_BN, axis=1, kind="stable")[:, : parts - 1], axis=1) + 1
    edges = np.zeros((rows, 1), np.int64)
    return np.diff(np.concatenate([edges, cuts_BN, edges + tokens], 1), axis=1)


def _listed(
    tokens_BT: Ints, kept_BT: NDArray[np.bool_], lengths_BN: Ints, sentinels: Ints, stop: int, after: bool
) -> Ints:
    """The kept tokens with a sentinel after, or before, each part, and STOP at the end."""
    rows, parts = lengths_BN.shape
    count = int(lengths_BN[0].sum())
    out_BT = np.full((rows, count + parts + 1), stop, np.int64)
    ends_BN = np.cumsum(lengths_BN, 1)
    numbers_N = np.arange(parts)
    places_BN = (ends_BN if after else ends_BN - lengths_BN) + numbers_N
    is_token_BT = np.ones(out_BT.shape, bool)
    is_token_BT[:, -1] = False
    np.put_along_axis(is_token_BT, places_BN, False, 1)
    np.put_along_axis(out_BT, places_BN, np.broadcast_to(sentinels[:parts], places_BN.shape), 1)
    out_BT[is_token_BT] = tokens_BT[kept_BT]
    return out_BT


def restored(source: Sequence[int], target: Sequence[int], sentinels: Sequence[int]) -> list[int]:
    """Put what a target lists back into its source: the text, without the STOPs at the ends."""
    hidden: dict[int, list[int]] = {}
    sentinel = -1
    for token in target[:-1]:
        if token in sentinels:
            sentinel = int(token)
            hidden[sentinel] = []
        else:
            hidden[sentinel].append(int(token))
    text: list[int] = []
    for token in source[:-1]:
        text += hidden[int(token)] if token in sentinels else [int(token)]
    return text
