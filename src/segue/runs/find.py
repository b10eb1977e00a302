"""Finding runs: those below a folder, each with its main figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from segue.errors import InputError
from segue.inference.evaluation import NAMES
from segue.runs.folder import read_json


def find_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs below a folder, with their main figure."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. `segue train` makes runs/ when it is first needed.")
    found = []
    for recipe in sorted(folder.rglob("recipe.toml")):
        path = recipe.parent
        if not (path / "result.json").exists():
            found.append({"run": str(path), "finished": False})
            continue
        try:
            result = read_json(path / "result.json")
        except InputError as error:
            found.append({"run": str(path), "finished": False, "damaged": str(error)})
            continue
        main = result.get("figure", "")
        # Tokens that lose text have no bits per byte; scores that are no probabilities have no perplexity either.
        main = next((name for name in (main, "perplexity") if name in result), "mean_negative_log_score")
        found.append(
            {
                "run": str(path),
                "finished": True,
                "model": result.get("model"),
                "figure": NAMES.get(main, main) if main in result else None,
                "value": result.get(main),
                "train_seconds": result.get("train_seconds"),
            }
        )
    return found
