"""BERT and RoBERTa of transformers, in and out: the same states, logits and files on both sides; what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (
    AddedToken,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    RobertaConfig,
)

import segue
from segue.batches.answer_windows import collate_asked, lay_out
from segue.batches.batch import Batch
from segue.batches.codec import BodySpec
from segue.cli import main
from segue.data.example import Example
from segue.errors import InputError
from segue.interop.formats import export_run, import_run
from segue.interop.huggingface.bert_export import inexpressible, parts_of, their_tensors, with_head
from segue.interop.huggingface.bert_tokens import their_ids
from segue.interop.huggingface.origin import origin_of, write_back
from segue.models import model_class
from segue.models.base import Sizes
from segue.models.bert import Bert
from segue.tokens.learn import byte_names

SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
BODIES = ["BertModel", "BertForMaskedLM", "BertForPreTraining", "RobertaModel", "RobertaForMaskedLM"]
TEXT, PAIR = "Paris is the capital of France.", ("The cat sat, didn't it?", "Grüße, 北京!")
LETTERS = sorted(set("".join([TEXT, *PAIR]).lower()) - {" "})
WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *("##" + letter for letter in LETTERS), "the"]
MERGES = [("t", "h"), ("Ġ", "th"), ("Ġth", "e"), ("a", "t")]
BYTE_PAIRS = ["<s>", "<pad>", "</s>", "<unk>", *byte_names(), *(a + b for a, b in MERGES), "<mask>"]


def write_theirs(folder: Path, name: str, **config: Any) -> tuple[Any, Any]:
    """A model with random weights, those that begin as 0 or 1 among them, and its tokenizer, as transformers writes
    them; the tables have some rows more than there are tokens."""
    if name.startswith("Roberta"):
        vocab = {token: i for i, token in enumerate(BYTE_PAIRS)}
        mask = AddedToken("<mask>", lstrip=True, special=True)  # as RoBERTa has it
        tokenizer = transformers.RobertaTokenizer(vocab=vocab, merges=MERGES, mask_token=mask)
        made: Any = RobertaConfig(**SMALL | {"vocab_size": len(vocab) + 3, "max_position_embeddings": 82} | config)
    else:
        vocab = {piece: i for i, piece in enumerate(WORDPIECES)}
        tokenizer = transformers.BertTokenizer(vocab=vocab, do_lower_case=True)
        made = BertConfig(**SMALL | {"vocab_size": len(vocab) + 3, "max_position_embeddings": 80} | config)
    torch.manual_seed(0)
    model = getattr(transformers, name)(made).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3 if parameter.dim() == 1 else 0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def framed(run: segue.Run, *texts: str) -> Batch:
    """One row: a text, or a pair."""
    ids, segments = run.codec.frame(*(run.tokenizer.encode(text) for text in texts))
    tokens_BT, segments_BT = torch.from_numpy(ids)[None], torch.from_numpy(segments)[None]
    return Batch(tokens_BT, tokens_BT, torch.ones_like(tokens_BT, dtype=torch.bool), segments_BT=segments_BT)


def check_same(run: segue.Run, ids: list[int], model: Any, tokenizer: Any) -> None:
    """The ids of a text and of a pair, the states of all layers, and what the heads that are there say of them."""
    for texts in ((TEXT,), PAIR):
        batch, encoded = framed(run, *texts), tokenizer(*texts, return_tensors="pt")
        assert [ids[i] for i in batch.tokens_BT[0].tolist()] == encoded["input_ids"][0].tolist()
        with torch.inference_mode():
            theirs = model(**encoded, output_hidden_states=True)
            hidden = run.model.encode(batch)
            logits = run.model.unembed(hidden[-1])
            pooled = run.model.pooled(hidden[-1])
            found = {"hidden_states": hidden, "logits": logits, "prediction_logits": logits, "pooler_output": pooled}
            if run.model.next_head is not None:
                found["seq_relationship_logits"] = run.model.next_head(pooled).flip(-1)
        size, compared = run.tokenizer.vocab_size, 0
        for name, ours in found.items():
            if name not in theirs:
                continue
            expected = torch.stack(theirs[name]) if name == "hidden_states" else theirs[name]
            expected = expected[..., ids[:size]] if name in ("logits", "prediction_logits") else expected
            assert (ours - expected).abs().max() < 1e-4 and expected.std() > 0.1
            compared += 1
        assert compared == {"BertForPreTraining": 3}.get(type(model).__name__, 2)


def check_back(theirs: Path, ours: Path) -> None:
    """Two folders with the same tensors and files."""
    tensors, back = load_file(theirs / "model.safetensors"), load_file(ours / "model.safetensors")
    assert tensors.keys() == back.keys()
    assert all(torch.equal(tensor, back[name]) and tensor.dtype == back[name].dtype for name, tensor in tensors.items())
    names = {path.name for path in theirs.iterdir()}
    assert names == {path.name for path in ours.iterdir()}
    for name in names - {"model.safetensors"}:
        assert (theirs / name).read_bytes() == (ours / name).read_bytes()


@pytest.mark.parametrize("name", BODIES)
def test_what_comes_in_is_the_same_and_goes_out_as_it_came(name: str, tmp_path: Path) -> None:
    model, tokenizer = write_theirs(tmp_path / "hf", name)
    notes = import_run(tmp_path / "hf", tmp_path / "run")
    assert ("masked head is missing" in " ".join(notes)) == name.endswith("Model")
    assert ("pooler is missing" in " ".join(notes)) == name.endswith("MaskedLM")
    origin = origin_of(tmp_path / "run")
    assert origin is not None
    check_same(segue.load(tmp_path / "run", "cpu"), origin.ids, model, tokenizer)
    export_run(tmp_path / "run", tmp_path / "back", "hf")
    check_back(tmp_path / "hf", tmp_path / "back")


@pytest.mark.parametrize("name", ["BertForMaskedLM", "RobertaForMaskedLM"])
def test_the_same_fills_both_ways(name: str, tmp_path: Path) -> None:
    model, tokenizer = write_theirs(tmp_path / "hf", name)
    import_run(tmp_path / "hf", tmp_path / "run")
    run, origin = segue.load(tmp_path / "run", "cpu"), origin_of(tmp_path / "run")
    assert origin is not None
    check_fills(run, origin.ids, model, tokenizer)
    shutil.rmtree(tmp_path / "run" / "huggingface")
    export_run(tmp_path / "run", tmp_path / "out", "hf")
    out, written = (one.from_pretrained(tmp_path / "out") for one in (AutoModelForMaskedLM, AutoTokenizer))
    order = their_ids(run.tokenizer, "bert" if name.startswith("Bert") else "roberta")
    check_fills(run, [order.index(i) for i in range(len(origin.ids))], out.eval(), written)


def check_fills(run: segue.Run, ids: list[int], model: Any, tokenizer: Any) -> None:
    """The likeliest tokens in a hole, and the odds between them."""
    for text in ("Paris is the [MASK] of France.", "[MASK] sat", "th[MASK]"):
        encoded = tokenizer(text.replace("[MASK]", tokenizer.mask_token), return_tensors="pt")
        hole = encoded["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        with torch.inference_mode():
            logits = model(**encoded).logits[0, hole, ids[2 : run.tokenizer.vocab_size]]
        best = logits.log_softmax(-1).topk(4)
        [fillers] = run.fill(text, top=4).holes
        assert [one.token for one in fillers] == [run.tokenizer.name(i + 2) for i in best.indices.tolist()]
        odds = [math.log(one.probability / fillers[0].probability) for one in fillers]
        assert odds == pytest.approx((best.values - best.values[0]).tolist(), abs=1e-4)


@pytest.mark.parametrize("name", ["BertForPreTraining", "RobertaForMaskedLM"])
def test_older_files_and_parts_of_files(name: str, tmp_path: Path) -> None:
    """Names of 2018, tensors that are held twice, constants, half precision, and shards."""
    model, _ = write_theirs(tmp_path / "hf", name)
    path = tmp_path / "hf" / "model.safetensors"
    tensors = {key.replace("LayerNorm.weight", "LayerNorm.gamma"): one.half() for key, one in load_file(path).items()}
    prefix, head = ("bert", "cls.predictions") if name.startswith("Bert") else ("roberta", "lm_head")
    tensors[f"{head}.decoder.weight"] = tensors[f"{prefix}.embeddings.word_embeddings.weight"].clone()
    tensors[f"{prefix}.embeddings.position_ids"] = torch.arange(80)[None]
    save_file(tensors, path)
    import_run(tmp_path / "hf", tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "back", "hf")
    check_back(tmp_path / "hf", tmp_path / "back")

    path.unlink()
    model.half().save_pretrained(tmp_path / "hf", max_shard_size="20kB")
    assert len(list((tmp_path / "hf").glob("*.safetensors"))) > 2
    import_run(tmp_path / "hf", tmp_path / "shards")
    weights = [load_file(tmp_path / run / "model.safetensors") for run in ("run", "shards")]
    assert all(torch.equal(one, weights[1][key]) for key, one in weights[0].items())


@pytest.mark.parametrize("name", ["BertForPreTraining", "RobertaForMaskedLM"])
def test_a_run_of_ours_goes_out(name: str, tmp_path: Path) -> None:
    """A run that did not come from a folder: its own ids, a row for padding, and the same model on both sides."""
    write_theirs(tmp_path / "hf", name)
    import_run(tmp_path / "hf", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "huggingface")
    opens = "AutoModelForPreTraining" if name.startswith("Bert") else "AutoModelForMaskedLM"
    assert opens in " ".join(export_run(tmp_path / "run", tmp_path / "out", "hf"))
    run, tokenizer = segue.load(tmp_path / "run", "cpu"), AutoTokenizer.from_pretrained(tmp_path / "out")
    model = getattr(transformers, opens).from_pretrained(tmp_path / "out").eval()
    assert type(model).__name__ == name and model.config.pad_token_id == tokenizer.pad_token_id
    style = "bert" if name.startswith("Bert") else "roberta"
    order = their_ids(run.tokenizer, style)
    ids = [order.index(i) for i in range(run.model.sizes.ids)]
    check_same(run, ids, model, tokenizer)

    padded = tokenizer([TEXT, "x"], padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = model(**padded)[0]
        alone = model(**tokenizer("x", return_tensors="pt"))[0]
    assert (logits[1, : alone.shape[1]] - alone[0]).abs().max() < 1e-4
    assert logits.softmax(-1)[..., tokenizer.pad_token_id].max() == 0
    import_run(tmp_path / "out", tmp_path / "again")
    check_same(segue.load(tmp_path / "again", "cpu"), origin_of(tmp_path / "again").ids, model, tokenizer)  # type: ignore[union-attr]


def test_a_head_that_training_here_made_goes_out(tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", "BertModel")
    import_run(tmp_path / "hf", tmp_path / "run")
    model, origin = segue.load(tmp_path / "run", "cpu").model, origin_of(tmp_path / "run")
    parts = parts_of(model)
    assert origin is not None and parts is not None and with_head(parts, origin, {}) is origin
    with torch.no_grad():
        model.transform.weight += 0.1
    after = with_head(parts, origin, {})
    assert after.config["architectures"] == ["BertForMaskedLM"]
    assert after.config | {"architectures": []} == origin.config | {"architectures": []}
    write_back(tmp_path / "out", after, after.config, their_tensors(parts, after))
    _, about = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def _tensors(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


LAYER = "bert.encoder.layer.1.output.dense.weight"
DAMAGES: dict[str, tuple[Any, str]] = {
    "feed": (
        lambda f: edit(f / "config.json", intermediate_size=48),
        "intermediate_size=48, which bert here cannot be",
    ),
    "function": (lambda f: edit(f / "config.json", hidden_act="relu"), 'Expected "gelu"'),
    "positions": (lambda f: edit(f / "config.json", position_embedding_type="relative_key"), "relative_key"),
    "decoder": (lambda f: edit(f / "config.json", is_decoder=True), "is_decoder=true"),
    "heads": (lambda f: edit(f / "config.json", num_attention_heads=5), "does not divide"),
    "layers": (
        lambda f: edit(f / "config.json", num_hidden_layers=3),
        "layer.2.attention.self.query.weight is missing",
    ),
    "width": (lambda f: edit(f / "config.json", hidden_size=48, intermediate_size=192), "does not fit config.json"),
    "short": (lambda f: edit(f / "config.json", max_position_embeddings=4), "leaves 4 places"),
    "dropout": (lambda f: edit(f / "config.json", hidden_dropout_prob=2), "hidden_dropout_prob"),
    "eps": (lambda f: edit(f / "config.json", layer_norm_eps="small"), "layer_norm_eps"),
    "another model": (lambda f: edit(f / "config.json", model_type="distilbert"), "model_type=distilbert"),
    "missing": (lambda f: _tensors(f, lambda t: t.pop(LAYER)), f"{LAYER.removeprefix('bert.')} is missing"),
    "half a head": (lambda f: _tensors(f, lambda t: t.pop("cls.predictions.bias")), "cls.predictions.bias is missing"),
    "few rows": (
        lambda f: _tensors(
            f, lambda t: t.update({(n := "bert.embeddings.word_embeddings.weight"): t[n][:20].contiguous()})
        ),
        "has 20 rows, and the tokens go up to",
    ),
    "untied": (
        lambda f: _tensors(f, lambda t: t.update({"cls.predictions.decoder.weight": torch.ones(3)})),
        "is not the same as",
    ),
    "not a number": (lambda f: _tensors(f, lambda t: t[LAYER].fill_(torch.nan)), "NaN or infinite"),
    "pickle": (
        lambda f: ((f / "model.safetensors").unlink(), (f / "pytorch_model.bin").touch()),
        "AutoModelForPreTraining",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_bert_here_cannot_be_is_refused_and_leaves_nothing(damage: str, tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", "BertForMaskedLM")
    change, message = DAMAGES[damage]
    change(tmp_path / "hf")
    with pytest.raises(InputError, match=re.escape(message)):
        import_run(tmp_path / "hf", tmp_path / "run")
    assert {path.name for path in tmp_path.iterdir()} == {"hf"}


def test_tensors_without_a_place_are_kept(tmp_path: Path) -> None:
    """A head that chooses among texts is not read; it goes out again."""
    write_theirs(tmp_path / "hf", "BertForMultipleChoice")
    assert "2 tensors have no place here" in " ".join(import_run(tmp_path / "hf", tmp_path / "run"))
    export_run(tmp_path / "run", tmp_path / "back", "hf")
    check_back(tmp_path / "hf", tmp_path / "back")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"norm": "pre"}, "model.norm=pre"),
        ({"position": "rotary"}, "model.position=rotary"),
        ({"activation": "silu"}, "model.activation=silu"),
        ({"activation": "relu", "first_position": 2, "segments": 1}, ""),
    ],
)
def test_settings_that_their_format_lacks(config: dict[str, Any], message: str) -> None:
    found = inexpressible(Bert(Bert.Config(**config), Sizes(9, marks=("start", "mask"))))
    assert found.startswith(message) and bool(found) == bool(message)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_theirs(tmp_path / "hf", "BertForMaskedLM")
    assert main(["import", str(tmp_path / "hf"), "--out", str(tmp_path / "run")]) == 0
    assert main(["export", str(tmp_path / "run"), "--to", "hf", str(tmp_path / "out")]) == 0
    assert "AutoModelForMaskedLM.from_pretrained" in capsys.readouterr().out


# Classifiers and taggers

LABELS = {"id2label": {0: "bad", 1: "good", 2: "so-so"}, "label2id": {"bad": 0, "good": 1, "so-so": 2}}
TAGS = {"id2label": {0: "O", 1: "B-LOC", 2: "I-LOC"}, "label2id": {"O": 0, "B-LOC": 1, "I-LOC": 2}}
BYTE_LEVEL = ("add_prefix_space", "trim_offsets", "use_regex")
NUMBER = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
CLASSIFIERS = {
    "one label": (LABELS, "class"),
    "several labels": (LABELS | {"problem_type": "multi_label_classification"}, "classes"),
    "a number": (NUMBER, "number"),
}


def probabilities(scores_C: torch.Tensor, label: str) -> list[float]:
    """What their scores mean."""
    rules = {"class": scores_C.softmax(-1), "classes": scores_C.sigmoid(), "number": scores_C}
    return rules[label].tolist()


def check_predictions(run: segue.Run, model: Any, tokenizer: Any, label: str) -> None:
    texts = [TEXT, " ".join(PAIR), "x"]
    with torch.inference_mode():
        scores = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in texts]
    for prediction, scores_C in zip(run.predict(texts), scores, strict=True):
        expected = probabilities(scores_C, label)
        if label == "number":
            assert prediction.number == pytest.approx(expected[0], abs=1e-4)
        else:
            assert list(prediction.probabilities) == pytest.approx(expected, abs=1e-4)
            assert list(prediction.labels) == [model.config.id2label[i] for i in range(3)]


@pytest.mark.parametrize("style", ["Bert", "Roberta"])
@pytest.mark.parametrize("case", CLASSIFIERS)
def test_a_classifier_predicts_the_same_both_ways(case: str, style: str, tmp_path: Path) -> None:
    config, label = CLASSIFIERS[case]
    model, tokenizer = write_theirs(tmp_path / "hf", f"{style}ForSequenceClassification", **config)
    notes = import_run(tmp_path / "hf", tmp_path / "run")
    assert len(notes) == 1  # no part is missing that a classifier needs
    run = segue.load(tmp_path / "run", "cpu")
    assert run.recipe.kind == "finetuned_classifier" and run.codec.sizes.label == label
    check_predictions(run, model, tokenizer, label)
    export_run(tmp_path / "run", tmp_path / "back", "hf")
    check_back(tmp_path / "hf", tmp_path / "back")

    shutil.rmtree(tmp_path / "run" / "huggingface")
    export_run(tmp_path / "run", tmp_path / "out", "hf")
    out, written = (
        one.from_pretrained(tmp_path / "out") for one in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    check_predictions(run, out.eval(), written, label)
    import_run(tmp_path / "out", tmp_path / "again")
    check_predictions(segue.load(tmp_path / "again", "cpu"), out, written, label)


@pytest.mark.parametrize("style", ["Bert", "Roberta"])
def test_a_pair_is_judged_in_the_frame_of_its_body(style: str, tmp_path: Path) -> None:
    model, tokenizer = write_theirs(tmp_path / "hf", f"{style}ForSequenceClassification", **LABELS)
    import_run(tmp_path / "hf", tmp_path / "run")
    recipe = tmp_path / "run" / "recipe.toml"
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(text.replace('columns = ""', 'columns = "label,text,text2"'), encoding="utf-8")
    with torch.inference_mode():
        expected = model(**tokenizer(*PAIR, return_tensors="pt")).logits[0].softmax(-1)
    [found] = segue.load(tmp_path / "run", "cpu").predict(["\t".join(PAIR)])
    assert list(found.probabilities) == pytest.approx(expected.tolist(), abs=1e-4)


def check_tags(run: segue.Run, model: Any, tokenizer: Any) -> None:
    words = ["The", "cat", "sat", "in", "Paris", ",", "didn't", "it", "?"]
    encoded = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    firsts = [encoded.word_ids().index(word) for word in range(len(words))]
    with torch.inference_mode():
        chances = model(**encoded).logits[0, firsts].softmax(-1).max(-1)
    [found] = run.predict([" ".join(words)])
    assert list(found.tags) == [model.config.id2label[i] for i in chances.indices.tolist()]
    assert list(found.probabilities) == pytest.approx(chances.values.tolist(), abs=1e-4)


@pytest.mark.parametrize("style", ["Bert", "Roberta"])
def test_a_tagger_tags_the_same_both_ways(style: str, tmp_path: Path) -> None:
    model, _ = write_theirs(tmp_path / "hf", f"{style}ForTokenClassification", **TAGS)
    about = tmp_path / "hf" / "tokenizer_config.json"
    if style == "Roberta":  # words that are given one by one have a blank in front
        edit(about, add_prefix_space=True)
        edit(tmp_path / "hf" / "tokenizer.json", pre_tokenizer=dict.fromkeys(BYTE_LEVEL, True) | {"type": "ByteLevel"})
    import_run(tmp_path / "hf", tmp_path / "run")
    run = segue.load(tmp_path / "run", "cpu")
    assert run.recipe.kind == "finetuned_tagger" and run.codec.labels == ("O", "B-LOC", "I-LOC")
    check_tags(run, model, AutoTokenizer.from_pretrained(tmp_path / "hf"))
    export_run(tmp_path / "run", tmp_path / "back", "hf")
    check_back(tmp_path / "hf", tmp_path / "back")

    shutil.rmtree(tmp_path / "run" / "huggingface")
    export_run(tmp_path / "run", tmp_path / "out", "hf")
    out, written = (one.from_pretrained(tmp_path / "out") for one in (AutoModelForTokenClassification, AutoTokenizer))
    check_tags(run, out.eval(), written)


def check_answers(run: segue.Run, model: Any, tokenizer: Any) -> None:
    question, text = "Who sat?", "The cat sat in Paris,\n didn't it?"
    encoded = tokenizer(question, text, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.inference_mode():
        found = model(**encoded)
    asked = lay_out([Example(question, target=text)], run.codec, none_last=False)
    batch = collate_asked(asked.columns).to("cpu")
    with torch.inference_mode():
        logits_2T = run.model(batch)[0][0]
    theirs_2T = torch.stack([found.start_logits[0], found.end_logits[0]])
    may_T = batch.answers_BT[0]
    assert encoded["input_ids"].shape == batch.tokens_BT.shape and may_T[0] and int(may_T.sum()) > 10
    torch.testing.assert_close(logits_2T[:, may_T], theirs_2T[:, may_T], atol=1e-4, rtol=0)
    inside = [place for place in torch.nonzero(may_T)[:, 0].tolist() if place]
    pairs = [(i, j) for i in inside for j in inside if i <= j < i + 30]
    i, j = max(pairs, key=lambda pair: float(theirs_2T[0, pair[0]] + theirs_2T[1, pair[1]]))
    [span] = run.predict([(question, text)], {"decode.threshold": -1e6})
    assert span.answer == text[offsets[i][0] : offsets[j][1]].strip() == text[span.begin : span.end]


@pytest.mark.parametrize("style", ["Bert", "Roberta"])
def test_an_answerer_answers_the_same_both_ways(style: str, tmp_path: Path) -> None:
    model, tokenizer = write_theirs(tmp_path / "hf", f"{style}ForQuestionAnswering")
    notes = import_run(tmp_path / "hf", tmp_path / "run")
    assert len(notes) == 1  # no part is missing that an answerer needs
    run = segue.load(tmp_path / "run", "cpu")
    assert run.recipe.kind == "finetuned_answerer" and run.codec.labels == ("begin", "end", "none")
    check_answers(run, model, tokenizer)
    export_run(tmp_path / "run", tmp_path / "back", "hf")
    check_back(tmp_path / "hf", tmp_path / "back")

    shutil.rmtree(tmp_path / "run" / "huggingface")
    export_run(tmp_path / "run", tmp_path / "out", "hf")
    out, about = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    check_answers(run, out.eval(), AutoTokenizer.from_pretrained(tmp_path / "out"))
    import_run(tmp_path / "out", tmp_path / "again")
    check_answers(segue.load(tmp_path / "again", "cpu"), model, tokenizer)


def test_a_head_that_was_trained_here_goes_out_with_the_ids_of_its_body(tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", "RobertaForMaskedLM")
    import_run(tmp_path / "hf", tmp_path / "run")
    rows = [("good", "the cat sat"), ("bad", "Paris")] * 8
    (tmp_path / "rows.tsv").write_text("label\ttext\n" + "".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    run = segue.train(
        *("finetuned_classifier", str(tmp_path / "rows.tsv"), str(tmp_path / "tuned")),
        {"model.body": str(tmp_path / "run"), "train.steps": 1, "train.optimizer.rate": 0.1, "data.validation": 0.0},
        device="cpu",
    )
    export_run(tmp_path / "tuned", tmp_path / "out", "hf")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "hf" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    model, about = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.inference_mode():
        expected = model.eval()(**tokenizer(TEXT, return_tensors="pt")).logits[0].softmax(-1)
    [found] = run.predict([TEXT])
    assert list(found.probabilities) == pytest.approx(expected.tolist(), abs=1e-4)
    assert list(found.labels) == [model.config.id2label[i] for i in range(2)]


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("classifier", {"frozen": True}, "pooling=mean"),
        ("classifier", {"mix": True}, "model.mix=true"),
        ("classifier", {"pooling": "first"}, "pooling=first"),
        ("tagger", {"crf": True}, "model.crf=true"),
        ("tagger", {}, ""),
        ("answerer", {"mix": True}, "model.mix=true"),
        ("answerer", {"frozen": True}, ""),
    ],
)
def test_heads_that_their_format_lacks(kind: str, config: dict[str, Any], message: str) -> None:
    body = Sizes(9, marks=("start", "mask"))
    spec = BodySpec("bert", dataclasses.asdict(Bert.Config(layers=1, width=8, heads=1)), body)
    cls: Any = model_class(f"finetuned_{kind}")
    model = cls(cls.Config(**config), dataclasses.replace(body, classes=2, body=spec, window=8))
    assert message in inexpressible(model) and bool(message) == bool(inexpressible(model))
