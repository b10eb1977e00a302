"""Learning word vectors many places at a time, on a GPU: what learning.py does place by place, in batches, by torch.

A batch has P places of the text, in random order. W words are near each place, and R = 1 + K candidates are to be
distinguished: the word itself and its noise words, which are the same for all words near the place. With D numbers in a
vector, the gradients of learning.py for all of them at once are

    skip-gram     score_PWR = v_PWD · u_PRD       g = (1 or 0) - sigmoid(score)       change of v: g u, of u: g v
    cbow          score_PR  = x_PD · u_PRD        x = the mean of v_PWD               each v that is there: g u

and are added to the rows of the two tables. All see the tables as they were before the batch, so that a word which is
there a hundred times would be sent a hundred steps in one direction, and overshoot. So the step of a row is bounded:

    change of a row = rate · min(1, LIMIT / (rate · h)) · sum of its gradients
    h = sum of |g| (|other row|² + FLOOR), over the predictions that the row is part of

The loss as a function of one row bends by p (1 - p) |other row|², p being sigmoid(score), and |g| is no less than
p (1 - p): where many predictions agree the step is one that undoes them about once, and no row can run away.
Rare words, and near the end of training all words, thus learn as they do place by place.

The text is moved to the device once, and read in pieces, beyond which windows do not reach; of each piece everything
that is drawn is drawn in one go, so that the steps have nothing to wait for. Where noise hits the word itself, it is
left out, as in the authors' program, and not drawn anew.

A seed fixes the first vectors and all draws. On a GPU the rows of a batch are added in no fixed order, so that sums of
32-bit floats differ in their last digits, and two runs are alike but not the same; on a CPU they are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.word_vectors.learning import CBOW, SKIPGRAM, STOP, UNK
from segue.word_vectors.noise_words import WHOLE

LIMIT = 2.0
"""The bound of a step: 1 learns a little more slowly; above 2 a step may be too long for what it corrects."""
FLOOR = 0.1
"""Added to the squared length of the other row, which moves too and is nearly 0 at the beginning."""
MOST, LEAST, BATCHES = 8192, 64, 1024
"""Words of the text to a batch, at most and at least; between these an epoch has so many batches."""
PIECE = 1 << 20
"""Read this many tokens at once."""
_LOOKS = 16
"""Compute the loss in every 16th batch only: it is just for the log."""


class Batch(NamedTuple):
    """Some places, and what they learn from."""

    near_PW: Tensor
    """Words around each place; where `there` is 0 any word at all."""
    there_PW: Tensor
    """1 where a word predicts the place, else 0."""
    share_PW: Tensor
    """cbow: how much of each word is in the mean."""
    candidates_PR: Tensor
    """The word of each place, then its noise words."""
    counts_PR: Tensor
    """1, and 0 for noise that is the word itself."""

    def part(self, begin: int, end: int) -> Batch:
        """Return the places from `begin` to `end`."""
        return Batch(*(column[begin:end] for column in self))


class DeviceWork:
    """A training on a device. `chances` and `shape` are those of learning.learn; `rates` the first and the last."""

    def __init__(
        self,
        text: NDArray[Any],
        tables: tuple[NDArray[np.float32], NDArray[np.float32]],
        chances: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.int32]],
        shape: tuple[int, int, bool, int, bool, bool],
        rates: tuple[float, float],
        epochs: int,
        seed: int,
        device: str,
    ) -> None:
        self.text = torch.from_numpy(text.astype(np.int32)).to(device)
        self.tables: tuple[Tensor, ...] = tuple(torch.from_numpy(table.copy()).to(device) for table in tables)
        keep, mark, other = chances
        self.keep, self.mark = (
            torch.from_numpy((chance / WHOLE).astype(np.float32)).to(device) for chance in (keep, mark)
        )
        self.other = torch.from_numpy(other.astype(np.int64)).to(device)
        self.method, self.window, self.dynamic, self.negatives, self.of_centre, self.by_window = shape
        self.rates, self.total, self.device = rates, len(text) * epochs, device
        self.draw = torch.Generator(device).manual_seed(seed)
        self.tokens = 0.0
        """Number of tokens read."""
        self.size = min(MOST, max(LEAST, len(text) // BATCHES))

    def epoch(self, number: int, done: Callable[[float], None], spent: Callable[[], float]) -> float:
        """Train one epoch, or until time is over; return the mean loss of a prediction."""
        loss = torch.zeros(2, dtype=torch.float64, device=self.device)
        for steps, (batch, read) in enumerate(self._batches()):
            if (over := spent()) >= 1:
                break
            self.tokens = (number - 1) * len(self.text) + read
            share = max(over, self.tokens / self.total)
            rate = self.rates[0] - (self.rates[0] - self.rates[1]) * share
            found = step(self.tables, batch, rate, self.method == CBOW, look=steps % _LOOKS == 0)
            if found is not None:
                loss += found
                done(min(1.0, share))
        total, count = loss.tolist()
        return float(total / max(1.0, count))

    def learnt(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the two tables as they are now."""
        inputs, outputs = (table.cpu().numpy() for table in self.tables)
        return inputs, outputs

    def _batches(self) -> Iterator[tuple[Batch, float]]:
        """Yield the batches of an epoch, each with how many tokens have been read after it."""
        for begin in range(0, len(self.text), PIECE):
            piece = self.text[begin : begin + PIECE]
            places = self._piece(piece)
            count = len(places.near_PW)
            for at in range(0, count, self.size):
                end = min(count, at + self.size)
                yield places.part(at, end), begin + len(piece) * end / count

    def _piece(self, text: Tensor) -> Batch:
        """Return all places of a piece in random order, without unknown words and subsampled words."""
        kept = self._rand(len(text)) < self.keep[text]
        real = (kept & (text != UNK) & (text != STOP)).nonzero().squeeze(1)
        words, line = text[real].long(), (text == STOP).cumsum(0)[real]
        size, k = len(words), self.window
        reach = torch.full_like(words, k)
        if self.dynamic:
            reach = torch.randint(1, k + 1, (size,), generator=self.draw, device=self.device)
        centre = torch.randperm(size, generator=self.draw, device=self.device)
        distance = torch.cat([torch.arange(-k, 0), torch.arange(1, k + 1)]).to(self.device)
        at = centre[:, None] + distance
        near = at.clamp(0, max(0, size - 1))
        own_window = self.method == SKIPGRAM and not self.of_centre
        far = reach[near] if own_window else reach[centre][:, None]
        there = ((at == near) & (line[near] == line[centre][:, None]) & (distance.abs() <= far)).float()
        whole = 2.0 * reach[centre] if self.by_window else there.sum(1).clamp(min=1)
        candidates = torch.cat([words[centre][:, None], self._noise(size)], 1)
        counts = (candidates != candidates[:, :1]).float()
        counts[:, 0] = 1
        return Batch(words[near], there, there / whole[:, None], candidates, counts)

    def _noise(self, size: int) -> Tensor:
        """Draw (size, K) noise words by the alias table of noise_words.py."""
        shape = (size, self.negatives)
        place = torch.randint(0, len(self.other), shape, generator=self.draw, device=self.device)
        return torch.where(self._rand(*shape) < self.mark[place], place, self.other[place])

    def _rand(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.draw, device=self.device)


def step(tables: tuple[Tensor, ...], batch: Batch, rate: float, cbow: bool, look: bool) -> Tensor | None:
    """Make one step of gradient descent for all places of a batch; return the sum and number of losses, if asked for.

    X stands for what predicts a place: each of the W words in skip-gram, and in cbow one thing, their mean.
    """
    inputs, outputs = tables
    v_PWD, u_PRD = inputs[batch.near_PW], outputs[batch.candidates_PR]
    x_PXD = torch.bmm(batch.share_PW[:, None], v_PWD) if cbow else v_PWD
    real_PX = batch.there_PW.amax(1, keepdim=True) if cbow else batch.there_PW
    weight_PXR = real_PX[:, :, None] * batch.counts_PR[:, None]
    score_PXR = torch.bmm(x_PXD, u_PRD.transpose(1, 2))
    g_PXR = -torch.sigmoid(score_PXR)
    g_PXR[:, :, 0] += 1
    g_PXR *= weight_PXR
    size_PXR = g_PXR.abs()
    bend_PX = torch.bmm(size_PXR, _squares(u_PRD)[:, :, None]).squeeze(2)
    bend_PR = torch.bmm(_squares(x_PXD)[:, None], size_PXR).squeeze(1)
    # In cbow each word that is there gets the whole gradient of the mean.
    part_PW = batch.there_PW * _part(batch.near_PW, batch.there_PW * bend_PX, len(inputs), rate)
    part_PR = _part(batch.candidates_PR, bend_PR, len(outputs), rate)
    change_PRD = torch.bmm((g_PXR * part_PR[:, None]).transpose(1, 2), x_PXD)
    if cbow:
        change_PWD = part_PW[:, :, None] * torch.bmm(g_PXR, u_PRD)
    else:
        change_PWD = torch.bmm(part_PW[:, :, None] * g_PXR, u_PRD)
    _add(inputs, batch.near_PW, change_PWD, rate)
    _add(outputs, batch.candidates_PR, change_PRD, rate)
    return _loss(score_PXR, weight_PXR, real_PX) if look else None


def _squares(rows: Tensor) -> Tensor:
    """|row|² + FLOOR of each row."""
    return (rows * rows).sum(-1) + FLOOR


def _part(ids: Tensor, bend: Tensor, rows: int, rate: float) -> Tensor:
    """Return the share of its gradient that each row gets: all, or less if its loss has a large curvature."""
    h = torch.zeros(rows, device=ids.device).index_add_(0, ids.flatten(), bend.flatten())
    part: Tensor = LIMIT / (rate * h).clamp(min=LIMIT)
    return part[ids]


def _add(table: Tensor, ids: Tensor, change: Tensor, rate: float) -> None:
    table.index_add_(0, ids.flatten(), change.flatten(0, 1), alpha=rate)


def _loss(score_PXR: Tensor, weight_PXR: Tensor, real_PX: Tensor) -> Tensor:
    """(sum, count): -log sigmoid(s) is softplus(-s) for the word, softplus(s) for noise."""
    signed_PXR = torch.cat([-score_PXR[:, :, :1], score_PXR[:, :, 1:]], 2)
    losses = torch.nn.functional.softplus(signed_PXR) * weight_PXR
    return torch.stack([losses.sum(dtype=torch.float64), real_PX.sum(dtype=torch.float64)])
