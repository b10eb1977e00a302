"""An ensemble: the mean of probabilities, at every step and by teacher forcing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.batch import Batch
from segue.inference.decode import Config, best, generate
from segue.inference.ensemble import Ensemble
from segue.models.base import Sizes
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.models.transformer import Transformer

SIZES = Sizes(7)
SOURCE = np.array([[2, 3, 4], [5, 6, 0], [4, 0, 0]])
GIVEN = {"source": SOURCE, "source_mask": SOURCE != 0}


def network(seed: int, **config: object) -> RnnSeq2seq:
    torch.manual_seed(seed)
    return RnnSeq2seq(RnnSeq2seq.Config(width=6, attention="dot", **config), SIZES).double().eval()  # type: ignore[arg-type]


def attending(seed: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(Transformer.Config(layers=1, width=8, heads=2), SIZES).eval()


def batch() -> Batch:
    tokens = np.array([[0, 2, 3], [0, 4, 0], [0, 6, 6]])
    targets = np.array([[2, 3, 0], [4, 0, -100], [6, 6, 0]])
    return Batch(tokens, targets, targets != -100, None, SOURCE, SOURCE != 0).to("cpu")


def test_the_probability_is_the_mean() -> None:
    one, other = network(1), network(2, cell="gru", layers=2)
    together, _ = Ensemble([one, other]).logprobs(batch())
    alone = [part.logprobs(batch())[0].exp() for part in (one, other)]
    real = batch().mask_BT
    assert together[real].exp().numpy() == pytest.approx(torch.stack(alone).mean(0)[real].numpy(), rel=1e-5)


def test_a_target_longer_than_the_window_of_a_part_is_scored() -> None:
    """A Transformer reads it through its window, alone and in an ensemble."""
    torch.manual_seed(4)
    short = Transformer(Transformer.Config(layers=1, width=8, heads=2, context=4), SIZES).eval()
    tokens = np.array([[0, 2, 3, 4, 5, 6, 2]])
    long = Batch(tokens, np.roll(tokens, -1), tokens >= 0, None, SOURCE[:1], SOURCE[:1] != 0).to("cpu")
    parts = [short, network(1).float()]
    alone = torch.stack([part.logprobs(long)[0].exp() for part in parts])
    assert Ensemble(parts).logprobs(long)[0].exp().numpy() == pytest.approx(alone.mean(0).numpy(), rel=1e-5)


def test_steps_score_as_teacher_forcing_does() -> None:
    parts = Ensemble([network(1), network(2)])
    for ranked in best(parts, [[]] * 3, SIZES, Config(beam=3, n_best=3, max_tokens=4), **GIVEN):
        assert ranked
    (text, *_) = generate(parts, [[]] * 3, SIZES, Config(beam=3, max_tokens=4), **GIVEN)
    ids = np.array([[0, *text.ids]])
    targets = np.array([[*text.ids, 0]]) if text.stopped else ids[:, 1:]
    ids = ids[:, : targets.shape[1]]
    alone = Batch(ids, targets, np.ones_like(ids, bool), None, SOURCE[:1], SOURCE[:1] != 0).to("cpu")
    assert text.logprob == pytest.approx(float(parts.logprobs(alone)[0].sum()), abs=1e-5)


CONFIGS = [
    Config(beam=3, max_tokens=6),
    Config(beam=3, max_tokens=6, coverage_penalty=0.3),
    Config(beam=1, max_tokens=6),
    Config(max_tokens=6),
]


@pytest.mark.parametrize("config", CONFIGS, ids=["beam", "coverage", "greedy", "drawn"])
@pytest.mark.parametrize("make", [network, attending])
def test_a_model_with_itself_is_that_model(make: Any, config: Config) -> None:
    one = make(3)
    pair, alone = (generate(model, [[]] * 3, SIZES, config, **GIVEN) for model in (Ensemble([one, one]), one))
    assert [text.ids for text in pair] == [text.ids for text in alone]
    assert [text.logprob for text in pair] == pytest.approx([text.logprob for text in alone], abs=1e-5)
    assert Ensemble([one, one]).parameters_count == one.parameters_count


def test_attention_is_the_mean_of_those_that_have_some() -> None:
    one, other = network(1), attending(2)
    alone = [part.alignment(batch()) for part in (one.float(), other)]
    with torch.no_grad():
        found = Ensemble([one, other]).alignment(batch())
    assert found is not None
    assert found.detach().numpy() == pytest.approx(torch.stack(alone).mean(0).detach().numpy(), abs=1e-6)
