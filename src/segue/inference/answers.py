"""Search the likeliest answers in a text: pairs of places, a begin and an end, over all its windows.

    score(i, j) = p(begin = i) p(end = j),  i <= j < i + longest      within one window (models/finetuned_answerer.py)
    score(none) = the least over the windows of  p(begin = none) p(end = none)

A window without the answer learns that it has none, so that scores of different windows can be compared. There is no
answer if the best one is not likelier than none, by decode.threshold in natural logarithms.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from segue.batches.batch import Batch


class Found(NamedTuple):
    """The likeliest answers of one window."""

    spans: list[tuple[float, int, int]]
    """Log score, first and last place, the likeliest first."""
    none: float
    """The log score of no answer here."""


@torch.inference_mode()
def search(model: Any, batch: Batch, longest: int, most: int, none_last: bool) -> list[Found]:
    """Find the likeliest answers of each row of a batch: of `longest` tokens at the most, and `most` of them."""
    logits_B2T, _ = model(batch)
    logp_B2T = logits_B2T.float().log_softmax(-1)
    last_B = batch.mask_BT.sum(1) - 1
    none_B = last_B if none_last else torch.zeros_like(last_B)
    none_B2 = logp_B2T.gather(2, none_B[:, None, None].expand(-1, 2, 1))[..., 0]
    text_B1T = batch.answers_BT.scatter(1, none_B[:, None], False)[:, None]
    top_BK, places_BK = best_pairs(logp_B2T.masked_fill(~text_B1T, -torch.inf), longest, most)
    width, found = min(longest, logp_B2T.shape[2]), list[Found]()
    for top, places, none in zip(top_BK.tolist(), places_BK.tolist(), none_B2.sum(1).tolist(), strict=True):
        pairs = ((score, *divmod(place, width)) for score, place in zip(top, places, strict=True))
        found.append(Found([(score, i, i + more) for score, i, more in pairs if score > -math.inf], none))
    return found


def best_pairs(logp_B2T: Tensor, longest: int, most: int) -> tuple[Tensor, Tensor]:
    """Return the highest sums of a begin i and an end j, i <= j < i + longest, and i · longest + j - i of each."""
    begin_BT, end_BT = logp_B2T.unbind(1)
    longest = min(longest, begin_BT.shape[1])
    ahead_BT = torch.nn.functional.pad(end_BT, (0, longest - 1), value=-torch.inf)
    sums_BTL = begin_BT[:, :, None] + ahead_BT.unfold(1, longest, 1)
    flat = sums_BTL.flatten(1)
    top = flat.topk(min(most, flat.shape[1]), 1)
    return top.values, top.indices
