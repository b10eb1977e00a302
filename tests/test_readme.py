"""The README tells the truth: its commands run, its tree is the tree, its quiz has answers, its demo is the demo."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_every_command_runs(tmp_path: Path) -> None:
    commands = ['segue() { "$PYTHON" -m segue "$@"; }', 'torchrun() { "$PYTHON" -m torch.distributed.run "$@"; }']
    script = "\n".join(["set -euo pipefail", *commands, *blocks("sh")])
    environment = {
        "PYTHON": sys.executable,
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    for told in ("bits per byte", "finished before", '"accuracy"', "The page:"):
        assert told in done.stdout


def test_every_verb_has_an_example() -> None:
    from segue.cli import app

    verbs = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    shown = set(re.findall(r"segue (\w+)", README))
    assert verbs <= shown


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip().endswith("good")


def test_the_tree_names_every_file() -> None:
    for path in sorted((ROOT / "src" / "segue").rglob("*.py")):
        if path.name not in ("__init__.py", "__main__.py"):
            assert path.name in README, f"{path.name} is not in the README's tree"
    for name in set(re.findall(r"\b(\w+\.py)\b", README)):
        places = [*ROOT.glob(f"src/segue/**/{name}"), *ROOT.glob(f"benchmarks/{name}")]
        assert places, f"{name} is in the README and not in the tree"


def test_the_quiz_has_its_answers() -> None:
    rows = re.findall(r"\| `(src/[^`]+)`, `([^`]+)`", (ROOT / "docs" / "quiz.md").read_text(encoding="utf-8"))
    assert len(rows) >= 20
    for file, name in rows:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        names |= {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        names |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        assert set(name.split(".")) <= names, f"{file} has no {name}"


def test_ci_calls_only_what_the_readme_names() -> None:
    called = re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), re.M)
    assert "test" in called
    assert all(f"make {target}" in README for target in called)
