"""The bag of words: a sum of vectors, whatever the order, and a linear model that an independent one agrees with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from segue.batches.batch import Batch
from segue.batches.store import columns_of
from segue.models.base import Sizes
from segue.models.bow import Bow
from segue.tasks.classify import TASK

VOCAB, CLASSES = 20, 5


def made(dropout: float = 0.0) -> Bow:
    model = Bow(Bow.Config(dropout=dropout), Sizes(VOCAB, CLASSES))
    torch.manual_seed(0)
    torch.nn.init.normal_(model.weight.weight)
    torch.nn.init.normal_(model.bias)
    return model.eval()


def batch_of(*rows: list[int], labels: list[int] | None = None) -> Batch:
    return TASK.collate(
        columns_of(text=[np.array(row, dtype=np.int64) for row in rows], label=np.array(labels or [0] * len(rows))),
        9999,
    ).to("cpu")


def scores(model: Bow, *rows: list[int]) -> Tensor:
    return model(batch_of(*rows))[0].detach()


def test_scores_are_the_sum_of_the_words_vectors() -> None:
    """ "I hate this movie" as a sum of 5-vectors; a word that comes twice counts twice."""
    model = made()
    W, b = model.weight.weight.detach(), model.bias.detach()
    torch.testing.assert_close(scores(model, [3, 7, 3, 9])[0], 2 * W[3] + W[7] + W[9] + b)


def test_order_does_not_matter() -> None:
    torch.testing.assert_close(scores(made(), [3, 7, 5, 9]), scores(made(), [9, 5, 7, 3]))


def test_a_text_without_words_is_judged_by_the_bias() -> None:
    """Beside a longer one, too: id 0, which stands in the padding, has a vector of its own."""
    model = made()
    torch.testing.assert_close(scores(model, [], [3, 4]), torch.stack([scores(model, [])[0], scores(model, [3, 4])[0]]))
    torch.testing.assert_close(scores(model, [])[0], model.bias.detach())


def test_it_begins_without_an_opinion() -> None:
    model = Bow(Bow.Config(), Sizes(VOCAB, CLASSES)).eval()
    logp, _ = model.logprobs(batch_of([3, 4], [5]))
    torch.testing.assert_close(logp.exp(), torch.full((2,), 1 / CLASSES))


def test_dropout_leaves_out_whole_words_in_training_only() -> None:
    """Each row's scores are then the sum of some of its words, each scaled by 1 / (1 - p), for all classes at once."""
    model = made(dropout=0.5)
    torch.testing.assert_close(scores(model, [3, 7]), scores(made(), [3, 7]))
    model.train()
    W, b = model.weight.weight.detach(), model.bias.detach()
    possible = torch.stack([i * 2 * W[3] + j * 2 * W[7] + b for i in (0, 1) for j in (0, 1)])
    drawn = scores(model, *[[3, 7]] * 400)
    distance = (drawn[:, None] - possible).abs().amax(-1)
    assert distance.amin(1).max() < 1e-5
    counts = distance.argmin(1).bincount(minlength=4)
    assert counts.sum() == 400 and counts.min() > 60  # a quarter each, give or take four deviations


def test_it_learns_what_logistic_regression_learns() -> None:
    """The same data, the same penalty on the weights: the same probabilities as scikit-learn's."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(2, VOCAB, 6).tolist() for _ in range(60)]
    labels = [sum(word % 3 == 0 for word in row) % CLASSES for row in rows]
    counts = np.stack([np.bincount(row, minlength=VOCAB) for row in rows])
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=2000).fit(counts, labels)
    classes = len(theirs.classes_)
    model = Bow(Bow.Config(dropout=0.0), Sizes(VOCAB, classes)).double()
    batch = batch_of(*rows, labels=labels)
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=500, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def penalised() -> Tensor:
        optimiser.zero_grad()
        (term,) = model.loss(batch).terms
        loss = term.total + 0.5 * model.weight.weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(penalised)
    ours = model(batch)[0].softmax(-1).detach().numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(counts), atol=1e-4)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_a_share_is_a_share(dropout: float) -> None:
    with pytest.raises(ValueError, match=r"dropout.*share"):
        Bow.Config(dropout=dropout)
