"""SentencePiece (Kudo and Richardson 2018), for Marian's models: its own files, unchanged, and the ids of vocab.json.

SentencePiece normalises a text (NFKC, one blank between words), writes a blank as ▁ before each word, and cuts the rest
by its own model, here a unigram model (Kudo 2018). The pieces get their ids from a vocabulary beside it; a piece that
is not there is UNK. So two models, one for sources and one for targets, can share one vocabulary, as in OPUS-MT.

tokenizer.json holds the bytes of the files in base64: `spm`, and `source_spm` where sources are cut by another model.
Or it holds `unigram`, the same kind of model in the format of the `tokenizers` library, as T5's tokenizer.json has it;
then the library sentencepiece is not needed.

As MarianTokenizer does: a source ends with STOP, and `>>fra<<` at the beginning of a text, which names the language to
translate into, is one token. Unlike it: a text that spells </s> or <pad> is text.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from segue.errors import InputError
from segue.tokens import file_format
from segue.tokens.file_format import STOP, UNK
from segue.tokens.learn import library
from segue.tokens.tokenizer import REPLACEMENT, Ids, Lengths, Tokenizer

BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
"""What SentencePiece writes for a blank."""
_LONGEST = 1 << 24
"""Bytes of a text that is learnt from; the library's own limit is 4192."""
_AHEAD = 32
"""Characters that a piece is looked for beyond the one before it: blanks, and what the normaliser leaves out."""
_THREADS = 16
"""A fixed number: the library's sums, and so the pieces, depend on it."""


def _library() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise InputError(
            "SentencePiece tokens need the package sentencepiece. Install it in Segue's own folder: "
            "pip install '.[marian]'"
        ) from None
    return sentencepiece


def learn(texts: Iterable[str], vocab_size: int) -> dict[str, Any]:
    """Learn pieces by the library, as the content of tokenizer.json."""
    written = io.BytesIO()
    try:
        _library().SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=written,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            model_type="unigram",
            character_coverage=1.0,
            max_sentence_length=_LONGEST,
            num_threads=_THREADS,
            eos_id=STOP,
            unk_id=UNK,
            bos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        if found := re.search(r"(\d+) vs (\d+)", str(error)):
            raise InputError(
                f"tokens.vocab_size is {vocab_size}, and the characters of the training text alone need {found[2]}. "
                "Set it higher."
            ) from None
        raise InputError("The training text is blank, so no tokens can be learnt from it. Give a text.") from None
    spm = written.getvalue()
    model = processor(spm)
    pieces = [model.id_to_piece(i) for i in range(UNK + 1, model.get_piece_size())]
    return content(pieces, spm)


def content(pieces: list[str], spm: bytes, source_spm: bytes | None = None) -> dict[str, Any]:
    """Make the content of tokenizer.json; `pieces` are in the order of their ids, from 2 on."""
    models = {"spm": base64.b64encode(spm).decode()}
    if source_spm not in (None, spm):
        models["source_spm"] = base64.b64encode(source_spm).decode()  # type: ignore[arg-type]
    file = file_format.write("sentencepiece", pieces)
    return file | {"model": file["model"] | models}


def content_of_unigram(pieces: list[str], unigram: dict[str, Any]) -> dict[str, Any]:
    """Make the content of tokenizer.json; `unigram` has the keys of the `tokenizers` library's own file that say how a
    text is cut."""
    file = file_format.write("sentencepiece", pieces)
    return file | {"model": file["model"] | {"unigram": unigram}}


class UnigramCuts:
    """Cuts texts by a unigram model of the `tokenizers` library, with the two methods of SentencePiece's processor that
    are used here."""

    def __init__(self, unigram: Any) -> None:
        frame: dict[str, Any] = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "post_processor": None,
        }
        try:
            self._library = library(frame | unigram)
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"its unigram model cannot be read ({error})") from None

    def encode(self, texts: Sequence[bytes], out_type: type) -> list[list[str]]:
        """The pieces of each text."""
        return [one.tokens for one in self._library.encode_batch([text.decode() for text in texts])]

    def decode_pieces(self, pieces: Sequence[str]) -> str:
        """The text of some pieces, ▁ for each blank."""
        return "".join(pieces)


def processor(spm: bytes) -> Any:
    """Make the library's tokenizer of a file's bytes; ValueError if it refuses them."""
    try:
        return _library().SentencePieceProcessor(model_proto=spm or b"\0")
    except RuntimeError:
        raise ValueError("its SentencePiece model is damaged") from None


class SentencePieces(Tokenizer):
    """sentencepiece: all by the library."""

    lossless = False
    _end: ClassVar[list[int]] = []
    """What comes after the ids of every text."""

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        self._id_of = {name: i for i, name in enumerate(self._names) if i > UNK}
        self._model = UnigramCuts(self.unigram) if self.unigram else processor(self.spm)

    @property
    def unigram(self) -> dict[str, Any]:
        """The unigram model in the library's format; {}: there is a SentencePiece file instead."""
        found: dict[str, Any] = self._file["model"].get("unigram") or {}
        return found

    @property
    def names(self) -> list[str]:
        """The piece of each id."""
        return self._names

    @property
    def spm(self) -> bytes:
        """The bytes of the model that cuts targets."""
        return self._bytes_of("spm")

    @property
    def source_spm(self) -> bytes:
        """The bytes of the model that cuts sources."""
        return self._bytes_of("source_spm" if "source_spm" in self._file["model"] else "spm")

    def _bytes_of(self, key: str) -> bytes:
        try:
            return base64.b64decode(self._file["model"][key], validate=True)
        except (KeyError, TypeError, binascii.Error):
            raise ValueError(f"its {key} is no SentencePiece model in base64") from None

    @cached_property
    def source_side(self) -> Tokenizer:
        return _Sources(self._file)

    def _pieces(self, texts: Sequence[str]) -> list[list[str]]:
        marian = not self.unigram
        codes = [text[: text.find("<<") + 2] if marian and text[:2] == ">>" and "<<" in text else "" for text in texts]
        rest = [text[len(code) :].encode() for code, text in zip(codes, texts, strict=True)]
        cut = self._model.encode(rest, out_type=str)
        return [[code, *pieces] if code else pieces for code, pieces in zip(codes, cut, strict=True)]

    def _ids(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        rows = [[self._id_of.get(piece, UNK) for piece in pieces] + self._end for pieces in self._pieces(texts)]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths

    def decode(self, ids: Iterable[int]) -> str:
        names = [REPLACEMENT if i == UNK else self._names[i] for i in ids if i != STOP]
        decoded: str = self._model.decode_pieces(names)
        return decoded.replace(BLANK, " ").strip()

    def name(self, token: int) -> str:
        return {STOP: "", UNK: REPLACEMENT}.get(token, self._names[token].replace(BLANK, " "))

    def _surfaces(self, text: str) -> list[str]:
        return [piece.replace(BLANK, " ") for piece in self._pieces([text])[0]]

    def _offsets(self, text: str) -> tuple[Ids, Lengths, Lengths]:
        """Find each piece in the text, whose characters are normalised one by one; a piece that is not found, as one
        made of several characters together, stands where the one before it ends."""
        forms = [unicodedata.normalize("NFKC", letter) for letter in text]
        written, origin = "".join(forms), [place for place, form in enumerate(forms) for _ in form]
        origin.append(len(text))
        places, at = list[tuple[int, int]](), 0
        for piece in self._surfaces(text):
            found = written.find(word, at, at + len(word) + _AHEAD) if (word := piece.strip()) else -1
            begin, at = (found, found + len(word)) if found >= 0 else (at, at)
            places.append((origin[begin], origin[at - 1] + 1 if at > begin else origin[begin]))
        begins, ends = np.array(places, np.int64).reshape(-1, 2).T
        return self.encode(text), begins, ends


class _Sources(SentencePieces):
    """Cuts sources: by their own model, and with STOP at the end, which Marian's encoders read."""

    _end: ClassVar[list[int]] = [STOP]

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        self._model = UnigramCuts(self.unigram) if self.unigram else processor(self.source_spm)

    @cached_property
    def source_side(self) -> Tokenizer:
        return self

    def _surfaces(self, text: str) -> list[str]:
        return [*super()._surfaces(text), ""]
