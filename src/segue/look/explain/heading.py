"""What a head on a body costs: parameters, how many of them learn, and operations."""

from __future__ import annotations

from typing import Any

from torch import nn

from segue.look.explain.costs import Section
from segue.models.base import Sizes
from segue.models.network import on_meta

_PARTS = {"vectors": "tokens' vectors", "segment_vectors": "segments' vectors", "blocks": "layers", "body": "layers"}
_NOT_USED = "not used"
TOKENS = 20


def explained(cls: Any, config: Any, sizes: Sizes, seconds: float | None) -> list[Section]:
    """Tables of a model with a body; `seconds`: how long that was trained, if it is known."""
    model = on_meta(lambda: cls(config, sizes))
    return [_parameters(model, sizes), _costs(model, seconds)]


def _part(name: str, learns: bool, unused: tuple[str, ...]) -> str:
    """The part of the model that a parameter belongs to, as the table names it."""
    if not name.startswith("body."):
        return f"new: {name.partition('.')[0]}"
    inner = name.removeprefix("body.")
    if inner.startswith(unused) and not learns:
        return _NOT_USED
    return _PARTS.get(inner.partition(".")[0], inner.partition(".")[0])


def _parameters(model: Any, sizes: Sizes) -> Section:
    counts: dict[str, list[int]] = {}
    for name, weight in model.named_parameters():
        of_part = counts.setdefault(_part(name, weight.requires_grad, model.body.head_names), [0, 0])
        of_part[0] += weight.numel()
        of_part[1] += weight.numel() * weight.requires_grad
    counts[_NOT_USED] = counts.pop(_NOT_USED, [0, 0])  # last
    total, learning = (sum(one[i] for one in counts.values()) for i in (0, 1))
    rows = [(part, f"{count:,}", _said(part, count, learns)) for part, (count, learns) in counts.items() if count]
    rows.append(("in all", f"{total:,}", f"{learning:,} learn"))
    kind = sizes.body.kind if sizes.body else ""
    return Section(f"Parameters of the body ({kind}) and of the new head for {sizes.classes} classes", rows)


def _said(part: str, count: int, learns: int) -> str:
    if part == _NOT_USED:
        return "what the body predicts tokens by"
    return "learns" if learns == count else f"{learns:,} learn" if learns else "stays as it is"


def _costs(model: Any, seconds: float | None) -> Section:
    """Operations, 2 for each weight of a matrix and token, and twice as many on the way back through what learns."""
    tables = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    used = [
        weight
        for name, weight in model.body.named_parameters()
        if weight.dim() >= 2 and id(weight) not in tables and not name.startswith(model.body.head_names)
    ]
    forward, learning = (2 * TOKENS * sum(weight.numel() for weight in some) for some in (used, _learning(used)))
    trained = "forward, and twice as many backward" + ("" if learning == forward else " through what learns")
    if not learning:
        trained = "computed once for each row, since the body is frozen"
    known = "how long it took is not known" if seconds is None else "the body's own, spent before"
    return Section(
        f"Costs of a text of {TOKENS} tokens",
        [
            ("operations", f"{forward:,}", "2 for each weight of a matrix in the layers, and token"),
            ("in training", f"{forward + 2 * learning:,}", trained),
            ("pre-training", "–" if seconds is None else f"{seconds:,.1f} s", known),
        ],
    )


def _learning(weights: list[Any]) -> list[Any]:
    return [weight for weight in weights if weight.requires_grad]
