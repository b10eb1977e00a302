"""The house is read from left to right: who may import whom, what is never imported, and what is imported late."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import segue

HOUSE = Path(segue.__file__).parent
ORDER = (
    *("errors", "compiling", "data", "tokens", "batches", "ngrams", "linear", "word_vectors", "layers", "models"),
    *("training", "inference", "look", "recipe", "runs", "interop", "serve", "guard", "cli", "__main__", "__init__"),
)
"""A part imports from its own place and from those above it; `segue` itself is the face of the whole."""
RANK = {name: rank for rank, name in enumerate(ORDER)}
FILES = sorted(HOUSE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The folder or file below segue/ that a source file belongs to."""
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, inside functions too; `from a import b` is a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            called = f"{node.value.id}.{node.attr}"
            assert called not in {"torch.load", "torch.save", "np.load", "numpy.load", "np.save"}, (
                f"{path}:{node.lineno}"
            )
        if isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle", f"{path}:{node.value.lineno}"


# Without torch


HEAVY = ("torch", "torch._dynamo", "sacrebleu", "tokenizers", "numpy", "numba")


def left_behind(code: str, *arguments: str) -> set[str]:
    """Which heavy libraries a fresh interpreter has imported after running some code."""
    end = f"\nimport sys\nprint('LEFT', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code + end, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split("LEFT")[1].split())


def command(*words: str) -> set[str]:
    """The same after a command line."""
    return left_behind(
        "import sys\nfrom segue import cli\ntry:\n    cli.main()\nexcept SystemExit as e:\n    assert not e.code",
        *words,
    )


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text("the cows eat grass and hay\n" * 30, encoding="utf-8")
    return path


def test_import_and_help_are_light() -> None:
    assert left_behind("import segue") == set()
    assert command("--help") == set()


@pytest.mark.parametrize("words", [["models"], ["recipes"], ["train", "--help"]], ids=" ".join)
def test_verbs_that_only_say_what_there_is_need_no_torch(words: list[str]) -> None:
    assert "torch" not in command(*words)


def test_a_recipe_of_a_model_that_counts_needs_no_torch() -> None:
    assert "torch" not in left_behind("from segue.recipe import load_recipe\nload_recipe('ngram/bigram')")


def test_counting_scoring_and_evaluating_need_no_torch(book: Path) -> None:
    run = book.parent / "run"
    assert "torch" not in command("train", "ngram", str(book), "--out", str(run), "data.validation=0", "--json")
    assert "torch" not in command("evaluate", str(run), str(book), "--json")
    assert "torch" not in command("score", str(run), str(book), "--json")


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_training_on_the_cpu_does_not_load_torchs_compiler(book: Path, name: str) -> None:
    run = book.parent / name
    words = ("train", "neural_lm", str(book), "--out", str(run), "data.validation=0.1", "train.steps=3")
    assert "torch._dynamo" not in command(*words, f"train.optimizer.name={name}", "--device", "cpu")
    assert "torch._dynamo" not in command("generate", str(run), "--max-tokens", "3", "--device", "cpu")


def test_a_model_is_explained_without_torchs_compiler() -> None:
    assert "torch._dynamo" not in command("explain", "gpt/rotary")
