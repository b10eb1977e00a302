"""What result.json says of the run that a run began from (train.init, model.body): its seconds, and its weights.

A comparison under one budget would hide pre-training if nobody said how long it took; the page shows where the weights
have changed since (training/weight_change.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from segue.errors import InputError
from segue.recipe import Recipe
from segue.runs.folder import read_json


def pretraining(run: str) -> dict[str, Any]:
    """Return how many seconds a run was trained, with the runs that it began from itself; None where that is not known,
    as of a run that was imported."""
    try:
        result = read_json(Path(run) / "result.json")
        imported = "imported" in read_json(Path(run) / "config.json")
    except InputError:
        imported = True
    if imported:
        return {"run": run, "seconds": None}
    before = result.get("pretrained") or {"seconds": 0.0}
    known = [result.get("train_seconds"), before["seconds"]]
    return {"run": run, "seconds": sum(known) if None not in known else None}


def since_then(recipe: Recipe, model: Any, body: Any) -> dict[str, Any]:
    """Return the entries of result.json about the run that a model began from. `body`: what the run's store keeps of a
    body (runs/body.py), if it has one."""
    init = recipe.train.init
    if not init and body is None:
        return {}
    found: dict[str, Any] = {"pretrained": pretraining(init) if init else body.pretrained}
    if not init and recipe.model.frozen:
        return found
    from segue.training.weight_change import weight_change

    weights, inside = (Path(init) / "model.safetensors", "") if init else (body.weights, "body.")
    found["weight_change"] = {"run": found["pretrained"]["run"], **weight_change(_used(model), weights, inside)}
    return found


def _used(model: Any) -> list[tuple[str, Any]]:
    """The weights of a network, but for what a head leaves unused of its body: that cannot change."""
    from segue.models.heading import Heading

    names = (*model.body.head_names, *model.body.beside_states) if isinstance(model, Heading) else ()
    unused = tuple(f"body.{name}" for name in names)
    weights = model.named_parameters()
    return [(name, weight) for name, weight in weights if weight.requires_grad or not name.startswith(unused)]
