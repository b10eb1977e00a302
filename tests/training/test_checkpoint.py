"""Checkpoints: whole or not there; a damaged one is noticed, named and passed over."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from segue.training import checkpoint
from segue.training.checkpoint import KEEP, clear_unfinished, latest, save_checkpoint

FILES = ["model.safetensors", "carried.safetensors", "values.json", "manifest.json"]


def state(step: int) -> tuple[dict[str, dict[str, Tensor]], dict[str, object]]:
    torch.manual_seed(step)
    tensors = {"model": {"w": torch.randn(3, 2), "n": torch.tensor(step)}, "carried": {}}
    return tensors, {"step": step, "best": {"loss": step / 3}}


def save(folder: Path, *steps: int) -> None:
    for step in steps:
        save_checkpoint(folder, step, *state(step))


def is_at(folder: Path, step: int) -> list[str]:
    """Checks that the last whole checkpoint is that of `step`; gives what was said about others."""
    found, passed = latest(folder)
    assert found is not None
    tensors, values = state(step)
    assert found.values == values
    assert {name: set(group) for name, group in found.tensors.items()} == {"model": {"w", "n"}, "carried": set()}
    assert all(torch.equal(found.tensors["model"][k], v) for k, v in tensors["model"].items())
    return passed


def place(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def test_the_last_one_comes_back_bit_for_bit(tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    assert is_at(tmp_path, 10) == []


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert latest(tmp_path / "none") == (None, [])


def test_only_the_last_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 5, 10, 15, 20)
    assert sorted(tmp_path.iterdir()) == [place(tmp_path, 5 * i) for i in range(5 - KEEP, 5)]


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    save(tmp_path, 9, 10, 100)
    assert is_at(tmp_path, 100) == []


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_is_noticed(name: str, tmp_path: Path) -> None:
    """Each byte of each file, one at a time."""
    save(tmp_path, 5, 10)
    path = place(tmp_path, 10) / name
    content = path.read_bytes()
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
        passed = is_at(tmp_path, 5)
        assert len(passed) == 1
        assert str(place(tmp_path, 10)) in passed[0]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_noticed(name: str, tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    (place(tmp_path, 10) / name).unlink()
    (sentence,) = is_at(tmp_path, 5)
    assert "damaged" in sentence
    assert name in sentence


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_file_that_is_cut_short_is_noticed(name: str, share: float, tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    path = place(tmp_path, 10) / name
    os.truncate(path, int(path.stat().st_size * share))
    assert len(is_at(tmp_path, 5)) == 1


@pytest.mark.parametrize("manifest", ["null", "[]", "{}", "7", '"a"'])
def test_a_manifest_of_something_else_is_noticed(manifest: str, tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    (place(tmp_path, 10) / "manifest.json").write_text(manifest)
    assert len(is_at(tmp_path, 5)) == 1


def test_when_all_are_damaged_there_is_none(tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    for step in (5, 10):
        (place(tmp_path, step) / "manifest.json").unlink()
    found, passed = latest(tmp_path)
    assert found is None
    assert [str(place(tmp_path, step)) in sentence for step, sentence in zip((10, 5), passed, strict=True)] == [
        True
    ] * 2


def test_a_damaged_one_is_replaced_when_its_step_comes_again(tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    (place(tmp_path, 10) / "manifest.json").unlink()
    save(tmp_path, 10)
    assert is_at(tmp_path, 10) == []


def test_damaged_later_ones_never_crowd_out_a_whole_one(tmp_path: Path) -> None:
    """All are damaged, the run begins again: what it saves at an early step must be there afterwards."""
    save(tmp_path, 50, 55)
    for step in (50, 55):
        (place(tmp_path, step) / "values.json").unlink()
    save(tmp_path, 5)
    assert is_at(tmp_path, 5) == []


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    save(tmp_path, 5)
    left = tmp_path / ".writing-1"
    shutil.copytree(place(tmp_path, 5), left)
    assert is_at(tmp_path, 5) == []  # it does not count as a checkpoint
    clear_unfinished(tmp_path)
    assert not left.exists()
    shutil.copytree(place(tmp_path, 5), left)
    save(tmp_path, 10)
    assert not left.exists()
    assert is_at(tmp_path, 10) == []


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 5)
    for failing in range(4):
        calls = iter(range(100))

        def fail(number: int, at: int = failing, calls=calls) -> None:
            if next(calls) == at:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(checkpoint.os, "fsync", fail)
        with pytest.raises(OSError, match="space"):
            save(tmp_path, 10)
        monkeypatch.undo()
        assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
        assert is_at(tmp_path, 5) == []


def test_the_manifest_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = checkpoint._write
    monkeypatch.setattr(checkpoint, "_write", lambda path, content: (written.append(path.name), write(path, content)))
    save(tmp_path, 5)
    assert sorted(written) == sorted(FILES)
    assert written[-1] == "manifest.json"
    assert sorted(json.loads((place(tmp_path, 5) / "manifest.json").read_text())) == sorted(written[:-1])


def test_tied_weights_are_written_out_each(tmp_path: Path) -> None:
    tied = torch.randn(2, 2)
    save_checkpoint(tmp_path, 1, {"model": {"a": tied, "b": tied, "c": tied.T}}, {})
    found, _ = latest(tmp_path)
    assert found is not None
    assert torch.equal(found.tensors["model"]["b"], tied)
    assert torch.equal(found.tensors["model"]["c"], tied.T)


def test_what_is_frozen_is_written_once_and_checked(tmp_path: Path) -> None:
    frozen = {"body.weight": torch.arange(4.0)}
    for step in (5, 10):
        save_checkpoint(tmp_path, step, {"model": {"head": torch.full((2,), float(step))}, "frozen": frozen}, {})
        assert sorted(path.name for path in place(tmp_path, step).iterdir()) == [
            *("manifest.json", "model.safetensors", "values.json")
        ]
    found, passed = latest(tmp_path)
    assert found is not None and not passed
    assert torch.equal(found.tensors["frozen"]["body.weight"], frozen["body.weight"])
    assert found.tensors["model"]["head"].tolist() == [10, 10]
    file = tmp_path / "frozen.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    found, passed = latest(tmp_path)
    assert found is None and len(passed) == 2 and "frozen" in passed[0]
    save_checkpoint(tmp_path, 15, {"model": {"head": torch.zeros(2)}, "frozen": frozen}, {})
    assert latest(tmp_path)[0] is not None
