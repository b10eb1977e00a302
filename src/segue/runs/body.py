"""The body of a run (model.body): another run's model, copied into the run's store when training begins.

From then on the run stands alone: it goes on after a crash although the body's run was moved or removed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from segue.batches.codec import BodySpec, Sizes
from segue.data.atomic import atomic_file
from segue.errors import InputError
from segue.models import model_class
from segue.models.base import Body, config_of
from segue.recipe import Recipe
from segue.runs import folder as files
from segue.runs.pretrained import pretraining

WIDTH, POWER, HEAD = 128, 2.0, 2.0
"""The rate of a shipped recipe is for a body of this width. A wider one learns at (WIDTH / width) ** POWER of it: 3e-5
where it is 1e-3 and the body BERT-base, 768 wide, as its authors have it. A head alone learns at HEAD times it."""
LEAST = 8
"""Tokens of the smallest window."""
_WEIGHTS, _SPEC = "body.safetensors", "body.json"


class Kept(NamedTuple):
    """A body in the store."""

    spec: BodySpec
    weights: Path | None
    """None: the run begins with the weights of another one of its kind (train.init)."""
    sha256: str
    pretrained: dict[str, Any]
    """The run that it comes from, and the seconds that it was trained."""

    @property
    def window(self) -> int:
        """Tokens that it sees at once; 0: any number."""
        cls: Any = model_class(self.spec.kind)
        return int(cls.window_of(config_of(cls.Config, self.spec.config)))


def rate_for(recipe: Recipe) -> float:
    """Return the learning rate that suits the body of a run, from the rate of its recipe. The body is another run's
    model or, with train.init, stands in that run."""
    rate: float = recipe.train.optimizer.rate
    if not recipe.model_class.framed:
        return rate
    if recipe.model.frozen:
        return rate * HEAD
    init = recipe.train.init
    body = files.check_run(Path(init))["sizes"].get("body") if init else files.check_run(Path(recipe.model.body))
    width = body["config"].get("width", WIDTH) if body else WIDTH
    return float(f"{rate * min(1.0, (WIDTH / width) ** POWER):.2g}")


def with_rate(recipe: Recipe, rate: float) -> Recipe:
    """Set the learning rate of a run with a body, unless the user has named one."""
    if not recipe.model_class.framed or "train.optimizer.rate" in recipe.train.named.split(","):
        return recipe
    return recipe.with_values("train", optimizer=dataclasses.replace(recipe.train.optimizer, rate=rate))


def check_body(recipe: Recipe, store: Path) -> None:
    """Refuse, before any data is read, a run that cannot be a body."""
    if not recipe.model_class.framed or (store / _SPEC).exists():
        return
    if init := recipe.train.init:
        if not files.check_run(Path(init))["sizes"].get("body"):
            raise InputError(
                f"train.init={init} has no body: it goes on with a run of {recipe.kind}. For a new head on that run "
                f"name it as the body, model.body={init}."
            )
        return
    if not recipe.model.body:
        raise InputError(
            f"{recipe.kind} puts a head on the model of another run: name that run, model.body=runs/bert. Train one "
            "on text first: segue train bert book.txt"
        )
    run = files.check_run(Path(recipe.model.body))
    kind = run["kind"]
    if run["sizes"].get("body"):
        raise InputError(
            f"model.body={recipe.model.body} is a {kind}, which has a head already. Name the run under it, or go "
            f"on with this one: segue train {kind} DATA train.init={recipe.model.body}"
        )
    if kind.endswith(".py") or not issubclass(model_class(kind), Body):
        raise InputError(
            f"model.body={recipe.model.body} is a {kind}, which has no hidden states to put a head on. Expected a run "
            "of bert, elmo, t5, gpt or rnn_lm."
        )


def keep_body(recipe: Recipe, store: Path) -> Kept | None:
    """Copy the body's weights into the store, unless they are there; the description last, so that both are whole."""
    if not recipe.model_class.framed:
        return None
    if not (store / _SPEC).exists():
        store.mkdir(parents=True, exist_ok=True)
        init = recipe.train.init
        found = files.check_run(Path(init))["sizes"]["body"] if init else _copied(Path(recipe.model.body), store)
        files.write_json(store / _SPEC, {**found, "pretrained": pretraining(init or recipe.model.body)})
    return kept_body(store)


def _copied(run: Path, store: Path) -> dict[str, Any]:
    """Copy the weights of a run into the store; return what describes its model."""
    config = files.check_run(run)
    files.check_sums(run, config)
    with atomic_file(store / _WEIGHTS) as beside:
        shutil.copy(run / "model.safetensors", beside)
    with (store / _WEIGHTS).open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"kind": config["kind"], "config": config["config"], "sizes": config["sizes"], "sha256": sha256}


def kept_body(store: Path) -> Kept | None:
    """Return the body in a store, if there is one."""
    if not (store / _SPEC).exists():
        return None
    found = files.read_json(store / _SPEC)
    spec = BodySpec(found["kind"], found["config"], Sizes.of(found["sizes"]))
    weights = store / _WEIGHTS
    return Kept(spec, weights if "sha256" in found else None, found.get("sha256", ""), found["pretrained"])


def inputs_of(recipe: Recipe, sizes: Sizes) -> tuple[str, ...]:
    """List the optional fields of Batch that the model of a run reads, or the body under its head: letters."""
    own: tuple[str, ...] = recipe.model_class.inputs_of(recipe.model)
    read = () if sizes.body is None else model_class(sizes.body.kind).inputs
    return (*own, *(name for name in read if name == "chars_BTC" and name not in own))


def with_body(sizes: Sizes, body: Kept | None, length: int) -> Sizes:
    """Add a body to the sizes of a run: its marks and separators, and windows of `length` tokens at the most."""
    if body is None:
        return sizes
    own = body.spec.sizes
    window = min(body.window or length, length)
    if window < LEAST:
        raise InputError(
            f"The body sees {window} tokens at once (batches.length, or the body's own window). Expected {LEAST} or "
            "more, since the frame of a pair takes up to 4 of them."
        )
    return dataclasses.replace(
        sizes, marks=own.marks, separators=own.separators, stopped=own.stopped, body=body.spec, window=window
    )
