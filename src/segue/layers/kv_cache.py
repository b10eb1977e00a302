"""The KV cache: the keys and values of the tokens that a Transformer has read, so that a new token reads none again.

KVCache     the tokens of each row and, for every layer, their keys and values, in memory that is written in place
Slots       where in a KV cache new tokens go
LayerCache  the keys and values of one layer, with the slots of the new ones
Window      the state of a language model that sees at most a window of tokens
read_tokens       reads tokens into a window; when it is full, the newer half of it is read again, as if it began there
TransformerStep   reads one token of each row at a time, always in the same memory, so that a GPU can record it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.batches.state import OneToken, State
from segue.layers.probe import recording
from segue.layers.row_map import RowMap

if TYPE_CHECKING:
    from segue.layers.attention import Memory

Loops = Callable[[Tensor, Tensor, Tensor, Tensor, RowMap, Sequence["Memory"]], tuple[Tensor, Tensor]]
"""Compiled code for one token a row: ids_B, places_B, keys, values, where these are, what is known of the sources ->
x_BD of the last layer, logits_BV."""


class LayerCache(NamedTuple):
    """The keys and values of one layer that were computed before, and where the new ones go.

    A row is valid up to its own length; what stands beyond is written over later.
    """

    k_BHSK: Tensor
    v_BHSK: Tensor
    places_BT: Tensor | None
    """Where each new one goes; None: in all rows they are the last of the places that are seen."""
    seen: int
    """Places that may hold a token once the new ones are written."""

    def extended(self, k_BHTK: Tensor, v_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values to their places; all keys and values."""
        for kept_BHSK, new_BHTK in ((self.k_BHSK, k_BHTK), (self.v_BHSK, v_BHTK)):
            if self.places_BT is None:
                kept_BHSK[:, :, self.seen - new_BHTK.shape[2] : self.seen] = new_BHTK
            else:
                places_BHTK = self.places_BT[:, None, :, None].expand_as(new_BHTK)
                kept_BHSK.scatter_(2, places_BHTK, new_BHTK.to(kept_BHSK.dtype))
        return self.k_BHSK[:, :, : self.seen], self.v_BHSK[:, :, : self.seen]


class KVCache:
    """The tokens in the window of each row, from its beginning on, and their keys and values in every layer.

    The tensors are written in place, so that a step copies nothing. `version` counts the writes: a state that was made
    at an older version gets a copy before it writes (`owned`), so that no state changes another.
    """

    def __init__(self, tokens_BS: Tensor, k_LBHSK: Tensor, v_LBHSK: Tensor) -> None:
        self.tokens_BS, self.k_LBHSK, self.v_LBHSK = tokens_BS, k_LBHSK, v_LBHSK
        self.version = 0

    @property
    def capacity(self) -> int:
        """Tokens of a row that there is memory for."""
        return self.tokens_BS.shape[1]

    def owned(self, version: int) -> KVCache:
        """This cache if nobody has written to it since `version`, else a copy."""
        if version == self.version:
            return self
        return KVCache(self.tokens_BS.clone(), self.k_LBHSK.clone(), self.v_LBHSK.clone())

    def empty(self, rows: int, places: int) -> KVCache:
        """A cache of other rows and places, of the same model, with nothing in it."""
        layers, _, heads, _, head_width = self.k_LBHSK.shape
        # Zeros, since attention multiplies what is not yet written too, by 0.
        k_LBHSK, v_LBHSK = (self.k_LBHSK.new_zeros(layers, rows, heads, places, head_width) for _ in range(2))
        return KVCache(self.tokens_BS.new_zeros(rows, places), k_LBHSK, v_LBHSK)

    def select(self, rows: Tensor, places: int) -> KVCache:
        """These rows; nothing is copied beyond so many places."""
        some = self.empty(len(rows), self.capacity)
        some.tokens_BS[:, :places] = self.tokens_BS[:, :places].index_select(0, rows)
        some.k_LBHSK[:, :, :, :places] = self.k_LBHSK[:, :, :, :places].index_select(1, rows)
        some.v_LBHSK[:, :, :, :places] = self.v_LBHSK[:, :, :, :places].index_select(1, rows)
        return some

    def join(self, others: Sequence[KVCache]) -> KVCache:
        """The rows of all, with the capacity of the largest."""
        every = [self, *others]
        most = max(one.capacity for one in every)
        tokens = [F.pad(one.tokens_BS, (0, most - one.capacity)) for one in every]
        keys = [F.pad(one.k_LBHSK, (0, 0, 0, most - one.capacity)) for one in every]
        values = [F.pad(one.v_LBHSK, (0, 0, 0, most - one.capacity)) for one in every]
        return KVCache(torch.cat(tokens), torch.cat(keys, 1), torch.cat(values, 1))

    def grow(self, places: int, most: int) -> None:
        """Make room for so many places; at least double the capacity, up to `most`."""
        more = min(most, max(places, 2 * self.capacity)) - self.capacity
        if places > self.capacity:
            self.tokens_BS = F.pad(self.tokens_BS, (0, more))
            self.k_LBHSK, self.v_LBHSK = (F.pad(part, (0, 0, 0, more)) for part in (self.k_LBHSK, self.v_LBHSK))

    def put(self, rows: Tensor, other: KVCache) -> None:
        """Replace these rows by those of another cache."""
        places = other.capacity
        self.tokens_BS[rows, :places] = other.tokens_BS
        self.k_LBHSK[:, rows, :, :places] = other.k_LBHSK
        self.v_LBHSK[:, rows, :, :places] = other.v_LBHSK

    def copy(self, other: KVCache, places: int) -> None:
        """Write the first places of another cache of as many rows over these."""
        self.tokens_BS[:, :places] = other.tokens_BS[:, :places]
        self.k_LBHSK[:, :, :, :places] = other.k_LBHSK[:, :, :, :places]
        self.v_LBHSK[:, :, :, :places] = other.v_LBHSK[:, :, :, :places]


class Slots(NamedTuple):
    """Where in a cache new tokens go: their places, or None where they are the last that are seen in all rows."""

    cache: KVCache
    seen: int
    places_BT: Tensor | None

    def places(self, length: int) -> Tensor:
        """(T,) or (B, T)."""
        if self.places_BT is not None:
            return self.places_BT
        return torch.arange(self.seen - length, self.seen, device=self.cache.tokens_BS.device)

    def layer(self, number: int) -> LayerCache:
        return LayerCache(self.cache.k_LBHSK[number], self.cache.v_LBHSK[number], self.places_BT, self.seen)


@dataclass(frozen=True)
class Window(State):
    """What the model sees of each row's text: a state."""

    cache: KVCache
    length_B: Tensor
    """Tokens in each row's window."""
    last_BD: Tensor
    """The last layer's output for each row's last token."""
    most: int = 0
    """No row has more tokens than this; known without asking the device."""
    version: int = 0
    """The version of the cache when this state was made."""

    @classmethod
    def empty(
        cls, rows: int, places: int, like: Tensor, width: int, layers: int, heads: int, head_width: int
    ) -> Window:
        """Nothing read yet, and memory for so many tokens of each row; `like`: a weight of the model, `width`: of its
        layers."""
        device = like.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype
        none_LBHSK = torch.zeros(layers, 0, heads, 0, head_width, dtype=dtype, device=like.device)
        tokens_BS = torch.zeros(0, 0, dtype=torch.long, device=like.device)
        cache = KVCache(tokens_BS, none_LBHSK, none_LBHSK).empty(rows, places)
        return cls(cache, tokens_BS.new_zeros(rows), like.new_zeros(rows, width))

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.length_B), device=self.length_B.device)

    def select(self, rows: Tensor, same_text: bool = False) -> Window:
        length_B, last_BD = self.length_B.index_select(0, rows), self.last_BD.index_select(0, rows)
        return Window(self.cache.select(rows, self.most), length_B, last_BD, self.most)

    def join(self, others: Sequence[Window]) -> Window:
        every = [self, *others]
        length_B, last_BD = torch.cat([one.length_B for one in every]), torch.cat([one.last_BD for one in every])
        cache = self.cache.join([other.cache for other in others])
        return Window(cache, length_B, last_BD, max(one.most for one in every))

    def forget(self, fresh_B: Tensor) -> Window:
        """Nothing read in the rows that begin anew."""
        last_BD = self.last_BD.masked_fill(fresh_B[:, None], 0.0)
        return replace(self, length_B=self.length_B.masked_fill(fresh_B, 0), last_BD=last_BD, version=-1)


Layers = Callable[[Tensor, Slots, Tensor | None], Tensor]
"""Reads tokens_BT into their slots: x_BTD of the last layer. The last tensor: which rows of the state they are, if not
all."""


def read_tokens(
    tokens_BT: Tensor, mask_BT: Tensor, state: Window, window: int, layers: Layers
) -> tuple[Tensor, Tensor, Window]:
    """What the last layer puts out for the real tokens, each row's moved to its front; their order; the window."""
    order_BT = torch.argsort(~mask_BT, dim=1, stable=True)
    tokens_BT, count_B, outs = tokens_BT.gather(1, order_BT), mask_BT.sum(1), []
    begin, length = 0, tokens_BT.shape[1]
    while begin < length:
        if state.most == window:
            state = _slide(state, window, layers)
        end = min(length, begin + window - state.most)
        count_now_B = (count_B - begin).clamp(0, end - begin)
        x_BTD, state = _extend(tokens_BT[:, begin:end], count_now_B, state, window, layers)
        outs.append(x_BTD)
        begin = end
    return torch.cat(outs, 1), order_BT, state


def _extend(
    tokens_BT: Tensor, count_B: Tensor, state: Window, window: int, layers: Layers, rows: Tensor | None = None
) -> tuple[Tensor, Window]:
    """Read the first `count_B` tokens of each row, for which the window has room."""
    cache, seen = state.cache.owned(state.version), state.most + tokens_BT.shape[1]
    cache.grow(seen, window)
    places_BT = state.length_B[:, None] + torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
    cache.tokens_BS.scatter_(1, places_BT, tokens_BT)
    # Where nothing was read before, all rows begin at 0, and the kernel needs no list of places.
    x_BTD = layers(tokens_BT, Slots(cache, seen, places_BT if state.most else None), rows)
    cache.version += 1
    last_BD = x_BTD[torch.arange(len(x_BTD), device=x_BTD.device), (count_B - 1).clamp(min=0)]
    last_BD = torch.where(count_B[:, None] > 0, last_BD.to(state.last_BD.dtype), state.last_BD)
    return x_BTD, Window(cache, state.length_B + count_B, last_BD, seen, cache.version)


def _slide(state: Window, window: int, layers: Layers) -> Window:
    """Make room: keep the newer half of each row that is full, read again as if the text began there."""
    half = window // 2
    rows = (state.length_B == window).nonzero()[:, 0]
    length_B = state.length_B.index_fill(0, rows, half)
    if not len(rows):  # padding was counted too
        return replace(state, most=int(length_B.max()))
    cache = state.cache.owned(-1)
    if half:
        tail_BT = cache.tokens_BS[rows, window - half : window]
        empty = Window(cache.empty(len(rows), half), torch.zeros_like(rows), state.last_BD[rows])
        _, again = _extend(tail_BT, torch.full_like(rows, half), empty, window, layers, rows)
        cache.put(rows, again.cache)
    return Window(cache, length_B, state.last_BD, int(length_B.max()), cache.version)


class TransformerStep(OneToken):
    """One token of each row at a time: always the same work, in the same memory.

    `read` is the part that a GPU records and replays; `most` is then counted by whoever replays. Compiled code finds
    keys and values by a map, so that beams that change places copy none.
    """

    memories: Sequence[Memory] = ()
    """What a decoder's layers know of the sources."""
    beams = 1
    """Rows for each row of the memories, side by side."""

    def __init__(
        self,
        state: Window,
        window: int,
        layers: Callable[[Tensor, Slots], Tensor],
        logits: Callable[[Tensor], Tensor],
        loops: Loops | None = None,
    ) -> None:
        """`layers` reads tokens_BT into their slots and gives x_BTD of the last layer, `logits` takes x_BD of that."""
        self.window, self.layers, self.logits = window, layers, logits
        self.cache = state.cache.owned(state.version)
        self.length_B, self.last_BD = state.length_B.clone(), state.last_BD.clone()
        self.most = int(self.length_B.max())
        self.even = bool((self.length_B == self.most).all())
        """Whether all rows are equally long: attention then needs no mask."""
        self.loops = loops
        """Compiled code for one token a row (layers/one_token_*.py), where it is faster."""
        self.map = self._plain()

    @property
    def room(self) -> int:
        return self.window - self.most

    def take(self, state: Window) -> None:
        length_B, most = state.length_B, int(state.length_B.max())
        self.cache.copy(state.cache, most)
        self.length_B.copy_(length_B)
        self.last_BD.copy_(state.last_BD)
        self.most, self.even = most, bool((length_B == most).all())
        for own, plain in zip(self.map, self._plain(), strict=True):
            own.copy_(plain)

    def state(self) -> Window:
        cache = self._gathered()
        cache.version += 1
        return Window(cache, self.length_B.clone(), self.last_BD.clone(), self.most, cache.version)

    @torch.inference_mode()
    def feed(self, ids_B: Tensor) -> Tensor:
        self.most += 1
        self.cache.version += 1
        self.cache.grow(self.most, self.window)
        self.map = self.map.grow(self.cache.capacity)
        return self.read(ids_B, self.most, self.even)

    def move(self, rows_B: Tensor, beams: int) -> None:
        if self.loops is None:
            self.cache, self.memories = self.cache.select(rows_B, self.most), self._memories(rows_B[::beams] // beams)
            self.map = RowMap.plain(len(rows_B), self.cache.capacity, self.beams, rows_B.device)
        else:
            self.map = self.map.move(rows_B, beams)
            self.cache.tokens_BS = self.cache.tokens_BS.index_select(0, rows_B)
        self.length_B, self.last_BD = self.length_B.index_select(0, rows_B), self.last_BD.index_select(0, rows_B)

    def reorder(self, rows_B: Tensor) -> None:
        parts = [self.cache.tokens_BS, self.length_B, self.map.home_BS]
        if self.loops is None:
            parts.pop()
            for part_LBHSK in (self.cache.k_LBHSK, self.cache.v_LBHSK):
                part_LBHSK.copy_(part_LBHSK.index_select(1, rows_B))
        for part in parts:
            part.copy_(part.index_select(0, rows_B))

    def _plain(self) -> RowMap:
        return RowMap.plain(len(self.length_B), self.cache.capacity, self.beams, self.length_B.device)

    def _gathered(self) -> KVCache:
        """The cache with each row's keys and values in the row of its number: a copy, if beams have changed places."""
        plain, most = self._plain(), self.most
        if self.loops is None or torch.equal(self.map.home_BS[:, :most], plain.home_BS[:, :most]):
            return self.cache
        k_LBHSK, v_LBHSK = (self.map.gather(part) for part in (self.cache.k_LBHSK, self.cache.v_LBHSK))
        return KVCache(self.cache.tokens_BS.clone(), k_LBHSK, v_LBHSK)

    def _memories(self, sources_R: Tensor) -> Sequence[Memory]:
        """What is known of these sources: as it is, where they are all."""
        if not self.memories or len(sources_R) == len(self.memories[0].k_BHSK):
            return self.memories
        return tuple(one.select(sources_R) for one in self.memories)

    def read(self, ids_B: Tensor, seen: int, even: bool = False) -> Tensor:
        places_B1, ids_B1 = self.length_B[:, None], ids_B[:, None]
        self.cache.tokens_BS.scatter_(1, places_B1, ids_B1)
        if self.loops is not None and not recording():
            cache = self.cache.k_LBHSK, self.cache.v_LBHSK
            x_BD, logits_BV = self.loops(ids_B, self.length_B, *cache, self.map, self.memories)
            self.last_BD.copy_(x_BD)
            self.length_B.add_(1)
            return logits_BV
        if self.loops is not None:  # a probe records
            self.memories = self._memories(self.map.source_B[:: self.beams])
            self.cache, self.map = self._gathered(), self._plain()
        slots = Slots(self.cache, seen, None if even else places_B1)
        self.last_BD.copy_(self.layers(ids_B1, slots)[:, 0])
        self.length_B.add_(1)
        return self.logits(self.last_BD)
