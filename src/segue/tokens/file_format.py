"""tokenizer.json: write each kind of tokens in the `tokenizers` library's own format, and recognise it again.

Ids 0 and 1 have names with spaces inside. No piece of text has a space there (words have it only in front, characters
are one character, bytes write it as Ġ), so no text turns into a special token. Nor are they registered as "added
tokens", since the library looks for those in the raw text.
"""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from segue.tokens.split import CONTRACTIONS, LINE_BLANK, LINE_START

Kind = Literal["char", "byte", "space", "word", "bpe", "wordpiece", "unigram", "sentencepiece"]
KINDS: tuple[Kind, ...] = get_args(Kind)

STOP, UNK = 0, 1
RESERVED = ("< stop >", "< unk >")

_BYTES: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_BPE: dict[str, Any] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
_MODELS: dict[Kind, dict[str, Any]] = {
    "char": _BPE | {"unk_token": RESERVED[UNK]},
    "byte": _BPE,
    "space": {"type": "WordLevel", "unk_token": RESERVED[UNK]},
    "word": {"type": "WordLevel", "unk_token": RESERVED[UNK]},
    "bpe": _BPE,
    "wordpiece": {
        "type": "WordPiece",
        "unk_token": RESERVED[UNK],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    },
    "unigram": {"type": "Unigram", "unk_id": UNK, "byte_fallback": False},
    "sentencepiece": {"type": "SentencePiece"},  # the tokenizers library has none: only Segue reads it
}
_LEARNT = ("vocab", "merges", "spm", "source_spm", "unigram")
"""The keys of the model that training fills; all others are fixed by the kind."""
BERT: dict[str, Any] = {
    **{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
    **{"strip_accents": None, "lowercase": False},
}
"""How wordpiece changes a text before it is cut; an imported tokenizer may have other values."""
_BARE = _BYTES | {"row_blank": False}
"""The byte-level step of a tokenizer that puts no blank before a text that is a row; the library ignores the key."""


def write(
    kind: Kind,
    tokens: list[str],
    split: str = "",
    merges: list[list[str]] | None = None,
    scores: list[float] | None = None,
    normalizer: dict[str, Any] | None = None,
    row_blank: bool = True,
) -> dict[str, Any]:
    """Make the file's content; `tokens` are in the order of their ids, without the two reserved ones."""
    names = [*RESERVED, *tokens]
    model = dict(_MODELS[kind])
    if scores is None:
        model["vocab"] = {name: i for i, name in enumerate(names)}
    else:
        model["vocab"] = [list(pair) for pair in zip(names, [0.0, 0.0, *scores], strict=True)]
    if model["type"] == "BPE":
        model["merges"] = merges or []
    file = _frame(kind, split) | {"model": model}
    if normalizer is not None:
        file["normalizer"] = normalizer
    if not row_blank:
        file["pre_tokenizer"]["pretokenizers"][-1] = _BARE
    return file


def _frame(kind: Kind, split: str) -> dict[str, Any]:
    """Make everything but the model."""
    words: dict[str, Any] = {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
    blanks: dict[str, Any] = {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False}
    subwords = {"type": "Sequence", "pretokenizers": [words, _BYTES]}
    line_start: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": LINE_START}, "content": " "}
    line_blank: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": LINE_BLANK}, "content": ""}
    splits = {"byte": _BYTES, "space": blanks, "word": words, "wordpiece": {"type": "BertPreTokenizer"}}
    decoders: dict[str, Any] = {"char": {"type": "Fuse"}, "space": None, "sentencepiece": None}
    decoders["word"] = {"type": "Sequence", "decoders": [{"type": "Fuse"}, line_blank]}
    decoders["wordpiece"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"word": line_start, "wordpiece": BERT}.get(kind),
        "pre_tokenizer": splits.get(kind, None if kind in ("char", "sentencepiece") else subwords),
        "post_processor": None,
        "decoder": decoders.get(kind, _BYTES),
    }


def read(file: Any) -> tuple[Kind, list[str], str]:
    """Return the kind, the names of all ids and the split pattern of a file's content; ValueError if it is not ours."""
    if not isinstance(file, dict) or not isinstance(file.get("model"), dict):
        raise ValueError("there is no 'model' in it")
    split = _split_of(file.get("pre_tokenizer"))
    frame = _usual({key: value for key, value in file.items() if key != "model"})
    settings = {key: value for key, value in file["model"].items() if key not in _LEARNT}
    for kind in KINDS:
        if frame == _frame(kind, split) and settings == _MODELS[kind]:
            return kind, _names(file["model"], kind), split
    raise ValueError("its settings are not those of any kind of tokens here")


def row_blank(file: dict[str, Any]) -> bool:
    """Whether a text that is a row gets a blank in front, so that its first word is a token like any other."""
    steps = (file["pre_tokenizer"] or {}).get("pretokenizers", [_BYTES])
    return bool(steps[-1] != _BARE)


def _usual(frame: dict[str, Any]) -> dict[str, Any]:
    """Return the frame with the usual values of what an imported tokenizer may have otherwise."""
    normalizer, cut = frame.get("normalizer"), frame.get("pre_tokenizer")
    if isinstance(normalizer, dict) and normalizer.keys() == BERT.keys():
        values = [value for key, value in normalizer.items() if key != "type"]
        if all(value in (True, False, None) for value in values):
            frame = frame | {"normalizer": BERT | {"type": normalizer["type"]}}
    if isinstance(cut, dict) and isinstance(cut.get("pretokenizers"), list) and cut["pretokenizers"][-1:] == [_BARE]:
        frame = frame | {"pre_tokenizer": cut | {"pretokenizers": [*cut["pretokenizers"][:-1], _BYTES]}}
    return frame


def _split_of(pre_tokenizer: Any) -> str:
    """Return the regular expression of a word split, or ""."""
    try:
        inner = pre_tokenizer["pretokenizers"][0] if "pretokenizers" in pre_tokenizer else pre_tokenizer
        regex = inner["pattern"]["Regex"]
    except (TypeError, KeyError, IndexError):
        return ""
    if not isinstance(regex, str) or not regex.startswith(CONTRACTIONS):
        raise ValueError("its words are split by another pattern")
    try:
        re.compile(regex)
    except re.error as error:
        raise ValueError(f"its pattern for words is broken ({error})") from None
    return regex


def _names(model: dict[str, Any], kind: Kind) -> list[str]:
    """Return the name of each id, after checking names and ids."""
    vocab = model.get("vocab")
    if kind == "unigram" and isinstance(vocab, list):
        names = [entry[0] for entry in vocab if isinstance(entry, list) and len(entry) == 2]
        whole = len(names) == len(vocab)
    elif kind != "unigram" and isinstance(vocab, dict):
        names = list(vocab)
        whole = sorted(vocab.values()) == list(range(len(vocab)))
        names.sort(key=vocab.__getitem__)
    else:
        raise ValueError("its vocabulary is not in the shape that its model needs")
    if not whole or not all(isinstance(name, str) for name in names):
        raise ValueError("the ids of its vocabulary are not 0, 1, 2 and so on, each once")
    if tuple(names[:2]) != RESERVED:
        raise ValueError(f"ids 0 and 1 are not {RESERVED[STOP]!r} and {RESERVED[UNK]!r}")
    if kind == "char" and any(len(name) != 1 for name in names[2:]):
        raise ValueError("some of its tokens are not single characters")
    return names
