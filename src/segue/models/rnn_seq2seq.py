"""Recurrent encoder-decoder without attention (Sutskever et al. 2014; Cho et al. 2014).

    h_s = cell(E[x_s], h_{s-1})                     the encoder reads the source
    context = h_S                                   its state at the source's last token
    feeds "start"      d_0 = h_S, of all layers    d_t = cell(E'[y_t], d_{t-1})
                       p(y_{t+1}) = softmax(V d_t + b)
    feeds "every"      d_0 = 0                     d_t = cell([E'[y_t]; context], d_{t-1})
                       p(y_{t+1}) = softmax(V [d_t; context] + b)

All that the decoder knows of the source is one state: the bottleneck that attention was made for. Each target token
and the STOP at the end is predicted from the source and the target's tokens before it.

Departures: "every" shows the decoder the last layer's h and starts it from zero, where Cho et al. also compute d_0
from the context. Where one tokenizer serves both sides, their vectors may be shared. The forget gate's bias begins at
1. Given vectors (embeddings) go into both tables, rescaled to the model's own spread; train.freeze=vectors keeps a
shared table fixed, train.freeze=vectors,source_vectors keeps two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.batches.state import State
from segue.errors import InputError
from segue.layers.losses import linear_cross_entropy
from segue.layers.recurrent import Cell, Parts, Recurrent, RecurrentState, RecurrentStep
from segue.models.base import EncoderDecoder, Loss, ModelConfig, Sizes, Term
from segue.models.network import Network


@dataclass(frozen=True)
class Decoding(State):
    """The decoder's own state and, for feeds "every", what it sees of the source at each step."""

    decoder: RecurrentState
    context_BD: Tensor | None

    def parts(self) -> Parts:
        return self.decoder.parts() if self.context_BD is None else (*self.decoder.parts(), self.context_BD)

    def copy(self) -> Decoding:
        """The same in memory of its own."""
        return Decoding(self.decoder.copy(), None if self.context_BD is None else self.context_BD.clone())

    def select(self, rows: Tensor, same_text: bool = False) -> Decoding:
        context_BD = self.context_BD
        if context_BD is not None and not same_text:  # the beams of one source see the same context
            context_BD = context_BD.index_select(0, rows)
        return Decoding(self.decoder.select(rows), context_BD)

    def join(self, others: Sequence[Decoding]) -> Decoding:
        contexts = [context for one in (self, *others) if (context := one.context_BD) is not None]
        decoder = self.decoder.join([other.decoder for other in others])
        return Decoding(decoder, torch.cat(contexts) if contexts else None)


def beside(x_BTD: Tensor, context_BD: Tensor | None) -> Tensor:
    """x with the context put beside it at every time; x alone where there is none."""
    if context_BD is None:
        return x_BTD
    return torch.cat([x_BTD, context_BD[:, None].expand(-1, x_BTD.shape[1], -1)], dim=-1)


class RnnSeq2seq(Network, EncoderDecoder):
    """Encoder-decoder of recurrent layers, without attention."""

    family = "RNN"
    records = True

    @dataclass(frozen=True)
    class Config(ModelConfig):
        cell: Cell = "lstm"
        """The recurrent cell: elman, lstm or gru."""
        width: int = 192
        """Units in a layer, and width of a token's vector."""
        layers: int = 1
        """Layers of the encoder, and of the decoder."""
        dropout: float = 0.0
        """Dropout between layers, before the first and after the last: the share of units set to 0."""
        feeds: Literal["start", "every"] = "start"
        """Where the decoder sees the source: as its start state, or in every hidden update and every output."""
        reverse_source: bool = True
        """Read the source from its end, so that its beginning is nearest to the target's."""
        shared: bool = True
        """Share one embedding table between source and target."""
        tied: bool = False
        """Weight tying: use the target embeddings as output weights too (feeds "start" only)."""
        embeddings: str = ""
        """Begin with the vectors of a word2vec run or file (train.freeze=vectors keeps them fixed if shared)."""

        def __post_init__(self) -> None:
            if self.width < 1 or self.layers < 1:
                raise ValueError(f"width = {self.width}, layers = {self.layers}: both must be 1 or more")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout = {self.dropout}: must be at least 0 and less than 1")
            if self.tied and self.feeds == "every":
                raise ValueError('tied with feeds = "every": outputs there are twice as wide; use feeds = "start"')

    config: Config

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        width, seen = config.width, config.width if config.feeds == "every" else 0
        self.vectors = self._table(sizes.ids)
        if config.shared and sizes.source_vocab_size:
            raise InputError(
                "model.shared=true shares one table of vectors, but each side has a vocabulary of its own "
                "(tokens.sides=each). Set model.shared=false."
            )
        self.source_vectors = self.vectors if config.shared else self._table(sizes.source_ids)
        self.drop = nn.Dropout(config.dropout)
        self.encoder = Recurrent(config.cell, width, width, config.layers, config.dropout)
        self.decoder = Recurrent(config.cell, width + seen, width, config.layers, config.dropout)
        self.head = nn.Linear(width + seen, sizes.vocab_size)
        if config.tied:
            self.head.weight = self.vectors.weight

    def _table(self, ids: int) -> nn.Embedding:
        """Vectors of deviation 0.4; with large ones (2) a small translation is learnt much more slowly."""
        table = nn.Embedding(ids, self.config.width)
        nn.init.normal_(table.weight, std=0.4)
        return table

    @property
    def token_tables(self) -> list[tuple[nn.Embedding, bool]]:
        """What model.embeddings fills, none of them of small letters."""
        tables = [self.vectors] if self.config.shared else [self.vectors, self.source_vectors]
        return [(table, False) for table in tables]

    def read(self, source_BS: Tensor, source_mask_BS: Tensor | None) -> Decoding:
        """The encoder: what the decoder begins with. Padding changes nothing."""
        if source_mask_BS is None:
            source_mask_BS = torch.ones_like(source_BS, dtype=torch.bool)
        if self.config.reverse_source:
            source_BS, source_mask_BS = source_BS.flip(1), source_mask_BS.flip(1)
        _, end = self.encoder(self.drop(self.source_vectors(source_BS)), source_mask_BS)
        if self.config.feeds == "start":
            return Decoding(end, None)
        return Decoding(self.decoder.zero_state(len(source_BS)), end.h_LBD[-1])

    @property
    def tied(self) -> bool:
        return self.config.tied

    def forward(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """logits_BTV; nothing is carried from batch to batch."""
        return self.head(self._decoded(batch)), None

    def loss(self, batch: Batch, state: None = None) -> Loss:
        """The cross-entropy, without all logits at once where the vocabulary is large."""
        sums = linear_cross_entropy(self._decoded(batch), self.head.weight, batch.targets, self.head.bias)
        return Loss((Term("cross_entropy", *sums),))

    def _decoded(self, batch: Batch) -> Tensor:
        """What the head reads for each token of the target."""
        begin = self.read(batch.source, batch.source_mask)
        # No mask: padding stands to the right, and nobody asks for the state after it.
        out_BTD, _ = self.decoder(self._decoder_inputs(batch.tokens_BT, begin.context_BD), None, begin.decoder)
        return beside(self.drop(out_BTD), begin.context_BD)

    def _decoder_inputs(self, tokens_BT: Tensor, context_BD: Tensor | None) -> Tensor:
        return beside(self.drop(self.vectors(tokens_BT)), context_BD)

    @torch.inference_mode()
    def start(
        self, rows: int, capacity: int, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Decoding:
        """Read the source. A recurrent state has no limit, so `capacity` is not needed."""
        if source is None or len(source) != rows:
            raise ValueError(f"rnn_seq2seq needs a source with {rows} rows to start from")
        return self.read(source, source_mask)

    @torch.inference_mode()
    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """Read target tokens; logits_BV of what follows each row's last real token."""
        return self._next(tokens_BT, state, mask_BT)

    def one_token(self, state: Decoding, places: int = 0) -> RecurrentStep:
        return RecurrentStep(state, self._next)

    def _next(self, tokens_BT: Tensor, state: Decoding, mask_BT: Tensor | None = None) -> tuple[Tensor, Decoding]:
        _, decoder = self.decoder(self._decoder_inputs(tokens_BT, state.context_BD), mask_BT, state.decoder)
        # The last layer's state IS its output at the last real token.
        logits_BTV = self.head(beside(self.drop(decoder.h_LBD[-1][:, None]), state.context_BD))
        return logits_BTV[:, 0], Decoding(decoder, state.context_BD)
