"""Filling holes: the same tokens as transformers, each hole read with its blank, windows around holes, pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from segue.batches.batch import Batch
from segue.batches.codec import Codec, Sizes
from segue.data.config import Config as Data
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.inference.fill import fill, framed
from segue.inference.opened import Opened
from segue.models.bert import Bert
from segue.tasks.masked_lm import TASK
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

TEXT = "the cows eat grass, and the dogs eat the cows. a cow sees a dog in the grass."
KINDS = ["char", "byte", "space", "word", "bpe", "unigram", "wordpiece"]


def opened(kind: str, context: int = 32, separators: int = 1) -> Opened:
    """A small bert with random weights, large enough that it is sure of something."""
    torch.manual_seed(0)
    size = {"bpe": 320, "unigram": 300, "wordpiece": 100}.get(kind, 0)
    tokenizer = Tokenizer.train(Tokens(kind=kind, vocab_size=size, min_count=1), [TEXT] * 20)  # type: ignore[arg-type]
    config = Bert.Config(layers=2, width=16, heads=2, context=context)
    sizes = Sizes(tokenizer.vocab_size, marks=Bert.marks(config), separators=separators)
    model = Bert(config, sizes).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    codec = Codec(tokenizer, (), Data(), sizes, inputs=Bert.inputs_of(config))
    return Opened(model, codec, Decode(), 32, TASK)


def probabilities(one: Opened, text: str, place: int) -> torch.Tensor:
    """p of every token at a place of the framed text, computed at all places."""
    ids, segments = framed(text, one.codec)
    batch = Batch(ids[None], None, np.ones((1, len(ids)), bool), segments_BT=segments[None], unpadded=True)
    with torch.inference_mode():
        logits, _ = one.model(batch.to("cpu"))
    found: torch.Tensor = logits[0, place].softmax(-1)
    return found


# The blank before a hole


@pytest.mark.parametrize("kind", ["space", "word", "bpe", "wordpiece"])
@pytest.mark.parametrize(
    ("whole", "holed"),
    [
        ("the cows eat grass.", "the [MASK] eat grass."),
        ("the cows eat grass.", "[MASK] cows eat grass."),
        ("the cows eat grass.", "the cows eat <mask>."),
        ("the cows eat grass.", "the [MASK] eat [MASK]."),
    ],
)
def test_a_hole_hides_the_token_that_would_stand_there(kind: str, whole: str, holed: str) -> None:
    if kind == "space":
        whole, holed = whole.replace(".", " ."), holed.replace(".", " .")
    one = opened(kind)
    true, _ = one.codec.frame(one.codec.tokenizer.encode(whole))
    read, _ = framed(holed, one.codec)
    mask = one.codec.sizes.mark("mask")
    assert len(true) == len(read) and (read == mask).sum() == holed.upper().count("MASK")
    assert np.array_equal(np.where(read == mask, mask, true), read)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_that_is_shown_has_the_filler_in_its_hole(kind: str) -> None:
    """A filler of the right place, put in by hand, makes the text that is shown."""
    one = opened(kind)
    given = "the [MASK] eat grass ." if kind == "space" else "the [MASK] eat grass."
    (answer,) = fill(one, [given], top=len(one.codec.tokenizer.content["model"]["vocab"]))
    (fillers,) = answer.holes
    assert len(fillers) == one.codec.sizes.vocab_size - 2 and answer.filled == fillers[0].text
    assert sum(filler.probability for filler in fillers) < 1
    texts = {filler.token: filler.text for filler in fillers}
    if kind in ("bpe", "word"):
        assert texts[" cows"] == "the cows eat grass."
        assert texts["."] == "the. eat grass."
    elif kind in ("wordpiece", "space"):
        assert texts["cow" if kind == "wordpiece" else "cows"].startswith("the cow")
        assert all(text.startswith("the" + token[2:]) for token, text in texts.items() if token.startswith("##"))
    elif kind in ("char", "byte"):
        assert texts["c"] == "the c eat grass."


def test_a_hole_within_a_word_takes_no_blank() -> None:
    one = opened("bpe")
    (answer,) = fill(one, ["the co[MASK]s"], top=1000)
    texts = {filler.token: filler.text for filler in answer.holes[0]}
    assert texts["w"] == "the cows" and texts[" the"] == "the co thes"


# Which tokens


def test_fillers_are_the_likeliest_tokens() -> None:
    one = opened("bpe")
    p = probabilities(one, "the [MASK] eat grass", 2)
    (answer,) = fill(one, ["the [MASK] eat grass"], top=7)
    p[:2] = 0  # STOP and UNK are no fillers
    best = p.topk(7)
    assert [filler.token for filler in answer.holes[0]] == [one.codec.tokenizer.name(i) for i in best.indices.tolist()]
    assert [filler.probability for filler in answer.holes[0]] == pytest.approx(best.values.tolist(), rel=1e-4)


def test_many_texts_together_are_each_filled_as_alone() -> None:
    one = opened("bpe")
    texts = ["[MASK]", "the [MASK] eat", "a [MASK] sees [MASK] in the [MASK] grass", "the dogs\tthe [MASK]", "x [MASK]"]
    together = list(fill(one, texts * 30, top=3))
    for text, answer in zip(texts * 30, together, strict=True):
        assert answer.text == text
        if answer is together[texts.index(text)]:
            (alone,) = fill(one, [text], top=3)
            assert [[f.token for f in hole] for hole in alone.holes] == [[f.token for f in h] for h in answer.holes]


def test_the_surest_hole_is_filled_first_and_the_others_are_read_again() -> None:
    one, text = opened("bpe"), "the [MASK] eat [MASK]"
    (apart,), (together,) = fill(one, [text]), fill(one, [text], together=True)
    surest = max((0, 1), key=lambda hole: apart.holes[hole][0].probability)
    first, second = together.holes[surest], together.holes[1 - surest]
    assert [filler[:2] for filler in first] == [filler[:2] for filler in apart.holes[surest]]
    (again,) = fill(one, [first[0].text])
    assert [filler.token for filler in second] == [filler.token for filler in again.holes[0]]
    assert [filler.probability for filler in second] == pytest.approx([f.probability for f in again.holes[0]], rel=1e-4)
    assert together.filled == second[0].text == again.filled


# Windows and pairs


def test_a_long_text_is_read_in_a_window_around_each_hole() -> None:
    """With characters as tokens the window can be cut by hand: 14 of the 16 places are text."""
    one = opened("char", context=16)
    before, after = "the cows eat grass and ", " eat the cows in the grass."
    text = before + "[MASK]" + after + "[MASK]"
    (answer,) = fill(one, [text])
    (middle,) = fill(one, [before[-7:] + "[MASK]" + after[:6]])
    (end,) = fill(one, [after[-13:] + "[MASK]"])
    for hole, alone in zip(answer.holes, (middle, end), strict=True):
        assert [filler.token for filler in hole] == [filler.token for filler in alone.holes[0]]
        assert [f.probability for f in hole] == pytest.approx([f.probability for f in alone.holes[0]], rel=1e-4)
    assert answer.unread == len(before) + len(after) + 2 - 14 and middle.unread == 0


@pytest.mark.parametrize("separators", [1, 2])
def test_a_pair_is_framed_as_one(separators: int) -> None:
    one = opened("char", separators=separators)
    ids, segments = framed("the cow\ta [MASK]", one.codec)
    sizes, encode = one.codec.sizes, one.codec.tokenizer.encode
    stops = [sizes.stop] * separators
    second = [*encode("a "), sizes.mark("mask"), sizes.stop]
    assert ids.tolist() == [sizes.start, *encode("the cow"), *stops, *second]
    assert segments.tolist() == [0] * (8 + separators) + [1] * len(second)
    (answer,) = fill(one, ["the cow\ta [MASK]"], top=1)
    best = probabilities(one, "the cow\ta [MASK]", len(ids) - 2)[2:].argmax() + 2
    assert answer.holes[0][0].token == one.codec.tokenizer.name(int(best))
    assert answer.filled == f"the cow\ta {answer.holes[0][0].token}"


def test_both_sides_of_a_long_pair_are_read_around_the_hole() -> None:
    one = opened("char", context=16)
    text = "the cows eat grass\tthe dogs see the [MASK] cow"
    (answer,) = fill(one, [text])
    (cut,) = fill(one, ["the co\t" + "he [MASK] co"])
    assert answer.unread > 0
    assert [filler.probability for filler in answer.holes[0]] == pytest.approx([f.probability for f in cut.holes[0]])


# What is refused


def test_no_hole_and_too_many_tabs() -> None:
    one = opened("bpe")
    with pytest.raises(InputError, match=r"no hole in “the cows”.*Write \[MASK\]"):
        list(fill(one, ["the cows"]))
    with pytest.raises(InputError, match="2 tabs"):
        list(fill(one, ["a\tb\t[MASK]"]))


# The same as transformers


def test_fills_are_those_of_the_pipeline_of_transformers() -> None:
    """Probabilities differ by one factor: theirs are also of the marks, which no model predicts here."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, FillMaskPipeline, PreTrainedTokenizerFast

    one = opened("wordpiece")
    sizes, names = one.codec.sizes, list(one.codec.tokenizer.content["model"]["vocab"])
    theirs = ["[SEP]", "[UNK]", *names[2:], "[CLS]", "[MASK]"]
    library = Library(models.WordPiece({name: i for i, name in enumerate(theirs)}, unk_token="[UNK]"))
    library.normalizer, library.pre_tokenizer = (
        normalizers.BertNormalizer(lowercase=False),
        pre_tokenizers.BertPreTokenizer(),
    )
    special = [("[CLS]", sizes.start), ("[SEP]", sizes.stop)]
    library.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    marks = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "unk_token": "[UNK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=library, pad_token="[SEP]", **marks)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=sizes.ids, max_position_embeddings=32, **shape)
    model = BertForMaskedLM(config)
    model.load_state_dict(as_theirs(one.model), strict=False)
    pipeline = FillMaskPipeline(model.eval(), tokenizer, device=torch.device("cpu"))
    for text in ("the [MASK] eat grass.", "a cow sees [MASK] dog in the [MASK]."):
        holes = pipeline(text, top_k=sizes.ids)
        (answer,) = fill(one, [text], top=5)
        for found, ours in zip(holes if len(answer.holes) > 1 else [holes], answer.holes, strict=True):
            share = sum(row["score"] for row in found if row["token"] < sizes.vocab_size)
            rows = [row for row in found if 2 <= row["token"] < sizes.vocab_size][:5]
            assert [row["token_str"] for row in rows] == [filler.token for filler in ours]
            expected = [row["score"] / share for row in rows]
            assert [filler.probability for filler in ours] == pytest.approx(expected, abs=1e-5)


def as_theirs(model: Bert) -> dict[str, torch.Tensor]:
    """The weights by the names that transformers gives them."""
    own, found = model.state_dict(), {}
    tables = {"word_embeddings.weight": "vectors.weight", "position_embeddings.weight": "positions.table.weight"}
    tables |= {"token_type_embeddings.weight": "segment_vectors.weight"}
    found |= {f"bert.embeddings.{name}": own[ours] for name, ours in tables.items()}
    parts = {"bert.embeddings.LayerNorm": "norm", "cls.predictions.transform.dense": "transform"}
    parts |= {"cls.predictions.transform.LayerNorm": "transform_norm"}
    for i in range(model.config.layers):
        layer, block = f"bert.encoder.layer.{i}", f"blocks.{i}"
        parts |= {f"{layer}.attention.output.dense": f"{block}.attention.out"}
        parts |= {f"{layer}.attention.output.LayerNorm": f"{block}.norm_attention"}
        parts |= {f"{layer}.intermediate.dense": f"{block}.feed.up", f"{layer}.output.dense": f"{block}.feed.down"}
        parts |= {f"{layer}.output.LayerNorm": f"{block}.norm_feed"}
        for kind in ("weight", "bias"):
            thirds = own[f"{block}.attention.qkv.{kind}"].chunk(3)
            for name, third in zip(("query", "key", "value"), thirds, strict=True):
                found[f"{layer}.attention.self.{name}.{kind}"] = third
    found |= {f"{name}.{kind}": own[f"{ours}.{kind}"] for name, ours in parts.items() for kind in ("weight", "bias")}
    return found | {"cls.predictions.bias": own["bias"], "cls.predictions.decoder.weight": own["vectors.weight"]}
