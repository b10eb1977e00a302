"""A page of many models: colours by family that everyone can tell apart, the best few open, the others folded away."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue import tasks
from segue.inference.evaluation import NAMES
from segue.look.page import markup, meanings
from segue.look.page.curves import Curve
from segue.look.page.report import Entry, Page, render
from segue.models import kinds, model_class
from segue.recipe import load_recipe
from segue.runs.gather import TEMPERATURES, data_names, tempered, trend_of


def entry(i: int, family: str, **changes: Any) -> Entry:
    words = [("It", 3.0), (" follows", 9.5)]
    made = Entry(
        *(f"{family}/m{i}", "char", {"bits per byte": 2.0 + i / 10}, (1.9, 4.1), "", 1, 1.0, 1.0, 1),
        *(Curve(), "sample", words, None, [], "r"),
        family=family,
    )
    return replace(made, **changes)


def page(entries: list[Entry]) -> str:
    return render(Page("t", "rows", ["s"], entries, "It", None, {}, "", "", ""))


def swatches(html: str, name: str) -> set[str]:
    return set(re.findall(rf'<i class="swatch (hue\d)"></i>(?:<b>)?{re.escape(name)}<', html))


def test_more_models_than_colours_share_those_of_their_family() -> None:
    entries = [entry(i, ("RNN", "n-gram", "Transformer")[i % 3]) for i in range(21)]
    html = page(entries)
    for one in entries:
        assert swatches(html, one.model) == {f"hue{('RNN', 'n-gram', 'Transformer').index(one.family)}"}
    assert all(f"</i>{family}</li>" in html for family in ("RNN", "n-gram", "Transformer"))
    few = page(entries[: markup.HUES])
    assert len({colour for one in entries[: markup.HUES] for colour in swatches(few, one.model)}) == markup.HUES
    assert "</i>RNN</li>" not in few


def test_of_one_family_the_smoothings_are_told_apart() -> None:
    entries = [entry(i, "n-gram", rung=(("add alpha", "kneser ney")[i % 2], i // 2 + 1)) for i in range(10)]
    html = page(entries)
    assert {colour for one in entries[::2] for colour in swatches(html, one.model)} == {"hue0"}
    assert {colour for one in entries[1::2] for colour in swatches(html, one.model)} == {"hue1"}
    assert re.search(r'class="series hue1" data-name="kneser ney"', html)


def test_the_best_few_are_open_and_the_others_folded() -> None:
    html = page([entry(i, "RNN") for i in range(21)])
    for section in ("samples", "surprisal"):
        part = html.partition(f'<section id="{section}">')[2].partition("</section>")[0]
        assert part.count("<article") == 21 and part.partition("<details>")[0].count("<article") == 3
        assert "18 more" in part


def test_a_model_without_a_figure_has_a_dash_and_no_mark() -> None:
    html = page([entry(0, "n-gram", rung=("a", 1)), entry(1, "n-gram", rung=("a", 2)), _no_figure()])
    row = re.findall("<tr>.*?</tr>", html)[-1]
    assert "–" in row and "<circle" not in row
    assert 'data-name="stupid backoff"' not in html and "beyond the scale" not in html


def _no_figure() -> Entry:
    return entry(2, "n-gram", rung=("stupid backoff", 3), metrics={"bits per byte": None}, interval=None)


# Colours

PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
"""Machado, Oliveira and Fernandes 2009: what linear RGB looks like without one kind of cones."""
TO_LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
TO_LMS += [[0.0883024619, 0.2817188376, 0.6299787005]]
TO_LAB = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099]]
TO_LAB += [[0.0259040371, 0.7827717662, -0.808675766]]
"""Oklab, Ottosson 2020: equal distances look about equally far apart."""


def linear(colour: str) -> Any:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    darker, lighter = sorted(float(linear(one) @ [0.2126, 0.7152, 0.0722]) for one in (a, b))
    return (lighter + 0.05) / (darker + 0.05)


def distance(a: str, b: str, seen: Any) -> float:
    x, y = (np.array(TO_LAB) @ np.cbrt(np.array(TO_LMS) @ np.clip(seen @ linear(one), 0, 1)) for one in (a, b))
    return float(np.linalg.norm(x - y))


def test_colours_can_be_told_apart_by_everyone_in_light_and_dark() -> None:
    css = resources.files("segue.look.page").joinpath("page.css").read_text(encoding="utf-8")
    light, dark = css.split("@media screen and (prefers-color-scheme: dark)")[:2]
    for scheme in (light, dark.partition("\n}\n")[0]):
        colours = re.findall(r"\.hue\d { --hue: (#\w{6}) }", scheme)
        card = re.findall(r"--card: (#\w{6})", scheme)[0]
        assert len(colours) == markup.HUES
        assert min(contrast(colour, card) for colour in colours) >= 3
        for seen in (np.eye(3), np.array(PROTANOPIA), np.array(DEUTERANOPIA)):
            assert min(distance(a, b, seen) for a, b in combinations(colours, 2)) > 0.06


# Words


def test_every_figure_of_a_table_is_explained() -> None:
    shown = {NAMES.get(name, name) for task in map(tasks.task, tasks.names()) for name in (task.figure, *task.beside)}
    assert shown <= set(meanings.MEANINGS)
    assert all(meanings.MEANINGS[name] in page([entry(0, "RNN")]) for name in ("bits per byte", "tokens", "parameters"))


def test_a_term_is_explained_once_in_a_sentence_and_text_stays_text() -> None:
    said = meanings.explained("<b> of 2 bits per byte, not bits per byte")
    assert said.count("<abbr") == 1 and said.startswith("&lt;b&gt; of 2 <abbr") and said.endswith("not bits per byte")
    assert re.sub("<[^>]*>", "", said) == "&lt;b&gt; of 2 bits per byte, not bits per byte"


def test_every_kind_has_a_family() -> None:
    assert all(model_class(kind).family != "other" for kind in kinds())


def test_names_of_data_have_no_folders() -> None:
    assert data_names("/home/me/books/one.txt,runs/two.txt") == "one.txt, two.txt"
    assert data_names("pydoc") == "pydoc" and data_names("/home/me/books/") == "books"


# Sweeps


def test_recipes_that_differ_in_one_number_are_drawn_against_it() -> None:
    def recipes(*settings: str) -> list[Any]:
        return [replace(load_recipe("ngram/add-2", [one]), name=one) for one in settings]

    entries = [entry(i, "n-gram") for i in range(3)]
    trend = trend_of(recipes("model.alpha=1", "model.alpha=0.01", "model.alpha=0.1"), entries)
    assert trend is not None and trend.x_title == "model.alpha"
    assert [(point.x, point.value) for point in trend.points] == [(0.01, 2.1), (0.1, 2.2), (1.0, 2.0)]
    assert trend_of(recipes("model.alpha=1", "model.alpha=0.1", "tokens.kind=char"), entries) is None
    assert trend_of(recipes("model.alpha=1", "model.alpha=1", "model.alpha=1"), entries) is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    lines = ["the old cow eats green grass", "my dog sees a red ball", "a wise king naps well"] * 12
    return segue.train("ngram", lines, tmp_path_factory.mktemp("t") / "run", {"data.unit": "line"}, device="cpu")


def test_samples_at_several_temperatures_begin_alike(run: segue.Run) -> None:
    """The prompt and the seed are the same; at 0 the likeliest token is taken, whatever the seed."""
    written = tempered(run, "the")
    assert [temperature for temperature, _ in written] == list(TEMPERATURES)
    assert written[0][1] == run.generate("the", temperature=0.0, max_tokens=160, beam=0, seed=7)
    html = Path(run.path / "report.html").read_text(encoding="utf-8")
    assert all(f"<h3>temperature {value:g}</h3>" in html for value in TEMPERATURES)
