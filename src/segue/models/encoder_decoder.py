"""What encoder-decoders of Transformer blocks share: the decoder's state, and how a target is read and written.

The source is read once: what each layer of the decoder needs of it, its keys and values, is kept (Memory) beside the KV
cache of the target. Beams of one text share them. `alignment` is the mean of the heads of the last layer's attention to
the source. A model says how the source is encoded, how the layers of the decoder are called, and what its logits are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.batches.state import State
from segue.errors import InputError
from segue.layers.attention import CrossAttention, Memory
from segue.layers.kv_cache import Loops, Slots, TransformerStep, Window, read_tokens
from segue.layers.losses import target_logprobs
from segue.layers.position import Positions
from segue.layers.probe import recording
from segue.layers.transformer import Block
from segue.models.base import EncoderDecoder
from segue.models.network import Network


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

    def __init__(self, model: BlockEncoderDecoder, state: SourceWindow, own: bool = False) -> None:
        """`own`: the memories of the sources are copied, so that `take` can write over them."""
        assert state.attended_BS is None
        self.model, self.beams, self.memories = model, state.beams, state.memories
        loops = model.loops(len(state.window.length_B))
        super().__init__(state.window, model.reach, self._decoded, model.logits, loops)
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


class BlockEncoderDecoder(Network, EncoderDecoder):
    """An encoder-decoder whose layers are Blocks."""

    family = "Transformer"
    records = True
    config: Any
    vectors: nn.Embedding
    """Of the target's tokens."""
    positions: Positions
    """Of the target."""
    source_positions: Positions
    scale: float
    """What the tokens' vectors are multiplied by, before those of the places are added."""
    drop: nn.Module
    encoder: nn.ModuleList
    decoder: nn.ModuleList

    @abstractmethod
    def encoded(self, source: Tensor, source_mask_BS: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The encoder: m_BSD, and its mask (B, 1, 1, S), True at real places; None: all are."""

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Of what the last layer puts out."""

    @property
    @abstractmethod
    def reach(self) -> int:
        """Tokens of a target that the decoder sees at once, with the start before them."""

    @property
    def head_width(self) -> int:
        """Width of an attention head."""
        return int(self.config.head_width)

    def loops(self, rows: int) -> Loops | None:
        """Compiled code for a step of so many rows, where it is faster; None elsewhere."""
        return None

    @property
    def regions(self) -> list[nn.Module]:
        """What is compiled, one by one, where that pays."""
        return [*self.encoder, *self.decoder]

    # The source

    def encoder_layers(self, x_BSD: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
        """The output of each layer of the encoder, from the vectors of the source; `mask`: (B, 1, 1, S)."""
        length = x_BSD.shape[1]
        places = torch.arange(length, device=x_BSD.device)
        bias, rotation = self.source_positions.bias(places, length), self.source_positions.rotation(places)
        x_BSD = self.drop(self.source_positions.add(x_BSD, places))
        for block in self.encoder:
            with self._as_compiled():
                x_BSD = block(x_BSD, mask, bias, rotation)
            yield x_BSD

    def memories(self, m_BSD: Tensor, mask: Tensor | None) -> tuple[Memory, ...]:
        """Keys and values of the encoded source for each layer of the decoder."""
        return tuple(_cross(block).memory(m_BSD, mask) for block in self.decoder)

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
        x_BTD: Tensor = self.scaled(self.vectors(self.begun(tokens_BT, places)))
        x_BTD = self.drop(self.positions.add(x_BTD, places))
        for i, block in enumerate(self.decoder):
            cache = None if slots is None else slots.layer(i)
            memory = memories[i]._replace(weights=weights if i + 1 == len(self.decoder) else None)
            with self._as_compiled():
                x_BTD = block(x_BTD, None, bias, rotation, cache, memory, beams)
        return x_BTD

    def begun(self, tokens_BT: Tensor, places: Tensor) -> Tensor:
        """The target's tokens with what it begins with: batches begin every target with STOP, which stands nowhere else
        in it."""
        if self.sizes.start == self.sizes.stop:
            return tokens_BT
        return tokens_BT.masked_fill(tokens_BT == self.sizes.stop, self.sizes.start)

    def scaled(self, x_BTD: Tensor) -> Tensor:
        """The tokens' vectors as the first layer reads them."""
        return x_BTD if self.scale == 1 else self.scale * x_BTD

    def forward(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """logits_BTV. Nothing is carried from one batch to the next."""
        return self.logits(self._forced(batch, *self._source(batch))), None

    def alignment(self, batch: Batch) -> Tensor:
        """alpha_BTS: the last layer's attention to the source, the mean of its heads."""
        weights: list[Tensor] = []
        self._forced(batch, *self._source(batch), weights)
        return weights[0]

    def sentence_vectors(self, source_BS: Tensor, source_mask_BS: Tensor) -> Tensor:
        """The mean of the encoder's outputs over the real tokens of each source."""
        m_BSD, _ = self.encoded(source_BS, source_mask_BS)
        real_BS1 = self.source_mask(source_mask_BS)[..., None]
        mean_BD: Tensor = (m_BSD * real_BS1).sum(1) / real_BS1.sum(1)
        return mean_BD

    def _source(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self.encoded(batch.source, None if batch.source_unpadded else batch.source_mask)

    def _forced(self, batch: Batch, m_BSD: Tensor, mask: Tensor | None, weights: list[Tensor] | None = None) -> Tensor:
        """Read the right tokens of the target, given the encoded source."""
        length = batch.tokens_BT.shape[1]
        if length > self.reach:
            raise InputError(
                f"A target has {length - 1:,} tokens, and this model sees {self.reach - 1:,} (model.context). "
                f"Set batches.length={self.reach - 1} or less, or model.context={length - 1} or more."
            )
        return self.decoded(batch.tokens_BT, self.memories(m_BSD, mask), weights=weights)

    # The target, token by token or piece by piece

    @torch.inference_mode()
    def logprobs(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """log p of each target, 0 at IGNORE; a target longer than the window is read through it."""
        if batch.tokens_BT.shape[1] <= self.reach:
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
            raise ValueError(f"an encoder-decoder needs a source with {rows} rows to start from")
        config, places = self.config, max(1, min(capacity, self.reach))
        parts = len(self.decoder), config.heads, self.head_width
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

        return read_tokens(tokens_BT, mask_BT, state.window, self.reach, layers)

    def one_token(self, state: SourceWindow, places: int = 0) -> DecoderStep:
        if not places:
            return DecoderStep(self, state)
        config, parts = self.config, (len(self.decoder), self.config.heads, self.head_width)
        window = Window.empty(len(state.window.length_B), places, self.vectors.weight, config.width, *parts)
        step = DecoderStep(self, replace(state, window=window), own=True)
        step.take(state)
        return step


def _cross(block: nn.Module) -> CrossAttention:
    assert isinstance(block, Block) and block.cross is not None
    return block.cross
