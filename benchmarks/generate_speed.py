"""Generating 256 tokens, tokens a second against transformers in the same run: its better cache, dynamic or static.

    PYTHONPATH=src python3 benchmarks/generate_speed.py --device cuda [--pairs 5] [--batch 1 32]
    OMP_NUM_THREADS=2 PYTHONPATH=src python3 benchmarks/generate_speed.py --device cpu

On cuda GPT-2 124M in bfloat16 (ours is given float32 weights, and copies them in every call), batches of 1 and 32; on
cpu 6 layers of 384, context 256, 5,000 tokens, float32, batches of 1 and 8. Random weights of the same shape; every row
begins with one token, draws from the whole distribution and may not stop. Both are warm: what either records or
compiles is there, and of the peer's two caches the one that was faster in the warm-up is taken. The peer's static cache
on cuda is compiled by itself, as `generate` does by default.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from segue.inference.decode import generate
from segue.inference.decode_settings import Config
from segue.models.base import Sizes
from segue.models.gpt import Gpt

TOKENS = 256
WARM = 10
"""Texts that ours writes first: after some thousand steps it has kernels of its own."""
BANDWIDTH = 4.8e12
"""Bytes a second of an H200's memory, by its maker."""
SHAPES: dict[str, dict[str, int]] = {
    "cuda": {"layers": 12, "width": 768, "heads": 12, "context": 1024},
    "cpu": {"layers": 6, "width": 384, "heads": 6, "context": 256},
}
VOCABULARY = {"cuda": 50_257, "cpu": 5_000}
BATCHES = {"cuda": [1, 32], "cpu": [1, 8]}
BARS = {"cuda": 5.0, "cpu": 2.0}


class Ours:
    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.device, self.sizes = device, Sizes(VOCABULARY[device])
        self.model = Gpt(Gpt.Config(**SHAPES[device]), self.sizes).to(device).eval()  # type: ignore[arg-type]
        self.tokens = min(TOKENS, SHAPES[device]["context"] - 1)

    def run(self, rows: int, seed: int) -> int:
        config = Config(max_tokens=self.tokens, seed=seed)
        texts = generate(self.model, [[]] * rows, self.sizes, config, device=self.device, forbid=[0, 1])
        return sum(len(text.ids) for text in texts)


class Transformers:
    def __init__(self, device: str) -> None:
        shape, vocabulary = SHAPES[device], VOCABULARY[device]
        config = GPT2Config(
            vocab_size=vocabulary,
            n_positions=shape["context"],
            n_embd=shape["width"],
            n_layer=shape["layers"],
            n_head=shape["heads"],
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
        model: Any = GPT2LMHeadModel(config)
        self.model = model.to(device, torch.bfloat16 if device == "cuda" else torch.float32).eval()
        self.device, self.tokens = device, min(TOKENS, shape["context"] - 1)
        self.cache: dict[str, str] = {}

    def choose(self, rows: int) -> None:
        """The faster of its two caches, each warm."""
        speeds = {}
        for name, cache in (("dynamic", {}), ("static", {"cache_implementation": "static"})):
            self.cache = cache
            for seed in range(2):
                self.run(rows, seed)
            speeds[name] = (speed(self.run, rows, 2), cache)
        name = max(speeds, key=lambda key: speeds[key][0])
        self.cache = speeds[name][1]
        told = ", ".join(f"{key} {value[0]:,.0f}" for key, value in speeds.items())
        print(f"batch {rows}: transformers' caches, tokens/s: {told}; taken: {name}", flush=True)

    @torch.inference_mode()
    def run(self, rows: int, seed: int) -> int:
        torch.manual_seed(seed)
        begin = torch.zeros(rows, 1, dtype=torch.long, device=self.device)
        out = self.model.generate(
            begin,
            attention_mask=torch.ones_like(begin),
            max_new_tokens=self.tokens,
            min_new_tokens=self.tokens,
            do_sample=True,
            top_k=0,
            **self.cache,
        )
        return int(out[:, 1:].numel())


def speed(run: Callable[[int, int], int], rows: int, seed: int) -> float:
    """Tokens a second, to the last of them being known here."""
    synchronize()
    begun = time.perf_counter()
    written = run(rows, seed)
    synchronize()
    return written / (time.perf_counter() - begun)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def bandwidth_share(ours: Ours, rows: int, tokens_a_second: float) -> float:
    """Of what the memory could give, if each step read only the weights, in bfloat16, and the keys and values."""
    shape = SHAPES[ours.device]
    weights = sum(parameter.numel() for parameter in ours.model.parameters())
    kept = 2 * shape["layers"] * shape["width"] * rows * ours.tokens // 2
    return 2 * (weights + kept) * tokens_a_second / rows / BANDWIDTH


def measure(ours: Ours, peer: Transformers, rows: int, pairs: int) -> float:
    begun = time.perf_counter()
    ours.run(rows, 0)
    print(f"batch {rows}: ours ready after {time.perf_counter() - begun:.1f} s")
    for seed in range(1, WARM):
        ours.run(rows, seed)
    peer.choose(rows)
    speeds, ratios = [], []
    for pair in range(pairs):
        own, theirs = speed(ours.run, rows, pair), speed(peer.run, rows, pair)
        speeds.append(own)
        ratios.append(own / theirs)
        print(f"batch {rows}, pair {pair + 1}: ours {own:,.0f} tokens/s, transformers {theirs:,.0f}", flush=True)
    if ours.device == "cuda":
        share = bandwidth_share(ours, rows, statistics.median(speeds))
        print(f"batch {rows}: {share:.1%} of what {BANDWIDTH / 1e12:.1f} TB/s allow")
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="*")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    machine = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{machine}, torch {torch.__version__}, {TOKENS} tokens")
    ours, peer = Ours(given.device), Transformers(given.device)
    rows = given.batch or BATCHES[given.device]
    ratios = {count: measure(ours, peer, count, given.pairs) for count in rows}
    told = ", ".join(f"{ratio:.2f} at batch {count}" for count, ratio in ratios.items())
    print(f"median ratio {told} (at least {BARS[given.device]:.0f})")


if __name__ == "__main__":
    main()
