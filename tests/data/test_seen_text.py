"""Samples of hashes: the share of a text that stood in another, against sets of strings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from segue.data import seen_text
from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.seen_text import WINDOW, Sample, hashes_of, sample, windows_of_rows
from segue.data.shapes import LABELLED, TEXT
from segue.errors import InputError


def windows(texts: Sequence[str]) -> list[np.ndarray]:
    return list(seen_text._windows(map(Example, texts)))


def strings(text: str) -> list[bytes]:
    """Every window of a text, one by one."""
    letters = "".join(text.split()).encode()
    return [letters[i : i + WINDOW] for i in range(len(letters) - WINDOW + 1)]


def prose(seed: int, words: int) -> str:
    generator = np.random.default_rng(seed)
    return " ".join(generator.choice(["cow", "eats", "grass", "und", "für", "Ä", "hay\n", "1789"], words))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(1, 400), max_size=4), st.integers(40, 300))
def test_every_window_has_its_hash_however_the_text_is_cut(seed: int, cuts: list[int], piece: int) -> None:
    text = prose(seed, 60)
    parts, place = [], 0
    for cut in sorted(cuts):
        parts.append(text[place:cut])
        place = max(place, cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_text, "_PIECE", piece)
        seen_text._powers.cache_clear()
        whole, cut_up = (
            np.concatenate([np.empty(0, np.uint64), *windows(t)]) for t in ([text], [*parts, text[place:]])
        )
    seen_text._powers.cache_clear()
    assert whole.tolist() == cut_up.tolist()
    pairs = {*zip(strings(text), whole.tolist(), strict=True)}
    assert len(pairs) == len(set(strings(text))) == len(set(whole.tolist()))


def test_the_share_is_that_of_the_windows() -> None:
    train = prose(1, 300)
    text = train[200:700] + prose(2, 100)
    there = set(strings(train))
    expected = np.mean([window in there for window in strings(text)])
    assert 0.2 < expected < 0.8
    assert sample(windows([train])).share(windows([text])) == pytest.approx(expected, abs=1e-12)


def test_a_sample_estimates_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    train, other = prose(1, 20_000), prose(2, 4000)
    text = train[10_000 : 10_000 + len(other)] + other
    there = set(strings(train))
    expected = np.mean([window in there for window in strings(text)])
    monkeypatch.setattr(seen_text, "KEPT", 2000)
    known = sample(windows([train]))
    assert len(known.hashes) == 2000 and known.limit == known.hashes[-1]
    assert known.share(windows([text])) == pytest.approx(expected, abs=0.1)
    assert known.share(windows([text[:60]])) is None  # too short to tell


@given(st.lists(st.integers(0, 400), max_size=60), st.lists(st.integers(0, 400), max_size=60))
def test_joined_samples_are_the_sample_of_both(one: list[int], two: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_text, "KEPT", 16)
        first, second, both = (sample([np.array(numbers, np.uint64)]) for numbers in (one, two, one + two))
        joined = first.joined(second)
    assert joined.hashes.tolist() == both.hashes.tolist()
    assert set(joined.hashes.tolist()) == {n for n in {*one, *two} if n <= joined.limit}


def test_rows_are_looked_up_whole_and_labels_do_not_count(tmp_path: Path) -> None:
    def rows(text: str) -> Corpus:
        path = tmp_path / "rows.tsv"
        path.write_text(text, encoding="utf-8")
        return Corpus(Config(path=str(path), validation=0.0), LABELLED)

    known = sample(hashes_of(rows("pos\tgood film\nneg\tbad film\n"), "train"))
    assert known.share(hashes_of(rows("neg\tgood  film\nneg\tfilm\n"), "all")) == 0.5


def test_windows_inside_rows_are_found_in_running_text(tmp_path: Path) -> None:
    """And none that goes over the end of a row; a pair has two texts."""
    texts = [prose(seed, words) for seed, words in ((1, 40), (2, 3), (3, 30), (4, 50))]
    path = tmp_path / "pairs.tsv"
    rows = [["label", "text", "text2"], ["a", texts[0], texts[1]], ["b", texts[2], texts[3]]]
    path.write_text("".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows), encoding="utf-8")
    corpus = Corpus(Config(path=str(path), validation=0.0, columns="label,text,text2"), LABELLED)
    found = np.concatenate(list(windows_of_rows(corpus, "all")))
    assert len(found) == sum(len(strings(text)) for text in texts)
    assert sample(windows(texts)).share([found]) == 1.0
    expected = np.mean([window in set(strings(texts[3])) for text in texts for window in strings(text)])
    assert 0.2 < expected < 0.8
    assert sample(windows([texts[3]])).share([found]) == pytest.approx(expected, abs=1e-12)


def test_it_is_written_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(prose(3, 200), encoding="utf-8")
    corpus = Corpus(Config(path=str(tmp_path / "a.txt"), validation=0.0), TEXT)
    known = sample(hashes_of(corpus, "train"))
    known.write(tmp_path / "hashes.safetensors")
    again = Sample.read(tmp_path / "hashes.safetensors")
    assert again.hashes.tolist() == known.hashes.tolist() and again.limit == known.limit
    assert again.share(hashes_of(corpus, "train")) == 1
    for content in (b"", b"no numbers", save({"other": np.zeros(1)})):
        (tmp_path / "hashes.safetensors").write_bytes(content)
        with pytest.raises(InputError, match=r"hashes\.safetensors is damaged"):
            Sample.read(tmp_path / "hashes.safetensors")


def test_whoever_may_read_a_run_may_read_its_hashes(tmp_path: Path) -> None:
    other, written = tmp_path / "other", tmp_path / "hashes"
    other.touch()
    sample(windows(["a text of some length " * 9])).write(written)
    assert written.stat().st_mode == other.stat().st_mode
