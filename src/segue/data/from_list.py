"""Write data that the caller gives in Python to a jsonl file, which is then read like any other.

It may be a list of texts, of pairs in the order of files (label, text), or of dicts; a dict of columns; or a data
frame: anything with `columns` and `itertuples` (pandas) or `iter_rows` (polars), or with `__dataframe__` (Arrow …).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from segue.data.atomic import atomic_file, of_process
from segue.data.columns import place_in_objects, swapped
from segue.data.config import Config
from segue.data.dataframe import frame_rows
from segue.data.given_sources import with_whole_paths
from segue.data.media import media_among
from segue.data.readers import Question
from segue.data.shapes import ANSWERS, LABELLED, PARALLEL, TAGGED, TEXT, Shape, guess, question_values
from segue.data.tables import PEEKED_ROWS
from segue.errors import InputError

_FRAMES = ("itertuples", "iter_rows", "__dataframe__")
"""Methods by which a data frame is known."""


def write_rows(given: Any, path: Path, shape: Shape, rate: int = Config.rate) -> bool:
    """Write one JSON object a row; True if the file is new. A file with other rows is never overwritten. `rate`: of
    sounds that are arrays."""
    rows = rows_of(given)
    rows = _not_swapped(with_whole_paths(rows, rate) if shape is PARALLEL else rows, shape)
    content = "".join(json.dumps(_object(row, n, shape), ensure_ascii=False) + "\n" for n, row in enumerate(rows))
    if not content:
        raise InputError("The list of data is empty. Expected a text, or a pair, for each row.")
    data = content.encode("utf-8", errors="surrogatepass")
    if path.exists():
        if path.read_bytes() != data:
            raise InputError(f"{path} holds other rows than those given. Choose another place (out=…).")
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, of_process(path)) as beside:
        beside.write_bytes(data)
    return True


def rows_of(given: Any) -> Iterator[Any]:
    """The rows of what the caller gives: texts, tuples, or dicts by the names of the columns."""
    if isinstance(given, Mapping):
        return _from_columns(given)
    if hasattr(given, "itertuples"):
        return _by_names(given.columns, given.itertuples(index=False, name=None))
    if hasattr(given, "iter_rows"):
        return _by_names(given.columns, given.iter_rows())
    if hasattr(given, "__dataframe__"):
        return _by_names(*frame_rows(given))
    if not isinstance(given, Iterable):
        raise InputError(
            f"Data of the type {type(given).__name__} cannot be read. Expected a list of rows, a dict of columns, or a "
            "data frame; give its rows as a list of dicts."
        )
    return iter(given)


def has_names(given: Any) -> bool:
    """Whether the rows have names for their values: dicts, columns or a data frame."""
    if isinstance(given, Sequence):
        return bool(given) and isinstance(given[0], Mapping)
    return isinstance(given, Mapping) or any(hasattr(given, name) for name in _FRAMES)


def named_questions(given: Any, shape: Shape, config: Config) -> Iterator[Question]:
    """The rows of dicts, columns or a data frame, to predict something for; columns by number are not theirs."""
    config = replace(config, columns="") if config.columns[:1].isdecimal() else config
    rows = ({str(key): _plain(value) for key, value in row.items()} for row in rows_of(given))
    head = list(islice(rows, PEEKED_ROWS))
    keys = place_in_objects("the data", head, shape, config, asked=True).picks
    for number, row in enumerate(chain(head, rows)):
        values = question_values(shape, row, keys)
        if isinstance(values, str):
            raise InputError(f"Row {number} of the data {values}. Expected a text.")
        yield Question(number, row, values)


def guess_rows(given: Any) -> Shape:
    """The shape of rows that the caller gives, by the first ones; running text if they do not tell."""
    rows = rows_of(given) if isinstance(given, Sequence | Mapping) or has_names(given) else iter(())
    head = list(islice(rows, PEEKED_ROWS))
    first = head[0] if head else None
    if isinstance(first, Mapping):
        named = (row for row in head if isinstance(row, Mapping))
        return guess(".jsonl", [json.dumps({str(key): _plain(value) for key, value in row.items()}) for row in named])
    if isinstance(first, list | tuple) and len(first) == 2:
        if media_among(str(row[0]) for row in head if isinstance(row, list | tuple) and row):
            return PARALLEL
        return TAGGED if all(isinstance(value, list | tuple) for value in first) else LABELLED
    if isinstance(first, list | tuple) and len(first) == len(ANSWERS.fields):
        return ANSWERS
    return TEXT


def _from_columns(given: Mapping[Any, Any]) -> Iterator[dict[str, Any]]:
    if not all(isinstance(values, Iterable) and not isinstance(values, str | bytes) for values in given.values()):
        raise InputError("A dict of data needs a list of values under each of its keys, one for each row.")
    columns = [list(values) for values in given.values()]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        named = ", ".join(f"{key!s:.40}: {length:,}" for key, length in zip(given, lengths, strict=True))
        raise InputError(f"The columns of the data have different lengths ({named}). Expected a value for each row.")
    return _by_names(given, zip(*columns, strict=True))


def _by_names(columns: Iterable[Any], rows: Iterable[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    names = [str(name) for name in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"Two columns of the data are called '{twice[:60]}'. Expected different names; rename one.")
    return (dict(zip(names, row, strict=True)) for row in rows)


def _not_swapped(rows: Iterator[Any], shape: Shape) -> Iterator[Any]:
    """Refuse (text, label) where (label, text) is expected, as far as the first rows tell."""
    head = list(islice(rows, PEEKED_ROWS))
    if all(isinstance(row, list | tuple) for row in head) and swapped(head, shape):
        first, second = (repr(value)[:40] for value in head[0])
        raise InputError(
            f"The rows look like (text, label): the first is ({first}, {second}). Expected (label, text), in the order "
            "of files; give [(label, text) for text, label in rows]."
        )
    return chain(head, rows)


def _object(row: Any, number: int, shape: Shape) -> dict[str, Any]:
    keys = shape.keys
    if isinstance(row, Mapping) and row:
        return {str(key): _plain(value) for key, value in row.items()}
    if len(keys) == 1 and isinstance(row, str):
        return {keys[0]: row}
    if len(keys) > 1 and isinstance(row, list | tuple) and len(row) == len(keys):
        try:
            json.dumps(row)
        except TypeError:
            pass
        else:
            return dict(zip(keys, row, strict=True))
    wanted = "a text" if len(keys) == 1 else f"{'a pair' if len(keys) == 2 else 'a tuple'} ({', '.join(keys)})"
    raise InputError(f"Row {number} of the data is {row!r:.60}; this model needs {wanted}.")


def _plain(value: Any) -> Any:
    """A value of a column as JSON has it: numpy's numbers as Python's, a missing number as none, a date as text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, str | int | float) else str(value)
