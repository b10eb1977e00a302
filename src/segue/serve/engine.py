"""The served runs: their names, one thread each, limits of requests, and answers as plain values."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from segue.batches.frames import frames_of
from segue.data.media import decoded
from segue.errors import InputError, SegueError, nearest
from segue.inference.alignment import aligned, check_attends
from segue.inference.decode_settings import Config as Decode
from segue.inference.fill import HOLE
from segue.inference.stop_texts import follows, watcher
from segue.inference.words import Words, signed
from segue.look.inside import takes, views_of
from segue.look.inside.view import View
from segue.look.source_picture import picture_of
from segue.output.png import data_uri
from segue.output.wav import wav
from segue.recipe import make
from segue.runs.folder import read_json
from segue.runs.run import Run, load
from segue.serve.sources import MAX_CHARACTERS, MAX_ENCODED, check_lengths, check_source, described
from segue.tokens.tokenizer import Tokenizer

MAX_TOKENS = 4096
"""Most tokens that one request may generate."""
MAX_TEXTS = 16
"""Most texts that one request may generate."""
MAX_ROWS = 256
"""Most texts that one request may have labelled, tagged or translated."""
MAX_BEAM = 16
"""Widest beam of a request: each row of a batch is read as often."""
MAX_TOP = 100
"""Most tokens or nearest words that one request may ask for."""
MAX_EXPLAINED = 32
"""Most texts that one request may have explained: the model reads each as often as it has words."""
MAX_BODY, MAX_SOURCE_BODY = 20 * MAX_CHARACTERS, MAX_ENCODED + MAX_CHARACTERS
"""Most bytes of a request: what the longest text can take in JSON, and some more; or what sounds or pictures can."""
_BROKEN = "\ufffd"

Answer = dict[str, Any]


class Engine:
    """Every run by its name."""

    def __init__(self, paths: Sequence[str | Path], device: str = "auto", trust: bool = False) -> None:
        names = _names([Path(path) for path in paths])
        self.runs = {name: Served(name, load(path, device, trust)) for name, path in names.items()}

    def __getitem__(self, name: str) -> Served:
        if name not in self.runs:
            raise InputError(f"There is no run '{name}' here.{nearest(name, self.runs)}")
        return self.runs[name]

    def describe(self) -> list[Answer]:
        return [served.describe() for served in self.runs.values()]

    @property
    def max_body(self) -> int:
        """Most bytes of a request."""
        return MAX_SOURCE_BODY if any(served.run.sizes.frame for served in self.runs.values()) else MAX_BODY


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Name each run by the last part of its path, or by as many parts as make the names different."""
    whole = [path.resolve() for path in paths]
    twice = [str(path) for path, count in Counter(whole).items() if count > 1]
    if twice:
        raise InputError(f"{twice[0]} is named twice. Name each run once.")
    depth = 1
    while len(names := {"/".join(path.parts[-depth:]): path for path in whole}) < len(whole):
        depth += 1
    return names


class Served:
    """A run and its single worker thread: a model is never called twice at the same time.

    Requests wait for the thread without blocking the server. A stream queues again for each token,
    so that a long text does not keep the others waiting.
    """

    def __init__(self, name: str, run: Run) -> None:
        self.name, self.run = name, run
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        result = run.path / "result.json"
        self._figures = read_json(result) if result.exists() else {}

    async def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do some work in the run's thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def describe(self) -> Answer:
        """Describe the run for the page."""
        recipe = self.run.recipe
        return {
            "name": self.name,
            "task": self.run.task.name,
            "model": recipe.name,
            "tokens": self.run.tokenizer.kind,
            "labels": self.run.labels,
            "figures": self._figures,
            "decode": dataclasses.asdict(recipe.decode),
            "views": self.views,
            **described(recipe.data),
        }

    def check(self, text: str, sources: Iterable[str]) -> None:
        """Refuse a text that is too long, and a sound or a picture of it that a request may not give."""
        check_lengths([text], self.run.codec.data, ["text"])
        for source in sources if self.run.sizes.frame else ():
            check_source(source, self.run.codec.data, "text")

    # Language models

    async def generate(self, prompt: str, n: int, settings: Mapping[str, Any]) -> Answer:
        """Generate n texts that follow a prompt."""
        return await self._last(self._write_many(prompt, n, settings))

    def _write_many(self, prompt: str, n: int, settings: Mapping[str, Any]) -> Generator[Answer, None, None]:
        """Yield an empty answer after each token of the texts, and then the texts."""
        run, config = self.run, self._decode(settings)
        from segue.inference.decode import growing

        start: list[int] = run.tokenizer.encode(prompt).tolist()
        watch, forbid = watcher(run.tokenizer, [start] * n, config.stop), [run.tokenizer.unk]
        texts = []
        for so_far in growing(run.model, [start] * n, run.sizes, config, None, None, run.device, forbid, watch):
            texts = so_far
            yield {}
        written = [follows(run.tokenizer, start, text.ids, config.stop) for text in texts]
        told = {"start_mark": config.starts(start), "unknown": run.unknown(prompt)}
        yield {"texts": written, "dead_ends": [text.dead_end for text in texts], **told}

    def _decode(self, settings: Mapping[str, Any]) -> Decode:
        self.run.generate_many([], **settings, beam=0)  # generates nothing; raises errors of the task or settings
        config: Decode = make(Decode, {**dataclasses.asdict(self.run.recipe.decode), **settings, "beam": 0}, "decode")
        return config

    def stream(self, prompt: str, settings: Mapping[str, Any]) -> AsyncGenerator[Answer, None]:
        """Yield the first text of `generate` as it is written: {"text": the new part} …, then {"done": the whole}."""
        return self._steps(self._write(prompt, settings))

    async def _last(self, work: Generator[Answer, None, None]) -> Answer:
        """Do some work in steps; return what the last one gives. Cancelling it ends the work after a step."""
        last: Answer = {}
        async for answer in self._steps(work):
            last = answer
        return last

    async def _steps(self, work: Generator[Answer, None, None]) -> AsyncGenerator[Answer, None]:
        """Do some work in the run's thread step by step: between two, others have their turn."""
        try:
            while (step := await self.do(next, work, None)) is not None:
                yield step
        finally:  # in the run's thread, after a step that may be in progress
            self._thread.submit(work.close)

    def _write(self, prompt: str, settings: Mapping[str, Any]) -> Generator[Answer, None, None]:
        config = self._decode(settings)
        from segue.inference.decode import stream

        run, tokenizer = self.run, self.run.tokenizer
        start: list[int] = tokenizer.encode(prompt).tolist()
        ids: list[int] = []
        growth = Growth(tokenizer, start)
        dead_ends: list[bool] = []
        met = partial(dead_ends.append, True)
        forbid = [tokenizer.unk]
        for token in stream(run.model, start, run.sizes, config, device=run.device, forbid=forbid, at_dead_end=met):
            ids.append(token)
            if piece := growth.add(token):
                yield {"text": piece}
        if piece := growth.rest():
            yield {"text": piece}
        whole = tokenizer.decode(start + ids)[len(tokenizer.decode(start)) :]
        ended = len(ids) < config.max_tokens and not dead_ends
        last = {"done": whole, "tokens": len(ids), "ended": ended, "dead_end": bool(dead_ends)}
        yield {**last, "start_mark": config.starts(start), "unknown": run.unknown(prompt)}

    def score(self, text: str) -> Answer:
        """Score every token: natural log probability and bits; the last, empty token is the text's end."""
        self.check(text, [text.partition("\t")[0]])
        (line,) = self.run.score([text], end=True)
        rows = zip(line.tokens, line.logprobs, line.token_bits, strict=True)
        return {
            "tokens": [{"token": token, "logprob": logprob, "bits": bits} for token, logprob, bits in rows],
            "logprob": line.logprob,
            "bits": line.bits,
            "bytes": line.bytes,
            "perplexity": line.perplexity,
            "start_mark": line.start_mark,
            "unknown": self.run.unknown(text),
        }

    def next(self, context: str, top: int) -> Answer:
        """Return the likeliest tokens after a text."""
        pairs = self.run.next_tokens(context, top)
        rows = [{"token": token, "probability": probability} for token, probability in pairs]
        return {"next": rows, "start_mark": self.run.starts(context), "unknown": self.run.unknown(context)}

    # Masked language models, and vectors of texts

    def fill(self, text: str, top: int, together: bool) -> Answer:
        """Return the likeliest tokens of each hole of a text."""
        found = self.run.fill(text, top, together)
        return {**found.json(), "unknown": self.run.unknown(HOLE.sub(" ", text))}

    def embed(self, texts: Sequence[str], pooling: str, layer: int | None, normalise: bool) -> Answer:
        """Return a vector a text."""
        return {"vectors": self.run.embed(texts, pooling, layer, normalise).tolist()}

    # Looking inside

    @cached_property
    def views(self) -> list[str]:
        """The views that apply to the run's model, the one that is shown by default first."""
        return views_of(self.run.model)

    def look(self, text: str, view: str, options: Mapping[str, Any]) -> View:
        """Return a view into the model as it reads a text."""
        self.check(text, [part.strip() for line in text.split("\n") if text for part in line.split("|")])
        given: dict[str, Any] = {"sentences": ()} if takes(view, "sentences") else {}  # from the text, not from a file
        return self.run.look(text, view, **given, **options)

    def source(self, text: str) -> Answer:
        """Show a sound or a picture as the model reads it."""
        data, sizes = self.run.codec.data, self.run.sizes
        if not sizes.frame:
            raise InputError(f"The run {self.name} reads text: there is nothing to show of it.")
        self.check(text, [text])
        picture = {"picture": data_uri(picture_of(frames_of(text, data), sizes), "image/png")}
        if sizes.source != "sound":
            return picture
        samples = decoded(text, data)
        return {**picture, "sound": data_uri(wav(samples, data.rate), "audio/wav"), "seconds": len(samples) / data.rate}

    # Vectors of words

    @cached_property
    def words(self) -> Words:
        """The words and their vectors, made once; InputError if the run has none."""
        return self.run.words

    def nearest(self, text: str, top: int) -> Answer:
        """Return the words nearest to a word, or to an expression like "king - man + woman", with their cosines."""
        words = self.words
        plus, minus = signed(text)
        found = words.analogy(plus, minus, top)
        return {"plus": plus, "minus": minus, "nearest": [{"word": word, "score": score} for word, score in found]}

    # All others

    async def predict(
        self, texts: Sequence[str], explain: bool, settings: Mapping[str, Any], alignment: bool = False
    ) -> Answer:
        """Predict a label with probabilities, tags or a translation for each text; `cut` counts tokens that were not
        read. With `explain` (classifiers) also how much each word mattered; with `alignment` (translators) which word
        of the source each word attends to most. `decode` is how translations were written.
        """
        left = threading.Event()
        try:
            return await self._last(self._predictions(texts, explain, settings, left, alignment))
        finally:
            left.set()

    def _predictions(
        self, texts: Sequence[str], explain: bool, settings: Mapping[str, Any], left: threading.Event, alignment: bool
    ) -> Generator[Answer, None, None]:
        """Yield an empty answer after each prediction, and then all of them; stop when the client has `left`."""

        def check() -> None:
            if left.is_set():
                raise SegueError("The client has closed the connection.")

        names = [f"texts.{number}" for number in range(len(texts))]
        check_lengths(texts, self.run.codec.data, names)
        for name, text in zip(names, texts, strict=True) if self.run.sizes.frame else ():
            check_source(text, self.run.codec.data, name)
            yield {}
        run, lines = self.run, {f"decode.{key}": value for key, value in settings.items()}
        used = run.decoding(lines)
        run.must_predict(explain)
        if alignment:
            check_attends(run.model)
        examples = [run.asked(text) for text in texts]
        plain = ((answer, None) for answer in run.predict_examples(examples, lines))
        answers: Iterable[tuple[Any, Any]] = run.explain_examples(examples, check) if explain else plain
        rows = []
        for example, (answer, words) in zip(examples, answers, strict=True):
            evidence = {} if words is None else {"words": [word._asdict() for word in words]}
            rows.append({**answer.json(), **evidence, "cut": run.task.cut(run.opened, example)})
            yield {}
        if alignment:
            pairs = [(example.text, row["translation"]) for example, row in zip(examples, rows, strict=True)]
            for row, found in zip(rows, aligned(run.opened, pairs), strict=True):
                row["alignment"] = found.links()
        yield {"predictions": rows, **({"decode": used} if used else {})}


class Growth:
    """Streams the text of generated tokens.
    A token may bring only part of a character's bytes: the text then ends in a replacement character,
    which waits until the next token shows what it becomes.
    """

    def __init__(self, tokenizer: Tokenizer, start: Sequence[int]) -> None:
        self._decode = tokenizer.decode
        self._ids = list(start[-1:])  # one token before is enough to know whether a blank stands between
        self._sent = len(self._decode(self._ids))

    def add(self, token: int) -> str:
        """The characters that are certain now and were not before."""
        self._ids.append(token)
        text = self._decode(self._ids)
        whole = not text.endswith(_BROKEN)
        new = text[self._sent :] if whole else text[self._sent : -1]
        self._sent += len(new)
        if whole:
            self._ids = [token]
            self._sent = len(self._decode(self._ids))
        return new

    def rest(self) -> str:
        """Return the text that is still waiting at the end."""
        return self._decode(self._ids)[self._sent :]
