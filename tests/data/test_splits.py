from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.data.config import Config
from segue.data.splits import plan
from segue.errors import InputError

shares = st.integers(0, 45).map(lambda percent: percent / 100)


@given(n=st.integers(3, 500), validation=shares, test=shares)
def test_every_position_is_in_exactly_one_split(n: int, validation: float, test: float) -> None:
    made = plan(Config(validation=validation, test=test), n, "units")
    members = np.stack([made.member(np.arange(n), split) for split in ("train", "validation", "test")])
    assert (members.sum(axis=0) == 1).all()
    assert members.sum(axis=1).tolist() == [made.size(split) for split in ("train", "validation", "test")]
    assert made.size("train") > 0
    assert (made.size("validation") > 0) == (validation > 0)
    assert (made.size("test") > 0) == (test > 0)


def test_running_text_is_cut_from_the_end_at_exact_shares() -> None:
    """0.05 is a twentieth, though its nearest binary number is a little more."""
    made = plan(Config(validation=0.05, test=0.05), 20, "units")
    assert made.intervals == {"train": [(0, 18)], "validation": [(18, 19)], "test": [(19, 20)]}
    assert plan(Config(validation=0.1), 1999, "units").intervals["validation"] == [(1799, 1999)]


@given(n=st.integers(10, 300), of=st.integers(2, 10))
def test_folds_cover_everything_once(n: int, of: int) -> None:
    tested = []
    for which in range(1, of + 1):
        made = plan(Config(test=f"{which}/{of}", validation=0.1), n, "rows")
        parts = [set(np.flatnonzero(made.member(np.arange(n), s))) for s in ("train", "validation", "test")]
        assert sum(map(len, parts)) == n == len(set.union(*parts))
        assert len(parts[1]) == -(-(n - len(parts[2])) // 10)
        tested += sorted(parts[2])
    assert tested == list(range(n))


@pytest.mark.parametrize(("n", "config"), [(1, Config()), (2, Config(test=0.1)), (5, Config(test="1/10"))])
def test_too_few_units_are_refused_with_what_to_do(n: int, config: Config) -> None:
    with pytest.raises(InputError, match=f"only {n} units, too few .* data.validation=0"):
        plan(config, n, "units")
