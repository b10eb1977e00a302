"""Where the time goes: phases add up, warming up is left out, and the command says it."""

from __future__ import annotations

import json
import time

import pytest

from segue.cli import main
from segue.training.profile import PHASES, Profile


def test_phases_add_up():
    profile = Profile("cpu")
    for seconds in (0.02, 0.01):
        with profile.phase("data"):
            time.sleep(seconds)
    with profile.phase("forward"):
        time.sleep(0.01)
    profile.steps = 2
    result = profile.result(tokens=100, weights=1000)
    assert result["phases"]["data"]["seconds"] == pytest.approx(0.015, abs=0.008)
    assert sum(one["share"] for one in result["phases"].values()) == pytest.approx(1)
    whole = sum(profile.seconds.values())
    assert result["tokens_per_second"] == pytest.approx(200 / whole)
    assert result["share_of_peak"] == pytest.approx(6 * 1000 * 200 / whole / result["peak"])
    profile.forget()
    assert profile.steps == 0 and sum(profile.seconds.values()) == 0


def test_the_command_says_it(tmp_path, capsys):
    small = ["train.steps=8", "model.width=8"]
    words = ["train", "rnn_lm", "grammar", "--out", str(tmp_path / "run"), *small, "--profile"]
    assert main([*words, "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)["result"]["profile"]
    assert set(profile["phases"]) == set(PHASES) and all(p["seconds"] > 0 for p in profile["phases"].values())
    assert 0 < profile["share_of_peak"] < 1.5
    assert main(["train", "ngram", "grammar", "--out", str(tmp_path / "counted"), "--profile"]) == 0
