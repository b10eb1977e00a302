"""Texts that are too small or too plain, with every smoothing: a sensible model, or one message and nothing left."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.look.explain.equations import example, holdings
from segue.look.explain.evidence import followers
from segue.models.ngram import Ngram

SMOOTHINGS = get_args(get_type_hints(Ngram.Config)["smoothing"])
TEXTS = {
    "one letter": "a",
    "one word": "cow\n",
    "one word again and again": "cow cow cow cow cow cow cow cow\n" * 3,
    "one word a line": "cow\n" * 30,
    "lines shorter than the order": "a b\nc d\n" * 10,
    "every word once": "the cow eats green grass\n",
}


def book(folder: Path, text: str) -> Path:
    path = folder / "book.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_small_text_makes_a_sensible_model(text: str, smoothing: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model.smoothing": smoothing, "model.order": 5, "tokens.kind": "word"}
    settings |= {"data.unit": "line", "data.validation": 0, "tokens.min_count": 1}
    run = segue.train("ngram", book(tmp_path, text), tmp_path / "run", settings)
    for context in ("", "cow", "cow cow cow cow cow cow", "zebra a b", "the cow eats green grass"):
        ids = [run.sizes.start, *run.tokenizer.encode(context).tolist()]
        p = run.model.distribution(ids)
        assert np.isfinite(p).all() and (p >= 0).all() and p.max() > 0
        if run.model.normalised:
            assert p.sum() == pytest.approx(1, abs=1e-9)
        assert followers(run.model, run.tokenizer, ids).tokens[0].probability == p.max()
    assert example(run.model, run.tokenizer).lines and len(holdings(run.model)) == 5
    assert [len(line.tokens) for line in run.score(["", "cow"], end=True)] == [1, 2]
    assert isinstance(run.generate("", max_tokens=5, seed=0), str)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("\n \n\n", "holds no text"),
        ("cow cow\n", "has only 1 units"),
        ("a b\nc d\n", "2 times or more"),
    ],
    ids=["empty", "blank", "nothing to hold out", "nothing twice"],
)
def test_no_text_is_one_message(
    text: str, told: str, smoothing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "ngram", str(book(tmp_path, text)), "--out", str(tmp_path / "run")]
    words += [f"model.smoothing={smoothing}", "tokens.kind=word", "data.unit=line"]
    assert main(words) == 2
    said = capsys.readouterr()
    assert told in said.err and said.err.count("segue: ") == 1 and "Traceback" not in said.err
    assert said.out == "" and sorted(path.name for path in tmp_path.iterdir()) == ["book.txt"]


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_a_page_is_made_of_a_small_text_too(smoothing: str, tmp_path: Path) -> None:
    settings = {"model.smoothing": smoothing, "model.order": 9, "data.unit": "line"}
    run = segue.train("ngram", book(tmp_path, "ab\n" * 20), tmp_path / "run", settings)
    assert 'id="expected"' in (run.path / "report.html").read_text(encoding="utf-8")


def test_too_few_counts_take_the_usual_discounts(tmp_path: Path) -> None:
    """Every word once: there is no n2, so that a discount cannot be estimated."""
    for smoothing, usual in (("modified_kneser_ney", (0.5, 1.0, 1.5)), ("kneser_ney", (0.75, 0.75, 0.75))):
        settings: dict[str, Any] = {"model.smoothing": smoothing, "model.order": 2, "tokens.kind": "word"}
        settings |= {"data.validation": 0, "tokens.min_count": 1}
        run = segue.train("ngram", book(tmp_path, "the cow eats green grass"), tmp_path / smoothing, settings)
        assert np.array_equal(run.model.discounts, [usual, usual])
        assert all(one.usual for one in holdings(run.model))
