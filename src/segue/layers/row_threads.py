"""Threads that share the rows of a batch: each takes its rows through all layers, and none waits before the end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from threading import Barrier
from typing import TypeVar

import torch
from torch import Tensor

Part = TypeVar("Part")


def by_rows(run: Callable[[slice], Part], rows: int, count: int) -> list[Part]:
    """What `run` returns for the rows of each of so many threads; one alone is the caller itself."""
    if count <= 1:
        return [run(slice(0, rows))]
    parts = [slice(*pair) for pair in pairwise(rows * i // count for i in range(count + 1))]
    return [under_way.result() for under_way in [_pool(count).submit(run, part) for part in parts]]


def joined(parts: list[Tensor]) -> Tensor:
    """The rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    whole = torch.empty(sum(map(len, parts)), *parts[0].shape[1:], dtype=parts[0].dtype)
    ends = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    places = [whole[end - len(part) : end] for end, part in zip(ends, parts, strict=True)]

    @torch.inference_mode()
    def copy(some: slice) -> None:
        for place, part in zip(places[some], parts[some], strict=True):
            place.copy_(part)

    by_rows(copy, len(parts), len(parts))
    return whole


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
