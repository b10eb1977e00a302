"""Neural language model over a window of tokens (Bengio et al. 2003).

    x = (C[w_{t-k+1}], ..., C[w_t])                 the vectors of the last k tokens, side by side
    h = tanh(H x + d)
    p(w_{t+1} | w_{t-k+1} ... w_t) = softmax(U h + W x + b)        W only with direct connections

The vectors C are one table for all places of the window (form "shared"). In the form that lectures draw, "onehot", x
is k one-hot vectors side by side, and the first matrix, kV wide, holds a row for each token at each place:

    h = tanh(A_1[w_{t-k+1}] + ... + A_k[w_t] + d)

Sharing is that form with A_j = C H_j^T, where H_j are the columns of H that read place j: fewer weights, and what is
learnt of a word at one place is known at all others.

Before the first token of a text stand STOPs. With data.carry=true the window runs over the ends of units as over any
token. What is carried from batch to batch are the last k tokens.

Departures: learnt by the trainer's optimiser, not by plain SGD with a falling rate, and without the paper's mixture
with a trigram (`segue evaluate --mix` makes one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.batches.state import Carried
from segue.layers.losses import linear_cross_entropy
from segue.models.base import LanguageModel, Loss, ModelConfig, Sizes, Term
from segue.models.network import Network, dropout_by_epochs
from segue.tokens.file_format import STOP


@dataclass(frozen=True)
class WindowState(Carried):
    """The last tokens of each row, carried between batches or steps."""

    tokens_BK: Tensor

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.tokens_BK), device=self.tokens_BK.device)

    def select(self, rows: Tensor, same_text: bool = False) -> WindowState:
        return WindowState(self.tokens_BK.index_select(0, rows))

    def join(self, others: Sequence[WindowState]) -> WindowState:
        return WindowState(torch.cat([self.tokens_BK, *(other.tokens_BK for other in others)]))

    def detach(self) -> WindowState:
        return self

    def forget(self, fresh_B: Tensor) -> WindowState:
        return WindowState(self.tokens_BK.masked_fill(fresh_B[:, None], STOP))

    def tensors(self) -> dict[str, Tensor]:
        return {"tokens": self.tokens_BK.T}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> WindowState:
        return cls(tensors["tokens"].T.contiguous())


class NeuralLm(Network, LanguageModel):
    """A feed-forward network that predicts the next token from the last few."""

    family = "window network"
    task = "lm"
    inputs = ("fresh_B",)

    @dataclass(frozen=True)
    class Config(ModelConfig):
        words: int = 4
        """Predict the next token from this many tokens before it."""
        form: Literal["shared", "onehot"] = "shared"
        """One table of vectors for all places, or a row of the first matrix for each token at each place."""
        embedding: int = 60
        """Width of a token's vector (form=shared)."""
        width: int = 100
        """Units of the hidden layer."""
        direct: bool = False
        """Also connect the embeddings directly to the output (form=shared)."""
        dropout: float = 0.0
        """Dropout: share of the hidden units set to 0 at each training step."""
        embeddings: str = ""
        """Begin with the vectors of a word2vec run or file (form=shared; train.freeze=vectors keeps them fixed)."""

        def __post_init__(self) -> None:
            if min(self.words, self.embedding, self.width) < 1:
                found = f"words = {self.words}, embedding = {self.embedding}, width = {self.width}"
                raise ValueError(f"{found}: each must be 1 or more")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout = {self.dropout}: must be at least 0 and less than 1")
            if self.direct and self.form == "onehot":
                raise ValueError("direct with form = onehot: there are no vectors to connect; set form = shared")

    config: Config

    @classmethod
    def larger(cls, config: Config) -> list[dict[str, Any]]:
        return [{"model.words": 8, "model.width": 512}] if config.words < 8 and config.width < 512 else []

    @classmethod
    def dropout_for(cls, config: Config, epochs: float) -> float | None:
        return None if config.dropout else dropout_by_epochs(0.09, 0.3, epochs)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.direct: nn.Linear | None = None
        if config.form == "shared":
            wide = config.words * config.embedding
            self.vectors = nn.Embedding(sizes.ids, config.embedding)
            self.hidden = nn.Linear(wide, config.width)
            if config.direct:
                self.direct = nn.Linear(wide, sizes.vocab_size, bias=False)
                nn.init.zeros_(self.direct.weight)
        else:
            self.first = nn.EmbeddingBag(config.words * sizes.vocab_size, config.width, mode="sum")
            self.bias = nn.Parameter(torch.zeros(config.width))
            nn.init.normal_(self.first.weight, std=config.words**-0.5)
        self.head = nn.Linear(config.width, sizes.vocab_size)

    def forward(self, batch: Batch, state: WindowState | None = None) -> tuple[Tensor, WindowState]:
        """logits_BTV and the last tokens of each row."""
        windows_BTK, state = self._windows(batch, state)
        return self._logits(windows_BTK), state

    def loss(self, batch: Batch, state: WindowState | None = None) -> Loss:
        """The cross-entropy, without all logits at once where the vocabulary is large."""
        windows_BTK, state = self._windows(batch, state)
        (h_BTD, x_BTD), weight_VD = self._layers(windows_BTK), self.head.weight
        if self.direct is not None:
            h_BTD, weight_VD = torch.cat([h_BTD, x_BTD], 2), torch.cat([weight_VD, self.direct.weight], 1)
        total, count = linear_cross_entropy(h_BTD, weight_VD, batch.targets, self.head.bias)
        return Loss((Term("cross_entropy", total, count),), state)

    def _windows(self, batch: Batch, state: WindowState | None) -> tuple[Tensor, WindowState]:
        """The last tokens at every place, and after the last."""
        mask_BT = None if batch.unpadded or batch.right_padded else batch.mask_BT
        history, state = self._history(batch.tokens_BT, mask_BT, state, batch.fresh_B)
        windows_BTK = history.unfold(1, self.config.words, 1)[:, 1:]
        if mask_BT is not None and not bool(mask_BT.all()):
            place_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)  # where in its row's history a real token stands
            windows_BTK = windows_BTK.take_along_dim(place_BT[:, :, None], 1)
        return windows_BTK, state

    def _history(
        self, tokens_BT: Tensor, mask_BT: Tensor | None, state: WindowState | None, fresh_B: Tensor | None = None
    ) -> tuple[Tensor, WindowState]:
        """(B, K + T): the last tokens before, then the real ones of each row without a gap; and the last ones after.

        Without a mask all are real, and the device is not asked.
        """
        state = WindowState(self._begin(len(tokens_BT))) if state is None else state
        before_BK = (state if fresh_B is None else state.forget(fresh_B)).tokens_BK
        if mask_BT is not None and not bool(mask_BT.all()):
            tokens_BT = tokens_BT.take_along_dim(torch.argsort(~mask_BT, dim=1, stable=True), 1)
        history = torch.cat([before_BK, tokens_BT], 1)
        if mask_BT is None:
            return history, WindowState(history[:, -self.config.words :].contiguous())
        ends_BK = mask_BT.sum(1)[:, None] + torch.arange(self.config.words, device=history.device)
        return history, WindowState(history.take_along_dim(ends_BK, 1))

    def _logits(self, windows_BTK: Tensor) -> Tensor:
        h_BTD, x_BTD = self._layers(windows_BTK)
        logits_BTV: Tensor = self.head(h_BTD)
        return logits_BTV if self.direct is None else logits_BTV + self.direct(x_BTD)

    def _layers(self, windows_BTK: Tensor) -> tuple[Tensor, Tensor]:
        """h, and what it was computed from."""
        if self.config.form == "onehot":
            places_K = self.sizes.vocab_size * torch.arange(self.config.words, device=windows_BTK.device)
            rows_NK = (windows_BTK + places_K).flatten(0, 1)
            x_BTD = self.first(rows_NK).unflatten(0, windows_BTK.shape[:2])
            a_BTD = x_BTD + self.bias
        else:
            x_BTD = self.vectors(windows_BTK).flatten(2)
            a_BTD = self.hidden(x_BTD)
        return F.dropout(a_BTD.tanh(), self.config.dropout, self.training), x_BTD

    def _begin(self, rows: int) -> Tensor:
        return torch.full((rows, self.config.words), STOP, device=self.head.weight.device)

    @torch.inference_mode()
    def start(
        self, rows: int, capacity: int, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> WindowState:
        """Nothing read yet. The window moves on, so `capacity` is not needed."""
        return WindowState(self._begin(rows))

    @torch.inference_mode()
    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: WindowState) -> tuple[Tensor, WindowState]:
        """Read tokens; logits_BV of what follows each row's last real token."""
        _, state = self._history(tokens_BT, mask_BT, state)
        return self._logits(state.tokens_BK[:, None])[:, 0], state
