"""Strings to ids and back: eight kinds of tokens, one class for each way to cut a text.

    char       one character                                closed
    byte       one UTF-8 byte: id = byte + 2                open
    space      what stands between blanks                   closed
    word       a word with the blank before it, as GPT-2;   closed
               the first word of a line gets one (split.py)
    bpe        subwords of bytes, byte-pair encoding        open
    unigram    subwords of bytes, unigram model             open
    wordpiece  subwords as in BERT; loses the blanks        closed
    sentencepiece  as in Marian; changes blanks and some    closed
               characters (tokens/sentencepiece.py)

Id 0 is STOP, id 1 is UNK, text begins at 2. A closed kind gives UNK to what it has not learnt; an open kind can write
any text. Every kind but wordpiece and sentencepiece loses nothing: the surfaces of the tokens, joined, are the text
(`space`: of text with one blank between words and none at the end; a blank belongs to the word after it).
"""

from __future__ import annotations

import codecs
import json
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import decoders

from segue.errors import InputError, nearest
from segue.tokens import file_format, learn
from segue.tokens.file_format import STOP, UNK, Kind
from segue.tokens.split import (
    Splitter,
    add_line_blanks,
    blank_words,
    drop_line_blanks,
    head,
    parts,
    without_line_blanks,
)

Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_VOCAB_SIZES: dict[Kind, int] = {
    **{"word": 50_000, "bpe": 8_000, "unigram": 8_000, "wordpiece": 8_000, "sentencepiece": 8_000},
}
_SMALLEST: dict[Kind, int] = {"bpe": 258, "unigram": 258, "wordpiece": 100, "sentencepiece": 10}
_MOST = 1 << 20
"""Largest vocabulary of subwords."""
_MIN_COUNTS: dict[Kind, int] = {"word": 2, "bpe": 2, "wordpiece": 2}
_CACHE = 500_000
MANY = 256
"""From this many texts on, a compiled loop is the faster way to look up words."""


@dataclass(frozen=True)
class Config:
    """The recipe's [tokens]: the kind of tokens, and how their vocabulary is learnt."""

    kind: Literal["auto", "char", "byte", "space", "word", "bpe", "wordpiece", "unigram", "sentencepiece"] = "auto"
    """The kind of tokens; auto: char for language models, word for classify, space for tag, bpe for seq2seq."""
    vocab_size: int = 0
    """Largest vocabulary, with STOP and UNK (0: 8,000 for subwords, 50,000 for word, no limit for char and space)."""
    min_count: int = 0
    """Leave rarer tokens out of the vocabulary (0: 2 for word, bpe and wordpiece, 1 for char and space)."""
    lowercase: bool = False
    """Read text in small letters and without accents, as bert-base-uncased does; wordpiece only."""
    sample: int = 100_000_000
    """Learn the vocabulary from at most this many bytes of the training text, from its beginning."""
    sides: Literal["both", "each"] = "both"
    """Of pairs: learn one vocabulary from both sides, source and target, or one for each of them."""
    dropout: float = 0.0
    """BPE-dropout: in training, skip each merge with this probability, anew in every epoch, as 0.1; bpe pairs only."""

    def __post_init__(self) -> None:
        kinds = ("auto", *file_format.KINDS)
        if self.kind not in kinds:
            raise ValueError(f"tokens.kind is '{self.kind}', which is no kind of tokens.{nearest(self.kind, kinds)}")
        for name in ("vocab_size", "min_count"):
            if getattr(self, name) < 0:
                raise ValueError(f"tokens.{name} is {getattr(self, name)}; it must be 0 (the default) or more.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"tokens.dropout is {self.dropout}; it must be at least 0 and less than 1.")
        if self.dropout and self.kind not in ("auto", "bpe"):
            raise ValueError(f"tokens.dropout skips merges of bpe, and tokens.kind is {self.kind}. Leave it out.")
        if self.lowercase and self.kind not in ("auto", "wordpiece"):
            raise ValueError(f"tokens.lowercase is for wordpiece tokens, and tokens.kind is {self.kind}. Leave it out.")
        if self.sample < 1:
            raise ValueError(f"tokens.sample is {self.sample}; it must be 1 byte or more.")
        if self.kind == "byte" and self.vocab_size not in (0, 258):
            raise ValueError(f"tokens.vocab_size is {self.vocab_size}, but bytes always make 258; leave it out.")
        if self.kind in _SMALLEST and self.vocab_size > _MOST:  # the library reserves memory for all of them
            raise ValueError(f"tokens.vocab_size is {self.vocab_size}; {self.kind} tokens are {_MOST:,} at the most.")
        smallest = 3 if self.kind == "auto" else _SMALLEST.get(self.kind, 3)
        if 0 < self.vocab_size < smallest:
            raise ValueError(f"tokens.vocab_size is {self.vocab_size}; {self.kind} tokens need {smallest} or more.")


def with_blank(text: str, kind: str) -> str:
    """Put a blank before a text that is a row, so that its first word is a token like any other. Word tokens have it
    before every line already; an empty text becomes a token."""
    return text if kind == "word" and text else " " + text


class Joins(NamedTuple):
    """Which ids are pieces of words: one that goes on a word, behind one that a word can go on after, is a piece of the
    same word."""

    goes_on_V: NDArray[np.bool_]
    """Whether it goes on the word before it."""
    goes_after_V: NDArray[np.bool_]
    """Whether a word goes on after it."""

    def goes_on(self, ids_BT: NDArray[Any], words_BT: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return where a token is a further piece of the word before it; `words_BT`: where ids are text."""
        ids_BT = np.where(words_BT, ids_BT, STOP)  # marks have no row in the tables
        inside_BT = np.zeros(ids_BT.shape, bool)
        inside_BT[:, 1:] = self.goes_on_V[ids_BT[:, 1:]] & self.goes_after_V[ids_BT[:, :-1]]
        return inside_BT


class Tokenizer(ABC):
    """The base class of all kinds. `Tokenizer.train` and `Tokenizer.load` return the class of the kind."""

    stop = STOP
    unk = UNK
    lossless: ClassVar[bool] = True
    closed: ClassVar[bool] = True
    kind: Kind

    def __init__(self, file: dict[str, Any]) -> None:
        """`file`: the content of tokenizer.json; ValueError if it is not one of ours."""
        self._file = file
        self.kind, self._names, self._split_pattern = file_format.read(file)

    @classmethod
    def train(cls, config: Config, texts: Iterable[str]) -> Tokenizer:
        """Learn the vocabulary from the texts of the training split, read once."""
        if config.kind == "auto":
            raise ValueError("tokens.kind is 'auto': choose a kind before training.")
        size = config.vocab_size or _VOCAB_SIZES.get(config.kind, 0)
        least = config.min_count or _MIN_COUNTS.get(config.kind, 1)
        return _of(learn.vocabulary(config.kind, head(texts, config.sample), size, least, config.lowercase))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a tokenizer.json that `save` wrote."""
        try:
            return _of(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise InputError(f"{path}: the tokenizer cannot be read ({error.strerror}).") from None
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{path}: this is not a whole tokenizer.json of Segue: {error}. "
                "Take the file from the run that made it, or train again."
            ) from None

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json, which the `tokenizers` library also reads, with the same ids."""
        Path(path).write_text(json.dumps(self._file, ensure_ascii=False) + "\n", encoding="utf-8")

    @property
    def content(self) -> dict[str, Any]:
        """Return the content of tokenizer.json; two tokenizers with the same content are the same."""
        return self._file

    @property
    def vocab_size(self) -> int:
        """Number of ids, with STOP and UNK."""
        return len(self._names)

    def row(self, text: str) -> str:
        """Return a text that is a row as it is cut: with a blank in front (`with_blank`), unless the tokenizer is an
        imported one that puts none there."""
        return with_blank(text, self.kind) if file_format.row_blank(self._file) else text

    @property
    def source_side(self) -> Tokenizer:
        """The tokenizer of the sources that share this vocabulary; only SentencePiece has another for them."""
        return self

    def encode(self, text: str) -> Ids:
        """Encode one text as ids."""
        try:
            return self.encode_many([text])[0]
        except (TypeError, UnicodeEncodeError):
            shown = text.encode(errors="replace").decode() if isinstance(text, str) else repr(text)
            raise InputError(f"'{shown[:60]}' is not text in UTF-8, and cannot be read.") from None

    def encode_many(self, texts: Sequence[str], stop: bool = False) -> tuple[Ids, Lengths]:
        """Encode texts into one array, and return how many ids each has; `stop` puts STOP after each, and counts it."""
        ids, lengths = self._ids(texts)
        if not stop:
            return ids, lengths
        lengths = lengths + 1
        text = np.ones(len(ids) + len(texts), bool)
        text[np.cumsum(lengths) - 1] = False
        stopped = np.full(len(text), STOP, np.int32)
        stopped[text] = ids
        return stopped, lengths

    @abstractmethod
    def _ids(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        """Return the ids of all texts, end to end, and how many each has."""

    def encode_words(self, words: Sequence[str]) -> tuple[Ids, Lengths]:
        """Encode words that are given one by one; return the ids, end to end, and how many each word has, 1 or more.
        Each is cut as within a line, with the blank before it; one without any token is UNK, so that every word has a
        place. Of `space` tokens each word is one id, whatever is in it."""
        ids, lengths = self.encode_many([with_blank(word, self.kind) for word in words])
        empty = np.flatnonzero(lengths == 0)
        return np.insert(ids, np.cumsum(lengths)[empty], UNK), np.maximum(lengths, 1)

    def unknown_in(self, word: str) -> list[str]:
        """Return the names of the unknown tokens of a word that is encoded by `encode_words`; only for words."""
        text = with_blank(word, self.kind)
        ids = self.encode(text)
        return self.unknown_names(text, ids) if len(ids) else [word]

    def fold_words(self, words: Sequence[str]) -> Ids:
        """Encode each word ignoring case: the first id of a word with the same lower case; only for `space` tokens."""
        raise TypeError(f"Words that are given one by one need space tokens, not {self.kind}.")

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids into text: nothing for STOP, a replacement character for UNK and for broken UTF-8."""
        return b"".join(map(self._bytes.__getitem__, ids)).decode(errors="replace")

    @cached_property
    def _bytes(self) -> list[bytes]:
        """The bytes of each id."""
        return [b"", REPLACEMENT.encode(), *(name.encode() for name in self._names[2:])]

    def bytes_of(self, token: int) -> bytes:
        """Return the UTF-8 bytes that a token stands for."""
        return self._bytes[token]

    def word_begins(self, texts: Sequence[str]) -> NDArray[np.uint8]:
        """Return 1 for each token of `encode_many(texts)` that begins a word, which merges do not go beyond; only for
        `bpe` tokens."""
        raise TypeError(f"Merges need bpe tokens, not {self.kind}.")

    @property
    def joins(self) -> Joins:
        """Which ids are pieces of words; only for subwords."""
        raise InputError(
            f"batches.whole_words=true masks all pieces of a word together, and {self.kind} tokens are no pieces of "
            "words. Leave it out, or choose tokens.kind=bpe, unigram or wordpiece."
        )

    def name(self, token: int) -> str:
        """Return a token by itself: what it stands for within a line, with the blank that belongs to it."""
        return self.decode([token])

    def pieces(self, text: str) -> tuple[Ids, list[str]]:
        """Return the ids of a text and the surface of each. If tokens share a character, the last one shows it."""
        return self.encode(text), self._surfaces(text)

    @abstractmethod
    def _surfaces(self, text: str) -> list[str]:
        """Return what each token of a text stands for."""

    def byte_lengths(self, text: str, ids: Ids) -> Lengths:
        """Return the number of UTF-8 bytes of each token of `ids = encode(text)`."""
        return np.fromiter(map(len, map(str.encode, self._surfaces(text))), np.int64, len(ids))

    def offsets(self, text: str) -> tuple[Ids, Lengths, Lengths]:
        """Encode a text that is a row; return its ids, and the places of each token's first character in the text and
        of that after its last. A blank that belongs to a token counts; the one that `row` puts in front is not in the
        text. Tokens that share a character all have it."""
        row = self.row(text)
        ids, begins, ends = self._offsets(row)
        added = len(row) - len(text)
        return ids, np.maximum(begins - added, 0), np.maximum(ends - added, 0)

    def _offsets(self, text: str) -> tuple[Ids, Lengths, Lengths]:
        """The ids of a text, and where the characters of each token begin and end: here by the bytes of tokens that
        lose nothing."""
        ids = self.encode(text)
        ends = np.cumsum(self.byte_lengths(text, ids))
        begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        if text.isascii():
            return ids, begins, ends
        raw = np.frombuffer(text.encode(), np.uint8)
        character = np.cumsum((raw & 0xC0) != 0x80) - 1  # of each byte: those that go on with one begin with 10
        character = np.append(character, len(text))
        return ids, character[begins], np.where(ends > begins, character[ends - 1] + 1, character[begins])

    def unknown(self, text: str, ids: Ids) -> list[str]:
        """Return the surfaces of the tokens of `ids = encode(text)` that are UNK, in order."""
        if not (ids == UNK).any():
            return []
        return [surface for surface, i in zip(self._surfaces(text), ids, strict=True) if i == UNK]

    def unknown_names(self, text: str, ids: Ids) -> list[str]:
        """Return the same tokens as `name` would if they were known: with the blank that belongs to a word, also at the
        beginning of a line; only for words."""
        raise TypeError(f"Words need word or space tokens, not {self.kind}.")


class _Characters(Tokenizer):
    """char: a table from code points to ids."""

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        self._table = np.full(0x110000, UNK, np.int32)
        self._table[_codes("".join(self._names[2:]))] = np.arange(2, self.vocab_size)

    def _ids(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        return self._table[_codes("".join(texts))], np.fromiter(map(len, texts), np.int64, len(texts))

    def _surfaces(self, text: str) -> list[str]:
        return list(text)

    def byte_lengths(self, text: str, ids: Ids) -> Lengths:
        codes = _codes(text)
        lengths = np.ones(len(codes), np.int64)
        for first_longer in (0x80, 0x800, 0x10000):
            lengths += codes >= first_longer
        return lengths


class _Bytes(Tokenizer):
    """byte: the id is the byte plus 2."""

    closed = False

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        if self._names[2:] != learn.byte_names():
            raise ValueError("its tokens are not the 256 bytes in order")

    def _ids(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        raw = [text.encode() for text in texts]
        ids = np.frombuffer(b"".join(raw), np.uint8).astype(np.int32)
        ids += 2
        return ids, np.fromiter(map(len, raw), np.int64, len(raw))

    @cached_property
    def _bytes(self) -> list[bytes]:
        return [b"", REPLACEMENT.encode(), *(bytes([byte]) for byte in range(256))]

    def _surfaces(self, text: str) -> list[str]:
        return list(_printable(bytes([byte]) for byte in text.encode()))

    def byte_lengths(self, text: str, ids: Ids) -> Lengths:
        return np.ones(len(ids), np.int64)


class _Vocabulary(dict[str, int]):
    """Ids by name; UNK for a name that is not there."""

    def __missing__(self, name: str) -> int:
        return UNK


class _Spaces(Tokenizer):
    """space: words between spaces. Only U+0020 is a space, so tabs and the like stay in words."""

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        self._vocabulary = _Vocabulary(zip(self._names[2:], range(2, self.vocab_size), strict=True))

    @cached_property
    def _table(self) -> Any:
        from segue.tokens.space_words import WordTable

        return WordTable(name.encode() for name in self._names[2:])

    def _ids(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        if len(texts) >= MANY:
            from segue.tokens.space_words import joined

            text = joined(texts)
            if text is not None and len(self._table) == self.vocab_size - 2:
                places, lengths = self._table.places(text, len(texts))
                return np.where(places < 0, UNK, places + 2).astype(np.int32), lengths
        return _flat(map(self._vocabulary.__getitem__, blank_words(text)) for text in texts)

    def encode_words(self, words: Sequence[str]) -> tuple[Ids, Lengths]:
        ids = np.fromiter(map(self._vocabulary.__getitem__, words), np.int32, len(words))
        return ids, np.ones(len(words), np.int64)

    def unknown_in(self, word: str) -> list[str]:
        return [] if word in self._vocabulary else [word]

    @cached_property
    def _folded(self) -> _Vocabulary:
        found = _Vocabulary()
        for place, name in enumerate(self._names[2:], 2):
            found.setdefault(name.lower(), place)
        return found

    def fold_words(self, words: Sequence[str]) -> Ids:
        return np.fromiter((self._folded[word.lower()] for word in words), np.int32, len(words))

    def unknown_names(self, text: str, ids: Ids) -> list[str]:
        return [word for word, i in zip(blank_words(text), ids, strict=True) if i == UNK]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(REPLACEMENT if i == UNK else self._names[i] for i in ids if i != STOP)

    def _offsets(self, text: str) -> tuple[Ids, Lengths, Lengths]:
        begins, place = [], 0
        for word in (words := blank_words(text)):
            begins.append(text.index(word, place))
            place = begins[-1] + len(word)
        places = np.array(begins, np.int64)
        return self.encode(text), places, places + np.fromiter(map(len, words), np.int64, len(words))

    def _surfaces(self, text: str) -> list[str]:
        words = [" " + word for word in blank_words(text)]
        if words and not text.startswith(" "):
            words[0] = words[0][1:]
        return words


class _Split(Tokenizer):
    """The base class of words and subwords, which share the pieces of GPT-2's split."""

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        self._split = Splitter(self._split_pattern)

    def _pieces(self, text: str) -> Iterator[str]:
        return chain.from_iterable(map(self._split, parts(text)))


class _Words(_Split):
    """word: the pieces, looked up, of the text with a blank before each line."""

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        self._vocabulary = _Vocabulary(zip(self._names[2:], range(2, self.vocab_size), strict=True))

    def _ids(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        return _flat(map(self._vocabulary.__getitem__, self._pieces(text)) for text in texts)

    def _pieces(self, text: str) -> Iterator[str]:
        return super()._pieces(add_line_blanks(text))

    def _surfaces(self, text: str) -> list[str]:
        return list(without_line_blanks(self._pieces(text), text))

    def unknown_names(self, text: str, ids: Ids) -> list[str]:
        return [piece for piece, i in zip(self._pieces(text), ids, strict=True) if i == UNK]

    @cached_property
    def _of_letters(self) -> tuple[frozenset[int], frozenset[int]]:
        """The tokens that are words of letters: all of them, and those without a blank."""
        words = {i for i, name in enumerate(self._names[2:], 2) if name.removeprefix(" ").isalpha()}
        return frozenset(words), frozenset(i for i in words if self._names[i][0] != " ")

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids into text. No text has two words of letters with nothing between them, since they would be one
        word; a model may write them, and then a blank goes between."""
        words, bare = self._of_letters
        written, before = list[str](), STOP
        for i in ids:
            written.append((" " if i in bare and before in words else "") + self.name(i))
            before = before if i == STOP else i  # STOP is not written
        return drop_line_blanks("".join(written))

    def name(self, token: int) -> str:
        return {STOP: "", UNK: REPLACEMENT}.get(token, self._names[token])


class _Subwords(_Split):
    """bpe and unigram: the library cuts each different piece once; the cuts are cached."""

    closed = False

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        self._cuts = _Cuts(_library(file))
        self._sizes = np.fromiter(map(len, self._bytes), np.int64, self.vocab_size)

    @cached_property
    def _bytes(self) -> list[bytes]:
        byte_of = {name: bytes([byte]) for byte, name in enumerate(learn.byte_names())}
        try:
            tokens = [b"".join(byte_of[letter] for letter in name) for name in self._names[2:]]
        except KeyError as error:
            raise ValueError(f"a token holds {error.args[0]!r}, which stands for no byte") from None
        if not set(byte_of.values()) <= set(tokens):
            raise ValueError("some of the 256 bytes have no token")
        return [b"", REPLACEMENT.encode(), *tokens]

    def _ids(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        return _flat(chain.from_iterable(map(self._cuts.__getitem__, self._pieces(text))) for text in texts)

    @property
    def joins(self) -> Joins:
        """Letters, digits and what is no ASCII go on the same before them; blanks and punctuation do not."""
        inside = [byte >= 128 or chr(byte).isalnum() for byte in range(256)]
        ends = [(inside[token[0]], inside[token[-1]]) for token in self._bytes[2:]]
        on, after = np.array([(False, False), (False, False), *ends]).T
        return Joins(on, after)

    def word_begins(self, texts: Sequence[str]) -> NDArray[np.uint8]:
        if self.kind != "bpe":
            return super().word_begins(texts)
        sizes = np.array([len(self._cuts[piece]) for text in texts for piece in self._pieces(text)], np.int64)
        begins = np.zeros(sizes.sum(), np.uint8)
        begins[np.cumsum(sizes) - sizes] = 1
        return begins

    def _surfaces(self, text: str) -> list[str]:
        return list(_printable(self._bytes[i] for i in self.encode(text)))

    def byte_lengths(self, text: str, ids: Ids) -> Lengths:
        return self._sizes[ids]


class _Cuts(dict[str, list[int]]):
    """A cache of the ids of each piece; emptied when it is too large."""

    def __init__(self, library: Any) -> None:
        super().__init__()
        self._library = library

    def __missing__(self, piece: str) -> list[int]:
        if len(self) >= _CACHE:
            self.clear()
        ids: list[int] = self._library.encode(piece).ids
        self[piece] = ids
        return ids


class _WordPieces(Tokenizer):
    """wordpiece: all by the library. Spaces and control characters have no token."""

    lossless = False

    def __init__(self, file: dict[str, Any]) -> None:
        super().__init__(file)
        self._library = _library(file)

    def _ids(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        cut = [list(parts(text)) for text in texts]
        encodings = iter(self._library.encode_batch_fast(list(chain.from_iterable(cut))))
        return _flat(chain.from_iterable(some.ids for some in islice(encodings, len(row))) for row in cut)

    def decode(self, ids: Iterable[int]) -> str:
        names = [REPLACEMENT if i == UNK else self._names[i] for i in ids if i != STOP]
        decoded: str = decoders.WordPiece(prefix="##", cleanup=True).decode(names)
        return decoded

    def _surfaces(self, text: str) -> list[str]:
        _, begins, ends = self._offsets(text)
        return [text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    def _offsets(self, text: str) -> tuple[Ids, Lengths, Lengths]:
        ids, places, before = list[int](), list[tuple[int, int]](), 0
        for part in parts(text):
            found = self._library.encode(part)
            ids += found.ids
            places += [(before + begin, before + end) for begin, end in found.offsets]
            before += len(part)
        begins, ends = np.array(places, np.int64).reshape(-1, 2).T
        return np.array(ids, np.int32), begins, ends

    @property
    def joins(self) -> Joins:
        on = np.array([name.startswith("##") for name in self._names])
        return Joins(on, np.arange(self.vocab_size) > UNK)


TOKENIZER, SOURCE_TOKENIZER = "tokenizer.json", "source_tokenizer.json"
"""The files of a run; the second is there if each side of its pairs has a vocabulary of its own."""


def load_sides(folder: Path) -> tuple[Tokenizer, Tokenizer | None]:
    """Read a run's tokenizer, and the one that its sources have of their own, if there is one."""
    source = folder / SOURCE_TOKENIZER
    return Tokenizer.load(folder / TOKENIZER), Tokenizer.load(source) if source.exists() else None


_CLASSES: dict[Kind, type[Tokenizer]] = {
    "char": _Characters,
    "byte": _Bytes,
    "space": _Spaces,
    "word": _Words,
    "bpe": _Subwords,
    "unigram": _Subwords,
    "wordpiece": _WordPieces,
}


def _of(file: Any) -> Tokenizer:
    """Make the tokenizer of a file's content; ValueError if it is not one of ours."""
    kind = file_format.read(file)[0]
    if kind == "sentencepiece":
        from segue.tokens.sentencepiece import SentencePieces

        return SentencePieces(file)
    return _CLASSES[kind](file)


def _library(file: dict[str, Any]) -> Any:
    """Make the library's tokenizer; ValueError if it refuses the file."""
    try:
        return learn.library(file)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"the tokenizers library refuses it ({error})") from None


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _flat(rows: Iterable[Iterable[int]]) -> tuple[Ids, Lengths]:
    """Concatenate rows into one array, and return the length of each."""
    flat, lengths = array("i"), array("q")
    for row in rows:
        before = len(flat)
        flat.extend(row)
        lengths.append(len(flat) - before)
    return np.array(flat, np.int32), np.array(lengths, np.int64)


def _printable(tokens: Iterable[bytes]) -> Iterator[str]:
    """Yield what each token adds to the text; a character may be shared by several tokens."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    return map(decoder.decode, tokens)
