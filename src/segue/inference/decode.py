"""Writing text with any model that steps: greedy, sampling (temperature, top-k, top-p) and beam search.

Only `start`, `step` and `State.select` are used, so an n-gram, a recurrent network, a Transformer
and an encoder-decoder are all decoded here, by the same lines.

    greedy        the likeliest id; the lowest id where two are equally likely
    temperature   p_i^(1/T) / sum over j of p_j^(1/T)
    top-k         of these, the k likeliest
    top-p         of these, the fewest that together reach p: the id that crosses p is kept (Holtzman 2020)
    beam          the texts of the highest score (beam.py)

A text begins with the start mark (decode.start) and the prompt, fed in one step. Row i draws from the generator of
(seed, i), one number a token: its text does not depend on how many rows run beside it, nor on
`max_tokens`. With a source, a text is at most decode.length_ratio times as long, and some tokens more.
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
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.state import OneToken
from segue.errors import InputError
from segue.inference.beam import NONE, broken, coverage, repeats, search
from segue.inference.beam import Generated as Generated
from segue.inference.beam_graphs import padded, rounded, search_recorded
from segue.inference.cuda_graphs import BLOCK, BROKEN, DEAD, Recorder, Writer, may_record, recorder
from segue.inference.decode_settings import Config
from segue.models.base import LanguageModel, Sizes

_PLACES = 8
"""Memory for a text is made in multiples of this."""
_PART = 256
"""Ids whose probabilities are summed before one of them is looked for."""
_ALMOST = 1 - 2.0**-53
"""The largest number below 1."""

Watch = Callable[[int, int], bool]
"""Called with each (row, id) that is written; True ends the row's text there."""


DEAD_END = (
    "The text ends where nothing can follow: without smoothing this model gives every token probability 0 there. "
    "Use a model with smoothing, or begin with a text that it has seen."
)


# `source` and `source_mask` are (rows, S), as in a Batch, or `source` is (rows, S, W), frames; `forbid` are ids that
# are never written.


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
    numbers: Sequence[int] | None = None,
) -> Iterator[list[Generated]]:
    """Yield the texts of `generate` as far as they are written, after each time step; those of a beam at its end.
    `numbers`: the generator of random numbers of each row; by default the row's own number."""
    if not prompts:
        return
    with closing(Rows(model, sizes, device, forbid, config)) as rows:
        rows.begin(prompts, source, source_mask)
        if config.beam > 1:
            yield [texts[0] for texts in rows.search()]
            return
        texts = [Generated([], 0.0, False) for _ in prompts]
        for drawn in _sample(rows, config, 1 if str(device) == "cpu" else BLOCK, watch, numbers):
            for row, token, logp, ended in drawn:
                text = texts[row]
                if token == DEAD:
                    texts[row] = text._replace(dead_end=True)
                    continue
                if token != sizes.stop:
                    text.ids.append(token)
                texts[row] = Generated(text.ids, text.logprob + logp, ended)
            yield texts


def best(
    model: Any,
    prompts: Sequence[Sequence[int]],
    sizes: Sizes,
    config: Config,
    source: Any = None,
    source_mask: Any = None,
    device: Any = "cpu",
    forbid: Sequence[int] = (),
    numbers: Sequence[int] | None = None,
) -> list[list[Generated]]:
    """The n best texts for each prompt (decode.n_best), best first: those of a beam, or as many that are drawn, the
    likeliest first. Row i draws from the generators i·n to i·n + n - 1, or from those of its number."""
    if not prompts:
        return []
    if config.beam > 1:
        with torch.inference_mode(), closing(Rows(model, sizes, device, forbid, config)) as rows:
            rows.begin(prompts, source, source_mask)
            return rows.search()
    count = config.n_best
    often = [row for row in range(len(prompts)) for _ in range(count)]
    source, source_mask = (None if one is None else torch.as_tensor(one)[often] for one in (source, source_mask))
    drawn = [number * count + i for number in numbers or range(len(prompts)) for i in range(count)]
    starts = [prompts[row] for row in often]
    steps = growing(model, starts, sizes, config, source, source_mask, device, forbid, None, drawn)
    (texts,) = deque(steps, maxlen=1)
    every = (texts[first : first + count] for first in range(0, len(texts), count))
    return [sorted((text._replace(score=text.logprob) for text in some), key=lambda one: -one.score) for some in every]


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
    with closing(Rows(model, sizes, device, forbid, config)) as rows:
        rows.begin([prompt], source, source_mask)
        for ((_, token, _, _),) in _sample(rows, config, 1, None):
            if token == DEAD:
                at_dead_end()
            elif token != sizes.stop:
                yield token


class Rows:
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
        self.limits: list[int] = []
        """The most tokens of each row."""
        self.mask_RS: Tensor
        """Where sources have tokens, for the coverage penalty."""
        self.text_BT: Tensor | None = None
        """Prompts and what was drawn, NONE at their left, where n-grams must not be repeated."""
        if config.beam < 2 and not config.no_repeat and may_record(model, device):
            found, pick = recorder(model), partial(_pick, forbid=self.forbid, config=config)
            settings = (tuple(forbid), config.greedy, config.temperature, config.top_k, config.top_p)
            whole = not (config.greedy or config.top_k or config.top_p < 1)
            plain = (self.forbid, config.temperature) if whole else None
            self.model, self.writer = found.model, Writer(found, pick, settings, plain)
        self.recorder: Recorder | None = None
        """What records the steps of a beam, on a GPU."""
        if config.beam > 1 and not self._covers and may_record(model, device):
            self.recorder = recorder(model)
            self.model = self.recorder.model
        self._parts = list(self.model.modules()) if isinstance(self.model, nn.Module) else []

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()

    def begin(self, prompts: Sequence[Sequence[int]], source: Any, source_mask: Any) -> None:
        """Feed the start mark and the prompts, padded on the right, in one step. The target of a source always has
        the mark."""
        for row, prompt in enumerate(prompts):
            self._check(prompt, row)
        starts = [source is not None or self.config.starts(prompt) for prompt in prompts]
        fed = [[self.sizes.start] * start + list(prompt) for start, prompt in zip(starts, prompts, strict=True)]
        longest = max(map(len, fed))
        tokens = np.zeros((len(fed), longest), dtype=np.int64)
        mask = np.zeros((len(fed), longest), dtype=bool)
        for row, ids in enumerate(fed):
            tokens[row, : len(ids)] = ids
            mask[row, : len(ids)] = True
        extra: tuple[Any, ...] = () if source is None else (self._moved(source), self._moved(source_mask))
        recorded, frames = bool(self.writer or self.recorder), bool(extra) and extra[0].dim() == 3
        if extra and recorded and not frames:
            extra = padded(extra[0], extra[1], self.model.window_of(self.model.config))
        self.limits = [self.config.limit(size) for size in _lengths(len(prompts), source, source_mask)]
        capacity = longest if recorded else _rounded(longest + max(self.limits))
        with _at_rest(self._parts):
            self.state = self.model.start(len(prompts), capacity, *extra)
        if recorded and frames:  # a model makes other places of frames, and these are padded
            self.state = self.state.widened(rounded(self.state.source_places))
        if self._covers and extra:
            self.state = self.state.covering()
            mask_RS = extra[0].new_ones(extra[0].shape[:2], dtype=torch.bool) if extra[1] is None else extra[1]
            self.mask_RS = self.model.source_mask(mask_RS) if frames else mask_RS
        if self.config.no_repeat:
            most = max(map(len, prompts))
            last = [[NONE] * (most - len(prompt)) + list(prompt) for prompt in prompts]
            self.text_BT = torch.tensor(last, dtype=torch.long, device=self.device).view(len(prompts), -1)
        self._step(self._moved(tokens), self._moved(mask))

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order (a row may come twice)."""
        self._settle()
        self.state, self.logits_BV = self.state.select(rows), self.logits_BV[rows]
        self.next_B = None if self.next_B is None else self.next_B[rows]
        self.text_BT = None if self.text_BT is None else self.text_BT[rows]

    def spread(self, beams: int) -> None:
        """Go on with each row so many times, side by side."""
        self.state = self.state.spread(beams)
        self.logits_BV = self.logits_BV.repeat_interleave(beams, 0)

    def advance(self, ids_B: Tensor, slots_B: Tensor, same_text: bool) -> None:
        """Go on with these slots alone, in this order, by one token each; `same_text`: moved only within their row."""
        if self.state is None and self.one_token is not None and self.one_token.room:
            self.one_token.move(slots_B, self.config.beam)
        else:
            self._settle()
            self.state = self.state.select(slots_B, same_text)
        if self._covers and not same_text:
            self.mask_RS = self.mask_RS[slots_B[:: self.config.beam] // self.config.beam]
        self.feed(ids_B)

    def search(self) -> list[list[Generated]]:
        """The best texts of each row by beam search, best first."""
        window = self.model.window if isinstance(self.model, LanguageModel) else 0
        if self.recorder is not None and (not window or self.state.most + max(self.limits) <= window):
            return search_recorded(self, self.config, self.recorder)
        return search(self, self.config)

    def coverage(self) -> Tensor | None:
        """The coverage penalty of each slot of a beam; None: there is none."""
        if not self._covers:
            return None
        if self.state.attended_BS is None:
            raise InputError(
                f"decode.coverage_penalty={self.config.coverage_penalty} needs attention over the source, and this "
                "model has none. Leave it out."
            )
        return coverage(self.state.attended_BS, self.mask_RS, self.config.coverage_penalty)

    @property
    def _covers(self) -> bool:
        return self.config.beam > 1 and self.config.coverage_penalty > 0

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
        ids_B, logp_B = _pick(self.logits_BV, uniform_BN[:, 0], self.forbid, self.config, self._impossible())
        if self.text_BT is not None:
            self.text_BT = torch.cat([self.text_BT, ids_B[:, None].clamp(min=NONE)], 1)
        return ids_B[:, None], logp_B[:, None]

    def _impossible(self) -> Tensor | None:
        """-inf at the ids that would repeat an n-gram, or end a text that must not be empty; None: there are none."""
        cost_BV = self._repeats()
        if self.config.empty or self.next_B is not None:
            return cost_BV
        cost_BV = torch.zeros_like(self.logits_BV) if cost_BV is None else cost_BV
        return cost_BV.index_fill(1, torch.tensor([self.sizes.stop], device=cost_BV.device), -math.inf)

    def _repeats(self) -> Tensor | None:
        """-inf at the ids that would repeat an n-gram; None: they may."""
        size = self.config.no_repeat
        if self.text_BT is None or self.text_BT.shape[1] < size:
            return None
        last_BN = self.text_BT[:, self.text_BT.shape[1] + 1 - size :]
        return repeats(self.text_BT, last_BN, self.logits_BV.shape[1], self.logits_BV.dtype)

    def _one_token(self) -> OneToken | None:
        """The model's own step of one token, which has the state from here on; None: it has none."""
        if self.writer is not None or not isinstance(self.model, LanguageModel) or not self.model.records:
            return None
        if self._covers:
            return None  # only `step` sums attention
        if self.state is not None:
            self.one_token, self.state = self.model.one_token(self.state), None
        return self.one_token

    def _settle(self) -> None:
        """Take the state back."""
        if self.state is None:
            holder = self.writer or self.one_token
            assert holder is not None
            self.state = holder.state()

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


def _lengths(rows: int, source: Any, source_mask: Any) -> list[int | None]:
    """The tokens of each source; None where there is none, or where it is no text."""
    if source is None or source.ndim == 3:
        return [None] * rows
    if source_mask is None:
        return [len(row) for row in source]
    lengths: list[int | None] = torch.as_tensor(source_mask).sum(1).tolist()
    return lengths


def _rounded(capacity: int) -> int:
    """A capacity that many texts share, and that the kernels of attention like."""
    return -(-capacity // _PLACES) * _PLACES


# Greedy and sampling


def _sample(
    rows: Rows, config: Config, block: int, watch: Watch | None, numbers: Sequence[int] | None = None
) -> Iterator[list[tuple[int, int, float, bool]]]:
    """At each time step (row, id, log p, whether the text ends here) of every row that has not ended; the id of a dead
    end is DEAD.

    Recorded steps go on with the next block while the host looks at this one.
    """
    live, most = list(range(len(rows.logits_BV))), max(rows.limits)
    draws = [np.random.default_rng([config.seed, number]) for number in numbers or live]
    ended: set[int] = set()
    written = asked = 0
    under_way: deque[_Block] = deque()
    while written < most and len(ended) < len(draws):
        if written:
            live = _without_ended(rows, live, ended)
        while asked < most and len(under_way) < (2 if rows.writer is not None and block > 1 else 1):
            steps = min(block, most - asked)
            uniform_BN = torch.from_numpy(np.stack([draws[row].random(steps) for row in live]))
            under_way.append(_Block(*rows.write(_sent(uniform_BN, rows.device))))
            asked += steps
        for ids, logps in under_way.popleft().read():
            drawn = []
            for row, token, logp in zip(live, ids, logps, strict=True):
                if row in ended:
                    continue
                if token == BROKEN:
                    raise broken()
                if token in (DEAD, rows.sizes.stop) or (watch is not None and watch(row, token)):
                    ended.add(row)
                drawn.append((row, token, logp, row in ended))
                if written + 1 == rows.limits[row]:
                    ended.add(row)
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


def _without_ended(rows: Rows, live: list[int], ended: set[int]) -> list[int]:
    """The rows that go on; those that have ended cost nothing from here on."""
    going = [place for place, row in enumerate(live) if row not in ended]
    if len(going) == len(live) or rows.writer is not None:
        return live
    rows.keep(torch.tensor(going, device=rows.device))
    return [live[place] for place in going]


def _pick(
    logits_BV: Tensor, uniform_B: Tensor, forbid: Tensor, config: Config, repeats_BV: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The next id of each row (or DEAD, or BROKEN), and its log p by the model's own distribution. `repeats_BV`: -inf
    at ids that must not come again.

    Nothing here waits for the device, and all shapes are known beforehand.
    """
    logits_BV = logits_BV.float()
    whole_B = logits_BV.logsumexp(-1)
    allowed_BV = logits_BV.index_fill(-1, forbid, -math.inf) if len(forbid) else logits_BV
    allowed_BV = allowed_BV if repeats_BV is None else allowed_BV + repeats_BV
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
