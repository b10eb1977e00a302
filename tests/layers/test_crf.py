"""The CRF against brute force: every sequence of tags written out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from segue.batches.batch import IGNORE
from segue.layers.crf import Crf

TAGS = 3
LENGTHS = (4, 1, 3)


def crf(seed: int = 0) -> Crf:
    torch.manual_seed(seed)
    made = Crf(TAGS).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def example(seed: int = 0, extra: int = 1) -> tuple[Tensor, Tensor]:
    """Scores of rows of these lengths, and their mask; what stands at padding is not zero."""
    torch.manual_seed(seed + 100)
    width = max(LENGTHS) + extra
    mask = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    return torch.randn(len(LENGTHS), width, TAGS).double() * 2, mask


def every(made: Crf, scores_TC: Tensor) -> dict[tuple[int, ...], float]:
    """s(y) of all C^T sequences, from its definition."""
    found = {}
    for tags in product(range(TAGS), repeat=len(scores_TC)):
        total = made.first_C[tags[0]] + made.last_C[tags[-1]]
        total = total + sum(scores_TC[t, tag] for t, tag in enumerate(tags))
        total = total + sum(made.transitions_CC[a, b] for a, b in pairwise(tags))
        found[tags] = float(total.detach())
    return found


def lse(numbers: Iterable[float]) -> float:
    """log of the sum of the exponentials."""
    return math.log(math.fsum(map(math.exp, numbers)))


def rows(made: Crf) -> list[tuple[int, dict[tuple[int, ...], float]]]:
    scores, _ = example()
    return [(length, every(made, scores[row, :length])) for row, length in enumerate(LENGTHS)]


def test_log_partition_is_the_sum_over_all_sequences() -> None:
    made, (scores, mask) = crf(), example()
    expected = [lse(all_of.values()) for _, all_of in rows(made)]
    assert made.log_partition(scores, mask).tolist() == pytest.approx(expected)


def test_probabilities_of_all_sequences_sum_to_one() -> None:
    made, (scores, _) = crf(1), example(1)
    mask = torch.ones(1, 4, dtype=torch.bool)
    total = sum(
        made.log_likelihood(scores[:1, :4], torch.tensor([tags]), mask).exp().item()
        for tags in product(range(TAGS), repeat=4)
    )
    assert total == pytest.approx(1.0)


def test_likelihood_of_one_sequence() -> None:
    made, (scores, mask) = crf(), example()
    targets = torch.where(mask, torch.tensor([[2, 0, 1, 1, 0]]), IGNORE)
    found = made.log_likelihood(scores, targets, mask)
    for row, (length, all_of) in enumerate(rows(made)):
        own = all_of[tuple(targets[row, :length].tolist())]
        whole = lse(all_of.values())
        assert float(found[row].detach()) == pytest.approx(own - whole)


def test_a_word_without_a_target_may_have_any_tag() -> None:
    made, (scores, mask) = crf(), example()
    targets = torch.where(mask, torch.tensor([[2, IGNORE, 1, IGNORE, 0]]), IGNORE)
    found = made.log_likelihood(scores, targets, mask)
    for row, (length, all_of) in enumerate(rows(made)):
        given = targets[row, :length].tolist()
        fits = [s for tags, s in all_of.items() if all(g in (IGNORE, tag) for g, tag in zip(given, tags, strict=True))]
        assert float(found[row].detach()) == pytest.approx(lse(fits) - lse(all_of.values()))
    nothing = made.log_likelihood(scores, torch.full_like(targets, IGNORE), mask)
    torch.testing.assert_close(nothing, torch.zeros(len(LENGTHS)).double())


def test_marginals_are_sums_over_sequences() -> None:
    made, (scores, mask) = crf(), example()
    found = made.log_marginals(scores, mask).exp()
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
    for row, (length, all_of) in enumerate(rows(made)):
        whole = lse(all_of.values())
        for place, tag in product(range(length), range(TAGS)):
            some = lse(s for tags, s in all_of.items() if tags[place] == tag)
            assert float(found[row, place, tag].detach()) == pytest.approx(math.exp(some - whole))


def test_marginals_are_the_slope_of_log_z() -> None:
    """d log Z / d e_t[c] = p(y_t = c): the backward pass by another way."""
    made, (scores, mask) = crf(3), example(3)
    scores.requires_grad_()
    made.log_partition(scores, mask).sum().backward()
    found = made.log_marginals(scores.detach(), mask).exp()
    torch.testing.assert_close(scores.grad, torch.where(mask[..., None], found, 0.0).detach())


@pytest.mark.parametrize("seed", range(5))
def test_viterbi_finds_the_best_sequence(seed: int) -> None:
    made, (scores, mask) = crf(seed), example()
    found = made.best(scores, mask)
    for row, (length, all_of) in enumerate(rows(made)):
        assert tuple(found[row, :length].tolist()) == max(all_of, key=lambda tags: all_of[tags])


def test_the_best_sequence_is_not_the_best_tags() -> None:
    """Two words, tags a and b. Scores prefer a then b by a little; the transition a -> b is forbidden."""
    made = Crf(2)
    with torch.no_grad():
        made.transitions_CC[0, 1] = -10.0
    scores, mask = torch.tensor([[[1.0, 0.0], [0.0, 0.5]]]), torch.ones(1, 2, dtype=torch.bool)
    assert scores.argmax(-1).tolist() == [[0, 1]] and made.best(scores, mask).tolist() == [[0, 0]]


def test_without_transitions_words_are_independent() -> None:
    made, (scores, mask) = Crf(TAGS).double(), example()
    torch.testing.assert_close(made.log_marginals(scores, mask)[mask], scores.log_softmax(-1)[mask])
    targets = torch.where(mask, 1, IGNORE)
    alone = torch.where(mask, scores.log_softmax(-1)[..., 1], 0.0).sum(1)
    torch.testing.assert_close(made.log_likelihood(scores, targets, mask), alone)


def test_gradients_are_finite() -> None:
    made, (scores, mask) = crf(), example()
    scores.requires_grad_()
    made.log_likelihood(scores, torch.where(mask, 0, IGNORE), mask).sum().backward()
    for tensor in (scores, *made.parameters()):
        assert tensor.grad is not None and tensor.grad.isfinite().all() and tensor.grad.any()
