"""The states of a frozen body, computed once for every row: an epoch then costs no more than the head.

They are a column of the store, `hidden`, beside the ids. Whether they are kept follows from the data and the recipe
alone, so that a run that goes on reads the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from segue.batches.rows import Collate
from segue.batches.store import Column, Store
from segue.data.atomic import atomic_file
from segue.models.heading import Heading
from segue.training.cuda import precision
from segue.training.world import World

NAME = "hidden"
MOST = 4 << 30
"""Bytes that are kept at the most; the states of more rows are computed anew in every epoch."""
_TOKENS = 1 << 13
"""Tokens that the body reads at once, padding included."""

Ints = NDArray[np.int64]


def keep_states(
    model: Any, store: Store, collate: Collate, device: str, world: World, done: Callable[[float], None]
) -> None:
    """Add the states of every row to a store, if the model has a frozen body."""
    if NAME in store.columns or not isinstance(model, Heading) or not model.config.frozen:
        return
    counts_N = model.states_in(store.columns)
    width = model.body.width * (model.body.depth if model.mix is not None else 1)
    if counts_N is None or not 0 < 4 * width * int(counts_N.sum()) <= MOST:
        return
    ends_N, facts = np.cumsum(counts_N), {"width": width, "states": int(counts_N.sum())}
    file, note = store.folder / f"{NAME}.ids", store.folder / f"{NAME}.json"
    if world.first and not (note.exists() and json.loads(note.read_text()) == facts):
        note.unlink(missing_ok=True)
        flat = np.memmap(file, np.float32, "w+", shape=(facts["states"], width))
        _compute(model, store, collate, device, flat, ends_N - counts_N, counts_N, done)
        flat.flush()
        with atomic_file(note) as beside:
            beside.write_text(json.dumps(facts))
    world.wait()
    store.columns[NAME] = Column(np.memmap(file, np.float32, "r"), ends_N, width)


@torch.inference_mode()
def _compute(
    model: Heading, store: Store, collate: Collate, device: str, flat: Any, begins_N: Ints, counts_N: Ints, done: Any
) -> None:
    """Let the body read all rows, those of about the same length together, and write their states to their places."""
    model.eval()
    lengths, seen = store.columns["text"].lengths(), 0
    for rows in _groups(lengths):
        with precision(device):
            hidden_LBND = model.read(collate(store.take(rows)).to(device))
        hidden_BND = hidden_LBND.movedim(0, 2).flatten(2).float().cpu().numpy()
        for hidden_ND, row in zip(hidden_BND, rows.tolist(), strict=True):
            flat[begins_N[row] : begins_N[row] + counts_N[row]] = hidden_ND[: counts_N[row]]
        seen += len(rows)
        done(seen / len(store))


def _groups(lengths: Ints) -> Iterator[Ints]:
    """Yield rows to be read together, the shortest first."""
    order = np.argsort(lengths, kind="stable")
    while len(order):
        widths = np.maximum(1, lengths[order])
        count = max(1, int((widths * np.arange(1, len(order) + 1) <= _TOKENS).sum()))
        yield order[:count]
        order = order[count:]
