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
Where a model gives every allowed token probability 0, as counting without smoothing does, the text ends
in a dead end.

A token is drawn on the device that has the logits, and fed back into the model from there. On a GPU the host reads
what was drawn only once a block, while the next block runs: every read makes one of the two wait for the other. A row
that ends within a block is written on until its end, and the tokens after STOP are dropped. Models that have a step of
one token in fixed memory (`one_token`) are stepped by it; on a GPU it is recorded together with the draw
(cuda_graphs.py).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.state import OneToken
from segue.errors import InputError, SegueError
from segue.inference.cuda_graphs import BLOCK, BROKEN, DEAD, Writer, may_record, recorder
from segue.inference.decode_settings import Config
from segue.models.base import LanguageModel, Sizes

_PLACES = 64
"""Memory for a text is made in multiples of this."""
_PART = 256
"""Ids whose probabilities are summed before one of them is looked for."""
_ALMOST = 1 - 2.0**-53
"""The largest number below 1."""

Watch = Callable[[int, int], bool]
"""Called with each (row, id) that is written; True ends the row's text there."""


class Generated(NamedTuple):
    """One written text, without its prompt."""

    ids: list[int]
    """The tokens, without STOP."""
    logprob: float
    """Sum of natural log p by the model's own distribution (no temperature), that of a reached STOP included."""
    stopped: bool
    """True if the model ended the text itself, or who watches did; False if `max_tokens` or a dead end did."""
    dead_end: bool = False
    """True if no allowed token had any probability after this text."""


DEAD_END = (
    "The text ends where nothing can follow: without smoothing this model gives every token probability 0 there. "
    "Use a model with smoothing, or begin with a text that it has seen."
)


# `source` and `source_mask` are (rows, S), as in a Batch; `forbid` are ids that are never written.


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    sizes: Sizes,
    config: Config,
    source: Any = None,
    source_mask: Any = None,
    device: Any = "cpu",
    forbid: Sequence[int] = (),
    watch: Watch | None = None,
) -> list[Generated]:
    """One text for each prompt (which may be empty). A beam is not watched: it knows its text only at the end."""
    steps = growing(model, prompts, sizes, config, source, source_mask, device, forbid, watch)
    last = deque(steps, maxlen=1)
    return last[0] if last else []


@torch.inference_mode()
def growing(
    model: Any,
    prompts: Sequence[Sequence[int]],
    sizes: Sizes,
    config: Config,
    source: Any = None,
    source_mask: Any = None,
    device: Any = "cpu",
    forbid: Sequence[int] = (),
    watch: Watch | None = None,
) -> Iterator[list[Generated]]:
    """Yield the texts of `generate` as far as they are written, after each time step; those of a beam at its end."""
    if not prompts:
        return
    with closing(_Rows(model, sizes, device, forbid, config)) as rows:
        rows.begin(prompts, source, source_mask)
        if config.beam > 1:
            yield _search(rows, config)
            return
        texts = [Generated([], 0.0, False) for _ in prompts]
        for drawn in _sample(rows, config, 1 if str(device) == "cpu" else BLOCK, watch):
            for row, token, logp, ended in drawn:
                text = texts[row]
                if token == DEAD:
                    texts[row] = text._replace(dead_end=True)
                    continue
                if token != sizes.stop:
                    text.ids.append(token)
                texts[row] = Generated(text.ids, text.logprob + logp, ended)
            yield texts


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
    at_dead_end: Callable[[], None] = lambda: None,
) -> Iterator[int]:
    """The ids of one text as they are written: those of the first row of `generate`. A beam gives them at its end.
    `at_dead_end` is called if the text ends in one."""
    if config.beam > 1:
        (text,) = generate(model, [prompt], sizes, config, source, source_mask, device, forbid)
        yield from text.ids
        if text.dead_end:
            at_dead_end()
        return
    with closing(_Rows(model, sizes, device, forbid, config)) as rows:
        rows.begin([prompt], source, source_mask)
        for ((_, token, _, _),) in _sample(rows, config, 1, None):
            if token == DEAD:
                at_dead_end()
            elif token != sizes.stop:
                yield token


class _Rows:
    """The texts that have not ended: the model's state of each, and the logits of each one's next token."""

    def __init__(self, model: Any, sizes: Sizes, device: Any, forbid: Sequence[int], config: Config) -> None:
        self.model, self.sizes, self.device, self.config = model, sizes, device, config
        self.forbid = torch.tensor(list(forbid), dtype=torch.long, device=device)
        self.state: Any = None
        """None while `one_token` or `writer` has it."""
        self.logits_BV: Tensor
        self.next_B: Tensor | None = None
        """What was drawn and not yet fed."""
        self.one_token: OneToken | None = None
        """The model's own step of one token, where it has one."""
        self.writer: Writer | None = None
        """Recorded steps, on a GPU: the rows then stay as many as they are."""
        if config.beam < 2 and may_record(model, device):
            found, pick = recorder(model), partial(_pick, forbid=self.forbid, config=config)
            settings = (tuple(forbid), config.greedy, config.temperature, config.top_k, config.top_p)
            whole = not (config.greedy or config.top_k or config.top_p < 1)
            plain = (self.forbid, config.temperature) if whole else None
            self.model, self.writer = found.model, Writer(found, pick, settings, plain)
        self._parts = list(self.model.modules()) if isinstance(self.model, nn.Module) else []

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()

    def begin(self, prompts: Sequence[Sequence[int]], source: Any, source_mask: Any) -> None:
        """Feed the start id and the prompts, padded on the right, in one step."""
        longest = 1 + max(len(prompt) for prompt in prompts)
        tokens = np.zeros((len(prompts), longest), dtype=np.int64)
        mask = np.zeros((len(prompts), longest), dtype=bool)
        for row, prompt in enumerate(prompts):
            self._check(prompt, row)
            tokens[row, : 1 + len(prompt)] = [self.sizes.start, *prompt]
            mask[row, : 1 + len(prompt)] = True
        extra = () if source is None else (self._moved(source), self._moved(source_mask))
        capacity = longest if self.writer else _rounded(longest + self.config.max_tokens)
        with _at_rest(self._parts):
            self.state = self.model.start(len(prompts), capacity, *extra)
        self._step(self._moved(tokens), self._moved(mask))

    def keep(self, rows: Tensor, same_text: bool = False) -> None:
        """Go on with these rows alone, in this order (a row may come twice)."""
        self._settle()
        self.state, self.logits_BV = self.state.select(rows, same_text), self.logits_BV[rows]
        self.next_B = None if self.next_B is None else self.next_B[rows]

    def feed(self, ids_B: Tensor) -> None:
        """The next token of each row."""
        one_token = self._one_token()
        if one_token is not None and one_token.room:
            with _at_rest(self._parts):
                self.logits_BV = one_token.feed(ids_B).float()
            return
        self._settle()
        tokens_BT = ids_B[:, None]
        self._step(tokens_BT, torch.ones_like(tokens_BT, dtype=torch.bool))

    def write(self, uniform_BN: Tensor) -> tuple[Tensor, Tensor]:
        """N tokens of each row, and the log p of each by the model's own distribution."""
        drawn: list[tuple[Tensor, Tensor]] = []
        while uniform_BN.shape[1]:
            drawn.append(self._drawn(uniform_BN))
            self.next_B = drawn[-1][0][:, -1].clamp(min=0)
            uniform_BN = uniform_BN[:, drawn[-1][0].shape[1] :]
        ids_BN, logp_BN = (torch.cat(parts, 1) for parts in zip(*drawn, strict=True))
        return ids_BN, logp_BN

    def _drawn(self, uniform_BN: Tensor) -> tuple[Tensor, Tensor]:
        """The first tokens of N: one, or as many as recorded steps have room for."""
        if self.next_B is not None:
            if self.writer is not None:
                ids_BN, logp_BN = self.writer.write(self.state, uniform_BN, self.next_B)
                if ids_BN.shape[1]:
                    self.state = None
                    return ids_BN, logp_BN
            self.feed(self.next_B)
        ids_B, logp_B = _pick(self.logits_BV, uniform_BN[:, 0], self.forbid, self.config)
        return ids_B[:, None], logp_B[:, None]

    def _one_token(self) -> OneToken | None:
        """The model's own step of one token, which has the state from here on; None: it has none."""
        if self.writer is not None or not isinstance(self.model, LanguageModel) or not self.model.records:
            return None
        if self.state is not None:
            self.one_token, self.state = self.model.one_token(self.state), None
        return self.one_token

    def _settle(self) -> None:
        """Take the state back."""
        if self.state is None:
            holder = self.writer or self.one_token
            assert holder is not None
            self.state = holder.state()

    def logp(self) -> Tensor:
        """log p of what may be written next, for a beam: -inf where it is 0, and at the forbidden ids."""
        logp_BV = self.logits_BV.log_softmax(-1).masked_fill(self.logits_BV == -math.inf, -math.inf)
        if logp_BV.isnan().any():
            raise _broken()
        return logp_BV.index_fill(-1, self.forbid, -math.inf) if len(self.forbid) else logp_BV

    def _step(self, tokens_BT: Tensor, mask_BT: Tensor) -> None:
        with _at_rest(self._parts):
            logits_BV, self.state = self.model.step(tokens_BT, mask_BT, self.state)
        self.logits_BV = logits_BV.to(self.device).float()

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
def _at_rest(parts: Sequence[nn.Module]) -> Iterator[None]:
    """No dropout inside; afterwards every part of the model trains again that did before."""
    training = [part for part in parts if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _rounded(capacity: int) -> int:
    """A capacity that many texts share, and that the kernels of attention like."""
    return -(-capacity // _PLACES) * _PLACES


def _broken() -> SegueError:
    return SegueError("The model's logits hold NaN or +inf: its weights are broken. Load an earlier checkpoint.")


# Greedy and sampling


def _sample(
    rows: _Rows, config: Config, block: int, watch: Watch | None
) -> Iterator[list[tuple[int, int, float, bool]]]:
    """At each time step (row, id, log p, whether the text ends here) of every row that has not ended; the id of a dead
    end is DEAD.

    Recorded steps go on with the next block while the host looks at this one.
    """
    live = list(range(len(rows.logits_BV)))
    draws = [np.random.default_rng([config.seed, row]) for row in live]
    ended: set[int] = set()
    written = asked = 0
    under_way: deque[_Block] = deque()
    while written < config.max_tokens and len(ended) < len(draws):
        if written:
            live = _without_ended(rows, live, ended)
        while asked < config.max_tokens and len(under_way) < (2 if rows.writer is not None and block > 1 else 1):
            steps = min(block, config.max_tokens - asked)
            uniform_BN = torch.from_numpy(np.stack([draws[row].random(steps) for row in live]))
            under_way.append(_Block(*rows.write(_sent(uniform_BN, rows.device))))
            asked += steps
        for ids, logps in under_way.popleft().read():
            drawn = []
            for row, token, logp in zip(live, ids, logps, strict=True):
                if row in ended:
                    continue
                if token == BROKEN:
                    raise _broken()
                if token in (DEAD, rows.sizes.stop) or (watch is not None and watch(row, token)):
                    ended.add(row)
                drawn.append((row, token, logp, row in ended))
            written += 1
            if drawn:
                yield drawn


class _Block:
    """Ids and log p of some time steps, on their way to the host."""

    def __init__(self, ids_BN: Tensor, logp_BN: Tensor) -> None:
        self.parts = [part.T.to("cpu", non_blocking=True) for part in (ids_BN, logp_BN)]
        self.sent = torch.cuda.current_stream().record_event() if ids_BN.is_cuda else None

    def read(self) -> Iterator[tuple[list[int], list[float]]]:
        """Of each time step, those of all rows."""
        if self.sent is not None:
            self.sent.synchronize()
        return zip(*(part.tolist() for part in self.parts), strict=True)


def _sent(numbers: Tensor, device: Any) -> Tensor:
    """To a device, without waiting for what that is doing."""
    staged = numbers.pin_memory() if torch.device(device).type == "cuda" else numbers
    return staged.to(device, non_blocking=True)


def _without_ended(rows: _Rows, live: list[int], ended: set[int]) -> list[int]:
    """The rows that go on; those that have ended cost nothing from here on."""
    going = [place for place, row in enumerate(live) if row not in ended]
    if len(going) == len(live) or rows.writer is not None:
        return live
    rows.keep(torch.tensor(going, device=rows.device))
    return [live[place] for place in going]


def _pick(logits_BV: Tensor, uniform_B: Tensor, forbid: Tensor, config: Config) -> tuple[Tensor, Tensor]:
    """The next id of each row (or DEAD, or BROKEN), and its log p by the model's own distribution.

    Nothing here waits for the device, and all shapes are known beforehand.
    """
    logits_BV = logits_BV.float()
    whole_B = logits_BV.logsumexp(-1)
    allowed_BV = logits_BV.index_fill(-1, forbid, -math.inf) if len(forbid) else logits_BV
    best_B1 = allowed_BV.amax(-1, keepdim=True)
    ids_B = allowed_BV.argmax(-1) if config.greedy else _draw(allowed_BV - best_B1, uniform_B, config)
    picked_B = logits_BV.gather(1, ids_B[:, None])[:, 0] - whole_B
    # NaN and +inf are in the sum too.
    ids_B = ids_B.masked_fill(~(whole_B < math.inf), BROKEN).masked_fill(best_B1[:, 0] == -math.inf, DEAD)
    return ids_B, picked_B


def _draw(logits_BV: Tensor, uniform_B: Tensor, config: Config) -> Tensor:
    """The id at which the cumulative distribution passes a uniform number of each row; the best logit is 0."""
    # In float64, so that a temperature near 0 ends in the likeliest id and not in NaN. They need not sum to 1.
    p_BV = (logits_BV.double() / config.temperature).exp()
    if config.top_k or config.top_p < 1:
        p_BV = p_BV * _likeliest(p_BV, config)
    return _invert(p_BV, uniform_B)


def _likeliest(p_BV: Tensor, config: Config) -> Tensor:
    """True at the ids that top-k and top-p leave; of equally likely ones the lowest ids."""
    if 0 < config.top_k < p_BV.shape[1]:
        best_BK = p_BV.topk(config.top_k).values
    else:
        best_BK = p_BV.sort(-1, descending=True).values
    share_BK = best_BK / best_BK.sum(-1, keepdim=True)
    count_B1 = (share_BK.cumsum(-1) - share_BK < config.top_p).sum(-1, keepdim=True)
    least_B1 = best_BK.gather(1, (count_B1 - 1).clamp(min=0))
    above_BV, equal_BV = p_BV > least_B1, p_BV == least_B1
    room_B1 = count_B1 - above_BV.sum(-1, keepdim=True)
    return above_BV | (equal_BV & (equal_BV.cumsum(-1) <= room_B1))


def _invert(p_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """First place where the cumulative sum exceeds the uniform number, as a share; never one of probability 0.

    First the part in which it lies is found, then the place in it: a GPU sums many parts at once, but one row slowly.
    """
    vocab_size = p_BV.shape[1]
    p_BCN = F.pad(p_BV, (0, -vocab_size % _PART)).view(len(p_BV), -1, _PART)
    part_B1, share_B1 = _passed(p_BCN.sum(-1), uniform_B[:, None].contiguous())
    p_BN = p_BCN.gather(1, part_B1[:, :, None].expand(-1, -1, _PART))[:, 0]
    place_B1, _ = _passed(p_BN, share_B1)
    return (_PART * part_B1 + place_B1)[:, 0].clamp(max=vocab_size - 1)


def _passed(p_BN: Tensor, uniform_B1: Tensor) -> tuple[Tensor, Tensor]:
    """Where the cumulative sum passes the number, and how far into that place the number lies, below 1."""
    sums_BN = p_BN.cumsum(-1)
    # The last sum becomes exactly 1, and a uniform number is below 1: there always is such a place, unless all is NaN.
    sums_BN = sums_BN / sums_BN[:, -1:]
    place_B1 = torch.searchsorted(sums_BN, uniform_B1, right=True).clamp(max=p_BN.shape[1] - 1)
    begin_B1 = F.pad(sums_BN, (1, 0)).gather(1, place_B1)
    share_B1 = (uniform_B1 - begin_B1) / (sums_BN.gather(1, place_B1) - begin_B1)
    return place_B1, share_B1.clamp(0.0, _ALMOST)


# Beam search


def _search(rows: _Rows, config: Config) -> list[Generated]:
    """Beam search over all rows at once. A row's beams lie side by side: slot = row * width + beam.

    At each step the best 2 * width continuations of a row are ranked. A STOP among the first `width`
    ends a text; the best `width` others live on. A row is done when `width` texts have ended, or when
    no living one can still win: log p only falls, so its best hope is its log p now at the full length.
    """
    width, count = config.beam, len(rows.logits_BV)
    ended: list[list[Generated]] = [[] for _ in range(count)]
    live = list(range(count))
    rows.keep(torch.arange(count, device=rows.device).repeat_interleave(width))
    score_RK = torch.full((count, width), -math.inf, dtype=torch.float64, device=rows.device)
    score_RK[:, 0] = 0.0  # all beams of a row are the same text at first: only one may go on
    text_RKT = torch.zeros((count, width, 0), dtype=torch.long, device=rows.device)
    for written in range(config.max_tokens):
        step = _rank(rows, score_RK, width)
        _end(step, text_RKT, live, ended, width)
        _end_dead(step, score_RK, text_RKT, live, ended)
        score_RK, text_RKT = step.score_RK, _grow(text_RKT, step)
        going = _going(score_RK, live, ended, config)
        if not going or written + 1 == config.max_tokens:
            _end_open(score_RK, text_RKT, live, ended)
            break
        keep = torch.tensor(going, device=rows.device)
        slots = (keep[:, None] * width + step.parent_RK[keep]).flatten()
        rows.keep(slots, same_text=len(going) == len(live))
        rows.feed(step.id_RK[keep].flatten())
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
    allowed_BV = rows.logp()
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


def _end_dead(step: _Ranked, score_RK: Tensor, text_RKT: Tensor, live: list[int], ended: list[list[Generated]]) -> None:
    """Put aside the best text so far of each row that cannot go on and where none has ended."""
    for i, (row, best) in enumerate(zip(live, step.score_RK.amax(1).tolist(), strict=True)):
        if best == -math.inf and not ended[row]:
            last = int(score_RK[i].argmax())
            ended[row].append(Generated(text_RKT[i, last].tolist(), float(score_RK[i, last]), False, dead_end=True))


def _going(score_RK: Tensor, live: list[int], ended: list[list[Generated]], config: Config) -> list[int]:
    """Which of the live rows go on."""
    going = []
    for i, (row, score) in enumerate(zip(live, score_RK.amax(1).tolist(), strict=True)):
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
