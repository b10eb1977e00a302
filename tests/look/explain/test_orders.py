"""N-gram models order by order: against models trained at each order, counts made slowly, and the equations."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import segue
from segue.data.corpus import Corpus
from segue.look.explain.orders import Orders, count_ngrams, mixture_weights
from segue.models.base import Sizes
from segue.models.ngram import Ngram
from segue.runs.folder import read_json
from segue.runs.gather import orders_in

SENTENCES = ["the cows eat corn", "the girls eat meat and corn", "cows eat the corn and the grass", "girls see cows"]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
STOP, UNK, V = 0, 1, len(WORDS) + 2
TRAIN = np.array([i for s in SENTENCES for i in [*(WORDS.index(w) + 2 for w in s.split()), STOP]])
HELD = np.array([WORDS.index(w) + 2 for w in ["the", "girls", "eat", "corn", "and", "grass"]] + [STOP])


def fitted(**config: Any) -> Ngram:
    model = Ngram(Ngram.Config(**config), Sizes(V))
    list(model.fit(SimpleNamespace(tokens=TRAIN), Ngram.Train(), HELD))
    return model


@pytest.mark.parametrize("config", [{"smoothing": "witten_bell"}, {"smoothing": "add_alpha", "alpha": 0.5}])
@pytest.mark.parametrize("text", [TRAIN, HELD], ids=["training", "held-out"])
def test_a_model_cut_at_an_order_is_the_model_of_that_order(config: dict[str, Any], text: np.ndarray) -> None:
    found = fitted(order=4, **config).by_order(text)
    for order in range(1, 5):
        small = fitted(order=order, **config)
        history, p = [STOP], []
        for token in text.tolist():
            p.append(small.distribution(history)[token])
            history = [STOP] if token == STOP else [*history, token]
        assert found.p[order - 1] == pytest.approx(p, abs=1e-12)


def test_the_weights_are_what_each_order_gives() -> None:
    """With l = 0.6, 0.3, 0.1 the mixture is these numbers wherever all contexts were seen."""
    found = fitted(order=3, smoothing="interpolation", lambdas=(0.6, 0.3, 0.1)).by_order(TRAIN)
    whole = (found.totals > 0).all(0)
    assert 0 < whole.sum() < len(TRAIN)
    assert mixture_weights(found.weights[:, whole]) == pytest.approx([0, 0.1, 0.3, 0.6], abs=1e-12)
    assert mixture_weights(found.weights).sum() == pytest.approx(1, abs=1e-12)


def test_ngrams_are_counted_within_sentences() -> None:
    for order, counts in enumerate(count_ngrams(TRAIN, 3, STOP), 1):
        slowly: Counter[tuple[str, ...]] = Counter()
        for sentence in SENTENCES:
            words = [*sentence.split(), "."]
            slowly.update(tuple(words[i : i + order]) for i in range(len(words) - order + 1))
        assert sorted(counts.tolist()) == sorted(slowly.values())
    assert next(count_ngrams(np.array([5]), 9, STOP)).tolist() == [1]


BOOK = [f"{a} {b} {c}" for a in ("the", "a", "my") for b in ("cow", "dog", "king") for c in ("eats", "naps", "runs")]


def trained(tmp_path: Path, **settings: Any) -> tuple[Orders, dict[str, Any]]:
    rows = (BOOK * 3)[::2] + BOOK + ["a zebra runs"] * 2
    run = segue.train(
        "ngram",
        rows,
        tmp_path / "run",
        {"tokens.kind": "word", "data.unit": "line", "data.test": 0.3, "data.validation": 0.2, **settings},
        device="cpu",
    )
    return orders_in(run, Corpus(run.recipe.data, run.recipe.shape), "test"), read_json(run.path / "result.json")


@pytest.mark.parametrize("smoothing", ["modified_kneser_ney", "interpolation", "add_alpha"])
def test_the_highest_order_has_the_figures_of_the_run(smoothing: str, tmp_path: Path) -> None:
    """Spelling of unknown words included; and so has the sweep at the number that the model chose."""
    found, result = trained(tmp_path, **{"model.smoothing": smoothing, "model.order": 3, "tokens.min_count": 3})
    assert result["unknown_tokens"] > 0
    assert found.held_out[-1] == pytest.approx(result["bits_per_byte"])
    assert found.perplexity[0][-1] == pytest.approx(result["perplexity"])
    assert bool(found.weights) == (smoothing != "add_alpha") and found.continuation == ("kneser" in smoothing)
    assert (found.sweep is None) == ("kneser" in smoothing)
    if found.sweep:
        assert found.sweep.at_chosen == pytest.approx(result["bits_per_byte"])


def test_maximum_likelihood_fits_the_training_text_best_and_has_no_bits_for_new_words(tmp_path: Path) -> None:
    found, _ = trained(tmp_path, **{"model.smoothing": "maximum_likelihood", "model.order": 3})
    assert found.training == sorted(found.training, reverse=True) and math.isfinite(found.training[-1])
    assert math.isinf(found.held_out[-1]) == (found.unseen[-1] > 0)
    assert found.unseen == sorted(found.unseen)


def test_scores_have_no_bits(tmp_path: Path) -> None:
    found, _ = trained(tmp_path, **{"model.smoothing": "stupid_backoff", "model.order": 2})
    assert found.held_out == found.training == found.weights == [] and len(found.unseen) == 2
