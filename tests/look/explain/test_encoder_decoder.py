"""What `explain` says of encoder-decoders: exact counts, the paper's sizes, and the shapes of both sides."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from segue.cli import main
from segue.look.explain.encoder_decoder import explained, published
from segue.models.base import Sizes
from segue.models.rnn_seq2seq import RnnSeq2seq


@pytest.mark.parametrize(("size", "count"), [("base", 63_082_496), ("big", 214_245_376)])
def test_m17_m18_the_published_sizes(size: str, count: int) -> None:
    assert published(size) == count


def test_parts_add_up_and_shapes_are_those_of_their_side() -> None:
    config, sizes = RnnSeq2seq.Config(width=8, tied="none"), Sizes(50, source_vocab_size=70)
    (section,) = explained(RnnSeq2seq, config, sizes, "a test")
    rows = {name: (count, remark) for name, count, remark in section.rows}
    counts = [int(count.replace(",", "")) for count, _ in rows.values()]
    assert sum(counts[:-1]) == counts[-1] == sum(p.numel() for p in RnnSeq2seq(config, sizes).parameters())
    assert rows["source_vectors"] == (str(70 * 8), "S = 25 x 8") and rows["vectors"] == (str(50 * 8), "T = 30 x 8")
    assert rows["encoder"][1] == "S = 25 x 8; 1 x lstm" and rows["head"][1] == "T = 30 x 50"
    assert rows["in all"][1] == "with 70 of the source, 50 tokens (a test)"


@pytest.mark.parametrize(
    ("source", "frame", "places"), [("sound", 80, 25), ("picture", 3 * 16 * 16, 4), ("picture", 3 * 17 * 17, 9)]
)
def test_frames_of_a_source_become_places(source: Any, frame: int, places: int) -> None:
    config, sizes = RnnSeq2seq.Config(width=8, ctc=0.3), Sizes(50, source=source, frame=frame)
    (section,) = explained(RnnSeq2seq, config, sizes, "a test")
    rows = {name: remark for name, _, remark in section.rows}
    assert section.title.startswith(f"Parameters, and shapes for S = {places} places (")
    assert rows["stem"] == f"S = {places} x 8" and rows["ctc_head"] == f"S = {places} x 50"
    model = RnnSeq2seq(config, sizes)
    frames = torch.zeros(1, 100 if source == "sound" else 1, frame)
    assert model.stem is not None and model.stem(frames, None).shape == (1, places, 8)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "transformer/base"]) == 0
    said = capsys.readouterr().out
    assert "→ base   63,082,496" in said and "65M in the paper" in said and "214,245,376" in said
    assert "T · S = 750 in each of 48 heads" in said
