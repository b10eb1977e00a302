"""The senses of a word: two planted ones fall apart, whatever the body; one vector a word would not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import segue
from segue.data.example import Example
from segue.errors import InputError
from segue.look.inside.draw_svg import draw
from segue.look.inside.senses import Seen, in_groups, sentences_with
from segue.look.inside.view import View

MONEY = (("money", "loan", "credit", "cash"), ("lends", "pays"))
RIVER = (("river", "water", "boat", "fish"), ("floods", "slopes"))


def planted(count: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Sentences with "bank", and which of its two senses each has: the words around it are of one list alone."""
    draw = np.random.default_rng(seed)
    lines, senses = list[str](), list[int]()
    for _ in range(count):
        sense = int(draw.integers(2))
        nouns, verbs = (MONEY, RIVER)[sense]
        before, after = draw.choice(nouns, 2)
        lines.append(f"the {before} of the bank {draw.choice(verbs)} the {after} .")
        senses.append(sense)
    return lines, senses


def agreement(groups: Any, senses: list[int]) -> float:
    """The share of sentences whose group is their sense, under the better of the two namings."""
    same = float(np.mean(np.asarray(groups) == np.asarray(senses)))
    return max(same, 1 - same)


SETTINGS = {"data.unit": "line", "data.validation": 0, "train.steps": 150, "batches.size": 16, "batches.length": 16}
BODIES = {
    "elmo": {"model.width": 24, "model.filters": "16,16", "tokens.kind": "space"},
    "bert": {"model.width": 32, "model.layers": 1, "train.steps": 300},
    "rnn_lm": {"model.width": 48, "tokens.kind": "space"},
}


@pytest.fixture(scope="module", params=list(BODIES))
def run(request: Any, tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    lines, _ = planted(600, 1)
    folder = tmp_path_factory.mktemp("senses") / request.param
    return segue.train(request.param, lines, folder, settings={**SETTINGS, **BODIES[request.param]})


def test_planted_senses_fall_apart(run: segue.Run) -> None:
    lines, senses = planted(60, 2)
    view = run.look("bank", "senses", sentences=lines)
    x_y_group = view.values_PRC[0]
    assert x_y_group.shape == (60, 3) and view.columns == ("x", "y", "group")
    assert agreement(x_y_group[:, 2], senses) >= 0.95
    first = x_y_group[:, 0]  # along the first direction one threshold parts them
    assert agreement(first > np.median([first.min(), first.max()]), senses) >= 0.9
    assert all("[bank]" in row for row in view.rows)


def test_one_vector_a_word_does_not_fall_apart(run: segue.Run) -> None:
    lines, _ = planted(60, 2)
    spread = [np.ptp(run.look("bank", "senses", sentences=lines, layer=layer).values_PRC[0, :, :2]) for layer in (0, 1)]
    assert spread[0] < 0.2 * spread[1]  # layer 0 is the word's own vector (bert: without its position)


def test_sentences_come_from_the_training_text_or_from_a_file(run: segue.Run, tmp_path: Any) -> None:
    lines, _ = planted(600, 1)
    assert run.look("bank", "senses").title == f"'bank' in {len(set(lines))} sentences"  # each once
    (tmp_path / "more.txt").write_text("\n".join(planted(20, 3)[0]) + "\n")
    shown = run.look("Bank", "senses", data=str(tmp_path / "more.txt"))
    assert json.loads(shown.json())["rows"] and shown.svg().startswith("<svg") and "<html" in shown.html()
    assert "bank" in shown.terminal() and shown.note.count("Group") == 2
    given = run.look("bank\n" + "\n".join(planted(9, 3)[0]), "senses")
    assert len(given.rows) == 9


def test_a_word_that_is_hardly_there_is_refused(run: segue.Run) -> None:
    with pytest.raises(InputError, match=r"'zebra' stands in 0 sentences, and 3 are the least for 2 senses"):
        run.look("zebra", "senses")
    with pytest.raises(InputError, match="data"):
        run.look("the", "next" if run.recipe.kind == "rnn_lm" else "", data="pydoc")


def test_groups_are_those_of_the_least_squares_by_brute_force() -> None:
    x = np.random.default_rng(0).normal(size=(9, 2))

    def cost(groups: np.ndarray) -> float:
        return sum(((x[groups == g] - x[groups == g].mean(0)) ** 2).sum() for g in (0, 1))

    every = [np.array([number >> i & 1 for i in range(9)]) for number in range(1, (1 << 9) - 1)]
    found = in_groups(x, 2)
    assert found[0] == 0 and cost(found) == pytest.approx(min(map(cost, every)))
    assert len(set(in_groups(np.zeros((4, 2)), 2).tolist())) == 1  # points that are the same have one group


def test_sentences_with_a_word_are_lines_each_once_cut_around_it() -> None:
    texts = [Example("A bank.\nNo banks here\nthe Bank, again\nA bank."), Example("x " * 300 + "bank" + " y" * 300)]
    found = list(sentences_with("bank", texts))
    assert found[:2] == ["A bank.", "the Bank, again"] and len(found) == 3
    assert "bank" in found[2] and len(found[2]) <= 400


def test_what_stands_around_a_word_is_shown() -> None:
    sentence = "we sat on the green bank, of a river that was wide"
    begin = sentence.index("bank")
    assert Seen(sentence, begin, begin + 4).around == "… on the green [bank], of a …"


def test_of_many_points_words_do_not_lie_on_each_other() -> None:
    """Every point keeps its words for the mouse."""
    rows = tuple(f"sentence {i}" for i in range(50))
    values = np.column_stack([np.arange(50) % 2, np.arange(50) % 2, np.zeros(50)])[None]
    drawn = draw(View("points", "x", "", ("sentences",), rows, ("x", "y", "group"), values))
    assert drawn.count("<title>") == 50
    assert sum(f">{row}<" in drawn.replace(f"<title>{row}<", "") for row in rows) == 2  # one at each of the two places
