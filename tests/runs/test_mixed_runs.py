"""A run on several corpora, from the path to the page: what it says of each of them, and that it can be resumed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.batches.corpus_mix import STRETCH
from segue.batches.encode import encode_split
from segue.cli import main
from segue.data.corpus import Config, Corpus
from segue.data.shapes import TEXT
from segue.errors import InputError
from segue.runs.folder import read_json
from segue.training.log import read_metrics

TINY = {
    **{"model.width": 8, "model.embedding": 8, "batches.size": 5, "batches.length": 8, "data.unit": "line"},
    **{"train.steps": 60, "train.every": 20, "train.seed": 2, "train.log_every": 20},
}
FARM = [
    f"the {who} {does} the {what}." for who in ("cow", "hen") for does in ("eats", "sees") for what in ("hay", "dog")
]
SEA = [f"a {who} swims past {what} ships" for who in ("whale", "seal", "crab") for what in ("two", "six", "old", "new")]


class Killed(BaseException):
    """Not one that anyone catches."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("farm.txt").write_text("\n".join(FARM * 10) + "\n")
    Path("sea.txt").write_text("\n".join(SEA * 40) + "\n")


def trained(kind: str, data: str, out: str, **settings: Any) -> segue.Run:
    return segue.train(kind, data, out, {**(TINY if kind == "rnn_lm" else {"data.unit": "line"}), **settings})


def test_the_epochs_of_each_corpus_are_said_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("rnn_lm", "farm.txt:3+sea.txt:1", "r")
    result, ledger = (read_json(run.path / name) for name in ("result.json", "ledger.json"))
    farm, sea = ledger["corpora"]
    assert (farm["corpus"], farm["weight"], sea["corpus"], sea["weight"]) == ("farm.txt", 0.75, "sea.txt", 0.25)
    assert result["epochs_by_corpus"] == {"farm.txt": farm["epochs"], "sea.txt": sea["epochs"]}
    # All that was predicted in 60 steps of 5 rows of 8 tokens, three in four from the farm: to less than the tokens
    # that the one row that changes its corpus reads before it changes.
    drawn = [row["tokens"] * row["epochs"] for row in (farm, sea)]
    assert sum(drawn) == pytest.approx(60 * 5 * 8)
    assert result["epochs"] == pytest.approx(60 * 5 * 8 / (farm["tokens"] + sea["tokens"]))
    assert drawn[0] == pytest.approx(0.75 * sum(drawn), abs=STRETCH * 8)
    # The train split: nine lines in ten, with a STOP each.
    assert farm["tokens"] == sum(len(line) + 1 for line in (FARM * 10)[:72])
    page = (run.path / "report.html").read_text()
    assert "epochs elapsed" in page and f"<td>{farm['epochs']:.2f}</td>" in page.replace(
        ' data-label="epochs elapsed"', ""
    )
    assert main(["train", "rnn_lm", "--out", "r", "--resume"]) == 0
    said = capsys.readouterr().out
    assert "epochs elapsed" in said and f"{farm['epochs']:.2f}" in said and "75.0 %" in said


def test_figures_by_corpus_make_up_the_figure_of_all() -> None:
    run = trained("rnn_lm", "farm.txt:3+sea.txt:1", "r", **{"train.steps": 20})
    result = read_json(run.path / "result.json")
    farm, sea = result["by_corpus"]
    assert farm["tokens"] + sea["tokens"] == result["tokens"]
    nats = farm["loss"] * farm["tokens"] + sea["loss"] * sea["tokens"]
    assert nats / result["tokens"] == pytest.approx(math.log(result["perplexity"]))
    # A character is a byte here, and so is the end of a line.
    bits = [part["bits_per_byte"] * part["tokens"] for part in (farm, sea)]
    assert sum(bits) / result["bytes"] == pytest.approx(result["bits_per_byte"])
    # Read by itself from its beginning, the first corpus is scored as it was.
    Path("held.txt").write_text("\n".join((FARM * 10)[72:]) + "\n")
    assert run.evaluate("held.txt")["bits_per_byte"] == pytest.approx(farm["bits_per_byte"], rel=1e-5)
    other = run.evaluate("held.txt+sea.txt")["by_corpus"]
    assert [row["corpus"] for row in other] == ["held.txt", "sea.txt"]
    assert other[0]["bits_per_byte"] == pytest.approx(farm["bits_per_byte"], rel=1e-5)


def test_spelling_is_paid_for_by_the_corpus_that_has_the_word() -> None:
    Path("odd.txt").write_text("the cow eats the zyzzyva.\n")
    run = trained("ngram", "farm.txt", "r", **{"tokens.kind": "word", "data.unit": "line"})
    both = run.evaluate("farm.txt+odd.txt")
    alone = run.evaluate("odd.txt")
    assert alone["unknown_tokens"] == both["unknown_tokens"] > 0
    farm, odd = both["by_corpus"]
    assert odd["bits_per_byte"] == pytest.approx(alone["bits_per_byte"])
    size = len(Path("odd.txt").read_bytes())
    total = farm["bits_per_byte"] * (both["bytes"] - size) + odd["bits_per_byte"] * size
    assert total / both["bytes"] == pytest.approx(both["bits_per_byte"])


@pytest.mark.parametrize("vary", [False, True])
def test_a_run_on_several_corpora_resumes_bit_for_bit(vary: bool) -> None:
    data = "farm.txt:3+sea.txt:2+pydoc:1"
    short = {"data.validation": 0.01, "batches.vary": vary}
    once = trained("rnn_lm", data, "once", **short)

    def killed(what: str, share: float, note: str = "") -> None:
        if note.startswith("step 40"):
            raise Killed

    with pytest.raises(Killed):
        segue.train("rnn_lm", data, "twice", {**TINY, **short}, progress=killed)
    assert [path.name for path in Path("twice/checkpoints").iterdir()] == ["step-00000020"]
    segue.train(None, out="twice", resume=True)
    assert Path("twice/model.safetensors").read_bytes() == (once.path / "model.safetensors").read_bytes()
    losses = [[line["loss"] for line in read_metrics(Path(name)) if "loss" in line] for name in ("once", "twice")]
    assert losses[0] == losses[1]
    both = [read_json(Path(name) / "result.json")["epochs_by_corpus"] for name in ("once", "twice")]
    assert both[0] == both[1]


def test_models_that_count_read_all_once_and_take_no_weights() -> None:
    run = trained("ngram", "farm.txt+sea.txt", "r")
    assert read_json(run.path / "result.json")["epochs_by_corpus"] == {"farm.txt": 1.0, "sea.txt": 1.0}
    with pytest.raises(InputError, match=r"counts every token once.*Leave the weights out, farm\.txt\+sea\.txt"):
        trained("ngram", "farm.txt:3+sea.txt:1", "s")
    with pytest.raises(InputError, match=r"word2vec reads every token once.*out, farm\.txt\+sea\.txt\.$"):
        trained("word2vec", "farm.txt:3+sea.txt:1", "s")
    assert not Path("s").exists()


def test_a_single_corpus_has_no_table() -> None:
    run = trained("rnn_lm", "farm.txt", "r", **{"train.steps": 2})
    assert "epochs_by_corpus" not in read_json(run.path / "result.json")
    assert "corpora" not in read_json(run.path / "ledger.json")
    assert "epochs elapsed" not in (run.path / "report.html").read_text()


def test_of_a_limit_each_corpus_gets_its_share(tmp_path: Path) -> None:
    run = trained("ngram", "farm.txt+sea.txt", "r")
    corpus = Corpus(Config(path="farm.txt+sea.txt", unit="line", validation=0.5), TEXT)
    whole = encode_split(corpus, "validation", run.tokenizer, None, tmp_path / "whole")
    part = encode_split(corpus, "validation", run.tokenizer, None, tmp_path / "part", 1000)
    assert part.cut and not whole.cut
    assert part.ends[1] == pytest.approx(1000, abs=2)
    assert part.ends[0] / part.ends[1] == pytest.approx(whole.ends[0] / whole.ends[1], abs=0.01)
    begin, end = part.ends[0], part.ends[1]
    assert part.store.tokens[:begin].tolist() == whole.store.tokens[:begin].tolist()
    after = whole.store.tokens[whole.ends[0] : whole.ends[0] + end - begin]
    assert part.store.tokens[begin:].tolist() == after.tolist()


def test_the_tokens_are_learnt_from_all() -> None:
    Path("greek.txt").write_text("αβγ δεζ\n" * 50)
    run = trained("rnn_lm", "farm.txt:9+greek.txt:1", "r", **{"train.steps": 2, "tokens.sample": 500})
    assert not run.unknown("the cow αβγ")


@pytest.mark.parametrize(("length", "told"), [(8, True), (16, False)])
def test_places_that_are_never_trained_are_told(length: int, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["model.layers=1", "model.width=8", "model.heads=2", "model.context=16", f"batches.length={length}"]
    words = ["train", "gpt", "farm.txt", "--out", "r", "data.unit=line", "train.steps=1", *small, "--json"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert ("places from 9 on are never trained" in captured.err) == told
    assert json.loads(captured.out)["result"]["steps"] == 1
