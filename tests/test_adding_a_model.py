"""docs/adding-a-model.md tells the truth: its two models are taken from the page, its commands run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import segue
from segue.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "adding-a-model.md").read_text(encoding="utf-8")
FILES = dict(
    zip(("sru_lm.py", "mean_classifier.py"), re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M), strict=True)
)
LM, CLASSIFIER = (
    [shlex.split(line)[1:] for line in block.splitlines()]
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.S | re.M)
)
SAID = {"explain": "Parameters", "evaluate": "bits per byte", "generate": "The cows ", "compare": "The page:"}
"""What some of the verbs print."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, and data for them."""
    folder = tmp_path_factory.mktemp("adding")
    for name, code in FILES.items():
        (folder / name).write_text(code, encoding="utf-8")
    lines = (f"The cows eat grass and hay on day {i % 7}, and then they sleep.\n" for i in range(100))
    (folder / "book.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "reviews.tsv").write_text("good\ta fine film\nbad\ta dull film\n" * 20, encoding="utf-8")
    (folder / "film.txt").write_text("a fine one\n", encoding="utf-8")
    return folder


def test_the_commands_of_the_page_run(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    served: list[Any] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, **_: served.append(server.config.app))
    monkeypatch.chdir(folder)
    for words in LM:
        assert main(words) == 0, words
        assert SAID.get(words[0], "") in capsys.readouterr().out, words
    assert {words[0] for words in LM} == {*SAID, "train", "score", "look", "serve"}
    assert segue.load(folder / "runs" / "sru", trust=True).recipe.train.steps == 30
    [app] = served
    asked = {"run": "sru", "prompt": "The cows ", "max_tokens": 5}
    with TestClient(app, base_url="http://localhost:8000") as client:
        assert client.post("/api/generate", json=asked).status_code == 200


def test_the_classifier_of_the_page_learns(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    for words in CLASSIFIER:
        assert main(words) == 0, words
    assert "good" in capsys.readouterr().out


def test_a_resumed_run_is_the_one_that_was_never_stopped(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(folder)
    tiny = ["model.width=8", "train.optimizer.schedule=constant", "--trust", "--device", "cpu"]
    assert main(["train", "sru_lm.py", "book.txt", "--out", "cut", "train.steps=4", *tiny]) == 0
    assert main(["train", "--out", "cut", "--resume", "--trust", "--device", "cpu", "train.steps=8"]) == 0
    assert main(["train", "sru_lm.py", "book.txt", "--out", "whole", "train.steps=8", *tiny]) == 0
    cut, whole = ((folder / name / "model.safetensors").read_bytes() for name in ("cut", "whole"))
    assert cut == whole


def test_without_trust_nothing_of_the_file_is_run(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    assert main(["train", "sru_lm.py", "book.txt"]) == 2
    assert "--trust" in capsys.readouterr().err


def test_a_language_model_without_step_is_refused_as_the_page_says(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (message,) = re.findall(r"^SruLm in .*$", PAGE, re.M)
    Path("sru_lm.py").write_text(FILES["sru_lm.py"].replace("def step(", "def stop("), encoding="utf-8")
    assert main(["train", "sru_lm.py", "pydoc", "--trust"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def package(folder: Path) -> Path:
    """A folder with the package in it, whose models/ has the files of the page too."""
    source = Path(segue.__file__).parent
    models = folder / "package" / "segue" / "models"
    models.mkdir(parents=True)
    for path in source.iterdir():
        if path.name not in ("models", "__pycache__"):
            (models.parent / path.name).symlink_to(path)
    for path in (source / "models").glob("*.py"):
        (models / path.name).symlink_to(path)
    for name, code in FILES.items():
        (models / name).write_text(code, encoding="utf-8")
    return folder / "package"


def python(package: Path, *words: str) -> str:
    """What Python prints with that package."""
    own = {"PYTHONPATH": str(package)}
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


IN_THE_PACKAGE = """
import runpy, sys
from segue.cli import main
folder = sys.argv[1]
assert main(["models"]) == 0
assert main(["explain", "sru_lm"]) == 0
assert main(["train", "sru_lm", f"{folder}/book.txt", "train.steps=2", "--out", f"{folder}/in-package"]) == 0
pages = runpy.run_path("docs/make.py")
print(pages["recipes_page"]())
"""


def test_in_the_folder_of_models_it_is_a_kind(package: Path, folder: Path) -> None:
    said = python(package, "-c", IN_THE_PACKAGE, str(folder))
    assert re.search(r"^  sru_lm +Simple recurrent unit", said, re.M)
    assert re.search(r"^  mean_classifier +Mean of the words' vectors", said, re.M)
    assert "## sru_lm" in said and "| `model.width` | whole number | `128` | Units" in said


def test_in_the_folder_of_models_it_passes_the_tests_that_read_every_kind(package: Path) -> None:
    files = ("tests/test_contract.py", "tests/test_recipes.py", "tests/training/test_given_vectors.py")
    chosen = "sru_lm or mean_classifier or test_what_is_shipped or test_every_model_with_vectors"
    said = python(package, "-m", "pytest", *files, "-vv", "-k", chosen, "-o", "pythonpath=", "-p", "no:cacheprovider")
    for name in ("test_step_equals_logprobs[tokens-sru_lm]", "test_overfits_one_batch[mean_classifier]"):
        assert f"{name} PASSED" in said
