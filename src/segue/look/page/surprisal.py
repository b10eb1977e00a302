"""One paragraph, coloured word by word by how much each word surprised a model, models side by side.

The surprisal of a word is -log2 p(word | what stands before it), in bits. All models share one scale of nine
shades, from 0 to a round number that only one word in twenty exceeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from segue.look.page.markup import folded, swatch, text

SHADES = 9

Words = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Reading:
    """What one model paid for each word, as the words stand in the text with their blanks."""

    name: str
    colour: int
    words: Words


def shade(bits: float, top: float) -> str:
    """The class of a word: s0 … s8, or sx where the model held the word to be impossible."""
    if math.isinf(bits):
        return "sx"
    if math.isnan(bits):
        return "s0"
    return f"s{min(SHADES - 1, max(0, int(SHADES * bits / top)))}"


def top_of_scale(readings: Sequence[Reading]) -> float:
    """A round number of bits above 19 words in 20."""
    bits = sorted(b for reading in readings for _, b in reading.words if math.isfinite(b))
    high = bits[int(0.95 * (len(bits) - 1))] if bits else 1.0
    return float(next((top for top in (1, 2, 4, 6, 9, 12, 15, 18, 24, 30, 36, 45) if top >= high), math.ceil(high)))


def surprisal(readings: Sequence[Reading], most: int) -> str:
    """The legend and one coloured text a model; those after the first `most` are folded away."""
    shown = [reading for reading in readings if reading.words]
    top = top_of_scale(shown)
    return _legend(top) + folded([_panel(reading, top) for reading in shown], "panels readings", most)


def _legend(top: float) -> str:
    steps = "".join(f'<i class="s{k}"></i>' for k in range(SHADES))
    return f'<p class="shades"><span>0 bits</span>{steps}<span>{top:g} bits and more</span></p>'


def _panel(reading: Reading, top: float) -> str:
    finite = [b for _, b in reading.words if math.isfinite(b)]
    total = sum(finite) if len(finite) == len(reading.words) else math.inf
    each = f"{total / len(reading.words):.1f}" if math.isfinite(total) else "∞"
    words = "".join(_word(word, bits, top) for word, bits in reading.words)
    return (
        f'<article class="panel"><h3>{swatch(reading.colour)}{text(reading.name)}'
        f'<output>{each} bits a word</output></h3><p class="words" dir="auto">{words}</p></article>'
    )


def _word(word: str, bits: float, top: float) -> str:
    """The word in its shade, its blanks outside; lone blanks and the end of the text get a sign to carry it."""
    bare = word.strip(" \n\t\r")
    if bare:
        before, _, after = word.partition(bare)
    else:
        before, bare, after = "", "↵" if "\n" in word else "␣" if word else "∎", word
    said = "impossible (∞ bits)" if math.isinf(bits) else f"{bits:.1f} bits"
    return f'{text(before)}<span class="{shade(bits, top)}" title="{said}">{text(bare)}</span>{text(after)}'
