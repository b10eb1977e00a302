"""Text as it grows: whole characters, no stop text, and in the end what the whole decodes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.inference.stop_texts import StreamedText, cut, follows, watcher
from segue.tokens.tokenizer import Config, Tokenizer

TEXTS = ["the cows eat grass", "für die Kühe", "the old king naps well"] * 3
KINDS = ["char", "byte", "space", "word", "bpe", "unigram", "wordpiece"]
TOKENIZERS = {
    kind: Tokenizer.train(
        Config(kind=kind, vocab_size=280 if kind in ("bpe", "unigram", "wordpiece") else 0, min_count=1), TEXTS
    )
    for kind in KINDS
}


def ended_by_hand(text: str, stops: list[str]) -> str:
    """The text up to the stop text that is complete first, letter by letter; of several at once the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


STOPS = st.lists(st.text("ab.", min_size=1, max_size=4), max_size=3)


@given(st.text("ab.", max_size=12), STOPS)
def test_cut_is_at_the_stop_that_is_complete_first(text: str, stops: list[str]) -> None:
    assert cut(text, stops) == ended_by_hand(text, stops)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_pieces_add_up_to_what_follows(kind: str, data: st.DataObject) -> None:
    """Of any ids after any prompt, broken characters among them, with any stops."""
    tokenizer = TOKENIZERS[kind]
    start = tokenizer.encode(data.draw(st.sampled_from(["", "the", "für "]))).tolist()
    ids = data.draw(st.lists(st.integers(2, tokenizer.vocab_size - 1), max_size=12))
    whole = follows(tokenizer, start, ids)
    parts = [whole[i : i + n] for n in (1, 2, 3) for i in range(len(whole) - n + 1)] or ["a"]
    stops = data.draw(st.lists(st.sampled_from(parts), max_size=2))
    written, shown = StreamedText(tokenizer, start, stops), ""
    expected = ended_by_hand(whole, stops)
    for token in ids:
        shown += written.add(token)
        assert expected.startswith(shown), "nothing is shown that is not certain"
    assert shown + written.rest() == expected == follows(tokenizer, start, ids, stops)


@given(st.lists(st.sampled_from([*b"a \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff"]), max_size=12))
def test_a_character_is_never_shown_before_it_is_whole(raw: list[int]) -> None:
    written, shown = StreamedText(TOKENIZERS["byte"], []), ""
    for count, byte in enumerate(raw, 1):
        shown += written.add(byte + 2)
        assert bytes(raw[:count]).decode(errors="replace").startswith(shown)
    assert shown + written.rest() == bytes(raw).decode(errors="replace")


def test_what_may_begin_a_stop_waits_and_no_more() -> None:
    tokenizer = TOKENIZERS["char"]
    written = StreamedText(tokenizer, [], ["the end"])
    pieces = [written.add(int(token)) for token in tokenizer.encode("as the enthe e")]
    assert pieces == ["a", "s", " ", "", "", "", "", "", "", "the en", "", "", "", ""]
    assert written.rest() == "the e" and not written.ended


def test_the_watcher_ends_each_row_by_itself() -> None:
    tokenizer = TOKENIZERS["char"]
    watch = watcher(tokenizer, [[], []], ["es"])
    assert watch is not None and watcher(tokenizer, [[]], []) is None
    e, s = tokenizer.encode("es").tolist()
    assert [watch(0, e), watch(1, s), watch(1, e), watch(0, s), watch(1, s)] == [False, False, False, True, True]
