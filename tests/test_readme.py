"""README is short and true: its size, its map, its make targets, and the quiz. Its commands: tests/test_docs.py."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST = 9_000
"""Bytes that README may have: what does not fit belongs into docs/."""


def test_it_is_short() -> None:
    assert len(README.encode()) <= MOST


def test_its_map_names_every_folder() -> None:
    folders = set(re.findall(r"^  (\w+)/ ", README, re.M))
    there = {path.name for path in (ROOT / "src" / "segue").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == there


def test_it_links_every_page_of_the_docs() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert f"](docs/{page.name})" in README


def test_ci_calls_only_what_the_readme_names() -> None:
    called = re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.M)
    assert {"lint", "test", "docs-test"} <= set(called)
    assert all(f"make {target}" in README for target in called)


QUIZ = re.findall(
    r"^\| ([^|]+) \| `(src/[^`]+)` `([^`]+)` \| `([^`]+)` \|$",
    (ROOT / "docs" / "quiz.md").read_text(encoding="utf-8"),
    re.M,
)


def test_every_question_of_the_quiz_is_read() -> None:
    rows = re.findall(r"^\| .*\? \|", (ROOT / "docs" / "quiz.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) == len(QUIZ) >= 30


@pytest.mark.parametrize(("question", "file", "name", "line"), QUIZ, ids=[row[0] for row in QUIZ])
def test_an_answer_of_the_quiz_holds(question: str, file: str, name: str, line: str) -> None:
    """The named function or class holds the line that answers."""
    source = (ROOT / file).read_text(encoding="utf-8")
    node: ast.AST | None = ast.parse(source)
    for part in name.split("."):
        node = named(node, part)
        assert node is not None, f"{file} has no {name}"
    assert line in (ast.get_source_segment(source, node) or ""), f"{name} in {file} does not hold {line}"


def named(node: ast.AST, name: str) -> ast.AST | None:
    """The function, class or assignment of this name, directly inside a module or class."""
    for inner in ast.iter_child_nodes(node):
        targets = inner.targets if isinstance(inner, ast.Assign) else [getattr(inner, "target", None)]
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if getattr(inner, "name", None) == name or name in names:
            return inner
    return None
