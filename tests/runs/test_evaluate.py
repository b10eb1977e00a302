"""Mixtures, caches and models that go on learning: the figures, how they are marked, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.inference.lm_mixture import Mixture
from segue.inference.score import stream_logprobs
from segue.models.base import LanguageModel, Sizes
from segue.ngrams.em import em_weights
from segue.runs.evaluate import Mixing, evaluate
from segue.runs.run import Run

COMMON = ["data.unit=line", "data.carry=true", "tokens.kind=space", "tokens.min_count=1"]


def sentences(seed: int, count: int) -> str:
    """Text whose topic changes every ten lines, so that a cache has something to remember."""
    draw = np.random.default_rng(seed)
    lines, topic = [], 0
    for i in range(count):
        topic = draw.integers(0, 20) if i % 10 == 0 else topic
        lines.append(" ".join(f"w{topic * 3 + draw.integers(0, 3)} of the" for _ in range(4)))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mixing")
    for name, seed, count in (("train", 0, 400), ("valid", 1, 150), ("test", 2, 150)):
        (folder / f"{name}.txt").write_text(sentences(seed, count))
    given = [*COMMON, f"data.validation={folder / 'valid.txt'}"]
    for name, settings in (("two", ["model.order=2"]), ("wb", ["model.order=3", "model.smoothing=witten_bell"])):
        segue.train("ngram", folder / "train.txt", folder / name, [*given, *settings])
    segue.train("rnn_lm", folder / "train.txt", folder / "rnn", [*given, "train.steps=30", "model.width=16"])
    for name, seed in (("gpt", 0), ("gpt2", 1)):
        small = ["model.width=8", "model.heads=2", "model.context=12", "batches.length=12", "train.steps=5"]
        segue.train("gpt", folder / "train.txt", folder / name, [*given, *small, f"train.seed={seed}"])
    segue.train("ngram", folder / "train.txt", folder / "alone", [*COMMON, "data.validation=0", "model.order=2"])
    segue.train("ngram", folder / "train.txt", folder / "chars", ["data.unit=line"])
    segue.train("ngram", folder / "train.txt", folder / "sb", [*given, "model.smoothing=stupid_backoff"])
    return folder


def token_probabilities(run: Run, path: Path, model: object = None) -> np.ndarray:
    ids, _ = run.tokenizer.encode_many(path.read_text().split("\n")[:-1], stop=True)
    parts = stream_logprobs(model or run.model, ids, 1, run.sizes.vocab_size)
    return np.concatenate([np.exp(logp[0][real[0]]) for _, logp, real in parts])


def test_a_mixture_is_the_weighted_sum(place):
    result = evaluate(f"{place / 'two'}+{place / 'rnn'}+{place / 'wb'}", str(place / "test.txt"), mix=True)
    runs = [Run.open(place / name) for name in ("two", "rnn", "wb")]
    held, test = ([token_probabilities(run, place / f"{name}.txt") for run in runs] for name in ("valid", "test"))
    weights = em_weights(np.stack(held))
    assert list(result["weights"].values()) == pytest.approx(weights.tolist(), abs=1e-6)
    expected = math.exp(-np.log(weights @ np.stack(test)).mean())
    assert result["perplexity"] == pytest.approx(expected, rel=1e-5)
    assert result["perplexity"] < 1.01 * min(run.evaluate(str(place / "test.txt"))["perplexity"] for run in runs)
    assert "adapted" not in result and result["model"] == "ngram + rnn_lm + ngram"


def test_adapted_figures_are_marked_and_stand_beside_static_ones(place):
    run, test = Run.open(place / "two"), str(place / "test.txt")
    still = run.evaluate(test)
    on, cached = evaluate(run, test, adapt=True), evaluate(run, test, cache=True)
    both = evaluate(run, test, adapt=True, cache=True)
    for result in (on, cached, both):
        assert result["static"]["perplexity"] == still["perplexity"]
        assert result["static"]["bits_per_byte"] == still["bits_per_byte"] > result["bits_per_byte"]
    assert "adapted" not in still and on["adapted"] == "counting on while reading" and "weights" not in on
    assert cached["adapted"] == "a cache" and sum(cached["weights"].values()) == pytest.approx(1)
    assert both["adapted"] == "counting on while reading and a cache"
    assert run.evaluate(test) == still  # nothing stays


def test_networks_adapt_too(place):
    """Learning on, and a cache of states, by themselves and in a mixture with a model that counts."""
    run, test = Run.open(place / "rnn"), str(place / "test.txt")
    still = run.evaluate(test)
    on, cached = evaluate(run, test, adapt=True), evaluate(run, test, cache=True)
    assert on["adapted"] == "dynamic evaluation" and "weights" not in on
    assert cached["adapted"] == "a neural cache and a cache"
    assert list(cached["weights"]) == [str(place / "rnn"), f"neural cache of {place / 'rnn'}", "cache"]
    assert (
        sum(cached["weights"].values()) == pytest.approx(1)
        and cached["way"] == "one stream, each token after all those before it"
    )
    for result in (on, cached):
        assert result["static"]["perplexity"] == still["perplexity"] > 1.05 * result["perplexity"]
        assert result["tokens"] == still["tokens"]
    mixed = evaluate(f"{place / 'rnn'}+{place / 'two'}", test, mix=True, adapt=True)
    assert mixed["adapted"] == "dynamic evaluation and counting on while reading"
    both = evaluate(run, test, adapt=True, cache=True)
    assert both["adapted"] == "dynamic evaluation, a neural cache and a cache"
    assert mixed["perplexity"] < min(mixed["static"]["perplexity"], on["perplexity"])
    assert run.evaluate(test) == still  # nothing stays


def test_adapted_parts_are_mixed_by_their_probabilities(place):
    """The figure of a run with its caches, from the parts one by one."""
    from segue.inference.neural_cache import NeuralCache
    from segue.ngrams.cache import CacheLm

    run = Run.open(place / "rnn")
    result = evaluate(run, str(place / "test.txt"), cache=True)
    held, test = (
        np.stack(
            [
                token_probabilities(run, place / f"{name}.txt", model)
                for model in (run.model, NeuralCache(run.model), CacheLm(run.sizes.vocab_size))
            ]
        )
        for name in ("valid", "test")
    )
    weights = em_weights(held)
    assert list(result["weights"].values()) == pytest.approx(weights.tolist(), abs=1e-6)
    assert result["perplexity"] == pytest.approx(math.exp(-np.log(weights @ test).mean()), rel=1e-5)


class Plain(LanguageModel):
    """A language model that neither counts nor learns, and gives every token a probability of 0."""

    parameters_count = 0

    def start(self, rows, capacity, source=None, source_mask=None):
        return None

    def step(self, tokens_BT, mask_BT, state):
        return np.zeros((len(tokens_BT), self.sizes.vocab_size)), state

    def logprobs(self, batch, state=None):
        return np.full(np.shape(batch.targets), -np.inf), None


def test_a_model_that_cannot_adapt(place):
    run = Run.open(place / "rnn")
    run.model = Plain(None, run.sizes)
    with pytest.raises(InputError, match="rnn_lm cannot go on learning while it reads"):
        Mixing([run], adapt=True)


def test_the_runs_own_test_text(place, capsys):
    assert main(["evaluate", str(place / "two"), "--cache", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["split"] == "validation" and result["adapted"] == "a cache"
    assert "weights are found on this text too" in result["way"]
    assert main(["evaluate", f"{place / 'two'}+{place / 'wb'}", str(place / "test.txt"), "--mix", "--adapt"]) == 0
    shown = capsys.readouterr().out
    assert "adapted" in shown and "static" in shown and "weight 0." in shown


def test_other_validation_text(place):
    with pytest.raises(InputError, match="--validation FILE"):
        evaluate(Run.open(place / "alone"), str(place / "test.txt"), cache=True)
    given = evaluate(
        Run.open(place / "alone"), str(place / "test.txt"), cache=True, validation=str(place / "valid.txt")
    )
    assert given["weights"] == {
        name.replace("two", "alone"): weight
        for name, weight in evaluate(Run.open(place / "two"), str(place / "test.txt"), cache=True)["weights"].items()
    }


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("two+wb", {}, "say --mix"),
        ("two+chars", {"mix": True}, "same tokenizer.*data.unit=line data.canonical=true tokens.kind=space"),
        ("two+sb", {"mix": True}, "scores, not probabilities"),
        ("two+wb+two", {"mix": True}, "two twice. Expected each run once"),
        ("two+../{}/two", {"mix": True}, "two twice. Expected each run once"),
        ("two+none", {"mix": True}, "There is no run folder"),
        ("+", {"mix": True}, "There is no run folder"),
    ],
)
def test_what_cannot_be_mixed(place, names, options, message):
    runs = "+".join(str(place / name.format(place.name)) if name else "" for name in names.split("+"))
    with pytest.raises(InputError, match=message):
        evaluate(runs if names != "+" else "+", str(place / "test.txt"), **options)


def test_a_run_that_is_named_twice_is_bad_input(place, capsys):
    assert main(["evaluate", f"{place / 'gpt'}+{place / 'gpt'}", str(place / "test.txt"), "--mix"]) == 2
    shown = capsys.readouterr()
    assert "twice" in shown.err and "weight 0." not in shown.out


WHOLE = "a window of 12 tokens, its newer 6 read again when it is full"
MOVED = "a window of 12 tokens, moved on by up to 6"


@pytest.mark.parametrize(
    ("names", "options", "way"),
    [
        ("gpt", {}, WHOLE),
        ("gpt+gpt2", {"mix": True}, WHOLE),
        ("gpt", {"adapt": True}, MOVED),
        ("gpt", {"cache": True}, f"each part in its own way: {WHOLE}; {MOVED}; each token after all those before it"),
        ("gpt+two", {"mix": True}, f"each part in its own way: {WHOLE}; each token after all those before it"),
        ("rnn+two", {"mix": True, "adapt": True}, "each token after all those before it"),
    ],
)
def test_the_way_is_that_of_every_part(place, names, options, way):
    runs = "+".join(str(place / name) for name in names.split("+"))
    assert evaluate(runs, str(place / "test.txt"), **options)["way"] == f"one stream, {way}"


def test_a_gpt_in_a_mixture_reads_through_the_windows_that_it_has_alone(place):
    """So that what is said of the way is true: every token has the same probability."""
    model = Run.open(place / "gpt", "cpu").model
    alone, mixed = (
        token_probabilities(Run.open(place / "gpt", "cpu"), place / "test.txt", one)
        for one in (model, Mixture([model], [1.0], ["cpu"]))
    )
    np.testing.assert_allclose(mixed, alone, rtol=1e-5)


def test_a_mixture_of_a_model_that_gives_nothing():
    from segue.batches.batch import Batch

    nothing = Plain(None, Sizes(2))
    batch = Batch(np.zeros((1, 2), int), np.ones((1, 2), int), np.ones((1, 2), bool))
    logp, _ = Mixture([nothing, nothing], [0.5, 0.5], ["cpu", "cpu"]).logprobs(batch)
    assert np.isneginf(logp).all()


def test_generating_goes_on_learning(place):
    run = Run.open(place / "two")
    plain = run.generate("w1 of the", n=2, adapt=True, seed=3, max_tokens=30)
    assert plain == run.generate("w1 of the", n=2, adapt=True, seed=3, max_tokens=30)
    assert plain[0] != plain[1]
    with pytest.raises(InputError, match="beam"):
        run.generate("w1", adapt=True, beam=3)
    with pytest.raises(InputError, match="cannot go on learning"):
        Run.open(place / "rnn").generate("w1", adapt=True)


def test_mixing_one_run_alone_is_the_run(place):
    result = Mixing([Run.open(place / "two")]).evaluate(str(place / "test.txt"))
    assert result["perplexity"] == Run.open(place / "two").evaluate(str(place / "test.txt"))["perplexity"]
