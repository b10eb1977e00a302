"""The house is read from left to right: who may import whom, what is never imported, and what is imported late."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import segue

HOUSE = Path(segue.__file__).parent
ORDER = (
    *("output", "errors", "compiling", "data", "tokens", "batches", "ngrams", "linear", "word_vectors", "layers"),
    *("models", "training", "inference", "look", "tasks", "recipe", "runs", "interop", "serve", "cli"),
    *("__main__", "__init__"),
)
"""A part imports from its own place and from those above it; `segue` itself is the face of the whole."""
RANK = {name: rank for rank, name in enumerate(ORDER)}
FILES = sorted(HOUSE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The folder or file below segue/ that a source file belongs to."""
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, inside functions too; `from a import b` is a.b."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports here are written out from segue on"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def parts_imported(path: Path) -> Iterator[tuple[int, str]]:
    """The parts of the house that a file imports; what `segue` itself holds (its version) is of no part."""
    for line, name in imported(path):
        first, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if first == "segue" and (part in RANK or (HOUSE / part).is_dir()):
            yield line, part


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_imports_go_one_way(path: Path) -> None:
    own = part_of(path)
    assert own in RANK, f"{own} has no place in the order of the house: give it one"
    for line, part in parts_imported(path):
        assert part in RANK, f"{path}:{line}: {part} has no place in the order of the house"
        assert RANK[part] <= RANK[own], f"{path}:{line}: {own} comes before {part} and may not import it"


def test_the_reading_of_imports_finds_them(tmp_path: Path) -> None:
    """Or the test above would hold of an empty list."""
    path = tmp_path / "a.py"
    path.write_text(
        "import segue.cli\ndef f():\n    from segue import recipe as r, __version__\n    from segue.data import x\n"
    )
    assert list(parts_imported(path)) == [(1, "cli"), (3, "recipe"), (4, "data")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_nothing_is_unpickled(path: Path) -> None:
    """No pickle, ever, in or out: neither by name nor through a library that would."""
    modules = {name.partition(".")[0] for _, name in imported(path)}
    assert not modules & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            called = f"{node.value.id}.{node.attr}"
            assert called not in {"torch.load", "torch.save", "np.load", "numpy.load", "np.save"}, (
                f"{path}:{node.lineno}"
            )
        if isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle", f"{path}:{node.value.lineno}"


# Without torch


HEAVY = ("torch", "torch._dynamo", "sacrebleu", "tokenizers", "numpy", "numba")


LEFT = f"print('LEFT', *[name for name in {HEAVY!r} if name in sys.modules])"
CALLS = f"""
import json, sys
from segue import cli
for words in json.loads(sys.argv[1]):
    assert cli.main(words) == 0, words
    {LEFT}
"""


def left_behind(code: str, *arguments: str) -> list[set[str]]:
    """Which heavy libraries a fresh interpreter has imported, each time that the code says LEFT."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("LEFT")]


def commands(*lines: str) -> dict[str, set[str]]:
    """Which ones it has imported after each of some command lines, one after the other."""
    return dict(zip(lines, left_behind(CALLS, json.dumps([shlex.split(line) for line in lines])), strict=True))


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text("the cows eat grass and hay\n" * 30, encoding="utf-8")
    return path


def test_import_and_help_are_light() -> None:
    assert left_behind(f"import sys, segue\n{LEFT}") == [set()]
    assert commands("--help") == {"--help": set()}


def test_verbs_that_only_say_what_there_is_need_no_torch() -> None:
    for line, left in commands("models", "recipes", "train --help").items():
        assert "torch" not in left, line


def test_a_recipe_of_a_model_that_counts_needs_no_torch() -> None:
    [left] = left_behind(f"import sys\nfrom segue.recipe import load_recipe\nload_recipe('ngram/bigram')\n{LEFT}")
    assert "torch" not in left


def test_counting_scoring_and_evaluating_need_no_torch(book: Path) -> None:
    train = f"train ngram {book} --out {book.parent / 'run'} data.validation=0 --json"
    reading = [f"{verb} {book.parent / 'run'} {book} --json" for verb in ("evaluate", "score")]
    for line, left in commands(train, *reading).items():
        assert "torch" not in left, line


def test_training_on_the_cpu_does_not_load_torchs_compiler(book: Path) -> None:
    lines = ["explain gpt/rotary"]
    for name in ("adamw", "sgd", "muon"):
        run = book.parent / name
        settings = f"data.validation=0.1 train.steps=3 train.optimizer.name={name}"
        lines.append(f"train neural_lm {book} --out {run} {settings} --device cpu")
        lines.append(f"generate {run} --max-tokens 3 --device cpu")
    for line, left in commands(*lines).items():
        assert "torch._dynamo" not in left, line
    assert "torch" in left  # or nothing was trained here
