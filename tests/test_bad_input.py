"""Bad input: one message that says what, where and what to do; exit code 2; nothing on standard output, nothing left
behind, no traceback. And input that only looks bad, which works."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import segue
from segue.cli import main
from segue.models import bow
from segue.runs import folder, resume
from segue.training import checkpoint
from segue.training.log import Lines

SOURCE = Path(segue.__file__).parents[1]
BOOK = "the cow eats the green grass in the barn.\na big dog sees the small cow and runs.\n" * 30
REVIEWS = "good\ta fine film\nbad\ta dull film\n" * 15
TINY = "model.width=8 model.embedding=8 train.steps=4 train.every=2"
SMALL = "model.width=8 model.heads=2 model.layers=1 tokens.kind=bpe tokens.vocab_size=300 train.steps=4"


class Said(NamedTuple):
    code: int
    out: str
    err: str
    before: dict[str, tuple[int, int]]
    after: dict[str, tuple[int, int]]


Segue = Callable[..., Said]


def tree(place: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder below a place, with size and time of the files."""
    found = {}
    for path in place.rglob("*"):
        facts = path.stat()
        found[str(path)] = (facts.st_size, facts.st_mtime_ns) if path.is_file() else (0, 0)
    return found


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Segue:
    """The command line in an empty folder with book.txt and reviews.tsv."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(BOOK)
    Path("reviews.tsv").write_text(REVIEWS)
    tell = Lines.__call__

    def sentences(self: Lines, what: str, share: float, note: str = "") -> None:
        if what.endswith("."):
            tell(self, what, share, note)

    monkeypatch.setattr(Lines, "__call__", sentences)  # a busy machine would say how far it has got

    def run(words: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        before = tree(tmp_path)
        code = main(shlex.split(words))
        return Said(code, *capsys.readouterr(), before, tree(tmp_path))

    return run


def refused(said: Said, *parts: str) -> None:
    """One message with these parts in it; nothing done."""
    assert said.code == 2, said
    assert said.out == ""
    *progress, message, end = said.err.split("\n")
    assert message.startswith("segue: ") and not end and "Traceback" not in said.err
    assert all("%" in line and ": " in line for line in progress), "a slow machine may show progress, no more"
    assert len(said.err) < 600
    for part in parts:
        assert part in said.err
    assert said.before == said.after


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/ngram, runs/rnn_lm and runs/bow, to be copied before they are broken."""
    place = tmp_path_factory.mktemp("trained")
    (place / "book.txt").write_text(BOOK)
    (place / "reviews.tsv").write_text(REVIEWS)
    segue.train("ngram", place / "book.txt", place / "ngram")
    segue.train("rnn_lm", place / "book.txt", place / "rnn_lm", TINY.split())
    segue.train("bow", place / "reviews.tsv", place / "bow", ["train.steps=4"])
    return place


# Data


def test_a_file_that_is_not_there(call: Segue) -> None:
    refused(call("train ngram bok.txt --out x"), "bok.txt does not exist", "'book.txt'")
    refused(call("train ngram data.path=bok.txt --out x"), "bok.txt does not exist")
    refused(call("train ngram book.txt data.test=tset.txt --out x"), "tset.txt does not exist")
    refused(call("compare bok.txt --out x"), "bok.txt does not exist")
    refused(call("data bok.txt"), "bok.txt does not exist")


def test_an_unknown_corpus(call: Segue) -> None:
    refused(call("compare pydocs --out x"), "'pydoc'")
    refused(call("data get shakespear"), "'shakespeare'")
    refused(call("data get"), "segue data")
    refused(call("train bow pydoc --out x"), "running text", "grammar")


def test_an_empty_file(call: Segue) -> None:
    Path("empty.txt").touch()
    refused(call("train ngram empty.txt --out x"), "empty.txt is empty")
    refused(call("train ngram book.txt data.validation=empty.txt --out x"), "empty.txt is empty")


@pytest.mark.parametrize("content", ["\n\n\n", "   \n \t \n"])
def test_a_text_of_only_blank_lines(call: Segue, content: str) -> None:
    Path("blank.txt").write_text(content)
    refused(call("train ngram blank.txt --out x"), "blank.txt holds no text")
    refused(call("train ngram blank.txt data.unit=line --out x"), "blank.txt holds no text")


def test_a_folder_without_text(call: Segue) -> None:
    Path("pictures").mkdir()
    Path("pictures/a.png").write_bytes(b"\x89PNG")
    refused(call("train ngram pictures --out x"), "folder pictures has no text")
    refused(call("train ngram 'pictures/*.txt' --out x"), "glob pictures/*.txt has no text")


def test_a_file_that_is_not_utf8(call: Segue) -> None:
    Path("latin.txt").write_bytes(b"first line\ncaf" + "é au lait\n".encode("latin-1") * 9)
    refused(call("train ngram latin.txt --out x"), "latin.txt, line 2", "0xe9", "offset 14", "data.encoding=latin-1")
    assert call("train ngram latin.txt data.encoding=latin-1 --out x").code == 0
    refused(call("train ngram latin.txt data.encoding=latin-99 --out y"), "data.encoding", "latin-99")


@pytest.mark.parametrize("word", ["junk", "junk=1", "encoding=latin-1", "data.path=a.txt", "train.steps=3"])
def test_a_word_that_says_nothing_of_a_file(call: Segue, word: str) -> None:
    refused(call(f"data book.txt {word}"), word)
    refused(call(f"data get shakespeare {word}"), "one name")


def test_settings_of_a_file_that_is_looked_at(call: Segue) -> None:
    refused(call("data data.encoding=latin-1"), "data.encoding=latin-1", "Expected a file")
    refused(call("data book.txt data.encoding=latin-99"), "data.encoding", "latin-99")
    refused(call("data book.txt data.format=cvs"), "data.format=cvs", "csv")


def test_nul_bytes(call: Segue) -> None:
    Path("nul.txt").write_bytes(b"one\ntwo\0three\n")
    refused(call("train ngram nul.txt --out x"), "nul.txt, line 2", "NUL")


@pytest.mark.parametrize("size", [11_000_000, 100_000_000])
def test_an_endless_line(call: Segue, size: int) -> None:
    Path("long.txt").write_bytes(b"short\n" + b"a" * size)
    refused(call("train ngram long.txt --out x"), "long.txt, line 2", "10,000,000", "fold")


def test_rows_with_too_few_columns_or_no_label(call: Segue) -> None:
    Path("bad.tsv").write_text(REVIEWS + "fine film\n\tno label here\n" + REVIEWS)
    message = call("train bow bad.tsv --out x train.steps=4")
    refused(message, "bad.tsv:31 has 1 column, expected 2", "bad.tsv:32 has no label", "data.on_error=skip")


def test_bad_rows_can_be_skipped_and_are_counted(call: Segue) -> None:
    Path("bad.tsv").write_text(REVIEWS + "fine film\n\tno label here\n" + REVIEWS)
    said = call("train bow bad.tsv --out x train.steps=4 data.on_error=skip")
    assert said.code == 0 and "2 rows were skipped: bad.tsv:31 has 1 column" in said.out
    ledger = json.loads(Path("x/ledger.json").read_text())
    assert ledger["bad_rows_skipped"]["count"] == 2
    assert [row["line"] for row in ledger["bad_rows_skipped"]["first"]] == [31, 32]
    assert sum(ledger["units"].values()) == 60


def test_only_bad_rows(call: Segue) -> None:
    Path("bad.tsv").write_text("one\ntwo\n")
    refused(call("train bow bad.tsv --out x data.on_error=skip"), "bad.tsv holds no text", "2 bad rows")


def test_a_label_that_training_never_saw(call: Segue, trained: Path) -> None:
    Path("test.tsv").write_text("good\ta fine film\ngoood\ta fine film\n")
    shutil.copytree(trained / "bow", "run")
    refused(call("evaluate run test.tsv"), "test.tsv:2", "'goood'", "'good'")
    # In training it is noticed before the work, not after it.
    steps = "train.steps=1000000000"
    for split in ("test", "validation"):
        refused(call(f"train bow reviews.tsv data.{split}=test.tsv --out x {steps}"), "test.tsv:2", "'goood'", "'good'")


def test_one_label_alone(call: Segue) -> None:
    Path("same.tsv").write_text("good\ta film\n" * 20)
    refused(call("train bow same.tsv --out deep/x"), "'good'", "nothing to learn", "data.columns")


def test_parallel_files_of_different_lengths(call: Segue) -> None:
    Path("a.de").write_text("eins\nzwei\ndrei\n")
    Path("a.en").write_text("one\ntwo\n")
    refused(call("train rnn_seq2seq a.de,a.en --out x"), "a.de has 3 lines", "a.en has 2")
    refused(call("train rnn_seq2seq a.de,b.en --out x"), "b.en is not a file", "'a.en'")
    refused(call("train rnn_seq2seq a.de --out x"), "a.de", "SOURCE,TARGET")


def test_a_conll_row_with_a_missing_column(call: Segue) -> None:
    Path("bad.conll").write_text("the\tD\ncow\n\na\tD\ndog\tN\n\n")
    refused(call("train window_tagger bad.conll --out x"), "bad.conll:2 has 1 column", "data.on_error=skip")
    Path("one.conll").write_text("the\ncow\n")
    refused(call("train window_tagger one.conll --out x"), "one.conll, line 1", "1 column")


def test_objects_that_cannot_be_tagged(call: Segue) -> None:
    rows = ['{"words": ["the", "cow"], "tags": ["D"]}', '{"words": ["a"]}', '{"words": "a", "tags": "D"}', "[]", "{"]
    Path("bad.jsonl").write_text("\n".join(rows))
    parts = ("bad.jsonl:1 has 2 words but 1 tags", ":2 has no 'tags'", ":3 has 'words' that are not", ":4 is not", ":5")
    refused(call("train window_tagger bad.jsonl --out x"), *parts)


def test_a_damaged_archive(call: Segue) -> None:
    Path("book.txt.gz").write_bytes(b"\x1f\x8b not really")
    refused(call("train ngram book.txt.gz --out x"), "book.txt.gz is damaged")


# Words that are not known


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("trian rnn_lm book.txt", ["'trian'", "'train'"]),
        ("frobnicate", ["'frobnicate'", "--help"]),
        ("train ngarm book.txt --out x", ["'ngarm'", "'ngram'"]),
        ("train ngram/bigam book.txt --out x", ["'ngram/bigam'", "'ngram/bigram'"]),
        ("train my.toml book.txt --out x", ["my.toml", "segue recipes"]),
        ("train nosuch.py book.txt --out x --trust", ["nosuch.py"]),
        ("train ngram book.txt --out x model.ordr=3", ["'model.ordr'", "'order'"]),
        ("train ngram book.txt --out x modle.order=3", ["'modle'", "'model'"]),
        ("train rnn_lm book.txt --out x seed=3", ["'seed=3'", "data.seed=3", "train.seed=3"]),
        ("train rnn_lm book.txt --out x model.steps=3", ["'model.steps'", "'train.steps'"]),
        ("train ngram book.txt --out x train.steps=3", ["'train.steps'", "Choose from: memory"]),
        ("train rnn_lm book.txt --out x train.optimizer.rat=1", ["'train.optimizer.rat'", "'rate'"]),
        ("train rnn_lm book.txt --out x train.optimizer=sgd", ["train.optimizer", "train.optimizer.name"]),
        ("train rnn_lm book.txt --out x train.seed.x=1", ["train.seed"]),
        ("train rnn_lm book.txt --out x model.cell=lsmt", ["model.cell=lsmt", "'lstm'"]),
        ("train rnn_lm book.txt --out x train.steps=many", ["train.steps=many", "whole number"]),
        ("train rnn_lm book.txt --out x data.canonical=perhaps", ["data.canonical=perhaps", "true or false"]),
        ("train train.steps=3 book.txt --out x", ["'train.steps=3'", "KIND"]),
        ("train ngram book.txt reviews.tsv --out x", ["book.txt", "reviews.tsv", "SOURCE,TARGET"]),
        ("train", ["segue models"]),
        ("train ngram book.txt --out x --nosuch", ["--nosuch", "segue train --help"]),
        ("train rnn_lm book.txt --out x --steps 10", ["no option --steps", "Expected train.steps=10"]),
        ("train rnn_lm book.txt --out x --lr=0.1", ["no option --lr", "Expected train.optimizer.rate=0.1"]),
        ("train word2vec book.txt --out x --learning-rate 1", ["Expected train.rate=1"]),
        ("compare book.txt --out x --seconds 10", ["no option --seconds", "Expected --budget 10s"]),
        ("train rnn_lm book.txt --out x lr=many", ["train.optimizer.rate=many"]),
        ("train transformer book.txt --out x", ["book.txt", "SOURCE,TARGET"]),
        ("sample runs/x", ["no verb 'sample'", "Expected generate", "segue generate --help"]),
        ("train rnn_lm book.txt --out x --device tpu", ["--device tpu", "cpu"]),
        ("train rnn_lm book.txt --out x --device cuda:99", ["cuda:99", "--device cpu"]),
        ("train rnn_lm book.txt --out x --threads -1", ["--threads -1"]),
        ("train rnn_lm book.txt --out x --threads 99999", ["--threads 99999", "core", "Expected 1 to"]),
        ("train ngram book.txt --out x --threads 2000", ["--threads 2000", "core"]),
        ("train word2vec book.txt --out x train.threads=99999", ["train.threads=99999", "core"]),
        ("train rnn_lm book.txt --out x --threads two", ["--threads", "segue train --help"]),
        ("evaluate", ["argument", "segue evaluate --help"]),
        ("explain ngarm", ["'ngarm'", "'ngram'"]),
        ("data book.txt --tokens wrod", ["wrod", "'word'"]),
        ("runs nosuch", ["nosuch"]),
        ("compare book.txt --task lmm --out x", ["'lmm'", "'lm'"]),
        ("compare book.txt --models ngarm --out x", ["'ngarm'", "'ngram'"]),
        ("compare book.txt --models nosuch/* --out x", ["nosuch/*", "segue recipes"]),
        ("compare book.txt --models , --out x", ["--models ','"]),
        ("compare book.txt --models ngram,bow --out x", ["bow", "lm"]),
        ("compare reviews.tsv --models ngram/*,rnn_lm --task classify --out x", ["ngram/bigram", "classify"]),
        ("compare book.txt --models ngram --seeds 0 --out x", ["--seeds"]),
        ("compare book.txt --models ngram --folds 1 --out x", ["--folds"]),
        ("compare book.txt --models ngram data.validation=0 data.test=0 --out x", ["data.test"]),
        (
            "compare book.txt --models ngram,gpt tokens.kind=space data.canonical=false --out x",
            ["data.canonical=false", "tokens.kind=space", "tokens.kind=word"],
        ),
    ],
)
def test_an_unknown_word_gets_the_nearest_right_one(call: Segue, words: str, parts: list[str]) -> None:
    refused(call(words), *parts)


@pytest.mark.parametrize("budget", ["soon", "0", "-5", "0.5", "1.5", "nan", "inf", "1e999s", "5 fortnights", "s"])
def test_a_budget_that_means_nothing(call: Segue, budget: str) -> None:
    refused(call(f"compare book.txt --models ngram,rnn_lm --budget '{budget}' --out x"), f"--budget {budget}", "60s")


@pytest.mark.parametrize(
    ("setting", "model"),
    [
        ("train.steps=-1", "rnn_lm"),
        ("train.seconds=nan", "rnn_lm"),
        ("train.seconds=inf", "rnn_lm"),
        ("train.seed=99999999999999999999", "rnn_lm"),
        ("train.optimizer.rate=0", "rnn_lm"),
        ("train.optimizer.rate=inf", "rnn_lm"),
        ("train.log_every=0", "rnn_lm"),
        ("model.width=0", "rnn_lm"),
        ("model.dropout=1.5", "rnn_lm"),
        ("batches.size=-1", "rnn_lm"),
        ("batches.accumulate=99", "rnn_lm"),
        ("decode.top_p=2", "rnn_lm"),
        ("model.order=0", "ngram"),
        ("model.alpha=-1", "ngram"),
        ("tokens.vocab_size=-1", "ngram"),
        ("data.seed=-1", "ngram"),
        ("data.validation=1", "ngram"),
        ("data.validation=-0.1", "ngram"),
        ("data.path=", "ngram"),
        ("data.test=3", "ngram"),
        ("data.test=0/10", "ngram"),
        ("data.test=11/10", "ngram"),
        ("data.test=1/1", "ngram"),
    ],
)
def test_an_impossible_value_is_named(call: Segue, setting: str, model: str) -> None:
    key, _, value = setting.partition("=")
    data = "" if key == "data.path" else "book.txt"
    refused(call(f"train {model} {data} --out x {setting}"), key.rpartition(".")[2], value)


def test_values_that_do_not_go_together(call: Segue) -> None:
    refused(call("train ngram book.txt --out x tokens.kind=bpe tokens.vocab_size=3"), "vocab_size is 3", "258")
    refused(call("compare book.txt --models ngram --out x --folds 5 data.test=0.1"), "--folds 5", "data.test")
    refused(call("train ngram book.txt --out x data.test=x/y"), "x/y does not exist")
    refused(call("train ngram book.txt --out x data.unit=line data.test=1/500"), "data.test=1/500", "60 units")
    Path("t.conll").write_text("the\tD\ncow\tN\n\n" * 20)
    refused(call("train window_tagger t.conll --out x tokens.kind=char"), "tokens.kind=char")


def test_a_recipe_file_that_is_none(call: Segue) -> None:
    for content, parts in (
        ("kind = ", ["my.toml is not TOML"]),
        ("[model]\norder = 3\n", ["my.toml names no model"]),
        ('kind = "ngram"\n[modle]\norder = 3\n', ["[modle]", "'model'"]),
        ('kind = "ngram"\nmodel = 3\n', ["[model]"]),
        ('kind = "ngram"\n[model]\norder = "three"\n', ["model.order='three'", "whole number"]),
        ('kind = "ngarm"\n', ["'ngarm'", "'ngram'"]),
    ):
        Path("my.toml").write_text(content)
        refused(call("train my.toml book.txt --out x"), *parts)
    Path("folder.toml").mkdir()
    refused(call("train folder.toml book.txt --out x"), "folder.toml")


# Run folders


def test_a_run_folder_that_is_not_one(call: Segue) -> None:
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("mine")
    for verb in ("evaluate", "score", "generate", "predict", "look"):
        refused(call(f"{verb} nosuch"), "There is no run folder nosuch", "segue runs")
        refused(call(f"{verb} notes"), "notes is not a run folder")
        refused(call(f"{verb} book.txt"), "book.txt")
    refused(call("train ngram book.txt --out notes"), "notes exists and is not a run")
    refused(call("compare book.txt --models ngram --out notes"), "notes exists")
    refused(call("train --out nosuch --resume"), "no run in nosuch")
    refused(call("train rnn_lm --out nosuch --resume"), "no run in nosuch", "leave --resume out")
    begun = call(f"train rnn_lm book.txt --out x --resume {TINY}")  # as a script may say it
    assert begun.code == 0 and "There is no run in x yet" in begun.err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", "{}"),
        ("config.json", '{"format": true}'),
        ("config.json", '{"format": 1}'),
        ("config.json", '{"format": 1, "kind": "ngram", "sizes": {"colour": 3}, "labels": []}'),
        ("config.json", '{"format": 1, "kind": "ngram", "sizes": {"vocab_size": 99}, "labels": []}'),
        ("config.json", '{"format": 1, "kind": "bow", "sizes": {"vocab_size": 22}, "labels": []}'),
        ("recipe.toml", "kind = "),
        ("tokenizer.json", None),
        ("speller.json", None),
        ("model.safetensors", None),
        ("model.safetensors", ""),
    ],
)
@pytest.mark.parametrize("kind", ["ngram", "rnn_lm"])
def test_a_damaged_file_of_a_run_is_named(
    call: Segue, trained: Path, name: str, content: str | None, kind: str
) -> None:
    shutil.copytree(trained / kind, "run")
    file = Path("run", name)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content is None else content.encode())
    refused(call("score run book.txt"), name)


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
def test_a_missing_file_of_a_run_is_named(call: Segue, trained: Path, name: str) -> None:
    shutil.copytree(trained / "bow", "run")
    Path("run", name).unlink()
    refused(call("evaluate run reviews.tsv"), name)


def test_weights_of_another_run(call: Segue, trained: Path) -> None:
    shutil.copytree(trained / "rnn_lm", "run")
    shutil.copy(trained / "bow" / "model.safetensors", "run/model.safetensors")
    refused(call("generate run"), "run/model.safetensors", "train the run again")


def test_a_run_of_a_newer_version(call: Segue, trained: Path) -> None:
    shutil.copytree(trained / "ngram", "run")
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(config | {"format": config["format"] + 1}))
    refused(call("evaluate run book.txt"), "newer", str(config["format"] + 1))


def test_two_runs_into_one_folder(call: Segue) -> None:
    assert call("train ngram book.txt --out x").code == 0
    refused(call("train ngram book.txt --out x"), "x already holds a run", "--resume")
    Path("y").mkdir()
    with Path("y/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(call("train ngram book.txt --out y"), "Another process is writing to y")


def test_a_run_that_began_a_moment_before_stays(call: Segue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes the run between our look at the folder and our lock."""
    corpus = resume.Corpus

    def slow(*arguments: Any) -> Any:
        monkeypatch.setattr(resume, "Corpus", corpus)
        segue.train("ngram", "book.txt", "x")
        return corpus(*arguments)

    monkeypatch.setattr(resume, "Corpus", slow)
    said = call("train rnn_lm book.txt --out x")
    assert said.code == 2 and "Another process" in said.err
    assert segue.load("x").recipe.kind == "ngram"


def test_another_recipe_under_resume(call: Segue) -> None:
    assert call(f"train rnn_lm book.txt --out x {TINY}").code == 0
    refused(call("train ngram --out x --resume"), "rnn_lm", "ngram", "--resume")
    refused(call("train rnn_lm --out x --resume model.width=9"), "model.width was 8, now 9")
    refused(call("train --out x --resume train.seed=1"), "train.seed was 0, now 1")
    refused(call(f"train rnn_lm reviews.tsv --out x --resume {TINY} data.format=text"), "data.path", "another --out")
    done = call("train --out x --resume train.steps=6")  # the budget may grow
    assert done.code == 0 and "6 steps" in done.out


def test_what_was_imported_is_not_learnt_anew(call: Segue) -> None:
    assert call(f"train gpt book.txt --out x {SMALL}").code == 0
    for words in ("--to hf folder", "--to zip x.zip"):
        assert call(f"export x {words}").code == 0
    for source, says in (("folder", "imported from folder"), ("x.zip", "or its checkpoints were removed")):
        assert call(f"import {source} --out {source}.run").code == 0
        refused(call(f"train --out {source}.run --resume train.steps=9"), says, f"train.init={source}.run")
        assert call(f"train --out {source}.run --resume").code == 0
    refused(call("generate folder.run --novelty"), "imported from folder", "Leave --novelty out")
    written = [path for folder in ("folder", "folder.run") for path in Path(folder).rglob("*") if path.is_file()]
    modes = {path.stat().st_mode for path in written}
    assert len(modes) == 1


def test_the_tokens_of_another_run_come_along(call: Segue) -> None:
    assert call(f"train gpt book.txt --out x {SMALL}").code == 0
    begin = "train gpt book.txt train.init=x --out y"
    refused(call(f"{begin} tokens.kind=word"), "tokens.kind is bpe", "Leave tokens.kind out")
    assert call(f"{begin} train.steps=2 tokens.kind=bpe").code == 0
    assert segue.load("y").recipe.tokens == segue.load("x").recipe.tokens
    assert call(f"{begin} train.steps=4 --resume").code == 0


def test_numbers_that_nothing_can_be_learnt_from(call: Segue) -> None:
    train = "train bow numbers.tsv data.label=number --out x"
    Path("numbers.tsv").write_text("1.5\tone fine day\n4e38\tanother day\n" * 20)
    refused(call(train), "numbers.tsv:2", "4e38", "no number below 1e18")
    Path("numbers.tsv").write_text("3\tone fine day\n3.0\tanother day\n" * 20)
    refused(call(train), "the number 3", "nothing to learn")


def test_keys_of_another_smoothing(call: Segue) -> None:
    refused(call("train ngram book.txt --out x model.discount=0.5"), "discount", "kneser_ney", "modified_kneser_ney")
    refused(call("train ngram book.txt --out x model.alpha=9"), "alpha", "add_alpha")


def test_nothing_left_to_learn(call: Segue) -> None:
    refused(call("train rnn_lm book.txt --out x train.freeze=vectors,body,head"), "leaves nothing to learn")


def test_a_model_that_no_machine_holds(call: Segue) -> None:
    said = call("train gpt book.txt --out x model.size=gpt3-175b batches.length=2048 batches.size=1 data.validation=0")
    refused(said, "GiB at the least", "segue explain")


def test_changed_data_under_resume(call: Segue) -> None:
    assert call(f"train rnn_lm book.txt --out x {TINY}").code == 0
    Path("book.txt").write_text(BOOK + "one line more\n")
    refused(call("train --out x --resume train.steps=6"), "book.txt has changed")
    refused(call("evaluate x"), "book.txt has changed", "Name a file")
    assert call("evaluate x book.txt").code == 0


# The machine


def test_a_place_that_cannot_be_written(call: Segue, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(call("train ngram book.txt --out book.txt"), "book.txt exists and is not a run")
    refused(call("train ngram book.txt --out book.txt/x"), "book.txt/x cannot be written to: Not a directory", "--out")
    refused(call("compare book.txt --models ngram --out book.txt"), "book.txt exists")
    refused(call("compare book.txt --models ngram --out book.txt/x"), "cannot be written to", "--out")

    def forbidden(self: Path, *arguments: Any, **keywords: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", forbidden)
    refused(call("train ngram book.txt --out x"), "x cannot be written to: Permission denied", "--out")


def test_a_file_that_may_not_be_read(call: Segue, monkeypatch: pytest.MonkeyPatch, trained: Path) -> None:
    whole = Path.open

    def forbidden(self: Path, *arguments: Any, **keywords: Any) -> Any:
        if self.name == "book.txt":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return whole(self, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", forbidden)
    refused(call("train ngram book.txt --out x"), "book.txt cannot be read: Permission denied", "rights")
    refused(call(f"score {trained / 'ngram'} book.txt"), "book.txt cannot be read: Permission denied", "rights")


def full(path: Path | str) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", str(path))


@pytest.mark.parametrize("name", ["recipe.toml", "environment.json", "ledger.json", "config.json", "result.json"])
def test_a_full_disk_leaves_nothing_half_written(call: Segue, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write = folder.write_atomic

    def fail(path: Path, content: str | bytes) -> None:
        if path.name == name:
            raise full(path)
        write(path, content)

    monkeypatch.setattr(folder, "write_atomic", fail)
    refused(call("train ngram book.txt --out deep/x"), "The disk is full", name, "Free some space")


def test_a_full_disk_leaves_an_empty_folder_as_it_was(call: Segue, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("x").mkdir()
    monkeypatch.setattr(folder, "write_atomic", lambda path, content: (_ for _ in ()).throw(full(path)))
    refused(call("train ngram book.txt --out x"), "The disk is full")


def test_a_full_disk_after_a_checkpoint_leaves_a_run_that_resumes(
    call: Segue, monkeypatch: pytest.MonkeyPatch, trained: Path
) -> None:
    save, saved = checkpoint.save_checkpoint, []

    def fail(places: Path, step: int, *rest: Any) -> None:
        if saved:
            raise full(places)
        saved.append(step)
        save(places, step, *rest)

    monkeypatch.setattr(checkpoint, "save_checkpoint", fail)
    said = call(f"train rnn_lm book.txt --out x {TINY}")
    assert said.code == 2 and "The disk is full" in said.err and said.out == ""
    monkeypatch.setattr(checkpoint, "save_checkpoint", save)
    assert call("train --out x --resume").code == 0
    assert Path("x/model.safetensors").read_bytes() == (trained / "rnn_lm" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("model", "limit"), [("ngram", 2_000), ("ngram", 20_000), ("rnn_lm", 20_000)])
def test_a_disk_that_is_really_full(call: Segue, tmp_path: Path, model: str, limit: int) -> None:
    """The system itself refuses to write: whichever part is writing, and in whatever words, it is one message."""
    Path("book.txt").write_text(BOOK * 20)
    before = tree(tmp_path)
    words = [sys.executable, "-m", "segue", "train", model, "book.txt", "--out", "x"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    refused(Said(done.returncode, done.stdout, done.stderr, before, tree(tmp_path)), "The disk is full")


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, after: str) -> Iterator[None]:
    """Ctrl-C as soon as the progress says `after`."""
    tell = Lines.__call__

    def interrupt(self: Lines, what: str, share: float, note: str = "") -> None:
        if what.startswith(after) and share > 0.5:
            raise KeyboardInterrupt
        tell(self, what, share, note)

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "__call__", interrupt)
        yield


@pytest.mark.parametrize("when", ["learning the tokens", "encoding", "training", "evaluating"])
def test_interrupting_leaves_a_run_that_resumes(
    call: Segue, monkeypatch: pytest.MonkeyPatch, trained: Path, when: str
) -> None:
    with interrupted(monkeypatch, when):
        said = call(f"train rnn_lm book.txt --out x {TINY} train.log_every=1")
    assert said.code == 1 and said.out == ""
    assert said.err.startswith("segue: Interrupted.") and "--resume" in said.err and said.err.count("\n") == 1
    if not Path("x/config.json").exists():
        refused(call("evaluate x"), "not finished", "--resume")
    assert call("train --out x --resume").code == 0
    assert Path("x/model.safetensors").read_bytes() == (trained / "rnn_lm" / "model.safetensors").read_bytes()


def started(*words: str) -> subprocess.Popen[str]:
    """The command line in a process of its own, which Ctrl-C reaches."""
    return subprocess.Popen(
        [sys.executable, "-m", "segue", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_a_real_interrupt(call: Segue) -> None:
    work = started("train", "rnn_lm", "book.txt", "--out", "x", *TINY.split(), "train.steps=1000000")
    try:
        while work.poll() is None and not any(Path("x").glob("checkpoints/step-*")):
            time.sleep(0.02)
        work.send_signal(signal.SIGINT)
        out, err = work.communicate(timeout=60)
    finally:
        work.kill()
    assert work.returncode == 1 and out == ""
    assert "segue: Interrupted." in err and "Traceback" not in err
    assert any(Path("x").glob("checkpoints/step-*"))


def test_a_reader_that_leaves(call: Segue, trained: Path) -> None:
    Path("long.txt").write_text(BOOK * 20)
    with started("score", str(trained / "ngram"), "long.txt", "--json") as work:
        assert work.stdout is not None and work.stderr is not None
        assert work.stdout.readline().startswith("{")
        work.stdout.close()
        assert work.stderr.read() == ""
    assert work.returncode == 0


# The verbs and what they are given


def test_a_verb_that_the_model_cannot_do(call: Segue, trained: Path) -> None:
    for verb in ("generate", "score"):
        refused(call(f"{verb} {trained / 'bow'}", b"x\n"), "bow", "classify", verb, "predict")
    refused(call(f"look {trained / 'bow'} x --view next"), "'next' does not apply", "leave_one_out")
    refused(call(f"predict {trained / 'ngram'}", b"x\n"), "ngram", "cannot predict", "generate")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("generate ngram -n 0", ["-n 0"]),
        ("generate ngram --max-tokens 0", ["max_tokens", "0"]),
        ("generate ngram --temperature -1", ["temperature", "-1"]),
        ("generate ngram --temperature nan", ["temperature", "nan"]),
        ("generate ngram --top-p 0", ["top_p", "0"]),
        ("generate ngram -n 3 --temperature 0", ["written 3 times", "temperature above 0"]),
        ("generate ngram -n 2 --beam 4", ["written 2 times", "without a beam"]),
        ("generate ngram --prompt \udcff", ["'?' is not text in UTF-8"]),
        ("look ngram a\udcff", ["'a?' is not text in UTF-8"]),
        ("generate ngram --beam 2 --top-k 3", ["beam", "top_k"]),
        ("look ngram --top 0", ["--top 0"]),
        ("score ngram nosuch.txt", ["nosuch.txt", "standard input"]),
        ("predict bow nosuch.txt", ["nosuch.txt", "standard input"]),
        ("predict bow .", ["."]),
    ],
)
def test_values_that_a_verb_cannot_use(call: Segue, trained: Path, words: str, parts: list[str]) -> None:
    for kind in ("ngram", "bow"):
        words = words.replace(f" {kind}", f" {trained / kind}")
    refused(call(words), *parts)


@pytest.mark.parametrize("words", ["score ngram -", "predict bow -"])
def test_standard_input_that_is_no_text(call: Segue, trained: Path, words: str) -> None:
    for kind in ("ngram", "bow"):
        words = words.replace(f" {kind}", f" {trained / kind}")
    refused(call(words, b""), "standard input is empty")
    refused(call(words, b"\x89PNG\r\n\x1a\n\0\0"), "standard input, line 1: byte 0x89", "utf-8", "data.encoding")
    refused(call(words, b"a\0b\n"), "standard input, line 1", "NUL")
    Path("empty.txt").touch()
    refused(call(words.replace(" -", " empty.txt")), "empty.txt is empty")


def test_a_line_that_is_no_pair(call: Segue) -> None:
    Path("pairs.tsv").write_text("yes\ta dog\ta dog\nno\ta dog\ta cat\n" * 15)
    assert call("train bow pairs.tsv data.columns=1,2,3 train.steps=4 --out x").code == 0
    refused(call("predict x -", b"a\tb\nno tab here\n"), "standard input:2: bow judges pairs", "no tab")
    refused(call("predict x - --explain", b"a\tb\tc\n"), "standard input:1: bow judges pairs", "3 columns")
    Path("asked.txt").write_text("a\tb\na\tb\nc\n")
    refused(call("predict x asked.txt"), "asked.txt:3: bow judges pairs")
    assert call("predict x -", b"a\tb\n").code == 0


def test_scoring_an_empty_line_is_scoring_its_end(call: Segue, trained: Path) -> None:
    said = call(f"score {trained / 'ngram'} - --end --json", b"\n")
    assert said.code == 0
    line = json.loads(said.out)
    assert line["tokens"] == [""] and len(line["logprobs"]) == 1


def test_evaluating_on_nothing(call: Segue, trained: Path) -> None:
    Path("empty.txt").touch()
    refused(call(f"evaluate {trained / 'ngram'} empty.txt"), "empty.txt is empty")
    refused(call(f"evaluate {trained / 'ngram'} nosuch.txt"), "nosuch.txt does not exist")
    assert call("train ngram book.txt --out x data.validation=0").code == 0
    refused(call("evaluate x"), "kept nothing back", "name a file")


# Model files from outside


@pytest.fixture
def own(call: Segue) -> str:
    """A model file of the user's own, that leaves a mark wherever its code has run."""
    mark = "\nimport pathlib as _pathlib\n_pathlib.Path('ran').touch()\n"
    Path("mine.py").write_text(Path(bow.__file__).read_text() + mark)
    return "mine.py"


def test_a_model_file_does_not_run_without_trust(call: Segue, own: str) -> None:
    Path("my.toml").write_text(f'kind = "{own}"\n')
    for words in (
        f"train {own} reviews.tsv --out x",
        "train my.toml reviews.tsv --out x",
        f"compare reviews.tsv --models {own} --out x",
        f"explain {own}",
        "explain my.toml",
    ):
        refused(call(words), own, "--trust")
    assert not Path("ran").exists()


def test_a_model_file_works_with_trust(call: Segue, own: str) -> None:
    assert call(f"train {own} reviews.tsv --out x train.steps=4 --trust").code == 0
    Path("ran").unlink()
    for words in ("evaluate x reviews.tsv", "predict x reviews.tsv", "train --out x --resume"):
        refused(call(words), own, "--trust")
    assert call("evaluate x reviews.tsv --trust --json").code == 0
    assert call("train --out x --resume --trust").code == 0
    assert call(f"explain {own} --trust").code == 0
    assert call(f"compare reviews.tsv --models bow,{own} --budget 2 --trust --out c").code == 0


def test_a_changed_or_missing_model_file(call: Segue, own: str) -> None:
    assert call(f"train {own} reviews.tsv --out x train.steps=4 --trust").code == 0
    with Path(own).open("a") as file:
        file.write("# changed\n")
    refused(call("evaluate x reviews.tsv --trust"), "mine.py has changed")
    Path(own).unlink()
    refused(call("evaluate x reviews.tsv --trust"), "mine.py", "not there")


def test_a_forged_run_does_not_run_code_either(call: Segue, own: str, trained: Path) -> None:
    """config.json says it is a plain model, recipe.toml names a file of code."""
    shutil.copytree(trained / "bow", "x")
    recipe = Path("x/recipe.toml").read_text()
    Path("x/recipe.toml").write_text(recipe.replace('kind = "bow"', f'kind = "{own}"', 1))
    for words in ("evaluate x reviews.tsv", "train --out x --resume", "predict x reviews.tsv"):
        refused(call(words), own, "--trust")
    assert call("runs .").code == 0
    assert not Path("ran").exists()


# Unpleasant, but right


@pytest.mark.parametrize(
    "content",
    [
        BOOK.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + BOOK.encode(),
        BOOK.removesuffix("\n").encode(),
        ("🐄 eats 🌱, 👩‍🌾 sees it\n" * 30).encode(),
        ("הפרה אוכלת עשב ירוק\nالبقرة تأكل العشب\n" * 20).encode(),
        b"just one line of text here\n",
        b"word",
        b"ab",
        b"<unk> </s> <s> [UNK]\n" * 20,
        b"\n\n\nword\n\n\n" * 10,
    ],
)
@pytest.mark.parametrize(
    "settings", ["", "tokens.kind=word", "tokens.kind=bpe tokens.vocab_size=300", "data.unit=line tokens.kind=space"]
)
def test_unpleasant_text_works(call: Segue, content: bytes, settings: str) -> None:
    Path("odd.txt").write_bytes(content)
    if content.count(b"\n") <= 1:
        settings += " data.validation=book.txt tokens.min_count=1"
    said = call(f"train ngram odd.txt --out x {settings} --json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["result"]["bits_per_byte"] > 0
    again = call("evaluate x odd.txt --json")
    assert again.code == 0 and json.loads(again.out)["bits_per_byte"] > 0


@pytest.mark.parametrize("content", ["ab", "word", "just one line of text here\n"])
def test_a_network_learns_from_the_shortest_text(call: Segue, content: str) -> None:
    Path("odd.txt").write_text(content)
    assert call(f"train rnn_lm odd.txt --out x {TINY}").code == 0
    assert call("generate x --max-tokens 5").code == 0


def test_words_that_are_all_seen_once(call: Segue) -> None:
    Path("once.txt").write_text("every word here is new\n")
    refused(call("train ngram once.txt --out x tokens.kind=word"), "2 times", "tokens.min_count")


def test_one_character_cannot_be_divided(call: Segue) -> None:
    Path("a.txt").write_text("a")
    refused(call("train ngram a.txt --out x"), "a.txt has only 1 characters", "data.validation=0")
    assert call("train ngram a.txt --out x data.validation=0").code == 0


@pytest.mark.parametrize(
    "rows",
    [
        "good\tfine film\nbad\tdull film\n",
        "very good\ta fine film\nvery bad\ta dull film\n" * 10,
        "good\tthe same text\nbad\tthe same text\n" * 10,
        "good\t\nbad\tdull\n" * 10,
        "1\tone\n2\ttwo\n10\tten\n" * 10,
        "gut\tein schöner Film 🎬\nschlecht\tein öder Film\n" * 10,
    ],
)
def test_unpleasant_rows_work(call: Segue, rows: str) -> None:
    Path("odd.tsv").write_text(rows)
    said = call("train bow odd.tsv --out x train.steps=4 tokens.min_count=1 --json")
    assert said.code == 0, said.err
    evaluated = call("evaluate x odd.tsv --json")
    assert sorted(json.loads(evaluated.out)["labels"]) == sorted({row.split("\t")[0] for row in rows.split("\n")[:-1]})


def test_a_huge_vocabulary(call: Segue) -> None:
    Path("many.txt").write_text("".join(f"word{i} other{i}\n" for i in range(20_000)))
    said = call("train ngram many.txt --out x data.unit=line tokens.kind=space --json")
    assert said.code == 0 and json.loads(said.out)["result"]["unknown_tokens"] > 0


# The way out


def test_debug_shows_where(call: Segue, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    words = [sys.executable, "-m", "segue", "train", "ngarm", "book.txt"]
    plain = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=tmp_path)
    debug = subprocess.run([*words, "--debug"], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert plain.returncode == 2 and "Traceback" not in plain.stderr and "'ngram'" in plain.stderr
    assert "Traceback" in debug.stderr
