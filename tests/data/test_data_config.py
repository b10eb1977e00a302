from __future__ import annotations

from dataclasses import fields

import pytest

from segue.data.config import Config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": ""}, "path is empty"),
        ({"seed": -1}, "expected 0 or more"),
        ({"encoding": "klingon"}, "Python does not know"),
        ({"encoding": "hex"}, "Python does not know"),
        ({"validation": 1.0}, "below 1"),
        ({"test": -0.1}, "below 1"),
        ({"test": float("nan")}, "below 1"),
        ({"validation": ""}, "below 1"),
        ({"validation": 0.5, "test": 0.5}, "leave some"),
        ({"test": "0/10"}, "expected which/of"),
        ({"test": "11/10"}, "expected which/of"),
        ({"test": "3"}, "below 1"),
        ({"test": "1/1"}, "expected which/of"),
    ],
)
def test_impossible_values_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**settings)  # type: ignore[arg-type]


def test_a_share_may_come_as_a_string() -> None:
    assert Config(validation="0.2", test="held.txt") == Config(validation=0.2, test="held.txt")
    assert Config(test="3/10").fold() == (3, 10)
    assert Config(test="3/ten").fold() is None
    assert Config(validation="a/1", test="3/10").held_out_files() == {"validation": "a/1"}


def test_the_config_stays_small() -> None:
    assert len(fields(Config)) <= 18
