"""Time and memory against length: the measures against what is known, and the claim from command to picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from segue.cli import main
from segue.errors import InputError
from segue.look.explain.costs import costs
from segue.models.base import Sizes
from segue.recipe import load_recipe
from segue.runs.experiments import length
from segue.runs.experiments.claim import claim_names, says

MB = 1 << 20


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time every step as seldom as possible: how fast this machine is, is no test."""
    monkeypatch.setattr(length, "_ENOUGH", 0.0)


def test_memory_is_measured_at_its_peak_and_at_the_end() -> None:
    held = []

    def work() -> None:
        first = torch.ones(MB)  # 4 MB
        second = first + 1
        del first
        held.append(second[:1].clone().expand(3))
        held.append(second)

    peak, left = length.allocated(work)
    assert peak == pytest.approx(8 * MB, rel=0.01) and left == pytest.approx(4 * MB, rel=0.01)


def test_an_exponent_is_that_of_the_longer_half() -> None:
    lengths = [64, 128, 256, 512, 1024, 2048]
    assert length.exponent(lengths, [3 * n**1.5 for n in lengths]) == pytest.approx(1.5)
    assert length.exponent(lengths, [7.0, 7.0, 7.0, *(n**2.0 for n in lengths[3:])]) == pytest.approx(2)


@pytest.mark.parametrize("reader", length.READERS[:2], ids=lambda reader: reader.name)
def test_what_is_kept_is_what_explain_computes(reader: length.Reader) -> None:
    """Keys and values of every token; of a recurrent network h and c, however long the text."""
    recipe = load_recipe(reader.kind, reader.settings)
    found = costs(recipe.model_class, recipe.model, Sizes(length.VOCABULARY))
    rows = length.measured(reader, (32, 64), "cpu")
    for row in rows:
        expected = 4 * (found.state + found.kept * row["length"])
        assert row["write_bytes"] == pytest.approx(expected, rel=0.05)
    assert rows[0]["parameters"] == pytest.approx(sum(found.parts.values()))


def test_the_models_are_of_like_size() -> None:
    small, large = sorted(length.measured(reader, (8, 16), "cpu")[0]["parameters"] for reader in length.READERS[:2])
    assert large / small < 1.2


def test_attention_by_its_equation_holds_the_matrix() -> None:
    """Twice the length, four times the pairs: 2 layers and 4 heads hold T² weights each, and torch's kernel none."""
    fused, plain = (length.measured(reader, (256, 512), "cpu") for reader in length.READERS[1:])
    grown = [rows[1]["step_bytes"] - 2 * rows[0]["step_bytes"] for rows in (fused, plain)]
    pairs = 2 * 4 * (512**2 - 2 * 256**2) * 4
    assert abs(grown[0]) < 0.1 * pairs < pairs < grown[1]


def test_the_claim_is_measured_judged_and_drawn(tmp_path: Path) -> None:
    result = length.run(tmp_path / "out", lengths=(16, 32, 64))
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == result
    assert len(result["rows"]) == 9 and set(result["exponents"]) == {reader.name for reader in length.READERS}
    assert result["exponents"]["gpt"]["write_bytes"] == pytest.approx(1, abs=0.05)
    assert result["exponents"]["rnn_lm"]["write_bytes"] == pytest.approx(0, abs=0.01)
    assert "step_seconds" in result["rows"][0] and all(row["step_seconds"] > 0 for row in result["rows"])
    assert "rnn_lm writes a text in time" in result["verdict"] and "from 32 to 64 tokens" in result["verdict"]
    ElementTree.parse(tmp_path / "out" / "picture.svg")
    assert "seconds of a training step" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(("step", "equation", "held"), [(1.0, 1.9, True), (1.0, 1.1, False), (2.0, 2.0, False)])
def test_the_verdict_is_by_which_power_is_nearer(step: float, equation: float, held: bool) -> None:
    measured = {
        name: {"step_seconds": value, "step_bytes": value}
        for name, value in (("rnn_lm", step), ("gpt", 1.4), ("gpt by the equation", equation))
    }
    found, said = length._verdict(measured, [64, 128])
    assert found is held and "gpt takes time as length^1.4, memory as length^1.4" in said


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "length" in claim_names() and says("length") == length.SAYS
    monkeypatch.setitem(length.LENGTHS, "cpu", (8, 16, 32))
    monkeypatch.setattr(length, "pick_device", lambda device: "cpu")
    assert main(["claim", "length", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "gpt by the equation" in said and "length^" in said and "picture.svg" in said
    assert main(["claim", "length", "book.txt", "--out", str(tmp_path / "more")]) == 2
    assert "settings, --budget or --threads" in capsys.readouterr().err
    assert main(["claim"]) == 0
    assert "length" in capsys.readouterr().out


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").touch()
    with pytest.raises(InputError, match="holds something else"):
        length.run(tmp_path, lengths=(8, 16))
