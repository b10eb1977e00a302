"""Comparisons: the same text for all, folds and seeds as one figure, tokens without bits per byte, the task guessed."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import segue
from segue import tasks
from segue.cli import main
from segue.inference import metrics
from segue.inference.evaluation import Evaluation, interval
from segue.inference.score import Scored
from segue.recipe import load_recipe, read_recipe
from segue.runs import folder, prepare, resume
from segue.runs.experiments.compare import _expanded, _joined, _ladder, _own_ways, mean_of, task_of
from segue.tasks.lm import of_scored

TEXT = "the cow eats the green grass.\na big dog sees the small cow.\n\n" * 60


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(TEXT)


def toml(name: str, body: str) -> str:
    Path(f"{name}.toml").write_text(f'kind = "ngram"\nname = "{name}"\n{body}\n')
    return f"{name}.toml"


def test_models_that_read_the_text_in_other_units_are_not_compared() -> None:
    lines = toml("lines", '[data]\nunit = "line"')
    with pytest.raises(segue.InputError, match=r"data\.unit=document, lines with data\.unit=line"):
        segue.compare("book.txt", ["ngram", lines], out="c")
    assert not Path("c").exists()
    rows = segue.compare("book.txt", ["ngram", lines], out="c", settings=["data.unit=line"])["rows"]
    assert rows[0]["bits_per_byte"] == rows[1]["bits_per_byte"]


def test_if_one_model_reads_canonical_text_all_do() -> None:
    """Space tokens drop repeated blanks, so that a model of characters must not read them either."""
    Path("book.txt").write_text(TEXT.replace(" ", "   "))
    words = toml("words", '[tokens]\nkind = "space"')
    segue.compare("book.txt", ["ngram", words], out="c")
    runs = [Path("c") / name for name in ("ngram", "words")]
    assert len({folder.read_json(run / "result.json")["bytes"] for run in runs}) == 1
    data = [read_recipe(run / "recipe.toml").data for run in runs]
    assert all(one.canonical and one.unit == "line" for one in data)


def test_all_models_score_the_same_bytes_although_space_tokens_lose_blanks() -> None:
    Path("blanks.txt").write_text(TEXT.replace("the", " the  "))
    spaces = toml("spaces", '[tokens]\nkind = "space"')
    segue.compare("blanks.txt", ["ngram", spaces], out="c")
    ours, theirs = (folder.read_json(Path("c", name, "result.json")) for name in ("ngram", "spaces"))
    assert (ours["bytes"], ours["sha256"]) == (theirs["bytes"], theirs["sha256"])
    with pytest.raises(segue.InputError, match=r"data\.canonical=false does not go with tokens\.kind=space"):
        segue.compare("blanks.txt", ["ngram", spaces], out="d", settings=["data.canonical=false"])
    assert not Path("d").exists()


def test_tokens_that_lose_text_come_last_and_without_bits(capsys: pytest.CaptureFixture[str]) -> None:
    pieces = toml("pieces", '[tokens]\nkind = "wordpiece"')
    assert main(["compare", "book.txt", "--models", f"{pieces},ngram", "--seeds", "2", "--out", "c"]) == 0
    said = capsys.readouterr().out
    assert "ngram is best" in said and "chance" not in said  # one figure cannot be ahead of none
    row = next(line for line in said.splitlines() if line.startswith("pieces"))
    assert "–" in row and "∞" not in row
    result = segue.compare("book.txt", [pieces], out="d")
    assert result["rows"][0]["bits_per_byte"] is None and "wordpiece" in result["verdict"]
    assert main(["runs", "d"]) == 0
    assert "perplexity" in capsys.readouterr().out


def scored(bits: list[float], sizes: list[float], spelling: float) -> Evaluation:
    total = torch.tensor(bits, dtype=torch.float64).numpy()
    return of_scored(Scored(total, torch.tensor(sizes, dtype=torch.float64).numpy(), 6.0, 10, spelling, 1, 0, "way"))


def with_best(evaluation: Evaluation, best: float) -> Evaluation:
    evaluation.result["best_possible"] = best
    return evaluation


def test_folds_are_one_text_end_to_end() -> None:
    more = [2000.0 + i for i in range(24)]
    parts = [with_best(scored([2000, 100], [2048, 52], 21), 0.9), with_best(scored(more, [43.75] * 24, 0), 1.5)]
    whole = scored([2000, 100, *more], [2048, 52, *[43.75] * 24], 21)
    joined = _joined(parts).result
    for key in ("bits_per_byte", "bits_per_byte_ci", "bytes", "spelling_bits_per_byte"):
        assert joined[key] == pytest.approx(whole.result[key]), key
    assert joined["tokens"] == 20 and joined["unknown_tokens"] == 2
    assert joined["best_possible"] == pytest.approx((0.9 * 2100 + 1.5 * 1050) / 3150)


def judged(right: list[float], sure: float = 0.9) -> Evaluation:
    """Of a classifier that said everything with the same confidence."""
    rows = np.array(right)
    sums = metrics.reliability([sure] * len(rows), rows).tolist()
    result = {"figure": "accuracy", "accuracy": float(rows.mean()), "calibration": sums, "calibration_error": 9.0}
    return Evaluation(result, np.stack([rows, np.ones(len(rows))], 1), share=True)


def test_calibration_is_of_all_folds_together() -> None:
    """One fold is too sure by as much as the other is not sure enough: together they are right."""
    joined = _joined([judged([1, 1, 1, 0]), judged([1] * 6)]).result
    assert joined["calibration_error"] == pytest.approx(0.0)


def test_all_right_in_all_seeds_and_folds_is_no_certainty() -> None:
    for evaluation in (_joined([judged([1] * 15)] * 2), mean_of([judged([1] * 30)] * 2)):
        assert evaluation.result["accuracy_ci"] == pytest.approx([0.88, 1], abs=0.01)


def test_a_held_out_text_that_is_too_short_to_test(capsys: pytest.CaptureFixture[str]) -> None:
    """Said in the terminal, the JSON and the page, with what to do; p, which could only be 1, is in none of them."""
    Path("short.txt").write_bytes(np.random.default_rng(0).choice(list(b"abcd .\n"), 25_000).astype(np.uint8).tobytes())
    command = ["compare", "short.txt", "--models", "ngram,neural_lm", "--budget", "2"]
    assert main([*command, "--out", "c"]) == 0
    shown, result = capsys.readouterr().out, folder.read_json(Path("c/result.json"))
    page = Path("c/report.html").read_text(encoding="utf-8")
    first, second = result["rows"]
    assert result["column"] == "this run"
    assert (first["this_run"], second["this_run"]) == ("–", "") and first["next"]["p"] == 1.0
    row = next(line for line in shown.splitlines() if line.startswith(first["model"]))
    assert row.count("–") == 2 and '<td class="differs" data-label="this run differs from next">–</td>' in page
    reason = (
        f"too short to tell whether it is better than {second['model']} (3 of the 20 blocks of 2,048 bytes or 41.0 k"
    )
    for said in (" ".join(shown.split()), result["verdict"], page):
        assert reason in said and "Give more text, or hold out a larger share of it (data.test is 0.2)." in said
        assert "p = 1" not in said and "p=1" not in said and "∞" not in said
    assert "compared pair by pair" not in page


def test_one_seed_judges_runs_and_several_judge_models(capsys: pytest.CaptureFixture[str]) -> None:
    """The terminal, the JSON and the page ask the same question, and a model that counts is trained once."""
    Path("long.txt").write_text(TEXT * 24)
    command = ["compare", "long.txt", "--models", "ngram,small.toml", "--budget", "2", "data.test=0.5"]
    Path("small.toml").write_text('kind = "neural_lm"\nname = "small"\n[model]\nwidth = 4\n')
    for seeds, column in ((1, "this run"), (3, "better than next")):
        out = f"c{seeds}"
        assert main([*command, "--seeds", str(seeds), "--out", out]) == 0
        said, result = " ".join(capsys.readouterr().out.split()), folder.read_json(Path(out) / "result.json")
        page = Path(out, "report.html").read_text(encoding="utf-8")
        assert result["column"] == column and column.split()[0] in said
        first, second = result["rows"]
        assert first[column.replace(" ", "_")].startswith("yes (p ") and first["next"]["p"] < 0.05
        assert second["next"] is None and first["next"]["difference"] < 0
        assert ("another seed may turn it round" in said) == (seeds == 1) == ("another seed may turn it round" in page)
        assert ("by more than chance (p" in said and "3 seeds)" in said) == (seeds == 3)
        assert len(list(Path(out).glob("*/result.json"))) == 1 + seeds
        assert not list(Path(out).glob("ids-*"))


def test_seeds_share_tokenizer_and_ids_and_are_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not depend on the seed is made once a fold; each run is bit for bit the one that is trained alone."""
    made = {"tokenizer": 0, "speller": 0, "store": 0, "corpus": 0}

    def counted(name: str, function: Any) -> Any:
        def count(*given: Any, **more: Any) -> Any:
            made[name] += 1
            return function(*given, **more)

        return count

    monkeypatch.setattr(prepare.Tokenizer, "train", counted("tokenizer", prepare.Tokenizer.train))
    monkeypatch.setattr(prepare.Speller, "learn", counted("speller", prepare.Speller.learn))
    monkeypatch.setattr(resume, "Corpus", counted("corpus", resume.Corpus))
    lm = tasks.task("lm")
    monkeypatch.setattr(type(lm), "store", counted("store", type(lm).store))
    settings = ["tokens.kind=word", "tokens.vocab_size=9", "model.width=4", "model.embedding=4"]
    segue.compare("book.txt", ["rnn_lm"], budget="3", seeds=3, folds=2, out="c", settings=settings)
    assert made == {"tokenizer": 2, "speller": 2, "store": 2, "corpus": 2}
    for seed, fold in ((0, 2), (2, 1)):
        shared = Path(f"c/rnn_lm-seed{seed}-fold{fold}")
        again = segue.train(segue.recipe.read_recipe(shared / "recipe.toml"), out="alone" + shared.name)
        names = ["model.safetensors", "tokenizer.json", "speller.json", "ledger.json", "recipe.toml"]
        for name in names:
            assert (shared / name).read_bytes() == (again.path / name).read_bytes(), name
        figure = folder.read_json(shared / "result.json")["bits_per_byte"]
        assert figure == folder.read_json(again.path / "result.json")["bits_per_byte"]


def test_labels_of_every_kind_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = [("good film", "fine"), ("dull film", "slow")] * 60
    Path("numbers.tsv").write_text("".join(f"{i % 7}.5\t{text} {i % 7}\n" for i, (text, _) in enumerate(words)))
    Path("several.tsv").write_text("".join(f"{label},film\t{text}\n" for text, label in words))
    command = ["compare", "numbers.tsv", "data.label=number", "--models", "bow,cbow", "--budget", "4", "--folds", "2"]
    assert main([*command, "--out", "n"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "mean squared error" in said
    result = folder.read_json(Path("n/result.json"))
    first, second = result["rows"]
    assert result["figure"] == "mean_squared_error"
    assert first["mean_squared_error"] <= second["mean_squared_error"] and "pearson" in first
    assert first["this_run"] and "accuracy" not in first
    page = Path("n/report.html").read_text(encoding="utf-8")
    assert "lower is better" in page and "on the validation data" in page
    assert main(["compare", "several.tsv", "data.label=classes", "--models", "bow", "--budget", "4"]) == 0
    assert main(["runs", "n"]) == 0
    assert "mean squared error" in capsys.readouterr().out


def test_the_page_says_who_did_not_take_all_its_time() -> None:
    Path("rows.tsv").write_text("".join(f"{'ab'[i % 2]}\tthe {'good' if i % 3 else 'dull'} film\n" for i in range(80)))
    patient = ["train.patience=1", "train.every=5"]
    result = segue.compare("rows.tsv", ["bow"], budget="400", out="c", settings=patient)
    assert result["rows"][0]["steps"] < 400
    said = Path("c/report.html").read_text(encoding="utf-8")
    assert "Ended before its time, as more would not have helped: bow." in said


def test_the_ladder_leaves_out_models_of_other_labels_and_says_so() -> None:
    classify = tasks.task("classify")
    assert _ladder(classify, "pydoc", []) == (classify.ladder, [])
    names, said = _ladder(classify, "pydoc", ["train.rate=1", "data.label=number"])
    assert "dan" in names and "nbsvm" not in names
    assert said == ["Left out, since they learn one class a row: naive_bayes, nbsvm, ngram_bag."]


def test_the_ladder_of_sounds_and_pictures_ends_in_their_own_recipes() -> None:
    pairs = tasks.task("seq2seq")
    assert _ladder(pairs, "clauses", []) == (pairs.ladder, [])
    for data, recipe in (("tones", "speech"), ("shapes", "captions")):
        names, said = _ladder(pairs, data, [])
        assert names[-2:] == (f"rnn_seq2seq/{recipe}", f"transformer/{recipe}") and said == []
        assert "rnn_seq2seq/fixed" not in names  # word t of a target is not at place t of a sound
        assert {load_recipe(name, [], {"data": {"path": data}}).data.path for name in names} == {data}


def test_seeds_are_averaged_in_every_column() -> None:
    sizes = [2048.0] * 30 + [52]
    seeds = [scored([2000] * 30 + [100], sizes, 21), scored([3000 + i for i in range(30)] + [100], sizes, 42)]
    mean = mean_of(seeds)
    assert mean.result["bits_per_byte"] == pytest.approx((2500 * 30 + 217.5 + 100) / sum(sizes))
    assert mean.result["spelling_bits_per_byte"] == pytest.approx(31.5 / sum(sizes))
    assert mean.result["bytes"] == sum(sizes)
    assert mean.result["bits_per_byte_ci"] == list(interval(seeds))
    low, high = mean.result["bits_per_byte_ci"]
    assert low < seeds[0].result["bits_per_byte"] < seeds[1].result["bits_per_byte"] < high  # one degree of freedom


@pytest.mark.parametrize(
    ("name", "content", "task"),
    [
        ("a.txt", "the\tcow\n\nruns\n", "lm"),
        ("a.tsv", "good\ta fine film\nbad\ta dull one\n", "classify"),
        ("a.tsv", "good\tfine\n\nbad\ta dull one\n", "classify"),
        ("a.tsv", "the\tD\ncow\tN\n\nruns\tV\n", "tag"),
        ("a.tsv", "source\ttarget\nthe cow\tdie Kuh\n", "seq2seq"),
        ("a.csv", "label,text\ngood,fine\n", "classify"),
        ("a.conllu", "1\tthe\n", "tag"),
        ("a.jsonl", '{"text": "a fine film", "label": 1}\n', "classify"),
        ("a.jsonl", '{"words": ["a"], "tags": ["D"]}\n', "tag"),
        ("a.jsonl", '{"source": "a", "target": "b"}\n', "seq2seq"),
        ("a.jsonl", '{"text": "a fine film"}\n', "lm"),
        ("a.jsonl", "not json\n", "lm"),
    ],
)
def test_the_task_is_told_from_the_data(name: str, content: str, task: str) -> None:
    Path(name).write_text(content)
    assert task_of(name, ()) == task
    Path(f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    assert task_of(f"{name}.gz", ()) == task


def test_the_task_of_a_folder_is_that_of_its_files() -> None:
    for place, content in (("rows", "good\ta fine film\n"), ("tags", "the\tD\ncow\tN\n\nruns\tV\n")):
        Path(place).mkdir()
        Path(place, "a.png").write_bytes(b"\x89PNG")
        Path(place, "b.tsv").touch()
        Path(place, "c.tsv").write_text(content)
    assert task_of("rows", ()) == task_of("rows/*.tsv", ()) == "classify"
    assert task_of("tags", ()) == task_of("tags/*.tsv", ()) == "tag"
    Path("rows", "d.csv").write_text("label,text\ngood,fine\n")
    assert task_of("rows", ()) == task_of("rows/*", ()) == "classify"
    Path("rows", "book.txt").write_text("Once upon a time.\n")
    assert task_of("rows", ()) == "lm"  # they do not agree
    Path("pydoc").mkdir()
    Path("pydoc", "a.tsv").write_text("good\ta fine film\n")
    assert task_of("pydoc", ()) == "lm"  # the corpus of that name


def test_the_task_of_what_cannot_be_read() -> None:
    Path("a.tsv").write_bytes(b"\xff\xfe\xfa")
    assert task_of("a.tsv", ()) == task_of("missing.tsv", ()) == "classify"
    assert task_of("a.tsv,b.tsv", ()) == "seq2seq"


def test_a_label_that_plainly_stands_second_is_read_there_unless_columns_are_named() -> None:
    rows = [f"film number {i} is {'fine' if i % 2 else 'dull'}\t{i % 2}" for i in range(60)]
    Path("reviews.tsv").write_text("\n".join(rows))
    with pytest.raises(segue.InputError, match=r"60 different labels.*data\.columns=2,1"):
        segue.train("bow", "reviews.tsv", "r", {"data.columns": "1,2"})
    assert not Path("r").exists()
    Path("named.tsv").write_text("\n".join(["review\tgood", *rows]))
    with pytest.raises(segue.InputError, match=r"data\.columns=good,review reads them the other way round"):
        segue.train("bow", "named.tsv", "r", {"data.columns": "review,good"})
    Path("stars.tsv").write_text("\n".join(f"{i / 7:.2f}\ta film of the year {i}" for i in range(60)))
    with pytest.raises(segue.InputError, match=r"60 different labels.*data\.label=number"):
        segue.train("bow", "stars.tsv", "r")
    run = segue.train("bow", "reviews.tsv", "r", {"train.steps": 2})
    assert run.labels == ("0", "1") and any("(data.columns=2,1)" in note for note in run.ledger_summary())


def test_a_tag_of_the_test_file_that_training_lacks_is_said_before_training() -> None:
    Path("train.tsv").write_text("the\tD\ncow\tN\n\n" * 20)
    Path("test.tsv").write_text("the\tD\n\nruns\tV\n")
    with pytest.raises(segue.InputError, match=r"test\.tsv:3: the label 'V' is not in the training data"):
        segue.train("window_tagger", "train.tsv", "r", {"data.test": "test.tsv", "train.steps": 2})
    assert not Path("r").exists()


def test_a_figure_on_a_part_of_the_validation_text_says_so() -> None:
    tiny = {"model.width": 4, "model.embedding": 4, "train.steps": 2, "data.validation": 0.5}
    whole, part = (segue.train("rnn_lm", "book.txt", f"r{n}", tiny | {"train.validate_tokens": n}) for n in (9999, 99))
    assert "tokens" not in whole.evaluate()["way"]
    assert part.evaluate()["tokens"] == 99 and "the first 99 tokens" in part.evaluate()["way"]


# Nothing is lost


TINY = 'kind = "rnn_lm"\nname = "{}"\n[model]\nwidth = 4\nembedding = 4\n[batches]\nsize = 2\nlength = 16\n'


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/..", "/tmp/x", "a//b", "a\\\\b", "a\\u0000b", "a\\nb", ".git", " a", "report.html"],
)
def test_a_name_that_is_no_folder_of_its_own_is_refused_before_anything_is_written(name: str) -> None:
    """A recipe called `..` once wrote above --out, and its undo deleted there."""
    Path("src").mkdir()
    Path("src/a.py").write_text("code")
    Path("mine.toml").write_text(f'kind = "ngram"\nname = "{name}"\n')
    before = sorted(Path.cwd().rglob("*"))
    for call in (lambda: segue.compare("book.txt", ["mine.toml"], out="results"), lambda: segue.train("mine.toml")):
        with pytest.raises(segue.InputError, match=r"mine\.toml: name = .* cannot be the name of a model"):
            call()
    assert sorted(Path.cwd().rglob("*")) == before


def test_two_models_of_one_folder_are_refused_before_anything_is_trained() -> None:
    for name in ("ngram-bigram", "NGRAM-Bigram"):
        with pytest.raises(segue.InputError, match=r"ngram/bigram and .* would both be in"):
            segue.compare("book.txt", ["ngram/bigram", toml(name, "")], out="c")
    assert not Path("c").exists()


@pytest.mark.parametrize("late", ['[train]\ninit = "runs/none"', '[model]\nembeddings = "none.bin"'])
def test_what_a_later_model_names_is_looked_for_before_the_first_is_trained(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("late.toml").write_text(f'kind = "rnn_lm"\nname = "late"\n{late}\n')
    monkeypatch.setattr("segue.runs.experiments.compare.train", None)
    with pytest.raises(segue.InputError, match="none"):
        segue.compare("book.txt", ["ngram", "late.toml"], out="c")
    assert not Path("c").exists()


def test_a_model_that_fails_late_takes_no_finished_run_along(capsys: pytest.CaptureFixture[str]) -> None:
    Path("late.toml").write_text(TINY.format("late") + '[train]\nfreeze = "nothing"\n')
    command = ["compare", "book.txt", "--models", "ngram,late.toml", "--budget", "2", "--out", "c"]
    assert main(command) == 1
    said = capsys.readouterr()
    assert "late failed: train.freeze=nothing" in " ".join(said.out.split())
    assert "segue compare --out c --resume" in said.err
    result = folder.read_json(Path("c/result.json"))
    assert [row["model"] for row in result["rows"]] == ["ngram"] and list(result["failed"]) == ["late"]
    assert "late could not be trained: train.freeze" in Path("c/report.html").read_text(encoding="utf-8")
    written = Path("c/ngram/model.safetensors").stat().st_mtime_ns
    Path("late.toml").write_text(TINY.format("late"))  # mended
    assert main(["compare", "--out", "c", "--resume"]) == 0
    assert len(folder.read_json(Path("c/result.json"))["rows"]) == 2
    assert Path("c/ngram/model.safetensors").stat().st_mtime_ns == written


def test_a_comparison_that_was_interrupted_goes_on_to_the_same_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from segue.training.log import Log

    Path("tiny.toml").write_text(TINY.format("tiny") + "[train]\nevery = 2\n")
    command = ["compare", "book.txt", "--models", "ngram,tiny.toml", "--budget", "6", "--seeds", "2"]
    assert main([*command, "--out", "whole"]) == 0
    write, stop = Log.write, [True]

    def interrupted(log: Log, record: Any) -> None:
        write(log, record)
        if record.step == 4 and record.kind == "validation" and stop:
            stop.clear()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Log, "write", interrupted)
        assert main([*command, "--out", "c"]) == 1
    assert "segue compare --out c --resume" in capsys.readouterr().err
    assert Path("c/ngram-seed0/result.json").exists() and not Path("c/result.json").exists()
    assert main(["compare", "--out", "c", "--resume"]) == 0
    whole, again = (folder.read_json(Path(out, "result.json"))["rows"] for out in ("whole", "c"))
    timed = ("train_seconds", "tokens_per_second", "run")
    for one, other in zip(whole, again, strict=True):
        assert {k: v for k, v in one.items() if k not in timed} == {k: v for k, v in other.items() if k not in timed}
    for seed in (0, 1):
        name = f"tiny-seed{seed}/model.safetensors"
        assert Path("whole", name).read_bytes() == Path("c", name).read_bytes()
    assert not list(Path("c").glob(".ids-*"))


def test_a_comparison_goes_on_only_as_it_was_begun() -> None:
    segue.compare("book.txt", ["ngram/unigram"], budget="3", out="c", settings=["data.test=0.3"])
    for given in ({"budget": "4"}, {"models": ["ngram"]}, {"seeds": 2}, {"folds": 2}, {"settings": ["data.test=0.4"]}):
        with pytest.raises(segue.InputError, match=r"was begun with .* Go on with it as it was"):
            segue.compare(out="c", resume=True, **given)  # type: ignore[arg-type]
    with pytest.raises(segue.InputError, match="holds a comparison"):
        segue.compare("book.txt", ["ngram/unigram"], out="c")
    again = segue.compare("book.txt", ["ngram/unigram"], budget="3", out="c", resume=True)
    assert again["rows"][0]["model"] == "ngram/unigram"
    Path("book.txt").write_text(TEXT + "more\n")
    with pytest.raises(segue.InputError, match=r"book\.txt has changed"):
        segue.compare(out="c", resume=True)
    assert Path("c/ngram-unigram/result.json").exists()
    for damage in ("[]", "{}", '{"task": []}', "null"):
        Path("c/comparison.json").write_text(damage)
        with pytest.raises(segue.InputError, match=r"comparison\.json is damaged"):
            segue.compare(out="c", resume=True)


def test_a_second_comparison_with_the_same_out_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once once deleted each other's folder."""
    from segue.runs.experiments import compare as module

    train, found = module.train, []

    def second(*given: Any, **more: Any) -> Any:
        before = sorted(Path("c").rglob("*"))
        with pytest.raises(segue.InputError, match="Another process is writing to c"):
            segue.compare("book.txt", ["ngram/bigram"], out="c")
        assert sorted(Path("c").rglob("*")) == before
        found.append(True)
        return train(*given, **more)

    monkeypatch.setattr(module, "train", second)
    assert segue.compare("book.txt", ["ngram/unigram"], out="c")["rows"] and found == [True]


def test_two_comparisons_without_out_take_two_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    from segue.runs.experiments import compare as module

    corpus, others = module.Corpus, []

    def begun(*given: Any) -> Any:
        if not others:
            others.append(None)
            others[0] = segue.compare("book.txt", ["ngram/bigram"])
        return corpus(*given)

    monkeypatch.setattr(module, "Corpus", begun)
    first = segue.compare("book.txt", ["ngram/unigram"])
    assert {first["report"], others[0]["report"]} == {f"runs/compare-book{n}/report.html" for n in ("", "-2")}
    assert all(len(list(Path(one["report"]).parent.glob("*/result.json"))) == 1 for one in (first, others[0]))


def test_undo_removes_what_a_run_wrote_and_nothing_else() -> None:
    place = Path("r")
    Path("elsewhere").mkdir()
    Path("elsewhere/kept").touch()
    (place / "checkpoints").mkdir(parents=True)
    (place / "thesis.txt").touch()
    (place / "report.html").touch()
    before = folder.entries(place)
    (place / "recipe.toml").touch()
    (place / "notes").mkdir()
    (place / "store").symlink_to(Path("elsewhere").resolve())
    (place / ".recipe.toml.writing").touch()
    folder.undo(place, before, [place])
    assert folder.entries(place) == {"checkpoints", "thesis.txt", "report.html", "notes"}
    assert Path("elsewhere/kept").exists()


def test_a_star_leaves_out_recipes_that_are_made_for_one_corpus() -> None:
    """One of them would make all others read the text in its way."""
    names, said = _expanded(["ngram/*"]), _own_ways(["ngram/*"])
    assert "ngram/bigram" in names and "ngram/ptb" not in names
    assert len(said) == 1 and "ngram/ptb" in said[0]
    assert _expanded(["ngram/ptb", "ngram/*"])[0] == "ngram/ptb"
    assert _own_ways(["ngram/ptb", "ngram/bigram"]) == []
