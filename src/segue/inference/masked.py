"""Score text by a masked language model: a hidden token is predicted from the words on both sides of it.

    a text, for figures          in ceil(1 / 0.15) = 7 passes every token is masked exactly once, about 15 % at a time
    a sentence, token by token   each token is masked alone, in turn, and log p summed: the pseudo-log-likelihood
                                 (Salazar et al. 2020), which is no probability of the sentence

STOP and UNK are never masked: they are given, and neither they nor their bytes are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Config as BatchConfig
from segue.batches.encode import HeldOutText
from segue.batches.masking import MaskedRows
from segue.inference.opened import Opened
from segue.inference.score import BLOCK, PartScored, PseudoLine, perplexity_of
from segue.layers.losses import target_logprobs
from segue.tokens.file_format import UNK

PASSES = math.ceil(1 / 0.15)
_TOGETHER = 1 << 13
"""Tokens of one batch."""
_CELLS = 1 << 24
"""Logits of one batch: they must fit into memory."""
MOST_PAIRS, FEW_PAIRS = 2048, 256
"""Pairs of chunks that the accuracy of the next sentence is computed on: for exact figures, and during training."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class MaskedScored(NamedTuple):
    """The score of a text, each token masked once."""

    pieces_NK: Floats
    """Bits and bytes of the scored tokens in each block of 2,048 bytes of raw text."""
    nats: float
    tokens: int
    """Tokens that were scored."""
    right: int
    """Those that were the likeliest."""
    unknown: int
    """Unknown tokens, which are given."""
    parts: tuple[PartScored, ...] = ()
    """Totals of each corpus, if there are several."""

    @property
    def bytes(self) -> int:
        return int(self.pieces_NK[:, 1].sum())

    @property
    def bits_per_byte(self) -> float:
        return float(self.pieces_NK[:, 0].sum() / max(1.0, self.pieces_NK[:, 1].sum()))

    @property
    def perplexity(self) -> float:
        return perplexity_of(self.loss)

    @property
    def loss(self) -> float:
        """The mean -log p of a token."""
        return self.nats / max(1, self.tokens)

    @property
    def accuracy(self) -> float:
        return self.right / max(1, self.tokens)


def window_of(opened: Opened) -> int:
    """Tokens that are read at once, with start and end: as many as the model was trained on."""
    return min(int(opened.model.window), opened.limit)


def score_masked(
    opened: Opened,
    held_out: HeldOutText,
    passes: int = PASSES,
    done: Callable[[float], None] = lambda share: None,
) -> MaskedScored:
    """Mask every token of a text once, in windows as long as the model reads; of several corpora each by itself. With
    fewer `passes` than seven only those tokens that they mask are scored: every seventh in one."""
    ids = np.asarray(held_out.store.tokens).astype(np.int64)
    nats, right, scored = np.zeros(len(ids)), np.zeros(len(ids), bool), np.zeros(len(ids), bool)
    window, read = window_of(opened), 0
    for places_BT, real_BT in _windows(held_out.ends or (len(ids),), window - 2, _rows(opened, window)):
        for rows, own, found, best in _passes(opened, ids[places_BT], real_BT, passes):
            at = places_BT[rows, own]
            nats[at], right[at], scored[at] = found, best, True
        read += int(real_BT.sum())
        done(read / len(ids))
    sizes = np.asarray(held_out.store.columns["bytes"].flat, np.int64)
    blocks = (np.cumsum(sizes) - sizes) // BLOCK
    counted = np.where(scored, sizes, 0)
    pieces = [np.bincount(blocks, weights) for weights in (nats / math.log(2), counted)]
    corpora = list(pairwise((0, *held_out.ends))) if len(held_out.ends) > 1 else []
    parts = tuple(_part(nats[low:high], counted[low:high], scored[low:high]) for low, high in corpora)
    counts = int(scored.sum()), int(right.sum()), int((ids == UNK).sum())
    return MaskedScored(np.stack(pieces, 1), float(nats.sum()), *counts, parts)


def _part(nats: Floats, counted: Ints, scored: NDArray[np.bool_]) -> PartScored:
    total = float(nats.sum())
    return PartScored(total / math.log(2), int(counted.sum()), total, int(scored.sum()))


def _rows(opened: Opened, window: int) -> int:
    """Rows of a batch: their tokens and, at the places of a pass, their logits must fit."""
    logits = opened.codec.sizes.vocab_size * math.ceil(window / PASSES)
    return max(1, min(_TOGETHER // window, _CELLS // logits))


def _windows(ends: Iterable[int], room: int, rows: int) -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
    """Cut texts, which end at these places, into windows: yield the places of some windows, and which are real."""
    for begin, end in pairwise((0, *ends)):
        firsts = np.arange(begin, end, room)
        for some in np.split(firsts, np.arange(rows, len(firsts), rows)):
            if len(some):
                places_BT = some[:, None] + np.arange(min(room, end - begin))
                yield np.minimum(places_BT, end - 1), places_BT < end


def _passes(
    opened: Opened, text_BT: Ints, real_BT: NDArray[np.bool_], passes: int
) -> Iterator[tuple[Ints, Ints, Floats, NDArray[np.bool_]]]:
    """Mask every token of some windows once: yield, pass by pass, the row and the place of each, its -log p, and
    whether it was the likeliest."""
    # The same order for every row: a token is masked together with those far from it as often as with those near.
    order_T = np.random.default_rng(text_BT.shape[1]).permutation(text_BT.shape[1])
    for part in np.array_split(order_T, PASSES)[:passes]:
        if not len(part):
            continue
        places_BK = np.broadcast_to(np.sort(part), (len(text_BT), len(part)))
        hidden_BK = np.take_along_axis(real_BT & (text_BT > UNK), places_BK, 1)
        found_BK, best_BK = _predicted(opened, text_BT, real_BT, places_BK, hidden_BK)
        rows, columns = np.nonzero(hidden_BK)
        yield rows, places_BK[rows, columns], found_BK[hidden_BK], best_BK[hidden_BK]


def _predicted(
    opened: Opened, text_BT: Ints, real_BT: NDArray[np.bool_], places_BK: Ints, hidden_BK: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Frame windows of text, mask what is hidden at some places of the text, and compute -log p there, and whether the
    true token is the likeliest."""
    sizes = opened.codec.sizes
    true_BK = np.take_along_axis(text_BT, places_BK, 1)
    read_BT = text_BT.copy()
    np.put_along_axis(read_BT, places_BK, np.where(hidden_BK, sizes.mark("mask"), true_BK), 1)
    tokens_BT = np.pad(read_BT, ((0, 0), (1, 1)), constant_values=((0, 0), (sizes.start, sizes.stop)))
    lengths_B = real_BT.sum(1)
    tokens_BT[np.arange(len(text_BT)), lengths_B + 1] = sizes.stop
    mask_BT = np.arange(tokens_BT.shape[1]) < lengths_B[:, None] + 2
    targets_BK = np.where(hidden_BK, true_BK, IGNORE)
    batch = Batch(tokens_BT, targets_BK, mask_BT, places_BK=places_BK + 1, unpadded=bool(mask_BT.all()))
    batch = batch.to(opened.device)
    with torch.inference_mode():
        logits_BKV, _ = opened.model(batch)
        logp_BK = target_logprobs(logits_BKV, batch.targets)
        best_BK = logits_BKV.argmax(-1) == batch.targets
    return -logp_BK.double().cpu().numpy(), best_BK.cpu().numpy()


# Sentences


def score_in_turn(opened: Opened, texts: Iterable[str]) -> Iterator[PseudoLine]:
    """Score texts, each token masked in turn. A token of a long text is read with as many tokens around it as the model
    sees. Texts are read together, those of like length in one batch."""
    window = window_of(opened)
    group: list[tuple[str, Ints, list[str]]] = []
    size = 0
    for text in texts:
        ids, surfaces = opened.codec.tokenizer.pieces(text)
        group.append((text, ids.astype(np.int64), surfaces))
        size += len(ids) * min(len(ids) + 2, window)
        if size >= 8 * _TOGETHER:
            yield from _in_turn(opened, group, window - 2)
            group, size = [], 0
    yield from _in_turn(opened, group, window - 2)


def _in_turn(opened: Opened, group: list[tuple[str, Ints, list[str]]], room: int) -> Iterator[PseudoLine]:
    """Score the texts of a group: a row for each token, the longest rows first."""
    if not group:
        return
    flat = np.concatenate([ids for _, ids, _ in group])
    lengths = np.array([len(ids) for _, ids, _ in group], np.int64)
    begins, own = np.repeat(np.cumsum(lengths) - lengths, lengths), np.repeat(lengths, lengths)
    within = np.arange(len(flat)) - begins
    firsts = np.clip(within - room // 2, 0, np.maximum(own - room, 0))
    own = np.minimum(own, room)
    nats = np.full(len(flat), np.nan)
    order = np.argsort(-own, kind="stable")
    order = order[flat[order] > UNK]
    while len(order):
        rows = max(1, min(_TOGETHER // (own[order[0]] + 2), _CELLS // opened.codec.sizes.vocab_size))
        some, order = order[:rows], order[rows:]
        places_BT = np.arange(own[some[0]])
        real_BT = places_BT < own[some][:, None]
        text_BT = flat[np.where(real_BT, (begins + firsts)[some][:, None] + places_BT, 0)]
        hidden_BK = np.ones((len(some), 1), bool)
        nats[some] = _predicted(opened, text_BT, real_BT, (within - firsts)[some][:, None], hidden_BK)[0][:, 0]
    for (text, _, surfaces), found in zip(group, np.split(-nats, np.cumsum(lengths)[:-1]), strict=True):
        logs = [None if math.isnan(logp) else logp for logp in found.tolist()]
        yield PseudoLine(text, surfaces, logs, float(np.nansum(found)))


# The next sentence


def next_sentence_accuracy(opened: Opened, held_out: HeldOutText, pairs: int = MOST_PAIRS) -> float | None:
    """Compute how often the model tells a chunk that follows from one from elsewhere, on so many pairs of chunks of a
    text, masked as in training; None: the text is too short for pairs."""
    window = window_of(opened)
    config = BatchConfig(size=max(1, _TOGETHER // window), length=window, noise="mask")
    rows = MaskedRows(held_out.store, config, 0, opened.codec.sizes, pairs=True)
    right = count = 0
    for step in range(min(rows.per_epoch, math.ceil(pairs / rows.size))):
        (batch,) = rows.at(step)
        asked = batch.follows_B != IGNORE
        with torch.inference_mode():
            chosen = opened.model.follows(batch.to(opened.device)).argmax(-1).cpu().numpy()
        right, count = right + int((chosen == batch.follows_B)[asked].sum()), count + int(asked.sum())
    return right / count if count else None
