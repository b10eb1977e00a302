"""Teacher forcing against reading itself: what a model predicts after the reference's tokens, and after its own.

    teacher forcing    argmax p(y_t | x, y*_1 … y*_{t-1})      it reads the reference y*, as in training
    reading itself     argmax p(y_t | x, y_1 … y_{t-1})        it reads its own y, as in use (greedy)

Both are the same up to the first token that differs from the reference; from there on they read different texts.
Neither predicts UNK, which is never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.collate import mask_of, pad
from segue.inference.alignment import pair_batch
from segue.inference.decode_settings import Config as Decode
from segue.inference.opened import Opened

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
_ROWS = 64


class Steps(NamedTuple):
    """A token a step, the STOP at the end with them, and the probability that the model gives each there."""

    ids: Ids
    p: Floats


class BothRuns(NamedTuple):
    """The two runs over one source, beside the reference that the first of them reads."""

    reference: Steps
    forced: Steps
    free: Steps

    @property
    def parted(self) -> int | None:
        """The first step, counted from 0, whose token is not the reference's when it reads itself; None: there is
        none."""
        a, b = self.reference.ids, self.free.ids
        same = min(len(a), len(b))
        differ = np.flatnonzero(a[:same] != b[:same])
        return int(differ[0]) if len(differ) else same if len(a) != len(b) else None


def both_runs(opened: Opened, pairs: Iterable[tuple[str, str]], most: int = 0) -> Iterator[BothRuns]:
    """Run a model both ways over each source and its reference. It writes at most `most` tokens itself (0: 10 more
    than the longest reference of the batch), and no more than it sees at once."""
    rows = iter(pairs)
    while group := list(islice(rows, _ROWS)):
        batch = pair_batch(opened, group)
        forced = _steps(opened, batch, None)
        reference = _steps(opened, batch, [row[mask] for row, mask in zip(batch.targets, batch.mask_BT, strict=True)])
        longest = most or batch.tokens_BT.shape[1] + 10
        written = _greedy(opened, batch, min(longest, opened.model.window or longest))
        start = opened.codec.sizes.start
        inputs = [np.array([start, *ids[:-1]], np.int64) for ids in written]
        own = replace(batch, tokens_BT=pad(inputs), targets=pad(written), mask_BT=mask_of(inputs))
        for steps in zip(reference, forced, _steps(opened, own, written), strict=True):
            yield BothRuns(*steps)


def _steps(opened: Opened, batch: Batch, rows: list[Ids] | None) -> list[Steps]:
    """The probabilities of these tokens where the model reads a batch; None: of the likeliest ones but UNK."""
    import torch

    opened.model.eval()
    with torch.inference_mode():
        logits_BTV, _ = opened.model(batch.to(opened.device))
        p_BTV = logits_BTV.double().softmax(-1)
        if rows is None:
            allowed_V = torch.arange(p_BTV.shape[-1], device=p_BTV.device) != opened.codec.sizes.unk
            ids_BT = (p_BTV * allowed_V).argmax(-1)
        else:
            ids_BT = torch.from_numpy(pad(rows)).to(p_BTV.device)
        p_BT = p_BTV.gather(-1, ids_BT[..., None])[..., 0].cpu().numpy()
    masks = zip(ids_BT.cpu().numpy(), p_BT, batch.mask_BT, strict=True)
    return [Steps(ids[mask], p[mask]) for ids, p, mask in masks]


def _greedy(opened: Opened, batch: Batch, most: int) -> list[Ids]:
    """What the model writes itself for each source, with the STOP where it comes to one."""
    from segue.inference.decode import generate

    decode, sizes = Decode(beam=1, max_tokens=most, length_ratio=0), opened.codec.sizes
    starts: list[list[int]] = [[] for _ in batch.source]
    source, mask = batch.source, batch.source_mask
    texts = generate(opened.model, starts, sizes, decode, source, mask, opened.device, forbid=opened.model.unwritten)
    return [np.array([*text.ids, *([sizes.stop] if text.stopped else [])], np.int64) for text in texts]
