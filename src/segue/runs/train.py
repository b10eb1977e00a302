"""Train a model: from a recipe and its data to a finished run folder. Read this first.

corpus -> codec -> store -> batches -> model -> trainer -> run folder
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from segue.inference.opened import Opened
from segue.models.base import Counted
from segue.recipe import Recipe
from segue.runs import gather, plan
from segue.runs.folder import read_result
from segue.runs.prepare import Prepared, Shared, prepare
from segue.runs.pretrained import since_then
from segue.runs.resume import Begun, Data, Model, Out, Settings, begin, follow
from segue.runs.run import Run
from segue.runs.threads import choose, may_change
from segue.training import device as devices
from segue.training.fitting import Fitting
from segue.training.log import Log, Progress, silent
from segue.training.world import World, join

if TYPE_CHECKING:
    from segue.models.network import Network


def train(
    model: Model = None,
    data: Data = None,
    out: Out = None,
    settings: Settings = (),
    resume: bool = False,
    device: str = "auto",
    threads: int = 0,
    trust: bool = False,
    progress: Progress = silent,
    profile: bool = False,
    shared: Shared | None = None,
    overwrite: bool = False,
) -> Run:
    """Train a model (a kind, a recipe, a TOML file, or a run to begin from) into a folder, or go on with the run in it.

    `data` is a path or the name of a corpus, or a list: texts, (label, text) pairs, (words, tags) pairs or
    (source, target) pairs, as the model needs. `settings` are keys of the recipe, {"train.steps": 200}. With
    `overwrite` the run takes the place of the one in the folder. Every process of torchrun calls this; only the first
    one reads and writes. Runs that differ only in train.seed may share their prepared data (`shared`).
    """
    others, threads = devices.Others(), threads or devices.asked_threads()
    devices.check_threads(threads)
    world, device = join(device)
    progress = progress if world.first else silent
    given = (model, data, out, settings, resume, threads, trust, progress, overwrite)
    begun = begin(*given) if world.first else follow(world, trust)
    recipe = begun.recipe
    if world.size > 1:
        shared = None  # every process reads the run's own ids
    elif shared is not None and shared.prepared is not None:
        begun.corpus = shared.prepared.corpus
    device = device_of(recipe, device, progress)
    counts = issubclass(recipe.model_class, Counted)
    with devices.using_threads(0 if counts else threads), begun.kept(world, device, progress):
        if begun.finished:
            read_result(begun.path)
            return Run.open(begun.path, device, trust, finished_before=True)
        prepared = prepare(begun, world, progress, shared)
        if counts and not world.first:
            world.wait()  # the first process alone counts
            return Run.open(begun.path, device, trust)
        trial = partial(make, prepared=prepared, device=device, world=world)
        taken = 0.0 if counts else choose(begun, threads, device, world, others, trial, progress)
        prepared, planned = fit_to_budget(begun, prepared, device, world, trial)
        trainer = make(begun.recipe, prepared, device, world, progress, profile, taken + planned)
        if not counts and may_change(threads, device, world):
            trainer.pace = devices.FallingPace()
        with Log(begun.path, trainer, recipe.name, world, progress) as log:
            for record in trainer.fit():
                log.write(record)
        return finish(begun, prepared, trainer, device, world, progress)


def device_of(recipe: Recipe, device: str, progress: Progress) -> str:
    """Choose the device. A counted model trains on the CPU, without importing torch, unless it supports a GPU."""
    devices.check_device(device)
    cls: Any = recipe.model_class
    if not issubclass(cls, Counted):
        devices.keep_memory()
        return devices.pick_device(device)
    what = cls.cpu_only(recipe.model)
    if what == Counted.cpu_only(None) or device == "cpu" or (device == "auto" and not devices.has_driver()):
        return "cpu"
    chosen = devices.pick_device(device)
    if chosen != "cpu" and what:
        progress(f"{recipe.kind} with {what} is trained on the CPU: it has no way for a GPU.", 0.0)
        return "cpu"
    return chosen


def fit_to_budget(
    begun: Begun, prepared: Prepared, device: str, world: World, make: Callable[[Recipe], Any]
) -> tuple[Prepared, float]:
    """Fit the recipe of a network to a budget in seconds; return also the seconds that it took."""
    if world.size > 1 or not plan.wanted(begun.recipe):
        return prepared, 0.0
    every = 1 if device == "cpu" else 10  # how often the pace is looked at, which waits for a GPU
    trial = plan.measured(lambda recipe: make(recipe.with_values("train", log_every=every)))
    fitted, taken = plan.plan(begun.recipe, len(prepared.store.tokens), trial)
    begun.follow_plan(fitted)
    return prepared.validating(fitted, begun.path), taken


def make(
    recipe: Recipe,
    prepared: Prepared,
    device: str,
    world: World,
    progress: Progress = silent,
    profile: bool = False,
    taken: float = 0.0,
) -> Any:
    """Make the model with its initial weights, and its Trainer, or a Fitting for a counted model. `taken`: seconds of
    the budget that are spent."""
    cls: Any = recipe.model_class
    if not issubclass(cls, Counted):
        trainer = _network(recipe, prepared, device, world, progress, profile)
        trainer.validation_seconds = taken
        return trainer
    model = cls(recipe.model, prepared.codec.sizes)
    model.device = None if device == "cpu" else device
    held_out = prepared.held_out and prepared.held_out.for_fit
    validate = _validate(recipe, prepared, model, "cpu")
    return Fitting(model, prepared.store, recipe.train, held_out, validate, f"training {recipe.name}", progress)


def _network(recipe: Recipe, prepared: Prepared, device: str, world: World, progress: Progress, profile: bool) -> Any:
    import torch

    from segue.training import setup
    from segue.training.profile import Profile
    from segue.training.trainer import Trainer

    cls: Any = recipe.model_class
    codec, train = prepared.codec, recipe.train
    setup.check_size(lambda: cls(recipe.model, codec.sizes))
    torch.manual_seed(train.seed)
    model: Network = cls(recipe.model, codec.sizes)
    model.spell([codec.tokenizer.name(i) for i in range(codec.tokenizer.vocab_size)])
    setup.take_vectors(model, recipe.model, codec.tokenizer, progress)
    setup.take_body(model, prepared.body and prepared.body.weights)
    setup.take_weights(model, train.init)
    setup.take_labels(model, prepared.store)
    setup.freeze(model, train.freeze)
    model.to(device)
    world.seed(train.seed)
    batches = recipe.task.batches(prepared.store, recipe.batches, train.seed, recipe.data.carry, codec)
    setup.ready_batches(batches, model, prepared.stores, device, world, progress)
    validate = _validate(recipe, prepared, model, device)
    watch = Profile(device) if profile else None
    return Trainer(model, batches, train, validate, device, watch, world, recipe.task.worth, prepared.held_out_share)


def _validate(recipe: Recipe, prepared: Prepared, model: Any, device: str) -> Any:
    """Return the function that validates the model, or None if nothing is held out."""
    if prepared.held_out is None:
        return None
    opened = Opened(model, prepared.codec, recipe.decode, recipe.batches.length, recipe.task, device)
    limit = recipe.train.validate_tokens
    return partial(recipe.task.validate, opened, prepared.held_out, recipe.batches, limit)


def finish(begun: Begun, prepared: Prepared, trainer: Any, device: str, world: World, progress: Progress) -> Run:
    """Evaluate the model in memory and write the run's files; result.json last, since it marks the run as finished."""
    trainer.take_best()
    begun.settle(trainer)
    run = Run(begun.path, begun.recipe, trainer.model, prepared.codec, device)
    if world.first:
        run.save()
        result: dict[str, Any] = {"model": begun.recipe.name, **trainer.summary(), **prepared.epochs(begun, trainer)}
        result |= since_then(begun.recipe, trainer.model, prepared.body)
        if split := prepared.tested:
            with prepared.corpus.unchanged():
                run.evaluation = run.evaluate_split(prepared.corpus, split, progress)
                result |= {"split": split, **run.evaluation.result, **prepared.scored(run, run.evaluation, split)}
                gather.write_run_page(run, run.evaluation, prepared.corpus, split, result)
        begun.finish(result)
    world.wait()
    return run
