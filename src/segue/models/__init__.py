"""The models. A file here is a kind: no registry, no import list.

`kinds` lists them without importing any; `model_class` imports one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from segue.errors import InputError, nearest
from segue.models.base import Model

_HERE = Path(__file__).parent
_SHARED = {"__init__", "base", "network", "markov_lm", "counted_classifier", "neural_classifier", "neural_tagger"}


def kinds() -> list[str]:
    """Every kind of model: the names of the files in this folder."""
    return sorted(path.stem for path in _HERE.glob("*.py") if path.stem not in _SHARED)


def source_file(kind: str) -> Path:
    """The file that a kind is written in (a kind that ends in `.py` is a file of the user's own)."""
    if kind.endswith(".py"):
        path = Path(kind)
        if not path.is_file():
            raise InputError(f"There is no model file {kind}. Expected the path of a Python file with one model class.")
        return path
    if kind not in kinds():
        raise InputError(f"There is no model '{kind}'.{nearest(kind, kinds())} `segue models` lists them.")
    return _HERE / f"{kind}.py"


def model_class(kind: str) -> type[Model]:
    """The one public class that derives from Model in the file of this kind."""
    path = source_file(kind)
    module = _outside(path) if kind.endswith(".py") else importlib.import_module(f"segue.models.{kind}")
    found = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and not name.startswith("_")
        and value.__module__ == module.__name__
        and issubclass(value, Model)
    ]
    if len(found) != 1:
        raise InputError(
            f"{path} should hold one public class that derives from Model (segue.models.base); it holds {len(found)}."
        )
    if missing := sorted(found[0].__abstractmethods__):
        raise InputError(
            f"{found[0].__name__} in {path} lacks {', '.join(missing)}. segue/models/base.py says what each is."
        )
    return found[0]


def fingerprint(path: Path) -> str:
    """The sha256 of a model file of the user's own; it goes into the run."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _outside(path: Path) -> ModuleType:
    name = f"segue_trusted_{path.stem}_{fingerprint(path)[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be read as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
