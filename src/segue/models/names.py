"""What users call things: a textbook's word, the last part of a recipe's name or a slip, and the kind, recipe, key or
verb that is meant. The table is recipes/names.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from segue import models
from segue.errors import InputError, closest, nearest
from segue.models.keys import SECTIONS, keys_of

RECIPES = Path(models.__file__).parents[1] / "recipes"
CLAIMS = "claims"
"""The folder in it with the lectures' claims (runs/experiments/claim.py) instead of a model's recipes."""


def recipe_names(kind: str = "*") -> list[str]:
    """List the shipped recipes, as kind/name."""
    paths = (path for path in RECIPES.glob(f"{kind}/*.toml") if path.parent.name != CLAIMS)
    return sorted(f"{path.parent.name}/{path.stem}" for path in paths)


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads((RECIPES / "names.toml").read_text(encoding="utf-8"))


def _word(text: str) -> str:
    return text.strip().lower().replace(" ", "_").replace("-", "_")


# Models


def meanings(what: str) -> Sequence[str]:
    """Return the kinds and recipes that a name may mean, the likeliest first; the name itself if it is one of theirs.

    A name that means nothing is an InputError that names the nearest.
    """
    kind = what.partition("/")[0]
    if what.endswith((".toml", ".py")) or kind in models.kinds():
        return [what]
    word = _word(what)
    found: list[str] = _table()["models"].get(word) or [name for name in recipe_names() if word == _last(name)]
    if not found:
        raise InputError(_unknown_model(what))
    return found


def _last(recipe: str) -> str:
    return _word(recipe.partition("/")[2])


def _unknown_model(what: str) -> str:
    kind, word = what.partition("/")[0], _word(what)
    if missing := _table()["missing"].get(word):
        return f"There is no {what} here yet. Near it: {missing} `segue models` lists all models."
    if size := _table()["sizes"].get(word):
        return f"{what} is a size of a model: write {size}"
    terms = [*models.kinds(), *_table()["models"], *_table()["missing"], *recipe_names(), *map(_last, recipe_names())]
    close = closest(word, terms) or closest(_word(kind), terms)
    hint = f" Did you mean '{close}'?" if close else nearest(kind, models.kinds())
    return f"There is no model '{kind}'.{hint} `segue models` lists them."


# Keys


def keys_called(name: str, kind: str) -> list[str]:
    """List the keys of a kind's recipe that end in a name or its entry in the table: `lr` is train.optimizer.rate."""
    meant = _table()["keys"].get(_word(name), name)
    names = {name, *([meant] if isinstance(meant, str) else meant)}
    return [key for key in keys_of(kind) if any(f".{key}".endswith(f".{one}") for one in names)]


def full_setting(setting: str, kind: str) -> str:
    """Return a setting of a kind with its section: `steps=10` is train.steps=10, if no other section has such a key."""
    key, equals, value = setting.partition("=")
    if not equals or not key or key.partition(".")[0] in SECTIONS:
        return setting
    found = keys_called(key, kind)
    if len(found) == 1:
        return f"{found[0]}={value}"
    if found:
        raise InputError(f"'{setting}' may be {' or '.join(f'{one}={value}' for one in found)}. Say which.")
    if "." in key:
        section = key.partition(".")[0]
        raise InputError(f"There is no section '{section}' in '{setting}'.{nearest(section, SECTIONS)}")
    raise InputError(_unknown_key(setting, key, value, kind))


def _unknown_key(setting: str, key: str, value: str, kind: str) -> str:
    last = {one.rpartition(".")[2]: one for one in reversed(keys_of(kind))}
    close = closest(key, [*last, *_table()["keys"]])
    known = keys_called(close, kind) if close else []
    hint = f" Did you mean {known[0]}={value}?" if known else f" `segue explain {kind}` lists the keys."
    return f"'{setting}' is not understood. Expected section.key=value.{hint}"


def key_elsewhere(key: str, kind: str) -> str:
    """Return the first key of a kind with the same last name as one that does not exist, or what the table calls it."""
    found = keys_called(key.rpartition(".")[2], kind)
    section = key.partition(".")[0]
    return next((one for one in found if one.startswith(f"{section}.")), found[0] if found else "")


_SETTING_VERBS = ("train", "compare", "claim", "suite", "explain")
_BUDGETS = {"steps": "--budget {}", "seconds": "--budget {}s"}
"""Of the verbs that train several models, which have one budget."""


def option_as_setting(option: str, words: Sequence[str]) -> str:
    """Return what an unknown option of a command line should be, such as train.steps=10 for --steps 10; empty if it is
    no key of a recipe."""
    verb, given = words[0], words[1] if len(words) > 1 else ""
    name = option.lstrip("-").replace("-", "_")
    at = next((i for i, word in enumerate(words) if word.partition("=")[0] == option), None)
    if verb not in _SETTING_VERBS or at is None:
        return ""
    value = words[at].partition("=")[2] or next(iter(words[at + 1 : at + 2]), "") or "…"
    if verb in ("compare", "claim", "suite") and name in _BUDGETS:
        return _BUDGETS[name].format(value)
    try:
        kinds = [meanings(given)[0].partition("/")[0]]
    except InputError:
        kinds = models.kinds()
    for kind in kinds if kinds[0] in models.kinds() else models.kinds():
        if found := keys_called(name, kind):
            return " or ".join(f"{key}={value}" for key in found)
    return ""


# Verbs


def verb_called(word: str) -> str:
    """Return the verb that another word for it means, such as generate for sample; empty if there is none."""
    return str(_table()["verbs"].get(_word(word), ""))
