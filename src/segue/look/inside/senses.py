"""The senses of a word: its vector in each of many sentences, on the plane in which these differ most.

    h_i      the state of a layer at the word in sentence i: the mean over its tokens; of a causal body at the last one,
             since the others have not seen the whole word
    groups   h_i / |h_i| in k groups, each around its mean, the squared distances least (k-means: Lloyd 1982)

One vector a word would lie on one point. Where the word has two senses, and the model tells them by what stands around
it, the points fall apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.data.example import Example
from segue.errors import InputError
from segue.inference.opened import Opened
from segue.inference.text_vectors import token_states
from segue.look.inside.view import View
from segue.look.page.projection import on_plane
from segue.models.base import Body

MOST = 200
"""Sentences that are read at the most."""
LONGEST = 400
"""Characters of a sentence: from a longer line the part around the word is taken."""
AROUND = 3
"""Words that are shown on each side."""
SHOWN = 5
"""Sentences of each group that the note has."""
_STARTS, _ROUNDS = 10, 50
"""Beginnings of k-means that are tried, and rounds of each."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def applies(model: Any) -> bool:
    """Every model with hidden states, and every head on one."""
    return isinstance(model, Body) or model.sizes.body is not None


class Seen(NamedTuple):
    """One word in one sentence."""

    sentence: str
    begin: int
    end: int

    @property
    def around(self) -> str:
        """The word in brackets, with some words on each side."""
        before, after = self.sentence[: self.begin].split(), self.sentence[self.end :].split()
        left, right = before[-AROUND:], after[:AROUND]
        glued = " " if self.sentence[: self.begin].endswith((" ", "\t")) else ""
        parts = ["… " if len(before) > len(left) else "", " ".join(left), glued if left else ""]
        behind = " " if self.sentence[self.end :][:1].isspace() else ""
        parts += [f"[{self.sentence[self.begin : self.end]}]", behind, " ".join(right)]
        return "".join([*parts, " …" if len(after) > len(right) else ""])


def sentences_with(word: str, examples: Iterable[Example]) -> Iterator[str]:
    """Yield the lines that hold a word, each once; of a long line what stands around it."""
    pattern, seen = _pattern(word), set[str]()
    for example in examples:
        for line in (example.text or " ".join(example.words)).split("\n"):
            for match in list(pattern.finditer(line))[:1]:
                begin = max(0, match.start() - LONGEST // 2)
                line = " ".join(line[begin : begin + LONGEST].split())
                if line not in seen:
                    seen.add(line)
                    yield line


def view(opened: Opened, text: str, sentences: Sequence[str] = (), layer: int | None = None, top: int = 2) -> View:
    """A point for each sentence that holds the word. `text`: the word; or the word, and on lines of their own the
    sentences. `top`: groups; `layer`: 0 is that of the words' own vectors, by default the last."""
    word, *lines = [line.strip() for line in text.strip().split("\n")]
    found = [seen for line in (*lines, *sentences) for seen in _seen(word, line)][:MOST]
    if not word or len(found) <= max(2, top):
        raise InputError(
            f"'{word}' stands in {len(found)} sentences, and {max(3, top + 1)} are the least for {top} senses. Name "
            "a word, with sentences that hold it on lines of their own below it, or a file that has them: "
            "segue look RUN bank --view senses --data FILE."
        )
    if top < 1:
        raise InputError(f"top={top}: expected 1 sense or more.")
    there, x_ND = vectors_of(opened, found, layer)
    groups_N = in_groups(x_ND, top)
    plane_N2 = on_plane(x_ND)
    shown = [found[place].around for place in there]
    return View(
        kind="points",
        title=f"'{word}' in {len(shown)} sentences",
        note=_note(shown, x_ND, groups_N),
        panels=("sentences",),
        rows=tuple(shown),
        columns=("x", "y", "group"),
        values_PRC=np.column_stack([plane_N2, groups_N.astype(np.float64)])[None],
    )


def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word.strip())}(?!\w)", re.IGNORECASE) if word.strip() else re.compile("(?!)")


def _seen(word: str, line: str) -> list[Seen]:
    line = line.replace("\t", " ")
    return [Seen(line, match.start(), match.end()) for match in _pattern(word).finditer(line)][:1]


def vectors_of(opened: Opened, found: Sequence[Seen], layer: int | None = None) -> tuple[list[int], Floats]:
    """Compute the vector of each word, of length 1; also return which of them the model has read, since a window may
    end before the word."""
    body: Any = opened.model if opened.codec.sizes.body is None else opened.model.body
    read = [opened.codec.tokenizer.row(one.sentence) if opened.codec.sizes.body else one.sentence for one in found]
    there, vectors = list[int](), list[Floats]()
    for number, (one, text, states_TD) in enumerate(zip(found, read, token_states(opened, read, layer), strict=True)):
        _, surfaces = opened.codec.tokenizer.pieces(text)
        places = [place for place in _tokens_of(surfaces, one) if place < len(states_TD)]
        if places:
            x_D = np.asarray(states_TD[places[-1:] if body.causal else places].mean(0), np.float64)
            there.append(number)
            vectors.append(x_D / max(float(np.linalg.norm(x_D)), 1e-30))
    return there, np.array(vectors)


def _tokens_of(surfaces: Sequence[str], one: Seen) -> list[int]:
    """The tokens that stand within the word, or touch it."""
    found, at = list[int](), 0
    for place, surface in enumerate(surfaces):
        bare = surface.strip()
        begin = one.sentence.find(bare, at) if bare else -1
        if begin >= 0:
            at = begin + len(bare)
            if begin < one.end and at > one.begin:
                found.append(place)
    return found


def in_groups(x_ND: Floats, k: int) -> Ints:
    """Divide points into k groups by k-means, the best of several beginnings; the first point is in group 0."""
    draw, best, least = np.random.default_rng(0), np.zeros(len(x_ND), np.int64), np.inf
    for _ in range(_STARTS):
        centres_KD = _spread(x_ND, k, draw)
        for _ in range(_ROUNDS):
            groups_N = _distances(x_ND, centres_KD).argmin(1)
            means = [x_ND[groups_N == i].mean(0) if (groups_N == i).any() else centres_KD[i] for i in range(k)]
            if np.array_equal(np.array(means), centres_KD):
                break
            centres_KD = np.array(means)
        total = float(_distances(x_ND, centres_KD).min(1).sum())
        if total < least:
            best, least = groups_N, total
    order = list(dict.fromkeys(best.tolist()))
    return np.array([order.index(group) for group in best.tolist()], np.int64)


def _spread(x_ND: Floats, k: int, draw: np.random.Generator) -> Floats:
    """Centres to begin with: each far from those before it, by chance (k-means++: Arthur and Vassilvitskii 2007)."""
    chosen = [int(draw.integers(len(x_ND)))]
    while len(chosen) < k:
        far_N = _distances(x_ND, x_ND[chosen]).min(1)
        shares = far_N / far_N.sum() if far_N.sum() > 0 else None
        chosen.append(int(draw.choice(len(x_ND), p=shares)))
    return x_ND[chosen]


def _distances(x_ND: Floats, centres_KD: Floats) -> Floats:
    """(N, K) squared distances."""
    return np.asarray(((x_ND[:, None] - centres_KD[None]) ** 2).sum(-1))


def _note(shown: Sequence[str], x_ND: Floats, groups_N: Ints) -> str:
    """The sentences nearest to the middle of each group."""
    lines = ["The word's vector in each sentence, on the two directions in which these differ most."]
    for group in range(int(groups_N.max()) + 1):
        own = np.flatnonzero(groups_N == group)
        near = own[np.argsort(_distances(x_ND[own], x_ND[own].mean(0)[None])[:, 0], kind="stable")]
        named = "; ".join(shown[place] for place in near[:SHOWN])
        lines.append(f"Group {group + 1}, {len(own)} sentences, those in its middle first: {named}")
    return "\n".join(lines)
