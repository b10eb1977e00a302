"""The best ids of each row, by compiled loops, against plain torch; the map of rows against copies."""

from __future__ import annotations

import pytest
import torch

from segue.layers import best_ids
from segue.layers.row_map import RowMap


@pytest.mark.parametrize("vocab_size", [6, 300, 2_500])
def test_loops_find_what_plain_torch_finds(vocab_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one is NaN or +inf, where few are possible, and where none is."""
    monkeypatch.setattr(best_ids, "_WORTH", 0)
    torch.manual_seed(0)
    logits_BV, forbid = 20 * torch.randn(7, vocab_size), torch.tensor([0, 3])
    logits_BV[1, 4:] = -torch.inf
    logits_BV[2] = -torch.inf
    logits_BV[3, 1], logits_BV[4, 2] = torch.nan, torch.inf
    logits_BV[5, 0] = 500.0  # what is forbidden has nearly all of the probability
    logp_BN, ids_BN = best_ids.best_ids(logits_BV, 4, forbid)
    expected_BN, known_BN = best_ids.best_ids(logits_BV.double(), 4, forbid)
    sound = [0, 1, 2, 5, 6]
    torch.testing.assert_close(logp_BN[sound].double(), expected_BN[sound], atol=1e-4, rtol=1e-6)
    assert logp_BN[3:5].isnan().any(1).all() and expected_BN[3:5].isnan().any(1).all()
    assert torch.equal(ids_BN[[0, 5, 6]], known_BN[[0, 5, 6]]) and torch.equal(ids_BN[1, :2], known_BN[1, :2])


def test_stop_is_not_preferred_where_all_are_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_ids, "_WORTH", 0)
    _, ids_BN = best_ids.best_ids(torch.zeros(1, 600), 3, torch.zeros(0, dtype=torch.long))
    assert ids_BN.tolist() == [[599, 598, 597]]


def test_a_map_of_rows_stands_for_copies() -> None:
    """Two sources of two beams write and change places; the second then goes on alone."""
    beams, copied_LBHSK, cache_LBHSK = 2, torch.zeros(1, 4, 1, 6, 1), torch.zeros(1, 4, 1, 6, 1)
    rows = RowMap.plain(4, 6, beams, "cpu")
    moves = [[1, 0, 2, 2], [0, 0, 3, 2], [3, 2], [1, 1], [0, 1]]
    for place, move in enumerate(moves):
        count = len(rows.slot_B)
        for row in range(count):
            copied_LBHSK[0, row, 0, place] = cache_LBHSK[0, rows.slot_B[row], 0, place] = 10 * place + row
            rows.home_BS[row, place] = rows.slot_B[row]
        parents = torch.tensor(move)
        copied_LBHSK, rows = copied_LBHSK[:, parents], rows.move(parents, beams)
        assert torch.equal(rows.gather(cache_LBHSK)[:, :, :, : place + 1], copied_LBHSK[:, :, :, : place + 1])
    assert rows.source_B.tolist() == [1, 1]
