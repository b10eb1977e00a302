"""The lectures' claims as experiments: variants of one model, a table, a picture, and whether the claim held.

    segue claim residual

A claim that is measured, not trained, is a file beside this one (length.py). Every other is one TOML file, in
recipes/claims/ or your own: a recipe that all variants share, and

    says = "Residuals let deep networks learn."      the claim
    kind = "gpt"                                     the model, or one of its recipes
    seeds = 3                                        how often each variant is trained
    against = "steps"                                the picture: learning curves; or the last figure against a number:
                                                     parameters, characters (of training text), epochs (how often each
                                                     is read), or a key of the recipe such as model.layers
    law = true                                       fit figure = a · number^-b to it
    decides = ["with < without"]                     whose figure must be less than whose; a < b < c is two comparisons;
                                                     a <~ b: a's figure exceeds b's by no more than the margin
    margin = 0.02                                    for a <~ b, in units of the figure
    measure = "length"                               judge parts of each variant (measures.py): 'with, long'
    at = 12                                          where the parts are divided: 12 words of the source
    [variants.without]                               a variant: its name, and what it changes
    model.residual = false

Everything is scored on the same test text. A comparison holds if the test of `segue compare --seeds` says so
(p < 0.05): it counts the chance of the text and that of training. "As good as", a <~ b, holds if the whole 95 %
interval of the difference a - b lies below the margin (a test of non-inferiority: that no difference was found would
not do).
"""

from __future__ import annotations

import math
import re
import shlex
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from segue.data.corpus import Corpus
from segue.errors import InputError, SegueError, nearest
from segue.inference.evaluation import LOWER_IS_BETTER, NAMES, Evaluation
from segue.inference.evaluation import compare as compare_two
from segue.inference.statistics import FEWEST
from segue.look.page.charts import Axes, Line, line_chart
from segue.look.page.curves import Curve
from segue.look.page.report import Entry, write
from segue.look.page.trend import Point, Trend, alone, trend_chart
from segue.models.base import EncoderDecoder
from segue.models.keys import SECTIONS
from segue.models.names import CLAIMS, RECIPES
from segue.recipe import Recipe, budgeted, check_name, load_recipe
from segue.runs import folder as files
from segue.runs.display import ClaimResult
from segue.runs.experiments import length
from segue.runs.experiments.compare import mean_of
from segue.runs.experiments.measures import MEASURES, Measured
from segue.runs.experiments.measures import Curve as MeasuredCurve
from segue.runs.experiments.verdict import shown_p
from segue.runs.gather import curve_of, entry_of, page_of
from segue.runs.resume import Out, Settings, check_inputs, setting_lines
from segue.runs.run import Run
from segue.runs.train import train
from segue.training import device as devices
from segue.training.log import Progress, silent

NUMBERS = {
    "parameters": "parameters",
    "characters": "characters of training text",
    "epochs": "times that each character is read",
}
"""Numbers for the picture's x axis, besides training steps and keys of a recipe."""


@dataclass(frozen=True)
class Claim:
    """One experiment."""

    name: str
    says: str
    kind: str
    variants: dict[str, list[str]]
    """The settings that each variant changes, by its name, as section.key=value."""
    decides: list[tuple[str, str]]
    """Pairs of variants: the figure of the first must be less than that of the second."""
    settings: list[str]
    """The settings that all variants share, as section.key=value."""
    against: str = "steps"
    law: bool = False
    seeds: int = 3
    no_worse: tuple[tuple[str, str], ...] = ()
    """Pairs of variants: the figure of the first must exceed that of the second by no more than the margin."""
    margin: float = 0.0
    measure: str = ""
    """What is judged of each variant, one of MEASURES; "": its figure."""
    at: int = 0
    """Where a measure divides its parts."""

    def part_names(self, variant: str) -> list[str]:
        """What is judged of a variant, by the names that `decides` has."""
        return _part_names(variant, self.measure)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one variant."""

    variant: str
    place: Path
    """The run of its first seed."""
    evaluations: list[Evaluation]
    """The evaluation of each seed; empty if the loss diverged."""
    curve: Curve
    """The means of the validations over the seeds."""
    number: float
    """Its value on the x axis of the picture; 0 if that shows the steps."""
    seconds: float
    """Mean seconds of training one seed."""
    learns: bool = True
    """Whether there is chance in training, so that another seed gives another figure."""
    learnt: bool = True
    """Whether it knows clearly more than how frequent each character or label is; a claim of variants of which none
    does is not decided, however they differ."""
    lines: Mapping[str, MeasuredCurve] = field(default_factory=dict)
    """The lines of a measure's picture, means over the seeds."""

    @property
    def diverged(self) -> bool:
        return not self.evaluations

    @property
    def mean(self) -> Evaluation:
        return mean_of(self.evaluations)

    def figures(self, main: str) -> list[float]:
        """That of each seed; one that diverged has the worst there is."""
        worst = math.inf if main in LOWER_IS_BETTER else -math.inf
        return [float(evaluation.result[main]) for evaluation in self.evaluations] or [worst]


# Reading a claim


MEASURED = {"length": length}
"""Claims that code measures, by the file beside this one: its SAYS, and its `run`."""


def trained_names() -> list[str]:
    """The shipped claims that train variants."""
    return sorted(path.stem for path in (RECIPES / CLAIMS).glob("*.toml"))


def claim_names() -> list[str]:
    """All claims that are shipped."""
    return sorted([*trained_names(), *MEASURED])


def says(name: str) -> str:
    """The sentence of a shipped claim."""
    return str(MEASURED[name].SAYS) if name in MEASURED else read_claim(name).says


def read_claim(what: str) -> Claim:
    """A shipped claim by its name, or one from a TOML file."""
    path = Path(what) if what.endswith(".toml") else RECIPES / CLAIMS / f"{what}.toml"
    if not path.exists():
        close = "" if what.endswith(".toml") else nearest(what, claim_names())
        raise InputError(
            f"There is no claim '{what}'.{close} `segue claim` lists them; a file of your own ends in .toml."
        )
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}. Mend that line.") from None
    return _checked(path, values)


NO_WORSE = "<~"
_KEYS: dict[str, type] = {"says": str, "kind": str, "variants": dict, "decides": list}
_MORE: dict[str, type] = {"seeds": int, "against": str, "law": bool, "margin": float, "measure": str, "at": int}


def _checked(path: Path, values: dict[str, Any]) -> Claim:
    """Strict, as recipes are: what is unknown, missing or of the wrong type is refused by its name."""
    known = _KEYS | _MORE | dict.fromkeys(SECTIONS, dict)
    for key, value in values.items():
        if key not in known:
            raise InputError(f"{path}: there is no key '{key}' in a claim.{nearest(key, known)}")
        if type(value) is not known[key]:
            raise InputError(f"{path}: {key} is {value!r}. Expected {_TYPES[known[key]]}.")
    for key in _KEYS:
        if key not in values:
            raise InputError(
                f"{path} has no '{key}'. Expected {', '.join(_KEYS)}; `segue claim` shows what a claim is."
            )
    if values.get("seeds", 1) < 1:
        raise InputError(f"{path}: seeds = {values['seeds']}. Expected 1 or more.")
    variants = {name: _overrides(changes) for name, changes in values["variants"].items()}
    measure = _checked_measure(path, values)
    if len(variants) < 2 and not (measure and variants):
        raise InputError(f"{path} has {len(variants)} variants. Expected two or more, each as [variants.NAME].")
    judged = [name for variant in variants for name in _part_names(variant, measure)]
    places: dict[str, str] = {}
    for name in variants:
        check_name(f"{path.stem}/{name}", f"{path}: a variant of [variants],")
        if (other := places.setdefault(_slug(name).casefold(), name)) != name:
            raise InputError(
                f"{path}: '{other}' and '{name}' would have one run folder. Give one of them another name."
            )
    nearly = [said for said in values["decides"] if NO_WORSE in str(said)]
    if bool(nearly) != (values.get("margin", 0.0) > 0):
        raise InputError(
            f"{path}: margin = {values.get('margin', 'nothing')}, and {len(nearly)} comparisons in decides are of the "
            f"form 'a <~ b'. Expected a margin above 0 where there is such a comparison, and none elsewhere."
        )
    if not values["decides"]:
        raise InputError(f"{path}: decides is empty. Expected one comparison or more, such as 'with < without'.")
    return Claim(
        name=path.stem,
        says=" ".join(values["says"].split()),
        kind=values["kind"],
        variants=variants,
        decides=_pairs(path, [said for said in values["decides"] if said not in nearly], judged, "<"),
        no_worse=tuple(_pairs(path, nearly, judged, NO_WORSE)),
        settings=_overrides({key: values[key] for key in SECTIONS if key in values}),
        **{key: values[key] for key in _MORE if key in values},
    )


def _checked_measure(path: Path, values: Mapping[str, Any]) -> str:
    measure = str(values.get("measure", ""))
    if measure and measure not in MEASURES:
        raise InputError(f"{path}: there is no measure '{measure}'.{nearest(measure, MEASURES)}")
    if bool(measure) != (values.get("at", 0) > 0):
        raise InputError(
            f"{path}: measure = '{measure}', at = {values.get('at', 'nothing')}. Expected both, at as 1 or more, or "
            "neither."
        )
    return measure


def _part_names(variant: str, measure: str) -> list[str]:
    return [f"{variant}, {part}" for part in MEASURES[measure].parts] if measure else [variant]


_TYPES = {str: "text", dict: "a table", list: "a list of texts", int: "a whole number", bool: "true or false"}
_TYPES |= {float: "a number with a point, such as 0.02"}


def _overrides(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Nested tables as section.key=value, which is how a recipe takes them."""
    found = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _overrides(value, f"{prefix}{key}.")
        else:
            spelt = str(value).lower() if isinstance(value, bool) else value
            spelt = ",".join(map(str, value)) if isinstance(value, list) else spelt
            found.append(f"{prefix}{key}={spelt}")
    return found


def _pairs(path: Path, decides: Sequence[Any], variants: Sequence[str], sign: str) -> list[tuple[str, str]]:
    pairs = []
    for said in decides:
        names = [name.strip() for name in str(said).split(sign)]
        if len(names) < 2:
            raise InputError(
                f"{path}: decides has '{said}'. Expected variants with < between them, such as 'a < b', or with <~."
            )
        for name in names:
            if name not in variants:
                raise InputError(
                    f"{path}: decides has '{said}', but no variant is called '{name}'.{nearest(name, variants)}"
                )
        pairs += list(pairwise(names))
    return pairs


# Running a claim


def run_claim(
    what: str,
    data: str | None = None,
    settings: Settings = (),
    budget: str | int = "",
    out: Out = None,
    progress: Progress = silent,
    trust: bool = False,
    threads: int = 0,
) -> ClaimResult:
    """Train the variants that are not trained yet, write the page and the picture, and return the table."""
    if what in MEASURED:
        if data or settings or budget or threads:
            raise InputError(
                f"`segue claim {what}` is measured on random tokens, on a CPU with one thread: expected no data, "
                "settings, --budget or --threads."
            )
        return ClaimResult(MEASURED[what].run(Path(out) if out else None, progress))
    begun, claim, lines = time.perf_counter(), read_claim(what), setting_lines(settings)
    recipes = {name: _recipe(claim, name, data, lines, str(budget), trust) for name in claim.variants}
    _check_same_text(recipes)
    _check_measure(claim, recipes)
    if claim.against != "steps" and claim.against not in NUMBERS:
        for recipe in recipes.values():
            _key(claim.against, recipe)
    out = Path(out) if out else files.free_name(f"claim-{claim.name}")
    _check_place(out)
    for recipe in recipes.values():
        check_inputs(recipe, trust)
    words = [what, *([data] if data else []), *lines, *(["--budget", str(budget)] if budget else []), "--out", str(out)]
    again = shlex.join(["segue", "claim", *words, *(["--threads", str(threads)] if threads else [])])
    with files.held(out, files.missing(out), again), devices.using_threads(threads):
        outcomes = [
            outcome for name in claim.variants for outcome in _outcomes(claim, recipes[name], out, progress, trust)
        ]
    if all(outcome.diverged for outcome in outcomes):
        raise SegueError(
            f"No variant of {claim.name} could be trained: the loss was soon no number. Try a smaller rate."
        )
    result = _report(claim, outcomes, next(iter(recipes.values())), out)
    return ClaimResult(result, wall_seconds=time.perf_counter() - begun)


def _recipe(claim: Claim, variant: str, data: str | None, settings: Sequence[str], budget: str, trust: bool) -> Recipe:
    own = [f"data.path={data}"] if data else []
    recipe = load_recipe(claim.kind, [*claim.settings, *claim.variants[variant], *own, *settings], trust=trust)
    recipe = replace(recipe, name=f"{claim.name}/{variant}")
    return budgeted(recipe, budget) if budget else recipe


def _check_same_text(recipes: Mapping[str, Recipe]) -> None:
    """Check that all variants are scored on the same text; they may train on less of it (data.validation)."""
    first, *others = recipes.items()
    for name, recipe in others:
        for key, value in asdict(first[1].data).items():
            theirs = asdict(recipe.data)[key]
            if key != "validation" and theirs != value:
                raise InputError(
                    f"'{first[0]}' reads the data with data.{key}={value}, '{name}' with data.{key}={theirs}. Expected "
                    f"the same text for all; only data.validation may differ, which leaves less to train on."
                )
    if not first[1].data.test:
        raise InputError("Nothing is held out to score the variants on. Give data.test a path or a share, such as 0.1.")


def _check_measure(claim: Claim, recipes: Mapping[str, Recipe]) -> None:
    """Refuse to measure what reads no source."""
    for name, recipe in recipes.items():
        if claim.measure and not issubclass(recipe.model_class, EncoderDecoder):
            raise InputError(
                f"measure = '{claim.measure}' is for encoder-decoders, and '{name}' is a {recipe.kind}. Leave it out."
            )


def _check_place(out: Path) -> None:
    """Refuse a folder that holds anything but the runs of a claim."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file. Choose another --out.")
    folders = [path for path in out.iterdir() if path.is_dir()] if out.exists() else []
    strange = [f for f in folders if any(f.glob("[!.]*")) and not (f / "recipe.toml").exists()]
    if strange or (out / "recipe.toml").exists():
        raise InputError(f"{out} exists and holds something else than a claim's runs. Choose another --out.")


def _outcomes(claim: Claim, recipe: Recipe, out: Path, progress: Progress, trust: bool) -> list[Outcome]:
    """Train a variant with every seed; one outcome, or one for each part that is judged of it."""
    variant = recipe.name.removeprefix(f"{claim.name}/")
    corpus = Corpus(recipe.data, recipe.shape, progress)
    measured, places = [], []
    learns = recipe.train.has("seed")
    for seed in range(claim.seeds if learns else 1):
        one = recipe.with_values("train", seed=recipe.train.seed + seed) if learns else recipe
        places.append(out / (_slug(variant) + (f"-seed{seed}" if claim.seeds > 1 and learns else "")))
        measured.append(_trained(claim, one, places[-1], corpus, progress, trust))
    results = [files.read_json(place / "result.json") for place in places if (place / "result.json").exists()]
    whole = [one for one in measured if one is not None]
    whole = whole if len(whole) == len(measured) else []
    curve = _mean_curve([curve_of(place, recipe.task.curve) for place in places])
    number = _number(claim.against, recipe, corpus, results[0] if results else {})
    seconds = float(np.mean([result["train_seconds"] for result in results])) if results else 0.0
    lines = {f"{variant}, {name}" if name else variant: line for name, line in _mean_lines(whole).items()}
    outcomes = []
    parts = MEASURES[claim.measure].parts if claim.measure else ("",)
    for place, (part, name) in enumerate(zip(parts, claim.part_names(variant), strict=True)):
        evaluations = [one.parts[part] for one in whole]
        chance = recipe.task.chance(corpus.examples("test"))
        learnt = not learns or _has_learnt(evaluations, recipe.task.figure, chance)
        drawn = lines if not place else {}
        outcomes.append(Outcome(name, places[0], evaluations, curve, number, seconds, learns, learnt, drawn))
    return outcomes


def _mean_lines(seeds: Sequence[Measured]) -> dict[str, MeasuredCurve]:
    """Average the lines of a picture over the seeds; their points are those of the data."""
    names = seeds[0].lines if seeds else {}
    return {
        name: (seeds[0].lines[name][0], np.mean([seed.lines[name][1] for seed in seeds], 0).tolist()) for name in names
    }


LEARNT, LEARNT_OF_ALL = 0.2, 0.5
"""A network has learnt something if it has come this share of the way from chance to a perfect figure, or, where the
best possible figure is known, this share of the way to that."""


def _has_learnt(evaluations: Sequence[Evaluation], main: str, chance: float | None) -> bool:
    if not evaluations or chance is None:
        return bool(evaluations)
    result = mean_of(evaluations).result
    known = result.get("best_possible")
    best = known if known is not None else 0.0 if main in LOWER_IS_BETTER else 1.0
    least = LEARNT if known is None else LEARNT_OF_ALL
    return bool(chance == best or (chance - float(result[main])) / (chance - best) >= least)


def _slug(variant: str) -> str:
    return re.sub(r"[^\w.]+", "-", variant).strip("-.") or "variant"


def _trained(
    claim: Claim, recipe: Recipe, place: Path, corpus: Corpus, progress: Progress, trust: bool
) -> Measured | None:
    """Train a variant unless it is finished, and measure it on the test text; None if the loss diverged."""
    try:
        begun = (place / "recipe.toml").exists()
        run = train(recipe, out=place, resume=begun, progress=progress, trust=trust)
    except InputError:
        raise
    except SegueError as error:
        progress(str(error), 0.0)
        return None
    whole = run.evaluation or run.evaluate_split(corpus, "test", progress)
    if not claim.measure:
        return Measured({"": whole}, {})
    return MEASURES[claim.measure].of(run.opened, whole, list(corpus.examples("test")), claim.at)


def _number(against: str, recipe: Recipe, corpus: Corpus, result: Mapping[str, Any]) -> float:
    """Return a variant's value on the x axis of the picture."""
    if against == "steps":
        return 0.0
    if against == "characters":
        return float(sum(len(example.text) for example in corpus.examples("train")))
    return float(result.get(against, math.nan)) if against in NUMBERS else _key(against, recipe)


def _key(against: str, recipe: Recipe) -> float:
    """Return the value of a key of the recipe; it must be a number above 0, for a logarithmic axis."""
    value: Any = asdict(recipe)
    for part in against.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        known = ["steps", *NUMBERS]
        raise InputError(
            f"against = '{against}' is no number above 0 in the recipe of {recipe.name}: found {value}. Expected "
            f"{', '.join(known)}, or a key such as model.layers.{nearest(against, known)}"
        )
    return float(value)


def _mean_curve(curves: Sequence[Curve]) -> Curve:
    """Average learning curves over the validations that all seeds have."""
    points = min(len(curve.values) for curve in curves)
    seconds, values = (
        np.mean([getattr(curve, name)[:points] for curve in curves], 0).tolist() for name in ("seconds", "values")
    )
    return replace(curves[0], seconds=seconds, steps=curves[0].steps[:points], values=values)


# Judging and showing a claim


def _report(claim: Claim, outcomes: Sequence[Outcome], recipe: Recipe, out: Path) -> dict[str, Any]:
    main = next((outcome.mean.figure for outcome in outcomes if not outcome.diverged), recipe.task.figure)
    metric = NAMES.get(main, main)
    held, comparisons = _decided(claim, outcomes, main)
    law = _law(outcomes, main) if claim.law else None
    verdict = _verdict(held, comparisons)
    details = [
        *(_compared(one, metric, main in LOWER_IS_BETTER) for one in comparisons),
        *([_said(law, claim, metric)] if law else []),
    ]
    ranked = sorted((o for o in outcomes if not o.diverged), key=lambda o: _rank(o, main))
    entries = [_entry(outcome) for outcome in ranked]
    trend = _trend(claim, outcomes, main, metric, law) if claim.against != "steps" else None
    page = page_of(
        f"{claim.name}: a claim and its variants",
        [*_facts(claim, recipe, ranked[0]), *details, verdict],
        entries,
        None,
        ranked[0].mean,
    )
    write(replace(page, trend=trend), out / "report.html")
    if claim.measure:
        picture = _measured(claim, outcomes, metric, main)
    else:
        picture = trend_chart(trend, narrow=False) if trend else _curves(entries, metric, main, page.best)
    files.write_atomic(out / "picture.svg", alone(picture))
    result = {
        "claim": claim.name,
        "says": claim.says,
        "report": str(out / "report.html"),
        "picture": str(out / "picture.svg"),
        "task": recipe.task.name,
        "figure": main,
        "against": claim.against,
        "best_possible": ranked[0].mean.result.get("best_possible"),
        "rows": [_row(claim, outcome, main) for outcome in outcomes],
        "train_seconds": sum({o.place: o.seconds * len(o.evaluations) for o in outcomes}.values()),
        "comparisons": comparisons,
        "law": law,
        "held": held,
        "verdict": verdict,
        "details": details,
    }
    files.write_json(out / "result.json", result)
    return result


def _rank(outcome: Outcome, main: str) -> float:
    value = float(outcome.mean.result[main])
    return value if main in LOWER_IS_BETTER else -value


def _decided(claim: Claim, outcomes: Sequence[Outcome], main: str) -> tuple[bool | None, list[dict[str, Any]]]:
    """Judge a claim and each of its comparisons; None: not decided."""
    by_name = {outcome.variant: outcome for outcome in outcomes}
    comparisons = [*_judged(claim, by_name, main), *_judged_no_worse(claim, by_name)]
    held = [comparison["held"] for comparison in comparisons]
    return _all(held) if any(outcome.learnt for outcome in outcomes) else None, comparisons


def _judged(claim: Claim, outcomes: Mapping[str, Outcome], main: str) -> list[dict[str, Any]]:
    """Judge each comparison: the claim held (True), the opposite held (False), or it may be chance (None)."""
    found = []
    for less, more in claim.decides:
        a, b = outcomes[less], outcomes[more]
        difference = float(np.mean(a.figures(main)) - np.mean(b.figures(main)))
        p = None if a.diverged or b.diverged else compare_two(a.evaluations, b.evaluations).p
        one_seed = p is not None and any(one.learns and len(one.evaluations) == 1 for one in (a, b))
        held = difference < 0 if p is None or (p < 0.05 and not one_seed) else None
        pieces = 0 if p is None else len(a.evaluations[0].pieces_NK)
        found.append({"less": less, "more": more, "difference": difference, "p": p, "held": held, "pieces": pieces})
    return found


def _judged_no_worse(claim: Claim, outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """Judge each a <~ b: the interval of a - b lies below the margin (True), above (False), or on both sides (None)."""
    found = []
    for one, other in claim.no_worse:
        a, b = outcomes[one], outcomes[other]
        low, high = math.nan, math.nan
        held: bool | None = False if a.diverged else True if b.diverged else None
        if held is None:
            tested = compare_two(a.evaluations, b.evaluations)
            low, high = tested.lo, tested.hi
            clear = True if high < claim.margin else False if low > claim.margin else None
            held = None if any(side.learns and len(side.evaluations) == 1 for side in (a, b)) else clear
        found.append({"no_worse": [one, other], "interval": [low, high], "margin": claim.margin, "held": held})
    return found


def _all(held: Sequence[bool | None]) -> bool | None:
    return False if False in held else None if None in held else True


def _verdict(held: bool | None, comparisons: Sequence[Mapping[str, Any]]) -> str:
    """Say in one sentence whether the claim held."""
    if held is not None:
        return f"The claim {'held' if held else 'did not hold'} here."
    open_ = sum(comparison["held"] is None for comparison in comparisons)
    if not open_:
        return "Not decided here: no variant has learnt much more than how frequent each character or label is."
    of = "the comparison" if len(comparisons) == 1 else f"{open_} of {len(comparisons)} comparisons"
    return f"Not decided here: {of} may be chance."


def _compared(comparison: Mapping[str, Any], metric: str, lower_is_better: bool = True) -> str:
    """One comparison in a sentence."""
    if "no_worse" in comparison:
        said = _no_worse_in_words(comparison, metric, lower_is_better)
    else:
        said = _less_in_words(comparison, metric)
    return f"{said[0].upper()}{said[1:]}."


def _less_in_words(comparison: Mapping[str, Any], metric: str) -> str:
    less, more, p = comparison["less"], comparison["more"], comparison["p"]
    if p is None:
        return f"of '{less}' and '{more}' not both could be trained to the end"
    if comparison["pieces"] < FEWEST:
        has = f"{comparison['pieces']} of the {FEWEST} pieces that a test takes; hold out more by data.test"
        return f"the test data are too few to tell '{less}' from '{more}' ({has})"
    sure = shown_p(p)
    by = f"{abs(comparison['difference']):.3f} {metric}"
    if comparison["held"] is None:
        why = "another seed may turn round" if p < 0.05 else "may be chance"
        return f"'{less}' and '{more}' differ by {by}, which {why} ({sure})"
    return f"'{less}' has {by} {'less' if comparison['held'] else 'MORE'} than '{more}' ({sure})"


def _no_worse_in_words(comparison: Mapping[str, Any], metric: str, lower_is_better: bool) -> str:
    (one, other), (low, high), margin = comparison["no_worse"], comparison["interval"], comparison["margin"]
    if not lower_is_better:  # that a has not much more than b says that b is as good as a
        (one, other), (low, high), margin = (other, one), (-high, -low), -margin
    if math.isnan(low):
        return f"of '{one}' and '{other}' not both could be trained to the end"
    said = {True: "is as good as", False: "is NOT as good as", None: "may or may not be as good as"}
    return (
        f"'{one}' {said[comparison['held']]} '{other}': it has between {low:+.3f} and {high:+.3f} {metric}, and the "
        f"margin is {margin:+g}"
    )


def _law(outcomes: Sequence[Outcome], main: str) -> dict[str, float] | None:
    """Fit a power law: a straight line through the logarithms, by least squares."""
    points = [(o.number, float(o.mean.result[main])) for o in outcomes if not o.diverged and o.number > 0]
    if len({x for x, _ in points}) < 3:
        return None
    x, y = np.log(points).T
    slope, begin = np.polyfit(x, y, 1)
    off = float(np.abs(np.expm1(begin + slope * x - y)).max())
    return {"factor": float(np.exp(begin)), "exponent": float(slope), "largest_error": off}


def _said(law: Mapping[str, float], claim: Claim, metric: str) -> str:
    power = f"{law['exponent']:.3f}".replace("-", "−")
    off = f"{100 * law['largest_error']:.1f} %"
    return f"Fitted: {metric} = {law['factor']:.3g} · {claim.against}^{power}, off by {off} at most."


def _entry(outcome: Outcome) -> Entry:
    run = Run.open(outcome.place, trust=True)
    entry = entry_of(run, outcome.mean, files.read_json(outcome.place / "result.json"), None)
    return replace(entry, model=outcome.variant, curve=outcome.curve, train_seconds=outcome.seconds)


def _trend(claim: Claim, outcomes: Sequence[Outcome], main: str, metric: str, law: dict[str, float] | None) -> Trend:
    points = []
    for outcome in outcomes:
        if not outcome.diverged:
            result = outcome.mean.result
            low, high = result[f"{main}_ci"]
            points.append(Point(outcome.variant, outcome.number, float(result[main]), low, high))
    line = (law["factor"], law["exponent"]) if law else None
    return Trend(NUMBERS.get(claim.against, claim.against), metric, sorted(points, key=lambda point: point.x), line)


def _curves(entries: Sequence[Entry], metric: str, main: str, best: float | None) -> str:
    lines = [Line(entry.model, i, entry.curve.steps, entry.curve.values) for i, entry in enumerate(entries)]
    shown = next((entry.curve.metric for entry in entries if entry.curve.metric), metric)
    return line_chart(lines, Axes("steps", shown, main in LOWER_IS_BETTER, best if shown == metric else None), "wide")


def _measured(claim: Claim, outcomes: Sequence[Outcome], metric: str, main: str) -> str:
    """The picture of a measure: the figure by length or by place."""
    found = {name: line for outcome in outcomes for name, line in outcome.lines.items()}
    lines = [Line(name, i, xs, ys) for i, (name, (xs, ys)) in enumerate(found.items())]
    x_title = MEASURES[claim.measure].x_title
    return line_chart(lines, Axes(x_title, metric, main in LOWER_IS_BETTER, from_zero=True), "wide")


def _facts(claim: Claim, recipe: Recipe, best: Outcome) -> list[str]:
    machine = files.read_json(best.place / "environment.json")
    size = recipe.task.amount(best.mean)
    return [
        claim.says,
        f"{len(claim.variants)} variants of {claim.kind} on {recipe.data.path}, {claim.seeds} "
        f"seed{'s' if claim.seeds > 1 else ''} each, scored on the same {size}.",
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['versions']['python']}.",
    ]


def _row(claim: Claim, outcome: Outcome, main: str) -> dict[str, Any]:
    number = {} if claim.against == "steps" else {"number": outcome.number}
    if outcome.diverged:
        return {"variant": outcome.variant, **number, main: None, f"{main}_ci": None, "run": str(outcome.place)}
    result = files.read_json(outcome.place / "result.json")
    return {
        "variant": outcome.variant,
        **number,
        main: outcome.mean.result[main],
        f"{main}_ci": outcome.mean.result[f"{main}_ci"],
        "seeds": outcome.figures(main),
        "parameters": result["parameters"],
        "steps": result["steps"],
        "epochs": result["epochs"],
        "train_seconds": outcome.seconds,
        "run": str(outcome.place),
    }
