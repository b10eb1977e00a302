"""How far weights have moved: worked numbers, and the names of the parts of every network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from segue.training.weight_change import part_of, weight_change


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("vectors.weight", "vectors"),
        ("segment_vectors.weight", "segment vectors"),
        ("positions.table.weight", "positions"),
        ("blocks.0.attention.qkv.weight", "layer 1 attention"),
        ("blocks.0.norm_attention.bias", "layer 1 attention"),
        ("blocks.11.feed.down.bias", "layer 12 feed-forward"),
        ("encoder.2.norm_feed.weight", "encoder 3 feed-forward"),
        ("decoder.0.cross.q.weight", "decoder 1 cross-attention"),
        ("layers.1.weight", "layer 2"),
        ("body.core.weight_hh_l0", "layer 1"),
        ("body.core.bias_ih_l1_reverse", "layer 2"),
        ("pooler.bias", "pooler"),
    ],
)
def test_parts_are_named_by_layer(name: str, part: str) -> None:
    assert part_of(name) == part


def test_the_change_of_a_part_is_relative_to_its_length(tmp_path: Path) -> None:
    before = {
        "vectors.weight": torch.tensor([[3.0, 4.0]]),
        "blocks.0.feed.up.weight": torch.tensor([[2.0]]),
        "blocks.0.feed.up.bias": torch.tensor([0.0]),
        "blocks.0.attention.out.weight": torch.tensor([[0.0]]),
        "pooler.weight": torch.tensor([[1.0]]),
        "gone.weight": torch.tensor([[1.0]]),
        "wider.weight": torch.tensor([[1.0]]),
    }
    save_file(before, tmp_path / "before.safetensors")
    now = {
        "body.vectors.weight": torch.tensor([[3.0, 5.0]]),  # moved by 1 of a length of 5
        "body.blocks.0.feed.up.weight": torch.tensor([[5.0]]),  # with its bias by 5 of a length of 2
        "body.blocks.0.feed.up.bias": torch.tensor([4.0]),
        "body.blocks.0.attention.out.weight": torch.tensor([[0.5]]),  # from nothing
        "body.pooler.weight": torch.tensor([[1.0]]),
        "body.wider.weight": torch.tensor([[1.0, 2.0]]),  # another shape began anew
        "head.weight": torch.tensor([[1.0]]),
    }
    found = weight_change(now.items(), tmp_path / "before.safetensors", "body.")
    assert found["parts"] == [
        {"part": "vectors", "change": pytest.approx(0.2)},
        {"part": "layer 1 feed-forward", "change": pytest.approx(2.5)},
        {"part": "layer 1 attention", "change": 1.0},
        {"part": "pooler", "change": 0.0},
    ]
    assert found["all"] == pytest.approx(((1 + 25 + 0.25) / (25 + 4 + 1)) ** 0.5)
