"""Transformer encoder-decoder (Vaswani et al. 2017, "Attention is all you need"), for translation and summaries.

    x_s^0 = c E[x_s] + P[s]                         vectors of the source's tokens and places (layers/position.py)
    m     = LN(Block^N(x^0))                        the encoder: each place of the source sees all of them
    y_t^0 = c E'[y_t] + P'[t]                       the target, from its STOP on
    y^l   = Block(y^(l-1), m)                       the decoder: each place sees those before it, then the source
                                                    (layers/attention.py, layers/transformer.py)
    p(y_{t+1} | x, y_1 ... y_t) = softmax(E' LN(y_t^N) + b)           tied: the output weights are the vectors E'

With norm = post, as in the paper, there is no LN after the last layers; pre-LN learns without a long warm-up. c is
sqrt(D) where the vectors of places are fixed (sinusoidal, onehot), else 1. How a target is read and written, with what
the decoder keeps of source and target, stands in models/encoder_decoder.py.

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

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.data.config import Config as Data
from segue.errors import InputError
from segue.layers.attention import CrossAttention, SelfAttention
from segue.layers.kv_cache import Loops
from segue.layers.one_token import Stack, Stacked, loops_for
from segue.layers.position import Position, Positions
from segue.layers.sources import check_source, stem
from segue.layers.transformer import Block, FeedForward, LayerNorm
from segue.models.base import Loss, ModelConfig, Sizes
from segue.models.encoder_decoder import BlockEncoderDecoder
from segue.models.network import ctc_term, smoothed_loss


class Shape(NamedTuple):
    """A published model."""

    layers: int
    width: int
    heads: int


SHAPES = {"base": Shape(6, 512, 8), "big": Shape(6, 1024, 16)}


class Transformer(BlockEncoderDecoder, Stacked):
    """Transformer encoder-decoder: writes a target for a source."""

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
    def reach(self) -> int:
        return self.window

    @property
    def tied(self) -> bool:
        return self.head is None

    # The source

    def encoded(self, source: Tensor, source_mask_BS: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The encoder: m_BSD, and its mask (B, 1, 1, S), True at real places; None: all are."""
        x_BSD = self.scaled(self.source_vectors(source)) if self.stem is None else self.stem(source, source_mask_BS)
        mask = None if source_mask_BS is None else self.source_mask(source_mask_BS)[:, None, None, :]
        length = x_BSD.shape[1]
        if length > self.config.context:
            raise InputError(self._too_long(source.shape[1], length))
        for x_BSD in self.encoder_layers(x_BSD, mask):  # noqa: B007, B020
            pass
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

    # The target

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

    @property
    def stack(self) -> Stack:
        norm = self.norm if self.config.norm == "pre" else None
        blocks = cast(list[Block], list(self.decoder))
        return Stack(self.vectors.weight, self.scale, self.positions, blocks, norm, self._out, self.bias)

    def loops(self, rows: int) -> Loops | None:
        return loops_for(self.stack, rows)


def _block(config: Transformer.Config, decoder: bool) -> Block:
    shape = (config.width, config.heads, config.head_width, config.attention_dropout)
    attention = SelfAttention(*shape, causal=decoder, probe="attention" if decoder else "encoder_attention")
    cross = CrossAttention(*shape) if decoder else None
    feed = FeedForward(config.width, config.activation, config.feed, config.activation_dropout)
    norms = [LayerNorm(config.width) for _ in range(3 if decoder else 2)]
    return Block(attention, feed, norms, norm=config.norm, residual=True, dropout=config.dropout, cross=cross)
