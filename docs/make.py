"""Write what the source says already: docs/recipes.md, the tree in docs/house.md, and the map in README.md.

    make docs

Every key of a recipe has its one-line doc in the source, and every source file begins with a sentence. Tests say
whether the pages are up to date.
"""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal

from segue import models, recipe
from segue.models.keys import fields_of

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "segue"
SHARED = ("data", "tokens", "batches", "train", "decode")
BEGIN, END = "<!-- made by `make docs`: begin -->\n", "<!-- end -->\n"
FOLDERS = {
    "output": "what reaches a reader: the standard streams, visible control characters, files of pictures and sound",
    "data": "files and corpora -> examples, divided into training, validation and test",
    "tokens": "strings <-> ids",
    "batches": "ids -> batches",
    "ngrams": "counts of n-grams, and Kneser-Ney smoothing",
    "linear": "linear classifiers over n-grams, without torch",
    "word_vectors": "the loops that learn word2vec's vectors",
    "layers": "what networks are made of: recurrent cells, attention, losses",
    "models": "one file, one model: the file's name is its kind",
    "training": "the training loop, once for all models",
    "inference": "scoring, statistics, decoding",
    "look": "what a model does inside: pages, pictures, explanations",
    "tasks": "one file, one task: what its data looks like, and how it is judged",
    "runs": "from a recipe to a run folder, and from run folders to comparisons",
    "interop": "formats of other toolkits, out and in",
    "serve": "the playground and the HTTP API",
    "recipes": "shipped recipes: kind/name.toml, claims/name.toml",
    "suites": "shipped suites of tasks: GLUE",
}
"""The folders of the source in the order of their imports: a folder imports only from those above it."""


# recipes.md

HEAD = """# All keys of a recipe

This page is made from the source by `make docs`; `segue explain KIND` prints the same for one kind of model.

A recipe is a TOML file with six sections: [data], [tokens], [batches], [model], [train], [decode]. Every key has a
default. On the command line a key is set as `section.key=value`; a list has commas between its items. An unknown key
is an error, and the message names the nearest key that exists. `recipe.toml` in a run folder has every key with its
value. Shipped recipes (`segue recipes`) change some defaults of a kind; they are in `src/segue/recipes/KIND/NAME.toml`.

```sh
segue recipes
```

```sh slow
segue explain gpt model.size=gpt3-175b
printf 'kind = "ngram"\\n\\n[model]\\norder = 3\\n' > mine.toml
segue train mine.toml pydoc --out runs/mine data.validation=0.02
```

`explain` also says what a `gpt` or `rnn_lm` costs without building it: its parameters (for the shapes of GPT, GPT-2
and GPT-3 beside the rounded figures of the papers), operations a token, memory to train and to generate, and how they
grow with the length of the text.
"""


def recipes_page() -> str:
    """docs/recipes.md: the sections that all kinds share, then [model] of every kind, and [train] where it differs."""
    parts = [HEAD]
    network = recipe.load_recipe("rnn_lm")
    for section in SHARED:
        parts.append(f"## [{section}]\n\n" + table(section, type(getattr(network, section))))
    for kind in models.kinds():
        own = recipe.load_recipe(kind)
        parts.append(f"## {kind}\n\n{_first_sentence(models.source_file(kind))}\n\n" + table("model", type(own.model)))
        if type(own.train) is not type(network.train):
            parts.append(f"[train] of `{kind}`:\n\n" + table("train", type(own.train)))
    return "\n".join(parts)


def table(section: str, cls: type) -> str:
    rows = [f"| `{key}` | {kind} | {default} | {doc} |" for key, kind, default, doc in keys(section, cls)]
    if not rows:
        return "This model has no keys of its own.\n"
    return "\n".join(["| key | values | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def keys(prefix: str, cls: type) -> Iterator[tuple[str, str, str, str]]:
    """(key, values, default, doc) of every field; a field that is a group of keys gives the keys inside it."""
    hints = typing.get_type_hints(cls)
    for field in fields_of(Path(inspect.getfile(cls)), cls.__name__):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from keys(f"{prefix}.{field.name}", typing.cast(type, hint))
        else:
            default = "" if field.default in ("''", "()", "") else f"`{field.default}`".replace("'", "")
            default = default.lower() if hint is bool else default
            yield f"{prefix}.{field.name}", values(hint), default, field.doc.replace("|", "\\|")


def values(hint: Any) -> str:
    """A type in words."""
    names = {int: "whole number", float: "number", bool: "true, false", str: "text"}
    if typing.get_origin(hint) is Literal:
        return ", ".join(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"list: {values(typing.get_args(hint)[0])}"
    return names.get(hint) or " or ".join(values(option) for option in typing.get_args(hint))


# README.md and house.md


def readme_page(text: str) -> str:
    """README.md with its map made anew: a line for each folder."""
    lines = [f"  {folder + '/':16}{doc}" for folder, doc in FOLDERS.items() if (SOURCE / folder).is_dir()]
    head, rest = text.split("src/segue/\n", 1)
    return head + "\n".join(["src/segue/", *lines, rest[rest.index("tests/  ") :]])


def house_page(text: str) -> str:
    """docs/house.md with its tree made anew."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + tree() + END + rest.split(END)[1]


def tree() -> str:
    """Every source file with its first sentence, folder by folder, in the order of imports."""
    found = {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if path.parent != SOURCE}
    if unknown := found - set(FOLDERS):
        raise SystemExit(f"docs/make.py has no line for {', '.join(sorted(unknown))}: add it to FOLDERS.")
    parts = ["### The root\n", *_lines(SOURCE.glob("*.py"))]
    for folder, doc in FOLDERS.items():
        if (SOURCE / folder).is_dir():
            parts += [f"\n### {folder}/\n", f"{doc[0].upper()}{doc[1:]}.\n", *_lines((SOURCE / folder).rglob("*.py"))]
    return "\n".join(parts) + "\n"


def _lines(paths: Iterator[Path]) -> Iterator[str]:
    for path in sorted(paths):
        if sentence := _first_sentence(path):
            yield f"- `{path.relative_to(SOURCE).as_posix()}`: {sentence}"


def _first_sentence(path: Path) -> str:
    """The first sentence of a file's docstring, on one line."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = " ".join(doc.split("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z])", first, maxsplit=1)[0]


if __name__ == "__main__":
    (DOCS / "recipes.md").write_text(recipes_page(), encoding="utf-8")
    for path, page in ((DOCS / "house.md", house_page), (DOCS.parent / "README.md", readme_page)):
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
