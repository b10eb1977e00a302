"""The run folder: its files, its lock, and what it says about how it was made.

    recipe.toml  environment.json  ledger.json  tokenizer.json  source_tokenizer.json  speller.json
    config.json  model.safetensors  train_hashes.safetensors  metrics.jsonl  result.json  report.html  checkpoints/
    huggingface/ (of an imported run: what it came with)

Every file is written beside its place and renamed, so that it is whole or not there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from segue.data.atomic import atomic_file, atomic_folder
from segue.errors import FULL, InputError, goes_on
from segue.output.visible import visible_json

OWN = frozenset(
    (
        *("recipe.toml", "asked.toml", "environment.json", "ledger.json", "tokenizer.json", "source_tokenizer.json"),
        *(
            "speller.json",
            "config.json",
            "model.safetensors",
            "train_hashes.safetensors",
            "metrics.jsonl",
            "result.json",
        ),
        *("report.html", "checkpoints", "tensorboard", "store", ".lock", "huggingface"),
    )
)
"""All that a run writes into its folder; nothing else there is ever removed."""
ORIGIN = "huggingface"
"""The folder in that of an imported run with what it came with (interop/huggingface/origin.py)."""
ORIGIN_FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja"),
    *("ids.json", "types.json", "rest.safetensors"),
)
"""All that may be in it."""
COMPARISON = "comparison.json"
"""The file in the folder of a comparison with what it was asked for."""
FORMAT = 1
"""The version of the run folder; a newer one is refused, not guessed at."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file atomically: it is whole or not there."""
    with atomic_file(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, to_json(value, indent=1) + "\n")


def to_json(value: Any, indent: int | None = None) -> str:
    """Write strict JSON: an infinite or missing figure is null."""
    return visible_json(json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path, **types: Any) -> dict[str, Any]:
    """Read a JSON file of a run, or raise an InputError that says what is wrong with it. `types`: keys that it must
    have, and the type of each, or several."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path.parent} is not a finished run: {path.name} is missing.") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise _damaged(path, "it holds no keys")
    for key, kind in types.items():
        if not isinstance(found.get(key), kind) or isinstance(found.get(key), bool):
            raise _damaged(path, f"its {key} is {_shown(found.get(key))}")
    return found


def _shown(value: Any) -> str:
    shown = "missing" if value is None else json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}…"


def read_result(folder: Path) -> dict[str, Any]:
    """Read the result.json of a run, which marks it as finished."""
    number = (int, float)
    return read_json(folder / "result.json", model=str, parameters=int, steps=int, train_seconds=number, epochs=number)


def read_files(folder: Path) -> dict[str, str]:
    """Read in the ledger of a run which files it was made of: the sha256 of each path."""
    listed = read_json(folder / "ledger.json", files=list)["files"]
    if not all(isinstance(file, dict) and {"path", "sha256"} <= file.keys() for file in listed):
        raise _damaged(folder / "ledger.json", "its files have no path and sha256")
    return {str(file["path"]): str(file["sha256"]) for file in listed}


def check_run(folder: Path) -> dict[str, Any]:
    """Check that a run is finished and readable; return its config.json."""
    if not folder.is_dir():
        raise InputError(f"There is no run folder {folder}. `segue runs` lists what there is.")
    if not (folder / "recipe.toml").exists():
        raise InputError(f"{folder} is not a run folder: it holds no recipe.toml.")
    if not (folder / "config.json").exists():
        raise InputError(f"The run in {folder} is not finished. Go on with: segue train --out {folder} --resume")
    config = read_json(folder / "config.json")
    if type(config.get("format")) is not int:
        raise _damaged(folder / "config.json", "it has no format number")
    if config["format"] > FORMAT:
        raise InputError(
            f"The run in {folder} was written by a newer Segue (format {config['format']}, this one reads {FORMAT}). "
            "Install that version, or train the run again."
        )
    for key, kind in (("kind", str), ("sizes", dict), ("labels", list)):
        if not isinstance(config.get(key), kind):
            raise _damaged(folder / "config.json", f"it has no {key}")
    if not all(isinstance(label, str) for label in config["labels"]):
        raise _damaged(folder / "config.json", "its labels are not all texts")
    return config


# Checksums: config.json has the size and the sha256 of the files that the model is made of.

SUMMED = ("model.safetensors", "tokenizer.json", "source_tokenizer.json", "speller.json")
_SMALL = 16 << 20
"""Opening a run always checks the sizes of its files, and the sums of those up to this many bytes: some 10 ms. Larger
ones would make opening noticeably slower; `segue import` checks them all."""


def sums_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the size and the sha256 of the files that the model is made of."""
    return {
        name: {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for name in SUMMED
        if (path := folder / name).exists()
    }


def check_sums(folder: Path, config: dict[str, Any], every: bool = False) -> None:
    """Check the files of a run against the sizes and sums in its config.json; with `every`, also those of large
    files."""
    facts = config.get("files", {})
    if not isinstance(facts, dict):
        raise _damaged(folder / "config.json", "its files are not a table")
    for name in SUMMED:
        path, fact = folder / name, facts.get(name)
        if fact is None:
            continue
        if not isinstance(fact, dict):
            raise _damaged(folder / "config.json", f"it does not say how large {name} is")
        size = path.stat().st_size if path.is_file() else -1
        same = size == fact.get("bytes") and ((size > _SMALL and not every) or _sha256(path) == fact.get("sha256"))
        if size >= 0 and not same:
            raise _damaged(
                path, "it has changed since the run was finished (its size or sha256 is not that in config.json)"
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} is damaged: {reason}. Restore it, or train the run again.")


def changed_file(read: Iterable[dict[str, Any]], folder: Path) -> str | None:
    """Return the first file that has changed since the run in `folder` was made, by its checksum."""
    if not (folder / "ledger.json").exists():
        return None
    old = read_files(folder)
    return next((str(file["path"]) for file in read if old.get(file["path"]) != file["sha256"]), None)


def check_same_files(read: Iterable[dict[str, Any]], folder: Path) -> None:
    """Refuse to go on with a run if a file of its data is not the one that it began with."""
    if changed := changed_file(read, folder):
        raise InputError(f"{changed} has changed since the run in {folder} began. Restore it, or choose another --out.")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder against a second writer; the system releases the lock of a killed process."""
    file = _lock(folder)
    while not _is(file, folder / ".lock"):  # its last owner has removed it meanwhile
        file.close()
        file = _lock(folder)
    try:
        yield
    finally:
        file.close()


@contextmanager
def held(folder: Path, made: list[Path], again: str, check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock the folder of an experiment of several runs, and check it. After a failure the runs are kept, and the
    message names the command that goes on (`again`); if there are none, nothing is left."""
    own = not (folder / ".lock").exists()
    with locked(folder):
        clear_leftovers(folder, finished=False)
        try:
            check()
        except InputError:
            if own:
                (folder / ".lock").unlink(missing_ok=True)
            raise
        before = entries(folder) - {".lock"}
        try:
            yield
        except BaseException as error:
            if any(folder.glob("**/recipe.toml")):
                goes_on(error, again)
                raise
            for name in {COMPARISON, ".lock"} - before:
                (folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # someone else may have put something there
                for path in made:
                    path.rmdir()
            raise


def _lock(folder: Path) -> Any:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a")
    except OSError as error:
        if error.errno in FULL:
            raise
        if folder.is_file():
            raise InputError(f"{folder} exists and is not a folder. Choose another --out.") from None
        raise InputError(f"{folder} cannot be written to: {error.strerror}. Choose another --out.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(f"Another process is writing to {folder}. Wait for it, or choose another --out.") from None
    return file


def _is(file: Any, path: Path) -> bool:
    """Whether an open file is the one that stands at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def missing(folder: Path) -> list[Path]:
    """List the folder and its parents that do not exist yet, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def entries(folder: Path) -> set[str]:
    """List the names in a folder; none if there is no such folder."""
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def is_own(name: str) -> bool:
    """Whether a file or folder of this name in a run folder is one that a run writes."""
    return name in OWN or is_leftover(name)


def is_leftover(name: str) -> bool:
    """Whether a name is that of a file which a killed process has not written to its end."""
    return name.startswith(".") and name.endswith(".writing")


def clear_leftovers(folder: Path, finished: bool) -> None:
    """Remove what a killed process has left in a run folder: half written files and checkpoints, and of a finished run
    its ids. The caller holds the lock."""
    for name in filter(is_leftover, entries(folder)):
        remove(folder / name)
    for half in (folder / "checkpoints").glob(".writing-*"):
        remove(half)
    if finished:
        remove(folder / "store")


def undo(folder: Path, before: set[str], made: list[Path]) -> None:
    """Remove what a run has written into a folder, nothing that was there `before`, and the folders `made` for it."""
    for name in filter(is_own, entries(folder) - before):
        remove(folder / name)
    with suppress(OSError):  # someone else may have put something there
        for path in made:
            path.rmdir()


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; where a link points to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def copy_origin(run: Path, folder: Path) -> None:
    """Copy what an imported run came with to a run that begins from it, unless it is there."""
    if (run / ORIGIN).is_dir() and not (folder / ORIGIN).exists():
        half = folder / f".{ORIGIN}.writing"
        remove(half)  # of a process that was killed
        with atomic_folder(folder / ORIGIN, half):
            shutil.copytree(run / ORIGIN, half, dirs_exist_ok=True)


def free_name(stem: str) -> Path:
    """Return runs/stem, or runs/stem-2, … if that exists."""
    for number in range(1, 100_000):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            return path
    raise InputError(f"runs/ holds too many runs called {stem}. Name one with --out.")


def environment(device: str, threads: int, seed: int, processes: int = 1) -> dict[str, Any]:
    """Describe what a run was made with: versions, machine, device, threads, seed."""
    packages = {}
    for name in ("segue", "torch", "numpy", "tokenizers", "safetensors"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "unknown"
    return {
        "versions": {"python": platform.python_version(), **packages},
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": device,
        "threads": threads,
        "processes": processes,
        "command": " ".join(sys.argv),
        "seed": seed,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
