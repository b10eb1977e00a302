"""GPT-2 for transformers, out and in: the same logits, ids and greedy text on both sides, and what is refused."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

import segue
from segue.batches.batch import Batch
from segue.cli import main
from segue.interop.huggingface.folder import END
from segue.interop.huggingface.gpt2 import export_gpt2, import_gpt2

BOOK = "".join(
    f"The {a} cow eats {b} apples, it's {n} o'clock.\n"
    for n in range(20)
    for a in ("big", "small", "naïve")
    for b in ("red", "green")
)
STRANGE = "The naïve cow's 12 apples.  zoë 中文 don't\t<|x|>\n\n Ok 😀  "
VOCAB = 310
SHAPES = {
    "one head": {"n_layer": 1, "n_embd": 16, "n_head": 1, "n_positions": 24},
    "deep": {"n_layer": 4, "n_embd": 24, "n_head": 2, "n_positions": 40},
    "wide": {"n_layer": 2, "n_embd": 60, "n_head": 5, "n_positions": 33},
    "relu, untied": {
        **{"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 32},
        **{"activation_function": "relu", "tie_word_embeddings": False},
    },
}


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    """GPT-2's kind of tokens, with the end as the last id."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([BOOK], trainer)
    tokenizer.add_special_tokens([END])
    return tokenizer


def write_theirs(folder: Path, bpe: Tokenizer, seed: int = 0, **config: Any) -> GPT2LMHeadModel:
    """A GPT-2 with random weights, those that begin as 0 or 1 among them, as transformers writes it."""
    size = bpe.get_vocab_size()
    config = {"bos_token_id": size - 1, "eos_token_id": size - 1, "vocab_size": size, **SHAPES["deep"], **config}
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(**config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3 if name.endswith("bias") or "ln_" in name else 0.1)
    model.save_pretrained(folder)
    bpe.save(str(folder / "tokenizer.json"))
    return model


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def order_of(run: segue.Run) -> list[int]:
    """Our ids in their order."""
    size = run.tokenizer.vocab_size
    return [*range(2, size), *([1] if run.tokenizer.closed else []), 0]


def our_logits(run: segue.Run, ids_BT: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits, _ = run.model(Batch(ids_BT, ids_BT, torch.ones_like(ids_BT, dtype=torch.bool)))
    return logits


def check_same(run: segue.Run, model: Any, tokenizer: Any) -> None:
    """Logits, ids and greedy text."""
    order = torch.tensor(order_of(run))
    place = {ours: theirs for theirs, ours in enumerate(order.tolist())}
    theirs_BT = torch.randint(len(order), (3, run.model.config.context), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = model(theirs_BT).logits
    assert (our_logits(run, order[theirs_BT])[..., order] - expected).abs().max() < 1e-4
    assert expected.std() > 0.1  # or anything would do
    for text in (STRANGE, BOOK[:300], "", " a"):
        ids = [place[i] for i in run.tokenizer.encode(text).tolist()]
        found = tokenizer(text)["input_ids"]
        assert found in (ids, [place[0], *ids])
    for prompt in ("The big cow", "it's", " green apples, \n"):  # as far as transformers can: to the window's end
        asked = tokenizer(prompt, return_tensors="pt")
        size = asked["input_ids"].shape[1]
        room = run.model.config.context - size
        written = model.generate(**asked, max_new_tokens=room, do_sample=False, pad_token_id=place[0])
        new = [order[i].item() for i in written[0, size:].tolist() if i != place[0]]
        start = run.tokenizer.encode(prompt).tolist()
        expected = run.tokenizer.decode(start + new)[len(run.tokenizer.decode(start)) :]
        assert run.generate(prompt, max_tokens=room, temperature=0.0) == expected


# In


@pytest.mark.parametrize("shape", SHAPES)
def test_in_gives_the_same_model(bpe: Tokenizer, tmp_path: Path, shape: str) -> None:
    model = write_theirs(tmp_path / "hf", bpe, **SHAPES[shape])
    assert import_gpt2(tmp_path / "hf", tmp_path / "run") == []
    check_same(segue.load(tmp_path / "run", "cpu"), model, AutoTokenizer.from_pretrained(tmp_path / "hf"))


def write_older_files(folder: Path) -> None:
    """vocab.json and merges.txt in place of tokenizer.json."""
    file = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps({**file["model"]["vocab"], END: VOCAB - 1}), encoding="utf-8")
    merges = ["#version: 0.2", *(" ".join(pair) for pair in file["model"]["merges"]), ""]
    (folder / "merges.txt").write_text("\n".join(merges), encoding="utf-8")


def test_the_two_files_before_tokenizer_json(bpe: Tokenizer, tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", bpe)
    import_gpt2(tmp_path / "hf", tmp_path / "one")
    write_older_files(tmp_path / "hf")
    import_gpt2(tmp_path / "hf", tmp_path / "two")
    for name in ("tokenizer.json", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("low", [0.0, -40.0])
def test_unk_takes_next_to_nothing(bpe: Tokenizer, tmp_path: Path, low: float) -> None:
    """At most 1 / (V + 1), also where all logits lie far below 0, as those of the true GPT-2 do."""
    model = write_theirs(tmp_path / "hf", bpe)
    with torch.no_grad():
        model.transformer.ln_f.bias[0] = 20.0
        model.transformer.wte.weight[:, 0] += low / 20
    model.save_pretrained(tmp_path / "hf")
    import_gpt2(tmp_path / "hf", tmp_path / "run")
    run = segue.load(tmp_path / "run", "cpu")
    order = torch.tensor(order_of(run))
    theirs_BT = torch.randint(VOCAB, (8, 40), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        expected = model(theirs_BT).logits.double().log_softmax(-1)
    found = our_logits(run, order[theirs_BT]).double().log_softmax(-1)
    assert model(theirs_BT).logits.mean() < low + 10
    assert found[..., 1].exp().max() <= 1 / (VOCAB + 1)
    short = expected - found[..., order]
    assert short.min() > -1e-5
    assert short.max() < math.log1p(1 / VOCAB) + 1e-5


def test_in_parts_in_half_precision_and_without_a_prefix(bpe: Tokenizer, tmp_path: Path) -> None:
    """As the hub has it: names without `transformer.`, masks among the weights, several files."""
    write_theirs(tmp_path / "hf", bpe)
    path = tmp_path / "hf" / "model.safetensors"
    weights = {name.removeprefix("transformer."): tensor.half() for name, tensor in load_file(path).items()}
    save_file({name: tensor.float() for name, tensor in weights.items()}, path, {"format": "pt"})
    import_gpt2(tmp_path / "hf", tmp_path / "one")
    path.unlink()
    weights["h.0.attn.bias"] = torch.ones(1, 1, 40, 40).tril().bool()
    weights["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    halves = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(weights))}
    for file in set(halves.values()):
        save_file({name: weights[name] for name in weights if halves[name] == file}, tmp_path / "hf" / file)
    (tmp_path / "hf" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": halves}))
    import_gpt2(tmp_path / "hf", tmp_path / "two")
    names = ("model.safetensors", "tokenizer.json")
    assert all((tmp_path / "one" / n).read_bytes() == (tmp_path / "two" / n).read_bytes() for n in names)


def test_what_its_owner_should_know(bpe: Tokenizer, tmp_path: Path) -> None:
    """Rows without a token, other special tokens, a beginning that is not the end, several dropouts."""
    more = Tokenizer.from_str(bpe.to_str())
    more.add_special_tokens(["<my pad>"])
    model = write_theirs(
        *(tmp_path / "hf", more), vocab_size=VOCAB + 8, bos_token_id=5, eos_token_id=VOCAB - 1, embd_pdrop=0.2
    )
    notes = "\n".join(import_gpt2(tmp_path / "hf", tmp_path / "run"))
    for told in ("7 rows without a token", f"start mark is token {VOCAB - 1} here", "dropout is 0.1 everywhere"):
        assert told in notes
    run = segue.load(tmp_path / "run", "cpu")
    assert run.tokenizer.vocab_size == VOCAB + 2
    assert run.tokenizer.decode([VOCAB + 1]) == "<my pad>"
    assert torch.equal(run.model.vectors.weight[VOCAB + 1], model.transformer.wte.weight[VOCAB])
    text = f"a {END} b <my pad>"  # a text cannot end itself
    assert run.tokenizer.decode(run.tokenizer.encode(text)) == text
    assert run.tokenizer.encode(text).min() >= 2


def test_an_end_beyond_the_vocabulary_is_read_with_a_note(bpe: Tokenizer, tmp_path: Path) -> None:
    """GPT2Config(vocab_size=310) has eos_token_id=50256: transformers never ends a text, and neither does greedy."""
    model = write_theirs(tmp_path / "hf", bpe, bos_token_id=50256, eos_token_id=50256)
    notes = "\n".join(import_gpt2(tmp_path / "hf", tmp_path / "run"))
    assert "eos_token_id=50256 is no row of its 310 vectors" in notes
    run, tokenizer = segue.load(tmp_path / "run", "cpu"), AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert torch.allclose(run.model.vectors.weight[0], model.transformer.wte.weight.mean(0))
    asked = tokenizer("The big", return_tensors="pt")
    written = model.generate(**asked, max_new_tokens=30, do_sample=False, pad_token_id=0)[0, -30:]
    prompt = run.tokenizer.encode("The big").tolist()
    assert run.generate("The big", max_tokens=30, temperature=0.0) == run.tokenizer.decode(
        [*prompt, *(written + 2).tolist()]
    ).removeprefix("The big")
    export_gpt2(tmp_path / "run", tmp_path / "again")
    assert_same_files(tmp_path / "hf", tmp_path / "again")
    back = load_file(tmp_path / "again" / "model.safetensors")
    assert torch.equal(back["transformer.wte.weight"], model.transformer.wte.weight)


def test_a_prompt_is_fed_as_their_tokenizer_feeds_it(bpe: Tokenizer, tmp_path: Path) -> None:
    """Without a mark, with the one of a post-processor, with the one of add_bos_token; and by the key, either."""
    write_theirs(tmp_path / "hf", bpe)
    template = Tokenizer.from_str(bpe.to_str())
    template.post_processor = processors.TemplateProcessing(f"{END} $A", special_tokens=[(END, VOCAB - 1)])
    read = {}
    for name, tokenizer, adds in (("none", bpe, True), ("template", template, False), ("asked", None, True)):
        if tokenizer:
            tokenizer.save(str(tmp_path / "hf" / "tokenizer.json"))
        else:
            write_older_files(tmp_path / "hf")
        (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": adds, "bos_token": END}))
        import_gpt2(tmp_path / "hf", tmp_path / name)
        read[name] = segue.load(tmp_path / name, "cpu")
        theirs = AutoTokenizer.from_pretrained(tmp_path / "hf")("it's")["input_ids"]
        assert read[name].starts("it's") == (theirs[0] == VOCAB - 1), name
    assert [run.recipe.decode.start for run in read.values()] == [False, True, True]
    bare, marked = (read[name].generate("it's", max_tokens=9, temperature=0.0) for name in ("none", "template"))
    assert bare != marked
    assert read["none"].generate("it's", max_tokens=9, temperature=0.0, start=True) == marked
    assert read["none"].next_tokens("it's") != read["template"].next_tokens("it's")
    assert read["none"].next_tokens("") == read["template"].next_tokens("")
    # A text is scored after the mark in either case: nothing else gives its first token a probability.
    for run in read.values():
        (line,) = run.score(["it's"])
        assert line.start_mark and line.logprobs == next(read["template"].score(["it's"])).logprobs


def test_fine_tuning_begins_where_the_weights_are(bpe: Tokenizer, tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", bpe)
    import_gpt2(tmp_path / "hf", tmp_path / "run")
    (tmp_path / "book.txt").write_text(BOOK, encoding="utf-8")
    before = segue.load(tmp_path / "run", "cpu")
    shape = {f"model.{key}": getattr(before.recipe.model, key) for key in ("layers", "width", "heads", "context")}
    settings = {"train.init": tmp_path / "run", "batches.length": 32, "batches.size": 4} | shape
    still = {"train.steps": 1, "train.optimizer.rate": 1e-7}
    begun = segue.train("gpt", tmp_path / "book.txt", tmp_path / "begun", settings | still)
    assert begun.tokenizer.content == before.tokenizer.content
    for name, tensor in begun.model.state_dict().items():
        assert (tensor - before.model.state_dict()[name]).abs().max() < 1e-6
    after = segue.train("gpt", tmp_path / "book.txt", tmp_path / "tuned", settings | {"train.steps": 30})
    old, new = (run.evaluate(tmp_path / "book.txt")["bits_per_byte"] for run in (before, after))
    assert new < 0.9 * old


# Out


@pytest.mark.parametrize("kind", ["bpe", "byte", "unigram", "char", "word", "space", "wordpiece"])
def test_out_gives_the_same_model(tmp_path: Path, kind: str) -> None:
    (tmp_path / "book.txt").write_text(BOOK, encoding="utf-8")
    settings = {"tokens.kind": kind, "tokens.vocab_size": VOCAB if kind in ("bpe", "unigram", "wordpiece") else 0}
    settings |= {"model.layers": 2, "model.width": 24, "model.heads": 3, "model.context": 32, "batches.length": 32}
    settings |= {"model.tied": kind != "char", "model.activation": "relu" if kind == "byte" else "gelu"}
    settings |= {"train.steps": 20, "train.optimizer.rate": 0.01, "data.validation": 0}
    run = segue.train("gpt", tmp_path / "book.txt", tmp_path / "run", settings)
    export_gpt2(run.path, tmp_path / "hf")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert type(model) is GPT2LMHeadModel
    check_same(run, model, tokenizer)
    # The usual three lines of others, with nothing said about ends and beginnings.
    asked = tokenizer("The big cow", return_tensors="pt")
    assert asked["input_ids"][0, 0] == tokenizer.eos_token_id == model.config.eos_token_id
    written = model.generate(**asked, max_new_tokens=15, do_sample=False)[0, asked["input_ids"].shape[1] :]
    ours = run.generate("The big cow", max_tokens=15, temperature=0.0)
    shown = tokenizer.decode(written, skip_special_tokens=True)
    assert shown == (ours.lstrip() if kind in ("space", "word", "wordpiece") else ours)


@pytest.mark.parametrize("shape", SHAPES)
def test_in_and_out_again_is_the_same_folder(bpe: Tokenizer, tmp_path: Path, shape: str) -> None:
    write_theirs(tmp_path / "hf", bpe, **SHAPES[shape])
    import_gpt2(tmp_path / "hf", tmp_path / "run")
    export_gpt2(tmp_path / "run", tmp_path / "again")
    old, new = (load_file(tmp_path / name / "model.safetensors") for name in ("hf", "again"))
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert_same_files(tmp_path / "hf", tmp_path / "again")
    import_gpt2(tmp_path / "again", tmp_path / "third")
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "third" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def assert_same_files(old: Path, new: Path, *other: str) -> None:
    """All files but the weights, and these others, are the same byte for byte."""
    named = [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in (old, new)]
    for name in ("model.safetensors", *other):
        assert all(files.pop(name) for files in named)
    assert named[0] == named[1]


def test_all_of_a_strange_folder_comes_back(bpe: Tokenizer, tmp_path: Path) -> None:
    """Rows without a token, an end in their middle, masks, half precision, names without a prefix, keys of others."""
    more = Tokenizer.from_str(bpe.to_str())
    more.add_special_tokens(["<my pad>"])
    write_theirs(tmp_path / "hf", more, vocab_size=VOCAB + 18, eos_token_id=VOCAB + 6, embd_pdrop=0.2)
    edit(tmp_path / "hf" / "config.json", of_its_own={"a": [1]}, dtype="bfloat16")
    (tmp_path / "hf" / "special_tokens_map.json").write_text('{ "pad_token":"<my pad>"}')
    path = tmp_path / "hf" / "model.safetensors"
    weights = {name.removeprefix("transformer."): tensor.bfloat16() for name, tensor in load_file(path).items()}
    weights |= {"h.0.attn.bias": torch.ones(1, 1, 4, 4).tril().bool(), "lm_head.weight": weights["wte.weight"].clone()}
    save_file(weights, path, {"format": "pt"})
    import_gpt2(tmp_path / "hf", tmp_path / "run")
    assert export_gpt2(tmp_path / "run", tmp_path / "again") == []
    assert_same_files(tmp_path / "hf", tmp_path / "again")
    back = load_file(tmp_path / "again" / "model.safetensors")
    assert back.keys() == weights.keys()
    assert all(back[name].dtype == tensor.dtype for name, tensor in weights.items())
    assert all(torch.equal(back[name], tensor) for name, tensor in weights.items())


def test_what_was_trained_on_goes_out_in_the_same_ids(bpe: Tokenizer, tmp_path: Path) -> None:
    model = write_theirs(tmp_path / "hf", bpe, **SHAPES["one head"], vocab_size=VOCAB + 2)
    import_gpt2(tmp_path / "hf", tmp_path / "run")
    (tmp_path / "book.txt").write_text(BOOK, encoding="utf-8")
    shape = {"model.layers": 1, "model.width": 16, "model.heads": 1, "model.context": 24, "model.dropout": 0.2}
    settings = {"train.init": tmp_path / "run", "batches.length": 16, "batches.size": 2, "train.steps": 2} | shape
    tuned = segue.train("gpt", tmp_path / "book.txt", tmp_path / "tuned", settings | {"data.validation": 0})
    tuned.export(tmp_path / "moved.zip")
    segue.import_run(tmp_path / "moved.zip", tmp_path / "moved")
    notes = export_gpt2(tmp_path / "moved", tmp_path / "again")
    assert "adds none" in notes[0]  # training here puts the end before each text, their tokenizer does not
    assert_same_files(tmp_path / "hf", tmp_path / "again", "config.json")
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("hf", "again"))
    changed = {"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2}
    assert after == before | changed
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again").eval()
    old, new = model.transformer.wte.weight, again.transformer.wte.weight
    assert torch.equal(old[VOCAB:], new[VOCAB:]) and not torch.equal(old[:VOCAB], new[:VOCAB])
    untied = settings | {"model.tied": False, "train.steps": 1, "data.validation": 0}
    asked = [f"{key}={str(value).lower()}" for key, value in untied.items()]
    assert main(["train", "gpt", str(tmp_path / "book.txt"), "--out", str(tmp_path / "untied"), *asked]) == 0
    other = segue.load(tmp_path / "untied", "cpu")
    export_gpt2(other.path, tmp_path / "other")
    loose = AutoModelForCausalLM.from_pretrained(tmp_path / "other").eval()
    assert torch.equal(loose.lm_head.weight[: VOCAB - 1], other.model.head.weight[2:])
    prompt = tuned.tokenizer.encode("The big cow")
    theirs = again(torch.tensor([[VOCAB - 1, *(prompt - 2).tolist()]])).logits
    ours = our_logits(tuned, torch.tensor([[0, *prompt.tolist()]]))
    assert (ours[..., 2:] - theirs[..., : VOCAB - 1]).abs().max() < 1e-4


def test_a_word_that_is_spelt_like_the_end(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(f"a b {END} c\n" * 30, encoding="utf-8")
    settings = {"tokens.kind": "space", "model.layers": 1, "model.width": 8, "model.heads": 1, "train.steps": 2}
    run = segue.train("gpt", tmp_path / "book.txt", tmp_path / "run", settings)
    export_gpt2(run.path, tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    ids = [i - 2 for i in run.tokenizer.encode(f"a {END} c").tolist()]
    assert tokenizer(f"a {END} c", add_special_tokens=False)["input_ids"] == ids
    assert tokenizer.eos_token_id == len(tokenizer) - 1 not in ids


def test_the_verbs(bpe: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_theirs(tmp_path / "hf", bpe)
    run, again = str(tmp_path / "run"), str(tmp_path / "again")
    assert main(["import", str(tmp_path / "hf"), "--out", run]) == 0
    assert main(["export", run, "--to", "hf", again]) == 0
    assert "AutoModelForCausalLM" in capsys.readouterr().out
    assert main(["import", again, "--out", run]) == 2  # nothing is overwritten
    assert main(["export", run, "--to", "hf", again]) == 2
    assert main(["import", run, "--out", str(tmp_path / "x")]) == 2
    assert "is a run folder already" in capsys.readouterr().err
    assert main(["export", run, "--to", "zip", str(tmp_path / "run.zip")]) == 0
    assert main(["evaluate", run, "--json"]) == 2
    assert "name a file to evaluate on" in capsys.readouterr().err


# Refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model.norm": "post"}, "model.norm=post, where GPT-2 normalises before"),
        ({"model.position": "rotary"}, "model.position=rotary, where GPT-2 has a learned vector"),
        ({"model.position": "none"}, "model.position=none"),
        ({"model.residual": False}, "model.residual=false"),
    ],
    ids=str,
)
def test_what_gpt2_cannot_be_is_not_exported(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    (tmp_path / "book.txt").write_text(BOOK, encoding="utf-8")
    small = {"model.layers": 1, "model.width": 8, "model.heads": 2, "train.steps": 1, "data.validation": 0}
    run = segue.train("gpt", tmp_path / "book.txt", tmp_path / "run", small | settings)
    with pytest.raises(segue.InputError, match=said):
        export_gpt2(run.path, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_another_model_is_not_exported(tmp_path: Path) -> None:
    run = segue.train("ngram", ["a b c"] * 9, tmp_path / "run", {"data.validation": 0})
    with pytest.raises(segue.InputError, match=r"is a ngram\. Only a gpt"):
        export_gpt2(run.path, tmp_path / "hf")


def test_a_pickle_is_refused_and_the_message_converts_it(bpe: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    model = write_theirs(folder, bpe)
    import_gpt2(folder, tmp_path / "one")
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    before = sorted(tmp_path.rglob("*"))
    for given in (folder, folder / "pytorch_model.bin"):
        with pytest.raises(segue.InputError, match="is a pickle file") as raised:
            import_gpt2(given, tmp_path / "run")
        assert sorted(tmp_path.rglob("*")) == before
    [code] = re.findall(r'python -c "(.+)" and', str(raised.value))
    exec(code, {})
    import_gpt2(tmp_path / "hf-safe", tmp_path / "run")
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def _tokenizer(folder: Path, change: Any) -> None:
    file = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(file)
    (folder / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")


def _weights(folder: Path, change: Any) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


DAMAGES: dict[str, tuple[Any, str]] = {
    "another model": (lambda f: edit(f / "config.json", model_type="llama"), "model_type=llama. Expected gpt2"),
    "exact gelu": (lambda f: edit(f / "config.json", activation_function="gelu"), 'activation_function="gelu"'),
    "narrow": (lambda f: edit(f / "config.json", n_inner=50), "n_inner=50"),
    "epsilon": (lambda f: edit(f / "config.json", layer_norm_epsilon=1e-6), "layer_norm_epsilon=1e-06"),
    "scale": (lambda f: edit(f / "config.json", scale_attn_weights=False), "scale_attn_weights=false"),
    "no number": (lambda f: edit(f / "config.json", n_layer="4"), "n_layer is '4'"),
    "heads": (lambda f: edit(f / "config.json", n_head=5), "n_embd=24 does not divide by n_head=5"),
    "layers": (lambda f: edit(f / "config.json", n_layer=5), "h.4.ln_1.weight is missing"),
    "fewer layers": (lambda f: edit(f / "config.json", n_layer=3), "it holds h.3.attn.c_attn.bias"),
    "positions": (lambda f: edit(f / "config.json", n_positions=41), r"wpe.weight is \[40, 24\]"),
    "untied": (lambda f: edit(f / "config.json", tie_word_embeddings=False), "lm_head.weight is missing"),
    "no config": (lambda f: (f / "config.json").unlink(), "holds no config.json"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "it is no JSON"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "it holds no keys"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "holds no model.safetensors"),
    "cut": (lambda f: (f / "model.safetensors").write_bytes(b"\0" * 64), "no safetensors file"),
    "no vectors": (lambda f: _weights(f, lambda w: w.pop("transformer.wte.weight")), "vectors for 0 tokens"),
    "turned": (
        lambda f: _weights(f, lambda w: w.update({"transformer.h.0.mlp.c_fc.weight": torch.zeros(96, 24)})),
        r"h.0.mlp.c_fc.weight is \[96, 24\]",
    ),
    "fewer rows": (
        lambda f: (
            _weights(f, lambda w: w.update({"transformer.wte.weight": torch.zeros(300, 24)})),
            edit(f / "config.json", eos_token_id=299),
        ),
        "vectors for 300 tokens, and tokenizer.json gives the id 309",
    ),
    "outside": (
        lambda f: (
            (f / "model.safetensors").unlink(),
            (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../a.safetensors"}}'),
        ),
        "names no files of this folder",
    ),
    "a million layers": (lambda f: edit(f / "config.json", n_layer=10**6), "model.layers=1000000 is too large"),
    "too wide": (lambda f: edit(f / "config.json", n_embd=10**9, n_head=1), "model.width=1000000000 is too large"),
    "one number": (
        lambda f: _weights(f, lambda w: w.update({"transformer.wte.weight": torch.zeros(())})),
        "wte.weight is a single number",
    ),
    "not a number": (
        lambda f: _weights(f, lambda w: w["transformer.wte.weight"].fill_(torch.nan)),
        "NaN or infinite",
    ),
    "index of lists": (
        lambda f: (
            (f / "model.safetensors").unlink(),
            (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": ["b"]}}'),
        ),
        "names no files of this folder",
    ),
    "half a pair": (
        lambda f: _tokenizer(f, lambda t: t.update(added_tokens=[{"id": 309, "content": "\ud800"}])),
        "no content and id",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "holds no vocab.json"),
    "a blank in front": (
        lambda f: _tokenizer(f, lambda t: t["pre_tokenizer"].update(add_prefix_space=True)),
        "splits words otherwise",
    ),
    "a blank by the config": (
        lambda f: (f / "tokenizer_config.json").write_text('{"add_prefix_space": true}'),
        "add_prefix_space=true",
    ),
    "a strange template": (
        lambda f: _tokenizer(f, lambda t: t.update(post_processor={"type": "TemplateProcessing", "single": [3]})),
        "post_processor names no special tokens",
    ),
    "another split": (
        lambda f: _tokenizer(f, lambda t: t.update(pre_tokenizer={"type": "Whitespace"})),
        "splits words otherwise",
    ),
    "lower case": (lambda f: _tokenizer(f, lambda t: t.update(normalizer={"type": "Lowercase"})), "changes the text"),
    "another kind": (lambda f: _tokenizer(f, lambda t: t["model"].pop("merges")), "its model is not BPE"),
    "suffix": (
        lambda f: _tokenizer(f, lambda t: t["model"].update(end_of_word_suffix="</w>")),
        'end_of_word_suffix="</w>"',
    ),
    "shared id": (lambda f: _tokenizer(f, lambda t: t["model"]["vocab"].update({"a": 7})), "two tokens share one"),
    "no byte": (lambda f: _tokenizer(f, lambda t: t["model"]["vocab"].pop("Ā")), "1 of the 256 bytes"),
    "no letter": (lambda f: _tokenizer(f, lambda t: t["model"]["vocab"].update({"中": 999})), "gives the id 999"),
    "merge": (lambda f: _tokenizer(f, lambda t: t["model"]["merges"].append(["q", "zz"])), "library refuses it"),
    "added": (lambda f: _tokenizer(f, lambda t: t.update(added_tokens=[3])), "no content and id"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_gpt2_is_refused_and_leaves_nothing(bpe: Tokenizer, tmp_path: Path, damage: str) -> None:
    write_theirs(tmp_path / "hf", bpe)
    change, said = DAMAGES[damage]
    change(tmp_path / "hf")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(segue.InputError, match=said):
        import_gpt2(tmp_path / "hf", tmp_path / "deep" / "run")
    assert sorted(tmp_path.rglob("*")) == before
