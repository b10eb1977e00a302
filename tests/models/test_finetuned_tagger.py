"""Tags on a body: the states that stand for words, whatever the body, its tokens and the length of the sentence."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.batch import IGNORE, Batch
from segue.batches.codec import BodySpec, Codec, Sizes
from segue.batches.store import Column
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.inference.decode_settings import Config as Decode
from segue.inference.opened import Opened
from segue.look.inside import look
from segue.models import model_class
from segue.models.finetuned_tagger import FinetunedTagger
from segue.tasks.tag import TASK
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

BODIES: dict[str, dict[str, Any]] = {
    "bert": {"layers": 2, "width": 8, "heads": 2, "context": 32},
    "gpt": {"layers": 2, "width": 8, "heads": 2, "context": 32},
    "rnn_lm": {"width": 8},
}
TEXT = "the cow eats green grass and the farmer sleeps"
WORDS = TEXT.split()


def opened(body: str = "bert", kind: str = "byte", window: int = 32, label: Any = "class", **values: Any) -> Opened:
    tokenizer = Tokenizer.train(Tokens(kind=kind, min_count=1), [TEXT])  # type: ignore[arg-type]
    cls, torch_seed = model_class(body), torch.manual_seed(0)
    config = cls.Config(**BODIES[body])
    own = Sizes(tokenizer.vocab_size, marks=cls.marks(config))
    spec = BodySpec(body, asdict(config), own)
    sizes = Sizes(tokenizer.vocab_size, 3, label, own.marks, body=spec, window=window)
    model = FinetunedTagger(FinetunedTagger.Config(**values), sizes).double().eval()
    torch.nn.init.normal_(model.head.weight, generator=torch_seed)
    codec = Codec(tokenizer, ("a", "b", "c"), Data(), sizes, inputs=FinetunedTagger.inputs)
    return Opened(model, codec, Decode(), 1000, TASK)


def sentence(*words: str) -> Example:
    return Example(text=" ".join(words), words=words, tags=("a",) * len(words))


def batch_of(one: Opened, *rows: Example) -> Batch:
    return TASK.collate(TASK.encode(rows, one.codec), one.codec.sizes.window).to("cpu")


@torch.inference_mode()
def scores(one: Opened, batch: Batch) -> Any:
    return one.model.scores(batch)


@pytest.mark.parametrize("body", BODIES)
def test_tags_of_space_tokens_are_unchanged_by_places_of_words(body: str) -> None:
    """Where every word is one token, its place says nothing new: the same scores as token by token."""
    one = opened(body, "space")
    batch = batch_of(one, sentence(*WORDS), sentence("cow", "unseen"))
    by_token = scores(one, replace(batch, firsts_BW=None))
    for row, count in enumerate((len(WORDS), 2)):
        assert torch.equal(scores(one, batch)[row, :count], by_token[row, 1 : count + 1])  # behind the start


@pytest.mark.parametrize("body", BODIES)
def test_a_word_is_tagged_where_it_has_been_read(body: str) -> None:
    """Its first piece of a body that sees both sides, its last one of a causal body: the last letter always counts."""
    one = opened(body)
    cow, cot = (batch_of(one, sentence("the", word)) for word in ("cow", "cot"))
    pieces = len(" cow")
    assert cow.firsts_BW[0].tolist() == ([1, 5] if body == "bert" else [pieces, 2 * pieces])
    by_token = scores(one, replace(cow, firsts_BW=None))
    torch.testing.assert_close(scores(one, cow)[0], by_token[0, cow.firsts_BW[0]])
    assert (scores(one, cow)[0, 1] - scores(one, cot)[0, 1]).abs().max() > 1e-6
    seen = (scores(one, cow)[0, 0] - scores(one, cot)[0, 0]).abs().max() > 1e-9
    assert bool(seen) == (body == "bert")  # what follows is seen from both sides only


def test_neighbours_and_padding_change_nothing() -> None:
    one, rows = opened(crf=True), [sentence("the", "cow"), sentence("green"), sentence("a", "b", "c", "d")]
    together = one.model(batch_of(one, *rows))[0].detach()
    wide = one.model(TASK.collate(TASK.encode(rows, one.codec), 32).padded(31).to("cpu"))[0].detach()
    for row, example in enumerate(rows):
        alone = one.model(batch_of(one, example))[0].detach()[0]
        torch.testing.assert_close(together[row, : len(example.words)], alone)
        torch.testing.assert_close(wide[row, : len(example.words)], alone)


def test_a_crf_is_over_words_not_over_pieces() -> None:
    """log p of the tags of a sentence, from the scores of its words alone."""
    one = opened(crf=True)
    batch = batch_of(one, sentence("the", "cow"), sentence("green"))
    torch.nn.init.normal_(one.model.crf.transitions_CC)
    emissions, crf = scores(one, batch), one.model.crf
    expected = sum(
        crf.log_likelihood(emissions[row : row + 1, :count], torch.zeros(1, count).long(), torch.ones(1, count).bool())
        for row, count in enumerate((2, 1))
    )
    (term,) = one.model.loss(batch).terms
    assert int(term.count) == 3 and -term.total.item() == pytest.approx(expected.item())


@pytest.mark.parametrize(("body", "crf"), [("bert", False), ("bert", True), ("gpt", False)])
def test_a_long_sentence_is_read_in_windows(body: str, crf: bool) -> None:
    """Every word has a tag; those in the middle of a window have the one that the window's words by themselves get."""
    one = opened(body, window=32, crf=crf)
    words = tuple(np.random.default_rng(0).choice(WORDS, 50))
    (said,) = TASK.predict(one, [sentence(*words)])
    assert len(said.tags) == len(said.probabilities) == 50
    assert TASK.cut(one, sentence(*words)) == 0 and TASK.cut(one, sentence("x" * 40)) == 1 + 41 + 1 - 32
    first = batch_of(one, sentence(*words)).rows([0]).to("cpu")
    owned = int((first.targets != IGNORE).sum())
    alone = tuple(words[: int((first.firsts_BW >= 0).sum())])
    assert len(alone) > owned > 0
    (short,) = TASK.predict(one, [sentence(*alone)])
    assert said.tags[:owned] == short.tags[:owned]
    assert said.probabilities[:owned] == pytest.approx(short.probabilities[:owned])


def test_several_tags_a_word_in_windows() -> None:
    one = opened(label="classes", window=20)
    words = tuple(WORDS * 3)
    (said,) = TASK.predict(one, [Example(words=words)])
    assert len(said.tags) == len(said.of_each) == len(words) and set(said.of_each[0]) == {"a", "b", "c"}
    rows = [Example(words=words, tags=("a|b", "_", "c") * (len(words) // 3))]
    batch = TASK.collate(TASK.encode(rows, one.codec), 20)
    assert batch.targets.shape[2] == 3 and batch.count == 3 * len(words)
    assert int((batch.targets == 1).sum()) == len(words)


def test_empty_sentences_have_no_tags() -> None:
    one = opened(crf=True)
    assert [len(said.tags) for said in TASK.predict(one, [sentence(), sentence("cow"), sentence()])] == [0, 1, 0]


@pytest.mark.parametrize(("body", "seen"), [("bert", "both sides"), ("gpt", "those before it")])
def test_a_view_of_attention_has_all_pieces(body: str, seen: str) -> None:
    """The head needs the last layer at the words alone, who looks inside all of it."""
    view = look(opened(body), "attention", "the cow")
    assert len(view.rows) == len(view.columns) == 1 + len(" the cow") + 1 and seen in view.note
    assert view.values_PRC.sum(-1) == pytest.approx(1)


def test_states_that_are_kept_are_those_that_the_body_gives() -> None:
    one = opened(frozen=True, mix=True)
    one.model.float()  # as they are kept
    columns = TASK.encode([sentence(*WORDS), sentence("cow")], one.codec)
    batch = TASK.collate(columns, 32).to("cpu")
    counts = one.model.states_in(columns)
    hidden_BND = one.model.read(batch).movedim(0, 2).flatten(2)
    rows = [states[:count].numpy().ravel() for states, count in zip(hidden_BND, counts, strict=True)]
    columns["hidden"] = Column(np.concatenate(rows), np.cumsum(counts), hidden_BND.shape[-1])
    kept = TASK.collate(columns, 32).padded(32).to("cpu")
    assert kept.hidden_BND.shape[:2] == kept.targets.shape == (len(counts), 32)
    again = scores(one, replace(kept, tokens_BT=torch.zeros_like(kept.tokens_BT)).to("cpu"))
    real = batch.firsts_BW >= 0
    torch.testing.assert_close(again[:, : real.shape[1]][real], scores(one, batch)[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("values", [{"layers": -1}, {"dropout": 1.0}, {"frozen": True, "layers": 1}], ids=str)
def test_impossible_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"layers|dropout"):
        FinetunedTagger.Config(**values)
