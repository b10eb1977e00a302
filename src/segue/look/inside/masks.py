"""What a masked language model reads in training: a text with its masked, changed and kept tokens, and its guesses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.masking import masked
from segue.inference.opened import Opened
from segue.look.inside.reading import MOST_TOKENS, check_some, names_of
from segue.look.inside.view import View
from segue.models.base import MaskedModel

SHARE = 0.15
_SHADES = {"masked": 1.0, "changed": -1.0, "kept": 0.4}
"""How a token that is to be predicted is read, and its shade; below 0 it has the other colour."""
_GUESSES = 3

Ints = NDArray[np.int64]


def applies(model: Any) -> bool:
    """Masked language models."""
    return isinstance(model, MaskedModel)


def view(opened: Opened, text: str, seed: int = 0) -> View:
    """The tokens of a text as one step of training reads them, and beside them what the model predicts at the hidden
    places; `seed` draws the places."""
    drawn = _drawn(opened, text, seed)
    names, true = names_of(opened, drawn.read_T.tolist()), names_of(opened, drawn.targets_K.tolist())
    shades, ways = (
        np.zeros(len(names)),
        [_way(opened, *pair) for pair in zip(drawn.seen_K, drawn.targets_K, strict=True)],
    )
    for place, name, way in zip(drawn.places_K.tolist(), true, ways, strict=True):
        shades[place] = _SHADES[way]
        names[place] = f"{name}→{names[place]}" if way == "changed" else names[place]
    counts = ", ".join(f"{ways.count(way)} {way}" for way in _SHADES)
    note = (
        f"{len(ways)} of {len(names)} tokens are predicted: {counts}. Over many texts these are 15 % of the tokens, as "
        "in BERT (batches.share of a recipe may say another share): 12 % are read as the mask, 1.5 % as a random token "
        "(here behind the arrow), 1.5 % as they are.\nTokens without a shade have no loss."
    )
    shown = View("text", "What training reads", note, ("text",), ("way",), tuple(names), shades[None, None])
    return shown._replace(beside=(_guesses(opened, drawn, true),) if ways else ())


class _Drawn(NamedTuple):
    """A text as training reads it."""

    read_T: Ints
    places_K: Ints
    """Where tokens are predicted."""
    seen_K: Ints
    """What is read there."""
    targets_K: Ints


def _drawn(opened: Opened, text: str, seed: int) -> _Drawn:
    from segue.inference.masked import window_of  # it imports torch, and views are listed without

    check_some(text)
    codec = opened.codec
    ids = codec.tokenizer.encode(text).astype(np.int64)[: min(MOST_TOKENS, window_of(opened)) - 2]
    framed = codec.frame(ids)[0][None].astype(np.int64)
    (read_T,), (places_K,), (targets_K,) = masked(framed, SHARE, codec.sizes, np.random.default_rng(seed))
    real_K = targets_K != IGNORE
    return _Drawn(read_T, places_K[real_K], read_T[places_K[real_K]], targets_K[real_K])


def _way(opened: Opened, seen: int, true: int) -> str:
    if seen == opened.codec.sizes.mark("mask"):
        return "masked"
    return "kept" if seen == true else "changed"


def _guesses(opened: Opened, drawn: _Drawn, true: list[str]) -> View:
    """The likeliest tokens at each hidden place."""
    import torch

    read_BT = drawn.read_T[None]
    batch = Batch(read_BT, None, np.ones(read_BT.shape, bool), places_BK=drawn.places_K[None], unpadded=True)
    opened.model.eval()
    with torch.inference_mode():
        p_KV = opened.model(batch.to(opened.device))[0][0].double().softmax(-1).cpu().numpy()
    best_KN = np.argsort(-p_KV, axis=1, kind="stable")[:, :_GUESSES]
    p_KN = np.take_along_axis(p_KV, np.concatenate([best_KN, drawn.targets_K[:, None]], 1), 1)
    return View(
        kind="table",
        title="What the model predicts there",
        note="The likeliest tokens with their probabilities, and in the last column that of the true one.",
        panels=("p",),
        rows=tuple(true),
        columns=(*(f"{place}." for place in range(1, best_KN.shape[1] + 1)), "true"),
        values_PRC=p_KN[None],
        cells_RC=tuple((*names_of(opened, best), "") for best in best_KN.tolist()),
    )
