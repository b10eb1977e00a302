"""Teacher forcing against reading itself: both runs of a model over a source and its reference."""

from __future__ import annotations

import numpy as np
import torch

from segue.batches.codec import Codec, Sizes
from segue.data.config import Config as Data
from segue.inference.decode_settings import Config as Decode
from segue.inference.opened import Opened
from segue.inference.teacher_forcing import both_runs
from segue.models.transformer import Transformer
from segue.tasks.seq2seq import TASK
from segue.tokens.tokenizer import Config, Tokenizer

CONTEXT = 6
PAIRS = [("ab c", "d ef"), ("d", "ab d"), ("c d ef", "d")]


def opened() -> Opened:
    """A model that never ends a text itself."""
    tokenizer = Tokenizer.train(Config("char"), ["ab c", "d ef"])
    sizes = Sizes(tokenizer.vocab_size, marks=("start",))
    torch.manual_seed(1)
    model = Transformer(Transformer.Config(layers=1, width=8, heads=2, context=CONTEXT, output_bias=True), sizes)
    torch.nn.init.constant_(model.bias.detach()[: sizes.stop + 1], -99.0)
    return Opened(model, Codec(tokenizer, (), Data(path="grammar"), sizes), Decode(), CONTEXT, TASK)


def test_a_model_writes_no_more_than_it_sees_at_once() -> None:
    found = list(both_runs(opened(), PAIRS))
    assert max(len(runs.free.ids) for runs in found) == CONTEXT + 1


def test_both_are_the_same_up_to_where_they_part() -> None:
    model = opened()
    own = [runs.free.ids[:3] for runs in both_runs(model, PAIRS)]
    begun = [(source, model.codec.tokenizer.decode(ids) + "a") for (source, _), ids in zip(PAIRS, own, strict=True)]
    for runs in both_runs(model, begun):
        assert runs.parted is None or runs.parted >= 3
        same = len(runs.reference.ids) if runs.parted is None else runs.parted
        assert np.array_equal(runs.forced.ids[:same], runs.free.ids[:same])
        np.testing.assert_allclose(runs.forced.p[: same + 1], runs.free.p[: same + 1], rtol=1e-5)
