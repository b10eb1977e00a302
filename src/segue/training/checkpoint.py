"""Checkpoints, written atomically (to a temporary folder, then renamed) and verified by checksums.

checkpoints/step-00002000/   model, optimizer, carried, random [, best] .safetensors
                             values.json      plain numbers
                             manifest.json    sha256 of every file, written last
checkpoints/frozen.safetensors   parameters that do not learn, written once; the manifests have its sha256 too
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from segue.data.atomic import atomic_file, atomic_folder

KEEP = 2
FROZEN = "frozen"
"""The group of tensors that never change."""
_SHARED = f"../{FROZEN}.safetensors"
"""Its file, as a checkpoint sees it."""


class Checkpoint(NamedTuple):
    tensors: dict[str, dict[str, Tensor]]
    values: dict[str, Any]


def write_tensors(tensors: dict[str, Tensor]) -> bytes:
    """Serialise tensors as safetensors; tied tensors are written under each of their names."""
    return bytes(save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}))


def save_checkpoint(folder: Path, step: int, tensors: dict[str, dict[str, Tensor]], values: dict[str, Any]) -> None:
    """Write a checkpoint and remove all but the last `KEEP`, and later ones, which can only be damaged."""
    place = folder / f"step-{step:08d}"
    clear_unfinished(folder)
    shared = {_SHARED: _written_once(folder, tensors[FROZEN])} if FROZEN in tensors else {}
    with atomic_folder(place, folder / f".writing-{os.getpid()}") as beside:
        files = {f"{name}.safetensors": write_tensors(group) for name, group in tensors.items() if name != FROZEN}
        files["values.json"] = json.dumps(values).encode()
        for name, content in files.items():
            _write(beside / name, content)
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        _write(beside / "manifest.json", json.dumps(sums | shared).encode())
        if place.exists():
            shutil.rmtree(place)
    kept = [found for found in _found(folder) if found.name <= place.name][:KEEP]
    for old in _found(folder):
        if old not in kept:
            # Renamed first: a process that is killed while it removes a checkpoint leaves none that looks whole.
            shutil.rmtree(old.rename(folder / f".writing-{old.name}"))


def _written_once(folder: Path, tensors: dict[str, Tensor]) -> str:
    """Write the tensors that never change beside the checkpoints, unless they are there; return their sha256."""
    place, known = folder / f"{FROZEN}.safetensors", folder / f"{FROZEN}.sha256"
    if not known.exists():
        folder.mkdir(parents=True, exist_ok=True)
        content = write_tensors(tensors)
        with atomic_file(place) as beside:
            _write(beside, content)
        with atomic_file(known) as beside:
            _write(beside, hashlib.sha256(content).hexdigest().encode())
    return known.read_text()


def latest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Load the last whole checkpoint; also return a sentence about each damaged one that was skipped."""
    passed: list[str] = []
    for place in _found(folder):
        try:
            return _load(place), passed
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            passed.append(f"Checkpoint {place} is damaged ({error}); the one before it is used.")
    (folder / f"{FROZEN}.sha256").unlink(missing_ok=True)  # what the run does not learn is written anew too
    return None, passed


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed run left half written."""
    for left in folder.glob(".writing-*"):
        shutil.rmtree(left, ignore_errors=True)


def _found(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)


def _load(place: Path) -> Checkpoint:
    sums = json.loads((place / "manifest.json").read_text())
    files = {name: (place / name).read_bytes() for name in sums}
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != sums[name]:
            raise ValueError(f"{name} does not match its checksum")
    tensors = {Path(name).stem: load(files[name]) for name in files if name.endswith(".safetensors")}
    return Checkpoint(tensors, json.loads(files["values.json"]))


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
