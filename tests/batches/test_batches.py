"""The recipe's [batches]: what is refused, and what depends on the task."""

from __future__ import annotations

import math

import pytest

from segue.batches.batches import Config, settled


@pytest.mark.parametrize("values", [{"size": -1}, {"length": -1}, {"accumulate": 0}, {"tokens": -1}])
def test_impossible_values_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="or more"):
        Config(**values)


def test_defaults_depend_on_the_task() -> None:
    assert settled(Config(), "lm") == Config(32, 128, 1)
    assert settled(Config(), "tag") == Config(64, 1024, 1)
    assert settled(Config(5, 6, 2), "tag") == Config(5, 6, 2)
    with pytest.raises(ValueError, match="accumulate=40"):
        settled(Config(accumulate=40), "lm")


def test_blanks_are_for_running_text() -> None:
    assert settled(Config(noise="blank"), "lm") == Config(32, 128, 1, noise="blank")
    with pytest.raises(ValueError, match="noise=blank is for running text, and tag reads rows"):
        settled(Config(noise="blank"), "tag")
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="is not a share"):
            Config(share=share)


def test_token_batches_are_for_rows() -> None:
    assert settled(Config(tokens=4096), "seq2seq") == Config(64, 1024, 1, tokens=4096)
    with pytest.raises(ValueError, match="tokens=4096 is for rows, and lm reads running text"):
        settled(Config(tokens=4096), "lm")
