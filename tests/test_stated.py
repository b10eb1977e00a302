"""Figures that README and docs state: the cheapest are computed anew, a stale one fails (benchmarks/stated.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stated
from stated import FIGURES, Figure

ROOT = Path(__file__).parent.parent


def test_the_cheapest_figures_are_as_stated(capsys: pytest.CaptureFixture[str]) -> None:
    assert stated.main(["--cheapest"]) == 0
    said = capsys.readouterr().out
    assert "None is off" in said and {line.split()[0] for line in said.splitlines()} >= {"intervals", "grammar-ngram"}


def test_a_stale_figure_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    (tmp_path / "docs").mkdir()
    figure = next(one for one in FIGURES if one.name == "grammar-ngram")
    (number,) = stated.stated(figure, ROOT)
    changed = page.replace(f"| n-gram {number} %", f"| n-gram {float(number) - 0.1:.2f} %")
    assert changed != page
    (tmp_path / "docs" / "figures.md").write_text(changed, encoding="utf-8")
    assert stated.main(["--only", figure.name, "--pages", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "OFF" in said and "1 off: grammar-ngram" in said


@pytest.mark.parametrize("figure", FIGURES, ids=[figure.name for figure in FIGURES])
def test_a_figure_is_found_in_its_page(figure: Figure) -> None:
    numbers = stated.stated(figure, ROOT)
    assert len(numbers) == figure.pattern.count("#") and all(stated.number(one) >= 0 for one in numbers)


def test_a_page_that_does_not_state_a_figure_is_told(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"README.md does not state 'x'"):
        stated.stated(Figure("x", "README.md", "about #", lambda folder: []), tmp_path)


@pytest.mark.parametrize(
    ("text", "found", "off", "right"),
    [
        ("0.43", 0.4349, 0, True),
        ("0.43", 0.4351, 0, False),
        ("1,234", 1233.6, 0, True),
        ("1,234", 1235, 0, False),
        ("1.82", 1.838, 0.01, True),
        ("1.82", 1.80, 0.01, True),
        ("1.82", 1.85, 0.01, False),
    ],
)
def test_a_number_may_be_off_by_its_rounding_and_a_share(text: str, found: float, off: float, right: bool) -> None:
    assert stated.compared(text, found, off).right is right


def test_every_script_of_the_figures_is_computed_or_listed() -> None:
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    scripts = {
        name for row in page.splitlines() if row.startswith("| ") for name in re.findall(r"benchmarks/(\w+\.py)", row)
    }
    assert scripts <= {figure.script for figure in FIGURES} | set(stated.ELSEWHERE)
    assert all((ROOT / "benchmarks" / script).exists() for script in stated.ELSEWHERE)
