"""The search for answers, against brute force over every pair of places."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from segue.batches.batch import Batch
from segue.inference.answers import best_pairs, search


@pytest.mark.parametrize("longest", [1, 3, 50])
def test_best_pairs_are_those_of_all_pairs(longest: int) -> None:
    draw = torch.Generator().manual_seed(longest)
    logp_B2T = torch.randn(3, 2, 11, generator=draw)
    values, places = best_pairs(logp_B2T, longest, 6)
    width = min(longest, 11)
    for row in range(3):
        pairs = [(i, j) for i in range(11) for j in range(i, min(11, i + longest))]
        pairs.sort(key=lambda pair: -float(logp_B2T[row, 0, pair[0]] + logp_B2T[row, 1, pair[1]]))
        found = [(k // width, k // width + k % width) for k in places[row].tolist()]
        assert found == pairs[:6]
        assert values[row, 0] == logp_B2T[row, 0, pairs[0][0]] + logp_B2T[row, 1, pairs[0][1]]


@pytest.mark.parametrize("causal", [False, True])
def test_scores_are_probabilities_of_a_window(causal: bool) -> None:
    """All pairs of begin and end, none included, sum to one; an answer never stands where it may not."""
    mask_BT = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    may_BT = torch.tensor([[0, 0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0, 0]], dtype=torch.bool)
    none = [6, 4] if causal else [0, 0]
    for row, place in enumerate(none):
        may_BT[row, place] = True
    logits = torch.randn(2, 2, 7, generator=torch.Generator().manual_seed(0)).masked_fill(~may_BT[:, None], -torch.inf)
    batch = Batch(torch.zeros(2, 7, dtype=torch.long), torch.zeros(2, 2), mask_BT, answers_BT=may_BT)
    model: Any = lambda batch: (logits, None)  # noqa: E731
    found = search(model, batch, 7, 100, causal)
    p = logits.softmax(-1)
    for row, inside in enumerate(([3, 4, 5], [2, 3])):
        wanted = {(i, j): float(p[row, 0, i] * p[row, 1, j]) for i in inside for j in inside if i <= j}
        got = {(i, j): score for score, i, j in found[row].spans}
        assert got.keys() == wanted.keys()
        assert {pair: pytest.approx(float(torch.tensor(score).exp())) for pair, score in got.items()} == wanted
        assert float(torch.tensor(found[row].none).exp()) == pytest.approx(float(p[row, :, none[row]].prod()))
