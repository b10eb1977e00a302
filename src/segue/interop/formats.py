"""The formats of `segue export` and `segue import`: one table, read by both verbs.

To add a format, write its reader and writer and give it a row. The modules that do the work are imported only when they
are called, since some of them load torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from segue.errors import InputError, nearest

Progress = Any
Notes = list[str]
"""Notes for the user, a sentence each."""


def _silent(what: str, share: float, note: str = "") -> None:
    """Report no progress (training/log.py has the same, but loads more)."""


class Format(NamedTuple):
    """A file format of runs."""

    name: str
    """As in `segue export --to NAME`."""
    suffixes: tuple[str, ...]
    """File extensions that `segue import` reads in this format, without .gz and .xz."""
    what: str
    """The part of a run that it holds."""
    looks_like: Callable[[Path], bool]
    """Whether a path with another extension looks like this format."""
    read: Callable[[Path, Path, Progress], Notes]
    """(path, run folder to make, progress)"""
    write: Callable[[Path, Path, Progress], Notes]
    """(run folder, path to write, progress)"""
    written: str
    """The message after an export: what {path} is for."""

    def recognises(self, path: Path) -> bool:
        """Whether `segue import` reads this path in this format."""
        suffix = Path(path.name.removesuffix(".gz").removesuffix(".xz")).suffix
        return (suffix in self.suffixes and not path.is_dir()) or self.looks_like(path)


def export_run(run: str | Path, path: str | Path, to: str = "zip", progress: Progress = _silent) -> Notes:
    """Write a run in the format of this name."""
    chosen = next((one for one in FORMATS if one.name == to), None)
    if chosen is None:
        raise InputError(f"There is no format '{to}'.{nearest(to, [one.name for one in FORMATS])}")
    return [*chosen.write(Path(run), Path(path), progress), chosen.written.format(path=path)]


def import_run(path: str | Path, out: str | Path | None = None, progress: Progress = _silent) -> Notes:
    """Make a run folder of a file or folder, in the first format that recognises it; by default runs/NAME."""
    from segue.runs.folder import free_name

    path = Path(path)
    place = Path(out) if out else free_name(path.resolve().name.split(".")[0] or "imported")
    chosen = next(one for one in FORMATS if one.recognises(path))
    return [*chosen.read(path, place, progress), f"The run: {place}"]


def _never(path: Path) -> bool:
    return False


def _always(path: Path) -> bool:
    return True


# Vectors of words


def _holds_vectors(path: Path) -> bool:
    """Whether the first line is that of a word2vec file (GloVe's have none: their extension identifies them)."""
    from segue.word_vectors.files import is_vectors

    return path.is_file() and is_vectors(path)


def _read_word2vec(path: Path, out: Path, progress: Progress) -> Notes:
    from segue.interop.word2vec_format import import_word2vec

    return import_word2vec(path, out)


def _write_word2vec(run: Path, path: Path, progress: Progress) -> Notes:
    from segue.interop.word2vec_format import export_word2vec

    return export_word2vec(run, path)


# Hugging Face


def _read_huggingface(path: Path, out: Path, progress: Progress) -> Notes:
    if model_type(path) in ("bert", "roberta"):
        from segue.interop.huggingface.bert import import_bert

        return import_bert(path, out)
    if model_type(path) == "t5":
        from segue.interop.huggingface.t5 import import_t5

        return import_t5(path, out)
    from segue.interop.huggingface.gpt2 import import_gpt2

    return import_gpt2(path, out)


def _write_huggingface(run: Path, path: Path, progress: Progress) -> Notes:
    notes = _write_model(run, path)
    return [*notes, f"Open it in Python: transformers.{_opened_by(path)}.from_pretrained('{path}')"]


def _opened_by(path: Path) -> str:
    """The class of transformers that opens a folder, such as AutoModelForCausalLM."""
    [architecture, *_] = _config(path).get("architectures") or ["GPT2LMHeadModel"]  # their old folders name none
    known = {"GPT2LMHeadModel": "GPT2ForCausalLM", "T5ForConditionalGeneration": "T5ForSeq2SeqLM"}
    _, _, task = known.get(architecture, architecture).partition("For")
    return f"AutoModelFor{task}" if task else "AutoModel"


def _write_model(run: Path, path: Path) -> Notes:
    if _kind_of(run) in ("bert", "finetuned_classifier", "finetuned_tagger", "finetuned_answerer"):
        from segue.interop.huggingface.bert_export import export_bert

        return export_bert(run, path)
    if _kind_of(run) == "t5":
        from segue.interop.huggingface.t5 import export_t5

        return export_t5(run, path)
    from segue.interop.huggingface.gpt2 import export_gpt2

    return export_gpt2(run, path)


def _config(path: Path) -> dict[str, Any]:
    """Read config.json of a folder, theirs or a run's; {} where there is none."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def model_type(path: Path) -> str:
    """The kind of model that config.json of a folder of transformers names, or ""."""
    return str(_config(path).get("model_type", ""))


def _kind_of(run: Path) -> str:
    return str(_config(run).get("kind", ""))


def is_marian(path: Path) -> bool:
    """Whether a path is a folder whose config.json names Marian."""
    return model_type(path) == "marian"


def _read_marian(path: Path, out: Path, progress: Progress) -> Notes:
    from segue.interop.huggingface.marian import import_marian

    return import_marian(path, out)


def _write_marian(run: Path, path: Path, progress: Progress) -> Notes:
    from segue.interop.huggingface.marian import export_marian

    return export_marian(run, path)


# ARPA


def _read_arpa(path: Path, out: Path, progress: Progress) -> Notes:
    from segue.interop.arpa.read import import_arpa

    return import_arpa(path, out, progress)


def _write_arpa(run: Path, path: Path, progress: Progress) -> Notes:
    from segue.interop.arpa.write import export_arpa

    return export_arpa(run, path, progress)


# A whole run


def _read_zip(path: Path, out: Path, progress: Progress) -> Notes:
    from segue.interop.archive import import_zip

    import_zip(path, out)
    return []


def _write_zip(run: Path, path: Path, progress: Progress) -> Notes:
    from segue.interop.archive import export_zip

    export_zip(run, path)
    return []


FORMATS = (
    Format(
        "word2vec",
        (".vec", ".txt"),
        "its vectors",
        _holds_vectors,
        _read_word2vec,
        _write_word2vec,
        "{path} holds the vectors, for gensim and others.",
    ),
    Format(
        "marian",
        (),
        "a Marian translator",
        is_marian,
        _read_marian,
        _write_marian,
        "{path} holds the model, for transformers (MarianMTModel.from_pretrained('{path}')) and CTranslate2.",
    ),
    Format(
        "hf",
        (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl"),  # one file: the reader says that it wants the folder
        "a GPT-2, BERT, RoBERTa or T5",
        Path.is_dir,
        _read_huggingface,
        _write_huggingface,
        "{path} holds the model and its tokenizer, for transformers.",
    ),
    Format(
        "arpa",
        (".arpa", ".lm"),
        "an n-gram model",
        _never,
        _read_arpa,
        _write_arpa,
        "{path} holds the model, for KenLM, SRILM and others.",
    ),
    Format(
        "zip",
        (".zip",),
        "a whole run",
        _always,
        _read_zip,
        _write_zip,
        "{path} holds the run. Elsewhere: segue import {path} --out RUN",
    ),
)
"""`segue import` takes the first that recognises a path. Vectors come first: a .bin may hold them. Marian comes
before hf, which takes every folder. The last takes what no other does, and says what is wrong with it."""
