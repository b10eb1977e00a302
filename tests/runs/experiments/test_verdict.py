"""What is said of a comparison: who is best, whether that is more than chance, and which model to use."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from segue import tasks
from segue.inference.evaluation import Evaluation
from segue.runs import folder
from segue.runs.experiments.compare import _ranked
from segue.runs.experiments.verdict import Trial, _verdict, question


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def judged(right: list[float]) -> Evaluation:
    """A classifier that was right on these rows."""
    rows = np.array(right)
    pieces = np.stack([rows, np.ones(len(rows))], 1)
    return Evaluation({"figure": "accuracy", "accuracy": float(rows.mean())}, pieces, share=True)


def trial(name: str, right: list[float], seconds: float, parameters: int, seeds: int = 3, learns: bool = True) -> Trial:
    """A model whose seeds were all right on the same rows."""
    Path(name).mkdir()
    folder.write_json(Path(name) / "result.json", {"train_seconds": seconds, "parameters": parameters})
    train = SimpleNamespace(has=lambda key: learns)
    recipe = SimpleNamespace(name=name, task=tasks.task("classify"), train=train, data=SimpleNamespace(test=0.2))
    run, one = SimpleNamespace(path=Path(name)), judged(right)
    return Trial(recipe, [run], [one] * seeds, one)  # type: ignore[arg-type, list-item]


def verdict(*trials: Trial) -> str:
    return _verdict(_ranked(list(trials)), "accuracy")


BEST, NEAR, FAR = [1.0] * 900 + [0.0] * 100, [1.0] * 897 + [0.0] * 103, [1.0] * 800 + [0.0] * 200


# The two questions


def test_with_one_seed_only_these_runs_are_judged() -> None:
    best, far = trial("best", BEST, 3.0, 9, seeds=1), trial("far", FAR, 1.0, 9, seeds=1)
    said = verdict(far, best)
    assert said.startswith(
        "best comes first, with 90.0 % accuracy: these two runs, best and far, differ on these rows (p < 0.001); "
        "another seed may turn it round (--seeds 3 tells)."
    )
    assert "better" not in said and question([best, far]) == "this run"
    near = trial("near", NEAR, 1.0, 9, seeds=1)
    assert ", but it and near do not differ on these rows by more than chance (p = 0.250; " in verdict(best, near)


def test_with_seeds_the_model_is_judged() -> None:
    best, far, near = trial("best", BEST, 3.0, 9), trial("far", FAR, 1.0, 9), trial("near", NEAR, 1.0, 9)
    assert question([best, far]) == "better than next"
    said = verdict(far, best)
    assert said.startswith(
        "best is best, with 90.0 % accuracy, better than far by more than chance (p < 0.001, 3 seeds)."
    )
    assert ", but not better than near by more than chance (p = " in verdict(best, near)


def test_models_that_count_need_no_seeds() -> None:
    """They have no chance in training; beside one that has, with one seed, only the runs are judged."""
    best, far = trial("best", BEST, 3.0, 9, 1, learns=False), trial("far", FAR, 1.0, 9, 1, learns=False)
    assert "better than far by more than chance (p < 0.001, no chance in training)" in verdict(best, far)
    assert question([best, far]) == "better than next"
    assert question([best, trial("learnt", FAR, 1.0, 9, seeds=1)]) == "this run"
    assert question([best, trial("thrice", FAR, 1.0, 9)]) == "better than next"


def test_what_is_not_clear_says_how_much_would_be() -> None:
    """Ten more rows that are right and five that are wrong: t is 5 / sqrt(15), so that (1.96 / t)² times as many do."""
    a, b = [0.0] * 5 + [1.0] * 500 + [0.0] * 495, [1.0] * 495 + [0.0] * 505
    said = verdict(trial("a", a, 1.0, 9, 1, learns=False), trial("b", b, 1.0, 9, 1, learns=False))
    rows = int(re.findall(r"about ([\d,]+) rows held out would show", said)[0].replace(",", ""))
    assert rows == pytest.approx(1000 * 1.96**2 * 15 / 25, rel=0.01)


def test_no_amount_of_data_shows_a_difference_where_there_is_none() -> None:
    said = verdict(trial("a", BEST, 1.0, 9, seeds=1), trial("b", BEST, 1.0, 9, seeds=1))
    assert "p = 1.000)" in said and "would show" not in said


def test_rows_that_are_too_few_to_test() -> None:
    """With 19 rows even the largest difference is not tested, nor is a model advised; with 20 it is."""

    def pair(name: str, rows: int) -> list[Trial]:
        return _ranked([trial(f"{name}{share}", [float(share)] * rows, 1.0, 9) for share in (0, 1)])

    few, enough = pair("few", 19), pair("enough", 20)
    assert [one.differs for one in few] == ["–", ""] and enough[0].differs == "yes (p < 0.001)"
    assert _verdict(few, "accuracy") == (
        "few1 is best, with 100.0 % accuracy, but the held-out rows are too few to tell whether it is better than few0 "
        "(19 of the 20 rows that a test takes). Give more data, or hold out a larger share of it (data.test is 0.2)."
    )


# Which to use


def test_the_verdict_prefers_what_is_quicker_and_as_good() -> None:
    said = verdict(trial("quick", NEAR, 0.5, 4000), trial("slow", BEST, 30.0, 2_000_000))
    assert "Use quick, as good within a point (89.7 %) and trained in 0.5 s rather than 30.0 s" in said
    assert said.endswith("with 4.0 k parameters rather than 2.0 M.")


def test_the_verdict_keeps_what_is_better() -> None:
    said = verdict(trial("far", FAR, 0.5, 4000), trial("slow", BEST, 30.0, 2_000_000))
    assert said.endswith("Use slow (trained in 30.0 s, 2.0 M parameters).")


@pytest.mark.parametrize(
    ("right", "seconds", "used"),
    [
        (BEST, 3.1, True),  # under a budget in seconds all take about as long
        (NEAR, 2.9, True),
        (NEAR, 3.1, False),  # worse and slower, if only by a little
        (NEAR, 0.9, True),
        (BEST, 9.0, False),  # as good and smaller, but it takes three times as long
    ],
)
def test_of_what_took_as_long_the_verdict_takes_the_smallest(right: list[float], seconds: float, used: bool) -> None:
    said = verdict(trial("large", BEST, 3.0, 2_000_000), trial("small", right, seconds, 4000))
    assert ("Use small," in said) == used


def test_what_is_worse_and_slower_is_never_advised() -> None:
    """Both take a moment; the larger and better one was the quicker."""
    said = verdict(trial("bayes", BEST, 0.0, 50_000), trial("linear", NEAR, 0.1, 20_000))
    assert said.endswith("Use bayes (trained in 0.0 s, 50.0 k parameters).")


def test_few_rows_prove_nothing_but_points_still_count() -> None:
    """With 20 rows three more that are right may be chance; advice still goes to the better one."""
    slow, few = trial("slow", [1.0] * 15 + [0.0] * 5, 30.0, 9), trial("few", [1.0] * 12 + [0.0] * 8, 0.1, 9)
    said = verdict(slow, few)
    assert "not better than few" in said and "Use slow (" in said


def measured(name: str, errors: list[float], seconds: float, parameters: int) -> Trial:
    """A model of numbers with these squared errors."""
    table = np.stack([np.array(errors), np.ones(len(errors))], 1)
    result = {"figure": "mean_squared_error", "mean_squared_error": float(table[:, 0].mean())}
    one = Evaluation(result, table)
    return replace(trial(name, [1.0], seconds, parameters), evaluations=[one] * 3, evaluation=one)


def test_of_numbers_the_smallest_error_is_best_and_one_near_it_may_be_used() -> None:
    noise = np.random.default_rng(0).random(500)
    slow, far = measured("slow", noise.tolist(), 30.0, 2_000_000), measured("far", (noise + 1).tolist(), 0.5, 40)
    quick = measured("quick", (noise + np.tile([0.21, -0.19], 250)).tolist(), 0.5, 4000)
    ranked = _ranked([far, quick, slow])
    assert ranked[-1].recipe.name == "far" and ranked[1].differs == "yes (p < 0.001)"
    said = _verdict(ranked, "mean squared error")
    assert said.startswith("slow is best") and "Use quick, as good within 5 % (" in said
