"""README and docs tell the truth: every block of commands runs, every name and file in them exists.

A block that names what another block makes (`--out runs/lstm`, `> reviews.tsv`) starts from a copy of that block's
folder. So every block runs once, whatever the order of the tests and however many workers share them.
`make docs-test` runs the blocks that take longer, which are marked ```sh slow.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "segue"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(sh|python)( slow)?\n(.*?)^```$", re.S | re.M)
MADE = re.compile(r"(?:--out |> )([\w./-]+)")
SHELL = """set -euo pipefail
segue() { "$PYTHON" -m segue "$@"; }
torchrun() { "$PYTHON" -m torch.distributed.run "$@"; }
"""
SAYS = {
    "segue evaluate runs/ngram": "bits per byte",
    "runs/lstm --resume": "finished before",
    "segue evaluate runs/reviews --json": '"accuracy"',
    "segue compare": "The page:",
    'predict(["a fine one"])': "good",
}
"""Commands, and what a block that has them prints."""


class Block(NamedTuple):
    """Commands of one page, from one fence to the next."""

    page: str
    line: int
    language: str
    slow: bool
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def makes(self) -> set[str]:
        return set(MADE.findall(self.code))

    def needs(self) -> list[Block]:
        """The blocks that make what this one names: on the same page if one there does, else the first in the docs."""
        makers: dict[str, Block] = {}
        for block in sorted(BLOCKS, key=lambda block: block.page != self.page):
            for name in block.makes - self.makes:
                if re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w-])", self.code):
                    makers.setdefault(name, block)
        return list(dict.fromkeys(makers.values()))


def read_blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(path.name, text.count("\n", 0, found.start()) + 1, found[1], bool(found[2]), found[3])
        for found in FENCE.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in read_blocks(page)]
CHOSEN = [block for block in BLOCKS if block.slow == (os.environ.get("DOCS") == "slow")]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all workers of this session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "docs"
    folder.mkdir(exist_ok=True)
    return folder


def run_block(block: Block, shared: Path) -> Path:
    """Runs a block in a folder of its own, unless that was done before; returns the folder."""
    folder = shared / f"{Path(block.page).stem}-{block.line}"
    output = folder.with_suffix(".output")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            folder.mkdir()
            for needed in block.needs():
                shutil.copytree(run_block(needed, shared), folder, dirs_exist_ok=True)
            output.write_text(_run(block, folder), encoding="utf-8")
    return folder


def _run(block: Block, folder: Path) -> str:
    program = ["bash", "-c", SHELL + block.code] if block.language == "sh" else [sys.executable, "-c", block.code]
    own = {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src"), "HOME": str(folder)}
    done = subprocess.run(program, cwd=folder, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, f"{block} ends with {done.returncode}: {done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("block", CHOSEN, ids=str)
def test_a_block_runs(block: Block, shared: Path) -> None:
    output = run_block(block, shared).with_suffix(".output").read_text(encoding="utf-8")
    for command, said in SAYS.items():
        assert command not in block.code or said in output, f"{command} did not say {said}"


def test_every_verb_has_an_example() -> None:
    from segue.cli import app

    verbs = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    shown = {verb for page in PAGES for verb in re.findall(r"segue (\w+)", page.read_text(encoding="utf-8"))}
    assert verbs <= shown


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_script_of_the_figures_exists() -> None:
    text = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| figure")]
    assert len(rows) > 20
    for row in rows:
        scripts = re.findall(r"`(benchmarks/\w+\.py)`", row.split("|")[-2])
        assert scripts, f"no script for: {row}"
        assert all((ROOT / script).exists() for script in scripts), row


def test_the_routes_of_the_api_are_those_of_the_server() -> None:
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    source = (SOURCE / "serve" / "app.py").read_text(encoding="utf-8")
    routes = {f"{method.upper()} {path}" for method, path in re.findall(r'@app\.(get|post)\("(/api/[^"]+)"', source)}
    assert routes == set(re.findall(r"`((?:GET|POST) /api/\w+)`", text))


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """docs/make.py, which writes the generated pages."""
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs" / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_keys_of_recipes_are_up_to_date(maker: ModuleType) -> None:
    assert (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8") == maker.recipes_page(), "run: make docs"


def test_the_tree_and_the_map_are_up_to_date(maker: ModuleType) -> None:
    house, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/house.md", "README.md"))
    assert house == maker.house_page(house), "run: make docs"
    assert readme == maker.readme_page(readme), "run: make docs"


def test_the_house_names_every_file_with_its_folder() -> None:
    text = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    for path in sorted(SOURCE.rglob("*.py")):
        if path.stat().st_size:
            assert f"`{path.relative_to(SOURCE).as_posix()}`" in text, f"{path} is not in docs/house.md"
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (SOURCE / name).exists() or (ROOT / name).exists(), f"docs/house.md names {name}"


def source_words(path: Path) -> str:
    """A file's text in lower case, with a blank for each underscore, line break, hash sign and backslash."""
    return " ".join(re.sub(r"[#\\_]", " ", path.read_text(encoding="utf-8")).lower().split())


TERMS = re.findall(
    r"^\| ([^|]+) \| `([^`]+)` \| [^|]+ \|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M
)


def test_the_glossary_is_long_enough_and_sorted() -> None:
    names = [term.lower() for term, _ in TERMS]
    assert len(names) >= 60
    assert names == sorted(names)


@pytest.mark.parametrize(("term", "file"), TERMS, ids=[term for term, _ in TERMS])
def test_a_term_is_found_in_its_file(term: str, file: str) -> None:
    """Whoever greps for the textbook's word finds the file."""
    assert term.lower() in source_words(SOURCE / file), f"{file} does not say {term}"
