"""The corpus docstrings: functions without their docstrings, whole modules held out, the same every time."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.data import builtin, docstrings
from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.shapes import PARALLEL, TEXT
from segue.data.sources import guess_shape
from segue.errors import InputError

MODULE = '''\
"""A module."""

class Bag:
    @property
    def size(self):
        """Return the number of things in it.

        Each counts once.
        """

        return len(self.things)  # é

    def only(self):
        """It has nothing but a docstring."""

    def one(self): "It shares a line"; return 1

    def page(self):
        """Return a page of text.
        """
        return """
<p>
"""

async def later():
    """Wait for it."""
    def inner(x):
        """Return x itself."""
        return x
    return inner

def short():
    "~self"
    return 1
'''


def test_a_function_without_its_docstring() -> None:
    pairs = {pair.target: pair for pair in docstrings.of_module("stdlib:bag.py", MODULE)}
    assert list(pairs) == [
        *("Return the number of things in it.", "Return a page of text.", "Wait for it.", "Return x itself."),
    ]
    assert pairs["Return the number of things in it."].text == (
        "@property\ndef size(self):\n    return len(self.things)  # é"
    )
    assert pairs["Return a page of text."].text == 'def page(self):\n    return """\n<p>\n"""'
    assert pairs["Return x itself."].line == MODULE.split("\n").index("    def inner(x):") + 1
    for pair in pairs.values():
        (function,) = ast.parse(pair.text).body
        assert isinstance(function, docstrings.Function) and ast.get_docstring(function) is None
        assert pair.path == "stdlib:bag.py"


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Thirty modules in the place of the standard library; the last has a function of the first."""
    body = 'def f{i}{j}(x):\n    """Return {i} times {j} times x."""\n    return {i} * {j} * x\n'
    modules = [(f"stdlib:m{i:02}.py", "".join(body.format(i=i, j=j) for j in range(1 + i % 4))) for i in range(30)]
    modules.append(
        ("stdlib:z.py", body.format(i=0, j=0) + textwrap.dedent('def g():\n    """One more of these."""\n    g()\n'))
    )
    monkeypatch.setattr(builtin, "documents", lambda name, ledger: iter(modules))
    docstrings.pairs.cache_clear()
    yield
    docstrings.pairs.cache_clear()


def test_modules_are_held_out_as_a_whole(corpus: None) -> None:
    found = Corpus(Config("docstrings", validation=0.2, test=0.1), PARALLEL)
    splits = {split: list(found.examples(split)) for split in ("train", "validation", "test")}
    modules = [{pair.path for pair in rows} for rows in splits.values()]
    assert sum(map(len, modules)) == len(set.union(*modules)) == 31
    assert [len(some) for some in modules[1:]] == [6, 4]
    assert found.counts == {split: len(rows) for split, rows in splits.items()}
    sources = [pair.text for rows in splits.values() for pair in rows]
    assert len(sources) == len(set(sources)) == found.parts[0].units  # no function twice
    again = Corpus(Config("docstrings", validation=0.2, test=0.1), PARALLEL)
    assert list(again.examples("test")) == splits["test"] and again.sha256("test") == found.sha256("test")
    other = Corpus(Config("docstrings", validation=0.2, test=0.1, seed=1), PARALLEL)
    assert list(other.examples("test")) != splits["test"]


def test_it_is_pairs_and_nothing_else() -> None:
    assert guess_shape("docstrings") is PARALLEL
    with pytest.raises(InputError, match="has no such rows"):
        Corpus(Config("docstrings"), TEXT)


def test_the_standard_library_has_such_functions() -> None:
    module = Path(textwrap.__file__).read_text(encoding="utf-8")
    pairs = list(docstrings.of_module("stdlib:textwrap.py", module))
    (dedent,) = [pair for pair in pairs if pair.text.startswith("def dedent(")]
    assert dedent.target == (textwrap.dedent.__doc__ or "").split("\n")[0]
    assert "__doc__" not in dedent.text and dedent.target not in dedent.text
