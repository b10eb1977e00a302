"""The recurrent tagger: both ends of the sentence, words never seen, tags chosen together, several tags a word."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import segue
from segue.batches.batch import IGNORE, Batch
from segue.batches.spelled_words import spelt
from segue.batches.store import columns_of
from segue.data.example import names_of
from segue.errors import InputError
from segue.layers.word_features import WordFeatures
from segue.models.base import Sizes
from segue.models.rnn_tagger import RnnTagger
from segue.recipe import load_recipe
from segue.tasks.tag import TASK

VOCAB, TAGS = 15, 4
PLAIN: dict[str, Any] = {"embedding": 4, "word": WordFeatures(False, 0, 0, False), "width": 6}
CALM = {"dropout": 0.0, "unknown": 0.0}


def made(sizes: Sizes | None = None, **values: Any) -> RnnTagger:
    torch.manual_seed(0)
    return RnnTagger(RnnTagger.Config(**{**PLAIN, **CALM, **values}), sizes or Sizes(VOCAB, TAGS)).double().eval()


def batch_of(*rows: list[int], tags: list[list[int]] | None = None) -> Batch:
    arrays = [np.array(row, dtype=np.int64) for row in rows]
    return TASK.collate(
        columns_of(text=arrays, tags=[np.array(row) for row in tags] if tags else [row % TAGS for row in arrays]), 9999
    ).to("cpu")


def logits(model: RnnTagger, *rows: list[int]) -> Tensor:
    return model(batch_of(*rows))[0].detach()


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_two_sets_of_weights_read_from_both_ends(cell: str) -> None:
    """One layer is two networks of one direction: the second reads the sentence backwards."""
    both, row = made(cell=cell), [3, 9, 2, 14]
    x = both.word.vectors.weight[torch.tensor([row])]
    (layer,) = both.layers
    sides = []
    for suffix, text in (("", x), ("_reverse", x.flip(1))):
        one = type(layer.core)(4, 6, batch_first=True).double()
        weights = dict(layer.core.named_parameters())
        one.load_state_dict({name: weights[name + suffix] for name, _ in one.named_parameters()})
        sides.append(one(text)[0])
    h = torch.cat([sides[0], sides[1].flip(1)], -1)
    torch.testing.assert_close(logits(both, row), both.head(h).detach())


@pytest.mark.parametrize("both", [True, False])
def test_what_follows_is_seen_only_from_both_ends(both: bool) -> None:
    model, row = made(both=both), [3, 9, 2, 14, 5]
    changed = (logits(model, [*row[:2], 11, *row[3:]])[0] - logits(model, row)[0]).abs().amax(1) > 1e-9
    assert changed.tolist() == ([True] * 5 if both else [False, False, True, True, True])


def test_a_second_layer_reads_the_first() -> None:
    one, two = made(layers=1), made(layers=2)
    assert two.layers[1].core.input_size == 12 and two.head.in_features == one.head.in_features == 12


def learnt(model: RnnTagger, batch: Batch, steps: int = 150, rate: float = 0.02) -> RnnTagger:
    model = model.float().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        (term,) = model.loss(batch).terms
        optimiser.zero_grad()
        (term.total / term.count).backward()
        optimiser.step()
    return model.eval()


def test_it_learns_what_only_the_end_of_the_sentence_tells() -> None:
    """The tag of the first word is that of the last one: read from both ends it is learnt, from one it cannot be."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(2, VOCAB, 6) for _ in range(50)]
    tags = [np.array([row[-1] % TAGS, *[0] * 5]) for row in rows]
    batch = TASK.collate(columns_of(text=rows, tags=tags), 9999).to("cpu")
    right = {
        both: float(
            (learnt(made(both=both, width=16), batch, 150, 0.05).decide(batch)[0] == batch.targets)[:, 0].float().mean()
        )
        for both in (True, False)
    }
    assert right[True] > 0.95 and right[False] < 0.8


def words_batch(words: list[list[str]], tags: list[list[int]]) -> Batch:
    """All words unknown, so that only their letters are left."""
    ids = [np.ones(len(row), np.int64) for row in words]
    return TASK.collate(
        columns_of(text=ids, tags=[np.array(row) for row in tags], letters=[spelt(row) for row in words]), 9999
    ).to("cpu")


@pytest.mark.parametrize("inputs", [WordFeatures(False, 16, 0, False), WordFeatures(False, 0, 3, False)])
def test_words_never_seen_are_known_by_their_endings(inputs: WordFeatures) -> None:
    stems = ["walk", "jump", "play", "kick", "row", "load", "lift", "mend", "post", "bolt"]
    endings = ["ing", "ed", "s"]
    seen = [[stem + ending for ending in endings] for stem in stems[:7]]
    new = [[stem + ending for ending in endings] for stem in stems[7:]]
    model = learnt(made(Sizes(VOCAB, 3), word=inputs), words_batch(seen, [[0, 1, 2]] * 7))
    assert model.decide(words_batch(new, [[0, 1, 2]] * 3))[0].tolist() == [[0, 1, 2]] * 3
    assert len(set(model.decide(words_batch(new, [[0, 1, 2]] * 3))[0].flatten().tolist())) == 3


def test_shapes_tell_names_from_words() -> None:
    seen, new = [["Bob", "ran", "22"], ["Ann", "sat", "7"]], [["Zoe", "dug", "1984"]]
    model = learnt(made(Sizes(VOCAB, 3), word=WordFeatures(False, 0, 0, True)), words_batch(seen, [[0, 1, 2]] * 2))
    assert model.decide(words_batch(new, [[0, 1, 2]]))[0].tolist() == [[0, 1, 2]]


def test_tags_chosen_together_keep_to_what_follows_what() -> None:
    """Coins: every sentence is all 0 or all 1, and its words say nothing. A CRF never mixes the two."""
    batch = batch_of(*[[2, 2, 2, 2]] * 8, tags=[[0] * 4, [1] * 4] * 4)
    model = learnt(made(Sizes(VOCAB, 2), crf=True, width=4), batch, 200, 0.05)
    assert model.crf is not None
    p = model(batch)[0].exp()
    torch.testing.assert_close(p.sum(-1), torch.ones_like(p[..., 0]))
    assert (p - 0.5).abs().max() < 0.1  # each tag by itself stays a coin
    logp = model.crf.log_likelihood(model.scores(batch), batch.targets, batch.mask_BT)
    assert logp.exp().min() > 0.4  # but the two sequences have all the probability: 1/2 each, not 1/16
    assert set(model.decide(batch)[0][0].tolist()) in ({0}, {1})


def test_crf_loss_and_count_are_of_whole_sequences() -> None:
    model = made(crf=True)
    batch = batch_of([3, 9], [2, 14, 5])
    (term,) = model.loss(batch).terms
    assert model.crf is not None and int(term.count) == 5 == model.counts(batch)["cross_entropy"]
    logp = model.crf.log_likelihood(model.scores(batch), batch.targets, batch.mask_BT)
    assert term.total.item() == pytest.approx(-logp.sum().item())


# Several tags a word


def test_several_tags_are_so_many_yes_and_no() -> None:
    model = made(Sizes(VOCAB, 3, label="classes"))
    yes = [np.array([[1, 0, 1], [0, 0, 0]], np.uint8), np.array([[0, 1, 0]], np.uint8)]
    batch = TASK.collate(columns_of(text=[np.array([3, 9]), np.array([2])], tags=yes), 9999).to("cpu")
    assert batch.targets.shape == (2, 2, 3) and (batch.targets[1, 1] == IGNORE).all()
    scores = model.scores(batch).detach()
    p = scores.sigmoid()[batch.mask_BT]
    truth = batch.targets[batch.mask_BT].double()
    expected = -(truth * p.log() + (1 - truth) * (1 - p).log()).sum()
    (term,) = model.loss(batch).terms
    assert term.total.item() == pytest.approx(float(expected)) and int(term.count) == 9
    assert model.counts(batch) == {"cross_entropy": 9}
    assert torch.equal(model.decide(batch)[0], scores > 0)


X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
HIDDEN = np.array([[0.761594, 0], [0, 0.881130], [0.893811, 0.761594]])
"""The lectures' Elman network R1 after each of these: W = I, V = [[0, .5], [.5, 0]], b = 0, tanh."""


def by_recipe(output: str, label: str) -> tuple[RnnTagger, Batch]:
    """R1's network with the output U h, U = I, as a recipe makes it, and a sentence of the three inputs."""
    typed = f"model.cell=elman model.both=false model.embedding=2 model.width=2 model.dropout=0 model.output={output}"
    recipe = load_recipe("rnn_tagger/words", [*typed.split(), "model.unknown=0", f"data.label={label}"])
    model = RnnTagger(recipe.model, Sizes(5, 2, label=label)).eval()
    core = model.layers[0].core
    with torch.no_grad():
        for bias in (core.bias_ih_l0, core.bias_hh_l0, model.head.bias):
            bias.zero_()
        model.word.vectors.weight[2:] = torch.tensor(X)
        core.weight_ih_l0.copy_(torch.eye(2))
        core.weight_hh_l0.copy_(torch.tensor([[0, 0.5], [0.5, 0]]))
        model.head.weight.copy_(torch.eye(2))
    return model, TASK.collate(columns_of(text=[np.array([2, 3, 4])]), 9).to("cpu")


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_r3_softmax_by_the_recipe() -> None:
    model, batch = by_recipe("softmax", "class")
    expected = np.exp(HIDDEN) / np.exp(HIDDEN).sum(1, keepdims=True)
    found = model(batch)[0][0].detach().softmax(-1).numpy()
    assert found == pytest.approx(expected, abs=1e-6) and found.sum(1) == pytest.approx(1)
    best, p = model.decide(batch)
    assert best[0].tolist() == expected.argmax(1).tolist() and p[0].numpy() == pytest.approx(expected.max(1), abs=1e-6)


@pytest.mark.parametrize("output", ["logistic", "tanh"])
def test_r3_logistic_and_tanh_by_the_recipe(output: str) -> None:
    """Of several tags a word, p is y, or where y is from -1 to 1, (1 + y) / 2. Of one tag, these sum to one."""
    model, batch = by_recipe(output, "classes")
    p = logistic(HIDDEN) if output == "logistic" else (1 + np.tanh(HIDDEN)) / 2
    best, found = model.decide(batch)
    assert found[0].numpy() == pytest.approx(p, abs=1e-6) and best[0].tolist() == (p > 0.5).tolist()
    yes = torch.tensor([[[1, 0], [1, 1], [0, 1]]])
    (term,) = model.loss(dataclasses.replace(batch, targets=yes)).terms
    truth = yes[0].numpy()
    expected = -(truth * np.log(p) + (1 - truth) * np.log(1 - p)).sum()
    assert term.total.item() == pytest.approx(expected, abs=1e-5)
    model, batch = by_recipe(output, "class")
    (term,) = model.loss(dataclasses.replace(batch, targets=torch.tensor([[0, 1, 1]]))).terms
    one = (p / p.sum(1, keepdims=True))[[0, 1, 2], [0, 1, 1]]
    assert term.total.item() == pytest.approx(-np.log(one).sum(), abs=1e-5)


def test_auto_is_softmax_for_one_tag_and_logistic_for_several() -> None:
    for label, output in (("class", "softmax"), ("classes", "logistic")):
        ours, theirs = by_recipe("auto", label), by_recipe(output, label)
        assert torch.equal(ours[0](ours[1])[0], theirs[0](theirs[1])[0])
    with pytest.raises(InputError, match="output=softmax gives each word one tag"):
        by_recipe("softmax", "classes")
    with pytest.raises(InputError, match="leave one of them out"):
        load_recipe("rnn_tagger", ["model.crf=true", "model.output=tanh"])


def test_a_crf_has_one_tag_a_word() -> None:
    with pytest.raises(InputError, match="one tag"):
        made(Sizes(VOCAB, 3, label="classes"), crf=True)


TABLE = {"cats": "Num=Pl|Pos=N", "dog": "Pos=N", "Bob": "Name|Pos=N", "ran": "Pos=V", "the": "_"}


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("rnn_tagger", {"model.width": 16}),
        ("rnn_tagger", {"model.width": 16, "model.output": "tanh"}),
        ("window_tagger", {}),
        ("cnn_tagger", {"model.width": 16}),
    ],
    ids=str,
)
def test_several_tags_from_file_to_figures(kind: str, own: dict[str, Any], tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    sentences = [draw.choice(list(TABLE), 4) for _ in range(60)]
    lines = ["".join(f"{word}\t{TABLE[word]}\n" for word in sentence) for sentence in sentences]
    path = tmp_path / "feats.conll"
    path.write_text("\n".join(lines), encoding="utf-8")
    settings = {"data.label": "classes", "train.steps": 60, "train.optimizer.rate": 0.01, **own}
    run = segue.train(kind, str(path), tmp_path / "run", settings, device="cpu")
    assert run.labels == ("Name", "Num=Pl", "Pos=N", "Pos=V")
    words = ["the", "cats", "ran", "Bob"]
    (said,) = run.predict([" ".join(words)])
    assert said.tags == tuple(TABLE[word] for word in words)
    for tag, p in zip(said.tags, said.json()["probabilities"], strict=True):
        assert tuple(p) == run.labels and {name for name in p if p[name] > 0.5} == set(names_of(tag))
    result = run.evaluate()
    assert result["accuracy"] == result["micro_f1"] == result["macro_f1"] == 1.0


def test_several_tags_resume_to_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "feats.conll"
    path.write_text("\n".join(f"{word}\t{tags}\n" for word, tags in TABLE.items()) * 8, encoding="utf-8")
    settings = {"data.label": "classes", "model.width": 8, "model.output": "tanh", "train.steps": 6}
    segue.train("rnn_tagger", str(path), tmp_path / "whole", settings, device="cpu")
    segue.train("rnn_tagger", str(path), tmp_path / "parts", {**settings, "train.steps": 3}, device="cpu")
    segue.train(None, out=tmp_path / "parts", settings={"train.steps": 6}, resume=True, device="cpu")
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_spans_from_file_to_figures(tmp_path: Path) -> None:
    """IOB1 in the file, BIOES in the model, F1 of spans; names of one or two words before a verb."""
    draw = np.random.default_rng(0)
    names, verbs = ["Ann", "Bob", "Cy", "Di"], ["ran", "sat", "fell"]
    lines = []
    for _ in range(80):
        name = draw.choice(names, draw.integers(1, 3))
        lines.append("".join(f"{word}\tI-PER\n" for word in name) + f"{draw.choice(verbs)}\tO\n")
    path = tmp_path / "names.conll"
    path.write_text("\n".join(lines), encoding="utf-8")
    settings = {"data.label": "bioes", "model.crf": True, "train.steps": 80, "model.width": 16}
    run = segue.train(
        "rnn_tagger", str(path), tmp_path / "run", settings | {"train.optimizer.rate": 0.01}, device="cpu"
    )
    assert run.labels == ("B-PER", "E-PER", "O", "S-PER")
    assert [one.tags for one in run.predict(["Ann ran", "Cy Bob sat"])] == [("S-PER", "O"), ("B-PER", "E-PER", "O")]
    assert run.evaluate()["span_f1"] == 1.0


@pytest.mark.parametrize(
    ("values", "said"), [({"width": 0}, "width"), ({"embedding": 0}, "embedding"), ({"dropout": 1.0}, "share")]
)
def test_impossible_values_are_refused(values: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RnnTagger.Config(**values)  # type: ignore[arg-type]
