"""The corpus `shapes`: what its sentences cost is known, and all that they say can be seen in the pictures."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from segue.data import scenes
from segue.data.example import Example
from segue.data.scenes import COLOURS, FRAMES, RELATIONS, WAYS

SOME = list(islice(scenes.examples(seed=1), 160))


def number_of(example: Example) -> int:
    return int(example.text.removeprefix("shapes:"))


# The sentences


def test_a_row_names_its_scene_and_has_every_right_sentence_once() -> None:
    for line, example in enumerate(SOME, 1):
        assert (example.text, example.path, example.line) == (f"shapes:{line}", "shapes", line)
        right = {example.target, *example.also}
        assert len(right) == 8 and right == set(scenes.sentences(scenes.scene_of(1, line)))


def test_each_wording_is_drawn_one_time_in_eight() -> None:
    """The entropy of the wording is then 3 bits; four standard errors of a count are allowed."""
    drawn: Counter[int] = Counter()
    for example in islice(scenes.examples(seed=2), 2000):
        drawn[scenes.sentences(scenes.scene_of(2, example.line)).index(example.target)] += 1
    assert len(drawn) == 8
    assert all(abs(count - 250) < 4 * math.sqrt(2000 * 1 / 8 * 7 / 8) for count in drawn.values())


def test_the_best_score_is_three_bits_a_sentence() -> None:
    found = scenes.best(SOME[:2])
    letters = sum(len(example.target) + 1 for example in SOME[:2])
    assert found == {"bleu": 100.0, "exact": 1.0, "wer": 0.0, "cer": 0.0, "bits_per_byte": pytest.approx(6 / letters)}


def test_everything_that_can_be_said_is_said() -> None:
    words = set(" ".join(example.target for example in islice(scenes.examples(), 1000)).split())
    said = {*scenes.KINDS, *scenes.SIZES, *COLOURS, *" ".join((*RELATIONS[0], *RELATIONS[1])).split()}
    assert words == {*said, "a", "moves", "and", "stays", *WAYS[0], *WAYS[1]}


# The pictures


def test_a_scene_depends_on_its_seed_and_number_alone() -> None:
    """Drawn again, in another order: the same; with another seed or number: another one."""
    numbers = [5, 900, 6]
    once = {number: scenes.frames(3, number) for number in numbers}
    assert all((scenes.frames(3, number) == once[number]).all() for number in reversed(numbers))
    assert not np.array_equal(once[5], once[6]) and not np.array_equal(once[5], scenes.frames(4, 5))
    assert [*islice(scenes.examples(seed=1), 3)] == SOME[:3]
    assert [*islice(scenes.examples(seed=4), 3)] != SOME[:3]


def test_frames_are_few_and_of_the_asked_size() -> None:
    moving = 0
    for example in SOME[:60]:
        found = scenes.frames(1, example.line, 32)
        assert found.dtype == np.uint8 and found.shape[1:] == (32, 32, 3)
        assert len(found) == (FRAMES if "moves" in example.target else 1)
        moving += len(found) > 1
    assert 0 < moving < 30


def mask_of(frame: np.ndarray, colour: str) -> np.ndarray:
    return (np.abs(frame.astype(int) - COLOURS[colour]).max(axis=-1) < 40).astype(bool)


def seen(frame: np.ndarray) -> dict[str, tuple[str, str, float, float]]:
    """Find the things of a frame by counting pixels: by colour its kind, its size, and its centre (x, y)."""
    found = {}
    for colour in COLOURS:
        mask = mask_of(frame, colour)
        if mask.sum() < 20:  # a few pixels on an edge are between two colours
            continue
        rows, columns = np.flatnonzero(mask.sum(1) > 1), np.flatnonzero(mask.sum(0) > 1)
        high, wide = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        inside = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        kind = kind_of(inside)
        size = "large" if high > 17 else "small"
        found[colour] = (kind, size, columns[0] + wide / 2, rows[0] + high / 2)
    return found


def kind_of(inside: np.ndarray) -> str:
    """By its middle, which is empty in a circle; by how much wider it is below than above; and by its corners."""
    high, wide = inside.shape
    if not inside[high // 2, wide // 2]:
        return "circle"
    if inside[-(high // 3) :].sum() > 1.8 * inside[: high // 3].sum():
        return "triangle"
    corners = inside[1:-1, 1:-1][np.ix_([0, -1], [0, -1])]  # pixels on the very edge are only half covered
    return "square" if corners.all() else "cross"


def said_of(things: dict[str, tuple[str, str, float, float]]) -> set[str]:
    """Say what was counted in every right way, without the grammar."""
    (one, two) = things
    said = set()
    for first, second in ((one, two), (two, one)):
        dx, dy = (things[first][axis] - things[second][axis] for axis in (2, 3))
        across = abs(dx) > abs(dy)
        relation = ("left of" if dx < 0 else "right of") if across else ("above" if dy < 0 else "below")
        for a in named(first, things[first]):
            said |= {f"{a} {relation} {b}" for b in named(second, things[second])}
    return said


def named(colour: str, thing: tuple[str, str, float, float]) -> tuple[str, str]:
    kind, size, *_ = thing
    return f"a {colour} {kind}", f"a {size} {colour} {kind}"


def test_a_plain_count_of_pixels_finds_every_sentence_of_a_still_scene() -> None:
    still = [example for example in SOME if "moves" not in example.target]
    assert len(still) > 100
    for example in still:
        [frame] = scenes.frames(1, number_of(example))
        assert said_of(seen(frame)) == {example.target, *example.also}, example.text


def test_a_plain_count_of_pixels_finds_what_moves_and_where() -> None:
    moving = [example for example in SOME if "moves" in example.target]
    assert len(moving) > 5
    for example in moving:
        shown = scenes.frames(1, number_of(example))
        begin, end = seen(shown[0]), seen(shown[-1])
        steps = {colour: np.subtract(end[colour][2:], begin[colour][2:]) for colour in begin}
        mover, stayer = sorted(steps, key=lambda colour: -np.abs(steps[colour]).max())
        axis = int(np.abs(steps[mover]).argmax())
        way = WAYS[axis][int(steps[mover][axis] > 0)]
        right = {
            f"{a} moves {way} and {b} stays" for a in named(mover, begin[mover]) for b in named(stayer, begin[stayer])
        }
        assert right < {example.target, *example.also}, example.text
        assert np.abs(steps[stayer]).max() <= 1


def test_the_two_things_never_touch() -> None:
    for example in SOME[:40]:
        for frame in scenes.frames(1, example.line):
            one, two = (mask_of(frame, colour) for colour in seen(frame))
            near = np.zeros_like(two)
            for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                near |= np.roll(two, (dy, dx), (0, 1))
            assert not (one & near).any()
