"""Writing text with any model that steps: greedy, sampling (temperature, top-k, top-p) and beam search.

Only `start`, `step` and `State.select` are used, so an n-gram, a recurrent network, a Transformer
and an encoder-decoder are all decoded here, by the same lines.

    greedy        the likeliest id; the lowest id where two are equally likely
    temperature   p_i^(1/T) / sum over j of p_j^(1/T)
    top-k         of these, the k likeliest
    top-p         of these, the fewest that together reach p: the id that crosses p is kept (Holtzman 2020)
    beam          the text of the highest  log p(text) / ((5 + length) / 6)^alpha  (Wu 2016), STOP counted

A text begins with the start id and the prompt, fed in one step. Row i draws from the generator of
(seed, i), one number a token: its text does not depend on how many rows run beside it, nor on
`max_tokens`. A beam prefers texts that end: only if none has ended in time is an unfinished one given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from segue.errors import InputError, SegueError
from segue.inference.settings import Config
from segue.models.base import Sizes


class Generated(NamedTuple):
    """One written text, without its prompt."""

    ids: list[int]
    """The tokens, without STOP."""
    logprob: float
    """Sum of natural log p by the model's own distribution (no temperature), that of a reached STOP included."""
    stopped: bool
    """True if the model ended the text itself, False if `max_tokens` did."""


# `source` and `source_mask` are (rows, S), as in a Batch; `forbid` are ids that are never written.


@torch.inference_mode()
def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    sizes: Sizes,
    config: Config,
    source: Any = None,
    source_mask: Any = None,
    device: Any = "cpu",
    forbid: Sequence[int] = (),
) -> list[Generated]:
    """One text for each prompt (which may be empty)."""
    if not prompts:
        return []
    rows = _Rows(model, sizes, device, forbid)
    rows.begin(prompts, config.max_tokens, source, source_mask)
    if config.beam > 1:
        return _search(rows, config)
    texts = [Generated([], 0.0, False) for _ in prompts]
    for drawn in _sample(rows, config):
        for row, token, logp in drawn:
            text = texts[row]
            if token != sizes.stop:
                text.ids.append(token)
            texts[row] = Generated(text.ids, text.logprob + logp, token == sizes.stop)
    return texts


@torch.inference_mode()
def stream(
    model: Any,
    prompt: Sequence[int],
    sizes: Sizes,
    config: Config,
    source: Any = None,
    source_mask: Any = None,
    device: Any = "cpu",
    forbid: Sequence[int] = (),
) -> Iterator[int]:
    """The ids of one text as they are written: those of the first row of `generate`. A beam gives them at its end."""
    if config.beam > 1:
        yield from generate(model, [prompt], sizes, config, source, source_mask, device, forbid)[0].ids
        return
    rows = _Rows(model, sizes, device, forbid)
    rows.begin([prompt], config.max_tokens, source, source_mask)
    for ((_, token, _),) in _sample(rows, config):
        if token != sizes.stop:
            yield token


class _Rows:
    """The texts that are still being written: the model's state of each, and log p of each one's next token."""

    def __init__(self, model: Any, sizes: Sizes, device: Any, forbid: Sequence[int]) -> None:
        self.model, self.sizes, self.device = model, sizes, device
        self.forbid = torch.tensor(list(forbid), dtype=torch.long, device=device)
        self.state: Any = None
        self.logp_BV: Tensor
        """By the model's own distribution; -inf where the probability is 0, and for a row where all are."""

    def begin(self, prompts: Sequence[Sequence[int]], max_tokens: int, source: Any, source_mask: Any) -> None:
        """Feed the start id and the prompts, padded on the right, in one step."""
        longest = 1 + max(len(prompt) for prompt in prompts)
        tokens = np.zeros((len(prompts), longest), dtype=np.int64)
        mask = np.zeros((len(prompts), longest), dtype=bool)
        for row, prompt in enumerate(prompts):
            self._check(prompt, row)
            tokens[row, : 1 + len(prompt)] = [self.sizes.start, *prompt]
            mask[row, : 1 + len(prompt)] = True
        extra = () if source is None else (self._moved(source), self._moved(source_mask))
        with _at_rest(self.model):
            self.state = self.model.start(len(prompts), longest + max_tokens, *extra)
        self._step(self._moved(tokens), self._moved(mask))

    def feed(self, ids_B: Tensor, keep: Tensor | None) -> None:
        """Go on with the rows in `keep` (all of them if None), each with its next token."""
        if keep is not None:
            self.state = self.state.select(keep)
        tokens_BT = ids_B[:, None]
        self._step(tokens_BT, torch.ones_like(tokens_BT, dtype=torch.bool))

    def allowed(self) -> Tensor:
        """log p of what may be written next: -inf at the forbidden ids."""
        return self.logp_BV.index_fill(-1, self.forbid, -math.inf) if len(self.forbid) else self.logp_BV

    def _step(self, tokens_BT: Tensor, mask_BT: Tensor) -> None:
        with _at_rest(self.model):
            logits_BV, self.state = self.model.step(tokens_BT, mask_BT, self.state)
        logits_BV = logits_BV.to(self.device).float()
        # A row that is -inf everywhere has no softmax; it stays -inf, and the caller says what that means.
        self.logp_BV = logits_BV.log_softmax(-1).masked_fill(logits_BV == -math.inf, -math.inf)
        if self.logp_BV.isnan().any():
            raise SegueError("The model's logits hold NaN or +inf: its weights are broken. Load an earlier checkpoint.")

    def _check(self, prompt: Sequence[int], row: int) -> None:
        wrong = [token for token in prompt if not 0 <= token < self.sizes.vocab_size]
        if wrong:
            raise InputError(
                f"Prompt {row + 1} holds the id {wrong[0]}; this model's ids are 0 to {self.sizes.vocab_size - 1}. "
                "Encode the prompt with the model's own tokenizer."
            )

    def _moved(self, array: Any) -> Any:
        return None if array is None else torch.as_tensor(array, device=self.device)


@contextmanager
def _at_rest(model: Any) -> Iterator[None]:
    """No dropout inside; afterwards every part of the model trains again that did before."""
    training = [part for part in model.modules() if part.training] if isinstance(model, nn.Module) else []
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _dead_end(written: int, row: int) -> SegueError:
    return SegueError(
        f"After {written} written tokens of text {row + 1} the model gives no allowed token any probability, "
        "so nothing can follow. Use a model with smoothing, or a prompt that it has seen."
    )


# Greedy and sampling


def _sample(rows: _Rows, config: Config) -> Iterator[list[tuple[int, int, float]]]:
    """At each time step (row, id, log p) of every row that has not stopped."""
    live = np.arange(len(rows.logp_BV))
    draws = [np.random.default_rng([config.seed, row]) for row in live.tolist()]
    for written in range(config.max_tokens):
        allowed_BV = rows.allowed()
        stuck = allowed_BV.amax(-1) == -math.inf
        if stuck.any():
            raise _dead_end(written, int(live[stuck.tolist().index(True)]))
        if config.greedy:
            ids_B = allowed_BV.argmax(-1)
        else:
            uniform_B = torch.tensor([draws[row].random() for row in live], dtype=torch.float64, device=rows.device)
            ids_B = _draw(allowed_BV, uniform_B, config)
        logp_B = rows.logp_BV.gather(1, ids_B[:, None])[:, 0]
        ids = ids_B.tolist()
        yield list(zip(live.tolist(), ids, logp_B.tolist(), strict=True))
        going = np.flatnonzero(np.array(ids) != rows.sizes.stop)
        if not len(going) or written + 1 == config.max_tokens:
            return
        if len(going) == len(live):
            rows.feed(ids_B, None)
        else:  # finished rows cost nothing from here on
            live = live[going]
            keep = torch.from_numpy(going).to(rows.device)
            rows.feed(ids_B[keep], keep)


def _draw(logp_BV: Tensor, uniform_B: Tensor, config: Config) -> Tensor:
    """The id at which the cumulative distribution passes a uniform number of each row."""
    # In float64, and with the best at 0, so that a temperature near 0 ends in the likeliest id and not in NaN.
    scaled_BV = (logp_BV - logp_BV.amax(-1, keepdim=True)).double() / config.temperature
    p_BV = scaled_BV.softmax(-1)
    if not config.top_k and config.top_p == 1:
        return _invert(p_BV, uniform_B)
    p_BV, ids_BV = p_BV.sort(dim=-1, descending=True, stable=True)
    if config.top_k:
        p_BV = p_BV[:, : config.top_k]
    if config.top_p < 1:
        p_BV = p_BV / p_BV.sum(-1, keepdim=True)
        before_BV = p_BV.cumsum(-1) - p_BV
        p_BV = p_BV.masked_fill(before_BV >= config.top_p, 0.0)
    return ids_BV.gather(1, _invert(p_BV, uniform_B)[:, None])[:, 0]


def _invert(p_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """First place where the cumulative sum exceeds the uniform number; never one of probability 0."""
    sums_BV = p_BV.cumsum(-1)
    # The last sum becomes exactly 1, and a uniform number is below 1: there always is such a place.
    sums_BV = sums_BV / sums_BV[:, -1:]
    return torch.searchsorted(sums_BV, uniform_B[:, None], right=True)[:, 0]


# Beam search


def _search(rows: _Rows, config: Config) -> list[Generated]:
    """Beam search over all rows at once. A row's beams lie side by side: slot = row * width + beam.

    At each step the best 2 * width continuations of a row are ranked. A STOP among the first `width`
    ends a text; the best `width` others live on. A row is done when `width` texts have ended, or when
    no living one can still win: log p only falls, so its best hope is its log p now at the full length.
    """
    width, count = config.beam, len(rows.logp_BV)
    ended: list[list[Generated]] = [[] for _ in range(count)]
    live = list(range(count))
    first = torch.arange(count, device=rows.device).repeat_interleave(width)
    rows.state, rows.logp_BV = rows.state.select(first), rows.logp_BV[first]
    score_RK = torch.full((count, width), -math.inf, dtype=torch.float64, device=rows.device)
    score_RK[:, 0] = 0.0  # all beams of a row are the same text at first: only one may go on
    text_RKT = torch.zeros((count, width, 0), dtype=torch.long, device=rows.device)
    for written in range(config.max_tokens):
        step = _rank(rows, score_RK, width)
        _end(step, text_RKT, live, ended, width)
        score_RK, text_RKT = step.score_RK, _grow(text_RKT, step)
        going = _going(score_RK, live, ended, written, config)
        if not going or written + 1 == config.max_tokens:
            _end_open(score_RK, text_RKT, live, ended)
            break
        keep = torch.tensor(going, device=rows.device)
        slots = (keep[:, None] * width + step.parent_RK[keep]).flatten()
        rows.feed(step.id_RK[keep].flatten(), slots)
        score_RK, text_RKT, live = score_RK[keep], text_RKT[keep], [live[i] for i in going]
    return [max(texts, key=lambda text: _normalised(text, config.length_penalty)) for texts in ended]


class _Ranked(NamedTuple):
    """A time step of a beam search: R rows, K beams that live on, N = 2K candidates, best first."""

    score_RK: Tensor
    parent_RK: Tensor
    id_RK: Tensor
    candidates: tuple[list[list[float]], list[list[int]], list[list[bool]]]
    """Score, parent beam and whether it is a STOP, of each row's N candidates."""


def _rank(rows: _Rows, score_RK: Tensor, width: int) -> _Ranked:
    allowed_BV = rows.allowed()
    vocab_size = allowed_BV.shape[1]
    total_RN = (score_RK.flatten()[:, None] + allowed_BV).view(len(score_RK), -1)
    score_RN, index_RN = total_RN.topk(2 * width)
    parent_RN, id_RN = index_RN // vocab_size, index_RN % vocab_size
    stop_RN = id_RN == rows.sizes.stop
    # Each beam has one STOP, so at least `width` of the 2 * width candidates are none; these come first here.
    order_RK = stop_RN.int().argsort(dim=1, stable=True)[:, :width]
    score_RK, parent_RK, id_RK = (x_RN.gather(1, order_RK) for x_RN in (score_RN, parent_RN, id_RN))
    return _Ranked(score_RK, parent_RK, id_RK, (score_RN.tolist(), parent_RN.tolist(), stop_RN.tolist()))


def _grow(text_RKT: Tensor, step: _Ranked) -> Tensor:
    """Each beam's ids so far: its parent's, then its own."""
    row = torch.arange(len(text_RKT), device=text_RKT.device)[:, None]
    return torch.cat([text_RKT[row, step.parent_RK], step.id_RK[..., None]], dim=-1)


def _end(step: _Ranked, text_RKT: Tensor, live: list[int], ended: list[list[Generated]], width: int) -> None:
    """Put aside the texts whose STOP is among the first `width` candidates."""
    for i, (row, scores, parents, stops) in enumerate(zip(live, *step.candidates, strict=True)):
        for score, parent, stop in list(zip(scores, parents, stops, strict=True))[:width]:
            if stop and score > -math.inf:
                ended[row].append(Generated(text_RKT[i, parent].tolist(), score, True))


def _going(score_RK: Tensor, live: list[int], ended: list[list[Generated]], written: int, config: Config) -> list[int]:
    """Which of the live rows go on."""
    going = []
    for i, (row, score) in enumerate(zip(live, score_RK.amax(1).tolist(), strict=True)):
        if score == -math.inf and not ended[row]:
            raise _dead_end(written, row)
        best = max((_normalised(text, config.length_penalty) for text in ended[row]), default=-math.inf)
        hope = score / _length_norm(config.max_tokens, config.length_penalty)
        if len(ended[row]) < config.beam and hope > best:
            going.append(i)
    return going


def _end_open(score_RK: Tensor, text_RKT: Tensor, live: list[int], ended: list[list[Generated]]) -> None:
    """At the end of the time, the best open text of each row where none has ended."""
    for i, row in enumerate(live):
        if not ended[row]:
            best = int(score_RK[i].argmax())
            ended[row].append(Generated(text_RKT[i, best].tolist(), float(score_RK[i, best]), False))


def _length_norm(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha."""
    return float(((5 + length) / 6) ** alpha)


def _normalised(text: Generated, alpha: float) -> float:
    return text.logprob / _length_norm(len(text.ids) + text.stopped, alpha)
