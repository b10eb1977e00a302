"""What makes a training step fast on a GPU: mixed precision, torch.compile, CUDA graphs. No effect on a CPU.

Mixed precision multiplies matrices in bfloat16; weights and sums stay in float32. If batches have few shapes, a step
(forward, backward, clipping and update) is recorded as a CUDA graph, once for each shape, and replayed: one launch
instead of hundreds. In long runs the modules in a model's `regions` are compiled one by one: that takes seconds, where
the whole model would take a minute, and all layers of a kind share the compiled code.

A step that cannot be compiled or recorded runs eagerly, with one warning.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segue.batches.batch import Batch
from segue.batches.batches import Batches
from segue.batches.rows import Rows

Step = Callable[[Batch, Mapping[str, Any], list[Any]], list[Any]]
"""step(batch, counts, carried) -> carried; counts are the denominators of the loss, by the names of its terms."""
WARM = 3
"""Steps that run eagerly before a graph is recorded: torch chooses kernels and finds memory in them."""
_AHEAD, _PINNED = 32, 1 << 25
"""Batches that may be in transfer to the device at a time, and about the most bytes that those of a shape may have:
sound and pictures are larger than text."""
PACE = 20
"""Steps timed to predict the run's length."""
LONG = 40.0
"""Compile only if more seconds than this remain."""
FEW = 4
"""Compile for at most this many shapes of rows."""
MOST = 64
"""Record at most this many shapes; steps of other shapes run eagerly."""


def precision(device: str) -> AbstractContextManager[Any]:
    """Mixed precision: multiply matrices in bfloat16 on CUDA; do nothing elsewhere."""
    return torch.autocast("cuda", torch.bfloat16) if device.startswith("cuda") else nullcontext()


def prepare(device: str) -> None:
    """Allow TF32 on CUDA, for matrices that stay in float32."""
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")


class Compiler:
    """Compiles the `regions` of a model, on CUDA, for batches of one shape, if the run is long enough.

    Compiling takes some ten seconds and nearly halves the time of a step, so a run with less than LONG seconds to go
    ends sooner without it. Rows of many shapes are not compiled for: each shape would be compiled anew, and code for
    any shape took longer to compile (a minute and more, seen on an H200) than it saved.
    """

    def __init__(self, model: Any, device: str, batches: Batches) -> None:
        self.model, self.shape = model, (batches.config.size, batches.config.length)
        few = not isinstance(batches, Rows) or (batches.shapes or MOST) <= FEW
        self.waits = device.startswith("cuda") and bool(model.regions) and few
        """Whether the decision is still open."""
        self._first: tuple[int, float] | None = None

    def pays(self, step: int, seconds: float, left: Callable[[float], float]) -> bool:
        """Decide, once, after PACE steps; `left(seconds a step)` returns the seconds that the run has to go."""
        if self._first is None:
            self._first = step, seconds
        if step - self._first[0] < PACE:
            return False
        self.waits = False
        return left((seconds - self._first[1]) / (step - self._first[0])) > LONG

    def compile(self) -> None:
        """Make torch compile each region at its next use."""
        import torch._dynamo

        torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs eagerly, with a warning
        for region in self.model.regions:
            region.compile(dynamic=False)
        self.model.compiled = self.shape


class Graphs:
    """CUDA graphs of one step: recorded once for every shape of batch, replayed on other batches of that shape.

    A step may only queue work on the device; a step that waits for the device is not recorded. The carried state has
    one place in memory, which all graphs read and write. The graphs share their other memory, since nothing else of a
    step outlives it.
    """

    def __init__(self) -> None:
        self.waits = False
        """Whether a step has waited for the device."""
        self._graphs: dict[Any, _Graph] = {}
        self._met: set[Any] = set()
        self._pool: Any = None
        self._carried: list[Any] = []

    def run(self, batch: Batch, counts: Mapping[str, int], carried: list[Any], step: Step) -> list[Any]:
        """Do the step on this batch; return the carried state after it."""
        key = shapes_of(batch)
        if key not in self._graphs and (self.waits or key not in self._met or len(self._graphs) == MOST):
            self._met.add(key)  # torch chooses kernels and finds memory in this one
            placed = batch.to("cuda")
            with nullcontext() if self.waits else self._watched():
                return step(placed, counts, carried)
        carried = self._placed(carried)
        if key not in self._graphs:
            self._pool = self._pool or torch.cuda.graph_pool_handle()

            def recorded(batch: Batch, counts: Mapping[str, Any]) -> None:
                _write(step(batch, counts, carried), carried)

            self._graphs[key] = _Graph(batch, counts, recorded, self._pool)
        self._graphs[key].replay(batch, counts)
        return carried

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Detect whether a step waits for the device: recording it would fail, and torch cannot recover from that."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            found.clear()  # drop torch's warning that this mode is a prototype
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode("default")
        for one in found:
            if "synchronizing CUDA operation" not in str(one.message):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
            elif not self.waits and "_inductor" not in one.filename:  # torch.compile waits while it compiles
                self.waits, where = True, f"{one.filename}:{one.lineno}"
                warnings.warn(
                    f"A step waits for the GPU ({where}): it cannot be recorded, and is slower.", stacklevel=2
                )

    def _placed(self, carried: list[Any]) -> list[Any]:
        """Copy the carried state to where the graphs read it."""
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


def shapes_of(batch: Batch) -> tuple[Any, ...]:
    """Return the shapes of all arrays of a batch, by name: a graph is valid for exactly these."""
    return (
        batch.unpadded,
        batch.source_unpadded,
        *((name, tuple(array.shape)) for name, array in batch.arrays().items()),
    )


def sent(batch: Batch, counts: Mapping[str, int]) -> list[Any]:
    """Return all that differs between replays: every array of the batch, and the counts.

    Batches of the same shape have different numbers of targets, so the counts cannot be constants of the graph. They
    are doubles, as in Python, so that a replayed step divides by them exactly as an eager one does.
    """
    return [*batch.arrays().values(), np.array([*counts.values()], np.float64)]


def ahead(parts: list[Any]) -> int:
    """Return how many batches like this one may be in transfer at a time: two at least."""
    size = sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
    return max(2, min(_AHEAD, _PINNED // max(1, size)))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage while a graph is recorded: to free the graphs of an earlier model then is an error."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Graph:
    """A recorded step, and the tensors that it reads its batch from."""

    def __init__(
        self,
        batch: Batch,
        counts: Mapping[str, int],
        step: Callable[[Batch, Mapping[str, Any]], None],
        pool: Any,
    ) -> None:
        self._batch = batch.to("cuda")
        self._counts = torch.tensor([*counts.values()], dtype=torch.float64, device="cuda")
        self._places = [*self._batch.arrays().values(), self._counts]
        parts = sent(batch, counts)
        self._ring = [
            [None if isinstance(part, Tensor) else torch.from_numpy(part).pin_memory() for part in parts]
            for _ in range(ahead(parts))
        ]
        """Pinned host copies in transfer; None for arrays that are on the device already."""
        self._left = [torch.cuda.Event() for _ in self._ring]  # type: ignore[no-untyped-call]
        self._turn = 0
        self.graph = torch.cuda.CUDAGraph()
        with _uncollected(), torch.cuda.graph(self.graph, pool=pool):
            step(self._batch, dict(zip(counts, self._counts.unbind(), strict=True)))

    def replay(self, batch: Batch, counts: Mapping[str, int]) -> None:
        """Send the batch while the previous step runs, then replay the step on it."""
        self._turn = (self._turn + 1) % len(self._ring)
        self._left[self._turn].synchronize()  # the last transfer from this buffer is done
        for place, staged, part in zip(self._places, self._ring[self._turn], sent(batch, counts), strict=True):
            if staged is None:
                place.copy_(part)
            else:
                staged.copy_(torch.from_numpy(part))
                place.copy_(staged, non_blocking=True)
        self._left[self._turn].record()
        self.graph.replay()


def may_record(batches: Batches, device: str) -> bool:
    """Whether to record steps: on CUDA, if the batches have few shapes, so that each comes again and again."""
    return device.startswith("cuda") and batches.shapes is not None and batches.shapes <= MOST
