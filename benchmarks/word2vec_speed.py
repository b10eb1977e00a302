"""word2vec against gensim: training words a second, the whole command, and what people say of pairs of words.

    SEGUE_DATA=path/to/data GENSIM_PYTHON=path/to/python python benchmarks/word2vec_speed.py [PAIRS] [EPOCHS]
    SEGUE_DATA=path/to/data python benchmarks/word2vec_speed.py [PAIRS] [EPOCHS] --device cuda

GENSIM_PYTHON is an interpreter that can import gensim; SEGUE_DATA a folder with wikitext-2/train.txt.xz and
wordsim/*.tsv.xz. The same text, epochs, 100 numbers, window 5, five noise words, min_count 5, two threads,
rate 0.05 (our default; gensim's is 0.025, so that its figures at its own default may be others).
gensim reads the file itself (corpus_file), its fastest way. Pairs are interleaved; of each figure the median ratio is
printed last. Seconds of all processors are given beside those of the clock, since other work on the machine disturbs
them less. With --device our own two ways are compared instead, on that device and on two threads; gensim has no other.
"""

from __future__ import annotations

import json
import lzma
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PAIRS_OF_WORDS = {"WordSim-353": "EN-WS-353-ALL.tsv.xz", "MEN": "EN-MEN-TR-3k.tsv.xz"}
SEEDS = 3
SHARED = [
    "tokens.kind=space",
    "data.validation=0",
    "model.width=100",
    "model.window=5",
    "model.negatives=5",
    "train.threads=2",
]

THEIRS = """
import json, sys, time
from gensim.models import Word2Vec
text, out = sys.argv[1:3]
sg, epochs, seed = map(int, sys.argv[3:6])
model = Word2Vec(vector_size=100, window=5, negative=5, sg=sg, workers=2, min_count=5, seed=seed, alpha=0.05)
model.build_vocab(corpus_file=text)
clock, processor = time.perf_counter(), time.process_time()
model.train(corpus_file=text, total_words=model.corpus_total_words, total_examples=model.corpus_count, epochs=epochs)
clock, processor = time.perf_counter() - clock, time.process_time() - processor
words = model.corpus_total_words * epochs
model.wv.save_word2vec_format(out, binary=True)
print(json.dumps({"clock": words / clock, "processor": words / processor}))
"""

OURS = """
import json, sys, time
from pathlib import Path
from segue.batches.store import Store
from segue.models.base import Sizes
from segue.models.word2vec import Word2vec
store, method, epochs = Store(Path(sys.argv[1])), sys.argv[4], int(sys.argv[5])
vocab, words = map(int, sys.argv[2:4])
for count in (1, epochs):  # the first loads the compiled loops
    model = Word2vec(Word2vec.Config(method=method), Sizes(vocab))
    model.device = sys.argv[6] if len(sys.argv) > 6 else None
    clock, processor = time.perf_counter(), time.process_time()
    list(model.fit(store, Word2vec.Train(epochs=count)))
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
print(json.dumps({"clock": words * epochs / clock, "processor": words * epochs / processor}))
"""


def timed(command: list[str]) -> tuple[str, float, float]:
    """What a command prints, and its seconds by the clock and of all processors."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    clock, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{done.stderr[-2000:]}")
    return done.stdout, clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def stored(text: Path, place: Path) -> tuple[Path, int, int]:
    """The text as the loops read it; how many ids there are, and how many words."""
    from segue.batches.encode import encode_text
    from segue.data.config import Config
    from segue.data.corpus import Corpus
    from segue.data.shapes import TEXT
    from segue.tokens.tokenizer import Config as Tokens
    from segue.tokens.tokenizer import Tokenizer

    corpus = Corpus(Config(path=str(text), unit="line", canonical=True, validation=0.0), TEXT)
    tokenizer = Tokenizer.train(Tokens("space", min_count=5), (example.text for example in corpus.examples("train")))
    encode_text(corpus.examples("train"), tokenizer, place / "store")
    return place / "store", tokenizer.vocab_size, len(text.read_text(encoding="utf-8").split())


def ours(text: Path, place: Path, method: str, epochs: int, seed: int, device: str = "cpu") -> list[str]:
    out = place / f"{method}-{seed}"
    shutil.rmtree(out, ignore_errors=True)
    settings = [*SHARED, f"model.method={method}", f"train.epochs={epochs}", f"train.seed={seed}"]
    options = ["--out", str(out), "--device", device]
    return [sys.executable, "-m", "segue", "train", "word2vec", str(text), *options, *settings]


def similar(path: Path, data: Path) -> dict[str, float]:
    """Spearman's correlation with people, of a run or of a file of vectors."""
    from segue.inference.words import Words, of_questions, questions_in
    from segue.runs.run import load
    from segue.word_vectors.files import read_vectors

    words = load(path).words if path.is_dir() else Words(*read_vectors(path))
    return {
        name: of_questions(words, questions_in(data / "wordsim" / file) or []).result["spearman"]
        for name, file in PAIRS_OF_WORDS.items()
    }


def speed(
    store: tuple[Path, int, int], text: Path, place: Path, python: str, method: str, pairs: int, epochs: int
) -> None:
    sg, ratios = str(int(method == "skipgram")), {"clock": [], "processor": []}  # type: dict[str, list[float]]
    whole: dict[str, list[float]] = {"clock": [], "processor": []}
    folder, vocab, words = store
    theirs = [python, "-c", THEIRS, str(text), str(place / "theirs.bin"), sg, str(epochs)]
    mine = [sys.executable, "-c", OURS, str(folder), str(vocab), str(words), method, str(epochs)]
    timed(ours(text, place, method, 1, 0))  # compiled, and files warm
    for pair in range(pairs):
        said, clock, processor = timed([*theirs, str(pair)])
        peer: dict[str, Any] = json.loads(said)
        own = json.loads(timed(mine)[0])
        _, own_clock, own_processor = timed(ours(text, place, method, epochs, 0))
        for by in ratios:
            ratios[by].append(own[by] / peer[by])
        whole["clock"].append(clock / own_clock)
        whole["processor"].append(processor / own_processor)
        print(
            f"{method}, pair {pair + 1}: {own['clock']:,.0f} and {peer['clock']:,.0f} words/s by the clock, "
            f"{own['processor']:,.0f} and {peer['processor']:,.0f} a second of processor; "
            f"the command {own_clock:.1f} and {clock:.1f} s, {own_processor:.1f} and {processor:.1f} s of processor",
            flush=True,
        )
    least = 3 if method == "skipgram" else 1.5
    by_clock, by_processor = (statistics.median(ratios[by]) for by in ("clock", "processor"))
    print(f"{method}: {by_clock:.2f} times gensim's words a second (at least {least}), {by_processor:.2f} by processor")
    by_clock, by_processor = (statistics.median(whole[by]) for by in ("clock", "processor"))
    print(f"{method}, the whole command: {by_clock:.2f} times as fast (at least 2), {by_processor:.2f} by processor")


def quality(text: Path, place: Path, data: Path, python: str, method: str, epochs: int) -> None:
    found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    for seed in range(1, SEEDS + 1):
        timed(ours(text, place, method, epochs, seed))
        found["ours"].append(similar(place / f"{method}-{seed}", data))
        sg = str(int(method == "skipgram"))
        timed([python, "-c", THEIRS, str(text), str(place / "theirs.bin"), sg, str(epochs), str(seed)])
        found["theirs"].append(similar(place / "theirs.bin", data))
    for name in PAIRS_OF_WORDS:
        mine, peer = (statistics.mean(one[name] for one in found[who]) for who in ("ours", "theirs"))
        print(f"{method}, {name}: {mine:.3f}, gensim {peer:.3f} (at most 0.01 less), mean of {SEEDS} seeds", flush=True)


def on_device(
    store: tuple[Path, int, int], text: Path, place: Path, data: Path, method: str, pairs: int, epochs: int, device: str
) -> None:
    """Training words a second, and what the vectors are worth, beside those of two threads."""
    mine = [sys.executable, "-c", OURS, *map(str, store), method, str(epochs)]
    ratios = []
    for pair in range(pairs):
        there, here = (json.loads(timed([*mine, *where])[0])["clock"] for where in ([device], []))
        ratios.append(there / here)
        print(f"{method}, pair {pair + 1}: {there:,.0f} words/s on {device}, {here:,.0f} on two threads", flush=True)
    if ratios:
        print(f"{method}: {statistics.median(ratios):.2f} times the words a second of two threads")
    both: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    for seed in range(1, SEEDS + 1):
        for where, figures in zip((device, "cpu"), both, strict=True):
            timed(ours(text, place, method, epochs, seed, where))
            figures.append(similar(place / f"{method}-{seed}", data))
    for name in PAIRS_OF_WORDS:
        there, here = (statistics.mean(one[name] for one in figures) for figures in both)
        print(f"{method}, {name}: {there:.3f} on {device}, {here:.3f} on threads, mean of {SEEDS} seeds", flush=True)


def main() -> None:
    words, device = sys.argv[1:], ""
    if "--device" in words:
        at = words.index("--device")
        device = words[at + 1]
        del words[at : at + 2]
    pairs, epochs = (int(word) for word in (*words, *("5", "5")[len(words) :]))
    data, python = os.environ.get("SEGUE_DATA"), os.environ.get("GENSIM_PYTHON")
    if not data or not (python or device):
        print("SEGUE_DATA or GENSIM_PYTHON is not there: no comparison with gensim")
        return
    with tempfile.TemporaryDirectory(prefix="segue-words-") as folder:
        place = Path(folder)
        text = place / "text.txt"
        text.write_bytes(lzma.decompress((Path(data) / "wikitext-2" / "train.txt.xz").read_bytes()))
        store = stored(text, place)
        for method in ("skipgram", "cbow"):
            if device:
                on_device(store, text, place, Path(data), method, pairs, epochs, device)
                continue
            assert python
            if pairs:
                speed(store, text, place, python, method, pairs, epochs)
            quality(text, place, Path(data), python, method, epochs)


if __name__ == "__main__":
    main()
