"""The house keeps its shape: tasks are files, models are asked by class, the walk is seven calls, the root is small."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import segue
from segue import cli, tasks

HOUSE = Path(segue.__file__).parent
FILES = sorted(HOUSE.rglob("*.py"))
TASKS = {"lm", "classify", "tag", "seq2seq", "embed"}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


# A task is a file


def branches_on_a_task(tree: ast.Module) -> Iterator[int]:
    """Lines with `x == "lm"`, `x in ("lm", …)`, or a dict whose keys are names of tasks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            strings = {part.value for side in sides for part in ast.walk(side) if isinstance(part, ast.Constant)}
            if strings & TASKS:
                yield node.lineno
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if len(keys & TASKS) > 1:
                yield node.lineno


def test_the_search_finds_branches() -> None:
    """Or the next test would hold of an empty list."""
    text = 'a = run.task == "lm"\nb = task in ("tag", "lm")\nc = {"lm": 1, "tag": 2}\nd = {"lm": 1}\ne = x == "line"\n'
    assert sorted(branches_on_a_task(ast.parse(text))) == [1, 2, 3]


def test_nobody_but_tasks_branches_on_a_task() -> None:
    own = (HOUSE / "tasks", HOUSE / "data" / "shapes.py")
    found = [
        f"{path.relative_to(HOUSE)}:{line}"
        for path in FILES
        if not any(path.is_relative_to(place) for place in own)
        for line in branches_on_a_task(tree_of(path))
    ]
    assert len(found) <= 2, found


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_is_whole(name: Any) -> None:
    task = tasks.task(name)
    assert task.name == name and task.figure in task.beside and task.verbs and task.ladder
    assert task.shape.name and task.tokens and task.curve[0]


# A typed contract


ASKED = re.compile(r"\b(model|cls|model_class|recipe|train|config|batches|decode|tokens|data)\b")
"""What a model, a class of models or a section of a recipe is called."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_models_and_recipes_are_asked_by_class_not_by_hasattr(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            assert not ASKED.search(ast.unparse(node.args[0])), f"{path}:{node.lineno}: {ast.unparse(node)}"


# The walk


def test_seven_calls_from_the_command_to_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of the project on the stack when the cross-entropy is computed, the command line's first."""
    import torch.nn.functional as F

    found: list[list[str]] = []
    compute = F.cross_entropy

    def watched(*given: Any, **named: Any) -> Any:
        if not found:
            found.append(list(_stack(sys._getframe(1))))
        return compute(*given, **named)

    monkeypatch.setattr(F, "cross_entropy", watched)
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("the cows eat grass and hay\n" * 40, encoding="utf-8")
    assert cli.main(["train", "rnn_lm", "book.txt", "train.steps=1", "model.width=8", "--out", "run"]) == 0
    [stack] = found
    assert stack == [
        *("cli.main", "cli.train", "runs.train.train", "training.trainer.fit", "training.trainer._step"),
        *("models.rnn_lm.loss", "layers.losses.linear_cross_entropy"),
    ]


def _stack(frame: FrameType | None) -> Iterator[str]:
    """The project's functions from the outermost to this one."""
    if frame is None:
        return
    yield from _stack(frame.f_back)
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(HOUSE):
        module = ".".join(path.relative_to(HOUSE).with_suffix("").parts)
        yield f"{module}.{frame.f_code.co_name}"


def test_the_walk_can_be_held_in_the_head() -> None:
    assert len((HOUSE / "runs" / "train.py").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_root_is_small() -> None:
    assert len(list(HOUSE.glob("*.py"))) <= 6


def test_blocks_are_called_as_modules() -> None:
    """`x.forward(…)` goes past the hooks of torch (FSDP, compile)."""
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and node.attr == "forward" and not isinstance(node.value, ast.Call):
                raise AssertionError(f"{path}:{node.lineno}: {ast.unparse(node)}")
