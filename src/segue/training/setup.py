"""Set up a network before training: check its size, load weights and vectors, freeze parameters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batches import Batches
from segue.batches.rows import Rows
from segue.batches.store import Store
from segue.batches.streams import Streams
from segue.errors import InputError
from segue.tokens.tokenizer import Tokenizer
from segue.training.log import Progress, silent
from segue.training.world import World


def check_size(make: Callable[[], Any]) -> None:
    """Check, before making the model, that weights, gradients and one more number for each fit into memory."""
    from segue.models.network import on_meta

    laid = on_meta(make)
    count = sum(parameter.numel() for parameter in laid.parameters())
    fixed = sum(buffer.numel() for buffer in laid.buffers())
    needed, there = 4 * (3 * count + fixed), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise InputError(
            f"The model has {count:,} parameters, and to train them takes {needed / 2**30:,.0f} GiB at the least; this "
            f"machine has {there / 2**30:,.0f}. Make it smaller, as by model.width or model.layers; `segue explain` "
            "says what a model takes."
        )


def freeze(model: Any, names: str) -> None:
    """train.freeze: do not train parameters whose names begin with one of these."""
    prefixes = tuple(name.strip() for name in names.split(",") if name.strip())
    known = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in known):
            raise InputError(f"train.freeze={prefix} names no parameter. There are: {', '.join(known)}.")
    for name, parameter in model.named_parameters():
        if prefixes and name.startswith(prefixes):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(f"train.freeze={names} leaves nothing to learn. Leave one of them out.")


def take_labels(model: Any, store: Any) -> None:
    """Give a classifier the training labels before it learns: class counts, or the mean and spread of numbers."""
    model.begin(np.asarray(store.columns["label"].flat) if "label" in store.columns else None)


def take_vectors(model: Any, config: Any, tokenizer: Tokenizer, progress: Progress = silent) -> None:
    """model.embeddings: the vectors of a word2vec run or file, for the tokens that have one there.

    A token is looked up as it is, without the spaces around it, and then in lower case. Tokens without a vector keep
    their random initial ones. All rows are rescaled to the same standard deviation, so that neither kind dominates: to
    that of the given vectors (Kim 2014), or, in models that predict tokens, to that of the model's own. There it is
    part of the initialisation: with large vectors and tied weights the first predictions would be far too confident.
    """
    path = config.embeddings
    if not path:
        return
    tables = model.token_tables
    if not tables:
        raise InputError(f"model.embeddings={path} has no place in this model: it has no vectors of tokens.")
    words, vectors = _read_vectors(Path(path))
    width, given = tables[0][0].embedding_dim, vectors.shape[1]
    if given != width:
        key = "embedding" if "embedding" in {one.name for one in fields(config)} and config.embedding else "width"
        raise InputError(
            f"model.embeddings={path} has vectors of {given} numbers, the model of {width}. Set model.{key}={given}."
        )
    index = {word: i for i, word in enumerate(words)}
    names = [tokenizer.name(i) for i in range(tokenizer.unk + 1, tokenizer.vocab_size)]
    for table, folded in tables:
        places = np.array([_place(name, index, folded) for name in names], np.int64)
        if not (places >= 0).any():
            raise InputError(
                f"model.embeddings={path} has a vector for none of the {len(names):,} tokens, such as '{names[0]}'. "
                "Expected vectors of words, and tokens that are words: set tokens.kind=word or tokens.kind=space."
            )
        _fill(
            table.weight.detach()[tokenizer.unk + 1 : tokenizer.vocab_size],
            vectors,
            places,
            model.task in ("lm", "masked_lm", "seq2seq"),
        )
    model.vectors_given()
    progress(f"{int((places >= 0).sum()):,} of {len(names):,} tokens begin with a vector from {path}.", 0.0)


def _fill(rows: Any, vectors: NDArray[np.float32], places: NDArray[np.int64], own: bool) -> None:
    """Put vector `places[i]` into row i (-1: none); `own`: rescale to the rows' standard deviation."""
    import torch

    ratio = float(vectors.std()) / float(rows.std()) or 1.0
    found = torch.from_numpy(places >= 0)
    if not own:
        rows *= ratio
    rows[found] = torch.from_numpy(vectors[places[places >= 0]]) / (ratio if own else 1.0)


def _place(name: str, index: dict[str, int], folded: bool) -> int:
    bare = name.strip()
    forms = (bare.lower(), bare) if folded else (name, bare, bare.lower())
    return next((index[form] for form in forms if form in index), -1)


def _read_vectors(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """Read words and their vectors from a word2vec run or from a file in its formats."""
    from segue.word_vectors.files import read_vectors, word_names

    if not path.is_dir():
        return read_vectors(path)
    from segue.ngrams.model_file import Arrays

    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"model.embeddings={path} is no finished run. Expected one of word2vec, or a file.") from None
    if config["kind"] != "word2vec":
        raise InputError(f"model.embeddings={path} is a run of {config['kind']}. Expected one of word2vec, or a file.")
    tokenizer = Tokenizer.load(path / "tokenizer.json")
    arrays = Arrays.of(path / "model.safetensors")
    vectors = np.array(arrays.numbers("vectors", (tokenizer.vocab_size, None)), np.float32)
    first = tokenizer.unk + 1
    return word_names([tokenizer.name(i) for i in range(first, tokenizer.vocab_size)]), vectors[first:]


def ready_batches(
    batches: Batches, model: Any, stores: Sequence[Store], device: str, world: World, progress: Progress
) -> None:
    """Do what makes batches fast: running text is kept on a GPU; framed rows get few shapes there, and of a frozen body
    their states are computed now, once."""
    if isinstance(batches, Streams):
        world.check(batches.size, batches.config.accumulate)
        if device != "cpu" and world.size == 1:
            batches.keep_on(device)
    elif isinstance(batches, Rows) and model.framed:
        from segue.training.frozen_states import keep_states

        if device != "cpu":
            batches.round_widths(model.sizes.window)
        for store in stores:
            keep_states(model, store, batches.collate, device, world, partial(progress, "reading with the body"))


def take_body(model: Any, weights: Path | None) -> None:
    """model.body: begin with the body's weights, a file of tensors that the run keeps while it trains."""
    if weights is None:
        return
    from safetensors.torch import load_file

    model.body.load_state_dict(load_file(weights))


def take_weights(model: Any, init: str) -> None:
    """train.init: begin with another run's weights. Only the head may differ in shape and then begins anew, and so do
    the vectors of marks that the other run does not have."""
    if not init:
        return
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        old, new = load_file(Path(init) / "model.safetensors"), model.state_dict()
    except (OSError, SafetensorError) as error:
        raise InputError(f"train.init={init} cannot be used: its model.safetensors is damaged ({error}).") from None
    _take_marks(model, init, old)
    for name in sorted(old.keys() | new.keys()):
        if name in old and name in new and old[name].shape == new[name].shape:
            new[name].copy_(old[name])
        elif not name.startswith(model.head_names):
            shapes = [list(side[name].shape) if name in side else "absent" for side in (old, new)]
            raise InputError(
                f"train.init={init} does not fit: {name} is {shapes[0]} there and {shapes[1]} here. "
                "Everything but the head must match: give the same model section."
            )


def _take_marks(model: Any, init: str, old: dict[str, Any]) -> None:
    """Give the other run's token tables the marks of this model: known ones by name, new ones as they were drawn."""
    import torch

    theirs = json.loads((Path(init) / "config.json").read_text(encoding="utf-8"))["sizes"]
    size, marks = model.sizes.vocab_size, theirs.get("marks", [])
    if theirs["vocab_size"] != size or tuple(marks) == model.sizes.marks:
        return
    tables = {id(table.weight) for table, _ in model.token_tables}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if id(weight) in tables and name in old and len(old[name]) == size + len(marks):
            known = {mark: old[name][size + place] for place, mark in enumerate(marks)}
            rows = [known.get(mark, weight.detach()[model.sizes.mark(mark)]) for mark in model.sizes.marks]
            old[name] = torch.cat([old[name][:size], *(row[None] for row in rows)])
