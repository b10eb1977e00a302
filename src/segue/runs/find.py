"""Find, remove and rename runs: those below a folder, each with its main figure, grouped by the text that it is of."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segue.errors import InputError, nearest
from segue.inference.evaluation import LOWER_IS_BETTER, NAMES, PER_TOKEN
from segue.models import task_of
from segue.runs import folder as files
from segue.runs.folder import read_json

_BESIDE = (files.COMPARISON, "report.html", "result.json", "picture.svg", ".lock")
"""What may stand in the folder of a comparison or a claim beside its runs."""
SORTS = ("best", "date", "name", "size", "time")


def find_runs(folder: Path, sort: str = "best") -> list[dict[str, Any]]:
    """The runs below a folder. Runs with the same `group` have the same figure of the same text, and stand together,
    best first; a run without a figure, or with one of an unknown text, is alone in its group. Other orders: the newest,
    the largest (by parameters) or the one that trained longest first; or by name."""
    if sort not in SORTS:
        raise InputError(f"--sort {sort} is not known.{nearest(sort, SORTS)}")
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. `segue train` makes runs/ when it is first needed.")
    groups: dict[Any, list[dict[str, Any]]] = {}
    for recipe in sorted(folder.rglob("recipe.toml")):
        row, text = _row(recipe)
        groups.setdefault(text or row["run"], []).append(row)
    ordered = sorted(groups.values(), key=len, reverse=True)
    rows = [row | {"group": i} for i, group in enumerate(ordered) for row in sorted(group, key=_worth)]
    if sort == "name":
        return sorted(rows, key=lambda row: str(row["run"]))
    if sort == "date":
        return sorted(rows, key=lambda row: str(row["date"]), reverse=True)
    if key := {"size": "parameters", "time": "train_seconds"}.get(sort):
        return sorted(rows, key=lambda row: row.get(key) or 0, reverse=True)
    return rows


def _row(recipe: Path) -> tuple[dict[str, Any], tuple[Any, ...] | None]:
    """One run, and what its figure is of; None if it has no figure or its text is not known."""
    path = recipe.parent
    result_file = path / "result.json"
    made = result_file if result_file.exists() else recipe
    date = datetime.datetime.fromtimestamp(made.stat().st_mtime).isoformat(" ", "minutes")
    row: dict[str, Any] = {"run": str(path), "finished": False, "value": None, "had_a_say": None}
    row |= {"date": date, **_of_recipe(recipe)}
    if not result_file.exists():
        return row, None
    try:
        result = _checked(read_json(result_file), result_file)
    except InputError as error:
        return row | {"damaged": str(error)}, None
    main = result.get("figure", "")
    # Tokens that lose text have no bits per byte; scores that are no probabilities have no perplexity either.
    main = next((name for name in (main, *PER_TOKEN) if name in result), "mean_negative_log_score")
    row |= {
        "finished": True,
        "model": result.get("model"),
        "figure": NAMES.get(main, main) if main in result else None,
        "value": result.get(main),
        "split": result.get("split"),
        **{str(key): result[key] for key in ("bytes", "rows") if key in result},
        "amount": result.get("amount"),
        "sha256": result.get("sha256"),
        "had_a_say": result.get("had_a_say"),
        "parameters": result.get("parameters"),
        "train_seconds": result.get("train_seconds"),
        "lower_is_better": main in LOWER_IS_BETTER or main == "mean_negative_log_score",
    }
    # Perplexities are of tokens, so that only bits per byte compare models with other tokens.
    of_tokens = result.get("tokens") if main in (*PER_TOKEN, "mean_negative_log_score") else None
    same = (result.get("task"), main, result.get("split"), row["amount"], row["sha256"], of_tokens)
    return row, same if row["sha256"] else None


_TEXTS = ("task", "model", "figure", "split", "amount", "sha256")
_NUMBERS = ("parameters", "train_seconds", "tokens", "bytes", "rows", "perplexity", "mean_negative_log_score")


def _checked(result: Any, path: Path) -> dict[str, Any]:
    """Check that what is shown of a result.json has the types that a run writes."""
    wrong = []
    if isinstance(result, dict):
        wrong += [] if "model" in result else ["model"]
        wrong += [key for key in _TEXTS if not isinstance(result.get(key, ""), str)]
        numbers = (*_NUMBERS, str(result.get("figure", "")))
        wrong += [key for key in numbers if not isinstance(result.get(key), int | float | None)]
    if wrong or not isinstance(result, dict):
        raise InputError(f"{path} is damaged: {wrong[0] if wrong else 'it'} is not what a run writes.")
    return result


def _of_recipe(recipe: Path) -> dict[str, str]:
    """The recipe's data.path, and the task of its kind."""
    try:
        values = tomllib.loads(recipe.read_text(encoding="utf-8"))
        return {"data": str(values["data"]["path"]), "task": task_of(str(values["kind"]))}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError, OSError, InputError):
        return {"data": "", "task": ""}


def _worth(row: dict[str, Any]) -> float:
    """The place of a run in its group: the best figure first, none last."""
    if row["value"] is None:
        return float("inf")
    return float(row["value"] if row["lower_is_better"] else -row["value"])


# Removing and renaming


def remove_runs(paths: Sequence[Path]) -> list[str]:
    """Remove runs, or comparisons with all their runs. Everything is checked first: a folder that is no run, or holds
    anything that no run writes, is refused, and then nothing is removed. Return a sentence for each."""
    for path in paths:
        _check_own(path)
    said = []
    for path in paths:
        _remove(path)
        rows = path.parent / f"{path.name}.data.jsonl"
        said.append(f"{path} is removed." + (f" Its data stays: {rows}" if rows.exists() else ""))
    return said


def _remove(path: Path) -> None:
    """Remove what Segue has written into a folder, and the folder if nothing else is in it."""
    names = files.entries(path)
    with files.locked(path):
        if "recipe.toml" not in names:
            for run in _inner(path):
                _remove(run)
        for name in filter(files.is_own if "recipe.toml" in names else _is_beside, names):
            files.remove(path / name)
        files.remove(path / ".lock")
    path.rmdir()


def _inner(path: Path) -> list[Path]:
    """List the folders in that of a comparison or a claim."""
    return [one for one in path.iterdir() if one.is_dir() and not (one.is_symlink() or one.name.startswith("."))]


def _is_beside(name: str) -> bool:
    """Whether a comparison or a claim writes a file of this name beside its runs."""
    return name in _BESIDE or name.startswith(".ids-") or files.is_leftover(name)


def move_run(path: Path, new: Path) -> str:
    """Rename a run or a comparison, or move it to another folder; return a sentence."""
    _check_own(path, strange=True)
    if new.exists() or new.is_symlink():
        raise InputError(f"{new} exists already; nothing is overwritten. Choose another name.")
    if new.resolve().is_relative_to(path.resolve()):
        raise InputError(f"{new} is inside {path}. Choose another place.")
    with files.locked(path):
        new.parent.mkdir(parents=True, exist_ok=True)
        path.rename(new)
    return f"{path} is now {new}."


def _check_own(path: Path, strange: bool = False) -> None:
    """Refuse a folder that is not a run, nor a comparison or a claim of runs; or that holds anything which Segue has
    not written, unless strange things may stay in it."""
    if path.is_symlink() or not path.is_dir():
        what = "is a link" if path.is_symlink() else "is no folder" if path.exists() else "is not there"
        raise InputError(f"{path} {what}. Expected a run folder; `segue runs` lists them.")
    names = files.entries(path)
    if "recipe.toml" in names:
        others = sorted(name for name in names if not files.is_own(name))
    elif files.COMPARISON in names or _is_verdict(path / "result.json"):
        inner = _inner(path)
        for run in inner:
            _check_own(run, strange)
        others = sorted(name for name in names - {run.name for run in inner} if not _is_beside(name))
    else:
        raise InputError(f"{path} is not a run: it holds no recipe.toml. `segue runs` lists the runs.")
    if others and not strange:
        raise InputError(f"{path} holds {others[0]}, which no run writes. Move it away, or remove the folder yourself.")


def _is_verdict(path: Path) -> bool:
    """Whether a file is the result.json of a comparison or a claim."""
    try:
        result = read_json(path)
    except InputError:
        return False
    return isinstance(result, dict) and {"verdict", "rows", "report"} <= result.keys()
