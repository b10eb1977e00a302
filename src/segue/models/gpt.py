"""Transformer language model (GPT: Radford et al. 2018; GPT-2: 2019; GPT-3: Brown et al. 2020).

    x_t^0 = E[w_t] + P[t]                                   vectors of the token and of its place (layers/position.py)
    x^l   = Block(x^(l-1))                                  attention to what came before, then a small network
                                                            (layers/attention.py, layers/transformer.py)
    p(w_{t+1} | w_1 ... w_t) = softmax(E LN(x_t^L))         tied: the tokens' vectors are the output weights too

The model sees at most `context` tokens and carries nothing from one training batch to the next. A longer text is read
through a window: when it is full, the newer half of it is read again, as if the text began there, and then goes on; so
every token sees at least half a window before it, whatever the kind of position. `step` and `logprobs` both do that.

As GPT-2: pre-LN with a last LN, learned positions, GELU in its tanh form, biases, dropout of the sums, of the layers'
outputs and of the attention's weights; first weights N(0, 0.02), and those that lead back into the residual stream
1 / sqrt(2 · layers) of that. With norm = post there is no last LN, as in GPT and in the lectures; with none, no LN.
Without residuals, layers of such weights would drown what they are given in averages; each begins as one that looks at
itself and passes that on (after He et al. 2023): W_q = W_k = 2 I, W_v = W_O = I, and an orthogonal small network.
Given vectors (embeddings) are made as small as the model's own, by one number for all, or they would drown P, and tied
the first guesses would be far too sure.
Departures from the lectures: the heads are mixed by a matrix W_O (mix_heads = false leaves it out, and `attention` has
the lectures' earlier forms: layers/lecture_attention.py). GPT-3's sparse layers are dense here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.errors import InputError
from segue.layers.attention import SelfAttention
from segue.layers.kv_cache import Slots, TransformerStep, Window, read_tokens
from segue.layers.lecture_attention import Bilinear, Plain, Unmixed
from segue.layers.losses import linear_cross_entropy, target_logprobs
from segue.layers.one_token import Stack, Stacked, loops_for
from segue.layers.position import Position, Positions
from segue.layers.probe import recording
from segue.layers.transformer import Block, FeedForward, LayerNorm, Norm
from segue.models.base import Body, LanguageModel, Loss, ModelConfig, Sizes, Term
from segue.models.network import Network, dropout_by_epochs

Size = Literal[
    "own",
    "gpt",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "gpt3-small",
    "gpt3-medium",
    "gpt3-large",
    "gpt3-xl",
    "gpt3-2.7b",
    "gpt3-6.7b",
    "gpt3-13b",
    "gpt3-175b",
]


class Shape(NamedTuple):
    """A published model."""

    layers: int
    width: int
    heads: int
    head_width: int
    context: int
    vocab_size: int


SHAPES: dict[Size, Shape] = {
    "gpt": Shape(12, 768, 12, 64, 512, 40_478),
    "gpt2": Shape(12, 768, 12, 64, 1024, 50_257),
    "gpt2-medium": Shape(24, 1024, 16, 64, 1024, 50_257),
    "gpt2-large": Shape(36, 1280, 20, 64, 1024, 50_257),
    "gpt2-xl": Shape(48, 1600, 25, 64, 1024, 50_257),
    "gpt3-small": Shape(12, 768, 12, 64, 2048, 50_257),
    "gpt3-medium": Shape(24, 1024, 16, 64, 2048, 50_257),
    "gpt3-large": Shape(24, 1536, 16, 96, 2048, 50_257),
    "gpt3-xl": Shape(24, 2048, 16, 128, 2048, 50_257),  # printed with 24 heads, which would be 1.5 G parameters
    "gpt3-2.7b": Shape(32, 2560, 32, 80, 2048, 50_257),
    "gpt3-6.7b": Shape(32, 4096, 32, 128, 2048, 50_257),
    "gpt3-13b": Shape(40, 5140, 40, 128, 2048, 50_257),  # as printed; the heads together are 5,120 wide
    "gpt3-175b": Shape(96, 12288, 96, 128, 2048, 50_257),
}


class Gpt(Network, LanguageModel, Body, Stacked):
    """Causal Transformer that predicts the next token."""

    family = "Transformer"
    task = "lm"
    records = True

    @dataclass(frozen=True)
    class Config(ModelConfig):
        size: Size = "own"
        """A published shape, which sets layers, width, heads and context: gpt, gpt2 … gpt3-175b; own: as they say."""
        layers: int = 2
        """Number of stacked layers."""
        width: int = 96
        """Width of a token's vector in every layer."""
        heads: int = 4
        """Attention heads in a layer; width must be divisible by them."""
        context: int = 64
        """Context window: most tokens seen at once, with the last one; train on as many (batches.length)."""
        norm: Norm = "pre"
        """Where layer norm stands: pre (before each part, as GPT-2), post (after each sum, as GPT), none (nowhere)."""
        residual: bool = True
        """Residual connections: add each part's input to its output; without them deep models hardly learn."""
        position: Position = "learned"
        """Position encoding: none, onehot, sinusoidal, learned, relative (T5) or rotary."""
        activation: Literal["gelu", "relu"] = "gelu"
        """Activation function of the feed-forward network: gelu or relu."""
        attention: Literal["scaled", "plain", "bilinear"] = "scaled"
        """Scores of attention: scaled (q · k / sqrt(d_k)), plain (x · x, no weights), bilinear (x · W x, D x D)."""
        mix_heads: bool = True
        """Multiply the heads, side by side, by a matrix W_O."""
        tied: bool = True
        """Weight tying: use the token embeddings as output weights too."""
        dropout: float = 0.0
        """Dropout of embeddings, of attention weights and of each part's output: the share set to 0."""
        embeddings: str = ""
        """Begin with the vectors of a word2vec run or file, rescaled (train.freeze=vectors keeps them fixed)."""

        def __post_init__(self) -> None:
            if self.size != "own":
                self._take(SHAPES[self.size])
            for name in ("layers", "width", "heads", "context"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} = {getattr(self, name)}: must be 1 or more")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout = {self.dropout}: must be at least 0 and less than 1")
            if self.size == "own" and self.width % self.heads:
                near = ", ".join(str(n) for n in range(1, self.width + 1) if self.width % n == 0)
                raise ValueError(f"width = {self.width} does not divide by heads = {self.heads}: it does by {near}")
            self._check_attention()
            if self.position == "rotary" and self.head_width % 2:
                raise ValueError(
                    f"position = rotary turns pairs, but a head is {self.head_width} wide (width / heads): "
                    "an even number is needed"
                )
            if self.position == "onehot" and self.context > self.width:
                raise ValueError(
                    f"position = onehot with context = {self.context}, width = {self.width}: every place needs a "
                    "coordinate of its own, so context must not be more than width"
                )

        def _check_attention(self) -> None:
            if self.attention == "plain" and self.heads > 1:
                raise ValueError(
                    f"attention = plain has one head, without weights, and heads = {self.heads}: set heads = 1"
                )
            if self.attention != "scaled" and not self.residual:
                raise ValueError(
                    f"residual = false with attention = {self.attention}: such layers only learn if scaled"
                )
            together = self.heads * self.head_width
            if not self.mix_heads and together != self.width:
                raise ValueError(
                    f"mix_heads = false with heads that are together {together} wide, and width = {self.width}: "
                    "without W_O they must be as wide as the layer (with attention = bilinear, heads = 1)"
                )

        def _take(self, shape: Shape) -> None:
            """The shape's numbers; one that was given must be the same."""
            defaults = {field.name: field.default for field in fields(self)}
            for name in ("layers", "width", "heads", "context"):
                given, own = getattr(self, name), getattr(shape, name)
                if given not in (defaults[name], own):
                    raise ValueError(
                        f"{name} = {given} with size = {self.size}, whose {name} is {own}: leave one of the two out"
                    )
                object.__setattr__(self, name, own)

        @property
        def head_width(self) -> int:
            """Of two of GPT-3's shapes width / heads is not it; heads without q and k are as wide as the layer."""
            if self.attention != "scaled":
                return self.width
            return self.width // self.heads if self.size == "own" else SHAPES[self.size].head_width

    config: Config

    @classmethod
    def larger(cls, config: Config) -> list[dict[str, Any]]:
        if config.size != "own" or config.width >= 192:
            return []
        middle = {"model.layers": 4, "model.width": 192, "model.heads": 6, "model.context": 128}
        large = {"model.layers": 6, "model.width": 384, "model.heads": 6, "model.context": 256}
        return [
            middle | {"batches.length": 128, "batches.size": 16, "train.optimizer.rate": 0.014},
            large | {"batches.length": 256, "batches.size": 32, "train.optimizer.rate": 0.008},
        ]

    @classmethod
    def dropout_for(cls, config: Config, epochs: float) -> float | None:
        wide = config.width > 192
        return None if config.dropout else dropout_by_epochs(*((0.08, 0.3) if wide else (0.045, 0.12)), epochs)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.vectors = nn.Embedding(sizes.ids, config.width)
        self.positions = Positions(config.position, config.context, config.width, config.heads, config.head_width)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        self.head = None if config.tied else nn.Linear(config.width, sizes.vocab_size, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        back = 0.02 / math.sqrt(2 * self.config.layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=back if name.endswith(("out.weight", "down.weight")) else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if not self.config.residual:
            for block in self.blocks:
                _pass_on(block)  # type: ignore[arg-type]

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
    def way(self) -> str:
        """How a long text is read."""
        context = self.config.context
        return f"a window of {context:,} tokens, its newer {context // 2:,} read again when it is full"

    # Reading whole rows, as in training. Padding stands on the right, where no real token sees it.

    @property
    def tied(self) -> bool:
        return self.config.tied

    def forward(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """logits_BTV. Nothing is carried from one batch to the next."""
        return self._logits(_last(self._layers(batch.tokens_BT))), None

    def loss(self, batch: Batch, state: None = None) -> Loss:
        """The cross-entropy, without all logits at once where the vocabulary is large."""
        x_BTD = self.norm(_last(self._layers(batch.tokens_BT)))
        total, count = linear_cross_entropy(x_BTD, self._out, batch.targets)
        return Loss((Term("cross_entropy", total, count),))

    def encode(self, batch: Batch, state: None = None) -> Tensor:
        """hidden_LBTD: the vectors of tokens and places, then each layer's output, the last after the final norm."""
        *before, last_BTD = self._layers(batch.tokens_BT)
        return torch.stack([*before, self.norm(last_BTD)]).masked_fill(~batch.mask_BT[:, :, None], 0.0)

    def last_layer(self, batch: Batch) -> Tensor:
        x_BTD: Tensor = self.norm(_last(self._layers(batch.tokens_BT)))
        return x_BTD

    def unembed(self, hidden: Tensor, last: bool = True) -> Tensor:
        return F.linear(hidden if last else self.norm(hidden), self._out)

    def _layers(self, tokens_BT: Tensor, slots: Slots | None = None) -> Iterator[Tensor]:
        """The vectors of tokens and places, then each layer's output. With `slots` the tokens follow a cache's."""
        length = tokens_BT.shape[1]
        if length > self.config.context:
            raise InputError(
                f"A batch has rows of {length:,} tokens, and this model sees {self.config.context:,} (model.context). "
                f"Set batches.length={self.config.context} or less, or model.context={length} or more."
            )
        places, seen = torch.arange(length, device=tokens_BT.device), length
        if slots is not None:
            places, seen = slots.places(length), slots.seen
        bias = self.positions.causal_bias(places, seen, self.vectors.weight.dtype)
        rotation = self.positions.rotation(places)
        x_BTD = self.drop(self.positions.add(self._scaled(tokens_BT), places))
        yield x_BTD
        for i, block in enumerate(self.blocks):
            with self._as_compiled(tokens_BT.shape):
                x_BTD = block(x_BTD, None, bias, rotation, None if slots is None else slots.layer(i))
            yield x_BTD

    def _scaled(self, tokens_BT: Tensor) -> Tensor:
        x_BTD: Tensor = self.vectors(tokens_BT)
        return x_BTD if self.positions.scale == 1 else self.positions.scale * x_BTD

    def _as_compiled(self, shape: tuple[int, ...]) -> AbstractContextManager[None]:
        """Run blocks as compiled for the one shape of training only. Elsewhere torch would compile them again for each
        shape, and compiled code shows nothing to a probe."""
        if self.compiled is None or (self.training and shape == self.compiled and not recording()):
            return nullcontext()
        return cast(AbstractContextManager[None], torch.compiler.set_stance("force_eager"))

    @property
    def _out(self) -> Tensor:
        """The output weights. Marks have vectors, and are never predicted."""
        if self.head is not None:
            return self.head.weight
        return self.vectors.weight[: self.sizes.vocab_size] if self.sizes.marks else self.vectors.weight

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self.norm(x), self._out)

    # Reading on, token by token or piece by piece, through the window.

    @torch.inference_mode()
    def logprobs(self, batch: Batch, state: Window | None = None) -> tuple[Tensor, Window]:
        """log p of each target, 0 at IGNORE, and the window after the batch."""
        state = self.start(*batch.tokens_BT.shape) if state is None else state
        if batch.fresh_B is not None:
            state = state.forget(batch.fresh_B)
        x_BTD, order_BT, state = self._read(batch.tokens_BT, batch.mask_BT, state)
        logp_BT = target_logprobs(self._logits(x_BTD), batch.targets.gather(1, order_BT))
        return logp_BT.gather(1, order_BT.argsort(1)), state

    @torch.inference_mode()
    def start(
        self, rows: int, capacity: int, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Window:
        """Nothing read yet, and a KV cache for `capacity` tokens, which grows when more are read."""
        config = self.config
        places = max(1, min(capacity, config.context))
        parts = config.layers, config.heads, config.head_width
        return Window.empty(rows, places, self.vectors.weight, config.width, *parts)

    @torch.inference_mode()
    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Window) -> tuple[Tensor, Window]:
        """Read tokens; logits_BV of what follows each row's last real token."""
        _, _, state = self._read(tokens_BT, mask_BT, state)
        return self._sharp(state.last_BD), state

    def one_token(self, state: Window, places: int = 0) -> TransformerStep:
        begin = self.start(len(state.length_B), places) if places else state
        loops = loops_for(self.stack, len(state.length_B))
        step = TransformerStep(begin, self.window, self._read_slots, self._sharp, loops)
        if places:
            step.take(state)
        return step

    def _read_slots(self, tokens_BT: Tensor, slots: Slots, rows: Tensor | None = None) -> Tensor:
        return _last(self._layers(tokens_BT, slots))

    @property
    def stack(self) -> Stack:
        norm = self.norm if self.config.norm == "pre" else None
        blocks = cast(list[Block], list(self.blocks))
        return Stack(self.vectors.weight, self.positions.scale, self.positions, blocks, norm, self._out, None)

    def _sharp(self, x_BD: Tensor) -> Tensor:
        """The logits of few places, not rounded to bfloat16 as weights may be: near 10 its numbers lie 0.06 apart."""
        if x_BD.is_cuda and x_BD.dtype == self._out.dtype == torch.bfloat16:
            return torch.mm(self.norm(x_BD), self._out.T, out_dtype=torch.float32)
        return self._logits(x_BD)

    def _read(self, tokens_BT: Tensor, mask_BT: Tensor, state: Window) -> tuple[Tensor, Tensor, Window]:
        return read_tokens(tokens_BT, mask_BT, state, self.config.context, self._read_slots)


def _block(config: Gpt.Config) -> Block:
    attention = _attention(config)
    feed = FeedForward(config.width, config.activation)
    norms = [nn.Identity() if config.norm == "none" else LayerNorm(config.width) for _ in range(2)]
    return Block(attention, feed, norms, norm=config.norm, residual=config.residual, dropout=config.dropout)


def _attention(config: Gpt.Config) -> SelfAttention:
    width, heads, dropout = config.width, config.heads, config.dropout
    if config.attention == "plain":
        return Plain(width, dropout, causal=True)
    if config.attention == "bilinear":
        return Bilinear(width, heads, dropout, causal=True, mix=config.mix_heads)
    kind = SelfAttention if config.mix_heads else Unmixed
    return kind(width, heads, config.head_width, dropout, causal=True)


def _pass_on(block: Block) -> None:
    """First weights with which a layer without residuals lets through what it is given."""
    with torch.no_grad():
        for part, gain in zip(block.attention.qkv.weight.chunk(3), (2.0, 2.0, 1.0), strict=True):
            part.copy_(gain * torch.eye(*part.shape))
    if block.attention.usual:
        nn.init.eye_(block.attention.out.weight)
    nn.init.orthogonal_(block.feed.up.weight, math.sqrt(2))
    nn.init.orthogonal_(block.feed.down.weight)


def _last(outputs: Iterator[Tensor]) -> Tensor:
    """The last of them; those before are not held."""
    for out in outputs:
        last = out
    return last
