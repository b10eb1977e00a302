"""The walk: from a recipe and its data to a run that can be trusted. Read this first.

    corpus -> tokenizer -> store -> batches -> model -> trainer -> run folder

`train` makes a run or goes on with one. What it leaves is read by `segue.load` (loaded.py).
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from segue import folder as files
from segue.batches.collate import Batches
from segue.batches.encode import Held, encode, encode_held, labels_of
from segue.batches.store import Store
from segue.data.corpus import Corpus
from segue.errors import InputError, SegueError, nearest
from segue.inference.evaluate import Evaluation
from segue.models import fingerprint
from segue.models.base import Record, Sizes
from segue.recipe import Recipe, read_recipe, to_toml
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import Tokenizer
from segue.training.begin import pick_device, set_threads
from segue.training.log import Metrics, Progress, silent

MANY_LABELS = 20
"""Up to so many, every row may have a label of its own."""


class Prepared(NamedTuple):
    """The data of a run as ids."""

    corpus: Corpus
    tokenizer: Tokenizer
    speller: Speller | None
    labels: list[str]
    store: Store
    validation: Any
    """Held text for language models, a Store for rows, None where there is no validation data."""

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.tokenizer.vocab_size, len(self.labels))


class Trained(NamedTuple):
    """What came of a call of `train`."""

    evaluation: Evaluation | None
    """On what was held out, if anything was."""
    finished_before: bool = False


def train(
    recipe: Recipe | None,
    out: Path,
    resume: bool = False,
    device: str = "auto",
    threads: int = 0,
    progress: Progress = silent,
    trust: bool = False,
    profile: bool = False,
) -> Trained:
    """Trains what the recipe says into the folder `out`.

    With `resume`, goes on from the last whole checkpoint (the recipe may then be None: the run's own). With `profile`
    the result says where the time went.
    """
    recipe, begun = _recipe_of(recipe, out, resume, trust)
    if begun and (out / "result.json").exists() and read_recipe(out / "recipe.toml", trust) == recipe:
        return Trained(None, finished_before=True)
    corpus = Corpus(recipe.data, recipe.task, progress)
    if begun and (changed := files.changed_file(corpus.ledger.files, out)):
        raise InputError(f"{changed} has changed since the run in {out} began. Restore it, or choose another --out.")
    walk = _Walk(recipe, out, corpus, device, threads, progress, profile)
    made = files.missing(out)
    with files.locked(out):
        if not begun and (out / "recipe.toml").exists():
            raise InputError(f"Another process has just begun a run in {out}. Choose another --out.")
        try:
            return Trained(walk.run(begun))
        except Exception as error:
            worth_keeping = begun or any(out.glob("checkpoints/step-*")) or _failed_in_training(error)
            if not worth_keeping:
                files.undo(out, made)
            raise


def _failed_in_training(error: Exception) -> bool:
    """A loss that went astray is worth a look at the metrics; wrong input or a full disk leaves nothing of use."""
    return isinstance(error, SegueError) and not isinstance(error, InputError)


def _recipe_of(recipe: Recipe | None, out: Path, resume: bool, trust: bool) -> tuple[Recipe, bool]:
    """The recipe to follow, and whether a run with it has begun."""
    saved = out / "recipe.toml"
    if not saved.exists():
        if out.exists() and (not out.is_dir() or any(path.name not in _BEFORE for path in out.iterdir())):
            raise InputError(f"{out} exists and is not a run. Choose another --out; nothing is overwritten.")
        if recipe is None:
            raise InputError(
                f"There is no run in {out} to go on with. Name a model: segue train rnn_lm book.txt --out …"
            )
        return recipe, False
    if not resume:
        raise InputError(f"{out} already holds a run. Go on with it by --resume, or choose another --out.")
    old = read_recipe(saved, trust)
    if recipe is None:
        return old, True
    differ = [line for line in _differences(old, recipe) if not line.startswith(_BUDGET)]
    if differ:
        raise InputError(
            f"{out} was begun with another recipe: {'; '.join(differ[:3])}. To go on with it as it was: "
            f"segue train --out {out} --resume. For another recipe choose another --out."
        )
    for key in ("steps", "epochs", "seconds"):
        before, now = getattr(old.train, key, 0), getattr(recipe.train, key, 0)
        if now and before > now:
            raise InputError(f"train.{key} was {before} when {out} began and can only grow, not shrink to {now}.")
    return recipe, True


_BEFORE = (".lock", ".recipe.toml.writing")
"""What a run may leave that was killed before it had begun."""
_BUDGET = ("train.steps", "train.epochs", "train.seconds", "name")


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


class _Walk:
    """One call of `train`, step by step."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        corpus: Corpus,
        device: str,
        threads: int,
        progress: Progress,
        profile: bool = False,
    ) -> None:
        self.profile = profile
        self.recipe, self.out, self.corpus, self.progress = recipe, out, corpus, progress
        self.task = recipe.task
        self.counts_itself = hasattr(recipe.model_class, "fit")
        self.device = "cpu" if self.counts_itself else pick_device(device)
        self.threads = 0 if self.counts_itself else set_threads(threads)

    def run(self, begun: bool) -> Evaluation | None:
        seed = getattr(self.recipe.train, "seed", 0)
        (self.out / "result.json").unlink(missing_ok=True)  # of a smaller budget: this one is not finished yet
        files.write_atomic(self.out / "recipe.toml", to_toml(self.recipe))
        if not (begun and (self.out / "environment.json").exists()):
            files.write_json(self.out / "environment.json", files.environment(self.device, self.threads, seed))
        data = self.prepare()
        fitted, model = (self.count if self.counts_itself else self.learn)(data)
        return self.finish(data, model, fitted)

    # Data

    def prepare(self) -> Prepared:
        """Tokenizer, labels and stores, made once and kept until the run is finished."""
        recipe, corpus = self.recipe, self.corpus
        tokenizer = self._tokenizer()
        speller = None
        if self.task == "lm" and tokenizer.closed and tokenizer.lossless:
            speller = Speller.learn(example.text for example in corpus.examples("train"))
            speller.save(self.out / "speller.json")
        labels = labels_of(corpus.examples("all"), self.task) if self.task in ("classify", "tag") else []
        if labels and len(labels) < 2:
            raise InputError(
                f"Every row of {recipe.data.path} has the label '{labels[0]}': there is nothing to learn. Expected two "
                "labels or more; check the file and data.columns."
            )
        if self.task == "classify" and len(labels) > max(MANY_LABELS, sum(corpus.counts.values()) / 2):
            raise InputError(
                f"{recipe.data.path} has {len(labels):,} different labels, one for every row or two, such as "
                f"'{labels[0][:60]}'. Expected each label many times: is the text where the label should be? "
                "data.columns=2,1 reads the label from the second column."
            )
        self._check_test_labels(labels)
        limit = 0 if self.task == "lm" else recipe.batches.length
        store_folder = self.out / "store"
        total = max(1, corpus.counts["train"])
        encoded = encode(
            corpus.examples("train"),
            tokenizer,
            self.task,
            labels,
            store_folder / "train",
            limit,
            lambda rows: self.progress("encoding", min(1.0, rows / total)),
        )
        if not encoded.tokens:
            raise InputError(f"{recipe.data.path} holds no tokens to train on.")
        corpus.overlap()
        corpus.ledger.tokens_cut = encoded.cut
        validation = self._validation(tokenizer, speller, labels) if corpus.counts["validation"] else None
        files.write_json(self.out / "ledger.json", {**corpus.ledger.to_dict(), "summary": corpus.ledger.summary()})
        return Prepared(corpus, tokenizer, speller, labels, encoded.store, validation)

    def _check_test_labels(self, labels: list[str]) -> None:
        """Before training, not after it: a label of the test file that cannot be predicted."""
        if not labels or not isinstance(self.recipe.data.test, str):
            return
        known = set(labels)
        for example in self.corpus.examples("test"):
            for label in example.tags if self.task == "tag" else (example.label,):
                if label not in known:
                    raise InputError(
                        f"{example.path}:{example.line}: the label '{label}' is not in the training data."
                        f"{nearest(label, known)} Mend the label, or leave the row out."
                    )

    def _tokenizer(self) -> Tokenizer:
        saved = self.out / "tokenizer.json"
        init = getattr(self.recipe.train, "init", "")
        if init and not saved.exists():
            files.check_run(Path(init))
            tokenizer = Tokenizer.load(Path(init) / "tokenizer.json")
            if self.task == "tag" and tokenizer.kind != "space":
                raise InputError(f"train.init={init} has {tokenizer.kind} tokens; a tagger needs words (space tokens).")
            self._save(tokenizer, saved)
        if saved.exists():
            return Tokenizer.load(saved)
        self.progress("learning the tokens", 0.0)
        tokenizer = Tokenizer.train(self.recipe.tokens, self._texts())
        self._save(tokenizer, saved)
        self.progress("learning the tokens", 1.0)
        return tokenizer

    def _save(self, tokenizer: Tokenizer, place: Path) -> None:
        """Whole or not there: a killed run goes on with the tokenizer that it finds."""
        beside = place.with_name(f".{place.name}.writing")
        tokenizer.save(beside)
        beside.replace(place)

    def _texts(self) -> Iterator[str]:
        """The text of the training split, for the tokenizer alone."""
        for example in self.corpus.examples("train"):
            if self.task == "tag":
                yield " ".join(example.words)
            else:
                yield " " + example.text if self.task == "classify" else example.text
            if self.task == "seq2seq":
                yield example.target

    def _validation(self, tokenizer: Tokenizer, speller: Speller | None, labels: list[str]) -> Any:
        examples, place = self.corpus.examples("validation"), self.out / "store" / "validation"
        if self.task == "lm":
            limit = getattr(self.recipe.train, "validate_tokens", 100_000)
            held = encode_held(examples, tokenizer, speller, self.corpus.config.unit, place, limit)
            self.corpus.ledger.unknown_rate = len(held.spelled) / max(1, len(held.store.tokens))
            return held
        encoded = encode(examples, tokenizer, self.task, labels, place)
        self.corpus.ledger.unknown_rate = encoded.unknown / max(1, encoded.tokens)
        return encoded.store

    # Training

    def count(self, data: Prepared) -> tuple[dict[str, Any], Any]:
        """A model that trains itself: no checkpoints, it begins again."""
        from segue.counting.compiling import told

        model = self.recipe.model_class(self.recipe.model, data.sizes)
        metrics = Metrics(self.out)
        started = time.perf_counter()
        held = None if data.validation is None else data.validation.store.tokens
        what = f"training {self.recipe.name}"
        with told(self.progress):
            for record in model.fit(
                data.store, self.recipe.train, held, lambda share: self.progress(what, 0.99 * share)
            ):
                seconds = time.perf_counter() - started
                metrics.write(Record(record.step, record.kind, record.values | {"seconds": seconds}))
        seconds = time.perf_counter() - started
        if data.validation is not None:
            values = self._validate(model, data) | {"seconds": seconds}
            metrics.write(Record(1, "validation", values))
        metrics.close()
        self.progress(what, 1.0)
        tokens = len(data.store.tokens)
        return _fitted(seconds, 1, tokens / max(seconds, 1e-9), 1.0, model.parameters_count), model

    def learn(self, data: Prepared) -> tuple[dict[str, Any], Any]:
        """A model that learns by gradient, from the last checkpoint if there is one."""
        import torch

        from segue.training.begin import freeze, take_weights
        from segue.training.checkpoint import clear_unfinished, latest, save_checkpoint
        from segue.training.engine import compile_regions
        from segue.training.profile import Profile
        from segue.training.trainer import DivergedError, Trainer

        recipe, places = self.recipe, self.out / "checkpoints"
        torch.manual_seed(recipe.train.seed)
        model = recipe.model_class(recipe.model, data.sizes)
        take_weights(model, recipe.train.init)
        freeze(model, recipe.train.freeze)
        model.to(self.device)
        batches = Batches(data.store, self.task, recipe.batches, recipe.train.seed)
        what = f"training {recipe.name}"

        def validate() -> dict[str, Any]:
            spent = min(trainer.progress, 0.99)  # it is not done while it validates
            return self._validate(model, data, lambda share: self.progress(what, spent, "validating"))

        profile = Profile(self.device) if self.profile else None
        trainer = Trainer(
            model, batches, recipe.train, validate if data.validation is not None else None, self.device, profile
        )
        clear_unfinished(places)
        checkpoint, damaged = latest(places)
        for sentence in damaged:
            self.progress(sentence, 0.0)
        if checkpoint:
            trainer.restore(*checkpoint)
        compile_regions(model, self.device, (recipe.batches.size, recipe.batches.length))
        metrics = Metrics(self.out, trainer.step, recipe.train.tensorboard)
        self.progress(what, trainer.progress)
        try:
            for record in trainer.fit():
                metrics.write(record)
                self._tell(record)
                if record.kind in ("validation", "checkpoint"):
                    save_checkpoint(places, trainer.step, trainer.tensors(), trainer.values())
        except DivergedError as error:
            good = max(places.glob("step-*"), default=None)
            raise SegueError(
                f"{error} That update was not applied. "
                + (f"The last good checkpoint is {good}." if good else "There is no checkpoint yet.")
                + " Try a smaller train.optimizer.rate or train.optimizer.clip."
            ) from None
        finally:
            metrics.close()
        if trainer.best_weights:
            model.load_state_dict(trainer.best_weights)
        speed = trainer.targets / max(trainer.seconds, 1e-9)
        epochs = trainer.step / batches.per_epoch
        count = sum(p.numel() for p in model.parameters())
        fitted = _fitted(trainer.seconds, trainer.step, speed, epochs, count)
        if trainer.best:
            fitted |= {"best_step": trainer.best["step"], "validation_loss": trainer.best["loss"]}
        if profile is not None:
            looked_up = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
            tied = getattr(model, "head", 0) is None  # the vectors are the output weights too
            met = sum(p.numel() for p in model.parameters() if tied or id(p) not in looked_up)
            fitted["profile"] = profile.result(trainer.targets / max(1, trainer.step), met)
        return fitted | {"stopped_early": trainer.stopped_early}, model

    def _tell(self, record: Record) -> None:
        loss = record.values.get("cross_entropy", record.values.get("loss"))
        if record.kind == "train" and loss is not None:
            self.progress(
                f"training {self.recipe.name}", record.values["progress"], f"step {record.step}, loss {loss:.3f}"
            )

    def _validate(
        self, model: Any, data: Prepared, done: Callable[[float], None] = lambda share: None
    ) -> dict[str, Any]:
        """Loss in nats a prediction, and the figure that people know."""
        if isinstance(data.validation, Held):
            from segue.inference.score import SHORT_ROW, score_held

            scored = score_held(model, data.validation, data.tokenizer.vocab_size, self.device, SHORT_ROW, done)
            values = {"loss": scored.nats / scored.tokens}
            return values | ({"bits_per_byte": scored.bits_per_byte} if data.tokenizer.lossless else {})
        from segue.inference.validate import validate_rows

        limit = self.recipe.train.validate_tokens
        return validate_rows(model, data.validation, self.task, self.recipe.batches, limit, self.device, done)

    # The end

    def finish(self, data: Prepared, model: Any, fitted: dict[str, Any]) -> Evaluation | None:
        """Writes what others read; result.json last, since it says that the run is finished."""
        recipe, out = self.recipe, self.out
        if self.counts_itself:
            model.save(out)
        else:
            from segue.training.checkpoint import write_tensors

            files.write_atomic(out / "model.safetensors", write_tensors(model.state_dict()))
        config = {
            "kind": recipe.kind,
            "format": files.FORMAT,
            "config": dataclasses.asdict(recipe.model),
            "sizes": dataclasses.asdict(data.sizes),
            "labels": data.labels,
        }
        if recipe.kind.endswith(".py"):
            config["sha256"] = fingerprint(Path(recipe.kind))
        files.write_json(out / "config.json", config)
        result, evaluation = {"model": recipe.name, **fitted}, None
        split = "test" if data.corpus.counts["test"] else "validation"
        if data.corpus.counts[split]:
            from segue.loaded import Run
            from segue.page import write_run_page

            run = Run(out, self.device, trust=True)
            evaluation = run.evaluate_split(data.corpus, split, self.progress)
            result |= {"split": split, **evaluation.result}
            write_run_page(run, evaluation, data.corpus, split, result)
        files.write_json(out / "result.json", result)
        shutil.rmtree(out / "store", ignore_errors=True)
        return evaluation


def _fitted(seconds: float, steps: int, speed: float, epochs: float, parameters: int) -> dict[str, Any]:
    return {
        "parameters": parameters,
        "train_seconds": seconds,
        "steps": steps,
        "epochs": epochs,
        "tokens_per_second": speed,
    }
