"""Show control characters of data as escapes: a terminal would obey them."""

from __future__ import annotations

import codecs
import os
import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal obeys instead of showing them: C0 except tab and line feed, DEL, C1, and those that change
the direction of writing; and halves of surrogate pairs, which no encoding has."""


def visible(text: str) -> str:
    r"""Show control characters as escapes: \x1b, \u202e. A byte of a file name that is not UTF-8 is shown as \xff."""
    return _CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] == "\r":
        return r"\r"
    if 0xDC80 <= code <= 0xDCFF:  # Python's way to keep a byte that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible_json(text: str) -> str:
    """Escape in JSON, which reads it as the same, what `visible` shows: JSON itself escapes C0 alone."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _unencodable(error: UnicodeError) -> tuple[str, int]:
    r"""Write what an encoding lacks as \u2013, and what is beyond 16 bits as a surrogate pair: JSON reads that too."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)), error.end


codecs.register_error("segue", _unencodable)


def escapes() -> bool:
    """Whether a terminal may be sent escape codes: not if it is dumb, or the user wants no colour."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
