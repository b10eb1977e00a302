"""What is known of a word: its letters, affixes and shape, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from segue.batches.batch import Batch
from segue.batches.spelled_words import pad_letters, spelt
from segue.batches.store import columns_of
from segue.layers.word_features import (
    AFFIX,
    ALPHABET,
    BUCKETS,
    LONGEST_AFFIX,
    SHAPES,
    UNK,
    Word,
    WordFeatures,
    _alphabet,
    affix_buckets,
    shape_buckets,
)
from segue.tasks.tag import TASK

WORDS = ["the", "The", "McDonald's", "a", "running", "1.50", "x-ray", "ὁδός", "日本"]


def word(**values: float) -> Word:
    torch.manual_seed(0)
    unknown = values.pop("unknown", 0.0)
    written = WordFeatures(**({"folded": False, "letters": 0, "affixes": 0, "shapes": False} | values))  # type: ignore[arg-type]
    return Word(20, 4, written, unknown).double().eval()


def batch_of(*rows: list[str]) -> Batch:
    """Rows of words that are all unknown, so that only their letters tell them apart."""
    ids = [np.full(len(row), UNK) for row in rows]
    return TASK.collate(columns_of(text=ids, tags=ids, letters=[spelt(row) for row in rows]), 9999).to("cpu")


def letters(*words: str) -> torch.Tensor:
    return torch.from_numpy(pad_letters([spelt(list(words))], len(words))[0])


def test_spelling_by_hand() -> None:
    """c = max over i of W [L[l_{i-1}]; L[l_i]; L[l_{i+1}]] + b, zero vectors beyond the ends."""
    model = word(letters=5)
    assert model.letter is not None and model.spelling is not None
    found = model(batch_of(WORDS[:7]))[0, :, 4:].detach()
    for spelling, row in zip(WORDS[:7], found, strict=True):
        zero = torch.zeros(1, model.letter.embedding_dim).double()
        vectors = torch.cat([zero, model.letter.weight[[ord(c) + 1 for c in spelling]], zero]).detach()
        places = [model.spelling(torch.cat(list(vectors[i : i + 3]))) for i in range(len(spelling))]
        torch.testing.assert_close(row, torch.stack(places).amax(0).detach())


@pytest.mark.parametrize("longest", range(1, LONGEST_AFFIX + 1))
def test_affixes_are_beginnings_and_ends(longest: int) -> None:
    """Two words share a vector just where they share the affix (these are too few to meet by chance)."""
    words = ["walking", "talking", "walked", "king", "in", "n", "Walks"]
    lower = torch.tensor(_alphabet()[0])
    found = affix_buckets(lower[letters(*words)], longest)
    assert found.shape == (len(words), 2 * longest)
    for i in range(longest):
        assert ((found[:, [i, longest + i]] % BUCKETS) >= 0).all()
        heads, tails = [w.lower()[: i + 1] for w in words], [w.lower()[-i - 1 :] for w in words]
        for column, affixes in ((i, heads), (longest + i, tails)):
            same = [[a == b for b in affixes] for a in affixes]
            assert (found[:, None, column] == found[None, :, column]).tolist() == same
            assert (found[:, column] // BUCKETS == column).all()  # each length at each end has vectors of its own


def test_shapes_are_runs_of_one_kind() -> None:
    classes = torch.tensor(_alphabet()[1])
    alike = [("the", "running", "a"), ("The", "London"), ("McDonald", "DeBrie"), ("1.50", "22:3"), ("x-ray", "up-to")]
    found = [shape_buckets(classes[letters(*group)]).tolist() for group in alike]
    assert all(len(set(group)) == 1 for group in found)
    assert len({group[0] for group in found}) == len(alike)
    assert all(0 <= bucket < SHAPES for group in found for bucket in group)


def test_letters_beyond_the_alphabet_share_vectors() -> None:
    model = word(letters=5, affixes=2, shapes=True)
    far = [chr(ALPHABET + 10), chr(0x10FFFF), "日本"]
    assert model(batch_of(far)).isfinite().all()


def test_a_word_is_the_same_in_any_batch() -> None:
    """However long the words beside it are, and whatever stands at padding."""
    model = word(letters=5, affixes=3, shapes=True)
    together = model(batch_of(WORDS, ["the"]))
    torch.testing.assert_close(together[1, 0], model(batch_of(["the"]))[0, 0])
    for place, spelling in enumerate(WORDS):
        torch.testing.assert_close(together[0, place], model(batch_of([spelling]))[0, 0])
    assert model.width == together.shape[-1] == 4 + 5 + 2 * 3 * AFFIX + AFFIX


def test_a_word_of_no_letters_has_numbers() -> None:
    assert word(letters=5, affixes=3, shapes=True)(batch_of(["", "a"])).isfinite().all()


def test_in_training_words_are_forgotten_but_not_their_letters() -> None:
    model = word(letters=5, unknown=0.5)
    ids = np.arange(2, 18)
    batch = TASK.collate(columns_of(text=[ids], tags=[ids], letters=[spelt([chr(97 + i) for i in ids])]), 9999).to(
        "cpu"
    )
    calm = model(batch)
    model.train()
    torch.manual_seed(0)
    found = model(batch)
    forgotten = (found[0, :, :4] == model.vectors.weight[UNK]).all(1)
    assert 2 < int(forgotten.sum()) < 14
    torch.testing.assert_close(found[0, ~forgotten], calm[0, ~forgotten])
    torch.testing.assert_close(found[..., 4:], calm[..., 4:])


def test_a_batch_without_letters_is_refused() -> None:
    ids = np.array([2, 3])
    with pytest.raises(ValueError, match="chars_BTC"):
        word(letters=5)(TASK.collate(columns_of(text=[ids], tags=[ids]), 9999).to("cpu"))
    assert word()(TASK.collate(columns_of(text=[ids], tags=[ids]), 9999).to("cpu")).shape == (1, 2, 4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"letters": -1}, "letters"),
        ({"affixes": -1}, "affixes"),
        ({"affixes": LONGEST_AFFIX + 1}, "affixes"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WordFeatures(**values)  # type: ignore[arg-type]


def test_a_word_is_known_in_another_case() -> None:
    """F sees "The" and "the" as one; E and the shape tell them apart."""
    model = word(folded=True)
    ids, folded = [np.array([2, 3, UNK])], [np.array([2, 2, 2])]
    found = model(TASK.collate(columns_of(text=ids, tags=ids, folded=folded), 9999).to("cpu"))[0]
    assert found.shape == (3, 8) and model.width == 8
    torch.testing.assert_close(found[0, 4:], found[1, 4:])
    torch.testing.assert_close(found[0, 4:], found[2, 4:])
    assert not torch.allclose(found[0, :4], found[1, :4])


def test_in_training_as_many_again_are_known_only_in_another_case() -> None:
    model = word(folded=True, unknown=0.25).train()
    ids = [np.full(2000, 5)]
    found = model(TASK.collate(columns_of(text=ids, tags=ids, folded=[np.full(2000, 7)]), 9999).to("cpu"))[0]
    assert model.folded is not None
    as_written = (found[:, :4] == model.vectors.weight[5]).all(1).double().mean()
    in_small = (found[:, 4:] == model.folded.weight[7]).all(1).double().mean()
    assert abs(float(as_written) - 0.5) < 0.05 and abs(float(in_small) - 0.75) < 0.05


def test_an_affix_that_was_never_seen_says_nothing() -> None:
    model = word(affixes=3, shapes=True)
    assert not model(batch_of(WORDS))[..., 4:].any()
