"""Marian's folders in and out, at the shape of OPUS-MT's models (6 + 6 layers of 512, 58,101 tokens).

A folder with random weights that transformers writes, with SentencePiece models that the library learns from built-in
text, is imported: logits agree to 1e-4, ids and text of MarianTokenizer are ours, greedy and beam-4 (length penalty 0)
write the same ids as transformers. It is exported again: every weight is the same, and CTranslate2's converter reads it
and translates the same. Then a small translator, trained here by the recipe transformer/marian on `grammar`, goes out
and is compared in the same way on held-out sentences, whose translations end.

Usage: python benchmarks/marian_agreement.py [SECONDS], the seconds that the small translator trains, by default 60.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from pydoc_data.topics import topics

import ctranslate2
import numpy as np
import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

import segue
from segue.batches.collate import mask_of, pad
from segue.data.example import Example
from segue.inference.decode import generate
from segue.inference.decode_settings import Config as Decode

LINES = [line.strip() for text in topics.values() for line in text.split("\n") if len(line.split()) > 3]
TOKENS = 58_101
SENTENCES, MOST = 16, 24
SHAPE = {
    **{"encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8, "decoder_attention_heads": 8},
    **{"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "max_position_embeddings": 512},
    **{"vocab_size": TOKENS, "activation_function": "swish", "scale_embedding": True, "eos_token_id": 0},
    **{"pad_token_id": TOKENS - 1, "decoder_start_token_id": TOKENS - 1, "forced_eos_token_id": None},
}

SMALL = {"model.layers": 1, "model.width": 64, "train.optimizer.rate": 0.005, "train.optimizer.warmup": 50}
"""What learns something within a minute."""


def spm(texts: list[str], size: int) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=written, vocab_size=size, hard_vocab_limit=False, minloglevel=2
    )
    return written.getvalue()


def names_of(model: bytes) -> list[str]:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [library.id_to_piece(i) for i in range(3, library.get_piece_size())]


def write_theirs(folder: Path) -> None:
    """A folder of OPUS-MT's shape: random weights, two SentencePiece models, one vocabulary filled up to its size."""
    folder.mkdir()
    models = {"source": spm(LINES, 4000), "target": spm([" ".join(line.split()[::-1]) for line in LINES], 3000)}
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
    known = list(dict.fromkeys(names_of(models["source"]) + names_of(models["target"])))
    more = [f"▁unused{i}" for i in range(TOKENS - 3 - len(known))]
    vocab = {name: i for i, name in enumerate(["</s>", "<unk>", *known, *more, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    paths = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}
    MarianTokenizer(**{key: str(folder / name) for key, name in paths.items()}).save_pretrained(folder)
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**SHAPE, init_std=0.05)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        model.final_logits_bias.add_(torch.randn_like(model.final_logits_bias), alpha=0.1)
    model.generation_config.bad_words_ids = [[TOKENS - 1]]
    model.save_pretrained(folder)


def say(what: str, value: Any, holds: bool = True) -> None:
    print(f"  {what:62} {value}", flush=True)
    if not holds:
        raise SystemExit(f"{what}: not as it should be")


def rows_of(run: segue.Run, texts: list[str]) -> list[Any]:
    flat, lengths = run.codec.source_tokenizer.encode_many(texts)
    return np.split(flat, np.cumsum(lengths)[:-1])


def written(run: segue.Run, texts: list[str], beam: int, forbid: tuple[int, ...] = ()) -> list[list[int]]:
    rows = rows_of(run, texts)
    settings = Decode(max_tokens=MOST, beam=beam, length_penalty=0.0, length_ratio=0.0)
    starts: list[list[int]] = [[] for _ in rows]
    found = generate(run.model, starts, run.sizes, settings, pad(rows), mask_of(rows), forbid=forbid)
    return [text.ids for text in found]


def same_as_transformers(run: segue.Run, folder: Path, pairs: list[tuple[str, str]]) -> None:
    model, tokenizer = MarianMTModel.from_pretrained(folder).eval(), MarianTokenizer.from_pretrained(folder)
    sources = [source for source, _ in pairs]
    batch = tokenizer(sources, return_tensors="pt", padding=True)
    targets = [tokenizer(text_target=target)["input_ids"] for _, target in pairs]
    ours = [run.codec.source_tokenizer.encode(text).tolist() for text in LINES[:2000]]
    theirs = tokenizer(LINES[:2000])["input_ids"]
    say(
        "lines with the same ids as MarianTokenizer's", f"{sum(map(list.__eq__, ours, theirs))} of 2000", ours == theirs
    )
    read = run.task.collate(run.task.encode([Example(text=s, target=t) for s, t in pairs], run.codec), 500).to("cpu")
    labels = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in targets], True, -100)
    with torch.inference_mode():
        expected = model(**batch, labels=labels).logits[..., : run.sizes.vocab_size]
        apart = float((run.model(read)[0] - expected)[torch.as_tensor(read.mask_BT)].abs().max())
    say("logits apart, at the most", f"{apart:.1e} (they lie within ±{float(expected.abs().max()):.1f})", apart < 1e-4)
    forbid = tuple(words[0] for words in model.generation_config.bad_words_ids if words[0] < run.sizes.vocab_size)
    for beam in (1, 4):
        settings = {"num_beams": beam, "length_penalty": 0.0, "max_new_tokens": MOST, "do_sample": False}
        found = model.generate(**batch, **settings, forced_eos_token_id=None).tolist()
        ends = (model.config.eos_token_id, model.config.pad_token_id)
        expected_ids = [[i for i in row if i not in ends] for row in found]
        same = sum(map(list.__eq__, written(run, sources, beam, forbid), expected_ids))
        say(f"texts with the same ids as transformers', beam {beam}", f"{same} of {len(pairs)}", same == len(pairs))


def same_as_ctranslate2(run: segue.Run, folder: Path, sources: list[str]) -> None:
    converted = folder.with_name(folder.name + "-ct2")
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted))
    translator = ctranslate2.Translator(str(converted), device="cpu", compute_type="float32")
    tokenizer = MarianTokenizer.from_pretrained(folder)
    pieces = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(sources)["input_ids"]]
    names = ["</s>", "<unk>", *run.tokenizer.names[2:]]  # type: ignore[attr-defined]
    for beam in (1, 4):
        limits = {"min_decoding_length": 0, "max_decoding_length": MOST, "disable_unk": True}
        found = translator.translate_batch(pieces, beam_size=beam, length_penalty=0, **limits)
        ours = [[names[i] for i in ids] for ids in written(run, sources, beam, (run.tokenizer.unk,))]
        same = sum(one == other.hypotheses[0] for one, other in zip(ours, found, strict=True))
        # A beam that has not ended by its limit is given up in another way there.
        say(f"texts with the same pieces as CTranslate2's, beam {beam}", f"{same} of {len(sources)}")


def same_weights(folder: Path, again: Path) -> None:
    one, other = (MarianMTModel.from_pretrained(path).state_dict() for path in (folder, again))
    other["final_logits_bias"][0, -1] = one["final_logits_bias"][0, -1]  # that of <pad>, which is never written
    same = sum(torch.equal(one[name], other[name]) for name in one)
    say("tensors equal to the last bit after import and export", f"{same} of {len(one)}", same == len(one))


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    chosen = random.Random(0).sample(LINES, SENTENCES)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        print(f"OPUS-MT's shape, random weights, {SENTENCES} lines:")
        write_theirs(place / "opus")
        began = time.perf_counter()
        segue.import_run(place / "opus", place / "run", progress=segue.silent)
        say("seconds to import", f"{time.perf_counter() - began:.1f}")
        run = segue.load(place / "run", device="cpu")
        say("parameters", f"{run.model.parameters_count:,}")
        same_as_transformers(run, place / "opus", list(zip(chosen, chosen, strict=True)))
        segue.export_run(place / "run", place / "again", "marian", progress=segue.silent)
        same_weights(place / "opus", place / "again")
        same_as_ctranslate2(run, place / "again", chosen)
        print(f"A translator of `grammar`, trained here for {seconds:.0f} s:")
        settings = {"train.seconds": seconds, "data.validation": 0.01, "tokens.vocab_size": 300, **SMALL}
        own = segue.train("transformer/marian", "grammar", place / "own", settings, device="cpu", progress=segue.silent)
        say("BLEU", f"{own.result['bleu']:.1f}")
        segue.export_run(own.path, place / "own-hf", "marian", progress=segue.silent)
        pairs = [(one["source"], one["reference"]) for one in own.evaluation.examples]  # type: ignore[union-attr]
        same_as_transformers(own, place / "own-hf", pairs)
        same_as_ctranslate2(own, place / "own-hf", [source for source, _ in pairs])


if __name__ == "__main__":
    main()
