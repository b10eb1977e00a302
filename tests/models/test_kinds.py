"""Kinds are files: which files are one, what their task is, and what is said of a file that lacks something."""

from __future__ import annotations

from pathlib import Path

import pytest

from segue import models
from segue.errors import InputError
from segue.models import kinds, model_class, task_of

HEAD = "from segue.models.base import Counted, LanguageModel\nfrom segue.models.network import Network\n"
LACKING = {
    "task, Config, step": """
class Mine(Network, LanguageModel):
    def forward(self): ...
    def start(self): ...
""",
    "Train, fit, load, save": """
class Mine(Counted):
    task = "embed"
    parameters_count = 0
    class Config: ...
""",
}


def test_a_file_without_a_config_is_shared_and_no_kind() -> None:
    files = {path.stem for path in Path(models.__file__).parent.glob("*.py")}
    assert files - set(kinds()) == {
        *("__init__", "base", "keys", "names", "network", "markov_lm"),
        *("counted_classifier", "neural_classifier", "neural_tagger", "heading", "encoder_decoder"),
    }


@pytest.mark.parametrize("kind", kinds())
def test_the_task_is_read_without_importing_the_model(kind: str) -> None:
    assert task_of(kind) == model_class(kind).task


@pytest.mark.parametrize(("lacks", "text"), LACKING.items())
def test_a_model_is_refused_by_what_it_lacks(lacks: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(InputError, match=f"Mine in .*mine.py lacks {lacks}\\. segue/models/base.py says"):
        model_class(str(tmp_path / "mine.py"))
