"""What a model is: the head of its file, every key of its recipe, and what its class lets us reckon before training.

A table is chosen by what the class derives from, so that a new kind needs no edit here.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from segue import tasks
from segue.batches.codec import BodySpec
from segue.batches.frames import frame_width
from segue.data.media import MEDIA
from segue.errors import InputError
from segue.inference.decode_settings import OF_SOURCES
from segue.look.inside.view import View
from segue.look.page.weight_change import weight_change_view
from segue.look.terminal import print_equations, print_head, print_keys, print_lines, print_sections, print_view
from segue.models import kinds, source_file, task_of
from segue.models.base import Counted, EncoderDecoder, LanguageModel, MaskedModel, NgramCounts, Sizes
from segue.models.keys import SECTIONS, group_docs, section_fields
from segue.models.names import RECIPES, meanings, recipe_names
from segue.recipe import Recipe, hints_of, load_recipe, read_recipe
from segue.runs.folder import check_run, read_json, write_atomic
from segue.runs.pretrained import pretraining
from segue.runs.resume import Settings, setting_lines, spelt


def explain(model: str, settings: Settings = (), trust: bool = False, files: Sequence[tuple[str, str]] = ()) -> None:
    """Print what a kind, a recipe or a run is; of a run that counted n-grams, its numbers in the equations.

    `files` are the picture's forms and places, such as ("svg", "sizes.svg"): then it is written there, and nothing is
    printed.
    """
    if not Path(model).is_dir() and (meant := meanings(model)[0]) != model:
        print_lines([f"{model}: taking {meant}.", ""])
        model = meant
    settings = setting_lines(settings)
    if Path(model).is_dir() and model not in (*kinds(), *recipe_names()):
        recipe = _recipe_of_run(Path(model), settings, trust)
        if issubclass(recipe.model_class, NgramCounts):
            from segue.runs.run import load

            return print_equations(load(model, trust=trust))
    else:
        recipe = load_recipe(model, settings, trust=trust)
    shown = _picture(recipe, Path(model) / "result.json")
    if files:
        return _write(shown, model, files)
    print_head(_docstring(source_file(recipe.kind)))
    sections = [(section, list(_keys(recipe, section))) for section in SECTIONS]
    print_keys([(section, keys) for section, keys in sections if keys])
    print_sections(_tables(recipe, Path(model) / "config.json"))
    if shown is not None:
        print_lines([""])
        print_view(shown)


def _picture(recipe: Any, result: Path) -> View | None:
    """The picture beside a model's tables: of a published size of gpt, the large language models of the lectures; of a
    run that began from another, where its weights changed."""
    if issubclass(recipe.model_class, Counted):
        return None
    if result.exists() and (found := read_json(result).get("weight_change")):
        return weight_change_view(recipe.name, found)
    from segue.look.explain.llms import picture
    from segue.models.gpt import Gpt

    return picture() if isinstance(recipe.model, Gpt.Config) and recipe.model.size != "own" else None


def _write(shown: View | None, model: str, files: Sequence[tuple[str, str]]) -> None:
    if shown is None:
        raise InputError(
            f"There is no picture to explain {model}; there is one of gpt with model.size=gpt2, gpt3-175b …, and of a "
            "run that began from another."
        )
    for form, path in files:
        write_atomic(Path(path), shown.html() if form == "html" else shown.svg())
        print(f"The picture: {path}", file=sys.stderr)


def _docstring(source: Path) -> str:
    return ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""


def model_heads() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Every task with its first line, and its kinds with theirs, read without importing them."""
    found = []
    for task in tasks.names():
        own = [(kind, _docstring(source_file(kind)).split("\n")[0]) for kind in kinds() if task_of(kind) == task]
        said = _docstring(Path(tasks.__file__).with_name(f"{task}.py")).split("\n")[0]
        found.append((str(task), said.removeprefix(f"{task.capitalize()}: "), own))
    return found


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


def _keys(recipe: Recipe, section: str) -> Iterator[tuple[str, str, str]]:
    """Every key of a section that the model reads, with its value, and its doc and choices."""
    config = vars(recipe)[section]
    docs = {field.name: field.doc for field in section_fields(section, recipe.kind)}
    for name, hint in hints_of(type(config)).items():
        value = vars(config)[name]
        if dataclasses.is_dataclass(hint):
            group, group_hints = group_docs(value), hints_of(hint)
            rows = [(f"{section}.{name}.{k}", vars(value)[k], group_hints[k], doc) for k, doc in group.items()]
        else:
            rows = [(f"{section}.{name}", value, hint, docs[name])]
        yield from (
            (key, spelt(one), doc + _choices(recipe, key, kind)) for key, one, kind, doc in rows if _reads(recipe, key)
        )


def _choices(recipe: Recipe, key: str, hint: Any) -> str:
    """The values that a key may have, by the type that checks them; of some, only those that the model takes."""
    if typing.get_origin(hint) is not Literal:
        return ""
    narrower = {"tokens.kind": recipe.model_class.tokens, "data.label": recipe.model_class.labels}.get(key)
    return "\nChoices: " + ", ".join(narrower or typing.get_args(hint))


_OF_RUNNING_TEXT = ("data.unit", "data.carry", "data.blank_lines", "batches.vary", "batches.noise", "batches.share")
_OF_ROWS = ("batches.tokens", *(f"decode.{key}" for key in OF_SOURCES))


def _reads(recipe: Recipe, key: str) -> bool:
    """Whether a key has a say with this model; every recipe has the same keys, whatever the model reads of them."""
    cls, task, shape = recipe.model_class, recipe.task, recipe.shape
    section, _, name = key.partition(".")
    if key in ("batches.noise", "batches.share") and recipe.data.source in MEDIA:
        return True
    running = [one.running for one in task.goes_on_with(cls)]
    if key in (_OF_ROWS if all(running) else () if any(running) else _OF_RUNNING_TEXT):
        return False
    if key == "data.label":
        return not {"label", "tag"}.isdisjoint(shape.fields)
    if section == "batches" and issubclass(cls, Counted):
        return key == "batches.length" and not shape.running  # rows are cut at it
    if section == "decode":
        return issubclass(cls, LanguageModel) and (not task.decodes or name in task.decodes)
    return True


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
    sizes = Sizes(size, classes=2, marks=cls.marks(recipe.model))
    if width := frame_width(recipe.data):
        sizes = dataclasses.replace(sizes, source=recipe.data.source, frame=width)
    if known.exists():
        sizes, why = Sizes.of(read_json(known)["sizes"]), "the run's own"
    if cls.framed:
        return _heading(recipe, sizes, known)
    if issubclass(cls, LanguageModel) and "source" not in cls.inputs:
        batches = recipe.batches
        found = explained(cls, recipe.model, recipe.train, sizes.vocab_size, why, batches.size, batches.length)
        return [*found, *_published(recipe.model)]
    if issubclass(cls, EncoderDecoder):
        from segue.look.explain import encoder_decoder

        return encoder_decoder.explained(cls, recipe.model, sizes, why)
    if issubclass(cls, MaskedModel):
        from segue.look.explain import masked

        if not known.exists():
            sizes = masked.sizes_of(recipe.model, size)
        return masked.explained(recipe.model, sizes, why, recipe.train, recipe.batches.share, recipe.batches.length)
    return [shapes(cls, recipe.model, sizes, words=20)] if issubclass(cls, NeuralClassifier) else []


def _heading(recipe: Any, sizes: Sizes, known: Path) -> list[Any]:
    """What a head on a body costs: of a run, or of a body that model.body names; nothing where no body is known."""
    from segue.look.explain.heading import explained

    if sizes.body is None and recipe.model.body:
        found = check_run(Path(recipe.model.body))
        body = BodySpec(found["kind"], found["config"], Sizes.of(found["sizes"]))
        sizes = dataclasses.replace(sizes, vocab_size=body.sizes.vocab_size, marks=body.sizes.marks, body=body)
    if sizes.body is None:
        print_lines(["", f"With a body, its parameters too: segue explain {recipe.kind} model.body=runs/bert"])
        return []
    if known.exists():
        seconds = (read_json(known.with_name("result.json")).get("pretrained") or {}).get("seconds")
    else:
        seconds = pretraining(recipe.model.body)["seconds"]
    return explained(recipe.model_class, recipe.model, sizes, seconds)


def _published(config: Any) -> list[Any]:
    """What is known of published models, beside a size of gpt that is one of them; what ELMo added to six tasks."""
    from segue.look.explain import increases
    from segue.look.explain.llms import sections
    from segue.models.elmo import Elmo
    from segue.models.gpt import Gpt

    if isinstance(config, Elmo.Config):
        return increases.sections()
    return sections(config.size) if isinstance(config, Gpt.Config) and config.size != "own" else []
