"""The validation of rows while a model trains: loss a prediction, and the share of right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from segue.batches.batch import Batch
from segue.batches.batches import Config
from segue.batches.collate import COLLATES
from segue.batches.store import Store


def validate_rows(
    model: Any,
    store: Store,
    task: str,
    config: Config,
    limit: int,
    device: str = "cpu",
    done: Callable[[float], None] = lambda share: None,
) -> dict[str, float]:
    """Over the rows from the first, until about `limit` predictions; a translator is given the right words before."""
    nats = right = count = 0.0
    decided = True
    for first in range(0, len(store), config.size):
        judged = model.judge(_rows(store, task, config, first).to(device))
        nats, count, decided = nats + float(judged.total), count + judged.number, judged.right is not None
        right += float(judged.right) if judged.right is not None else 0.0
        done(min(1.0, (first + config.size) / len(store)))
        if count >= limit:
            break
    return {"loss": nats / count} | ({"accuracy": right / count} if decided else {})


def validate_counted(model: Any, store: Store, task: str, config: Config) -> dict[str, float]:
    """The same of a classifier that trains itself, over all rows, without torch."""
    nats = right = 0.0
    for first in range(0, len(store), config.size):
        batch = _rows(store, task, config, first)
        logp_BC = model.class_logprobs(batch)
        nats -= float(logp_BC[np.arange(len(logp_BC)), batch.targets].sum())
        right += float((logp_BC.argmax(1) == batch.targets).sum())
    return {"loss": nats / len(store), "accuracy": right / len(store)}


def _rows(store: Store, task: str, config: Config, first: int) -> Batch:
    """The batch of rows from the `first` on."""
    rows = np.arange(first, min(first + config.size, len(store)))
    return COLLATES[task](store.take(rows), config.length)
