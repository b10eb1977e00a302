"""Classifying, scoring and embedding sentences of 5 to 128 tokens, against transformers with the same weights.

    PYTHONPATH=src python3 benchmarks/sentences.py [small|base|both] [cpu|cuda] [float32|bfloat16] [PAIRS]

Two shapes, 6 layers of 256 (small) and BERT-base, both with 30,522 tokens and random weights. Ours goes the way of
`segue predict` (from texts of space tokens), `segue score` (each token masked in turn) and `segue embed`. The peer gets
the ids, sorts all rows by length, pads each batch to its longest row, and is timed with several numbers of rows in a
batch, of which the best counts. Its classifier is BertForSequenceClassification; its scores come from BertForMaskedLM,
which computes logits at all places; its vectors are the mean of BertModel's last states. Both sides take turns; the
figure is the median of the ratios. The outputs must agree: to 1e-4 in float32, to 0.1 in bfloat16 (on a GPU).
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from segue.batches.codec import BodySpec, Codec, Sizes
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.inference.decode_settings import Config as Decode
from segue.inference.masked import score_in_turn
from segue.inference.opened import Opened
from segue.inference.text_vectors import text_vectors
from segue.models.bert import Bert
from segue.models.finetuned_classifier import FinetunedClassifier
from segue.tasks import classify, masked_lm
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

IDS = 30_522
WORDS = [f"w{i}" for i in range(IDS - 4)]
SHAPES = {"small": (6, 256, 4), "base": (12, 768, 12)}
SENTENCES = {("small", "cpu"): 1000, ("base", "cpu"): 96, ("small", "cuda"): 20_000, ("base", "cuda"): 10_000}
SCORED = {("small", "cpu"): 24, ("base", "cpu"): 3, ("small", "cuda"): 600, ("base", "cuda"): 200}
"""Sentences that are scored: each is read as often as it has tokens."""
ROWS = {"cpu": (16, 64), "cuda": (64, 256, 1024)}
"""Rows of a batch of the peer."""

Rows = list[list[int]]


class Bench:
    def __init__(self, shape: str, device: str, dtype: torch.dtype) -> None:
        self.device, self.shape = device, shape
        layers, width, heads = SHAPES[shape]
        self.tokenizer = tokenizer = Tokenizer.train(Tokens(kind="space"), [" ".join(WORDS)])
        config = Bert.Config(layers=layers, width=width, heads=heads, context=512)
        sizes = Sizes(IDS - 2, marks=Bert.marks(config))
        torch.manual_seed(0)
        body = Bert(config, sizes)
        spec = BodySpec("bert", dataclasses.asdict(config), sizes)
        headed = dataclasses.replace(sizes, classes=2, body=spec, window=512)
        classifier = FinetunedClassifier(FinetunedClassifier.Config(), headed)
        classifier.body.load_state_dict(body.state_dict())
        codec = Codec(tokenizer, ("no", "yes"), Data(), headed)
        self.masked = self.opened(body, codec._replace(sizes=sizes), masked_lm.TASK, dtype)
        self.labels = self.opened(classifier, codec, classify.TASK, dtype)
        self.peer(layers, width, heads, body, classifier, dtype)
        self.start, self.stop, self.mask = sizes.start, sizes.stop, sizes.mark("mask")

    def opened(self, model: Any, codec: Codec, task: Any, dtype: torch.dtype) -> Opened:
        return Opened(model.to(self.device, dtype).eval(), codec, Decode(), 512, task, self.device)

    def peer(self, layers: int, width: int, heads: int, body: Bert, head: Any, dtype: torch.dtype) -> None:
        config = BertConfig(
            vocab_size=IDS,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            attn_implementation="sdpa",
        )
        self.of_labels, self.of_masks = BertForSequenceClassification(config), BertForMaskedLM(config)
        weights = as_theirs(body)
        own = {"classifier.weight": head.head.weight, "classifier.bias": head.head.bias}
        pooler = {"bert.pooler.dense.weight": body.pooler.weight, "bert.pooler.dense.bias": body.pooler.bias}
        for model, more in ((self.of_labels, own | pooler), (self.of_masks, {})):
            missing, _ = model.load_state_dict(weights | more, strict=False)
            assert not [name for name in missing if "position_ids" not in name and "decoder" not in name], missing
            model.to(self.device, dtype).eval()

    # Ours

    def predict(self, texts: list[str]) -> Any:
        examples = [Example(text=text) for text in texts]
        return np.array([label.probabilities for label in classify.TASK.predict(self.labels, examples)])

    def embed(self, texts: list[str]) -> Any:
        return np.array(list(text_vectors(self.masked, [Example(text=text) for text in texts])))

    def score(self, texts: list[str]) -> Any:
        return np.array([line.pseudo_log_likelihood for line in score_in_turn(self.masked, texts)])

    # The peer

    @torch.inference_mode()
    def their_predict(self, rows: Rows, size: int) -> Any:
        found = np.zeros((len(rows), 2))
        for some, ids, mask in self.batches(rows, size):
            found[some] = self.of_labels(input_ids=ids, attention_mask=mask).logits.float().softmax(-1).cpu().numpy()
        return found

    @torch.inference_mode()
    def their_embed(self, rows: Rows, size: int) -> Any:
        found = np.zeros((len(rows), self.of_labels.config.hidden_size), np.float32)
        for some, ids, mask in self.batches(rows, size):
            states = self.of_labels.bert(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            text = mask.bool() & (ids != self.start) & (ids != self.stop)
            found[some] = ((states * text[..., None]).sum(1) / text.sum(1, keepdim=True)).cpu().numpy()
        return found

    @torch.inference_mode()
    def their_score(self, rows: Rows, size: int) -> Any:
        masked, places, owners, true = [], [], [], []
        for owner, row in enumerate(rows):
            for place in range(1, len(row) - 1):
                masked.append([*row[:place], self.mask, *row[place + 1 :]])
                places.append(place)
                owners.append(owner)
                true.append(row[place])
        found = np.zeros(len(rows))
        where, target = np.array(places), np.array(true)
        for some, ids, mask in self.batches(masked, size):
            logits = self.of_masks(input_ids=ids, attention_mask=mask).logits
            here = logits[torch.arange(len(some)), torch.from_numpy(where[some]).to(self.device)][:, : IDS - 2].float()
            logp = here.log_softmax(-1).gather(1, torch.from_numpy(target[some]).to(self.device)[:, None])[:, 0]
            np.add.at(found, np.array(owners)[some], logp.cpu().numpy())
        return found

    def batches(self, rows: Rows, size: int) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
        order = np.argsort([-len(row) for row in rows], kind="stable")
        for begin in range(0, len(order), size):
            some = order[begin : begin + size]
            longest = len(rows[some[0]])
            ids = torch.tensor([rows[i] + [0] * (longest - len(rows[i])) for i in some])
            mask = torch.tensor([[1] * len(rows[i]) + [0] * (longest - len(rows[i])) for i in some])
            yield some, ids.to(self.device), mask.to(self.device)


def as_theirs(model: Bert) -> dict[str, torch.Tensor]:
    """The weights by the names that transformers gives them."""
    own = model.state_dict()
    parts = {"embeddings.LayerNorm": "norm"}
    found = {"cls.predictions.bias": own["bias"], "cls.predictions.decoder.bias": own["bias"]}
    tables = {"word": "vectors", "position": "positions.table", "token_type": "segment_vectors"}
    found |= {f"bert.embeddings.{name}_embeddings.weight": own[f"{ours}.weight"] for name, ours in tables.items()}
    for i in range(model.config.layers):
        layer, block = f"encoder.layer.{i}", f"blocks.{i}"
        parts |= {f"{layer}.attention.output.dense": f"{block}.attention.out"}
        parts |= {f"{layer}.attention.output.LayerNorm": f"{block}.norm_attention"}
        parts |= {f"{layer}.intermediate.dense": f"{block}.feed.up", f"{layer}.output.dense": f"{block}.feed.down"}
        parts |= {f"{layer}.output.LayerNorm": f"{block}.norm_feed"}
        for kind in ("weight", "bias"):
            thirds = own[f"{block}.attention.qkv.{kind}"].chunk(3)
            for name, third in zip(("query", "key", "value"), thirds, strict=True):
                found[f"bert.{layer}.attention.self.{name}.{kind}"] = third
    heads = {"cls.predictions.transform.dense": "transform", "cls.predictions.transform.LayerNorm": "transform_norm"}
    named = {f"bert.{name}": ours for name, ours in parts.items()} | heads
    return found | {
        f"{name}.{kind}": own[f"{ours}.{kind}"] for name, ours in named.items() for kind in ("weight", "bias")
    }


def seconds(work: Callable[[], Any], device: str) -> float:
    begun = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def sentences(count: int) -> list[str]:
    """Sentences with 5 to 128 tokens, start and end included."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(5, 129, count)
    return [" ".join(WORDS[i] for i in draw.integers(0, len(WORDS), length - 2)) for length in lengths]


def measure(bench: Bench, name: str, count: int, times: int, tolerance: float) -> None:
    texts = sentences(count)
    rows = [[bench.start, *bench.tokenizer.encode(text).tolist(), bench.stop] for text in texts]
    ours, theirs = vars(Bench)[name], vars(Bench)[f"their_{name}"]
    gap = float(np.abs(ours(bench, texts) - theirs(bench, rows, ROWS[bench.device][0])).max())
    assert gap < tolerance * (128 if name == "score" else 1), f"{name}: the outputs differ by {gap}"
    found: dict[int, list[float]] = {size: [] for size in ROWS[bench.device]}
    own = []
    for _ in range(times):
        own.append(seconds(lambda: ours(bench, texts), bench.device))
        for size, took in found.items():
            took.append(seconds(lambda size=size: theirs(bench, rows, size), bench.device))  # type: ignore[misc]
    best = min(found, key=lambda size: statistics.median(found[size]))
    ratio = statistics.median(peer / mine for peer, mine in zip(found[best], own, strict=True))
    peers = ", ".join(f"{count / statistics.median(took):,.1f} with {size}" for size, took in found.items())
    print(f"  {name:8} {count / statistics.median(own):10,.1f} sentences/s; transformers {peers} rows; ", end="")
    print(f"ratio {ratio:.2f}, outputs within {gap:.0e}", flush=True)


def main() -> None:
    words = [*sys.argv[1:], "", "", "", ""][:4]
    shapes = list(SHAPES) if words[0] in ("", "both") else [words[0]]
    device = words[1] or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if words[2] == "bfloat16" else torch.float32
    times = int(words[3] or 3)
    if device == "cpu":
        torch.set_num_threads(2)
    card = torch.cuda.get_device_name() if device == "cuda" else "2 CPU threads"
    print(time.strftime("%Y-%m-%d"), card, "torch", torch.__version__, str(dtype).removeprefix("torch."))
    for shape in shapes:
        print(f"{shape}: {SHAPES[shape][0]} layers of {SHAPES[shape][1]}")
        bench = Bench(shape, device, dtype)
        for name, counts in (("predict", SENTENCES), ("embed", SENTENCES), ("score", SCORED)):
            measure(bench, name, counts[shape, device], times, 1e-4 if dtype == torch.float32 else 0.1)


if __name__ == "__main__":
    main()
