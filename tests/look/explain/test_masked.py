"""What `segue explain` says of masked language models: counts to the unit, beside those of the lectures."""

from __future__ import annotations

from segue.batches.codec import Sizes
from segue.look.explain.masked import explained, parts_of, sizes_of
from segue.models.bert import SHAPES, Bert
from segue.recipe import load_recipe


def test_published_models_beside_what_the_lectures_say() -> None:
    """M15, M16 and M19, and trap 25: 110M and 340M are rounded."""
    config = Bert.Config(size="bert-base")
    train = load_recipe("bert").train
    sizes = sizes_of(config, SHAPES["bert-base"].vocab_size)
    assert sizes.ids == 30_522
    *_, published = explained(config, sizes, "a guess", train, 0.15, 128)
    said = {name.strip("→ "): (count, remark) for name, count, remark in published.rows}
    assert (
        said["bert-base"][0] == "109,482,240"
        and "110M" in said["bert-base"][1]
        and "110,106,428" in said["bert-base"][1]
    )
    assert said["bert-large"][0] == "335,141,888" and "340M" in said["bert-large"][1]
    assert said["roberta-large"][0] == "355,359,744" and "355M" in said["roberta-large"][1]


def test_the_head_costs_what_the_masked_places_cost() -> None:
    config, sizes = Bert.Config(width=16, heads=2, layers=3), Sizes(100, marks=("start", "mask"))
    parameters, operations, _ = explained(config, sizes, "a guess", load_recipe("bert").train, 0.25, 40)
    total = sum(parts_of(config, sizes).values())
    assert parameters.rows[-1][1] == f"{total:,}"
    rows = {name: int(count.replace(",", "")) for name, count, _ in operations.rows}
    assert rows["layers"] == 40 * 3 * 2 * 12 * 16**2  # q, k, v, out, and a feed-forward network four times as wide
    assert rows["attention"] == 3 * 40 * 40 * 4 * 16
    assert rows["masked head"] == 10 * 2 * (16 * 16 + 16 * 100)
