"""What the verbs print for a person: tables and sentences."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.errors import InputError
from segue.folder import read_json
from segue.inference.evaluate import MAIN, NAMES


def _console() -> Console:
    """A terminal has its own width; a file or a pipe has none, so that nothing is cut there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def number(value: Any, digits: int = 3) -> str:
    """A figure as people write it."""
    if value is None or value == math.inf:
        return "∞"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.{digits}f}"


def size(count: float) -> str:
    """1,234 as 1.2 k, 1,234,567 as 1.2 M."""
    for unit in ("", " k", " M", " G"):
        if count < 1000 or unit == " G":
            return f"{count:.0f}{unit}" if not unit or count >= 100 else f"{count:.1f}{unit}"
        count /= 1000
    return ""


def interval(pair: Sequence[float | None] | None) -> str:
    if not pair or any(end is None or not math.isfinite(end) for end in pair):
        return "–"
    return f"{pair[0]:.3f}–{pair[1]:.3f}"


def print_comparison(result: dict[str, Any]) -> None:
    """The table of a comparison, best first, the verdict, and where the page is."""
    main = MAIN[result["task"]]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    seeds = any("seed_deviation" in row for row in result["rows"])
    table.add_column("model", no_wrap=True)
    table.add_column("tokens", no_wrap=True)
    spelling = result["task"] == "lm"
    # Headings in two lines and narrow cells: the table fits a terminal of 80 columns.
    more = [*(["±\nseeds"] if seeds else []), *(["spelt\nbits"] if spelling else [])]
    for heading in (NAMES.get(main, main).replace(" ", "\n", 1), "95 %\ninterval", *more):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("differs\nfrom next", no_wrap=True)
    for heading in ("params", "time", "tokens\nper s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result["rows"]:
        noise = [number(row["seed_deviation"]) if "seed_deviation" in row else "–"] if seeds else []
        table.add_row(
            row["model"],
            row["tokens"],
            "–" if row[main] is None else number(row[main]),
            interval(row[f"{main}_ci"]),
            *noise,
            *([number(row["spelling_bits_per_byte"])] if spelling else []),
            re.sub(r"\(p (.) (.*)\)", r"p\1\2", row["differs_from_next"]),
            size(row["parameters"]),
            f"{row['train_seconds']:,.1f} s",
            size(row["tokens_per_second"]),
        )
    console = _console()
    console.print(table)
    if result.get("best_possible") is not None:
        console.print(f"The best possible on this text is {number(result['best_possible'])}.")
    console.print(f"\n{result['verdict']}")
    console.print(f"The page: {result['report']}")


def print_result(run: Any, result: dict[str, Any]) -> None:
    """What a training run came to, and what was left out on the way."""
    console = _console()
    if run.finished_before:
        console.print("This run was finished before; there was nothing left to do.")
    steps = result["steps"]
    trained = f"{number(result['train_seconds'], 1)} s, {number(steps)} step{'s' if steps != 1 else ''}"
    console.print(f"{result['model']}: {size(result['parameters'])} parameters, trained {trained}.")
    if result.get("stopped_early"):
        console.print(f"Stopped early: the best validation was at step {result['best_step']}.")
    print_figures({key: value for key, value in result.items() if key not in _TRAINED})
    for sentence in run.ledger_summary():
        console.print(sentence)
    console.print(f"The run: {run.path}    its page: {run.path / 'report.html'}")


_TRAINED = {"model", "parameters", "train_seconds", "steps", "epochs", "tokens_per_second", "best_step"}
_TRAINED |= {"validation_loss", "stopped_early", "finished_before"}


def print_figures(result: dict[str, Any]) -> None:
    """The figures of an evaluation, a line each."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)  # type: ignore[arg-type]
    words = []
    for key, value in result.items():
        if key in ("task", "confusion", "labels") or key.endswith("_ci") or (value is None and key == "span_f1"):
            continue
        if isinstance(value, str):
            words.append(f"{NAMES.get(key, key)}: {value}")
        else:
            sure = f"95 %: {interval(result[f'{key}_ci'])}" if f"{key}_ci" in result else ""
            table.add_row(NAMES.get(key, key), number(value), sure)
    _console().print(table)
    for line in words:
        _console().print(Text(line))
    if result.get("labels") and len(result["labels"]) <= 12:
        _print_confusion(result["labels"], result["confusion"])


def _print_confusion(labels: list[str], matrix: list[list[int]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for label in labels:
        table.add_column(Text(label), justify="right")
    for label, row in zip(labels, matrix, strict=True):
        table.add_row(Text(label, "bold"), *[number(count) for count in row])
    _console().print("Rows are the true labels, columns what was predicted:")
    _console().print(table)


def print_line(line: Any) -> None:
    """One scored text: a row a token, and the totals."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("token")
    for heading in ("log p", "bits"):
        table.add_column(heading, justify="right")
    for token, logp, bits in zip([*line.tokens[:-1], "</s>"], line.logprobs, line.token_bits, strict=True):
        table.add_row(Text(repr(token)[1:-1]), f"{logp:.4f}", f"{bits:.3f}")
    table.add_row("total", f"{line.logprob:.4f}", f"{line.bits:.3f}", style="bold")
    _console().print(table)


def print_bars(expected: list[tuple[str, float]]) -> None:
    """Tokens with their probabilities as bars."""
    width = max((len(repr(token)) - 2 for token, _ in expected), default=1)
    top = max((p for _, p in expected), default=1.0)
    for token, p in expected:
        print(f"{repr(token)[1:-1]:<{width}}  {p:.4f}  {'█' * max(1, round(40 * p / top))}")


def print_models() -> None:
    """Every kind, its task and the first line of its file, read without importing it."""
    from segue.models import kinds, source_file

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("kind", "task", "what it is"):
        table.add_column(heading)
    for kind in kinds():
        tree = ast.parse(source_file(kind).read_text(encoding="utf-8"))
        first = (ast.get_docstring(tree) or "").split("\n")[0]
        table.add_row(kind, task_of(tree), Text(first))
    _console().print(table)


def task_of(tree: ast.Module) -> str:
    """The `task = "…"` of the model class in a source file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "task" for target in targets):
                return str(node.value.value)
    return ""


def print_recipes() -> None:
    """Every shipped recipe with the comment at its head."""
    from segue.recipe import RECIPES, recipe_names

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    table.add_column("what it is")
    for name in recipe_names():
        first = (RECIPES / f"{name}.toml").read_text(encoding="utf-8").split("\n")[0]
        table.add_row(name, Text(first.removeprefix("#").strip()))
    _console().print(table)


def print_explanation(model: str, settings: list[str], trust: bool = False) -> None:
    """The head of the model's file, and every key of its recipe with its value."""
    import dataclasses

    from segue.models import source_file
    from segue.recipe import SECTIONS, group_docs, load_recipe, section_fields

    recipe = load_recipe(model, settings, trust=trust)
    console = _console()
    tree = ast.parse(source_file(recipe.kind).read_text(encoding="utf-8"))
    console.print(Text(ast.get_docstring(tree) or ""))
    for section in SECTIONS:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column()
        values = getattr(recipe, section)
        for field in section_fields(section, recipe.kind):
            value = getattr(values, field.name)
            if dataclasses.is_dataclass(value):
                for inner, doc in group_docs(value).items():
                    table.add_row(f"{section}.{field.name}.{inner}", Text(str(getattr(value, inner))), Text(doc))
            else:
                table.add_row(f"{section}.{field.name}", Text(str(value)), Text(field.doc))
        console.print(Text(f"\n[{section}]", "bold"))
        console.print(table)


def find_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs below a folder, with their main figure."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. `segue train` makes runs/ when it is first needed.")
    found = []
    for recipe in sorted(folder.rglob("recipe.toml")):
        path = recipe.parent
        if not (path / "result.json").exists():
            found.append({"run": str(path), "finished": False})
            continue
        result = read_json(path / "result.json")
        main = MAIN.get(result.get("task", ""), "")
        main = main if main in result else "perplexity"  # tokens that lose text have no bits per byte
        found.append(
            {
                "run": str(path),
                "finished": True,
                "model": result.get("model"),
                "figure": NAMES.get(main, main),
                "value": result.get(main),
                "train_seconds": result.get("train_seconds"),
            }
        )
    return found


def print_runs(found: list[dict[str, Any]], folder: str) -> None:
    """A row a run."""
    if not found:
        print(f"There are no runs in {folder}.")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("run", "model", "figure", "value", "seconds"):
        table.add_column(heading, justify="right" if heading in ("value", "seconds") else "left")
    for row in found:
        if row["finished"]:
            table.add_row(
                row["run"], row["model"], row["figure"], number(row["value"]), number(row["train_seconds"], 1)
            )
        else:
            table.add_row(row["run"], "not finished: go on with --resume", "", "", "")
    _console().print(table)


def print_corpora() -> None:
    """The corpora that every machine has, and those that can be downloaded."""
    from segue.data import builtin, named

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("corpus", "tasks", "what it is"):
        table.add_column(heading)
    for row in builtin.describe():
        table.add_row(row.name, row.tasks, Text(row.about))
    for name, corpus in named.NAMED.items():
        table.add_row(name, "lm", Text(f"{corpus.about} (segue data get {name})"))
    _console().print(table)


def print_sample(path: str, kind: str) -> None:
    """How the first lines or rows of a file are read and split."""
    import itertools

    from segue.data.config import Config
    from segue.data.corpus import Corpus
    from segue.data.sources import guess_task
    from segue.recipe import make
    from segue.tokens.tokenizer import Config as Tokens
    from segue.tokens.tokenizer import Tokenizer

    tokens = make(Tokens, {"kind": kind}, "tokens")
    unit: Literal["line", "document"] = "line" if kind == "space" else "document"
    task = guess_task(path)
    corpus = Corpus(Config(path=path, unit=unit, validation=0.0, canonical=kind == "space"), task)
    tokenizer = Tokenizer.train(tokens, (f"{example.text} {example.target}" for example in corpus.examples("all")))
    console = _console()
    for file in corpus.ledger.to_dict()["files"][:5]:
        console.print(Text(f"{file['path']}: {file['bytes']:,} bytes"))
    count, noun = corpus.counts["train"], unit if task == "lm" else "row"
    units = f"{count:,} {noun}{'s' if count != 1 else ''}"
    console.print(f"{units}; {tokenizer.vocab_size:,} different {kind} tokens, STOP and UNK counted.")
    for sentence in corpus.ledger.summary():
        console.print(Text(sentence))

    def split(text: str) -> str:
        return " ".join(f"[{piece}]" for piece in tokenizer.pieces(text[:200])[1])

    for example in itertools.islice(corpus.examples("all"), 5):
        if task == "tag":
            console.print(Text(" ".join(map("/".join, zip(example.words, example.tags, strict=True)))))
        elif task == "lm":
            for line in [line for line in example.text.split("\n") if line.strip()][: 5 if unit == "document" else 1]:
                console.print(Text(split(line)))
        else:
            label = f"{example.label}: " if task == "classify" else ""
            target = f" -> {split(example.target)}" if task == "seq2seq" else ""
            console.print(Text(label + split(example.text) + target))
