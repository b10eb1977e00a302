"""Segue: train, compare, look into and serve every model of text sequences, on your own data.

    import segue
    run = segue.train("rnn_lm", "book.txt", settings={"train.steps": 200})
    print(run.generate("The ", max_tokens=50, seed=0))
    segue.load("runs/rnn_lm-book").evaluate("other.txt")
    segue.compare("book.txt", models=["ngram", "rnn_lm"], budget="20s")

Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.errors import InputError, SegueError

if TYPE_CHECKING:
    from segue.interop.formats import export_run, import_run
    from segue.runs.evaluate import evaluate
    from segue.runs.experiments.claim import run_claim as claim
    from segue.runs.experiments.compare import compare
    from segue.runs.experiments.suite import run_suite as suite
    from segue.runs.explain import explain
    from segue.runs.run import Run, load
    from segue.runs.train import train
    from segue.training.log import silent

# OpenMP's threads spin while they wait for each other, by default for milliseconds. Where other programs run too, they
# keep the cores from the very threads that they wait for, and a step takes ten times as long: make them sleep soon. The
# libraries read this when torch loads them: GNU's on Linux (a number of loops), LLVM's and Intel's (milliseconds). On a
# quiet machine waking up takes longer than waiting a little: they spin for longer there.


def _is_busy() -> bool:
    """Whether other programs want half of the cores or more at this moment (known on Linux alone)."""
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1  # not this process
    except (OSError, ValueError, IndexError):
        return True
    return running >= max(1, (os.cpu_count() or 1) // 2)


if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000" if _is_busy() else "30000")
    os.environ.setdefault("KMP_BLOCKTIME", "1")

__version__ = "0.1.0"
__all__ = [
    "InputError",
    "Run",
    "SegueError",
    "__version__",
    "claim",
    "compare",
    "evaluate",
    "explain",
    "export_run",
    "import_run",
    "load",
    "silent",
    "suite",
    "train",
]
_WHERE = {
    "train": "segue.runs.train",
    "load": "segue.runs.run",
    "Run": "segue.runs.run",
    "evaluate": "segue.runs.evaluate",
    "compare": "segue.runs.experiments.compare",
    "claim": "segue.runs.experiments.claim:run_claim",
    "suite": "segue.runs.experiments.suite:run_suite",
    "explain": "segue.runs.explain",
    "export_run": "segue.interop.formats",
    "import_run": "segue.interop.formats",
    "silent": "segue.training.log",
}
_REPORTING = {"train", "evaluate", "compare", "claim", "suite", "export_run", "import_run"}
"""These report their progress unless they are called with progress=segue.silent."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'segue' has no attribute '{name}'")
    module, _, other = _WHERE[name].partition(":")
    found = vars(import_module(module))[other or name]
    if name in _REPORTING:
        found = import_module("segue.training.log").reports(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
