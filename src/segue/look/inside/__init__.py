"""Looking into a model: one door, `look`, for the terminal, pages, the server and notebooks.

A file here is a view: `applies(model)` says whether it can be shown, `view(opened, text, …)` shows it. No registry:
`views` lists the files. A view knows classes of models/base.py and layers, and no kind of model.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.errors import InputError, nearest

if TYPE_CHECKING:
    from segue.inference.opened import Opened
    from segue.look.inside.view import View

_SHARED = {"__init__", "view", "reading", "on_source", "draw_svg", "draw_terminal"}
FIRST = "next"
"""What is shown unless a view is named, where it applies."""


def views() -> list[str]:
    """Every view: the names of the files in this folder."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in _SHARED)


def views_of(model: Any) -> list[str]:
    """The views that apply to a model, the one that is shown by default first."""
    found = [name for name in views() if _module(name).applies(model)]
    return sorted(found, key=lambda name: name != FIRST)


def look(
    opened: Opened, view: str = "", text: str = "", target: str = "", other: Opened | None = None, **options: Any
) -> View:
    """Show what a model does with a text; with `other`, the same of a second run beside it.

    `view` is one of `views()`, by default the first that applies. `target` is what a source is translated into.
    """
    if view and view not in views():
        raise InputError(f"There is no view '{view}'.{nearest(view, views())} `segue look --help` explains them.")
    if not view:
        view = _default(opened.model)
    given = {**({"target": target} if target else {}), **options}
    shown = _one(opened, view, text, given)
    return shown if other is None else shown._replace(beside=(_one(other, view, text, given),))


def takes(view: str, option: str) -> bool:
    """Whether a view has such an option."""
    return view in views() and option in inspect.signature(_module(view).view).parameters


def _default(model: Any) -> str:
    found = views_of(model)
    if not found:
        raise InputError(f"There is nothing to look at in {_kind(model)}: no view applies to it.")
    return found[0]


def _kind(model: Any) -> str:
    """The kind of a model as users write it: the name of its file."""
    return type(model).__module__.rpartition(".")[2]


def _one(opened: Opened, name: str, text: str, options: dict[str, Any]) -> View:
    module = _module(name)
    if not module.applies(opened.model):
        found = ", ".join(views_of(opened.model)) or "none"
        raise InputError(f"The view '{name}' does not apply to {_kind(opened.model)}. Views that do: {found}.")
    taken = [key for key in inspect.signature(module.view).parameters if key not in ("opened", "text")]
    if wrong := [key for key in options if key not in taken]:
        expected = f"It takes: {', '.join(taken)}." if taken else "It takes no options."
        raise InputError(f"The view '{name}' has no option '{wrong[0]}'. {expected}")
    shown: View = module.view(opened, text, **options)
    return shown


def _module(name: str) -> Any:
    return importlib.import_module(f"segue.look.inside.{name}")
