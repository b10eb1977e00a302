"""Decoding, with small models whose every probability is known."""

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
from torch import Tensor, nn

from segue.batches.state import State
from segue.errors import InputError, SegueError
from segue.inference.decode import Config, Generated, _invert, _likeliest, generate, stream
from segue.models.base import Sizes

STOP, UNK = 0, 1


class Moved(State):
    """A state that a search moves, and nobody joins."""

    def join(self, others: Sequence[Any]) -> Any:
        raise NotImplementedError


@dataclass
class LastTwo(Moved):
    """The state of `Trigram`: the last two ids of each row."""

    ids: Tensor

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.ids))

    def select(self, rows: Tensor, same_text: bool = False) -> LastTwo:
        return LastTwo(self.ids[rows])


class Trigram:
    """A model that is no nn.Module: the logits are a table of the last two ids."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.fed: list[tuple[int, int]] = []
        """(rows, tokens a row) of each step."""

    def start(self, rows: int, capacity: int) -> LastTwo:
        return LastTwo(torch.zeros(rows, 2, dtype=torch.long))

    def step(self, tokens: Tensor, mask: Tensor, state: LastTwo) -> tuple[Tensor, LastTwo]:
        self.fed.append(tuple(tokens.shape))
        ids = state.ids
        for token, real in zip(tokens.T, mask.T, strict=True):
            ids = torch.where(real[:, None], torch.stack([ids[:, 1], token], dim=1), ids)
        return self.table[ids[:, 0], ids[:, 1]], LastTwo(ids)

    def logprob(self, prompt: list[int], ids: list[int], stopped: bool) -> float:
        """log p of a text, token by token, by the definition."""
        text, total = [STOP, STOP, *prompt], 0.0
        for token in [*ids, STOP] if stopped else ids:
            total += self.table[text[-2], text[-1]].double().log_softmax(-1)[token].item()
            text.append(token)
        return total


def random_trigram(vocab_size: int, seed: int, spread: float = 2.0) -> Trigram:
    table = torch.randn(vocab_size, vocab_size, vocab_size, generator=torch.Generator().manual_seed(seed))
    return Trigram(spread * table)


def always(logits: list[float]) -> Trigram:
    """The same distribution whatever was before."""
    return Trigram(torch.tensor(logits).expand(len(logits), len(logits), -1))


class Recurrent(nn.Module):
    """A GRU with dropout, to see that dropout is off and that rows of other lengths change nothing."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, 12)
        self.cell = nn.GRUCell(12, 16)
        self.dropout = nn.Dropout(0.5)
        self.out = nn.Linear(16, vocab_size)

    @dataclass
    class State(Moved):
        h: Tensor

        @property
        def rows(self) -> Tensor:
            return torch.arange(len(self.h))

        def select(self, rows: Tensor, same_text: bool = False) -> Recurrent.State:
            return Recurrent.State(self.h[rows])

    def start(self, rows: int, capacity: int) -> State:
        return self.State(self.out.weight.new_zeros(rows, 16))

    def step(self, tokens: Tensor, mask: Tensor, state: State) -> tuple[Tensor, State]:
        h = state.h
        for token, real in zip(tokens.T, mask.T, strict=True):
            h = torch.where(real[:, None], self.cell(self.embed(token), h), h)
        return 3 * self.out(self.dropout(h)), self.State(h)


class Copier:
    """An encoder-decoder that says its source again, then stops."""

    @dataclass
    class State(Moved):
        source: Tensor
        lengths: Tensor
        place: Tensor

        @property
        def rows(self) -> Tensor:
            return torch.arange(len(self.place))

        def select(self, rows: Tensor, same_text: bool = False) -> Copier.State:
            return Copier.State(self.source[rows], self.lengths[rows], self.place[rows])

    def start(self, rows: int, capacity: int, source: Tensor, source_mask: Tensor) -> State:
        return self.State(source, source_mask.sum(1), torch.full((rows,), -1))

    def step(self, tokens: Tensor, mask: Tensor, state: State) -> tuple[Tensor, State]:
        place = state.place + mask.sum(1)
        said = state.source.gather(1, place.clamp(max=state.source.shape[1] - 1)[:, None])[:, 0]
        said = torch.where(place < state.lengths, said, STOP)
        return 9.0 * nn.functional.one_hot(said, 8).float(), self.State(state.source, state.lengths, place)


GREEDY = Config(max_tokens=12, temperature=0)


def sizes(model: Trigram) -> Sizes:
    return Sizes(vocab_size=len(model.table))


def test_the_start_mark_is_fed_or_left_out() -> None:
    """Without it a row is its prompt alone, beside one whose empty prompt must have it."""
    model, sizes, prompts = random_trigram(9, 3), Sizes(8, marks=("start",)), [[5], [], [6, 7]]
    marked = generate(model, prompts, sizes, Config(max_tokens=1, temperature=0))
    bare = generate(model, prompts, sizes, Config(max_tokens=1, temperature=0, start=False, no_repeat=2))
    contexts = ([8, 5], [0, 8], [6, 7]), ([0, 5], [0, 8], [6, 7])
    for texts, before in zip((marked, bare), contexts, strict=True):
        expected = [model.table[a, b].double().log_softmax(-1).max().item() for a, b in before]
        assert [text.logprob for text in texts] == pytest.approx(expected, abs=1e-5)
    assert model.fed == [(3, 3), (3, 2)]


def test_greedy_takes_the_likeliest_token_each_time() -> None:
    model = random_trigram(6, seed=1)
    for prompt in ([], [2], [5, 3, 4]):
        (text,) = generate(model, [prompt], sizes(model), GREEDY)
        context = [STOP, STOP, *prompt]
        expected: list[int] = []
        while len(expected) < 12:
            best = int(model.table[context[-2], context[-1]].argmax())
            if best == STOP:
                break
            expected.append(best)
            context.append(best)
        assert text.ids == expected
        assert text.stopped == (len(expected) < 12)


def test_greedy_prefers_the_lowest_of_equal_ids() -> None:
    model = always([-1.0, -1.0, 2.0, 2.0, 2.0])
    for config in (GREEDY, Config(max_tokens=12, beam=1), Config(max_tokens=12, top_k=1)):
        assert generate(model, [[]], sizes(model), config)[0].ids == [2] * 12


@given(st.integers(0, 10**6), st.lists(st.lists(st.integers(2, 5), max_size=5), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_a_row_does_not_depend_on_the_rows_beside_it(seed: int, prompts: list[list[int]]) -> None:
    model = random_trigram(6, seed=2)
    config = Config(max_tokens=20, seed=seed, temperature=1.3, top_p=0.95)
    together = generate(model, prompts, sizes(model), config)
    for row in range(len(prompts)):
        alone = generate(model, prompts[: row + 1], sizes(model), config)
        assert alone == together[: row + 1]
    assert list(stream(model, prompts[0], sizes(model), config)) == together[0].ids


@pytest.mark.parametrize("config", [Config(max_tokens=15, seed=4), GREEDY, Config(max_tokens=15, beam=3)])
def test_padded_prompts_and_selected_rows_of_a_network(config: Config) -> None:
    torch.manual_seed(0)
    model = Recurrent(9).double().eval()
    with torch.no_grad():
        model.out.bias[STOP] += 0.25  # so that some rows end and others do not
    prompts = [[2, 3, 4, 5, 6], [], [7], [2, 2], [8, 7, 6]]
    together = generate(model, prompts, Sizes(9), config)
    if config.beam == 0 and config.temperature:  # a row's draws go by its place
        alone = [generate(model, [[]] * row + [prompt], Sizes(9), config)[row] for row, prompt in enumerate(prompts)]
    else:
        alone = [generate(model, [prompt], Sizes(9), config)[0] for prompt in prompts]
    assert [text.ids for text in together] == [text.ids for text in alone]
    assert [text.logprob for text in together] == pytest.approx([text.logprob for text in alone], abs=1e-5)
    assert len({len(text.ids) for text in together}) > 1


@pytest.mark.parametrize("config", [Config(max_tokens=9, seed=3), GREEDY, Config(max_tokens=9, beam=4)])
def test_logprob_is_the_models_own(config: Config) -> None:
    model = random_trigram(7, seed=5)
    prompts = [[2], [3, 4], [], [6, 6, 6]]
    for prompt, text in zip(prompts, generate(model, prompts, sizes(model), config, forbid=[UNK]), strict=True):
        assert text.logprob == pytest.approx(model.logprob(prompt, text.ids, text.stopped), abs=1e-4)
        assert UNK not in text.ids and STOP not in text.ids


def test_finished_rows_cost_nothing() -> None:
    table = torch.full((5, 5, 5), -20.0)
    table[:, 2, STOP] = 20.0  # after 2 a text ends; 3 and 4 take turns for ever
    table[:, 3, 4] = table[:, 4, 3] = 20.0
    model = Trigram(table)
    texts = generate(model, [[2], [3], [2], [4]], sizes(model), Config(max_tokens=5, temperature=0))
    assert [text.ids for text in texts] == [[], [4, 3, 4, 3, 4], [], [3, 4, 3, 4, 3]]
    assert model.fed == [(4, 2), (2, 1), (2, 1), (2, 1), (2, 1)]  # the prompts are one step; nothing is fed at the end


def test_blocks_write_the_same() -> None:
    """Where looking costs, the host looks every few steps: rows that ended are written on, and cut."""
    model = random_trigram(8, seed=3)
    prompts = [[i, 2] for i in range(2, 8)]
    for config in (Config(max_tokens=45, seed=6), Config(max_tokens=45, seed=6, top_k=4, top_p=0.9), GREEDY):
        texts = generate(model, prompts, sizes(model), config, forbid=[UNK])
        assert generate(model, prompts, sizes(model), config, forbid=[UNK], device="cpu:0") == texts
    assert len({len(text.ids) for text in texts}) > 1


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_who_watches_can_end_a_text(device: str) -> None:
    model = always([-9.0, -9.0, 0.0, 0.0, 0.0, 0.0])
    config = Config(max_tokens=60, seed=2)
    seen: list[list[int]] = [[], [], []]

    def third_three(row: int, token: int) -> bool:
        seen[row].append(token)
        return seen[row].count(3) == 3

    free = generate(model, [[]] * 3, sizes(model), config)
    watched = generate(model, [[]] * 3, sizes(model), config, device=device, watch=third_three)
    for text, whole, told in zip(watched, free, seen, strict=True):
        assert text.stopped and text.ids == told == whole.ids[: len(told)]
        assert text.ids[-1] == 3 and text.ids.count(3) == 3


def test_seeds() -> None:
    model = always([-9.0, -9.0, 0.0, 0.0, 0.0, 0.0])
    one, again, other = (generate(model, [[]] * 3, sizes(model), Config(seed=seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert one[0] != one[1]
    longer = generate(model, [[]] * 3, sizes(model), Config(seed=1, max_tokens=300))
    assert all(text.ids[: len(short.ids)] == short.ids for short, text in zip(one, longer, strict=True))


def frequencies(probabilities: list[float], config: Config, forbid: list[int]) -> tuple[np.ndarray, int]:
    """How often each id is the first one of 4,000 texts, and how many texts there are."""
    model = always([math.log(p) if p else -math.inf for p in probabilities])
    texts = generate(model, [[]] * 4000, sizes(model), config, forbid=forbid)
    first = [text.ids[0] if text.ids else STOP for text in texts]
    return np.bincount(first, minlength=len(probabilities)), len(texts)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.1, 0, 0.2, 0.3, 0.4]),
        ({"temperature": 0.5}, [0.01 / 0.3, 0, 0.04 / 0.3, 0.09 / 0.3, 0.16 / 0.3]),
        ({"temperature": 1e-300}, [0, 0, 0, 0, 1]),
        ({"top_k": 2}, [0, 0, 0, 3 / 7, 4 / 7]),
        ({"top_k": 99}, [0.1, 0, 0.2, 0.3, 0.4]),
        ({"top_p": 0.39}, [0, 0, 0, 0, 1]),
        ({"top_p": 0.41}, [0, 0, 0, 3 / 7, 4 / 7]),  # 0.3 crosses 0.41, and is kept
        ({"top_p": 0.71}, [0, 0, 2 / 9, 3 / 9, 4 / 9]),
        ({"top_k": 3, "top_p": 0.75}, [0, 0, 0, 3 / 7, 4 / 7]),  # 0.7 of the 0.9 that are left is above 0.75
    ],
)
def test_drawn_shares(options: dict[str, float], expected: list[float]) -> None:
    counts, total = frequencies([0.1, 0.0, 0.2, 0.3, 0.4], Config(max_tokens=1, seed=11, **options), [])
    p = np.array(expected)
    assert (counts[p == 0] == 0).all()
    deviation = np.sqrt(total * p * (1 - p))
    assert (np.abs(counts - total * p) <= 4 * deviation + 1e-9).all()


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
    st.integers(0, 9),
    st.sampled_from([0.3137, 0.5171, 0.9013, 1.0]),
)
@settings(deadline=None)
def test_what_top_k_and_top_p_leave(weights: list[int], top_k: int, top_p: float) -> None:
    """By the definition, one id after another, the lowest of equal ones first."""
    total = sum(weights) or 1
    p = [weight / total for weight in weights]
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))[: top_k or len(p)]
    left, reached, limit = [], 0.0, top_p * sum(p[i] for i in order)
    for i in order:
        if reached < limit or top_p == 1:
            left.append(i)
        reached += p[i]
    kept_BV = _likeliest(torch.tensor([p], dtype=torch.float64), Config(top_k=top_k, top_p=top_p))
    kept = [i for i, keep in enumerate(kept_BV[0].tolist()) if keep]
    if sum(weights):  # an id of probability 0 is never drawn, whether it is left or not
        assert [i for i in kept if p[i]] == sorted(i for i in left if p[i])


@pytest.mark.parametrize("vocab_size", [1, 255, 256, 257, 1000])
def test_a_number_finds_its_place_in_the_cumulative_sum(vocab_size: int) -> None:
    """With whole weights, so that all sums are exact: by the definition, and never a place of weight 0."""
    random = np.random.default_rng(vocab_size)
    weights = random.integers(0, 3, vocab_size) * (random.random(vocab_size) < 0.1)
    weights[random.integers(vocab_size)] += 1
    ends = weights.cumsum()
    first, last = np.flatnonzero(weights)[[0, -1]]
    for _ in range(50):
        target = random.integers(ends[-1])
        p_BV, uniform_B = torch.tensor(weights[None], dtype=torch.float64), torch.tensor([(target + 0.5) / ends[-1]])
        assert _invert(p_BV, uniform_B.double()).item() == int((ends > target).argmax())
    for uniform, place in ((0.0, first), (1 - 2.0**-53, last)):
        assert _invert(p_BV, torch.tensor([uniform], dtype=torch.float64)).item() == place


def test_forbidden_ids_share_what_is_theirs() -> None:
    counts, total = frequencies([0.1, 0.5, 0.1, 0.3], Config(max_tokens=1, seed=3), [UNK])
    assert counts[UNK] == 0
    assert counts / total == pytest.approx([0.2, 0, 0.2, 0.6], abs=0.04)


def exhaustive(
    model: Trigram, prompt: list[int], longest: int, alpha: float, forbid: set[int]
) -> tuple[list[int], float]:
    """The best text of all that end within `longest` tokens, STOP counted, and its log p."""
    letters = [i for i in range(1, len(model.table)) if i not in forbid]
    texts = [list(ids) for n in range(longest) for ids in itertools.product(letters, repeat=n)]
    scores = [model.logprob(prompt, ids, True) for ids in texts]
    best = max(range(len(texts)), key=lambda i: scores[i] / ((5 + len(texts[i]) + 1) / 6) ** alpha)
    return texts[best], scores[best]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_is_an_exhaustive_search(alpha: float) -> None:
    lengths = set()
    for seed in range(12):
        model = random_trigram(4, seed=seed, spread=1.5)
        model.table[:, :, STOP] -= 1.5  # so that the best text is not always the empty one
        prompts = [[], [2], [3, 3, 2]]
        config = Config(max_tokens=4, beam=300, length_penalty=alpha)
        for prompt, text in zip(prompts, generate(model, prompts, sizes(model), config), strict=True):
            ids, logprob = exhaustive(model, prompt, 4, alpha, set())
            assert text[:3] == (ids, pytest.approx(logprob, abs=1e-4), True)
            lengths.add(len(ids))
    assert len(lengths) > 1


def test_a_wide_beam_with_a_forbidden_id() -> None:
    model = random_trigram(5, seed=8)
    model.table[:, :, STOP] -= 2
    (text,) = generate(model, [[]], sizes(model), Config(max_tokens=4, beam=400), forbid=[UNK])
    assert text.ids == exhaustive(model, [], 4, 0.6, {UNK})[0]


def test_a_beam_of_one_is_greedy_and_wider_ones_find_no_worse_on_the_whole() -> None:
    model = random_trigram(8, seed=9)
    prompts = [[i, j] for i in range(2, 8) for j in range(2, 8)]
    totals = []
    greedy = generate(model, prompts, sizes(model), GREEDY)
    assert generate(model, prompts, sizes(model), Config(max_tokens=12, beam=1)) == greedy
    for width in (1, 2, 4, 16):
        texts = generate(model, prompts, sizes(model), Config(max_tokens=12, beam=width, length_penalty=0))
        totals.append(sum(text.logprob for text in texts))
    assert totals == sorted(totals)
    assert totals[-1] > totals[0]


def test_beam_rows_do_not_depend_on_each_other() -> None:
    model = random_trigram(7, seed=10)
    prompts = [[2], [3, 4, 5], [], [6], [5, 5]]
    config = Config(max_tokens=8, beam=3)
    assert generate(model, prompts, sizes(model), config) == [
        generate(model, [prompt], sizes(model), config)[0] for prompt in prompts
    ]
    assert list(stream(model, [2], sizes(model), config)) == generate(model, [[2]], sizes(model), config)[0].ids


def test_a_beam_that_never_ends_gives_the_best_open_text() -> None:
    model = always([-math.inf, 0.0, 1.0, 3.0])
    (text,) = generate(model, [[2]], sizes(model), Config(max_tokens=6, beam=3))
    assert text.ids == [3] * 6
    assert not text.stopped


def test_a_dead_beam_does_not_harm_the_living() -> None:
    table = torch.full((5, 5, 5), -math.inf)
    table[:, STOP, 2], table[:, STOP, 3] = 1.0, 0.0  # 2 is likelier, but nothing follows it
    table[:, 3, 4] = table[:, 4, STOP] = 0.0
    model = Trigram(table)
    (text,) = generate(model, [[]], sizes(model), Config(max_tokens=6, beam=2))
    assert text.ids == [3, 4] and text.stopped
    assert text.logprob == pytest.approx(-math.log(1 + math.e), abs=1e-6)


@pytest.mark.parametrize("config", [Config(top_k=1), GREEDY, Config(max_tokens=8, beam=4)])
def test_encoder_decoder(config: Config) -> None:
    sources = np.array([[3, 4, 5, 0], [2, 0, 0, 0], [7, 6, 5, 4]])
    texts = generate(
        Copier(),
        [[], [], []],
        Sizes(8),
        config,
        source=sources,
        source_mask=sources != 0,
    )
    assert [text.ids for text in texts] == [[3, 4, 5], [2], [7, 6, 5, 4]]
    assert all(text.stopped for text in texts)


@pytest.mark.parametrize("config", [Config(), GREEDY, Config(beam=3)])
def test_a_text_ends_where_nothing_can_follow(config: Config) -> None:
    """Counting without smoothing gives every token probability 0 after what it has not seen."""
    nothing = always([-math.inf] * 4)
    dead = Generated([], 0.0, False, dead_end=True)
    assert generate(nothing, [[2], [3]], sizes(nothing), config) == [dead, dead]
    only_unknown = always([-math.inf, 0.0, -math.inf, -math.inf])
    assert generate(only_unknown, [[]], sizes(only_unknown), config, forbid=[UNK]) == [dead]
    table = torch.full((4, 4, 4), -math.inf)
    table[:, STOP, 2] = table[:, 2, 3] = table[:, 3, 3] = 0.0
    table[3, 3] = -math.inf  # 2 3 3, and then nothing
    texts = generate(Trigram(table), [[], [3, 3], [2]], Sizes(4), config)
    assert [(text.ids, text.stopped, text.dead_end) for text in texts] == [
        ([2, 3, 3], False, True),
        ([], False, True),
        ([3, 3], False, True),
    ]
    met: list[int] = []
    assert list(stream(Trigram(table), [], Sizes(4), config, at_dead_end=lambda: met.append(1))) == [2, 3, 3]
    assert met == [1]


def test_a_row_in_a_dead_end_does_not_stop_the_others() -> None:
    table = torch.full((5, 5, 5), -math.inf)
    table[:, 2, 3] = table[:, 3, 4] = table[:, 4, STOP] = 0.0
    texts = generate(Trigram(table), [[1], [2]], Sizes(5), GREEDY)
    assert texts[0].dead_end and texts[1] == Generated([3, 4], 0.0, True)


@pytest.mark.parametrize("config", [Config(), GREEDY, Config(beam=3)])
def test_broken_weights_are_named(config: Config) -> None:
    for bad in (math.nan, math.inf):
        broken = always([0.0, 0.0, bad, 0.0])
        with pytest.raises(SegueError, match="NaN"):
            generate(broken, [[]], sizes(broken), config)


def test_dropout_and_gradients_are_off_and_come_back() -> None:
    torch.manual_seed(0)
    model = Recurrent(9).train()
    model.cell.eval()  # a frozen part stays as it is
    texts = {tuple(generate(model, [[2]], Sizes(9), GREEDY)[0].ids) for _ in range(5)}
    assert len(texts) == 1
    assert model.training and model.dropout.training and not model.cell.training
    for _ in itertools.islice(stream(model, [2], Sizes(9), Config()), 3):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert model.training and model.dropout.training


def test_nothing_to_do() -> None:
    model = random_trigram(4, seed=0)
    assert generate(model, [], sizes(model), Config()) == []
    stops = always([5.0, -math.inf, -math.inf])
    assert generate(stops, [[]], sizes(stops), Config()) == [Generated([], 0.0, True)]
    assert list(stream(stops, [], sizes(stops), Config())) == []


def test_a_prompt_of_another_tokenizer_is_refused() -> None:
    model = random_trigram(4, seed=0)
    with pytest.raises(InputError, match="Prompt 2 holds the id 4; this model's ids are 0 to 3"):
        generate(model, [[2], [3, 4]], sizes(model), Config())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0; it must be 1 or more"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"beam": -1}, "beam is -1"),
        ({"length_penalty": -0.1}, "length_penalty is -0.1"),
        ({"seed": -1}, "seed is -1"),
        ({"beam": 2, "top_k": 5}, "a beam draws nothing"),
    ],
)
def test_impossible_settings(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**options)
