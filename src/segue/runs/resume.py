"""Begin or resume a run: choose its recipe and folder, and check that it may go on there."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue import tasks
from segue.data.corpus import Corpus
from segue.data.from_list import guess_rows, write_rows
from segue.data.shapes import Shape
from segue.data.sources import guess_shape
from segue.errors import InputError, SegueError, goes_on
from segue.models import task_of
from segue.models.base import Counted, Imported
from segue.models.names import meanings
from segue.recipe import Recipe, load_recipe, read_recipe, to_toml
from segue.runs import folder as files
from segue.runs.body import check_body, rate_for, with_rate
from segue.runs.from_run import FromRun, from_run, is_run
from segue.runs.plan import settled
from segue.runs.replace import check_replaceable, forget, replacing
from segue.training import device as devices
from segue.training.log import Progress, silent
from segue.training.world import World, processes

Data = str | Path | Sequence[Any] | None
Model = str | Path | Recipe | None
"""What is trained: a kind, a recipe, a TOML file, or a run to begin from (from_run.py)."""
Out = str | Path | None
Settings = Mapping[str, Any] | Sequence[str] | str

ASKED = "asked.toml"
"""The recipe as asked for, in the folder of a run that follows one fitted to its budget."""
_BEFORE = (".lock", ".recipe.toml.writing")
"""Files that a run may leave if it is killed before it begins."""
_BUDGET = ("train.steps", "train.epochs", "train.seconds", "name")
"""Settings that may grow when a run is resumed."""


@dataclass
class Begun:
    """A run that is about to be trained: its recipe, its folder, and what was made for it."""

    recipe: Recipe
    """The recipe that is followed: as asked for, or fitted to its budget (plan.py)."""
    path: Path
    resumed: bool = False
    """Whether it continues the run in the folder."""
    overwrite: bool = False
    """Whether it takes the place of the run in the folder."""
    asked_to_resume: bool = False
    trust: bool = False
    made: list[Path] = field(default_factory=list)
    """Folders that did not exist before."""
    rows: Path | None = None
    """The file that a list of data was written to, if it is new."""
    finished: bool = False
    """Whether there is nothing left to do."""
    made_with: dict[str, Any] = field(default_factory=dict)
    """The content of environment.json."""
    corpus: Any = None
    labels: tuple[str, ...] = ()
    """Every class or tag, as the first process says; the first one finds them in `prepare`."""
    validates: bool = False
    """Whether there is validation data, as the first process says."""

    @contextmanager
    def kept(self, world: World, device: str, progress: Progress) -> Iterator[None]:
        """Read the data and lock the folder while the run is trained; clean up after a failure."""
        if not world.first:
            yield
            return
        try:
            if not self.finished:
                with rows_by_number(self.rows):
                    self._read(progress)
                with replacing(self.path, progress) if self.overwrite else nullcontext(), files.locked(self.path):
                    yield from self._written(device, progress)
            else:
                with suppress(InputError), files.locked(self.path):  # a run on a read-only disk can be opened too
                    files.clear_leftovers(self.path, finished=True)
                self.broadcast(world)
                yield
        except BaseException:
            undo_rows(self.rows, self.path, self.made)
            raise

    def _written(self, device: str, progress: Progress) -> Iterator[None]:
        """Write recipe and environment, then train inside the `with` block; undo them if nothing useful is left."""
        if not self.resumed and (self.path / "recipe.toml").exists():
            raise InputError(f"Another process has just begun a run in {self.path}. Choose another --out.")
        if self.asked_to_resume and not self.resumed:
            progress(f"There is no run in {self.path} yet: it begins.", 0.0)
        files.clear_leftovers(self.path, finished=False)
        before = files.entries(self.path) - {".lock"}
        try:
            self._note(device)
            yield
        except KeyboardInterrupt as error:
            kept = max((self.path / "checkpoints").glob("step-*"), default=None)
            step = f"Step {int(kept.name.removeprefix('step-')):,} is saved. " if kept else ""
            goes_on(error, f"segue train --out {shlex.quote(str(self.path))} --resume", step)
            raise
        except Exception as error:
            # After a diverged loss keep the metrics; after wrong input or a full disk there is nothing worth keeping.
            diverged = isinstance(error, SegueError) and not isinstance(error, InputError)
            if not (self.resumed or diverged or any(self.path.glob("checkpoints/step-*"))):
                files.undo(self.path, before, self.made)
            raise

    def broadcast(self, world: World, labels: tuple[str, ...] = (), validates: bool = False) -> None:
        """Broadcast what the other processes need, once: until then they can report that the first one failed."""
        out = str(self.path.resolve())
        world.broadcast({"out": out, "finished": self.finished, "labels": labels, "validates": validates})

    def _read(self, progress: Progress) -> None:
        """Read the data once: check it and count it."""
        check_inputs(self.recipe, self.trust)
        check_body(self.recipe, self.path / "store")
        if self.corpus is None:  # a run with another seed may have read it
            self.corpus = Corpus(self.recipe.data, self.recipe.shape, progress)
        if self.resumed:
            files.check_same_files(self.corpus.ledger.files, self.path)
        check_parts(self.recipe, self.corpus, self.trust)

    def _note(self, device: str) -> None:
        """Write recipe.toml and environment.json, which with the data reproduce the run."""
        (self.path / "result.json").unlink(missing_ok=True)  # from a smaller budget: the run is not finished any more
        files.write_atomic(self.path / "recipe.toml", to_toml(self.recipe))
        place = self.path / "environment.json"
        with suppress(InputError):  # a damaged or missing one is written anew
            found = files.read_json(place) if self.resumed else None
            self.made_with = found if isinstance(found, dict) else {}
        if not self.made_with:
            self.made_with = files.environment(device, 0, self.recipe.train.seed, processes())
            files.write_json(place, self.made_with)

    @property
    def threads(self) -> int:
        """The CPU threads that the run was begun with; 0 as long as none are chosen."""
        found = self.made_with.get("threads")
        return found if isinstance(found, int) and devices.possible(found) else 0

    def note_threads(self, threads: int) -> None:
        """Write the number of threads into environment.json, for when the run goes on."""
        if self.made_with and self.threads != threads:
            self.made_with["threads"] = threads
            files.write_json(self.path / "environment.json", self.made_with)

    def follow_plan(self, fitted: Recipe) -> None:
        """Follow a recipe that was fitted to its budget; keep beside it what was asked for, to know it when resumed."""
        files.write_atomic(self.path / ASKED, to_toml(self.recipe))
        files.write_atomic(self.path / "recipe.toml", to_toml(fitted))
        self.recipe = fitted

    def settle(self, trainer: Any) -> None:
        """Write what the clock decided into the recipe of a planned run, so that the run can be made again."""
        if (self.path / ASKED).exists() and self.recipe.train.seconds:
            self.recipe = settled(self.recipe, trainer.settled())
            files.write_atomic(self.path / "recipe.toml", to_toml(self.recipe))

    def finish(self, result: dict[str, Any]) -> None:
        """Write result.json, which marks the run as finished; remove the ids, and the run that it replaces."""
        files.write_json(self.path / "result.json", result)
        shutil.rmtree(self.path / "store", ignore_errors=True)
        forget(self.path)


def begin(
    model: Model,
    data: Data,
    out: Out,
    settings: Settings,
    resume: bool,
    threads: int,
    trust: bool,
    progress: Progress = silent,
    overwrite: bool = False,
) -> Begun:
    """Choose the recipe and the folder; write nothing yet, except data that was given as a list."""
    lines = setting_lines(settings)
    if resume and overwrite:
        raise InputError("--resume goes on with a run, and --overwrite replaces it by a new one. Choose one of them.")
    short = None
    if isinstance(model, Path) or (isinstance(model, str) and is_run(model)):
        short = _short(str(model), data, lines, resume, trust, progress)
        model, lines = short.kind, [short.setting, *lines]
    elif isinstance(model, str):
        model = taken(model, data, progress)
    if resume and out is None:
        out = _unfinished(short.name if short else model, data, progress)
    if isinstance(model, Recipe):
        path = Path(out) if out is not None else files.free_name(f"{_stem(model.name)}-{data_name(model.data.path)}")
        begun = Begun(model, path, trust=trust)
    elif resume and out is not None and data is None and (Path(out) / "recipe.toml").exists():
        begun = Begun(_own_recipe(model, Path(out), lines, trust), Path(out), trust=trust)
    else:
        begun = _new(model, data, out, lines, resume, trust, overwrite, short)
    if issubclass(begun.recipe.model_class, Imported):
        begun.recipe.model_class.refuse_training()
    if threads and begun.recipe.train.has("threads"):
        begun.recipe = begun.recipe.with_values("train", threads=threads)  # --threads is short for the key
    if begun.recipe.train.has("threads"):
        devices.check_threads(begun.recipe.train.threads, "train.threads=")
    begun.asked_to_resume, begun.overwrite = resume, overwrite
    try:
        if overwrite:
            check_replaceable(begun.path)
        begun.recipe, begun.resumed = recipe_of(begun.recipe, begun.path, resume, trust, overwrite)
    except BaseException:
        undo_rows(begun.rows, begun.path, begun.made)
        raise
    begun.made = begun.made or files.missing(begun.path)
    asked, result = asked_for(begun.path), begun.path / "result.json"
    begun.finished = begun.resumed and result.exists() and read_recipe(asked, trust) == begun.recipe
    if begun.resumed and asked.name == ASKED:
        begun.recipe = _planned(begun.recipe, read_recipe(asked, trust), begun.path, trust)
    return begun


def _short(run: str, data: Data, lines: Sequence[str], resume: bool, trust: bool, progress: Progress) -> FromRun:
    """Say what a run means where the model should stand, by the shape of the data."""
    named = data if data is not None else next((line[10:] for line in lines if line.startswith("data.path=")), None)
    if named is None and resume:
        raise InputError(f"To go on with a run that has begun, leave {run} out: segue train --out RUN --resume")
    if named is None:
        raise InputError(
            f"Which data should {run} learn from? Expected: segue train {run} DATA. To go on with the run itself: "
            f"segue train --out {run} --resume"
        )
    shape = guess_shape(str(named)) if isinstance(named, str | Path) else guess_rows(named)
    short = from_run(run, shape, lines, trust)
    progress(short.said, 0.0)
    return short


def recipe_from(short: FromRun, lines: Sequence[str], base: Mapping[str, Any], trust: bool) -> Recipe:
    """Load the recipe of a model that begins from a run, above the values of `base`."""
    settings = [short.setting, *lines]
    own = _begun_with(load_recipe(short.kind, settings, base, trust), list(lines), trust)
    joined = {section: own.get(section, {}) | dict(base.get(section, {})) for section in {**own, **base}}
    return dataclasses.replace(load_recipe(short.kind, settings, joined, trust), name=short.name)


def taken(model: str, data: Data, progress: Progress) -> str:
    """Return the kind or recipe that a name means for some data; say so, where it is another name."""
    found = list(meanings(model)) if "*" not in model else [model]
    if found == [model]:
        return model
    if isinstance(data, str | Path):
        shape = guess_shape(str(data))
        reading = [name for name in found if tasks.task(task_of(name.partition("/")[0])).shape == shape]
        if not reading:
            others = tasks.task(tasks.of_shape(shape.name)).ladder
            raise InputError(
                f"{model} is {found[0]} here, which is not made for {shape.name} data such as {data}. Choose a model "
                f"that is, such as {others[-1]}; or say {found[0]}, if that is meant."
            )
        found = reading
    progress(f"{model}: taking {found[0]}.", 0.0)
    return found[0]


def asked_for(path: Path) -> Path:
    """Return the file with the recipe that a run was asked for."""
    return path / ASKED if (path / ASKED).exists() else path / "recipe.toml"


def _planned(recipe: Recipe, before: Recipe, path: Path, trust: bool) -> Recipe:
    """Return the fitted recipe of a run that goes on, with its budget as now asked for, if that has grown."""
    fitted = read_recipe(path / "recipe.toml", trust)
    if recipe == before:
        return fitted
    files.write_atomic(path / ASKED, to_toml(recipe))
    train = recipe.train
    return fitted.with_values("train", steps=train.steps, epochs=train.epochs, seconds=train.seconds, stop=train.stop)


def follow(world: World, trust: bool) -> Begun:
    """Begin in a process that is not the first: use the recipe and folder that the first one broadcasts."""
    try:
        news = world.broadcast()
    except RuntimeError as error:  # torch's error if another process is gone
        raise SegueError("The first process ended before the run began; what it says is the reason.") from error
    path = Path(news["out"])
    if not (path / "recipe.toml").exists():
        raise InputError(f"{path} is not seen by every machine. Put --out on a file system that all of them share.")
    return Begun(
        *(read_recipe(path / "recipe.toml", trust), path),
        trust=trust,
        finished=news["finished"],
        labels=tuple(news["labels"]),
        validates=news["validates"],
    )


def _unfinished(model: str | Recipe | None, data: Data, progress: Progress) -> Path:
    """Find the unfinished run in runs/, of this model and data if they are given; ask which, if there are several."""
    name, path = model.name if isinstance(model, Recipe) else model, data_name(data) if data is not None else None
    found = {recipe.parent: _named_in(recipe) for recipe in sorted(Path("runs").glob("*/recipe.toml"))}
    found = {run: names for run, names in found.items() if not (run / "result.json").exists()}
    fits = [run for run, (kind, own, read) in found.items() if name in (None, kind, own) and path in (None, read)]
    if len(fits) == 1:
        progress(f"Going on with {fits[0]}.", 0.0)
        return fits[0]
    if not found:
        raise InputError("No run in runs/ is unfinished. Name the run to go on with: segue train --out RUN --resume")
    said = "These in runs/ are unfinished" if fits else "The unfinished ones in runs/ are of another model or data"
    lines = "; ".join(f"segue train --out {run} --resume" for run in (fits or list(found))[:8])
    raise InputError(f"Which run should go on? {said}: {lines}")


def _named_in(recipe: Path) -> tuple[str, str, str]:
    """Read the kind, the name and the data of a recipe.toml; a damaged one has none."""
    try:
        values = tomllib.loads(recipe.read_text(encoding="utf-8"))
        return str(values["kind"]), str(values["name"]), data_name(str(values["data"]["path"]))
    except (OSError, ValueError, KeyError, TypeError):
        return "", "", ""


def _new(
    model: str | None,
    data: Data,
    out: Out,
    lines: list[str],
    resume: bool,
    trust: bool,
    overwrite: bool,
    short: FromRun | None,
) -> Begun:
    if model is None:
        where = f"There is no run in {out} to go on with. " if resume and out is not None else ""
        raise InputError(f"{where}Name a model to train, such as rnn_lm. `segue models` lists them.")
    named = data is not None or any(line.startswith("data.path=") for line in lines)
    if resume and out is not None and not (named or (Path(out) / "recipe.toml").exists()):
        raise InputError(f"There is no run in {out} to go on with. To begin one there, leave --resume out.")
    stem = f"{short.stem if short else _stem(model)}-{data_name(data)}"
    path = Path(out) if out is not None else Path("runs") / stem if overwrite else files.free_name(stem)
    given = load_recipe(model, lines, trust=trust)
    base = _begun_with(given, lines, trust) | _made_of(given, trust)
    made = files.missing(path)
    name, rows = named_data(data, path, _shape_of(data, given))
    if name is not None:
        base["data"] = base.get("data", {}) | {"path": name}
    recipe = load_recipe(model, lines, base, trust)
    recipe = dataclasses.replace(recipe, name=short.name) if short else recipe
    return Begun(recipe, path, trust=trust, made=made, rows=rows)


def _own_recipe(model: str | None, path: Path, lines: list[str], trust: bool) -> Recipe:
    """Read the recipe of a begun run, with the caller's settings (a larger budget) on top."""
    recipe = load_recipe(str(asked_for(path)), lines, trust=trust)
    if model is not None and load_recipe(model, trust=trust).name not in (recipe.kind, recipe.name):
        raise InputError(
            f"{path} was begun with another recipe: {recipe.name}, not {model}. Choose another --out, or go on with "
            f"it: segue train --out {path} --resume"
        )
    return recipe


def _shape_of(data: Data, recipe: Recipe) -> Shape:
    """Return the shape in which a list of data is written: the one that it seems to have, if the model learns from it
    too."""
    shapes = recipe.task.goes_on_with(recipe.model_class)
    if data is None or isinstance(data, str | Path) or len(shapes) == 1:
        return recipe.shape
    guessed = guess_rows(data)
    return guessed if guessed in shapes else recipe.shape


def named_data(data: Data, path: Path, shape: Any) -> tuple[str | None, Path | None]:
    """Return the data's name for the recipe. A list is written to a file beside the run, so that the run can be
    reproduced; the second value is that file, if it is new."""
    if data is None or isinstance(data, str | Path):
        return None if data is None else str(data), None
    rows = path.parent / f"{path.name}.data.jsonl"
    return str(rows), rows if write_rows(data, rows, shape) else None


@contextmanager
def rows_by_number(rows: Path | None) -> Iterator[None]:
    """Name the rows of a list by their numbers where an error names the lines of the file that they were written to:
    the caller has never seen that file, and it may be gone."""
    try:
        yield
    except InputError as error:
        if rows is None or f"{rows}:" not in str(error):
            raise
        raise InputError(str(error).replace(f"{rows}:", "row ")) from error


def undo_rows(rows: Path | None, path: Path, made: list[Path]) -> None:
    """Remove the file of a list of data, and the folders made for it, where no run has begun with it."""
    if rows is not None and not (path.is_dir() and any(path.iterdir())):
        rows.unlink(missing_ok=True)
        with suppress(OSError):
            for folder in made[1:]:
                folder.rmdir()


def setting_lines(settings: Settings) -> list[str]:
    """Write settings as they are typed: section.key=value."""
    if isinstance(settings, Mapping):
        return [f"{key}={spelt(value)}" for key, value in settings.items()]
    return [settings] if isinstance(settings, str) else list(settings)


def spelt(value: Any) -> str:
    """Write a value as it is typed on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _stem(model: str) -> str:
    return Path(model).stem if model.endswith((".toml", ".py")) else model.replace("/", "-")


def data_name(data: Data) -> str:
    """Return a name of the data for the run folder."""
    if isinstance(data, str | Path | None):
        name = Path(str(data or "pydoc").split(",")[0]).name.split(".")[0].replace("*", "all")
        return re.sub("[+:]+", "-", name) or "text"
    return "list"


def _begun_with(recipe: Recipe, lines: list[str], trust: bool) -> dict[str, Any]:
    """With `train.init`, return the [model] settings of that run, so that they need not be typed again. The tokens are
    that run's, or the body's (model.body)."""
    init = recipe.train.init or recipe.model.body
    if not init or not (Path(init) / "recipe.toml").exists():
        return {}
    key_of_run = "train.init" if recipe.train.init else "model.body"
    other = read_recipe(Path(init) / "recipe.toml", trust)
    theirs, ours = dataclasses.asdict(other.tokens), dataclasses.asdict(recipe.tokens)
    for key in (line.partition("=")[0].partition(".")[2] for line in lines if line.startswith("tokens.")):
        if theirs[key] != ours[key]:
            raise InputError(
                f"{key_of_run}={init} brings its tokens along: tokens.{key} is {theirs[key]}. Leave tokens.{key} out."
            )
    if other.kind != recipe.kind:
        return {}
    base: dict[str, Any] = {"model": dataclasses.asdict(other.model)}
    window = other.model_class.window_of(other.model)
    if 0 < window < recipe.batches.length:
        base["batches"] = {"length": window}
    return base


def _made_of(recipe: Recipe, trust: bool) -> dict[str, Any]:
    """Return the [data] that the runs of an ensemble were trained on, so that the same rows are held out."""
    runs = recipe.model.runs
    if not runs or not (Path(runs[0]) / "recipe.toml").exists():
        return {}
    return {"data": dataclasses.asdict(read_recipe(Path(runs[0]) / "recipe.toml", trust).data)}


def recipe_of(
    recipe: Recipe | None, out: Path, resume: bool, trust: bool, overwrite: bool = False
) -> tuple[Recipe, bool]:
    """Return the recipe to follow, and whether a run with it has begun."""
    saved = out / "recipe.toml"
    recipe = _from_other(recipe, asked_for(out) if saved.exists() and not overwrite else None, trust)
    if not saved.exists():
        if out.exists() and (not out.is_dir() or any(path.name not in _BEFORE for path in out.iterdir())):
            raise InputError(f"{out} exists and is not a run. Choose another --out; nothing is overwritten.")
        if recipe is None:
            raise InputError(
                f"There is no run in {out} to go on with. Name a model: segue train rnn_lm book.txt --out …"
            )
        return recipe, False
    if recipe is not None and overwrite:
        return recipe, False
    if not resume:
        raise InputError(
            f"{out} already holds a run. Go on with it by --resume, replace it by --overwrite, or choose another --out."
        )
    old = read_recipe(asked_for(out), trust)
    if recipe is None:
        return old, True
    differ = [line for line in _differences(old, recipe) if not line.startswith(_BUDGET)]
    if differ:
        raise InputError(
            f"{out} was begun with another recipe: {'; '.join(differ[:3])}. To go on with it as it was: "
            f"segue train --out {out} --resume. For another recipe choose another --out."
        )
    for key in ("steps", "epochs", "seconds"):
        before, now = (dataclasses.asdict(one.train).get(key, 0) for one in (old, recipe))
        if now and before > now:
            raise InputError(f"train.{key} was {before} when {out} began and can only grow, not shrink to {now}.")
    if recipe != old and (out / "result.json").exists():
        _check_goes_on(recipe, out)
    return recipe, True


def _from_other(recipe: Recipe | None, saved: Path | None, trust: bool) -> Recipe | None:
    """Give a run with train.init, or with a body, the [tokens] of that run, and the learning rate that suits the body.
    `saved`: the recipe of the run that goes on, which does not need the other one any more."""
    other = "" if recipe is None else recipe.train.init or recipe.model.body
    if recipe is None or not other:
        return recipe
    if saved is not None:
        own = read_recipe(saved, trust)
        return with_rate(dataclasses.replace(recipe, tokens=own.tokens), own.train.optimizer.rate)
    files.check_run(Path(other))
    recipe = dataclasses.replace(recipe, tokens=read_recipe(Path(other) / "recipe.toml", trust).tokens)
    return with_rate(recipe, rate_for(recipe))


def _check_goes_on(recipe: Recipe, out: Path) -> None:
    """Refuse to resume a run without a checkpoint, such as an imported one: it would be trained from scratch."""
    counts = issubclass(recipe.model_class, Counted)
    imported = files.check_run(out).get("imported")
    if imported or not (counts or any(out.glob("checkpoints/step-*"))):
        why = f"It was imported from {imported}" if imported else "It was imported, or its checkpoints were removed"
        other = "choose another --out" if counts else f"begin another run with its weights: train.init={out} --out …"
        raise InputError(f"The run in {out} has no checkpoint to go on from. {why}. To train further, {other}")


def _differences(old: Recipe, new: Recipe) -> list[str]:
    found = []
    for key, value in _flat(dataclasses.asdict(old)).items():
        other = _flat(dataclasses.asdict(new)).get(key)
        if other != value:
            found.append(f"{key} was {value}, now {other}")
    return found


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def check_inputs(recipe: Recipe, trust: bool) -> None:
    """Check, before any data is read, that the runs and files which a recipe names are there."""
    if issubclass(recipe.model_class, Imported):
        recipe.model_class.refuse_training()
    if recipe.train.init:
        files.check_run(Path(recipe.train.init))
    if recipe.model.embeddings and (vectors := Path(recipe.model.embeddings)).is_dir():
        files.check_run(vectors)
    elif recipe.model.embeddings and not vectors.is_file():
        raise InputError(f"There is no file {vectors} (model.embeddings). Expected vectors in the format of word2vec.")
    _check_ensemble(recipe, trust)


def _check_ensemble(recipe: Recipe, trust: bool) -> None:
    """Check that an ensemble names two runs or more, all of them classifiers."""
    runs = recipe.model.runs if "runs" in {one.name for one in dataclasses.fields(recipe.model)} else None
    if runs is None:
        return
    if len(runs) < 2:
        raise InputError("An ensemble is made of runs: name two or more, as model.runs=runs/a,runs/b")
    if twice := [run for run in runs if runs.count(run) > 1]:
        raise InputError(f"model.runs names {twice[0]} twice. Expected each run once; the ensemble weighs them.")
    for run in map(Path, runs):
        files.check_run(run)
        part = read_recipe(run / "recipe.toml", trust)
        if part.task != recipe.task:
            raise InputError(f"{run} is a {part.kind}, made for {part.task.name}. An ensemble is of classifiers.")


def check_parts(recipe: Recipe, corpus: Corpus, trust: bool) -> None:
    """Check that the runs of an ensemble held out the same rows: its weights are found on rows that none was trained
    on."""
    hashes = {file["sha256"] for file in corpus.ledger.files}
    for run in map(Path, recipe.model.runs):
        other = _split(read_recipe(run / "recipe.toml", trust).data)
        differ = set(files.read_files(run).values()) != hashes
        keys = [f"data.{key}" for key, value in _split(recipe.data).items() if value != other[key]]
        if differ or keys:
            raise InputError(
                f"{run} was trained on other rows than {recipe.data.path[:200]} gives here "
                f"({', '.join(keys) or 'other files'}), so that it may have learnt what the ensemble "
                "would be weighed on. Expected runs that were all trained on the same data; leave DATA "
                "and data.… out, and they are the runs' own."
            )


def _split(data: Any) -> dict[str, Any]:
    """Return the settings that decide which rows are held out; files are compared by their checksums elsewhere."""
    shares = {"validation": data.validation, "test": data.test}
    return {**shares, **dict.fromkeys(data.held_out_files(), "a file"), "seed": data.seed}
