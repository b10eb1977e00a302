"""What claims judge of encoder-decoders: short and long sources, and teacher forcing, against their plain meaning."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import segue
from segue.data.example import Example
from segue.errors import InputError
from segue.inference.alignment import pair_batch
from segue.inference.evaluation import Evaluation
from segue.look.page.curves import Curve
from segue.runs.experiments import claim as claims
from segue.runs.experiments.claim import _compared, read_claim, run_claim
from segue.runs.experiments.measures import MEASURES, Measured
from segue.runs.run import Run

SETTINGS = {"tokens.kind": "space", "model.width": 8, "model.dropout": 0, "train.steps": 60}
SETTINGS |= {"train.optimizer.name": "adamw", "train.optimizer.rate": 0.02}
CLAIM = """
says = "A rate of nothing learns nothing."
kind = "rnn_seq2seq"
seeds = 2
measure = "length"
at = 3
margin = 5.0
decides = ["none, long < some, long", "none, short <~ some, short"]
[data]
validation = 0.2
test = 0.3
[tokens]
kind = "space"
[model]
width = 8
[train]
steps = 5
every = 5
[decode]
beam = 1
max_tokens = 9
[variants.none]
train.optimizer.rate = 0.0001
[variants.some]
train.optimizer.rate = 0.03
"""


def pairs(count: int = 200) -> list[tuple[str, str]]:
    """A letter is a letter, doubled."""
    draw = random.Random(0)
    sources = [[draw.choice("abcd") for _ in range(draw.randint(1, 6))] for _ in range(count)]
    return [(" ".join(source), " ".join(2 * letter for letter in source)) for source in sources]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    where = tmp_path_factory.mktemp("measures") / "run"
    return segue.train("rnn_seq2seq/start", pairs(), where, SETTINGS | {"data.validation": 0}, device="cpu", threads=1)


def examples() -> list[Example]:
    return [Example(text=source, target=target) for source, target in pairs(40)]


def test_short_and_long_are_the_figures_of_these_rows_alone(run: Run) -> None:
    rows = examples()
    whole = run.task.judged(run.opened, rows)
    found = MEASURES["length"].of(run.opened, whole, rows, 3)
    assert tuple(found.parts) == MEASURES["length"].parts
    for part, chosen in (("short", lambda n: n <= 3), ("long", lambda n: n > 3)):
        alone = run.task.judged(run.opened, [row for row in rows if chosen(len(row.text.split()))])
        assert found.parts[part].result["bleu"] == pytest.approx(alone.result["bleu"], abs=1e-9)
        assert found.parts[part].result["bleu_ci"] == pytest.approx(alone.result["bleu_ci"], abs=1e-9)
    xs, ys = found.lines[""]
    assert xs == sorted(xs) and len(xs) == len(ys) and xs[0] == 1 and xs[-1] == 6


def test_teacher_forcing_counts_what_is_predicted_at_each_place(run: Run) -> None:
    rows = examples()
    found = MEASURES["teacher_forcing"].of(run.opened, run.task.judged(run.opened, rows), rows, 2)
    right = {part: [0, 0] for part in MEASURES["teacher_forcing"].parts}
    for row in rows:
        batch = pair_batch(run.opened, [(row.text, row.target)])
        logits, _ = run.model(batch.to("cpu"))
        logits[..., run.sizes.unk] = -np.inf
        forced = logits[0].argmax(-1).tolist()
        (own,) = run.predict([row.text], {"decode.beam": 1})
        free = [*run.tokenizer.encode(own.text).tolist(), run.sizes.stop]
        for name, said in (("forced", forced), ("free", free)):
            for place, token in enumerate(batch.targets[0].tolist()):
                counts = right[f"{name}, {'early' if place < 2 else 'late'}"]
                counts[0] += said[place : place + 1] == [token]
                counts[1] += 1
    for part, (count, of) in right.items():
        assert found.parts[part].result["accuracy"] == pytest.approx(count / of), part
    assert right["forced, late"][0] > right["free, late"][0] > 0
    assert {name: xs[0] for name, (xs, _) in found.lines.items()} == {"teacher forcing": 1, "reading itself": 1}


def test_more_is_better_the_other_way_round() -> None:
    """That none has no more BLEU than some, by more than 5, is told as that some is as good as none."""
    found = {"no_worse": ["none", "some"], "interval": [-9.0, 2.0], "margin": 5.0, "held": True}
    assert _compared(found, "BLEU", lower_is_better=False) == (
        "'some' is as good as 'none': it has between -2.000 and +9.000 BLEU, and the margin is -5."
    )


def claimed(folder: Path, text: str) -> str:
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return str(folder / "mine.toml")


def test_a_claim_by_length_is_run_judged_and_drawn(tmp_path: Path) -> None:
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in pairs(200)))
    result: Any = run_claim(claimed(tmp_path, CLAIM), str(data), out=tmp_path / "out", threads=1)
    assert [row["variant"] for row in result["rows"]] == ["none, short", "none, long", "some, short", "some, long"]
    bleu = {row["variant"]: float(np.mean(row["seeds"])) for row in result["rows"]}
    assert result["comparisons"][0]["difference"] == pytest.approx(bleu["none, long"] - bleu["some, long"])
    assert result["comparisons"][1]["no_worse"] == ["none, short", "some, short"]
    assert "some, short' " in result["details"][1].split(" as good as ")[0]
    assert result["train_seconds"] == pytest.approx(2 * sum(row["train_seconds"] for row in result["rows"][::2]))
    assert "words of the source" in (tmp_path / "out" / "picture.svg").read_text()
    ElementTree.parse(tmp_path / "out" / "picture.svg")
    json.loads((tmp_path / "out" / "result.json").read_text())


@pytest.mark.parametrize("measure", MEASURES)
def test_each_row_of_a_claim_has_the_figure_of_its_own_part(
    measure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts come in another order than they are named in; each has another figure."""
    names = MEASURES[measure].parts
    values = {part: 0.1 * (place + 1) for place, part in enumerate(names)}

    def measured(*_: Any) -> Measured:
        parts = {
            part: Evaluation(
                {"task": "seq2seq", "figure": "accuracy", "accuracy": value}, np.array([[value, 1.0]] * 30)
            )
            for part, value in reversed(values.items())
        }
        return Measured(parts, {})

    monkeypatch.setattr(claims, "_trained", measured)
    monkeypatch.setattr(claims, "curve_of", lambda *_: Curve([], [], []))
    text = CLAIM.replace('measure = "length"', f'measure = "{measure}"')
    first, *_, last = names
    decides = f'["none, {first} < some, {last}", "none, {first} <~ some, {first}"]'
    text = text.replace('["none, long < some, long", "none, short <~ some, short"]', decides)
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in pairs(40)))
    claim = read_claim(claimed(tmp_path, text))
    recipe = claims._recipe(claim, "none", str(data), (), "", False)
    found = claims._outcomes(claim, recipe, tmp_path, lambda *_: None, False)
    assert {one.variant: one.mean.value for one in found} == pytest.approx(
        {f"none, {part}": value for part, value in values.items()}
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('measure = "length"', 'measure = "lenght"', "no measure 'lenght'.*length"),
        ("at = 3", "at = 0", "Expected both, at as 1 or more"),
        ('measure = "length"\n', "", "Expected both"),
        ('"none, long < some, long"', '"none < some"', "no variant is called 'none'"),
    ],
)
def test_wrong_measures(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in CLAIM
    with pytest.raises(InputError, match=said):
        read_claim(claimed(tmp_path, CLAIM.replace(old, new)))


def test_only_encoder_decoders_are_measured(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="for encoder-decoders, and 'none' is a gpt"):
        run_claim(claimed(tmp_path, CLAIM.replace("rnn_seq2seq", "gpt").replace('kind = "space"', 'kind = "char"')))
