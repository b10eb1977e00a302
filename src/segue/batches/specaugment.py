"""SpecAugment (Park et al. 2019): frames of sound are changed at random in training, so that a model hears each example
in many voices and does not rely on any one frame or frequency.

A row of S frames with M mels gets, drawn anew in every epoch:

    speed          S frames become about S · factor (instead of SpecAugment's time warp)
    pauses         up to 10 quiet frames before, and after: recordings are not cut alike
    vocal tract    mel m is read at m · (1 + stretch) + shift: a longer or shorter throat moves all resonances (VTLP,
                   Jaitly and Hinton 2013), as those of speakers who are not in the training data
    recording      as through another microphone in another room: mels are blurred, a smooth curve is added to them, and
                   noise covers what is faint
    masks          two bands of mels and two stretches of time are set to the row's mean

Speed and vocal tract are linear interpolations. After a change of the recording, the row gets the mean and the
deviation that it had. What is drawn for a row follows from seed, epoch and row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.noise import row_draws
from segue.batches.store import Column, Columns, Store
from segue.compiling import njit

SLOWEST, FASTEST = 1.2, 0.85
"""The factors of a row's length: people speak a digit that much slower or faster."""
PAUSE = 10
"""Most quiet frames, each as the quietest of the row, that are put before it and after it."""
STRETCH = 0.08
"""Most that the mel axis is stretched or compressed: vocal tracts of adults differ by about this much."""
SHIFT = 2.0
"""Most mels that a row is shifted by, up or down."""
BLUR = 3
"""Most mels on each side that are blurred together, in half of the rows: harmonics show a voice, not a word."""
TONE = 0.4
"""Most deviations that the first of three cosines over the mels adds or takes away."""
HISS = 1.2
"""Noise covers what is fainter than a level of up to so many deviations below the mean, in HISSES of the rows."""
HISSES = 0.6
_SHARP = np.float32(3)
"""How sharply noise covers what is below its level: logarithms of powers add up almost as their maximum."""
MASKS = 2
"""Masks along each axis, as in the paper's policy LD."""

Ints = NDArray[np.int64]


class SpecAugment:
    """Draws the frames of rows anew. `Rows` calls it for every batch of training."""

    def __init__(self, store: Store, seed: int, share: float, length: int) -> None:
        """`share`: the most of an axis that one mask covers; `length`: where batches cut rows."""
        self.store, self.seed, self.share, self.length = store, seed, share, length

    def expected(self, name: str) -> Ints:
        """Return how many places each row of a column may need in a batch."""
        own = self.store.columns[name].lengths()
        needed: Ints = _length(own, np.array(SLOWEST)) + 2 * PAUSE if name == "source" else own
        return np.minimum(needed, self.length)

    def limit(self, name: str, widths_N: Ints) -> None:
        """Batches are as wide as was expected, which is the most that a row can need: nothing to do."""

    def __call__(self, columns: Columns, epoch: int, rows: Ints) -> Columns:
        """Return the columns of these rows, with their sources drawn for an epoch."""
        own = columns["source"]
        draws_NK = row_draws(self.seed, epoch, rows, 3 + 4 * MASKS + 12)
        spoken = _length(own.lengths(), FASTEST + (SLOWEST - FASTEST) * draws_NK[:, 0])
        pauses_N2 = np.rint(PAUSE * draws_NK[:, -2:]).astype(np.int64)
        lengths = spoken + pauses_N2.sum(1)
        ends = np.cumsum(lengths, dtype=np.int64)
        warps_N2 = (2 * draws_NK[:, 1:3] - 1) * (STRETCH, SHIFT)
        sizes_NA = np.stack([np.full(len(rows), own.width), lengths], 1)  # of the two axes that have masks
        masks_NAMP = _masks(draws_NK[:, 3:-12].reshape(len(rows), 2, MASKS, 2), sizes_NA, self.share)
        out = np.empty((int(lengths.sum()), own.width), np.float32)
        frames = np.ascontiguousarray(own.flat, np.float32).reshape(-1, own.width)
        _draw(
            frames, own.ends, pauses_N2, warps_N2, *_recordings(draws_NK[:, -12:-2], own.width), masks_NAMP, out, ends
        )
        return columns | {"source": Column(out.reshape(-1), ends, own.width)}


def _length(lengths: Ints, factors: NDArray[np.float64]) -> Ints:
    """Frames after a change of speed; a row that has frames keeps one at least."""
    return np.maximum(np.rint(lengths * factors), np.minimum(lengths, 1)).astype(np.int64)


def _masks(draws_NAMP: NDArray[np.float64], sizes_NA: Ints, share: float) -> Ints:
    """Where each mask begins and ends: a width of 0 to `share` of its axis, then any place at which it fits."""
    sizes_NA1 = sizes_NA[..., None]
    widths_NAM = np.floor(draws_NAMP[..., 0] * (np.floor(share * sizes_NA1) + 1)).astype(np.int64)
    begins_NAM = np.floor(draws_NAMP[..., 1] * (sizes_NA1 - widths_NAM + 1)).astype(np.int64)
    return np.stack([begins_NAM, begins_NAM + widths_NAM], -1)


def _recordings(draws_NK: NDArray[np.float64], mels: int) -> tuple[Any, Any, Any]:
    """Draw, for each row, the curve that is added to its mels, the level of the noise (minus infinity: none), and the
    mels on each side that are blurred."""
    places_1M = np.pi * (np.arange(mels) / mels)[None]
    curves_NM = np.zeros((len(draws_NK), mels))
    for wave in range(3):
        height_N1, phase_N1 = 2 * draws_NK[:, wave, None] - 1, 2 * np.pi * draws_NK[:, 3 + wave, None]
        curves_NM += TONE / (1 + wave / 2) * height_N1 * np.cos((wave + 1) * places_1M + phase_N1)
    hisses = (draws_NK[:, 6] < HISSES) & (HISS > 0)
    levels_N = np.where(hisses, HISS * (draws_NK[:, 7] - 1), -np.inf)
    blurs_N = np.where(draws_NK[:, 8] < 0.5, np.ceil(BLUR * draws_NK[:, 9]), 0).astype(np.int64)
    return curves_NM.astype(np.float32), levels_N.astype(np.float32), blurs_N


@njit(cache=True, nogil=True)
def _draw(
    frames: Any,
    ends: Any,
    pauses_N2: Any,
    warps_N2: Any,
    curves_NM: Any,
    levels_N: Any,
    blurs_N: Any,
    masks_NAMP: Any,
    out: Any,
    out_ends: Any,
) -> None:
    """Write every row into `out`, interpolated, recorded anew and masked."""
    mels = frames.shape[1]
    low, high, part = np.empty(mels, np.int64), np.empty(mels, np.int64), np.empty(mels, np.float32)
    begin = out_begin = 0
    for row in range(len(ends)):
        for mel in range(mels):
            low[mel], high[mel], part[mel] = _between(mel * (1 + warps_N2[row, 0]) + warps_N2[row, 1], mels)
        size, spoken = ends[row] - begin, out_ends[row] - out_begin - pauses_N2[row, 0] - pauses_N2[row, 1]
        quiet = _quietest(frames[begin : ends[row]])
        for t in range(out_ends[row] - out_begin):
            moment = t - pauses_N2[row, 0]
            before, after, share = _between((moment + 0.5) * size / spoken - 0.5, size)
            if moment < 0 or moment >= spoken:
                before = after = quiet
            one, two, new = frames[begin + before], frames[begin + after], out[out_begin + t]
            for mel in range(mels):
                first = one[low[mel]] + part[mel] * (one[high[mel]] - one[low[mel]])
                second = two[low[mel]] + part[mel] * (two[high[mel]] - two[low[mel]])
                new[mel] = first + share * (second - first)
        new_row = out[out_begin : out_ends[row]]
        _record(new_row, curves_NM[row], levels_N[row], blurs_N[row])
        _mask(new_row, masks_NAMP[row])
        begin, out_begin = ends[row], out_ends[row]


@njit(nogil=True)
def _between(place: float, size: int) -> tuple[int, int, np.float32]:
    """The two neighbours of a place on an axis, and how far it is from the first to the second; ends are repeated."""
    place = min(max(place, 0.0), size - 1.0)
    before = int(place)
    return before, min(before + 1, size - 1), np.float32(place - before)


@njit(nogil=True)
def _quietest(row_SM: Any) -> int:
    """The number of the frame with the smallest sum."""
    found, least = 0, np.inf
    for t in range(len(row_SM)):
        total = row_SM[t].sum()
        if total < least:
            found, least = t, total
    return found


@njit(nogil=True)
def _record(row_SM: Any, curve_M: Any, level: Any, blur: int) -> None:
    """Blur the mels of a row, add the curve, cover what is below the level with noise, and give the row its mean and
    its deviation again."""
    if not blur and level == -np.inf and not curve_M.any():
        return
    mean, deviation = _moments(row_SM)
    mels = row_SM.shape[1]
    scale = np.float32(1 / ((blur + 1) ** 2 * deviation))  # a triangle of weights has this sum
    padded = np.empty(mels + 2 * blur, np.float32)
    for t in range(len(row_SM)):
        for place in range(mels + 2 * blur):  # loops: numba takes seconds longer to compile slices and sums of arrays
            padded[place] = row_SM[t, min(max(place - blur, 0), mels - 1)]
        for mel in range(mels):
            row_SM[t, mel] = curve_M[mel] - mean / deviation
        for step in range(2 * blur + 1):
            weight = scale * np.float32(blur + 1 - abs(step - blur))
            for mel in range(mels):
                row_SM[t, mel] += weight * padded[mel + step]
        for mel in range(mels):
            above = _SHARP * (row_SM[t, mel] - level)
            if above < 8:  # the logarithm of a sum of powers; farther above it the noise adds nothing
                row_SM[t, mel] = level + np.log1p(np.exp(above)) / _SHARP
    new_mean, new_deviation = _moments(row_SM)
    ratio = deviation / new_deviation
    for t in range(len(row_SM)):
        for mel in range(mels):
            row_SM[t, mel] = (row_SM[t, mel] - new_mean) * ratio + mean


@njit(nogil=True)
def _moments(row_SM: Any) -> tuple[np.float32, np.float32]:
    """The mean and the deviation of a row; of one without a deviation, 1."""
    total = squares = 0.0
    for value in row_SM.flat:
        total += value
    mean = total / max(1, row_SM.size)
    for value in row_SM.flat:
        squares += (value - mean) ** 2
    deviation = np.sqrt(squares / max(1, row_SM.size))
    return np.float32(mean), np.float32(deviation if deviation > 1e-5 else 1.0)


@njit(nogil=True)
def _mask(row_SM: Any, masks_AMP: Any) -> None:
    """Set masked mels and times of a row to its mean."""
    mean, _ = _moments(row_SM)
    for mask in range(masks_AMP.shape[1]):
        row_SM[:, masks_AMP[0, mask, 0] : masks_AMP[0, mask, 1]] = mean
        row_SM[masks_AMP[1, mask, 0] : masks_AMP[1, mask, 1]] = mean
