"""Translating with a Transformer by beam search, sentences a second, against other tools with the same weights.

    OMP_NUM_THREADS=2 PYTHONPATH=src python3 benchmarks/translate_speed.py --device cpu [--shape small base]
    PYTHONPATH=src python3 benchmarks/translate_speed.py --device cuda [--sentences 1 64 256] [--rounds 5]

A MarianMTModel of transformers with random weights; ours gets its tensors, with the coordinates of each layer in the
order of our sinusoids, and so does CTranslate2 (by its own converter; float32 and int8) where it is installed. Nobody
may write the end, so that all do the same work. On cpu beam 5, 32 sentences of 16 tokens, 20 out: 4 + 4 layers of 256
and 8,000 tokens, 6 + 6 of 512 and 32,000. On cuda 6 + 6 layers of 512, 32,000 tokens, beam 5, sources of 32 tokens, 32
out, 1, 64 and 256 sentences at once, bfloat16 (ours is given float32 weights). In float32 the ids must be those of
transformers. All are warm; rounds are interleaved, and medians given.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import date
from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from segue.inference.decode import generate
from segue.inference.decode_settings import Config
from segue.models.base import Sizes
from segue.models.transformer import Transformer

BEAM = 5
WARM = 80
"""Translations that ours makes first on a GPU: after some thousand steps it has kernels of its own."""
SHAPES = {"small": (4, 256, 4, 8_000), "base": (6, 512, 8, 32_000)}
"""Layers a side, width, heads, tokens."""
BARS = {
    "cpu": "at least 2 times transformers, 1.0 times CTranslate2's float32; aim its int8",
    "cuda": "at least 5, 5 and 3 times transformers at 1, 64 and 256 sentences; aim 8",
}

Translate = Callable[[], list[list[int]]]


def peer(shape: str) -> Any:
    layers, width, heads, vocabulary = SHAPES[shape]
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=vocabulary - 1,
        eos_token_id=0,
        forced_eos_token_id=None,
        decoder_start_token_id=vocabulary - 1,
        max_position_embeddings=256,
        init_std=0.1,  # large enough that tokens differ in probability
    )
    model: Any = MarianMTModel(config).eval()
    for block in (*model.model.encoder.layers, *model.model.decoder.layers):
        block.fc2.weight.data *= 3  # or every text would repeat one token
    return model


def ours(model: Any) -> Transformer:
    """Our model with the peer's weights; its padding, the token that texts begin with, is our mark `start`."""
    config, width = model.config, model.config.d_model
    sizes = Sizes(config.vocab_size - 1, marks=("start",))
    own = Transformer(
        Transformer.Config(
            layers=config.encoder_layers,
            width=width,
            heads=config.encoder_attention_heads,
            feed=config.encoder_ffn_dim,
            context=config.max_position_embeddings,
            norm="post",
            position="sinusoidal",
            activation="relu",
            tied="all",
            dropout=0.0,
            label_smoothing=0.0,
        ),
        sizes,
    )
    # Ours: sine and cosine in turns; the peer's: all sines, then all cosines.
    order = torch.arange(width).view(2, -1).T.flatten()
    with torch.no_grad():
        own.vectors.weight.copy_(model.model.shared.weight[:, order])
        for block, theirs in zip(own.encoder, model.model.encoder.layers, strict=True):
            copy_block(block, theirs, order)
        for block, theirs in zip(own.decoder, model.model.decoder.layers, strict=True):
            copy_block(block, theirs, order)
            q, k, v, out = (getattr(theirs.encoder_attn, name) for name in ("q_proj", "k_proj", "v_proj", "out_proj"))
            block.cross.q.weight.copy_(q.weight[:, order])
            block.cross.q.bias.copy_(q.bias)
            block.cross.kv.weight.copy_(torch.cat([k.weight, v.weight])[:, order])
            block.cross.kv.bias.copy_(torch.cat([k.bias, v.bias]))
            copy_out(block.cross.out, out, order)
            copy_norm(block.norm_cross, theirs.encoder_attn_layer_norm, order)
    return own.eval()


def copy_block(block: Any, theirs: Any, order: Tensor) -> None:
    parts = [getattr(theirs.self_attn, name) for name in ("q_proj", "k_proj", "v_proj")]
    block.attention.qkv.weight.copy_(torch.cat([part.weight for part in parts])[:, order])
    block.attention.qkv.bias.copy_(torch.cat([part.bias for part in parts]))
    copy_out(block.attention.out, theirs.self_attn.out_proj, order)
    copy_norm(block.norm_attention, theirs.self_attn_layer_norm, order)
    block.feed.up.weight.copy_(theirs.fc1.weight[:, order])
    block.feed.up.bias.copy_(theirs.fc1.bias)
    copy_out(block.feed.down, theirs.fc2, order)
    copy_norm(block.norm_feed, theirs.final_layer_norm, order)


def copy_out(own: Any, theirs: Any, order: Tensor) -> None:
    own.weight.copy_(theirs.weight[order])
    own.bias.copy_(theirs.bias[order])


def copy_norm(own: Any, theirs: Any, order: Tensor) -> None:
    own.weight.copy_(theirs.weight[order])
    own.bias.copy_(theirs.bias[order])


def by_ours(model: Transformer, source: Tensor, tokens: int, device: str) -> Translate:
    config = Config(beam=BEAM, max_tokens=tokens, length_penalty=0.0, length_ratio=0.0)
    rows = [[] for _ in range(len(source))]  # type: ignore[var-annotated]

    def translate() -> list[list[int]]:
        texts = generate(model, rows, model.sizes, config, source, None, device, forbid=[model.sizes.stop])
        return [text.ids for text in texts]

    return translate


def by_transformers(model: Any, source: Tensor, tokens: int) -> Translate:
    settings = {
        "num_beams": BEAM,
        "min_new_tokens": tokens,
        "max_new_tokens": tokens,
        "length_penalty": 0.0,
        "early_stopping": False,
        "do_sample": False,
        "bad_words_ids": [[model.config.pad_token_id]],
        "max_length": None,
    }

    @torch.inference_mode()
    def translate() -> list[list[int]]:
        out = model.generate(source, attention_mask=torch.ones_like(source), **settings)
        ids: list[list[int]] = out[:, 1:].tolist()
        return ids

    return translate


def by_ctranslate2(model: Any, source: Tensor, tokens: int, precision: str, folder: str) -> Translate:
    import ctranslate2

    translator = ctranslate2.Translator(
        folder, compute_type=precision, inter_threads=1, intra_threads=torch.get_num_threads()
    )
    rows = [[f"t{number}" for number in row] for row in source.tolist()]
    limits = {"min_decoding_length": tokens, "max_decoding_length": tokens}

    def translate() -> list[list[int]]:
        given = translator.translate_batch(rows, beam_size=BEAM, length_penalty=0, max_batch_size=0, **limits)
        return [[int(token[1:]) for token in one.hypotheses[0]] for one in given]

    return translate


def convert(model: Any, folder: str) -> None:
    """Write the peer's weights in CTranslate2's format."""
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(model)
    tokens = ["</s>", "<unk>", *(f"t{number}" for number in range(2, model.config.vocab_size - 1))]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.eos_token, spec.config.unk_token, spec.config.decoder_start_token = "</s>", "<unk>", "</s>"
    spec.config.add_source_eos = False
    spec.validate()
    spec.save(folder)


def compare(ways: dict[str, Translate], sentences: int, rounds: int, exact: str) -> None:
    """Run all in turns; print medians, ratios and how many texts are those of `exact`."""
    told: dict[str, list[list[int]]] = {}
    seconds: dict[str, list[float]] = {}
    for name, translate in list(ways.items()):
        try:
            begun = time.perf_counter()
            told[name] = translate()
            translate()
            print(f"  {name}: ready after {time.perf_counter() - begun:.1f} s", flush=True)
            seconds[name] = []
        except Exception:
            traceback.print_exc()
    for _ in range(rounds):
        for name in seconds:
            synchronize()
            begun = time.perf_counter()
            ways[name]()
            synchronize()
            seconds[name].append(time.perf_counter() - begun)
    for name, times in seconds.items():
        speed = sentences / statistics.median(times)
        same = sum(a == b for a, b in zip(told[name], told.get(exact, []), strict=False))
        ratios = (
            [statistics.median(b / a for a, b in zip(seconds["ours"], times, strict=True))] if "ours" in told else []
        )
        ratio = "".join(f", ours is {one:.2f} times as fast" for one in ratios if name != "ours")
        print(f"  {name:22} {speed:9.1f} sentences/s; {same} of {sentences} texts as {exact}'s{ratio}", flush=True)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def on_cpu(shape: str, rounds: int) -> None:
    model = peer(shape)
    source = torch.randint(2, model.config.vocab_size - 1, (32, 16), generator=torch.Generator().manual_seed(1))
    ways = {"ours": by_ours(ours(model), source, 20, "cpu"), "transformers": by_transformers(model, source, 20)}
    print(f"{shape} {SHAPES[shape]}, 32 sentences of 16 tokens, 20 out, beam {BEAM}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            convert(model, folder)
            for precision in ("float32", "int8"):
                ways[f"CTranslate2 {precision}"] = by_ctranslate2(model, source, 20, precision, folder)
        except ImportError:
            print("  ctranslate2 is not installed")
        compare(ways, 32, rounds, "transformers")


def on_cuda(sentences: int, rounds: int) -> None:
    model = peer("base")
    own = ours(model).to("cuda")
    source = torch.randint(2, 31_999, (sentences, 32), generator=torch.Generator().manual_seed(1)).to("cuda")
    print(f"base {SHAPES['base']}, {sentences} sentences of 32 tokens, 32 out, beam {BEAM}", flush=True)
    peers = {
        "transformers": by_transformers(model.to("cuda", torch.bfloat16), source, 32),
        "ours": by_ours(own, source, 32, "cuda"),
    }
    try:
        print(
            f"  ours by torch's kernels, recorded: {speed(peers['ours'], sentences, rounds):.1f} sentences/s",
            flush=True,
        )
        for _ in range(WARM):
            peers["ours"]()
    except Exception:
        traceback.print_exc()
    compare(peers, sentences, rounds, "transformers")
    try:
        same_as_plain(own, source)
        profile(peers["ours"])
    except Exception:
        traceback.print_exc()


def speed(translate: Translate, sentences: int, rounds: int) -> float:
    """Sentences a second, the median after two rounds of warm-up."""
    times = []
    for _ in range(rounds + 2):
        synchronize()
        begun = time.perf_counter()
        translate()
        synchronize()
        times.append(time.perf_counter() - begun)
    return sentences / statistics.median(times[2:])


def same_as_plain(model: Transformer, source: Tensor) -> None:
    """How many texts of recorded steps, in bfloat16, are those of plain steps in float32."""
    config = Config(beam=BEAM, max_tokens=32, length_penalty=0.0, length_ratio=0.0)
    rows: list[list[int]] = [[] for _ in range(len(source))]
    given = (rows, model.sizes, config, source, None, "cuda", [model.sizes.stop])
    ours, plain = generate(model, *given), generate(Plain(model), *given)
    same = sum(a.ids == b.ids for a, b in zip(ours, plain, strict=True))
    worse = statistics.mean(b.logprob - a.logprob for a, b in zip(ours, plain, strict=True))
    print(f"  {same} of {len(rows)} texts are those of plain steps in float32; mean log p {worse:+.4f} below theirs")


class Plain:
    """A model of which only `start` and `step` are known, so that nothing is recorded."""

    def __init__(self, model: Any) -> None:
        self.start, self.step = model.start, model.step


def profile(translate: Translate) -> None:
    """What one translation spends its time on."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as found:
        translate()
        synchronize()
    events = [event for event in found.key_averages() if event.self_device_time_total and not event.self_cpu_time_total]
    print(f"  kernels launched: {sum(event.count for event in events)}; on the device "
          f"{sum(event.self_device_time_total for event in events) / 1e3:.1f} ms")  # fmt: skip
    for event in sorted(events, key=lambda event: -event.self_device_time_total)[:25]:
        print(f"    {event.self_device_time_total / 1e3:8.2f} ms {event.count:6} x {event.key[:110]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", nargs="*", default=list(SHAPES))
    parser.add_argument("--sentences", type=int, nargs="*", default=[1, 64, 256])
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    machine = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{date.today()}, {machine}, torch {torch.__version__} ({BARS[given.device]})")
    cases: list[Callable[[], None]] = [lambda shape=shape: on_cpu(shape, given.rounds) for shape in given.shape]  # type: ignore[misc]
    if given.device == "cuda":
        cases = [lambda count=count: on_cuda(count, given.rounds) for count in given.sentences]  # type: ignore[misc]
    for case in cases:
        try:
            case()
        except Exception:
            traceback.print_exc()


if __name__ == "__main__":
    main()
