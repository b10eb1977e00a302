"""T5 for transformers, in and out: the same logits and text, what goes in comes out, and what is refused."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration, T5Tokenizer

import segue
from segue.batches.batch import Batch
from segue.errors import InputError
from segue.interop.formats import export_run, import_run

TEXTS = ["the list of lists", "a naïve cow , of the list", "x"]
SENTINELS, SPARE = 10, 7
LETTERS = string.ascii_letters + ".,"
PIECES = [
    *[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((letter, -6.0) for letter in LETTERS)],
    *[("▁the", -3.0), ("▁of", -3.1), ("▁list", -4.0), ("st", -4.5), ("▁a", -3.3)],
    *((f"<extra_id_{i}>", 0.0) for i in range(SENTINELS - 1, -1, -1)),
]
VERSIONS = {"1.0": {}, "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}}


class Theirs(NamedTuple):
    """A folder of transformers and what it holds."""

    folder: Path
    model: T5ForConditionalGeneration
    tokenizer: Any


def made(folder: Path, version: str = "1.0", **config: Any) -> Theirs:
    """A small T5 with random weights, larger than its first ones: else all scores would be alike."""
    torch.manual_seed(1)
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3}
    sizes = {"vocab_size": len(PIECES) + SPARE, "decoder_start_token_id": 0}
    model = T5ForConditionalGeneration(T5Config(**{**shape, **sizes, **VERSIONS[version], **config})).eval()
    with torch.no_grad():
        if version == "1.1":
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.mul_(1 + 0.1 * torch.randn_like(parameter))
            elif "shared" not in name and "lm_head" not in name:
                parameter.mul_(2)
    model.save_pretrained(folder)
    tokenizer = T5Tokenizer(vocab=PIECES, extra_ids=SENTINELS)
    tokenizer.save_pretrained(folder)
    return Theirs(folder, T5ForConditionalGeneration.from_pretrained(folder).eval(), tokenizer)


@pytest.fixture(scope="module", params=list(VERSIONS))
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Theirs, segue.Run]:
    place = tmp_path_factory.mktemp("t5")
    theirs = made(place / "theirs", request.param)
    import_run(theirs.folder, place / "run")
    return theirs, segue.load(place / "run", "cpu")


def ids_of(run: segue.Run) -> list[int]:
    found: list[int] = json.loads((run.path / "huggingface" / "ids.json").read_text())
    return found


def read(run: segue.Run, text: str) -> list[int]:
    """A source as a run reads it."""
    ids: list[int] = run.task.encode([run.asked(text)], run.codec, labelled=False)["source"].flat.tolist()
    return ids


def test_texts_are_cut_alike(both: tuple[Theirs, segue.Run]) -> None:
    theirs, run = both
    ids = ids_of(run)
    for text in TEXTS:
        assert [ids[i] for i in read(run, text)] == theirs.tokenizer(text).input_ids
        ours = run.tokenizer.encode(text).tolist()
        known = [i for i in ours if i != run.tokenizer.unk]
        assert run.tokenizer.decode(known) == theirs.tokenizer.decode([ids[i] for i in known])


@torch.no_grad()
def test_logits_are_the_same(both: tuple[Theirs, segue.Run]) -> None:
    theirs, run = both
    ids = ids_of(run)
    source, target = read(run, TEXTS[0]), [0, 5, 9, 0, 62, 3]
    tokens = torch.tensor([target])
    everywhere = torch.ones(1, len(source), dtype=torch.bool)
    batch = Batch(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool), None, torch.tensor([source]), everywhere)
    decoder = torch.tensor([[0, *(ids[i] for i in target[1:])]])
    expected = theirs.model(input_ids=torch.tensor([[ids[i] for i in source]]), decoder_input_ids=decoder).logits
    found, _ = run.model(batch)
    assert float(expected.std()) > 0.1
    assert float((found - expected[..., ids]).abs().max()) < 1e-4


def test_greedy_text_is_the_same(both: tuple[Theirs, segue.Run]) -> None:
    theirs, run = both
    ids = ids_of(run)
    never = [ids[i] for i in run.model.unwritten] + list(range(len(PIECES), len(PIECES) + SPARE))
    greedy = ["decode.beam=1", "decode.max_tokens=12", "decode.length_ratio=0"]
    for text in TEXTS:
        given = torch.tensor([theirs.tokenizer(text).input_ids])
        how = {"max_new_tokens": 12, "do_sample": False, "suppress_tokens": never, "min_new_tokens": 1}
        expected = theirs.tokenizer.decode(theirs.model.generate(given, **how)[0], skip_special_tokens=True)
        assert next(run.predict([text], settings=greedy)).text == expected


def test_holes_are_filled_with_what_their_beam_writes(both: tuple[Theirs, segue.Run]) -> None:
    theirs, run = both
    ids = ids_of(run)
    spans = [theirs.tokenizer.convert_tokens_to_ids(f"<extra_id_{i}>") for i in range(SENTINELS)]
    given = torch.tensor([theirs.tokenizer("the <extra_id_0> of a <extra_id_1>").input_ids])
    never = [0, 2, *spans[3:], *range(len(PIECES), len(PIECES) + SPARE)]
    how = {"max_new_tokens": 32, "do_sample": False, "num_beams": 3, "length_penalty": 0.0, "suppress_tokens": never}
    (written,) = theirs.model.generate(given, **how, early_stopping=True).tolist()
    parts: dict[int, list[int]] = {span: [] for span in spans}
    now = -1
    for i in written[1:]:
        if i in spans:
            now = i
        elif now >= 0 and i > 1:
            parts[now].append(i)
    back = {their: ours for ours, their in enumerate(ids)}
    filled = run.fill("the [MASK] of a [MASK]", top=3)
    for hole, span in zip(filled.holes, spans, strict=False):
        assert hole[0].token.strip() == run.tokenizer.decode([back[i] for i in parts[span]])
    assert len(filled.holes) == 2 and 0 < filled.holes[0][0].probability <= 1


def test_what_comes_in_goes_out(both: tuple[Theirs, segue.Run], tmp_path: Path) -> None:
    theirs, run = both
    export_run(run.path, tmp_path / "back", "hf")
    before, after = (load_file(folder / "model.safetensors") for folder in (theirs.folder, tmp_path / "back"))
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (theirs.folder / name).read_bytes() == (tmp_path / "back" / name).read_bytes(), name


@pytest.mark.parametrize("settings", [[], ["model.gated=true", "model.tied=false"]], ids=["1.0", "1.1"])
def test_a_run_of_ours_goes_out_and_comes_in_again(settings: list[str], tmp_path: Path) -> None:
    shape = ["model.layers=1", "model.width=16", "model.heads=2", "model.head_width=8", "model.spans=10"]
    tokens = ["tokens.vocab_size=300", "train.steps=2", "data.validation=0", "data.test=0"]
    text = [f"the {a} cow eats {n} apples, of the {a} list." for a in ("big", "red") for n in range(20)]
    run = segue.train("t5", text, tmp_path / "run", [*shape, *tokens, *settings])
    assert run.recipe.batches.noise == "spans"
    export_run(run.path, tmp_path / "out", "hf")
    model = T5ForConditionalGeneration.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    given = tokenizer("the big<extra_id_0> eats<extra_id_1>", return_tensors="pt").input_ids
    order = [
        run.sizes.start,
        0,
        1,
        *range(2, run.sizes.vocab_size),
        *reversed(range(run.sizes.mark("span0"), run.sizes.ids)),
    ]
    source = torch.tensor([[order[i] for i in given[0].tolist()]])
    expected_source = [*run.tokenizer.encode("the big"), run.sizes.mark("span0"), *run.tokenizer.encode(" eats")]
    assert source[0].tolist() == [*expected_source, run.sizes.mark("span1"), 0]
    tokens_BT = torch.tensor([[0, 5, 9]])
    everywhere = torch.ones_like(tokens_BT, dtype=torch.bool)
    batch = Batch(tokens_BT, tokens_BT, everywhere, None, source, torch.ones_like(source, dtype=torch.bool))
    decoder = torch.tensor([[0, order.index(5), order.index(9)]])
    with torch.no_grad():
        expected = model(input_ids=given, decoder_input_ids=decoder).logits
        assert float((run.model(batch)[0][..., order] - expected).abs().max()) < 1e-4
    if not settings:
        return
    assert not torch.equal(model.lm_head.weight, model.shared.weight)


def test_t5_small_has_the_same_logits_at_its_real_shape(tmp_path: Path) -> None:
    theirs = made(tmp_path / "theirs", d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_decoder_layers=6, num_heads=8)
    import_run(theirs.folder, tmp_path / "run")
    run = segue.load(tmp_path / "run", "cpu")
    assert run.model.config.feed == 0 and run.model.config.width == 512
    source = read(run, TEXTS[1])
    tokens = torch.tensor([[0, 5, 9]])
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    batch = Batch(tokens, tokens, everywhere, None, torch.tensor([source]), None, source_unpadded=True)
    ids = ids_of(run)
    with torch.no_grad():
        expected = theirs.model(
            input_ids=torch.tensor([[ids[i] for i in source]]), decoder_input_ids=torch.tensor([[0, ids[5], ids[9]]])
        ).logits
        assert float((run.model(batch)[0] - expected[..., ids]).abs().max()) < 1e-4


# What is refused


def test_other_settings_are_refused(tmp_path: Path) -> None:
    theirs = made(tmp_path / "a", relative_attention_num_buckets=16)
    with pytest.raises(InputError, match=r"relative_attention_num_buckets=16, which t5 here cannot be. Expected 32"):
        import_run(theirs.folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_without_tokenizer_json_is_told_what_to_do(tmp_path: Path) -> None:
    theirs = made(tmp_path / "a")
    (theirs.folder / "tokenizer.json").rename(theirs.folder / "spiece.model")
    with pytest.raises(InputError, match=r"holds no tokenizer.json. Where transformers is installed, write it"):
        import_run(theirs.folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda one: one.pop("decoder.final_layer_norm.weight"), "decoder.final_layer_norm.weight is missing"),
        (lambda one: one.update(other=torch.ones(2)), "it holds other, which a T5 has not"),
        (lambda one: one.update({"shared.weight": one["shared.weight"][:20]}), "a table has 20 rows"),
    ],
    ids=["missing", "strange", "short"],
)
def test_damaged_weights_are_refused(damage: Any, message: str, tmp_path: Path) -> None:
    theirs = made(tmp_path / "a")
    weights = load_file(theirs.folder / "model.safetensors")
    damage(weights)
    save_file(weights, theirs.folder / "model.safetensors")
    with pytest.raises(InputError, match=message):
        import_run(theirs.folder, tmp_path / "run")
