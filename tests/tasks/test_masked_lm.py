"""The task masked_lm: its figures, what tokens that lose text do not have, and that it stands in no table with lm."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.errors import InputError
from segue.recipe import load_recipe

TINY = {
    **{"model.width": 16, "model.heads": 2, "model.layers": 1, "model.context": 16, "batches.length": 16},
    **{"batches.size": 4, "train.steps": 3, "data.validation": 0.3},
}
WORDS = ["the", "cow", "eats", "green", "grass", "and", "sings", "of", "hills", "now"]
TEXT = [" ".join(random.Random(i).choices(WORDS, k=12)) for i in range(60)]


def trained(folder: Path, **given: Any) -> segue.Run:
    settings = {**TINY, **{key.replace("__", "."): value for key, value in given.items()}}
    return segue.train("bert", TEXT, folder / "run", settings, device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    return trained(
        tmp_path_factory.mktemp("masked"), tokens__kind="bpe", tokens__vocab_size=300, model__next_sentence=True
    )


def test_figures(run: segue.Run) -> None:
    result = run.evaluate(["the cow eats grass", "green hills"])
    assert result["figure"] == "masked_bits_per_byte" and result["masked_bits_per_byte"] > 0
    assert result["bytes"] == len("the cow eats grassgreen hills")  # the ends of units are given
    assert {"masked_perplexity", "masked_accuracy"} <= result.keys()
    assert not {"bits_per_byte", "perplexity", "logprob"} & result.keys()
    assert "each token masked once" in result["way"]
    again = run.evaluate()
    assert 0 <= again["next_sentence_accuracy"] <= 1
    assert run.evaluate()["masked_bits_per_byte"] == again["masked_bits_per_byte"]


def test_tokens_that_lose_text_have_no_bits(tmp_path: Path) -> None:
    result = trained(tmp_path, tokens__kind="wordpiece", tokens__vocab_size=100).evaluate()
    assert "masked_bits_per_byte" not in result and result["masked_perplexity"] > 1


def test_unknown_words_are_counted_and_said(tmp_path: Path) -> None:
    result = trained(tmp_path, tokens__kind="space", data__unit="line").evaluate(["the cow zyxx eats"])
    assert result["unknown_tokens"] == 1 and result["tokens"] == 3
    assert "1 unknown token" in result["way"]
    assert result["bytes"] == len("the") + len(" cow") + len(" eats")


def test_scores_are_marked_as_pseudo_and_the_end_is_refused(run: segue.Run) -> None:
    (line,) = run.score(["the cow"])
    assert line.json().keys() == {
        *("text", "tokens", "pseudo_log_likelihoods", "pseudo_log_likelihood", "pseudo_perplexity")
    }
    with pytest.raises(InputError, match="predicts no end"):
        run.score(["the cow"], end=True)
    with pytest.raises(InputError):
        run.score_paths("the (cow|caw)")


def test_masked_models_stand_in_no_table_with_language_models(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one task at a time"):
        segue.compare(TEXT, models=["rnn_lm", "bert"], out=tmp_path / "compared")


@pytest.mark.parametrize("setting", ["batches.noise=none", "batches.noise=blank", "batches.vary=true"])
def test_rows_are_masked_and_of_one_length(setting: str) -> None:
    with pytest.raises(InputError, match="noise=mask"):
        load_recipe("bert", [setting])


@pytest.mark.parametrize("model", ["gpt", "bow", "word2vec"])
@pytest.mark.parametrize("setting", ["batches.noise=mask", "batches.masks=1", "batches.whole_words=true"])
def test_masks_are_for_masked_models_alone(model: str, setting: str) -> None:
    with pytest.raises(InputError, match="for masked language models"):
        load_recipe(model, [setting])


def test_whole_words_need_pieces_of_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="char tokens are no pieces"):
        trained(tmp_path, tokens__kind="char", batches__whole_words=True)


def test_whole_words_and_two_fifths_train(tmp_path: Path) -> None:
    run = trained(tmp_path, tokens__vocab_size=300, batches__whole_words=True, batches__share=0.4, batches__masks=10)
    assert run.evaluate()["masked_bits_per_byte"] > 0


def test_training_goes_on_from_a_run_with_its_marks(run: segue.Run, tmp_path: Path) -> None:
    """train.init: with a rate of nearly nothing the new run says what the old one said."""
    settings = {**TINY, "train.init": str(run.path), "train.optimizer.rate": 1e-12, "model.next_sentence": True}
    again = segue.train("bert", TEXT, tmp_path / "again", settings, device="cpu")
    assert again.sizes == run.sizes
    (before,), (after,) = run.score(["the cow"]), again.score(["the cow"])
    assert after.pseudo_log_likelihoods == pytest.approx(before.pseudo_log_likelihoods, abs=1e-4)
