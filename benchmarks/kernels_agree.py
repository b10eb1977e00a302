"""The Triton kernels of layers/one_token_gpu.py against plain torch: layers at every kind of position, draws, the loss.

    PYTHONPATH=src python3 benchmarks/kernels_agree.py
    TRITON_INTERPRET=1 PYTHONPATH=src python3 benchmarks/kernels_agree.py     without a GPU; needs Triton, takes minutes

On a GPU weights are bfloat16, against a reference in float32: differences of some hundredths of a logit are rounding.
Interpreted they are float32, and differences must be near 1e-6. Draws must be the same ids.
"""

from __future__ import annotations

import copy
import os
from importlib.util import find_spec

import torch
from torch import Tensor

from segue.inference.cuda_graphs import BROKEN, DEAD
from segue.inference.decode import _pick
from segue.inference.decode_settings import Config
from segue.layers import losses
from segue.models.base import Sizes
from segue.models.gpt import Gpt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
POSITIONS = ("none", "onehot", "sinusoidal", "learned", "relative", "rotary")
VOCABULARY, CONTEXT = 97, 96


@torch.inference_mode()
def layers(position: str, rows: int, length: int) -> float:
    """The largest difference of a logit over some steps after a prompt."""
    from segue.layers.one_token_gpu import Layers

    shape = {"layers": 2, "width": CONTEXT, "heads": 3, "context": CONTEXT}
    model = Gpt(Gpt.Config(**shape, position=position), Sizes(VOCABULARY)).to(DEVICE).eval()  # type: ignore[arg-type]
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    half = copy.deepcopy(model)
    for parameter in half.parameters():
        parameter.data = parameter.data.to(DTYPE)
    ids_BT = torch.randint(2, VOCABULARY, (rows, length), device=DEVICE)
    prompt_BT = ids_BT[:, :3]
    _, state = model.step(prompt_BT, torch.ones_like(prompt_BT, dtype=torch.bool), model.start(rows, CONTEXT))
    keys, values, places_B = state.cache.k_LBHSK.to(DTYPE), state.cache.v_LBHSK.to(DTYPE), state.length_B.clone()
    one_token, fast, worst = model.one_token(state), Layers(half.stack), 0.0
    one_token.loops = None
    for t in range(3, length):
        expected_BV = one_token.feed(ids_BT[:, t])
        _, found_BV = fast(ids_BT[:, t], places_B, keys, values)
        places_B += 1
        worst = max(worst, float((expected_BV - found_BV).abs().max()))
    return worst


def draws(vocab_size: int, temperature: float, rows: int) -> int:
    """Ids that differ, of some."""
    from segue.layers.one_token_gpu import draw

    logits_BV = 5 * torch.randn(rows, vocab_size, device=DEVICE)
    forbid, wrong = torch.tensor([0, 1], device=DEVICE), 0
    for _ in range(3):
        uniform_BN = torch.rand(rows, 4, dtype=torch.float64, device=DEVICE)
        column_B, next_B = torch.full((2, rows), 2, device=DEVICE)
        ids_BN, logp_BN = torch.zeros(rows, 4, dtype=torch.long, device=DEVICE), torch.zeros(rows, 4, device=DEVICE)
        draw(logits_BV, uniform_BN, column_B, ids_BN, logp_BN, next_B, forbid, temperature, BROKEN, DEAD)
        expected_B, _ = _pick(logits_BV, uniform_BN[:, 2], forbid, Config(temperature=temperature))
        wrong += int((expected_B != ids_BN[:, 2]).sum()) + int((next_B != expected_B).sum())
    return wrong


def slopes() -> tuple[float, float]:
    """The difference of a loss, and the largest of its slopes."""
    from segue.layers import loss_gpu

    logits_NV: Tensor = 3 * torch.randn(6, 200, device=DEVICE).to(DTYPE)
    targets_N = torch.tensor([0, 5, 189, losses.IGNORE, 7, 100], device=DEVICE)
    expected = losses._slopes(logits_NV.clone(), targets_N, 190)
    found = loss_gpu.slopes(logits_NV.clone(), targets_N, 190)
    return float((expected[0] - found[0]).abs()), float((expected[1].float() - found[1].float()).abs().max())


def main() -> None:
    if find_spec("triton") is None or (DEVICE == "cpu" and "TRITON_INTERPRET" not in os.environ):
        print("skipped: there is no GPU here, nor Triton's interpreter (TRITON_INTERPRET=1)")
        return
    torch.manual_seed(0)
    print(torch.cuda.get_device_name() if DEVICE == "cuda" else "interpreted", torch.__version__)
    rows, length = ((1, 5, 32), 40) if DEVICE == "cuda" else ((1, 5), 6)
    for position in POSITIONS:
        worst = ", ".join(f"{layers(position, count, length):.1e} of {count}" for count in rows)
        print(f"layers, {position}: largest difference of a logit {worst} rows", flush=True)
    wrong = sum(draws(size, t, count) for size in (5, 3_000) for t in (1.0, 0.7, 1e-3) for count in (1, 7))
    print(f"draws: {wrong} ids differ")
    print("loss and slopes: differences {:.1e} and {:.1e}".format(*slopes()))


if __name__ == "__main__":
    main()
