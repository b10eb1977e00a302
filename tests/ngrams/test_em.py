"""EM: the weights that it finds are those of the truth, and no others near them make the text likelier."""

from __future__ import annotations

import numpy as np
import pytest

from segue.ngrams.em import em_lambdas, em_weights, em_weights_by_group


def test_em_finds_the_best_weights() -> None:
    p = np.random.default_rng(0).random((3, 500)) ** 3
    best = em_weights(p)
    assert best.sum() == pytest.approx(1) and best.min() >= 0
    likelihood = np.log(best @ p).sum()
    for change in ([0.02, -0.02, 0], [0, 0.02, -0.02], [-0.02, 0, 0.02]):
        other = np.maximum(best + change, 0)
        assert np.log(other / other.sum() @ p).sum() < likelihood
    assert em_weights(np.array([[0.5, 0.0], [0.5, 0.0]])).tolist() == [0.5, 0.5]


def test_weights_are_found_again_and_are_the_best() -> None:
    draw = np.random.default_rng(7)
    true = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    models = draw.dirichlet(np.ones(20) * 0.3, 3)
    groups = draw.integers(0, 2, 20_000)
    outcome = np.array([draw.choice(20, p=true[g] @ models) for g in groups])
    p = models[:, outcome].T.copy()
    found = em_weights_by_group(p, groups, 2, 1e-9)
    np.testing.assert_allclose(found, true, atol=0.03)

    def nats(weights: np.ndarray) -> float:
        return -float(np.log((p * weights[groups]).sum(1)).sum())

    assert nats(found) < nats(true)
    for _ in range(20):
        other = 0.9 * found + 0.1 * draw.dirichlet(np.ones(3), 2)
        assert nats(found) < nats(other) + 1e-3
    np.testing.assert_allclose(em_weights_by_group(p, groups, 2, 1e12)[0], em_weights_by_group(p, groups, 2, 1e12)[1])


def test_weights_without_events_are_even() -> None:
    found = em_weights_by_group(np.empty((0, 2)), np.empty(0, np.int64), 3, 20.0)
    np.testing.assert_array_equal(found, np.full((3, 2), 0.5))


def test_lambdas_make_held_out_text_likeliest() -> None:
    """Two orders over 1/V: no other pair of weights on a fine grid is better, but for the two made-up tokens."""
    draw = np.random.default_rng(1)
    own, below = draw.random((2, 400)) ** 4, 0.1
    seen = np.stack([np.ones(400, bool), draw.random(400) < 0.7])

    def nats(one: float, two: float) -> float:
        first = one * own[0] + (1 - one) * below
        return -float(np.log(np.where(seen[1], two * own[1] + (1 - two) * first, first)).sum())

    found = em_lambdas(own, seen, np.zeros((2, 400), np.int64), 1, below)[:, 0]
    grid = np.linspace(0, 1, 101)
    assert nats(*found) < min(nats(one, two) for one in grid for two in grid) + 0.05


def test_groups_of_contexts_have_lambdas_of_their_own() -> None:
    """A group whose own estimates are always right gets a weight near 1, one whose are always wrong near 0."""
    groups = np.array([[0, 1] * 200])
    own = np.where(groups == 0, 1.0, 0.0)
    found = em_lambdas(own, np.ones_like(own, bool), groups, 3, 0.01)
    assert found[0, 0] > 0.99 and found[0, 1] < 0.01
    assert found[0, 2] == 0.5  # nothing was held out for it
