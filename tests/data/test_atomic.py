"""Atomic writing: what fails leaves nothing, and what is there already stays until the new is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from segue.data.atomic import atomic_file, atomic_folder, of_process
from segue.errors import InputError


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_file(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old" and beside.name == ".a.txt.writing"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("written", [True, False])
def test_a_file_that_fails_leaves_nothing(tmp_path: Path, written: bool) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path, of_process(path)) as beside:
        if written:
            beside.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_is_there_once_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "x" / "y" / "run"
    with atomic_folder(place) as beside:
        (beside / "a").write_text("1")
        assert not place.exists() and beside.parent == place.parent
    assert (place / "a").read_text() == "1" and [one.name for one in place.parent.iterdir()] == ["run"]


def test_a_folder_that_fails_takes_the_folders_made_for_it_along(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(ValueError, match="half"), atomic_folder(tmp_path / "x" / "y" / "z" / "run") as beside:
        (beside / "inner").mkdir()
        (beside / "inner" / "a").write_text("half")
        raise ValueError("half")
    assert list(tmp_path.rglob("*")) == [tmp_path / "x"]


def test_what_others_have_put_there_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="half"), atomic_folder(tmp_path / "y" / "run"):
        (tmp_path / "y" / "theirs").write_text("1")
        raise ValueError("half")
    assert [one.name for one in tmp_path.rglob("*") if one.is_file()] == ["theirs"]


def test_a_message_names_the_folder_and_not_the_place_beside_it(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised, atomic_folder(tmp_path / "new" / "deep" / "run") as beside:
        raise InputError(f"{beside / 'config.json'} is damaged.")
    assert str(raised.value) == f"{tmp_path / 'new' / 'deep' / 'run' / 'config.json'} is damaged."
    assert not list(tmp_path.iterdir())
