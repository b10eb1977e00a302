"""The ladder of smoothings: which recipes are shipped, that they can be compared in one go, and the picture of it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import segue
from segue.cli import main
from segue.look.page.charts import Axes, Line, line_chart
from segue.look.page.report import Curve, Entry, Page, render
from segue.models.names import recipe_names
from segue.models.ngram import Ngram
from segue.recipe import load_recipe
from segue.runs.experiments.compare import _expand

RECIPES = {name: load_recipe(name) for name in recipe_names("ngram")}
TEXT = "the cow eats the green grass.\na big dog sees the small cow and runs.\n\n" * 60


def rungs(smoothing: str) -> list[int]:
    """The orders of the recipes over words with a smoothing."""
    found = [one.model for one in RECIPES.values() if one.tokens.kind == "word"]
    return sorted(one.order for one in found if one.smoothing == smoothing)


def test_three_smoothings_at_every_order_and_the_others_once() -> None:
    for smoothing in ("add_alpha", "interpolation", "modified_kneser_ney"):
        assert rungs(smoothing) == [1, 2, 3, 4, 5]
    for smoothing in ("maximum_likelihood", "witten_bell", "absolute_discounting", "kneser_ney", "stupid_backoff"):
        assert rungs(smoothing) == [3]


def test_no_two_are_the_same_and_names_say_the_order() -> None:
    assert len({(one.model, one.tokens, one.data) for one in RECIPES.values()}) == len(RECIPES)
    for name, one in RECIPES.items():
        if digits := re.search(r"(?<=-|n)\d$", name):
            assert int(digits[0]) == one.model.order
        assert all(getattr(one.model, key) == getattr(Ngram.Config(), key) for key in ("alpha", "lambdas", "discount"))


def test_a_pattern_leaves_out_the_recipes_of_one_corpus() -> None:
    """They read the data in a way of their own, so that no text could be compared."""
    found = _expand("ngram/*")
    assert "ngram/ptb" in RECIPES and "ngram/ptb" not in found and len({RECIPES[name].data for name in found}) == 1
    assert len(found) > 20 and _expand("ngram/ptb") == _expand("ngram/p*") == ["ngram/ptb"]


def test_they_are_compared_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Impossible words and scores that are no probabilities among them."""
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    names = ["add-1", "add-2", "jm-1", "jm-2", "unigram", "bigram", "ml-3", "sb-3"]
    models = ",".join(f"ngram/{name}" for name in names)
    words = ["compare", str(tmp_path / "book.txt"), "--models", models, "--out", str(tmp_path / "c")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert all(f"ngram/{name}" in said for name in names)
    row = next(line for line in said.splitlines() if line.startswith("ngram/sb-3"))
    assert "–" in row and "∞" not in row
    page = (tmp_path / "c" / "report.html").read_text(encoding="utf-8")
    ladder = re.findall(r'<section id="ladder">.*?</section>', page, re.S)[0]
    for name in ("add alpha", "interpolation", "modified kneser ney"):
        group = re.findall(rf'data-name="{name}">(.*?)</g>', ladder)[0]
        assert group.count("<circle") == 2  # orders 1 and 2
    assert "stupid backoff" not in ladder


def test_scores_alone_are_told_to_be_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    result = segue.compare(str(tmp_path / "book.txt"), ["ngram/sb-3"], out=tmp_path / "c")
    assert result["rows"][0]["bits_per_byte"] is None and "scores are no probabilities" in result["verdict"]
    assert main(["runs", str(tmp_path / "c")]) == 0
    assert "log score" in capsys.readouterr().out


def entry(rung: tuple[str, int] | None, bits: float | None, tokens: str = "word") -> Entry:
    curve = Curve([], [], [])
    return Entry(
        "m", tokens, {"bits per byte": bits}, None, "", 1, 1.0, 1.0, 1, curve, "", [], None, [], "r", rung=rung
    )


def page(*entries: Entry) -> str:
    return render(Page("t", "lm", ["s"], list(entries), "", None, {}, "", "", ""))


def test_the_picture_needs_two_orders_and_finite_figures() -> None:
    one, two = entry(("a", 1), 2.0), entry(("a", 2), 1.5)
    assert 'id="ladder"' in page(one, two)
    for others in ([one], [one, one], [one, entry(("a", 2), math.inf)], [one, entry(("a", 2), None)]):
        assert 'id="ladder"' not in page(*others)
    assert 'id="ladder"' not in page(entry(None, 2.0), entry(None, 1.0))
    assert 'data-name="a, char"' in page(one, two, entry(("a", 3), 1.0, "char"))


def test_orders_stand_at_whole_numbers() -> None:
    lines = [Line("a", 0, [1, 2, 3], [3.0, 2.0, 1.0]), Line("b", 1, [3], [2.0])]
    for size in ("wide", "narrow"):
        chart = line_chart(lines, Axes("order", "bits per byte", True, whole=True), size)
        assert re.findall(r'text-anchor="middle">([^<]*)<', chart) == ["1", "2", "3"]
