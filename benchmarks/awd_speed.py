"""The AWD-LSTM of PTB (3 layers, 1,150 wide, 80 rows of 70 words), all its regularisers on, trains at no less than the
words per second of a bare cuDNN loop of the same shape in bfloat16, in the same run, on one GPU.

    PYTHONPATH=src python3 benchmarks/awd_speed.py

The bare loop has embedding, three nn.LSTM, tied output, cross-entropy, clipping, SGD and carried state, and no
regulariser at all. Ours goes the whole way of a run, and records its steps as CUDA graphs; the last line of figures is
the bare loop recorded as well: what the card can do without our regularisers and sums in float32.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batches import Config as Layout
from segue.batches.store import StoreWriter
from segue.batches.streams import Streams
from segue.models.base import Sizes
from segue.models.rnn_lm import Drop, Penalty, RnnLm
from segue.training.rates import Config as Optimizer
from segue.training.trainer import Config, Trainer

WORDS, ROWS, LENGTH, WIDTHS = 10_002, 80, 70, (400, 1150, 1150, 400)
STEPS, PAIRS = 40, 5


class Bare(nn.Module):
    """torch's own modules in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding(WORDS, WIDTHS[0])
        self.layers = nn.ModuleList(nn.LSTM(into, out, batch_first=True) for into, out in pairwise(WIDTHS))
        self.head = nn.Linear(WIDTHS[-1], WORDS)
        self.head.weight = self.vectors.weight

    def forward(self, tokens: Tensor, state: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        x, ends = self.vectors(tokens), []
        for layer, begin in zip(self.layers, state, strict=True):
            x, end = layer(x, begin)
            ends.append(end)
        return self.head(x), ends


def bare_step() -> Callable[[], None]:
    model = Bare().to("cuda", torch.bfloat16)
    for layer in model.layers:
        layer.flatten_parameters()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, fused=True)
    text = torch.randint(0, WORDS, (ROWS, LENGTH + 1), device="cuda")
    state = [tuple(torch.zeros(2, 1, ROWS, w, device="cuda", dtype=torch.bfloat16)) for w in WIDTHS[1:]]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        logits, ends = model(text[:, :-1], state)
        F.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        for places, values in zip(state, ends, strict=True):
            for place, value in zip(places, values, strict=True):
                place.copy_(value.detach())

    return step


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def our_step(folder: Path) -> Callable[[], None]:
    writer = StoreWriter(folder, {"text": "uint16"})
    writer.append("text", np.random.default_rng(0).integers(0, WORDS, 930_000))
    batches = Streams(writer.close(), Layout(ROWS, LENGTH), seed=0)
    drop = Drop(words=0.1, input=0.4, between=0.25, output=0.4, weights=0.5)
    config = RnnLm.Config(layers=3, width=1150, embedding=400, tied=True, penalty=Penalty(2.0, 1.0), drop=drop)
    model = RnnLm(config, Sizes(WORDS)).cuda()
    sgd = Optimizer(name="sgd", rate=1.0, momentum=0.0, clip=0.25, schedule="constant", warmup=0)
    train = Config(steps=10**6, every=10**6, log_every=1, optimizer=sgd)
    records: Iterator[object] = Trainer(model, batches, train, None, "cuda").fit()
    return lambda: next(records, None)  # type: ignore[return-value]


def seconds(step: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / STEPS


def main() -> None:
    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    torch.set_float32_matmul_precision("high")
    print(f"{date.today()}, {torch.cuda.get_device_name()}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        steps = {"bare, bfloat16": bare_step(), "segue": our_step(Path(folder) / "store")}
        for step in steps.values():
            seconds(step)  # warm
        times = {name: [] for name in steps}
        for _ in range(PAIRS):
            for name, step in steps.items():
                times[name].append(seconds(step))
        limit = seconds(recorded(bare_step()))
    words = ROWS * LENGTH
    for name, found in times.items():
        print(f"{name}: {words / statistics.median(found) / 1e3:.0f} k words/s")
    print(f"bare, recorded as a graph: {words / limit / 1e3:.0f} k words/s")
    ratio = statistics.median(a / b for a, b in zip(times["bare, bfloat16"], times["segue"], strict=True))
    print(f"segue / bare: {ratio:.2f}")


if __name__ == "__main__":
    main()
