"""Steps of fixed shape, in the model's own memory and as they are recorded: they write what plain steps write.

There is no graph here: off CUDA, what would be recorded runs as it is written, on the same memory in the same order.
"""

from __future__ import annotations

import gc
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import segue.layers
from segue.errors import SegueError
from segue.inference import cuda_graphs, decode
from segue.inference.decode import generate, stream
from segue.inference.decode_settings import Config
from segue.layers import one_token, one_token_cpu
from segue.layers.kv_cache import TransformerStep
from segue.layers.one_token import Stack, loops_for
from segue.models.base import LanguageModel, Sizes
from segue.models.gpt import Gpt
from segue.models.rnn_lm import Drop, RnnLm
from segue.models.rnn_seq2seq import RnnSeq2seq

V, CONTEXT, STOP = 13, 16, 0
VARIANTS = [
    {},
    {"norm": "post"},
    {"residual": False},
    {"position": "none"},
    {"position": "onehot"},
    {"position": "sinusoidal"},
    {"position": "relative"},
    {"position": "rotary"},
    {"activation": "relu", "tied": False, "dropout": 0.5},
    {"layers": 1, "heads": 1, "context": 1},
    {"layers": 1, "context": 5},
]
PROMPTS = [[], [3, 4, 5, 6, 7], [2], [9] * 15, list(range(2, 12)) * 4]
CONFIGS = [
    Config(max_tokens=24, seed=3),
    Config(max_tokens=24, temperature=0),
    Config(max_tokens=24, seed=5, temperature=1.4, top_k=6, top_p=0.9),
]


class Plain:
    """A model of which only `start` and `step` are known."""

    def __init__(self, model: Any) -> None:
        self.start, self.step = model.start, model.step


def make(**values: Any) -> Gpt:
    """In float64 with weights large enough that what is wrong shows."""
    torch.manual_seed(0)
    config = Gpt.Config(**{"layers": 2, "width": 16, "heads": 2, "context": CONTEXT, **values})
    model = Gpt(config, Sizes(V)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


@cache
def plain(model: Gpt.Config, config: Config, *forbid: int) -> list[decode.Generated]:
    """What plain steps write for all prompts; both ways are held to it."""
    return generate(Plain(make(**vars(model))), PROMPTS, Sizes(V), config, forbid=forbid)


@pytest.fixture(params=VARIANTS, ids=lambda values: "-".join(f"{k}={v}" for k, v in values.items()) or "plain")
def model(request: pytest.FixtureRequest) -> Gpt:
    return make(**request.param)


@pytest.fixture(params=["one_token", "recorded"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way that a CPU takes; and that of a GPU, less the graph, with several sizes of memory."""
    if request.param == "recorded":
        record(monkeypatch)
    return str(request.param)


def record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "may_record", lambda model, device: isinstance(model, LanguageModel))
    monkeypatch.setattr(cuda_graphs, "_LEAST", 4)


def same(texts: list[decode.Generated], others: list[decode.Generated]) -> None:
    assert [(text.ids, text.stopped) for text in texts] == [(text.ids, text.stopped) for text in others]
    assert [text.logprob for text in texts] == pytest.approx([text.logprob for text in others], abs=1e-4)


@pytest.mark.parametrize("config", CONFIGS, ids=["drawn", "greedy", "cut"])
def test_writes_what_plain_steps_write(model: Gpt, way: str, config: Config) -> None:
    """Prompts shorter, as long as and longer than the context; windows that slide each in its time; as on a CPU token
    by token, as on a GPU in blocks."""
    device = "cpu" if way == "one_token" else "cpu:0"
    for forbid in ([1, 4], [STOP]):
        expected = plain(model.config, config, *forbid)
        same(generate(model, PROMPTS, Sizes(V), config, forbid=forbid, device=device), expected)
        same(generate(model, PROMPTS[:1], Sizes(V), config, forbid=forbid, device=device), expected[:1])
        assert not set(forbid) & {token for text in expected for token in text.ids}
        assert all(len(text.ids) == config.max_tokens for text in expected) or STOP not in forbid


def test_texts_that_may_end_do_so_at_different_lengths() -> None:
    """Or the test above would say little of those."""
    for config in CONFIGS:
        texts = generate(make(), PROMPTS, Sizes(V), config, forbid=[1, 4])
        assert len({len(text.ids) for text in texts}) > 2


def test_streams_and_who_watches(way: str) -> None:
    model, config = make(position="rotary"), CONFIGS[0]
    whole = generate(Plain(model), [[5]] * 3, Sizes(V), config, forbid=[STOP])
    assert list(stream(model, [5], Sizes(V), config, forbid=[STOP])) == whole[0].ids
    seen: list[list[int]] = [[], [], []]

    def watch(row: int, token: int) -> bool:
        seen[row].append(token)
        return len(seen[row]) == 3 + 8 * row

    watched = generate(model, [[5]] * 3, Sizes(V), config, forbid=[STOP], watch=watch, device="cpu:0")
    assert [text.ids for text in watched] == [text.ids[: 3 + 8 * row] for row, text in enumerate(whole)] == seen


def test_texts_written_in_turns_do_not_meet(way: str) -> None:
    model, config = make(), Config(max_tokens=40, seed=1)
    alone = [list(stream(Plain(model), prompt, Sizes(V), config, forbid=[STOP])) for prompt in PROMPTS[:3]]
    streams = [stream(model, prompt, Sizes(V), config, forbid=[STOP]) for prompt in PROMPTS[:3]]
    together: list[list[int]] = [[], [], []]
    for place, text in itertools.islice(turns(streams), 120):
        together[place].append(text)
    assert together == alone


def turns(streams: list[Iterator[int]]) -> Iterator[tuple[int, int]]:
    while True:
        for place, text in enumerate(streams):
            yield place, next(text)


def test_beams_write_what_they_did(way: str) -> None:
    model, config = make(position="relative"), Config(max_tokens=20, beam=3)
    expected = generate(Plain(model), PROMPTS, Sizes(V), config)
    same(generate(model, PROMPTS, Sizes(V), config), expected)


def test_a_model_in_training_writes_without_dropout_and_trains_on(way: str) -> None:
    model = make(dropout=0.5)
    expected = generate(Plain(model), PROMPTS, Sizes(V), CONFIGS[0])
    model.train()
    same(generate(model, PROMPTS, Sizes(V), CONFIGS[0]), expected)
    assert all(part.training for part in model.modules())


def test_weights_that_were_trained_meanwhile_are_seen(way: str) -> None:
    model, config = make(), CONFIGS[0]
    before = generate(model, PROMPTS, Sizes(V), config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    after = generate(model, PROMPTS, Sizes(V), config)
    same(after, generate(Plain(model), PROMPTS, Sizes(V), config))
    assert after != before


def test_broken_weights_are_named(way: str) -> None:
    model = make()
    with torch.no_grad():
        model.positions.table.weight[7] = float("nan")  # the tokens before are written
    with pytest.raises(SegueError, match="NaN"):
        generate(model, [[]], Sizes(V), Config(max_tokens=40), forbid=[STOP], device="cpu:0")


# What a graph needs of a step


class Watched(TorchDispatchMode):
    """What a step reads that it has not made itself, and where it makes the host wait for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Tensor] = []
        self.read: set[int] = set()
        self.asked: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = {where(tensor) for tensor in self.made}
        self.read |= {where(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)} - made
        if func.overloadpacket in WAITS:
            self.asked.append(str(func))
        out = func(*args, **(kwargs or {}))
        leaves = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        self.made += [leaf for leaf in leaves if where(leaf) not in self.read]
        return out


WAITS = {torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.equal}


def where(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("config", CONFIGS, ids=["drawn", "greedy", "cut"])
def test_a_step_asks_nothing_and_reads_only_what_is_owned(
    model: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it could not be recorded, or would read memory that is no longer its own."""
    record(monkeypatch)
    steps: list[Watched] = []
    step = cuda_graphs.Recorded._step

    def watched(self: cuda_graphs.Recorded) -> None:
        with Watched() as seen:
            step(self)
        steps.append(seen)
        owned = [*self.model.parameters(), *self.model.buffers(), *vars(self).values()]
        owned += [*vars(self.one_token).values(), *memory(self.one_token), self.pick.keywords["forbid"]]
        assert seen.read <= {where(tensor) for tensor in owned if isinstance(tensor, Tensor)}
        assert not seen.asked

    monkeypatch.setattr(cuda_graphs.Recorded, "_step", watched)
    generate(model, PROMPTS[:3], Sizes(V), config, *source_of(model, 3), forbid=[STOP])
    assert steps or model.window == 1  # a window of one is always full


def memory(one_token: Any) -> list[Any]:
    """The tensors that a step of one token goes on in."""
    if isinstance(one_token, TransformerStep):
        return list(vars(one_token.cache).values())
    return [*one_token.memory.parts(), *one_token.memory.kept()]


# Recurrent networks


RECURRENT = [
    RnnLm.Config(width=8, embedding=6),
    RnnLm.Config(cell="gru", width=8, embedding=6, layers=2, dropout=0.3),
    RnnLm.Config(cell="elman", activation="logistic", width=8, embedding=6),
    RnnLm.Config(width=8, embedding=6, layers=2, tied=True, drop=Drop(weights=0.4)),
    RnnSeq2seq.Config(width=8),
    RnnSeq2seq.Config(cell="gru", width=8, layers=2, attention="none", feeds="every"),
    RnnSeq2seq.Config(width=8, attention="additive", coverage="score", feeds="attentional"),
    RnnSeq2seq.Config(cell="gru", width=8, attention="fixed", feeds="every"),
]


@pytest.fixture(params=RECURRENT, ids=range(len(RECURRENT)))
def recurrent(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    kind: Any = RnnLm if isinstance(request.param, RnnLm.Config) else RnnSeq2seq
    model = kind(request.param, Sizes(V)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    return model


def source_of(model: Any, rows: int) -> list[Tensor]:
    """Source and mask, where the model has a source."""
    if model.task == "lm":
        return []
    ids = torch.randint(2, V, (rows, 5), generator=torch.Generator().manual_seed(3))
    return [ids, torch.arange(5) < torch.arange(1, rows + 1)[:, None]]


def test_one_token_of_a_recurrent_network_is_a_step(recurrent: Any) -> None:
    ids = torch.randint(V, (3, 12), generator=torch.Generator().manual_seed(1))
    real = torch.ones(3, 1, dtype=torch.bool)
    state = recurrent.start(3, 4, *source_of(recurrent, 3))
    one_token = recurrent.one_token(state)
    for token_B in ids.T[:6]:
        said, state = recurrent.step(token_B[:, None], real, state)
        torch.testing.assert_close(one_token.feed(token_B), said, atol=1e-12, rtol=0)
    before = one_token.state()
    one_token.feed(ids[:, 6])
    said, _ = recurrent.step(ids[:, 6:7], real, before)  # a state is not changed by what is fed later
    one_token.take(before)
    torch.testing.assert_close(one_token.feed(ids[:, 6]), said, atol=1e-12, rtol=0)


@pytest.mark.parametrize("config", [*CONFIGS, Config(max_tokens=9, beam=3)], ids=["drawn", "greedy", "cut", "beam"])
def test_recurrent_networks_write_what_plain_steps_write(recurrent: Any, way: str, config: Config) -> None:
    device, source = "cpu" if way == "one_token" else "cpu:0", source_of(recurrent, len(PROMPTS))
    for forbid in ([1, 4], [STOP]):
        expected = generate(Plain(recurrent), PROMPTS, Sizes(V), config, *source, forbid=forbid)
        found = generate(recurrent, PROMPTS, Sizes(V), config, *source, forbid=forbid, device=device)
        same(found, expected)


def test_a_recurrent_step_asks_nothing_and_reads_only_what_is_owned(
    recurrent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_a_step_asks_nothing_and_reads_only_what_is_owned(recurrent, CONFIGS[0], monkeypatch)


# Graphs are lent


def test_what_was_recorded_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch)
    made = counted(monkeypatch)
    model = make()
    for seed in range(4):
        generate(model, [[], [2]], Sizes(V), Config(max_tokens=20, seed=seed), forbid=[1])
    assert made == [4, 8, 16]
    generate(model, [[]], Sizes(V), Config(max_tokens=2), forbid=[1])
    generate(model, [[], [2]], Sizes(V), Config(max_tokens=2, top_k=2), forbid=[1])
    generate(model, [[], [2]], Sizes(V), Config(max_tokens=2), forbid=[2])
    assert made == [4, 8, 16, 4, 4, 4]


def test_few_graphs_wait_and_none_outlives_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch)
    model, before = make(), len(cuda_graphs._recorders)
    for top_k in range(1, 9):
        generate(model, [[]], Sizes(V), Config(max_tokens=20, top_k=top_k), forbid=[STOP])
    found = cuda_graphs.recorder(model)
    assert sum(map(len, found._idle.values())) == cuda_graphs._KEPT
    writing = stream(model, [], Sizes(V), Config(max_tokens=9, top_k=8), forbid=[STOP])
    next(writing), next(writing)
    assert sum(map(len, found._idle.values())) == cuda_graphs._KEPT - 1
    writing.close()
    assert sum(map(len, found._idle.values())) == cuda_graphs._KEPT
    del model, found, writing
    gc.collect()
    assert len(cuda_graphs._recorders) <= before


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In the place of a GPU's kernels, which cannot run here: the loops of a CPU, and a plain draw. What was asked."""
    asked: list[str] = []

    class Layers(one_token_cpu.Layers):
        @staticmethod
        def fit(stack: Stack, rows: int) -> bool:
            return True

        def __call__(self, *given: Tensor) -> tuple[Tensor, Tensor]:
            asked.append("layers")
            return super().__call__(*given)

    def draw(logits_BV: Tensor, uniform_BN: Tensor, column_B: Tensor, *rest: Any) -> None:
        ids_BN, logp_BN, next_B, forbid, temperature, *_ = rest
        asked.append("draw")
        column = int(column_B[0])
        drawn = decode._pick(logits_BV, uniform_BN[:, column], forbid, Config(temperature=temperature))
        ids_BN[:, column], logp_BN[:, column] = drawn
        next_B.copy_(drawn[0])
        column_B.add_(1)

    stood = SimpleNamespace(Layers=Layers, draw=draw)
    monkeypatch.setitem(sys.modules, "segue.layers.one_token_gpu", stood)
    monkeypatch.setattr(segue.layers, "kernels", stood, raising=False)
    monkeypatch.setattr(cuda_graphs, "find_spec", lambda name: object())
    return asked


def test_after_long_use_steps_are_recorded_anew(kernels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch)
    monkeypatch.setattr(cuda_graphs, "_LONG", 20)
    made = counted(monkeypatch)
    model = make().float()
    for _ in range(5):  # 9 steps each: the first token is drawn after the prompt
        generate(model, [[]], Sizes(V), Config(max_tokens=10), forbid=[STOP])
    assert made == [4, 8, 16] * 2
    assert kernels == ["layers", "draw"] * 18


def test_without_a_compiler_nothing_is_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch)
    monkeypatch.setattr(cuda_graphs, "_LONG", 0)
    monkeypatch.setattr(cuda_graphs, "find_spec", lambda name: None)
    made = counted(monkeypatch)
    for _ in range(3):
        generate(make().float(), [[]], Sizes(V), Config(max_tokens=10), forbid=[STOP])
    assert made == [4, 8, 16] * 3


def test_a_kernel_that_does_not_compile_is_left_alone_and_said_once(
    kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make().float()
    plain = generate(Plain(model), PROMPTS, Sizes(V), CONFIGS[0], forbid=[STOP])
    record(monkeypatch)
    monkeypatch.setattr(cuda_graphs, "_LONG", 0)

    def fails(*given: Any) -> None:
        raise ValueError("no compiler")

    monkeypatch.setattr(sys.modules["segue.layers.one_token_gpu"].Layers, "__init__", fails)
    with pytest.warns(UserWarning, match="no compiler"):
        said = generate(model, PROMPTS, Sizes(V), CONFIGS[0], forbid=[STOP])
    assert [text.ids for text in said] == [text.ids for text in plain]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(model, PROMPTS, Sizes(V), CONFIGS[0], forbid=[STOP])


@pytest.mark.parametrize("config", CONFIGS)
def test_kernels_write_what_plain_steps_write(
    config: Config, kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make().float()
    plain = generate(Plain(model), PROMPTS, Sizes(V), config, forbid=[STOP])
    record(monkeypatch)
    monkeypatch.setattr(cuda_graphs, "_LONG", 0)
    fast = generate(model, PROMPTS, Sizes(V), config, forbid=[STOP])
    assert [text.ids for text in fast] == [text.ids for text in plain]
    whole = config.temperature and not config.top_k
    assert "layers" in kernels and ("draw" in kernels) == bool(whole)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places of each step that is recorded from now on."""
    made: list[int] = []
    begin: Callable[..., None] = cuda_graphs.Recorded.__init__

    def told(self: cuda_graphs.Recorded, model: Any, state: Any, rows: int, places: int, *rest: Any) -> None:
        made.append(places)
        begin(self, model, state, rows, places, *rest)

    monkeypatch.setattr(cuda_graphs.Recorded, "__init__", told)
    return made


# Loops for a CPU


@pytest.fixture
def looped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every model is worth the loops."""
    monkeypatch.setattr(one_token, "_LARGE", 0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_loops_say_what_the_layers_say(model: Gpt, looped: None, rows: int) -> None:
    """Rows of different lengths."""
    torch.set_num_threads(1)
    compare_loops(model.float(), rows)


def test_threads_share_the_rows(looped: None) -> None:
    torch.set_num_threads(2)
    compare_loops(make().float(), 11)


def compare_loops(model: Gpt, rows: int) -> None:
    ids = torch.randint(V, (rows, model.config.context), generator=torch.Generator().manual_seed(1))
    begin = min(3, model.config.context)
    mask = (torch.arange(3) < torch.arange(rows)[:, None] % 3 + 1)[:, :begin]
    _, state = model.step(ids[:, :begin], mask, model.start(rows, 4))
    one_token = model.one_token(state)
    assert one_token.loops is not None
    for token_B in ids.T[begin:]:
        said, state = model.step(token_B[:, None], torch.ones(rows, 1, dtype=torch.bool), state)
        close(one_token.feed(token_B), said)
    assert torch.equal(one_token.state().length_B, state.length_B)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=2e-5 * float(b.abs().max()), rtol=0)


def test_loops_write_through_windows_that_slide(looped: None) -> None:
    for position in ("learned", "rotary", "relative"):
        model = make(position=position).float()
        expected = generate(Plain(model), PROMPTS[:3], Sizes(V), CONFIGS[1], forbid=[STOP])
        texts = generate(model, PROMPTS[:3], Sizes(V), CONFIGS[1], forbid=[STOP])
        assert [text.ids for text in texts] == [text.ids for text in expected]


def test_loops_are_for_float32_and_many_weights(looped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    assert loops_for(model.stack, 1) is None
    model.float()
    torch.set_num_threads(2)
    few, many = loops_for(model.stack, 16), loops_for(model.stack, 17)
    assert isinstance(few, one_token_cpu.Layers) and isinstance(many, one_token_cpu.Layers)
    assert few.packed is None and many.packed is not None
    monkeypatch.setattr(one_token, "_LARGE", 10**6)
    assert loops_for(model.stack, 1) is None
