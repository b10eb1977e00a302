"""What makes a step fast on a GPU, and is nothing elsewhere: half precision, compiled regions, the step as one graph.

On CUDA matrices are multiplied in bfloat16, the weights and sums stay in float32. A step of running text is recorded as
a CUDA graph, once for each length, forward, backward, clipping and update together, and replayed: one launch in place
of hundreds. In runs that are long enough, modules that a model names in `regions` are compiled one by one: seconds,
where the whole model would take a minute, and all layers of a kind share what was compiled.

What cannot be compiled or recorded runs as it is written, and that is said once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from segue.batches.batch import Batch

WARM = 3
"""Steps that run as they are written before a graph is recorded: kernels are chosen and memory is found in them."""
_AHEAD = 32
"""Batches on their way to the device at a time."""
PACE = 20
"""Steps by which it is judged how long a run will take."""
LONG = 40.0
"""Seconds that are worth compiling."""
MOST = 64
"""Shapes that are recorded; the steps of others run as they are written."""


def precision(device: str) -> AbstractContextManager[Any]:
    """bfloat16 for matrices on CUDA; nothing elsewhere."""
    return torch.autocast("cuda", torch.bfloat16) if device.startswith("cuda") else nullcontext()


def prepare(device: str) -> None:
    """On CUDA, matrices that stay in float32 may be multiplied with fewer digits (TF32)."""
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")


class Compiler:
    """Has what a model names in `regions` compiled, on CUDA, for batches of one shape, once that pays.

    It takes some ten seconds, and nearly halves a step: a run that has less than LONG to go is done sooner without.
    """

    def __init__(self, model: Any, device: str, shape: tuple[int, int]) -> None:
        self.model, self.shape = model, shape
        self.waits = device.startswith("cuda") and bool(model.regions)
        """Whether it has not yet been decided."""
        self._first: tuple[int, float] | None = None

    def pays(self, step: int, seconds: float, left: Callable[[float], float]) -> bool:
        """Decides, once, at the pace of some steps; `left` is how long the run will take at so many seconds a step."""
        if self._first is None:
            self._first = step, seconds
        if step - self._first[0] < PACE:
            return False
        self.waits = False
        return left((seconds - self._first[1]) / (step - self._first[0])) > LONG

    def compile(self) -> None:
        """At the first use of each region."""
        import torch._dynamo

        torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is written, with a warning
        for region in self.model.regions:
            region.compile(dynamic=False)
        self.model.compiled = self.shape


class Graphs:
    """One step, recorded on the device for every shape of batch, and replayed on others of that shape.

    `step(batch, carried) -> carried` does nothing but queue work on the device; one that is seen to wait for it is not
    recorded. What is carried from step to step has one place, which all graphs read and write. They share their memory,
    for nothing else of a step outlives it.
    """

    def __init__(self) -> None:
        self.waits = False
        """Whether a step has waited for the device."""
        self._graphs: dict[Any, _Graph] = {}
        self._met: set[Any] = set()
        self._pool: Any = None
        self._carried: list[Any] = []

    def run(self, batch: Batch, carried: list[Any], step: Callable[[Batch, list[Any]], list[Any]]) -> list[Any]:
        """The step on this batch; what is then carried."""
        shape = batch.tokens_BT.shape
        if shape not in self._graphs and (self.waits or shape not in self._met or len(self._graphs) == MOST):
            self._met.add(shape)  # kernels are chosen and memory is found in it
            placed = batch.to("cuda")
            with nullcontext() if self.waits else self._watched():
                return step(placed, carried)
        carried = self._placed(carried)
        if shape not in self._graphs:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            self._graphs[shape] = _Graph(batch, lambda placed: _write(step(placed, carried), carried), self._pool)
        self._graphs[shape].replay(batch)
        return carried

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Sees whether what is done in here waits for the device. A recording that fails for that cannot be undone."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            found.clear()  # torch says that this mode is new
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode("default")
        for one in found:
            if "synchronizing CUDA operation" not in str(one.message):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
            elif not self.waits:
                self.waits, where = True, f"{one.filename}:{one.lineno}"
                warnings.warn(
                    f"A step waits for the GPU ({where}): it cannot be recorded, and is slower.", stacklevel=2
                )

    def _placed(self, carried: list[Any]) -> list[Any]:
        """What is carried, in the place where the graphs look for it."""
        if carried is not self._carried:
            if self._carried:
                _write(carried, self._carried)
            else:
                self._carried = carried
        return self._carried


def _write(new: list[Any], place: list[Any]) -> None:
    for theirs, ours in zip(new, place, strict=True):
        for name, tensor in ours.tensors().items():
            tensor.copy_(theirs.tensors()[name])


class _Graph:
    """A step that is recorded."""

    def __init__(self, batch: Batch, step: Callable[[Batch], None], pool: Any) -> None:
        self.batch = batch.to("cuda")
        arrays = self._arrays(batch)
        self._ring = (
            [] if _is_held(batch) else [[torch.from_numpy(a).pin_memory() for a in arrays] for _ in range(_AHEAD)]
        )
        self._sent = [torch.cuda.Event() for _ in range(_AHEAD)]  # type: ignore[no-untyped-call]
        self._turn = 0
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            step(self.batch)

    def _arrays(self, batch: Batch) -> list[Any]:
        return [part for part in (batch.tokens_BT, batch.targets, batch.fresh_B) if part is not None]

    def replay(self, batch: Batch) -> None:
        if _is_held(batch):
            for place, found in zip(self._arrays(self.batch), self._arrays(batch), strict=True):
                place.copy_(found)
        else:
            self._send(batch)
        self.graph.replay()

    def _send(self, batch: Batch) -> None:
        """From the host, while the step before still runs."""
        self._turn = (self._turn + 1) % _AHEAD
        self._sent[self._turn].synchronize()  # its last batch has left
        for place, staged, array in zip(
            self._arrays(self.batch), self._ring[self._turn], self._arrays(batch), strict=True
        ):
            staged.copy_(torch.from_numpy(array))
            place.copy_(staged, non_blocking=True)
        self._sent[self._turn].record()


def _is_held(batch: Batch) -> bool:
    """Whether the batch was made on the device."""
    return isinstance(batch.tokens_BT, Tensor)


def may_record(model: Any, device: str) -> bool:
    """Whether every step of a model is the same work on other numbers: running text, no token of it padding."""
    return device.startswith("cuda") and model.task == "lm"
