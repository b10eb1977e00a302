"""The scale, bits per byte: bits of a held-out text over its bytes, each token scored once.

Text is read as one stream with the state carried along. Long texts are read in rows side by side; each
row first reads the tokens before it, so that it begins with a state that knows where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.encode import HeldText

BLOCK = 2048
"""Bytes of raw text in a block of the bootstrap."""
LONG_ROW = 1 << 17
"""Tokens that one row reads at least where the figure is to be exact."""
SHORT_ROW = 1 << 12
"""The same while a model trains: many short rows are faster, and nearly the same."""
"""How a text is read by a model that does not say another `way`."""
_WARM = 1024
_CELLS = 1 << 24
_TOGETHER = 1 << 14
"""Tokens of windows that are read at once."""

Floats = NDArray[np.float64]


class PartScored(NamedTuple):
    """The same of one corpus of several."""

    bits: float
    bytes: int
    nats: float
    tokens: int


class Scored(NamedTuple):
    """What a model makes of a text."""

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
    """Tokens to which the model gave no probability at all."""
    way: str
    parts: tuple[PartScored, ...] = ()
    """Corpus by corpus, where there are several."""

    @property
    def bits_per_byte(self) -> float:
        return float(self.bits.sum() / self.block_bytes.sum())

    @property
    def perplexity(self) -> float:
        """As the literature counts: the end of each unit is a token, its beginning is not, UNK is a word."""
        mean = self.nats / self.tokens
        return math.exp(mean) if mean < 700 else math.inf


def score_held(
    model: Any,
    held: HeldText,
    vocab_size: int,
    device: str = "cpu",
    row: int = LONG_ROW,
    done: Callable[[float], None] = lambda share: None,
) -> Scored:
    """Scores every token of a held-out text once, in rows of at least `row` tokens."""
    tokens, sizes = held.store.tokens, held.store.columns["bytes"].flat
    blocks = max(1, math.ceil(held.bytes / BLOCK))
    bits, nats, zeros = np.zeros(blocks), 0.0, 0
    corpora = list(pairwise((0, *held.ends))) if len(held.ends) > 1 else []
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
    spelling = _add_spelling(bits, held, sizes)
    block_bytes = np.full(blocks, float(BLOCK))
    block_bytes[-1] = held.bytes - BLOCK * (blocks - 1)
    read = model.way
    way = f"one stream, {read}" if rows == 1 else f"{rows} rows, each begun {_WARM} tokens before its own, {read}"
    parts = tuple(_part(held, low, high, part) for (low, high), part in zip(corpora, nats_of, strict=True))
    return Scored(bits, block_bytes, nats, len(tokens), spelling, len(held.spelled), zeros, way, parts)


def _part(held: HeldText, low: int, high: int, nats: float) -> PartScored:
    spelled = math.fsum(cost for place, cost in held.spelled.items() if low <= place < high)
    size = int(np.asarray(held.store.columns["bytes"].flat[low:high], dtype=np.int64).sum())
    return PartScored(nats / math.log(2) + spelled, size, nats, high - low)


def stream_logprobs(
    model: Any, tokens: NDArray[Any], rows: int, vocab_size: int, device: str = "cpu"
) -> Iterator[tuple[list[int], Floats, NDArray[np.bool_]]]:
    """(place of each row's first token, log p of the next tokens of each row, which of them are real), in turn."""
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
    """One stream by a model that sees a window: it knows nothing of what stands before one, so that many go at once.

    A window begins in the middle of the one before. It predicts its newer half, the first of all predicts both.
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
    """tokens[begin - 1:end] with STOP, which is 0, where there is nothing."""
    out = np.zeros(end - begin + 1, np.int64)
    first = max(0, begin - 1)
    found = tokens[first : max(first, min(end, len(tokens)))]
    shift = first - (begin - 1)
    out[shift : shift + len(found)] = found
    return out


def _byte_starts(sizes: NDArray[Any], tokens: int, rows: int) -> list[int]:
    """The byte at which each row begins."""
    length = math.ceil(tokens / rows)
    starts, total = [], 0
    for r in range(rows):
        starts.append(total)
        total += int(np.asarray(sizes[r * length : (r + 1) * length], dtype=np.int64).sum())
    return starts


def _add_spelling(bits: Floats, held: HeldText, sizes: NDArray[Any]) -> float:
    if not held.spelled:
        return 0.0
    places = np.array(sorted(held.spelled))
    costs = np.array([held.spelled[int(place)] for place in places])
    starts = np.cumsum(np.asarray(sizes, dtype=np.int64))[places] - np.asarray(sizes, dtype=np.int64)[places]
    bits += np.bincount(np.minimum(starts // BLOCK, len(bits) - 1), costs, minlength=len(bits))
    return float(costs.sum())
