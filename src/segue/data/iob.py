"""Spans of words (names, phrases) as tags, in three schemes (Ramshaw and Marcus 1995; Ratinov and Roth 2009).

    words     the   Bank  of    Spain  Madrid  paid
    IOB1      O     I-X   I-X   I-X    B-X     O       B only where a span touches another of its type before it
    BIO       O     B-X   I-X   I-X    B-X     O       B at every beginning (IOB2)
    BIOES     O     B-X   I-X   E-X    S-X     O       E at the end, S on a span of one word

All three are read by the rules of conlleval (Tjong Kim Sang 2000), which give a broken sequence a meaning, too: an I
without its B begins a span. A sequence is well formed in a scheme if it is what its own spans are written as; so no
scheme needs rules of its own, and a tag that its scheme writes otherwise is repaired by writing the spans anew. Such
repairs are counted: CoNLL-2003 as it is distributed has two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

Scheme = Literal["iob1", "bio", "bioes"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

Span = tuple[str, int, int]
"""Type, first word, and the word after the last."""
Repair = tuple[str, str]
"""How a tag begins, and how its scheme would have written it: ("I-", "B-")."""


def is_span_tag(tag: str) -> bool:
    """O, or B, I, E or S with a type."""
    return tag == "O" or (len(tag) > 2 and tag[0] in "BIES" and tag[1] == "-")


def kind_of(tag: str) -> str:
    """The type of the span that a tag is part of: LOC of B-LOC; O of O."""
    return tag[2:] or tag


def mark_spans(tags: Iterable[str]) -> bool:
    """Whether these tags mark spans: all are span tags, and some are not O."""
    found = set(tags)
    return not found <= {"O"} and all(map(is_span_tag, found))


def spans(tags: Sequence[str]) -> set[Span]:
    """(type, start, end) of each span of one sentence; `end` is the token after its last.

    Reads IOB1, IOB2 (BIO) and BIOES as conlleval does: B and S begin a span; I and E go on with the span before
    them if it is open and of the same type, and begin one otherwise; E and S close it. A broken sequence is read, too.
    """
    found = set()
    kind, start = "", -1  # start < 0: no span is open
    for place, tag in enumerate([*tags, "O"]):
        if not is_span_tag(tag):
            raise ValueError(
                f"Tag '{tag}' (token {place + 1}) is no span tag: expected O, or B-, I-, E- or S- and a type."
            )
        prefix, _, tag_kind = tag.partition("-")
        goes_on = start >= 0 and prefix in ("I", "E") and tag_kind == kind
        if start >= 0 and not goes_on:
            found.add((kind, start, place))
            start = -1
        if prefix != "O" and start < 0:
            kind, start = tag_kind, place
        if prefix in ("E", "S"):
            found.add((kind, start, place + 1))
            start = -1
    return found


def tags_of(found: set[Span], words: int, scheme: Scheme) -> tuple[str, ...]:
    """Tag the words of a sentence that has these spans."""
    tags = ["O"] * words
    ends = {end: kind for kind, _, end in found}
    for kind, start, end in found:
        first, last, single = "B", "I", "B"
        if scheme == "iob1":
            first = single = "B" if ends.get(start) == kind else "I"
        elif scheme == "bioes":
            last, single = "E", "S"
        inside = ["I"] * (end - start - 2)
        prefixes = [single] if end - start == 1 else [first, *inside, last]
        tags[start:end] = [f"{prefix}-{kind}" for prefix in prefixes]
    return tuple(tags)


def in_brackets(words: Sequence[str], tags: Sequence[str]) -> str:
    """Write a sentence with its spans in brackets, as CoNLL-2003's paper does: [ORG U.N.] official [PER Ekeus]."""
    shown = list(words)
    for kind, start, end in spans(tags):
        shown[start] = f"[{kind} {shown[start]}"
        shown[end - 1] += "]"
    return " ".join(shown)


class SchemeReader:
    """Reads the tags of one file as spans and converts them to a scheme. Counts tags that the file's own scheme, the
    one with the fewest such tags, would have written otherwise."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self._repairs: dict[Scheme, dict[Repair, list[int]]] = {one: {} for one in SCHEMES}
        """By scheme and by kind of repair: how many there are, and the line of the first."""

    def read(self, tags: Sequence[str], lines: Iterable[int]) -> tuple[tuple[str, ...], str]:
        """Convert the tags of a sentence, which stand in these lines; returns also what is wrong with them, or ''."""
        try:
            found = spans(tags)
        except ValueError as error:
            return (), f"cannot be read as spans: {error}"
        written = {scheme: tags_of(found, len(tags), scheme) for scheme in SCHEMES}
        for line, tag, *of_schemes in zip(lines, tags, *written.values(), strict=False):
            for scheme, expected in zip(SCHEMES, of_schemes, strict=True):
                if tag != expected:
                    self._repairs[scheme].setdefault((tag[:2], expected[:2]), [0, line])[0] += 1
        return written[self.scheme], ""

    @property
    def file_scheme(self) -> Scheme:
        """The scheme in which the file is written."""
        return min(SCHEMES, key=lambda scheme: sum(count for count, _ in self._repairs[scheme].values()))

    def repairs(self) -> list[str]:
        """Say what was repaired: a sentence without its full stop for each kind of repair."""
        scheme = self.file_scheme
        return [
            f"{count:,} {'tag has' if count == 1 else 'tags have'} {found} where {scheme.upper()} has {expected} (the "
            f"first in line {line}): read as conlleval reads them"
            for (found, expected), (count, line) in self._repairs[scheme].items()
        ]
