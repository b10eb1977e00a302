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
    assert SchemeReader(other).read(tags_of(found, words, one), range(words)) == (tags_of(found, words, other), "")


@given(st.lists(sentences(), max_size=4), st.sampled_from(SCHEMES))
def test_well_formed_files_need_no_repairs(file: list[tuple[set[Span], int]], scheme: Scheme) -> None:
    reader = SchemeReader("bio")
    for found, words in file:
        reader.read(tags_of(found, words, scheme), range(words))
    assert reader.repairs() == []


@pytest.mark.parametrize(
    ("tags", "scheme", "bio", "repairs"),
    [
        ("I-X I-X O I-Y B-Y", "iob1", "B-X I-X O B-Y B-Y", []),
        ("I-X I-X O B-Y", "iob1", "B-X I-X O B-Y", ["1 tag has B- where IOB1 has I- (the first in line 14)"]),
        ("I-X I-X B-Y O I-Y", "iob1", "B-X I-X B-Y O B-Y", ["1 tag has B- where IOB1 has I- (the first in line 13)"]),
        ("B-X I-X O I-Y O B-Y", "bio", "B-X I-X O B-Y O B-Y", ["1 tag has I- where BIO has B- (the first in line 14)"]),
        ("B-X I-X I-Y O B-X", "bio", "B-X I-X B-Y O B-X", ["1 tag has I- where BIO has B- (the first in line 13)"]),
        ("B-X E-X O E-Y S-X", "bioes", "B-X I-X O B-Y B-X", ["1 tag has E- where BIOES has S- (the first in line 14)"]),
        (
            "S-X S-X O B-Y O B-Y I-Y E-Y O B-Y",
            "bioes",
            "B-X B-X O B-Y O B-Y I-Y I-Y O B-Y",
            ["2 tags have B- where BIOES has S- (the first in line 14)"],
        ),
        (
            "B-X E-X S-X I-Y I-Y O S-X",
            "bioes",
            "B-X I-X B-X B-Y I-Y O B-X",
            [f"1 tag has I- where BIOES has {a} (the first in line {b})" for a, b in (("B-", 14), ("E-", 15))],
        ),
    ],
)
def test_broken_tags_are_read_as_conlleval_reads_them(tags: str, scheme: str, bio: str, repairs: list[str]) -> None:
    reader = SchemeReader("bio")
    assert reader.read(tags.split(), range(11, 99)) == (tuple(bio.split()), "")
    assert reader.file_scheme == scheme
    assert reader.repairs() == [f"{one}: read as conlleval reads them" for one in repairs]


def test_tags_that_mark_no_spans() -> None:
    _, fault = SchemeReader("bio").read(["NOUN"], [1])
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


def test_conll_2003_as_it_is_distributed_reads(tmp_path: Path) -> None:
    """IOB1 in which a B- stands after O: the spans are plain, and the ledger has one line for this kind of repair."""
    rows = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n" + 3 * "EU NNP I-NP I-ORG\n\n"
    rows += "the DT I-NP O\nWorld NNP I-NP B-MISC\nCup NNP I-NP I-MISC\nwon VBD I-VP O\n\nEU NNP I-NP B-ORG\n"
    read = corpus(tmp_path, rows, label="bioes")
    expected = [("S-ORG", "O"), *[("S-ORG",)] * 3, ("O", "B-MISC", "E-MISC", "O"), ("S-ORG",)]
    assert [example.tags for example in read.examples("train")] == expected
    (note,) = [note for note in read.ledger.notes() if "conlleval" in note]
    said = "2 tags have B- where IOB1 has I- (the first in line 13): read as conlleval reads them: "
    assert note.startswith(said) and note.endswith("names.conll")


def test_repairs_in_jsonl_are_noted_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "names.jsonl"
    rows = ['["O", "B-X", "I-X"]', '["O", "B-Y", "I-X"]']
    path.write_text("".join(f'{{"words": ["a", "b", "c"], "tags": {row}}}\n' for row in rows), encoding="utf-8")
    read = Corpus(Config(path=str(path), validation=0, label="bio"), TAGGED)
    assert [example.tags for example in read.examples("train")] == [("O", "B-X", "I-X"), ("O", "B-Y", "B-X")]
    assert any("1 tag has I- where BIO has B- (the first in line 2)" in note for note in read.ledger.notes())


def test_tags_that_are_no_spans_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"names\.conll:3 .*'NOUN' \(token 2\) is no span tag"):
        corpus(tmp_path, "a\tB-X\n\nb\tO\nc\tNOUN\n", label="bio")


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
