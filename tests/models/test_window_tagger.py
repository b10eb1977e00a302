"""The window tagger: Collobert and Weston's equations, and how far a tag sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.batches.batch import IGNORE, Batch
from segue.batches.store import columns_of
from segue.models.base import Sizes
from segue.models.window_tagger import WindowTagger
from segue.tasks.tag import TASK

VOCAB, TAGS = 15, 4


def made(window: int = 3, dropout: float = 0.0) -> WindowTagger:
    torch.manual_seed(0)
    config = WindowTagger.Config(window=window, embedding=4, width=6, dropout=dropout)
    return WindowTagger(config, Sizes(VOCAB, TAGS)).double().eval()


def batch_of(*rows: list[int], tags: list[list[int]] | None = None) -> Batch:
    arrays = [np.array(row, dtype=np.int64) for row in rows]
    return TASK.collate(
        columns_of(text=arrays, tags=[np.array(row) for row in tags] if tags else [row % TAGS for row in arrays]), 9999
    ).to("cpu")


def logits(model: WindowTagger, *rows: list[int]) -> Tensor:
    return model(batch_of(*rows))[0].detach()


@pytest.mark.parametrize("window", [1, 3, 5])
def test_equations_of_the_head(window: int) -> None:
    """h_t = tanh(W [x_{t-r}; …; x_{t+r}] + b), U h_t + c, zero vectors beyond the ends: written out."""
    model, row = made(window), [3, 9, 2, 14]
    reach = window // 2
    E = model.word.vectors.weight.detach()
    W, b = model.convolution.linear.weight.detach(), model.convolution.linear.bias.detach()
    U, c = model.head.weight.detach(), model.head.bias.detach()
    x = [torch.zeros(4).double()] * reach + [E[word] for word in row] + [torch.zeros(4).double()] * reach
    expected = torch.stack([U @ (W @ torch.cat(x[t : t + window]) + b).tanh() + c for t in range(len(row))])
    torch.testing.assert_close(logits(model, row)[0], expected)


@pytest.mark.parametrize("window", [1, 3, 5])
def test_a_tag_sees_its_window_and_no_further(window: int) -> None:
    model, row = made(window), [3, 9, 2, 14, 5, 6, 7]
    before = logits(model, row)[0]
    for place in range(len(row)):
        other = [*row[:place], 11, *row[place + 1 :]]
        changed = (logits(model, other)[0] - before).abs().amax(1) > 1e-9
        near = [abs(t - place) <= window // 2 for t in range(len(row))]
        assert changed.tolist() == near


def test_padding_is_the_same_as_the_end_of_the_sentence() -> None:
    model = made(5)
    together = logits(model, [3, 9], [2, 14, 5, 6, 7])
    torch.testing.assert_close(together[0, :2], logits(model, [3, 9])[0])
    torch.testing.assert_close(together[1], logits(model, [2, 14, 5, 6, 7])[0])


def test_only_tags_are_counted() -> None:
    model = made()
    batch = batch_of([3, 9], [2, 14, 5], tags=[[0, 1], [2, 3, 1]])
    assert model.counts(batch) == {"cross_entropy": 5}
    logp, _ = model.logprobs(batch)
    assert logp.shape == (2, 3) and float(logp[0, 2]) == 0.0 and int(batch.targets[0, 2]) == IGNORE


def test_it_learns_what_only_the_neighbour_tells() -> None:
    """A word whose tag is that of the word before it: a window of 3 learns it, one of 1 cannot."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(2, VOCAB, 8) for _ in range(60)]
    tags = [np.concatenate([[0], row[:-1] % TAGS]) for row in rows]
    right = {}
    for window in (1, 3):
        model = made(window).float().train()
        batch = TASK.collate(columns_of(text=rows, tags=tags), 9999).to("cpu")
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(150):
            (term,) = model.loss(batch).terms
            optimiser.zero_grad()
            (term.total / term.count).backward()
            optimiser.step()
        right[window] = float((model(batch)[0].argmax(-1) == batch.targets).float().mean())
    assert right[3] > 0.99 and right[1] < 0.7


def test_dropout_is_for_training() -> None:
    model, plain = made(dropout=0.5), made()
    torch.testing.assert_close(logits(model, [3, 9, 2]), logits(plain, [3, 9, 2]))
    model.train()
    assert not torch.allclose(logits(model, [3, 9, 2]), logits(plain, [3, 9, 2]))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"window": 4}, "odd"),
        ({"window": 0}, "odd"),
        ({"embedding": 0}, "embedding"),
        ({"width": 0}, "width"),
        ({"dropout": 1.0}, "share"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WindowTagger.Config(**values)
