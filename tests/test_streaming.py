"""`segue generate` shows a text as it is written, the same text as at once, and ends it before a stop text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.inference.stop_texts import cut

TEXTS = ["the cows eat grass", "für die Kühe", "the old king naps well", "a king eats 3 hats"] * 8
KINDS = ["char", "byte", "space", "word", "bpe", "unigram", "wordpiece"]
GPT = {"model.layers": 1, "model.width": 16, "model.heads": 2, "model.context": 16, "train.steps": 2}
USUAL = {"data.unit": "line", "data.validation": 0, "tokens.min_count": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, segue.Run]:
    """An n-gram over each kind of tokens, and a Transformer over bytes."""
    folder = tmp_path_factory.mktemp("writers")
    made = {
        kind: segue.train("ngram", TEXTS, folder / kind, {**USUAL, "tokens.kind": kind, "model.order": 3})
        for kind in KINDS
    }
    made["gpt"] = segue.train(
        "gpt", TEXTS, folder / "gpt", {**USUAL, **GPT, "tokens.kind": "byte", "batches.length": 16}, device="cpu"
    )
    return made


@pytest.mark.parametrize("name", [*KINDS, "gpt"])
@pytest.mark.parametrize("stop", [(), ("e",), ("ng n", "ü"), ("s",)], ids=str)
def test_a_stream_is_the_text(name: str, stop: tuple[str, ...], runs: dict[str, segue.Run]) -> None:
    """And a text with stops is the text without, cut; several at a time each by itself."""
    run = runs[name]
    for prompt in ("", "the old"):
        for seed in range(4):
            settings = {"seed": seed, "max_tokens": 40, "temperature": 1.5}
            whole = run.generate(prompt, **settings)
            pieces = list(run.stream(prompt, **settings, stop=stop))
            assert all(pieces) and "".join(pieces) == cut(whole, stop)
            assert run.generate(prompt, **settings, stop=stop) == cut(whole, stop)
            several = run.generate(prompt, n=3, **settings)
            assert run.generate(prompt, n=3, **settings, stop=stop) == [cut(text, stop) for text in several]


@pytest.mark.parametrize("settings", [{"beam": 3}, {"temperature": 0.0}, {"adapt": True}, {"top_k": 3, "top_p": 0.9}])
def test_every_way_of_writing_stops(settings: dict[str, object], runs: dict[str, segue.Run]) -> None:
    run = runs["word"]
    whole = run.generate("the", max_tokens=30, **settings)
    stops = [whole[begin : begin + 3] for begin in range(0, len(whole) - 2, 3)]
    assert len(stops) > 1
    for stop in stops:
        assert run.generate("the", max_tokens=30, stop=[stop], **settings) == cut(whole, [stop])
        assert "".join(run.stream("the", max_tokens=30, stop=[stop], **settings)) == cut(whole, [stop])


def test_a_stop_saves_the_steps_after_it(runs: dict[str, segue.Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run, steps = runs["char"], 0
    step = type(run.model).step

    def counted(*arguments: object) -> object:
        nonlocal steps
        steps += 1
        return step(*arguments)

    monkeypatch.setattr(type(run.model), "step", counted)
    text = run.generate("the c", temperature=0.0, stop=["ts ea"])
    assert text == "ows ea" and steps == len("ows eats ea")


def test_what_is_wrong_is_said_before_the_first_piece(runs: dict[str, segue.Run]) -> None:
    for settings, found in (({"top_p": 2.0}, "top_p"), ({"colour": 1}, "colour"), ({"stop": 5}, "a list of texts")):
        with pytest.raises(InputError, match=found):
            runs["char"].stream("the", **settings)
    with pytest.raises(InputError, match="cannot go on learning"):
        runs["gpt"].stream("the", adapt=True)


def test_the_command_line_streams(runs: dict[str, segue.Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = runs["char"]
    place = str(run.path)
    words = ["generate", place, "--prompt", "the ", "--max-tokens", "30", "--seed", "1"]
    expected = run.generate("the ", max_tokens=30, seed=1)
    assert main(words) == 0
    assert capsys.readouterr() == (f"the {expected}\n", "")
    assert main([*words, "--stop", "s", "--stop", "k"]) == 0
    assert capsys.readouterr().out == f"the {cut(expected, ['s', 'k'])}\n"
    assert main([*words, "--stop", "s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["texts"] == [cut(expected, ["s"])]
    assert main([*words, "--stop", ""]) == 2
    said = capsys.readouterr()
    assert said.out == "" and '--stop ""' in said.err


def test_the_recipe_can_stop_a_text(tmp_path: Path) -> None:
    run = segue.train("ngram", TEXTS, tmp_path / "run", {**USUAL, "decode.stop": "e,o"})
    assert segue.load(run.path).recipe.decode.stop == ("e", "o")
    free = run.generate("the ", seed=1, stop=[])
    assert run.generate("the ", seed=1) == cut(free, ["e", "o"]) != free


def test_a_prompt_longer_than_the_window_is_said(
    runs: dict[str, segue.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", str(runs["gpt"].path), "--max-tokens", "3", "--device", "cpu", "--prompt"]
    assert main([*words, "x" * 15]) == 0
    assert capsys.readouterr().err == ""
    assert main([*words, "x" * 40]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("x" * 40)
    assert "The prompt has 41 tokens, and this model sees 16 at once (model.context)" in said.err


def test_a_pipe_gets_each_token_at_once(runs: dict[str, segue.Run]) -> None:
    """The prompt and the first words are there while the text is far from its end."""
    code = "import sys\nfrom segue.cli import main\nmain()"
    words = ["generate", str(runs["gpt"].path), "--prompt", "the ", "--max-tokens", "200000", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(Path(segue.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        read = b""
        while len(read) < 10 and (more := process.stdout.read1(10)):
            read += more
        assert read.startswith(b"the ") and process.poll() is None
        process.kill()
