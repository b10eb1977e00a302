"""Transformer encoder-decoder (Vaswani et al. 2017, "Attention is all you need"), for translation and summaries.

    x_s^0 = c E[x_s] + P[s]                         vectors of the source's tokens and places (layers/position.py)
    m     = LN(Block^N(x^0))                        the encoder: each place of the source sees all of them
    y_t^0 = c E'[y_t] + P'[t]                       the target, from its STOP on
    y^l   = Block(y^(l-1), m)                       the decoder: each place sees those before it, then the source
                                                    (layers/attention.py, layers/transformer.py)
    p(y_{t+1} | x, y_1 ... y_t) = softmax(E' LN(y_t^N) + b)           tied: the output weights are the vectors E'

With norm = post, as in the paper, there is no LN after the last layers; pre-LN learns without a long warm-up. c is
sqrt(D) where the vectors of places are fixed (sinusoidal, onehot), else 1. The source is read once: what each layer of
the decoder needs of it, its keys and values, is kept (Memory) beside the KV cache of the target. Beams of one text
share them. `alignment` is the mean of the heads of the last layer's attention to the source.

A source may also be sound or a picture: x_s^0 is then what layers/sources.py makes of its frames, and P[s]. With
ctc = w the encoder's outputs m also predict the target without the decoder, by CTC (layers/ctc.py), and w times that
loss is added.

A relative position has T5's buckets: of both sides in the encoder, of what came before in the decoder, and none in the
attention to the source. Training adds label smoothing to the cross-entropy, as a term of its own. A target that is
longer than `context` is read through a window, as gpt.py says.

As fairseq: first weights by Glorot and Bengio (2010), those of q, k and v each as a matrix of its own; vectors
N(0, 1 / D). Departures from the paper: one STOP both begins and ends a target, and nothing ends a source (output_bias:
zeros begin a target, and SentencePiece's sources end with STOP, as Marian's do); dropout of attention weights and
activations have keys of their own (0 in the paper).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.batches.state import State
from segue.data.config import Config as Data
from segue.errors import InputError
from segue.layers.attention import CrossAttention, Memory, SelfAttention
from segue.layers.kv_cache import Slots, TransformerStep, Window, read_tokens
from segue.layers.losses import target_logprobs
from segue.layers.one_token import Stack, Stacked, loops_for
from segue.layers.position import Position, Positions
from segue.layers.probe import recording
from segue.layers.sources import check_source, stem
from segue.layers.transformer import Block, FeedForward, LayerNorm
from segue.models.base import EncoderDecoder, Loss, ModelConfig, Sizes
from segue.models.network import Network, ctc_term, smoothed_loss


class Shape(NamedTuple):
    """A published model."""

    layers: int
    width: int
    heads: int


SHAPES = {"base": Shape(6, 512, 8), "big": Shape(6, 1024, 16)}


@dataclass(frozen=True)
class SourceWindow(State):
    """What the decoder has read of each target, and what it sees of each source."""

    window: Window
    """The KV cache of the targets."""
    memories: tuple[Memory, ...]
    """Keys and values of the sources, for each layer."""
    beams: int = 1
    """Rows of the window for each row of the memories, side by side."""
    attended_BS: Tensor | None = None

    @property
    def most(self) -> int:  # type: ignore[override]
        return self.window.most

    @property
    def source_places(self) -> int:  # type: ignore[override]
        return self.memories[0].k_BHSK.shape[2]

    @property
    def rows(self) -> Tensor:
        return self.window.rows

    def covering(self) -> SourceWindow:
        key_BHSK = self.memories[-1].k_BHSK
        zeros_BS = key_BHSK.new_zeros(len(self.window.length_B), key_BHSK.shape[2], dtype=torch.float32)
        return replace(self, attended_BS=zeros_BS)

    def widened(self, source_places: int) -> SourceWindow:
        attended_BS = self.attended_BS
        if attended_BS is not None:
            attended_BS = F.pad(attended_BS, (0, max(0, source_places - attended_BS.shape[1])))
        memories = tuple(one.widened(source_places) for one in self.memories)
        return replace(self, memories=memories, attended_BS=attended_BS)

    def spread(self, beams: int) -> SourceWindow:
        """Each row so many times; nobody copies the memory of the sources."""
        rows = self.rows.repeat_interleave(beams)
        attended_BS = None if self.attended_BS is None else self.attended_BS.index_select(0, rows)
        return SourceWindow(self.window.select(rows), self.memories, beams * self.beams, attended_BS)

    def select(self, rows: Tensor, same_text: bool = False) -> SourceWindow:
        window = self.window.select(rows)
        attended_BS = None if self.attended_BS is None else self.attended_BS.index_select(0, rows)
        if same_text:
            return SourceWindow(window, self.memories, self.beams, attended_BS)
        sources, beams = self._sources(rows)
        return SourceWindow(window, tuple(one.select(sources) for one in self.memories), beams, attended_BS)

    def _sources(self, rows: Tensor) -> tuple[Tensor, int]:
        """The rows of the memories that these rows need, and how many rows share each: as many as before if all beams
        of a text stay together."""
        sources = rows // self.beams
        if self.beams > 1 and len(rows) % self.beams == 0:
            groups = sources.view(-1, self.beams)
            if bool((groups == groups[:, :1]).all()):
                return groups[:, 0], self.beams
        return sources, 1

    def join(self, others: Sequence[SourceWindow]) -> SourceWindow:
        every = [self, *others]
        if len({one.beams for one in every}) > 1:
            every = [one.unfolded() for one in every]
        window = every[0].window.join([one.window for one in every[1:]])
        layers = zip(*(one.memories for one in every), strict=True)
        memories = tuple(one[0].join(one[1:]) for one in layers)
        sums = [one.attended_BS for one in every if one.attended_BS is not None]
        attended_BS = None
        if len(sums) == len(every):
            most = memories[0].k_BHSK.shape[2]
            attended_BS = torch.cat([F.pad(one_BS, (0, most - one_BS.shape[1])) for one_BS in sums])
        return SourceWindow(window, memories, every[0].beams, attended_BS)

    def unfolded(self) -> SourceWindow:
        """The same with a row of the memories for each row of the window."""
        sources = self.rows // self.beams
        return replace(self, memories=tuple(one.select(sources) for one in self.memories), beams=1)


class DecoderStep(TransformerStep):
    """One token of each row at a time, with a source: the memories of the sources are in the same place too. It sums no
    attention, as `step` does."""

    def __init__(self, model: Transformer, state: SourceWindow, own: bool = False) -> None:
        """`own`: the memories of the sources are copied, so that `take` can write over them."""
        assert state.attended_BS is None
        self.model, self.beams, self.memories = model, state.beams, state.memories
        loops = loops_for(model.stack, len(state.window.length_B))
        super().__init__(state.window, model.window, self._decoded, model.logits, loops)
        if own:
            self.memories = tuple(one.select(state.rows[: len(one.k_BHSK)]) for one in state.memories)

    def _decoded(self, tokens_BT: Tensor, slots: Slots) -> Tensor:
        return self.model.decoded(tokens_BT, self.memories, slots, self.beams)

    def take(self, state: SourceWindow) -> None:  # type: ignore[override]
        super().take(state.window)
        for ours, theirs in zip(self.memories, state.memories, strict=True):
            for place, new in zip(ours[:2], theirs[:2], strict=True):
                place.copy_(new)
            if ours.mask is not None:
                ours.mask.copy_(theirs.real())
        self.beams = state.beams

    def state(self) -> SourceWindow:  # type: ignore[override]
        memories = tuple(self._memories(self.map.source_B[:: self.beams]))
        return SourceWindow(super().state(), memories, self.beams)


class Transformer(Network, EncoderDecoder, Stacked):
    """Transformer encoder-decoder: writes a target for a source."""

    family = "Transformer"
    records = True
    head_names = ("head.", "bias", "ctc_head.")

    @dataclass(frozen=True)
    class Config(ModelConfig):
        size: Literal["own", "base", "big"] = "own"
        """A published shape, which sets layers, width and heads: base or big; own: as they say."""
        layers: int = 3
        """Layers of the encoder."""
        decoder_layers: int = 0
        """Layers of the decoder; 0: as many as the encoder has."""
        width: int = 256
        """Width of a token's vector in every layer."""
        heads: int = 4
        """Attention heads in a layer; width must be divisible by them."""
        feed: int = 0
        """Width of the feed-forward network inside; 0: 4 times width."""
        context: int = 1024
        """Most tokens of a source, and of a target, seen at once."""
        norm: Literal["pre", "post"] = "pre"
        """Where layer norm stands: pre (before each part) or post (after each sum, as the paper)."""
        position: Position = "sinusoidal"
        """Position encoding: none, onehot, sinusoidal, learned, relative (T5) or rotary."""
        activation: Literal["gelu", "relu", "silu"] = "relu"
        """Activation function of the feed-forward network: gelu, relu or silu."""
        tied: Literal["all", "target", "none"] = "all"
        """Weight tying: all (source, target and output share one table), target (target and output do), none."""
        dropout: float = 0.0
        """Dropout of embeddings and of each part's output: the share set to 0."""
        attention_dropout: float = 0.0
        """Dropout of attention weights."""
        activation_dropout: float = 0.0
        """Dropout inside the feed-forward network."""
        label_smoothing: float = 0.0
        """Label smoothing: the share of a target's probability that is spread over the vocabulary, in training."""
        patch: int = 8
        """Pictures: pixels a side of a patch, each a place of the source; 0: 2D convolutions read the picture."""
        ctc: float = 0.0
        """Sound: weight of CTC's loss on the encoder's output, beside the decoder's; 0: none."""
        output_bias: bool = False
        """As Marian: add a bias to each token's logit, and begin a target with a vector of zeros, not with STOP's."""
        embeddings: str = ""
        """Begin with the vectors of a word2vec run or file, rescaled (train.freeze=vectors keeps them fixed)."""

        def __post_init__(self) -> None:
            if self.size != "own":
                self._take(SHAPES[self.size])
            for name in ("layers", "width", "heads", "context"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} = {getattr(self, name)}: must be 1 or more")
            if not 0 <= self.ctc <= 1:
                raise ValueError(f"ctc = {self.ctc}: must be 0 to 1")
            for name in ("decoder_layers", "feed", "patch"):
                if getattr(self, name) < 0:
                    raise ValueError(f"{name} = {getattr(self, name)}: must be 0 or more")
            for name in ("dropout", "attention_dropout", "activation_dropout", "label_smoothing"):
                if not 0 <= getattr(self, name) < 1:
                    raise ValueError(f"{name} = {getattr(self, name)}: must be at least 0 and less than 1")
            self._check_position()

        def _check_position(self) -> None:
            if self.width % self.heads:
                near = ", ".join(str(n) for n in range(1, self.width + 1) if self.width % n == 0)
                raise ValueError(f"width = {self.width} does not divide by heads = {self.heads}: it does by {near}")
            if self.position == "rotary" and self.head_width % 2:
                raise ValueError(
                    f"position = rotary turns pairs, but a head is {self.head_width} wide (width / heads): "
                    "an even number is needed"
                )
            if self.position == "onehot" and self.context >= self.width:
                raise ValueError(
                    f"position = onehot with context = {self.context}, width = {self.width}: every place and the STOP "
                    "before them need a coordinate of their own, so context must be less than width"
                )

        def _take(self, shape: Shape) -> None:
            """The shape's numbers; one that was given must be the same."""
            defaults = {field.name: field.default for field in fields(self)}
            for name, own in shape._asdict().items():
                given = getattr(self, name)
                if given not in (defaults[name], own):
                    raise ValueError(
                        f"{name} = {given} with size = {self.size}, whose {name} is {own}: leave one of the two out"
                    )
                object.__setattr__(self, name, own)

        @property
        def head_width(self) -> int:
            return self.width // self.heads

    config: Config

    @classmethod
    def check_data(cls, config: Config, data: Data) -> None:
        check_source(data.source, data.pixels, config.patch, config.ctc)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        width, both = config.width, not sizes.source_vocab_size
        # The vector of a mark `start` is zeros and does not learn. Without the mark STOP, id 0, begins a target.
        self.vectors = nn.Embedding(sizes.ids, width, padding_idx=sizes.start or None)
        self.stem = stem(sizes, width, config.patch)
        """What reads sound and pictures; None: the source is text, and has vectors."""
        shared = (config.tied == "all" and both) or self.stem is not None
        self.source_vectors = self.vectors if shared else nn.Embedding(sizes.source_ids, width)
        places = (config.width, config.heads, config.head_width)
        self.source_positions = Positions(config.position, config.context, *places, both=True)
        self.positions = Positions(config.position, config.context + 1, *places)  # one more for the first STOP
        self.scale = self.positions.scale
        """What the tokens' vectors are multiplied by, before those of the places are added."""
        self.drop = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_block(config, decoder=False) for _ in range(config.layers))
        self.decoder = nn.ModuleList(
            _block(config, decoder=True) for _ in range(config.decoder_layers or config.layers)
        )
        self.norm_encoder = LayerNorm(width) if config.norm == "pre" else nn.Identity()
        self.norm = LayerNorm(width) if config.norm == "pre" else nn.Identity()
        self.head = nn.Linear(width, sizes.vocab_size, bias=False) if config.tied == "none" else None
        self.bias = nn.Parameter(torch.zeros(sizes.vocab_size)) if config.output_bias else None
        self.ctc_head = nn.Linear(width, sizes.vocab_size) if config.ctc else None
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                parts = {"qkv.weight": 3, "kv.weight": 2}.get(name.split(".", 3)[-1], 1)
                for part in parameter.detach().chunk(parts):
                    nn.init.xavier_uniform_(part)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.width**-0.5)
        if self.vectors.padding_idx is not None:
            nn.init.zeros_(self.vectors.weight.detach()[self.sizes.start])
        if self.head is not None:
            nn.init.normal_(self.head.weight, std=self.config.width**-0.5)

    @property
    def token_tables(self) -> list[tuple[nn.Embedding, bool]]:
        """What model.embeddings fills, none of them of small letters."""
        tables = [self.vectors] if self.source_vectors is self.vectors else [self.vectors, self.source_vectors]
        return [(table, False) for table in tables]

    @property
    def regions(self) -> list[nn.Module]:
        """What is compiled, one by one, where that pays."""
        return [*self.encoder, *self.decoder]

    @classmethod
    def marks(cls, config: Any) -> tuple[str, ...]:
        return ("start",) if config.output_bias else ()

    @classmethod
    def window_of(cls, config: Any) -> int:
        return int(config.context)

    @property
    def window(self) -> int:
        """Tokens of a target that the decoder sees at once, with the STOP before them."""
        return self.config.context + 1

    @property
    def tied(self) -> bool:
        return self.head is None

    # The source

    def encoded(self, source: Tensor, source_mask_BS: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The encoder: m_BSD, and its mask (B, 1, 1, S), True at real places; None: all are."""
        x_BSD = self._scaled(self.source_vectors(source)) if self.stem is None else self.stem(source, source_mask_BS)
        mask = None if source_mask_BS is None else self.source_mask(source_mask_BS)[:, None, None, :]
        length = x_BSD.shape[1]
        if length > self.config.context:
            raise InputError(self._too_long(source.shape[1], length))
        places = torch.arange(length, device=x_BSD.device)
        bias, rotation = self.source_positions.bias(places, length), self.source_positions.rotation(places)
        x_BSD = self.drop(self.source_positions.add(x_BSD, places))
        for block in self.encoder:
            with self._as_compiled():
                x_BSD = block(x_BSD, mask, bias, rotation)
        out: Tensor = self.norm_encoder(x_BSD)
        return out, mask

    def _too_long(self, frames: int, length: int) -> str:
        context = self.config.context
        if self.stem is None:
            what, most = f"{length:,} tokens", context
        else:
            what, most = f"{frames:,} frames, which make {length:,} places", context * frames // length
        return (
            f"A source has {what}, and this model sees {context:,} (model.context). "
            f"Set batches.length={most} or less, or model.context={length} or more."
        )

    def source_mask(self, mask_BS: Tensor) -> Tensor:
        return mask_BS if self.stem is None else self.stem.mask(mask_BS)

    def memories(self, m_BSD: Tensor, mask: Tensor | None) -> tuple[Memory, ...]:
        """Keys and values of the encoded source for each layer of the decoder."""
        return tuple(_cross(block).memory(m_BSD, mask) for block in self.decoder)

    def _scaled(self, x_BTD: Tensor) -> Tensor:
        return x_BTD if self.scale == 1 else self.scale * x_BTD

    def _as_compiled(self) -> AbstractContextManager[None]:
        """Run blocks as compiled in training only: compiled code shows nothing to a probe."""
        if self.compiled is None or (self.training and not recording()):
            return nullcontext()
        return cast(AbstractContextManager[None], torch.compiler.set_stance("force_eager"))

    # The target, in one pass: teacher forcing. Padding stands on the right, where no real token sees it.

    def decoded(
        self,
        tokens_BT: Tensor,
        memories: Sequence[Memory],
        slots: Slots | None = None,
        beams: int = 1,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """The decoder: x_BTD of the last layer. With `slots` the tokens follow those of a cache. `weights` gets the
        attention of the last layer to the source, (B, T, S)."""
        length = tokens_BT.shape[1]
        places, seen = torch.arange(length, device=tokens_BT.device), length
        if slots is not None:
            places, seen = slots.places(length), slots.seen
        bias = self.positions.causal_bias(places, seen, self.vectors.weight.dtype)
        rotation = self.positions.rotation(places)
        if self.sizes.start != self.sizes.stop:  # batches begin every target with STOP, which stands nowhere else in it
            tokens_BT = tokens_BT.masked_fill(tokens_BT == self.sizes.stop, self.sizes.start)
        x_BTD: Tensor = self.drop(self.positions.add(self._scaled(self.vectors(tokens_BT)), places))
        for i, block in enumerate(self.decoder):
            cache = None if slots is None else slots.layer(i)
            memory = memories[i]._replace(weights=weights if i + 1 == len(self.decoder) else None)
            with self._as_compiled():
                x_BTD = block(x_BTD, None, bias, rotation, cache, memory, beams)
        return x_BTD

    def forward(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """logits_BTV. Nothing is carried from one batch to the next."""
        return self.logits(self._forced(batch, *self._source(batch))), None

    def loss(self, batch: Batch, state: None = None) -> Loss:
        m_BSD, mask = self._source(batch)
        x_BTD = self.norm(self._forced(batch, m_BSD, mask))
        loss = smoothed_loss(x_BTD, self._out, batch.targets, self.bias, self.config.label_smoothing)
        if self.ctc_head is None:
            return loss
        every_BS = m_BSD.new_ones(m_BSD.shape[:2], dtype=torch.bool) if mask is None else mask[:, 0, 0]
        count = loss.terms[0].count
        term = ctc_term(self.ctc_head(m_BSD), every_BS, batch.targets, count, self.config.ctc)
        return Loss((*loss.terms, term))

    def counts(self, batch: Batch) -> dict[str, int]:
        added = {"label_smoothing": self.config.label_smoothing, "ctc": self.config.ctc}
        return dict.fromkeys(("cross_entropy", *(name for name, there in added.items() if there)), batch.count)

    def alignment(self, batch: Batch) -> Tensor:
        """alpha_BTS: the last layer's attention to the source, the mean of its heads."""
        weights: list[Tensor] = []
        self._forced(batch, *self._source(batch), weights)
        return weights[0]

    def sentence_vectors(self, source_BS: Tensor, source_mask_BS: Tensor) -> Tensor:
        """The mean of the encoder's outputs over the real tokens of each source."""
        m_BSD, _ = self.encoded(source_BS, source_mask_BS)
        real_BS1 = self.source_mask(source_mask_BS)[..., None]
        return (m_BSD * real_BS1).sum(1) / real_BS1.sum(1)

    def _source(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self.encoded(batch.source, None if batch.source_unpadded else batch.source_mask)

    def _forced(self, batch: Batch, m_BSD: Tensor, mask: Tensor | None, weights: list[Tensor] | None = None) -> Tensor:
        """Read the right tokens of the target, given the encoded source."""
        length = batch.tokens_BT.shape[1]
        if length > self.window:
            raise InputError(
                f"A target has {length - 1:,} tokens, and this model sees {self.config.context:,} (model.context). "
                f"Set batches.length={self.config.context} or less, or model.context={length - 1} or more."
            )
        return self.decoded(batch.tokens_BT, self.memories(m_BSD, mask), weights=weights)

    @property
    def _out(self) -> Tensor:
        """The output weights. Marks have vectors, and are never predicted."""
        if self.head is not None:
            return self.head.weight
        return self.vectors.weight[: self.sizes.vocab_size] if self.sizes.marks else self.vectors.weight

    def logits(self, x: Tensor) -> Tensor:
        """Of what the last layer puts out. Of few places they are not rounded to bfloat16, as weights may be."""
        if x.is_cuda and x.dim() == 2 and x.dtype == self._out.dtype == torch.bfloat16:
            out = torch.mm(self.norm(x), self._out.T, out_dtype=torch.float32)
            return out if self.bias is None else out + self.bias
        return F.linear(self.norm(x), self._out, self.bias)

    # The target, token by token or piece by piece

    @torch.inference_mode()
    def logprobs(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """log p of each target, 0 at IGNORE; a target longer than the window is read through it."""
        if batch.tokens_BT.shape[1] <= self.window:
            return target_logprobs(self(batch)[0], batch.targets), None
        rows, length = batch.tokens_BT.shape
        begun = self.start(rows, length, batch.source, batch.source_mask)
        x_BTD, order_BT, _ = self._read(batch.tokens_BT, batch.mask_BT, begun, None)
        logp_BT = target_logprobs(self.logits(x_BTD), batch.targets.gather(1, order_BT))
        return logp_BT.gather(1, order_BT.argsort(1)), None

    @torch.inference_mode()
    def start(
        self, rows: int, capacity: int, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> SourceWindow:
        """Read the source; an empty KV cache for `capacity` tokens of the target, which grows when more are read."""
        if source is None or len(source) != rows:
            raise ValueError(f"transformer needs a source with {rows} rows to start from")
        config, places = self.config, max(1, min(capacity, self.window))
        parts = len(self.decoder), config.heads, config.head_width
        window = Window.empty(rows, places, self.vectors.weight, config.width, *parts)
        return SourceWindow(window, self.memories(*self.encoded(source, source_mask)))

    @torch.inference_mode()
    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: SourceWindow) -> tuple[Tensor, SourceWindow]:
        """Read target tokens; logits_BV of what follows each row's last real token."""
        weights: list[Tensor] | None = None if state.attended_BS is None else []
        _, _, window = self._read(tokens_BT, mask_BT, state, weights)
        attended_BS = state.attended_BS
        if weights and attended_BS is not None:
            real_BT = torch.arange(tokens_BT.shape[1], device=mask_BT.device) < mask_BT.sum(1, keepdim=True)
            attended_BS = attended_BS + (torch.cat(weights, 1) * real_BT[..., None]).sum(1)
        return self.logits(window.last_BD), replace(state, window=window, attended_BS=attended_BS)

    def _read(
        self, tokens_BT: Tensor, mask_BT: Tensor, state: SourceWindow, weights: list[Tensor] | None
    ) -> tuple[Tensor, Tensor, Window]:
        """As `read_tokens`; `weights` gets the attention of the tokens in their new order."""

        def layers(tokens_BT: Tensor, slots: Slots, rows: Tensor | None) -> Tensor:
            if rows is None:
                return self.decoded(tokens_BT, state.memories, slots, state.beams, weights)
            some = tuple(one.select(rows // state.beams) for one in state.memories)
            return self.decoded(tokens_BT, some, slots)

        return read_tokens(tokens_BT, mask_BT, state.window, self.window, layers)

    @property
    def stack(self) -> Stack:
        norm = self.norm if self.config.norm == "pre" else None
        blocks = cast(list[Block], list(self.decoder))
        return Stack(self.vectors.weight, self.scale, self.positions, blocks, norm, self._out, self.bias)

    def one_token(self, state: SourceWindow, places: int = 0) -> DecoderStep:
        if not places:
            return DecoderStep(self, state)
        config, parts = self.config, (len(self.decoder), self.config.heads, self.config.head_width)
        window = Window.empty(len(state.window.length_B), places, self.vectors.weight, config.width, *parts)
        step = DecoderStep(self, replace(state, window=window), own=True)
        step.take(state)
        return step


def _block(config: Transformer.Config, decoder: bool) -> Block:
    shape = (config.width, config.heads, config.head_width, config.attention_dropout)
    attention = SelfAttention(*shape, causal=decoder, probe="attention" if decoder else "encoder_attention")
    cross = CrossAttention(*shape) if decoder else None
    feed = FeedForward(config.width, config.activation, config.feed, config.activation_dropout)
    norms = [LayerNorm(config.width) for _ in range(3 if decoder else 2)]
    return Block(attention, feed, norms, norm=config.norm, residual=True, dropout=config.dropout, cross=cross)


def _cross(block: nn.Module) -> CrossAttention:
    assert isinstance(block, Block) and block.cross is not None
    return block.cross
