"""What the command line says to machines and to people: strict JSON, the issue's own examples, help."""

from __future__ import annotations

import io
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from rich.text import Text

import segue
from segue.cli import app, main
from segue.models import kinds

TINY = ["model.width=8", "model.embedding=8", "train.steps=3"]
SOURCE = Path(segue.__file__).parents[1]


class Said(NamedTuple):
    code: int
    out: str
    err: str


Segue = Callable[..., Said]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Segue:
    """The command line without a process of its own: words in, what it says and its exit code out."""

    def run(words: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        return Said(main(shlex.split(words)), *capsys.readouterr())

    return run


def process(*words: str, cwd: Path, stdin: bytes = b"") -> Said:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], cwd=cwd, input=stdin, env=environment, capture_output=True)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def text(lines: int, seed: int = 0) -> str:
    words = ["the", "a", "cow", "dog", "eats", "sees", "grass", "hay", "green", "big", "small", "barn", "runs"]
    draw = random.Random(seed)
    return "".join(" ".join(draw.choices(words, k=8)) + ".\n" for _ in range(lines))


REVIEWS = "".join(f"{label}\ta {word} film\n" for label, word in (("good", "fine"), ("bad", "dull")) for _ in range(30))
TAGGED = "the\tD\ncow\tN\neats\tV\n\na\tD\ndog\tN\nruns\tV\n\n" * 15
PAIRS = "the cow\tdie kuh\na dog\tein hund\n" * 15


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and one small run of each task: runs/ngram, rnn_lm, bow, window_tagger, rnn_seq2seq."""
    place = tmp_path_factory.mktemp("home")
    (place / "book.txt").write_text(text(200))
    (place / "other.txt").write_text(text(20, seed=1))
    (place / "reviews.tsv").write_text(REVIEWS)
    (place / "tags.conll").write_text(TAGGED)
    (place / "pairs.tsv").write_text(PAIRS)
    for model, data, settings in (
        ("ngram", "book.txt", []),
        ("rnn_lm", "book.txt", TINY),
        ("bow", "reviews.tsv", ["train.steps=60", "train.optimizer.rate=0.1"]),
        ("window_tagger", "tags.conll", ["train.steps=3"]),
        ("rnn_seq2seq", "pairs.tsv", ["train.steps=3", "decode.max_tokens=5"]),
    ):
        segue.train(model, place / data, place / "runs" / model, settings)
    return place


@pytest.fixture
def there(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return home


def strict(line: str) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(line, parse_constant=refuse)


def one(said: Said) -> Any:
    """The one object that was said."""
    assert said.code == 0, said.err
    assert said.out.count("\n") == 1 and said.out.endswith("\n")
    return strict(said.out)


def each(said: Said) -> list[Any]:
    """The objects, one a line."""
    assert said.code == 0, said.err
    return [strict(line) for line in said.out.removesuffix("\n").split("\n")]


# What machines read


def test_train_says_its_run_and_result(there: Path, call: Segue, tmp_path: Path) -> None:
    said = one(call(f"train ngram book.txt --out {tmp_path / 'n'} --json"))
    assert said["run"] == str(tmp_path / "n")
    assert said["result"]["model"] == "ngram"
    assert said["result"] == strict((tmp_path / "n" / "result.json").read_text())


@pytest.mark.parametrize(
    ("run", "data", "task", "keys"),
    [
        ("ngram", "other.txt", "lm", "bits_per_byte bits_per_byte_ci perplexity tokens bytes"),
        ("rnn_lm", "other.txt", "lm", "bits_per_byte bits_per_byte_ci perplexity tokens bytes"),
        ("bow", "reviews.tsv", "classify", "accuracy accuracy_ci macro_f1 confusion"),
        ("window_tagger", "tags.conll", "tag", "accuracy accuracy_ci confusion"),
        ("rnn_seq2seq", "pairs.tsv", "seq2seq", "bleu chrf perplexity signature decode"),
    ],
)
def test_evaluate_says_the_figures_of_its_task(
    there: Path, call: Segue, run: str, data: str, task: str, keys: str
) -> None:
    said = one(call(f"evaluate runs/{run} {data} --json"))
    assert said["task"] == task
    assert set(keys.split()) <= said.keys()


def test_evaluate_counts_the_whole_file(there: Path, call: Segue) -> None:
    said = one(call("evaluate runs/ngram other.txt --json"))
    size = (there / "other.txt").stat().st_size
    assert said["bytes"] == size  # a document's end stands for no byte
    assert said["tokens"] == size + 1
    rows = one(call("evaluate runs/bow reviews.tsv --json"))
    assert sum(map(sum, rows["confusion"])) == REVIEWS.count("\n")


def test_evaluate_without_data_uses_what_was_held_back(there: Path, call: Segue) -> None:
    said = one(call("evaluate runs/ngram --json"))
    result = strict((there / "runs/ngram/result.json").read_text())
    assert said["split"] == "validation"
    assert said["bits_per_byte"] == result["bits_per_byte"]


def test_compare_says_a_row_a_model_best_first(there: Path, call: Segue, tmp_path: Path) -> None:
    said = one(call(f"compare book.txt --models ngram,ngram/bigram --budget 3 --out {tmp_path / 'c'} --json"))
    assert Path(said["report"]).is_file()
    keys = {"model", "bits_per_byte", "bits_per_byte_ci", "parameters", "train_seconds", "run"}
    assert all(keys <= row.keys() and Path(row["run"]).is_dir() for row in said["rows"])
    assert {row["model"] for row in said["rows"]} == {"ngram", "ngram/bigram"}
    figures = [row["bits_per_byte"] for row in said["rows"]]
    assert figures == sorted(figures)


def test_score_says_tokens_and_totals_of_each_line(there: Path, call: Segue) -> None:
    for end in (0, 1):
        said = each(call(f"score runs/ngram - --json {'--end' * end}", b"the cow\n\na dog eats\r\n"))
        assert [line["text"] for line in said] == ["the cow", "", "a dog eats"]
        for line in said:
            assert "".join(line["tokens"]) == line["text"]
            assert len(line["tokens"]) == len(line["logprobs"]) == len(line["text"]) + end
            assert line["logprob"] == pytest.approx(sum(line["logprobs"]))


def test_score_shows_blanks(there: Path, call: Segue) -> None:
    lines = call("score runs/ngram -", b"the cow\n").out.splitlines()
    assert any(line.startswith("␣ ") for line in lines)


def test_generate_says_as_many_texts_as_asked(there: Path, call: Segue) -> None:
    words = "generate runs/rnn_lm --prompt 'the ' -n 3 --max-tokens 7 --seed 5 --json"
    said = one(call(words))
    assert len(said["texts"]) == 3
    assert all(len(written) <= 7 for written in said["texts"])
    assert one(call(words)) == said


def test_predict_says_an_object_a_line(there: Path, call: Segue) -> None:
    said = each(call("predict runs/bow - --json", b"a fine film\na dull film\n"))
    assert [row["label"] for row in said] == ["good", "bad"]
    assert all(sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5) for row in said)
    (tagged,) = each(call("predict runs/window_tagger - --json", b"a cow runs\n"))
    assert tagged["words"] == ["a", "cow", "runs"] and len(tagged["tags"]) == 3
    (translated,) = each(call("predict runs/rnn_seq2seq - --json", b"the cow\n"))
    assert isinstance(translated["translation"], str) and translated["logprob"] < 0


@pytest.mark.parametrize("run", ["bow", "window_tagger", "rnn_seq2seq"])
def test_predict_answers_every_line_an_empty_one_too(there: Path, call: Segue, run: str) -> None:
    lines = b"the cow\n\n" * 40  # more than the predictor reads at once
    assert len(each(call(f"predict runs/{run} - --json", lines))) == 80
    assert call(f"predict runs/{run} -", lines).out.count("\n") == 80


def test_look_and_runs_say_json_too(there: Path, call: Segue) -> None:
    said = one(call("look runs/ngram 'the ' --json"))
    chances = [sum(row) for row in said["values"][0]]
    assert chances == sorted(chances, reverse=True) and 0 < sum(chances) <= 1 + 1e-6
    assert {row["run"] for row in one(call("runs runs --json"))["runs"]} == {
        f"runs/{name}" for name in ("ngram", "rnn_lm", "bow", "window_tagger", "rnn_seq2seq")
    }


def test_an_infinite_figure_is_null(there: Path, call: Segue, tmp_path: Path) -> None:
    """Maximum likelihood gives new text no probability: a figure that JSON cannot write."""
    run = tmp_path / "ml"
    settings = "tokens.kind=space model.order=2 model.smoothing=maximum_likelihood"
    assert one(call(f"train ngram book.txt --out {run} {settings} --json"))["result"]["bits_per_byte"] is None
    said = one(call(f"evaluate {run} other.txt --json"))
    assert said["bits_per_byte"] is None and said["perplexity"] is None
    assert said["zero_probability_tokens"] > 0
    (line,) = each(call(f"score {run} - --json", b"grass grass zebra\n"))
    assert line["bits"] is None and line["logprob"] is None
    for file in run.glob("*.json*"):
        for row in [file.read_text()] if file.suffix == ".json" else file.read_text().split("\n")[:-1]:
            strict(row)


def test_a_comparison_of_infinite_figures_is_a_table_too(there: Path, call: Segue, tmp_path: Path) -> None:
    settings = "tokens.kind=space model.smoothing=maximum_likelihood"
    words = f"compare book.txt --models ngram,ngram/trigram,ngram/bigram {settings} --out {tmp_path / 'c'} --json"
    rows = one(call(words))["rows"]
    assert [row["bits_per_byte"] for row in rows].count(None) >= 2


# The examples, the network made small


def test_the_examples_work(call: Segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ptb.train.txt").write_text(text(200).replace(".", "").replace("hay", "<unk>"))
    Path("ptb.test.txt").write_text(text(20, seed=1).replace(".", "").replace("hay", "<unk>"))
    Path("book.txt").write_text(text(300))
    Path("reviews.tsv").write_text(REVIEWS)
    settings = "data.unit=line tokens.kind=space model.order=2 model.smoothing=add_alpha model.alpha=0.1"
    assert call(f"train ngram ptb.train.txt --out runs/b {settings}").code == 0
    tested = one(call("evaluate runs/b ptb.test.txt --json"))
    assert tested["tokens"] == len(Path("ptb.test.txt").read_text().split()) + 20  # the ends of lines are predicted
    small = "model.width=32 batches.size=8 batches.length=32"
    assert call(f"train rnn_lm book.txt --out runs/l model.cell=lstm train.steps=200 train.seed=1 {small}").code == 0
    weights = Path("runs/l/model.safetensors").read_bytes()
    again = call("train rnn_lm --out runs/l --resume")
    assert again.code == 0 and "finished" in again.out
    assert Path("runs/l/model.safetensors").read_bytes() == weights
    assert call("train bow reviews.tsv --out runs/c train.steps=100").code == 0
    (predicted,) = each(
        process("-m", "segue", "predict", "runs/c", "-", "--json", cwd=tmp_path, stdin=b"a fine film\n")
    )
    assert predicted["label"] == "good"
    compared = one(call("compare book.txt --models ngram,rnn_lm --budget 1s --json"))
    assert {row["model"] for row in compared["rows"]} == {"ngram", "rnn_lm"}
    code = "import segue; run = segue.load('runs/l'); print(run.generate('The ', max_tokens=20, seed=0))"
    printed = process("-c", code, cwd=tmp_path)
    assert printed.code == 0, printed.err
    assert printed.out == segue.load("runs/l").generate("The ", max_tokens=20, seed=0) + "\n"


# What people read


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("evaluate runs/ngram other.txt", ["bits per byte", "perplexity"]),
        ("evaluate runs/bow reviews.tsv", ["accuracy", "macro F1", "predicted"]),
        ("evaluate runs/window_tagger tags.conll", ["accuracy"]),
        ("evaluate runs/rnn_seq2seq pairs.tsv", ["BLEU", "chrF"]),
        ("evaluate runs/rnn_seq2seq pairs.tsv decode.beam=2", ["BLEU", "beam=2"]),
        ("score runs/ngram other.txt", ["log p", "total", "perplexity"]),
        ("score runs/ngram other.txt --end", ["log p", "total", "</s>", "perplexity"]),
        ("score runs/rnn_seq2seq pairs.tsv", ["log p", "total", "</s>", "perplexity"]),
        ("generate runs/ngram --prompt 'the ' --max-tokens 5", ["the "]),
        ("look runs/ngram the", ["█"]),
        ("models", kinds()),
        ("recipes", ["ngram/bigram", "rnn_lm/gru"]),
        ("runs", ["runs/ngram", "rnn_lm"]),
        ("runs runs/bow", ["runs/bow"]),
        ("explain rnn_lm", ["[train]", "train.steps", "model.cell"]),
        ("explain ngram/bigram model.order=4", ["model.order", "4"]),
        ("data", ["pydoc", "grammar", "ptb-train"]),
        ("data book.txt", ["book.txt", "word tokens", "] [.]"]),
        ("data tags.conll", ["rows", "/"]),
    ],
)
def test_every_verb_speaks_to_people(there: Path, call: Segue, words: str, shown: list[str]) -> None:
    said = call(words)
    assert said.code == 0 and said.err == ""
    assert all(word in said.out for word in shown)


def test_data_is_looked_at_as_it_is_said_to_be_written(there: Path, call: Segue, tmp_path: Path) -> None:
    place = tmp_path / "fold"
    place.mkdir()
    (place / "r.tsv").write_bytes("a caf\u00e9\tgood\nno milk\tbad\n".encode("latin-1"))
    said = call(f"data {place} data.columns=2,1 data.encoding=latin-1")
    assert said.code == 0 and "2 rows" in said.out and "good: [a] [ caf\u00e9]" in said.out
    (tmp_path / "rows").write_text("good\ta film\n" * 2 + "bad\n")
    said = call(f"data {tmp_path / 'rows'} data.format=tsv data.on_error=skip")
    assert said.code == 0 and "good: [a] [ film]" in said.out and "1 row was skipped" in said.out
    said = call("data other.txt data.unit=line --tokens char")
    assert said.code == 0 and "20 lines" in said.out


def test_a_damaged_run_hides_no_other(there: Path, call: Segue, tmp_path: Path) -> None:
    for name, run in (("a", "ngram"), ("b", "bow")):
        shutil.copytree(there / "runs" / run, tmp_path / name)
    (tmp_path / "a" / "result.json").write_text("")
    said = call(f"runs {tmp_path}")
    assert said.code == 0 and "damaged" in said.out and "accuracy" in said.out
    damaged, sound = one(call(f"runs {tmp_path} --json"))["runs"]
    assert not damaged["finished"] and "result.json is damaged" in damaged["damaged"]
    assert sound["finished"] and sound["model"] == "bow"


def test_what_was_skipped_is_said_at_the_end(there: Path, call: Segue, tmp_path: Path) -> None:
    (tmp_path / "gaps.txt").write_text("one two\n\nthree four\n" * 10)
    said = call(f"train ngram {tmp_path / 'gaps.txt'} --out {tmp_path / 'g'} data.unit=line")
    assert said.code == 0 and "10 blank lines were skipped." in said.out


def test_a_prompt_the_model_cannot_read_is_told(there: Path, call: Segue) -> None:
    said = call("generate runs/ngram --prompt 'the ☃' --max-tokens 3 --json")
    assert one(said)["prompt"] == "the ☃"
    assert "☃" in said.err and "Unknown" in said.err
    assert call("generate runs/ngram --prompt 'the ' --max-tokens 3").err == ""


def test_predict_tells_what_it_cut(there: Path, call: Segue) -> None:
    said = call("predict runs/bow - --json", b"fine " * 3000 + b"\na dull film\n")
    assert len(each(said)) == 2
    assert "tokens beyond 1,024 a line were not read" in said.err


def test_evaluate_tells_what_it_cut(there: Path, call: Segue, tmp_path: Path) -> None:
    (tmp_path / "long.tsv").write_text("good\t" + "fine " * 3000 + "\nbad\ta dull film\n")
    assert one(call(f"evaluate runs/bow {tmp_path / 'long.tsv'} --json"))["tokens_cut"] > 1000
    assert "tokens_cut" not in one(call("evaluate runs/bow reviews.tsv --json"))


# Help


VERBS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


def test_help_shows_every_verb(call: Segue) -> None:
    said = call("--help")
    assert said.code == 0 and said.err == ""
    assert all(verb in said.out for verb in VERBS)
    assert call("") == said  # nothing said asks for help


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--version", f"segue {segue.__version__}"),
        ("version", f"segue {segue.__version__}"),
        ("-h", "compare"),
        ("help", "compare"),
        ("help train", "--overwrite"),
        ("train -h", "--overwrite"),
        ("compare --help", "SOURCE,TARGET"),
        ("claim --help", "SOURCE,TARGET"),
        ("evaluate --help", "translator,"),
    ],
)
def test_help_and_version_by_other_words(call: Segue, words: str, shown: str) -> None:
    said = call(words)
    assert said.code == 0 and shown in said.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_what_it_does(call: Segue, verb: str) -> None:
    said = call(f"{verb} --help")
    (does,) = [c.callback.__doc__ for c in app.registered_commands if (c.name or c.callback.__name__) == verb]
    assert said.code == 0 and said.err == ""
    assert f"segue {verb}" in said.out
    assert " ".join(does.split()[:4]) in " ".join(said.out.split())


@pytest.mark.parametrize(
    "words", ["predict runs/bow other.txt --out x.csv", "score runs/ngram -o x", "generate x --output y"]
)
def test_what_is_printed_can_be_sent_to_a_file(call: Segue, words: str) -> None:
    said = call(words)
    assert said.code == 2 and f"{words.split()[0]} writes to standard output. Put > FILE" in said.err


def test_help_breaks_lines_by_the_terminal_alone(call: Segue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    lines = [line.strip() for line in call("evaluate --help").out.split("\n")]
    assert [line for line in lines if line.startswith("With --adapt") and line.endswith("of a run.")]


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_its_brackets(verb: str) -> None:
    """rich takes [data] for a style, and would leave it out."""
    command = typer.main.get_group(app).commands[verb]
    for told in (command.help, *(vars(parameter).get("help") for parameter in command.params)):
        assert Text.from_markup(told or "").plain == (told or "").replace("\\[", "[")


def test_help_needs_no_torch(tmp_path: Path) -> None:
    code = "import sys; from segue.cli import main; code = main(['--help']); sys.exit(code or 'torch' in sys.modules)"
    assert process("-c", code, cwd=tmp_path).code == 0
    assert process("-c", "import segue, sys; sys.exit('torch' in sys.modules)", cwd=tmp_path).code == 0


def test_data_says_that_a_text_is_tokenised_already(call: Segue, there: Path) -> None:
    (there / "ptb.txt").write_text(" mr. <unk> , who is N years old , joins the board . \n" * 40)
    assert "looks tokenised already" in call("data ptb.txt").out
    assert "looks tokenised already" not in call("data ptb.txt --tokens space").out
