"""Sounds and what they spell, made by seed: a letter is a tone, so that the best possible score is known exactly.

    sentence -> NAME RESTS | NAME ACTS THING | NAME ACTS COLOUR THING | NAME ACTS NUMBER COLOUR THING

Each letter has a pitch of its own, with a weaker octave above it, and a space is a pause. Tempo, pitch, loudness and a
little noise differ from sound to sound. Names, things and grey are written in two ways, as grey and gray, and sound the
same: the way is drawn, 1/2 each, so that p(text | sound) is 2^-(such words), and all spellings of a sentence are as
right.
Sound and text are functions of the seed and the number of the sentence alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from segue.data.example import Example

SENTENCES = 4000
SHORTEST, LONGEST = 0.050, 0.070
"""Seconds that a letter sounds, from sentence to sentence."""
BEND = 0.015
"""Pitches are up to this share higher or lower, from sentence to sentence."""
QUIETEST = 0.1
"""Loudness goes from this to 1."""
NOISE = 0.05
"""The noise, as a share of the tone's loudness."""

WORDS = {
    "name": ("erik", "jon", "nik", "sara"),
    "rests": ("naps", "sings"),
    "acts": ("finds", "draws", "moves", "hides"),
    "number": ("two", "six", "nine", "four"),
    "colour": ("red", "blue", "pink", "grey"),
    "thing": ("disks", "drafts", "kerbs", "molds", "plows", "tyres"),
}
"""The words of each class, equally likely, as they sound: no letter comes twice in a row."""
SENTENCE = (
    (0.1, ("name", "rests")),
    (0.2, ("name", "acts", "thing")),
    (0.3, ("name", "acts", "colour", "thing")),
    (0.4, ("name", "acts", "number", "colour", "thing")),
)
"""The classes of a sentence's words, and their probabilities."""
SPELLINGS = {
    "erik": ("erik", "eric"),
    "jon": ("jon", "john"),
    "nik": ("nik", "nick"),
    "sara": ("sara", "sarah"),
    "grey": ("grey", "gray"),
    "disks": ("disks", "discs"),
    "drafts": ("drafts", "draughts"),
    "kerbs": ("kerbs", "curbs"),
    "molds": ("molds", "moulds"),
    "plows": ("plows", "ploughs"),
    "tyres": ("tyres", "tires"),
}
"""Words that are written in two ways."""
_WAYS = {spelling: spellings for spellings in SPELLINGS.values() for spelling in spellings}


def _pitches() -> dict[str, float]:
    """Give each letter a pitch from 300 Hz up: 50 Hz apart, and above 833 Hz 6 %, so that bent ones differ too."""
    pitches: dict[str, float] = {}
    hertz = 300.0
    for letter in sorted({letter for words in WORDS.values() for word in words for letter in word}):
        pitches[letter] = hertz
        hertz += max(50.0, 0.06 * hertz)
    return pitches


PITCHES = _pitches()
"""All below 1700 Hz, so that their octaves are below half of a rate of 8 kHz too."""


def examples(seed: int) -> Iterator[Example]:
    """Yield the corpus of this seed: names of sounds, and what they spell."""
    for number in range(1, SENTENCES + 1):
        words = _words(_draws(seed, number, "text"))
        draw = _draws(seed, number, "spelling")
        ways = [SPELLINGS.get(word, (word,)) for word in words]
        target = " ".join(spellings[int(draw.random() * len(spellings))] for spellings in ways)
        also = tuple(text for text in map(" ".join, product(*ways)) if text != target)
        yield Example(f"tones:{number}", target=target, path="tones", line=number, also=also)


def sound(seed: int, number: int, rate: int) -> NDArray[np.float32]:
    """Make the sound of a sentence: a row of samples for each letter, and for the pauses between, before and after."""
    text = f" {' '.join(_words(_draws(seed, number, 'text')))} "
    draw = _draws(seed, number, "sound")
    length = round(rate * draw.uniform(SHORTEST, LONGEST))
    bend = 1 + draw.uniform(-BEND, BEND)
    hertz = np.array([PITCHES.get(letter, 0.0) * bend for letter in text], np.float32)
    phases = hertz[:, None] * np.arange(length, dtype=np.float32) * np.float32(2 * np.pi / rate)
    swell = np.sin(np.pi * (np.arange(length, dtype=np.float32) + 0.5) / length) ** 0.5  # no clicks between letters
    tones = (np.sin(phases) + 0.5 * np.sin(2 * phases)) * swell
    noise = np.random.RandomState(draw.getrandbits(32)).random_sample(tones.size)  # its numbers are fixed for ever
    samples = tones.reshape(-1) + NOISE * (2 * noise - 1)
    made: NDArray[np.float32] = (samples * 0.5 * QUIETEST ** draw.random()).astype(np.float32)
    return made


def best(examples: Iterable[Example]) -> dict[str, float]:
    """Compute the best possible scores: all is certain but the spelling of words that have two, a bit each."""
    targets = [example.target for example in examples]
    bits = sum(word in _WAYS for target in targets for word in target.split(" "))
    size = sum(len(target.encode()) + 1 for target in targets)
    return {"wer": 0.0, "cer": 0.0, "exact": 1.0, "bits_per_byte": bits / size}


def _draws(seed: int, number: int, what: str) -> random.Random:
    return random.Random(f"tones {seed} {number} {what}")


def _words(draw: random.Random) -> list[str]:
    """Draw a sentence, as it sounds."""
    classes = draw.choices([names for _, names in SENTENCE], [p for p, _ in SENTENCE])[0]
    return [WORDS[name][int(draw.random() * len(WORDS[name]))] for name in classes]
