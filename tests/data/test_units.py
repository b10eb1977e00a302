from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.data import units as module
from segue.data.config import Config
from segue.data.example import Example
from segue.data.ledger import Ledger
from segue.data.units import tidy, tidy_lines, units
from segue.errors import InputError

texts = st.text(alphabet="ab \n\t\u00a0\x1c€", max_size=60)


def cut(text: str, ledger: Ledger | None = None, **settings: object) -> list[Example]:
    return list(units(iter([text]), "f", Config(**settings), ledger or Ledger()))  # type: ignore[arg-type]


@pytest.fixture
def small_pieces() -> Iterator[None]:
    before = module.PIECE
    module.PIECE = 5
    yield
    module.PIECE = before


@pytest.mark.usefixtures("small_pieces")
@given(texts)
def test_pieces_of_a_document_join_to_it_and_end_before_blanks(text: str) -> None:
    pieces = cut(text)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True] * bool(pieces)
    for left, right in pairwise(pieces):
        assert not left.text[-1].isspace()
        assert right.text[0] in " \n\t"
        assert right.line == left.line + left.text.count("\n")


@pytest.mark.usefixtures("small_pieces")
@given(texts)
def test_canonical_pieces_join_to_canonical_text(text: str) -> None:
    assert "".join(piece.text for piece in cut(text, canonical=True)) == " ".join(text.split())


@given(texts)
def test_lines_are_cut_at_line_ends_only(text: str) -> None:
    expected = text.split("\n") if not text.endswith("\n") else text.split("\n")[:-1]
    expected = expected if text else []
    kept = cut(text, unit="line", blank_lines="keep")
    assert [example.text for example in kept] == expected
    assert [example.line for example in kept] == list(range(1, len(expected) + 1))
    ledger = Ledger()
    skipped = cut(text, ledger, unit="line")
    assert [example.text for example in skipped] == [line for line in expected if line.strip()]
    assert ledger.blank_lines == len(expected) - len(skipped)


@given(texts)
def test_paragraphs_are_the_blocks_between_blank_lines(text: str) -> None:
    expected: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            expected[-1].append(line)
        elif expected[-1]:
            expected.append([])
    assert [e.text for e in cut(text, unit="paragraph")] == ["\n".join(block) for block in expected if block]


def test_a_paragraph_knows_its_line() -> None:
    assert [(e.text, e.line) for e in cut("\n\na\nb\n \nc\n", unit="paragraph")] == [("a\nb", 3), ("c", 6)]


@pytest.mark.usefixtures("small_pieces")
def test_a_long_paragraph_comes_in_pieces() -> None:
    pieces = cut("aa bb\ncc dd\n\nee", unit="paragraph")
    first = [("aa", False), (" bb", False), ("\ncc", False), (" dd", True)]
    assert [(e.text, e.ends) for e in pieces] == [*first, ("ee", True)]


def test_the_real_size_of_a_piece_is_about_a_megabyte() -> None:
    pieces = cut("word " * 1_000_000)
    assert 4 <= len(pieces) <= 6
    assert max(len(piece.text) for piece in pieces) <= 2 << 20


def test_text_without_any_end_of_a_word_is_refused() -> None:
    with pytest.raises(InputError, match="without the end of a word"):
        cut("\n" * 12_000_000)


@given(st.text(alphabet="ab \t\n\u00a0\u2003é\x1c", max_size=60))
def test_tidy_lines_are_the_lines_made_tidy(text: str) -> None:
    assert tidy_lines(text) == [tidy(line) for line in text.split("\n")]
