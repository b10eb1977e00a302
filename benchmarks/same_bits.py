"""Shows that behaviour stays: ten recipes give the same tensors and figures as they did at an earlier commit.

Each recipe is trained by `python -m segue train` in a checkout of the commit and in the working tree, on the CPU with
one thread. Every tensor of model.safetensors must be equal bit for bit, every figure of result.json equal except
timings, and every setting of recipe.toml equal, under the tables of new names below. What the commit gave is kept in
the temporary folder, so that a second run trains in the working tree alone.

Usage: python benchmarks/same_bits.py [COMMIT [RECIPE ...]]
"""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

COMMIT = "8e677eb9af6ec42c027184034b4dda1c536b5c66"
"""The last commit with the old names of the two tables."""

TENSOR_NAMES: dict[str, str] = {
    "embedding": "vectors",
    "word.embedding": "word.vectors",
    "rnn_seq2seq: target_vectors": "vectors",
    "class_ngram: weights.still": "weights.static",
    "weighted_ngram: still": "static",
}
"""Old names of tensors, or the first parts of names, and the new ones. "kind: name" holds for that kind alone."""

RECIPE_KEYS: dict[str, tuple[str, ...]] = {
    "": ("batches.tokens", "data.carry"),
    "batches.blank": ("", "batches.noise", "batches.share"),
    "data.blank": ("data.blank_lines",),
    "ngram: model.arpa": ("",),
    "rnn_seq2seq: model.context": ("model.feeds",),
    "neural_lm: model.context": ("model.words",),
}
"""Old recipe keys and the new ones. The first new key has the old value, none where it is empty; further ones came with
it. Keys that replace nothing stand at "". "kind: key" holds for that kind alone."""

TIMINGS = {"train_seconds", "tokens_per_second"}
ADDED = {"figure"}
"""Keys of result.json that were not there at the commit: they are names, not figures."""

STEPS = "train.steps=20"
SMALL = "model.width=48"
RECIPES: dict[str, tuple[Any, ...]] = {
    "ngram/kn7": ("pydoc",),
    "rnn_lm/lstm": ("text.txt", STEPS, SMALL, "train.seed=3"),
    "rnn_lm/paper": (
        *("words.txt", STEPS, SMALL, "model.embedding=24", "batches.size=8", "batches.length=20"),
        *("train.epochs=0", "train.optimizer.average=1", "train.every=4"),
    ),
    "gpt/rotary": (
        "text.txt",
        STEPS,
        SMALL,
        "batches.size=8",
        ("batches.blank=0.1", "batches.noise=blank batches.share=0.1"),
    ),
    "neural_lm": ("text.txt", STEPS, SMALL),
    "word2vec": ("words.txt", "model.width=24"),
    "nbsvm": ("labelled.tsv",),
    "cnn_classifier": ("labelled.tsv", STEPS, "batches.size=16"),
    "rnn_tagger/crf": ("tagged.conll", STEPS, SMALL),
    "rnn_seq2seq": ("pairs.tsv", STEPS, SMALL, "batches.size=16", "tokens.vocab_size=300"),
}
"""Recipes with their data and settings, in the new names; where a setting is a pair, as it was and as it is."""

ROOT = Path(__file__).resolve().parent.parent


def main(commit: str, names: list[str]) -> int:
    commit = _git("rev-parse", "--short=12", f"{commit}^{{commit}}")
    print_names()
    kept = Path(tempfile.gettempdir()) / f"segue-same-bits-{commit}"
    data = kept / "data"
    write_data(data)
    train_old(commit, names, data, kept)
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            new = Path(folder) / slug(name)
            train(ROOT, command(name, data, old=False), new)
            found = list(differences(name.partition("/")[0], kept / slug(name), new))
            count = len(load_file(new / "model.safetensors"))
            print(f"{name:<16} " + ("; ".join(found) if found else f"same: {count} tensors, figures and settings"))
            differ += bool(found)
    print(f"{len(names) - differ} of {len(names)} recipes give the same as at {commit}")
    return 1 if differ else 0


def print_names() -> None:
    for old, new in TENSOR_NAMES.items():
        print(f"tensor: {old} -> {new}")
    for old, keys in RECIPE_KEYS.items():
        print(f"recipe key: {old or '(none)'} -> {', '.join(filter(None, keys)) or '(none)'}")


# Data: small files out of Python's language reference


def write_data(folder: Path) -> None:
    """Running text, running words, labelled rows, tagged sentences and pairs of texts."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))[:60_000]
    sentences = [line.split() for line in text.splitlines() if len(line.split()) > 3]
    labelled = [f"{'long' if len(' '.join(words)) > 60 else 'short'}\t{' '.join(words)}" for words in sentences]
    tagged = ["\n".join(f"{word}\t{'NAME' if word[0].isupper() else 'OTHER'}" for word in words) for words in sentences]
    pairs = [f"{' '.join(words[:6])}\t{' '.join(reversed(words[:6]))}" for words in sentences[:400]]
    (folder / "text.txt").write_text(text, encoding="utf-8")
    (folder / "words.txt").write_text("\n".join(" ".join(words) for words in sentences), encoding="utf-8")
    (folder / "labelled.tsv").write_text("\n".join(["label\ttext", *labelled]), encoding="utf-8")
    (folder / "tagged.conll").write_text("\n\n".join(tagged), encoding="utf-8")
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]), encoding="utf-8")


# Training in either tree


def train_old(commit: str, names: list[str], data: Path, kept: Path) -> None:
    """Trains in a checkout of the commit what is not kept from an earlier run with the same command."""
    wanted = {name: command(name, data, old=True) for name in names}
    missing = [name for name in names if not _is_kept(kept / slug(name), wanted[name])]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            for name in missing:
                train(tree, wanted[name], kept / slug(name))
                (kept / slug(name) / "command.json").write_text(json.dumps(wanted[name]), encoding="utf-8")
        finally:
            _git("worktree", "remove", "--force", str(tree))


def command(name: str, data: Path, old: bool) -> list[str]:
    source, *settings = RECIPES[name]
    words = [str(data / source) if "." in source else source]
    for setting in settings:
        if isinstance(setting, str):
            key, _, value = setting.partition("=")
            words.append(f"{old_key(name.partition('/')[0], key) if old else key}={value}")
        else:
            words += setting[0 if old else 1].split()
    return [name, *words]


def train(tree: Path, arguments: list[str], out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    line = [sys.executable, "-m", "segue", "train", *arguments, "--out", str(out), "--device", "cpu", "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)} failed in {tree}:\n{done.stderr}")


def _is_kept(run: Path, arguments: list[str]) -> bool:
    path = run / "command.json"
    return path.exists() and bool(json.loads(path.read_text(encoding="utf-8")) == arguments)


def slug(name: str) -> str:
    return name.replace("/", "-")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


# Names


def old_key(kind: str, key: str) -> str:
    """What the commit calls a key of this kind's recipe."""
    for old, new in RECIPE_KEYS.items():
        prefix, _, rest = old.rpartition(": ")
        if prefix in ("", kind) and new[:1] == (key,) and rest:
            return rest
    return key


def new_tensor(kind: str, name: str) -> str:
    """What the working tree calls a tensor: the longest first part of the name that the table has is replaced."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        first, rest = ".".join(parts[:length]), parts[length:]
        for entry in (f"{kind}: {first}", first):
            if entry in TENSOR_NAMES:
                return ".".join([TENSOR_NAMES[entry], *rest])
    return name


def new_settings(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The commit's settings under the new keys. Keys that came with a new one have the value that they have now."""
    came = set(RECIPE_KEYS[""])
    settings = {}
    for key, value in old.items():
        first, *others = RECIPE_KEYS.get(f"{kind}: {key}", RECIPE_KEYS.get(key, (key,)))
        came.update(others)
        if first:
            settings[first] = value
    settings.update({key: new[key] for key in came & new.keys()})
    return settings


# Comparison


def differences(kind: str, old: Path, new: Path) -> Iterator[str]:
    tensors = {new_tensor(kind, name): tensor for name, tensor in load_file(old / "model.safetensors").items()}
    yield from _differences("tensor", tensors, load_file(new / "model.safetensors"), same_tensor)
    now = _settings(new)
    yield from _differences("setting", new_settings(kind, _settings(old), now), now, same_value)
    yield from _differences("figure", _figures(old), _figures(new), same_value)


def _differences(
    what: str, old: Mapping[str, Any], new: Mapping[str, Any], same: Callable[[Any, Any], bool]
) -> Iterator[str]:
    yield from (f"{what} {name} is gone" for name in sorted(old.keys() - new.keys()))
    yield from (f"{what} {name} is new" for name in sorted(new.keys() - old.keys()))
    yield from (f"{what} {name} differs" for name in sorted(old.keys() & new.keys()) if not same(old[name], new[name]))


def same_tensor(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Bits, not values: a NaN equals itself, and -0.0 is not 0.0."""
    if old.dtype != new.dtype or old.shape != new.shape:
        return False
    return torch.equal(old.reshape(-1).view(torch.uint8), new.reshape(-1).view(torch.uint8))


def same_value(old: Any, new: Any) -> bool:
    """Equal as they are written: a NaN equals itself."""
    return json.dumps(old) == json.dumps(new)


def _settings(run: Path) -> dict[str, Any]:
    return dict(_flat(tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))))


def _figures(run: Path) -> dict[str, Any]:
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    return {key: value for key, value in _flat(result) if key not in TIMINGS | ADDED}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else COMMIT, sys.argv[2:] or list(RECIPES)))
