"""A suite's TOML file: tasks with their files, columns and metrics, which means to take, and published figures.

Shipped suites are in suites/; a file of your own ends in .toml:

    says = "what the suite asks"                      one sentence
    kind = "finetuned_classifier"                     the model, where --model names none
    [data]                                            settings of every task, as in a recipe (any section)
    [tasks.NAME]                                      a task
    says = "is the sentence acceptable?"              one line about it
    training = "CoLA/train.tsv"                       its file in FOLDER, also with .gz or .xz; a list: the first that
                                                      is there; a * matches several files
    test = "CoLA/dev.tsv"                             what the task is scored on; several: [tasks.NAME.test], each with
                                                      the name of its column
    columns = "label,sentence"                        as data.columns; a list: the first that the file's header has
    metrics = ["accuracy", "positive_f1"]             its figures; the first ranks, and chooses the best weights
    predict = { "CoLA.tsv" = "CoLA/test.tsv" }        files to predict, if they are there, and what submission/ calls
                                                      the predictions
    predict_columns = "sentence"                      the texts in those files, where their names are others
    data.label = "number"                             any setting of a recipe
    [means]                                           each a list of columns; those in a list within it are averaged
    "the mean" = [["MNLI-m", "MNLI-mm"], "QQP"]       first
    [published]                                       figures of others, to stand beside
"""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.data.files import blocks, lines
from segue.data.ledger import Ledger
from segue.errors import InputError, nearest
from segue.inference.label_metrics import CLASS_METRICS, NUMBER_METRICS
from segue.models.keys import SECTIONS
from segue.models.names import RECIPES
from segue.recipe import check_name
from segue.runs.resume import spelt

SUITES = RECIPES.parent / "suites"
Columns = tuple[str | tuple[str, ...], ...]
"""The columns of a mean; those of a tuple within it are averaged first."""


@dataclass(frozen=True)
class SuiteTask:
    """One task of a suite."""

    name: str
    says: str
    training: tuple[str, ...]
    """Where its training file may be in the folder."""
    tests: dict[str, tuple[str, ...]]
    """The files that it is scored on, by the names of their columns in the table."""
    columns: tuple[str, ...]
    """What data.columns may be."""
    metrics: tuple[str, ...]
    predict: dict[str, tuple[str, ...]]
    """The files to predict, by the names of the files to write."""
    predict_columns: str
    settings: list[str]


@dataclass(frozen=True)
class Published:
    """Figures of others, in hundredths."""

    says: str
    columns: tuple[str, ...]
    metrics: dict[str, str]
    """Which metric stands in a column whose task has several."""
    rows: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Suite:
    """A list of tasks, and what their figures come to."""

    name: str
    says: str
    kind: str
    tasks: tuple[SuiteTask, ...]
    means: dict[str, Columns]
    settings: list[str]
    published: Published | None = None


@dataclass(frozen=True)
class Files:
    """The files of a task that are there."""

    training: str
    tests: dict[str, str]
    predict: dict[str, str]
    columns: str


# Reading the file


def suite_names() -> list[str]:
    """The suites that are shipped."""
    return sorted(path.stem for path in SUITES.glob("*.toml"))


def read_suite(what: str) -> Suite:
    """Read a shipped suite by its name, or one from a TOML file."""
    path = Path(what) if what.endswith(".toml") else SUITES / f"{what}.toml"
    if not path.is_file():
        close = "" if what.endswith(".toml") else nearest(what, suite_names())
        raise InputError(
            f"There is no suite '{what}'.{close} `segue suite` lists them; a file of your own ends in .toml."
        )
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}. Mend that line.") from None
    return _Checked(path).suite(values)


_TYPES: dict[Any, str] = {str: "text", dict: "a table", list: "a list of texts", (str, list): "text or a list of texts"}
_TYPES[str, dict, list] = "text, a list of texts, or a table of them"
_SUITE = {"says": str, "kind": str, "tasks": dict, "means": dict, "published": dict}
_TASK = {"says": str, "training": (str, list), "test": (str, dict, list), "columns": (str, list), "metrics": list}
_TASK_MORE = {"predict": dict, "predict_columns": str}
_PUBLISHED = {"says": str, "columns": list, "metrics": dict, "rows": dict}


class _Checked:
    """Reads the tables of one file, strictly: what is unknown, missing or of the wrong type is refused by its name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def suite(self, values: Mapping[str, Any]) -> Suite:
        self.keys("a suite", values, {"says": str, "tasks": dict}, _SUITE)
        tasks = tuple(self.task(name, found) for name, found in values["tasks"].items())
        names = [name for task in tasks for name in task.tests]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"{self.path}: two tasks have the column '{twice}'. Give each a name of its own.")
        means = {name: self.columns(f"means.{name}", of, names) for name, of in values.get("means", {}).items()}
        published = self.published(values["published"], tasks) if "published" in values else None
        settings = _settings(values)
        kind = values.get("kind", "finetuned_classifier")
        return Suite(self.path.stem, " ".join(values["says"].split()), kind, tasks, means, settings, published)

    def keys(
        self, of: str, values: Mapping[str, Any], must: Mapping[str, Any], known: Mapping[str, Any], recipe: bool = True
    ) -> None:
        every = {**known, **dict.fromkeys(SECTIONS if recipe else (), dict)}
        for key, value in values.items():
            if key not in every:
                raise InputError(f"{self.path}: there is no key '{key}' in {of}.{nearest(key, every)}")
            if not isinstance(value, every[key]):
                raise InputError(f"{self.path}: {key} of {of} is {value!r}. Expected {_TYPES[every[key]]}.")
        if missing := next((key for key in must if key not in values), None):
            raise InputError(f"{self.path}: {of} has no '{missing}'. Expected {', '.join(must)}.")

    def task(self, name: str, values: Any) -> SuiteTask:
        of = f"the task {name}"
        if not isinstance(values, dict):
            raise InputError(f"{self.path}: tasks.{name} is {values!r}. Expected a table.")
        must = {key: kind for key, kind in _TASK.items() if key != "says"}
        self.keys(of, values, must, {**_TASK, **_TASK_MORE})
        check_name(f"{self.path.stem}/{name}", f"{self.path}: a task of [tasks],")
        known = NUMBER_METRICS if values.get("data", {}).get("label") == "number" else CLASS_METRICS
        if wrong := next((one for one in values["metrics"] or [""] if one not in known), None):
            raise InputError(f"{self.path}: {of} has the metric {wrong!r}. Expected one of {', '.join(known)}.")
        tests = values["test"] if isinstance(values["test"], dict) else {name: values["test"]}
        return SuiteTask(
            *(name, values.get("says", ""), self.texts(of, values["training"])),
            {column: self.texts(of, files) for column, files in tests.items()},
            *(self.texts(of, values["columns"]), tuple(values["metrics"])),
            {file: self.texts(of, files) for file, files in values.get("predict", {}).items()},
            *(values.get("predict_columns", ""), _settings(values)),
        )

    def texts(self, of: str, value: Any) -> tuple[str, ...]:
        found = value if isinstance(value, list) else [value]
        if not found or not all(isinstance(one, str) and one for one in found):
            raise InputError(f"{self.path}: {of} has {value!r}. Expected text or a list of texts.")
        return tuple(found)

    def columns(self, of: str, value: Any, names: Sequence[str]) -> Columns:
        if not isinstance(value, list) or not value:
            raise InputError(f"{self.path}: {of} is {value!r}. Expected a list of columns.")
        found = tuple(tuple(one) if isinstance(one, list) else one for one in value)
        for name in flat(found):
            if name not in names:
                raise InputError(f"{self.path}: {of} has '{name}', which is no task's column.{nearest(name, names)}")
        return found

    def published(self, values: Mapping[str, Any], tasks: Sequence[SuiteTask]) -> Published:
        self.keys("published", values, _PUBLISHED, _PUBLISHED, recipe=False)
        metrics = {column: task.metrics for task in tasks for column in task.tests}
        columns = flat(self.columns("published.columns", values["columns"], list(metrics)))
        for column, metric in values["metrics"].items():
            if metric not in metrics.get(column, ()):
                raise InputError(f"{self.path}: published.metrics has {column} = '{metric}', which no task has.")
        for name, row in values["rows"].items():
            if len(row) != len(columns) or not all(isinstance(one, int | float) for one in row):
                raise InputError(f"{self.path}: published.rows '{name}' has {row}. Expected {len(columns)} numbers.")
        own = {column: values["metrics"].get(column, metrics[column][0]) for column in columns}
        return Published(values["says"], columns, own, {name: tuple(row) for name, row in values["rows"].items()})


def flat(columns: Columns) -> tuple[str, ...]:
    """List the columns of a mean one by one."""
    return tuple(name for one in columns for name in ((one,) if isinstance(one, str) else one))


def _settings(values: Mapping[str, Any]) -> list[str]:
    return _lines({key: value for key, value in values.items() if key in SECTIONS})


def _lines(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Write nested tables as section.key=value, which is how a recipe takes them."""
    found = []
    for key, value in values.items():
        found += _lines(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}={spelt(value)}"]
    return found


# Finding the files of its tasks


def find(task: SuiteTask, folders: Sequence[Path]) -> Files | str:
    """Find the files of a task; return the one that is missing if it cannot be run."""
    train = _first(task.training, folders)
    tests = {column: path for column, files in task.tests.items() if (path := _first(files, folders))}
    if not train or not tests:
        return next(iter(task.tests.values()))[0] if train else task.training[0]
    predict = {name: path for name, files in task.predict.items() if (path := _first(files, folders))}
    return Files(train, tests, predict, _columns(train, task.columns))


def _first(patterns: Sequence[str], folders: Sequence[Path]) -> str:
    """Return the first of some files that is in one of the folders, plain or packed; '' if none is."""
    for pattern in patterns:
        for folder in folders:
            for ending in ("", ".gz", ".xz"):
                place = glob.escape(str(folder)) + f"/{pattern}{ending}"
                if matched := sorted(glob.glob(place)):  # noqa: PTH207 (Path.glob takes no absolute pattern)
                    return place if len(matched) > 1 else matched[0]
    return ""


def _columns(path: str, options: Sequence[str]) -> str:
    """Return the first columns whose names stand in the header of a file; the first of all if none do."""
    if len(options) == 1:
        return options[0]
    file = Path(path) if Path(path).is_file() else Path(min(glob.glob(path)))  # noqa: PTH207
    header = next(lines(blocks(file, "utf-8", Ledger())), "").split("\t")
    return next((one for one in options if set(one.split(",")) <= set(header)), options[0])
