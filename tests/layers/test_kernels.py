"""The Triton kernels (layers/one_token_gpu.py, layers/loss_gpu.py) against plain torch: layers, draws, the loss.

    pytest -m gpu tests/layers/test_kernels.py                       on a GPU
    TRITON_INTERPRET=1 pytest -m gpu tests/layers/test_kernels.py    interpreted on a CPU, as the last test does

On a GPU weights are bfloat16 and the reference is float32, so that logits differ by rounding. Interpreted, both are
float32. Drawn ids must be the same.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from segue.inference.cuda_graphs import BROKEN, DEAD
from segue.inference.decode import _pick
from segue.inference.decode_settings import Config
from segue.layers import losses
from segue.layers.position import Position
from segue.layers.row_map import RowMap
from segue.models.base import Sizes
from segue.models.gpt import Gpt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
V, CONTEXT = 19, 32
gpu = pytest.mark.gpu


def make(**values: Any) -> tuple[Gpt, Gpt]:
    """A model with weights large enough that what is wrong shows, and the same in the precision of kernels."""
    torch.manual_seed(0)
    config = Gpt.Config(**{"layers": 1, "width": 32, "heads": 2, "context": CONTEXT, **values})
    model = Gpt(config, Sizes(V)).to(DEVICE).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    rounded = copy.deepcopy(model)
    for parameter in rounded.parameters():
        parameter.data = parameter.data.to(DTYPE)
    return model, rounded


@torch.inference_mode()
def compare(rows: int, **values: Any) -> None:
    """Some steps after prompts of different lengths, by the model's own step and by the kernels."""
    from segue.layers.one_token_gpu import Layers

    model, rounded = make(**values)
    ids_BT = torch.randint(2, V, (rows, 6), device=DEVICE)
    mask_BT = torch.arange(4, device=DEVICE) < torch.arange(rows, device=DEVICE)[:, None] % 3 + 2
    _, state = model.step(ids_BT[:, :4], mask_BT, model.start(rows, CONTEXT))
    k_LBHSK, v_LBHSK = state.cache.k_LBHSK.to(DTYPE), state.cache.v_LBHSK.to(DTYPE)
    places_B = state.length_B.clone()
    assert Layers.fit(rounded.stack, rows)
    fast, real = Layers(rounded.stack, rows), torch.ones(rows, 1, dtype=torch.bool, device=DEVICE)
    for t in (4, 5):
        expected_BV, state = model.step(ids_BT[:, t : t + 1], real, state)
        x_BD, found_BV = fast(ids_BT[:, t], places_B, k_LBHSK, v_LBHSK, RowMap.plain(rows, CONTEXT, 1, DEVICE))
        places_B += 1
        near(found_BV, expected_BV)
        near(x_BD, state.last_BD)
    near(k_LBHSK.float(), state.cache.k_LBHSK[:, :, :, : k_LBHSK.shape[3]])


def near(found: Tensor, expected: Tensor) -> None:
    error = 0.05 if DEVICE == "cuda" else 2e-5
    torch.testing.assert_close(found, expected, atol=error * float(expected.abs().max()), rtol=0)


@gpu
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("position", ["none", "onehot", "sinusoidal", "learned", "relative", "rotary"])
def test_layers_at_every_kind_of_position(position: Position, rows: int) -> None:
    """One row is computed by one set of kernels, three by another."""
    compare(rows, position=position)


@gpu
@pytest.mark.parametrize("rows", [2, 5])
def test_two_layers_with_relu_and_output_weights_of_their_own(rows: int) -> None:
    compare(rows, activation="relu", tied=False, layers=2, width=16, heads=1)


@gpu
def test_layers_are_for_pre_ln_with_residuals_and_few_rows() -> None:
    from segue.layers.one_token_gpu import MOST, Layers

    stack = make()[1].stack
    assert Layers.fit(stack, MOST) and not Layers.fit(stack, MOST + 1)
    for values in ({"norm": "post"}, {"norm": "none"}, {"residual": False}, {"heads": 4}):
        assert not Layers.fit(make(**values)[1].stack, 1)


@gpu
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 1e-3])
@pytest.mark.parametrize("vocab_size", [5, 1_500])
def test_draws_are_those_of_plain_torch(vocab_size: int, temperature: float, rows: int) -> None:
    from segue.layers.one_token_gpu import draw

    torch.manual_seed(rows)
    logits_BV = 5 * torch.randn(rows, vocab_size, device=DEVICE)
    forbid = torch.tensor([0, 1], device=DEVICE)
    uniform_BN = torch.rand(rows, 4, dtype=torch.float64, device=DEVICE)
    column_B, next_B = torch.full((2, rows), 2, device=DEVICE)
    ids_BN, logp_BN = torch.zeros(rows, 4, dtype=torch.long, device=DEVICE), torch.zeros(rows, 4, device=DEVICE)
    draw(logits_BV, uniform_BN, column_B, ids_BN, logp_BN, next_B, forbid, temperature, BROKEN, DEAD)
    expected_B, logp_B = _pick(logits_BV, uniform_BN[:, 2], forbid, Config(temperature=temperature))
    assert torch.equal(ids_BN[:, 2], expected_B) and torch.equal(next_B, expected_B)
    assert (column_B == 3).all() and not ids_BN[:, [0, 1, 3]].any()
    torch.testing.assert_close(logp_BN[:, 2], logp_B, atol=1e-5, rtol=0)


@gpu
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes NaN with numpy
def test_draws_say_where_nothing_is_allowed_and_where_logits_are_broken() -> None:
    from segue.layers.one_token_gpu import draw

    logits_BV = torch.zeros(3, 4, device=DEVICE)
    logits_BV[0, 1:] = -torch.inf  # the only id left is forbidden
    logits_BV[1, 2] = torch.nan
    column_B, next_B = torch.zeros(2, 3, dtype=torch.long, device=DEVICE)
    ids_BN, logp_BN = torch.zeros(3, 1, dtype=torch.long, device=DEVICE), torch.zeros(3, 1, device=DEVICE)
    uniform_BN = torch.full((3, 1), 0.5, dtype=torch.float64, device=DEVICE)
    forbid = torch.tensor([0], device=DEVICE)
    draw(logits_BV, uniform_BN, column_B, ids_BN, logp_BN, next_B, forbid, 1.0, BROKEN, DEAD)
    assert ids_BN[:, 0].tolist() == [DEAD, BROKEN, 2]


@gpu
@pytest.mark.parametrize(("columns", "smoothing"), [(64, 0.0), (64, 0.1), (9_000, 0.1)])
def test_loss_and_its_gradient(columns: int, smoothing: float) -> None:
    """Padded columns and targets that are ignored; one block of columns, and two."""
    from segue.layers.loss_gpu import slopes

    torch.manual_seed(0)
    logits_NV, size = (3 * torch.randn(4, columns, device=DEVICE)).to(DTYPE), columns - 10
    targets_N = torch.tensor([0, size - 1, losses.IGNORE, 7], device=DEVICE)
    expected = losses._slopes(logits_NV.clone(), targets_N, size, smoothing)
    loss, added, slopes_NV = slopes(logits_NV.clone(), targets_N, size, smoothing)
    torch.testing.assert_close(loss, expected[0], atol=1e-4, rtol=1e-5)
    if smoothing:
        torch.testing.assert_close(added, expected[1], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(slopes_NV, expected[2], atol=1e-2 if DEVICE == "cuda" else 1e-6, rtol=0)


def test_kernels_interpreted_on_a_cpu() -> None:
    """All of the above, in a process of its own: Triton reads the setting when a kernel is defined."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
