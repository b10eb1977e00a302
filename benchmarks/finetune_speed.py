"""Fine-tuning a classifier: seconds against transformers with the same shape, dropout, AdamW and clipping.

    PYTHONPATH=src python3 benchmarks/finetune_speed.py gpu
    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/finetune_speed.py cpu [BODY]

gpu: BERT-base, 32 rows a step of 8 to 60 tokens drawn evenly, bfloat16; real tokens a second, padding not counted. Ours
is `segue train`, measured between two of its log lines; the peer is a plain loop, each batch padded to its longest row.
cpu: 6 layers of 256 on two threads, 2,000 rows of SST-2, four epochs, from the same weights, which our export writes
for transformers (BODY: a run of bert; without one a body of 100 s of training on WikiText-2); seconds of training and
accuracy on the dev rows.
"""

from __future__ import annotations

import json
import lzma
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

WORDS, ROWS, STEPS = 30_000, 32, 600


def segue(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "segue", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"segue {' '.join(words)}\n{done.stdout[-500:]}{done.stderr[-2000:]}")


def logged(run: Path) -> list[dict[str, Any]]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record for record in records if record["kind"] == "train"]


# On a GPU


def gpu(folder: Path) -> None:
    draw = random.Random(0)
    names = [f"w{i}" for i in range(WORDS)]
    (folder / "text.txt").write_text("\n".join(" ".join(names[i : i + 20]) for i in range(0, WORDS, 20)))
    rows = [[draw.choice(names) for _ in range(draw.randint(6, 58))] for _ in range(ROWS * 400)]  # and start and end
    lines = [f"{draw.choice(('good', 'bad'))}\t{' '.join(row)}" for row in rows]
    (folder / "rows.tsv").write_text("\n".join(lines))
    body = ("train", "bert", str(folder / "text.txt"), "tokens.kind=space", "model.size=bert-base", "model.dropout=0.1")
    segue(*body, "data.validation=0", "train.steps=1", "batches.size=4", "--out", str(folder / "body"))
    head = ("train", "finetuned_classifier", str(folder / "rows.tsv"), f"model.body={folder / 'body'}")
    own = (f"batches.size={ROWS}", f"train.steps={STEPS}", "train.log_every=100", "data.validation=0")
    segue(*head, *own, "train.optimizer.rate=2e-5", "--out", str(folder / "run"))
    found = logged(folder / "run")
    first, last = found[1], found[-1]
    mean = statistics.mean(len(row) + 2 for row in rows)
    step = (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
    ours = ROWS * mean / step
    print(f"ours          {1000 * step:6.2f} ms a step, {ours / 1e3:6.1f} k real tokens/s", flush=True)
    peer_step = peer_gpu([len(row) + 2 for row in rows])
    print(f"transformers  {1000 * peer_step:6.2f} ms a step, {ROWS * mean / peer_step / 1e3:6.1f} k real tokens/s")
    print(f"ratio {peer_step / step:.1f} (bar 5, aim 8)", flush=True)


def peer_gpu(lengths: list[int], steps: int = 60) -> float:
    """Seconds of a step of transformers' BertForSequenceClassification."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(attn_implementation="sdpa")).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)
    begun = 0.0
    for step in range(steps + 10):
        if step == 10:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        some = lengths[step * ROWS : (step + 1) * ROWS]
        ids = torch.randint(1000, WORDS, (ROWS, max(some)))
        mask = torch.arange(max(some)) < torch.tensor(some)[:, None]
        labels = torch.randint(2, (ROWS,))
        with torch.autocast("cuda", torch.bfloat16):
            given = {"input_ids": ids.cuda(), "attention_mask": mask.long().cuda(), "labels": labels.cuda()}
            loss = model(**given).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


# On two cores

RATE, EPOCHS, TRAINED = 1e-4, 4, 2000


def table(name: str) -> list[tuple[str, int]]:
    path = Path(os.environ["SEGUE_DATA"]) / "glue" / "SST-2" / f"{name}.tsv.xz"
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()[1:]
    return [(text, int(label)) for text, label in (line.split("\t") for line in lines)]


def cpu(folder: Path, body: Path | None) -> None:
    torch.set_num_threads(2)
    draw = random.Random(0)
    rows, dev = draw.sample(table("train"), TRAINED), table("dev")
    for name, some in (("train", rows), ("dev", dev)):
        (folder / f"{name}.tsv").write_text("\n".join(f"{label}\t{text}" for text, label in some))
    if body is None:
        body, text = folder / "body", Path(os.environ["SEGUE_DATA"]) / "wikitext-2" / "train.txt.xz"
        shape = ("model.layers=6", "model.width=256", "model.heads=4", "model.dropout=0.1", "tokens.kind=wordpiece")
        shape += ("model.norm=post", "model.position=learned")  # as Hugging Face's BERT has them
        shape += ("batches.length=32", "train.optimizer.name=adamw", "train.optimizer.rate=0.0005")
        segue("train", "bert", str(text), *shape, "train.seconds=100", "--threads", "2", "--out", str(body))
    segue("export", str(body), "--to", "hf", str(folder / "theirs"))
    for seed in range(3):
        run = folder / f"run{seed}"
        data = (str(folder / "train.tsv"), f"data.test={folder / 'dev.tsv'}", "data.validation=0")
        own = (f"model.body={body}", "batches.size=32", f"train.epochs={EPOCHS}", f"train.optimizer.rate={RATE}")
        segue("train", "finetuned_classifier", *data, *own, f"train.seed={seed}", "--threads", "2", "--out", str(run))
        result = json.loads((run / "result.json").read_text())
        ours = result["train_seconds"]
        theirs, accuracy = peer_cpu(folder / "theirs", rows, dev, seed)
        print(f"seed {seed}: ours {ours:.1f} s, accuracy {result['accuracy']:.3f}; ", end="")
        print(f"transformers {theirs:.1f} s, accuracy {accuracy:.3f}; ratio {theirs / ours:.2f}", flush=True)


def peer_cpu(folder: Path, rows: list[tuple[str, int]], dev: list[tuple[str, int]], seed: int) -> tuple[float, float]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    steps = EPOCHS * -(-len(rows) // 32)
    rises = steps // 10  # as ours: up over the first tenth, then down to 0
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / rises, (steps - n) / (steps - rises)))
    draw = random.Random(seed)
    begun = time.perf_counter()
    for _ in range(EPOCHS):
        mixed = draw.sample(rows, len(rows))
        for first in range(0, len(mixed), 32):
            some = mixed[first : first + 32]
            batch = tokenizer([text for text, _ in some], padding=True, truncation=True, return_tensors="pt")
            loss = model(**batch, labels=torch.tensor([label for _, label in some])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - begun
    model.eval()
    right = 0
    with torch.inference_mode():
        for first in range(0, len(dev), 64):
            some = dev[first : first + 64]
            batch = tokenizer([text for text, _ in some], padding=True, truncation=True, return_tensors="pt")
            right += int((model(**batch).logits.argmax(-1) == torch.tensor([label for _, label in some])).sum())
    return seconds, right / len(dev)


def main() -> None:
    where = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        if where == "cpu":
            cpu(Path(folder), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
        elif torch.cuda.is_available():
            torch.set_float32_matmul_precision("high")
            print(time.strftime("%Y-%m-%d"), torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
            gpu(Path(folder))
        else:
            print("There is no GPU here: nothing is measured.")


if __name__ == "__main__":
    main()
