"""The view of what fills the holes of a text."""

from __future__ import annotations

import pytest
import torch

from segue.batches.codec import Codec, Sizes
from segue.data.config import Config as Data
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.inference.fill import fill
from segue.inference.opened import Opened
from segue.look.inside import look, views_of
from segue.models.bert import Bert
from segue.tasks.masked_lm import TASK
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def opened() -> Opened:
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(Tokens(kind="char"), ["the cows eat grass."])
    config = Bert.Config(layers=1, width=8, heads=2, context=16)
    sizes = Sizes(tokenizer.vocab_size, marks=Bert.marks(config))
    codec = Codec(tokenizer, (), Data(), sizes, inputs=Bert.inputs_of(config))
    return Opened(Bert(config, sizes).eval(), codec, Decode(), 16, TASK)


def test_a_bar_is_a_filler(opened: Opened) -> None:
    assert "fill" in views_of(opened.model)
    (answer,) = fill(opened, ["the c[MASK]w"], top=4)
    shown = look(opened, "fill", "the c[MASK]w", top=4)
    assert shown.kind == "bars" and shown.rows == tuple(filler.token for filler in answer.holes[0])
    assert shown.values_PRC.ravel().tolist() == [filler.probability for filler in answer.holes[0]]
    assert answer.filled in shown.note and "c[MASK]w" in shown.title
    for drawn in (shown.terminal(), shown.html(), shown.svg(), shown.json()):
        assert "c[MASK]w" in drawn


def test_several_holes_are_numbered_and_a_long_text_is_said_to_be_longer(opened: Opened) -> None:
    text = "the cows eat [MASK] grass " * 8
    shown = look(opened, "fill", text, top=2)
    assert [row.split()[0] for row in shown.rows[:4]] == ["1", "1", "2", "2"] and len(shown.rows) == 16
    assert "outside the window" in shown.note and len(shown.title) < 150
    beside = look(opened, "fill", "the [MASK]", other=opened, top=2)
    assert beside.beside[0].rows == beside.rows


def test_without_a_hole_attention_can_be_shown_and_fillers_not(opened: Opened) -> None:
    with pytest.raises(InputError, match="no hole"):
        look(opened, "fill", "the cows")
    with pytest.raises(InputError, match="--top 0"):
        look(opened, "fill", "[MASK]", top=0)
    shown = look(opened, "attention", "a [MASK]")
    assert shown.columns == ("<start>", "a", " ", "<mask>", "</s>")
