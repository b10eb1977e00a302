"""The validation of rows while a model trains: loss a prediction, and the share of right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from segue.batches.batch import IGNORE, Batch
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
    from segue.layers.losses import target_logprobs

    nats = right = count = 0.0
    for first in range(0, len(store), config.size):
        batch = _rows(store, task, config, first).to(device)
        logits, _ = model(batch)
        if hasattr(model, "costs"):  # its labels need not be classes, nor its loss a likelihood
            costs, decided = model.costs(logits, batch.targets), model.right(logits, batch.targets)
            nats, right, count = nats + float(costs.sum()), right + float(decided.sum()), count + costs.numel()
        else:
            real = batch.targets != IGNORE
            nats -= float(target_logprobs(logits, batch.targets).sum())
            right += float((logits.argmax(-1) == batch.targets)[real].sum())
            count += float(real.sum())
        done(min(1.0, (first + config.size) / len(store)))
        if count >= limit:
            break
    if getattr(model, "label", "class") == "number":
        return {"loss": nats / count}
    return {"loss": nats / count, "accuracy": right / count}


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
