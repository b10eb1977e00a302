"""Where words are heard or seen: seconds and patches, by worked numbers and against the model's own attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.codec import Codec, Sizes
from segue.data.config import Config as Data
from segue.inference.alignment import END, Alignment, aligned, pair_batch
from segue.inference.decode_settings import Config as Decode
from segue.inference.ensemble import Ensemble
from segue.inference.opened import Opened
from segue.inference.places import Patches, Times, places_of
from segue.layers.sources import SoundStem
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.models.transformer import Transformer
from segue.tasks.seq2seq import TASK
from segue.tokens.tokenizer import Config, Tokenizer

TARGET = "ab c"
SMALL: dict[Any, dict[str, Any]] = {
    RnnSeq2seq: {"width": 8, "layers": 1},
    Transformer: {"width": 8, "layers": 1, "heads": 2},
}


def opened(source: Any, kind: Any = RnnSeq2seq, **settings: Any) -> Opened:
    """An untrained model of sounds or pictures of 16 pixels a side, with letters as its tokens."""
    tokenizer = Tokenizer.train(Config("char"), [TARGET])
    data = Data(path="tones" if source == "sound" else "shapes", source=source, pixels=16)
    sizes = Sizes(tokenizer.vocab_size, source=source, frame=80 if source == "sound" else 16 * 16 * 3)
    torch.manual_seed(0)
    model = kind(kind.Config(**SMALL[kind] | settings), sizes)
    return Opened(model, Codec(tokenizer, (), data, sizes), Decode(), 1000, TASK)


def test_most_of_a_words_attention_lies_between_its_seconds() -> None:
    """Ten places of half a second, equally seen: a tenth is the first half second, a tenth the last. Of three places
    with 0.2, 0.6 and 0.2, the first tenth is half of the first place, the last tenth half of the third."""
    times = Times(50, 0.5)
    assert times.link("a", np.full(10, 0.1)) == {"word": "a", "start": 0.5, "end": 4.5}
    assert times.link("a", np.array([0.0, 0.2, 0.6, 0.2, 0.0])) == {"word": "a", "start": 0.75, "end": 1.75}
    assert times.names(3) == ("0.00", "0.50", "1.00")


def test_the_most_seen_patch_has_its_frame_row_and_column() -> None:
    """Two rows of two patches, two frames: place 6 is in the second frame, the second row, the first column."""
    patches = Patches(2, 8)
    alpha_S = np.array([0, 0.1, 0.1, 0, 0, 0, 0.7, 0.1])
    assert patches.link("a", alpha_S) == {"word": "a", "frame": 2, "row": 2, "column": 1}
    assert patches.strip(alpha_S).tolist() == [[0, 0.1, 0, 0], [0.1, 0, 0.7, 0.1]]
    assert patches.names(8)[6] == "2,2,1" and patches.names(4)[2] == "2,1"


def test_links_in_a_line_leave_the_end_out() -> None:
    alpha = np.eye(3)
    heard = Alignment(("0.00", "0.10", "0.20"), ("one", "two", END), alpha, Times(10, 0.1))
    assert heard.line() == "one:0.01-0.09 two:0.11-0.19"
    seen = Alignment(("1,1", "1,2", "2,1"), ("red", "dot", END), alpha, Patches(2, 8))
    assert seen.line() == "red:1,1,1 dot:1,1,2"


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize(
    ("source", "names"), [("sound", ["tones:1", "tones:2"]), ("picture", ["shapes:1", "shapes:2"])]
)
def test_words_and_places_are_those_of_the_models_attention(kind: Any, source: str, names: list[str]) -> None:
    """Each source alone, summed by a plain loop, is what two of different lengths give together."""
    some = opened(source, kind)
    for name, found in zip(names, aligned(some, [(name, TARGET) for name in names]), strict=True):
        batch = pair_batch(some, [(name, TARGET)])
        with torch.inference_mode():
            alpha_TS = some.model.alignment(batch.to("cpu"))[0].double().numpy()
        assert found.target == ("ab", "c", END)
        for word, tokens in enumerate(((0, 1), (2, 3), (4,))):  # a, b; the blank, c; the end
            for place in range(alpha_TS.shape[1]):
                expected = sum(alpha_TS[token, place] for token in tokens) / len(tokens)
                assert found.alpha_TS[word, place] == pytest.approx(expected, abs=1e-6)
        assert len(found.source) == alpha_TS.shape[1] == found.alpha_TS.shape[1]


def test_places_come_from_the_stem() -> None:
    some = opened("sound")
    (found,) = aligned(some, [("tones:1", TARGET)])
    frames = pair_batch(some, [("tones:1", TARGET)]).source.shape[1]
    assert found.places == Times(SoundStem.stride, SoundStem.stride / 100)
    assert len(found.source) == -(-frames // SoundStem.stride)
    assert places_of(opened("picture", patch=4).model) == Patches(4, 4)
    assert places_of(opened("picture", patch=0).model) == Patches(2, 8)
    text = Transformer(Transformer.Config(**SMALL[Transformer]), Sizes(9))
    assert places_of(text) is None


def test_places_of_an_ensemble_are_those_of_its_first_part_with_attention() -> None:
    plain, seeing = opened("picture", attention="none", patch=8), opened("picture", Transformer, patch=4)
    both = plain._replace(model=Ensemble([plain.model, seeing.model]))
    (found,), (alone,) = (aligned(some, [("shapes:1", TARGET)]) for some in (both, seeing))
    assert found.places == alone.places == Patches(4, 4)
    np.testing.assert_array_equal(found.alpha_TS, alone.alpha_TS)
