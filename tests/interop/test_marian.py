"""Marian for transformers and CTranslate2, out and in: the same logits, ids and translations, and what is refused."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import ctranslate2
import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

import segue
from segue.batches.collate import mask_of, pad
from segue.cli import main
from segue.data.example import Example
from segue.errors import InputError
from segue.inference.decode import generate
from segue.inference.decode_settings import Config as Decode
from segue.interop.formats import export_run, import_run
from segue.interop.huggingface.marian import inexpressible
from segue.models.transformer import Transformer

SOURCES = [f"the {a} cow eats {n} {b} apples" for a in ("big", "naïve") for b in ("red", "green") for n in (1, 2, 12)]
TARGETS = [
    f"{n} {b} Äpfel frisst die {a} Kuh ." for a in ("große", "naïve") for b in ("rote", "grüne") for n in (1, 2, 12)
]
PAIRS = list(zip(SOURCES, TARGETS, strict=True))
SHAPE = {
    **{"encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2},
    **{"d_model": 16, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "max_position_embeddings": 64},
    **{"activation_function": "swish", "scale_embedding": True, "dropout": 0.0, "init_std": 0.2},
}
TOLD = pytest.mark.filterwarnings("ignore:Recommended:UserWarning")
pytestmark = TOLD


class Theirs(NamedTuple):
    """A folder of transformers and what it holds."""

    folder: Path
    model: MarianMTModel
    tokenizer: MarianTokenizer


def spm(texts: list[str]) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=written, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    return written.getvalue()


SPM = {"source": spm(SOURCES), "target": spm(TARGETS)}


def pieces(side: str) -> list[str]:
    library = sentencepiece.SentencePieceProcessor(model_proto=SPM[side])
    return [library.id_to_piece(i) for i in range(3, library.get_piece_size())]


def write_theirs(folder: Path, vocabs: tuple[list[str], ...] = (), steps: int = 0, **config: Any) -> Theirs:
    """A Marian model with random weights, as transformers writes it; `vocabs`: the pieces of the sources and targets if
    they have two, or those of both in another order than OPUS-MT's; `steps`: of training on PAIRS."""
    folder.mkdir()
    both = ["</s>", "<unk>", *dict.fromkeys(pieces("source") + pieces("target")), "<pad>"]
    vocabs = vocabs or (both,)
    names = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(SPM[side])
    if len(vocabs) > 1:
        names["target_vocab_file"] = "target_vocab.json"
    for name, vocab in zip(("vocab.json", "target_vocab.json"), vocabs, strict=False):
        (folder / name).write_text(json.dumps({piece: i for i, piece in enumerate(vocab)}))
    paths = {key: str(folder / name) for key, name in names.items()}
    tokenizer = MarianTokenizer(**paths, separate_vocabs=len(vocabs) > 1)
    last = vocabs[-1]
    ids = {"eos_token_id": last.index("</s>"), "forced_eos_token_id": None}
    ids |= dict.fromkeys(("pad_token_id", "decoder_start_token_id"), last.index("<pad>"))
    sizes = {"vocab_size": len(vocabs[0]), "decoder_vocab_size": len(last)}
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**SHAPE | ids | sizes | config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        model.final_logits_bias.add_(torch.randn_like(model.final_logits_bias), alpha=0.1)
    learn(model, tokenizer, steps)
    model.generation_config.bad_words_ids = [[ids["pad_token_id"]]]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Theirs(folder, model, tokenizer)


def learn(model: MarianMTModel, tokenizer: MarianTokenizer, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**forced(tokenizer)).loss.backward()
        optimizer.step()
        model.model.shared.weight.data[model.config.pad_token_id] = 0  # as in every Marian; CTranslate2 relies on it


def forced(tokenizer: MarianTokenizer) -> dict[str, torch.Tensor]:
    """All pairs as a batch of transformers."""
    batch = tokenizer(SOURCES, return_tensors="pt", padding=True)
    targets = [torch.tensor(tokenizer(text_target=text)["input_ids"]) for text in TARGETS]
    return batch | {"labels": torch.nn.utils.rnn.pad_sequence(targets, True, -100)}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    """A model that has learnt PAIRS, so that its texts end."""
    return write_theirs(tmp_path_factory.mktemp("marian") / "hf", steps=60)


@pytest.fixture(scope="module")
def run(theirs: Theirs, tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    place = tmp_path_factory.mktemp("imported") / "run"
    import_run(theirs.folder, place)
    return segue.load(place, device="cpu")


def in_double(run: segue.Run, theirs: Theirs) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of every place of PAIRS, ours and theirs: of our ids, in double precision."""
    examples = [Example(text=source, target=target) for source, target in PAIRS]
    batch = run.task.collate(run.task.encode(examples, run.codec), 60).to("cpu")
    real_BT, order = torch.as_tensor(batch.mask_BT), torch.tensor(order_of(run, theirs))
    with torch.inference_mode():
        ours = run.model.double()(batch)[0]
        expected = theirs.model.double()(**forced(theirs.tokenizer)).logits[..., order]
    run.model.float(), theirs.model.float()
    return ours[real_BT], expected[real_BT]


def order_of(run: segue.Run, theirs: Theirs) -> list[int]:
    """Their id for each of ours."""
    vocab = theirs.tokenizer.target_encoder if theirs.tokenizer.separate_vocabs else theirs.tokenizer.encoder
    return [vocab[name] for name in ("</s>", "<unk>", *run.tokenizer.names[2:])]


def written(run: segue.Run, **decode: Any) -> list[list[int]]:
    flat, lengths = run.codec.source_tokenizer.encode_many(SOURCES)
    rows = [part.numpy() for part in torch.from_numpy(flat).split(lengths.tolist())]
    settings = Decode(**{"max_tokens": 20, "length_penalty": 0.0, "length_ratio": 0.0, **decode})
    return [text.ids for text in generate(run.model, [[]] * len(rows), run.sizes, settings, pad(rows), mask_of(rows))]


# In


ORDER = ["<pad>", *pieces("target"), "<unk>", *(p for p in pieces("source") if p not in pieces("target")), "</s>"]
SIDES = (
    ["</s>", "<unk>", *pieces("source"), *map(str, range(9)), "<pad>"],
    ["</s>", "<unk>", *pieces("target"), "<pad>"],
)
KINDS: dict[str, dict[str, Any]] = {
    "one table": {},
    "other ids": {"vocabs": (ORDER,), "activation_function": "relu", "encoder_ffn_dim": 64, "decoder_ffn_dim": 64},
    "a table a side": {"share_encoder_decoder_embeddings": False, "activation_function": "gelu_new"},
    "two vocabularies": {"vocabs": SIDES, "share_encoder_decoder_embeddings": False},
    "three tables": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_in_gives_the_same_model(tmp_path: Path, kind: str) -> None:
    theirs = write_theirs(tmp_path / "hf", **KINDS[kind])
    assert import_run(theirs.folder, tmp_path / "run") == [f"The run: {tmp_path / 'run'}"]
    run = segue.load(tmp_path / "run", device="cpu")
    ours, expected = in_double(run, theirs)
    assert (ours - expected).abs().max() < 1e-10
    assert expected.std() > 0.1  # or anything would do
    assert run.result["parameters"] == run.model.parameters_count
    for source in SOURCES:
        side = run.codec.source_tokenizer
        names = [["</s>", "<unk>", *side.names[2:]][i] for i in side.encode(source).tolist()]
        assert [theirs.tokenizer.encoder[name] for name in names] == theirs.tokenizer(source)["input_ids"]


def test_greedy_and_beam_write_the_same_ids(run: segue.Run, theirs: Theirs) -> None:
    batch = theirs.tokenizer(SOURCES, return_tensors="pt", padding=True)
    ends = {theirs.model.config.eos_token_id, theirs.model.config.pad_token_id}
    for beam in (1, 4):
        found = theirs.model.generate(**batch, num_beams=beam, length_penalty=0.0, max_new_tokens=20, do_sample=False)
        expected = [[i for i in row if i not in ends] for row in found.tolist()]
        assert written(run, beam=beam) == expected
        assert len(set(map(tuple, expected))) > 3 and max(map(len, expected)) < 20  # or anything would do


def test_ids_and_text_are_those_of_their_tokenizer(run: segue.Run, theirs: Theirs) -> None:
    for text in [*SOURCES, *TARGETS, "", "  Kuh  cow ", "unbekannt ☃ …", ">>de<< cow"]:
        assert run.codec.source_tokenizer.encode(text).tolist() == theirs.tokenizer(text)["input_ids"]
        ids = theirs.tokenizer(text_target=text)["input_ids"]
        assert [*run.tokenizer.encode(text).tolist(), 0] == ids
        known = [i for i in ids if i != run.tokenizer.unk]
        assert run.tokenizer.decode(known) == theirs.tokenizer.decode(known, skip_special_tokens=True)


def test_a_source_that_is_cut_still_ends_with_stop(run: segue.Run) -> None:
    columns = run.task.encode([Example(text=SOURCES[0], target=TARGETS[0])], run.codec)
    whole, cut = (run.task.collate(columns, limit).source[0].tolist() for limit in (60, 4))
    assert cut == [*whole[:3], run.tokenizer.stop] and whole[-1] == run.tokenizer.stop


def test_an_imported_run_is_used_as_any_other(
    run: segue.Run, theirs: Theirs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = theirs.tokenizer(SOURCES[:1], return_tensors="pt")
    found = theirs.model.generate(**batch, num_beams=1, max_new_tokens=20, do_sample=False)
    text = theirs.tokenizer.decode(found[0], skip_special_tokens=True)
    (tmp_path / "source.txt").write_text(f"{SOURCES[0]}\n")
    assert main(["predict", str(run.path), str(tmp_path / "source.txt"), "decode.beam=1"]) == 0
    assert text in capsys.readouterr().out
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    assert "bleu" in run.evaluate(str(data))
    settings = [f"train.init={run.path}", "train.steps=1", "data.validation=0", "data.test=0"]
    section = [f"model.{key}={value}".replace("True", "true") for key, value in vars(run.model.config).items()]
    tuned = segue.train("transformer", str(data), tmp_path / "tuned", [*settings, *section], device="cpu")
    assert tuned.tokenizer.content == run.tokenizer.content
    assert tuned.model.vectors.weight[tuned.sizes.start].abs().max() == 0


# Out


def test_out_again_gives_the_same_folder(run: segue.Run, theirs: Theirs, tmp_path: Path) -> None:
    export_run(run.path, tmp_path / "hf", "marian")
    again, tokenizer = MarianMTModel.from_pretrained(tmp_path / "hf"), MarianTokenizer.from_pretrained(tmp_path / "hf")
    ours, expected = again.state_dict(), theirs.model.state_dict()
    assert ours.keys() == expected.keys()
    for name, tensor in expected.items():
        last = tensor.shape[-1] - (name == "final_logits_bias")  # of <pad>, which is never written
        assert torch.equal(ours[name][..., :last], tensor[..., :last]), name
    assert tokenizer.get_vocab() == theirs.tokenizer.get_vocab()
    for text in [*SOURCES, *TARGETS]:
        assert tokenizer(text)["input_ids"] == theirs.tokenizer(text)["input_ids"]


def translator(folder: Path, out: Path) -> ctranslate2.Translator:
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(out))
    return ctranslate2.Translator(str(out), device="cpu", compute_type="float32", inter_threads=1, intra_threads=1)


def test_ctranslate2_reads_it_and_translates_the_same(run: segue.Run, tmp_path: Path) -> None:
    export_run(run.path, tmp_path / "hf", "marian")
    other = translator(tmp_path / "hf", tmp_path / "ct2")
    names = ["</s>", "<unk>", *run.tokenizer.names[2:]]
    sources = [[names[i] for i in run.codec.source_tokenizer.encode(text).tolist()] for text in SOURCES]
    for beam in (1, 4):
        found = other.translate_batch(sources, beam_size=beam, length_penalty=0, min_decoding_length=0)
        assert [[names[i] for i in ids] for ids in written(run, beam=beam)] == [one.hypotheses[0] for one in found]


def test_a_run_of_the_recipe_goes_out(tmp_path: Path) -> None:
    """Trained here, read there: the same logits, and the same text as by CTranslate2."""
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    small = ["tokens.vocab_size=60", "model.layers=1", "model.width=16", "model.heads=2", "model.context=64"]
    short = ["train.steps=30", "train.optimizer.rate=0.02", "train.optimizer.warmup=1", "data.validation=0"]
    settings = [*small, *short, "data.test=0", "batches.length=64", "model.dropout=0"]
    run = segue.train("transformer/marian", str(data), tmp_path / "run", settings, device="cpu")
    export_run(run.path, tmp_path / "hf", "marian")
    folder = tmp_path / "hf"
    theirs = Theirs(folder, MarianMTModel.from_pretrained(folder).eval(), MarianTokenizer.from_pretrained(folder))
    ours, expected = in_double(run, theirs)
    assert (ours - expected).abs().max() < 1e-10
    other = translator(folder, tmp_path / "ct2")
    found = other.translate_batch(
        [theirs.tokenizer.convert_ids_to_tokens(theirs.tokenizer(text)["input_ids"]) for text in SOURCES],
        **{"beam_size": 1, "min_decoding_length": 0, "max_decoding_length": 20, "disable_unk": True},
    )
    answers = [run.tokenizer.names[2:][i - 2] for ids in written(run, beam=1) for i in ids]
    assert answers == [piece for one in found for piece in one.hypotheses[0]]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"norm": "pre"}, "model.norm=pre, where Marian normalises after"),
        ({"position": "rotary"}, "model.position=rotary, where Marian has sines"),
        ({"tied": "target"}, "model.tied=target, where Marian has one table"),
        ({"output_bias": False}, "model.output_bias=false, where Marian adds a bias"),
    ],
)
def test_a_form_that_marian_has_not_is_named(setting: dict[str, Any], said: str) -> None:
    own = {"norm": "post", "output_bias": True}
    assert inexpressible(Transformer.Config(**own)) == ""
    assert inexpressible(Transformer.Config(**own | setting)).startswith(said)


def test_other_tokens_and_models_are_not_exported(tmp_path: Path) -> None:
    small = ["model.width=8", "tokens.kind=char", "data.validation=0", "data.test=0", "train.steps=1"]
    for kind, said in (
        ("transformer/marian", "char tokens, where Marian has Sent"),
        ("rnn_seq2seq", "is a rnn_seq2seq"),
    ):
        run = segue.train(kind, PAIRS, tmp_path / kind, small, device="cpu")
        with pytest.raises(InputError, match=said):
            export_run(run.path, tmp_path / "hf", "marian")
        assert not (tmp_path / "hf").exists()
    with pytest.raises(InputError, match="exists already"):
        export_run(run.path, tmp_path, "marian")


# What is refused


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


NORM = "model.encoder.layers.0.final_layer_norm.weight"
DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no spm": (lambda f: (f / "target.spm").unlink(), "holds no target.spm"),
    "a spm that is none": (lambda f: (f / "source.spm").write_bytes(b"x"), "source.spm cannot be used"),
    "no vocab": (lambda f: (f / "vocab.json").unlink(), "holds no vocab.json"),
    "a shared id": (lambda f: edit(f / "vocab.json", **{"▁cow": 0}), "two tokens share one"),
    "no unknown": (lambda f: edit(f / "tokenizer_config.json", unk_token="?"), "it has no ?"),
    "two vocabularies of one table": (lambda f: edit(f / "tokenizer_config.json", separate_vocabs=True), "one table"),
    "no end": (lambda f: edit(f / "config.json", eos_token_id=None), "eos_token_id is None"),
    "an end without a name": (lambda f: edit(f / "config.json", eos_token_id=999), "no token with the id 999"),
    "GELU by erf": (lambda f: edit(f / "config.json", activation_function="gelu"), 'activation_function="gelu"'),
    "vectors as they are": (lambda f: edit(f / "config.json", scale_embedding=False), "scale_embedding=false"),
    "pre-LN": (lambda f: edit(f / "config.json", normalize_before=True), "normalize_before=true"),
    "two widths": (lambda f: edit(f / "config.json", decoder_ffn_dim=64), "decoder_ffn_dim=64"),
    "heads that do not fit": (
        lambda f: edit(f / "config.json", encoder_attention_heads=3, decoder_attention_heads=3),
        "does not divide",
    ),
    "no number": (lambda f: edit(f / "config.json", d_model="16"), "d_model is '16'"),
    "dropout of all": (lambda f: edit(f / "config.json", dropout=1.5), "1.5"),
    "another width": (lambda f: edit(f / "config.json", d_model=32), "by config.json"),
    "a start beyond the table": (
        lambda f: edit(f / "config.json", decoder_start_token_id=999),
        "the largest id is 999",
    ),
    "a tensor less": (lambda f: weights(f, lambda w: w.pop(NORM)), f"{NORM} is missing"),
    "a tensor more": (lambda f: weights(f, lambda w: w.update(more=torch.ones(1))), "it holds more"),
    "NaN": (lambda f: weights(f, lambda w: w[NORM].fill_(float("nan"))), "NaN"),
    "other places": (
        lambda f: weights(f, lambda w: w.update({"model.encoder.embed_positions.weight": torch.ones(64, 16)})),
        "embed_positions are not sines",
    ),
    "pickle": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "AutoModelForSeq2SeqLM as M",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_marian_is_refused_and_leaves_nothing(theirs: Theirs, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    for path in theirs.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    change, said = DAMAGES[damage]
    change(folder)
    with pytest.raises(InputError) as error:
        import_run(folder, tmp_path / "deep" / "run")
    assert said in str(error.value)
    assert not (tmp_path / "deep").exists()
