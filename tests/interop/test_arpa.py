"""ARPA out and in: KenLM's own figures, a reader of five lines as the brute force, and files that are damaged."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.interop.arpa.numbers import write_number
from segue.interop.arpa.read import import_arpa
from segue.interop.arpa.write import export_arpa

LINES = {"data.unit": "line", "tokens.kind": "space", "data.validation": 0, "data.test": 0}

KENLM = {
    "<unk>": (-2.797936, 0.0),
    "</s>": (-0.9723632, 0.0),
    "w1": (-1.2119461, -0.4008031),
    "w2": (-1.369371, -0.32175344),
    "w3": (-1.4828491, -0.3024431),
    "w50": (-2.2682757, -0.100778766),
    "<s> w1": (-0.87402874, -0.17684747),
    "w1 w1": (-1.0632298, -0.11536764),
    "w1 w2": (-1.1021835, -0.2639884),
    "w2 </s>": (-0.71761036, 0.0),
    "w3 w36": (-2.256666, -0.030108217),
    "w2 w78": (-2.4632936, -0.030108217),
    "w55 w101": (-1.7242551, -0.030108217),
    "w17 w99": (-1.8747581, -0.030108217),
    "w5 w3 w10": (-1.3735554, 0.0),
    "w2 w4 </s>": (-0.6106724, 0.0),
    "<s> w60 w1": (-0.9297939, 0.0),
    "w86 w31 w177": (-1.0171982, 0.0),
    "w1 w3 w69": (-1.9600809, 0.0),
    "<s> w1 w1": (-1.225867, 0.0),
}
"""What `lmplz -o 3` (2025) writes of `made_up()`; <s> has the back-off -0.46701825."""


def made_up(lines: int = 300) -> str:
    """Lines of 1 to 8 words, the k-th drawn about in proportion to 1 / k."""
    state, rows = 1, []
    for row in range(lines):
        words = []
        for _ in range(1 + row % 8):
            state = (1103515245 * state + 12345) % 2**31
            words.append(f"w{int(200 ** (state / 2**31))}")
        rows.append(" ".join(words))
    return "\n".join(rows) + "\n"


TEXTS = ["w1 w2 w3", "w3 w77 never w1 w1", "", "w4 w4 w4 w4 w199", "never ever", *made_up(24).splitlines()]


def trained(folder: Path, text: str = "", **model: Any) -> segue.Run:
    path = folder / "text.txt"
    path.write_text(text or made_up(), encoding="utf-8")
    return segue.train("ngram", path, folder / "run", LINES | {f"model.{key}": value for key, value in model.items()})


def entries(path: Path) -> dict[str, tuple[float, float]]:
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if "\t" in line)
    return {row[1]: (float(row[0]), float(row[2]) if len(row) > 2 else 0.0) for row in rows}


def backed_off(model: dict[str, tuple[float, float]], words: list[str]) -> float:
    """log10 p of the last word after the others, as the format says."""
    name = " ".join(words)
    if name in model or len(words) == 1:
        return model.get(name, (-math.inf, 0.0))[0]
    return model.get(" ".join(words[:-1]), (0.0, 0.0))[1] + backed_off(model, words[1:])


def total(model: dict[str, tuple[float, float]], text: str, order: int) -> float:
    words = ["<s>", *(word if word in model else "<unk>" for word in text.split()), "</s>"]
    return sum(backed_off(model, words[max(0, i - order + 1) : i + 1]) for i in range(1, len(words)))


def log10s(run: segue.Run) -> list[float]:
    return [line.logprob / math.log(10) for line in run.score(TEXTS, end=True)]


# Out


def test_figures_of_kenlm(tmp_path: Path) -> None:
    export_arpa(trained(tmp_path, order=3).path, tmp_path / "a.arpa")
    written = entries(tmp_path / "a.arpa")
    for name, numbers in KENLM.items():
        assert written[name] == pytest.approx(numbers, abs=1e-4), name
    assert written["<s>"] == pytest.approx((-99, -0.46701825), abs=1e-4)
    head = (tmp_path / "a.arpa").read_text().split("\n")
    assert head[:6] == ["\\data\\", "ngram 1=176", "ngram 2=1018", "ngram 3=1258", "", "\\1-grams:"]
    assert [line.split("\t")[1] for line in head[6:9]] == ["<unk>", "<s>", "</s>"]
    assert head[-3:] == ["", "\\end\\", ""]


@pytest.mark.parametrize(
    "model",
    [
        {"order": 4, "smoothing": "interpolation"},
        {"order": 3, "smoothing": "interpolation", "buckets": "true"},
        {"order": 3, "smoothing": "witten_bell"},
        {"order": 2, "smoothing": "absolute_discounting"},
        {"order": 5, "smoothing": "kneser_ney"},
        {"order": 4, "smoothing": "modified_kneser_ney", "min_count": "1,2"},
        {"order": 1},
    ],
    ids=lambda model: "-".join(map(str, model.values())),
)
def test_the_file_says_what_the_run_says(model: dict[str, Any], tmp_path: Path) -> None:
    run = trained(tmp_path, **model)
    export_arpa(run.path, tmp_path / "a.arpa")
    written = entries(tmp_path / "a.arpa")
    assert log10s(run) == pytest.approx([total(written, text, model["order"]) for text in TEXTS], abs=1e-5)
    import_arpa(tmp_path / "a.arpa", tmp_path / "again")
    again = segue.load(tmp_path / "again")
    assert log10s(again) == pytest.approx(log10s(run), abs=1e-5)
    for context in ([0], [0, 2, 3], [5, 2], [1]):
        p = run.model.distribution(context)
        assert again.model.distribution(context) == pytest.approx(p, rel=1e-5)


@pytest.mark.parametrize("smoothing", ["maximum_likelihood", "add_alpha", "stupid_backoff"])
def test_what_has_no_backoff_form_is_refused(smoothing: str, tmp_path: Path) -> None:
    run = trained(tmp_path, order=2, smoothing=smoothing)
    with pytest.raises(segue.InputError, match=f"model.smoothing={smoothing}, which an ARPA file cannot say"):
        export_arpa(run.path, tmp_path / "a.arpa")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "text.txt"]


def test_other_models_are_refused(tmp_path: Path) -> None:
    rows = [("good", "a fine film"), ("bad", "a dull film")] * 4
    run = segue.train("bow", rows, tmp_path / "bow", {"train.steps": 1})
    with pytest.raises(segue.InputError, match="is a bow"):
        export_arpa(run.path, tmp_path / "a.arpa")


def test_words_that_arpa_cannot_spell_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "a <unk> b\n<s> a \\u{20} </s>\na\u00a0b c\\d\n"
    run = trained(tmp_path, text, order=2)
    assert main(["export", str(run.path), "--to", "arpa", str(tmp_path / "a.arpa")]) == 0
    assert "tokens are written otherwise" in capsys.readouterr().out
    names = set(entries(tmp_path / "a.arpa"))
    assert {"\\u{3c}unk>", "\\u{3c}s>", "\\u{3c}/s>", "\\u{5c}u{20}", "c\\d", "<s>", "</s>", "<unk>"} <= names
    import_arpa(tmp_path / "a.arpa", tmp_path / "again")
    again = segue.load(tmp_path / "again")
    for line in ("a <unk> b", "c\\d </s> <s>"):
        assert next(again.score([line], end=True)).logprob == pytest.approx(
            next(run.score([line], end=True)).logprob, abs=1e-5
        )
    assert again.unknown("a <unk> <s> </s>") == []


@pytest.mark.parametrize("kind", ["char", "word", "space"])
def test_the_tokens_come_back(tmp_path: Path, kind: str) -> None:
    run = segue.train("ngram", "pydoc", tmp_path / "run", {"tokens.kind": kind, "model.order": 3})
    export_arpa(run.path, tmp_path / "a.arpa")
    import_arpa(tmp_path / "a.arpa", tmp_path / "again")
    again = segue.load(tmp_path / "again")
    assert again.tokenizer.kind == kind
    for text in ("Return the value of the key", "a  b" if kind != "space" else "a b"):
        line, other = next(run.score([text], end=True)), next(again.score([text], end=True))
        assert other.tokens == line.tokens and other.logprob == pytest.approx(line.logprob, abs=1e-4)
    assert again.generate("The ", max_tokens=30, seed=1) == run.generate("The ", max_tokens=30, seed=1)


def test_pieces_of_words_are_told_of(tmp_path: Path) -> None:
    run = segue.train("ngram", ["the cow and the dog"] * 30, tmp_path / "run", {"tokens.kind": "bpe"})
    export_arpa(run.path, tmp_path / "a.arpa")
    assert any("pieces of words" in note for note in import_arpa(tmp_path / "a.arpa", tmp_path / "again"))


def test_characters(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the cat\nthat hat\n" * 5)
    settings = LINES | {"tokens.kind": "char", "model.order": 3}
    run = segue.train("ngram", path, tmp_path / "run", settings)
    export_arpa(run.path, tmp_path / "a.arpa.gz")
    written = gzip.decompress((tmp_path / "a.arpa.gz").read_bytes())
    (tmp_path / "a.arpa").write_bytes(written)
    spelt = " ".join("the hat").replace("   ", " \\u{20} ")
    assert total(entries(tmp_path / "a.arpa"), spelt, 3) * math.log(10) == pytest.approx(
        next(run.score(["the hat"], end=True)).logprob, abs=1e-5
    )
    import_arpa(tmp_path / "a.arpa.gz", tmp_path / "again")
    export_arpa(tmp_path / "again", tmp_path / "b.arpa")
    assert (tmp_path / "b.arpa").read_bytes() == written


def test_numbers_read_back_as_the_same_bits() -> None:
    draw = np.random.default_rng(0)
    values = np.concatenate([-(10.0 ** draw.uniform(-7, 2, 20_000)), [0, -99, -1, 0.5, -100, 3e7, -0.30103, 9.9999999]])
    out = np.zeros(64, np.uint8)
    for value in values.astype(np.float32):
        text = bytes(out[: write_number(out, 0, value)]).decode()
        assert np.float32(float(text)) == value
        assert len(text) <= 19


# In


ARPA = """made by hand

\\data\\
ngram 1=5
ngram 2=4
ngram 3=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.5
-0.7\t</s>
-0.4\tb\t-0.25
-0.6\ta\t0.125

\\2-grams:
-0.3\ta b\t-0.2
-0.5 <s> b
-0.2\tb </s>
-0.25\t<s> a\t-0.0625

\\3-grams:
-0.125\t<s> a b
-0.1\ta b </s>

\\end\\
"""


def imported(folder: Path, content: str | bytes) -> segue.Run:
    path = folder / "given.arpa"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    import_arpa(path, folder / "given")
    return segue.load(folder / "given")


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["unix", "dos"])
def test_numbers_by_hand(ends: str, tmp_path: Path) -> None:
    run = imported(tmp_path, ARPA.replace("\n", ends))
    by_hand = {
        "a b": [-0.25, -0.125, -0.1],
        "b": [-0.5, -0.2],
        "b b": [-0.5, -0.25 - 0.4, -0.2],
        "a a b": [-0.25, -0.0625 + 0.125 - 0.6, -0.3, -0.1],
        "x a": [-0.5 - 1.0, -0.6, 0.125 - 0.7],
        "": [-0.5 - 0.7],
    }
    for text, numbers in by_hand.items():
        assert np.array(next(run.score([text], end=True)).logprobs) / math.log(10) == pytest.approx(
            numbers, abs=1e-7
        ), text
    p = run.model.distribution([0, 3])  # after <s> a: </s>, <unk>, b, a
    assert np.log10(p) == pytest.approx([-0.0625 + 0.125 - 0.7, 0.0625 - 1.0, -0.125, 0.0625 - 0.6], abs=1e-7)


def test_there_and_back_is_the_same_file(tmp_path: Path) -> None:
    export_arpa(trained(tmp_path, order=4).path, tmp_path / "a.arpa")
    lines = (tmp_path / "a.arpa").read_text().split("\n")
    begin, end = lines.index("\\3-grams:") + 1, lines.index("\\4-grams:") - 1
    lines[begin:end] = reversed(lines[begin:end])
    imported(tmp_path, "\n".join(lines))
    export_arpa(tmp_path / "given", tmp_path / "b.arpa")
    assert (tmp_path / "b.arpa").read_bytes() == (tmp_path / "a.arpa").read_bytes()


def test_without_unk_an_unknown_word_has_probability_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.arpa"
    path.write_text(ARPA.replace("-1.0\t<unk>\n", "").replace("ngram 1=5", "ngram 1=4"))
    assert main(["import", str(path), "--out", str(tmp_path / "run")]) == 0
    assert "there is no <unk>" in capsys.readouterr().out
    run = segue.load(tmp_path / "run")
    assert next(run.score(["a x"], end=True)).logprob == -math.inf
    result = run.evaluate(["a b", "a x"])
    assert result["zero_probability_tokens"] == result["unknown_tokens"] == 1


def test_ngrams_that_no_text_has_are_left_out_and_said(tmp_path: Path) -> None:
    run = imported(tmp_path, ARPA.replace("2=4", "2=6").replace("-0.5 <s> b", "-0.5 <s> b\n-1 </s> a\n-1 a <s>"))
    assert "2 2-grams with <s> inside or </s> before the end are left out" in run.ledger_summary()[0]
    assert run.model.parameters_count == 4 + 4 + 2


def test_an_imported_run_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = imported(tmp_path, ARPA)
    path, text = str(run.path), tmp_path / "text.txt"
    text.write_text("a b\nb x\n")
    result = run.evaluate(str(text))
    nats = -sum(line.logprob for line in run.score(["a b", "b x"], end=True))
    assert result["perplexity"] == pytest.approx(math.exp(nats / 6))
    assert result["bits_per_byte"] == pytest.approx(sum(line.bits for line in run.score(["a b", "b x"], end=True)) / 8)
    assert result["spelling_bits_per_byte"] > 0
    assert run.generate("a", max_tokens=3, seed=1) == run.generate("a", max_tokens=3, seed=1)
    assert run.next_tokens("a", 1)[0][0] == "b"
    for words in (
        ["look", path, "a"],
        ["evaluate", path, str(text)],
        ["runs", str(tmp_path)],
        ["export", path, "--to", "zip", str(tmp_path / "a.zip")],
        ["import", str(tmp_path / "a.zip"), "--out", str(tmp_path / "b")],
    ):
        assert main(words) == 0, words
    assert next(segue.load(tmp_path / "b").score(["a b"], end=True)) == next(run.score(["a b"], end=True))
    assert main(["import", str(tmp_path / "given.arpa"), "--out", path]) == 2  # nothing is overwritten
    assert main(["export", path, "--to", "arpa", str(text)]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


DAMAGES = {
    "no data": (ARPA.replace("\\data\\", ""), 25, "there is no \\data\\ line"),
    "no counts": (ARPA.replace("ngram 1=5\nngram 2=4\nngram 3=2\n", ""), 5, "there are no counts"),
    "a count that is none": (ARPA.replace("2=4", "2=four"), 5, "'ngram 2=four'"),
    "orders out of turn": (ARPA.replace("ngram 2", "ngram 4"), 5, "the count of order 4"),
    "too few": (ARPA.replace("3=2", "3=3"), 24, "there are 2 3-grams before this line"),
    "too many": (ARPA.replace("3=2", "3=1"), 23, "'-0.1\\ta b </s>'"),
    "too few words": (ARPA.replace("1=5", "1=6"), 14, "there are 5 1-grams before this line"),
    "another section": (ARPA.replace("\\2-grams:", "\\3-grams:"), 15, "'\\3-grams:'"),
    "not a number": (ARPA.replace("-0.2\tb </s>", "-0.2x\tb </s>"), 18, "'-0.2x' is no number"),
    "not a number in order 1": (ARPA.replace("-0.4\tb", "nan\tb"), 12, "'nan' is no number"),
    "a back-off that is none": (ARPA.replace("a b\t-0.2", "a b\tzero"), 16, "'zero' is no number"),
    "a word that is not there": (ARPA.replace("\ta b </s>", "\ta c </s>"), 23, "'c' is not among the 1-grams"),
    "a line that is short": (ARPA.replace("-0.2\tb </s>", "-0.2\tb"), 18, "the line ends before 2 words"),
    "a line that is long": (ARPA.replace("a b\t-0.2", "a b\t-0.2 7"), 16, "'7' after the back-off"),
    "above 1": (ARPA.replace("-0.125", "0.125"), 22, "log10 p is above 0"),
    "above 1 in order 1": (ARPA.replace("-0.6", "0.6"), 13, "log10 p is 0.6"),
    "no context": (ARPA.replace("\t<s> a b", "\tb a b"), 22, "the context of this 3-gram"),
    "a word twice": (ARPA.replace("-0.6\ta", "-0.6\tb"), 13, "'b' stands twice"),
    "an n-gram twice": (ARPA.replace("-0.5 <s> b", "-0.5 a b"), 17, "this 2-gram stands twice"),
    "no start": (ARPA.replace("-99\t<s>", "-99\tS"), 13, "<s> is not among the 1-grams"),
    "no end": (ARPA.replace("\\end\\\n", ""), 24, "the file ends"),
    "more after the end": (ARPA + "more\n", 26, "'more' after \\end\\"),
    "cut": (ARPA.partition(" </s>\n\n\\end")[0], 23, "the line ends before 3 words"),
    "not UTF-8": (ARPA.encode().replace(b"\tb\t", b"\t\xff\t"), 12, "is not UTF-8"),
    "empty": ("", 0, "there is no \\data\\ line"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_refused_with_its_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, line, found = DAMAGES[name]
    path = tmp_path / "a.arpa"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["import", str(path), "--out", str(tmp_path / "new" / "run")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"a.arpa:{line}: " in said
    assert " ".join(found.split()) in said
    assert "Expected " in said
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_gzip_file(tmp_path: Path) -> None:
    path = tmp_path / "a.arpa.gz"
    path.write_bytes(gzip.compress(ARPA.encode())[:-30])
    with pytest.raises(segue.InputError, match=r"a\.arpa\.gz:\d+: the file is damaged"):
        import_arpa(path, tmp_path / "run")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(segue.InputError, match="There is no file"):
        import_arpa(tmp_path / "none.arpa", tmp_path / "run")


def test_an_imported_kind_cannot_be_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "book.txt").write_text("a b\nb a\n")
    assert main(["train", "arpa_lm", str(tmp_path / "book.txt"), "--out", str(tmp_path / "run")]) == 2
    assert "arpa_lm is not trained but imported: segue import FILE.arpa --out RUN" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    with pytest.raises(segue.InputError, match="is not trained but imported"):
        imported(tmp_path, ARPA).model.fit(None, None)


def test_an_imported_run_is_of_its_own_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = imported(tmp_path, ARPA)
    assert run.recipe.kind == run.recipe.name == "arpa_lm" and run.recipe.model.order == 3
    assert run.imported == str(tmp_path / "given.arpa")
    assert main(["explain", str(run.path)]) == 0
    assert "model.order" in capsys.readouterr().out
    assert main(["evaluate", str(run.path), str(tmp_path / "given.arpa"), "--adapt"]) == 2
    assert "arpa_lm cannot go on learning while it reads" in capsys.readouterr().err


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "x.arpa.gz", "wb", 1) as file:
        file.write(b"\\data\\\nngram 1=3\n\n\\1-grams:\n-1 " + b"a" * (2 << 20))
    with pytest.raises(InputError, match=r"x.arpa.gz:5: a line of more than 1,048,576 bytes"):
        import_arpa(tmp_path / "x.arpa.gz", tmp_path / "run")
