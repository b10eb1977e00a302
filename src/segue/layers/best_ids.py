"""The likeliest next ids of each row with their log p: log-softmax and top-k, on a CPU in one pass of compiled loops.

A beam search asks for some ten ids of each row. torch's log_softmax writes the log p of the whole vocabulary, and its
topk moves all of it about; here a row is read twice, for its best ids and for the sum of exp.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segue.compiling import njit
from segue.layers.row_threads import by_rows

_BLOCK = 256
"""Logits that are compared with the worst of the best so far, before any of them is looked at by itself."""
_LEAST = 4
"""Rows that are worth a thread of their own."""
_WORTH = 1 << 16
"""Logits that are worth compiled loops."""

# Sums may be taken in any order; NaN and infinity stay what they are.
_loop = njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


def best_ids(logits_BV: Tensor, count: int, forbid: Tensor, cost_BV: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """log p and ids_BN of the `count` likeliest ids of each row, best first; log p is -inf for what is forbidden or has
    probability 0, and NaN in a row with NaN or +inf. `cost_BV` is added to log p. Of equally likely ids any may come
    first; the loops take the highest, so that STOP, the lowest, does not end a text for no reason."""
    plain = logits_BV.device.type == "cpu" and logits_BV.dtype == torch.float32 and cost_BV is None
    if plain and logits_BV.numel() >= _WORTH:
        return _by_loops(logits_BV, count, forbid)
    total_B1 = logits_BV.logsumexp(-1, keepdim=True)
    total_B1 = total_B1.masked_fill(total_B1 == math.inf, math.nan).masked_fill(total_B1 == -math.inf, 0.0)
    allowed_BV = logits_BV if cost_BV is None else logits_BV + cost_BV
    allowed_BV = allowed_BV.index_fill(-1, forbid, -math.inf) if len(forbid) else allowed_BV
    best_BN, ids_BN = allowed_BV.topk(count)
    return best_BN - total_B1, ids_BN


def _by_loops(logits_BV: Tensor, count: int, forbid: Tensor) -> tuple[Tensor, Tensor]:
    rows = len(logits_BV)
    logp_BN, ids_BN = np.empty((rows, count), np.float32), np.empty((rows, count), np.int64)
    logits, forbidden = logits_BV.contiguous().numpy(), forbid.numpy()
    threads = min(torch.get_num_threads(), rows // _LEAST)
    by_rows(lambda part: _best(logits[part], forbidden, logp_BN[part], ids_BN[part]), rows, threads)
    return torch.from_numpy(logp_BN), torch.from_numpy(ids_BN)


@_loop
def _best(logits_BV: Any, forbid: Any, logp_BN: Any, ids_BN: Any) -> None:
    for b in range(len(logits_BV)):
        most = _find(logits_BV[b], forbid, logp_BN[b], ids_BN[b])
        # Where all are -inf the sum is NaN; so it is where one is NaN or +inf, and that is to be seen.
        total = _sum_exp(logits_BV[b], most)
        shift = most + np.log(total) if most > -np.inf or not _all_impossible(logits_BV[b]) else np.float32(0)
        for n in range(ids_BN.shape[1]):
            logp_BN[b, n] -= shift


@_loop
def _find(logits_V: Any, forbid: Any, best_N: Any, ids_N: Any) -> Any:
    """Write the best logits and their ids, best first; return the greatest of all logits."""
    last, most = len(best_N) - 1, np.float32(-np.inf)
    best_N[:] = -np.inf
    ids_N[:] = 0
    for begin in range(0, len(logits_V), _BLOCK):
        block = logits_V[begin : begin + _BLOCK]
        if _any_reach(block, best_N[last]):
            for i in range(len(block)):
                most = max(most, block[i])
                if block[i] >= best_N[last] and not _among(begin + i, forbid):
                    _insert(block[i], begin + i, best_N, ids_N)
    return most


@_loop
def _any_reach(block: Any, worst: Any) -> Any:
    """Whether one is as great, or greater. Count in floats: the compiler takes many at once, which it does not where a
    loop may end early."""
    count = np.float32(0)
    for i in range(len(block)):
        count += np.float32(1) if block[i] >= worst else np.float32(0)
    return count > 0


@_loop
def _all_impossible(logits_V: Any) -> bool:
    for logit in logits_V:  # noqa: SIM110 (numba has no generators in `all`)
        if logit != -np.inf:
            return False
    return True


@_loop
def _among(number: int, some: Any) -> bool:
    for one in some:  # noqa: SIM110 (numba has no generators in `any`)
        if one == number:
            return True
    return False


@_loop
def _insert(logit: Any, number: int, best_N: Any, ids_N: Any) -> None:
    """Put an id in its place among the best; the last of them goes."""
    place = len(best_N) - 1
    while place > 0 and logit >= best_N[place - 1]:
        best_N[place], ids_N[place] = best_N[place - 1], ids_N[place - 1]
        place -= 1
    best_N[place], ids_N[place] = logit, number


@_loop
def _sum_exp(logits_V: Any, most: Any) -> Any:
    total = np.float32(0)
    for i in range(len(logits_V)):
        total += exp(logits_V[i] - most)
    return total


@njit(inline="always")
def exp(x: Any) -> Any:
    """e^x to 1e-7 of it, for x at most 0: the compiler takes many at once, where it would call np.exp for each.

    x = n ln 2 + r with a whole n and |r| <= ln 2 / 2: e^x = 2^n e^r, and e^r is a polynomial (Cephes library).
    """
    x = np.float32(-87) if x < np.float32(-87) else x  # e^-88 is no normal number; NaN stays NaN
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    power = np.int32((np.int32(n) + 127) << 23).view(np.float32)  # the bits of 2^n
    return (p * r * r + r + np.float32(1)) * power
