"""The models. A file here whose class has a `Config` is a kind: no registry, no import list.

The other files hold what several kinds share. `kinds` lists the kinds without importing any; `model_class` imports one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

from segue.errors import InputError, nearest
from segue.models.base import Counted, Model, TaskName

_CONFIG = re.compile(r"^    class Config\b", re.M)
_TASK = re.compile(r'^    task = "(\w+)"', re.M)
_BASES = re.compile(r"^from segue\.models\.(\w+) import", re.M)


def kinds() -> list[str]:
    """List every kind of model: the names of the files in this folder that hold a model with its Config."""
    return sorted(name for name, path in _files().items() if _is_kind(path))


@cache
def _is_kind(path: Path) -> bool:
    return _CONFIG.search(path.read_text(encoding="utf-8")) is not None


def _files() -> dict[str, Path]:
    """List the files of this package, by name."""
    return {path.stem: path for folder in __path__ for path in Path(folder).glob("*.py")}


def task_of(kind: str) -> TaskName:
    """Read the task of a kind from its file or from that of a base class, without importing it."""
    return cast(TaskName, _task_in(source_file(kind)))


def _task_in(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if found := _TASK.search(text):
        return found[1]
    # base.py last: every model imports from it, and one of its classes has a task, that of encoder-decoders.
    bases = sorted(_BASES.findall(text), key="base".__eq__)
    return next(filter(None, (_task_in(_files()[name]) for name in bases)), "")


def source_file(kind: str) -> Path:
    """Return the source file of a kind (a kind that ends in `.py` is the user's own file)."""
    if kind.endswith(".py"):
        path = Path(kind)
        if not path.is_file():
            raise InputError(f"There is no model file {kind}. Expected the path of a Python file with one model class.")
        return path
    places = [Path(folder) / f"{kind}.py" for folder in __path__]
    own = next((place for place in places if place.is_file()), None)
    if own is None or not _is_kind(own):
        raise InputError(f"There is no model '{kind}'.{nearest(kind, kinds())} `segue models` lists them.")
    return own


def model_class(kind: str) -> type[Model]:
    """Import the one public class that derives from Model in the file of this kind."""
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
    if missing := _lacks(found[0]):
        raise InputError(
            f"{found[0].__name__} in {path} lacks {', '.join(missing)}. segue/models/base.py says what each is."
        )
    return found[0]


def _lacks(cls: type[Model]) -> list[str]:
    """List what the base classes require and the class does not have."""
    named = ("task", "Config", "Train") if issubclass(cls, Counted) else ("task", "Config")
    return [name for name in named if name not in dir(cls)] + sorted(cls.__abstractmethods__)


def check_trust(kind: str, trust: bool, run: Path | None = None, sha256: str | None = None) -> None:
    """Refuse to run a model file from outside the package unless the user trusts it and, in a run, it is unchanged."""
    if not kind.endswith(".py"):
        return
    where = f"The model of {run} is a file of its own, {kind}" if run else f"{kind} is code from outside the package"
    if not trust:
        raise InputError(f"{where}. Read it, and say --trust (trust=True) to run it.")
    if run is None:
        return
    if not Path(kind).is_file():
        raise InputError(f"{where}, which is not there. Put it back.")
    if fingerprint(Path(kind)) != sha256:
        raise InputError(f"{kind} has changed since the run in {run} was made with it. Restore it, or train again.")


def fingerprint(path: Path) -> str:
    """Return the sha256 of a user's own model file; the run records it."""
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
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"{_place_of(error, path)}: the model file cannot be imported: {_what(error)}") from None
    return module


def _place_of(error: BaseException, path: Path) -> str:
    """Return FILE:LINE of the last line of the model file that ran, or that its syntax error names."""
    if isinstance(error, SyntaxError):
        return f"{error.filename or path}:{error.lineno or 1}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _what(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the program (sys.exit({error.code!r}))"
    reason = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {reason[:300]}"
