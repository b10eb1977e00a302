"""Models that write a target for a source, compared: by the figure that is asked for, by length, and how they align."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.inference.evaluation import Evaluation
from segue.runs.experiments.compare import _joined, compare_runs, mean_of
from segue.runs.folder import read_json
from segue.tasks.seq2seq import TASK

WORDS = ["the", "old", "cow", "eats", "green", "grass", "and", "hay"]
TINY = {
    **{"model.width": 8, "tokens.kind": "word", "tokens.vocab_size": 20, "data.test": 0.5, "data.validation": 0.1},
    **{"decode.beam": 1, "decode.max_tokens": 8, "train.plan": "none", "data.metric": "rouge1"},
}


def pairs() -> list[tuple[str, str]]:
    draw = np.random.default_rng(0)
    sources = [" ".join(draw.choice(WORDS, length)) for length in draw.integers(1, 9, 120)]
    return [(source, source.upper()) for source in sources]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without attention and one with, each after two steps."""
    folder = tmp_path_factory.mktemp("pairs")
    models = ["rnn_seq2seq/start", "rnn_seq2seq/dot"]
    segue.compare(pairs(), models, budget=2, out=folder / "compared", settings=TINY, threads=1)
    return folder / "compared"


def test_models_are_ranked_by_the_metric_that_is_named(compared: Path) -> None:
    result = read_json(compared / "result.json")
    assert result["figure"] == "rouge1"
    first, second = result["rows"]
    assert first["rouge1"] >= second["rouge1"] and len(first["rouge1_ci"]) == 2
    assert set(TASK.metrics) | {"distinct1", "distinct2"} <= set(first)
    for row in first["by_length"]:
        assert 0 <= row["rouge1"] <= 100 and row["rows"] >= 20
    assert sum(row["rows"] for row in first["by_length"]) == 60


def test_the_page_has_the_figure_by_length_and_alignments(compared: Path) -> None:
    page = (compared / "report.html").read_text(encoding="utf-8")
    assert "ROUGE-1 of sources of like length" in page and '<section id="lengths">' in page
    inside = page.split('<section id="inside">')[1].split("</section>")[0]
    assert inside.count("<figure") == 2 and "rnn_seq2seq/dot: " in inside and "start" not in inside
    own = (compared / "rnn_seq2seq-dot" / "report.html").read_text(encoding="utf-8")
    assert '<section id="lengths">' in own and '<section id="inside">' in own
    assert '<section id="inside">' not in (compared / "rnn_seq2seq-start" / "report.html").read_text(encoding="utf-8")


def test_finished_runs_are_judged_by_another_metric(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = compared / "rnn_seq2seq-dot"
    assert segue.load(run).evaluate(settings=["data.metric=exact"])["figure"] == "exact"
    assert main(["evaluate", str(run), "data.metric=blue"]) == 2
    assert "data.metric" in capsys.readouterr().err
    runs = [str(run), str(compared / "rnn_seq2seq-start")]
    out = ["--out", str(compared.parent / "again")]
    assert main(["runs", "compare", *runs, "data.metric=chrf", *out]) == 0
    assert "chrF" in capsys.readouterr().out
    assert read_json(compared.parent / "again" / "result.json")["figure"] == "chrf"


def test_runs_that_rank_by_different_metrics_need_one_for_all(compared: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    settings = TINY | {"data.metric": "f1", "train.steps": 1}
    segue.train("rnn_seq2seq/start", pairs(), other, settings, threads=1)
    with pytest.raises(InputError, match=r"rouge1, .* by f1\. Say one for all: data\.metric=rouge1"):
        compare_runs([compared / "rnn_seq2seq-dot", other], out=tmp_path / "c")


def test_folds_and_seeds_have_the_figure_by_length_of_all_their_rows() -> None:
    def fold(values: list[float]) -> Evaluation:
        pieces = np.stack([np.repeat(values, 30), np.ones(60)], 1)
        lengths = np.repeat([1, 9], 30)
        return Evaluation({"figure": "f1", "task": "seq2seq", "f1": 0.0}, pieces, lengths_N=lengths).refigured()

    folds = [fold([0.75, 0.25]), fold([0.25, 0.25])]
    short, long = _joined(folds).result["by_length"]
    assert (short["rows"], short["f1"]) == (60, 0.5) and (long["rows"], long["f1"]) == (60, 0.25)
    short, long = mean_of(folds).result["by_length"]
    assert (short["rows"], short["f1"]) == (30, 0.5) and (long["rows"], long["f1"]) == (30, 0.25)
