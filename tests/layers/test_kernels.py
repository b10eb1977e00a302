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
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from segue.inference import cuda_graphs, decode
from segue.inference.cuda_graphs import BROKEN, DEAD
from segue.inference.decode import _pick
from segue.inference.decode_settings import Config
from segue.layers import losses
from segue.layers.position import Position
from segue.layers.row_map import RowMap
from segue.models.base import Sizes
from segue.models.gpt import Gpt
from segue.models.transformer import Transformer

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
@torch.inference_mode()
@pytest.mark.parametrize(
    "values",
    [
        {"norm": "pre", "position": "rotary"},
        {"norm": "post", "activation": "silu", "position": "relative", "tied": "none", "output_bias": True},
    ],
)
def test_beams_find_their_keys_by_a_map_and_share_their_source(values: dict[str, Any]) -> None:
    """Some steps of two sources with three beams each, which change places."""
    from segue.layers.beams_gpu import BeamLayers

    torch.manual_seed(0)
    config = Transformer.Config(layers=1, width=32, heads=2, feed=48, context=CONTEXT, **values)
    model = Transformer(config, Sizes(V)).to(DEVICE).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    rounded = copy.deepcopy(model).to(DTYPE) if DEVICE == "cuda" else model
    source, mask = torch.randint(2, V, (2, 8), device=DEVICE), torch.arange(8, device=DEVICE) < 5
    mask = torch.stack([mask, ~mask | mask])
    begin = torch.zeros(2, 1, dtype=torch.long, device=DEVICE)
    _, state = model.step(begin, begin == 0, model.start(2, 8, source, mask))
    _, other = rounded.step(begin, begin == 0, rounded.start(2, 8, source, mask))
    plain, fast = model.one_token(state.spread(3), 8), rounded.one_token(other.spread(3), 8)
    assert BeamLayers.fit(rounded.stack, 6) and plain.loops is None
    fast.loops = BeamLayers(rounded.stack, 6)
    for _ in range(3):
        ids_B = torch.randint(2, V, (6,), device=DEVICE)
        near(fast.read(ids_B, 8), plain.read(ids_B, 8))
        rows_B = torch.tensor([2, 0, 0, 3, 5, 4], device=DEVICE)
        fast.reorder(rows_B), plain.reorder(rows_B)
    fast.most = plain.most = 4
    kept, expected = fast.state().window.cache, plain.state().window.cache
    near(kept.k_LBHSK[:, :, :, :4].float(), expected.k_LBHSK[:, :, :, :4])
    assert torch.equal(kept.tokens_BS, expected.tokens_BS)


@gpu
def test_a_beam_search_by_kernels_finds_what_plain_steps_find(monkeypatch: pytest.MonkeyPatch) -> None:
    from segue.layers import beams_gpu

    torch.manual_seed(0)
    config = Transformer.Config(layers=1, width=16, heads=1, feed=16, context=CONTEXT)
    model = Transformer(config, Sizes(V)).to(DEVICE).eval().requires_grad_(False)
    source = torch.randint(2, V, (2, 4), device=DEVICE)
    given = ([[], []], Sizes(V), Config(beam=2, max_tokens=4), source, None, DEVICE)
    expected = decode.generate(SimpleNamespace(start=model.start, step=model.step), *given)
    asked: list[int] = []
    best = beams_gpu.best_ids

    def counted(*given: Any) -> tuple[Tensor, Tensor]:
        asked.append(len(given))
        return best(*given)

    monkeypatch.setattr(beams_gpu, "best_ids", counted)
    monkeypatch.setattr(decode, "may_record", lambda model, device: isinstance(model, Transformer))
    monkeypatch.setattr(cuda_graphs, "_LONG", 0)
    texts = decode.generate(model, *given)
    assert asked and [text.ids for text in texts] == [text.ids for text in expected]


@gpu
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes log 0 and NaN with numpy
@pytest.mark.parametrize("vocab_size", [6, 2_500])
def test_best_ids_are_those_of_plain_torch(vocab_size: int) -> None:
    from segue.layers import best_ids
    from segue.layers.beams_gpu import best_ids as by_kernels

    torch.manual_seed(0)
    logits_BV, forbid = 5 * torch.randn(5, vocab_size, device=DEVICE), torch.tensor([0, 3], device=DEVICE)
    logits_BV[1, 4:] = -torch.inf
    logits_BV[2] = -torch.inf
    logits_BV[3, 1] = torch.nan
    logp_BN, ids_BN = by_kernels(logits_BV, 4, forbid)
    expected_BN, known_BN = best_ids.best_ids(logits_BV.double(), 4, forbid)
    torch.testing.assert_close(logp_BN.double(), expected_BN, atol=1e-5, rtol=0, equal_nan=True)
    assert torch.equal(ids_BN[[0, 4]], known_BN[[0, 4]]) and torch.equal(ids_BN[1, :2], known_BN[1, :2])


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
