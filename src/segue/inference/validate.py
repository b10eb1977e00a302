"""The validation of rows while a model trains: loss a prediction, and the share of right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from segue.batches.batch import IGNORE
from segue.batches.collate import Batches, Config
from segue.batches.store import Store
from segue.layers.losses import target_logprobs


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
    batches = Batches(store, task, config, seed=0)
    nats = right = count = 0.0
    for first in range(0, len(store), config.size):
        batch = batches.of_rows(np.arange(first, min(first + config.size, len(store)))).to(device)
        logits, _ = model(batch)
        real = batch.targets != IGNORE
        nats -= float(target_logprobs(logits, batch.targets).sum())
        right += float((logits.argmax(-1) == batch.targets)[real].sum())
        count += float(real.sum())
        done(min(1.0, (first + config.size) / len(store)))
        if count >= limit:
            break
    return {"loss": nats / count, "accuracy": right / count}
