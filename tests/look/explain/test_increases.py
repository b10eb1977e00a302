"""The lecture's table of ELMo: its relative increases, from its own rows."""

from __future__ import annotations

import pytest

from segue.look.explain.increases import LECTURE, relative_increase, sections


def test_relative_increases_are_the_lectures() -> None:
    shares = [100 * one.relative for one in LECTURE]
    assert [round(share, 1) for share in shares] == [24.9, 5.8, 17.2, 9.8, 21.0, 6.8]


def test_an_increase_is_a_share_of_what_was_left() -> None:
    assert relative_increase(80, 85) == pytest.approx(0.25) and relative_increase(0.8, 0.9, 1.0) == pytest.approx(0.5)
    assert relative_increase(50, 40) == pytest.approx(-0.2)
    with pytest.raises(ValueError, match="nothing is left"):
        relative_increase(100, 100)


def test_the_table_has_every_task_with_both_figures() -> None:
    (section,) = sections()
    rows = {name: (figures, said) for name, figures, said in section.rows}
    assert rows["SQuAD"] == ("81.1 → 85.8", "+4.7, 24.9 % of what was wrong; +1.4 against the best before")
    assert len(rows) == 6
