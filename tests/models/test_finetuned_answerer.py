"""Answers on a body: begin and end by two softmaxes over the text, whatever the body; no other place is ever chosen."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.answer_windows import lay_out
from segue.batches.batch import IGNORE, Batch
from segue.batches.codec import BodySpec, Codec, Sizes
from segue.data.config import Config as Data
from segue.data.example import Answer, Example
from segue.inference.decode_settings import Config as Decode
from segue.inference.opened import Opened
from segue.models import model_class
from segue.models.finetuned_answerer import FinetunedAnswerer
from segue.tasks.answer import TASK
from segue.tasks.base import causal_body
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

BODIES: dict[str, dict[str, Any]] = {
    "bert": {"layers": 2, "width": 8, "heads": 2, "context": 48},
    "gpt": {"layers": 2, "width": 8, "heads": 2, "context": 48},
    "rnn_lm": {"width": 8},
}
TEXT = "the cow eats green grass"
ROWS = [
    Example("who eats?", target=TEXT, answers=(Answer(4, "cow"),)),
    Example("what?", target=TEXT + " and sleeps", answers=(Answer(13, "green grass"),)),
    Example("why?", target="it rains"),
]


def opened(body: str = "bert", window: int = 48, labels: tuple[str, ...] = ("begin", "end"), **values: Any) -> Opened:
    tokenizer = Tokenizer.train(Tokens(kind="byte"), [TEXT])
    cls = model_class(body)
    torch.manual_seed(0)
    config = cls.Config(**BODIES[body])
    own = Sizes(tokenizer.vocab_size, marks=cls.marks(config))
    sizes = Sizes(tokenizer.vocab_size, len(labels), marks=own.marks, window=window)
    sizes = replace(sizes, body=BodySpec(body, asdict(config), own))
    model = FinetunedAnswerer(FinetunedAnswerer.Config(**values), sizes).double().eval()
    torch.nn.init.normal_(model.head.weight)
    return Opened(model, Codec(tokenizer, labels, Data(), sizes, inputs=FinetunedAnswerer.inputs), Decode(), 48, TASK)


def batch_of(one: Opened, *rows: Example) -> Batch:
    return TASK.collate(TASK.encode(rows, one.codec), 48).to("cpu")


@pytest.mark.parametrize("body", BODIES)
def test_the_loss_is_the_mean_of_two_cross_entropies(body: str) -> None:
    one = opened(body)
    batch = batch_of(one, *ROWS)
    with torch.no_grad():
        logits_BT2 = one.model.head(one.model.body.encode(batch)[-1])
    nats = []
    for row in range(len(ROWS)):
        may = torch.nonzero(batch.answers_BT[row])[:, 0].tolist()
        for border in range(2):
            scores = {t: float(logits_BT2[row, t, border]) for t in may}
            target = int(batch.targets[row, border])
            nats.append(np.log(np.exp(list(scores.values())).sum()) - scores[target])
    [term] = one.model.loss(batch).terms
    assert float(term.total.detach()) / int(term.count) == pytest.approx(np.mean(nats)) and int(term.count) == 6
    assert one.model.counts(batch) == {"cross_entropy": 6}


@pytest.mark.parametrize("body", BODIES)
def test_question_frame_and_padding_have_no_probability(body: str) -> None:
    one = opened(body)
    batch = batch_of(one, *ROWS)
    with torch.inference_mode():
        p_B2T = one.model(batch)[0].softmax(-1)
    assert (p_B2T.masked_select(~batch.answers_BT[:, None].expand_as(p_B2T)) == 0).all()
    none = batch.mask_BT.sum(1) - 1 if causal_body(one.codec) else torch.zeros(3, dtype=torch.long)
    assert batch.targets[2].tolist() == [int(none[2])] * 2 and batch.answers_BT[range(3), none].all()


@pytest.mark.parametrize("body", BODIES)
def test_a_row_scores_the_same_alone_and_with_others(body: str) -> None:
    one = opened(body)
    together = one.model(batch_of(one, *ROWS))[0]
    for row, example in enumerate(ROWS):
        alone = one.model(batch_of(one, example))[0][0]
        torch.testing.assert_close(together[row, :, : alone.shape[1]], alone)


def test_a_judged_row_is_right_if_both_borders_are() -> None:
    one = opened()
    batch = batch_of(one, *ROWS)
    chosen = one.model(batch)[0].argmax(-1)
    half = torch.stack([chosen[1, 0], torch.tensor(IGNORE)])
    targets = torch.stack([chosen[0], chosen[1] + torch.tensor([0, 1]), torch.full_like(half, IGNORE)])
    judged = one.model.judge(replace(batch, targets=targets))
    assert (int(judged.right), judged.number) == (2, 4)


@pytest.mark.parametrize("body", BODIES)
def test_a_frozen_body_gets_no_gradient_and_its_states_can_be_kept(body: str) -> None:
    one = opened(body, frozen=True, mix=True)
    columns = TASK.encode(ROWS, one.codec)
    batch = TASK.collate(columns, 48).to("cpu")
    one.model.train()
    one.model.drop.p = 0.0
    [term] = one.model.loss(batch).terms
    term.total.backward()
    learnt = {name for name, parameter in one.model.named_parameters() if parameter.grad is not None}
    assert learnt == {"mix.scores", "mix.gamma", "head.weight", "head.bias"}
    assert one.model.states_in(columns).tolist() == columns["text"].lengths().tolist()
    hidden = one.model.read(batch).movedim(0, 2).flatten(2)
    kept = one.model.loss(replace(batch, hidden_BND=hidden)).terms[0].total
    torch.testing.assert_close(kept, term.total)


def test_long_texts_are_read_to_their_end() -> None:
    """A window that holds the sentence gives the same places, whatever stands before it in the text."""
    one = opened(window=24)
    tokens = one.codec.tokenizer
    text = "ab " * 40 + TEXT
    [span] = TASK.predict(one, [Example("q", target=text)])
    assert span.windows > 5 and text[span.begin : span.end] == span.answer
    asked = TASK.encode([Example("q", target=text)], one.codec, labelled=False)["text"]
    last = asked.rows()[-1]
    assert tokens.decode(last[-9:-1].tolist()) == text[-8:] and (asked.lengths() == 24).all()


def test_n_best_are_those_of_all_windows_by_brute_force() -> None:
    one = opened(window=24, labels=("begin", "end", "none"))
    one = one._replace(decode=Decode(n_best=5, max_tokens=6))
    example = Example("q", target=TEXT + " on the hill all day")
    columns = TASK.encode([example], one.codec, labelled=False)
    wanted: dict[tuple[int, int], float] = {}
    nones = []

    asked = lay_out([example], one.codec, none_last=False)
    with torch.inference_mode():
        p_B2T = one.model(TASK.collate(columns, 24).to("cpu"))[0].softmax(-1)
    for window, p_2T in zip(asked.windows, p_B2T, strict=True):
        nones.append(float(p_2T[0, 0] * p_2T[1, 0]))
        for i in range(window.size):
            for j in range(i, min(window.size, i + 6)):
                score = float(p_2T[0, window.head + i] * p_2T[1, window.head + j])
                place = asked.tokens[0].characters(example.target, window.first + i, window.first + j)
                if place[0] < place[1]:
                    wanted[place] = max(wanted.get(place, 0.0), score)
    [span] = TASK.predict(one, [example])
    ranked = sorted(wanted.items(), key=lambda pair: -pair[1])[:5]
    assert [(found.begin, found.end) for found in span.best] == [place for place, _ in ranked]
    assert [found.score for found in span.best] == pytest.approx([score for _, score in ranked], rel=1e-5)
    assert span.no_answer == pytest.approx(min(nones), rel=1e-5)
    given = bool(span.answer)
    assert given == (ranked[0][1] > min(nones))
    for threshold, answered in ((-1e6, True), (1e6, False)):
        [span] = TASK.predict(one._replace(decode=Decode(threshold=threshold)), [example])
        assert bool(span.answer) == answered and (span.begin is not None) == answered


@pytest.mark.parametrize("values", [{"dropout": 1.0}, {"layers": -1}, {"frozen": True, "layers": 1}])
def test_impossible_settings_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        FinetunedAnswerer.Config(**values)
