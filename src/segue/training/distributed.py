"""Data parallel training: several processes, one run, started by torchrun.

    torchrun --nproc-per-node 2 -m segue train gpt book.txt

Every process has the whole model and gets some of the rows of each batch. The gradients are summed over all processes
during the backward pass (torch's DistributedDataParallel), so that every process makes the same step. Each process
counts the targets of the whole batch and divides by them, so that two processes give the loss of one.

The first process does what is done once: it reads the data, validates, writes the run, and broadcasts what it found.
The others read the ids that it has written, so several machines must share the file system of the run's folder.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.errors import InputError
from segue.models.base import Loss
from segue.training.device import pick_device
from segue.training.world import World

PATIENCE = timedelta(hours=12)
"""How long the other processes wait for the first, which may read a large corpus or validate at length."""


class Processes(World):
    """Several processes."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._together: _Together | None = None

    # Collective operations

    def broadcast(self, value: Any = None) -> Any:
        said = np.frombuffer(json.dumps(value).encode(), np.uint8) if self.first else np.empty(0, np.uint8)
        length = self._on_device(torch.tensor([len(said)]))
        dist.broadcast(length, 0)
        letters = self._on_device(torch.from_numpy(said.copy()) if self.first else torch.empty(0, dtype=torch.uint8))
        letters = letters if self.first else letters.new_empty(int(length))
        dist.broadcast(letters, 0)
        return json.loads(letters.cpu().numpy().tobytes())

    def add(self, value: Tensor) -> None:
        dist.all_reduce(value)

    def agree(self, flag: Tensor) -> None:
        least = flag.int()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        flag.copy_(least.bool())

    def gather(self, part: Tensor) -> list[Tensor]:
        parts = [self._on_device(torch.empty_like(part)) for _ in range(self.size)]
        dist.all_gather(parts, self._on_device(part.contiguous()))
        return parts

    def whole(self, part: Tensor) -> Tensor:
        counts = [int(count) for count in self.gather(torch.tensor([part.shape[1]]))]
        padded = part.new_zeros(part.shape[0], max(counts), *part.shape[2:])
        padded[:, : part.shape[1]] = part
        return torch.cat([found[:, :count] for found, count in zip(self.gather(padded), counts, strict=True)], 1)

    def _on_device(self, value: Tensor) -> Tensor:
        return value.cuda() if dist.get_backend() == "nccl" else value

    # Rows and the loss of one process

    def share(self, batch: Batch) -> Batch:
        """Return this process's rows; without any, one row whose loss is 0, since it must take part in the sum."""
        rows = self.rows(len(batch.tokens_BT))
        return batch.rows(rows) if len(rows) else _Idle(**vars(batch.rows([0])))

    def check(self, rows: int, accumulate: int) -> None:
        if rows // accumulate < self.size:
            raise InputError(
                f"{self.size} processes cannot share {rows // accumulate} rows: expected batches.size="
                f"{self.size * accumulate} or more, or fewer processes."
            )

    def seed(self, seed: int) -> None:
        if not self.first:
            torch.manual_seed(seed + (self.rank << 32))

    def wrapped(self, model: Any) -> Callable[[Batch, Any], Loss]:
        self._together = _Together(model)
        return self._together

    def last_part(self, last: bool) -> None:
        if self._together is not None:
            self._together.parallel.require_backward_grad_sync = last


class _Idle(Batch):
    """A row that belongs to another process: its loss counts 0 here."""


class _Together:
    """The model's loss; its gradients are averaged over the processes in the backward pass of the last part."""

    def __init__(self, model: Any) -> None:
        parallel: Any = nn.parallel.DistributedDataParallel
        module = _Loss(model)
        # Every process has computed the same buffers, so that they need not be sent at each step.
        tables = [name for name, _ in module.named_buffers()]
        parallel._set_params_and_buffers_to_ignore_for_model(module, tables)
        self.parallel = parallel(module, gradient_as_bucket_view=True)

    def __call__(self, part: Batch, state: Any) -> Loss:
        loss: Loss = self.parallel(part, state)
        if isinstance(part, _Idle):
            return loss._replace(terms=tuple(term._replace(total=0 * term.total) for term in loss.terms))
        return loss


class _Loss(nn.Module):
    """`loss` as the `forward` of a module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, part: Batch, state: Any) -> Loss:
        loss: Loss = self.model.loss(part, state)
        return loss


def join(device: str) -> tuple[World, str]:
    """Join the processes that torchrun has started; return the World and this process's device."""
    device = pick_device(device)
    if device.startswith("cuda"):
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise InputError(
                f"Process {local + 1} of this machine finds no GPU of its own: there are {torch.cuda.device_count()}. "
                "Start as many processes as there are GPUs (--nproc-per-node), or say --device cpu."
            )
        device = f"cuda:{local}"
        torch.cuda.set_device(local)
    if not dist.is_initialized():  # once for all runs of a process: torch's rendezvous works only once
        dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=PATIENCE)
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size()), device
