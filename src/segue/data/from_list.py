"""Rows that the caller gives as a list, written as a jsonl file that the readers read like any other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from segue.data.atomic import atomic_file, of_process
from segue.data.config import Task
from segue.errors import InputError

KEYS: dict[Task, tuple[str, ...]] = {
    "lm": ("text",),
    "classify": ("text", "label"),
    "tag": ("words", "tags"),
    "seq2seq": ("source", "target"),
}


def write_rows(rows: Iterable[Any], path: Path, task: Task) -> bool:
    """Writes texts, or pairs as the task needs them; True where the file is new. Another list is never overwritten."""
    content = "".join(json.dumps(_object(row, n, task), ensure_ascii=False) + "\n" for n, row in enumerate(rows))
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


def _object(row: Any, number: int, task: Task) -> dict[str, Any]:
    keys = KEYS[task]
    if len(keys) == 1 and isinstance(row, str):
        return {keys[0]: row}
    if len(keys) == 2 and isinstance(row, list | tuple) and len(row) == 2:
        try:
            json.dumps(row)
        except TypeError:
            pass
        else:
            return dict(zip(keys, row, strict=True))
    wanted = "a text" if len(keys) == 1 else f"a pair ({', '.join(keys)})"
    raise InputError(f"Row {number} of the data is {row!r:.60}; a model for {task} needs {wanted}.")
