"""What an encoder-decoder costs: the parameters of each part, the shapes of source and target, operations of a pair.

stem               makes S places of the frames of sound or of a picture; the S tokens of a text have vectors
encoder            reads each of the S places of the source once
decoder            reads each of the T tokens of the target once, at every step all that it keeps of the source
cross-attention    T · S weights a head: each token of the target looks at every place of the source
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from segue.layers.attention import CrossAttention
from segue.layers.recurrent import Recurrent
from segue.layers.sources import STRIDE, PictureStem, Stem
from segue.look.explain.costs import PAPER_TOKENS, Section
from segue.models.base import Sizes
from segue.models.network import on_meta
from segue.models.transformer import SHAPES, Transformer

SOURCE, TARGET = 25, 30
"""Tokens of the pair that shapes are shown for; so many places has a second of sound."""
PUBLISHED = {"base": ("65M", "27.3, 38.1"), "big": ("213M", "28.4, 41.8")}
"""What the paper says of its parameters and of its BLEU, English to German and to French (Vaswani et al. 2017)."""


def explained(cls: Any, config: Any, sizes: Sizes, why: str) -> list[Section]:
    """The tables of an encoder-decoder with this [model]; `why`: where the size of its vocabulary comes from."""
    model: Any = on_meta(lambda: cls(config, sizes))
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        counts[part] = counts.get(part, 0) + parameter.numel()
    parts = dict(model.named_children())
    places, said = _places(parts.get("stem"))
    rows = [(name, f"{count:,}", _shape(name, parts.get(name), places)) for name, count in counts.items()]
    own = f"{sizes.source_vocab_size:,} of the source, " if sizes.source_vocab_size else ""
    total = ("in all", f"{sum(counts.values()):,}", f"with {own}{sizes.vocab_size:,} tokens ({why})")
    sections = [Section(f"Parameters, and shapes for S = {places}{said} and T = {TARGET} tokens", [*rows, total])]
    heads = sum(layer.heads for layer in model.modules() if isinstance(layer, CrossAttention))
    if heads:
        each = f"T · S = {places * TARGET:,} in each of {heads:,} heads"
        sections.append(Section("Weights of cross-attention", [("in all", f"{heads * places * TARGET:,}", each)]))
    if isinstance(config, Transformer.Config) and config.size != "own":
        sections.append(_published(config.size))
    return sections


def published(size: str) -> int:
    """Parameters of a published Transformer: post-LN, one table for source, target and output."""
    config = Transformer.Config(size=size, norm="post")  # type: ignore[arg-type]
    model: Any = on_meta(lambda: Transformer(config, Sizes(PAPER_TOKENS)))
    return sum(parameter.numel() for parameter in model.parameters())


def _published(chosen: str) -> Section:
    rows = []
    for size, (said, bleu) in PUBLISHED.items():
        layers, width, heads = SHAPES[size]
        shape = f"{layers} + {layers} layers of {width:,}, {heads} heads"
        remark = f"{said:>5} in the paper; BLEU {bleu} (en-de, en-fr); {shape}"
        rows.append((f"{'→' if size == chosen else ' '} {size}", f"{published(size):,}", remark))
    return Section(
        f"As published (post-LN, one vocabulary of {PAPER_TOKENS:,} tokens), and as the paper rounds it", rows
    )


def _places(stem: nn.Module | None) -> tuple[int, str]:
    """The places of the source that shapes are shown for, and what they are of, where it is no text."""
    if isinstance(stem, PictureStem):
        return stem.grid**2, f" places (a still picture of {stem.side} x {stem.side} pixels)"
    return SOURCE, "" if stem is None else f" places ({SOURCE * STRIDE} frames, a second of sound)"


def _shape(name: str, part: nn.Module | None, places: int) -> str:
    """What comes out of a part: a vector a place of the source, or a token of the target."""
    tokens = f"S = {places}" if name.startswith(("source", "stem", "encoder", "ctc_head")) else f"T = {TARGET}"
    match part:
        case Stem():
            return f"{tokens} x {_width(part.children())}"
        case nn.Embedding():
            return f"{tokens} x {part.embedding_dim}"
        case Recurrent():
            return f"{tokens} x {part.width * part.directions}; {part.layers} x {part.cell}"
        case nn.Linear():
            return f"{tokens} x {part.out_features}"
        case nn.ModuleList():
            return f"{tokens} x {_width(part)}; {len(part)} layer{'s' if len(part) > 1 else ''}"
    return ""


def _width(layers: Iterable[nn.Module]) -> int:
    """The width of the vectors between layers: that of their last bias."""
    return [p for layer in layers for p in layer.parameters() if p.dim() == 1][-1].numel()
