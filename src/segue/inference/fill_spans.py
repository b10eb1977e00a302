"""Fill holes by writing: a model that learnt from hidden spans (T5) says what each of them hides.

    text      The [MASK] of the list is [MASK].
    source    The <span0> of the list is <span1> . STOP
    written   <span0> length <span1> 3 STOP             found by beam search, so that a hole may take several tokens

A text of several holes has one target, so that what is written in a later hole goes with what stands in those before.
The probability of a filler is that of all targets among the best that have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from segue.batches.codec import Sizes
from segue.batches.collate import mask_of, pad
from segue.data.example import Example
from segue.errors import InputError
from segue.inference.beam import Generated
from segue.inference.by_length import windows
from segue.inference.decode_settings import Config as Decode
from segue.inference.fill import HOLE, Filled, Holed, checked
from segue.inference.opened import Opened
from segue.tokens.tokenizer import Tokenizer

_FIRST = 16
"""Texts of the first window."""
_TOKENS = 16
"""Tokens that are written for a hole, at the most."""


def fill_spans(opened: Opened, texts: Iterable[str], top: int = 5) -> Iterator[Filled]:
    """Fill the holes of texts; yield one answer a text, in order."""
    sizes = opened.codec.sizes
    sentinels = [sizes.mark(name) for name in opened.model.sentinels(opened.model.config)]
    for _, window in windows((Example(text=text) for text in texts), _FIRST):
        for example in window:
            _check(example.text, len(sentinels))
        read = [checked(example.text, opened.codec, lambda hole: sentinels[hole]) for example in window]
        by_holes = sorted(range(len(read)), key=lambda i: len(read[i].places))
        for holes, some in groupby(by_holes, key=lambda i: len(read[i].places)):
            _fill(opened, [read[i] for i in some], sentinels, holes, top)
        yield from (one.result(0) for one in read)


def _check(text: str, sentinels: int) -> None:
    if (holes := len(HOLE.findall(text))) > sentinels:
        raise InputError(f"“{text[:60]}” has {holes} holes, and this model knows {sentinels} sentinels (model.spans).")


def _fill(opened: Opened, texts: Sequence[Holed], sentinels: list[int], holes: int, top: int) -> None:
    """Fill texts that have as many holes each."""
    from segue.inference.decode import best

    sizes, tokenizer = opened.codec.sizes, opened.codec.tokenizer
    rows = [np.concatenate([*text.sides, [sizes.stop]]).astype(np.int64) for text in texts]
    # The next sentinel may end a target, as in Google's models.
    forbid = [sizes.unk, *_others(sizes, sentinels[: holes + 1])]
    beam = max(2, top, opened.decode.beam)
    decode = Decode(beam=beam, n_best=top, max_tokens=_TOKENS * holes, length_ratio=0.0, length_penalty=0.0)
    decode = replace(decode, no_repeat=opened.decode.no_repeat)
    given = pad(rows), mask_of(rows), opened.device, forbid
    for text, ranked in zip(texts, best(opened.model, [[]] * len(rows), sizes, decode, *given), strict=True):
        written = [(_parts(one, sentinels, holes), float(np.exp(one.logprob))) for one in ranked]
        for hole in range(holes):
            found: dict[str, float] = {}
            for parts, p in written:
                filler = _text(parts[hole], tokenizer)
                found[filler] = found.get(filler, 0.0) + p
            others = {other: _text(written[0][0][other], tokenizer) for other in range(holes) if other != hole}
            first, *rest = found.items()
            text.take(hole, [first, *sorted(rest, key=lambda one: -one[1])], others)


def _others(sizes: Sizes, allowed: list[int]) -> list[int]:
    """The marks that are not written."""
    return [i for i in range(sizes.vocab_size, sizes.ids) if i not in allowed]


def _parts(target: Generated, sentinels: list[int], holes: int) -> list[list[int]]:
    """The tokens that a target lists for each hole; none for a hole that it does not name."""
    parts: list[list[int]] = [[] for _ in range(holes)]
    now = -1
    for token in target.ids:
        if token in sentinels:
            now = sentinels.index(token)
        elif 0 <= now < holes:
            parts[now].append(token)
    return parts


def _text(ids: list[int], tokenizer: Tokenizer) -> str:
    """The text of a hole, with the blank that belongs to its first token."""
    if not ids:
        return ""
    text = tokenizer.decode(ids)
    blank = tokenizer.name(ids[0]).startswith(" ") and not text.startswith(" ")
    return f" {text}" if blank else text
