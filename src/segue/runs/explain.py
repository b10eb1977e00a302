"""What a model is: the head of its file, every key of its recipe, and what its class lets us reckon before training.

A table is chosen by what the class derives from, so that a new kind needs no edit here.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from segue.errors import InputError
from segue.look.inside.view import View
from segue.look.terminal import print_equations, print_keys, print_lines, print_sections, print_view
from segue.models import kinds, source_file
from segue.models.base import Counted, LanguageModel, NgramCounts, Sizes
from segue.recipe import RECIPES, SECTIONS, group_docs, load_recipe, read_recipe, recipe_names, section_fields
from segue.runs.folder import check_run, read_json, write_atomic
from segue.runs.resume import Settings, setting_lines


def explain(model: str, settings: Settings = (), trust: bool = False, files: Sequence[tuple[str, str]] = ()) -> None:
    """Print what a kind, a recipe or a run is; of a run that counted n-grams, its numbers in the equations.

    `files` are the picture's forms and places, such as ("svg", "sizes.svg"): then it is written there, and nothing is
    printed.
    """
    settings = setting_lines(settings)
    if Path(model).is_dir() and model not in (*kinds(), *recipe_names()):
        recipe = _recipe_of_run(Path(model), settings, trust)
        if issubclass(recipe.model_class, NgramCounts):
            from segue.runs.run import load

            return print_equations(load(model, trust=trust))
    else:
        recipe = load_recipe(model, settings, trust=trust)
    shown = _picture(recipe)
    if files:
        return _write(shown, model, files)
    tree = ast.parse(source_file(recipe.kind).read_text(encoding="utf-8"))
    print_lines((ast.get_docstring(tree) or "").split("\n"))
    # [decode] is for models that write text.
    sections = [name for name in SECTIONS if name != "decode" or issubclass(recipe.model_class, LanguageModel)]
    print_keys([(section, list(_keys(recipe, section))) for section in sections])
    print_sections(_tables(recipe, Path(model) / "config.json"))
    if shown is not None:
        print_lines([""])
        print_view(shown)


def _picture(recipe: Any) -> View | None:
    """The picture beside a model's tables: of a published size of gpt, the large language models of the lectures."""
    if issubclass(recipe.model_class, Counted):
        return None
    from segue.look.explain.llms import picture
    from segue.models.gpt import Gpt

    return picture() if isinstance(recipe.model, Gpt.Config) and recipe.model.size != "own" else None


def _write(shown: View | None, model: str, files: Sequence[tuple[str, str]]) -> None:
    if shown is None:
        raise InputError(
            f"There is no picture to explain {model}; there is one of gpt with model.size=gpt2, gpt3-175b …"
        )
    for form, path in files:
        write_atomic(Path(path), shown.html() if form == "html" else shown.svg())


def recipe_heads() -> list[tuple[str, str]]:
    """Every shipped recipe with the comment at its head."""
    found = []
    for name in recipe_names():
        first = (RECIPES / f"{name}.toml").read_text(encoding="utf-8").split("\n")[0]
        found.append((name, first.removeprefix("#").strip()))
    return found


def _recipe_of_run(run: Path, settings: list[str], trust: bool) -> Any:
    if settings:
        raise InputError(f"The run in {run} has its settings already; {settings[0]} cannot change them. Leave it out.")
    check_run(run)
    return read_recipe(run / "recipe.toml", trust)


def _keys(recipe: Any, section: str) -> Iterator[tuple[str, str, str]]:
    """Every key of a section with its value and its doc."""
    values = dict(vars(vars(recipe)[section]))
    for field in section_fields(section, recipe.kind):
        value = values[field.name]
        if dataclasses.is_dataclass(value):
            for inner, doc in group_docs(value).items():
                yield f"{section}.{field.name}.{inner}", str(vars(value)[inner]), doc
        else:
            yield f"{section}.{field.name}", str(value), field.doc


def _tables(recipe: Any, known: Path) -> list[Any]:
    """What a network costs, or its shapes: for a run (`known` is its config.json) with its own tokens and classes, else
    with as many as one may expect."""
    cls = recipe.model_class
    if issubclass(cls, Counted):
        return []
    from segue.look.explain.costs import explained, vocabulary
    from segue.look.explain.shapes import shapes
    from segue.models.neural_classifier import NeuralClassifier

    size, why = vocabulary(recipe.tokens, recipe.model)
    sizes = Sizes(size, classes=2)
    if known.exists():
        sizes, why = Sizes(**read_json(known)["sizes"]), "the run's own"
    if issubclass(cls, LanguageModel) and "source" not in cls.inputs:
        batches = recipe.batches
        found = explained(cls, recipe.model, recipe.train, sizes.vocab_size, why, batches.size, batches.length)
        return [*found, *_published(recipe.model)]
    return [shapes(cls, recipe.model, sizes, words=20)] if issubclass(cls, NeuralClassifier) else []


def _published(config: Any) -> list[Any]:
    """What is known of published models, beside a size of gpt that is one of them."""
    from segue.look.explain.llms import sections
    from segue.models.gpt import Gpt

    return sections(config.size) if isinstance(config, Gpt.Config) and config.size != "own" else []
