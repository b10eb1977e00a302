"""What Python gives for a sound or a picture: a path, bytes or an array become a name that decodes to the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from segue.data.config import Config
from segue.data.given_sources import named, with_whole_paths
from segue.data.media import decoded
from segue.errors import InputError
from segue.output.png import png
from segue.output.wav import wav

SAMPLES = np.sin(np.arange(2000) / 7).astype(np.float32)
PIXELS = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)


def test_arrays_and_bytes_decode_to_what_they_were() -> None:
    sound, picture = Config(source="sound", rate=8000), Config(source="picture", pixels=16)
    for given in (SAMPLES, wav(SAMPLES, 8000)):
        np.testing.assert_allclose(decoded(named(given, 8000), sound), SAMPLES, atol=1e-4)
    for given in (PIXELS, png(PIXELS)):
        np.testing.assert_array_equal(decoded(named(given, 0), picture), PIXELS[None])
    assert named("a text", 8000) == "a text" and named(Path("a.wav"), 8000) == "a.wav"
    with pytest.raises(InputError, match="array"):
        named(np.zeros((2, 3, 4)), 8000)


def test_rows_that_are_written_elsewhere_have_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [("a.wav", "one"), ("tones:1", "two"), (Path("b.wav"), "see c.png"), (SAMPLES, "three")]
    first, item, path, array = with_whole_paths(iter(rows), 8000)
    assert (first, item) == ((str(tmp_path / "a.wav"), "one"), ("tones:1", "two"))
    assert path == (str(tmp_path / "b.wav"), "see c.png") and array[0].startswith("data:audio/wav;base64,")
    (row,) = with_whole_paths(iter([{"audio": "a.wav", "text": "one"}]), 8000)
    assert row == {"audio": str(tmp_path / "a.wav"), "text": "one"}


def test_texts_that_look_like_names_stay_texts() -> None:
    rows = [("see a.png", "voir a.png"), ("the cow", "la vache"), ("a dog", "un chien")]
    assert list(with_whole_paths(iter(rows), 8000)) == rows
