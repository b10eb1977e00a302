"""What a masked language model costs: the parameters of each part, operations of a row, and the published sizes.

layers             each of the T places of a row is read once, forward; backward takes twice as many operations
attention          each place looks at all T, on both sides: 4 · L · H · K operations for each of T · T pairs
last layer, head   computed at the K = share · T masked places alone; at all T places they would cost 1 / share times
                   as much
"""

from __future__ import annotations

from typing import Any

from segue.look.explain.costs import BYTES, Section, kept_in_training, size
from segue.models.base import Sizes
from segue.models.bert import SHAPES, Bert
from segue.models.bert import Size as Published
from segue.models.network import on_meta

LECTURES: dict[Published, str] = {"bert-base": "110M", "bert-large": "340M", "roberta-large": "355M"}
"""What the lectures say that the published models have; they are rounded."""
HEADS = ("transform", "transform_norm", "bias", "next_head")
"""Parts that pre-training alone uses."""
_NAMES = {
    "vectors": "tokens' vectors",
    "positions": "positions",
    "segment_vectors": "segments",
    "norm": "norm of their sum",
    "blocks": "layers",
    "last": "last norm",
    "pooler": "pooler",
    "transform": "masked head",
    "transform_norm": "norm of the masked head",
    "bias": "bias of the output",
    "next_head": "next-sentence head",
}


def sizes_of(config: Bert.Config, vocab_size: int) -> Sizes:
    """The ids of a published vocabulary hold the marks already."""
    marks = Bert.marks(config)
    return Sizes(vocab_size - len(marks) if config.size != "own" else vocab_size, marks=marks)


def explained(config: Bert.Config, sizes: Sizes, why: str, train: Any, share: float, length: int) -> list[Section]:
    """All of it in tables; `share` and `length` are those of [batches]."""
    counts = parts_of(config, sizes)
    rows = [(_NAMES.get(name, name), f"{count:,}", _remark(name, config, sizes, why)) for name, count in counts.items()]
    body = sum(count for name, count in counts.items() if name not in HEADS)
    rows += [("the body", f"{body:,}", "what a head for a task is put on"), ("in all", f"{sum(counts.values()):,}", "")]
    trained = kept_in_training(Bert, config, sizes, train)
    memory = [(part.name, size(BYTES * part.numbers), part.remark) for part in trained]
    sections = [Section("Parameters", rows), _operations(config, sizes, share, length)]
    sections.append(Section("Memory of training, float32, without what layers keep for the way back", memory))
    return [*sections, *([_published(config.size)] if config.size != "own" else [])]


def parts_of(config: Bert.Config, sizes: Sizes) -> dict[str, int]:
    """Count the parameters of each part."""
    model: Any = on_meta(lambda: Bert(config, sizes))
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def _remark(name: str, config: Bert.Config, sizes: Sizes, why: str) -> str:
    remarks = {
        "vectors": f"{sizes.ids:,} tokens ({why}), start and mask among them; the output weights too",
        "blocks": f"{config.layers:,} of them",
        "pooler": "tanh(W h + b) of the first place, for the next sentence and for heads",
    }
    return remarks.get(name, "")


def _operations(config: Bert.Config, sizes: Sizes, share: float, length: int) -> Section:
    layers = 2 * 12 * config.layers * config.width**2 * length
    attention = 4 * config.layers * config.width * length**2
    masked = max(1, round(share * length))
    head = 2 * (config.width**2 + config.width * sizes.vocab_size)
    return Section(
        f"Operations of a row of {length:,} tokens, forward (three times as many in training)",
        [
            ("layers", f"{layers:,}", "2 for each weight of a matrix and each place"),
            ("attention", f"{attention:,}", f"every place sees all {length:,}"),
            ("masked head", f"{head * masked:,}", f"at {masked:,} places; at all of them {head * length:,}"),
        ],
    )


def _published(chosen: Published) -> Section:
    """The published models: ours beside the lectures' figure."""
    rows = []
    for name, shape in SHAPES.items():
        config = Bert.Config(size=name)
        counts = parts_of(config, sizes_of(config, shape.vocab_size))
        body = sum(count for part, count in counts.items() if part not in HEADS)
        said = f"{LECTURES[name]} in the lectures" if name in LECTURES else "not in the lectures"
        remark = f"{said}; with the heads of pre-training {sum(counts.values()):,}"
        rows.append((f"{'→' if name == chosen else ' '} {name}", f"{body:,}", remark))
    return Section("As published, with the pooler and without heads, and as the lectures round it", rows)
