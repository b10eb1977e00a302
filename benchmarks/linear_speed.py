"""Linear classifiers against scikit-learn's pipelines of the same features, and against fastText, on the same rows.

    SEGUE_DATA=… FASTTEXT_PYTHON=path/to/python python benchmarks/linear_speed.py [PAIRS]

Rows are those of MR (SEGUE_DATA/sentclass), nine tenths to learn from; without SEGUE_DATA they are made by seed. Timed
is what takes a list of texts to a trained model, and to the labels of the rows, several times over; both warm, one
after the other, pair by pair. FASTTEXT_PYTHON can import fasttext; without it its part is left out.
"""

from __future__ import annotations

import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COPIES = 10_000, 5
COST = 0.3


def rows() -> tuple[list[str], list[str]]:
    """Texts and labels, in an order by chance."""
    texts, labels = [], []
    if "SEGUE_DATA" in os.environ:
        path = Path(os.environ["SEGUE_DATA"]) / "sentclass" / "mr.all.tsv.xz"
        with lzma.open(path, "rt", encoding="utf8", newline="\n") as file:
            for line in file:
                label, text = line.rstrip("\n").split("\t")
                texts.append(text)
                labels.append(label)
    else:
        draw = np.random.default_rng(0)
        p = 1 / np.arange(1, 20_001)
        for i in range(ROWS):
            words = draw.choice(20_000, 20, p=p / p.sum()) * 2 + (draw.random(20) < 0.1) * (i % 2)
            texts.append(" ".join(f"w{word}" for word in words))
            labels.append(str(i % 2))
    order = np.random.default_rng(1).permutation(len(texts))
    return [texts[i] for i in order], [labels[i] for i in order]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    made = work()
    return time.perf_counter() - begun, made


def ours(kind: str, tokens: str, settings: dict[str, Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(train, predict): as a run does it, without the run's folder and page."""
    from functools import partial

    from segue.batches.codec import Codec, Sizes
    from segue.batches.encode import encode
    from segue.data.config import Config as Data
    from segue.data.example import Example
    from segue.inference.decode_settings import Config as Decode
    from segue.inference.opened import Opened
    from segue.models import model_class
    from segue.tasks.classify import TASK, WHOLE
    from segue.tokens.tokenizer import Config, Tokenizer

    def train(texts: list[str], labels: list[str]) -> Opened:
        names = tuple(sorted(set(labels)))
        tokenizer = Tokenizer.train(Config(kind=tokens), (" " + text for text in texts))  # type: ignore[arg-type]
        examples = [Example(text=text, label=label) for text, label in zip(texts, labels, strict=True)]
        with tempfile.TemporaryDirectory() as folder:
            codec = Codec(tokenizer, names, Data(), Sizes(tokenizer.vocab_size, len(names)))
            store = encode(examples, partial(TASK.encode, codec=codec), tokenizer, Path(folder)).store
            cls: Any = model_class(kind)
            model = cls(cls.Config(**settings), codec.sizes)
            list(model.fit(store, cls.Train()))
        return Opened(model, codec, Decode(), WHOLE, TASK)

    def predict(opened: Opened, texts: list[str]) -> list[str]:
        return [answer.label for answer in TASK.predict(opened, (Example(text=text) for text in texts))]

    return train, predict


def theirs(kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    def train(texts: list[str], labels: list[str]) -> Any:
        words: dict[str, Any] = {"ngram_range": (1, 2), "token_pattern": r"[^\s]+"}
        if kind == "naive_bayes":
            pipeline = make_pipeline(CountVectorizer(binary=True, lowercase=False, **words), MultinomialNB())
        else:
            features = [TfidfVectorizer(sublinear_tf=True, **words)]
            if kind == "words and characters":
                features.append(TfidfVectorizer(sublinear_tf=True, ngram_range=(2, 5), analyzer="char"))
            pipeline = make_pipeline(make_union(*features), LinearSVC(C=COST, tol=0.01))
        return pipeline.fit(texts, labels)

    def predict(pipeline: Any, texts: list[str]) -> list[str]:
        return [str(label) for label in pipeline.predict(texts)]

    return train, predict


def against(name: str, us: tuple[Any, Any], them: tuple[Any, Any], data: Any, pairs: int) -> None:
    """Both, `pairs` times in turn; the medians of the ratios."""
    texts, labels, held, truth = data
    many = held * COPIES
    ratios: dict[str, list[float]] = {"train": [], "predict": []}
    for pair in range(pairs + 1):
        seconds: dict[str, list[float]] = {"train": [], "predict": []}
        accuracies = []
        for train, predict in (us, them):
            spent, model = timed(lambda train=train: train(texts, labels))
            seconds["train"].append(spent)
            spent, found = timed(lambda predict=predict, model=model: predict(model, many))
            seconds["predict"].append(spent)
            accuracies.append(100 * float(np.mean([a == b for a, b in zip(found, truth * COPIES, strict=True)])))
        if pair:  # the first one warms both up
            for what, (mine, other) in seconds.items():
                ratios[what].append(mine / other)
    own, other = seconds["train"]
    print(
        f"{name}: training {statistics.median(ratios['train']):.2f} of the peer's time, predicting "
        f"{statistics.median(ratios['predict']):.2f} (at most 1); last pair {own:.2f} s and {other:.2f} s; accuracy "
        f"{accuracies[0]:.1f} and {accuracies[1]:.1f}",
        flush=True,
    )


FASTTEXT = """
import json, os, sys, time, fasttext
fasttext.FastText.eprint = lambda *a, **k: None
training, held = json.loads(sys.stdin.readline())
for line in sys.stdin:
    if line.startswith("train"):
        begun = time.perf_counter()
        settings = {"wordNgrams": 2, "epoch": int(line.split()[1]), "lr": 0.5, "thread": 2, "verbose": 0}
        model = fasttext.train_supervised(training, **settings)
        print(json.dumps(time.perf_counter() - begun), flush=True)
    else:
        begun = time.perf_counter()
        labels = [label[0] for label in model.predict(held)[0]]
        print(json.dumps([time.perf_counter() - begun, labels]), flush=True)
"""


def fasttext(python: str, folder: Path, data: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """fastText in a process of its own; what it takes is timed there, and waited for here."""
    texts, labels, held, _ = data
    file = folder / "training.txt"
    file.write_text("".join(f"__label__{y} {text}\n" for text, y in zip(texts, labels, strict=True)))
    process = subprocess.Popen([python, "-c", FASTTEXT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps([str(file), held * COPIES]) + "\n")

    def ask(what: str) -> Any:
        process.stdin.write(what + "\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        return json.loads(process.stdout.readline())  # type: ignore[union-attr]

    def predict(_: Any, __: Any) -> list[str]:
        return [label.removeprefix("__label__") for label in ask("predict")[1]]

    return lambda *_: ask("train 25"), predict


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    texts, labels = rows()
    cut = len(texts) * 9 // 10
    data = (texts[:cut], labels[:cut], texts[cut:], labels[cut:])
    words = {"characters": 0, "split": False, "cost": COST}
    both = {"characters": 5, "split": False, "cost": COST}
    against(
        "naive Bayes, words 1-2, against CountVectorizer + MultinomialNB",
        *(ours("naive_bayes", "space", {}), theirs("naive_bayes"), data, pairs),
    )
    against(
        "linear, words 1-2, against TfidfVectorizer + LinearSVC",
        *(ours("ngram_bag", "byte", words), theirs("words"), data, pairs),
    )
    against(
        "linear, words 1-2 and characters 2-5, against two TfidfVectorizers + LinearSVC",
        *(ours("ngram_bag", "byte", both), theirs("words and characters"), data, pairs),
    )
    python = os.environ.get("FASTTEXT_PYTHON")
    if python is None:
        print("fastText: left out, since FASTTEXT_PYTHON names no interpreter that has it")
        return
    with tempfile.TemporaryDirectory() as folder:
        peer = fasttext(python, Path(folder), data)
        against(
            "linear, words 1-2, against fastText, words 1-2, 25 epochs, 2 threads",
            *(ours("ngram_bag", "byte", words), peer, data, pairs),
        )


if __name__ == "__main__":
    main()
