"""T5 (Raffel et al. 2020): a Transformer encoder-decoder that is given every task as text, and answers in text.

    x_s^0 = E[x_s]                                   vectors of the source's tokens; nothing is added for their places
    x'    = x + Attention(RMS(x))                    each layer (layers/transformer.py), without biases
    x''   = x' + FF(RMS(x'))
    m     = RMS(x^N)                                 the encoder's output
    y^l   = the same from y_t^0 = E[y_t], with CrossAttention(RMS(y), m) between the two
    scores of t for j = q_t · k_j + b[bucket(t - j)]     no 1 / sqrt(d_k); b, a number for each head and bucket of
                                                     distances, is shared by all layers (layers/position.py); the
                                                     attention to the source has none
    p(y_{t+1} | x, y_1 ... y_t) = softmax(E RMS(y_t^N) / sqrt(D))     tied (version 1.0), or of a matrix W of its own

It is pre-trained on running text: spans are hidden behind the sentinels <span0>, <span1> ..., and the target lists what
each hides (batches/spans.py). The sentinels are marks, ids beyond the vocabulary, and have vectors and logits as tokens
do. A target begins with the mark `start` (Hugging Face's pad), a source ends with STOP.

As the paper: feed-forward networks with ReLU (1.0) or gated with GELU (1.1), dropout of vectors, attention weights,
hidden layers, parts and outputs; first weights of the size that makes up for the missing 1 / sqrt(d_k). A model sees
any number of tokens at once, since places are told by distances alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.data.config import Config as Data
from segue.data.media import MEDIA
from segue.layers.attention import CrossAttention, SelfAttention
from segue.layers.position import Positions
from segue.layers.transformer import Block, FeedForward, GatedFeedForward, RmsNorm
from segue.models.base import Body, Loss, ModelConfig, Sizes, SpanModel
from segue.models.encoder_decoder import BlockEncoderDecoder
from segue.models.network import dropout_by_epochs, smoothed_loss

EPS = 1e-6
"""What the norms add to the mean square."""
_ANY = 1 << 24
"""More tokens than anybody reads at once."""

Size = Literal["own", "t5-small", "t5-base", "t5-large", "t5-v1.1-small", "t5-v1.1-base", "t5-v1.1-large"]


class Shape(NamedTuple):
    """A published model."""

    layers: int
    width: int
    heads: int
    feed: int
    gated: bool
    tied: bool
    head_width: int = 64


SHAPES: dict[Size, Shape] = {
    "t5-small": Shape(6, 512, 8, 2048, False, True),
    "t5-base": Shape(12, 768, 12, 3072, False, True),
    "t5-large": Shape(24, 1024, 16, 4096, False, True),
    "t5-v1.1-small": Shape(8, 512, 6, 1024, True, False),
    "t5-v1.1-base": Shape(12, 768, 12, 2048, True, False),
    "t5-v1.1-large": Shape(24, 1024, 16, 2816, True, False),
}


class T5(BlockEncoderDecoder, SpanModel, Body):
    """Encoder-decoder from text to text, pre-trained by span corruption."""

    causal = False
    stopped = True
    beside_states = ("decoder.", "norm.", "positions.")

    @dataclass(frozen=True)
    class Config(ModelConfig):
        size: Size = "own"
        """A published shape, as t5-small, t5-base or t5-v1.1-base; own: as the other keys say."""
        layers: int = 4
        """Layers of the encoder."""
        decoder_layers: int = 0
        """Layers of the decoder; 0: as many as the encoder has."""
        width: int = 256
        """Width of a token's vector in every layer."""
        heads: int = 4
        """Attention heads in a layer."""
        head_width: int = 0
        """Width of a head, 64 in the published models; 0: width / heads."""
        feed: int = 0
        """Width of the feed-forward network inside; 0: 4 times width."""
        gated: bool = False
        """Feed-forward networks gated with GELU (version 1.1), not with ReLU (1.0)."""
        tied: bool = True
        """Weight tying: the output weights are the token vectors (version 1.0)."""
        spans: int = 100
        """Sentinels: the most spans that can be hidden in a text."""
        dropout: float = 0.0
        """Dropout of embeddings, attention weights, hidden layers, each part's output and the last one's: the share."""
        label_smoothing: float = 0.0
        """Label smoothing: the share of a target's probability that is spread over the vocabulary, in training."""
        embeddings: str = ""
        """Begin with the vectors of a word2vec run or file, rescaled (train.freeze=vectors keeps them fixed)."""

        def __post_init__(self) -> None:
            if self.size != "own":
                self._take(SHAPES[self.size])
            for name in ("layers", "width", "heads", "spans"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} = {getattr(self, name)}: must be 1 or more")
            for name in ("decoder_layers", "feed", "head_width"):
                if getattr(self, name) < 0:
                    raise ValueError(f"{name} = {getattr(self, name)}: must be 0 or more")
            for name in ("dropout", "label_smoothing"):
                if not 0 <= getattr(self, name) < 1:
                    raise ValueError(f"{name} = {getattr(self, name)}: must be at least 0 and less than 1")
            if not self.head_width and self.width % self.heads:
                raise ValueError(f"width = {self.width} does not divide by heads = {self.heads}: give head_width too")
            if self.spans > 10_000:
                raise ValueError(f"spans = {self.spans}: must be 10,000 or less; each is a row of the token vectors")

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
        def of_head(self) -> int:
            """Width of a head."""
            return self.head_width or self.width // self.heads

    config: Config

    @classmethod
    def sentinels(cls, config: Any) -> tuple[str, ...]:
        return tuple(f"span{i}" for i in range(config.spans))

    @classmethod
    def marks(cls, config: Any) -> tuple[str, ...]:
        return ("start", *cls.sentinels(config))

    @classmethod
    def check_data(cls, config: Any, data: Data) -> None:
        if data.source in MEDIA:
            raise ValueError(f"t5 reads text, and the sources of these data are {data.source}s: train a transformer")

    @classmethod
    def dropout_for(cls, config: Config, epochs: float) -> float | None:
        # Other spans are hidden in every epoch, so that a text can be read more often before it is learnt by heart.
        return None if config.dropout else dropout_by_epochs(0.045, 0.1, epochs / 4)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        width, places = config.width, (1, config.width, config.heads, config.of_head)
        self.vectors = nn.Embedding(sizes.ids, width)
        self.source_positions = Positions("relative", *places, both=True)
        self.positions = Positions("relative", *places)
        self.scale = 1.0
        self.drop = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_block(config, decoder=False) for _ in range(config.layers))
        self.decoder = nn.ModuleList(
            _block(config, decoder=True) for _ in range(config.decoder_layers or config.layers)
        )
        self.norm_encoder = RmsNorm(width, EPS)
        self.norm = RmsNorm(width, EPS)
        self.head = None if config.tied else nn.Linear(width, sizes.ids, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        """As the authors: what a matrix puts out has about the size of what it reads; queries also make up for the
        missing 1 / sqrt(d_k)."""
        width, head_width = self.config.width, self.config.of_head
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            if name.endswith(("attention.qkv.weight", "cross.q.weight")):
                queries = parameter.detach()[: self.config.heads * head_width]
                nn.init.normal_(queries, std=(width * head_width) ** -0.5)
        nn.init.normal_(self.vectors.weight)
        for positions in (self.source_positions, self.positions):
            nn.init.normal_(positions.table.weight, std=width**-0.5)

    @property
    def head_width(self) -> int:
        return self.config.of_head

    @property
    def width(self) -> int:
        return self.config.width

    @property
    def depth(self) -> int:
        return self.config.layers + 1

    @property
    def tied(self) -> bool:
        return self.head is None

    @property
    def unwritten(self) -> list[int]:
        return [self.sizes.unk, *range(self.sizes.vocab_size, self.sizes.ids)]

    @property
    def reach(self) -> int:
        return _ANY

    # The source

    def encoded(self, source: Tensor, source_mask_BS: Tensor | None) -> tuple[Tensor, Tensor | None]:
        mask = None if source_mask_BS is None else source_mask_BS[:, None, None, :]
        for x_BSD in self._layers(source, mask):  # noqa: B007
            pass
        return x_BSD, mask

    def _layers(self, source_BS: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
        """The vectors of the source's tokens, then each layer's output, the last after the final norm."""
        x_BSD = self.scaled(self.vectors(source_BS))
        yield x_BSD
        for layer, x_BSD in enumerate(self.encoder_layers(x_BSD, mask)):  # noqa: B020
            yield self.drop(self.norm_encoder(x_BSD)) if layer + 1 == len(self.encoder) else x_BSD

    def scaled(self, x_BTD: Tensor) -> Tensor:
        """In mixed precision the layers read half as many bytes: their norms and sums are bound by memory."""
        device = x_BTD.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return x_BTD.to(torch.get_autocast_dtype(device))
        return x_BTD

    # The encoder as a body under another head

    def encode(self, batch: Batch, state: None = None) -> Tensor:
        """hidden_LBTD of the encoder: the vectors of the tokens, then each layer's output."""
        mask = None if batch.unpadded else batch.mask_BT[:, None, None, :]
        hidden = torch.stack([*self._layers(batch.tokens_BT, mask)])
        return hidden.masked_fill(~batch.mask_BT[:, :, None], 0.0)

    def last_layer(self, batch: Batch) -> Tensor:
        return self.encoded(batch.tokens_BT, None if batch.unpadded else batch.mask_BT)[0]

    # The target

    def begun(self, tokens_BT: Tensor, places: Tensor) -> Tensor:
        """A hidden span may hold STOP, so that the first place alone tells the start."""
        return tokens_BT.masked_fill(places == 0, self.sizes.start)

    def loss(self, batch: Batch, state: None = None) -> Loss:
        x_BTD = self._out_states(self._forced(batch, *self._source(batch)))
        return smoothed_loss(x_BTD, self._out, batch.targets, None, self.config.label_smoothing)

    def counts(self, batch: Batch) -> dict[str, int]:
        names = ("cross_entropy", "label_smoothing") if self.config.label_smoothing else ("cross_entropy",)
        return dict.fromkeys(names, batch.count)

    def logits(self, x: Tensor) -> Tensor:
        """Of what the last layer puts out: of all ids, the sentinels too."""
        return F.linear(self._out_states(x), self._out)

    def _out_states(self, x: Tensor) -> Tensor:
        """What the output weights multiply."""
        x = self.drop(self.norm(x))
        return x * self.config.width**-0.5 if self.head is None else x

    @property
    def _out(self) -> Tensor:
        return self.vectors.weight if self.head is None else self.head.weight


def _block(config: T5.Config, decoder: bool) -> Block:
    shape = (config.width, config.heads, config.of_head, config.dropout)
    probe = "attention" if decoder else "encoder_attention"
    attention = SelfAttention(*shape, causal=decoder, biases=False, scale=1.0, probe=probe)
    cross = CrossAttention(*shape, biases=False, scale=1.0) if decoder else None
    if config.gated:
        feed: FeedForward = GatedFeedForward(config.width, "gelu", config.feed, config.dropout, biases=False)
    else:
        feed = FeedForward(config.width, "relu", config.feed, config.dropout, biases=False)
    norms = [RmsNorm(config.width, EPS) for _ in range(3 if decoder else 2)]
    return Block(attention, feed, norms, norm="pre", residual=True, dropout=config.dropout, cross=cross)
