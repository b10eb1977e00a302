from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from segue.data.corpus import SPLITS, Config, Corpus, Example
from segue.data.shapes import LABELLED, PARALLEL, TAGGED, TEXT, Shape
from segue.errors import InputError

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return put


def corpus(path: object, shape: Shape = TEXT, **settings: Any) -> Corpus:
    return Corpus(Config(path=str(path), **settings), shape)


def whole(path: object, shape: Shape = TEXT, **settings: Any) -> list[Example]:
    return list(corpus(path, shape, validation=0, **settings).examples("all"))


def refusal(path: object, shape: Shape = TEXT, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        corpus(path, shape, **settings)
    return str(caught.value)


def joined(made: Corpus, split: str) -> str:
    return "".join(example.text for example in made.examples(split))


# Running text


def test_a_single_document_is_cut_by_characters(write: Write) -> None:
    text = "".join(f"zeile {i} mit wörtern\n" for i in range(997))
    made = corpus(write("book.txt", text), validation=0.05, test=0.05)
    n = len(text)
    a, b = n * 90 // 100, n * 95 // 100
    assert [joined(made, split) for split in SPLITS] == [text[:a], text[a:b], text[b:]]
    assert [list(made.examples(split))[-1].ends for split in SPLITS] == [False, False, True]
    assert made.counts == {"train": 1, "validation": 1, "test": 1}
    assert made.ledger.characters == n
    assert joined(made, "all") == text


def test_a_fold_of_a_single_document_is_a_stretch_of_it(write: Write) -> None:
    made = corpus(write("book.txt", "abcdefghij"), test="3/5", validation=0.25)
    assert [joined(made, split) for split in SPLITS] == ["abcdgh", "ij", "ef"]


def test_a_folder_has_a_document_a_file(write: Write, tmp_path: Path) -> None:
    for i in range(10):
        write(f"texts/{i % 3}/{i}.txt", f"file {i}\nline two\n")
    write("texts/.hidden/x.txt", "hidden")
    write("texts/empty.txt", "")
    write("texts/picture.png", "\0")
    made = corpus(tmp_path / "texts", validation=0.2)
    assert made.counts == {"train": 8, "validation": 2, "test": 0}
    everything = list(made.examples("all"))
    assert [e.path for e in everything] == sorted(e.path for e in everything)
    assert list(made.examples("train")) + list(made.examples("validation")) == everything
    assert all(e.ends for e in everything)
    assert any("empty.txt" in note for note in made.ledger.notes())
    assert any("picture.png" in note for note in made.ledger.notes())
    assert corpus(f"{tmp_path}/texts/**/[0-4].txt", validation=0.2).counts["train"] == 4


def test_units_are_held_out_from_the_end(write: Write) -> None:
    path = write("lines.txt", "".join(f"line {i}\n\n" for i in range(100)))
    made = corpus(path, unit="line", validation=0.1, test=0.05)
    texts = {split: [e.text for e in made.examples(split)] for split in SPLITS}
    assert list(chain(*texts.values())) == [f"line {i}" for i in range(100)]
    assert [len(texts[split]) for split in SPLITS] == [85, 10, 5] == list(made.counts.values())
    assert made.ledger.blank_lines == 100
    folded = corpus(path, unit="line", validation=0.1, test="2/10")
    assert [e.text for e in folded.examples("test")] == [f"line {i}" for i in range(10, 20)]
    assert [e.text for e in folded.examples("validation")] == [f"line {i}" for i in range(91, 100)]
    assert len(list(folded.examples("train"))) == 81


def test_held_out_files_are_taken_whole(write: Write) -> None:
    made = corpus(
        write("a.txt", "a\nb\n"), unit="line", validation=str(write("v.txt", "c\n")), test=str(write("t.txt", "d"))
    )
    assert [[e.text for e in made.examples(split)] for split in SPLITS] == [["a", "b"], ["c"], ["d"]]
    assert made.counts == {"train": 2, "validation": 1, "test": 1}
    assert len(made.ledger.files) == 3


def test_canonical_text_has_single_blanks(write: Write) -> None:
    path = write("ptb.txt", " the  cat \n\n sat\ton . \n")
    assert [e.text for e in whole(path, unit="line", canonical=True, blank_lines="keep")] == ["the cat", "", "sat on ."]
    assert [e.text for e in whole(path, canonical=True)] == ["the cat sat on ."]


def test_the_ledger_has_sizes_and_checksums_of_the_files_on_disk(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "book.txt.gz"
    path.write_bytes(gzip.compress(b"some words\n" * 20))
    ledger = corpus(path).ledger
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert ledger.files == [{"path": str(path), "bytes": path.stat().st_size, "sha256": digest}]
    assert json.loads(json.dumps(ledger.to_dict()))["units"] == {"train": 1, "validation": 1, "test": 0}


def test_progress_goes_from_zero_to_one(write: Write) -> None:
    seen: list[float] = []
    Corpus(Config(path=str(write("a.txt", "text " * 10))), TEXT, lambda what, share: seen.append(share))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_file_whose_name_has_a_comma_is_one_file(write: Write) -> None:
    assert whole(write("a,b.txt", "text"))[0].text == "text"


@pytest.mark.parametrize("name", ["pydoc", "grammar"])
def test_built_in_corpora_are_there(name: str) -> None:
    made = corpus(name)
    sizes = {split: sum(len(e.text) for e in made.examples(split)) for split in ("train", "validation")}
    assert sizes["train"] > 8 * sizes["validation"] > 0
    assert made.ledger.files[0]["path"] == name


def test_a_named_corpus_is_found_where_it_was_put(
    monkeypatch: pytest.MonkeyPatch, write: Write, tmp_path: Path
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert "segue data get ptb-train" in refusal("ptb-train")
    write(".cache/segue/data/ptb-train.txt", "a b\nc d\n")
    assert len(whole("ptb-train", unit="line")) == 2


# Rows


def test_labelled_rows_are_held_out_at_random(write: Write) -> None:
    path = write("r.tsv", "".join(f"{'ab'[i >= 500]}\ttext {i}\n" for i in range(1000)))
    made = corpus(path, LABELLED, validation=0.1, test=0.1)
    rows = {split: list(made.examples(split)) for split in SPLITS}
    assert [len(rows[split]) for split in SPLITS] == [800, 100, 100]
    assert list(made.examples("all")) == sorted(chain(*rows.values()), key=lambda e: e.line)
    assert all(sum(e.label == "a" for e in rows[split]) > 30 for split in ("validation", "test"))
    assert list(made.examples("train")) == rows["train"]
    other = corpus(path, LABELLED, validation=0.1, test=0.1, seed=1)
    assert list(other.examples("test")) != rows["test"]


def test_folds_of_rows_test_every_row_once(write: Write) -> None:
    path = write("r.tsv", "".join(f"a\ttext {i}\n" for i in range(53)))
    folds = [corpus(path, LABELLED, test=f"{k}/5") for k in range(1, 6)]
    assert sorted(e.line for fold in folds for e in fold.examples("test")) == list(range(1, 54))


ROWS = [Example("good film", "1", line=1), Example('so-so, "really"', "0", line=2)]


@pytest.mark.parametrize(
    ("name", "text", "settings", "first_line"),
    [
        ("r.tsv", '1\tgood film\n0\tso-so, "really"\n', {}, 1),
        ("r.tsv", '1\tgood film\r\n0\tso-so, "really"\r\n', {}, 1),
        ("r.tsv", 'id\ttext\tlabel\n7\tgood film\t1\n8\tso-so, "really"\t0\n', {}, 2),
        ("r.tsv", 'sentence\tstars\ngood film\t1\nso-so, "really"\t0\n', {"columns": "stars, sentence"}, 2),
        ("r.tsv", 'x\tgood film\t1\nx\tso-so, "really"\t0\n', {"columns": "3,2"}, 1),
        ("r.txt", '1\tgood film\n0\tso-so, "really"\n', {"format": "tsv"}, 1),
        ("r.csv", '1,good film\n0,"so-so, ""really"""\n', {}, 1),
        ("r.csv", '\nlabel,text\n1,good film\n0,"so-so, ""really"""\n', {}, 3),
        ("r.jsonl", '{"label": 1, "text": "good film"}\n{"label": "0", "text": "so-so, \\"really\\""}\n', {}, 1),
        ("r.jsonl", '{"y": 1, "x": "good film"}\n{"y": "0", "x": "so-so, \\"really\\""}', {"columns": "y,x"}, 1),
    ],
)
def test_labelled_rows_in_every_form(
    write: Write, name: str, text: str, settings: dict[str, Any], first_line: int
) -> None:
    path = write(name, text)
    expected = [row._replace(path=str(path), line=row.line + first_line - 1) for row in ROWS]
    assert whole(path, LABELLED, **settings) == expected


def test_a_quoted_line_end_keeps_the_line_of_the_rows_start(write: Write) -> None:
    rows = whole(write("r.csv", 'a,"one\ntwo"\nb,three\n'), LABELLED)
    assert [(e.text, e.line) for e in rows] == [("one\ntwo", 1), ("three", 3)]


def test_jsonl_for_a_language_model_is_a_document_a_row(write: Write) -> None:
    path = write("r.jsonl", '{"text": "a b\\nc"}\n\n{"text": "d"}\n')
    assert [e.text for e in whole(path)] == ["a b\nc", "d"]
    assert [e.text for e in whole(path, unit="line")] == ["a b", "c", "d"]
    assert [e.text for e in whole(write("r.tsv", "id\ttext\n1\thello\n"))] == ["hello"]


def test_bad_rows_are_named_with_file_and_line(write: Write) -> None:
    path = write("r.tsv", "1\tgood\nno tab here\n\tno label\n0\tbad\n1\ta\tb\n")
    message = refusal(path, LABELLED)
    for place in ("r.tsv:2 has 1 column", "r.tsv:3 has no label", "r.tsv:5 has 3 columns", "data.on_error=skip"):
        assert place in message
    made = corpus(path, LABELLED, on_error="skip", validation=0)
    assert [e.line for e in made.examples("train")] == [1, 4]
    assert made.ledger.to_dict()["bad_rows_skipped"]["count"] == 3
    assert "3 rows were skipped" in made.ledger.summary()[0]


def test_bad_json_is_named_with_file_and_line(write: Write) -> None:
    rows = ['{"label": "a", "text": "fine"}', "{", "[1]", '{"label": null, "text": "x"}', '{"label": "a"}']
    rows += ['{"label": "a", "text": "\\ud800"}', '{"label": "a", "text": 3}', '{"label": [1], "text": "x"}']
    path = write("r.jsonl", "\n".join(rows))
    assert "r.jsonl:2 is not JSON" in refusal(path, LABELLED)
    made = corpus(path, LABELLED, on_error="skip", validation=0)
    assert made.counts["train"] == 1
    assert [row["line"] for row in made.ledger.bad_first] == [2, 3, 4, 5, 6, 7, 8]


def test_a_quotation_mark_without_its_pair_is_refused(write: Write) -> None:
    assert "row that begins in line 2" in refusal(write("r.csv", 'a,b\nc,"d\ne,f\n'), LABELLED)


# Tagging

CONLL = "# a comment\nThe DT O\ndog NN B\n\n# here too\n# runs VB O\n\n"
UNIVERSAL = (
    "# text = vámonos al mar\n"
    "1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tvamos\tir\tVERB\t_\t_\t0\troot\t_\t_\n"
    "2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_\n"
    "2.1\tx\tx\tX\t_\t_\t_\t_\t_\t_\n"
)


def test_conll_columns(write: Write) -> None:
    path = write("t.conll", CONLL + "-DOCSTART- -X- O\n\nThe DT O\ndog NN B\n")
    rows = whole(path, TAGGED)
    assert [(e.words, e.tags, e.line) for e in rows] == [
        (("The", "dog"), ("O", "B"), 2),
        (("The", "dog"), ("O", "B"), 10),
    ]
    assert whole(path, TAGGED, columns="1,2")[0].tags == ("DT", "NN")
    assert rows[0].text == "The dog"


def test_a_word_that_is_a_hash_is_no_comment_where_there_are_tabs(write: Write) -> None:
    rows = whole(write("t.tsv", "#\tSYM\n1 000\tNUM\n\n"), TAGGED)
    assert [(e.words, e.tags) for e in rows] == [(("#", "1 000"), ("SYM", "NUM"))]


def test_universal_dependencies(write: Write) -> None:
    rows = whole(write("t.conllu", UNIVERSAL), TAGGED)
    assert [(e.words, e.tags, e.line) for e in rows] == [(("vamos", "nos"), ("VERB", "PRON"), 3)]
    assert whole(write("t.txt", UNIVERSAL), TAGGED, columns="3,4")[0].words == ("ir", "nosotros")


def test_a_row_with_a_missing_column_spoils_its_sentence(write: Write) -> None:
    path = write("t.conll", "a A\nb B\n\nc C\nd\n\ne E\n")
    assert "t.conll:5 has 1 column where the file's first row has 2" in refusal(path, TAGGED)
    made = corpus(path, TAGGED, on_error="skip", validation=0)
    assert [e.words for e in made.examples("train")] == [("a", "b"), ("e",)]
    assert "t.tsv:2 has no tag" in refusal(write("t.tsv", "a\tA\nb\t\n\n"), TAGGED)
    assert "t.iob, line 1" in refusal(write("t.iob", "word\nother\n"), TAGGED)


# Parallel text


def test_parallel_text_in_every_form(write: Write, tmp_path: Path) -> None:
    both = ",".join([str(write("a.en", "a cat\n\na dog\n")), str(write("a.de", "eine Katze\n\nein Hund\n"))])
    expected = [("a cat", "eine Katze"), ("a dog", "ein Hund")]
    table = write("p.tsv", "".join(f"{source}\t{target}\n" for source, target in expected))
    objects = write("p.jsonl", "".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in expected))
    for path in (both, table, objects):
        assert [(e.text, e.target) for e in whole(path, PARALLEL)] == expected


def test_parallel_files_of_different_lengths_are_refused(write: Write) -> None:
    both = ",".join([str(write("a.en", "a\nb\nc\n")), str(write("a.de", "x\ny\n"))])
    message = refusal(both, PARALLEL)
    assert "3 lines" in message
    assert "2." in message
    assert "is not a file" in refusal(f"{write('a.en', 'a')},missing.de", PARALLEL)


# What is refused


@pytest.mark.parametrize(
    ("name", "text", "shape", "settings", "message"),
    [
        ("empty.txt", "", TEXT, {}, "is empty"),
        ("blank.txt", "\n \n", TEXT, {}, "holds no text"),
        ("blank.txt", "\n \n", TEXT, {"unit": "line"}, "holds no text"),
        ("r.txt", "good\n", LABELLED, {}, "extension '.txt'"),
        ("r.txt", "good\n", PARALLEL, {}, "SOURCE,TARGET"),
        ("r.csv", "good\n", TAGGED, {}, "data.format=conll"),
        ("r.tsv", "a\tb\n", TEXT, {}, "data.columns=1"),
        ("r.tsv", "a\tb\n", LABELLED, {"columns": "stars,text"}, "the columns are a, b"),
        ("r.tsv", "a\tb\n", LABELLED, {"columns": "text"}, "Expected label,text"),
        ("r.tsv", "a\tb\n", LABELLED, {"columns": "0,1"}, "numbers from 1"),
        ("r.tsv", "a\tb\n", LABELLED, {"format": "conll"}, "data.format is conll"),
        ("r.tsv", "a\tb\n", PARALLEL, {"format": "parallel"}, "Expected SOURCE,TARGET"),
        ("r.txt", "one\n", TEXT, {"unit": "line"}, "only 1 units"),
    ],
)
def test_refusals(write: Write, name: str, text: str, shape: Shape, settings: dict[str, Any], message: str) -> None:
    assert message in refusal(write(name, text), shape, **settings)


def test_missing_places_are_refused(tmp_path: Path, write: Write) -> None:
    write("reviews.tsv", "a\tb\n")
    assert "Did you mean 'reviews.tsv'" in refusal(tmp_path / "review.tsv", LABELLED)
    assert "does not exist" in refusal("/nowhere/at/all.txt")
    assert "Did you mean 'pydoc'" in refusal("pydocs")
    (tmp_path / "bare").mkdir()
    assert "has no text in it" in refusal(tmp_path / "bare")
    assert "has no text in it" in refusal(f"{tmp_path}/*.nothing")
    assert "running text" in refusal("pydoc", LABELLED)
    assert "running text" in refusal("shakespeare", TAGGED)
    assert "cannot be read" in refusal("x" * 5000)
    assert "does not exist as one file" in refusal("a.txt,b.txt")


# Overlap and the best score


def test_overlap_of_rows_and_of_long_lines(write: Write) -> None:
    train, held = write("t.tsv", "a\tx\nb\ty\n"), write("v.tsv", "b\tx\nb\tz\na\tw\na\ty\n")
    made = corpus(train, LABELLED, validation=str(held))
    assert made.overlap() == {"validation": 0.5} == made.ledger.overlap
    line = "a line of at least thirty-two characters"
    train, held = write("t.txt", f"{line} 1\nshort\n{line} 2\n"), write("v.txt", f"short\n{line} 2\n{line} 3\n")
    assert corpus(train, validation=str(held)).overlap() == {"validation": 0.5}
    assert corpus(train, validation=0).overlap() == {}


@pytest.mark.parametrize("shape", [TEXT, LABELLED, TAGGED, PARALLEL], ids=lambda shape: shape.name)
def test_the_grammar_knows_its_best_score(shape: Shape) -> None:
    best = corpus("grammar", shape).best("validation")
    assert best is not None
    assert all(value > 0 for value in best.values())


def test_other_corpora_have_no_known_best_score() -> None:
    assert corpus("pydoc").best("validation") is None


def test_much_more_held_out_than_asked_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short\n" * 20)
    (tmp_path / "b.txt").write_text("much longer than the first\n" * 100)
    uneven = Corpus(Config(path=str(tmp_path), validation=0.1), TEXT)
    assert uneven.counts["validation"] == 1
    assert any("96 % of the text is held out for validation" in sentence for sentence in uneven.ledger.summary())
    (tmp_path / "b.txt").write_text("short\n" * 3)
    even = Corpus(Config(path=str(tmp_path), validation=0.1), TEXT)
    assert not any("held out" in sentence for sentence in even.ledger.summary())
