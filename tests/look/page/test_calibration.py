"""The picture of how far probabilities can be believed, and the tables of errors."""

from __future__ import annotations

import re

from segue.look.page.calibration import LEFT, SIZE, TOP, Sure, calibration
from segue.look.page.mistakes import Missed, errors

SUMS = [[0, 0, 0], [40, 36.0, 20], [10, 9.9, 10]]


def test_a_dot_stands_at_its_confidence_and_its_share_right() -> None:
    page = calibration([Sure("a model", 0, SUMS)])
    dots = [tuple(map(float, dot)) for dot in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', page)]
    assert [dot[:2] for dot in dots] == [
        (round(LEFT + SIZE * 0.9, 1), round(TOP + SIZE * 0.5, 1)),
        (round(LEFT + SIZE * 0.99, 1), TOP),
    ]
    assert dots[0][2] == 2 * dots[1][2]  # areas are as the numbers of predictions
    assert "40 predictions, 90.0 % sure, 50.0 % right" in page
    assert "<b>0.322</b>" in page  # (16 + 0.1) / 50


def test_nothing_without_probabilities() -> None:
    assert calibration([]) == ""


def test_names_are_escaped() -> None:
    page = calibration([Sure("<b>", 0, SUMS)]) + errors(
        [Missed("<i>", 0, [{"text": "<u>", "words for it": "<s> +1.00"}])]
    )
    assert not re.search("<[ius]>", page) and "&lt;s&gt;" in page


def test_the_words_of_an_error_keep_their_numbers() -> None:
    row = {"text": "x", "words for it": "great +2.00, , -0.50, שלום +0.10"}
    page = errors([Missed("m", 0, [row, {"text": "y", "words for it": ""}])])
    assert re.findall(r"<bdi>(.*?)</bdi>&nbsp;(\S+?)[,<]", page) == [
        ("great", "+2.00"),
        (",", "−0.50"),
        ("שלום", "+0.10"),
    ]
    assert "log-odds" in page and page.count("–") == 1
