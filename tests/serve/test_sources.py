"""Sounds and pictures of requests: data URIs and items of built-in corpora give what the run gives; files are never
opened, and what is too large or broken is refused with its place."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import tracemalloc
import wave
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

import segue
from segue.data import scenes, tones
from segue.data.media import MEDIA, decoded
from segue.output.wav import wav
from segue.serve.app import STATIC, create_app
from segue.serve.engine import MAX_SOURCE_BODY, Engine
from segue.serve.sources import MAX_CHARACTERS, MAX_ENCODED, MAX_SECONDS

TINY = {"model.width": 8, "train.steps": 2, "data.validation": 0, "tokens.kind": "char", "batches.size": 2}
TINY |= {"decode.max_tokens": 8, "decode.beam": 2}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("runs")
    for name, item in (("heard", "tones"), ("seen", "shapes")):
        table = folder / f"{item}.tsv"
        table.write_text("".join(f"{item}:{i}\tab cd\n" for i in range(1, 5)))
        settings = TINY | {"data.rate": 8000, "data.pixels": 16}
        segue.train("rnn_seq2seq", str(table), folder / name, settings, device="cpu", threads=1)
    segue.train("rnn_seq2seq", [("a b", "c d")] * 8, folder / "read", TINY, device="cpu", threads=1)
    return Engine([folder / name for name in ("heard", "seen", "read")], device="cpu")


@pytest.fixture(scope="module")
def client(engine: Engine) -> TestClient:
    return TestClient(create_app(engine), base_url="http://localhost:8000")


def uri(seconds: float, rate: int = 8000) -> str:
    samples = np.sin(np.arange(round(seconds * rate)) / 9).astype(np.float32)
    return "data:audio/wav;base64," + base64.b64encode(wav(samples, rate)).decode()


def ask(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def refused(client: TestClient, path: str, status: int = 400, **body: Any) -> str:
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == status, response.text
    (error,) = response.json().values()
    assert error.endswith(".") and "\n" not in error
    return str(error)


def test_runs_say_what_their_sources_are(client: TestClient) -> None:
    heard, seen, read = client.get("/api/runs").json()
    assert (heard["source"], heard["rate"], heard["corpus"]) == ("sound", 8000, "")
    assert (seen["source"], seen["pixels"]) == ("picture", 16)
    assert read["source"] == "text" and "rate" not in read


def test_answers_are_those_of_the_run(client: TestClient, engine: Engine, tmp_path: Path) -> None:
    encoded, file = uri(0.3), tmp_path / "a.wav"
    file.write_bytes(base64.b64decode(encoded.partition(",")[2]))
    rows = ask(client, "predict", run="heard", texts=[encoded, "tones:17"])["predictions"]
    assert [row["translation"] for row in rows] == [
        one.text for one in engine["heard"].run.predict([str(file), "tones:17"])
    ]
    run = engine["heard"].run
    ways = [file, file.read_bytes(), decoded(encoded, run.codec.data)]  # as Python may give it
    assert {one.text for one in run.predict(ways)} == {rows[0]["translation"]}
    (by_name,), (by_bytes,) = run.score(f"{file}\tab"), run.score([(ways[1], "ab")])
    assert by_name.logprob == by_bytes.logprob
    (row,) = ask(client, "predict", run="seen", texts=["shapes:17"], n_best=2)["predictions"]
    assert len(row["best"]) == 2
    scored = ask(client, "score", run="heard", text=f"{encoded}\tab é")
    (line,) = engine["heard"].run.score([(str(file), "ab é")])
    assert scored["logprob"] == pytest.approx(line.logprob) and scored["unknown"] == ["é"]


def test_a_source_is_shown_as_the_model_reads_it(client: TestClient, engine: Engine) -> None:
    encoded = uri(0.3)
    shown = ask(client, "source", run="heard", text=encoded)
    assert shown["seconds"] == pytest.approx(0.3)
    heard = decoded(shown["sound"], engine["heard"].run.codec.data)
    np.testing.assert_allclose(heard, decoded(encoded, engine["heard"].run.codec.data), atol=1e-4)
    assert client.get("/").headers["content-security-policy"].count("data:") == 2  # pictures and sounds, no scripts
    (picture,) = ask(client, "source", run="seen", text="shapes:3").values()
    data = engine["seen"].run.codec.data
    np.testing.assert_array_equal(decoded(picture, data), decoded("shapes:3", data))
    assert "reads text" in refused(client, "source", run="read", text="a")


def test_the_page_knows_the_sources_and_their_limits() -> None:
    script = (STATIC / "app.js").read_text(encoding="utf-8")
    table = re.search(r"const SOURCES = {(.*?)\n};", script, re.DOTALL)
    assert table and set(re.findall(r"^  (\w+): {", table[1], re.MULTILINE)) == set(MEDIA)
    most = re.search(r"const MOST_BYTES = ([\d_]+);", script)
    assert most and int(most[1]) * 4 / 3 <= MAX_ENCODED
    unseen = re.search(r"const UNSEEN = ([\d_]+);", script)
    assert unseen and int(unseen[1]) > max(tones.SENTENCES, scenes.SENTENCES)


FILES = ("/etc/passwd", "a.wav", "../a.wav", "{file}", "file://{file}", "tones:1\t{file}", "{file}|tones:1", " {file}")
NAMES = ("", "tones:", "tones:1234567890", "data:text/plain;base64,AAAA", "data:audio/wav;base64,AAAA|{file}")


@pytest.mark.parametrize("name", FILES + NAMES)
def test_no_file_is_opened(client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Not even one that could be decoded, by any verb, in any place of a request."""
    file = tmp_path / "a.wav"
    file.write_bytes(base64.b64decode(uri(0.2).partition(",")[2]))
    monkeypatch.chdir(tmp_path)
    text = name.replace("{file}", str(file))
    assert "texts.1: " in refused(client, "predict", run="heard", texts=["tones:1", text])
    assert "text: " in refused(client, "source", run="heard", text=text)
    if text:
        refused(client, "look", run="heard", text=text, view="sentence_map")
        refused(client, "look", run="heard", text=text, view="teacher_forcing", target="ab")
    if "tones:1\t" not in text:  # here the name stands where the target does
        assert "text: " in refused(client, "score", run="heard", text=f"{text}\tab")


def test_sources_of_another_kind_are_refused(client: TestClient) -> None:
    assert "no sound" in refused(client, "predict", run="heard", texts=["shapes:1"])
    assert "no picture" in refused(client, "predict", run="seen", texts=[uri(0.2)])
    assert len(ask(client, "predict", run="read", texts=["tones:1"])["predictions"]) == 1  # a text like others


def test_what_is_broken_is_named_with_its_place(client: TestClient) -> None:
    broken = "data:audio/wav;base64," + base64.b64encode(b"no sound at all").decode()
    assert refused(client, "predict", run="heard", texts=["tones:1", "tones:2", broken]).startswith(
        "texts.2: this sound"
    )
    assert "30 s" in refused(client, "predict", run="heard", texts=[uri(MAX_SECONDS + 1, 4000)])


def test_a_header_that_promises_much_takes_no_memory(client: TestClient) -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"\0" * 64)
    promising = file.getvalue().replace((64).to_bytes(4, "little"), (2**31 - 2).to_bytes(4, "little"))
    given = "data:audio/wav;base64," + base64.b64encode(promising).decode()
    tracemalloc.start()
    refused(client, "predict", run="heard", texts=[given])
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_a_small_file_with_a_large_picture_is_refused(client: TestClient) -> None:
    header = struct.pack(">2I5B", 20_000, 20_000, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
    parts = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    bomb = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()
    tracemalloc.start()
    said = refused(client, "predict", run="seen", texts=["shapes:1", bomb])
    assert said.startswith("texts.1: this picture") and "20,000" in said
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_sizes_are_limited(client: TestClient, engine: Engine) -> None:
    long = "data:audio/wav;base64," + "A" * (MAX_ENCODED // 2)
    assert "together" in refused(client, "predict", run="heard", texts=[long, long])
    assert "characters" in refused(client, "predict", run="read", texts=["a" * (MAX_CHARACTERS + 1)])
    assert "bytes" in refused(client, "predict", 413, run="heard", texts=["A" * MAX_SOURCE_BODY])
    assert (engine.max_body, len(json.dumps({"texts": ["A" * MAX_ENCODED]})) < MAX_SOURCE_BODY) == (
        MAX_SOURCE_BODY,
        True,
    )
