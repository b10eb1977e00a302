"""Beam search by steps of fixed shape, as a GPU records them, and by compiled code: it finds what plain steps find.

There is no graph here: off CUDA, what would be recorded runs as it is written, on the same memory in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from segue.inference import beam_graphs, cuda_graphs, decode
from segue.inference.beam import Generated
from segue.inference.decode_settings import Config
from segue.layers import best_ids, one_token, one_token_cpu
from segue.models.base import LanguageModel, Sizes
from segue.models.gpt import Gpt
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.models.transformer import Transformer

V, ROWS = 13, 6
MODELS: list[Any] = [
    Transformer.Config(layers=1, decoder_layers=2, width=16, heads=2, context=24),
    Transformer.Config(layers=1, width=16, heads=2, norm="post", position="rotary", activation="silu", context=24),
    Transformer.Config(layers=1, width=16, heads=2, feed=24, position="relative", tied="none", output_bias=True),
    RnnSeq2seq.Config(width=8, attention="dot"),
    Gpt.Config(layers=1, width=16, heads=2, context=24),
]
CONFIGS = [
    Config(max_tokens=18, beam=3, length_ratio=0, length_penalty=2.0, n_best=3),
    Config(max_tokens=18, beam=4, length_penalty=0.0, n_best=3),
    Config(max_tokens=18, beam=2, no_repeat=2, length_ratio=1),
]


class Plain:
    """A model of which only `start` and `step` are known."""

    def __init__(self, model: Any) -> None:
        self.start, self.step = model.start, model.step


def make(config: Any) -> Any:
    """With weights large enough that what is wrong shows, and a STOP that is nearly as likely as one of the words that
    the model writes."""
    kind = next(kind for kind in (Transformer, RnnSeq2seq, Gpt) if isinstance(config, kind.Config))
    torch.manual_seed(0)
    model = kind(config, Sizes(V)).eval().requires_grad_(False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    word = found(model, Plain(model), Config(beam=2, max_tokens=4), forbid=[0, 1])[0][0].ids[-1]
    for parameter in model.parameters():
        if len(parameter) == V:
            parameter[0] = 0.9 * parameter[word]
    return model


def sources(model: Any) -> tuple[Tensor | None, Tensor | None]:
    if isinstance(model, Gpt):
        return None, None
    source = torch.randint(2, V, (ROWS, 7), generator=torch.Generator().manual_seed(1))
    return source, torch.arange(7) < torch.tensor([7, 1, 4, 5, 2, 6])[:, None]


def found(model: Any, given: Any, config: Config, forbid: Sequence[int] = (1,)) -> list[list[Generated]]:
    """The n best of every row, some of which end early."""
    prompts: list[list[int]] = [[] for _ in range(ROWS)]
    return decode.best(given, prompts, Sizes(V), config, *sources(model), forbid=forbid)


def same(texts: list[list[Generated]], others: list[list[Generated]]) -> None:
    assert [[one.ids for one in row] for row in texts] == [[one.ids for one in row] for row in others]
    one, other = ([text.score for row in some for text in row] for some in (texts, others))
    assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize("config", CONFIGS, ids=["penalty", "n best", "no repeat"])
@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: type(kind).__qualname__)
def test_recorded_steps_find_what_plain_steps_find(kind: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(kind)
    expected = found(model, Plain(model), config)
    monkeypatch.setattr(decode, "may_record", lambda model, device: isinstance(model, LanguageModel))
    monkeypatch.setattr(beam_graphs, "_LEAST", 4)
    made = [0]
    begin = beam_graphs.RecordedBeams.__init__

    def counted(self: Any, *given: Any) -> None:
        made[0] += 1
        begin(self, *given)

    monkeypatch.setattr(beam_graphs.RecordedBeams, "__init__", counted)
    same(found(model, model, config), expected)
    same(found(model, model, config), expected)
    assert made == [1]  # the second search goes on in the memory of the first


@pytest.mark.parametrize("config", CONFIGS)
def test_rows_end_at_different_times(config: Config) -> None:
    """Or the test above would say little."""
    model = make(MODELS[0])
    assert len({len(text.ids) for row in found(model, Plain(model), config) for text in row}) > 2


@pytest.mark.parametrize("config", [Config(max_tokens=12, beam=1), Config(max_tokens=12, seed=3)])
@pytest.mark.parametrize("kind", MODELS[:2])
def test_greedy_and_drawn_texts_are_recorded_too(kind: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(kind)
    expected = found(model, Plain(model), config)
    monkeypatch.setattr(decode, "may_record", lambda model, device: isinstance(model, LanguageModel))
    monkeypatch.setattr(cuda_graphs, "_LEAST", 4)
    same(found(model, model, config), expected)
    same(found(model, model, config), expected)


def test_texts_longer_than_the_window_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(Transformer.Config(layers=1, width=16, heads=2, context=8))
    expected = found(model, Plain(model), CONFIGS[0])
    monkeypatch.setattr(decode, "may_record", lambda model, device: isinstance(model, LanguageModel))
    same(found(model, model, CONFIGS[0]), expected)


def test_broken_weights_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(MODELS[0])
    model.norm.weight.fill_(float("nan"))
    monkeypatch.setattr(decode, "may_record", lambda model, device: isinstance(model, LanguageModel))
    with pytest.raises(Exception, match="NaN"):
        found(model, model, CONFIGS[0])


# Compiled code for a CPU


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [MODELS[0], MODELS[1], MODELS[2], MODELS[4]])
def test_compiled_code_finds_what_plain_steps_find(
    kind: Any, packed: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that end are dropped on the way, and beams change places; few rows by loops, many by packed matrices."""
    model = make(kind)
    expected = found(model, Plain(model), CONFIGS[0])
    few = 0 if packed else 100
    for module, name, value in (
        (one_token, "_LARGE", 0), (one_token, "FEW", few), (one_token_cpu, "FEW", few), (one_token_cpu, "MANY", 4),
        (best_ids, "_WORTH", 0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        same(found(model, model, CONFIGS[0]), expected)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_packed_weights_follow_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_token_cpu, "FEW", 0)
    model = make(MODELS[0])
    packed = one_token_cpu.Layers(model.stack, 8).packed
    assert one_token_cpu.Layers(model.stack, 8).packed is packed
    model.decoder[0].feed.up.weight.mul_(2)
    assert one_token_cpu.Layers(model.stack, 8).packed is not packed


def test_the_recorder_keeps_the_memory_of_beams() -> None:
    assert beam_graphs.rounded(1) == beam_graphs.rounded(32) == 32 and beam_graphs.rounded(33) == 64
    source, mask = beam_graphs.padded(torch.ones(2, 5, dtype=torch.long), None, 0)
    assert source.shape == mask.shape == (2, 32) and mask.sum() == 10
    assert beam_graphs.padded(source, mask, 40)[0].shape == (2, 32)
    assert cuda_graphs.Recorder(make(MODELS[0])).model is not None
