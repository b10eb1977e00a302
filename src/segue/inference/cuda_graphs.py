"""Generating text on a GPU: a whole time step (layers, logits, draw) recorded once as a CUDA graph, then replayed.

A step of one token is hundreds of small kernels, and launching them costs more than their work. A graph is one launch.
It always reads and writes the same memory, so that everything it touches belongs to one object, `Recorded`, which
lives as long as the graph: the copy of the weights, the KV cache or the recurrent state, the forbidden ids, the numbers
to draw by, and where what is drawn goes. The model's own `step` reads prompts, and the token at which a window is full;
their state is copied into that memory.

A Transformer's step takes about as long as reading its weights from memory: they are copied to bfloat16, again at each
call (a millisecond), since they may have been trained in between. Fixed tables, such as rotations, stay as they are;
logits and draws are in float32 and float64. Recurrent networks stay in float32: their state would lose precision.

Attention reads the places of the cache that are filled, rounded up to a power of two: one graph for each.
Graphs are kept for the next call, a few for each model; one graph serves one text at a time, so that two texts that are
generated in turns never share one. Kernels for one token a row (layers/one_token_gpu.py) more than halve the time of a
step, but take seconds to compile: a model gets them once it has generated for a while.
"""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from segue.batches.state import OneToken, State
from segue.layers.kv_cache import TransformerStep
from segue.layers.one_token import Stack, Stacked
from segue.models.base import LanguageModel

BLOCK = 32
"""Steps between two reads of what was drawn."""
_LEAST = 256
"""Fewer places are not worth a graph of their own."""
_LEAST_SOURCE = 32
"""Sources are padded to this many places or to a power of two above it: one graph for each."""
_KEPT = 6
"""Graphs of a model that are kept for their next use."""
_LONG = 2_000
"""Steps after which graphs are recorded again with kernels for one token, which take seconds to compile."""
_WARM = 3
"""Steps before a graph is recorded: kernels are chosen and loaded in them."""

Pick = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Ids (or DEAD, or BROKEN) and their log p from logits_BV and a uniform number of each row."""
Plain = tuple[Tensor, float] | None
"""Forbidden ids and temperature, where the whole distribution is drawn from (no top-k, top-p or greedy)."""
DEAD, BROKEN = -1, -2
"""In place of an id: no id is allowed; the logits are NaN or infinite."""


class Lent(Protocol):
    """Memory and the graphs that were recorded in it, lent by a recorder."""

    key: Hashable
    """What it was recorded for."""
    steps: int
    """Steps since it was lent."""


Kept = TypeVar("Kept", bound=Lent)


def may_record(model: Any, device: Any) -> bool:
    """Whether the model has a step that can be recorded, and is on a GPU."""
    return torch.device(device).type == "cuda" and isinstance(model, LanguageModel) and model.records


def recorder(model: nn.Module) -> Recorder:
    """The recorder of a model, with the weights that the model has now."""
    found = _recorders.get(model)
    if found is None or not found.fits(model):
        found = _recorders[model] = Recorder(model)
    found.refresh(model)
    return found


class Recorder:
    """A copy of a model to generate with, and the graphs recorded for it."""

    def __init__(self, model: nn.Module) -> None:
        with torch.inference_mode(False):
            self.model: Any = copy.deepcopy(model).eval().requires_grad_(False)
            for parameter in self.model.parameters() if isinstance(model, Stacked) else ():
                if parameter.is_cuda:
                    parameter.data = parameter.data.to(torch.bfloat16)
            for part in self.model.modules():
                if isinstance(part, nn.RNNBase):
                    part.flatten_parameters()  # cuDNN wants one block of memory, which the copy has not
        self.steps = 0
        """Steps taken so far."""
        self._version: list[tuple[int, int]] = []
        """Where each weight lay, and how often it had been changed, when it was copied."""
        self._kernels = find_spec("triton") is not None
        self._idle: OrderedDict[Hashable, list[Lent]] = OrderedDict()

    def fits(self, model: nn.Module) -> bool:
        """Whether the model is still on the same device."""
        return bool(next(self.model.parameters()).device == next(model.parameters()).device)

    def refresh(self, model: nn.Module) -> None:
        """Copy the weights, if they have been changed since the last time."""
        weights = list(model.parameters())
        known = not any(weight.is_inference() for weight in weights)  # of such nobody counts the changes
        version = [(weight.data_ptr(), weight._version) for weight in weights] if known else []
        if known and version == self._version:
            return
        self._version = version
        for own, theirs in zip(self.model.parameters(), weights, strict=True):
            own.copy_(theirs)

    def lend(
        self, state: State, rows: int, places: int, pick: Pick, settings: Hashable, plain: Plain = None
    ) -> Recorded:
        """A graph for so many rows and places; `settings` identify what `pick` does. `give_back` returns it."""
        for fast in (
            (True, False) if self.has_kernels(lambda: _layers(self.model.stack, rows) is not None) else (False,)
        ):
            key = (rows, places, state.source_places, settings, fast)
            make = partial(Recorded, self.model, state, rows, places, pick, fast, plain)
            try:
                found = self.borrow(key, make)
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:
                if not fast:
                    raise
                self.without_kernels(error)
            else:
                break
        found.key = key
        return found

    def borrow(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """One that waits under this key, or a new one."""
        waiting = self._idle.get(key)
        return cast(Kept, waiting.pop()) if waiting else make()

    def has_kernels(self, fit: Callable[[], bool]) -> bool:
        """Whether the model has been used for long, and there are kernels that fit it, and a compiler for them that has
        not failed."""
        return self.steps >= _LONG and self._kernels and isinstance(self.model, Stacked) and fit()

    def without_kernels(self, error: Exception) -> None:
        """Go on without kernels."""
        self._kernels = False
        warnings.warn(f"Kernels could not be compiled, and steps stay as they are: {error}", stacklevel=3)

    def give_back(self, recorded: Lent) -> None:
        self.steps, recorded.steps = self.steps + recorded.steps, 0
        self._idle.setdefault(recorded.key, []).append(recorded)
        self._idle.move_to_end(recorded.key)
        while sum(map(len, self._idle.values())) > _KEPT:
            key, waiting = next(iter(self._idle.items()))
            waiting.pop()
            if not waiting:
                del self._idle[key]


def _layers(stack: Stack, rows: int) -> Any:
    """The kernels that fit such a stack, those for few rows first; None: there are none."""
    from segue.layers.one_token_gpu import Layers

    if Layers.fit(stack, rows):
        return Layers
    from segue.layers.beams_gpu import BeamLayers

    return BeamLayers if BeamLayers.fit(stack, rows) else None


_recorders: WeakKeyDictionary[nn.Module, Recorder] = WeakKeyDictionary()


class Recorded:
    """One time step of some rows, and all memory that it reads and writes. Off CUDA it runs without a graph."""

    key: Hashable = None
    steps = 0
    """Steps since `lend`."""

    def __init__(
        self,
        model: Any,
        state: State,
        rows: int,
        places: int,
        pick: Pick,
        fast: bool = False,
        plain: Plain = None,
    ) -> None:
        """`places`: tokens of a window that there is memory for; 0: the model has no window."""
        self.model, self.places, self.pick = model, places, pick
        self.one_token: OneToken = model.one_token(state, places)
        device = next(model.parameters()).device
        self.uniform_BN = torch.zeros(rows, BLOCK, dtype=torch.float64, device=device)
        self.ids_BN = torch.zeros(rows, BLOCK, dtype=torch.long, device=device)
        self.logp_BN = torch.zeros(rows, BLOCK, dtype=torch.float32, device=device)
        self.next_B = torch.zeros(rows, dtype=torch.long, device=device)
        """The ids that were drawn last and are read next."""
        self.column_B = torch.zeros(rows, dtype=torch.long, device=device)
        """The column of `uniform_BN` and `ids_BN` that comes next, the same in all rows."""
        self.fast, self.plain = fast, plain
        if fast:
            assert isinstance(self.one_token, TransformerStep)
            self.one_token.loops = _layers(model.stack, rows)(model.stack, rows)
        self._graph = None
        if device.type == "cuda":
            self._graph = record(lambda: self._begin(state), self._step, device, must=fast)

    @property
    def room(self) -> int:
        """Steps that can be taken before the places are full."""
        return self.places - self.one_token.most if self.places else self.one_token.room

    def write(self, uniform_BN: Tensor, next_B: Tensor) -> tuple[Tensor, Tensor]:
        """N tokens of each row after `next_B`, for which there is room, and the log p of each."""
        steps = uniform_BN.shape[1]
        self.uniform_BN[:, :steps] = uniform_BN
        self.next_B.copy_(next_B)
        self.column_B.zero_()
        for _ in range(steps):
            self._step() if self._graph is None else self._graph.replay()
        self.one_token.most += steps
        self.steps += steps
        return self.ids_BN[:, :steps].clone(), self.logp_BN[:, :steps].clone()

    def _step(self) -> None:
        logits_BV = self.one_token.read(self.next_B, self.places)
        if self.fast and self.plain is not None:
            from segue.layers.one_token_gpu import draw

            drawn = (self.uniform_BN, self.column_B, self.ids_BN, self.logp_BN, self.next_B)
            draw(logits_BV, *drawn, *self.plain, BROKEN, DEAD)
            return
        column = self.column_B[:1]
        ids_B, logp_B = self.pick(logits_BV, self.uniform_BN.index_select(1, column)[:, 0])
        self.ids_BN.index_copy_(1, column, ids_B[:, None])
        self.logp_BN.index_copy_(1, column, logp_B[:, None])
        self.next_B.copy_(ids_B.clamp(min=0))
        self.column_B.add_(1)

    def _begin(self, state: State) -> None:
        self.one_token.take(state)
        self.next_B.zero_()
        self.column_B.zero_()


def record(
    begin: Callable[[], None], step: Callable[[], None], device: torch.device, must: bool = False
) -> torch.cuda.CUDAGraph | None:
    """Warm up and record a step on one stream, while nothing else runs; each step of the warm-up follows `begin`. None:
    it cannot be recorded, which is a warning, unless it `must`."""
    graph, stream = torch.cuda.CUDAGraph(), _stream(device)
    torch.cuda.synchronize()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            for _ in range(_WARM):
                begin()
                step()
            begin()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            step()
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if must:
            raise
        warnings.warn(f"A step could not be recorded, and runs eagerly: {error}", stacklevel=2)
        return None
    torch.cuda.synchronize()
    return graph


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _stream(device: torch.device) -> torch.cuda.Stream:
    """The one stream on which all graphs of a device are recorded: each stream keeps a workspace of its own."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _streams[device]


class Writer:
    """Generates some rows by recorded steps, as far as a window goes."""

    def __init__(self, recorder: Recorder, pick: Pick, settings: Hashable, plain: Plain = None) -> None:
        self.recorder, self.pick, self.settings, self.plain = recorder, pick, settings, plain
        self._lent: dict[int, Recorded] = {}
        self._now: Recorded | None = None

    def write(self, state: Any, uniform_BN: Tensor, next_B: Tensor) -> tuple[Tensor, Tensor]:
        """Some of the N tokens of each row: as many as there is room for; none if a window is full.

        `state` is None to go on after what was written before.
        """
        now = self._with_room(state, len(next_B))
        if now is None:
            return next_B.new_zeros(len(next_B), 0), uniform_BN.new_zeros(len(next_B), 0)
        return now.write(uniform_BN[:, : now.room], next_B)

    def state(self) -> Any:
        """A state that the model's own `step` can go on from."""
        assert self._now is not None
        return self._now.one_token.state()

    def _with_room(self, state: Any, rows: int) -> Recorded | None:
        if state is None and self._now is not None:
            if self._now.room:
                return self._now
            state = self._now.one_token.state()
        state = state.widened(max(_LEAST_SOURCE, 1 << (state.source_places - 1).bit_length()))
        places, window = self._places(state), self.recorder.model.window
        if window and places <= state.most:
            return None
        if places not in self._lent:
            self._lent[places] = self.recorder.lend(state, rows, places, self.pick, self.settings, self.plain)
        self._now = self._lent[places]
        self._now.one_token.take(state)
        return self._now

    def _places(self, state: State) -> int:
        """The least power of two with room for another token, if the window is as large; 0 without a window."""
        window: int = self.recorder.model.window
        return min(window, max(_LEAST, 1 << state.most.bit_length()))

    def close(self) -> None:
        for recorded in self._lent.values():
            self.recorder.give_back(recorded)
        self._lent, self._now = {}, None
