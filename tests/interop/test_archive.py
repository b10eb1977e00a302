"""A run that is exported and imported is the same run; what is no run is refused and leaves nothing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import segue
from segue.cli import main
from segue.interop.archive import FILES, export_zip, import_zip

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


@pytest.mark.parametrize("damage", [_truncated, _not_a_zip, _climbing, _half, _altered])
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
