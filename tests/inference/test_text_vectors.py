"""Vectors of texts: pooled as by hand, whatever stands beside a text in its batch; long texts in windows; files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.batch import Batch
from segue.batches.codec import BodySpec, Codec, Sizes
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.inference.opened import Opened
from segue.inference.text_vectors import text_vectors, unit, write_npy
from segue.models.bert import Bert
from segue.models.finetuned_classifier import FinetunedClassifier
from segue.models.gpt import Gpt
from segue.models.ngram import Ngram
from segue.models.rnn_lm import RnnLm
from segue.tasks import classify, lm, masked_lm
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

TEXTS = ["a", "bad cab", "abc dab cab", "", "dad"] * 5
CONTEXT = 16


def opened(kind: Any, decode: Decode = Decode(), **config: Any) -> Opened:  # noqa: B008
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(Tokens(kind="char"), ["abc d"])
    made = kind.Config(**config)
    sizes = Sizes(tokenizer.vocab_size, marks=kind.marks(made))
    model = kind(made, sizes).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    task = masked_lm.TASK if kind is Bert else lm.TASK
    return Opened(model, Codec(tokenizer, (), Data(), sizes, inputs=kind.inputs_of(made)), decode, CONTEXT, task)


SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert": (Bert, {"layers": 2, "width": 16, "heads": 2, "context": CONTEXT}),
    "gpt": (Gpt, {"layers": 2, "width": 16, "heads": 2, "context": CONTEXT}),
    "rnn_lm": (RnnLm, {"width": 16, "layers": 2, "embedding": 16}),
}


def vectors(one: Opened, texts: list[str], **how: Any) -> Any:
    return np.array(list(text_vectors(one, (Example(text=text) for text in texts), **how)))


def states(one: Opened, text: str) -> Any:
    """hidden_LTD of one text alone, without the marks around it."""
    sizes, ids = one.codec.sizes, one.codec.tokenizer.encode(text).tolist()
    framed = [sizes.start, *ids, *([sizes.stop] if isinstance(one.model, Bert) else [])]
    row = np.array([framed])
    with torch.inference_mode():
        hidden = one.model.encode(Batch(row, None, np.ones_like(row, bool), unpadded=True).to("cpu"))[:, 0]
    return hidden[:, 1 : 1 + len(ids)].numpy()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_vectors_are_the_pooled_states_of_each_text_alone(name: str, pooling: str) -> None:
    kind, config = SHAPES[name]
    one = opened(kind, **config)
    for layer in (None, 0, 1):
        found = vectors(one, TEXTS, pooling=pooling, layer=layer)
        assert found.shape == (len(TEXTS), 16) and found.dtype == np.float32
        for text, x_D in zip(TEXTS, found, strict=True):
            hidden_TD = states(one, text)[-1 if layer is None else layer] if text else np.zeros((1, 16))
            expected = hidden_TD.mean(0) if pooling == "mean" else hidden_TD[-1]
            assert x_D == pytest.approx(expected, abs=1e-5)


def test_the_first_state_is_that_of_the_start() -> None:
    one = opened(*SHAPES["bert"][:1], **SHAPES["bert"][1])
    row = np.array([[one.codec.sizes.start, *one.codec.tokenizer.encode("bad cab"), one.codec.sizes.stop]])
    with torch.inference_mode():
        hidden = one.model.encode(Batch(row, None, np.ones_like(row, bool), unpadded=True).to("cpu"))
    assert vectors(one, ["bad cab"], pooling="first")[0] == pytest.approx(hidden[-1, 0, 0].numpy(), abs=1e-5)


def test_without_a_start_mark_a_language_model_reads_the_text_alone() -> None:
    kind, config = SHAPES["gpt"]
    one = opened(kind, Decode(start=False), **config)
    row = one.codec.tokenizer.encode("bad cab")[None].astype(np.int64)
    with torch.inference_mode():
        hidden = one.model.encode(Batch(row, None, np.ones_like(row, bool), unpadded=True).to("cpu"))
    assert vectors(one, ["bad cab"])[0] == pytest.approx(hidden[-1, 0].mean(0).numpy(), abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_long_texts_are_read_in_windows(name: str) -> None:
    """The mean is of all tokens, each read in its window; the last state is of the last window."""
    kind, config = SHAPES[name]
    one = opened(kind, **config)
    room = CONTEXT - (2 if name == "bert" else 1)
    text = "abc dab cab bad " * 3
    parts = [text[begin : begin + room] for begin in range(0, len(text), room)]
    whole = np.concatenate([states(one, part)[-1] for part in parts])
    assert len(whole) == len(text)
    assert vectors(one, ["a", text])[1] == pytest.approx(whole.mean(0), abs=1e-5)
    assert vectors(one, ["a", text], pooling="last")[1] == pytest.approx(whole[-1], abs=1e-5)


def test_a_pair_is_framed_as_one() -> None:
    kind, config = SHAPES["bert"]
    one = opened(kind, **config)
    (pair,) = text_vectors(one, [Example(text="ab", target="cd")])
    assert vectors(one, ["ab\tcd"])[0] == pytest.approx(pair) and vectors(one, ["ab cd"])[0] != pytest.approx(pair)
    assert vectors(one, ["ab\tcd" * 9]).shape == (1, 16)  # both sides longer than the window


def test_a_fine_tuned_model_gives_the_vectors_of_its_body() -> None:
    kind, config = SHAPES["bert"]
    one = opened(kind, **config)
    spec = BodySpec("bert", dataclasses.asdict(one.model.config), one.codec.sizes)
    sizes = dataclasses.replace(one.codec.sizes, classes=2, body=spec, window=CONTEXT)
    model = FinetunedClassifier(FinetunedClassifier.Config(), sizes).eval()
    model.body.load_state_dict(one.model.state_dict())
    headed = one._replace(model=model, codec=one.codec._replace(sizes=sizes), task=classify.TASK)
    # Rows of labelled text have a blank before them.
    assert vectors(headed, TEXTS) == pytest.approx(vectors(one, [" " + text for text in TEXTS]), abs=1e-5)
    assert vectors(headed, TEXTS, layer=1).shape == (len(TEXTS), 16)


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("bert", {"pooling": "middle"}, "pooling=middle is not known"),
        ("bert", {"layer": 3}, "no layer 3: expected 0 .* to 2"),
        ("bert", {"layer": -1}, "no layer -1"),
        ("gpt", {"pooling": "first"}, "from left to right"),
    ],
)
def test_what_cannot_be_pooled_is_refused_before_a_text_is_read(name: str, how: Any, message: str) -> None:
    kind, config = SHAPES[name]

    def unread() -> Iterator[Example]:
        raise AssertionError("a text was read")
        yield Example()

    with pytest.raises(InputError, match=message):
        text_vectors(opened(kind, **config), unread(), **how)


def test_models_that_count_have_no_vectors() -> None:
    config = Ngram.Config()
    one = opened(*SHAPES["bert"][:1], **SHAPES["bert"][1])._replace(model=Ngram(config, Sizes(5)))
    with pytest.raises(InputError, match="ngram has no hidden states"):
        text_vectors(one, [])


# Files


@pytest.mark.parametrize("rows", [0, 1, 7, 1234])
def test_a_numpy_file_is_written_row_by_row(tmp_path: Path, rows: int) -> None:
    made = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
    path = tmp_path / "x.npy"
    assert write_npy(path, iter(made)) == (rows, 3 if rows else 0)
    assert np.array_equal(np.load(path, mmap_mode="r" if rows else None), made.reshape(rows, -1 if rows else 0))
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_fails_is_not_left_half_written(tmp_path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield np.zeros(3, np.float32)
        raise InputError("no more")

    with pytest.raises(InputError):
        write_npy(tmp_path / "x.npy", broken())
    assert not list(tmp_path.iterdir())


def test_a_unit_vector_has_length_one_and_zeros_stay() -> None:
    assert np.linalg.norm(unit(np.array([3.0, 4.0], np.float32))) == pytest.approx(1)
    assert not unit(np.zeros(3, np.float32)).any()
