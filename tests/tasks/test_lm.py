"""Language models: the figures of a scored text."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import segue
from segue.inference.evaluation import compare
from segue.inference.score import BLOCK, Scored
from segue.recipe import load_recipe
from segue.tasks.lm import of_scored


def scored(bits: list[float], zeros: int = 0) -> Scored:
    return Scored(np.array(bits), np.array([2048.0] * (len(bits) - 1) + [1000.0]), 50.0, 25, 12.0, 3, zeros, "a way")


def test_text() -> None:
    bits = [4096.0 + i for i in range(30)]
    evaluation = of_scored(scored(bits))
    result, size = evaluation.result, 29 * 2048 + 1000
    assert result["bits_per_byte"] == pytest.approx(sum(bits) / size)
    low, high = result["bits_per_byte_ci"]
    assert low < result["bits_per_byte"] < high
    assert result["perplexity"] == pytest.approx(math.exp(2.0))
    assert (result["tokens"], result["bytes"], result["unknown_tokens"], result["way"]) == (25, size, 3, "a way")
    assert result["spelling_bits_per_byte"] == pytest.approx(12 / size)
    assert result["task"] == "lm" and result["figure"] == "bits_per_byte" and evaluation.pieces_NK.shape == (30, 2)


def test_tokens_that_lose_text_get_no_bits_per_byte() -> None:
    result = of_scored(scored([1.0, 2.0]), lossless=False).result
    assert "bits_per_byte" not in result and "bits_per_byte_ci" not in result and "perplexity" in result


def test_infinite_bits_stay_infinite() -> None:
    result = of_scored(scored([math.inf, 4096.0, 4096.0], zeros=2)).result
    assert result["bits_per_byte"] == math.inf and result["zero_probability_tokens"] == 2
    assert result["bits_per_byte_ci"][1] == math.inf


def test_compare_is_a_less_b() -> None:
    worse, better = of_scored(scored([5000.0] * 30)), of_scored(scored([4000.0 + i for i in range(30)]))
    gap = compare([worse], [better])
    assert gap.difference == pytest.approx(worse.result["bits_per_byte"] - better.result["bits_per_byte"])
    assert gap.lo > 0 and gap.p < 0.01
    back = compare([better], [worse])
    assert back.difference == pytest.approx(-gap.difference) and back.hi < 0


def test_other_text_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="same text"):
        compare([of_scored(scored([1.0, 2.0]))], [of_scored(scored([1.0, 2.0, 3.0]))])


def test_documents_are_the_pieces_if_there_are_enough() -> None:
    bits = [4096.0 + i for i in range(60)]
    blocks, few = of_scored(scored(bits)), of_scored(scored(bits), documents=np.arange(0, 60, 6))
    whole = of_scored(scored(bits), documents=np.arange(0, 60, 3))
    assert blocks.ordered and few.ordered and len(few.pieces_NK) == 60
    assert not whole.ordered and len(whole.pieces_NK) == 20
    assert whole.pieces_NK[0].tolist() == [3 * 4096 + 3, 3 * 2048]
    assert whole.value == pytest.approx(blocks.value)


def test_files_are_documents_of_the_same_blocks_whatever_the_tokens(tmp_path: Path) -> None:
    """Each of 30 test files is three blocks long; two short ones begin in a block of another."""
    for split, count in (("train", 8), ("test", 30)):
        (tmp_path / split).mkdir()
        for i in range(count):
            (tmp_path / split / f"{i:02}.txt").write_text(f"the café of file {i} " * (BLOCK * 3 // 20) + "\n")
    for name in ("00a.txt", "00b.txt"):
        (tmp_path / "test" / name).write_text("short\n")
    settings = {"data.test": str(tmp_path / "test"), "data.validation": 0.1}
    for kind in ("char", "word"):
        run = segue.train("ngram", str(tmp_path / "train"), tmp_path / kind, settings | {"tokens.kind": kind})
        assert run.evaluation is not None and not run.evaluation.ordered
        assert 29 <= len(run.evaluation.pieces_NK) <= 31
        sizes = run.evaluation.pieces_NK[:, 1]
        assert sizes.sum() == run.evaluation.result["bytes"] and (sizes % BLOCK == 0)[:-1].all()
        (tmp_path / f"{kind}.sizes").write_text(str(sizes.tolist()))
    assert (tmp_path / "char.sizes").read_text() == (tmp_path / "word.sizes").read_text()


PTB = "no it was n't <unk> monday\nthe <unk> of N points fell N points\n" * 20
AS_PUBLISHED = "data.unit=line data.canonical=true tokens.kind=space"


@pytest.mark.parametrize(
    ("text", "recipe", "told"),
    [
        (PTB, "ngram/bigram", True),
        (PTB, "ngram/ptb", False),
        (PTB, "ngram/kn7", False),  # characters are never cut
        (PTB.replace("<unk>", "black"), "ngram/bigram", False),
    ],
)
def test_text_that_is_tokenised_already_is_told(text: str, recipe: str, told: bool, tmp_path: Path) -> None:
    """At the beginning, and in the ledger."""
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    said: list[str] = []
    run = segue.train(
        recipe, tmp_path / "text.txt", tmp_path / "run", progress=lambda what, share, note="": said.append(what)
    )
    notes = [*run.ledger_summary(), *(one for one in said if one.endswith("."))]
    assert [AS_PUBLISHED in note for note in notes if "tokenised already" in note] == [True, True][: 2 * told]


@pytest.mark.parametrize("name", ["ptb", "wikitext2"])
def test_recipes_of_tokenised_text_read_it_as_published(name: str) -> None:
    """Words between blanks, an end after each line, no line's history before it; and AS_PUBLISHED is just that."""
    recipe = load_recipe(f"ngram/{name}")
    assert (recipe.data.unit, recipe.data.canonical, recipe.tokens.kind) == ("line", True, "space")
    assert (recipe.data.carry, recipe.model.order, recipe.model.smoothing) == (False, 5, "modified_kneser_ney")
    set_by_hand = load_recipe("ngram/fivegram", AS_PUBLISHED.split())
    assert (set_by_hand.data, set_by_hand.tokens) == (load_recipe("ngram/ptb").data, load_recipe("ngram/ptb").tokens)
