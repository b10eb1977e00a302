"""A run that is exported and imported is the same run; what is no run is refused and leaves nothing."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.interop.archive import FILES, export_zip, import_zip
from segue.interop.formats import export_run

ROWS = [("good", "a fine film"), ("bad", "a dull film")] * 10


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    return segue.train("bow", ROWS, tmp_path_factory.mktemp("archive") / "bow", {"train.steps": 5})


def test_there_and_back_is_the_same_run(run: segue.Run, tmp_path: Path) -> None:
    export_zip(run.path, tmp_path / "bow.zip")
    import_zip(tmp_path / "bow.zip", tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).exists() == (run.path / name).exists()
        if (run.path / name).exists():
            assert (tmp_path / "again" / name).read_bytes() == (run.path / name).read_bytes()
    texts = ["a fine one", "a dull one"]
    assert list(segue.load(tmp_path / "again").predict(texts)) == list(run.predict(texts))


@pytest.mark.parametrize("item", ["tones", "shapes"])
def test_a_run_that_reads_sounds_or_pictures_goes_out_as_a_zip_alone(item: str, tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("".join(f"{item}:{i}\tab cd\n" for i in range(1, 5)))
    small = {"model.width": 8, "model.heads": 1, "model.layers": 1, "tokens.kind": "char", "train.steps": 1}
    small |= {"data.validation": 0, "data.rate": 8000, "data.pixels": 16, "decode.max_tokens": 5, "batches.size": 2}
    run = segue.train("transformer", str(tmp_path / "rows.tsv"), tmp_path / "run", small)
    export_zip(run.path, tmp_path / "run.zip")
    import_zip(tmp_path / "run.zip", tmp_path / "again")
    again = segue.load(tmp_path / "again")
    assert again.sizes == run.sizes and again.sizes.source == {"tones": "sound", "shapes": "picture"}[item]
    assert list(again.predict([f"{item}:9"])) == list(run.predict([f"{item}:9"]))
    with pytest.raises(InputError, match=f"reads {run.sizes.source}s, where Marian reads text"):
        export_run(run.path, tmp_path / "marian", "marian")


def test_the_same_run_gives_the_same_bytes(run: segue.Run, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        export_zip(run.path, tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_the_verbs(run: segue.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "bow.zip", tmp_path / "again"
    assert main(["export", str(run.path), "--to", "zip", str(path)]) == 0
    assert main(["import", str(path), "--out", str(out)]) == 0
    assert (out / "model.safetensors").exists()
    for words in (["export", str(run.path), str(path)], ["import", str(path), "--out", str(out)]):
        assert main(words) == 2  # nothing is overwritten
    assert main(["export", str(run.path), "--to", "zib", str(tmp_path / "c")]) == 2
    assert "Did you mean 'zip'?" in capsys.readouterr().err


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def _not_a_zip(path: Path) -> None:
    path.write_text("no zip at all")


def _climbing(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../outside.txt", "out")


def _half(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("recipe.toml", "kind = 'bow'")


def _altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = content.index(b"model.safetensors") + 60
    content[place] ^= 0xFF
    path.write_bytes(content)


def _with_weights(weights: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, weights if name == "model.safetensors" else content)

    return damage


def _in_directory(at: int, value: bytes) -> Callable[[Path], None]:
    """Change what the directory, and the head of the file, say of the first member, so many bytes from the flags on."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        for begin, flags in ((content.index(b"PK\x01\x02"), 8), (content.index(b"PK\x03\x04"), 6)):
            content[begin + flags + at : begin + flags + at + len(value)] = value
        path.write_bytes(content)

    return damage


def _bomb(path: Path) -> None:
    _with_weights(bytes(30_000_000))(path)


@pytest.mark.parametrize(
    "damage",
    [
        *(_truncated, _not_a_zip, _climbing, _half, _altered, _bomb),
        *(_with_weights(b"garbage"), _with_weights(b"\x02" + b"\0" * 7 + b"{}")),
        *(_in_directory(0, b"\x01"), _in_directory(2, b"\x63"), _in_directory(16, b"\xff\xff\xff\x7f")),
    ],
)
def test_what_is_no_run_is_refused_and_leaves_nothing(run: segue.Run, tmp_path: Path, damage) -> None:
    path = tmp_path / "inner" / "bow.zip"
    path.parent.mkdir()
    export_zip(run.path, path)
    damage(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(segue.InputError, match=r"bow\.zip"):
        import_zip(path, tmp_path / "inner" / "again")
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(segue.InputError, match="There is no file"):
        import_zip(tmp_path / "none.zip", tmp_path / "x")


def test_an_unfinished_run_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(segue.InputError, match="There is no run folder"):
        export_zip(tmp_path / "none", tmp_path / "a.zip")
    (tmp_path / "r").mkdir()
    with pytest.raises(segue.InputError, match="is not a run folder"):
        export_zip(tmp_path / "r", tmp_path / "a.zip")


def test_what_the_directory_says_is_compared_with_limits(run: segue.Run, tmp_path: Path) -> None:
    """A member that is too large for a run, one that is encrypted, one of a method that is not read: before reading."""
    path = tmp_path / "bow.zip"
    for damage, said in (
        (_in_directory(0, b"\x01"), "is encrypted"),
        (_in_directory(2, b"\x63"), "compressed by method 99"),
        (_in_directory(16, b"\xff\xff\xff\x7f"), "more than the 268,435,456 of any run"),
        (_bomb, "no safetensors file"),
        (_with_weights(b"\x02" + b"\0" * 7 + b"{}"), "model.safetensors is damaged"),
    ):
        path.unlink(missing_ok=True)
        export_zip(run.path, path)
        damage(path)
        with pytest.raises(segue.InputError, match=said):
            import_zip(path, tmp_path / "again")
