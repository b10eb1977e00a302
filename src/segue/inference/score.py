"""Score a text in bits per byte: bits of a held-out text over its bytes, each token scored once.

A text is read as one stream with the state carried along. Long texts are split into rows that are read in parallel;
each row first reads some tokens before its own, so that it begins with a warm state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.encode import HeldOutText

BLOCK = 2048
"""Bytes of raw text in a block, the piece that intervals and paired tests count."""
LONG_ROW = 1 << 17
"""Least tokens of a row for exact figures."""
SHORT_ROW = 1 << 12
"""Least tokens of a row during training: many short rows are faster and nearly as exact."""
_WARM = 1024
"""Tokens that a row reads before its own, to warm up its state."""
_CELLS = 1 << 24
_TOGETHER = 1 << 14
"""Tokens in the windows of one batch."""

Floats = NDArray[np.float64]


class PartScored(NamedTuple):
    """The totals of one corpus, if there are several."""

    bits: float
    bytes: int
    nats: float
    tokens: int


class Scored(NamedTuple):
    """The score of a text: its bits, block by block, and totals."""

    bits: Floats
    """Bits of each block of 2,048 bytes of raw text, spelling included."""
    block_bytes: Floats
    """Bytes of each block."""
    nats: float
    """-log p of all tokens, spelling not included."""
    tokens: int
    spelling_bits: float
    unknown: int
    zeros: int
    """Tokens to which the model gave probability 0."""
    way: str
    parts: tuple[PartScored, ...] = ()
    """Totals of each corpus, if there are several."""

    @property
    def bits_per_byte(self) -> float:
        return float(self.bits.sum() / self.block_bytes.sum())

    @property
    def perplexity(self) -> float:
        """Perplexity as in the literature: the end of each unit is a token, its beginning is not, UNK is a word."""
        mean = self.nats / self.tokens
        return math.exp(mean) if mean < 700 else math.inf


def score_held_out(
    model: Any,
    held_out: HeldOutText,
    vocab_size: int,
    device: str = "cpu",
    row: int = LONG_ROW,
    done: Callable[[float], None] = lambda share: None,
) -> Scored:
    """Score every token of a held-out text once, in rows of at least `row` tokens."""
    tokens, sizes = held_out.store.tokens, held_out.store.columns["bytes"].flat
    blocks = max(1, math.ceil(held_out.bytes / BLOCK))
    bits, nats, zeros = np.zeros(blocks), 0.0, 0
    corpora = list(pairwise((0, *held_out.ends))) if len(held_out.ends) > 1 else []
    nats_of = [0.0] * len(corpora)
    rows = 1 if _window(model) else max(1, min(64, len(tokens) // row))
    starts = _byte_starts(sizes, len(tokens), rows)
    for begin, logp, seen in stream_logprobs(model, tokens, rows, vocab_size, device):
        for r in range(rows):
            logs = logp[r][seen[r]]
            first = begin[r]
            length = np.asarray(sizes[first : first + len(logs)], dtype=np.int64)
            places = np.minimum((starts[r] + np.cumsum(length) - length) // BLOCK, blocks - 1)
            starts[r] += int(length.sum())
            bits += np.bincount(places, -logs / math.log(2), minlength=blocks)
            nats -= float(logs.sum())
            for i, (low, high) in enumerate(corpora):
                nats_of[i] -= float(logs[max(low - first, 0) : max(high - first, 0)].sum())
            zeros += int(np.isneginf(logs).sum())
        done(float((begin[0] + logp.shape[1]) * rows / max(1, len(tokens))))
    spelling = _add_spelling(bits, held_out, sizes)
    block_bytes = np.full(blocks, float(BLOCK))
    block_bytes[-1] = held_out.bytes - BLOCK * (blocks - 1)
    read = model.way
    way = f"one stream, {read}" if rows == 1 else f"{rows} rows, each begun {_WARM} tokens before its own, {read}"
    parts = tuple(_part(held_out, low, high, part) for (low, high), part in zip(corpora, nats_of, strict=True))
    return Scored(bits, block_bytes, nats, len(tokens), spelling, len(held_out.spelled), zeros, way, parts)


def _part(held_out: HeldOutText, low: int, high: int, nats: float) -> PartScored:
    spelled = math.fsum(cost for place, cost in held_out.spelled.items() if low <= place < high)
    size = int(np.asarray(held_out.store.columns["bytes"].flat[low:high], dtype=np.int64).sum())
    return PartScored(nats / math.log(2) + spelled, size, nats, high - low)


def stream_logprobs(
    model: Any, tokens: NDArray[Any], rows: int, vocab_size: int, device: str = "cpu"
) -> Iterator[tuple[list[int], Floats, NDArray[np.bool_]]]:
    """Yield, batch by batch, (place of each row's first token, log p of each row's next tokens, which are real)."""
    if rows == 1 and _window(model):
        yield from _windows(model, tokens, vocab_size, device)
        return
    length = math.ceil(len(tokens) / rows)
    firsts = [r * length for r in range(rows)]
    window = max(16, min(1024, _CELLS // (rows * vocab_size)))
    state: Any = None
    if rows > 1:
        for begin in range(-_WARM, 0, window):
            end = min(0, begin + window)
            warm = np.stack(
                [_cut(tokens, f + begin, f + end) if f else np.zeros(end - begin + 1, np.int64) for f in firsts]
            )
            batch = _batch(warm, np.full(warm[:, 1:].shape, IGNORE), begin == -_WARM, rows)
            state = model.logprobs(batch.to(device) if _is_network(model) else batch, state)[1]
    for begin in range(0, length, window):
        end = min(length, begin + window)
        cut = np.stack([_cut(tokens, f + begin, f + end) for f in firsts])
        real = np.array([np.arange(f + begin, f + end) < min(f + length, len(tokens)) for f in firsts])
        fresh = begin == 0
        batch = _batch(cut, np.where(real, cut[:, 1:], IGNORE), fresh, rows)
        if fresh and rows > 1:  # only the first row begins a text
            batch.fresh_B[1:] = False
        logp, state = model.logprobs(batch.to(device) if _is_network(model) else batch, state)
        yield [f + begin for f in firsts], np.asarray(logp if not _is_network(model) else logp.cpu(), np.float64), real


def _windows(
    model: Any, tokens: NDArray[Any], vocab_size: int, device: str
) -> Iterator[tuple[list[int], Floats, NDArray[np.bool_]]]:
    """Score one stream by a model with a context window: windows are independent, so that many are one batch.

    A window begins in the middle of the one before and predicts its second half; the first window predicts both.
    """
    from segue.models.network import Network

    size = _window(model)
    half = size - size // 2
    count = 1 + max(0, math.ceil((len(tokens) - size) / half))
    together = max(1, min(_TOGETHER, _CELLS // vocab_size) // size)
    for first in range(0, count, together):
        begins = half * np.arange(first, min(first + together, count))
        cut = np.stack([_cut(tokens, begin, begin + size) for begin in begins.tolist()])
        new = (np.arange(size) >= size // 2) | (begins == 0)[:, None]
        new &= begins[:, None] + np.arange(size) < len(tokens)
        batch = Batch(cut[:, :-1], np.where(new, cut[:, 1:], IGNORE), np.ones_like(new), unpadded=True)
        logp = Network.logprobs(model, batch.to(device))[0].cpu().numpy()[new].astype(np.float64)
        yield [int(begins[0]) + (size // 2 if first else 0)], logp[None], np.ones((1, len(logp)), dtype=bool)


def _window(model: Any) -> int:
    return int(model.window)


def _batch(window: NDArray[Any], targets: NDArray[Any], fresh: bool, rows: int) -> Batch:
    return Batch(window[:, :-1], targets, np.ones_like(targets, dtype=bool), np.full(rows, fresh))


def _is_network(model: Any) -> bool:
    return bool(model.takes_tensors)


def _cut(tokens: NDArray[Any], begin: int, end: int) -> NDArray[np.int64]:
    """Return tokens[begin - 1:end], with STOP (0) at places outside the text."""
    out = np.zeros(end - begin + 1, np.int64)
    first = max(0, begin - 1)
    found = tokens[first : max(first, min(end, len(tokens)))]
    shift = first - (begin - 1)
    out[shift : shift + len(found)] = found
    return out


def _byte_starts(sizes: NDArray[Any], tokens: int, rows: int) -> list[int]:
    """Return the byte at which each row begins."""
    length = math.ceil(tokens / rows)
    starts, total = [], 0
    for r in range(rows):
        starts.append(total)
        total += int(np.asarray(sizes[r * length : (r + 1) * length], dtype=np.int64).sum())
    return starts


def _add_spelling(bits: Floats, held_out: HeldOutText, sizes: NDArray[Any]) -> float:
    if not held_out.spelled:
        return 0.0
    places = np.array(sorted(held_out.spelled))
    costs = np.array([held_out.spelled[int(place)] for place in places])
    starts = np.cumsum(np.asarray(sizes, dtype=np.int64))[places] - np.asarray(sizes, dtype=np.int64)[places]
    bits += np.bincount(np.minimum(starts // BLOCK, len(bits) - 1), costs, minlength=len(bits))
    return float(costs.sum())
