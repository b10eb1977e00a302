"""Questions and texts in windows: every token of a text is read, answers are where they should be, cuts are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.batches.answer_windows import Tokens, collate_asked, lay_out, spans_of
from segue.batches.batch import IGNORE
from segue.batches.codec import Codec, Sizes
from segue.data.config import Config as Data
from segue.data.example import Answer, Example
from segue.tokens.tokenizer import Config, Tokenizer

BYTES = Tokenizer.train(Config(kind="byte"), ["a"])


def codec(window: int, separators: int = 1, tokenizer: Tokenizer = BYTES) -> Codec:
    sizes = Sizes(tokenizer.vocab_size, marks=("start", "mask"), separators=separators, window=window)
    return Codec(tokenizer, (), Data(), sizes)


@given(st.integers(0, 60), st.integers(1, 30), st.integers(8, 24), st.sampled_from([1, 2]), st.booleans())
def test_windows_hold_the_whole_text(length: int, question: int, window: int, separators: int, causal: bool) -> None:
    text = "".join(chr(97 + i % 26) for i in range(length))
    asked = lay_out([Example("q" * question, target=text)], codec(window, separators), causal)
    ids, read = asked.tokens[0].ids, set[int]()
    rows = asked.columns["text"].rows(), asked.columns["asked"].rows(), asked.columns["segments"].rows()
    for one, row, may, segments in zip(asked.windows, *rows, strict=True):
        assert len(row) <= window and row[-1] == 0 and row[0] == BYTES.vocab_size
        tokens = range(one.first, one.first + one.size)
        assert [row[one.place(token)] for token in tokens] == ids[one.first : one.first + one.size].tolist()
        assert [one.token(one.place(token)) for token in tokens] == list(tokens)
        none = len(row) - 1 if causal else 0
        assert np.flatnonzero(may).tolist() == sorted([*(one.place(token) for token in tokens), none])
        assert segments[: one.head].sum() == 0 and segments[one.head :].all()
        read.update(tokens)
    assert read == set(range(len(ids)))  # with the blank in front
    room = window - 2 - separators
    assert asked.cut == max(0, question + 1 - room // 2)
    for left, right in zip(asked.windows, asked.windows[1:], strict=False):
        assert left.first + left.size - right.first >= min(left.size, right.size) // 4


@given(st.data())
def test_targets_are_the_places_of_the_answer(data: Any) -> None:
    text = data.draw(st.text("ab é\n", min_size=1, max_size=50).filter(str.strip))
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin + 1, len(text)))
    if not text[begin:end].strip():
        return
    row = Example("q", target=text, answers=(Answer(begin, text[begin:end]),))
    asked = lay_out([row], codec(16), none_last=False)
    tokens = asked.tokens[0]
    first, last = tokens.places(row.answers[0])  # type: ignore[misc]
    assert text[slice(*tokens.characters(text, first, last))] == text[begin:end].strip()
    spans = spans_of([row], asked, none_last=False).flat.reshape(-1, 2).tolist()
    for window, (one, two) in zip(asked.windows, spans, strict=True):
        whole = window.first <= first and last < window.first + window.size
        assert (one, two) == ((window.place(first), window.place(last)) if whole else (0, 0))


def test_no_answer_is_the_start_mark_or_the_last_stop() -> None:
    rows = [Example("who", target="a dog"), Example("who", target="a dog", answers=(Answer(2, "dog"),))]
    for causal, none in ((False, 0), (True, 12)):
        asked = lay_out(rows, codec(24), causal)
        spans = spans_of(rows, asked, causal).flat.tolist()
        assert spans == [none, none, 9, 11] and asked.columns["text"].rows()[0][none] in (0, BYTES.vocab_size)


def test_an_answer_that_no_token_has_teaches_nothing() -> None:
    """Wordpieces leave out control characters."""
    pieces = Tokenizer.train(Config(kind="wordpiece", vocab_size=100), ["a dog and a cat"] * 9)
    row = Example("who", target="a \x01 dog", answers=(Answer(2, "\x01"),))
    asked = lay_out([row], codec(24, tokenizer=pieces), False)
    assert spans_of([row], asked, False).flat.tolist() == [IGNORE, IGNORE]


def test_a_batch_is_padded_but_for_its_targets() -> None:
    rows = [Example("who", target="a dog", answers=(Answer(2, "dog"),)), Example("who", target="a dog naps")]
    asked = lay_out(rows, codec(24), False)
    columns = asked.columns | {"span": spans_of(rows, asked, False)}
    batch = collate_asked(columns)
    wide = batch.padded(40)
    assert wide.targets.tolist() == batch.targets.tolist() == [[9, 11], [0, 0]] and batch.count == 4
    for name in ("tokens_BT", "mask_BT", "segments_BT", "answers_BT"):
        assert getattr(wide, name).shape == (2, 40)
        assert not getattr(wide, name)[:, batch.tokens_BT.shape[1] :].any()


@pytest.mark.parametrize("answer", [Answer(0, " The"), Answer(1, "The "), Answer(1, "The")])
def test_blanks_around_an_answer_do_not_matter(answer: Answer) -> None:
    text = " The dog"
    tokens = Tokens(*BYTES.offsets(text))
    assert tokens.characters(text, *tokens.places(answer)) == (1, 4)  # type: ignore[misc]
