"""Texts and sources that a request may give. A sound or a picture comes as a data URI or is an item of a built-in
corpus; a name of a file is refused, since nobody may read the server's files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from segue.data.config import Config as Data
from segue.data.media import CORPORA, decoded, media_of
from segue.errors import BadSourceError, InputError

MAX_CHARACTERS = 100_000
"""Most characters of a text, and of all texts of a request together."""
MAX_ENCODED = 8_000_000
"""Most characters of the data URIs of a request together: 6 MB of sounds or pictures."""
MAX_SECONDS = 30
"""Longest sound of a request."""
_GIVEN = re.compile(r"data:(audio|image)/[\w.+-]+;base64,[A-Za-z0-9+/]*={0,2}|(tones|shapes):[0-9]{1,9}", re.ASCII)
_KINDS = {"sound": "audio/wav", "picture": "image/png"}


def described(data: Data) -> dict[str, Any]:
    """What the sources of a run are, and the built-in corpus that it was trained on, if any: the page chooses by it."""
    if data.source not in _KINDS:
        return {"source": "text"}
    size = {"rate": data.rate} if data.source == "sound" else {"pixels": data.pixels}
    return {"source": data.source, **size, "corpus": data.path if data.path in CORPORA else ""}


def check_lengths(texts: Sequence[str], data: Data, names: Sequence[str]) -> None:
    """Refuse texts that are too long. `names`: what a message calls each."""
    most = MAX_ENCODED if data.source in _KINDS else MAX_CHARACTERS
    for name, text in zip(names, texts, strict=True):
        if len(text) > most:
            raise InputError(f"{name}: this has {len(text):,} characters. Expected at most {most:,}.")
    if sum(map(len, texts)) > most:
        raise InputError(f"The texts have more than {most:,} characters together.")


def check_source(source: str, data: Data, name: str) -> None:
    """Refuse what is no sound or picture of the run's kind, or cannot be decoded, or is too long."""
    if not _GIVEN.fullmatch(source) or media_of(source) != data.source:
        item = next(corpus for corpus, kind in CORPORA.items() if kind == data.source)
        raise InputError(
            f"{name}: '{source[:40]}' is no {data.source} that a request can give. Expected "
            f"data:{_KINDS[data.source]};base64,… or an item of a built-in corpus, {item}:17: the server opens no file "
            "by its name."
        )
    try:
        found = decoded(source, data)
    except BadSourceError as error:
        raise InputError(f"{name}: this {data.source} {error}.") from None
    if data.source == "sound" and len(found) > MAX_SECONDS * data.rate:
        raise InputError(f"{name}: this sound has {len(found) / data.rate:.1f} s. Expected at most {MAX_SECONDS} s.")
