"""What a page gathers: the command that made it; of a model without smoothing a sample that ends at a dead end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import segue
from segue.cli import main
from segue.runs.folder import read_json
from segue.runs.gather import command_line

SEEN = "".join(f"the cow eats the green grass and they saw beast{i}\n" for i in range(30))
UNSEEN = "they saw the green cow\n" * 8
NO_SMOOTHING = ["model.smoothing=maximum_likelihood", "model.order=3", "tokens.kind=word", "tokens.vocab_size=12"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of maximum likelihood in whose text only unknown words follow "they saw", and these are never written."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(SEEN)
    Path("unseen.txt").write_text(UNSEEN)
    assert main(["train", "ngram", "book.txt", "--out", "ml", "data.validation=unseen.txt", *NO_SMOOTHING]) == 0
    return Path("ml")


def test_maximum_likelihood_ends_with_a_page_and_says_why(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = read_json(run / "result.json")
    assert result["perplexity"] is None and result["zero_probability_tokens"] > 3
    assert f"{result['zero_probability_tokens']} of {result['tokens']} tokens (such as " in result["why_infinite"]
    assert "the text ends here: without smoothing nothing can follow" in (run / "report.html").read_text()
    assert main(["evaluate", "ml"]) == 0
    shown = capsys.readouterr().out
    assert "why ∞" in shown and "too little" not in shown


@pytest.mark.parametrize("options", [[], ["--beam", "3"], ["--temperature", "0"], ["-n", "2"]])
def test_a_text_that_cannot_go_on_ends_and_says_so(
    run: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "ml", "--prompt", "and they saw", *options]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("and they saw") and "nothing can follow" in said.err
    assert main(["generate", "ml", "--prompt", "the cow", "--max-tokens", "2", *options]) == 0
    said = capsys.readouterr()
    assert len(said.out.split()) > 2 and "nothing can follow" not in said.err


def test_python_warns_and_looking_goes_on(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = segue.load(run)
    with pytest.warns(UserWarning, match="nothing can follow"):
        assert opened.generate("and they saw") == " beast"
    with pytest.warns(UserWarning, match="nothing can follow"):
        assert list(opened.stream("and they saw")) == [" beast"]
    capsys.readouterr()
    assert main(["look", "ml", "and they saw", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"]


def test_one_end_that_training_never_saw_makes_a_unigram_infinite(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single document is cut: only the held-out part has its end."""
    Path("letters.txt").write_text("abcab" * 200)
    bare = ["model.smoothing=maximum_likelihood", "model.order=1"]
    assert main(["train", "ngram", "letters.txt", "--out", "uni", *bare]) == 0
    assert "1 of 101 tokens (the end of a text) never stood" in " ".join(capsys.readouterr().out.split())


def test_a_comparison_with_it_has_a_table(run: Path) -> None:
    Path("ml.toml").write_text('kind = "ngram"\nname = "ml"\n[model]\nsmoothing = "maximum_likelihood"\norder = 3\n')
    Path("book.txt").write_text(SEEN + UNSEEN)
    rows = segue.compare("book.txt", ["ml.toml", "ngram"], out="c", settings=["tokens.kind=word"])["rows"]
    assert [row["model"] for row in rows] == ["ngram", "ml"]


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/usr/bin/segue", "compare", "my book.txt"], "segue compare 'my book.txt'"),
        (["/lib/segue/__main__.py", "compare", "pydoc"], "segue compare pydoc"),
        (["/lib/ipykernel_launcher.py", "-f", "/home/ann/kernel-1.json"], ""),
        (["study.py", "3"], ""),
    ],
)
def test_a_page_names_the_command_that_made_it_and_no_other_programs(
    argv: list[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", argv)
    assert command_line() == command
