"""The run folder: its files, its lock, and what it says about how it was made.

    recipe.toml  environment.json  ledger.json  tokenizer.json  speller.json  config.json
    model.safetensors  metrics.jsonl  result.json  report.html  checkpoints/

Every file is written beside its place and renamed, so that it is whole or not there.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from segue.errors import InputError

FORMAT = 1
"""The version of the run folder; a newer one is refused, not guessed at."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """The file is whole or not there."""
    beside = path.with_name(f".{path.name}.writing")
    try:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, to_json(value, indent=1) + "\n")


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: an infinite or missing figure is null."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path) -> Any:
    """A file of a run, or an InputError that says what is wrong with it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path.parent} is not a finished run: {path.name} is missing.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged: {error}. Train the run again, or restore the file.") from None


def check_run(folder: Path) -> dict[str, Any]:
    """config.json of a finished run."""
    if not folder.is_dir():
        raise InputError(f"There is no run folder {folder}. `segue runs` lists what there is.")
    if not (folder / "recipe.toml").exists():
        raise InputError(f"{folder} is not a run folder: it holds no recipe.toml.")
    if not (folder / "config.json").exists():
        raise InputError(f"The run in {folder} is not finished. Go on with: segue train --out {folder} --resume")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise InputError(f"{folder / 'config.json'} is damaged: it has no format number.")
    if config["format"] > FORMAT:
        raise InputError(
            f"The run in {folder} was written by a newer Segue (format {config['format']}, this one reads {FORMAT}). "
            "Install that version, or train the run again."
        )
    return config


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps two writers apart; the lock of a killed process is gone with it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(f"Another process is writing to {folder}. Wait for it, or choose another --out.") from None
    try:
        yield
    finally:
        file.close()


def free_name(stem: str) -> Path:
    """runs/stem, or runs/stem-2, … where that is taken."""
    for number in range(1, 100_000):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            return path
    raise InputError(f"runs/ holds too many runs called {stem}. Name one with --out.")


def environment(device: str, threads: int, seed: int) -> dict[str, Any]:
    """What a run was made with."""
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
