"""The base class of networks that classify a text: word embeddings, and the loss of the scores.

one class of many (data.label=class)     p = softmax(scores)         cross-entropy, or hinge
several classes (data.label=classes)     p_c = logistic(score_c)     the same for each yes or no by itself
a number (data.label=number)             y = m + d · score           squared error of the score; m and d: mean and
                                                                     deviation of the training rows' numbers
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.data.config import Label
from segue.errors import InputError
from segue.layers import losses
from segue.models.base import Loss, Sizes, Term
from segue.models.network import Judged, Network

SPREAD = 0.1
"""Standard deviation of the initial embeddings: about Kim's, uniform from -0.25 to 0.25."""


@dataclass(frozen=True)
class Objective:
    """The recipe's [model.loss]."""

    name: Literal["cross_entropy", "hinge"] = "cross_entropy"
    """The loss function: cross-entropy, -log p, or hinge, with a margin of 1 over the other classes."""
    balanced: bool = False
    """Class weights: give all classes the same total weight, however many rows they have."""


class NeuralClassifier(Network):
    """A network from a text to one score a class; its Config has a `loss: Objective`. A subclass defines `forward`."""

    family = "bag of vectors"
    task = "classify"
    labels: ClassVar[tuple[Label, ...]] = ("class", "classes", "number")
    weights: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, config: Any, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        objective: Objective = config.loss
        self.objective, self.label = objective, sizes.label
        if self.label == "number" and objective != Objective():
            raise InputError("A number has neither margin nor classes: leave model.loss out, or set data.label=class.")
        # Class weights: row 0 for targets of 1, row 1 for targets of 0 (used with several classes a row).
        self.register_buffer("weights", torch.ones(2, sizes.classes), persistent=False)
        if self.label == "number":
            self.register_buffer("centre", torch.zeros(()))
            self.register_buffer("spread", torch.ones(()))

    def begin(self, labels: NDArray[Any] | None) -> None:
        """Take the mean and deviation of numbers, or the weights of balanced classes, from the training rows."""
        assert labels is not None
        if self.label == "number":
            self.centre.fill_(float(labels.mean(dtype=np.float64)))
            self.spread.fill_(float(labels.std(dtype=np.float64)) or 1.0)
        elif self.objective.balanced:
            self.weights.copy_(torch.from_numpy(balance(labels, self.weights.shape[1], self.label)))

    def counts(self, batch: Batch) -> dict[str, int]:
        count = len(batch.targets) if self.label == "number" else batch.count
        return {self._term: count}

    @property
    def _term(self) -> str:
        return "squared_error" if self.label == "number" else self.objective.name

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        scores, state = self(batch, state)
        total = self.costs(scores, batch.targets).sum()
        count = batch.targets.numel() if self.label == "number" else (batch.targets != IGNORE).sum()
        return Loss((Term(self._term, total, count),), state)

    def costs(self, scores_BC: Tensor, targets: Tensor) -> Tensor:
        """Compute the weighted loss of each row, or of each class of a row; 0 at IGNORE."""
        full_BC = scores_BC if scores_BC.dtype == torch.float64 else scores_BC.float()
        hinge = self.objective.name == "hinge"
        if self.label == "number":
            return (full_BC[:, 0] - (targets.to(full_BC) - self.centre) / self.spread).square()
        if self.label == "classes":
            found_BC = (losses.binary_hinge if hinge else losses.binary_cross_entropy)(full_BC, targets)
            return found_BC * torch.where(targets > 0, self.weights[0], self.weights[1])
        real_B = targets != IGNORE
        known_B = targets.clamp(min=0)
        found_B = losses.hinge(full_BC, known_B) if hinge else -losses.target_logprobs(full_BC, targets)
        return found_B * self.weights[0, known_B] * real_B

    def probabilities(self, scores_BC: Tensor) -> Tensor:
        """Compute (B, C) probabilities, or (B, 1) numbers."""
        full_BC = scores_BC if scores_BC.dtype == torch.float64 else scores_BC.float()
        if self.label == "number":
            return self.centre + self.spread * full_BC
        return full_BC.sigmoid() if self.label == "classes" else full_BC.softmax(-1)

    @torch.inference_mode()
    def judge(self, batch: Batch) -> Judged:
        """Score a batch: one decision a row, or one a class of a row; a number is no decision."""
        scores_BC, _ = self(batch)
        costs = self.costs(scores_BC, batch.targets)
        right = None
        if self.label == "classes":
            right = ((scores_BC > 0) == (batch.targets > 0)).sum()
        elif self.label == "class":
            right = (scores_BC.argmax(-1) == batch.targets).sum()
        return Judged(costs.sum(), costs.numel(), right)


def balance(labels: NDArray[Any], classes: int, label: str) -> NDArray[np.float32]:
    """Compute class weights (2, C): n / (classes · rows of the class), with mean 1; for 0 and 1, n / (2 · times)."""
    if label == "classes":
        yes = labels.reshape(-1, classes).sum(0, dtype=np.float64)
        rows = len(labels) // classes
        return np.asarray(rows / (2 * np.maximum(np.stack([yes, rows - yes]), 1)), np.float32)
    times = np.bincount(labels, minlength=classes).astype(np.float64)
    weights = len(labels) / (np.count_nonzero(times) * np.maximum(times, 1))
    return np.stack([weights, np.ones(classes)]).astype(np.float32)


class Embedding(nn.Embedding):
    """Token embeddings with small initial values. STOP and UNK begin at zero, since training texts may not contain
    them: an unknown word then has no effect, instead of a random one."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__(vocab_size, width)
        nn.init.normal_(self.weight, std=SPREAD)
        with torch.no_grad():
            self.weight[:2] = 0


def kept_words(mask_BT: Tensor, share: float, training: bool) -> Tensor:
    """Word dropout: return the mask, as floats, without a random share of the words in training."""
    kept_BT = mask_BT.to(torch.get_default_dtype())
    return kept_BT * (torch.rand_like(kept_BT) >= share) if training and share else kept_BT


def check_shares(**shares: float) -> None:
    """Refuse values that are not at least 0 and less than 1."""
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise ValueError(f"{name}={share} is not a share: expected 0 or more and less than 1")


def check_sizes(**sizes: int) -> None:
    """Refuse values below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size}: expected 1 or more")
