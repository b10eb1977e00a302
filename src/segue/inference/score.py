"""Score a text in bits per byte: bits of a held-out text over its bytes, each token scored once.

With data.carry, or if it is one unit, a text is read as one stream with the state carried along. Without, each unit is
read by itself: it begins with STOP and a fresh state, as a row beside units of about the same length. A text or a unit
that is very long is split into rows that are read in parallel; each row first reads some tokens before its own, so that
it begins with a warm state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate, pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.encode import HeldOutText
from segue.batches.scorer import CARRIED
from segue.batches.spelled_words import UnknownWords
from segue.batches.unit_rows import SPAN, unit_borders
from segue.tokens.file_format import STOP, UNK

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
"""Tokens in the windows or units of one batch."""
_WIDEST = 1024
"""Tokens that a row reads in one batch; then its state is carried to the next."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Line:
    """One scored text: its tokens, their natural log probabilities, and the totals; if `ends`, the last token is the
    end of the text, an empty string."""

    text: str
    tokens: list[str]
    logprobs: list[float]
    token_bits: list[float]
    """Bits of each token, with those of spelling it if it is unknown."""
    logprob: float
    bits: float
    """All bits, including those of spelling unknown words."""
    bytes: int
    ends: bool = True
    start_mark: bool = True
    """Whether the start mark was read before the text, which gives its first token a probability; if not, the text goes
    on from the one before."""

    @property
    def perplexity(self) -> float:
        """Perplexity per token; spelling is not in it."""
        return perplexity_of(-self.logprob / max(1, len(self.tokens)))

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "perplexity": self.perplexity}

    def without_end(self) -> Line:
        """The same without the end: how likely the text is as a beginning."""
        logp, bits = self.logprobs[:-1], self.token_bits[:-1]
        totals = math.fsum(logp), math.fsum(bits), len(self.text.encode())
        return Line(self.text, self.tokens[:-1], logp, bits, *totals, ends=False, start_mark=self.start_mark)


@dataclass(frozen=True)
class PseudoLine:
    """One text whose tokens were masked in turn. These are no probabilities of the text: they stand in no column with
    log probabilities or bits."""

    text: str
    tokens: list[str]
    pseudo_log_likelihoods: list[float | None]
    """log p of each token given all others; None: unknown to the model, and given."""
    pseudo_log_likelihood: float

    @property
    def scored(self) -> int:
        return sum(logp is not None for logp in self.pseudo_log_likelihoods)

    @property
    def pseudo_perplexity(self) -> float:
        """e to the mean -log p of a scored token."""
        return perplexity_of(-self.pseudo_log_likelihood / max(1, self.scored))

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "pseudo_perplexity": self.pseudo_perplexity}


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
    impossible: tuple[int, ...] = ()
    """The first ids to which the model gave probability 0, each once."""

    @property
    def bits_per_byte(self) -> float:
        return float(self.bits.sum() / self.block_bytes.sum())

    @property
    def perplexity(self) -> float:
        """Perplexity as in the literature: the end of each unit is a token, its beginning is not, UNK is a word."""
        return perplexity_of(self.nats / self.tokens)


def perplexity_of(nats: float) -> float:
    """Compute the perplexity from the mean -log p of a token."""
    return math.exp(nats) if nats < 700 else math.inf


def score_held_out(
    model: Any,
    held_out: HeldOutText,
    vocab_size: int,
    device: str = "cpu",
    row: int = LONG_ROW,
    done: Callable[[float], None] = lambda share: None,
) -> Scored:
    """Score every token of a held-out text once; a text or unit of several times `row` tokens in so many rows."""
    tokens, sizes = held_out.store.tokens, held_out.store.columns["bytes"].flat
    blocks = max(1, math.ceil(held_out.bytes / BLOCK))
    bits, nats, zeros, scored = np.zeros(blocks), 0.0, 0, 0
    impossible: tuple[int, ...] = ()
    corpora = list(pairwise((0, *held_out.ends))) if len(held_out.ends) > 1 else []
    nats_of = [0.0] * len(corpora)
    starts = _ByteStarts(sizes)
    reading = Reading(model, held_out, vocab_size, device, row)
    for first, logs in reading:
        places = np.minimum(starts.of(first, len(logs)) // BLOCK, blocks - 1)
        bits += np.bincount(places, -logs / math.log(2), minlength=blocks)
        nats -= float(logs.sum())
        for i, (low, high) in enumerate(corpora):
            nats_of[i] -= float(logs[max(low - first, 0) : max(high - first, 0)].sum())
        if len(never := first + np.flatnonzero(np.isneginf(logs))):
            zeros += len(never)
            new = np.asarray(tokens[never[: 10 * _SHOWN]]).tolist()
            impossible = tuple(dict.fromkeys([*impossible, *new]))[:_SHOWN]
        scored += len(logs)
        done(scored / max(1, len(tokens)))
    spelling = _add_spelling(bits, held_out, sizes)
    block_bytes = np.full(blocks, float(BLOCK))
    block_bytes[-1] = held_out.bytes - BLOCK * (blocks - 1)
    parts = tuple(_part(held_out, low, high, part) for (low, high), part in zip(corpora, nats_of, strict=True))
    counts = len(tokens), spelling, len(held_out.spelled), zeros
    return Scored(bits, block_bytes, nats, *counts, reading.way, parts, impossible)


def _part(held_out: HeldOutText, low: int, high: int, nats: float) -> PartScored:
    spelled = math.fsum(cost for place, cost in held_out.spelled.items() if low <= place < high)
    size = int(np.asarray(held_out.store.columns["bytes"].flat[low:high], dtype=np.int64).sum())
    return PartScored(nats / math.log(2) + spelled, size, nats, high - low)


class Reading:
    """Reads a held-out text by a model: yields (place, log p of the tokens from there on), each token once."""

    def __init__(
        self, model: Any, held_out: HeldOutText, vocab_size: int, device: str = "cpu", row: int = LONG_ROW
    ) -> None:
        self.model, self.held_out, self.vocab_size, self.device, self.row = model, held_out, vocab_size, device, row
        self.unknown = UnknownWords.of(held_out.store.columns)
        self.budget = max(16, min(_TOGETHER, _CELLS // vocab_size))
        """Tokens of a batch: their logits must fit into memory."""
        self.rows = 1
        """The most rows that one text or unit was read in."""
        self.units = 1

    def __iter__(self) -> Iterator[tuple[int, Floats]]:
        tokens = self.held_out.store.tokens
        if self.held_out.carry:
            yield from self._stream(0, len(tokens))
            return
        self.units = 0
        for borders in _groups(tokens, self.held_out.ends, 2 * self.row):
            self.units += len(borders) - 1
            first, last = int(borders[0]), int(borders[-1])
            if len(borders) == 2 and (last - first >= 2 * self.row or last - first == len(tokens)):
                yield from self._stream(first, last)
            elif self.model.in_order:
                for begin, end in pairwise(borders.tolist()):
                    yield from self._stream(begin, end)
            else:
                unknown = self.unknown and self.unknown.after(first)
                yield first, self._side_by_side(np.asarray(tokens[first:last], np.int64), borders - first, unknown)

    @property
    def way(self) -> str:
        """How the text was read, in words for the tables of figures."""
        read, unit = self.model.way, self.held_out.unit
        warm = f"{self.rows} rows, each with {_WARM:,} tokens before it for context"
        if self.units <= 1:
            return f"one stream, {read}" if self.rows == 1 else f"{warm}, {read}"
        way = [f"each {unit} by itself", *([] if read == CARRIED else [read])]
        way += [f"long ones in up to {warm}"] if self.rows > 1 else []
        way += ["in order, keeping what it has learnt"] if self.model.in_order else []
        return ", ".join(way)

    def _stream(self, begin: int, end: int) -> Iterator[tuple[int, Floats]]:
        """Read one text or unit, a very long one in several rows."""
        one_row = _window(self.model) or self.model.in_order
        rows = 1 if one_row else max(1, min(64, (end - begin) // self.row))
        self.rows = max(self.rows, rows)
        tokens, unknown = self.held_out.store.tokens[begin:end], self.unknown and self.unknown.after(begin)
        for firsts, logp, real in stream_logprobs(self.model, tokens, rows, self.vocab_size, self.device, unknown):
            for first, logs, seen in zip(firsts, logp, real, strict=True):
                yield begin + first, logs[seen]

    def _side_by_side(self, text: Ints, borders: Ints, unknown: UnknownWords | None) -> Floats:
        """Compute log p of the tokens of some units, each a row; units of about the same length share a batch."""
        found = np.zeros(len(text))
        before = np.concatenate(([STOP], text[:-1]))
        before[borders[:-1]] = STOP  # also where the corpus before was cut and has none
        read = self._read_windows if _window(self.model) else partial(self._read_rows, unknown)
        begins, lengths, firsts = _pieces(borders, _window(self.model))
        order = np.argsort(-lengths, kind="stable")
        done = 0
        while done < len(order):
            together = max(1, self.budget // min(int(lengths[order[done]]), _WIDEST))
            some = order[done : done + together]
            read((before, text), begins[some], lengths[some], firsts[some], found)
            done += together
        return found

    def _read_rows(
        self,
        unknown: UnknownWords | None,
        text: tuple[Ints, Ints],
        begins: Ints,
        lengths: Ints,
        firsts: Ints,
        found: Floats,
    ) -> None:
        """Read one batch of units, the longest first; long ones in several steps, with the state carried on."""
        state: Any = None
        longest, width = int(lengths[0]), min(_WIDEST, self.budget)
        for begin in range(0, longest, width):
            columns = np.arange(begin, min(begin + width, longest))
            real = columns < lengths[:, None]
            mask = real | (columns == begin)  # a row that has ended reads on, since no row of a batch may be empty
            fresh, last = np.full(len(begins), begin == 0), begin + width >= longest
            batch = _units(text, begins, columns, real)
            batch = replace(batch, mask_BT=mask, fresh_B=fresh, unpadded=bool(mask.all()), right_padded=last)
            places = begins[:, None] + columns
            batch = with_letters(batch, unknown, places - 1)
            logp, state = self.model.logprobs(batch.to(self.device) if _is_network(self.model) else batch, state)
            found[places[real]] = np.asarray(logp.cpu() if _is_network(self.model) else logp, np.float64)[real]

    def _read_windows(self, text: tuple[Ints, Ints], begins: Ints, lengths: Ints, firsts: Ints, found: Floats) -> None:
        """Read one batch of windows, the longest first; each predicts its tokens from `firsts` on."""
        from segue.models.network import Network

        columns = np.arange(int(lengths[0]))
        real = columns < lengths[:, None]
        batch = _units(text, begins, columns, real)
        logp = Network.logprobs(self.model, batch.to(self.device))[0].cpu().numpy()
        new = real & (columns >= firsts[:, None])
        found[(begins[:, None] + columns)[new]] = logp[new]


def _groups(tokens: NDArray[Any], ends: Sequence[int], long: int) -> Iterator[Ints]:
    """Yield the borders of consecutive units; a long unit is a group of its own."""
    for borders in unit_borders(tokens, ends):
        alone = np.flatnonzero(np.diff(borders) >= long)
        for group in np.split(np.arange(len(borders) - 1), np.unique(np.concatenate((alone, alone + 1)))):
            if len(group):
                yield borders[group[0] : group[-1] + 2]


def _pieces(borders: Ints, window: int) -> tuple[Ints, Ints, Ints]:
    """List the rows that read some units: where each begins, how long it is, and its first token that is new.

    A row is a unit, or for a context window a window of one, which begins in the middle of the one before.
    """
    lengths = np.diff(borders)
    if not window:
        return borders[:-1], lengths, np.zeros_like(lengths)
    half = window - window // 2
    counts = 1 + np.maximum(0, -(-(lengths - window) // half))
    unit = np.repeat(np.arange(len(lengths)), counts)
    offsets = half * (np.arange(len(unit)) - np.repeat(np.cumsum(counts) - counts, counts))
    sizes = np.minimum(lengths[unit] - offsets, window)
    return borders[unit] + offsets, sizes, np.where(offsets > 0, window // 2, 0)


def _units(text: tuple[Ints, Ints], begins: Ints, columns: Ints, real: Bools) -> Batch:
    """Make a batch of rows that begin at `begins`; `text` has, for each place, the token before it and its own."""
    places = np.where(real, begins[:, None] + columns, 0)
    before, own = (np.where(real, tokens[places], fill) for tokens, fill in zip(text, (STOP, IGNORE), strict=True))
    return Batch(before, own, real, unpadded=bool(real.all()))


def with_letters(batch: Batch, unknown: UnknownWords | None, places_BT: Ints) -> Batch:
    """Give a batch of the tokens at some places of a text the letters of its unknown words, if they were kept."""
    if unknown is None:
        return batch
    return replace(batch, chars_BTC=unknown.chars(places_BT, batch.mask_BT & (batch.tokens_BT == UNK)))


def texts_logprobs(
    model: Any,
    texts: Iterable[NDArray[Any]],
    vocab_size: int,
    device: str,
    carry: bool,
    unknown: Iterable[UnknownWords | None] = repeat(None),
) -> Iterator[Floats]:
    """Yield log p of the tokens of each text: by itself, or with `carry` read on from the texts before. `unknown`: the
    unknown words of each, for a model that reads letters."""
    state: Any = None
    for text, words in zip(texts, unknown, strict=False):
        if not carry:
            parts = stream_logprobs(model, text, 1, vocab_size, device, words)
            yield np.concatenate([rows[0][real[0]] for _, rows, real in parts])
            continue
        found = []
        width = max(16, min(_WIDEST, _CELLS // vocab_size))
        for begin in range(0, len(text), width):
            cut = _cut(text, begin, min(begin + width, len(text)))[None]
            places = np.arange(begin - 1, begin + cut.shape[1] - 2)[None]
            batch = with_letters(_batch(cut, cut[:, 1:], state is None, 1), words, places)
            logp, state = model.logprobs(batch.to(device) if _is_network(model) else batch, state)
            found.append(np.asarray(logp.cpu() if _is_network(model) else logp, np.float64)[0])
        yield np.concatenate(found)


def stream_logprobs(
    model: Any,
    tokens: NDArray[Any],
    rows: int,
    vocab_size: int,
    device: str = "cpu",
    unknown: UnknownWords | None = None,
) -> Iterator[tuple[list[int], Floats, NDArray[np.bool_]]]:
    """Yield, batch by batch, (place of each row's first token, log p of each row's next tokens, which are real).
    `unknown`: the unknown words of the text, for a model that reads letters."""
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
            batch = with_letters(batch, unknown, np.array(firsts)[:, None] + np.arange(begin, end) - 1)
            state = model.logprobs(batch.to(device) if _is_network(model) else batch, state)[1]
    for begin in range(0, length, window):
        end = min(length, begin + window)
        cut = np.stack([_cut(tokens, f + begin, f + end) for f in firsts])
        real = np.array([np.arange(f + begin, f + end) < min(f + length, len(tokens)) for f in firsts])
        fresh = begin == 0
        batch = _batch(cut, np.where(real, cut[:, 1:], IGNORE), fresh, rows)
        batch = with_letters(batch, unknown, np.array(firsts)[:, None] + np.arange(begin, end) - 1)
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


class _ByteStarts:
    """The byte at which any token begins; only sums over SPAN tokens are kept, so that memory hardly grows."""

    def __init__(self, sizes: NDArray[Any]) -> None:
        self.sizes = sizes
        totals = [_total(sizes[begin : begin + SPAN]) for begin in range(0, len(sizes), SPAN)]
        self.sums = [0, *accumulate(totals)]
        self.known: dict[int, int] = {}
        """Where the parts that were asked for have ended: most parts go on from there."""

    def of(self, first: int, count: int) -> Ints:
        """Return the first byte of each of `count` tokens."""
        near = first // SPAN
        start = self.known.pop(first, None)
        if start is None:
            start = self.sums[near] + _total(self.sizes[near * SPAN : first])
        lengths = np.asarray(self.sizes[first : first + count], dtype=np.int64)
        ends: Ints = start + np.cumsum(lengths)
        self.known[first + count] = int(ends[-1]) if count else start
        return ends - lengths


def _total(sizes: NDArray[Any]) -> int:
    return int(np.asarray(sizes, dtype=np.int64).sum())


def _add_spelling(bits: Floats, held_out: HeldOutText, sizes: NDArray[Any]) -> float:
    if not held_out.spelled:
        return 0.0
    places = np.array(sorted(held_out.spelled))
    costs = np.array([held_out.spelled[int(place)] for place in places])
    starts = np.cumsum(np.asarray(sizes, dtype=np.int64))[places] - np.asarray(sizes, dtype=np.int64)[places]
    bits += np.bincount(np.minimum(starts // BLOCK, len(bits) - 1), costs, minlength=len(bits))
    return float(costs.sum())


_SHOWN = 3
"""Tokens of probability 0 that are named in a result."""
