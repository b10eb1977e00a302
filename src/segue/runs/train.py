"""The walk: from a recipe and its data to a run that can be trusted. Read this first.

    corpus -> tokenizer -> store -> batches -> model -> trainer -> run folder

`train` makes a run or goes on with one. What it leaves is read by `segue.load` (runs/run.py).
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from segue.data.atomic import atomic_file
from segue.runs import folder as files
from segue.batches.batches import Batches
from segue.batches.batches import Config as Layout
from segue.batches.collate import COLLATES
from segue.batches.encode import Encoded, Held, encode, encode_mixed, encode_split, labels_of, tags_of
from segue.batches.rows import Rows
from segue.batches.store import Store
from segue.batches.streams import Streams
from segue.runs.resume import check_named, check_parts, recipe_of
from segue.data.config import Label
from segue.data.corpus import Corpus
from segue.data.files import describe_file
from segue.data.ledger import elapsed
from segue.errors import InputError, SegueError, nearest
from segue.inference.evaluation import Evaluation
from segue.models import fingerprint
from segue.models.base import Counted, Imported, Record, Sizes
from segue.recipe import TASKS, Recipe, read_recipe, to_toml
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import Tokenizer
from segue.training.setup import keep_memory, pick_device, processes, set_threads
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
    label: Label = "class"

    @property
    def sizes(self) -> Sizes:
        classes = 1 if self.label == "number" else len(self.labels)
        return Sizes(self.tokenizer.vocab_size, classes, label=self.label)


class Trained(NamedTuple):
    """What came of a call of `train`."""

    evaluation: Evaluation | None
    """On what was held out, if anything was."""
    out: Path
    """Where the run is."""
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
    the result says where the time went. Of several processes (torchrun) the first makes the run, the others help.
    """
    if processes() == 1:
        return _train(recipe, out, resume, device, threads, progress, trust, profile)
    from segue.training.distributed import join

    world, device = join(pick_device(device))
    if not world.first:
        return _help(world, device, threads, trust)
    trained = _train(recipe, out, resume, device, threads, progress, trust, profile, world)
    world.tell({"out": str(out.resolve()), "finished_before": trained.finished_before})
    return trained


def _help(world: Any, device: str, threads: int, trust: bool) -> Trained:
    """What a process does that is not the first: it hears what the run is, and takes its part of every batch."""
    try:
        told = world.tell()
    except RuntimeError as error:  # as torch says that another process is gone
        raise SegueError("The first process ended before the run began; what it says is the reason.") from error
    if "labels" in told:
        out = Path(told["out"])
        if not (out / "recipe.toml").exists():
            raise InputError(f"{out} is not seen by every machine. Put --out on a file system that all of them share.")
        walk = _Walk(read_recipe(out / "recipe.toml", trust), out, None, device, threads, silent, False, world)
        walk.help(told["labels"], told["validates"])
        told = world.tell()
    return Trained(None, Path(told["out"]), told["finished_before"])


def _train(
    recipe: Recipe | None,
    out: Path,
    resume: bool,
    device: str,
    threads: int,
    progress: Progress,
    trust: bool,
    profile: bool,
    world: Any = None,
) -> Trained:
    if recipe is not None and issubclass(recipe.model_class, Imported):
        recipe.model_class.refuse_training()
    if recipe is not None and threads and recipe.train.has("threads"):
        recipe = recipe.with_values("train", threads=threads)  # --threads is short for the key
    recipe, begun = recipe_of(recipe, out, resume, trust)
    if begun and (out / "result.json").exists() and read_recipe(out / "recipe.toml", trust) == recipe:
        return Trained(None, out, finished_before=True)
    check_named(recipe, trust)
    corpus = Corpus(recipe.data, recipe.shape, progress)
    if begun and (changed := files.changed_file(corpus.ledger.files, out)):
        raise InputError(f"{changed} has changed since the run in {out} began. Restore it, or choose another --out.")
    check_parts(recipe, corpus, trust)
    walk = _Walk(recipe, out, corpus, device, threads, progress, profile, world)
    made = files.missing(out)
    with files.locked(out):
        if not begun and (out / "recipe.toml").exists():
            raise InputError(f"Another process has just begun a run in {out}. Choose another --out.")
        if resume and not begun:
            progress(f"There is no run in {out} yet: it begins.", 0.0)
        try:
            return Trained(walk.run(begun), out)
        except Exception as error:
            worth_keeping = begun or any(out.glob("checkpoints/step-*")) or _failed_in_training(error)
            if not worth_keeping:
                files.undo(out, made)
            raise


def _failed_in_training(error: Exception) -> bool:
    """A loss that went astray is worth a look at the metrics; wrong input or a full disk leaves nothing of use."""
    return isinstance(error, SegueError) and not isinstance(error, InputError)


class _Walk:
    """One call of `train`, step by step."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        corpus: Any,
        device: str,
        threads: int,
        progress: Progress,
        profile: bool = False,
        world: Any = None,
    ) -> None:
        self.profile, self.world = profile, world
        self.recipe, self.out, self.corpus, self.progress = recipe, out, corpus, progress
        self.task, self.shape = recipe.task, recipe.shape
        self.counts_itself = issubclass(recipe.model_class, Counted)
        self.device = self._own_device(device) if self.counts_itself else pick_device(device)
        self.threads = 0 if self.counts_itself else set_threads(threads)
        if not self.counts_itself:
            keep_memory()

    def _own_device(self, device: str) -> str:
        """A model that trains itself does so on the CPU, and torch is not asked, unless it says what else it can."""
        what = self.recipe.model_class.cpu_only(self.recipe.model)
        if what == Counted.cpu_only(None) or device == "cpu" or (device == "auto" and not _has_driver()):
            return "cpu"
        chosen = pick_device(device)
        if chosen != "cpu" and what:
            self.progress(f"{self.recipe.kind} with {what} is trained on the CPU: it has no way for a GPU.", 0.0)
            return "cpu"
        return chosen

    def run(self, begun: bool) -> Evaluation | None:
        seed = self.recipe.train.seed
        (self.out / "result.json").unlink(missing_ok=True)  # of a smaller budget: this one is not finished yet
        files.write_atomic(self.out / "recipe.toml", to_toml(self.recipe))
        if not (begun and (self.out / "environment.json").exists()):
            made_with = files.environment(self.device, self.threads, seed, processes())
            files.write_json(self.out / "environment.json", made_with)
        self._tell_untrained()
        data = self.prepare()
        fitted, model = (self.count if self.counts_itself else self.learn)(data)
        fitted |= self._elapsed(data, fitted["steps"])
        return self.finish(data, model, fitted)

    # Data

    def prepare(self) -> Prepared:
        """Tokenizer, labels and stores, made once and kept until the run is finished."""
        recipe, corpus = self.recipe, self.corpus
        if self.counts_itself and corpus.weights:
            names = "+".join(part.name for part in corpus.parts)
            raise InputError(
                f"{recipe.kind} {'counts' if self.task == 'lm' else 'reads'} every token once, so that its corpora "
                f"cannot be weighed as in {recipe.data.path[:200]}. Leave the weights out, {names[:200]}"
                + (", or choose a model that learns by gradient, such as rnn_lm or gpt." if self.task == "lm" else ".")
            )
        tokenizer = self._tokenizer()
        speller = None
        if self.task == "lm" and tokenizer.closed and tokenizer.lossless:
            speller = Speller.learn(example.text for example in corpus.examples("train"))
            speller.save(self.out / "speller.json")
        label = recipe.data.label
        labels = labels_of(corpus.examples("all"), self.task, label) if self.task in ("classify", "tag") else []
        if label == "classes" and not labels:
            raise InputError(
                f"No row of {recipe.data.path} has a label: there is nothing to learn. Expected labels with commas "
                "between them in some rows; check the file and data.columns."
            )
        if labels and len(labels) < 2 and label == "class":
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
        encoded = self._encoded(tokenizer, labels)
        if label == "number" and len(set((numbers := encoded.store.columns["label"].flat).tolist())) == 1:
            raise InputError(
                f"Every row of {recipe.data.path} has the number {numbers[0]:g}: there is nothing to learn. Expected "
                "two numbers or more; check the file and data.columns."
            )
        corpus.overlap()
        corpus.repeats()
        corpus.ledger.tokens_cut = encoded.cut
        validation = self._validation(tokenizer, speller, labels) if corpus.counts["validation"] else None
        if vectors := recipe.model.embeddings:
            file = Path(vectors)
            if file.is_dir():
                files.check_run(file)
                file = file / "model.safetensors"
            corpus.ledger.note(f"vectors that it begins with, sha256 {describe_file(file)['sha256']}", vectors)
        self._write_ledger()
        return Prepared(corpus, tokenizer, speller, labels, encoded.store, validation, label)

    def _encoded(self, tokenizer: Tokenizer, labels: list[str]) -> Encoded:
        """The training text as ids."""
        corpus, place = self.corpus, self.out / "store" / "train"
        limit = 0 if self.shape.running else self.recipe.batches.length
        total = max(1, corpus.counts["train"])

        def done(rows: int) -> None:
            self.progress("encoding", min(1.0, rows / total))

        if len(corpus.parts) > 1:
            encoded = encode_mixed(corpus.texts("train"), corpus.weights, tokenizer, place, done)
            sizes = encoded.store.columns["text"].lengths().tolist()
        else:
            label = self.recipe.data.label
            encoded = encode(corpus.examples("train"), tokenizer, TASKS[self.shape.name], labels, place, limit, done, label)
            sizes = [encoded.tokens]
        for part, size in zip(corpus.parts, sizes, strict=True):
            if not size:
                raise InputError(f"{part.name} holds no tokens to train on.")
        return encoded

    def _write_ledger(self) -> None:
        ledger = self.corpus.ledger
        files.write_json(self.out / "ledger.json", {**ledger.to_dict(), "summary": ledger.summary()})

    def _tell_untrained(self) -> None:
        """A Transformer learns nothing of places that no row of its batches reaches."""
        context, length = self.recipe.model_class.window_of(self.recipe.model), self.recipe.batches.length
        if context > length and not self.recipe.train.init:
            self.progress(
                f"batches.length is {length:,} and model.context {context:,}: places from {length + 1:,} on are never "
                f"trained, but read and written with. Set batches.length={context}, or model.context={length}.",
                0.0,
            )

    def _elapsed(self, data: Prepared, steps: int) -> dict[str, Any]:
        """Of several corpora: how often each was read, here and in the ledger."""
        if len(data.corpus.parts) == 1:
            return {}
        tokens = data.store.columns["text"].lengths().tolist()
        weights = data.store.columns["weight"].flat.tolist()
        drawn = tokens
        if not self.counts_itself:
            drawn = batches_of(data.store, self.task, self.recipe.batches, self.recipe.train.seed).drawn(steps)
        names = [part.name for part in data.corpus.parts]
        data.corpus.ledger.corpora = elapsed(names, tokens, weights, drawn)
        self._write_ledger()
        by_corpus = {row["corpus"]: row["epochs"] for row in data.corpus.ledger.corpora}
        return {"epochs": sum(drawn) / sum(tokens), "epochs_by_corpus": by_corpus}

    def _check_test_labels(self, labels: list[str]) -> None:
        """Before training, not after it: a label of the test file that cannot be predicted."""
        if not labels or "test" not in self.recipe.data.held_out_files():
            return
        known = set(labels)
        for example in self.corpus.examples("test"):
            several = self.task == "tag" or self.recipe.data.label == "classes"
            for label in tags_of(example, self.recipe.data.label) if several else (example.label,):
                if label not in known:
                    raise InputError(
                        f"{example.path}:{example.line}: the label '{label}' is not in the training data."
                        f"{nearest(label, known)} Mend the label, or leave the row out."
                    )

    def _tokenizer(self) -> Tokenizer:
        saved = self.out / "tokenizer.json"
        init = self.recipe.train.init
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
        with atomic_file(place) as beside:
            tokenizer.save(beside)

    def _texts(self) -> Iterator[str]:
        """The text of the training split, for the tokenizer alone; several corpora in the proportion of their weights,
        so that a sample of it is fair."""
        corpus = self.corpus
        for example in corpus.mixed() if len(corpus.parts) > 1 else corpus.examples("train"):
            if self.task == "tag":
                yield " ".join(example.words)
            else:
                yield " " + example.text if self.task == "classify" else example.text
            if example.target:
                yield " " + example.target if self.task == "classify" else example.target

    def _validation(self, tokenizer: Tokenizer, speller: Speller | None, labels: list[str]) -> Any:
        place = self.out / "store" / "validation"
        if self.task == "lm":
            limit = self.recipe.train.validate_tokens
            held = encode_split(self.corpus, "validation", tokenizer, speller, place, limit)
            self.corpus.ledger.unknown_rate = len(held.spelled) / max(1, len(held.store.tokens))
            return held
        label = self.recipe.data.label
        encoded = encode(self.corpus.examples("validation"), tokenizer, TASKS[self.shape.name], labels, place, label=label)
        self.corpus.ledger.unknown_rate = encoded.unknown / max(1, encoded.tokens)
        return encoded.store

    # Training

    def count(self, data: Prepared) -> tuple[dict[str, Any], Any]:
        """A model that trains itself: no checkpoints, it begins again."""
        from segue.compiling import told

        model = self.recipe.model_class(self.recipe.model, data.sizes)
        if self.device != "cpu":
            model.device = self.device
        metrics = Metrics(self.out)
        started = time.perf_counter()
        held = data.validation.store.tokens if isinstance(data.validation, Held) else data.validation
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
        epochs = model.epochs
        speed = epochs * len(data.store.tokens) / max(seconds, 1e-9)
        return _fitted(seconds, math.ceil(epochs), speed, float(epochs), model.parameters_count), model

    def learn(self, data: Prepared) -> tuple[dict[str, Any], Any]:
        """A model that learns by gradient, from the last checkpoint if there is one."""
        import torch

        from segue.training.setup import check_size, freeze, take_labels, take_vectors, take_weights
        from segue.training.checkpoint import clear_unfinished, latest, save_checkpoint
        from segue.training.distributed import World
        from segue.training.profile import Profile
        from segue.training.trainer import DivergedError, Trainer

        recipe, places = self.recipe, self.out / "checkpoints"
        world: World = self.world or World()
        if world.first:
            validates = data.validation is not None
            world.tell({"out": str(self.out.resolve()), "labels": data.labels, "validates": validates})
        check_size(lambda: recipe.model_class(recipe.model, data.sizes))
        torch.manual_seed(recipe.train.seed)
        model = recipe.model_class(recipe.model, data.sizes)
        take_vectors(model, recipe.model, data.tokenizer, self.progress)
        take_weights(model, recipe.train.init)
        take_labels(model, data.store)
        freeze(model, recipe.train.freeze)
        model.to(self.device)
        world.seed(recipe.train.seed)
        batches = batches_of(data.store, self.task, recipe.batches, recipe.train.seed)
        if isinstance(batches, Streams):
            world.check(batches.size, recipe.batches.accumulate)
            if self.device != "cpu" and world.size == 1:
                batches.keep_on(self.device)
        what = f"training {recipe.name}"

        def validate() -> dict[str, Any]:
            spent = min(trainer.progress, 0.99)  # it is not done while it validates
            return self._validate(model, data, lambda share: self.progress(what, spent, "validating"))

        profile = Profile(self.device) if self.profile else None
        trainer = Trainer(
            model, batches, recipe.train, validate if data.validation is not None else None, self.device, profile, world
        )
        if world.first:
            clear_unfinished(places)
        checkpoint, damaged = latest(places)
        for sentence in damaged:
            self.progress(sentence, 0.0)
        if checkpoint:
            trainer.restore(*checkpoint)
        metrics = Metrics(self.out, trainer.step, recipe.train.tensorboard) if world.first else None
        self.progress(what, trainer.progress)
        try:
            for record in trainer.fit():
                tensors = trainer.tensors() if record.kind in ("validation", "checkpoint") else None
                if metrics is None:
                    continue
                metrics.write(record)
                self._tell(record)
                if tensors is not None:
                    save_checkpoint(places, trainer.step, tensors, trainer.values())
        except DivergedError as error:
            good = max(places.glob("step-*"), default=None)
            raise SegueError(
                f"{error} That update was not applied. "
                + (f"The last good checkpoint is {good}." if good else "There is no checkpoint yet.")
                + " Try a smaller train.optimizer.rate or train.optimizer.clip."
            ) from None
        finally:
            if metrics is not None:
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
            met = sum(p.numel() for p in model.parameters() if model.tied or id(p) not in looked_up)
            fitted["profile"] = profile.result(trainer.targets / max(1, trainer.step), met)
        return fitted | {"stopped_early": trainer.stopped_early}, model

    def help(self, labels: list[str], validates: bool) -> None:
        """Another process than the first: reads what that one has written, and learns beside it."""
        tokenizer, store = Tokenizer.load(self.out / "tokenizer.json"), Store(self.out / "store" / "train")
        validation, label = True if validates else None, self.recipe.data.label
        self.learn(Prepared(self.corpus, tokenizer, None, labels, store, validation, label))

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
        from segue.inference.validate import validate_counted, validate_rows

        if self.task == "embed":
            from segue.inference.words import cloze

            return {"cloze": cloze(model, data.validation.tokens).accuracy}
        if self.counts_itself:
            return validate_counted(model, data.validation, self.task, self.recipe.batches)
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
            from segue.runs.run import Run
            from segue.runs.gather import write_run_page

            run = Run(out, self.device, trust=True)
            evaluation = run.evaluate_split(data.corpus, split, self.progress)
            result |= {"split": split, **evaluation.result}
            write_run_page(run, evaluation, data.corpus, split, result)
        files.write_json(out / "result.json", result)
        shutil.rmtree(out / "store", ignore_errors=True)
        return evaluation


def batches_of(store: Store, task: str, config: Layout, seed: int) -> Batches:
    """Lay out running text as streams, and other data as rows."""
    if task == "lm":
        return Streams(store, config, seed)
    by, added = ("source", 1) if task == "seq2seq" else ("text", 0)
    return Rows(store, config, seed, lambda columns: COLLATES[task](columns, config.length), by, added)


def _has_driver() -> bool:
    """Whether there may be a GPU, without the second that torch takes to be imported."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def _fitted(seconds: float, steps: int, speed: float, epochs: float, parameters: int) -> dict[str, Any]:
    return {
        "parameters": parameters,
        "train_seconds": seconds,
        "steps": steps,
        "epochs": epochs,
        "tokens_per_second": speed,
    }
