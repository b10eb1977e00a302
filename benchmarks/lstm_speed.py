"""A 2-layer LSTM of width 256 over characters trains at no less than 0.9 of the tokens per second of a bare
torch.nn.LSTM loop of the same shape in the same run.

Ours goes the whole way of a run: batches from a store on disk, the trainer with its guard and its log. The peer is
the shortest loop that does the same work: Embedding, LSTM, Linear, cross-entropy, clipping, AdamW, carried state.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from segue.batches.batches import Config as Layout
from segue.batches.store import StoreWriter
from segue.batches.streams import Streams
from segue.models.base import Sizes
from segue.models.rnn_lm import RnnLm
from segue.training.trainer import Config, Trainer

WIDTH, LAYERS, ROWS, LENGTH = 256, 2, 32, 128
LEAST = 0.9


def corpus() -> tuple[NDArray[np.int64], int]:
    """Characters of Python's own reference as ids from 2, and the size of the vocabulary."""
    text = "\n".join(topics[name] for name in sorted(topics))
    letters, ids = np.unique(np.array(list(text)), return_inverse=True)
    return ids.astype(np.int64) + 2, len(letters) + 2


def ours(folder: Path, ids: NDArray[np.int64], vocab_size: int, steps: int) -> float:
    """Seconds for `steps` updates through the trainer."""
    writer = StoreWriter(folder, {"text": "uint16"})
    writer.append("text", ids)
    batches = Streams(writer.close(), Layout(ROWS, LENGTH), seed=0)
    model = RnnLm(RnnLm.Config(width=WIDTH, embedding=WIDTH, layers=LAYERS), Sizes(vocab_size))
    trainer = Trainer(model, batches, Config(steps=steps, every=steps), None, "cpu")
    begun = time.perf_counter()
    for _ in trainer.fit():
        pass
    return time.perf_counter() - begun


class Bare(nn.Module):
    """The same shape, with torch's own modules."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocab_size, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True)
        self.head = nn.Linear(WIDTH, vocab_size)


def bare(ids: NDArray[np.int64], vocab_size: int, steps: int) -> float:
    """Seconds for `steps` updates of the loop that one writes by hand."""
    columns = len(ids) // ROWS
    streams = torch.from_numpy(ids[: columns * ROWS].reshape(ROWS, columns))
    model = Bare(vocab_size)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.002, fused=True)
    state = None
    begun = time.perf_counter()
    for step in range(steps):
        window = streams[:, step * LENGTH : (step + 1) * LENGTH + 1]
        out, state = model.lstm(model.vectors(window[:, :-1]), state)
        state = (state[0].detach(), state[1].detach())
        loss = F.cross_entropy(model.head(out).flatten(0, 1), window[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="updates in one measurement")
    options = parser.parse_args()
    ids, vocab_size = corpus()
    tokens = ROWS * LENGTH * options.steps
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(-1, options.pairs):  # the first warms up, and is not counted
            if pair % 2:  # the order within a pair changes, so that a drift of the machine favours neither
                theirs, mine = bare(ids, vocab_size, options.steps), ours(Path(folder), ids, vocab_size, options.steps)
            else:
                mine, theirs = ours(Path(folder), ids, vocab_size, options.steps), bare(ids, vocab_size, options.steps)
            if pair >= 0:
                ratios.append(theirs / mine)
                print(f"pair {pair + 1}: ours {tokens / mine:,.0f} tokens/s, bare {tokens / theirs:,.0f} tokens/s")
    print(f"median ratio {statistics.median(ratios):.3f} (at least {LEAST} expected)")


if __name__ == "__main__":
    main()
