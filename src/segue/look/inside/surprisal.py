"""Surprisal: -log2 p of each token of a text, given what stands before it, in bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from segue.inference.opened import Opened
from segue.inference.score import stream_logprobs
from segue.look.inside.next import applies as predicts
from segue.look.inside.view import View


def applies(model: Any) -> bool:
    """Language models whose scores are probabilities."""
    return predicts(model) and bool(model.normalised)


def view(opened: Opened, text: str) -> View:
    """Every token with its bits; the last one is the end of the text."""
    codec = opened.codec
    if codec.data.canonical:
        text = " ".join(text.split())
    ids, surfaces = codec.tokenizer.pieces(text)
    stream = np.append(ids, codec.sizes.stop)
    unknown = codec.unknown_words(text, ids)
    parts = stream_logprobs(opened.model, stream, 1, codec.sizes.vocab_size, opened.device, unknown)
    logp = np.concatenate([rows[0][real[0]] for _, rows, real in parts])
    bits = -logp / math.log(2)
    note = f"{bits.sum():.2f} bits in all, {bits.mean():.2f} a token; the end of the text is a token too."
    if codec.speller:
        places = np.flatnonzero(ids == codec.tokenizer.unk)
        for place, word in zip(places, codec.tokenizer.unknown(text, ids), strict=True):
            bits[place] += codec.speller.bits(word)
        if places.size:
            note = f"{bits.sum():.2f} bits in all, with those for spelling {places.size:,} unknown tokens."
    return View("text", "Surprisal", note, ("surprisal",), ("bits",), (*surfaces, "</s>"), bits.reshape(1, 1, -1))
