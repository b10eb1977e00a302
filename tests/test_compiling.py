"""A first compilation is said; what is compiled already is not, wherever it can be kept."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
from numba import njit

from segue import compiling
from segue.compiling import announced


def test_said_once():
    @njit
    def double(x):
        return 2 * x

    said = []
    with announced(lambda what, share: said.append(what)):
        assert double(3) == 6
        assert said == ["compiling, once"]
        assert double(4) == 8
    assert said == ["compiling, once"]
    assert double(1.5) == 3.0 and len(said) == 1  # nobody listens any more


# What is kept on the disk

SOURCE = "from segue.compiling import njit\n\n\n@njit(cache=True)\ndef double(x):\n    return 2 * x\n"


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Import a file with a compiled loop anew, as another process would."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE)

    def fresh() -> Any:
        spec = importlib.util.spec_from_file_location("doubling", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.double

    return fresh


def test_compiled_code_is_kept(double: Callable[[], Any], tmp_path: Path) -> None:
    assert double()(3) == 6
    assert {path.suffix for path in tmp_path.rglob("*.nb*")} == {".nbi", ".nbc"}
    said: list[str] = []
    with announced(lambda what, share: said.append(what)):
        assert double()(3) == 6
    assert not said


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_damaged_cache_is_made_anew(double: Callable[[], Any], tmp_path: Path, suffix: str) -> None:
    double()(3)
    [path] = tmp_path.rglob(f"*{suffix}")
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], bytes(range(256)) * 4):
        path.write_bytes(damaged)
        assert double()(3) == 6
        assert path.read_bytes() != damaged


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No folder can be written to but the one for temporary files; the user has no home folder."""
    able = compiling._writable
    monkeypatch.setattr(compiling, "_writable", lambda folder: folder.is_relative_to(tmp_path) and able(folder))
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / f"segue-compiled-{os.getuid()}"


def test_without_a_home_it_is_kept_among_temporary_files(nowhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling._place() == str(nowhere)
    assert nowhere.stat().st_mode & 0o777 == 0o700
    assert compiling._place() == str(nowhere)
    assert list(nowhere.parent.iterdir()) == [nowhere]  # and no folder is called ~
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["link", "file", "open to all"])
def test_a_folder_that_another_may_have_made_is_not_taken(
    nowhere: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "link":
        (nowhere.parent / "real").mkdir(mode=0o700)
        nowhere.symlink_to("real")
    elif kind == "file":
        nowhere.touch()
    else:
        nowhere.mkdir()
        nowhere.chmod(0o777)
    assert compiling._place() is None
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err


def test_without_any_folder_it_is_compiled_each_time(
    double: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiling, "_PLACE", None)
    assert double()(3) == 6
    assert not list(tmp_path.rglob("*.nb*"))
