"""Split text into words as GPT-2 does (Radford et al., 2019), and long texts into parts.

    's 't 'm 'd 're 've 'll  |  ?letters  |  ?digits  |  ?other signs  |  blanks before a last blank  |  blanks

A blank before a word belongs to the word (" good"), every character belongs to one piece, and the pieces joined
are the text. GPT-2 writes \\p{L} and \\p{N}, whose meaning grows with every version of Unicode; here the letters and
digits are written out as ranges, so that one pattern gives the same pieces in Python's `re` and in the `tokenizers`
library, today and in later versions. The pattern is kept in tokenizer.json with the vocabulary.

Word tokens have one more rule, the line-start blank: before a text is split, every line that begins with a blank or
with a character which is no white space gets one blank more, and `decode` takes it away again. So a word is the same
token (" Montague") at the beginning of a line and within it, and every text still has tokens of its own.

Taggers read words as treebanks have them, one sentence a line: `sentence_words` cuts raw text so.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space, as the inside of a character class."""

CONTRACTIONS = "'(?:[stmd]|re|ve|ll)"
PART = 1 << 16
"""Split this many characters of a long text at once, to bound the memory."""

LINE_START = f"(?<![^\n])(?=[^{SPACE}]| )"
"""Where a line gets its blank."""
LINE_BLANK = "(?<![^\n]) "
"""The blank that is taken away from a line again."""
_LINE_START = re.compile(LINE_START)
_LINE_BLANK = re.compile(LINE_BLANK)
_LINE_BLANKS = re.compile("(?<![^\n]) +")

_CUT = re.compile(f"[^{SPACE}](?=[ \t\n])")


def pattern(letters: str, digits: str) -> str:
    """Make the regular expression of the split from the insides of two character classes."""
    return (
        f"{CONTRACTIONS}| ?[{letters}]+| ?[{digits}]+| ?[^{SPACE}{letters}{digits}]+"
        f"|[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+"
    )


_ASCII = re.compile(pattern("A-Za-z", "0-9"))
_HIGH = re.compile("[\U00010000-\U0010ffff](?:-[\U00010000-\U0010ffff])?")
"""A character above U+FFFF, or a range of them inside a character class."""


@cache
def unicode_pattern() -> str:
    """Return the pattern with all letters and digits that this Python knows."""
    return pattern(_ranges("L"), _ranges("N"))


def _ranges(category: str) -> str:
    """Return the characters of a Unicode category, as the inside of a character class."""
    codes = [code for code in range(0x110000) if unicodedata.category(chr(code))[0] == category]
    starts = [code for code, before in zip(codes, [-2, *codes[:-1]], strict=True) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -2], strict=True) if code != after - 1]
    return "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


class Splitter:
    """Cuts a text into its pieces.

    Python looks a character up at once among those below U+10000, but goes through the ranges above one by one, even
    for a character that is below. So most texts are split by a pattern without those ranges.
    """

    def __init__(self, regex: str) -> None:
        self._regex = re.compile(regex)
        self._below = re.compile(_HIGH.sub("", regex))

    def __call__(self, text: str) -> list[str]:
        if text.isascii():
            return _ASCII.findall(text)
        return (self._regex if _HIGH.search(text) else self._below).findall(text)


def add_line_blanks(text: str) -> str:
    """Put a blank before each line, as a word within a line has it."""
    return _LINE_START.sub(" ", text)


def drop_line_blanks(text: str) -> str:
    """Undo `add_line_blanks`."""
    return _LINE_BLANK.sub("", text)


def without_line_blanks(pieces: Iterable[str], text: str) -> Iterator[str]:
    """Yield what each piece of `add_line_blanks(text)` stands for in the text itself. Of several blanks that begin a
    line the last one was added, so that no piece is left empty."""
    added = (match.end() - 1 for match in _LINE_BLANKS.finditer(add_line_blanks(text)))
    place, blank = 0, next(added, None)
    for piece in pieces:
        place += len(piece)
        while blank is not None and blank < place:
            # What is left of the piece still ends at `place`.
            at = len(piece) - (place - blank)
            piece = piece[:at] + piece[at + 1 :]
            blank = next(added, None)
        yield piece


def blank_words(text: str) -> list[str]:
    """Return the words between spaces. Only U+0020 is a space: tabs and the like belong to words."""
    words = text.split(" ")
    return words if all(words) else [word for word in words if word]


def parts(text: str, size: int = PART) -> Iterator[str]:
    """Yield the text in parts of about `size` characters whose pieces, one after the other, are those of the text.

    A part ends after a word and before the blanks that follow it: no piece crosses that place, and no rule looks
    across it. A text without such a place stays whole.
    """
    start = 0
    while len(text) - start > size:
        found = _CUT.search(text, start + size)
        if found is None:
            break
        yield text[start : found.end()]
        start = found.end()
    yield text[start:]


def head(texts: Iterable[str], limit: int) -> Iterator[str]:
    """Yield the first `limit` UTF-8 bytes of the texts, without empty ones; cut the last between two characters."""
    for text in filter(None, texts):
        size = len(text) if text.isascii() else len(text.encode())
        if size >= limit:
            yield text.encode()[:limit].decode(errors="ignore")
            return
        limit -= size
        yield text


# Words as treebanks have them (Marcus et al. 1993): punctuation marks, clitics and signs of currency by themselves

_OPENING, _CLOSING = "([{\"'“‘„«¿¡$£€", ")]}\"'”’“»,;:?!%…"
_LONE_MARK = re.compile(r"(?<!\S)(?:[.,;:?!()\"“”]|``|'')(?!\S)")
_CLITIC = re.compile(r"(?i:n['’]t|['’](?:s|m|d|re|ve|ll))$")


def sentence_words(text: str) -> list[str]:
    """Cut a sentence into words. One in which a punctuation mark stands between blanks is tokenised already, and is
    split at its blanks; of any other, punctuation at the ends of words, the last full stop and clitics ('s, n't) are
    words of their own."""
    found = text.split()
    if not found or _LONE_MARK.search(text):
        return found
    return [word for place, one in enumerate(found, 1) for word in _treebank(one, place == len(found))]


def _treebank(word: str, last: bool) -> list[str]:
    """Cut what stands between two blanks. A full stop is cut off the last word of a sentence only, since within one it
    belongs to an abbreviation; so does that of U.N."""
    if _CLITIC.fullmatch(word) or not any(map(str.isalnum, word)):
        return [word]
    before, after = list[str](), list[str]()
    while word[0] in _OPENING:
        before.append(word[0])
        word = word[1:]
    while ends := _ending(word, last):
        after.insert(0, ends)
        word = word.removesuffix(ends)
    clitic = _CLITIC.search(word)
    cut = clitic.start() if clitic else len(word)
    return [*before, *filter(None, (word[:cut], word[cut:])), *after]


def _ending(word: str, last: bool) -> str:
    """Return the mark that is to be cut off the end of a word, or ''."""
    if word.endswith("..."):
        return "..."
    stops = last and word[-1] == "." and "." not in word[:-1]
    return word[-1] if word[-1] in _CLOSING or stops else ""


_SAMPLE = 100_000
_LEFT_BY_TOKENISERS = re.compile(r"(?<!\S)(?:<unk>|@[-,.]@)(?!\S)")
_MARK = re.compile(r"[.,;?!](?!\S)")
_LEAST_MARKS = 20


def looks_tokenised(text: str) -> bool:
    """Whether running text was tokenised before: <unk> or @-@ stand in it, or nearly every punctuation mark has a blank
    before it."""
    beginning = text[:_SAMPLE]
    if len(_LEFT_BY_TOKENISERS.findall(beginning)) > 1:
        return True
    marks = len(_MARK.findall(beginning))
    return marks >= _LEAST_MARKS and len(_LONE_MARK.findall(beginning)) >= 0.9 * marks
