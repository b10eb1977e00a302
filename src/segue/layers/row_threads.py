"""Threads that share the rows of a batch: each takes its rows through all layers, and none waits before the end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from threading import Barrier

import torch


def by_rows(run: Callable[[slice], None], rows: int, count: int) -> None:
    """Call `run` with the rows of each of so many threads; one alone is the caller itself."""
    if count <= 1:
        run(slice(0, rows))
        return
    parts = [slice(*pair) for pair in pairwise(rows * i // count for i in range(count + 1))]
    for under_way in [_pool(count).submit(run, part) for part in parts]:
        under_way.result()


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    """So many threads, in which torch starts no threads of its own: the cores are taken already."""
    own, begun = torch.get_num_threads(), Barrier(count + 1)
    pool = ThreadPoolExecutor(count, thread_name_prefix="rows", initializer=torch.set_num_threads, initargs=(1,))
    for _ in range(count):
        pool.submit(begun.wait)
    begun.wait()
    torch.set_num_threads(own)  # what the last thread sets holds for threads that begin later, too
    return pool
