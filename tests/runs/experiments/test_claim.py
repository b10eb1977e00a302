"""Claims: what is shipped can be read, a small one is run to its end and judged, and what is wrong is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from segue import tasks
from segue.cli import main
from segue.data import copy_task
from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.shapes import LABELLED, TEXT
from segue.errors import InputError, SegueError
from segue.inference.evaluation import Evaluation
from segue.look.page.report import Curve
from segue.look.page.trend import Point, Trend, alone, trend_chart
from segue.models.base import Sizes
from segue.models.names import recipe_names
from segue.models.rnn_lm import RnnLm
from segue.recipe import load_recipe
from segue.runs.experiments import claim as claims
from segue.runs.experiments.claim import Claim, Outcome, claim_names, read_claim, run_claim, trained_names

SMALL = """
says = "A trigram knows more than
a unigram."
kind = "ngram"
against = "model.order"
law = true
decides = ["three < two < one"]
[data]
path = "grammar"
validation = 0.05
test = 0.1
[variants.one]
model.order = 1
[variants.two]
model.order = 2
[variants.three]
model.order = 3
""".replace("more than\na", "more than a")

NEURAL = """
says = "A faster rate learns more in thirty steps."
kind = "bow"
seeds = 2
decides = ["slow < fast"]
[data]
path = "grammar"
validation = 0.1
test = 0.3
[train]
steps = 30
every = 10
[variants.slow]
train.optimizer.rate = 0.00001
[variants.fast]
train.optimizer.rate = 0.02
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def reviews(folder: Path) -> str:
    """Rows that a bag of words can tell apart, by one of sixteen words."""
    rows = [f"{'good' if i % 2 else 'bad'}\ta {'fine' if i % 2 else 'dull'}{i % 16} film\n" for i in range(400)]
    (folder / "rows.tsv").write_text("".join(rows))
    return str(folder / "rows.tsv")


def refused(folder: Path, text: str, **arguments: Any) -> str:
    with pytest.raises(InputError) as error:
        run_claim(written(folder, text), out=folder / "out", **arguments)
    assert not (folder / "out").exists()
    return str(error.value)


# What is shipped


def test_all_the_lectures_claims_are_there_and_are_no_recipes() -> None:
    trained = [
        "attention",
        "coverage",
        "data",
        "depth",
        "directions",
        "forget",
        "frozen-or-tuned",
        "funnel",
        "labelled-rows",
        "layernorm",
        "masks-15-40",
        "masks-static-dynamic",
        "next-sentence",
        "norm",
        "positions",
        "repeats",
    ]
    trained += ["residual", "reversed", "size", "t5-repeats", "teacher_forcing", "window"]
    assert trained_names() == trained and claim_names() == sorted([*trained, "length"])
    assert not [name for name in recipe_names() if name.startswith("claims")]


@pytest.mark.parametrize("name", trained_names())
def test_every_shipped_claim_is_of_one_text_and_counts_its_steps(name: str) -> None:
    """Budgets in steps, so that a table can be made again; at least two seeds; every variant another recipe."""
    claim = read_claim(name)
    recipes = {v: claims._recipe(claim, v, None, (), "", False) for v in claim.variants}
    claims._check_same_text(recipes)
    assert claim.says.endswith(".") and claim.seeds >= 2
    assert all(recipe.train.steps and not recipe.train.seconds for recipe in recipes.values())
    assert len({dataclasses.replace(recipe, name="") for recipe in recipes.values()}) == len(recipes)
    judged = {name for variant in recipes for name in claim.part_names(variant)}
    assert {variant for pair in (*claim.decides, *claim.no_worse) for variant in pair} <= judged
    claims._check_measure(claim, recipes)


def test_the_depths_have_equally_many_parameters() -> None:
    claim = read_claim("depth")
    sizes = []
    for variant in claim.variants:
        recipe = claims._recipe(claim, variant, None, (), "", False)
        model = recipe.model_class(recipe.model, Sizes(100, 0))
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
    assert max(sizes) / min(sizes) < 1.12


def test_what_is_trained_on_shrinks_and_the_test_text_stays() -> None:
    texts, sizes = set(), []
    claim = read_claim("repeats")
    for variant in claim.variants:
        corpus = Corpus(claims._recipe(claim, variant, None, (), "", False).data, TEXT)
        texts.add("".join(example.text for example in corpus.examples("test")))
        sizes.append(sum(len(example.text) for example in corpus.examples("train")))
    assert len(texts) == 1
    assert [round(sizes[0] / size) for size in sizes] == [1, 4, 16, 64]


# A claim from its file to its page


def test_a_claim_is_run_judged_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, out = written(tmp_path, SMALL), tmp_path / "out"
    assert main(["claim", mine, "--out", str(out), "--json"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert "There is no run" not in said.err
    bits = {row["variant"]: row["bits_per_byte"] for row in result["rows"]}
    assert bits["three"] < bits["two"] < bits["one"] and list(bits) == ["one", "two", "three"]
    assert result["held"] is True and [c["held"] for c in result["comparisons"]] == [True, True]
    assert result["verdict"] == "The claim held here." and result["details"][0].startswith("'three' has")
    assert result["best_possible"] < bits["three"]
    slope = math.log(bits["two"] / bits["one"]) / math.log(2), math.log(bits["three"] / bits["two"]) / math.log(1.5)
    assert min(slope) < result["law"]["exponent"] < max(slope)
    assert json.loads((out / "result.json").read_text()) | {"wall_seconds": result["wall_seconds"]} == result
    page = (out / "report.html").read_text()
    assert '<p class="verdict">The claim held here.</p>' in page
    assert "against model.order" in page and 'class="chart wide trend"' in page
    ElementTree.parse(out / "picture.svg")
    assert main(["claim", mine, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "A trigram knows more than a unigram." in told and "The claim held here" in told and "picture.svg" in told


def test_what_is_finished_is_not_trained_again(tmp_path: Path) -> None:
    mine, out, data = written(tmp_path, NEURAL), tmp_path / "out", reviews(tmp_path)
    first = run_claim(mine, data, out=out)
    made = {path: path.stat().st_mtime_ns for path in out.glob("*/model.safetensors")}
    assert len(made) == 4 and {path.parent.name for path in made} == {
        *("slow-seed0", "slow-seed1", "fast-seed0", "fast-seed1"),
    }
    shutil.rmtree(out / "fast-seed1")
    second = run_claim(mine, data, out=out)
    again = {path: path.stat().st_mtime_ns for path in out.glob("*/model.safetensors")}
    assert {path for path in made if again[path] != made[path]} == {out / "fast-seed1" / "model.safetensors"}
    seeds = [[row["seeds"] for row in result["rows"]] for result in (first, second)]
    assert seeds[0] == seeds[1] and len(seeds[0][0]) == 2
    assert first["verdict"] == second["verdict"]
    words = [node.text for node in ElementTree.parse(out / "picture.svg").iter() if node.tag.endswith("text")]
    assert "steps" in words and any("accuracy" in (word or "") for word in words)  # both axes are named


def test_a_budget_data_and_settings_of_ones_own(tmp_path: Path) -> None:
    text = reviews(tmp_path)
    result = run_claim(written(tmp_path, NEURAL), text, ["model.dropout=0.1"], "4", tmp_path / "out")
    assert {row["steps"] for row in result["rows"]} == {4}
    recipe = load_recipe(str(tmp_path / "out" / "fast-seed0" / "recipe.toml"))
    assert recipe.data.path == text and recipe.model.dropout == 0.1


def test_a_variant_that_diverges_is_said_and_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = claims.train

    def breaking(recipe: Any, *rest: Any, **more: Any) -> Any:
        if recipe.name.endswith("one"):
            raise SegueError("The loss became NaN.")
        return train(recipe, *rest, **more)

    monkeypatch.setattr(claims, "train", breaking)
    text = SMALL.replace('"three < two < one"', '"three < one"')
    result = run_claim(written(tmp_path, text), out=tmp_path / "out")
    assert result["rows"][0]["bits_per_byte"] is None and result["held"] is True
    assert "'three' and 'one' not both could be trained" in result["details"][0]
    assert result["law"] is None  # two points lie on any law


# Judging


def outcome(name: str, *seeds: list[float]) -> Outcome:
    """A variant with these bits in each of its blocks of 100 bytes, a list a seed."""
    evaluations = []
    for bits in seeds:
        table = np.stack([np.array(bits), np.full(len(bits), 100.0)], 1)
        value = float(table[:, 0].sum() / table[:, 1].sum())
        figures = {"figure": "bits_per_byte", "bits_per_byte": value}
        evaluations.append(Evaluation(figures, table, ordered=True).refigured())
    return Outcome(name, Path(name), evaluations, Curve([], [], []), 1.0, 1.0)


@pytest.mark.parametrize(
    ("a", "b", "held"),
    [
        ([[200.0] * 24, [202.0] * 24, [204.0] * 24], [[220.0] * 24, [222.0] * 24, [224.0] * 24], True),
        ([[220.0] * 24, [222.0] * 24, [224.0] * 24], [[200.0] * 24, [202.0] * 24, [204.0] * 24], False),
        ([[200.0] * 24, [230.0] * 24, [240.0] * 24], [[250.0] * 24, [280.0] * 24, [220.0] * 24], None),
        ([[200.0] * 24, [210.0] * 24], [[220.0] * 24, [230.0] * 24], None),  # two seeds that agree are not enough
        ([[200.0] * 24], [[220.0] * 24], None),  # one seed: another may turn it round
        ([[200.0, 240.0] * 12] * 3, [[230.0, 212.0] * 12] * 3, None),  # by less than chance
        ([], [[220.0] * 24], False),  # the one that should be better could not be trained
        ([[220.0] * 24], [], True),
        ([[200.0] * 19] * 3, [[220.0] * 19] * 3, None),  # too little text
    ],
)
def test_a_comparison_is_held_reversed_or_open(a: Any, b: Any, held: bool | None) -> None:
    claim = Claim("c", "…", "gpt", {"a": [], "b": []}, [("a", "b")], [])
    [found] = claims._judged(claim, {"a": outcome("a", *a), "b": outcome("b", *b)}, "bits_per_byte")
    assert found["held"] is held


@pytest.mark.parametrize(
    ("learnt", "held", "said"),
    [
        ("ab", True, "The claim held here."),
        ("b", True, "The claim held here."),
        ("", None, "Not decided here: no variant has learnt much more than how frequent each character or label is."),
    ],
)
def test_variants_that_have_learnt_nothing_decide_nothing(learnt: str, held: bool | None, said: str) -> None:
    """However clearly they differ: after a few steps that tells nothing about what they learn."""
    claim = Claim("c", "…", "gpt", {"a": [], "b": []}, [("a", "b")], [], no_worse=(("a", "b"),), margin=0.1)
    both = [outcome("a", *([bits] * 24 for bits in (200.0, 202.0, 204.0)))]
    both += [outcome("b", *([bits] * 24 for bits in (220.0, 222.0, 224.0)))]
    both = [dataclasses.replace(one, learnt=one.variant in learnt) for one in both]
    found, comparisons = claims._decided(claim, both, "bits_per_byte")
    assert found is held and [one["held"] for one in comparisons] == [True, True]
    assert claims._verdict(found, comparisons) == said


@pytest.mark.parametrize(
    ("figure", "chance", "best", "learnt"),
    [(4.0, 4.5, None, False), (3.0, 4.5, None, True), (3.1, 4.3, 0.17, False), (0.3, 4.3, 0.17, True)],
)
def test_learning_is_some_of_the_way_from_chance_to_the_best(
    figure: float, chance: float, best: float | None, learnt: bool
) -> None:
    table = np.array([[figure * 100, 100]] * 24)
    results = {"figure": "bits_per_byte", "bits_per_byte": figure} | ({"best_possible": best} if best else {})
    evaluations = [Evaluation(results, table, ordered=True)] * 2
    assert claims._has_learnt(evaluations, "bits_per_byte", chance) is learnt
    assert claims._has_learnt([], "bits_per_byte", chance) is False


def test_chance_is_what_frequencies_alone_give() -> None:
    text = [Example("aabb"), Example("ccdd")]  # four letters, equally frequent: two bits
    assert tasks.task("lm").chance(text) == 2.0
    labels = [Example("x", label=label) for label in "aaab"]
    assert tasks.task("classify").chance(labels) == 0.75
    assert tasks.task("embed").chance(text) is None


@pytest.mark.parametrize(
    ("a", "margin", "held"),
    [
        ([[201.0, 203.0] * 12] * 3, 0.05, True),  # worse by 0.02 bits per byte in every block: within the margin
        ([[201.0, 203.0] * 12] * 3, 0.01, False),  # beyond it, for sure
        ([[150.0, 151.0] * 12] * 3, 0.05, True),  # better by far
        ([[180.0] * 12 + [222.0] * 12] * 3, 0.05, None),  # about as good on average, but the text does not tell
        ([], 0.05, False),  # it could not be trained
    ],
)
def test_as_good_as_is_an_interval_below_the_margin(a: Any, margin: float, held: bool | None) -> None:
    claim = Claim("c", "…", "gpt", {"a": [], "b": []}, [], [], no_worse=(("a", "b"),), margin=margin)
    both = {"a": outcome("a", *a), "b": outcome("b", *[[199.0, 201.0] * 12] * 3)}
    [found] = claims._judged_no_worse(claim, both)
    assert found["held"] is held
    said = claims._verdict(found["held"], [found])
    assert said.startswith({True: "The claim held", False: "The claim did not", None: "Not decided"}[held])
    why = claims._compared(found, "bits per byte")
    assert "margin" in why or "not both could be trained" in why


def test_as_good_as_is_read_run_and_told(tmp_path: Path) -> None:
    """Order 5 is as good as order 6 within half a bit; order 1 is worse by more than a millionth."""
    new = 'margin = 0.5\ndecides = ["two < one", "two <~ three"]'
    text = SMALL.replace('law = true\ndecides = ["three < two < one"]', new)
    text = text.replace("model.order = 2", "model.order = 5").replace("model.order = 3", "model.order = 6")
    result = run_claim(written(tmp_path, text), out=tmp_path / "out")
    assert result["held"] is True and "'two' is as good as 'three'" in result["details"][1]
    bits = {row["variant"]: row["bits_per_byte"] for row in result["rows"]}
    [_, found] = result["comparisons"]
    assert found["no_worse"] == ["two", "three"]
    assert found["interval"][0] <= bits["two"] - bits["three"] <= found["interval"][1]
    strict = text.replace("two <~ three", "one <~ three").replace("margin = 0.5", "margin = 0.000001")
    worse = run_claim(written(tmp_path, strict), out=tmp_path / "out")
    assert worse["held"] is False and "'one' is NOT as good as 'three'" in worse["details"][1]


def test_one_seed_is_enough_where_training_has_no_chance() -> None:
    claim = Claim("c", "…", "ngram", {"a": [], "b": []}, [("a", "b")], [])
    less, more = (dataclasses.replace(outcome(name, [bits] * 24), learns=False) for name, bits in (("a", 2), ("b", 9)))
    [found] = claims._judged(claim, {"a": less, "b": more}, "bits_per_byte")
    assert found["held"] is True
    [open_] = claims._judged(claim, {"a": dataclasses.replace(less, learns=True), "b": more}, "bits_per_byte")
    assert open_["held"] is None and "which another seed may turn round (p < 0.001)" in claims._compared(open_, "bits")


def test_shipped_claims_have_seeds_enough() -> None:
    for name in trained_names():
        assert read_claim(name).seeds >= 3, name


def test_one_comparison_that_fails_is_enough() -> None:
    assert claims._all([True, None, False]) is False
    assert claims._all([True, None]) is None
    assert claims._all([True, True]) is True


def test_a_power_law_is_found_again() -> None:
    points = [
        dataclasses.replace(outcome(str(x), [100 * 8.0 * x**-0.25] * 3), number=float(x)) for x in (10, 100, 1000)
    ]
    law = claims._law(points, "bits_per_byte")
    assert law is not None
    assert law["factor"] == pytest.approx(8) and law["exponent"] == pytest.approx(-0.25)
    assert law["largest_error"] < 1e-9


# The picture


def test_a_power_law_is_straight_and_goes_through_its_points() -> None:
    points = [Point(f"m{x}", x, 8 * x**-0.25, 0.0, 9.0) for x in (10.0, 100.0, 10_000.0)]
    root = ElementTree.fromstring(trend_chart(Trend("parameters", "bits per byte", points, (8, -0.25)), narrow=False))
    [line] = [e for e in root.iter("line") if e.get("class") == "best"]
    x1, x2, y1, y2 = (float(line.get(name, "nan")) for name in ("x1", "x2", "y1", "y2"))
    dots = [(float(e.get("cx", "nan")), float(e.get("cy", "nan"))) for e in root.iter("circle")]
    assert len(dots) == 3
    for x, y in dots:
        assert y1 + (y2 - y1) * (x - x1) / (x2 - x1) == pytest.approx(y, abs=0.2)
    assert (dots[1][0] - dots[0][0]) * 2 == pytest.approx(dots[2][0] - dots[1][0], abs=0.3)  # one decade, two decades


def test_a_picture_alone_brings_its_colours_and_escapes_names() -> None:
    chart = trend_chart(Trend("a<b", "bits per byte", [Point("<script>", 1.0, 2.0, 1.0, 3.0)]), narrow=True)
    whole = alone(chart)
    ElementTree.fromstring(whole)
    assert "--hue" in whole and ".series polyline" in whole and "<script" not in whole


# What is refused


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("says =", "say =", "there is no key 'say' in a claim. Did you mean 'says'?"),
        ('kind = "ngram"\n', "", "has no 'kind'. Expected says, kind, variants, decides"),
        ('kind = "ngram"', "kind = 3", "kind is 3. Expected text."),
        ('kind = "ngram"', 'kind = "ngran"', "There is no model 'ngran'."),
        ('kind = "ngram"', 'kind = "ngram"\nseeds = 0', "seeds = 0. Expected 1 or more."),
        ("model.order = 3", "model.ordre = 3", "There is no key 'model.ordre'. Did you mean 'order'?"),
        ("model.order = 3", "data.seed = 3", "'three' with data.seed=3. Expected the same text for all"),
        ("< one", "< ones", "no variant is called 'ones'. Did you mean 'one'?"),
        ("three < two < one", "three", "Expected variants with < between them"),
        ('["three < two < one"]', "[]", "decides is empty"),
        ("three < two < one", "three <~ two", "Expected a margin above 0"),
        (
            "law = true",
            "margin = 0.1",
            "Expected a margin above 0 where there is such a comparison, and none elsewhere",
        ),
        ("law = true", 'margin = "0.1"', "margin is '0.1'. Expected a number with a point"),
        ("test = 0.1", "test = 0.0", "Nothing is held out to score the variants on."),
        ('"model.order"', '"model.smoothing"', "against = 'model.smoothing' is no number above 0"),
        ('"model.order"', '"parameter"', "Did you mean 'parameters'?"),
        ("[data]", "[data", "is not TOML: "),
        (SMALL[SMALL.index("[variants.two]") :], "", "has 1 variants. Expected two or more"),
    ],
)
def test_wrong_claims(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in SMALL
    assert said in refused(tmp_path, SMALL.replace(old, new))


def test_wrong_names_and_places(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no claim 'residuals'\. Did you mean 'residual'\?"):
        read_claim("residuals")
    with pytest.raises(InputError, match=r"There is no claim 'missing\.toml'"):
        read_claim("missing.toml")
    assert "--budget soon is not understood" in refused(tmp_path, NEURAL, budget="soon")
    (tmp_path / "full" / "photos").mkdir(parents=True)
    (tmp_path / "full" / "photos" / "cat.jpg").touch()
    with pytest.raises(InputError, match="holds something else than a claim's runs"):
        run_claim(written(tmp_path, SMALL), out=tmp_path / "full")


# What the claims need


def test_the_copy_can_be_predicted_from_memory_alone() -> None:
    lines = [example.text for example in copy_task.lines(500, seed=1)]
    assert {line[0] for line in lines} == set(copy_task.LETTERS)
    assert all(line == f"{line[0]}0123456789ABCDE{line[0]}" for line in lines)
    assert lines != [example.text for example in copy_task.lines(500, seed=2)]
    corpus = Corpus(Config(path="copy", test=0.1), TEXT)
    assert corpus.best("test") == {"bits_per_byte": pytest.approx(3 / 18)}
    with pytest.raises(InputError, match="running text"):
        Corpus(Config(path="copy"), LABELLED)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bias", [0.0, 1.0, 2.0])
def test_the_forget_gate_begins_where_it_is_told(bias: float, layers: int) -> None:
    model = RnnLm(RnnLm.Config(width=5, layers=layers, forget=bias), Sizes(10, 0))
    for layer in range(layers):
        both = [getattr(model.body.core, f"bias_{which}_l{layer}").detach() for which in ("ih", "hh")]
        gates = (both[0] + both[1]).reshape(4, 5)
        assert gates[1].tolist() == [bias] * 5 and not gates[[0, 2, 3]].any()


def test_only_an_lstm_that_is_not_tied_has_a_forget_bias() -> None:
    for other in ({"cell": "gru"}, {"tied": True, "embedding": 0}):
        with pytest.raises(ValueError, match="only an lstm that is not tied"):
            RnnLm.Config(forget=2.0, **other)


def test_two_variants_of_one_folder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    body = 'says = "a"\nkind = "ngram"\ndecides = ["a b < a-b"]\n[variants."{}"]\n[variants."{}"]\n'
    path.write_text(body.format("a b", "a-b"))
    with pytest.raises(InputError, match="'a b' and 'a-b' would have one run folder"):
        read_claim(str(path))
    path.write_text(body.format("a b", ".."))
    with pytest.raises(InputError, match=r"'mine/\.\.' cannot be the name"):
        read_claim(str(path))
