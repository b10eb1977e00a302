"""The lectures' large language models: D6 and the batches of GPT-3, from the tables to the command and its picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from segue.cli import main
from segue.look.explain.costs import petaflop_days, published
from segue.look.explain.llms import BILLS, GPT3_TRAINING, LLMS, PRICE, SPEED, dollars, picture, sections
from segue.models.gpt import SHAPES

RATIOS = [6.7, 1.7, 1.4, 20.0, 11.4, 21.5, 28.6, 37.0]


def test_tokens_per_parameter() -> None:
    """D6, as the table and the picture say it."""
    assert [round(one.tokens_per_parameter, 1) for one in LLMS.values()] == RATIOS
    (table,) = [section for section in sections("gpt2") if section.title.startswith("Large language models")]
    assert [float(remark.split()[0]) for _, _, remark in table.rows] == RATIOS
    assert all(f"{name} {ratio}" in picture().note for name, ratio in zip(LLMS, RATIOS, strict=True))


def test_the_picture_has_every_model_where_it_belongs() -> None:
    shown = picture()
    assert shown.rows == tuple(LLMS) and shown.values_PRC.shape == (1, len(LLMS), 2)
    for (parameters, tokens), one in zip(shown.values_PRC[0], LLMS.values(), strict=True):
        assert petaflop_days(parameters, tokens) == one.petaflop_days
    circles = [e for e in ElementTree.fromstring(shown.svg()).iter() if e.tag.endswith("circle")]
    by_name = dict(zip(shown.rows, circles, strict=True))

    def at(name: str, way: str) -> float:
        return float(by_name[name].get(way, "nan"))

    assert max(LLMS, key=lambda name: at(name, "cx")) == "PaLM"  # the most parameters
    assert min(LLMS, key=lambda name: at(name, "cy")) == "LLaMA-3"  # the most tokens: y grows downwards
    # Logarithmic: GPT-3 has as many times GPT-2's tokens as LLaMA-3 would have of 500 G.
    decade = (at("GPT-2", "cy") - at("GPT-3", "cy")) / 1.4771212547  # log10 of 30
    assert at("GPT-3", "cy") - at("LLaMA-2", "cy") == pytest.approx(decade * 0.8239087409, abs=0.2)  # of 20 / 3
    drawn = shown.terminal(100)
    assert all(name in drawn for name in ("GPT-2", "PaLM", "LLaMA-3")) and "1e12" in drawn


def test_how_gpt_3_was_trained() -> None:
    """The lecture's table: the larger the model, the larger its batch and the smaller its rate; 300 G tokens each."""
    assert list(GPT3_TRAINING) == [name for name in SHAPES if name.startswith("gpt3")]
    batches, rates = zip(*GPT3_TRAINING.values(), strict=True)
    assert list(batches) == sorted(batches) and list(rates) == sorted(rates, reverse=True)
    (table,) = [section for section in sections("gpt3-13b") if section.title.startswith("How GPT-3")]
    rows = {name.strip("→ "): (batch, remark) for name, batch, remark in table.rows}
    assert (
        rows["gpt3-175b"][0] == "3.2 M tokens a batch" and "93,750 steps, 3,638 petaflop/s-days" in rows["gpt3-175b"][1]
    )
    assert [name for name, *_ in table.rows if name.startswith("→")] == ["→ gpt3-13b"]


def test_dollars_are_hours_of_gpus() -> None:
    """A petaflop/s-day is a day of 2.5 GPUs of 400 teraflop/s: 60 hours."""
    assert dollars(1.0) == pytest.approx(60 * PRICE) and SPEED == 4e14
    bert = petaflop_days(BILLS["BERT large"].parameters, BILLS["BERT large"].tokens)
    assert bert == pytest.approx(3.09, abs=0.01)
    # The lecture's 50 petaflop/s-days belong to the size of 2.7 G, and cost a seventieth of the largest.
    small, large = (dollars(petaflop_days(published(SHAPES[size]), 300e9)) for size in ("gpt3-2.7b", "gpt3-175b"))
    assert large / small == pytest.approx(3638 / 55.24, rel=1e-3)


def test_the_command_writes_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpt", "model.size=gpt3-2.7b"]) == 0
    said = capsys.readouterr().out
    for told in ("1 M tokens a batch", "rate 1.6e-04", "20.0 tokens a parameter", "7,000 dollars", "● GPT-2", "1e13"):
        assert told in said
    page, alone = tmp_path / "a.html", tmp_path / "a.svg"
    assert main(["explain", "gpt", "model.size=gpt2", "--html", str(page), "--svg", str(alone)]) == 0
    assert not capsys.readouterr().out and "Chinchilla" in page.read_text()
    ElementTree.parse(alone)
    assert main(["explain", "rnn_lm", "--svg", str(tmp_path / "b.svg")]) == 2
    assert "There is no picture to explain rnn_lm" in capsys.readouterr().err
    assert main(["explain", "gpt"]) == 0 and "Chinchilla" not in capsys.readouterr().out
