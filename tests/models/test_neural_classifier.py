"""What networks for sentences share: each kind of label and loss against independent ones, weights, dropped words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F

from segue.batches.batch import IGNORE, Batch
from segue.batches.store import columns_of
from segue.errors import InputError
from segue.models.base import Sizes
from segue.models.bow import Bow
from segue.models.cbow import Cbow
from segue.models.neural_classifier import Embedding, Objective, balance, kept_words
from segue.tasks.classify import TASK

VOCAB = 10


def made(label: Any = "class", classes: int = 3, **objective: Any) -> Cbow:
    torch.manual_seed(0)
    config = Cbow.Config(embedding=6, word_dropout=0.0, loss=Objective(**objective))
    return Cbow(config, Sizes(VOCAB, classes, label=label)).double()


def batch_of(targets: Any, seed: int = 0) -> Batch:
    draw = np.random.default_rng(seed)
    rows = [draw.integers(2, VOCAB, 1 + i % 4) for i in range(len(targets))]
    label = np.asarray(targets)
    return TASK.collate(columns_of(text=rows, label=label.astype(np.uint8) if label.ndim == 2 else label), 9999).to(
        "cpu"
    )


def total(model: Any, batch: Batch) -> float:
    (term,) = model.loss(batch).terms
    assert {term.name: int(term.count)} == model.counts(batch)
    return float(term.total.detach())


# Losses


def test_hinge_is_what_the_best_wrong_class_leaves_of_a_margin_of_one() -> None:
    """Crammer and Singer's, row by row; with two classes, that of a support vector machine on the difference."""
    model = made(name="hinge")
    batch = batch_of([0, 2, 1, 1, 0])
    scores = model(batch)[0].tolist()
    rows = zip(scores, batch.targets.tolist(), strict=True)
    expected = sum(max(0, 1 + max(s for c, s in enumerate(row) if c != y) - row[y]) for row, y in rows)
    assert total(model, batch) == pytest.approx(expected) and expected > 0
    two = made(classes=2, name="hinge")
    batch = batch_of([0, 1, 1])
    difference, signs = two(batch)[0].detach().diff(dim=1)[:, 0], torch.tensor([-1.0, 1, 1])
    assert total(two, batch) == pytest.approx(float((1 - signs * difference).clamp(min=0).sum()))


def test_a_row_far_on_the_right_side_costs_nothing_by_hinge() -> None:
    model = made(name="hinge")
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([2.0, 0.9, -5.0]))
    assert total(model, batch_of([0, 0])) == 0 and total(model, batch_of([1])) == pytest.approx(2.1)


def test_several_classes_are_as_many_yes_and_no_questions() -> None:
    model, targets = made("classes"), np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], np.uint8)
    batch = batch_of(targets)
    assert batch.targets.dtype == torch.float32 and model.counts(batch) == {"cross_entropy": 9}
    p = model.probabilities(model(batch)[0]).detach().numpy()
    assert total(model, batch) == pytest.approx(-np.log(np.where(targets, p, 1 - p)).sum())
    hinge = made("classes", name="hinge")
    scores = hinge(batch)[0].detach().numpy()
    assert total(hinge, batch) == pytest.approx(np.maximum(0, 1 - np.where(targets, 1, -1) * scores).sum())
    judged = model.judge(batch)
    assert judged.number == 9 and judged.right == ((p > 0.5) == (targets > 0)).sum()
    assert float(judged.total) == pytest.approx(total(model, batch))


def test_a_number_is_learnt_whatever_its_scale() -> None:
    """Prices or grades: the scores are learnt on the scale of the training rows' deviation, and answered on theirs."""
    labels = np.array([2.0, 4, 6, 4], np.float32)
    losses = []
    for scale, shift in ((1, 0), (1e6, -100)):
        model, numbers = made("number", 1), labels * scale + shift
        model.begin(numbers)
        batch = batch_of(numbers)
        losses.append(total(model, batch))
        scores = model(batch)[0]
        answers = model.probabilities(scores)[:, 0].detach().numpy()
        assert losses[-1] == pytest.approx((((answers - numbers) / numbers.std()) ** 2).sum(), rel=1e-5)
        np.testing.assert_allclose(model.probabilities(torch.zeros(1, 1)), numbers.mean())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert made("number", 1).counts(batch_of(np.array([IGNORE, 1.0]))) == {"squared_error": 2}


def test_equal_numbers_divide_by_nothing() -> None:
    model = made("number", 1)
    model.begin(np.full(3, 7.0, np.float32))
    assert np.isfinite(total(model, batch_of(np.full(3, 7.0))))


def test_it_fits_numbers_as_linear_regression_does() -> None:
    draw = np.random.default_rng(0)
    rows = [draw.integers(2, VOCAB, 5) for _ in range(50)]
    numbers = np.array([row.sum() + draw.normal() for row in rows], np.float32)
    counts = np.stack([np.bincount(row, minlength=VOCAB) for row in rows])
    model = Bow(Bow.Config(dropout=0.0), Sizes(VOCAB, 1, label="number")).double()
    model.begin(numbers)
    batch = TASK.collate(columns_of(text=rows, label=numbers), 9999).to("cpu")
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=300, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def penalised() -> torch.Tensor:
        optimiser.zero_grad()
        loss = model.loss(batch).terms[0].total + model.weight.weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(penalised)
    theirs = Ridge(alpha=1.0).fit(counts, (numbers - numbers.mean()) / numbers.std())
    expected = theirs.predict(counts) * numbers.std() + numbers.mean()
    np.testing.assert_allclose(model.probabilities(model(batch)[0])[:, 0].detach(), expected, rtol=1e-4)


def test_a_number_has_no_margin() -> None:
    with pytest.raises(InputError, match=r"number.*model.loss"):
        made("number", 1, name="hinge")


# Weights of classes


def test_balanced_classes_weigh_as_scikit_learn_says() -> None:
    labels = np.array([0] * 7 + [1] * 2 + [2])
    weights = balance(labels, 3, "class")[0]
    np.testing.assert_allclose(weights, compute_class_weight("balanced", classes=np.arange(3), y=labels))
    assert weights[labels].sum() == pytest.approx(len(labels))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_every_class_that_is_there_has_the_same_say(labels: list[int]) -> None:
    weights = balance(np.array(labels), 5, "class")[0]
    says = [weights[labels][np.array(labels) == c].sum() for c in set(labels)]
    np.testing.assert_allclose(says, len(labels) / len(says), rtol=1e-5)


def test_of_several_classes_yes_and_no_have_the_same_say() -> None:
    yes = np.array([[1, 0], [0, 0], [0, 1], [0, 1]], np.uint8)
    yes_weights, no_weights = balance(yes.ravel(), 2, "classes")
    np.testing.assert_allclose((yes * yes_weights).sum(0), [2, 2])
    np.testing.assert_allclose(((1 - yes) * no_weights).sum(0), [2, 2])


@pytest.mark.parametrize("name", ["cross_entropy", "hinge"])
def test_a_balanced_loss_is_the_weighted_sum_and_is_left_out_of_the_file(name: Any) -> None:
    plain, weighed = made(name=name), made(name=name, balanced=True)
    labels = np.array([0, 0, 0, 1, 2, 2])
    weighed.begin(labels)
    plain.begin(labels)
    weights, batch = balance(labels, 3, "class")[0], batch_of(labels)
    each = plain.costs(plain(batch)[0], batch.targets).detach().numpy()
    assert total(weighed, batch) == pytest.approx((each * weights[labels]).sum())
    assert total(plain, batch) == pytest.approx(each.sum())
    assert weighed.state_dict().keys() == plain.state_dict().keys()


def test_what_is_ignored_costs_nothing() -> None:
    for name in ("cross_entropy", "hinge"):
        model = made(name=name)
        batch = batch_of([0, IGNORE, 1])
        model.loss(batch).terms[0].total.backward()
        assert model.costs(model(batch)[0], batch.targets)[1] == 0 and model.counts(batch)[name] == 2


# Vectors


def test_an_unknown_word_begins_without_a_say() -> None:
    table = Embedding(6, 4)
    assert not table.weight[:2].any() and table.weight[2:].all()


def test_words_are_left_out_one_by_one_and_only_in_training() -> None:
    mask = torch.ones(2000, 5, dtype=torch.bool)
    mask[:, 4] = False
    kept = kept_words(mask, 0.3, training=True)
    assert set(kept.unique().tolist()) == {0.0, 1.0} and not kept[:, 4].any()
    shares = kept[:, :4].mean(0)
    assert (shares - 0.7).abs().max() < 0.05
    assert F.cosine_similarity(kept[:, 0] - shares[0], kept[:, 1] - shares[1], 0).abs() < 0.1
    torch.testing.assert_close(kept_words(mask, 0.3, training=False), mask.float())
