"""The map of the words: near words near, parallel pairs parallel, and nothing that a word could smuggle in."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

from segue.inference.words import Words
from segue.look.page.projection import GROUPS, NEIGHBOURS, Place, WordMap, word_map
from segue.look.page.word_map import word_map_charts


def words() -> tuple[Words, np.ndarray]:
    """Twelve bundles of twelve words, and three pairs that differ by one vector."""
    draw = np.random.default_rng(0)
    names, rows = [], []
    for i in range(12):
        middle = draw.normal(size=20)
        names += [f"{chr(97 + i)}{chr(97 + k)}x" for k in range(12)]
        rows += [middle + 0.1 * draw.normal(size=20) for _ in range(12)]
    step = 3 * draw.normal(size=20)
    for one, two in (("man", "woman"), ("king", "queen"), ("boy", "girl")):
        base = draw.normal(size=20)
        names += [one, two]
        rows += [base, base + step]
    return Words(names, np.stack(rows).astype(np.float32)), np.arange(len(names), 0, -1)


def test_groups_are_of_near_words_and_of_different_bundles() -> None:
    shown = word_map(*words())
    assert shown is not None and len(shown.groups) == GROUPS
    flat = [place.word for group in shown.groups for place in group]
    assert len(set(flat)) == len(flat)
    for group in shown.groups:
        bundle = [place.word for place in group if place.word.endswith("x")]
        assert len(group) <= NEIGHBOURS + 1
        if len(group[0].word) == 3 and group[0].word.endswith("x"):
            assert len({word[0] for word in bundle[:NEIGHBOURS]}) == 1


def test_pairs_in_a_relation_are_parallel() -> None:
    shown = word_map(*words())
    assert shown is not None and shown.relation == "a man and a woman" and len(shown.pairs) == 3
    steps = np.array([[b.x - a.x, b.y - a.y] for a, b in shown.pairs])
    unit = steps / np.linalg.norm(steps, axis=1, keepdims=True)
    assert (abs(unit[:, 0]) > 0.7).all() and len(set(np.sign(unit[:, 0]))) == 1  # what they share differs most


def test_too_few_words_make_no_map() -> None:
    assert word_map(Words(["1", "2"], np.eye(2, dtype=np.float32)), np.array([3, 2])) is None
    assert word_map(Words(["one"], np.eye(1, dtype=np.float32)), np.array([3])) is None
    two = word_map(Words(["one", "two"], np.eye(2, dtype=np.float32)), np.array([3, 2]))
    assert two is not None and not two.pairs


def test_the_picture_is_whole_and_every_word_is_in_it() -> None:
    shown = word_map(*words())
    assert shown is not None
    page = word_map_charts(shown)
    for svg in re.findall(r"<svg.*?</svg>", page):
        ElementTree.fromstring(svg)
    for place in [place for group in shown.groups for place in group]:
        assert f"<title>{place.word}</title>" in page
    assert page.count("<line") == 3


def test_a_word_is_shown_and_not_obeyed() -> None:
    page = word_map_charts(WordMap([[Place("<script>", 0.0, 0.0)], [Place('"&', 1.0, 1.0)]]))
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_labels_never_cover_one_another() -> None:
    shown = WordMap([[Place(f"word{i}", 0.001 * i, 0.0) for i in range(30)]])
    page = word_map_charts(shown)
    assert page.count("<circle") == 30 and 1 <= page.count("<text") < 30
