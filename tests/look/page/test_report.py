"""The page: whole, safe and self-contained for every task, and calm about what is missing or infinite."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.look.page import charts, markup, report, surprisal
from segue.look.page.charts import Axes, Line
from segue.look.page.curves import Curve
from segue.look.page.report import Entry, Page

VOID = {"meta", "link", "br", "hr", "img", "input"}
NASTY = "</script><script>alert(1)</script><b onclick='x()'>&amp; \"quoted\" \x00\x1b\x85\ud800 \u202e"
NOTHING = Curve([], [], [])


class Reader(HTMLParser):
    """Reads a page, checks that its tags are balanced, and keeps what a browser would act on."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]} at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def all(self, tag: str, kind: str = "") -> list[dict[str, str | None]]:
        return [a for t, a in self.tags if t == tag and kind in [*(a.get("class") or "").split(), ""]]


def read(page: Page) -> Reader:
    reader = Reader()
    reader.feed(report.render(page))
    reader.close()
    assert reader.open == []
    return reader


def entry(name: str, **changes: Any) -> Entry:
    plain = Entry(
        model=name,
        tokens="char",
        metrics={"bits per byte": 2.0},
        interval=(1.9, 2.1),
        differs="",
        parameters=1_234_567,
        train_seconds=12.3,
        tokens_per_second=45_678.9,
        steps=2000,
        curve=NOTHING,
        sample="",
        surprisal=[],
        confusion=None,
        examples=[],
        run=f"runs/{name}",
    )
    return replace(plain, **changes)


def page(judged: str = "rows", **changes: Any) -> Page:
    plain = Page(
        title="A comparison",
        judged=judged,
        summary=["What was done.", "Who won."],
        entries=[entry("ngram/kn5")],
        prompt="",
        best=None,
        ledger={},
        command="segue compare book.txt",
        version="0.1.0",
        date="1 May 2025",
    )
    return replace(plain, **changes)


def lm_page() -> Page:
    words = [("It", 3.0), (" follows", 9.5), ("\n", 1.0), ("", 0.2), (" never", math.inf)]
    curve = Curve([0.0, 10.0, 60.0], [0, 100, 600], [8.0, 3.0, 2.0])
    first = entry("rnn_lm/gru", curve=curve, sample="\nROMEO:\n  yes", surprisal=words, differs="yes (p < 0.001)")
    second = entry(
        "ngram/kn5",
        metrics={"bits per byte": 2.5},
        interval=(2.4, 2.6),
        curve=Curve([0.3], [1], [2.5]),
        sample="and so",
        surprisal=words,
    )
    files = [{"path": "book.txt", "bytes": 12345, "sha256": "ab" * 32}]
    ledger = {"files": files, "skipped": [], "units": {"train": 9}, "overlap": 0.25, "notes": ["a"] * 30, "cut": None}
    return page(entries=[first, second], prompt="It ", best=1.5, ledger=ledger)


def classify_page() -> Page:
    errors = [{"text": "good & bad", "label": "pos", "predicted": "neg"}, {"text": "other"}]
    best = entry(
        "bow/tfidf",
        metrics={"accuracy": 0.912, "macro F1": 0.9},
        interval=(0.9, 0.92),
        confusion=(["neg", "pos"], [[40, 3], [0, 57]]),
        examples=errors,
        differs="no (p = 0.31)",
    )
    return page(
        "classify", entries=[best, entry("cnn/kim", metrics={"accuracy": 0.8, "macro F1": None}, interval=None)]
    )


def tag_page() -> Page:
    errors = [{"sentence": "they walk", "gold": "PRON VERB", "predicted": "PRON NOUN"}]
    return page("words", entries=[entry("window/five", metrics={"accuracy": 0.97, "span F1": 0.9}, examples=errors)])


def seq2seq_page() -> Page:
    def made(output: str) -> list[dict[str, str]]:
        return [{"source": "the red house", "reference": "ta kas ruj", "output": output}]

    good = entry(
        "seq2seq/attention", metrics={"BLEU": 99.1, "chrF": 99.5}, interval=(98, 100), examples=made("ta kas ruj")
    )
    poor = entry("seq2seq/elman", metrics={"BLEU": 41.0, "chrF": 50.0}, interval=(39, 43), examples=made("ta ta"))
    return page(entries=[good, poor], best=100.0)


PAGES = {"lm": lm_page, "classify": classify_page, "tag": tag_page, "seq2seq": seq2seq_page}


@pytest.mark.parametrize("task", PAGES)
def test_page_is_whole_and_fetches_nothing(task: str, tmp_path: Path) -> None:
    report.write(PAGES[task](), tmp_path / "report.html")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    written = (tmp_path / "report.html").read_text(encoding="utf-8")
    for outside in ("http:", "https:", "//", "src=", "@import"):
        assert outside not in re.sub(r"^// .*$", "", written, flags=re.MULTILINE), outside
    assert all(use.startswith(("data:", "#")) for use in re.findall(r"url\(['\"]?([^)]*)", written))
    reader = read(PAGES[task]())
    links = [attrs["href"] for _, attrs in reader.tags if "href" in attrs]
    idents = {f"#{attrs['id']}" for _, attrs in reader.tags if "id" in attrs}
    assert links and all(link in idents or link == "data:," for link in links)
    for shown in PAGES[task]().entries:
        assert shown.model in reader.text


def test_write_replaces_and_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old", encoding="utf-8")
    with pytest.raises(TypeError):
        report.write(page(summary=[None]), target)
    assert target.read_text(encoding="utf-8") == "old"
    report.write(page(), target)
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert len(list(tmp_path.iterdir())) == 1


def nasty_page(task: str) -> Page:
    odd = entry(
        NASTY,
        tokens=NASTY,
        metrics={"bits per byte": 2.0, NASTY: 1.0},
        differs=NASTY,
        run=NASTY,
        note=NASTY,
        sample=NASTY,
        surprisal=[(NASTY, 1.0)],
        confusion=([NASTY, "b"], [[1, 2], [3, 4]]),
        curve=Curve([1.0, 2.0], [1, 2], [3.0, 2.0]),
        examples=[{NASTY: NASTY, "source": NASTY, "reference": NASTY, "output": NASTY}],
    )
    return Page(
        NASTY,
        task,
        [NASTY, NASTY],
        [odd, odd],
        NASTY,
        1.0,
        {NASTY: [NASTY, {NASTY: NASTY}], "x": [{NASTY: 1}]},
        NASTY,
        NASTY,
        NASTY,
    )


@pytest.mark.parametrize("task", PAGES)
def test_nothing_that_a_model_writes_is_obeyed(task: str) -> None:
    harmless = read(page()).tags
    reader = read(nasty_page(task))
    assert len(reader.all("script")) == len([tag for tag, _ in harmless if tag == "script"]) == 1
    assert not any(name.startswith("on") for _, attrs in reader.tags for name in attrs)
    assert "</script><script>alert(1)</script><b onclick='x()'>&amp; \"quoted\" ␀␛" in reader.text
    report.render(nasty_page(task)).encode("utf-8")


@given(st.text(st.characters(), max_size=40))
@settings(max_examples=200, deadline=None)
def test_text_round_trips_through_html(raw: str) -> None:
    reader = Reader()
    reader.feed(f'<p title="{markup.text(raw)}">{markup.text(raw)}</p>')
    reader.close()
    kept = re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "?", raw.replace("\r\n", "\n"))
    shown = "".join("?" if "\u2400" <= b <= "\u2421" or b == "\ufffd" else b for b in reader.text)
    assert shown == "".join("?" if "\u2400" <= b <= "\u2421" or b == "\ufffd" else b for b in kept)
    assert reader.tags[0][1]["title"] == reader.text


def test_samples_keep_their_line_ends_and_mark_the_prompt() -> None:
    written = report.render(lm_page())
    assert '<pre dir="auto">\n<b class="prompt">It </b>\nROMEO:\n  yes</pre>' in written


def test_table_says_what_is_known_and_nothing_else() -> None:
    reader = read(lm_page())
    figures = ("2.000", "1.900 – 2.100", "1.2 M", "12.3", "45.7 k", "2,000 steps")
    for said in (*figures, "yes", "p < 0.001", "from ngram/kn5"):
        assert said in reader.text, said
    assert "differs from next" not in read(page()).text and "better than next" not in read(page()).text
    better = read(replace(lm_page(), column="better than next")).text
    assert "this run differs from next" in reader.text and "another seed may turn it round" in reader.text
    assert "better than next" in better and "than ngram/kn5" in better and "another seed" not in better
    percent = read(classify_page()).text
    assert "91.2 %" in percent and "90.0 – 92.0" in percent and "–" in percent
    assert "higher is better" in percent and "lower is better" in reader.text


@pytest.mark.parametrize("entries", [[], [entry("a")], [entry("a", metrics={}, interval=None)]])
def test_empty_cases(entries: list[Entry]) -> None:
    reader = read(page(entries=entries, summary=[], command=""))
    assert not reader.all("svg", "chart")
    for heading in ("Learning curves", "Samples", "Surprisal", "Ledger", "Errors", "Confusions"):
        assert heading not in reader.text


def test_infinite_and_missing_figures() -> None:
    impossible = entry(
        "ngram/mle",
        metrics={"bits per byte": math.inf, "perplexity": None},
        interval=(math.inf, math.inf),
        curve=Curve([1.0], [1], [math.inf]),
        surprisal=[("a", math.inf)],
        tokens_per_second=math.nan,
    )
    written = report.render(page(entries=[impossible]))
    reader = read(page(entries=[impossible]))
    assert "∞" in reader.text and "–" in reader.text
    assert "∞ bits a word" in reader.text and not reader.all("svg", "chart")
    shown = re.sub(r'data-sort="[^"]*"', "", written).split("<body>")[1].split("<script>")[0]
    assert not re.search(r"\b(nan|inf)\b", shown)
    both = read(page(entries=[entry("a"), impossible]))
    assert "→" in both.text


def test_a_figure_without_an_interval_has_no_bar_and_the_page_says_how_much_data_one_takes() -> None:
    bare = report.render(page(entries=[entry("ngram", interval=None)]))
    assert "forest" not in bare.partition("<body>")[2]
    assert "too little held-out data for a 95 % interval, which takes 40,960 bytes" in bare
    two = report.render(page(entries=[entry("ngram", interval=None), entry("lstm", interval=None)]))
    assert 'class="forest"' in two and "with <" not in two and "too little held-out data" in two
    assert "too little held-out data" not in report.render(lm_page())


def test_perplexities_of_other_tokens_do_not_stand_side_by_side() -> None:
    figures: dict[str, float | None] = {"bits per byte": 2.0, "perplexity": 9.0}
    word, char = (entry(kind, tokens=kind, metrics=figures) for kind in ("word", "char"))
    assert 'data-label="perplexity"' in report.render(page(entries=[word, word]))
    assert 'data-label="perplexity"' not in report.render(page(entries=[word, char]))


def test_a_scale_of_shares_ends_at_100_per_cent() -> None:
    scale = charts.common_scale([(1.0, None), (0.99, (0.97, 1.0))], "accuracy", None)
    assert scale is not None and scale.high == 1.0 and max(scale.ticks()) <= 1.0
    assert charts.common_scale([(1.0, None)], "bits per byte", None).high > 1.0  # type: ignore[union-attr]


def test_confusion_matrix_or_the_commonest_confusions() -> None:
    small = charts.confusion_matrix(["neg", "pos"], [[40, 3], [0, 57]])
    assert 'title="neg taken for pos: 3 of 43">3<' in small and "·" in small
    labels = [f"label {i}" for i in range(30)]
    counts = [[0] * 30 for _ in range(30)]
    counts[4][7], counts[4][4], counts[9][1] = 8, 32, 2
    many = charts.confusion_matrix(labels, counts)
    assert many.index("label 4") < many.index("label 9") and "20.0 %" in many and "label 12" not in many


def test_translations_are_gathered_by_source() -> None:
    reader = read(seq2seq_page())
    assert reader.text.count("the red house") == 1
    assert reader.text.count("ta kas ruj") == 2 and "ta ta" in reader.text


@given(st.floats(-1e6, 1e6), st.floats(1e-4, 1e6), st.integers(1, 8))
@settings(deadline=None)
def test_ticks_are_round_evenly_spaced_and_inside(low: float, width: float, count: int) -> None:
    high = low + width
    marks = charts.ticks(low, high, count)
    assert len(marks) <= count + 1
    assert all(low - 1e-6 * width <= mark <= high + 1e-6 * width for mark in marks)
    for gap in (b - a for a, b in pairwise(marks)):
        assert round(gap / 10.0 ** math.floor(math.log10(gap) + 1e-6), 2) in (1, 2, 5)


def test_log_ticks() -> None:
    assert charts.log_ticks(0.05, 70, 10) == pytest.approx([0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50])
    assert charts.log_ticks(0.05, 70, 5) == pytest.approx([0.1, 1, 10])


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9))
def test_labels_do_not_overlap_and_stay_inside(wanted: list[float]) -> None:
    places = charts.spread(sorted(wanted), 10, 0, 100)
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(places))
    assert places[0] >= -1e-9 and places[-1] <= 100 + 1e-9


def test_labels_that_have_room_are_not_moved() -> None:
    assert charts.spread([5, 40, 90], 10, 0, 100) == [5, 40, 90]


def circles(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([-\d.]+)" cy="([-\d.]+)"', svg)]


def test_curve_points_stand_where_their_values_say() -> None:
    axes = Axes("steps", "bits per byte", lower_is_better=True)
    points = circles(charts.line_chart([Line("a", 0, [0, 50, 100], [4.0, 3.0, 2.0])], axes, "wide"))
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2) and x0 < x1
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.2) and y0 < y1
    logarithmic = replace(axes, log=True)
    (x0, _), (x1, _), (x2, _) = circles(
        charts.line_chart([Line("a", 0, [1, 10, 100], [4, 3, 2])], logarithmic, "narrow")
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)


def test_a_curve_of_another_metric_is_named_and_has_no_best_line() -> None:
    one = replace(seq2seq_page().entries[0], curve=Curve([1.0, 2.0], [1, 2], [0.5, 0.75], "token accuracy"))
    shown = read(page(entries=[one], best=100.0))
    assert "Token accuracy on the validation data" in shown.text and "75.0 %" in shown.text
    assert "best possible 100" not in shown.text


def test_long_curves_are_thinned_and_keep_both_ends() -> None:
    line = Line("a", 0, list(range(5000)), [9 - i / 1000 for i in range(5000)])
    svg = charts.line_chart([line], Axes("steps", "bits per byte", True), "narrow")
    assert 40 <= len(circles(svg)) <= 100
    assert "at 0 steps" in svg and "at 4,999 steps" in svg


def test_seconds_are_logarithmic_only_where_the_ends_lie_far_apart() -> None:
    assert charts.is_log([Line("a", 0, [0.2], [2.0]), Line("b", 1, [0, 60], [3.0, 2.0])])
    assert not charts.is_log([Line("a", 0, [40.0], [2.0]), Line("b", 1, [0, 60], [3.0, 2.0])])
    zero = [Line("a", 0, [0.0], [2.0])]
    assert circles(charts.line_chart(zero, Axes("seconds", "bits per byte", True, log=True), "narrow"))


def test_interval_bars_share_one_scale_and_a_distant_one_becomes_an_arrow() -> None:
    near = [(1.9, (1.88, 1.92)), (1.95, (1.93, 1.97)), (2.1, (2.08, 2.12)), (2.2, None)]
    scale = charts.common_scale(near, "bits per byte", None)
    assert scale is not None and scale.low < 1.88 and scale.high > 2.2
    assert scale.percent(1.9) < scale.percent(2.1)
    far = charts.common_scale([*near, (40.0, (39.0, 41.0))], "bits per byte", None)
    assert far is not None and far.holds(2.1) and not far.holds(40.0)
    assert "→" in charts.interval_bar(40.0, (39.0, 41.0), far, 0)
    assert "<circle" in charts.interval_bar(2.1, (2.08, 2.12), far, 0)
    assert "<circle" not in charts.interval_bar(None, None, far, 0)
    assert charts.common_scale([(None, None), (math.inf, None)], "bits per byte", None) is None


def test_surprisal_shades_rise_with_bits_and_blanks_stay() -> None:
    shades = [int(surprisal.shade(bits, 12.0)[1:]) for bits in range(0, 40)]
    assert shades == sorted(shades) and shades[0] == 0 and shades[-1] == surprisal.SHADES - 1
    assert surprisal.shade(math.inf, 12.0) == "sx"
    reading = surprisal.Reading("a", 0, [("To", 1.0), (" be,\n", 2.0), (" or", 3.0)])
    written = surprisal.surprisal([reading], 4)
    assert ">To</span> <span" in written and ">be,</span>\n <span" in written


def test_numbers() -> None:
    assert [markup.short_count(n) for n in (0, 999, 1000, 21_402, 999_999, 1_213_440, 124_000_000, 1_500_000_000)] == [
        "0",
        "999",
        "1.0 k",
        "21.4 k",
        "1.0 M",
        "1.2 M",
        "124 M",
        "1.5 G",
    ]
    assert [markup.duration(s) for s in (0.123, 12.34, 3725.4)] == ["0.12", "12.3", "3,725"]
    assert markup.figure(1.93149, "bits per byte") == "1.931" and markup.figure(12.3456, "bits per byte") == "12.3"
    assert markup.figure(0.9123, "accuracy") == "91.2 %" and markup.figure(7.25, "BLEU") == "7.2"
    assert [markup.figure(v) for v in (None, math.nan, math.inf, -math.inf, -1.0)] == ["–", "–", "∞", "−∞", "−1.000"]


def test_values_that_differ_by_rounding_alone_are_drawn_as_one() -> None:
    scale = charts.common_scale([(100.0, (100.0, 100.00000000000004))], "BLEU", 100.0)
    assert scale is not None
    assert scale.low < 99 and scale.high > 101
    assert "100" in charts.interval_axis(scale)


def test_figures_that_are_almost_zero_have_one_tick() -> None:
    assert charts.ticks(0.0, 1e-300) == [0.0] and charts.ticks(0.0, 0.0) == [0.0]
    assert len(charts.ticks(0.0, 1e-6)) > 1
