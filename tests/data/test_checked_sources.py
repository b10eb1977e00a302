"""Every source is decoded once when a table is checked; content counts, not names; what changes is noticed."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from segue.data import checked_sources
from segue.data.checked_sources import checksum, content_of
from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.seen_text import hashes_of, sample
from segue.data.shapes import PARALLEL
from segue.errors import InputError
from segue.output.wav import wav

GOOD = [f"{number}.wav" for number in range(6)]


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """A table of six sounds, and a count of how often each source is decoded."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(GOOD):
        write(name, number)
    Path("table.tsv").write_text("".join(f"{name}\tword {number}\n" for number, name in enumerate(GOOD)))
    counted: Counter[str] = Counter()
    decoded = checked_sources.decoded

    def counting(name: str, config: Config) -> object:
        counted[name] += 1
        return decoded(name, config)

    monkeypatch.setattr(checked_sources, "decoded", counting)
    return counted


def write(name: str, pitch: int, age: float = 60.0) -> None:
    """Write a sound, `age` seconds ago."""
    Path(name).write_bytes(wav(np.sin(np.arange(400) / (3 + pitch)), 8000))
    stat = Path(name).stat()
    os.utime(name, (stat.st_atime - age, stat.st_mtime - age))


def read(path: str = "table.tsv", **settings: object) -> Corpus:
    return Corpus(Config(path, validation=0.0, **settings), PARALLEL)  # type: ignore[arg-type]


def test_each_source_is_decoded_once_however_often_the_rows_are_read(calls: Counter[str]) -> None:
    told: list[tuple[str, float]] = []
    corpus = Corpus(Config("table.tsv"), PARALLEL, lambda what, share, note="": told.append((what, share)))
    for split in ("train", "validation", "all"):
        list(corpus.examples(split))
    with corpus.unchanged():
        corpus.overlap()
        corpus.sha256("train")
    assert calls == dict.fromkeys(GOOD, 1)
    assert told == [("reading table.tsv", number / 6) for number in range(1, 7)]


def test_bad_sources_are_skipped_in_every_pass(calls: Counter[str]) -> None:
    rows = Path("table.tsv").read_text().splitlines(keepends=True)
    Path("table.tsv").write_text("".join([rows[0], "none.wav\tx\n", *rows[1:3], "\n", "empty.wav\ty\n", *rows[3:]]))
    Path("empty.wav").touch()
    corpus = read(on_error="skip")
    assert [row.text for row in corpus.examples("all")] == GOOD
    assert [row.content for row in corpus.examples("all")] == [content_of(name, 0) for name in GOOD]
    assert calls == dict.fromkeys([*GOOD, "none.wav", "empty.wav"], 1)
    assert corpus.counts["train"] == 6 and corpus.ledger.bad_rows == 2
    assert corpus.ledger.bad_first == [
        {"file": "table.tsv", "line": 2, "source": "none.wav", "reason": "does not exist"},
        {"file": "table.tsv", "line": 6, "source": "empty.wav", "reason": "is empty"},
    ]
    with pytest.raises(InputError, match=r"table.tsv:2 none.wav does not exist; table.tsv:6 empty.wav is empty\. Exp"):
        read()
    Path("table.tsv").write_text("none.wav\tx\nempty.wav\ty\n")
    with pytest.raises(InputError, match=r"table.tsv holds no sound that can be read; 2 bad rows were skipped"):
        read(on_error="skip")


def test_the_ledger_has_one_entry_for_all_sources() -> None:
    table, sources = read().ledger.files
    digests = b"".join(hashlib.blake2b(Path(name).read_bytes(), digest_size=32).digest() for name in GOOD)
    size = sum(len(Path(name).read_bytes()) for name in GOOD)
    assert table["path"] == "table.tsv"
    assert sources == {
        "path": "what table.tsv names",
        "count": 6,
        "bytes": size,
        "sha256": hashlib.sha256(digests).hexdigest(),
    }


def test_two_names_of_one_recording_are_the_same_row() -> None:
    Path("other").mkdir()
    for name in GOOD[:3]:
        Path("other", f"new-{name}").write_bytes(Path(name).read_bytes())
    write("other/new-3.wav", 9)
    Path("other/test.tsv").write_text("".join(f"new-{name}\tword {n}\n" for n, name in enumerate(GOOD[:4])))
    corpus = read(test="other/test.tsv")
    assert corpus.overlap() == {"test": 0.75}
    known = sample(hashes_of(corpus, "train"))
    assert known.share(hashes_of(corpus, "test")) == 0.75
    # The checksum of a split is of contents too.
    Path("moved").mkdir()
    for name in [*GOOD, "table.tsv"]:
        Path("moved", name).write_bytes(Path(name).read_bytes())
    assert read("moved/table.tsv").sha256("train") == corpus.sha256("train")
    write("moved/0.wav", 9)
    assert read("moved/table.tsv").sha256("train") != corpus.sha256("train")


def test_a_source_of_a_built_in_corpus_has_its_seed_in_its_content() -> None:
    assert checksum("tones:3", 0) == checksum("tones:3", 0) != checksum("tones:3", 1)
    uri = "data:audio/wav;base64,QUJD"
    assert checksum(uri, 0) == (hashlib.blake2b(b"ABC", digest_size=32).digest(), 3)


def test_a_changed_source_is_noticed() -> None:
    corpus = read()
    corpus.check_unchanged()
    write("2.wav", 2, age=5)  # the same bytes at another time
    corpus.check_unchanged()
    write("2.wav", 9)  # other bytes of the same size
    with pytest.raises(InputError, match=r"^2.wav has changed while the run was made"):
        corpus.check_unchanged()
    Path("2.wav").unlink()
    with pytest.raises(InputError, match=r"^2.wav has changed"):
        corpus.check_unchanged()
    write("2.wav", 2)
    corpus.check_unchanged()


def test_a_source_that_was_just_written_is_read_again() -> None:
    write("1.wav", 1, age=0)
    stat = Path("1.wav").stat()
    corpus = read()
    write("1.wav", 9, age=0)
    os.utime("1.wav", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as on a file system whose clock is coarse
    with pytest.raises(InputError, match=r"^1.wav has changed"):
        corpus.check_unchanged()


def test_an_unfinished_first_pass_is_begun_again(calls: Counter[str]) -> None:
    from segue.data.ledger import Ledger
    from segue.data.sources import open_source

    source = open_source("table.tsv", Config("table.tsv", source="sound"), PARALLEL, Ledger())
    next(iter(source.read(Ledger(), None)))
    assert [row.text for row in source.read(Ledger(), None)] == GOOD
    assert [row.content for row in source.read(Ledger(), None)] == [content_of(name, 0) for name in GOOD]
    assert calls == dict.fromkeys(GOOD, 1) | {"0.wav": 2}
