"""Rows to predict or to score: what is said about a path that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from segue.data.config import Config as Data
from segue.data.shapes import LABELLED, PARALLEL, Shape
from segue.errors import InputError
from segue.runs.questions import QuestionFile


@pytest.mark.parametrize(
    ("file", "shape", "whole", "said"),
    [
        ("a.en,none.de", PARALLEL, True, r"There is no file none\.de\. Expected SOURCE,TARGET, a table"),
        ("none.en,none.de", PARALLEL, True, r"There is no file none\.en and no file none\.de\."),
        ("a.en,a.de", PARALLEL, False, r"a\.en,a\.de are two files\. Expected the file of sources alone: a\.en\."),
        ("none.en", PARALLEL, False, r"There is no file none\.en\. Expected a table, JSON, or a text a line"),
        ("a.en,a.de", LABELLED, False, r"There is no file a\.en,a\.de\."),
    ],
)
def test_the_message_names_the_file_that_is_missing(
    file: str, shape: Shape, whole: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "a.de"):
        Path(name).write_text("a text\n")
    with pytest.raises(InputError, match=said):
        QuestionFile(file, Data(path="grammar"), shape, whole=whole)
