"""Beam search against plain enumeration of all texts, and against that of `transformers`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from segue.batches.state import State
from segue.errors import InputError
from segue.inference.beam import NONE, coverage, repeats
from segue.inference.decode import Config, best, generate
from segue.models.base import Sizes

STOP, V = 0, 5


@dataclass
class Read(State):
    """The source of each row, and what was read of its target; with `covers` also the attention so far."""

    source_BS: Tensor
    text_BT: Tensor
    covers: bool = False
    attended_BS: Tensor | None = None

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.text_BT))

    def covering(self) -> Read:
        return Read(self.source_BS, self.text_BT, True, torch.zeros(self.source_BS.shape))

    def select(self, rows: Tensor, same_text: bool = False) -> Read:
        if same_text:
            assert (self.source_BS[rows] == self.source_BS).all()
        summed = None if self.attended_BS is None else self.attended_BS[rows]
        return Read(self.source_BS[rows], self.text_BT[rows], self.covers, summed)

    def join(self, others: Sequence[Any]) -> Any:
        raise NotImplementedError


class Table:
    """An encoder-decoder whose logits are a table of the source's first token and the target's last two, and whose
    attention is a table of the target's last token."""

    def __init__(self, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.logits = 1.5 * torch.randn(V, V, V, V, generator=draw)
        self.alpha = torch.randn(V, 4, generator=draw)

    def attention(self, token: Tensor, source_BS: Tensor) -> Tensor:
        return self.alpha[token][:, : source_BS.shape[1]].masked_fill(source_BS == STOP, -math.inf).softmax(-1)

    def start(self, rows: int, capacity: int, source: Tensor, source_mask: Tensor) -> Read:
        return Read(source, torch.zeros(rows, 1, dtype=torch.long))

    def step(self, tokens: Tensor, mask: Tensor, state: Read) -> tuple[Tensor, Read]:
        assert mask.all()  # all prompts are as long as each other here
        text = torch.cat([state.text_BT, tokens], 1)
        summed = state.attended_BS
        if summed is not None:
            summed = summed + sum(self.attention(token, state.source_BS) for token in tokens.T)
        logits = self.logits[state.source_BS[:, 0], text[:, -2], text[:, -1]]
        return logits, Read(state.source_BS, text, state.covers, summed)

    def logprob(self, source: Sequence[int], text: Sequence[int]) -> float:
        """log p of a text and the STOP after it."""
        ids = [STOP, STOP, *text, STOP]
        steps = zip(ids, ids[1:], ids[2:], strict=False)
        return sum(self.logits[source[0], a, b].double().log_softmax(-1)[c].item() for a, b, c in steps)

    def coverage(self, source: Sequence[int], text: Sequence[int]) -> float:
        """The sum over the places of a source of log min(attention, 1), of all steps that write a text and its STOP."""
        (ids,) = (torch.tensor([source]) for _ in range(1))
        total = sum(self.attention(torch.tensor([token]), ids)[0] for token in [STOP, *text])
        return sum(math.log(min(float(one), 1.0)) for one in total)


SOURCES = [[2, 3, 4], [4, 3], [3]]


def given_sources(sources: Sequence[Sequence[int]]) -> dict[str, Any]:
    longest = max(map(len, sources))
    source = np.array([[*row, *[STOP] * (longest - len(row))] for row in sources])
    return {"source": source, "source_mask": source != STOP}


def written(
    model: Any, config: Config, sources: Sequence[Sequence[int]] = SOURCES, prompt: Sequence[int] = (), **rest: Any
) -> Any:
    return best(model, [prompt] * len(sources), Sizes(V), config, **given_sources(sources), **rest)


def repeated(text: Sequence[int], size: int) -> bool:
    ngrams = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


def ranked(model: Table, source: Sequence[int], longest: int, alpha: float = 0.0, beta: float = 0.0) -> Any:
    """All texts that end within `longest` tokens, STOP counted, each with its score, best first."""
    texts = [list(text) for n in range(longest) for text in itertools.product(range(1, V), repeat=n)]
    scores = []
    for text in texts:
        covered = beta * model.coverage(source, text) if beta else 0.0
        scores.append(model.logprob(source, text) / ((5 + len(text) + 1) / 6) ** alpha + covered)
    return sorted(zip(scores, texts, strict=True), key=lambda pair: -pair[0])


@pytest.mark.parametrize(
    "values", [{}, {"length_penalty": 1.0}, {"coverage_penalty": 0.7}, {"length_penalty": 0.6, "coverage_penalty": 0.3}]
)
def test_a_wide_beam_finds_the_n_best_of_all_texts(values: dict[str, float]) -> None:
    config = Config(**{"beam": 200, "n_best": 5, "max_tokens": 4, "length_penalty": 0.0} | values)
    alpha, beta = config.length_penalty, config.coverage_penalty
    for seed in range(2):
        model = Table(seed)
        for source, texts in zip(SOURCES, written(model, config), strict=True):
            expected = ranked(model, source, 4, alpha, beta)[:5]
            assert [text.ids for text in texts] == [ids for _, ids in expected]
            assert [text.score for text in texts] == pytest.approx([score for score, _ in expected], abs=1e-4)
            assert [text.logprob for text in texts] == pytest.approx(
                [model.logprob(source, text.ids) for text in texts], abs=1e-4
            )


def test_the_coverage_penalty_by_hand() -> None:
    """Two places that got 0.5 and 2 of the attention, and one of padding."""
    attended = torch.tensor([[0.5, 2.0, 0.0], [1.0, 0.25, 0.0]])
    found = coverage(attended, torch.tensor([[True, True, False]]), 0.4)
    assert found.tolist() == [pytest.approx([0.4 * math.log(0.5), 0.4 * math.log(0.25)])]


def test_coverage_needs_attention() -> None:
    class Blind(Table):
        def start(self, *given: Any) -> Any:
            state = super().start(*given)
            state.covering = lambda: state  # type: ignore[method-assign]
            return state

    with pytest.raises(InputError, match="needs attention over the source"):
        written(Blind(0), Config(beam=2, coverage_penalty=0.2))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_comes_twice(size: int) -> None:
    """In a wide beam the best of all texts that repeat none; in every other way of writing, none."""
    model = Table(3)
    model.logits[..., STOP] -= 3
    wide = written(model, Config(beam=300, length_penalty=0.0, max_tokens=5, no_repeat=size))
    for source, (text,) in zip(SOURCES, wide, strict=True):
        assert text.ids == next(ids for _, ids in ranked(model, source, 5) if not repeated(ids, size))
    for values in ({"beam": 3}, {"beam": 1}, {"seed": 5}, {"seed": 6, "top_k": 3}):
        for (text,) in written(model, Config(max_tokens=30, no_repeat=size, **values)):  # type: ignore[arg-type]
            assert not repeated(text.ids, size)
    free = written(model, Config(max_tokens=30, beam=3))
    assert any(repeated(text.ids, size) for (text,) in free)


def test_ngrams_of_a_prefix_count() -> None:
    model = Table(3)
    model.logits[..., STOP] -= 3
    prompt = [2, 3, 2]
    for values in ({"beam": 3}, {"beam": 1}, {"seed": 5}):
        for (text,) in written(model, Config(max_tokens=20, no_repeat=2, **values), prompt=prompt):  # type: ignore[arg-type]
            assert not repeated([*prompt, *text.ids], 2)


def test_repeats_by_hand() -> None:
    text = torch.tensor([[NONE, 2, 3, 4, 2, 3], [NONE, NONE, NONE, NONE, NONE, 1]])
    found = repeats(text, text[:, -2:], V, torch.float32)
    assert found[0].tolist() == [0, 0, 0, 0, -math.inf]  # after 2 3 came 4
    assert found[1].tolist() == [0] * 5


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=6), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_rows_together_are_as_each_alone(sources: list[list[int]], seed: int) -> None:
    """Whenever rows end, and however long they may become."""
    model = Table(seed)
    config = Config(beam=3, n_best=2, max_tokens=12, length_ratio=0.5, coverage_penalty=0.1, no_repeat=3)
    alone = [texts for source in sources for texts in written(model, config, [source])]
    together = written(model, config, sources)
    assert [[text.ids for text in texts] for texts in together] == [[text.ids for text in texts] for texts in alone]
    for row, other in zip(together, alone, strict=True):
        assert [text.score for text in row] == pytest.approx([text.score for text in other], abs=1e-5)


def test_a_text_that_must_not_be_empty() -> None:
    """It is the best of all others; a text that is drawn has a token too, and its log p is the model's own."""
    model = Table(6)
    model.logits[..., STOP] += 4
    wide = Config(beam=100, n_best=3, length_penalty=0.0, max_tokens=4, empty=False)
    for source, texts in zip(SOURCES, written(model, wide), strict=True):
        others = [ids for _, ids in ranked(model, source, 4) if ids]
        assert [text.ids for text in texts] == others[:3]
    for values in ({"beam": 3}, {"beam": 1}, {"seed": 1}, {"seed": 2, "no_repeat": 2}):
        free = written(model, Config(max_tokens=9, **values))  # type: ignore[arg-type]
        assert any(not text.ids for (text,) in free)
        for source, (text,) in zip(SOURCES, written(model, Config(max_tokens=9, empty=False, **values)), strict=True):  # type: ignore[arg-type]
            assert text.ids and text.logprob == pytest.approx(model.logprob(source, text.ids), abs=1e-4)


def test_open_texts_stand_behind_those_that_have_ended() -> None:
    model = Table(5)
    model.logits = model.logits / 9
    model.logits[..., STOP] = -20.0
    model.logits[:, :, 2, STOP] = 20.0  # after 2, and nowhere else, a text ends
    for texts in written(model, Config(beam=4, n_best=4, max_tokens=3)):
        stopped = [text.stopped for text in texts]
        assert stopped == sorted(stopped, reverse=True) and len(texts) == 4
        assert all(text.ids[-1] == 2 if text.stopped else len(text.ids) == 3 for text in texts)
        assert 0 < sum(stopped) < 4


def test_the_best_of_n_is_what_generate_writes() -> None:
    model, config = Table(4), Config(beam=4, n_best=2, max_tokens=9)
    first = [texts[0] for texts in written(model, config)]
    assert generate(model, [[]] * 3, Sizes(V), config, **given_sources(SOURCES)) == first


def test_length_limits_follow_the_source() -> None:
    model = Table(5)
    model.logits[..., STOP] = -math.inf
    sources = [[2, 3, 4, 2], [4], [3, 3]]
    for beam in (1, 3):
        texts = written(model, Config(beam=beam, max_tokens=50, length_ratio=5.5), sources)
        assert [len(text.ids) for (text,) in texts] == [42, 26, 31]
        assert not any(text.stopped for (text,) in texts)
    assert [len(text.ids) for (text,) in written(model, Config(beam=3, max_tokens=7), sources)] == [7, 7, 7]


def of_transformers(table: Tensor) -> Any:
    """The same table as a model of `transformers`: logits by the last two ids."""
    import transformers

    class Theirs(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = transformers.PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self) -> None:
            super().__init__(transformers.PretrainedConfig(vocab_size=V))
            self.table = torch.nn.Parameter(table)

        def forward(self, input_ids: Tensor, **_: Any) -> Any:
            before = torch.cat([torch.zeros_like(input_ids[:, :1]), input_ids[:, :-1]], 1)
            return transformers.modeling_outputs.CausalLMOutput(logits=self.table[before, input_ids])

        def prepare_inputs_for_generation(self, input_ids: Tensor, **_: Any) -> dict[str, Tensor]:
            return {"input_ids": input_ids}

    return Theirs()


@pytest.mark.parametrize("size", [0, 2])
def test_without_penalties_it_is_the_search_of_transformers(size: int) -> None:
    """length_penalty=0 there too, and early_stopping=False: the n best are the same, whatever ends when."""
    model = Table(5)
    model.logits = model.logits / 2  # so that every text ends in time
    for source, (beam, count) in itertools.product((2, 3, 4), ((2, 1), (3, 3), (4, 2))):
        found = of_transformers(model.logits[source]).generate(
            torch.tensor([[STOP]]),
            **{"num_beams": beam, "num_return_sequences": count, "length_penalty": 0.0, "max_new_tokens": 60},
            **{"eos_token_id": STOP, "pad_token_id": STOP, "no_repeat_ngram_size": size, "use_cache": False},
        )
        config = Config(beam=beam, n_best=count, length_penalty=0.0, max_tokens=60, length_ratio=0, no_repeat=size)
        (ours,) = written(model, config, [[source]])
        assert all(text.stopped for text in ours)
        assert [text.ids for text in ours] == [[i for i in row[1:] if i != STOP] for row in found.tolist()]
