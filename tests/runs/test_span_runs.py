"""A run on spans: F1 of whole spans decides what is kept, ranked and shown; predictions are entities with places."""

from __future__ import annotations

import json
import random
import re

import pytest

import segue
from segue.cli import main
from segue.runs.experiments.compare import _joined, mean_of
from segue.runs.folder import read_json
from segue.training.log import read_metrics

PEOPLE, PLACES, VERBS = ["Ann", "Bob", "Cy", "Di"], ["Rome", "Bonn", "Oslo"], ["saw", "left", "likes"]


def sentence(draw: random.Random) -> str:
    """Ann Bob saw New Rome . in IOB1."""
    person, place = draw.choices(PEOPLE, k=draw.choice([1, 2])), ["New"] * draw.choice([0, 1]) + [draw.choice(PLACES)]
    words = [(word, "I-PER") for word in person] + [(draw.choice(VERBS), "O")]
    return "".join(f"{word} {tag}\n" for word, tag in [*words, *((word, "I-LOC") for word in place), (".", "O")])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    folder = tmp_path_factory.mktemp("spans")
    draw = random.Random(0)
    (folder / "names.conll").write_text("\n".join(sentence(draw) for _ in range(120)), encoding="utf-8")
    settings = {"data.label": "bioes", "data.test": 0.25, "train.steps": 30, "train.every": 6, "model.width": 8}
    settings |= {"train.optimizer.rate": 0.02, "model.embedding": 8, "tokens.min_count": 1}
    return segue.train("window_tagger", folder / "names.conll", folder / "run", settings, device="cpu", threads=1)


def test_f1_is_the_figure_and_chooses_what_is_kept(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    result = read_json(run.path / "result.json")
    assert result["figure"] == "span_f1" and 0 < result["span_f1"] < 1 and len(result["span_f1_ci"]) == 2
    assert [one["type"] for one in result["by_type"]] == ["LOC", "PER"] and "confusion" not in result
    validated = [line for line in read_metrics(run.path) if line["kind"] == "validation"]
    assert len({line["span_f1"] for line in validated}) > 2
    best = max(validated, key=lambda line: (line["span_f1"], line["accuracy"], -line["loss"]))
    assert result["best_step"] == best["step"]
    assert main(["runs", str(run.path.parent)]) == 0
    assert re.search(r"span F1 +\d+\.\d %", capsys.readouterr().out)


def test_the_page_has_types_and_entities(run: segue.Run) -> None:
    page = (run.path / "report.html").read_text(encoding="utf-8")
    table = page[page.index("Type by type") :]
    assert all(f">{name}<" in table for name in ("PER", "LOC")) and "precision" in table
    assert re.search(r"<mark>(Ann|Bob|Cy|Di|[A-Z]\w+ \w+)<small> PER</small></mark>", page)
    assert "Label by label" not in page and "Confusions" not in page and "O O" not in page
    assert "span F1" in page[page.index('id="curves"') : page.index('id="types"')]


def test_the_terminal_has_a_row_for_each_type(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert said.index("span F1") < said.index("precision") < said.index("recall") < said.index("accuracy")
    assert re.search(r"PER +[\d.]+ % +[\d.]+ % +[\d.]+ % +\d+", said)


def test_raw_text_is_split_and_entities_have_their_places(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    text = "Ann Bob likes New Rome."
    (one,) = run.predict([text])
    assert one.words == ("Ann", "Bob", "likes", "New", "Rome", ".")
    (split,) = run.predict(["Ann Bob likes New Rome ."])
    assert split.words == one.words and split.tags == one.tags
    file = run.path.parent / "in.txt"
    file.write_text(text + "\n", encoding="utf-8")
    assert main(["predict", str(run.path), str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["text"], said["words"], said["tags"]) == (text, list(one.words), list(one.tags))
    assert len(said["entities"]) == len(one.entities) > 0 and len(said["probabilities"]) == 6
    for entity in said["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"] and 0 < entity["probability"] <= 1
    assert main(["predict", str(run.path), str(file)]) == 0
    line = capsys.readouterr().out.strip()
    assert re.sub(r"\[(PER|LOC) |\]", "", line) == "Ann Bob likes New Rome ." and line != text


def test_folds_are_joined_and_seeds_averaged_type_by_type(run: segue.Run) -> None:
    assert run.evaluation is not None
    one = run.evaluation
    both = _joined([one, one])
    for row, twice in zip(one.result["by_type"], both.result["by_type"], strict=True):
        assert [twice[key] for key in ("right", "predicted", "true")] == [
            2 * row[key] for key in ("right", "predicted", "true")
        ]
        assert twice["f1"] == pytest.approx(row["f1"])
    mean = mean_of([one, one])
    assert mean.result["span_f1"] == pytest.approx(one.result["span_f1"]) and mean.figure == "span_f1"
    assert mean.result["precision"] == pytest.approx(one.result["precision"])
