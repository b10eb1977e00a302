"""Exchange word vectors with other toolkits: a word2vec run as a text or binary file, and such a file as a run.

Such a file has only the vectors, not the output table: an imported run answers nearest, analogy and pairs, and serves
as pretrained vectors (model.embeddings), but cannot predict words of a text.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from segue.data.atomic import atomic_file
from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.interop.imported_run import check_free, write_imported_run
from segue.models.base import Sizes
from segue.models.word2vec import FIRST, Word2vec
from segue.recipe import load_recipe
from segue.runs.run import Run
from segue.tokens import file_format
from segue.word_vectors.files import read_vectors, write_vectors

BLANK = "▁"
"""Replaces a space inside a word: in the file a space ends the word."""


def export_word2vec(run: Path, path: Path) -> list[str]:
    """Write the vectors, binary if the name ends in .bin; return notes for the user."""
    opened = Run.open(run)
    words = opened.words
    if path.exists():
        raise InputError(f"{path} exists already; nothing is overwritten. Choose another name.")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write into. Make it, or choose another place.")
    names = [_written(name) for name in words.names]
    if len(set(names)) < len(names):
        raise InputError(f"Two words of the run in {run} are the same once blanks are written as {BLANK}.")
    beside = path.with_name(f".{os.getpid()}.writing.{path.name}")  # the extension decides the format
    with atomic_file(path, beside):
        write_vectors(beside, names, opened.model.vectors[FIRST:])
    changed = sum(a != b for a, b in zip(names, words.names, strict=True))
    return [f"Blanks and line ends in {changed:,} tokens are written as {BLANK}."] if changed else []


def _written(name: str) -> str:
    return "".join(BLANK if letter.isspace() else letter for letter in name) or BLANK


def import_word2vec(path: Path, out: Path) -> list[str]:
    """Make a run folder from a file of vectors. A damaged file leaves nothing behind."""
    check_free(out)
    words, vectors = read_vectors(path)
    data = {"path": str(path), "unit": "line", "canonical": True, "validation": 0.0, "test": 0.0}
    base = {"data": data, "tokens": {"kind": "space"}, "model": {"width": vectors.shape[1]}}
    recipe = load_recipe("word2vec", base=base)
    model = Word2vec(recipe.model, Sizes(len(words) + FIRST))
    model.vectors = np.concatenate([np.zeros((FIRST, vectors.shape[1]), np.float32), vectors])
    model.outputs = None
    ledger, tokens = Ledger(files=[describe_file(path)]), file_format.write("space", words)
    write_imported_run(out, recipe, model.sizes, tokens, ledger, path, model.parameters_count, model.save)
    return [f"{len(words):,} words of {vectors.shape[1]} numbers."]
