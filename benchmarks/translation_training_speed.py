"""Training a Transformer base, 256 pairs of 32 + 32 tokens, bfloat16, AdamW: tokens a second on one GPU, against
transformers' Marian of the same shape, compiled and eager.

    PYTHONPATH=src python3 benchmarks/translation_training_speed.py [PAIRS] [profile]

Ours goes through the trainer as `segue train` does, batches included; the peer runs in a plain loop over one batch.
Tokens are those of both sides. `profile` also prints the kernels of our step that take the most time. Without a GPU
nothing is measured.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from segue.batches.batches import Config as BatchesConfig
from segue.batches.rows import Rows
from segue.batches.store import StoreWriter
from segue.models.base import Sizes
from segue.models.transformer import Transformer
from segue.tasks.seq2seq import TASK
from segue.training import rates
from segue.training.trainer import Config, Trainer

ROWS, LENGTH, VOCABULARY, STEPS = 256, 32, 37_000, 40
TOKENS = ROWS * 2 * LENGTH
PEAK = 989e12
"""Dense bfloat16 operations a second of an H100 or H200, by its maker."""


class Ours:
    name = "segue"

    def __init__(self, folder: Path) -> None:
        writer, draw = StoreWriter(folder, {"source": "uint16", "text": "uint16"}), np.random.default_rng(0)
        for name, length in (("source", LENGTH), ("text", LENGTH - 1)):  # STOP is put before the target
            ids = draw.integers(2, VOCABULARY, ROWS * 50 * length)
            writer.append(name, ids, np.full(ROWS * 50, length))
        torch.manual_seed(0)
        config = Transformer.Config(size="base", norm="post", dropout=0.1)
        self.model = Transformer(config, Sizes(VOCABULARY)).cuda()
        settings = BatchesConfig(ROWS, LENGTH, tokens=TOKENS)
        batches = Rows(writer.close(), settings, 0, lambda columns: TASK.collate(columns, LENGTH), TASK.by, TASK.added)
        assert batches.shapes == 1
        options = Config(steps=10**9, log_every=STEPS, optimizer=rates.Config(rate=7e-4, warmup=4000))
        self.trainer = Trainer(self.model, batches, options, None, "cuda")
        self.records = self.trainer.fit()
        while self.trainer.compiler.waits:
            self.run()

    def run(self) -> float:
        """Tokens a second over some steps, to the reading of their loss."""
        begun, before = time.perf_counter(), self.trainer.step
        next(record for record in self.records if record.kind == "train")
        torch.cuda.synchronize()
        return (self.trainer.step - before) * TOKENS / (time.perf_counter() - begun)


class Marian:
    """transformers' Marian in a plain loop over one batch."""

    def __init__(self, compiled: bool) -> None:
        from transformers import MarianConfig, MarianMTModel

        sizes: dict[str, Any] = {"d_model": 512, "vocab_size": VOCABULARY, "max_position_embeddings": 512}
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048}
        ids = {"pad_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0}
        torch.manual_seed(0)
        model = MarianMTModel(MarianConfig(**sizes, **ids, activation_function="relu", dropout=0.1)).cuda().train()
        self.name = "transformers, compiled" if compiled else "transformers, eager"
        self.model = torch.compile(model) if compiled else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=7e-4, fused=True)
        self.x, self.y = (torch.randint(2, VOCABULARY, (ROWS, LENGTH), device="cuda") for _ in range(2))

    def run(self) -> float:
        begun = time.perf_counter()
        for _ in range(STEPS):
            with torch.autocast("cuda", torch.bfloat16):
                loss = self.model(input_ids=self.x, labels=self.y).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return STEPS * TOKENS / (time.perf_counter() - begun)


def profiled(ours: Ours) -> None:
    """Print the kernels of some steps that take the most time together."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        ours.run()
    times: dict[str, list[float]] = {}
    for event in found.events():
        times.setdefault(event.name[:90], []).append(event.device_time_total)
    print("microseconds a step, kernels a step")
    for name, each in sorted(times.items(), key=lambda item: -sum(item[1]))[:40]:
        print(f"{sum(each) / STEPS:10.1f} {len(each) / STEPS:6.1f}  {name}")


def main() -> None:
    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    torch.set_float32_matmul_precision("high")
    pairs = int(next((word for word in sys.argv[1:] if word.isdecimal()), 5))
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(Path(folder))
        all_of_them = [ours, Marian(compiled=True), Marian(compiled=False)]
        for one in all_of_them:
            one.run()
            one.run()
        speeds = [[one.run() for one in all_of_them] for _ in range(pairs)]
        print(f"{date.today()}, {torch.cuda.get_device_name()}, torch {torch.__version__}")
        print(f"Transformer base, {ROWS} x ({LENGTH} + {LENGTH}) tokens, {VOCABULARY:,} in the vocabulary, bfloat16")
        mine = statistics.median(row[0] for row in speeds)
        for place, one in enumerate(all_of_them):
            speed = statistics.median(row[place] for row in speeds)
            ratio = statistics.median(row[0] / row[place] for row in speeds)
            print(f"{one.name:24} {speed / 1e3:8.0f} k tokens/s   ours is {ratio:.2f} times as fast")
        blocks = sum(p.numel() for p in ours.model.parameters())  # the table counts as output weights, once a token
        share = 6 * blocks * mine / 2 / PEAK  # each token goes through its own side alone
        print(f"ours: {share:.1%} of {PEAK / 1e12:.0f} TFLOP/s; expected: 1.5 times transformers, compiled; aim 2.5")
        if "profile" in sys.argv[1:]:
            profiled(ours)


if __name__ == "__main__":
    main()
