"""What models cost: the lectures' counts (M1 to M14), operations (P13, P14, D1, D2), memory, and what explain says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from segue.batches.batch import Batch
from segue.cli import main
from segue.look.explain.costs import (
    LECTURES,
    PETAFLOP_DAY,
    costs,
    explained,
    kept_in_training,
    petaflop_days,
    published,
    size,
    vocabulary,
)
from segue.models.base import Sizes
from segue.models.gpt import SHAPES, Gpt
from segue.models.rnn_lm import RnnLm
from segue.recipe import load_recipe
from segue.training.rates import optimizer
from segue.training.setup import freeze

EXACT = {
    "gpt": 116_534_784,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3-small": 125_226_240,
    "gpt3-medium": 355_871_744,
    "gpt3-large": 760_300_032,
    "gpt3-xl": 1_315_723_264,
    "gpt3-2.7b": 2_651_553_280,
    "gpt3-6.7b": 6_658_404_352,
    "gpt3-13b": 12_936_488_380,  # 40 heads of 128, as printed; the even shape's 12,952,938,780 is below
    "gpt3-175b": 174_604_259_328,
}


def figure(text: str) -> float:
    """The lectures' 345M or 2.7B as a number."""
    return float(text[:-1]) * {"M": 1e6, "B": 1e9}[text[-1]]


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_of_the_published_models(name: Any) -> None:
    """M1 to M14: of the model itself, laid out, and by hand; GPT-3's within 2 % of what the lectures say."""
    config = Gpt.Config(size=name, norm="post" if name == "gpt" else "pre")
    shape = SHAPES[name]
    assert costs(Gpt, config, Sizes(shape.vocab_size)).parameters == EXACT[name]
    assert published(shape, final_norm=name != "gpt") == EXACT[name]
    if name.startswith("gpt3"):
        assert EXACT[name] == pytest.approx(figure(LECTURES[name]), rel=0.02)


def test_the_lectures_figures_of_gpt2_have_gpts_vocabulary() -> None:
    """M6: to the million."""
    for name, expected in zip(
        ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"),
        (116_929_536, 344_809_472, 761_512_960, 1_541_964_800),
        strict=True,
    ):
        assert published(SHAPES[name]._replace(vocab_size=40_478)) == expected
        assert round(expected / 1e6) == figure(LECTURES[name]) / 1e6


def test_the_shapes_that_do_not_divide() -> None:
    """M10, M13 and trap 24."""
    assert published(SHAPES["gpt3-xl"]._replace(heads=24)) == 1_517_123_584
    wide = SHAPES["gpt3-13b"]
    assert published(wide._replace(heads=1, head_width=5140)) == 12_952_938_780
    assert published(wide._replace(width=5120)) == 12_853_386_240


def test_a_layer_has_12_d2_and_13_d() -> None:
    one, two = (costs(Gpt, Gpt.Config(layers=n, width=48, heads=4), Sizes(9)).parameters for n in (1, 2))
    assert two - one == 12 * 48**2 + 13 * 48


def test_operations_of_a_token() -> None:
    """P14: 12 layers of 768."""
    found = costs(Gpt, Gpt.Config(size="gpt2"), Sizes(50_257))
    assert found.dense == 169_869_312 and found.attention * 1024 == 37_748_736
    assert found.dense == found.attention * 4608 and found.head == 2 * 50_257 * 768
    assert found.token(1024) == found.dense + found.head + 37_748_736


@pytest.mark.parametrize(("length", "pairs"), [(4, 10), (1024, 524_800), (2048, 2_098_176)])
def test_pairs_that_are_attended(length: int, pairs: int) -> None:
    """P13: quadratic, where a recurrent network takes a step a token."""
    found = costs(Gpt, Gpt.Config(), Sizes(9))
    assert found.text(length) - length * (found.dense + found.head) == found.attention * pairs
    recurrent = costs(RnnLm, RnnLm.Config(), Sizes(9))
    assert recurrent.text(length) == length * recurrent.text(1) and recurrent.kept == 0


@pytest.mark.parametrize("config", [Gpt.Config(tied=False, position="rotary"), RnnLm.Config(layers=2)])
def test_operations_are_those_that_torch_counts(config: Any) -> None:
    """Of the matrices, by torch's own counter, on a real model; attention is left out by a text of one token."""
    from torch.utils.flop_counter import FlopCounterMode

    found = costs(RnnLm if isinstance(config, RnnLm.Config) else Gpt, config, Sizes(11))
    if isinstance(config, RnnLm.Config):  # the fused kernel is not counted: its matrices are
        core = RnnLm(config, Sizes(11)).body.core
        assert found.dense == 2 * sum(p.numel() for n, p in core.named_parameters() if n.startswith("weight"))
        return
    model, ids = Gpt(config, Sizes(11)), torch.zeros(3, 1, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(Batch(ids, ids, torch.ones_like(ids, dtype=torch.bool)))
    assert counter.get_total_flops() - 3 * (found.dense + found.head) in (0, 3 * found.attention)


def test_petaflop_days() -> None:
    """D1, D2."""
    assert PETAFLOP_DAY == 8.64e19
    assert petaflop_days(EXACT["gpt3-2.7b"], 300e9) == pytest.approx(55.2, abs=0.05)
    assert petaflop_days(EXACT["gpt3-175b"], 300e9) == pytest.approx(3638, abs=0.5)


def kept_for_the_way_back(model: nn.Module, batch: Batch) -> int:
    """Bytes of the tensors that autograd really keeps, weights and ids left out, each storage once."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if tensor.is_floating_point() and storage.data_ptr() not in weights:
            found[storage.data_ptr()] = (storage.nbytes(), tensor)  # held, or its place would be used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.loss(batch)
    return sum(nbytes for nbytes, _ in found.values())


@pytest.mark.parametrize("values", [{}, {"width": 64, "layers": 4}, {"activation": "relu"}])
def test_what_layers_keep_is_estimated_well(values: dict[str, Any]) -> None:
    config = Gpt.Config(**values)
    model, ids = Gpt(config, Sizes(200)), torch.zeros(4, 64, dtype=torch.long)
    real = kept_for_the_way_back(model, Batch(ids, ids, torch.ones_like(ids, dtype=torch.bool)))
    assert costs(Gpt, config, Sizes(200)).active * 4 * 64 * 4 == pytest.approx(real, rel=0.1)


def test_keys_and_values_are_those_that_stepping_keeps() -> None:
    config = Gpt.Config(width=64, heads=4)
    state = Gpt(config, Sizes(20)).start(3, config.context)
    kept = state.cache.k_LBHSK.numel() + state.cache.v_LBHSK.numel()
    assert kept == 3 * config.context * costs(Gpt, config, Sizes(20)).kept
    recurrent = RnnLm.Config(layers=2)
    numbers = sum(part.numel() for part in RnnLm(recurrent, Sizes(20)).start(3, 1).tensors().values())
    assert numbers == 3 * costs(RnnLm, recurrent, Sizes(20)).state


@pytest.mark.parametrize("kind", ["gpt", "rnn_lm"])
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (("name=adamw",), "AdamW's means"),
        (("name=sgd",), "SGD's momentum"),
        (("name=sgd", "momentum=0"), ""),
        (("name=muon",), "Muon's and AdamW's means"),
        (("name=muon", "ema=0.9"), "Muon's and AdamW's means"),
        (("name=adamw", "average=3"), "AdamW's means"),
    ],
)
@pytest.mark.parametrize("frozen", ["", "vectors"])
def test_what_the_optimiser_keeps_is_what_it_keeps_after_a_step(
    kind: str, settings: tuple[str, ...], name: str, frozen: str
) -> None:
    given = [f"train.optimizer.{setting}" for setting in settings]
    recipe = load_recipe(kind, ["model.tied=false", f"train.freeze={frozen}", *given])
    told = {
        part.name: part.numbers for part in kept_in_training(recipe.model_class, recipe.model, Sizes(30), recipe.train)
    }
    model = (Gpt if kind == "gpt" else RnnLm)(recipe.model, Sizes(30))
    freeze(model, frozen)
    moved = optimizer(model, recipe.train.optimizer)
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in learning:
        weight.grad = torch.ones_like(weight)
    moved.step()
    numbers = sum(value.numel() for value in moved.tensors().values() if value.dim())  # AdamW counts its steps too
    count = sum(weight.numel() for weight in learning)
    assert told == {
        "weights": sum(weight.numel() for weight in model.parameters()),
        "gradients": count,
        **({name: numbers} if name else {}),
        **({"mean of the weights": count} if {"ema=0.9", "average=3"} & set(settings) else {}),
    }


@pytest.mark.parametrize(
    ("name", "row"),
    [("adamw", "AdamW's means 1.9 MB"), ("muon", "Muon's and AdamW's means 1.0 MB"), ("sgd", "SGD's momentum 958 kB")],
)
def test_explain_names_the_optimiser_of_the_recipe(name: str, row: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpt", f"train.optimizer.name={name}", "train.optimizer.ema=0.99"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert row in said and "mean of the weights 958 kB" in said
    assert name == "adamw" or " AdamW's means 1.9 MB" not in said


def test_memory_in_all_is_the_sum_of_its_lines() -> None:
    recipe = load_recipe("gpt", ["train.optimizer.name=sgd", "train.optimizer.momentum=0", "tokens.vocab_size=100"])
    (memory,) = [
        s for s in explained(Gpt, recipe.model, recipe.train, 100, "", 1, 1) if s.title.startswith("Memory of tr")
    ]
    found = costs(Gpt, recipe.model, Sizes(100))
    assert [row[0] for row in memory.rows] == ["weights", "gradients", "what layers keep", "in all"]
    assert memory.rows[-1][1] == size(4 * (2 * found.parameters + found.active))


def test_nothing_is_allocated() -> None:
    """175 G parameters, laid out on the device that holds nothing."""
    made = []

    def watched(*given: Any) -> nn.Module:
        made.append(Gpt(*given))
        return made[-1]

    assert costs(watched, Gpt.Config(size="gpt3-175b"), Sizes(50_257)).parameters == EXACT["gpt3-175b"]
    muon = load_recipe("gpt", ["train.optimizer.name=muon", "train.optimizer.ema=0.9"]).train
    config = Gpt.Config(size="gpt3-175b")
    assert kept_in_training(watched, config, Sizes(50_257), muon)[0].numbers == EXACT["gpt3-175b"]
    assert len(made) == 2 and all(parameter.is_meta for model in made for parameter in model.parameters())


def test_the_vocabulary_before_a_text_is_read() -> None:
    def asked(*settings: str) -> int:
        recipe = load_recipe("gpt", settings)
        return vocabulary(recipe.tokens, recipe.model)[0]

    assert asked() == 100 and asked("tokens.kind=byte") == 258 and asked("tokens.kind=bpe") == 8000
    assert asked("model.size=gpt2") == 50_257 and asked("model.size=gpt", "tokens.vocab_size=500") == 500


@pytest.mark.parametrize(
    ("count", "said"),
    [(999, "999 bytes"), (1500, "1.5 kB"), (2.5e8, "250 MB"), (3.4e9, "3.4 GB"), (2e15, "2,000.0 TB")],
)
def test_sizes(count: float, said: str) -> None:
    assert size(count) == said


def cells(config: Any) -> dict[str, dict[str, tuple[str, str]]]:
    cls = RnnLm if isinstance(config, RnnLm.Config) else Gpt
    found = explained(cls, config, load_recipe("gpt").train, 50_257, "told", 2, 64)
    return {section.title.split(",")[0]: {row[0]: row[1:] for row in section.rows} for section in found}


def test_tables_agree_with_each_other() -> None:
    found = cells(Gpt.Config(size="gpt2"))
    assert found["Parameters"]["in all"][0] == "124,439,808"
    assert found["Operations of a token"]["attention, seeing 1,024 tokens"][0] == "37,748,736"
    assert "4,608" in found["Operations of a token"]["attention, seeing 1,024 tokens"][1]
    assert found["Memory of training"]["weights"] == ("498 MB", "")
    assert found["Memory of generating"]["keys and values"][0] == "75.5 MB"
    own = cells(Gpt.Config())
    assert not any(title.startswith("As published") for title in own)
    assert {"state"} <= cells(RnnLm.Config())["Memory of generating"].keys()


def test_the_picture_has_the_slopes() -> None:
    """On the logarithmic scale, four times the text adds a piece to the linear bar and twice that to the other."""
    (section,) = [
        s
        for s in explained(Gpt, Gpt.Config(size="gpt2"), load_recipe("gpt").train, 50_257, "", 2, 64)
        if s.title.startswith("Operations of a")
    ][1:]
    linear = [len(bar) for _, name, bar in section.rows if name.endswith("layers")]
    square = [len(bar) for _, name, bar in section.rows if name.endswith("attention")]
    linear_step, square_step = (linear[-1] - linear[0]) / 5, (square[-1] - square[0]) / 5
    assert square_step == pytest.approx(2 * linear_step, rel=0.1) and linear_step > 2


def test_explain_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpt", "model.size=gpt3-175b", "model.position=learned"]) == 0
    said = capsys.readouterr().out
    assert "174,604,259,328" in said and "175.0B" in said and "1,517,123,584" in said and "3,638" in said
    assert "quadratic" in said and "→ gpt3-175b" in said


def test_explain_of_a_run_takes_its_own_vocabulary(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    import segue

    small = {"model.width": 16, "model.layers": 1, "train.steps": 1, "data.validation": 0}
    run = segue.train("gpt", ["abcab cabca"] * 20, tmp_path / "run", small, device="cpu")
    assert main(["explain", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert f"{run.sizes.vocab_size} tokens (the run's own)" in said
    assert f"{sum(p.numel() for p in run.model.parameters()):,}" in said
    assert dataclasses.asdict(run.recipe.model)["width"] == 16


def test_only_the_forward_half_costs_operations_where_it_writes() -> None:
    from segue.look.explain.costs import LETTERS, costs
    from segue.models.base import Sizes
    from segue.models.elmo import Elmo

    found = costs(Elmo, Elmo.Config(width=6, layers=2, letter=4, filters=(3, 5), highways=1), Sizes(50))
    letters = LETTERS * (4 * 1 * 3 + 4 * 2 * 5) + 8 * 16 + 8 * 6  # filters at every letter, highway, projection
    assert found.dense == 2 * (letters + 2 * (4 * 6 * 6 + 4 * 6 * 6)) and found.head == 2 * 6 * 50
    assert found.state == 2 * 2 * 6
    assert found.beside == 2 * 2 * (4 * 6 * 6 + 4 * 6 * 6) + found.head  # in training, the backward half too
