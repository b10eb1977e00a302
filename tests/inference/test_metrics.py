"""Metrics against scikit-learn, and cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from segue.inference import metrics
from segue.inference.metrics import (
    accuracy,
    calibration_error,
    confusion,
    macro_f1,
    per_class,
    reliability,
    span_counts,
    span_f1,
    spans,
)

SURE = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)
PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40)


@given(SURE)
@settings(deadline=None)
def test_the_groups_of_like_confidence_hold_every_prediction(pairs: list[tuple[float, bool]]) -> None:
    sure, right = (np.array(column) for column in zip(*pairs, strict=True))
    sums = reliability(sure, right)
    assert sums.sum(0) == pytest.approx([len(sure), sure.sum(), right.sum()])
    means = sums[sums[:, 0] > 0, 1] / sums[sums[:, 0] > 0, 0]
    assert (np.diff(means) > 0).all()
    # One group of all is the least that can be found; each prediction by itself the most.
    assert abs(sure.mean() - right.mean()) - 1e-9 <= calibration_error(sums) <= np.abs(sure - right).mean() + 1e-9


def test_a_border_belongs_to_the_upper_group() -> None:
    assert reliability([0.0, 0.5, 1.0], [0, 1, 1], bins=2)[:, 0].tolist() == [1, 2]


@given(PAIRS)
@settings(deadline=None)
def test_classes_as_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = (list(column) for column in zip(*pairs, strict=True))
    labels = list(range(6))
    assert accuracy(truth, predicted) == pytest.approx(sklearn_metrics.accuracy_score(truth, predicted))
    assert (confusion(truth, predicted, 6) == sklearn_metrics.confusion_matrix(truth, predicted, labels=labels)).all()
    assert macro_f1(truth, predicted) == pytest.approx(
        sklearn_metrics.f1_score(truth, predicted, average="macro", zero_division=0)
    )
    expected = sklearn_metrics.precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0)
    assert np.array(per_class(truth, predicted, 6)) == pytest.approx(np.array(expected).T)


def test_a_confusion_by_hand() -> None:
    assert confusion([0, 0, 1, 2], [0, 1, 1, 1], 3).tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    first, second, third = per_class([0, 0, 1, 2], [0, 1, 1, 1], 3)
    assert first == pytest.approx((1.0, 0.5, 2 / 3, 2))
    assert second == pytest.approx((1 / 3, 1.0, 0.5, 1))
    assert third == (0.0, 0.0, 0.0, 1)
    assert macro_f1(["x", "x"], ["x", "x"]) == 1.0  # labels may be strings


def test_lists_that_do_not_belong_together() -> None:
    with pytest.raises(ValueError, match="as long as each other"):
        accuracy([1, 2], [1])
    with pytest.raises(ValueError, match="not empty"):
        macro_f1([], [])
    with pytest.raises(ValueError, match="from 0 to 3 were found, expected 0 to 2"):
        confusion([0, 3], [0, 1], 3)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", set()),
        ("O O", set()),
        # IOB2: every span begins with B
        ("B-PER I-PER O B-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        # IOB1: B only between two spans of one type
        ("I-PER I-PER O I-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("I-PER B-PER I-PER", {("PER", 0, 1), ("PER", 1, 3)}),
        ("I-PER I-LOC", {("PER", 0, 1), ("LOC", 1, 2)}),
        # BIOES
        ("B-PER I-PER E-PER S-LOC O S-LOC", {("PER", 0, 3), ("LOC", 3, 4), ("LOC", 5, 6)}),
        ("S-PER S-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        # broken sequences, read as conlleval does
        ("B-PER I-LOC I-LOC", {("PER", 0, 1), ("LOC", 1, 3)}),
        ("O I-PER O", {("PER", 1, 2)}),
        ("E-PER E-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("B-PER E-PER I-PER", {("PER", 0, 2), ("PER", 2, 3)}),
        ("S-PER I-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("B-PER S-PER I-PER E-PER", {("PER", 0, 1), ("PER", 1, 2), ("PER", 2, 4)}),
        ("B-PER E-LOC", {("PER", 0, 1), ("LOC", 1, 2)}),
        ("B-PER I-PER", {("PER", 0, 2)}),
        # a type may hold a hyphen
        ("B-a-b I-a-b I-a", {("a-b", 0, 2), ("a", 2, 3)}),
    ],
)
def test_spans_by_hand(tags: str, expected: set[tuple[str, int, int]]) -> None:
    assert spans(tags.split()) == expected


def conlleval_spans(tags: list[str]) -> set[tuple[str, int, int]]:
    """The rules of conlleval, as its two functions state them, one by one."""

    def ends(before: str, before_kind: str, now: str, kind: str) -> bool:
        return (
            before in ("E", "S")
            or (before in ("B", "I") and now in ("B", "S", "O"))
            or (before != "O" and before_kind != kind)
        )

    def starts(before: str, before_kind: str, now: str, kind: str) -> bool:
        return (
            now in ("B", "S")
            or (before in ("E", "S", "O") and now in ("E", "I"))
            or (now != "O" and before_kind != kind)
        )

    found, begun = set(), None
    before, before_kind = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        now, _, kind = tag.partition("-")
        if begun is not None and ends(before, before_kind, now, kind):
            found.add((before_kind, begun, place))
            begun = None
        if starts(before, before_kind, now, kind):
            begun = place
        before, before_kind = now, kind
    return found


@given(st.lists(st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY")]), max_size=12))
@settings(max_examples=500, deadline=None)
def test_spans_as_conlleval(tags: list[str]) -> None:
    assert spans(tags) == conlleval_spans(tags)


def test_span_f1_by_hand() -> None:
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"], ["O"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-ORG", "I-ORG"], ["O"]]
    # True: PER, LOC, ORG. Predicted: PER (right), PER (wrong type), ORG (wrong place).
    assert span_f1(truth, predicted) == pytest.approx((1 / 3, 1 / 3, 1 / 3, 1, 3, 3))
    assert [span_counts(*pair) for pair in zip(truth, predicted, strict=True)] == [(1, 2, 2), (0, 1, 1), (0, 0, 0)]
    assert span_f1(truth, truth) == (1.0, 1.0, 1.0, 3, 3, 3)
    assert span_f1([["O", "O"]], [["O", "B-X"]]) == (0.0, 0.0, 0.0, 0, 1, 0)
    assert span_f1([["I-X", "O"]], [["O", "O"]]) == (0.0, 0.0, 0.0, 0, 0, 1)


def test_tags_that_mark_no_spans() -> None:
    assert span_f1([["DET", "NOUN"]], [["DET", "VERB"]]) is None
    assert span_f1([["O", "O"]], [["O", "O"]]) is None
    assert span_f1([], []) is None
    assert span_f1([["B-X", "NOUN"]], [["B-X", "I-X"]]) is None
    with pytest.raises(ValueError, match=r"Tag 'NOUN' \(token 2\)"):
        spans(["O", "NOUN"])
    with pytest.raises(ValueError, match="1 sentences got 2"):
        span_f1([["O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="1 tags got 2"):
        span_counts(["O"], ["O", "O"])


def test_many_labels_share_one_row_and_the_others_keep_their_figures() -> None:
    draw = np.random.default_rng(0)
    truth = np.minimum(draw.geometric(0.01, 4000), 300) - 1
    guess = np.where(draw.random(4000) < 0.7, truth, draw.integers(0, 300, 4000))
    labels = [f"c{i}" for i in range(300)]
    found = metrics.confused(labels, truth, guess)
    assert found["classes"] == 300 and len(found["labels"]) == len(found["confusion"]) == metrics.SHOWN
    assert np.sum(found["confusion"]) == 4000 and found["labels"][-1] == "(201 other labels)"
    whole, shown = per_class(truth, guess, 300), metrics.class_scores(found["confusion"])
    assert shown[:-1] == [whole[labels.index(label)] for label in found["labels"][:-1]]
    few = metrics.confused(["a", "b"], [0, 1, 1], [0, 0, 1])
    assert few == {"labels": ["a", "b"], "confusion": [[1, 0], [1, 1]]}
