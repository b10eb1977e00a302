"""Vectors of texts: the hidden states of one layer, pooled.

    mean     the mean of the states at the tokens of the text: the start, the ends and padding do not count
    first    the state at the first place, [CLS] of a BERT
    last     the state at the last token, which of a model that reads from left to right has seen the whole text

A text longer than the model's window is read in windows, one after the other: the mean is then of the tokens of all of
them, `first` is of the first window and `last` of the last one; a pair that is too long is read as two texts, one
after the other. A text without tokens has a vector of zeros. A translator gives its vector of a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.collate import mask_of, pad
from segue.batches.spelled_words import number_unknown, place_letters, take_letters, unknown_words
from segue.batches.store import Column
from segue.data.atomic import atomic_file
from segue.data.example import Example
from segue.errors import InputError, nearest
from segue.inference.alignment import pair_batch
from segue.inference.by_length import batches_by_length, windows
from segue.inference.opened import Opened
from segue.models.base import Body, EncoderDecoder, LanguageModel, MaskedModel, Model

Pooling = Literal["mean", "first", "last"]
Ids = NDArray[np.integer[Any]]
Vectors = NDArray[np.float32]

_TOKENS, _TOKENS_GPU = 1 << 10, 1 << 14
"""Tokens of one batch: more are no faster on a CPU."""
_LONGEST = 4096
"""Tokens of a window where the model has none."""
_SOURCES = 64
"""Sources of one batch of a translator."""
_NONE = Column.of([[]])
_FIRST = 256
"""Texts of the first window of texts."""


def gives_vectors(model: Model) -> bool:
    """Whether a model has vectors of texts."""
    return isinstance(_body(model), Body | EncoderDecoder)


def _body(model: Any) -> Any:
    """The model, or the body under its head."""
    return model if model.sizes.body is None else model.body


def text_vectors(
    opened: Opened, examples: Iterable[Example], pooling: str = "mean", layer: int | None = None
) -> Iterator[Vectors]:
    """Compute one vector a text, in order. `layer`: 0 is the sum of the tokens' vectors, by default the last layer."""
    _check(opened.model, pooling, layer)
    return _vectors(opened, examples, pooling, layer)


def _vectors(opened: Opened, examples: Iterable[Example], pooling: str, layer: int | None) -> Iterator[Vectors]:
    opened.model.eval()
    for _, window in windows(examples, _FIRST):
        if isinstance(_body(opened.model), Body):
            yield from _of_states(opened, window, pooling, layer)
        else:
            yield from _of_sources(opened, window)


def unit(x_D: Vectors) -> Vectors:
    """The vector with length 1; one of zeros stays."""
    return x_D / max(float(np.linalg.norm(x_D)), 1e-30)


def _check(model: Any, pooling: str, layer: int | None) -> None:
    kind, body = type(model).__module__.rpartition(".")[2], _body(model)
    if not gives_vectors(model):
        raise InputError(
            f"{kind} has no hidden states, and so no vectors of texts. Expected a run of bert, elmo, t5, gpt or "
            "rnn_lm, of a model that was fine-tuned from one, or of a translator."
        )
    if pooling not in get_args(Pooling):
        raise InputError(f"pooling={pooling} is not known.{nearest(pooling, get_args(Pooling))}")
    if not isinstance(body, Body):
        if (pooling, layer) != ("mean", None):
            raise InputError(f"{kind} has one vector for a source: leave out the pooling and the layer.")
        return
    if pooling == "first" and body.causal:
        raise InputError(f"{kind} reads from left to right: its first place has seen nothing. Expected mean or last.")
    if layer is not None and not 0 <= layer < body.depth:
        raise InputError(
            f"There is no layer {layer}: expected 0 (the vectors of the tokens) to {body.depth - 1} (the last)."
        )


# A body's states


class _Row(NamedTuple):
    """A text, or a window of it, as the model reads it."""

    text: int
    """The number of its text."""
    ids: Ids
    segments: Ids
    letters: Ids
    """Those of its unknown words, if the model reads them."""


def _of_states(opened: Opened, examples: Sequence[Example], pooling: str, layer: int | None) -> Vectors:
    """(N, D) pooled states, those of rows of like length computed together."""
    rows = [row for number, example in enumerate(examples) for row in _rows(opened, number, example, pooling)]
    sums_ND = np.zeros((len(examples), _body(opened.model).width), np.float32)
    counts_N = np.zeros(len(examples), np.float32)
    tokens = _TOKENS if opened.device == "cpu" else _TOKENS_GPU
    for places in batches_by_length([len(row.ids) for row in rows], tokens):
        some = [rows[place] for place in places]
        texts, (sums_BD, counts_B) = [row.text for row in some], _pooled(opened, some, pooling, layer)
        np.add.at(sums_ND, texts, sums_BD)
        np.add.at(counts_N, texts, counts_B)
    return np.asarray(sums_ND / np.maximum(counts_N, 1.0)[:, None], np.float32)


def _rows(opened: Opened, number: int, example: Example, pooling: str) -> Iterator[_Row]:
    """The rows of a text that its vector is pooled from: one, or its windows."""
    codec, window = opened.codec, _body(opened.model).window or _LONGEST
    texts = [text for text in (example.text, example.target) if text] or [""]
    if isinstance(opened.model, MaskedModel) and len(texts) == 1:
        texts = texts[0].split("\t", 1)
    elif codec.sizes.body is not None:  # as its rows are read in training
        texts = [codec.tokenizer.row(text) for text in texts]
    sides = [codec.tokenizer.encode(text).astype(np.int64) for text in texts]
    words: list[str] = []
    if codec.letters:  # numbered, so that they are known again after the text is cut
        words = unknown_words(texts, codec.tokenizer)
        flat = number_unknown(np.concatenate(sides), codec.sizes.ids)
        sides = np.split(flat, np.cumsum([len(side) for side in sides])[:-1])
    if isinstance(opened.model, LanguageModel) and not isinstance(opened.model, EncoderDecoder):
        start = [codec.sizes.start] * opened.decode.starts(sides[0].tolist())
        frame: Callable[..., tuple[Ids, Ids]] = partial(_begun, start)
        added = len(start)
    else:
        frame, added = codec.frame, codec.sizes.frame_places(len(sides))
    if sum(map(len, sides)) + added > window:
        room = window - added
        cut = [[side[begin : begin + room]] for side in sides for begin in range(0, len(side), room)]
        cut = {"mean": cut, "first": cut[:1], "last": cut[-1:]}[pooling]
    else:
        cut = [sides]
    for one in cut:
        ids, segments = frame(*one)
        text, letters = take_letters(Column.of([ids]), words, codec.sizes.ids) if words else (Column.of([ids]), _NONE)
        yield _Row(number, text.flat, segments, letters.flat)


def _begun(start: list[int], *sides: Ids) -> tuple[Ids, Ids]:
    """What a language model reads of a text, and segments, which it has not."""
    ids = np.concatenate([np.array(start, np.int64), *sides])
    return ids, np.zeros_like(ids)


def _pooled(opened: Opened, rows: Sequence[_Row], pooling: str, layer: int | None) -> tuple[Vectors, Vectors]:
    """The sum of the states of each row that count, and their number."""
    import torch

    hidden_BTD, counts_BT = _states(opened, rows, layer)
    some_B = np.asarray(counts_BT.any(1))
    if pooling != "mean":
        place_B = counts_BT.shape[1] - 1 - counts_BT[:, ::-1].argmax(1) if pooling == "last" else 0
        counts_BT = (np.arange(counts_BT.shape[1]) == np.reshape(place_B, (-1, 1))) & some_B[:, None]
    with torch.inference_mode():
        weights_BT = torch.from_numpy(counts_BT).to(hidden_BTD)
        sums_BD = torch.einsum("btd,bt->bd", hidden_BTD.float(), weights_BT.float()).cpu().numpy()
    return sums_BD, counts_BT.sum(1).astype(np.float32)


def _states(opened: Opened, rows: Sequence[_Row], layer: int | None) -> tuple[Any, NDArray[np.bool_]]:
    """The states of a layer, hidden_BTD, and which of them are of the text's own tokens."""
    import torch

    sizes, ids = opened.codec.sizes, [row.ids for row in rows]
    ids_BT, mask_BT = pad(ids), mask_of(ids)
    segments_BT = pad([row.segments for row in rows]) if any(row.segments.any() for row in rows) else None
    letters = [row.letters for row in rows]
    chars_BTC = place_letters(ids_BT == sizes.unk, letters) if opened.codec.letters else None
    given: dict[str, Any] = {"segments_BT": segments_BT, "chars_BTC": chars_BTC, "unpadded": bool(mask_BT.all())}
    batch = Batch(ids_BT, None, mask_BT, **given, right_padded=True)
    with torch.inference_mode():
        there, body = batch.to(opened.device), _body(opened.model)
        hidden_BTD = body.last_layer(there) if layer is None else body.encode(there)[layer]
    return hidden_BTD, (ids_BT > sizes.stop) & (ids_BT < sizes.vocab_size)


def token_states(opened: Opened, texts: Sequence[str], layer: int | None = None) -> Iterator[Vectors]:
    """Compute, for each text, the states of a layer at its tokens, (tokens, D); of a text longer than the window, at
    those of its first window."""
    _check(opened.model, "mean", layer)
    opened.model.eval()
    rows = [next(_rows(opened, number, Example(text), "first")) for number, text in enumerate(texts)]
    found: list[Vectors] = [np.empty(0, np.float32)] * len(rows)
    tokens = _TOKENS if opened.device == "cpu" else _TOKENS_GPU
    for places in batches_by_length([len(row.ids) for row in rows], tokens):
        hidden_BTD, counts_BT = _states(opened, [rows[place] for place in places], layer)
        hidden = hidden_BTD.float().cpu().numpy()
        for place, states_TD, own_T in zip(places, hidden, counts_BT, strict=True):
            found[place] = states_TD[own_T]
    yield from found


# A translator's sources


def _of_sources(opened: Opened, examples: Sequence[Example]) -> Iterator[Vectors]:
    import torch

    for first in range(0, len(examples), _SOURCES):
        batch = pair_batch(opened, [(example.text, "") for example in examples[first : first + _SOURCES]])
        with torch.inference_mode():
            there = batch.to(opened.device)
            x_BD = opened.model.sentence_vectors(there.source, there.source_mask)
        if x_BD is None:
            raise InputError("This translator has no vector for a source.")
        yield from x_BD.float().cpu().numpy()


# Writing


def write_npy(path: Path, vectors: Iterable[Vectors]) -> tuple[int, int]:
    """Write vectors as the rows of a NumPy file, one by one as they come; return rows and width."""
    rows = width = 0
    with atomic_file(path) as beside, beside.open("w+b") as file:
        for x_D in vectors:
            if not rows:
                width = len(x_D)
                _write_head(file, 0, width)
            file.write(np.ascontiguousarray(x_D, "<f4").tobytes())
            rows += 1
        file.seek(0)
        _write_head(file, rows, width)  # as long as the one before: numpy leaves room for more rows
    return rows, width


def _write_head(file: Any, rows: int, width: int) -> None:
    head = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(file, head)
