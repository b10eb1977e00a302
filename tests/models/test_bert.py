"""BERT and RoBERTa: against transformers, LECTURES' M15, M16, M19 and B2, padding, probes, recording on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForPreTraining, RobertaConfig, RobertaForMaskedLM

from segue.batches.batch import IGNORE, Batch
from segue.errors import InputError
from segue.layers.probe import record
from segue.models.base import Sizes
from segue.models.bert import SHAPES, Bert
from segue.models.network import on_meta

V = 13
SIZES = Sizes(V, marks=("start", "mask"))
POSITIONS = ["none", "onehot", "sinusoidal", "learned", "relative", "rotary"]


def made(**given: Any) -> Bert:
    torch.manual_seed(0)
    values = {"width": 16, "heads": 2, "layers": 2, "context": 12} | given
    model = Bert(Bert.Config(**values), SIZES).double().eval()
    with torch.no_grad():  # zeros would hide an error
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def batch_of(lengths: tuple[int, ...] = (9, 4, 7), wider: int = 0) -> Batch:
    draw = np.random.default_rng(3)
    width = max(lengths) + wider
    mask = np.arange(width) < np.array(lengths)[:, None]
    tokens = np.where(mask, draw.integers(2, V, (3, 20))[:, :width], 0)
    tokens[:, 0] = SIZES.start
    segments = np.where(mask, np.arange(width) > 2, 0).astype(np.int64)
    places = np.array([[1, 2], [3, 1], [2, 4]])
    targets = np.array([[4, 5], [7, IGNORE], [2, 3]])
    follows = np.array([1, 0, IGNORE])
    return Batch(tokens, targets, mask, segments_BT=segments, places_BK=places, follows_B=follows).to("cpu")


# Against transformers


def copied(theirs: Any, ours: Bert) -> None:
    """Give a model of transformers the weights of ours; `theirs` is its body."""
    pairs = [
        (theirs.embeddings.word_embeddings, ours.vectors),
        (theirs.embeddings.position_embeddings, ours.positions.table),
        (theirs.embeddings.token_type_embeddings, ours.segment_vectors),
        (theirs.embeddings.LayerNorm, ours.norm),
    ]
    for one, block in zip(theirs.encoder.layer, ours.blocks, strict=True):
        pairs += [(one.attention.output.dense, block.attention.out), (one.intermediate.dense, block.feed.up)]
        pairs += [(one.output.dense, block.feed.down)]
        pairs += [(one.attention.output.LayerNorm, block.norm_attention), (one.output.LayerNorm, block.norm_feed)]
        parts = (one.attention.self.query, one.attention.self.key, one.attention.self.value)
        for part, weight, bias in zip(
            parts, block.attention.qkv.weight.chunk(3), block.attention.qkv.bias.chunk(3), strict=True
        ):
            part.load_state_dict({"weight": weight, "bias": bias})
    for one, own in pairs:
        one.load_state_dict(own.state_dict())


def shape_of(model: Bert) -> dict[str, Any]:
    config = model.config
    places = config.context + config.first_position
    shape = {"hidden_size": config.width, "num_hidden_layers": config.layers, "num_attention_heads": config.heads}
    shape |= {"intermediate_size": 4 * config.width, "vocab_size": SIZES.ids, "max_position_embeddings": places}
    return shape | {"type_vocab_size": config.segments, "layer_norm_eps": config.eps, "pad_token_id": 0}


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@torch.inference_mode()
def test_hidden_states_and_both_heads_are_those_of_transformers_bert() -> None:
    ours, batch = made(next_sentence=True), batch_of()
    theirs = BertForPreTraining(BertConfig(**shape_of(ours))).double().eval()
    copied(theirs.bert, ours)
    theirs.bert.pooler.dense.load_state_dict(ours.pooler.state_dict())
    head = theirs.cls.predictions
    head.transform.dense.load_state_dict(ours.transform.state_dict())
    head.transform.LayerNorm.load_state_dict(ours.transform_norm.state_dict())
    head.bias.copy_(ours.bias)
    theirs.cls.seq_relationship.load_state_dict(ours.next_head.state_dict())
    said = theirs(batch.tokens_BT, batch.mask_BT.long(), batch.segments_BT, output_hidden_states=True)
    hidden = ours.encode(batch)
    assert len(hidden) == len(said.hidden_states) == ours.depth
    for own, other in zip(hidden, said.hidden_states, strict=True):
        close(own[batch.mask_BT], other[batch.mask_BT])
    logits = ours.unembed(hidden[-1])
    close(logits[batch.mask_BT], said.prediction_logits[..., :V][batch.mask_BT])
    close(ours(batch)[0], logits.gather(1, batch.places_BK[..., None].expand(-1, -1, V)))
    close(ours.follows(batch), said.seq_relationship_logits)


@torch.inference_mode()
def test_roberta_is_the_same_with_one_segment_and_places_from_2_on() -> None:
    ours, batch = made(segments=1, first_position=2, eps=1e-5), batch_of()
    # Their places are counted from the id of padding on, over tokens that are not padding; ours has no such id.
    theirs = RobertaForMaskedLM(RobertaConfig(**shape_of(ours) | {"pad_token_id": 1})).double().eval()
    copied(theirs.roberta, ours)
    theirs.lm_head.dense.load_state_dict(ours.transform.state_dict())
    theirs.lm_head.layer_norm.load_state_dict(ours.transform_norm.state_dict())
    theirs.lm_head.bias.copy_(ours.bias)
    said = theirs(torch.where(batch.mask_BT, batch.tokens_BT, 1), batch.mask_BT.long())
    close(ours.unembed(ours.encode(batch)[-1])[batch.mask_BT], said.logits[..., :V][batch.mask_BT])


@torch.inference_mode()
def test_with_pre_ln_each_part_reads_a_normed_input_and_the_last_state_is_normed() -> None:
    model, batch = made(norm="pre", layers=1), batch_of((9, 9, 9))
    x, y = model.encode(batch)
    (block,) = model.blocks
    x = x + block.attention(block.norm_attention(x))
    close(y, model.last(x + block.feed(block.norm_feed(x))))


# Sizes


def counted(size: Any) -> dict[str, int]:
    vocab_size = SHAPES[size].vocab_size
    sizes = Sizes(vocab_size - 2, marks=("start", "mask"))
    model = on_meta(lambda: Bert(Bert.Config(size=size), sizes))
    return {name: parameter.numel() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("size", "body", "whole"),
    [
        ("bert-base", 109_482_240, 110_106_428),
        ("bert-large", 335_141_888, 336_226_108),
        ("roberta-large", 355_359_744, None),
    ],
)
def test_published_sizes_to_the_unit(size: str, body: int, whole: int | None) -> None:
    """M15, M16 and M19; the heads are the transform, its norm, the bias of the output and the next sentence's."""
    counts = counted(size)
    heads = ("transform", "bias", "next_head")
    assert sum(count for name, count in counts.items() if not name.startswith(heads)) == body
    assert whole is None or sum(counts.values()) == whole


def test_a_published_size_with_another_number_is_refused() -> None:
    with pytest.raises(ValueError, match="width = 64 with size = bert-base, whose width is 768"):
        Bert.Config(size="bert-base", width=64)


# Reading


@torch.inference_mode()
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_makes_no_difference(position: Any, norm: Any) -> None:
    model = made(position=position, norm=norm, next_sentence=True)
    narrow, wide = batch_of(), batch_of(wider=2)
    close(model(wide)[0], model(narrow)[0])
    close(model.follows(wide), model.follows(narrow))
    close(model.encode(wide)[:, :, :9], model.encode(narrow))
    alone = narrow.rows([1])
    cut = Batch(alone.tokens_BT[:, :4], alone.targets, alone.mask_BT[:, :4], segments_BT=alone.segments_BT[:, :4])
    close(model.encode(cut)[:, 0], model.encode(narrow)[:, 1, :4])


@torch.inference_mode()
@pytest.mark.parametrize("position", POSITIONS)
def test_every_place_sees_both_sides(position: Any) -> None:
    model, batch = made(position=position), batch_of((9, 9, 9))
    before = model.encode(batch)[-1]
    for place in (0, 8):
        tokens = batch.tokens_BT.clone()
        tokens[:, place] = 2 + (tokens[:, place] + 1) % (V - 2)
        changed = model.encode(Batch(tokens, None, batch.mask_BT, segments_BT=batch.segments_BT))[-1]
        assert ((changed - before).abs().amax(-1) > 1e-7).all()


@torch.inference_mode()
def test_attention_that_is_recorded_gives_the_same() -> None:
    model, batch = made(), batch_of()
    fused = model.encode(batch)
    with record() as seen:
        close(model.encode(batch), fused)
    assert len(seen["attention"]) == 2
    for weights in seen["attention"]:
        rows = weights.sum(-1).movedim(1, -1)[batch.mask_BT]
        close(rows, torch.ones_like(rows))
        assert not weights.movedim(1, -1)[1, :, 4:].any()


def test_rows_beyond_the_window_are_refused() -> None:
    with pytest.raises(InputError, match="rows of 13 tokens, and this model sees 12"):
        made()(batch_of((13, 1, 1)))


# Learning


def test_the_loss_has_no_gradient_at_places_that_are_not_masked() -> None:
    """B2: exactly 0 there, and what is computed at the masked places alone gives every weight the same gradient."""
    model, batch = made(), batch_of()
    model.loss(batch).terms[0].total.backward()
    weights = [weight for name, weight in model.named_parameters() if not name.startswith("pooler.")]
    gradients = [weight.grad.clone() for weight in weights]
    model.zero_grad()
    logits = model(replace(batch, places_BK=None))[0]
    logits.retain_grad()
    learnt = {(0, 1): 4, (0, 2): 5, (1, 3): 7, (2, 2): 2, (2, 4): 3}
    sum(-logits[place].log_softmax(-1)[target] for place, target in learnt.items()).backward()
    assert {(row, place) for row, place in logits.grad.abs().sum(-1).nonzero().tolist()} == set(learnt)
    for weight, gradient in zip(weights, gradients, strict=True):
        close(gradient, weight.grad)


def test_the_loss_is_that_of_the_logits_and_of_the_next_sentence() -> None:
    model, batch = made(next_sentence=True), batch_of()
    masked, follows = model.loss(batch).terms
    cross_entropy = torch.nn.functional.cross_entropy
    given = {"ignore_index": IGNORE, "reduction": "sum"}
    close(masked.total, cross_entropy(model(batch)[0].flatten(0, 1), batch.targets.flatten(), **given))
    close(follows.total, cross_entropy(model.follows(batch), batch.follows_B, **given))
    assert model.counts(batch) == {"cross_entropy": 5, "next_sentence": 2}
    assert (int(masked.count), int(follows.count)) == (5, 2)


@pytest.mark.parametrize("given", [{}, {"next_sentence": True}, {"norm": "pre", "position": "rotary"}])
def test_a_step_asks_nothing_of_the_device(given: dict[str, Any]) -> None:
    """Or it could not be recorded on a GPU. Here the device is one that has no numbers to give."""
    model = made(**given).train().to("meta")
    loss = model.loss(batch_of((9, 9, 9)).to("meta"))
    sum(term.total for term in loss.terms).backward()


def test_a_model_that_has_not_learnt_the_next_sentence_says_so() -> None:
    with pytest.raises(InputError, match="next_sentence is false"):
        made().follows(batch_of())
