"""What the verbs print for a person: tables and sentences. All of it is handed over: no run or file is read here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from segue.inference.evaluation import HIDDEN_ZEROS, MEANINGS, NAMES
from segue.inference.fill import HOLE
from segue.inference.score import PseudoLine
from segue.look.explain.layout import equation_lines, laid_out
from segue.look.inside.view import View
from segue.look.page.markup import figure, interval_takes, is_share, one_decimal, percent, visible
from segue.output.streams import open_console


def _console() -> Console:
    """A terminal has its own width; a file or a pipe has none, so that nothing is cut there."""
    made = open_console(highlight=False)
    return made if made.is_terminal else open_console(highlight=False, width=160)


def _wraps() -> bool:
    """Whether sentences are broken into lines: in a terminal, at its width; in a file or a pipe they stay whole."""
    return _console().is_terminal


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


def written(value: Any, key: str) -> str:
    """A figure by its key: shares in per cent."""
    if isinstance(value, float) and is_share(NAMES.get(key, key)):
        return figure(value, NAMES.get(key, key))
    return number(value, 0 if isinstance(value, float) and 1e4 <= value < math.inf else 3)


def interval(pair: Sequence[float | None] | None, key: str = "") -> str:
    if not pair or any(end is None or not math.isfinite(end) for end in pair):
        return "–"
    if is_share(NAMES.get(key, key)):
        return f"{100 * (pair[0] or 0):.1f}–{100 * (pair[1] or 0):.1f} %"
    return f"{pair[0]:.3f}–{pair[1]:.3f}"


def best_told(best: dict[str, float]) -> str:
    """The best possible figures: 0.075 bits per byte."""
    return ", ".join(f"{written(value, key)} {NAMES.get(key, key)}" for key, value in best.items())


def _sure(pair: Sequence[float | None], key: str) -> str:
    """The interval of a figure, or how much data one takes."""
    if any(end is not None and math.isfinite(end) for end in pair):
        return f"95 % interval: {interval(pair, key)}"
    return f"too little to tell how sure: an interval takes {interval_takes(NAMES.get(key, key))}"


def print_comparison(result: dict[str, Any]) -> None:
    """The table of a comparison, best first, the verdict, and where the page is."""
    main = result["figure"]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    seeds = any("seed_deviation" in row for row in result["rows"])
    table.add_column("model", no_wrap=True)
    table.add_column("tokens", no_wrap=True)
    spelling = result["figure"] == "bits_per_byte"
    # Headings in two lines and narrow cells: the table fits a terminal of 80 columns.
    # Perplexities are of tokens: they can be compared only where all models have the same, and then all spell alike.
    per_token = spelling and result["same_tokens"]
    more = ["±\nseeds"] if seeds else []
    more += ["perplex-\nity" if per_token else "spelt\nbits"] if spelling else []
    for heading in (NAMES.get(main, main).replace(" ", "\n", 1), "95 %\ninterval", *more):
        table.add_column(heading, justify="right", no_wrap=True)
    column = result["column"]
    table.add_column("this run\ndiffers" if column == "this run" else "better\nthan next", no_wrap=True)
    for heading in ("params", "time", "tokens\nper s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result["rows"]:
        noise = [written(row["seed_deviation"], main) if "seed_deviation" in row else "–"] if seeds else []
        table.add_row(
            row["model"],
            row["tokens"],
            "–" if row[main] is None else written(row[main], main),
            interval(row[f"{main}_ci"], main),
            *noise,
            *([_spelt(row["spelling_bits_per_byte"])] if spelling and not per_token else []),
            *(["–" if "perplexity" not in row else number(row["perplexity"], 1)] if per_token else []),
            re.sub(r"\(p (.) (.*)\)", r"p\1\2", row[column.replace(" ", "_")]),
            size(row["parameters"]),
            _seconds(row),
            size(row["tokens_per_second"]),
        )
    console = _console()
    console.print(table)
    for one in result.get("frozen", ()):
        figures = (written(one[name], main) for name in ("frozen", "tuned"))
        console.print(
            Text("{}: frozen {}, fine-tuned {}; do they differ? {}".format(one["body"], *figures, one["differs"]))
        )
    if result.get("best"):
        known = {} if result["best_possible"] is None else {main: result["best_possible"]}
        console.print(f"The best possible on this text is {best_told(known | result['best'])}.")
    elif result.get("best_possible") is not None:
        console.print(f"The best possible on this text is {written(result['best_possible'], result['figure'])}.")
    for sentence in (*result["left_out"], *(f"{name} failed: {why}" for name, why in result["failed"].items())):
        console.print(Text(sentence))
    console.print(f"\n{result['verdict']}")
    _print_times(console, result)
    console.print(f"The page: {result['report']}")


def _seconds(row: dict[str, Any]) -> str:
    """The seconds of training, and those of the run that it began from: 5.3 + 61 s."""
    before = row.get("pretrained")
    return f"{row['train_seconds']:,.1f} {_before(before['seconds']) if before else ''}s"


def _before(seconds: float | None) -> str:
    return "+ ? " if seconds is None else f"+ {seconds:,.0f} "


def _print_times(console: Console, result: dict[str, Any]) -> None:
    """Say how long training took of the time that passed; a result that was read from a file does not know."""
    if "wall_seconds" in result and "train_seconds" in result:
        trained, wall = number(result["train_seconds"], 1), number(result["wall_seconds"], 1)
        console.print(f"Training took {trained} s in all; with reading, validating and testing {wall} s have passed.")


def print_claim(result: dict[str, Any]) -> None:
    """The variants in their order, whether the claim held, and where the page is."""
    shown = claim_table(result)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(shown["head"]):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for cells in shown["rows"]:
        table.add_row(*map(Text, cells))
    console = _console()
    console.print(Text(result["says"]))
    console.print()
    console.print(table)
    if result.get("best_possible") is not None:
        console.print(f"The best possible on this text is {written(result['best_possible'], result['figure'])}.")
    console.print(Text(f"\n{result['verdict']}", "bold"))
    for sentence in result.get("details", ()):
        console.print(Padding(Text(sentence), (0, 0, 0, 2)))
    _print_times(console, result)
    console.print(f"The page: {result['report']}    the picture: {result['picture']}")


def claim_table(result: dict[str, Any]) -> dict[str, Any]:
    """The table of a claim: headings, and a row a variant; a claim that is measured has made it itself."""
    if "table" in result:
        return dict(result["table"])
    main, against = result["figure"], result["against"]
    numbered = against not in ("steps", "parameters")
    head = ["variant", *([against] if numbered else []), NAMES.get(main, main), "95 % interval", "seeds"]
    rows = []
    for row in result["rows"]:
        place = [_place(row["number"])] if numbered else []
        if row[main] is None:
            rows.append([row["variant"], *place, "diverged", "–", "–", "–", "–"])
            continue
        seeds = f"{min(row['seeds']):.3f}–{max(row['seeds']):.3f}" if len(row["seeds"]) > 1 else "–"
        figures = (written(row[main], main), interval(row[f"{main}_ci"], main), seeds, size(row["parameters"]))
        rows.append([row["variant"], *place, *figures, f"{row['train_seconds']:,.1f} s"])
    return {"head": [*head, "parameters", "time"], "rows": rows}


def print_suite(result: dict[str, Any]) -> None:
    """The tasks in their order, the means, what was left out, and where the page is."""
    shown = suite_table(result)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(shown["head"]):
        table.add_column(heading, justify="right" if place > 1 else "left", no_wrap=True)
    for cells in shown["rows"]:
        table.add_row(*map(Text, cells))
    console = _console()
    console.print(Text(result["says"]))
    console.print()
    console.print(table)
    console.print()
    for line in suite_means(result):
        console.print(Text(line))
    _print_times(console, result)
    if result["submission"]:
        folder = result["submission"][0].rpartition("/")[0]
        console.print(f"Predictions for {len(result['submission'])} files without labels: {folder}")
    console.print(f"The page: {result['report']}")


def suite_table(result: dict[str, Any]) -> dict[str, Any]:
    """The table of a suite: headings, and a row a metric of each task; figures in hundredths."""
    several = any(len(one["seeds"]) > 1 for row in result["rows"] for one in row["figures"].values())
    head = ["task", "metric", "median" if several else "figure", "95 % interval", *(["seeds"] if several else [])]
    rows = []
    for row in result["rows"]:
        for place, (metric, one) in enumerate(row["figures"].items()):
            cells = [row["column"] if not place else "", NAMES.get(metric, metric), hundredths(one["median"])]
            cells += [hundredths_between(one["ci"]), *([hundredths_between(_ends(one["seeds"]))] if several else [])]
            last = [f"{row['rows']:,}", f"{row['train_seconds']:,.1f} s"] if not place else ["", ""]
            rows.append([*cells, *last])
    return {"head": [*head, "rows", "time"], "rows": rows}


def suite_means(result: dict[str, Any]) -> list[str]:
    """The means of a suite in sentences, and what was left out."""
    means = [one for one in result["means"] if one["value"] is not None]
    said = [_mean_told(one) for one in means]
    if missing := list(dict.fromkeys(name for one in means for name in one["missing"])):
        said.append(f"These are means of the columns that ran, not of the suite: {', '.join(missing)} missing.")
    said += [f"{name}: {one['rows']:,} rows were skipped. {one['first']}." for name, one in result["skipped"].items()]
    return [*said, *(f"Left out: {name}, as {why}." for name, why in result["left_out"].items())]


def _mean_told(one: dict[str, Any]) -> str:
    sure = f" ({one['ci'][0]:.1f} to {one['ci'][1]:.1f})" if all(map(math.isfinite, one["ci"])) else ""
    seeds = f", {min(one['seeds']):.1f} to {max(one['seeds']):.1f} by seed" if len(one["seeds"]) > 1 else ""
    of = f", {len(one['over'])} of {len(one['over']) + len(one['missing'])} columns" if one["missing"] else ""
    return f"Mean, {one['mean']}: {one_decimal(one['value'])}{sure}{seeds}{of}."


def hundredths(value: float) -> str:
    """A figure of a suite: 0.521 as 52.1."""
    return f"{100 * value:.1f}"


def hundredths_between(pair: Sequence[float | None]) -> str:
    """Two ends in hundredths; a dash if one is not known."""
    ends = [end for end in pair if end is not None and math.isfinite(end)]
    return " to ".join(map(hundredths, ends)) if len(ends) == 2 else "–"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _place(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spelt(bits: float | None) -> str:
    """Scores that are no probabilities have no bits."""
    return "–" if bits is None else number(bits)


def print_result(run: Any, result: dict[str, Any], corpora: Sequence[dict[str, Any]] = ()) -> None:
    """What a training run came to, and what was left out on the way; `corpora` are those of a mixture."""
    console = _console()
    if run.finished_before:
        console.print("This run was finished before; there was nothing left to do.")
    done, of = result["steps"], "step"
    if result.get("figure") == "cloze":  # it has no steps; where time was over first, its last epoch is not whole
        done, of = round(result["epochs"], 2), "epoch"
    wall = f" ({number(result['wall_seconds'], 1)} s with validations)" if "wall_seconds" in result else ""
    trained = f"{number(result['train_seconds'], 1)} s{wall}, {done:,g} {of}{'s' if done != 1 else ''}"
    console.print(f"{result['model']}: {size(result['parameters'])} parameters, trained {trained}.")
    if result.get("stopped_early"):
        console.print(f"Stopped early: the best validation was at step {result['best_step']}.")
    if "seconds_left" in result:
        console.print(f"{number(result['seconds_left'], 0)} s of its budget are left: more would not have helped.")
    print_figures({key: value for key, value in result.items() if key not in _TRAINED})
    if "split" not in result:
        console.print("Nothing was held out, so there is no figure and no page; data.validation=0.1 holds some out.")
    if result.get("had_a_say"):
        console.print(f"This text had a say in the run: {_SAY}", soft_wrap=not _wraps())
    if "epochs_by_corpus" in result:
        _print_corpora(corpora)
    if "profile" in result:
        _print_profile(result["profile"])
    for sentence in run.ledger_summary():
        console.print(sentence)
    page = run.path / "report.html"
    console.print(f"The run: {run.path}" + (f"    its page: {page}" if page.exists() else ""))


_SAY = "it chose among weights or settings. For a figure of text that chose nothing, hold some out: data.test=0.1"

_TRAINED = {"model", "parameters", "train_seconds", "steps", "epochs", "tokens_per_second", "best_step"}
_TRAINED |= {"validation_loss", "stopped_early", "finished_before", "profile", "epochs_by_corpus"}
_TRAINED |= {"wall_seconds", "seconds_left"}


def _print_profile(profile: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("", "left"), ("ms a step", "right"), ("share", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, one in profile["phases"].items():
        table.add_row(name, f"{one['seconds'] * 1000:.2f}", f"{100 * one['share']:.0f} %")
    _console().print(table)
    _console().print(
        f"{profile['tokens_per_second']:,.0f} tokens/s; {profile['operations_per_second'] / 1e9:,.1f} GFLOP/s, "
        f"{100 * profile['share_of_peak']:.0f} % of the {profile['peak'] / 1e9:,.0f} at which this machine "
        "multiplies matrices."
    )


_NO_FIGURES = {"task", "figure", "confusion", "calibration", "labels", "static", "by_corpus", "sections"}
_NO_FIGURES |= {"amount", "sha256", "had_a_say", "leak", "run", "data", "types", "span_counts", "by_type", "by_length"}
_NO_FIGURES |= {"confusions", "skipped"}


def print_figures(result: dict[str, Any]) -> None:
    """The figures of an evaluation, a line each; what adapts has its static figures in a column of their own."""
    static = "static" in result
    table = Table(box=None, show_header=static, pad_edge=False, header_style="bold")
    for name, justify in (("", "left"), ("adapted", "right"), *([("static", "right")] if static else []), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    rows, sentences = figures_told(result)
    for row in rows:
        table.add_row(*row)
    if "run" in result:
        _console().print(Text(scored_text(result), "bold"), soft_wrap=not _wraps())
    _console().print(table)
    for line in sentences:
        _console().print(Text(line), soft_wrap=not _wraps() and line.startswith("Warning"))
    if result.get("labels") and len(result["labels"]) <= 12:
        _print_confusion(result["labels"], result["confusion"])
    if "by_type" in result:
        _print_types(result["by_type"])
    if "sections" in result:
        _print_sections(result["sections"])
    if "by_corpus" in result:
        _print_by_corpus(result["by_corpus"])


def scored_text(result: dict[str, Any]) -> str:
    """Name the run and the text of an evaluation."""
    part = f" ({result['split']} split)" if "split" in result else ""
    return f"{result['run']} on {result['data']}{part}"


def figures_told(result: dict[str, Any]) -> tuple[list[list[str]], list[str]]:
    """The figures of an evaluation as rows (name, value, static value if it adapts, remark), and its sentences."""
    static = result.get("static", {})
    rows, words = [], []
    for key, value in result.items():
        if key in _NO_FIGURES or key.endswith("_ci") or (key in HIDDEN_ZEROS and not value):
            continue
        if key == "split" and "run" in result:
            continue
        name = NAMES.get(key, key)
        if key == "decode":
            words.append("decode: " + ", ".join(f"{name}={setting}" for name, setting in value.items()))
        elif key == "best":
            words.append(f"best possible: {best_told(value)}")
        elif key == "pretrained":
            words.append(_began(value))
        elif key == "weight_change":
            words.append(_changed(value))
        elif key == "edits":
            words.append("word errors: " + ", ".join(f"{count:,} {kind}" for kind, count in value.items()))
        elif isinstance(value, dict):
            words += [f"weight {part:.3f} of {name}" for name, part in value.items()]
        elif isinstance(value, str):
            words.append(f"{name}: {value}")
        else:
            finite = isinstance(value, int | float) and math.isfinite(value)
            remark = _sure(result[f"{key}_ci"], key) if finite and f"{key}_ci" in result else MEANINGS.get(key, "")
            still = [written(static[key], key) if key in static else ""] if static else []
            unit = result.get("figure", key) if key == "best_possible" else key
            rows.append([name, written(value, unit), *still, remark])
    for run, share in result.get("leak", {}).get("runs", {}).items():
        what = result["leak"]["of"]
        words.append(
            f"Warning: {100 * share:.0f} % {what} stood in the training data of {run}: this is no figure of unseen "
            "text."
        )
    if skipped := result.get("skipped"):
        words.append(f"Rows that were skipped: {skipped['rows']:,}. {skipped['first']}.")
    return rows, words


def _began(found: dict[str, Any]) -> str:
    """Say which run a run began from, and how long that one was trained."""
    took = "" if found["seconds"] is None else f", trained {number(found['seconds'], 1)} s"
    return f"began from: {found['run']}{took}"


def _changed(found: dict[str, Any]) -> str:
    """Say how far the weights have moved since, and which part the most."""
    most = max(found["parts"], key=lambda one: one["change"], default={"part": "nothing", "change": 0.0})
    said = f"weights moved by {found['all']:.4f} of their length"
    return f"{said}, most in {most['part']}: {most['change']:.4f} (the page shows each part)"


def _print_types(types: list[dict[str, Any]]) -> None:
    """Precision, recall and F1 of each type of span."""
    table = _headed("type", "precision", "recall", "F1", "spans")
    for one in types:
        shares = (f"{100 * one[name]:.1f} %" for name in ("precision", "recall", "f1"))
        table.add_row(Text(one["type"]), *shares, number(one["true"]))
    _console().print(table)


def _print_sections(sections: list[dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("section", "analogies", "3CosAdd", "3CosMul"):
        table.add_column(heading, justify="left" if heading == "section" else "right")
    for one in sections:
        shares = [written(one[name], "accuracy") for name in ("accuracy", "accuracy_3cosmul")]
        figures = number(one["analogies"]), *shares
        table.add_row(Text(one["section"]), *figures)
    _console().print(table)


def _print_by_corpus(figures: list[dict[str, Any]]) -> None:
    """The figures of each corpus that was scored."""
    found = (name for name in ("bits_per_byte", "masked_bits_per_byte") if any(name in row for row in figures))
    bits = next(found, "")
    table = _headed("corpus", "tokens", "nats a token", *([NAMES[bits]] if bits else []))
    for row in figures:
        last = [number(row[bits])] if bits else []
        table.add_row(Text(row["corpus"]), number(row["tokens"]), number(row["loss"]), *last)
    _console().print(table)


def _print_corpora(mixed: Sequence[dict[str, Any]]) -> None:
    """What a run was trained on, as GPT-3's table has it."""
    table = _headed("trained on", "tokens", "weight in the mix", "epochs elapsed")
    for row in mixed:
        table.add_row(Text(row["corpus"]), number(row["tokens"]), percent(row["weight"]), number(row["epochs"], 2))
    _console().print(table)


def _headed(first: str, *others: str) -> Table:
    """A table of names and figures."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _print_confusion(labels: list[str], matrix: list[list[int]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for label in labels:
        table.add_column(Text(label), justify="right")
    for label, row in zip(labels, matrix, strict=True):
        table.add_row(Text(label, "bold"), *[number(count) for count in row])
    _console().print("Rows are the true labels, columns what was predicted:")
    _console().print(table)


def explained_line(answer: Any, words: Sequence[Any]) -> str:
    """A label, how sure it is, and the words that moved it most."""
    from segue.look.explain.leave_one_out import SHOWN, most_moving

    sure = [f"{max(answer.probabilities):.3f}"] if answer.probabilities else []
    console = _console()
    for most in range(SHOWN, 0, -1):
        line = "\t".join([answer.label, *sure, most_moving(words, most)])
        if not console.is_terminal or len(line.expandtabs()) <= console.width:
            break  # a terminal shows as many words as it has room for
    return line


def print_challenge(result: dict[str, Any]) -> None:
    """A row a kind of sentence, with one that the model got wrong, and the verdict."""
    table = _headed("sentences", "right", "of", "accuracy", "95 % interval")
    table.add_column("the first error")
    for kind in result["kinds"]:
        wrong = f"{kind['errors'][0]['text']} → {kind['errors'][0]['predicted']}" if kind["errors"] else ""
        figures = written(kind["accuracy"], "accuracy"), interval(kind["accuracy_ci"], "accuracy")
        table.add_row(kind["kind"], number(kind["right"]), number(kind["sentences"]), *figures, Text(wrong))
    console = _console()
    console.print(table)
    if result["unknown"]:
        console.print(Text(f"Unknown to the model, and read as such: {', '.join(result['unknown'])}."))
    console.print(Text(f"\n{result['verdict']}"))


def print_line(line: Any) -> None:
    """One scored text: a row a token, its blanks visible, and the totals; the end mark where it is scored."""
    if isinstance(line, PseudoLine):
        _print_pseudo(line)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("token")
    for heading in ("log p", "bits"):
        table.add_column(heading, justify="right")
    names = [visible(token) for token in line.tokens]
    if line.ends:
        names[-1] = "</s>"
    for token, logp, bits in zip(names, line.logprobs, line.token_bits, strict=True):
        table.add_row(Text(token), f"{logp:.4f}", f"{bits:.3f}")
    table.add_row("total", f"{line.logprob:.4f}", f"{line.bits:.3f}", style="bold")
    _console().print(table)
    _console().print(f"perplexity {number(line.perplexity)} per token")


def _print_pseudo(line: PseudoLine) -> None:
    """One text whose tokens were masked in turn."""
    table = _headed("token", "log p given the rest")
    for token, logp in zip(line.tokens, line.pseudo_log_likelihoods, strict=True):
        table.add_row(Text(visible(token)), "unknown" if logp is None else f"{logp:.4f}")
    table.add_row("pseudo-log-likelihood", f"{line.pseudo_log_likelihood:.4f}", style="bold")
    _console().print(table)
    _console().print(f"pseudo-perplexity {number(line.pseudo_perplexity)} per token; no probability of the text")


def print_paths(paths: Sequence[dict[str, Any]], count: int) -> None:
    """The best paths of a lattice, a row each, and how many there are."""
    table = _headed("path", "log p", "bits", "perplexity")
    for path in paths:
        table.add_row(Text(path["text"]), f"{path['logprob']:.4f}", f"{path['bits']:.3f}", number(path["perplexity"]))
    _console().print(table)
    _console().print(f"{count:,} path{'s' if count != 1 else ''} scored; perplexity is per token")


def print_filled(answer: Any) -> None:
    """A text with holes: for each hole its likeliest tokens, with the text that each of them makes; if there are
    several holes, last the text with all of them filled. Of a long text what stands around the hole is shown."""
    places = [found.start() for found in HOLE.finditer(answer.text)]
    for number, (place, fillers) in enumerate(zip(places, answer.holes, strict=True), 1):
        table = _headed(f"hole {number}" if len(answer.holes) > 1 else "token", "p")
        table.add_column("text")
        for filler in fillers:
            text = _around(filler.text, place)
            table.add_row(Text(visible(filler.token)), f"{filler.probability:.4f}", Text(visible(text)))
        _console().print(table)
    if len(answer.holes) > 1:
        _console().print(Text(f"filled: {visible(answer.filled)}"), soft_wrap=True)


def _around(text: str, place: int, most: int = 200) -> str:
    """A text, or of a long one so many characters around a place."""
    start = max(0, min(place - most // 2, len(text) - most))
    end = start + most
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def print_nearest(found: dict[str, list[tuple[str, float]]], digits: int = 3) -> None:
    """A column of words, and one of their cosines, scores or probabilities, for each that was asked about."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for asked in found:
        table.add_column(Text(asked), no_wrap=True)
        table.add_column("", justify="right")
    for row in zip(*found.values(), strict=True):
        table.add_row(*(cell for word, score in row for cell in (Text(word.strip()), f"{score:.{digits}f}")))
    _console().print(table)


def _shown(text: str) -> str:
    """A token on one line, its blanks and ends visible enough to be told."""
    return repr(text)[1:-1]


def print_models(groups: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]) -> None:
    """The kinds of each task, with a sentence on the task and on each kind."""
    console = _console()
    widest = max(len(kind) for _, _, kinds in groups for kind, _ in kinds)
    for place, (task, sentence, kinds) in enumerate(groups):
        console.print(Text.assemble("\n" if place else "", (task, "bold"), f": {sentence}"))
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True, min_width=widest + 2)
        table.add_column()
        for kind, what in kinds:
            table.add_row(f"  {kind}", Text(what))
        console.print(table)


def print_named(first: str, rows: Sequence[Sequence[str]], *others: str) -> None:
    """A table of names, with a sentence or two on each."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading)
    for row in rows:
        table.add_row(*map(Text, row))
    _console().print(table)


def print_lines(lines: Sequence[str]) -> None:
    """Sentences, a line each."""
    for line in lines:
        _console().print(Text(line))


def print_view(view: View) -> None:
    """A look into a model, in colour where the terminal has it."""
    console = _console()
    print(view.terminal(console.width, console.color_system is not None), file=console.file)


def print_head(text: str) -> None:
    """The head of a model's file."""
    console = _console()
    for line in laid_out(text, console.width):
        console.print(Text(line), soft_wrap=not _wraps())


NARROW = 72
"""In a terminal with fewer columns, a remark stands below its name and figure."""


def print_keys(sections: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]) -> None:
    """The sections of a recipe: each key with its value and what it is."""
    console = _console()
    for name, rows in sections:
        console.print(Text(f"\n[{name}]", "bold"))
        if console.width < NARROW:
            _print_stacked(console, [(f"{key} = {value}", doc) for key, value, doc in rows])
            continue
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", overflow="fold", max_width=20)
        table.add_column()
        for key, value, doc in rows:
            table.add_row(key, Text(value), Text(doc))
        console.print(table)


def _print_stacked(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    for head, remark in rows:
        console.print(Text(head), soft_wrap=not _wraps())
        for line in remark.split("\n") if remark else ():
            console.print(Padding(Text(line), (0, 0, 0, 4)))


def print_sections(sections: Sequence[Any]) -> None:
    """Tables of name, figure and remark."""
    console = _console()
    for section in sections:
        console.print(Text(f"\n{section.title}", "bold"))
        if console.width < NARROW:
            _print_stacked(console, [(f"{name}  {figure}", remark) for name, figure, remark in section.rows])
            continue
        table = Table(box=None, show_header=False, pad_edge=False)
        for justify in ("left", "right", "left"):
            table.add_column(no_wrap=justify == "right", justify=justify)  # type: ignore[arg-type]
        for cells in section.rows:
            table.add_row(*map(Text, cells))
        console.print(table)


def print_equations(run: Any) -> None:
    """The equation of a run's smoothing with its numbers in it, what each order holds, and an example."""
    from segue.look.explain.equations import EQUATIONS, example, holdings

    model, config, console = run.model, run.model.config, _console()
    tokens = f"{run.tokenizer.kind} tokens, V = {model.can_follow:,}"
    console.print(Text(f"{run.recipe.name}: {config.smoothing}, order {config.order}, over {tokens}\n", "bold"))
    for line in EQUATIONS[config.smoothing]:
        _print_equation(line)
    orders = holdings(model)
    for sentence in (_about_v(model), *_about_numbers(model, orders)):
        console.print(Text(sentence))
    console.print("")
    console.print(_holdings_table(orders))
    size_on_disk, ngrams = (run.path / "model.safetensors").stat().st_size, sum(one.ngrams for one in orders)
    each = f"{size_on_disk / ngrams:.1f} bytes an n-gram"
    console.print(f"model.safetensors: {size_on_disk:,} bytes for {ngrams:,} n-grams, {each}.\n")
    worked = example(model, run.tokenizer)
    after = f"after “{_shown(worked.context)}”" if worked.context else "of all"
    console.print(Text(f"The likeliest token {after} is “{_shown(worked.token)}”:\n"))
    for line in worked.lines:
        _print_equation(line)


def _print_equation(line: str) -> None:
    console = _console()
    for part in equation_lines(line, console.width, "  ") if _wraps() else [f"  {line}"]:
        console.print(Text(part), soft_wrap=not _wraps())


def _about_v(model: Any) -> str:
    """What V counts."""
    tokens = f"V counts {model.sizes.vocab_size - 2:,} tokens and STOP"
    if model.unknown_follows:
        return f"{tokens}, and UNK, for what is not in the vocabulary."
    if model.sizes.unknown == "never":
        return f"{tokens}, not UNK: these tokens can write any text."
    return (
        f"{tokens}, not UNK: every token of the text is in the vocabulary, and nothing was held out. An unknown token "
        "of another text has probability 0."
    )


def _about_numbers(model: Any, orders: Sequence[Any]) -> list[str]:
    """What the equation's symbols stand for in this model, where that is not plain."""
    config, smoothing = model.config, model.config.smoothing
    said = []
    if smoothing == "add_alpha":
        said.append(f"a = {model.alpha:.4g}, {'as given' if config.alpha else 'chosen on held-out text'}.")
    if smoothing == "interpolation":
        groups = " for contexts seen about as often" if config.buckets else " an order"
        said.append(f"One l{groups}, {'as given' if config.lambdas else 'chosen on held-out text'}.")
    if smoothing.endswith("kneser_ney") and config.order > 1:
        said.append("Below the highest order, c counts the different tokens that come before.")
    if smoothing in ("kneser_ney", "absolute_discounting") and config.discount:
        said.append("D is as given.")
    if usual := [str(one.order) for one in orders if one.usual]:
        which = f"order{'s' if len(usual) > 1 else ''} {', '.join(usual)}"
        said.append(f"The counts of {which} are too few to estimate from: the usual discounts are taken.")
    if any(config.min_count):
        said.append("Seldom n-grams were left out (model.min_count), so n1 … n4 are not known any more.")
    return said


def _holdings_table(orders: Sequence[Any]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    known = any(one.few for one in orders)
    discounts = ["D1", "D2", "D3"] if len(orders[0].discounts) == 3 else ["D"] * len(orders[0].discounts)
    lambdas = ["l"] if any(one.lambdas for one in orders) else []
    few = ["n1", "n2", "n3", "n4"] if known else []
    for heading in ("order", "n-grams", "bytes", "each", *few, *discounts, *lambdas):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in orders:
        each = f"{one.bytes / one.ngrams:.1f}" if one.ngrams else "–"
        numbers = [f"{n:,}" for n in one.few] if one.few else ["–"] * len(few)
        span = "–".join(f"{own:.3f}" for own in one.lambdas) or "–"
        cells = [*numbers, *(f"{d:.4f}" for d in one.discounts), *([span] if lambdas else [])]
        table.add_row(str(one.order), f"{one.ngrams:,}", f"{one.bytes:,}", each, *cells)
    return table


def print_runs(found: list[dict[str, Any]], folder: str, grouped: bool = True) -> None:
    """A row a run; if they are grouped, a blank line between groups, within which figures can be compared."""
    if not found:
        print(f"There are no runs in {folder}.")
        return
    console = _console()
    wide = _runs_table(found, _RUN_COLUMNS, grouped)
    needed = Measurement.get(console, console.options.update(max_width=10_000), wide).maximum
    if not console.is_terminal:
        console.width = max(console.width, needed)
    if needed <= console.width:
        console.print(wide)
    elif grouped:
        _print_groups(found)
    else:
        console.print(_runs_table(found, ("run", "value", "figure", "", "of", "date"), grouped, narrow=True))
    if grouped and sum(row["value"] is not None for row in found) > 1:
        console.print("\nFigures can be compared where no blank line stands between: the same text was scored.")
    if any(row["had_a_say"] for row in found):
        console.print(f"* The text had a say in the run: {_SAY}", soft_wrap=not _wraps())


_RUN_COLUMNS = ("run", "task", "model", "figure", "value", "", "scored on", "of", "size", "time", "date")


def _runs_table(
    found: list[dict[str, Any]], columns: Sequence[str], grouped: bool = False, narrow: bool = False
) -> Table:
    """These columns of the table of runs. Of a narrow one, only the names of runs are broken, and nothing is cut."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1 if narrow else 2, 0, 0))
    for heading in columns:
        justify: Any = "right" if heading in ("value", "size", "time") else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading != "run")
    for row, above in zip(found, [None, *found], strict=False):
        if grouped and above and row["group"] != above["group"]:
            table.add_row()
        cells = dict(zip(_RUN_COLUMNS, _run_cells(row), strict=True))
        cells["date"] = cells["date"].partition(" ")[0] if narrow else cells["date"]
        table.add_row(*(Text(cells[heading]) for heading in columns))
    return table


def _print_groups(found: list[dict[str, Any]]) -> None:
    """The runs of each text below a line that says what is the same for all of them: for narrow terminals."""
    for number, (_, rows) in enumerate(groupby(found, lambda row: row["group"])):
        group = list(rows)
        cells = [dict(zip(_RUN_COLUMNS, _run_cells(row), strict=True)) for row in group]
        of = " / ".join(dict.fromkeys(filter(None, (one["of"] for one in cells))))
        same = f"{cells[0]['task']}, {of}"
        if cells[0]["figure"]:
            same += f": {cells[0]['figure']}, {cells[0]['scored on']}"
        _console().print(Text(("\n" if number else "") + same, "bold"))
        _console().print(_runs_table(group, ("run", "model", "value", "", "size", "time", "date"), narrow=True))


_SHORT = {"mean negative log score": "−log score", "bits per byte": "bits/byte"}
"""Figures as the narrow table of runs has them."""


def _run_cells(row: dict[str, Any]) -> tuple[str, ...]:
    data = row["data"].rpartition("/")[2]
    if "damaged" in row or not row["finished"]:
        state = "damaged: result.json" if "damaged" in row else "not finished: --resume"
        return row["run"], row["task"], state, "", "", "", "", data, "", "", row["date"]
    seconds, parameters = f"{number(row['train_seconds'] or 0, 1)} s", size(row["parameters"] or 0)
    last = data, parameters, seconds, row["date"]
    model = row["model"] or ""
    if not row["figure"]:  # what was imported, or held nothing out, has none
        return row["run"], row["task"], model, "", "", "", "", *last
    say = "*" if row["had_a_say"] else ""
    scored = ", ".join(filter(None, (row["split"], row["amount"])))
    figure = _SHORT.get(row["figure"], row["figure"])
    return row["run"], row["task"], model, figure, written(row["value"], row["figure"]), say, scored, *last


def print_novelty(prompt: str, texts: list[str], report: Any) -> None:
    """Texts with what is copied underlined, or in brackets where nothing can be underlined; then how new they are."""
    console = _console()
    for i, (text, one) in enumerate(zip(texts, report.texts, strict=True)):
        if i:
            print("---")
        if console.color_system:
            shown = Text(prompt + text)
            for begin, end in one.copied:
                shown.stylize("underline", len(prompt) + begin, len(prompt) + end)
            console.print(shown, soft_wrap=True)
        else:
            print(prompt + _bracketed(text, one.copied))
    rule = f"of {report.least} characters or more, blanks not counted"
    if any(one.copied for one in report.texts):
        marked = "Underlined" if console.color_system else "⟦In brackets⟧"
        console.print(
            f"\n{marked}: copied, it stands in the training text too, in runs {rule}.\n", soft_wrap=not _wraps()
        )
    else:
        console.print(f"\nNothing is copied: no run {rule}, stands in the training text.\n", soft_wrap=not _wraps())
    console.print(_novelty_table(report))
    longest = max((one.longest for one in report.texts if one.longest), key=lambda match: match.tokens, default=None)
    if longest:
        console.print(Text(_told(longest)), soft_wrap=not _wraps())


def _bracketed(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for begin, end in reversed(spans):
        text = f"{text[:begin]}⟦{text[begin:end]}⟧{text[end:]}"
    return text


def _novelty_table(report: Any) -> Table:
    """A row a figure: of what was written, and of held-out text where there is some."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    columns = [report.written, *([report.held_out] if report.held_out else [])]
    for heading in ("written", "held-out text")[: len(columns)]:
        table.add_column(heading, justify="right")
    mean = " (mean)" if len(report.texts) > 1 else ""
    table.add_row("copied", *[percent(column.copied) for column in columns])
    table.add_row(
        f"longest match{mean}, tokens",
        *[f"{column.longest:.{1 if i or mean else 0}f}" for i, column in enumerate(columns)],
    )
    for n in report.written.new:
        shares = [percent(column.new[n]) if n in column.new else "–" for column in columns]
        table.add_row(f"new {n}-grams", *shares)
    return table


def _told(match: Any) -> str:
    """The longest match in a sentence."""
    text = repr(match.text)[1:-1]
    shown = text if len(text) <= 100 else f"{text[:60]} … {text[-37:]}"
    prompt = f" after {match.prompt_tokens} of the prompt" if match.prompt_tokens else ""
    times = f"{match.times:,} times, first in" if match.times > 1 else "once, in"
    place = f"{match.path}:{match.line}" if match.line else match.path
    return f"The longest match, {match.tokens:,} tokens{prompt}, is in the training text {times} {place}: “{shown}”"
