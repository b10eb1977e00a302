"""How far training has moved the weights of a network that began from another run, part by part.

change of a part = ||W - W_0|| / ||W_0||      over all its weights; 0: as they were, 1: moved by their own length
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_OF_TORCH = re.compile(r"_l(\d+)(_reverse)?$")
"""torch's recurrent layers are numbered at the end of a name: weight_ih_l0."""
_SAID = {"feed": "feed-forward", "cross": "cross-attention"}


def weight_change(now: Iterable[tuple[str, Tensor]], before: Path, inside: str = "") -> dict[str, Any]:
    """Compare weights with those in a file, where they have the same name and shape: the change of all together, and of
    each part, in the order of the network. `inside`: the names now begin with this ("body.")."""
    from safetensors import safe_open

    sums: dict[str, Tensor] = {}
    with safe_open(before, framework="pt") as old:
        known = set(old.keys())
        for name, weight in now:
            first = name.removeprefix(inside)
            if not name.startswith(inside) or first not in known:
                continue
            w0, w = old.get_tensor(first).double(), weight.detach().cpu().double()
            if w0.shape == w.shape:
                squares = torch.stack([(w - w0).square().sum(), w0.square().sum()])
                sums[part_of(first)] = sums.get(part_of(first), torch.zeros(2, dtype=torch.float64)) + squares
    parts = [{"part": part, "change": _ratio(squares)} for part, squares in sums.items()]
    return {"all": _ratio(sum(sums.values(), torch.zeros(2, dtype=torch.float64))), "parts": parts}


def _ratio(squares: Tensor) -> float:
    """The root of the first over the second; what began as 0 and is no longer has no ratio, and counts as 1."""
    moved, length = squares.tolist()
    return float((moved / length) ** 0.5) if length else float(moved > 0)


def part_of(name: str) -> str:
    """Name the part of a network that a weight belongs to: "vectors", "layer 2 attention" (with its norm), "pooler"."""
    words = name.removeprefix("body.").split(".")
    place = next((i for i, word in enumerate(words) if i and word.isdigit()), None)
    if place is not None:
        stack = {"blocks": "layer", "layers": "layer"}.get(words[place - 1], words[place - 1])
        inner = words[place + 1].removeprefix("norm_") if len(words) > place + 2 else ""
        return f"{stack} {int(words[place]) + 1} {_SAID.get(inner, inner)}".strip()
    if found := _OF_TORCH.search(name):
        return f"layer {int(found[1]) + 1}"
    return words[0].replace("_", " ")
