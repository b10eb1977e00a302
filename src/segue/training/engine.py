"""What makes a step fast on a GPU, and is nothing elsewhere: half precision, compiled regions, the step as one graph.

On CUDA matrices are multiplied in bfloat16, the weights and sums stay in float32. Modules that a model names in
`regions` are compiled one by one: seconds, where the whole model would take a minute, and all layers of a kind share
what was compiled. A step whose shapes are always the same (language models that carry no state) is then recorded once
as a CUDA graph, forward, backward, clipping and update together, and replayed: one launch in place of hundreds.

What cannot be compiled runs as it is written, and torch says so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from segue.batches.batch import Batch

WARM = 3
"""Steps that run as they are written before a graph is recorded: kernels are chosen and memory is found in them."""
_AHEAD = 32
"""Batches on their way to the device at a time."""


def precision(device: str) -> AbstractContextManager[Any]:
    """bfloat16 for matrices on CUDA; nothing elsewhere."""
    return torch.autocast("cuda", torch.bfloat16) if device.startswith("cuda") else nullcontext()


def compile_regions(model: Any, device: str, shape: tuple[int, int]) -> None:
    """Has what the model names in `regions` compiled at its first use, on CUDA, for batches of one shape."""
    if not device.startswith("cuda"):
        return
    import torch._dynamo

    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is written, with a warning
    for region in getattr(model, "regions", ()):
        region.compile(dynamic=False)
        model.compiled = shape


class Graph:
    """One step, recorded on the device and replayed on other batches of the same shape."""

    def __init__(self, batch: Batch, step: Callable[[Batch], None]) -> None:
        """Records `step`, which must do nothing but queue work on the device."""
        arrays = (batch.tokens_BT, batch.targets, batch.mask_BT)
        self.batch = Batch(*(torch.from_numpy(array).cuda() for array in arrays))
        self._ring = [tuple(torch.from_numpy(array).pin_memory() for array in arrays[:2]) for _ in range(_AHEAD)]
        self._sent = [torch.cuda.Event() for _ in range(_AHEAD)]  # type: ignore[no-untyped-call]
        self._turn = 0
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            step(self.batch)

    def fits(self, batch: Batch) -> bool:
        return bool(batch.tokens_BT.shape == self.batch.tokens_BT.shape)

    def replay(self, batch: Batch) -> None:
        self._turn = (self._turn + 1) % _AHEAD
        self._sent[self._turn].synchronize()  # its last batch has left
        for place, staged, array in zip(
            (self.batch.tokens_BT, self.batch.targets),
            self._ring[self._turn],
            (batch.tokens_BT, batch.targets),
            strict=True,
        ):
            staged.copy_(torch.from_numpy(array))
            place.copy_(staged, non_blocking=True)
        self._sent[self._turn].record()
        self.graph.replay()


def may_record(model: Any, device: str) -> bool:
    """Whether every step of a model is the same work on other numbers."""
    return device.startswith("cuda") and model.task == "lm" and "fresh_B" not in model.inputs
