"""Find the columns of a table, or the keys of JSON objects, that hold the fields of a shape (label and text).

In this order: what data.columns names; the fields' own names; other usual names (sentiment for label, review for text);
what the first rows hold, if there is exactly one column of long, varied texts and one of few short values; and in a
table without a header the order label, text. A reading by usual names or by content is noted in the ledger. Where none
is plain, an InputError repeats the columns that were found and says what to type.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from segue.data.config import Config
from segue.data.media import media_among, media_of
from segue.data.shapes import PARALLEL, Shape, languages, named
from segue.data.tables import MOST_LABEL_WORDS, Kind, kinds_of
from segue.errors import InputError

LONGEST_NAME = 40
_MEDIA_NAMES = (
    *("path", "paths", "file", "files", "filename", "filepath", "name", "audio", "sound", "wav", "recording", "clip"),
    *("image", "picture", "img", "pic", "photo", "video", "gif", "url", "source", "src", "input"),
)
"""Usual names of a column of sounds or pictures."""
_SAID_NAMES = (
    *("text", "transcript", "transcription", "transcriptions", "sentence", "caption", "captions", "words", "utterance"),
    *("description", "title", "label"),
)
"""Usual names of a column that has the text of a sound or a picture, beside those of targets."""


class Place(NamedTuple):
    """Where a row has its fields."""

    picks: tuple[Any, ...]
    """The number of each field's column from 0, or its key."""
    header: bool = False
    width: int = 0
    """How many columns each row must have; 0: as many as the picks need."""
    said: str = ""
    """What the ledger says about the choice; empty if it is the usual one."""


def swapped(rows: Sequence[Sequence[Any]], shape: Shape) -> bool:
    """Whether rows of two values plainly have the text where the label should be, and the label in its place."""
    if shape.kinds != ("label", "text") or any(len(row) != 2 for row in rows):
        return False
    return kinds_of([[str(row[i]) for row in rows] for i in (0, 1)]) == ["text", "label"]


def wanted_columns(shape: Shape, config: Config) -> list[str]:
    """The columns' names or numbers, in the order of the shape's fields: from data.columns, or the fields' names."""
    fields = shape.fields
    wanted = [name.strip() for name in config.columns.split(",")] if config.columns else list(fields)
    numbers = [name.isdecimal() for name in wanted]
    if len(wanted) == len(fields) + len(shape.optional):
        fields += shape.optional
    if len(wanted) != len(fields) or "" in wanted or "0" in wanted or any(numbers) != all(numbers):
        raise InputError(
            f"data.columns is '{config.columns}'. Expected {','.join(fields)}: "
            f"{len(fields)} names, or {len(fields)} numbers from 1."
        )
    if twice := next((name for name in wanted if wanted.count(name) > 1), None):
        raise InputError(
            f"data.columns is '{config.columns}', which names {twice} twice. Expected a column of its own for each of "
            f"{', '.join(fields)}."
        )
    return wanted


class _Search:
    """One search for the fields of a shape among named or numbered columns."""

    def __init__(
        self,
        shape: Shape,
        config: Config,
        where: str,
        names: Sequence[str],
        columns: Sequence[Sequence[str]],
        asked: bool,
    ) -> None:
        self.shape, self.config, self.where, self.names, self.columns = shape, config, where, names, columns
        self.asked = asked
        """Whether only the fields of a question are needed: for a prediction the label may be missing."""
        kinds = kinds_of(columns)
        self.kinds = [kind if kind != "label" or config.label != "number" else "" for kind in kinds]

    @property
    def needed(self) -> list[int]:
        """The fields that must be found."""
        return self.shape.asked_fields(self.config) if self.asked else list(range(len(self.shape.fields)))

    def usual(self, field: int) -> Iterator[list[int]]:
        """The columns whose name is the field's own; then those with another usual name for it."""
        return named(self.shape.keys[field], self.shape.also[field] if self.shape.also else (), self.names)

    def by_name(self) -> dict[int, int]:
        """The column of each field whose name, or another usual name, one column has."""
        found: dict[int, int] = {}
        for field in range(len(self.shape.keys)):
            for close in self.usual(field):
                if len(close) > 1:
                    close = [column for column in close if self.kinds[column] == self.kind(field)]
                if len(close) == 1 and close[0] not in found.values():
                    found[field] = close[0]
                    break
        pair = languages(self.names)
        if not found and len(pair) == len(self.shape.keys) and self.shape.kinds == ("text", "text"):
            return dict(enumerate(pair))  # the first is translated into the second
        return found

    def by_content(self, found: dict[int, int]) -> dict[int, int]:
        """Add the fields that only one of the other columns can hold."""
        found = dict(found)
        for field in range(len(self.shape.fields)):
            free = [column for column in range(len(self.names)) if column not in found.values()]
            close = [column for column in free if self.kinds[column] and self.kinds[column] == self.kind(field)]
            if field not in found and len(close) == 1:
                found[field] = close[0]
        return found

    def with_the_last(self, found: dict[int, int]) -> dict[int, int]:
        """Add the one field that is missing, if one column is left."""
        fields, columns = range(len(self.shape.fields)), range(len(self.names))
        missing = [field for field in fields if field not in found]
        left = [column for column in columns if column not in found.values()]
        return found | {missing[0]: left[0]} if found and len(missing) == len(left) == 1 else found

    def kind(self, field: int) -> Kind:
        return self.shape.kinds[field] if self.shape.kinds else ""

    def whole(self, found: dict[int, int]) -> bool:
        return all(field in found for field in self.needed)

    def said(self, found: dict[int, int], by_name: bool) -> str:
        parts = [
            f"{self.shape.fields[field]} from {_called(self.names, found[field], by_name)}" for field in self.needed
        ]
        return f"read {' and '.join(parts)} ({_typed(self.names, [found[field] for field in self.needed], by_name)})"

    def refusal(self, what: str, by_name: bool, missing: Sequence[str] = ()) -> InputError:
        """Repeat what was found, and say what to type. `missing`: the names in data.columns that the file lacks."""
        fields = [self.shape.fields[field] for field in self.needed]
        shown = (", ".join(self.names[:10]) + (", …" if len(self.names) > 10 else ""))[:200]
        but = f", but not {' or '.join(missing)} (data.columns={self.config.columns})"[:200] if missing else ""
        return InputError(
            f"{self.where}: the {what} are {shown}{but}. Expected {' and '.join(fields)} in every row; say which to "
            f"read{'' if what == 'keys' else ', by name or number'}, for example {self.example(by_name)}"
            f"{self.pair(by_name)}."
        )

    def pair(self, by_name: bool) -> str:
        """The setting that reads two texts, where just two columns may hold one and just one the label."""
        texts, labels = ([at for at, kind in enumerate(self.kinds) if kind == one] for one in ("text", "label"))
        if not self.shape.optional or self.asked or len(texts) != 2 or len(labels) != 1:
            return ""
        return f"; both texts as a pair: {_typed(self.names, [*labels, *texts], by_name)}"

    def example(self, by_name: bool) -> str:
        """The setting that reads the columns that are most likely meant."""
        found = self.by_content(self.by_name())
        for field in self.needed:
            free = [column for column in range(len(self.names)) if column not in found.values()]
            usual = set(chain.from_iterable(self.usual(field)))
            # Those with a usual name, and those that may hold it, come first.
            free.sort(key=lambda column: (column not in usual, self.kinds[column] != self.kind(field)))
            found.setdefault(field, free[0] if free else field)
        return _typed(self.names, [found[field] for field in self.needed], by_name)


def _called(names: Sequence[str], column: int, by_name: bool) -> str:
    return f"'{names[column]}'" if by_name else f"column {column + 1}"


def _typed(names: Sequence[str], columns: Sequence[int], by_name: bool) -> str:
    """The setting that says this choice."""
    by_name = by_name and all(column < len(names) and is_name(names[column]) for column in columns)
    picked = [names[column] if by_name else str(column + 1) for column in columns]
    return shlex.quote(f"data.columns={','.join(picked)}")


def is_name(cell: str) -> bool:
    """Whether data.columns could name a column like this."""
    return 0 < len(cell) <= LONGEST_NAME and "," not in cell and not cell.isdecimal()


def _is_header(names: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Whether a table's first row seems to be a header: short different names, none of which stands in its column."""
    return (
        bool(columns[0])
        and len(set(names)) == len(names)
        and all(is_name(name) and len(name.split()) <= MOST_LABEL_WORDS for name in names)
        and not any(name in cells for name, cells in zip(names, columns, strict=True))
    )


# Tables


def place_in_table(
    where: str, first: list[str], rows: Sequence[list[str]], shape: Shape, config: Config, asked: bool = False
) -> Place:
    """Find the columns of a table, from its first row and the next ones. `asked`: only a question is needed."""
    names = [cell.strip() for cell in first]
    columns = [[row[i].strip() for row in rows if i < len(row)] for i in range(len(names))]
    search = _Search(shape, config, where, names, columns, asked)
    if config.columns:
        return _given_columns(search)
    if (media := _media_column(search)) is not None:
        return _media_place(search, media)
    found = search.by_name()
    plain = set(shape.fields) <= set(names)
    if twice := next((name for name in shape.fields if plain and names.count(name) > 1), None):
        raise _twice(search, twice)
    unseen = not any(names[column] in columns[column] for column in found.values())
    header = plain or (bool(found) and (unseen if search.whole(found) else _is_header(names, columns)))
    found = search.with_the_last(search.by_content(found if header else {}))
    if not search.whole(found):
        return _in_order(search)
    if not header and (len(names) > len(shape.fields) or found != dict(enumerate(range(len(names))))):
        header = _is_header(names, columns)
    if not header and found == dict(enumerate(range(len(names)))):
        return _in_order(search)
    return _found(search, found, header, plain)


def _found(search: _Search, found: dict[int, int], header: bool, plain: bool) -> Place:
    picks = tuple(found[field] for field in search.needed)
    for name in (search.names[column] for column in picks):
        if header and search.names.count(name) > 1:
            raise _twice(search, name)
    said = "" if plain and header else search.said(found, header)
    if header and not search.asked and search.names.count(beside := search.shape.beside) == 1:
        picks += (search.names.index(beside),)
    return Place(picks, header, 0 if header else len(search.names), said)


def _twice(search: _Search, name: str) -> InputError:
    places = [number for number, other in enumerate(search.names, 1) if other == name]
    shown = " and ".join(map(str, places))
    numbers = ",".join(str(number + 1) for number in range(len(search.shape.fields)))
    return InputError(
        f"{search.where}: columns {shown} are all called '{name[:60]}'. Expected different names; rename them, or say "
        f"which columns to read by their numbers, for example data.columns={numbers}."
    )


def _in_order(search: _Search) -> Place:
    """The columns of a table without a header, in the order of the fields."""
    width, fields = len(search.names), len(search.shape.fields)
    if width == len(search.needed) == 1:
        return Place((0,), bool(search.by_name()), 1)
    if search.asked and width == len(search.needed) == len(search.shape.question):
        return Place(tuple(range(width)), width=width)
    if fields > 1 and width <= fields:
        return Place(tuple(search.needed), width=fields)
    raise search.refusal("columns", _is_header(search.names, search.columns))


def _given_columns(search: _Search) -> Place:
    """The columns that data.columns names or numbers."""
    wanted = _wanted(search)
    names = search.names
    if all(name.isdecimal() for name in wanted):
        picks = [int(name) - 1 for name in wanted]
        if search.asked and len(names) == len(picks) == 1:
            picks = [0]
        by_name = search.by_name()
        header = set(search.shape.fields) <= set(names) or all(
            by_name.get(field) == pick for field, pick in zip(search.needed, picks, strict=False)
        )
        return Place(tuple(picks), header)
    if missing := [name for name in wanted if name not in names]:
        raise search.refusal("columns", _is_header(names, search.columns), missing)
    if twice := next((name for name in wanted if names.count(name) > 1), None):
        raise _twice(search, twice)
    return Place(tuple(names.index(name) for name in wanted), True)


def _wanted(search: _Search) -> list[str]:
    """The names or numbers in data.columns; where a question is asked, those of its fields."""
    if not search.asked:
        return wanted_columns(search.shape, search.config)
    given = [name.strip() for name in search.config.columns.split(",")]
    if len(given) == len(search.needed):
        return given
    wanted = wanted_columns(search.shape, search.config)
    return [wanted[field] for field in search.needed]


# Sounds and pictures


def _media_column(search: _Search) -> int | None:
    """The first column whose cells mostly name sounds or pictures, as data.source says; None: the sources are texts.
    Rows with a text and its translation by their names, or in two languages, may have a picture beside them."""
    if search.shape is not PARALLEL or search.config.source == "text":
        return None
    columns = search.columns if any(search.columns) else [[name] for name in search.names]
    kinds = [media_among(cells, search.config.source) for cells in columns]
    found = next((number for number, kind in enumerate(kinds) if kind), None)
    texts = search.by_name()
    if search.config.source == "auto" and len(texts) == 2 and not any(kinds[column] for column in texts.values()):
        return None
    return found


def _media_place(search: _Search, source: int, keys: bool = False) -> Place:
    """The column of names, and that of texts: by a usual name, or the only other one, or the only one of texts."""
    names, width = search.names, len(search.names)
    others = [column for column in range(width) if column != source]
    told = [column for close in named("target", (*PARALLEL.also[1], *_SAID_NAMES), names) for column in close]
    usual = [column for column in told if column != source]
    called = any(source in close for close in named("source", _MEDIA_NAMES, names))
    header = keys or (media_of(names[source]) is None and (called or bool(usual)))
    texts = [column for column in others if search.kinds[column] == "text"]
    for some in (usual[:1] if header else [], others, texts):
        if len(some) == 1:
            found = {0: source, 1: some[0]}
            break
    else:
        if not search.asked:
            raise search.refusal("keys" if keys else "columns", header)
        found = {0: source}
    plain = width == 2 and found == {0: 0, 1: 1}
    picks = tuple(found[field] for field in search.needed)
    return Place(picks, header, 0 if header else width, "" if plain else search.said(found, header))


# Objects


def place_in_objects(
    where: str, objects: Sequence[dict[str, Any]], shape: Shape, config: Config, asked: bool = False
) -> Place:
    """Find the keys of JSON objects, from the first of them."""
    names = list(dict.fromkeys(key for found in objects for key in found))
    columns = [[str(found[key]) for found in objects if _is_plain(found.get(key))] for key in names]
    search = _Search(shape, config, where, names, columns, asked)
    if not config.columns and (media := _media_column(search)) is not None:
        place = _media_place(search, media, keys=True)
        return place._replace(picks=tuple(names[pick] for pick in place.picks), header=False)
    wanted = _wanted(search) if config.columns else [shape.keys[field] for field in search.needed]
    if not names or any(all(key in found for key in wanted) for found in objects):
        return Place(tuple(wanted))
    found = {} if config.columns else search.by_content(search.by_name())
    if not search.whole(found):
        raise search.refusal("keys", True, [key for key in wanted if key not in names] if config.columns else ())
    return Place(tuple(names[found[field]] for field in search.needed), said=search.said(found, True))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)
