"""How rows of data look: running text, texts with labels, words with tags, translations, or answered questions.

A shape says which columns a table has, which keys a JSON object has, which other names for them are usual, how its
files may be written, and how the values of a row become an `Example`. The rest of data/ asks the shape and knows no
task. To add a shape, write an instance here and put it into SHAPES.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, NamedTuple

from segue.data import answers
from segue.data.config import Config, Format
from segue.data.example import Example, joined, names_of
from segue.data.media import MEDIA, media_among
from segue.data.tables import Kind, is_conll, is_fasttext, json_rows, kinds_of, see_delimiter
from segue.data.units import tidy
from segue.errors import InputError

Values = list[Any]
"""The values of a row in the order of the shape's fields: strings, or lists of strings for words and tags."""

ANY_OTHER = "*"
TWO_FILES = "SOURCE,TARGET"
_TABLES: dict[str, Format] = {".tsv": "tsv", ".csv": "csv"}
_OBJECTS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}
_FASTTEXT: dict[str, Format] = {".fasttext": "fasttext"}
_CONLL = (".conll", ".conllu", ".iob")
_LABEL_NAMES = (
    *("labels", "class", "category", "sentiment", "stars", "rating", "target", "polarity", "topic", "emotion"),
    *("intent", "score", "gold"),
)
_TEXT_NAMES = (
    *("review", "sentence", "content", "body", "comment", "message", "tweet", "document", "utterance", "question"),
    *("description", "headline", "feedback", "abstract", "query", "post"),
)
_SOURCE_NAMES = (
    *("src", "input", "source_text", "src_text", "dialogue", "dialog", "article", "document", "question", "query"),
    *("prompt", "instruction", "context", "code"),
)
_TARGET_NAMES = (
    *("tgt", "trg", "output", "target_text", "tgt_text", "translation", "summary", "highlights", "answer", "reply"),
    *("response", "completion", "docstring"),
)
_LANGUAGES = frozenset(
    (
        *("ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "ga", "gl", "he", "hi"),
        *("hr", "hu", "is", "it", "ja", "ka", "ko", "la", "lt", "lv", "mk", "mt", "nl", "pl", "pt", "ro"),
        *("ru", "sk", "sl", "sq", "sr", "sv", "sw", "ta", "th", "tr", "uk", "ur", "vi", "zh", "arabic", "chinese"),
        *("czech", "dutch", "english", "finnish", "french", "german", "greek", "hindi", "italian", "japanese"),
        *("korean", "polish", "portuguese", "romanian", "russian", "spanish", "swedish", "turkish", "ukrainian"),
    )
)
_LARGEST = 1e18
"""A float32 still holds the square of a number below this."""


class Shape(NamedTuple):
    """How the rows of a data set look."""

    name: str
    fields: tuple[str, ...]
    """The columns of a table."""
    keys: tuple[str, ...]
    """The keys of a JSON object, in the order of `fields`."""
    formats: dict[str, Format]
    """How a file is written, by its extension; `*` is any other extension, SOURCE,TARGET is a pair of files."""
    expected: str
    """What a message says is expected."""
    example: Callable[[Values, Config], Example | str]
    """Makes an example of a row's values, or says what is wrong with the row."""
    from_json: Callable[[dict[str, Any], Sequence[str], Config], Values | str]
    """Takes the values of these keys from a JSON object, or says what is wrong with the object."""
    fits: Callable[[str, list[str]], bool]
    """Whether a file with this extension and these first lines seems to have this shape."""
    shown: Callable[[Example, Callable[[str], str]], str]
    """One line for `segue data FILE`; the function that it is given cuts a text into tokens."""
    running: bool = False
    """Running text, which is cut into units (data.unit) and split in order, not rows that are split at random."""
    labelled: bool = False
    """Whether two rows with the same text may contradict each other."""
    optional: tuple[str, ...] = ()
    """Columns that data.columns may name beyond `fields`."""
    also: tuple[tuple[str, ...], ...] = ()
    """For each field, other names that columns and keys usually have for it."""
    kinds: tuple[Kind, ...] = ()
    """For each field, what its column holds."""
    question: tuple[int, ...] = (0,)
    """The fields that a model reads; it predicts the others."""
    beside: str = ""
    """A column that is read as well where a table's header has it."""
    rows_within: Callable[[Any], Iterator[Any]] | None = None
    """Takes the rows out of a JSON value that nests them; None: each value is a row."""
    together: Callable[[Example], str] | None = None
    """What rows that are held out together share: questions about one text; None: each row stands for itself."""

    def asked_fields(self, config: Config) -> list[int]:
        """The numbers of the fields that a prediction needs."""
        pair = range(len(self.fields), len(self.fields) + len(self.optional)) if config.pairs and self.optional else ()
        return [*self.question, *pair]


def guess(extension: str, lines: list[str]) -> Shape:
    """The shape of a file, by its extension and its first lines; running text if they do not tell."""
    return next(shape for shape in SHAPES if shape.fits(extension, lines))


_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")


def named(own: str, also: Sequence[str], names: Sequence[str]) -> Iterator[list[int]]:
    """Which of the names are the field's own; then which are another usual name; then which end with one of these
    words: reviewText, star_rating."""
    yield [i for i, name in enumerate(names) if name == own]
    usual = {own, *also}
    yield [i for i, name in enumerate(names) if name.strip().lower() in usual]
    yield [i for i, name in enumerate(names) if (_WORD.findall(name) or [""])[-1].lower() in usual]


def languages(names: Sequence[str]) -> list[int]:
    """Which of the names are those of languages: en, de."""
    return [i for i, name in enumerate(names) if name.strip().lower() in _LANGUAGES]


def json_object(line: str) -> dict[str, Any] | str:
    """The JSON object in a line, or what is wrong with the line."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"
    return found if isinstance(found, dict) else "is not a JSON object"


def optional_named(shape: Shape, extension: str, lines: list[str]) -> str:
    """The data.columns of a file whose header or keys name all columns of a shape, the optional ones too; else ""."""
    columns = (*shape.keys, *shape.optional)
    names = [name.strip() for name in _names(extension, lines)]
    return ",".join(columns) if shape.optional and all(names.count(name) == 1 for name in columns) else ""


def _names(extension: str, lines: list[str]) -> list[str]:
    """The keys of the first JSON object, or the cells of a table's first row, which may be a header."""
    if not lines:
        return []
    if extension in _OBJECTS:
        return list(next(_objects(extension, lines), ()))
    if extension == ".tsv":
        return lines[0].split("\t")
    return next(csv.reader(lines[:1], delimiter=see_delimiter(lines)), []) if extension in _TABLES else []


def _objects(extension: str, lines: list[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects in the first lines of a file, up to one that is not whole."""
    texts = ["\n".join(lines)] if extension == ".json" else lines
    with suppress(InputError):
        for text in texts:
            yield from (found for _, found in json_rows("", iter([text])) if isinstance(found, dict))


def _has(shape: Shape, names: Sequence[str]) -> bool:
    """Whether every field of a shape has a column or key, by its own name or another usual one."""
    return all(any(named(key, also, names)) for key, also in zip(shape.keys, shape.also, strict=True))


def _strings(found: dict[str, Any], keys: Sequence[str], config: Config) -> Values | str:
    return _only_strings([found.get(key) for key in keys], keys)


def _only_strings(values: Values, keys: Sequence[str]) -> Values | str:
    for key, value in zip(keys, values, strict=True):
        if not isinstance(value, str):
            return f"has no '{key}'" if value is None else f"has a '{key}' that is not a string"
    return values


def question_values(shape: Shape, found: dict[str, Any], keys: Sequence[str]) -> Values | str:
    """Take the values of these keys, to predict the rest from them: texts, or of words a list or a text."""
    values = [found.get(key) for key in keys]
    if shape is TAGGED and isinstance(words := values[0], list):
        return values if all(isinstance(word, str) and word for word in words) else f"has no words in '{keys[0]}'"
    return _only_strings(values, keys)


def _tidied(text: str, config: Config) -> str:
    return tidy(text) if config.canonical else text


# Running text


def _running_example(values: Values, config: Config) -> Example:
    return Example(values[0])


TEXT = Shape(
    name="text",
    fields=("text",),
    keys=("text",),
    formats={**_OBJECTS, **_TABLES, **_FASTTEXT, ANY_OTHER: "text"},
    expected="text",
    example=_running_example,
    from_json=_strings,
    fits=lambda extension, lines: True,
    shown=lambda example, split: split(example.text),
    running=True,
    also=(_TEXT_NAMES,),
    kinds=("text",),
)


# A text, or a pair of texts, with a label


def _labelled_example(values: Values, config: Config) -> Example | str:
    """A text, or a pair of texts, with its class, its classes or its number."""
    label = values[0].strip()
    text, second = (*(_tidied(value, config) for value in values[1:]), "")[:2]
    if config.label == "classes":
        names = tuple(sorted({name for part in label.split(",") if (name := part.strip())}))
        return Example(text, ",".join(names), tags=names, target=second)
    if not label:
        return "has no label"
    if config.label == "number" and not is_number(label):
        return f"has the label '{label[:60]}', which is no number below 1e18 (data.label=number)"
    return Example(text, label, target=second)


def is_number(label: str) -> bool:
    """Whether data.label=number can read a label."""
    if "_" in label:  # Python would read 1_000 as 1000
        return False
    try:
        return abs(float(label)) < _LARGEST
    except ValueError:
        return False


def _label_and_texts(found: dict[str, Any], keys: Sequence[str], config: Config) -> Values | str:
    label, *texts = (found.get(key) for key in keys)
    return _only_strings([_as_in_a_table(label, config), *texts], keys)


def _as_in_a_table(label: Any, config: Config) -> Any:
    """A label as a table has it: numbers and truth values written out, several labels with commas between them."""
    if isinstance(label, bool | int | float):
        return json.dumps(label)
    if config.label != "classes" or not isinstance(label, list):
        return label
    return ",".join(label) if all(isinstance(name, str) and "," not in name for name in label) else label


def _looks_labelled(extension: str, lines: list[str]) -> bool:
    """By the extension of a table with several columns, by the keys or what they hold, or by fastText's labels."""
    if extension in _OBJECTS:
        names = _names(extension, lines)
        return _has(LABELLED, names) or ("text" not in names and _hold_labels_and_texts(_objects(extension, lines)))
    return len(_names(extension, lines)) != 1 if extension in _TABLES else is_fasttext(lines)


def _hold_labels_and_texts(objects: Iterator[dict[str, Any]]) -> bool:
    """Whether just one key has long, varied texts and just one few short values. (Objects with the key `text` and no
    usual name of a label are documents: their other keys say where they come from.)"""
    found = list(objects)
    keys = dict.fromkeys(key for one in found for key in one)
    kinds = kinds_of([[str(one[key]) for one in found if isinstance(one.get(key), str | int | float)] for key in keys])
    return kinds.count("text") == kinds.count("label") == 1


LABELLED = Shape(
    name="labelled",
    fields=("label", "text"),
    keys=("label", "text"),
    formats={**_TABLES, **_OBJECTS, **_FASTTEXT},
    expected="a label and a text in each row (data.format=tsv, csv, json, jsonl or fasttext)",
    example=_labelled_example,
    from_json=_label_and_texts,
    fits=_looks_labelled,
    shown=lambda example, split: f"{example.label}: {split(example.text)}",
    labelled=True,
    optional=("text2",),
    also=(_LABEL_NAMES, _TEXT_NAMES),
    kinds=("label", "text"),
    question=(1,),
)


# Words with their tags


def _tagged_example(values: Values, config: Config) -> Example:
    words, tags = map(tuple, values)
    if config.label == "classes":
        tags = tuple(joined(names_of(tag)) for tag in tags)
    return Example(" ".join(words), words=words, tags=tags)


def _word_lists(found: dict[str, Any], keys: Sequence[str], config: Config) -> Values | str:
    lists: list[list[str]] = []
    for key in keys:
        items = found.get(key)
        if not isinstance(items, list) or not items or not all(isinstance(item, str) and item for item in items):
            return f"has no '{key}'" if items is None else f"has '{key}' that are not a list of words"
        lists.append(items)
    words, tags = map(len, lists)
    return lists if words == tags else f"has {words} {keys[0]} but {tags} {keys[1]}"


def _looks_tagged(extension: str, lines: list[str]) -> bool:
    """By the extension, by the keys, by sentences of single words in a table, with a blank line between them, or by
    rows of columns of which the last is a tag."""
    if extension == ".tsv":
        return "" in lines and all("\t" in line and " " not in line for line in lines if line)
    if extension in _OBJECTS:
        return set(TAGGED.keys) <= set(_names(extension, lines))
    return extension in _CONLL or (extension not in _TABLES and is_conll(lines))


TAGGED = Shape(
    name="tagged",
    fields=("word", "tag"),
    keys=("words", "tags"),
    formats={**dict.fromkeys((*_CONLL, ".tsv", ".txt"), "conll"), **_OBJECTS},
    expected=(
        "a word and its tag in each row (data.format=conll), or words and tags in each object (data.format=jsonl)"
    ),
    example=_tagged_example,
    from_json=_word_lists,
    fits=_looks_tagged,
    shown=lambda example, split: " ".join(map("/".join, zip(example.words, example.tags, strict=True))),
    labelled=True,
    also=(("tokens",), ("pos_tags", "ner_tags", "labels")),
)


# A text and its translation


def _parallel_example(values: Values, config: Config) -> Example:
    source, target = values
    if config.source not in MEDIA:  # the name of a file may have any blanks
        source = _tidied(source, config)
    return Example(source, target=_tidied(target, config))


def _looks_parallel(extension: str, lines: list[str]) -> bool:
    """By the names of source and target, such as article and summary, or of two languages, unless the row also has a
    label and a text, or words and tags: then they are just further columns, such as where a review comes from."""
    listed = _names(extension, lines)
    names = {name.strip().lower() for name in listed}
    if any(set(shape.keys) <= set(listed) for shape in (LABELLED, TAGGED)):
        return False
    if _names_media(extension, lines):
        return True
    if set(PARALLEL.keys) <= set(listed) or (len(languages(listed)) == 2 and len(names) <= 3):
        return True
    return not names.isdisjoint(_SOURCE_NAMES) and not names.isdisjoint(_TARGET_NAMES)


def _names_media(extension: str, lines: list[str]) -> bool:
    """Whether a column of a table, or a key, has names of sounds or pictures, and there are others."""
    if extension in _OBJECTS:
        found = list(_objects(extension, lines))
        keys = dict.fromkeys(key for one in found for key in one)
        columns = [[str(one[key]) for one in found if isinstance(one.get(key), str)] for key in keys]
    elif extension in _TABLES:
        rows = list(_cells(extension, lines))
        rows = rows[1:] or rows  # the first may be a header
        columns = [list(cells) for cells in zip_longest(*rows, fillvalue="")]
    else:
        return False
    return len(columns) > 1 and any(map(media_among, columns))


def _cells(extension: str, lines: list[str]) -> Iterator[list[str]]:
    """The rows of a table in the first lines of a file, up to one that is not whole."""
    if extension == ".tsv":
        yield from (line.split("\t") for line in lines if line.strip())
        return
    with suppress(csv.Error):
        yield from filter(None, csv.reader(lines, delimiter=see_delimiter(lines)))


PARALLEL = Shape(
    name="parallel",
    fields=("source", "target"),
    keys=("source", "target"),
    formats={TWO_FILES: "parallel", **_TABLES, **_OBJECTS},
    expected="SOURCE,TARGET (two files), or a source and a target in each row (data.format=tsv, csv or jsonl)",
    example=_parallel_example,
    from_json=_strings,
    fits=_looks_parallel,
    shown=lambda example, split: f"{split(example.text)} -> {split(example.target)}",
    also=((*_SOURCE_NAMES, "text"), _TARGET_NAMES),
    kinds=("text", "text"),
)


# A question, a text, and its answers in the text


def _looks_answered(extension: str, lines: list[str]) -> bool:
    """By SQuAD's nesting, or by the names of question, text and answer."""
    if extension == ".json" and answers.is_nested(lines):
        return True
    return extension in {*_OBJECTS, *_TABLES} and _has(ANSWERS, [name.strip() for name in _names(extension, lines)])


def _shown_answer(example: Example, split: Callable[[str], str]) -> str:
    said = " | ".join(dict.fromkeys(one.text for one in example.answers)) or "no answer"
    return f"{split(example.text)} -> {said} in: {split(example.target)}"


ANSWERS = Shape(
    name="answers",
    fields=answers.FIELDS,
    keys=answers.FIELDS,
    formats={**_OBJECTS, **_TABLES},
    expected="a question, a text and its answer in each row, or SQuAD's JSON (data.format=json, jsonl, tsv or csv)",
    example=answers.example_of,
    from_json=answers.values_of,
    fits=_looks_answered,
    shown=_shown_answer,
    also=answers.ALSO,
    kinds=("text", "text", ""),
    question=(0, 1),
    beside=answers.START,
    rows_within=answers.rows_within,
    together=lambda example: example.target,
)


SHAPES = (ANSWERS, PARALLEL, TAGGED, LABELLED, TEXT)
"""In the order in which `guess` tries them: the rows of each could also be those of a later one."""
