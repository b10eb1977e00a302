"""`segue fill` and `segue embed` on files, lines and single texts, as a user has them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.errors import InputError

TEXTS = ["the cows eat grass", "the dog sees a cow", "grass is green"] * 8
SMALL = {"model.width": 8, "model.heads": 2, "model.layers": 1, "train.steps": 1, "data.validation": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs") / "bert"
    settings = SMALL | {"model.context": 16, "batches.length": 16, "tokens.vocab_size": 300}
    return segue.train("bert", TEXTS, folder, settings, device="cpu", threads=1)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "--device", "cpu"]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "--device", "cpu"]) == 2
    return capsys.readouterr().err


def test_fill_a_text_a_file_and_lines(
    run: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the [MASK] eat <mask>"
    expected = json.loads(json.dumps(run.fill(text, top=2).json()))
    assert json.loads(printed(capsys, "fill", str(run.path), text, "--top", "2", "--json")) == expected
    file = tmp_path / "holes.txt"
    file.write_text(f"{text}\n[MASK] cows\n", encoding="utf-8")
    lines = printed(capsys, "fill", str(run.path), str(file), "--top", "2", "--json").splitlines()
    assert json.loads(lines[0])["filled"] == expected["filled"] and len(lines) == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert printed(capsys, "fill", str(run.path), "-", "--top", "2", "--json").splitlines() == lines
    shown = printed(capsys, "fill", str(run.path), text)
    assert "hole 1" in shown and "hole 2" in shown and shown.count("\n") == 13
    assert [answer.filled for answer in run.fill([text, text])] == [expected["filled"]] * 2


def test_what_cannot_be_filled(run: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("the [MASK]\nthe cows\n", encoding="utf-8")
    assert "lines.txt:2: There is no hole in “the cows”" in refused(capsys, "fill", str(run.path), str(file))
    assert "There is no hole in “the cows”" in refused(capsys, "fill", str(run.path), "the cows")
    assert "--top 0" in refused(capsys, "fill", str(run.path), "[MASK]", "--top", "0")
    lm = segue.train("ngram", TEXTS, tmp_path / "ngram", {"data.validation": 0}, device="cpu")
    assert "made for lm and cannot fill. It can: evaluate, generate" in refused(capsys, "fill", str(lm.path), "[MASK]")
    assert "embed" not in lm.verbs and "embed" in run.verbs
    with pytest.raises(InputError, match="no hidden states"):
        lm.embed("the cows")


def test_a_long_text_is_said_to_be_longer_than_the_window(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", str(run.path), "the cows eat grass " * 30 + "[MASK] now", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert "tokens longer than this model sees at once (16)" in err
    assert out.count(" now") == 5 and out.count("eat") < 5 * 12  # what stands around the hole is shown


def test_embed_writes_json_lines_or_a_numpy_file(run: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, out = tmp_path / "texts.txt", tmp_path / "x.npy"
    file.write_text("".join(f"{text}\n" for text in TEXTS[:3]), encoding="utf-8")
    expected = run.embed(TEXTS[:3])
    assert "3 vectors of 8 numbers" in printed(capsys, "embed", str(run.path), str(file), "--out", str(out))
    assert np.load(out) == pytest.approx(expected, abs=1e-6)
    rows = [json.loads(line) for line in printed(capsys, "embed", str(run.path), str(file)).splitlines()]
    assert [row["text"] for row in rows] == TEXTS[:3]
    assert np.array([row["vector"] for row in rows]) == pytest.approx(expected, abs=1e-6)
    typed = json.loads(printed(capsys, "embed", str(run.path), TEXTS[1], "--normalise", "--layer", "0"))
    assert np.linalg.norm(typed["vector"]) == pytest.approx(1, abs=1e-5)
    assert typed["vector"] == pytest.approx(run.embed(TEXTS[1], layer=0, normalise=True), abs=1e-6)


def test_the_nearest_texts_have_the_greatest_cosines(
    run: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"{text}\n" for text in TEXTS[:3]), encoding="utf-8")
    asked = ["embed", str(run.path), str(file), "--nearest", TEXTS[2], "--top", "2", "--json"]
    found = json.loads(printed(capsys, *asked))["nearest"]
    unit = run.embed(TEXTS[:3], normalise=True)
    cosines = dict(zip(TEXTS[:3], (unit @ unit[2]).tolist(), strict=True))
    best = sorted(cosines, key=lambda text: -cosines[text])[:2]
    assert [row["text"] for row in found] == best and best[0] == TEXTS[2]
    assert [row["cosine"] for row in found] == pytest.approx([cosines[text] for text in best], abs=1e-5)


def test_what_cannot_be_embedded(run: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "There is no file missing.txt" in refused(capsys, "embed", str(run.path), "missing.txt")
    out = str(tmp_path / "x.csv")
    assert "expected the name of a NumPy file" in refused(capsys, "embed", str(run.path), "a text", "--out", out)
    assert "no layer 5" in refused(capsys, "embed", str(run.path), "a text", "--layer", "5")
