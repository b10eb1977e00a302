"""The built-in corpus `shapes`: drawn scenes and sentences about them, made by seed.

    a red circle left of a small blue square

A scene has two things of different colours. Either both are still, and one of two axes plainly decides how they stand
to each other (left of, right of, above, below); or, in one scene of ten, there are four frames, in which one moves:

    a red circle moves up and a small blue square stays

A sentence is drawn in three ways that the picture does not decide: which thing comes first, and whether the size of
each is said. So each scene has eight sentences, equally likely and equally right: p(sentence | picture) = 1/8. All else
can be seen, so that the best possible score is known exactly.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.data.example import Example
from segue.data.permute import mix

SENTENCES = 5000
FRAMES = 4
"""Frames of a scene in which a thing moves."""
MOVING = 0.1
"""The share of scenes in which a thing moves."""
SIDE = 64
"""Places and sizes are in pixels of a picture of so many a side."""
GAP = 5
"""At least so many pixels part the two things."""
ASIDE = 5
"""On the axis that does not decide, the centres of still things differ by at most so many pixels."""
PATH = 30
"""How many pixels a moving thing moves in all."""
NOISE = 6
"""Each value of a pixel is changed by at most so much."""

KINDS = ("circle", "square", "triangle", "cross")
SIZES = {"small": (6.25, 7.0), "large": (11.0, 12.0)}
"""From the centre of a thing to its edge: the least and the most."""
COLOURS = {
    "red": (215, 40, 40),
    "green": (40, 150, 60),
    "blue": (50, 80, 220),
    "yellow": (240, 200, 20),
    "purple": (150, 50, 180),
    "black": (25, 25, 25),
}
LIGHTEST, SHADES = 250, 46
"""Behind the things each of red, green and blue has one of so many values, up to the lightest."""
RELATIONS = (("left of", "right of"), ("above", "below"))
"""What the first and the second of two things are to each other, by the axis on which they lie apart."""
WAYS = (("left", "right"), ("up", "down"))
"""Where a thing moves, by the axis and by the sign."""

Floats = NDArray[np.float32]
Pixels = NDArray[np.uint8]


class Thing(NamedTuple):
    """One thing of a scene: what it is, and where its centre and its edge are."""

    kind: str
    colour: str
    size: str
    radius: float
    place: tuple[float, float]
    """x to the right and y down, of a picture of SIDE pixels a side; of a moving thing in the first frame."""

    def named(self, sized: bool) -> str:
        return f"a {self.size} {self.colour} {self.kind}" if sized else f"a {self.colour} {self.kind}"


class Scene(NamedTuple):
    """Two things that lie apart on one axis, the one at its beginning first, and whether and how one of them moves."""

    things: tuple[Thing, Thing]
    axis: int
    """0: the first is left of the second; 1: above it."""
    mover: int | None
    """Which thing moves, across that axis; None: none does."""
    sign: int
    """-1: it moves left or up; 1: right or down."""
    ground: tuple[int, int, int]
    """The light colour behind the things."""


def examples(seed: int = 0) -> Iterator[Example]:
    """Yield the scenes' names and sentences; `frames` draws the scene of a number."""
    for number in range(1, SENTENCES + 1):
        rng, scene = _drawn(seed, number)
        said = sentences(scene)
        target = said.pop(_below(rng, len(said)))
        yield Example(f"shapes:{number}", target=target, path="shapes", line=number, also=tuple(said))


def scene_of(seed: int, number: int) -> Scene:
    """Return what is to be seen in the scene of a number."""
    return _drawn(seed, number)[1]


def frames(seed: int, number: int, side: int = SIDE) -> Pixels:
    """Draw the scene of a number, (frames, side, side, 3): one frame, or FRAMES if a thing moves."""
    scene = scene_of(seed, number)
    count = 1 if scene.mover is None else FRAMES
    drawn = np.stack([_frame(scene, frame / (FRAMES - 1), side) for frame in range(count)])
    drawn += _noise(drawn.shape, seed, number)
    return np.ascontiguousarray(np.rint(drawn).clip(0, 255).astype(np.uint8).transpose(0, 2, 3, 1))


def sentences(scene: Scene) -> list[str]:
    """Return the sentences that are right of a scene; each is as likely as any other."""
    choices = product((0, 1), (False, True), (False, True))
    return [_sentence(scene, first, sized, other_sized) for first, sized, other_sized in choices]


def best(found: Iterable[Example]) -> dict[str, float]:
    """Compute the best possible score on these examples: the bits of the wording, over all bytes, with the ends."""
    said = [(math.log2(1 + len(example.also)), len(example.target.encode()) + 1) for example in found]
    bits, size = (sum(column) for column in zip(*said, strict=True))
    return {"bleu": 100.0, "exact": 1.0, "wer": 0.0, "cer": 0.0, "bits_per_byte": bits / size}


# The scene and the sentence


def _drawn(seed: int, number: int) -> tuple[random.Random, Scene]:
    """Draw the scene of a number; return the generator too, from which the wording is drawn next."""
    rng = random.Random(f"shapes {seed} {number}")
    mover = _below(rng, 2) if rng.random() < MOVING else None
    axis, sign = _below(rng, 2), 1 - 2 * _below(rng, 2)
    colour = _one(rng, list(COLOURS))
    colours = colour, _one(rng, [other for other in COLOURS if other != colour])
    kinds, sizes = ([_one(rng, names), _one(rng, names)] for names in (KINDS, tuple(SIZES)))
    radii = [_between(rng, *SIZES[size]) for size in sizes]
    places = _places(rng, radii, axis, mover, sign)
    first, second = (Thing(*drawn) for drawn in zip(kinds, colours, sizes, radii, places, strict=True))
    red, green, blue = (LIGHTEST - _below(rng, SHADES) for _ in range(3))
    return rng, Scene((first, second), axis, mover, sign, (red, green, blue))


def _places(
    rng: random.Random, radii: list[float], axis: int, mover: int | None, sign: int
) -> list[tuple[float, float]]:
    """Draw two centres: far apart on the axis; on the other axis about alike, or where there is room for the path."""
    margins = [1.2 * radius for radius in radii]  # a triangle is wider than its radius says
    first = _between(rng, margins[0], SIDE - margins[1] - GAP - sum(margins))
    second = _between(rng, first + sum(margins) + GAP, SIDE - margins[1])
    widest = max(margins)
    middle = _between(rng, widest, SIDE - widest)
    across = [min(max(middle + _between(rng, -ASIDE / 2, ASIDE / 2), widest), SIDE - widest) for _ in range(2)]
    if mover is not None:
        begins = _between(rng, margins[mover], SIDE - margins[mover] - PATH)
        across[mover] = begins if sign > 0 else SIDE - begins
    along = (first, second)
    return [(a, c) if axis == 0 else (c, a) for a, c in zip(along, across, strict=True)]


def _sentence(scene: Scene, first: int, sized: bool, other_sized: bool) -> str:
    """Say a scene, this thing first, with the size of it or of the other thing or of both."""
    one, two = scene.things[first].named(sized), scene.things[1 - first].named(other_sized)
    if scene.mover is None:
        return f"{one} {RELATIONS[scene.axis][first]} {two}"
    moves = f"moves {WAYS[1 - scene.axis][scene.sign > 0]}"
    return f"{one} {moves} and {two} stays" if first == scene.mover else f"{one} stays and {two} {moves}"


def _below(rng: random.Random, n: int) -> int:
    return int(rng.random() * n)


def _one(rng: random.Random, names: Sequence[str]) -> str:
    return names[_below(rng, len(names))]


def _between(rng: random.Random, least: float, most: float) -> float:
    return least + rng.random() * (most - least)


# The picture


def _frame(scene: Scene, time: float, side: int) -> Floats:
    """Draw a scene at a time from 0 to 1, without noise: (3, side, side), since numpy is slow along short axes."""
    at = (np.arange(side, dtype=np.float32) + np.float32(0.5)) * np.float32(SIDE / side)
    canvas = np.empty((3, side, side), np.float32)
    canvas[:] = np.reshape(scene.ground, (3, 1, 1))
    for index, thing in enumerate(scene.things):
        place = list(thing.place)
        if index == scene.mover:
            place[1 - scene.axis] += scene.sign * PATH * time
        dx, dy = (at - np.float32(place[0]))[None, :], (at - np.float32(place[1]))[:, None]
        outside = _distance(thing.kind, dx, dy, thing.radius) * np.float32(side / SIDE)
        cover = (np.float32(0.5) - outside).clip(0, 1)  # a pixel on the edge is covered in part
        canvas += cover * (np.array(COLOURS[thing.colour], np.float32).reshape(3, 1, 1) - canvas)
    return canvas


def _distance(kind: str, dx: Floats, dy: Floats, radius: float) -> Floats:
    """How far each point lies outside a thing (inside: below 0), by its distances from the thing's centre."""
    wide, high, r = np.abs(dx), np.abs(dy), np.float32(radius)
    found: Any
    if kind == "circle":  # drawn as a line, so that a small one is not taken for a square
        found = np.abs(np.sqrt(dx * dx + dy * dy) - np.float32(0.8) * r) - np.float32(0.2) * r
    elif kind == "square":
        found = np.maximum(wide, high) - np.float32(0.95) * r
    elif kind == "triangle":  # with equal sides, its top at -r and its base at r
        below = dy - r / 3
        found = np.maximum(dy - r, np.float32(math.sqrt(3) / 2) * wide - below / 2 - 2 * r / 3)
    else:
        found = np.maximum(np.minimum(wide, high) - np.float32(0.3) * r, np.maximum(wide, high) - r)
    return np.asarray(found, np.float32)


def _noise(shape: tuple[int, ...], seed: int, number: int) -> Floats:
    """Return whole numbers from -NOISE to NOISE, by a hash: numpy's generators may change with its version."""
    key = np.frombuffer(hashlib.blake2b(f"shapes {seed} {number}".encode(), digest_size=8).digest(), "<u8")
    hashes = mix(np.arange(math.prod(shape), dtype=np.uint64) ^ key) >> np.uint64(40)
    levels = hashes * np.uint64(2 * NOISE + 1) >> np.uint64(24)
    return levels.astype(np.float32).reshape(shape) - np.float32(NOISE)
