"""Matthews, F1 of the positive class and the correlations: as scikit-learn and scipy compute them, with intervals."""

import typing

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from segue.data.config import LabelMetric
from segue.inference.evaluation import Evaluation
from segue.inference.label_metrics import (
    LABEL_METRICS,
    class_pieces,
    number_pieces,
    pearson_influences,
    ranked_by,
    spearman_influences,
)
from segue.inference.metrics import pearson, spearman
from segue.inference.statistics import influences


def of(name, pieces):
    return float(LABEL_METRICS[name].of_sums(pieces.sum(0)[None])[0])


def labels(seed, rows=200, classes=2, wrong=0.3):
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=rows)
    return truth, np.where(rng.random(rows) < wrong, rng.integers(classes, size=rows), truth)


def numbers(seed, rows=150):
    """Two rows of correlated numbers with many ties, as those of STS-B have."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 11, rows) / 2
    return truth, np.round(0.6 * truth + rng.normal(size=rows), 1)


def test_every_metric_of_labels_can_be_named():
    assert tuple(LABEL_METRICS) == typing.get_args(LabelMetric)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_matthews_and_f1_are_those_of_scikit_learn(classes):
    for seed in range(5):
        truth, guess = labels(seed, classes=classes)
        pieces = class_pieces(truth, guess, classes)
        assert of("matthews", pieces) == pytest.approx(matthews_corrcoef(truth, guess), abs=1e-12)
        assert of("accuracy", pieces) == pytest.approx((truth == guess).mean(), abs=1e-12)
        if classes == 2:
            assert of("positive_f1", pieces) == pytest.approx(f1_score(truth, guess), abs=1e-12)


def test_one_guess_for_all_rows_has_no_correlation_and_no_f1():
    truth, nothing = np.array([0, 1, 0, 0]), np.zeros(4, np.int64)
    assert of("matthews", class_pieces(truth, nothing, 2)) == 0
    assert of("positive_f1", class_pieces(truth, nothing, 2)) == 0
    assert of("positive_f1", class_pieces(nothing, nothing, 2)) == 0
    assert of("positive_f1", class_pieces(truth, truth, 2)) == 1


def test_correlations_are_those_of_scipy():
    for seed in range(5):
        truth, guess = numbers(seed)
        pieces = number_pieces(truth, guess)
        assert of("pearson", pieces) == pytest.approx(stats.pearsonr(truth, guess)[0], abs=1e-12)
        assert of("spearman", pieces) == pytest.approx(stats.spearmanr(truth, guess)[0], abs=1e-12)
    flat = number_pieces(truth, np.ones(len(truth)))
    assert of("pearson", flat) == of("spearman", flat) == 0


@pytest.mark.parametrize(("figure", "influence"), [(pearson, pearson_influences), (spearman, spearman_influences)])
def test_the_influence_of_a_row_is_what_leaving_it_out_shows(figure, influence):
    truth, guess = numbers(0)
    n = len(truth)
    without = np.array([figure(np.delete(truth, i), np.delete(guess, i)) for i in range(n)])
    jackknife = (n - 1) * (figure(truth, guess) - without)
    found = influence(truth, guess)
    assert found.mean() == pytest.approx(0, abs=1e-12)
    assert np.corrcoef(found, jackknife)[0, 1] > 0.999
    assert found.std() == pytest.approx(jackknife.std(), rel=0.03)


def test_intervals_hold_the_figure_and_agree_with_the_bootstrap():
    truth, guess = labels(3, rows=400)
    found = ranked_by(Evaluation({"figure": "accuracy", "accuracy": 0.0}, class_pieces(truth, guess, 2)), "matthews")
    low, high = found.result["matthews_ci"]
    assert low < found.result["matthews"] < high and found.figure == "matthews"
    rng = np.random.default_rng(0)
    drawn = np.stack([found.pieces_NK[rng.integers(400, size=400)].sum(0) for _ in range(2000)])
    ends = np.quantile(found.of_sums(drawn), [0.025, 0.975])
    assert high - low == pytest.approx(ends[1] - ends[0], rel=0.1)


def test_no_interval_goes_beyond_what_a_figure_can_be():
    truth, _ = labels(0, rows=30)
    guess = truth.copy()
    guess[:1] ^= 1
    head = {"figure": "matthews", "matthews": 0.0}
    assert ranked_by(Evaluation(head, class_pieces(truth, guess, 2)), "matthews").result["matthews_ci"][1] <= 1
    series = influences(class_pieces(truth, guess, 2), LABEL_METRICS["matthews"].of_sums)
    assert np.abs(series.mean()) < 1e-9
