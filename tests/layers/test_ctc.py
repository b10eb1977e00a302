"""CTC against every path written out, against torch, and against numbers worked out by hand."""

from __future__ import annotations

import math
from itertools import groupby, product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.batches.batch import IGNORE
from segue.layers.ctc import ctc_loss


def mask_of(lengths: list[int] | Tensor, width: int) -> Tensor:
    return torch.arange(width) < torch.as_tensor(lengths)[:, None]


def targets_of(rows: list[list[int]]) -> Tensor:
    """Labels, STOP, then IGNORE; one row has STOP to the end, as rows may."""
    width = max(map(len, rows)) + 2
    padded = [row + [0] + [0 if i == 1 else IGNORE] * (width - 1 - len(row)) for i, row in enumerate(rows)]
    return torch.tensor(padded)


def by_every_path(logits_SV: Tensor, label: list[int]) -> float:
    """p(label) as the sum over all V^S paths."""
    p_SV, total = logits_SV.softmax(-1).tolist(), 0.0
    for path in product(range(logits_SV.shape[1]), repeat=len(logits_SV)):
        if [id for id, _ in groupby(path) if id] == label:
            total += math.prod(p_S[id] for p_S, id in zip(p_SV, path, strict=True))
    return total


def fits(rows: list[list[int]], places: list[int]) -> Tensor:
    """Whether each source has a place for each label, and one for the blank between equal labels."""
    return torch.tensor([n >= 2 * len(row) - len(list(groupby(row))) for row, n in zip(rows, places, strict=True)])


def test_two_places_two_letters_by_hand() -> None:
    """p of blank, a, b: 0.5 0.3 0.2 at the first place, 0.1 0.6 0.3 at the second."""
    logits_BSV = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]]]).log().expand(5, -1, -1)
    rows = [[1], [2], [1, 2], [2, 1], []]
    loss_B = ctc_loss(logits_BSV, mask_of([2] * 5, 2), targets_of(rows))
    # a: "a a", "a -", "- a"; ab and ba: one path each; nothing: "- -"
    by_hand = [0.18 + 0.03 + 0.30, 0.06 + 0.02 + 0.15, 0.09, 0.12, 0.05]
    assert loss_B.neg().exp().tolist() == pytest.approx(by_hand)
    assert sum(by_hand) == pytest.approx(1.0)  # every path gives one of these texts


def test_sums_over_every_path() -> None:
    torch.manual_seed(0)
    rows, lengths = [[1, 2], [], [2, 2], [1], [1, 1, 2]], [5, 3, 4, 1, 5]
    logits_BSV = torch.randn(len(rows), 5, 3).double() * 2
    loss_B = ctc_loss(logits_BSV, mask_of(lengths, 5), targets_of(rows))
    expected = [by_every_path(logits_BSV[i, :n], row) for i, (row, n) in enumerate(zip(rows, lengths, strict=True))]
    assert loss_B.neg().exp().tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("shape", "dtype"), [((24, 12, 4, 6), torch.float64), ((16, 30, 9, 8), torch.float32)])
def test_equals_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Value and gradient, with repeats, rows without labels, and targets that are too long for their sources."""
    torch.manual_seed(1)
    rows, width, ids, longest = shape
    places_B, lengths_B = torch.randint(1, width + 1, (rows,)), torch.randint(0, longest + 1, (rows,))
    labels_BT, weights_B = torch.randint(1, ids, (rows, longest)), torch.rand(rows, dtype=dtype)
    labels = [row[:n].tolist() for row, n in zip(labels_BT, lengths_B, strict=True)]
    targets = targets_of(labels)
    mask = mask_of(places_B, width)
    ours, theirs = (torch.randn(rows, width, ids, dtype=dtype).requires_grad_() for _ in range(2))
    theirs.data.copy_(ours.data)
    logp_SBV = theirs.transpose(0, 1).log_softmax(-1)
    expected_B = F.ctc_loss(logp_SBV, labels_BT, places_B, lengths_B, reduction="none", zero_infinity=True)
    loss_B = ctc_loss(ours, mask, targets)
    torch.testing.assert_close(loss_B, expected_B, rtol=1e-5, atol=1e-5)
    (loss_B * weights_B).sum().backward()
    (expected_B * weights_B).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-5)
    fits_B = fits(labels, places_B.tolist())
    assert 0 < fits_B.sum() < rows and torch.equal(fits_B, loss_B != 0)
    assert ours.grad is not None and not ours.grad[~fits_B].any() and not ours.grad[~mask].any()


def test_gradcheck() -> None:
    torch.manual_seed(2)
    logits_BSV = torch.randn(4, 5, 3).double().requires_grad_()
    mask, targets = mask_of([5, 4, 2, 3], 5), targets_of([[1, 1, 2], [2, 1], [], [1, 1, 1]])
    assert torch.autograd.gradcheck(lambda x: ctc_loss(x, mask, targets), logits_BSV)


def test_a_place_more_for_each_repeat() -> None:
    """A target without a path has loss 0, which no other has."""
    rows, places = [[1, 1, 2], [1, 1, 2], [1, 2, 1], [1, 2, 1]], [4, 3, 3, 2]
    loss_B = ctc_loss(torch.zeros(4, 4, 3), mask_of(places, 4), targets_of(rows))
    assert (loss_B > 0).tolist() == fits(rows, places).tolist() == [True, False, True, False]


def test_long_and_certain_sources_do_not_underflow() -> None:
    """Blanks of probability 1 - 1e-17 all along: p(y) is far below the smallest float32."""
    logits_BSV = torch.zeros(1, 120, 3)
    logits_BSV[..., 0] = 40.0
    loss = ctc_loss(logits_BSV, mask_of([120], 120), torch.tensor([[1, 2] * 20]))
    # all paths with 40 labels at 40 of 120 places, and some more that are e^40 times rarer
    assert loss.item() == pytest.approx(40 * 40 - math.log(math.comb(120, 40)), rel=1e-5)


def test_half_precision_is_computed_in_float32() -> None:
    torch.manual_seed(3)
    logits = torch.randn(2, 6, 4).bfloat16().requires_grad_()
    mask, targets = mask_of([6, 5], 6), targets_of([[1, 2], [3]])
    with torch.autocast("cpu", torch.bfloat16):
        loss_B = ctc_loss(logits, mask, targets)
    loss_B.sum().backward()
    assert loss_B.dtype == torch.float32 and logits.grad is not None and logits.grad.dtype == torch.bfloat16
    assert torch.equal(loss_B, ctc_loss(logits.float(), mask, targets))


def test_nothing_waits_for_the_device() -> None:
    """Tensors without values: what read one, or made a shape of one, would fail; so would a CUDA graph."""
    logits = torch.empty(3, 7, 5, device="meta", requires_grad=True)
    mask, targets = (
        torch.empty(*shape, dtype=kind, device="meta") for shape, kind in [((3, 7), torch.bool), ((3, 4), torch.long)]
    )
    loss_B = ctc_loss(logits, mask, targets)
    loss_B.sum().backward()
    assert loss_B.shape == (3,) and logits.grad is not None


def test_empty_sources_and_targets() -> None:
    nothing = ctc_loss(torch.zeros(2, 0, 3), torch.zeros(2, 0, dtype=torch.bool), torch.tensor([[1, 0], [0, 0]]))
    assert nothing.tolist() == [0.0, 0.0]
    uniform = ctc_loss(torch.zeros(1, 4, 3), mask_of([3], 4), torch.zeros(1, 0, dtype=torch.long))
    assert uniform.item() == pytest.approx(3 * math.log(3))


def test_nan_is_seen_and_impossible_words_are_not_in_the_way() -> None:
    logits_BSV = torch.zeros(3, 4, 3)
    logits_BSV[0, 1, 2] = torch.nan
    logits_BSV[1:, :, 2] = -torch.inf
    logits_BSV.requires_grad_()
    loss_B = ctc_loss(logits_BSV, mask_of([4] * 3, 4), targets_of([[1], [1], [2]]))
    # of the paths of blank and a over four places, ten have one run of a
    assert loss_B[0].isnan() and loss_B[1].item() == pytest.approx(-math.log(10 / 16)) and loss_B[2] == 0
    loss_B[1:].sum().backward()
    assert logits_BSV.grad is not None and logits_BSV.grad[1:].isfinite().all() and not logits_BSV.grad[2].any()
