"""SentencePiece: the library's own pieces, the ids of a vocabulary beside it, and sources that end with STOP."""

from __future__ import annotations

import io
import json
import pydoc_data.topics
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from segue.errors import InputError
from segue.tokens.sentencepiece import SentencePieces, content, learn
from segue.tokens.tokenizer import REPLACEMENT, Config, Tokenizer

TEXTS = pydoc_data.topics.topics["assignment"].splitlines() + ["Ärger über 42 naïve cafés …"] * 2
LEARNT = Tokenizer.train(Config("sentencepiece", 300), TEXTS)


def spm(texts: list[str], size: int) -> bytes:
    """A model as others make it, with the library's own ids."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=written, vocab_size=size, hard_vocab_limit=False, minloglevel=2
    )
    return written.getvalue()


def pieces_of(model: bytes) -> list[str]:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [library.id_to_piece(i) for i in range(3, library.get_piece_size())]


@cache
def library() -> Any:
    assert isinstance(LEARNT, SentencePieces)
    return sentencepiece.SentencePieceProcessor(model_proto=LEARNT.spm)


@given(st.text(max_size=20))
def test_ids_are_the_librarys_own(text: str) -> None:
    if not text.startswith(">>"):
        assert LEARNT.encode(text).tolist() == library().encode(text)


def test_text_comes_back_with_single_blanks_and_plain_letters() -> None:
    ids = LEARNT.encode("  value   of a … name ")
    assert LEARNT.decode(ids) == "value of a ... name"
    assert "".join(map(LEARNT.name, ids.tolist())).strip() == "value of a ... name"
    assert LEARNT.pieces("value")[1][0].startswith(" ")


def test_a_source_ends_with_stop_and_a_target_does_not() -> None:
    side = LEARNT.source_side
    assert side.encode("a name").tolist() == [*LEARNT.encode("a name").tolist(), LEARNT.stop]
    assert side.source_side is side
    assert len(side.pieces("a name")[1]) == len(side.encode("a name"))
    assert side.encode("").tolist() == [LEARNT.stop]


def test_two_models_share_one_vocabulary(tmp_path: Path) -> None:
    here, there = spm(TEXTS[:20], 100), spm([text.upper() for text in TEXTS[:20]], 100)
    pieces = list(dict.fromkeys([*pieces_of(there), *pieces_of(here)]))
    SentencePieces(content(pieces, there, here)).save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    for text in ("The value", "THE VALUE", "東"):
        for side, model in ((loaded, there), (loaded.source_side, here)):
            cut = sentencepiece.SentencePieceProcessor(model_proto=model).encode(text, out_type=str)
            expected = [pieces.index(piece) + 2 if piece in pieces else loaded.unk for piece in cut]
            assert side.encode(text).tolist()[: len(cut)] == expected
    assert loaded.decode(loaded.source_side.encode("The value")) == "The value"


def test_a_language_at_the_beginning_is_one_token() -> None:
    model = spm(TEXTS[:20], 100)
    tokenizer = SentencePieces(content([*pieces_of(model), ">>fra<<"], model))
    plain = tokenizer.encode(" value").tolist()
    assert tokenizer.encode(">>fra<< value").tolist() == [tokenizer.vocab_size - 1, *plain]
    assert tokenizer.encode(">>xxx<< value").tolist() == [tokenizer.unk, *plain]
    assert tokenizer.unk not in tokenizer.encode("value >>").tolist()[:1]


def test_the_spelling_of_a_special_token_is_text() -> None:
    tokenizer = Tokenizer.train(Config("sentencepiece", 100), ["a </ s> b <un k> c <p ad> d < stop > e"] * 3)
    for spelling in ("</s>", "<unk>", "<pad>", "< stop >"):
        ids = tokenizer.encode(spelling)
        assert (ids > tokenizer.unk).all()
        assert tokenizer.decode(ids) == spelling
    assert tokenizer.decode([*tokenizer.encode("a"), tokenizer.unk]) == "a" + REPLACEMENT


def test_too_small_a_vocabulary_is_refused_with_the_number_it_needs() -> None:
    with pytest.raises(InputError, match=r"vocab_size is 10, and the characters .* alone need \d+"):
        Tokenizer.train(Config("sentencepiece", 10), TEXTS)
    with pytest.raises(InputError, match="blank"):
        learn([" ", "\t"], 100)


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for damaged in (b"", b"nothing", LEARNT.spm[:5]):  # type: ignore[attr-defined]
        file = content(["a"], damaged)
        path.write_text(json.dumps(file))
        with pytest.raises(InputError, match="SentencePiece model is damaged"):
            Tokenizer.load(path)
    path.write_text(json.dumps(file | {"model": file["model"] | {"spm": "no base64!"}}))
    with pytest.raises(InputError, match="base64"):
        Tokenizer.load(path)


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(InputError, match=r"pip install '\.\[marian\]'"):
        Tokenizer.train(Config("sentencepiece", 300), TEXTS)
