"""Raw sentences are cut into the words of a treebank; sentences that are cut already stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.tokens.split import looks_tokenised, sentence_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("EU rejects German call.", "EU rejects German call ."),
        ("EU rejects German call to boycott British lamb .", "EU rejects German call to boycott British lamb ."),
        ("Mr. Smith of the U.N. left.", "Mr. Smith of the U.N. left ."),
        ("He works for the U.N.", "He works for the U.N."),
        ('"I don\'t know," she said (twice).', '" I do n\'t know , " she said ( twice ) .'),
        ("Ann's dog's toys cost $5.50, 10% less...", "Ann 's dog 's toys cost $ 5.50 , 10 % less ..."),
        ("At 8:30 on 1,000 pages", "At 8:30 on 1,000 pages"),
        ("It is n't Ann 's :-) --", "It is n't Ann 's :-) --"),
        ("He paid Apple Inc. for it .", "He paid Apple Inc. for it ."),
        ("He said, `` no (twice). ''", "He said, `` no (twice). ''"),
        ("", ""),
    ],
)
def test_sentences_by_hand(text: str, words: str) -> None:
    assert sentence_words(text) == words.split()


@given(st.text(alphabet="ab.,'\"()$%: é", max_size=40))
def test_no_character_is_lost(text: str) -> None:
    assert "".join(sentence_words(text)) == "".join(text.split()) and all(sentence_words(text))


@given(st.lists(st.sampled_from(["EU", "U.N.", "'s", "n't", ",", "1,000", "(", "--"]), max_size=8))
def test_words_with_a_mark_among_them_are_not_cut_again(words: list[str]) -> None:
    assert sentence_words(" ".join([*words, "."])) == [*words, "."]


@pytest.mark.parametrize(
    ("text", "tokenised"),
    [
        ("no it was n't black monday\n but while the <unk> N points <unk> stock\n" * 3, True),
        ("the well @-@ known game , in 1 @,@ 000 copies\n" * 3, True),
        ("He left , she stayed .\n" * 20, True),
        ("He left, she stayed.\n" * 20, False),
        ("He left, she stayed. <unk>\n", False),  # once is no habit
        ("He left . " * 3, False),
        ("def f(x): return (x.y, z)\n" * 20, False),
        ("", False),
    ],
)
def test_which_text_looks_tokenised(text: str, tokenised: bool) -> None:
    assert looks_tokenised(text) == tokenised
