"""What an imported run keeps of the folder that it came from comes back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import segue
from segue.interop.huggingface.origin import _typed_back, keep, origin_from, origin_of, rows_back, rows_left

IDS = [4, -1, 0, 2]
"""Of a table of six rows; 1, 3 and 5 are no token here."""


def written(tmp_path: Path) -> Path:
    """A run folder that keeps its origin."""
    theirs, run = tmp_path / "hf", tmp_path / "run"
    theirs.mkdir()
    run.mkdir()
    (theirs / "config.json").write_bytes(b'{"model_type": "gpt2",  "own": [1]}')
    (theirs / "merges.txt").write_bytes(b"a b\r\n")
    (theirs / "README.md").write_bytes(b"not kept")
    weights = {"wte": torch.arange(12.0).reshape(6, 2).half(), "mask": torch.ones(2, dtype=torch.bool)}
    rest = {"wte": rows_left(weights["wte"], IDS), "mask": weights["mask"]}
    keep(run, origin_from(theirs, IDS, rest, weights))
    return run


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    origin = origin_of(written(tmp_path))
    assert origin is not None
    assert origin.files == {"config.json": b'{"model_type": "gpt2",  "own": [1]}', "merges.txt": b"a b\r\n"}
    assert origin.config == {"model_type": "gpt2", "own": [1]}
    assert origin.ids == IDS
    assert origin.types == {"wte": "float16", "mask": "bool"}
    assert origin.rest["wte"].tolist() == [[2, 3], [6, 7], [10, 11]]
    assert origin_of(tmp_path) is None


def test_rows_go_back_to_their_ids() -> None:
    table = torch.randn(6, 3)
    ours = torch.stack([table[4], table.mean(0), table[0], table[2]])
    assert torch.equal(rows_back(ours, IDS, rows_left(table, IDS)), table)
    assert torch.equal(rows_back(ours[:, 0], IDS, rows_left(table[:, 0], IDS)), table[:, 0])
    with pytest.raises(segue.InputError, match="do not fit"):
        rows_back(ours, [9, -1, 0, 2], rows_left(table, IDS))


def test_types_come_back_unless_numbers_would_change(tmp_path: Path) -> None:
    origin = origin_of(written(tmp_path))
    assert origin is not None
    same, notes = _typed_back({"mask": torch.ones(2), "wte": torch.ones(6, 2) / 4}, origin)
    assert [(name, one.dtype) for name, one in same.items()] == [("wte", torch.float16), ("mask", torch.bool)]
    assert notes == []
    trained, notes = _typed_back({"mask": torch.ones(2), "wte": torch.ones(6, 2) / 3}, origin)
    assert torch.equal(trained["wte"], torch.ones(6, 2) / 3)
    assert "float16" in notes[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ids.json", "{}"),
        ("ids.json", "[1, 1]"),
        ("types.json", '{"wte": "Tensor"}'),
        ("config.json", "[]"),
        ("rest.safetensors", "no"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, name: str, content: str) -> None:
    run = written(tmp_path)
    (run / "huggingface" / name).write_text(content)
    with pytest.raises(segue.InputError, match="huggingface is damaged"):
        origin_of(run)
