"""Rows as people have them: rare classes, no words at all, whole books, emoji, text from right to left, repeats.

Every kind of model is trained for a moment on the same odd file and asked odd questions; what it then says must be
probabilities, whatever it has learnt.
"""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path

import pytest

import segue
from segue.cli import main
from segue.errors import InputError

CLASSIFIERS = ["naive_bayes", "nbsvm", "ngram_bag", "bow", "dan", "cnn_classifier", "rnn_classifier"]
TAGGERS = ["window_tagger", "cnn_tagger", "rnn_tagger"]
COUNTED = ("naive_bayes", "nbsvm", "ngram_bag")
LONG = "a very long document about dogs " * 200
EMOJI, HEBREW, ARABIC = "👍🏽 wow 👩‍👩‍👧 👍🏽", "הסרט הזה נהדר", "هذا الفيلم رائع"
ODD = ["", "   ", "👍🏽", HEBREW, ARABIC, "!!!", "e\u0301\u200d\ufeff", LONG]


def rows() -> str:
    """Sixty of one class, six of another, one of a third."""
    common = [f"dull\tthe film number {i} is dull" for i in range(60)]
    rare = [f"good\t{text}" for text in ("a fine film", EMOJI, HEBREW, ARABIC, "fine , fine , fine", LONG)]
    return "\n".join([*common, *rare, "odd\tthere is only one of me"]) + "\n"


def tagged() -> str:
    sentence = "dogs\tNOUN\nbark\tVERB\n👍🏽\tSYM\nהסרט\tNOUN\n"
    return "\n".join([sentence] * 12 + ["alone\tX\n"]) + "\n"


def steps(kind: str) -> list[str]:
    return [] if kind in COUNTED else ["train.steps=1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, segue.Run]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "rows.tsv").write_text(rows(), encoding="utf-8")
    (folder / "words.conll").write_text(tagged(), encoding="utf-8")
    data = dict.fromkeys(CLASSIFIERS, "rows.tsv") | dict.fromkeys(TAGGERS, "words.conll")
    return {
        kind: segue.train(kind, str(folder / name), out=folder / kind, settings=["data.test=0.2", *steps(kind)])
        for kind, name in data.items()
    }


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_every_text_gets_a_label_with_probabilities(kind: str, runs: dict[str, segue.Run]) -> None:
    run = runs[kind]
    answers = list(run.predict([*ODD, "a dull film"]))
    assert len(answers) == len(ODD) + 1 and run.labels == ("dull", "good", "odd")
    for answer in answers:
        assert answer.label in run.labels
        assert math.fsum(answer.probabilities) == pytest.approx(1.0, abs=1e-5) and min(answer.probabilities) >= 0.0
    # Blanks are no words: what stands around nothing says nothing. (Characters of blanks are seen by byte models.)
    if run.tokenizer.kind == "word":
        assert answers[0].probabilities == pytest.approx(answers[1].probabilities, abs=1e-5)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_words_of_every_text_can_be_left_out(kind: str, runs: dict[str, segue.Run]) -> None:
    for _, words in runs[kind].predict(ODD[:-1], explain=True):
        assert all(math.isfinite(word.drop) for word in words)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_rare_class_has_its_place_in_the_figures(kind: str, runs: dict[str, segue.Run]) -> None:
    result = runs[kind].evaluate()
    assert result["labels"] == ["dull", "good", "odd"] and len(result["confusion"]) == 3
    assert sum(map(sum, result["confusion"])) == result["rows"]
    page = (runs[kind].path / "report.html").read_text(encoding="utf-8")
    for heading in ("Confusions", "Label by label", "Calibration"):
        assert f"<h2>{heading}</h2>" in page


@pytest.mark.parametrize("kind", TAGGERS)
def test_every_word_gets_a_tag(kind: str, runs: dict[str, segue.Run]) -> None:
    questions = ["dogs bark 👍🏽", "", HEBREW, f"{ARABIC} ❤️", "word " * 1500]
    answers = list(runs[kind].predict(questions))
    limit = runs[kind].recipe.batches.length
    assert [len(answer.tags) for answer in answers] == [min(limit, len(text.split())) for text in questions]
    for answer in answers:
        assert len(answer.probabilities) == len(answer.tags)
        assert all(0.0 < p <= 1.0 for p in answer.probabilities)


@pytest.mark.parametrize("kind", TAGGERS)
def test_the_page_of_a_tagger_has_its_confusions(kind: str, runs: dict[str, segue.Run]) -> None:
    page = (runs[kind].path / "report.html").read_text(encoding="utf-8")
    for heading in ("Confusions", "Label by label", "Calibration", "Rows to look at"):
        assert f"<h2>{heading}</h2>" in page


def test_what_is_cut_of_a_book_is_said(
    runs: dict[str, segue.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text(f"{LONG}\n\n{HEBREW}\n", encoding="utf-8")
    assert main(["predict", str(runs["bow"].path), str(tmp_path / "texts.txt")]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 3
    assert "tokens beyond 1,024 a line were not read" in told.err


def test_explained_predictions_on_the_command_line(
    runs: dict[str, segue.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["a fine film", "", HEBREW]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    command = ["predict", str(runs["naive_bayes"].path), str(tmp_path / "texts.txt"), "--explain"]
    assert main([*command, "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[word["word"] for word in answer["words"]] for answer in answers] == [text.split() for text in texts]
    assert all(set(answer["probabilities"]) == {"dull", "good", "odd"} for answer in answers)
    assert main(command) == 0
    label, sure, words = capsys.readouterr().out.splitlines()[0].split("\t")
    assert label == answers[0]["label"] and float(sure) == pytest.approx(
        max(answers[0]["probabilities"].values()), abs=1e-3
    )
    largest = max(answers[0]["words"], key=lambda word: abs(word["drop"]))
    assert words.startswith(f"{largest['word']} {largest['drop']:+.2f}")
    assert main(["predict", str(runs["window_tagger"].path), str(tmp_path / "texts.txt"), "--explain"]) == 2


def test_memory_does_not_grow_with_the_texts(runs: dict[str, segue.Run]) -> None:
    run = runs["naive_bayes"]

    def peak(size: int) -> int:
        tracemalloc.start()
        assert sum(1 for _ in run.predict(f"the film number {i} is dull" for i in range(size))) == size
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(600)
    assert peak(4000) < 1.5 * peak(1000)


def test_one_class_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("good\ta b\ngood\ta c\ngood\ta d\n")
    with pytest.raises(InputError, match="there is nothing to learn"):
        segue.train("naive_bayes", str(tmp_path / "one.tsv"), out=tmp_path / "run")


def test_a_file_with_its_columns_elsewhere_is_evaluated_when_said(
    runs: dict[str, segue.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a message advises can be done there and then."""
    run, turned = str(runs["naive_bayes"].path), tmp_path / "turned.txt"
    turned.write_text("the film number 3 is dull\tdull\na fine film\tgood\n")
    asked = ["evaluate", run, str(turned)]
    for settings, advised in (([], "data.format=tsv"), (["data.format=tsv"], "data.columns")):
        assert main([*asked, *settings]) == 2
        assert advised in capsys.readouterr().err
    assert main([*asked, "data.format=tsv", "data.columns=2,1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    assert main([*asked, "model.alpha=2"]) == 2
    assert "stays as it was trained" in capsys.readouterr().err
    assert main(["evaluate", run, "data.columns=2,1"]) == 2
    assert "Name one" in capsys.readouterr().err


def test_classifiers_are_not_mixed_but_made_an_ensemble(
    runs: dict[str, segue.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = [str(runs[kind].path) for kind in ("naive_bayes", "nbsvm")]
    assert main(["evaluate", "+".join(pair), "--mix"]) == 2
    advised = capsys.readouterr().err.strip().partition("segue train ")[2].split()
    assert main(["train", *advised, "--out", str(tmp_path / "both")]) == 0
    capsys.readouterr()
    assert main(["evaluate", pair[0], "--mix"]) == 2
    assert "is of several" in capsys.readouterr().err
    assert main(["generate", pair[0]]) == 2
    assert "It can: evaluate, predict, predict --explain, challenge." in capsys.readouterr().err
