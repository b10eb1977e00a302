"""Names of sounds and pictures: in which column they stand, from where, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.from_list import guess_rows, write_rows
from segue.data.media import media_among, media_of, resolved
from segue.data.shapes import PARALLEL
from segue.data.sources import guess_shape, source_of
from segue.errors import InputError
from segue.output.png import png
from segue.output.wav import wav
from segue.recipe import load_recipe

SAID = ["one, two", "three", 'four "five"']
NAMES = ["clips/a.wav", "clips/b.WAV", "clips/c d.wav"]
PAIRS = list(zip(NAMES, SAID, strict=True))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("far/clips").mkdir(parents=True)
    for number, name in enumerate(NAMES, 3):
        Path("far", name).write_bytes(wav(np.sin(np.arange(400) / number), 8000))
    for number in range(3):
        Path(f"far/clips/{number}.png").write_bytes(png(np.full((8, 8, 3), 50 * number, np.uint8)))


def test_a_name_is_of_a_sound_or_of_a_picture() -> None:
    assert [media_of(name) for name in ("a.wav", "b.JPEG", "tones:17", "data:image/png;base64,iVBO")] == [
        *("sound", "picture", "sound", "picture")
    ]
    assert not any(map(media_of, ("a.txt", "a sentence.", "tones:x", "data:text/plain;base64,", "")))
    assert [resolved(name, "far/table.tsv") for name in (" a.wav ", "tones:17", "")] == ["far/a.wav", "tones:17", ""]
    assert resolved("/x/a.wav", "far/table.tsv") == "/x/a.wav"


def test_most_of_the_cells_decide() -> None:
    assert media_among(["a.wav", "b.wav", "c.png", ""]) == "sound"
    assert media_among(["see a.png", "a cow", "a hen"]) is None
    assert media_among(["a.wav", "b.png", "c.wav"], "picture") is None
    assert media_among([]) is None


def _csv(cell: str) -> str:
    doubled = cell.replace('"', '""')
    return f'"{doubled}"'


WRITTEN = {
    "plain.tsv": "".join(f"{name}\t{said}\n" for name, said in PAIRS),
    "swapped.tsv": "".join(f"{said}\t{name}\n" for name, said in PAIRS),
    "header.tsv": "audio_path\tspeaker\tsentence\n" + "".join(f"{name}\tme\t{said}\n" for name, said in PAIRS),
    "blank.tsv": "\n\n" + "".join(f"{name}\t{said}\n\n" for name, said in PAIRS),
    "quoted.csv": "caption,file\n" + "".join(f"{_csv(said)},{_csv(name)}\n" for name, said in PAIRS),
    "pipe.csv": "".join(f"{name}|{said}\n" for name, said in PAIRS),
    "rows.jsonl": "".join(json.dumps({"text": said, "wav": name, "id": 7}) + "\n" for name, said in PAIRS),
    "rows.json": json.dumps([{"source": name, "target": said} for name, said in PAIRS], indent=1),
}


@pytest.mark.parametrize("name", [*WRITTEN, "packed.tsv.gz", "names.txt,said.txt"])
def test_the_column_of_names_is_the_source_however_it_is_written(name: str) -> None:
    for one, content in WRITTEN.items():
        Path("far", one).write_text(content)
    Path("far/packed.tsv.gz").write_bytes(gzip.compress(WRITTEN["plain.tsv"].encode()))
    Path("far/names.txt").write_text("\n".join(NAMES) + "\n")
    Path("far/said.txt").write_text("\n".join(SAID) + "\n")
    path = ",".join(f"far/{part}" for part in name.split(","))
    assert guess_shape(path) is PARALLEL
    corpus = Corpus(Config(path, validation=0.0), PARALLEL)
    found = [(row.text, row.target) for row in corpus.examples("all")]
    assert found == [(f"far/{source}", said) for source, said in PAIRS]
    # The recipe and the corpus agree.
    data = load_recipe("rnn_seq2seq", [f"data.path={path}"]).data
    assert data.source == corpus.parts[0].config.source == "sound" and data.metric == "wer"


def test_text_stays_text() -> None:
    rows = "".join(f"a cow {n}\teine Kuh {n}\tclips/{n % 3}.png\n" for n in range(12))
    Path("far/multi.tsv").write_text("en\tde\timage\n" + rows)
    Path("far/seen.tsv").write_text("".join(f"look at {n}.png, now\tund {n}\n" for n in range(12)) + "see a.png\tb\n")
    Path("far/header.tsv").write_text("path\ttext\n")
    for name in ("multi", "seen", "header"):
        assert source_of(Config(f"far/{name}.tsv")) == "text"
    assert [row.target for row in Corpus(Config("far/multi.tsv"), PARALLEL).examples("all")][:1] == ["eine Kuh 0"]
    assert source_of(Config("far/multi.tsv", columns="3,1")) == "picture"
    assert source_of(Config("far/multi.tsv", source="picture", columns="")) == "picture"


def test_other_sources_than_data_source_says_are_refused() -> None:
    Path("far/sound.tsv").write_text(WRITTEN["plain.tsv"])
    Path("far/text.tsv").write_text("a cow\teine Kuh\n" * 3)
    for path, source, has in (("sound", "text", "names of sounds"), ("sound", "picture", "names of sounds")):
        with pytest.raises(InputError, match=rf"far/{path}.tsv has {has} as its sources, and data.source is {source}"):
            Corpus(Config(f"far/{path}.tsv", source=source), PARALLEL)
    with pytest.raises(InputError, match=r"has texts as its sources, and data.source is sound. Expected .*\.wav"):
        Corpus(Config("far/text.tsv", source="sound"), PARALLEL)
    with pytest.raises(InputError, match=r"shapes has names of pictures as its sources, and data.source is sound"):
        Corpus(Config("shapes", source="sound"), PARALLEL)


def test_mixed_kinds_and_rows_without_a_name_are_bad_rows() -> None:
    Path("far/mixed.tsv").write_text(WRITTEN["plain.tsv"] + "clips/0.png\tsix\nnotes\tseven\n\teight\n")
    with pytest.raises(InputError) as error:
        Corpus(Config("far/mixed.tsv"), PARALLEL)
    for part in (
        "far/mixed.tsv:4 far/clips/0.png is a picture, and data.source is sound",
        "far/mixed.tsv:5 far/notes is no name of a sound",
        "far/mixed.tsv:6 names no sound",
    ):
        assert part in str(error.value)
    # A first row that is neither a name nor a usual header is not taken for one.
    Path("far/first.tsv").write_text("notes\tseven\n" + WRITTEN["plain.tsv"])
    with pytest.raises(InputError, match=r"first.tsv:1 far/notes is no name"):
        Corpus(Config("far/first.tsv"), PARALLEL)


def test_which_texts_are_meant_is_asked_if_several_may_be() -> None:
    Path("far/wide.tsv").write_text("".join(f"{name}\tx\t{said}\n" for name, said in PAIRS))
    with pytest.raises(InputError, match=r"Expected source and target in every row; .* data.columns=1,"):
        Corpus(Config("far/wide.tsv", source="sound"), PARALLEL)
    rows = Corpus(Config("far/wide.tsv", columns="1,3"), PARALLEL).examples("all")
    assert [row.target for row in rows] == SAID


def test_a_list_names_sources_from_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir("far")
    assert guess_rows(PAIRS) is PARALLEL
    write_rows(PAIRS, tmp_path / "rows.jsonl", PARALLEL)
    monkeypatch.chdir(tmp_path)
    rows = list(Corpus(Config("rows.jsonl"), PARALLEL).examples("all"))
    assert [row.text for row in rows] == [str(tmp_path / "far" / name) for name in NAMES]
