"""Time and memory against the length of the text, measured on this machine: a recurrent network and a Transformer.

    segue claim length

Two models with about as many weights read one row of random tokens, twice as long each time. Measured are

    step       seconds and peak memory of one training step: forward and backward
    writing    seconds to write so many tokens, one after the other, and the memory that is kept of them: the hidden
               state, or the KV cache

The Transformer's step is measured twice: as it runs, with torch's fused attention kernel, and by the equation, where
the matrix of attention weights is held in memory. A power law, figure = a · length^b, is fitted to the longer half of
the lengths, where fixed costs weigh little; b is the slope of the line in the picture.

On a CPU the seconds are those that the processor worked, with one thread: what other programs do at the same time, or
how many cores there are, does not bend the lines. On a GPU they are seconds of the clock.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from segue.errors import InputError
from segue.look.inside.view import View
from segue.runs import folder as files
from segue.training.device import keep_memory, pick_device
from segue.training.log import Progress, silent

SAYS = (
    "Time and memory of a recurrent network grow as the length of the text, those of a Transformer as its square: "
    "every token attends to every other one."
)
LENGTHS = {"cpu": (64, 128, 256, 512, 1024, 2048), "cuda": (256, 512, 1024, 2048, 4096, 8192)}
VOCABULARY = 256
MEASURES = {
    "step_seconds": "seconds of a training step",
    "step_bytes": "bytes of a training step, at their peak",
    "write_seconds": "seconds to write the tokens",
    "write_bytes": "bytes that are kept of the tokens written",
}
_LEAST, _ENOUGH = 3, 0.2
"""A time is the least of so many, or of more until so many seconds have passed: other programs only add to it."""
_BETWEEN = 1.5
"""An exponent above this is nearer to 2, one below to 1."""


class Reader(NamedTuple):
    """A model that is measured."""

    name: str
    kind: str
    settings: tuple[str, ...]
    by_equation: bool = False
    """Whether layers compute by their equations, with all that these name in memory."""


_GPT = ("model.layers=2", "model.width=64", "model.heads=4", "model.position=rotary")
READERS = (
    Reader("rnn_lm", "rnn_lm", ("model.width=96", "model.embedding=64")),
    Reader("gpt", "gpt", _GPT),
    Reader("gpt by the equation", "gpt", _GPT, by_equation=True),
)


def run(
    out: Path | None = None,
    progress: Progress = silent,
    lengths: Sequence[int] = (),
    readers: Sequence[Reader] = READERS,
    device: str = "auto",
) -> dict[str, Any]:
    """Measure, fit, write the picture and the result, and return it."""
    device = pick_device(device)
    lengths = list(lengths) or list(LENGTHS[device.partition(":")[0]])
    out = out or files.free_name("claim-length")
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]) and not (out / "result.json").exists():
        raise InputError(f"{out} exists and holds something else than this claim's result. Choose another --out.")
    keep_memory()
    rows = []
    with _one_thread():
        for number, reader in enumerate(readers):
            progress(f"{reader.name}: {lengths[0]:,} to {lengths[-1]:,} tokens", number / len(readers))
            rows += measured(reader, lengths, device)
    return _report(rows, lengths, readers, device, out)


# Measuring


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measured(reader: Reader, lengths: Sequence[int], device: str) -> list[dict[str, Any]]:
    """A row a length."""
    model = _model(reader, max(lengths)).to(device)
    rows: list[dict[str, Any]] = []
    for length in lengths:
        seconds, size = _step(model, reader, length, device)
        parameters = sum(weight.numel() for weight in model.parameters())
        found = {"length": length, "step_seconds": seconds, "step_bytes": size, "parameters": parameters}
        rows.append({"variant": reader.name, **found})
    if not reader.by_equation:  # no kernel is fused for a single token
        written = _writing(model, lengths, device)
        for row, seconds in zip(rows, written, strict=True):
            row |= {"write_seconds": seconds, "write_bytes": _kept(model, row["length"], device)}
    return rows


def _model(reader: Reader, longest: int) -> Any:
    import torch

    from segue.models.base import Sizes
    from segue.recipe import load_recipe

    window = [f"model.context={longest}"] if reader.kind == "gpt" else []
    recipe = load_recipe(reader.kind, [*reader.settings, *window])
    torch.manual_seed(0)
    return recipe.model_class(recipe.model, Sizes(VOCABULARY))


def _step(model: Any, reader: Reader, length: int, device: str) -> tuple[float, int]:
    """Seconds of one training step on one row, and the most bytes that it held at once, weights left out."""
    import torch

    from segue.batches.batch import Batch
    from segue.layers.probe import record

    ids = torch.randint(2, VOCABULARY, (1, length), device=device)
    batch = Batch(ids, ids, torch.ones_like(ids, dtype=torch.bool))
    way: Callable[[], AbstractContextManager[Any]] = record if reader.by_equation else nullcontext

    def step() -> None:
        with way():
            loss = model.loss(batch).terms[0].total
        loss.backward()
        model.zero_grad(set_to_none=True)

    step()
    return _fastest(step, device), allocated(step, device)[0]


def _writing(model: Any, lengths: Sequence[int], device: str) -> list[float]:
    """Seconds after which so many tokens were written; the fastest of two times."""
    import torch

    found = np.full(len(lengths), math.inf)
    mask = torch.ones(1, 1, dtype=torch.bool, device=device)
    for _ in range(2):
        token, state = torch.full((1, 1), 2, device=device), model.start(1, max(lengths))
        marks, begin = [], _now(device)
        for count in range(1, max(lengths) + 1):
            logits, state = model.step(token, mask, state)
            token = logits.argmax(-1, keepdim=True)
            if count in lengths:
                marks.append(_now(device) - begin)
        found = np.minimum(found, marks)
    return [float(seconds) for seconds in found]


def _kept(model: Any, length: int, device: str) -> int:
    """Bytes that are held after so many tokens, to go on from there."""
    import torch

    ids = torch.full((1, length), 2, device=device)
    held = []

    def read() -> None:
        held.append(model.step(ids, torch.ones_like(ids, dtype=torch.bool), model.start(1, length))[1])

    return allocated(read, device)[1]


def _now(device: str) -> float:
    """Seconds that the processor worked for this program; with a GPU those of the clock, once it has done its work."""
    if device == "cpu":
        return time.process_time()
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()


def _fastest(do: Callable[[], None], device: str) -> float:
    best, spent, times = math.inf, 0.0, 0
    while times < _LEAST or spent < _ENOUGH:
        begin = _now(device)
        do()
        passed = _now(device) - begin
        best, spent, times = min(best, passed), spent + passed, times + 1
    return best


def allocated(do: Callable[[], None], device: str = "cpu") -> tuple[int, int]:
    """Bytes of torch's tensors that a function held at its peak, and that it left behind."""
    import torch

    if device != "cpu":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        do()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler writes lines to standard error
    from torch.autograd.profiler import profile

    with profile(profile_memory=True, use_kineto=True) as seen:
        do()
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return int(held.max(initial=0)), int(held[-1]) if len(held) else 0


# Judging and showing


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """b of value = a · length^b, by least squares through the logarithms of the longer half."""
    half = len(lengths) // 2
    return float(np.polyfit(np.log(lengths[half:]), np.log(values[half:]), 1)[0])


def _report(
    rows: list[dict[str, Any]], lengths: Sequence[int], readers: Sequence[Reader], device: str, out: Path
) -> dict[str, Any]:
    exponents = {
        reader.name: {
            measure: exponent(lengths, [row[measure] for row in rows if row["variant"] == reader.name])
            for measure in MEASURES
            if all(measure in row for row in rows if row["variant"] == reader.name)
        }
        for reader in readers
    }
    held, verdict = _verdict(exponents, lengths)
    view = _view(rows, lengths, readers, verdict)
    out.mkdir(parents=True, exist_ok=True)
    files.write_atomic(out / "picture.svg", view.svg())
    files.write_atomic(out / "report.html", view.html())
    result = {
        "claim": "length",
        "says": SAYS,
        "report": str(out / "report.html"),
        "picture": str(out / "picture.svg"),
        "environment": files.environment(device, 1, 0),
        "rows": rows,
        "exponents": exponents,
        "table": _table(rows, exponents),
        "held": held,
        "verdict": verdict,
    }
    files.write_json(out / "result.json", result)
    return result


def _verdict(exponents: dict[str, dict[str, float]], lengths: Sequence[int]) -> tuple[bool, str]:
    """Whether the recurrent network's exponents are nearer to 1 and those of attention by its equation nearer to 2."""
    recurrent, *others = exponents
    steps = ("step_seconds", "step_bytes")
    held = all(exponents[recurrent][step] < _BETWEEN for step in steps)
    held &= all(exponents[others[-1]][step] > _BETWEEN for step in steps)
    said = [
        f"a training step of {name} takes time as length^{own['step_seconds']:.1f}, memory as "
        f"length^{own['step_bytes']:.1f}"
        for name, own in exponents.items()
    ]
    said += [
        f"{name} writes a text in time as length^{own['write_seconds']:.1f} and keeps "
        + (f"memory as length^{own['write_bytes']:.1f}" if own["write_bytes"] > 0.1 else "as much however long it is")
        for name, own in exponents.items()
        if "write_seconds" in own
    ]
    head = "The claim held here" if held else "The claim did not hold here"
    half = lengths[len(lengths) // 2 :]
    return held, f"{head}, from {half[0]:,} to {half[-1]:,} tokens: {'; '.join(said)}."


def _table(rows: Sequence[dict[str, Any]], exponents: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Headings, and cells as people write them; after each model its exponents."""
    head = ["model", "length", "step", "its memory", "writing", "its memory"]
    cells: list[list[str]] = []
    for name, own in exponents.items():
        for row in (row for row in rows if row["variant"] == name):
            cells.append([name, f"{row['length']:,}", *(_said(measure, row.get(measure)) for measure in MEASURES)])
        powers = [f"length^{abs(own[measure]):.2f}" if measure in own else "–" for measure in MEASURES]
        cells.append([name, "", *powers])
    return {"head": head, "rows": cells}


def _said(measure: str, value: float | None) -> str:
    if value is None:
        return "–"
    if measure.endswith("seconds"):
        return f"{1000 * value:,.1f} ms"
    return f"{value / 1e6:,.2f} MB" if value >= 1e5 else f"{value / 1e3:,.1f} kB"


def _view(rows: Sequence[dict[str, Any]], lengths: Sequence[int], readers: Sequence[Reader], verdict: str) -> View:
    values_PRC = np.full((len(MEASURES), len(readers), len(lengths)), math.nan)
    names = [reader.name for reader in readers]
    for row in rows:
        for panel, measure in enumerate(MEASURES):
            values_PRC[panel, names.index(row["variant"]), lengths.index(row["length"])] = row.get(measure, math.nan)
    return View(
        kind="growth",
        title="Time and memory against the length of the text, both axes logarithmic",
        note=f"{SAYS}\n{verdict}",
        panels=tuple(MEASURES.values()),
        rows=tuple(names),
        columns=tuple(str(length) for length in lengths),
        values_PRC=values_PRC,
    )
