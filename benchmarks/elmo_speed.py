"""ELMo trains on words with their letters at 1.3 times the speed of a plain torch loop of the same layers, or
more, in the same run: on a GPU if there is one, else on two cores (one, if there are no more).

    PYTHONPATH=src python3 benchmarks/elmo_speed.py

The plain loop has the letters of every word of a batch as a tensor, nn.Embedding, nn.Conv1d, highways of nn.Linear, 4
nn.LSTM with the residual, one output layer for both directions, cross-entropy, clipping, AdamW and carried state: as
the papers' own code reads every place. Ours goes the whole way of a run, with its reading of the store. Text, words and
letters are those of pydoc, and the sizes those of the recipe (on a GPU: of elmo/gpu).
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batches import Config as Layout
from segue.batches.encode import encode_text
from segue.batches.store import Store
from segue.batches.streams import Streams
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.shapes import TEXT
from segue.layers.spelling import ALPHABET
from segue.models.base import Sizes
from segue.models.elmo import Elmo
from segue.recipe import load_recipe
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer
from segue.training.rates import Config as Optimizer
from segue.training.trainer import Config, Trainer

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
CORES = min(2, len(os.sched_getaffinity(0)))
RECIPE = load_recipe("elmo/gpu" if CUDA else "elmo", ["data.path=pydoc"])
STEPS, PAIRS = (40, 7) if CUDA else (8, 7)


class Bare(nn.Module):
    """torch's own modules."""

    def __init__(self, config: Elmo.Config, words: int) -> None:
        super().__init__()
        width, count = config.width, sum(config.filters)
        self.letters = nn.Embedding(ALPHABET + 4, config.letter)
        self.convs = nn.ModuleList(nn.Conv1d(config.letter, n, k) for k, n in enumerate(config.filters, 1))
        self.highways = nn.ModuleList(nn.Linear(count, 2 * count) for _ in range(config.highways))
        self.out = nn.Linear(count, width)
        self.halves = nn.ModuleList(
            nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(config.layers)) for _ in range(2)
        )
        self.head = nn.Linear(width, words)

    def forward(self, chars: Tensor, state: list[tuple[Tensor, Tensor]] | None) -> tuple[list[Tensor], list]:
        rows, length, _ = chars.shape
        letters = self.letters(chars.flatten(0, 1)).transpose(1, 2)
        x = torch.cat([conv(F.pad(letters, (0, conv.kernel_size[0] - 1))).amax(2).relu() for conv in self.convs], 1)
        for highway in self.highways:
            new, gate = highway(x).chunk(2, 1)
            x = gate.sigmoid() * new.relu() + (1 - gate.sigmoid()) * x
        x = self.out(x).view(rows, length, -1)
        logits, ends = [], []
        for turned, half in enumerate(self.halves):
            h = x.flip(1) if turned else x
            for number, lstm in enumerate(half):  # type: ignore[arg-type]
                out, end = lstm(h, None if turned or state is None else state[number])
                h = out + h if number else out
                ends.append(end)
            logits.append(self.head(h.flip(1) if turned else h))
        return logits, ends[: len(self.halves[0])]  # type: ignore[arg-type]


def bare_step(store: Store, tokenizer: Tokenizer, letters_VC: Tensor) -> Callable[[], None]:
    config, batches = RECIPE.model, RECIPE.batches
    model = Bare(config, tokenizer.vocab_size).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    text = torch.from_numpy(store.tokens.astype("int64")).to(DEVICE)
    columns = (len(text) - 1) // batches.size
    inputs, targets = (text[i : i + columns * batches.size].view(batches.size, columns) for i in (0, 1))
    letters_VC, at, state = letters_VC.to(DEVICE).long(), 0, None

    def step() -> None:
        nonlocal at, state
        at = 0 if at + batches.length > columns else at
        read, right = inputs[:, at : at + batches.length], targets[:, at : at + batches.length]
        at += batches.length
        chars = letters_VC[read]
        if not CUDA:
            chars = chars[:, :, : int((chars > 0).sum(2).max())]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=CUDA):
            (ahead, back), ends = model(chars, state)
        loss = F.cross_entropy(ahead.flatten(0, 1).float(), right.flatten())
        loss = loss + F.cross_entropy(back[:, 1:].flatten(0, 1).float(), read[:, :-1].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        state = [tuple(part.detach() for part in end) for end in ends]

    return step


def our_step(store: Store, model: Elmo) -> Callable[[], None]:
    layout = RECIPE.batches
    batches = Streams(store, Layout(layout.size, layout.length), seed=0)
    adamw = Optimizer(name="adamw", rate=1e-3, clip=1.0, schedule="constant", warmup=0)
    train = Config(steps=10**6, every=10**6, log_every=1, optimizer=adamw)
    records: Iterator[object] = Trainer(model.to(DEVICE), batches, train, None, DEVICE).fit()
    return lambda: next(records, None)  # type: ignore[return-value]


def seconds(step: Callable[[], None]) -> float:
    if CUDA:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    if CUDA:
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) / STEPS


def main() -> None:
    torch.manual_seed(0)
    if not CUDA:
        torch.set_num_threads(CORES)
    else:
        torch.set_float32_matmul_precision("high")
    print(f"{date.today()}, {torch.cuda.get_device_name() if CUDA else f'{CORES} cores'}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(Data(path="pydoc"), TEXT)
        texts = list(corpus.examples("train"))
        tokenizer = Tokenizer.train(Tokens(kind="word"), (one.text for one in texts))
        store = encode_text(texts, tokenizer, Path(folder) / "store", letters=True).store
        model = Elmo(RECIPE.model, Sizes(tokenizer.vocab_size))
        model.spell([tokenizer.name(i) for i in range(tokenizer.vocab_size)])
        bare = bare_step(store, tokenizer, model.words.letters_VC.clone())
        steps = {"plain torch": bare, "segue": our_step(store, model)}
        for step in steps.values():
            seconds(step)  # warm
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(PAIRS):
            for name, step in steps.items():
                times[name].append(seconds(step))
    words = RECIPE.batches.size * RECIPE.batches.length
    for name, found in times.items():
        print(f"{name}: {words / statistics.median(found):,.0f} words/s")
    ratio = statistics.median(a / b for a, b in zip(times["plain torch"], times["segue"], strict=True))
    print(f"segue / plain torch: {ratio:.2f} (bar 1.3)")


if __name__ == "__main__":
    main()
