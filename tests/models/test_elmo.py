"""ELMo: both halves against torch.nn, what each half may see, unknown words, and its use as a body."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import segue
from segue.batches.batch import IGNORE, Batch
from segue.batches.codec import BodySpec, Codec, Sizes
from segue.batches.spelled_words import LONGEST, word_column
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.errors import InputError
from segue.models.elmo import Elmo
from segue.models.finetuned_classifier import FinetunedClassifier
from segue.models.finetuned_tagger import FinetunedTagger
from segue.tasks import task
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

V, D = 13, 6
CONFIG = Elmo.Config(width=D, letter=4, filters=(3, 4, 5), highways=1)


@pytest.fixture
def model() -> Elmo:
    torch.manual_seed(1)
    return Elmo(CONFIG, Sizes(V)).double().eval()


def batch_of(lengths: tuple[int, ...] = (7, 7, 7), seed: int = 0) -> Batch:
    tokens_BT = torch.randint(2, V, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    targets_BT = tokens_BT.roll(-1, 1).masked_fill(~mask_BT, IGNORE)
    whole = bool(mask_BT.all())
    return Batch(tokens_BT * mask_BT, targets_BT, mask_BT, unpadded=whole)


def near(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


def reference(half: nn.Module, x_BTD: Tensor) -> list[Tensor]:
    """The layers by nn.LSTM alone, with the residual written out."""
    outs: list[Tensor] = []
    for number, layer in enumerate(half.layers):  # type: ignore[arg-type]
        lstm = nn.LSTM(D, D, batch_first=True).double()
        lstm.load_state_dict(layer.core.state_dict())
        h_BTD, _ = lstm(x_BTD)
        x_BTD = h_BTD + x_BTD if number else h_BTD
        outs.append(x_BTD)
    return outs


def test_both_losses_are_those_of_two_language_models(model: Elmo) -> None:
    batch = batch_of()
    x_BTD = model.words(batch.tokens_BT)
    ahead = model.head(reference(model.forward_half, x_BTD)[-1]).log_softmax(-1)
    back = model.head(reference(model.backward_half, x_BTD.flip(1))[-1].flip(1)).log_softmax(-1)
    expected = -ahead.gather(2, batch.targets[:, :, None]).sum(), torch.zeros(()).double()
    for row in range(3):
        for t in range(1, 7):  # the state at t has read w_t … w_T, and predicts w_{t-1}
            expected[1].sub_(back[row, t, batch.tokens_BT[row, t - 1]])
    terms = model.loss(batch).terms
    assert [term.name for term in terms] == ["cross_entropy", "backward"]
    for term, total in zip(terms, expected, strict=True):
        near(term.total, total)
        assert int(term.count) == model.counts(batch)[term.name]
    near(model.logprobs(batch)[0].sum(), -expected[0])


def test_the_states_of_a_body_are_both_halves_side_by_side(model: Elmo) -> None:
    batch = batch_of()
    x_BTD, hidden = model.words(batch.tokens_BT), model.encode(batch)
    assert hidden.shape == (model.depth, 3, 7, model.width)
    near(hidden[0], torch.cat([x_BTD, x_BTD], -1))
    back = [b.flip(1) for b in reference(model.backward_half, x_BTD.flip(1))]
    for layer, sides in enumerate(zip(reference(model.forward_half, x_BTD), back, strict=True), 1):
        near(hidden[layer], torch.cat(sides, -1))
    near(model.unembed(hidden[-1]), model(batch)[0])


def test_no_half_sees_the_other_side(model: Elmo) -> None:
    batch = batch_of()
    before = model.encode(batch)[1:]
    for place in range(7):
        tokens = batch.tokens_BT.clone()
        tokens[:, place] = 2 + (tokens[:, place] - 1) % (V - 2)
        changed = (model.encode(replace(batch, tokens_BT=tokens))[1:] - before).abs().amax((0, 1)) > 1e-12
        ahead, back = changed[:, :D].any(1), changed[:, D:].any(1)
        assert ahead.tolist() == [t >= place for t in range(7)]
        assert back.tolist() == [t <= place for t in range(7)]


def test_padding_changes_nothing_and_each_row_is_read_back_from_its_own_end(model: Elmo) -> None:
    lengths = (7, 2, 5)
    batch = batch_of(lengths)
    together, terms = model.encode(batch), model.loss(batch).terms
    totals = torch.zeros(2).double()
    for row, length in enumerate(lengths):
        alone = Batch(*(x[row : row + 1, :length] for x in (batch.tokens_BT, batch.targets, batch.mask_BT)))
        near(together[:, row : row + 1, :length], model.encode(alone))
        assert not together[:, row, length:].any()
        totals += torch.stack([term.total for term in model.loss(alone).terms])
    near(torch.stack([term.total for term in terms]), totals)
    assert model.counts(batch) == {"cross_entropy": 14, "backward": 11}


def test_the_state_goes_on_in_the_forward_half_and_step_equals_forward(model: Elmo) -> None:
    batch = batch_of()
    logits_BTV, end = model(batch)
    state = model.start(3, 7)
    for t in range(7):
        one = batch.tokens_BT[:, t : t + 1]
        logits_BV, state = model.step(one, torch.ones_like(one, dtype=torch.bool), state)
        near(logits_BV, logits_BTV[:, t])
    near(state.h_LBD, end.h_LBD)
    first = replace(batch, tokens_BT=batch.tokens_BT[:, :3], mask_BT=batch.mask_BT[:, :3])
    rest = replace(batch, tokens_BT=batch.tokens_BT[:, 3:], mask_BT=batch.mask_BT[:, 3:])
    near(model(rest, model(first)[1])[0], logits_BTV[:, 3:])


def test_every_weight_learns_and_dropout_is_drawn_in_training_alone(model: Elmo) -> None:
    loss = model.loss(batch_of())
    sum(term.total for term in loss.terms).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    dropped = Elmo(replace(CONFIG, dropout=0.5), Sizes(V)).double()
    dropped.load_state_dict(model.state_dict())
    assert not torch.equal(dropped.train().encode(batch_of()), model.encode(batch_of()))
    near(dropped.eval().encode(batch_of()), model.encode(batch_of()))


@pytest.mark.parametrize(
    ("values", "named"), [({"filters": ()}, "filters"), ({"highways": -1}, "highways"), ({"backward": 0.0}, "backward")]
)
def test_impossible_sizes_are_refused(values: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Elmo.Config(**values)


# As a body: the letters of unknown words reach it

TEXT = "the cow eats green grass and the farmer sleeps"


def codec_of(kind: str, head: type, classes: int = 2, window: int = 32) -> Codec:
    tokenizer = Tokenizer.train(Tokens(kind=kind, min_count=1), [TEXT])  # type: ignore[arg-type]
    own = Sizes(tokenizer.vocab_size)
    sizes = Sizes(tokenizer.vocab_size, classes, body=BodySpec("elmo", asdict(CONFIG), own), window=window)
    return Codec(tokenizer, ("a", "b"), Data(), sizes, inputs=(*head.inputs, "chars_BTC"))


@pytest.mark.parametrize("kind", ["word", "space"])
def test_a_classifier_reads_two_unknown_words_apart(kind: str) -> None:
    codec = codec_of(kind, FinetunedClassifier, window=8)
    torch.manual_seed(0)
    model = FinetunedClassifier(FinetunedClassifier.Config(frozen=True, mix=True), codec.sizes).double().eval()
    torch.nn.init.normal_(model.head.weight)
    model.body.spell([codec.tokenizer.name(i) for i in range(codec.tokenizer.vocab_size)])
    texts = [
        "the gnu eats",
        "the yak eats",
        "the gnu eats",
        "",
        "the cow eats " * 4 + "gnu",
        "the cow eats " * 4 + "yak",
    ]
    columns = task("classify").encode([Example(text) for text in texts], codec, labelled=False)
    scores, _ = model(task("classify").collate(columns, 9999).to("cpu"))
    near(scores[0], scores[2])
    assert not torch.allclose(scores[0], scores[1])  # both are UNK, and their letters differ
    assert not torch.allclose(scores[4], scores[5])  # also in a later window
    known = task("classify").encode([Example("the cow eats")], codec, labelled=False)
    assert not task("classify").collate(known, 9999).chars_BTC.any()  # the body knows these itself


@pytest.mark.parametrize("kind", ["word", "space"])
def test_a_tagger_reads_two_unknown_words_apart(kind: str) -> None:
    codec = codec_of(kind, FinetunedTagger)
    torch.manual_seed(0)
    model = FinetunedTagger(FinetunedTagger.Config(frozen=True, mix=True), codec.sizes).double().eval()
    torch.nn.init.normal_(model.head.weight)
    rows = [Example(words=("the", word, "eats")) for word in ("gnu", "yak", "gnu")]
    batch = task("tag").collate(task("tag").encode(rows, codec, labelled=False), 9999)
    scores = model.scores(batch.to("cpu"))
    near(scores[0], scores[2])
    assert not torch.allclose(scores[0, 1], scores[1, 1])
    assert (batch.chars_BTC > 0).any(2).sum() == 3


# A run

FEW = {"model.width": 16, "model.filters": "8,8,8", "train.steps": 6, "batches.size": 4, "batches.length": 16}


@pytest.fixture(scope="module")
def lines() -> list[str]:
    draw = np.random.default_rng(0)
    nouns, verbs = ["cow", "hen", "dog", "cat", "farmer"], ["sees", "eats", "likes"]
    return [f"the {draw.choice(nouns)} {draw.choice(verbs)} a {draw.choice(nouns)} number{i % 90}" for i in range(300)]


@pytest.fixture(scope="module")
def run(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    return segue.train("elmo", lines, tmp_path_factory.mktemp("elmo") / "run", settings=FEW)


def test_a_run_is_a_language_model_that_reads_unknown_words(run: segue.Run, lines: list[str]) -> None:
    assert run.evaluate()["bits_per_byte"] > 0
    assert run.generate("the ", max_tokens=5, seed=0)
    gnu, yak, again = (
        line.logprobs for line in run.score(["the gnu eats a cow", "the yak eats a cow", "the gnu eats a cow"])
    )
    assert gnu == again and gnu[:2] == yak[:2]  # what comes before, and the unknown word itself, are as likely
    assert gnu[2:] != yak[2:]
    a, b = run.embed(["the gnu", "the yak"])
    assert a.shape == (32,) and not np.allclose(a, b)


def test_the_spelling_is_saved_with_the_weights(run: segue.Run) -> None:
    opened = segue.load(run.path)
    letters = opened.model.words.letters_VC
    word = opened.tokenizer.encode("the cow")[1]
    assert letters[word][2:5].tolist() == [ord(letter) + 1 for letter in "cow"]


def test_streams_carry_the_letters_of_unknown_words(tmp_path: Path) -> None:
    from segue.batches.batches import Config as Batches
    from segue.batches.encode import encode_text
    from segue.batches.streams import Streams
    from segue.batches.unit_rows import UnitRows

    tokenizer = Tokenizer.train(Tokens(kind="word", min_count=1), [TEXT])
    texts = ["the gnu eats", "zebras and gnus eat", "the cow and the farmer", "yaks"]
    store = encode_text([Example(text) for text in texts], tokenizer, tmp_path, letters=True).store
    words = [" gnu", " zebras", " gnus", " eat", " yaks"]
    assert [store.columns["letters"].row(i).tolist() for i in range(5)] == [[ord(c) + 1 for c in w] for w in words]
    for made in (Streams(store, Batches(size=2, length=4), 0), UnitRows(store, Batches(size=2, length=8), 0)):
        seen = []
        for step in range(5 * made.per_epoch):  # an epoch leaves out what does not fill its columns
            for part in made.at(step):
                assert part.chars_BTC.shape == (*part.tokens_BT.shape, LONGEST)
                assert ((part.chars_BTC > 0).any(2) == (part.mask_BT & (part.tokens_BT == 1))).all()
                seen += [tuple(row[row > 0]) for row in part.chars_BTC[part.tokens_BT == 1]]
        assert {tuple(word_column([w]).flat) for w in words} == set(seen)


def test_subwords_are_refused(lines: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tokens.kind=bpe is not for this model: it reads word or space tokens"):
        segue.train("elmo", lines, tmp_path / "run", settings={**FEW, "tokens.kind": "bpe"})


class KilledError(Exception):
    """What ends a run in the middle."""


def test_a_killed_run_resumes_bit_for_bit(lines: list[str], tmp_path: Path) -> None:
    """With the letters of unknown words, some of them hidden, dropout, and the state of the forward half."""
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    settings = {**FEW, "model.dropout": 0.2, "train.steps": 12, "train.every": 4, "train.log_every": 2}

    def killed(what: str, share: float, note: str = "") -> None:
        if note.startswith("step 10"):
            raise KilledError

    segue.train("elmo", str(path), tmp_path / "once", settings, device="cpu")
    with pytest.raises(KilledError):
        segue.train("elmo", str(path), tmp_path / "twice", settings, device="cpu", progress=killed)
    segue.train(None, out=tmp_path / "twice", resume=True, device="cpu")
    once, twice = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("once", "twice"))
    assert once == twice


def test_frozen_under_a_tagger_it_keeps_its_weights_and_reads_new_words(run: segue.Run, tmp_path: Path) -> None:
    rows = [(["the", f"{noun}s", "see", "it"], ["D", "N", "V", "P"]) for noun in ("yak", "gnu", "emu")] * 20
    settings = {"model.body": str(run.path), "model.frozen": True, "model.mix": True, "train.epochs": 10}
    tagger = segue.train("finetuned_tagger", rows, tmp_path / "tags", {**settings, "data.validation": 0.1})
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weight, tagger.model.body.state_dict()[name])
    weights = tagger.model.mix.scores.softmax(0)
    assert len(weights) == 3 and not torch.allclose(weights, weights.mean())  # how much each layer counts was learnt
    (said,) = tagger.predict(["the zebus see it"])
    assert said.tags == ("D", "N", "V", "P")


def test_several_corpora_carry_their_letters(tmp_path: Path) -> None:
    from segue.batches.batches import Config as Batches
    from segue.batches.encode import encode_mixed
    from segue.batches.streams import Streams

    tokenizer = Tokenizer.train(Tokens(kind="space", min_count=1), [TEXT])
    texts = [[Example("the gnu eats grass and gnus eat"), Example("yaks")], [Example("zebras eat green grass")]]
    store = encode_mixed(texts, None, tokenizer, tmp_path, letters=True).store
    streams = Streams(store, Batches(size=2, length=4), 0)
    seen = set()
    for step in range(20):
        for part in streams.at(step):
            assert ((part.chars_BTC > 0).any(2) == (part.tokens_BT == 1)).all()
            seen |= {"".join(chr(c - 1) for c in row[row > 0]) for row in part.chars_BTC[part.tokens_BT == 1]}
    assert seen == {"gnu", "gnus", "eat", "yaks", "zebras"}


def test_a_neural_cache_is_not_made_of_states_that_look_ahead(run: segue.Run, lines: list[str]) -> None:
    found = segue.evaluate(run, lines[:40], cache=True, validation=None)
    assert not any("neural" in name for name in found["weights"])
