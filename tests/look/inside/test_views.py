"""Every view on a tiny run: its numbers against the model itself, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import segue
from segue.batches.batch import Batch
from segue.cli import main
from segue.errors import InputError
from segue.inference.alignment import pair_batch
from segue.inference.words import words_of
from segue.layers.position import Positions
from segue.look.inside import look, views, views_of
from segue.look.inside.positions import by_distance
from segue.look.inside.view import View
from segue.runs.run import Run

TEXTS = ["the cows eat grass", "the dog sees a cow", "grass is green and cows eat hay"] * 8
SMALL = {"train.steps": 3, "data.validation": 0}
COUNTED = {"data.validation": 0, "data.unit": "line", "tokens.kind": "word", "tokens.min_count": 1}
REVIEWS = [("good", "a fine film"), ("bad", "a dull film")] * 20
TAGGED = [(["the", "cow", "eats"], ["D", "N", "V"]), (["a", "dog"], ["D", "N"])] * 10
PAIRS = [("the cow", "die Kuh"), ("a dog", "ein Hund")] * 10
GPT = {"model.width": 16, "model.layers": 2, "model.heads": 2, "model.context": 16, "batches.length": 16}

RUNS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "ngram": ("ngram", TEXTS, {**COUNTED, "model.order": 3}),
    "scores": ("ngram", TEXTS, {**COUNTED, "model.order": 3, "model.smoothing": "stupid_backoff"}),
    "gpt": ("gpt", TEXTS, SMALL | GPT),
    "relative": ("gpt", TEXTS, SMALL | GPT | {"model.position": "relative"}),
    "placeless": ("gpt", TEXTS, SMALL | GPT | {"model.position": "none"}),
    "bert": ("bert", TEXTS, SMALL | GPT | {"tokens.kind": "space"}),
    "lstm": ("rnn_lm", TEXTS, SMALL | {"model.width": 8, "model.embedding": 8, "model.layers": 2}),
    "gru": ("rnn_lm", TEXTS, SMALL | {"model.width": 8, "model.embedding": 8, "model.cell": "gru"}),
    "elman": ("rnn_lm", TEXTS, SMALL | {"model.width": 8, "model.embedding": 8, "model.cell": "elman"}),
    "elmo": ("elmo", TEXTS, SMALL | {"model.width": 8, "model.filters": "4,4", "tokens.min_count": 1}),
    "bow": ("bow", REVIEWS, {"train.steps": 20, "data.validation": 0}),
    "bayes": ("naive_bayes", REVIEWS, {"data.validation": 0}),
    "rnn": ("rnn_classifier", REVIEWS, SMALL | {"model.width": 8}),
    "cnn": ("cnn_classifier", REVIEWS, {"train.steps": 20, "data.validation": 0, "model.filters": 4}),
    "tagger": ("rnn_tagger", TAGGED, SMALL | {"model.width": 8, "batches.length": 8}),
    "window": ("window_tagger", TAGGED, SMALL | {"batches.length": 8}),
    "translator": ("rnn_seq2seq/start", PAIRS, SMALL | {"model.width": 8, "tokens.kind": "char"}),
    "aligner": ("rnn_seq2seq", PAIRS, SMALL | {"model.width": 8, "tokens.kind": "char"}),
    "transformer": (
        "transformer",
        PAIRS,
        SMALL | {"model.width": 8, "model.layers": 2, "model.heads": 2, "tokens.kind": "space"},
    ),
    "words": ("word2vec", TEXTS, {**COUNTED, "model.width": 8, "train.threads": 1}),
}
APPLY = {
    "ngram": ["next", "counts", "evidence", "surprisal"],
    "scores": ["next", "counts", "evidence"],
    "gpt": ["next", "attention", "positions", "senses", "surprisal"],
    "relative": ["next", "attention", "positions", "senses", "surprisal"],
    "placeless": ["next", "attention", "senses", "surprisal"],
    "bert": ["attention", "fill", "masks", "positions", "senses"],
    "lstm": ["next", "gates", "senses", "surprisal"],
    "gru": ["next", "gates", "senses", "surprisal"],
    "elman": ["next", "gates", "senses", "surprisal"],
    "elmo": ["next", "gates", "senses", "surprisal"],
    "bow": ["leave_one_out"],
    "bayes": ["leave_one_out"],
    "rnn": ["gates", "leave_one_out"],
    "cnn": ["filters", "leave_one_out"],
    "tagger": ["gates"],
    "window": [],
    "translator": ["sentence_map", "teacher_forcing"],
    "aligner": ["alignment", "coverage", "sentence_map", "teacher_forcing"],
    "transformer": ["alignment", "coverage", "sentence_map", "teacher_forcing"],
    "words": ["word_map"],
}
TEXT = {
    "bert": "the [MASK] eats grass and hay",
    "bow": "a fine film",
    "bayes": "a fine film",
    "rnn": "a fine film",
    "cnn": "a fine film",
    "tagger": "the dog eats",
    "words": "cows",
    "translator": "the cow\tdie Kuh",
    "aligner": "the cow\tdie Kuh",
    "transformer": "the cow\tdie Kuh",
}
SOURCES = "the cow | a dog | the dog | a cow"
SENTENCES = "cows\nthe cows eat grass\ncows eat hay\nthe dog sees cows\ngreen cows"
GIVEN = {"sentence_map": SOURCES, "senses": SENTENCES}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("views")
    made = {}
    for name, (kind, data, settings) in RUNS.items():
        made[name] = segue.train(kind, data, folder / name, settings, device="cpu", threads=1)
    return made


def text_of(name: str) -> str:
    return TEXT.get(name, "the cow eats")


def checked(view: View) -> View:
    """Numbers and names fit one another."""
    assert view.values_PRC.shape == (len(view.panels), len(view.rows), len(view.columns))
    assert view.values_PRC.dtype == np.float64 and view.title
    return view


def test_every_view_is_tried_here() -> None:
    assert {name for names in APPLY.values() for name in names} == set(views())


@pytest.mark.parametrize("name", RUNS)
def test_which_views_apply(runs: dict[str, Run], name: str) -> None:
    assert views_of(runs[name].model) == APPLY[name]


@pytest.mark.parametrize(("name", "view"), [(name, view) for name, found in APPLY.items() for view in found])
def test_every_view_can_be_drawn_and_sent(runs: dict[str, Run], name: str, view: str) -> None:
    shown = checked(runs[name].look(GIVEN.get(view, text_of(name)), view))
    assert json.loads(shown.json(), parse_constant=lambda word: pytest.fail(word))["rows"] == list(shown.rows)
    for drawn in (shown.terminal(), shown.terminal(60, colour=True), shown.html(), shown._repr_html_()):
        assert drawn.strip()


def test_masks_are_those_of_training_and_guesses_are_the_models(runs: dict[str, Run]) -> None:
    run, text = runs["bert"], "the cows eat grass and the dog sees a cow"
    shown = run.look(text, "masks", seed=3)
    shaded = [name for name, shade in zip(shown.columns, shown.values_PRC[0, 0], strict=True) if shade]
    assert len(shown.columns) == 12 and len(shaded) == round(0.15 * 12)
    (guesses,) = map(checked, shown.beside)
    assert len(guesses.rows) == len(shaded) and set(guesses.rows) <= set(text.split())
    assert (np.diff(guesses.values_PRC[0, :, :3]) <= 0).all() and guesses.values_PRC[0, :, :3].sum(1).max() <= 1
    assert shown.note.startswith(f"2 of 12 tokens are predicted: {shaded.count('<mask>')} masked")


# Language models


@pytest.mark.parametrize("name", ["ngram", "gpt", "lstm"])
def test_next_is_what_the_model_gives(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    shown = checked(run.look("the cow", top=1000))
    ids = [run.sizes.start, *run.tokenizer.encode("the cow").tolist()]
    state = run.model.start(1, len(ids))
    logits, _ = run.model.step(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), state)
    p = np.sort(logits[0].float().softmax(-1).numpy())[::-1]
    assert shown.values_PRC.sum(-1)[0] == pytest.approx(p, abs=1e-6) and shown.values_PRC.sum() == pytest.approx(1)
    assert "</s>" in shown.rows
    assert run.look("the cow", top=2).rows == shown.rows[:2]


@pytest.mark.parametrize("name", ["ngram", "scores"])
def test_evidence_is_what_each_order_gives_to_each_token(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    shown = checked(run.look("the cows eat hay", "evidence"))
    assert shown.columns == ("the", " cows", " eat", " hay", "</s>") and shown.rows[-1] == "1/V"
    assert shown.values_PRC.sum(1) == pytest.approx(1) and (shown.values_PRC >= 0).all()
    # “ eat” always follows “ cows”: the longest context speaks. Before the first word there is no such context.
    assert shown.values_PRC[0, 0, 2] > 0.5 and shown.values_PRC[0, 0, 0] == 0


def test_evidence_times_p_is_the_share(runs: dict[str, Run]) -> None:
    run = runs["ngram"]
    ids = [run.sizes.start, *run.tokenizer.encode("the cows eat").tolist()]
    found = run.look("the cows eat", "next", top=1000)
    place = found.rows.index(" hay")
    shares = run.look("the cows eat hay", "evidence").values_PRC[0, :, 3]
    p = run.model.distribution(ids)[run.tokenizer.encode("the cows eat hay")[-1]]
    assert shares * p == pytest.approx(found.values_PRC[0, place], abs=1e-9)


@pytest.mark.parametrize("name", ["ngram", "gpt", "gru"])
def test_surprisal_is_that_of_score(runs: dict[str, Run], name: str) -> None:
    (line,) = runs[name].score(["the cow eats"], end=True)
    shown = checked(runs[name].look("the cow eats", "surprisal"))
    assert shown.columns == (*line.tokens[:-1], "</s>")
    assert shown.values_PRC[0, 0] == pytest.approx(line.token_bits, rel=1e-4)


# Counts


WORDS = ["i", "want", "to", "eat", "chinese", "food", "lunch", "spend"]
BERKELEY = [
    *([5, 827, 0, 9, 0, 0, 0, 2], [2, 0, 608, 1, 6, 6, 5, 1], [2, 0, 4, 686, 2, 0, 6, 211], [0, 0, 2, 0, 16, 2, 42, 0]),
    *([1, 0, 0, 0, 0, 82, 1, 0], [15, 0, 15, 0, 1, 4, 0, 0], [2, 0, 0, 0, 0, 1, 0, 0], [1, 0, 1, 0, 0, 0, 0, 0]),
]
"""How often the column's word followed the row's in the Berkeley Restaurant corpus."""
PLAIN = ["data.unit=line", "tokens.kind=space", "data.validation=0", "model.order=2"]


@pytest.fixture(scope="module")
def berkeley(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a line for each time that one word followed another."""
    path = tmp_path_factory.mktemp("berkeley") / "berkeley.txt"
    pairs = [(a, b, n) for a, row in zip(WORDS, BERKELEY, strict=True) for b, n in zip(WORDS, row, strict=True)]
    path.write_text("".join(f"{a} {b}\n" * n for a, b, n in pairs))
    return path


def counted(path: Path, out: Path, *settings: str) -> dict[str, Any]:
    """Train an n-gram model by the command, and look at its counts by the command; the view as JSON."""
    assert main(["train", "ngram", str(path), *PLAIN, *settings, "--out", str(out)]) == 0
    return json.loads(segue.load(out).look(" ".join(WORDS), "counts").json())


def test_n9_the_berkeley_table_comes_from_a_file(
    berkeley: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = counted(berkeley, tmp_path / "run", "model.smoothing=maximum_likelihood")
    alone, *columns = np.array(shown["values"][0]).T
    table = np.array(columns).T
    assert shown["rows"] == WORDS and shown["columns"] == ["alone", *WORDS]
    assert table.tolist() == BERKELEY and table.sum(1).tolist() == [843, 629, 911, 62, 84, 35, 3, 2]
    assert "32 of these 64 counts are 0." in shown["note"] and table.sum() == 2569
    # A word stands in a line as often as it is followed by one of the words, and as often as it follows one.
    assert alone.tolist() == (table.sum(0) + table.sum(1)).tolist()
    p = np.array(shown["values"][1])[:, 1:]
    assert p == pytest.approx(table / alone[:, None], abs=1e-12)  # the second words are followed by STOP
    # 32 pairs of words, 8 first words after START, 8 last ones before STOP; 8 words, START or STOP, and UNK.
    assert "the model has 48 of 100, 48 %." in shown["note"]
    capsys.readouterr()
    assert main(["look", str(tmp_path / "run"), "i want", "--view", "counts"]) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert [line.split() for line in drawn[2:6]] == [
        *(["count"], ["alone", "i", "want"], ["i", "871", "5", "827"], ["want", "1,456", "2", "0"]),
    ]


def test_n12_adding_one_takes_most_from_what_was_often_seen(berkeley: Path, tmp_path: Path) -> None:
    """The effective count, p(w|h) c(h), beside the plain one."""
    shown = counted(berkeley, tmp_path / "run", "model.smoothing=add_alpha", "model.alpha=1")
    counts, p = np.array(shown["values"])[:, :, 1:]
    totals = np.array(shown["values"])[0, :, 0]
    size = round(1 / p[0, 2] - totals[0])  # "to" never followed "i": p = 1 / (c(i) + V)
    assert size == 9 and "the model has 48 of 81, 59.3 %." in shown["note"]  # the words and STOP; no UNK
    assert p == pytest.approx((counts + 1) / (totals[:, None] + size), abs=1e-12)
    effective = p * totals[:, None]
    assert (effective[counts == 0] > 0).all() and effective[0, 1] < 827


def test_counts_of_a_longer_context_and_of_the_commonest_words(runs: dict[str, Run]) -> None:
    run = runs["scores"]
    shown = checked(run.look("cows | eat hay", "counts"))
    assert shown.rows == (" eat", " hay") and shown.columns == ("alone", " eat", " hay")
    # Of every three texts two have "cows eat"; one of them goes on with "hay".
    assert shown.values_PRC[0].tolist() == [[16.0, 0.0, 8.0], [0.0, 0.0, 0.0]] and shown.panels == ("count", "score")
    assert shown.values_PRC[1, 0, 2] == 0.5
    words = " ".join(TEXTS[:3]).split()
    most = checked(run.look(view="counts", top=2))
    assert {word.strip() for word in most.rows} <= {word for word in words if words.count(word) >= 2}
    assert "Kneser-Ney" in run_note(runs["ngram"]) and "Kneser-Ney" not in run_note(run)
    with pytest.raises(InputError, match="at most 1 before the bar"):
        run.look("the cows | eat", "counts")
    assert run.look("cows zebra", "counts").rows == (" cows",)
    with pytest.raises(InputError, match="never saw “zebra”"):
        run.look("zebra", "counts")
    with pytest.raises(InputError, match="asks for no token"):
        run.look("cows", "counts", top=0)


def run_note(run: Run) -> str:
    return run.look("cows", "counts").note


# Attention


@pytest.mark.parametrize("name", ["gpt", "relative"])
def test_attention_sums_to_one_and_looks_back(runs: dict[str, Run], name: str) -> None:
    shown = checked(runs[name].look("the cow", "attention"))
    assert shown.panels == tuple(f"layer {layer} head {head}" for layer in (1, 2) for head in (1, 2))
    assert shown.rows == shown.columns == ("<s>", *"the cow")
    assert shown.values_PRC.sum(-1) == pytest.approx(1, abs=1e-5)
    assert (shown.values_PRC[:, np.triu(np.ones((8, 8), bool), 1)] == 0).all()


def test_a_layer_and_a_head(runs: dict[str, Run]) -> None:
    whole = runs["gpt"].look("the cow", "attention")
    one = runs["gpt"].look("the cow", "attention", layer=2, head=1)
    assert one.panels == ("layer 2 head 1",) and (one.values_PRC[0] == whole.values_PRC[2]).all()
    for options in ({"layer": 3}, {"head": 5}, {"layer": -1}):
        with pytest.raises(InputError, match="this model has"):
            runs["gpt"].look("the cow", "attention", **options)


def test_a_text_that_is_longer_than_the_window(runs: dict[str, Run]) -> None:
    shown = checked(runs["gpt"].look("the cow " * 10, "attention"))
    assert len(shown.rows) == 16 and "The first 16 of 81 tokens" in shown.note


# Positions


def test_close_places_are_alike_by_sinusoids() -> None:
    """P18, over the distance 0: width 512, falling until a distance of 43."""
    found = by_distance(Positions("sinusoidal", 200, 512, 4, 128))[0]
    dots = [256, 249.102, 231.734, 211.749, 189.597, 173.790, 157.574, 131.091, 111.950]
    assert found[[0, 1, 2, 3, 5, 10, 20, 50, 100]] * 256 == pytest.approx(dots, abs=5e-3)
    assert (np.diff(found)[:43] < 0).all() and np.diff(found)[43] > 0


def test_places_by_the_other_kinds() -> None:
    """One-hot places have nothing in common; rotary: the mean cosine of the angles; relative: a bias a head."""
    assert by_distance(Positions("onehot", 6, 8, 2, 4))[0].tolist() == [1, 0, 0, 0, 0, 0]
    angles = np.arange(6)[:, None] * 10_000.0 ** -np.array([0, 0.5])
    assert by_distance(Positions("rotary", 6, 8, 2, 4))[0] == pytest.approx(np.cos(angles).mean(1), abs=1e-6)
    relative = Positions("relative", 6, 8, 2, 4)
    assert by_distance(relative) == pytest.approx(relative.table.weight[:6].T.detach().numpy())


def test_the_view_of_positions(runs: dict[str, Run]) -> None:
    shown = checked(runs["gpt"].look("", "positions", top=5))
    assert shown.columns == ("0", "1", "2", "3", "4") and shown.values_PRC[0, 0, 0] == pytest.approx(1)
    weight = runs["gpt"].model.positions.table.weight.detach().double()
    near = torch.cosine_similarity(weight[1:], weight[:-1]).mean()
    assert shown.values_PRC[0, 0, 1] == pytest.approx(float(near))
    assert checked(runs["relative"].look("", "positions")).rows == ("head 1", "head 2")
    with pytest.raises(InputError, match="asks for no distance"):
        runs["gpt"].look("", "positions", top=0)


# Gates


@pytest.mark.parametrize(("name", "gates", "last"), [("lstm", 3, "tanh of the cell c"), ("gru", 2, "hidden h")])
def test_gates_lie_between_0_and_1(runs: dict[str, Run], name: str, gates: int, last: str) -> None:
    shown = checked(runs[name].look("the cow", "gates", top=1000))
    assert shown.columns == ("<s>", *"the cow") and len(shown.rows) == 8
    assert ((shown.values_PRC[:gates] > 0) & (shown.values_PRC[:gates] < 1)).all()
    assert shown.panels[-1] == last and (np.abs(shown.values_PRC[gates:]) < 1).all()


def test_gates_are_those_of_the_equation(runs: dict[str, Run]) -> None:
    """The first token, where h = c = 0: i, f, o = s(W x + b), c = i tanh(W_g x + b_g), from torch's weights."""
    model = runs["lstm"].model
    shown = runs["lstm"].look("", "gates", top=1000)
    core = model.body.core
    with torch.no_grad():
        x_D = model.vectors(torch.tensor(runs["lstm"].sizes.start))
        i, f, g, o = (core.weight_ih_l0 @ x_D + core.bias_ih_l0 + core.bias_hh_l0).chunk(4)
        cell = i.sigmoid() * g.tanh()
    expected = torch.stack([i.sigmoid(), f.sigmoid(), o.sigmoid(), cell.tanh()])[:, :, None].numpy()
    assert shown.values_PRC == pytest.approx(expected, abs=1e-6)


def test_the_last_hidden_state_is_that_of_the_network(runs: dict[str, Run]) -> None:
    run = runs["gru"]
    ids = torch.tensor([[run.sizes.start, *run.tokenizer.encode("the cow").tolist()]])
    with torch.no_grad():
        _, state = run.model(Batch(ids, ids, torch.ones_like(ids, dtype=torch.bool)))
    shown = run.look("the cow", "gates", top=1000)
    assert shown.values_PRC[-1, :, -1] == pytest.approx(state.h_LBD[-1, 0].numpy(), abs=1e-5)


def test_layers_units_and_directions_of_gates(runs: dict[str, Run]) -> None:
    second = checked(runs["lstm"].look("the cow", "gates", layer=2, top=3))
    assert len(second.rows) == 3 and "3 of 8 units" in second.note and "layer 2" in second.title
    both = checked(runs["tagger"].look("the dog eats", "gates"))
    assert both.columns == ("the", "dog", "eats") and len(both.panels) == 8 and "from the right" in both.panels[-1]
    assert checked(runs["rnn"].look("a fine film", "gates")).columns == ("a", "fine", "film")
    with pytest.raises(InputError, match="layers 1 to 2"):
        runs["lstm"].look("the cow", "gates", layer=3)


# Classifiers and word vectors


@pytest.mark.parametrize("name", ["bow", "bayes", "rnn"])
def test_leaving_out_is_what_explain_says(runs: dict[str, Run], name: str) -> None:
    ((answer, words),) = runs[name].predict(["a fine film"], explain=True)
    shown = checked(runs[name].look("a fine film", "leave_one_out"))
    assert shown.columns == ("a", "fine", "film") and answer.label in shown.title
    assert shown.values_PRC[0, 0].tolist() == [word.drop for word in words]


def test_filters_show_the_words_that_they_fit_best(runs: dict[str, Run]) -> None:
    """Each filter by hand: its weights times the vectors of every k words, zeros beyond the ends of the text."""
    model = runs["cnn"].model
    shown = checked(runs["cnn"].look("a fine film", "filters", top=12))
    ids = runs["cnn"].tokenizer.encode("a fine film").tolist()
    x_TD = model.vectors.weight[ids].detach()
    expected = {}
    for layer in model.convolutions:
        k = layer.width
        padded = torch.cat([torch.zeros(k - 1, x_TD.shape[1]), x_TD, torch.zeros(k - 1, x_TD.shape[1])])
        c_TF = torch.stack([layer.linear(padded[t : t + k].flatten()) for t in range(3 + k - 1)]).relu().detach()
        for number in range(4):
            place = int(c_TF[:, number].argmax())
            words = " ".join(["a", "fine", "film"][max(0, place - k + 1) : place + 1])
            expected[f"{words}  (width {k}, filter {number + 1})"] = float(c_TF[place, number])
    found = dict(zip(shown.rows, shown.values_PRC[0, :, 0].tolist(), strict=True))
    assert found == pytest.approx(expected, abs=1e-6) and list(found.values()) == sorted(found.values(), reverse=True)
    assert runs["cnn"].look("a fine film", "filters", top=2).rows == shown.rows[:2]
    with pytest.raises(InputError, match="asks for no filter"):
        runs["cnn"].look("a fine film", "filters", top=0)


def test_the_map_has_the_nearest_words(runs: dict[str, Run]) -> None:
    shown = checked(runs["words"].look("cows", top=3))
    near = [word.strip() for word, _ in words_of(runs["words"]).nearest("cows", 3)]
    assert shown.rows == ("cows", *near) and shown.columns == ("x", "y", "group")
    assert (shown.values_PRC[0, :, 2] == 0).all() and np.ptp(shown.values_PRC[0, :, 0]) > 0
    whole = checked(runs["words"].look())
    assert len(whole.rows) > 4 and len(set(whole.values_PRC[0, :, 2].tolist())) > 1


# Two runs, and what is refused


# Sequence to sequence


def test_alignment_of_a_pair(runs: dict[str, Run]) -> None:
    run = runs["aligner"]
    shown = checked(run.look("the cow", "alignment", target="eine Kuh"))
    assert shown.columns == ("the", "cow") and shown.rows == ("eine", "Kuh", "</s>")
    alpha_TS = run.model.alignment(pair_batch(run.opened, [("the cow", "eine Kuh")]).to("cpu"))[0].detach().numpy()
    the = alpha_TS[:, :3].sum(1)  # the blank is part of the word after it
    np.testing.assert_allclose(shown.values_PRC[0, :, 0], [the[:4].mean(), the[4:8].mean(), the[8]], rtol=1e-6)
    np.testing.assert_allclose(shown.values_PRC[0].sum(1), 1, rtol=1e-6)
    assert f"the {shown.values_PRC[0, :, 0].sum():.2f}, cow" in shown.note
    same = run.look("the cow\teine Kuh", "alignment")
    assert same.rows == shown.rows and (same.values_PRC == shown.values_PRC).all()
    (own,) = run.predict(["the cow"])
    assert run.look("the cow", "alignment").rows[:-1] == tuple(own.text.split())


def test_coverage_is_the_sum_of_the_columns(runs: dict[str, Run]) -> None:
    aligned, covered = (checked(runs["aligner"].look("the cow\tdie", view)) for view in ("alignment", "coverage"))
    np.testing.assert_allclose(covered.values_PRC[0, 0], aligned.values_PRC[0].sum(0))
    assert covered.columns == aligned.columns


def test_layers_and_heads_of_cross_attention(runs: dict[str, Run]) -> None:
    run, text = runs["transformer"], "the cow\tdie Kuh"
    shown = checked(run.look(text, "alignment", layer=2))
    assert shown.panels == ("layer 2 head 1", "layer 2 head 2")
    np.testing.assert_allclose(shown.values_PRC.sum(-1), 1, rtol=1e-6)
    assert checked(run.look(text, "alignment", layer=1, head=2)).panels == ("layer 1 head 2",)
    last = run.look(text, "alignment").values_PRC[0]  # the mean of the last layer's heads
    np.testing.assert_allclose(shown.values_PRC.mean(0), last, atol=1e-6)
    with pytest.raises(InputError, match="no head 3: this model has heads 1 to 2"):
        run.look(text, "alignment", head=3)


@pytest.mark.parametrize("name", ["translator", "aligner", "transformer"])
def test_a_map_of_sources_has_the_distances_of_their_vectors(runs: dict[str, Run], name: str) -> None:
    """Of three sources the plane holds all differences, so that no distance is lost."""
    sources = ["the cow", "a dog", "the dog"]
    shown = checked(runs[name].look(" | ".join(sources), "sentence_map"))
    assert shown.rows == tuple(sources) and shown.values_PRC[0, :, 2].tolist() == [0, 1, 2]
    batch = pair_batch(runs[name].opened, [(source, "") for source in sources]).to("cpu")
    vectors = runs[name].model.eval().sentence_vectors(batch.source, batch.source_mask).detach()
    np.testing.assert_allclose(
        torch.cdist(torch.tensor(shown.values_PRC[0, :, :2]), torch.tensor(shown.values_PRC[0, :, :2])),
        torch.cdist(vectors, vectors),
        atol=1e-4,
    )
    alone = pair_batch(runs[name].opened, [("a dog", "")]).to("cpu")  # padding changes nothing
    np.testing.assert_allclose(
        runs[name].model.sentence_vectors(alone.source, alone.source_mask)[0].detach(), vectors[1], atol=1e-6
    )
    with pytest.raises(InputError, match="3 sources or more; found 2"):
        runs[name].look("the cow | a dog", "sentence_map")


def test_pharaohs_pairs_with_predictions(
    runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = str(runs["aligner"].path), tmp_path / "sources.txt"
    file.write_text("the cow\na dog\n")
    assert main(["predict", path, str(file), "--alignment"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["predict", path, str(file), "--alignment", "--json"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line, found, source in zip(lines, objects, ("the cow", "a dog"), strict=True):
        text, links = line.split(" ||| ")
        rows = runs["aligner"].look(source, "alignment", target=text).values_PRC[0]
        assert found["alignment"] == [[int(row.argmax()), t] for t, row in enumerate(rows[:-1])]
        assert found["translation"] == text and links == " ".join(f"{s}-{t}" for s, t in found["alignment"])
    assert main(["predict", path, str(file), "--alignment", "decode.n_best=2"]) == 2
    assert "--alignment is of one translation" in capsys.readouterr().err
    assert main(["predict", str(runs["translator"].path), str(file), "--alignment"]) == 2
    assert "no attention over a source" in capsys.readouterr().err
    assert main(["predict", str(runs["bow"].path), str(file), "--alignment"]) == 2
    assert "no attention over a source" in capsys.readouterr().err


def test_teacher_forcing_beside_reading_itself(runs: dict[str, Run]) -> None:
    run = runs["translator"]
    (own,) = run.predict(["the cow"], ["decode.beam=1", "decode.max_tokens=20"])
    shown = checked(run.look("the cow", "teacher_forcing", target="die Kuh"))
    reference, free = ("".join(cells[i] for cells in shown.cells_RC) for i in (0, 2))
    assert reference == "dieKuh</s>" and free.startswith(own.text.replace(" ", ""))
    (score,) = run.score(["the cow\tdie Kuh"])
    np.testing.assert_allclose(np.log(shown.values_PRC[0, : len(score.logprobs), 0]), score.logprobs, rtol=1e-5)
    marked = [row for row in shown.rows if row.endswith(">")]
    step = int(marked[0].split()[0])
    before, there = shown.cells_RC[: step - 1], shown.cells_RC[step - 1]
    assert all(a == b == c for a, b, c in before) and there[0] != there[2] and there[1] == there[2]
    assert f"part at step {step}" in shown.note and there[0] in shown.terminal()
    assert own.text != "die Kuh" and "never part" in run.look("the cow", "teacher_forcing", target=own.text).note


def test_what_a_pair_lacks_is_said(runs: dict[str, Run]) -> None:
    with pytest.raises(InputError, match=r"none is given.*tab.*--target"):
        runs["translator"].look("the cow", "teacher_forcing")
    with pytest.raises(InputError, match="one alignment"):
        runs["aligner"].look("the cow\tdie Kuh", "alignment", layer=1)
    with pytest.raises(InputError, match="'alignment' does not apply to rnn_seq2seq"):
        runs["translator"].look("the cow\tdie Kuh", "alignment")
    with pytest.raises(InputError, match="no text"):
        runs["translator"].look("\tdie Kuh", "teacher_forcing")


def test_two_runs_side_by_side(runs: dict[str, Run]) -> None:
    shown = runs["gpt"].look("the cow", other=runs["lstm"])
    (other,) = shown.beside
    alone = runs["lstm"].look("the cow")
    assert other.rows == alone.rows and (other.values_PRC == alone.values_PRC).all()
    assert shown.title.startswith(str(runs["gpt"].path)) and other.title.startswith(str(runs["lstm"].path))
    assert json.loads(shown.json())["beside"][0]["rows"] == list(alone.rows)
    for drawn in (shown.terminal(), shown.svg()):
        assert str(runs["lstm"].path) in drawn


def test_what_does_not_apply_is_said(runs: dict[str, Run]) -> None:
    with pytest.raises(
        InputError, match=r"'attention' does not apply to rnn_lm. Views that do: next, gates, senses, surpris"
    ):
        runs["lstm"].look("the", "attention")
    with pytest.raises(InputError, match=r"no view 'atention'.*attention"):
        runs["gpt"].look("the", "atention")
    with pytest.raises(InputError, match="no view applies"):
        runs["window"].look("the")
    with pytest.raises(InputError, match=r"has no option 'head'. It takes: layer, top"):
        runs["lstm"].look("the", "gates", head=1)
    with pytest.raises(InputError, match=r"'surprisal' has no option 'target'. It takes no options"):
        look(runs["lstm"].opened, "surprisal", "the", target="die")
    with pytest.raises(InputError, match="'attention' does not apply to rnn_lm"):
        runs["gpt"].look("the", "attention", other=runs["lstm"])
    for name, view in (("bow", "leave_one_out"), ("rnn", "gates")):
        with pytest.raises(InputError, match="no text"):
            runs[name].look(" ", view)


def test_the_command_line(
    runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpt, lstm = str(runs["gpt"].path), str(runs["lstm"].path)
    assert main(["look", gpt, "the cow", "--view", "attention", "--layer", "1", "--head", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "heat" and said["panels"] == ["layer 1 head 2"]
    page, picture = tmp_path / "a.html", tmp_path / "a.svg"
    assert main(["look", gpt, "the", "--with", lstm, "--html", str(page), "--svg", str(picture)]) == 0
    assert page.read_text().startswith("<!doctype html>") and picture.read_text().startswith("<svg")
    assert main(["look", lstm, "the cow", "--view", "gates", "--top", "3"]) == 0
    assert "forget gate f" in capsys.readouterr().out
    assert main(["look", lstm, "the cow", "--view", "attention"]) == 2
    assert "Views that do: next, gates, senses, surprisal." in capsys.readouterr().err
    assert main(["look", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert ", ".join(views()) in shown


def test_a_first_word_is_known_as_within_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = segue.train("ngram", [f"the {text}" for text in TEXTS], tmp_path / "run", COUNTED | {"model.order": 3})
    assert main(["look", str(run.path), "cows eat"]) == 0
    said = capsys.readouterr()
    assert "Unknown" not in said.err and "order 3: “cows eat”, c(h) = " in said.out
    assert main(["look", str(run.path), "pigs eat"]) == 0
    assert "Unknown to this model, and read as such: 'pigs'" in capsys.readouterr().err
