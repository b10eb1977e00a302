"""The Transformer encoder-decoder: against torch.nn.Transformer, its sizes, stepping, beams, sums of attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.batches.store import columns_of
from segue.errors import InputError
from segue.layers.probe import record
from segue.models.base import Sizes
from segue.models.encoder_decoder import SourceWindow
from segue.models.network import on_meta
from segue.models.transformer import Transformer
from segue.tasks.seq2seq import TASK

V = 13
POSITIONS = ["none", "onehot", "sinusoidal", "learned", "relative", "rotary"]


def made(**given: Any) -> Transformer:
    torch.manual_seed(0)
    values = {"width": 16, "heads": 2, "layers": 2, "context": 12} | given
    model = Transformer(Transformer.Config(**values), Sizes(V)).double().eval()
    with torch.no_grad():  # zeros would hide an error
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch_of(targets: tuple[int, ...] = (5, 2, 7), sources: tuple[int, ...] = (4, 1, 6)) -> Batch:
    draw = np.random.default_rng(3)
    text, source = ([draw.integers(2, V, length) for length in lengths] for lengths in (targets, sources))
    return TASK.collate(columns_of(source=source, text=text), 9999).to("cpu")


# Against torch's own


def reference(model: Transformer) -> nn.Transformer:
    """torch.nn.Transformer with the same weights."""
    config, pre = model.config, model.config.norm == "pre"
    shape = (config.width, config.heads, config.layers, len(model.decoder), config.feed or 4 * config.width)
    torch_model = nn.Transformer(*shape, 0.0, config.activation, norm_first=pre, batch_first=True).double().eval()
    if not pre:
        torch_model.encoder.norm = torch_model.decoder.norm = None
    else:
        torch_model.encoder.norm, torch_model.decoder.norm = model.norm_encoder, model.norm
    for ours, theirs in zip(model.encoder, torch_model.encoder.layers, strict=True):
        _copy(ours, theirs, [theirs.norm1, theirs.norm2])
    for ours, theirs in zip(model.decoder, torch_model.decoder.layers, strict=True):
        _copy(ours, theirs, [theirs.norm1, theirs.norm3])
        theirs.norm2, cross = ours.norm_cross, theirs.multihead_attn
        with torch.no_grad():
            cross.in_proj_weight.copy_(torch.cat([ours.cross.q.weight, ours.cross.kv.weight]))
            cross.in_proj_bias.copy_(torch.cat([ours.cross.q.bias, ours.cross.kv.bias]))
        cross.out_proj.load_state_dict(ours.cross.out.state_dict())
    return torch_model


def _copy(ours: Any, theirs: Any, norms: list[nn.Module]) -> None:
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(ours.attention.qkv.weight)
        theirs.self_attn.in_proj_bias.copy_(ours.attention.qkv.bias)
    theirs.self_attn.out_proj.load_state_dict(ours.attention.out.state_dict())
    theirs.linear1.load_state_dict(ours.feed.up.state_dict())
    theirs.linear2.load_state_dict(ours.feed.down.state_dict())
    norms[0].load_state_dict(ours.norm_attention.state_dict())
    norms[1].load_state_dict(ours.norm_feed.state_dict())


@pytest.mark.filterwarnings("ignore:.*nested")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_torchs_transformer(norm: str) -> None:
    model, batch = made(norm=norm, activation="relu", decoder_layers=3, feed=24, output_bias=True), batch_of()
    with torch.no_grad():
        source_BSD = 4 * model.source_vectors(batch.source) + model.source_positions.fixed_TD[: batch.source.shape[1]]
        target_BTD = 4 * model.vectors(batch.tokens_BT) + model.positions.fixed_TD[: batch.tokens_BT.shape[1]]
        y_BTD = reference(model)(
            source_BSD,
            target_BTD,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target_BTD.shape[1], dtype=torch.float64),
            src_key_padding_mask=~batch.source_mask,
            memory_key_padding_mask=~batch.source_mask,
            tgt_is_causal=True,
        )
        expected_BTV = y_BTD @ model.vectors.weight.T + model.bias
        found_BTV, _ = model(batch)
    real = batch.mask_BT
    torch.testing.assert_close(found_BTV[real], expected_BTV[real], rtol=0, atol=1e-10)


# Sizes


@pytest.mark.parametrize(("size", "count"), [("base", 63_082_496), ("big", 214_245_376)])
def test_published_sizes(size: Any, count: int) -> None:
    """M17 and M18 at 37,000 tokens; pre-LN has two layer norms more, and an output bias a number a token."""
    post = Transformer.Config(size=size, norm="post")
    assert on_meta(lambda: Transformer(post, Sizes(37_000))).parameters_count == count
    pre = replace(post, norm="pre", output_bias=True)
    assert on_meta(lambda: Transformer(pre, Sizes(37_000))).parameters_count == count + 4 * pre.width + 37_000


def test_vectors_are_shared_as_tied_says() -> None:
    one, two, three = (made(tied=tied) for tied in ("all", "target", "none"))
    assert one.source_vectors is one.vectors and one.head is None
    assert two.source_vectors is not two.vectors and two.head is None
    assert three.source_vectors is not three.vectors and three.head is not None
    apart = Transformer(Transformer.Config(width=16, heads=2), Sizes(V, source_vocab_size=7))
    assert apart.source_vectors.weight.shape == (7, 16) and apart.vectors.weight.shape == (V, 16)


# What is seen


@pytest.mark.parametrize("position", POSITIONS)
def test_the_source_is_seen_from_everywhere(position: str) -> None:
    """Another last word of the source changes every logit; its padding changes none."""
    model, batch = made(position=position), batch_of(sources=(4, 1, 6))
    with torch.no_grad():
        before, _ = model(batch)
        source = batch.source.clone()
        source[0, 3] = 2 + (source[0, 3] - 1) % (V - 2)
        after, _ = model(replace(batch, source=source))
        padding = batch.source.masked_fill(~batch.source_mask, V - 1)
        same, _ = model(replace(batch, source=padding))
    assert ((after[0] - before[0]).abs().amax(-1) > 1e-9).all() and torch.equal(after[1:], before[1:])
    torch.testing.assert_close(same, before, rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", [p for p in POSITIONS if p != "none"])
def test_the_order_of_the_source_matters_with_positions_alone(position: str) -> None:
    batch = batch_of((3,), (5,))
    turned = replace(batch, source=batch.source.flip(1))
    with torch.no_grad():
        model, heap = made(position=position), made(position="none")
        assert not torch.allclose(model(batch)[0], model(turned)[0])
        torch.testing.assert_close(heap(batch)[0], heap(turned)[0], rtol=0, atol=1e-12)


def test_a_target_longer_than_the_window_is_read_through_it() -> None:
    """Step by step too: the newer half is read again, and the source stays in sight. `loss` refuses it."""
    model, batch = made(context=6), batch_of((11, 3, 9), (4, 1, 6))
    logp_BT, _ = model.logprobs(batch)
    state = model.start(3, 4, batch.source, batch.source_mask)
    for t in range(12):
        logits_BV, state = model.step(batch.tokens_BT[:, t : t + 1], batch.mask_BT[:, t : t + 1], state)
        found_B = logits_BV.log_softmax(-1).gather(1, batch.targets[:, t : t + 1].clamp(min=0))[:, 0]
        real = batch.mask_BT[:, t]
        torch.testing.assert_close(found_B[real], logp_BT[real, t], rtol=0, atol=1e-10)
    with pytest.raises(InputError, match=r"model\.context=11"):
        model.loss(batch)


# Beams


def steps_of(model: Transformer, state: Any, tokens_RT: Tensor) -> tuple[list[Tensor], Any]:
    found = []
    for tokens_R in tokens_RT.unbind(1):
        logits_RV, state = model.step(tokens_R[:, None], torch.ones_like(tokens_R[:, None], dtype=torch.bool), state)
        found.append(logits_RV)
    return found, state


@torch.inference_mode()
@pytest.mark.parametrize("position", POSITIONS)
def test_folded_beams_say_what_unfolded_ones_say(position: str) -> None:
    """Three beams of each of two texts: spread, moved within their texts, one text ended, then joined by another."""
    model, batch = made(position=position), batch_of((5, 5), (4, 6))
    begun = model.start(2, 4, batch.source, batch.source_mask).covering()
    folded, plain = begun.spread(3), begun.select(torch.tensor([0, 0, 0, 1, 1, 1]))
    assert isinstance(folded, SourceWindow) and folded.beams == 3 and plain.beams == 1
    assert folded.memories[0].k_BHSK is begun.memories[0].k_BHSK
    tokens_RT = torch.randint(2, V, (6, 3), generator=torch.Generator().manual_seed(1))
    for moved, same in ((torch.tensor([1, 1, 0, 5, 3, 4]), True), (torch.tensor([5, 3, 3]), False)):
        (found, folded), (expected, plain) = (
            steps_of(model, one, tokens_RT[: len(one.rows)]) for one in (folded, plain)
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        folded, plain = folded.select(moved, same_text=same), plain.select(moved)
        assert folded.beams == 3 and plain.beams == 1
        torch.testing.assert_close(folded.attended_BS, plain.attended_BS)
    together = folded.join([begun])
    found, _ = steps_of(model, together, tokens_RT[:5])
    expected, _ = steps_of(model, plain.join([begun]), tokens_RT[:5])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    wider, _ = steps_of(model, together.widened(9), tokens_RT[:5])
    torch.testing.assert_close(wider, found, rtol=0, atol=1e-12)
    alone, _ = steps_of(model, begun, tokens_RT[3:5])
    torch.testing.assert_close([one[3:] for one in found], alone, rtol=0, atol=1e-12)


@torch.inference_mode()
def test_the_step_of_one_token_is_step() -> None:
    model, batch = made(), batch_of((5, 5), (4, 6))
    begun = model.start(2, 4, batch.source, batch.source_mask).spread(2)
    tokens_RT = torch.randint(2, V, (4, 5), generator=torch.Generator().manual_seed(1))
    expected, _ = steps_of(model, begun, tokens_RT)
    for places in (0, 8):
        one_token = model.one_token(begun, places)
        found = [one_token.feed(tokens_R) for tokens_R in tokens_RT.unbind(1)]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


# Attention to the source


@torch.inference_mode()
def test_alignment_is_the_mean_of_the_last_layers_heads() -> None:
    model, batch = made(), batch_of()
    alpha_BTS = model.alignment(batch)
    torch.testing.assert_close(alpha_BTS.sum(-1), torch.ones_like(alpha_BTS[..., 0]))
    assert not alpha_BTS[(~batch.source_mask)[:, None].expand_as(alpha_BTS)].any()
    with record() as probes:
        model(batch)
    torch.testing.assert_close(alpha_BTS, probes["cross_attention"][-1].mean(1))


@torch.inference_mode()
@pytest.mark.parametrize("cuts", [[1] * 6, [6], [2, 3, 1]])
def test_covering_sums_the_alignment(cuts: list[int]) -> None:
    """Of the real tokens alone, in whatever pieces they come, and after that nothing less than before."""
    model, batch = made(), batch_of((5, 2, 4), (4, 1, 6))
    expected_BS = (model.alignment(batch) * batch.mask_BT[..., None]).sum(1)
    state, at = model.start(3, 6, batch.source, batch.source_mask).covering(), 0
    for size in cuts:
        part = np.s_[:, at : at + size]
        _, state = model.step(batch.tokens_BT[part], batch.mask_BT[part], state)
        at += size
    torch.testing.assert_close(state.attended_BS.double(), expected_BS, rtol=0, atol=1e-6)
    assert model.start(3, 6, batch.source, batch.source_mask).attended_BS is None


# Learning


def test_an_unpadded_source_needs_no_mask() -> None:
    model, batch = made(), batch_of((5, 2), (4, 4))
    assert batch.source_unpadded and not batch_of((5, 5), (4, 3)).source_unpadded
    with torch.no_grad():
        torch.testing.assert_close(model(batch)[0], model(replace(batch, source_unpadded=False))[0])
    wider = TASK.collate(columns_of(source=[[2, 3], [4, 5]], text=[[2], [3]]), 9).padded(4, 4).to("cpu")
    assert not wider.source_unpadded and wider.source.shape == (2, 4)


def test_a_step_of_training_asks_nothing_of_the_device() -> None:
    """Or it could not be recorded on a GPU. Here the device is one that has no numbers to give."""
    model = made(dropout=0.1, attention_dropout=0.1, activation_dropout=0.1, label_smoothing=0.1).train().to("meta")
    sum(term.total for term in model.loss(batch_of().to("meta")).terms).backward()


def test_label_smoothing_is_a_term_of_its_own() -> None:
    """The cross-entropy in the log is the plain one, and the sum is torch's smoothed one."""
    plain, batch = made(), batch_of()
    smooth = made(label_smoothing=0.2)
    (nll,), (same, added) = plain.loss(batch).terms, smooth.loss(batch).terms
    torch.testing.assert_close(same.total, nll.total)
    logits_BTV, _ = plain(batch)
    flat = logits_BTV.flatten(0, 1), batch.targets.flatten()
    expected = nn.functional.cross_entropy(*flat, label_smoothing=0.2, reduction="sum")
    torch.testing.assert_close(same.total + added.weight * added.total, expected)
