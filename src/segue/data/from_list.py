"""Write rows that the caller gives as a Python list to a jsonl file, which is then read like any other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from segue.data.atomic import atomic_file, of_process
from segue.data.shapes import Shape
from segue.errors import InputError


def write_rows(rows: Iterable[Any], path: Path, shape: Shape) -> bool:
    """Write one JSON object a row; True if the file is new. A file with other rows is never overwritten."""
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


def _object(row: Any, number: int, shape: Shape) -> dict[str, Any]:
    keys = shape.listed or shape.keys
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
