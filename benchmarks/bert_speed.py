"""Masked training of BERT-base on one GPU: tokens a second in bfloat16, against transformers' model, compiled whole.

    PYTHONPATH=src python3 benchmarks/bert_speed.py [PAIRS]

Rows of 128 tokens, 256 a step, and of 512 tokens, 64 a step; dropout 0.1, AdamW, gradients clipped at 1, on both sides.
Ours goes through the trainer as `segue train` does, with masks drawn and sent at every step; the peer is a plain loop
over one batch. The peer computes logits at all places; ours at the masked ones, and, beside it, at all. Without a GPU
nothing is measured.
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
from segue.batches.masking import MaskedRows
from segue.batches.store import StoreWriter
from segue.models.base import Sizes
from segue.models.bert import Bert
from segue.training import rates
from segue.training.trainer import Config, Trainer

SHAPES = ((256, 128), (64, 512))
IDS, STEPS, DROPOUT = 30_522, 40, 0.1
PEAK = 989e12
"""Dense bfloat16 operations a second of an H100 or H200, by its maker."""
WEIGHTS = 12 * 12 * 768 * 768
"""Weights of the layers, which every token is multiplied by."""


class Ours:
    def __init__(self, folder: Path, rows: int, length: int, share: float) -> None:
        writer = StoreWriter(folder, {"text": "uint16"})
        writer.append("text", np.random.default_rng(0).integers(2, IDS - 2, rows * length * 50))
        torch.manual_seed(0)
        sizes = Sizes(IDS - 2, marks=("start", "mask"))
        model = Bert(Bert.Config(size="bert-base", dropout=DROPOUT), sizes).cuda()
        batches = MaskedRows(writer.close(), BatchesConfig(rows, length, noise="mask", share=share), 0, sizes, False)
        config = Config(steps=10**9, log_every=STEPS, optimizer=rates.Config(rate=1e-4, weight_decay=0.01))
        self.tokens, self.trainer = rows * length, Trainer(model, batches, config, None, "cuda")
        self.records = self.trainer.fit()
        while self.trainer.compiler.waits:
            self.run()
        self.run()

    def run(self) -> float:
        """Tokens a second over some steps, to the reading of their loss."""
        begun, before = time.perf_counter(), self.trainer.step
        next(record for record in self.records if record.kind == "train")
        torch.cuda.synchronize()
        return (self.trainer.step - before) * self.tokens / (time.perf_counter() - begun)


class Peer:
    """transformers' BertForMaskedLM, compiled, in a plain loop over one batch."""

    def __init__(self, rows: int, length: int) -> None:
        from transformers import BertConfig, BertForMaskedLM

        torch.manual_seed(0)
        self.model = BertForMaskedLM(BertConfig(attn_implementation="sdpa")).cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        self.compiled, self.tokens = torch.compile(self.model), rows * length
        self.x = torch.randint(IDS, (rows, length), device="cuda")
        self.y = torch.where(torch.rand(rows, length, device="cuda") < 0.15, self.x, -100)
        for _ in range(2):
            self.run()

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
        return STEPS * self.tokens / (time.perf_counter() - begun)


def measured(name: str, runner: Ours | Peer, times: int) -> float:
    rates_found = [runner.run() for _ in range(times)]
    middle = statistics.median(rates_found)
    least, most = min(rates_found) / 1e3, max(rates_found) / 1e3
    print(f"  {name:34} {middle / 1e3:8.0f} k tokens/s   ({least:.0f} to {most:.0f})")
    return middle


def main() -> None:
    if not torch.cuda.is_available():
        print("There is no GPU here: nothing is measured.")
        return
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_float32_matmul_precision("high")
    print(time.strftime("%Y-%m-%d"), torch.cuda.get_device_name(), "torch", torch.__version__)
    for rows, length in SHAPES:
        print(f"{rows} x {length}")
        with tempfile.TemporaryDirectory() as folder:
            ours = measured("ours, logits at the masked places", Ours(Path(folder) / "a", rows, length, 0.15), times)
            every = measured("ours, logits at all places", Ours(Path(folder) / "b", rows, length, 0.999), times)
        torch.cuda.empty_cache()
        peer = measured("transformers, compiled", Peer(rows, length), times)
        torch.cuda.empty_cache()
        operations = 6 * WEIGHTS + 12 * 12 * 768 * length + 0.15 * 6 * (IDS + 768) * 768
        print(f"  ratio {ours / peer:.2f}, with logits at all places {every / peer:.2f}; ", end="")
        print(f"{ours * operations / PEAK:.0%} of the card's peak", flush=True)


if __name__ == "__main__":
    main()
