"""Recipes: everything that makes a run, strict and resolved.

    defaults  <  one TOML (shipped or your own)  <  section.key=value on the command line

A section is the `Config` dataclass of the part that reads it; no part sees another's. Each field has a
one-line doc, which is the help, the comment in recipe.toml and the docs; models/keys.py reads it from the
source. Names and keys are checked by the source alone, so that a wrong one is told before torch is loaded.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from segue import models, tasks
from segue.data.config import Config as Data
from segue.data.config import Label, Metric
from segue.errors import InputError, nearest
from segue.inference.decode_settings import Config as Decode
from segue.inference.evaluation import NAMES
from segue.models.base import Counted, Model, ModelConfig
from segue.models.keys import OWNERS, SECTIONS, group_docs, keys_of, section_fields, shared_sections_with
from segue.models.names import RECIPES, full_setting, key_elsewhere, meanings, recipe_names
from segue.output.visible import visible

if TYPE_CHECKING:
    from segue.data.shapes import Shape
    from segue.tasks.base import Task

_FOR_LABELS = {
    **dict.fromkeys(("class", "classes", "number"), "Choose a network for sentences, such as dan or cnn_classifier."),
    **dict.fromkeys(("iob1", "bio", "bioes"), "Choose a tagger, such as rnn_tagger."),
}


@dataclass(frozen=True)
class Recipe:
    """All that makes a run, with the data."""

    kind: str
    name: str
    """The name in tables: `kind` or `kind/name`."""
    data: Any
    tokens: Any
    batches: Any
    model: Any
    train: Any
    decode: Any

    @property
    def model_class(self) -> Any:
        return models.model_class(self.kind)

    @property
    def task(self) -> Task:
        """The task of the model's kind, under its noise."""
        return tasks.task(self.model_class.task).with_noise(self.batches.noise)

    @property
    def shape(self) -> Shape:
        """The shape of its data: how a row looks."""
        return self.task.shape

    def with_values(self, section: str, **values: Any) -> Recipe:
        """Return a copy with other values in one section."""
        return dataclasses.replace(self, **{section: dataclasses.replace(vars(self)[section], **values)})


def load_recipe(
    what: str, overrides: Sequence[str] = (), base: Mapping[str, Any] | None = None, trust: bool = False
) -> Recipe:
    """Load the recipe of a kind, `kind/name` or TOML file, with `section.key=value` on top.

    `what` may also be a textbook's name (models/names.py), and a setting may lack its section where one alone has the
    key. `base` holds values of the caller's own below the overrides, as {"data": {"path": …}}. A kind that is a file
    of the user's own is code, and is imported only with `trust`. A budget that is named (train.seconds=600) replaces
    that of a shipped recipe, and a batch in rows (batches.size=32) a recipe's batch in tokens.
    """
    kind, name, values = _from_toml(what)
    models.check_trust(kind, trust)
    settings = [full_setting(one, kind) for one in overrides]
    asked = {one.partition("=")[0] for one in settings}
    if not what.endswith(".toml") and asked & set(_BUDGET[:3]):
        train = values.get("train", {})
        values["train"] = {key: value for key, value in train.items() if f"train.{key}" not in _BUDGET[:3]}
    if "batches.size" in asked:
        values.get("batches", {}).pop("tokens", None)
    for section, entries in (base or {}).items():
        values.setdefault(section, {}).update(entries)
    named = _named(values) if what.endswith(".toml") else []
    for override in settings:
        _override(values, override)
        named.append(override.partition("=")[0])
    _check_keys(kind, values)
    _note_named(kind, values, named)
    return _build(kind, name, values)


_BUDGET = ("train.steps", "train.epochs", "train.seconds", "train.named", "train.plan")


def _named(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the keys of a recipe file; one that notes which were named (a run's own) has noted them all."""
    if "named" in values.get("train", {}):
        return []
    keys = []
    for key, value in values.items():
        keys += _named(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [prefix + key]
    return keys


def _note_named(kind: str, values: dict[str, Any], named: Sequence[str]) -> None:
    """Note in train.named the keys that the user has named: a plan (runs/plan.py) leaves them as they are."""
    planned = [key for key in named if key.startswith(("model.", "batches.", "train.")) and key not in _BUDGET]
    if planned and _section_class("train", models.model_class(kind)).has("named"):
        train = values.setdefault("train", {})
        known = [key for key in str(train.get("named", "")).split(",") if key]
        train["named"] = ",".join(sorted({*known, *planned}))


def read_recipe(path: Path, trust: bool = False) -> Recipe:
    """Read the recipe.toml of a run."""
    kind, name, values = _parse(path)
    models.check_trust(kind, trust)
    return _build(kind, name, values)


def data_section(settings: Sequence[str], **own: Any) -> Data:
    """Make a [data] section by itself: values of the caller's own, with `data.key=value` on top."""
    config: Data = _section_alone("data", Data, settings, own)
    return config


def decode_section(settings: Sequence[str], **own: Any) -> Decode:
    """Make a [decode] section by itself: values of the caller's own, with `decode.key=value` on top."""
    config: Decode = _section_alone("decode", Decode, settings, own)
    return config


def _section_alone(section: str, cls: Any, settings: Sequence[str], own: dict[str, Any]) -> Any:
    values = {section: own}
    for setting in settings:
        _override(values, setting)
    return make(cls, values[section], section)


def kind_of(what: str) -> str:
    """Return the kind of a recipe, by its name or TOML file."""
    return _from_toml(what)[0]


def _from_toml(what: str) -> tuple[str, str, dict[str, Any]]:
    what = meanings(what)[0]
    if what.endswith(".toml"):
        return _parse(Path(what))
    if what.endswith(".py"):
        models.source_file(what)
        return what, Path(what).stem, {}
    kind, _, name = what.partition("/")
    models.source_file(kind)
    path = RECIPES / kind / f"{name or 'default'}.toml"
    if path.exists():
        _, _, values = _parse(path)
        return kind, what, values
    if name:
        raise InputError(f"There is no recipe '{what}'.{nearest(what, [*recipe_names(kind), kind])}")
    return kind, kind, {}


def _parse(path: Path) -> tuple[str, str, dict[str, Any]]:
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no regular file. Expected a TOML file.")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no recipe file {path}. `segue recipes` lists those that are shipped.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}. Expected a TOML file.") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and arrays nested as deep
        raise InputError(
            f"{path} is not TOML: {error}. Mend that line, or take the file from where it is whole."
        ) from None
    kind = values.pop("kind", path.parent.name if path.is_relative_to(RECIPES) else None)
    if not isinstance(kind, str):
        raise InputError(f'{path} names no model. Expected a first line such as: kind = "rnn_lm"')
    own = f"{Path(kind).stem}/{path.stem}" if kind.endswith(".py") else f"{kind}/{path.stem}"
    name = values.pop("name", own)
    check_name(name, f"{path}: name =")
    for section, entries in values.items():
        if section not in SECTIONS:
            raise InputError(f"{path}: there is no section [{section}].{nearest(section, SECTIONS)}")
        if not isinstance(entries, dict):
            raise InputError(f"{path}: [{section}] should be a section with keys.")
    return kind, name, values


_KEPT = ("report.html", "result.json", "picture.svg")
"""Files of a comparison or a claim, beside the folders of its runs."""


def check_name(name: Any, where: str) -> None:
    """Refuse a name that cannot be that of a folder: a comparison writes the run of a model under the model's name."""
    parts = name.split("/") if isinstance(name, str) else []
    plain = all(
        part and part.isprintable() and part == part.strip() and part[0] != "." and "\\" not in part for part in parts
    )
    if not (parts and plain and len(name.encode()) <= 200) or name in _KEPT:
        raise InputError(
            f"{where} {str(name)[:60]!r} cannot be the name of a model, since its run folder is called so. Expected a "
            "word, or words with / between, such as rnn_lm/mine."
        )


def _override(values: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    section, dot, rest = key.partition(".")
    if not equals or not dot or not rest:
        known = shared_sections_with(key)
        hint = f"Did you mean {known[0]}.{override}?" if equals and known else "For example: train.steps=200."
        raise InputError(f"'{override}' is not understood. Expected section.key=value. {hint}")
    if section not in SECTIONS:
        raise InputError(f"There is no section '{section}' in '{override}'.{nearest(section, SECTIONS)}")
    place = values.setdefault(section, {})
    *groups, last = rest.split(".")
    for group in groups:
        place = place.setdefault(group, {})
        if not isinstance(place, dict):
            raise InputError(f"'{override}': {section}.{group} is a value, not a group of keys.")
    place[last] = _Text(value)


def _check_keys(kind: str, values: Mapping[str, Any], prefix: str = "") -> None:
    """Refuse a key that a kind does not have, by the source alone. What an own model's file inherits, it does not show:
    there `make` alone checks."""
    known = () if kind.endswith(".py") else keys_of(kind)
    for name, value in values.items() if known else ():
        key = prefix + name
        if any(one.startswith(f"{key}.") for one in known) or key in SECTIONS:
            if isinstance(value, Mapping):
                _check_keys(kind, value, f"{key}.")
        elif key not in known:
            beside = {one[len(prefix) :].partition(".")[0] for one in known if one.startswith(prefix)}
            raise _no_key(key, key_elsewhere(key, kind), beside)


def _no_key(key: str, other: str, beside: Iterable[str]) -> InputError:
    """Word the error of a key that does not exist: `other` may be meant, `beside` are the keys of its section."""
    section, _, name = key.rpartition(".")
    hint = f" Did you mean '{other}'?" if other else nearest(name, beside)
    return InputError(f"There is no key '{key}'.{hint or f' This model has no keys in [{section}]. Leave it out.'}")


class _Text(str):
    """A value typed on the command line, not yet converted to its key's type."""


def _build(kind: str, name: str, values: dict[str, Any]) -> Recipe:
    cls = models.model_class(kind)
    values = {section: dict(values.get(section, {})) for section in SECTIONS}
    _settle(values, cls)
    parts = {section: make(_section_class(section, cls), values[section], section) for section in SECTIONS}
    task = tasks.task(cls.task).with_noise(parts["batches"].noise)
    task.settle_tokens(parts["tokens"])
    try:
        if "path" in values["data"]:  # else nobody knows yet what the sources are
            cls.check_data(parts["model"], parts["data"])
    except ValueError as error:
        raise InputError(_impossible(str(error), {}, "model")) from None
    try:
        parts["batches"] = _settled_batches(parts["batches"], task)
    except ValueError as error:
        raise InputError(f"batches: {error}. Leave one of them out.") from None
    return Recipe(kind, name, **parts)


def _settle(values: dict[str, dict[str, Any]], model: type[Model]) -> None:
    """Fill in defaults that depend on the task, the model and each other."""
    task = tasks.task(model.task)
    if values["tokens"].get("kind", "auto") == "auto":
        values["tokens"]["kind"] = model.tokens[0] if model.tokens else task.tokens
    if model.tokens and values["tokens"]["kind"] not in model.tokens:
        itself = " and cuts them itself" if len(model.tokens) == 1 else ""
        raise InputError(
            f"tokens.kind={values['tokens']['kind']} is not for this model: it reads {' or '.join(model.tokens)} "
            f"tokens{itself}. Leave it out."
        )
    label = str(values["data"].get("label", "class"))
    if label not in model.labels and label in typing.get_args(Label):
        learns = "one class a row" if task.shape.labelled else task.name
        raise InputError(f"data.label={label} is not for this model: it learns {learns}. " + _FOR_LABELS[label])
    metric = str(values["data"].get("metric", "auto"))
    can = task.metrics_of(label)
    if metric in typing.get_args(Metric) and metric not in ("auto", *can):
        expected = f"Expected one of {', '.join(can)}." if can else "Leave it out."
        raise InputError(
            f"data.metric={metric} is not for this model: those of {task.name} are ranked by "
            f"{NAMES.get(task.figure, task.figure)}. {expected}"
        )
    if str(values["tokens"].get("lowercase", "false")).lower() == "true" and values["tokens"]["kind"] != "wordpiece":
        kind = values["tokens"]["kind"]
        raise InputError(f"tokens.lowercase=true is for tokens.kind=wordpiece, and these are {kind}. Leave it out.")
    task.defaults(values, model)


def _settled_batches(config: Any, task: Task) -> Any:
    """Fill in the task's defaults of [batches], and refuse settings that the task does not support."""
    size = config.size or task.rows
    if config.accumulate > size:
        raise ValueError(f"accumulate={config.accumulate} splits a batch of {size} rows into nothing")
    task.settle_batches(config)
    return dataclasses.replace(config, size=size, length=config.length or task.length)


def _section_class(section: str, model: type[Model]) -> Any:
    if section == "model":
        return model.Config
    if section == "train" and issubclass(model, Counted):
        return model.Train
    return import_module(OWNERS[section]).Config


def hints_of(cls: Any) -> dict[str, Any]:
    """Return the type of every field of a dataclass."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def make(cls: Any, values: Mapping[str, Any], section: str) -> Any:
    """Make a config from values, or raise an InputError that names the key."""
    hints = hints_of(cls)
    for key in values:
        if key not in hints:
            groups = [name for name, hint in hints.items() if is_dataclass(hint) and key in hints_of(hint)]
            other = [f"{section}.{name}.{key}" for name in groups]  # the same key inside a group
            other += [f"{name}.{key}" for name in shared_sections_with(key) if name != section]
            raise _no_key(f"{section}.{key}", next(iter(other), ""), hints)
    converted = {key: _convert(hints[key], value, f"{section}.{key}") for key, value in values.items()}
    if issubclass(cls, ModelConfig):
        _check_most(cls, converted)
    try:
        return cls(**converted)
    except ValueError as error:
        raise InputError(_impossible(str(error).rstrip("."), values, section)) from None


def _check_most(cls: type[ModelConfig], values: Mapping[str, Any]) -> None:
    """Refuse whole numbers of [model] that are too large to be meant, before anything is built of them."""
    for key, value in values.items():
        for number in value if isinstance(value, tuple) else (value,):
            if type(number) is int and number > (most := cls.MOST.get(key, cls.MOST["*"])):
                raise InputError(f"model.{key}={number} is too large: expected {most:,} at the most.")


def _impossible(reason: str, values: Mapping[str, Any], section: str) -> str:
    """Word a config's own error message; add the typed values if it does not show them."""
    typed = [f"{section}.{key}={value}" for key, value in values.items() if isinstance(value, _Text)]
    found = (
        "" if not typed or any(part.partition("=")[2] in reason for part in typed) else f" Found {', '.join(typed)}."
    )
    return f"{'' if reason.startswith(section + '.') else section + ': '}{reason}.{found}"


def _convert(hint: Any, value: Any, key: str) -> Any:
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InputError(f"{key} is a group of keys: give one of them, such as {key}.{_first(hint)}=…")
        return make(hint, value, key)
    for option in typing.get_args(hint) if _is_union(hint) else (hint,):
        fits, converted = _fit(option, value)
        if fits:
            _check_writable(converted, key)
            return converted
    shown = str(value) if isinstance(value, _Text) else repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}…"
    close = nearest(str(value), typing.get_args(hint)) if typing.get_origin(hint) is Literal else ""
    close = close if "Did you mean" in close else ""  # the choices are named already
    limit = " that fits 64 bits" if str(value).lstrip("+-").isdecimal() else ""
    raise InputError(f"{key}={shown} is not {_name(hint)}{limit}.{close}")


def _check_writable(value: Any, key: str) -> None:
    """Refuse text that recipe.toml cannot hold: Python reads a name that is not UTF-8 as halves of surrogate pairs."""
    for text in value if isinstance(value, tuple) else (value,):
        if isinstance(text, str) and not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError(
                f"{key}={visible(text)} is not text in UTF-8, and a recipe cannot hold it. Rename the file, or give "
                "its folder."
            )


def _fit(hint: Any, value: Any) -> tuple[bool, Any]:
    """Return whether a value has the type, and the value; one typed on the command line is converted."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return (True, str(value)) if value in typing.get_args(hint) else (False, None)
    if origin is tuple:
        items = value.split(",") if isinstance(value, _Text) else value
        if not isinstance(items, list | tuple):
            return False, None
        inner = typing.get_args(hint)[0]
        fitted = [_fit(inner, _Text(item) if isinstance(value, _Text) else item) for item in items if item != ""]
        return all(fits for fits, _ in fitted), tuple(item for _, item in fitted)
    if isinstance(value, _Text):
        return _spelt(hint, value)
    if hint is float and type(value) in (int, float):
        fits = abs(value) <= sys.float_info.max
        return fits, float(value) if fits else value
    return type(value) is hint and (hint is not int or abs(value) < 1 << 63), value


def _spelt(hint: Any, text: str) -> tuple[bool, Any]:
    if hint is str:
        return True, str(text)
    if hint is bool:
        return text.lower() in ("true", "false"), text.lower() == "true"
    try:
        value = hint(text)
    except ValueError:
        return False, None
    return abs(value) < (math.inf if hint is float else 1 << 63), value


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _first(cls: Any) -> str:
    return dataclasses.fields(cls)[0].name


def _name(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return "a list of texts" if typing.get_args(hint)[0] is str else "numbers separated by commas"
    if _is_union(hint):
        return " or ".join(_name(option) for option in typing.get_args(hint))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(hint, str(hint))


def budgeted(recipe: Recipe, budget: str, plan: str = "none") -> Recipe:
    """Return the recipe under a budget: 60s and 2min are time, a plain number is steps. `plan`: what a network may
    choose by itself to make use of a time (train.plan)."""
    units = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
    number = budget.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = budget[len(number) :].strip()
    try:
        amount = float(number)
    except ValueError:
        amount = 0.0
    in_steps = unit in ("", "step", "steps")
    if not 0 < amount < math.inf or not (in_steps or unit in units) or (in_steps and amount != int(amount)):
        raise InputError(
            f"--budget {budget} is not understood. Expected seconds such as 60s, 5min, or steps such as 500."
        )
    if not recipe.train.has("steps"):
        if unit in units and recipe.train.has("seconds"):
            return recipe.with_values("train", seconds=amount * units[unit])
        return recipe  # a counted model reads its text once, whatever the budget
    if unit in units:
        plan = plan if recipe.train.plan != "none" else "none"
        return recipe.with_values("train", seconds=amount * units[unit], steps=0, epochs=0.0, plan=plan)
    return recipe.with_values("train", steps=int(amount), seconds=0.0, epochs=0.0)


def to_toml(recipe: Recipe) -> str:
    """Write recipe.toml: every key with its value and its meaning."""
    lines = [f"kind = {_toml(recipe.kind)}", f"name = {_toml(recipe.name)}"]
    for section in SECTIONS:
        docs = {f.name: f.doc for f in section_fields(section, recipe.kind)}
        lines += ["", f"[{section}]"]
        groups = []
        for f in dataclasses.fields(vars(recipe)[section]):
            value = vars(vars(recipe)[section])[f.name]
            if is_dataclass(value):
                groups.append((f.name, value))
            else:
                lines.append(f"{f.name} = {_toml(value)}" + (f"  # {docs[f.name]}" if docs.get(f.name) else ""))
        for name, group in groups:
            lines += ["", f"[{section}.{name}]"]
            lines += [f"{key} = {_toml(vars(group)[key])}  # {doc}" for key, doc in group_docs(group).items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)
