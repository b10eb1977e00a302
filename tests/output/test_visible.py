"""What a terminal would obey is shown; JSON reads its escapes as the same text."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.output.visible import escapes, visible, visible_json

ANY = st.text(st.characters(exclude_categories=()))
"""With control characters and halves of surrogate pairs."""


def test_no_control_character_is_left() -> None:
    for code in (*range(0x3000), *range(0xD800, 0xE000)):
        shown = visible(chr(code))
        shown.encode()
        if chr(code) not in "\n\t":
            assert not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in shown)


def test_how_it_is_shown() -> None:
    assert visible("a\x1b[31mb\x9b2J\rc\u202ed") == r"a\x1b[31mb\x9b2J\rc\u202ed"
    assert visible(b"b\xff.txt".decode("utf-8", "surrogateescape")) == r"b\xff.txt"
    assert visible("ein Ärztebrief: 你好 עברית\n\t") == "ein Ärztebrief: 你好 עברית\n\t"


@given(ANY)
def test_json_is_read_as_the_same(text: str) -> None:
    written = visible_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text] and visible(written) == written
    written.encode()


@given(ANY, st.sampled_from(["ascii", "latin-1", "utf-8", "cp1252"]))
def test_what_an_encoding_lacks_is_escaped_as_in_json(text: str, encoding: str) -> None:
    written = json.dumps(text, ensure_ascii=False).encode(encoding, "segue").decode(encoding)
    assert json.loads(written) == json.loads(json.dumps(text))


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("NO_COLOR", "1")])
def test_a_terminal_that_wants_no_escapes(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert escapes()
    monkeypatch.setenv(name, value)
    assert not escapes()
