"""The lectures' claims: runs every one and writes docs/claims.md with its table and picture, and what came of it.

    python benchmarks/claims.py [FOLDER [NAME …]]

The runs go to FOLDER (by default runs/claims); what is trained there already is not trained again. With names only
these claims are run, and the others stay on the page as they are. What is said below a picture in docs/claims.md by
hand, after a line that begins with "Here", stays.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from segue.errors import InputError
from segue.inference.evaluation import NAMES
from segue.runs.experiments.claim import claim_names, run_claim

DOCS = Path(__file__).parent.parent / "docs"
HEAD = """# The lectures' claims, tried

`segue claim NAME` makes each of these tables and pictures: it trains the variants on built-in text, scores them on the
same held-out part of it, and says whether the claim held. A comparison holds if the test of `segue compare --seeds` is
clear (p < 0.05), which counts the chance of the text and that of training; one variant is as good as another if the
interval of its difference lies below the claim's margin. The 95 % interval is mostly that of the text, which moves all
variants alike: it is much wider than their differences.

Budgets are in steps, so that the figures can be made again; the seconds depend on the machine. Models and budgets are
small, for two cores and a few minutes, and where a claim needs its own ground to show itself, the settings were chosen
so; what was seen elsewhere is said below the picture. `length` trains nothing: it times single steps on the machine
that it runs on. The settings are in `src/segue/recipes/claims/NAME.toml`; a file of your own like these works as well.
`python benchmarks/claims.py` makes this page.
"""


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/claims")
    page = DOCS / "claims.md"
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    parts, asked = [HEAD], sys.argv[2:] or claim_names()
    for name in claim_names():
        if name not in asked:
            parts.extend(standing(old, name))
            continue
        try:
            result = run_claim(name, out=folder / name)
        except InputError as error:  # labelled-rows and others need runs, which their files say how to train
            print(f"{name}: left out. {error}", flush=True)
            parts.extend(standing(old, name))
            continue
        shutil.copy(result["picture"], DOCS / "pictures" / f"claim-{name}.svg")
        parts.append(section(name, result, remark(old, name)))
        print(f"{name}: {result['verdict']}", flush=True)
    page.write_text("\n".join(parts), encoding="utf-8")


def standing(page: str, name: str) -> list[str]:
    """The section of a claim as it stands on the page, if it does."""
    found = re.search(rf"^## {name}\n.*?(?=^## |\Z)", page, re.M | re.S)
    return [found[0].rstrip("\n") + "\n"] if found else []


def section(name: str, result: dict[str, Any], said: str) -> str:
    """One claim: what it says, the table, the verdict, the picture, and what was said about it by hand."""
    head, cells = (result["table"]["head"], result["table"]["rows"]) if "table" in result else variants(result)
    rows = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    rows += [f"| {' | '.join(row)} |" for row in cells]
    best = result.get("best_possible")
    lines = [f"## {name}", "", result["says"], "", *rows, ""]
    lines += [f"The best possible is {best:.3f}.", ""] if best is not None else []
    lines += [
        f"**{result['verdict']}** {' '.join(result.get('details', []))}".rstrip(),
        "",
        f"![{name}](pictures/claim-{name}.svg)",
        "",
    ]
    return "\n".join([*lines, *([said, ""] if said else [])])


def variants(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The table of a claim that trains variants."""
    numbered, figure = result["against"] not in ("steps", "parameters"), result["figure"]
    head = ["variant", *([result["against"]] if numbered else []), NAMES.get(figure, figure), "95 % interval", "seeds"]
    return [*head, "parameters", "seconds"], [cells(row, figure, numbered) for row in result["rows"]]


def cells(row: dict[str, Any], figure: str, numbered: bool) -> list[str]:
    place = [f"{row['number']:,.0f}" if row["number"] >= 100 else f"{row['number']:.3g}"] if numbered else []
    if row[figure] is None:
        return [row["variant"], *place, "diverged", "–", "–", "–", "–"]
    low, high = row[f"{figure}_ci"]
    seeds = f"{min(row['seeds']):.3f}–{max(row['seeds']):.3f}"
    figures = [f"{row[figure]:.3f}", f"{low:.3f}–{high:.3f}", seeds, f"{row['parameters']:,}"]
    return [row["variant"], *place, *figures, f"{row['train_seconds']:.0f}"]


def remark(page: str, name: str) -> str:
    """What a person said at the end of a claim's section."""
    found = re.search(rf"^## {name}\n(?:(?!## )[^\n]*\n)*?(Here.*?)(?=\n## |\Z)", page, re.M | re.S)
    return found[1].strip() if found else ""


if __name__ == "__main__":
    main()
