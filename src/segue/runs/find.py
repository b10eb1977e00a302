"""Finding runs: those below a folder, each with its main figure, grouped by the text that the figure is of."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from segue.errors import InputError
from segue.inference.evaluation import LOWER_IS_BETTER, NAMES
from segue.runs.folder import read_json


def find_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs below a folder. Runs with the same `group` have the same figure of the same text, and stand together,
    best first; a run without a figure, or with one of an unknown text, is alone in its group."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. `segue train` makes runs/ when it is first needed.")
    groups: dict[Any, list[dict[str, Any]]] = {}
    for recipe in sorted(folder.rglob("recipe.toml")):
        row, text = _row(recipe)
        groups.setdefault(text or row["run"], []).append(row)
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [row | {"group": i} for i, rows in enumerate(ordered) for row in sorted(rows, key=_worth)]


def _row(recipe: Path) -> tuple[dict[str, Any], tuple[Any, ...] | None]:
    """One run, and what its figure is of; None if it has no figure or its text is not known."""
    path = recipe.parent
    row: dict[str, Any] = {"run": str(path), "finished": False, "value": None, "had_a_say": None}
    if not (path / "result.json").exists():
        return row, None
    try:
        result = read_json(path / "result.json")
    except InputError as error:
        return row | {"damaged": str(error)}, None
    main = result.get("figure", "")
    # Tokens that lose text have no bits per byte; scores that are no probabilities have no perplexity either.
    main = next((name for name in (main, "perplexity") if name in result), "mean_negative_log_score")
    row |= {
        "finished": True,
        "model": result.get("model"),
        "figure": NAMES.get(main, main) if main in result else None,
        "value": result.get(main),
        "split": result.get("split"),
        **{key: result[key] for key in ("bytes", "rows") if key in result},
        "amount": result.get("amount"),
        "sha256": result.get("sha256"),
        "had_a_say": result.get("had_a_say"),
        "data": _data(recipe),
        "train_seconds": result.get("train_seconds"),
        "lower_is_better": main in LOWER_IS_BETTER or main == "mean_negative_log_score",
    }
    # Perplexities are of tokens, so that only bits per byte compare models with other tokens.
    of_tokens = result.get("tokens") if main in ("perplexity", "mean_negative_log_score") else None
    same = (result.get("task"), main, result.get("split"), row["amount"], row["sha256"], of_tokens)
    return row, same if row["sha256"] else None


def _data(recipe: Path) -> str:
    """The recipe's data.path."""
    try:
        return str(tomllib.loads(recipe.read_text(encoding="utf-8"))["data"]["path"])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return ""


def _worth(row: dict[str, Any]) -> float:
    """The place of a run in its group: the best figure first, none last."""
    if row["value"] is None:
        return float("inf")
    return float(row["value"] if row["lower_is_better"] else -row["value"])
