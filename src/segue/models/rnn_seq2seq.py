"""Recurrent encoder-decoder with attention (Sutskever et al. 2014; Cho et al. 2014; Bahdanau et al. 2015; Luong 2015).

    h_s = cell(E[x_s], h_{s-1})                    the encoder reads the source, S tokens; or both ways (bidirectional)
    d_t = cell(E'[y_t], d_{t-1})                   the decoder, a language model of the target
    c_t = sum over s of alpha_ts h_s               attention (layers/alignment.py): where it looks in the source

    attention    feeds
    none         start           d_0 = h_S in all layers         p(y_{t+1}) = softmax(V d_t + b)
    none         every           d_0 = 0, c = h_S                d_t = cell([E'[y_t]; c], d_{t-1})
                                                                 p(y_{t+1}) = softmax(V [d_t; c] + b)
    fixed, dot,  start           d_0 = h_S, alpha_t by d_t       p(y_{t+1}) = softmax(V [d_t; c_t] + b)
    bilinear,    every           d_0 = h_S, alpha_t by d_{t-1}   d_t = cell([E'[y_t]; c_t], d_{t-1})
    additive                                                     p(y_{t+1}) = softmax(V [d_t; c_t] + b)
                 attentional     d_0 = h_S, alpha_t by d_t       d_t = cell([E'[y_t]; a_{t-1}], d_{t-1})
                                 a_t = tanh(W [d_t; c_t])        p(y_{t+1}) = softmax(V a_t + b)

Without attention, all that the decoder knows of the source is one state: the bottleneck that attention was made for.
With attention and "start" the recurrence does not depend on alpha, so that it is one fused pass over all t, and one
attention over all t comes after it. "every" is Bahdanau's way and "attentional" is Luong's input feeding: c_t goes into
the recurrence, and training is slower, since one time is computed after the other.

A source may also be sound or a picture: "listen, attend and spell" (Chan et al. 2016), "show, attend and tell" (Xu et
al. 2015). The x_s are then what layers/sources.py makes of its frames, in place of E[x_s]. With ctc = w the encoder's
outputs also predict the target without the decoder, by CTC (layers/ctc.py), and w times that loss is added.

Each target token and the STOP at the end is predicted from the source and the target's tokens before it.

Departures: A bidirectional encoder has width / 2 units each way, so that h_s, both side by side, is as wide as d_t, and
the decoder starts from both ends side by side; Bahdanau et al. compute d_0 = tanh(W h) from one end, and their output
has a maxout layer and reads E'[y_t] too. "every" without attention shows the decoder the last layer's h and starts it
from zero, where Cho et al. also compute d_0 from the context. tied = "all" needs outputs as wide as a vector: where
they are [d_t; c_t], the output is softmax(E' tanh(W [d_t; c_t]) + b). The forget gate's bias begins at 1.
Chan et al. shorten the sound by pairs of outputs in each layer, where convolutions do so here; Xu et al. attend to the
places of a picture as they are, where the encoder reads them once more here.
Given vectors (embeddings) go into both tables, rescaled to the model's own spread; train.freeze=vectors keeps a shared
table fixed, train.freeze=vectors,source_vectors keeps two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.batches.state import State
from segue.data.config import Config as Data
from segue.layers.alignment import Alignment, SourceStates, contexts, coverage_loss, fixed_weights, widened
from segue.layers.probe import probe, recording
from segue.layers.recurrent import Cell, Parts, Recurrent, RecurrentState, RecurrentStep
from segue.layers.sources import check_source, stem
from segue.models.base import EncoderDecoder, Loss, ModelConfig, Sizes, Term
from segue.models.network import Network, ctc_term, dropout_by_epochs, smoothed_loss


@dataclass(frozen=True)
class Decoding(State):
    """The decoder's own state, and what it sees of the source."""

    decoder: RecurrentState
    source: SourceStates | None
    """What attention reads: one row for every `beams` rows of the decoder; None: there is no attention."""
    own: dict[str, Tensor]
    """What else each row has, one tensor (B, …) a name:
    context     feeds "every" without attention: what the decoder sees of the source at each step
    attended    the sum of the attention that each place of the source has got
    place       attention "fixed": the number of tokens that were read
    fed         feeds "attentional": a_{t-1}"""
    beams: int = 1

    @property
    def attended_BS(self) -> Tensor | None:  # type: ignore[override]  # noqa: N802
        return self.own.get("attended")

    def parts(self) -> Parts:
        """All that a step changes."""
        return (*self.decoder.parts(), *self.own.values())

    def kept(self) -> Parts:
        """What is the same at all steps."""
        return () if self.source is None else tuple(self.source)

    def copy(self) -> Decoding:
        """The same in memory of its own."""
        source = None if self.source is None else SourceStates(*(part.clone() for part in self.source))
        return replace(self._with_own(torch.clone), decoder=self.decoder.copy(), source=source)

    @property
    def source_places(self) -> int:  # type: ignore[override]
        return 0 if self.source is None else self.source.mask_BS.shape[1]

    def widened(self, source_places: int) -> Decoding:
        if self.source is None:
            return self
        own = dict(self.own)
        if "attended" in own:
            (own["attended"],) = widened([own["attended"]], source_places)
        return replace(self, source=SourceStates(*(widened([part], source_places)[0] for part in self.source)), own=own)

    def _with_own(self, change: Callable[[Tensor], Tensor]) -> Decoding:
        return replace(self, own={name: change(part) for name, part in self.own.items()})

    def covering(self) -> Decoding:
        if self.source is None or "attended" in self.own:
            return self
        h_BSD = self.source.h_BSD
        nothing_BS = h_BSD.new_zeros(self.beams * len(h_BSD), h_BSD.shape[1])
        return replace(self, own=self.own | {"attended": nothing_BS})

    @property
    def rows(self) -> Tensor:
        return self.decoder.rows

    def spread(self, beams: int) -> Decoding:
        return replace(self.select(self.rows.repeat_interleave(beams), same_text=True), beams=self.beams * beams)

    def select(self, rows: Tensor, same_text: bool = False) -> Decoding:
        chosen = self._with_own(lambda part: part.index_select(0, rows))
        chosen = replace(chosen, decoder=self.decoder.select(rows))
        if self.source is None or same_text:
            return chosen
        sources = rows // self.beams
        if len(rows) % self.beams == 0:
            together = sources.view(-1, self.beams)
            if self.beams == 1 or bool((together == together[:, :1]).all()):  # a source keeps all of its beams
                return replace(chosen, source=self.source.select(together[:, 0]))
        return replace(chosen, source=self.source.select(sources), beams=1)

    def join(self, others: Sequence[Decoding]) -> Decoding:
        states = [one._unfolded() for one in (self, *others)]
        decoder = self.decoder.join([other.decoder for other in others])
        own = {name: torch.cat(widened([one.own[name] for one in states])) for name in self.own}
        first, *rest = [one.source for one in states]
        return Decoding(decoder, None if first is None else first.join([one for one in rest if one is not None]), own)

    def _unfolded(self) -> Decoding:
        """The same with a row of the source for each row of the decoder."""
        if self.source is None or self.beams == 1:
            return replace(self, beams=1)
        rows = torch.arange(len(self.source.mask_BS), device=self.source.mask_BS.device)
        return replace(self, source=self.source.select(rows.repeat_interleave(self.beams)), beams=1)

    def where(self, real_B1: Tensor, before: Decoding) -> Decoding:
        """The rows that have read a real token; the others as they were before."""
        pairs = zip(self.decoder.parts(), before.decoder.parts(), strict=True)
        decoder = RecurrentState(*(torch.where(real_B1, new, old) for new, old in pairs))
        own = {name: torch.where(real_B1, part, before.own[name]) for name, part in self.own.items()}
        return replace(self, decoder=decoder, own=own)


class Encoded(NamedTuple):
    """What the encoder makes of the sources."""

    h_BSD: Tensor
    mask_BS: Tensor
    """True at real places."""
    end: RecurrentState
    """After the last place, both ways side by side."""


class Read(NamedTuple):
    """What the decoder makes of some tokens of the target."""

    out_BTD: Tensor
    """What the head reads."""
    alpha_BTS: Tensor | None
    state: Decoding


class RnnSeq2seq(Network, EncoderDecoder):
    """Encoder-decoder of recurrent layers."""

    family = "RNN"
    records = True
    head_names = ("head.", "ctc_head.")

    @dataclass(frozen=True)
    class Config(ModelConfig):
        cell: Cell = "lstm"
        """The recurrent cell: elman, lstm or gru."""
        width: int = 256
        """Units in a layer, and width of a token's vector."""
        layers: int = 1
        """Layers of the encoder, and of the decoder."""
        dropout: float = 0.0
        """Dropout between layers, before the first and after the last: the share of units set to 0."""
        attention: Literal["none", "fixed", "dot", "bilinear", "additive"] = "bilinear"
        """Attention to the source, by its score; fixed: place t of the target sees place t of the source."""
        feeds: Literal["start", "every", "attentional"] = "start"
        """How the source enters the recurrence: start state; every: c at each step; attentional: tanh(W [d; c])."""
        coverage: Literal["none", "score", "loss"] = "none"
        """Coverage, against repetition: past attention goes into the score (Tu 2016) or into the loss (See 2017)."""
        bidirectional: bool = True
        """Read the source from both ends, with half of the units each way."""
        reverse_source: bool = False
        """Read the source from its end, so that its beginning is nearest to the target's."""
        tied: Literal["none", "sides", "all"] = "all"
        """Weight tying: source and target share a table of vectors (sides); it is the output weights too (all)."""
        label_smoothing: float = 0.0
        """Label smoothing: the share of each target's probability that all tokens of the vocabulary get."""
        patch: int = 0
        """Pictures: pixels a side of a patch, each a place of the source; 0: 2D convolutions read the picture."""
        ctc: float = 0.0
        """Sound: weight of CTC's loss on the encoder's output, beside the decoder's; 0: none."""
        embeddings: str = ""
        """Begin with the vectors of a word2vec run or file (train.freeze=vectors keeps them fixed if tied)."""

        def __post_init__(self) -> None:
            if self.width < 1 or self.layers < 1:
                raise ValueError(f"width = {self.width}, layers = {self.layers}: both must be 1 or more")
            if self.patch < 0 or not 0 <= self.ctc <= 1:
                raise ValueError(f"patch = {self.patch}, ctc = {self.ctc}: must be 0 or more, and 0 to 1")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout = {self.dropout}: must be at least 0 and less than 1")
            if not 0 <= self.label_smoothing < 1:
                raise ValueError(f"label_smoothing = {self.label_smoothing}: must be at least 0 and less than 1")
            if self.bidirectional and self.width % 2:
                raise ValueError(f"width = {self.width}: must be even, since a bidirectional encoder has half each way")
            if self.bidirectional and self.reverse_source:
                raise ValueError(
                    "reverse_source = true: a bidirectional encoder reads both ways; set bidirectional = false"
                )
            if self.feeds == "attentional" and self.attention == "none":
                raise ValueError('feeds = "attentional": needs an attention other than "none"')
            if self.coverage != "none" and self.attention in ("none", "fixed"):
                raise ValueError(f'coverage = "{self.coverage}": needs attention = "dot", "bilinear" or "additive"')

        @property
        def stepwise(self) -> bool:
            """Whether the decoder's recurrence depends on attention, so that one time is computed after the other."""
            return self.attention != "none" and self.feeds != "start"

    config: Config

    @classmethod
    def larger(cls, config: Config) -> list[dict[str, Any]]:
        return [{"model.width": 512}] if config.layers == 1 else []

    @classmethod
    def dropout_for(cls, config: Config, epochs: float) -> float | None:
        return dropout_by_epochs(0.1, 0.35, epochs)

    @classmethod
    def check_data(cls, config: Config, data: Data) -> None:
        check_source(data.source, data.pixels, config.patch, config.ctc)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        width, ways = config.width, 2 if config.bidirectional else 1
        self.vectors = self._table(sizes.ids)
        self.stem = stem(sizes, width, config.patch)
        """What reads sound and pictures; None: the source is text, and has vectors."""
        self.source_vectors = self.vectors if self._one_table else self._table(sizes.source_ids)
        self.drop = nn.Dropout(config.dropout)
        shape = (config.layers, config.dropout)
        self.encoder = Recurrent(config.cell, width, width // ways, *shape, bidirectional=config.bidirectional)
        self.decoder = Recurrent(config.cell, width if config.feeds == "start" else 2 * width, width, *shape)
        self.scores: Alignment | None = None
        if config.attention != "none" and config.attention != "fixed":
            self.scores = Alignment(config.attention, width, covers=config.coverage == "score")
        both = config.attention != "none" or config.feeds == "every"  # the output reads [d; c]
        narrows = both and (config.feeds == "attentional" or config.tied == "all")
        self.narrow = nn.Linear(2 * width, width, bias=False) if narrows else None
        self.head = nn.Linear(2 * width if both and not narrows else width, sizes.vocab_size)
        if config.tied == "all":
            self.head.weight = self.vectors.weight
        self.ctc_head = nn.Linear(width, sizes.vocab_size) if config.ctc else None

    @property
    def _one_table(self) -> bool:
        """Whether source and target share their vectors; a source with a vocabulary of its own cannot."""
        return self.stem is not None or (self.config.tied != "none" and not self.sizes.source_vocab_size)

    def _table(self, ids: int) -> nn.Embedding:
        """Vectors of deviation 0.4; with large ones (2) a small translation is learnt much more slowly."""
        table = nn.Embedding(ids, self.config.width)
        nn.init.normal_(table.weight, std=0.4)
        return table

    @property
    def token_tables(self) -> list[tuple[nn.Embedding, bool]]:
        """What model.embeddings fills, none of them of small letters."""
        tables = [self.vectors] if self._one_table else [self.vectors, self.source_vectors]
        return [(table, False) for table in tables]

    @property
    def tied(self) -> bool:
        return self.config.tied == "all"

    def read(self, source: Tensor, source_mask_BS: Tensor | None) -> Decoding:
        """What the decoder begins with. Padding changes nothing."""
        return self._begin(self.encoded(source, source_mask_BS))

    def encoded(self, source: Tensor, source_mask_BS: Tensor | None) -> Encoded:
        """The encoder."""
        x_BSD = self.drop(self.source_vectors(source) if self.stem is None else self.stem(source, source_mask_BS))
        mask_BS = None if source_mask_BS is None else self.source_mask(source_mask_BS)
        if self.config.reverse_source:
            h_BSD, end = self.encoder(x_BSD.flip(1), None if mask_BS is None else mask_BS.flip(1))
            h_BSD = h_BSD.flip(1)
        else:
            h_BSD, end = self.encoder(x_BSD, mask_BS)
        if self.config.bidirectional:
            end = RecurrentState(*(torch.cat([part[::2], part[1::2]], -1) for part in end.parts()))
        every_BS = x_BSD.new_ones(x_BSD.shape[:2], dtype=torch.bool) if mask_BS is None else mask_BS
        return Encoded(h_BSD, every_BS, end)

    def _begin(self, encoded: Encoded) -> Decoding:
        """The state before the target."""
        if self.config.attention != "none":
            return self._attending(self.drop(encoded.h_BSD), encoded.mask_BS, encoded.end)
        if self.config.feeds == "start":
            return Decoding(encoded.end, None, {})
        return Decoding(self.decoder.zero_state(len(encoded.h_BSD)), None, {"context": encoded.end.h_LBD[-1]})

    def source_mask(self, mask_BS: Tensor) -> Tensor:
        return mask_BS if self.stem is None else self.stem.mask(mask_BS)

    def _attending(self, h_BSD: Tensor, mask_BS: Tensor, end: RecurrentState) -> Decoding:
        """The state before the target, of a decoder with attention."""
        own = {}
        if self.config.coverage == "score":
            own["attended"] = h_BSD.new_zeros(mask_BS.shape)
        if self.config.attention == "fixed":
            own["place"] = mask_BS.new_zeros(len(mask_BS), 1, dtype=torch.long)
        if self.config.feeds == "attentional":
            own["fed"] = h_BSD.new_zeros(len(h_BSD), self.config.width)
        keys_BSD = h_BSD if self.scores is None else self.scores.keys(h_BSD)
        return Decoding(end, SourceStates(h_BSD, keys_BSD, mask_BS), own)

    def forward(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """logits_BTV; nothing is carried from batch to batch."""
        return self.head(self._output(self._forced(batch).out_BTD)), None

    def loss(self, batch: Batch, state: None = None) -> Loss:
        """The cross-entropy, without all logits at once where the vocabulary is large, and the losses of coverage and
        of CTC."""
        encoded = self.encoded(batch.source, batch.source_mask)
        read = self._read_target(batch.tokens_BT, self._begin(encoded))
        out_BTD = self._output(read.out_BTD)
        weights = self.head.weight, batch.targets, self.head.bias
        (first, *added), state = smoothed_loss(out_BTD, *weights, self.config.label_smoothing)
        if self.config.coverage == "loss" and read.alpha_BTS is not None:
            added.append(Term("coverage", coverage_loss(read.alpha_BTS, batch.targets != IGNORE), first.count))
        if self.ctc_head is not None:
            logits_BSV = self.ctc_head(self.drop(encoded.h_BSD))
            added.append(ctc_term(logits_BSV, encoded.mask_BS, batch.targets, first.count, self.config.ctc))
        return Loss((first, *added), state)

    def counts(self, batch: Batch) -> dict[str, int]:
        config = self.config
        added = {"label_smoothing": config.label_smoothing, "coverage": config.coverage == "loss", "ctc": config.ctc}
        return dict.fromkeys(("cross_entropy", *(name for name, there in added.items() if there)), batch.count)

    @torch.inference_mode()
    def alignment(self, batch: Batch) -> Tensor | None:
        return self._forced(batch).alpha_BTS

    def sentence_vectors(self, source_BS: Tensor, source_mask_BS: Tensor) -> Tensor:
        """The last layer's h_S."""
        begin = self.read(source_BS, source_mask_BS)
        return begin.own["context"] if "context" in begin.own else begin.decoder.h_LBD[-1]

    def _forced(self, batch: Batch) -> Read:
        """Read the right tokens of the target (teacher forcing)."""
        # No mask: padding stands to the right, and nobody asks for the state after it.
        return self._read_target(batch.tokens_BT, self.read(batch.source, batch.source_mask))

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
        read = self._read_target(tokens_BT, state, mask_BT)
        out_BD = read.out_BTD[:, -1]
        if mask_BT is not None:
            last_B11 = (mask_BT * torch.arange(mask_BT.shape[1], device=mask_BT.device)).amax(1)[:, None, None]
            out_BD = read.out_BTD.take_along_dim(last_B11, 1)[:, 0]
        return self.head(self._output(out_BD)), read.state

    def _read_target(self, tokens_BT: Tensor, state: Decoding, mask_BT: Tensor | None = None) -> Read:
        """Read tokens of the target; rows stay as they are where the mask is False."""
        x_BTD = self.drop(self.vectors(tokens_BT))
        read = (self._time_by_time if self.config.stepwise else self._all_times)(x_BTD, state, mask_BT)
        if recording() and read.alpha_BTS is not None:
            probe("alignment", read.alpha_BTS.detach())
        return read

    def _all_times(self, x_BTD: Tensor, state: Decoding, mask_BT: Tensor | None) -> Read:
        """The recurrence in one pass, then the attention of all times."""
        context_BD = state.own.get("context")
        d_BTD, decoder = self.decoder(beside(x_BTD, context_BD), mask_BT, state.decoder)
        if state.source is None:
            return Read(beside(d_BTD, context_BD), None, replace(state, decoder=decoder))
        alpha_BTS, c_BTD = self._attend(d_BTD, state, mask_BT)
        return Read(torch.cat([d_BTD, c_BTD], -1), alpha_BTS, _after(state, decoder, alpha_BTS, mask_BT))

    def _time_by_time(self, x_BTD: Tensor, state: Decoding, mask_BT: Tensor | None) -> Read:
        """One time after the other, since what is attended to goes into the recurrence."""
        outs, alphas = [], []
        for t in range(x_BTD.shape[1]):
            read = self._one_time(x_BTD[:, t : t + 1], state)
            state = read.state if mask_BT is None else read.state.where(mask_BT[:, t : t + 1], state)
            outs.append(read.out_BTD)
            alphas += [] if read.alpha_BTS is None else [read.alpha_BTS]
        return Read(torch.cat(outs, 1), torch.cat(alphas, 1), state)

    def _one_time(self, x_B1D: Tensor, state: Decoding) -> Read:
        if self.config.feeds == "every":  # the previous state chooses what goes into this one
            alpha_B1S, c_B1D = self._attend(state.decoder.h_LBD[-1][:, None], state)
            d_B1D, decoder = self.decoder(torch.cat([x_B1D, c_B1D], -1), None, state.decoder)
            return Read(torch.cat([d_B1D, c_B1D], -1), alpha_B1S, _after(state, decoder, alpha_B1S))
        d_B1D, decoder = self.decoder(beside(x_B1D, state.own["fed"]), None, state.decoder)
        alpha_B1S, c_B1D = self._attend(d_B1D, state)
        a_B1D = self._narrowed(torch.cat([d_B1D, c_B1D], -1))
        after = _after(state, decoder, alpha_B1S)
        return Read(a_B1D, alpha_B1S, replace(after, own=after.own | {"fed": a_B1D[:, 0]}))

    def _attend(self, d_BTD: Tensor, state: Decoding, mask_BT: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """alpha_BTS and c_BTD of these states of the decoder."""
        assert state.source is not None
        if self.scores is None:
            alpha_BTS = fixed_weights(_places(d_BTD, state, mask_BT), state.source.mask_BS, d_BTD, state.beams)
        else:
            alpha_BTS = self.scores(d_BTD, state.source, state.attended_BS, mask_BT)
        return alpha_BTS, contexts(alpha_BTS, state.source.h_BSD)

    def _output(self, out: Tensor) -> Tensor:
        """What the head multiplies."""
        if self.config.feeds == "attentional":
            return out
        return self.drop(out) if self.narrow is None else self._narrowed(out)

    def _narrowed(self, both: Tensor) -> Tensor:
        """tanh(W [d; c])."""
        assert self.narrow is not None
        narrowed: Tensor = self.drop(self.narrow(both).tanh())
        return narrowed


def beside(x_BTD: Tensor, context_BD: Tensor | None) -> Tensor:
    """x with the context put beside it at every time; x alone where there is none."""
    if context_BD is None:
        return x_BTD
    return torch.cat([x_BTD, context_BD[:, None].expand(-1, x_BTD.shape[1], -1)], dim=-1)


def _places(x_BTD: Tensor, state: Decoding, mask_BT: Tensor | None) -> Tensor:
    """The number of tokens of the target before each."""
    if mask_BT is None:
        return state.own["place"] + torch.arange(x_BTD.shape[1], device=x_BTD.device)
    return state.own["place"] + mask_BT.cumsum(1) - mask_BT.long()


def _after(state: Decoding, decoder: RecurrentState, alpha_BTS: Tensor, mask_BT: Tensor | None = None) -> Decoding:
    """The state after some tokens that got this attention."""
    own = dict(state.own)
    if "attended" in own:
        real_BTS = alpha_BTS if mask_BT is None else alpha_BTS * mask_BT[:, :, None]
        own["attended"] = own["attended"] + real_BTS.sum(1)
    if "place" in own:
        own["place"] = own["place"] + (alpha_BTS.shape[1] if mask_BT is None else mask_BT.sum(1, keepdim=True))
    return replace(state, decoder=decoder, own=own)
