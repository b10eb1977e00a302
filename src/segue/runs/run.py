"""A trained run, opened: evaluate, score, generate, predict.

run = segue.load("runs/l")
print(run.generate("The ", max_tokens=20, seed=0))
"""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice, tee
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.codec import BodySpec, Codec, Sizes
from segue.batches.encode import STOP_BYTES, HeldOutText, encode_split
from segue.batches.frames import frame_width
from segue.data.config import Config as Data
from segue.data.corpus import Corpus, Example
from segue.data.from_list import has_names, named_questions, write_rows
from segue.data.given_sources import named
from segue.data.ledger import Ledger
from segue.data.readers import Question
from segue.data.shapes import TEXT
from segue.data.units import tidy
from segue.errors import InputError, nearest
from segue.inference.decode_settings import OF_SOURCES
from segue.inference.decode_settings import Config as Decode
from segue.inference.evaluation import Evaluation
from segue.inference.lattice import paths
from segue.inference.opened import Opened
from segue.inference.score import Line, texts_logprobs
from segue.inference.text_vectors import gives_vectors, text_vectors, unit
from segue.inference.words import Words, signed, words_of
from segue.look.explain.leave_one_out import Mattered, explained
from segue.look.inside.view import View
from segue.models import check_trust, fingerprint
from segue.models.base import Counted, LanguageModel, SpanModel, TrainConfig
from segue.recipe import Recipe, decode_section, load_recipe, make, read_recipe
from segue.runs import folder as files
from segue.runs.body import inputs_of
from segue.runs.display import Answers, Challenge, Figures, History, card, described
from segue.runs.leaks import leak, trained_runs
from segue.runs.questions import STANDARD_INPUT, QuestionFile
from segue.runs.resume import Settings, rows_by_number, setting_lines
from segue.tasks.base import Task
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import Tokenizer, load_sides
from segue.training.device import check_device, keep_memory, leave_room, pick_device, set_threads
from segue.training.log import Progress, read_metrics, reports, silent

_ROWS = "rows.jsonl"
"""The file that a list of rows is written to, to be read as files are."""
_READING = ("data.format", "data.delimiter", "data.columns", "data.encoding", "data.on_error")
"""Settings that may be given for a file that a run is evaluated on."""


def _warn_dead_end() -> None:
    from segue.inference.decode import DEAD_END

    warnings.warn(DEAD_END, stacklevel=3)


class Run:
    """A run folder and the model in it."""

    finished_before = False
    """True if `segue.train(resume=True)` found nothing left to do."""
    imported = ""
    """Where it was imported from, if another toolkit has trained it."""
    evaluation: Evaluation | None = None
    """The figures on what was held out, right after training."""

    def __init__(self, path: Path, recipe: Recipe, model: Any, codec: Codec, device: str) -> None:
        self.path, self.recipe, self.model, self.codec, self.device = path, recipe, model, codec, device

    @classmethod
    def open(cls, path: str | Path, device: str = "auto", trust: bool = False, finished_before: bool = False) -> Run:
        """Open a finished run from its folder."""
        path = Path(path)
        check_device(device)
        config = files.check_run(path)
        files.check_sums(path, config)
        check_trust(config["kind"], trust, path, config.get("sha256"))
        recipe = read_recipe(path / "recipe.toml", trust)
        (tokenizer, source), speller = load_sides(path), path / "speller.json"
        sizes = _sizes(config, path, recipe, tokenizer, source)
        spelled = Speller.load(speller) if speller.exists() else None
        inputs = inputs_of(recipe, sizes)
        codec = Codec(tokenizer, tuple(config["labels"]), recipe.data, sizes, spelled, source, inputs=inputs)
        model = _load_model(path / "model.safetensors", recipe, sizes)
        chosen = "cpu" if isinstance(model, Counted) else pick_device(device)
        if chosen != "cpu":
            model.to(chosen)
        run = cls(path, recipe, model, codec, chosen)
        run.imported, run.finished_before = str(config.get("imported", "")), finished_before
        return run

    def save(self) -> None:
        """Write model.safetensors and config.json."""
        if isinstance(self.model, Counted):
            self.model.save(self.path)
        else:
            from segue.training.checkpoint import write_tensors

            files.write_atomic(self.path / "model.safetensors", write_tensors(self.model.state_dict()))
        config = {
            "kind": self.recipe.kind,
            "format": files.FORMAT,
            "config": dataclasses.asdict(self.recipe.model),
            "sizes": dataclasses.asdict(self.sizes),
            "labels": list(self.labels),
            "files": files.sums_of(self.path),
        }
        if self.recipe.kind.endswith(".py"):
            config["sha256"] = fingerprint(Path(self.recipe.kind))
        files.write_json(self.path / "config.json", config)

    def __repr__(self) -> str:
        return described(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the figures, the learning curve, a sample."""
        return card(self)

    @property
    def result(self) -> Figures:
        """The figures of result.json; empty if the run is not finished."""
        path = self.path / "result.json"
        return Figures(files.read_json(path) if path.exists() else {})

    @property
    def history(self) -> History:
        """The records of training: losses, validations, seconds."""
        return History(read_metrics(self.path), self)

    @property
    def report(self) -> Path | None:
        """The run's page, report.html; None if it has none."""
        path = self.path / "report.html"
        return path if path.exists() else None

    @property
    def opened(self) -> Opened:
        """The model with its tokenizer, labels and settings, to read texts and to answer."""
        recipe = self.recipe
        return Opened(self.model, self.codec, recipe.decode, recipe.batches.length, recipe.task, self.device)

    @cached_property
    def task(self) -> Task:
        return self.recipe.task

    @property
    def tokenizer(self) -> Tokenizer:
        return self.codec.tokenizer

    @property
    def labels(self) -> tuple[str, ...]:
        return self.codec.labels

    @property
    def sizes(self) -> Sizes:
        return self.codec.sizes

    @property
    def speller(self) -> Speller | None:
        return self.codec.speller

    def look(self, text: str = "", view: str = "", other: Run | None = None, data: Any = None, **options: Any) -> View:
        """Show what the model does with a text; `segue.look.inside.views()` lists the views. `data`: the text that
        sentences are taken from (senses), by default what the run was trained on."""
        from segue.look.inside import look, takes

        if takes(view, "sentences") and "sentences" not in options and "\n" not in text:
            options["sentences"] = self._sentences(text, data)
        elif data is not None:
            raise InputError("data= names the text that sentences are taken from, for the view senses. Leave it out.")
        if other is None:
            return look(self.opened, view, text, **options)
        shown = look(self.opened, view, text, other=other.opened, **options)
        (second,) = shown.beside
        named = second._replace(title=f"{other.path}: {second.title}")
        return shown._replace(title=f"{self.path}: {shown.title}", beside=(named,))

    def _sentences(self, word: str, data: Any) -> list[str]:
        """Take lines that hold a word from a file, or from the text that the run was trained on."""
        from segue.look.inside.senses import MOST, sentences_with

        if data is None:
            return list(islice(sentences_with(word, self._own_corpus(silent).examples("train")), MOST))
        with self.corpus_for(data, silent, []) as (corpus, split):
            return list(islice(sentences_with(word, corpus.examples(split)), MOST))

    def ledger_summary(self) -> list[str]:
        """Summarise what was skipped, cut or unknown, in sentences."""
        return [str(line) for line in files.read_json(self.path / "ledger.json", summary=list)["summary"]]

    # Evaluating

    @reports
    def evaluate(self, data: Any = None, progress: Progress = silent, settings: Settings = ()) -> Figures:
        """Compute the figures of the task, on `data` (used whole) or on the run's own test or validation split.

        `data` is what `segue.train` takes: a path, the name of a corpus, or a list of texts or pairs; it is read as the
        run's own was, unless `settings` (data.columns=2,1) say otherwise; settings of [decode] (decode.beam=5) say how
        translations are written. `segue.evaluate` also mixes runs, adapts them while they read, and adds caches.
        """
        lines = setting_lines(settings)
        opened, reading = self.judged_with(lines)
        questions = self.task.questions(opened, data)
        if questions is not None:
            return Figures({"run": str(self.path), "data": str(data), **questions.result})
        with self.corpus_for(data, progress, reading) as (corpus, split):
            result = evaluate_opened(self.recipe, opened, corpus, split, progress).result
            told = leak(self.trained_on(data is None), corpus, split)
            told |= corpus.ledger.skipped() if split == "all" else {}
        return Figures({**self.scored_on(data, split), **result, **told})

    def judged_with(self, lines: Sequence[str]) -> tuple[Opened, list[str]]:
        """Return the opened model with the settings that say how it writes ([decode]) and by which figure it is ranked
        (data.metric); and the other settings."""
        decoding = [line for line in lines if _key(line) in self._decode_keys]
        metric = [line for line in lines if _key(line) == "data.metric"]
        opened = self._decoding(decoding)
        if metric:
            # The run is open, so its code is trusted.
            data = load_recipe(str(self.path / "recipe.toml"), metric, trust=True).data
            opened = opened._replace(codec=opened.codec._replace(data=data))
        return opened, [line for line in lines if line not in decoding and line not in metric]

    @property
    def name(self) -> str:
        """What figures and messages call it: its folder."""
        return str(self.path)

    def trained_on(self, own: bool) -> list[Path]:
        """List the runs whose training data may hold a text that is scored; `own`: it is of the run's own data."""
        return trained_runs(self.path, self.recipe, own)

    def scored_on(self, data: Any, split: str) -> dict[str, str]:
        """Name the run, the text, and the split if it is the run's own text, with the file that it was held out in."""
        if split != "all":
            own = self.recipe.data
            return {"run": self.name, "data": own.held_out_files().get(split, own.path), "split": split}
        return {"run": self.name, "data": str(data) if isinstance(data, str | Path) else "a list"}

    @contextmanager
    def corpus_for(
        self, data: Any, progress: Progress = silent, settings: Sequence[str] = ()
    ) -> Iterator[tuple[Corpus, str]]:
        """Open a corpus and choose the split to evaluate on: `data` whole, or what the run held out itself."""
        self._check_reading(data, settings)
        if data is not None:
            with tempfile.TemporaryDirectory(prefix="segue-") as folder, rows_by_number(Path(folder) / _ROWS):
                yield Corpus(self._whole(data, Path(folder), settings), self.recipe.shape, progress), "all"
            return
        nothing = InputError(f"The run in {self.path} kept nothing back for testing: name a file to evaluate on.")
        if self.imported:
            raise nothing
        corpus = self._own_corpus(progress)
        split = "test" if corpus.counts["test"] else "validation"
        if not corpus.counts[split]:
            raise nothing
        yield corpus, split

    @contextmanager
    def held_out(self, path: str | None, limit: int, progress: Progress = silent) -> Iterator[HeldOutText]:
        """Encode validation text, of the run itself or of a file."""
        with tempfile.TemporaryDirectory(prefix="segue-") as folder:
            if path is not None:
                with self.corpus_for(path, progress) as (corpus, split):
                    yield encode_split(corpus, split, *self._encoding(Path(folder), limit))
                return
            corpus = self._own_corpus(progress)
            if not corpus.counts["validation"]:
                raise InputError(
                    f"The run in {self.path} kept no validation text back to find weights on. Give some: --validation "
                    "FILE"
                )
            yield encode_split(corpus, "validation", *self._encoding(Path(folder), limit))

    def _encoding(self, folder: Path, limit: int) -> tuple[Any, ...]:
        return self.tokenizer, self.speller, folder, limit, self.codec.letters

    def _own_corpus(self, progress: Progress) -> Corpus:
        corpus = Corpus(self.recipe.data, self.recipe.shape, progress)
        if changed := files.changed_file(corpus.ledger.files, self.path):
            raise InputError(
                f"{changed} has changed since the run in {self.path} was made, so that what was held back from "
                "training is not known any more. Name a file to evaluate on."
            )
        return corpus

    def evaluate_split(self, corpus: Corpus, split: str, progress: Progress = silent, **how: Any) -> Evaluation:
        """Evaluate on one split of a corpus. Of validation text, score as many tokens as in training; of a test text,
        all."""
        return evaluate_opened(self.recipe, self.opened, corpus, split, progress, **how)

    def _check_reading(self, data: Any, settings: Sequence[str]) -> None:
        """Refuse settings other than how a file is written: all else stays as the run was trained."""
        wrong = [line for line in settings if _key(line) not in _READING]
        if wrong:
            raise self._cannot_set(wrong[0], "an evaluation", _READING)
        if settings and data is None:
            raise InputError(f"{settings[0]} says how a file is written, and none is named. Name one to evaluate on.")

    def _cannot_set(self, line: str, what: str, keys: Sequence[str] = ()) -> InputError:
        can = [*keys, *self._decode_keys]
        return InputError(
            f"{line} cannot be set for {what}: the run in {self.path} stays as it was trained. "
            + (f"What can be set: {', '.join(can)}." if can else "Leave it out.")
        )

    def _whole(self, data: Any, folder: Path, settings: Sequence[str] = ()) -> Any:
        """Return the run's [data] for other data, with nothing held out; a list becomes a file in `folder`."""
        own = self.recipe.data
        if settings:
            # The run is open, so its code is trusted.
            own = load_recipe(str(self.path / "recipe.toml"), settings, trust=True).data
        config = dataclasses.replace(own, validation=0.0, test=0.0)
        if isinstance(data, str | Path):
            return dataclasses.replace(config, path=str(data))
        path = folder / _ROWS
        write_rows(data, path, self.recipe.shape, config.rate)
        columns = config.columns if has_names(data) and not config.columns[:1].isdecimal() else ""
        return dataclasses.replace(config, path=str(path), format="auto", columns=columns, encoding="utf-8")

    # Scoring

    def score(self, texts: Iterable[Any], end: bool = False) -> Answers[Any]:
        """Score texts: the tokens of each with their log probabilities, and the totals; with `end` also the end of each
        text, as `evaluate` counts it. Each text is scored by itself; if the run was made with data.carry=true, each is
        read on from those before it. For a translator each text is a source, a tab and a target, or a pair of the
        two; the target, always with its end, is scored given the source. A masked language model masks each token in
        turn: a pseudo-log-likelihood (PseudoLine), and no end is scored."""
        self._must("score")
        if self.task.shape.running and not isinstance(self.model, LanguageModel):
            if end:
                raise InputError("A masked language model predicts no end of a text. Score without the end.")
            rows = (Example(self._canonical(text)) for text in _listed(texts))
            return Answers(self.task.scored(self.opened, rows))
        if self.task.shape.running:
            scored = self._score(_listed(texts), self.recipe.data.carry)
            return Answers(scored if end else map(Line.without_end, scored))
        pairs = map(_pair, map(self._named, [texts] if isinstance(texts, str) else texts))
        rows = (self.example_of(Question(0, pair, pair)) for pair in pairs)
        return Answers(self.task.scored(self.opened, rows))

    def texts_to_score(self, file: str, settings: Settings = ()) -> tuple[Iterator[Any], Ledger]:
        """Open a file to score, or standard input (-); return its texts or pairs, and the ledger of how it was read."""
        self._must("score")
        _, data, form = self.split_settings(settings, "scoring")
        opened = QuestionFile(file, data, self.recipe.shape, form, whole=True)
        _, asked = opened.asked(lambda question: Example(*question.values[:1]))
        values = (each.question.values for each in asked)
        return (tuple(texts) if len(texts) > 1 else texts[0] for texts in values), opened.ledger

    def score_paths(self, lattice: str, end: bool = False) -> list[Line]:
        """Score every path of a lattice such as "the (cow|caw) eats", each by itself, the most probable first, that is
        the one with the fewest bits; where words are unknown, those of spelling them count."""
        self._must("generate")
        scored = self._score(paths(lattice), carry=False)
        return sorted((line if end else line.without_end() for line in scored), key=lambda line: line.bits)

    def _score(self, texts: Iterable[str], carry: bool) -> Iterator[Line]:
        read, ahead, spelt = tee(map(self._pieces_of, texts), 3)
        streams = (np.append(ids, self.sizes.stop) for _, ids, _ in ahead)
        letters = (self.codec.unknown_words(text, ids) for text, ids, _ in spelt)
        scored = texts_logprobs(self.model, streams, self.sizes.vocab_size, self.device, carry, letters)
        for number, found in enumerate(scored):
            text, ids, surfaces = next(read)
            logp = found.tolist()
            bits = [0.0 - p / math.log(2) for p in logp]  # not -0.0 where p is 1
            if self.speller:
                unknown = self.tokenizer.unknown(text, ids)
                for place, word in zip(np.flatnonzero(ids == self.tokenizer.unk), unknown, strict=True):
                    bits[place] += self.speller.bits(word)
            size = len(text.encode()) + STOP_BYTES[self.recipe.data.unit]
            totals, begins = (math.fsum(logp), math.fsum(bits), size), not (carry and number)
            yield Line(text, [*surfaces, ""], logp, bits, *totals, start_mark=begins)

    def _pieces_of(self, text: str) -> tuple[str, Any, list[str]]:
        """Return a text as the model reads it, with its ids and what each stands for."""
        text = self._canonical(text)
        return text, *self.tokenizer.pieces(text)

    def _canonical(self, text: str) -> str:
        return " ".join(text.split()) if self.recipe.data.canonical else text

    # Generating

    def generate(self, prompt: str = "", n: int = 1, adapt: bool = False, **settings: Any) -> Any:
        """Generate text that follows the prompt; a list if n is more than 1. Settings are keys of [decode]."""
        config = self._writing(adapt, settings)
        if n > 1 and (config.beam or not config.temperature):
            raise InputError(
                f"The likeliest text is one, and would be written {n} times. Ask for one, or draw: without a beam, and "
                "with a temperature above 0."
            )
        texts = [written for _, written in self.generate_many([prompt] * n, adapt, **settings)]
        return texts if n > 1 else texts[0]

    def generate_many(self, prompts: list[str], adapt: bool = False, **settings: Any) -> list[tuple[str, str]]:
        """Return (prompt, continuation) for each prompt; the random numbers of text i depend only on the seed and i.
        With `adapt` the model learns from the prompt and from what it writes, for each text afresh."""
        written = self.written(prompts, adapt, **settings)
        if any(dead_end for _, dead_end in written):
            _warn_dead_end()
        return [(prompt, text) for prompt, (text, _) in zip(prompts, written, strict=True)]

    def written(self, prompts: list[str], adapt: bool = False, **settings: Any) -> list[tuple[str, bool]]:
        """Return the continuation of each prompt, and whether it ended since nothing could follow (a dead end)."""
        config = self._writing(adapt, settings)
        from segue.inference.decode import Generated, generate
        from segue.inference.stop_texts import follows, watcher

        def write(model: Any, starts: list[list[int]], config: Decode) -> list[Generated]:
            watch = watcher(self.tokenizer, starts, config.stop)
            forbid = [self.tokenizer.unk]
            return generate(model, starts, self.sizes, config, device=self.device, forbid=forbid, watch=watch)

        starts = [self.tokenizer.encode(prompt).tolist() for prompt in prompts]
        if adapt:
            seeds = [dataclasses.replace(config, seed=config.seed + i) for i in range(len(starts))]
            written = [write(self.model.adapted(), [start], own)[0] for start, own in zip(starts, seeds, strict=True)]
        else:
            written = write(self.model, starts, config)
        return [
            (follows(self.tokenizer, start, text.ids, config.stop), text.dead_end)
            for start, text in zip(starts, written, strict=True)
        ]

    def starts(self, prompt: str, **settings: Any) -> bool:
        """Whether `generate` with these settings feeds the start mark before the prompt (decode.start)."""
        return self._writing(False, settings).starts(self.tokenizer.encode(prompt).tolist())

    def stream(self, prompt: str = "", adapt: bool = False, **settings: Any) -> Iterator[str]:
        """Yield the text of `generate` piece by piece as it is written. Errors are raised before the first piece."""
        config = self._writing(adapt, settings)
        return self._pieces(self.model.adapted() if adapt else self.model, prompt, config)

    def _pieces(self, model: Any, prompt: str, config: Decode) -> Iterator[str]:
        from segue.inference.decode import stream
        from segue.inference.stop_texts import StreamedText

        start = self.tokenizer.encode(prompt).tolist()
        text = StreamedText(self.tokenizer, start, config.stop)
        forbid = [self.tokenizer.unk]
        for token in stream(
            model, start, self.sizes, config, device=self.device, forbid=forbid, at_dead_end=_warn_dead_end
        ):
            if piece := text.add(token):
                yield piece
            if text.ended:
                return
        if piece := text.rest():
            yield piece

    def _writing(self, adapt: bool, settings: dict[str, Any]) -> Decode:
        """Return the settings of decoding, or raise an InputError if this run does not support them."""
        self._must("generate")
        if wrong := [key for key in settings if key in OF_SOURCES]:
            raise InputError(f"{wrong[0]} is for texts that are written for a source, and {self.recipe.name} has none.")
        config: Decode = make(Decode, {**dataclasses.asdict(self.recipe.decode), **settings}, "decode")
        if adapt and not self.model.adapts:
            raise InputError(f"{self.recipe.kind} cannot go on learning while it writes. Models that count can.")
        if adapt and config.beam > 1:
            raise InputError("A beam follows several texts, and a model that goes on learning only one. Leave one.")
        return config

    def unknown(self, text: str) -> list[str]:
        """List the parts of a text outside the vocabulary, which the model reads as UNK; of a sound or a picture with
        its target, those of the target."""
        tokenizer = self.codec.source_tokenizer
        if self.sizes.frame:
            text = text.partition("\t")[2]
        return tokenizer.unknown(text, tokenizer.encode(text)) if tokenizer.closed else []

    def next_tokens(self, context: str, top: int = 10) -> list[tuple[str, float]]:
        """Return the likeliest tokens after a text, with their probabilities; the end of the text is "</s>"."""
        self._must("look")
        from segue.look.inside.next import likeliest

        return likeliest(self.opened, self.opened.fed(context), top)

    @cached_property
    def words(self) -> Words:
        """The word vectors, for nearest neighbours and analogies."""
        if "nearest" not in self.task.verbs:
            raise InputError(
                f"{self.recipe.name} is made for {self.task.name} and has no vectors to ask. word2vec has."
            )
        return words_of(self.opened)

    def __getitem__(self, word: str) -> NDArray[np.float32]:
        """Return the vector of a word, of length 1: run["king"] @ run["queen"] is their cosine."""
        found: NDArray[np.float32] = self.words.unit[self.words.place(word)]
        return found

    def __contains__(self, word: str) -> bool:
        """Whether a word has a vector: "king" in run."""
        return self.words.find(word) is not None

    def nearest(self, *names: str | Sequence[str], top: int = 10, by: str = "cosine") -> Any:
        """Return the words nearest to a word, with their cosines; of several words, a dict with a list for each.

        by="prediction": the likeliest words among all of these, with their probabilities; none is left out.
        """
        _check_choice("by", by, ("cosine", "prediction"))
        words = [word for name in names for word in ([name] if isinstance(name, str) else name)]
        if by == "prediction":
            return self.words.predicted(words, top)
        if not words:
            raise InputError("Name a word, or several: run.nearest('king', 'queen').")
        found = {word: self.words.nearest(word, top) for word in words}
        return found if len(words) > 1 else found[words[0]]

    def analogy(self, expression: str, top: int = 10, by: str = "3cosadd") -> list[tuple[str, float]]:
        """Return the best words for a sum of words such as "king - man + woman", with their scores."""
        _check_choice("by", by, ("3cosadd", "3cosmul", "prediction"))
        return self.words.analogy(*signed(expression), top, by)  # type: ignore[arg-type]

    # Filling and embedding

    def fill(self, texts: Any, top: int = 5, together: bool = False) -> Any:
        """Fill the holes of a text, each written [MASK] or <mask>: the likeliest tokens of each hole; of several texts,
        an answer each, made when it is asked for. `together`: fill the surest hole first, then the others given it."""
        self._must("fill")
        from segue.inference.fill import fill

        if top < 1:
            raise InputError(f"top={top} asks for no token: expected 1 or more.")
        answers = Answers(fill(self.opened, _listed(texts), top, together))
        return next(answers) if isinstance(texts, str) else answers

    def texts_to_fill(self, file: str, settings: Settings = ()) -> tuple[Iterator[str], Ledger]:
        """Open a file of texts with holes, or standard input (-); return its texts, and the ledger of how it was
        read."""
        self._must("fill")
        from segue.inference.fill import check_holes

        def checked(question: Question) -> Example:
            check_holes(question.values[0])
            return Example(question.values[0])

        if file != STANDARD_INPUT and not Path(file[:255]).is_file():
            check_holes(file)
        _, data, form = self.split_settings(settings, "filling")
        opened = QuestionFile(file, data, TEXT, form, whole=True)
        _, asked = opened.asked(checked)
        return (each.example.text for each in asked), opened.ledger

    def embed(
        self, texts: Any, pooling: str = "mean", layer: int | None = None, normalise: bool = False
    ) -> NDArray[np.float32]:
        """Compute vectors of texts, (N, D), or (D,) of a single string: the hidden states of a layer (by default the
        last), pooled: their mean over the tokens, or the first or the last. `texts` are as in `predict`. `normalise`:
        vectors of length 1, whose product is the cosine."""
        examples = self._examples(texts, self.recipe.data, "")
        found = list(self.embed_examples(examples, pooling, layer, normalise))
        return found[0] if isinstance(texts, str) else np.array(found, np.float32)

    def embed_examples(
        self, examples: Iterable[Example], pooling: str = "mean", layer: int | None = None, normalise: bool = False
    ) -> Iterator[NDArray[np.float32]]:
        """Compute one vector an example."""
        found = text_vectors(self.opened, examples, pooling, layer)
        return map(unit, found) if normalise else found

    # Taking it further

    def challenge(self, positive: str = "", negative: str = "") -> Challenge:
        """Test a sentiment classifier on negations, intensifiers, contrasts and word order."""
        from segue.runs.experiments.challenge import challenge

        return Challenge(challenge(self, positive, negative))

    def export(self, path: str | Path, to: str = "zip") -> list[str]:
        """Write the run as one file, or in another toolkit's format; return notes for the user."""
        from segue import export_run  # the face of the package: interop stands above runs

        return export_run(self.path, path, to)

    # Predicting

    def predict(self, texts: Any, settings: Settings = (), explain: bool = False) -> Answers[Any]:
        """Predict labels, tags (of the words of `sentence_words`) or translations, one a text; with `explain` pairs of
        a label and how much each word mattered.

        `texts` are strings (of a pair, with a tab between the two), pairs or lists of words; or rows with names (dicts,
        a dict of columns, a data frame), or the Path of a file, of which the text is found as in training. A sound or
        a picture is given by its name (a.wav, tones:17), the bytes of its file, or an array. `settings`
        are keys of [decode] by which translations are written, {"decode.beam": 5}, and of how a file is read. Each
        answer is made when it is asked for: `list(run.predict(texts))` has all of them.
        """
        self.must_predict(explain)
        decode, data, form = self.split_settings(settings, "a prediction")
        self._decoding(decode)  # raises an error now, not when the first answer is taken
        examples = self._examples(texts, data, form)
        return Answers(self.explain_examples(examples) if explain else self.predict_examples(examples, decode))

    def predict_examples(self, examples: Iterable[Example], decode: Settings = ()) -> Iterator[Any]:
        """Predict one answer an example."""
        return self.task.predict(self._decoding(decode), examples)

    def split_settings(self, settings: Settings, what: str) -> tuple[list[str], Data, str]:
        """Split settings into those of [decode] and the run's [data] with the others; with the data.format that they
        give. Refuse all other keys: `what` says for what."""
        lines = setting_lines(settings)
        decode = [line for line in lines if _key(line) in self._decode_keys]
        reading = [line for line in lines if line not in decode]
        if wrong := [line for line in reading if _key(line) not in _READING]:
            raise self._cannot_set(wrong[0], what, _READING)
        given = [line.partition("=")[2] for line in reading if _key(line) == "data.format"]
        # The run is open, so its code is trusted.
        data = load_recipe(str(self.path / "recipe.toml"), reading, trust=True).data if reading else self.recipe.data
        return decode, data, given[-1] if given else ""

    def _examples(self, texts: Any, data: Data, form: str) -> Iterator[Example]:
        """Make examples of what the caller gives."""
        if isinstance(texts, Path):
            _, asked = QuestionFile(texts, data, self.recipe.shape, form).asked(self.example_of)
            return (each.example for each in asked)
        if not isinstance(texts, str) and has_names(texts):
            rows = named_questions(texts, self.recipe.shape, data)
            return map(self.example_of, rows)
        if isinstance(texts, str) and not self.sizes.frame:
            refuse_file_name(texts, f"Give Path({texts!r}) to read it, or [{texts!r}] if it is the text.")
        given = [texts] if isinstance(texts, str | bytes) else texts
        return (self.example_of(Question(0, text, _given(text))) for text in map(self._named, given))

    def _named(self, row: Any) -> Any:
        """Name the sound or the picture of a row, alone or with its target, that the caller gives in Python."""
        if not self.sizes.frame:
            return row
        rate = self.recipe.data.rate
        return (named(row[0], rate), *row[1:]) if isinstance(row, tuple) and row else named(row, rate)

    def example_of(self, question: Question) -> Example:
        """Make the example that the model reads for one row."""
        first, *second = question.values
        if second:
            example = Example(text=first, target=second[0])
        elif isinstance(first, str):
            example = self.asked(first)
        else:
            example = Example(text=" ".join(first), words=tuple(first))
        if not self.recipe.data.canonical:
            return example
        text = example.text if self.sizes.frame else tidy(example.text)
        return example._replace(text=text, target=tidy(example.target))

    def decoding(self, settings: Settings = ()) -> dict[str, Any]:
        """Return the values of [decode] by which `predict` writes with these settings; empty: it writes no text."""
        return self.task.decoding(self._decoding(settings))

    def _decoding(self, settings: Settings) -> Opened:
        """Return the opened model with other values of [decode]."""
        if not settings:
            return self.opened
        lines = setting_lines(settings)
        if wrong := [line for line in lines if _key(line) not in self._decode_keys]:
            raise self._cannot_set(wrong[0], "a prediction", _READING)
        own = self.task.decoding(self.opened)
        return self.opened._replace(decode=decode_section(lines, **own))

    @property
    def _decode_keys(self) -> tuple[str, ...]:
        return tuple(f"decode.{key}" for key in self.task.decodes)

    def explain_examples(
        self, examples: Iterable[Example], check: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Any, list[Mattered]]]:
        """Predict each example's label, and compute how much each of its words mattered; `check` is called before each
        reading, and may raise an error to stop."""

        def checked(examples: Iterable[Example]) -> Iterator[Example]:
            for example in examples:
                check()
                yield example

        def predict(examples: Iterable[Example]) -> Iterator[Any]:
            return self.task.predict(self.opened, checked(examples))

        return explained(predict, examples)

    def must_predict(self, explain: bool = False) -> None:
        """Refuse to predict, or to explain predictions, if the task does not support it."""
        self._must("predict --explain", "explain a prediction") if explain else self._must("predict")

    def explain(self) -> None:
        """Print what the model is, as `segue explain RUN` does."""
        from segue.runs.explain import explain

        explain(str(self.path), trust=True)  # it is open, so its code is trusted

    def asked(self, text: str) -> Example:
        """Make the example of a text that is asked about; of a pair, with a tab between the two."""
        return self.task.asked(text, self.recipe.data, self.recipe.name)

    def _must(self, verb: str, what: str = "") -> None:
        """Refuse a command that the task does not support; `what` names it if the verb is not enough."""
        task = self.task
        if verb not in self.verbs:
            raise InputError(
                f"{self.recipe.name} is made for {task.name} and cannot {what or verb}. It can: evaluate, "
                f"{', '.join(self.verbs)}."
            )

    @property
    def verbs(self) -> tuple[str, ...]:
        """The commands of its task and, if its model has vectors of texts, embed."""
        fills = ["fill"] if isinstance(self.model, SpanModel) else []
        return tuple(dict.fromkeys([*self.task.verbs, *fills, *(["embed"] if gives_vectors(self.model) else [])]))


def evaluate_opened(
    recipe: Recipe, opened: Opened, corpus: Corpus, split: str, progress: Progress = silent, **how: Any
) -> Evaluation:
    """Evaluate a model by a recipe's task."""
    task = recipe.task
    limit = _most_validation(recipe) if split == "validation" else 0
    what = f"evaluating {recipe.name}"
    evaluation = task.evaluate(opened, corpus, split, lambda share: progress(what, share), limit, **how)
    best = corpus.best(split) or {}
    if evaluation.figure in best:
        evaluation.result["best_possible"] = best[evaluation.figure]
    others = best.keys() & evaluation.result.keys() - {evaluation.figure}
    if others:
        evaluation.result["best"] = {name: best[name] for name in sorted(others)}
    return evaluation


def _most_validation(recipe: Recipe) -> int:
    """Return how many tokens of validation text give the final figures. A plan makes the validations on the way small
    (plan.py); these figures are of as much text as without one, unless the user has named a number."""
    train = recipe.train
    if not train.has("validate_tokens"):
        return 0
    named = train.has("named") and "train.validate_tokens" in train.named.split(",")
    return int(train.validate_tokens if named else max(train.validate_tokens, TrainConfig.validate_tokens))


def _load_model(weights: Path, recipe: Recipe, sizes: Sizes) -> Any:
    """Make the model of a run with its weights, on the CPU; refuse a file that does not fit it."""
    if not weights.exists():
        raise InputError(
            f"The run in {weights.parent} is damaged: model.safetensors is missing. Restore it, or train the run again."
        )
    weights.open("rb").close()  # where it may not be read, say that, and not that it is damaged
    try:
        if issubclass(recipe.model_class, Counted):
            model = recipe.model_class(recipe.model, sizes)
            model.load(weights.parent)
            return model
        return _load_network(weights, recipe, sizes)
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{weights} is damaged or not of this run ({reason[:200]}). Restore it, or train the run again."
        ) from None


def _load_network(weights: Path, recipe: Recipe, sizes: Sizes) -> Any:
    from safetensors.torch import load_file

    from segue.models.network import load_network

    keep_memory()
    return load_network(lambda: recipe.model_class(recipe.model, sizes), load_file(weights))


def _sizes(config: dict[str, Any], path: Path, recipe: Recipe, tokenizer: Tokenizer, source: Tokenizer | None) -> Sizes:
    """Read the sizes in config.json, and check them against the other files."""
    try:
        sizes = _made_sizes(config["sizes"])
    except (InputError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path / 'config.json'} is damaged: {error} Train the run again, or restore it.") from None
    if (config["kind"], sizes.vocab_size) != (recipe.kind, tokenizer.vocab_size):
        raise InputError(
            f"The run in {path} is damaged: config.json is of a {config['kind']} with {sizes.vocab_size} "
            f"tokens, but recipe.toml says {recipe.kind} and tokenizer.json has {tokenizer.vocab_size}. "
            "Restore the files, or train the run again."
        )
    if sizes.source_vocab_size != (found := source.vocab_size if source else 0):
        raise InputError(
            f"The run in {path} is damaged: config.json gives its sources a vocabulary of {sizes.source_vocab_size} "
            f"tokens of their own, and source_tokenizer.json {f'has {found}' if found else 'is missing'}. "
            "Restore the files, or train the run again."
        )
    data = recipe.data
    classes = 1 if data.label == "number" else len(config["labels"])
    marks = sizes.body.sizes.marks if sizes.body else recipe.model_class.marks(recipe.model)
    width = frame_width(data)
    followed = (classes, data.label, marks, data.carry, data.source if width else "text", width)
    found_sizes = (sizes.classes, sizes.label, sizes.marks, sizes.carry, sizes.source, sizes.frame)
    if found_sizes != followed or recipe.model_class.framed != bool(sizes.body and sizes.window > 0):
        raise InputError(
            f"The run in {path} is damaged: the sizes in config.json do not follow from its labels and recipe.toml. "
            "Restore the files, or train the run again."
        )
    return sizes


def _made_sizes(values: dict[str, Any]) -> Sizes:
    """Make the sizes of config.json, and those of the body inside, each value checked."""
    body = values.get("body")
    sizes: Sizes = make(Sizes, {key: value for key, value in values.items() if key != "body"}, "sizes")
    if body is None:
        return sizes
    return dataclasses.replace(sizes, body=BodySpec(body["kind"], dict(body["config"]), _made_sizes(body["sizes"])))


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"{name}={value} is not known.{nearest(value, known)}")


def _key(line: str) -> str:
    """The key of a setting section.key=value."""
    return line.partition("=")[0]


def refuse_file_name(text: str, what: str) -> None:
    """Refuse the name of a file, with its extension, where a text is expected; `what` to do instead."""
    if Path(text).suffix and os.path.isfile(text):  # noqa: PTH113 (Path raises an error if a name is too long)
        raise InputError(f"{text} is a file, and a text is expected here. {what}")


def _given(row: Any) -> list[Any]:
    """The values of a row that the caller gives: a text, a pair of texts, or a list of words."""
    if isinstance(row, str | Path):
        return [str(row)]
    if isinstance(row, tuple) and len(row) == 2 and all(isinstance(text, str) for text in row):
        return list(row)
    if isinstance(row, list) and all(isinstance(word, str) for word in row):
        return [row]
    raise InputError(f"{row!r:.60} is not a text. Expected strings; of a pair, with a tab between the two.")


def _pair(row: Any) -> list[str]:
    """A source and its target, of a pair or of a line with a tab between."""
    texts = row.split("\t") if isinstance(row, str) else _given(row)
    if len(texts) != 2:
        raise InputError(
            f"{row!r:.60} has {len(texts) - 1} tabs. Expected a source, a tab and its translation in a line, or a pair."
        )
    return [str(text) for text in texts]


def _listed(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; a single string is one text, not a list of its letters."""
    for text in [texts] if isinstance(texts, str) else texts:
        if not isinstance(text, str):
            raise InputError(f"{text!r:.60} is not a text. Expected strings; of a pair, with a tab between the two.")
        yield text


def load(path: str | Path, device: str = "auto", trust: bool = False, threads: int = 0) -> Run:
    """Open a finished run, or several translators as one ensemble (RUN+RUN); from now on compute with this many CPU
    threads (0: all, or those that other programs leave free)."""
    set_threads(threads)
    run = open_runs(str(path), device, trust)
    if not isinstance(run.model, Counted):
        leave_room()
    return run


def open_runs(names: str, device: str = "auto", trust: bool = False) -> Run:
    """Open a run, or RUN+RUN as one ensemble."""
    from segue.runs.ensemble import EnsembleRun, named_runs

    runs = [Run.open(name, device, trust) for name in named_runs(names) or [names]]
    return runs[0] if len(runs) == 1 else EnsembleRun(runs)
