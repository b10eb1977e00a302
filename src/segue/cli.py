"""The command line: one verb a question. Nothing heavy is imported before a verb is chosen."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from segue import tasks
from segue.errors import InputError, SegueError, exit_code, nearest
from segue.interop import formats
from segue.look.inside import views
from segue.output.streams import standard_streams
from segue.output.visible import escapes

app = typer.Typer(
    name="segue",
    help="Train, compare and look into models of text, from the n-gram up, on your own data.\n\n"
    "Begin with:  segue compare book.txt     (or, with nothing at hand:  segue compare pydoc --budget 20s)",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run folder.")]
RunsArgument = Annotated[
    str, typer.Argument(metavar="RUN[+RUN…]", help="A run folder; several translators are an ensemble.")
]
OutOption = Annotated[str | None, typer.Option("--out", help="The run folder to write; by default a new one in runs/.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output instead of text.")]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: auto (a GPU if there is one), cpu, cuda or cuda:1.")]
ThreadsOption = Annotated[int, typer.Option(help="CPU threads to compute with; 0: Segue chooses.")]
TrustOption = Annotated[bool, typer.Option("--trust", help="Allow running a model file from outside the package.")]


SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DATA] [section.key=value …]",
        help="DATA: a corpus that `segue data` lists, a file, a folder, a glob, or SOURCE,TARGET (by default pydoc); a "
        "table may name sounds (wav) or pictures (png, jpeg, gif), each with its text. "
        "Settings: any key that `segue explain KIND` lists, such as train.steps=500; its section may be left out where "
        "no other has such a key.",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        from segue import __version__

        typer.echo(f"segue {__version__}")
        raise typer.Exit


@app.callback()
def every_verb(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def compare(
    rest: SettingsArgument = None,
    models: Annotated[
        str,
        typer.Option(
            help="Recipes, or runs to begin from, comma separated; ngram/* means all of a kind. Settings of one alone "
            "stand after it: 'gpt,gpt model.layers=6'."
        ),
    ] = "",
    budget: Annotated[
        str, typer.Option(help="Training budget of each model: 60s (the default), 5min, or a number of steps.")
    ] = "",
    seeds: Annotated[
        int | None,
        typer.Option(help="Train each model with this many random seeds (default 1): only then is one called better."),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Cross-validate with this many folds; by default there is one split.")
    ] = None,
    task: Annotated[
        str, typer.Option(help="lm, masked_lm, classify, tag, seq2seq or embed; by default guessed from the data.")
    ] = "",
    out: OutOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the comparison in --out: what is finished is kept.")
    ] = False,
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Train several models, from the simplest up, under the same budget; print one table, write one page.

    If a model fails, the others are compared, and the exit code is 1.

    segue compare book.txt --budget 20s

    segue compare reviews.tsv --folds 10 --budget 10s

    segue compare reviews.tsv --models "nbsvm,cnn_classifier,runs/bert,runs/bert model.frozen=true"

    segue compare --out runs/compare-book --resume     (go on after an interruption)
    """
    from segue.look.terminal import print_comparison
    from segue.runs.experiments.compare import compare as compare_models

    data, settings = _data_and_settings(rest)
    chosen = _checked_task(task)
    with _progress() as progress:
        result = compare_models(
            data, models, budget, seeds, folds, out, chosen, settings, progress, trust, resume, threads
        )
    _print(result) if json else print_comparison(result)
    if failed := result["failed"]:
        again = f"segue compare --out {Path(result['report']).parent} --resume"
        raise SegueError(f"{', '.join(failed)} could not be trained. The others are kept; try again with: {again}")


@app.command()
def train(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND|RECIPE|RUN", help="Listed by `segue models` and `segue recipes`; or a run to begin from."
        ),
    ] = None,
    rest: SettingsArgument = None,
    out: OutOption = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in --out, or the only unfinished one, from its checkpoint."),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the run in --out; it is kept until the new one is finished."),
    ] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Print how long data, forward, backward and optimiser took (networks only)."),
    ] = False,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Train one model into a run folder. Every setting has a default; `segue explain KIND` lists them.

    segue train rnn_lm book.txt model.cell=gru train.steps=500

    segue train gpt wiki.txt:3+books.txt:1     (three tokens in four from wiki.txt, whatever the sizes)

    segue train rnn_seq2seq clips.tsv     (in each row the name of a wav file and what is said in it)

    segue train runs/bert reviews.tsv     (a new head on a run, for labels or tags; with more text it goes on learning)

    segue train rnn_lm --out runs/rnn_lm-book --resume

    torchrun --nproc-per-node 4 -m segue train gpt book.txt
    """
    from segue.look.terminal import print_result
    from segue.runs.folder import read_json
    from segue.runs.train import train as train_model
    from segue.training.world import is_first

    if resume and model is not None and "=" in model:
        rest = [model, *(rest or [])]
        model = None
    if model is not None and "=" in model and not model.endswith((".toml", ".py")):
        raise InputError(
            f"'{model}' stands where the model should. Expected: segue train KIND [DATA] [section.key=value …]"
        )
    data, settings = _data_and_settings(rest)
    with _progress() as progress:
        given = (model, data, out, settings, resume, device, threads, trust, progress, profile)
        run = train_model(*given, overwrite=overwrite)
    if not is_first():
        return  # with several processes only the first one prints
    result = read_json(run.path / "result.json")
    if json:
        _print({"run": str(run.path), "result": result})
    else:
        print_result(run, result, read_json(run.path / "ledger.json").get("corpora", []))


@app.command()
def evaluate(
    run: Annotated[
        str, typer.Argument(metavar="RUN[+RUN…]", help="A run folder; several: an ensemble, or with --mix a mixture.")
    ],
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA] [data.key=value …] [decode.key=value …]",
            help="DATA: a file, a folder, a glob or a corpus (by default what the run held out). Settings: how it is "
            "read and, of a translator, decoded; `segue explain RUN` lists the keys.",
        ),
    ] = None,
    mix: Annotated[
        bool, typer.Option("--mix", help="Score RUN+RUN… as one mixture; its weights are found on validation text.")
    ] = False,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Learn from the text while scoring it (dynamic evaluation).")
    ] = False,
    cache: Annotated[
        bool, typer.Option("--cache", help="Mix in a cache of recent n-grams, and the neural cache of networks.")
    ] = False,
    validation: Annotated[
        str | None, typer.Option(help="Text to find the weights of --mix and --cache on; by default the run's own.")
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Evaluate a run on a file, or on the test or validation data that it held out itself.

    With --adapt or --cache the figures are marked as adapted, and the static ones are printed beside them. It warns if
    much of the text stood in the training data of a run.

    segue evaluate runs/rnn_lm-book other.txt

    segue evaluate runs/bow-reviews other.tsv data.columns=2,1     (the label stands second there)

    segue evaluate runs/transformer-pairs other.tsv decode.beam=10 data.metric=chrf

    segue evaluate runs/rnn_seq2seq-clips other.tsv     (names of sounds and their texts: the word error rate)

    segue evaluate runs/a+runs/b other.tsv     (translators as one ensemble)

    segue evaluate runs/ngram-book+runs/rnn_lm-book other.txt --mix --cache
    """
    from segue.look.terminal import print_figures
    from segue.runs.evaluate import evaluate as evaluate_runs

    data, settings = _data_and_settings(rest)
    with _progress() as progress:
        result = evaluate_runs(run, data, mix, adapt, cache, validation, device, trust, progress, settings, threads)
    _print(result) if json else print_figures(result)


@app.command()
def score(
    run: RunsArgument,
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [data.key=value …]",
            help="A text a line, a table or JSON, or of pairs SOURCE,TARGET; without a file, standard input (lines, or "
            "what data.format says).",
        ),
    ] = None,
    lattice: Annotated[
        bool,
        typer.Option(
            "--lattice", help="A line has alternatives, the (cow|caw) eats: score every path, print the best first."
        ),
    ] = False,
    top: Annotated[int, typer.Option(help="With --lattice: how many paths to print.")] = 10,
    end: Annotated[
        bool, typer.Option("--end", help="Score the end of each line too, as `segue evaluate` counts it.")
    ] = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Print the log probability of each line, token by token: of a language model, or of a translator.

    A masked language model has no such probability: each token is masked in turn (pseudo-log-likelihood).

    Each line is scored by itself; if the run was made with data.carry=true, it is read on from the lines before.

    echo "the cows eat grass" | segue score runs/ngram-book -

    printf 'the cow\\tdie Kuh\\n' | segue score runs/rnn_seq2seq-pairs -     (log p of the target given the source)

    echo "the (cow|caw) eats (grass|glass)" | segue score runs/ngram-book - --lattice
    """
    from segue.look.terminal import print_line, print_paths
    from segue.runs.run import load

    data, settings = _data_and_settings(rest)
    loaded = load(run, device, trust, threads)
    texts, ledger = loaded.texts_to_score(data or "-", settings)
    _say_reading(ledger)
    if lattice:
        for text in texts:
            found = loaded.score_paths(text, end)
            best = [_totals(line) for line in found[: _checked_top(top, "path")]]
            _print({"lattice": text, "count": len(found), "paths": best}) if json else print_paths(best, len(found))
        return
    for line in loaded.score(texts, end):
        _print(line.json()) if json else print_line(line)


@app.command()
def generate(
    run: RunArgument,
    prompt: Annotated[str, typer.Option(help="The text to continue.")] = "",
    n: Annotated[int, typer.Option("-n", help="How many texts to write.")] = 1,
    max_tokens: Annotated[int | None, typer.Option(help="decode.max_tokens: write at most this many tokens.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="decode.temperature: 0 is greedy, it takes the likeliest token.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="decode.top_k: sample from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="decode.top_p: nucleus sampling.")] = None,
    beam: Annotated[
        int | None, typer.Option(help="decode.beam: beam search of this width instead of sampling.")
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option(help="decode.no_repeat: no n-gram of so many tokens comes twice, the prompt included.")
    ] = None,
    start: Annotated[
        bool | None,
        typer.Option(
            "--start/--no-start",
            help="decode.start: feed the start mark before the prompt, or the prompt alone, which is the default of an "
            "imported model whose own tokenizer adds no mark.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="decode.seed: the same seed writes the same text.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop before this text appears; may be given several times.")
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Learn from the prompt and the written text (n-gram models).")
    ] = False,
    novelty: Annotated[
        bool,
        typer.Option("--novelty", help="Mark passages copied from the training text, and measure how new the rest is."),
    ] = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Write text that continues a prompt (language models); a single text is printed while it is written.

    segue generate runs/rnn_lm-book --prompt "The " --max-tokens 200 --temperature 0.8 --stop "The end"

    segue generate runs/ngram-book --prompt "The " --max-tokens 500 --temperature 0.8 --novelty
    """
    import dataclasses

    from segue.look.terminal import print_novelty
    from segue.runs.run import load

    if n < 1:
        raise InputError(f"-n {n} asks for no text: expected 1 or more.")
    given = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k}
    given |= {"top_p": top_p, "beam": beam, "no_repeat": no_repeat, "seed": seed, "start": start}
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if stop:
        if "" in stop:
            raise InputError('--stop "" is an empty text, which stands everywhere. Leave it out, or give a text.')
        settings["stop"] = stop
    loaded = load(run, device, trust, threads)
    if n == 1 and not (json or novelty):
        pieces = loaded.stream(prompt, adapt, **settings)
        _warn_unknown(loaded, prompt)
        _warn_too_long(loaded, prompt)
        _say_start(loaded, prompt, settings)
        with _compiling(loaded), _warnings_told():
            for piece in chain([prompt], pieces, ["\n"]):
                typer.echo(piece, nl=False)
        return
    with _compiling(loaded), _warnings_told():
        written = loaded.generate(prompt, n, adapt, **settings)
        texts = written if n > 1 else [written]
    _warn_unknown(loaded, prompt)
    _warn_too_long(loaded, prompt)
    _say_start(loaded, prompt, settings)
    report = None
    if novelty:
        from segue.runs.experiments.novelty import novelty as compared_with_training

        with _progress() as progress:
            report = compared_with_training(loaded, texts, prompt, progress)
    if json:
        result = {"prompt": prompt, "texts": texts, "start_mark": loaded.starts(prompt, **settings)}
        _print(result | ({"novelty": dataclasses.asdict(report)} if report else {}))
    elif report:
        print_novelty(prompt, texts, report)
    else:
        typer.echo("\n---\n".join(prompt + text for text in texts))


@app.command()
def fill(
    run: RunArgument,
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT|FILE] [data.key=value …]",
            help="A text with [MASK] or <mask> in the place of each token to be filled in, or a file of such texts; "
            "without one, standard input. Two texts with a tab between are read as a pair.".replace("[", "\\["),
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many tokens to show for each hole.")] = 5,
    together: Annotated[
        bool, typer.Option("--together", help="Of several holes, fill the surest first, then the others given it.")
    ] = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Fill the holes of texts: the likeliest tokens, given the words on both sides (bert), or any text (t5).

    A hole is one token; a word of several pieces needs several: \\[MASK]\\[MASK]. Each is filled by itself, the others
    hidden, unless --together is given.

    segue fill runs/bert-book "The cows eat \\[MASK]."

    echo "The \\[MASK] eat \\[MASK]." | segue fill runs/bert-book - --together --json
    """
    from segue.inference.fill import HOLE
    from segue.look.terminal import print_filled
    from segue.runs.run import load

    loaded = load(run, device, trust, threads)
    typed = [word for word in rest or [] if HOLE.search(word)]
    if typed:
        texts: Any = iter([" ".join(rest or [])])
    else:
        data, settings = _data_and_settings(rest)
        texts, ledger = loaded.texts_to_fill(data or "-", settings)
        _say_reading(ledger)
    for answer in loaded.fill(texts, _checked_top(top, "token"), together):
        _warn_unknown(loaded, HOLE.sub(" ", answer.text))
        if answer.unread:
            typer.echo(
                f"The text is {answer.unread:,} tokens longer than this model sees at once ({loaded.model.window:,}): "
                "each hole is filled from what stands around it.",
                err=True,
            )
        _print(answer.json()) if json else print_filled(answer)


@app.command()
def embed(
    run: RunArgument,
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT|FILE] [data.key=value …]",
            help="A text, or a file: a text a line, a table or JSON; without one, standard input.",
        ),
    ] = None,
    pooling: Annotated[
        str,
        typer.Option(
            help="mean (of the tokens, without start, ends and padding), first ([CLS]) or last (token).".replace(
                "[", "\\["
            )
        ),
    ] = "mean",
    layer: Annotated[
        int | None, typer.Option(help="The layer whose states are pooled; 0: the tokens' vectors; by default the last.")
    ] = None,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Vectors of length 1, whose product is the cosine.")
    ] = False,
    nearest: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print the texts nearest to this one, with their cosines.")
    ] = None,
    top: Annotated[int, typer.Option(help="With --nearest: how many texts to print.")] = 10,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE.npy", help="Write a NumPy file: float32, a row a text.")
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Compute vectors of texts, from the hidden states of a network: a JSON object a line, or a NumPy file.

    Long texts are read in windows and pooled. A file may be of any size.

    segue embed runs/bert-book sentences.txt --out sentences.npy

    echo "The cows eat grass." | segue embed runs/bert-book -

    segue embed runs/bert-book sentences.txt --nearest "What do cows eat?"
    """
    from segue.look.terminal import print_nearest
    from segue.runs.embed_file import EmbeddedFile
    from segue.runs.run import load

    data, settings = _data_and_settings(rest)
    loaded = load(run, device, trust, threads)
    embedded = EmbeddedFile(loaded, data or "-", settings, pooling=pooling, layer=layer, normalise=normalise)
    if out or nearest is not None:
        with _progress() as progress:
            if out:
                typer.echo(embedded.write(Path(out), progress))
                return
            found = embedded.nearest(nearest or "", _checked_top(top, "text"), progress)
        rows = [{"text": text, "cosine": cosine} for text, cosine in found]
        return _print({"text": nearest, "nearest": rows}) if json else print_nearest({str(nearest): found})
    with _progress_beside_output() as progress:
        for line in embedded.lines(progress):
            typer.echo(line)


@app.command()
def predict(
    run: RunsArgument,
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [data.key=value …] [decode.key=value …]",
            help="A table, JSON, or a text a line; without a file, standard input (lines, or what data.format says). "
            "Settings: how the file is written, and how a translator decodes; `segue explain RUN` lists the keys.",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also print the words that mattered most (classifiers).")
    ] = False,
    alignment: Annotated[
        bool,
        typer.Option(
            "--alignment",
            help="Also print which source word each word of a translation attends to most: ||| 0-0 1-2 (Pharaoh's "
            "format: source-target, counted from 0, words by blanks); of a sound when each word is heard, in seconds, "
            "of a picture the frame, row and column of the patch where it is seen.",
        ),
    ] = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Predict labels, tags or translations; out comes the file that went in, with the predictions.

    A table comes back with its columns and new ones for the prediction and its probability, JSON with all its keys,
    CoNLL with another column; of lines, a prediction a line; blank lines stay blank. A file may be of any size: some
    thousand lines are read at a time.

    Of raw text a tagger first splits off punctuation and clitics; a line where a punctuation mark stands between blanks
    is split at its blanks alone. Spans are printed as [ORG EU] rejects; --json has their places in the text.

    printf 'a fine film\\n' | segue predict runs/bow-reviews - --explain

    segue predict runs/bow-reviews other.csv data.columns=review > labelled.csv

    segue predict runs/transformer-pairs source.txt decode.beam=5 decode.length_penalty=1

    segue predict runs/transformer-pairs source.txt decode.n_best=3     (three lines each: rank, score, text)

    segue predict runs/rnn_seq2seq-clips clip.wav     (or a table, lines or a folder of sounds or pictures)

    segue predict runs/a+runs/b source.txt     (an ensemble: the mean of the probabilities of translators)
    """
    from segue.runs.predict_file import PredictedFile
    from segue.runs.run import load

    data, settings = _data_and_settings(rest)
    loaded = load(run, device, trust, threads)
    predicted = PredictedFile(loaded, data or "-", settings, explain, alignment)
    with _progress_beside_output() as progress:
        lines = predicted.lines(json, progress)
        _say_reading(predicted.file.ledger)
        for line in lines:
            typer.echo(line)
    if predicted.file.ledger.bad_rows:
        typer.echo(f"{predicted.file.ledger.bad_rows:,} rows were left out: they could not be read.", err=True)
    if unread := predicted.unread():
        typer.echo(unread, err=True)


@app.command("challenge")
def challenge_run(
    run: RunArgument,
    positive: Annotated[str, typer.Option(help="The label of positive texts; by default guessed from its name.")] = "",
    negative: Annotated[str, typer.Option(help="The label of negative texts.")] = "",
    json: JsonOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Test a sentiment classifier on negations, double negations, intensifiers, contrasts and word order.

    segue challenge runs/bow-reviews
    """
    from segue.look.terminal import print_challenge
    from segue.runs.experiments.challenge import challenge
    from segue.runs.run import load

    result = challenge(load(run, device, trust, threads), positive, negative)
    _print(result) if json else print_challenge(result)


@app.command()
def look(
    run: RunArgument,
    text: Annotated[
        str,
        typer.Argument(
            help="The text to read, or the name of a sound or a picture; of a pair, with a tab between the two."
        ),
    ] = "",
    target: Annotated[
        str | None, typer.Option(help="The target of the source; by default the model's own translation.")
    ] = None,
    view: Annotated[
        str, typer.Option(help=f"What to show: {', '.join(views())}; by default the first that applies.")
    ] = "",
    layer: Annotated[
        int | None, typer.Option(help="attention, alignment, gates, senses: the layer, counted from 1.")
    ] = None,
    head: Annotated[int | None, typer.Option(help="attention, alignment: the head, counted from 1.")] = None,
    top: Annotated[int | None, typer.Option(help="How many tokens, words, units or senses to show.")] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="senses: the text with the word; by default what the run was trained on."),
    ] = None,
    other: Annotated[str | None, typer.Option("--with", metavar="RUN", help="Show a second run beside it.")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page with the picture.")] = None,
    svg: Annotated[str | None, typer.Option(metavar="FILE", help="Write the picture alone.")] = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Look into a model as it reads a text: next tokens, surprisal, attention weights, gates, words that mattered.

    segue look runs/ngram-book "cows eat"

    segue look runs/gpt-book "The cows eat" --view attention --layer 1 --html attention.html

    segue look runs/ngram-book "i want to eat" --view counts

    segue look runs/bow-reviews "a fine film" --view leave_one_out

    segue look runs/ngram-book "The cows" --with runs/rnn_lm-book

    segue look runs/elmo-book bank --view senses

    segue look runs/transformer-pairs "the cow eats" --target "die Kuh frisst" --view alignment

    segue look runs/rnn_seq2seq-clips clip.wav --html heard.html    (when each word was heard; of a picture, where seen)
    """
    from segue.look.terminal import print_view
    from segue.models.base import LanguageModel
    from segue.runs.folder import write_atomic
    from segue.runs.run import load, refuse_file_name

    given = {"target": target, "layer": layer, "head": head, "top": top}
    options = {key: value for key, value in given.items() if value is not None}
    opened = [load(path, device, trust, threads) for path in (run, *([other] if other else []))]
    reads_text = not opened[0].sizes.frame
    if reads_text:
        refuse_file_name(text, f'Give what is in it: "$(cat {text})".')
    shown = opened[0].look(text, view, opened[1] if other else None, data, **options)
    for one in opened:
        if reads_text and isinstance(one.model, LanguageModel) and view not in ("sentence_map", "senses"):
            _warn_unknown(one, text.partition("\t")[0])
    if json:
        typer.echo(shown.json())
    for file, content in ((html, shown.html), (svg, shown.svg)):
        if file:
            write_atomic(Path(file), content())
            typer.echo(f"The picture: {file}", err=True)
    if not (json or html or svg):
        print_view(shown)


@app.command("nearest")
def nearest_words(
    run: RunArgument,
    words: Annotated[list[str], typer.Argument(metavar="WORD…", help="One word or more.")],
    top: Annotated[int, typer.Option(help="How many words.")] = 10,
    by: Annotated[
        str,
        typer.Option(
            help="cosine: the nearest to each word, itself left out; prediction: the likeliest to stand among all of "
            "them, none left out (in skip-gram the product of what each predicts)."
        ),
    ] = "cosine",
    json: JsonOption = False,
) -> None:
    """Print the words whose vectors are nearest to those of the given words, with their cosines (word2vec).

    segue nearest runs/word2vec-book king queen

    segue nearest runs/word2vec-book the of England --by prediction
    """
    from segue.look.terminal import print_nearest
    from segue.runs.run import load

    by = _checked_by(by, "cosine", "prediction")
    asked = load(run).words
    if by == "prediction":
        likeliest = asked.predicted(words, _checked_top(top))
        if json:
            _print({"context": words, "predicted": [{"word": word, "probability": p} for word, p in likeliest]})
        else:
            print_nearest({" … ".join(words): likeliest}, digits=5)
        return
    found = {word: asked.nearest(word, _checked_top(top)) for word in words}
    if json:
        _print({word: [{"word": name, "cosine": cosine} for name, cosine in near] for word, near in found.items()})
    else:
        print_nearest(found)


@app.command()
def analogy(
    run: RunArgument,
    expression: Annotated[str, typer.Argument(help="Words with spaces and signs between: king - man + woman")],
    top: Annotated[int, typer.Option(help="How many words.")] = 10,
    by: Annotated[
        str,
        typer.Option(
            help="3cosadd or 3cosmul: rank by cosines, the question's own words left out; prediction: rank by the "
            "probability that the model gives each word after the sum of the vectors, none left out."
        ),
    ] = "3cosadd",
    json: JsonOption = False,
) -> None:
    """Answer an analogy by adding and subtracting word vectors (word2vec): Paris is to France as what is to Japan?

    segue analogy runs/word2vec-book "Paris - France + Japan"
    """
    from segue.inference.words import signed
    from segue.look.terminal import print_nearest
    from segue.runs.run import load

    how: Any = _checked_by(by, "3cosadd", "3cosmul", "prediction")
    plus, minus = signed(expression)
    found = load(run).words.analogy(plus, minus, _checked_top(top), how)
    if json:
        answers = [{"word": name, "score": score} for name, score in found]
        _print({"plus": plus, "minus": minus, "by": by, "answers": answers})
    else:
        print_nearest({expression: found}, digits=5 if by == "prediction" else 3)


@app.command()
def serve(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Run folders.")],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 opens it to the network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")] = 8000,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
) -> None:
    """Serve runs as a web page and a JSON API; only this machine can reach them unless --host says otherwise.

    segue serve runs/ngram-book runs/rnn_lm-book
    """
    from segue.serve import serve

    serve(runs, host, port, device, trust, threads)


@app.command("export")
def export_run(
    run: RunArgument,
    path: Annotated[str, typer.Argument(help="The file to write (.bin: binary vectors); for hf a folder.")],
    to: Annotated[
        str, typer.Option("--to", help="; ".join(f"{one.name}, {one.what}" for one in reversed(formats.FORMATS)) + ".")
    ] = "zip",
) -> None:
    """Write a run as one file, or in another toolkit's format.

    segue export runs/rnn_lm-book --to zip book.zip

    segue export runs/ngram-book --to arpa book.arpa.gz

    segue export runs/gpt-book --to hf gpt2-book

    segue export runs/word2vec-book --to word2vec book.bin
    """
    with _progress() as progress:
        notes = formats.export_run(Path(run), Path(path), to, progress)
    typer.echo("\n".join(notes))


@app.command("import")
def import_run(
    path: Annotated[
        str,
        typer.Argument(
            help="What `segue export` wrote, an ARPA file, the folder of a GPT-2, BERT, RoBERTa or Marian model, or "
            "vectors of words."
        ),
    ],
    out: Annotated[
        str | None, typer.Option("--out", help="The run folder to make; by default a new one in runs/, by its name.")
    ] = None,
) -> None:
    """Make a run folder from what Segue or another toolkit exported.

    segue import book.zip     (makes runs/book)

    segue import book.arpa.gz --out runs/kenlm

    segue import gpt2 --out runs/gpt2

    segue import vectors.bin --out runs/vectors
    """
    with _progress() as progress:
        notes = formats.import_run(Path(path), Path(out) if out else None, progress)
    typer.echo("\n".join(notes))


@app.command()
def claim(
    what: Annotated[
        str | None, typer.Argument(metavar="[CLAIM|FILE.toml]", help="Without one: list all claims.")
    ] = None,
    rest: SettingsArgument = None,
    budget: Annotated[
        str,
        typer.Option(
            help="Training budget of each variant: 60s, 5min, or a number of steps; by default the claim's own."
        ),
    ] = "",
    out: OutOption = None,
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Test a claim of the lectures: train its variants, print a table, draw a picture, say whether the claim held.

    segue claim residual

    segue claim length     (seconds and memory of a step against the length of the text, measured on this machine)

    segue claim size book.txt --out runs/claim-size     (again with the same --out: what is trained is kept)
    """
    from segue.look.terminal import print_claim, print_named
    from segue.runs.experiments.claim import claim_names, run_claim, says

    if what is None:
        listed = [{"claim": name, "says": says(name)} for name in claim_names()]
        rows = [(one["claim"], one["says"]) for one in listed]
        return _print({"claims": listed}) if json else print_named("claim", rows, "what it says")
    data, settings = _data_and_settings(rest)
    with _progress() as progress:
        result = run_claim(what, data, settings, budget, Path(out) if out else None, progress, trust, threads)
    _print(result) if json else print_claim(result)


@app.command()
def suite(
    what: Annotated[
        str | None, typer.Argument(metavar="[SUITE|FILE.toml]", help="Without one: list all suites.")
    ] = None,
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER… [section.key=value …]",
            help="FOLDER: where the files of the tasks are, such as CoLA/train.tsv. Settings: any key of the model's "
            "recipe, for every task, such as model.body=runs/bert.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="The model or recipe to train; by default the suite's own.")] = "",
    seeds: Annotated[int, typer.Option(help="Train each task so often, with different seeds.")] = 1,
    budget: Annotated[
        str,
        typer.Option(help="Training budget of each task: 60s, 5min, or a number of steps; by default the recipe's."),
    ] = "",
    out: OutOption = None,
    threads: ThreadsOption = 0,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Train one model on every task of a suite, such as GLUE; print a table and the mean, and write a page.

    segue suite glue glue_data model.body=runs/bert --seeds 5 --out runs/glue     (again: what is trained is kept)

    segue suite glue glue_data --model nbsvm

    segue suite mine.toml data     (a suite of your own)
    """
    from segue.look.terminal import print_named, print_suite
    from segue.runs.experiments.suite import run_suite
    from segue.runs.experiments.suite_file import read_suite, suite_names

    if what is None:
        rows = [(name, read_suite(name).says) for name in suite_names()]
        listed = [{"suite": name, "says": says} for name, says in rows]
        return _print({"suites": listed}) if json else print_named("suite", rows, "what it asks")
    settings = [word for word in rest or [] if "=" in word and not Path(word).exists()]
    folders = [word for word in rest or [] if word not in settings]
    with _progress() as progress:
        result = run_suite(what, folders, settings, model, seeds, budget, out, progress, trust, threads)
    _print(result) if json else print_suite(result)


@app.command("models")
def list_models() -> None:
    """List every kind of model by its task, with its first sentence."""
    from segue.look.terminal import print_models
    from segue.runs.explain import model_heads

    print_models(model_heads())


@app.command("recipes")
def list_recipes() -> None:
    """List every shipped recipe, as kind/name."""
    from segue.look.terminal import print_named
    from segue.runs.explain import recipe_heads

    print_named("recipe", recipe_heads(), "what it is")


@app.command("runs")
def list_runs(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[FOLDER | rm RUN… | mv RUN NEW | compare RUN RUN…]")
    ] = None,
    sort: Annotated[str, typer.Option(help="best (of the same text, together), date, name, size or time.")] = "best",
    data: Annotated[
        str | None,
        typer.Option(help="compare: the text to score; by default what the runs held out, if that is the same."),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="compare: the folder to write; by default a new one in runs/.")
    ] = None,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """List the runs in a folder with their figures, those of one text together; remove, rename or compare runs.

    segue runs --sort date

    segue runs rm runs/old runs/older

    segue runs mv runs/ngram-book runs/baseline

    segue runs compare runs/ngram-book runs/rnn_lm-book     (no training: one table, one page)
    """
    from segue.look.terminal import print_comparison, print_lines, print_runs
    from segue.runs import find

    verb, *rest = words or ["runs"]
    if verb == "compare":
        from segue.runs.experiments.compare import compare_runs

        with _progress() as progress:
            settings = [word for word in rest if "=" in word]
            runs_named = [word for word in rest if "=" not in word]
            result = compare_runs(runs_named, data, out, settings, progress, trust)
        return _print(result) if json else print_comparison(result)
    if verb == "rm" and rest:
        return print_lines(find.remove_runs([Path(run) for run in rest]))
    if verb == "mv" and len(rest) == 2:
        return print_lines([find.move_run(Path(rest[0]), Path(rest[1]))])
    if verb in ("rm", "mv") or rest:
        raise InputError(
            f"'segue runs {' '.join(words or [])}' is not understood. Expected a folder, rm RUN…, mv RUN NEW or "
            "compare RUN RUN…; a folder of such a name is written ./rm"
        )
    found = find.find_runs(Path(verb), sort)
    _print({"runs": found}) if json else print_runs(found, verb, sort == "best")


@app.command()
def explain(
    model: Annotated[
        str, typer.Argument(metavar="KIND|RECIPE|RUN", help="One that `segue models`, `recipes` or `runs` lists.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[section.key=value …]", help="Settings to explain it with, such as model.layers=4."),
    ] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page with the picture of sizes.")] = None,
    svg: Annotated[str | None, typer.Option(metavar="FILE", help="Write the picture alone.")] = None,
    trust: TrustOption = False,
) -> None:
    """Explain a model: its paper, its equations and every key of its recipe; for an n-gram run also a worked example.

    segue explain rnn_lm

    segue explain gpt model.size=gpt3-175b     (parameters, operations and dollars of published models, as a picture)

    segue explain runs/ngram-book
    """
    from segue.runs.explain import explain as explain_model

    files = [(form, file) for form, file in (("html", html), ("svg", svg)) if file]
    explain_model(model, settings or [], trust, files)


@app.command()
def data(
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|get NAME] [data.key=value …]",
            help="A file, a folder or a corpus to show; without one: list the corpora. Settings: how it is read, the "
            "keys that `segue explain KIND` lists under \\[data].",
        ),
    ] = None,
    tokens: Annotated[str, typer.Option(help="How to split into tokens: char, byte, space, word, bpe, …")] = "word",
) -> None:
    """List the corpora; show how a file's first lines are read and split; `get NAME` downloads a corpus.

    segue data book.txt --tokens char

    segue data reviews.csv data.columns=stars,review data.encoding=latin-1
    """
    from segue.look.terminal import print_lines, print_named
    from segue.runs.sample import corpora, sample

    if not rest:
        print_named("corpus", corpora(), "tasks", "what it is")
    elif rest[0] == "get":
        from segue.data.downloads import get

        if len(rest) != 2:
            raise InputError("Which corpus? Expected one name; `segue data` lists those that can be downloaded.")
        with _progress() as progress:
            path = get(rest[1], progress=progress)
        typer.echo(f"{rest[1]} is in {path}. Use it by its name: segue compare {rest[1]}")
    else:
        what, settings = _data_and_settings(rest)
        print_lines(list(sample(what, tokens, settings)))


# From command-line arguments to the API


def _data_and_settings(rest: list[str] | None) -> tuple[str | None, list[str]]:
    """The one word without an equals sign is the data; a path that exists may hold one."""
    words = rest or []
    settings = [word for word in words if "=" in word and not Path(word).exists()]
    paths = [word for word in words if word not in settings]
    if len(paths) > 1:
        raise InputError(
            f"Only one DATA is expected; found {' and '.join(paths)}. Two parallel files are written SOURCE,TARGET."
        )
    return (paths[0] if paths else None), settings


def _checked_top(top: int, what: str = "word") -> int:
    if top < 1:
        raise InputError(f"--top {top} asks for no {what}: expected 1 or more.")
    return top


def _checked_by(by: str, *known: str) -> str:
    if by not in known:
        raise InputError(f"--by {by} is not known.{nearest(by, known)}")
    return by


def _totals(line: Any) -> dict[str, Any]:
    """The totals of a scored text, without its tokens."""
    return {name: vars(line)[name] for name in ("text", "logprob", "bits")} | {"perplexity": line.perplexity}


def _checked_task(task: str) -> Any:
    if task and task not in tasks.names():
        raise InputError(f"There is no task '{task}'.{nearest(task, tasks.names())}")
    return task or None


def _say_reading(ledger: Any) -> None:
    """Say on standard error which columns of a file were taken, where that was a choice."""
    for sentence in ledger.unsaid:
        typer.echo(sentence, err=True)
    ledger.unsaid.clear()


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Print the warnings of the API, such as that a text ended in a dead end, as sentences on standard error."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in told:
        typer.echo(str(warning.message), err=True)


def _warn_unknown(run: Any, text: str) -> None:
    """Warn about words of the prompt outside the vocabulary; they are read as UNK."""
    unknown = run.unknown(text)
    if unknown:
        shown = ", ".join(repr(word) for word in dict.fromkeys(unknown))
        typer.echo(f"Unknown to this model, and read as such: {shown[:200]}.", err=True)


def _warn_too_long(run: Any, prompt: str) -> None:
    """Warn if the prompt does not fit the context window."""
    context = run.model.window
    length = len(run.opened.fed(prompt))
    if 0 < context < length:
        typer.echo(
            f"The prompt has {length:,} tokens, and this model sees {context:,} at once (model.context): "
            "what it writes follows from the end of the prompt alone.",
            err=True,
        )


def _say_start(run: Any, prompt: str, settings: dict[str, Any]) -> None:
    """Say that the start mark is fed where decode.start is false, since the prompt is empty."""
    if run.starts(prompt, **settings) and not settings.get("start", run.recipe.decode.start):
        typer.echo("The prompt is empty: the start mark is fed in its place (decode.start=false).", err=True)


def _print(value: Any) -> None:
    from segue.runs.folder import to_json

    typer.echo(to_json(value))


@contextmanager
def _progress() -> Iterator[Any]:
    from segue.training.log import progress_for

    progress = progress_for(sys.stderr)
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def _progress_beside_output() -> Iterator[Any]:
    """As `_progress`, but silent if the output goes to the terminal, where the two would mix."""
    from segue.training.log import silent

    if sys.stdout.isatty():
        yield silent
        return
    with _progress() as progress:
        yield progress


@contextmanager
def _compiling(run: Any) -> Iterator[None]:
    """Say that the loop by which a Transformer writes is being compiled, the first time that it is."""
    from segue.layers.one_token import Stacked

    if not isinstance(run.model, Stacked) or str(run.device) != "cpu":
        yield
        return
    from segue.compiling import announced

    said: list[str] = []

    def say(what: str, share: float) -> None:
        if not said:
            said.append(what)
            typer.echo("Compiling the loop that writes, once.", err=True)

    with announced(say):
        yield


# Other words for verbs and settings


def _other_words(words: list[str]) -> list[str]:
    """Replace `help`, `help VERB`, -h and `version` by the options that they stand for; nothing is --help."""
    if words[:1] == ["help"]:
        return [*words[1:2], "--help"]
    if words == ["version"]:
        return ["--version"]
    return ["--help" if word == "-h" else word for word in words] or ["--help"]


def _with_right_word(error: BaseException, words: list[str]) -> BaseException:
    """Return an error that names the right word, if an unknown verb or option is another word for a verb or a key."""
    from segue.models.names import option_as_setting, verb_called

    option = vars(error).get("option_name")
    if option in ("-o", "--out", "--output") and words[0] in ("evaluate", "score", "generate", "predict"):
        return InputError(f"There is no option {option}: {words[0]} writes to standard output. Put > FILE at the end.")
    if option and (meant := option_as_setting(option, words)):
        return InputError(f"There is no option {option}. Expected {meant}")
    if "No such command" in str(vars(error).get("message")) and (verb := verb_called(words[0])):
        return InputError(f"There is no verb '{words[0]}'. Expected {verb}: `segue {verb} --help` shows how.")
    return error


# The entry point


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 1 failed, 2 wrong input. Without arguments print the help."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in words
    words = _other_words([word for word in words if word != "--debug"])
    command = typer.main.get_group(app)
    if helps := "--help" in words:
        words = [*words[:1], "--help"]  # nothing but our own text is printed, so that typer may colour it
        for verb in command.commands.values():  # typer would end a line wherever one ends in the source
            verb.help = "\n\n".join(part.replace("\n", " ") for part in (verb.help or "").split("\n\n"))
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = "auto" if escapes() else None
    with standard_streams(styled=helps):
        try:
            # Not `main` of the command: it would handle Ctrl-C and a closed pipe itself. With colour: typer would take
            # the escape codes out of a text that goes into a file.
            with command.make_context("segue", words, color=True) as context:
                command.invoke(context)
            sys.stdout.flush()
        except BaseException as error:
            return exit_code(_with_right_word(error, words), list(command.commands), debug)
    return 0
