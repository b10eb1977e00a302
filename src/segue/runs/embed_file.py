"""Vectors of the texts of a file: as JSON lines, as a NumPy file, or the texts that are nearest to one."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np

from segue.data.example import Example
from segue.errors import InputError
from segue.inference.text_vectors import Vectors, unit, write_npy
from segue.runs.folder import to_json
from segue.runs.questions import STANDARD_INPUT, QuestionFile
from segue.runs.resume import Settings
from segue.runs.run import Run
from segue.training.log import Progress, silent

_DIGITS = 7
"""Digits after the point in JSON; a NumPy file has every bit."""


class EmbeddedFile:
    """The vectors of the texts of one file, of standard input (-), or of one text."""

    def __init__(self, run: Run, what: str, settings: Settings = (), **how: Any) -> None:
        """`how`: pooling, layer and normalise, as in `Run.embed`."""
        self.run, self.how = run, how
        run.embed_examples([], **how)  # raises what is wrong before a file is read
        _, data, form = run.split_settings(settings, "embedding")
        self.typed = [] if what == STANDARD_INPUT or _is_file(what) else [run.asked(what)]
        self.file = None if self.typed else QuestionFile(what, data, run.recipe.shape, form)

    def lines(self, progress: Progress = silent) -> Iterator[str]:
        """Yield a JSON object for each text, with its vector."""
        for example, x_D in self._embedded(progress):
            second = {"target": example.target} if example.target else {}
            yield to_json({"text": example.text, **second, "vector": [round(x, _DIGITS) for x in x_D.tolist()]})

    def write(self, path: Path, progress: Progress = silent) -> str:
        """Write the vectors as a NumPy file, a row a text; return what was written, in a sentence."""
        if path.suffix != ".npy":
            raise InputError(
                f"--out {path}: expected the name of a NumPy file, FILE.npy. Without --out, JSON is printed."
            )
        rows, width = write_npy(path, (x_D for _, x_D in self._embedded(progress)))
        return f"{path}: {rows:,} vectors of {width:,} numbers (float32), in the order of the texts."

    def nearest(self, text: str, top: int, progress: Progress = silent) -> list[tuple[str, float]]:
        """Return the texts whose vectors are nearest to that of `text`, with their cosines; the nearest first."""
        asked_D = unit(self.run.embed([text], **self.how)[0])
        scored = ((float(np.dot(unit(x_D), asked_D)), example.text) for example, x_D in self._embedded(progress))
        return [(text, cosine) for cosine, text in heapq.nlargest(top, scored)]

    def _embedded(self, progress: Progress) -> Iterator[tuple[Example, Vectors]]:
        examples, again = tee(self._examples())  # the model reads a window of texts ahead
        count = self.file.count if self.file else 0
        vectors = self.run.embed_examples(examples, **self.how)
        for number, found in enumerate(zip(again, vectors, strict=True), 1):
            yield found
            if count:
                progress("embedding", number / count)

    def _examples(self) -> Iterator[Example]:
        if self.file is None:
            return iter(self.typed)
        _, asked = self.file.asked(self.run.example_of)
        return (each.example for each in asked)


def _is_file(what: str) -> bool:
    """Whether an argument names a file, and is not a text itself; refuse the name of one that is not there."""
    path = Path(what[:255])
    if path.is_file():
        return True
    if path.suffix and not any(map(str.isspace, what)) and path.stem:
        raise InputError(f"There is no file {what}. Expected a file, a text of several words, or - for standard input.")
    return False
