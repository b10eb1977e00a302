"""A recipe fitted to a budget in seconds: what the rule chooses, what it leaves alone, and that the run can be made
again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from segue.recipe import Recipe, budgeted, load_recipe, read_recipe
from segue.runs import plan
from segue.runs.train import train
from segue.training.log import silent

TOKENS = 300_000


def machine(flops: float) -> plan.Trial:
    """A machine whose step takes as long as its parameters say, times the tokens of a step."""

    def trial(recipe: Recipe, seconds: float) -> plan.Pace:
        parameters = {64: 50_000, 96: 230_000, 192: 400_000, 384: 1_500_000}.get(recipe.model.width, 1_200_000)
        tokens = recipe.batches.size * recipe.batches.length
        return plan.Pace(6 * parameters * tokens / flops, tokens, TOKENS // tokens, parameters)

    return trial


def planned(name: str, flops: float, *settings: str, budget: str = "20s", size: str = "size") -> Recipe:
    recipe = budgeted(load_recipe(name, settings), budget, plan=size)
    assert plan.wanted(recipe)
    return plan.plan(recipe, TOKENS, machine(flops))[0]


def test_dropout_and_decay_rise_with_the_epochs() -> None:
    slow, fast = planned("rnn_lm/gru", 1e9, size="epochs"), planned("rnn_lm/gru", 1e13, size="epochs")
    assert slow.model.dropout == 0
    assert 0 < fast.model.dropout <= 0.25
    assert slow.train.optimizer.weight_decay == pytest.approx(0.1)
    assert fast.train.optimizer.weight_decay == pytest.approx(0.25)
    assert slow.train.optimizer.schedule == fast.train.optimizer.schedule == "wsd"
    assert slow.model.width == fast.model.width == 192


@pytest.mark.parametrize(("flops", "width"), [(1e9, 192), (1e13, 384)])
def test_compare_takes_the_largest_size_that_has_time_enough(flops: float, width: int) -> None:
    assert planned("rnn_lm/gru", flops).model.width == width


def test_no_model_has_too_many_parameters_for_its_text() -> None:
    many = plan.plan(budgeted(load_recipe("rnn_lm/gru"), "20s", plan="size"), 10_000, machine(1e15))[0]
    assert many.model.width == 192


def test_a_text_is_read_forty_times_at_most_but_a_short_one_more_often() -> None:
    assert planned("rnn_lm/gru", 1e15).train.epochs == plan.EPOCHS
    short = plan.plan(budgeted(load_recipe("bow"), "20s"), 100, lambda recipe, seconds: plan.Pace(1e-4, 50, 1, 100))[0]
    assert short.train.epochs == plan.ENOUGH


def test_what_is_named_is_kept(tmp_path: Path) -> None:
    named = ("model.dropout=0.05", "model.width=64", "train.optimizer.schedule=cosine", "train.every=7")
    kept = planned("rnn_lm/gru", 1e13, *named)
    assert (kept.model.dropout, kept.model.width) == (0.05, 64)
    assert (kept.train.optimizer.schedule, kept.train.every) == ("cosine", 7)
    own = tmp_path / "own.toml"
    own.write_text('kind = "rnn_lm"\n[model]\ncell = "gru"\nwidth = 64\n')
    assert planned(str(own), 1e13).model.width == 64
    assert planned(str(own), 1e13).model.dropout > 0


@pytest.mark.parametrize(
    ("name", "settings"), [("ngram", []), ("rnn_lm", ["train.steps=5"]), ("rnn_lm", ["train.plan=none"])]
)
def test_nothing_is_planned_without_a_budget_in_seconds(name: str, settings: list[str]) -> None:
    timed = [] if name == "ngram" else ["train.seconds=5"]
    assert not plan.wanted(load_recipe(name, [*timed, *settings]))


@pytest.mark.parametrize("flops", [1e11, 1e12, 1e13])
def test_validations_take_about_a_tenth_of_the_time(flops: float) -> None:
    chosen = planned("rnn_lm/gru", flops, size="epochs")
    pace = machine(flops)(chosen, 0.0)
    seconds = 20 / pace.step / chosen.train.every * chosen.train.validate_tokens * pace.step / pace.targets
    assert seconds <= 0.2 * 20
    assert chosen.train.validate_tokens == planned("rnn_lm/lstm", 1e9).train.validate_tokens  # the same text for all


SMALL = ["model.width=8", "model.embedding=4", "batches.size=4", "batches.length=16", "data.validation=0.02"]


def result_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "result.json").read_text())
    return found


def test_a_planned_run_is_made_again_from_its_recipe(tmp_path: Path) -> None:
    timed = train("rnn_lm", "pydoc", tmp_path / "timed", [*SMALL, "train.seconds=0.7"])
    fitted = read_recipe(timed.path / "recipe.toml")
    assert (fitted.train.plan, fitted.train.seconds, fitted.train.steps) == (
        "none",
        0.0,
        result_of(timed.path)["steps"],
    )
    assert fitted.train.optimizer.schedule == "wsd"
    again = train(str(timed.path / "recipe.toml"), out=tmp_path / "again")
    for name in ("model.safetensors", "tokenizer.json"):
        assert (again.path / name).read_bytes() == (timed.path / name).read_bytes()
    assert result_of(again.path)["bits_per_byte"] == result_of(timed.path)["bits_per_byte"]


def test_a_planned_run_that_is_finished_says_so_and_a_larger_budget_goes_on(tmp_path: Path) -> None:
    settings = [*SMALL, "train.seconds=0.5"]
    first = train("rnn_lm", "pydoc", tmp_path / "run", settings)
    assert train("rnn_lm", "pydoc", tmp_path / "run", settings, resume=True).finished_before
    steps = result_of(first.path)["steps"]
    more = train(None, out=tmp_path / "run", settings=["train.seconds=1.5"], resume=True)
    assert not more.finished_before
    assert result_of(more.path)["steps"] > steps


def test_the_trial_counts_as_time_of_the_budget(tmp_path: Path) -> None:
    run = train("rnn_lm", "pydoc", tmp_path / "run", [*SMALL, "train.seconds=0.5"], progress=silent)
    result = result_of(run.path)
    assert result["train_seconds"] < result["wall_seconds"] <= 0.5 * 1.1 + 3.0  # a busy machine has slow steps


def test_the_final_figures_are_not_of_the_small_validations(tmp_path: Path) -> None:
    """A plan validates on little text on the way; the figure at the end is of all that is held out."""
    run = train("rnn_lm", "pydoc", tmp_path / "run", [*SMALL, "train.seconds=0.5", "data.validation=0.05"])
    validated = read_recipe(run.path / "recipe.toml").train.validate_tokens
    assert validated < result_of(run.path)["tokens"]
    assert "validate_tokens" not in result_of(run.path)["way"]
    few = train("rnn_lm", "pydoc", tmp_path / "few", [*SMALL, "train.steps=2", "train.validate_tokens=2000"])
    assert result_of(few.path)["tokens"] == 2000
