"""Alignment of a source with its target, word by word, from the attention of an encoder-decoder (Bahdanau et al. 2015).

alpha_TS, computed by teacher forcing, has a row for each token of the target and a column for each token of the source.
Of words (what stands between blanks) it has

    sum over the tokens of a source word     what a word gets is what its parts get together
    mean over the tokens of a target word    so that each row sums to 1 again

Of a sound or a picture the columns are the places that the model makes of it (inference/places.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.data.example import Example
from segue.errors import InputError
from segue.inference.opened import Opened
from segue.inference.places import Places, places_of
from segue.models.base import EncoderDecoder

Floats = NDArray[np.float64]
END = "</s>"
"""The name of the end of a text, where a model attends to it or predicts it."""
_ROWS = 64


class Alignment(NamedTuple):
    """How much of its attention each word of a target pays to each word or place of its source."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    """The words; the last may be END."""
    alpha_TS: Floats
    places: Places | None = None
    """Where the columns are in a sound or a picture; None: they are words."""

    @property
    def coverage(self) -> Floats:
        """The attention that each word of the source gets from all words of the target (Tu et al. 2016)."""
        return np.asarray(self.alpha_TS.sum(0))

    def links(self) -> list[Any]:
        """For each word of the target the pair (source word, target word) with the most attention, counted from 0; of a
        sound or a picture the word, and where it was heard or seen."""
        words, others = (len(side) - (side[-1:] == (END,)) for side in (self.target, self.source))
        if not others:
            return []
        if self.places is not None:
            return [self.places.link(self.target[t], self.alpha_TS[t]) for t in range(words)]
        return [(int(self.alpha_TS[t, :others].argmax()), t) for t in range(words)]

    def line(self) -> str:
        """Write the links in one line; of words in Pharaoh's format: "0-0 1-2"."""
        if self.places is not None:
            return self.places.line(self.links())
        return " ".join(f"{source}-{target}" for source, target in self.links())


def attends(model: Any) -> bool:
    """Whether a model is an encoder-decoder with attention: asks it to align two texts of one token."""
    if not isinstance(model, EncoderDecoder):
        return False
    one = np.zeros((1, 1), np.int64)
    source = np.zeros((1, 1, model.sizes.frame), np.uint8) if model.sizes.frame else one
    batch = Batch(one, one, one == 0, None, source, one == 0)
    return _alpha(model, batch, next(iter(model.parameters())).device) is not None  # type: ignore[attr-defined]


def check_attends(model: Any) -> None:
    """Refuse a model that has no alignment."""
    if not attends(model):
        raise InputError(
            "This model has no attention over a source: there is nothing to align. Expected a run of transformer, or "
            "of rnn_seq2seq with model.attention."
        )


def aligned(opened: Opened, pairs: Iterable[tuple[str, str]]) -> Iterator[Alignment]:
    """Align each source with its target. What the model does not read, since a text is too long, is left out; the
    alignment of a blank source is empty, since there is nothing to attend to."""
    check_attends(opened.model)
    source = iter(pairs)
    while group := list(islice(source, _ROWS)):
        found = _aligned(opened, [pair for pair in group if pair[0].strip()])
        for text, _ in group:
            yield next(found) if text.strip() else Alignment((), (), np.zeros((0, 0)))


def _aligned(opened: Opened, pairs: Sequence[tuple[str, str]]) -> Iterator[Alignment]:
    """Align some pairs together; no source is blank."""
    if not pairs:
        return
    batch = pair_batch(opened, pairs)
    alpha_BTS, real_BS = _alpha(opened.model, batch, opened.device), real_places(opened, batch)
    assert alpha_BTS is not None  # it attends
    for row, (text, target) in enumerate(pairs):
        yield of_words(opened, text, target, alpha_BTS[row][batch.mask_BT[row]][:, real_BS[row]])


def real_places(opened: Opened, batch: Batch) -> NDArray[np.bool_]:
    """mask_BS: which places that attention sees are no padding."""
    import torch

    return np.asarray(opened.model.source_mask(torch.from_numpy(batch.source_mask)).numpy())


def pair_batch(opened: Opened, pairs: Sequence[tuple[str, str]]) -> Batch:
    """Make the batch of some pairs for teacher forcing, cut where the model cuts."""
    examples = [Example(text=text, target=target) for text, target in pairs]
    return opened.task.collate(opened.task.encode(examples, opened.codec), opened.limit)


def of_words(opened: Opened, text: str, target: str, alpha_TS: Floats) -> Alignment:
    """Make the alignment of words from that of tokens; places of a sound or a picture stay as they are."""
    _, targets = opened.codec.tokenizer.pieces(target)
    rows = _grouped(target, targets, alpha_TS.shape[0])
    if opened.codec.sizes.frame:
        places, by_word = places_of(_attending(opened.model)), alpha_TS.T
        names = places.names(len(by_word)) if places else ()
    else:
        _, sources = opened.codec.source_tokenizer.pieces(text)
        columns = _grouped(text, sources, alpha_TS.shape[1])
        by_word = np.array([alpha_TS[:, tokens].sum(1) for _, tokens in columns]).reshape(len(columns), len(alpha_TS))
        places, names = None, tuple(word for word, _ in columns)
    alpha = np.array([by_word[:, tokens].mean(1) for _, tokens in rows]).reshape(len(rows), len(by_word))
    return Alignment(names, tuple(word for word, _ in rows), alpha, places)


def _attending(model: Any) -> Any:
    """The model itself; of an ensemble the first part with attention, of whose places the alignment is."""
    parts = [part for part in model.modules() if isinstance(part, EncoderDecoder) and part is not model]
    return next((part for part in parts if attends(part)), model)


def _grouped(text: str, surfaces: Sequence[str], read: int) -> list[tuple[str, list[int]]]:
    """The words of a text, each with the places of its tokens among the `read` ones; what comes after them is END."""
    words, numbers = text.split(), word_numbers(text, surfaces)[:read]
    found = [(word, [i for i, number in enumerate(numbers) if number == n]) for n, word in enumerate(words)]
    ends = list(range(len(numbers), read))
    return [(word, tokens) for word, tokens in [*found, (END, ends)] if tokens]


def word_numbers(text: str, surfaces: Sequence[str]) -> list[int]:
    """For each token of a text the number of its word; a token of blanks belongs to the word after it."""
    ends = np.cumsum([len(word) for word in text.split()])
    numbers, passed = [], 0
    for surface in surfaces:
        numbers.append(min(int(np.searchsorted(ends, passed, "right")), len(ends) - 1))
        passed += len("".join(surface.split()))
    return numbers


def _alpha(model: Any, batch: Batch, device: Any) -> Floats | None:
    """(B, T, S) the model's own alignment; None: it has no attention."""
    import torch

    model.eval()
    with torch.inference_mode():
        alpha_BTS = model.alignment(batch.to(device))
    return None if alpha_BTS is None else np.asarray(alpha_BTS.double().cpu().numpy())
