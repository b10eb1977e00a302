"""Training GPT-2 124M, 32 rows of 1,024 tokens, bfloat16, AdamW: tokens a second on one GPU, against nanoGPT's model.

    NANOGPT=folder-of-nanoGPT PYTHONPATH=src python3 benchmarks/gpt_speed.py [PAIRS] [transformers]

Ours goes through the trainer as `segue train` does, batches included; the peer is nanoGPT's own model, compiled whole,
in its own loop without reading data; or the same of transformers. Without a GPU nothing is measured.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from segue.batches.batches import Config as BatchesConfig
from segue.batches.store import StoreWriter
from segue.batches.streams import Streams
from segue.models.base import Sizes
from segue.models.gpt import Gpt
from segue.training import rates
from segue.training.trainer import Config, Trainer

ROWS, LENGTH, VOCABULARY, STEPS = 32, 1024, 50_257, 20
PEAK = 989e12
"""Dense bfloat16 operations a second of an H100 or H200, by its maker."""


class Ours:
    def __init__(self, folder: Path) -> None:
        writer = StoreWriter(folder, {"text": "uint16"})
        writer.append("text", np.random.default_rng(0).integers(2, VOCABULARY, ROWS * LENGTH * 400))
        torch.manual_seed(0)
        self.model = Gpt(Gpt.Config(size="gpt2"), Sizes(VOCABULARY)).cuda()
        batches = Streams(writer.close(), BatchesConfig(ROWS, LENGTH), 0)
        config = Config(steps=10**9, log_every=STEPS, optimizer=rates.Config(rate=6e-4, weight_decay=0.1))
        self.trainer = Trainer(self.model, batches, config, None, "cuda")
        self.records = self.trainer.fit()
        while self.trainer.compiler.waits:
            self.run()

    def run(self) -> float:
        """Tokens a second over some steps, to the reading of their loss."""
        begun, before = time.perf_counter(), self.trainer.step
        next(record for record in self.records if record.kind == "train")
        torch.cuda.synchronize()
        return (self.trainer.step - before) * ROWS * LENGTH / (time.perf_counter() - begun)


class Peer:
    """A compiled model in a plain loop over one batch."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = torch.compile(model), optimizer
        self.x = torch.randint(VOCABULARY, (ROWS, LENGTH), device="cuda")
        self.y = torch.randint(VOCABULARY, (ROWS, LENGTH), device="cuda")

    def run(self) -> float:
        begun = time.perf_counter()
        for _ in range(STEPS):
            with torch.autocast("cuda", torch.bfloat16):
                loss = self.loss()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return STEPS * ROWS * LENGTH / (time.perf_counter() - begun)


class NanoGpt(Peer):
    name = "nanoGPT"

    def __init__(self, folder: str) -> None:
        sys.path.insert(0, folder)
        from model import GPT, GPTConfig

        torch.manual_seed(0)
        model = GPT(GPTConfig(block_size=LENGTH, vocab_size=50_304, dropout=0.0, bias=True)).cuda()
        super().__init__(model, model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cuda"))

    def loss(self) -> torch.Tensor:
        return self.model(self.x, self.y)[1]


class Transformers(Peer):
    name = "transformers"

    def __init__(self) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        dropouts = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        model = GPT2LMHeadModel(GPT2Config(**dropouts)).cuda()
        super().__init__(model, torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=True))

    def loss(self) -> torch.Tensor:
        return self.model(input_ids=self.x, labels=self.y).loss


def main() -> None:
    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    torch.set_float32_matmul_precision("high")
    pairs = int(next((word for word in sys.argv[1:] if word.isdecimal()), 5))
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        ours = Ours(Path(folder))
        ours.run()
        ours.run()
        ready = time.perf_counter() - begun
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; ours ready after {ready:.0f} s")
        peer: NanoGpt | Transformers | None = NanoGpt(os.environ["NANOGPT"]) if "NANOGPT" in os.environ else None
        if "transformers" in sys.argv[1:]:
            peer = Transformers()
        if peer:
            peer.run()
        ratios, speeds = [], []
        for pair in range(pairs):
            speed = ours.run()
            theirs = peer.run() if peer else float("nan")
            ratios.append(speed / theirs)
            speeds.append(speed)
            name = peer.name if peer else "no peer"
            print(f"pair {pair + 1}: ours {speed / 1e3:.0f} k tokens/s, {name} {theirs / 1e3:.0f} k", flush=True)
        weights = sum(p.numel() for p in ours.model.parameters())
        speed = statistics.median(speeds)
        attention = 12 * 12 * 768 * LENGTH  # of scores and sums, forward and backward, a token
        print(
            f"{speed / 1e3:.0f} k tokens/s, {(6 * weights + attention) * speed / PEAK:.1%} of {PEAK / 1e12:.0f} TFLOP/s"
        )
        print(f"median ratio {statistics.median(ratios):.2f} (at least 1.05 of nanoGPT's, 1.25 of transformers')")


if __name__ == "__main__":
    main()
