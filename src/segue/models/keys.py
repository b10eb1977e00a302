"""The keys of a kind's recipe with their docs, read from the source: nothing is imported, so that torch is not loaded.

A section of a recipe is the `Config` dataclass of the part that reads it; a field of it may be a group of keys, such as
train.optimizer, which is a dataclass of its own.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from segue import models

SECTIONS = ("data", "tokens", "batches", "model", "train", "decode")
OWNERS = {
    "data": "segue.data.config",
    "tokens": "segue.tokens.tokenizer",
    "batches": "segue.batches.batches",
    "train": "segue.training.trainer",
    "decode": "segue.inference.decode_settings",
}
"""The module with the `Config` of each section that all kinds share; [model], and [train] of counted models, are the
kind's own."""


class Field(NamedTuple):
    """One field of a config class, as the source has it."""

    name: str
    type: str
    default: str
    doc: str


@cache
def keys_of(kind: str) -> tuple[str, ...]:
    """List every key of a kind's recipe, such as train.optimizer.rate."""
    return tuple(key for section in SECTIONS for key in _keys(section, _source(section, kind), _class(section, kind)))


def _keys(prefix: str, source: Path, class_name: str) -> Iterator[str]:
    for field in fields_of(source, class_name):
        group = _group(source, field.type)
        if group is None:
            yield f"{prefix}.{field.name}"
        else:
            yield from _keys(f"{prefix}.{field.name}", *group)


def _group(source: Path, annotation: str) -> tuple[Path, str] | None:
    """Find the dataclass that a field's annotation names, in the same file or in an imported one; None: no group."""
    if annotation in ("bool", "float", "int", "str"):
        return None
    module, _, name = annotation.rpartition(".")
    text = source.read_text(encoding="utf-8")
    if not module and name in _classes(text):
        return source, name
    place = _imports(text).get(module or name)
    if place is None:
        return None
    path = _source_of(place if module else place.rpartition(".")[0])
    return (path, name) if name in _classes(path.read_text(encoding="utf-8")) else None


@lru_cache(maxsize=64)
def _imports(source: str) -> dict[str, str]:
    """The names that a source imports from this package, each with where it is from: segue.data.config.Label."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("segue.")
        for alias in node.names
    }


def section_fields(section: str, kind: str) -> list[Field]:
    """Read the fields of a section of a kind's recipe."""
    return fields_of(_source(section, kind), _class(section, kind))


def shared_sections_with(key: str) -> list[str]:
    """List the sections that have a key of this name in every kind's recipe, or in that of every network."""
    return [section for section, owner in OWNERS.items() if key in {f.name for f in fields_of(_source_of(owner))}]


def _source(section: str, kind: str) -> Path:
    own = section == "model" or _class(section, kind) == "Train"
    return models.source_file(kind) if own else _source_of(OWNERS[section])


def _class(section: str, kind: str) -> str:
    """The name of a section's class: a counted model has its own [train], by the name Train."""
    own = section == "train" and "Train" in _classes(models.source_file(kind).read_text(encoding="utf-8"))
    return "Train" if own else "Config"


def fields_of(path: Path, class_name: str = "Config") -> list[Field]:
    """Read the fields of a config class from a source file, with their docs, without importing it."""
    found = _classes(path.read_text(encoding="utf-8")).get(class_name)
    fields = []
    for node, doc in zip(found.body, [*found.body[1:], None], strict=True) if found else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = ""
            if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                text = str(doc.value.value)
            default = ast.unparse(node.value) if node.value is not None else ""
            fields.append(Field(node.target.id, ast.unparse(node.annotation), default, text))
    return fields


def group_docs(group: Any) -> dict[str, str]:
    """Read the keys of a group inside a section, each with its doc."""
    return {f.name: f.doc for f in fields_of(Path(inspect.getfile(type(group))), type(group).__name__)}


@lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module:
    """Parse a source text. Cached: parsing is slow."""
    return ast.parse(source)


@lru_cache(maxsize=64)
def _classes(source: str) -> dict[str, ast.ClassDef]:
    """Find the classes of a source text, by name; the first of a name counts."""
    nodes = [node for node in ast.walk(_parsed(source)) if isinstance(node, ast.ClassDef)]
    return {node.name: node for node in reversed(nodes)}


def _source_of(module: str) -> Path:
    return Path(models.__file__).parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py")
