"""Answer many rows, those of about the same length together, so that little is padded; nothing here keeps a file.

Rows are read a window at a time, so that memory does not grow with the file. The first window is small, so that the
first answers come soon; each is twice as large as the one before, up to some thousand rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from segue.data.example import Example

_LARGEST = 4096
"""Rows of a window."""
_CHARACTERS = 1 << 22
"""A window ends after so many characters: lines may be long."""


def windows(examples: Iterable[Example], first: int, most: int = _LARGEST) -> Iterator[tuple[int, list[Example]]]:
    """Yield windows of examples, the `first` of so many and none of more than `most`, each with the number of its first
    example."""
    window: list[Example] = []
    number, rows, characters = 0, min(first, most), 0
    for example in examples:
        window.append(example)
        characters += len(example.text) + len(example.target)
        if len(window) == rows or characters >= _CHARACTERS:
            yield number, window
            number, rows, characters, window = number + len(window), min(2 * rows, most), 0, []
    if window:
        yield number, window


def by_tokens(lengths: Sequence[int], tokens: int, rows: int) -> Iterator[list[int]]:
    """Yield the places of rows to be read together, the longest first: at most `rows` of them and about `tokens`
    tokens, padding included; at least one row. All but the last are so many as a power of two: a GPU records its steps
    for a number of rows, and would else seldom meet one again."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    while order:
        count = max(1, min(rows, tokens // max(1, lengths[order[0]])))
        if count < len(order):
            count = 1 << (count.bit_length() - 1)
        yield order[:count]
        order = order[count:]


def batches_by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the places of rows to be read together, the longest first: about `tokens` tokens, padding included, and at
    least one row. A batch ends early, from a quarter of the tokens on, where the next row is shorter: most batches then
    have rows of one length, nothing is padded, and attention needs no mask."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    batch: list[int] = []
    for place in order:
        longest = max(1, lengths[batch[0]]) if batch else 0
        shorter = bool(batch) and lengths[place] < lengths[batch[-1]]
        if batch and ((len(batch) + 1) * longest > tokens or (shorter and 4 * len(batch) * longest >= tokens)):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
