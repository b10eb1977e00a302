"""T5: its published sizes, its equations against transformers, stepping, and its encoder as a body."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention

from segue.batches.batch import Batch
from segue.batches.codec import Sizes
from segue.batches.store import columns_of
from segue.interop.huggingface.t5 import weight_names
from segue.layers.position import bucket
from segue.models.network import on_meta
from segue.models.t5 import T5, Size
from segue.tasks.seq2seq import TASK

V = 13
SIZES: list[tuple[Size, int]] = [
    ("t5-small", 60_506_624),
    ("t5-base", 222_903_552),
    ("t5-large", 737_668_096),
    ("t5-v1.1-small", 76_961_152),
    ("t5-v1.1-base", 247_577_856),
]


def made(**given: Any) -> T5:
    torch.manual_seed(0)
    values = {
        "width": 16,
        "heads": 3,
        "head_width": 4,
        "layers": 2,
        "decoder_layers": 3,
        "feed": 24,
        "spans": 4,
    } | given
    config = T5.Config(**values)
    model = T5(config, Sizes(V, marks=T5.marks(config), stopped=True)).eval()
    with torch.no_grad():  # ones would hide an error
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.mul_(1 + 0.2 * torch.randn_like(parameter))
    return model


def batch_of(targets: tuple[int, ...] = (5, 2, 7), sources: tuple[int, ...] = (4, 1, 6)) -> Batch:
    draw = np.random.default_rng(3)
    text, source = ([draw.integers(2, V, length) for length in lengths] for lengths in (targets, sources))
    return TASK.collate(columns_of(source=source, text=text), 9999).to("cpu")


def theirs(model: T5) -> T5ForConditionalGeneration:
    """transformers' T5 with the same weights and the same ids; id 0 begins a target and is never read elsewhere."""
    config = model.config
    other = T5ForConditionalGeneration(
        T5Config(
            vocab_size=model.sizes.ids,
            d_model=config.width,
            d_kv=config.head_width,
            d_ff=config.feed,
            num_layers=config.layers,
            num_decoder_layers=config.decoder_layers,
            num_heads=config.heads,
            feed_forward_proj="gated-gelu" if config.gated else "relu",
            tie_word_embeddings=config.tied,
            decoder_start_token_id=model.sizes.start,
            pad_token_id=model.sizes.start,
        )
    ).eval()
    state, ours = other.state_dict(), model.state_dict()
    for name, names in weight_names(config).items():
        for their, part in zip(names, ours[name].chunk(len(names)), strict=True):
            state[their].copy_(part)
    state["shared.weight"].copy_(ours["vectors.weight"])
    if model.head is not None:
        other.lm_head.weight = torch.nn.Parameter(ours["head.weight"].clone())
    return other


def begun(model: T5, batch: Batch) -> Tensor:
    tokens_BT = batch.tokens_BT.clone()
    tokens_BT[:, 0] = model.sizes.start
    return tokens_BT


@pytest.mark.parametrize(("size", "parameters"), SIZES)
def test_the_published_models_have_their_numbers_of_parameters(size: Size, parameters: int) -> None:
    config = T5.Config(size=size)
    sizes = Sizes(32_128 - len(T5.marks(config)), marks=T5.marks(config))
    assert on_meta(lambda: T5(config, sizes)).parameters_count == parameters


def test_a_published_size_and_another_number_are_refused() -> None:
    with pytest.raises(ValueError, match="width = 640 with size = t5-small, whose width is 512: leave one of the two"):
        T5.Config(size="t5-small", width=640)


def test_buckets_are_those_of_transformers() -> None:
    distance = torch.arange(-200, 201)
    for both in (True, False):
        # They count distances ahead, we count them back.
        expected = T5Attention._relative_position_bucket(-distance, both, 32, 128)
        assert torch.equal(bucket(distance, both), expected)


@pytest.mark.parametrize("given", [{}, {"gated": True, "tied": False}, {"gated": True}, {"tied": False}], ids=str)
@torch.no_grad()
def test_logits_states_and_gradients_are_those_of_transformers(given: dict[str, Any]) -> None:
    model, batch = made(**given), batch_of()
    other = theirs(model)
    read = {"input_ids": batch.source, "attention_mask": batch.source_mask.long()}
    found = other(**read, decoder_input_ids=begun(model, batch), output_hidden_states=True)
    logits_BTV, _ = model(batch)
    real = batch.mask_BT
    torch.testing.assert_close(logits_BTV[real], found.logits[real], rtol=1e-4, atol=1e-5)
    encoder = Batch(batch.source, None, batch.source_mask)
    hidden_LBTD = model.encode(encoder)
    assert len(hidden_LBTD) == len(found.encoder_hidden_states) == model.depth
    for ours, expected in zip(hidden_LBTD, found.encoder_hidden_states, strict=True):
        torch.testing.assert_close(ours[batch.source_mask], expected[batch.source_mask], rtol=1e-4, atol=1e-5)
    assert (hidden_LBTD[:, ~batch.source_mask] == 0).all()
    torch.testing.assert_close(model.last_layer(encoder)[batch.source_mask], hidden_LBTD[-1][batch.source_mask])


def test_the_gradient_is_that_of_transformers() -> None:
    model, batch = made(), batch_of()
    other = theirs(model)
    (term,) = model.loss(batch).terms
    (term.total / batch.count).backward()
    labels = batch.targets.masked_fill(~batch.mask_BT, -100)
    read = {"input_ids": batch.source, "attention_mask": batch.source_mask.long()}
    other(**read, decoder_input_ids=begun(model, batch), labels=labels).loss.backward()
    gradients = {name: parameter.grad for name, parameter in other.named_parameters()}
    for name, names in weight_names(model.config).items():
        expected = torch.cat([gradients[one] for one in names])
        torch.testing.assert_close(model.get_parameter(name).grad, expected, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(model.vectors.weight.grad, gradients["shared.weight"], rtol=1e-3, atol=1e-6)


@torch.no_grad()
def test_stepping_gives_the_logits_of_the_whole_and_a_span_may_hold_stop() -> None:
    model = made()
    source, target = torch.tensor([[5, 4, 3, 2]]), torch.tensor([[0, 7, 0, 3, 6]])  # STOP within
    everywhere = torch.ones_like(target, dtype=torch.bool)
    batch = Batch(target, target, everywhere, source=source, source_mask=torch.ones_like(source, dtype=torch.bool))
    whole_BTV, _ = model(batch)
    state = model.start(1, 2, source)
    for place in range(target.shape[1]):
        token = target[:, place : place + 1]
        logits_BV, state = model.step(token, torch.ones_like(token, dtype=torch.bool), state)
        torch.testing.assert_close(logits_BV, whole_BTV[:, place], rtol=1e-5, atol=1e-5)


def test_sentinels_are_predicted_and_never_written_in_a_text() -> None:
    model = made()
    assert model.logits(torch.randn(1, 16)).shape[-1] == V + 5
    assert model.unwritten == [1, *range(V, V + 5)]


def test_the_benchmark_is_of_the_papers_rows() -> None:
    found = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "t5_speed.py"))
    length, target = found["LENGTH"], found["TARGET"]
    assert found["target_length"](568, 0.15) == target and found["TOKENS"] == 128 * (length + target)
