"""The tokens of a word2vec run: words without their punctuation, each once, named as in a file of vectors."""

from __future__ import annotations

from pathlib import Path

import segue
from segue.word_vectors.files import word_names


def test_a_word_is_named_without_its_blank_and_a_glued_one_by_its_sign() -> None:
    assert word_names([" king", "king", ",", " (", " ", "\n"]) == ["king", "##king", ",", "(", " ", "\n"]


def test_words_have_no_punctuation_and_are_the_same_at_the_head_of_a_line(tmp_path: Path) -> None:
    lines = ["method, called, method.", "method (method) called; method", "called, by method"] * 20
    settings = {"model.width": 4, "data.validation": 0, "train.threads": 1, "train.epochs": 1}
    run = segue.train("word2vec", lines, tmp_path / "run", settings)
    names = run.words.names
    assert sorted(name for name in names if name.isalpha()) == ["by", "called", "method"] and "##method" in names
    assert not any(len(name) > 1 and name[0].isalpha() and not name.isalpha() for name in names)
