"""Spans as tags: three schemes, read, checked and turned into one another."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.iob import SCHEMES, Scheme, SchemeReader, Span, spans, tags_of
from segue.data.shapes import TAGGED
from segue.errors import InputError
from segue.recipe import load_recipe

# "the Bank of Spain Madrid paid": two spans of one type that touch, as the head of iob.py has it.
HEAD = {
    "iob1": "O I-X I-X I-X B-X O",
    "bio": "O B-X I-X I-X B-X O",
    "bioes": "O B-X I-X E-X S-X O",
}


@st.composite
def sentences(draw: st.DrawFn) -> tuple[set[Span], int]:
    """Spans that do not overlap, and how many words there are."""
    found, place = set(), 0
    for gap, length, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from("XY")), max_size=5)
    ):
        found.add((kind, place + gap, place + gap + length))
        place += gap + length
    return found, place + draw(st.integers(0, 2))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_example_of_the_head(scheme: Scheme) -> None:
    tags = HEAD[scheme].split()
    assert spans(tags) == {("X", 1, 4), ("X", 4, 5)}
    assert tags_of(spans(tags), len(tags), scheme) == tuple(tags)


@given(sentences(), st.sampled_from(SCHEMES))
def test_what_is_written_is_read_again(sentence: tuple[set[Span], int], scheme: Scheme) -> None:
    found, words = sentence
    assert spans(tags_of(found, words, scheme)) == found


@given(sentences(), st.sampled_from(SCHEMES), st.sampled_from(SCHEMES))
def test_any_scheme_becomes_any_other(sentence: tuple[set[Span], int], one: Scheme, other: Scheme) -> None:
    found, words = sentence
    assert SchemeReader(other).read(tags_of(found, words, one)) == (tags_of(found, words, other), "")


@pytest.mark.parametrize(
    ("tags", "schemes"),
    [
        ("O O", ["iob1", "bio", "bioes"]),
        ("I-X I-X", ["iob1"]),
        ("B-X I-X", ["bio"]),
        ("B-X E-X", ["bioes"]),
        ("I-X B-X", ["iob1"]),
        ("I-X B-Y", []),  # IOB1 has I-Y: the span before it is of another type
        ("O E-X", []),
        ("B-X I-X I-Y", []),
        ("S-X I-X", []),
    ],
)
def test_which_schemes_a_sequence_fits(tags: str, schemes: list[str]) -> None:
    checked = SchemeReader("bio")
    _, fault = checked.read(tags.split())
    assert bool(fault) == (not schemes)
    if schemes:
        assert list(checked.possible) == schemes


def test_a_file_keeps_to_one_scheme() -> None:
    checked = SchemeReader("bioes")
    assert checked.read(["O", "B-X"]) == (("O", "S-X"), "")
    tags, fault = checked.read(["O", "I-X"])
    assert tags == () and "'I-X' at word 2" in fault and "BIO has 'B-X'" in fault
    assert checked.read(["B-X", "I-X"])[1] == ""  # a bad sentence decides nothing


def test_tags_that_mark_no_spans() -> None:
    _, fault = SchemeReader("bio").read(["NOUN"])
    assert "'NOUN'" in fault


def corpus(tmp_path: Path, text: str, **values: object) -> Corpus:
    path = tmp_path / "names.conll"
    path.write_text(text, encoding="utf-8")
    return Corpus(Config(path=str(path), validation=0, **values), TAGGED)  # type: ignore[arg-type]


IOB1 = "the\tO\nBank\tI-X\n\nSpain\tI-X\nMadrid\tB-X\n"


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("class", [("O", "I-X"), ("I-X", "B-X")]),
        ("iob1", [("O", "I-X"), ("I-X", "B-X")]),
        ("bio", [("O", "B-X"), ("B-X", "B-X")]),
        ("bioes", [("O", "S-X"), ("S-X", "S-X")]),
    ],
)
def test_a_file_is_read_in_the_scheme_asked_for(tmp_path: Path, label: str, expected: list[tuple[str, ...]]) -> None:
    assert [example.tags for example in corpus(tmp_path, IOB1, label=label).examples("train")] == expected


def test_jsonl_is_read_in_the_scheme_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "names.jsonl"
    path.write_text('{"words": ["Bank", "of"], "tags": ["I-X", "I-X"]}\n', encoding="utf-8")
    (example,) = Corpus(Config(path=str(path), validation=0, label="bioes"), TAGGED).examples("train")
    assert example.tags == ("B-X", "E-X")


def test_a_broken_sequence_is_refused_with_its_place(tmp_path: Path) -> None:
    broken = "the\tO\nBank\tB-X\n\nSpain\tO\nMadrid\tI-X\n"
    with pytest.raises(InputError, match=r"names\.conll:4 .*'I-X' at word 2, where BIO has 'B-X'"):
        corpus(tmp_path, broken, label="bio")
    kept = corpus(tmp_path, broken, label="bio", on_error="skip")
    assert [example.tags for example in kept.examples("train")] == [("O", "B-X")]
    assert len(list(corpus(tmp_path, broken).examples("train"))) == 2  # unless spans are asked for, tags are tags


def test_several_tags_of_a_word_have_one_order(tmp_path: Path) -> None:
    text = "cats\tPos=N|Num=Pl\nthe\t_\nran\tPos=V\n"
    (example,) = corpus(tmp_path, text, label="classes").examples("train")
    assert example.tags == ("Num=Pl|Pos=N", "_", "Pos=V")


@pytest.mark.parametrize(
    ("kind", "label", "said"),
    [("bow", "bio", "tagger"), ("rnn_lm", "bioes", "tagger"), ("rnn_tagger", "number", "not for this model")],
)
def test_a_kind_of_label_that_a_model_does_not_learn(kind: str, label: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_recipe(kind, [f"data.label={label}"])
