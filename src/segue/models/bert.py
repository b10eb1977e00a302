"""BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019): a Transformer that reads a text from both sides.

    x_t^0 = LN(E[w_t] + P[t] + S[segment of t])              vectors of the token, of its place and of its segment
    x^l   = Block(x^(l-1))                                   attention to all places, then a small network
    p(w_t | the damaged text) = softmax(E LN(gelu(W x_t^L + b)) + c)     at the masked places alone (masked language
                                                             model): the tokens' vectors are the output weights too
    p(second chunk follows)   = softmax(V tanh(W_p x_0^L + b_p) + d)     next sentence, at the first place ([CLS])

As the papers: post-LN with eps 1e-12, GELU by erf, learned positions, dropout of the sum of vectors, of the parts'
outputs and of the attention's weights; first weights N(0, 0.02). RoBERTa has the same equations; its vectors of places
begin with two rows that are never used (first_position), it has one segment, and no next sentence. With norm = pre the
norms stand before each part, and one more at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.errors import InputError
from segue.layers.attention import SelfAttention
from segue.layers.encoder_cpu import read_packed
from segue.layers.losses import cross_entropy, linear_cross_entropy
from segue.layers.position import Position, Positions
from segue.layers.probe import recording
from segue.layers.transformer import Activation, Block, FeedForward, LayerNorm
from segue.models.base import Loss, MaskedModel, ModelConfig, Sizes, Term
from segue.models.network import Network, dropout_by_epochs

Size = Literal["own", "bert-base", "bert-large", "roberta-base", "roberta-large"]


class Shape(NamedTuple):
    """A published model."""

    layers: int
    width: int
    heads: int
    context: int
    segments: int
    first_position: int
    eps: float
    next_sentence: bool
    vocab_size: int


SHAPES: dict[Size, Shape] = {
    "bert-base": Shape(12, 768, 12, 512, 2, 0, 1e-12, True, 30_522),
    "bert-large": Shape(24, 1024, 16, 512, 2, 0, 1e-12, True, 30_522),
    "roberta-base": Shape(12, 768, 12, 512, 1, 2, 1e-5, False, 50_265),
    "roberta-large": Shape(24, 1024, 16, 512, 1, 2, 1e-5, False, 50_265),
}


class Bert(Network, MaskedModel):
    """Transformer encoder that predicts masked tokens."""

    family = "Transformer"
    task = "masked_lm"
    head_names = ("transform.", "transform_norm.", "bias", "next_head.", "pooler.")

    @dataclass(frozen=True)
    class Config(ModelConfig):
        size: Size = "own"
        """A published shape: bert-base, bert-large, roberta-base, roberta-large; own: as the other keys say."""
        layers: int = 4
        """Number of stacked layers."""
        width: int = 128
        """Width of a token's vector in every layer."""
        heads: int = 4
        """Attention heads in a layer; width must be divisible by them."""
        context: int = 128
        """Most tokens seen at once, with the start and the ends."""
        segments: int = 2
        """Kinds of segments: 2 tells the texts of a pair apart, 1 does not (RoBERTa)."""
        first_position: int = 0
        """The row of the learned position vectors that the first place has: 2 in RoBERTa, which never uses two."""
        norm: Literal["post", "pre"] = "post"
        """Where layer norm stands: post (after each sum, as BERT) or pre (before each part)."""
        position: Position = "learned"
        """Position encoding: none, onehot, sinusoidal, learned, relative (T5) or rotary."""
        activation: Activation = "gelu_erf"
        """Activation function of the feed-forward network: gelu_erf (BERT), gelu (by tanh, GPT-2), relu or silu."""
        eps: float = 1e-12
        """What layer norm adds to the variance: 1e-12 in BERT, 1e-5 in RoBERTa."""
        dropout: float = 0.0
        """Dropout of embeddings, of attention weights and of each part's output: the share set to 0."""
        next_sentence: bool = False
        """Learn also whether the second of two chunks follows the first (BERT); RoBERTa leaves it out."""
        embeddings: str = ""
        """Begin with the vectors of a word2vec run or file, rescaled (train.freeze=vectors keeps them fixed)."""

        def __post_init__(self) -> None:
            if self.size != "own":
                self._take(SHAPES[self.size])
            for name in ("layers", "width", "heads", "segments"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} = {getattr(self, name)}: must be 1 or more")
            if self.context < 8:
                raise ValueError(f"context = {self.context}: must be 8 or more, since a frame takes 2 or 3 places")
            if self.first_position < 0:
                raise ValueError(f"first_position = {self.first_position}: must be 0 or more")
            if not 0 < self.eps < 1:
                raise ValueError(f"eps = {self.eps}: must be more than 0 and less than 1")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout = {self.dropout}: must be at least 0 and less than 1")
            if self.next_sentence and self.segments < 2:
                raise ValueError(f"next_sentence = true with segments = {self.segments}: a pair has 2 segments")
            self._check_heads()

        def _check_heads(self) -> None:
            if self.width % self.heads:
                near = ", ".join(str(n) for n in range(1, self.width + 1) if self.width % n == 0)
                raise ValueError(f"width = {self.width} does not divide by heads = {self.heads}: it does by {near}")
            if self.position == "rotary" and self.width // self.heads % 2:
                raise ValueError(
                    f"position = rotary turns pairs, but a head is {self.width // self.heads} wide (width / heads): "
                    "an even number is needed"
                )
            if self.position == "onehot" and self.context > self.width:
                raise ValueError(
                    f"position = onehot with context = {self.context}, width = {self.width}: every place needs a "
                    "coordinate of its own, so context must not be more than width"
                )

        def _take(self, shape: Shape) -> None:
            """The shape's numbers; one that was given must be the same."""
            defaults = {field.name: field.default for field in fields(self)}
            for name in Shape._fields[:-1]:
                given, own = getattr(self, name), getattr(shape, name)
                if given not in (defaults[name], own):
                    raise ValueError(
                        f"{name} = {given} with size = {self.size}, whose {name} is {own}: leave one of the two out"
                    )
                object.__setattr__(self, name, own)

    config: Config

    @classmethod
    def larger(cls, config: Config) -> list[dict[str, Any]]:
        if config.size != "own" or config.width >= 256:
            return []
        middle = {"model.layers": 6, "model.width": 256, "model.heads": 4}
        return [middle | {"train.optimizer.rate": 0.007}]

    @classmethod
    def dropout_for(cls, config: Config, epochs: float) -> float | None:
        # Masks are new in every epoch, so that a text can be read more often before it is learnt by heart.
        return None if config.dropout else dropout_by_epochs(0.045, 0.1, epochs / 4)

    @classmethod
    def marks(cls, config: Any) -> tuple[str, ...]:
        return ("start", "mask")

    @classmethod
    def inputs_of(cls, config: Any) -> tuple[str, ...]:
        return ("segments_BT", "places_BK", *(("follows_B",) if config.next_sentence else ()))

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        width, head_width = config.width, config.width // config.heads
        places = config.context + (config.first_position if config.position == "learned" else 0)
        self.vectors = nn.Embedding(sizes.ids, width)
        self.positions = Positions(config.position, places, width, config.heads, head_width, both=True)
        self.segment_vectors = nn.Embedding(config.segments, width)
        self.norm = LayerNorm(width, config.eps)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.last = LayerNorm(width, config.eps) if config.norm == "pre" else nn.Identity()
        self.pooler = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)
        self.transform_norm = LayerNorm(width, config.eps)
        self.bias = nn.Parameter(torch.zeros(sizes.ids))
        self.next_head = nn.Linear(width, 2) if config.next_sentence else None
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    @property
    def _blocks(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    @property
    def regions(self) -> list[nn.Module]:
        """What is compiled, one by one, where that pays."""
        return list(self.blocks)

    @classmethod
    def window_of(cls, config: Any) -> int:
        return int(config.context)

    @property
    def width(self) -> int:
        return self.config.width

    @property
    def depth(self) -> int:
        return self.config.layers + 1

    @property
    def tied(self) -> bool:
        return True

    @property
    def pools(self) -> bool:
        """The next sentence teaches the pooler; in a body of BERT's own form, which may be a published one, it counts
        as learnt, too."""
        return self.config.next_sentence or (self.config.norm == "post" and self.config.position == "learned")

    @property
    def way(self) -> str:
        """How a text is read."""
        return f"each token given the words around it, in windows of {self.config.context:,} tokens"

    # Reading

    def forward(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """Compute logits_BKV at the masked places, or logits_BTV at all places if none are named."""
        return self.unembed(self._last(batch, batch.places_BK)), None

    def loss(self, batch: Batch, state: None = None) -> Loss:
        """The cross-entropy at the masked places, and that of the next sentence at the first."""
        if self.next_head is None or batch.follows_B is None:
            return Loss((self._masked_term(self._last(batch, batch.places_BK), batch),))
        asked_BK = None if batch.places_BK is None else F.pad(batch.places_BK, (1, 0))  # the first place, and these
        x_BKD = self._last(batch, asked_BK)
        follows = cross_entropy(self.next_head(self.pooled(x_BKD)), batch.follows_B)
        masked = self._masked_term(x_BKD if asked_BK is None else x_BKD[:, 1:], batch)
        return Loss((masked, Term("next_sentence", *follows)))

    def _masked_term(self, x_BKD: Tensor, batch: Batch) -> Term:
        x_BKD, bias_V = self._transformed(x_BKD), self.bias[: self.sizes.vocab_size]
        return Term("cross_entropy", *linear_cross_entropy(x_BKD, self._out, batch.targets, bias_V))

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = super().counts(batch)
        if self.next_head is not None and batch.follows_B is not None:
            counts["next_sentence"] = int((batch.follows_B != IGNORE).sum())
        return counts

    def follows(self, batch: Batch) -> Tensor:
        """Compute logits_B2: whether the second chunk of each row follows the first."""
        if self.next_head is None:
            raise InputError("This model has not learnt which chunk follows which: model.next_sentence is false.")
        logits_B2: Tensor = self.next_head(self.pooled(self._last(batch)))
        return logits_B2

    def encode(self, batch: Batch, state: None = None) -> Tensor:
        """hidden_LBTD: the sum of the vectors, normed, then each layer's output."""
        return torch.stack([*self._layers(batch)]).masked_fill(~batch.mask_BT[:, :, None], 0.0)

    def last_layer(self, batch: Batch) -> Tensor:
        return self._last(batch)

    def pooled(self, last_BTD: Tensor) -> Tensor:
        """x_BD: one vector for the text, from the state at its first place."""
        x_BD: Tensor = self.pooler(last_BTD[:, 0])
        return x_BD.tanh()

    def states_at(self, batch: Batch, places_BK: Tensor) -> Tensor:
        return self._last(batch, places_BK)

    def unembed(self, hidden: Tensor, last: bool = True) -> Tensor:
        x = self._transformed(hidden if last else self.last(hidden))
        return F.linear(x, self._out, self.bias[: self.sizes.vocab_size])

    def _transformed(self, x: Tensor) -> Tensor:
        out: Tensor = self.transform_norm(F.gelu(self.transform(x)))
        return out

    @property
    def _out(self) -> Tensor:
        """The output weights; marks are never predicted."""
        return self.vectors.weight[: self.sizes.vocab_size]

    def _last(self, batch: Batch, places_BK: Tensor | None = None) -> Tensor:
        """The last layer's output, at some places or at all; those before are not held."""
        for x_BTD in self._layers(batch, places_BK, every=False):  # noqa: B007
            pass
        return x_BTD

    def _layers(self, batch: Batch, places_BK: Tensor | None = None, every: bool = True) -> Iterator[Tensor]:
        """The sum of the vectors, normed, then each layer's output, the last after the final norm; that one only at
        some places, if they are named. Not `every`: those before the last may be left out."""
        tokens_BT = batch.tokens_BT
        length = tokens_BT.shape[1]
        if length > self.config.context:
            raise InputError(
                f"A batch has rows of {length:,} tokens, and this model sees {self.config.context:,} (model.context). "
                f"Set batches.length={self.config.context} or less, or model.context={length} or more."
            )
        places = torch.arange(length, device=tokens_BT.device)
        x_BTD = self.drop(self.norm(self._summed(batch, places)))
        device = x_BTD.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            x_BTD = x_BTD.to(torch.get_autocast_dtype(device))  # half the memory traffic of norms and sums
        yield x_BTD
        mask = None if batch.unpadded else batch.mask_BT[:, None, None, :]
        bias, rotation = self.positions.bias(places, length), self.positions.rotation(places)
        if not every and bias is None and rotation is None:
            read_BTD = read_packed(self._blocks, x_BTD, mask, places_BK)
            if read_BTD is not None:
                yield self.last(read_BTD)
                return
        *before, last = self.blocks
        with self._as_compiled(tokens_BT.shape):
            for block in before:
                x_BTD = block(x_BTD, mask, bias, rotation)
                yield x_BTD
            yield self.last(last(x_BTD, mask, bias, rotation, places_BK=places_BK))

    def _summed(self, batch: Batch, places: Tensor) -> Tensor:
        """The sum of the vectors of tokens, places and segments."""
        x_BTD: Tensor = self.vectors(batch.tokens_BT)
        x_BTD = x_BTD if self.positions.scale == 1 else self.positions.scale * x_BTD
        first = self.config.first_position if self.config.position == "learned" else 0
        x_BTD = self.positions.add(x_BTD, places + first)
        if batch.segments_BT is None or self.config.segments == 1:
            return x_BTD + self.segment_vectors.weight[0]
        segments_BTD: Tensor = self.segment_vectors(batch.segments_BT)
        return x_BTD + segments_BTD

    def _as_compiled(self, shape: tuple[int, ...]) -> AbstractContextManager[None]:
        """Run blocks as compiled for the one shape of training only, as gpt does."""
        if self.compiled is None or (self.training and shape == self.compiled and not recording()):
            return nullcontext()
        return cast(AbstractContextManager[None], torch.compiler.set_stance("force_eager"))


def _block(config: Bert.Config) -> Block:
    width, heads = config.width, config.heads
    attention = SelfAttention(width, heads, width // heads, config.dropout, causal=False)
    feed = FeedForward(width, config.activation)
    norms = [LayerNorm(width, config.eps) for _ in range(2)]
    return Block(attention, feed, norms, norm=config.norm, residual=True, dropout=config.dropout)
