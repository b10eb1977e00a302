"""Functions of Python's standard library with the first lines of their docstrings: pairs to learn summaries from.

The source of a pair is the text of a function without its docstring, the target the docstring's first line, which by
Python's conventions says in a sentence what the function does. Modules are held out as a whole: the functions of one
module are much alike.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import lru_cache

from segue.data import builtin
from segue.data.example import Example
from segue.data.ledger import Ledger

FEWEST_WORDS = 3
"""A first line of fewer words, such as `~self`, is no summary."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=1)
def pairs() -> tuple[Example, ...]:
    """Make all pairs, those of a module together, no source twice; it takes seconds, so that they are kept."""
    found: dict[str, Example] = {}
    for title, text in builtin.documents("stdlib", Ledger()):
        for pair in of_module(title, text):
            found.setdefault(pair.text, pair)
    return tuple(found.values())


def of_module(title: str, text: str) -> Iterator[Example]:
    """Yield the pairs of a module."""
    lines = text.split("\n")  # as ast counts them; str.splitlines would also split at form feeds
    for function in _functions(text):
        target = (ast.get_docstring(function) or "").partition("\n")[0].strip()
        first, second = function.body[:2]
        alone = function.lineno < first.lineno <= (first.end_lineno or 0) < second.lineno
        if alone and len(target.split()) >= FEWEST_WORDS:
            yield Example(_without_docstring(lines, function), target=target, path=title, line=function.lineno)


def _functions(text: str) -> Iterator[Function]:
    """Yield the functions and methods of a module, in their order, those with two statements or more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes in strings
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):  # some modules are templates
            return
    yield from _within(tree)


def _within(block: ast.AST) -> Iterator[Function]:
    for node in ast.iter_child_nodes(block):
        if isinstance(node, Function) and len(node.body) > 1:
            yield node
        if isinstance(node, ast.stmt | ast.ExceptHandler):  # expressions hold no functions, and are most of a tree
            yield from _within(node)


def _without_docstring(lines: list[str], function: Function) -> str:
    """Cut a function out of the lines of its module, with its decorators and without the lines of its docstring."""
    docstring, indent = function.body[0], " " * function.col_offset
    first = min(node.lineno for node in (function, *function.decorator_list)) - 1
    kept = [*lines[first : docstring.lineno - 1], *lines[docstring.end_lineno : function.end_lineno]]
    return "\n".join(line.removeprefix(indent).rstrip() for line in kept if line.strip())
