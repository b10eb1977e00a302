"""The playground and its API: the same answers as the runs themselves, within limits, to this machine alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import uvicorn
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

import segue
from segue import serve as package
from segue.cli import main
from segue.errors import InputError, SegueError
from segue.inference import decode
from segue.models.base import TaskName
from segue.serve import connection
from segue.serve import engine as limits
from segue.serve.app import STATIC, _counted, create_app
from segue.serve.engine import MAX_BODY, Engine, Growth, Served

TEXTS = ["the cows eat grass", "the dog sees a cow", "a café für die Ärzte €", "grass is green"] * 8
SMALL = {"model.width": 8, "train.steps": 3, "data.validation": 0}
COUNTED = {"data.validation": 0, "data.unit": "line"}
REVIEWS = [("good", "a fine film"), ("bad", "a dull film")] * 20
TAGGED = [(["the", "cow", "eats"], ["D", "N", "V"]), (["a", "dog"], ["D", "N"])] * 10
ANSWERED = [("who eats?", "the cow eats grass", "the cow"), ("who?", "a dog", "")] * 10
SMALL_HEAD = {"train.steps": 3, "data.validation": 0}
PAIRS = [("the cow", "die Kuh"), ("a dog", "ein Hund")] * 10

RUNS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "char": ("ngram", TEXTS, COUNTED),
    "byte": ("rnn_lm", TEXTS, SMALL | {"tokens.kind": "byte"}),
    "space": ("ngram", TEXTS, COUNTED | {"tokens.kind": "space"}),
    "bpe": ("ngram", TEXTS, COUNTED | {"tokens.kind": "bpe", "tokens.vocab_size": 280}),
    "pieces": ("ngram", TEXTS, COUNTED | {"tokens.kind": "wordpiece", "tokens.vocab_size": 100}),
    "bare": ("ngram", TEXTS, COUNTED | {"model.smoothing": "maximum_likelihood"}),
    "masked": ("bert", TEXTS, SMALL | {"model.heads": 2, "model.layers": 1, "model.context": 16, "batches.length": 16}),
    "answers": ("finetuned_answerer", ANSWERED, SMALL_HEAD | {"model.body": "masked"}),
    "classes": ("bow", REVIEWS, {"train.steps": 20, "data.validation": 0}),
    "tags": ("window_tagger", TAGGED, {"train.steps": 20, "data.validation": 0, "batches.length": 8}),
    "pairs": ("rnn_seq2seq", PAIRS, SMALL | {"tokens.kind": "char"}),
    "words": ("word2vec", TEXTS, COUNTED | {"model.width": 8, "tokens.min_count": 1, "train.threads": 1}),
}
WRITERS = ["char", "byte", "space", "bpe"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("runs")
    for name, (kind, data, settings) in RUNS.items():
        if body := settings.get("model.body"):
            settings = settings | {"model.body": str(folder / body)}
        segue.train(kind, data, folder / name, settings, device="cpu", threads=1)
    return Engine([folder / name for name in RUNS], device="cpu")


@pytest.fixture(scope="module")
def client(engine: Engine) -> TestClient:
    return TestClient(create_app(engine), base_url="http://localhost:8000")


def strict(body: str | bytes) -> Any:
    """JSON without NaN and Infinity, which Python's reader would let pass."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(body, parse_constant=refuse)


def ask(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == 200, response.text
    return strict(response.content)


def refused(client: TestClient, path: str, status: int = 400, **body: Any) -> str:
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == status, response.text
    (error,) = strict(response.content).values()
    assert error.endswith((".", "?")) and "\n" not in error
    return str(error)


def streamed(client: TestClient, **body: Any) -> list[dict[str, Any]]:
    response = client.post("/api/stream", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    messages = response.text.split("\n\n")
    assert messages.pop() == "", "every event ends in an empty line"
    return [strict(message.removeprefix("data: ")) for message in messages]


# The answers are those of the runs


def test_runs_are_described(client: TestClient, engine: Engine) -> None:
    rows = strict(client.get("/api/runs").content)
    assert [row["name"] for row in rows] == list(RUNS)
    by_name = {row["name"]: row for row in rows}
    assert {row["task"] for row in rows} == set(get_args(TaskName))
    assert by_name["char"]["model"] == "ngram" and by_name["char"]["tokens"] == "char"
    assert by_name["tags"]["labels"] == list(engine["tags"].run.labels) == ["D", "N", "V"]
    assert by_name["byte"]["figures"]["steps"] == 3
    assert by_name["byte"]["decode"]["temperature"] == 1.0


@pytest.mark.parametrize("name", RUNS)
def test_look_shows_what_the_run_shows(client: TestClient, engine: Engine, name: str) -> None:
    texts = {"classes": "a fine film", "masked": "the [MASK] eat", "pairs": "a cow | a dog | the cow\tdie Kuh"}
    text = (texts | {"answers": "who?\tthe cow eats"}).get(name, "cow")
    (found,) = [run["views"] for run in strict(client.get("/api/runs").content) if run["name"] == name]
    for view in found:
        read = "cow\nthe cow eats\na cow\nthe dog sees a cow" if view == "senses" else text
        shown = engine[name].run.look(read, view)
        assert ask(client, "look", run=name, text=read, view=view) == json.loads(shown.json())
    if found:
        assert ask(client, "look", run=name, text=text) == ask(client, "look", run=name, text=text, view=found[0])


def test_look_takes_options_and_a_second_run(client: TestClient, engine: Engine) -> None:
    answer = ask(client, "look", run="char", text="the", top=2, **{"with": "byte"})
    assert len(answer["rows"]) == len(answer["beside"][0]["rows"]) == 2
    assert ask(client, "look", run="byte", text="the", view="gates", layer=1, top=3)["kind"] == "heat"
    assert "does not apply" in refused(client, "look", run="byte", text="the", view="attention")
    assert "no view 'nxt'" in refused(client, "look", run="char", text="the", view="nxt")
    assert "no view applies" in refused(client, "look", run="tags", text="the")
    assert "stands in 0 sentences" in refused(client, "look", run="byte", text="cow", view="senses")  # opens no file
    asked = {"run": "pairs", "text": "the cow", "target": "die Kuh", "view": "alignment"}
    assert ask(client, "look", **asked) == engine["pairs"].run.look("the cow", "alignment", target="die Kuh").to_dict()
    assert "top" in refused(client, "look", run="char", text="the", top=limits.MAX_TOP + 1)


@pytest.mark.parametrize("name", WRITERS)
def test_generate_writes_what_the_run_writes(client: TestClient, engine: Engine, name: str) -> None:
    settings = {"max_tokens": 12, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "seed": 5}
    answer = ask(client, "generate", run=name, prompt="the ", n=3, **settings)
    assert answer["texts"] == engine[name].run.generate("the ", n=3, **settings)
    assert answer["unknown"] == []


def test_the_unknown_is_said(client: TestClient) -> None:
    assert ask(client, "generate", run="char", prompt="thé Q")["unknown"] == ["Q"]
    assert ask(client, "next", run="space", context="the zebra")["unknown"] == [" zebra"]
    assert ask(client, "score", run="space", text="the zebra")["unknown"] == [" zebra"]
    assert streamed(client, run="char", prompt="Q")[-1]["unknown"] == ["Q"]


def test_the_start_mark_is_fed_as_asked_and_said(client: TestClient, engine: Engine) -> None:
    asked = {"run": "byte", "max_tokens": 8, "temperature": 0}
    bare = ask(client, "generate", **asked, prompt="the", start=False)
    assert bare["texts"] == [engine["byte"].run.generate("the", max_tokens=8, temperature=0.0, start=False)]
    assert not bare["start_mark"] and not streamed(client, **asked, prompt="the", start=False)[-1]["start_mark"]
    assert ask(client, "generate", **asked, prompt="", start=False)["start_mark"]  # nothing else could be read
    assert ask(client, "generate", **asked, prompt="the")["start_mark"]
    assert ask(client, "next", run="byte", context="the")["start_mark"]
    assert ask(client, "score", run="byte", text="the")["start_mark"]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("prompt", ["", "the cow", "für die "])
def test_a_stream_is_what_generate_writes(client: TestClient, name: str, prompt: str) -> None:
    """Also where it is hot, so that bytes come that make no character."""
    for seed, temperature in ((0, 1.0), (1, 3.0), (2, 0.0)):
        asked = {"run": name, "prompt": prompt, "max_tokens": 40, "temperature": temperature, "seed": seed}
        (text,) = ask(client, "generate", **asked)["texts"]
        *pieces, last = streamed(client, **asked)
        assert "".join(piece["text"] for piece in pieces) == last["done"] == text
        assert all(piece["text"] for piece in pieces)


def test_a_stream_ends_with_the_text_even_where_tokens_lose_something(client: TestClient) -> None:
    """WordPiece puts blanks right after the fact, so that only the end knows the text."""
    asked = {"run": "pieces", "prompt": "the", "max_tokens": 20, "seed": 3}
    assert [streamed(client, **asked)[-1]["done"]] == ask(client, "generate", **asked)["texts"]


def test_a_stream_says_how_it_ended(client: TestClient) -> None:
    long, short = (streamed(client, run="char", max_tokens=most, seed=1)[-1] for most in (4096, 2))
    assert long["ended"] and 0 < long["tokens"] < 4096
    assert not short["ended"] and short["tokens"] == 2


@given(
    st.lists(st.sampled_from([*b"a \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff"]), max_size=12), st.text("aé€", max_size=2)
)
def test_growth_adds_up_to_the_text(engine: Engine, written: list[int], prompt: str) -> None:
    """Whole characters and broken ones; a character is never shown before it is whole."""
    tokenizer = engine["byte"].run.tokenizer
    start, ids = tokenizer.encode(prompt).tolist(), [byte + 2 for byte in written]
    growth = Growth(tokenizer, start)
    text = ""
    for count, token in enumerate(ids, 1):
        text += growth.add(token)
        assert bytes(written[:count]).decode(errors="replace").startswith(text)
    assert text + growth.rest() == bytes(written).decode(errors="replace")


def test_score_gives_every_token_its_bits(client: TestClient, engine: Engine) -> None:
    text = "the cows sleep"
    for name in WRITERS:
        answer = ask(client, "score", run=name, text=text)
        (line,) = engine[name].run.score([text], end=True)
        assert "".join(row["token"] for row in answer["tokens"]) == text
        assert [row["logprob"] for row in answer["tokens"]] == line.logprobs
        assert sum(row["bits"] for row in answer["tokens"]) == pytest.approx(answer["bits"]) == pytest.approx(line.bits)
        assert answer["tokens"][-1]["token"] == ""


def test_an_impossible_token_has_null_bits(client: TestClient) -> None:
    answer = ask(client, "score", run="bare", text="green cows")
    assert answer["bits"] is None and None in [row["bits"] for row in answer["tokens"]]


def test_next_gives_the_likeliest_first(client: TestClient, engine: Engine) -> None:
    rows = ask(client, "next", run="char", context="the cow", top=100)["next"]
    probabilities = [row["probability"] for row in rows]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, abs=1e-5)
    assert rows[0]["token"] == "s"
    assert ask(client, "next", run="char", context="the cow", top=3)["next"] == rows[:3]


def test_predict_finds_answers(client: TestClient, engine: Engine) -> None:
    text = "the cow 😀 eats " * 6 + "grass"
    asked = f"who?\t{text}"
    (row,) = ask(client, "predict", run="answers", texts=[asked], n_best=3, threshold=-1000.0)["predictions"]
    (own,) = engine["answers"].run.predict([asked], {"decode.n_best": 3, "decode.threshold": -1000.0})
    assert row == {**own.json(), "cut": 0} and len(row["best"]) == 3
    assert text[row["begin"] : row["end"]] == row["answer"] != "" and row["windows"] > 1
    (row,) = ask(client, "predict", run="answers", texts=[asked], threshold=1000.0)["predictions"]
    assert (row["answer"], row["begin"], row["end"]) == ("", None, None)
    assert "has no tab" in refused(client, "predict", run="answers", texts=["who eats?"])


def test_predict_labels_tags_and_translates(client: TestClient, engine: Engine) -> None:
    texts = ["a fine film", "a dull film"]
    for text, row in zip(texts, ask(client, "predict", run="classes", texts=texts)["predictions"], strict=True):
        (own,) = engine["classes"].run.predict([text])
        assert row["label"] == own.label == max(row["probabilities"], key=row["probabilities"].__getitem__)
        assert list(row["probabilities"]) == ["bad", "good"] and sum(row["probabilities"].values()) == pytest.approx(1)
    (row,) = ask(client, "predict", run="tags", texts=["the  dog eats"])["predictions"]
    (own,) = engine["tags"].run.predict(["the  dog eats"])
    sure = list(own.probabilities)
    assert row == {"words": ["the", "dog", "eats"], "tags": ["D", "N", "V"], "probabilities": sure, "cut": 0}
    assert len(sure) == 3 and all(0 < p <= 1 for p in sure)
    (row,) = ask(client, "predict", run="pairs", texts=["the cow"])["predictions"]
    (own,) = engine["pairs"].run.predict(["the cow"])
    assert (row["translation"], row["logprob"]) == (own.text, own.logprob)
    assert "alignment" not in row
    (row,) = ask(client, "predict", run="pairs", texts=["the cow"], alignment=True)["predictions"]
    assert row["translation"] == own.text
    assert [target for _, target in row["alignment"]] == list(range(len(own.text.split())))
    assert "nothing to align" in refused(client, "predict", run="tags", texts=["the"], alignment=True)
    assert ask(client, "predict", run="tags", texts=[])["predictions"] == []


def test_predict_takes_settings_of_decoding_and_says_them(client: TestClient, engine: Engine) -> None:
    answer = ask(client, "predict", run="pairs", texts=["the cow", "a dog"], beam=4, max_tokens=3)
    own = list(engine["pairs"].run.predict(["the cow", "a dog"], {"decode.beam": 4, "decode.max_tokens": 3}))
    assert [row["translation"] for row in answer["predictions"]] == [one.text for one in own]
    assert answer["decode"] == {"beam": 4, "length_penalty": 0.6, "max_tokens": 3, "length_ratio": 3.0, "empty": False}
    (two,) = ask(client, "predict", run="pairs", texts=["the cow"], beam=4, n_best=2, max_tokens=3)["predictions"]
    assert 1 <= len(two["best"]) <= 2 and two["best"][0]["translation"] == two["translation"]
    assert "decode.beam=4" in refused(client, "predict", run="classes", texts=["a film"], beam=4)
    assert "decode" not in ask(client, "predict", run="classes", texts=["a film"])


def test_the_words_that_mattered_are_given_when_asked_for(client: TestClient, engine: Engine) -> None:
    texts = ["a fine film", "dull", ""]
    rows = ask(client, "predict", run="classes", texts=texts, explain=True)["predictions"]
    for row, (own, words) in zip(rows, engine["classes"].run.predict(texts, explain=True), strict=True):
        assert row["label"] == own.label
        assert [word["word"] for word in row["words"]] == [word.word for word in words]
        assert [word["drop"] for word in row["words"]] == pytest.approx([word.drop for word in words])
    fine = {word["word"]: word["drop"] for word in rows[0]["words"]}
    assert fine["fine"] == max(fine.values()) > 0
    assert "words" not in ask(client, "predict", run="classes", texts=texts)["predictions"][0]
    assert "cannot explain" in refused(client, "predict", run="tags", texts=["the cow"], explain=True)
    many = ["a film"] * (limits.MAX_EXPLAINED + 1)
    assert "explain" in refused(client, "predict", run="classes", texts=many, explain=True)
    assert len(ask(client, "predict", run="classes", texts=many)["predictions"]) == len(many)


def test_fill_is_what_the_run_fills(client: TestClient, engine: Engine) -> None:
    text = "the [MASK] eat <mask> zebra"
    for together in (False, True):
        answer = ask(client, "fill", run="masked", text=text, top=3, together=together)
        assert answer == {**json.loads(json.dumps(engine["masked"].run.fill(text, 3, together).json())), "unknown": []}
        assert [len(hole) for hole in answer["holes"]] == [3, 3]
    assert "no hole" in refused(client, "fill", run="masked", text="the cows")
    assert "made for lm" in refused(client, "fill", run="char", text=text)
    assert "Expected: run, text, top, together" in refused(client, "fill", run="masked", text=text, beam=3)


def test_embed_gives_a_vector_a_text(client: TestClient, engine: Engine) -> None:
    texts = ["the cows", "grass is green", ""]
    for name in ("masked", "byte", "pairs"):
        run = engine[name].run
        vectors = np.array(ask(client, "embed", run=name, texts=texts)["vectors"])
        assert vectors == pytest.approx(run.embed(texts), abs=1e-6) and len(vectors) == 3
    assert "no hidden states" in refused(client, "embed", run="char", texts=texts)
    assert "pooling=middle" in refused(client, "embed", run="masked", texts=texts, pooling="middle")


def test_nearest_is_what_the_vectors_say(client: TestClient, engine: Engine) -> None:
    run = engine["words"].run
    vectors = run.model.vectors[2:]  # without STOP and UNK
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    answer = ask(client, "nearest", run="words", text="cow - dog + grass", top=3)
    assert (answer["plus"], answer["minus"]) == (["cow", "grass"], ["dog"])
    (dog,), (cow,), (grass,) = (run.tokenizer.encode(f"a {word}")[1:] - 2 for word in ("dog", "cow", "grass"))
    scores = unit @ (unit[cow] - unit[dog] + unit[grass])
    scores[[dog, cow, grass]] = -np.inf  # what was asked about is no answer
    assert [row["score"] for row in answer["nearest"]] == pytest.approx(sorted(scores, reverse=True)[:3], abs=1e-5)
    one = ask(client, "nearest", run="words", text="cow", top=100)["nearest"]
    assert all(row["word"].strip() != "cow" for row in one) and len(one) == len(unit) - 1


def test_nearest_of_what_has_no_vector(client: TestClient) -> None:
    assert "'zebra' has no vector" in refused(client, "nearest", run="words", text="zebra")
    assert "there is no word in it" in refused(client, "nearest", run="words", text=" ")
    assert "made for lm" in refused(client, "nearest", run="char", text="cow")
    assert "made for embed" in refused(client, "predict", run="words", texts=["cow"])


def test_what_is_not_read_is_counted(client: TestClient) -> None:
    (row,) = ask(client, "predict", run="tags", texts=["the cow " * 6])["predictions"]
    assert (len(row["words"]), len(row["tags"]), row["cut"]) == (12, 8, 4)


# Limits and errors


LONG = "a" * (limits.MAX_CHARACTERS + 1)


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("generate", {"max_tokens": limits.MAX_TOKENS + 1}, "max_tokens"),
        ("generate", {"max_tokens": 0}, "max_tokens"),
        ("generate", {"n": limits.MAX_TEXTS + 1}, "n"),
        ("generate", {"n": 0}, "n"),
        ("generate", {"prompt": LONG}, "prompt"),
        ("generate", {"temperature": -1}, "temperature"),
        ("generate", {"top_p": 0}, "top_p"),
        ("generate", {"top_k": -1}, "top_k"),
        ("generate", {"seed": -1}, "seed"),
        ("generate", {"temprature": 1}, "temprature"),
        ("stream", {"max_tokens": limits.MAX_TOKENS + 1}, "max_tokens"),
        ("stream", {"n": 2}, "n"),
        ("score", {"text": LONG}, "text"),
        ("score", {}, "text"),
        ("score", {"text": 5}, "text"),
        ("next", {"context": LONG}, "context"),
        ("next", {"top": limits.MAX_TOP + 1}, "top"),
        ("predict", {"texts": ["a"] * (limits.MAX_ROWS + 1)}, "texts"),
        ("predict", {"texts": [LONG]}, "texts.0"),
        ("predict", {"texts": ["a"], "beam": limits.MAX_BEAM + 1}, "beam"),
        ("predict", {"texts": ["a"], "max_tokens": limits.MAX_TOKENS + 1}, "max_tokens"),
        ("nearest", {"text": LONG}, "text"),
        ("nearest", {"text": "a", "top": limits.MAX_TOP + 1}, "top"),
    ],
)
def test_limits(client: TestClient, path: str, body: dict[str, Any], key: str) -> None:
    assert refused(client, path, run="char", **body).startswith(f"{key}: ")


def test_the_limits_themselves_are_allowed(client: TestClient) -> None:
    assert len(ask(client, "generate", run="char", n=limits.MAX_TEXTS, max_tokens=2)["texts"]) == limits.MAX_TEXTS
    assert ask(client, "next", run="char", context=LONG[1:], top=limits.MAX_TOP)["next"]
    long = "😀" * limits.MAX_CHARACTERS  # the most bytes that a text can take
    assert client.post("/api/next", json={"run": "char", "context": long}).status_code == 200
    assert len(json.dumps({"run": "char", "context": long})) < MAX_BODY


def test_texts_are_limited_together(client: TestClient) -> None:
    half = "a" * (limits.MAX_CHARACTERS // 2 + 1)
    assert "together" in refused(client, "predict", run="classes", texts=[half, half])


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"", b'{"run": "char", "context": "\\ud800"}', b'{"run": "char", "top": NaN}', b"\xff"]
)
def test_what_is_no_request(client: TestClient, body: bytes) -> None:
    response = client.post("/api/next", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400 and set(response.json()) == {"error"}


def test_a_run_that_is_not_there(client: TestClient) -> None:
    assert refused(client, "next", run="chars") == "There is no run 'chars' here. Did you mean 'char'?"
    body = b'{"run": "\\ud800", "prompt": "a"}'
    response = client.post("/api/generate", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400 and b"There is no run '\\ud800'" in response.content


@pytest.mark.parametrize(
    ("path", "body"),
    [("generate", {}), ("stream", {}), ("score", {"text": "a"}), ("next", {})],
)
def test_a_verb_that_a_model_has_not(client: TestClient, path: str, body: dict[str, Any]) -> None:
    assert "made for classify" in refused(client, path, run="classes", **body)
    assert "made for lm" in refused(client, "predict", run="char", texts=["a"])


@pytest.mark.parametrize("written", [0, 1])
def test_an_error_of_the_model(client: TestClient, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    """It is the answer where nothing is written yet, and else the last event."""

    def stream(*_: Any, **__: Any) -> Iterator[int]:
        yield from [5] * written
        raise SegueError("It broke.")

    monkeypatch.setattr(decode, "stream", stream)
    if not written:
        assert refused(client, "stream", run="char") == "It broke."
        return
    first, last = streamed(client, run="char")
    assert first["text"] and last == {"error": "It broke."}


def test_what_goes_wrong_inside_is_said_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(engine["char"].run, "next_tokens", fail)
    client = TestClient(create_app(engine), base_url="http://localhost", raise_server_exceptions=False)
    assert "ZeroDivisionError: oh" in refused(client, "next", 500, run="char")


# One thread a model


def test_a_model_is_never_entered_twice_at_a_time(engine: Engine) -> None:
    inside, most = 0, 0
    meeting = threading.Barrier(2, timeout=10)

    def work() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.005)
        inside -= 1

    async def all_at_once() -> None:
        await asyncio.gather(*(engine["char"].do(work) for _ in range(8)))
        await asyncio.gather(engine["char"].do(meeting.wait), engine["byte"].do(meeting.wait))  # two models may

    asyncio.run(all_at_once())
    assert most == 1


def test_the_server_answers_while_a_model_works(client: TestClient, engine: Engine) -> None:
    done = threading.Event()

    async def busy() -> None:
        await engine["char"].do(done.wait, 10)

    working = threading.Thread(target=asyncio.run, args=[busy()])
    working.start()
    try:
        assert client.get("/api/runs").status_code == client.get("/").status_code == 200
        assert ask(client, "next", run="byte")["next"]
        assert not done.is_set()
    finally:
        done.set()
        working.join()


def test_others_get_their_turn_while_a_text_is_written(engine: Engine) -> None:
    async def both() -> int:
        served, answered = engine["byte"], 0
        async for _ in served.stream("", {"max_tokens": 40, "seed": 1}):
            answer = await asyncio.wait_for(served.do(served.next, "the", 1), 10)
            answered += len(answer["next"])
        return answered

    assert asyncio.run(both()) > 1


def test_who_goes_away_ends_the_writing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    served, write = engine["char"], Served._write
    begun: list[Any] = []  # held here, so that it does not end merely by being forgotten

    def watched(*arguments: Any) -> Any:
        begun.append(write(*arguments))
        return begun[-1]

    monkeypatch.setattr(Served, "_write", watched)

    async def leave() -> None:
        events = served.stream("the ", {"max_tokens": 4096})
        await anext(events)
        assert begun[0].gi_frame is not None
        await events.aclose()
        await served.do(lambda: None)

    asyncio.run(leave())
    assert begun[0].gi_frame is None


def asked_and_left(engine: Engine, path: str, body: dict[str, Any]) -> int:
    """Send a request to the app and close the connection at once; return the status of the answer that nobody reads."""
    content = json.dumps(body).encode()
    headers = {"host": "localhost", "content-type": "application/json", "content-length": str(len(content))}
    scope = {
        **{"type": "http", "method": "POST", "path": f"/api/{path}", "query_string": b"", "http_version": "1.1"},
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    messages = [{"type": "http.request", "body": content}]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def talk() -> None:
        await create_app(engine)(scope, receive, send)
        await engine[body["run"]].do(lambda: None)  # what was begun has ended by now

    asyncio.run(talk())
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("path", "work", "body"),
    [
        ("generate", "_write_many", {"run": "char", "n": 16, "max_tokens": 4096}),
        ("predict", "_predictions", {"run": "classes", "texts": ["a fine film " * 100] * 32, "explain": True}),
    ],
)
def test_who_goes_away_ends_the_work(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, path: str, work: str, body: dict[str, Any]
) -> None:
    whole, steps, begun = getattr(Served, work), [], []

    def counted(*arguments: Any) -> Any:
        begun.append(whole(*arguments))
        for step in begun[-1]:
            steps.append(step)
            yield step

    monkeypatch.setattr(Served, work, counted)
    assert asked_and_left(engine, path, body) == 499
    assert len(steps) < 10 and not any(steps)


def test_explaining_stops_between_two_readings(engine: Engine) -> None:
    read: list[int] = []

    def check() -> None:
        read.append(1)
        if len(read) == 70:
            raise SegueError("enough")

    with pytest.raises(SegueError, match="enough"):
        run = engine["classes"].run
        list(run.explain_examples([run.asked("a fine film " * 40)], check))
    assert len(read) == 70


def test_others_get_their_turn_while_texts_are_written(engine: Engine) -> None:
    served, ended = engine["char"], []

    async def talk() -> None:
        long = asyncio.create_task(served.generate("the ", 4, {"max_tokens": 4096}))
        long.add_done_callback(lambda _: ended.append("long"))
        await served.do(ended.append, "short")
        long.cancel()

    asyncio.run(talk())
    assert ended[0] == "short"


# To this machine alone


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1"])
def test_this_machine_is_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "", "[", "0.0.0.0"]
)
@pytest.mark.parametrize("path", ["/", "/api/runs", "/openapi.json"])
def test_another_name_is_refused(client: TestClient, host: str, path: str) -> None:
    response = client.get(path, headers={"Host": host})
    assert response.status_code == 403 and set(response.json()) == {"error"}


def test_any_name_is_answered_where_the_network_is_let_in(engine: Engine) -> None:
    open_to_all = TestClient(create_app(engine, local=False), base_url="http://models.example")
    assert open_to_all.get("/api/runs").status_code == 200


def test_pages_of_other_sites_are_refused(client: TestClient) -> None:
    body = {"run": "char"}
    own, other = "http://localhost:8000", "http://localhost:9000"
    assert client.post("/api/next", json=body, headers={"Origin": own}).status_code == 200
    for origin in (other, "https://evil.example", "null"):
        response = client.post("/api/next", json=body, headers={"Origin": origin})
        assert response.status_code == 403
        assert not any(name.startswith("access-control") for name in response.headers)
    assert client.post("/api/next", content=json.dumps(body), headers={"Content-Type": "text/plain"}).status_code == 400


def test_a_request_that_is_too_long_is_not_read(client: TestClient) -> None:
    assert client.post("/api/next", content=b" " * (MAX_BODY + 1)).status_code == 413
    assert client.post("/api/next", content=iter([b"{}"])).status_code == 411


def test_a_request_has_one_length(client: TestClient) -> None:
    both = {"Content-Length": "4", "Transfer-Encoding": "chunked"}
    response = client.post("/api/next", content=b"{}", headers=both)
    assert response.status_code == 400 and "both" in response.json()["error"]
    assert response.headers["connection"] == "close"


def test_what_arrives_is_counted_whatever_was_said() -> None:
    parts = [{"type": "http.request", "body": b" " * (MAX_BODY // 2), "more_body": True}] * 3

    async def receive() -> Any:
        return parts.pop()

    async def read() -> None:
        counted = _counted(receive, MAX_BODY)
        await counted()
        await counted()
        with pytest.raises(HTTPException, match="bytes"):
            await counted()

    asyncio.run(read())


def test_many_headers_are_refused(client: TestClient) -> None:
    assert client.get("/api/runs", headers=[(f"x-{i}", "1") for i in range(80)]).status_code == 200
    assert client.get("/api/runs", headers=[(f"x-{i}", "1") for i in range(10_000)]).status_code == 431


@pytest.mark.parametrize("host", ["localhost#@evil.com", "localhost:x", "evil@localhost", "[::1", "localhost\\", "a b"])
def test_a_host_that_is_no_name(client: TestClient, host: str) -> None:
    assert client.get("/api/runs", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://[", "http://]", "null", "", "http://[::1]x:9"])
def test_an_origin_that_is_no_site(client: TestClient, origin: str) -> None:
    assert client.get("/api/runs", headers={"Origin": origin}).status_code == 403
    first = [("Origin", "http://localhost:8000"), ("Origin", origin)]
    assert client.get("/api/runs", headers=first).status_code == 403


def test_a_path_that_is_not_there(client: TestClient) -> None:
    response = client.post("/v1/completions", json={})
    assert response.status_code == 404 and "/openapi.json" in response.json()["error"]


def test_a_key_of_another_request_is_told_what_is_expected(client: TestClient) -> None:
    assert refused(client, "next", run="char", text="a").endswith("Expected: run, context, top.")


# Connections


def test_connections_are_limited_in_number_and_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(connection.Connection, "most", 3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        server = uvicorn.Server(package._settings(create_app(engine)))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        idle = [socket.create_connection(address, timeout=10) for _ in range(3)]
        idle[0].sendall(b"POST /api/next HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        idle[1].sendall(b"GET / HT")
        with socket.create_connection(address, timeout=10) as refused:
            assert refused.recv(100).startswith(b"HTTP/1.1 503 ")
        for one in idle:  # nothing more comes: each is closed, and there is room again
            with one, suppress(ConnectionResetError):
                assert one.recv(100) == b""
        with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/api/runs", timeout=10) as response:
            assert len(strict(response.read())) == len(RUNS)
        server.should_exit = True
        thread.join(10)


def test_descriptors_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.Connection, "most", 500)
    monkeypatch.setattr(connection, "free_descriptors", lambda: 40)
    settings = package._settings(None)
    # What is accepted before one connection is looked at, in three rounds of the loop, still finds descriptors.
    assert connection.Connection.most + 3 * settings.backlog < 40


# The page


REFERENCE = re.compile(r'(?:href|src)="([^"]+)"')
PAGE = (STATIC / "index.html").read_text(encoding="utf-8")
SCRIPT = (STATIC / "app.js").read_text(encoding="utf-8")


def test_the_page_has_all_it_refers_to_and_forbids_the_rest(client: TestClient) -> None:
    response = client.get("/")
    assert response.text == PAGE
    assert response.headers["content-security-policy"].startswith("default-src 'self';")
    assert response.headers["x-content-type-options"] == "nosniff"
    names = REFERENCE.findall(PAGE)
    assert {"page.css", "style.css", "app.js"} <= set(names)
    for name in names:
        assert client.get(f"/{name}").status_code == 200, name
    assert client.get("/app.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_nothing_comes_from_outside(path: Path) -> None:
    content = path.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|[\"'(]//|@import", content)


def test_the_page_keeps_its_own_policy() -> None:
    """No script, style or handler inside the markup: the browser would refuse them."""
    assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", PAGE)


def test_text_never_becomes_markup() -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|Function\(", SCRIPT
    )


def test_the_page_knows_every_task_and_every_limit() -> None:
    for name in ("TASKS", "FIGURES", "PANELS"):
        table = re.search(rf"const {name} = {{(.*?)}};", SCRIPT, re.DOTALL)
        assert table
        assert set(re.findall(r"\b(\w+): [\[{A-Z]", table[1])) == set(get_args(TaskName))
    assert f'maxlength="{limits.MAX_CHARACTERS}"' in PAGE
    assert re.search(rf'name="max_tokens"[^>]* max="{limits.MAX_TOKENS}"', PAGE)


def test_the_api_describes_itself_without_pages_from_elsewhere(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        f"/api/{name}"
        for name in (
            "runs",
            "generate",
            "stream",
            "score",
            "fill",
            "embed",
            "next",
            "look",
            "source",
            "nearest",
            "predict",
        )
    }
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


# The verb


def folder_of(engine: Engine, name: str) -> str:
    return str(engine[name].run.path)


def test_names_tell_runs_apart(engine: Engine, tmp_path: Path) -> None:
    char = Path(folder_of(engine, "char"))
    twins = [tmp_path / "a" / "x", tmp_path / "b" / "x"]
    for twin in twins:
        twin.parent.mkdir()
        twin.symlink_to(char)
    with pytest.raises(InputError, match="named twice"):
        Engine(twins)
    assert list(limits._names([Path("a/x"), Path("b/x"), Path("b/y")])) == ["a/x", "b/x", "b/y"]
    assert list(limits._names([Path("a/x"), Path("b/y")])) == ["x", "y"]


def test_bad_input_ends_with_one_message(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*words: str) -> str:
        assert main(["serve", *words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        return str(err)

    run = folder_of(engine, "char")
    assert "not a run folder" in said(str(tmp_path), "--port", "0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "Choose another --host or --port" in said(run, "--port", str(taken.getsockname()[1]))
    assert "port 70000" in said(run, "--port", "70000")
    assert "192.0.2.1" in said(run, "--host", "192.0.2.1", "--port", "0")
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    assert "pip install '.[serve]'" in said(run)


def test_the_server_itself(engine: Engine) -> None:
    """A real process: it says where it is, answers there, and ends with 0 when interrupted."""
    words = [sys.executable, "-m", "segue", "serve", folder_of(engine, "char"), "--port", "0"]
    source = str(Path(segue.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout and process.stderr
            found = re.fullmatch(
                r"Segue is at (http://127\.0\.0\.1:\d+/) \(Ctrl\+C ends it\)\n", process.stdout.readline()
            )
            assert found
            with urllib.request.urlopen(f"{found[1]}api/runs", timeout=10) as response:
                assert [row["name"] for row in strict(response.read())] == ["char"]
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
            assert process.stdout.read() == process.stderr.read() == ""
        finally:
            process.kill()
