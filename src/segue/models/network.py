"""The base class of networks, models that learn by gradient: default loss and scoring from the logits."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from segue.batches.batch import IGNORE, Batch
from segue.batches.scorer import Scorer
from segue.errors import SegueError
from segue.layers.ctc import ctc_loss
from segue.layers.losses import cross_entropy, linear_cross_entropy, smoothed_cross_entropy, target_logprobs
from segue.models.base import Loss, Model, Sizes, Term

_LAYER = re.compile(r"(?:\.|_l)(\d+)(?=\.|$)")
"""The number of a layer in the name of a parameter: blocks.0.feed.up.weight, core.weight_ih_l0."""
LARGEST = 1e6
"""Weights that are larger show that training has diverged; those that were learnt are below 100."""


def dropout_by_epochs(share: float, most: float, epochs: float) -> float:
    """Return no dropout up to 2.5 epochs, then `share` for each doubling of them, and `most` at most."""
    found = min(most, share * math.log2(max(epochs, 2.5) / 2.5))
    return round(found, 3) if found >= 0.02 else 0.0  # a little dropout costs as much time as much of it


def on_meta(make: Callable[[], Any]) -> Any:
    """Build the model on the meta device: shapes only, no memory."""

    class Undrawn(TorchFunctionMode):
        """Skip `normal_` and `uniform_`: on meta they would import torch's compiler (1 s)."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            return (*args, *kwargs.values())[0] if func.__name__ in ("normal_", "uniform_") else func(*args, **kwargs)

    with torch.device("meta"), Undrawn():
        return make()


def load_network(make: Callable[[], Any], tensors: dict[str, Tensor]) -> Any:
    """Make a network with these weights, to predict with. ValueError: they are not those of this network, or one of
    them is NaN or infinite, so that whatever is computed would be NaN too."""
    expected = {name: list(tensor.shape) for name, tensor in on_meta(make).state_dict().items()}
    found = {name: list(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):  # before the network takes memory
        if expected.get(name) != found.get(name):
            wanted = expected.get(name, "no such weight")
            raise ValueError(f"{name} is {found.get(name, 'missing')}, expected {wanted}")
    check_finite(tensors)
    network = make()
    network.load_state_dict(tensors)
    return network.eval()


def check_learnt(network: nn.Module) -> None:
    """Raise a SegueError if training has diverged: weights that are NaN, infinite, or too large to mean anything."""
    for name, weight in network.named_parameters():
        if weight.numel() and not float(weight.detach().abs().max()) < LARGEST:
            raise SegueError(
                f"Training diverged: {name} became infinite, NaN or absurdly large. Try a smaller train.optimizer.rate "
                "or train.optimizer.clip."
            )


def check_finite(tensors: dict[str, Tensor]) -> None:
    """Raise a ValueError that names the first tensor with a number that is NaN, infinite or too large for a weight."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        most = LARGEST if tensor.dim() else torch.inf  # the mean of labels that are numbers may be any
        if not float(torch.stack(tensor.aminmax()).abs().max()) < most:  # with a NaN among them it is NaN
            raise ValueError(f"{name} holds numbers that are NaN or infinite, or too large for weights")


def smoothed_loss(x: Tensor, weight_VD: Tensor, targets: Tensor, bias_V: Tensor | None, smoothing: float) -> Loss:
    """The cross-entropy of the logits x W^T + b, without all of them at once where they are many, and as a term of its
    own what label smoothing adds: so the cross-entropy of every training log is the plain one."""
    if not smoothing:
        return Loss((Term("cross_entropy", *linear_cross_entropy(x, weight_VD, targets, bias_V)),))
    total, added, count = smoothed_cross_entropy(x, weight_VD, targets, bias_V, smoothing)
    return Loss((Term("cross_entropy", total, count), Term("label_smoothing", added, count, smoothing)))


def ctc_term(logits_BSV: Tensor, mask_BS: Tensor, targets_BT: Tensor, count: Any, weight: float) -> Term:
    """The loss of CTC of the encoder's outputs, as a term beside the decoder's; `count`: of the decoder's targets, so
    that both are means of a token."""
    return Term("ctc", ctc_loss(logits_BSV, mask_BS, targets_BT).sum(), count, weight)


class Judged(NamedTuple):
    """A batch of validation data, scored."""

    total: Tensor
    """The sum of the loss."""
    number: int
    """Number of predictions in the sum."""
    right: Tensor | None
    """Number of right decisions; None if nothing is decided (numbers)."""


def judged(logits: Tensor, chosen: Tensor, targets: Tensor) -> Judged:
    """Score the logits of a batch of validation rows, and what was chosen from them."""
    real = targets != IGNORE
    return Judged(-target_logprobs(logits, targets).sum(), int(real.sum()), (chosen == targets)[real].sum())


class Network(Model, Scorer, nn.Module):
    """A model of torch tensors. A subclass defines `task`, `Config` and `forward`."""

    takes_tensors = True
    head_names: ClassVar[tuple[str, ...]] = ("head.",)
    """First parts of the names of the head's parameters: with train.init they may have another shape, and Muon leaves
    them to AdamW."""
    training_names: ClassVar[tuple[str, ...]] = ()
    """First parts of the names of parameters that a language model learns by, or gives to a head, and does not predict
    the next token with."""
    compiled: tuple[int, int] | None = None
    """The shape of batches that `regions` are compiled for; other batches run eagerly."""

    def __init__(self, config: Any, sizes: Sizes) -> None:
        nn.Module.__init__(self)
        Model.__init__(self, config, sizes)

    @abstractmethod
    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return (logits, state): logits_BTV for tokens, logits_BC for classes."""

    @property
    def parameters_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def tied(self) -> bool:
        """Weight tying: whether the token vectors are also the output weights."""
        return False

    @property
    def regions(self) -> list[nn.Module]:
        """Modules to compile one by one, in the order of their depth; empty: none."""
        return []

    def layers_of(self) -> dict[str, int]:
        """Return the layer of each parameter, by its name: 0 for what stands before the first layer (token vectors),
        then from 1 on; what stands behind the last one, and the head, is a layer more."""
        layers: dict[str, int] = {}
        highest = 0
        for name, _ in self.named_parameters():
            found = _LAYER.search(name)
            highest = max(highest, int(found[1]) + 1 if found else 0)
            layers[name] = int(found[1]) + 1 if found else highest + bool(highest)
        # A module's own parameters, as the bias of the output, come before those of its layers.
        head = [name for name in layers if name.startswith(self.head_names)]
        return layers | dict.fromkeys(head, highest + bool(highest))

    @property
    def token_tables(self) -> list[tuple[nn.Embedding, bool]]:
        """The embedding tables that model.embeddings fills, each with whether its words are lower-cased."""
        return [(table, False) for name, table in self.named_children() if name == "vectors"]  # type: ignore[misc]

    @classmethod
    def larger(cls, config: Any) -> list[dict[str, Any]]:
        """Return larger shapes that `segue compare` may choose if the budget has time for them, smallest first: keys of
        the recipe, as model.width."""
        return []

    @classmethod
    def dropout_for(cls, config: Any, epochs: float) -> float | None:
        """Return the dropout for a run that reads its text so many times; None: as the recipe says."""
        return None

    def vectors_given(self) -> None:
        """React to model.embeddings having filled the tables."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the denominator of each term of `loss` from the targets, before any forward pass."""
        return {"cross_entropy": batch.count}

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        logits, state = self(batch, state)
        total, count = cross_entropy(logits, batch.targets)
        return Loss((Term("cross_entropy", total, count),), state)

    @torch.inference_mode()
    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        logits, state = self(batch, state)
        return target_logprobs(logits, batch.targets), state

    @torch.inference_mode()
    def judge(self, batch: Batch) -> Judged:
        """Score a batch of validation rows; an encoder-decoder reads the right previous words (teacher forcing)."""
        logits, _ = self(batch)
        return judged(logits, logits.argmax(-1), batch.targets)
