"""What is said of a comparison: who is best, whether that is more than chance, and which model to use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from segue import tasks
from segue.inference.evaluation import Evaluation
from segue.runs import folder
from segue.runs.experiments.compare import _ranked
from segue.runs.experiments.verdict import Trial, _verdict


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def judged(right: list[float]) -> Evaluation:
    """A classifier that was right on these rows."""
    rows = np.array(right)
    pieces = np.stack([rows, np.ones(len(rows))], 1)
    return Evaluation({"figure": "accuracy", "accuracy": float(rows.mean())}, pieces, share=True)


def trial(name: str, right: list[float], seconds: float, parameters: int) -> Trial:
    Path(name).mkdir()
    folder.write_json(Path(name) / "result.json", {"train_seconds": seconds, "parameters": parameters})
    recipe, run = SimpleNamespace(name=name, task=tasks.task("classify")), SimpleNamespace(path=Path(name))
    return Trial(recipe, [run], judged(right), [])  # type: ignore[arg-type, list-item]


def verdict(*trials: Trial) -> str:
    return _verdict(_ranked(list(trials)), "accuracy")


def test_the_verdict_prefers_what_is_quicker_and_as_good() -> None:
    slow = trial("slow", [1.0] * 900 + [0.0] * 100, 30.0, 2_000_000)
    quick = trial("quick", [1.0] * 897 + [0.0] * 103, 0.5, 4000)
    said = verdict(quick, slow)
    assert said.startswith("slow is best, with 0.900 accuracy, but not surely better than quick (p = ")
    assert "use quick, as good within a point (0.897) and trained in 0.5 s rather than 30.0 s" in said
    assert said.endswith("with 4.0 k parameters rather than 2.0 M.")


def test_the_verdict_keeps_what_is_better() -> None:
    slow = trial("slow", [1.0] * 900 + [0.0] * 100, 30.0, 2_000_000)
    far = trial("far", [1.0] * 800 + [0.0] * 200, 0.5, 4000)
    assert verdict(far, slow).endswith(
        "by more than chance (p < 0.001): use slow (trained in 30.0 s, 2.0 M parameters)."
    )


def test_of_what_took_as_long_the_verdict_takes_the_smallest() -> None:
    """Under a budget in seconds all take about as long."""
    right = [1.0] * 900 + [0.0] * 100
    said = verdict(trial("large", right, 3.0, 2_000_000), trial("small", right, 3.1, 4000))
    assert "use small," in said


def test_few_rows_prove_nothing_but_points_still_count() -> None:
    """With 20 rows three more that are right may be chance; advice still goes to the better one."""
    slow, few = trial("slow", [1.0] * 15 + [0.0] * 5, 30.0, 9), trial("few", [1.0] * 12 + [0.0] * 8, 0.1, 9)
    assert "not surely better than few" in verdict(slow, few) and ": use slow (" in verdict(slow, few)


def test_rows_that_are_too_few_to_test() -> None:
    """With five rows even the largest difference is not tested, nor is a model advised; with six it is."""

    def pair(name: str, rows: int) -> list[Trial]:
        both = [trial(f"{name}{share}", [float(share)] * rows, 1.0, 9) for share in (0, 1)]
        return _ranked([replace(one, recipe=SimpleNamespace(**vars(one.recipe), data=data)) for one in both])  # type: ignore[arg-type]

    data = SimpleNamespace(test="test.tsv")
    few, enough = pair("few", 5), pair("enough", 6)
    assert [one.differs for one in few] == ["–", ""] and enough[0].differs.startswith("yes (p = 0.0")
    assert _verdict(few, "accuracy") == (
        "few1 is best, with 1.000 accuracy, but the held-out rows are too few to tell whether it is better than few0 "
        "(5 of the 6 rows that a test takes). Give more data."
    )


def measured(name: str, errors: list[float], seconds: float, parameters: int) -> Trial:
    """A model of numbers with these squared errors."""
    table = np.stack([np.array(errors), np.ones(len(errors))], 1)
    result = {"figure": "mean_squared_error", "mean_squared_error": float(table[:, 0].mean())}
    return replace(trial(name, [1.0], seconds, parameters), evaluation=Evaluation(result, table))


def test_of_numbers_the_smallest_error_is_best_and_one_near_it_may_be_used() -> None:
    noise = np.random.default_rng(0).random(500)
    slow, far = measured("slow", noise.tolist(), 30.0, 2_000_000), measured("far", (noise + 1).tolist(), 0.5, 40)
    quick = measured("quick", (noise + np.tile([0.21, -0.19], 250)).tolist(), 0.5, 4000)
    ranked = _ranked([far, quick, slow])
    assert ranked[-1].recipe.name == "far" and ranked[1].differs == "yes (p < 0.001)"
    said = _verdict(ranked, "mean squared error")
    assert said.startswith("slow is best") and "use quick, as good within 5 % (" in said
