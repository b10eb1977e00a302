"""Pre-training T5-small by span corruption on one GPU: tokens a second in bfloat16, against transformers' T5, compiled.

    PYTHONPATH=src python3 benchmarks/t5_speed.py [PAIRS]

Rows of 512 + 114 tokens, 128 a step; dropout 0.1, AdamW, gradients clipped at 1, on both sides. Ours goes through the
trainer as `segue train` does, with spans drawn and sent at every step; the peer is a plain loop over one batch. Tokens
are those of both sides. Without a GPU nothing is measured.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from segue.batches.batches import Config as BatchesConfig
from segue.batches.codec import Sizes
from segue.batches.spans import SpanRows, target_length
from segue.batches.store import StoreWriter
from segue.models.t5 import T5
from segue.training import rates
from segue.training.trainer import Config, Trainer

ROWS, LENGTH, TARGET, IDS, STEPS, DROPOUT = 128, 512, 114, 32_128, 20, 0.1
TOKENS = ROWS * (LENGTH + TARGET)


class Ours:
    name = "segue"

    def __init__(self, folder: Path) -> None:
        config = T5.Config(size="t5-small", dropout=DROPOUT)
        sizes = Sizes(IDS - len(T5.marks(config)), marks=T5.marks(config), stopped=True)
        writer = StoreWriter(folder, {"text": "uint16"})
        writer.append("text", np.random.default_rng(0).integers(2, sizes.vocab_size, ROWS * LENGTH * 50))
        torch.manual_seed(0)
        batches = SpanRows(writer.close(), BatchesConfig(ROWS, LENGTH, noise="spans"), 0, sizes)
        assert target_length(batches.room, 0.15) == TARGET
        options = Config(steps=10**9, log_every=STEPS, optimizer=rates.Config(rate=1e-3))
        self.trainer = Trainer(T5(config, sizes).cuda(), batches, options, None, "cuda")
        self.records = self.trainer.fit()
        while self.trainer.compiler.waits:
            self.run()

    def run(self) -> float:
        """Tokens a second over some steps, to the reading of their loss."""
        begun, before = time.perf_counter(), self.trainer.step
        next(record for record in self.records if record.kind == "train")
        torch.cuda.synchronize()
        return (self.trainer.step - before) * TOKENS / (time.perf_counter() - begun)


class Peer:
    """transformers' T5ForConditionalGeneration, compiled, in a plain loop over one batch."""

    name = "transformers, compiled"

    def __init__(self) -> None:
        from transformers import T5Config, T5ForConditionalGeneration

        torch.manual_seed(0)
        config = T5Config(vocab_size=IDS, dropout_rate=DROPOUT, decoder_start_token_id=0)
        self.model = T5ForConditionalGeneration(config).cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.compiled = torch.compile(self.model)
        self.x = torch.randint(2, IDS, (ROWS, LENGTH), device="cuda")
        self.y = torch.randint(2, IDS, (ROWS, TARGET), device="cuda")

    def run(self) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(STEPS):
            with torch.autocast("cuda", torch.bfloat16):
                loss = self.compiled(input_ids=self.x, labels=self.y).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return STEPS * TOKENS / (time.perf_counter() - begun)


def main() -> None:
    if not torch.cuda.is_available():
        print("There is no GPU here: nothing is measured.")
        return
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_float32_matmul_precision("high")
    print(time.strftime("%Y-%m-%d"), torch.cuda.get_device_name(), "torch", torch.__version__)
    with tempfile.TemporaryDirectory() as folder:
        both = [Ours(Path(folder)), Peer()]
        for one in both:
            one.run()
            one.run()
        found = [[one.run() for one in both] for _ in range(pairs)]  # in turns, so that both see the same machine
    for one, rates_found in zip(both, zip(*found, strict=True), strict=True):
        least, most = min(rates_found) / 1e3, max(rates_found) / 1e3
        print(f"  {one.name:24} {statistics.median(rates_found) / 1e3:8.0f} k tokens/s   ({least:.0f} to {most:.0f})")
    ratios = sorted(ours / peer for ours, peer in found)
    print(f"  ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
