"""Choose how many CPU threads a network is trained with.

The user may name them (--threads, OMP_NUM_THREADS), and a run that goes on keeps those that it began with: another
number of threads adds in another order, and gives other last bits. Otherwise a run takes all cores, unless other
programs keep them busy. Then a trial takes some steps with one thread and with all of them by turns, and throws them
away; fewer threads are taken if they are clearly quicker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from segue.recipe import Recipe
from segue.runs.resume import Begun
from segue.training import device as devices
from segue.training.log import DivergedError, Progress
from segue.training.world import World

NEVER = 1_000_000_000
"""A number of steps that no trial reaches."""


def choose(
    begun: Begun,
    asked: int,
    device: str,
    world: World,
    others: devices.Others,
    make: Callable[[Recipe], Any],
    progress: Progress,
) -> float:
    """Set the number of threads and write it into the run; return the seconds that a trial took. `make` makes a
    trainer of a recipe."""
    started, busy = time.perf_counter(), others.cores()
    count = asked or begun.threads
    if not count:
        count = devices.threads_in_use()
        if may_change(asked, device, world) and (busy is None or busy > devices.BUSY):
            count = _trial(begun.recipe, count, busy, make, progress)
    devices.use(count)
    begun.note_threads(count)
    return time.perf_counter() - started


def may_change(asked: int, device: str, world: World) -> bool:
    """Whether the choice is Segue's: nobody named a number, and the CPU of one process computes."""
    return not (asked or os.environ.get("OMP_NUM_THREADS")) and device == "cpu" and world.size == 1


def _trial(recipe: Recipe, most: int, busy: float | None, make: Callable[[Recipe], Any], progress: Progress) -> int:
    """Return the number of threads that takes the steps of a recipe quickest; say so if the machine is busy."""
    if most == 1:
        return 1
    endless = {"steps": NEVER, "every": NEVER, "epochs": 0.0, "seconds": 0.0, "stop": 0, "log_every": 1}
    trainer = make(recipe.with_values("train", **endless))
    records = trainer.fit()
    try:
        count, times = devices.quickest(lambda: next(records), most)
    except DivergedError:  # the run itself will say so
        return most
    if count < most:
        what = f"Training uses {count} of {most} threads, with which a short trial was {times:.1f} times as fast"
        progress(f"{_why(busy, most)}{what}; --threads settles it.", 0.0)
    elif busy is not None:
        progress(f"{_why(busy, most)}Training takes longer for that.", 0.0)
    return count


def _why(busy: float | None, most: int) -> str:
    return "" if busy is None else f"The machine is busy: other programs use {busy:.1f} cores. "
