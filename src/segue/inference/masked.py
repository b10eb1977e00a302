"""Score a text by a masked language model: in ceil(1 / share) passes every token is masked exactly once.

STOP and UNK are never masked: they are given, and their bytes are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.encode import HeldOutText
from segue.inference.opened import Opened
from segue.inference.score import BLOCK, perplexity_of
from segue.tokens.file_format import UNK

SHARE = 0.15
_TOGETHER = 1 << 13
"""Tokens of one batch."""


class MaskedScored(NamedTuple):
    """The score of a text, each token masked once."""

    pieces_NK: NDArray[np.float64]
    """Bits and bytes of each block of 2,048 bytes."""
    nats: float
    tokens: int
    right: int
    """Tokens that were the likeliest."""

    @property
    def bytes(self) -> int:
        return int(self.pieces_NK[:, 1].sum())

    @property
    def bits_per_byte(self) -> float:
        return float(self.pieces_NK[:, 0].sum() / max(1.0, self.pieces_NK[:, 1].sum()))

    @property
    def perplexity(self) -> float:
        return perplexity_of(self.nats / max(1, self.tokens))


def score_masked(
    opened: Opened, held_out: HeldOutText, share: float = SHARE, done: Callable[[float], None] = lambda share: None
) -> MaskedScored:
    """Mask every token of a text once, in windows as long as the model sees."""
    sizes, ids = opened.codec.sizes, np.asarray(held_out.store.tokens).astype(np.int64)
    room, passes = opened.model.window - 2, math.ceil(1 / share)
    rows = max(1, math.ceil(len(ids) / room))
    text_RT = np.full((rows, room + 2), sizes.stop, np.int64)
    text_RT[:, 0] = sizes.start
    flat = np.full(rows * room, sizes.stop, np.int64)
    flat[: len(ids)] = ids
    text_RT[:, 1:-1] = flat.reshape(rows, room)
    nats_RT, right = np.zeros((rows, room)), 0
    step = max(1, _TOGETHER // (room + 2))
    for first in range(0, rows, step):
        right += _score_rows(opened, text_RT[first : first + step], passes, nats_RT[first : first + step])
        done(min(1.0, (first + step) / rows))
    nats = nats_RT.reshape(-1)[: len(ids)]
    hidden = ids > UNK
    sizes_N = np.where(hidden, np.asarray(held_out.store.columns["bytes"].flat, np.float64), 0.0)
    blocks = ((np.cumsum(sizes_N) - sizes_N) // BLOCK).astype(np.int64)
    pieces = [np.bincount(blocks, weights) for weights in (nats / math.log(2), sizes_N)]
    return MaskedScored(np.stack(pieces, 1), float(nats.sum()), int(hidden.sum()), right)


def _score_rows(opened: Opened, text_BT: NDArray[np.int64], passes: int, nats_BT: NDArray[np.float64]) -> int:
    """Write -log p of every token of some rows; return how many were the likeliest."""
    sizes, right = opened.codec.sizes, 0
    # The same order for every row: a token is masked together with those that are far from it as often as near.
    order_T = np.random.default_rng(text_BT.shape[1]).permutation(text_BT.shape[1] - 2)
    for part in np.array_split(order_T, passes):
        if not len(part):
            continue
        places_BK = np.broadcast_to(np.sort(part) + 1, (len(text_BT), len(part)))
        true_BK = np.take_along_axis(text_BT, places_BK, 1)
        hidden_BK = true_BK > UNK
        read_BT = text_BT.copy()
        np.put_along_axis(read_BT, places_BK, np.where(hidden_BK, sizes.mark("mask"), true_BK), 1)
        targets_BK = np.where(hidden_BK, true_BK, IGNORE)
        mask_BT = np.ones(text_BT.shape, bool)
        batch = Batch(read_BT, targets_BK, mask_BT, places_BK=np.ascontiguousarray(places_BK), unpadded=True)
        with torch.inference_mode():
            logits_BKV, _ = opened.model(batch.to(opened.device))
            logp = logits_BKV.float().log_softmax(-1)
            found = logp.gather(-1, torch.from_numpy(true_BK).to(logp.device)[..., None])[..., 0]
            best = logp.argmax(-1).cpu().numpy()
        nats_BT[:, np.sort(part)] = np.where(hidden_BK, -found.double().cpu().numpy(), 0.0)
        right += int((best == true_BK)[hidden_BK].sum())
    return right
