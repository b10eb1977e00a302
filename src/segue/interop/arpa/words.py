"""Words of ARPA files: names that the format keeps for itself, and how tokens are spelt that it could not hold.

<s> begins a text, </s> ends it, and <unk> is any word that is not there. A word of the text that is spelt so, and white
space in a token, are written with a backslash and the character's number: \\u{3c}unk> and \\u{20}; so is a backslash,
\\u{5c}, that would read as one of these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from segue.tokens.file_format import Kind

START_NAME, STOP_NAME, UNK_NAME = "<s>", "</s>", "<unk>"
RESERVED = (START_NAME, STOP_NAME, UNK_NAME)
_ESCAPE = re.compile(r"[\s\0]|\\(?=u\{[0-9a-f]+\})")
_ESCAPED = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def written_names(names: Sequence[str], given: bool) -> list[str]:
    """Return the tokens as written in the file; tokens that came from an ARPA file stay as they were."""
    spelt = {name: f"\\u{{3c}}{name[1:]}" for name in RESERVED}
    if given:
        return [spelt.get(name, name) for name in names]
    return [spelt.get(name) or _ESCAPE.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", name) for name in names]


def read_names(words: list[str], notes: list[str]) -> tuple[Kind, list[str]]:
    """Return the kind of tokens of a file's words, and their names; space tokens contain no space."""
    names = [_ESCAPED.sub(lambda found: chr(int(found[1], 16)), word) for word in words]
    if any(" " in name for name in names):
        return "char" if all(len(name) == 1 for name in names) else "word", names
    if any(word.startswith("Ġ") for word in words):
        notes.append("its words look like pieces of words (Ġ), but text is cut at blanks here")
    return "space", words
