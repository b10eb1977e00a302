"""Where an imported run came from: the folder huggingface/ of the run, so that what came in goes out again.

    config.json, tokenizer files   as they came, byte for byte
    ids.json                       their id of each of our ids, the vocabulary's and then the marks'; -1: none there
    rest.safetensors               their tensors that have no place here; of a table, its rows that no id of ours has
    types.json                     the name and the type of each of their tensors, in their order

The folder goes on to runs that begin from the run (train.init), since these have the same tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from segue.data.atomic import atomic_folder
from segue.errors import InputError
from segue.runs import folder as files

CONFIG = "config.json"
MADE = ("ids.json", "types.json", "rest.safetensors")
"""Files of huggingface/ that are not theirs."""
KEPT = tuple(name for name in files.ORIGIN_FILES if name not in MADE)
"""Files of their folder that are kept as they are."""
NONE = -1
"""Their id of a token of ours that they do not have."""


class Origin(NamedTuple):
    """What an imported run keeps of the folder that it came from."""

    files: dict[str, bytes]
    """Those of KEPT that are there: their bytes."""
    ids: list[int]
    """Their id of each of our ids, the vocabulary's and then the marks'; -1: none there."""
    rest: dict[str, Tensor]
    """Their tensors that have no place here, by their names; of a table, its rows that no id of ours has."""
    types: dict[str, str]
    """Each of their tensors by its name, in their order: its type, such as "float32"."""

    @property
    def config(self) -> dict[str, Any]:
        """Their config.json."""
        found: dict[str, Any] = json.loads(self.files[CONFIG])
        return found


def origin_from(theirs: Path, ids: Sequence[int], rest: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Origin:
    """Make the origin of a run out of their folder, whose tensors are `weights`."""
    kept = {name: path.read_bytes() for name in KEPT if (path := theirs / name).is_file()}
    types = {name: _type_name(tensor.dtype) for name, tensor in weights.items()}
    return Origin(kept, [int(i) for i in ids], dict(rest), types)


def keep(out: Path, origin: Origin) -> None:
    """Write huggingface/ into the folder of a run."""
    folder = out / files.ORIGIN
    folder.mkdir()
    for name, content in origin.files.items():
        files.write_atomic(folder / name, content)
    files.write_atomic(folder / "ids.json", json.dumps(origin.ids) + "\n")
    files.write_json(folder / "types.json", origin.types)
    files.write_atomic(folder / "rest.safetensors", save({name: one.contiguous() for name, one in origin.rest.items()}))


def origin_of(run: Path) -> Origin | None:
    """Read what a run keeps of the folder that it came from; None: it was not imported from one."""
    folder = run / files.ORIGIN
    if not folder.is_dir():
        return None
    kept = {name: path.read_bytes() for name in KEPT if (path := folder / name).is_file()}
    try:
        ids, types = (json.loads((folder / name).read_text(encoding="utf-8")) for name in ("ids.json", "types.json"))
        rest = load_file(folder / "rest.safetensors")
        known = json.loads(kept[CONFIG])
    except (OSError, KeyError, ValueError, RecursionError, SafetensorError) as error:
        raise _damaged(folder, str(error)) from None
    if not isinstance(ids, list) or not all(type(i) is int and i >= NONE for i in ids):
        raise _damaged(folder, "ids.json is not a list of ids")
    real = [i for i in ids if i != NONE]
    if len(set(real)) < len(real):
        raise _damaged(folder, "ids.json gives an id twice")
    if not isinstance(types, dict) or not all(map(_is_type, types.values())) or not isinstance(known, dict):
        raise _damaged(folder, "config.json or types.json is not what was written")
    return Origin(kept, ids, rest, types)


def _damaged(folder: Path, reason: str) -> InputError:
    return InputError(f"{folder} is damaged: {reason}. Restore it, or import the model again.")


def write_back(folder: Path, origin: Origin, config: dict[str, Any], tensors: Mapping[str, Tensor]) -> list[str]:
    """Write a folder like the one that a run came from, all of it or nothing: with its files as they were, this config
    and these tensors of theirs; return notes for the user."""
    missing = [name for name in origin.types if name not in tensors]
    if missing:
        raise InputError(f"The run has no {missing[0]}, which it came with. Restore its files, or import it again.")
    weights, notes = _typed_back(tensors, origin)
    if notes:
        config = config | {key: "float32" for key in ("dtype", "torch_dtype") if key in config}
    with atomic_folder(folder) as beside:
        for name, content in origin.files.items():
            files.write_atomic(beside / name, content)
        if config != origin.config:
            files.write_json(beside / CONFIG, config)
        files.write_atomic(beside / "model.safetensors", save(weights, {"format": "pt"}))
    return notes


# Rows of tables. In a table of theirs the row of our id i is ids[i].


def rows_left(table_VD: Tensor, ids: Sequence[int]) -> Tensor:
    """Return the rows of their table, or the numbers of a bias, that no id of ours has, in their order."""
    left = torch.ones(len(table_VD), dtype=torch.bool)
    left[[i for i in ids if i != NONE]] = False
    return table_VD[left]


def rows_back(rows_VD: Tensor, ids: Sequence[int], left_ND: Tensor) -> Tensor:
    """Return their table: each of our rows at its id there, and the rows that no id of ours has between them."""
    ours = torch.tensor([place for place, i in enumerate(ids) if i != NONE])
    theirs = torch.tensor([i for i in ids if i != NONE])
    size = len(theirs) + len(left_ND)
    if len(rows_VD) != len(ids) or int(theirs.max()) >= size or rows_VD.shape[1:] != left_ND.shape[1:]:
        raise InputError(
            f"huggingface/ of the run keeps {len(left_ND):,} rows of a table and {len(ids):,} ids, which do not fit a "
            f"table of shape {list(rows_VD.shape)}. Restore it, or import the model again."
        )
    left = torch.ones(size, dtype=torch.bool)
    left[theirs] = False
    table = rows_VD.new_empty(size, *rows_VD.shape[1:])
    table[theirs], table[left] = rows_VD[ours], left_ND.to(rows_VD.dtype)
    return table


def _typed_back(tensors: Mapping[str, Tensor], origin: Origin) -> tuple[dict[str, Tensor], list[str]]:
    """Give each tensor the type that it came with, in the order in which they came, and return notes for the user.

    Weights that were trained since may not fit into a smaller type without loss: then all stay as they are."""
    back = {name: tensors[name].to(_type(kind)).contiguous() for name, kind in origin.types.items()}
    if all(torch.equal(one.to(tensors[name].dtype), tensors[name]) for name, one in back.items()):
        return back, []
    kinds = sorted({kind for kind in origin.types.values() if kind not in ("float32", "bool", "uint8")})
    note = f"The weights are written in float32: they came in {', '.join(kinds)}, and were trained since."
    return {name: tensors[name].contiguous() for name in back}, [note]


def _type_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _is_type(name: Any) -> bool:
    return isinstance(name, str) and isinstance(vars(torch).get(name), torch.dtype)


def _type(name: str) -> torch.dtype:
    found: torch.dtype = vars(torch)[name]
    return found
