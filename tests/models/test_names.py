"""Names: what textbooks call a model, a key or a verb is found; what is not here is told with what is near."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from segue import models
from segue.cli import app
from segue.errors import InputError
from segue.models.keys import SECTIONS, keys_of
from segue.models.names import RECIPES, full_setting, meanings, recipe_names, verb_called
from segue.recipe import load_recipe

TABLE = tomllib.loads((RECIPES / "names.toml").read_text(encoding="utf-8"))
KNOWN = [*models.kinds(), *recipe_names()]


def test_every_name_in_the_table_means_something_that_exists() -> None:
    for word, meant in TABLE["models"].items():
        assert set(meant) <= set(KNOWN), word
        assert word not in models.kinds(), word
    every = {key for kind in models.kinds() for key in keys_of(kind)}
    for word, meant in TABLE["keys"].items():
        for one in [meant] if isinstance(meant, str) else meant:
            assert any(f".{key}".endswith(f".{one}") for key in every), word
        assert not any(key.rpartition(".")[2] == word for key in every), f"{word} is a key itself"
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert set(TABLE["verbs"].values()) <= verbs
    assert not set(TABLE["verbs"]) & verbs


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("lstm", "rnn_lm/lstm"),
        ("LSTM", "rnn_lm/lstm"),
        ("kneser_ney", "ngram/kn-3"),
        ("Kneser-Ney", "ngram/kn-3"),
        ("trigram", "ngram/trigram"),
        ("kn7", "ngram/kn7"),
        ("transformer", "transformer"),
        ("logistic regression", "bow"),
        ("skip-gram", "word2vec"),
        ("crf", "rnn_tagger/crf"),
        ("bilstm", "rnn_classifier/bilstm"),
        ("gpt", "gpt"),
        ("ngram/bigram", "ngram/bigram"),
    ],
)
def test_a_textbooks_name_means_a_kind_or_recipe(name: str, first: str) -> None:
    assert meanings(name)[0] == first
    assert load_recipe(name).name == load_recipe(first).name


@pytest.mark.parametrize("name", sorted(TABLE["missing"]))
def test_what_is_not_here_is_told_with_what_is_near(name: str) -> None:
    with pytest.raises(InputError, match=f"There is no {name} here yet") as error:
        meanings(name)
    words = str(error.value).replace(",", " ").replace(";", " ").replace(".", " ").split()
    assert set(words) & set(KNOWN)


def test_a_size_is_told_with_its_setting() -> None:
    """bert alone would be a small model, in silence."""
    for word, written in TABLE["sizes"].items():
        with pytest.raises(InputError, match=re.escape(written)):
            meanings(word.replace("_", "-"))
        what, setting = written.split()
        assert load_recipe(what, [setting]).model.width >= 512


@pytest.mark.parametrize(("name", "near"), [("lsmt", "lstm"), ("tranformer", "transformer"), ("trigam", "trigram")])
def test_a_slip_in_a_textbooks_name_is_told(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"Did you mean '{near}'"):
        meanings(name)


def flat(config: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(config):
        value = vars(config)[field.name]
        name = f"{prefix}.{field.name}"
        yield from flat(value, name) if dataclasses.is_dataclass(value) else [name]


@pytest.mark.parametrize("kind", models.kinds())
def test_the_source_has_the_keys_that_the_classes_have(kind: str) -> None:
    recipe = load_recipe(kind)
    assert list(keys_of(kind)) == [key for section in SECTIONS for key in flat(vars(recipe)[section], section)]


@pytest.mark.parametrize(
    ("kind", "typed", "meant"),
    [
        ("rnn_lm", "steps=10", "train.steps=10"),
        ("rnn_lm", "lr=0.1", "train.optimizer.rate=0.1"),
        ("word2vec", "lr=0.1", "train.rate=0.1"),
        ("gpt", "width=64", "model.width=64"),
        ("gpt", "batch_size=4", "batches.size=4"),
        ("ngram", "n=3", "model.order=3"),
        ("ngram", "optimizer.rate=3", None),
        ("rnn_lm", "optimizer.rate=3", "train.optimizer.rate=3"),
        ("rnn_lm", "train.steps=3", "train.steps=3"),
        ("rnn_lm", "steps", "steps"),
    ],
)
def test_a_key_without_its_section(kind: str, typed: str, meant: str | None) -> None:
    if meant is None:
        with pytest.raises(InputError):
            full_setting(typed, kind)
    else:
        assert full_setting(typed, kind) == meant


def test_a_short_key_is_the_long_one() -> None:
    short, long = (
        load_recipe("rnn_lm", ["steps=7", "lr=0.5"]),
        load_recipe("rnn_lm", ["train.steps=7", "train.optimizer.rate=0.5"]),
    )
    assert short == long and short.train.steps == 7 and short.train.optimizer.rate == 0.5


@pytest.mark.parametrize(("word", "verb"), [("sample", "generate"), ("Eval", "evaluate"), ("xyzzy", "")])
def test_other_words_for_verbs(word: str, verb: str) -> None:
    assert verb_called(word) == verb


def test_wrong_names_and_keys_are_told_before_torch_is_loaded() -> None:
    code = """
import sys
from segue.cli import main
for words in sys.argv[1:]:
    assert main(words.split()) == 2, words
    assert "torch" not in sys.modules, words
"""
    wrong = ["train rnn_lm train.stps=3", "train rnn_lm train.optimizer.rat=3", "train lsmt", "train llama"]
    wrong += ["compare pydoc --models gpt,rnn_lm model.witdh=3", "explain gpt model.witdh=3", "train gpt seed=3"]
    done = subprocess.run([sys.executable, "-c", code, *wrong], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
