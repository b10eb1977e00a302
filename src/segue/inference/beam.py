"""Beam search: at every step the `beam` best beginnings of each text are kept, and those that end are put aside.

    score(y)    = log p(y | x) / ((5 + |y|) / 6)^alpha + coverage(y)        (Wu et al. 2016; STOP is counted in |y|)
    coverage(y) = beta · sum over the places s of the source of log min(attended_s, 1)

alpha is decode.length_penalty, beta decode.coverage_penalty, attended_s what place s has got of the attention of all
steps. With both 0 the score is log p(y | x).

At each step the best 2 * beam continuations of a row are ranked by log p. A STOP among the first `beam` of them ends a
text, which then has its score; the best `beam` others live on. A row is done when no text that lives can get a better
score than the n-th best that has ended (n is decode.n_best): log p only falls, so that the best hope of a text is its
log p now, at the greatest length. With a penalty that hope hardly ever ends a search, and a row is done too when `beam`
texts have ended. So, with alpha = beta = 0, a search finds what that of `transformers` does with length_penalty=0 and
early_stopping=False; a penalty ends it as early_stopping=True does. Texts that have ended are preferred: only
where fewer than n have ended at the length limit are open ones given.

`Beams.step` takes the logits and returns the next tokens. It asks nothing of the device and always has the same shapes,
so that a CUDA graph can record it: whether rows are done is read from outside, every few steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from segue.errors import SegueError
from segue.inference.decode_settings import Config
from segue.layers.best_ids import best_ids

if TYPE_CHECKING:
    from segue.inference.decode import Rows

NONE = -1
"""In place of an id: nothing is written here."""
_LOOK = 8
"""Steps on a GPU between two looks whether rows are done."""
_DROP = 8
"""Rows that are done are dropped once they are one in this many."""


class Generated(NamedTuple):
    """One written text, without its prompt."""

    ids: list[int]
    """The tokens, without STOP."""
    logprob: float
    """Sum of natural log p by the model's own distribution (no temperature), that of a reached STOP included."""
    stopped: bool
    """True if the model ended the text itself, or who watches did; False if a length limit or a dead end did."""
    dead_end: bool = False
    """True if no allowed token had any probability after this text."""
    score: float = 0.0
    """By which a beam ranks its texts; 0 without one."""


class Step(NamedTuple):
    """What comes next of B = R * K slots (slot = row * K + beam)."""

    ids_B: Tensor
    """The token that each slot reads."""
    slots_B: Tensor
    """The slot that each one goes on from, which is of the same row."""

    def select(self, rows: Tensor, width: int) -> Step:
        """Return the slots of these rows alone."""
        ids_B, slots_B = (part.view(-1, width)[rows].flatten() for part in self)
        return Step(ids_B, slots_B)


class Beams:
    """The texts of R rows, K of each, and the best K that have ended; T places for each."""

    def __init__(
        self, config: Config, stop: int, forbid: Tensor, limit_R: Tensor, prompt_RP: Tensor, most: int
    ) -> None:
        """`limit_R`: the most tokens of each row, none above `most`. `prompt_RP`: what stands before them, NONE on its
        left, which counts for repeated n-grams."""
        self.config, self.stop, self.forbid, self.limit_R = config, stop, forbid, limit_R
        self.best = best_ids
        """Finds the best ids of each row: plain, or by kernels of a GPU."""
        rows, width, device = len(limit_R), config.beam, limit_R.device
        first = prompt_RP.shape[1]
        places = first + most
        self.score_RK = torch.full((rows, width), -math.inf, dtype=torch.float64, device=device)
        self.score_RK[:, 0] = 0.0  # all beams of a row are the same text at first: only one may go on
        self.text_RKT = torch.full((rows, width, places), NONE, device=device)
        self.text_RKT[:, :, :first] = prompt_RP[:, None]
        self.prompt = first
        self.column = torch.full((1,), first, device=device)
        """The place that is written next."""
        self.length_R = torch.zeros_like(limit_R)
        """Tokens of a living text."""
        self.done_R = torch.zeros(rows, dtype=torch.bool, device=device)
        self.dead_R = torch.zeros(rows, dtype=torch.bool, device=device)
        """Whether nothing could follow."""
        self.broken = torch.zeros((), dtype=torch.bool, device=device)
        """Whether logits were NaN or +inf."""
        self.ended_RK = torch.full_like(self.score_RK, -math.inf)
        """The scores of texts that have ended, best first; -inf: there is none."""
        self.ended_logp_RK = self.ended_RK.clone()
        self.ended_length_RK = torch.zeros((rows, width), dtype=torch.long, device=device)
        self.ended_text_RKT = self.text_RKT.clone()

    def step(self, logits_BV: Tensor, coverage_RK: Tensor | None = None) -> Step:
        """Rank the continuations of every text, and go on with the best."""
        score_RN, parent_RN, id_RN = self._candidates(logits_BV)
        stop_RN = id_RN == self.stop
        self._end(score_RN, parent_RN, stop_RN, coverage_RK)
        # Each beam has one STOP, so at least K of the 2K candidates are none; these come first here.
        order_RK = stop_RN.int().argsort(dim=1, stable=True)[:, : self.config.beam]
        score_RK, parent_RK, id_RK = (x_RN.gather(1, order_RK) for x_RN in (score_RN, parent_RN, id_RN))
        self._grow(score_RK, parent_RK, id_RK)
        row_R1 = torch.arange(len(parent_RK), device=parent_RK.device)[:, None]
        return Step(id_RK.flatten(), (row_R1 * self.config.beam + parent_RK).flatten())

    def _candidates(self, logits_BV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log p, parent beam and id of the best 2K continuations of each row, best first."""
        (rows, width), vocab_size = self.score_RK.shape, logits_BV.shape[1]
        cost_BV = self._repeats(vocab_size, logits_BV.dtype) if self.config.no_repeat else None
        # Of one beam at most K can live on, and one is STOP.
        logp_BN, id_BN = self.best(logits_BV, min(width + 1, vocab_size), self.forbid, cost_BV)
        self.broken |= logp_BN.isnan().any()
        total_RN = (self.score_RK.view(-1, 1) + logp_BN).view(rows, -1)
        score_RN, place_RN = total_RN.topk(min(2 * width, total_RN.shape[1]))
        return score_RN, place_RN // logp_BN.shape[1], id_BN.view(rows, -1).gather(1, place_RN)

    def _repeats(self, vocab_size: int, dtype: torch.dtype) -> Tensor:
        """-inf at the ids that would repeat an n-gram of the text, else 0."""
        text_BT, size = self.text_RKT.flatten(0, 1), self.config.no_repeat
        before = torch.arange(1 - size, 0, device=text_BT.device) + self.column
        last_BN = text_BT.index_select(1, before.clamp(min=0)).masked_fill(before < 0, NONE)
        return repeats(text_BT, last_BN, vocab_size, dtype)

    def _end(self, score_RN: Tensor, parent_RN: Tensor, stop_RN: Tensor, coverage_RK: Tensor | None) -> None:
        """Put aside the texts whose STOP is among the first K candidates, if they are among the best K."""
        width = self.config.beam
        logp_RK, parent_RK = score_RN[:, :width], parent_RN[:, :width]
        ends_RK = stop_RN[:, :width] & ~self.done_R[:, None] & (logp_RK > -math.inf)
        if not self.config.empty:
            ends_RK = ends_RK & (self.length_R > 0)[:, None]
        if ends_RK.device.type == "cpu" and not ends_RK.any():
            return
        score_RK = logp_RK / self._norm(self.length_R + 1)[:, None]
        if coverage_RK is not None:
            score_RK = score_RK + coverage_RK.gather(1, parent_RK)
        every_RN = torch.cat([self.ended_RK, score_RK.masked_fill(~ends_RK, -math.inf)], 1)
        best_RK, place_RK = every_RN.topk(width)
        length_RK = self.length_R[:, None].expand(-1, width)
        self.ended_RK.copy_(best_RK)
        self.ended_logp_RK.copy_(torch.cat([self.ended_logp_RK, logp_RK], 1).gather(1, place_RK))
        self.ended_length_RK.copy_(torch.cat([self.ended_length_RK, length_RK], 1).gather(1, place_RK))
        text_RNT = torch.cat([self.ended_text_RKT, _at(self.text_RKT, parent_RK)], 1)
        self.ended_text_RKT.copy_(_at(text_RNT, place_RK))

    def _grow(self, score_RK: Tensor, parent_RK: Tensor, id_RK: Tensor) -> None:
        """Go on with these; rows that are done, or cannot go on, stay as they are."""
        config = self.config
        lives_R = score_RK.amax(1) > -math.inf
        self.dead_R |= ~self.done_R & ~lives_R
        going_R = ~self.done_R & lives_R
        self.score_RK.copy_(torch.where(going_R[:, None], score_RK, self.score_RK))
        text_RKT = torch.where(going_R[:, None, None], _at(self.text_RKT, parent_RK), self.text_RKT)
        text_RKT.index_copy_(2, self.column, id_RK.masked_fill(~going_R[:, None], NONE)[:, :, None])
        self.text_RKT.copy_(text_RKT)
        self.column.add_(1)
        self.length_R.add_(going_R)
        hope_R = self.score_RK.amax(1) / self._norm(self.limit_R)
        self.done_R |= ~lives_R | (self.length_R >= self.limit_R) | (hope_R <= self.ended_RK[:, config.n_best - 1])
        if config.length_penalty or config.coverage_penalty:
            self.done_R |= self.ended_RK[:, -1] > -math.inf

    def _norm(self, length_R: Tensor) -> Tensor:
        """((5 + length) / 6)^alpha."""
        return ((5 + length_R.double()) / 6) ** self.config.length_penalty

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Rows, width, places of a text, and of those the places of its prompt."""
        rows, width, places = self.text_RKT.shape
        return rows, width, places, self.prompt

    def copy(self) -> Beams:
        """The same in memory of its own."""
        own = object.__new__(Beams)
        for name, value in vars(self).items():
            setattr(own, name, value.clone() if isinstance(value, Tensor) else value)
        return own

    def take(self, other: Beams) -> None:
        """Go on with other texts of the same shape, in this memory."""
        for own, new in zip(vars(self).values(), vars(other).values(), strict=True):
            if isinstance(own, Tensor):
                own.copy_(new)

    def select(self, rows: Tensor) -> Beams:
        """Return these rows alone."""
        some = object.__new__(Beams)
        for name, value in vars(self).items():
            by_row = isinstance(value, Tensor) and name.rpartition("_")[2].startswith("R")
            setattr(some, name, value.index_select(0, rows) if by_row else value)
        return some

    def found(self, rows: Sequence[int]) -> list[list[Generated]]:
        """The n best texts of each of these rows: those that have ended, best first, and if they are too few, open
        ones."""
        some = self.select(torch.tensor(rows, device=self.done_R.device))
        length_RK = some.length_R[:, None].expand_as(some.score_RK)
        score_RK = some.score_RK / some._norm(some.length_R)[:, None]
        ended = some._texts(some.ended_text_RKT, some.ended_length_RK, some.ended_logp_RK, some.ended_RK, True)
        going = some._texts(some.text_RKT, length_RK, some.score_RK, score_RK, False)
        every = zip(ended, going, some.dead_R.tolist(), strict=True)
        found = [[*first, *(text._replace(dead_end=dead) for text in rest)] for first, rest, dead in every]
        return [texts[: self.config.n_best] for texts in found]

    def _texts(
        self, text_RKT: Tensor, length_RK: Tensor, logp_RK: Tensor, score_RK: Tensor, stopped: bool
    ) -> list[list[Generated]]:
        """The texts of each row that have a score, best first as they stand."""
        columns = (text_RKT, length_RK, logp_RK, score_RK)
        return [
            [
                Generated(ids[self.prompt : self.prompt + length], logp, stopped, score=score)
                for ids, length, logp, score in zip(*row, strict=True)
                if score > -math.inf
            ]
            for row in zip(*(column.tolist() for column in columns), strict=True)
        ]


def _at(text_RNT: Tensor, place_RK: Tensor) -> Tensor:
    """The texts at these places of each row."""
    return text_RNT.gather(1, place_RK[:, :, None].expand(-1, -1, text_RNT.shape[2]))


def repeats(text_BT: Tensor, last_BN: Tensor, vocab_size: int, dtype: torch.dtype) -> Tensor:
    """-inf at the ids that would end an n-gram which the text has, given its last n - 1 tokens; else 0. Places without
    a token have NONE."""
    found_BV = torch.zeros(len(text_BT), vocab_size, dtype=dtype, device=text_BT.device)
    size = last_BN.shape[1] + 1
    if text_BT.shape[1] < size:
        return found_BV
    ngram_BTN = text_BT.unfold(1, size, 1)
    same_BT = (ngram_BTN[:, :, :-1] == last_BN[:, None]).all(-1) & (ngram_BTN[:, :, -1] != NONE)
    cost_BT = torch.zeros_like(same_BT, dtype=dtype).masked_fill(same_BT, -math.inf)
    return found_BV.scatter_add_(1, ngram_BTN[:, :, -1].clamp(min=0), cost_BT)


def coverage(attended_BS: Tensor, mask_RS: Tensor, beta: float) -> Tensor:
    """beta · sum over real places of log min(attended, 1), of each slot."""
    # A place that got nothing costs much, but not everything: a weight may be too small for a float.
    cost_BS = attended_BS.double().clamp(torch.finfo(torch.float32).tiny, 1.0).log()
    cost_RKS = cost_BS.view(len(mask_RS), -1, cost_BS.shape[1])
    return beta * cost_RKS.masked_fill(~mask_RS[:, None], 0.0).sum(-1)


def begin(rows: Rows, config: Config, most: int) -> Beams:
    """The beams of all rows, with nothing written, and room for so many tokens."""
    limit_R = torch.tensor(rows.limits, device=rows.device)
    prompt_RP = limit_R.new_zeros(len(limit_R), 0) if rows.text_BT is None else rows.text_BT
    rows.spread(config.beam)
    return Beams(config, rows.sizes.stop, rows.forbid, limit_R, prompt_RP, most)


def search(rows: Rows, config: Config) -> list[list[Generated]]:
    """The best texts of each row, best first, by steps over all rows; rows that are done are dropped now and then."""
    device, limits = rows.device, rows.limits
    beams = begin(rows, config, max(limits))
    live, found = list(range(len(limits))), dict[int, list[Generated]]()
    for written in range(1, max(limits) + 1):
        step = beams.step(rows.logits_BV, rows.coverage())
        same_text = True
        if str(device) == "cpu" or written % _LOOK == 0 or written == max(limits):
            going, done = divided(beams)
            if not going or len(done) * _DROP >= len(live):
                found |= zip((live[place] for place in done), beams.found(done), strict=True)
                if not going:
                    break
                keep = torch.tensor(going, device=device)
                step, beams, live = step.select(keep, config.beam), beams.select(keep), [live[i] for i in going]
                same_text = False
        rows.advance(*step, same_text=same_text)
    return [found[row] for row in range(len(limits))]


def divided(beams: Beams) -> tuple[list[int], list[int]]:
    """The places of rows that go on, and of those that are done."""
    if bool(beams.broken):
        raise broken()
    done = beams.done_R.tolist()
    return [i for i, one in enumerate(done) if not one], [i for i, one in enumerate(done) if one]


def broken() -> SegueError:
    return SegueError("The model's logits hold NaN or +inf: its weights are broken. Load an earlier checkpoint.")
