"""Cut running text into units: lines, paragraphs, or documents in pieces of about 1 MB.

A piece ends only before a line end, or a blank or tab where no line end is near, that follows a character which is
none, so that a tokenizer gives the same tokens for the pieces one by one as for the whole. (Word tokens have one blank
more where a piece begins within a line, which only a line of a megabyte makes happen.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from segue.data.config import Config
from segue.data.example import Example
from segue.data.files import LONGEST_LINE, lines
from segue.data.ledger import Ledger
from segue.errors import InputError

PIECE = 1 << 20
_UNTIDY = ("  ", " \n", "\n ", *"\t\r\v\f\x1c\x1d\x1e\x1f")
"""An ASCII text that contains any of these is not tidy."""
_WORD_ENDS = re.compile(r"\S(?=\n)"), re.compile(r"\S(?=[ \n\t])")
"""Where a piece may end: best at the end of a line, else of a word."""


def units(blocks: Iterator[str], path: str, config: Config, ledger: Ledger, first_line: int = 1) -> Iterator[Example]:
    """Cut the text of one document into units (data.unit)."""
    match config.unit:
        case "line":
            return _lines(blocks, path, config, ledger, first_line)
        case "paragraph":
            examples = _paragraphs(blocks, path, first_line)
        case "document":
            examples = _in_pieces(blocks, path, first_line)
    return _canonical(examples) if config.canonical else examples


def tidy(text: str) -> str:
    """Reduce whitespace to one blank between words and none at the ends (data.canonical)."""
    return " ".join(text.split())


def tidy_lines(text: str) -> list[str]:
    """Tidy each line of a text. Most texts are tidy already: one look at the whole text is faster than one a line."""
    rows = text.split("\n")
    plain = text.isascii() and not any(blank in text for blank in _UNTIDY)
    return rows if plain and text[:1] != " " and text[-1:] != " " else [tidy(row) for row in rows]


def _lines(blocks: Iterator[str], path: str, config: Config, ledger: Ledger, first: int) -> Iterator[Example]:
    keep = config.blank_lines == "keep"
    for number, line in enumerate(lines(blocks, tidy_lines if config.canonical else None), first):
        if keep or (line and not line.isspace()):
            yield Example(line, "", (), (), "", True, path, number)
        else:
            ledger.blank_lines += 1


def _paragraphs(blocks: Iterator[str], path: str, first: int) -> Iterator[Example]:
    numbered = enumerate(lines(blocks), first)
    for number, line in numbered:
        if line and not line.isspace():
            yield from _in_pieces(_to_blank_line(line, numbered), path, number)


def _to_blank_line(line: str, numbered: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yield the rest of a paragraph, line by line, so that memory does not grow with the paragraph."""
    yield line
    for _, line in numbered:
        if not line or line.isspace():
            return
        yield "\n" + line


def _in_pieces(blocks: Iterator[str], path: str, first: int) -> Iterator[Example]:
    line, before = first, None  # a piece is the last one if none follows, so look one ahead
    for piece in _pieces(blocks, path):
        if before is not None:
            yield Example(before, ends=False, path=path, line=line)
            line += before.count("\n")
        before = piece
    if before is not None:
        yield Example(before, path=path, line=line)


def _pieces(blocks: Iterable[str], path: str) -> Iterator[str]:
    buffer = ""
    for block in blocks:
        for start in range(0, len(block), PIECE):
            buffer += block[start : start + PIECE]
            cut = _cut_point(buffer) if len(buffer) >= PIECE else 0
            if cut:
                yield buffer[:cut]
                buffer = buffer[cut:]
            elif len(buffer) > LONGEST_LINE:
                raise InputError(
                    f"{path}: {len(buffer):,} characters without the end of a word. Expected words with blanks "
                    "between; leave the file out if it is not text."
                )
    if buffer:
        yield buffer


def _cut_point(text: str) -> int:
    """Find the last place where a piece may end, or 0. Search the last 1000 characters first: it is mostly there."""
    for place in _WORD_ENDS:
        for tail in (1000, len(text)):
            ends = [match.end() for match in place.finditer(text, max(0, len(text) - tail))]
            if ends:
                return ends[-1]
    return 0


def _canonical(examples: Iterator[Example]) -> Iterator[Example]:
    """Tidy every unit; a piece that continues a document begins with the blank between it and the piece before."""
    begun = False
    for example in examples:
        text = tidy(example.text)
        yield example._replace(text=f" {text}" if begun and text else text)
        begun = not example.ends and (begun or text != "")
