"""What models wrote of sounds and pictures: each with its spectrogram or picture, the reference, and the words that
differ; and the words that a model took for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from segue.inference.edit_distance import aligned
from segue.inference.text_metrics import spoken_words
from segue.look.page.markup import swatch, table, text
from segue.look.page.mistakes import Missed

_MOST = 20
"""Sources that are shown."""
_NAME = 60
"""Characters of a source's name that are shown: a data URI holds a whole file."""


def heard_and_seen(models: Sequence[Missed]) -> str:
    """Each source once, with what every model wrote of it; those that most models got wrong first."""
    sources: dict[tuple[str, str], list[tuple[Missed, dict[str, str]]]] = {}
    for model in models:
        for example in model.examples:
            sources.setdefault((example["source"], example["reference"]), []).append((model, example))
    ranked = sorted(sources.values(), key=lambda same: -sum(_wrong(example) for _, example in same))[:_MOST]
    said = ""
    if any(_wrong(example) for same in ranked for _, example in same):
        said = "Errors come first. <mark>Marked</mark> words are not in the reference, <del>struck out</del> ones are "
        said += "only there."
        said += "" if len(models) == 1 else f" A model that is not named was right, or had {_MOST} other errors."
        said = f'<p class="aside">{said}</p>'
    return f'{said}<div class="panels sources">{"".join(map(_panel, ranked))}</div>'


def _wrong(example: dict[str, str]) -> bool:
    return example["output"] != _nearest(example)


def _nearest(example: dict[str, str]) -> str:
    """The right text that the output was compared with, where there are several."""
    return example.get("nearest", example["reference"])


def _panel(same: Sequence[tuple[Missed, dict[str, str]]]) -> str:
    first = same[0][1]
    said = "".join(
        f'<dt>{swatch(model.colour)}{text(model.name)}</dt><dd dir="auto">{_marked(one)}</dd>' for model, one in same
    )
    return (
        f'<article class="panel translation"><h3>{text(_short(first["source"]))}</h3>{_shown(first)}'
        f'<dl><dt>reference</dt><dd dir="auto"><b>{text(first["reference"])}</b></dd>{said}</dl></article>'
    )


def _short(name: str) -> str:
    """The end of a path, which tells files apart, or the beginning of a data URI."""
    if len(name) <= _NAME:
        return name
    return f"{name[: _NAME // 2]} …" if name.startswith("data:") else f"… {name[-_NAME:]}"


def _shown(example: dict[str, str]) -> str:
    """The picture, or the spectrogram with its seconds and, of a short sound, a player."""
    if "seconds" not in example:
        return f'<img class="picture" alt="{text(_short(example["source"]))}" src="{text(example["picture"])}">'
    seconds = text(example["seconds"])
    played = f'<audio controls preload="none" src="{text(example["sound"])}"></audio>' if "sound" in example else ""
    return (
        f'<img class="spectrogram" alt="spectrogram of {seconds} s" src="{text(example["picture"])}">'
        f'<p class="seconds"><span>0</span><span>{seconds} s</span></p>{played}'
    )


def _marked(example: dict[str, str]) -> str:
    """The output, with marks on the words that are not in the reference, and the reference's where it has none."""
    if not _wrong(example):
        other = " <small>as right as the reference</small>" if "nearest" in example else ""
        return text(example["output"]) + other
    shown = []
    for word, said in aligned(spoken_words(_nearest(example)), spoken_words(example["output"])):
        left_out = f"<del>{text(word)}</del>" if word is not None and said is None else ""
        shown.append(left_out or (text(said or "") if word == said else f"<mark>{text(said or '')}</mark>"))
    return " ".join(shown)


def word_errors(edits: dict[str, int], confusions: Sequence[Sequence[Any]]) -> str:
    """How many words were changed, left out and added, and which were most often taken for which."""
    counted = ", ".join(f"{count:,} {kind}" for kind, count in edits.items())
    said = f'<p class="aside">Words: {counted}.</p>' if counted else ""
    rows = [[*(f"<bdi>{text(word)}</bdi>" for word in pair), f"{count:,}"] for *pair, count in confusions]
    return said + (table(["reference", "output", "times"], rows) if rows else "")
