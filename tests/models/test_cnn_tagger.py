"""The convolutional tagger: Collobert's equations, and how far a tag sees through several layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.batches.batch import Batch
from segue.batches.store import columns_of
from segue.layers.word_features import WordFeatures
from segue.models.base import Sizes
from segue.models.cnn_tagger import CnnTagger
from segue.tasks.tag import TASK

VOCAB, TAGS = 15, 4
PLAIN = {"embedding": 4, "word": WordFeatures(False, 0, 0, False), "width": 6}
CALM = {"dropout": 0.0, "unknown": 0.0}


def made(**values: object) -> CnnTagger:
    torch.manual_seed(0)
    return CnnTagger(CnnTagger.Config(**{**PLAIN, **CALM, **values}), Sizes(VOCAB, TAGS)).double().eval()  # type: ignore[arg-type]


def batch_of(*rows: list[int]) -> Batch:
    arrays = [np.array(row, dtype=np.int64) for row in rows]
    return TASK.collate(columns_of(text=arrays, tags=[row % TAGS for row in arrays]), 9999).to("cpu")


def logits(model: CnnTagger, *rows: list[int]) -> Tensor:
    return model(batch_of(*rows))[0].detach()


def test_equations_of_the_head() -> None:
    """Three layers over four words, written out with a loop over places."""
    model, row = made(window=3, layers=3), [3, 9, 2, 14]
    h = [model.word.vectors.weight[word].detach() for word in row]
    for depth, layer in enumerate([model.first, *model.above]):
        W, b = layer.linear.weight.detach(), layer.linear.bias.detach()
        zero = torch.zeros_like(h[0])
        padded = [zero, *h, zero]
        new = [torch.clamp(W @ torch.cat(padded[t : t + 3]) + b, min=0) for t in range(len(row))]
        h = new if depth == 0 else [old + add for old, add in zip(h, new, strict=True)]
    expected = torch.stack([model.head(one).detach() for one in h])
    torch.testing.assert_close(logits(model, row)[0], expected)


@pytest.mark.parametrize(("window", "layers"), [(3, 1), (3, 2), (3, 3), (5, 2), (1, 3)])
def test_layers_see_so_many_words_to_either_side(window: int, layers: int) -> None:
    """The receptive field is 1 + layers · (window - 1)."""
    model, row = made(window=window, layers=layers, width=32), [3, 9, 2, 14, 5, 6, 7, 8, 10, 4, 13]
    before = logits(model, row)[0]
    place = 5
    changed = (logits(model, [*row[:place], 11, *row[place + 1 :]])[0] - before).abs().amax(1) > 1e-12
    reach = layers * (window - 1) // 2
    assert changed.tolist() == [abs(t - place) <= reach for t in range(len(row))]


def test_it_learns_what_only_a_word_three_places_away_tells() -> None:
    """The tag is that of the word three places before: three layers of width 3 reach it, two do not."""
    draw = np.random.default_rng(0)

    def drawn(count: int) -> Batch:
        rows = [draw.integers(2, VOCAB, 8) for _ in range(count)]
        return TASK.collate(
            columns_of(text=rows, tags=[np.concatenate([[0, 0, 0], row[:-3] % TAGS]) for row in rows]), 9999
        ).to("cpu")

    seen, new, right = drawn(120), drawn(50), {}
    for layers in (2, 3):
        model = made(layers=layers, width=32, embedding=8).float().train()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(120):
            (term,) = model.loss(seen).terms
            optimiser.zero_grad()
            (term.total / term.count).backward()
            optimiser.step()
        right[layers] = float((model(new)[0].argmax(-1) == new.targets)[:, 3:].float().mean())
    assert right[3] > 0.8 and right[2] < 0.5


@pytest.mark.parametrize(
    ("values", "said"),
    [({"window": 2}, "odd"), ({"layers": 0}, "layers"), ({"dropout": 1.0}, "share"), ({"unknown": 1.0}, "unknown")],
)
def test_impossible_values_are_refused(values: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        CnnTagger.Config(**values)  # type: ignore[arg-type]
