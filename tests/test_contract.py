"""The contract: every file in `models/` through the same properties, without being told its name.

Each kind is tried with its defaults, made small, and with every other value that one of its choices may have.
Only `logprobs`, `loss`, `counts`, `start`, `step` and `select` are used, so a model that counts and one that learns
by gradient are held to the same words.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import segue
from segue import models, tasks
from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Config
from segue.batches.codec import BodySpec
from segue.batches.masking import MaskedRows
from segue.batches.spelled_words import spelt
from segue.batches.store import Store, StoreWriter, columns_of
from segue.inference.words import words_of
from segue.models import model_class
from segue.models.base import EncoderDecoder, Imported, Sizes
from segue.models.keys import fields_of
from segue.recipe import hints_of
from segue.training.checkpoint import write_tensors

KINDS = [kind for kind in models.kinds() if kind != "ensemble" and not issubclass(model_class(kind), Imported)]
"""An ensemble is made of runs, of which there are none here: models/test_ensemble.py holds it to the same words.
What is imported cannot be trained: models/test_arpa_lm.py."""
VOCAB, CLASSES = 12, 3
SMALL = {"width": 16, "embedding": 16}
STREAMS = {"lm", "seq2seq"}
"""Tasks whose models predict the next token, so that later tokens must stay unseen."""
OF_TOKENS = STREAMS | {"masked_lm"}
"""Tasks whose models predict tokens, and not classes."""
LINE = [2, 3, 4, 5, 2, 6, 7, 3, 8, 9, 10, 11, 4, 2]


# Small configs and small data


def small(kind: str) -> dict[str, Any]:
    """The default config, narrow, and without dropout: two forward passes are to be the same."""
    values = {}
    for field in dataclasses.fields(model_class(kind).Config):
        if field.name in SMALL and field.default:
            values[field.name] = SMALL[field.name]
        elif field.name == "layers" and issubclass(model_class(kind), EncoderDecoder):
            values[field.name] = 1  # on each side
        elif field.name == "layers" and model_class(kind).task == "masked_lm":
            values |= {"layers": 1, "norm": "pre"}  # post-LN hardly learns at the rate that all models have here
        elif "dropout" in field.name:
            values[field.name] = 0.0
    return values


def configs(kind: str) -> Iterator[Any]:
    """The small config, and it again with each other value of each choice that stands alone."""
    Config = model_class(kind).Config
    base = small(kind)
    yield Config(**base)
    for name, hint in hints_of(Config).items():
        choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        for value in (False, True) if hint is bool else choices:
            try:
                other = Config(**{**base, name: value})
            except ValueError:  # a choice that needs another one beside it
                continue
            if other != Config(**base):
                yield other


def label(kind: str, config: Any) -> str:
    base = model_class(kind).Config(**small(kind))
    names = [f"{f.name}={getattr(config, f.name)}" for f in dataclasses.fields(config)]
    differ = [n for n in names if n not in [f"{f.name}={getattr(base, f.name)}" for f in dataclasses.fields(base)]]
    return "-".join([kind, *differ])


PREDICTING = [kind for kind in KINDS if model_class(kind).task != "embed"]
"""Vectors of words predict no token of a batch; what they promise is in models/test_word2vec.py."""
CASES = [pytest.param((kind, config), id=label(kind, config)) for kind in PREDICTING for config in configs(kind)]


def rows(lengths: list[int], seed: int) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.integers(2, VOCAB, length) for length in lengths]


def letters_of(row: np.ndarray) -> np.ndarray:
    """The words of a row, letter by letter: the first is "Aab", the second "Bbc", …"""
    return spelt([chr(65 + word) + chr(97 + word) + chr(98 + word) for word in row])


def store_of(task: str, folder: Path) -> Store:
    """Data that every model of the task can learn by heart: text that repeats itself, labels that words decide."""
    columns = {
        "lm": {},
        "masked_lm": {},
        "classify": {"label": "int32"},
        "tag": {"tags": "int32"},
        "answer": {"segments": "uint8", "asked": "uint8", "span": "int32"},
        "seq2seq": {"source": "uint16"},
    }
    columns["tag"] = columns["tag"] | {"letters": "uint32"}
    writer = StoreWriter(folder, {"text": "uint16", **columns[task]})
    if task in ("lm", "masked_lm"):
        # A masked model reads two rows with different tokens: without positions it tells texts apart by these alone.
        writer.append("text", np.tile([*LINE, 0], 60) if task == "lm" else np.repeat([2, 3, 4, 5, 6, 7, 8], 4))
        return writer.close()
    text = rows([5, 3, 6, 1, 4, 6], 0)
    lengths = np.array([len(row) for row in text])
    writer.append("text", np.concatenate(text), lengths)
    if task == "classify":
        writer.append("label", np.array([row[0] % CLASSES for row in text]), np.ones(len(text), np.int64))
    elif task == "answer":
        writer.append("segments", np.concatenate([segments_of(row) for row in text]), lengths)
        writer.append("asked", np.concatenate([segments_of(row, True) for row in text]), lengths)
        spans = np.array([span_of(row) for row in text])
        writer.append("span", spans.ravel(), np.full(len(text), 2))
    elif task == "tag":
        writer.append("tags", np.concatenate(text) % CLASSES, lengths)
        letters = [letters_of(row) for row in text]
        writer.append("letters", np.concatenate(letters), np.array([len(row) for row in letters]))
    else:
        source = rows([4, 6, 2, 5, 3, 1], 1)
        writer.append("source", np.concatenate(source), np.array([len(row) for row in source]))
    return writer.close()


def segments_of(row: np.ndarray, asked: bool = False) -> np.ndarray:
    """An answer may stand anywhere but at the first place, which says that there is none."""
    segments = (np.arange(len(row)) > 0).astype(np.uint8)
    return segments | (np.arange(len(row)) == 0) if asked else segments


def span_of(row: np.ndarray) -> tuple[int, int]:
    """An answer that the first word decides: its place is that word's number, and it goes on to the end."""
    return (0, 0) if len(row) < 2 else (1 + int(row[0]) % (len(row) - 1), len(row) - 1)


def batch_of(task: Any, lengths: tuple[int, ...] = (5, 2, 7), seed: int = 3, wider: int = 0) -> Batch:
    """Rows of these lengths, `wider` columns of padding more than are needed."""
    text, labels = rows(list(lengths), seed), rows(list(lengths), seed + 1)
    text[0] = np.array(LINE[: lengths[0]])  # one row that a model which counts has seen
    if task == "classify":
        columns = columns_of(text=text, label=np.array([row[0] % CLASSES for row in labels]))
    elif task == "tag":
        letters = [letters_of(row) for row in text]
        columns = columns_of(text=text, tags=[row % CLASSES for row in labels], letters=letters)
    elif task == "answer":
        asked = [segments_of(row, True) for row in text]
        spans = [np.array(span_of(row)) for row in labels]
        columns = columns_of(text=text, segments=[segments_of(row) for row in text], asked=asked, span=spans)
    elif task == "seq2seq":
        columns = columns_of(source=rows([4, 1, 6][: len(text)], seed + 2), text=text)
    elif task == "masked_lm":  # no places are named: a token is predicted at each
        read = tasks.task(task).collate(columns_of(text=text), 9999)
        true = tasks.task(task).collate(columns_of(text=labels), 9999).tokens_BT
        targets, halves = np.where(read.mask_BT, true, IGNORE), np.arange(max(lengths)) > 1
        pairs = {"segments_BT": np.where(read.mask_BT, halves, 0), "follows_B": np.arange(len(text)) % 2}
        return widened(Batch(read.tokens_BT, targets, read.mask_BT, **pairs), wider)
    else:
        shifted = tasks.task("seq2seq").collate(columns_of(source=text, text=text), 9999)
        return widened(dataclasses.replace(shifted, source=None, source_mask=None), wider)
    return widened(tasks.task(task).collate(columns, 9999), wider)


def widened(batch: Batch, wider: int) -> Batch:
    """More columns of padding on the right of everything."""

    def pad(array: Any, fill: Any) -> Any:
        if array is None or isinstance(array, int) or array.ndim < 2:
            return array
        return np.pad(array, ((0, 0), (0, wider), (0, 0))[: array.ndim], constant_values=fill)

    fills = {"targets": IGNORE, "mask_BT": False, "source_mask": False}
    values = {f.name: pad(getattr(batch, f.name), fills.get(f.name, 0)) for f in dataclasses.fields(batch)}
    if batch.answers_BT is not None:  # two places, however wide the batch is
        values["targets"] = batch.targets
    return Batch(**values)


def taken(batch: Batch, place: Any) -> Batch:
    """These rows of a batch."""
    return batch.rows(place)


# Models, and what they say


@pytest.fixture(params=CASES)
def case(request: Any) -> tuple[str, Any]:
    return request.param


def learns(kind: str) -> bool:
    return not hasattr(model_class(kind), "fit")


def sizes_of(cls: Any, config: Any) -> Sizes:
    """A head gets a small body, which sees both sides."""
    marks = cls.marks(config) if cls.task == "masked_lm" else ()
    sizes = Sizes(VOCAB, 0 if cls.task in OF_TOKENS else CLASSES, marks=marks)
    if not cls.framed:
        return sizes
    body = BodySpec("bert", {"layers": 2, "width": 16}, Sizes(VOCAB, marks=("start", "mask")))
    window = 4 if cls.task == "classify" else 16  # a row of words is one window, a text may be several
    return dataclasses.replace(sizes, marks=body.sizes.marks, body=body, window=window)


def made(kind: str, config: Any, folder: Path) -> Any:
    """A model as a run has it before scoring: counted, or with its first weights and at rest."""
    torch.manual_seed(0)
    cls = model_class(kind)
    model = cls(config, sizes_of(cls, config))
    if learns(kind):
        return model.double().eval()
    list(model.fit(store_of(cls.task, folder), cls.Train()))
    return model


@pytest.fixture
def model(case: tuple[str, Any], tmp_path: Path) -> Any:
    return made(*case, tmp_path / "store")


def moved(model: Any, batch: Batch) -> Batch:
    return batch.to("cpu") if hasattr(model, "state_dict") else batch


@torch.inference_mode()
def logprobs(model: Any, batch: Batch, state: Any = None) -> tuple[np.ndarray, Any]:
    logp, state = model.logprobs(moved(model, batch), state)
    return np.asarray(logp, dtype=np.float64), state


def dense(model: Any, batch: Batch, state: Any = None) -> np.ndarray:
    """log p of everything that could be predicted, last axis, at every real place; 0 elsewhere."""
    outcomes = CLASSES if model.task not in OF_TOKENS else VOCAB
    if batch.answers_BT is not None:  # places
        outcomes = min(7, batch.tokens_BT.shape[1])
    asked = [dataclasses.replace(batch, targets=np.where(real(batch), v, IGNORE)) for v in range(outcomes)]
    return np.stack([logprobs(model, one, state)[0] for one in asked], axis=-1)


def real(batch: Batch) -> np.ndarray:
    return batch.mask_BT if batch.targets.ndim == 2 and batch.answers_BT is None else np.ones(batch.targets.shape, bool)


def close(a: Any, b: Any, error: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=error)


@torch.inference_mode()
def stepped(model: Any, batch: Batch, cuts: list[int]) -> np.ndarray:
    """log p of what follows, read in pieces of these sizes: one row of the result a piece."""
    source = () if batch.source is None else (torch.tensor(batch.source), torch.tensor(batch.source_mask))
    state = model.start(len(batch.tokens_BT), batch.tokens_BT.shape[1], *source)
    out, at = [], 0
    for size in cuts:
        tokens = torch.tensor(batch.tokens_BT[:, at : at + size])
        logits, state = model.step(tokens, torch.tensor(batch.mask_BT[:, at : at + size]), state)
        out.append((logits.double().log_softmax(-1) if normalised(model) else logits.double()).numpy())
        at += size
    return np.stack(out, axis=1)


STEPPING = [case for case in CASES if model_class(case.values[0][0]).task in STREAMS]
LEARNING = [case for case in CASES if learns(case.values[0][0])]


# The file


def test_there_are_models_of_every_task() -> None:
    assert {model_class(kind).task for kind in KINDS} == set(tasks.names())


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_names_paper_and_year(kind: str) -> None:
    head = ast.get_docstring(ast.parse(models.source_file(kind).read_text(encoding="utf-8")))
    assert head and re.search(r"\b(18|19|20)\d\d\b", head), f"{kind}: the head should name a paper and its year"
    assert len(head.split("\n")[0]) <= 120 and "=" in head  # a first line for `segue models`, and equations


@pytest.mark.parametrize("kind", KINDS)
def test_config_is_small_frozen_and_documented(kind: str) -> None:
    cls = model_class(kind)
    fields = fields_of(models.source_file(kind))
    assert [f.name for f in fields] == [f.name for f in dataclasses.fields(cls.Config)]
    assert len(fields) <= 19
    for name, default, doc in [(f.name, f.default, f.doc) for f in fields]:
        assert doc and "\n" not in doc, f"{kind}: {name} has no one-line doc"
        assert default, f"{kind}: {name} has no default"
    field = fields[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(cls.Config(), field, getattr(cls.Config(), field))


def wrong_values() -> list[Any]:
    wrong: dict[Any, list[Any]] = {int: [-1], float: [-1.0, math.nan, math.inf], tuple: [(-1.0,)]}
    return [
        pytest.param(kind, name, value, id=f"{kind}-{name}={value}")
        for kind in KINDS
        for name, hint in hints_of(model_class(kind).Config).items()
        for value in wrong.get(typing.get_origin(hint) or hint, [])
    ]


@pytest.mark.parametrize(("kind", "name", "value"), wrong_values())
def test_impossible_config_values_are_refused(kind: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        model_class(kind).Config(**{name: value})


# What is predicted


def normalised(model: Any) -> bool:
    """False for a model that says of itself that it gives scores, not probabilities."""
    return getattr(model, "normalised", True)


def test_probabilities_sum_to_one(model: Any) -> None:
    batch = batch_of(model.task)
    sums = np.exp(dense(model, batch)).sum(-1)[real(batch)]
    if normalised(model):
        close(sums, 1.0, 1e-5)
    else:
        assert abs(sums - 1).max() > 0.01  # or it need not have said so


def test_logprobs_is_zero_where_nothing_is_predicted(model: Any) -> None:
    batch = batch_of(model.task, wider=2)
    targets = batch.targets.copy()
    targets[0] = IGNORE
    logp, _ = logprobs(model, dataclasses.replace(batch, targets=targets))
    assert logp.shape == targets.shape
    assert (logp[targets == IGNORE] == 0).all() and (logp[targets != IGNORE] < (0 if normalised(model) else 1)).all()


def test_padding_changes_no_real_output(model: Any) -> None:
    narrow, wide = batch_of(model.task), batch_of(model.task, wider=3)
    expected = dense(model, narrow)
    columns = np.s_[:, : narrow.tokens_BT.shape[1]] if narrow.targets.ndim == 2 else np.s_[:]
    close(dense(model, wide)[columns][real(narrow)], expected[real(narrow)])


def test_a_row_does_not_see_its_neighbours(model: Any) -> None:
    batch = batch_of(model.task)
    together = dense(model, batch)
    for row in range(len(batch.tokens_BT)):
        close(dense(model, taken(batch, [row]))[0], together[row])


def test_what_stands_under_the_padding_is_not_read(model: Any) -> None:
    batch = batch_of(model.task)
    tokens = np.where(batch.mask_BT, batch.tokens_BT, VOCAB - 1)
    changed = dataclasses.replace(batch, tokens_BT=tokens)
    close(dense(model, changed)[real(batch)], dense(model, batch)[real(batch)])


@pytest.mark.parametrize("case", STEPPING, indirect=True)
def test_later_tokens_change_nothing_earlier(model: Any) -> None:
    batch = batch_of(model.task, (6, 6, 6))
    before = dense(model, batch)
    for place in range(1, batch.tokens_BT.shape[1]):
        tokens = batch.tokens_BT.copy()
        tokens[:, place:] = 2 + (tokens[:, place:] + 1) % (VOCAB - 2)
        after = dense(model, dataclasses.replace(batch, tokens_BT=tokens))
        close(after[:, :place], before[:, :place])
        assert not np.allclose(after[:, place:], before[:, place:])  # or the test would show nothing


# Stepping


@pytest.mark.parametrize("case", STEPPING, indirect=True)
@pytest.mark.parametrize("cuts", [[1] * 7, [7], [2, 1, 4]], ids=["tokens", "whole", "chunks"])
def test_step_equals_logprobs(model: Any, cuts: list[int]) -> None:
    batch = batch_of(model.task, (6, 6, 6))
    ends = np.cumsum(cuts) - 1
    close(stepped(model, batch, cuts), dense(model, batch)[:, ends], 1e-5)


@pytest.mark.parametrize("case", STEPPING, indirect=True)
def test_step_passes_over_padding_on_either_side(model: Any) -> None:
    """A prompt that is shorter than its neighbours says the same as alone, and goes on the same."""
    batch = batch_of(model.task, (6, 3, 1))
    follow = np.array([[2], [5], [7]])
    turned = [np.roll(row, -mask.sum()) for row, mask in zip(batch.tokens_BT, batch.mask_BT, strict=True)]
    left = dataclasses.replace(batch, tokens_BT=np.stack(turned), mask_BT=batch.mask_BT[:, ::-1].copy())
    for padded in (batch, left):
        longer = dataclasses.replace(
            padded,
            tokens_BT=np.concatenate([padded.tokens_BT, follow], 1),
            mask_BT=np.concatenate([padded.mask_BT, np.ones_like(follow, dtype=bool)], 1),
        )
        together = stepped(model, longer, [batch.tokens_BT.shape[1], 1])
        for row, length in enumerate(batch.mask_BT.sum(1)):
            alone = taken(batch, [row])
            tokens = np.concatenate([alone.tokens_BT[:, :length], follow[[row]]], 1)
            alone = dataclasses.replace(alone, tokens_BT=tokens, mask_BT=np.ones_like(tokens, dtype=bool))
            close(together[row], stepped(model, alone, [length, 1])[0], 1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("case", STEPPING, indirect=True)
def test_select_reorders_and_repeats_rows(model: Any) -> None:
    batch = batch_of(model.task, (6, 6, 6))
    source = () if batch.source is None else (torch.tensor(batch.source), torch.tensor(batch.source_mask))
    tokens = torch.tensor(batch.tokens_BT)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    order = torch.tensor([2, 0, 2, 1])
    _, state = model.step(tokens[:, :4], mask[:, :4], model.start(3, 7, *source))
    expected, _ = model.step(tokens[:, 4:], mask[:, 4:], state)
    chosen, _ = model.step(tokens[order, 4:], mask[order, 4:], state.select(order))
    close(chosen, expected[order], 1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("case", STEPPING, indirect=True)
def test_rows_that_join_say_what_each_says_alone(model: Any) -> None:
    """Texts that began at different times and are not equally long; and each is itself again when selected."""
    batch = batch_of(model.task, (6, 6, 6))
    source = () if batch.source is None else (torch.tensor(batch.source), torch.tensor(batch.source_mask))
    tokens = torch.tensor(batch.tokens_BT)
    real, states, expected = torch.ones(3, 1, dtype=torch.bool), [], []
    for row, length in enumerate((4, 2, 5)):
        given = [part[row : row + 1] for part in source]
        read = tokens[row : row + 1, :length]
        _, state = model.step(read, real[:1].expand_as(read), model.start(1, length, *given))
        states.append(state)
        expected.append(model.step(tokens[row : row + 1, 5:6], real[:1], state)[0])
    joined = states[0].join(states[1:])
    close(model.step(tokens[:, 5:6], real, joined)[0], np.concatenate(expected), 1e-9)
    for row in range(3):
        alone, _ = model.step(tokens[row : row + 1, 5:6], real[:1], joined.select(torch.tensor([row])))
        close(alone, expected[row], 1e-9)


@pytest.mark.parametrize("case", [c for c in STEPPING if model_class(c.values[0][0]).task == "lm"], indirect=True)
def test_state_goes_on_from_batch_to_batch_until_a_row_is_fresh(model: Any) -> None:
    batch = batch_of("lm", (9, 9, 9))
    whole = dense(model, batch)
    arrays = (batch.tokens_BT, batch.targets, batch.mask_BT)
    halves = [Batch(*(array[:, part] for array in arrays)) for part in (np.s_[:5], np.s_[5:])]
    padded = widened(halves[0], 2)  # padding at the end of a batch leaves the state as it is
    for first in (halves[0], padded):
        _, state = logprobs(model, first)
        close(dense(model, halves[1], state), whole[:, 5:], 1e-5)
    fresh = dataclasses.replace(halves[1], fresh_B=np.array([False, True, False]))
    expected = np.where([[[False]], [[True]], [[False]]], dense(model, halves[1]), whole[:, 5:])
    close(dense(model, fresh, state), expected, 1e-5)


# Learning


def first_batch(task: Any, folder: Path) -> Batch:
    if task == "masked_lm":
        # One mask a row: without positions a model cannot tell two apart.
        config = Config(size=2, length=len(LINE) + 2, noise="mask", share=0.05)
        return MaskedRows(store_of(task, folder), config, 0, Sizes(VOCAB, marks=("start", "mask")), pairs=False).at(0)[
            0
        ]
    config = Config(size=2, length=len(LINE) + 1) if task == "lm" else Config(size=6, length=64)
    return tasks.task(task).batches(store_of(task, folder), config, seed=0).at(0)[0]


def test_overfits_one_batch(case: tuple[str, Any], model: Any, tmp_path: Path) -> None:
    """By gradient until hardly anything is left to learn; by counting, so that a text seen 60 times is expected."""
    batch = first_batch(model.task, tmp_path / "batch")
    if learns(case[0]):
        model.float().train()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
        for _ in range(300):
            terms = [term.total / term.count for term in model.loss(batch.to("cpu")).terms]
            optimiser.zero_grad()
            sum(terms).backward()
            optimiser.step()
            if terms[0].item() < 0.02:  # the cross-entropy, which is judged below; a loss of coverage stays
                break
        model.eval()
    logp, _ = logprobs(model, batch)
    outcomes = VOCAB if model.task in OF_TOKENS else CLASSES
    assert -logp.sum() / batch.count < (0.05 if learns(case[0]) else 0.3 * math.log(outcomes))


@pytest.mark.parametrize("case", LEARNING, indirect=True)
def test_every_parameter_gets_a_gradient(model: Any) -> None:
    # Once around, since a weight behind one that starts at zero gets its gradient only after a step.
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        sum(term.total for term in model.loss(batch_of(model.task).to("cpu")).terms).backward()
        optimiser.step()
    # What pools a text learns from the next sentence alone; a body has it for heads that are put on it.
    pools = model.task == "masked_lm" and not model.config.next_sentence
    learning = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    for name, parameter in learning:
        if pools and name.startswith("pooler."):
            continue
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), name


@pytest.mark.parametrize("case", LEARNING, indirect=True)
def test_counts_are_those_of_the_loss(model: Any) -> None:
    batch = batch_of(model.task, wider=2)
    loss = model.loss(batch.to("cpu"))
    assert model.counts(batch) == {term.name: int(term.count) for term in loss.terms}
    assert all(count > 0 for count in model.counts(batch).values())


@pytest.mark.parametrize("case", LEARNING, indirect=True)
def test_loss_of_the_parts_adds_up_to_that_of_the_batch(model: Any) -> None:
    """Sums and counts, never means: so accumulating gives what the big batch gives."""
    batch = batch_of(model.task)
    parts = [taken(batch, [0]), taken(batch, [1, 2])]
    whole = {term.name: term for term in model.loss(batch.to("cpu")).terms}
    split = [term for part in parts for term in model.loss(part.to("cpu")).terms]
    for name, term in whole.items():
        close(sum(t.total.item() for t in split if t.name == name), term.total.item(), 1e-5)
        assert sum(int(t.count) for t in split if t.name == name) == int(term.count)


@pytest.mark.parametrize("case", LEARNING, indirect=True)
def test_cross_entropy_is_the_score(model: Any) -> None:
    """What is learnt is what is judged: without dropout, the loss is the sum of -log p of the targets."""
    # With a CRF a whole sequence of tags is learnt, and each tag of it is judged: one of a row is the same.
    lengths = (1, 1, 1) if getattr(model, "crf", None) is not None else (5, 2, 7)
    batch = batch_of(model.task, lengths, wider=1)
    (term,) = (term for term in model.loss(batch.to("cpu")).terms if term.name == "cross_entropy")
    close(term.total.item(), -logprobs(model, batch)[0].sum(), 1e-5)


RECORDED = [case for case in LEARNING if model_class(case.values[0][0]).task == "lm"]


@pytest.mark.parametrize("case", RECORDED, indirect=True)
def test_a_step_of_running_text_asks_nothing_of_the_device(case: tuple[str, Any]) -> None:
    """Or it could not be recorded on a GPU. Here the device is one that has no numbers to give."""
    kind, config = case
    model = model_class(kind)(config, Sizes(VOCAB)).train().to("meta")
    tokens_BT = np.zeros((2, 8), np.int64)
    batch = Batch(tokens_BT, tokens_BT, tokens_BT == 0, np.array([True, False]), unpadded=True).to("meta")
    state = None
    for _ in range(2):
        loss = model.loss(batch, state)
        sum(term.total for term in loss.terms).backward()
        state = None if loss.state is None else loss.state.detach()


# Keeping


def test_saving_and_loading_change_nothing(case: tuple[str, Any], model: Any, tmp_path: Path) -> None:
    kind, config = case
    again = model_class(kind)(config, sizes_of(model_class(kind), config))
    batch = batch_of(model.task)
    if learns(kind):
        model.float()
        (tmp_path / "model.safetensors").write_bytes(write_tensors(model.state_dict()))
        again.load_state_dict(load_file(tmp_path / "model.safetensors"))
        again.eval()
    else:
        model.save(tmp_path)
        again.load(tmp_path)
    np.testing.assert_array_equal(dense(again, batch), dense(model, batch))


WORDS = "the cows eat grass and the old farmer sees a red barn near my lake"
DATA: dict[str, list[Any]] = {
    "lm": [WORDS[i % 9 :] for i in range(40)],
    "classify": [("ab"[i % 2], WORDS[i % 9 : 20 + i % 9]) for i in range(40)],
    "tag": [(WORDS.split()[i % 5 :], [str(len(w) % 2) for w in WORDS.split()[i % 5 :]]) for i in range(40)],
    "answer": [("who eats grass ?", WORDS[i % 9 :], "old farmer" if i % 2 else "") for i in range(40)],
    "seq2seq": [(WORDS[i % 9 : 20], WORDS[i % 9 : 20][::-1]) for i in range(40)],
    "embed": [WORDS[i % 9 :] for i in range(40)],
    "masked_lm": [WORDS[i % 9 :] for i in range(40)],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs of a few steps, each made once: trained(kind, seed, number of the copy)."""

    @cache
    def train(kind: str, seed: int, copy: int = 0) -> segue.Run:
        cls = model_class(kind)
        settings: dict[str, Any] = {f"model.{name}": value for name, value in small(kind).items()}
        settings |= {"data.validation": 0, "batches.size": 4}
        if learns(kind):
            settings |= {"train.steps": 5, "train.seed": seed}
        if cls.task == "seq2seq":
            settings |= {"tokens.kind": "char"}
        if cls.framed:
            settings |= {"model.body": str(train("gpt", 0).path)}
        if cls.task == "embed":
            settings |= {"train.threads": 1}  # several write to the same table without waiting
        folder = tmp_path_factory.mktemp(f"{kind}-{seed}-{copy}")
        return segue.train(kind, DATA[cls.task], folder / "run", settings, device="cpu")

    return train


def answer(run: segue.Run) -> Any:
    """What a run says: scores, or predictions."""
    if run.task.name == "lm":
        return [line.logprobs for line in run.score(["the old cow", "", "a lake"], end=True)]
    if run.task.name == "masked_lm":
        return [line.pseudo_log_likelihoods for line in run.score(["the old cow", "", "a lake"])]
    if run.task.name == "embed":
        return words_of(run.opened).nearest("cows")
    if run.task.name == "answer":
        return list(run.predict([("who sees ?", WORDS), ("where ?", "a red barn")]))
    return list(run.predict(["the old cow", "a red barn"]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_can_be_opened_again_and_again(kind: str, trained: Any) -> None:
    run = trained(kind, 0)
    first, second = segue.load(run.path, device="cpu"), segue.load(run.path, device="cpu")
    assert answer(run) == answer(first) == answer(second)
    assert first.recipe == run.recipe and first.sizes == run.sizes


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_makes_the_same_run(kind: str, trained: Any) -> None:
    one, two = ((trained(kind, 0, copy).path / "model.safetensors").read_bytes() for copy in (0, 1))
    assert one == two


@pytest.mark.parametrize("kind", [kind for kind in KINDS if learns(kind)])
def test_another_seed_makes_another_run(kind: str, trained: Any) -> None:
    one, two = ((trained(kind, seed).path / "model.safetensors").read_bytes() for seed in (0, 1))
    assert one != two
