"""Where fine-tuning changed the weights: a bar for each part of the network, from the tokens' vectors to the top."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.look.inside.view import View


def weight_change_view(model: str, found: dict[str, Any]) -> View:
    """Draw `weight_change` of a result.json (training/weight_change.py)."""
    parts = found["parts"]
    return View(
        kind="bars",
        title=f"{model}: where the weights changed since {found['run']}",
        note=(
            "The relative change ||W - W0|| / ||W0|| of each part, W0 its weights in that run: 0 is as it was.\n"
            f"All weights together have moved by {found['all']:.4f} of their length."
        ),
        panels=("change",),
        rows=tuple(one["part"] for one in parts),
        columns=("change",),
        values_PRC=np.array([one["change"] for one in parts], float).reshape(1, -1, 1),
    )
