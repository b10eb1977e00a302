"""Write the run folder of an imported model: the same files as those of a trained run, with no training steps."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from segue.data.atomic import atomic_folder
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.models.base import Sizes
from segue.recipe import Recipe, to_toml
from segue.runs import folder as files


def check_free(out: Path) -> None:
    """Refuse an existing folder before reading a large file in vain."""
    if out.exists():
        raise InputError(f"{out} exists already; nothing is overwritten. Choose another --out.")


def write_imported_run(
    out: Path,
    recipe: Recipe,
    sizes: Sizes,
    tokenizer: dict[str, Any],
    ledger: Ledger,
    source: Path,
    parameters: int,
    save: Callable[[Path], None],
    labels: Sequence[str] = (),
) -> list[str]:
    """Make the run folder, whole or not at all; `save` writes model.safetensors, and what else is the model's own.

    Returns what its owner should know, as the ledger has it."""
    config = {"kind": recipe.kind, "format": files.FORMAT, "imported": str(source)}
    config |= {"config": dataclasses.asdict(recipe.model), "sizes": dataclasses.asdict(sizes), "labels": list(labels)}
    result = {"model": recipe.name, "parameters": parameters, "train_seconds": 0.0, "steps": 0}
    with atomic_folder(out) as beside:
        save(beside)
        files.write_atomic(beside / "recipe.toml", to_toml(recipe))
        files.write_json(beside / "environment.json", files.environment("cpu", 0, 0))
        files.write_json(beside / "ledger.json", {**ledger.to_dict(), "summary": ledger.summary()})
        files.write_atomic(beside / "tokenizer.json", json.dumps(tokenizer, ensure_ascii=False) + "\n")
        files.write_json(beside / "config.json", config | {"files": files.sums_of(beside)})
        (beside / "metrics.jsonl").touch()
        files.write_json(beside / "result.json", result | {"epochs": 0.0, "tokens_per_second": 0.0})
    return ledger.summary()
