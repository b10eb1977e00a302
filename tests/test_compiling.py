"""A first compilation is said; what is compiled already is not."""

from __future__ import annotations

from numba import njit

from segue.compiling import announced


def test_said_once():
    @njit
    def double(x):
        return 2 * x

    said = []
    with announced(lambda what, share: said.append(what)):
        assert double(3) == 6
        assert said == ["compiling, once"]
        assert double(4) == 8
    assert said == ["compiling, once"]
    assert double(1.5) == 3.0 and len(said) == 1  # nobody listens any more
