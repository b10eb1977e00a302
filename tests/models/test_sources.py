"""Encoder-decoders over sound and pictures: padding, stepping, beams, alignment, CTC beside attention, long sources."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.batches.batch import Batch
from segue.batches.codec import Sizes
from segue.batches.store import Column, columns_of
from segue.errors import InputError
from segue.inference import decode as decoding
from segue.inference.decode import best, generate
from segue.inference.decode_settings import Config as Decode
from segue.inference.ensemble import Ensemble
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.models.transformer import Transformer
from segue.recipe import load_recipe
from segue.tasks.seq2seq import TASK

V, MELS, SIDE = 11, 5, 16
SOUND, PICTURE = Sizes(V, source="sound", frame=MELS), Sizes(V, source="picture", frame=SIDE * SIDE * 3)
TRANSFORMER = {"width": 16, "heads": 2, "layers": 1}
CASES: dict[str, tuple[Any, dict[str, Any], Sizes]] = {
    "rnn-sound": (RnnSeq2seq, {"width": 8, "ctc": 0.3}, SOUND),
    "rnn-sound-coverage": (RnnSeq2seq, {"width": 8, "attention": "additive", "coverage": "score"}, SOUND),
    "rnn-sound-bottleneck": (RnnSeq2seq, {"width": 8, "attention": "none"}, SOUND),
    "rnn-picture": (RnnSeq2seq, {"width": 8}, PICTURE),
    "rnn-picture-patches": (RnnSeq2seq, {"width": 8, "patch": 8, "feeds": "attentional"}, PICTURE),
    "transformer-sound": (Transformer, TRANSFORMER | {"ctc": 0.3}, SOUND),
    "transformer-sound-rotary": (Transformer, TRANSFORMER | {"position": "rotary", "tied": "none"}, SOUND),
    "transformer-picture": (Transformer, TRANSFORMER, PICTURE),
    "transformer-picture-convolutions": (Transformer, TRANSFORMER | {"patch": 0}, PICTURE),
}


def made(name: str, **given: Any) -> Any:
    torch.manual_seed(0)
    cls, config, sizes = CASES[name]
    return cls(cls.Config(**config | given), sizes).double().eval()


@pytest.fixture(params=CASES)
def model(request: Any) -> Any:
    return made(request.param)


def batch_of(sizes: Sizes, lengths: tuple[int, ...] = (), targets: tuple[int, ...] = (4, 2, 6)) -> Batch:
    """Rows of these frames; a sound of 1 frame beside one of 13, or a still picture beside moving ones."""
    lengths = lengths or ((9, 1, 13) if sizes.source == "sound" else (1, 3, 2))
    draw, size = np.random.default_rng(1), (sum(lengths), sizes.frame)
    sound = sizes.source == "sound"
    flat = draw.normal(size=size).astype(np.float32) if sound else draw.integers(0, 256, size, np.uint8)
    columns = columns_of(text=[draw.integers(2, V, length) for length in targets])
    columns["source"] = Column(flat.reshape(-1), np.cumsum(lengths), sizes.frame)
    return TASK.collate(columns, 9999)


def alone(batch: Batch, row: int) -> Batch:
    """A row without padding."""
    frames, tokens = int(batch.source_mask[row].sum()), int(batch.mask_BT[row].sum())
    one = batch.rows([row])
    cut = {name: getattr(one, name)[:, :frames] for name in ("source", "source_mask")}
    cut |= {name: getattr(one, name)[:, :tokens] for name in ("tokens_BT", "targets", "mask_BT")}
    return dataclasses.replace(one, **cut, source_unpadded=True)


def close(found: Tensor, expected: Tensor, error: float = 1e-9) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=error)


@torch.inference_mode()
def test_a_row_says_alone_what_it_says_beside_others(model: Any) -> None:
    batch = batch_of(model.sizes)
    together, _ = model(batch.padded(8, 15).to("cpu"))
    for row in range(3):
        one = alone(batch, row)
        close(together[row, : one.tokens_BT.shape[1]], model(one.to("cpu"))[0][0])


@torch.inference_mode()
def test_what_stands_under_the_padding_of_a_source_is_not_read(model: Any) -> None:
    batch = batch_of(model.sizes)
    noise = np.where(batch.source_mask[..., None], batch.source, np.array(77, batch.source.dtype))
    changed = dataclasses.replace(batch, source=noise)
    close(model(changed.to("cpu"))[0], model(batch.to("cpu"))[0])


@torch.inference_mode()
def test_steps_say_what_one_pass_says(model: Any) -> None:
    batch = batch_of(model.sizes, targets=(5, 5, 5)).to("cpu")
    state, expected = model.start(3, 6, batch.source, batch.source_mask), model(batch)[0]
    for t in range(6):
        logits_BV, state = model.step(batch.tokens_BT[:, t : t + 1], batch.mask_BT[:, t : t + 1], state)
        close(logits_BV, expected[:, t])


@torch.inference_mode()
def test_rows_may_be_chosen_spread_and_joined(model: Any) -> None:
    batch = batch_of(model.sizes, targets=(5, 5, 5)).to("cpu")
    tokens, mask = batch.tokens_BT[:, :3], batch.mask_BT[:, :3]
    _, state = model.step(tokens, mask, model.start(3, 6, batch.source, batch.source_mask))
    following = batch.tokens_BT[:, 3:4]
    expected, _ = model.step(following, mask[:, :1], state)
    order = torch.tensor([2, 0, 2])
    close(model.step(following[order], mask[:, :1], state.select(order))[0], expected[order])
    twice = torch.arange(3).repeat_interleave(2)
    close(model.step(following[twice], mask[twice, :1], state.spread(2))[0], expected[twice])
    alones = []
    for row in range(3):
        one = alone(batch, row)
        alones.append(model.step(tokens[row : row + 1], mask[:1], model.start(1, 6, one.source, one.source_mask))[1])
    close(model.step(following, mask[:, :1], alones[0].join(alones[1:]))[0], expected)


@torch.inference_mode()
def test_attention_goes_to_real_places_alone(model: Any) -> None:
    batch = batch_of(model.sizes).to("cpu")
    alpha_BTS = model.alignment(batch)
    if alpha_BTS is None:
        return
    mask_BS = model.source_mask(batch.source_mask)
    assert alpha_BTS.shape[2] == mask_BS.shape[1]
    close(alpha_BTS.sum(-1), torch.ones_like(alpha_BTS[..., 0]))
    assert not alpha_BTS.masked_select(~mask_BS[:, None]).any()
    vectors = model.sentence_vectors(batch.source, batch.source_mask)
    one = alone(batch_of(model.sizes), 1).to("cpu")
    close(vectors[1], model.sentence_vectors(one.source, one.source_mask)[0])


@pytest.mark.parametrize("settings", [{"beam": 3}, {"beam": 3, "coverage_penalty": 0.2}, {"n_best": 2, "seed": 1}])
def test_texts_are_the_same_beside_others_and_alone(model: Any, settings: dict[str, Any]) -> None:
    """By a beam, with the penalty of places that got no attention, and drawn."""
    if "coverage_penalty" in settings and model.alignment(batch_of(model.sizes).to("cpu")) is None:
        return
    decode, batch = Decode(max_tokens=4, **settings), batch_of(model.sizes)
    together = best(model, [[]] * 3, model.sizes, decode, batch.source, batch.source_mask)
    for row in range(3):
        one = alone(batch, row)
        numbers = [row]
        (found,) = best(model, [[]], model.sizes, decode, one.source, one.source_mask, numbers=numbers)
        assert [text.ids for text in found] == [text.ids for text in together[row]]
        assert found[0].score == pytest.approx(together[row][0].score)


@pytest.mark.parametrize("settings", [{"beam": 3}, {"seed": 1}, {"n_best": 2}])
def test_recorded_steps_write_what_plain_steps_write(
    model: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU records them, with the places of a source padded: 4, 1 and 4 of sound become 32."""
    model.requires_grad_(False)
    decode, batch = Decode(max_tokens=4, **settings), batch_of(model.sizes)
    given = [[]] * 3, model.sizes, decode, batch.source, batch.source_mask
    expected = best(model, *given)
    monkeypatch.setattr(decoding, "may_record", lambda model, device: True)
    found = best(model, *given)
    assert [[text.ids for text in row] for row in found] == [[text.ids for text in row] for row in expected]


@torch.inference_mode()
def test_an_ensemble_aligns_those_parts_that_see_the_same_places() -> None:
    fine = made("rnn-picture", patch=4)
    parts = [made("rnn-picture", attention="none", patch=16), fine, made("transformer-picture", patch=4)]
    batch = batch_of(PICTURE)
    ensemble, given = Ensemble([*parts, made("rnn-picture")]), batch.to("cpu")
    close(ensemble.alignment(given), (fine.alignment(given) + parts[2].alignment(given)) / 2)
    close(ensemble.source_mask(given.source_mask), fine.source_mask(given.source_mask))
    decode = Decode(beam=2, max_tokens=3, coverage_penalty=0.2)
    texts = generate(ensemble, [[]] * 3, PICTURE, decode, batch.source, batch.source_mask)
    one = alone(batch, 1)
    assert texts[1].ids == generate(ensemble, [[]], PICTURE, decode, one.source, one.source_mask)[0].ids


# CTC


@pytest.mark.parametrize("name", ["rnn-sound", "transformer-sound"])
def test_ctc_is_the_loss_of_the_encoders_outputs_by_torchs_own(name: str) -> None:
    model, batch = made(name), batch_of(SOUND, (30, 1, 17)).to("cpu")
    terms = {term.name: term for term in model.loss(batch).terms}
    h_BSD = model.encoded(batch.source, batch.source_mask)[0]
    lengths = model.source_mask(batch.source_mask).sum(1)
    assert lengths.tolist() == [8, 1, 5]  # the second has no room for its two letters
    logp_SBV = model.ctc_head(h_BSD).log_softmax(-1).transpose(0, 1)
    targets = torch.where(batch.targets > 0, batch.targets, 1)
    counts = (batch.targets > 0).sum(1)
    expected = F.ctc_loss(logp_SBV, targets, lengths, counts, reduction="none", zero_infinity=True)
    assert expected[1] == 0 and terms["ctc"].weight == 0.3
    close(terms["ctc"].total, expected.sum(), 1e-8)
    assert {name: int(term.count) for name, term in terms.items()} == model.counts(batch)
    plain = made(name, ctc=0.0)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "ctc_head" not in k})
    close(terms["cross_entropy"].total, plain.loss(batch).terms[0].total)


@pytest.mark.parametrize("name", ["rnn-sound", "transformer-sound"])
def test_ctc_alone_teaches_the_encoder(name: str) -> None:
    model, batch = made(name), batch_of(SOUND, (30, 21, 37)).to("cpu")
    next(term for term in model.loss(batch).terms if term.name == "ctc").total.backward()
    taught = {name.split(".")[0] for name, weight in model.named_parameters() if weight.grad is not None}
    assert {"stem", "encoder", "ctc_head"} <= taught and "decoder" not in taught
    assert model.stem.first.weight.grad.abs().sum() > 0


def test_every_parameter_gets_a_gradient(model: Any) -> None:
    sum(term.total for term in model.loss(batch_of(model.sizes, (30, 24, 40)).to("cpu")).terms).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all() and weight.grad.any(), name


# What is refused


def test_a_source_that_is_too_long_is_told_in_frames() -> None:
    model = made("transformer-sound", context=3)
    batch = batch_of(SOUND, (16, 2, 3), (2, 2, 2)).to("cpu")
    with pytest.raises(InputError, match=r"16 frames, which make 4 places.*batches.length=12.*model.context=4"):
        model(batch)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.path=shapes", "model.patch=7"], "patch = 7 does not divide data.pixels = 64"),
        (["data.path=shapes", "model.ctc=0.3"], "ctc = 0.3 is for sound, and a source is a picture"),
        (["data.path=grammar", "model.ctc=0.3"], "ctc = 0.3 is for sound, and a source is text"),
    ],
)
@pytest.mark.parametrize("kind", ["rnn_seq2seq", "transformer"])
def test_a_recipe_that_does_not_fit_its_sources_is_refused(kind: str, settings: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_recipe(kind, settings)
