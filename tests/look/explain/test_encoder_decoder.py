"""What `explain` says of encoder-decoders: exact counts, the paper's sizes, and the shapes of both sides."""

from __future__ import annotations

import pytest

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


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "transformer/base"]) == 0
    said = capsys.readouterr().out
    assert "→ base   63,082,496" in said and "65M in the paper" in said and "214,245,376" in said
    assert "T · S = 750 in each of 48 heads" in said
