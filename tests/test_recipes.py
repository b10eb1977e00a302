"""Recipes: those that are shipped, what is refused and how it is said, and what comes back from recipe.toml."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue import models, recipe
from segue.cli import main
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.models.base import Imported, Sizes
from segue.models.keys import SECTIONS, fields_of, group_docs, section_fields
from segue.models.names import recipe_names
from segue.models.network import on_meta
from segue.recipe import budgeted, load_recipe, make, read_recipe, to_toml
from segue.training import setup

KINDS = models.kinds()
TRAINED = [kind for kind in KINDS if not issubclass(models.model_class(kind), Imported)]
"""What is imported has no recipe to be trained by."""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def refused(*arguments: Any) -> str:
    """What is said when a recipe is refused."""
    with pytest.raises(InputError) as error:
        load_recipe(*arguments)
    return str(error.value)


# What is shipped


def test_what_is_shipped_can_be_trained() -> None:
    assert {name.split("/")[0] for name in recipe_names()} <= set(TRAINED)
    assert recipe_names("ngram") == [name for name in recipe_names() if name.startswith("ngram/")]


@pytest.mark.parametrize("name", [*recipe_names(), *KINDS])
def test_every_recipe_is_read_and_comes_back(name: str, tmp_path: Path) -> None:
    one = load_recipe(name)
    assert one.name == name and one.kind == name.split("/")[0]
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(one), encoding="utf-8")
    assert read_recipe(path) == one


FREEZING = [name for name in recipe_names() if "freeze" in recipe._from_toml(name)[2].get("train", {})]


@pytest.mark.parametrize("name", FREEZING)
def test_a_shipped_recipe_freezes_parameters_that_there_are(name: str) -> None:
    made = load_recipe(name)
    model = on_meta(lambda: made.model_class(made.model, Sizes(9, 2)))
    setup.freeze(model, made.train.freeze)
    assert not all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe_says_what_it_is_and_its_values_arrive(name: str) -> None:
    text = (recipe.RECIPES / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# ") and len(text.split("\n")[0]) > 10
    made = dataclasses.asdict(load_recipe(name))
    for section, entries in tomllib.loads(text).items():
        assert made[section] | merged(made[section], entries) == made[section]


def merged(values: dict[str, Any], entries: dict[str, Any]) -> dict[str, Any]:
    """`entries` with each group filled up with the other keys of the group, and lists as a recipe has them."""
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in entries.items()}
    return {key: {**values[key], **value} if isinstance(value, dict) else value for key, value in plain.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_recipe_toml_says_every_key_with_its_meaning(kind: str) -> None:
    text = to_toml(load_recipe(kind))
    values = tomllib.loads(text)
    assert [*values] == ["kind", "name", *SECTIONS]
    for section in SECTIONS:
        for one in section_fields(section, kind):
            assert one.name in values[section]
            assert one.doc and (one.doc in text or isinstance(values[section][one.name], dict))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("section", SECTIONS)
def test_the_source_says_what_the_classes_hold(kind: str, section: str) -> None:
    """Help is read from the source without importing it; it must be the help of what is used."""
    config = getattr(load_recipe(kind), section)
    assert [one.name for one in section_fields(section, kind)] == [one.name for one in dataclasses.fields(config)]


def test_fields_are_read_without_importing_anything() -> None:
    code = (
        "import sys\n"
        "from segue import models\n"
        "from segue.models.keys import SECTIONS, section_fields\n"
        "assert all(section_fields(s, k) or s == 'train' for s in SECTIONS for k in models.kinds())\n"
        "assert section_fields('train', 'rnn_lm')[0].doc\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', 'tokenizers')]\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_fields_of_reads_types_defaults_and_docs(tmp_path: Path) -> None:
    source = (
        'class Config:\n    """Doc."""\n    a: int = 3\n    """What a is."""\n    b: str | None = None\n    c: float\n'
    )
    path = tmp_path / "m.py"
    path.write_text(source)
    assert fields_of(path) == [("a", "int", "3", "What a is."), ("b", "str | None", "None", ""), ("c", "float", "", "")]
    assert fields_of(path, "Train") == []


# Where values come from


def test_defaults_then_toml_then_the_callers_then_the_command_line(tmp_path: Path) -> None:
    mine = written(
        tmp_path, 'kind = "rnn_lm"\n[model]\nwidth = 48\nlayers = 2\n[train]\nsteps = 7\n[data]\npath = "a.txt"\n'
    )
    one = load_recipe(mine, ["model.layers=3"])
    assert (one.model.width, one.model.layers, one.train.steps) == (48, 3, 7)
    assert one.model.cell == models.model_class("rnn_lm").Config().cell and one.decode == Decode()
    two = load_recipe(mine, ["train.steps=9"], {"data": {"path": "b.txt"}, "train": {"steps": 8, "seed": 4}})
    assert (two.data.path, two.train.steps, two.train.seed) == ("b.txt", 9, 4)
    assert load_recipe(mine, ["train.steps=1", "train.steps=2"]).train.steps == 2  # the last word counts


def test_a_file_of_ones_own_has_a_name(tmp_path: Path) -> None:
    assert load_recipe(written(tmp_path, 'kind = "bow"\n')).name == "bow/mine"
    assert load_recipe(written(tmp_path, 'kind = "bow"\nname = "best"\n')).name == "best"


def test_a_kind_alone_takes_its_default_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bow").mkdir()
    (tmp_path / "bow" / "default.toml").write_text("[model]\ndropout = 0.125\n")
    (tmp_path / "bow" / "other.toml").write_text("[model]\ndropout = 0.5\n")
    monkeypatch.setattr(recipe, "RECIPES", tmp_path)
    assert load_recipe("bow").model.dropout == 0.125
    assert load_recipe("bow").name == "bow"
    assert load_recipe("bow/other").model.dropout == 0.5  # no inheritance: only one TOML is read
    assert load_recipe("window_tagger").model == models.model_class("window_tagger").Config()


def test_defaults_that_the_task_decides() -> None:
    kinds = {kind: load_recipe(kind).tokens.kind for kind in ("rnn_lm", "bow", "window_tagger", "rnn_seq2seq")}
    assert kinds == {"rnn_lm": "char", "bow": "word", "window_tagger": "space", "rnn_seq2seq": "bpe"}
    tokenised = load_recipe("ngram", ["tokens.kind=space"])
    assert tokenised.data.unit == "line" and tokenised.data.canonical
    own = load_recipe("ngram", ["tokens.kind=space", "data.unit=document"])
    assert own.data.unit == "document" and own.data.canonical
    with pytest.raises(InputError, match=r"data\.canonical=false does not go with tokens\.kind=space"):
        load_recipe("ngram", ["tokens.kind=space", "data.canonical=false"])
    assert not load_recipe("word2vec", ["tokens.kind=space", "data.canonical=false"]).data.canonical  # it has no bits
    assert load_recipe("ngram").batches.length == 128 and load_recipe("bow").batches.length == 1024


def test_with_values_changes_one_section() -> None:
    one = load_recipe("rnn_lm")
    two = one.with_values("train", steps=3)
    assert two.train.steps == 3 and two.model == one.model and one.train.steps == 0


# What is understood


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    on: bool = False


@dataclass(frozen=True)
class Sample:
    """Every type that a field may have."""

    count: int = 1
    share: float = 0.5
    on: bool = False
    text: str = ""
    choice: Literal["apple", "pear"] = "apple"
    weights: tuple[float, ...] = ()
    split: str | float = 0.1
    maybe: int | float = 1
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"count={self.count} is below 0")


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("count=12", 12),
        ("share=1e-3", 0.001),
        ("share=2", 2.0),
        ("on=true", True),
        ("on=False", False),
        ("text=a=b c", "a=b c"),
        ("text=", ""),
        ("choice=pear", "pear"),
        ("weights=0.6,0.3,.1", (0.6, 0.3, 0.1)),
        ("weights=1", (1.0,)),
        ("weights=", ()),
        ("maybe=2", 2),
        ("maybe=0.5", 0.5),
    ],
)
def test_typed_values(override: str, value: Any) -> None:
    values: dict[str, Any] = {}
    recipe._override(values, f"model.{override}")
    made = make(Sample, values["model"], "model")
    found = getattr(made, override.split("=")[0])
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("share", 1, 1.0),
        ("weights", [1, 0.5], (1.0, 0.5)),
        ("split", "a.txt", "a.txt"),
        ("split", 0, 0.0),
        ("inner", {"rate": 1, "on": True}, Inner(1.0, True)),
    ],
)
def test_toml_values(key: str, value: Any, expected: Any) -> None:
    assert getattr(make(Sample, {key: value}, "model"), key) == expected


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("count", 1.5, "model.count=1.5 is not a whole number"),
        ("count", True, "model.count=True is not a whole number"),
        ("count", "3", "model.count='3' is not a whole number"),
        ("share", "0.5", "model.share='0.5' is not a number"),
        ("share", True, "model.share=True is not a number"),
        ("on", 1, "model.on=1 is not true or false"),
        ("text", 3, "model.text=3 is not text"),
        ("choice", "pair", "model.choice='pair' is not one of apple, pear. Did you mean 'pear'?"),
        ("weights", 0.5, "model.weights=0.5 is not numbers separated by commas"),
        ("weights", ["a"], "model.weights=['a'] is not numbers separated by commas"),
        ("split", True, "model.split=True is not text or a number"),
        ("inner", 3, "model.inner is a group of keys: give one of them, such as model.inner.rate=…"),
        ("inner", {"rates": 1}, "There is no key 'model.inner.rates'. Did you mean 'rate'?"),
        ("count", -1, "model: count=-1 is below 0"),
    ],
)
def test_wrong_toml_values(key: str, value: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        make(Sample, {key: value}, "model")
    assert str(error.value).startswith(said)


def test_groups_on_the_command_line() -> None:
    one = load_recipe("rnn_lm", ["train.optimizer.rate=0.01", "train.optimizer.name=sgd", "train.tensorboard=true"])
    assert (one.train.optimizer.rate, one.train.optimizer.name, one.train.tensorboard) == (0.01, "sgd", True)
    assert one.train.optimizer.clip == load_recipe("rnn_lm").train.optimizer.clip


def test_a_group_in_a_file_and_one_key_of_it_on_top(tmp_path: Path) -> None:
    mine = written(tmp_path, 'kind = "bow"\n[train.optimizer]\nrate = 0.5\nclip = 2\n')
    optimizer = load_recipe(mine, ["train.optimizer.clip=3"]).train.optimizer
    assert (optimizer.rate, optimizer.clip) == (0.5, 3.0)


# What is refused, and how it is said


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.step=5", "There is no key 'train.step'. Did you mean 'steps'?"),
        ("trian.steps=5", "There is no section 'trian' in 'trian.steps=5'. Did you mean 'train'?"),
        ("stepps=5", "'stepps=5' is not understood. Expected section.key=value. Did you mean train.steps=5?"),
        ("xyzzy=5", "'xyzzy=5' is not understood. Expected section.key=value. `segue explain rnn_lm` lists the keys."),
        ("seed=5", "'seed=5' may be data.seed=5 or train.seed=5 or decode.seed=5. Say which."),
        ("train.lr=5", "There is no key 'train.lr'. Did you mean 'train.optimizer.rate'?"),
        ("decode.steps=5", "There is no key 'decode.steps'. Did you mean 'train.steps'?"),
        ("train.steps=9223372036854775808", "train.steps=9223372036854775808 is not a whole number that fits 64 bits."),
        ("train.seconds=inf", "train.seconds=inf is not a number."),
        ("train.optimizer.rate=nan", "train.optimizer.rate=nan is not a number."),
        ("train.steps", "'train.steps' is not understood."),
        ("train.steps=many", "train.steps=many is not a whole number."),
        ("train.steps=1.5", "train.steps=1.5 is not a whole number."),
        ("train.steps=-1", "train: steps, epochs, seconds, stop, every and patience must be 0 or more"),
        ("train.tensorboard=yes", "train.tensorboard=yes is not true or false."),
        ("model.cell=lstn", "model.cell=lstn is not one of elman, lstm, gru. Did you mean 'lstm'?"),
        ("model.width=0", "model: width = 0"),
        ("model.witdh=3", "There is no key 'model.witdh'. Did you mean 'width'?"),
        ("train.optimizer=0.1", "train.optimizer is a group of keys: give one of them, such as train.optimizer.name=…"),
        ("train.optimizer.rat=1", "There is no key 'train.optimizer.rat'. Did you mean 'rate'?"),
        ("train.optimizer.rate=fast", "train.optimizer.rate=fast is not a number."),
        ("train.optimizer.rate=0", "train.optimizer: rate=0.0 would not learn"),
        ("train.steps.x=1", "train.steps="),
        ("data.unit=lines", "data.unit=lines is not one of line, paragraph, document. Did you mean 'line'?"),
        ("data.validation=2", "data.validation is '2'"),
        ("tokens.kind=words", "tokens.kind=words is not one of"),
        ("decode.top_p=0", "decode: top_p is 0.0"),
        ("batches.accumulate=33", "batches: accumulate=33"),
    ],
)
def test_wrong_overrides(override: str, said: str) -> None:
    assert refused("rnn_lm", [override]).startswith(said)


def test_a_value_is_no_group(tmp_path: Path) -> None:
    mine = written(tmp_path, 'kind = "bow"\n[train]\nsteps = 5\n')
    assert "train.steps is a value" in refused(mine, ["train.steps.more=1"])


def test_each_model_has_its_own_train_section() -> None:
    """What a model that counts does not read, it does not take."""
    assert refused("ngram", ["train.steps=5"]).startswith("There is no key 'train.steps'.")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("rnn_ml", "There is no model 'rnn_ml'. Did you mean 'rnn_lm'?"),
        ("ngram/kn8", "There is no recipe 'ngram/kn8'. Did you mean 'ngram/kn7'?"),
        ("nowhere/at_all", "There is no model 'nowhere'."),
        ("missing.toml", "There is no recipe file missing.toml."),
        ("missing.py", "There is no model file missing.py."),
    ],
)
def test_wrong_names(what: str, said: str) -> None:
    assert refused(what).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "bow"\n[modell]\nx = 1\n', "there is no section [modell]. Did you mean 'model'?"),
        ('kind = "bow"\nmodel = 3\n', "[model] should be a section with keys."),
        ('kind = "bow"\nsteps = 3\n', "there is no section [steps]."),
        ('kind = "bow"\n[model]\ndropout = "much"\n', "model.dropout='much' is not a number."),
        ('kind = "bow"\n[model]\nwidth = 3\n', "There is no key 'model.width'."),
        ('kind = "bowl"\n', "There is no model 'bowl'. Did you mean 'bow'?"),
        ("[model]\n", 'names no model. Expected a first line such as: kind = "rnn_lm"'),
        ("kind = 3\n", "names no model."),
        ("kind = \n", "is not TOML: "),
    ],
)
def test_wrong_files(text: str, said: str, tmp_path: Path) -> None:
    assert said in refused(written(tmp_path, text))


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'kind = "\xff"')
    assert "is not TOML" in refused(str(path))


# There and back


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.characters(codec="utf-8"), min_size=1)
    | st.text(st.sampled_from('"\\\n\r\t\0\x1f\x7f\x85\u2028#=[]é😀 '), min_size=1)
)
def test_any_text_comes_back(text: str) -> None:
    assert tomllib.loads(f"key = {recipe._toml(text)}  # a comment")["key"] == text


@pytest.mark.parametrize(
    "path", ['a "quoted" name.txt', "C:\\texts\\new.txt", "tab\tand\nline\x00end\x7f.txt", "#é😀 = [x].txt", "'"]
)
def test_any_path_comes_back(path: str, tmp_path: Path) -> None:
    one = load_recipe("ngram", [f"data.path={path}"])
    assert one.data.path == path
    file = tmp_path / "recipe.toml"
    file.write_text(to_toml(one), encoding="utf-8")
    assert read_recipe(file) == one


def test_values_of_every_type_come_back(tmp_path: Path) -> None:
    overrides = ["model.order=3", "model.smoothing=interpolation", "model.lambdas=0.6,0.3,0.1", "data.canonical=true"]
    overrides += ["data.validation=held.txt", "data.test=0.25", "decode.temperature=1e-05", "tokens.kind=space"]
    one = load_recipe("ngram", overrides)
    assert one.model.lambdas == (0.6, 0.3, 0.1) and one.data.test == 0.25 and one.data.validation == "held.txt"
    two = load_recipe("rnn_lm", ["train.optimizer.rate=3e-4", "train.seconds=1e9", "train.freeze=body,head"])
    for number, recipe_made in enumerate((one, two)):
        file = tmp_path / f"{number}.toml"
        file.write_text(to_toml(recipe_made), encoding="utf-8")
        assert read_recipe(file) == recipe_made


def test_code_from_outside_is_not_run_unless_trusted(tmp_path: Path) -> None:
    """Not by its own name, nor through a TOML that names it."""
    code = tmp_path / "mynet.py"
    code.write_text("raise RuntimeError('it ran')\n")
    assert "--trust" in refused(str(code))
    assert "--trust" in refused(written(tmp_path, f'kind = "{code}"\n'))
    with pytest.raises(InputError, match=r"mynet.py:1: the model file cannot be imported: RuntimeError: it ran"):
        load_recipe(str(code), trust=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [("x = (\n", r"own.py:1: .*SyntaxError"), ("\nimport sys\nsys.exit(3)\n", r"own.py:3: .*ends the program")],
)
def test_a_model_file_that_cannot_be_imported_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    code = tmp_path / "own.py"
    code.write_text(text)
    with pytest.raises(InputError, match=said):
        load_recipe(str(code), trust=True)


def test_the_keys_of_a_group_are_explained_too(capsys: pytest.CaptureFixture[str]) -> None:
    made = load_recipe("rnn_lm")
    doc = group_docs(made.train.optimizer)["clip"]
    assert doc and f"clip = 1.0  # {doc}" in to_toml(made).split("\n")
    assert main(["explain", "rnn_lm"]) == 0
    first = " ".join(doc.split()[:3])
    assert re.search(rf"train\.optimizer\.clip +1\.0 +{re.escape(first)}", capsys.readouterr().out)


def test_a_key_that_has_a_group_now_is_refused_beside_it(tmp_path: Path) -> None:
    text = 'kind = "rnn_lm"\n[model]\nar = 2.0\n[model.penalty]\ntar = 1.0\n'
    assert "model.ar" in refused(written(tmp_path, text))


@pytest.mark.parametrize(
    ("kind", "typed", "meant"),
    [
        ("rnn_lm", "model.ar=2", "model.penalty.ar"),
        ("window_tagger", "model.letters=8", "model.word.letters"),
        ("gpt", "train.rate=1", "train.optimizer.rate"),
    ],
)
def test_a_key_without_its_group_is_told_where_it_stands(kind: str, typed: str, meant: str) -> None:
    assert refused(kind, [typed]).endswith(f"Did you mean '{meant}'?")


def test_a_group_keeps_the_defaults_of_its_model() -> None:
    """A window tagger that is asked for letters gets no more than letters."""
    word = load_recipe("window_tagger", ["model.word.letters=8"]).model.word
    assert (word.folded, word.letters, word.affixes, word.shapes) == (False, 8, 0, False)
    word = load_recipe("rnn_tagger", ["model.word.letters=8"]).model.word
    assert (word.folded, word.letters, word.affixes, word.shapes) == (True, 8, 3, True)


def test_a_budget_in_seconds_bounds_every_model_that_has_a_clock() -> None:
    vectors, network, counted = (load_recipe(kind) for kind in ("word2vec", "bow", "nbsvm"))
    assert budgeted(vectors, "2min").train.seconds == 120 and budgeted(vectors, "2min").train.epochs == 0
    assert budgeted(network, "2min").train.seconds == 120
    assert budgeted(vectors, "500").train == vectors.train and budgeted(counted, "2min") == counted


ABSURD = [
    *(
        "model.layers=100000",
        "model.width=4611686018427387904",
        "model.embedding=1000000000000",
        "train.seed=1" + "0" * 24,
    ),
    *("model.width=1" + "0" * 5000, "model.layers=-1", "model.width=1e30", "model.width=null", "model.width=x"),
    *("tokens.kind=bpe tokens.vocab_size=10000000000", "tokens.kind=unigram tokens.vocab_size=10000000000"),
]


@pytest.mark.parametrize("setting", ABSURD)
def test_absurd_values_are_refused_at_once_with_their_key(setting: str) -> None:
    said = refused("rnn_lm", setting.split(" "))
    assert setting.rpartition(".")[2].partition("=")[0] in said and len(said) < 300


@pytest.mark.parametrize(
    ("kind", "setting"), [("ngram", "order=1000"), ("nbsvm", "words=4611686018427387904"), ("gpt", "layers=1000000")]
)
def test_counted_models_have_bounds_too(kind: str, setting: str) -> None:
    assert f"model.{setting.partition('=')[0]}" in refused(kind, [f"model.{setting}"])


@pytest.mark.parametrize("value", ["1" * 5000, "1" * 24, "[" * 5000 + "]" * 5000, "1" + "0" * 400, "nan", "{}"])
def test_absurd_values_of_a_file_are_refused(tmp_path: Path, value: str) -> None:
    for key in ("width", "dropout"):
        assert len(refused(written(tmp_path, f'kind = "rnn_lm"\n[model]\n{key} = {value}\n'))) < 500


def test_a_recipe_that_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.toml")
    assert "no regular file" in refused(str(tmp_path / "r.toml"))


def test_a_named_batch_in_rows_replaces_one_in_tokens() -> None:
    assert load_recipe("transformer").batches.tokens > 0
    rows = load_recipe("transformer", ["batches.size=16"]).batches
    assert (rows.size, rows.tokens) == (16, 0)
    assert load_recipe("transformer", ["batches.size=16", "batches.tokens=99"]).batches.tokens == 99


def test_a_named_budget_replaces_that_of_a_shipped_recipe() -> None:
    shipped = load_recipe("gpt/gpu").train
    assert shipped.steps and not shipped.seconds
    timed = load_recipe("gpt/gpu", ["train.seconds=60"]).train
    assert (timed.steps, timed.epochs, timed.seconds) == (0, 0.0, 60.0)
    assert load_recipe("gpt/gpu", ["train.seed=1"]).train.steps == shipped.steps
