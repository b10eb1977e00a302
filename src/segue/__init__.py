"""Segue: train, compare, look into and serve every model of text sequences, on your own data.

    import segue
    run = segue.train("rnn_lm", "book.txt", settings={"train.steps": 200})
    print(run.generate("The ", max_tokens=50, seed=0))
    segue.load("runs/rnn_lm-book").evaluate("other.txt")
    segue.compare("book.txt", models=["ngram", "rnn_lm"], budget="20s")

Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from segue.errors import InputError, SegueError

if TYPE_CHECKING:
    from segue.runs.api import compare, load, train
    from segue.runs.run import Run

__version__ = "0.1.0"
__all__ = ["InputError", "Run", "SegueError", "__version__", "compare", "load", "train"]


def __getattr__(name: str) -> Any:
    if name in ("train", "load", "compare"):
        from segue.runs import api

        return getattr(api, name)
    if name == "Run":
        from segue.runs.run import Run

        return Run
    raise AttributeError(f"module 'segue' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
