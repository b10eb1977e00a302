"""Several corpora in one path: how they are named and weighed, and what is held out from each."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from segue.data.corpus import SPLITS, Config, Corpus
from segue.data.shapes import LABELLED, PARALLEL, TEXT, Shape
from segue.data.sources import corpora
from segue.errors import InputError

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def put(*names: str, text: str = "a line of text\n") -> str:
        for name in names:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
        return names[0]

    return put


def refusal(path: str, shape: Shape = TEXT) -> str:
    with pytest.raises(InputError) as caught:
        Corpus(Config(path=path), shape)
    return str(caught.value)


# Names


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.txt", [("a.txt", None)]),
        ("a.txt+b.txt", [("a.txt", None), ("b.txt", None)]),
        ("a.txt:3+b.txt:0.25", [("a.txt", Fraction(3)), ("b.txt", Fraction(1, 4))]),
        ("a.txt:3+pydoc:1", [("a.txt", Fraction(3)), ("pydoc", Fraction(1))]),
        ("*.txt:2+code:1", [("*.txt", Fraction(2)), ("code", Fraction(1))]),
        ("code/*:2+b.txt:1", [("code/*", Fraction(2)), ("b.txt", Fraction(1))]),
        # A plus or a colon in the name of what is there is part of the name.
        ("c++/a+b.txt", [("c++/a+b.txt", None)]),
        ("c++/*.txt", [("c++/*.txt", None)]),
        ("c++/a+b.txt+b.txt", [("c++/a+b.txt", None), ("b.txt", None)]),
        ("c++/a+b.txt:2+c++/d.txt:1", [("c++/a+b.txt", Fraction(2)), ("c++/d.txt", Fraction(1))]),
        ("odd:3+b.txt", [("odd:3", None), ("b.txt", None)]),
        ("odd:3:2+b.txt:1", [("odd:3", Fraction(2)), ("b.txt", Fraction(1))]),
        ("a.txt:3", [("a.txt:3", None)]),  # one corpus has no weight: there is no such file
    ],
)
def test_names_and_weights(write: Write, path: str, expected: list[tuple[str, Fraction | None]]) -> None:
    write("a.txt", "b.txt", "code/x.py", "c++/a+b.txt", "c++/d.txt", "odd:3")
    assert corpora(path, TEXT) == expected


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("a.txt:3+b.txt", "b.txt no weight"),
        ("a.txt:0+b.txt:1", "a.txt:0 weighs nothing"),
        ("a.txt:1+a.txt:2", "names a.txt twice"),
        ("a.txt+c.txt", "c.txt does not exist"),
        ("c.txt:1+a.txt:1", "c.txt does not exist"),
        ("a.txt+", "a.txt+ does not exist"),
        ("a.txt:-1+b.txt:2", "a.txt:-1: '-1' is no weight"),
        ("b.txt:2+a.txt:nan", "a.txt:nan: 'nan' is no weight"),
    ],
)
def test_what_is_wrong_is_said(write: Write, path: str, said: str) -> None:
    write("a.txt", "b.txt")
    assert said in refusal(path)


def test_only_language_models_mix(write: Write) -> None:
    write("a.tsv", "b.tsv", text="good\ta fine film\nbad\ta dull film\n" * 10)
    assert "only language models" in refusal("a.tsv+b.tsv", LABELLED)
    write("a+b.en", "a+b.de", text="one line\n" * 20)
    assert Corpus(Config(path="a+b.en,a+b.de"), PARALLEL).counts["train"] == 18


# Splits


def test_a_share_is_held_out_from_each(write: Write) -> None:
    prose = "".join(f"line {i} of the first text\n" for i in range(300))
    write("a.txt", text=prose)
    for i in range(20):
        write(f"b/{i:02}.txt", text=f"document {i}\n")
    made = Corpus(Config(path="a.txt:1+b:1", validation=0.1, test=0.2), TEXT)
    assert made.counts == {"train": 1 + 14, "validation": 1 + 2, "test": 1 + 4}
    alone = [Corpus(Config(path=name, validation=0.1, test=0.2), TEXT) for name in ("a.txt", "b")]
    for split in (*SPLITS, "all"):
        assert [list(text) for text in made.texts(split)] == [list(one.examples(split)) for one in alone]
        assert list(made.examples(split)) == [example for one in alone for example in one.examples(split)]
    assert made.ledger.characters == sum(one.ledger.characters for one in alone)
    assert [file["path"] for file in made.ledger.files] == [f["path"] for one in alone for f in one.ledger.files]
    assert sum(made.shares("validation")) == pytest.approx(1)
    assert made.shares("validation")[0] > 0.9


def test_a_file_may_be_held_out_for_all(write: Write) -> None:
    write("a.txt", "b.txt", text="some text\n" * 20)
    write("v.txt", "w.txt", text="other text\n")
    made = Corpus(Config(path="a.txt+b.txt", validation="v.txt+w.txt", unit="line"), TEXT)
    assert made.counts == {"train": 40, "validation": 2, "test": 0}
    assert [part.name for part in made.parts_of("validation")] == ["v.txt", "w.txt"]
    assert [example.path for example in made.examples("validation")] == ["v.txt", "w.txt"]


def test_what_one_corpus_holds_out_and_another_trains_on_is_overlap(write: Write) -> None:
    lines = [f"this is the line number {i:04} of a text\n" for i in range(200)]
    write("a.txt", text="".join(lines))
    write("b.txt", text="".join(reversed(lines)))
    settings: dict[str, Any] = {"unit": "line", "validation": 0.1}
    assert Corpus(Config(path="a.txt", **settings), TEXT).overlap() == {"validation": 0}
    assert Corpus(Config(path="a.txt+b.txt", **settings), TEXT).overlap() == {"validation": 1}


def test_lines_are_not_joined_over_the_border_of_two_corpora(write: Write) -> None:
    """The training part of a single document ends anywhere; the next corpus does not go on from there."""
    whole = "x" * 30 + "y" * 10
    write("a.txt", text=whole)
    write("b.txt", text="z" * 20 + "\n" + "w" * 19)
    write("v.txt", text="x" * 30 + "y" * 10 + "z" * 20 + "\nand more of the same kind of line\n")
    made = Corpus(Config(path="a.txt+b.txt", validation="v.txt"), TEXT)
    assert made.overlap() == {"validation": 0}


# A fair sample


def test_a_sample_of_all_has_them_by_weight(write: Write) -> None:
    write("a.txt", text="aaaaaaaaa\n" * 1000)
    write("b.txt", text="bbb\n" * 1000)
    made = Corpus(Config(path="a.txt:1+b.txt:2", unit="line", validation=0), TEXT)
    taken = list(made.mixed())
    assert sorted(taken) == sorted(made.examples("train"))  # each once
    # In any beginning: one character of a for two of b, as long as there are any of b.
    for count in (10, 100, 1000):
        sizes = [sum(len(e.text) for e in taken[:count] if e.path == name) for name in ("a.txt", "b.txt")]
        assert abs(sizes[1] - 2 * sizes[0]) <= 20
    assert {example.path for example in taken[-100:]} == {"a.txt"}


def test_without_weights_a_sample_has_them_by_size(write: Write) -> None:
    write("a.txt", text="aaaaaaaaa\n" * 1000)
    write("b.txt", text="bbb\n" * 500)
    made = Corpus(Config(path="a.txt+b.txt", unit="line", validation=0), TEXT)
    half = list(made.mixed())[:750]
    assert {name: sum(e.path == name for e in half) for name in ("a.txt", "b.txt")} == {
        "a.txt": pytest.approx(500, abs=15),
        "b.txt": pytest.approx(250, abs=15),
    }
