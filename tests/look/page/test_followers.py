"""What follows a context in an n-gram model: the shares of the orders against the equations worked out slowly, the
equations that `segue explain` prints, and the pictures."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.look.explain.equations import EQUATIONS, example, holdings
from segue.look.explain.evidence import Context, Follower, Followers, Term, context_text, evenest, followers
from segue.look.page import followers as picture
from segue.models.base import Sizes
from segue.models.ngram import Ngram

STOP, UNK = 0, 1
SMOOTHINGS = list(EQUATIONS)
SENTENCES = [
    "cows eat grass",
    "cows eat corn",
    "cows eat corn",
    "cows eat hay and corn",
    "dogs eat meat and bones",
    "the cows eat corn",
    "the dogs see cows",
    "cows see dogs and the cows eat grass",
]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
IDS = {word: i for i, word in enumerate(WORDS, 2)}
V = len(WORDS) + 2
TEXT = [i for sentence in SENTENCES for i in [*(IDS[word] for word in sentence.split()), STOP]]


class Words:
    """As much of a tokenizer as is needed."""

    unk = UNK

    def decode(self, ids: list[int]) -> str:
        return " ".join(WORDS[i - 2] for i in ids)

    def name(self, token: int) -> str:
        return WORDS[token - 2]


def fitted(**config: Any) -> Ngram:
    model = Ngram(Ngram.Config(**config), Sizes(V))
    list(model.fit(SimpleNamespace(tokens=np.array(TEXT)), Ngram.Train()))
    return model


CONTEXTS = [[STOP], [STOP, IDS["cows"]], [STOP, IDS["the"], IDS["cows"], IDS["eat"]], [STOP, IDS["meat"], IDS["cows"]]]


# The shares


@pytest.mark.parametrize("pruned", [(), (1, 2)], ids=["all", "pruned"])
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_shares_sum_to_the_probability(smoothing: str, order: int, pruned: tuple[int, ...]) -> None:
    model = fitted(order=order, smoothing=smoothing, min_count=pruned)
    for ids in [*CONTEXTS, [STOP, UNK, UNK]]:
        p = model.distribution(ids)
        found = followers(model, Words(), ids, top=V)
        assert {one.id for one in found.tokens} == {int(i) for i in np.flatnonzero(p)}
        assert [one.probability for one in found.tokens] == sorted(p[p > 0], reverse=True)
        for one in found.tokens:
            assert math.fsum(term.share for term in one.terms) == pytest.approx(p[one.id], abs=1e-12)
            assert [term.order for term in one.terms] == list(range(len(found.contexts) + 1))


def seen(context: list[int]) -> Counter[int]:
    """What followed a context in the text, counted slowly; the START of a sentence is STOP."""
    found: Counter[int] = Counter()
    for sentence in SENTENCES:
        ids = [STOP, *(IDS[word] for word in sentence.split()), STOP]
        for i in range(1, len(ids)):
            if i >= len(context) and ids[i - len(context) : i] == context:
                found[ids[i]] += 1
    return found


def test_witten_bell_is_its_equation_worked_out() -> None:
    """Each order's own part and what is left for the one below, from counts made here."""
    ids = [STOP, IDS["the"], IDS["cows"], IDS["eat"]]
    found = followers(fitted(order=3, smoothing="witten_bell"), Words(), ids, top=V)
    tables = [seen(ids[len(ids) - k :]) for k in range(3)]
    for one in found.tokens:
        left, expected = 1.0, []
        for table in reversed(tables):
            whole = table.total() + len(table)
            expected.append(left * table[one.id] / whole)
            left *= len(table) / whole
        expected.append(left / V)
        assert [term.share for term in reversed(one.terms)] == pytest.approx(expected, abs=1e-12)
        assert [term.count for term in one.terms[1:]] == [table[one.id] for table in tables]
    for context, table in zip(found.contexts, tables, strict=True):
        assert (context.total, context.followers) == (table.total(), len(table))


def test_discounts_and_continuation_counts_are_told() -> None:
    found = followers(fitted(order=2, smoothing="kneser_ney", discount=0.5), Words(), [STOP, IDS["eat"]], top=V)
    corn = next(one for one in found.tokens if one.token == "corn")
    table = seen([IDS["eat"]])
    assert (corn.terms[2].count, corn.terms[2].discount) == (3, 0.5)
    assert corn.terms[2].share == pytest.approx((3 - 0.5) / table.total(), abs=1e-12)
    # corn comes after eat and after and: two different words, however often.
    assert (corn.terms[1].count, found.continuation) == (2, True)
    assert found.contexts[1].weight == pytest.approx(0.5 * len(table) / table.total(), abs=1e-12)


def test_contexts_that_were_never_seen_and_those_that_do_not_exist() -> None:
    model = fitted(order=4)
    found = followers(model, Words(), [STOP, IDS["meat"], IDS["cows"]])
    assert [(one.order, one.text, one.seen) for one in found.contexts] == [
        (1, "", True),
        (2, "cows", True),
        (3, "meat cows", False),
        (4, "<s>meat cows", False),
    ]
    assert [one.text for one in followers(model, Words(), [STOP]).contexts] == ["", "<s>"]
    assert context_text(Words(), STOP, [STOP, UNK, IDS["cows"], IDS["eat"], UNK]) == "<s><unk>cows eat<unk>"


def test_only_one_order_has_a_word_in_stupid_backoff() -> None:
    found = followers(fitted(order=3, smoothing="stupid_backoff"), Words(), CONTEXTS[2], top=V)
    assert not found.normalised
    for one in found.tokens:
        giving = [term.order for term in one.terms if term.share]
        assert giving == [max(term.order for term in one.terms if term.count)]


def test_the_evenest_place_shows_most() -> None:
    model = fitted(order=3)
    place, found = evenest(model, Words(), [STOP, IDS["the"], IDS["cows"], IDS["eat"]])
    entropies = []
    for here in range(1, 5):
        shares = [t.share for one in followers(model, Words(), CONTEXTS[2][:here], 8).tokens for t in one.terms]
        total = sum(shares)
        entropies.append(-sum(s / total * math.log(s / total) for s in shares if s))
    assert place == 1 + int(np.argmax(entropies))
    assert found == followers(model, Words(), CONTEXTS[2][:place], 8)
    assert evenest(model, Words(), [STOP, UNK, UNK, UNK])[0] == 1


# The equations


def value_of(side: str) -> float:
    """The right side of a printed equation, worked out."""
    return float(eval(side.replace(",", "").replace("·", "*").replace("−", "-")))


@pytest.mark.parametrize("pruned", [(), (1, 2)], ids=["all", "pruned"])
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_worked_example_is_true(smoothing: str, order: int, pruned: tuple[int, ...]) -> None:
    model = fitted(order=order, smoothing=smoothing, min_count=pruned)
    worked = example(model, Words())
    for line in worked.lines:
        left, *sides = line.split(" = ")
        assert left.startswith("p(“" if model.normalised else "S(“")
        assert value_of(sides[0]) == pytest.approx(float(sides[1]), rel=3e-3)
    ids = [IDS[word] for word in worked.context.split()]
    token = STOP if worked.token == "</s>" else IDS[worked.token]
    assert float(sides[1]) == pytest.approx(model.distribution(ids)[token], rel=1e-3)
    assert token == int(np.argmax(model.distribution(ids)))


def test_what_the_orders_hold() -> None:
    model = fitted(order=3, smoothing="absolute_discounting")
    first, second, third = holdings(model)
    pairs: Counter[tuple[int, int]] = Counter()
    for word in range(V):
        pairs.update({(word, after): n for after, n in seen([word]).items()})
    assert (first.ngrams, second.ngrams) == (len(set(TEXT)), len(pairs))
    assert second.few == tuple(sum(n == c for n in pairs.values()) for c in (1, 2, 3, 4))
    n1, n2 = second.few[:2]
    assert second.discounts == pytest.approx((n1 / (n1 + 2 * n2),)) and not second.usual
    assert third.bytes > 0
    assert [one.few for one in holdings(fitted(order=2, min_count=(2,)))][1] is None


# On the command line and on the page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("followers")
    (folder / "cows.txt").write_text("\n".join(SENTENCES * 6), encoding="utf-8")
    settings = {"tokens.kind": "word", "tokens.min_count": 1, "data.unit": "line", "model.order": 3}
    segue.train("ngram", folder / "cows.txt", folder / "run", settings)
    return folder / "run"


def test_look_says_why(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", str(run), "hay cows eat", "--top", "3"]) == 0
    said = capsys.readouterr().out
    assert "order 3" in said and "█" in said and "1/V" in said and "order 2: “eat”, c(h) = " in said
    assert main(["look", str(run), "bones bones bones"]) == 0
    assert "was never seen" in capsys.readouterr().out


def test_look_says_all_numbers_as_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", str(run), "cows eat", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["panels"] == ["p"] and said["columns"] == ["order 3", "order 2", "order 1", "1/V"]
    expected = segue.load(run).next_tokens("cows eat", 10)
    for token, shares, (name, p) in zip(said["rows"], said["values"][0], expected, strict=True):
        assert (token, math.fsum(shares)) == (name, pytest.approx(p, abs=1e-6))
    assert said["cells"][0][0].startswith(tuple("123456789")) and "c(h) = " in said["note"]


def test_explain_puts_the_numbers_in(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(run)]) == 0
    said = capsys.readouterr().out
    for told in ("modified_kneser_ney, order 3", "n1", "D3", "bytes an n-gram", "The likeliest token after", "p(“"):
        assert told in said
    assert main(["explain", str(run), "model.order=2"]) == 2
    assert "model.order=2 cannot change" in capsys.readouterr().err
    assert main(["explain", str(run.parent)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_explain_of_a_run_of_another_kind_is_its_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("good", "a fine film"), ("bad", "a dull film")] * 10
    segue.train("bow", rows, tmp_path / "bow", {"train.steps": 3})
    assert main(["explain", str(tmp_path / "bow")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"train\.steps +3 ", said) and "[model]" in said


def test_a_kind_comes_before_a_folder_of_its_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ngram").symlink_to(run)
    assert main(["explain", "ngram", "model.smoothing=witten_bell"]) == 0
    assert "witten_bell" in capsys.readouterr().out
    assert main(["explain", "./ngram"]) == 0
    assert "The likeliest token" in capsys.readouterr().out


def test_the_page_of_a_run_has_the_picture(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert 'id="expected"' in page and page.count('class="stack"') > 1
    for bar in re.findall(r'<svg class="stack".*?</svg>', page):
        places = [(float(x), float(w)) for x, w in re.findall(r'x="([\d.]+)%" width="([\d.]+)%"', bar)]
        for (x, width), (after, _) in pairwise(places):
            assert x + width == pytest.approx(after, abs=0.02)
        assert sum(places[-1]) <= 100.02


def test_the_picture_escapes_what_it_shows() -> None:
    nasty = "<b>&\x00"
    one = Follower(2, nasty, 0.5, (Term(0, 0, 0.0, 0.1), Term(1, 3, 0.5, 0.4)))
    found = Followers((one,), (Context(1, nasty, True, 3, 1, 0.2),), False, True)
    shown = picture.followers(found, nasty, nasty)
    assert nasty not in shown and "&lt;b&gt;&amp;␀" in shown
    assert 'x="0.00%" width="80.00%"' in shown and 'x="80.00%" width="20.00%"' in shown
    assert "class=came" in shown and "from a count of 3 less 0.50" in shown
    assert picture.visible("  a b\n") == "␣␣a b↵" and picture.visible("   ") == "␣␣␣"
