"""The table of formats: every path is read in one of them, and an unknown name is refused with the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from segue.cli import main
from segue.errors import InputError
from segue.interop.formats import FORMATS, export_run


def chosen(path: Path) -> str:
    return next(one.name for one in FORMATS if one.recognises(path))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.vec", b"", "word2vec"),
        ("glove.txt.gz", b"", "word2vec"),
        ("v.bin", b"2 1\na \0\0\0\0b \0\0\0\0", "word2vec"),
        ("pytorch_model.bin", b"\x80\x02", "hf"),
        ("model.safetensors", b"", "hf"),
        ("a.arpa", b"", "arpa"),
        ("a.lm.gz", b"", "arpa"),
        ("a.arpa.xz", b"", "arpa"),
        ("a.zip", b"", "zip"),
        ("a", b"PK", "zip"),
    ],
)
def test_a_file_is_known_by_its_first_line_or_name(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert chosen(tmp_path / name) == expected


def test_a_folder_is_one_of_hugging_face_whatever_its_name(tmp_path: Path) -> None:
    for name in ("gpt2", "gpt2.txt", "gpt2.arpa"):
        (tmp_path / name).mkdir()
        assert chosen(tmp_path / name) == "hf"


def test_an_unknown_format_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no format 'arpaa'.*arpa"):
        export_run(tmp_path, tmp_path / "a", "arpaa", None)


def test_an_import_has_a_default_place_by_the_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.v1.vec").write_text("2 2\ncow 1 0\nhay 0 1\n")
    for place in ("runs/words", "runs/words-2"):
        assert main(["import", "words.v1.vec"]) == 0
        assert f"The run: {place}" in capsys.readouterr().out and (tmp_path / place / "recipe.toml").exists()


def test_the_help_names_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(f"{one.name}, {one.what}" in said for one in FORMATS)


def test_names_are_unique() -> None:
    assert len({one.name for one in FORMATS}) == len(FORMATS)
