"""Attention over a sound and on a picture: a planted truth is drawn where it was planted."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from segue.batches.codec import Codec, Sizes
from segue.cli import main
from segue.data import scenes
from segue.data.config import Config as Data
from segue.errors import InputError
from segue.inference.alignment import aligned, pair_batch
from segue.inference.decode_settings import Config as Decode
from segue.inference.opened import Opened
from segue.layers.sources import SoundStem
from segue.look.inside import look
from segue.look.inside.on_source import MOST_TIMES
from segue.look.inside.view import View
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.models.transformer import Transformer
from segue.output.wav import wav
from segue.tasks.seq2seq import TASK
from segue.tokens.tokenizer import Config, Tokenizer

TARGET = "ab c"
MOVING = next(n for n in range(1, 100) if len(scenes.frames(0, n, 16)) > 1)


def opened(source: Any, kind: Any = RnnSeq2seq, **settings: Any) -> Opened:
    """An untrained model of sounds or pictures of 16 pixels a side, with letters as its tokens."""
    tokenizer = Tokenizer.train(Config("char"), [TARGET])
    data = Data(path="tones" if source == "sound" else "shapes", source=source, pixels=16)
    sizes = Sizes(tokenizer.vocab_size, source=source, frame=80 if source == "sound" else 16 * 16 * 3)
    small: dict[str, Any] = {"width": 8, "layers": 1} | ({"heads": 2} if kind is Transformer else {})
    torch.manual_seed(0)
    model = kind(kind.Config(**small | settings), sizes)
    return Opened(model, Codec(tokenizer, (), data, sizes), Decode(), 1000, TASK)


def planted(source: str, places: list[int], monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Opened:
    """A model whose token t looks at one place alone, the t-th of these."""
    some = opened(source, **settings)

    def alignment(batch: Any) -> Any:
        count = some.model.source_mask(batch.source_mask).shape[1]
        rows = [min(place, count - 1) for place in places[: batch.tokens_BT.shape[1]]]
        return torch.nn.functional.one_hot(torch.tensor(rows), count)[None].float()

    monkeypatch.setattr(some.model, "alignment", alignment)
    return some


def picture(view: View) -> Any:
    """The picture that a view sends, read by another library."""
    uri = json.loads(view.json())["picture"]
    assert uri.startswith("data:image/png;base64,")
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def test_a_planted_time_is_drawn_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The letters of the first word look at place 3, those of the second at place 40, the end at the last."""
    shown = look(planted("sound", [3, 3, 40, 40, 10_000], monkeypatch), "alignment", "tones:3", TARGET)
    places = -(-pair_batch(opened("sound"), [("tones:3", TARGET)]).source.shape[1] // SoundStem.stride)
    each = -(-places // MOST_TIMES)
    assert places > 41 and each > 1 and shown.kind == "heat" and shown.rows[:2] == ("ab", "c")
    assert shown.values_PRC[0].argmax(1).tolist() == [3 // each, 40 // each, (places - 1) // each]
    np.testing.assert_array_equal(shown.values_PRC.sum(-1), 1)
    assert float(shown.columns[40 // each]) <= 40 * 0.04 < float(shown.columns[40 // each]) + each * 0.04
    drawn = next(line for line in shown.terminal().split("\n") if line.startswith("c "))
    assert drawn.index("██") == len("</s> ") + 2 * (40 // each) and drawn.count("█") == 2
    strong = re.findall(r'fill-opacity="1.000"><title>(\w+) · ([\d.]+)', shown.svg())
    assert strong[:2] == [("ab", shown.columns[3 // each]), ("c", shown.columns[40 // each])]


def test_columns_are_sums_of_the_models_places() -> None:
    some = opened("sound")
    shown = look(some, "alignment", "tones:3", TARGET)
    (found,) = aligned(some, [("tones:3", TARGET)])
    each = -(-len(found.source) // MOST_TIMES)
    expected = np.zeros_like(shown.values_PRC[0])
    for word, row in enumerate(found.alpha_TS):
        for place, value in enumerate(row):
            expected[word, place // each] += value
    np.testing.assert_allclose(shown.values_PRC[0], expected, atol=1e-12)
    assert picture(shown).size == (len(shown.columns) * each * SoundStem.stride, 80)
    whole = look(some, "coverage", "tones:3", TARGET)
    np.testing.assert_allclose(whole.values_PRC[0, 0], expected.sum(0))


def test_a_planted_patch_is_the_clear_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows of four patches: place 6 is in row 2, column 3, place 12 in row 4, column 1."""
    some = planted("picture", [6, 6, 12, 12, 0], monkeypatch, patch=4)
    shown = look(some, "alignment", "shapes:1", TARGET)
    assert shown.kind == "patches" and shown.panels == ("ab", "c", "</s>")
    assert [tuple(np.argwhere(one == 1)[0]) for one in shown.values_PRC] == [(1, 2), (3, 0), (0, 0)]
    np.testing.assert_array_equal(shown.values_PRC.sum((1, 2)), 1)
    corners = re.findall(r'<use href="#[\w-]+" x="([\d.]+)" y="([\d.]+)"', shown.svg())[1:]
    clear = re.findall(r'fill-opacity="0.000"[^>]* d="M([\d.]+) ([\d.]+)h32.0v32.0h-32.0z"><title>(\S+): ', shown.svg())
    at = [
        (float(x) - float(left), float(y) - float(top)) for (x, y, _), (left, top) in zip(clear, corners, strict=True)
    ]
    assert [word for *_, word in clear] == ["ab", "c", "&lt;/s&gt;"]
    assert at == [(2 * 32, 1 * 32), (0 * 32, 3 * 32), (0, 0)]
    assert shown.svg().count("data:image") == 1 and shown.svg().count("<use ") == 4
    ElementTree.fromstring(shown.svg())
    head, *rows = shown.terminal().split("\n")[2:7]
    for word, row, column in (("ab", 2, 3), ("c ", 4, 1)):
        cells = [line.ljust(100)[head.index(word) :][:8] for line in rows]
        assert cells[row - 1][2 * column - 2 : 2 * column] == "██" and "".join(cells).strip() == "██"


def test_frames_of_a_moving_picture_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of two patches a frame: place 9 is in the third frame, row 1, column 2."""
    some = planted("picture", [9, 9, 0, 0, 0], monkeypatch, patch=8)
    shown = look(some, "alignment", f"shapes:{MOVING}", TARGET)
    assert shown.columns[5] == "3.2" and shown.values_PRC[0, 0, 5] == 1
    assert picture(shown).size == (16 * scenes.FRAMES, 16)
    expected = np.concatenate(list(scenes.frames(0, MOVING, 16)), 1)
    np.testing.assert_array_equal(np.asarray(picture(shown).convert("RGB")), expected)
    assert max(map(len, shown.terminal(40).split("\n"))) <= 40


def test_heads_of_cross_attention_on_a_picture() -> None:
    some = opened("picture", Transformer, patch=8)
    shown = look(some, "alignment", "shapes:1", TARGET, layer=1)
    assert shown.panels[:3] == ("layer 1 head 1: ab", "layer 1 head 1: c", "layer 1 head 1: </s>")
    mean = shown.values_PRC.reshape(2, 3, 2, 2).mean(0)
    np.testing.assert_allclose(look(some, "alignment", "shapes:1", TARGET).values_PRC, mean, atol=1e-6)


@pytest.mark.parametrize(("source", "name"), [("sound", "tones"), ("picture", "shapes")])
def test_other_views_of_encoder_decoders(source: str, name: str) -> None:
    some = opened(source)
    forced = look(some, "teacher_forcing", f"{name}:1\t{TARGET}")
    assert [cells[0] for cells in forced.cells_RC][:2] == ["a", "b"]
    points = look(some, "sentence_map", f"{name}:1 | {name}:2 | {name}:3")
    assert points.rows == (f"{name}:1", f"{name}:2", f"{name}:3")
    for view in (forced, points, look(some, "coverage", f"{name}:1", TARGET)):
        ElementTree.fromstring(view.svg())
        assert json.loads(view.json()) and view.terminal() and view.html()


def test_a_file_and_its_data_uri_look_the_same(tmp_path: Path) -> None:
    some, file = opened("sound"), tmp_path / "a.wav"
    file.write_bytes(wav(np.sin(np.arange(8000) * 0.3).astype(np.float32) * 0.5, 16000))
    uri = f"data:audio/wav;base64,{base64.b64encode(file.read_bytes()).decode()}"
    views = [look(some, "alignment", source, TARGET) for source in (str(file), uri)]
    np.testing.assert_array_equal(*(view.values_PRC for view in views))
    assert "base64" not in views[1].title and "data:audio/wav" in views[1].title
    file.write_bytes(b"no sound")
    with pytest.raises(InputError, match=r"a\.wav"):
        look(some, "alignment", str(file), TARGET)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six sounds of a fifth of a second, and what they say."""
    folder = tmp_path_factory.mktemp("sounds")
    for number in range(6):
        tone = np.sin(np.arange(1600) * 0.1 * (number + 1)).astype(np.float32)
        (folder / f"{number}.wav").write_bytes(wav(tone, 8000))
    rows = [f"{number}.wav\t{'low' if number < 3 else 'high'} tone\n" for number in range(6)]
    (folder / "table.tsv").write_text("".join(rows))
    return folder / "table.tsv"


def test_the_command_line_and_the_page_show_where_a_model_listens(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, sound = table.parent / "run", str(table.parent / "4.wav")
    small = [
        "model.width=8",
        "model.layers=1",
        "tokens.kind=space",
        "data.rate=8000",
        "train.steps=1",
        "decode.max_tokens=4",
    ]
    assert main(["train", "rnn_seq2seq", str(table), "--out", str(run), "data.validation=0.34", *small]) == 0
    assert "where it looks for each word that it wrote" in (run / "report.html").read_text()
    capsys.readouterr()
    assert main(["look", str(run), sound, "--target", "low tone", "--view", "alignment", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rows"] == ["low", "tone", "</s>"] and shown["columns"][:2] == ["0.00", "0.04"]
    names = table.parent / "names.txt"
    names.write_text(f"{sound}\n")
    assert main(["predict", str(run), str(names), "--alignment", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [link["word"] for link in answer["alignment"]] == answer["translation"].split()
    assert all(0 <= link["start"] <= link["end"] <= 0.24 for link in answer["alignment"])


def test_the_picture_of_a_long_sound_stays_small(tmp_path: Path) -> None:
    """Of 20 s, 2,001 frames and 501 places, each column has 17 places and so 68 frames: means of 4 are drawn."""
    file = tmp_path / "long.wav"
    file.write_bytes(wav(np.sin(np.arange(20 * 16000) * 0.3).astype(np.float32), 16000))
    shown = look(opened("sound")._replace(limit=3000), "alignment", str(file), TARGET)
    assert len(shown.columns) == 30 and shown.columns[1] == f"{17 * 0.04:.2f}"
    assert picture(shown).size == (30 * 68 // 4, 80)
    np.testing.assert_allclose(shown.values_PRC.sum(-1), 1, atol=1e-6)
