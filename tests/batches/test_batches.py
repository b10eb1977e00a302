"""The recipe's [batches]: what is refused, and what depends on the task."""

from __future__ import annotations

import math

import pytest

from segue.batches.batches import Config
from segue.errors import InputError
from segue.recipe import load_recipe


def settled(kind: str, *settings: str) -> Config:
    """[batches] as the task of a model settles it, whatever its own recipe says."""
    return load_recipe(kind, [f"batches.{setting}" for setting in ("size=0", "length=0", *settings)]).batches


@pytest.mark.parametrize("values", [{"size": -1}, {"length": -1}, {"accumulate": 0}, {"tokens": -1}])
def test_impossible_values_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="or more"):
        Config(**values)


def test_defaults_depend_on_the_task() -> None:
    assert settled("rnn_lm") == Config(32, 128, 1)
    assert settled("rnn_tagger") == Config(64, 1024, 1)
    assert settled("word2vec") == Config(64, 1024, 1)
    assert settled("rnn_tagger", "size=5", "length=6", "accumulate=2") == Config(5, 6, 2)
    with pytest.raises(InputError, match="accumulate=40"):
        settled("rnn_lm", "accumulate=40")


def test_blanks_are_for_running_text() -> None:
    assert settled("rnn_lm", "noise=blank") == Config(32, 128, 1, noise="blank")
    with pytest.raises(InputError, match="noise=blank is for running text, and tag reads rows"):
        settled("rnn_tagger", "noise=blank")
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="is not a share"):
            Config(share=share)


def test_token_batches_are_for_rows() -> None:
    assert settled("rnn_seq2seq", "tokens=4096") == Config(64, 1024, 1, tokens=4096)
    with pytest.raises(InputError, match="tokens=4096 is for rows, and lm reads running text"):
        settled("rnn_lm", "tokens=4096")


def test_varied_lengths_are_for_running_text() -> None:
    assert settled("rnn_lm", "vary=true") == Config(32, 128, 1, vary=True)
    for kind in ("rnn_tagger", "bow"):
        with pytest.raises(InputError, match=r"batches: vary=true"):
            settled(kind, "vary=true")
