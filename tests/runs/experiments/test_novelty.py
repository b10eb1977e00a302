"""How new a text is: against Python's `in` over the lines that a run was trained on."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import segue
from segue.cli import main
from segue.errors import InputError
from segue.look import terminal
from segue.runs.experiments.novelty import LEAST, SIZES, Figures, Match, Novelty, Report, novelty
from segue.runs.run import Run

WORDS = ["the", "a", "cow", "dog", "eats", "sees", "grass", "hay", "green", "big", "small", "barn", "runs", "naïve"]


def written(lines: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) + "." for _ in range(lines)]


LINES = written(150)
TRAIN, HELD = LINES[:120], LINES[120:]


def train(place: Path, kind: str = "char", unit: str = "line", *more: str, model: str = "ngram") -> Run:
    """A run over LINES that holds out the last fifth."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "book.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    words = [f"data.unit={unit}", f"tokens.kind={kind}", "data.validation=0.2", *more]
    return segue.train(model, place / "book.txt", place / "run", words)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Characters, a line a unit."""
    return train(tmp_path_factory.mktemp("lines"))


# Against looking everywhere


def seen(part: str) -> bool:
    return any(part in line for line in TRAIN)


def spans_of(prompt: str, text: str) -> list[tuple[int, int]]:
    """Every part of prompt and text together that a training line has, and that ends in the text."""
    whole, first = prompt + text, len(prompt)
    ends = range(first + 1, len(whole) + 1)
    return [(i, j) for j in ends for i in range(j) if seen(whole[i:j])]


def copied_in(prompt: str, text: str) -> list[bool]:
    """Of every character of the text, whether it is in a run that is long enough."""
    marks = [False] * len(text)
    for begin, end in spans_of(prompt, text):
        if len("".join((prompt + text)[begin:end].split())) >= LEAST:
            for i in range(max(0, begin - len(prompt)), end - len(prompt)):
                marks[i] = True
    return marks


def marked(one: Novelty, text: str) -> list[bool]:
    marks = [False] * len(text)
    for begin, end in one.copied:
        assert 0 <= begin < end <= len(text)
        assert not any(marks[max(0, begin - 1) : end]), "spans that touch are one"
        marks[begin:end] = [True] * (end - begin)
    return marks


def new_share(prompt: str, text: str, n: int) -> float | None:
    whole = prompt + text
    grams = [whole[j - n : j] for j in range(len(prompt) + 1, len(whole) + 1) if j >= n]
    return sum(not seen(gram) for gram in grams) / len(grams) if grams else None


def pieces() -> st.SearchStrategy[str]:
    """Texts patched together from what training lines hold, so that there is something to find."""
    cut = st.tuples(st.sampled_from(TRAIN), st.integers(0, 60), st.integers(0, 60))
    return st.lists(cut.map(lambda part: part[0][min(part[1:]) : max(part[1:])]), max_size=3).map("".join)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(prompt=pieces(), text=pieces())
def test_it_says_what_looking_everywhere_says(run: Run, prompt: str, text: str) -> None:
    (one,) = novelty(run, [text], prompt).texts
    assert marked(one, text) == copied_in(prompt, text)
    shares = {n: new_share(prompt, text, n) for n in SIZES}
    assert one.figures.new == pytest.approx({n: share for n, share in shares.items() if share is not None})
    assert one.figures.tokens == len(text)
    assert one.figures.copied == pytest.approx(sum(copied_in(prompt, text)) / max(1, len(text)))
    longest = max((min(j - i, j - len(prompt)) for i, j in spans_of(prompt, text)), default=0)
    assert one.figures.longest == longest
    assert (one.longest.tokens if one.longest else 0) == longest


def test_texts_together_are_counted_together(run: Run) -> None:
    texts = [TRAIN[0], "zzzz" + TRAIN[1][:9], HELD[0]]
    report = novelty(run, texts, "the ")
    alone = [novelty(run, [text], "the ").texts[0] for text in texts]
    assert report.texts == tuple(alone)
    weights = [one.figures.tokens for one in alone]
    assert report.written.tokens == sum(weights)
    assert report.written.longest == pytest.approx(sum(one.figures.longest for one in alone) / 3)
    for n in SIZES[:4]:  # the prompt is long enough for every written token to end an n-gram
        together = sum(w * one.figures.new[n] for w, one in zip(weights, alone, strict=True)) / sum(weights)
        assert report.written.new[n] == pytest.approx(together)


# What counts


def test_only_what_was_written_is_marked_and_counted(run: Run) -> None:
    line = max(TRAIN, key=len)
    (one,) = novelty(run, [line[30:40] + "zz"], line[:30]).texts
    assert one.copied == ((0, 10),)
    assert one.figures.tokens == 12 and one.figures.copied == pytest.approx(10 / 12)
    assert one.longest is not None
    assert (one.longest.text, one.longest.tokens, one.longest.prompt_tokens) == (line[:40], 10, 30)


def test_the_best_run_is_the_one_with_most_written(run: Run) -> None:
    """Not one that stands in the prompt almost whole."""
    line = max(TRAIN, key=len)
    (one,) = novelty(run, [line[40] + "zz" + TRAIN[0][:12]], line[:40]).texts
    assert one.longest is not None and one.longest.text.startswith(TRAIN[0][:12])


def test_no_run_goes_over_the_end_of_a_unit(run: Run) -> None:
    over = TRAIN[3] + TRAIN[4]
    (one,) = novelty(run, [over]).texts
    assert one.longest is not None and one.longest.tokens < len(over)
    assert one.longest.text in (TRAIN[3], TRAIN[4]) or not seen(one.longest.text + over[-1])


def test_blanks_do_not_make_a_run_long(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(f"a{' ' * 80}b\n" * 20)
    run = segue.train("ngram", tmp_path / "book.txt", tmp_path / "run", ["data.unit=line", "tokens.kind=char"])
    (one,) = novelty(run, [f"a{' ' * 80}b"]).texts
    assert one.copied == () and one.figures.longest == 82


@pytest.mark.parametrize("unit", ["line", "paragraph", "document"])
def test_where_the_longest_match_stands(unit: str, tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    rows = [row for i, line in enumerate(LINES) for row in ([line, ""] if i % 4 == 0 else [line])]
    path.write_text("\n".join(rows), encoding="utf-8")
    run = segue.train("ngram", path, tmp_path / "run", [f"data.unit={unit}", "data.validation=0.1"])
    line = max(TRAIN, key=len)
    (one,) = novelty(run, ["zz" + line[3:]]).texts
    assert one.longest == Match(line[3:], len(line) - 3, 0, 1, str(path), rows.index(line) + 1)


def test_several_places_and_several_texts(run: Run) -> None:
    report = novelty(run, ["☃☃", TRAIN[5], "the"])
    nothing, line, word = (one.longest for one in report.texts)
    assert nothing is None
    assert line is not None and line.line == LINES.index(TRAIN[5]) + 1
    assert word is not None and word.times == sum(line.count("the") for line in TRAIN)
    assert word.line == 1 + next(i for i, line in enumerate(TRAIN) if "the" in line)


def test_joined_lines_have_no_numbers(tmp_path: Path) -> None:
    run = train(tmp_path, "word", "document", "data.canonical=true", "tokens.min_count=1")
    (one,) = novelty(run, [TRAIN[9]]).texts
    assert one.longest is not None and one.longest.line == 0
    assert one.longest.path == str(tmp_path / "book.txt")


def test_what_has_no_token_is_new(tmp_path: Path) -> None:
    """Two words that were both too rare are not the same word."""
    (tmp_path / "book.txt").write_text("the cow eats grass\n" * 30 + "the unicorn eats grass\n")
    words = ["data.unit=line", "tokens.kind=word", "data.validation=0", "tokens.min_count=2"]
    run = segue.train("ngram", tmp_path / "book.txt", tmp_path / "run", words)
    assert run.unknown("the unicorn eats") and run.unknown("the dragon eats")
    report = novelty(run, ["the dragon eats"])
    assert report.written.new == pytest.approx({1: 1 / 3, 2: 1.0, 3: 1.0})
    assert report.held_out is None


@pytest.mark.parametrize("kind", ["char", "byte", "space", "word", "bpe", "unigram", "wordpiece"])
def test_all_kinds_of_tokens_find_a_copy(kind: str, tmp_path: Path) -> None:
    small = {"bpe": 300, "unigram": 300, "wordpiece": 100}.get(kind, 0)
    run = train(tmp_path, kind, "line", f"tokens.vocab_size={small}")
    line = max((line for line in TRAIN if "naïve" in line), key=len)
    report = novelty(run, [line, ""])
    copy, empty = report.texts
    assert copy.copied == ((0, len(line)),) and copy.figures.copied == 1.0
    assert set(copy.figures.new.values()) == {0.0}
    assert copy.longest is not None and copy.longest.text == line
    assert copy.longest.tokens == copy.figures.tokens == len(run.tokenizer.encode(line))
    assert empty == Novelty((), None, Figures(0, 0.0, 0.0, {}))
    head, tail = line[:12], line[12:]
    (after,) = novelty(run, [tail], head).texts
    assert after.copied[-1][1] == len(tail) and after.figures.copied <= 1.0


def test_an_estimate_by_counting_writes_only_what_it_has_seen(tmp_path: Path) -> None:
    """A trigram without smoothing has no new trigrams to write; one that has learnt nothing has."""
    run = train(tmp_path / "a", "char", "line", "model.order=3", "model.smoothing=maximum_likelihood")
    new = novelty(run, run.generate("", n=20, max_tokens=100, seed=1)).written.new
    assert new[1] == new[2] == new[3] == 0.0 and new[4] > 0 and new[10] > 0.5
    run = train(tmp_path / "b", "char", "line", "train.steps=1", model="rnn_lm")
    assert novelty(run, [run.generate("", max_tokens=200, seed=1)]).written.new[3] > 0.5


# Text that is new indeed


def test_held_out_text_goes_the_same_way(run: Run) -> None:
    longest = max(map(len, HELD))
    assert novelty(run, ["z" * longest]).held_out == novelty(run, HELD).written


def test_held_out_text_is_cut_to_the_length_of_what_was_written(run: Run) -> None:
    cut = [line[begin : begin + 10] for line in HELD for begin in range(0, len(line), 10)]
    assert novelty(run, ["z" * 10, "z"]).held_out == novelty(run, cut).written


def test_the_test_split_is_taken_where_there_is_one(tmp_path: Path) -> None:
    run = train(tmp_path, "char", "line", "data.validation=0", "data.test=0.2")
    assert novelty(run, ["z" * 200]).held_out == novelty(run, HELD).written


def test_nothing_written_or_nothing_held_out_has_no_held_out_text(run: Run, tmp_path: Path) -> None:
    assert novelty(run, [""]).held_out is None
    assert novelty(run, []) == Report(LEAST, (), Figures(0, 0.0, 0.0, {}), None)
    assert novelty(train(tmp_path, "char", "line", "data.validation=0"), ["the"]).held_out is None


# What can go wrong, and what is said


def test_changed_or_missing_training_text_is_refused(tmp_path: Path) -> None:
    run = train(tmp_path)
    book = tmp_path / "book.txt"
    book.write_text(book.read_text() + "one more\n")
    with pytest.raises(InputError, match=r"book\.txt has changed since the run"):
        novelty(run, ["the"])
    book.unlink()
    with pytest.raises(InputError, match=r"book\.txt"):
        novelty(run, ["the"])


def test_only_language_models_write(tmp_path: Path) -> None:
    rows = [("good", "a fine film"), ("bad", "a dull film")] * 10
    run = segue.train("bow", rows, tmp_path / "run", ["train.steps=1"])
    with pytest.raises(InputError, match="made for classify"):
        novelty(run, ["a film"])


def test_an_imported_model_has_no_training_text(run: Run, tmp_path: Path) -> None:
    assert main(["export", str(run.path), "--to", "arpa", str(tmp_path / "a.arpa")]) == 0
    assert main(["import", str(tmp_path / "a.arpa"), "--out", str(tmp_path / "again")]) == 0
    with pytest.raises(InputError, match=r"imported from .*a\.arpa"):
        novelty(segue.load(tmp_path / "again"), ["the"])


def test_progress_is_told(run: Run) -> None:
    said: list[tuple[str, float]] = []
    novelty(run, ["the"], "", lambda what, share, note="": said.append((what, share)))
    for what in ("loading", "encoding", "sorting"):
        shares = [share for words, share in said if words.startswith(what)]
        assert shares == sorted(shares) and shares[-1] == 1.0


def test_text_that_another_run_learnt_is_mentioned(run: Run, tmp_path: Path) -> None:
    first = train(tmp_path / "a", "char", "line", "train.steps=1", model="rnn_lm")
    again = train(tmp_path / "b", "char", "line", "train.steps=1", f"train.init={first.path}", model="rnn_lm")
    said: list[str] = []
    novelty(again, ["the"], "", lambda what, share, note="": said.append(what))
    assert any(str(first.path) in what for what in said)


# The command line


def report_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    code = main(["generate", *words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def test_generate_says_how_new_its_texts_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path, "char", "line", "model.order=25", "model.smoothing=maximum_likelihood")  # it copies
    words = [str(run.path), "--prompt", "the ", "--max-tokens", "80", "--seed", "3", "--temperature", "1", "-n", "6"]
    plain = json.loads(report_of([*words, "--json"], capsys))
    said = json.loads(report_of([*words, "--novelty", "--json"], capsys))
    assert "novelty" not in plain and said["texts"] == plain["texts"]
    assert said["novelty"]["least"] == LEAST and len(said["novelty"]["texts"]) == 6
    assert set(said["novelty"]["written"]["new"]) <= {str(n) for n in SIZES}
    shown = report_of([*words, "--novelty"], capsys)
    pairs = zip(said["texts"], said["novelty"]["texts"], strict=True)
    copied = [(text, span) for text, one in pairs for span in one["copied"]]
    assert copied, "the test needs something copied"
    for text, (begin, end) in copied:
        assert f"⟦{text[begin:end]}⟧" in shown
    for words_shown in (f"{LEAST} characters", "held-out text", "new 2-grams", "longest match (mean)", "book.txt:"):
        assert words_shown in shown
    assert "⟦" not in report_of(words, capsys)


def test_a_run_whose_text_has_changed_ends_in_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path)
    (tmp_path / "book.txt").write_text("something else\n" * 20)
    assert main(["generate", str(run.path), "--max-tokens", "5", "--novelty"]) == 2
    assert "has changed" in capsys.readouterr().err


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    file = io.StringIO()
    console: Any = Console(file=file, force_terminal=True, color_system="standard", width=80, highlight=False)
    monkeypatch.setattr(terminal, "_console", lambda: console)
    return file


def test_a_terminal_underlines(run: Run, screen: io.StringIO) -> None:
    line = max(TRAIN, key=len)
    terminal.print_novelty("zz [bold] ", [f"zz{line} zz"], novelty(run, [f"zz{line} zz"], "zz [bold] "))
    assert f"zz [bold] zz\x1b[4m{line}\x1b[0m zz\n" in screen.getvalue()
    assert "Underlined" in screen.getvalue()


def test_nothing_copied_is_said(run: Run, screen: io.StringIO) -> None:
    terminal.print_novelty("", ["zz"], novelty(run, ["zz"]))
    assert "Nothing is copied" in screen.getvalue() and "longest match," in screen.getvalue()
