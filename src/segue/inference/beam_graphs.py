"""Beam search on a GPU: a whole step (ranking, moving the beams, layers, logits) recorded once as a CUDA graph.

As in cuda_graphs.py, everything that a graph reads and writes belongs to one object, which lives as long as the graph.
Rows that are done stay where they are; the host looks every few steps whether all are. Attention reads the places of
the cache that are filled, rounded up to a power of two, and those of the source likewise: one graph for each.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.batches.state import OneToken, State
from segue.inference.beam import Beams, Generated, begin, divided
from segue.inference.cuda_graphs import Recorder, record
from segue.inference.decode_settings import Config

if TYPE_CHECKING:
    from segue.inference.decode import Rows

_LEAST = 32
"""Fewer places, of a text or of its source, are not worth a graph of their own."""
_LOOK = 8
"""Steps between two looks whether all rows are done."""


def rounded(places: int) -> int:
    """So many places or more: a power of two, so that many texts share a graph."""
    return max(_LEAST, 1 << (places - 1).bit_length())


def padded(source: Tensor, source_mask: Tensor | None, most: int) -> tuple[Tensor, Tensor]:
    """Sources and their mask with as many places as graphs are recorded for, but no more than a model reads (0: any
    number)."""
    mask = torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask
    length = source.shape[1]
    more = max(0, (min(most, rounded(length)) if most else rounded(length)) - length)
    return F.pad(source, (0, more)), F.pad(mask, (0, more))


class RecordedBeams:
    """The steps of a beam search over some rows, and all memory that they read and write. Off CUDA it runs without a
    graph."""

    steps = 0
    """Steps since it was lent."""

    def __init__(self, key: Hashable, model: Any, beams: Beams, logits_BV: Tensor, fast: bool) -> None:
        """`fast`: by kernels."""
        self.key, self.model, self.beams, self.fast = key, model, beams.copy(), fast
        if fast:
            self.beams.best = _kernels().best_ids
        self.logits_BV = torch.empty_like(logits_BV)
        self._now: tuple[OneToken, Any, int]
        """The model's step of one token, its graph, and places of the cache (0: it has no window)."""
        self._made: dict[int, tuple[OneToken, Any, int]] = {}

    def begin(self, beams: Beams, state: State, logits_BV: Tensor) -> None:
        """Go on from this state, in which each row of `beams` stands so many times as a beam is wide."""
        self.beams.take(beams)
        self.logits_BV.copy_(logits_BV)
        self._take(state)

    def run(self, most: int) -> Beams:
        """Step until every row is done, or so many tokens are written."""
        for written in range(1, most):
            self._step()
            if written % _LOOK == 0 and bool(self.beams.done_R.all()):
                return self.beams
        self.beams.step(self.logits_BV)  # what is written last is not read
        return self.beams

    def _step(self) -> None:
        one_token, graph, places = self._now
        if places and one_token.most == places:
            self._take(one_token.state())
            one_token, graph, places = self._now
        graph.replay() if graph is not None else self._ranked_and_read(one_token, places)
        one_token.most += 1
        self.steps += 1

    def _ranked_and_read(self, one_token: OneToken, places: int) -> None:
        """What is recorded."""
        step = self.beams.step(self.logits_BV)
        one_token.reorder(step.slots_B)
        self.logits_BV.copy_(one_token.read(step.ids_B, places))

    def _take(self, state: State) -> None:
        """Go on from a state in memory that has room for another token."""
        window: int = self.model.window
        places = min(window, rounded(state.most + 1))
        if places not in self._made:
            one_token = self.model.one_token(state, places)
            if self.fast:
                one_token.loops = _kernels().BeamLayers(self.model.stack, len(self.logits_BV))
            self._made[places] = one_token, self._recorded(one_token, state, places), places
        self._now = self._made[places]
        self._now[0].take(state)

    def _recorded(self, one_token: OneToken, state: State, places: int) -> Any:
        if not self.logits_BV.is_cuda:
            return None
        beams, logits_BV = self.beams.copy(), self.logits_BV.clone()

        def begin() -> None:
            self.beams.take(beams)
            self.logits_BV.copy_(logits_BV)
            one_token.take(state)

        graph = record(begin, lambda: self._ranked_and_read(one_token, places), self.logits_BV.device, must=self.fast)
        begin()
        return graph


def _kernels() -> Any:
    from segue.layers import beams_gpu

    return beams_gpu


def search_recorded(rows: Rows, config: Config, recorder: Recorder) -> list[list[Generated]]:
    """The best texts of each row, best first, by recorded steps."""
    beams = begin(rows, config, rounded(max(rows.limits)))
    settings = replace(config, seed=0, max_tokens=1, prefix="", stop=())
    key = (beams.shape, rows.state.source_places, settings, tuple(rows.forbid.tolist()))
    found = _begun(rows, beams, recorder, key)
    try:
        ended = found.run(max(rows.limits))
        divided(ended)
        return ended.found(range(len(rows.limits)))
    finally:
        recorder.give_back(found)


def _begun(rows: Rows, beams: Beams, recorder: Recorder, key: Hashable) -> RecordedBeams:
    """Recorded steps that go on from these rows; by kernels if they can be compiled."""
    fit = recorder.has_kernels(lambda: _kernels().BeamLayers.fit(recorder.model.stack, len(rows.logits_BV)))
    for fast in (True, False) if fit else (False,):
        own = (key, fast)
        make = partial(RecordedBeams, own, recorder.model, beams, rows.logits_BV, fast)
        try:
            found = recorder.borrow(own, make)
            found.begin(beams, rows.state, rows.logits_BV)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            if not fast:
                raise
            recorder.without_kernels(error)
        else:
            break
    return found
