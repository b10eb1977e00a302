"""Find what data.path names: files, a folder, a glob, two parallel files, a corpus's name, or several of these."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from segue.data import builtin, copy_task, docstrings, downloads, grammar, media
from segue.data.checked_sources import CheckedSources, content_of
from segue.data.config import Config, Format
from segue.data.example import Example
from segue.data.files import blocks, describe_file, extension, lines
from segue.data.ledger import Ledger
from segue.data.readers import Reader
from segue.data.shapes import ANY_OTHER, LABELLED, PARALLEL, TEXT, Shape, guess, optional_named
from segue.data.tables import PEEKED_ROWS, is_conll, is_fasttext
from segue.data.units import units
from segue.errors import InputError, nearest

Progress = Callable[[str, float], None]

BUILTIN = ("pydoc", "stdlib", "grammar", "clauses", "docstrings", "copy", "tones", "shapes")
NOT_TEXT = frozenset(
    f".{name}"
    for names in (
        ("7z", "bz2", "tar", "tgz", "whl", "zip", "zst"),
        ("bmp", "gif", "ico", "jpeg", "jpg", "png", "webp", "ttf", "woff", "woff2"),
        ("flac", "mp3", "mp4", "ogg", "wav"),
        ("doc", "docx", "pdf", "xls", "xlsx"),
        ("bin", "class", "dll", "exe", "o", "pyc", "so"),
        ("ckpt", "db", "npy", "npz", "parquet", "pickle", "pkl", "pt", "pth", "safetensors", "sqlite"),
    )
    for name in names
)
"""A folder or glob leaves out files with these extensions, with a note; a file that is named itself is read."""


class Source(Protocol):
    """Data that can be read from the beginning, any number of times."""

    by_path: ClassVar[bool]
    """Whether the rows of one path are held out together."""

    @property
    def checked(self) -> CheckedSources | None:
        """What is known of the sounds or pictures that rows name; None: they are texts, or made."""
        ...

    def read(self, ledger: Ledger, progress: Progress | None) -> Iterator[Example]: ...

    def describe(self) -> list[dict[str, Any]]:
        """The entries of the files in the ledger."""
        ...


def corpora(path: str, shape: Shape) -> list[tuple[str, Fraction | None]]:
    """The names of the corpora in a path, each with its weight or None: wiki.txt:3+books.txt:1 names two.

    A file's name may have a `+` or a `:` in it: a name under which something exists is not split.
    """
    names = [path] if "+" not in path or _exists(path) else _joined_names(path.split("+"))
    found = [_name_and_weight(name) for name in names]
    only = [name for name, _ in found]
    if len(names) == 1 or (not shape.running and not all(map(_exists, only))):
        return [(path, None)]
    if not shape.running:
        raise InputError(
            f"{path[:200]} names {len(names)} corpora, and only language models mix corpora. Expected one file, folder "
            f"or glob: {shape.expected}."
        )
    twice = [name for name in only if only.count(name) > 1]
    bare = [name for name, weight in found if weight is None]
    if twice:
        raise InputError(f"{path[:200]} names {twice[0]} twice. Expected each corpus once; its weight says how much.")
    if 0 < len(bare) < len(found):
        before, _, after = bare[0].rpartition(":")
        if _exists(before):
            raise InputError(f"{bare[0]}: '{after}' is no weight. Expected a number above 0, as in {before}:3.")
        raise InputError(
            f"{path[:200]} gives {bare[0]} no weight, but others have one. Expected a weight for each, as in "
            f"{bare[0]}:1, or for none (then they are read in proportion to their sizes)."
        )
    return found


def _joined_names(pieces: list[str]) -> list[str]:
    """Join pieces between `+` into names under which something exists, each name as short as possible.

    If that fails, some name is wrong: then every `+` separates, and opening the first wrong name raises the error.
    """
    names, begun = [], ""
    for piece in pieces:
        begun = f"{begun}+{piece}" if begun else piece
        if _exists(begun) or _exists(_name_and_weight(begun)[0]):
            names.append(begun)
            begun = ""
    if not begun:
        return names
    return pieces if all(pieces) else ["+".join(pieces)]


def _exists(name: str) -> bool:
    """Whether something exists under a name; nothing does if the name cannot be looked up (too long, a NUL)."""
    if name in BUILTIN or name in downloads.NAMED:
        return True
    try:
        # Path.glob takes no absolute pattern.
        matched = glob.has_magic(name) and any(glob.iglob(name, recursive=True))  # noqa: PTH207
        return bool(name) and (matched or Path(name).exists())
    except (OSError, ValueError):
        return False


def _name_and_weight(name: str) -> tuple[str, Fraction | None]:
    """Split wiki.txt:3 into its name and its weight."""
    match = re.fullmatch(r"(.+):(\d{1,9}(?:\.\d{1,6})?)", name, re.DOTALL)
    if match is None or _exists(name):
        return name, None
    weight = Fraction(match[2])
    if weight == 0:
        raise InputError(f"{name} weighs nothing. Expected a weight above 0; leave out what is not to be read.")
    return match[1], weight


def open_source(path: str, config: Config, shape: Shape, ledger: Ledger) -> Source:
    """Find what a path names, and decide how its files are written; reads nothing yet."""
    if (path == "copy" and shape.running) or (path == "grammar" and shape.name in grammar.BY_SHAPE):
        return Made(path, config, shape)
    if path in ("clauses", *media.CORPORA) and shape == PARALLEL:
        return Made(path, config, shape)
    if path == "docstrings" and shape == PARALLEL:
        return Docstrings()
    if path in ("grammar", "clauses", "docstrings", *media.CORPORA):
        raise InputError(f"the corpus '{path}' has no such rows. Expected {shape.expected}.")
    if path in BUILTIN or path in downloads.NAMED:
        if not shape.running:
            raise InputError(f"the corpus '{path}' is running text. Expected {shape.expected}, or data.path=grammar.")
        return Builtin(path, config) if path in BUILTIN else Files((downloads.find(path),), ("text",), config, shape)
    try:
        return _parallel(path, config, shape) if _is_pair(path) else _files(path, config, shape, ledger)
    except OSError as error:
        raise InputError(f"{path[:200]} cannot be read: {error.strerror}. Expected a name that may be read.") from None


def guess_shape(path: str, form: Format = "auto", encoding: str = "utf-8") -> Shape:
    """The shape of the data that a path names, by its extension (or data.format) and its first lines.

    In a folder or a glob, one file of each extension is looked into; it is running text if they do not agree.
    """
    if _is_pair(path) or path in ("clauses", "docstrings", *media.CORPORA):
        return PARALLEL
    if path in BUILTIN or path in downloads.NAMED:
        return TEXT
    try:
        found = _find(path, TEXT, Config(path), Ledger())
    except (InputError, OSError, ValueError):  # the reader of the files will say what is wrong
        found = (Path(path),)
    files = {extension(file) if form == "auto" else f".{form}": file for file in reversed(found)}
    shapes = [guess(kind, _first_lines(file, encoding)) for kind, file in files.items()]
    return shapes[0] if all(shape is shapes[0] for shape in shapes) else TEXT


def optional_columns(path: str, shape: Shape, form: Format = "auto", encoding: str = "utf-8") -> str:
    """The data.columns of a file that names the optional columns of a shape as well (label,text,text2); else ""."""
    try:
        file = _find(path, shape, Config(path), Ledger())[0]
        return optional_named(shape, extension(file) if form == "auto" else f".{form}", _first_lines(file, encoding))
    except (InputError, OSError, ValueError):  # the reader of the file will say what is wrong
        return ""


def text_and_label(config: Config) -> str:
    """The data.columns that read texts with labels as pairs, the text first: text,label or 2,1; "" if that is not
    known."""
    try:
        file = _find(config.path, LABELLED, config, Ledger())[0]
        place, _, header, _ = Reader(config, LABELLED, Ledger()).found(file, format_of(file, config, LABELLED))
    except (InputError, OSError, ValueError):  # the reader of the whole file will say what is wrong with it
        return ""
    label, text = place.picks[:2]
    if isinstance(label, str):
        return f"{text},{label}"
    return f"{header[text]},{header[label]}" if header else f"{text + 1},{label + 1}"


def with_source(config: Config) -> Config:
    """Settle data.source for pairs: what their sources are; refuse what it says if the file has other sources."""
    looked = replace(config, source="auto") if config.source == "text" else config
    found = source_of(looked)
    if config.source == "auto":
        return replace(config, source=found)
    if found != config.source:
        has = "texts" if found == "text" else f"names of {found}s"
        if config.source != "text" and (other := source_of(replace(config, source="auto"))) != "text":
            has = f"names of {other}s"
        raise InputError(
            f"{config.path[:200]} has {has} as its sources, and data.source is {config.source}. Expected "
            f"{_EXPECTED[config.source]} in each row; check the file, data.columns and data.source."
        )
    return config


_EXPECTED = {
    "text": "texts",
    "sound": "a name that ends in .wav and its text",
    "picture": "a name that ends in .png, .jpg, .jpeg or .gif and its text",
}


def source_of(config: Config) -> media.Media | Literal["text"]:
    """What the sources of pairs are: text, or names of sounds or pictures, as most of the first rows have them."""
    path = config.path
    if path in media.CORPORA:
        return media.CORPORA[path]
    if path in BUILTIN or path in downloads.NAMED:
        return "text"
    try:
        names = _first_sources(path, replace(config, on_error="skip"))
    except (InputError, OSError, ValueError):  # the reader of the whole file will say what is wrong with it
        return "text"
    return media.media_among(names, config.source) or "text"


def _first_sources(path: str, config: Config) -> list[str]:
    """The sources of the first rows of pairs, as the file has them."""
    if _is_pair(path):
        return _first_lines(Path(path.partition(",")[0].strip()), config.encoding)
    file = _find(path, PARALLEL, config, Ledger())[0]
    asked = Reader(config, PARALLEL, Ledger()).ask(file, format_of(file, config, PARALLEL))
    return [str(question.values[0]) for question in islice(asked.each, PEEKED_ROWS)]


def _first_lines(path: Path, encoding: str, count: int = 200) -> list[str]:
    """The first lines; none if the file cannot be read: the reader of the whole file will say what is wrong with it."""
    try:
        text = blocks(path, encoding, Ledger(), longest=0) if path.is_file() else iter(())
        # One block is enough, and a json file may be one line.
        return list(islice(lines(islice(text, 1)), count))
    except (InputError, OSError, ValueError):
        return []


def _is_pair(path: str) -> bool:
    return "," in path and not Path(path).exists()


def _files(path: str, config: Config, shape: Shape, ledger: Ledger) -> Files:
    paths = _find(path, shape, config, ledger)
    return Files(paths, tuple(format_of(found, config, shape) for found in paths), config, shape, _checked(config))


def _checked(config: Config) -> CheckedSources | None:
    return CheckedSources(config) if config.source in media.MEDIA else None


@dataclass(frozen=True)
class Files:
    """Files, read one after the other."""

    by_path: ClassVar = False

    paths: tuple[Path, ...]
    formats: tuple[Format, ...]
    config: Config
    shape: Shape
    checked: CheckedSources | None = None

    def describe(self) -> list[dict[str, Any]]:
        return [describe_file(path) for path in self.paths]

    def read(self, ledger: Ledger, progress: Progress | None) -> Iterator[Example]:
        if progress and self.checked and not self.checked.done:
            rows = sum(1 for _ in replace(self, checked=None).read(Ledger(), None))
            yield from _row_by_row(self.read(ledger, None), progress, rows)
            return
        reader, done = Reader(self.config, self.shape, ledger, self.checked), 0
        sizes = [path.stat().st_size for path in self.paths] if progress else [0] * len(self.paths)
        for path, form, size in zip(self.paths, self.formats, sizes, strict=True):
            yield from reader.read(path, form, _ticker(progress, path, done, sum(sizes)))
            done += size
        reader.finish()


@dataclass(frozen=True)
class Parallel:
    """Two files, read side by side."""

    by_path: ClassVar = False

    source: Path
    target: Path
    config: Config
    checked: CheckedSources | None = None

    def describe(self) -> list[dict[str, Any]]:
        return [describe_file(self.source), describe_file(self.target)]

    def read(self, ledger: Ledger, progress: Progress | None) -> Iterator[Example]:
        if progress and self.checked and not self.checked.done:
            rows = sum(1 for _ in replace(self, checked=None).read(Ledger(), None))
            return _row_by_row(self.read(ledger, None), progress, rows)
        size = self.source.stat().st_size
        reader = Reader(self.config, PARALLEL, ledger, self.checked)
        return reader.parallel(self.source, self.target, _ticker(progress, self.source, 0, size))


@dataclass(frozen=True)
class Builtin:
    """A corpus that comes with Python."""

    by_path: ClassVar = False
    checked: ClassVar = None

    name: str
    config: Config

    def describe(self) -> list[dict[str, Any]]:
        return [builtin.describe_file(self.name)]

    def read(self, ledger: Ledger, progress: Progress | None) -> Iterator[Example]:
        for title, text in builtin.documents(self.name, ledger):
            yield from units(iter([text]), title, self.config, ledger)


@dataclass(frozen=True)
class Docstrings:
    """Functions of the standard library with the first lines of their docstrings."""

    by_path: ClassVar = True
    checked: ClassVar = None

    def describe(self) -> list[dict[str, Any]]:
        return [_described("docstrings", docstrings.pairs())]

    def read(self, ledger: Ledger, progress: Progress | None) -> Iterator[Example]:
        return iter(docstrings.pairs())


@dataclass(frozen=True)
class Made:
    """A corpus that is made, not read."""

    by_path: ClassVar = False
    checked: ClassVar = None

    name: str
    config: Config
    shape: Shape

    def describe(self) -> list[dict[str, Any]]:
        return [_described(self.name, self.read(Ledger(), None))]

    def read(self, ledger: Ledger, progress: Progress | None) -> Iterator[Example]:
        return iter(_made(self.name, self.shape.name, self.config.seed))

    def best(self, examples: Iterator[Example]) -> dict[str, float]:
        """The best possible score on these very examples."""
        if self.name == "copy":
            return copy_task.best(examples)
        if self.name in media.CORPORA:
            best: dict[str, float] = media.corpus(self.name).best(examples)
            return best
        return grammar.best(_data_set(self.name, self.shape.name), examples)


def _described(name: str, examples: Iterable[Example]) -> dict[str, Any]:
    """The ledger's entry of a corpus that is no file."""
    digest, size = hashlib.sha256(), 0
    for example in examples:
        answers = [f"{begin} {text}" for begin, text in example.answers]
        columns = (example.text, example.label, " ".join(example.tags), example.target, *answers)
        line = "\t".join(columns).encode() + b"\n"
        digest.update(line)
        size += len(line)
    return {"path": name, "bytes": size, "sha256": digest.hexdigest()}


@lru_cache(maxsize=4)
def _made(name: str, shape: str, seed: int) -> tuple[Example, ...]:
    """All examples of a seed. Cached, since a run reads these few megabytes several times."""
    if name in media.CORPORA:
        made = media.corpus(name).examples(seed)
        return tuple(one._replace(content=content_of(one.text, seed)) for one in made)
    return tuple(copy_task.lines(seed=seed) if name == "copy" else grammar.sentences(_data_set(name, shape), seed=seed))


def _data_set(name: str, shape: str) -> str:
    """Which of the grammar's data sets a corpus is."""
    return name if name in grammar.BY_SHAPE else shape


def _ticker(progress: Progress | None, path: Path, before: int, total: int) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda position: progress(f"reading {path.name}", min((before + position) / max(total, 1), 1.0))


def _row_by_row(examples: Iterator[Example], progress: Progress, rows: int) -> Iterator[Example]:
    """Report progress by rows: to check a sound or a picture takes longer than to read the row that names it."""
    for number, example in enumerate(examples, 1):
        progress(f"reading {Path(example.path).name}", min(1.0, number / max(1, rows)))
        yield example


def _find(path: str, shape: Shape, config: Config, ledger: Ledger) -> tuple[Path, ...]:
    """The files that a name, a folder or a glob stands for, in sorted order."""
    place = Path(path)
    if place.is_file():
        if place.stat().st_size == 0:
            raise InputError(f"{path} is empty. Expected {shape.expected}; check that the file was written.")
        return (place,)
    if place.is_dir():
        found = [file for file in sorted(_walk(place, ledger)) if not _hidden(file.relative_to(place))]
    elif place.exists():
        raise InputError(f"{path} is neither a file nor a folder. Expected one, since it is read twice; save it first.")
    elif glob.has_magic(path):
        found = sorted(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if "**" in path:
            list(_walk(Path(path.partition("**")[0] or "."), ledger))  # for the folders that may not be read
    elif place.is_symlink():
        raise InputError(f"{path} is a link that leads to no file. Expected a file, a folder or a link to one.")
    else:
        raise InputError(f"{path} does not exist. Expected a file, a folder, a glob or a corpus's name.{_near(place)}")
    kept = tuple(file for file in found if file.is_file() and _is_wanted(file, shape, config, ledger))
    if not kept:
        kind = "folder" if place.is_dir() else "glob"
        raise InputError(f"the {kind} {path} has no text in it ({len(found)} names found). Expected {shape.expected}.")
    return kept


def _walk(place: Path, ledger: Ledger) -> Iterator[Path]:
    """All that is in a folder and in the folders in it; the ledger names those that may not be read."""

    def note(error: OSError) -> None:
        ledger.note(f"cannot be read ({error.strerror}), left out", str(error.filename))

    for folder, folders, names in os.walk(place, onerror=note):
        yield from (Path(folder, name) for name in (*folders, *names))


def _hidden(inside: Path) -> bool:
    return any(part.startswith(".") for part in inside.parts)


def _is_wanted(file: Path, shape: Shape, config: Config, ledger: Ledger) -> bool:
    """Whether a file of a folder or glob is not empty and may hold rows of this shape; if not, note it."""
    if file.stat().st_size == 0:
        ledger.note("empty, left out", str(file))
    elif extension(file) in NOT_TEXT or not _known(file, shape, config):
        ledger.note("left out by its extension", str(file))
    else:
        return True
    return False


def _known(file: Path, shape: Shape, config: Config) -> bool:
    """Whether it is known how a file is written."""
    return config.format != "auto" or bool(_by_extension(file, shape) or by_first_lines(file, config, shape))


def _near(place: Path) -> str:
    """Suggest a name like the missing one, from the same folder or the corpora."""
    beside = [file.name for file in place.parent.iterdir()] if place.parent.is_dir() else []
    hint = nearest(place.name, [*beside, *BUILTIN, *downloads.NAMED])
    return hint if "Did you mean" in hint else " Check the spelling; `segue data` lists the corpora."


def format_of(path: Path, config: Config, shape: Shape) -> Format:
    """How a file is written: data.format, or decided by its extension, or fastText's and CoNLL's by the first lines."""
    if config.format == "parallel" and shape is PARALLEL:
        raise InputError(f"data.format=parallel reads two files, but {path} is one. Expected SOURCE,TARGET.")
    if config.format != "auto":
        if config.format not in shape.formats.values():
            raise InputError(f"data.format is {config.format}, but this model reads {shape.expected}.")
        return config.format
    form = _by_extension(path, shape)
    if form in (None, "text"):
        form = by_first_lines(path, config, shape) or form
    if form is None:
        raise InputError(
            f"{path}: its extension '{extension(path)}' does not say how it is written. Expected {shape.expected}."
        )
    return form


def _by_extension(path: Path, shape: Shape) -> Format | None:
    return shape.formats.get(extension(path), shape.formats.get(ANY_OTHER))


def by_first_lines(path: Path, config: Config, shape: Shape) -> Format | None:
    """fasttext or conll, if the first lines of a file look like it and the shape can be written so."""
    forms = shape.formats.values()
    if "fasttext" in forms and is_fasttext(_first_lines(path, config.encoding, 5)):
        return "fasttext"
    return "conll" if "conll" in forms and is_conll(_first_lines(path, config.encoding)) else None


def _parallel(path: str, config: Config, shape: Shape) -> Parallel:
    parts = [Path(part.strip()) for part in path.split(",")]
    if len(parts) != 2 or shape is not PARALLEL or config.format not in ("auto", "parallel"):
        raise InputError(f"{path} does not exist as one file. Expected {shape.expected}.")
    for part in parts:
        if not part.is_file():
            raise InputError(f"{part} is not a file. Expected two parallel files, SOURCE,TARGET.{_near(part)}")
        if part.stat().st_size == 0:
            raise InputError(f"{part} is empty. Expected a sentence in each line; check that the file was written.")
    return Parallel(parts[0], parts[1], config, _checked(config))
