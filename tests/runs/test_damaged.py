"""A run whose files were damaged or made by others is refused with one message, and never crashes the process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.errors import InputError, SegueError
from segue.ngrams.model_file import Arrays, write_arrays
from segue.runs.folder import sums_of

LINES = ["the cow eats green grass", "a dog barks at my old cat", "the cat sleeps on mats", "rain and sun all day"] * 6
ROWS = [(line, ["no", "yes", "so"][i % 3]) for i, line in enumerate(LINES)]
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ngram": (LINES, {"model.order": 3}),
    "weighted_ngram": (LINES, {"model.order": 3}),
    "class_ngram": (LINES, {"tokens.kind": "word", "tokens.min_count": 1, "model.classes": 3}),
    "word2vec": (LINES, {"model.width": 3, "train.epochs": 1, "train.threads": 1, "tokens.min_count": 1}),
    "naive_bayes": (ROWS, {}),
    "nbsvm": (ROWS, {"model.cost": 0.1}),
    "ngram_bag": (ROWS, {"model.cost": 0.1, "model.pairs": 3}),
    "bow": (ROWS, {"train.steps": 1}),
}
ANY_BITS = ("more_counts", "contexts.keys", "pairs.keys")
"""Ends of the names of arrays whose numbers may be any: counts, and the bits of hashes."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    for kind, (data, settings) in KINDS.items():
        segue.train(kind, data, folder / kind, settings, device="cpu")
    return folder


def resummed(run: Path) -> None:
    """Make the sums fit, so that they do not stand before the other checks."""
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"files": sums_of(run)}))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bow"])
def test_no_array_is_used_that_leaves_its_bounds(runs: Path, tmp_path: Path, kind: str) -> None:
    """Each array by itself filled with the greatest number, or NaN. Before, most of these ended the process."""
    shutil.copytree(runs / kind, tmp_path / "run")
    whole = {name: np.array(array) for name, array in Arrays.of(runs / kind / "model.safetensors").found.items()}
    for name, array in whole.items():
        if not array.size or name.rpartition(".")[0].endswith(ANY_BITS) or name.endswith(ANY_BITS):
            continue
        most = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max
        bad = np.full_like(array, most // 2 if name == "text" else most)  # the greatest, read with a sign, is -1
        write_arrays(tmp_path / "run" / "model.safetensors", whole | {name: bad})
        resummed(tmp_path / "run")
        with pytest.raises(InputError, match="is damaged or not of this run"):
            segue.load(tmp_path / "run")


def test_siblings_that_go_round_in_a_circle_are_refused(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "weighted_ngram", tmp_path / "run")
    whole = {k: np.array(v) for k, v in Arrays.of(tmp_path / "run" / "model.safetensors").found.items()}
    first = int(whole["nodes"][0, 3])
    whole["nodes"][first, 4] = first  # the next sibling of the first child is itself
    write_arrays(tmp_path / "run" / "model.safetensors", whole)
    resummed(tmp_path / "run")
    with pytest.raises(InputError, match="not a tree"):
        segue.load(tmp_path / "run")


def test_weights_of_a_network_are_finite_and_of_its_shape(runs: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    shutil.copytree(runs / "bow", tmp_path / "run")
    weights = tmp_path / "run" / "model.safetensors"
    whole = load_file(weights)
    name = max(whole, key=lambda name: whole[name].size)
    for bad, said in ((np.full_like(whole[name], np.nan), "NaN or infinite"), (whole[name][1:], "expected")):
        save_file(whole | {name: np.ascontiguousarray(bad)}, weights)
        resummed(tmp_path / "run")
        with pytest.raises(InputError, match=said):
            segue.load(tmp_path / "run")


def test_a_changed_file_is_known_by_its_sum(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "bow", tmp_path / "run")
    for name in ("model.safetensors", "tokenizer.json"):
        path = tmp_path / "run" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(InputError, match=f"{name} is damaged: it has changed since the run was finished"):
            segue.load(tmp_path / "run")
        path.write_bytes(content)
    segue.load(tmp_path / "run")


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": {"vocab_size": "9"}},
        {"sizes": {"classes": 10**30}},
        {"sizes": {"classes": 1}},
        {"sizes": {"marks": 3}},
        {"sizes": {"stop": 1}},
        {"labels": [1, 2, 3]},
        {"labels": ["a"]},
        {"files": []},
        {"files": {"model.safetensors": 1}},
    ],
)
def test_values_of_config_json_are_checked_by_type(runs: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    shutil.copytree(runs / "bow", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | change | {"sizes": config["sizes"] | change.get("sizes", {})}))
    with pytest.raises(InputError, match="damaged"):
        segue.load(tmp_path / "run")


@pytest.mark.parametrize("name", ["ledger.json", "result.json"])
@pytest.mark.parametrize("text", ["[]", "{}", '{"files": [1], "model": 3}', "[" * 100_000])
def test_other_json_at_resume_gets_a_message(runs: Path, tmp_path: Path, name: str, text: str) -> None:
    shutil.copytree(runs / "naive_bayes", tmp_path / "run")
    (tmp_path / "run" / name).write_text(text)
    if name == "ledger.json":
        (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(InputError, match=f"{name} is damaged"):
        segue.train(None, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("line", [b'{"a": 1}', b"[1]", b'{"step": "x", "kind": "train"}'])
def test_other_lines_of_metrics_get_a_message(runs: Path, tmp_path: Path, line: bytes) -> None:
    shutil.copytree(runs / "bow", tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe half a line\n" + line + b"\n")
    with pytest.raises(InputError, match=r"metrics.jsonl:\d+ is damaged"):
        segue.train(None, out=tmp_path / "run", settings={"train.steps": 2}, resume=True, device="cpu")


@pytest.mark.parametrize(("old", "new"), [('name = "muon"', 'name = "sgd"'), ('name = "muon"', 'name = "adamw"')])
def test_a_checkpoint_of_another_optimiser_is_refused(runs: Path, tmp_path: Path, old: str, new: str) -> None:
    """torch's kernels would write beyond its tensors."""
    shutil.copytree(runs / "bow", tmp_path / "run")
    recipe = tmp_path / "run" / "recipe.toml"
    text = recipe.read_text()
    new = new if old in text else 'name = "muon"'
    recipe.write_text(text.replace(old if old in text else 'name = "adamw"', new))
    with pytest.raises(InputError, match=r"does not fit .*recipe.toml .*optimiser"):
        segue.train(None, out=tmp_path / "run", settings={"train.steps": 2}, resume=True, device="cpu")


def test_training_that_diverged_does_not_finish(tmp_path: Path) -> None:
    settings = {"model.width": 5, "train.epochs": 1, "train.rate": 5000.0, "tokens.min_count": 1, "train.threads": 1}
    with pytest.raises(SegueError, match=r"diverged with train.rate=5000") as told:
        segue.train("word2vec", LINES, tmp_path / "v", settings)
    assert told.value.exit_code == 1 and not (tmp_path / "v" / "result.json").exists()
    settings = {"train.steps": 3, "train.optimizer.rate": 1e30, "model.width": 4}
    with pytest.raises(SegueError, match=r"diverged|NaN") as told:
        segue.train("rnn_lm", LINES, tmp_path / "r", settings, device="cpu")
    assert told.value.exit_code == 1 and not (tmp_path / "r" / "result.json").exists()
