"""How well pairs are learnt in little time: Multi30k and IWSLT14 (translation), SAMSum (dialogue to summary).

    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/translation_quality.py CASE [--seconds N]
                                                   [--peer RUN] [--split test] [--out FOLDER] [key=value ...]

CASE is a line of CASES below: en-de, de-en, iwslt, samsum (for a GPU), de-en-cpu, de-en-cpu-rnn (for two cores).
Everything is trained and decoded by the command line. `--seconds` is the time for training. Where a case has several
members, they are trained at the same time, share the card and the seconds, and decode together (an ensemble: the mean
of their probabilities), but for those that the validation text shows to be worse. `--peer RUN` trains transformers'
Marian instead, from random weights, on the same rows with the subwords and the shape of our run, and decodes with the
same beam. Keys are given to `segue train`.

Settings were chosen on the validation files (`--split validation`), never on the test. BLEU is sacreBLEU's, with its
signature; the first figure of a case is the one that others publish: lower-cased for Multi30k en-de and IWSLT14, cased
for Multi30k de-en.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

NEAR = 2.0
"""A member whose figure on the validation text is farther below the best one's than this is left out."""
_GPU = ["train.plan=none", "train.patience=0", "train.every=1500", "train.optimizer.ema=0.9995", "tokens.dropout=0.1"]
_SMALL = ["model.layers=4", "model.width=256", "model.heads=4", "model.feed=1024", "batches.tokens=4096"]
_MUON = ["train.optimizer.name=muon", "train.optimizer.rate=0.005", "train.optimizer.warmup=300"]
_ADAM = ["train.optimizer.rate=0.0015", "train.optimizer.warmup=1000"]
_MULTI30K = [
    [*_GPU, *_SMALL, *_ADAM, "model.dropout=0.3"],
    [*_GPU, *_SMALL, *_MUON, "model.dropout=0.3"],
    [*_GPU, *_SMALL, *_MUON, "model.dropout=0.4", "model.width=384", "model.heads=6", "model.layers=3"],
]
_LONG = ["batches.tokens=12288", "train.every=1000", "model.dropout=0.3"]


class Case(NamedTuple):
    """A figure: the data, the recipe, the keys of each member, how they are decoded."""

    source: str
    target: str
    recipe: str
    members: list[list[str]]
    seconds: int
    lower: bool = False


CASES = {
    "en-de": Case("en", "de", "transformer", _MULTI30K, 310, lower=True),
    "de-en": Case("de", "en", "transformer", _MULTI30K, 310),
    "iwslt": Case(
        "de",
        "en",
        "transformer",
        [[*_GPU, *_SMALL, *_MUON, *_LONG, "model.width=384", "model.heads=6", "model.layers=5"]],
        450,
    ),
    "samsum": Case(
        "dialogue",
        "summary",
        "transformer",
        [[*_GPU, *_SMALL, *_MUON, *_LONG, "batches.length=400", "model.context=512", "data.metric=rouge1"]],
        400,
    ),
    "de-en-cpu": Case("de", "en", "transformer", [[]], 1740),
    "de-en-cpu-rnn": Case("de", "en", "rnn_seq2seq", [[]], 1740),
}


Texts = dict[str, tuple[list[str], list[str]]]
"""Sources and targets of each split."""


def read(path: Path) -> list[str]:
    return lzma.decompress(path.read_bytes()).decode("utf-8").rstrip("\n").split("\n")


def pairs(name: str, data: Path) -> Texts:
    """Sources and targets of train, validation and test."""
    case = CASES[name]
    if name == "samsum":
        splits = {"train": "train", "validation": "dev", "test": "test"}
        rows = {
            split: [line.split("\t") for line in read(data / f"samsum/{file}.tsv.xz")] for split, file in splits.items()
        }
        return {
            split: ([row[1] for row in some if row[1]], [row[2] for row in some if row[1]])
            for split, some in rows.items()
        }
    if name == "iwslt":
        files, folder = {"train": "train-part", "validation": "valid", "test": "test"}, data / "iwslt14"
    else:
        files, folder = {"train": "train", "validation": "val", "test": "test_2016_flickr"}, data / "multi30k"
    both = {
        split: (read(folder / f"{file}.{case.source}.xz"), read(folder / f"{file}.{case.target}.xz"))
        for split, file in files.items()
    }
    if case.lower:
        both = {split: ([x.lower() for x in a], [x.lower() for x in b]) for split, (a, b) in both.items()}
    return both


def segue(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "segue", *words], stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(process.args[2:])} ended with {process.returncode}")  # type: ignore[arg-type]
    return out


def figures(name: str, written: list[str], references: list[str]) -> dict[str, str]:
    """What is published of the case, and what is usual beside it."""
    if name == "samsum":
        from segue.inference.text_metrics import METRICS

        return {key: f"{METRICS[key].score(written, references):.2f}" for key in ("rouge1", "rouge2", "rougeL")}
    from sacrebleu.metrics import BLEU, CHRF

    settings: list[dict[str, Any]] = [{"lowercase": True}, {}] if CASES[name].lower else [{}, {"lowercase": True}]
    if name == "iwslt":  # the files are tokenised and lower-cased
        settings = [{"tokenize": "none", "force": True}, {}]
    given: dict[str, str] = {}
    for metric in [*(BLEU(**one) for one in settings), CHRF()]:
        score = metric.corpus_score(written, [references]).score
        given[f"{type(metric).__name__} {metric.get_signature()}"] = f"{score:.2f}"
    return given


def written_files(place: Path, texts: Texts) -> dict[str, tuple[Path, Path]]:
    files: dict[str, tuple[Path, Path]] = {}
    for split, sides in texts.items():
        files[split] = (place / f"{split}.source", place / f"{split}.target")
        for path, side in zip(files[split], sides, strict=True):
            path.write_text("".join(line + "\n" for line in side), encoding="utf-8")
    return files


def decoded(run: str, test: Path, decode: list[str]) -> list[str]:
    return finish(segue("predict", run, str(test), *decode)).split("\n")[:-1]


def ours(name: str, arguments: argparse.Namespace, place: Path, texts: Texts) -> list[str]:
    """Train the members at the same time, and write the targets with those that are near the best."""
    case, begun, files = CASES[name], time.perf_counter(), written_files(place, texts)
    train, validation = (",".join(map(str, files[split])) for split in ("train", "validation"))
    runs = [place / f"{name}-{number}" for number in range(len(case.members))]
    under_way = [
        segue(
            "train", case.recipe, train, "--out", str(run), f"data.validation={validation}", "data.test=0",
            f"train.seconds={arguments.seconds or case.seconds}", f"train.seed={seed}", *keys, *arguments.keys,
        )
        for seed, (run, keys) in enumerate(zip(runs, case.members, strict=True))
    ]  # fmt: skip
    for process in under_way:
        finish(process)
    print(f"{name}: {time.perf_counter() - begun:.0f} s to train")
    scores: dict[str, float] = {}
    for run in runs:
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        last = [record for record in records if record["kind"] == "validation"][-1]
        written = decoded(str(run), files["validation"][0], arguments.decode)
        scores[str(run)] = float(next(iter(figures(name, written, texts["validation"][1]).values())))
        loss = f"step {last['step']:,}, loss {last['loss']:.3f}"
        print(f"{run.name}: {loss}, {scores[str(run)]:.2f} on the validation text")
    near = [run for run, score in scores.items() if score > max(scores.values()) - NEAR]
    written = decoded("+".join(near), files[arguments.split][0], arguments.decode)
    print(f"{name}: {len(near)} members, {time.perf_counter() - begun:.0f} s to train and to decode")
    return written


def peer(name: str, seconds: int, run: Path, split: str, texts: Texts) -> list[str]:
    """Train transformers' Marian for as long on the same rows with the subwords and the shape of our run; beam 5."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    from segue.recipe import read_recipe
    from segue.tokens.tokenizer import Tokenizer

    model_of: Any = read_recipe(run / "recipe.toml").model
    tokenizer, device = Tokenizer.load(run / "tokenizer.json"), "cuda" if torch.cuda.is_available() else "cpu"
    encode, decode, vocab = tokenizer.encode, tokenizer.decode, tokenizer.vocab_size
    config = MarianConfig(
        vocab_size=vocab + 1, decoder_vocab_size=vocab + 1, pad_token_id=vocab, eos_token_id=0,
        decoder_start_token_id=vocab, forced_eos_token_id=None, d_model=model_of.width,
        encoder_layers=model_of.layers, decoder_layers=model_of.layers, encoder_attention_heads=model_of.heads,
        decoder_attention_heads=model_of.heads, encoder_ffn_dim=model_of.feed, decoder_ffn_dim=model_of.feed,
        dropout=model_of.dropout, attention_dropout=0.1, activation_dropout=0.0, activation_function="relu",
        max_position_embeddings=512, scale_embedding=True, share_encoder_decoder_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = MarianMTModel(config).to(device).train()
    rows = [
        ([*encode(a)[:510].tolist(), 0], [*encode(b)[:510].tolist(), 0]) for a, b in zip(*texts["train"], strict=True)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)
    draw, begun, step = random.Random(0), time.perf_counter(), 0

    def padded(some: list[list[int]], fill: int) -> torch.Tensor:
        width = max(map(len, some))
        return torch.tensor([row + [fill] * (width - len(row)) for row in some], device=device)

    def batches() -> Any:
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i][0]) + draw.random() * 3, len(rows[i][1])))
        groups: list[list[int]] = [[]]
        widest = 0
        for i in order:
            widest = max(widest, len(rows[i][0]) + len(rows[i][1]))
            if groups[-1] and widest * (len(groups[-1]) + 1) > 4096:
                groups.append([])
                widest = len(rows[i][0]) + len(rows[i][1])
            groups[-1].append(i)
        draw.shuffle(groups)
        yield from groups

    while time.perf_counter() - begun < seconds:
        for group in batches():
            spent = (time.perf_counter() - begun) / seconds
            if spent >= 1:
                break
            for part in optimizer.param_groups:  # linear warm-up over 400 steps, then down to 0 in a straight line
                part["lr"] = 1e-3 * min((step + 1) / 400, 1 - spent)
            source = padded([rows[i][0] for i in group], vocab)
            target = padded([rows[i][1] for i in group], -100)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                given = torch.cat([torch.full_like(target[:, :1], vocab), target[:, :-1].clamp(min=0)], 1)
                logits = model(input_ids=source, attention_mask=source != vocab, decoder_input_ids=given).logits
            loss = torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), target.flatten(), ignore_index=-100, label_smoothing=0.1
            )
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
    print(f"{name}: the peer made {step:,} steps in {time.perf_counter() - begun:.0f} s")
    model.eval()
    written = []
    for first in range(0, len(texts[split][0]), 400):
        source = padded([[*encode(a)[:510].tolist(), 0] for a in texts[split][0][first : first + 400]], vocab)
        with torch.inference_mode():
            ids = model.generate(
                input_ids=source, attention_mask=source != vocab, num_beams=5, max_new_tokens=200, do_sample=False,
                bad_words_ids=[[vocab]],
            )  # fmt: skip
        written += [decode([i for i in row if i not in (0, vocab)]) for row in ids.tolist()]
    return written


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--peer", default="", help="the folder of our run")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--out", default="")
    parser.add_argument("keys", nargs="*")
    arguments = parser.parse_intermixed_args()
    arguments.decode = ["decode.beam=5"] + [key for key in arguments.keys if key.startswith("decode.")]
    arguments.keys = [key for key in arguments.keys if not key.startswith("decode.")]
    texts = pairs(arguments.case, Path(os.environ["SEGUE_DATA"]))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(arguments.out or folder)
        place.mkdir(parents=True, exist_ok=True)
        if arguments.peer:
            seconds, system = arguments.seconds or CASES[arguments.case].seconds, "transformers' Marian"
            written = peer(arguments.case, seconds, Path(arguments.peer), arguments.split, texts)
        else:
            written, system = ours(arguments.case, arguments, place, texts), "segue"
        for figure, value in figures(arguments.case, written, texts[arguments.split][1]).items():
            print(f"{date.today()} {arguments.case} {arguments.split} {system}: {value}  {figure}")
        print("   ", written[0])


if __name__ == "__main__":
    main()
