"""Vectors of words for and of other toolkits: a word2vec run as a text or binary file, and such a file as a run.

Only the vectors travel, not the table that predicts: an imported run is asked (nearest, analogy, pairs) and begun from
(model.embeddings), and cannot say which word stood where.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

from segue.data.atomic import atomic_file
from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.inference.words import words_of
from segue.models.base import Sizes
from segue.models.word2vec import FIRST, Word2vec
from segue.recipe import load_recipe, to_toml
from segue.runs import folder as files
from segue.runs.run import Run
from segue.tokens import file_format
from segue.word_vectors.files import read_vectors, write_vectors

BLANK = "▁"
"""Stands for a blank inside a word: in the file a blank ends it."""


def export_word2vec(run: Path, path: Path) -> list[str]:
    """Writes the vectors; binary where the name ends in .bin. Returns what its owner should know."""
    opened = Run(run)
    words = words_of(opened)
    if path.exists():
        raise InputError(f"{path} exists already; nothing is overwritten. Choose another name.")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write into. Make it, or choose another place.")
    names = [_written(name) for name in words.names]
    if len(set(names)) < len(names):
        raise InputError(f"Two words of the run in {run} are the same once blanks are written as {BLANK}.")
    beside = path.with_name(f".{os.getpid()}.writing.{path.name}")  # its suffix says how it is written
    with atomic_file(path, beside):
        write_vectors(beside, names, opened.model.vectors[FIRST:])
    changed = sum(a != b for a, b in zip(names, words.names, strict=True))
    return [f"Blanks and line ends in {changed:,} tokens are written as {BLANK}."] if changed else []


def _written(name: str) -> str:
    return "".join(BLANK if letter.isspace() else letter for letter in name) or BLANK


def import_word2vec(path: Path, out: Path) -> list[str]:
    """Makes a run folder of a file of vectors. A damaged file leaves nothing behind."""
    if out.exists():
        raise InputError(f"{out} exists already; nothing is overwritten. Choose another --out.")
    words, vectors = read_vectors(path)
    beside = out.with_name(f".{out.name}.{os.getpid()}.writing")
    made = files.missing(out.parent)
    try:
        beside.mkdir(parents=True)
        _write_run(beside, path, words, vectors)
        beside.replace(out)
    except BaseException:
        files.undo(beside, [beside, *made])
        raise
    return [f"{len(words):,} words of {vectors.shape[1]} numbers."]


def _write_run(out: Path, path: Path, words: list[str], vectors: np.ndarray) -> None:
    data = {"path": str(path), "unit": "line", "canonical": True, "validation": 0.0, "test": 0.0}
    base = {"data": data, "tokens": {"kind": "space"}, "model": {"width": vectors.shape[1]}}
    recipe = load_recipe("word2vec", base=base)
    sizes = Sizes(len(words) + FIRST)
    model = Word2vec(recipe.model, sizes)
    model.vectors = np.concatenate([np.zeros((FIRST, vectors.shape[1]), np.float32), vectors])
    model.outputs = None
    model.save(out)
    ledger = Ledger(files=[describe_file(path)])
    config = {"kind": "word2vec", "format": files.FORMAT, "imported": str(path)}
    config |= {"config": dataclasses.asdict(recipe.model)}
    result = {"model": recipe.name, "parameters": model.parameters_count, "train_seconds": 0.0, "steps": 0}
    files.write_atomic(out / "recipe.toml", to_toml(recipe))
    files.write_json(out / "environment.json", files.environment("cpu", 0, 0))
    files.write_json(out / "ledger.json", {**ledger.to_dict(), "summary": ledger.summary()})
    files.write_json(out / "tokenizer.json", file_format.write("space", words))
    files.write_json(out / "config.json", config | {"sizes": dataclasses.asdict(sizes), "labels": []})
    (out / "metrics.jsonl").touch()
    files.write_json(out / "result.json", result | {"epochs": 0.0, "tokens_per_second": 0.0})
