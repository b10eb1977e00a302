"""The Transformer language model: reading on through a window, its options, its shapes, and what it refuses."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import GPT2Config, GPT2Model

import segue
from segue.batches.batch import IGNORE, Batch
from segue.errors import InputError
from segue.inference.decode import generate
from segue.inference.decode_settings import Config as Decode
from segue.inference.score import stream_logprobs
from segue.layers.probe import record
from segue.models.base import Sizes
from segue.models.gpt import SHAPES, Gpt
from segue.models.names import recipe_names
from segue.recipe import load_recipe

V, CONTEXT = 11, 8
SMALL = {"layers": 2, "width": 8, "heads": 2, "context": CONTEXT}
VARIANTS = [
    {},
    {"norm": "post"},
    {"norm": "none"},
    {"residual": False},
    {"position": "none"},
    {"position": "onehot"},
    {"position": "sinusoidal"},
    {"position": "relative"},
    {"position": "rotary"},
    {"activation": "relu", "tied": False},
    {"layers": 1, "heads": 1, "context": 5},
]


def make(**values) -> Gpt:
    """In float64 with weights large enough that what is wrong shows."""
    torch.manual_seed(0)
    model = Gpt(Gpt.Config(**{**SMALL, **values}), Sizes(V)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.fixture(params=VARIANTS, ids=lambda values: "-".join(f"{k}={v}" for k, v in values.items()) or "plain")
def model(request) -> Gpt:
    return make(**request.param)


def tokens(rows=3, length=CONTEXT, seed=0) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(seed))


def batch(ids: Tensor, mask: Tensor | None = None, fresh: Tensor | None = None) -> Batch:
    """Every real token predicts the one after it; the last predicts 0."""
    mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    targets = torch.cat([ids[:, 1:], torch.zeros_like(ids[:, :1])], 1)
    return Batch(ids, torch.where(mask, targets, IGNORE), mask, fresh)


def near(a: Tensor, b: Tensor, tolerance=1e-10) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


def window_logits(model: Gpt, row: Tensor) -> Tensor:
    """logits_TV of one row by the rule: a full window loses its older half before the next token is read."""
    seen: list[int] = []
    out = []
    for token in row.tolist():
        if len(seen) == model.config.context:
            seen = seen[-(model.config.context // 2) :] if model.config.context > 1 else []
        seen.append(token)
        out.append(model(batch(torch.tensor([seen])))[0][0, -1])
    return torch.stack(out)


def stepped(model: Gpt, ids: Tensor, cuts: list[int], capacity: int = 100) -> Tensor:
    """The logits after each piece."""
    state, at, out = model.start(len(ids), capacity), 0, []
    for length in cuts:
        part = ids[:, at : at + length]
        logits, state = model.step(part, torch.ones_like(part, dtype=torch.bool), state)
        out.append(logits)
        at += length
    return torch.stack(out, 1)


# Reading on


def test_step_equals_forward_within_the_context(model) -> None:
    length = model.config.context
    ids = tokens(length=length)
    expected, _ = model(batch(ids))
    near(stepped(model, ids, [1] * length), expected)
    near(stepped(model, ids, [2, length - 2]), expected[:, [1, -1]])
    near(stepped(model, ids, [1] * length, capacity=1), expected)  # room is made when it is needed


def test_beyond_the_context_the_window_slides(model) -> None:
    """Token by token, in pieces longer than the context, and by `logprobs`: all follow the rule."""
    ids = tokens(2, 3 * CONTEXT + 1)
    expected = torch.stack([window_logits(model, row) for row in ids])
    near(stepped(model, ids, [1] * ids.shape[1]), expected)
    for cuts in ([ids.shape[1]], [3, 17, 5], [CONTEXT, CONTEXT, CONTEXT + 1]):
        ends = torch.tensor(cuts).cumsum(0) - 1
        near(stepped(model, ids, cuts), expected[:, ends])
    whole = batch(ids)
    near(model.logprobs(whole)[0], expected.log_softmax(-1).gather(-1, whole.targets[..., None])[..., 0])


def test_every_token_sees_at_least_half_a_window() -> None:
    """A token matters for as far ahead as the rule says, and no farther: at most one layer looks past it."""
    model = make(layers=1, position="rotary")
    ids = tokens(1, 4 * CONTEXT)
    changed = ids.clone()
    changed[0, 10] = (ids[0, 10] + 1) % V
    differ = (logits(model, ids) - logits(model, changed)).abs().amax(-1) > 1e-9
    # Windows begin at 0, 4, 8, 12, …: token 10 is in those of tokens 8 to 15, which begin at 4 and 8.
    assert differ.nonzero()[:, 0].tolist() == list(range(10, 16))


def logits(model: Gpt, ids: Tensor) -> Tensor:
    return stepped(model, ids, [1] * ids.shape[1])[0]


def test_prompts_of_different_lengths_slide_each_for_itself(model) -> None:
    """Padding on either side and in the middle; what a row says does not depend on its neighbours."""
    ids = tokens(4, 2 * CONTEXT, seed=1)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, :9] = False  # left
    mask[1, 5:] = False  # right
    mask[2, ::3] = False  # between
    _, state = model.step(ids, mask, model.start(4, 60))
    follow, out = tokens(4, 2 * CONTEXT, seed=2), []
    for column in follow.T:
        said, state = model.step(column[:, None], torch.ones(4, 1, dtype=torch.bool), state)
        out.append(said)
    for row in range(4):
        alone = torch.cat([ids[row][mask[row]], follow[row]])
        near(torch.stack(out, 1)[row], window_logits(model, alone)[-2 * CONTEXT :])


def test_logprobs_passes_over_padding_and_forgets_where_a_row_is_fresh(model) -> None:
    first, second = tokens(3, 6, seed=1), tokens(3, 12, seed=2)
    mask = torch.tensor([[1] * 6, [1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)
    _, state = model.logprobs(batch(first, mask))
    for fresh in (None, torch.tensor([False, True, False])):
        logp, _ = model.logprobs(batch(second, fresh=fresh), state)
        for row in range(3):
            before = first[row][mask[row]] if fresh is None or not fresh[row] else first[row][:0]
            expected = window_logits(model, torch.cat([before, second[row]]))[len(before) :]
            targets = batch(second).targets[row][:, None]
            near(logp[row], expected.log_softmax(-1).gather(-1, targets)[:, 0])


def test_a_row_at_rest_says_the_same_again(model) -> None:
    ids = tokens(2, 4)
    said, state = model.step(ids, torch.ones_like(ids, dtype=torch.bool), model.start(2, 20))
    again, rested = model.step(ids[:, :1], torch.tensor([[False], [True]]), state)
    near(again[0], said[0])
    moved, _ = model.step(ids[:, :1], torch.ones(2, 1, dtype=torch.bool), rested)
    expected = stepped(model, torch.cat([ids[:1], ids[:1, :1]], 1), [4, 1])[0, 1]
    near(moved[0], expected)


def test_a_state_can_be_stepped_from_twice(model) -> None:
    """What is kept is written in place, but never under the hands of another state."""
    ids = tokens(2, 2 * CONTEXT)
    real = torch.ones(2, 1, dtype=torch.bool)
    for length in (3, model.config.context, CONTEXT + 3):
        _, state = model.step(ids[:, :length], real.expand(2, length), model.start(2, 100))
        one, left = model.step(ids[:, :1], real, state)
        other, right = model.step(ids[:, 1:2], real, state)
        for end, after, said in ((ids[:, :1], left, one), (ids[:, 1:2], right, other)):
            text = torch.cat([ids[:, :length], end, ids[:, 3:4]], 1)
            expected = torch.stack([window_logits(model, row) for row in text])
            near(said, expected[:, length])
            near(model.step(ids[:, 3:4], real, after)[0], expected[:, length + 1])
        fresh = torch.tensor([True, False])
        model.logprobs(batch(ids[:, :4], fresh=fresh), state)
        near(model.step(ids[:, :1], real, state)[0], one)


def test_select_and_beams_go_on_beyond_the_context() -> None:
    model = make()
    ids, rows = tokens(3, 6), torch.tensor([2, 0, 2])
    real = torch.ones(3, 1, dtype=torch.bool)
    _, state = model.step(ids, real.expand(3, 6), model.start(3, 100))
    chosen = state.select(rows)
    for i in range(12):
        said, chosen = model.step(ids[:, i % 6 : i % 6 + 1], real, chosen)
    for row in range(3):
        text = torch.cat([ids[rows[row]], ids[row], ids[row]])
        near(said[row], window_logits(model, text)[-1])
    for config in (Decode(max_tokens=20, beam=3), Decode(max_tokens=20, seed=4)):
        together = generate(model, [[3, 4], [5, 6, 7, 8, 9], []], Sizes(V), config)
        alone = [generate(model, [[3, 4]], Sizes(V), config)[0]]
        assert together[0].ids == alone[0].ids  # the seed of row 0 is the same


def test_streams_are_scored_as_the_rule_says() -> None:
    """As `score_held_out` reads: in pieces of the scorer's own length; in several rows, each warmed before its own."""
    model, text = make(position="relative"), tokens(1, 90)[0]
    ((_, (one,), _),) = stream_logprobs(model, text.numpy(), 1, V)
    near(torch.from_numpy(one), scored(model, text))
    ((_, three, _),) = stream_logprobs(model, text.numpy(), 3, V)
    near(torch.from_numpy(three[0]), scored(model, text)[:30])
    # Row 1 has read 1,024 tokens: STOPs, then 30 of the text. Of the STOPs only how many matters, and by fours.
    warm = torch.cat([torch.zeros(994 - 960, dtype=torch.long), text[:60]])
    near(torch.from_numpy(three[1]), scored(model, warm)[-30:])


def scored(model: Gpt, text: Tensor) -> Tensor:
    """log p of each token of a text that begins after STOP."""
    read = torch.cat([torch.zeros(1, dtype=torch.long), text[:-1]])
    return window_logits(model, read).detach().log_softmax(-1).gather(-1, text[:, None])[:, 0]


# Looking inside


def test_encode_gives_every_layer(model) -> None:
    """The vectors of tokens and places, then every layer; the last after the final norm; 0 at padding."""
    ids = tokens()[:, : model.config.context]
    mask = torch.arange(ids.shape[1]) < torch.tensor([[ids.shape[1]], [2], [4]])
    hidden_LBTD = model.encode(batch(ids, mask))
    assert hidden_LBTD.shape == (model.depth, *ids.shape, model.width)
    assert not hidden_LBTD[:, ~mask].any() and hidden_LBTD[:, mask].any()
    near(model.unembed(hidden_LBTD[-1])[mask], model(batch(ids))[0][mask])
    x_BTD = model.positions.add(model.positions.scale * model.vectors(ids), torch.arange(ids.shape[1]))
    near(hidden_LBTD[0][mask], x_BTD[mask])
    if model.depth > 2:  # the logit lens of layer 1: what a model without the layers above would say
        lens = model.unembed(hidden_LBTD[1], last=False)[mask]
        del model.blocks[1:]
        near(lens, model(batch(ids))[0][mask])


def test_hidden_states_are_those_of_transformers_gpt2() -> None:
    """Of every layer, with random weights, exported as Hugging Face has them."""
    torch.manual_seed(0)
    model = make(layers=3).float()
    config = GPT2Config(
        vocab_size=V, n_positions=CONTEXT, n_embd=8, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=0
    )
    theirs = GPT2Model(config).eval()
    ours = model.state_dict()
    names = {"norm_attention": "ln_1", "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj"}
    names |= {"norm_feed": "ln_2", "feed.up": "mlp.c_fc", "feed.down": "mlp.c_proj"}
    state = {"wte.weight": ours["vectors.weight"], "wpe.weight": ours["positions.table.weight"]}
    state |= {f"ln_f.{end}": ours[f"norm.{end}"] for end in ("weight", "bias")}
    for i in range(3):
        for a, b in names.items():
            weight = ours[f"blocks.{i}.{a}.weight"]
            state[f"h.{i}.{b}.weight"] = weight.T if weight.dim() == 2 else weight  # Conv1D: inputs by outputs
            state[f"h.{i}.{b}.bias"] = ours[f"blocks.{i}.{a}.bias"]
    theirs.load_state_dict(state)
    with torch.no_grad():
        expected = theirs(tokens(), output_hidden_states=True).hidden_states
    assert len(expected) == model.depth
    near(model.encode(batch(tokens())).detach(), torch.stack(expected), 1e-5)


def test_a_probe_sees_the_weights_of_every_layer_and_changes_nothing(model) -> None:
    ids = tokens()[:, : model.config.context]
    with record() as seen:
        looked, _ = model(batch(ids))
    near(looked, model(batch(ids))[0])
    assert len(seen["attention"]) == model.config.layers
    for a_BHTS in seen["attention"]:
        near(a_BHTS.sum(-1), torch.ones_like(a_BHTS[..., 0]))
        assert (a_BHTS.triu(1) == 0).all()


def test_compiled_blocks_run_for_the_shape_of_training_alone() -> None:
    """A probe sees into them, other shapes and evaluation run eagerly; nothing is compiled again."""
    torch.compiler.reset()  # forget what other tests of this process compiled
    model, runs = make().float(), []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*given: Any) -> Any:
            runs.append(graph)
            return graph(*given)

        return run

    ids = tokens()
    plain = model(batch(ids))[0]
    for block in model.blocks:
        block.compile(fullgraph=True, backend=backend, dynamic=False)
    model.compiled = tuple(ids.shape)
    model.train()
    near(model(batch(ids))[0], plain, 1e-5)
    assert len(runs) == 2
    with record() as seen:
        near(model(batch(ids))[0], plain, 1e-5)
    assert len(seen["attention"]) == 2
    near(model(batch(ids[:, :5]))[0], plain[:, :5], 1e-5)
    model.eval()
    near(model(batch(ids))[0], plain, 1e-5)
    near(stepped(model, ids, [1] * CONTEXT), plain, 1e-5)
    assert len(runs) == 2
    model.train()
    model(batch(ids))
    assert len(runs) == 4 and len(set(map(id, runs))) <= 2


def test_blocks_are_called_as_modules() -> None:
    """So that hooks run, which sharding (FSDP) needs; nobody else calls `forward` either."""
    model, called = make(), []
    for block in model.blocks:
        block.register_forward_hook(lambda *given: called.append(given[0]))
    model.loss(batch(tokens()))
    stepped(model, tokens(), [3, 1])
    assert called == [*model.blocks] * 3
    for file in (Path(segue.__file__).parent).rglob("*.py"):
        assert not re.search(r"(?<!super\(\))\.forward\(", file.read_text()), f"{file} calls a module past its hooks"


@pytest.mark.parametrize("position", ["learned", "relative", "rotary", "sinusoidal"])
def test_half_precision_trains_and_steps(position) -> None:
    torch.manual_seed(0)
    model = Gpt(Gpt.Config(**SMALL, position=position), Sizes(V))
    ids = tokens(2, 2 * CONTEXT)
    full = model.logprobs(batch(ids))[0]
    with torch.autocast("cpu", torch.bfloat16):
        (term,) = model.loss(batch(ids[:, :CONTEXT])).terms
        term.total.backward()
        half = model.logprobs(batch(ids))[0]
    assert term.total.dtype == torch.float32 and all(p.grad.isfinite().all() for p in model.parameters())
    near(half, full, 0.05)


# Weights and shapes


def test_first_weights_are_gpt2s() -> None:
    torch.manual_seed(0)
    model = Gpt(Gpt.Config(layers=8, width=128), Sizes(300))
    for name, parameter in model.named_parameters():
        std = parameter.std().item()
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        elif name.endswith(("out.weight", "down.weight")):
            assert std == pytest.approx(0.02 / 4, rel=0.05), name
        else:
            assert std == pytest.approx(0.02, rel=0.05), name
    assert "head.weight" not in model.state_dict() and not any("fixed" in name for name in model.state_dict())


def test_without_residuals_a_layer_begins_by_looking_at_itself() -> None:
    """Or nothing is left of a token after a few averages."""
    torch.manual_seed(0)
    model = Gpt(Gpt.Config(layers=3, width=64, residual=False, position="none"), Sizes(40))
    with record() as seen:
        model(batch(torch.arange(CONTEXT)[None]))
    for a_BHTS in seen["attention"]:
        assert a_BHTS.diagonal(dim1=-2, dim2=-1).mean() > 0.9
    with torch.device("meta"):
        Gpt(Gpt.Config(size="gpt3-13b", residual=False), Sizes(40))  # heads that are not as wide as the layer


def test_a_size_sets_the_shape_and_comes_back() -> None:
    config = Gpt.Config(size="gpt2-medium")
    assert (config.layers, config.width, config.heads, config.context) == (24, 1024, 16, 1024)
    assert config.head_width == 64
    assert Gpt.Config(**dataclasses.asdict(config)) == config
    assert Gpt.Config(size="gpt2", width=768) == Gpt.Config(size="gpt2")
    with pytest.raises(ValueError, match="width = 64 with size = gpt2, whose width is 768"):
        Gpt.Config(size="gpt2", width=64)


@pytest.mark.parametrize("size", SHAPES)
def test_every_size_can_be_laid_out(size) -> None:
    """On the device that holds nothing; one layer of each, so that heads and widths fit together."""
    shape = SHAPES[size]
    with torch.device("meta"):
        config = Gpt.Config(size=size)
        model = Gpt(config, Sizes(shape.vocab_size))
        assert model.blocks[0](torch.empty(1, 3, shape.width)).shape == (1, 3, shape.width)
    divides = shape.heads * shape.head_width == shape.width
    assert divides != (size == "gpt3-13b")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"width": 100, "heads": 3}, r"width = 100 does not divide by heads = 3: it does by 1, 2, 4, 5, 10"),
        ({"position": "rotary", "width": 6, "heads": 2}, "a head is 3 wide"),
        ({"position": "onehot", "width": 64, "context": 65}, "context = 65, width = 64"),
        ({"context": 0}, "context = 0"),
        ({"dropout": 1.0}, "dropout = 1.0"),
    ],
)
def test_what_is_refused(values, said) -> None:
    with pytest.raises(ValueError, match=said):
        Gpt.Config(**values)


def test_rows_longer_than_the_context_are_refused_with_the_key_to_set() -> None:
    with pytest.raises(InputError, match=r"rows of 9 tokens, and this model sees 8.*batches.length=8 or less"):
        make()(batch(tokens(2, CONTEXT + 1)))


def test_dropout_is_in_training_only() -> None:
    model = make(dropout=0.5)
    ids = tokens()
    near(model(batch(ids))[0], model(batch(ids))[0], 0.0)
    model.train()
    assert not torch.equal(model(batch(ids))[0], model(batch(ids))[0])


def test_recipes_train_on_as_much_as_the_model_sees() -> None:
    """Or places that were never trained would be met in scoring."""
    for name in ("gpt", *recipe_names("gpt")):
        recipe = load_recipe(name)
        assert recipe.batches.length == recipe.model.context
    paper = load_recipe("gpt/paper").model
    assert paper == Gpt.Config(size="gpt2", dropout=paper.dropout)


def test_the_way_is_said() -> None:
    assert make().way == "a window of 8 tokens, its newer 4 read again when it is full"


@pytest.mark.parametrize("context", [1, 2, 7, 8])
@pytest.mark.parametrize("length", [1, 5, 8, 9, 100])
def test_windows_side_by_side_equal_a_stream_read_on(context: int, length: int) -> None:
    torch.manual_seed(0)
    model = Gpt(Gpt.Config(layers=1, width=8, heads=2, context=context), Sizes(V)).eval()
    ids = np.random.default_rng(length).integers(0, V, length)
    inputs = torch.from_numpy(np.concatenate([[0], ids[:-1]]))[None]
    read, _ = model.logprobs(Batch(inputs, torch.from_numpy(ids)[None], torch.ones_like(inputs, dtype=torch.bool)))
    parts = list(stream_logprobs(model, ids, 1, V))
    assert [begin for (begin,), _, _ in parts] == np.cumsum([0, *[logp.shape[1] for _, logp, _ in parts]])[:-1].tolist()
    found = np.concatenate([logp[0] for _, logp, _ in parts])
    np.testing.assert_allclose(found, read[0].numpy(), atol=1e-5)
