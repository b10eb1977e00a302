"""Prepare the data of a run: tokenizer, labels and ids on disk, made once and kept until the run is finished."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from segue.batches.codec import Codec, Sizes
from segue.batches.frames import cut_frames, frame_width
from segue.batches.store import Store
from segue.data.atomic import atomic_file
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.files import describe_file
from segue.data.ledger import elapsed
from segue.data.media import MEDIA
from segue.errors import InputError
from segue.inference.evaluation import Evaluation
from segue.models.base import Counted
from segue.recipe import Recipe
from segue.runs import folder as files
from segue.runs.body import Kept, inputs_of, keep_body, kept_body, with_body
from segue.runs.leaks import leak, trained_runs, write_hashes
from segue.runs.resume import Begun
from segue.runs.run import Run
from segue.tasks.base import HeldOut
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import SOURCE_TOKENIZER, TOKENIZER, Tokenizer, load_sides
from segue.training.log import Progress
from segue.training.world import World


class Prepared(NamedTuple):
    """The data of a run as ids."""

    corpus: Any
    """The Corpus; None in a process that is not the first."""
    codec: Codec
    store: Store
    held_out: HeldOut | None
    """The validation data, if there is any."""
    body: Kept | None = None
    """The body under the model's head (model.body), if it has one."""

    @property
    def stores(self) -> list[Store]:
        """The training rows, and the validation rows if they are rows too."""
        held_out = self.held_out.data if self.held_out else None
        return [self.store, held_out] if isinstance(held_out, Store) else [self.store]

    @property
    def tested(self) -> str:
        """The split for the final figures, test or validation; empty if nothing was held out."""
        counts = self.corpus.counts
        return next((split for split in ("test", "validation") if counts[split]), "")

    @property
    def held_out_share(self) -> float:
        """The size of the validation data as a share of the training data; only the first process knows it."""
        if self.held_out is None or self.held_out.data is None:
            return 0.0
        data = self.held_out.for_fit
        return len(data.tokens if isinstance(data, Store) else data) / max(1, len(self.store.tokens))

    def validating(self, recipe: Recipe, path: Path) -> Prepared:
        """Return the same with as much validation data as the recipe now asks for."""
        if self.held_out is None:
            return self
        limit = recipe.train.validate_tokens
        held_out = recipe.task.held_out(self.corpus, "validation", self.codec, path / "store" / "planned", limit)
        return self._replace(held_out=held_out)

    def scored(self, run: Run, evaluation: Evaluation, split: str) -> dict[str, Any]:
        """Say which text the final figures are of: how much, its checksum, and whether it had a say in the run.
        Validation text chooses the best weights of a network, and what a counted model leaves to it; test text has no
        say."""
        chooses = run.model.held_out_chooses if isinstance(run.model, Counted) else True
        return {
            "amount": run.task.amount(evaluation),
            "sha256": self.corpus.sha256(split),
            "had_a_say": split == "validation" and chooses,
            **leak(trained_runs(run.path, run.recipe, own=True), self.corpus, split),
        }

    def epochs(self, begun: Begun, trainer: Any) -> dict[str, Any]:
        """Return how often each of several corpora was read, and write it into the ledger."""
        if len(self.corpus.parts) == 1:
            return {}
        tokens = self.store.columns["text"].lengths().tolist()
        weights = self.store.columns["weight"].flat.tolist()
        drawn = tokens if isinstance(trainer.model, Counted) else trainer.batches.drawn(trainer.step)
        names = [part.name for part in self.corpus.parts]
        self.corpus.ledger.corpora = elapsed(names, tokens, weights, drawn)
        write_ledger(self.corpus, begun.path)
        by_corpus = {row["corpus"]: row["epochs"] for row in self.corpus.ledger.corpora}
        return {"epochs": sum(drawn) / sum(tokens), "epochs_by_corpus": by_corpus}


class Shared:
    """The data of runs that differ only in their seed: the first run prepares it in a folder, the others take it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prepared: Prepared | None = None
        self.files: list[Path] = []
        """Tokenizers and speller of the first run, which each run has a copy of."""

    def take(self, path: Path) -> Prepared | None:
        """Return what an earlier run prepared, if any, with the files that belong into this run's folder."""
        for file in self.files:
            shutil.copy(file, path / file.name)
        if self.prepared:
            write_ledger(self.prepared.corpus, path)
        return self.prepared

    def keep(self, prepared: Prepared, path: Path) -> Prepared:
        """Keep what a run prepared for those that follow."""
        self.prepared = prepared
        self.files = [file for name in (TOKENIZER, SOURCE_TOKENIZER, "speller.json") if (file := path / name).exists()]
        return prepared

    def remove(self) -> None:
        """Remove the ids."""
        shutil.rmtree(self.folder, ignore_errors=True)


def prepare(begun: Begun, world: World, progress: Progress, shared: Shared | None = None) -> Prepared:
    """Read the data and write ids (the first process), or read what it has written (the others)."""
    if not world.first:
        return _read(begun)
    if before := begun.recipe.train.init or begun.recipe.model.body:
        files.copy_origin(Path(before), begun.path)
    with begun.corpus.unchanged():
        if shared is None:
            return _prepare(begun, world, progress, begun.path / "store")
        return shared.take(begun.path) or shared.keep(_prepare(begun, world, progress, shared.folder), begun.path)


def _prepare(begun: Begun, world: World, progress: Progress, store: Path) -> Prepared:
    recipe, corpus, path = begun.recipe, begun.corpus, begun.path
    _check(recipe, corpus, progress)
    task = recipe.task
    tokenizer, source = _tokenizers(recipe, corpus, path, progress)
    speller = _speller(recipe, tokenizer, corpus, path)
    body = keep_body(recipe, store)
    codec = _codec(recipe, tokenizer, source, task.labels(corpus, recipe.data), speller, body)
    total = max(1, corpus.counts["train"])
    encoded = task.store(
        *(corpus, "train", codec, store / "train", recipe.batches.length),
        lambda rows: progress("encoding", min(1.0, rows / total)),
    )
    if tokenizer.closed and not encoded.unknown and not corpus.counts["validation"] + corpus.counts["test"]:
        codec = codec._replace(sizes=replace(codec.sizes, unknown="elsewhere"))
    _check_tokens(corpus, encoded.store, encoded.tokens)
    task.check_store(encoded.store, recipe.data)
    corpus.overlap()
    corpus.repeats()
    write_hashes(corpus, path, recipe.train.init or recipe.model.body)
    corpus.ledger.tokens_cut = encoded.cut
    if encoded.frames_cut:
        said = cut_frames(encoded.frames_cut, recipe.batches.length, recipe.data.source)
        corpus.ledger.note(f"{said} (batches.length)", recipe.data.path)
    held_out = None
    if corpus.counts["validation"]:
        held_out = task.held_out(corpus, "validation", codec, store / "validation", recipe.train.validate_tokens)
        corpus.ledger.unknown_rate = held_out.unknown_rate
    _note_vectors(recipe, corpus)
    if body is not None and body.weights:
        corpus.ledger.note(f"the head is put on a body, weights of sha256 {body.sha256}", recipe.model.body)
    write_ledger(corpus, path)
    begun.broadcast(world, codec.labels, held_out is not None)
    return Prepared(corpus, codec, encoded.store, held_out, body)


def _read(begun: Begun) -> Prepared:
    store = begun.path / "store"
    body = kept_body(store)
    codec = _codec(begun.recipe, *load_sides(begun.path), begun.labels, None, body)
    held_out = HeldOut(None, 0.0) if begun.validates else None  # only the first process validates
    return Prepared(None, codec, Store(store / "train"), held_out, body)


def _codec(
    recipe: Recipe,
    tokenizer: Tokenizer,
    source: Tokenizer | None,
    labels: tuple[str, ...],
    speller: Speller | None,
    body: Kept | None,
) -> Codec:
    label = recipe.data.label
    classes = 1 if label == "number" else len(labels)
    unknown: Any = "here" if tokenizer.closed else "never"
    marks = recipe.model_class.marks(recipe.model)
    sizes = Sizes(tokenizer.vocab_size, classes, label, marks, unknown, recipe.data.carry)
    sizes = replace(sizes, stopped=recipe.model_class.stopped)
    sizes = with_body(sizes, body, recipe.batches.length)
    if width := frame_width(recipe.data):
        sizes = replace(sizes, source=recipe.data.source, frame=width)
    if source:
        sizes = replace(sizes, source_vocab_size=source.vocab_size)
    inputs = inputs_of(recipe, sizes)
    return Codec(tokenizer, labels, recipe.data, sizes, speller, source, recipe.tokens.dropout, inputs)


def _check(recipe: Recipe, corpus: Corpus, progress: Progress) -> None:
    counted = issubclass(recipe.model_class, Counted)
    if counted and corpus.weights:
        names = "+".join(part.name for part in corpus.parts)
        counts = not recipe.task.whole_epochs
        raise InputError(
            f"{recipe.kind} {'counts' if counts else 'reads'} every token once, so that its corpora cannot be weighed "
            f"as in {recipe.data.path[:200]}. Leave the weights out, {names[:200]}"
            + (", or choose a model that learns by gradient, such as rnn_lm or gpt." if counts else ".")
        )
    if recipe.model.embeddings and recipe.tokens.sides == "each":
        raise InputError(
            "model.embeddings gives the vectors of one vocabulary, and tokens.sides=each makes two. Leave one of them "
            "out."
        )
    if remark := recipe.task.remark(corpus, recipe.tokens.kind):
        progress(f"{recipe.data.path}: {remark}.", 0.0)
        corpus.ledger.note(remark, recipe.data.path)
    window, length = recipe.model_class.window_of(recipe.model), recipe.batches.length
    frames = frame_width(recipe.data) > 0  # a source is cut at `length` frames, and a target never comes near it
    if window > length and not recipe.train.init and not frames:
        progress(
            f"batches.length is {length:,} and model.context {window:,}: places from {length + 1:,} on are never "
            f"trained, but read and written with. Set batches.length={window}, or model.context={length}.",
            0.0,
        )


def _check_tokens(corpus: Corpus, store: Store, tokens: int) -> None:
    several = len(corpus.parts) > 1
    sizes = store.columns["text"].lengths().tolist() if several else [tokens]
    for part, size in zip(corpus.parts, sizes, strict=True):
        if not size:
            raise InputError(f"{part.name} holds no tokens to train on.")


def _tokenizers(recipe: Recipe, corpus: Corpus, path: Path, progress: Progress) -> tuple[Tokenizer, Tokenizer | None]:
    """Return the tokenizer of the run, and the sources' own: the saved ones, those of train.init, or newly learnt
    ones."""
    if not (path / TOKENIZER).exists():
        other = recipe.train.init or recipe.model.body
        found = _of_run(recipe, other) if other else _learnt(recipe, corpus, progress)
        # Atomic, and tokenizer.json last: a resumed run uses what it finds, and then all is there.
        for name, tokenizer in zip((SOURCE_TOKENIZER, TOKENIZER), reversed(found), strict=True):
            if tokenizer:
                with atomic_file(path / name) as beside:
                    tokenizer.save(beside)
    return load_sides(path)


def _of_run(recipe: Recipe, other: str) -> tuple[Tokenizer, Tokenizer | None]:
    files.check_run(Path(other))
    tokenizer, source = load_sides(Path(other))
    if not recipe.model_class.framed:  # a body reads its own tokens, of any kind
        recipe.task.check_tokens(tokenizer, other, recipe.data)
    return tokenizer, source


def _learnt(recipe: Recipe, corpus: Corpus, progress: Progress) -> tuple[Tokenizer, Tokenizer | None]:
    progress("learning the tokens", 0.0)
    if recipe.data.source in MEDIA:
        return Tokenizer.train(recipe.tokens, _texts(recipe, corpus, lambda one: Example(one.target))), None
    both = recipe.tokens.sides == "both"
    source = None if both else Tokenizer.train(recipe.tokens, _texts(recipe, corpus, lambda one: Example(one.text)))
    own = (lambda one: one) if both else (lambda one: Example(one.target))
    tokenizer = Tokenizer.train(recipe.tokens, _texts(recipe, corpus, own))
    progress("learning the tokens", 1.0)
    return tokenizer, source


def _texts(recipe: Recipe, corpus: Corpus, side: Callable[[Example], Example]) -> Iterator[str]:
    """Yield the training text for a tokenizer, that of a side of each example or of both; several corpora are mixed by
    their weights, so that a sample is fair."""
    task = recipe.task
    for example in corpus.mixed() if len(corpus.parts) > 1 else corpus.examples("train"):
        yield from task.texts(side(example), recipe.tokens.kind)


def _speller(recipe: Recipe, tokenizer: Tokenizer, corpus: Corpus, path: Path) -> Speller | None:
    """Learn the bits of spelling unknown words, if texts are scored in bits and the vocabulary is closed."""
    if not (recipe.task.spells and tokenizer.closed and tokenizer.lossless):
        return None
    speller = Speller.learn(example.text for example in corpus.examples("train"))
    speller.save(path / "speller.json")
    return speller


def _note_vectors(recipe: Recipe, corpus: Corpus) -> None:
    """Write the checksum of the file of model.embeddings into the ledger."""
    if vectors := recipe.model.embeddings:
        file = Path(vectors)
        if file.is_dir():
            files.check_run(file)
            file = file / "model.safetensors"
        corpus.ledger.note(f"vectors that it begins with, sha256 {describe_file(file)['sha256']}", vectors)


def write_ledger(corpus: Corpus, path: Path) -> None:
    """Write ledger.json: what was read, skipped and cut."""
    ledger = corpus.ledger
    files.write_json(path / "ledger.json", {**ledger.to_dict(), "summary": ledger.summary()})
