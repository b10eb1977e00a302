"""Vectors in files: out and in, text and binary, exactly; and what is wrong with a file, with its line."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.inference.words import words_of
from segue.interop.word2vec_format import export_word2vec, import_word2vec
from segue.word_vectors.files import is_vectors, read_vectors, write_vectors

NAMES = ["the", "Ímar", "戦場", "</s>", "1", "a-b"]
TABLE = np.array([[0.1, -1e-20, 3e20], [1 / 3, 2, 0], [5, 6, 7], [1, 1, 1], [0.5, 0.25, -0.125], [1e-3, 2e3, -7]], "f4")


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin", "v.bin.gz", "v.txt.gz", "v.txt.xz"])
def test_what_is_written_comes_back_to_the_last_bit(name: str, tmp_path: Path) -> None:
    write_vectors(tmp_path / name, NAMES, TABLE)
    words, vectors = read_vectors(tmp_path / name)
    assert words == NAMES and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, TABLE)
    assert is_vectors(tmp_path / name)


def test_the_layouts_are_those_of_the_program(tmp_path: Path) -> None:
    """Written out by hand: a line end behind each word's numbers (word2vec.c), or none (gensim)."""
    rows = list(zip(NAMES, TABLE, strict=True))
    for end in (b"\n", b""):
        raw = b"6 3\n" + b"".join(name.encode() + b" " + struct.pack("<3f", *row) + end for name, row in rows)
        (tmp_path / "v.bin").write_bytes(raw)
        words, vectors = read_vectors(tmp_path / "v.bin")
        assert words == NAMES and (vectors == TABLE).all()
    write_vectors(tmp_path / "out.bin", NAMES, TABLE)
    assert (tmp_path / "out.bin").read_bytes() == b"6 3\n" + b"".join(
        name.encode() + b" " + struct.pack("<3f", *row) + b"\n" for name, row in rows
    )
    write_vectors(tmp_path / "out.txt", ["a"], np.array([[0.5, 0.1]], "f4"))
    assert (tmp_path / "out.txt").read_text() == "2 1\na 0.5 0.1\n".replace("2 1", "1 2")


def test_without_a_first_line_as_glove_has_it(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("the 0.5 1\nof -2 3e-1\n")
    words, vectors = read_vectors(tmp_path / "glove.txt")
    assert words == ["the", "of"] and vectors.tolist() == [[0.5, 1], [-2, pytest.approx(0.3)]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 3\na 1 2 3\nb 1 2\n", ":3: 'b 1 2 …'. Expected a word and 3 numbers"),
        ("2 3\na 1 2 3\nb 1 x 2\n", ":3: 'b 1 x 2 …'"),
        ("3 2\na 1 2\nb 1 2\n", "holds 2 words, but its first line says 3"),
        ("2 2\na 1 2\na 1 2\n", "the word 'a' stands there twice"),
        ("2 2\na 1 2\nb 1 nan\n", "a number of 'b' is not finite"),
        ("0 2\n", "0 words of 2 numbers"),
        ("", "Expected a word"),
        ("hello world\n", ":1: 'hello world …'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError) as error:
        read_vectors(tmp_path / "v.txt")
    assert said in str(error.value)


def test_files_that_are_cut_off_or_damaged(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.bin", NAMES, TABLE)
    whole = (tmp_path / "v.bin").read_bytes()
    for raw, said in ((whole[:-9], "at word 6 of the 6"), (whole + b"more", "goes on behind")):
        (tmp_path / "w.bin").write_bytes(raw)
        with pytest.raises(InputError, match=said):
            read_vectors(tmp_path / "w.bin")
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(b"2 2\na 1 2\nb 1 2\n")[:-12])
    with pytest.raises(InputError, match="is damaged"):
        read_vectors(tmp_path / "v.txt.gz")
    with pytest.raises(InputError, match="There is no file"):
        read_vectors(tmp_path / "none")
    assert not is_vectors(tmp_path / "none")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    lines = [f"the {a} king sees {b} queen" for a in ("old", "young") for b in ("a", "the", "no")] * 20
    place = tmp_path_factory.mktemp("words") / "run"
    return segue.train("word2vec", lines, place, {"model.width": 12, "data.validation": 0, "train.threads": 1})


@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_a_run_goes_out_and_comes_in(run: segue.Run, name: str, tmp_path: Path) -> None:
    assert export_word2vec(run.path, tmp_path / name) == []
    import_word2vec(tmp_path / name, tmp_path / "again")
    again = segue.load(tmp_path / "again")
    np.testing.assert_array_equal(again.model.vectors[2:], run.model.vectors[2:])
    assert words_of(again).nearest("king") == words_of(run).nearest("king")
    with pytest.raises(InputError, match="exists already"):
        export_word2vec(run.path, tmp_path / name)
    with pytest.raises(InputError, match="Name a file of pairs"):
        again.evaluate()


def test_a_blank_in_a_token_is_written_as_a_sign(tmp_path: Path) -> None:
    lines = ["the old king sees a queen", "the young king sees a cow"] * 20
    for kind, token in (("word", "king"), ("char", "▁")):  # the blank before a word is no part of its name
        settings = {"model.width": 4, "data.validation": 0, "tokens.kind": kind}
        run = segue.train("word2vec", lines, tmp_path / kind, settings)
        notes = export_word2vec(run.path, tmp_path / f"{kind}.txt")
        assert [" are written as ▁." in note for note in notes] == ([True] if kind == "char" else [])
        assert f"\n{token} " in (tmp_path / f"{kind}.txt").read_text()


def test_a_damaged_file_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("1 2\na 1\n")
    with pytest.raises(InputError):
        import_word2vec(tmp_path / "v.txt", tmp_path / "deep" / "run")
    assert not (tmp_path / "deep").exists()


# The command line


def test_verbs(run: segue.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert main(list(words)) == 0
        return capfd.readouterr().out

    near = json.loads(said("nearest", str(run.path), "king", "queen", "--top", "2", "--json"))
    assert [len(near[word]) for word in ("king", "queen")] == [2, 2]
    assert "king" in said("nearest", str(run.path), "queen")
    answer = json.loads(said("analogy", str(run.path), "king - old + young", "--json", "--by", "3cosmul"))
    assert (answer["plus"], answer["minus"], answer["by"]) == (["king", "young"], ["old"], "3cosmul")
    assert said("analogy", str(run.path), "king - old + young").startswith("king - old + young")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("king\tqueen\t9\nold\tyoung\t8\nking\tsees\t3\nno\tqueen\t1\n")
    assert json.loads(said("evaluate", str(run.path), str(pairs), "--json"))["pairs"] == 4
    questions = tmp_path / "questions.txt"
    questions.write_text(": x\nking queen old young\n")
    assert "3CosMul" in said("evaluate", str(run.path), str(questions))
    text = tmp_path / "text.txt"
    text.write_text("the old king sees no queen\n" * 5)
    assert json.loads(said("evaluate", str(run.path), str(text), "--json"))["places"] == 30
    said("export", str(run.path), "--to", "word2vec", str(tmp_path / "v.bin"))
    assert str(tmp_path / "in") in said("import", str(tmp_path / "v.bin"), "--out", str(tmp_path / "in"))
    (listed,) = json.loads(said("runs", str(tmp_path), "--json"))["runs"]
    assert listed["finished"] and listed["figure"] is listed["value"] is None  # vectors of others were never tested
    assert "∞" not in said("runs", str(tmp_path))


def test_threads_on_the_command_line_are_those_of_the_recipe(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the old king sees no queen\n" * 20)
    for copy in "ab":
        assert main(["train", "word2vec", str(text), "--out", str(tmp_path / copy), "--threads", "1"]) == 0
    one, two = (segue.load(tmp_path / copy) for copy in "ab")
    assert one.recipe.train.threads == 1 and np.array_equal(one.model.vectors, two.model.vectors)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nearest", "RUN", "kingg"], "'kingg' has no vector here. Did you mean 'king'?"),
        (["nearest", "RUN", "king", "--top", "0"], "--top 0 asks for no word"),
        (["analogy", "RUN", "king -"], "it ends with a sign"),
        (["generate", "RUN"], "cannot generate. It can: evaluate, nearest, analogy."),
    ],
)
def test_wrong_words(run: segue.Run, words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(run.path) if word == "RUN" else word for word in words]) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"5 999999999999999999999999999999\nab \0\0\0\0", "too short for the 5 words"),
        (b"99999999999999999999 3\nab \0\0\0\0", "too short for the"),
        (b"2 1\na 1\nb " + b"1" * (1 << 24), "a line of 16,777,216 bytes or more"),
        (b"2 1\na 1\nb 1e99\n", "not finite"),
    ],
)
def test_absurd_files_are_refused_by_what_they_say(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "v.bin").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_vectors(tmp_path / "v.bin")
